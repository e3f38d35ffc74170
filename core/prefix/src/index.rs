//! `index.scr`: the datasets on the parallel file system.
//!
//! ```text
//! VERSION/2
//! PREFIX_RANDOM_ID/<random id of the prefix directory>
//! CURRENT/<name>
//! LAST/{RUN/<number of a run>, ID/<id>}
//! BEGUN/{RUN/<number of a run>, ID/<id>}
//! NAME/<name>/DSET/<id>
//! DSET/<id>/{FLUSHED/<time>, FLUSHED_BY/<whom>, FETCHED/<time>..., FAILED/<time>, COMPLETE/<0 or 1>,
//!     TAKEN/<by whom>/<random number of a closer>, HELD/<run>..., DSET/<descriptor>}
//! ```
//!
//! Only scr writes the random id, `LAST`, `BEGUN`, `TAKEN`, `FLUSHED_BY`, `HELD`, and the numbers of runs in the
//! descriptors; C SCR keeps them. [`Seq`] orders datasets.
//!
//! A job restarts from a dataset that is complete, has not failed, and still has its name: a name refers to the dataset that
//! used it last. Times are local, as `2026-11-21T03:28:25`.

use super::descriptor::RUN;
use super::fields::{alter, expect_version, flag, ids, set_flag};
use super::ledger::{By, Event};
use super::shared::{self, Shared};
use super::{DatasetDescriptor, Prefix, PrefixError, PrefixId, RestartPoint, Seq};
use scr_base::fs::{Durability, Files, FsError};
use scr_plugin_api::KvTree;
use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// The only version that is read and written.
pub(crate) const VERSION: u64 = 2;
const PREFIX_ID: &str = "PREFIX_RANDOM_ID";
const LAST: &str = "LAST";
const BEGUN: &str = "BEGUN";
const UNRECORDED: &str = "UNRECORDED";

/// Which of the datasets that were begun and never complete: by what is known of the files that they were given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Whether they are recorded does not matter.
    Any,
    /// No run has recorded them.
    Unknown,
}

const TAKEN: &str = "TAKEN";
const HELD: &str = "HELD";
const FLUSHED_BY: &str = "FLUSHED_BY";
/// The cure for a damaged one.
const OF_DAMAGE: &str = "`scr index', or the next run, puts a new one in its place and keeps it beside that";

/// The list of datasets, as it is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    tree: KvTree,
}

/// The entry of one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its number.
    pub id: u64,
    /// Number of the run that wrote it, 0 where it is not known.
    pub run: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Whether all its files are there.
    pub complete: bool,
    /// When fetching it failed for its own fault, if ever.
    pub failed: Option<String>,
    /// When it was flushed.
    pub flushed: Option<String>,
    /// When it was fetched, every time.
    pub fetched: Vec<String>,
    /// Whether it is the one to restart from first.
    pub current: bool,
    /// Whether its name belongs to another dataset: a newer one that has overwritten its files, or an older one, and it is
    /// neither complete nor being written.
    pub superseded: bool,
    /// Who may be giving files the names of this dataset, which is not complete.
    pub taken: Option<By>,
    /// The numbers of the runs that read its files where they lie.
    pub held: Vec<u64>,
    /// Its descriptor, if it could be read.
    pub dataset: Option<DatasetDescriptor>,
}

impl IndexEntry {
    /// Its place among all datasets.
    pub fn seq(&self) -> Seq {
        Seq { run: self.run, id: self.id }
    }

    /// As what a job may restart from.
    pub fn restart_point(&self) -> RestartPoint {
        let known = self.dataset.as_ref().map(DatasetDescriptor::restart_point);
        RestartPoint { seq: self.seq(), ..known.unwrap_or_default() }
    }

    /// Whether its files are all there and never failed to be read.
    pub fn is_valid(&self) -> bool {
        self.complete && self.failed.is_none() && !self.superseded
    }

