//! Which rank makes and syncs a folder for all, and whether two ranks mean the same file.
//!
//! The checksum of a name, or of a folder, selects the rank that all others ask about it. So no rank receives all names, and it
//! takes two rounds for any number of names.

use crate::typed::route_values;
use scr_comm::collective::{all_reduce, Op};
use scr_comm::{Comm, CommError, Rank};
use scr_prefix::{FileName, PrefixFile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Checksums of files.
pub(crate) type Sums = BTreeMap<FileName, u32>;

/// The answer that this rank gets.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderOwners {
    /// The folders that this rank makes and syncs; `None` is the prefix directory itself.
    pub(crate) folders: BTreeSet<Option<FileName>>,
    /// Those of them that a file lies in, and not only another folder.
    pub(crate) with_files: BTreeSet<Option<FileName>>,
    /// Names of this rank that another rank has too, and which: for the first rank that has it any other, for the
    /// others the first.
    pub(crate) shared: BTreeMap<FileName, Rank>,
    /// Checksums that another rank knows of files that this rank has without one.
    pub(crate) sums: Sums,
    /// A name under which this rank has another file than the first rank that has it, and which that is.
    pub(crate) differing: Option<(FileName, Rank)>,
    /// A name under which this rank has a file and another one files in a folder, and which that is.
    pub(crate) is_folder: Option<(FileName, Rank)>,
    /// Two names, one of them of this rank, that differ in case only.
    pub(crate) twins: Option<[FileName; 2]>,
    /// The names, of any rank, that other ranks ask this rank about.
    #[serde(skip)]
    pub(crate) asked: HashSet<FileName>,
}

/// What a rank asks another one about: files, with what it knows of them, and folders, each with whether a file lies in it and not
/// only another folder. `None` is the prefix directory itself.
#[derive(Default, Serialize, Deserialize)]
struct Question {
    files: Vec<PrefixFile>,
    folders: BTreeSet<(Option<FileName>, bool)>,
}

impl FolderOwners {
    /// Whether `me` is the first of the ranks that have this name.
    pub(crate) fn leads(&self, me: Rank, name: &FileName) -> bool {
        self.shared.get(name).is_none_or(|&other| me < other)
    }
}

/// Assigns each folder, up to the prefix directory, to a rank, and finds names that two ranks want to write; of those, what
/// one rank knows and another does not. All ranks call it.
pub(crate) fn assign_owners(
    comm: &dyn Comm,
    mine: impl Iterator<Item = impl Into<PrefixFile>>,
) -> Result<FolderOwners, CommError> {
    let questions = route_values(comm, &questions(comm.size(), mine))?;
    let mut owners = FolderOwners::default();
    for (_, answer) in route_values(comm, &assign(&questions))? {
        let FolderOwners { folders, with_files, shared, sums, differing, is_folder, twins, .. } = answer;
        owners.folders.extend(folders);
        owners.with_files.extend(with_files);
        owners.shared.extend(shared);
        owners.sums.extend(sums);
        owners.differing = differing.or(owners.differing);
        owners.is_folder = is_folder.or(owners.is_folder);
        owners.twins = twins.or(owners.twins);
    }
    let files = questions.into_iter().flat_map(|(_, question)| question.files);
    owners.asked = files.map(|file| file.name).collect();
    Ok(owners)
}

/// Which of some earlier assignments, of which each rank gives the names that it was asked about, share a name with these.
/// All ranks call it.
pub(crate) fn overlapping<'a>(
    comm: &dyn Comm,
    earlier: &[&HashSet<FileName>],
    mine: impl Iterator<Item = &'a FileName>,
) -> Result<Vec<usize>, CommError> {
    let questions = route_values(comm, &questions(comm.size(), mine))?;
    let files = || questions.iter().flat_map(|(_, question)| &question.files);
    let shares = |asked: &HashSet<FileName>| files().any(|file| asked.contains(&file.name));
    let shared: Vec<u64> = earlier.iter().map(|asked| u64::from(shares(asked))).collect();
    let shared = all_reduce(comm, shared, Op::Max)?;
    Ok((0..shared.len()).filter(|&place| shared[place] > 0).collect())
}

fn questions(size: u32, mine: impl Iterator<Item = impl Into<PrefixFile>>) -> Vec<(Rank, Question)> {
    let mut to: BTreeMap<Rank, Question> = BTreeMap::new();
    let asked = |key: &[u8]| Rank(crc32fast::hash(folded(key).as_bytes()) % size);
    for file in mine.map(Into::into) {
        let folders = file.name.folders().map(Some).chain([None]);
        for (height, folder) in folders.enumerate() {
            let rank = asked(folder.as_ref().map_or(b"", FileName::as_bytes));
            to.entry(rank).or_default().folders.insert((folder, height == 0));
        }
        to.entry(asked(file.name.as_bytes())).or_default().files.push(file);
    }
    to.into_iter().collect()
}

/// The same for names that differ in case only.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}

