//! Reads the parts, also C SCR's, and trusts nothing: the maps must be a tree, the leaves must list every rank once, and no name
//! may lead out of the prefix directory.

use super::write::is_part_name;
use super::{fault, listed_name, other_ranks, rank_twice, ranks_missing, Names, PrefixFile, Rank2File};
use crate::fields::crc;
use crate::{FileName, Prefix, PrefixError};
use scr_base::ensure;
use scr_base::fs::{At, EntryName, Files, MAX_TREE_BYTES};
use scr_comm::Rank;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// More levels than any run needs: with two parts in each map they are enough for all ranks there can be.
const MAX_LEVELS: u32 = 32;

/// A part that lists files, as the maps lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its path.
    path: PathBuf,
    /// The byte at which it begins.
    offset: u64,
    /// The rank that it is named after, which is the one to read it.
    pub reader: Rank,
    /// Number of ranks of the run that wrote the dataset.
    pub ranks: u32,
}

/// Its name, offset, reader and ranks.
pub type LeafMessage = (OsString, u64, Rank, u32);

impl Leaf {
    /// The files of some of the ranks, in no order. The leaves read apart may have a rank, or a name, twice.
    ///
    /// # Errors
    /// It is missing or damaged, or does not fit the maps.
    pub fn read(&self, files: &dyn Files) -> Result<Vec<(Rank, Vec<PrefixFile>)>, PrefixError> {
        lists_in(&read_level(files, self, 0)?, &self.path, self.ranks)
    }

    /// To be sent to its reader.
    pub fn to_message(&self) -> LeafMessage {
        let name = self.path.file_name().unwrap_or_default().to_owned();
        (name, self.offset, self.reader, self.ranks)
    }

    /// As it came.
    pub fn from_message(prefix: &Prefix, id: u64, message: &LeafMessage) -> Option<Self> {
        let (name, offset, reader, ranks) = message;
        let path = EntryName::parse(name.as_bytes())?.below(&prefix.dataset_dir(id));
        Some(Self { path, offset: *offset, reader: *reader, ranks: *ranks })
    }
}

