//! `ids.scr`: which prefix directory this is, and which numbers are taken in it. Only scr has this file.
//!
//! ```text
//! VERSION/1
//! PREFIX_RANDOM_ID/<random id of the prefix directory>
//! RUN/<number of the last run>
//! RUNS/<number of a run that began here> ...
//! NEXT/<first dataset id that no run has reserved>
//! PURGED/<id of a dataset that SCR_PREFIX_PURGE has deleted> ...
//! ATTEMPTS/<id of a checkpoint>/<its name>/<restarts from it since the last checkpoint was written>
//! WITHDRAWN/<number of a run>/ID/<id of a dataset that was dropped or deleted> ...
//! WITHDRAWN/<number of a run>/REFUSED/<id of a dataset that the application has refused> ...
//! WITHDRAWN/NAME/<name that was dropped or deleted>/{RUN, ID}/<place before which none of it counts>
//! WITHDRAWN/BETWEEN/<n>/{RUN, ID}/<place of a checkpoint that somebody has gone back to>
//! WITHDRAWN/BETWEEN/<n>/{NEXT_RUN, NEXT_ID}/<place of the first dataset written since; no checkpoint in between counts>
//! WITHDRAWN/UP_TO/RUN/<number of a run>
//! WITHDRAWN/UP_TO/ID/<id of a dataset; no older one counts that the index does not list>
//! ```
//!
//! Every run gets a number of its own before it does anything, and reserves a block of dataset ids before it uses the first of
//! them. All its records carry the number: in cache, in the index, in summaries. So a later run is recognized as later, even if
//! its nodes have no data of the earlier one. The number is at least the time in seconds at which the run begins. So it is also
//! recognized if an older copy of the prefix directory was restored in between.
//!
//! The random id is made with the file, and is in every record in cache. A prefix directory that was removed and made again has
//! another one, so datasets of the old one that are left in cache are not restored. The index and the flush file have copies, in
//! case this file is lost.

use super::error::unless_damaged;
use super::fields::{expect_version, ids, packed};
use super::shared::{self, Shared};
use super::{Between, DatasetDescriptor, FlushFile, Index, Prefix, PrefixError, Seq};
use scr_base::fs::{unique_number, At, Durability, File, Files, How, IsMeant, Kind};
use scr_plugin_api::KvTree;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The random id of a prefix directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixId(String);

impl PrefixId {
    pub(crate) fn random() -> Self {
        Self(format!("{:016x}{:016x}", unique_number(), unique_number()))
    }

    /// From text; `None` for what is no such id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The id of a prefix directory; `None` where it has none yet, or it is lost.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        Self::of(unless_damaged(shared::read(files, prefix))?.flatten().as_ref(), files, prefix)
    }

    /// That of the numbers, or of a copy elsewhere.
    pub(crate) fn of(
        ids: Option<&Ids>,
        files: &dyn Files,
        prefix: &Prefix,
    ) -> Result<Option<Self>, PrefixError> {
        if let Some(own) = ids.and_then(Ids::prefix_id) {
            return Ok(Some(own));
        }
        let copy = unless_damaged(Index::read(files, prefix))?.and_then(|index| index.prefix_id());
        match copy {
            None => Ok(unless_damaged(FlushFile::read(files, prefix))?.and_then(|flush| flush.prefix_id())),
            copy => Ok(copy),
        }
    }
}

impl fmt::Display for PrefixId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A run, and the prefix directory that it runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunId {
    /// `None` if none could be kept, so that every record of this path counts.
    pub prefix: Option<PrefixId>,
    /// Number of the run.
    pub number: u64,
    /// Whether no other run gets this number. If not, it is the time at which the run began, or the number of the run before, and
    /// a later run still counts as later.
    pub is_counted: bool,
    /// Whether an earlier run may still be under way in the prefix directory. Only rank 0 knows.
    pub is_second: bool,
}

impl RunId {
    /// Its number, if no other run has it.
    pub fn number_alone(&self) -> Option<u64> {
        self.is_counted.then_some(self.number)
    }

