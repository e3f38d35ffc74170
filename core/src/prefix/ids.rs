//! `ids.scr`: which prefix directory this is, and which numbers are taken in it. Only scr has this file.
//!
//! ```text
//! VERSION/1
//! PREFIX_RANDOM_ID/<random id of the prefix directory>
//! RUN/<number of the last run>
//! NEXT/<first dataset id that no run has reserved>
//! PURGED/<id of a dataset that SCR_PREFIX_PURGE has deleted> ...
//! WITHDRAWN/<number of a run>/ID/<id of a dataset that was dropped or deleted> ...
//! WITHDRAWN/<number of a run>/REFUSED/<id of a dataset that the application has refused> ...
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
//! another one, so datasets of the old one that are left in cache are not restored. The index has a copy, in case this file is
//! lost.

use super::shared::{self, Shared};
use super::{Between, Index, Prefix, PrefixError, Seq};
use crate::fs::{unique_number, At, Durability, Files, Kind};
use scr_plugin_api::KvTree;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The random id of a prefix directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixId(String);

impl PrefixId {
    fn random() -> Self {
        Self(format!("{:016x}{:016x}", unique_number(), unique_number()))
    }

    /// From text; `None` for what is no such id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

    fn of(ids: Option<&Ids>, files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        match ids.and_then(Ids::prefix_id) {
            None => Ok(unless_damaged(Index::read(files, prefix))?.and_then(|index| index.prefix_id())),
            own => Ok(own),
        }
    }
}

impl fmt::Display for PrefixId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A run, and the prefix directory that it runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunId {
    /// `None` if none could be kept, so that every record of this path counts.
    pub(crate) prefix: Option<PrefixId>,
    /// Number of the run.
    pub(crate) number: u64,
    /// Whether no other run gets this number. If not, it is the time at which the run began, or the number of the run before, and a
    /// later run still counts as later.
    pub(crate) is_counted: bool,
    /// Whether an earlier run may still be under way in the prefix directory. Only rank 0 knows.
    pub(crate) is_second: bool,
}

impl RunId {
    /// Its number, if no other run has it.
    pub(crate) fn number_alone(&self) -> Option<u64> {
        self.is_counted.then_some(self.number)
    }

    /// Fails if this process does not see the prefix directory of the run: its file system may not be mounted on this node, and what
    /// is written there would be lost.
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
    pub(crate) fn withdrawn_in(&self, files: &dyn Files, prefix: &Prefix) -> Result<Withdrawn, PrefixError> {
        let ids = match &self.prefix {
            Some(_) => unless_damaged(shared::read::<Ids>(files, prefix))?.flatten(),
            None => None,
        };
        let is_it = match &self.prefix {
            Some(_) => PrefixId::of(ids.as_ref(), files, prefix)? == self.prefix,
            None => files.status(&prefix.scr_dir()).is_ok_and(|found| found.kind == Kind::Dir),
        };
        match is_it {
            true => Ok(ids.map(Ids::into_withdrawn).unwrap_or_default()),
            false => Err(PrefixError::Elsewhere { dir: prefix.dir().to_owned() }),
        }
    }

    /// The same where another node may have made it just now. A client of NFS remembers for a while that something is not there, and
    /// asks again when it lists the folder.
    ///
    /// # Errors
    /// As for [`expect_prefix`](Self::expect_prefix).
    pub(crate) fn wait_for_prefix(&self, files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        for _ in 0..MOST_LOOKS {
            match self.expect_prefix(files, prefix) {
                Err(PrefixError::Elsewhere { .. }) => files.pause(PAUSE),
                other => return other,
            }
            [prefix.dir(), &prefix.scr_dir()].into_iter().for_each(|folder| _ = files.list(folder));
        }
        self.expect_prefix(files, prefix)
    }
}

/// Together these are five seconds.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_LOOKS: u32 = 100;

/// The file, as it is in memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ids {
    tree: KvTree,
}

impl Shared for Ids {
    const WAIT: Durability = Durability::Synced;

