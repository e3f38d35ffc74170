//! The cache of a run: its stores, the datasets in them, and where their files lie.
//!
//! | part | what it is |
//! |---|---|
//! | `store` | a store as this rank reaches it |
//! | `control` | the control directory of a node |
//! | `bases` | where an allocation keeps datasets, for those who clean up |
//! | `dataset` | a complete dataset in cache |
//! | `removed` | directories that are removed while the job runs |
//! | `begin` | a dataset begins: id, folders, filemap |
//! | `eviction` | which datasets stay, and which are evicted: `SCR_CACHE_SIZE` |
//! | `flush_file` | which datasets are in cache, for commands |
//! | `stale` | parts of datasets that cannot be recovered |
//! | `record` | all metadata of one rank's part of a dataset |
//! | `filemap` | the journal of a part: what was recorded when |
//! | `part` | where the files of a part lie, and how it is removed from cache |
//! | `logical_file` | the files of a part, end to end, as one; `checksum` of each in any order |
//! | `loss` | the loss of a part, from redundancy alone to its files, as it shows without reading |
//! | `verify` | reads a part and compares it with its record |
//! | `kept_open` | redundancy files whose memory is reused |
//! | `freeing` | memory of removed files that is given back in a thread |
//! | `room` | whether the old dataset and the new one fit at the same time |
//! | `sharing` | which nodes see the same folder |
//! | `node_dir` | their folders in it |
//! | `shared_files` | files that several ranks write |

pub(crate) mod bases;
mod begin;
mod checksum;
pub(crate) mod control;
pub(crate) mod dataset;
mod eviction;
pub mod filemap;
pub(crate) mod flush_file;
mod freeing;
pub(crate) mod kept_open;
pub(crate) mod logical_file;
pub mod loss;
pub mod node_dir;
pub mod owner;
pub mod part;
pub mod record;
mod removed;
pub mod room;
pub(crate) mod shared_files;
pub(crate) mod sharing;
pub(crate) mod stale;
mod store;
pub(crate) mod verify;

pub(crate) use dataset::{CachedDataset, CheckpointId};
pub(crate) use eviction::{Crowded, FilesGiven};
pub(crate) use store::StoreInUse;

use crate::error::{Doing as _, Error};
use crate::holdings::Standing;
use crate::job::Job;
use crate::typed::gather_values;
use begin::DatasetIds;
use filemap::{Claim, Filemap};
use flush_file::News;
use freeing::Freeing;
use kept_open::KeptOpen;
use owner::Owner;
use part::PartDir;
use record::RankRecord;
use scr_base::fs::{Files, FsError, OwnedDir};
use scr_comm::CommError;
use scr_config::descriptor::Store;
use scr_prefix::ledger::{Dropping, Request};
use scr_prefix::{Between, DatasetDescriptor, FlushEntry, FlushFile, PrefixError, Seq};
use sharing::Sharing;
use stale::StalePart;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The cache of this run, as this rank sees it.
pub(crate) struct Cache {
    stores: Vec<StoreInUse>,
    /// The control directory of this node, where the processes of a job, and those that outlive it, leave each other records.
    control: OwnedDir,
    /// The file layer in which none of these directories is held.
    unheld: Arc<dyn Files>,
    /// Redundancy files that are kept open.
    pub(crate) open: Arc<KeptOpen>,
    freeing: Freeing,
    /// The complete datasets, oldest first.
    datasets: Vec<CachedDataset>,
    /// The output that the application is about to read back. It stays meanwhile.
    offered: Option<u64>,
    /// Parts of datasets that cannot be brought back, which are removed once a newer checkpoint counts.
    stale: Vec<StalePart>,
    /// Whether any rank knows of such a part.
    has_remains: bool,
    /// Parts that another number of ranks wrote. They leave only once a newer checkpoint counts.
    of_other_ranks: Vec<StalePart>,
    /// The numbers in the prefix directory of those that this run reads in the caches, and that the flush file lists.
    lent: BTreeSet<u64>,
    /// The ids that the flush file lists for this run.
    listed: BTreeSet<u64>,
    /// Whether the flush file could not be written, which was said.
    is_unlisted: bool,
    /// The dataset that is listed no more, as it is about to leave.
    leaving: Option<u64>,
    /// The newest checkpoint, if it has left and the flush file is to say so.
    lost: Vec<DatasetDescriptor>,
    /// The datasets of which this rank has found parts that this run cannot use.
    left: Vec<DatasetDescriptor>,
    /// The places of datasets in place of which this rank has found files that are not as they were.
    pub(crate) changed: BTreeSet<Seq>,
    ids: DatasetIds,
    /// Datasets in the prefix directory that this run could not read, for a reason that may pass: they stay there, and it does not
    /// rely on them.
    pub(crate) unread: BTreeSet<u64>,
    /// Datasets in the prefix directory of which it is known that they cannot be deleted.
    pub(crate) undeleted: BTreeSet<u64>,
}

