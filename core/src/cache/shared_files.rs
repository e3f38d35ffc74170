//! Files in cache that several ranks write: HDF5 with many ranks per file, or one file of the whole job.
//!
//! Each rank has a folder of its own in cache. The first rank that routes a name claims it; other ranks that see the same
//! store get the path in that rank's folder. Once all have closed the file, each of them links it into its own folder: so
//! every part holds all its files, and is protected, moved, flushed and removed like any other.
//!
//! A claim is a second name of the claiming rank's filemap. It takes one step, needs no message, and says whose it is. Ranks
//! that do not see the same store do not see each other's claims: [`clashes`] finds names that are claimed twice.

use super::filemap::{Filemap, Journal};
use super::node_dir;
use super::part::{is_named, PartDir};
use super::record::RankRecord;
use super::Cache;
use crate::typed::route_values;
use scr_base::fs::{At, Files, FsError, MAX_TREE_BYTES};
use scr_comm::collective::{all_reduce, Op};
use scr_comm::{Comm, CommError, Rank};
use scr_prefix::FileName;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The claims of one rank for one dataset.
pub(crate) struct SharedFiles {
    /// The cache directory of the store that all ranks see.
    root: PathBuf,
    /// Whether nodes have folders of their own there, and what follows their names.
    has_node_dirs: bool,
    suffix: String,
    /// Whether other ranks see it.
    is_shared: bool,
    /// Unique to the claims of this dataset among those of its prefix directory.
    dataset: String,
    /// Another job of the allocation may begin a dataset of this number at the same moment.
    prefix: Vec<u8>,
    claims: Vec<PathBuf>,
    /// Files that another rank has claimed, and where they are written.
    borrowed: BTreeMap<FileName, PathBuf>,
}

impl SharedFiles {
    /// For a dataset that has begun.
    pub(crate) fn new(cache: &Cache, record: &RankRecord) -> Self {
        let store = &cache.stores()[cache.store_index(&record.protection.store)];
        Self {
            root: store.root.path().to_owned(),
            has_node_dirs: store.cache != store.root.path(),
            suffix: store.suffix.clone(),
            is_shared: store.placement.mates(record.rank).len() > 1,
            dataset: format!("{}.{}", record.cache_id, record.begun),
            prefix: record.prefix.clone(),
            claims: Vec::new(),
            borrowed: BTreeMap::new(),
        }
    }

    /// Claims a file of this rank's part, or gives the path at which another rank has claimed it.
    pub(crate) fn claim(&mut self, files: &dyn Files, part: &PartDir, name: &FileName) -> Option<&Path> {
        if !self.is_shared {
            return None;
        }
        let digest = digest((&self.prefix, name));
        let claim = self.root.join(format!("{CLAIM}{}.{digest:032x}", self.dataset));
        match files.link(&part.filemap(), &claim) {
            Ok(()) => self.claims.push(claim),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match self.holder(files, &claim) {
                    // It is routed again after an error.
                    Some(holder) if holder == *part => self.claims.push(claim),
                    Some(holder) => _ = self.borrowed.insert(name.clone(), holder.file(name)),
                    None => (),
                }
            }
            // No rank can claim anything here, and two ranks with one file are found when the dataset is completed.
            Err(_) => (),
        }
        self.borrowed.get(name).map(PathBuf::as_path)
    }

    /// The part of the rank that has made a claim.
    fn holder(&self, files: &dyn Files, claim: &Path) -> Option<PartDir> {
        let record = Filemap::parse(&files.read_all(claim, MAX_TREE_BYTES).ok()?).record?;
        let cache = match self.has_node_dirs {
            true => node_dir::find(files, &self.root, &format!("{}{}", record.node, self.suffix))?,
            false => self.root.clone(),
        };
        Some(PartDir::new(&cache, record.cache_id, record.rank))
    }

    /// The path of a file that another rank has claimed.
    pub(crate) fn borrowed(&self, name: &FileName) -> Option<&Path> {
        self.borrowed.get(name).map(PathBuf::as_path)
    }

    /// How many files another rank has claimed.
    pub(crate) fn count(&self) -> u64 {
        self.borrowed.len() as u64
    }

    /// Links the files that another rank has claimed into this rank's own folder. All ranks have closed them.
    pub(crate) fn take(&mut self, files: &dyn Files, part: &PartDir) -> Result<(), FsError> {
        for (name, path) in std::mem::take(&mut self.borrowed) {
            let own = part.file(&name);
            files.link(&path, &own).at("link another rank's file to", &own)?;
        }
        Ok(())
    }

    /// Withdraws this rank's claims: nobody routes files of the dataset any more.
    pub(crate) fn withdraw(&mut self, files: &dyn Files) {
        for claim in self.claims.drain(..) {
            // A remaining claim does no harm, and the next run removes it.
            let _ = files.remove_file(&claim);
        }
    }
}

/// How many names, of those that this rank is asked about, were claimed by two ranks. All ranks call it.
pub(crate) fn clashes<'a>(
    comm: &dyn Comm,
    claimed: impl Iterator<Item = &'a FileName>,
) -> Result<u64, CommError> {
    let mut known = HashSet::new();
    let asked = ask(comm, claimed.map(|name| (0, name)))?;
    Ok(asked.into_iter().filter(|question| !known.insert(*question)).count() as u64)
}

