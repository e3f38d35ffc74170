//! Which checkpoints `SCR_PREFIX_SIZE` has deleted from the prefix directory.

use crate::{DatasetDescriptor, Index, IndexEntry};

/// The ids of the checkpoints that may be deleted once dataset `newest` is complete: those older than the `size` newest ones that
/// count and that this run could read. One that it could not read stays, since a later run may restart from it. Output stays, and
/// so do the current one, what another number of ranks wrote unless any number of ranks can restart from `newest`, and a failed one
/// that is newer than the oldest one that counts. The one that this run has restarted from is no exception. Whoever deletes them
/// leaves one that a run reads, or whose flush is arriving again.
pub fn beyond_window(index: &Index, size: usize, newest: u64, could_read: impl Fn(u64) -> bool) -> Vec<u64> {
    let entries = index.entries();
    let Some(newest) = index.entry(newest).map(|entry| entry.restart_point()) else { return Vec::new() };
    let counting = entries.iter().filter(|entry| {
        entry.is_candidate() && newest.replaces(entry.restart_point()) && could_read(entry.id)
    });
    let Some(oldest) = counting.map(IndexEntry::restart_point).nth(size - 1) else { return Vec::new() };
    entries
        .iter()
        .filter(|entry| {
            entry.seq() < oldest.seq
                && newest.replaces(entry.restart_point())
                && !entry.current
                && could_read(entry.id)
                && entry.dataset.as_ref().is_some_and(DatasetDescriptor::is_only_checkpoint)
        })
        .map(|entry| entry.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::ChangeIndex as _;

    #[test]
    fn the_window_keeps_the_newest_that_count_and_all_output() {
        let mut index = Index::new();
        for id in 1..=6 {
            let name = format!("ckpt.{id}").into_bytes();
            let output = id == 2;
            let dataset = DatasetDescriptor { id, name, checkpoint: true, output, ..Default::default() };
            index.record(&dataset, true);
        }
        index.mark_failed(5, "now");
        let plain = DatasetDescriptor { id: 7, name: b"out".to_vec(), output: true, ..Default::default() };
        index.record(&plain, true);
        assert_eq!(beyond_window(&index, 2, 6, |_| true), [3, 1]);
        assert_eq!(beyond_window(&index, 2, 4, |_| true), [1], "of those before it");
        assert_eq!(beyond_window(&index, 3, 6, |_| true), [1]);
        assert_eq!(beyond_window(&index, 2, 6, |id| id != 4), [1], "the two newest that could be read");
        assert_eq!(beyond_window(&index, 2, 6, |id| id != 1), [3], "what could not be read stays");
        assert!(beyond_window(&index, 9, 6, |_| true).is_empty());
    }

    /// Every state of four checkpoints: what each is, whether it could be read, and which one is current.
    #[test]
    fn the_window_leaves_what_a_run_may_need() {
        const PLAIN: u32 = 0;
        const OUTPUT: u32 = 1;
        const FAILED: u32 = 2;
        const OF_OTHERS: u32 = 3;
        for state in 0..8_u32.pow(4) * 5 {
            let (current, state) = (u64::from(state % 5), state / 5);
            let of = |id: u64| state / 8_u32.pow(id as u32 - 1) % 8;
            let (kind, could_read) = (|id: u64| of(id) / 2, |id: u64| of(id) % 2 == 0);
            if kind(4) == OF_OTHERS {
                continue;
            }
            let mut index = Index::new();
            for id in 1..=4 {
                let (name, output) = (format!("ckpt.{id}").into_bytes(), kind(id) == OUTPUT);
                let ranks = Some(if kind(id) == OF_OTHERS { 3 } else { 4 });
                let dataset =
                    DatasetDescriptor { id, name, checkpoint: true, output, ranks, ..Default::default() };
                index.record(&dataset, true);
                _ = kind(id) == FAILED && index.mark_failed(id, "now");
            }
            index.set_current(format!("ckpt.{current}"));
            for size in 1..=2 {
                let left = beyond_window(&index, size, 4, could_read);
                let is_spare =
                    |id: &u64| could_read(*id) && [PLAIN, FAILED].contains(&kind(*id)) && *id != current;
                assert!(left.iter().all(is_spare), "{left:?} of {state:o}");
                let counts = |id: &u64| could_read(*id) && [PLAIN, OUTPUT].contains(&kind(*id));
                let stays = |id: &u64| counts(id) && !left.contains(id);
                let all = (1..=4).filter(counts).count();
                assert!((1..=4).filter(stays).count() >= all.min(size), "{left:?} of {state:o}");
            }
        }
    }

    /// Two starts with the wrong number of ranks took the only checkpoint of the right number away.
    #[test]
    fn the_window_leaves_alone_what_another_number_of_ranks_wrote() {
        let mut index = Index::new();
        for (id, ranks) in [(1, Some(4)), (2, Some(3)), (3, Some(4)), (4, Some(3)), (5, Some(3)), (6, None)] {
            let name = format!("ckpt.{id}").into_bytes();
            index
                .record(&DatasetDescriptor { id, name, checkpoint: true, ranks, ..Default::default() }, true);
        }
        assert_eq!(beyond_window(&index, 1, 5, |_| true), [4, 2]);
        assert_eq!(beyond_window(&index, 1, 6, |_| true), [5, 4, 3, 2, 1], "C SCR does not say how many");
    }
}
