//! The place of one rank's part of a dataset in cache, and its removal.
//!
//! ```text
//! <base>/<user>/scr.<allocation>/scr.dataset.<id>/
//!     r<rank>/<file>            the application's files; each rank its own folder, as only base names are kept
//!     .scr/filemap_<rank>       the journal
//!     .scr/redundancy_<rank>    what the scheme keeps
//!     .scr/container_<rank>     the files of a node packed into one, during a flush
//! <base>/<user>/scr.<allocation>/.spare_<rank>
//! <base>/<user>/scr.<allocation>/.claim_<id>.<begun>.<digest of the prefix directory and a file's name>
//! ```
//!
//! Where several nodes see the same base, each has a folder of its own for all that: see [`node_dir`](super::node_dir).
//!
//! The spare is the redundancy file of an evicted dataset, which the next one overwrites: writing memory that a file already has
//! costs less than allocating new memory. Nothing ever reads it. A claim exists while a dataset is written: see
//! [`shared_files`](super::shared_files).

use super::filemap::Journal;
use super::kept_open::KeptOpen;
use super::record::{FileRecord, RankRecord};
use super::shared_files::is_left_claim;
use scr_base::fs::{At, File, Files, FsError, How, Kind};
use scr_comm::Rank;
use scr_prefix::FileName;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One rank's part of one dataset in one cache directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartDir {
    dataset: PathBuf,
    rank: Rank,
}

impl PartDir {
    /// The part of `rank` of dataset `id` in the cache directory `cache`.
    pub fn new(cache: &Path, id: u64, rank: Rank) -> Self {
        Self { dataset: cache.join(dataset_name(id)), rank }
    }

    /// The part of `rank` in the folder of a dataset.
    pub(crate) fn below(dataset: PathBuf, rank: Rank) -> Self {
        Self { dataset, rank }
    }

    /// The part of another rank beside this one.
    pub(crate) fn of_rank(&self, rank: Rank) -> Self {
        Self { dataset: self.dataset.clone(), rank }
    }

    /// Whether this is where the part lies that `record` is of.
    pub(crate) fn is_of(&self, record: &RankRecord) -> bool {
        let folder = self.dataset.file_name();
        self.rank == record.rank && folder.is_some_and(|name| *name == *dataset_name(record.cache_id))
    }

    /// The number of that.
    pub(crate) fn id(&self) -> Option<u64> {
        dataset_id(Path::new(self.dataset.file_name()?))
    }

    /// The dataset's folder.
    pub(crate) fn dataset(&self) -> &Path {
        &self.dataset
    }

    /// The folder of the rank's files.
    pub(crate) fn data(&self) -> PathBuf {
        self.dataset.join(format!("r{}", self.rank))
    }

    /// The place of the file of this name.
    pub(crate) fn file(&self, name: &FileName) -> PathBuf {
        self.data().join(OsStr::from_bytes(name.base()))
    }

    /// The journal.
    pub fn filemap(&self) -> PathBuf {
        self.hidden().join(format!("{FILEMAP}{}", self.rank))
    }

    /// Whether a running process is writing the part, or counts on it.
    pub fn is_held(&self, files: &dyn Files) -> bool {
        Journal::is_held(files, &self.filemap())
    }

    /// The redundancy file.
    pub(crate) fn redundancy(&self) -> PathBuf {
        self.hidden().join(format!("redundancy_{}", self.rank))
    }

    /// The file into which this rank packs the files of its node, for a flush.
    pub(crate) fn container(&self) -> PathBuf {
        self.hidden().join(format!("container_{}", self.rank))
    }

    fn spare(&self) -> PathBuf {
        spare(self.dataset.parent().unwrap_or(&self.dataset), self.rank)
    }

    fn hidden(&self) -> PathBuf {
        self.dataset.join(HIDDEN)
    }

    fn gone(&self) -> PathBuf {
        self.hidden().join(format!("{FILEMAP}{}{GONE}", self.rank))
    }

    /// Makes the folders that ranks share. They do this at the same time, and the first one succeeds.
    pub(crate) fn make_shared(&self, files: &dyn Files) -> Result<(), FsError> {
        [self.dataset.clone(), self.hidden()].iter().try_for_each(|dir| make_dir(files, dir))
    }

