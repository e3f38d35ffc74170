//! A dataset of which parts are lost or damaged is made whole: by the ranks of a job, or by threads that stand for them.
//!
//! Every rank knows its own record and whether its part is there; what is lost is rebuilt, all else is read, and what turns
//! out to be damaged counts as lost from then on. All ranks come to one outcome.

use super::place::PartPlace;
use super::rebuild::{verify, Rebuilding, Trust};
use crate::cache::record::{Protection, RankRecord};
use crate::comm::collective::{agree_at, all_reduce, any, broadcast, gather, Op};
use crate::comm::{AnyError, Collective, CollectiveError, Comm, CommError, Rank, RankErrors};
use crate::fs::Files;
use crate::message::Reporter;
use scr_plugin_api::{KvTree, Scheme};
use std::sync::Arc;

/// Where schemes come from.
pub(crate) trait SchemeSource {
    /// The scheme that a dataset was written with. Collective.
    fn scheme(&self, protection: &Protection) -> Collective<Arc<dyn Scheme>>;
}

/// What a rank needs to take part.
pub(crate) struct Mending<'a> {
    pub(crate) comm: &'a dyn Comm,
    pub(crate) files: &'a dyn Files,
    pub(crate) report: &'a Reporter,
    /// Name of this node, for messages.
    pub(crate) node: &'a str,
    pub(crate) schemes: &'a dyn SchemeSource,
    /// Processors for each rank.
    pub(crate) processors: u32,
    /// Bytes of a message at most: `SCR_MPI_BUF_SIZE`.
    pub(crate) message_bytes: u64,
    /// The dataset as messages name it.
    pub(crate) label: &'a str,
}

