//! The schemes of a run, and the sets of ranks that they protect.

use super::background::{self, LocalPart};
use super::error::RedundancyError;
use super::neighbours;
use super::overdue::{LongestCall, SchemePhase};
use super::protect::{sum_if_wanted, Protect};
use super::sets::{in_set, OwnSet};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::loss::boot_of;
use crate::cache::part::PartDir;
use crate::cache::record::{Protection, RankRecord};
use crate::cache::verify::Opened;
use crate::cache::Cache;
use crate::error::{Doing as _, Error};
use crate::job::Job;
use crate::plugin::check_plugins;
use crate::redundancy::plugins::Plugins;
use scr_base::fs::At;
use scr_comm::collective::{all_reduce, Op};
use scr_comm::placement::{Placement, Survives};
use scr_comm::{Collective, CommError, Rank};
use scr_config::descriptor::{protects, Redundancy};
use scr_config::param;
use scr_plugin_api::SetShape;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The schemes in use, and the sets of ranks that protect each other.
pub(crate) struct Schemes {
    /// The plugins in use.
    pub(crate) plugins: Plugins,
    /// How ranks are placed, for each failure group.
    placements: BTreeMap<String, Placement>,
    /// This rank's set for each redundancy descriptor whose scheme has been loaded, by its place.
    sets: RefCell<BTreeMap<u32, OwnSet>>,
    /// How many nodes may be lost without the loss of a dataset of such a descriptor, by its place.
    survives: RefCell<BTreeMap<u32, Survives>>,
    /// How long protecting a dataset took.
    longest: LongestCall,
}

