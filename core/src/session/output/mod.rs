//! The output phase: from `SCR_Start_output` to `SCR_Complete_output`.
//!
//! The order of steps is the crash argument. Start: agree, make the folder, begin the filemap. Route: record the file before its
//! name is given out. Complete: agree that all is valid, protect, record as prepared, agree, record as complete; only
//! then do older datasets leave.

mod complete;
mod start;

use super::route::Unrouted;
use super::{Error, OutputFlags, Phase, Session};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::part::PartDir;
use crate::cache::place::PartPlace;
use crate::cache::record::{FileRecord, RankRecord};
use crate::comm::Traffic;
use crate::fs::Durability;
use crate::prefix::FileName;
use std::time::Duration;

/// An output phase under way.
pub(crate) struct Output {
    pub(super) record: RankRecord,
    part: PartDir,
    journal: Journal,
    pub(super) unrouted: Unrouted,
    flags: OutputFlags,
    /// Whether a file that this rank writes in the prefix directory was there before.
    may_replace: bool,
    /// Place of the store in the context.
    store: usize,
    started: Duration,
    /// What this rank had sent by then.
    sent: Traffic,
    /// When the application could begin to write.
    ready: Duration,
}

impl Session {
    /// Takes in a file of the dataset that is being written, and gives the path to write it at. Local.
    pub(super) fn route_output(&mut self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let below = super::route::below_prefix(&self.job, name)?;
        let Phase::Output(output) = &mut self.phase else {
            unreachable!("the caller has looked at the phase")
        };
        let known = output.record.files.iter().any(|file| file.name == below);
        let bypass = output.record.protection.bypass;
        if !bypass {
            expect_own_base_name(&output.record, &below)?;
        }
        let file = FileRecord { name: below, bytes: 0, mode: 0, mtime: (0, 0), crc: None };
        let path = PartPlace::file(&output.part, &output.record, &file);
        let path_bytes = super::path_bytes(&path)?;
        if !known {
            if bypass {
                output.may_replace |= self.job.files().status(&path).is_ok();
                let parent = path.parent().unwrap_or(&path);
                self.job.files().make_dirs(parent, 0o777, Durability::Unsynced)?;
            }
            let journal = output.part.filemap();
            output.journal.append(&Entry::File(&file.name)).map_err(|error| Error::Argument {
                what: format!("cannot record the file in {}: {error}", journal.display()),
            })?;
            output.record.files.push(file);
        }
        Ok(path_bytes)
    }

    pub(super) fn say_traffic(&self, what: &str, before: Traffic) {
        let now = self.job.comm.traffic();
        let (messages, bytes) = (now.messages - before.messages, now.bytes - before.bytes);
        self.job.report.info(&format!("{what}: rank 0 sent {messages} messages, {bytes} bytes"));
    }
}

/// In cache two files of a rank would meet under one base name.
fn expect_own_base_name(record: &RankRecord, name: &FileName) -> Result<(), Error> {
    let is_twin = |other: &FileName| other.base() == name.base() && other != name;
    let Some(twin) = record.files.iter().find(|file| is_twin(&file.name)) else {
        return Ok(());
    };
    Err(Error::Argument {
        what: format!(
            "`{name}' and `{}' have the same base name, and in cache only base names are kept; \
             give this rank's files different base names or set SCR_CACHE_BYPASS=1",
            twin.name
        ),
    })
}