    /// Fails if this process does not see the prefix directory of the run: its file system may not be mounted on this node, and
    /// what is written there would be lost.
    ///
    /// # Errors
    /// [`PrefixError::Elsewhere`], or it cannot be read.
    pub(crate) fn expect_prefix(&self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        self.withdrawn_in(files, prefix).map(drop)
    }

    /// The datasets that were withdrawn in the prefix directory of the run.
    ///
    /// # Errors
    /// As for [`expect_prefix`](Self::expect_prefix).
    pub fn withdrawn_in(&self, files: &dyn Files, prefix: &Prefix) -> Result<Withdrawn, PrefixError> {
        let ids = match &self.prefix {
            Some(_) => unless_damaged(shared::read::<Ids>(files, prefix))?.flatten(),
            None => None,
        };
        let is_it = match &self.prefix {
            Some(_) => PrefixId::of(ids.as_ref(), files, prefix)? == self.prefix,
            None => files.status(&prefix.scr_dir()).is_ok_and(|found| found.kind == Kind::Dir),
        };
        match is_it {
            true => Ok(ids.map(|ids| ids.withdrawn()).unwrap_or_default()),
            false => Err(prefix.elsewhere()),
        }
    }

    /// The same where another node may have made it just now. A client of NFS remembers for a while that something is not there,
    /// and asks again when it lists the folder.
    ///
    /// # Errors
    /// As for [`expect_prefix`](Self::expect_prefix).
    pub fn wait_for_prefix(&self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        for _ in 0..MOST_LOOKS {
            match self.expect_prefix(files, prefix) {
                Err(PrefixError::Elsewhere { .. }) => files.pause(PAUSE),
                other => return other,
            }
            [prefix.dir(), &prefix.scr_dir()].into_iter().for_each(|folder| _ = files.list(folder));
        }
        self.expect_prefix(files, prefix)
    }

    /// The file layer in which this run reaches all that is in the hidden folder through that folder, which is opened here. If its
    /// path leads to another one later, that is used if it has the id of this one: its file system was mounted again. Else every
    /// operation in it fails. The directory was renamed, and nothing is to be changed in the one that has its path now.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hold_prefix(
        &self,
        files: &Arc<dyn Files>,
        prefix: &Prefix,
    ) -> Result<Arc<dyn Files>, PrefixError> {
        let (run, below, there) = (self.clone(), Arc::clone(files), Prefix::new(prefix.dir()));
        let scr_dir = there.scr_dir();
        let is_meant: IsMeant = Arc::new(move |held| match below.status(&scr_dir) {
            Ok(found) if held == Some(found.identity) => Ok(None),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) => Err(io::Error::other(there.elsewhere())),
            Ok(_) => run.open_anew(&*below, &there).map(Some).map_err(io::Error::other),
        });
        let dir = open(&**files, prefix)?;
        let held = files.through(&prefix.scr_dir(), dir, Some(is_meant));
        Ok(held.unwrap_or_else(|| Arc::clone(files)))
    }

    fn open_anew(&self, files: &dyn Files, prefix: &Prefix) -> Result<Arc<dyn File>, PrefixError> {
        let dir = open(files, prefix)?;
        let inside = files.through(&prefix.scr_dir(), Arc::clone(&dir), None);
        self.expect_prefix(inside.as_deref().unwrap_or(files), prefix).map(|()| dir)
    }
}

fn open(files: &dyn Files, prefix: &Prefix) -> Result<Arc<dyn File>, PrefixError> {
    let path = prefix.scr_dir();
    Ok(files.open(&path, How::Folder).at("open the folder", &path)?.into())
}

/// Together these are five seconds.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_LOOKS: u32 = 100;

/// The file, as it is in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Ids {
    tree: KvTree,
}

impl Shared for Ids {
    const WAIT: Durability = Durability::Synced;
    const NAME: &'static str = "ids.scr";

    fn from_tree(tree: KvTree, path: &Path) -> Result<Self, PrefixError> {
        Self::of_tree(tree, path)
    }

    fn tree_mut(&mut self) -> &mut KvTree {
        &mut self.tree
    }
}

