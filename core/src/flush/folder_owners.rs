//! Which rank makes and syncs a folder for all, and whether two ranks mean the same file.
//!
//! The checksum of a name, or of a folder, selects the rank that all others ask about it. So no rank receives all names, and it
//! takes two rounds for any number of names.

use scr_comm::collective::{all_reduce, route_trees, Op};
use scr_comm::{Comm, CommError, Rank};
use scr_plugin_api::KvTree;
use scr_prefix::{FileName, PrefixFile};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The answer that this rank gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderOwners {
    /// The folders that this rank makes and syncs; `None` is the prefix directory itself.
    pub(crate) folders: Vec<Option<FileName>>,
    /// Those of them that a file lies in, and not only another folder.
    pub(crate) with_files: Vec<Option<FileName>>,
    /// Names of this rank that another rank has too, and which: for the first rank that has it any other, for the
    /// others the first.
    pub(crate) shared: BTreeMap<FileName, Rank>,
    /// Checksums that another rank knows of files that this rank has without one.
    pub(crate) sums: BTreeMap<FileName, u32>,
    /// A name under which this rank has another file than the first rank that has it, and which that is.
    pub(crate) differing: Option<(FileName, Rank)>,
    /// A name under which this rank has a file and another one files in a folder, and which that is.
    pub(crate) is_folder: Option<(FileName, Rank)>,
    /// Two names, one of them of this rank, that differ in case only.
    pub(crate) twins: Option<[FileName; 2]>,
    /// The names, of any rank, that other ranks ask this rank about.
    pub(crate) asked: HashSet<Vec<u8>>,
}

/// The knowledge about a file that a rank has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownFile<'a> {
    pub(crate) name: &'a FileName,
    pub(crate) bytes: Option<u64>,
    pub(crate) crc: Option<u32>,
}

impl<'a> From<&'a FileName> for KnownFile<'a> {
    fn from(name: &'a FileName) -> Self {
        Self { name, bytes: None, crc: None }
    }
}

impl<'a> From<&'a PrefixFile> for KnownFile<'a> {
    fn from(file: &'a PrefixFile) -> Self {
        Self { name: &file.name, bytes: file.bytes, crc: file.crc }
    }
}

impl FolderOwners {
    /// Whether `me` is the first of the ranks that have this name.
    pub(crate) fn leads(&self, me: Rank, name: &FileName) -> bool {
        self.shared.get(name).is_none_or(|&other| me < other)
    }
}

