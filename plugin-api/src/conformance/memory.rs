//! A logical file in memory that keeps the rules of [`Bytes`](crate::Bytes).

use super::threads::fault;
use crate::{Loan, PluginError};
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// A file of fixed length.
pub(super) struct MemoryFile {
    name: &'static str,
    content: RwLock<Vec<u8>>,
    /// The first rule that was broken.
    against: Mutex<Option<String>>,
    lends: Lends,
    /// What is lent to be read: the content, as it was when it was lent first.
    shown: OnceLock<Vec<u8>>,
    /// What is lent to be written now.
    loans: Mutex<Vec<Range<usize>>>,
}

/// What a file lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lends {
    /// Nothing: it is read and written.
    Nothing,
    /// What is to be read only.
    ToRead,
    /// What is to be written.
    ToWrite,
}

impl MemoryFile {
    pub(super) fn new(name: &'static str, content: &[u8], lends: Lends) -> Self {
        let (shown, loans, against) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Self { name, content: RwLock::new(content.to_vec()), against, lends, shown, loans }
    }

    pub(super) fn len(&self) -> u64 {
        self.content.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    pub(super) fn content(&self) -> Vec<u8> {
        self.content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rule that was broken, if one was.
    pub(super) fn broken(&self, member: usize) -> Option<String> {
        let against = self.against.lock().unwrap_or_else(PoisonError::into_inner);
        against.as_ref().map(|what| format!("member {member} {what}"))
    }

    fn note(&self, text: String) -> PluginError {
        *self.against.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        fault(text)
    }

    /// The place of some bytes, if all of them are there.
    fn inside(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end as u64 <= self.len()).then_some(start..end)
    }

    /// Whether some of these bytes are lent to be written.
    fn is_lent(&self, offset: u64, len: usize) -> bool {
        let loans = self.loans.lock().unwrap_or_else(PoisonError::into_inner);
        loans.iter().any(|loan| (loan.start as u64) < offset + len as u64 && offset < loan.end as u64)
    }

    pub(super) fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let range = self.inside(offset, len).filter(|_| self.lends == Lends::ToRead)?;
        Some(&self.shown.get_or_init(|| self.content())[range])
    }

    pub(super) fn lend_to_write(&self, offset: u64, len: usize) -> Option<Box<dyn Loan + '_>> {
        let range = self.inside(offset, len).filter(|_| self.lends == Lends::ToWrite)?;
        if self.is_lent(offset, len) {
            return None;
        }
        self.loans.lock().unwrap_or_else(PoisonError::into_inner).push(range.clone());
        // Nothing is to rely on what it holds.
        Some(Box::new(MemoryLoan { file: self, bytes: vec![0xEE; len], range }))
    }

    /// Fills `buffer`, with zeros past the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) {
        if self.is_lent(offset, buffer.len()) {
            self.note(format!("read bytes of its {} that it had borrowed to write, at {offset}", self.name));
        }
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        buffer[count..].fill(0);
    }

    /// Writes what lies within the file; anything else than zeros past its end is an error and is noted.
    pub(super) fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        if self.shown.get().is_some() || self.is_lent(offset, buffer.len()) {
            return Err(self.note(format!("wrote to its {} what it had borrowed, at {offset}", self.name)));
        }
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        content[start..start + count].copy_from_slice(&buffer[..count]);
        if buffer[count..].iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        Err(self.note(format!("wrote past the end of its {}: {} bytes at {offset}", self.name, buffer.len())))
    }
}

/// A loan: what is written to it gets into the file when it is given back.
struct MemoryLoan<'a> {
    file: &'a MemoryFile,
    bytes: Vec<u8>,
    range: Range<usize>,
}

impl Loan for MemoryLoan<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for MemoryLoan<'_> {
    fn drop(&mut self) {
        let mut content = self.file.content.write().unwrap_or_else(PoisonError::into_inner);
        content[self.range.clone()].copy_from_slice(&self.bytes);
        let mut loans = self.file.loans.lock().unwrap_or_else(PoisonError::into_inner);
        loans.retain(|loan| *loan != self.range);
    }
}
