//! The output phase: from `SCR_Start_output` to `SCR_Complete_output`.
//!
//! The order of steps is the crash argument. Start: agree, make the folder, begin the filemap. Route: record the file before its
//! name is given out. Complete: agree that all is valid, protect, record as prepared, agree, record as complete, and only then
//! evict older datasets.

mod complete;
mod events;
mod several_nodes;
mod start;

use super::route::{path_bytes, ApartError, MeantPaths};
use super::{Error, OutputFlags};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::part::{PartDir, PartPlace};
use crate::cache::record::{FileRecord, RankRecord};
use crate::cache::shared_files::SharedFiles;
use crate::cache::verify::Opened;
use crate::cache::{Cache, CachedDataset, FilesGiven};
use crate::job::Job;
use scr_base::ensure;
use scr_base::fs::{At, Durability, File, FsError, How, Kind, Writer};
use scr_comm::placement::Survives;
use scr_comm::{Rank, Traffic};
use scr_prefix::ledger::{is_recorded, Refusal};
use scr_prefix::{DatasetDescriptor, FileName, Overwritten};
use several_nodes::RoutedNames;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An output phase under way.
pub(super) struct Output {
    pub(super) record: RankRecord,
    part: PartDir,
    journal: Journal,
    shared: SharedFiles,
    /// Until all ranks are known to have written their files, where not all see them.
    names: Option<RoutedNames>,
    /// Files that this rank could not be given a path for, each with the reason.
    unrouted: BTreeMap<PathBuf, String>,
    /// A file that only another process has open for writing, and that process.
    open_elsewhere: Option<(PathBuf, String)>,
    /// The paths that this rank means by the names of its files.
    pub(super) meant: MeantPaths,
    flags: OutputFlags,
    /// Whether it is protected once the application computes again.
    behind: bool,
    /// Whether a file that this rank writes in the prefix directory was there before.
    may_replace: bool,
    /// Whether such a file may belong to an older dataset that counts, or may yet count.
    is_older_at_risk: bool,
    /// The older datasets whose files it has been given.
    given: FilesGiven,
    /// The checkpoint that has left the cache for it, and lies nowhere else.
    made_room: Option<String>,
    /// How many nodes may be lost once it is complete.
    survives: Option<Survives>,
    /// Place of the store in the cache.
    store: usize,
    started: Duration,
    /// The messages and bytes that this rank had sent by then.
    sent: Traffic,
    /// When the application could begin to write.
    ready: Duration,
}

impl Output {
    fn new(job: &Job, record: RankRecord, part: PartDir, journal: Journal, cache: &Cache) -> Self {
        Self {
            names: RoutedNames::begin(job, cache, &record),
            shared: SharedFiles::new(cache, &record),
            store: cache.store_index(&record.protection.store),
            record,
            part,
            journal,
            unrouted: BTreeMap::new(),
            open_elsewhere: None,
            meant: MeantPaths::default(),
            flags: OutputFlags::default(),
            behind: false,
            may_replace: false,
            is_older_at_risk: false,
            given: FilesGiven::default(),
            made_room: None,
            survives: None,
            started: Duration::ZERO,
            sent: Traffic::default(),
            ready: Duration::ZERO,
        }
    }

    /// Adds a file of this rank, and gives the path to write it at.
    pub(super) fn route(&mut self, job: &Job, name: FileName) -> Result<Vec<u8>, Error> {
        let known = self.record.files.iter().any(|file| file.name == name);
        let bypass = self.record.protection.bypass;
        if !bypass {
            expect_own_base_name(&self.record, &name)?;
        }
        let file = FileRecord { name, bytes: 0, mode: 0, mtime: (0, 0), crc: None };
        let claimed = match bypass || known {
            true => self.shared.borrowed(&file.name),
            false => self.shared.claim(job.files(), &self.part, &file.name),
        };
        self.names.iter().for_each(|names| names.add(&file.name, claimed.is_none()));
        let path = claimed.map_or_else(|| PartPlace::file(&self.part, &self.record, &file), Path::to_owned);
        let path_bytes = path_bytes(&path)?;
        if !known {
            if bypass {
                self.expect_replaced(job, &file.name, &path)?;
                let parent = path.parent().unwrap_or(&path);
                job.files().make_dirs(parent, 0o777, Durability::Unsynced)?;
            }
            let journal = self.part.filemap();
            self.journal.append(job.files(), &Entry::File(&file.name)).map_err(|error| {
                Error::Argument(format!("cannot record the file in {}: {error}", journal.display()))
            })?;
            self.record.files.push(file);
        }
        Ok(path_bytes)
    }

