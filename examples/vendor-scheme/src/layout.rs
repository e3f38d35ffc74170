//! The layout of a member's redundancy: a header, then the copies, the nearest neighbour's first.

use scr_plugin_api::{Bytes, PluginError, PluginErrorKind, Set};

/// Starts every redundancy of this scheme, with the number of the format.
const MAGIC: &[u8; 8] = b"MIRROR\x00\x01";

/// Fields of a header before those of each member: the magic bytes, dataset, copies, size, rank.
const FIXED_BYTES: u64 = 8 + 8 + 3 * 4;

/// Fields of each member: its length of data and its rank in the run.
const MEMBER_BYTES: u64 = 8 + 4;

/// The lengths and offsets of one set. All of them fit: the constructor has added everything up.
pub(crate) struct Layout {
    copies: u32,
    data_lens: Vec<u64>,
}

/// A copy that a member keeps.
pub(crate) struct Copy {
    /// The member that the data belongs to.
    pub(crate) owner: u32,
    /// Its start in the redundancy of its holder.
    pub(crate) offset: u64,
}

/// One who keeps a copy.
pub(crate) struct CopyHolder {
    pub(crate) member: u32,
    /// The start of the copy in its redundancy.
    pub(crate) offset: u64,
}

impl Layout {
    /// `None` where the bytes of the set cannot even be counted. There are more members than copies.
    pub(crate) fn new(copies: u32, data_lens: Vec<u64>) -> Option<Self> {
        let members = u64::try_from(data_lens.len()).ok()?;
        let header = FIXED_BYTES.checked_add(MEMBER_BYTES.checked_mul(members)?)?;
        data_lens.iter().try_fold(header, |sum, &len| sum.checked_add(len))?;
        u32::try_from(data_lens.len()).ok()?;
        Some(Self { copies, data_lens })
    }

    pub(crate) fn size(&self) -> u32 {
        self.data_lens.len() as u32
    }

    pub(crate) fn data_len(&self, member: u32) -> u64 {
        self.data_lens.get(member as usize).copied().unwrap_or(0)
    }

    fn header_len(&self) -> u64 {
        FIXED_BYTES + MEMBER_BYTES * u64::from(self.size())
    }

    pub(crate) fn redundancy_len(&self, member: u32) -> u64 {
        self.copies_at(member).map(|copy| self.data_len(copy.owner)).sum::<u64>() + self.header_len()
    }

    /// The copies that `member` keeps, in the order in which they lie.
    pub(crate) fn copies_at(&self, member: u32) -> impl Iterator<Item = Copy> + '_ {
        let mut offset = self.header_len();
        (1..=self.copies).map(move |distance| {
            let owner = self.at_distance(member, self.size() - distance);
            let copy = Copy { owner, offset };
            offset += self.data_len(owner);
            copy
        })
    }

    /// The holders of the data of `member`, the nearest first.
    pub(crate) fn holders_of(&self, member: u32) -> impl Iterator<Item = CopyHolder> + '_ {
        (1..=self.copies).filter_map(move |distance| {
            let holder = self.at_distance(member, distance);
            let copy = self.copies_at(holder).find(|copy| copy.owner == member)?;
            Some(CopyHolder { member: holder, offset: copy.offset })
        })
    }

    fn at_distance(&self, member: u32, distance: u32) -> u32 {
        let place = (u64::from(member) + u64::from(distance)) % u64::from(self.size());
        place as u32
    }
}

/// The header before the copies, so that no copy is ever taken for one of another set or dataset.
pub(crate) struct Header(Vec<u8>);

impl Header {
    pub(crate) fn new(set: &dyn Set, layout: &Layout) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&set.dataset().to_le_bytes());
        for number in [layout.copies, layout.size(), set.rank()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for member in 0..layout.size() {
            bytes.extend_from_slice(&layout.data_len(member).to_le_bytes());
            bytes.extend_from_slice(&set.world_rank(member).to_le_bytes());
        }
        Self(bytes)
    }

    pub(crate) fn write(&self, redundancy: &dyn Bytes) -> Result<(), PluginError> {
        redundancy.write_at(0, &self.0)
    }

    /// Refuses redundancy that does not begin with this very header.
    pub(crate) fn expect_in(&self, redundancy: &dyn Bytes) -> Result<(), PluginError> {
        let mut found = vec![0; self.0.len()];
        redundancy.read_at(0, &mut found)?;
        if found == self.0 {
            return Ok(());
        }
        let text = if found.starts_with(MAGIC) {
            "the redundancy file is MIRROR's, but of another dataset, set or COPIES"
        } else {
            "the redundancy file is not one that MIRROR wrote"
        };
        Err(PluginError::new(PluginErrorKind::Corrupt, text))
    }
}
