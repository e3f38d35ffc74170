//! Repeats what fails with an error that may pass: a network file system had a hiccup.
//!
//! Every `Env` reaches files through [`Retrying`]. So nobody who looks for a file, reads it, lists a folder, renames or
//! removes something has to think of such an error, and none of them takes a file that the server did not deliver once for
//! one that is not there. An error that stays goes to the caller, and is never `NotFound`.
//!
//! Operations that write are not repeated here. After an error nobody knows what was written, and a second sync succeeds without
//! the bytes that the first one has lost. [`retried`] repeats such work as a whole, with files of another name.

use super::limit::is_of_too_many_open;
use super::{File, Files, How, IsMeant, MayPass, Space, Status};
use rustix::io::Errno;
use scr_plugin_api::held;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Does something again that fails with an error that may pass. `work` gets the file layer that repeats nothing by itself.
pub fn retried<T, E: MayPass>(
    files: &dyn Files,
    mut work: impl FnMut(&dyn Files) -> Result<T, E>,
) -> Result<T, E> {
    let once = files.without_retries().unwrap_or(files);
    scr_plugin_api::repeat(E::may_pass, |time| files.pause(time), || work(once))
}

/// A file layer that repeats what may be repeated, and knows what could not be read all the same.
pub struct Retrying {
    inner: Arc<dyn Files>,
    unread: Arc<Unread>,
    /// The same layer where somebody else repeats the whole; none in that one.
    once: Option<Box<Retrying>>,
}

/// What could not be read for an error that may pass, and has not been read since: nobody knows what is there. Whoever looks for
/// something and takes such a place for empty need not think of it; a run that has found nothing to begin with asks here.
#[derive(Default)]
struct Unread {
    is_any: AtomicBool,
    places: Mutex<BTreeMap<(Look, PathBuf), String>>,
    /// What the file system has refused, and what is still to be said of that.
    refused: Mutex<(BTreeSet<Optional>, Vec<String>)>,
}

/// The kinds of operations that find out what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    Open,
    Status,
    List,
    Read,
}

/// An operation that scr does without where a file system, or its administrator, refuses it. Where a file can get no second name, a
/// lock of the system stands in for the one that takes it, and says so itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Optional {
    /// To sync the names in a folder.
    SyncFolder,
    /// To set the times of a file.
    SetTimes,
}

impl Optional {
    /// Whether this answer, which stays, is a reason to do without. Times are worth no file.
    fn is_refused(self, error: &io::Error) -> bool {
        match self {
            Self::SyncFolder => is_refusal(error),
            Self::SetTimes => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// For the user, once: what was refused, and what stands in for it.
    fn note(self, path: &Path, error: &io::Error) -> String {
        let (doing, instead) = match self {
            Self::SyncFolder => {
                ("sync a folder", "names in it are as safe as the file system keeps them by itself")
            }
            Self::SetTimes => {
                ("set the times of", "copies have the time when they were copied; set SCR_COPY_METADATA=0")
            }
        };
        format!("cannot {doing} {}: {error}: {instead}", path.display())
    }
}

/// Whether this answer refuses an operation for good: the next file gets the same one.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    use Errno as E;
    matches!(
        E::from_io_error(error),
        Some(E::PERM | E::ACCESS | E::INVAL | E::NOSYS | E::OPNOTSUPP | E::BADF)
    )
}

impl Unread {
    /// The outcome of an operation that scr does without where it is refused.
    fn without(&self, what: Optional, path: &Path, done: io::Result<()>) -> io::Result<()> {
        let Err(error) = done else { return Ok(()) };
        if !what.is_refused(&error) {
            return Err(error);
        }
        let mut refused = held(&self.refused);
        if refused.0.insert(what) {
            refused.1.push(what.note(path, &error));
        }
        Ok(())
    }