impl Schemes {
    /// Finds the plugins, and checks them on rank 0 as far as that is possible without loading them: a mistyped name shows hours
    /// before the first flush. Collective.
    ///
    /// # Errors
    /// [`Error::Config`]: a plugin that is needed is not there, does not take its options, or must not be loaded. The same on all
    /// ranks.
    pub(crate) fn new(job: &Job) -> Result<Self, Error> {
        let plugins = Plugins::new(&job.env, &job.params);
        let mut wrong = Vec::new();
        if job.rank() == Rank(0) {
            let problems = check_plugins(&plugins.host, &job.params, &job.descriptors, &mut wrong);
            problems.iter().for_each(|problem| job.report.warn(&problem.to_string()));
        }
        let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        let checked = if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) };
        job.agree(checked).or_else(|error| {
            let why = error.agreed()?;
            Err(Error::Config { why: why.to_string() })
        })?;
        Ok(Self::with(plugins))
    }

    /// For ranks whose threads bring back what was written with any scheme, and write nothing themselves.
    pub(crate) fn to_read(job: &Job) -> Self {
        Self::with(Plugins::new(&job.env, &job.params))
    }

    fn with(plugins: Plugins) -> Self {
        let (placements, sets, survives) = (BTreeMap::new(), RefCell::default(), RefCell::default());
        Self { plugins, placements, sets, survives, longest: LongestCall::default() }
    }

    /// Finds out how ranks are placed in the failure group of every redundancy descriptor, and warns of those that cannot be
    /// protected. Collective.
    ///
    /// # Errors
    /// [`Error`]: a rank has no value for a failure group, or `RS` could not protect a single dataset as the user has chosen it,
    /// unless the job recovers. The same on all ranks.
    pub(crate) fn place_ranks(&mut self, job: &mut Job, cache: &Cache) -> Result<(), Error> {
        let groups: BTreeSet<_> =
            job.descriptors.redundancy.all().into_iter().map(|descriptor| descriptor.group.clone()).collect();
        for group in groups {
            let value = job
                .agree(job.group_value(&group))
                .map_err(|error| error.doing(format!("finding the group {group}")))?;
            let placement = job.placement_in(&group, &value)?;
            self.placements.insert(group, placement);
        }
        self.survive_fewer(job);
        let mut warned = BTreeSet::new();
        for descriptor in job.descriptors.redundancy.all() {
            let (group, size) = (&descriptor.group, descriptor.set_size);
            expect_groups(descriptor, self.placements[group].count())?;
            if warned.insert((group.clone(), size)) {
                let placement = &self.placements[group];
                // As small as they can be for any scheme.
                let set = OwnSet::choose(placement, size, 2, job.rank());
                warn_unprotected(job, cache, group, placement, set.unprotected);
            }
        }
        report_needless_redundancy(job, cache);
        Ok(())
    }

    /// With fewer nodes than before, `RS` survives as many failures as they allow: a job that goes on with less protection is
    /// better than one that ends. The same holds where a site has chosen for all jobs, and this one has few nodes.
    fn survive_fewer(&self, job: &mut Job) {
        let is_users = job.params.origin(&param::SET_FAILURES).is_of_user();
        let may = |descriptor: &Redundancy| job.is_recovery || !(is_users || descriptor.origin.is_of_user());
        for descriptor in job.descriptors.redundancy.all_mut().filter(|descriptor| may(descriptor)) {
            let groups = self.placements.get(&descriptor.group).map_or(0, Placement::count);
            if let Err(error) = expect_groups(descriptor, groups) {
                let left = u32::try_from(groups).unwrap_or(u32::MAX).saturating_sub(1);
                job.report.warn(&format!("{error}. It goes on with SCR_SET_FAILURES={left}"));
                descriptor.set_failures = left;
            }
        }
    }

    /// How a new dataset is stored and protected by a descriptor. The first time it chooses the set of this rank. Collective the
    /// first time.
    pub(crate) fn protection_of(
        &self,
        job: &Job,
        cache: &Cache,
        descriptor: &Redundancy,
    ) -> Collective<Protection> {
        let protection = self.plugins.protection(job, descriptor, |least| {
            let Some(placement) = self.placements.get(&descriptor.group) else { return 1 };
            let (group, size) = (&descriptor.group, descriptor.set_size);
            let set = OwnSet::choose(placement, size, least, job.rank());
            if least > 2 && set.unprotected > OwnSet::choose(placement, size, 2, job.rank()).unprotected {
                warn_unprotected(job, cache, group, placement, set.unprotected);
            }
            let members = u32::try_from(set.members.len()).unwrap_or(u32::MAX);
            self.sets.borrow_mut().insert(descriptor.index, set);
            members
        })?;
        if !self.survives.borrow().contains_key(&descriptor.index) {
            let (members, _) = self.members(job, descriptor);
            let own = self.own_survives(job, cache, &protection, &members)?;
            let [survives] = least(job, [own])?;
            self.survives.borrow_mut().insert(descriptor.index, survives);
        }
        Ok(protection)
    }

    /// How many nodes may be lost without the loss of a new dataset of a descriptor whose [`protection`](Self::protection_of) is
    /// known.
    pub(crate) fn survives(&self, descriptor: &Redundancy) -> Option<Survives> {
        self.survives.borrow().get(&descriptor.index).copied()
    }

    /// How many nodes may be lost without the loss of datasets of earlier runs, on the nodes where their ranks run now. Those
    /// whose scheme cannot be used survive none. Collective.
    ///
    /// # Errors
    /// [`CommError`] only.
    pub(crate) fn survive_now<'r>(
        &self,
        job: &Job,
        cache: &Cache,
        records: impl Iterator<Item = &'r RankRecord>,
    ) -> Result<Vec<Survives>, CommError> {
        let own = records.map(|record| {
            let own = self.own_survives(job, cache, &record.protection, &record.members);
            own.or_else(|error| error.agreed().map(|_| Survives::Nodes(0)))
        });
        least(job, own.collect::<Result<Vec<_>, _>>()?)
    }

    /// As far as this rank's set goes. Collective the first time.
    fn own_survives(
        &self,
        job: &Job,
        cache: &Cache,
        protection: &Protection,
        members: &[Rank],
    ) -> Collective<Survives> {
        if protection.bypass || cache.outlives_nodes(&protection.store) {
            return Ok(Survives::All);
        }
        let scheme = self.plugins.scheme(job, protection)?;
        let size = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let holders: Vec<_> =
            members.iter().map(|&member| Some(vec![job.nodes.number(member) as usize])).collect();
        Ok(Survives::of_set(&holders, scheme.losses_survived(size).unwrap_or(0)))
    }

    /// The bytes that the redundancy file of this rank will take, if the other members of its set have as much data. Collective
    /// the first time.
    ///
    /// # Errors
    /// The scheme cannot be loaded.
    pub(crate) fn owed_bytes(&self, job: &Job, record: &RankRecord) -> Collective<u64> {
        let scheme = self.plugins.scheme(job, &record.protection)?;
        let member = record.members.iter().position(|&member| member == record.rank).unwrap_or(0);
        let data_lens = vec![record.data_bytes(); record.members.len()];
        let shape = SetShape { rank: u32::try_from(member).unwrap_or(0), data_lens: &data_lens };
        Ok(scheme.redundancy_len(&shape).unwrap_or(0))
    }

    /// Loads the schemes of new datasets, so that the first ones need not. One that cannot be loaded now, which is reported, is
    /// loaded by the dataset that needs it. Collective.
    ///
    /// # Errors
    /// [`CommError`] only.
    pub(crate) fn load(&self, job: &Job, cache: &Cache) -> Result<(), CommError> {
        for descriptor in job.descriptors.redundancy.all() {
            if let Err(error) = self.protection_of(job, cache, descriptor) {
                let (why, next) =
                    (error.agreed()?, "the next dataset tries again, and cannot be written without it");
                job.report.error(&format!("{why}; {next}"));
            }
        }
        Ok(())
    }

    /// Protects this rank's part of a dataset, of which some files may be open already, and records it as prepared.
    /// Collective.
    ///
    /// # Errors
    /// The scheme cannot be loaded or has failed, or the filemap cannot be written.
    pub(crate) fn protect(
        &self,
        job: &Job,
        cache: &Cache,
        record: &mut RankRecord,
        part: &PartDir,
        journal: &Journal,
        opened: Opened,
    ) -> Collective<()> {
        let scheme = self.plugins.scheme(job, &record.protection)?;
        let (name, created) = (&record.protection.scheme, record.dataset.created);
        let phase = SchemePhase::begin(job, name, created, &self.longest);
        let protect = Protect { job, open: &cache.open, scheme: &*scheme, phase: &phase };
        let kept = protect.encode_part(part, record, opened);
        job.agree(kept.and_then(|kept| prepare(job, record, &kept, part, journal)))
    }

    /// Records this rank's part of a dataset as prepared, and as local: its scheme is to protect it later. Collective.
    ///
    /// # Errors
    /// The filemap cannot be written.
    pub(crate) fn leave_local(
        &self,
        job: &Job,
        record: &mut RankRecord,
        part: &PartDir,
        journal: &Journal,
    ) -> Collective<()> {
        record.local = Some(boot_of(job.files()));
        let summed = sum_if_wanted(job, part, record);
        job.agree(summed.and_then(|()| prepare(job, record, &[], part, journal)))
    }

    /// Protects this rank's part of a complete dataset, which is local. Gives its new record. Collective.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect). It is local still.
    pub(crate) fn protect_local(
        &self,
        job: &Job,
        cache: &Cache,
        record: &RankRecord,
        part: &PartDir,
    ) -> Result<RankRecord, background::Failure> {
        let scheme = self.plugins.scheme(job, &record.protection)?;
        let local = LocalPart { record: record.clone(), part: part.clone(), scheme };
        background::protect(job, &cache.open, &self.longest, local)
    }

    /// Gives this rank's record to its neighbours, and gets theirs. Collective.
    pub(crate) fn exchange_records(
        &self,
        job: &Job,
        record: &RankRecord,
    ) -> Collective<Result<Vec<RankRecord>, RedundancyError>> {
        let scheme = self.plugins.scheme(job, &record.protection)?;
        Ok(in_set(&*job.comm, &record.members, |set| {
            neighbours::exchange(set, record, scheme.losses_survived(set.size())?)
        }))
    }

    /// Records a part of a complete dataset once more, as more is known of it by now. Collective.
    pub(crate) fn record_anew(&self, job: &Job, record: &RankRecord, part: &PartDir) -> Collective<()> {
        let kept = self.exchange_records(job, record)?;
        job.agree(kept.and_then(|kept| {
            Ok(Journal::add(job.files(), part, &[Entry::Prepared(record, &kept), Entry::Complete])?)
        }))
    }

    /// The ranks of this rank's redundancy set under a descriptor whose [`protection`](Self::protection_of) is known, and their
    /// nodes.
    pub(crate) fn members(&self, job: &Job, descriptor: &Redundancy) -> (Vec<Rank>, Vec<String>) {
        let sets = self.sets.borrow();
        let members = sets.get(&descriptor.index).map_or_else(|| vec![job.rank()], |set| set.members.clone());
        let nodes = members.iter().map(|&member| job.nodes.name(member).to_owned()).collect();
        (members, nodes)
    }
}

