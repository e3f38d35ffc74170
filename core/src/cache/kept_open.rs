//! Redundancy files that stay open after they are written, until they are deleted: a reused one is not opened again.

use scr_base::fs::{File, Files};
use scr_plugin_api::held;
use std::path::Path;
use std::sync::Mutex;

/// The redundancy files that this rank has written in this run.
#[derive(Default)]
pub(crate) struct KeptOpen(Mutex<Vec<OpenFile>>);

/// A file, and what tells it from others: device and inode, which are not given to another one while it is open.
type OpenFile = ((u64, u64), Box<dyn File>);

impl KeptOpen {
    /// Keeps a file that has been written.
    pub(crate) fn keep(&self, file: Box<dyn File>) {
        if let Ok(status) = file.status() {
            held(&self.0).push((status.identity, file));
        }
    }

    /// The file of this name, if it was kept.
    pub(crate) fn take(&self, files: &dyn Files, path: &Path) -> Option<Box<dyn File>> {
        let wanted = files.status(path).ok()?.identity;
        let mut kept = held(&self.0);
        let at = kept.iter().position(|(identity, _)| *identity == wanted)?;
        Some(kept.swap_remove(at).1)
    }

    /// Closes the files that have no name any more: their memory is free only then.
    pub(crate) fn close_removed(&self) {
        held(&self.0).retain(|(_, file)| file.status().is_ok_and(|status| status.links > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::{How, RealFiles};

    #[test]
    fn a_file_is_kept_under_whatever_name_it_has_and_closed_when_it_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let open = KeptOpen::default();
        for name in ["leaving", "removed"] {
            open.keep(RealFiles.open(&path(name), How::Create(0o600)).unwrap());
        }
        RealFiles.remove_file(&path("removed")).unwrap();
        open.close_removed();
        assert_eq!(held(&open.0).len(), 1, "memory of a removed file is given back");
        RealFiles.rename(&path("leaving"), &path("spare")).unwrap();
        RealFiles.open(&path("leaving"), How::Create(0o600)).unwrap();
        assert!(open.take(&RealFiles, &path("leaving")).is_none(), "another file has the name now");
        let wanted = RealFiles.status(&path("spare")).unwrap().identity;
        let taken = open.take(&RealFiles, &path("spare")).unwrap();
        assert_eq!(taken.status().unwrap().identity, wanted);
        assert!(open.take(&RealFiles, &path("spare")).is_none(), "nobody else is given it");
    }
}
