//! A logical file in memory that keeps the rules of [`Bytes`](crate::Bytes).

use super::threads::fault;
use crate::PluginError;
use std::sync::{Mutex, PoisonError, RwLock};

/// A file of fixed length.
pub(super) struct MemoryFile {
    name: &'static str,
    content: RwLock<Vec<u8>>,
    outside: Mutex<Option<String>>,
}

impl MemoryFile {
    pub(super) fn new(name: &'static str, content: &[u8]) -> Self {
        Self { name, content: RwLock::new(content.to_vec()), outside: Mutex::new(None) }
    }

    pub(super) fn len(&self) -> u64 {
        self.content.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    pub(super) fn content(&self) -> Vec<u8> {
        self.content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rule that was broken, if one was.
    pub(super) fn broken(&self, member: usize) -> Option<String> {
        let outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        outside.as_ref().map(|what| format!("member {member} {what}"))
    }

    /// Fills `buffer`, with zeros past the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        buffer[count..].fill(0);
    }

    /// Writes what lies within the file; anything else than zeros past its end is an error and is noted.
    pub(super) fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        content[start..start + count].copy_from_slice(&buffer[..count]);
        if buffer[count..].iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let text = format!("wrote past the end of its {}: {} bytes at {offset}", self.name, buffer.len());
        *self.outside.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        Err(fault(text))
    }
}
