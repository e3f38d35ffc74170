//! A logical file, as a plugin sees it.

use crate::PluginError;

/// One logical file: a run of bytes that may be spread over any number of real files.
///
/// The host keeps checksums of what passes through, so a scheme need not read anything twice. Reading and
/// writing may be done from several threads at once, at different places.
pub trait Bytes: Send + Sync {
    /// Length in bytes. It never changes during a call of the plugin.
    fn len(&self) -> u64;

    /// Whether there is not a single byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` with what lies at `offset`; past the end it reads zeros.
    ///
    /// # Errors
    /// The host's text names the file, the offset and the reason.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError>;

    /// Borrows the `len` bytes at `offset` to read them without a copy. `None` where the host cannot: use
    /// [`read_at`](Self::read_at) then. Borrowed bytes are not written during the call. Since 1.1.
    fn borrow(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }

    /// Borrows the `len` bytes at `offset` to write them in place. `None` where the host cannot: use
    /// [`write_at`](Self::write_at) then. A range has at most one writable mapping. Until it is dropped, do not read or
    /// write the range any other way. All of its bytes count as written. Since 1.1.
    fn borrow_mut(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange + '_>> {
        let _ = (offset, len);
        None
    }

    /// Writes `buffer` at `offset`. Bytes past the end must be zeros, and are dropped. Bytes may be written more than once; the
    /// host then reads them again at the end, to know what was written last.
    ///
    /// # Errors
    /// The host's text names the file, the offset and the reason; bytes past the end that are not zero are an error.
    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError>;
}

/// A range of a file that is borrowed to be written. Dropping it returns it to the file.
pub trait MappedRange: Send {
    /// The bytes. Do not rely on what they hold at first.
    fn bytes(&mut self) -> &mut [u8];
}
