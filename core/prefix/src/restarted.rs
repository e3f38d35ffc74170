//! `current.scr`: which checkpoint named by `SCR_CURRENT` a job has restarted from. Only scr has this file.
//!
//! The setting often stays in a job's script while the job is restarted several times in its allocation. Checkpoints that it has
//! written since it went back to that one are newer work, and must not be lost at each restart.

use super::{Prefix, PrefixError, Seq, FILE_MODE};
use scr_base::fs::{At, Durability, Files, FsError};
use scr_plugin_api::KvTree;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A restart from a checkpoint that the user has named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    /// In which allocation.
    pub job_id: String,
    /// From which checkpoint.
    pub name: Vec<u8>,
    /// Its place, if that was recorded: the name may stand for another one by now, or for none.
    pub chosen: Option<Seq>,
    /// The place of the first dataset written since.
    pub next: Seq,
}

impl Restarted {
    /// The last one, if there was one.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: nobody knows then whether newer checkpoints are to be given up.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        let path = prefix.scr_file(FILE);
        let read = files
            .read_tree(&path)
            .and_then(|tree| tree.map(|tree| Self::from_tree(&tree, &path)).transpose());
        read.map_err(|fault| PrefixError::of_file(fault, OF_DAMAGE))
    }

    /// Whether it was from this name in this allocation.
    pub fn is_of(&self, name: &[u8], job_id: &str) -> bool {
        self.name == name && self.job_id == job_id
    }

    /// From a tree; `path` is for the error.
    pub fn from_tree(tree: &KvTree, path: &Path) -> Result<Self, FsError> {
        tree.json(RESTART).at("use", path)
    }

    /// Makes it the last one.
    pub fn write(&self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        let mut tree = KvTree::new();
        tree.set_json(RESTART, self);
        Ok(files.write_tree(&prefix.scr_file(FILE), &tree, FILE_MODE, Durability::Synced)?)
    }
}

const FILE: &str = "current.scr";
const RESTART: &str = "RESTART";
/// The cure for a damaged file.
const OF_DAMAGE: &str = "remove it to go back to the checkpoint that SCR_CURRENT names, or unset SCR_CURRENT";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::scratch;
    use scr_base::fs::RealFiles;

    #[test]
    fn it_comes_back_as_it_was_and_damage_is_an_error() {
        let (_dir, prefix) = scratch();
        assert_eq!(Restarted::read(&RealFiles, &prefix).unwrap(), None);
        for chosen in [None, Some(Seq { run: 1, id: 3 })] {
            let next = Seq { run: 2, id: 7 };
            let last = Restarted { job_id: "5132".to_owned(), name: b"a b\xff".to_vec(), chosen, next };
            last.write(&RealFiles, &prefix).unwrap();
            assert_eq!(Restarted::read(&RealFiles, &prefix).unwrap(), Some(last));
        }
        // As earlier releases left it, and any other file.
        let mut old = KvTree::new();
        for (key, value) in [("JOBID", "5132"), ("NAME", "a b"), ("NEXT", "7")] {
            old.set(key, value);
        }
        for bytes in [old.to_file_bytes(), b"x".to_vec()] {
            std::fs::write(prefix.scr_file(FILE), bytes).unwrap();
            let error = Restarted::read(&RealFiles, &prefix).unwrap_err();
            assert!(error.is_damage() && error.to_string().contains("unset SCR_CURRENT"), "{error}");
        }
    }
}
