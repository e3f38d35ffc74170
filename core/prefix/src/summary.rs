//! `scr.dataset.<id>/summary.scr`: what one dataset is, and whether all of it is there.
//!
//! ```text
//! DSET/<descriptor>
//! COMPLETE/<0 or 1>
//! VERSION/6
//! ```

use super::container::damaged;
use super::fields::{expect_version, flag, set_flag};
use super::{DatasetDescriptor, Prefix, PrefixError, FILE_MODE};
use scr_base::ensure;
use scr_base::fs::{At, Durability, Files};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use std::ops::RangeInclusive;
use std::path::Path;

/// The version of C SCR.
const VERSION: u64 = 6;
/// That of a dataset in containers.
const VERSION_AGGREGATED: u64 = 7;
pub(crate) const READ: RangeInclusive<u64> = VERSION..=VERSION_AGGREGATED;

/// The summary of one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its descriptor.
    pub dataset: DatasetDescriptor,
    /// Whether all its files are on the parallel file system.
    pub complete: bool,
}

impl Summary {
    /// Reads the summary of a dataset; `None` if there is none.
    ///
    /// # Errors
    /// The file is damaged, of another version or another dataset, or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Option<Self>, PrefixError> {
        let path = prefix.summary_file(id);
        let Some(tree) = files.read_tree(&path)? else { return Ok(None) };
        let summary = Self::from_tree(&tree, &path)?;
        let found = summary.dataset.id;
        let fault = || format!("describes dataset {found}, and dataset {id} should be there");
        ensure(found == id, || PrefixError::unusable(path, fault()))?;
        Ok(Some(summary))
    }

    /// Reads the summary of a dataset that counts as complete.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`PrefixError::Missing`].
    pub fn require(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Self, PrefixError> {
        Self::read(files, prefix, id)?.ok_or_else(|| PrefixError::Missing { path: prefix.summary_file(id) })
    }

    /// When the summary of a dataset was written, which is when the dataset became complete: seconds and nanoseconds.
    ///
    /// # Errors
    /// It is not there, or nothing can be said of it.
    pub fn written_at(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<(i64, u32), PrefixError> {
        let path = prefix.summary_file(id);
        Ok(files.status(&path).at("look at", &path)?.mtime)
    }

    /// Replaces the summary of its dataset in one step, and syncs it. The dataset's folder must be there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        let path = prefix.summary_file(self.dataset.id);
        Ok(files.write_tree(&path, &self.to_tree(), FILE_MODE, Durability::Synced)?)
    }

    /// As a tree, in C SCR's order.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.put("DSET", self.dataset.to_tree());
        set_flag(&mut tree, "COMPLETE", self.complete);
        tree.set("VERSION", version_of(&self.dataset));
        tree
    }

    /// From a tree; `path` is for the error.
    ///
    /// # Errors
    /// The version is another one, or a field is missing or malformed.
    pub fn from_tree(tree: &KvTree, path: &Path) -> Result<Self, PrefixError> {
        let found = expect_version(tree, path, READ)?;
        let missing = |key: &str| FieldError::Missing { key: key.to_owned() };
        let dataset = tree.get("DSET").ok_or_else(|| missing("DSET")).at("use", path)?;
        let complete = flag(tree, "COMPLETE").and_then(|flag| flag.ok_or_else(|| missing("COMPLETE")));
        let dataset = DatasetDescriptor::from_tree(dataset).at("use", path)?;
        ensure(found == version_of(&dataset), || damaged(path, "its version does not fit it"))?;
        Ok(Self { dataset, complete: complete.at("use", path)? })
    }
}

/// C SCR, and releases that know no containers, read version 6 only. So they do not take containers for the files of the
/// application.
fn version_of(dataset: &DatasetDescriptor) -> u64 {
    match dataset.aggregated {
        true => VERSION_AGGREGATED,
        false => VERSION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{damage, scratch_copy, JOBS};
    use scr_base::fs::RealFiles;
    use std::error::Error;
    use std::fs;

    #[test]
    fn the_summaries_of_c_scr_come_back_to_the_byte() {
        for (job, ids) in JOBS {
            let (_dir, prefix) = scratch_copy(job);
            for &id in ids {
                let before = fs::read(prefix.summary_file(id)).unwrap();
                let summary = Summary::read(&RealFiles, &prefix, id).unwrap().unwrap();
                assert!(summary.complete);
                assert_eq!(summary.dataset.checkpoint_id, Some(id));
                fs::remove_file(prefix.summary_file(id)).unwrap();
                summary.write(&RealFiles, &prefix).unwrap();
                assert_eq!(fs::read(prefix.summary_file(id)).unwrap(), before);
            }
        }
    }

    #[test]
    fn no_summary_is_none_and_one_of_another_dataset_is_refused() {
        let (_dir, prefix) = scratch_copy("bypass");
        assert_eq!(Summary::read(&RealFiles, &prefix, 77).unwrap(), None);
        fs::copy(prefix.summary_file(1), prefix.summary_file(2)).unwrap();
        let error = Summary::read(&RealFiles, &prefix, 2).unwrap_err();
        assert!(error.to_string().ends_with("describes dataset 1, and dataset 2 should be there"), "{error}");
    }

    #[test]
    fn a_damaged_summary_says_what_is_wrong() {
        type Change = fn(&mut KvTree);
        let cases: [(&str, Change); 5] = [
            ("this one reads 6", |tree| tree.set("VERSION", 5)),
            ("the field VERSION is missing", |tree| drop(tree.remove("VERSION"))),
            ("the field DSET is missing", |tree| drop(tree.remove("DSET"))),
            ("the field COMPLETE is missing", |tree| drop(tree.remove("COMPLETE"))),
            ("the field NAME is missing", |tree| drop(tree.child("DSET").remove("NAME"))),
        ];
        for (expected, change) in cases {
            let (_dir, prefix) = scratch_copy("bypass");
            damage(prefix.summary_file(3), change);
            let error = Summary::read(&RealFiles, &prefix, 3).unwrap_err();
            let message = format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
            assert!(message.contains(expected), "{message}");
            assert!(error.is_damage());
        }
    }

    #[test]
    fn a_summary_cut_short_anywhere_is_an_error() {
        let (_dir, prefix) = scratch_copy("xor-flush2");
        let whole = fs::read(prefix.summary_file(4)).unwrap();
        for len in 0..whole.len() {
            fs::write(prefix.summary_file(4), &whole[..len]).unwrap();
            assert!(Summary::read(&RealFiles, &prefix, 4).is_err(), "{len}");
        }
    }
}
