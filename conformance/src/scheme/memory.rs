//! A logical file in memory that checks the rules of [`Bytes`](scr_plugin_api::Bytes).

use scr_plugin_api::{held, MappedRange, PluginError};
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// A file of fixed length.
pub(super) struct MemoryFile {
    name: &'static str,
    content: RwLock<Vec<u8>>,
    /// How often each byte was written.
    writes: Mutex<Vec<u8>>,
    /// The last rule that was broken.
    broken: Mutex<Option<String>>,
    borrowing: Borrowing,
    /// The content that readers borrow, as it was when first borrowed.
    snapshot: OnceLock<Vec<u8>>,
    /// The ranges that are borrowed to be written now.
    mapped: Mutex<Vec<Range<usize>>>,
}

/// The loans that a file allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Borrowing {
    /// Nothing: it is read and written.
    Nothing,
    /// Ranges to read.
    ToRead,
    /// Ranges to write.
    ToWrite,
}

impl MemoryFile {
    pub(super) fn new(name: &'static str, content: &[u8], borrowing: Borrowing) -> Self {
        Self {
            name,
            content: RwLock::new(content.to_vec()),
            writes: Mutex::new(vec![0; content.len()]),
            broken: Mutex::default(),
            borrowing,
            snapshot: OnceLock::new(),
            mapped: Mutex::default(),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.content.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    pub(super) fn content(&self) -> Vec<u8> {
        self.content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rule that was broken, if any was.
    pub(super) fn broken(&self) -> Option<String> {
        held(&self.broken).clone()
    }

    /// The first byte that was written as often as `wanted` says.
    pub(super) fn written(&self, wanted: impl Fn(u8) -> bool) -> Option<usize> {
        held(&self.writes).iter().position(|&writes| wanted(writes))
    }

    pub(super) fn borrow(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let range = self.inside(offset, len).filter(|_| self.borrowing == Borrowing::ToRead)?;
        Some(&self.snapshot.get_or_init(|| self.content())[range])
    }

    pub(super) fn borrow_mut(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange + '_>> {
        let range = self.inside(offset, len).filter(|_| self.borrowing == Borrowing::ToWrite)?;
        if self.is_mapped(offset, len) {
            return None;
        }
        held(&self.mapped).push(range.clone());
        // A scheme must not rely on what the range holds at first.
        Some(Box::new(MemoryRange { file: self, bytes: vec![0xEE; len], range }))
    }

    /// Fills `buffer`, with zeros past the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) {
        if self.is_mapped(offset, buffer.len()) {
            self.broke(format!("read bytes of its {} that it had borrowed to write, at {offset}", self.name));
        }
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        buffer[count..].fill(0);
    }

    /// Writes what lies within the file. Anything but zeros past its end is an error and is recorded.
    pub(super) fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        if self.snapshot.get().is_some() || self.is_mapped(offset, buffer.len()) {
            return Err(self.broke(format!("wrote to its {} what it had borrowed, at {offset}", self.name)));
        }
        let len = self.len();
        let count = buffer.len().min(usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.put(offset.min(len) as usize, &buffer[..count]);
        if buffer[count..].iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        Err(self.broke(format!(
            "wrote past the end of its {}: {} bytes at {offset}",
            self.name,
            buffer.len()
        )))
    }

    fn put(&self, start: usize, bytes: &[u8]) {
        let range = start..start + bytes.len();
        held(&self.writes)[range.clone()].iter_mut().for_each(|writes| *writes = writes.saturating_add(1));
        self.content.write().unwrap_or_else(PoisonError::into_inner)[range].copy_from_slice(bytes);
    }

    fn broke(&self, text: String) -> PluginError {
        *held(&self.broken) = Some(text.clone());
        PluginError::fault(text)
    }

    /// The range of some bytes, if all of them are there.
    fn inside(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end as u64 <= self.len()).then_some(start..end)
    }

    /// Whether some of these bytes are borrowed to be written.
    fn is_mapped(&self, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        held(&self.mapped).iter().any(|range| (range.start as u64) < end && offset < range.end as u64)
    }
}

/// A range borrowed to be written: its bytes get into the file when it is dropped.
struct MemoryRange<'a> {
    file: &'a MemoryFile,
    bytes: Vec<u8>,
    range: Range<usize>,
}

impl MappedRange for MemoryRange<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for MemoryRange<'_> {
    fn drop(&mut self) {
        self.file.put(self.range.start, &self.bytes);
        held(&self.file.mapped).retain(|range| *range != self.range);
    }
}
