//! `scr.dataset.<id>/container.<node>`: the files of the ranks of a node in one file, of a dataset that was flushed aggregated.
//!
//! ```text
//! <the bytes of the files, one after another>
//! <the contents: a tree as in other files>
//!     ID/<id>  CREATED/<microseconds>  RANKS/<n>
//!     RANK/<rank>/FILE/<name below the prefix>/{OFFSET, SIZE, CRC, MODE, MTIME, MTIME_NANOS}
//! <the length of the contents: 8 bytes, most significant first>
//! SCRCONT1
//! ```
//!
//! So a container says by itself what lies in it. The file lists have it as a file of the first rank of its node.

use super::fields::{crc, set_crc};
use super::{DatasetDescriptor, FileName, Prefix, PrefixError, PrefixFile, Rank2File};
use scr_base::ensure;
use scr_base::fs::verify::{open_whole, FileError};
use scr_base::fs::{At, File, Files, MAX_TREE_BYTES};
use scr_comm::Rank;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// A file of the application in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: FileName,
    /// The byte of the container at which it begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Its CRC32.
    pub crc: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Time of the last change: seconds and nanoseconds since the epoch.
    pub mtime: (i64, u32),
}

/// The contents of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The dataset.
    pub id: u64,
    /// When it was started, as in its descriptor.
    pub created: u64,
    /// Number of ranks that wrote the dataset.
    pub ranks: u32,
    /// The files of the ranks of the node. A rank without files is there too.
    pub by_rank: BTreeMap<Rank, Vec<Member>>,
}

impl Contents {
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("ID", self.id);
        tree.set("CREATED", self.created);
        tree.set("RANKS", self.ranks);
        for (rank, members) in &self.by_rank {
            tree.child("RANK").put(rank.to_string(), members_to_tree(members));
        }
        tree
    }

    /// The trailer after the bytes of the files.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.to_tree().to_file_bytes();
        let length = bytes.len() as u64;
        bytes.extend(length.to_be_bytes());
        bytes.extend(MAGIC);
        bytes
    }

    /// Reads what lies in a container of a dataset.
    ///
    /// # Errors
    /// It is missing or damaged, is that of another dataset, or cannot be read.
    pub fn read(
        files: &dyn Files,
        prefix: &Prefix,
        dataset: &DatasetDescriptor,
        file: &PrefixFile,
    ) -> Result<Self, PrefixError> {
        let path = prefix.file(&file.name);
        let fault = |reason| damaged(&path, reason);
        ensure(file.name.is_container(), || fault("it is listed as a container and has no name of one"))?;
        let (open, status) = open_whole(files, &path, file.bytes).map_err(|error| match error {
            FileError::Fs(error) => error.into(),
            FileError::Missing { path } => PrefixError::Missing { path },
            _ => fault("it has another length than was recorded, or is no file"),
        })?;
        let (tree, data) = read_contents(&*open, &path, status.len)?;
        let found = Self::parse(&tree, data, &path)?;
        let is_its = (found.id, found.created) == (dataset.id, dataset.created);
        ensure(is_its, || fault("it belongs to another dataset"))?;
        Ok(found)
    }

    /// From a tree that follows so many bytes.
    ///
    /// # Errors
    /// The tree is not what such a container has.
    pub fn parse(tree: &KvTree, data: u64, path: &Path) -> Result<Self, PrefixError> {
        let fault = |reason| damaged(path, reason);
        let ranks: u32 = tree.require("RANKS").at("use", path)?;
        let mut by_rank = BTreeMap::new();
        let mut names = HashSet::new();
        for (key, below) in tree.get("RANK").into_iter().flat_map(KvTree::iter) {
            let text = std::str::from_utf8(key).unwrap_or_default();
            let rank = text.parse().ok().filter(|rank: &u32| *rank < ranks && rank.to_string() == text);
            let rank = rank.ok_or_else(|| fault("it has files of a rank that the run did not have"))?;
            let members = members_from_tree(below, path)?;
            for member in &members {
                let ends_before = member.offset.checked_add(member.bytes).is_some_and(|end| end <= data);
                ensure(ends_before, || fault("a file in it ends after its last byte"))?;
                ensure(names.insert(member.name.clone()), || fault("it has a file twice"))?;
            }
            by_rank.insert(Rank(rank), members);
        }
        let (id, created) = (tree.require("ID").at("use", path)?, tree.require("CREATED").at("use", path)?);
        Ok(Self { id, created, ranks, by_rank })
    }
}