    /// Finishes a removal that was cut short, and whose place this part has taken: the filemap has just begun, and there is
    /// nothing of it yet.
    pub(super) fn finish_removal_before(&self, files: &dyn Files) -> Result<(), FsError> {
        let gone = self.gone();
        match files.status(&gone) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            found => {
                found.at("look at", &gone)?;
                self.remove_contents(files)?;
                files.remove_if_there(&gone).map(drop)
            }
        }
    }

    /// Finishes a removal that was cut short. If there is a part in its place by now, the files are that part's, and it has
    /// taken care of what was left.
    fn finish_removal(&self, files: &dyn Files) -> Result<(), FsError> {
        let map = self.filemap();
        match files.status(&map) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.remove_contents(files)?,
            found => drop(found.at("look at", &map)?),
        }
        files.remove_if_there(&self.gone())?;
        self.remove_empty_folders(files)
    }

    /// Makes the folder of the rank's files. The filemap must exist: a folder without one counts as leftovers.
    pub(crate) fn make_data(&self, files: &dyn Files) -> Result<(), FsError> {
        let data = self.data();
        let made = files.make_dir(&data, 0o700);
        let is_link = || files.status(&data).is_ok_and(|status| status.kind == Kind::Link);
        // The application may have put a link in its place, which leads nowhere here.
        if made.is_err() && is_link() {
            files.remove_if_there(&data)?;
            return make_dir(files, &data);
        }
        ignore(ErrorKind::AlreadyExists, made).at("make the folder", &data)
    }

    /// Removes the part, and the folders that nobody uses any more. Not to be called where another rank may be making
    /// its own part of the same dataset: see [`clear`](Self::clear).
    pub(crate) fn remove(&self, files: &dyn Files) -> Result<(), FsError> {
        self.clear(files)?;
        self.remove_empty_folders(files)
    }

    /// Removes a whole part as [`remove`](Self::remove) does, but keeps the memory of its redundancy file for the next one.
    pub(crate) fn remove_but_spare(&self, files: &dyn Files, record: &RankRecord) -> Result<(), FsError> {
        let (map, gone, redundancy) = (self.filemap(), self.gone(), self.redundancy());
        // As in `clear`: from here on it is no part, and its files belong to nobody.
        ignore(ErrorKind::NotFound, files.rename(&map, &gone)).at("rename", &map)?;
        ignore(ErrorKind::NotFound, files.rename(&redundancy, &self.spare())).at("rename", &redundancy)?;
        // The recorded files are mostly all there is.
        let is_removed = |file: &FileRecord| files.remove_file(&self.file(&file.name)).is_ok();
        if !(record.files.iter().all(is_removed) && files.remove_dir(&self.data()).is_ok()) {
            self.remove_data(files)?;
        }
        files.remove_if_there(&gone)?;
        self.remove_empty_folders(files)
    }

    /// Opens the redundancy file to be rewritten, with whatever bytes it may hold, and says whether they are all zeros; it is
    /// `len` bytes long. The filemap has begun before.
    pub(crate) fn create_redundancy(
        &self,
        files: &dyn Files,
        open: &KeptOpen,
        len: u64,
    ) -> io::Result<(Box<dyn File>, bool)> {
        let path = self.redundancy();
        if files.rename(&self.spare(), &path).is_ok() {
            let file = open.take(files, &path).map_or_else(|| files.open(&path, How::Update), Ok)?;
            // Its holes would be filled with zeros.
            let is_emptied = file.has_holes();
            if is_emptied {
                file.set_len(0)?;
            }
            if is_emptied || file.status()?.len != len {
                file.set_len(len)?;
            }
            return Ok((file, is_emptied));
        }
        let file = files.open(&path, How::Replace(0o600))?;
        file.set_len(len)?;
        Ok((file, true))
    }

    /// Removes the folders that ranks share, where nothing is in them. The folder of a rank's files is removed with its contents
    /// alone, while the filemap still has this rank's place: another job may have the same rank, whose folder is empty at first.
    pub(crate) fn remove_empty_folders(&self, files: &dyn Files) -> Result<(), FsError> {
        [self.hidden(), self.dataset.clone()].iter().try_for_each(|dir| remove_dir_if_empty(files, dir))
    }

    /// Removes the part and leaves the folders that ranks share. A crash at any moment leaves either a part or something
    /// that the next start clears away.
    pub(crate) fn clear(&self, files: &dyn Files) -> Result<(), FsError> {
        let (map, gone) = (self.filemap(), self.gone());
        ignore(ErrorKind::NotFound, files.rename(&map, &gone)).at("rename", &map)?;
        self.remove_contents(files)?;
        files.remove_if_there(&gone).map(drop)
    }

    /// Removes everything but the filemap.
    pub(crate) fn remove_contents(&self, files: &dyn Files) -> Result<(), FsError> {
        self.remove_data(files)?;
        for kept in [self.redundancy(), self.redundancy_being_rebuilt(), self.container()] {
            files.remove_if_there(&kept)?;
        }
        Ok(())
    }

    fn remove_data(&self, files: &dyn Files) -> Result<(), FsError> {
        // The application may have made folders of its own here, or have put a link in the place of all.
        files.remove_tree(&self.data())
    }
}

