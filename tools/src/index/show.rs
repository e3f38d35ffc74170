//! The datasets of a prefix directory, newest first: as a table, and as JSON. Those that the index does not list are among them,
//! as the flush file says: they lie only in cache, or in place.

use crate::output::on_one_line;
use jiff::tz::TimeZone;
use jiff::Timestamp;
use scr_base::message::amount;
use scr_prefix::{DatasetDescriptor, FlushEntry, FlushFile, Index, IndexEntry, Location, Seq};
use serde_json::{json, Value};
use std::cmp::Reverse;
use std::mem::take;

/// A dataset that the index lists, or that only the flush file knows.
pub(super) struct Row {
    seq: Seq,
    name: Vec<u8>,
    dataset: Option<DatasetDescriptor>,
    listed: Option<IndexEntry>,
    /// Its copy in cache.
    copy: Option<FlushEntry>,
    /// Which allocation has that.
    in_cache: Option<String>,
}

/// All datasets, the newest first.
pub(super) fn rows(index: &Index, flush: &FlushFile) -> Vec<Row> {
    let known: Vec<_> = flush.entries().into_iter().filter(|entry| entry.is_at(Location::Cache)).collect();
    let allocation =
        |entry: &FlushEntry| entry.is_on_nodes().then(|| entry.allocation().unwrap_or_default().to_owned());
    let mut rows: Vec<_> = index
        .entries()
        .into_iter()
        .map(|mut listed| {
            let copy = known.iter().find(|entry| entry.id == listed.id && entry.name == listed.name);
            Row {
                seq: listed.seq(),
                name: take(&mut listed.name),
                dataset: listed.dataset.take(),
                in_cache: copy.and_then(allocation),
                copy: copy.cloned(),
                listed: Some(listed),
            }
        })
        .collect();
    // A dataset whose name a newer one has cannot be saved any more.
    let unlisted =
        known.iter().filter(|entry| index.entry(entry.id).is_none() && !entry.has_lost_name(index));
    rows.extend(unlisted.map(|entry| Row {
        seq: entry.dataset.as_ref().map_or_else(|| entry.seq(), |dataset| index.seq_of(dataset)),
        name: entry.name.clone(),
        dataset: entry.dataset.clone(),
        listed: None,
        in_cache: allocation(entry),
        copy: Some(entry.clone()),
    }));
    rows.sort_by_key(|row| Reverse(row.seq));
    rows
}

impl Row {
    fn name(&self) -> String {
        on_one_line(&String::from_utf8_lossy(&self.name))
    }

    fn is_valid(&self) -> bool {
        self.listed.as_ref().is_some_and(IndexEntry::is_valid)
    }

    /// The allocation that has the only copy, in its cache.
    pub(super) fn only_in_cache_of(&self) -> Option<(String, &str)> {
        self.in_cache.as_deref().filter(|_| !self.is_valid()).map(|allocation| (self.name(), allocation))
    }

    /// The entry in the flush file of a dataset that is only in cache.
    pub(super) fn only_copy(&self) -> Option<&FlushEntry> {
        self.copy.as_ref().filter(|_| self.only_in_cache_of().is_some())
    }

    fn cells(&self) -> [String; 7] {
        let (valid, flushed, current) = match &self.listed {
            Some(entry) => {
                (if entry.is_valid() { "YES" } else { "NO" }, entry.flushed.as_deref(), entry.current)
            }
            None => ("-", None, false),
        };
        let only_in_cache = self.only_in_cache_of().map(|_| "only in cache");
        let unlisted = self.listed.is_none().then_some("not listed yet");
        let dataset = self.dataset.as_ref();
        let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
        [
            valid.to_owned(),
            only_in_cache.or(unlisted).or(flushed).unwrap_or_default().to_owned(),
            number(dataset.and_then(|dataset| dataset.ranks)),
            dataset.and_then(|dataset| dataset.bytes).map_or_else(String::new, amount),
            dataset.and_then(written).unwrap_or_default(),
            if current { "*" } else { "" }.to_owned(),
            self.name(),
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
            "name": String::from_utf8_lossy(&row.name),
            "valid": row.is_valid(),
            "flushed": listed.and_then(|entry| entry.flushed.as_deref()),
            "current": listed.is_some_and(|entry| entry.current),
            "in_index": listed.is_some(),
            "in_cache": row.in_cache.is_some(),
            "job_id": row.in_cache.as_deref(),
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

/// The table. It has the columns of C SCR in their order, and so the name is the last one.
pub(super) fn table(rows: &[Row]) -> String {
    let line = |id: &str, [valid, flushed, ranks, size, written, current, name]: [&str; 7]| {
        format!("{id:>4} {valid:5} {flushed:19} {ranks:>5} {size:>10} {written:16} {current:>3} {name}\n")
    };
    let mut text = line("DSET", ["VALID", "FLUSHED", "RANKS", "SIZE", "WRITTEN", "CUR", "NAME"]);
    for row in rows {
        text += &line(&row.seq.id.to_string(), row.cells().each_ref().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_prefix::InCache;

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
        index.set_current("ckpt.18");
        flush.record(&dataset(18), Location::Cache);
        flush.record(&DatasetDescriptor { job_id: "77".to_owned(), ..dataset(24) }, Location::Cache);
        // In bypass mode: nothing of them is on a node.
        flush.record_in_cache(&dataset(12), &InCache { bypass: true, ..InCache::default() });
        flush.record_in_cache(&dataset(30), &InCache { bypass: true, ..InCache::default() });
        let rows = rows(&index, &flush);
        let expected = "\
DSET VALID FLUSHED             RANKS       SIZE WRITTEN          CUR NAME
  30 -     not listed yet         64     30 GiB                      ckpt.30
  24 -     only in cache          64     24 GiB                      ckpt.24
  18 YES   2014-01-14T11:26:06    64     18 GiB                    * ckpt.18
  12 YES   2014-01-14T11:26:06    64     12 GiB                      ckpt.12
   6 NO    2014-01-14T11:26:06    64      6 GiB                      ckpt.6
";
        assert_eq!(table(&rows), expected);
        let unsaved: Vec<_> = rows.iter().filter_map(Row::only_in_cache_of).collect();
        assert_eq!(unsaved, [("ckpt.24".to_owned(), "77")]);
        let json = json(&rows);
        let facts = ["id", "valid", "in_index", "in_cache", "ranks", "bytes", "created"]
            .map(|key| json["datasets"][1][key].clone());
        assert_eq!(json["datasets"][3]["in_cache"], false, "it lies in place");
        assert_eq!(Value::from(facts.to_vec()), json!([24, false, false, true, 64, 24_u64 << 30, null]));
    }
}
