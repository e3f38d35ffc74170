//! Repairs a dataset with lost or damaged parts: with the ranks of a job, or with threads in their place.
//!
//! Every rank knows its own record and whether its part is there. Lost parts are rebuilt, and all others are read. A part that
//! turns out to be damaged counts as lost from then on. All ranks get one outcome.

use super::error::RedundancyError;
use super::fit;
use super::overdue::{LongestCall, SchemePhase};
use super::rebuild::SetRebuild;
use crate::cache::place::PartPlace;
use crate::cache::record::{Protection, RankRecord};
use crate::cache::verify::{verify, Extent, PartError, Verified};
use crate::comm::collective::{all_reduce, any, broadcast, first_rank, gather, Op};
use crate::comm::{Collective, CollectiveError, Comm, CommError, Rank, RankErrors};
use crate::describe;
use crate::fs::FsError;
use crate::job::Job;
use scr_plugin_api::{KvTree, Scheme};
use std::cell::Cell;
use std::sync::Arc;

/// Repairs one dataset.
pub(crate) struct Repair<'a> {
    pub(crate) job: &'a Job,
    /// Gives the scheme that a dataset was written with. Collective.
    pub(crate) scheme: &'a dyn Fn(&Protection) -> Collective<Arc<dyn Scheme>>,
    /// The dataset as messages name it.
    pub(crate) label: &'a str,
    /// How much of each part is compared. Once any damage is found, it is all.
    pub(crate) extent: Extent,
    /// Whether this rank has found bytes that are not those that were recorded.
    pub(crate) has_wrong_bytes: Cell<bool>,
}

/// What a repair has done.
#[derive(Debug)]
pub(crate) struct Repaired {
    /// Whether anything was rebuilt on any rank.
    pub(crate) rebuilt: bool,
    /// How much of this rank's part equals its record.
    pub(crate) verified: Verified,
}

