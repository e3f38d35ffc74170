//! `flush.scr`: where the datasets of this allocation are, so that the commands know what is left to copy.
//!
//! ```text
//! DATASET/<id>/{DSETDESC/<descriptor>, CKPT/1, OUTPUT/1, LOCATION/{CACHE, PFS, FLUSHING, SYNC_FLUSHING}, NAME/<name>, BYPASS/1,
//!     REPLACED/<id>, KEPT/<JSON>}
//! LOST/<id>/{DSETDESC/<descriptor>, CKPT/1, OUTPUT/1, NAME/<name>}
//! PREFIX_RANDOM_ID/<random id of the prefix directory>
//! ```
//!
//! Only scr writes these: the random id, a copy; `LOST`, the checkpoints that have made room for a newer one, while that is not
//! complete; `REPLACED`, for one that was not flushed since the dataset of that id, which is newer, has files of it; and what
//! [`InCache`] has.

use super::fields::{alter, flag, ids, set_or_remove};
use super::shared::{self, Shared};
use super::{DatasetDescriptor, Ids, Index, Prefix, PrefixError, PrefixId, Rank2File, RestartPoint};
use scr_base::fs::{Durability, Files};
use scr_comm::placement::Survives;
use scr_plugin_api::KvTree;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::ops::Deref;
use std::time::Duration;

/// The file, as it is in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlushFile {
    tree: KvTree,
}

/// The place of a dataset, or the place that it is on its way to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In cache.
    Cache,
    /// On the parallel file system, complete.
    Prefix,
    /// Being copied while the application continues.
    Flushing,
    /// Being copied while the application waits.
    SyncFlushing,
}

/// The entry of one dataset. It reads like the descriptor of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushEntry {
    /// Its places.
    pub locations: Vec<Location>,
    /// Its descriptor. Where that could not be read it has only number, name and kind.
    pub dataset: DatasetDescriptor,
    /// The newer dataset that has its name or files of it, if a flush has found one.
    pub replaced_by: Option<u64>,
    /// The record that the job keeps of its copy in cache.
    pub in_cache: InCache,
}

/// The record that a job keeps of a dataset in cache for those who look at it from outside, who may reach no node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InCache {
    /// Whether the application wrote its files under the prefix directory, and the cache has only records of it.
    #[serde(skip)]
    pub bypass: bool,
    /// The scheme that protects it. `None` if its files lie in the prefix directory, or nothing was recorded.
    pub scheme: Option<String>,
    /// Whether the scheme has not protected it yet.
    pub is_local: bool,
    /// How many nodes may be lost.
    pub survives: Option<Survives>,
    /// How long after the checkpoint before it, in the same run, it was complete.
    pub after: Option<Duration>,
    /// Why no run restarts from it: the application could not, or the last run that looked for it has found wrong bytes. Other
    /// nodes may have it whole.
    pub damage: Option<String>,
}

impl Deref for FlushEntry {
    type Target = DatasetDescriptor;

    fn deref(&self) -> &DatasetDescriptor {
        &self.dataset
    }
}

impl FlushEntry {
    /// The allocation that has it in cache, where that is known.
    pub fn allocation(&self) -> Option<&str> {
        Some(self.job_id.as_str()).filter(|of| !of.is_empty())
    }

    /// Whether what a cache has of it must not be forgotten: output, and a checkpoint, that are not in the prefix directory,
    /// while nothing there replaces the checkpoint.
    pub fn is_still_wanted(&self, is_replaced: impl FnOnce(RestartPoint) -> bool) -> bool {
        !self.is_at(Location::Prefix) && (self.output || !is_replaced(self.restart_point()))
    }

    /// Whether another allocation has gone on from an older checkpoint though this one was in cache, and nobody has saved it:
    /// what is at `newer` was not made from it.
    pub fn is_passed_over(&self, newer: &Self) -> bool {
        let is_other = self.allocation().is_some_and(|own| newer.allocation() != Some(own));
        is_other && self.is_unsaved_before(newer.seq().run)
    }

