//! One file from the prefix directory into cache, or the other way when it is scavenged, in one pass with its checksum.

use super::FetchedFile;
use crate::flush::movers::{block_size, MoveError};
use crate::fs::{File, Files, How};
use std::path::Path;

/// Copies through the file layer.
#[derive(Clone, Copy)]
pub(crate) struct Copy<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) block_bytes: u64,
    /// Whether the copy gets times and permissions of the file.
    pub(crate) metadata: bool,
    /// Is told how many bytes more are copied.
    pub(crate) progress: &'a dyn Fn(u64),
}

impl Copy<'_> {
    /// Copies an open source of `file.bytes` to `file.path`, and gives its checksum. Blocks of zeros become
    /// holes. Nothing waits for stable storage: what a lost node has in cache is lost anyway.
    pub(crate) fn run(self, source: &dyn File, from: &Path, file: &FetchedFile) -> Result<u32, MoveError> {
        let to = &file.path;
        let copy = self.files.open(to, How::Replace(0o600)).map_err(MoveError::io("create", to))?;
        let mut block = vec![0; block_size(self.block_bytes)];
        let mut hasher = crc32fast::Hasher::new();
        let (mut offset, mut written) = (0_u64, 0_u64);
        loop {
            let count = source.read_at(offset, &mut block).map_err(MoveError::io("read", from))?;
            let bytes = &block[..count];
            if count == 0 {
                break;
            }
            hasher.update(bytes);
            if bytes.iter().any(|&byte| byte != 0) {
                copy.write_at(offset, bytes).map_err(MoveError::io("write", to))?;
                written = offset + count as u64;
            }
            offset += count as u64;
            (self.progress)(count as u64);
        }
        if offset != file.bytes {
            // It was changed while it was read.
            return Err(MoveError::Size { path: from.to_owned(), expected: file.bytes, found: offset });
        }
        if written < offset {
            copy.set_len(offset).map_err(MoveError::io("extend", to))?;
        }
        if self.metadata {
            copy.set_mode(file.mode & 0o777).map_err(MoveError::io("set the permissions of", to))?;
            let times = copy.set_times(file.atime, file.mtime);
            times.map_err(MoveError::io("set the times of", to))?;
        }
        Ok(hasher.finalize())
    }
}
