//! `<rank>.scrfilemap`: the record of one rank's part of a scavenged dataset.
//!
//! ```text
//! DSET/<id>/RANK/<rank>
//! RANK/<rank>/DSET/<id>/
//!     DSETDESC/<descriptor>
//!     FILES/<how many, with the redundancy file>
//!     FILE/<name>/META/{RANKS, COMPLETE/1, SIZE, TYPE/<FULL or the scheme>, FILE/<name>, CRC}
//!     STATE/<PREPARED or COMPLETE>
//!     RECORD/<record of the part>
//!     NEIGHBOUR/<rank>/<record kept for it>
//! ```
//!
//! The first keys are those of C SCR's documents, for people and their scripts. Names are relative, so that a prefix directory
//! may be moved. scr itself uses the records, which are those of the cache.

use crate::cache::filemap::{Filemap, PartState};
use crate::cache::loss::{is_of_earlier_boot, OF_EARLIER_BOOT};
use crate::cache::owner::Owner;
use crate::cache::part::PartDir;
use crate::cache::record::RankRecord;
use scr_base::fs::{At, Durability, Files, FsError, MAX_TREE_BYTES};
use scr_comm::Rank;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use scr_prefix::{set_crc, Prefix, PrefixId, FILE_MODE};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One rank's part, as it was scavenged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScavengedMap {
    /// Whether every part was known to be complete, or this one only to be prepared.
    pub complete: bool,
    pub record: RankRecord,
    /// Records of other ranks of the set, kept for them.
    pub(super) neighbours: Vec<RankRecord>,
}

impl ScavengedMap {
    /// The map of a cache; `None` where the part was not prepared, or the application has refused the dataset.
    pub fn of(map: &Filemap) -> Option<Self> {
        let complete = match map.state {
            PartState::Prepared => false,
            PartState::Complete => true,
            PartState::Unknown | PartState::Arriving | PartState::Open | PartState::Refused => return None,
        };
        Some(Self { complete, record: map.record.clone()?, neighbours: map.neighbours.clone() })
    }

    /// The map of a part in cache that belongs to this prefix directory.
    pub(super) fn read(
        files: &dyn Files,
        prefix: &Prefix,
        part: &PartDir,
        prefix_id: Option<&PrefixId>,
    ) -> Result<Self, UnusablePart> {
        let map = Self::of(&read_own(files, prefix, part, prefix_id)?).ok_or_else(never_complete)?;
        if is_of_earlier_boot(files, &map.record) {
            return Err(UnusablePart::Useless(OF_EARLIER_BOOT.to_owned()));
        }
        Ok(map)
    }

    /// Writes it into the folder of its dataset, durably.
    pub(super) fn write(&self, files: &dyn Files, prefix: &Prefix) -> Result<(), FsError> {
        files.write_tree(&self.path(prefix), &self.to_tree(), FILE_MODE, Durability::Synced)
    }

    /// Which file there has the place of this one, where one has.
    pub(super) fn saved(&self, files: &dyn Files, prefix: &Prefix) -> Option<Saved> {
        files.status(&self.path(prefix)).ok().map(|status| (status.identity, status.mtime))
    }

    fn path(&self, prefix: &Prefix) -> PathBuf {
        prefix.dataset_dir(self.record.dataset.id).join(format!("{}{ENDING}", self.record.rank))
    }

