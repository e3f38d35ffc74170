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

    /// Writes `buffer` at `offset`. Bytes past the end must be zeros, and are dropped. Bytes may be written more than once; the
    /// host then reads them again at the end, to know what was written last.
    ///
    /// # Errors
    /// The host's text names the file, the offset and the reason; bytes past the end that are not zero are an error.
    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError>;
}
