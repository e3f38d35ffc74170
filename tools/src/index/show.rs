//! The datasets of a prefix directory, newest first: as a table, and as JSON. Those that the index does not list are among them,
//! as the flush file says: they lie only in cache, or in place.

use crate::prelude::*;
use jiff::tz::TimeZone;
use jiff::Timestamp;
use scr_ops::Held;
use scr_prefix::{DatasetDescriptor, FlushEntry, Index, IndexEntry, Location, Seq};
use std::cmp::Reverse;

/// A dataset that the index lists, or that only the flush file knows.
pub(super) struct Row {
    seq: Seq,
    name: String,
    dataset: Option<DatasetDescriptor>,
    listed: Option<IndexEntry>,
    /// Whether a job can read it in the prefix directory.
    is_valid: bool,
    /// Its copy in cache.
    copy: Option<Held>,
}

/// All datasets of the index, and of those that are `known` besides, the newest first.
pub(super) fn rows(index: &Index, known: &[Held], is_readable: impl Fn(u64) -> bool) -> Vec<Row> {
    let known = || known.iter().filter(|held| held.entry.is_at(Location::Cache));
    let listed = index.entries().into_iter().map(|listed| Row {
        seq: listed.seq(),
        name: String::from_utf8_lossy(&listed.name).into_owned(),
        dataset: listed.dataset.clone(),
        copy: known().find(|held| held.entry.id == listed.id && held.entry.name == listed.name).cloned(),
        is_valid: listed.is_valid() && is_readable(listed.id),
        listed: Some(listed),
    });
    // A dataset whose name a newer one has cannot be saved any more.
    let is_unlisted = |entry: &FlushEntry| index.entry(entry.id).is_none() && !entry.has_lost_name(index);
    let unlisted = known().filter(|held| is_unlisted(&held.entry)).map(|held| Row {
        seq: index.seq_of(&held.entry.dataset),
        name: held.entry.name_text(),
        dataset: Some(held.entry.dataset.clone()),
        listed: None,
        is_valid: false,
        copy: Some(held.clone()),
    });
    let mut rows: Vec<_> = listed.chain(unlisted).collect();
    rows.sort_by_key(|row| Reverse(row.seq));
    rows
}

impl Row {
    /// Which allocation has it in its cache.
    fn in_cache(&self) -> Option<&str> {
        let copy = self.copy.as_ref().filter(|copy| copy.entry.is_on_nodes());
        copy.map(|copy| copy.entry.allocation().unwrap_or_default())
    }

    /// The copy of a dataset that is only in cache.
    pub(super) fn only_copy(&self) -> Option<&Held> {
        let is_there = self.listed.as_ref().is_some_and(|listed| listed.complete && !listed.superseded);
        self.copy.as_ref().filter(|copy| copy.entry.is_on_nodes() && !is_there)
    }

    /// C SCR says NO of what is only in cache.
    fn cells(&self, is_classic: bool) -> [String; 7] {
        let is_in_cache = !is_classic && self.only_copy().is_some_and(|copy| copy.copy.is_whole());
        let valid = match self.is_valid {
            true => "YES",
            false if is_in_cache || self.listed.is_none() => "-",
            false => "NO",
        };
        let flushed = self.listed.as_ref().and_then(|entry| entry.flushed.as_deref());
        let current = self.listed.as_ref().is_some_and(|entry| entry.current);
        let only_in_cache = self.only_copy().map(|_| "only in cache");
        let unlisted = self.listed.is_none().then_some("not listed yet");
        let dataset = self.dataset.as_ref();
        [
            valid.to_owned(),
            only_in_cache.or(unlisted).or(flushed).unwrap_or_default().to_owned(),
            dataset.and_then(|dataset| dataset.ranks).map_or_else(String::new, |ranks| ranks.to_string()),
            dataset.and_then(|dataset| dataset.bytes).map_or_else(String::new, amount),
            dataset.and_then(written).unwrap_or_default(),
            if current { "*" } else { "" }.to_owned(),
            on_one_line(&self.name),
        ]
    }
}

