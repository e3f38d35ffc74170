//! Losses: every promised pattern is rebuilt, and the scheme claims no more.

use super::kit::{clean, members, orderly, patterns, plain, same_files, who, Kit, Tried};
use super::member::Record;
use super::set::{Call, Ended, Outcome, SetUp};
use scr_plugin_api::PluginErrorKind;

pub(super) const REFUSAL: &str = "`TooManyLost', no member to succeed, and no file to be touched";
const RETURN: &str = "every file of every member to come back byte for byte";

/// Protect, then rebuild with nothing lost.
pub(super) fn round_trip(kit: &mut Kit<'_>) -> Tried {
    for (size, _) in kit.sizes(|_| true) {
        let set = kit.protected(plain(size))?;
        comes_back(kit, &set, &vec![false; size as usize])?;
    }
    Some(())
}

/// Protect writes all of the redundancy, which may have held anything before, and nothing twice.
pub(super) fn each_byte_once(kit: &mut Kit<'_>) -> Tried {
    for (size, _) in kit.sizes(|_| true) {
        for data in std::iter::once(plain(size)).chain(lengths(size as usize).into_iter().map(members)) {
            let Ok(set) = kit.set(data) else { continue };
            let outcome = kit.call(&set, Call::Protect);
            let first = |of: fn(&Record) -> Option<usize>| {
                outcome.each(of).into_iter().enumerate().find_map(|(member, byte)| Some((member, byte?)))
            };
            if !outcome.is_clean() {
                // Another check finds it.
                kit.go_on()?;
                continue;
            }
            let result = first(|record| record.left_out)
                .map_or(Ok(()), |(member, byte)| Err(format!("member {member} left out byte {byte}")));
            if let Some((member, byte)) = first(|record| record.twice) {
                kit.warn(format!(
                    "in a set of {size}, member {member} writes byte {byte} of its redundancy twice; the host reads all \
                     that is written twice again"
                ));
            }
            kit.record(|| format!("set of {size}"), "all of the redundancy to be written", result)?;
        }
    }
    Some(())
}

/// Every pattern of losses that the scheme promises to survive.
pub(super) fn promised(kit: &mut Kit<'_>) -> Tried {
    for (size, promise) in kit.sizes(|_| true) {
        let set = kit.protected(plain(size))?;
        for lost in patterns(size, 1..=promise) {
            let asked = lost.clone();
            let yes = kit.ask("recoverable", move |scheme| scheme.recoverable(&asked));
            if yes != Ok(true) {
                kit.record(|| who(&lost), "`recoverable' to say yes", Err(format!("{yes:?} came")))?;
            }
            comes_back(kit, &set, &lost)?;
        }
    }
    Some(())
}

/// The promise that users read in the manifest: every pattern of this many losses, also where the scheme itself promises fewer.
pub(super) fn tolerated(kit: &mut Kit<'_>) -> Tried {
    let Some(tolerates) = kit.limits.tolerates else {
        // Nothing was promised that could be tried.
        kit.report.checks.pop();
        return None;
    };
    let tried_before = kit.report.checks.iter().rev().nth(1).is_some_and(|promised| promised.failed == 0);
    let tried_before = tried_before.then_some(()).ok_or_else(|| "not all promised patterns do".to_owned());
    let large_enough = kit.sizes(|size| size > tolerates);
    if large_enough.is_empty() {
        let came = Err(format!("none is, of {:?}", kit.limits.set_sizes));
        kit.record(|| format!("`tolerates = {tolerates}'"), "a set with more members to be taken", came);
    }
    for (size, promise) in large_enough {
        if promise >= tolerates {
            kit.record(|| format!("set of {size}"), RETURN, tried_before.clone());
            continue;
        }
        let set = kit.protected(plain(size))?;
        for lost in patterns(size, tolerates..=tolerates) {
            comes_back(kit, &set, &lost)?;
        }
    }
    Some(())
}

