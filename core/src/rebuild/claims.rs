//! Who has what of the cached datasets: every rank learns what is there of its own parts, and where.

use crate::cache::filemap::{Filemap, State};
use crate::cache::part::PartDir;
use crate::cache::record::{DatasetKey, RankRecord};
use crate::cache::stale::StalePart;
use crate::comm::collective::route_trees;
use crate::comm::{Comm, CommError, Rank};
use crate::fs::Files;
use crate::redundancy::place;
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;

/// A part in a cache that this rank can reach, and for which it speaks.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) owner: Rank,
    pub(crate) part: PartDir,
    pub(crate) map: Filemap,
}

/// What a rank is told of its own part.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// Who told.
    pub(crate) holder: Rank,
    /// Whether the holder has all the files, with their right lengths.
    pub(crate) whole: bool,
    /// What is recorded.
    pub(crate) record: RankRecord,
}

impl Held {
    /// Which dataset it is a part of, where its filemap can tell.
    pub(crate) fn key(&self) -> Option<DatasetKey> {
        self.map.record.as_ref().map(DatasetKey::of)
    }

    /// As a part that cannot be brought back.
    pub(super) fn stale(&self) -> StalePart {
        StalePart::new(self.part.clone(), self.key())
    }

    /// How many ranks wrote it, where its filemap can tell.
    pub(crate) fn ranks(&self) -> Option<u32> {
        self.map.record.as_ref().map(|record| record.ranks)
    }

    /// Whether its files are all there.
    fn is_whole(&self, files: &dyn Files) -> bool {
        let counted = matches!(self.map.state, State::Prepared | State::Complete | State::Refused);
        counted
            && self.map.record.as_ref().is_some_and(|record| {
                if record.protection.bypass {
                    return super::in_place(files, record);
                }
                place::is_whole(files, &self.part, record)
            })
    }
}

/// Tells every owner of its parts, and of the records that are kept for it. Parts of ranks that this run does not
/// have are passed over. Collective.
pub(crate) fn exchange(
    comm: &dyn Comm,
    files: &dyn Files,
    held: &[Held],
) -> Result<BTreeMap<DatasetKey, Vec<Claim>>, CommError> {
    let mut messages: Vec<(Rank, KvTree)> = Vec::new();
    for part in held.iter().filter(|part| part.map.state >= State::Prepared) {
        let own = part.map.record.iter().map(|record| (record, part.is_whole(files)));
        let kept = part.map.neighbours.iter().map(|record| (record, false));
        for (record, whole) in own.chain(kept) {
            if record.rank.0 < comm.size() {
                let mut claim = KvTree::new();
                claim.set("WHOLE", u8::from(whole));
                claim.put("RECORD", record.to_tree());
                messages.push((record.rank, claim));
            }
        }
    }
    let mut claims: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (holder, tree) in route_trees(comm, messages)? {
        let Some(record) = tree.get("RECORD").and_then(|record| RankRecord::from_tree(record).ok()) else {
            continue;
        };
        let key = DatasetKey::of(&record);
        let whole = tree.text("WHOLE") == Some("1");
        claims.entry(key).or_default().push(Claim { holder, whole, record });
    }
    Ok(claims)
}

/// Of what a rank was told, what it goes by: a whole copy, its own before another's, and any record.
pub(crate) fn choose(me: Rank, claims: &[Claim]) -> (Option<&Claim>, Option<&RankRecord>) {
    let whole =
        claims.iter().filter(|claim| claim.whole).min_by_key(|claim| (claim.holder != me, claim.holder));
    (whole, whole.or(claims.first()).map(|claim| &claim.record))
}
