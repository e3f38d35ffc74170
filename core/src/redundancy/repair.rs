//! Repairs a dataset with lost or damaged parts: with the ranks of a job, or with threads in their place.
//!
//! Every rank knows its own record and what it has lost. In a set that lacks data, lost parts are rebuilt. A set that lacks
//! redundancy only computes it again: data that is there is never given up for want of redundancy. All other parts are read.
//! Parts that turn out to be damaged count as lost from then on. All ranks get one outcome.

use super::error::RedundancyError;
use super::fit;
use super::rebuild::SetRepair;
use crate::cache::loss::{written_since, Loss, Lost};
use crate::cache::part::PartPlace;
use crate::cache::record::{Protection, RankRecord};
use crate::cache::verify::{Damage, Extent, PartFiles, Verified};
use crate::job::Job;
use crate::log::{Event, Record};
use crate::plugin::overdue::PluginPhase;
use crate::plugin::CheckedScheme;
use crate::typed::{first_value, pack, unpack};
use scr_base::describe;
use scr_base::fs::FsError;
use scr_comm::collective::{all_gather, all_reduce, route, Op};
use scr_comm::{Collective, CollectiveError, Comm, CommError, Rank, RankErrors};
use scr_plugin_api::Scheme;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Repairs one dataset.
pub(crate) struct Repair<'a> {
    pub(crate) job: &'a Job,
    /// Gives the scheme that a dataset was written with. Collective.
    pub(crate) scheme: &'a dyn Fn(&Protection) -> Collective<Arc<CheckedScheme>>,
    /// The dataset as messages name it.
    pub(crate) label: &'a str,
    /// How much of each part is compared. Once any damage is found, it is all.
    pub(crate) extent: Extent,
    /// The loss of this rank's part, if it has found other bytes there than were recorded.
    pub(crate) wrong_bytes: Rc<Cell<Option<Lost>>>,
    /// Whether this rank knows that too much is lost. A repair that fails otherwise says nothing of the dataset.
    pub(crate) is_lost: Rc<Cell<bool>>,
}

/// The result of a repair.
#[derive(Debug)]
pub(crate) struct Repaired {
    /// Whether anything was rebuilt on any rank.
    pub(crate) rebuilt: bool,
    /// How much of this rank's part equals its record.
    pub(crate) verified: Verified,
    /// The record of this rank's part, if it was local and has been protected.
    pub(crate) protected: Option<RankRecord>,
}

