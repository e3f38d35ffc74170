//! How one file is copied.
//!
//! All rules of a copy: the source must have exactly the recorded size, before and after. Holes stay holes, but they are read: a
//! file system may take data that it has yet to store for a hole. A requested checksum is computed from the same bytes that are
//! written. A request to stop is checked before every block. Nothing counts as written
//! until [`Written::sync`] has returned.

use crate::{Buffer, Control, CopyError};
use crc32fast::Hasher;
use rustix::fs::{copy_file_range, fadvise, fsync, ftruncate, Advice, Mode, OFlags};
use scr_plugin_api::{
    above_standard, repeat, uninterrupted, with_limit, write_all, CopyItem, Handle, PluginError,
};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;

/// How to copy.
#[derive(Debug, Clone, Copy)]
pub struct How {
    block_bytes: usize,
    take_crc: bool,
}

impl How {
    /// Blocks of about this size; a size of no sense is replaced by one that works.
    pub fn new(block_bytes: u64, take_crc: bool) -> Self {
        let block_bytes = match usize::try_from(block_bytes) {
            Ok(0) => USUAL_BLOCK,
            Ok(bytes) => bytes.clamp(SMALLEST_BLOCK, LARGEST_BLOCK),
            Err(_) => LARGEST_BLOCK,
        };
        Self { block_bytes, take_crc }
    }
}

/// A destination that has all its bytes, but is not on stable storage yet.
#[derive(Debug)]
#[must_use = "what is not synced may be lost"]
pub struct Written {
    file: Handle<File>,
    path: PathBuf,
    crc: Option<u32>,
}

impl Written {
    /// Waits until the bytes are on stable storage; gives the checksum of what was read, if it was asked for. After an error
    /// that may pass, `copy` writes them once more: the system may have forgotten what it could not store.
    ///
    /// # Errors
    /// The system's error, for instance that space ran out after all.
    pub fn sync(self, mut copy: impl FnMut() -> Result<Self, CopyError>) -> Result<Option<u32>, CopyError> {
        let mut written = Some(self);
        repeat(CopyError::may_pass, sleep, || match written.take() {
            Some(first) => first.sync_once(),
            None => copy()?.sync_once(),
        })
    }

    fn sync_once(self) -> Result<Option<u32>, CopyError> {
        let synced = self.file.get().and_then(|file| uninterrupted(|| Ok(fsync(file)?)));
        synced.map_err(io_error("syncing", &self.path, 0))?;
        Ok(self.crc)
    }
}

/// Which part of a file to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// How many bytes are at the destination already, and safe there.
    pub from: u64,
    /// Their checksum, where one is taken.
    pub crc: u32,
    /// Up to here; the end of the file where that comes first.
    pub to: u64,
}

impl Part {
    /// The whole file.
    pub const WHOLE: Self = Self { from: 0, crc: 0, to: u64::MAX };
}

/// Copies one part of a file, and truncates the destination after it. The destination is created, readable for its owner only,
/// or overwritten. The checksum is that of the file up to the end of the part.
///
/// # Errors
/// The source is not as recorded, reading or writing failed, or `control` asked to stop. The destination is
/// then left as it is.
pub fn copy_part(
    item: &CopyItem,
    how: How,
    control: &Control,
    buffer: &mut Buffer,
    part: Part,
) -> Result<Written, CopyError> {
    repeat(CopyError::may_pass, sleep, || {
        let source = open_source(item)?;
        control.check(item, part.from)?;
        let destination = open_destination(item, &source, part.from)?;
        let has_holes = has_holes(&source, item)?;
        // A beginning that is not there any more counts for nothing.
        let before = if part.from > 0 { part.crc } else { 0 };
        let mut copier = Copier {
            item,
            source,
            destination,
            control,
            block_bytes: control.pace.block_bytes(how.block_bytes),
            checksum: how.take_crc.then(|| Hasher::new_with_initial_len(before, part.from)),
            has_holes,
            in_kernel: (!how.take_crc && !has_holes).then_some(in_kernel as InKernel),
            flushed: part.from,
            counted: 0,
        };
        let done = copier.run(part, buffer);
        // The next try counts them again.
        done.inspect_err(|error| control.take_back(if error.may_pass() { copier.counted } else { 0 }))?;
        let Copier { destination, checksum, .. } = copier;
        Ok(Written { file: destination, path: item.destination.clone(), crc: checksum.map(Hasher::finalize) })
    })
}

