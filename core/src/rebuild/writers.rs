//! Brings back a dataset that another number of ranks wrote: threads of the processes that are there stand for those ranks, and
//! do what the ranks themselves would do after a restart. Each of them has its part in a cache at the end, or nothing has
//! changed.
//!
//! The threads talk over TCP, as the communicator of the application is for its own thread, and has another number of ranks.

use super::parts::{self, LocalPart};
use super::recover::{self, Recovered, Restored};
use super::{OfOtherRanks, Rebuild};
use crate::cache::dataset::PartsOfOthers;
use crate::cache::record::DatasetKey;
use crate::job::Job;
use crate::redundancy::schemes::Schemes;
use crate::typed::{pack, unpack};
use scr_base::message::Reporter;
use scr_base::parallel;
use scr_comm::collective::{all_gather, all_reduce, barrier, Op};
use scr_comm::placement::{Placement, Survives};
use scr_comm::tcp;
use scr_comm::{Collective, CommError, Rank};
use scr_config::param;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Brings back a dataset with all ranks that wrote it. The parts that a process has in its caches stay there, and lost parts are
/// spread over the nodes. Gives all parts, and how many nodes may be lost now without the loss of the dataset. Collective.
///
/// # Errors
/// Why that cannot be done. Then nothing of the dataset is lost that was there.
pub(crate) fn bring_back(on: Rebuild<'_>, other: &OfOtherRanks) -> Collective<(PartsOfOthers, Survives)> {
    let job = on.job;
    let hosts = find_hosts(job, other)?;
    let writers = || (0..).map(Rank).zip(&hosts);
    let own: Vec<Rank> =
        writers().filter(|(_, host)| **host == job.rank()).map(|(writer, _)| writer).collect();
    job.agree(match own.len() {
        0..=MOST_THREADS => Ok(()),
        threads => Err(format!("that would take {threads} threads, and at most {MOST_THREADS} are possible")),
    })?;
    let (ip, limits) = job.network()?;
    let size = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let comms = tcp::connect_as(&*job.comm, ip, &limits, &own, size)?;
    let nodes = Placement::of(hosts.iter().map(|host| job.nodes.name(*host).to_owned()).collect());
    let threads = u32::try_from(own.len()).unwrap_or(u32::MAX).max(1);
    let processors = (job.processors / threads).max(1);
    let stand_ins = deal(&own, &other.parts).into_iter().zip(comms);
    let stand_ins = stand_ins.map(|(parts, comm)| (job.for_thread(), comm, parts)).collect();
    let key = DatasetKey::of(&other.record);
    let restored = parallel::each(stand_ins, |(job, comm, mut parts)| {
        let job = job(Rc::new(comm.ending_together()));
        let level = job.params.get(&param::DEBUG);
        let report = Reporter::new(job.env.output.clone(), job.rank(), nodes.name(job.rank()), level);
        let job = Job { nodes: nodes.clone(), report, processors, ..job };
        let schemes = Schemes::to_read(&job);
        restore(Rebuild { job: &job, schemes: &schemes, ..on }, key, &mut parts)
    });
    let restored = restored.map_err(|error| error.to_string());
    let restored = restored.and_then(|all| all.into_iter().collect::<Result<Vec<_>, String>>());
    let (parts, survives): (Vec<_>, Vec<_>) = job.agree(restored)?.into_iter().unzip();
    let least = survives.into_iter().min().unwrap_or(Survives::All);
    let [least] = all_reduce(&*job.comm, [least.to_number()], Op::Min)?;
    let here = parts.into_iter().map(|restored| (restored.record, restored.part)).collect();
    Ok((PartsOfOthers::claim(job.files(), hosts, here), Survives::of_number(least)))
}

/// Which rank has which part, by the rank that wrote it: the best copy counts. A part of which there is none is to come to a node
/// that has no other part of its redundancy set, where there is one, so that one loss does not take both; and to one that has as
/// few parts as possible. Collective.
fn find_hosts(job: &Job, other: &OfOtherRanks) -> Result<Vec<Rank>, CommError> {
    let own: Vec<Offer> = other.parts.iter().flat_map(|part| offers(job, part)).collect();
    let all = all_gather(&*job.comm, &pack(&own)?)?;
    let mut best: BTreeMap<u32, (u8, Reverse<Rank>)> = BTreeMap::new();
    let mut set_of: BTreeMap<u32, u32> = BTreeMap::new();
    for rank in (0..job.comm.size()).map(Rank) {
        for (writer, set, quality) in unpack::<Vec<Offer>>(rank, all.get(rank))? {
            set_of.insert(writer, set);
            if quality > 0 {
                let found = best.entry(writer).or_insert((0, Reverse(rank)));
                *found = (*found).max((quality, Reverse(rank)));
            }
        }
    }
    let mut load = Load::of(job);
    best.iter().for_each(|(writer, (_, Reverse(host)))| load.put(*host, set_of.get(writer)));
    let mut host = |writer: u32| match best.get(&writer) {
        Some((_, Reverse(host))) => *host,
        None => load.put_lost(set_of.get(&writer)),
    };
    Ok((0..other.record.ranks()).map(&mut host).collect())
}

