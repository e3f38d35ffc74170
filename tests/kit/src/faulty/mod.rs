//! A file layer for tests: it records what is done, fails from a chosen operation on, or stops the world there.
//!
//! A test counts the mutating operations of a good run, then repeats the run with a fault at each of them in turn.
//! Clones share one record and one fault, so several ranks may be given the same one.

mod given_up;
mod unsynced;

pub use given_up::given_up;
pub use unsynced::Random;

use rustix::io::Errno;
use scr_base::fs::{File, Files, HeldMemory, How, IsMeant, LockAttempt, Space, Status};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use unsynced::Unsynced;

/// A file layer around another one.
#[derive(Clone)]
pub struct FaultyFiles {
    inner: Arc<dyn Files>,
    state: Arc<Mutex<FaultState>>,
}

/// One operation that was asked for, whether it failed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The operation.
    pub what: What,
    /// To which path.
    pub path: PathBuf,
    /// The other path of a rename or link, where it leads.
    pub to: Option<PathBuf>,
    /// Bytes read or written.
    pub bytes: u64,
    /// Whether it was made to fail.
    pub failed: bool,
}

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are the methods of `Files` and `File`")]
pub enum What {
    OpenToRead,
    OpenToWrite,
    Read,
    Write,
    Append,
    SetLen,
    Status,
    Sync,
    SetMode,
    SetTimes,
    SetOwner,
    Lock,
    MakeDir,
    List,
    RemoveFile,
    RemoveDir,
    Rename,
    Link,
    SyncDir,
    Space,
}

impl What {
    /// All kinds.
    pub const ALL: [What; 20] = [
        What::OpenToRead,
        What::OpenToWrite,
        What::Read,
        What::Write,
        What::Append,
        What::SetLen,
        What::Status,
        What::Sync,
        What::SetMode,
        What::SetTimes,
        What::SetOwner,
        What::Lock,
        What::MakeDir,
        What::List,
        What::RemoveFile,
        What::RemoveDir,
        What::Rename,
        What::Link,
        What::SyncDir,
        What::Space,
    ];

    /// Whether it changes what is stored, or waits until that is safe. Only these are counted.
    pub fn mutates(self) -> bool {
        !matches!(self, What::OpenToRead | What::Read | What::Status | What::Lock | What::List | What::Space)
    }
}

#[derive(Default)]
struct FaultState {
    operations: Vec<Operation>,
    mutations: u64,
    /// Whether those that change nothing are counted, and fail, too.
    counts_all: bool,
    fault: Option<Fault>,
    /// Which operations are meant; all where nothing is said.
    meant: Option<Meant>,
    stopped: bool,
    hurries: bool,
    /// The messages to the user.
    notices: Vec<String>,
    /// Whether a write that fails gets half of its bytes down.
    tears: bool,
    room: Option<u64>,
    /// The folder that has the files of the kernel.
    kernel: Option<PathBuf>,
    machine: Option<Vec<u8>>,
    numbers_names: bool,
    ignores_case: bool,
    lacks: Vec<What>,
    interruption: Option<Interruption>,
    unsynced: Vec<Unsynced>,
}

type Interruption = (u64, Box<dyn FnOnce() + Send>);

type Meant = Arc<dyn Fn(What, &Path) -> bool + Send + Sync>;

/// The error of an operation that fails: of this kind, or with this number of the system.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "they are the two ways to name an error")]
pub enum Failure {
    Kind(io::ErrorKind),
    Number(i32),
}

impl From<io::ErrorKind> for Failure {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Kind(kind) => kind.into(),
            Failure::Number(number) => Self::from_raw_os_error(number),
        }
    }
}

#[derive(Clone, Copy)]
enum Fault {
    /// Each of these operations fails.
    Span(u64, u64, Failure),
    Stop {
        at: u64,
        torn: bool,
    },
}

/// The fate of one operation.
enum Verdict {
    Go,
    Fail(io::Error),
    /// A write that gets half of its bytes down before it fails.
    Tear(io::Error),
}

impl FaultyFiles {
    /// A layer that does what `inner` does, until a fault is set.
    pub fn new(inner: impl Files + 'static) -> Self {
        Self::around(Arc::new(inner))
    }

