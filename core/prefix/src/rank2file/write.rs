//! Writing the parts: the leaves, then the maps that lead to them, the top one last. In a job each leaf is written by its
//! first rank, and the maps by rank 0.

use super::{fault, LeafLists, Names, PrefixFile};
use crate::fields::set_crc;
use crate::{Prefix, PrefixError, FILE_MODE};
use scr_base::ensure;
use scr_base::fs::{At, Durability, Files};
use scr_comm::Rank;
use scr_plugin_api::KvTree;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How many ranks are in one leaf, and how many parts in one map: a power of two. A leaf is then about 100 KB.
pub const FAN_OUT: u32 = 1024;

/// Writes all parts, and removes those of an older list.
pub(super) fn write(
    files: &dyn Files,
    prefix: &Prefix,
    id: u64,
    by_rank: &[Vec<PrefixFile>],
    fan_out: u32,
) -> Result<(), PrefixError> {
    let top = prefix.rank2file(id);
    let ranks = u32::try_from(by_rank.len()).unwrap_or(u32::MAX);
    check_names(&top, 0, by_rank)?;
    for (first, lists) in (0..ranks).step_by(fan_out as usize).zip(by_rank.chunks(fan_out as usize)) {
        write_leaf(files, prefix, id, ranks, first, lists)?;
    }
    write_maps(files, prefix, id, ranks, fan_out)
}

impl LeafLists {
    /// Writes the leaf, and syncs it. The dataset's folder must be there.
    ///
    /// # Errors
    /// A name is not allowed, before anything is written, or it cannot be written.
    pub(crate) fn write(&self, files: &dyn Files, prefix: &Prefix, id: u64) -> Result<(), PrefixError> {
        check_names(&leaf(prefix, id, self.first.0), self.first.0, &self.by_rank)?;
        write_leaf(files, prefix, id, self.ranks, self.first.0, &self.by_rank)
    }
}

fn check_names(path: &Path, first: u32, by_rank: &[Vec<PrefixFile>]) -> Result<(), PrefixError> {
    let mut names = Names::default();
    for (rank, list) in (first..).map(Rank).zip(by_rank) {
        list.iter().try_for_each(|file| names.add(rank, file)).map_err(|reason| fault(path, reason))?;
    }
    Ok(())
}

/// Writes the leaf that begins with the rank `first`. `lists` are the files of its ranks, in order.
fn write_leaf(
    files: &dyn Files,
    prefix: &Prefix,
    id: u64,
    ranks: u32,
    first: u32,
    lists: &[Vec<PrefixFile>],
) -> Result<(), PrefixError> {
    let mut tree = header(ranks, 0);
    let by_rank = tree.child("RANK");
    for (rank, list) in (first..ranks).zip(lists) {
        // Also a rank without files is listed, or it would count as missing.
        let entry = by_rank.child(rank.to_string());
        for file in list {
            let below = entry.child("FILE").child(&file.name);
            below.set_known("SIZE", file.bytes);
            set_crc(below, file.crc);
        }
    }
    Ok(files.write_tree(&leaf(prefix, id, first), &tree, FILE_MODE, Durability::Synced)?)
}

/// Writes the maps that lead to leaves of `fan_out` ranks, and removes the parts of an older list. All leaves must be there.
///
/// # Errors
/// A map cannot be written.
pub(crate) fn write_maps(
    files: &dyn Files,
    prefix: &Prefix,
    id: u64,
    ranks: u32,
    fan_out: u32,
) -> Result<(), PrefixError> {
    ensure(ranks > 0, || fault(&prefix.rank2file(id), super::other_ranks(0, 1)))?;
    let all = u64::from(ranks);
    let starts = |span: u64| (0..all).step_by(usize::try_from(span).unwrap_or(usize::MAX));
    // How many ranks a part of the level below, and one of this level, stands for.
    let (mut below, mut level) = (u64::from(fan_out), 1);
    let mut parts: BTreeSet<OsString> = starts(below).map(|first| part_name(0, first)).collect();
    loop {
        let span = below.saturating_mul(u64::from(fan_out));
        let is_top = span >= all;
        for first in starts(span) {
            let mut tree = header(ranks, level);
            for child in
                starts(below).skip_while(|&child| child < first).take_while(|&child| child - first < span)
            {
                let entry = tree.entry("RANK", child);
                entry.set("FILE", format!(".{}.{child}", level - 1));
                entry.set("OFFSET", 0);
            }
            let name = if is_top { "rank2file".into() } else { part_name(level, first) };
            files.write_tree(&part(prefix, id, &name), &tree, FILE_MODE, Durability::Synced)?;
            parts.insert(name);
        }
        if is_top {
            return remove_others(files, &prefix.dataset_dir(id), &parts);
        }
        (below, level) = (span, level + 1);
    }
}

/// C SCR's commands read every leaf in the folder, so none may be left of an older list.
fn remove_others(files: &dyn Files, dir: &Path, parts: &BTreeSet<OsString>) -> Result<(), PrefixError> {
    for name in files.list(dir).at("list the folder", dir)? {
        let is_part =
            name.to_str().is_some_and(|name| name.strip_prefix("rank2file").is_some_and(is_part_name));
        if is_part && !parts.contains(name.as_os_str()) {
            let path = dir.join(name);
            files.remove_file(&path).at("remove", &path)?;
        }
    }
    Ok(())
}

/// Whether a name is `.<level>.<rank>`.
pub(super) fn is_part_name(name: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix('.').and_then(|rest| rest.split_once('.'));
    numbers.is_some_and(|(level, rank)| is_number(level) && is_number(rank))
}

fn part_name(level: u32, first: u64) -> OsString {
    format!("rank2file.{level}.{first}").into()
}

fn leaf(prefix: &Prefix, id: u64, first: u32) -> PathBuf {
    part(prefix, id, &part_name(0, first.into()))
}

fn part(prefix: &Prefix, id: u64, name: &OsString) -> PathBuf {
    prefix.dataset_dir(id).join(name)
}

/// In C SCR's order.
fn header(ranks: u32, level: u32) -> KvTree {
    let mut tree = KvTree::new();
    tree.set("RANKS", ranks);
    tree.set("LEVEL", level);
    tree
}
