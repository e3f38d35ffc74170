//! Bringing lost parts back, and finding out which parts can be trusted.
//!
//! Lost files are rebuilt under other names and take their own only once their checksums are right; so a
//! rebuild that fails or is cut short takes nothing away.

use super::bytes::LogicalFile;
use super::host_set::{HostSet, Shape};
use super::place::PartPlace;
use super::protect::{exchange_lens, open_files};
use super::sets::in_set;
use crate::cache::record::RankRecord;
use crate::comm::set::SetComm;
use crate::comm::{Comm, Rank};
use crate::fs::{Files, How};
use crate::message::Reporter;
use scr_plugin_api::Scheme;
use std::path::{Path, PathBuf};

/// What a rank needs to take part in a rebuild.
pub(crate) struct Rebuilding<'a> {
    pub(crate) comm: &'a dyn Comm,
    pub(crate) files: &'a dyn Files,
    pub(crate) report: &'a Reporter,
    pub(crate) scheme: &'a dyn Scheme,
    /// Processors for this rank.
    pub(crate) processors: u32,
    /// Bytes of a message at most: `SCR_MPI_BUF_SIZE`.
    pub(crate) message_bytes: u64,
}

/// Whether a part's bytes are what was recorded of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Every length and every checksum is right.
    Sound,
    /// This is wrong.
    Corrupt(String),
}

impl Trust {
    /// What is wrong, as an error.
    pub(super) fn into_result(self) -> Result<(), String> {
        match self {
            Self::Sound => Ok(()),
            Self::Corrupt(what) => Err(what),
        }
    }
}

impl Rebuilding<'_> {
    /// Rebuilds the lost members of this rank's set. Gives what the checksums say of this rank's part; a lost part that
    /// is sound is in place. Called on all members at once.
    pub(crate) fn run(
        &self,
        part: &dyn PartPlace,
        record: &RankRecord,
        lost: &[Rank],
        ready: Result<(), String>,
    ) -> Result<Trust, String> {
        let rebuilt = in_set(self.comm, &record.members, |set| {
            ready.and_then(|()| self.within(set, part, record, lost))
        });
        if lost.contains(&record.rank) {
            self.settle(part, record, rebuilt == Ok(Trust::Sound))?;
        }
        rebuilt
    }

    fn within(
        &self,
        set: &SetComm<'_>,
        part: &dyn PartPlace,
        record: &RankRecord,
        lost: &[Rank],
    ) -> Result<Trust, String> {
        let shape = Shape {
            dataset: record.dataset.id,
            members: record.members.clone(),
            data_lens: exchange_lens(set, record.data_bytes())?,
            lost: record.members.iter().map(|member| lost.contains(member)).collect(),
        };
        let (data, redundancy) = if lost.contains(&record.rank) {
            (self.create_data(part, record)?, self.create_redundancy(part, record)?)
        } else {
            (
                open_files(self.files, part, record, How::Read, true)?,
                open_redundancy(self.files, part, record)?,
            )
        };
        let (report, processors, message_bytes) = (self.report, self.processors, self.message_bytes);
        let host = HostSet { shape: &shape, comm: set, data, redundancy, report, processors, message_bytes };
        self.scheme.rebuild(&host, record.protection.format).map_err(|error| error.to_string())?;
        compare(record, &host.data, &host.redundancy)
    }

    fn create_data(&self, part: &dyn PartPlace, record: &RankRecord) -> Result<LogicalFile, String> {
        let made = record.files.iter().enumerate().map(|(number, file)| {
            let path = part.file_being_rebuilt(record, number);
            Ok((path.clone(), self.create(&path, file.bytes)?, file.bytes))
        });
        Ok(LogicalFile::new(made.collect::<Result<_, String>>()?, true))
    }

    fn create_redundancy(&self, part: &dyn PartPlace, record: &RankRecord) -> Result<LogicalFile, String> {
        let Some(redundancy) = record.redundancy else { return Ok(LogicalFile::new(Vec::new(), true)) };
        let path = part.redundancy_being_rebuilt();
        let file = self.create(&path, redundancy.bytes)?;
        Ok(LogicalFile::new(vec![(path, file, redundancy.bytes)], true))
    }

    fn create(&self, path: &Path, bytes: u64) -> Result<Box<dyn crate::fs::File>, String> {
        let fail = |error| format!("cannot create {}: {error}", path.display());
        let file = self.files.open(path, How::Replace(0o600)).map_err(fail)?;
        file.set_len(bytes).map_err(fail)?;
        Ok(file)
    }

    /// Gives rebuilt files their names, or takes them away again.
    fn settle(&self, part: &dyn PartPlace, record: &RankRecord, sound: bool) -> Result<(), String> {
        let data = record.files.iter().enumerate();
        let mut moves: Vec<(PathBuf, PathBuf, u32)> = data
            .map(|(number, file)| {
                (part.file_being_rebuilt(record, number), part.file(record, file), file.mode & PERMISSIONS)
            })
            .collect();
        if record.redundancy.is_some() {
            moves.push((part.redundancy_being_rebuilt(), part.redundancy(), 0o600));
        }
        for (from, to, mode) in moves {
            if sound {
                let fail = |error| format!("cannot put the rebuilt {} in its place: {error}", to.display());
                let file = self.files.open(&from, How::Read).map_err(fail)?;
                file.set_mode(mode).map_err(fail)?;
                self.files.rename(&from, &to).map_err(fail)?;
            } else {
                // Whatever is left is not counted on, and the next start clears it away.
                let _ = self.files.remove_file(&from);
            }
        }
        Ok(())
    }
}

