//! The real file system with directories that are reached through their descriptors.
//!
//! A path that begins with that of such a directory is resolved part by part: the folders between it and the last part are opened
//! without following links, and the operation uses the last part relative to its folder. So changes of the names above do not
//! matter any more, unless whoever holds the directory [wants to know](IsMeant) of them.
#![expect(
    clippy::disallowed_types,
    reason = "what is opened here becomes a `Handle` or a `RealFile`, or is closed at once"
)]

use super::limit::open_with_room;
use super::real::{
    birth, flags_of, if_in_memory, names_in, open_file, space_of, status_of, timestamps, RealFile, RealFiles,
    HOLD,
};
use super::{File, Files, HeldMemory, How, IsMeant, Space, Status};
use rustix::fs::{
    fstatfs, linkat, mkdirat, openat, openat2, renameat, statat, unlinkat, utimensat, AtFlags, Mode, OFlags,
    ResolveFlags, CWD,
};
use scr_plugin_api::Handle;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The real file system with directories that are held open.
#[derive(Clone, Default)]
pub(super) struct HeldDirs {
    held: Vec<Arc<HeldDir>>,
}

/// A directory that is held open. All layers that hold it have the same one.
struct HeldDir {
    path: PathBuf,
    dir: RwLock<Opened>,
    is_meant: Option<IsMeant>,
    /// The folders below it that were used last, the newest at the end. They stay open, since the next name mostly lies in one
    /// of them.
    folders: Mutex<Vec<(PathBuf, Arc<Handle<OwnedFd>>)>>,
}

/// The open directory, and which one it is, where somebody wants to know.
#[derive(Clone)]
struct Opened {
    dir: Arc<dyn File>,
    identity: Option<(u64, u64)>,
}

/// This many folders stay open: those of the newest dataset and of the one before.
const MOST_FOLDERS: usize = 8;

/// A path below a directory that is held open, or `.` for that itself.
struct Below<'a> {
    held: &'a HeldDir,
    path: &'a Path,
}

impl Opened {
    fn new(dir: Arc<dyn File>, is_meant: Option<&IsMeant>) -> Self {
        let identity = is_meant.and_then(|_| dir.status().ok()).map(|status| status.identity);
        Self { dir, identity }
    }
}

impl HeldDir {
    fn dir(&self) -> io::Result<Arc<dyn File>> {
        let Opened { dir, identity } = self.dir.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(is_meant) = &self.is_meant else { return Ok(dir) };
        Ok(is_meant(identity)?.map_or(dir, |other| {
            self.hold(Arc::clone(&other));
            other
        }))
    }

    fn hold(&self, dir: Arc<dyn File>) {
        let opened = Opened::new(dir, self.is_meant.as_ref());
        *self.dir.write().unwrap_or_else(PoisonError::into_inner) = opened;
        self.folders().clear();
    }

    fn folders(&self) -> MutexGuard<'_, Vec<(PathBuf, Arc<Handle<OwnedFd>>)>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A folder that has stayed open.
    fn known(&self, path: &Path) -> Option<Arc<Handle<OwnedFd>>> {
        let mut folders = self.folders();
        let at = folders.iter().position(|(known, _)| known == path)?;
        folders[at..].rotate_left(1);
        folders.last().map(|(_, folder)| Arc::clone(folder))
    }

    fn open_folder(&self, dir: &dyn File, path: &Path) -> io::Result<Arc<Handle<OwnedFd>>> {
        let opened = open_with_room(|| open_below(dir.descriptor()?, path))?;
        let opened = Arc::new(Handle::new(opened)?);
        let mut folders = self.folders();
        folders.retain(|(known, _)| known != path);
        if folders.len() == MOST_FOLDERS {
            folders.remove(0);
        }
        folders.push((path.to_owned(), Arc::clone(&opened)));
        Ok(opened)
    }

    fn forget(&self, path: &Path) {
        self.folders().retain(|(known, _)| !known.starts_with(path));
    }
}

impl Below<'_> {
    fn is_held_itself(&self) -> bool {
        self.path == Path::new(".")
    }

    /// Does `work` with the folder of the path and the name in it. A folder in cache is never renamed, but others may remove it
    /// and make it again. Nothing is found in a removed one, and then it is opened anew.
    fn at<R>(&self, work: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<R>) -> io::Result<R> {
        self.within(&*self.held.dir()?, work)
    }

    /// The same in the open directory, which has been looked at.
    fn within<R>(
        &self,
        dir: &dyn File,
        work: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<R>,
    ) -> io::Result<R> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder else { return work(dir.descriptor()?, self.path.as_os_str()) };
        let name = self.path.file_name().unwrap_or(OsStr::new("."));
        if let Some(known) = self.held.known(folder) {
            match work(known.get()?.as_fd(), name) {
                Err(error) if was_removed(&error) => self.held.forget(folder),
                other => return other,
            }
        }
        work(self.held.open_folder(dir, folder)?.get()?.as_fd(), name)
    }

    fn open(&self, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let (flags, mode) = (flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
        self.at(|folder, name| open_with_room(|| Ok(openat(folder, name, flags, mode)?)))
    }
}

impl HeldDirs {
    /// With one directory more.
    fn with(&self, path: &Path, dir: Arc<dyn File>, is_meant: Option<IsMeant>) -> Option<Self> {
        dir.descriptor().ok()?;
        let mut held = self.held.clone();
        held.retain(|known| known.path != path);
        held.push(Arc::new(HeldDir {
            path: path.to_owned(),
            dir: RwLock::new(Opened::new(dir, is_meant.as_ref())),
            is_meant,
            folders: Mutex::default(),
        }));
        Some(Self { held })
    }