/// The places of the files of one rank's part: in cache, in the prefix directory, or scavenged. Code that protects, rebuilds or
/// checks a part asks here, so that the same code serves all of these places.
pub trait PartPlace {
    /// The place of a file of the part.
    fn file(&self, record: &RankRecord, file: &FileRecord) -> PathBuf;
    /// The path of the nth file of the part until it is known to be right. In the same folder.
    fn file_being_rebuilt(&self, record: &RankRecord, number: usize) -> PathBuf;
    /// The redundancy file.
    fn redundancy(&self) -> PathBuf;
    /// The name of the redundancy file until it is verified.
    fn redundancy_being_rebuilt(&self) -> PathBuf {
        self.redundancy().with_extension("rebuild")
    }
}

impl PartPlace for PartDir {
    fn file(&self, record: &RankRecord, file: &FileRecord) -> PathBuf {
        if record.protection.bypass {
            record.prefix_path(file)
        } else {
            self.file(&file.name)
        }
    }

    fn file_being_rebuilt(&self, record: &RankRecord, number: usize) -> PathBuf {
        let mut name = format!(".scr-rebuild-{number}");
        // The application may have thought of that name too.
        while record.files.iter().any(|file| file.name.base() == name.as_bytes()) {
            name.push('~');
        }
        self.data().join(name)
    }

    fn redundancy(&self) -> PathBuf {
        self.redundancy()
    }
}

/// The contents of a cache directory.
#[derive(Debug, Default)]
pub struct CacheContents {
    /// Parts that have a filemap: dataset and rank.
    pub parts: Vec<(u64, Rank)>,
    /// Parts on their way out.
    going: Vec<(u64, Rank)>,
    /// Datasets that may or may not have parts.
    unknown: Vec<u64>,
    /// Every dataset id that is in use here.
    pub ids: Vec<u64>,
    /// The paths of what is no dataset.
    others: Vec<PathBuf>,
    /// Errors on what could not be read or removed.
    pub errors: Vec<FsError>,
}

/// Searches a cache directory and changes nothing. An entry that cannot be read hides no other entry.
pub fn look_through(files: &dyn Files, cache: &Path) -> CacheContents {
    let mut found = CacheContents::default();
    for name in found.noting(files.list_if_there(cache)).unwrap_or_default() {
        let Some(id) = dataset_id(&name) else {
            found.others.push(cache.join(name));
            continue;
        };
        found.ids.push(id);
        match found.noting(files.list_if_there(&cache.join(&name).join(HIDDEN))) {
            Some(entries) => entries.iter().for_each(|entry| match filemap_rank(entry) {
                Some((rank, false)) => found.parts.push((id, rank)),
                Some((rank, true)) => found.going.push((id, rank)),
                None => (),
            }),
            None => found.unknown.push(id),
        }
    }
    found.ids.sort_unstable();
    found
}

/// Gives back the memory that is kept for the next redundancy file of a rank.
pub(crate) fn remove_spare(files: &dyn Files, cache: &Path, rank: Rank) -> Result<(), FsError> {
    let spare = spare(cache, rank);
    files.remove_if_there(&spare).map(drop)
}

/// Bytes of memory in a cache directory that are kept for the next redundancy files.
pub(crate) fn spare_bytes(files: &dyn Files, cache: &Path) -> u64 {
    let names = files.list_if_there(cache).unwrap_or_default().into_iter();
    let spares = names.map(|name| cache.join(name)).filter(|path| is_named(path, SPARE));
    spares.filter_map(|path| files.status(&path).ok()).map(|status| status.len).sum()
}