    /// The same around a layer that others have as well.
    pub fn around(inner: Arc<dyn Files>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// From the `at`-th mutating operation on, counted from 1, mutating operations fail.
    pub fn fail_from(&self, at: u64, error: impl Into<Failure>) {
        self.fail_for(at, u64::MAX, error);
    }

    /// The `at`-th mutating operation fails, and no other.
    pub fn fail_once(&self, at: u64, error: impl Into<Failure>) {
        self.fail_for(at, 1, error);
    }

    /// So `many` mutating operations fail, from the `at`-th on.
    pub fn fail_for(&self, at: u64, many: u64, error: impl Into<Failure>) {
        self.state().fault = Some(Fault::Span(at, at.saturating_add(many), error.into()));
    }

    /// From the `at`-th mutating operation on, every operation fails, as if the process had died before it.
    pub fn stop_at(&self, at: u64) {
        self.state().fault = Some(Fault::Stop { at, torn: false });
    }

    /// Like [`stop_at`](Self::stop_at); where the operation is a write, half of its bytes are written.
    pub fn stop_torn_at(&self, at: u64) {
        self.state().fault = Some(Fault::Stop { at, torn: true });
    }

    /// Writes that fail get half of their bytes down before they do, as on a device that is full.
    pub fn tear_writes(&self) {
        self.state().tears = true;
    }

    /// Counts, records and fails only what is done to paths below this one; a world that has stopped fails everywhere.
    pub fn only_below(&self, path: impl Into<PathBuf>) {
        let below = path.into();
        self.only(move |_, path| path.starts_with(&below));
    }

    /// Counts, records and fails only such operations. If ranks race, a count of all of them differs from run to run.
    pub fn only(&self, meant: impl Fn(What, &Path) -> bool + Send + Sync + 'static) {
        self.state().meant = Some(Arc::new(meant));
    }

    /// From here on operations that change nothing are counted, and fail, like those that do.
    pub fn count_all(&self) {
        self.state().counts_all = true;
    }

    /// Every file system reports room for this many more bytes; writes work as before.
    pub fn pretend_room(&self, bytes: u64) {
        self.state().room = Some(bytes);
    }

    /// What is looked at by its name is also found by the same name in small letters.
    pub fn pretend_to_ignore_case(&self) {
        self.state().ignores_case = true;
    }

    /// Every file system lies in memory, and the kernel says in the files below this folder how much of it there is, as
    /// `proc/meminfo`. Like those of the kernel, they have no length.
    pub fn pretend_memory(&self, kernel: impl Into<PathBuf>) {
        self.state().kernel = Some(kernel.into());
    }

    /// Each name of a file shows another number, as those of some file systems in user space do.
    pub fn number_names(&self) {
        self.state().numbers_names = true;
    }

    /// The processes that have this file layer run on a machine of their own, of this name.
    pub fn pretend_machine(&self, name: &str) {
        self.state().machine = Some(name.into());
    }

    /// Pauses return at once.
    pub fn never_pause(&self) {
        self.state().hurries = true;
    }

    /// The messages to the user about waiting.
    pub fn notices(&self) -> Vec<String> {
        self.state().notices.clone()
    }

    /// Operations of this kind are not permitted, as on a file system that does not know them.
    pub fn lack(&self, what: What) {
        self.state().lacks.push(what);
    }

    /// Before the `at`-th operation that counts this is done, as if the process had been stopped there for a while.
    pub fn interrupt_at(&self, at: u64, work: impl FnOnce() + Send + 'static) {
        self.state().interruption = Some((at, Box::new(work)));
    }

    /// At the `at`-th operation that counts there is a panic, once, as of a defect of the program.
    pub fn panic_at(&self, at: u64) {
        self.interrupt_at(at, move || panic!("planted at operation {at}"));
    }

    /// Whether what was to be done meanwhile was done.
    pub fn was_interrupted(&self) -> bool {
        self.state().interruption.is_none()
    }

    /// From here on it is known what of a folder is on stable storage; all that is there is. Files of which `is_synced_elsewhere`
    /// says so are synced by somebody whose operations do not pass here.
    pub fn remember_synced(&self, folder: impl Into<PathBuf>, is_synced_elsewhere: fn(&Path) -> bool) {
        let unsynced = Unsynced::begin(Arc::clone(&self.inner), folder.into(), is_synced_elsewhere);
        self.state().unsynced.push(unsynced);
    }

    /// The file systems of the folders that were to be remembered crash: what was not synced may be lost, each time otherwise.
    ///
    /// # Errors
    /// The folders could not be changed.
    pub fn lose_unsynced(&self, seed: u64) -> io::Result<()> {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % below
        };
        let unsynced = std::mem::take(&mut self.state().unsynced);
        unsynced.into_iter().try_for_each(|folder| folder.crash(&mut random))
    }

