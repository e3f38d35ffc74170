//! Mutual exclusion that also works on file systems whose locks do not reach other machines.
//!
//! The lock is a name: the process that hard-links a file of its own to it holds the lock, and removes the name in the end. That
//! works on NFS and on Lustre, whatever their locks do. The holder also keeps its file locked, so that its death is detected at
//! once on the same machine. A holder on another machine, or a stopped one, counts as dead once the name is old. On a file system
//! without hard links, a lock of the system is used instead.

use super::error::At;
use super::retrying::is_refusal;
use super::trees::{keeps_changing, kept_locked, PAUSE};
use super::{
    keep_from_readers, retried, unique_number, File, Files, FsError, How, Kind, LockAttempt, Status, Updated,
    LOCKABLE,
};
use crate::{ensure, parallel};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The seconds after which a holder that cannot be seen to have died is taken for dead. Work under the lock takes a fraction of a
/// second.
const STALE_SECONDS: i64 = 30;
/// How often the lock is refreshed during long work.
const REFRESHED: Duration = Duration::from_secs(STALE_SECONDS as u64 / 3);
/// After so many looks, about two seconds, the user is told.
const LOOKS_IN_SILENCE: u32 = 400;
/// The number of looks before it gives up, after some minutes.
const MOST_LOOKS: u32 = 60_000;

impl dyn Files + '_ {
    /// Does `work` while nobody else does anything under the same lock file. It can ask whether the lock is still its own, or was
    /// broken since this process seemed dead. `Updated::locked` is false where the file system knows neither second names nor
    /// locks, and `Updated::everywhere` where it does not know second names.
    ///
    /// # Errors
    /// The lock file could not be made, or others kept it all the time.
    pub fn exclusively<R>(
        &self,
        lock: &Path,
        work: impl FnOnce(&dyn Fn() -> bool) -> R,
    ) -> Result<Updated<R>, FsError> {
        let held = self.wait_until_taken(lock)?;
        Ok(held.updated(work(&|| held.is_still_ours())))
    }

    /// As `exclusively`, for work that may take longer than what makes a holder look dead: meanwhile the lock is kept young.
    ///
    /// # Errors
    /// As for `exclusively`, or there is no thread that keeps it young; then nothing was done.
    pub fn exclusively_for_long<R>(
        &self,
        lock: &Path,
        work: impl FnOnce(&dyn Fn() -> bool) -> R,
    ) -> Result<Updated<R>, FsError> {
        let held = self.wait_until_taken(lock)?;
        Ok(held.updated(held.refreshed(work).at("keep", lock)?))
    }

    /// Does `work`, which may take long, if the lock is free at this moment, and returns whether it did. Breaks the lock of a
    /// dead holder, so that it is free the next time.
    ///
    /// # Errors
    /// The lock file could not be created or read, or there is no thread that keeps it young; then nothing was done.
    pub fn if_free(&self, lock: &Path, work: &mut dyn FnMut(&dyn Fn() -> bool)) -> Result<bool, FsError> {
        let Some(held) = self.take(lock, 1)? else { return Ok(false) };
        held.refreshed(work).at("keep", lock)?;
        Ok(true)
    }

    fn wait_until_taken<'a>(&'a self, lock: &'a Path) -> Result<Held<'a>, FsError> {
        self.take(lock, MOST_LOOKS)?.ok_or_else(|| keeps_changing(lock, MOST_LOOKS))
    }

    /// The lock, which is one of the system where there are no second names. `None` if others have it at each of so many looks.
    fn take<'a>(&'a self, lock: &'a Path, most_looks: u32) -> Result<Option<Held<'a>>, FsError> {
        let mine = Mine::create(self, lock)?;
        for look in 1..=most_looks {
            let taken = mine.try_take()?;
            if matches!(taken, Taken::No) {
                mine.break_if_dead().inspect_err(|_| mine.forget_own_name())?;
                if look < most_looks {
                    self.pause_for(lock, look);
                }
                continue;
            }
            mine.forget_own_name();
            return match taken {
                Taken::NoSecondNames => self.take_of_system(lock, most_looks),
                _ => Ok(Some(Held::Name(mine))),
            };
        }
        mine.forget_own_name();
        Ok(None)
    }

    /// The lock of the system that stands for `lock` where there are no second names.
    fn take_of_system(&self, lock: &Path, most_looks: u32) -> Result<Option<Held<'_>>, FsError> {
        let path = named(lock, "flock");
        let file = self.open(&path, How::Ensure(LOCKABLE)).at("open", &path)?;
        keep_from_readers(&*file, &file.status().at("look at", &path)?);
        match self.wait_for_lock(&path, &*file, most_looks) {
            None if most_looks > 1 => Err(kept_locked(&path)),
            taken => Ok(taken.map(|locked| Held::OfSystem { file, locked })),
        }
    }

    /// A pause between two looks at a lock. Says once what it waits for, if that takes long.
    pub(super) fn pause_for(&self, lock: &Path, look: u32) {
        if look == LOOKS_IN_SILENCE {
            self.notice(&format!(
                "waiting for {}, which another job or command has locked; one that was stopped or has died is waited for up to \
                 half a minute",
                lock.display()
            ));
        }
        self.pause(PAUSE);
    }
}

