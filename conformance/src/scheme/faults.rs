//! Members that fail or die: all other members have to return.

use super::kit::{clean, members, orderly, plain, same_files, Kit, Tried};
use super::set::{Call, Ended, Injected, SetUp};

/// At most this many of a member's calls are tried, evenly spread.
const POINTS: u64 = 12;

const END: &str =
    "every member to return, the survivors' files to be left alone, and no success of who failed";

/// A member fails or dies at any of its calls while redundancy is made.
pub(super) fn in_protect(kit: &mut Kit<'_>) -> Tried {
    for data in kinds(kit) {
        let Some(set) = kit.set(data).ok() else { continue };
        let clean_run = kit.call(&set, Call::Protect);
        each_death(kit, &set, Call::Protect, &clean_run.each(|record| record.calls))?;
    }
    Some(())
}

/// A member fails or dies at any of its calls while lost files are recovered; after that it must still be possible.
pub(super) fn in_rebuild(kit: &mut Kit<'_>) -> Tried {
    let call = Call::Rebuild(kit.limits.format);
    for data in kinds(kit) {
        let Some(set) = kit.protected(data) else { continue };
        let Some(lost) = losing_one(kit, &set) else {
            kit.skip("the scheme promises to survive no loss");
            continue;
        };
        let clean_run = kit.call(&lost, call);
        each_death(kit, &lost, call, &clean_run.each(|record| record.calls))?;
        super::losses::comes_back(kit, &set, &lost.lost)?;
    }
    Some(())
}

/// Sets to kill members of: small ones, and one with so much data that there are blocks.
fn kinds(kit: &Kit<'_>) -> Vec<Vec<Vec<u8>>> {
    let small = kit.sizes(|size| [2, 3, 5].contains(&size));
    let mut kinds: Vec<Vec<Vec<u8>>> = small.into_iter().map(|(size, _)| plain(size)).collect();
    let much = kit.sizes(|size| size == 3 || size == 4);
    if let Some(&(size, _)) = much.last() {
        kinds.push(members(vec![kit.limits.much; size as usize]));
    }
    kinds
}

fn losing_one(kit: &Kit<'_>, set: &SetUp) -> Option<SetUp> {
    let size = set.members.len();
    kit.promises.iter().find(|&&(of, promise)| of as usize == size && promise > 0)?;
    let mut lost = vec![false; size];
    lost[size / 2] = true;
    Some(set.losing(&lost))
}

/// Lets some members fail, and die, at each of their calls.
fn each_death(kit: &mut Kit<'_>, set: &SetUp, call: Call, calls: &[u64]) -> Tried {
    let size = set.members.len();
    let mut who = vec![0, size / 2, size - 1];
    who.dedup();
    for member in who {
        let count = calls[member];
        let step = count.div_ceil(POINTS).max(1) as usize;
        let points = (0..count).step_by(step).chain(count.checked_sub(1));
        let member = member as u32;
        for (point, is_death) in points.flat_map(|point| [(point, false), (point, true)]) {
            inject(kit, set, Injected { member, call: point, is_death }, call)?;
        }
    }
    Some(())
}

/// Calls the scheme with a fault of this member.
fn inject(kit: &mut Kit<'_>, set: &SetUp, injected: Injected, call: Call) -> Tried {
    let outcome = kit.call(&SetUp { injected: Some(injected), ..set.clone() }, call);
    if outcome.ended.contains(&Ended::Hung) {
        kit.cure_of_call = None; // that of the check is about hangs
    }
    let result = ended_orderly(set, &outcome, call, injected.member);
    kit.record(|| format!("set of {}, {injected:?} in {call:?}", set.members.len()), END, result)
}

fn ended_orderly(set: &SetUp, outcome: &super::Outcome, call: Call, member: u32) -> Result<(), String> {
    orderly(outcome)?;
    if outcome.ended[member as usize] == Ended::Returned(Ok(())) {
        return clean(outcome).and(Err(format!("member {member} succeeded anyway")));
    }
    if call == Call::Protect {
        return same_files(&outcome.members, &set.members, &set.lost, |_, is_data| is_data);
    }
    same_files(&outcome.members, &set.members, &set.lost, |member, _| !set.lost[member])
}
