//! A member's files, end to end, as the one logical file that a scheme sees.
//!
//! Everything that a scheme reads or writes passes through here, so this is where the checksums come from: the bytes
//! are in the processor's cache when they are summed, and no file is read twice.

use super::checksum::Checksum;
use crc32fast::Hasher;
use scr_base::fs::copy::write_data;
use scr_base::fs::{zeroed, File};
use scr_base::parallel::at_a_time;
use scr_plugin_api::{held, with_limit, Bytes, PluginError};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;

/// Files that are one run of bytes.
pub(crate) struct LogicalFile {
    parts: Vec<Part>,
    len: u64,
    summed: bool,
    /// Whether all is zero that has not been written here.
    is_of_zeros: bool,
}

/// One of the files.
struct Part {
    path: PathBuf,
    file: Box<dyn File>,
    start: u64,
    len: u64,
    sum: Mutex<Checksum>,
}

impl LogicalFile {
    /// The given open files, each with its path and length, in order. With `summed` a checksum is kept of
    /// each.
    pub(crate) fn new(files: Vec<(PathBuf, Box<dyn File>, u64)>, summed: bool) -> Self {
        let mut len = 0_u64;
        let parts = files
            .into_iter()
            .map(|(path, file, bytes)| {
                let start = len;
                len += bytes;
                Part { path, file, start, len: bytes, sum: Mutex::default() }
            })
            .collect();
        Self { parts, len, summed, is_of_zeros: false }
    }

    /// The files have just been made, of zeros that take no room: zeros that are written there take none either.
    pub(crate) fn of_zeros(self) -> Self {
        Self { is_of_zeros: self.summed, ..self }
    }

    /// The checksum of each file, in order. Reads what has not passed by, with this many threads. `None` where none are kept.
    pub(crate) fn checksums(&self, threads: u32) -> Result<Vec<Option<u32>>, PluginError> {
        if !self.summed {
            return Ok(vec![None; self.parts.len()]);
        }
        let unread = |part| Part::unread(part).into_iter().map(move |piece| (part, piece));
        let pieces: Vec<(&Part, Range<u64>)> = self.parts.iter().flat_map(unread).collect();
        let bytes: u64 = pieces.iter().map(|(_, piece)| piece.end - piece.start).sum();
        // A second thread does not pay if one thread reads everything in one go.
        let threads = threads.min(u32::try_from(bytes / PIECE as u64).unwrap_or(u32::MAX));
        let hashers = at_a_time(threads, &pieces, |(part, piece)| part.hash(piece.clone()));
        for ((part, piece), hasher) in pieces.into_iter().zip(hashers) {
            held(&part.sum).put(piece, hasher?);
        }
        let whole = |part: &Part| held(&part.sum).whole(part.len).expect("the gaps have just been filled");
        Ok(self.parts.iter().map(|part| Some(whole(part))).collect())
    }

    /// How many bytes have neither been read nor written here. Only files with checksums are asked.
    pub(crate) fn unused(&self) -> u64 {
        let gaps = self.parts.iter().flat_map(|part| held(&part.sum).gaps(0..part.len));
        gaps.map(|gap| gap.end - gap.start).sum()
    }

    /// Whether any byte has been read or written here. Only files with checksums are asked.
    pub(crate) fn is_used(&self) -> bool {
        self.parts.iter().any(|part| !held(&part.sum).is_empty())
    }

    /// The open files.
    pub(crate) fn into_files(self) -> impl Iterator<Item = Box<dyn File>> {
        self.parts.into_iter().map(|part| part.file)
    }

