//! The event log `.scr/events` in the prefix directory, which scr keeps by itself: the costs of a job are computed from it.
//!
//! Entries that come together go out in one append: two for a checkpoint. Once the file has [`MOST_BYTES`], it becomes
//! `.scr/events.1`, and that one is gone. After an error the entries are kept, as many as have room, and go out with a later one:
//! the job does not depend on this file.

use super::record::is_followed;
use super::text::exact_line;
use scr_base::ensure;
use scr_base::fs::{File, Files, How, Kind};
use scr_plugin_api::LogEntry;
use scr_prefix::{Prefix, FILE_MODE};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The length at which a new file is begun: some 5,000 checkpoints. There are two files at most.
pub const MOST_BYTES: u64 = 8 << 20;
/// The most bytes that wait for a file to become writable again.
const MOST_WAITING: usize = 64 << 10;

/// The event log, as a run or a command writes it.
pub(super) struct EventLog {
    files: Arc<dyn Files>,
    path: PathBuf,
    older: PathBuf,
    waiting: String,
    /// Whether the last append has failed, and may have left a part of a line.
    has_failed: bool,
}

impl EventLog {
    /// Opens nothing yet.
    pub(super) fn new(files: Arc<dyn Files>, prefix: &Prefix) -> Self {
        let [path, older] = prefix.event_files();
        Self { files, path, older, waiting: String::new(), has_failed: false }
    }

