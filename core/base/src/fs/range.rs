//! A part of a file, read like a file.

use super::{File, Status};
use std::io;

/// A range of a file, from `start` on. It is only read.
pub struct FileRange<'a> {
    pub file: &'a dyn File,
    pub start: u64,
    pub bytes: u64,
}

impl File for FileRange<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        self.file.read_at(self.start.saturating_add(offset), &mut buffer[..count])
    }

    fn status(&self) -> io::Result<Status> {
        Ok(Status { len: self.bytes, ..self.file.status()? })
    }
}