    fn note<T>(&self, look: Look, path: &Path, done: &io::Result<T>) {
        match done {
            // Files in which the kernel describes itself hold no checkpoint.
            Err(error)
                if says_nothing(look, error) && !path.starts_with("/proc") && !path.starts_with("/sys") =>
            {
                let text =
                    format!("cannot {} {}: {error}", format!("{look:?}").to_lowercase(), path.display());
                held(&self.places).insert((look, path.to_owned()), text);
                self.is_any.store(true, Ordering::Relaxed);
            }
            _ if self.is_any.load(Ordering::Relaxed) => {
                _ = held(&self.places).remove(&(look, path.to_owned()));
            }
            _ => (),
        }
    }
}

/// Whether an error leaves open what is there. It does not if nothing is there, or something of another kind. Folders of others are
/// looked at and listed too, and those that are closed to this user hold nothing for it.
pub(super) fn says_nothing(look: Look, error: &io::Error) -> bool {
    const OF_ANOTHER_KIND: [Errno; 3] = [Errno::LOOP, Errno::NOSYS, Errno::OPNOTSUPP];
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidFilename => false,
        ErrorKind::PermissionDenied => matches!(look, Look::Open | Look::Read),
        _ => match Errno::from_io_error(error) {
            Some(number) => !OF_ANOTHER_KIND.contains(&number),
            None => error.may_pass() || is_of_too_many_open(error),
        },
    }
}

/// Whether an answer is so rare that it counts only if it is given twice. That something is not there is no rare answer:
/// [`list_if_there`](Files::list_if_there) and the like ask for it again.
fn is_odd(look: Look, error: &io::Error) -> bool {
    error.kind() != ErrorKind::NotFound && !says_nothing(look, error)
}

impl Retrying {
    /// This layer around another one, unless that is one already.
    pub fn around(inner: Arc<dyn Files>) -> Arc<dyn Files> {
        match inner.without_retries() {
            Some(_) => inner,
            None => Arc::new(Self::knowing(inner, Arc::default())),
        }
    }

    fn knowing(inner: Arc<dyn Files>, unread: Arc<Unread>) -> Self {
        let once = Self { inner: Arc::clone(&inner), unread: Arc::clone(&unread), once: None };
        Self { inner, unread, once: Some(Box::new(once)) }
    }

    fn again<T>(&self, mut work: impl FnMut(&dyn Files) -> io::Result<T>) -> io::Result<T> {
        again(&*self.inner, self.once.is_some(), || work(&*self.inner))
    }

    fn look<T>(&self, look: Look, path: &Path, work: impl Fn(&dyn Files) -> io::Result<T>) -> io::Result<T> {
        let mut done = self.again(&work);
        if done.as_ref().is_err_and(|error| is_odd(look, error)) {
            done = self.again(&work);
        }
        self.unread.note(look, path, &done);
        done
    }

    /// Repeats what changes a name. The answer to a try may have been lost, so that a later one fails with the error of what was
    /// done before; `is_done` says whether it was.
    fn change(
        &self,
        done_before: ErrorKind,
        change: impl Fn(&dyn Files) -> io::Result<()>,
        is_done: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let mut tries = 0;
        let changed = self.again(|files| {
            tries += 1;
            change(files)
        });
        match changed {
            Err(error) if error.kind() == done_before && tries > 1 && is_done() => Ok(()),
            other => other,
        }
    }

    /// The file that a name leads to.
    fn identity(&self, path: &Path) -> Option<(u64, u64)> {
        self.inner.status(path).ok().map(|status| status.identity)
    }
}

fn again<T>(files: &dyn Files, repeats: bool, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match repeats {
        true => scr_plugin_api::repeat(MayPass::may_pass, |time| files.pause(time), work),
        false => work(),
    }
}

