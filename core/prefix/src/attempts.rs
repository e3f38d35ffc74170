//! `attempts.scr`: how many restarts from a checkpoint have begun since the last one was written. Only scr has this file.
//!
//! ```text
//! ID/<id>  NAME/<name>  COUNT/<n>
//! ```

use super::shared::{self, Shared};
use super::{Prefix, PrefixError};
use scr_base::fs::{Durability, Files};
use scr_plugin_api::KvTree;

/// The file, as it is in memory.
#[derive(Default)]
pub struct Attempts {
    tree: KvTree,
}

impl Shared for Attempts {
    const WAIT: Durability = Durability::Synced;
    const NAME: &'static str = "attempts.scr";

    fn tree_mut(&mut self) -> &mut KvTree {
        &mut self.tree
    }
}

impl Attempts {
    /// How many restarts from a checkpoint have begun.
    pub fn read(files: &dyn Files, prefix: &Prefix, id: u64, name: &[u8]) -> Result<u64, PrefixError> {
        shared::look(files, prefix, |attempts: &Self| attempts.count(id, name))
    }

    /// Counts one more. A damaged file is replaced by a new one.
    pub fn add(files: &dyn Files, prefix: &Prefix, id: u64, name: &[u8]) -> Result<(), PrefixError> {
        shared::update(files, prefix, true, |attempts: &mut Self| {
            let count = attempts.count(id, name).saturating_add(1);
            attempts.tree.set("ID", id);
            attempts.tree.set_bytes("NAME", name);
            attempts.tree.set("COUNT", count);
        })
    }

    /// Forgets all of them.
    pub fn forget(files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        Ok(files.remove_if_there(&Self::path(prefix)).map(drop)?)
    }

    fn count(&self, id: u64, name: &[u8]) -> u64 {
        let is_of = self.tree.parse("ID") == Ok(Some(id)) && self.tree.value("NAME") == Some(name);
        if is_of {
            self.tree.parse("COUNT").ok().flatten().unwrap_or(0)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::scratch;
    use scr_base::fs::RealFiles;
    use scr_test_kit::faulty::{FaultyFiles, What};
    use std::io::ErrorKind;

    #[test]
    fn restarts_from_one_checkpoint_are_counted_and_a_damaged_file_is_begun_anew() {
        let (_dir, prefix) = scratch();
        let read = |id, name: &str| Attempts::read(&RealFiles, &prefix, id, name.as_bytes()).unwrap();
        assert_eq!(read(3, "a"), 0);
        for count in 1..=2 {
            Attempts::add(&RealFiles, &prefix, 3, b"a").unwrap();
            assert_eq!((read(3, "a"), read(4, "a"), read(3, "b")), (count, 0, 0));
        }
        Attempts::add(&RealFiles, &prefix, 4, b"a").unwrap();
        assert_eq!((read(3, "a"), read(4, "a")), (0, 1));
        std::fs::write(Attempts::path(&prefix), "x").unwrap();
        assert!(Attempts::read(&RealFiles, &prefix, 4, b"a").unwrap_err().is_damage());
        Attempts::add(&RealFiles, &prefix, 4, b"a").unwrap();
        assert_eq!(read(4, "a"), 1);
        Attempts::forget(&RealFiles, &prefix).unwrap();
        assert_eq!(read(4, "a"), 0);
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_its_count() {
        let (_dir, prefix) = scratch();
        Attempts::add(&RealFiles, &prefix, 3, b"a").unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Read && path.ends_with("attempts.scr"));
        files.count_all();
        files.never_pause();
        files.fail_from(1, ErrorKind::TimedOut);
        assert!(Attempts::add(&files, &prefix, 3, b"a").is_err());
        files.fail_once(1, ErrorKind::TimedOut);
        Attempts::add(&files, &prefix, 3, b"a").unwrap();
        assert_eq!(Attempts::read(&RealFiles, &prefix, 3, b"a").unwrap(), 2);
    }
}
