//! Which prefix directory a part in cache belongs to. This function alone decides, for runs and for commands.
//!
//! A prefix directory has a random id, which moves with it and which a copy has too. So the same id is enough where no other
//! folder can be the one that is meant, and where this one knows the dataset: what was written in a copy that is gone is not its
//! own. The rules are those of docs/user/concepts.md.

use super::filemap::Filemap;
use super::record::RankRecord;
use crate::job::Job;
use scr_base::fs::{Files, How};
use scr_prefix::{FlushFile, LastRun, Prefix, PrefixError, PrefixId};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The prefix directory of a part, as seen from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This one. It may have had another path when the part was written.
    This,
    /// One that was at this path before.
    Predecessor,
    /// One with the same id that is still at another path. One of the two is a copy of the other.
    Twin,
    /// Another one.
    Other,
}

impl Owner {
    /// The owner of a record, as seen from the directory at `prefix`, which has the id `id`.
    pub fn of(record: &RankRecord, files: &dyn Files, prefix: &Prefix, id: Option<&PrefixId>) -> Self {
        let recorded = Path::new(OsStr::from_bytes(&record.prefix));
        let is_known = || FlushFile::knows(files, prefix, &record.dataset);
        Self::of_path(recorded, record.prefix_id.as_ref(), files, (prefix, id), is_known)
    }

    /// The same of what is recorded for a directory that was at a path and had an id. A record without an id belongs to whichever
    /// is at its path. `is_known` is asked where that directory is gone: whether this one knows the dataset.
    pub(crate) fn of_path(
        recorded: &Path,
        recorded_id: Option<&PrefixId>,
        files: &dyn Files,
        (prefix, id): (&Prefix, Option<&PrefixId>),
        is_known: impl FnOnce() -> bool,
    ) -> Self {
        let has_id = recorded_id.is_none_or(|recorded| Some(recorded) == id);
        match recorded_id {
            _ if recorded == prefix.dir() => [Self::Predecessor, Self::This][usize::from(has_id)],
            _ if !has_id => Self::Other,
            _ if is_same_folder(files, recorded, prefix.dir()) => Self::This,
            None => Self::Other,
            Some(id) if is_gone(files, recorded, id) => [Self::Other, Self::This][usize::from(is_known())],
            Some(_) => Self::Twin,
        }
    }

    /// The directory of which this one is a copy, if that is still there and no run has begun here since. What is recorded of
    /// caches and runs is of that one.
    pub fn original(files: &dyn Files, prefix: &Prefix) -> Option<String> {
        let (run, id) = (LastRun::read(files, prefix).ok()??, PrefixId::read(files, prefix).ok()?);
        let is_twin = |path: &String| {
            Self::of_path(Path::new(path), id.as_ref(), files, (prefix, id.as_ref()), || true) == Self::Twin
        };
        run.prefix.filter(is_twin)
    }

    /// Whether the prefix directory of a record is not at its path any more.
    pub(crate) fn has_left(record: &RankRecord, files: &dyn Files) -> bool {
        let path = Path::new(OsStr::from_bytes(&record.prefix));
        record.prefix_id.as_ref().is_some_and(|id| is_gone(files, path, id))
    }

    /// As seen from the prefix directory of a run.
    pub(crate) fn in_job(record: &RankRecord, job: &Job) -> Self {
        Self::of(record, job.files(), &job.prefix, job.run.prefix.as_ref())
    }
}

impl Filemap {
    /// From here on the part is one of the prefix directory at this path, to which it belongs.
    pub(crate) fn belong_to(&mut self, prefix: &Prefix) {
        for record in self.record.iter_mut().chain(&mut self.neighbours) {
            record.prefix = prefix.dir().as_os_str().as_bytes().to_vec();
        }
    }
}