impl Files for Retrying {
    fn inner(&self) -> Option<&dyn Files> {
        Some(&*self.inner)
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        let inner = match how {
            // The first try may have made it, and the second would find it there.
            How::Create(_) => self.inner.open(path, how),
            How::Read | How::ReadNoLink | How::Update | How::Folder => {
                self.look(Look::Open, path, |files| files.open(path, how))
            }
            How::Replace(_) | How::Append(_) | How::Ensure(_) => self.again(|files| files.open(path, how)),
        }?;
        let (files, unread, path) = (Arc::clone(&self.inner), Arc::clone(&self.unread), path.to_owned());
        let (repeats, is_folder) = (self.once.is_some(), how == How::Folder);
        Ok(Box::new(RetryingFile { inner, path, files, unread, repeats, is_folder }))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        self.look(Look::Status, path, |files| files.status(path))
    }

    fn born(&self, path: &Path) -> io::Result<Option<(i64, u32)>> {
        self.again(|files| files.born(path))
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        // Whether a first try has made it, or somebody else, a second would not tell.
        self.inner.make_dir(path, mode)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.look(Look::List, path, |files| files.list(path))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(ErrorKind::NotFound, |files| files.remove_file(path), || true)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(ErrorKind::NotFound, |files| files.remove_dir(path), || true)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let before = self.once.as_ref().and_then(|_| self.identity(from));
        let is_done = || before.is_some() && self.identity(to) == before;
        self.change(ErrorKind::NotFound, |files| files.rename(from, to), is_done)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let is_done = || self.identity(to).is_some_and(|made| self.identity(from) == Some(made));
        self.change(ErrorKind::AlreadyExists, |files| files.link(from, to), is_done)
    }

    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        let set = self.again(|files| files.set_times(path, accessed, changed));
        self.unread.without(Optional::SetTimes, path, set)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.again(|files| files.space(path))
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.again(|files| files.real_path(path))
    }

    fn through(&self, path: &Path, dir: Arc<dyn File>, is_meant: Option<IsMeant>) -> Option<Arc<dyn Files>> {
        let inner = self.inner.through(path, dir, is_meant)?;
        Some(Arc::new(Self::knowing(inner, Arc::clone(&self.unread))))
    }

    fn without_retries(&self) -> Option<&dyn Files> {
        Some(self.once.as_deref().unwrap_or(self))
    }

    fn unread(&self) -> Option<String> {
        held(&self.unread.places).values().next().cloned()
    }

    fn forget_unread(&self) {
        held(&self.unread.places).clear();
    }

    fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut held(&self.unread.refused).1)
    }
}

struct RetryingFile {
    inner: Box<dyn File>,
    path: PathBuf,
    files: Arc<dyn Files>,
    unread: Arc<Unread>,
    repeats: bool,
    is_folder: bool,
}

impl RetryingFile {
    fn again<T>(&self, mut work: impl FnMut(&dyn File) -> io::Result<T>) -> io::Result<T> {
        again(&*self.files, self.repeats, || work(&*self.inner))
    }

    fn look<T>(&self, look: Look, work: impl FnMut(&dyn File) -> io::Result<T>) -> io::Result<T> {
        let done = self.again(work);
        self.unread.note(look, &self.path, &done);
        done
    }
}

impl File for RetryingFile {
    fn inner(&self) -> io::Result<&dyn File> {
        Ok(&*self.inner)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.look(Look::Read, |file| file.read_at(offset, buffer))
    }

    fn status(&self) -> io::Result<Status> {
        self.look(Look::Status, |file| file.status())
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.inner.sync();
        match self.is_folder {
            true => self.unread.without(Optional::SyncFolder, &self.path, synced),
            false => synced,
        }
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.again(|file| file.set_mode(mode))
    }

    fn set_times(&self, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        let set = self.again(|file| file.set_times(accessed, changed));
        self.unread.without(Optional::SetTimes, &self.path, set)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.again(|file| file.set_owner(uid, gid))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Durability, RealFiles};
    use super::*;
    use crate::kit::faulty::{Failure, FaultyFiles, What};