/// Reads a part from end to end and compares it with its record.
pub(crate) fn verify(files: &dyn Files, part: &dyn PartPlace, record: &RankRecord) -> Result<Trust, String> {
    let recorded = record.files.iter().all(|file| file.crc.is_none()) && record.redundancy.is_none();
    if recorded {
        return Ok(Trust::Sound);
    }
    let data = open_files(files, part, record, How::Read, true)?;
    compare(record, &data, &open_redundancy(files, part, record)?)
}

/// Compares what passed through with what was recorded.
fn compare(record: &RankRecord, data: &LogicalFile, redundancy: &LogicalFile) -> Result<Trust, String> {
    let sums = match (data.checksums(), redundancy.checksums()) {
        (Ok(data), Ok(redundancy)) => (data, redundancy),
        (Err(error), _) | (_, Err(error)) => return Ok(Trust::Corrupt(error.text)),
    };
    let wrong = |file: &str, found: Option<u32>, expected: u32| {
        (found != Some(expected)).then(|| {
            let found = found.unwrap_or_default();
            Trust::Corrupt(format!("{file} has CRC32 {found:#010x} where {expected:#010x} was recorded"))
        })
    };
    for (file, sum) in record.files.iter().zip(sums.0) {
        if let Some(corrupt) = file.crc.and_then(|expected| wrong(&file.name.to_string(), sum, expected)) {
            return Ok(corrupt);
        }
    }
    let kept = record
        .redundancy
        .and_then(|kept| wrong("the redundancy file", sums.1.first().copied().flatten(), kept.crc));
    Ok(kept.unwrap_or(Trust::Sound))
}

fn open_redundancy(
    files: &dyn Files,
    part: &dyn PartPlace,
    record: &RankRecord,
) -> Result<LogicalFile, String> {
    let mut open = Vec::new();
    if let Some(redundancy) = record.redundancy {
        let path = part.redundancy();
        let file = files
            .open(&path, How::Read)
            .map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        open.push((path, file, redundancy.bytes));
    }
    Ok(LogicalFile::new(open, true))
}

/// What a rebuilt file may have of its recorded mode: never setuid, setgid or sticky.
const PERMISSIONS: u32 = 0o777;
