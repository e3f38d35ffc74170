//! What every transport does with its jobs.

use scr_plugin_api::{CopyJob, PluginError};
use std::collections::HashSet;

/// Looks whether an order for the transport of this name makes sense.
///
/// # Errors
/// It has no token, or two of its copies go to one place.
pub fn check_order(transport: &str, order: &CopyJob) -> Result<(), PluginError> {
    if order.token.is_empty() {
        return Err(refused(transport, "a job needs a token"));
    }
    let mut seen = HashSet::new();
    let twice = order.items.iter().find(|item| !seen.insert(&item.destination));
    twice.map_or(Ok(()), |twice| {
        let path = twice.destination.display();
        Err(refused(transport, &format!("job {} names {path} twice", order.token)))
    })
}

pub(crate) fn refused(transport: &str, text: &str) -> PluginError {
    PluginError::refused(format!("transport {transport}: {text}"))
}

/// Keeps the newest jobs only, but all that are under way: a run may flush for months.
pub fn forget_oldest<T>(known: &mut Vec<T>, has_ended: impl Fn(&T) -> bool) {
    let mut surplus = known.len().saturating_sub(MOST_KEPT);
    known.retain(|job| {
        let goes = surplus > 0 && has_ended(job);
        surplus -= usize::from(goes);
        !goes
    });
}

/// How many jobs can be asked about after they have ended.
pub(crate) const MOST_KEPT: usize = 64;