    /// How often an operation was tried that fails so many times, and its outcome.
    fn tried<T>(
        fails: u64,
        kind: ErrorKind,
        work: impl Fn(&dyn Files, &Path) -> io::Result<T>,
    ) -> (u64, bool) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "1234").unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.never_pause();
        let files = Retrying::around(Arc::new(faulty.clone()));
        faulty.fail_for(1, fails, kind);
        let done = work(&*files, dir.path());
        (faulty.mutations(), done.is_ok())
    }

    #[test]
    fn what_changes_no_bytes_is_tried_four_times_and_nothing_else_is() {
        type Work = fn(&dyn Files, &Path) -> io::Result<()>;
        let repeated: [Work; 7] = [
            |files, dir| files.link(&dir.join("a"), &dir.join("b")),
            |files, dir| files.status(&dir.join("a")).map(drop),
            |files, dir| files.list(dir).map(drop),
            |files, dir| files.open(&dir.join("a"), How::Read).map(drop),
            |files, dir| files.remove_file(&dir.join("a")),
            |files, dir| files.real_path(dir).map(drop),
            |files, dir| files.space(dir).map(drop),
        ];
        for (number, work) in repeated.into_iter().enumerate() {
            assert_eq!(tried(0, ErrorKind::TimedOut, work), (1, true), "{number}");
            assert_eq!(tried(3, ErrorKind::TimedOut, work), (4, true), "{number}");
            assert_eq!(tried(4, ErrorKind::TimedOut, work), (4, false), "{number}");
            // Only a look and a list are asked for again.
            let looks = matches!(number, 1 | 2);
            assert_eq!(
                tried(1, ErrorKind::PermissionDenied, work),
                (1 + u64::from(looks), looks),
                "{number}"
            );
            assert_eq!(
                tried(9, ErrorKind::NotADirectory, work),
                (1 + u64::from(looks || number == 3), false),
                "{number}"
            );
        }
        let once: [Work; 2] = [
            |files, dir| files.open(&dir.join("b"), How::Create(0o600)).map(drop),
            |files, dir| files.make_dir(&dir.join("b"), 0o700),
        ];
        for (number, work) in once.into_iter().enumerate() {
            assert_eq!(tried(1, ErrorKind::TimedOut, work), (1, false), "{number}");
        }
    }

    #[test]
    fn an_open_file_is_read_again_and_not_written_or_synced_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "1234").unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.never_pause();
        let file = Retrying::around(Arc::new(faulty.clone())).open(&path, How::Update).unwrap();
        let mut buffer = [0; 4];
        faulty.fail_for(2, 3, ErrorKind::TimedOut);
        assert_eq!(file.read_at(0, &mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"1234");
        faulty.fail_once(6, ErrorKind::TimedOut);
        assert!(file.sync().is_err());
        faulty.fail_once(7, ErrorKind::TimedOut);
        assert!(file.write_at(0, b"5").is_err());
        assert_eq!(faulty.mutations(), 7);
    }

    /// Bytes that the system has lost would count as stored after a second sync.
    #[test]
    fn a_folder_is_opened_again_and_not_synced_again() {
        assert_eq!(tried(3, ErrorKind::TimedOut, |files, dir| files.sync_dir(dir)), (5, true));
        let dir = tempfile::tempdir().unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.fail_once(1, ErrorKind::TimedOut);
        assert!(Retrying::around(Arc::new(faulty.clone())).sync_dir(dir.path()).is_err());
        assert_eq!(faulty.count(What::SyncDir), 1);
    }

    /// Otherwise an operation that fails for ever would be tried sixteen times.
    #[test]
    fn work_that_is_repeated_as_a_whole_repeats_none_of_its_parts() {
        let look = |files: &dyn Files, dir: &Path| {
            let read = files.read_if_there(&dir.join("a"), 10);
            read.map(drop).map_err(|_| ErrorKind::Other.into())
        };
        assert_eq!(tried(9, ErrorKind::TimedOut, look), (4, false));
        let write = |files: &dyn Files, dir: &Path| {
            let written = files.write_atomic(&dir.join("a"), b"new", 0o600, Durability::Synced);
            written.map_err(|_| ErrorKind::Other.into())
        };
        // The removal of each new file is an operation, too.
        assert!(tried(3, ErrorKind::TimedOut, write).1);
        assert!(!tried(99, ErrorKind::TimedOut, write).1);
    }

    /// A change of names, by the library or behind its back.
    type Change = fn(&dyn Files, &Path) -> io::Result<()>;

    /// The outcome of a change whose first try meets an error that may pass, while something else happens.
    fn disturbed(change: Change, at_first: Change) -> Result<(), ErrorKind> {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "other"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.never_pause();
        faulty.fail_once(1, ErrorKind::TimedOut);
        let within = dir.path().to_owned();
        faulty.interrupt_at(1, move || at_first(&RealFiles, &within).unwrap());
        let files = Retrying::around(Arc::new(faulty));
        change(&*files, dir.path()).map_err(|error| error.kind())
    }

    /// A rename that was done gave "not found", and a link that was made "there is one already".
    #[test]
    fn what_was_done_by_a_try_whose_answer_was_lost_counts_as_done() {
        let changes: [Change; 5] = [
            |files, dir| files.remove_file(&dir.join("a")),
            |files, dir| files.remove_dir(&dir.join("folder")),
            |files, dir| files.rename(&dir.join("a"), &dir.join("new")),
            |files, dir| files.rename(&dir.join("a"), &dir.join("other")),
            |files, dir| files.link(&dir.join("a"), &dir.join("new")),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(disturbed(change, change), Ok(()), "{number}");
        }
    }

    #[test]
    fn what_somebody_else_has_done_meanwhile_does_not_count_as_done() {
        let nothing: Change = |_, _| Ok(());
        let rename: Change = |files, dir| files.rename(&dir.join("a"), &dir.join("other"));
        assert_eq!(
            disturbed(rename, |files, dir| files.remove_file(&dir.join("a"))),
            Err(ErrorKind::NotFound)
        );
        let none: Change = |files, dir| files.rename(&dir.join("none"), &dir.join("other"));
        assert_eq!(disturbed(none, nothing), Err(ErrorKind::NotFound));
        let link: Change = |files, dir| files.link(&dir.join("a"), &dir.join("other"));
        assert_eq!(disturbed(link, nothing), Err(ErrorKind::AlreadyExists));
        let gone: Change = |files, dir| files.remove_file(&dir.join("none"));
        let dir = tempfile::tempdir().unwrap();
        let files = Retrying::around(Arc::new(RealFiles));
        assert_eq!(gone(&*files, dir.path()).unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// Only EINVAL was known for a folder, and no file could be flushed where times could not be set.
    #[test]
    fn what_a_file_system_refuses_for_good_is_done_without_and_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "1234").unwrap();
        for (what, numbers) in
            [(What::SyncDir, [1, 9, 13, 22, 38, 95]), (What::SetTimes, [1, 5, 13, 20, 39, 95])]
        {
            for number in numbers {
                let faulty = FaultyFiles::new(RealFiles);
                faulty.only(move |done, _| done == what);
                faulty.never_pause();
                faulty.fail_from(1, Failure::Number(number));
                let files = Retrying::around(Arc::new(faulty));
                for _ in 0..2 {
                    match what {
                        What::SyncDir => files.sync_dir(dir.path()).unwrap(),
                        _ => files.set_times(&path, (1, 0), (1, 0)).unwrap(),
                    }
                }
                let notes = files.take_notes();
                assert!(notes.len() == 1 && notes[0].contains("cannot s"), "{what:?} {number}: {notes:?}");
                assert!(files.take_notes().is_empty());
            }
        }
        let faulty = FaultyFiles::new(RealFiles);
        faulty.fail_from(1, Failure::Number(28));
        let files = Retrying::around(Arc::new(faulty));
        assert!(files.sync_dir(dir.path()).is_err(), "a full disk is an error");
        assert!(files.open(&path, How::Update).unwrap().sync().is_err());
    }
}