impl Cache {
    /// Makes the control directory, and the job's folders in every store. From here on the job reaches all that lies in them
    /// through their descriptors. Collective.
    ///
    /// # Errors
    /// [`Error`]: a folder cannot be made, or the stores are not shared as the settings say. The same on all ranks.
    pub(crate) fn open(job: &mut Job) -> Result<Self, Error> {
        let sharing = Sharing::new(&*job.comm, &job.nodes)?;
        let (base, seen, control) = control::open(job, &sharing)?;
        let is_known = |store: &Store| store.name == job.descriptors.control.name;
        let known = |store| is_known(store).then(|| (base.clone(), seen.clone()));
        let stores = job.descriptors.enabled().enumerate();
        let stores = stores.map(|(number, store)| store::open(job, store, number, &sharing, known(store)));
        let stores: Vec<_> = stores.collect::<Result<_, _>>()?;
        let dirs = stores.iter().map(|store| &store.root).chain([&control]);
        let unheld = Arc::clone(&job.env.files);
        job.env.files = dirs.fold(Arc::clone(&unheld), |files, dir| dir.held_in(&*files));
        Ok(Self {
            stores,
            control,
            unheld,
            open: Arc::default(),
            freeing: Freeing::default(),
            datasets: Vec::new(),
            offered: None,
            stale: Vec::new(),
            has_remains: false,
            of_other_ranks: Vec::new(),
            lent: BTreeSet::new(),
            listed: BTreeSet::new(),
            is_unlisted: false,
            leaving: None,
            lost: Vec::new(),
            left: Vec::new(),
            changed: BTreeSet::new(),
            ids: DatasetIds { next: 1, end: 1, given_by: None },
            unread: BTreeSet::new(),
            undeleted: BTreeSet::new(),
        })
    }

    /// Whether a flush of this run is copying a dataset to the prefix directory, which has this id there.
    pub(crate) fn arrives_in_prefix(&self, id: u64) -> bool {
        let is_it = |cached: &&CachedDataset| cached.record.dataset.id == id;
        self.datasets.iter().filter(is_it).any(|cached| cached.prefix.is_under_way())
    }

    /// The dataset of this id has been deleted from the prefix directory. Datasets whose files lie only there leave the cache. No
    /// other one of this id can be read there any more.
    pub(crate) fn leave_prefix(&mut self, job: &Job, id: u64) {
        let in_place = |record: &RankRecord| record.dataset.id == id && record.protection.bypass;
        self.ids_of(|cached| in_place(&cached.record)).into_iter().for_each(|id| self.evict(job, id));
        self.lose_copy(id);
    }

    /// The dataset of this id in the prefix directory is whole no more. One in place has no other files.
    pub(crate) fn lose_copy(&mut self, id: u64) {
        for cached in self.datasets.iter_mut().filter(|cached| cached.record.dataset.id == id) {
            match cached.record.protection.bypass {
                true => cached.prefix.supersede(),
                false => cached.prefix.lose(),
            }
        }
    }

    /// The stores, in the order of the settings.
    pub(crate) fn stores(&self) -> &[StoreInUse] {
        &self.stores
    }

    /// The control directory of this node.
    pub(crate) fn control(&self) -> &Path {
        self.control.path()
    }

    /// Place of a store in the list; one that is not configured counts as the first.
    pub(crate) fn store_index(&self, store: &str) -> usize {
        self.stores.iter().position(|known| known.name == store).unwrap_or(0)
    }

