//! MIRROR: every member of a set keeps a full copy of the data of its `COPIES` left neighbours.
//!
//! A set so survives the loss of any `COPIES` members, and of more where the right ones are left. Nothing is
//! computed: this costs room, `COPIES` times the data, and saves arithmetic. `layout` says where a copy lies.

#![forbid(unsafe_code)]

mod layout;

use layout::{Header, Layout};
use scr_plugin_api::{
    transfer, KvTree, Level, Place, PluginError, PluginErrorKind, Scheme, Set, SetShape, Transfer,
};

/// The on-disk format that this version writes, and the only one so far.
const FORMAT: u32 = 1;

scr_plugin_api::export_scheme! {
    formats: 1..=FORMAT,
    new: Mirror::new,
}

/// The scheme with its one option.
struct Mirror {
    copies: u32,
}

impl Mirror {
    fn new(options: &KvTree) -> Result<Self, PluginError> {
        let copies = options.require("COPIES").map_err(|error| refused(error.to_string()))?;
        match copies {
            0 => Err(refused("COPIES=0 protects nothing; use 1 or more, or the scheme SINGLE")),
            copies => Ok(Self { copies }),
        }
    }

    /// How many copies there are in a set of this size. A member does not keep a copy of itself, so a lone one has none.
    fn copies_in(&self, set_size: u32) -> Result<u32, PluginError> {
        let Self { copies } = self;
        match set_size {
            1 => Ok(0),
            size if *copies < size => Ok(*copies),
            size => Err(refused(format!(
                "COPIES={copies} needs sets of at least {} members, and this one has {size}",
                u64::from(*copies) + 1
            ))),
        }
    }

    fn layout(&self, data_lens: Vec<u64>) -> Result<Layout, PluginError> {
        let size = u32::try_from(data_lens.len()).unwrap_or(u32::MAX);
        let copies = self.copies_in(size)?;
        Layout::new(copies, data_lens).ok_or_else(|| refused("the set's data has more than 2^64 bytes"))
    }

    fn layout_of(&self, set: &dyn Set) -> Result<Layout, PluginError> {
        self.layout((0..set.size()).map(|member| set.data_len(member)).collect())
    }

    /// Copies to bring to the members for which `wanted` holds, from the data of their left neighbours.
    fn copies_for(layout: &Layout, wanted: impl Fn(u32) -> bool) -> Vec<Transfer> {
        let mut transfers = Vec::new();
        for holder in (0..layout.size()).filter(|&member| wanted(member)) {
            for copy in layout.copies_at(holder) {
                transfers.push(Transfer {
                    from: copy.owner,
                    to: holder,
                    bytes: layout.data_len(copy.owner),
                    source: Place::Data(0),
                    target: Place::Redundancy(copy.offset),
                });
            }
        }
        transfers
    }

    /// Data to bring back to the lost members, each from the nearest neighbour that still has a copy.
    fn data_for_lost(layout: &Layout, set: &dyn Set) -> Result<Vec<Transfer>, PluginError> {
        let lost = (0..layout.size()).filter(|&member| set.lost(member));
        lost.map(|member| {
            let holder = layout.holders_of(member).find(|holder| !set.lost(holder.member));
            let holder = holder.ok_or_else(|| too_many_lost(layout, set, member))?;
            Ok(Transfer {
                from: holder.member,
                to: member,
                bytes: layout.data_len(member),
                source: Place::Redundancy(holder.offset),
                target: Place::Data(0),
            })
        })
        .collect()
    }
}

