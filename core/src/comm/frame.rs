//! Messages whose length the receiver does not know, and lists of byte strings inside a message.
//!
//! A frame is one message of fixed length, which holds the length and as much as fits, and a second one with
//! the rest, if there is any. Long ones need two, everything that is short needs one.

use super::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Tag};

/// Sends frames and receives one from each of `from`, all at once.
pub(super) fn swap(
    comm: &dyn Comm,
    tag: Tag,
    sends: &[(Rank, &[u8])],
    from: &[Rank],
) -> Result<Vec<Vec<u8>>, CommError> {
    let heads: Vec<[u8; HEAD]> = sends.iter().map(|(_, bytes)| head_of(bytes)).collect();
    let mut came = vec![[0; HEAD]; from.len()];
    let outgoing: Vec<Outgoing<'_>> =
        sends.iter().zip(&heads).map(|((to, _), head)| Outgoing { to: *to, bytes: head }).collect();
    let mut incoming: Vec<Incoming<'_>> =
        came.iter_mut().zip(from).map(|(head, &from)| Incoming { from, bytes: head }).collect();
    exchange_all(comm, tag, &outgoing, &mut incoming)?;

    // The rests go apart from the heads: if all waited for their rests to be taken, none would take one.
    let mut bodies = Vec::new();
    for (head, &from) in came.iter().zip(from) {
        bodies.push(begin_body(head, from)?);
    }
    let rests = sends.iter().filter(|(_, bytes)| bytes.len() > ROOM);
    let outgoing: Vec<Outgoing<'_>> =
        rests.map(|&(to, bytes)| Outgoing { to, bytes: &bytes[ROOM..] }).collect();
    let unfinished = bodies.iter_mut().zip(from).filter(|(body, _)| body.len() > ROOM);
    let mut incoming: Vec<Incoming<'_>> =
        unfinished.map(|(body, &from)| Incoming { from, bytes: &mut body[ROOM..] }).collect();
    if !outgoing.is_empty() || !incoming.is_empty() {
        exchange_all(comm, tag, &outgoing, &mut incoming)?;
    }
    Ok(bodies)
}

/// Sends frames and receives none.
pub(super) fn send(comm: &dyn Comm, tag: Tag, sends: &[(Rank, &[u8])]) -> Result<(), CommError> {
    swap(comm, tag, sends, &[]).map(drop)
}

/// Receives one frame.
pub(super) fn receive(comm: &dyn Comm, tag: Tag, from: Rank) -> Result<Vec<u8>, CommError> {
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

fn begin_body(head: &[u8; HEAD], from: Rank) -> Result<Vec<u8>, CommError> {
    let mut length = [0; LENGTH];
    length.copy_from_slice(&head[..LENGTH]);
    let length = usize::try_from(u64::from_le_bytes(length));
    let malformed = CommError::Malformed { from, what: "a message's length" };
    let length = length.map_err(|_| malformed.clone())?;
    let mut body = Vec::new();
    body.try_reserve_exact(length).map_err(|_| malformed)?;
    body.resize(length, 0);
    let room = length.min(ROOM);
    body[..room].copy_from_slice(&head[LENGTH..LENGTH + room]);
    Ok(body)
}

/// Writes a list of numbers and byte strings.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads what a [`Writer`] wrote; `None` where it did not.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

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
const HEAD: usize = 512;
/// Bytes of the length in it.
const LENGTH: usize = 8;
/// Bytes that fit behind the length.
const ROOM: usize = HEAD - LENGTH;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_as_it_was_written() {
        let mut writer = Writer::default();
        writer.number(7);
        writer.bytes(b"seven");
        writer.bytes(b"");
        let bytes = writer.done();
        let mut reader = Reader(&bytes);
        assert_eq!(reader.number(), Some(7));
        assert_eq!(reader.bytes(), Some(&b"seven"[..]));
        assert_eq!(reader.bytes(), Some(&b""[..]));
        assert!(reader.is_at_end());
    }

    #[test]
    fn a_list_cut_short_anywhere_is_refused() {
        let mut writer = Writer::default();
        writer.bytes(b"seven");
        let bytes = writer.done();
        for length in 0..bytes.len() {
            assert_eq!(Reader(&bytes[..length]).bytes(), None);
        }
        assert_eq!(Reader(&[0xff; 12]).bytes(), None);
    }

    #[test]
    fn a_length_that_no_memory_can_hold_is_an_error() {
        assert!(begin_body(&[0xff; HEAD], Rank(3)).is_err());
    }
}