    /// Whether it is a checkpoint of an earlier run, and nobody has saved it.
    pub fn is_unsaved_before(&self, run: u64) -> bool {
        self.checkpoint && !self.is_at(Location::Prefix) && self.seq().run < run
    }

    /// Its number in the index, if that has it whole. A cache may have what it has fetched under another id.
    fn id_in(&self, index: &Index) -> Option<u64> {
        let entry = index.id_of(&self.name).and_then(|id| index.entry(id))?;
        let is_this = entry.id == self.id || entry.seq().run == self.seq().run;
        (entry.is_valid() && is_this).then_some(entry.id)
    }

    /// Whether the index has this very dataset whole, under its own id.
    fn is_whole_in(&self, index: &Index) -> bool {
        index.entry(self.id).is_some_and(|entry| {
            let is_this = entry.name == self.name && entry.seq() == self.seq();
            let is_known_other =
                entry.dataset.as_ref().is_some_and(|dataset| !dataset.is_same(&self.dataset));
            entry.is_valid() && is_this && !is_known_other
        })
    }

    /// The newer dataset that the index has whole and for which a flush of this one is refused: a flush has found it, or it has
    /// the name of this one.
    pub fn replaced_in(&self, index: &Index) -> Option<u64> {
        let own = index.seq_of(&self.dataset);
        let is_newer = |id: &u64| index.entry(*id).is_some_and(|newer| newer.is_valid() && newer.seq() > own);
        self.replaced_by.filter(is_newer).or_else(|| index.id_of(&self.name).filter(is_newer))
    }

    /// Whether a newer dataset that the index has whole has its name.
    pub fn has_lost_name(&self, index: &Index) -> bool {
        self.replaced_in(index).is_some_and(|newer| index.id_of(&self.name) == Some(newer))
    }

    /// Whether it is a checkpoint in a cache, of this allocation or another one.
    pub fn is_cached_checkpoint(&self) -> bool {
        self.checkpoint && self.is_at(Location::Cache)
    }

    /// Whether it is to be copied to the prefix directory, or listed there.
    pub fn needs_flush(&self) -> bool {
        !self.is_at(Location::Prefix) && self.replaced_by.is_none()
    }

    /// Whether the nodes have its files.
    pub fn is_on_nodes(&self) -> bool {
        self.is_at(Location::Cache) && !self.in_cache.bypass
    }

    /// The place of a dataset that the index does not have, in words.
    pub fn where_unlisted(&self) -> &'static str {
        match self.in_cache.bypass {
            true => "lies in the prefix directory, whose index does not list it",
            false => "is in cache only",
        }
    }

    /// Whether it is there. The cache also has one in bypass mode, without the files.
    pub fn is_at(&self, location: Location) -> bool {
        self.locations.contains(&location)
    }
}

impl InCache {
    fn write_into(&self, tree: &mut KvTree) {
        set_or_remove(tree, BYPASS, self.bypass.then_some(1));
        tree.set_json(KEPT, self);
    }

    /// What cannot be read counts as not recorded.
    fn from_tree(tree: &KvTree) -> Self {
        let bypass = flag(tree, BYPASS).ok().flatten().unwrap_or(false);
        Self { bypass, ..tree.json(KEPT).unwrap_or_default() }
    }
}

impl Location {
    /// The marks of a dataset that is being copied.
    pub const UNDER_WAY: [Location; 2] = [Location::Flushing, Location::SyncFlushing];
    const ALL: [Location; 4] =
        [Location::Cache, Location::Prefix, Location::Flushing, Location::SyncFlushing];

    /// Its key in the file.
    pub fn key(self) -> &'static str {
        match self {
            Location::Cache => "CACHE",
            Location::Prefix => "PFS",
            Location::Flushing => "FLUSHING",
            Location::SyncFlushing => "SYNC_FLUSHING",
        }
    }
}

impl Shared for FlushFile {
    // It only helps the commands, and every start rewrites it: nothing waits for stable storage, which on a busy disk takes
    // longer than all else that a checkpoint does.
    const WAIT: Durability = Durability::Unsynced;
    const NAME: &'static str = "flush.scr";