impl Repair<'_> {
    /// Each rank's record, where all have one, and they fit together; the error says what is lost, or which do not. Collective.
    pub(crate) fn agree_on_record<'r>(
        &self,
        record: Option<&'r RankRecord>,
        own: Option<Lost>,
    ) -> Collective<&'r RankRecord> {
        let comm = &*self.job.comm;
        let share = record.map_or([1, 0, 0], |record| fit::share(comm, record));
        let sums = all_reduce(comm, share, Op::Sum)?;
        match record {
            Some(record) if fit::is_whole(sums) => Ok(record),
            Some(record) if sums[0] == 0 => {
                self.is_lost.set(true);
                Err(fit::misfit(comm, record)?.into())
            }
            _ => {
                self.is_lost.set(true);
                let known = record.ok_or("nothing is left of its part, nor a record of it");
                self.job.agree(known).or_else(|error| {
                    let unknown = error.agreed()?;
                    Err(self.find_failed_set(record, own)?.unwrap_or(unknown).into())
                })
            }
        }
    }

    /// Fails if more is lost than the scheme survives. Nothing has been changed then. Collective.
    pub(crate) fn expect_enough(&self, record: &RankRecord, loss: Option<&Loss>) -> Collective<()> {
        let losses = Losses::gather(&*self.job.comm, loss.map(|loss| loss.lost))?;
        if losses.is_empty() || record.protection.bypass {
            return Ok(());
        }
        if let Err(error) = self.scheme_for(record, &losses) {
            self.report_lost(record, &losses, loss, false)?;
            return Err(error);
        }
        Ok(())
    }

    /// Rebuilds what is lost, and reads everything else, until every byte of every part is what was recorded. `loss` says what
    /// this rank has lost, and why. `make_room` is called on a rank whose part is rebuilt, before that. A round in which a rank
    /// has failed, while nobody has found anything damaged, is repeated: it destroys nothing, and the error may pass. Collective.
    pub(crate) fn run(
        &self,
        record: &RankRecord,
        place: &dyn PartPlace,
        mut loss: Option<Loss>,
        make_room: &mut dyn FnMut() -> Result<(), FsError>,
    ) -> Collective<Repaired> {
        let job = self.job;
        let mut extent = self.extent;
        let (mut rounds, mut repeated, mut damaged_bytes, mut is_said) = (0, 0, 0, false);
        loop {
            let losses = Losses::gather(&*job.comm, loss.as_ref().map(|loss| loss.lost))?;
            let scheme = self.scheme_to_repair(record, &losses, loss.as_ref(), is_said)?;
            let remedy = losses.remedy(&record.members);
            let outcome = match scheme.filter(|_| remedy != Remedy::Read) {
                Some(scheme) => {
                    let is_rebuilt = remedy == Remedy::Rebuild && loss.is_some();
                    let ready = if is_rebuilt { make_room() } else { Ok(()) };
                    self.apply(&scheme, (place, record), &losses, (remedy, ready), extent)
                }
                None => {
                    self.verify(place, record, extent).map(|verified| (verified, None)).map_err(Into::into)
                }
            };
            let damage = self.find_damage(&outcome, remedy, loss.as_ref(), record, place);
            let is_damaged = damage.as_ref().is_some_and(|damage| damage.lost == Lost::Data);
            let own_bytes = if is_damaged { record.data_bytes() } else { 0 };
            let own = [u64::from(damage.is_some()), u64::from(outcome.is_err()), own_bytes];
            let [damaged, failed, bytes] = all_reduce(&*job.comm, own, Op::Sum)?;
            let (more, has_failed) = (damaged > 0, failed > 0);
            is_said = !more;
            damaged_bytes += bytes;
            loss = damage.or(loss);
            extent = Extent::All;
            rounds += 1;
            if more && rounds <= MOST_ROUNDS_A_RANK * job.comm.size() {
                continue;
            }
            if has_failed && !more && repeated < MOST_REPEATED {
                repeated += 1;
                continue;
            }
            let outcome = match outcome {
                Err(error) if matches!(remedy, Remedy::ProtectAnew | Remedy::Protect) && !more => {
                    Ok((self.go_on_unprotected(record, &error), None))
                }
                outcome => outcome,
            };
            self.is_lost.set(outcome.as_ref().is_err_and(RedundancyError::is_loss));
            let (verified, protected) = job.agree(outcome)?;
            if losses.is_data_lost() {
                let rebuilt = Record::event(Event::Rebuilt).dataset(&record.dataset);
                job.log.add_entry(rebuilt.processes(losses.without_data() as u64).bytes(damaged_bytes));
            }
            return Ok(Repaired { rebuilt: losses.is_data_lost(), verified, protected });
        }
    }

    /// Lets the scheme rebuild the parts of the members of a set, or protect them. Called on all members at once.
    fn apply(
        &self,
        scheme: &CheckedScheme,
        (part, record): (&dyn PartPlace, &RankRecord),
        losses: &Losses,
        (remedy, ready): (Remedy, Result<(), FsError>),
        extent: Extent,
    ) -> Result<(Verified, Option<RankRecord>), RedundancyError> {
        let job = self.job;
        let plugin = ("scheme", &*record.protection.scheme);
        let phase = &PluginPhase::begin(job, plugin, &record.dataset, None);
        let repair = SetRepair { job, scheme, part, record, losses, phase, extent };
        match remedy == Remedy::Rebuild {
            true => repair.rebuild(ready).map(|verified| (verified, None)),
            false => repair.protect(),
        }
    }

    /// Losses of this rank beside the known ones, as a round has left its part. Reports them.
    fn find_damage(
        &self,
        outcome: &Result<(Verified, Option<RankRecord>), RedundancyError>,
        remedy: Remedy,
        loss: Option<&Loss>,
        record: &RankRecord,
        place: &dyn PartPlace,
    ) -> Option<Loss> {
        let known = loss.map(|loss| loss.lost);
        let is_rebuilt = remedy == Remedy::Rebuild && loss.is_some();
        let error = outcome.as_ref().err().filter(|_| !is_rebuilt)?;
        let found;
        let damage = match error {
            RedundancyError::Damaged(damage) if damage.is_wrong_bytes() => Some(damage),
            // The error may have passed.
            _ => {
                let extent = if known.is_none() { Extent::All } else { Extent::Used };
                found = self.verify(place, record, extent).err();
                found.as_ref()
            }
        };
        let wrong = damage.filter(|damage| damage.is_wrong_bytes());
        self.wrong_bytes.set(wrong.map(|damage| damage.loss().lost));
        let mut damage = damage.map(Damage::loss).filter(|damage| Some(damage.lost) > known);
        if let Some(damage) = damage.as_mut().filter(|damage| damage.lost == Lost::Data) {
            damage.why.extend(written_since(self.job.files(), place, record));
        }
        if let Some(Loss { why, lost }) = &damage {
            let what = if *lost == Lost::Data { "this part" } else { "its redundancy" };
            self.job.report.error_here(&format!("{}: {why}; {what} counts as lost", self.label));
        }
        damage
    }

    /// All data of this rank's set is what was recorded, and its redundancy is not. The next run tries again.
    fn go_on_unprotected(&self, record: &RankRecord, error: &RedundancyError) -> Verified {
        if error.is_of_another_member() {
            return Verified::Files;
        }
        self.job.report.error_here(&format!(
            "{}: its redundancy cannot be made again: {}; all files are right, but the set of ranks {} is not protected \
             against the loss of a node",
            self.label,
            describe(error),
            list(record.members.iter()),
        ));
        Verified::Files
    }

    fn verify(&self, part: &dyn PartPlace, record: &RankRecord, extent: Extent) -> Result<Verified, Damage> {
        PartFiles { files: self.job.files(), part, record }.verify(self.job.processors, extent)
    }

    /// The scheme that repairs what is lost, where every set can do without it; `None` where nothing is lost. Collective.
    fn scheme_to_repair(
        &self,
        record: &RankRecord,
        losses: &Losses,
        loss: Option<&Loss>,
        is_said: bool,
    ) -> Collective<Option<Arc<CheckedScheme>>> {
        if losses.is_empty() {
            return Ok(None);
        }
        if record.protection.bypass {
            self.report_lost(record, losses, loss, false)?;
            self.is_lost.set(loss.is_some());
            let gone = if loss.is_some() {
                Err("its files are not in the prefix directory any more as they were written")
            } else {
                Ok(())
            };
            return self.job.agree(gone).map(|()| None);
        }
        let scheme = self.scheme_for(record, losses);
        if !is_said {
            self.report_lost(record, losses, loss, scheme.is_ok())?;
        }
        scheme.map(Some)
    }

    /// The scheme, where every set can do without what is lost. Collective.
    fn scheme_for(&self, record: &RankRecord, losses: &Losses) -> Collective<Arc<CheckedScheme>> {
        let scheme = (self.scheme)(&record.protection)?;
        let enough = self.has_enough(record, losses, &*scheme);
        self.is_lost.set(enough.is_err());
        self.job.agree(enough).map(|()| scheme)
    }

    /// Whether this rank's set can do without what it has lost. If it cannot, its first survivor says so for all.
    fn has_enough(
        &self,
        record: &RankRecord,
        losses: &Losses,
        scheme: &dyn Scheme,
    ) -> Result<(), RedundancyError> {
        if losses.leave_enough(&record.members, scheme) {
            return Ok(());
        }
        let all = &record.members;
        let survivor = all.iter().position(|&member| !losses.lacks_data(member)).unwrap_or(0);
        if all.get(survivor) != Some(&self.job.comm.own_rank()) {
            return Ok(());
        }
        let is_local = losses.has_local(all);
        let is_missing =
            |member: &Rank| if is_local { losses.lacks_data(*member) } else { losses.has(*member) };
        let missing = all.iter().filter(|member| is_missing(member));
        let missing: Vec<_> = missing.map(|&member| record.member_name(member)).collect();
        let (members, lost) = (list(all.iter()), shortened(&missing, SHOWN));
        let (name, survived) =
            (&record.protection.scheme, scheme.losses_survived(all.len() as u32).unwrap_or(0));
        Err(RedundancyError::Lost(match is_local {
            true => format!("the parts of ranks {lost} are lost, and the redundancy set of ranks {members} was not protected yet"),
            false => {
                format!("the redundancy set of ranks {members} has lost the parts of ranks {lost}, and {name} survives {survived}")
            }
        }))
    }

    /// Which set has lost more than its scheme survives, where a rank knows nothing of its own part any more: the
    /// others of its set still know of it. `None` where a whole set is gone. Collective.
    fn find_failed_set(
        &self,
        record: Option<&RankRecord>,
        own: Option<Lost>,
    ) -> Result<Option<RankErrors>, CommError> {
        let losses = Losses::gather(&*self.job.comm, own)?;
        let known = first_value(&*self.job.comm, record.map(|record| &record.protection))?;
        let Some(protection) = known else { return Ok(None) };
        let scheme = match (self.scheme)(&protection) {
            Ok(scheme) => scheme,
            Err(error) => {
                self.is_lost.set(false);
                return error.agreed().map(|_| None);
            }
        };
        let enough = record.map_or(Ok(()), |record| self.has_enough(record, &losses, &*scheme));
        self.job.agree(enough).err().map(CollectiveError::agreed).transpose()
    }

    /// Says once who has lost what and why, with the node on which it was written, and what is done about it. Collective.
    fn report_lost(
        &self,
        record: &RankRecord,
        losses: &Losses,
        loss: Option<&Loss>,
        is_repaired: bool,
    ) -> Result<(), CommError> {
        let own = loss.map(|loss| format!("{} (written on {}; {})", record.rank, record.node, loss.why));
        let own = own.map(|text| (Rank(0), text.into_bytes()));
        let lost_parts = route(&*self.job.comm, own.into_iter().collect())?;
        let names: Vec<_> = lost_parts.iter().map(|(_, text)| String::from_utf8_lossy(text)).collect();
        let (label, ranks, scheme) = (self.label, record.ranks(), &record.protection.scheme);
        let (names, lost) = (shortened(&names, SHOWN), losses.count());
        let is_local = losses.0.values().any(|lost| *lost == Lost::Protection);
        let (whose, state, next) = match (record.protection.bypass, losses.is_data_lost(), lost) {
            (_, false, _) if is_local => ("the parts of", "ranks were not protected yet", "protecting them"),
            // Nothing repairs them.
            (true, ..) => ("the files of", "ranks are not as they were written", ""),
            (_, false, _) => ("the redundancy of", "ranks is lost", "making it again"),
            (_, _, 1) => ("the part of", "ranks is lost", "rebuilding it"),
            _ => ("the parts of", "ranks are lost", "rebuilding them"),
        };
        let next = if is_repaired { format!("; {next} with {scheme}") } else { String::new() };
        let text = format!("{label}: {whose} {lost} of {ranks} {state}: {names}{next}");
        match losses.is_data_lost() || !is_local {
            true => self.job.report.warn(&text),
            false => self.job.report.notice(&text),
        }
        Ok(())
    }
}