/// One loss more than promised, and the loss of all: either the scheme says that it can, and does, or it refuses.
pub(super) fn beyond(kit: &mut Kit<'_>) -> Tried {
    for (size, promise) in kit.sizes(|_| true) {
        let set = kit.protected(plain(size))?;
        let more = patterns(size, promise + 1..=promise + 1);
        let all = patterns(size, size..=size).filter(|_| promise + 1 < size);
        for lost in more.chain(all) {
            let asked = lost.clone();
            match kit.ask("recoverable", move |scheme| scheme.recoverable(&asked)) {
                Ok(true) => comes_back(kit, &set, &lost),
                Ok(false) => is_refused(kit, &set, &lost),
                Err(came) => kit.record(|| who(&lost), "an answer from `recoverable'", Err(came)),
            }?;
        }
    }
    Some(())
}

/// Empty, tiny and very different lengths.
pub(super) fn uneven(kit: &mut Kit<'_>) -> Tried {
    for (size, promise) in kit.sizes(|size| size <= 5) {
        for lens in lengths(size as usize) {
            let Some(set) = kit.protected(members(lens)) else {
                kit.go_on()?;
                continue;
            };
            for lost in patterns(size, 0..=promise) {
                comes_back(kit, &set, &lost)?;
            }
        }
    }
    Some(())
}

/// Lengths that trip up arithmetic: nothing, one byte, one off a page, one long among short ones.
fn lengths(size: usize) -> Vec<Vec<usize>> {
    let pages = [4096, 4095, 4097, 1, 0];
    vec![
        vec![0; size],
        vec![1; size],
        (0..size).map(|member| usize::from(member == 0)).collect(),
        (0..size).map(|member| if member + 1 == size { 5003 } else { 0 }).collect(),
        (0..size).map(|member| pages[member % pages.len()]).collect(),
        (0..size).map(|member| [7, 100_003][usize::from(member == 1)]).collect(),
        (0..size).map(|member| (size - member) * (size - member)).collect(),
    ]
}

/// Enough data that a scheme has to work in blocks, with lengths around powers of two.
pub(super) fn much(kit: &mut Kit<'_>) -> Tried {
    let much = kit.limits.much;
    for (size, promise) in kit.sizes(|size| size == 2 || size == 4) {
        let power = (much / 2).next_power_of_two();
        let lens = (0..size as usize).map(|member| [power - 1, power, power + 1, much][member % 4]);
        let set = kit.protected(members(lens))?;
        for lost in patterns(size, promise..=promise) {
            comes_back(kit, &set, &lost)?;
        }
    }
    Some(())
}

/// Tries that a pattern of losses comes back, and that the survivors' files are left alone.
pub(super) fn comes_back(kit: &mut Kit<'_>, set: &SetUp, lost: &[bool]) -> Tried {
    let outcome = kit.rebuild(&set.losing(lost));
    let result = clean(&outcome).and_then(|()| same_files(&outcome.members, &set.members, lost, |_, _| true));
    kit.record(|| who(lost), RETURN, result)
}

/// Tries that a pattern of losses is refused.
fn is_refused(kit: &mut Kit<'_>, set: &SetUp, lost: &[bool]) -> Tried {
    let before = set.losing(lost);
    let outcome = kit.rebuild(&before);
    kit.record(|| who(lost), REFUSAL, refused(&outcome, &before))
}

/// Whether a rebuild was refused for the right reason, by all, with all files left alone.
pub(super) fn refused(outcome: &Outcome, before: &SetUp) -> Result<(), String> {
    orderly(outcome)?;
    let kinds: Vec<Option<PluginErrorKind>> = outcome
        .ended
        .iter()
        .map(|ended| match ended {
            Ended::Returned(Err(error)) => Some(error.kind),
            _ => None,
        })
        .collect();
    if let Some(member) = kinds.iter().position(Option::is_none) {
        return Err(format!("member {member} succeeded"));
    }
    if !kinds.contains(&Some(PluginErrorKind::TooManyLost)) {
        return Err(outcome.summary());
    }
    same_files(&outcome.members, &before.members, &vec![false; before.lost.len()], |_, _| true)
}