    fn path(prefix: &Prefix) -> PathBuf {
        prefix.scr_file("ids.scr")
    }

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
    pub(crate) fn of_tree(tree: KvTree, path: &Path) -> Result<Self, PrefixError> {
        let found = tree.require("VERSION").at("use", path)?;
        if found != VERSION {
            return Err(PrefixError::Version { path: path.to_owned(), found, expected: VERSION });
        }
        for key in [RUN, NEXT] {
            tree.require::<u64>(key).at("use", path)?;
        }
        Ok(Self { tree })
    }

    /// Gives a run its number, higher than every one that was given before, that the index has, and than `seen`: what was seen in
    /// cache, and the time in seconds, so that an older file that somebody restores is no harm. The prefix directory gets its id if
    /// it has none. A file that is damaged is replaced by a new one; the error is given with the run.
    ///
    /// # Errors
    /// The file or the index cannot be read, or the file cannot be written.
    pub(crate) fn begin_run(
        files: &dyn Files,
        prefix: &Prefix,
        seen: u64,
    ) -> Result<(RunId, Option<PrefixError>), PrefixError> {
        let index = unless_damaged(Index::read(files, prefix))?.unwrap_or_default();
        let damage = shared::read::<Self>(files, prefix).err().filter(PrefixError::is_damage);
        let (id, last) = shared::update_repeated(files, prefix, true, |ids: &mut Self| {
            let last = ids.number(RUN).max(index.highest_run()).max(seen);
            ids.tree.set(RUN, last.saturating_add(1));
            let id = ids.prefix_id().or_else(|| index.prefix_id()).unwrap_or_else(PrefixId::random);
            ids.tree.set(PREFIX, &id);
            (id, last)
        })?;
        if index.wants_mark(&id, last) {
            // A copy, and what C SCR has written since the last run.
            Index::update_repeated(files, prefix, |index| index.mark(&id, last))?;
        }
        Ok((
            RunId { prefix: Some(id), number: last.saturating_add(1), is_counted: true, ..RunId::default() },
            damage,
        ))
    }

    /// The last run, for one that cannot get a number.
    ///
    /// # Errors
    /// The file or the index cannot be read.
    pub(crate) fn last_run(files: &dyn Files, prefix: &Prefix, seen: u64) -> Result<RunId, PrefixError> {
        let index = unless_damaged(Index::read(files, prefix))?.unwrap_or_default();
        let ids = unless_damaged(shared::read::<Self>(files, prefix))?.flatten().unwrap_or_default();
        let number = ids.number(RUN).max(index.highest_run()).max(seen);
        Ok(RunId { prefix: ids.prefix_id().or_else(|| index.prefix_id()), number, ..RunId::default() })
    }

