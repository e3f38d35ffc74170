//! A transfer file: the copies to make, and their progress.
//!
//! One for each job, `transfer.<token>` in the control directory, a KVTree with a [`Transfer`] as JSON.
//! The transport writes it once, the agent from then on, so no two processes write it at the same time; each
//! replaces it in one step. The request to stop is a file of its own beside it. Bytes that count as written are synced. The agent
//! also touches it while its copy makes progress, or waits for others that do: that needs no room.

use crate::{refused, NAME};
use scr_copying::check_order;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::pace::Limits;
use scr_plugin_api::{
    above_standard, path_text, paths_in, CopyItem, CopyJob, KvTree, PluginError, PluginErrorKind,
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// One transfer file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its path.
    #[serde(skip)]
    pub path: PathBuf,
    /// The job's.
    pub token: String,
    /// The files to copy.
    pub files: Vec<FileProgress>,
    /// Size of the blocks to read and write.
    pub block_bytes: u64,
    /// Whether checksums are taken.
    pub take_crc: bool,
    /// The limits of the agent, for all that it copies.
    pub limits: Limits,
    /// The agent begins it only while it is at work on fewer transfers than this; 0 for no limit.
    pub width: usize,
    /// The slots of which it needs one first, since all nodes share them.
    pub slots: Option<Slots>,
    /// Whether the agent is at work on it.
    pub running: bool,
    /// How it has ended, if it has: every byte is at its destination, and synced, or at least one file is not complete.
    pub outcome: Option<Result<(), PluginError>>,
}

/// Slots that the agents of all nodes share: each that copies has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// A folder that all nodes see.
    #[serde(with = "path_text")]
    pub folder: PathBuf,
    /// How many.
    pub count: u32,
}

/// One file of it, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileProgress {
    /// Source and destination.
    pub item: CopyItem,
    /// How many bytes are at the destination, and synced.
    pub written: u64,
    /// Their checksum, where one is taken.
    pub crc: Option<u32>,
}

impl Transfer {
    /// For a job; nothing is written yet.
    pub(crate) fn new(control: &Path, job: &CopyJob, limits: Limits) -> Result<Self, PluginError> {
        check_order(NAME, job)?;
        let mut sources = HashSet::new();
        if let Some(twice) = job.items.iter().find(|item| !sources.insert(&item.source)) {
            return Err(refused(&format!("job {} names {} twice", job.token, twice.source.display())));
        }
        let file = |item: &CopyItem| FileProgress { item: item.clone(), written: 0, crc: None };
        Ok(Self {
            path: control.join(file_name(&job.token)),
            token: job.token.clone(),
            files: job.items.iter().map(file).collect(),
            block_bytes: job.block_bytes,
            take_crc: job.take_crc,
            limits,
            width: 0,
            slots: None,
            running: false,
            outcome: None,
        })
    }

    /// The transfer file at a path; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none, in one line.
    pub fn read(path: &Path) -> Result<Option<Self>, String> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| format!("{} cannot be read: {error}", path.display()))?,
        };
        Self::from_bytes(path, &bytes).map(Some)
    }

    /// The transfer that the bytes of a file describe.
    ///
    /// # Errors
    /// They describe none.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, String> {
        let tree = KvTree::from_file_bytes(bytes).map_err(|error| error.to_string());
        let transfer = tree.and_then(|tree| tree.json::<Self>(KEY).map_err(|error| error.to_string()));
        let transfer = transfer.map(|transfer| Self { path: path.to_owned(), ..transfer });
        transfer.map_err(|error| format!("{} is no transfer file: {error}", path.display()))
    }

    /// Writes it for the agent to see; an earlier request to stop is forgotten.
    pub(crate) fn begin(&self) -> Result<(), String> {
        let begun = match fs::remove_file(self.stop_path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.write(),
        };
        begun.map_err(|error| format!("{} cannot be written: {error}", self.path.display()))
    }

    /// Writes it in one step.
    pub(crate) fn write(&self) -> io::Result<()> {
        let mut tree = KvTree::new();
        tree.set_json(KEY, self);
        let fresh = beside(&self.path, ".new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = above_standard(|| options.open(&fresh));
        let written = file.and_then(|mut file| file.write_all(&tree.to_file_bytes()));
        // The room of half a file is needed.
        written.and_then(|()| fs::rename(&fresh, &self.path)).inspect_err(|_| drop(fs::remove_file(&fresh)))
    }

    /// Writes its end. Where there is no room for that, the file makes room: whoever waits for the end finds the file with it, or
    /// no file, which is an end as well.
    pub(crate) fn write_end(&self) -> io::Result<()> {
        self.write().or_else(|_| fs::remove_file(&self.path).and_then(|()| self.write()))
    }

    /// Removes it, and what lies beside it.
    pub(crate) fn remove(&self) {
        for path in [self.stop_path(), self.path.clone()] {
            // The remains go with the control directory.
            let _ = fs::remove_file(path);
        }
    }

    /// Requests it to stop.
    pub(crate) fn stop(&self) -> io::Result<()> {
        above_standard(|| fs::write(self.stop_path(), b""))
    }

    /// Whether somebody has requested it to stop.
    pub(crate) fn is_to_stop(&self) -> bool {
        is_to_stop(&self.path)
    }

    /// How it ends if it is stopped.
    pub(crate) fn cancelled(&self) -> PluginError {
        let text = format!("copying job {} was cancelled at byte {}", self.token, self.written());
        PluginError::new(PluginErrorKind::Cancelled, text)
    }

    /// How many bytes are at their destinations, and synced.
    pub fn written(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.written))
    }

    /// How many bytes there are to copy.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.item.bytes))
    }

    pub(crate) fn is_same_job(&self, other: &Self) -> bool {
        let order = |transfer: &Self| {
            let items: Vec<_> = transfer.files.iter().map(|file| file.item.clone()).collect();
            (transfer.token.clone(), items, transfer.block_bytes, transfer.take_crc)
        };
        order(self) == order(other)
    }

    fn stop_path(&self) -> PathBuf {
        beside(&self.path, ".exit")
    }
}

