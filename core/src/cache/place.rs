//! Where the files of one rank's part lie: in cache, in the prefix directory, or scavenged.
//!
//! Whoever protects, rebuilds or checks a part asks here, so that the same code serves all of these places.

use super::part::PartDir;
use super::record::{FileRecord, RankRecord};
use crate::fs::{Files, Kind};
use std::path::{Path, PathBuf};

/// The places of one part.
pub(crate) trait PartPlace {
    /// Where a file of the part lies.
    fn file(&self, record: &RankRecord, file: &FileRecord) -> PathBuf;
    /// Where the nth file of the part is written until it is known to be right. In the same folder.
    fn file_being_rebuilt(&self, record: &RankRecord, number: usize) -> PathBuf;
    /// The redundancy file.
    fn redundancy(&self) -> PathBuf;
    /// What the redundancy file is called until it is known to be right.
    fn redundancy_being_rebuilt(&self) -> PathBuf;
}

impl PartPlace for PartDir {
    fn file(&self, record: &RankRecord, file: &FileRecord) -> PathBuf {
        if record.protection.bypass {
            record.prefix_path(file)
        } else {
            self.file(&file.name)
        }
    }

    fn file_being_rebuilt(&self, record: &RankRecord, number: usize) -> PathBuf {
        let mut name = format!(".scr-rebuild-{number}");
        // The application may have thought of that name too.
        while record.files.iter().any(|file| file.name.base() == name.as_bytes()) {
            name.push('~');
        }
        self.data().join(name)
    }

    fn redundancy(&self) -> PathBuf {
        self.redundancy()
    }

    fn redundancy_being_rebuilt(&self) -> PathBuf {
        self.redundancy_being_rebuilt()
    }
}

/// Whether every file of a part is there with the length that its record gives, and the redundancy file as well.
pub(crate) fn is_whole(files: &dyn Files, place: &dyn PartPlace, record: &RankRecord) -> bool {
    let has = |path: &Path, bytes: u64| {
        files.status(path).is_ok_and(|status| status.kind == Kind::File && status.len == bytes)
    };
    record.files.iter().all(|file| has(&place.file(record, file), file.bytes))
        && record.redundancy.is_none_or(|kept| has(&place.redundancy(), kept.bytes))
}