    /// Whether scr began it, which records each file that it gives out over another one, before it does. C SCR does not say how
    /// many ranks wrote a dataset.
    pub(crate) fn is_of_scr(&self) -> bool {
        self.dataset.as_ref().is_some_and(|dataset| dataset.ranks.is_some())
    }

    /// Whether a job may restart from it.
    pub fn is_candidate(&self) -> bool {
        self.is_valid() && self.is_checkpoint()
    }

    /// Whether it is a checkpoint. A dataset without a descriptor counts as one.
    pub fn is_checkpoint(&self) -> bool {
        self.dataset.as_ref().is_none_or(|dataset| dataset.checkpoint)
    }
}

/// How far a flush is, as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushProgress {
    /// Its dataset has not taken its name, or has lost it again.
    NotTaken,
    /// Name and files belong to its dataset, which does not count yet.
    Taken,
    /// It has made its dataset complete, and that still counts or does not any more.
    Ended { counts: bool },
}

impl FlushProgress {
    /// Whether it has made its dataset complete, and that still counts.
    pub fn counts(self) -> bool {
        self == Self::Ended { counts: true }
    }
}

impl Shared for Index {
    const WAIT: Durability = Durability::Synced;
    const NAME: &'static str = "index.scr";

    fn from_tree(tree: KvTree, path: &Path) -> Result<Self, PrefixError> {
        Self::from_tree(tree, path)
    }

    fn tree_mut(&mut self) -> &mut KvTree {
        &mut self.tree
    }

    fn advise(error: FsError) -> PrefixError {
        PrefixError::of_file(error, OF_DAMAGE)
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An index without datasets.
    pub fn new() -> Self {
        let mut tree = KvTree::new();
        tree.set("VERSION", VERSION);
        Self { tree }
    }

    /// Reads the index of a prefix directory; a missing one is empty.
    ///
    /// # Errors
    /// The file is damaged, of another version, or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Self, PrefixError> {
        Ok(shared::read(files, prefix)?.unwrap_or_default())
    }

    /// Reads, changes and writes, while no other process does: for what other programs do to an index, in tests. The runtime and
    /// the commands ask the [ledger](crate::ledger).
    ///
    /// # Errors
    /// As for [`read`](Self::read); if it cannot be written, the old one is still there.
    pub fn update<R>(
        files: &dyn Files,
        prefix: &Prefix,
        change: impl FnOnce(&mut Index) -> R,
    ) -> Result<R, PrefixError> {
        shared::update(files, prefix, false, change).map(|updated| updated.value)
    }

    /// From a tree; `path` is for the error.
    ///
    /// # Errors
    /// The version is missing or another one.
    pub fn from_tree(tree: KvTree, path: &Path) -> Result<Self, PrefixError> {
        expect_version(&tree, path, VERSION..=VERSION)?;
        Ok(Self { tree })
    }

    /// The tree as it is written.
    pub fn tree(&self) -> &KvTree {
        &self.tree
    }

    /// All datasets, the newest first.
    pub fn entries(&self) -> Vec<IndexEntry> {
        self.entries_where(|_| true)
    }

    /// The datasets that a job may restart from and that are newer than `seq`.
    pub(crate) fn newer_candidates(&self, seq: Seq) -> Vec<IndexEntry> {
        let mut entries = self.entries_where(|own| own > seq);
        entries.retain(IndexEntry::is_candidate);
        entries
    }

    /// The datasets at the places that are `wanted`, the newest first.
    fn entries_where(&self, wanted: impl Fn(Seq) -> bool) -> Vec<IndexEntry> {
        let listed = LazyCell::new(|| self.listed_names());
        let mut last = 0;
        let entry = |id| {
            let run = Some(self.run_of(id)).filter(|&run| run > 0).unwrap_or(last);
            last = last.max(run);
            let name = wanted(Seq { run, id }).then(|| self.name_of(id, |id| listed.get(&id).copied()))??;
            self.entry_named(id, name, run)
        };
        let mut entries: Vec<_> = self.ids().into_iter().filter_map(entry).collect();
        entries.sort_by_key(|entry| Reverse(entry.seq()));
        entries
    }

