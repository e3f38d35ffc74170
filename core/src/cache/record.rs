//! All metadata of one rank's part of one dataset: everything that is needed to restore it.
//!
//! The record is in the rank's own filemap and, since that may be lost with its node, in the filemaps of as many neighbours as
//! the scheme survives losses.

use crate::job::Job;
use scr_comm::Rank;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use scr_prefix::{
    as_text, packed, DatasetDescriptor, FileName, PrefixFile, PrefixId, RestartPoint, Seq, RANKS,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One rank's part of one dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RankRecord {
    /// The descriptor of the whole dataset, as the prefix directory has it. A filemap has the two ids the other way round.
    pub dataset: DatasetDescriptor,
    /// The id of its folder in cache: another one than that of the dataset where that was taken when it was fetched.
    #[serde(rename = "id_in_prefix")]
    pub cache_id: u64,
    /// The number of ranks of the run that reads it in place, where another number wrote it. No other run uses such a record.
    pub(crate) read_by: Option<u32>,
    /// When it was put into cache, in microseconds since the epoch: a dataset that is fetched twice is not mixed up.
    pub(crate) begun: u64,
    /// The prefix directory it belongs to, absolute.
    #[serde(with = "as_text")]
    pub prefix: Vec<u8>,
    /// The random id of that one, where it had any: another directory may have its path by now.
    pub(crate) prefix_id: Option<PrefixId>,
    /// The rank that wrote this part.
    pub rank: Rank,
    /// The node it was written on.
    pub(crate) node: String,
    /// How it is stored and protected.
    pub protection: Protection,
    /// The ranks of its redundancy set, in order.
    pub members: Vec<Rank>,
    /// The node that each of them wrote on, so that a message can name the node of a rank of which nothing is left.
    pub(crate) nodes: Vec<String>,
    /// Its files, in the order in which they were routed.
    pub files: Vec<FileRecord>,
    /// Its redundancy file, where the scheme keeps one.
    pub redundancy: Option<RedundancyRecord>,
    /// While the part is local, which means that its scheme has not protected it yet: the boot of the machine that may have bytes
    /// of it in memory only. Empty where the end of a machine takes nothing, or that is not known.
    pub local: Option<String>,
}

/// One dataset among all that were ever in cache: two may have one id where ids could not be reserved, and a dataset may be
/// fetched more than once, so the time when it was put there belongs to it. A newer one is higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatasetKey {
    /// Number of the run that wrote it.
    pub(crate) run: u64,
    /// Its id in cache.
    pub(crate) id: u64,
    /// When it was begun, in microseconds since the epoch.
    pub(crate) begun: u64,
    /// Its id in the prefix directory.
    pub(crate) dataset: u64,
}

impl DatasetKey {
    pub fn of(record: &RankRecord) -> Self {
        let DatasetDescriptor { run, id: dataset, .. } = record.dataset;
        Self { run, id: record.cache_id, begun: record.begun, dataset }
    }

    /// The place of the dataset.
    pub(crate) fn seq(&self) -> Seq {
        Seq { run: self.run, id: self.dataset }
    }
}

/// How a dataset is stored and protected, as it was when it was written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Protection {
    /// The scheme's name, as in `TYPE=`.
    pub scheme: String,
    /// On-disk format of the redundancy.
    pub(crate) format: u32,
    /// Version of the plugin that wrote it.
    pub(crate) version: String,
    /// The scheme's options, complete.
    #[serde(with = "packed")]
    pub(crate) options: KvTree,
    /// The store's name: its base as it was configured, before variables are expanded.
    pub(crate) store: String,
    /// Whether the files lie in the prefix directory instead of in cache.
    pub bypass: bool,
}

/// One file of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name.
    pub name: FileName,
    /// Length.
    pub bytes: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Time of the last change: seconds and nanoseconds since the epoch.
    pub(crate) mtime: (i64, u32),
    /// Checksum, where one was taken.
    pub crc: Option<u32>,
}

impl FileRecord {
    /// Whether only its time shows that nobody has written to it since the dataset was complete: it has no checksum.
    pub(crate) fn is_known_by_time(&self) -> bool {
        self.crc.is_none() && self.mtime != (0, 0)
    }
}

/// A rank's redundancy file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedundancyRecord {
    /// Length.
    pub bytes: u64,
    /// Checksum.
    pub crc: u32,
}

