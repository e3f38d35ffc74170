//! The datasets of an index, newest first: as the table of the user guide, and as JSON.

use crate::output::on_one_line;
use scr_core::prefix::Index;
use serde_json::{json, Value};

/// For programs.
pub(super) fn json(index: &Index) -> Value {
    let entries = index.entries();
    let datasets = entries.iter().map(|entry| {
        json!({
            "id": entry.id,
            "name": String::from_utf8_lossy(&entry.name),
            "valid": entry.is_valid(),
            "flushed": entry.flushed,
            "current": entry.current,
        })
    });
    json!({ "datasets": datasets.collect::<Vec<_>>() })
}

/// The table, whose columns are those of C SCR.
pub(super) fn table(index: &Index) -> String {
    let mut text = "DSET VALID FLUSHED             CUR NAME\n".to_owned();
    for entry in index.entries() {
        let valid = if entry.is_valid() { "YES" } else { "NO" };
        let current = if entry.current { "*" } else { "" };
        let flushed = entry.flushed.as_deref().unwrap_or("");
        let name = on_one_line(&String::from_utf8_lossy(&entry.name));
        text += &format!("{:4} {valid:5} {flushed:19} {current:>3} {name}\n", entry.id);
    }
    text
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
        let expected = "\
DSET VALID FLUSHED             CUR NAME
  18 YES   2014-01-14T11:26:06   * ckpt.18
  12 YES   2014-01-14T11:26:06     ckpt.12
   6 NO    2014-01-14T11:26:06     ckpt.6
";
        assert_eq!(table(&index), expected);
    }
}
