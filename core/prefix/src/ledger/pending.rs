//! The files of a flush under way, with which the next run, or a command, can close it without the application.
//!
//! `flush.<token>` in the prefix's `.scr` says which dataset is being flushed, and how many marks there must be. A process that
//! has synced its files leaves a mark, `done.<token>.<n>`. If all marks exist, every byte is safe in a staging file, and any
//! process may repeat the renames. If one is missing, the staging files are useless and are removed. A process that gives a flush
//! up for good first gives the record another name, `revoked.<token>`. From then on no process closes the flush, and any that
//! finds the record removes what is left.

use super::{By, CommonFiles, LedgerDir, MakeCurrent, Recorded};
use crate::{DatasetDescriptor, Prefix, FILE_MODE};
use scr_base::fs::{unless_missing, At, Durability, FsError};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One flush under way, as it is on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingFlush {
    /// Unique among all flushes under this prefix.
    pub token: String,
    /// The dataset that is flushed.
    pub dataset: DatasetDescriptor,
    /// Number of ranks that wrote it.
    pub ranks: u32,
    /// How many marks there must be.
    pub marks: u32,
    /// Whether the dataset becomes the current one.
    pub make_current: MakeCurrent,
    /// Whether nobody closes it any more, and what is left is only to be removed: the name of the record says so.
    pub revoked: bool,
    /// Which other datasets have a file of this one. It is not written.
    pub sharing: CommonFiles,
}

impl PendingFlush {
    /// Makes it known, durably.
    pub fn write(&self, ledger: LedgerDir<'_>) -> Result<(), FsError> {
        let path = flush_path(ledger.prefix, &self.token);
        ledger.files.write_tree(&path, &self.to_tree(), FILE_MODE, Durability::Synced)
    }

    /// Marks, durably, that all files of a node, or of the whole flush, are synced, with the checksums that became known.
    pub fn mark_done(&self, ledger: LedgerDir<'_>, mark: u32, sums: &KvTree) -> Result<(), FsError> {
        let path = done_path(ledger.prefix, &self.token, mark);
        let bytes = if sums.is_empty() { Vec::new() } else { sums.to_file_bytes() };
        let written = ledger.files.write_atomic(&path, &bytes, FILE_MODE, Durability::Synced);
        // One that may not be safe must not be found.
        written.inspect_err(|_| _ = ledger.files.remove_if_there(&path))
    }

    /// When the last mark was made.
    pub fn marked_at(&self, ledger: LedgerDir<'_>) -> Result<(i64, u32), FsError> {
        let marks =
            self.done_marks(ledger)?.into_iter().map(|mark| done_path(ledger.prefix, &self.token, mark));
        let times = marks.map(|path| Ok(ledger.files.status(&path).at("look at", &path)?.mtime));
        times.collect::<Result<Vec<_>, FsError>>().map(|times| times.into_iter().max().unwrap_or_default())
    }

    /// The checksums that a mark has with it.
    pub fn sums_of(&self, ledger: LedgerDir<'_>, mark: u32) -> Result<KvTree, FsError> {
        let path = done_path(ledger.prefix, &self.token, mark);
        match ledger.files.status(&path) {
            Ok(status) if status.len == 0 => Ok(KvTree::new()),
            _ => Ok(ledger.files.read_tree(&path)?.unwrap_or_default()),
        }
    }

    /// Whether a mark is there.
    pub fn is_done(&self, ledger: LedgerDir<'_>, mark: u32) -> Result<bool, FsError> {
        exists(ledger, &done_path(ledger.prefix, &self.token, mark))
    }

    /// The marks that are there. The record may be damaged and claim any number, so this asks for what is there.
    pub fn done_marks(&self, ledger: LedgerDir<'_>) -> Result<Vec<u32>, FsError> {
        let first = format!("{DONE}{}.", self.token);
        let mark_of = |name: &PathBuf| {
            let mark = name.to_str()?.strip_prefix(&first)?;
            mark.parse().ok().filter(|&number: &u32| number < self.marks && number.to_string() == mark)
        };
        Ok(ledger.files.list_if_there(&ledger.prefix.scr_dir())?.iter().filter_map(mark_of).collect())
    }

    /// How many marks are there.
    pub fn done(&self, ledger: LedgerDir<'_>) -> Result<u32, FsError> {
        Ok(self.done_marks(ledger)?.len() as u32)
    }

