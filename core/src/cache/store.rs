//! The stores of a run, as its ranks reach them. See docs/user/configuration.md.
//!
//! A run detects at its start which nodes see the same folder. If several do, each keeps its data in its own folder there, and
//! all of them take care of the data of every node, even of a lost one.

use super::node_dir;
use super::room::MemoryLimits;
use super::sharing::{Seen, Sharing};
use crate::error::{Doing as _, Error};
use crate::job::Job;
use scr_base::fs::{EntryName, OwnedDir};
use scr_comm::collective::route;
use scr_comm::placement::Placement;
use scr_comm::{AnyError, Collective, CommError, Rank};
use scr_config::descriptor::{Evict, Store, View, WORLD};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A store, as this rank reaches it.
pub(crate) struct StoreInUse {
    /// Its name: the base as it was configured, the same on all ranks.
    pub(crate) name: String,
    /// The cache directory of this job on it.
    pub(crate) root: OwnedDir,
    /// The place of this rank's new datasets: the job's cache directory, or this node's folder in it.
    pub(crate) cache: PathBuf,
    /// The suffix of the nodes' names in the names of their folders there.
    pub(crate) suffix: String,
    /// Which ranks see the same folder.
    pub(crate) placement: Placement,
    /// Whether all nodes do by their configuration.
    pub(crate) is_global: bool,
    /// How many datasets it keeps.
    pub(crate) count: u64,
    pub(crate) evict: Evict,
    /// Bytes that it is expected to hold, where that was said.
    pub(crate) size: Option<u64>,
    /// The limits of the memory of this process, for a store in memory.
    pub(crate) memory: MemoryLimits,
    /// Bytes that the last dataset took, on the first rank of those that share it.
    pub(crate) last_bytes: u64,
    /// Whether a dataset has failed there for want of room.
    pub(crate) was_full: bool,
    /// Whether the user knows that old datasets leave early.
    pub(crate) warned_crowded: bool,
}

/// Makes the job's folder in a store. If it is that of the control directories, that is made already and `known`, with who sees it.
/// Collective.
///
/// # Errors
/// The folder cannot be made, or nodes that are said to share the store do not.
pub(super) fn open(
    job: &Job,
    store: &Store,
    number: usize,
    sharing: &Sharing<'_>,
    known: Option<(OwnedDir, Seen)>,
) -> Result<StoreInUse, Error> {
    let doing = format!("making the cache folder on {} (SCR_CACHE_BASE, or a STORE line)", store.name);
    let make = if store.mkdir { OwnedDir::make } else { OwnedDir::make_in };
    let made = || make(job.files(), &store.path, &job.job_folder(), job.env.uid);
    let (root, seen) = known.unzip();
    let group = job.group_value(&store.group).map_err(AnyError::from);
    let own = group.and_then(|group| Ok((group, root.map_or_else(made, Ok)?)));
    let (group, root) = job.agree(own).doing(&doing)?;
    let look = || {
        job.report_other_name(&store.path, &root);
        sharing.of(&root, number)
    };
    let seen = seen.map_or_else(look, Ok).doing(&doing)?;
    let is_global = store.view == View::Global;
    let said = job.placement_in(if is_global { WORLD } else { &store.group }, &group)?;
    check(job, store, &said, &seen)?;
    let (placement, suffix) = (seen.placement, node_dir::suffix_of(job));
    let cache = if is_global || placement.count() < job.nodes.count() || job.is_part() {
        own_folder(job, &placement, &root, &suffix).doing(&doing)?.below(root.path())
    } else {
        root.path().to_owned()
    };
    Ok(StoreInUse {
        name: store.name.clone(),
        root,
        cache,
        suffix,
        placement,
        is_global,
        count: store.count,
        evict: store.evict,
        size: store.size,
        memory: MemoryLimits::default(),
        last_bytes: 0,
        was_full: false,
        warned_crowded: false,
    })
}

/// Compares the configuration of a store with what was detected.
fn check(job: &Job, store: &Store, said: &Placement, seen: &Seen) -> Result<(), Error> {
    let node = |rank: Rank| format!("{} (rank {rank})", job.nodes.name(rank));
    let (name, origin) = (&store.name, &store.origin);
    if let Some((one, other)) = said.first_apart_in(&seen.placement) {
        let identity =
            seen.error.as_ref().map_or(Ok(()), |error| Err(format!("cannot make a file in it: {error}")));
        job.agree(identity).doing(format_args!("looking at the store {name}"))?;
        return Err(Error::Config(format!(
            "{origin}: the store {name} has GROUP={} VIEW={}, but {} does not see there what {} does: name a folder that \
             they share, or else set GROUP=NODE VIEW=PRIVATE",
            store.group,
            store.view_name(),
            node(other),
            node(one),
        )));
    }
    let is_used = job.descriptors.redundancy.all().iter().any(|descriptor| descriptor.store == *name);
    if let Some((one, other)) = seen.placement.first_apart_in(said).filter(|_| is_used) {
        job.warn_of_setting(&format!(
            "{origin}: {} and {} see the same files in the store {name}, which has GROUP={} VIEW={}: each node gets a folder of \
             its own there. Say VIEW=GLOBAL if that is meant, or else name a folder on the nodes themselves",
            node(one),
            node(other),
            store.group,
            store.view_name(),
        ));
    }
    Ok(())
}

/// The name of this node's own folder in a directory that others see as well. The first rank of those that do finds one
/// for each node, by the name of the node and the suffix. Collective.
pub(crate) fn own_folder(
    job: &Job,
    placement: &Placement,
    dir: &OwnedDir,
    suffix: &str,
) -> Collective<EntryName> {
    let name_of = |mate: Rank| format!("{}{suffix}", job.nodes.name(mate));
    let leads = placement.leader(job.rank()) == job.rank();
    let mates = if leads { placement.mates(job.rank()) } else { Vec::new() };
    let nodes: BTreeSet<String> = mates.iter().copied().map(name_of).collect();
    let assigned = match node_dir::assign(dir, job.env.uid, nodes.iter().map(String::as_str)) {
        Ok((assigned, unnamed)) => {
            unnamed.iter().for_each(|error| job.report.error_here(&scr_base::describe(error)));
            Ok(assigned)
        }
        Err(error) => Err(scr_base::describe(&error)),
    };
    let assigned = job.agree(assigned)?;
    let folder_for = |mate: Rank| {
        let path = assigned.get(name_of(mate).as_str()).and_then(|path| path.file_name());
        (mate, path.unwrap_or_default().as_bytes().to_vec())
    };
    // Base folders may have different names on different nodes.
    let received = route(&*job.comm, mates.iter().copied().map(folder_for).collect())?;
    let folder = received.first().and_then(|(_, folder)| EntryName::parse(folder));
    Ok(folder.ok_or(CommError::Malformed { from: Rank(0), what: "the name of a folder" })?)
}