    /// As messages name it.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Takes an entry, and writes it unless another one follows at once.
    ///
    /// # Errors
    /// The first time in a row that it cannot be written.
    pub(super) fn add(&mut self, entry: &LogEntry) -> Result<()> {
        self.waiting += &exact_line(entry);
        self.waiting.push('\n');
        if is_followed(entry) {
            return Ok(());
        }
        self.write_out()
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub(super) fn write_out(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let written = self.append();
        let had_failed = std::mem::replace(&mut self.has_failed, written.is_err());
        if written.is_ok() {
            self.waiting.clear();
            return Ok(());
        }
        if let Some(surplus) = self.waiting.len().checked_sub(MOST_WAITING) {
            let line = self.waiting.as_bytes()[surplus..].iter().position(|&byte| byte == b'\n');
            self.waiting.drain(..line.map_or(self.waiting.len(), |end| surplus + end + 1));
        }
        written.or_else(|error| ensure(had_failed, || error))
    }

    /// The file does not stay open: that would keep its file system from being made read-only, and its folder from being
    /// unmounted.
    fn append(&mut self) -> Result<()> {
        let file = self.open()?;
        if !self.has_failed {
            return file.append(self.waiting.as_bytes());
        }
        // The remains of the line that failed become a line of their own.
        file.append(format!("\n{}", self.waiting).as_bytes())
    }

    /// An error that may pass does not hold the job up: a later entry tries again.
    fn once(&self) -> &dyn Files {
        self.files.without_retries().unwrap_or(&*self.files)
    }

    fn open(&self) -> Result<Box<dyn File>> {
        let (file, len) = self.open_once()?;
        if len < MOST_BYTES {
            return Ok(file);
        }
        drop(file);
        _ = self.once().rename(&self.path, &self.older);
        Ok(self.open_once()?.0)
    }

    /// Opens the file, which waits for no reader of a pipe, and gives its length.
    fn open_once(&self) -> Result<(Box<dyn File>, u64)> {
        let none = |kind: Kind| Error::new(ErrorKind::InvalidInput, format!("it is {}", kind.name()));
        // Through a link it would be a file of whoever has put that there.
        let folder = self.path.parent().map(|folder| self.once().status(folder)).transpose()?;
        if let Some(folder) = folder.filter(|folder| folder.kind == Kind::Link) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("its folder is {}", folder.kind.name())));
        }
        let file = match self.once().open(&self.path, How::Append(FILE_MODE)) {
            Err(error) => {
                let kind = self.once().status(&self.path).map(|found| found.kind);
                return Err(kind.ok().filter(|kind| *kind != Kind::File).map_or(error, none));
            }
            Ok(file) => file,
        };
        let found = file.status()?;
        ensure(found.kind == Kind::File, || none(found.kind)).map(|()| (file, found.len))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::faulty::{FaultyFiles, What};

    fn entry(name: &str) -> LogEntry {
        LogEntry { name: name.to_owned(), micros: 1_795_228_104_000_001, ..LogEntry::default() }
    }

    fn scratch() -> (tempfile::TempDir, Prefix) {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        prefix.make_scr_dir(&RealFiles).unwrap();
        (dir, prefix)
    }

    fn read(prefix: &Prefix) -> Vec<String> {
        let text = std::fs::read_to_string(&prefix.event_files()[0]).unwrap();
        text.lines().filter_map(|line| Some(parse(line).ok()?.name)).collect()
    }

    #[test]
    fn entries_that_come_together_go_out_in_one_append() {
        let (_dir, prefix) = scratch();
        let files = FaultyFiles::new(RealFiles);
        let mut log = EventLog::new(Arc::new(files.clone()), &prefix);
        for name in ["COMPUTE_START", "COMPUTE_END", "CHECKPOINT_START"] {
            log.add(&entry(name)).unwrap();
        }
        for name in ["WRITE", "ENCODE", "CHECKPOINT_END", "CHECKPOINT", "COMPUTE_START"] {
            log.add(&entry(name)).unwrap();
        }
        assert_eq!(files.operations().iter().filter(|step| step.what == What::Append).count(), 3);
        assert_eq!(read(&prefix).len(), 8);
    }

    #[test]
    fn a_full_disk_is_reported_once_and_what_had_no_room_comes_later() {
        let (_dir, prefix) = scratch();
        let files = FaultyFiles::new(RealFiles);
        let mut log = EventLog::new(Arc::new(files.clone()), &prefix);
        log.add(&entry("START")).unwrap();
        files.fail_from(1, ErrorKind::StorageFull);
        assert!(log.add(&entry("COMPUTE_START")).is_err());
        assert!(log.add(&entry("CHECKPOINT_START")).is_ok(), "it is said once");
        (0..10_000).for_each(|_| log.add(&entry("CHECKPOINT_FAIL")).unwrap());
        assert!(log.waiting.len() <= MOST_WAITING);
        files.heal();
        log.add(&entry("HALT")).unwrap();
        let names = read(&prefix);
        assert_eq!((names.first().unwrap().as_str(), names.last().unwrap().as_str()), ("START", "HALT"));
        assert!(names.len() > 100, "{}", names.len());
        files.fail_from(1, ErrorKind::StorageFull);
        assert!(log.add(&entry("HALT")).is_err(), "and again after it has worked");
    }

    #[test]
    fn a_long_file_is_begun_anew_and_two_writers_do_not_lose_it() {
        let (_dir, prefix) = scratch();
        let [path, older] = prefix.event_files();
        let writer = || EventLog::new(Arc::new(RealFiles), &prefix);
        let (mut one, mut other) = (writer(), writer());
        one.add(&entry("START")).unwrap();
        other.add(&entry("START")).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(MOST_BYTES).unwrap();
        one.add(&entry("ONE")).unwrap();
        assert_eq!(read(&prefix), ["ONE"]);
        assert_eq!(std::fs::metadata(&older).unwrap().len(), MOST_BYTES);
        other.add(&entry("OTHER")).unwrap();
        assert_eq!(read(&prefix), ["ONE", "OTHER"]);
        std::fs::write(&path, vec![b'\n'; MOST_BYTES as usize]).unwrap();
        writer().add(&entry("START")).unwrap();
        assert_eq!(read(&prefix), ["START"]);
    }

    #[test]
    fn a_folder_that_is_renamed_is_not_made_again_and_gets_all_entries_once_it_is_back() {
        let (dir, prefix) = scratch();
        let mut log = EventLog::new(Arc::new(RealFiles), &prefix);
        log.add(&entry("START")).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(prefix.scr_dir(), &elsewhere).unwrap();
        assert!(log.add(&entry("ONE")).is_err(), "a new file has no place");
        assert!(log.add(&entry("TWO")).is_ok(), "which is said once");
        assert!(!prefix.scr_dir().exists());
        std::fs::rename(&elsewhere, prefix.scr_dir()).unwrap();
        log.add(&entry("HALT")).unwrap();
        assert_eq!(read(&prefix), ["START", "ONE", "TWO", "HALT"]);
    }

    #[test]
    fn a_pipe_or_a_folder_of_its_name_is_no_log_and_nobody_waits_for_it() {
        let (_dir, prefix) = scratch();
        let path = &prefix.event_files()[0];
        std::fs::create_dir(path).unwrap();
        let mut log = EventLog::new(Arc::new(RealFiles), &prefix);
        assert!(log.add(&entry("START")).unwrap_err().to_string().contains("it is a folder"));
        std::fs::remove_dir(path).unwrap();
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let mut log = EventLog::new(Arc::new(RealFiles), &prefix);
        assert!(log.add(&entry("START")).is_err());
    }
}
