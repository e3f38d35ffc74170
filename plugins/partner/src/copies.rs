//! Which member keeps which copy, and the work of each member for a block of all copies.
//!
//! Protecting and rebuilding are the same operation: the data of every member goes from a member that has it to those that lack
//! it. In a rebuild, the nearest survivor with a copy sends the data of a lost member, to that member and to others that kept
//! copies of it.

use scr_plugin_api::PluginError;
use scr_striping::{block_size, blocks, Block, Buffer, File, Header, Message, Place, Plans, StepPlan};

/// The shape of one set.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    replicas: u32,
    data_lens: Vec<u64>,
}

impl Layout {
    /// `None` where the lengths are beyond reason.
    pub(crate) fn new(replicas: u32, data_lens: Vec<u64>) -> Option<Self> {
        let total = data_lens.iter().try_fold(0_u64, |sum, &len| sum.checked_add(len))?;
        (total <= i64::MAX as u64 / 2).then_some(Self { replicas, data_lens })
    }

    fn members(&self) -> u32 {
        self.data_lens.len() as u32
    }

    fn data_len(&self, member: u32) -> u64 {
        self.data_lens[member as usize]
    }

    /// The member `distance` to the left.
    fn left(&self, member: u32, distance: u32) -> u32 {
        (member + self.members() - distance) % self.members()
    }

    /// Those who keep a copy of a member's data, the nearest first, with their distance.
    fn holders(&self, owner: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        (1..=self.replicas).map(move |distance| ((owner + distance) % self.members(), distance))
    }

    /// The start of the copy of the left neighbour at `distance` in a holder's redundancy.
    fn copy_at(&self, holder: u32, distance: u32) -> u64 {
        let before = (1..distance).map(|nearer| self.data_len(self.left(holder, nearer)));
        Header::len(self.members()) + before.sum::<u64>()
    }

    pub(crate) fn redundancy_len(&self, holder: u32) -> u64 {
        self.copy_at(holder, self.replicas + 1)
    }

    /// The lost members of whom no copy is left.
    pub(crate) fn without_keeper(&self, lost: &[bool]) -> Vec<u32> {
        let gone = |owner: &u32| {
            lost[*owner as usize] && self.holders(*owner).all(|(holder, _)| lost[holder as usize])
        };
        (0..self.members()).filter(gone).collect()
    }
}

/// One member's data on its way.
#[derive(Debug)]
struct Copy {
    source: (u32, Place),
    targets: Vec<(u32, Place)>,
}

/// Makes the plans of one member.
#[derive(Debug)]
pub(crate) struct Copies {
    /// By owner.
    copies: Vec<Option<Copy>>,
    layout: Layout,
    rank: u32,
    header: Vec<u8>,
}

impl Copies {
    /// All copies of everybody's data, or only those that are needed by the lost members.
    pub(crate) fn new(layout: Layout, rank: u32, lost: Option<&[bool]>, header: Vec<u8>) -> Self {
        let owners = 0..layout.members();
        let copies = owners.map(|owner| copy(&layout, owner, lost)).collect();
        Self { copies, layout, rank, header }
    }
}

/// The way of one member's data, if anyone is in want of it.
fn copy(layout: &Layout, owner: u32, lost: Option<&[bool]>) -> Option<Copy> {
    let is_lost = |member: u32| lost.is_some_and(|lost| lost[member as usize]);
    let data = Place { file: File::Data, offset: 0 };
    let kept: Vec<(u32, Place)> = layout
        .holders(owner)
        .map(|(holder, distance)| {
            (holder, Place { file: File::Redundancy, offset: layout.copy_at(holder, distance) })
        })
        .collect();
    let wants = |&(holder, _): &(u32, Place)| lost.is_none() || is_lost(holder);
    let mut targets: Vec<(u32, Place)> = kept.iter().copied().filter(wants).collect();
    let source = if is_lost(owner) {
        targets.push((owner, data));
        kept.iter().copied().find(|&(holder, _)| !is_lost(holder))?
    } else {
        (owner, data)
    };
    (!targets.is_empty()).then_some(Copy { source, targets })
}

impl Copies {
    /// Whether this member sends from its redundancy.
    pub(crate) fn sends_copies(&self) -> bool {
        let is_own = |copy: &Copy| copy.source.0 == self.rank && copy.source.1.file == File::Redundancy;
        self.copies.iter().flatten().any(is_own)
    }
}

impl Plans for Copies {
    fn blocks(&self, message_bytes: u64) -> Vec<Block> {
        let moved = self.copies.iter().zip(&self.layout.data_lens).filter(|(copy, _)| copy.is_some());
        let longest = moved.map(|(_, &len)| len).max().unwrap_or(0);
        blocks(longest, block_size(self.layout.replicas, message_bytes)).collect()
    }

    fn header(&self) -> &[u8] {
        &self.header
    }

    fn step(&self, block: Block) -> Result<StepPlan, PluginError> {
        let mut plan = StepPlan::new(block, &self.header);
        let at = |place: Place| Place { offset: place.offset + block.offset, ..place };
        // The nearest left neighbour first, so that what is written lies in the order of the file.
        for distance in 0..self.layout.members() {
            let owner = self.layout.left(self.rank, distance);
            let Some(copy) = &self.copies[owner as usize] else { continue };
            let rest = self.layout.data_len(owner).saturating_sub(block.offset);
            let len = rest.min(block.len as u64) as usize;
            if len == 0 {
                continue;
            }
            if copy.source.0 == self.rank {
                let range = plan.read(at(copy.source.1), len);
                let message =
                    |&(target, _): &(u32, Place)| Message::new(target, owner, Buffer::Own, range.clone());
                plan.sends.extend(copy.targets.iter().map(message));
            }
            for &(_, place) in copy.targets.iter().filter(|(target, _)| *target == self.rank) {
                let range = plan.keep(at(place), len, len);
                plan.receives.push(Message::new(copy.source.0, owner, Buffer::Local, range));
            }
        }
        plan.stagger(self.rank, self.layout.members());
        Ok(plan)
    }
}
