//! Moves files to the nodes that their ranks now run on. See docs/user/concepts.md.
//!
//! Every rank sends what others fetch from it and receives what it fetches, block by block, all at the same
//! time. A sender keeps its copy until the whole dataset is in place.

use crate::cache::loss::{Loss, Lost};
use crate::cache::part::PartDir;
use crate::cache::record::{FileRecord, RankRecord};
use crate::job::Job;
use crate::typed::route_values;
use scr_base::fs::copy::write_data;
use scr_base::fs::{At, File, Files, FsError, How};
use scr_comm::{exchange_all, CommError, Incoming, Outgoing, Rank, Tag};
use scr_config::param;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A part that one rank sends and another one receives.
pub(crate) struct Moving {
    /// The rank at the other end.
    pub(crate) rank: Rank,
    pub(crate) part: PartDir,
    pub(crate) record: RankRecord,
    /// Whether its redundancy is lost, as both know.
    pub(crate) bare: bool,
}

/// The result for a part that was to arrive.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// All its bytes, as they were read, and the times of its files from now on: a file system may refuse or round them.
    Whole(Vec<(i64, u32)>),
    /// Its holder could not read all of it: this is lost.
    Unreadable(Loss),
    /// This rank could not write it.
    Unwritten(FsError),
}

/// Sends and fetches. A rank that cannot read or write continues to the end, so that nobody waits for it. Every rank calls it,
/// also with nothing to do.
pub(crate) fn run(job: &Job, departing: &[Moving], arriving: Option<&Moving>) -> Result<Arrival, CommError> {
    let (files, message_bytes) = (job.files(), job.params.get(&param::MPI_BUF_SIZE));
    let mut outgoing: Vec<(Rank, Stream)> = departing
        .iter()
        .map(|part| (part.rank, Stream::open(files, part, How::Read, message_bytes)))
        .collect();
    let mut incoming =
        arriving.map(|part| (part.rank, Stream::open(files, part, How::Create(0o600), message_bytes)));
    let mut block = Vec::new();
    loop {
        let blocks: Vec<(Rank, &[u8])> =
            outgoing.iter_mut().filter_map(|(to, stream)| Some((*to, stream.read_block()?))).collect();
        let length = incoming.as_ref().map_or(0, |(_, stream)| stream.next_length());
        if blocks.is_empty() && length == 0 {
            break;
        }
        block.resize(length, 0);
        let sends: Vec<_> = blocks.iter().map(|(to, bytes)| Outgoing { to: *to, bytes }).collect();
        let mut receives = Vec::new();
        if let Some((from, _)) = incoming.as_ref().filter(|_| length > 0) {
            receives.push(Incoming { from: *from, bytes: &mut block });
        }
        exchange_all(&*job.comm, TAG, &sends, &mut receives)?;
        if let Some((_, stream)) = incoming.as_mut().filter(|_| length > 0) {
            stream.write_block(&block);
        }
    }
    let failures = outgoing.into_iter().filter_map(|(to, stream)| Some((to, stream.outcome.err()?)));
    let failures = failures.map(|(to, (lost, error))| (to, Loss { lost, why: scr_base::describe(&error) }));
    let failures = route_values(&*job.comm, &failures.collect::<Vec<_>>())?;
    let (Some(part), Some((_, stream))) = (arriving, incoming) else { return Ok(Arrival::Whole(Vec::new())) };
    let loss = failures.into_iter().next().map(|(_, loss)| loss);
    if let Some(loss) = loss.as_ref().filter(|loss| loss.lost == Lost::Data) {
        return Ok(Arrival::Unreadable(loss.clone()));
    }
    let written = stream.outcome.map_err(|(_, error)| error).and_then(|()| set_attributes(files, part));
    let arrived = |times| loss.map_or(Arrival::Whole(times), Arrival::Unreadable);
    Ok(written.map_or_else(Arrival::Unwritten, arrived))
}

/// A file with its path and its length; none where it could not be opened.
type Opened = (PathBuf, Option<Box<dyn File>>, u64);

/// An error, and what is lost by it.
type Failure = (Lost, FsError);

/// Files end to end, transferred block by block. Both sides know the lengths from the record. It goes on to the end after an error,
/// so that nobody waits for it, without the file that has failed.
pub(crate) struct Stream {
    files: Vec<Opened>,
    current: usize,
    offset: u64,
    /// Bytes of a block.
    block: u64,
    /// The last one that was read.
    read: Vec<u8>,
    /// How many files are data. The redundancy file follows, if there is one.
    data: usize,
    /// The first error by which most is lost.
    outcome: Result<(), Failure>,
}

