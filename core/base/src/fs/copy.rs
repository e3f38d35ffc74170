//! One file copied in one pass with its checksum: from the prefix directory into cache, or the other way when it is scavenged.

use super::verify::{block_size, compare, open_whole, FileError};
use super::{permissions, zeroed, At, File, Files, How, Status};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Zeros of at least this length become a hole: file systems keep track of no less.
const PAGE: usize = 4096;

/// The expected length and checksum of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Length.
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change: seconds and nanoseconds since the epoch.
    pub mtime: (i64, u32),
    /// Time of the last access.
    pub atime: (i64, u32),
}

/// Copies through the file layer.
#[derive(Clone, Copy)]
pub struct Copy<'a> {
    pub files: &'a dyn Files,
    pub block_bytes: u64,
    /// Whether the copy gets times and permissions of the file.
    pub metadata: bool,
    /// Called with the number of further bytes that are copied.
    pub progress: &'a dyn Fn(u64),
}

impl Copy<'_> {
    /// Copies an open source of `wanted.bytes` to `to`, and gives its checksum. Pages of zeros become holes. Nothing waits
    /// for stable storage: what a lost node has in cache is lost anyway.
    pub fn run(
        self,
        source: &dyn File,
        from: &Path,
        to: &Path,
        wanted: &Attributes,
    ) -> Result<u32, FileError> {
        let mode = if self.metadata { permissions::to_create(self.files, wanted.mode & 0o777) } else { 0 };
        let copy = self.files.open(to, How::Replace(mode | 0o600)).at("create", to)?;
        let mut block = zeroed(block_size(self.block_bytes)).at("copy", from)?;
        let mut hasher = crc32fast::Hasher::new();
        let (mut offset, mut written) = (0_u64, 0_u64);
        loop {
            let count = source.read_at(offset, &mut block).at("read", from)?;
            let bytes = &block[..count];
            if count == 0 {
                break;
            }
            hasher.update(bytes);
            written = write_data(&*copy, offset, bytes).at("write", to)?.unwrap_or(written);
            offset += count as u64;
            (self.progress)(count as u64);
        }
        if offset != wanted.bytes {
            // It was changed while it was read.
            return Err(FileError::Size { path: from.to_owned(), expected: wanted.bytes, found: offset });
        }
        if written < offset {
            copy.set_len(offset).at("extend", to)?;
        }
        if self.metadata {
            permissions::set(self.files, &*copy, wanted.mode & 0o777).at("set the permissions of", to)?;
            let times = copy.set_times(wanted.atime, wanted.mtime);
            times.at("set the times of", to)?;
        }
        Ok(hasher.finalize())
    }
}

/// Writes a block where a file has nothing but zeros yet: pages of zeros are left out. Gives the end of what was written, if
/// anything was. The file may be shorter than the end of the block.
pub fn write_data(file: &dyn File, offset: u64, block: &[u8]) -> io::Result<Option<u64>> {
    let mut end = None;
    for data in data_in(block) {
        end = Some(offset + data.end as u64);
        file.write_at(offset + data.start as u64, &block[data])?;
    }
    Ok(end)
}

/// Makes a file again at `to`, with new bytes and a new name, which a sync then proves. `to` may be the file itself. It is
/// written at `temporary` first, which nobody else uses, and synced.
pub fn copy_anew(
    files: &dyn Files,
    path: &Path,
    to: &Path,
    temporary: &Path,
    bytes: u64,
    crc: Option<u32>,
) -> Result<(), FileError> {
    let (source, status) = open_whole(files, path, Some(bytes))?;
    let Status { mode, mtime, atime, .. } = status;
    let copy = Copy { files, block_bytes: BLOCK_BYTES, metadata: true, progress: &|_| () };
    let copied = copy.run(&*source, path, temporary, &Attributes { bytes, mode, mtime, atime });
    let made = copied.and_then(|found| {
        compare(path, crc, Some(found))?;
        let copy = files.open(temporary, How::Read).at("open", temporary)?;
        let made = copy.status().at("look at", temporary)?;
        if (made.uid, made.gid) != (status.uid, status.gid) {
            copy.set_owner(status.uid, status.gid).at("set the owner of", temporary)?;
        }
        copy.sync().at("sync", temporary)?;
        Ok(files.rename(temporary, to).at("rename a new file to", to)?)
    });
    made.inspect_err(|_| _ = files.remove_file(temporary))
}

const BLOCK_BYTES: u64 = 1 << 20;

/// The pieces of a block that are not pages of zeros, as few and as long as can be.
fn data_in(block: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let pages = block.chunks(PAGE).map(|page| page.iter().any(|&byte| byte != 0));
    let mut pages = (0..).step_by(PAGE).zip(pages).peekable();
    std::iter::from_fn(move || {
        let (start, _) = pages.find(|(_, data)| *data)?;
        while pages.next_if(|(_, data)| *data).is_some() {}
        let end = pages.peek().map_or(block.len(), |(next, _)| *next);
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_longer_or_shorter_by_the_time_it_is_read_is_found_out() {
        let folder = tempfile::TempDir::new().unwrap();
        let from = folder.path().join("from");
        let file = crate::fs::RealFiles.open(&from, How::Create(0o600)).unwrap();
        file.write_at(0, &[7; 10_000]).unwrap();
        for (bytes, is_right) in [(9_999, false), (10_000, true), (10_001, false)] {
            let wanted = Attributes { bytes, mode: 0o600, mtime: (0, 0), atime: (0, 0) };
            let source = crate::fs::RealFiles.open(&from, How::Read).unwrap();
            let copy =
                Copy { files: &crate::fs::RealFiles, block_bytes: 4096, metadata: true, progress: &|_| () };
            let copied = copy.run(&*source, &from, &folder.path().join("to"), &wanted);
            assert_eq!(copied.is_ok(), is_right, "{copied:?}");
            assert!(is_right || copied.unwrap_err().is_damage());
        }
    }

    #[test]
    fn pages_of_zeros_are_left_out_and_all_else_is_in_one_piece_where_it_is_together() {
        let mut block = vec![0; 10 * PAGE + 7];
        assert_eq!(data_in(&block).count(), 0);
        block[0] = 1;
        block[3 * PAGE - 1] = 1;
        block[3 * PAGE] = 1;
        block[10 * PAGE + 6] = 1;
        let found: Vec<_> = data_in(&block).collect();
        assert_eq!(found, [0..PAGE, 2 * PAGE..4 * PAGE, 10 * PAGE..10 * PAGE + 7]);
        let whole: Vec<_> = data_in(&vec![1; 5 * PAGE + 1]).map(|data| (data.start, data.end)).collect();
        assert_eq!(whole, [(0, 5 * PAGE + 1)]);
        assert_eq!(data_in(&[]).count(), 0);
    }
}