    /// Reserves ids, none of them below `at_least`, and gives the first.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn reserve(
        files: &dyn Files,
        prefix: &Prefix,
        at_least: u64,
        count: u64,
    ) -> Result<u64, PrefixError> {
        shared::update_repeated(files, prefix, false, |ids: &mut Self| {
            let first = ids.number(NEXT).max(at_least);
            ids.tree.set(NEXT, first.saturating_add(count));
            first
        })
    }

    /// The first id that nobody has reserved.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn first_free(files: &dyn Files, prefix: &Prefix) -> Result<u64, PrefixError> {
        Ok(shared::read::<Self>(files, prefix)?.unwrap_or_default().number(NEXT))
    }

    /// Gives back the ids from `next` on of those that were reserved up to `end`, unless somebody has reserved others since.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn give_back(
        files: &dyn Files,
        prefix: &Prefix,
        next: u64,
        end: u64,
    ) -> Result<(), PrefixError> {
        shared::update(files, prefix, false, |ids: &mut Self| {
            if ids.number(NEXT) == end {
                ids.tree.set(NEXT, next);
            }
        })?;
        Ok(())
    }

    /// Records purged datasets. The copies of output in cache are not flushed again to the prefix directory.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn record_purged(
        files: &dyn Files,
        prefix: &Prefix,
        purged: &[u64],
    ) -> Result<(), PrefixError> {
        shared::update(files, prefix, false, |ids: &mut Self| {
            for id in purged {
                ids.tree.entry(PURGED, id);
            }
        })?;
        Ok(())
    }

    /// The datasets that were purged.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn purged(files: &dyn Files, prefix: &Prefix) -> Result<Vec<u64>, PrefixError> {
        let ids = unless_damaged(shared::read::<Self>(files, prefix))?.flatten().unwrap_or_default();
        Ok(ids.tree.get(PURGED).map(|purged| purged.keys_as().collect()).unwrap_or_default())
    }

    /// Records datasets that no run may restart from any more, whatever any cache has of them. Those of the run `alone` are left
    /// out while no later run has begun: no other one can have copies of them.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn record_withdrawn(
        files: &dyn Files,
        prefix: &Prefix,
        withdrawn: &[Seq],
        why: Withdrawal,
        alone: Option<u64>,
    ) -> Result<(), PrefixError> {
        shared::update(files, prefix, false, |ids: &mut Self| {
            let alone = alone.filter(|&run| ids.number(RUN) == run);
            for seq in withdrawn.iter().filter(|seq| Some(seq.run) != alone) {
                why.record(ids.tree.child(WITHDRAWN), *seq);
            }
            ids.limit_withdrawn();
        })?;
        Ok(())
    }

    /// Records that no run may restart from a checkpoint between these places any more, whatever any cache has of them.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn record_gone_back(
        files: &dyn Files,
        prefix: &Prefix,
        over: Between,
    ) -> Result<(), PrefixError> {
        shared::update(files, prefix, false, |ids: &mut Self| {
            let tree = ids.tree.child(WITHDRAWN);
            let mut all = Withdrawn::between(tree);
            all.retain(|earlier| earlier.after < over.after || over.before < earlier.before);
            all.push(over);
            Withdrawn::put_between(tree, &all);
            ids.limit_withdrawn();
        })?;
        Ok(())
    }

    fn limit_withdrawn(&mut self) {
        if let Some(mut tree) = self.tree.remove(WITHDRAWN) {
            Withdrawn::limit(&mut tree);
            self.tree.put(WITHDRAWN, tree);
        }
    }

    /// The datasets that were withdrawn.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn withdrawn(files: &dyn Files, prefix: &Prefix) -> Result<Withdrawn, PrefixError> {
        let ids = unless_damaged(shared::read::<Self>(files, prefix))?.flatten().unwrap_or_default();
        Ok(ids.into_withdrawn())
    }

    fn into_withdrawn(mut self) -> Withdrawn {
        Withdrawn(self.tree.remove(WITHDRAWN).unwrap_or_default())
    }

    fn prefix_id(&self) -> Option<PrefixId> {
        self.tree.text(PREFIX).and_then(PrefixId::parse)
    }

    fn number(&self, key: &str) -> u64 {
        self.tree.parse(key).ok().flatten().unwrap_or(0)
    }
}

/// Why no run may restart from a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// It was dropped or deleted: what cache has of it leaves.
    Removed,
    /// The application could not restart from it: it may leave once a newer one counts.
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
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Withdrawn(pub(crate) KvTree);

impl Withdrawn {
    /// Whether the dataset at this place is one, and why. Output is not given up where somebody goes back.
    pub(crate) fn why(&self, seq: Seq, is_only_checkpoint: bool) -> Option<Withdrawal> {
        let Self(tree) = self;
        let of_run = tree.get(seq.run.to_string());
        let has = |why: &Withdrawal| of_run.is_some_and(|run| run.find(why.key(), seq.id).is_some());
        let named = [Withdrawal::Removed, Withdrawal::Refused].into_iter().find(has);
        let is_between = || is_only_checkpoint && Self::between(tree).iter().any(|between| between.has(seq));
        let named = named.or_else(|| is_between().then_some(Withdrawal::Removed));
        named.or_else(|| Self::up_to(tree).filter(|&last| seq <= last).map(|_| Withdrawal::Refused))
    }

