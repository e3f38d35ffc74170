//! `running`: who runs in a prefix directory now, so that another job that begins meanwhile can be told.
//!
//! The file is locked by the system for as long as the run lasts, so its end is seen however it came, and nothing stale is
//! believed. It is for people: where the file cannot be made, or the file system has no locks, nobody is told anything.

use super::{Prefix, FILE_MODE};
use crate::fs::{File, Files, How};
use std::io;
use std::path::Path;

/// A run that has said so, for as long as it lives.
#[derive(Default)]
pub(crate) struct Running(
    #[expect(dead_code, reason = "the lock is held while it is open")] Option<Box<dyn File>>,
);

impl Running {
    /// Says that a run has begun, described by one line. Gives the line of another one that has not ended. Never waits.
    pub(crate) fn begin(files: &dyn Files, prefix: &Prefix, line: &str) -> (Self, Option<String>) {
        Self::try_to_begin(files, &prefix.scr_file(RUNNING), line).unwrap_or_default()
    }

    fn try_to_begin(files: &dyn Files, path: &Path, line: &str) -> io::Result<(Self, Option<String>)> {
        let to_write = files.open(path, How::Ensure(FILE_MODE))?;
        let to_read = files.open(path, How::Read)?;
        // A file that stays open to be written keeps its file system from being made read-only; but NFS locks no other.
        let by_reader = to_read.try_lock();
        let holds_reader = by_reader.is_ok();
        if !by_reader.or_else(|_| to_write.try_lock())? {
            let mut text = vec![0; LONGEST];
            let len = to_read.read_at(0, &mut text).unwrap_or(0);
            return Ok((Self(None), Some(String::from_utf8_lossy(&text[..len]).into_owned())));
        }
        // Without it another run is told as well, with fewer words.
        let _ = to_write.set_len(0).and_then(|()| to_write.write_at(0, line.as_bytes()));
        Ok((Self(Some(if holds_reader { to_read } else { to_write })), None))
    }
}

const RUNNING: &str = "running";
/// Nobody reads more of a line.
const LONGEST: usize = 500;