impl Default for Ids {
    fn default() -> Self {
        let mut tree = KvTree::new();
        tree.set("VERSION", VERSION);
        tree.set(RUN, 0);
        tree.set(NEXT, 1);
        Self { tree }
    }
}

impl Ids {
    /// From a tree; `path` is for the error.
    pub fn of_tree(tree: KvTree, path: &Path) -> Result<Self, PrefixError> {
        expect_version(&tree, path, VERSION..=VERSION)?;
        for key in [RUN, NEXT] {
            tree.require::<u64>(key).at("use", path)?;
        }
        Ok(Self { tree })
    }

    /// The number of the last run.
    pub(crate) fn last_run(&self) -> u64 {
        self.number(RUN)
    }

    /// A run has begun, with this number.
    pub(crate) fn begin_run(&mut self, number: u64, prefix: &PrefixId) {
        self.tree.set(RUN, number);
        self.tree.set(PREFIX, prefix);
        self.tree.entry(RUNS, number);
        let runs = ids(self.tree.get(RUNS));
        let oldest = runs.iter().take(runs.len().saturating_sub(MOST_RUNS));
        oldest.for_each(|run| _ = self.tree.child(RUNS).remove(run.to_string()));
    }

    /// Whether a run began here, of the last ones.
    pub(crate) fn has_begun(&self, run: u64) -> bool {
        self.tree.find(RUNS, run).is_some()
    }

    /// The id of the prefix directory was lost here, and is this one.
    pub(crate) fn adopt(&mut self, prefix: &PrefixId) {
        self.tree.set(PREFIX, prefix);
    }

    /// The first dataset id that no run has reserved.
    pub(crate) fn next(&self) -> u64 {
        self.number(NEXT)
    }

    /// From here on that is this one.
    pub(crate) fn set_next(&mut self, next: u64) {
        self.tree.set(NEXT, next);
    }

    /// The copies of purged output in cache are not flushed again to the prefix directory.
    pub(crate) fn purge(&mut self, id: u64) {
        self.tree.entry(PURGED, id);
    }

    /// The datasets that were purged.
    pub fn purged(&self) -> Vec<u64> {
        self.tree.get(PURGED).map(|purged| purged.keys_as().collect()).unwrap_or_default()
    }

    /// How many restarts from a checkpoint have begun since the last one was written.
    pub fn attempts(&self, id: u64, name: &[u8]) -> u64 {
        self.tree.find(ATTEMPTS, id).and_then(|of_id| of_id.parse(name).ok().flatten()).unwrap_or(0)
    }

    /// Whether those are `most`, if there is a limit: that of `SCR_RESTART_ATTEMPTS`, which is 0 without one.
    pub fn are_attempts_spent(&self, id: u64, name: &[u8], most: u64) -> bool {
        most > 0 && self.attempts(id, name) >= most
    }

    /// One more has begun, or a checkpoint was written.
    pub(crate) fn count_attempt(&mut self, of: Option<(u64, &[u8])>) {
        let begun = of.map(|(id, name)| (id, name, self.attempts(id, name)));
        self.tree.remove(ATTEMPTS);
        if let Some((id, name, begun)) = begun {
            self.tree.entry(ATTEMPTS, id).set(name, begun.saturating_add(1));
        }
    }

    /// No run may restart from this dataset any more, whatever any cache has of it.
    pub(crate) fn withdraw(&mut self, seq: Seq, why: Withdrawal) {
        why.record(self.tree.child(WITHDRAWN), seq);
        self.limit_withdrawn();
    }

    /// Nor from a dataset of this name before this place, which nodes may have that nobody has seen since.
    pub(crate) fn withdraw_name(&mut self, name: &[u8], before: Seq) {
        let of_name = self.tree.child(WITHDRAWN).child(NAME).child(name);
        let before = Seq::read(of_name).max(Some(before)).unwrap_or_default();
        before.write(of_name);
        self.limit_withdrawn();
    }