    fn tree_mut(&mut self) -> &mut KvTree {
        &mut self.tree
    }
}

impl FlushFile {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// It is damaged or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Self, PrefixError> {
        Ok(shared::read(files, prefix)?.unwrap_or_default())
    }

    /// Whether a dataset is one of the runs of this prefix directory, as far as `ids.scr`, this file and the index tell.
    pub fn knows(files: &dyn Files, prefix: &Prefix, dataset: &DatasetDescriptor) -> bool {
        let is_it = |other: &DatasetDescriptor| other.id == dataset.id && other.is_same(dataset);
        if !matches!(Ids::read(files, prefix), Ok(own) if !own.has_begun(dataset.run)) {
            return true;
        }
        let (Ok(Some(cached)), Ok(index)) = (shared::read::<Self>(files, prefix), Index::read(files, prefix))
        else {
            return true;
        };
        let listed = index.entry(dataset.id).and_then(|entry| entry.dataset);
        cached.entries().iter().map(|entry| &entry.dataset).chain(&listed).any(is_it)
    }

    /// The same for who can do without it, as by what the nodes have: a damaged one gives `None`. It is not synced, so that the
    /// power may leave it so.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_undamaged(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        match Self::read(files, prefix) {
            Err(error) if error.is_damage() => {
                let why = scr_base::describe(&error);
                prefix.note(format!(
                    "{why}; it counts as empty, and what the nodes and the index have is used. A checkpoint that only missing nodes \
                     have is not seen"
                ));
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// The same, as far as the prefix directory has the datasets now. Those are missing there that the index does not have, as
    /// they were dropped, replaced, or found damaged since; and one of which files are gone, if it is still in cache, or is
    /// `asked` for. Those are there that the index has, even if a process was killed before this file said so. A dataset whose
    /// name a newer one has in the index is replaced: no copy of it can be saved.
    ///
    /// # Errors
    /// This file cannot be read, or the index, and this file says that datasets are in the prefix directory.
    pub fn read_as_it_is(
        files: &dyn Files,
        prefix: &Prefix,
        asked: Option<u64>,
    ) -> Result<Self, PrefixError> {
        let mut file = Self::read_undamaged(files, prefix)?.unwrap_or_default();
        let names_prefix = |file: &Self| file.entries().iter().any(|entry| entry.is_at(Location::Prefix));
        match Index::read(files, prefix) {
            Err(_) if !names_prefix(&file) => (),
            index => file.compare(files, prefix, &index?, asked),
        }
        Ok(file)
    }

    /// Makes it what [`read_as_it_is`](Self::read_as_it_is) gives, by an index that was read already.
    pub fn compare(&mut self, files: &dyn Files, prefix: &Prefix, index: &Index, asked: Option<u64>) {
        for entry in self.entries() {
            set_or_remove(self.tree.entry(DATASET, entry.id), REPLACED, entry.replaced_in(index));
            let is_recorded = entry.is_at(Location::Prefix);
            let listed = match is_recorded {
                true => entry.id_in(index),
                false => Some(entry.id).filter(|_| entry.is_whole_in(index)),
            };
            let is_looked_at = asked.map_or_else(|| entry.is_at(Location::Cache), |id| id == entry.id);
            // A dataset that cannot be looked at is not lost, and keeps nobody from saving the others.
            let is_lost = |id| matches!(Rank2File::loss(files, prefix, id), Ok(Some(_)));
            match listed.is_some_and(|id| !is_looked_at || !is_lost(id)) {
                true => self.end_flush(entry.id, true),
                false if is_recorded => self.remove_location(entry.id, Location::Prefix),
                false => (),
            }
        }
    }

    /// Reads, changes and writes, while no other process does. A damaged one is replaced by a new one.
    ///
    /// # Errors
    /// As for [`read_undamaged`](Self::read_undamaged); where it cannot be written, the old one is still there.
    pub fn update<R>(
        files: &dyn Files,
        prefix: &Prefix,
        change: impl FnOnce(&mut FlushFile) -> R,
    ) -> Result<R, PrefixError> {
        shared::update(files, prefix, true, change).map(|updated| updated.value)
    }

    /// Parses a tree.
    pub fn of_tree(tree: KvTree) -> Self {
        Self { tree }
    }

    /// The tree as it is written.
    pub fn tree(&self) -> &KvTree {
        &self.tree
    }

    /// All datasets, the newest first.
    pub fn entries(&self) -> Vec<FlushEntry> {
        self.all(DATASET)
    }

    /// The checkpoints that were complete and are nowhere any more, as they have made room for newer ones that are not complete.
    /// The newest first.
    pub fn lost(&self) -> Vec<FlushEntry> {
        self.all(LOST)
    }

    /// The random id of the prefix directory, if it is known here.
    pub fn prefix_id(&self) -> Option<PrefixId> {
        self.tree.text(PREFIX).and_then(PrefixId::parse)
    }

    /// Keeps a copy of that.
    pub fn set_prefix_id(&mut self, id: Option<&PrefixId>) {
        set_or_remove(&mut self.tree, PREFIX, id);
    }

    fn all(&self, key: &str) -> Vec<FlushEntry> {
        let ids = ids(self.tree.get(key)).into_iter();
        let mut entries: Vec<_> = ids.filter_map(|id| self.entry_of(key, id)).collect();
        entries.sort_by_key(|entry| Reverse(entry.seq()));
        entries
    }

    /// One dataset.
    pub fn entry(&self, id: u64) -> Option<FlushEntry> {
        self.entry_of(DATASET, id)
    }

    fn entry_of(&self, key: &str, id: u64) -> Option<FlushEntry> {
        let tree = self.tree.find(key, id)?;
        let locations = tree.get("LOCATION");
        let is_at = |location: &Location| locations.is_some_and(|locations| locations.has(location.key()));
        let is_set = |key| flag(tree, key).ok().flatten().unwrap_or(false);
        let described = tree.get("DSETDESC").and_then(|dataset| DatasetDescriptor::from_tree(dataset).ok());
        Some(FlushEntry {
            dataset: DatasetDescriptor {
                id,
                name: tree.value("NAME").unwrap_or_default().to_vec(),
                checkpoint: is_set("CKPT"),
                output: is_set("OUTPUT"),
                ..described.unwrap_or_default()
            },
            locations: Location::ALL.into_iter().filter(is_at).collect(),
            replaced_by: tree.parse(REPLACED).ok().flatten(),
            in_cache: InCache::from_tree(tree),
        })
    }

    /// Records a dataset in cache, and how it is kept there.
    pub fn record_in_cache(&mut self, dataset: &DatasetDescriptor, kept: &InCache) {
        self.record(dataset, Location::Cache);
        kept.write_into(self.tree.entry(DATASET, dataset.id));
    }

    /// Records a dataset and one place where it is, besides those it was at.
    pub fn record(&mut self, dataset: &DatasetDescriptor, location: Location) {
        locate(self.describe(DATASET, dataset), location);
    }

    /// Records that a dataset was not flushed, as a newer one has its name or files of it.
    pub fn record_replaced(&mut self, id: u64, newer: u64) {
        alter(&mut self.tree, DATASET, id, |entry| entry.set(REPLACED, newer));
    }

    /// Records why a run could not bring back from cache a dataset in which it has found wrong bytes. The next record of it in
    /// cache says that it is whole.
    pub fn record_damage(&mut self, id: u64, why: &str) {
        alter(&mut self.tree, DATASET, id, |entry| {
            InCache { damage: Some(why.to_owned()), ..InCache::from_tree(entry) }.write_into(entry);
        });
    }

    /// Records that a checkpoint has left the cache, and is nowhere else, while no newer one is complete.
    pub fn record_lost(&mut self, dataset: &DatasetDescriptor) {
        self.remove(dataset.id);
        self.describe(LOST, dataset);
    }

    /// Forgets the lost ones of which this is so.
    pub fn forget_lost(&mut self, is_meant: impl Fn(&FlushEntry) -> bool) {
        for lost in self.lost().into_iter().filter(is_meant) {
            self.tree.child(LOST).remove(lost.id.to_string());
        }
        if self.lost().is_empty() {
            self.tree.remove(LOST);
        }
    }

    fn describe(&mut self, key: &str, dataset: &DatasetDescriptor) -> &mut KvTree {
        let entry = self.tree.entry(key, dataset.id);
        dataset.write_into(entry.child("DSETDESC"));
        for (key, is_set) in [("CKPT", dataset.checkpoint), ("OUTPUT", dataset.output)] {
            set_or_remove(entry, key, is_set.then_some(1));
        }
        entry.set_bytes("NAME", &dataset.name);
        entry
    }

    /// Records one more place where a dataset is; false where the file does not have it.
    pub fn add_location(&mut self, id: u64, location: Location) -> bool {
        alter(&mut self.tree, DATASET, id, |entry| locate(entry, location))
    }

    /// Records that a dataset is not there; one that is nowhere is taken out.
    pub fn remove_location(&mut self, id: u64, location: Location) {
        if self.tree.find("DATASET", id).is_none() {
            return;
        }
        let locations = self.tree.entry("DATASET", id).child("LOCATION");
        locations.remove(location.key());
        if locations.is_empty() {
            self.remove(id);
        }
    }

    /// Records that a flush of a dataset has ended, and whether all of it has arrived.
    pub fn end_flush(&mut self, id: u64, has_arrived: bool) {
        if has_arrived {
            self.add_location(id, Location::Prefix);
        }
        Location::UNDER_WAY.into_iter().for_each(|way| self.remove_location(id, way));
    }

    /// Takes a dataset out.
    pub fn remove(&mut self, id: u64) -> bool {
        self.tree.child("DATASET").remove(id.to_string()).is_some()
    }

    /// Takes out these datasets, wherever they are: nobody is to save them any more. Gives whether one of them was not in the
    /// prefix directory.
    pub fn drop_all(&mut self, is_meant: impl Fn(&FlushEntry) -> bool) -> bool {
        let mut dropped = self.entries();
        dropped.retain(|entry| is_meant(entry) && self.remove(entry.id));
        dropped.extend(self.lost().into_iter().filter(|lost| is_meant(lost)));
        self.forget_lost(is_meant);
        dropped.iter().any(|entry| !entry.is_at(Location::Prefix))
    }

    /// The highest id of any dataset.
    pub fn highest_id(&self) -> Option<u64> {
        ids(self.tree.get("DATASET")).last().copied()
    }
}