/// How many times to repeat a round that has failed without a reason that stays.
const MOST_REPEATED: u32 = 2;
/// A rank finds out at most so often that it has lost something: its redundancy, and then its data.
const MOST_ROUNDS_A_RANK: u32 = 2;

fn list<'a>(ranks: impl Iterator<Item = &'a Rank>) -> String {
    let texts: Vec<_> = ranks.map(ToString::to_string).collect();
    shortened(&texts, SHOWN)
}

/// A list that stays readable however long it is.
pub(crate) fn shortened<T: AsRef<str>>(texts: &[T], most: usize) -> String {
    let shown: Vec<&str> = texts.iter().take(most).map(AsRef::as_ref).collect();
    match texts.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

const SHOWN: usize = 16;

/// The ranks that lack something of a dataset, each with what it lacks.
#[derive(Debug, Default)]
pub struct Losses(BTreeMap<Rank, Lost>);

/// The action of a set on the parts of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It has lost nothing.
    Read,
    /// No member lacks data: the redundancy is computed from it once more.
    ProtectAnew,
    /// No member lacks data, and some have never been protected.
    Protect,
    /// The parts of the members that lack anything are rebuilt from the others.
    Rebuild,
}

impl Losses {
    /// The losses of all ranks, from the loss of each. Collective.
    pub(super) fn gather(comm: &dyn Comm, own: Option<Lost>) -> Result<Self, CommError> {
        // Neighbours that have lost the same, such as nothing, take no more room than one rank.
        let all = all_gather(comm, &pack(&own)?)?;
        let lost = all.distinct().iter().map(|lost| unpack(Rank(0), lost));
        let lost = lost.collect::<Result<Vec<Option<Lost>>, _>>()?;
        let runs = all.runs().filter_map(|(ranks, place)| Some((ranks, lost[place]?)));
        Ok(runs
            .flat_map(|(ranks, lost)| ranks.map(move |rank| (comm.stands_for(Rank(rank)), lost)))
            .collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// How many ranks lack data.
    pub(super) fn without_data(&self) -> usize {
        self.0.values().filter(|lost| **lost == Lost::Data).count()
    }

    /// Whether any rank lacks data.
    pub(super) fn is_data_lost(&self) -> bool {
        self.without_data() > 0
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.0.contains_key(&rank)
    }

    /// The action of the set of these ranks.
    pub(super) fn remedy(&self, members: &[Rank]) -> Remedy {
        match members.iter().filter_map(|member| self.0.get(member)).max() {
            None => Remedy::Read,
            Some(Lost::Redundancy) => Remedy::ProtectAnew,
            Some(Lost::Protection) => Remedy::Protect,
            Some(Lost::Data) => Remedy::Rebuild,
        }
    }

    /// For each of these ranks whether it takes part without its bytes.
    pub(super) fn pattern(&self, members: &[Rank]) -> Vec<bool> {
        members.iter().map(|member| self.has(*member)).collect()
    }

    /// Whether a rank lacks data.
    pub(super) fn lacks_data(&self, rank: Rank) -> bool {
        self.0.get(&rank) == Some(&Lost::Data)
    }

    /// Whether a part of these ranks is local.
    pub fn has_local(&self, members: &[Rank]) -> bool {
        members.iter().any(|member| self.0.get(member) == Some(&Lost::Protection))
    }

    /// Whether the set of these ranks can do without what it has lost. Nothing can be rebuilt from a local part.
    pub fn leave_enough(&self, members: &[Rank], scheme: &dyn Scheme) -> bool {
        self.remedy(members) != Remedy::Rebuild
            || !self.has_local(members) && scheme.recoverable(&self.pattern(members))
    }
}

impl FromIterator<(Rank, Lost)> for Losses {
    fn from_iter<I: IntoIterator<Item = (Rank, Lost)>>(losses: I) -> Self {
        Self(losses.into_iter().collect())
    }
}
