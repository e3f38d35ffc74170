//! The schemes of a run, and the sets of ranks that they protect.

use super::background::{self, LocalPart};
use super::error::RedundancyError;
use super::neighbours;
use super::protect::{sum_if_wanted, Protect};
use super::sets::{in_set, OwnSet};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::loss::boot_of;
use crate::cache::part::PartDir;
use crate::cache::record::{Protection, RankRecord};
use crate::cache::verify::Opened;
use crate::cache::Cache;
use crate::error::{Doing as _, Error};
use crate::job::{warn_of, Job};
use crate::plugin::overdue::{LongestCall, PluginPhase};
use crate::plugin::{check_plugins, PluginKind};
use crate::redundancy::plugins::Plugins;
use scr_base::fs::At;
use scr_comm::collective::{all_reduce, Op};
use scr_comm::placement::{Placement, Survives};
use scr_comm::{Collective, CommError, Rank};
use scr_config::descriptor::{protects, Redundancy, NODE};
use scr_config::param::{self, ConfigError};
use scr_plugin_api::{Scheme as _, SetShape};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The schemes in use, and the sets of ranks that protect each other.
pub(crate) struct Schemes {
    /// The plugins in use.
    pub(crate) plugins: Plugins,
    /// How ranks are placed on nodes, and in each failure group.
    placements: BTreeMap<String, Placement>,
    /// This rank's set for each redundancy descriptor whose scheme has been loaded, by its place, and the group that its members
    /// have one rank each of.
    sets: RefCell<BTreeMap<u32, (OwnSet, String)>>,
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
        let schemes = Self::to_read(job);
        let mut wrong = Vec::new();
        if job.rank() == Rank(0) {
            let problems = check_plugins(&schemes.plugins.host, &job.params, &job.descriptors, &mut wrong);
            wrong.extend(warn_of(problems, &job.params, &job.report));
        }
        let agreed = job.agree(ConfigError::unless(wrong, ()));
        agreed.or_else(|error| Err(Error::Config(error.agreed()?.to_string())))?;
        Ok(schemes)
    }

    /// For ranks whose threads bring back what was written with any scheme, and write nothing themselves.
    pub(crate) fn to_read(job: &Job) -> Self {
        let plugins = Plugins::new(&job.env, &job.params);
        let (placements, sets, survives) = (BTreeMap::new(), RefCell::default(), RefCell::default());
        Self { plugins, placements, sets, survives, longest: LongestCall::default() }
    }

    /// Finds out how ranks are placed in the failure group of every redundancy descriptor. Collective.
    ///
    /// # Errors
    /// [`Error`]: a rank has no value for a failure group, or `RS` could not protect a single dataset as the user has chosen it,
    /// unless the job recovers. The same on all ranks.
    pub(crate) fn place_ranks(&mut self, job: &mut Job) -> Result<(), Error> {
        let all = job.descriptors.redundancy.all().into_iter();
        let groups = all.map(|descriptor| descriptor.group.clone()).chain([NODE.to_owned()]);
        for group in groups.collect::<BTreeSet<_>>() {
            let value =
                job.agree(job.group_value(&group)).doing(format_args!("finding the group {group}"))?;
            let placement = job.placement_in(&group, &value)?;
            self.placements.insert(group, placement);
        }
        self.expect_groups(job)
    }

    /// `RS` needs more groups than may fail. With fewer nodes than before, it survives as many failures as they allow: a job that
    /// goes on with less protection is better than one that ends. The same holds where a site has chosen for all jobs, and this one
    /// has few nodes.
    fn expect_groups(&self, job: &mut Job) -> Result<(), Error> {
        let (is_users, me) = (job.params.origin(&param::SET_FAILURES).is_of_user(), job.rank());
        let all = job.descriptors.redundancy.all_mut();
        let mut lessened = Vec::new();
        for descriptor in all.filter(|descriptor| descriptor.scheme == "RS") {
            let must = !job.is_recovery && (is_users || descriptor.origin.is_of_user());
            let (failures, more) = (descriptor.set_failures, u64::from(descriptor.set_failures) + 1);
            let (_, group) =
                self.choose_set(descriptor, if must { failures.saturating_add(1) } else { 2 }, me);
            let groups = u32::try_from(self.placements[group].count()).unwrap_or(u32::MAX);
            // On one node no scheme protects anything, which is reported.
            if groups == 1 || groups > failures {
                continue;
            }
            let less = groups - 1;
            let why = format!(
                "the datasets would not be protected: RS survives {failures} failures in sets of at least {more} failure groups \
                 ({group}), and this job has {groups}: set SCR_SET_FAILURES={less}, or SET_FAILURES={less} where its CKPT line \
                 says it, choose XOR, or run on more nodes"
            );
            if must {
                return Err(Error::Config(why));
            }
            lessened.push(format!("{why}. It goes on with SCR_SET_FAILURES={less}"));
            descriptor.set_failures = less;
        }
        lessened.iter().for_each(|why| job.warn_of_setting(why));
        Ok(())
    }

    /// The set of a rank, with at least `least` members, and the group that it has at most one member of: nodes, if failure groups
    /// would leave ranks without a set.
    fn choose_set<'a>(&'a self, descriptor: &'a Redundancy, least: u32, me: Rank) -> (OwnSet, &'a str) {
        let size = descriptor.set_size;
        let choose = |group| (OwnSet::choose(&self.placements[group], size, least, me), group);
        let (set, group) = choose(&*descriptor.group);
        Some((set, group)).filter(|(set, _)| set.unprotected == 0).unwrap_or_else(|| choose(NODE))
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
            let (set, group) = self.choose_set(descriptor, least, job.rank());
            let members = u32::try_from(set.members.len()).unwrap_or(u32::MAX);
            self.sets.borrow_mut().insert(descriptor.index, (set, group.to_owned()));
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

    /// Loads the schemes of new datasets, so that the first ones need not, and reports what they cannot protect. One that cannot be
    /// loaded now, which is reported, is loaded by the dataset that needs it. Collective.
    ///
    /// # Errors
    /// [`Error::Config`]: a scheme that is loaded refuses its options or the sets of this job, and would refuse every dataset.
    pub(crate) fn load(&self, job: &Job, cache: &Cache) -> Result<(), Error> {
        for descriptor in job.descriptors.redundancy.all() {
            let Err(error) = self.protection_of(job, cache, descriptor) else { continue };
            let why = error.agreed()?;
            if self.plugins.has_opened(PluginKind::Scheme, &descriptor.scheme) && !job.is_recovery {
                return Err(Error::Config(format!("no dataset could be written: {why}")));
            }
            let next = "the next dataset tries again, and cannot be written without it";
            job.report.error(&format!("{why}; {next}"));
        }
        let sets = self.sets.borrow();
        let all = job.descriptors.redundancy.all().into_iter();
        let all = all.filter(|used| !used.bypass && protects(&used.scheme));
        let (shared, others): (Vec<_>, Vec<_>) = all.partition(|used| cache.outlives_nodes(&used.store));
        let gains: BTreeSet<_> = shared.into_iter().map(gain).collect();
        gains.iter().for_each(|little| job.report.notice(little));
        let risks =
            others.into_iter().filter_map(|used| unprotected(job, sets.get(&used.index)?, &used.group));
        risks.collect::<BTreeSet<_>>().iter().for_each(|risk| job.report.warn(risk));
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
        let plugin = ("scheme", &*record.protection.scheme);
        let phase = PluginPhase::begin(job, plugin, &record.dataset, Some(&self.longest));
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
        let members =
            sets.get(&descriptor.index).map_or_else(|| vec![job.rank()], |(set, _)| set.members.clone());
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

/// How little redundancy gains in a store that all nodes see, for its time and room.
fn gain(Redundancy { store, scheme, .. }: &Redundancy) -> String {
    format!(
        "all nodes see the store {store}, and the loss of a node takes nothing from it: {scheme} repairs no more than single files \
         there, while SINGLE saves its time and room"
    )
}

/// What the sets of a descriptor do not protect, whose members should be in different groups `wanted`.
fn unprotected(job: &Job, (set, group): &(OwnSet, String), wanted: &str) -> Option<String> {
    let all = job.comm.size() as usize;
    let too_few = " with more nodes of a set than the scheme survives: the job has too few groups, and its sets are made of nodes; use more";
    let (ranks, of, why) = match (set.unprotected, job.nodes.count()) {
        (0, _) if group == wanted => return None,
        (0, _) => (all, wanted, too_few),
        (alone, 1) => (alone, "node", ": all ranks are on one node; run on more nodes"),
        (alone, _) => (alone, "node", ": there are too few nodes for them; run on more nodes"),
    };
    Some(format!(
        "the files of {ranks} of {all} ranks in cache are not protected against the loss of a {of}{why}, or flush often \
         (SCR_FLUSH)"
    ))
}