    /// All is well again, and counting and recording restart.
    pub fn heal(&self) {
        let mut state = self.state();
        let (meant, counts_all) = (state.meant.take(), state.counts_all);
        *state = FaultState { meant, counts_all, ..FaultState::default() };
    }

    /// Number of mutating operations so far, or of all where all are counted.
    pub fn mutations(&self) -> u64 {
        self.state().mutations
    }

    /// Whether the world has stopped.
    pub fn stopped(&self) -> bool {
        self.state().stopped
    }

    /// The operations so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.state().operations.clone()
    }

    /// The first operation that was made to fail.
    pub fn first_failed(&self) -> Option<Operation> {
        self.state().operations.iter().find(|operation| operation.failed).cloned()
    }

    /// The operations of one kind so far.
    pub fn count(&self, what: What) -> usize {
        self.state().operations.iter().filter(|operation| operation.what == what).count()
    }

    /// A panic elsewhere leaves the counts right.
    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, what: What, path: &Path, to: Option<&Path>, bytes: usize) -> Verdict {
        let mut state = self.state();
        let is_meant = |path: &Path| state.meant.as_ref().is_none_or(|meant| meant(what, path));
        if !state.stopped && !is_meant(path) && !to.is_some_and(is_meant) {
            return Verdict::Go;
        }
        let verdict = state.judge(what);
        let counts = state.counts_all || what.mutates();
        let reached = counts && state.interruption.as_ref().is_some_and(|(at, _)| state.mutations == *at);
        let interruption = if reached { state.interruption.take() } else { None };
        let failed = !matches!(verdict, Verdict::Go);
        let (path, to) = (path.to_owned(), to.map(Path::to_owned));
        state.operations.push(Operation { what, path, to, bytes: bytes as u64, failed });
        drop(state);
        if let Some((_, work)) = interruption {
            work();
        }
        verdict
    }

    /// The contents of stable storage from here on.
    fn record<T>(&self, done: io::Result<T>, record: impl Fn(&mut Unsynced, &T)) -> io::Result<T> {
        if let Ok(value) = &done {
            self.state().unsynced.iter_mut().for_each(|folder| record(folder, value));
        }
        done
    }

    fn changed<T>(&self, done: io::Result<T>, paths: &[&Path]) -> io::Result<T> {
        self.record(done, |folder, _| folder.changed(paths))
    }

    fn numbered(&self, path: &Path, status: Status) -> Status {
        let number = |path: &Path| {
            path.as_os_str()
                .as_encoded_bytes()
                .iter()
                .fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(*byte))
        };
        match self.state().numbers_names {
            true => Status { identity: (status.identity.0, number(path)), ..status },
            false => status,
        }
    }

    fn pass(&self, what: What, path: &Path, to: Option<&Path>) -> io::Result<()> {
        match self.judge(what, path, to, 0) {
            Verdict::Go => Ok(()),
            Verdict::Fail(error) | Verdict::Tear(error) => Err(error),
        }
    }
}

impl FaultState {
    /// The place of a file of the kernel, if it is pretended.
    fn file_of_kernel(&self, path: &Path) -> Option<PathBuf> {
        let is_of_kernel = path.starts_with("/proc") || path.starts_with("/sys");
        let kernel = self.kernel.as_ref().filter(|_| is_of_kernel)?;
        Some(kernel.join(path.strip_prefix("/").ok()?))
    }

    fn judge(&mut self, what: What) -> Verdict {
        if self.stopped {
            return Verdict::Fail(stopped());
        }
        if self.lacks.contains(&what) {
            return Verdict::Fail(Errno::PERM.into());
        }
        if !self.counts_all && !what.mutates() {
            return Verdict::Go;
        }
        self.mutations += 1;
        match self.fault {
            Some(Fault::Span(at, end, failure)) if (at..end).contains(&self.mutations) => {
                if self.tears {
                    Verdict::Tear(failure.into())
                } else {
                    Verdict::Fail(failure.into())
                }
            }
            Some(Fault::Stop { at, torn }) if self.mutations >= at => {
                self.stopped = true;
                if torn {
                    Verdict::Tear(stopped())
                } else {
                    Verdict::Fail(stopped())
                }
            }
            _ => Verdict::Go,
        }
    }
}

