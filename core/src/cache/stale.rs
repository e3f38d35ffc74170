//! A part of a dataset that this run cannot recover.

use super::filemap::Filemap;
use super::part::PartDir;
use super::record::{DatasetKey, RankRecord};
use scr_base::fs::Files;
use scr_prefix::Seq;

/// A part that is of no use to this run, and is removed once a newer checkpoint counts.
#[derive(Debug)]
pub(crate) struct StalePart {
    pub(crate) part: PartDir,
    /// The dataset that its filemap names, if it can be read.
    key: Option<DatasetKey>,
    /// The place of that dataset.
    pub(super) seq: Option<Seq>,
    /// The bytes of the whole part in cache.
    pub(super) bytes: u64,
    /// Whether it is not lost at all: another number of ranks wrote it, and the prefix directory has it as well.
    pub(crate) is_saved: bool,
}

impl StalePart {
    pub(crate) fn new(part: PartDir, record: Option<&RankRecord>) -> Self {
        let bytes = record.filter(|record| !record.protection.bypass).map_or(0, |record| {
            record.data_bytes().saturating_add(record.redundancy.map_or(0, |file| file.bytes))
        });
        Self {
            part,
            key: record.map(DatasetKey::of),
            seq: record.map(RankRecord::seq),
            bytes,
            is_saved: false,
        }
    }

    /// Whether it is of a dataset at one of these places, if the filemap says so.
    pub(crate) fn is_at(&self, seqs: &[Seq]) -> bool {
        self.seq.is_some_and(|seq| seqs.contains(&seq))
    }

    /// Whether its filemap still names the same dataset. One that named none may have been that of another job of the
    /// allocation which was just beginning its part.
    pub(crate) fn is_unchanged(&self, files: &dyn Files) -> bool {
        Filemap::read(files, &self.part).is_ok_and(|map| map.record.as_ref().map(DatasetKey::of) == self.key)
    }
}
