//! Which byte of a set is in which chunk, and which member keeps it.
//!
//! A set of N members with k parity chunks per stripe has N stripes of N chunks, one at each member. A
//! member's data, padded with zeros, is N-k chunks. In stripe `s` the member `m` has the *position*
//! `(m - s) mod N`: the positions below k are parity rows, the others data, and position `k + c` is the
//! member's chunk `c`. So every member has each position once, and the roles rotate.

use crate::step::{block_size, blocks, Block, File, Place};
use scr_plugin_api::PluginError;

/// The most members and parity rows together: there are no more different elements in the field.
const FIELD: u32 = 256;

/// The shape of one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) members: u32,
    pub(crate) parities: u32,
    pub(crate) chunk: u64,
    data_lens: Vec<u64>,
}

/// Refuses a shape that the arithmetic cannot do.
pub(crate) fn check_shape(members: u32, parities: u32) -> Result<(), PluginError> {
    if parities == 0 {
        return Err(PluginError::refused(
            "the number of failures to survive is 0; it must be at least 1".to_owned(),
        ));
    }
    if parities >= members {
        return Err(PluginError::refused(format!(
            "{parities} failures per set were asked for, but the set has only {members} members (N = {members}, \
             k = {parities}, and k must be less than N): lower SCR_SET_FAILURES, or run on at least {} nodes",
            u64::from(parities) + 1
        )));
    }
    if members.saturating_add(parities) > FIELD {
        return Err(PluginError::refused(format!(
            "a set of {members} members with {parities} failures is too large (N + k is {}, at most {FIELD} is \
             possible): lower SET_SIZE or SET_FAILURES",
            u64::from(members) + u64::from(parities)
        )));
    }
    Ok(())
}

impl Layout {
    /// The layout of a set whose members have so many bytes of data.
    pub(crate) fn new(parities: u32, data_lens: &[u64]) -> Result<Self, PluginError> {
        let members = u32::try_from(data_lens.len()).unwrap_or(u32::MAX);
        check_shape(members, parities)?;
        let longest = data_lens.iter().copied().max().unwrap_or(0);
        if longest > i64::MAX as u64 / 2 {
            return Err(PluginError::corrupt(format!(
                "a member's data is said to be {longest} bytes long, which cannot be"
            )));
        }
        let chunk = longest.div_ceil(u64::from(members - parities));
        Ok(Self { members, parities, chunk, data_lens: data_lens.to_vec() })
    }

    /// Number of data chunks in a stripe, and of a member.
    pub(crate) fn columns(&self) -> u32 {
        self.members - self.parities
    }

    /// Bytes of parity that each member keeps.
    pub(crate) fn parity_len(&self) -> u64 {
        // At most half of the largest i64 (see `new`) times a k below 256 could still be too much.
        self.chunk.saturating_mul(u64::from(self.parities))
    }

    pub(crate) fn data_len(&self, member: u32) -> u64 {
        self.data_lens.get(member as usize).copied().unwrap_or(0)
    }

    /// The blocks that every chunk is worked on in.
    pub(crate) fn blocks(&self, message_bytes: u64) -> impl Iterator<Item = Block> + use<> {
        blocks(self.chunk, block_size(self.columns(), message_bytes))
    }

    /// The position of a member in a stripe.
    pub(crate) fn position(&self, stripe: u32, member: u32) -> u32 {
        (member + self.members - stripe) % self.members
    }

    /// The member at a position of a stripe.
    pub(crate) fn member(&self, stripe: u32, position: u32) -> u32 {
        (stripe + position) % self.members
    }

    /// The place of a block of the chunk at a position. `parities_at` is where parity begins in the redundancy.
    pub(crate) fn place(&self, position: u32, block: Block, parities_at: u64) -> Place {
        match position.checked_sub(self.parities) {
            Some(column) => Place { file: File::Data, offset: u64::from(column) * self.chunk + block.offset },
            None => Place {
                file: File::Redundancy,
                offset: parities_at + u64::from(position) * self.chunk + block.offset,
            },
        }
    }

    /// How many bytes of a block of a data chunk are no padding, or all that parity could be other than zero.
    pub(crate) fn live(&self, stripe: u32, position: u32, block: Block) -> usize {
        match position.checked_sub(self.parities) {
            Some(column) => {
                let before = u64::from(column) * self.chunk + block.offset;
                let rest = self.data_len(self.member(stripe, position)).saturating_sub(before);
                rest.min(block.len as u64) as usize
            }
            None => {
                let positions = self.parities..self.members;
                positions.map(|position| self.live(stripe, position, block)).max().unwrap_or(0)
            }
        }
    }

    /// How many bytes of a block the member at a position stores: parity all of it, data without padding.
    pub(crate) fn stored(&self, stripe: u32, position: u32, block: Block) -> usize {
        if position < self.parities {
            block.len
        } else {
            self.live(stripe, position, block)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_has_every_position_once_and_every_stripe_every_member_once() {
        for (members, parities) in [(2, 1), (5, 1), (6, 3), (9, 8)] {
            let layout = Layout::new(parities, &vec![100; members as usize]).unwrap();
            for fixed in 0..members {
                let mut of_member: Vec<u32> = (0..members).map(|s| layout.position(s, fixed)).collect();
                of_member.sort_unstable();
                assert!(of_member.into_iter().eq(0..members));
                for position in 0..members {
                    assert_eq!(layout.position(fixed, layout.member(fixed, position)), position);
                }
            }
        }
    }

    #[test]
    fn the_live_bytes_of_all_data_blocks_are_the_data() {
        let lens = [1000, 0, 1, 999, 334];
        let layout = Layout::new(2, &lens).unwrap();
        assert_eq!(layout.chunk, 334);
        for member in 0..5 {
            let live: usize = (0..5)
                .filter(|&stripe| layout.position(stripe, member) >= 2)
                .flat_map(|stripe| layout.blocks(100_000).map(move |block| (stripe, block)))
                .map(|(stripe, block)| layout.live(stripe, layout.position(stripe, member), block))
                .sum();
            assert_eq!(live as u64, lens[member as usize]);
        }
    }

    #[test]
    fn blocks_cover_the_chunk() {
        let layout = Layout::new(1, &[1 << 20, 3 << 20, 5]).unwrap();
        let mut end = 0;
        for block in layout.blocks(100_000) {
            assert_eq!(block.offset, end);
            end += block.len as u64;
        }
        assert_eq!(end, layout.chunk);
        assert_eq!(Layout::new(1, &[0, 0]).unwrap().blocks(100_000).count(), 0);
    }

    #[test]
    fn shapes_that_cannot_be_are_refused_with_n_and_k() {
        assert!(check_shape(2, 2).unwrap_err().text.contains("N = 2, k = 2"));
        assert!(check_shape(4, 0).unwrap_err().text.contains("at least 1"));
        assert!(check_shape(250, 7).unwrap_err().text.contains("N + k is 257"));
        check_shape(250, 6).unwrap();
        check_shape(2, 1).unwrap();
    }
}
