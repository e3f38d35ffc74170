//! The filemap: a journal of one rank's part of one dataset in cache.
//!
//! It only grows, one record at a time. Each record is one write and has its own checksum, and is written before the file that
//! it describes. A reader ignores a record that a crash has truncated, and reports a damaged one. See the developer
//! documentation on the cache for the records and the crash argument.

use super::loss::Lost;
use super::part::PartDir;
use super::record::RankRecord;
use scr_base::fs::{
    retried, At, Durability, File, Files, FsError, How, LockAttempt, MAX_TREE_BYTES, NO_VERSION,
};
use scr_plugin_api::KvTree;
use scr_prefix::FileName;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The contents of a filemap.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filemap {
    /// How far the part has come.
    pub state: PartState,
    /// The rank's record: complete from `Prepared` on; before, without sizes and checksums.
    pub record: Option<RankRecord>,
    /// Records of other ranks of the set, kept for them.
    pub(crate) neighbours: Vec<RankRecord>,
    /// The loss that a run has found by comparing bytes, and could not repair. It is for commands that read no bytes: a run
    /// compares them again.
    pub wrong_bytes: Option<Lost>,
    /// Whether a record was damaged, other than cut short at the end.
    pub damaged: bool,
    /// The form of it, if another release wrote it and its part may be whole. Nothing else is known of that, and it stays.
    pub other_release: Option<String>,
    /// Bytes up to the end of the last record that can be read.
    pub(crate) valid_len: u64,
}

/// How far a part of a dataset has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PartState {
    /// Nothing can be said.
    #[default]
    Unknown,
    /// It is being restored from elsewhere and is not valid.
    Arriving,
    /// The application may be writing it.
    Open,
    /// This rank's part is valid and protected.
    Prepared,
    /// Every rank's part is.
    Complete,
    /// It was complete, and the application could not restart from it.
    Refused,
}