const PREFIX: &str = "PREFIX_RANDOM_ID";
const DATASET: &str = "DATASET";
const LOST: &str = "LOST";
const REPLACED: &str = "REPLACED";
const BYPASS: &str = "BYPASS";
const KEPT: &str = "KEPT";

/// As C SCR does, which lists the last one first.
fn locate(entry: &mut KvTree, location: Location) {
    let locations = entry.child("LOCATION");
    if !locations.has(location.key()) {
        let before = std::mem::take(locations);
        locations.child(location.key());
        locations.merge(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{damage, scratch, scratch_copy, JOBS};
    use scr_base::fs::RealFiles;
    use std::fs;

    #[test]
    fn the_flush_file_of_c_scr_gives_the_location_of_each_dataset() {
        let (_dir, prefix) = scratch_copy("xor-flush2");
        let file = FlushFile::read(&RealFiles, &prefix).unwrap();
        let entries = file.entries();
        assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [4, 3]);
        assert_eq!(entries[0].locations, [Location::Cache, Location::Prefix]);
        assert_eq!(entries[1].locations, [Location::Cache]);
        let needs_flush = |id| file.entry(id).is_some_and(|entry| entry.needs_flush());
        assert_eq!([4, 3, 2].map(needs_flush), [false, true, false]);
        assert_eq!((entries[1].name.as_slice(), entries[1].checkpoint), (&b"ckpt.3"[..], true));
        assert_eq!(file.highest_id(), Some(4));
    }

    #[test]
    fn recording_what_c_scr_recorded_gives_the_same_tree() {
        for (job, _) in JOBS {
            let (_dir, prefix) = scratch_copy(job);
            let theirs = FlushFile::read(&RealFiles, &prefix).unwrap();
            let mut ours = FlushFile::default();
            for entry in theirs.entries() {
                for location in &entry.locations {
                    ours.record(&entry.dataset, *location);
                }
            }
            assert_eq!(ours, theirs);
            let before = fs::read(prefix.flush_file()).unwrap();
            fs::remove_file(prefix.flush_file()).unwrap();
            FlushFile::update(&RealFiles, &prefix, |file| *file = theirs).unwrap();
            assert_eq!(fs::read(prefix.flush_file()).unwrap(), before);
        }
    }

    #[test]
    fn other_keys_survive_and_an_entry_without_location_is_removed() {
        let (_dir, prefix) = scratch_copy("xor-flush2");
        damage(prefix.flush_file(), |tree| tree.entry("DATASET", 4).set("LATER", "kept"));
        FlushFile::update(&RealFiles, &prefix, |file| {
            file.remove_location(3, Location::Cache);
            file.remove_location(4, Location::Cache);
            file.remove_location(99, Location::Cache);
            assert!(file.add_location(4, Location::Flushing));
            assert!(!file.add_location(99, Location::Flushing));
        })
        .unwrap();
        let file = FlushFile::read(&RealFiles, &prefix).unwrap();
        assert_eq!(file.entry(3), None);
        assert_eq!(file.entry(4).unwrap().locations, [Location::Prefix, Location::Flushing]);
        assert_eq!(file.tree().find("DATASET", 4).unwrap().text("LATER"), Some("kept"));
    }

    #[test]
    fn what_is_recorded_of_a_copy_in_cache_comes_back_and_goes_with_the_next_record() {
        let dataset = DatasetDescriptor { id: 7, checkpoint: true, ..Default::default() };
        let mut file = FlushFile::default();
        let after = Some(Duration::from_micros(5));
        for survives in [Some(Survives::Nodes(0)), Some(Survives::Nodes(2)), Some(Survives::All), None] {
            let kept = InCache { scheme: Some("XOR".to_owned()), survives, after, ..InCache::default() };
            file.record_in_cache(&dataset, &kept);
            assert_eq!(file.entry(7).unwrap().in_cache, kept);
        }
        file.record_damage(7, "torn");
        let kept = file.entry(7).unwrap().in_cache;
        assert_eq!((kept.scheme.as_deref(), kept.damage.as_deref()), (Some("XOR"), Some("torn")));
        file.tree.entry(DATASET, 7).set(KEPT, "{\"survives\": \"many\"}");
        assert_eq!(file.entry(7).unwrap().in_cache, InCache::default(), "what nobody understands");
        file.record_in_cache(&dataset, &InCache::default());
        assert_eq!(file.entry(7).unwrap().in_cache, InCache::default());
    }

    #[test]
    fn plain_output_has_no_mark_of_a_checkpoint() {
        let mut file = FlushFile::default();
        let output = DatasetDescriptor { id: 1, name: b"out".to_vec(), output: true, ..Default::default() };
        file.record(&output, Location::Cache);
        let entry = file.entry(1).unwrap();
        assert_eq!((entry.checkpoint, entry.output), (false, true));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_odd_entries_are_passed_over() {
        let (_dir, prefix) = scratch();
        assert_eq!(FlushFile::read(&RealFiles, &prefix).unwrap(), FlushFile::default());
        fs::write(prefix.flush_file(), "x").unwrap();
        assert!(FlushFile::read(&RealFiles, &prefix).unwrap_err().is_damage());
        let mut tree = KvTree::new();
        tree.entry("DATASET", "x");
        tree.entry("DATASET", 5).set("CKPT", "perhaps");
        fs::write(prefix.flush_file(), tree.to_file_bytes()).unwrap();
        let entries = FlushFile::read(&RealFiles, &prefix).unwrap().entries();
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].id, entries[0].checkpoint, entries[0].dataset.id), (5, false, 5));
    }
}
