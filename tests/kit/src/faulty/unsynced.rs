//! Which contents of a folder are on stable storage, and what a crash of its file system does to the rest.
//!
//! The bytes of a file are stored when it is synced, the names in a folder when the folder is. A crash keeps the first few
//! changes of a folder since then, or all, or none, whatever it keeps of other folders. If a file was changed since it was
//! synced, it keeps the old bytes, the new ones, or some pages of each.

use scr_base::fs::{File, Files, How, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A random number below the one given.
pub type Random<'a> = dyn FnMut(u64) -> u64 + 'a;

type Inode = (u64, u64);

/// The object that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    File(Inode),
    Folder,
}

/// A file as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stored {
    bytes: Vec<u8>,
    mode: u32,
    mtime: (i64, u32),
}

/// One change of a folder, which is there as a whole or not at all.
type Change = Vec<(PathBuf, Option<Bound>)>;

/// The folder, as stable storage has it.
pub(super) struct Unsynced {
    root: PathBuf,
    pub files: Arc<dyn Files>,
    /// The names in each folder that are stored.
    names: HashMap<PathBuf, BTreeMap<PathBuf, Bound>>,
    /// The changes of each folder that are not.
    changes: HashMap<PathBuf, Vec<Change>>,
    stored: HashMap<Inode, Stored>,
    /// Which files are synced by somebody whose operations are not seen here.
    is_synced_elsewhere: fn(&Path) -> bool,
    synced_elsewhere: HashSet<Inode>,
}

impl Unsynced {
    /// From here on; all that is there is stored.
    pub(super) fn begin(
        files: Arc<dyn Files>,
        root: PathBuf,
        is_synced_elsewhere: fn(&Path) -> bool,
    ) -> Self {
        let mut new = Self {
            root: root.clone(),
            files,
            names: HashMap::new(),
            changes: HashMap::new(),
            stored: HashMap::new(),
            is_synced_elsewhere,
            synced_elsewhere: HashSet::new(),
        };
        let mut todo = vec![root];
        while let Some(folder) = todo.pop() {
            let names = new.listed(&folder);
            for (name, bound) in &names {
                let path = folder.join(name);
                match *bound {
                    Bound::Folder => todo.push(path),
                    Bound::File(inode) => _ = new.read(&path).map(|file| new.stored.insert(inode, file)),
                }
            }
            new.names.insert(folder, names);
        }
        new
    }

    /// Names have been changed together.
    pub(super) fn changed(&mut self, paths: &[&Path]) {
        let Some(folder) = paths.first().and_then(|path| path.parent()) else { return };
        if !folder.starts_with(&self.root) {
            return;
        }
        let in_folder = paths.iter().filter(|path| path.parent() == Some(folder));
        let change: Change = in_folder
            .filter_map(|path| {
                let bound = self.bound(path);
                if let (Some(Bound::File(inode)), true) = (bound, (self.is_synced_elsewhere)(path)) {
                    self.synced_elsewhere.insert(inode);
                }
                Some((PathBuf::from(path.file_name()?), bound))
            })
            .collect();
        self.changes.entry(folder.to_owned()).or_default().push(change);
    }

    /// A file has been synced.
    pub(super) fn synced(&mut self, path: &Path, file: &dyn File) {
        if !path.starts_with(&self.root) {
            return;
        }
        let Ok(status) = file.status() else { return };
        let mut bytes = vec![0; usize::try_from(status.len).unwrap_or_default()];
        if file.read_at(0, &mut bytes).is_ok() {
            self.stored
                .insert(status.identity, Stored { bytes, mode: status.mode & 0o7777, mtime: status.mtime });
        }
    }

    /// The names in a folder have been synced.
    pub(super) fn folder_synced(&mut self, folder: &Path) {
        if folder.starts_with(&self.root) {
            let names = self.listed(folder);
            self.names.insert(folder.to_owned(), names);
            self.changes.remove(folder);
        }
    }

