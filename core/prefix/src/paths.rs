//! The places of all files below the prefix directory.

use super::nodes::NodesFile;
use super::shared::{Known, Shared};
use super::{FileName, FlushFile, Index, PrefixError};
use scr_base::fs::{At, Durability, Files, Kind};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Permission bits of folders below the prefix directory; the user's umask takes some away.
pub const DIR_MODE: u32 = 0o777;
/// Permission bits of files below the prefix directory; the user's umask takes some away.
pub const FILE_MODE: u32 = 0o666;

const DATASET_FOLDER: &str = "scr.dataset.";

/// A prefix directory: where a simulation keeps its files on the parallel file system.
#[derive(Debug, Clone)]
pub struct Prefix {
    dir: PathBuf,
    /// The knowledge of this process about files that others change as well.
    pub(super) known: Known,
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        self.dir == other.dir
    }
}

impl Eq for Prefix {}

impl Prefix {
    /// The prefix directory at this absolute path.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), known: Known::default() }
    }

    /// The prefix directory that this absolute path leads to. With links followed, a dataset in cache is known to belong
    /// to it by whatever name it is called, and a link that leads elsewhere meanwhile does not lead to that dataset.
    pub fn at(files: &dyn Files, dir: &Path) -> Self {
        Self::new(real(files, dir))
    }

    /// The prefix directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Follows the links of an absolute path as far as it is there. `None` if it leads outside the prefix directory and no folder
    /// on the way is below it, by whatever path the directory is reached here.
    ///
    /// # Errors
    /// [`PrefixError::Unusable`] for a link that leads to nothing.
    pub fn follow(&self, files: &dyn Files, path: &Path) -> Result<Option<Followed>, PrefixError> {
        let mut whole = None;
        for above in path.ancestors() {
            let Ok(real) = files.real_path(above) else {
                if files.status(above).is_ok_and(|status| status.kind == Kind::Link) {
                    let fault =
                        "is a symbolic link that leads to nothing; make the folder that it names, or \
                                 remove the link";
                    return Err(PrefixError::unusable(above, fault));
                }
                continue;
            };
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            let below = self.below(files, &real).map(|below| join(below, rest));
            let real = whole.get_or_insert_with(|| join(real, rest));
            if let Some(below) = below {
                let real = real.clone();
                return Ok(Some(Followed { below, real }));
            }
        }
        Ok(None)
    }

    /// Whether a path that has no links is below this directory.
    pub fn is_below(&self, files: &dyn Files, path: &Path) -> bool {
        path.ancestors().any(|above| self.below(files, above).is_some())
    }

    /// The name of a path that has no links, if it is this directory or below it.
    fn below(&self, files: &dyn Files, path: &Path) -> Option<PathBuf> {
        let below = |dir: &Path| path.strip_prefix(dir).ok().map(Path::to_owned);
        below(&self.dir).or_else(|| {
            // The prefix directory has its links followed already, unless the ranks then find different ones.
            let dir = files.real_path(&self.dir).ok()?;
            below(&dir).or_else(|| {
                // A mount or an automounter gives one folder several paths, and no link says so.
                let identity = |path: &Path| files.status(path).ok().map(|status| status.identity);
                (identity(path)? == identity(&dir)?).then(PathBuf::new)
            })
        })
    }

    /// The name below the prefix directory of an absolute path, with links followed that do not lead outside.
    pub fn name_of(&self, files: &dyn Files, path: &Path) -> Option<PathBuf> {
        Some(self.follow(files, path).ok()??.below)
    }

    /// Leaves a message for the user, where nobody can be told at once.
    pub fn note(&self, note: String) {
        self.known.note(note);
    }

    /// The messages for the user that have come up since this was asked last.
    pub fn take_notes(&self) -> Vec<String> {
        self.known.take_notes()
    }

    /// The hidden folder for everything that is ours.
    pub fn scr_dir(&self) -> PathBuf {
        self.dir.join(".scr")
    }

    /// A file in the hidden folder.
    pub fn scr_file(&self, name: &str) -> PathBuf {
        self.scr_dir().join(name)
    }

    /// The list of datasets.
    pub fn index_file(&self) -> PathBuf {
        Index::path(self)
    }

    /// When the job should stop.
    pub fn halt_file(&self) -> PathBuf {
        self.scr_file("halt.scr")
    }

    /// The file with the places of this allocation's datasets.
    pub fn flush_file(&self) -> PathBuf {
        FlushFile::path(self)
    }

    /// Nodes of the last run.
    pub fn nodes_file(&self) -> PathBuf {
        NodesFile::path(self)
    }

    /// The text log in C SCR's form.
    pub fn log_file(&self) -> PathBuf {
        self.scr_file("log")
    }

    /// The event log, and the file with what was logged before.
    pub fn event_files(&self) -> [PathBuf; 2] {
        ["events", "events.1"].map(|name| self.scr_file(name))
    }

    /// The folder with all that is known of one dataset.
    pub fn dataset_dir(&self, id: u64) -> PathBuf {
        self.scr_dir().join(format!("{DATASET_FOLDER}{id}"))
    }

    /// The summary of one dataset.
    pub fn summary_file(&self, id: u64) -> PathBuf {
        self.dataset_dir(id).join("summary.scr")
    }

    /// The mark that exists while a dataset is imported, so that an interrupted import never counts. That of a listed dataset has
    /// no meaning.
    pub fn import_mark(&self, id: u64) -> PathBuf {
        self.dataset_dir(id).join("import.unfinished")
    }

    /// The top of the lists of one dataset's files.
    pub fn rank2file(&self, id: u64) -> PathBuf {
        self.dataset_dir(id).join("rank2file")
    }

    /// A file of the application.
    pub fn file(&self, name: &FileName) -> PathBuf {
        name.below(&self.dir)
    }

    /// Refuses files of which a folder is a symbolic link: what is there may have been moved away to be kept.
    ///
    /// # Errors
    /// [`PrefixError::Unusable`], or what the system reports. A folder that is not there is none.
    pub fn refuse_links<'n>(
        &self,
        files: &dyn Files,
        names: impl Iterator<Item = &'n FileName>,
    ) -> Result<(), PrefixError> {
        each_folder(names, |folder| match self.link_at(files, folder.below(&self.dir))? {
            Some((path, _)) => {
                let fault = "is a symbolic link, and scr removes nothing through one: its files may have been moved there to \
                             be kept; remove them yourself";
                Err(PrefixError::unusable(path, fault))
            }
            None => Ok(()),
        })
    }

    /// Expects that a folder below the prefix directory is none that is a symbolic link, or one of this user or root that leads
    /// outside. Within the prefix directory it would give a file a second name, so that one file would belong to two datasets.
    ///
    /// # Errors
    /// [`PrefixError::Unusable`], or what the system reports. A folder that is not there is no link.
    pub fn expect_unlinked(&self, files: &dyn Files, uid: u32, folder: &FileName) -> Result<(), PrefixError> {
        let path = self.file(folder);
        if self.is_own_link(files, uid, &path)? {
            let followed = self.follow(files, &path)?;
            if followed.is_none_or(|found| found.below.as_os_str().as_bytes() != folder.as_bytes()) {
                let fault = "is a symbolic link that leads to a folder with another name under the prefix directory, and one \
                             file could belong to two datasets; use the names that the files have without the link";
                return Err(PrefixError::unusable(path, fault));
            }
        }
        Ok(())
    }

    /// As [`expect_unlinked`](Self::expect_unlinked), for all folders of files.
    ///
    /// # Errors
    /// As there.
    pub fn expect_all_unlinked<'n>(
        &self,
        files: &dyn Files,
        uid: u32,
        names: impl Iterator<Item = &'n FileName>,
    ) -> Result<(), PrefixError> {
        each_folder(names, |folder| self.expect_unlinked(files, uid, folder))
    }

    /// Whether a path is a symbolic link, which belongs to this user or to root.
    ///
    /// # Errors
    /// [`PrefixError::Unusable`] for a link of somebody else, or what the system reports.
    pub fn is_own_link(&self, files: &dyn Files, uid: u32, path: &Path) -> Result<bool, PrefixError> {
        match self.link_at(files, path.to_owned())? {
            Some((path, owner)) if owner != uid && owner != 0 => {
                let fault = format!(
                    "is a symbolic link of user {owner}, and scr follows only links of yours and of root; make a link or \
                     a folder of your own in its place"
                );
                Err(PrefixError::unusable(path, fault))
            }
            found => Ok(found.is_some()),
        }
    }

    /// The path again and the owner, if it is a symbolic link.
    fn link_at(&self, files: &dyn Files, path: PathBuf) -> Result<Option<(PathBuf, u32)>, PrefixError> {
        match files.status(&path) {
            Ok(status) if status.kind == Kind::Link => Ok(Some((path, status.uid))),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Err(error).at("look at", &path)?)
            }
            _ => Ok(None),
        }
    }

    /// Whether something of its name exists. Also true if that cannot be determined.
    pub fn is_there(&self, files: &dyn Files) -> bool {
        !matches!(files.status(&self.dir), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
    }

    /// The message if it did not exist: a mistyped name would look like a simulation that has just begun.
    pub fn was_made(&self) -> String {
        format!("the prefix directory {} (SCR_PREFIX) was not there and has been made", self.dir.display())
    }

    /// Makes the prefix directory and the hidden folder, where they are not there: a run begins.
    ///
    /// # Errors
    /// As for [`make_scr_dir`](Self::make_scr_dir).
    pub fn make(&self, files: &dyn Files) -> Result<(), PrefixError> {
        if !self.is_there(files) {
            files.make_dirs(&self.dir, DIR_MODE, Durability::Synced)?;
        }
        self.make_scr_dir(files)
    }

    /// Expects that the hidden folder is none that a symbolic link leads to.
    ///
    /// # Errors
    /// [`PrefixError::Unusable`].
    pub fn expect_no_hidden_link(&self, files: &dyn Files) -> Result<(), PrefixError> {
        let path = self.scr_dir();
        match files.status(&path) {
            Ok(status) if status.kind == Kind::Link => {
                let fault =
                    "is a symbolic link, and scr keeps its own files in a folder; put a folder in its place";
                Err(PrefixError::unusable(path, fault))
            }
            _ => Ok(()),
        }
    }

    /// Makes the hidden folder, where it is not there. A prefix directory that is gone was renamed or removed while it was used,
    /// and is not made again: what is written there would be taken for the original.
    ///
    /// # Errors
    /// It cannot be made, [`PrefixError::Unusable`], and [`PrefixError::Missing`].
    pub fn make_scr_dir(&self, files: &dyn Files) -> Result<(), PrefixError> {
        self.expect_no_hidden_link(files)?;
        let path = self.scr_dir();
        match files.status(&path) {
            Ok(status) if status.kind == Kind::Dir => Ok(()),
            _ if !self.is_there(files) => Err(PrefixError::Missing { path: self.dir.clone() }),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Err(error).at("look at", &path)?)
            }
            _ => Ok(files.make_dirs(&path, DIR_MODE, Durability::Synced)?),
        }
    }

    /// The error where another directory is at its path, or none.
    pub(super) fn elsewhere(&self) -> PrefixError {
        PrefixError::Elsewhere { dir: self.dir.clone() }
    }

    /// Makes the folder of one dataset, where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_dataset_dir(&self, files: &dyn Files, id: u64) -> Result<(), PrefixError> {
        Ok(files.make_dirs(&self.dataset_dir(id), DIR_MODE, Durability::Synced)?)
    }

    /// The ids for which there is a folder, ascending, whether or not the index knows them.
    ///
    /// # Errors
    /// The hidden folder is there but cannot be listed.
    pub fn dataset_ids(&self, files: &dyn Files) -> Result<Vec<u64>, PrefixError> {
        let names = files.list_if_there(&self.scr_dir())?;
        let mut ids: Vec<_> = names.iter().filter_map(|name| dataset_id(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

/// A path that leads below the prefix directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Its name there. Links are followed, except for those that lead outside.
    pub below: PathBuf,
    /// With all links followed.
    pub real: PathBuf,
}

fn each_folder<'n>(
    names: impl Iterator<Item = &'n FileName>,
    check: impl FnMut(&FileName) -> Result<(), PrefixError>,
) -> Result<(), PrefixError> {
    let folders: BTreeSet<FileName> = names.flat_map(FileName::folders).collect();
    folders.iter().try_for_each(check)
}

/// Without a slash at the end.
fn join(path: PathBuf, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        return path;
    }
    path.join(rest)
}