/// The first rank gets the folder; of two that want a name each learns of the other, and what that one knows.
fn assign(asked: &[(Rank, Question)]) -> Vec<(Rank, FolderOwners)> {
    // The first rank that has a file, and what all together know of it.
    let mut writers: HashMap<&FileName, (Rank, Option<u64>, Option<u32>)> = HashMap::new();
    let mut folders: BTreeMap<&Option<FileName>, Rank> = BTreeMap::new();
    let mut to: BTreeMap<Rank, FolderOwners> = BTreeMap::new();
    for (from, question) in asked {
        for PrefixFile { name, bytes, crc } in &question.files {
            let Some((first, known_bytes, known_crc)) = writers.get_mut(name) else {
                writers.insert(name, (*from, *bytes, *crc));
                continue;
            };
            let answer = to.entry(*from).or_default();
            answer.shared.insert(name.clone(), *first);
            if differ(*bytes, *known_bytes) || differ(*crc, *known_crc) {
                answer.differing = Some((name.clone(), *first));
            }
            *known_crc = known_crc.or(*crc);
            to.entry(*first).or_default().shared.insert(name.clone(), *from);
        }
        for (folder, has_files) in &question.folders {
            let answer = to.entry(*folders.entry(folder).or_insert(*from)).or_default();
            answer.folders.insert(folder.clone());
            answer.with_files.extend(has_files.then(|| folder.clone()));
        }
    }
    let mut known = HashMap::new();
    for (&name, &(first, ..)) in &writers {
        if let Some(other) = known.insert(folded(name.as_bytes()), name) {
            to.entry(first).or_default().twins = Some([name.clone(), other.clone()]);
        }
        if let Some(&other) = folders.get(&Some(name.clone())) {
            to.entry(first).or_default().is_folder = Some((name.clone(), other));
        }
    }
    for (from, question) in asked {
        for PrefixFile { name, .. } in question.files.iter().filter(|file| file.crc.is_none()) {
            let crc = writers.get(name).and_then(|(.., crc)| *crc);
            crc.into_iter().for_each(|crc| _ = to.entry(*from).or_default().sums.insert(name.clone(), crc));
        }
    }
    to.into_iter().collect()
}

fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_comm::thread::run;

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
            let with_files: BTreeSet<_> = all.iter().flat_map(|owners| owners.with_files.clone()).collect();
            assert_eq!(with_files, expected.into_iter().collect());
            assert!(all.iter().all(|owners| owners.shared.is_empty()));
        }
    }

    #[test]
    fn a_folder_that_has_files_is_told_from_one_that_has_only_folders() {
        let all = owners_of(4, |rank| vec![format!("a/{}/{rank}", rank / 2)]);
        let with_files: BTreeSet<_> = all.iter().flat_map(|owners| owners.with_files.clone()).collect();
        assert_eq!(with_files, ["a/0", "a/1"].map(|name| Some(name.parse().unwrap())).into());
    }

    #[test]
    fn two_writers_of_one_file_learn_of_each_other() {
        let all = owners_of(4, |rank| vec![format!("a/{}", rank.min(2))]);
        let other = |rank: usize| all[rank].shared.get(&"a/2".parse::<FileName>().unwrap()).copied();
        assert_eq!([other(0), other(1), other(2), other(3)], [None, None, Some(Rank(3)), Some(Rank(2))]);
        let leads = |rank: usize| all[rank].leads(Rank(rank as u32), &"a/2".parse().unwrap());
        assert!(leads(2) && !leads(3) && all[0].leads(Rank(0), &"a/0".parse().unwrap()));
    }

    #[test]
    fn what_one_rank_knows_of_a_shared_file_the_others_learn_and_a_contradiction_is_found() {
        let all = run(4, |comm| {
            let me = comm.rank();
            let name = |text: &str| text.parse::<FileName>().unwrap();
            let shared = PrefixFile { name: name("s"), bytes: Some(5), crc: (me == Rank(2)).then_some(77) };
            let own = PrefixFile { name: name(&format!("a{me}")), bytes: Some(1), crc: None };
            let torn = PrefixFile { name: name("t"), bytes: Some(u64::from(me.0 / 3)), crc: None };
            assign_owners(&comm, [shared, own, torn].into_iter()).unwrap()
        });
        for (rank, owners) in (0..).map(Rank).zip(all.unwrap()) {
            let sums: Vec<_> = owners.sums.iter().map(|(name, crc)| (name.to_string(), *crc)).collect();
            let expected = if rank == Rank(2) { vec![] } else { vec![("s".to_owned(), 77)] };
            assert_eq!(sums, expected, "{rank}");
            let torn = (rank == Rank(3)).then(|| ("t".parse().unwrap(), Rank(0)));
            assert_eq!(owners.differing, torn, "{rank}");
        }
    }

    #[test]
    fn a_file_that_has_the_name_of_a_folder_of_others_is_found() {
        let all = owners_of(4, |rank| if rank == 2 { vec!["a".into()] } else { vec![format!("a/b/{rank}")] });
        let found: Vec<_> = all.into_iter().map(|owners| owners.is_folder).collect();
        assert_eq!(found, [None, None, Some(("a".parse().unwrap(), Rank(0))), None]);
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