const USUAL_BLOCK: usize = 1 << 20;
const SMALLEST_BLOCK: usize = 4 << 10;
const LARGEST_BLOCK: usize = 64 << 20;
/// Zeros are left out where a source with holes has so many.
const PAGE: usize = 4 << 10;
/// After so many bytes the kernel is asked to begin writing them out.
const WRITE_OUT_BYTES: u64 = 8 << 20;

pub(crate) fn open_source(item: &CopyItem) -> Result<Handle<File>, CopyError> {
    let path = &item.source;
    // Without NONBLOCK, opening a FIFO would wait for a writer forever. A link could lead to a file of somebody else.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(|errno| {
        let cause = io::Error::from(errno);
        if cause.kind() != io::ErrorKind::NotFound {
            return io_error("opening", path, 0)(cause);
        }
        PluginError::corrupt(format!("the file to copy, {}, is not there: {cause}", path.display())).into()
    })?;
    check_source(&file, item)?;
    Handle::new(file).map_err(io_error("examining", path, 0))
}

fn check_source(file: &File, item: &CopyItem) -> Result<(), CopyError> {
    let path = &item.source;
    let found = file.metadata().map_err(io_error("examining", path, 0))?;
    if !found.is_file() {
        let text = format!("the file to copy, {}, is not a regular file", path.display());
        return Err(PluginError::corrupt(text).into());
    }
    if found.len() != item.bytes {
        return Err(CopyError::WrongSize { path: path.clone(), expected: item.bytes, found: found.len() });
    }
    Ok(())
}

/// A guess that saves a file without holes from being searched for them.
fn has_holes(source: &Handle<File>, item: &CopyItem) -> Result<bool, CopyError> {
    let found = source.get().and_then(File::metadata).map_err(io_error("examining", &item.source, 0))?;
    Ok(found.blocks().saturating_mul(512) < found.len())
}

pub(crate) fn open_destination(
    item: &CopyItem,
    source: &Handle<File>,
    keep: u64,
) -> Result<Handle<File>, CopyError> {
    let path = &item.destination;
    // Not truncated at once: it might be the source under another name.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = above_standard(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
        .map(File::from)
        .map_err(|errno| io_error("creating", path, 0)(errno.into()))?;
    let here = file.metadata().map_err(io_error("examining", path, 0))?;
    let there = source.get().and_then(File::metadata).map_err(io_error("examining", &item.source, 0))?;
    if (here.dev(), here.ino()) == (there.dev(), there.ino()) {
        let (source, path) = (item.source.display(), path.display());
        let text = format!("{source} and {path} are the same file, which copying would empty");
        return Err(PluginError::refused(text).into());
    }
    if here.is_file() && here.len() < keep {
        return Err(CopyError::WrongSize { path: path.clone(), expected: keep, found: here.len() });
    }
    if here.is_file() && here.len() > keep {
        uninterrupted(|| Ok(ftruncate(&file, keep)?)).map_err(io_error("shortening", path, keep))?;
    }
    Handle::new(file).map_err(io_error("examining", path, 0))
}

pub(crate) fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
    offset: u64,
) -> impl FnOnce(io::Error) -> CopyError + 'a {
    move |cause| CopyError::Io { action, path: path.to_path_buf(), offset, cause: with_limit(cause) }
}

/// Copies so many bytes, or fewer, at a place of one file to the same place of another; gives how many.
type InKernel = fn(&File, &File, u64, usize) -> rustix::io::Result<usize>;

fn in_kernel(source: &File, destination: &File, offset: u64, len: usize) -> rustix::io::Result<usize> {
    let (mut from, mut to) = (offset, offset);
    copy_file_range(source, Some(&mut from), destination, Some(&mut to), len)
}

/// One copy under way.
struct Copier<'a> {
    item: &'a CopyItem,
    source: Handle<File>,
    destination: Handle<File>,
    control: &'a Control,
    block_bytes: usize,
    checksum: Option<Hasher>,
    /// Whether zeros of the source are left out.
    has_holes: bool,
    /// None once the kernel has refused, and where the bytes have to be seen.
    in_kernel: Option<InKernel>,
    /// Up to here the kernel was asked to write out.
    flushed: u64,
    /// How many bytes of it count as done.
    counted: u64,
}

/// Writes all bytes at an offset.
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    write_all(bytes, |rest, done| file.write_at(rest, offset + done))
}

