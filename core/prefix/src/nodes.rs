//! `nodes.scr`: how many nodes the last run used, for the commands that start the next one, and what else those who look at a job
//! from outside have to know of the run.
//!
//! ```text
//! NODES/<number>
//! RUN/<JSON>
//! ```
//!
//! `RUN` is only in a file of scr. C SCR keeps it and changes the number, and then it says nothing of the last run any more.

use super::shared::{self, Shared};
use super::{Prefix, PrefixError, RestartPoint};
use scr_base::fs::{At, Durability, Files, Updated};
use scr_plugin_api::KvTree;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How many nodes the last run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes(pub u32);

/// The record that the last run made of itself when it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Its allocation.
    pub job_id: String,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Other nodes of earlier runs of the allocation, as long as it has not restarted: what those have may be the newest.
    #[serde(default)]
    pub earlier: Vec<String>,
    /// How many ranks it had.
    pub ranks: u32,
    /// Whether it could restart from what another number of ranks wrote.
    pub any_ranks: bool,
    /// When it began, in seconds since the epoch.
    pub began: i64,
    /// Every so many checkpoints one is copied to the prefix directory; 0 for none.
    pub flush_every: u64,
    /// When its allocation ends, in seconds since the epoch, as far as it knew.
    pub end: Option<i64>,
    /// The path of its prefix directory.
    #[serde(default)]
    pub prefix: Option<String>,
    /// How it has ended, unless it still runs or has died.
    #[serde(default)]
    pub ended: Option<Ended>,
}

/// How a run has ended that has not died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Finished,
    /// By a halt condition: which one.
    Halted(String),
}

/// The file, as it is in memory: it may have other keys.
#[derive(Default)]
pub(super) struct NodesFile {
    tree: KvTree,
}

impl Shared for NodesFile {
    const WAIT: Durability = Durability::Unsynced;
    const NAME: &'static str = "nodes.scr";

    fn tree_mut(&mut self) -> &mut KvTree {
        &mut self.tree
    }
}

impl Nodes {
    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// It is damaged or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        let file: Option<NodesFile> = shared::read(files, prefix)?;
        file.map(|file| Self::from_tree(&file.tree, &prefix.nodes_file())).transpose()
    }

    /// From a tree; `path` is for the error.
    pub fn from_tree(tree: &KvTree, path: &Path) -> Result<Self, PrefixError> {
        Ok(Self(tree.require("NODES").at("use", path)?))
    }
}

impl LastRun {
    /// Reads what the last run has recorded; `None` where it has recorded nothing, or nothing that can be used.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        let file: Option<NodesFile> = shared::read(files, prefix)?;
        Ok(file.and_then(|file| Self::from_tree(&file.tree)))
    }

    /// Replaces the file in one step, and keeps its other keys. A damaged one is useless to anybody, so it is replaced. Gives
    /// whether other processes were kept out meanwhile.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn write(&self, files: &dyn Files, prefix: &Prefix) -> Result<Updated<()>, PrefixError> {
        shared::update(files, prefix, true, |file: &mut NodesFile| self.put(&mut file.tree))
    }

    /// The same when it begins, with the other nodes of earlier runs of its allocation. Gives the record that was
    /// there.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn begin(mut self, files: &dyn Files, prefix: &Prefix) -> Result<Updated<Option<Self>>, PrefixError> {
        shared::update(files, prefix, true, |file: &mut NodesFile| {
            let before = Self::from_tree(&file.tree);
            let own = before.as_ref().filter(|before| before.job_id == self.job_id);
            self.earlier = own.map(Self::all_nodes).unwrap_or_default();
            self.earlier.retain(|node| !self.nodes.contains(node));
            self.put(&mut file.tree);
            before
        })
    }

    /// The halt condition that has ended it.
    pub fn halted_by(&self) -> Option<&str> {
        match self.ended.as_ref()? {
            Ended::Halted(why) => Some(why),
            Ended::Finished => None,
        }
    }

    /// Records how the last run has ended.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn end(files: &dyn Files, prefix: &Prefix, ended: Ended) -> Result<(), PrefixError> {
        match Self::read(files, prefix)? {
            Some(run) => Self { ended: Some(ended), ..run }.write(files, prefix).map(drop),
            None => Ok(()),
        }
    }

    fn put(&self, tree: &mut KvTree) {
        tree.set("NODES", self.nodes.len());
        tree.set_json(RUN, self);
    }

    /// All nodes that may have something of its allocation.
    pub fn all_nodes(&self) -> Vec<String> {
        self.nodes.iter().chain(&self.earlier).cloned().collect()
    }

    /// Whether a run like it can restart from a checkpoint.
    pub fn can_read(&self, point: RestartPoint) -> bool {
        self.any_ranks || point.ranks.is_none_or(|ranks| ranks == self.ranks)
    }

    /// From a tree.
    pub fn from_tree(tree: &KvTree) -> Option<Self> {
        let run: Self = tree.json(RUN).ok()?;
        (tree.parse("NODES") == Ok(Some(run.nodes.len()))).then_some(run)
    }
}