/// The contents of all containers of a dataset, which must have every rank once.
///
/// # Errors
/// As [`Contents::read`].
pub fn read_all(
    files: &dyn Files,
    prefix: &Prefix,
    dataset: &DatasetDescriptor,
    lists: &Rank2File,
) -> Result<Vec<(FileName, Contents)>, PrefixError> {
    let fault = |reason| damaged(&prefix.rank2file(dataset.id), reason);
    let (mut ranks, mut names) = (HashSet::new(), HashSet::new());
    let mut all = Vec::new();
    for file in lists.by_rank().iter().flatten() {
        let contents = Contents::read(files, prefix, dataset, file)?;
        let is_of_run = contents.ranks as usize == lists.ranks();
        ensure(is_of_run, || fault("it leads to a container that another number of ranks wrote"))?;
        let has_new_ranks = contents.by_rank.keys().all(|&rank| ranks.insert(rank));
        ensure(has_new_ranks, || fault("it leads to two containers with files of one rank"))?;
        let mut members = contents.by_rank.values().flatten();
        let has_new_names = members.all(|member| names.insert(member.name.clone()));
        ensure(has_new_names, || fault("it leads to two containers with one file"))?;
        all.push((file.name.clone(), contents));
    }
    let has_all = ranks.len() == lists.ranks();
    ensure(has_all, || fault("the containers that it leads to do not have the files of all ranks"))?;
    Ok(all)
}

/// How many files lie in containers, and how many bytes are in them.
pub fn totals(containers: &[(FileName, Contents)]) -> (u64, u64) {
    let all = containers.iter().flat_map(|(_, contents)| contents.by_rank.values().flatten());
    all.fold((0, 0), |(files, bytes), member| (files + 1, member.bytes.saturating_add(bytes)))
}

/// The tree at the end of a container, and how many bytes are before it.
fn read_contents(file: &dyn File, path: &Path, len: u64) -> Result<(KvTree, u64), PrefixError> {
    let fault = |reason| damaged(path, reason);
    let mut footer = [0; FOOTER];
    let end = len.checked_sub(FOOTER as u64).ok_or_else(|| fault("it is too short"))?;
    let is_ended = file.read_at(end, &mut footer).at("read", path)? == FOOTER && footer[8..] == *MAGIC;
    ensure(is_ended, || fault("it does not end as a container does"))?;
    let length = footer[..8].iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
    let data = end.checked_sub(length).filter(|_| length <= MAX_TREE_BYTES);
    let data = data.ok_or_else(|| fault("the length of its contents is wrong"))?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let is_whole = file.read_at(data, &mut bytes).at("read", path)? as u64 == length;
    ensure(is_whole, || fault("it is shorter than it was"))?;
    let tree = KvTree::from_file_bytes(&bytes).map_err(|_| fault("its contents have other bytes"))?;
    Ok((tree, data))
}

fn members_to_tree(members: &[Member]) -> KvTree {
    let mut tree = KvTree::new();
    for member in members {
        let below = tree.child("FILE").child(&member.name);
        below.set("OFFSET", member.offset);
        below.set("SIZE", member.bytes);
        set_crc(below, member.crc);
        below.set("MODE", member.mode);
        below.set("MTIME", member.mtime.0);
        below.set("MTIME_NANOS", member.mtime.1);
    }
    tree
}

