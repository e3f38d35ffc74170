//! The loss of a part of a dataset, from the least that can be lost to the most, as far as it shows without reading.

use super::part::PartPlace;
use super::record::{FileRecord, RankRecord};
use scr_base::fs::verify::{expect_bytes, FileError};
use scr_base::fs::{At, Files, FsError, Kind, Status};
use scr_prefix::{Overwritten, Prefix};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The loss of a part. Its redundancy can be computed again as long as no member of its set lacks data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lost {
    /// Its redundancy, and nothing else.
    Redundancy,
    /// The redundancy and the checksums that a local part has never had.
    Protection,
    /// Files. Its redundancy is of no use without them.
    Data,
}

/// The loss of a part, and its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub lost: Lost,
    pub(crate) why: String,
}

impl Loss {
    pub(crate) fn of_data(why: impl Into<String>) -> Self {
        Self { lost: Lost::Data, why: why.into() }
    }

    pub(crate) fn of_redundancy(why: impl Into<String>) -> Self {
        Self { lost: Lost::Redundancy, why: why.into() }
    }
}

/// A fault of a file of a part that is visible without reading it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Flaw {
    /// It cannot be inspected; usually it does not exist.
    #[error(transparent)]
    Unseen(#[from] FsError),
    /// Something else is in its place.
    #[error("{} is {found}", path.display())]
    NotAFile {
        /// Its path.
        path: PathBuf,
        /// Its kind.
        found: &'static str,
    },
    /// It has another length than was recorded.
    #[error(
        "{} has {found} bytes where {recorded} were recorded{}", path.display(),
        if *is_late { "; it was written to after SCR_Complete_output" } else { "" }
    )]
    Length {
        /// Which file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The length in the record.
        recorded: u64,
        /// Whether its time is later than the recorded one.
        is_late: bool,
    },
    /// It was written to later.
    #[error(
        "{}{LATE}, as its time tells, and has {}", path.display(),
        if *has_crc { "other bytes" } else { "no checksum that proves its bytes (SCR_CRC_ON_COPY=1 takes one)" }
    )]
    Changed {
        /// Which file.
        path: PathBuf,
        /// Whether its checksum was compared.
        has_crc: bool,
    },
    /// A newer dataset was to replace it.
    #[error("{} was given to the application to write over, for a later dataset that was not completed", path.display())]
    Overwritten {
        /// Which file.
        path: PathBuf,
    },
}

/// The loss of a part in cache or in place, as far as it shows without reading.
pub fn loss_in_either(files: &dyn Files, place: &dyn PartPlace, record: &RankRecord) -> Option<Loss> {
    match record.protection.bypass {
        true => loss_in_place(files, record),
        false => visible_loss(files, place, record),
    }
}

/// The loss of a part, as far as it shows without reading: a file of it, or its redundancy file, is not there with the
/// length that its record gives. A file without a checksum that was written to since counts as lost.
pub(crate) fn visible_loss(files: &dyn Files, place: &dyn PartPlace, record: &RankRecord) -> Option<Loss> {
    let flaw = |file: &FileRecord| {
        let path = place.file(record, file);
        let found = match file.is_known_by_time() {
            true => expect_unchanged(files, &path, file),
            false => expect_file(files, &path, file.bytes, Some(file.mtime)).map(drop),
        };
        found.err()
    };
    if let Some(flaw) = record.files.iter().find_map(flaw) {
        return Some(Loss::of_data(scr_base::describe(&flaw)));
    }
    if record.local.is_some() {
        return Some(match is_of_earlier_boot(files, record) {
            // Its checksums were to be computed after that.
            true => Loss::of_data(OF_EARLIER_BOOT),
            false => Loss { lost: Lost::Protection, why: "it was not protected yet".to_owned() },
        });
    }
    let flaw =
        record.redundancy.and_then(|kept| expect_file(files, &place.redundancy(), kept.bytes, None).err());
    flaw.map(|flaw| Loss::of_redundancy(scr_base::describe(&flaw)))
}

pub(crate) const OF_EARLIER_BOOT: &str =
    "its node was started again before it was protected, and its files may lack bytes";

/// Whether a local part was written before this machine was started again. It may lack bytes, and no checksum shows that.
pub(crate) fn is_of_earlier_boot(files: &dyn Files, record: &RankRecord) -> bool {
    record.local.as_ref().is_some_and(|boot| !boot.is_empty() && *boot != boot_of(files))
}

