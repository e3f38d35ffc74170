//! The engine that XOR and RS share: a set of N members, k parity chunks per stripe, and any k of the members
//! may be lost.
//!
//! A plain library rather than a part of the plugin API, so that no vendor's plugin carries an old copy of it. The modules:
//! `layout` says where each byte is, `plan` says what each member does for a block, and `pipeline` does it with the arithmetic of
//! `kernel` and `matrix`. `header` prevents a rebuild from other data. Header and pipeline do not depend on stripes, and schemes
//! that only copy use them too.
//!
//! Communication: protecting sends N-1 chunks for every stripe (the data to one owner, which sends k-1 rows on), so each member
//! sends and receives (N-1)/(N-k) of its data. Rebuilding sends N-k-1 chunks for each stripe to a survivor, and the lost members
//! receive their own bytes.

mod gf;
mod header;
mod kernel;
mod layout;
mod matrix;
mod pipeline;
mod plan;
mod step;

pub use header::Header;
pub use pipeline::run;
pub use step::{block_size, blocks, Block, Buffer, File, Message, Place, Plans, StepPlan};

use crate::layout::Layout;
use crate::plan::{Goal, Planner};
use scr_plugin_api::{KvTree, Level, PluginError, Scheme, Set, SetShape};

/// The on-disk format that this engine writes, and the only one there is so far.
pub const FORMAT: u32 = 1;

/// The scheme for sets in which any `failures` members may be lost; a set of one is legal and protects nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    failures: u32,
}

impl Striping {
    /// A scheme with that many parity chunks per stripe.
    pub fn new(failures: u32) -> Self {
        Self { failures }
    }

    fn layout(&self, set: &dyn Set) -> Result<Layout, PluginError> {
        let data_lens: Vec<u64> = (0..set.size()).map(|member| set.data_len(member)).collect();
        let layout = Layout::new(self.failures, &data_lens)?;
        let expected = layout.parity_len().saturating_add(Header::len(layout.members));
        Header::check_len(set, expected)?;
        Ok(layout)
    }

    fn header(&self, layout: &Layout) -> Header {
        Header {
            format: FORMAT,
            arithmetic: matrix::MATRIX_ID,
            redundancy: self.failures,
            chunk: layout.chunk,
        }
    }

    fn make(&self, set: &dyn Set, layout: Layout, goal: Goal, write_header: bool) -> Result<(), PluginError> {
        let header = if write_header { self.header(&layout).encode(set, set.rank()) } else { Vec::new() };
        let parities_at = Header::len(layout.members);
        run(set, &Planner::new(layout, set.rank(), goal, parities_at, header))
    }
}

impl Scheme for Striping {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        if set_size == 1 {
            return Ok(0);
        }
        layout::check_shape(set_size, self.failures)?;
        Ok(self.failures)
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        if shape.data_lens.len() == 1 {
            return Ok(0);
        }
        let layout = Layout::new(self.failures, shape.data_lens)?;
        Ok(layout.parity_len().saturating_add(Header::len(layout.members)))
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        if set.size() == 1 {
            warn_of_one(set);
            return Ok(());
        }
        let layout = self.layout(set)?;
        self.make(set, layout, Goal::Protect, true)
    }

    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError> {
        Header::check_format(format, FORMAT)?;
        let lost: Vec<bool> = (0..set.size()).map(|member| set.lost(member)).collect();
        check_losses(set, &lost, self.losses_survived(set.size())?)?;
        if set.size() == 1 {
            return Ok(());
        }
        let layout = self.layout(set)?;
        if !set.lost(set.rank()) {
            self.header(&layout).verify(set)?;
        }
        if !lost.contains(&true) {
            return Ok(());
        }
        self.make(set, layout, Goal::Rebuild(lost), set.lost(set.rank()))
    }
}

/// Says that a set of one member protects nothing.
pub fn warn_of_one(set: &dyn Set) {
    let text = "a redundancy set of one member: its files do not survive the loss of their node";
    set.log(Level::Warn, text);
}

/// The value of an option that counts members, or else `usual`.
///
/// # Errors
/// `Refused` where it is no number from 1 to 255.
pub fn count_option(options: &KvTree, name: &str, usual: u32) -> Result<u32, PluginError> {
    match options.parse(name).map_err(|error| PluginError::refused(error.to_string()))?.unwrap_or(usual) {
        count @ 1..=255 => Ok(count),
        count => Err(PluginError::refused(format!("{name} is {count}, but must be from 1 to 255"))),
    }
}

/// Refuses to rebuild where more members are lost than can be restored, and names them.
///
/// # Errors
/// `TooManyLost`.
fn check_losses(set: &dyn Set, lost: &[bool], most: u32) -> Result<(), PluginError> {
    let missing: Vec<u32> = (0..set.size()).filter(|&member| lost[member as usize]).collect();
    if missing.len() <= most as usize {
        return Ok(());
    }
    let ranks: Vec<String> = missing.iter().map(|&member| set.world_rank(member).to_string()).collect();
    Err(PluginError::too_many_lost(format!(
        "{} of the {} members of the set have lost their files (world ranks {}), and at most {most} can be \
         restored: this dataset cannot be rebuilt",
        missing.len(),
        set.size(),
        ranks.join(", ")
    )))
}
