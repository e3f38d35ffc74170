//! Which files of an older dataset a newer one may have written over, and what proves that it has not.

use super::{By, Ledger};
use crate::{DatasetDescriptor, Index, IndexEntry};

/// Whether a dataset written in place may cost others a file: those that are complete, or that lie in place without being listed
/// yet.
pub(crate) fn is_any_at_risk(ledger: &Ledger, dataset: &DatasetDescriptor) -> bool {
    let is_at_risk = |entry: &IndexEntry| entry.is_valid() || entry.flushed.is_none();
    ledger.entries().iter().any(|entry| entry.id != dataset.id && is_at_risk(entry))
}

/// Whether a file is recorded as overwritten before the application gets its path.
pub fn is_recorded(is_there: bool, is_any_at_risk: bool) -> bool {
    is_there && is_any_at_risk
}

/// Whether the files of a dataset stay where those of dataset `deleted` are deleted: it counts, or is about to.
pub(crate) fn keeps_its_files(entry: &IndexEntry, deleted: u64) -> bool {
    let counts = entry.is_valid() || entry.taken.as_ref().is_some_and(|by| *by != By::Deletion);
    counts && entry.id != deleted
}

/// Whether a newer dataset that counts has the name of this one, whose containers then go. Files under their names have been
/// written over; nobody would write over containers.
pub fn has_newer(index: &Index, dataset: &DatasetDescriptor) -> bool {
    let owner = index.id_of(&dataset.name).and_then(|id| index.entry(id));
    owner.is_some_and(|owner| owner.is_valid() && owner.seq() > index.seq_of(dataset))
}

/// The doubts about a file of a dataset that was complete once.
#[derive(Debug, Clone, Copy)]
pub struct Doubts {
    /// The application was given it to write over.
    pub is_given_out: bool,
    /// It is not recorded which files a later dataset was given, and this one has changed since.
    pub is_changed: bool,
    /// Checksums are compared in any case, or a later dataset was begun.
    pub is_suspect: bool,
}

/// The proof that a file must give, beside its length, for its bytes to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Nothing,
    Checksum,
    /// It has no checksum, and so nothing proves it: it was given out, or has changed.
    GivenOut,
    Changed,
}

impl Doubts {
    /// The proof that is asked for, of a file that has a checksum or not.
    pub fn proof(self, has_sum: bool) -> Proof {
        match self {
            Self { is_given_out: true, .. } if !has_sum => Proof::GivenOut,
            Self { is_changed: true, .. } if !has_sum => Proof::Changed,
            Self { is_given_out, is_suspect, .. } if has_sum && (is_given_out || is_suspect) => {
                Proof::Checksum
            }
            _ => Proof::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::ChangeIndex as _;

    /// Every index of two datasets, beside one that has left it.
    #[test]
    fn containers_go_only_for_a_newer_dataset_of_their_name_that_counts() {
        let of = |id: u64, is_same: bool| {
            let name = if is_same { b"a".to_vec() } else { format!("b{id}").into_bytes() };
            DatasetDescriptor { id, name, checkpoint: true, ..DatasetDescriptor::default() }
        };
        for state in 0..64_u64 {
            let mut index = Index::new();
            let others = [(1, state & 7), (3, state >> 3)];
            for (id, kind) in others.into_iter().filter(|(_, kind)| kind & 1 != 0) {
                index.record(&of(id, kind & 2 != 0), kind & 4 != 0);
            }
            let has_newer = others[1].1 == 7;
            assert_eq!(super::has_newer(&index, &of(2, true)), has_newer, "{state:b}");
        }
    }
}