/// The boot of this machine, where that is known.
pub(crate) fn boot_of(files: &dyn Files) -> String {
    String::from_utf8_lossy(&files.machine()).trim().to_owned()
}

/// The loss of a part in bypass mode: a file that is not in the prefix directory as it was written. One that was written to since
/// counts as lost, whatever its length, unless its checksum is still right: a later dataset may have begun to replace it. So
/// does one that was given out for that, whatever its time.
pub(crate) fn loss_in_place(files: &dyn Files, record: &RankRecord) -> Option<Loss> {
    first_flaw_in_place(files, record).err().map(|flaw| Loss::of_data(scr_base::describe(&flaw)))
}

fn first_flaw_in_place(files: &dyn Files, record: &RankRecord) -> Result<(), Flaw> {
    let prefix = Prefix::new(OsStr::from_bytes(&record.prefix));
    record.files.iter().try_for_each(|file| {
        let path = record.prefix_path(file);
        match Overwritten::since(files, &prefix, &file.name, record.seq())? {
            true => Err(Flaw::Overwritten { path }),
            false => expect_same(files, &path, file),
        }
    })
}

/// Fails if a file has changed since it was complete, as its length and time tell: one without a checksum.
pub(crate) fn expect_unchanged(files: &dyn Files, path: &Path, file: &FileRecord) -> Result<(), Flaw> {
    let status = expect_file(files, path, file.bytes, Some(file.mtime))?;
    match status.mtime == file.mtime {
        true => Ok(()),
        false => Err(Flaw::Changed { path: path.to_owned(), has_crc: false }),
    }
}

/// The same, but where its time has changed the checksum decides, if it has one.
fn expect_same(files: &dyn Files, path: &Path, file: &FileRecord) -> Result<(), Flaw> {
    match (expect_unchanged(files, path, file), file.crc) {
        (Err(Flaw::Changed { path, .. }), Some(_)) => {
            match expect_bytes(files, &path, file.bytes, file.crc, BLOCK_BYTES) {
                Err(FileError::Fs(error)) => Err(error.into()),
                same => same.map_err(|_| Flaw::Changed { path, has_crc: true }),
            }
        }
        (unchanged, _) => unchanged,
    }
}

const BLOCK_BYTES: u64 = 1 << 20;

/// The same for a part with wrong bytes: a file that was written to later, as far as its time tells.
pub(crate) fn written_since(files: &dyn Files, place: &dyn PartPlace, record: &RankRecord) -> Option<String> {
    let is_late = |file: &&FileRecord| {
        files.status(&place.file(record, file)).is_ok_and(|status| status.mtime > file.mtime)
    };
    record.files.iter().find(is_late).map(|file| format!("; {}{LATE}", file.name))
}

const LATE: &str = " was written to after SCR_Complete_output";

/// A file that is no longer, or not provably, what it was when the dataset was complete.
pub(crate) enum Late {
    /// It has other bytes, or another length.
    Written(PathBuf),
    /// It lies in place, has another time, and there is no checksum to compare its bytes with. Some file systems set times after
    /// a close.
    Touched(PathBuf),
}

/// A file that was written to after the dataset was complete, as far as its time, its length and its checksum tell.
pub(crate) fn written_late(files: &dyn Files, place: &dyn PartPlace, record: &RankRecord) -> Option<Late> {
    record.files.iter().find_map(|file| {
        let path = place.file(record, file);
        match expect_same(files, &path, file).err()? {
            Flaw::Changed { has_crc: false, .. } if record.protection.bypass => Some(Late::Touched(path)),
            Flaw::Changed { .. } | Flaw::Length { .. } => Some(Late::Written(path)),
            _ => None,
        }
    })
}

fn expect_file(
    files: &dyn Files,
    path: &Path,
    recorded: u64,
    since: Option<(i64, u32)>,
) -> Result<Status, Flaw> {
    // It was recorded, so an answer that it is not there counts if it is given twice.
    let status = files.status(path).or_else(|_| files.status(path)).at("look at", path)?;
    let path = || path.to_owned();
    match status.kind {
        Kind::File if status.len == recorded => Ok(status),
        Kind::File => {
            let is_late = since.is_some_and(|since| status.mtime > since);
            Err(Flaw::Length { path: path(), found: status.len, recorded, is_late })
        }
        other => Err(Flaw::NotAFile { path: path(), found: other.name() }),
    }
}
