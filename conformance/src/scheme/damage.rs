//! Damage: redundancy of another dataset, and flipped bits.

use super::kit::{clean, orderly, plain, same_files, Kit, Tried};
use super::set::{Call, SetUp};

const REFUSAL: &str = "an error, and the survivors' files to be left alone";

/// Small sets to try damage on; none where nothing is promised.
fn sets(kit: &mut Kit<'_>) -> Vec<SetUp> {
    let sizes = kit.sizes(|size| size <= 4);
    let sizes: Vec<u32> =
        sizes.into_iter().filter(|&(_, promise)| promise > 0).map(|(size, _)| size).collect();
    if sizes.is_empty() {
        kit.skip("the scheme promises to survive no loss in small sets");
    }
    sizes.into_iter().filter_map(|size| kit.protected(plain(size))).collect()
}

fn losing_first(set: &SetUp) -> SetUp {
    let mut lost = vec![false; set.members.len()];
    lost[0] = true;
    set.losing(&lost)
}

/// A rebuild from redundancy that belongs to something else must not succeed.
fn is_found(kit: &mut Kit<'_>, set: &SetUp, place: impl FnOnce() -> String) -> Tried {
    let outcome = kit.rebuild(set);
    let result = orderly(&outcome).and_then(|()| match outcome.is_clean() {
        true => Err("every member succeeded".to_owned()),
        false => same_files(&outcome.members, &set.members, &set.lost, |member, _| !set.lost[member]),
    });
    kit.record(place, REFUSAL, result)
}

/// The survivors' redundancy is that of an older dataset, whose data had the same lengths; or the set was one of
/// other processes.
pub(super) fn other_dataset(kit: &mut Kit<'_>) -> Tried {
    for set in sets(kit) {
        let size = set.members.len();
        let mut later = losing_first(&set);
        later.dataset += 1;
        is_found(kit, &later, || format!("set of {size}, redundancy of the dataset before"))?;

        let mut other = losing_first(&set);
        other.world_ranks.iter_mut().for_each(|rank| *rank += 1);
        is_found(kit, &other, || format!("set of {size}, redundancy of other ranks"))?;
        if size > 2 {
            let mut swapped = losing_first(&set);
            let kept = swapped.members[1].redundancy.clone();
            let others = swapped.members[2].redundancy.clone();
            // A member's redundancy may be as long as another's, or not; only then can it pass for it.
            if kept.len() == others.len() {
                swapped.members[1].redundancy = others;
                swapped.members[2].redundancy = kept;
                is_found(kit, &swapped, || format!("set of {size}, redundancy of members 1 and 2 swapped"))?;
            }
        }
    }
    Some(())
}

/// Which bytes name the dataset is found by protecting the same data as another one.
pub(super) fn flipped_identity(kit: &mut Kit<'_>) -> Tried {
    for set in sets(kit) {
        let size = set.members.len();
        let mut later = set.clone();
        later.dataset += 1;
        let protected = kit.call(&later, Call::Protect);
        if let Err(came) = clean(&protected) {
            return kit.record(|| format!("set of {size}"), "protect to succeed a second time", Err(came));
        }
        let (mine, other) = (&set.members[1].redundancy, &protected.members[1].redundancy);
        for byte in (0..mine.len()).filter(|&byte| mine[byte] != other[byte]).take(16) {
            let mut flipped = losing_first(&set);
            flipped.members[1].redundancy[byte] ^= 0x20;
            is_found(kit, &flipped, || {
                format!("set of {size}, bit 5 of byte {byte} of the redundancy of member 1")
            })?;
        }
    }
    Some(())
}

/// Bits flipped in a survivor's files. The host knows the checksums and finds what comes out wrong, marks the
/// survivor lost and tries again; the scheme must neither panic nor hang nor spoil anybody's files on the way.
pub(super) fn flipped_bits(kit: &mut Kit<'_>) -> Tried {
    let promises = kit.promises.clone();
    for set in sets(kit) {
        let size = set.members.len();
        let promise = promises.iter().find(|(of, _)| *of as usize == size).map_or(0, |(_, promise)| *promise);
        for (redundancy, part) in
            [(false, 0), (false, 2), (false, 3), (true, 0), (true, 1), (true, 2), (true, 3)]
        {
            let mut flipped = losing_first(&set);
            let culprit = &mut flipped.members[size - 1];
            let file = if redundancy { &mut culprit.redundancy } else { &mut culprit.data };
            let Some(last) = file.len().checked_sub(1) else { continue };
            file[last * part / 3] ^= 1;
            let outcome = kit.rebuild(&flipped);
            let result = orderly(&outcome).and_then(|()| {
                same_files(&outcome.members, &flipped.members, &flipped.lost, |member, _| {
                    !flipped.lost[member]
                })
            });
            let file = if redundancy { "redundancy" } else { "data" };
            let place = || format!("set of {size}, a bit at {part}/3 of the {file} of member {}", size - 1);
            kit.record(place, "no panic, no hang, and the survivors' files left alone", result)?;
        }
        let mut lost = vec![false; size];
        (lost[0], lost[size - 1]) = (true, true);
        if promise >= 2 {
            super::losses::comes_back(kit, &set, &lost);
        }
    }
    Some(())
}