/// Which of these older datasets have a file of a name that any rank has routed since, by their place. All ranks call it.
pub(crate) fn with_names_of<'a>(
    comm: &dyn Comm,
    routed: impl Iterator<Item = &'a FileName>,
    older: &[&'a RankRecord],
) -> Result<Vec<usize>, CommError> {
    let names = |(number, record): (u64, &&'a RankRecord)| {
        let record: &'a RankRecord = record;
        record.files.iter().map(move |file| (number, &file.name))
    };
    let asked = ask(comm, routed.map(|name| (0, name)).chain((1..).zip(older).flat_map(names)))?;
    let of =
        |wanted: u64| asked.iter().filter(move |(number, _)| *number == wanted).map(|(_, digest)| *digest);
    let routed: HashSet<u128> = of(0).collect();
    let has_one = |number| u64::from(of(number).any(|digest| routed.contains(&digest)));
    let found: Vec<u64> = (1..=older.len() as u64).map(has_one).collect();
    let found = all_reduce(comm, found, Op::Max)?;
    Ok((0..found.len()).filter(|&place| found[place] > 0).collect())
}

/// Gives names, each with a number, to the ranks that are asked about them: the digest of a name chooses the rank. Gives the
/// digests that this rank is asked about. All ranks call it.
fn ask<'a>(
    comm: &dyn Comm,
    names: impl Iterator<Item = (u64, &'a FileName)>,
) -> Result<Vec<(u64, u128)>, CommError> {
    let mut asked: BTreeMap<Rank, Vec<(u64, u128)>> = BTreeMap::new();
    for (number, name) in names {
        let digest = digest(name.as_bytes());
        let to = Rank((digest % u128::from(comm.size())) as u32);
        asked.entry(to).or_default().push((number, digest));
    }
    let asked: Vec<_> = asked.into_iter().collect();
    let came = route_values(comm, &asked)?.into_iter();
    Ok(came.flat_map(|(_, questions)| questions).collect())
}

/// The names that a rank has claimed, with a mark where they hold the name of the dataset.
///
/// Two ranks with the same name and the same dataset have the same mark in the same place, and the same marks give the same
/// name: names are distinct exactly where their patterns are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamePattern(u128);

impl NamePattern {
    pub(crate) fn of<'a>(claimed: impl Iterator<Item = &'a FileName>, dataset: &[u8]) -> Self {
        let mut pieces: Vec<_> = claimed.map(|name| between(name.as_bytes(), dataset)).collect();
        pieces.sort_unstable();
        Self(digest(pieces))
    }
}

/// The pieces of a name before, between and after the names of the dataset in it.
fn between<'a>(mut name: &'a [u8], dataset: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while let Some(at) = name.windows(dataset.len().max(1)).position(|part| part == dataset) {
        pieces.push(&name[..at]);
        name = &name[at + dataset.len()..];
    }
    pieces.push(name);
    pieces
}

/// Whether a run that died has left it, and it is a claim. Another job of the allocation may be at work there, and holds the
/// filemaps that its claims lead to.
pub(super) fn is_left_claim(files: &dyn Files, path: &Path) -> bool {
    is_named(path, CLAIM) && !Journal::is_held(files, path)
}

/// Two names with one digest do not occur, nor two patterns.
fn digest(of: impl Hash) -> u128 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let half = |salt: u8| u128::from(hasher.hash_one((salt, &of)));
    half(0) << 64 | half(1)
}

const CLAIM: &str = ".claim_";

#[cfg(test)]
mod tests {
    use super::*;
    use scr_comm::thread::run;

    #[test]
    fn a_name_that_two_ranks_have_claimed_is_found_once() {
        for (ranks, names, expected) in [
            (4, (|rank| vec![format!("a/{rank}"), format!("b/{rank}")]) as fn(u32) -> Vec<String>, 0),
            (4, |rank| vec![format!("a/{}", rank.min(2))], 1),
            (5, |_| vec!["a".to_owned(), "b".to_owned()], 8),
            (1, |_| vec!["a".to_owned()], 0),
        ] {
            let found = run(ranks, |comm| {
                let mine: Vec<FileName> =
                    names(comm.rank().0).iter().map(|name| name.parse().unwrap()).collect();
                clashes(&comm, mine.iter()).unwrap()
            });
            assert_eq!(found.unwrap().iter().sum::<u64>(), expected);
        }
    }

    #[test]
    fn a_pattern_is_that_of_another_dataset_where_only_the_name_of_the_dataset_differs() {
        let pattern = |names: &[&str], dataset: &str| {
            let names: Vec<FileName> = names.iter().map(|name| name.parse().unwrap()).collect();
            NamePattern::of(names.iter(), dataset.as_bytes())
        };
        let first = pattern(&["ckpt.1/a.ckpt.1", "log"], "ckpt.1");
        assert_eq!(
            pattern(&["log", "ckpt.2/a.ckpt.2"], "ckpt.2"),
            first,
            "in whichever order they are routed"
        );
        assert_eq!(pattern(&["ckpt.10/a.ckpt.10", "log"], "ckpt.10"), first);
        for (names, dataset) in [
            (&["ckpt.2/b.ckpt.2", "log"] as &[&str], "ckpt.2"),
            (&["ckpt.2/a.ckpt.1", "log"], "ckpt.2"),
            (&["ckpt.1/a.ckpt.1", "log"], "ckpt.2"),
            (&["ckpt.2/a.ckpt.2"], "ckpt.2"),
            (&["ckpt.2/a.ckpt.2lo", "g"], "ckpt.2"),
            (&["ckpt.2/a.", "log"], "ckpt.2"),
            (&["ckpt.2/a.ckpt.2", "log", "log2"], "ckpt.2"),
        ] {
            assert_ne!(pattern(names, dataset), first, "{names:?} {dataset}");
        }
        assert_ne!(pattern(&["aDb"], "D"), pattern(&["a", "b"], "D"));
    }
}