    /// One dataset.
    pub fn entry(&self, id: u64) -> Option<IndexEntry> {
        let name = self.name_of(id, |id| self.listed_name(id))?;
        let last = if self.run_of(id) > 0 { 0 } else { self.run_before(id) };
        self.entry_named(id, name, last)
    }

    /// The place of a dataset, which need not be in the index, among those that are.
    pub fn seq_of(&self, dataset: &DatasetDescriptor) -> Seq {
        let known = [dataset.run, self.run_of(dataset.id)].into_iter().find(|&run| run > 0);
        Seq { run: known.unwrap_or_else(|| self.run_before(dataset.id)), id: dataset.id }
    }

    /// One dataset. `last` is the highest run of those with lower ids: C SCR, which knows no runs, gives higher ids than all
    /// that it sees.
    fn entry_named(&self, id: u64, name: &[u8], last: u64) -> Option<IndexEntry> {
        let tree = self.tree.find("DSET", id)?;
        let dataset = tree.get("DSET").and_then(|dataset| DatasetDescriptor::from_tree(dataset).ok());
        let taken = by(tree, TAKEN);
        let is_begun_in_place = taken == Some(By::Application);
        let is_older = |owner: u64| (self.run_of(owner), owner) < (self.run_of(id), id);
        let has_name = |owner: u64| owner == id || is_begun_in_place && is_older(owner);
        let owner = self.id_of(name);
        let superseded = owner.is_some_and(|owner| !has_name(owner));
        let text = |key| tree.value(key).map(|time| String::from_utf8_lossy(time).into_owned());
        let times = tree.get("FETCHED").into_iter().flat_map(KvTree::keys);
        Some(IndexEntry {
            id,
            run: Some(self.run_of(id)).filter(|&run| run > 0).unwrap_or(last),
            // An unreadable value does not count as yes.
            complete: flag(tree, "COMPLETE").ok().flatten().unwrap_or(false),
            failed: text("FAILED"),
            flushed: text("FLUSHED"),
            fetched: times.map(|time| String::from_utf8_lossy(time).into_owned()).collect(),
            current: self.current() == Some(name) && owner.is_none_or(|owner| owner == id),
            superseded,
            taken,
            held: ids(tree.get(HELD)),
            name: name.to_vec(),
            dataset,
        })
    }

    /// The dataset that has this name.
    pub fn id_of(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        self.tree.get("NAME")?.get(name)?.parse("DSET").ok().flatten()
    }

    /// The name of the dataset to restart from first.
    pub fn current(&self) -> Option<&[u8]> {
        self.tree.value("CURRENT")
    }

    /// Whether the current one is newer than `seq`, and a job may restart from it.
    pub(crate) fn is_newer_current(&self, seq: Seq) -> bool {
        let current = self.current().and_then(|name| self.id_of(name)).and_then(|id| self.entry(id));
        current.is_some_and(|current| current.is_candidate() && current.seq() > seq)
    }

    /// Makes a dataset the current one; false if there is none of that name.
    pub fn set_current(&mut self, name: impl AsRef<[u8]>) -> bool {
        let known = self.id_of(name.as_ref()).is_some();
        if known {
            self.tree.set_bytes("CURRENT", name);
        }
        known
    }

    /// The datasets that a job may restart from, the newest first.
    pub fn candidates(&self) -> Vec<IndexEntry> {
        let mut entries = self.entries();
        entries.retain(IndexEntry::is_candidate);
        entries
    }

    /// The copy of the prefix directory's random id.
    pub(crate) fn prefix_id(&self) -> Option<PrefixId> {
        self.tree.text(PREFIX_ID).and_then(PrefixId::parse)
    }

    /// The highest number of a run that any dataset has.
    pub(crate) fn highest_run(&self) -> u64 {
        self.ids().into_iter().map(|id| self.run_of(id)).max().unwrap_or(0)
    }

