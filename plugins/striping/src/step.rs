//! The work of a member for one block, independent of the scheme: what it reads, sends, receives, computes and writes.
//!
//! All members know all of it before any byte is sent, so the lengths of all messages are known on both sides. The
//! [`pipeline`](crate::run) carries it out.

use crate::matrix::Coefficients;
use scr_plugin_api::PluginError;
use std::ops::Range;

/// Bytes that a member receives at a time at most, unless that would make blocks tiny.
const STEP: u64 = 4 << 20;

/// Not even then is a block shorter than this.
const SMALLEST_BLOCK: u64 = 16 << 10;

/// Which of a member's two logical files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// Its files.
    Data,
    /// The redundancy that it keeps for the others.
    Redundancy,
}

/// A place in a member's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// In which.
    pub file: File,
    /// How far from its beginning.
    pub offset: u64,
}

/// The same part of every chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Counted from 0.
    pub index: u64,
    /// Its offset in the chunk.
    pub offset: u64,
    /// How long it is.
    pub len: usize,
}

/// A good size for blocks of which a member gets so many at a time, in messages of so many bytes at most.
pub fn block_size(at_a_time: u32, message_bytes: u64) -> u64 {
    (STEP / u64::from(at_a_time.max(1))).max(SMALLEST_BLOCK).min(message_bytes).max(1)
}

/// The blocks of `size` bytes that `len` bytes are worked on in.
pub fn blocks(len: u64, size: u64) -> impl Iterator<Item = Block> + use<> {
    (0..len.div_ceil(size)).map(move |index| {
        let offset = index * size;
        Block { index, offset, len: size.min(len - offset) as usize }
    })
}

/// The maker of the plans of one member.
pub trait Plans: Sync {
    /// All blocks, the same on all members, for messages of so many bytes at most.
    fn blocks(&self, message_bytes: u64) -> Vec<Block>;

    /// The header that this member writes, empty if it keeps what it has.
    fn header(&self) -> &[u8];

    /// This member's part in a block.
    ///
    /// # Errors
    /// `Fault` if there is none, which is a bug.
    fn step(&self, block: Block) -> Result<StepPlan, PluginError>;
}

/// The pieces of memory that a block takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// The blocks that this member reads.
    Own,
    /// The blocks that it receives to compute with.
    Incoming,
    /// The blocks that it writes.
    Local,
    /// The blocks that it computes for others.
    Outgoing,
}

/// One member's part in one block.
#[derive(Debug, Default)]
pub struct StepPlan {
    /// Read into `Own`.
    pub(crate) reads: Vec<(Place, Range<usize>)>,
    /// Sent and received at once.
    pub sends: Vec<Message>,
    /// Received at once.
    pub receives: Vec<Message>,
    pub(crate) tasks: Vec<Task>,
    /// Sent when the tasks are done.
    pub(crate) result_sends: Vec<Message>,
    /// Received when the others have done their tasks.
    pub(crate) result_receives: Vec<Message>,
    /// Parts of `Local` that nobody computes or sends: they are zeros.
    pub(crate) zeros: Vec<Range<usize>>,
    /// Whether `Local` begins with the header.
    pub(crate) has_header: bool,
    /// Written out of `Local`.
    pub(crate) writes: Vec<(Place, Range<usize>)>,
    /// Length of each buffer.
    pub(crate) lens: [usize; 4],
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The other member.
    pub(crate) peer: u32,
    /// Orders the messages between the same two members.
    order: u32,
    pub(crate) buffer: Buffer,
    pub(crate) range: Range<usize>,
}

impl Message {
    /// A message to or from `peer`, out of or into a part of a buffer. Among several between the same two, the
    /// one with the smaller `order` comes first.
    pub fn new(peer: u32, order: u32, buffer: Buffer, range: Range<usize>) -> Self {
        Self { peer, order, buffer, range }
    }
}

/// A sum of scaled blocks to compute.
#[derive(Debug)]
pub(crate) struct Task {
    /// In `Own` or `Incoming`.
    pub(crate) inputs: Vec<(Buffer, Range<usize>)>,
    /// In `Local` or `Outgoing`.
    pub(crate) outputs: Vec<(Buffer, Range<usize>)>,
    pub(crate) coefficients: Coefficients,
}

impl StepPlan {
    /// Nothing to do but to write the header, if there is one and this is the first block.
    pub fn new(block: Block, header: &[u8]) -> Self {
        let has_header = block.index == 0 && !header.is_empty();
        let mut plan = Self { has_header, ..Self::default() };
        if plan.has_header {
            plan.keep(Place { file: File::Redundancy, offset: 0 }, header.len(), header.len());
        }
        plan
    }

    /// The next `len` bytes of a buffer.
    pub fn room(&mut self, buffer: Buffer, len: usize) -> Range<usize> {
        let end = &mut self.lens[buffer as usize];
        let start = *end;
        *end += len;
        start..*end
    }

    /// Reads `len` bytes, and gives where in `Own` they will be.
    pub fn read(&mut self, place: Place, len: usize) -> Range<usize> {
        let range = self.room(Buffer::Own, len);
        join(&mut self.reads, place, range.clone());
        range
    }

    /// Room in `Local` for `stored` bytes that this member writes: `live` that it gets or computes, which is what
    /// is given, and zeros.
    pub fn keep(&mut self, place: Place, live: usize, stored: usize) -> Range<usize> {
        let range = self.room(Buffer::Local, stored);
        let split = range.start + live;
        self.zeros.push(split..range.end);
        join(&mut self.writes, place, range.clone());
        range.start..split
    }

    /// Puts the messages in the order in which every member starts with its neighbour, so that at no time all
    /// send to the same one.
    pub fn stagger(&mut self, rank: u32, members: u32) {
        let ahead = |message: &Message| ((message.peer + members - rank) % members, message.order);
        let distance = |message: &Message| ((rank + members - message.peer) % members, message.order);
        self.sends.sort_by_key(ahead);
        self.result_sends.sort_by_key(ahead);
        self.receives.sort_by_key(distance);
        self.result_receives.sort_by_key(distance);
    }
}

/// Adds a piece of a file, in one with the piece before it if they touch in the file and in the buffer.
fn join(pieces: &mut Vec<(Place, Range<usize>)>, place: Place, range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    if let Some((before, covered)) = pieces.last_mut() {
        let end = before.offset + covered.len() as u64;
        if before.file == place.file && end == place.offset && covered.end == range.start {
            covered.end = range.end;
            return;
        }
    }
    pieces.push((place, range));
}