fn stopped() -> io::Error {
    io::Error::other("the world has stopped")
}

impl Files for FaultyFiles {
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        let writes = !matches!(how, How::Read | How::ReadNoLink | How::Update | How::Folder);
        self.pass(if writes { What::OpenToWrite } else { What::OpenToRead }, path, None)?;
        let of_kernel = self.state().file_of_kernel(path);
        let inner = self.inner.open(of_kernel.as_deref().unwrap_or(path), how);
        let inner = if writes { self.changed(inner, &[path])? } else { inner? };
        let has_len = of_kernel.is_none();
        let is_folder = how == How::Folder;
        Ok(Box::new(FaultyFile { inner, path: path.to_owned(), is_folder, has_len, files: self.clone() }))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        self.pass(What::Status, path, None)?;
        let ignores_case = self.state().ignores_case;
        let small =
            path.file_name().and_then(|name| Some(path.with_file_name(name.to_str()?.to_lowercase())));
        let meant = small.as_deref().filter(|_| ignores_case).unwrap_or(path);
        self.inner.status(meant).map(|status| self.numbered(path, status))
    }

    fn born(&self, path: &Path) -> io::Result<Option<(i64, u32)>> {
        self.pass(What::Status, path, None)?;
        self.inner.born(path)
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.pass(What::MakeDir, path, None)?;
        self.changed(self.inner.make_dir(path, mode), &[path])
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.pass(What::List, path, None)?;
        self.inner.list(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.pass(What::RemoveFile, path, None)?;
        self.changed(self.inner.remove_file(path), &[path])
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.pass(What::RemoveDir, path, None)?;
        self.changed(self.inner.remove_dir(path), &[path])
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(What::Rename, from, Some(to))?;
        self.changed(self.inner.rename(from, to), &[to, from])
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(What::Link, from, Some(to))?;
        self.changed(self.inner.link(from, to), &[to])
    }

    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        self.pass(What::SetTimes, path, None)?;
        self.inner.set_times(path, accessed, changed)
    }

    fn hold_memory(&self, path: &Path) -> Option<HeldMemory> {
        self.inner.hold_memory(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.pass(What::Space, path, None)?;
        let space = self.inner.space(path)?;
        let state = self.state();
        Ok(Space { free: state.room.or(space.free), in_memory: space.in_memory || state.kernel.is_some() })
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.pass(What::Status, path, None)?;
        self.inner.real_path(path)
    }

    fn through(&self, path: &Path, dir: Arc<dyn File>, is_meant: Option<IsMeant>) -> Option<Arc<dyn Files>> {
        let inner = self.inner.through(path, dir, is_meant)?;
        Some(Arc::new(Self { inner, state: Arc::clone(&self.state) }))
    }

    fn hold_instead(&self, path: &Path, dir: Arc<dyn File>) {
        self.inner.hold_instead(path, dir);
    }

    fn umask(&self) -> u32 {
        self.inner.umask()
    }

    fn machine(&self) -> Vec<u8> {
        let machine = self.state().machine.clone();
        machine.unwrap_or_else(|| self.inner.machine())
    }

    fn pause(&self, time: Duration) {
        self.inner.pause(if self.state().hurries { Duration::ZERO } else { time });
    }

    fn notice(&self, line: &str) {
        self.state().notices.push(line.to_owned());
    }
}

struct FaultyFile {
    inner: Box<dyn File>,
    path: PathBuf,
    is_folder: bool,
    has_len: bool,
    files: FaultyFiles,
}

impl FaultyFile {
    fn write(&self, what: What, bytes: &[u8], write: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.files.judge(what, &self.path, None, bytes.len()) {
            Verdict::Go => write(bytes),
            Verdict::Fail(error) => Err(error),
            Verdict::Tear(error) => write(bytes.split_at(bytes.len() / 2).0).and(Err(error)),
        }
    }
}