fn spare(cache: &Path, rank: Rank) -> PathBuf {
    cache.join(format!("{SPARE}{rank}"))
}

/// Whether a path has a name that begins so.
pub(super) fn is_named(path: &Path, beginning: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(beginning))
}

/// Looks through a cache directory, and clears away what removals that were cut short have left, and what earlier runs kept to be
/// written over. A file that one of the ranks `here` kept stays if that rank has a part here too: then little will be brought
/// here, and the rank writes over the file. Another job of the allocation may be at work there: what it makes is not touched, and
/// it does without a file to write over.
pub(crate) fn find_parts(files: &dyn Files, cache: &Path, here: &[Rank]) -> CacheContents {
    let mut found = look_through(files, cache);
    let owners =
        found.parts.iter().map(|&(_, owner)| owner).filter(|owner| here.binary_search(owner).is_ok());
    let kept: HashSet<PathBuf> = owners.map(|owner| spare(cache, owner)).collect();
    let is_left = |path: &PathBuf| match is_named(path, SPARE) {
        true => !kept.contains(path),
        false => is_left_claim(files, path),
    };
    for left in std::mem::take(&mut found.others).into_iter().filter(is_left) {
        found.noting(files.remove_if_there(&left).map(drop));
    }
    for (id, rank) in std::mem::take(&mut found.going) {
        found.noting(PartDir::new(cache, id, rank).finish_removal(files));
    }
    for id in found.ids.clone() {
        let used = found.parts.iter().any(|&(dataset, _)| dataset == id) || found.unknown.contains(&id);
        if !used {
            found.noting(remove_leftovers(files, &cache.join(dataset_name(id))));
        }
    }
    found
}

/// Removes a dataset of which no filemap was found. Its folders may just have been made by another job, whose filemap is
/// to come, and then the rest; so only what was there while there was no filemap is removed, and empty folders.
fn remove_leftovers(files: &dyn Files, dataset: &Path) -> Result<(), FsError> {
    let hidden = dataset.join(HIDDEN);
    let all = files.list_if_there(dataset)?;
    let data: Vec<_> = all.iter().map(|name| dataset.join(name)).filter(|path| *path != hidden).collect();
    // A folder that is there, and of which the system says that it is not, may have a filemap.
    let records = match all.iter().any(|name| name.as_path() == Path::new(HIDDEN)) {
        true => files.list(&hidden).at("list", &hidden)?,
        false => Vec::new(),
    };
    if records.iter().any(|name| matches!(filemap_rank(name), Some((_, false)))) {
        return Ok(());
    }
    let records = records.iter().map(|name| hidden.join(name));
    data.into_iter().chain(records).try_for_each(|path| files.remove_tree(&path))?;
    remove_dir_if_empty(files, &hidden)?;
    remove_dir_if_empty(files, dataset)
}

impl CacheContents {
    fn noting<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }
}

fn dataset_name(id: u64) -> String {
    format!("{DATASET}{id}")
}

/// A name that scr would not give exactly like this does not belong to scr; nor does the highest possible id.
fn dataset_id(name: &Path) -> Option<u64> {
    let id = name.to_str()?.strip_prefix(DATASET)?.parse().ok()?;
    (id <= MAX_ID && Path::new(&dataset_name(id)) == name).then_some(id)
}

/// The rank whose filemap this is, and whether it is on its way out.
fn filemap_rank(name: &Path) -> Option<(Rank, bool)> {
    let rest = name.to_str()?.strip_prefix(FILEMAP)?;
    let (number, gone) = rest.strip_suffix(GONE).map_or((rest, false), |number| (number, true));
    Some((Rank(number.parse().ok()?), gone))
}

fn make_dir(files: &dyn Files, path: &Path) -> Result<(), FsError> {
    ignore(ErrorKind::AlreadyExists, files.make_dir(path, 0o700)).at("make the folder", path)
}

fn remove_dir_if_empty(files: &dyn Files, path: &Path) -> Result<(), FsError> {
    match files.remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        other => ignore(ErrorKind::NotFound, other).at("remove the folder", path),
    }
}

fn ignore(kind: ErrorKind, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        other => other,
    }
}