fn prepare(
    job: &Job,
    record: &RankRecord,
    kept: &[RankRecord],
    part: &PartDir,
    journal: &Journal,
) -> Result<(), RedundancyError> {
    Ok(journal.append(job.files(), &Entry::Prepared(record, kept)).at("write", &part.filemap())?)
}

/// The losses that all ranks survive. Collective.
fn least<V: AsRef<[Survives]> + AsMut<[Survives]>>(job: &Job, mut own: V) -> Result<V, CommError> {
    let numbers: Vec<u64> = own.as_ref().iter().map(|survives| survives.to_number()).collect();
    let numbers = all_reduce(&*job.comm, numbers, Op::Min)?;
    own.as_mut().iter_mut().zip(numbers).for_each(|(own, all)| *own = Survives::of_number(all));
    Ok(own)
}

/// A set takes its members from different failure groups, and `RS` needs more of them than may fail. Ranks that are all in one
/// group are not protected by any scheme, which is reported.
fn expect_groups(descriptor: &Redundancy, groups: usize) -> Result<(), Error> {
    let Redundancy { scheme, set_failures, group, .. } = descriptor;
    if scheme != "RS" || groups == 1 || groups > *set_failures as usize {
        return Ok(());
    }
    let why = format!(
        "RS survives {set_failures} failures in sets of at least {} failure groups ({group}), and this job has {groups}: set \
         SCR_SET_FAILURES={less}, or SET_FAILURES={less} where its CKPT line says it, choose XOR, or run on more nodes",
        u64::from(*set_failures) + 1,
        less = groups - 1
    );
    Err(Error::Config { why: format!("the datasets would not be protected: {why}") })
}