/// A lock, until it is dropped.
enum Held<'a> {
    Name(Mine<'a>),
    OfSystem { file: Box<dyn File>, locked: bool },
}

impl Held<'_> {
    /// A lock of the system cannot be broken, but the application may have closed its file.
    fn is_still_ours(&self) -> bool {
        match self {
            Self::Name(mine) => mine.is_still_ours(),
            Self::OfSystem { file, .. } => file.descriptor().is_ok(),
        }
    }

    /// Does `work`, and meanwhile keeps the lock young, in another thread. Without one it does nothing.
    fn refreshed<R>(&self, work: impl FnOnce(&dyn Fn() -> bool) -> R) -> io::Result<R> {
        let (done, end) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // The thread ends with it, also if the work panics.
            let done = done;
            let thread = parallel::beside(scope, move || {
                while end.recv_timeout(REFRESHED) == Err(RecvTimeoutError::Timeout) {
                    if let Self::Name(mine) = self {
                        mine.refresh();
                    }
                }
            })?;
            let value = work(&|| self.is_still_ours());
            drop(done);
            // If it has panicked, the lock is old, and the work has been told if somebody has broken it.
            let _ = thread.join();
            Ok(value)
        })
    }

    /// What was done under it.
    fn updated<R>(&self, value: R) -> Updated<R> {
        match self {
            Self::Name(_) => Updated { value, locked: true, everywhere: true },
            Self::OfSystem { locked, .. } => Updated { value, locked: *locked, everywhere: false },
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Self::Name(mine) = self {
            mine.give_back();
        }
    }
}

/// A file of our own, which becomes the lock by its second name.
struct Mine<'a> {
    files: &'a dyn Files,
    lock: &'a Path,
    path: PathBuf,
    file: Box<dyn File>,
    identity: (u64, u64),
}

/// A lock file, open if this user may open it, and its identity.
type LockFile = (Option<Box<dyn File>>, (u64, u64));

enum Taken {
    Yes,
    No,
    NoSecondNames,
}

impl<'a> Mine<'a> {
    /// Makes a file of our own; another one if that fails with an error that may pass.
    fn create(files: &'a dyn Files, lock: &'a Path) -> Result<Self, FsError> {
        retried(files, |_| Self::create_once(files, lock))
    }

    fn create_once(files: &'a dyn Files, lock: &'a Path) -> Result<Self, FsError> {
        let path = named(lock, &format!("{:016x}", unique_number()));
        let file = files.open(&path, How::Create(LOCKABLE)).at("create", &path)?;
        // Held as long as the file is open; without locks, only its age shows that the holder is dead.
        let _ = file.try_lock();
        let mine = Self { files, lock, identity: (0, 0), path, file };
        let prepared = mine.file.write_at(0, &files.machine()).and_then(|()| mine.file.status());
        match prepared {
            Ok(status) => {
                keep_from_readers(&*mine.file, &status);
                Ok(Self { identity: status.identity, ..mine })
            }
            Err(error) => {
                mine.forget_own_name();
                Err(error).at("write", &mine.path)
            }
        }
    }