const RUN: &str = "RUN";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{damage, scratch, scratch_copy, tree};
    use scr_base::fs::RealFiles;
    use scr_test_kit::faulty::{FaultyFiles, What};
    use std::fs;
    use std::io::ErrorKind;

    fn run_on(nodes: u32) -> LastRun {
        let nodes = (0..nodes).map(|node| format!("n{node}")).collect();
        LastRun {
            job_id: "77".to_owned(),
            nodes,
            earlier: Vec::new(),
            ranks: 6,
            any_ranks: true,
            began: 5,
            flush_every: 10,
            end: Some(9),
            ..LastRun::default()
        }
    }

    #[test]
    fn the_number_of_nodes_is_where_c_scr_has_it() {
        let (_dir, prefix) = scratch_copy("bypass");
        let before = fs::read(prefix.nodes_file()).unwrap();
        let nodes = Nodes::read(&RealFiles, &prefix).unwrap().unwrap();
        assert_eq!(nodes, Nodes(4));
        fs::remove_file(prefix.nodes_file()).unwrap();
        run_on(4).write(&RealFiles, &prefix).unwrap();
        damage(prefix.nodes_file(), |tree| drop(tree.remove(RUN)));
        assert_eq!(fs::read(prefix.nodes_file()).unwrap(), before);
    }

    #[test]
    fn no_file_is_none_and_a_damaged_one_is_an_error_until_it_is_written() {
        let (_dir, prefix) = scratch();
        assert_eq!(Nodes::read(&RealFiles, &prefix).unwrap(), None);
        let mut tree = KvTree::new();
        for bytes in [b"x".to_vec(), tree.to_file_bytes(), {
            tree.set("NODES", "-1");
            tree.to_file_bytes()
        }] {
            fs::write(prefix.nodes_file(), bytes).unwrap();
            assert!(Nodes::read(&RealFiles, &prefix).is_err());
        }
        run_on(3).write(&RealFiles, &prefix).unwrap();
        assert_eq!(Nodes::read(&RealFiles, &prefix).unwrap(), Some(Nodes(3)));
    }

    #[test]
    fn what_a_run_records_of_itself_comes_back_unless_another_library_has_run_since() {
        let (_dir, prefix) = scratch();
        let read = || LastRun::read(&RealFiles, &prefix).unwrap();
        assert_eq!(read(), None);
        let run = LastRun { nodes: ["n7", "n8", "login.x"].map(str::to_owned).to_vec(), ..run_on(0) };
        run.write(&RealFiles, &prefix).unwrap();
        assert_eq!((read(), Nodes::read(&RealFiles, &prefix).unwrap()), (Some(run.clone()), Some(Nodes(3))));
        // As earlier releases left it, and nothing that anybody could read.
        for recorded in ["JOBID", "{}"] {
            run.write(&RealFiles, &prefix).unwrap();
            damage(prefix.nodes_file(), |tree| tree.set(RUN, recorded));
            assert_eq!(read(), None, "{recorded}");
        }
        run.write(&RealFiles, &prefix).unwrap();
        damage(prefix.nodes_file(), |tree| tree.set("NODES", 4));
        assert_eq!(read(), None, "C SCR has run on four nodes since");
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_its_other_keys() {
        let (_dir, prefix) = scratch();
        run_on(3).write(&RealFiles, &prefix).unwrap();
        damage(prefix.nodes_file(), |tree| tree.set("LATER", "kept"));
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Read && path.ends_with("nodes.scr"));
        files.count_all();
        files.never_pause();
        files.fail_from(1, ErrorKind::TimedOut);
        assert!(run_on(4).write(&files, &prefix).is_err());
        files.fail_once(1, ErrorKind::TimedOut);
        run_on(4).write(&files, &prefix).unwrap();
        assert_eq!(tree(prefix.nodes_file()).text("LATER"), Some("kept"));
    }
}