    /// What somebody has gone back over, in the order of time.
    fn between(tree: &KvTree) -> Vec<Between> {
        let all = tree.get(BETWEEN).into_iter().flat_map(KvTree::iter);
        let mut all: Vec<Between> = all
            .filter_map(|(_, between)| {
                let seq =
                    |run, id| Some(Seq { run: between.require(run).ok()?, id: between.require(id).ok()? });
                Some(Between { after: seq("RUN", "ID")?, before: seq("NEXT_RUN", "NEXT_ID")? })
            })
            .collect();
        all.sort_unstable_by_key(|between| between.before);
        all
    }

    fn put_between(tree: &mut KvTree, all: &[Between]) {
        tree.remove(BETWEEN);
        for (place, &Between { after, before }) in all.iter().enumerate() {
            let between = tree.entry(BETWEEN, place);
            between.set("RUN", after.run);
            between.set("ID", after.id);
            between.set("NEXT_RUN", before.run);
            between.set("NEXT_ID", before.id);
        }
    }

    fn up_to(tree: &KvTree) -> Option<Seq> {
        let last = tree.get(UP_TO)?;
        Some(Seq { run: last.require("RUN").ok()?, id: last.require("ID").ok()? })
    }

    /// Those that are known by their place.
    fn named(tree: &KvTree) -> Vec<(Seq, Withdrawal)> {
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

    /// Of too many, the older half is forgotten by place. From then on no dataset that is as old counts unless the index lists it:
    /// to lose one is not as bad as to restart from a wrong one.
    fn limit(tree: &mut KvTree) {
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
        *tree = KvTree::new();
        tree.child(UP_TO).set("RUN", last.run);
        tree.child(UP_TO).set("ID", last.id);
        newer_named.into_iter().for_each(|(seq, why)| why.record(tree, seq));
        Self::put_between(tree, &newer_between);
    }
}

fn unless_damaged<T>(read: Result<T, PrefixError>) -> Result<Option<T>, PrefixError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        other => other.map(Some),
    }
}

