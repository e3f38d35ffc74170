//! The real file system with directories that are reached through their descriptors.
//!
//! A path that begins with that of such a directory is resolved part by part: the folders between it and the last part are opened
//! without following links, and the operation uses the last part relative to its folder. So changes of the names above do not
//! matter any more, unless whoever holds the directory [wants to know](IsMeant) of them.
//!
//! Where none is held, a [hidden folder](HIDDEN) and what is below it are reached through no link either: others may have put one
//! there, and who follows it changes what is not ours.
#![expect(
    clippy::disallowed_types,
    reason = "what is opened here becomes a `Handle` or a `RealFile`, or is closed at once"
)]

use super::limit::open_with_room;
use super::{File, IsMeant};
use rustix::fs::{fstatfs, openat, openat2, statfs, Mode, OFlags, ResolveFlags, StatFs, CWD};
use scr_plugin_api::{held, uninterrupted, Handle};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The real file system, with directories that are held open or without.
pub(super) trait Holding: Send + Sync {
    /// These directories.
    fn held(&self) -> &[Arc<HeldDir>];

    /// The place of a path: below the innermost of them that it lies in.
    fn place<'a>(&'a self, path: &'a Path) -> io::Result<Place<'a>> {
        let inside = self.held().iter().filter_map(|held| Some((held, held.rest_of(path)?)));
        let Some((held, rest)) = inside.min_by_key(|(_, rest)| rest.as_os_str().len()) else {
            return Ok(Place { held: None, path });
        };
        // A part that goes up would leave the directory.
        if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let path = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
        Ok(Place { held: Some(held), path })
    }

    /// The place where a name is changed. The name of a held directory itself stands in another one.
    fn name<'a>(&'a self, path: &'a Path) -> io::Result<Place<'a>> {
        let place = self.place(path)?;
        Ok(if place.is_held_itself() { Place { held: None, path } } else { place })
    }
}

/// The real file system with directories that are held open.
pub(super) struct HeldDirs(Vec<Arc<HeldDir>>);

/// A directory that is held open. All layers that hold it have the same one.
pub(super) struct HeldDir {
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

/// The folders in which everything is ours are called that.
const HIDDEN: &[u8] = b"/.scr";

/// This many folders stay open: those of the newest dataset and of the one before.
const MOST_FOLDERS: usize = 8;

/// A path below a directory that is held open, or `.` for that itself; or any other path.
pub(super) struct Place<'a> {
    held: Option<&'a HeldDir>,
    path: &'a Path,
}

impl Opened {
    fn new(dir: Arc<dyn File>, is_meant: Option<&IsMeant>) -> Self {
        let identity = is_meant.and_then(|_| dir.status().ok()).map(|status| status.identity);
        Self { dir, identity }
    }
}

impl HeldDir {
    /// The rest of a path that begins with that of the directory. Most begin with the very bytes of it, and have no dot there.
    fn rest_of<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        match path.as_os_str().as_bytes().strip_prefix(self.path.as_os_str().as_bytes()) {
            Some([]) => Some(Path::new("")),
            Some([b'/', rest @ ..]) if !matches!(rest, [b'/', ..] | [b'.'] | [b'.', b'/', ..]) => {
                Some(Path::new(OsStr::from_bytes(rest)))
            }
            _ => path.strip_prefix(&self.path).ok(),
        }
    }

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
        held(&self.folders).clear();
    }

    /// A folder that has stayed open.
    fn known(&self, path: &Path) -> Option<Arc<Handle<OwnedFd>>> {
        let mut folders = held(&self.folders);
        let at = folders.iter().position(|(known, _)| known.as_os_str() == path.as_os_str())?;
        folders[at..].rotate_left(1);
        folders.last().map(|(_, folder)| Arc::clone(folder))
    }

    fn open_folder(&self, dir: &dyn File, path: &Path) -> io::Result<Arc<Handle<OwnedFd>>> {
        let opened = open_with_room(|| open_below(dir.descriptor()?, path))?;
        let opened = Arc::new(Handle::new(opened)?);
        let mut folders = held(&self.folders);
        folders.retain(|(known, _)| known.as_os_str() != path.as_os_str());
        if folders.len() == MOST_FOLDERS {
            folders.remove(0);
        }
        folders.push((path.to_owned(), Arc::clone(&opened)));
        Ok(opened)
    }

    fn forget(&self, path: &Path) {
        held(&self.folders).retain(|(known, _)| !known.starts_with(path));
    }

    /// Holds `dir` instead, if it is the directory of this path.
    pub(super) fn hold_instead(&self, path: &Path, dir: &Arc<dyn File>) {
        if self.path == path {
            self.hold(Arc::clone(dir));
        }
    }
}

