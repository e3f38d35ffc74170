//! The descriptor of a dataset in the index, in summaries, in the flush file and in cache.

use super::fields::{as_text, flag, set_flag, set_or_remove, set_text};
use super::Withdrawal;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use serde::{Deserialize, Serialize};

/// The place of a dataset among all datasets of a prefix directory: by the run that wrote it, and then by its id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seq {
    /// Number of the run, 0 where it is not known.
    pub run: u64,
    /// Id of the dataset.
    pub id: u64,
}

impl Seq {
    pub(crate) fn read(tree: &KvTree) -> Option<Self> {
        Some(Self { run: tree.require("RUN").ok()?, id: tree.require("ID").ok()? })
    }

    pub(crate) fn write(self, tree: &mut KvTree) {
        tree.set("RUN", self.run);
        tree.set("ID", self.id);
    }
}

/// A checkpoint as what a job may restart from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestartPoint {
    /// Its place.
    pub seq: Seq,
    /// Number of ranks that wrote it, where that is known.
    pub ranks: Option<u32>,
    /// Whether a job of any number of ranks can restart from it.
    pub any_ranks: bool,
}

impl RestartPoint {
    /// Whether a job that could restart from `older` has no need of that one, as it can restart from this one. A job restarts
    /// only from what as many ranks wrote, unless its application has said that it can do more.
    pub fn replaces(self, older: Self) -> bool {
        let is_for_it = self.any_ranks || self.ranks.zip(older.ranks).is_none_or(|(own, other)| own == other);
        self.seq >= older.seq && is_for_it
    }
}

/// The places after one and before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    pub after: Seq,
    pub before: Seq,
}

impl Between {
    /// Whether this place is one of them.
    pub fn has(self, seq: Seq) -> bool {
        self.after < seq && seq < self.before
    }
}

/// The descriptor of a dataset. Empty texts are not written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetDescriptor {
    /// Its number.
    pub id: u64,
    /// Number of the run that wrote it, 0 where it is not known: C SCR does not number runs.
    pub run: u64,
    /// Its name, any bytes without NUL.
    #[serde(with = "as_text")]
    pub name: Vec<u8>,
    /// Whether a job can restart from it.
    pub checkpoint: bool,
    /// Whether it is output that the user wants kept.
    pub output: bool,
    /// When it was started: microseconds since the epoch, 0 where it is not known.
    pub created: u64,
    /// The user who ran the job.
    pub user: String,
    /// Name of the job.
    pub job_name: String,
    /// Id of the allocation.
    pub job_id: String,
    /// The cluster on which it ran.
    pub cluster: String,
    /// Its number among the checkpoints, where it is one.
    pub checkpoint_id: Option<u64>,
    /// Number of ranks that wrote it, where it is known: C SCR does not say.
    pub ranks: Option<u32>,
    /// Whether the application can restart from it with any number of ranks.
    pub any_ranks: bool,
    /// Number of files of all ranks, once it is complete.
    pub files: Option<u64>,
    /// Bytes in all of them.
    pub bytes: Option<u64>,
    /// Whether every rank wrote its files well, once that is known.
    pub complete: Option<bool>,
    /// Whether its files lie in containers, in the prefix directory.
    pub aggregated: bool,
}

impl DatasetDescriptor {
    /// Its name, for people.
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Whether it is a checkpoint, and not output that the user wants kept besides.
    pub fn is_only_checkpoint(&self) -> bool {
        self.checkpoint && !self.output
    }

    /// What it means that somebody has gone back over it. Output has to arrive all the same, and output that is no checkpoint stays
    /// as it is.
    pub fn if_gone_back_over(&self) -> Option<Withdrawal> {
        let why = if self.output { Withdrawal::Refused } else { Withdrawal::Removed };
        self.checkpoint.then_some(why)
    }