    /// Makes the folder what a crash leaves of it.
    pub(super) fn crash(self, random: &mut Random<'_>) -> io::Result<()> {
        let (there, bytes_there) = self.look();
        let mut after: BTreeMap<PathBuf, Option<Stored>> = BTreeMap::new();
        let mut todo = vec![self.root.clone()];
        while let Some(folder) = todo.pop() {
            for (name, bound) in self.names_after(&folder, random) {
                let path = folder.join(name);
                match bound {
                    Bound::Folder => todo.push(path.clone()),
                    Bound::File(inode) => {
                        after.insert(path, Some(self.content_after(inode, bytes_there.get(&inode), random)));
                        continue;
                    }
                }
                after.insert(path, None);
            }
        }
        for (path, bound) in there.iter().rev() {
            let stays = after.get(path).is_some_and(|kept| kept.is_none() == (*bound == Bound::Folder));
            match bound {
                _ if stays => (),
                Bound::Folder => self.files.remove_dir(path)?,
                Bound::File(_) => self.files.remove_file(path)?,
            }
        }
        for (path, kept) in after {
            match kept {
                None if there.get(&path) == Some(&Bound::Folder) => (),
                None => self.files.make_dir(&path, 0o755)?,
                Some(kept) => self.write(&path, &kept)?,
            }
        }
        Ok(())
    }

    fn write(&self, path: &Path, kept: &Stored) -> io::Result<()> {
        if self.read(path).is_some_and(|found| found.bytes == kept.bytes) {
            return Ok(());
        }
        let file = self.files.open(path, How::Replace(0o600))?;
        file.write_at(0, &kept.bytes)?;
        file.set_mode(kept.mode)?;
        file.set_times(kept.mtime, kept.mtime)
    }

    /// The present state: all paths, and the bytes of all files.
    fn look(&self) -> (BTreeMap<PathBuf, Bound>, HashMap<Inode, Stored>) {
        let (mut there, mut bytes) = (BTreeMap::new(), HashMap::new());
        let mut todo = vec![self.root.clone()];
        while let Some(folder) = todo.pop() {
            for (name, bound) in self.listed(&folder) {
                let path = folder.join(name);
                match bound {
                    Bound::Folder => todo.push(path.clone()),
                    Bound::File(inode) => _ = self.read(&path).map(|file| bytes.insert(inode, file)),
                }
                there.insert(path, bound);
            }
        }
        (there, bytes)
    }

    fn names_after(&self, folder: &Path, random: &mut Random<'_>) -> BTreeMap<PathBuf, Bound> {
        let mut names = self.names.get(folder).cloned().unwrap_or_default();
        let none = Vec::new();
        let changes = self.changes.get(folder).unwrap_or(&none);
        let seen: HashSet<&PathBuf> =
            changes.iter().flatten().map(|(name, _)| name).chain(names.keys()).collect();
        let unseen: Vec<_> = self
            .listed(folder)
            .into_iter()
            .filter(|(name, _)| !seen.contains(name) && random(2) == 0)
            .collect();
        let all = changes.len() as u64;
        let kept = match random(4) {
            0 => 0,
            1 => random(all + 1),
            _ => all,
        };
        for (name, bound) in changes.iter().take(kept as usize).flatten() {
            match bound {
                Some(bound) => _ = names.insert(name.clone(), *bound),
                None => _ = names.remove(name),
            }
        }
        names.extend(unseen);
        names
    }

    fn content_after(&self, inode: Inode, there: Option<&Stored>, random: &mut Random<'_>) -> Stored {
        let stored = self.stored.get(&inode);
        let Some(there) = there else { return stored.cloned().unwrap_or_default() };
        let is_stored =
            self.synced_elsewhere.contains(&inode) || stored.is_some_and(|old| old.bytes == there.bytes);
        let old = stored.map_or(&[][..], |old| &old.bytes);
        match random(3) {
            _ if is_stored => there.clone(),
            0 => stored.cloned().unwrap_or(Stored { bytes: Vec::new(), ..there.clone() }),
            1 => there.clone(),
            _ => {
                let mut bytes = there.bytes.clone();
                for (number, page) in bytes.chunks_mut(PAGE).enumerate().filter(|_| random(2) == 0) {
                    let before = old.get(number * PAGE..).unwrap_or_default();
                    page.iter_mut()
                        .enumerate()
                        .for_each(|(at, byte)| *byte = before.get(at).copied().unwrap_or(0));
                }
                Stored { bytes, ..there.clone() }
            }
        }
    }

