//! The real file system with directories that are reached through their descriptors.
//!
//! A path that begins with that of such a directory is resolved part by part: the folders between it and the last part are opened
//! without following links, and the operation uses the last part relative to its folder. So changes of the names above do not
//! matter any more.

use super::real::{open_file, timestamps, RealFiles};
use super::{File, Files, How, Status};
use rustix::fs::{
    linkat, mkdirat, openat, openat2, renameat, unlinkat, utimensat, AtFlags, Mode, OFlags, ResolveFlags, CWD,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The real file system with directories that are held open.
#[derive(Clone, Default)]
pub(super) struct HeldDirs {
    held: Vec<Arc<Held>>,
}

/// A directory that is held open. All layers that hold it have the same one.
struct Held {
    path: PathBuf,
    dir: RwLock<Arc<dyn File>>,
}

impl Held {
    fn dir(&self) -> Arc<dyn File> {
        Arc::clone(&self.dir.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A name in an open directory.
struct Spot<'a> {
    parent: Parent,
    name: &'a OsStr,
}

enum Parent {
    Held(Arc<dyn File>),
    Opened(OwnedFd),
}

impl Parent {
    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Parent::Held(dir) => dir.descriptor().ok_or_else(|| io::ErrorKind::Unsupported.into()),
            Parent::Opened(fd) => Ok(fd.as_fd()),
        }
    }
}

impl Spot<'_> {
    /// A path that leads there even if the directories have been renamed.
    fn path(&self) -> io::Result<PathBuf> {
        let number = self.parent.descriptor()?.as_raw_fd();
        Ok(Path::new("/proc/self/fd").join(number.to_string()).join(self.name))
    }
}

impl HeldDirs {
    /// With one directory more.
    pub(super) fn with(&self, path: &Path, dir: Arc<dyn File>) -> Option<Self> {
        dir.descriptor()?;
        let mut held = self.held.clone();
        held.retain(|known| known.path != path);
        held.push(Arc::new(Held { path: path.to_owned(), dir: RwLock::new(dir) }));
        Some(Self { held })
    }

    /// The innermost of them that a path lies in, and the rest of the path.
    fn holder<'a>(&self, path: &'a Path) -> Option<(Arc<dyn File>, &'a Path)> {
        let inside = self.held.iter().filter_map(|held| Some((held, path.strip_prefix(&held.path).ok()?)));
        let (held, rest) = inside.min_by_key(|(_, rest)| rest.as_os_str().len())?;
        Some((held.dir(), rest))
    }

    /// Does `work` with the path to use instead, and with whether a link there may be followed.
    fn reach<R>(&self, path: &Path, work: impl FnOnce(&Path, bool) -> io::Result<R>) -> io::Result<R> {
        let Some((held, rest)) = self.holder(path) else { return work(path, true) };
        let spot = descend(held, rest)?;
        work(&spot.path()?, false)
    }

    /// Where a name is changed; `None` where the path is not below a held directory. The name of a held directory itself stands
    /// in another one.
    fn spot<'a>(&self, path: &'a Path) -> io::Result<Option<Spot<'a>>> {
        let below = self.holder(path).filter(|(_, rest)| !rest.as_os_str().is_empty());
        below.map(|(held, rest)| descend(held, rest)).transpose()
    }
}

/// The folder and the name for a call of the system; without a held directory, the path is the name.
fn place<'a>(spot: Option<&'a Spot<'_>>, path: &'a Path) -> io::Result<(BorrowedFd<'a>, &'a OsStr)> {
    spot.map_or(Ok((CWD, path.as_os_str())), |spot| Ok((spot.parent.descriptor()?, spot.name)))
}

fn descend(held: Arc<dyn File>, rest: &Path) -> io::Result<Spot<'_>> {
    let mut parts = rest.components().map(plain).collect::<io::Result<Vec<_>>>()?;
    let name = parts.pop().unwrap_or(OsStr::new("."));
    Ok(Spot { parent: open_folders(held, rest.parent().unwrap_or(rest), &parts)?, name })
}

/// Opens the last folder of a path with these parts. One call does it, unless the kernel lacks it, or a part is missing or a link.
fn open_folders(held: Arc<dyn File>, path: &Path, parts: &[&OsStr]) -> io::Result<Parent> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parent = Parent::Held(held);
    if parts.len() > 1 {
        let dir = parent.descriptor()?;
        if let Ok(last) = openat2(dir, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            return Ok(Parent::Opened(last));
        }
    }
    for part in parts {
        parent = Parent::Opened(openat(parent.descriptor()?, *part, flags, Mode::empty())?);
    }
    Ok(parent)
}

/// A part that goes up would leave the directory.
fn plain(part: Component<'_>) -> io::Result<&OsStr> {
    match part {
        Component::Normal(name) => Ok(name),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl Files for HeldDirs {
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        self.reach(path, |path, follow| open_file(path, how, follow))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        self.reach(path, |path, _| RealFiles.status(path))
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        let Some(Spot { parent, name }) = self.spot(path)? else { return RealFiles.make_dir(path, mode) };
        Ok(mkdirat(parent.descriptor()?, name, Mode::from_raw_mode(mode))?)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.reach(path, |path, follow| {
            let dir = if follow { None } else { Some(open_file(path, How::Folder, false)?) };
            let held = dir.as_ref().and_then(|dir| dir.descriptor());
            let number = held.map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
            RealFiles.list(number.as_deref().map_or(path, Path::new))
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Some(Spot { parent, name }) = self.spot(path)? else { return RealFiles.remove_file(path) };
        Ok(unlinkat(parent.descriptor()?, name, AtFlags::empty())?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let Some(Spot { parent, name }) = self.spot(path)? else { return RealFiles.remove_dir(path) };
        Ok(unlinkat(parent.descriptor()?, name, AtFlags::REMOVEDIR)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let spots = (self.spot(from)?, self.spot(to)?);
        if let (None, None) = spots {
            return RealFiles.rename(from, to);
        }
        let ((old, from), (new, to)) = (place(spots.0.as_ref(), from)?, place(spots.1.as_ref(), to)?);
        Ok(renameat(old, from, new, to)?)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let spots = (self.spot(from)?, self.spot(to)?);
        if let (None, None) = spots {
            return RealFiles.link(from, to);
        }
        let ((old, from), (new, to)) = (place(spots.0.as_ref(), from)?, place(spots.1.as_ref(), to)?);
        Ok(linkat(old, from, new, to, AtFlags::empty())?)
    }

    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        let spot = self.spot(path)?;
        let (dir, name) = place(spot.as_ref(), path)?;
        Ok(utimensat(dir, name, &timestamps(accessed, changed), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.reach(path, |path, _| RealFiles.sync_dir(path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.reach(path, |path, _| RealFiles.free_bytes(path))
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.real_path(path)
    }

    fn through(&self, path: &Path, dir: Arc<dyn File>) -> Option<Arc<dyn Files>> {
        Some(Arc::new(self.with(path, dir)?))
    }

    fn hold_instead(&self, path: &Path, dir: Arc<dyn File>) {
        for held in self.held.iter().filter(|held| held.path == path) {
            *held.dir.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&dir);
        }
    }

    fn machine(&self) -> Vec<u8> {
        RealFiles.machine()
    }

    fn pause(&self, time: Duration) {
        RealFiles.pause(time);
    }
}