    pub fn to_tree(&self) -> KvTree {
        let (record, rank) = (&self.record, self.record.rank);
        let id = record.dataset.id;
        let mut tree = KvTree::new();
        tree.entry("DSET", id).set("RANK", rank);
        let part = tree.entry("RANK", rank).entry("DSET", id);
        part.put("DSETDESC", record.dataset.to_tree());
        part.set("FILES", record.files.len() + usize::from(record.redundancy.is_some()));
        let mut list = |name: &[u8], kind: &str, bytes: u64, crc: Option<u32>| {
            let meta = part.child("FILE").child(name).child("META");
            meta.set("RANKS", record.ranks());
            meta.set("COMPLETE", 1);
            meta.set("SIZE", bytes);
            meta.set("TYPE", kind);
            meta.set_bytes("FILE", name);
            set_crc(meta, crc);
        };
        for file in &record.files {
            list(file.name.as_bytes(), "FULL", file.bytes, file.crc);
        }
        if let Some(kept) = record.redundancy {
            list(redundancy_name(rank).as_bytes(), &record.protection.scheme, kept.bytes, Some(kept.crc));
        }
        part.set("STATE", if self.complete { COMPLETE } else { "PREPARED" });
        part.put("RECORD", record.to_tree());
        for neighbour in &self.neighbours {
            part.child("NEIGHBOUR").put(neighbour.rank.to_string(), neighbour.to_tree());
        }
        tree
    }

    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        let missing = |key: &str| FieldError::Missing { key: key.to_owned() };
        let first = |tree: &KvTree, key: &str| {
            tree.get(key)
                .and_then(|below| below.iter().next())
                .map(|(_, below)| below.clone())
                .ok_or_else(|| missing(key))
        };
        let part = first(&first(tree, "RANK")?, "DSET")?;
        let kept =
            part.get("NEIGHBOUR").map(|kept| kept.iter().map(|(_, record)| RankRecord::from_tree(record)));
        Ok(Self {
            complete: part.text("STATE") == Some(COMPLETE),
            record: RankRecord::from_tree(part.get("RECORD").ok_or_else(|| missing("RECORD"))?)?,
            neighbours: kept.map_or(Ok(Vec::new()), Iterator::collect)?,
        })
    }
}

/// The filemap of a part in cache, where its record is one of this prefix directory.
pub fn read_own(
    files: &dyn Files,
    prefix: &Prefix,
    part: &PartDir,
    prefix_id: Option<&PrefixId>,
) -> Result<Filemap, UnusablePart> {
    let mut map = Filemap::parse(&files.read_all(&part.filemap(), MAX_TREE_BYTES)?);
    if let Some(form) = map.other_release {
        return Err(UnusablePart::OtherRelease(form));
    }
    let record = map.record.as_ref().ok_or_else(never_complete)?;
    let other = String::from_utf8_lossy(&record.prefix);
    let why = match Owner::of(record, files, prefix, prefix_id) {
        Owner::This => {
            map.belong_to(prefix);
            return Ok(map);
        }
        Owner::Predecessor => "this part belongs to a prefix directory that was there before this one".to_owned(),
        Owner::Twin => format!(
            "this part belongs to the prefix directory {other}, which is still there, and of which this one is a copy; save it \
             there, or move that one away if this one is to take its place"
        ),
        Owner::Other => format!("this part belongs to the prefix directory {other}"),
    };
    Err(UnusablePart::Useless(why))
}

fn never_complete() -> UnusablePart {
    let why = "this part was never complete, or the application could not restart from it";
    UnusablePart::Useless(why.to_owned())
}

/// A filemap as it was written at some moment: each time it is another file.
type Saved = ((u64, u64), (i64, u32));