impl Copier<'_> {
    fn run(&mut self, part: Part, buffer: &mut Buffer) -> Result<(), CopyError> {
        let len = self.item.bytes.min(part.to);
        self.copy_data(part.from, len, buffer)?;
        if self.has_holes {
            // It may end with one.
            let destination = self.destination(len)?;
            let extended = uninterrupted(|| Ok(ftruncate(destination, len)?));
            extended.map_err(io_error("extending", &self.item.destination, len))?;
        }
        self.write_out(len, 1);
        check_source(self.source(len)?, self.item)
    }

    fn count(&mut self, bytes: u64) {
        self.control.add(bytes);
        self.counted += bytes;
    }

    fn source(&self, offset: u64) -> Result<&File, CopyError> {
        self.source.get().map_err(io_error("reading", &self.item.source, offset))
    }

    fn destination(&self, offset: u64) -> Result<&File, CopyError> {
        self.destination.get().map_err(io_error("writing", &self.item.destination, offset))
    }

    fn copy_data(&mut self, from: u64, to: u64, buffer: &mut Buffer) -> Result<(), CopyError> {
        let mut offset = from;
        while offset < to {
            self.control.check(self.item, offset)?;
            let left = usize::try_from(to - offset).unwrap_or(usize::MAX).min(self.block_bytes);
            let (count, written) = match self.copy_in_kernel(offset, left) {
                Some(count) => (count, count),
                None => {
                    let block = buffer.block(left).map_err(io_error("reading", &self.item.source, offset))?;
                    self.copy_block(offset, block)?
                }
            };
            offset += count;
            self.count(count);
            self.write_out(offset, WRITE_OUT_BYTES);
            buffer.account().pay(&self.control.pace, written, || self.control.is_cancelled());
        }
        Ok(())
    }

    /// Gives nothing where the kernel cannot, or reports any error: reading and writing then finds out on which
    /// side the error lies. (Some file systems also give 0 before the end.)
    fn copy_in_kernel(&mut self, offset: u64, len: usize) -> Option<u64> {
        let (source, destination) = (self.source.get().ok()?, self.destination.get().ok()?);
        match self.in_kernel?(source, destination, offset, len) {
            Ok(count) if count > 0 => u64::try_from(count).ok(),
            _ => {
                self.in_kernel = None;
                None
            }
        }
    }

    /// Gives how many bytes were read, and how many were written.
    fn copy_block(&mut self, offset: u64, block: &mut [u8]) -> Result<(u64, u64), CopyError> {
        let source = self.source(offset)?;
        let count = match uninterrupted(|| source.read_at(block, offset)) {
            Ok(0) => {
                let (path, expected) = (self.item.source.clone(), self.item.bytes);
                return Err(CopyError::WrongSize { path, expected, found: offset });
            }
            Ok(count) => count,
            Err(cause) => return Err(io_error("reading", &self.item.source, offset)(cause)),
        };
        let block = &block[..count];
        let written = match self.has_holes {
            true => self.write_all_but_zeros(offset, block),
            false => write_at(self.destination(offset)?, block, offset).map(|()| count as u64),
        };
        let written = written.map_err(io_error("writing", &self.item.destination, offset))?;
        self.checksum.iter_mut().for_each(|checksum| checksum.update(block));
        Ok((count as u64, written))
    }

    fn write_all_but_zeros(&self, mut offset: u64, block: &[u8]) -> io::Result<u64> {
        let is_zero = |page: &[u8]| page.iter().fold(0, |all, byte| all | byte) == 0;
        let pages: Vec<(&[u8], bool)> = block.chunks(PAGE).map(|page| (page, is_zero(page))).collect();
        let (mut rest, mut written) = (block, 0);
        for run in pages.chunk_by(|before, after| before.1 == after.1) {
            let (bytes, after) = rest.split_at(run.iter().map(|(page, _)| page.len()).sum());
            if !run[0].1 {
                write_at(self.destination.get()?, bytes, offset)?;
                written += bytes.len() as u64;
            }
            offset += bytes.len() as u64;
            rest = after;
        }
        Ok(written)
    }

    /// Lets the kernel begin to write out what is there, so that syncing at the end finds little left to do.
    /// The advice drops no page that is still to be written. It is only advice, so an error means nothing.
    fn write_out(&mut self, offset: u64, least: u64) {
        let waiting = offset.saturating_sub(self.flushed);
        if waiting >= least {
            let advice =
                |file: &File| fadvise(file, self.flushed, NonZeroU64::new(waiting), Advice::DontNeed);
            let _ = self.destination.get().map(advice);
            self.flushed = offset;
        }
    }
}

#[cfg(test)]
mod tests;
