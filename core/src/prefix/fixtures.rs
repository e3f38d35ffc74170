//! The prefix directories that C SCR v3.1.0 wrote, for tests.

use super::Prefix;
use crate::fs::{Files, How, RealFiles};
use scr_plugin_api::KvTree;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The jobs, each with the ids of the datasets that it left on the parallel file system.
pub(crate) const JOBS: [(&str, &[u64]); 2] = [("xor-flush2", &[2, 4]), ("bypass", &[1, 2, 3, 4])];

/// A copy of a job's prefix directory, gone when the guard is.
pub(crate) fn scratch_copy(job: &str) -> (TempDir, Prefix) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr");
    let dir = tempfile::tempdir().unwrap();
    copy(&fixtures.join(job).join("raw/prefix"), &dir.path().join("prefix"));
    let prefix = Prefix::new(dir.path().join("prefix"));
    (dir, prefix)
}

/// An empty prefix directory with its hidden folder.
pub(crate) fn scratch() -> (TempDir, Prefix) {
    let dir = tempfile::tempdir().unwrap();
    let prefix = Prefix::new(dir.path());
    prefix.make_scr_dir(&RealFiles).unwrap();
    (dir, prefix)
}

/// The tree in a file.
pub(crate) fn tree(path: impl AsRef<Path>) -> KvTree {
    let path = path.as_ref();
    (&RealFiles as &dyn Files).read_tree(path).unwrap().unwrap_or_else(|| panic!("{path:?} is missing"))
}

/// Writes a tree that has all kinds of wrongs, as `change` makes it.
pub(crate) fn damage(path: impl AsRef<Path>, change: impl FnOnce(&mut KvTree)) {
    let mut damaged = tree(&path);
    change(&mut damaged);
    fs::write(path, damaged.to_file_bytes()).unwrap();
}

/// Makes a lock that is there look dead, as that of a process on another machine that is old.
pub(crate) fn let_look_dead(lock: &Path) {
    let Ok(held) = RealFiles.open(lock, How::Update) else { return };
    held.write_at(0, b"another machine, with a name of some length").unwrap();
    held.set_times((1000, 0), (1000, 0)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (source, target) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}