    /// Whether a dataset that has the same number is this one. Two may have been given one number, and even one name.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_time = self.created == other.created || self.created == 0 || other.created == 0;
        self.name == other.name && is_same_time
    }

    /// Its place among all datasets of its prefix directory.
    pub fn seq(&self) -> Seq {
        Seq { run: self.run, id: self.id }
    }

    /// As what a job may restart from.
    pub fn restart_point(&self) -> RestartPoint {
        RestartPoint { seq: self.seq(), ranks: self.ranks, any_ranks: self.any_ranks }
    }

    /// As a tree, in C SCR's order.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        self.write_into(&mut tree);
        tree
    }

    /// Sets every field in `tree`, and keeps other keys.
    pub fn write_into(&self, tree: &mut KvTree) {
        tree.set("ID", self.id);
        tree.set_bytes("NAME", &self.name);
        set_flag(tree, "FLAG_CKPT", self.checkpoint);
        set_flag(tree, "FLAG_OUTPUT", self.output);
        tree.set("CREATED", self.created);
        set_text(tree, "USER", &self.user);
        set_text(tree, "JOBNAME", &self.job_name);
        set_text(tree, "JOBID", &self.job_id);
        set_text(tree, "CLUSTER", &self.cluster);
        set_or_remove(tree, "CKPT", self.checkpoint_id);
        set_or_remove(tree, "FILES", self.files);
        set_or_remove(tree, "SIZE", self.bytes);
        set_or_remove(tree, "COMPLETE", self.complete.map(u8::from));
        set_or_remove(tree, RANKS, self.ranks);
        set_or_remove(tree, ANY_RANKS, self.any_ranks.then_some(1));
        set_or_remove(tree, AGGREGATED, self.aggregated.then_some(1));
        if self.run > 0 {
            tree.set(RUN, self.run);
        }
    }

    /// From a tree; only the id and the name must be there.
    ///
    /// # Errors
    /// Names the field that is missing or malformed.
    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        let text = |key| tree.parse::<String>(key).map(Option::unwrap_or_default);
        let name = tree.value("NAME").ok_or_else(|| FieldError::Missing { key: "NAME".to_owned() })?;
        let checkpoint_id = tree.parse("CKPT")?;
        Ok(Self {
            id: tree.require("ID")?,
            name: name.to_vec(),
            checkpoint: flag(tree, "FLAG_CKPT")?.unwrap_or(checkpoint_id.is_some()),
            output: flag(tree, "FLAG_OUTPUT")?.unwrap_or(false),
            created: tree.parse("CREATED")?.unwrap_or(0),
            user: text("USER")?,
            job_name: text("JOBNAME")?,
            job_id: text("JOBID")?,
            cluster: text("CLUSTER")?,
            checkpoint_id,
            ranks: tree.parse(RANKS)?,
            any_ranks: flag(tree, ANY_RANKS)?.unwrap_or(false),
            files: tree.parse("FILES")?,
            bytes: tree.parse("SIZE")?,
            complete: flag(tree, "COMPLETE")?,
            run: tree.parse(RUN)?.unwrap_or(0),
            aggregated: flag(tree, AGGREGATED)?.unwrap_or(false),
        })
    }
}

/// C SCR writes none of these keys.
pub(super) const RUN: &str = "RUN";
pub const RANKS: &str = "RANKS";
const ANY_RANKS: &str = "ANY_RANKS";
const AGGREGATED: &str = "AGGREGATED";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scratch_copy, tree};

    #[test]
    fn a_descriptor_of_c_scr_comes_back_to_the_byte() {
        let (_dir, prefix) = scratch_copy("xor-flush2");
        let summary = tree(prefix.summary_file(4));
        let theirs = summary.get("DSET").unwrap();
        let ours = DatasetDescriptor::from_tree(theirs).unwrap();
        assert_eq!((ours.id, ours.name.as_slice(), ours.checkpoint), (4, &b"ckpt.4"[..], true));
        assert_eq!((ours.files, ours.bytes, ours.complete), (Some(4), Some(8226), Some(true)));
        assert_eq!((ours.user.as_str(), ours.job_id.as_str()), ("user1", "5132"));
        assert_eq!(ours.to_tree().pack(), theirs.pack());
    }

    #[test]
    fn any_descriptor_comes_back_and_keys_of_others_stay() {
        let descriptor = DatasetDescriptor {
            id: u64::MAX,
            run: 3,
            name: b"a b\xff/c".to_vec(),
            output: true,
            job_name: "run".to_owned(),
            cluster: "hype".to_owned(),
            ranks: Some(u32::MAX),
            any_ranks: true,
            complete: Some(false),
            ..DatasetDescriptor::default()
        };
        assert_eq!(DatasetDescriptor::from_tree(&descriptor.to_tree()), Ok(descriptor.clone()));
        let mut tree = KvTree::new();
        tree.set("CKPT", 5);
        tree.set("NEW", "kept");
        descriptor.write_into(&mut tree);
        assert_eq!((tree.text("NEW"), tree.has("CKPT")), (Some("kept"), false));
    }

    #[test]
    fn a_field_that_is_wrong_is_named() {
        let good = DatasetDescriptor { name: b"a".to_vec(), ..DatasetDescriptor::default() }.to_tree();
        for key in
            ["RUN", "ID", "CREATED", "CKPT", "RANKS", "FILES", "SIZE", "COMPLETE", "FLAG_CKPT", "FLAG_OUTPUT"]
        {
            for value in ["", "x", "1.5", "99999999999999999999"] {
                let mut tree = good.clone();
                tree.set(key, value);
                let error = DatasetDescriptor::from_tree(&tree).unwrap_err().to_string();
                assert!(error.contains(key), "{error}");
            }
        }
        for key in ["ID", "NAME"] {
            let mut tree = good.clone();
            tree.remove(key);
            assert!(DatasetDescriptor::from_tree(&tree).is_err(), "{key}");
        }
    }
}