    /// Output does not take a file in the prefix directory from a checkpoint that a run can restart from, as a flush of it would
    /// not.
    pub(super) fn expect_free(&self, cache: &Cache, name: &FileName) -> Result<(), Error> {
        let DatasetDescriptor { name: own, checkpoint, .. } = &self.record.dataset;
        let loses = |cached: &&CachedDataset| {
            let record = &cached.record;
            let lies_there = record.protection.bypass || cached.prefix.has_files();
            let is_kept = lies_there && cached.holding().is_restartable() && record.dataset.name != *own;
            is_kept && record.files.iter().any(|file| file.name == *name)
        };
        let is_asked = self.record.protection.bypass && !checkpoint;
        match cache.datasets().iter().filter(|_| is_asked).find(loses) {
            Some(CachedDataset { record, .. }) => {
                let refusal = Refusal::RestartPoint { id: record.dataset.id };
                Err(Error::Argument(format!("{} is not written: {refusal}", self.record.label())))
            }
            None => Ok(()),
        }
    }

    /// Before the application gets the path of a file in the prefix directory: if it is there, an older dataset must not count
    /// with it any more, whenever this run dies.
    fn expect_replaced(&mut self, job: &Job, name: &FileName, path: &Path) -> Result<(), Error> {
        let found = match job.files().status(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(())
            }
            found => found.at("look at", path)?,
        };
        if found.kind == Kind::Other {
            // A pipe, say: who opens it waits for its reader.
            let what = format!("{} is {}; remove what is in its place", path.display(), found.kind.name());
            return Err(Error::Argument(what));
        }
        self.may_replace = true;
        if is_recorded(true, self.is_older_at_risk) {
            Overwritten::record(job.files(), &job.prefix, name, self.record.seq())?;
        }
        Ok(())
    }

    /// Records whether a file has got a path, or why not. `file` is its path as the application knows it.
    pub(super) fn record_routed(&mut self, file: PathBuf, failure: Option<String>) {
        match failure {
            None => self.unrouted.remove(&file),
            Some(why) => self.unrouted.insert(file, why),
        };
    }

    /// Removes what this rank has in cache of the dataset.
    pub(super) fn remove(&mut self, job: &Job, cache: &Cache) {
        self.shared.withdraw(job.files());
        cache.remove_part(job, &self.part);
    }

    /// Takes the lengths and modes of the files that the application has written. Gives those in cache open, for the scheme
    /// that reads them next.
    fn measure(&mut self, job: &Job, valid: bool) -> Result<Opened, InvalidError> {
        self.open_elsewhere = None;
        ensure(valid, || InvalidError::BySelf)?;
        self.expect_all_routed()?;
        let mut opened = Opened::new();
        for at in 0..self.record.files.len() {
            if let Some(path) = self.shared.borrowed(&self.record.files[at].name) {
                // The rank that has claimed it takes its length; this one links it once all have closed it.
                let open = job.files().open(path, How::Read);
                if open.is_ok_and(|file| writer_of(job, &*file) == Some(Writer::ThisProcess)) {
                    return Err(InvalidError::StillOpen { path: path.to_owned() });
                }
                continue;
            }
            let path = PartPlace::file(&self.part, &self.record, &self.record.files[at]);
            match job.files().status(&path) {
                Ok(status) if status.kind == Kind::File => (),
                Ok(_) => return Err(InvalidError::NotAFile { path }),
                Err(source) => return Err(InvalidError::NotFound { path, source }),
            };
            // Bytes that a program has not written yet would be missing, and one without the right to read cannot be asked.
            let open = job.files().open(&path, How::Read);
            let in_place = self.record.protection.bypass;
            let unsynced = |source| InvalidError::Unsynced { path: path.clone(), source };
            let open = if in_place { Some(open.map_err(unsynced)?) } else { open.ok() };
            match open.as_ref().map(|file| (file, writer_of(job, &**file))) {
                Some((_, Some(Writer::ThisProcess))) => return Err(InvalidError::StillOpen { path }),
                Some((file, Some(Writer::Others))) if self.open_elsewhere.is_none() => {
                    self.open_elsewhere = file.other_writer().map(|process| (path.clone(), process));
                }
                _ => (),
            }
            if let Some(file) = open.as_ref().filter(|_| in_place) {
                // No record says that it is there before: a record may outlive bytes that the power takes away.
                file.sync().map_err(unsynced)?;
            }
            // Over NFS the time is that of the server once a file has been synced and opened anew.
            let status = match &open {
                Some(file) => file.status(),
                None => job.files().status(&path),
            };
            let status = status.map_err(|source| InvalidError::NotFound { path, source })?;
            let file = &mut self.record.files[at];
            (file.bytes, file.mode, file.mtime) = (status.len, status.mode, status.mtime);
            // In bypass mode no scheme reads them.
            opened.push(open.filter(|_| !in_place));
        }
        // The application may not have looked whether its last write was cut off.
        let cache = self.part.dataset();
        let is_full = || job.files().space(cache).is_ok_and(|space| space.free == Some(0));
        if !self.record.protection.bypass && !opened.is_empty() && is_full() {
            return Err(InvalidError::Full { cache: cache.to_owned() });
        }
        Ok(opened)
    }

    /// The files that this rank has claimed.
    fn claimed(&self) -> impl Iterator<Item = &FileName> {
        self.record.files.iter().map(|file| &file.name).filter(|name| self.shared.borrowed(name).is_none())
    }

    /// A dataset is not valid without a file that the application wanted in it, even if the application says so: it may
    /// not look at what `SCR_Route_file` returns.
    fn expect_all_routed(&self) -> Result<(), InvalidError> {
        let Some((path, why)) = self.unrouted.first_key_value() else { return Ok(()) };
        let others = self.unrouted.len() - 1;
        Err(InvalidError::Unrouted { path: path.clone(), others, why: why.clone() })
    }
}

