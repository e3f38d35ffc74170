//! The prefix directories that C SCR v3.1.0 wrote, for tests.

use scr_base::fs::{Files, How, RealFiles};
use scr_base::Rank;
use scr_plugin_api::KvTree;
use scr_prefix::container::{Contents, Member};
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::ledger::{left, listed, CommonFiles, Event, Ledger, MakeCurrent};
use scr_prefix::{DatasetDescriptor, Index, Prefix};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The jobs, each with the ids of the datasets that it left on the parallel file system.
pub const JOBS: [(&str, &[u64]); 2] = [("xor-flush2", &[2, 4]), ("bypass", &[1, 2, 3, 4])];

/// A copy of a job's prefix directory, gone when the guard is.
pub fn scratch_copy(job: &str) -> (TempDir, Prefix) {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/c-scr"));
    let dir = tempfile::tempdir().unwrap();
    copy(&fixtures.join(job).join("raw/prefix"), &dir.path().join("prefix"));
    let prefix = Prefix::new(dir.path().join("prefix"));
    (dir, prefix)
}

/// An empty prefix directory with its hidden folder.
pub fn scratch() -> (TempDir, Prefix) {
    let dir = tempfile::tempdir().unwrap();
    let prefix = Prefix::new(dir.path());
    prefix.make_scr_dir(&RealFiles).unwrap();
    (dir, prefix)
}

/// The tree in a file.
pub fn tree(path: impl AsRef<Path>) -> KvTree {
    let path = path.as_ref();
    (&RealFiles as &dyn Files).read_tree(path).unwrap().unwrap_or_else(|| panic!("{path:?} is missing"))
}

/// Writes a tree that has all kinds of wrongs, as `change` makes it.
pub fn damage(path: impl AsRef<Path>, change: impl FnOnce(&mut KvTree)) {
    let mut damaged = tree(&path);
    change(&mut damaged);
    fs::write(path, damaged.to_file_bytes()).unwrap();
}

/// Changes of an index, as other programs make them too.
pub trait ChangeIndex {
    /// Lists a dataset under its id and its name.
    fn record(&mut self, dataset: &DatasetDescriptor, complete: bool);
    /// Says that a dataset is damaged; false if it is not listed.
    fn mark_failed(&mut self, id: u64, time: &str) -> bool;
    /// Takes a name out with all its datasets, and gives their ids.
    fn drop_name(&mut self, name: impl AsRef<[u8]>) -> Vec<u64>;
    /// Takes one dataset out; false if it is not listed.
    fn drop_id(&mut self, id: u64) -> bool;
}

impl ChangeIndex for Index {
    fn record(&mut self, dataset: &DatasetDescriptor, complete: bool) {
        let gone = if complete { self.others_named(&dataset.name, dataset.id) } else { vec![] };
        let mut events = left(self, &gone, None);
        events.retain(|event| matches!(event, Event::Left(_) | Event::BegunLeft { .. }));
        apply(self, events.into_iter().chain(listed(self, dataset)));
        self.set_complete(dataset.id, complete);
    }

    fn mark_failed(&mut self, id: u64, time: &str) -> bool {
        let entry = self.entry(id);
        let current = entry.iter().filter(|entry| entry.current).map(|_| Event::NoCurrent);
        apply(self, current.chain([Event::Failed { id, at: time.to_owned() }]));
        entry.is_some()
    }

    fn drop_name(&mut self, name: impl AsRef<[u8]>) -> Vec<u64> {
        let ids = self.others_named(&name, 0);
        apply(self, left(self, &ids, Some(name.as_ref())));
        ids
    }

    fn drop_id(&mut self, id: u64) -> bool {
        let is_listed = self.entry(id).is_some();
        apply(self, left(self, &[id], None));
        is_listed
    }
}

fn apply(index: &mut Index, events: impl IntoIterator<Item = Event>) {
    let events: Vec<_> = events.into_iter().collect();
    let mut ledger = Ledger::default();
    ledger.index = std::mem::take(index);
    events.iter().for_each(|event| ledger.apply(event));
    *index = ledger.index;
}

/// Makes a lock that is there look dead, as that of a process on another machine that is old.
pub fn let_look_dead(lock: &Path) {
    let Ok(held) = RealFiles.open(lock, How::Update) else { return };
    held.write_at(0, b"another machine, with a name of some length").unwrap();
    held.set_times((1000, 0), (1000, 0)).unwrap();
}

/// The record of a flush of four ranks.
pub fn sample_flush() -> PendingFlush {
    PendingFlush {
        token: "7.a".to_owned(),
        dataset: DatasetDescriptor::default(),
        ranks: 4,
        marks: 4,
        make_current: MakeCurrent::IfNewest,
        revoked: false,
        sharing: CommonFiles::default(),
    }
}

/// The contents of a container with the files of two ranks, one of which has none.
pub fn sample_contents() -> Contents {
    let lists = [(Rank(1), vec![sample_member("a/b", 0, 5), sample_member("a/c", 5, 0)]), (Rank(2), vec![])];
    Contents { id: 3, created: 9, ranks: 4, by_rank: lists.into() }
}

/// A file in a container.
pub fn sample_member(name: &str, offset: u64, bytes: u64) -> Member {
    let name = name.parse().unwrap();
    Member { name, offset, bytes, crc: 7, mode: 0o640, mtime: (-3, 4) }
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
