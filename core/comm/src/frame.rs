//! Messages whose length the receiver does not know, and lists of byte strings inside a message.
//!
//! A frame begins with one message of fixed length, which holds the total length and as much as fits. Further messages carry the
//! rest in pieces. Short contents need only the first message.

use super::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Result, Tag};

/// Sends frames and receives one from each of `from`, all at once.
pub(super) fn swap(
    comm: &dyn Comm,
    tag: Tag,
    sends: &[(Rank, &[u8])],
    from: &[Rank],
) -> Result<Vec<Vec<u8>>> {
    let heads: Vec<[u8; HEAD]> = sends.iter().map(|(_, bytes)| head_of(bytes)).collect();
    let mut came = vec![[0; HEAD]; from.len()];
    let outgoing: Vec<Outgoing<'_>> =
        sends.iter().zip(&heads).map(|((to, _), head)| Outgoing { to: *to, bytes: head }).collect();
    let mut incoming: Vec<Incoming<'_>> =
        came.iter_mut().zip(from).map(|(head, &from)| Incoming { from, bytes: head }).collect();
    exchange_all(comm, tag, &outgoing, &mut incoming)?;

    // The rests go apart from the heads: if all waited for their rests to be taken, none would take one.
    let bodies = came.iter().zip(from).map(|(head, &from)| Body::begin(head, from));
    let mut bodies = bodies.collect::<Result<Vec<_>, _>>()?;
    let mut sent = ROOM;
    loop {
        let rests = sends.iter().filter(|(_, bytes)| bytes.len() > sent);
        let outgoing: Vec<Outgoing<'_>> = rests
            .map(|&(to, bytes)| Outgoing { to, bytes: &bytes[sent..bytes.len().min(sent + PIECE)] })
            .collect();
        let mut incoming: Vec<Incoming<'_>> = bodies
            .iter_mut()
            .zip(from)
            .filter(|(body, _)| body.missing > 0)
            .map(|(body, &from)| Incoming { from, bytes: body.next_piece() })
            .collect();
        if outgoing.is_empty() && incoming.is_empty() {
            return Ok(bodies.into_iter().map(|body| body.bytes).collect());
        }
        exchange_all(comm, tag, &outgoing, &mut incoming)?;
        sent += PIECE;
    }
}

/// Sends frames and receives none.
pub(super) fn send(comm: &dyn Comm, tag: Tag, sends: &[(Rank, &[u8])]) -> Result<()> {
    swap(comm, tag, sends, &[]).map(drop)
}

/// Receives one frame.
pub(super) fn receive(comm: &dyn Comm, tag: Tag, from: Rank) -> Result<Vec<u8>> {
    let mut bodies = swap(comm, tag, &[], &[from])?;
    Ok(bodies.pop().expect("one frame was asked for"))
}

fn head_of(bytes: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let room = bytes.len().min(ROOM);
    head[..LENGTH].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    head[LENGTH..LENGTH + room].copy_from_slice(&bytes[..room]);
    head
}

/// The bytes of a message that have come, and how many are missing. Memory is taken piece by piece as they come, whatever length
/// the head claims.
pub(super) struct Body {
    bytes: Vec<u8>,
    missing: usize,
}

impl Body {
    pub(super) fn begin(head: &[u8; HEAD], from: Rank) -> Result<Self> {
        let (length, first) = head.split_first_chunk().expect("the head has room for a length");
        let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|&length| length <= LONGEST);
        let length = length.ok_or(CommError::Malformed { from, what: "a message's length" })?;
        let room = length.min(ROOM);
        Ok(Self { bytes: first[..room].to_vec(), missing: length - room })
    }

    fn next_piece(&mut self) -> &mut [u8] {
        let (begin, piece) = (self.bytes.len(), self.missing.min(PIECE));
        self.bytes.resize(begin + piece, 0);
        self.missing -= piece;
        &mut self.bytes[begin..]
    }
}

/// Writes a list of numbers and byte strings.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
}

/// Reads what a [`Writer`] wrote; `None` where it did not.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Bytes of the first message of a frame.
pub(super) const HEAD: usize = 512;
/// Bytes of the length in it.
const LENGTH: usize = 8;
/// Bytes that fit after the length.
const ROOM: usize = HEAD - LENGTH;
/// The rest goes in messages of so many bytes: a receiver takes memory for one at a time.
const PIECE: usize = 16 << 20;
/// No rank sends more.
const LONGEST: usize = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;

    #[test]
    fn a_list_comes_back_as_it_was_written() {
        let mut writer = Writer::default();
        writer.number(7);
        writer.bytes(b"seven");
        writer.bytes(b"");
        let bytes = writer.0;
        let mut reader = Reader(&bytes);
        assert_eq!(reader.number(), Some(7));
        assert_eq!(reader.bytes(), Some(&b"seven"[..]));
        assert_eq!(reader.bytes(), Some(&b""[..]));
        assert!(reader.0.is_empty());
    }

    #[test]
    fn a_list_cut_short_anywhere_is_refused() {
        let mut writer = Writer::default();
        writer.bytes(b"seven");
        let bytes = writer.0;
        for length in 0..bytes.len() {
            assert_eq!(Reader(&bytes[..length]).bytes(), None);
        }
        assert_eq!(Reader(&[0xff; 12]).bytes(), None);
    }

    #[test]
    fn a_length_that_no_memory_can_hold_is_an_error() {
        assert!(Body::begin(&[0xff; HEAD], Rank(3)).is_err());
    }

    #[test]
    fn a_length_that_is_only_claimed_takes_no_memory() {
        let mut head = [7; HEAD];
        head[..LENGTH].copy_from_slice(&(LONGEST as u64).to_le_bytes());
        let mut body = Body::begin(&head, Rank(3)).unwrap();
        assert_eq!((body.next_piece().len(), body.bytes.len()), (PIECE, ROOM + PIECE));
        assert!(body.bytes.capacity() <= 2 * (ROOM + PIECE));
    }

    #[test]
    fn long_messages_arrive_whole_whatever_their_lengths() {
        let long = |rank: u32| -> Vec<u8> {
            let len = [0, ROOM, ROOM + 1, ROOM + PIECE, ROOM + 2 * PIECE + 1][rank as usize];
            (0..len).map(|at| (at % 251) as u8 ^ rank as u8).collect()
        };
        let came = thread::run(5, |comm| {
            let (after, before) = (Rank((comm.rank().0 + 1) % 5), Rank((comm.rank().0 + 4) % 5));
            swap(&comm, Tag(7), &[(after, &long(comm.rank().0))], &[before]).unwrap().remove(0)
                == long(before.0)
        });
        assert_eq!(came.unwrap(), [true; 5]);
    }
}