fn writer_of(job: &Job, file: &dyn File) -> Option<Writer> {
    lasting_writer(|| file.writer(), |time| job.files().pause(time))
}

/// The process that has a file open for writing. This process counts if it has for longer than a moment: another thread may be
/// closing it.
fn lasting_writer(look: impl Fn() -> Option<Writer>, mut pause: impl FnMut(Duration)) -> Option<Writer> {
    let mut looks = MOMENT.iter();
    loop {
        match (look(), looks.next()) {
            (Some(Writer::ThisProcess), Some(&millis)) => pause(Duration::from_millis(millis)),
            (found, _) => return found,
        }
    }
}

const MOMENT: [u64; 5] = [1, 3, 10, 30, 100];

/// Why this rank's files make no valid dataset.
#[derive(Debug, thiserror::Error)]
enum InvalidError {
    #[error("the application said that its files are not valid")]
    BySelf,
    #[error(
        "no rank has named a file with SCR_Route_file between SCR_Start_output and SCR_Complete_output, and there would be nothing \
         to restart from"
    )]
    Empty,
    #[error("{} was routed, but it cannot be found", path.display())]
    NotFound { path: PathBuf, source: std::io::Error },
    #[error("cannot sync {}, and bytes of it may be lost", path.display())]
    Unsynced { path: PathBuf, source: std::io::Error },
    #[error("the file system of {} has not a byte left, and a file may be cut off", cache.display())]
    Full { cache: PathBuf },
    #[error("{} was routed as a file and is something else", path.display())]
    NotAFile { path: PathBuf },
    #[error(
        "{} is still open for writing; close it before SCR_Complete_output, or bytes that are still in memory would be \
         missing from it", path.display()
    )]
    StillOpen { path: PathBuf },
    #[error(
        "SCR_Route_file has failed for {}{}, and the dataset would be without it: {why}", path.display(), more(*others)
    )]
    Unrouted { path: PathBuf, others: usize, why: String },
    #[error(
        "rank {other}, too, has written `{name}', in a cache that this rank does not see; ranks on several nodes can write one \
         file with SCR_CACHE_BYPASS=1 or in a store with GROUP=WORLD that all of them see, or else give each rank a file of its own"
    )]
    SharedName { name: FileName, other: Rank },
    #[error(transparent)]
    Apart(#[from] ApartError),
    #[error(transparent)]
    Linking(#[from] FsError),
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(", and for {others} more"),
    }
}

/// In cache two files of a rank would meet under one base name.
fn expect_own_base_name(record: &RankRecord, name: &FileName) -> Result<(), Error> {
    let twin = record.files.iter().find(|file| file.name.base() == name.base() && file.name != *name);
    let Some(twin) = twin else { return Ok(()) };
    Err(Error::Argument(format!(
        "`{name}' and `{}' have the same base name, and in cache only base names are kept; \
         give this rank's files different base names or set SCR_CACHE_BYPASS=1",
        twin.name
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The checkpoint was not valid, as another thread of the application had just started a program.
    #[test]
    fn a_file_that_is_open_for_a_moment_only_is_waited_for() {
        for (looks, expected) in [(0_u32, false), (1, false), (5, false), (6, true), (100, true)] {
            let left = Cell::new(looks);
            let look = || (left.replace(left.get().saturating_sub(1)) > 0).then_some(Writer::ThisProcess);
            let mut waited = Duration::ZERO;
            let is_open = lasting_writer(look, |time| waited += time).is_some();
            assert_eq!(is_open, expected, "{looks}");
            assert!(waited < Duration::from_millis(200));
        }
        let at_once = lasting_writer(|| Some(Writer::Others), |_| panic!("it does not matter how long"));
        assert_eq!(at_once, Some(Writer::Others));
    }
}
