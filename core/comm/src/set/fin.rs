//! The message that a member sends to each other member when it ends.
//!
//! It has a fixed length, so that a waiting member can post its receive.

use super::super::agree::cut;

/// A member's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fin {
    /// How many messages it has sent to the receiver of this FIN.
    pub(super) sent: u64,
    /// The member that gave up first, and why.
    pub(super) failed: Option<(u32, String)>,
}

impl Fin {
    pub(super) fn pack(&self) -> [u8; FIN_BYTES] {
        let mut bytes = [0; FIN_BYTES];
        bytes[..8].copy_from_slice(&self.sent.to_le_bytes());
        if let Some((by, text)) = &self.failed {
            let text = cut(text, FIN_BYTES - TEXT);
            let length = u16::try_from(text.len()).expect("a text that was cut to less than the message");
            bytes[8] = 1;
            bytes[9..13].copy_from_slice(&by.to_le_bytes());
            bytes[13..15].copy_from_slice(&length.to_le_bytes());
            bytes[TEXT..TEXT + text.len()].copy_from_slice(text.as_bytes());
        }
        bytes
    }

    pub(crate) fn unpack(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FIN_BYTES] = bytes.try_into().ok()?;
        let (sent, rest) = bytes.split_first_chunk()?;
        let (&[state], rest) = rest.split_first_chunk()?;
        let (by, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let text = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
        let failed = match state {
            0 => None,
            1 => Some((u32::from_le_bytes(*by), String::from_utf8_lossy(text).into_owned())),
            _ => return None,
        };
        Some(Self { sent: u64::from_le_bytes(*sent), failed })
    }
}

/// Bytes of the whole message.
pub(super) const FIN_BYTES: usize = 1024;
/// The offset of the text.
const TEXT: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fin_comes_back_as_it_was() {
        for failed in [None, Some((7, String::new())), Some((3, "no space left".to_owned()))] {
            let fin = Fin { sent: 1 << 40, failed };
            assert_eq!(Fin::unpack(&fin.pack()), Some(fin));
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_cut() {
        let fin = Fin { sent: 0, failed: Some((0, "x".repeat(5000))) };
        let text = Fin::unpack(&fin.pack()).and_then(|fin| fin.failed).unwrap().1;
        assert!(text.starts_with("xxx") && text.ends_with("..."));
    }

    #[test]
    fn a_fin_that_is_none_is_refused() {
        let good = Fin { sent: 0, failed: Some((0, "x".to_owned())) }.pack();
        assert_eq!(Fin::unpack(&good[1..]), None);
        let mut unknown = good;
        unknown[8] = 2;
        assert_eq!(Fin::unpack(&unknown), None);
        let mut long = good;
        long[13..15].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(Fin::unpack(&long), None);
    }
}