fn members_from_tree(tree: &KvTree, path: &Path) -> Result<Vec<Member>, PrefixError> {
    let mut members = Vec::new();
    for (name, below) in tree.get("FILE").into_iter().flat_map(KvTree::iter) {
        let name = FileName::parse(name);
        let name = name.map_err(|_| damaged(path, "it has a file whose name is not allowed"))?;
        members.push(member(name, below).at("use", path)?);
    }
    Ok(members)
}

fn member(name: FileName, tree: &KvTree) -> Result<Member, FieldError> {
    Ok(Member {
        name,
        offset: tree.require("OFFSET")?,
        bytes: tree.require("SIZE")?,
        crc: crc(tree)?.ok_or_else(|| FieldError::Missing { key: "CRC".to_owned() })?,
        mode: tree.require("MODE")?,
        mtime: (tree.require("MTIME")?, tree.require("MTIME_NANOS")?),
    })
}

const MAGIC: &[u8; 8] = b"SCRCONT1";
const FOOTER: usize = 16;

/// A container, or what leads to one, is not what was written.
pub fn damaged(path: &Path, reason: &str) -> PrefixError {
    PrefixError::unusable(path, format!("is damaged: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{sample_contents, sample_member};
    use scr_base::fs::RealFiles;
    use std::fs;

    /// A prefix directory with a container, and its record.
    fn written(contents: &Contents) -> (tempfile::TempDir, Prefix, PrefixFile) {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        prefix.make_dataset_dir(&RealFiles, 3).unwrap();
        let mut bytes = b"bytes".to_vec();
        bytes.extend(contents.to_bytes());
        let name = FileName::container(3, 0);
        fs::write(prefix.file(&name), &bytes).unwrap();
        let file = PrefixFile { name, bytes: Some(bytes.len() as u64), crc: None };
        (dir, prefix, file)
    }

    fn read(prefix: &Prefix, file: &PrefixFile) -> Result<Contents, PrefixError> {
        let dataset = DatasetDescriptor { id: 3, created: 9, ..DatasetDescriptor::default() };
        Contents::read(&RealFiles, prefix, &dataset, file)
    }

    #[test]
    fn contents_come_back_and_those_of_another_dataset_are_refused() {
        let (_dir, prefix, file) = written(&sample_contents());
        assert_eq!(read(&prefix, &file).unwrap(), sample_contents());
        for other in [Contents { id: 4, ..sample_contents() }, Contents { created: 8, ..sample_contents() }] {
            let (_dir, prefix, file) = written(&other);
            assert!(read(&prefix, &file).unwrap_err().to_string().contains("another dataset"));
        }
    }

    #[test]
    fn contents_that_do_not_fit_the_container_are_refused() {
        let of = |members| Contents { by_rank: [(Rank(1), members)].into(), ..sample_contents() };
        let twice = [(Rank(0), vec![sample_member("x", 0, 1)]), (Rank(1), vec![sample_member("x", 1, 1)])];
        for (contents, why) in [
            (of(vec![sample_member("x", 3, 3)]), "ends after its last byte"),
            (of(vec![sample_member("x", u64::MAX, 2)]), "ends after its last byte"),
            (Contents { ranks: 1, ..sample_contents() }, "a rank that the run did not have"),
            (Contents { by_rank: twice.into(), ..sample_contents() }, "it has a file twice"),
        ] {
            let (_dir, prefix, file) = written(&contents);
            let error = read(&prefix, &file).unwrap_err();
            assert!(error.is_damage() && error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn every_flip_after_the_files_and_every_other_length_is_damage() {
        let (_dir, prefix, file) = written(&sample_contents());
        let path = prefix.file(&file.name);
        let whole = fs::read(&path).unwrap();
        for bit in 5 * 8..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            assert!(read(&prefix, &file).is_err_and(|error| error.is_damage()), "bit {bit}");
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let unknown = PrefixFile { bytes: None, ..file.clone() };
            for file in [&file, &unknown] {
                assert!(read(&prefix, file).is_err_and(|error| error.is_damage()), "{len}");
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&prefix, &file), Err(PrefixError::Missing { .. })));
    }
}
