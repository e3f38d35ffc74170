//! Which rank makes and syncs a folder for all, and whether two ranks mean the same file.
//!
//! The checksum of a name, or of a folder, selects the rank that all others ask about it. So no rank receives all names, and it
//! takes two rounds for any number of names.

use crate::comm::collective::{all_reduce, route_trees, Op};
use crate::comm::{Comm, CommError, Rank};
use crate::prefix::FileName;
use scr_plugin_api::KvTree;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The answer that this rank gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderOwners {
    /// The folders that this rank makes and syncs; `None` is the prefix directory itself.
    pub(crate) folders: Vec<Option<FileName>>,
    /// Names of this rank that another rank has too, and which: for the first rank that has it any other, for the
    /// others the first.
    pub(crate) shared: BTreeMap<FileName, Rank>,
    /// The names, of any rank, that other ranks ask this rank about.
    pub(crate) asked: HashSet<Vec<u8>>,
}

impl FolderOwners {
    /// Whether `me` is the first of the ranks that have this name.
    pub(crate) fn leads(&self, me: Rank, name: &FileName) -> bool {
        self.shared.get(name).is_none_or(|&other| me < other)
    }
}

/// Assigns each folder, up to the prefix directory, to a rank, and finds names that two ranks want to write. All ranks
/// call it.
pub(crate) fn assign_owners<'a>(
    comm: &dyn Comm,
    mine: impl Iterator<Item = &'a FileName>,
) -> Result<FolderOwners, CommError> {
    let questions = route_trees(comm, questions(comm.size(), mine))?;
    let answers = assign(&questions);
    let asked = questions.iter().flat_map(|(_, question)| names_in(question)).map(<[u8]>::to_vec).collect();
    let mut owners = FolderOwners { asked, ..FolderOwners::default() };
    for (from, answer) in route_trees(comm, answers)? {
        let name = |name: &[u8]| {
            FileName::parse(name).map_err(|_| CommError::Malformed { from, what: "the name of a file" })
        };
        for folder in answer.get(FOLDER).into_iter().flat_map(KvTree::keys) {
            owners.folders.push(if folder.is_empty() { None } else { Some(name(folder)?) });
        }
        for (shared, other) in answer.get(NAME).into_iter().flat_map(KvTree::iter) {
            if let Some(other) = other.keys_as().next() {
                owners.shared.insert(name(shared)?, Rank(other));
            }
        }
    }
    Ok(owners)
}

/// Which of some earlier assignments, of which each rank gives the names that it was asked about, share a name with these.
/// All ranks call it.
pub(crate) fn overlapping<'a>(
    comm: &dyn Comm,
    earlier: &[&HashSet<Vec<u8>>],
    mine: impl Iterator<Item = &'a FileName>,
) -> Result<Vec<usize>, CommError> {
    let questions = route_trees(comm, questions(comm.size(), mine))?;
    let shares = |asked: &HashSet<Vec<u8>>| {
        questions.iter().flat_map(|(_, question)| names_in(question)).any(|name| asked.contains(name))
    };
    let mut shared: Vec<u64> = earlier.iter().map(|asked| u64::from(shares(asked))).collect();
    all_reduce(comm, &mut shared, Op::Max)?;
    Ok((0..shared.len()).filter(|&place| shared[place] > 0).collect())
}

fn names_in(question: &KvTree) -> impl Iterator<Item = &[u8]> {
    question.get(NAME).into_iter().flat_map(KvTree::keys)
}

const NAME: &str = "NAME";
/// The empty name, the prefix directory itself, stands for itself as a key.
const FOLDER: &str = "FOLDER";

