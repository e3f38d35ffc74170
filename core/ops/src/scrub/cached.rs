//! The files that the filemaps of a cache directory record.

use super::{is_wanted, Dataset, Item, ItemKind, Plan, Read, Verdict};
use scr_base::fs::{At, Files, FsError, MAX_TREE_BYTES};
use scr_comm::Rank;
use scr_core::cache::filemap::{Filemap, PartState};
use scr_core::cache::node_dir;
use scr_core::cache::part::{look_through, PartDir, PartPlace};
use scr_core::cache::record::{FileRecord, RankRecord, RedundancyRecord};
use std::path::{Path, PathBuf};

/// The cache directories at or below a folder: those with datasets in them. `<base>/<user>/scr.<allocation>` is what
/// a job makes, so it is enough to look two folders deep, and at the folders of nodes in what is found.
///
/// # Errors
/// If the folder itself cannot be listed, or one in it for a reason that says nothing about that one.
pub fn find_caches(files: &dyn Files, dir: &Path) -> Result<Vec<PathBuf>, FsError> {
    files.list(dir).at("list", dir)?;
    let mut folders = vec![dir.to_owned()];
    for from in [0, 1] {
        for folder in folders.get(from..).unwrap_or_default().to_vec() {
            let names = known(files.list(&folder).at("list", &folder))?.unwrap_or_default();
            folders.extend(names.iter().map(|name| folder.join(name)));
        }
    }
    let mut found = Vec::new();
    for folder in folders {
        for place in known(node_dir::places(files, &folder))?.unwrap_or_else(|| vec![folder]) {
            let mut content = look_through(files, &place);
            content.errors.drain(..).try_for_each(|error| known::<()>(Err(error)).map(drop))?;
            found.extend((!content.ids.is_empty()).then_some(place));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// `None` where somebody else's folder, or a file, is in the way.
fn known<T>(asked: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match asked {
        Err(error) if !error.is_answer() => Err(error),
        asked => Ok(asked.ok()),
    }
}

impl Plan {
    /// The records of a cache directory: a folder with folders `scr.dataset.<id>`.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn of_cache(files: &dyn Files, cache: &Path, wanted: Option<&str>) -> Result<Self, FsError> {
        files.list(cache).at("list", cache)?;
        let mut there = look_through(files, cache);
        if let Some(error) = there.errors.pop() {
            return Err(error);
        }
        let mut plan = Self::default();
        for id in there.ids {
            let ranks = there.parts.iter().filter(|(dataset, _)| *dataset == id).map(|&(_, rank)| rank);
            let maps: Vec<_> = ranks.map(|rank| Part::look(files, cache, id, rank)).collect();
            let record = maps.iter().find_map(|part| part.map.record.as_ref());
            let name = record.map(|record| record.dataset.name_text()).unwrap_or_default();
            if is_wanted(wanted, id, &name) {
                let prefix = record.map(|record| record.prefix.as_slice()).unwrap_or_default();
                let prefix = String::from_utf8_lossy(prefix).into_owned();
                plan.datasets.push(planned(Dataset { id, name, prefix, ..Dataset::default() }, &maps));
            }
        }
        Ok(plan)
    }
}

fn planned(dataset: Dataset, parts: &[Part]) -> (Dataset, Vec<Read>) {
    let state = in_words(parts.iter().map(|part| part.map.state).max().unwrap_or_default()).to_owned();
    let items = parts.iter().map(Part::item).collect();
    let prepared = parts.iter().filter(|part| part.map.state >= PartState::Prepared);
    let reads = prepared.flat_map(|part| part.map.record.iter().flat_map(|record| reads(&part.dir, record)));
    (Dataset { state, items, ..dataset }, reads.collect())
}

/// One rank's part.
struct Part {
    dir: PartDir,
    rank: Rank,
    map: Filemap,
    /// Why the filemap could not be read.
    error: Option<String>,
}

impl Part {
    fn look(files: &dyn Files, cache: &Path, id: u64, rank: Rank) -> Self {
        let dir = PartDir::new(cache, id, rank);
        let read = files.read_all(&dir.filemap(), MAX_TREE_BYTES);
        let error = read.as_ref().err().map(|error| scr_base::describe(error));
        Self { map: read.map(|bytes| Filemap::parse(&bytes)).unwrap_or_default(), dir, rank, error }
    }

    /// The findings on the filemap.
    fn item(&self) -> Item {
        let path = self.dir.filemap();
        let damage = self.map.damaged.then(|| format!("{} is damaged", path.display()));
        let verdict = match (self.error.clone().or(damage), self.map.state) {
            _ if self.map.other_release.is_some() => Verdict::Unverified { why: OF_OTHER_RELEASE.to_owned() },
            (Some(found), _) => Verdict::Wrong { found, now: COUNTS_AS_LOST.to_owned() },
            (None, PartState::Prepared | PartState::Complete | PartState::Refused) => Verdict::Intact,
            (None, _) => Verdict::Unverified { why: UNFINISHED.to_owned() },
        };
        Item { path, kind: ItemKind::Filemap, rank: Some(self.rank.0), bytes: 0, verdict }
    }
}

const COUNTS_AS_LOST: &str =
    "what it records counts as lost at the next start, and is rebuilt where the scheme can";
const OF_OTHER_RELEASE: &str = "it was written by another release of scr";
const UNFINISHED: &str = "this part is being written, or its run has died; the next start removes it then";

/// The files that a record names.
fn reads(dir: &PartDir, record: &RankRecord) -> Vec<Read> {
    let read = |path, kind, bytes, crc| {
        let (rank, bytes, now) = (record.rank.0, Some(bytes), what_now(record));
        Read { path, kind, rank, bytes, crc, now }
    };
    let data =
        |file: &FileRecord| read(PartPlace::file(dir, record, file), ItemKind::Data, file.bytes, file.crc);
    let kept =
        |kept: RedundancyRecord| read(dir.redundancy(), ItemKind::Redundancy, kept.bytes, Some(kept.crc));
    record.files.iter().map(data).chain(record.redundancy.map(kept)).collect()
}

fn what_now(record: &RankRecord) -> String {
    let scheme = &record.protection.scheme;
    if record.protection.bypass {
        return "the next start cannot use this dataset, and takes an older one".to_owned();
    }
    if record.redundancy.is_none() {
        return format!("{scheme} cannot rebuild it: the next start takes another dataset");
    }
    format!(
        "the part of rank {} counts as lost at the next start, and {scheme} rebuilds it from its set",
        record.rank
    )
}

fn in_words(state: PartState) -> &'static str {
    match state {
        PartState::Unknown => "unknown",
        PartState::Arriving => "being restored",
        PartState::Open => "being written",
        PartState::Prepared => "protected",
        PartState::Complete => "complete",
        PartState::Refused => "given up as unusable",
    }
}