impl Stream {
    fn open(files: &dyn Files, moving: &Moving, how: How, block: u64) -> Self {
        let Moving { part, record, bare, .. } = moving;
        let data = record.files.iter().map(|file| (Lost::Data, part.file(&file.name), file.bytes));
        let kept = record.redundancy.filter(|_| !*bare);
        let kept = kept.map(|kept| (Lost::Redundancy, part.redundancy(), kept.bytes));
        let mut outcome = Ok(());
        let open = |(lost, path, bytes): (Lost, PathBuf, u64)| {
            let file = keep_error(&mut outcome, lost, files.open(&path, how).at("open", &path));
            (path, file, bytes)
        };
        let files = data.chain(kept).map(open).collect();
        Self { data: record.files.len(), ..Self::of(files, block, outcome) }
    }

    fn of(files: Vec<Opened>, block: u64, outcome: Result<(), Failure>) -> Self {
        Self { data: files.len(), files, current: 0, offset: 0, block, read: Vec::new(), outcome }
    }

    /// One file.
    pub(crate) fn of_file(
        path: &Path,
        opened: Result<Box<dyn File>, FsError>,
        bytes: u64,
        block: u64,
    ) -> Self {
        let mut outcome = Ok(());
        let file = keep_error(&mut outcome, Lost::Data, opened);
        Self::of(vec![(path.to_owned(), file, bytes)], block, outcome)
    }

    /// The one file.
    ///
    /// # Errors
    /// It could not be opened, or not all of it read or written.
    pub(crate) fn into_file(mut self) -> Result<Box<dyn File>, FsError> {
        self.outcome.map_err(|(_, error)| error)?;
        let file = self.files.pop().and_then(|(_, file, _)| file);
        Ok(file.expect("it is not open after an error only"))
    }

    /// The loss from an error of the file that is current.
    fn at_risk(&self) -> Lost {
        if self.current < self.data {
            Lost::Data
        } else {
            Lost::Redundancy
        }
    }

    /// Length of the next block; 0 at the end.
    pub(crate) fn next_length(&self) -> usize {
        let left = |&(_, _, bytes): &Opened, from: u64| bytes - from;
        let mut from = self.offset;
        for file in &self.files[self.current..] {
            if left(file, from) > 0 {
                return left(file, from).min(self.block) as usize;
            }
            from = 0;
        }
        0
    }

    fn advance(&mut self) {
        while self.current < self.files.len() && self.offset == self.files[self.current].2 {
            self.current += 1;
            self.offset = 0;
        }
    }

    /// Reads the next block; `None` at the end. After an error its bytes mean nothing.
    pub(crate) fn read_block(&mut self) -> Option<&[u8]> {
        let length = self.next_length();
        if length == 0 {
            return None;
        }
        self.advance();
        self.read.resize(length, 0);
        let lost = self.at_risk();
        let (path, file, _) = &mut self.files[self.current];
        if let Some(open) = file {
            let read = open.read_at(self.offset, &mut self.read).and_then(|count| match count == length {
                true => Ok(()),
                false => Err(ErrorKind::UnexpectedEof.into()),
            });
            if keep_error(&mut self.outcome, lost, read.at("read", &*path)).is_none() {
                *file = None;
            }
        }
        self.offset += length as u64;
        Some(&self.read)
    }

    pub(crate) fn write_block(&mut self, block: &[u8]) {
        self.advance();
        let lost = self.at_risk();
        let (path, file, bytes) = &mut self.files[self.current];
        let end = self.offset + block.len() as u64;
        if let Some(open) = file {
            let written = write_data(&**open, self.offset, block);
            let extended = written.and_then(|written| match written {
                // It ends with a hole.
                written if end == *bytes && written != Some(end) => open.set_len(end),
                _ => Ok(()),
            });
            if keep_error(&mut self.outcome, lost, extended.at("write", &*path)).is_none() {
                *file = None;
            }
        }
        self.offset = end;
    }
}

/// Gives the time of each file.
fn set_attributes(files: &dyn Files, part: &Moving) -> Result<Vec<(i64, u32)>, FsError> {
    let set = |record: &FileRecord| {
        let path = part.part.file(&record.name);
        let file = files.open(&path, How::Read).at("open", &path)?;
        file.set_mode(record.mode & 0o777).at("set the permissions of", &path)?;
        if !record.is_known_by_time() {
            return Ok(record.mtime);
        }
        file.set_times(record.mtime, record.mtime).at("set the times of", &path)?;
        Ok(file.status().at("look at", &path)?.mtime)
    };
    part.record.files.iter().map(set).collect()
}

/// Keeps the first error by which most is lost.
fn keep_error<T>(outcome: &mut Result<(), Failure>, lost: Lost, result: Result<T, FsError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            if outcome.as_ref().err().is_none_or(|(known, _)| *known < lost) {
                *outcome = Err((lost, error));
            }
            None
        }
    }
}

const TAG: Tag = Tag(40);
