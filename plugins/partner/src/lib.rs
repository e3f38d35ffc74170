//! The scheme PARTNER: the next members of a set keep full copies of each member's data. It costs room rather than arithmetic. It
//! survives the loss of as many members as there are copies, and of more if a holder of each lost one is left.
//! See docs/user/concepts.md.
//!
//! A member's redundancy is the header of [`scr_striping`] and the data of its left neighbours, the nearest
//! first, one after the other.

#![deny(unsafe_code)]

mod copies;

use copies::{Copies, Layout};
use scr_plugin_api::{KvTree, PluginError, Scheme, Set, SetShape};
use scr_striping::{count_option, Header};

/// The on-disk format that this version writes, and the only one so far.
pub const FORMAT: u32 = 1;

/// The option that says how many members keep a copy.
pub const REPLICAS: &str = "REPLICAS";

/// Copies that are kept if the option is not given.
const DEFAULT_REPLICAS: u32 = 1;

/// The scheme PARTNER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partner {
    replicas: u32,
}

impl Partner {
    /// The scheme with the options of a descriptor.
    ///
    /// # Errors
    /// `Refused` where [`REPLICAS`] is no number from 1 to 255.
    pub fn new(options: &KvTree) -> Result<Self, PluginError> {
        let replicas = count_option(options, REPLICAS, DEFAULT_REPLICAS)?;
        Ok(Self { replicas })
    }

    fn check(&self, members: u32) -> Result<(), PluginError> {
        if self.replicas < members {
            return Ok(());
        }
        Err(PluginError::refused(format!(
            "{} copies of each member's data were asked for, but the set has only {members} members (N = {members}, \
             {REPLICAS} = {}, and it must be less than N): raise SET_SIZE or lower {REPLICAS}",
            self.replicas, self.replicas
        )))
    }

    fn layout(&self, data_lens: Vec<u64>) -> Result<Layout, PluginError> {
        self.check(u32::try_from(data_lens.len()).unwrap_or(u32::MAX))?;
        Layout::new(self.replicas, data_lens).ok_or_else(|| {
            PluginError::refused("the members' data together is longer than any file can be".to_owned())
        })
    }

    fn header(&self) -> Header {
        Header { format: FORMAT, arithmetic: 0, redundancy: self.replicas, chunk: 0 }
    }

    /// Copies to whoever is in want of them, and writes this member's header if it lacks it.
    fn copy(&self, set: &dyn Set, lost: Option<&[bool]>) -> Result<(), PluginError> {
        let layout = self.layout((0..set.size()).map(|member| set.data_len(member)).collect())?;
        Header::check_len(set, layout.redundancy_len(set.rank()))?;
        let writes = lost.is_none() || set.lost(set.rank());
        let header = if writes { self.header().encode(set, set.rank()) } else { Vec::new() };
        let copies = Copies::new(layout, set.rank(), lost, header);
        if copies.sends_copies() {
            self.header().verify(set)?;
        }
        scr_striping::run(set, &copies)
    }
}

impl Scheme for Partner {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        if set_size == 1 {
            return Ok(0);
        }
        self.check(set_size)?;
        Ok(self.replicas)
    }

    fn recoverable(&self, lost: &[bool]) -> bool {
        if lost.len() <= 1 {
            return !lost.contains(&true);
        }
        match self.layout(vec![0; lost.len()]) {
            Ok(layout) => layout.without_keeper(lost).is_empty(),
            Err(_) => false,
        }
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        if shape.data_lens.len() == 1 {
            return Ok(0);
        }
        Ok(self.layout(shape.data_lens.to_vec())?.redundancy_len(shape.rank))
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        if set.size() == 1 {
            scr_striping::warn_of_one(set);
            return Ok(());
        }
        self.copy(set, None)
    }

    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError> {
        Header::check_format(format, FORMAT)?;
        let lost: Vec<bool> = (0..set.size()).map(|member| set.lost(member)).collect();
        if set.size() == 1 {
            return if lost == [true] { Err(too_many_lost(set, &[0])) } else { Ok(()) };
        }
        let layout = self.layout((0..set.size()).map(|member| set.data_len(member)).collect())?;
        let gone = layout.without_keeper(&lost);
        if !gone.is_empty() {
            return Err(too_many_lost(set, &gone));
        }
        if !lost.contains(&true) {
            return Ok(());
        }
        self.copy(set, Some(&lost))
    }
}

fn too_many_lost(set: &dyn Set, gone: &[u32]) -> PluginError {
    let ranks: Vec<String> = gone.iter().map(|&member| set.world_rank(member).to_string()).collect();
    PluginError::too_many_lost(format!(
        "the files of world ranks {} are lost together with all members of the set that kept copies of them: \
         this dataset cannot be rebuilt",
        ranks.join(", ")
    ))
}

scr_plugin_api::export_scheme! {
    formats: FORMAT..=FORMAT,
    new: Partner::new,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> Result<Partner, PluginError> {
        let mut options = KvTree::new();
        options.set(REPLICAS, value);
        Partner::new(&options)
    }

    #[test]
    fn one_loss_is_survived_unless_the_option_says_otherwise() {
        assert_eq!(Partner::new(&KvTree::new()).unwrap().losses_survived(2).unwrap(), 1);
        assert_eq!(with("2").unwrap().losses_survived(3).unwrap(), 2);
        assert_eq!(with("2").unwrap().losses_survived(1).unwrap(), 0);
    }

    #[test]
    fn as_many_copies_as_members_are_refused_with_both_numbers() {
        let error = with("3").unwrap().losses_survived(3).unwrap_err();
        assert!(error.text.contains("N = 3, REPLICAS = 3"), "{error}");
    }

    #[test]
    fn an_option_that_is_no_count_is_refused() {
        for value in ["0", "256", "-1", "two", ""] {
            assert!(with(value).unwrap_err().text.contains(REPLICAS), "{value}");
        }
    }

    #[test]
    fn losses_apart_from_each_other_can_be_undone_and_neighbours_cannot() {
        let partner = with("1").unwrap();
        assert!(partner.recoverable(&[true, false, true, false]));
        assert!(!partner.recoverable(&[true, true, false, false]));
        assert!(!partner.recoverable(&[true, false, false, true]), "the last one's copy is with the first");
        assert!(partner.recoverable(&[false]) && !partner.recoverable(&[true]));
    }
}