/// When it was begun, for people.
fn written(dataset: &DatasetDescriptor) -> Option<String> {
    let micros = i64::try_from(dataset.created).ok().filter(|&micros| micros > 0)?;
    let time = Timestamp::from_microsecond(micros).ok()?.to_zoned(TimeZone::system());
    Some(time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// For programs. A field that is not known is null; `created` are microseconds since the epoch.
pub(super) fn json(rows: &[Row]) -> Value {
    let datasets = rows.iter().map(|row| {
        let (dataset, listed) = (row.dataset.as_ref(), row.listed.as_ref());
        json!({
            "id": row.seq.id,
            "name": row.name,
            "valid": row.is_valid,
            "flushed": listed.and_then(|entry| entry.flushed.as_deref()),
            "current": listed.is_some_and(|entry| entry.current),
            "in_index": listed.is_some(),
            "in_cache": row.in_cache().is_some(),
            "job_id": row.in_cache(),
            "checkpoint": dataset.map(|dataset| dataset.checkpoint),
            "output": dataset.map(|dataset| dataset.output),
            "ranks": dataset.and_then(|dataset| dataset.ranks),
            "files": dataset.and_then(|dataset| dataset.files),
            "bytes": dataset.and_then(|dataset| dataset.bytes),
            "created": dataset.map(|dataset| dataset.created).filter(|&created| created > 0),
        })
    });
    json!({ "datasets": datasets.collect::<Vec<_>>() })
}

/// The table. It has the columns of C SCR in their order, and so the name is the last one. In its classic form it has no others, and
/// only what the index lists.
pub(super) fn table(rows: &[Row], is_classic: bool) -> String {
    let line = |id: &str, [valid, flushed, ranks, size, written, current, name]: [&str; 7]| {
        let more = if is_classic { String::new() } else { format!("{ranks:>5} {size:>10} {written:16} ") };
        format!("{id:>4} {valid:5} {flushed:19} {more}{current:>3} {name}\n")
    };
    let head = line("DSET", ["VALID", "FLUSHED", "RANKS", "SIZE", "WRITTEN", "CUR", "NAME"]);
    let of_row =
        |row: &Row| line(&row.seq.id.to_string(), row.cells(is_classic).each_ref().map(String::as_str));
    head + &rows.iter().filter(|row| !is_classic || row.listed.is_some()).map(of_row).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_prefix::{FlushFile, InCache};
    use scr_test_kit::fixtures::ChangeIndex as _;

    #[test]
    fn the_table_has_the_columns_of_the_guide_and_then_size_and_age() {
        let (mut index, mut flush) = (Index::new(), FlushFile::default());
        let dataset = |id: u64| {
            let name = format!("ckpt.{id}").into_bytes();
            let (ranks, bytes) = (Some(64), Some(id << 30));
            DatasetDescriptor { id, name, checkpoint: true, ranks, bytes, ..Default::default() }
        };
        for id in [6, 12, 18] {
            index.record(&dataset(id), id != 6);
            index.mark_flushed(id, "2014-01-14T11:26:06");
            flush.record(&dataset(id), Location::Prefix);
        }
        // Its flush is under way: it was said not to be valid.
        index.record(&dataset(24), false);
        index.set_current("ckpt.18");
        flush.record(&dataset(18), Location::Cache);
        flush.record(&DatasetDescriptor { job_id: "77".to_owned(), ..dataset(24) }, Location::Cache);
        // In bypass mode: nothing of them is on a node.
        flush.record_in_cache(&dataset(12), &InCache { bypass: true, ..InCache::default() });
        flush.record_in_cache(&dataset(30), &InCache { bypass: true, ..InCache::default() });
        let held = |entry| Held { entry, copy: scr_ops::Copy::ALL, is_listed: true, is_refused_there: false };
        let known: Vec<_> = flush.entries().into_iter().map(held).collect();
        let rows = rows(&index, &known, |_| true);
        let expected = "\
DSET VALID FLUSHED             RANKS       SIZE WRITTEN          CUR NAME
  30 -     not listed yet         64     30 GiB                      ckpt.30
  24 -     only in cache          64     24 GiB                      ckpt.24
  18 YES   2014-01-14T11:26:06    64     18 GiB                    * ckpt.18
  12 YES   2014-01-14T11:26:06    64     12 GiB                      ckpt.12
   6 NO    2014-01-14T11:26:06    64      6 GiB                      ckpt.6
";
        assert_eq!(table(&rows, false), expected);
        let expected = "\
DSET VALID FLUSHED             CUR NAME
  24 NO    only in cache           ckpt.24
  18 YES   2014-01-14T11:26:06   * ckpt.18
  12 YES   2014-01-14T11:26:06     ckpt.12
   6 NO    2014-01-14T11:26:06     ckpt.6
";
        assert_eq!(table(&rows, true), expected);
        let unsaved: Vec<_> = rows.iter().filter_map(Row::only_copy).collect();
        assert_eq!(
            unsaved.iter().map(|copy| (copy.entry.id, copy.entry.allocation())).collect::<Vec<_>>(),
            [(24, Some("77"))]
        );
        let json = json(&rows);
        let facts = ["id", "valid", "in_index", "in_cache", "ranks", "bytes", "created"]
            .map(|key| json["datasets"][1][key].clone());
        assert_eq!(json["datasets"][3]["in_cache"], false, "it lies in place");
        assert_eq!(Value::from(facts.to_vec()), json!([24, false, true, true, 64, 24_u64 << 30, null]));
    }
}