    /// Nor from a checkpoint between these places.
    pub(crate) fn go_back(&mut self, over: Between) {
        let tree = self.tree.child(WITHDRAWN);
        let mut all = Withdrawn::between(tree);
        all.retain(|earlier| earlier.after < over.after || over.before < earlier.before);
        all.push(over);
        Withdrawn::put_between(tree, &all);
        self.limit_withdrawn();
    }

    fn limit_withdrawn(&mut self) {
        if let Some(mut tree) = self.tree.remove(WITHDRAWN) {
            Withdrawn::limit(&mut tree);
            self.tree.put(WITHDRAWN, tree);
        }
    }

    /// The datasets that were withdrawn.
    pub fn withdrawn(&self) -> Withdrawn {
        Withdrawn(self.tree.get(WITHDRAWN).cloned().unwrap_or_default())
    }

    /// The file of a prefix directory; a missing or damaged one knows nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(files: &dyn Files, prefix: &Prefix) -> Result<Self, PrefixError> {
        Ok(unless_damaged(shared::read::<Self>(files, prefix))?.flatten().unwrap_or_default())
    }

    /// The random id of the prefix directory.
    pub(crate) fn prefix_id(&self) -> Option<PrefixId> {
        self.tree.text(PREFIX).and_then(PrefixId::parse)
    }

    fn number(&self, key: &str) -> u64 {
        self.tree.parse(key).ok().flatten().unwrap_or(0)
    }
}

/// Why no run may restart from a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// It was dropped or deleted: what cache has of it leaves.
    Removed,
    /// The application could not restart from it, or somebody has gone back over it and it is output: it may leave once a newer one
    /// counts.
    Refused,
}

impl Withdrawal {
    fn key(self) -> &'static str {
        match self {
            Self::Removed => "ID",
            Self::Refused => "REFUSED",
        }
    }

    fn record(self, tree: &mut KvTree, seq: Seq) {
        tree.entry(seq.run.to_string(), self.key()).child(seq.id.to_string());
    }
}

/// The datasets that no run may restart from, unless somebody has listed them again since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Withdrawn(#[serde(with = "packed")] pub KvTree);

impl Withdrawn {
    /// Whether a dataset is one, and why.
    pub fn of(&self, dataset: &DatasetDescriptor) -> Option<Withdrawal> {
        self.why(dataset.seq(), &dataset.name, dataset.if_gone_back_over())
    }

    /// The same for the one of this name at this place, of which [`over`](DatasetDescriptor::if_gone_back_over) is true where
    /// somebody has gone back over it.
    pub fn why(&self, seq: Seq, name: &[u8], over: Option<Withdrawal>) -> Option<Withdrawal> {
        let Self(tree) = self;
        let of_run = tree.get(seq.run.to_string());
        let has = |why: &Withdrawal| of_run.is_some_and(|run| run.find(why.key(), seq.id).is_some());
        let mut named = [Withdrawal::Removed, Withdrawal::Refused].into_iter().find(has);
        if seq.run == 0 {
            // C SCR has written it, and it was withdrawn as one of the run that had found it.
            named = Self::named(tree).into_iter().find(|(known, _)| known.id == seq.id).map(|(_, why)| why);
        }
        let before = tree.get(NAME).and_then(|names| names.get(name)).and_then(Seq::read);
        let is_older = before.is_some_and(|before| seq < before);
        let is_between = |_: &Withdrawal| Self::between(tree).iter().any(|between| between.has(seq));
        let named =
            named.or_else(|| is_older.then_some(Withdrawal::Removed)).or_else(|| over.filter(is_between));
        named.or_else(|| Self::up_to(tree).filter(|&last| seq <= last).map(|_| Withdrawal::Refused))
    }

    /// Whether a dataset of this number was dropped or deleted.
    pub fn has_removed(&self, id: u64) -> bool {
        Self::named(&self.0).iter().any(|(seq, why)| seq.id == id && *why == Withdrawal::Removed)
    }