/// An absolute path with the links in its existing part followed: what it names need not be there yet.
pub fn real(files: &dyn Files, path: &Path) -> PathBuf {
    let real_by = |above: &Path| Some(join(files.real_path(above).ok()?, path.strip_prefix(above).ok()?));
    path.ancestors().find_map(real_by).unwrap_or_else(|| path.to_owned())
}

/// Only the way we write an id counts, or two folders could have one.
fn dataset_id(name: &Path) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(DATASET_FOLDER)?;
    digits.parse().ok().filter(|id: &u64| id.to_string() == digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scratch_copy, JOBS};
    use scr_base::fs::{How, RealFiles};

    #[test]
    fn the_paths_are_those_of_the_user_guide() {
        let prefix = Prefix::new("/pfs/user1/simulation123");
        assert_eq!(prefix.index_file(), Path::new("/pfs/user1/simulation123/.scr/index.scr"));
        assert_eq!(
            prefix.summary_file(18),
            Path::new("/pfs/user1/simulation123/.scr/scr.dataset.18/summary.scr")
        );
        assert_eq!(
            prefix.file(&"ckpt.18/rank_0".parse().unwrap()),
            Path::new("/pfs/user1/simulation123/ckpt.18/rank_0")
        );
    }

    #[test]
    fn the_datasets_of_c_scr_are_found_by_their_folders() {
        for (job, ids) in JOBS {
            let (_dir, prefix) = scratch_copy(job);
            assert_eq!(prefix.dataset_ids(&RealFiles).unwrap(), ids);
        }
    }

    #[test]
    fn only_folders_of_datasets_have_an_id() {
        for (name, id) in [
            ("scr.dataset.0", Some(0)),
            ("scr.dataset.12", Some(12)),
            ("scr.dataset.012", None),
            ("scr.dataset.+1", None),
            ("scr.dataset.-1", None),
            ("scr.dataset.", None),
            ("scr.dataset.99999999999999999999", None),
            ("index.scr", None),
        ] {
            assert_eq!(dataset_id(Path::new(name)), id, "{name}");
        }
    }

    #[test]
    fn an_empty_place_has_no_datasets_until_its_folders_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        assert!(prefix.dataset_ids(&RealFiles).unwrap().is_empty());
        prefix.make_scr_dir(&RealFiles).unwrap();
        prefix.make_dataset_dir(&RealFiles, 7).unwrap();
        assert_eq!(prefix.dataset_ids(&RealFiles).unwrap(), [7]);
    }

    /// Commands of root changed and gave away what another user's link led to.
    #[test]
    fn nothing_in_a_hidden_folder_is_reached_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, root) = (dir.path().join("theirs"), dir.path().join("prefix"));
        std::fs::create_dir_all(theirs.join("scr.dataset.2")).unwrap();
        std::fs::write(theirs.join("index.scr"), "precious").unwrap();
        std::fs::write(theirs.join("scr.dataset.2/index.scr"), "precious").unwrap();
        std::fs::create_dir(&root).unwrap();
        let prefix = Prefix::new(&root);
        let expect_untouched = |path: &Path| {
            let new = path.with_file_name("new");
            assert!(RealFiles.open(path, How::Read).is_err() && RealFiles.status(path).is_err());
            assert!(
                RealFiles.open(&new, How::Create(0o666)).is_err() && RealFiles.make_dir(&new, 0o777).is_err()
            );
            assert!(RealFiles.remove_file(path).is_err() && RealFiles.rename(path, &new).is_err());
            assert!(RealFiles.list(path.parent().unwrap()).is_err());
            for folder in [&theirs, &theirs.join("scr.dataset.2")] {
                assert_eq!(std::fs::read(folder.join("index.scr")).unwrap(), b"precious");
                assert!(!folder.join("new").exists());
            }
        };
        std::os::unix::fs::symlink(&theirs, prefix.scr_dir()).unwrap();
        expect_untouched(&prefix.index_file());
        expect_untouched(&prefix.dataset_dir(2).join("index.scr"));
        std::fs::remove_file(prefix.scr_dir()).unwrap();
        prefix.make_scr_dir(&RealFiles).unwrap();
        std::os::unix::fs::symlink(theirs.join("scr.dataset.2"), prefix.dataset_dir(2)).unwrap();
        expect_untouched(&prefix.dataset_dir(2).join("index.scr"));
    }

    /// A run began, and each of its flushes failed.
    #[test]
    fn a_hidden_folder_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join(".scr")).unwrap();
        for _ in ["to nothing", "to a folder"] {
            let refused = Prefix::new(dir.path()).make_scr_dir(&RealFiles);
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("/.scr is a symbolic link, and scr keeps"), "{why}");
            std::fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    }
}