    /// Whether [`mark`](Self::mark) would change anything. An index without datasets says nothing that could be lost.
    pub(crate) fn wants_mark(&self, id: &PrefixId, last: u64) -> bool {
        let ids = self.ids();
        let is_unmarked = |id: &u64| last > 0 && self.run_of(*id) == 0;
        !ids.is_empty() && (self.prefix_id().as_ref() != Some(id) || ids.iter().any(is_unmarked))
    }

    /// Notes the id of the prefix directory, and that the datasets without a run are older than what comes after run `last`.
    fn mark(&mut self, id: &PrefixId, last: u64) {
        self.tree.set(PREFIX_ID, id);
        for id in self.ids().into_iter().filter(|_| last > 0) {
            if self.run_of(id) == 0 {
                self.tree.entry("DSET", id).child("DSET").set(RUN, last);
            }
        }
        for names in [Names::Any, Names::Unknown] {
            if let Some(Seq { run: 0, id }) = self.gone_begun(names).filter(|_| last > 0) {
                self.set_gone_begun(names, Seq { run: last, id });
            }
        }
    }

    /// The newest dataset that was begun and never complete, whether or not it is still listed. It may have replaced files of any
    /// older one.
    pub fn last_begun(&self) -> Option<Seq> {
        let incomplete = self.entries().into_iter().filter(|entry| !entry.complete);
        incomplete.map(|entry| entry.seq()).chain(self.gone_begun(Names::Any)).max()
    }

    /// From here on every dataset up to this place may have lost files to a newer one, and nobody knows which.
    pub(crate) fn doubt_all(&mut self, up_to: Seq) {
        let highest = self.entries().first().map(IndexEntry::seq).unwrap_or_default();
        let after = Seq { id: highest.id.saturating_add(1), ..highest };
        for names in [Names::Any, Names::Unknown] {
            self.set_gone_begun(names, after.max(up_to));
        }
    }

    /// The newest of them of which nobody has recorded whose files it was given, as C SCR wrote it: only times say what it may
    /// have replaced.
    pub fn last_begun_unrecorded(&self) -> Option<Seq> {
        let incomplete = self.entries().into_iter().filter(|entry| !entry.complete && !entry.is_of_scr());
        incomplete.map(|entry| entry.seq()).chain(self.gone_begun(Names::Unknown)).max()
    }

    /// The newest of those that have left the index: of all, or only of those whose names are unknown.
    fn gone_begun(&self, names: Names) -> Option<Seq> {
        let mut begun = self.tree.get(BEGUN)?;
        if names == Names::Unknown {
            begun = begun.get(UNRECORDED)?;
        }
        Seq::read(begun)
    }

    fn set_gone_begun(&mut self, names: Names, seq: Seq) {
        let mut begun = self.tree.child(BEGUN);
        if names == Names::Unknown {
            begun = begun.child(UNRECORDED);
        }
        seq.write(begun);
    }

    /// The highest id of any dataset, valid or not.
    pub fn highest_id(&self) -> Option<u64> {
        self.ids().last().copied()
    }

    /// The datasets other than `id` that have, or once had, this name.
    pub fn others_named(&self, name: impl AsRef<[u8]>, id: u64) -> Vec<u64> {
        let mut ids = self.ids_named(name.as_ref());
        ids.retain(|&other| other != id);
        ids
    }

