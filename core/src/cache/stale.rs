//! A part of a dataset that this run cannot recover.

use super::filemap::Filemap;
use super::part::PartDir;
use super::record::DatasetKey;
use crate::fs::Files;

/// A part that is useless to this run, and is removed once a newer dataset is complete.
#[derive(Debug)]
pub(crate) struct StalePart {
    pub(crate) part: PartDir,
    /// The dataset that its filemap names, if it can be read.
    key: Option<DatasetKey>,
}

impl StalePart {
    pub(crate) fn new(part: PartDir, key: Option<DatasetKey>) -> Self {
        Self { part, key }
    }

    /// Whether its filemap still names the same dataset. One that named none may have been that of another job of the
    /// allocation which was just beginning its part.
    pub(crate) fn is_unchanged(&self, files: &dyn Files) -> bool {
        Filemap::read(files, &self.part).is_ok_and(|map| map.record.as_ref().map(DatasetKey::of) == self.key)
    }
}