    /// Whether every mark is there.
    pub fn all_done(&self, ledger: LedgerDir<'_>) -> Result<bool, FsError> {
        Ok(self.done(ledger)? == self.marks)
    }

    fn remove_marks(&self, ledger: LedgerDir<'_>) -> Result<(), FsError> {
        let mut any = false;
        for mark in self.done_marks(ledger)? {
            any |= ledger.files.remove_if_there(&done_path(ledger.prefix, &self.token, mark))?;
        }
        if any {
            sync(ledger)?;
        }
        Ok(())
    }

    /// Forgets it; the dones go first, so that none is left without its flush.
    pub fn forget(&self, ledger: LedgerDir<'_>) -> Result<(), FsError> {
        self.remove_marks(ledger)?;
        ledger.files.remove_if_there(&self.path(ledger.prefix))?;
        sync(ledger)
    }

    /// Who gives the files of its dataset their names.
    pub fn by(&self) -> By {
        By::from(&*self.token)
    }

    /// The kind of record that it is.
    pub fn recorded(&self) -> Recorded {
        match self.revoked {
            true => Recorded::Revoked,
            false => Recorded::UnderWay,
        }
    }

    /// The path of its record.
    fn path(&self, prefix: &Prefix) -> PathBuf {
        match self.revoked {
            true => revoked_path(prefix, &self.token),
            false => flush_path(prefix, &self.token),
        }
    }

    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("VERSION", 2);
        tree.set("TOKEN", &self.token);
        tree.put("DSETDESC", self.dataset.to_tree());
        tree.set("RANKS", self.ranks);
        tree.set("MARKS", self.marks);
        tree.set("CURRENT", self.make_current as u8);
        tree
    }

    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        let descriptor =
            tree.get("DSETDESC").ok_or_else(|| FieldError::Missing { key: "DSETDESC".to_owned() })?;
        Ok(Self {
            token: tree.require("TOKEN")?,
            dataset: DatasetDescriptor::from_tree(descriptor)?,
            ranks: tree.require("RANKS")?,
            marks: tree.require("MARKS")?,
            make_current: match tree.require::<u8>("CURRENT")? {
                0 => MakeCurrent::Never,
                1 => MakeCurrent::IfNewest,
                _ => MakeCurrent::Always,
            },
            revoked: false,
            sharing: CommonFiles::default(),
        })
    }
}

/// The flush of this token, if it is under way below a prefix. It is an error if the folder of the records is not there: the file
/// system may only be away, and the flush is not.
pub fn find(ledger: LedgerDir<'_>, token: &str) -> Result<Option<PendingFlush>, FsError> {
    let found = read(ledger, &flush_path(ledger.prefix, token), token)?;
    if found.is_none() {
        let folder = ledger.prefix.scr_dir();
        ledger.files.status(&folder).at("look at", &folder)?;
    }
    Ok(found)
}

/// The same, or what is left of the flush if it is revoked.
pub fn find_left(ledger: LedgerDir<'_>, token: &str) -> Result<Option<PendingFlush>, FsError> {
    match find(ledger, token)? {
        None => {
            let left = read(ledger, &revoked_path(ledger.prefix, token), token)?;
            Ok(left.map(|left| PendingFlush { revoked: true, ..left }))
        }
        found => Ok(found),
    }
}

/// Revokes the record of a flush: from now on no process can close it any more, only remove it. Only the [ledger](super) decides
/// that, as its dataset must not take its name meanwhile.
pub(super) fn revoke(ledger: LedgerDir<'_>, token: &str) -> Result<(), FsError> {
    let (from, to) = (flush_path(ledger.prefix, token), revoked_path(ledger.prefix, token));
    match ledger.files.rename(&from, &to) {
        // It is revoked already, or forgotten.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.at("rename", &from).and_then(|()| sync(ledger)),
    }
}

/// Whether somebody has the flush of this token on record.
pub fn is_recorded(ledger: LedgerDir<'_>, token: &str) -> Result<bool, FsError> {
    exists(ledger, &flush_path(ledger.prefix, token))
}

/// The record of a flush under way, or the reason why it cannot be used. Callers that must not miss a flush ask
/// [`FoundRecord::known`].
#[derive(Debug)]
pub enum FoundRecord {
    /// One that can be used.
    Usable(Box<PendingFlush>),
    /// One that says nothing, whoever reads it, or of a flush that was given up: no process can close it.
    Damaged(FsError),
    /// One that could not be read. It may be that of any dataset, and another process may read it.
    Unread(FsError),
}