impl Slots {
    /// The values of the options `SLOTS_FOLDER` and `SLOTS`; none if one of them is not set.
    pub(crate) fn from_options(options: &KvTree) -> Result<Option<Self>, FieldError> {
        let count = options.parse("SLOTS")?.filter(|count| *count > 0);
        Ok(options.path("SLOTS_FOLDER").zip(count).map(|(folder, count)| Self { folder, count }))
    }
}

/// Whether somebody has requested the transfer of this path to stop.
pub(crate) fn is_to_stop(path: &Path) -> bool {
    beside(path, ".exit").exists()
}

/// All transfer files of a control directory, in the order of their names; those that cannot be read are left out.
pub fn list(control: &Path) -> Vec<PathBuf> {
    paths_in(control).unwrap_or_default().into_iter().filter(|path| is_transfer(path)).collect()
}

fn is_transfer(path: &Path) -> bool {
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    name.starts_with(PREFIX.as_bytes()) && !name.ends_with(b".exit") && !name.ends_with(b".new")
}

/// A token may hold anything, and names have 255 bytes.
fn file_name(token: &str) -> String {
    let plain: String = token
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' })
        .collect();
    if plain == token && plain.len() <= LONGEST_TOKEN {
        return format!("{PREFIX}{plain}.scr");
    }
    let end = plain.len().saturating_sub(LONGEST_TOKEN);
    format!("{PREFIX}{:08x}~{}.scr", crc32fast::hash(token.as_bytes()), &plain[end..])
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

const PREFIX: &str = "transfer.";
/// The one key of a transfer file.
const KEY: &str = "TRANSFER";
const LONGEST_TOKEN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn job(token: &str) -> CopyJob {
        let item = |number: u8| CopyItem {
            source: OsStr::from_bytes(&[b'/', b'z' - number, 0xff]).into(),
            destination: format!("/pfs/{number}").into(),
            bytes: u64::from(number) * 10,
        };
        CopyJob { token: token.to_owned(), items: (0..3).map(item).collect(), block_bytes: 7, take_crc: true }
    }

    fn transfer(control: &Path) -> Transfer {
        let limits = Limits { bytes_per_second: 52_428_800, percent: 12.5 };
        Transfer::new(control, &job("4.18.a.0"), limits).unwrap()
    }

    #[test]
    fn a_transfer_file_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut transfer = transfer(dir.path());
        transfer.begin().unwrap();
        assert_eq!(Transfer::read(&transfer.path), Ok(Some(transfer.clone())));
        transfer.files[1].written = 10;
        transfer.files[1].crc = Some(0xab);
        transfer.running = true;
        transfer.slots = Some(Slots { folder: OsStr::from_bytes(b"/pfs/\xff\n").into(), count: 2 });
        transfer.outcome = Some(Err(PluginError::new(PluginErrorKind::Corrupt, "/ssd/a is missing")));
        transfer.write().unwrap();
        assert_eq!(Transfer::read(&transfer.path), Ok(Some(transfer.clone())));
        assert_eq!((transfer.written(), transfer.bytes()), (10, 30));
        assert_eq!(list(dir.path()), [transfer.path]);
    }

    #[test]
    fn every_token_has_a_name_of_its_own_in_the_folder() {
        let long = "x/".repeat(1000);
        let tokens = ["a", "a/b", "a_b", "", ".", long.as_str(), &long[2..], "é"];
        let names: HashSet<_> = tokens.iter().map(|token| file_name(token)).collect();
        assert_eq!(names.len(), tokens.len());
        assert!(names.iter().all(|name| name.len() < 255 && !name.contains('/')));
    }

    #[test]
    fn a_malformed_transfer_file_is_reported_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("transfer.a.scr");
        assert_eq!(Transfer::read(&path), Ok(None));
        for bytes in [&b""[..], b"something else", &KvTree::new().to_file_bytes()] {
            fs::write(&path, bytes).unwrap();
            assert!(Transfer::read(&path).unwrap_err().contains("transfer.a.scr is no transfer file"));
        }
    }

    #[test]
    fn a_stop_request_lasts_until_the_job_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let transfer = transfer(dir.path());
        transfer.begin().unwrap();
        transfer.stop().unwrap();
        assert!(transfer.is_to_stop());
        assert_eq!(list(dir.path()).len(), 1);
        transfer.begin().unwrap();
        assert!(!transfer.is_to_stop());
    }
}
