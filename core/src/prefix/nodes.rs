//! `nodes.scr`: how many nodes the last run used, for the commands that start the next one.

use super::{Prefix, PrefixError, FILE_MODE};
use crate::fs::{At, Durability, Files};
use scr_plugin_api::KvTree;
use std::path::Path;

/// How many nodes the last run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes(pub u32);

impl Nodes {
    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// Where it is damaged or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        let path = prefix.nodes_file();
        let Some(tree) = files.read_tree(&path)? else { return Ok(None) };
        Self::from_tree(&tree, &path).map(Some)
    }

    /// From a tree; `path` is for the error.
    pub(crate) fn from_tree(tree: &KvTree, path: &Path) -> Result<Self, PrefixError> {
        Ok(Self(tree.require("NODES").at("use", path)?))
    }

    /// Replaces the file in one step, and keeps its other keys.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        let path = prefix.nodes_file();
        // A damaged file is useless to anybody, so it is replaced.
        let mut tree = files.read_tree(&path).ok().flatten().unwrap_or_else(KvTree::new);
        tree.set("NODES", self.0);
        Ok(files.write_tree(&path, &tree, FILE_MODE, Durability::Synced)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealFiles;
    use crate::prefix::fixtures::{scratch, scratch_copy};
    use std::fs;

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
}
