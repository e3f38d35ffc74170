//! How flushes end: from the mark that all has arrived to the index. Flush, fetch, deletion, import and scavenge end them here.
//!
//! A flush with all its marks is whole on disk, in staging files. From then on it is only rolled forward: the files get their
//! names, and the dataset is listed. Any process may repeat these steps. A flush without all its marks is rolled back before one
//! of its names is used again. So is one that is too late: a newer dataset that is complete, or has taken the names, keeps them.
//!
//! Outside of a job, one process at a time closes flushes, on any node. A lock that also works between nodes excludes the others.
//! A process that comes later finds the flush gone; one whose lock was broken meanwhile gives no file its name any more. The
//! ranks of a job need no lock: another process that wants the same names ends their flush first, and then they find it gone. A
//! process that closes the flush of a job that is only slow says so in the index, and from then on the job does not make the
//! dataset complete.
//!
//! | part | what is in it |
//! |---|---|
//! | `closing` | the steps, in [`Commit::close`]: the one function that puts files in the place of others under the names of the application |
//! | `lock` | the lock of the process that ends flushes; `names`: how files get their names |
//! | `outcome` | what became of a flush |

mod closing;
mod lock;
mod names;
mod outcome;

pub use closing::Share;
pub use lock::if_soon_free;
pub use names::{folders_of, make_folders, sync_folders, sync_names, unused_name, Staged};
pub use outcome::{CloseOutcome, FlushOutcome, CURE};

use crate::ledger::pending::{self, FoundRecord, PendingFlush};
use crate::ledger::{
    By, CommonFiles, Do, Dropping, Ended, Fence, Found, Ledger, LedgerDir, Refusal, Request, Turn, Whose,
    Wish,
};
use crate::{DatasetDescriptor, FlushProgress, IndexEntry, PrefixError, PrefixFile, Running, Unsynced};
use closing::Closing;
use scr_base::describe;
use scr_base::fs::{At, FsError, How};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A process that ends flushes below a prefix directory, or waits for their end.
pub struct Commit<'a> {
    pub ledger: LedgerDir<'a>,
    /// The time as the index writes it.
    pub now: String,
}

impl<'a> LedgerDir<'a> {
    /// To end flushes at this time.
    pub fn commit(self, now: impl Into<String>) -> Commit<'a> {
        Commit { ledger: self, now: now.into() }
    }

    /// Takes datasets out of the index for run `run`, or for none (0), and ends the flushes under way that would list them again.
    /// Gives whether there was any, and a warning if other processes were not kept out. A dataset that is whole can be listed
    /// again.
    ///
    /// # Errors
    /// A flush could not be rolled back, the index cannot be changed, or another run reads files of a dataset in place, which
    /// nobody would keep for it any more.
    pub fn drop_datasets(
        self,
        which: Dropping<'_>,
        run: u64,
    ) -> Result<(bool, Option<&'static str>), PrefixError> {
        let Self { files, prefix } = self;
        let meant = || -> Result<Vec<IndexEntry>, PrefixError> {
            Ok(self.index()?.entries().into_iter().filter(|entry| which.means(entry)).collect())
        };
        self.refuse_held(&meant()?, run)?;
        let abandon = || self.abandon(|dataset| which.means_described(dataset));
        let mut ended = abandon()?;
        for entry in meant()?.iter().filter(|entry| entry.is_valid()) {
            if files.remove_if_there(&prefix.import_mark(entry.id))? {
                let folder = prefix.dataset_dir(entry.id);
                files.sync_dir(&folder).at("sync", &folder)?;
            }
        }
        let request = Request::Drop { which, run };
        let dropped = in_turn(
            || self.attempt(&request, &mut CommonFiles::default(), &mut |_| Ok(())),
            // Its flush was on record only after the others had been taken back.
            |_| abandon().map(|any| ended |= any),
        )?;
        Ok((!dropped.events.is_empty() || ended, dropped.caution))
    }

    /// Rolls back the flushes of datasets that are meant, however far they are: one that is closed later would be listed again.
    /// Gives whether there was any.
    ///
    /// # Errors
    /// One could not be rolled back.
    pub fn abandon(self, is_meant: impl Fn(&DatasetDescriptor) -> bool) -> Result<bool, PrefixError> {
        let meant = || -> Result<Vec<PendingFlush>, FsError> {
            let found = pending::list(self)?.into_iter().map(FoundRecord::known);
            let known = found.collect::<Result<Vec<_>, _>>()?;
            Ok(known.into_iter().flatten().filter(|record| is_meant(&record.dataset)).collect())
        };
        if meant()?.is_empty() {
            return Ok(false);
        }
        self.alone(|fence| {
            for record in meant()? {
                self.closing(record, fence).run(Wish::TakeBack, "")?;
            }
            Ok(true)
        })
    }

    fn closing<'c>(&'c self, record: PendingFlush, fence: Fence<'c>) -> Closing<'c> {
        Closing { ledger: *self, record, fence }
    }
}

