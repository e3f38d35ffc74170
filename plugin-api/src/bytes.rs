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

    /// The `len` bytes at `offset`, without a copy of them. `None` where the host cannot lend them: then they are to be read.
    /// Nothing that was lent is ever written meanwhile. Since 1.1.
    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }

    /// The `len` bytes at `offset`, to be written in place. `None` where the host cannot lend them: then they are to be
    /// written. Until the loan is dropped they can neither be lent again nor read nor written otherwise. All of them count as
    /// written then. Since 1.1.
    fn lend_to_write(&self, offset: u64, len: usize) -> Option<Box<dyn Loan + '_>> {
        let _ = (offset, len);
        None
    }

    /// Writes `buffer` at `offset`. What would lie past the end must be zeros, which are dropped.
    ///
    /// # Errors
    /// The host's text names the file, the offset and the reason; bytes past the end that are not zero are an error.
    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError>;
}

/// Bytes of a file that are lent to be written. Dropping it gives them back.
pub trait Loan: Send {
    /// The bytes. What they hold at first is nothing to rely on.
    fn bytes(&mut self) -> &mut [u8];
}
