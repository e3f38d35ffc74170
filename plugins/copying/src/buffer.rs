//! The state that a copying thread keeps from one file to the next: a page-aligned buffer for blocks, and its time account.

use scr_plugin_api::grow;
use scr_plugin_api::pace::Account;
use std::{fmt, io};

/// Memory pages are this large at least on every machine of interest.
const ALIGNMENT: usize = 4096;

/// Memory that grows to the largest block it was asked for, and is used again for the next; and what the thread that it belongs
/// to has accounted for.
pub struct Buffer {
    bytes: Vec<u8>,
    account: Account,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: Vec::new(), account: Account::open() }
    }
}

impl Buffer {
    /// The account of its thread.
    pub(crate) fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// A page-aligned block of `len` bytes, with whatever was in it before.
    ///
    /// # Errors
    /// The process gets no memory for it.
    pub fn block(&mut self, len: usize) -> io::Result<&mut [u8]> {
        if self.bytes.len() < len + ALIGNMENT {
            grow(&mut self.bytes, len + ALIGNMENT)?;
        }
        // `align_offset` may say "cannot" only where it runs at compile time.
        let skip = self.bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(&mut self.bytes[skip..skip + len])
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_aligned_and_as_long_as_asked() {
        let mut buffer = Buffer::default();
        for len in [0, 1, 4096, 10, 1 << 20] {
            let block = buffer.block(len).unwrap();
            assert_eq!(block.len(), len);
            assert_eq!(block.as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