impl Place<'_> {
    /// Whether it lies in a directory that is held open, or is that.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn is_held_itself(&self) -> bool {
        self.held.is_some() && self.path.as_os_str() == "."
    }

    /// Does `work` with the folder of the path and the name in it; without a held directory, the path is the name. A folder in
    /// cache is never renamed, but others may remove it and make it again. Nothing is found in a removed one, and then it is
    /// opened anew.
    pub(super) fn at<R>(&self, work: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<R>) -> io::Result<R> {
        match self.held {
            Some(held) => self.within(held, &*held.dir()?, work),
            None => match self.hidden() {
                Some((above, below)) => below_hidden(above, below, work),
                None => work(CWD, self.path.as_os_str()),
            },
        }
    }

    /// The folder above the last hidden one of a path that lies in no held directory, and the rest of the path.
    fn hidden(&self) -> Option<(&Path, &Path)> {
        let path = self.path.as_os_str().as_bytes();
        let begins_at = |at: &usize| match path[*at..].strip_prefix(HIDDEN) {
            Some(rest) => rest.first().is_none_or(|&next| next == b'/'),
            None => false,
        };
        let is_looked_for = self.held.is_none() && path.starts_with(b"/");
        let at = (0..path.len()).rev().filter(|_| is_looked_for).find(begins_at)?;
        let part = |bytes| Path::new(OsStr::from_bytes(bytes));
        Some((part(&path[..at.max(1)]), part(&path[at + 1..])))
    }

    /// The same in the open directory, which has been looked at.
    fn within<R>(
        &self,
        held: &HeldDir,
        dir: &dyn File,
        work: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<R>,
    ) -> io::Result<R> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder else { return work(dir.descriptor()?, self.path.as_os_str()) };
        let name = self.path.file_name().unwrap_or(OsStr::new("."));
        if let Some(known) = held.known(folder) {
            match work(known.get()?.as_fd(), name) {
                Err(error) if was_removed(&error) => held.forget(folder),
                other => return other,
            }
        }
        work(held.open_folder(dir, folder)?.get()?.as_fd(), name)
    }

    /// Does `work` with the folders and names of two paths.
    pub(super) fn with(
        &self,
        other: &Self,
        work: impl Fn(BorrowedFd<'_>, &OsStr, BorrowedFd<'_>, &OsStr) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        match (self.held, other.held) {
            (Some(held), Some(same)) if ptr::eq(held, same) => {
                let dir = held.dir()?;
                self.within(held, &*dir, |old, from| {
                    other.within(held, &*dir, |new, to| Ok(work(old, from, new, to)?))
                })
            }
            _ => self.at(|old, from| other.at(|new, to| Ok(work(old, from, new, to)?))),
        }
    }

    /// Opens it; through a link only where no directory is held and none is hidden, unless the flags say otherwise.
    pub(super) fn open(&self, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let below =
            if self.held.is_some() || self.hidden().is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        let (flags, mode) = (flags | below | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
        self.at(|folder, name| open_with_room(|| uninterrupted(|| Ok(openat(folder, name, flags, mode)?))))
    }

    /// The file system that it lies in.
    pub(super) fn file_system(&self) -> io::Result<StatFs> {
        match self.held {
            Some(held) if self.is_held_itself() => Ok(fstatfs(held.dir()?.descriptor()?)?),
            Some(_) => Ok(fstatfs(self.open(OFlags::PATH, 0)?)?),
            None => Ok(statfs(self.path)?),
        }
    }

    /// It was a folder, and was removed.
    pub(super) fn forget(&self) {
        self.held.into_iter().for_each(|held| held.forget(self.path));
    }
}

impl HeldDirs {
    /// One directory more than are held.
    pub(super) fn new(
        held: &[Arc<HeldDir>],
        path: &Path,
        dir: Arc<dyn File>,
        is_meant: Option<IsMeant>,
    ) -> Option<Self> {
        dir.descriptor().ok()?;
        let dir = RwLock::new(Opened::new(dir, is_meant.as_ref()));
        let new = HeldDir { path: path.to_owned(), dir, is_meant, folders: Mutex::default() };
        let others = held.iter().filter(|known| known.path != path).cloned();
        Some(Self(others.chain([Arc::new(new)]).collect()))
    }
}

impl Holding for HeldDirs {
    fn held(&self) -> &[Arc<HeldDir>] {
        &self.0
    }
}

fn was_removed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle)
}

/// Does `work` with the folder and the name of the path `below` a folder, without following a link from that folder on.
fn below_hidden<R>(
    above: &Path,
    below: &Path,
    work: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<R>,
) -> io::Result<R> {
    let name = below.file_name().unwrap_or(below.as_os_str());
    let Some(folder) = below.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        // No operation follows a link in the last part.
        return work(CWD, above.join(name).as_os_str());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = open_with_room(|| Ok(openat(CWD, above, flags, Mode::empty())?))?;
    let folder = open_with_room(|| open_below(above.as_fd(), folder))?;
    work(folder.as_fd(), name)
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