impl Repair<'_> {
    /// Each rank's record, where all have one, and they fit together; the error says what is lost, or which do not. Collective.
    pub(crate) fn agree_on_record<'r>(
        &self,
        record: Option<&'r RankRecord>,
        is_lost: bool,
    ) -> Collective<&'r RankRecord> {
        let comm = &*self.job.comm;
        let mut sums = record.map_or([1, 0, 0], |record| fit::share(comm, record));
        all_reduce(comm, &mut sums, Op::Sum)?;
        match record {
            Some(record) if fit::is_whole(sums) => Ok(record),
            Some(record) if sums[0] == 0 => Err(fit::misfit(comm, record)?.into()),
            _ => {
                let known = record.ok_or("nothing is left of its part, nor a record of it");
                self.job.agree(known).or_else(|error| {
                    let unknown = error.agreed()?;
                    Err(self.find_failed_set(record, is_lost)?.unwrap_or(unknown).into())
                })
            }
        }
    }

    /// Fails if more is lost than the scheme survives. Nothing has been changed then. Collective.
    pub(crate) fn expect_enough(&self, record: &RankRecord, loss: Option<&str>) -> Collective<()> {
        let lost = lost_ranks(&*self.job.comm, loss.is_some())?;
        if lost.is_empty() || record.protection.bypass {
            return Ok(());
        }
        if let Err(error) = self.scheme_for(record, &lost) {
            self.report_lost(record, lost.len(), loss, false)?;
            return Err(error);
        }
        Ok(())
    }

    /// Rebuilds what is lost, and reads everything else, until every byte of every part is what was recorded. `loss` says why
    /// this rank's part is lost, if it is. `make_room` is called on a rank whose part is lost, before it is rebuilt. Collective.
    pub(crate) fn run(
        &self,
        record: &RankRecord,
        place: &dyn PartPlace,
        mut loss: Option<String>,
        make_room: &mut dyn FnMut() -> Result<(), FsError>,
    ) -> Collective<Repaired> {
        let job = self.job;
        let mut extent = self.extent;
        let mut rounds = 0;
        loop {
            let is_lost = loss.is_some();
            let lost = lost_ranks(&*job.comm, is_lost)?;
            let scheme = self.scheme_to_rebuild(record, &lost, loss.as_deref())?;
            let outcome = match scheme.filter(|_| record.members.iter().any(|member| lost.contains(member))) {
                Some(scheme) => {
                    let ready = if is_lost { make_room() } else { Ok(()) };
                    let longest = LongestCall::default();
                    let (name, created) = (&record.protection.scheme, record.dataset.created);
                    let phase = SchemePhase::begin(job, name, created, &longest);
                    let (scheme, part, lost) = (&*scheme, place, &*lost);
                    SetRebuild { job, scheme, part, record, lost, phase: &phase, extent }.run(ready)
                }
                None => self.verify(place, record, extent).map_err(RedundancyError::from),
            };
            let damage = self.find_damage(&outcome, is_lost, record, place);
            let [more] = any(&*job.comm, [damage.is_some() && !is_lost])?;
            loss = loss.or(damage);
            extent = Extent::All;
            rounds += 1;
            if !more || rounds > job.comm.size() {
                let verified = job.agree(outcome)?;
                return Ok(Repaired { rebuilt: !lost.is_empty(), verified });
            }
        }
    }

    /// Why this rank's part, as a round has left it, is not what was recorded, if it is not. Reports it.
    fn find_damage(
        &self,
        outcome: &Result<Verified, RedundancyError>,
        is_lost: bool,
        record: &RankRecord,
        place: &dyn PartPlace,
    ) -> Option<String> {
        let damage = match outcome {
            Err(RedundancyError::Damaged(error)) => {
                self.has_wrong_bytes.set(matches!(error, PartError::Checksum { .. }));
                Some(describe(error))
            }
            Err(_) if !is_lost => self.verify(place, record, Extent::All).err().map(|error| describe(&error)),
            _ => None,
        };
        if let Some(what) = &damage {
            self.job.report.error_here(&format!("{}: {what}; this part counts as lost", self.label));
        }
        damage
    }

    fn verify(
        &self,
        place: &dyn PartPlace,
        record: &RankRecord,
        extent: Extent,
    ) -> Result<Verified, PartError> {
        verify(self.job.files(), place, record, self.job.processors, extent)
    }

    /// The scheme that rebuilds what is lost, where every set can do without it; `None` where nothing is lost. Collective.
    fn scheme_to_rebuild(
        &self,
        record: &RankRecord,
        lost: &[Rank],
        loss: Option<&str>,
    ) -> Collective<Option<Arc<dyn Scheme>>> {
        if lost.is_empty() {
            return Ok(None);
        }
        if record.protection.bypass {
            self.report_lost(record, lost.len(), loss, false)?;
            let gone = lost.contains(&self.job.comm.own_rank());
            let gone = if gone {
                Err("its files are not in the prefix directory any more as they were written")
            } else {
                Ok(())
            };
            return self.job.agree(gone).map(|()| None);
        }
        let scheme = self.scheme_for(record, lost);
        self.report_lost(record, lost.len(), loss, scheme.is_ok())?;
        scheme.map(Some)
    }

    /// The scheme, where every set can do without what is lost. Collective.
    fn scheme_for(&self, record: &RankRecord, lost: &[Rank]) -> Collective<Arc<dyn Scheme>> {
        let scheme = (self.scheme)(&record.protection)?;
        let enough = self.has_enough(record, lost, &*scheme);
        self.job.agree(enough).map(|()| scheme)
    }

    /// Whether this rank's set can do without what it has lost. Where it cannot, its first survivor says so for all.
    fn has_enough(
        &self,
        record: &RankRecord,
        lost: &[Rank],
        scheme: &dyn Scheme,
    ) -> Result<(), RedundancyError> {
        let pattern: Vec<bool> = record.members.iter().map(|member| lost.contains(member)).collect();
        if !pattern.contains(&true) || scheme.recoverable(&pattern) {
            return Ok(());
        }
        let survivor = pattern.iter().position(|is_lost| !is_lost).unwrap_or(0);
        if record.members.get(survivor) != Some(&self.job.comm.own_rank()) {
            return Ok(());
        }
        let missing = record.members.iter().zip(&pattern).filter(|(_, &is_lost)| is_lost);
        let missing: Vec<_> = missing.map(|(&member, _)| record.member_name(member)).collect();
        Err(RedundancyError::TooManyLost {
            members: list(record.members.iter()),
            lost: shortened(&missing),
            scheme: record.protection.scheme.clone(),
            survived: scheme.losses_survived(pattern.len() as u32).unwrap_or(0),
        })
    }

    /// Which set has lost more than its scheme survives, where a rank knows nothing of its own part any more: the
    /// others of its set still know of it. `None` where a whole set is gone. Collective.
    fn find_failed_set(
        &self,
        record: Option<&RankRecord>,
        is_lost: bool,
    ) -> Result<Option<RankErrors>, CommError> {
        let lost = lost_ranks(&*self.job.comm, is_lost)?;
        let packed = first_known(&*self.job.comm, record.map(|record| record.to_tree().pack()))?;
        let known = KvTree::unpack(&packed).ok().and_then(|tree| RankRecord::from_tree(&tree).ok());
        let Some(protection) = known.map(|record| record.protection) else { return Ok(None) };
        let scheme = match (self.scheme)(&protection) {
            Ok(scheme) => scheme,
            Err(error) => return error.agreed().map(|_| None),
        };
        let enough = record.map_or(Ok(()), |record| self.has_enough(record, &lost, &*scheme));
        self.job.agree(enough).err().map(CollectiveError::agreed).transpose()
    }

    /// Says once who has lost what and why, with the node on which it was written, and whether it is rebuilt. Collective.
    fn report_lost(
        &self,
        record: &RankRecord,
        lost: usize,
        loss: Option<&str>,
        is_rebuilt: bool,
    ) -> Result<(), CommError> {
        let own = loss.map(|why| format!("{} (written on {}; {why})", record.rank, record.node));
        let lost_parts = gather(&*self.job.comm, Rank(0), own.unwrap_or_default().into_bytes())?;
        let lost_parts = lost_parts.unwrap_or_default();
        let names: Vec<_> = lost_parts
            .iter()
            .filter(|text| !text.is_empty())
            .map(|text| String::from_utf8_lossy(text))
            .collect();
        let (label, ranks, scheme) = (self.label, record.ranks, &record.protection.scheme);
        let names = shortened(&names);
        let what = match (record.protection.bypass, lost) {
            (true, _) => format!("the files of {lost} of {ranks} ranks are not as they were written"),
            (false, 1) => format!("the part of 1 of {ranks} ranks is lost"),
            (false, _) => format!("the parts of {lost} of {ranks} ranks are lost"),
        };
        let it = if lost == 1 { "it" } else { "them" };
        let next = if is_rebuilt { format!("; rebuilding {it} with {scheme}") } else { String::new() };
        self.job.report.notice(&format!("{label}: {what}: {names}{next}"));
        Ok(())
    }
}

