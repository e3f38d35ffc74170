//! The material of the cases: files with known bytes, jobs, and comparisons that say what differs.

use crate::bytes::{content, first_wrong};
use scr_plugin_api::{CopyItem, CopyJob, CopyState, PluginError, Transport};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) type Found<T> = Result<T, String>;

/// Files in one case's folder: sources in `from`, destinations in `to`.
pub(super) struct Stage {
    pub(super) folder: PathBuf,
    items: Vec<CopyItem>,
}

impl Stage {
    pub(super) fn new(folder: &Path) -> Found<Self> {
        for name in ["from", "to"] {
            attempt(fs::create_dir_all(folder.join(name)), "making a folder")?;
        }
        Ok(Self { folder: folder.to_path_buf(), items: Vec::new() })
    }

    /// Adds a source of this many bytes.
    pub(super) fn file(&mut self, bytes: u64) -> Found<&mut Self> {
        let item = self.item(bytes);
        let len = usize::try_from(bytes).map_err(|_| "a source too large for memory".to_owned())?;
        attempt(fs::write(&item.source, content(self.items.len(), len)), "writing a source")?;
        self.items.push(item);
        Ok(self)
    }

    /// Adds a source of each of these lengths.
    pub(super) fn files(&mut self, lengths: impl IntoIterator<Item = u64>) -> Found<()> {
        lengths.into_iter().try_for_each(|bytes| self.file(bytes).map(drop))
    }

    /// Adds a source of this many bytes that is a hole but for a few bytes in its middle.
    pub(super) fn sparse(&mut self, bytes: u64) -> Found<&mut Self> {
        let item = self.item(bytes);
        let file = attempt(fs::File::create(&item.source), "creating a source")?;
        attempt(file.set_len(bytes), "extending a source")?;
        attempt(file.write_all_at(b"not zero", bytes / 2), "writing a source")?;
        self.items.push(item);
        Ok(self)
    }

    fn item(&self, bytes: u64) -> CopyItem {
        let number = self.items.len();
        CopyItem {
            source: self.folder.join(format!("from/{number}")),
            destination: self.folder.join(format!("to/{number}")),
            bytes,
        }
    }

    /// The files added so far as one job.
    pub(super) fn job(&self, token: &str) -> CopyJob {
        CopyJob {
            token: format!("{}.{token}", self.folder.display()),
            items: self.items.clone(),
            block_bytes: 1 << 16,
            take_crc: true,
        }
    }
}

/// Starts a job and waits for its end.
pub(super) fn copy(transport: &dyn Transport, job: &CopyJob) -> Found<(Vec<u8>, CopyState)> {
    let ticket = start(transport, job)?;
    let state = accepted(transport.wait(&ticket), "wait")?;
    Ok((ticket, state))
}

pub(super) fn start(transport: &dyn Transport, job: &CopyJob) -> Found<Vec<u8>> {
    accepted(transport.start(job), "start")
}

/// The job must end well, and the files be equal.
pub(super) fn copy_well(transport: &dyn Transport, job: &CopyJob) -> Found<Vec<u8>> {
    let before = sources(&job.items)?;
    let (ticket, state) = copy(transport, job)?;
    expect(&state, &CopyState::Done, "the state of the job")?;
    let mut both = before.into_iter().zip(sources(&job.items)?);
    let changed = both.find(|(before, after)| before != after);
    changed.map_or(Ok(()), |((source, _), _)| Err(format!("the source {source} was changed")))?;
    same_bytes(&job.items)?;
    Ok(ticket)
}

/// The job must be refused, or end badly; gives the error.
pub(super) fn copy_badly(transport: &dyn Transport, job: &CopyJob) -> Found<PluginError> {
    let ticket = match transport.start(job) {
        Err(error) => return Ok(error),
        Ok(ticket) => ticket,
    };
    match accepted(transport.wait(&ticket), "wait")? {
        CopyState::Failed(error) => {
            let again = accepted(transport.poll(&ticket), "poll")?;
            expect(&again, &CopyState::Failed(error.clone()), "the state when asked again")?;
            Ok(error)
        }
        other => Err(format!("the job should have failed, but it is {other:?}")),
    }
}

/// The error must name this path, on one line.
pub(super) fn names(error: &PluginError, path: &Path) -> Found<()> {
    let path = path.display().to_string();
    if error.text.contains(&path) && error.text.lines().count() == 1 {
        return Ok(());
    }
    Err(format!("the error should name {path} on one line, but it says {:?}", error.text))
}

/// The names and the bytes of all sources.
fn sources(items: &[CopyItem]) -> Found<Vec<(String, Vec<u8>)>> {
    items.iter().map(|item| Ok((item.source.display().to_string(), read(&item.source)?))).collect()
}

/// Every destination must be a file of its own, with the bytes of its source.
pub(super) fn same_bytes(items: &[CopyItem]) -> Found<()> {
    let sources = sources(items)?;
    for (item, (_, expected)) in items.iter().zip(&sources) {
        let found = read(&item.destination)?;
        let look = |path: &Path| attempt(fs::symlink_metadata(path), "looking at a file");
        let (source, own) = (look(&item.source)?, look(&item.destination)?);
        if !own.is_file() || (own.dev(), own.ino()) == (source.dev(), source.ino()) {
            return Err(format!("{} is a link and no copy", item.destination.display()));
        }
        if *expected != found {
            let (byte, why) = first_wrong(&found, expected, &sources).unwrap_or_default();
            return Err(format!("{} is wrong from byte {byte} on: {why}", item.destination.display()));
        }
    }
    Ok(())
}

pub(super) fn read(path: &Path) -> Found<Vec<u8>> {
    fs::read(path).map_err(|error| format!("reading {} failed: {error}", path.display()))
}

pub(super) fn expect<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T, what: &str) -> Found<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} is {found:?}, expected {expected:?}"))
}

pub(super) fn accepted<T>(result: Result<T, PluginError>, call: &str) -> Found<T> {
    result.map_err(|error| format!("{call} gave an error: {error}"))
}

pub(super) fn attempt<T>(result: std::io::Result<T>, what: &str) -> Found<T> {
    result.map_err(|error| format!("{what} failed: {error}"))
}

/// Asks until the job has copied something or has ended.
pub(super) fn until_it_moves(transport: &dyn Transport, ticket: &[u8]) -> Found<CopyState> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match accepted(transport.poll(ticket), "poll")? {
            CopyState::Running(0) if Instant::now() < deadline => std::thread::yield_now(),
            CopyState::Running(0) => return Err(format!("the job did not move within {PATIENCE:?}")),
            state => return Ok(state),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