/// The number of parts of a dataset that each node and each rank has.
struct Load<'a> {
    job: &'a Job,
    on_node: Vec<u32>,
    on_rank: Vec<u32>,
    /// The redundancy sets that a node has parts of.
    sets: BTreeSet<(u32, u32)>,
}

impl<'a> Load<'a> {
    fn of(job: &'a Job) -> Self {
        let (on_node, on_rank) = (vec![0; job.nodes.count()], vec![0; job.comm.size() as usize]);
        Self { job, on_node, on_rank, sets: BTreeSet::new() }
    }

    fn put(&mut self, host: Rank, set: Option<&u32>) {
        let node = self.job.nodes.number(host);
        self.on_node[node as usize] += 1;
        self.on_rank[host.index()] += 1;
        self.sets.extend(set.map(|set| (node, *set)));
    }

    fn put_lost(&mut self, set: Option<&u32>) -> Rank {
        let load = |rank: &Rank| {
            let node = self.job.nodes.number(*rank);
            let has_mate = set.is_some_and(|set| self.sets.contains(&(node, *set)));
            (has_mate, self.on_node[node as usize], self.on_rank[rank.index()], *rank)
        };
        let host = (0..self.job.comm.size()).map(Rank).min_by_key(load).unwrap_or(Rank(0));
        self.put(host, set);
        host
    }
}

/// A rank's statement about one part of a dataset: the rank that wrote it, the first of those that it shares its redundancy with,
/// and how good the copy is that there is; 0 for none.
type Offer = (u32, u32, u8);

/// Offers of the part that this rank has, and of the parts of its mates, of which it may have nothing.
fn offers(job: &Job, part: &LocalPart) -> Vec<Offer> {
    let (has_data, has_redundancy, is_readable, _) = part.inspected(job.files()).quality();
    let quality = 1 << 3 | u8::from(has_data) << 2 | u8::from(has_redundancy) << 1 | u8::from(is_readable);
    let members = part.map.record.iter().flat_map(|record| &record.members).map(|member| member.0);
    let set = members.clone().min().unwrap_or(part.owner.0);
    let mates = members.filter(|member| *member != part.owner.0);
    std::iter::once((part.owner.0, set, quality)).chain(mates.map(|writer| (writer, set, 0))).collect()
}

/// The parts that each of the ranks for which threads stand here reports: its own, and the first one also the copies that are of
/// no more use.
fn deal(own: &[Rank], parts: &[LocalPart]) -> Vec<Vec<LocalPart>> {
    let mut dealt: Vec<Vec<LocalPart>> = own.iter().map(|_| Vec::new()).collect();
    for part in parts {
        let place = own.iter().position(|writer| *writer == part.owner).unwrap_or(0);
        dealt.get_mut(place).into_iter().for_each(|list| list.push(part.clone()));
    }
    dealt
}

/// Restores the part of the rank that this thread stands for. Gives why that cannot be done. Collective over all such threads.
fn restore(
    on: Rebuild<'_>,
    key: DatasetKey,
    parts: &mut [LocalPart],
) -> Result<(Restored, Survives), String> {
    let lost_touch = |error: CommError| error.to_string();
    let Rebuild { job, cache, schemes, .. } = on;
    // Those that cannot reach each other find that out before anything is done.
    barrier(&*job.comm).map_err(lost_touch)?;
    let reports = parts::exchange(&*job.comm, job.files(), parts).map_err(lost_touch)?;
    let local: Vec<&LocalPart> = parts.iter().collect();
    let reports = reports.get(&key).map_or(&[][..], Vec::as_slice);
    let recovered =
        recover::recover(on, key, &local, reports, (&BTreeSet::new(), false)).map_err(lost_touch)?;
    let Recovered::Restored(restored) = recovered else {
        return Err("it cannot be restored from cache".to_owned());
    };
    let survives = schemes.survive_now(job, cache, std::iter::once(&restored.record));
    let survives = survives.map_err(lost_touch)?.into_iter().min();
    Ok((*restored, survives.unwrap_or(Survives::Nodes(0))))
}

/// A process stands for no more ranks than this: each has a thread with its buffers.
const MOST_THREADS: usize = 128;