    /// The place of this rank's part of a dataset: in a store of this run, whatever the store of the record was called.
    pub(crate) fn part_of(&self, record: &RankRecord) -> PartDir {
        let store = &self.stores[self.store_index(&record.protection.store)];
        PartDir::new(&store.cache, record.cache_id, record.rank)
    }

    /// The place of a part of this rank that comes back: as [`part_of`](Self::part_of) says, unless a dataset of another prefix
    /// directory with the same number lies there. Then it is a folder that has this node's name and that of the prefix directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn place_for(&self, job: &Job, record: &RankRecord) -> Result<PartDir, FsError> {
        let part = self.part_of(record);
        let is_of_other = |map: Filemap| {
            map.other_release.is_some()
                || map.record.is_some_and(|other| Owner::in_job(&other, job) != Owner::This)
        };
        if !Filemap::read(job.files(), &part).is_ok_and(is_of_other) {
            return Ok(part);
        }
        let store = &self.stores[self.store_index(&record.protection.store)];
        let suffix = node_dir::suffix(record.prefix_id.as_ref(), &record.prefix);
        let name = format!("{}{suffix}", job.nodes.name(job.rank()));
        let (assigned, _) = node_dir::assign(&store.root, job.env.uid, std::iter::once(&*name))?;
        let folder = assigned.get(&*name).unwrap_or(&store.cache);
        Ok(PartDir::new(folder, record.cache_id, record.rank))
    }

    /// Whether all nodes see a store, so that the loss of one takes nothing from it.
    pub(crate) fn outlives_nodes(&self, store: &str) -> bool {
        self.stores.iter().any(|known| known.name == store && known.is_global)
    }

    /// The complete datasets, oldest first.
    pub(crate) fn datasets(&self) -> &[CachedDataset] {
        &self.datasets
    }

    /// The complete datasets, oldest first, to be changed.
    pub(crate) fn datasets_mut(&mut self) -> &mut [CachedDataset] {
        &mut self.datasets
    }

    /// Filemaps may have been replaced.
    pub(crate) fn claim_anew(&mut self, job: &Job) {
        for cached in &mut self.datasets {
            drop(std::mem::take(&mut cached.claim));
            cached.claim = Claim::lay(job.files(), &cached.part.filemap());
        }
    }

    /// The ids of those that are meant, oldest first.
    pub(crate) fn ids_of(&self, is_meant: impl Fn(&CachedDataset) -> bool) -> Vec<u64> {
        self.datasets.iter().filter(|cached| is_meant(cached)).map(CachedDataset::id).collect()
    }

    /// A dataset, if it is complete in cache.
    pub(crate) fn dataset(&self, id: u64) -> Option<&CachedDataset> {
        self.datasets.iter().find(|cached| cached.id() == id)
    }

    /// A dataset, to be changed.
    pub(crate) fn dataset_mut(&mut self, id: u64) -> Option<&mut CachedDataset> {
        self.datasets.iter_mut().find(|cached| cached.id() == id)
    }

    /// A newer dataset has the name of this one, or a file of it: it is not read in the prefix directory any more, nor copied
    /// there.
    pub(crate) fn supersede(&mut self, id: u64) {
        self.dataset_mut(id).into_iter().for_each(|cached| cached.prefix.supersede());
    }

    /// The output that the application is about to read back.
    pub(crate) fn offered(&self) -> Option<&CachedDataset> {
        self.dataset(self.offered?)
    }

    /// Offers this dataset, and no other, to be read back.
    pub(crate) fn offer(&mut self, id: Option<u64>) {
        self.offered = id;
    }

    fn is_offered(&self, cached: &CachedDataset) -> bool {
        self.offered == Some(cached.id())
    }

    /// Adds a dataset that has been found or fetched.
    pub(crate) fn insert(&mut self, dataset: CachedDataset) {
        let place = self.datasets.partition_point(|cached| cached.seq() < dataset.seq());
        self.datasets.insert(place, dataset);
    }

    /// Adds a dataset that has just become complete. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn add_complete(&mut self, job: &Job, dataset: CachedDataset) -> Result<(), CommError> {
        self.record_bytes(job, dataset.store, dataset.cache_bytes(job.files()))?;
        job.report.debug(&format!("{} is complete in cache", dataset.record.label()));
        self.insert(dataset);
        self.mark_superseded(&[]);
        Ok(())
    }

    /// A dataset whose files are in cache again is read there, and no more in the prefix directory as long as they were away.
    pub(crate) fn forget_in_place(&mut self, job: &Job) {
        let in_cache = || self.datasets.iter().filter(|other| !other.record.protection.bypass);
        let has_files = |of: &RankRecord| in_cache().any(|other| other.record.is_of_same(of));
        let copies = self.ids_of(|cached| cached.record.protection.bypass && has_files(&cached.record));
        copies.into_iter().for_each(|id| self.remove(job, id));
    }

    /// Removes what is left of datasets that could not be brought back, if this new one counts in their place.
    pub(crate) fn remove_stale_for(&mut self, job: &Job, id: u64) {
        if self.dataset(id).is_some_and(|cached| cached.holding().counts()) {
            let stale = std::mem::take(&mut self.stale);
            self.has_remains = false;
            self.remove_stale(job, &stale);
            let lent = self.ids_of(CachedDataset::is_of_other_ranks);
            lent.into_iter().for_each(|id| self.remove(job, id));
            let of_other_ranks = std::mem::take(&mut self.of_other_ranks);
            self.remove_stale(job, &of_other_ranks);
            self.lent.clear();
            self.freeing.wait();
            self.list_left(job);
        }
    }

    /// Adds a dataset that another number of ranks wrote, and that this run reads in the parts of those.
    pub(crate) fn insert_lent(&mut self, dataset: CachedDataset) {
        self.lent.insert(dataset.record.dataset.id);
        self.insert(dataset);
    }

    /// The prefix directory has what another number of ranks wrote as well, by now: their parts may make room.
    pub(crate) fn keep_saved(&mut self, seq: Seq) {
        let parts = self.of_other_ranks.iter_mut().filter(|part| part.is_at(&[seq]));
        parts.for_each(|part| part.is_saved = true);
    }

    /// Keeps parts that another number of ranks wrote until a newer checkpoint counts. The prefix directory may have the dataset as
    /// well.
    pub(crate) fn keep_of_other_ranks(&mut self, mut parts: Vec<StalePart>, is_saved: bool) {
        parts.iter_mut().for_each(|part| part.is_saved = is_saved);
        self.of_other_ranks.append(&mut parts);
    }

    /// This run restarts from the checkpoint at this place: of those that another number of ranks wrote and that the prefix
    /// directory has as well, it and older ones may make room for a new one. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn release_of_other_ranks(&mut self, job: &Job, loaded: Option<Seq>) -> Result<(), CommError> {
        let is_free = |part: &mut StalePart| crate::holdings::is_spare(part.is_saved, part.seq, loaded);
        self.stale.extend(self.of_other_ranks.extract_if(.., is_free));
        self.has_remains = job.any(!self.stale.is_empty())?;
        Ok(())
    }

    /// Keeps parts that cannot be brought back until a newer checkpoint counts, or needs their room. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn keep_stale(
        &mut self,
        job: &Job,
        stale: Vec<StalePart>,
        left: Vec<DatasetDescriptor>,
        changed: BTreeSet<Seq>,
    ) -> Result<(), CommError> {
        (self.stale, self.left, self.changed) = (stale, left, changed);
        self.has_remains = job.any(!self.stale.is_empty())?;
        Ok(())
    }

    /// Records in the prefix directory that no run may restart from datasets which the user or the application gives up: nodes
    /// that are away may have whole copies. They are those of these ids in cache, those that are `unwanted` of what this run
    /// could not bring back or did not see, those of the index that are meant, and all checkpoints that somebody has gone back
    /// `over`. This is done before they leave the index. Collective.
    ///
    /// # Errors
    /// That could not be recorded, or the index cannot be read.
    pub(crate) fn give_up(
        &mut self,
        job: &Job,
        in_cache: &[u64],
        is_unwanted: impl Fn(&DatasetDescriptor) -> bool,
        which: Dropping<'_>,
        alone: Option<u64>,
        over: Option<Between>,
    ) -> Result<(), Error> {
        let own: Vec<Seq> =
            self.left.iter().filter(|left| is_unwanted(left)).map(DatasetDescriptor::seq).collect();
        let all = match job.any(!own.is_empty())? {
            true => gather_values(&*job.comm, &own)?.unwrap_or_default(),
            false => Vec::new(),
        };
        let cached = in_cache.iter().filter_map(|&id| self.dataset(id)).map(CachedDataset::seq);
        let mut seqs: Vec<Seq> = all.into_iter().flatten().chain(cached).collect();
        // A dataset that an earlier run writes from now on belongs to nobody's past, and has a place in between too.
        let by_name = over.is_none();
        let over = over.filter(|_| !job.run.is_second);
        let recorded = job.do_on_first(|| {
            over.map_or(Ok(()), |over| job.ledger().transact(&Request::GoBack(over)).map(drop))?;
            // No node of this run may have anything of them.
            let unseen = FlushFile::read(job.files(), &job.prefix).unwrap_or_default().entries();
            let unseen = unseen.iter().filter(|entry| by_name && is_unwanted(&entry.dataset));
            seqs.extend(unseen.map(|entry| entry.seq()));
            let mut listed = Vec::new();
            let before = (!job.run.is_second).then_some(job.run.number);
            let request = Request::Withdraw { seqs: &seqs, which: Some(which), alone, before };
            let withdrawn = job.ledger().transact_if(&request, &mut |ledger| {
                let meant = ledger.entries().into_iter().filter(|entry| which.means(entry));
                listed = meant.map(|entry| entry.seq()).collect();
                Ok::<_, PrefixError>(())
            });
            seqs.extend(listed);
            withdrawn.map(drop)
        });
        recorded.doing(RECORDING)?;
        let is_over =
            |entry: &FlushEntry| entry.is_only_checkpoint() && over.is_some_and(|over| over.has(entry.seq()));
        self.list(job, News::GivenUp(&|entry| seqs.contains(&entry.seq()) || is_over(entry)));
        Ok(())
    }

    fn remove_stale(&self, job: &Job, stale: &[StalePart]) {
        let files = job.files();
        let is_held = |part: &PartDir| part.is_held(files);
        let is_free = |stale: &&StalePart| !is_held(&stale.part);
        for stale in stale.iter().filter(|stale| stale.is_unchanged(files)).filter(is_free) {
            self.remove_part(job, &stale.part);
        }
    }

    /// Marks the datasets whose name refers to a newer one, in cache or among those `in_prefix`, which are given by place, name,
    /// and whether they count. One that does not takes only the files that lie in place.
    pub(crate) fn mark_superseded(&mut self, in_prefix: &[(Seq, Vec<u8>, bool)]) {
        let known = |cached: &CachedDataset| {
            (cached.seq(), cached.record.dataset.name.clone(), cached.standing != Standing::Refused)
        };
        let in_cache: Vec<_> = self.datasets.iter().map(known).collect();
        for cached in &mut self.datasets {
            let (own, name, in_place) =
                (cached.seq(), &cached.record.dataset.name, cached.record.protection.bypass);
            let mut all = in_prefix.iter().chain(&in_cache);
            if all.any(|(other, named, counts)| *other > own && named == name && (*counts || in_place)) {
                cached.prefix.supersede();
            }
        }
    }

    /// A checkpoint was refused: the newest older one of its name that is whole here is to be flushed under that name again.
    pub(crate) fn restore_name(&mut self, refused: &CheckpointId) {
        let is_older = |cached: &&mut CachedDataset| {
            cached.seq() < refused.seq && cached.record.dataset.name == refused.name
        };
        let older = self.datasets.iter_mut().rev().find(is_older);
        let is_lost = |older: &CachedDataset| {
            older.standing == Standing::Refused
                || older.record.protection.bypass
                || !older.prefix.is_superseded()
        };
        if let Some(older) = older.filter(|older| !is_lost(older)) {
            older.prefix.give_back();
        }
    }

    /// The folder of the files of a dataset, for logs.
    pub(crate) fn folder_of(&self, job: &Job, record: &RankRecord) -> PathBuf {
        if record.protection.bypass {
            return job.prefix.dir().to_owned();
        }
        self.part_of(record).dataset().to_owned()
    }
}

const RECORDING: &str = "recording that datasets do not count any more";