impl Mending<'_> {
    /// Each rank's record, where all have one; the error says what is lost. Collective.
    pub(crate) fn everybody_knows<'r>(
        &self,
        record: Option<&'r RankRecord>,
        is_lost: bool,
    ) -> Collective<&'r RankRecord> {
        let known = record.ok_or_else(|| "nothing is left of its part, nor a record of it".to_owned());
        self.agree(known).or_else(|error| {
            let unknown = error.agreed()?;
            Err(self.blame_a_set(record, is_lost)?.unwrap_or(unknown).into())
        })
    }

    /// Rebuilds what is lost, and reads everything else, until every byte of every part is what was recorded. Gives
    /// whether anything was rebuilt anywhere. `make_room` is called on a rank whose part is lost, before it is rebuilt.
    /// Collective.
    pub(crate) fn run(
        &self,
        record: &RankRecord,
        place: &dyn PartPlace,
        mut is_lost: bool,
        make_room: &mut dyn FnMut() -> Result<(), String>,
    ) -> Collective<bool> {
        let mut rounds = 0;
        loop {
            let lost = lost_ranks(self.comm, is_lost)?;
            if !lost.is_empty() {
                self.tell_lost(record, &lost)?;
                self.can_rebuild(record, &lost)?;
            }
            let outcome = self.try_once(record, place, &lost, make_room)?;
            let damage = self.damage(&outcome, is_lost, record, place);
            let [more] = any(self.comm, [damage && !is_lost])?;
            is_lost |= damage;
            rounds += 1;
            if !more || rounds > self.comm.size() {
                self.agree(outcome.and_then(Trust::into_result))?;
                return Ok(!lost.is_empty());
            }
        }
    }

    /// Whether this rank's part, as a round has left it, is not what was recorded; then it is told.
    fn damage(
        &self,
        outcome: &Result<Trust, String>,
        is_lost: bool,
        record: &RankRecord,
        place: &dyn PartPlace,
    ) -> bool {
        let sound = match outcome {
            Ok(trust) => trust.clone().into_result(),
            Err(_) if is_lost => Ok(()),
            Err(_) => verify(self.files, place, record).and_then(Trust::into_result),
        };
        if let Err(what) = &sound {
            self.report.error_here(&format!("{}: {what}; this part counts as lost", self.label));
        }
        sound.is_err()
    }

    /// One round: a set with a loss rebuilds, and the others read what they have.
    fn try_once(
        &self,
        record: &RankRecord,
        place: &dyn PartPlace,
        lost: &[Rank],
        make_room: &mut dyn FnMut() -> Result<(), String>,
    ) -> Collective<Result<Trust, String>> {
        let in_set = record.members.iter().any(|member| lost.contains(member));
        if record.protection.bypass {
            return Ok(verify(self.files, place, record));
        }
        let scheme = if lost.is_empty() { None } else { Some(self.schemes.scheme(&record.protection)?) };
        let Some(scheme) = scheme.filter(|_| in_set) else {
            return Ok(verify(self.files, place, record));
        };
        let ready = if lost.contains(&self.comm.rank()) { make_room() } else { Ok(()) };
        let rebuilding = Rebuilding {
            comm: self.comm,
            files: self.files,
            report: self.report,
            scheme: &*scheme,
            processors: self.processors,
            message_bytes: self.message_bytes,
        };
        Ok(rebuilding.run(place, record, lost, ready))
    }

    /// Whether every set can do without what it has lost; the same answer on all ranks.
    fn can_rebuild(&self, record: &RankRecord, lost: &[Rank]) -> Collective<()> {
        if record.protection.bypass {
            let gone = lost.contains(&self.comm.rank());
            let outcome = if gone {
                Err("its files are not in the prefix directory any more as they were written".to_owned())
            } else {
                Ok(())
            };
            return self.agree(outcome);
        }
        let scheme = self.schemes.scheme(&record.protection)?;
        self.agree(self.has_enough(record, lost, &*scheme))
    }

    /// Whether this rank's set can do without what it has lost. Where it cannot, its first survivor says so for all.
    fn has_enough(&self, record: &RankRecord, lost: &[Rank], scheme: &dyn Scheme) -> Result<(), String> {
        let pattern: Vec<bool> = record.members.iter().map(|member| lost.contains(member)).collect();
        if !pattern.contains(&true) || scheme.recoverable(&pattern) {
            return Ok(());
        }
        let survivor = pattern.iter().position(|is_lost| !is_lost).unwrap_or(0);
        if record.members.get(survivor) != Some(&self.comm.rank()) {
            return Ok(());
        }
        let most = scheme.losses_survived(pattern.len() as u32).unwrap_or(0);
        let missing = record.members.iter().zip(&pattern).filter(|(_, &is_lost)| is_lost);
        let missing: Vec<_> = missing.map(|(&member, _)| record.member_name(member)).collect();
        Err(format!(
            "the redundancy set of ranks {} has lost the parts of ranks {}, and {} survives {most}",
            list(record.members.iter()),
            shortened(&missing),
            record.protection.scheme,
        ))
    }

    /// Which set has lost more than its scheme survives, where a rank knows nothing of its own part any more: the
    /// others of its set still know of it. `None` where a whole set is gone. Collective.
    fn blame_a_set(
        &self,
        record: Option<&RankRecord>,
        is_lost: bool,
    ) -> Result<Option<RankErrors>, CommError> {
        let lost = lost_ranks(self.comm, is_lost)?;
        let packed = first_known(self.comm, record.map(|record| record.to_tree().pack()))?;
        let known = KvTree::unpack(&packed).ok().and_then(|tree| RankRecord::from_tree(&tree).ok());
        let Some(protection) = known.map(|record| record.protection) else { return Ok(None) };
        let scheme = match self.schemes.scheme(&protection) {
            Ok(scheme) => scheme,
            Err(error) => return error.agreed().map(|_| None),
        };
        let enough = record.map_or(Ok(()), |record| self.has_enough(record, &lost, &*scheme));
        self.agree(enough).err().map(CollectiveError::agreed).transpose()
    }

    /// Says once who has lost what, with the node on which it was written.
    fn tell_lost(&self, record: &RankRecord, lost: &[Rank]) -> Result<(), CommError> {
        let own = lost
            .contains(&self.comm.rank())
            .then(|| format!("{} (written on {})", self.comm.rank(), record.node));
        let told = gather(self.comm, Rank(0), own.unwrap_or_default().into_bytes())?;
        let told = told.unwrap_or_default();
        let names: Vec<_> =
            told.iter().filter(|text| !text.is_empty()).map(|text| String::from_utf8_lossy(text)).collect();
        self.report.notice(&format!(
            "{}: the parts of {} of {} ranks are lost: {}; rebuilding them with {}",
            self.label,
            lost.len(),
            self.comm.size(),
            shortened(&names),
            record.protection.scheme,
        ));
        Ok(())
    }

    fn agree<T, E: Into<AnyError>>(&self, result: Result<T, E>) -> Collective<T> {
        agree_at(self.comm, self.node, result)
    }
}

/// What the first rank that knows a thing says of it.
pub(crate) fn first_known(comm: &dyn Comm, known: Option<Vec<u8>>) -> Result<Vec<u8>, CommError> {
    let nobody = u64::from(u32::MAX);
    let mut first = [known.as_ref().map_or(nobody, |_| u64::from(comm.rank().0))];
    all_reduce(comm, &mut first, Op::Min)?;
    let root = u32::try_from(first[0]).ok().filter(|&rank| rank != u32::MAX);
    root.map_or(Ok(Vec::new()), |root| broadcast(comm, Rank(root), known.unwrap_or_default()))
}

/// The ranks that have lost their parts, the same list everywhere.
fn lost_ranks(comm: &dyn Comm, is_lost: bool) -> Result<Vec<Rank>, CommError> {
    let size = comm.size();
    let mut words = vec![0_u64; size.div_ceil(64) as usize];
    if is_lost {
        words[comm.rank().index() / 64] |= 1 << (comm.rank().0 % 64);
    }
    all_reduce(comm, &mut words, Op::Or)?;
    Ok((0..size).filter(|rank| words[(rank / 64) as usize] >> (rank % 64) & 1 == 1).map(Rank).collect())
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