    fn listed(&self, folder: &Path) -> BTreeMap<PathBuf, Bound> {
        let names = self.files.list(folder).unwrap_or_default().into_iter();
        names.filter_map(|name| Some((name.clone(), self.bound(&folder.join(name))?))).collect()
    }

    fn bound(&self, path: &Path) -> Option<Bound> {
        let status = self.files.status(path).ok()?;
        match status.kind {
            Kind::Dir => Some(Bound::Folder),
            Kind::File => Some(Bound::File(status.identity)),
            Kind::Link | Kind::Other => None,
        }
    }

    fn read(&self, path: &Path) -> Option<Stored> {
        let file = self.files.open(path, How::Read).ok()?;
        let status = file.status().ok()?;
        let mut bytes = vec![0; usize::try_from(status.len).ok()?];
        file.read_at(0, &mut bytes).ok()?;
        Some(Stored { bytes, mode: status.mode & 0o7777, mtime: status.mtime })
    }
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::FaultyFiles;
    use super::*;
    use scr_base::fs::RealFiles;
    use std::fs;

    /// The remains after each of many crashes of a folder in which `work` was done, after an `old` file of three pages was
    /// stored.
    fn after_crashes(work: impl Fn(&dyn Files, &Path)) -> HashSet<String> {
        let outcome = |seed: u64| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("old"), [b'o'; 3 * PAGE]).unwrap();
            let files = FaultyFiles::new(RealFiles);
            files.remember_synced(dir.path(), |_| false);
            work(&files, dir.path());
            files.lose_unsynced(seed).unwrap();
            let mut names = (&RealFiles as &dyn Files).list(dir.path()).unwrap();
            names.sort();
            let contents = names.iter().map(|name| {
                let mut bytes = fs::read(dir.path().join(name)).unwrap();
                bytes.dedup();
                let bytes = String::from_utf8_lossy(&bytes).replace('\0', "-");
                format!("{}={bytes}", name.display())
            });
            contents.collect::<Vec<_>>().join(" ")
        };
        (0..200).map(outcome).collect()
    }

    fn set(all: &[&str]) -> HashSet<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn a_crash_loses_what_was_not_synced_and_nothing_else() {
        let write = |files: &dyn Files, path: &Path| {
            let file = files.open(path, How::Create(0o600)).unwrap();
            file.write_at(0, b"n").unwrap();
            file
        };
        let unsynced = after_crashes(|files, dir| _ = write(files, &dir.join("new")));
        assert_eq!(unsynced, set(&["old=o", "new= old=o", "new=- old=o", "new=n old=o"]));
        let synced = after_crashes(|files, dir| write(files, &dir.join("new")).sync().unwrap());
        assert_eq!(synced, set(&["old=o", "new=n old=o"]));
        let both = after_crashes(|files, dir| {
            write(files, &dir.join("new")).sync().unwrap();
            files.sync_dir(dir).unwrap();
        });
        assert_eq!(both, set(&["new=n old=o"]));
        let replaced = after_crashes(|files, dir| {
            write(files, &dir.join("new")).sync().unwrap();
            files.rename(&dir.join("new"), &dir.join("old")).unwrap();
        });
        assert_eq!(replaced, set(&["old=o", "new=n old=o", "old=n"]));
        let torn = after_crashes(|files, dir| {
            files.open(&dir.join("old"), How::Update).unwrap().write_at(0, &[b'n'; 3 * PAGE]).unwrap();
        });
        assert_eq!(torn, set(&["old=o", "old=n", "old=on", "old=no", "old=ono", "old=non"]));
    }
}
