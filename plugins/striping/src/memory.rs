//! The memory for a block: that of the files themselves if the host maps them, otherwise buffers.

use crate::step::{Buffer, Place, StepPlan};
use scr_plugin_api::{grow, Bytes, MappedRange, PluginError};
use std::ops::Range;

/// Buffers, used again for one block after the other.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    own: Vec<u8>,
    pub(crate) incoming: Vec<u8>,
    local: Vec<u8>,
    outgoing: Vec<u8>,
}

/// The memory of one block.
pub(crate) struct Memory<'a> {
    buffers: Buffers,
    /// The loans of the files that this member reads, by place in the buffer.
    borrowed: Vec<(Range<usize>, &'a [u8])>,
    /// For each piece that this member writes its place in the buffer, and its mapping if the host maps it.
    written: Vec<(Range<usize>, Option<Mapping<'a>>)>,
}

/// A piece of a file that is written in place.
type Mapping<'a> = Box<dyn MappedRange + 'a>;

/// All of it at once, to work with.
pub(crate) struct Parts<'m> {
    pub(crate) own: Own<'m>,
    pub(crate) incoming: &'m mut [u8],
    pub(crate) local: Pieces<'m>,
    pub(crate) outgoing: &'m mut [u8],
}

/// The blocks that this member has read.
#[derive(Clone, Copy)]
pub(crate) struct Own<'m> {
    buffer: &'m [u8],
    borrowed: &'m [(Range<usize>, &'m [u8])],
}

/// A buffer in pieces that are not all in one place: where each begins, in order.
pub(crate) type Pieces<'m> = Vec<(usize, &'m mut [u8])>;

/// Fails where the process gets no memory.
fn resize(buffer: &mut Vec<u8>, len: usize) -> Result<(), PluginError> {
    grow(buffer, len).map_err(|error| PluginError::io(error.to_string()))
}

impl<'a> Memory<'a> {
    /// Memory for a block. `map` is asked for each piece that is to be written.
    pub(crate) fn new(
        plan: &StepPlan,
        mut buffers: Buffers,
        map: impl Fn(Place, usize) -> Option<Mapping<'a>>,
    ) -> Result<Self, PluginError> {
        let len = |buffer: Buffer| plan.lens[buffer as usize];
        let writes = plan.writes.iter();
        let written: Vec<_> =
            writes.map(|(place, range)| (range.clone(), map(*place, range.len()))).collect();
        resize(&mut buffers.incoming, len(Buffer::Incoming))?;
        resize(&mut buffers.outgoing, len(Buffer::Outgoing))?;
        let is_needed = written.iter().any(|(_, mapping)| mapping.is_none());
        resize(&mut buffers.local, if is_needed { len(Buffer::Local) } else { 0 })?;
        Ok(Self { buffers, borrowed: Vec::new(), written })
    }

    /// Fills in what nobody computes or sends: zeros, and the header.
    pub(crate) fn begin(&mut self, plan: &StepPlan, header: &[u8]) {
        let header_at = 0..if plan.has_header { header.len() } else { 0 };
        let ranges: Vec<&Range<usize>> = plan.zeros.iter().chain([&header_at]).collect();
        let mut parts = carve(self.parts().local, &ranges);
        if let Some(part) = parts.pop() {
            part.copy_from_slice(&header[..header_at.len()]);
        }
        parts.into_iter().for_each(|part| part.fill(0));
    }

    /// Takes in a piece of a file, borrowed if it can be.
    pub(crate) fn read(
        &mut self,
        file: &'a dyn Bytes,
        offset: u64,
        range: &Range<usize>,
    ) -> Result<(), PluginError> {
        if let Some(bytes) = file.borrow(offset, range.len()) {
            self.borrowed.push((range.clone(), bytes));
            return Ok(());
        }
        let own = &mut self.buffers.own;
        if own.len() < range.end {
            resize(own, range.end)?;
        }
        file.read_at(offset, &mut own[range.clone()])
    }

    pub(crate) fn parts(&mut self) -> Parts<'_> {
        let Buffers { own, incoming, local, outgoing } = &mut self.buffers;
        let mut rest: &mut [u8] = local;
        let mut at = 0;
        let mut pieces = Vec::with_capacity(self.written.len());
        for (range, mapping) in &mut self.written {
            let piece = match mapping {
                Some(mapping) => mapping.bytes(),
                None => {
                    let (piece, after) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
                    (rest, at) = (after, range.end);
                    piece
                }
            };
            pieces.push((range.start, piece));
        }
        Parts { own: Own { buffer: own, borrowed: &self.borrowed }, incoming, local: pieces, outgoing }
    }

    /// The memory of what came in, once all is computed from it.
    pub(crate) fn take_incoming(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffers.incoming)
    }

    /// The unmapped bytes, which have to be written, with their places.
    pub(crate) fn to_write<'m>(&'m self, plan: &'m StepPlan) -> impl Iterator<Item = (Place, &'m [u8])> {
        let pieces = plan.writes.iter().zip(&self.written).filter(|(_, (_, mapping))| mapping.is_none());
        pieces.map(|((place, range), _)| (*place, &self.buffers.local[range.clone()]))
    }

    /// Ends all borrowing, and gives the buffers for the next block.
    pub(crate) fn done(self) -> Buffers {
        self.buffers
    }
}

impl<'m> Own<'m> {
    /// A part, which lies within one piece that was read.
    pub(crate) fn part(&self, range: &Range<usize>) -> &'m [u8] {
        let inside = |piece: &Range<usize>| piece.start <= range.start && range.end <= piece.end;
        match self.borrowed.iter().find(|(piece, _)| inside(piece)) {
            Some((piece, bytes)) => &bytes[range.start - piece.start..range.end - piece.start],
            None => &self.buffer[range.clone()],
        }
    }
}

/// The parts of two buffers in the order they are asked for: of `local` where that is asked for, and else of the other.
pub(crate) fn carve_two<'m, 'r>(
    local: Pieces<'m>,
    other: &'m mut [u8],
    wanted: impl Iterator<Item = (Buffer, &'r Range<usize>)> + Clone,
) -> Vec<&'m mut [u8]> {
    let of = |of_local: bool| {
        let chosen = wanted.clone().filter(move |(buffer, _)| (*buffer == Buffer::Local) == of_local);
        chosen.map(|(_, range)| range).collect::<Vec<_>>()
    };
    let mut of_local = carve(local, &of(true)).into_iter();
    let mut of_other = carve(vec![(0, other)], &of(false)).into_iter();
    let next = |(buffer, _)| if buffer == Buffer::Local { of_local.next() } else { of_other.next() };
    wanted.filter_map(next).collect()
}

/// The parts of a buffer in the order they are asked for. They must not overlap, and each must lie within one piece.
fn carve<'m>(pieces: Pieces<'m>, ranges: &[&Range<usize>]) -> Vec<&'m mut [u8]> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|&index| !ranges[index].is_empty()).collect();
    order.sort_by_key(|&index| ranges[index].start);
    let mut parts: Vec<&mut [u8]> = ranges.iter().map(|_| Default::default()).collect();
    let mut pieces = pieces.into_iter();
    let (mut at, mut rest): (usize, &mut [u8]) = (0, &mut []);
    for index in order {
        let range = ranges[index];
        while range.start >= at + rest.len() {
            let Some(piece) = pieces.next() else { break };
            (at, rest) = piece;
        }
        let (part, after) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
        (parts[index], at, rest) = (part, range.end, after);
    }
    parts
}
