//! The header of every member's redundancy, which identifies the data that it protects.
//!
//! It has everything that a rebuild with the right bytes depends on: the format and the arithmetic, the dataset, the shape of the
//! set, its members and the lengths of their data. If the header of a survivor differs from the host's values, the redundancy is
//! corrupt, or belongs to another set.
//!
//! | offset | bytes | what (big endian) |
//! |---|---|---|
//! | 0 | 8 | magic `SCRSETv1` |
//! | 8 | 4 | format |
//! | 12 | 4 | arithmetic: id of the matrix, or 0 where there is none |
//! | 16 | 4 | members N |
//! | 20 | 4 | redundancy of how many chunks or members (k) |
//! | 24 | 4 | this member |
//! | 28 | 4 | length of the header |
//! | 32 | 8 | bytes in a chunk, or 0 |
//! | 40 | 8 | id of the dataset |
//! | 48 | 12 N | of every member its rank in the run (4) and its bytes of data (8) |
//! | | | zeros |
//! | length - 4 | 4 | CRC32 of all before |

use scr_plugin_api::{PluginError, Set};

const MAGIC: &[u8; 8] = b"SCRSETv1";

/// The part before the list of members, and the checksum after it.
const FIXED: u64 = 48 + 4;

/// Headers are whole pages, so that what follows is aligned.
const PAGE: u64 = 4096;

/// Everything a header says beyond what the [`Set`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// On-disk format of the scheme.
    pub format: u32,
    /// Id of the matrix, 0 where none is used.
    pub arithmetic: u32,
    /// Parity chunks per stripe, or copies.
    pub redundancy: u32,
    /// Bytes in a chunk, 0 where there are none.
    pub chunk: u64,
}

impl Header {
    /// Whether redundancy that was `written` in a format can be read by a scheme that knows only one.
    ///
    /// # Errors
    /// It cannot, and what to do.
    pub fn check_format(written: u32, known: u32) -> Result<(), PluginError> {
        if written == known {
            return Ok(());
        }
        Err(PluginError::refused(format!(
            "the redundancy was written in format {written}, and only format {known} can be read: use the \
             version of the plugin that wrote it"
        )))
    }

    /// Bytes that the header of a set of so many members takes.
    pub fn len(members: u32) -> u64 {
        (FIXED + 12 * u64::from(members)).next_multiple_of(PAGE)
    }

    /// Whether this member's redundancy is as long as it must be.
    ///
    /// # Errors
    /// `Corrupt`, with both lengths.
    pub fn check_len(set: &dyn Set, expected: u64) -> Result<(), PluginError> {
        let found = set.redundancy().len();
        if found == expected {
            return Ok(());
        }
        Err(PluginError::corrupt(format!(
            "the redundancy of world rank {} is {found} bytes long, but {expected} were expected",
            set.world_rank(set.rank())
        )))
    }

    /// The header of `member`.
    pub fn encode(&self, set: &dyn Set, member: u32) -> Vec<u8> {
        let len = Self::len(set.size());
        let mut bytes = Vec::with_capacity(len as usize);
        bytes.extend_from_slice(MAGIC);
        for value in [self.format, self.arithmetic, set.size(), self.redundancy, member, len as u32] {
            bytes.extend_from_slice(&value.to_be_bytes());
        }
        bytes.extend_from_slice(&self.chunk.to_be_bytes());
        bytes.extend_from_slice(&set.dataset().to_be_bytes());
        for other in 0..set.size() {
            bytes.extend_from_slice(&set.world_rank(other).to_be_bytes());
            bytes.extend_from_slice(&set.data_len(other).to_be_bytes());
        }
        bytes.resize(len as usize - 4, 0);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// Reads this member's header and compares it with what it must be.
    ///
    /// # Errors
    /// `Corrupt`, with the first thing that differs.
    pub fn verify(&self, set: &dyn Set) -> Result<(), PluginError> {
        let expected = self.encode(set, set.rank());
        let mut found = vec![0; expected.len()];
        set.redundancy().read_at(0, &mut found)?;
        if found == expected {
            return Ok(());
        }
        Err(PluginError::corrupt(format!(
            "the redundancy of world rank {} (member {} of its set, dataset {}) is not usable: {}",
            set.world_rank(set.rank()),
            set.rank(),
            set.dataset(),
            difference(&found, &expected)
        )))
    }
}

/// The first difference between two headers, in words.
fn difference(found: &[u8], expected: &[u8]) -> String {
    let body = found.len() - 4;
    if found.get(..8) != expected.get(..8) {
        return "it does not begin with the mark of a redundancy file".to_owned();
    }
    if crc32fast::hash(&found[..body]).to_be_bytes() != found[body..] {
        return "the checksum of its header is wrong".to_owned();
    }
    let fields = [
        ("format", 8, 4),
        ("arithmetic", 12, 4),
        ("number of members", 16, 4),
        ("redundancy", 20, 4),
        ("member", 24, 4),
        ("length of the header", 28, 4),
        ("chunk size", 32, 8),
        ("dataset", 40, 8),
    ];
    for (name, at, len) in fields {
        let (is, should) = (number(&found[at..at + len]), number(&expected[at..at + len]));
        if is != should {
            return format!("its header says {name} {is}, but {should} was expected");
        }
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(48).saturating_sub(48);
    format!("its header has another rank or length of data for member {}", at / 12)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