impl FoundRecord {
    /// The flush, if anybody can close it.
    ///
    /// # Errors
    /// The record could not be read.
    pub fn known(self) -> Result<Option<PendingFlush>, FsError> {
        match self {
            Self::Usable(pending) => Ok(Some(*pending)),
            Self::Damaged(_) => Ok(None),
            Self::Unread(error) => Err(error),
        }
    }
}

/// The flushes under way below a prefix, and what is left of those that nobody closes any more. Those with unusable
/// records come first, and then the oldest dataset.
pub fn list(ledger: LedgerDir<'_>) -> Result<Vec<FoundRecord>, FsError> {
    let folder = ledger.prefix.scr_dir();
    let mut found = Vec::new();
    for name in ledger.files.list_if_there(&folder)? {
        let Some((token, revoked)) = token_of(name.as_os_str()) else { continue };
        found.extend(match read(ledger, &folder.join(&name), token) {
            Ok(pending) => {
                pending.map(|pending| FoundRecord::Usable(Box::new(PendingFlush { revoked, ..pending })))
            }
            Err(error) if !error.is_damage() && !revoked => Some(FoundRecord::Unread(error)),
            Err(error) => Some(FoundRecord::Damaged(error)),
        });
    }
    found.sort_by_key(|found| match found {
        FoundRecord::Usable(pending) => Some(pending.dataset.seq()),
        _ => None,
    });
    Ok(found)
}

/// The path of a flush's record.
pub fn flush_path(prefix: &Prefix, token: &str) -> PathBuf {
    prefix.scr_file(&format!("{PREFIX}{token}"))
}

fn revoked_path(prefix: &Prefix, token: &str) -> PathBuf {
    prefix.scr_file(&format!("{REVOKED}{token}"))
}

const PREFIX: &str = "flush.";
const REVOKED: &str = "revoked.";
const DONE: &str = "done.";
/// The file of C SCR whose name begins alike.
const FLUSH_FILE: &str = "flush.scr";

fn done_path(prefix: &Prefix, token: &str, mark: u32) -> PathBuf {
    prefix.scr_file(&format!("{DONE}{token}.{mark}"))
}

/// The token in the name of a record, and whether the flush is revoked.
fn token_of(name: &OsStr) -> Option<(&str, bool)> {
    let name = std::str::from_utf8(name.as_bytes()).ok().filter(|&name| name != FLUSH_FILE)?;
    let revoked = || Some((name.strip_prefix(REVOKED)?, true));
    name.strip_prefix(PREFIX).map(|token| (token, false)).or_else(revoked)
}

fn read(ledger: LedgerDir<'_>, path: &Path, token: &str) -> Result<Option<PendingFlush>, FsError> {
    let Some(tree) = ledger.files.read_tree(path)? else { return Ok(None) };
    let pending = PendingFlush::from_tree(&tree).and_then(|pending| match pending.token == token {
        true => Ok(Some(pending)),
        false => Err(FieldError::malformed("TOKEN", pending.token, "that of its name")),
    });
    pending.at("use", path)
}

fn exists(ledger: LedgerDir<'_>, path: &Path) -> Result<bool, FsError> {
    unless_missing(ledger.files.status(path).at("look at", path)).map(|found| found.is_some())
}

fn sync(ledger: LedgerDir<'_>) -> Result<(), FsError> {
    let path = ledger.prefix.scr_dir();
    ledger.files.sync_dir(&path).at("sync", &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::sample_flush;
    use scr_base::fs::RealFiles;

    #[test]
    fn a_record_with_an_inflated_mark_count_costs_no_more_than_the_marks_present() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        prefix.make_scr_dir(&RealFiles).unwrap();
        let ledger = LedgerDir::new(&RealFiles, &prefix);
        let mut record = PendingFlush { marks: u32::MAX, ..sample_flush() };
        for mark in [0, 3, u32::MAX - 1] {
            record.mark_done(ledger, mark, &KvTree::new()).unwrap();
        }
        assert_eq!(record.done(ledger).unwrap(), 3);
        record.marks = 4;
        assert_eq!(record.done(ledger).unwrap(), 2, "the last one is none of its marks");
        record.marks = u32::MAX;
        assert!(!record.all_done(ledger).unwrap());
        record.forget(ledger).unwrap();
        assert_eq!(record.done(ledger).unwrap(), 0);
    }
}
