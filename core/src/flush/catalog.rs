//! Index, summary and file lists, as a flush changes them. Only rank 0 does, or the process that closes a flush for it; but the
//! first rank of a leaf of the file lists writes that leaf.
//!
//! Whether a dataset may have its name and its files is decided here, while nobody else changes the index. A dataset that is not
//! complete *takes* them before the first file gets its name, or is given out to be written in place. From then on it counts
//! against older ones like one that is complete, and older ones that are under way are ended first. It becomes complete only if
//! they are still its own.

use super::closing::{Fence, SAVED};
use super::pending::{self, FoundRecord, PendingError, PendingFlush};
use crate::fs::{Files, FsError};
use crate::planted::{planted, Bug};
use crate::prefix::rank2file::LeafLists;
use crate::prefix::{
    DatasetDescriptor, FileName, FlushProgress, Ids, Index, IndexEntry, Prefix, PrefixError, PrefixFile,
    Rank2File, Running, Summary, Withdrawal, DELETION, IN_PLACE,
};
use std::collections::{HashMap, HashSet};

/// What rank 0 records of the files of a flush. The other leaves are there by then.
#[derive(Debug, Clone)]
pub(crate) struct RecordedLists {
    /// The first leaf.
    pub(crate) first: LeafLists,
    pub(crate) ranks_per_leaf: u32,
    /// The files of all ranks, if any of them may replace one of an older dataset.
    pub(crate) replacing: Option<Vec<Vec<PrefixFile>>>,
}

/// Whether a dataset becomes the current one once it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MakeCurrent {
    Never,
    /// Unless a newer checkpoint is complete.
    IfNewest,
    /// The user has gone back to it.
    Always,
}

impl From<bool> for MakeCurrent {
    fn from(is_wanted: bool) -> Self {
        if is_wanted {
            Self::IfNewest
        } else {
            Self::Never
        }
    }
}

/// The records of the datasets under one prefix.
#[derive(Clone, Copy)]
pub(crate) struct Catalog<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) prefix: &'a Prefix,
}

/// Whether something was done, or the flush of an older dataset has to be ended first, which has this token.
pub(crate) enum Turn<T> {
    Done(T),
    After(String),
}

/// Which other datasets have a file in common with one, as far as that was found out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sharing {
    own: Option<HashSet<FileName>>,
    /// By number and time of the flush.
    known: HashMap<(u64, Option<String>), bool>,
    /// Whether it was asked for all that count.
    is_complete: bool,
}

impl Sharing {
    /// For a dataset with these files.
    pub(crate) fn of(lists: &[Vec<PrefixFile>]) -> Self {
        let own = lists.iter().flatten().map(|file| file.name.clone()).collect();
        Self { own: Some(own), ..Self::default() }
    }

    /// Whether dataset `id` shares a file with the other. One whose lists cannot be read cannot be restarted from either; but an
    /// application that writes in place has listed nothing yet, and what it writes is not known.
    fn with(&mut self, catalog: &Catalog<'_>, id: u64, other: &IndexEntry) -> Result<bool, PrefixError> {
        let key = (other.id, other.flushed.clone());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let shares = match catalog.names_of(other.id)? {
            Some(theirs) => {
                if self.own.is_none() {
                    self.own = Some(catalog.names_of(id)?.unwrap_or_default());
                }
                !self.own.as_ref().is_some_and(|own| own.is_disjoint(&theirs))
            }
            None => return Ok(!other.complete && other.taken.as_deref() == Some(IN_PLACE)),
        };
        self.known.insert(key, shares);
        Ok(shares)
    }
}

/// A process that closes the flush of a job.
#[derive(Clone, Copy)]
pub(crate) struct Closer<'a> {
    /// Its random number.
    pub(crate) number: &'a str,
    pub(crate) has_lock: Fence<'a>,
}

/// How the other datasets stand to one that wants its name and its files.
struct Judged {
    /// A newer one that has the name or a file.
    newer: Option<u64>,
    /// An older flush whose files may be getting the same names just now.
    before: Option<String>,
    /// One whose files another run reads where they lie.
    held: Option<u64>,
    /// Complete ones of other names with a file of it: once that is replaced, they are whole no more.
    replaces: Vec<u64>,
}