    fn try_take(&self) -> Result<Taken, FsError> {
        let taken = retried(self.files, |files| match files.link(&self.path, self.lock) {
            // Over NFS the answer may have been lost, and the name is there anyway.
            _ if self.is_ours() => Ok(Taken::Yes),
            Ok(()) => self.taken_unseen(),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Taken::No),
            Err(error) if is_refusal(&error) => Ok(Taken::NoSecondNames),
            Err(error) if matches!(error.kind(), ErrorKind::TooManyLinks | ErrorKind::CrossesDevices) => {
                Ok(Taken::NoSecondNames)
            }
            Err(error) => Err(error),
        });
        taken.inspect_err(|_| self.forget_own_name()).at("take the lock", self.lock)
    }

    /// The name was given, and leads to another file: others have broken the lock, or two names of a file never show that it is one.
    fn taken_unseen(&self) -> io::Result<Taken> {
        let second = named(&self.path, "second");
        self.files.link(&self.path, &second)?;
        let shown = self.files.status(&second);
        let _ = self.files.remove_file(&second);
        match shown?.identity == self.identity {
            true => Ok(Taken::No),
            false => self.files.remove_file(self.lock).map(|()| Taken::NoSecondNames),
        }
    }

    fn is_ours(&self) -> bool {
        self.files.status(self.lock).is_ok_and(|found| found.identity == self.identity)
    }

    /// The same for long after it was taken. The lock is opened, since over NFS the status of a name may be an old one.
    fn is_still_ours(&self) -> bool {
        let found = self.files.open(self.lock, How::Read).and_then(|lock| lock.status());
        found.is_ok_and(|found| found.identity == self.identity)
    }

    /// Makes the lock young again. Through the open file: by now the name may be that of another process.
    fn refresh(&self) {
        let _ = self.file.write_at(0, &self.files.machine());
    }

    fn forget_own_name(&self) {
        let _ = self.files.remove_file(&self.path);
    }

    fn give_back(&self) {
        if self.is_ours() {
            let _ = self.files.remove_file(self.lock);
        }
    }

    /// Removes a lock whose holder is dead: it moves to a name of this process first, so that of several who find it dead
    /// one alone removes it, and one that is not the dead one after all goes back.
    fn break_if_dead(&self) -> Result<(), FsError> {
        let Some((_locked, identity)) = self.identify()? else { return Ok(()) };
        let broken = named(&self.path, "broken");
        if self.files.rename(self.lock, &broken).is_ok() {
            let moved = self.files.status(&broken).map(|status| status.identity);
            if moved.is_ok_and(|moved| moved != identity) {
                let _ = self.files.link(&broken, self.lock);
            }
            let _ = self.files.remove_file(&broken);
        }
        Ok(())
    }

    /// The lock, where its holder is dead, and its identity. A holder on this machine keeps the file locked until it has
    /// removed the name: who has the lock of the system while the name still leads to the file knows that
    /// the holder is dead, and nobody else here can touch it as long as the file is open.
    fn identify(&self) -> Result<Option<LockFile>, FsError> {
        let named = match self.files.status(self.lock) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.at("look at", self.lock)?,
        };
        // This is the lock of no process, and no link is followed to a file that is not below the prefix directory.
        let fault = || format!("is needed as a lock and is {}; move it away", named.kind.name());
        ensure(named.kind == Kind::File, || FsError::refused(self.lock, fault()))?;
        let file = match self.files.open(self.lock, How::Update) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            // It is another user's, as of an administrator's command: its age alone says that the holder is dead.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Ok(self.is_old(&named)?.then_some((None, named.identity)));
            }
            other => other.at("open", self.lock)?,
        };
        let status = file.status().at("look at", self.lock)?;
        let mut machine = vec![0; 64];
        let length = file.read_at(0, &mut machine).at("read", self.lock)?;
        machine.truncate(length);
        let near = !machine.is_empty() && machine == self.files.machine();
        let dead = near && file.try_lock() == LockAttempt::Taken || self.is_old(&status)?;
        let still = self.files.status(self.lock).is_ok_and(|now| now.identity == status.identity);
        Ok((dead && still).then_some((Some(file), status.identity)))
    }

    /// Both times are the file server's, so no two clocks are compared.
    fn is_old(&self, lock: &Status) -> Result<bool, FsError> {
        let touched = retried(self.files, |_| self.file.write_at(0, &self.files.machine()));
        touched.at("write", &self.path)?;
        let now = self.file.status().at("look at", &self.path)?.mtime.0;
        Ok(now.saturating_sub(lock.mtime.0) > STALE_SECONDS)
    }
}