/// Assigns each folder, up to the prefix directory, to a rank, and finds names that two ranks want to write; of those, what
/// one rank knows and another does not. All ranks call it.
pub(crate) fn assign_owners<'a>(
    comm: &dyn Comm,
    mine: impl Iterator<Item = impl Into<KnownFile<'a>>>,
) -> Result<FolderOwners, CommError> {
    let questions = route_trees(comm, questions(comm.size(), mine.map(Into::into)))?;
    let answers = assign(&questions);
    let asked = questions.iter().flat_map(|(_, question)| names_in(question)).map(<[u8]>::to_vec).collect();
    let mut owners = FolderOwners { asked, ..FolderOwners::default() };
    for (from, answer) in route_trees(comm, answers)? {
        let name = |name: &[u8]| {
            FileName::from_rank(name).map_err(|_| CommError::Malformed { from, what: "the name of a file" })
        };
        for (folder, known) in answer.get(FOLDER).into_iter().flat_map(KvTree::iter) {
            let folder = if folder.is_empty() { None } else { Some(name(folder)?) };
            if known.get(FILES).is_some() {
                owners.with_files.push(folder.clone());
            }
            owners.folders.push(folder);
        }
        for (shared, other) in answer.get(NAME).into_iter().flat_map(KvTree::iter) {
            if let Some(other) = other.keys_as().next() {
                owners.shared.insert(name(shared)?, Rank(other));
            }
        }
        for (shared, crc) in answer.get(SUM).into_iter().flat_map(KvTree::iter) {
            if let Some(crc) = crc.keys_as().next() {
                owners.sums.insert(name(shared)?, crc);
            }
        }
        for (key, found) in [(DIFFERS, &mut owners.differing), (IS_FOLDER, &mut owners.is_folder)] {
            for (file, other) in answer.get(key).into_iter().flat_map(KvTree::iter) {
                *found = Some(name(file)?).zip(other.keys_as().next().map(Rank));
            }
        }
        for (one, other) in answer.get(TWIN).into_iter().flat_map(KvTree::iter) {
            if let Some(other) = other.keys().next() {
                owners.twins = Some([name(one)?, name(other)?]);
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
    let questions = route_trees(comm, questions(comm.size(), mine.map(KnownFile::from)))?;
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
const FILES: &str = "FILES";
const SUM: &str = "SUM";
const DIFFERS: &str = "DIFFERS";
const IS_FOLDER: &str = "IS_FOLDER";
const TWIN: &str = "TWIN";
/// The empty name, the prefix directory itself, stands for itself as a key.
const FOLDER: &str = "FOLDER";

fn questions<'a>(size: u32, mine: impl Iterator<Item = KnownFile<'a>>) -> Vec<(Rank, KvTree)> {
    let mut to: BTreeMap<Rank, KvTree> = BTreeMap::new();
    let asked = |key: &[u8]| Rank(crc32fast::hash(folded(key).as_bytes()) % size);
    for KnownFile { name, bytes, crc } in mine {
        let known = to.entry(asked(name.as_bytes())).or_default().child(NAME).child(name);
        bytes.into_iter().for_each(|bytes| known.set("SIZE", bytes));
        crc.into_iter().for_each(|crc| known.set("CRC", crc));
        for (height, folder) in folders_above(name).enumerate() {
            let folder = folder.as_ref().map_or(&b""[..], FileName::as_bytes);
            let known = to.entry(asked(folder)).or_default().child(FOLDER).child(folder);
            if height == 0 {
                known.child(FILES);
            }
        }
    }
    to.into_iter().collect()
}

/// The same for names that differ in case only.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}

/// The folders that a file lies in, from the nearest one up to the prefix directory.
fn folders_above(name: &FileName) -> impl Iterator<Item = Option<FileName>> {
    name.folders().map(Some).chain([None])
}

/// The first rank gets the folder; of two that want a name each learns of the other, and what that one knows.
fn assign(asked: &[(Rank, KvTree)]) -> Vec<(Rank, KvTree)> {
    let mut writers: HashMap<&[u8], Writer> = HashMap::new();
    let mut folders: BTreeMap<&[u8], Rank> = BTreeMap::new();
    let mut to: BTreeMap<Rank, KvTree> = BTreeMap::new();
    for (from, question) in asked {
        for (name, known) in files_in(question) {
            let (bytes, crc) = (number(known, "SIZE"), number(known, "CRC"));
            let Some(first) = writers.get_mut(name) else {
                writers.insert(name, Writer { rank: *from, bytes, crc });
                continue;
            };
            let answer = to.entry(*from).or_default();
            answer.child(NAME).set(name, first.rank);
            if differ(bytes, first.bytes) || differ(crc, first.crc) {
                answer.child(DIFFERS).set(name, first.rank);
            }
            first.crc = first.crc.or(crc);
            to.entry(first.rank).or_default().child(NAME).set(name, from);
        }
        for (folder, known) in question.get(FOLDER).into_iter().flat_map(KvTree::iter) {
            let first = *folders.entry(folder).or_insert(*from);
            if known.get(FILES).is_some() {
                to.entry(first).or_default().child(FOLDER).child(folder).child(FILES);
            } else if first == *from {
                to.entry(first).or_default().child(FOLDER).child(folder);
            }
        }
    }
    let mut known = HashMap::new();
    for (name, writer) in &writers {
        if let Some(other) = known.insert(folded(name), name) {
            to.entry(writer.rank).or_default().child(TWIN).set_bytes(name, other);
        }
        if let Some(other) = folders.get(name) {
            to.entry(writer.rank).or_default().child(IS_FOLDER).set(name, other);
        }
    }
    for (from, question) in asked {
        for (name, _) in files_in(question).filter(|(_, known)| number(known, "CRC").is_none()) {
            if let Some(crc) = writers.get(name).and_then(|first| first.crc) {
                to.entry(*from).or_default().child(SUM).set(name, crc);
            }
        }
    }
    to.into_iter().collect()
}

/// The first rank that has a file, and what all together know of it.
struct Writer {
    rank: Rank,
    bytes: Option<u64>,
    crc: Option<u64>,
}

fn files_in(question: &KvTree) -> impl Iterator<Item = (&[u8], &KvTree)> {
    question.get(NAME).into_iter().flat_map(KvTree::iter)
}

fn number(known: &KvTree, key: &str) -> Option<u64> {
    known.parse(key).ok().flatten()
}

fn differ(one: Option<u64>, other: Option<u64>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_comm::thread::run;
    use std::collections::BTreeSet;

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
        let other = |rank: usize| all[rank].shared.get(&b"a/2"[..]).copied();
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
            assign_owners(&comm, [&shared, &own, &torn].into_iter()).unwrap()
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