/// The value of the first rank that has one.
pub(crate) fn first_known(comm: &dyn Comm, known: Option<Vec<u8>>) -> Result<Vec<u8>, CommError> {
    match first_rank(comm, known.is_some())? {
        Some(root) => broadcast(comm, root, known.unwrap_or_default()),
        None => Ok(Vec::new()),
    }
}

/// The ranks that have lost their parts, the same list everywhere.
fn lost_ranks(comm: &dyn Comm, is_lost: bool) -> Result<Vec<Rank>, CommError> {
    let size = comm.size();
    let mut words = vec![0_u64; size.div_ceil(64) as usize];
    if is_lost {
        words[comm.rank().index() / 64] |= 1 << (comm.rank().0 % 64);
    }
    all_reduce(comm, &mut words, Op::Or)?;
    Ok((0..size)
        .filter(|rank| words[(rank / 64) as usize] >> (rank % 64) & 1 == 1)
        .map(|rank| comm.stands_for(Rank(rank)))
        .collect())
}

fn list<'a>(ranks: impl Iterator<Item = &'a Rank>) -> String {
    let texts: Vec<_> = ranks.map(ToString::to_string).collect();
    shortened(&texts)
}

/// A list that stays readable however long it is.
fn shortened<T: AsRef<str>>(texts: &[T]) -> String {
    let shown: Vec<&str> = texts.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match texts.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

const SHOWN: usize = 16;