fn questions<'a>(size: u32, mine: impl Iterator<Item = &'a FileName>) -> Vec<(Rank, KvTree)> {
    let mut to: BTreeMap<Rank, KvTree> = BTreeMap::new();
    let asked = |key: &[u8]| Rank(crc32fast::hash(key) % size);
    for name in mine {
        to.entry(asked(name.as_bytes())).or_default().child(NAME).child(name);
        for folder in folders_above(name) {
            let folder = folder.as_ref().map_or(&b""[..], FileName::as_bytes);
            to.entry(asked(folder)).or_default().child(FOLDER).child(folder);
        }
    }
    to.into_iter().collect()
}

/// The folders that a file lies in, from the nearest one up to the prefix directory.
fn folders_above(name: &FileName) -> impl Iterator<Item = Option<FileName>> {
    name.folders().map(Some).chain([None])
}

/// The first rank gets the folder; of two that want a name each learns of the other.
fn assign(asked: &[(Rank, KvTree)]) -> Vec<(Rank, KvTree)> {
    let mut writers: HashMap<&[u8], Rank> = HashMap::new();
    let mut folders: BTreeSet<&[u8]> = BTreeSet::new();
    let mut to: BTreeMap<Rank, KvTree> = BTreeMap::new();
    for (from, question) in asked {
        for name in names_in(question) {
            if let Some(&other) = writers.get(name) {
                to.entry(*from).or_default().child(NAME).set(name, other);
                to.entry(other).or_default().child(NAME).set(name, from);
            } else {
                writers.insert(name, *from);
            }
        }
        for folder in question.get(FOLDER).into_iter().flat_map(KvTree::keys) {
            if folders.insert(folder) {
                to.entry(*from).or_default().child(FOLDER).child(folder);
            }
        }
    }
    to.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::thread::run;

    fn owners_of(ranks: u32, names: impl Fn(u32) -> Vec<String> + Sync) -> Vec<FolderOwners> {
        run(ranks, |comm| {
            let mine: Vec<FileName> = names(comm.rank().0).iter().map(|name| name.parse().unwrap()).collect();
            assign_owners(&comm, mine.iter()).unwrap()
        })
        .unwrap()
    }

    #[test]
    fn every_folder_has_exactly_one_rank() {
        for ranks in [1, 2, 5, 16] {
            let all = owners_of(ranks, |rank| {
                vec![format!("a/{rank}"), format!("b{}/{rank}", rank % 3), format!("top{rank}")]
            });
            let mut folders: Vec<_> = all.iter().flat_map(|owners| owners.folders.clone()).collect();
            folders.sort();
            let mut expected = vec![None, Some("a".parse().unwrap())];
            expected.extend((0..ranks.min(3)).map(|number| Some(format!("b{number}").parse().unwrap())));
            assert_eq!(folders, expected);
            assert!(all.iter().all(|owners| owners.shared.is_empty()));
        }
    }

    #[test]
    fn two_writers_of_one_file_learn_of_each_other() {
        let all = owners_of(4, |rank| vec![format!("a/{}", rank.min(2))]);
        let other = |rank: usize| all[rank].shared.get(&b"a/2"[..]).copied();
        assert_eq!([other(0), other(1), other(2), other(3)], [None, None, Some(Rank(3)), Some(Rank(2))]);
        let leads = |rank: usize| all[rank].leads(Rank(rank as u32), &"a/2".parse().unwrap());
        assert!(leads(2) && !leads(3) && all[0].leads(Rank(0), &"a/0".parse().unwrap()));
    }

    #[test]
    fn assignments_that_share_a_name_are_found_whichever_ranks_have_it() {
        let found = run(4, |comm| {
            let me = comm.rank().0;
            let name = |folder: &str, number: u32| format!("{folder}/{number}").parse::<FileName>().unwrap();
            let first = assign_owners(&comm, [name("a", me)].iter()).unwrap();
            let second = assign_owners(&comm, [name("b", me)].iter()).unwrap();
            let new = [if me == 0 { name("b", 3) } else { name("c", me) }];
            overlapping(&comm, &[&first.asked, &second.asked], new.iter()).unwrap()
        });
        assert_eq!(found.unwrap(), vec![vec![1]; 4]);
    }
}