/// That a dataset was written by another number of ranks than this run has.
pub(crate) fn of_other_size(label: &str, found: impl Display, expected: u32) -> String {
    format!("{label} was written by {found} ranks, and this run has {expected}")
}

impl RankRecord {
    /// This rank's part of a dataset that is about to begin, in a redundancy set of these ranks and nodes.
    pub(crate) fn begun(
        job: &Job,
        dataset: DatasetDescriptor,
        protection: Protection,
        (members, nodes): (Vec<Rank>, Vec<String>),
    ) -> Self {
        Self {
            cache_id: dataset.id,
            read_by: None,
            begun: dataset.created,
            dataset,
            prefix: job.prefix_bytes().to_vec(),
            prefix_id: job.run.prefix.clone(),
            rank: job.rank(),
            node: job.nodes.name(job.rank()).to_owned(),
            protection,
            members,
            nodes,
            files: Vec::new(),
            redundancy: None,
            local: None,
        }
    }

    /// Its place among all datasets of its prefix directory.
    pub(crate) fn seq(&self) -> Seq {
        self.dataset.seq()
    }

    /// Whether it is of the same dataset, which may be in cache more than once.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        self.seq() == other.seq() && self.dataset.name == other.dataset.name
    }

    /// As what a job may restart from.
    pub fn restart_point(&self) -> RestartPoint {
        self.dataset.restart_point()
    }

    /// Number of ranks that have a part of the dataset, which a record always knows.
    pub fn ranks(&self) -> u32 {
        self.read_by.or(self.dataset.ranks).unwrap_or_default()
    }

    /// Whether it was fetched from the prefix directory, and not written by the application.
    pub(crate) fn is_fetched(&self) -> bool {
        self.begun != self.dataset.created
    }

    /// The dataset as messages name it.
    pub fn label(&self) -> String {
        format!("dataset {} `{}'", self.dataset.id, String::from_utf8_lossy(&self.dataset.name))
    }

    /// The sum of the lengths of the rank's files.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Its files as the file lists of the prefix directory have them.
    pub(crate) fn listed(&self) -> Vec<PrefixFile> {
        let listed =
            |file: &FileRecord| PrefixFile { bytes: Some(file.bytes), crc: file.crc, ..(&file.name).into() };
        self.files.iter().map(listed).collect()
    }

    /// The place of a file of it in the prefix directory.
    pub(crate) fn prefix_path(&self, file: &FileRecord) -> PathBuf {
        file.name.below(Path::new(OsStr::from_bytes(&self.prefix)))
    }

    /// A member of the set as messages name it.
    pub(crate) fn member_name(&self, member: Rank) -> String {
        let place = self.members.iter().position(|&known| known == member);
        match place.and_then(|place| self.nodes.get(place)) {
            Some(node) => format!("{member} (written on {node})"),
            None => member.to_string(),
        }
    }

    /// As a tree, to be kept.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set_json(RECORD, self);
        tree
    }

    /// From a tree. One of an earlier release is refused.
    ///
    /// # Errors
    /// Names the field that is missing or malformed.
    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        tree.json(RECORD)
    }

    /// The conditions between the fields, so that nothing that uses them needs to ask again.
    fn check(&self) -> Result<(), FieldError> {
        if let Err(error) =
            self.files.iter().try_for_each(|file| FileName::parse(file.name.as_bytes()).map(drop))
        {
            // A record with a name that leads elsewhere is damaged as a whole.
            return Err(FieldError::malformed(
                "FILE",
                &error.name,
                "the name of a file below the prefix directory",
            ));
        }
        if let Some(id) = self.prefix_id.as_ref().filter(|id| PrefixId::parse(&id.to_string()).is_none()) {
            // It would match any directory at that path.
            let expected = "the random id of a prefix directory";
            return Err(FieldError::malformed("PREFIX_RANDOM_ID", id.to_string(), expected));
        }
        let total = self.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes));
        if total.is_none() {
            return Err(FieldError::malformed("FILE", "more bytes than can be", "a set of files"));
        }
        if self.dataset.ranks.is_none() {
            return Err(FieldError::Missing { key: RANKS.to_owned() });
        }
        if self.rank.0 >= self.ranks() {
            return Err(FieldError::malformed("RANK", self.rank.to_string(), "a rank of that run"));
        }
        let mut sorted = self.members.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let inside = sorted.iter().all(|member| member.0 < self.ranks());
        // Before it is protected, a part has no set yet.
        let listed = self.members.is_empty() || self.members.contains(&self.rank);
        let placed = self.nodes.is_empty() || self.nodes.len() == self.members.len();
        if !inside || !listed || !placed || sorted.len() != self.members.len() {
            return Err(FieldError::malformed(
                "SET",
                format!("{:?}", self.members),
                "a list of different ranks with this one, and of their nodes",
            ));
        }
        Ok(())
    }
}

