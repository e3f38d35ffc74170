//! `overwritten/`: files that the application was given to write over, in bypass mode, while an older dataset had them. Ours
//! alone.
//!
//! ```text
//! overwritten/<digest of the name>: FILE/<name>  RUN/<number of the run>  ID/<dataset that writes it>
//! ```
//!
//! Only the application knows how much of such a file it has written when it dies. So the file is recorded, durably, before the
//! application gets its path. From then on it does not count for any older dataset, unless a checksum proves its bytes.
//! Once the new dataset is complete, the index says which older ones are no more, and the record goes.

use super::{FileName, Prefix, Seq, DIR_MODE, FILE_MODE};
use scr_base::fs::{Durability, Files, FsError};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// A file that was given out to be written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overwritten {
    /// The newest dataset for which it was.
    pub(crate) by: Seq,
}

impl Overwritten {
    /// Records a file before it is given out for the dataset at `by`.
    ///
    /// # Errors
    /// It cannot be recorded: the file must not be given out.
    pub fn record(files: &dyn Files, prefix: &Prefix, name: &FileName, by: Seq) -> Result<(), FsError> {
        let path = path(prefix, name);
        let folder = path.parent().unwrap_or(&path);
        // Another rank may just have recorded it. If its sync has failed, the next one would succeed without the name: so each
        // rank makes the name anew.
        let mut tree = KvTree::new();
        tree.set_bytes("FILE", name);
        tree.set("RUN", by.run);
        tree.set("ID", by.id);
        files.make_dirs(folder, DIR_MODE, Durability::Synced)?;
        files.write_tree(&path, &tree, FILE_MODE, Durability::Synced)
    }

    /// Whether a dataset newer than the one at `owner` was given this file to write over, and did not become complete.
    ///
    /// # Errors
    /// It cannot be found out.
    pub fn since(files: &dyn Files, prefix: &Prefix, name: &FileName, owner: Seq) -> Result<bool, FsError> {
        Ok(Self::read(files, prefix, name)?.is_some_and(|last| last.is_since(owner)))
    }

    /// Whether that was after the dataset at `owner` was begun.
    pub(crate) fn is_since(self, owner: Seq) -> bool {
        self.by > owner
    }

    /// Forgets a file: the dataset that was given it is complete. A file that cannot be removed does no harm to newer datasets.
    pub fn forget(files: &dyn Files, prefix: &Prefix, name: &FileName) {
        let _ = files.remove_if_there(&path(prefix, name));
    }

    fn read(files: &dyn Files, prefix: &Prefix, name: &FileName) -> Result<Option<Self>, FsError> {
        match files.read_tree(&path(prefix, name)) {
            // That there is a record says that the file was given out.
            Err(error) if error.is_damage() => Ok(Some(Self::LAST)),
            read => Ok(read?.map(|tree| Self::from_tree(&tree).unwrap_or(Self::LAST))),
        }
    }

    /// Reads the fields of a record.
    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        Ok(Self { by: Seq { run: tree.require("RUN")?, id: tree.require("ID")? } })
    }

    /// Stands for a record that cannot be read: newer than every dataset.
    const LAST: Self = Self { by: Seq { run: u64::MAX, id: u64::MAX } };
}

/// Names may be longer than one part of a path.
fn path(prefix: &Prefix, name: &FileName) -> PathBuf {
    prefix.scr_file(FOLDER).join(digest(name.as_bytes()))
}

/// Stands for a name, or a path, in the name of a file.
pub(super) fn digest(name: &[u8]) -> String {
    Sha256::digest(name).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

const FOLDER: &str = "overwritten";

#[cfg(test)]
mod tests {
    use super::super::fixtures::scratch;
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::faulty::{FaultyFiles, What};
    use std::io::ErrorKind;

    #[test]
    fn a_file_that_was_given_out_counts_for_no_older_dataset_until_the_new_one_is_complete() {
        let (_dir, prefix) = scratch();
        let (name, other): (FileName, FileName) = ("b/f0".parse().unwrap(), "b/f1".parse().unwrap());
        let seq = |run, id| Seq { run, id };
        let since = |name, owner| Overwritten::since(&RealFiles, &prefix, name, owner).unwrap();
        assert!(!since(&name, seq(1, 1)));
        Overwritten::record(&RealFiles, &prefix, &name, seq(2, 5)).unwrap();
        Overwritten::record(&RealFiles, &prefix, &name, seq(2, 5)).unwrap();
        assert!(since(&name, seq(2, 4)) && since(&name, seq(1, 9)));
        assert!(!since(&name, seq(2, 5)) && !since(&name, seq(3, 1)) && !since(&other, seq(1, 1)));
        std::fs::write(path(&prefix, &name), "damaged").unwrap();
        assert!(since(&name, seq(3, 1)));
        Overwritten::forget(&RealFiles, &prefix, &name);
        assert!(!since(&name, seq(1, 1)));
    }

    /// The rank that came second synced the folder once more, which succeeds without the name.
    #[test]
    fn a_record_that_could_not_be_synced_is_made_anew_by_the_next_rank() {
        let (_dir, prefix) = scratch();
        let (name, by): (FileName, Seq) = ("f".parse().unwrap(), Seq { run: 1, id: 2 });
        Overwritten::record(&RealFiles, &prefix, &name, by).unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, _| what == What::SyncDir || what == What::Rename);
        files.fail_once(2, ErrorKind::StorageFull);
        for is_recorded in [false, true] {
            assert_eq!(Overwritten::record(&files, &prefix, &name, by).is_ok(), is_recorded);
        }
        let all: Vec<_> = files.operations().iter().map(|done| done.what).collect();
        assert_eq!(all, [What::Rename, What::SyncDir, What::Rename, What::SyncDir]);
    }

    #[test]
    fn what_cannot_be_read_for_a_moment_is_not_taken_for_missing() {
        let (_dir, prefix) = scratch();
        let (name, by): (FileName, Seq) = ("f".parse().unwrap(), Seq { run: 1, id: 2 });
        Overwritten::record(&RealFiles, &prefix, &name, by).unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, _| what == What::Read);
        files.count_all();
        files.never_pause();
        let owner = Seq { run: 1, id: 1 };
        files.fail_once(1, ErrorKind::TimedOut);
        assert!(Overwritten::since(&files, &prefix, &name, owner).unwrap());
        files.fail_from(1, ErrorKind::TimedOut);
        assert!(Overwritten::since(&files, &prefix, &name, owner).is_err());
    }
}
