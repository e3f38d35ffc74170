//! `running`: who runs in a prefix directory now, so that another job that begins meanwhile can be told.
//!
//! The file is locked by the system for as long as the run lasts, so its end is seen however it came, and nothing stale is
//! believed. It is for people: where the file cannot be made, or the file system has no locks, nobody is told anything.

use super::{Prefix, FILE_MODE};
use crate::fs::{File, Files, How};

/// A run that has said so, for as long as it lives.
#[derive(Default)]
pub(crate) struct Running(
    #[expect(dead_code, reason = "the lock is held while it is open")] Option<Box<dyn File>>,
);

impl Running {
    /// Says that a run has begun, described by one line. Gives the line of another one that has not ended. Never waits.
    pub(crate) fn begin(files: &dyn Files, prefix: &Prefix, line: &str) -> (Self, Option<String>) {
        let Ok(file) = files.open(&prefix.scr_file(RUNNING), How::Ensure(FILE_MODE)) else {
            return Default::default();
        };
        match file.try_lock() {
            Ok(true) => {
                // Without it another run is told as well, with fewer words.
                let _ = file.set_len(0).and_then(|()| file.write_at(0, line.as_bytes()));
                (Self(Some(file)), None)
            }
            Ok(false) => {
                let mut text = vec![0; LONGEST];
                let len = file.read_at(0, &mut text).unwrap_or(0);
                (Self(None), Some(String::from_utf8_lossy(&text[..len]).into_owned()))
            }
            Err(_) => Default::default(),
        }
    }
}

const RUNNING: &str = "running";
/// Nobody reads more of a line.
const LONGEST: usize = 500;