/// One record of the journal.
#[derive(Debug, Clone)]
pub(crate) enum Entry<'a> {
    /// The application may write files from now on.
    Open(&'a RankRecord),
    /// The part is being restored; the record says what it will be.
    Arriving(&'a RankRecord),
    /// A file may exist from now on: its name below the prefix.
    File(&'a FileName),
    /// The part is valid and protected, and these are the records kept for neighbours.
    Prepared(&'a RankRecord, &'a [RankRecord]),
    /// Every part is.
    Complete,
    /// The application could not restart from it.
    Refused,
    /// A run has found wrong bytes in it: in its files or, otherwise, in its redundancy.
    WrongBytes { in_files: bool },
}

/// A filemap that is being written. Each entry directly follows the last valid one. A full device or a crash may leave half an
/// entry, and a reader would find nothing after that.
///
/// The process that begins a part holds the lock of the system on its filemap until the process ends, or removes the part: once
/// it is complete, as a [`Claim`]. So another job that finds the part can tell whether it is still being written, or counted on.
pub(crate) struct Journal {
    file: Box<dyn File>,
    /// Length of what can be read.
    valid_len: Cell<u64>,
    /// Whether invalid bytes may follow.
    torn: Cell<bool>,
}

impl Journal {
    /// Makes the folders of a part and begins its filemap, which must not be there yet. Another job of the allocation that
    /// starts or ends meanwhile removes folders that it finds empty; they are made again then.
    pub(crate) fn begin_part(files: &dyn Files, part: &PartDir, first: &Entry<'_>) -> Result<Self, FsError> {
        let path = part.filemap();
        let begin =
            || part.make_shared(files).and_then(|()| Self::begin(files, &path, first).at("create", &path));
        let has_ended = |begun: &Result<_, _>| !begun.as_ref().is_err_and(FsError::is_not_found);
        let journal = (1..MOST_TRIES).map(|_| begin()).find(has_ended).unwrap_or_else(begin)?;
        let made = part.finish_removal_before(files).and_then(|()| part.make_data(files));
        // The first error is the one to report.
        made.inspect_err(|_| _ = files.remove_file(&path)).map(|()| journal)
    }

    /// Begins a filemap with its first entry. It must not be there yet; after an error it is not.
    fn begin(files: &dyn Files, path: &Path, first: &Entry<'_>) -> io::Result<Self> {
        let file = files.open(path, How::Create(0o600))?;
        // If a file system has no locks, only the record of running jobs protects the part.
        let _ = file.try_lock();
        let journal = Self { file, valid_len: Cell::new(0), torn: Cell::new(false) };
        let written = journal.write_once(&beginning(first));
        written.map(|()| journal).inspect_err(|_| _ = files.remove_file(path))
    }

    /// Whether a running process is writing the part of this filemap, or counts on it.
    pub(crate) fn is_held(files: &dyn Files, path: &Path) -> bool {
        // Some file systems lock only what is open to be written.
        files.open(path, How::Update).is_ok_and(|file| file.try_lock() == LockAttempt::Held)
    }

    /// Begins a filemap that takes the place of one that is there, in one step.
    pub(crate) fn replace(files: &dyn Files, path: &Path, first: &Entry<'_>) -> Result<Self, FsError> {
        files.write_atomic(path, &beginning(first), 0o600, Durability::Unsynced)?;
        Self::reopen(files, path)
    }

    /// Goes on with a filemap that is there.
    pub(crate) fn reopen(files: &dyn Files, path: &Path) -> Result<Self, FsError> {
        let bytes = files.read_all(path, MAX_TREE_BYTES)?;
        let file = files.open(path, How::Update).at("open", path)?;
        let valid_len = Filemap::parse(&bytes).valid_len;
        Ok(Self { file, valid_len: Cell::new(valid_len), torn: Cell::new(valid_len != bytes.len() as u64) })
    }

    /// Appends an entry. After an error the filemap is as it was before.
    pub(crate) fn append(&self, files: &dyn Files, entry: &Entry<'_>) -> io::Result<()> {
        self.write(files, &frame(entry))
    }

    /// Appends entries, in one step, to the filemap of a part that is there.
    pub(crate) fn add(files: &dyn Files, part: &PartDir, entries: &[Entry<'_>]) -> Result<(), FsError> {
        let path = part.filemap();
        let bytes: Vec<u8> = entries.iter().flat_map(frame).collect();
        Self::reopen(files, &path)?.write(files, &bytes).at("write", &path)
    }

    /// The remains of a failed attempt are cut off before the next one.
    fn write(&self, files: &dyn Files, bytes: &[u8]) -> io::Result<()> {
        retried(files, |_| self.write_once(bytes))
    }

    fn write_once(&self, bytes: &[u8]) -> io::Result<()> {
        self.trim()?;
        self.torn.set(true);
        let written = self.file.write_at(self.valid_len.get(), bytes);
        if written.is_ok() {
            self.torn.set(false);
            self.valid_len.set(self.valid_len.get() + bytes.len() as u64);
        } else {
            // If this fails as well, it is tried again before the next entry.
            let _ = self.trim();
        }
        written
    }

    fn trim(&self) -> io::Result<()> {
        if self.torn.get() {
            self.file.set_len(self.valid_len.get())?;
            self.torn.set(false);
        }
        Ok(())
    }

    /// The part is complete, and this process counts on it.
    pub(crate) fn into_claim(self) -> Claim {
        Claim { file: Some(self.file), is_ours: true }
    }
}

/// That a process counts on a part in cache: it holds the lock of the system on the filemap until it removes the part, or ends.
/// No other process removes the part meanwhile.
#[derive(Default)]
pub(crate) struct Claim {
    /// Open as long as it counts; none where it cannot be opened.
    file: Option<Box<dyn File>>,
    is_ours: bool,
}

impl Claim {
    /// To a part that is complete. Another job of the allocation may have it already.
    pub(crate) fn lay(files: &dyn Files, path: &Path) -> Self {
        // Some file systems lock only what is open to be written.
        let file = files.open(path, How::Update).ok();
        // If a file system has no locks, no process is known to have it.
        let is_ours = file.as_ref().is_none_or(|file| file.try_lock() != LockAttempt::Held);
        Self { file, is_ours }
    }

    /// # Errors
    /// The application has closed the file, and with it the lock is lost.
    pub(crate) fn expect_held(&self) -> io::Result<()> {
        self.file.iter().try_for_each(|file| file.descriptor().map(drop))
    }

    /// Whether another running process counts on the part.
    pub(crate) fn is_others(&self) -> bool {
        let theirs = self.file.as_ref().filter(|_| !self.is_ours);
        theirs.is_some_and(|file| file.try_lock() == LockAttempt::Held)
    }
}

/// The first bytes of a filemap.
fn beginning(first: &Entry<'_>) -> Vec<u8> {
    [MAGIC, &frame(first)].concat()
}

impl Filemap {
    /// Reads the filemap of a part. A filemap of another part counts as damaged: its files are elsewhere.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(files: &dyn Files, part: &PartDir) -> Result<Self, FsError> {
        let path = part.filemap();
        let map = Self::parse(&files.read_all(&path, MAX_TREE_BYTES)?);
        match &map.record {
            Some(record) if !part.is_of(record) => Ok(Self { damaged: true, ..Self::default() }),
            _ => Ok(map),
        }
    }

    /// Reads what the bytes of a filemap say. Never fails: what cannot be read is `Unknown` or `damaged`.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut map = Self::default();
        let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
            let version = bytes.strip_prefix(&MAGIC[..MAGIC.len() - 1]).and_then(<[u8]>::first);
            let version = version.filter(|&&found| u16::from(found) < NO_VERSION);
            map.other_release = version.map(|found| format!("format {found}, this one reads {VERSION}"));
            map.damaged = true;
            return map;
        };
        map.valid_len = MAGIC.len() as u64;
        while let Some((payload, is_intact, after)) = next_frame(rest) {
            let tree = is_intact.then(|| KvTree::unpack(payload).ok()).flatten();
            if tree.and_then(|tree| map.take_in(&tree)).is_none() {
                map.damaged = true;
                // The record is as it was written, and this release does not know it.
                if is_intact && map.state < PartState::Prepared {
                    map.record = None;
                    map.other_release = Some(format!("format {VERSION}, with other records"));
                }
                break;
            }
            rest = after;
            map.valid_len = (bytes.len() - rest.len()) as u64;
        }
        map
    }

    fn take_in(&mut self, tree: &KvTree) -> Option<()> {
        let (kind, body) = tree.iter().next()?;
        match kind {
            b"OPEN" => self.begin(PartState::Open, body)?,
            b"ARRIVING" => self.begin(PartState::Arriving, body)?,
            // The names serve the cleanup after a crash; sizes and checksums come with `PREPARED`.
            b"FILE" => (),
            b"PREPARED" => {
                self.record = Some(RankRecord::from_tree(body.get("RECORD")?).ok()?);
                self.neighbours = neighbours(body)?;
                self.wrong_bytes = None;
                self.reach(PartState::Prepared);
            }
            b"WRONG" if self.state >= PartState::Prepared => {
                let lost = if body.has(IN_FILES) { Lost::Data } else { Lost::Redundancy };
                self.wrong_bytes = self.wrong_bytes.max(Some(lost));
            }
            b"COMPLETE" if self.state >= PartState::Prepared => self.reach(PartState::Complete),
            b"REFUSED" if self.state >= PartState::Prepared => self.state = PartState::Refused,
            // A rank that reads what others wrote may have begun a part, and then nothing came to be refused.
            b"REFUSED" if self.record.is_some() => (),
            _ => return None,
        }
        Some(())
    }

    /// A rebuild records a refused part again: it stays refused, or a crash at this moment would make it count.
    fn reach(&mut self, state: PartState) {
        if self.state != PartState::Refused {
            self.state = state;
        }
    }

    fn begin(&mut self, state: PartState, body: &KvTree) -> Option<()> {
        self.record = Some(RankRecord::from_tree(body).ok()?);
        self.wrong_bytes = None;
        self.state = state;
        Some(())
    }
}