/// Why a part, or what is known of it, is useless.
#[derive(Debug, thiserror::Error)]
pub enum UnusablePart {
    #[error(transparent)]
    Fs(#[from] FsError),
    #[error("{0}")]
    Useless(String),
    /// In this form.
    #[error("it was written by another release of scr ({0}), whose `scr postrun' saves it")]
    OtherRelease(String),
}

/// Reads all filemaps in the folder of a dataset. Their records are made those of this prefix directory, which may have
/// been moved. Says also which cannot be used, and why.
pub(super) fn read_all(
    files: &dyn Files,
    prefix: &Prefix,
    id: u64,
) -> Result<(Vec<ScavengedMap>, Vec<String>), FsError> {
    let folder = prefix.dataset_dir(id);
    let names = files.list(&folder).at("list", &folder)?;
    let (mut maps, mut unusable) = (Vec::new(), Vec::new());
    for name in names.iter().filter(|name| name.as_os_str().as_bytes().ends_with(ENDING.as_bytes())) {
        let path = folder.join(name);
        match read(files, prefix, &path, id) {
            Ok(map) => maps.push(map),
            Err(why) => {
                unusable.push(format!("{} cannot be used: {}", path.display(), scr_base::describe(&*why)));
            }
        }
    }
    Ok((maps, unusable))
}

fn read(files: &dyn Files, prefix: &Prefix, path: &Path, id: u64) -> Result<ScavengedMap, Box<dyn Error>> {
    let tree = files.read_tree(path)?.ok_or("it is gone")?;
    let mut map = ScavengedMap::from_tree(&tree)?;
    let (rank, dataset) = (map.record.rank, map.record.dataset.id);
    if dataset != id || path.file_name() != Some(OsStr::new(&format!("{rank}{ENDING}"))) {
        return Err(format!("it is that of rank {rank} of dataset {dataset}").into());
    }
    for record in std::iter::once(&mut map.record).chain(&mut map.neighbours) {
        record.prefix = prefix.dir().as_os_str().as_bytes().to_vec();
    }
    Ok(map)
}

/// The name of a redundancy file in the folder of its dataset.
pub(super) fn redundancy_name(rank: Rank) -> String {
    format!("redundancy_{rank}")
}

const ENDING: &str = ".scrfilemap";
const COMPLETE: &str = "COMPLETE";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cache::record::tests::sample;
    use scr_base::fs::RealFiles;
    use scr_test_kit::fixtures::{damage, scratch};

    fn map() -> ScavengedMap {
        ScavengedMap { complete: true, record: sample(2), neighbours: vec![sample(1)] }
    }

    pub(crate) fn sample_tree() -> KvTree {
        map().to_tree()
    }

    #[test]
    fn a_filemap_has_the_keys_of_the_seeds_and_comes_back_as_one_of_this_prefix_directory() {
        let (_dir, prefix) = scratch();
        prefix.make_dataset_dir(&RealFiles, 7).unwrap();
        map().write(&RealFiles, &prefix).unwrap();
        let tree = (&RealFiles as &dyn Files)
            .read_tree(&prefix.dataset_dir(7).join("2.scrfilemap"))
            .unwrap()
            .unwrap();
        assert_eq!(tree.find("DSET", 7).unwrap().text("RANK"), Some("2"));
        let part = tree.find("RANK", 2).unwrap().find("DSET", 7).unwrap();
        assert_eq!(part.text("FILES"), Some("2"));
        let meta = part.get("FILE").unwrap().get("ckpt.7/rank_0").unwrap().get("META").unwrap();
        assert_eq!(
            (meta.text("SIZE"), meta.text("TYPE"), meta.text("CRC")),
            (Some("12"), Some("FULL"), Some("0xdeadbeef"))
        );
        let found = read_all(&RealFiles, &prefix, 7).unwrap();
        assert_eq!((found.0.len(), found.1.len()), (1, 0));
        assert_eq!(found.0[0].record.prefix, prefix.dir().as_os_str().as_bytes());
        assert_eq!((found.0[0].complete, found.0[0].neighbours.len()), (true, 1));
    }

    #[test]
    fn a_filemap_that_is_damaged_or_that_of_another_part_or_leads_outside_is_not_used() {
        let (_dir, prefix) = scratch();
        prefix.make_dataset_dir(&RealFiles, 7).unwrap();
        map().write(&RealFiles, &prefix).unwrap();
        let folder = prefix.dataset_dir(7);
        damage(folder.join("2.scrfilemap"), |tree| {
            let part = tree.entry("RANK", 2).entry("DSET", 7);
            let record = part.entry("NEIGHBOUR", 1);
            let text = record.text("RANK_RECORD").unwrap().replace("ckpt.7/rank_0", "../x");
            record.set("RANK_RECORD", text);
        });
        std::fs::copy(folder.join("2.scrfilemap"), folder.join("1.scrfilemap")).unwrap();
        std::fs::write(folder.join("0.scrfilemap"), b"no tree").unwrap();
        let found = read_all(&RealFiles, &prefix, 7).unwrap();
        assert_eq!((found.0.len(), found.1.len()), (0, 3));
    }
}