/// Nothing gets a record that contradicts itself.
impl<'de> Deserialize<'de> for RankRecord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut record = Self::deserialize(from)?;
        std::mem::swap(&mut record.dataset.id, &mut record.cache_id);
        record.check().map_err(D::Error::custom)?;
        Ok(record)
    }
}

impl Serialize for RankRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut record = self.clone();
        std::mem::swap(&mut record.dataset.id, &mut record.cache_id);
        Self::serialize(&record, to)
    }
}

/// The one key of its tree. An earlier release had many.
const RECORD: &str = "RANK_RECORD";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample(rank: u32) -> RankRecord {
        RankRecord {
            dataset: DatasetDescriptor {
                id: 7,
                name: b"ckpt.7".to_vec(),
                ranks: Some(4),
                ..Default::default()
            },
            cache_id: 7,
            read_by: None,
            begun: 1_000_000,
            prefix: b"/pfs/user1/run".to_vec(),
            prefix_id: PrefixId::parse(&"0af1".repeat(8)),
            rank: Rank(rank),
            node: "n1".to_owned(),
            protection: Protection {
                scheme: "XOR".to_owned(),
                format: 1,
                version: "1.0.0".to_owned(),
                options: KvTree::new(),
                store: "/dev/shm/$NODE".to_owned(),
                bypass: false,
            },
            members: (0..4).map(Rank).collect(),
            nodes: (0..4).map(|node| format!("n{node}")).collect(),
            files: vec![FileRecord {
                name: "ckpt.7/rank_0".parse().unwrap(),
                bytes: 12,
                mode: 0o100_640,
                mtime: (17, 5),
                crc: Some(0xdead_beef),
            }],
            redundancy: Some(RedundancyRecord { bytes: 99, crc: 1 }),
            local: None,
        }
    }

    #[test]
    fn a_record_comes_back_from_its_tree() {
        let mut record = sample(2);
        assert_eq!(RankRecord::from_tree(&record.to_tree()), Ok(record.clone()));
        (record.cache_id, record.dataset.run, record.prefix_id) = (3, 5, None);
        (record.read_by, record.local) = (Some(6), Some("a boot".to_owned()));
        assert_eq!(RankRecord::from_tree(&record.to_tree()), Ok(record));
    }

    #[test]
    fn a_record_that_contradicts_itself_is_refused() {
        // Without nodes, which would have to be as many as the members.
        let without_nodes = || RankRecord { nodes: Vec::new(), ..sample(1) };
        assert_eq!(RankRecord::from_tree(&without_nodes().to_tree()), Ok(without_nodes()));
        let broken = |change: fn(&mut RankRecord)| {
            let mut record = without_nodes();
            change(&mut record);
            RankRecord::from_tree(&record.to_tree()).expect_err("it must be refused").to_string()
        };
        assert!(broken(|record| record.dataset.ranks = Some(1)).contains("RANK"));
        assert!(
            broken(|record| record.files[0].name = FileName::from_rank(b".scr/x").unwrap()).contains("FILE")
        );
        let mut tree = sample(1).to_tree();
        tree.set(RECORD, tree.text(RECORD).unwrap().replace("0af1", "0AF1"));
        assert!(RankRecord::from_tree(&tree).unwrap_err().to_string().contains("PREFIX_RANDOM_ID"));
        assert!(broken(|record| record.nodes = sample(1).nodes[1..].to_vec()).contains("SET"));
        assert!(broken(|record| record.members = vec![Rank(0), Rank(2)]).contains("SET"));
        assert!(broken(|record| record.members = vec![Rank(1), Rank(1)]).contains("SET"));
        assert!(broken(|record| record.members = vec![Rank(1), Rank(9)]).contains("SET"));
        assert!(broken(|record| record.members = vec![Rank(1), Rank(4)]).contains("SET"));
        assert!(broken(|record| {
            let mut second = record.files[0].clone();
            second.name = "other".parse().unwrap();
            second.bytes = u64::MAX;
            record.files.push(second);
        })
        .contains("FILE"));
    }
}
