//! So many ranks at a time, and no more: `SCR_FLUSH_WIDTH` and `SCR_FETCH_WIDTH`.

use crate::comm::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Tag};

/// Does the work when it is this rank's turn: at most `width` ranks are at it at any moment. Each rank waits for the
/// one `width` before it, so a slow rank holds up only those behind it. All ranks call it.
pub(crate) fn in_turn<T>(comm: &dyn Comm, width: u32, work: impl FnOnce() -> T) -> Result<T, CommError> {
    let (me, width) = (comm.rank().0, width.max(1));
    if let Some(before) = me.checked_sub(width) {
        exchange_all(comm, TURN, &[], &mut [Incoming { from: Rank(before), bytes: &mut [] }])?;
    }
    let value = work();
    if let Some(after) = me.checked_add(width).filter(|&after| after < comm.size()) {
        exchange_all(comm, TURN, &[Outgoing { to: Rank(after), bytes: &[] }], &mut [])?;
    }
    Ok(value)
}

const TURN: Tag = Tag(41);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::thread::run;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn never_are_more_at_work_than_allowed_and_everybody_gets_a_turn() {
        for (ranks, width) in [(1, 1), (5, 1), (16, 3), (4, 256), (3, 0)] {
            let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
            let work = || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            };
            run(ranks, |comm| in_turn(&comm, width, work).unwrap()).unwrap();
            assert!(most.load(Ordering::SeqCst) <= width.max(1));
        }
    }
}