    /// Makes an event part of it, for the [ledger](super::ledger::Ledger::apply).
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Marked { prefix, last } => self.mark(prefix, *last),
            Event::Listed(dataset) => self.put(dataset, false),
            Event::Named { name, id } => self.tree.child("NAME").child(name).set("DSET", id),
            Event::NameLeft(name) => _ = self.tree.child("NAME").remove(name),
            Event::Took { id, by: taker, closer } => {
                self.alter(*id, |entry| {
                    // In place, and when it is built from what was saved, it is always flushed by the same.
                    if by(entry, FLUSHED_BY).as_ref() == Some(taker) {
                        entry.remove(FLUSHED_BY);
                    }
                    entry.set(TAKEN, taker);
                    closer.iter().for_each(|closer| _ = entry.entry(TAKEN, taker).child(closer));
                });
            }
            Event::Released(id) => _ = self.alter(*id, |entry| _ = entry.remove(TAKEN)),
            Event::Replaced(id) => _ = self.set_complete(*id, false),
            Event::Completed { dataset, by, at } => {
                self.put(dataset, true);
                self.mark_flushed(dataset.id, at);
                by.iter().for_each(|by| _ = self.alter(dataset.id, |entry| entry.set(FLUSHED_BY, by)));
            }
            Event::Held { id, run } => {
                self.release_held(*run);
                self.alter(*id, |entry| _ = entry.entry(HELD, run));
            }
            Event::LetGo { run } => self.release_held(*run),
            Event::Left(id) => _ = self.tree.child("DSET").remove(id.to_string()),
            Event::BegunLeft { seq, is_recorded } => self.note_begun(*seq, *is_recorded),
            Event::Fetched { id, at } => _ = self.alter(*id, |entry| _ = entry.entry("FETCHED", at)),
            Event::Failed { id, at } => _ = self.alter(*id, |entry| entry.set("FAILED", at)),
            Event::Current(name) => _ = self.set_current(name),
            Event::NoCurrent => _ = self.tree.remove("CURRENT"),
            Event::RunBegan { .. } | Event::NextId { .. } | Event::Revoked(_) => (),
            Event::Withdrawn { .. } | Event::NameWithdrawn { .. } => (),
            Event::WentBack(_) | Event::Purged(_) | Event::Attempted(_) => (),
        }
    }

    /// The newest dataset that a run has ever listed, also if it has left since; `None` if nobody has recorded it.
    pub(crate) fn last_listed(&self) -> Option<Seq> {
        self.tree.get(LAST).and_then(Seq::read)
    }

    /// Records a dataset under its id.
    fn put(&mut self, dataset: &DatasetDescriptor, complete: bool) {
        if dataset.run > 0 && Some(dataset.seq()) > self.last_listed() {
            dataset.seq().write(self.tree.child(LAST));
        }
        let entry = self.tree.entry("DSET", dataset.id);
        set_flag(entry, "COMPLETE", complete);
        if complete {
            entry.remove(TAKEN);
        }
        dataset.write_into(entry.child("DSET"));
    }

    /// The process that closes this flush of a dataset for its job, if one does.
    pub(crate) fn closer(&self, id: u64, by: &By) -> Option<&str> {
        let taken = self.tree.find("DSET", id)?.find(TAKEN, by)?;
        std::str::from_utf8(taken.keys().next()?).ok()
    }

    /// How far a dataset is by this flush, or by the application that wrote it in place.
    pub fn progress(&self, dataset: &DatasetDescriptor, whose: &By) -> FlushProgress {
        let entry = self.tree.find("DSET", dataset.id);
        let says = |key| entry.and_then(|entry| by(entry, key)).as_ref() == Some(whose);
        if says(FLUSHED_BY) {
            let counts = self.entry(dataset.id).is_some_and(|entry| entry.is_valid());
            FlushProgress::Ended { counts }
        } else if says(TAKEN) && self.entry(dataset.id).is_some_and(|entry| !entry.superseded) {
            FlushProgress::Taken
        } else {
            FlushProgress::NotTaken
        }
    }

    /// Whether there is an entry of this number, whatever it says.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.tree.find("DSET", id).is_some()
    }

    /// Whether the names of a dataset are taken so.
    pub(crate) fn is_taken_by(&self, id: u64, taker: &By) -> bool {
        self.tree.find("DSET", id).is_some_and(|entry| entry.find(TAKEN, taker).is_some())
    }

    /// Whether a dataset of this name is complete, and nobody has taken one of its files since.
    pub fn is_whole(&self, id: u64, name: &[u8]) -> bool {
        self.entry(id).is_some_and(|entry| entry.complete && !entry.superseded && entry.name == name)
    }

    /// The runs that read files where they lie.
    pub(crate) fn readers(&self) -> BTreeSet<u64> {
        let held = |id: u64| ids(self.tree.find("DSET", id).and_then(|entry| entry.get(HELD)));
        self.ids().into_iter().flat_map(held).collect()
    }

    /// A run does not read files where they lie any more.
    fn release_held(&mut self, run: u64) {
        for id in self.ids() {
            let is_held = self.tree.find("DSET", id).is_some_and(|entry| entry.find(HELD, run).is_some());
            if !is_held {
                continue;
            }
            self.alter(id, |entry| {
                entry.child(HELD).remove(run.to_string());
                if entry.get(HELD).is_some_and(KvTree::is_empty) {
                    entry.remove(HELD);
                }
            });
        }
    }

    /// Says whether all files of a dataset are there; false where the index does not have it.
    pub fn set_complete(&mut self, id: u64, complete: bool) -> bool {
        self.alter(id, |entry| set_flag(entry, "COMPLETE", complete))
    }

    /// Records when a dataset was flushed. Every byte is new then, so an earlier copy's failure says nothing any more.
    pub fn mark_flushed(&mut self, id: u64, time: &str) -> bool {
        self.alter(id, |entry| {
            entry.set("FLUSHED", time);
            entry.remove(FLUSHED_BY);
            entry.remove("FAILED");
        })
    }

    /// A dataset that was begun and never complete leaves. Whose files it was given is recorded, or not.
    fn note_begun(&mut self, seq: Seq, is_recorded: bool) {
        let unrecorded = (!is_recorded).then_some(Names::Unknown);
        for names in unrecorded.into_iter().chain([Names::Any]) {
            if self.gone_begun(names) < Some(seq) {
                self.set_gone_begun(names, seq);
            }
        }
    }

    /// The highest run of those with lower ids.
    fn run_before(&self, id: u64) -> u64 {
        let before = self.ids().into_iter().take_while(|&other| other < id);
        before.map(|other| self.run_of(other)).max().unwrap_or(0)
    }

    /// As the dataset itself says, or 0.
    fn run_of(&self, id: u64) -> u64 {
        let dataset = self.tree.find("DSET", id).and_then(|entry| entry.get("DSET"));
        dataset.and_then(|dataset| dataset.parse(RUN).ok().flatten()).unwrap_or(0)
    }

    /// Ascending.
    pub(crate) fn ids(&self) -> Vec<u64> {
        ids(self.tree.get("DSET"))
    }

    /// Those that have, or once had, this name.
    fn ids_named(&self, name: &[u8]) -> Vec<u64> {
        let owner = self.id_of(name);
        let listed = |id| Some(name).filter(|_| owner == Some(id));
        let mut ids = self.ids();
        ids.retain(|&id| self.name_of(id, listed) == Some(name));
        ids
    }

    /// As its descriptor says, or else as the list of names does, in which `listed` looks.
    fn name_of<'a>(&'a self, id: u64, listed: impl FnOnce(u64) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
        let described = self.tree.find("DSET", id)?.get("DSET").and_then(|dataset| dataset.value("NAME"));
        described.or_else(|| listed(id))
    }

    fn listed_name(&self, id: u64) -> Option<&[u8]> {
        let mut names = self.names();
        names.find(|(_, owner)| *owner == id).map(|(name, _)| name)
    }

    /// The names of all that the list of names has: looking for each in turn would take the square of their number.
    fn listed_names(&self) -> HashMap<u64, &[u8]> {
        let mut listed = HashMap::new();
        for (name, id) in self.names() {
            listed.entry(id).or_insert(name);
        }
        listed
    }

    fn names(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let names = self.tree.get("NAME").into_iter().flat_map(KvTree::iter);
        names.filter_map(|(name, below)| Some((name, below.parse("DSET").ok()??)))
    }

    fn alter(&mut self, id: u64, change: impl FnOnce(&mut KvTree)) -> bool {
        alter(&mut self.tree, "DSET", id, change)
    }
}

/// Who is named under a key of an entry.
fn by(entry: &KvTree, key: &str) -> Option<By> {
    entry.text(key).map(By::from)
}

#[cfg(test)]
mod tests;