fn neighbours(body: &KvTree) -> Option<Vec<RankRecord>> {
    let Some(kept) = body.get("NEIGHBOUR") else { return Some(Vec::new()) };
    kept.iter().map(|(_, tree)| RankRecord::from_tree(tree).ok()).collect()
}

/// A record as it is in the file: length, checksum, packed tree.
fn frame(entry: &Entry<'_>) -> Vec<u8> {
    let payload = tree(entry).pack();
    let length = u32::try_from(payload.len()).expect("a record names the files of one rank");
    [&length.to_be_bytes(), &crc32fast::hash(&payload).to_be_bytes(), &*payload].concat()
}

fn tree(entry: &Entry<'_>) -> KvTree {
    let mut tree = KvTree::new();
    match entry {
        Entry::Open(record) => tree.put("OPEN", record.to_tree()),
        Entry::Arriving(record) => tree.put("ARRIVING", record.to_tree()),
        Entry::File(name) => tree.set_bytes("FILE", name),
        Entry::Prepared(record, neighbours) => {
            let body = tree.child("PREPARED");
            body.put("RECORD", record.to_tree());
            for neighbour in *neighbours {
                body.child("NEIGHBOUR").put(neighbour.rank.to_string(), neighbour.to_tree());
            }
        }
        Entry::Complete => _ = tree.child("COMPLETE"),
        Entry::Refused => _ = tree.child("REFUSED"),
        Entry::WrongBytes { in_files } => {
            _ = tree.child("WRONG").child(if *in_files { IN_FILES } else { IN_REDUNDANCY });
        }
    }
    tree
}