const VERSION: u64 = 1;
const PREFIX: &str = "PREFIX_RANDOM_ID";
const RUN: &str = "RUN";
const NEXT: &str = "NEXT";
const PURGED: &str = "PURGED";
const WITHDRAWN: &str = "WITHDRAWN";
const UP_TO: &str = "UP_TO";
const BETWEEN: &str = "BETWEEN";
/// As many withdrawn datasets are known by their place.
const MOST_WITHDRAWN: usize = 1000;
/// It is known of as many times that somebody has gone back.
const MOST_BETWEEN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::faulty::FaultyFiles;
    use crate::fs::RealFiles;
    use crate::prefix::fixtures::{let_look_dead, scratch, scratch_copy};
    use crate::prefix::DatasetDescriptor;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    fn begin(prefix: &Prefix, seen: u64) -> RunId {
        Ids::begin_run(&RealFiles, prefix, seen).unwrap().0
    }

    #[test]
    fn runs_and_ids_only_count_up_and_the_prefix_directory_stays_the_same() {
        let (_dir, prefix) = scratch();
        let first = begin(&prefix, 0);
        assert_eq!((first.number, first.is_counted), (1, true));
        assert_eq!(PrefixId::read(&RealFiles, &prefix).unwrap(), first.prefix);
        assert_eq!(Ids::reserve(&RealFiles, &prefix, 1, 10).unwrap(), 1);
        assert_eq!(Ids::reserve(&RealFiles, &prefix, 5, 10).unwrap(), 11);
        assert_eq!(Ids::reserve(&RealFiles, &prefix, 30, 10).unwrap(), 30);
        Ids::give_back(&RealFiles, &prefix, 32, 40).unwrap();
        Ids::give_back(&RealFiles, &prefix, 12, 21).unwrap();
        assert_eq!(Ids::reserve(&RealFiles, &prefix, 1, 1).unwrap(), 32);
        assert_eq!(begin(&prefix, 0), RunId { number: 2, ..first.clone() });
        assert_eq!(begin(&prefix, 9).number, 10);
        let (_other, other) = scratch();
        assert_ne!(begin(&other, 0).prefix, first.prefix);
    }

    /// It went on with ids that it had read before, and replaced datasets of the other process.
    #[test]
    fn a_process_that_was_stopped_while_it_reserved_ids_gets_none_of_another_one() {
        for at in 1.. {
            let (_dir, prefix) = scratch();
            let files = FaultyFiles::new(RealFiles);
            files.never_pause();
            let (other, lock) = (prefix.clone(), prefix.scr_file("index.lock"));
            let theirs = Arc::new(AtomicU64::new(1000));
            let first_of_theirs = Arc::clone(&theirs);
            files.interrupt_at(at, move || {
                let_look_dead(&lock);
                let first = Ids::reserve(&RealFiles, &other, 1, 10).unwrap();
                first_of_theirs.store(first, Ordering::SeqCst);
            });
            let ours = Ids::reserve(&files, &prefix, 1, 10).unwrap();
            let theirs = theirs.load(Ordering::SeqCst);
            assert!(theirs.abs_diff(ours) >= 10, "at {at}: {ours} and {theirs}");
            if !files.was_interrupted() {
                assert!(at > 5, "nothing was interrupted");
                break;
            }
        }
    }

    /// The run did not begin, though it only had to try again.
    #[test]
    fn a_process_that_was_stopped_while_its_run_began_gives_it_a_number_of_its_own() {
        for at in 1.. {
            let (_dir, prefix) = scratch();
            let dataset = DatasetDescriptor { id: 4, name: b"a".to_vec(), ..Default::default() };
            Index::update(&RealFiles, &prefix, |index| index.record(&dataset, true)).unwrap();
            let files = FaultyFiles::new(RealFiles);
            files.never_pause();
            let (other, lock) = (prefix.clone(), prefix.scr_file("index.lock"));
            let theirs = Arc::new(AtomicU64::new(0));
            let number_of_theirs = Arc::clone(&theirs);
            files.interrupt_at(at, move || {
                let_look_dead(&lock);
                number_of_theirs.store(begin(&other, 0).number, Ordering::SeqCst);
            });
            let ours = Ids::begin_run(&files, &prefix, 0).unwrap().0.number;
            assert_ne!(ours, theirs.load(Ordering::SeqCst), "at {at}");
            if !files.was_interrupted() {
                assert!(at > 10, "nothing was interrupted");
                break;
            }
        }
    }

    #[test]
    fn a_lost_or_damaged_counter_starts_above_the_index_with_the_id_of_the_index() {
        let (_dir, prefix) = scratch();
        let run = begin(&prefix, 0);
        let dataset = DatasetDescriptor { id: 4, run: 7, name: b"a".to_vec(), ..Default::default() };
        Index::update(&RealFiles, &prefix, |index| index.record(&dataset, true)).unwrap();
        begin(&prefix, 0);
        let path = Ids::path(&prefix);
        for damaged in [None, Some("x"), Some("")] {
            std::fs::remove_file(&path).unwrap();
            damaged.iter().for_each(|text| std::fs::write(&path, text).unwrap());
            let (again, damage) = Ids::begin_run(&RealFiles, &prefix, 0).unwrap();
            assert_eq!(again, RunId { number: 8, ..run.clone() }, "{damaged:?}");
            assert_eq!(damage.is_some(), damaged.is_some());
        }
        // A file of a later release is not replaced.
        let mut tree = Ids::default().tree;
        tree.set("VERSION", VERSION + 1);
        std::fs::write(&path, tree.to_file_bytes()).unwrap();
        assert!(Ids::begin_run(&RealFiles, &prefix, 0).is_err());
        assert!(PrefixId::read(&RealFiles, &prefix).is_err());
    }

    #[test]
    fn what_is_withdrawn_stays_so_and_takes_a_limited_room() {
        let (_dir, prefix) = scratch();
        begin(&prefix, 1);
        let record = |seqs: &[Seq], why, alone| {
            Ids::record_withdrawn(&RealFiles, &prefix, seqs, why, alone).unwrap();
        };
        let withdrawn = || Ids::withdrawn(&RealFiles, &prefix).unwrap();
        let why = |seq| withdrawn().why(seq, true);
        let (own, earlier) = (Seq { run: 2, id: 1 }, Seq { run: 1, id: 1 });
        record(&[own, earlier], Withdrawal::Refused, Some(2));
        assert_eq!((why(own), why(earlier)), (None, Some(Withdrawal::Refused)));
        record(&[earlier], Withdrawal::Removed, Some(2));
        assert_eq!(why(earlier), Some(Withdrawal::Removed));
        begin(&prefix, 0);
        record(&[own], Withdrawal::Removed, Some(2));
        assert_eq!(why(own), Some(Withdrawal::Removed), "another run may have a copy");
        let many: Vec<Seq> = (0..5000).map(|place| Seq { run: 3 + place / 100, id: 2 * place }).collect();
        many.chunks(500).for_each(|some| record(some, Withdrawal::Removed, None));
        let all = withdrawn();
        assert!(Withdrawn::named(&all.0).len() <= MOST_WITHDRAWN);
        assert!(many.iter().chain([&own, &earlier]).all(|seq| all.why(*seq, true).is_some()));
        let newest = Seq { run: 52, id: 9997 };
        assert_eq!(all.why(newest, true), None, "it was not withdrawn, and few are newer");
        assert_eq!(
            all.why(Seq { run: 3, id: 7 }, true),
            Some(Withdrawal::Refused),
            "it is older than what is forgotten"
        );
    }

    #[test]
    fn checkpoints_that_somebody_has_gone_back_over_stay_withdrawn_and_take_a_limited_room() {
        let (_dir, prefix) = scratch();
        begin(&prefix, 1);
        let seq = |run, id| Seq { run, id };
        let go_back = |after, before| {
            Ids::record_gone_back(&RealFiles, &prefix, Between { after, before }).unwrap();
        };
        let withdrawn = || Ids::withdrawn(&RealFiles, &prefix).unwrap();
        let why = |seq| withdrawn().why(seq, true);
        go_back(seq(1, 2), seq(2, 5));
        assert_eq!([seq(1, 2), seq(2, 5)].map(why), [None; 2], "the one gone back to, and the next one");
        assert_eq!([seq(1, 3), seq(2, 4)].map(why), [Some(Withdrawal::Removed); 2]);
        assert_eq!(withdrawn().why(seq(1, 3), false), None, "output is not given up");
        go_back(seq(1, 2), seq(4, 9));
        go_back(seq(1, 1), seq(3, 7));
        assert_eq!(Withdrawn::between(&withdrawn().0).len(), 2, "one of them was more than the first");
        assert_eq!([seq(1, 2), seq(4, 8)].map(why), [Some(Withdrawal::Removed); 2]);
        (5..1000).for_each(|run| go_back(seq(run, 3), seq(run, 5)));
        assert!(Withdrawn::between(&withdrawn().0).len() <= MOST_BETWEEN);
        assert!((5..1000).all(|run| why(seq(run, 4)).is_some()));
        assert_eq!([seq(999, 3), seq(999, 5)].map(why), [None; 2]);
        let named = Ids::record_withdrawn(&RealFiles, &prefix, &[seq(2000, 1)], Withdrawal::Refused, None);
        assert!(named.is_ok() && why(seq(999, 4)) == Some(Withdrawal::Removed));
    }

    #[test]
    fn datasets_of_c_scr_are_ordered_between_the_runs_around_them() {
        let (_dir, prefix) = scratch_copy("xor-flush2");
        let first = begin(&prefix, 0);
        let index = Index::read(&RealFiles, &prefix).unwrap();
        assert_eq!(index.prefix_id(), first.prefix);
        assert!(index.entries().iter().all(|entry| entry.run == 0));
        let theirs = DatasetDescriptor { id: 90, name: b"theirs".to_vec(), ..Default::default() };
        Index::update(&RealFiles, &prefix, |index| index.record(&theirs, true)).unwrap();
        begin(&prefix, 0);
        let index = Index::read(&RealFiles, &prefix).unwrap();
        let newest = index.entries()[0].clone();
        assert_eq!((newest.id, newest.run), (90, 1));
        assert!(newest.seq() < DatasetDescriptor { id: 5, run: 2, ..Default::default() }.seq());
    }
}