/// Reports where redundancy costs time and room and gains little.
fn report_needless_redundancy(job: &Job, cache: &Cache) {
    let all = job.descriptors.redundancy.all();
    let needless = all
        .into_iter()
        .filter(|descriptor| uses_redundancy(descriptor) && cache.outlives_nodes(&descriptor.store));
    let pairs: BTreeSet<_> =
        needless.map(|descriptor| (&descriptor.store, descriptor.scheme.as_str())).collect();
    for (store, scheme) in pairs {
        job.report.notice(&format!(
            "all nodes see the store {store}, and the loss of a node takes nothing from it: {scheme} repairs no more than \
             single files there, while SINGLE saves its time and room"
        ));
    }
}

/// Warns where redundancy cannot protect, at every level of messages.
fn warn_unprotected(job: &Job, cache: &Cache, group: &str, placement: &Placement, alone: usize) {
    let used = job.descriptors.redundancy.all().into_iter().any(|descriptor| {
        descriptor.group == group && uses_redundancy(descriptor) && !cache.outlives_nodes(&descriptor.store)
    });
    if alone == 0 || !used {
        return;
    }
    let all = job.comm.size();
    let why = if placement.count() == 1 {
        format!("all ranks are in one failure group ({group} {})", placement.name(job.rank()))
    } else {
        "there are too few failure groups for them".to_owned()
    };
    let cure = match group {
        "NODE" => "run on more nodes".to_owned(),
        group => format!("use GROUP=NODE, or more groups {group}"),
    };
    job.report.warn(&format!(
        "the files of {alone} of {all} ranks in cache are not protected against the loss of a node: {why}; \
         {cure}, or flush often (SCR_FLUSH)"
    ));
}

fn uses_redundancy(descriptor: &Redundancy) -> bool {
    !descriptor.bypass && protects(&descriptor.scheme)
}