/// Reads the maps, and gives the leaves in the order of their readers: at least one.
pub fn leaves(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Vec<Leaf>, PrefixError> {
    let top = prefix.rank2file(id);
    let mut seen = HashSet::new();
    let (level, ranks, mut parts) = parts_of_top(&read_part(files, &top, 0)?, &top, &mut seen)?;
    for level in (1..level).rev() {
        let mut below = Vec::new();
        for map in parts {
            let tree = read_level(files, &map, level)?;
            below.extend(children(&tree, &map.path, &top, ranks, &mut seen)?);
        }
        parts = below;
    }
    ensure(!parts.is_empty(), || fault(&top, ranks_missing(ranks, ranks, Rank(0))))?;
    parts.sort_by_key(|leaf| leaf.reader);
    Ok(parts)
}

/// The files of one rank, as the last part lists them that is named after it or one before; none if that one does not.
pub fn of_rank(
    files: &dyn Files,
    prefix: &Prefix,
    id: u64,
    rank: Rank,
) -> Result<Vec<PrefixFile>, PrefixError> {
    let leaves = leaves(files, prefix, id)?;
    let leaf = leaves.iter().rfind(|leaf| leaf.reader <= rank);
    let lists = leaf.map(|leaf| leaf.read(files)).transpose()?.unwrap_or_default();
    Ok(lists.into_iter().find(|(of, _)| *of == rank).map(|(_, list)| list).unwrap_or_default())
}

/// How many ranks wrote a dataset, as the uppermost map says.
pub fn ranks(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<u32, PrefixError> {
    let top = prefix.rank2file(id);
    let (_, ranks, _) = parts_of_top(&read_part(files, &top, 0)?, &top, &mut HashSet::new())?;
    Ok(ranks)
}

/// The level, the number of ranks, and the parts of the uppermost map.
fn parts_of_top(
    tree: &KvTree,
    top: &Path,
    seen: &mut HashSet<String>,
) -> Result<(u32, u32, Vec<Leaf>), PrefixError> {
    let level = tree.require("LEVEL").at("use", top)?;
    let ranks = tree.require("RANKS").at("use", top)?;
    let other_level = || fault(top, format!("it has level {level} where 1 to {MAX_LEVELS} is expected"));
    ensure((1..=MAX_LEVELS).contains(&level), other_level)?;
    ensure(ranks > 0, || fault(top, other_ranks(0, 1)))?;
    Ok((level, ranks, children(tree, top, top, ranks, seen)?))
}

/// The parts of an uppermost map.
pub fn parts_in(tree: &KvTree, top: &Path) -> Result<Vec<Leaf>, PrefixError> {
    parts_of_top(tree, top, &mut HashSet::new()).map(|(_, _, parts)| parts)
}

/// The files that a leaf of a run of this many ranks lists.
pub fn lists_in(tree: &KvTree, path: &Path, ranks: u32) -> Result<Vec<(Rank, Vec<PrefixFile>)>, PrefixError> {
    let mut names = Names::default();
    let mut lists = Vec::new();
    for (key, below) in tree.get("RANK").into_iter().flat_map(KvTree::iter) {
        let rank = rank(key, ranks).map_err(|reason| fault(path, reason))?;
        let mut list = Vec::new();
        for (name, below) in below.get("FILE").into_iter().flat_map(KvTree::iter) {
            let name = listed_name(rank, name).map_err(|reason| fault(path, reason))?;
            list.push(file(name, below).at("use", path)?);
        }
        for file in &list {
            names.add(rank, file).map_err(|reason| fault(path, reason))?;
        }
        lists.push((rank, list));
    }
    Ok(lists)
}

/// Reads all leaves.
pub(super) fn read(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Rank2File, PrefixError> {
    let top = prefix.rank2file(id);
    let leaves = leaves(files, prefix, id)?;
    let ranks = leaves.first().map_or(0, |leaf| leaf.ranks);
    let mut names = Names::default();
    let mut by_rank = BTreeMap::new();
    for leaf in &leaves {
        for (rank, list) in leaf.read(files)? {
            for file in &list {
                names.add(rank, file).map_err(|reason| fault(&leaf.path, reason))?;
            }
            ensure(by_rank.insert(rank, list).is_none(), || fault(&leaf.path, rank_twice(rank)))?;
        }
    }
    // All are below `ranks`, so they are all there where there are as many.
    let found = u32::try_from(by_rank.len()).unwrap_or(u32::MAX);
    if found < ranks {
        let first = (0..).map(Rank).find(|rank| !by_rank.contains_key(rank)).unwrap_or(Rank(0));
        return Err(fault(&top, ranks_missing(ranks - found, ranks, first)));
    }
    Ok(Rank2File::new(by_rank.into_values().collect()))
}

/// A part that a map leads to, which must be on this level and of the same run.
fn read_level(files: &dyn Files, part: &Leaf, level: u32) -> Result<KvTree, PrefixError> {
    let tree = read_part(files, &part.path, part.offset)?;
    let found: u32 = tree.require("LEVEL").at("use", &part.path)?;
    ensure(found == level, || fault(&part.path, format!("it has level {found} where {level} is expected")))?;
    let found = tree.require("RANKS").at("use", &part.path)?;
    ensure(found == part.ranks, || fault(&part.path, other_ranks(found, part.ranks)))?;
    Ok(tree)
}

fn read_part(files: &dyn Files, path: &Path, offset: u64) -> Result<KvTree, PrefixError> {
    let missing = || PrefixError::Missing { path: path.to_owned() };
    let bytes = files.read_if_there(path, MAX_TREE_BYTES)?.ok_or_else(missing)?;
    // Past the end there are no bytes, and the tree then says that it is too short.
    let bytes = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
    Ok(KvTree::from_file_prefix(bytes).at("use", path)?.0)
}

/// The parts that a map leads to. Maps that lead to one part twice could make few files look like endlessly many.
fn children(
    map: &KvTree,
    path: &Path,
    top: &Path,
    ranks: u32,
    seen: &mut HashSet<String>,
) -> Result<Vec<Leaf>, PrefixError> {
    let mut parts = Vec::new();
    for (key, below) in map.get("RANK").into_iter().flat_map(KvTree::iter) {
        let reader = rank(key, ranks).map_err(|reason| fault(path, reason))?;
        let name: String = below.require("FILE").at("use", path)?;
        let offset = below.require("OFFSET").at("use", path)?;
        let other = || format!("it leads to `{name}', which is not the name of a list of files");
        ensure(is_part_name(&name), || fault(path, other()))?;
        ensure(seen.insert(name.clone()), || fault(path, format!("the list `{name}' is led to twice")))?;
        let mut part = top.as_os_str().to_owned();
        part.push(&name);
        parts.push(Leaf { path: part.into(), offset, reader, ranks });
    }
    Ok(parts)
}

/// Only the way we write a rank counts, or one rank could be listed twice.
fn rank(key: &[u8], ranks: u32) -> Result<Rank, String> {
    let text = String::from_utf8_lossy(key);
    let rank = text.parse().ok().filter(|rank: &u32| *rank < ranks && rank.to_string() == text);
    rank.map(Rank).ok_or_else(|| format!("it lists rank {text}, and the run had {ranks} ranks"))
}

fn file(name: FileName, below: &KvTree) -> Result<PrefixFile, FieldError> {
    Ok(PrefixFile { name, bytes: below.parse("SIZE")?, crc: crc(below)? })
}
