//! `nodes.scr`: how many nodes the last run used, for the commands that start the next one.

use super::shared::{self, Shared};
use super::{Prefix, PrefixError};
use crate::fs::{At, Durability, Files};
use scr_plugin_api::KvTree;
use std::path::{Path, PathBuf};

/// How many nodes the last run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes(pub u32);

/// The file, as it is in memory: it may have other keys.
#[derive(Default)]
struct NodesFile {
    tree: KvTree,
}

impl Shared for NodesFile {
    const WAIT: Durability = Durability::Synced;

    fn path(prefix: &Prefix) -> PathBuf {
        prefix.nodes_file()
    }

    fn tree_mut(&mut self) -> &mut KvTree {
        &mut self.tree
    }
}

impl Nodes {
    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// Where it is damaged or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        let file: Option<NodesFile> = shared::read(files, prefix)?;
        file.map(|file| Self::from_tree(&file.tree, &prefix.nodes_file())).transpose()
    }

    /// From a tree; `path` is for the error.
    pub(crate) fn from_tree(tree: &KvTree, path: &Path) -> Result<Self, PrefixError> {
        Ok(Self(tree.require("NODES").at("use", path)?))
    }

    /// Replaces the file in one step, and keeps its other keys. A damaged one is useless to anybody, so it is replaced.
    ///
    /// # Errors
    /// Where it cannot be read or written.
    pub fn write(self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        shared::update(files, prefix, true, |file: &mut NodesFile| file.tree.set("NODES", self.0)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::faulty::{FaultyFiles, What};
    use crate::fs::RealFiles;
    use crate::prefix::fixtures::{damage, scratch, scratch_copy, tree};
    use std::fs;
    use std::io::ErrorKind;

    #[test]
    fn the_file_of_c_scr_comes_back_to_the_byte() {
        let (_dir, prefix) = scratch_copy("bypass");
        let before = fs::read(prefix.nodes_file()).unwrap();
        let nodes = Nodes::read(&RealFiles, &prefix).unwrap().unwrap();
        assert_eq!(nodes, Nodes(4));
        fs::remove_file(prefix.nodes_file()).unwrap();
        nodes.write(&RealFiles, &prefix).unwrap();
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
        Nodes(3).write(&RealFiles, &prefix).unwrap();
        assert_eq!(Nodes::read(&RealFiles, &prefix).unwrap(), Some(Nodes(3)));
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_its_other_keys() {
        let (_dir, prefix) = scratch();
        Nodes(3).write(&RealFiles, &prefix).unwrap();
        damage(prefix.nodes_file(), |tree| tree.set("LATER", "kept"));
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Read && path.ends_with("nodes.scr"));
        files.count_all();
        files.never_pause();
        files.fail_from(1, ErrorKind::TimedOut);
        assert!(Nodes(4).write(&files, &prefix).is_err());
        files.fail_once(1, ErrorKind::TimedOut);
        Nodes(4).write(&files, &prefix).unwrap();
        assert_eq!(tree(prefix.nodes_file()).text("LATER"), Some("kept"));
    }
}