/// The first record, whether its checksum is right, and what follows it. `None` if it is cut short.
fn next_frame(bytes: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (payload, after) = rest.split_at_checked(number(0) as usize)?;
    Some((payload, crc32fast::hash(payload) == number(4), after))
}

const IN_FILES: &str = "FILES";
const IN_REDUNDANCY: &str = "REDUNDANCY";
/// First bytes of a filemap; the last of them is the version of the format.
const MAGIC: &[u8] = &[b's', b'c', b'r', b'f', b'm', b'a', b'p', VERSION];
/// The only version that is read and written.
pub const VERSION: u8 = 2;
/// Length and checksum before each record.
const HEAD: usize = 8;

/// For people: the filemap as a tree.
pub fn as_tree(map: &Filemap) -> KvTree {
    let mut tree = KvTree::new();
    tree.set("STATE", format!("{:?}", map.state).to_uppercase());
    let wrong = map.wrong_bytes.map(|lost| if lost == Lost::Data { IN_FILES } else { IN_REDUNDANCY });
    tree.set_known("WRONG", wrong);
    if let Some(record) = &map.record {
        tree.put("RECORD", record.to_tree());
    }
    let kept: BTreeMap<_, _> = map.neighbours.iter().map(|record| (record.rank, record)).collect();
    for (rank, record) in kept {
        tree.child("NEIGHBOUR").put(rank.to_string(), record.to_tree());
    }
    tree
}

/// How often the folders of a part are made again. Each other job removes them at most once, at its start or its end.
const MOST_TRIES: u32 = 100;

#[cfg(test)]
mod tests {
    use super::super::record::tests::sample;
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::faulty::FaultyFiles;

    fn journal(entries: &[Entry<'_>]) -> Vec<u8> {
        entries.iter().fold(MAGIC.to_vec(), |mut bytes, entry| {
            bytes.extend(frame(entry));
            bytes
        })
    }

    #[test]
    fn a_journal_says_how_far_its_part_has_come() {
        let (own, other) = (sample(1), sample(0));
        let kept = [other];
        let mut open = own.clone();
        open.files.clear();
        open.redundancy = None;
        let entries = [
            Entry::Open(&open),
            Entry::File(&"ckpt.7/rank_0".parse().unwrap()),
            Entry::Prepared(&own, &kept),
            Entry::Complete,
        ];
        let state = |count: usize| Filemap::parse(&journal(&entries[..count])).state;
        assert_eq!(state(1), PartState::Open);
        assert_eq!(state(2), PartState::Open);
        assert_eq!(state(3), PartState::Prepared);
        assert_eq!(state(4), PartState::Complete);
        let whole = Filemap::parse(&journal(&entries));
        assert_eq!(whole.record.as_ref(), Some(&own));
        assert_eq!(whole.neighbours, kept);
        assert!(!whole.damaged);
    }

    /// Such a part, of a run that read what other ranks had written, counted as one of another release for ever.
    #[test]
    fn a_refused_part_that_was_never_prepared_is_an_open_one() {
        let own = sample(1);
        let map = Filemap::parse(&journal(&[Entry::Open(&own), Entry::Refused]));
        assert_eq!((map.state, map.damaged, map.other_release), (PartState::Open, false, None));
    }

    #[test]
    fn a_torn_tail_is_ignored_wherever_it_is_torn() {
        let own = sample(1);
        let whole = journal(&[Entry::Open(&own), Entry::Prepared(&own, &[]), Entry::Complete]);
        let prepared = journal(&[Entry::Open(&own), Entry::Prepared(&own, &[])]).len();
        let open = journal(&[Entry::Open(&own)]).len();
        for cut in MAGIC.len()..=whole.len() {
            let map = Filemap::parse(&whole[..cut]);
            assert!(!map.damaged, "cut at {cut}");
            let expected = match cut {
                _ if cut == whole.len() => PartState::Complete,
                _ if cut >= prepared => PartState::Prepared,
                _ if cut >= open => PartState::Open,
                _ => PartState::Unknown,
            };
            assert_eq!(map.state, expected, "cut at {cut}");
        }
    }

    #[test]
    fn no_flipped_bit_is_read_as_another_value() {
        let own = sample(1);
        let whole = journal(&[Entry::Open(&own), Entry::Prepared(&own, &[]), Entry::Complete]);
        let truth = Filemap::parse(&whole);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let map = Filemap::parse(&bytes);
            assert!(map.state < truth.state, "bit {bit} went unnoticed");
            if map.state >= PartState::Prepared {
                assert_eq!(map.record, truth.record, "bit {bit}");
            }
        }
    }