/// Also by a link, or a bind mount, which a container makes.
fn is_same_folder(files: &dyn Files, one: &Path, other: &Path) -> bool {
    let status = |path| files.open(path, How::Folder)?.status();
    let identity = |path| status(path).ok().map(|status| status.identity);
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Whether no prefix directory of this id is at this path any more, as this user sees it. Something else that is there proves
/// nothing: a mount point, the home of root outside of a container, a folder that was made where one was renamed.
fn is_gone(files: &dyn Files, path: &Path, id: &PrefixId) -> bool {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match PrefixId::read(files, &Prefix::new(path)) {
        Ok(found) => found.as_ref() != Some(id),
        Err(PrefixError::Fs(error)) => {
            matches!(error.kind(), Some(NotFound | NotADirectory | PermissionDenied))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::record::tests::sample;
    use scr_base::fs::RealFiles;
    use scr_prefix::ledger::LedgerDir;
    use scr_test_kit::faulty::FaultyFiles;
    use scr_test_kit::fixtures::scratch;

    use std::path::PathBuf;

    #[test]
    fn the_same_id_is_enough_where_no_other_folder_can_be_meant() {
        let (_dir, prefix) = scratch();
        let aside = tempfile::tempdir().unwrap();
        LedgerDir::new(&RealFiles, &prefix).begin_run(1).unwrap();
        let id = PrefixId::read(&RealFiles, &prefix).unwrap();
        let at = |path: PathBuf, prefix_id: Option<PrefixId>| {
            let record = RankRecord { prefix: path.as_os_str().as_bytes().to_vec(), prefix_id, ..sample(0) };
            Owner::of(&record, &RealFiles, &prefix, id.as_ref())
        };
        let own = prefix.dir().to_owned();
        let other = PrefixId::parse(&"0af1".repeat(8));
        let beside = |name: &str| aside.path().join(name);
        assert_eq!(at(own.clone(), id.clone()), Owner::This);
        assert_eq!(at(own.clone(), None), Owner::This);
        assert_eq!(at(own.clone(), other.clone()), Owner::Predecessor);
        let gone = beside("gone");
        assert_eq!([at(gone.clone(), id.clone()), at(gone.join("run"), id.clone())], [Owner::This; 2]);
        assert_eq!([at(gone.clone(), other.clone()), at(gone, None)], [Owner::Other; 2]);
        // As a container sees it.
        let link = beside("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert_eq!([at(link.clone(), id.clone()), at(link.clone(), None)], [Owner::This; 2]);
        // What is no prefix directory, a copy, and a directory that was made in its place.
        let (folder, file) = (beside("folder"), beside("file"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!([at(folder.clone(), id.clone()), at(file, id.clone())], [Owner::This; 2]);
        assert_eq!(at(folder.clone(), None), Owner::Other);
        let copy = std::process::Command::new("cp").arg("-a").arg(own.join(".scr")).arg(&folder).status();
        assert!(copy.unwrap().success());
        assert_eq!(at(folder.clone(), id.clone()), Owner::Twin);
        std::fs::remove_dir_all(folder.join(".scr")).unwrap();
        let new = Prefix::new(&folder);
        new.make_scr_dir(&RealFiles).unwrap();
        LedgerDir::new(&RealFiles, &new).begin_run(1).unwrap();
        assert_eq!(at(folder.clone(), id.clone()), Owner::This);
        // What another user lets nobody see is none of this user's; what a server does not deliver may be.
        let files = FaultyFiles::new(RealFiles);
        files.only_below(folder.clone());
        files.count_all();
        for (kind, owner) in [(ErrorKind::PermissionDenied, Owner::This), (ErrorKind::TimedOut, Owner::Twin)]
        {
            files.fail_from(1, kind);
            let record = RankRecord {
                prefix: folder.as_os_str().as_bytes().to_vec(),
                prefix_id: id.clone(),
                ..sample(0)
            };
            assert_eq!(Owner::of(&record, &files, &prefix, id.as_ref()), owner, "{kind}");
        }
    }
}
