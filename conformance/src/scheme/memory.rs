//! A logical file in memory that checks the rules of [`Bytes`](scr_plugin_api::Bytes).

use scr_plugin_api::{held, PluginError};
use std::sync::{Mutex, PoisonError, RwLock};

/// A file of fixed length.
pub(super) struct MemoryFile {
    name: &'static str,
    content: RwLock<Vec<u8>>,
    /// How often each byte was written.
    writes: Mutex<Vec<u8>>,
    /// The last rule that was broken.
    broken: Mutex<Option<String>>,
}

impl MemoryFile {
    pub(super) fn new(name: &'static str, content: &[u8]) -> Self {
        Self {
            name,
            content: RwLock::new(content.to_vec()),
            writes: Mutex::new(vec![0; content.len()]),
            broken: Mutex::default(),
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

    /// Fills `buffer`, with zeros past the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        buffer[count..].fill(0);
    }

    /// Writes what lies within the file. Anything but zeros past its end is an error and is recorded.
    pub(super) fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
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
}