    /// The datasets that a run has gone back over, in the order of time.
    pub(crate) fn between(tree: &KvTree) -> Vec<Between> {
        let all = tree.get(BETWEEN).into_iter().flat_map(KvTree::iter);
        let mut all: Vec<Between> = all
            .filter_map(|(_, between)| {
                let (run, id) = (between.require("NEXT_RUN").ok()?, between.require("NEXT_ID").ok()?);
                Some(Between { after: Seq::read(between)?, before: Seq { run, id } })
            })
            .collect();
        all.sort_unstable_by_key(|between| between.before);
        all
    }

    fn put_between(tree: &mut KvTree, all: &[Between]) {
        tree.remove(BETWEEN);
        for (place, &Between { after, before }) in all.iter().enumerate() {
            let between = tree.entry(BETWEEN, place);
            after.write(between);
            between.set("NEXT_RUN", before.run);
            between.set("NEXT_ID", before.id);
        }
    }

    fn up_to(tree: &KvTree) -> Option<Seq> {
        Seq::read(tree.get(UP_TO)?)
    }

    /// Those that are known by their place.
    pub(crate) fn named(tree: &KvTree) -> Vec<(Seq, Withdrawal)> {
        let mut all = Vec::new();
        for run in tree.keys_as::<u64>() {
            for why in [Withdrawal::Removed, Withdrawal::Refused] {
                let ids = tree.find(run.to_string(), why.key()).into_iter().flat_map(KvTree::keys_as::<u64>);
                all.extend(ids.map(|id| (Seq { run, id }, why)));
            }
        }
        all.sort_unstable_by_key(|(seq, _)| *seq);
        all
    }

    /// The older half of too many is forgotten by place. From then on no dataset that is as old counts unless the index lists it:
    /// to lose one is not as bad as to restart from a wrong one.
    fn limit(tree: &mut KvTree) {
        let names = tree.remove(NAME).unwrap_or_default();
        let mut names: Vec<_> = names.iter().filter_map(|(name, of)| Some((Seq::read(of)?, name))).collect();
        // Of most names there was one dataset only. So no other one stops to count for those that are forgotten.
        if names.len() > MOST_WITHDRAWN {
            names.sort_unstable();
            names.drain(..names.len() / 2);
        }
        for (before, name) in names {
            before.write(tree.child(NAME).child(name));
        }
        let (mut named, mut between) = (Self::named(tree), Self::between(tree));
        if named.len() <= MOST_WITHDRAWN && between.len() <= MOST_BETWEEN {
            return;
        }
        let forgotten = |len, most| if len > most { len / 2 } else { 0 };
        let newer_named = named.split_off(forgotten(named.len(), MOST_WITHDRAWN));
        let newer_between = between.split_off(forgotten(between.len(), MOST_BETWEEN));
        let last_of = |Between { before, .. }: &Between| Seq { id: before.id.saturating_sub(1), ..*before };
        let last_between = between.last().map(last_of);
        let last = named.last().map(|(seq, _)| *seq).max(last_between).max(Self::up_to(tree));
        let last = last.unwrap_or_default();
        let names = tree.remove(NAME);
        *tree = KvTree::new();
        names.into_iter().for_each(|names| tree.put(NAME, names));
        last.write(tree.child(UP_TO));
        newer_named.into_iter().for_each(|(seq, why)| why.record(tree, seq));
        Self::put_between(tree, &newer_between);
    }
}

pub(crate) const VERSION: u64 = 1;
const PREFIX: &str = "PREFIX_RANDOM_ID";
const RUN: &str = "RUN";
const RUNS: &str = "RUNS";
/// As many runs are known to have begun in the directory, and not in a copy of it.
const MOST_RUNS: usize = 100;
const NEXT: &str = "NEXT";
const PURGED: &str = "PURGED";
const ATTEMPTS: &str = "ATTEMPTS";
const WITHDRAWN: &str = "WITHDRAWN";
const NAME: &str = "NAME";
const UP_TO: &str = "UP_TO";
const BETWEEN: &str = "BETWEEN";
/// As many withdrawn datasets are known by their place.
pub(crate) const MOST_WITHDRAWN: usize = 1000;
/// It is known of as many times that somebody has gone back.
pub(crate) const MOST_BETWEEN: usize = 100;
