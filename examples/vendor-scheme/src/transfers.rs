//! Carries bytes between the members of a set, block by block, so that memory stays small.

use scr_plugin_api::{Bytes, PluginError, ReceiveFrom, SendTo, Set};

/// How much of a transfer goes in one message.
const BLOCK_BYTES: u64 = 1 << 20;

/// Which of a member's files, and from where on.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Data,
    Redundancy(u64),
}

/// Bytes of one member that another one gets. All members know all transfers, in the same order.
pub(crate) struct Transfer {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
    pub(crate) source: Place,
    pub(crate) target: Place,
}

/// A block of a transfer that this member sends or receives.
struct Block {
    peer: u32,
    place: Place,
    offset: u64,
    bytes: Vec<u8>,
}

/// Carries out all transfers. Called on all members with the same list.
pub(crate) fn carry(set: &dyn Set, transfers: &[Transfer]) -> Result<(), PluginError> {
    let total = transfers.iter().map(|transfer| transfer.bytes).max().unwrap_or(0);
    let mut offset = 0;
    while offset < total {
        carry_block(set, transfers, offset)?;
        offset = offset.saturating_add(BLOCK_BYTES).min(total);
        set.progress(offset, total)?;
    }
    Ok(())
}

/// Carries the block at `offset` of every transfer that is that long, in one exchange.
fn carry_block(set: &dyn Set, transfers: &[Transfer], offset: u64) -> Result<(), PluginError> {
    let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
    for transfer in transfers.iter().filter(|transfer| offset < transfer.bytes) {
        let len = (transfer.bytes - offset).min(BLOCK_BYTES) as usize;
        if transfer.from == set.rank() {
            let mut block = Block::new(transfer.to, transfer.source, offset, len);
            block.read(set)?;
            outgoing.push(block);
        } else if transfer.to == set.rank() {
            incoming.push(Block::new(transfer.from, transfer.target, offset, len));
        }
    }
    let sends: Vec<_> = outgoing.iter().map(|block| SendTo { to: block.peer, bytes: &block.bytes }).collect();
    let mut receives: Vec<_> =
        incoming.iter_mut().map(|block| ReceiveFrom { from: block.peer, bytes: &mut block.bytes }).collect();
    set.exchange(&sends, &mut receives)?;
    incoming.iter().try_for_each(|block| block.write(set))
}

impl Block {
    fn new(peer: u32, place: Place, offset: u64, len: usize) -> Self {
        Self { peer, place, offset, bytes: vec![0; len] }
    }

    fn file<'a>(&self, set: &'a dyn Set) -> (&'a dyn Bytes, u64) {
        match self.place {
            Place::Data => (set.data(), self.offset),
            Place::Redundancy(begin) => (set.redundancy(), begin + self.offset),
        }
    }

    fn read(&mut self, set: &dyn Set) -> Result<(), PluginError> {
        let (file, offset) = self.file(set);
        file.read_at(offset, &mut self.bytes)
    }

    fn write(&self, set: &dyn Set) -> Result<(), PluginError> {
        let (file, offset) = self.file(set);
        file.write_at(offset, &self.bytes)
    }
}