    #[test]
    fn an_end_without_a_beginning_is_damage() {
        assert!(Filemap::parse(&journal(&[Entry::Complete])).damaged);
        assert!(Filemap::parse(b"").damaged);
        assert!(Filemap::parse(b"not ours at all").damaged);
    }

    #[test]
    fn bytes_of_a_failed_entry_hide_no_later_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("filemap_1");
        let own = sample(1);
        let faulty = FaultyFiles::new(RealFiles);
        let journal = Journal::begin(&faulty, &path, &Entry::Open(&own)).unwrap();
        // The device is full: half of the entry gets there, and cannot be cut off at once.
        faulty.fail_from(faulty.mutations() + 1, io::ErrorKind::StorageFull);
        assert!(journal.append(&faulty, &Entry::File(&"a".parse().unwrap())).is_err());
        let half = &frame(&Entry::File(&"a".parse().unwrap()))[..9];
        std::fs::write(&path, [&std::fs::read(&path).unwrap(), half].concat()).unwrap();
        faulty.heal();
        journal.append(&faulty, &Entry::Prepared(&own, &[])).unwrap();
        let map = Filemap::parse(&std::fs::read(&path).unwrap());
        assert_eq!((map.state, map.damaged), (PartState::Prepared, false));
    }

    #[test]
    fn a_filemap_with_a_torn_tail_is_continued_after_its_last_valid_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("filemap_1");
        let own = sample(1);
        let whole = journal(&[Entry::Open(&own), Entry::Prepared(&own, &[])]);
        let torn = frame(&Entry::Complete);
        for cut in 0..torn.len() {
            std::fs::write(&path, [&whole[..], &torn[..cut]].concat()).unwrap();
            Journal::reopen(&RealFiles, &path).unwrap().append(&RealFiles, &Entry::Complete).unwrap();
            let map = Filemap::parse(&std::fs::read(&path).unwrap());
            assert_eq!((map.state, map.damaged), (PartState::Complete, false), "cut at {cut}");
        }
    }

    #[test]
    fn a_filemap_that_cannot_be_begun_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("filemap_1");
        let faulty = FaultyFiles::new(RealFiles);
        faulty.fail_once(2, io::ErrorKind::StorageFull);
        assert!(Journal::begin(&faulty, &path, &Entry::Open(&sample(1))).is_err());
        assert!(!path.exists());
    }

    /// Another job that started at that moment took the folders of a new part for leftovers, and removed them with their
    /// contents.
    #[test]
    fn a_part_is_begun_while_another_job_clears_the_cache() {
        use crate::cache::part::find_parts;
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    find_parts(&RealFiles, dir.path(), &[]);
                }
            });
            for round in 0..3000 {
                // No number is given twice.
                let part = PartDir::new(dir.path(), round, scr_comm::Rank(1));
                let begun = Journal::begin_part(&RealFiles, &part, &Entry::Open(&sample(1)));
                let written = begun
                    .map(drop)
                    .map_err(|error| error.to_string())
                    .and_then(|()| {
                        std::fs::write(part.data().join("state"), b"1").map_err(|error| error.to_string())
                    })
                    .and_then(|()| std::fs::read(part.filemap()).map(drop).map_err(|error| error.to_string()))
                    .and_then(|()| part.remove(&RealFiles).map_err(|error| scr_base::describe(&error)));
                if written.is_err() {
                    over.store(true, Ordering::SeqCst);
                }
                assert_eq!(written, Ok(()), "round {round}");
            }
            over.store(true, Ordering::SeqCst);
        });
    }

    /// Another run may remove the part then.
    #[test]
    fn a_claim_whose_file_the_application_has_closed_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let (path, theirs) = (dir.path().join("filemap"), dir.path().join("theirs"));
        std::fs::write(&path, "").unwrap();
        let claim = Claim::lay(&RealFiles, &path);
        claim.expect_held().unwrap();
        assert!(Journal::is_held(&RealFiles, &path));
        let number = scr_test_kit::descriptors::open_below(&path)[0];
        scr_test_kit::descriptors::give_away(number, std::fs::File::create(&theirs).unwrap());
        assert!(scr_base::fs::is_of_closed_file(&claim.expect_held().unwrap_err()));
        assert!(!Journal::is_held(&RealFiles, &path), "the system has given the lock back");
        drop(claim);
        assert!(scr_test_kit::descriptors::closes(number, &theirs));
    }
}