/// A name beside a path.
fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::super::{RealFiles, Retrying};
    use super::*;
    use crate::kit::descriptors::{closes, give_away, open_below, wait_until};
    use crate::kit::faulty::{FaultyFiles, What};
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    const REAL: &dyn Files = &RealFiles;

    fn left_in(folder: &Path) -> Vec<PathBuf> {
        REAL.list(folder).unwrap()
    }

    /// The lock was taken, and seemed to be that of another process at once. It stayed.
    #[test]
    fn where_names_of_one_file_have_different_numbers_a_lock_of_the_system_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let faulty = FaultyFiles::new(RealFiles);
        faulty.number_names();
        let files: &dyn Files = &faulty;
        for _ in 0..2 {
            let done = files.exclusively(&lock, |is_ours| {
                let others = REAL.open(&lock.with_file_name("lock.flock"), How::Update).unwrap();
                (is_ours(), others.try_lock() == LockAttempt::Held)
            });
            let done = done.unwrap();
            assert_eq!((done.value, done.locked, done.everywhere), ((true, true), true, false));
            assert_eq!(left_in(dir.path()), [Path::new("lock.flock")]);
        }
    }

    /// Others may do so while this process is stopped between two system calls.
    #[test]
    fn a_lock_that_is_taken_over_as_soon_as_it_is_taken_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.only(|what, _| what == What::Status);
        let taken = lock.clone();
        faulty.interrupt_at(2, move || {
            fs::remove_file(&taken).unwrap();
            fs::write(&taken, "").unwrap();
        });
        let mine = Mine::create(&faulty, &lock).unwrap();
        assert!(matches!(mine.try_take().unwrap(), Taken::No));
        assert!(lock.exists(), "it is that of another process");
    }

    #[test]
    fn never_are_two_at_work_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let outcome = REAL.exclusively(&lock, |_| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            std::thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                        });
                        assert!(outcome.unwrap().locked);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 120);
        assert_eq!(left_in(dir.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_holder_that_died_on_this_machine_is_passed_over_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        fs::write(&lock, RealFiles.machine()).unwrap();
        assert_eq!(REAL.exclusively(&lock, |_| 7).unwrap().value, 7);
        assert_eq!(left_in(dir.path()), Vec::<PathBuf>::new());
    }

    /// A command of root had died in a user's directory, and the user's jobs waited for it until they were ended.
    #[test]
    fn a_lock_that_this_user_may_not_open_counts_as_dead_once_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        fs::write(&lock, RealFiles.machine()).unwrap();
        REAL.open(&lock, How::Update).unwrap().set_times((1000, 0), (1000, 0)).unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.only(|what, path| what == What::OpenToWrite && path.ends_with("lock"));
        faulty.fail_from(1, ErrorKind::PermissionDenied);
        let files: &dyn Files = &faulty;
        assert_eq!(files.exclusively(&lock, |_| 7).unwrap().value, 7);
        assert_eq!(left_in(dir.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_holder_on_another_machine_counts_as_dead_once_its_lock_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        fs::write(&lock, "another machine").unwrap();
        REAL.open(&lock, How::Update).unwrap().set_times((1000, 0), (1000, 0)).unwrap();
        assert_eq!(REAL.exclusively(&lock, |_| 7).unwrap().value, 7);
    }

    /// Somebody had stopped a command on the terminal, and the job and all other commands waited for it.
    #[test]
    fn a_holder_on_this_machine_that_was_stopped_counts_as_dead_once_its_lock_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        fs::write(&lock, RealFiles.machine()).unwrap();
        let stopped = REAL.open(&lock, How::Update).unwrap();
        assert_eq!(stopped.try_lock(), LockAttempt::Taken);
        stopped.set_times((1000, 0), (1000, 0)).unwrap();
        assert_eq!(REAL.exclusively(&lock, |_| 7).unwrap().value, 7);
    }

    /// A job or a command said nothing for half a minute.
    #[test]
    fn a_lock_that_is_waited_for_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.never_pause();
        let lock = dir.path().join("lock");
        fs::write(&lock, "another machine").unwrap();
        let until_said = files.clone();
        let held = lock.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                wait_until(|| !until_said.notices().is_empty());
                fs::remove_file(held).unwrap();
            });
            assert_eq!((&files as &dyn Files).exclusively(&lock, |_| 7).unwrap().value, 7);
        });
        let said = files.notices();
        assert!(said.len() == 1 && said[0].contains(&format!("waiting for {}", lock.display())), "{said:?}");
    }

    #[test]
    fn what_is_no_file_is_nobodys_lock_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, elsewhere) = (dir.path().join("lock"), dir.path().join("elsewhere"));
        fs::write(&elsewhere, "mine").unwrap();
        type Plant = fn(&Path);
        let planted: [(&str, Plant); 4] = [
            ("a symbolic link", |path| std::os::unix::fs::symlink("elsewhere", path).unwrap()),
            ("a symbolic link", |path| std::os::unix::fs::symlink("nowhere", path).unwrap()),
            ("neither file nor folder", |path| {
                rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o666.into()).unwrap();
            }),
            ("a folder", |path| fs::create_dir(path).unwrap()),
        ];
        for (found, plant) in planted {
            plant(&lock);
            let error = REAL.exclusively(&lock, |_| ()).unwrap_err().to_string();
            assert_eq!(error, format!("{} is needed as a lock and is {found}; move it away", lock.display()));
            assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
            let _ = fs::remove_file(&lock).or_else(|_| fs::remove_dir(&lock));
            assert_eq!(left_in(dir.path()), ["elsewhere"].map(PathBuf::from), "{found}");
        }
    }

    /// It wrote into the lock of the next holder, which looked like one on this machine then, and dead.
    #[test]
    fn a_holder_whose_lock_was_broken_leaves_that_of_the_next_one_alone() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let mine = Mine::create(REAL, &lock).unwrap();
        assert!(matches!(mine.try_take().unwrap(), Taken::Yes));
        let old = || REAL.open(&lock, How::Update).unwrap().set_times((1000, 0), (1000, 0)).unwrap();
        let young = || REAL.status(&lock).unwrap().mtime.0 > 1000;
        old();
        mine.refresh();
        assert!(young());
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "another machine").unwrap();
        old();
        mine.refresh();
        mine.give_back();
        assert_eq!((fs::read(&lock).unwrap(), young()), (b"another machine".to_vec(), false));
    }

    /// One error where the lock was taken ended what was to be done under it.
    #[test]
    fn an_error_that_passes_keeps_nobody_from_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let faulty = FaultyFiles::new(RealFiles);
        let files = Retrying::around(Arc::new(faulty.clone()));
        faulty.count_all();
        faulty.never_pause();
        let mut reached = 0;
        for is_held in [false, true] {
            for at in 1.. {
                if is_held {
                    fs::write(&lock, RealFiles.machine()).unwrap();
                }
                faulty.heal();
                faulty.never_pause();
                faulty.only(move |what, _| what != What::Lock);
                faulty.fail_once(at, ErrorKind::TimedOut);
                assert_eq!(files.exclusively(&lock, |_| at).unwrap().value, at);
                assert_eq!(left_in(dir.path()), Vec::<PathBuf>::new(), "{:?}", faulty.first_failed());
                if faulty.first_failed().is_none() {
                    break;
                }
                reached += 1;
            }
        }
        assert!(reached > 12, "{reached}");
    }

    #[test]
    fn a_process_that_stops_anywhere_locks_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let files = FaultyFiles::new(RealFiles);
        (&files as &dyn Files).exclusively(&lock, |_| ()).unwrap();
        for at in 1..=files.mutations() {
            let files = FaultyFiles::new(RealFiles);
            files.stop_at(at);
            let _ = (&files as &dyn Files).exclusively(&lock, |_| ());
            assert_eq!(REAL.exclusively(&lock, |_| at).unwrap().value, at);
            assert!(!lock.exists());
        }
    }

    #[test]
    fn work_that_needs_a_free_lock_never_waits_and_breaks_dead_locks() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let times = AtomicU32::new(0);
        let if_free = || REAL.if_free(&lock, &mut |_| _ = times.fetch_add(1, Ordering::SeqCst)).unwrap();
        assert!(if_free());
        assert!(!REAL.exclusively(&lock, |_| if_free()).unwrap().value);
        assert!(REAL.if_free(&lock, &mut |_| assert!(!if_free())).unwrap());
        fs::write(&lock, RealFiles.machine()).unwrap();
        assert!(!if_free() && if_free());
        fs::write(&lock, "another machine").unwrap();
        assert!(!if_free() && !if_free());
        REAL.open(&lock, How::Update).unwrap().set_times((1000, 0), (1000, 0)).unwrap();
        assert!(!if_free() && if_free());
        assert_eq!((times.load(Ordering::SeqCst), left_in(dir.path())), (3, vec![]));
        let files = FaultyFiles::new(RealFiles);
        files.lack(What::Link);
        let free = (&files as &dyn Files).if_free(&lock, &mut |_| {
            assert!(!(&files as &dyn Files).if_free(&lock, &mut |_| ()).unwrap());
        });
        assert!(free.unwrap());
    }

    #[test]
    fn without_second_names_a_lock_of_the_system_does() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        let outcome = || (&files as &dyn Files).exclusively(&dir.path().join("lock"), |_| 7).unwrap();
        files.lack(What::Link);
        assert_eq!(outcome(), Updated { value: 7, locked: true, everywhere: false });
        files.lack(What::Lock);
        assert_eq!(outcome(), Updated { value: 7, locked: false, everywhere: false });
    }

    /// A lock of the system ends with its file, and nobody breaks it.
    #[test]
    fn a_lock_of_the_system_whose_file_the_application_has_closed_is_not_ours_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, theirs) = (dir.path().join("lock"), dir.path().join("theirs"));
        let files = FaultyFiles::new(RealFiles);
        files.lack(What::Link);
        let files: &dyn Files = &files;
        let mut given = Vec::new();
        let mut lose = |is_ours: &dyn Fn() -> bool| {
            assert!(is_ours());
            given = open_below(&dir.path().join("lock.flock"));
            assert_eq!(given.len(), 1);
            give_away(given[0], fs::File::create(&theirs).unwrap());
            !is_ours()
        };
        assert!(files.exclusively(&lock, &mut lose).unwrap().value);
        assert!(closes(given[0], &theirs));
        let mut given = Vec::new();
        let done = files.if_free(&lock, &mut |is_ours| {
            given = open_below(&dir.path().join("lock.flock"));
            give_away(given[0], fs::File::create(&theirs).unwrap());
            assert!(!is_ours());
        });
        assert!(done.unwrap() && closes(given[0], &theirs));
    }
}