impl Commit<'_> {
    /// Ends the flushes found under way as is wished. [`Wish::End`] is for a process that has no flush of its own under way
    /// there. With [`Wish::EndArrived`] those are finished whose data has arrived, though the application has died or never
    /// called again, and others are left as they are: it is for when no application runs that ends its flushes itself.
    ///
    /// # Errors
    /// The folder could not be listed.
    pub fn end_all(&self, wish: Wish) -> Result<Vec<FlushOutcome>, PrefixError> {
        let unusable =
            |error: FsError, is_damaged| Some(FlushOutcome::Unusable { why: describe(&error), is_damaged });
        let end = |found| match found {
            FoundRecord::Usable(record) => self.end_found(&record, wish),
            FoundRecord::Damaged(error) => unusable(error, true),
            FoundRecord::Unread(error) => unusable(error, false),
        };
        Ok(pending::list(self.ledger)?.into_iter().filter_map(end).collect())
    }

    fn end_found(&self, record: &PendingFlush, wish: Wish) -> Option<FlushOutcome> {
        let ended = self.ledger.alone(|fence| {
            // Somebody may have ended it while this process waited for the lock.
            let found = pending::find_left(self.ledger, &record.token)?;
            Ok::<_, FsError>(found.map(|record| self.ledger.closing(record, fence).end(&self.now, wish)))
        });
        ended.unwrap_or_else(|error| Some(self.ledger.postponed(record, describe(&error))))
    }

    /// Finishes the flush of this token if its data has arrived, and gives what became of it where anything is under way by that
    /// token. It does not wait long: `None` where another process ends or marks flushes.
    ///
    /// # Errors
    /// The lock or the record cannot be used.
    pub fn end_now(&self, token: &str) -> Result<Option<Option<FlushOutcome>>, FsError> {
        self.ledger.try_alone(|fence| {
            let found = pending::find(self.ledger, token)?;
            Ok(found.map(|record| self.ledger.closing(record, fence).end(&self.now, Wish::EndArrived)))
        })
    }

    /// Ends the flush of this token, however long that takes, where an earlier process has died with it.
    ///
    /// # Errors
    /// It could not be ended.
    pub fn end_earlier(&self, token: &str) -> Result<(), PrefixError> {
        match pending::is_recorded(self.ledger, token)? {
            true => self.end_before(None, &By::from(token)),
            false => Ok(()),
        }
    }

    /// Ends the flushes that were left of a dataset that is complete by now, if no run may still be at them.
    ///
    /// # Errors
    /// One could not be ended. The next run tries again.
    pub fn end_flushes_of(&self, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        if Running::may_be_any(self.ledger.files, self.ledger.prefix) {
            return Ok(());
        }
        let known = pending::list(self.ledger)?.into_iter().filter_map(|found| found.known().ok().flatten());
        let left = known.filter(|record| record.dataset.seq() == dataset.seq());
        left.map(|record| record.by()).try_for_each(|by| self.end_before(None, &by))
    }

    /// Does `work` when it is the turn of a dataset: flushes that it has to wait for are ended first, by a process that has the
    /// lock, or will take it.
    ///
    /// # Errors
    /// One could not be ended, or those of `work`.
    pub fn in_turn<T, E: From<PrefixError>>(
        &self,
        held: Option<Fence<'_>>,
        work: impl FnMut() -> Result<Turn<T>, E>,
    ) -> Result<T, E> {
        in_turn(work, |by| Ok(self.end_before(held, by)?))
    }

    /// Finishes a flush, or takes it back, if it is under way, or ends a deletion.
    fn end_before(&self, held: Option<Fence<'_>>, by: &By) -> Result<(), PrefixError> {
        let token = by.to_string();
        let end = |fence: Fence<'_>| {
            if *by == By::Deletion {
                // The process that deletes has this lock.
                return self.ledger.transact(&Request::Release(Whose::Ended(by))).map(|_| None);
            }
            Ok(pending::find_left(self.ledger, &token)?.and_then(|record| {
                let ended = self.ledger.closing(record, fence).end(&self.now, Wish::End);
                matches!(ended, FlushOutcome::Postponed { .. }).then(|| ended.to_string())
            }))
        };
        let why = held.map_or_else(|| self.ledger.alone(end), end);
        match why.unwrap_or_else(|error| Some(describe(&error))) {
            None => Ok(()),
            Some(why) => Err(PrefixError::NotItsTurn { token, why }),
        }
    }

    /// Ends a flush of which every byte is known to be right: the files get their names, and the dataset is listed. Its record
    /// and its lists are on disk, so that it is ended by the next run if this process is not. Gives why it was taken back, if it
    /// was.
    ///
    /// # Errors
    /// It could not be ended.
    pub fn finish(&self, record: PendingFlush) -> Result<Option<String>, PrefixError> {
        self.ledger.alone(|fence| {
            let closing = self.ledger.closing(record, fence);
            let PendingFlush { token, dataset, .. } = &closing.record;
            if pending::is_recorded(self.ledger, token)? {
                let (ended, why) = closing.run_from(Do::Look { fails: false }, Wish::End, &self.now)?;
                return Ok((ended != Ended::Complete).then_some(why));
            }
            // Another process has ended it since it was recorded.
            let ended = Refusal::Ended { id: dataset.id };
            Ok((!closing.progress()?.counts()).then(|| ended.to_string()))
        })
    }

    /// Lists a dataset whose files are in place already: bytes and names are safe before it counts.
    ///
    /// # Errors
    /// A file or folder could not be synced, a newer dataset has its name or its files, or what `check` says.
    pub fn list_in_place<E: From<PrefixError> + From<FsError>>(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
        mut check: impl FnMut(&Ledger) -> Result<(), E>,
    ) -> Result<(), E> {
        let LedgerDir { files, prefix } = self.ledger;
        let paths: BTreeSet<PathBuf> = lists.iter().flatten().map(|file| prefix.file(&file.name)).collect();
        for path in &paths {
            let file = files.open(path, How::Read).at("open", path)?;
            Unsynced { files, prefix }.sync(path, &*file)?;
        }
        sync_names(files, prefix, &paths)?;
        let (mut sharing, make_current) = (CommonFiles::of(lists), dataset.checkpoint.into());
        let list = || self.ledger.list_whole(dataset, &mut sharing, make_current, &self.now, &mut check);
        self.in_turn(None, list).map(drop)
    }

    /// After an error in a flush: rolls it forward where all its marks are there, and takes it back otherwise.
    pub fn resolve(&self, record: &PendingFlush) -> CloseOutcome {
        let resolved = self.ledger.alone(|fence| {
            let found = pending::find(self.ledger, &record.token)?;
            let is_gone = found.is_none();
            let closing = self.ledger.closing(found.unwrap_or_else(|| record.clone()), fence);
            Ok::<_, FsError>(match is_gone {
                false => closing.resolve(&self.now),
                true if closing.progress().is_ok_and(FlushProgress::counts) => CloseOutcome::Complete,
                true => CloseOutcome::TakenBack,
            })
        });
        resolved.unwrap_or_else(|error| match record.all_done(self.ledger) {
            // The lock or the record cannot be used, and without all marks no process closes the flush.
            Ok(false) => CloseOutcome::TakenBack,
            _ => CloseOutcome::Unfinished(describe(&error)),
        })
    }

    /// Removes the marks and the record of a flush that was rolled back, where no staging file is left.
    pub fn forget(&self, record: &PendingFlush, none_left: bool) {
        // The next run finds what is left through the record.
        let _ = self.ledger.alone(|fence| {
            let closing = self.ledger.closing(record.clone(), fence);
            // A file system that was full has had no room for the lock before.
            if closing.revoke(false)? == Found::Done && none_left {
                closing.run_from(Do::Release, Wish::TakeBack, &self.now)?;
            }
            Ok::<_, PrefixError>(())
        });
    }
}

/// Does `work` when it is its turn. `end` ends each flush that it has to wait for.
fn in_turn<T, E: From<PrefixError>>(
    mut work: impl FnMut() -> Result<Turn<T>, E>,
    mut end: impl FnMut(&By) -> Result<(), E>,
) -> Result<T, E> {
    let mut last = None;
    loop {
        let by = match work()? {
            Turn::Done(value) => return Ok(value),
            Turn::After(by) => by,
        };
        if last.as_ref() == Some(&by) {
            let why = "it is there again".to_owned();
            return Err(PrefixError::NotItsTurn { token: by.to_string(), why }.into());
        }
        end(&by)?;
        last = Some(by);
    }
}