    /// The parts that overlap `len` bytes at `offset`, each with the place in it and the range of the buffer.
    fn overlapping(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (&Part, u64, std::ops::Range<usize>)> {
        let end = offset.saturating_add(len as u64);
        let first = self.parts.partition_point(|part| part.start + part.len <= offset);
        self.parts[first..].iter().take_while(move |part| part.start < end).filter(|part| part.len > 0).map(
            move |part| {
                let from = offset.max(part.start);
                let to = end.min(part.start + part.len);
                (part, from - part.start, (from - offset) as usize..(to - offset) as usize)
            },
        )
    }
}

impl Bytes for LogicalFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError> {
        let inside = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        buffer[inside..].fill(0);
        for (part, at, range) in self.overlapping(offset, buffer.len()) {
            part.read(at, &mut buffer[range.clone()])?;
            if self.summed {
                held(&part.sum).take_in(at, &buffer[range]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        let inside = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if buffer[inside..].iter().any(|&byte| byte != 0) {
            let end = offset.saturating_add(buffer.len() as u64);
            return Err(PluginError::fault(format!("the scheme wrote up to byte {end} of {}", self.len)));
        }
        for (part, at, range) in self.overlapping(offset, buffer.len()) {
            let (bytes, end) = (&buffer[range.clone()], at + range.len() as u64);
            let is_zero = self.is_of_zeros && held(&part.sum).is_new(&(at..end));
            let written = if is_zero {
                write_data(&*part.file, at, bytes).map(drop)
            } else {
                part.file.write_at(at, bytes)
            };
            match &written {
                Ok(()) if self.summed => held(&part.sum).take_in_written(at, bytes),
                // Some of them may be there.
                Err(_) if self.summed => held(&part.sum).doubt(at..end),
                _ => (),
            }
            written.map_err(|error| part.error("write", at, error))?;
        }
        Ok(())
    }
}

impl Part {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError> {
        let count = self.file.read_at(offset, buffer).map_err(|error| self.error("read", offset, error))?;
        if count < buffer.len() {
            let (path, end) = (self.path.display(), offset + count as u64);
            return Err(PluginError::corrupt(format!(
                "{path} ends at byte {end} where {} were recorded",
                self.len
            )));
        }
        Ok(())
    }

    /// The bytes that have not passed by, or were written over, in pieces for one thread each.
    fn unread(&self) -> Vec<Range<u64>> {
        let mut sum = held(&self.sum);
        sum.forget_doubtful();
        let gaps = sum.gaps(0..self.len).into_iter();
        let pieces = gaps.flat_map(|gap| {
            let end = gap.end;
            gap.step_by(PIECE).map(move |at| at..end.min(at + PIECE as u64))
        });
        pieces.collect()
    }

    /// Reads a piece of the file.
    fn hash(&self, piece: Range<u64>) -> Result<Hasher, PluginError> {
        let mut hasher = Hasher::new();
        let buffer = zeroed(BLOCK.min((piece.end - piece.start) as usize));
        let mut buffer = buffer.map_err(|error| self.error("read", piece.start, error))?;
        let mut at = piece.start;
        while at < piece.end {
            let count = (piece.end - at).min(BLOCK as u64) as usize;
            self.read(at, &mut buffer[..count])?;
            hasher.update(&buffer[..count]);
            at += count as u64;
        }
        Ok(hasher)
    }

    fn error(&self, verb: &str, offset: u64, error: std::io::Error) -> PluginError {
        let error = with_limit(error);
        PluginError::io(format!("cannot {verb} {} at byte {offset}: {error}", self.path.display()))
    }
}

/// Bytes that one thread reads at a time.
const PIECE: usize = 8 << 20;

/// Small enough to stay in the cache between reading and summing.
const BLOCK: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::{Files, How, RealFiles};

    /// The checksum was that of the first bytes, and zeros over others took no room.
    #[test]
    fn the_checksum_is_of_the_bytes_that_were_written_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> =
            (0..100_000).map(|at| if at < 20_000 { 0 } else { (at * 7 + at / 251) as u8 }).collect();
        let file = RealFiles.open(&path, How::Create(0o600)).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        let logical = LogicalFile::new(vec![(path.clone(), file, bytes.len() as u64)], true).of_zeros();
        logical.write_at(10_000, &vec![0xEE; 50_000]).unwrap();
        for (number, piece) in bytes.chunks(10_000).enumerate() {
            logical.write_at(number as u64 * 10_000, piece).unwrap();
        }
        assert_eq!(logical.checksums(2).unwrap(), [Some(crc32fast::hash(&bytes))]);
        assert!(std::fs::read(&path).unwrap() == bytes);
    }

    #[test]
    fn any_number_of_threads_finds_the_same_checksum_and_the_same_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..2 * PIECE + 12_345).map(|at| (at * 7 + at / 251) as u8).collect();
        RealFiles.open(&path, How::Create(0o600)).unwrap().write_at(0, &bytes).unwrap();
        let open = |len: usize| {
            let file = RealFiles.open(&path, How::Read).unwrap();
            LogicalFile::new(vec![(path.clone(), file, len as u64)], true)
        };
        let expected = Some(crc32fast::hash(&bytes));
        for threads in [1, 2, 5] {
            assert_eq!(open(bytes.len()).checksums(threads).unwrap(), [expected]);
            let partly = open(bytes.len());
            let mut read = vec![0; 4096];
            partly.read_at(PIECE as u64 - 100, &mut read).unwrap();
            assert_eq!(partly.checksums(threads).unwrap(), [expected]);
            assert!(open(bytes.len() + 1).checksums(threads).is_err(), "it is shorter than recorded");
        }
    }
}