    /// The innermost of them that a path lies in, and the rest of the path; `None` where it lies in none.
    fn below<'a>(&'a self, path: &'a Path) -> io::Result<Option<Below<'a>>> {
        let inside = self.held.iter().filter_map(|held| Some((held, path.strip_prefix(&held.path).ok()?)));
        let Some((held, rest)) = inside.min_by_key(|(_, rest)| rest.as_os_str().len()) else {
            return Ok(None);
        };
        // A part that goes up would leave the directory.
        if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let path = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
        Ok(Some(Below { held, path }))
    }

    /// The folder in which a name is changed. The name of a held directory itself stands in another one.
    fn changed<'a>(&'a self, path: &'a Path) -> io::Result<Option<Below<'a>>> {
        Ok(self.below(path)?.filter(|below| !below.is_held_itself()))
    }

    /// Does `work` with the folders and names of two paths; of a path below no held directory, the path is the name. `None` where
    /// both are such.
    fn at_both(
        &self,
        from: &Path,
        to: &Path,
        work: impl Fn(BorrowedFd<'_>, &OsStr, BorrowedFd<'_>, &OsStr) -> rustix::io::Result<()>,
    ) -> Option<io::Result<()>> {
        fn at(
            below: Option<&Below<'_>>,
            path: &Path,
            work: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<()>,
        ) -> io::Result<()> {
            below.map_or_else(|| work(CWD, path.as_os_str()), |below| below.at(&work))
        }
        match (self.changed(from), self.changed(to)) {
            (Err(error), _) | (_, Err(error)) => Some(Err(error)),
            (Ok(None), Ok(None)) => None,
            (Ok(Some(old)), Ok(Some(new))) if ptr::eq(old.held, new.held) => {
                Some(old.held.dir().and_then(|dir| {
                    old.within(&*dir, |old, from| new.within(&*dir, |new, to| Ok(work(old, from, new, to)?)))
                }))
            }
            (Ok(old), Ok(new)) => Some(at(old.as_ref(), from, |old, from| {
                at(new.as_ref(), to, |new, to| Ok(work(old, from, new, to)?))
            })),
        }
    }
}

fn was_removed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle)
}

/// Opens a folder below another one and follows no link. One call does it, unless the kernel lacks it, or a part is missing or a
/// link.
fn open_below(dir: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(folder) = openat2(dir, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        return Ok(folder);
    }
    let mut folder = None;
    for part in path {
        let at = folder.as_ref().map_or(dir, AsFd::as_fd);
        folder = Some(openat(at, part, flags, Mode::empty())?);
    }
    folder.ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl Files for HeldDirs {
    fn inner(&self) -> Option<&dyn Files> {
        Some(&RealFiles)
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        let Some(below) = self.below(path)? else { return open_file(path, how) };
        let (flags, mode) = flags_of(how);
        Ok(Box::new(RealFile::new(below.open(flags, mode)?.into(), how)?))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        let Some(below) = self.below(path)? else { return RealFiles.status(path) };
        below.at(|folder, name| Ok(status_of(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)))
    }

    fn born(&self, path: &Path) -> io::Result<Option<(i64, u32)>> {
        let Some(below) = self.below(path)? else { return RealFiles.born(path) };
        below.at(birth)
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        let Some(below) = self.changed(path)? else { return RealFiles.make_dir(path, mode) };
        below.at(|folder, name| Ok(mkdirat(folder, name, Mode::from_raw_mode(mode))?))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(below) = self.below(path)? else { return RealFiles.list(path) };
        names_in(below.open(OFlags::DIRECTORY, 0)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Some(below) = self.changed(path)? else { return RealFiles.remove_file(path) };
        below.at(|folder, name| Ok(unlinkat(folder, name, AtFlags::empty())?))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let Some(below) = self.changed(path)? else { return RealFiles.remove_dir(path) };
        below.at(|folder, name| Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?))?;
        below.held.forget(below.path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.at_both(from, to, |old, from, new, to| renameat(old, from, new, to))
            .unwrap_or_else(|| RealFiles.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.at_both(from, to, |old, from, new, to| linkat(old, from, new, to, AtFlags::empty()))
            .unwrap_or_else(|| RealFiles.link(from, to))
    }

    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        let Some(below) = self.changed(path)? else { return RealFiles.set_times(path, accessed, changed) };
        let times = timestamps(accessed, changed);
        below.at(|folder, name| Ok(utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn hold_memory(&self, path: &Path) -> Option<HeldMemory> {
        let Some(below) = self.below(path).ok()? else { return RealFiles.hold_memory(path) };
        if_in_memory(below.open(HOLD, 0).ok()?)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let Some(below) = self.below(path)? else { return RealFiles.space(path) };
        if below.is_held_itself() {
            return Ok(space_of(&fstatfs(below.held.dir()?.descriptor()?)?));
        }
        Ok(space_of(&fstatfs(below.open(OFlags::PATH, 0)?)?))
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.real_path(path)
    }

    fn through(&self, path: &Path, dir: Arc<dyn File>, is_meant: Option<IsMeant>) -> Option<Arc<dyn Files>> {
        Some(Arc::new(self.with(path, dir, is_meant)?))
    }

    fn hold_instead(&self, path: &Path, dir: Arc<dyn File>) {
        for held in self.held.iter().filter(|held| held.path == path) {
            held.hold(Arc::clone(&dir));
        }
    }
}
