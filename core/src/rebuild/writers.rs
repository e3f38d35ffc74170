//! Brings back a dataset that another number of ranks wrote: threads of the processes that are there stand for those ranks, and do what
//! the ranks themselves would do after a restart. Each of them has its part in a cache at the end, or nothing has changed.
//!
//! The threads talk over TCP, as the communicator of the application is for its own thread, and has another number of ranks.

use super::parts::{self, LocalPart};
use super::recover::{self, Recovered, Restored};
use super::{OtherSize, Rebuild};
use crate::cache::record::DatasetKey;
use crate::comm::collective::{all_gather, all_reduce, barrier, Op};
use crate::comm::tcp;
use crate::comm::{Collective, CommError, Rank};
use crate::job::Job;
use crate::message::Reporter;
use crate::parallel;
use crate::param;
use crate::placement::{Placement, Survives};
use crate::redundancy::schemes::Schemes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A dataset of another number of ranks that is whole in the caches of this run.
pub(crate) struct BroughtBack {
    /// The ranks that have the parts of those who wrote it, in their order; the same on all ranks.
    pub(crate) hosts: Vec<Rank>,
    /// The parts that this rank has.
    pub(crate) parts: Vec<Restored>,
    /// How many nodes may be lost now without the loss of the dataset; the same on all ranks.
    pub(crate) survives: Survives,
}

/// Brings back a dataset with all ranks that wrote it. What a process has of it in its caches stays there, and lost parts are spread over
/// the nodes. Collective.
///
/// # Errors
/// Why that cannot be done. Then nothing of the dataset is lost that was there.
pub(crate) fn bring_back(on: Rebuild<'_>, other: &OtherSize) -> Collective<BroughtBack> {
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
        let job = job(Box::new(comm));
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
    let mut least = [least.to_number()];
    all_reduce(&*job.comm, &mut least, Op::Min)?;
    Ok(BroughtBack { hosts, parts, survives: Survives::of_number(least[0]) })
}

/// Which rank has which part, by the rank that wrote it: the best copy counts, and a part of which there is none is to come to a node
/// that has as few as possible. Collective.
fn find_hosts(job: &Job, other: &OtherSize) -> Result<Vec<Rank>, CommError> {
    let own: Vec<u8> = other.parts.iter().flat_map(|part| offer(job, part)).collect();
    let all = all_gather(&*job.comm, &own)?;
    let mut best: BTreeMap<u32, (u8, Reverse<Rank>)> = BTreeMap::new();
    for rank in (0..job.comm.size()).map(Rank) {
        for offer in all.get(rank).chunks_exact(OFFER) {
            let writer = u32::from_be_bytes([offer[0], offer[1], offer[2], offer[3]]);
            let found = best.entry(writer).or_insert((0, Reverse(rank)));
            *found = (*found).max((offer[4], Reverse(rank)));
        }
    }
    let known = |writer| best.get(&writer).map(|(_, Reverse(rank))| *rank);
    let hosts: Vec<Option<Rank>> = (0..other.record.ranks()).map(known).collect();
    let mut on_node = vec![0_u32; job.nodes.count()];
    let mut on_rank = vec![0_u32; job.comm.size() as usize];
    for host in hosts.iter().flatten() {
        on_node[job.nodes.number(*host) as usize] += 1;
        on_rank[host.index()] += 1;
    }
    let mut least_busy = || {
        let load = |rank: &Rank| (on_node[job.nodes.number(*rank) as usize], on_rank[rank.index()], *rank);
        let host = (0..job.comm.size()).map(Rank).min_by_key(load).unwrap_or(Rank(0));
        on_node[job.nodes.number(host) as usize] += 1;
        on_rank[host.index()] += 1;
        host
    };
    Ok(hosts.into_iter().map(|host| host.unwrap_or_else(&mut least_busy)).collect())
}

/// The rank that wrote a part, and how good the copy of this rank is.
fn offer(job: &Job, part: &LocalPart) -> [u8; OFFER] {
    let (has_data, has_redundancy, is_readable, _) = part.inspected(job.files()).quality();
    let quality = u8::from(has_data) << 2 | u8::from(has_redundancy) << 1 | u8::from(is_readable);
    let [a, b, c, d] = part.owner.0.to_be_bytes();
    [a, b, c, d, quality]
}

/// The parts that each of the ranks for which threads stand here reports: its own, and the first one also the copies that are of no more
/// use.
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
    let recovered = recover::recover(on, key, &local, reports, &BTreeSet::new()).map_err(lost_touch)?;
    let Recovered::Restored(restored) = recovered else {
        return Err("it cannot be restored from cache".to_owned());
    };
    let survives = schemes.survive_now(job, cache, std::iter::once(&restored.record));
    let survives = survives.map_err(lost_touch)?.into_iter().min();
    Ok((*restored, survives.unwrap_or(Survives::Nodes(0))))
}

/// A process stands for no more ranks than this: each has a thread with its buffers.
const MOST_THREADS: usize = 128;
/// Bytes that say what a rank has of one part.
const OFFER: usize = 5;
