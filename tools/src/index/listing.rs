//! The datasets of an index, newest first: as the table of the user guide, and as JSON.

use crate::output::{on_one_line, JSON_VERSION};
use scr_core::prefix::Index;
use serde::Serialize;

/// What there is.
#[derive(Serialize)]
pub(super) struct Listing {
    version: u32,
    datasets: Vec<Row>,
}

/// One dataset.
#[derive(Serialize)]
struct Row {
    id: u64,
    name: String,
    valid: bool,
    flushed: Option<String>,
    current: bool,
}

impl Listing {
    pub(super) fn of(index: &Index) -> Self {
        let datasets = index.entries().into_iter().map(|entry| Row {
            id: entry.id,
            valid: entry.is_valid(),
            current: entry.current,
            flushed: entry.flushed,
            name: String::from_utf8_lossy(&entry.name).into_owned(),
        });
        Self { version: JSON_VERSION, datasets: datasets.collect() }
    }

    pub(super) fn in_words(&self) -> String {
        let head = "DSET VALID FLUSHED             CUR NAME\n".to_owned();
        self.datasets.iter().fold(head, |text, row| {
            let valid = if row.valid { "YES" } else { "NO" };
            let current = if row.current { "*" } else { "" };
            let flushed = row.flushed.as_deref().unwrap_or("");
            let name = on_one_line(&row.name);
            text + &format!("{:4} {valid:5} {flushed:19} {current:>3} {name}\n", row.id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_core::prefix::DatasetDescriptor;

    #[test]
    fn the_table_is_that_of_the_guide() {
        let mut index = Index::new();
        for id in [6, 12, 18] {
            let name = format!("ckpt.{id}").into_bytes();
            index.record(&DatasetDescriptor { id, name, checkpoint: true, ..Default::default() }, id != 6);
            index.mark_flushed(id, "2014-01-14T11:26:06");
        }
        index.set_current("ckpt.18");
        let table = "\
DSET VALID FLUSHED             CUR NAME
  18 YES   2014-01-14T11:26:06   * ckpt.18
  12 YES   2014-01-14T11:26:06     ckpt.12
   6 NO    2014-01-14T11:26:06     ckpt.6
";
        assert_eq!(Listing::of(&index).in_words(), table);
    }
}