impl Scheme for Mirror {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        self.copies_in(set_size)
    }

    fn recoverable(&self, lost: &[bool]) -> bool {
        let Ok(layout) = self.layout(vec![0; lost.len()]) else { return false };
        let is_lost = |member: u32| lost.get(member as usize).copied().unwrap_or(true);
        (0..layout.size())
            .filter(|&member| is_lost(member))
            .all(|member| layout.holders_of(member).any(|holder| !is_lost(holder.member)))
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        Ok(self.layout(shape.data_lens.to_vec())?.redundancy_len(shape.rank))
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        let layout = self.layout_of(set)?;
        transfer(set, &Self::copies_for(&layout, |_| true))?;
        Header::new(set, &layout).write(set.redundancy())
    }

    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError> {
        if format != FORMAT {
            let text =
                format!("redundancy of format {format} was never written by MIRROR; it knows {FORMAT}");
            return Err(PluginError::new(PluginErrorKind::Corrupt, text));
        }
        let layout = self.layout_of(set)?;
        let data = Self::data_for_lost(&layout, set)?;
        if !set.lost(set.rank()) {
            Header::new(set, &layout).expect_in(set.redundancy())?;
        }
        set.log(Level::Debug, &format!("MIRROR brings back {} of {} members", data.len(), layout.size()));
        transfer(set, &data)?;
        // Everyone has its data again, so the copies that went with the lost members can be made anew.
        transfer(set, &Self::copies_for(&layout, |member| set.lost(member)))?;
        if set.lost(set.rank()) {
            Header::new(set, &layout).write(set.redundancy())?;
        }
        Ok(())
    }
}

fn refused(text: impl Into<String>) -> PluginError {
    PluginError::new(PluginErrorKind::Refused, text)
}

fn too_many_lost(layout: &Layout, set: &dyn Set, member: u32) -> PluginError {
    let holders: Vec<_> =
        layout.holders_of(member).map(|holder| set.world_rank(holder.member).to_string()).collect();
    let copies = match holders.as_slice() {
        [] => "in a set of one nobody keeps a copy".to_owned(),
        holders => format!("so are all its copies, which rank {} kept", holders.join(", ")),
    };
    let text = format!("the data of rank {} is lost, and {copies}", set.world_rank(member));
    PluginError::new(PluginErrorKind::TooManyLost, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_conformance::scheme::{run, Limits};

    fn mirror(copies: &str) -> Result<Mirror, PluginError> {
        let mut options = KvTree::new();
        options.set("COPIES", copies);
        Mirror::new(&options)
    }

    #[test]
    fn a_set_survives_as_many_losses_as_there_are_copies() {
        let mirror = mirror("2").unwrap();
        assert_eq!(mirror.losses_survived(3), Ok(2));
        let error = mirror.losses_survived(2).unwrap_err();
        assert_eq!(error.text, "COPIES=2 needs sets of at least 3 members, and this one has 2");
    }

    #[test]
    fn lucky_patterns_of_more_losses_are_recoverable_and_unlucky_ones_are_not() {
        let mirror = mirror("1").unwrap();
        assert!(mirror.recoverable(&[true, false, true, false]));
        assert!(!mirror.recoverable(&[true, true, false, false]));
        assert!(!mirror.recoverable(&[false, true, true, false]));
        assert!(!mirror.recoverable(&[true, false, false, true]), "the last one's copy lies at the first");
        assert!(!mirror.recoverable(&[true]) && !mirror.recoverable(&[]));
        assert!(mirror.recoverable(&[false]), "there is nothing to bring back");
    }

    #[test]
    fn a_member_keeps_a_header_and_its_left_neighbours_data() {
        let mirror = mirror("2").unwrap();
        let len = |rank| mirror.redundancy_len(&SetShape { rank, data_lens: &[1, 10, 100] }).unwrap();
        let header = 28 + 3 * 12;
        assert_eq!([len(0), len(1), len(2)], [header + 110, header + 101, header + 11]);
    }

    #[test]
    fn mirror_keeps_the_rules_of_the_conformance_kit() {
        for (copies, least) in [(1, 2), (3, 4)] {
            let limits = Limits { set_sizes: least..=6, ..Limits::default() };
            let report = run(&|| Box::new(Mirror { copies }), &limits);
            assert!(report.passed(), "COPIES={copies}\n{report}");
            assert!(report.checks.iter().all(|check| check.warnings.is_empty()), "{report}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(mirror("0").is_err() && mirror("-1").is_err() && mirror("many").is_err());
        assert!(Mirror::new(&KvTree::new()).is_err());
        let mirror = mirror("1").unwrap();
        assert!(mirror.redundancy_len(&SetShape { rank: 0, data_lens: &[u64::MAX, u64::MAX] }).is_err());
    }
}