/// No dataset has a higher id.
pub(crate) const MAX_ID: u64 = i64::MAX as u64;
const DATASET: &str = "scr.dataset.";
const HIDDEN: &str = ".scr";
const FILEMAP: &str = "filemap_";
const GONE: &str = ".gone";
const SPARE: &str = ".spare_";

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use std::fs;

    /// A cache directory with the parts of ranks 0 and 1 of dataset 4.
    fn cache() -> (tempfile::TempDir, [PartDir; 2]) {
        let cache = tempfile::tempdir().unwrap();
        let parts = [0, 1].map(|rank| PartDir::new(cache.path(), 4, Rank(rank)));
        for part in &parts {
            part.make_shared(&RealFiles).unwrap();
            fs::write(part.filemap(), "a filemap").unwrap();
            part.make_data(&RealFiles).unwrap();
            fs::write(part.data().join("f"), "bytes").unwrap();
            fs::write(part.redundancy(), "parity").unwrap();
        }
        (cache, parts)
    }

    fn has_data(part: &PartDir) -> bool {
        part.data().join("f").exists() && part.redundancy().exists()
    }

    #[test]
    fn what_has_no_filemap_is_cleared_away_and_every_part_stays() {
        let (cache, parts) = cache();
        let leftovers = PartDir::new(cache.path(), 5, Rank(0));
        leftovers.make_shared(&RealFiles).unwrap();
        leftovers.make_data(&RealFiles).unwrap();
        fs::write(leftovers.data().join("f"), "bytes").unwrap();
        let found = find_parts(&RealFiles, cache.path(), &[]);
        assert!(found.parts.len() == 2 && found.errors.is_empty(), "{found:?}");
        assert!(parts.iter().all(has_data) && !leftovers.dataset().exists());
    }

    #[test]
    fn a_rank_keeps_what_it_can_write_over_if_it_has_its_part_here() {
        let (cache, _parts) = cache();
        let names = || {
            let names = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.filter(|name| name.as_bytes().starts_with(b".spare")).collect();
            names.sort();
            names
        };
        for name in [".spare_0", ".spare_1", ".spare_7", ".spare_00", ".spare_x"] {
            fs::write(cache.path().join(name), "old bytes").unwrap();
        }
        assert_eq!(find_parts(&RealFiles, cache.path(), &[Rank(0), Rank(7)]).parts.len(), 2);
        assert_eq!(names(), [".spare_0"]);
        find_parts(&RealFiles, cache.path(), &[]);
        assert!(names().is_empty());
    }

    #[test]
    fn a_part_is_removed_with_all_it_has_and_the_others_of_its_dataset_stay() {
        let (_cache, [first, second]) = cache();
        first.remove(&RealFiles).unwrap();
        assert!(!first.data().exists() && !first.redundancy().exists() && !first.filemap().exists());
        assert!(has_data(&second));
        second.remove(&RealFiles).unwrap();
        assert!(!second.dataset().exists());
    }

    /// The remains of the part that was there before must not become bytes of the new one.
    #[test]
    fn a_removal_that_was_cut_short_is_finished_by_whoever_finds_it() {
        let cut_short = || {
            let (cache, parts) = cache();
            fs::rename(parts[0].filemap(), parts[0].gone()).unwrap();
            (cache, parts)
        };
        let (cache, parts) = cut_short();
        let found = find_parts(&RealFiles, cache.path(), &[]);
        assert_eq!(found.parts, [(4, Rank(1))]);
        assert!(!parts[0].data().exists() && !parts[0].redundancy().exists() && !parts[0].gone().exists());
        assert!(has_data(&parts[1]));

        let (_cache, parts) = cut_short();
        fs::write(parts[0].filemap(), "a new part").unwrap();
        parts[0].finish_removal_before(&RealFiles).unwrap();
        assert!(!parts[0].data().exists() && !parts[0].redundancy().exists() && !parts[0].gone().exists());
        assert!(parts[0].filemap().exists() && has_data(&parts[1]));

        // A new part has finished that removal itself: the files are its own.
        let (cache, parts) = cut_short();
        fs::write(parts[0].filemap(), "a new part").unwrap();
        let found = find_parts(&RealFiles, cache.path(), &[]);
        assert_eq!(found.parts.len(), 2);
        assert!(parts.iter().all(has_data) && !parts[0].gone().exists());
    }
}
