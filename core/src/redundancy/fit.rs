//! Whether the records of all ranks belong to one dataset, and name each other in their sets.
//!
//! A rank may have a record of another dataset under this one's number, or an older one: its part would be rebuilt from members
//! that know nothing of it, or be handed out. One reduction of three numbers finds out whether there is any such rank.

use crate::cache::record::{Protection, RankRecord};
use crate::typed::{broadcast_value, gather_values};
use scr_comm::{Comm, CommError, Rank, RankErrors};
use std::collections::BTreeMap;

/// The terms that a rank adds to the sums: whether it has no record; and twice a number that all others cancel, where all have
/// the same dataset, and where all members of its set name the same set.
pub(super) fn share(comm: &dyn Comm, record: &RankRecord) -> [u64; 3] {
    let others = u64::from(comm.size() - 1);
    let leads = record.members.first() == Some(&comm.own_rank());
    let mates = (record.members.len() as u64).saturating_sub(1);
    [
        0,
        cancelling(&what(record), (comm.rank() == Rank(0)).then_some(others)),
        cancelling(&set(record), leads.then_some(mates)),
    ]
}

/// Whether all have a record, and the records fit together.
pub(super) fn is_whole([unknown, datasets, sets]: [u64; 3]) -> bool {
    unknown == 0 && datasets % MODULUS == 0 && sets % MODULUS == 0
}

/// Which records do not fit together. Collective.
pub(super) fn misfit(comm: &dyn Comm, record: &RankRecord) -> Result<RankErrors, CommError> {
    let gathered = gather_values(comm, &(comm.own_rank().0, [what(record), set(record)]))?;
    let text = broadcast_value(comm, gathered.map(|all| compare(&all)))?;
    Ok(RankErrors::known_to_all(text))
}

/// Names the first rank whose record is not that of most others, or whose set another member does not know.
fn compare(all: &[(u32, [String; 2])]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|(_, [what, _])| *counts.entry(what).or_default() += 1);
    let most = counts.iter().max_by_key(|(_, count)| **count).map_or("", |(what, _)| what);
    if let Some((rank, [other, _])) = all.iter().find(|(_, [what, _])| what != most) {
        return format!(
            "the records do not belong together: that of rank {rank} is of {other}, and others are of {most}"
        );
    }
    let sets: BTreeMap<Rank, &str> = all.iter().map(|(rank, [_, set])| (Rank(*rank), &**set)).collect();
    let other = |(rank, set): (&Rank, &&str)| {
        let members = set.split(", ").filter_map(|member| member.parse().ok().map(Rank));
        let odd = members.into_iter().find(|member| sets.get(member) != Some(set))?;
        let theirs = sets.get(&odd).copied().unwrap_or("unknown");
        Some(format!(
            "the records do not belong together: by that of rank {rank} its set is {set}, and by that of rank {odd} it is {theirs}"
        ))
    };
    sets.iter().find_map(other).unwrap_or_else(|| "the records do not belong together".to_owned())
}

/// The dataset of a record, and how it is protected, as messages name it.
fn what(record: &RankRecord) -> String {
    let Protection { scheme, format, options, store, bypass, .. } = &record.protection;
    let dataset = &record.dataset;
    format!(
        "{} of run {} with {} files and {} bytes, begun at {}, protected by {scheme} (format {format}, options {:08x}) in {}{store}",
        record.label(),
        dataset.run,
        dataset.files.unwrap_or(0),
        dataset.bytes.unwrap_or(0),
        dataset.created,
        crc32fast::hash(&options.pack()),
        if *bypass { "the prefix directory, not in " } else { "" },
    )
}

fn set(record: &RankRecord) -> String {
    record.members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A number for the text, taken once; or, by one rank, taken away as often as others take it.
fn cancelling(text: &str, others: Option<u64>) -> u64 {
    let number = u64::from(crc32fast::hash(text.as_bytes())) % MODULUS;
    match others {
        None => number,
        Some(times) => (MODULUS - number) * (times % MODULUS) % MODULUS,
    }
}

/// A prime below 2^32: neither a product nor the sum of all ranks exceeds 64 bits.
const MODULUS: u64 = 4_294_967_291;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_cancelled_by_as_many_others_and_by_no_other_text() {
        let sum = |texts: &[&str]| {
            let lead = cancelling(texts[0], Some(texts.len() as u64 - 1));
            texts[1..].iter().fold(lead, |sum, text| sum + cancelling(text, None)) % MODULUS
        };
        assert_eq!((sum(&["a"]), sum(&["a", "a", "a"]), sum(&["0, 1"; 7])), (0, 0, 0));
        assert!(sum(&["a", "b", "a"]) != 0 && sum(&["b", "a", "a"]) != 0);
    }
}
