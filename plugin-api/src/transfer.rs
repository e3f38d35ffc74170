//! Moves bytes between the members of a set, block by block.

use crate::{Bytes, PluginError, ReceiveFrom, SendTo, Set};

/// A place in one of a member's two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In its data, from this offset.
    Data(u64),
    /// In its redundancy, from this offset.
    Redundancy(u64),
}

/// Bytes of one member that another one gets, or the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The member that has them.
    pub from: u32,
    /// Their offset there.
    pub source: Place,
    /// The member that gets them.
    pub to: u32,
    /// Their offset there.
    pub target: Place,
    /// How many there are.
    pub bytes: u64,
}

/// Carries out all transfers. All members call it with the same list. Each needs memory for one message of each transfer that it takes part in.
///
/// ```
/// use scr_plugin_api::{transfer, Place, PluginError, Set, Transfer};
///
/// /// Every member gets a copy of the data of its left neighbour.
/// fn copy_to_the_right(set: &dyn Set) -> Result<(), PluginError> {
///     let transfers: Vec<_> = (0..set.size())
///         .map(|from| Transfer {
///             from,
///             source: Place::Data(0),
///             to: (from + 1) % set.size(),
///             target: Place::Redundancy(0),
///             bytes: set.data_len(from),
///         })
///         .collect();
///     transfer(set, &transfers)
/// }
/// ```
///
/// # Errors
/// Those of [`Set::exchange`], [`Bytes::read_at`] and [`Bytes::write_at`].
pub fn transfer(set: &dyn Set, transfers: &[Transfer]) -> Result<(), PluginError> {
    let block_bytes = set.message_bytes().max(1);
    let total = transfers.iter().map(|transfer| transfer.bytes).max().unwrap_or(0);
    let mut offset = 0;
    while offset < total {
        transfer_block(set, transfers, offset, block_bytes)?;
        offset = offset.saturating_add(block_bytes).min(total);
    }
    Ok(())
}

/// A block of a transfer, at the member that sends it or at the one that receives it.
struct Block {
    peer: u32,
    place: Place,
    bytes: Vec<u8>,
}

/// Carries the block at `offset` of every transfer that is that long, in one exchange.
fn transfer_block(
    set: &dyn Set,
    transfers: &[Transfer],
    offset: u64,
    block_bytes: u64,
) -> Result<(), PluginError> {
    let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
    for transfer in transfers.iter().filter(|transfer| offset < transfer.bytes) {
        let len = (transfer.bytes - offset).min(block_bytes) as usize;
        if transfer.from == set.rank() {
            let block = Block { peer: transfer.to, place: transfer.source.plus(offset), bytes: zeroed(len)? };
            outgoing.push(block.read(set)?);
        }
        if transfer.to == set.rank() {
            let place = transfer.target.plus(offset);
            incoming.push(Block { peer: transfer.from, place, bytes: zeroed(len)? });
        }
    }
    let sends: Vec<_> = outgoing.iter().map(|block| SendTo { to: block.peer, bytes: &block.bytes }).collect();
    let mut receives: Vec<_> =
        incoming.iter_mut().map(|block| ReceiveFrom { from: block.peer, bytes: &mut block.bytes }).collect();
    set.exchange(&sends, &mut receives)?;
    incoming.iter().try_for_each(|block| block.write(set))
}

/// A buffer of zeros. Fails where the process gets no memory.
fn zeroed(len: usize) -> Result<Vec<u8>, PluginError> {
    crate::zeroed(len).map_err(|error| PluginError::io(error.to_string()))
}

impl Block {
    fn read(mut self, set: &dyn Set) -> Result<Self, PluginError> {
        let (file, offset) = self.place.in_file_of(set);
        file.read_at(offset, &mut self.bytes)?;
        Ok(self)
    }

    fn write(&self, set: &dyn Set) -> Result<(), PluginError> {
        let (file, offset) = self.place.in_file_of(set);
        file.write_at(offset, &self.bytes)
    }
}

impl Place {
    fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Data(offset) => Self::Data(offset.saturating_add(bytes)),
            Self::Redundancy(offset) => Self::Redundancy(offset.saturating_add(bytes)),
        }
    }

    fn in_file_of(self, set: &dyn Set) -> (&dyn Bytes, u64) {
        match self {
            Self::Data(offset) => (set.data(), offset),
            Self::Redundancy(offset) => (set.redundancy(), offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process ended.
    #[test]
    fn a_block_that_no_memory_is_left_for_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        let error = zeroed(usize::MAX >> 2).unwrap_err();
        assert!(error.text.starts_with("this process gets no memory for "), "{error}");
    }
}