impl Catalog<'_> {
    /// Writes the record of a flush, before a byte is copied: the dataset is listed as incomplete. Where its name refers to one
    /// that is complete, that one stays listed until this one [takes](Self::take) the name: not a file of it has been touched.
    pub(crate) fn record_pending(
        &self,
        record: &mut PendingFlush,
        lists: &RecordedLists,
    ) -> Result<(), PrefixError> {
        let (dataset, sharing) = (&record.dataset, &mut record.sharing);
        *sharing = self.sharing_of(lists)?;
        let index = Index::read(self.files, self.prefix)?;
        let judged = self.judge(&index, dataset, sharing)?;
        judged.newer.map_or(Ok(()), |newer| Err(PrefixError::Superseded { newer }))?;
        if planted(Bug::NameTakenBeforeCopied) {
            self.take(dataset, &record.token, None, sharing)?;
        } else {
            self.list_incomplete(dataset)?;
        }
        // Most flushes have no use for it any more, and it may be long.
        record.sharing.own = None;
        self.write_first_lists(record.dataset.id, lists)?;
        Ok(record.write(self.files, self.prefix)?)
    }

    /// Lists the files of a dataset that is in place already, which gets no record.
    pub(crate) fn record_in_place(
        &self,
        dataset: &DatasetDescriptor,
        lists: &RecordedLists,
    ) -> Result<Turn<()>, PrefixError> {
        let turn = self.take(dataset, IN_PLACE, None, &mut self.sharing_of(lists)?)?;
        if let Turn::Done(()) = turn {
            self.write_first_lists(dataset.id, lists)?;
        }
        Ok(turn)
    }

    /// Where no file was there before, none belongs to a dataset that is complete.
    fn sharing_of(&self, lists: &RecordedLists) -> Result<Sharing, PrefixError> {
        self.prefix.make_scr_dir(self.files)?;
        if let Some(all) = &lists.replacing {
            return Ok(Sharing::of(all));
        }
        let index = Index::read(self.files, self.prefix)?;
        let complete = index.entries().into_iter().filter(IndexEntry::is_valid);
        let known = complete.map(|other| ((other.id, other.flushed), false)).collect();
        Ok(Sharing { known, is_complete: true, ..Sharing::default() })
    }

    fn write_first_lists(&self, id: u64, lists: &RecordedLists) -> Result<(), PrefixError> {
        self.write_leaf(id, &lists.first)?;
        Rank2File::write_maps(self.files, self.prefix, id, lists.first.ranks, lists.ranks_per_leaf)
    }

    /// From here on name and files belong to this dataset, which is not complete, and the older ones that had them count no more:
    /// for the flush of this token, which must still be on record, or for what is in place. Either its job closes it, or the process
    /// of this number does, which takes names away for a moment: then only that one makes the dataset complete.
    pub(crate) fn take(
        &self,
        dataset: &DatasetDescriptor,
        by: &str,
        closer: Option<Closer<'_>>,
        sharing: &mut Sharing,
    ) -> Result<Turn<()>, PrefixError> {
        self.in_index(dataset, sharing, by == IN_PLACE, |index, replaces| {
            self.expect_wanted(index, dataset, by)?;
            if closer.is_some_and(|closer| !(closer.has_lock)()) && !planted(Bug::FenceNotChecked) {
                return Err(FsError::LockLost { path: self.prefix.index_file() }.into());
            }
            if by != IN_PLACE && !planted(Bug::NameTakenBeforeCopied) {
                // Who drops the dataset removes the record first, and then changes the index.
                pending::expect(self.files, self.prefix, by, dataset.id)?;
                let is_ended = index.progress(dataset, by) == FlushProgress::Ended { counts: true };
                if is_ended || closer.is_none() && index.closer(dataset.id, by).is_some() {
                    return Err(PrefixError::Ended { id: dataset.id });
                }
            }
            index.take(dataset, by, closer.map(|closer| closer.number));
            replaces.iter().for_each(|&id| _ = index.set_complete(id, false));
            Ok(())
        })
    }

    /// Who drops a dataset records that before the index changes. To save it from cache all the same is what somebody asked for.
    fn expect_wanted(&self, index: &Index, dataset: &DatasetDescriptor, by: &str) -> Result<(), PrefixError> {
        let withdrawn = Ids::withdrawn(self.files, self.prefix)?;
        let why = withdrawn.why(index.seq_of(dataset), dataset.is_only_checkpoint());
        match why == Some(Withdrawal::Removed) && !by.starts_with(SAVED) {
            true => Err(PrefixError::Ended { id: dataset.id }),
            false => Ok(()),
        }
    }

    /// The application begins to write a dataset in place, and its files are not known yet. Gives whether the index has others
    /// that are complete, or never were: those may lie in place without being listed yet.
    pub(crate) fn begin_in_place(&self, dataset: &DatasetDescriptor) -> Result<Turn<bool>, PrefixError> {
        Index::update(self.files, self.prefix, |index| {
            self.expect_free_number(index, dataset)?;
            let others = |index: &Index| -> Vec<IndexEntry> {
                index.entries().into_iter().filter(|entry| entry.id != dataset.id).collect()
            };
            for other in others(index) {
                if let Some(token) = self.under_way(&other)?.filter(|&by| by != IN_PLACE) {
                    return Ok(Turn::After(token.to_owned()));
                }
            }
            index.take(dataset, IN_PLACE, None);
            let is_at_risk = |entry: &IndexEntry| entry.is_valid() || entry.flushed.is_none();
            Ok(Turn::Done(others(index).iter().any(is_at_risk)))
        })?
    }

    /// Does `change` with the index if it is the turn of this dataset, and says which datasets it replaces files of. What another run
    /// reads is in nobody's way whose files are `in_place`: they are replaced already.
    fn in_index<T, E: From<PrefixError>>(
        &self,
        dataset: &DatasetDescriptor,
        sharing: &mut Sharing,
        in_place: bool,
        change: impl FnOnce(&mut Index, &[u64]) -> Result<T, E>,
    ) -> Result<Turn<T>, E> {
        if !sharing.is_complete {
            // Lists may take long to read, and others wait for the index.
            self.judge(&Index::read(self.files, self.prefix)?, dataset, sharing)?;
        }
        Index::update(self.files, self.prefix, |index| {
            let Judged { newer, before, held, replaces } = self.judge(index, dataset, sharing)?;
            match (newer, held, before) {
                (Some(newer), ..) => Err(PrefixError::Superseded { newer }.into()),
                (None, Some(id), _) if !in_place => Err(PrefixError::InUse { id }.into()),
                (None, _, Some(token)) => Ok(Turn::After(token)),
                (None, _, None) => Ok(Turn::Done(change(index, &replaces)?)),
            }
        })?
    }

    fn judge(
        &self,
        index: &Index,
        dataset: &DatasetDescriptor,
        sharing: &mut Sharing,
    ) -> Result<Judged, PrefixError> {
        self.expect_own_number(index, dataset)?;
        let mut judged = Judged { newer: None, before: None, held: None, replaces: Vec::new() };
        let own = index.seq_of(dataset);
        for other in index.entries() {
            if other.id == dataset.id {
                // Another job may be removing the files of an earlier flush of it, which are to be files of this one.
                let is_deleted = !other.is_valid() && other.taken.as_deref() == Some(DELETION);
                judged.before = judged.before.or_else(|| is_deleted.then(|| DELETION.to_owned()));
                continue;
            }
            let by = if other.is_valid() { None } else { self.under_way(&other)? };
            if !other.is_valid() && by.is_none() {
                continue;
            }
            // A run keeps its own datasets apart by itself, with all names that it knows.
            let is_unknown = by == Some(IN_PLACE) && other.run == dataset.run;
            let is_named_so = other.name == dataset.name;
            if !is_named_so && (is_unknown || !sharing.with(self, dataset.id, &other)?) {
                continue;
            }
            match by {
                // Whatever is older: what is removed is not to be files of this one.
                Some(DELETION) => judged.before = Some(DELETION.to_owned()),
                _ if other.seq() > own && !planted(Bug::LateFlushReplacesNewer) => {
                    judged.newer = judged.newer.max(Some(other.id));
                }
                Some(token) if token != IN_PLACE => judged.before = Some(token.to_owned()),
                None if self.is_held(&other, dataset.run) => judged.held = Some(other.id),
                None if !is_named_so => judged.replaces.push(other.id),
                _ => {}
            }
        }
        sharing.is_complete = true;
        Ok(judged)
    }

    /// Two datasets may have been given one number: where it could not be reserved, or the numbers were lost. Entry and lists go by
    /// the number, so one that counts or is under way is not replaced by another dataset.
    fn expect_own_number(&self, index: &Index, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        let Some(found) = index.entry(dataset.id) else { return Ok(()) };
        let created = found.dataset.as_ref().map_or(0, |known| known.created);
        if is_same(&found.name, created, dataset) {
            return Ok(());
        }
        if found.is_valid() || self.under_way(&found)?.is_some() {
            return Err(number_taken(dataset.id, &found.name));
        }
        Ok(())
    }

    /// The same also where the other dataset has not taken its name yet: its flush is on record.
    fn expect_free_number(&self, index: &Index, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        self.expect_own_number(index, dataset)?;
        for found in pending::list(self.files, self.prefix)? {
            // One that cannot be read does not keep all others from being flushed.
            let FoundRecord::Usable(record) = found else { continue };
            let (revoked, other) = (record.revoked, record.dataset);
            if !revoked && other.id == dataset.id && !is_same(&other.name, other.created, dataset) {
                return Err(number_taken(dataset.id, &other.name));
            }
        }
        Ok(())
    }

    /// Who may be giving files the names of a dataset that is not complete, if anybody still may: a flush that is on record, or a
    /// run.
    fn under_way<'e>(&self, entry: &'e IndexEntry) -> Result<Option<&'e str>, PrefixError> {
        let Some(by) = entry.taken.as_deref().filter(|_| !entry.superseded) else { return Ok(None) };
        let is_under_way = match by {
            IN_PLACE => Running::may_be_any(self.files, self.prefix),
            // Who waits for it learns whether its process lives.
            DELETION => true,
            token => match pending::find(self.files, self.prefix, token) {
                Err(PendingError::Fs(error)) if !error.is_damage() => return Err(error.into()),
                // Nobody can close it with such a record.
                Err(_) => false,
                Ok(found) => found.is_some(),
            },
        };
        Ok(Some(by).filter(|_| is_under_way))
    }

    /// Whether a run other than `run` reads the files of a dataset where they lie.
    pub(crate) fn is_held(&self, entry: &IndexEntry, run: u64) -> bool {
        entry.held.iter().any(|&by| by != run) && Running::may_be_any(self.files, self.prefix)
    }

    /// Refuses a change after which datasets may lose their files, if a run other than `run` reads one of them in place.
    ///
    /// # Errors
    /// [`PrefixError::InUse`].
    pub(crate) fn refuse_held<'e>(
        &self,
        entries: impl IntoIterator<Item = &'e IndexEntry>,
        run: u64,
    ) -> Result<(), PrefixError> {
        let held = entries.into_iter().find(|entry| self.is_held(entry, run));
        held.map_or(Ok(()), |entry| Err(PrefixError::InUse { id: entry.id }))
    }

    /// The same for the datasets of a name.
    ///
    /// # Errors
    /// [`PrefixError::InUse`].
    pub(crate) fn refuse_held_named(&self, index: &Index, name: &[u8], run: u64) -> Result<(), PrefixError> {
        self.refuse_held(index.entries().iter().filter(|entry| entry.name == name), run)
    }

    /// Run `run` is about to remove files of a dataset: see [`Index::begin_deletion`].
    ///
    /// # Errors
    /// Another run reads them in place: [`PrefixError::InUse`].
    pub(crate) fn begin_deletion(&self, id: u64, run: u64) -> Result<(), PrefixError> {
        Index::update(self.files, self.prefix, |index| {
            self.refuse_held(&index.entry(id), run)?;
            index.begin_deletion(id);
            Ok(())
        })?
    }

    /// From here on nobody gives files the names of a dataset, as run `run` reads its files where they lie. False where somebody has
    /// done so before, or it was dropped: then it must not be read there.
    pub(crate) fn hold(&self, id: u64, name: &[u8], run: u64) -> Result<bool, PrefixError> {
        Index::update_repeated(self.files, self.prefix, |index| {
            let is_whole = index.is_whole(id, name);
            if is_whole {
                index.hold(id, run);
            }
            is_whole
        })
    }

    /// This run, or any, reads no files in place any more.
    pub(crate) fn release_held(&self, by: Option<u64>) -> Result<(), PrefixError> {
        let is_any = Index::read(self.files, self.prefix)?.release_held(by);
        if is_any {
            Index::update(self.files, self.prefix, |index| index.release_held(by))?;
        }
        Ok(())
    }

    /// What applications of earlier runs wrote in place is not being written any more, nor what they read in place read, where no
    /// other run is under way beside `running`. If locks cannot say that, only what was read is released.
    pub(crate) fn release_of_earlier_runs(&self, running: &Running) -> Result<(), PrefixError> {
        let release = |index: &mut Index| {
            let is_alone = !running.is_second();
            let was_written = is_alone && running.is_known() && index.release(IN_PLACE, None);
            let was_read = is_alone && index.release_held(None);
            was_written || was_read
        };
        let is_any = release(&mut Index::read(self.files, self.prefix)?);
        if is_any {
            Index::update(self.files, self.prefix, release)?;
        }
        Ok(())
    }

    /// Nobody removes files of a dataset any more. For who has the lock that a deletion holds.
    pub(super) fn release_deleted(&self) -> Result<(), PrefixError> {
        let is_any = Index::read(self.files, self.prefix)?.release(DELETION, None);
        if is_any {
            Index::update(self.files, self.prefix, |index| index.release(DELETION, None))?;
        }
        Ok(())
    }

    /// The names of the files of a dataset; `None` where its lists are missing or damaged.
    fn names_of(&self, id: u64) -> Result<Option<HashSet<FileName>>, PrefixError> {
        match Rank2File::read(self.files, self.prefix, id) {
            Ok(lists) => Ok(Some(lists.by_rank().iter().flatten().map(|file| file.name.clone()).collect())),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the files of the ranks of a leaf.
    pub(crate) fn write_leaf(&self, id: u64, leaf: &LeafLists) -> Result<(), PrefixError> {
        self.prefix.make_dataset_dir(self.files, id)?;
        leaf.write(self.files, self.prefix, id)
    }

    /// Lists a dataset as incomplete, unless its name refers to one that is complete or has taken it, or to a newer one.
    pub(crate) fn list_incomplete(&self, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        self.prefix.make_scr_dir(self.files)?;
        Index::update(self.files, self.prefix, |index| {
            self.expect_free_number(index, dataset)?;
            let owner = index.id_of(&dataset.name).and_then(|id| index.entry(id));
            let is_free = |owner: &IndexEntry| !owner.is_valid() && owner.taken.is_none();
            if owner.is_none_or(|owner| is_free(&owner) && owner.seq() <= index.seq_of(dataset)) {
                index.record(dataset, false);
            }
            Ok(())
        })?
    }

    /// Names of files that belong to datasets other than `id` that are complete, or about to be.
    pub(crate) fn names_of_others(&self, id: u64) -> Result<HashSet<FileName>, PrefixError> {
        let mut names = HashSet::new();
        let index = Index::read(self.files, self.prefix)?;
        let counts =
            |entry: &IndexEntry| entry.is_valid() || entry.taken.as_ref().is_some_and(|by| by != DELETION);
        for other in index.entries().iter().filter(|entry| counts(entry) && entry.id != id) {
            // No run can restart from one with damaged lists, and its files are still unknown.
            names.extend(self.names_of(other.id)?.unwrap_or_default());
        }
        Ok(names)
    }

    /// Lists the files of every rank.
    pub(crate) fn write_lists(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
    ) -> Result<(), PrefixError> {
        self.prefix.make_dataset_dir(self.files, dataset.id)?;
        Rank2File::new(lists.to_vec()).write(self.files, self.prefix, dataset.id)
    }

    /// Complete datasets of other names that have a file in common with `lists`.
    pub(crate) fn sharing(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
    ) -> Result<Vec<u64>, PrefixError> {
        let mut sharing = Sharing::of(lists);
        let others = Index::read(self.files, self.prefix)?.entries().into_iter().filter(IndexEntry::is_valid);
        let mut found = Vec::new();
        for other in others.filter(|other| other.id != dataset.id && other.name != dataset.name) {
            if sharing.with(self, dataset.id, &other)? {
                found.push(other.id);
            }
        }
        Ok(found)
    }

    /// Every byte is safe and has its name: the dataset that has taken it counts from here on.
    pub(crate) fn commit(
        &self,
        record: &PendingFlush,
        by: &str,
        closer: Option<&str>,
        now: &str,
    ) -> Result<(), PrefixError> {
        let dataset = &record.dataset;
        Summary { dataset: dataset.clone(), complete: true }.write(self.files, self.prefix)?;
        Index::update(self.files, self.prefix, |index| {
            match index.progress(dataset, by) {
                FlushProgress::Taken if index.closer(dataset.id, by) == closer => {
                    complete(index, dataset, record.make_current, now);
                    index.mark_flushed_by(dataset.id, by);
                    Ok(())
                }
                // Another process has closed it too, and was first.
                FlushProgress::Ended { counts: true } => Ok(()),
                // The one that has the lock by now closes it.
                FlushProgress::Taken if closer.is_some() => {
                    Err(FsError::LockLost { path: self.prefix.index_file() }.into())
                }
                _ => Err(PrefixError::Ended { id: dataset.id }),
            }
        })?
    }

    /// Lists a dataset whose files are in place and safe, unless the index, which nobody else changes meanwhile, speaks against
    /// it.
    pub(crate) fn list_whole<E: From<PrefixError>>(
        &self,
        dataset: &DatasetDescriptor,
        sharing: &mut Sharing,
        make_current: MakeCurrent,
        now: &str,
        check: impl FnOnce(&Index) -> Result<(), E>,
    ) -> Result<Turn<()>, E> {
        let summary = Summary { dataset: dataset.clone(), complete: true };
        // Its time says since when no file has changed, and it is not to become younger.
        if !Summary::read(self.files, self.prefix, dataset.id)
            .is_ok_and(|found| found.as_ref() == Some(&summary))
        {
            summary.write(self.files, self.prefix)?;
        }
        self.in_index(dataset, sharing, true, |index, replaces| {
            check(index)?;
            replaces.iter().for_each(|&id| _ = index.set_complete(id, false));
            complete(index, dataset, make_current, now);
            Ok(())
        })
    }
}

/// Whether a dataset of this name that was created at this time is one that has the same number; no time is 0.
fn is_same(name: &[u8], created: u64, dataset: &DatasetDescriptor) -> bool {
    let is_same_time = created == dataset.created || created == 0 || dataset.created == 0;
    name == dataset.name && is_same_time
}

fn number_taken(id: u64, name: &[u8]) -> PrefixError {
    PrefixError::NumberTaken { id, name: String::from_utf8_lossy(name).into_owned() }
}

fn complete(index: &mut Index, dataset: &DatasetDescriptor, make_current: MakeCurrent, now: &str) {
    index.record(dataset, true);
    index.mark_flushed(dataset.id, now);
    let becomes_current = match make_current {
        MakeCurrent::Never => false,
        MakeCurrent::IfNewest => index.newer_candidates(index.seq_of(dataset)).is_empty(),
        MakeCurrent::Always => true,
    };
    if becomes_current {
        index.set_current(&dataset.name);
    }
}