impl File for FaultyFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self.files.judge(What::Read, &self.path, None, buffer.len()) {
            Verdict::Go => self.inner.read_at(offset, buffer),
            Verdict::Fail(error) | Verdict::Tear(error) => Err(error),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(What::Write, bytes, |bytes| self.inner.write_at(offset, bytes))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(What::Append, bytes, |bytes| self.inner.append(bytes))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.files.pass(What::SetLen, &self.path, None)?;
        self.inner.set_len(len)
    }

    fn status(&self) -> io::Result<Status> {
        self.files.pass(What::Status, &self.path, None)?;
        let status = self.files.numbered(&self.path, self.inner.status()?);
        Ok(Status { len: if self.has_len { status.len } else { 0 }, ..status })
    }

    fn sync(&self) -> io::Result<()> {
        self.files.pass(if self.is_folder { What::SyncDir } else { What::Sync }, &self.path, None)?;
        self.files.record(self.inner.sync(), |unsynced, ()| match self.is_folder {
            true => unsynced.folder_synced(&self.path),
            false => unsynced.synced(&self.path, &*self.inner),
        })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.files.pass(What::SetMode, &self.path, None)?;
        self.inner.set_mode(mode)
    }

    fn try_lock(&self) -> LockAttempt {
        match self.files.pass(What::Lock, &self.path, None) {
            Ok(()) => self.inner.try_lock(),
            Err(error) => LockAttempt::of(Err(error)),
        }
    }

    fn set_times(&self, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        self.files.pass(What::SetTimes, &self.path, None)?;
        self.inner.set_times(accessed, changed)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.files.pass(What::SetOwner, &self.path, None)?;
        self.inner.set_owner(uid, gid)
    }

    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use std::fs;

    #[test]
    fn operations_are_recorded_and_only_the_mutating_ones_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let files = FaultyFiles::new(RealFiles);
        files.open(&from, How::Create(0o600)).unwrap().write_at(0, b"1234").unwrap();
        files.status(&from).unwrap();
        files.rename(&from, &to).unwrap();
        let kinds: Vec<_> = files.operations().iter().map(|operation| operation.what).collect();
        assert_eq!(kinds, [What::OpenToWrite, What::Write, What::Status, What::Rename]);
        assert_eq!((files.mutations(), files.operations()[1].bytes), (3, 4));
        assert_eq!((&files.operations()[3].path, &files.operations()[3].to), (&from, &Some(to)));
    }

    #[test]
    fn reading_fails_too_where_all_operations_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.count_all();
        files.fail_once(2, io::ErrorKind::InvalidData);
        assert!(files.list(dir.path()).is_ok());
        assert!(files.list(dir.path()).is_err());
        assert_eq!((files.list(dir.path()).is_ok(), files.mutations()), (true, 3));
    }

    #[test]
    fn a_full_disk_stays_full_and_can_still_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.fail_from(2, io::ErrorKind::StorageFull);
        files.make_dir(&dir.path().join("a"), 0o700).unwrap();
        for _ in 0..2 {
            let error = files.make_dir(&dir.path().join("b"), 0o700).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(files.list(dir.path()).unwrap().len(), 1);
        files.heal();
        files.make_dir(&dir.path().join("b"), 0o700).unwrap();
    }

    #[test]
    fn once_the_world_has_stopped_not_even_reading_works() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.stop_at(1);
        assert!(files.list(dir.path()).is_ok());
        assert!(files.make_dir(&dir.path().join("a"), 0o700).is_err());
        assert!(files.stopped() && files.list(dir.path()).is_err());
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn a_torn_write_leaves_half_of_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let files = FaultyFiles::new(RealFiles);
        files.stop_torn_at(2);
        let file = files.open(&path, How::Append(0o600)).unwrap();
        assert!(file.append(b"12345678").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"1234");
    }

    #[test]
    fn a_world_that_stopped_at_one_place_fails_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.only_below(dir.path().join("cache"));
        files.stop_at(1);
        files.make_dir(&dir.path().join("prefix"), 0o700).unwrap();
        assert!(files.make_dir(&dir.path().join("cache"), 0o700).is_err());
        assert!(files.make_dir(&dir.path().join("other"), 0o700).is_err());
    }

    #[test]
    fn operations_elsewhere_are_neither_counted_nor_failed() {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.only_below(dir.path().join("cache"));
        files.fail_from(1, io::ErrorKind::StorageFull);
        files.make_dir(&dir.path().join("prefix"), 0o700).unwrap();
        assert!(files.make_dir(&dir.path().join("cache"), 0o700).is_err());
        assert_eq!(files.mutations(), 1);
    }
}
