//! Steps 3 to 5 of a flush, from the mark that all has arrived to the index, in [`close`]: the one function that gives files the
//! names of the application. The ranks of a job close a flush together, and one process does for a transfer monitor, the next
//! run, `scr poststage`, and `scr index --build`.
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

use super::alone::{alone, try_alone};
use super::names::{folders_of, name_file, sync_folders, sync_names, Staged, BLOCK_BYTES};
use super::outcome::FlushOutcome;
use super::step::{Step, StepError};
use scr_base::describe;
use scr_base::fs::verify::{expect_bytes, expect_size, FileError};
use scr_base::fs::{unique_number, At, Files, FsError, How};
use scr_plugin_api::KvTree;
use scr_prefix::ledger::pending::{self, FoundRecord, PendingError, PendingFlush};
use scr_prefix::ledger::{
    expect_lock, Close, Closer, CommonFiles, Dropping, Ended, Ending, Fence, Ledger, LedgerDir, Refusal,
    Request, Turn, Whose, Wish, SAVED,
};
use scr_prefix::{
    staging_file, DatasetDescriptor, FileName, FlushFile, IndexEntry, Location, Prefix, PrefixError,
    PrefixFile, Rank2File, Seq, Unsynced, DELETION, IN_PLACE,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Ends every flush found under way below a prefix: what has not arrived is rolled back. One process calls it, while no
/// flush of its own is under way there.
///
/// # Errors
/// The folder could not be listed.
pub(crate) fn finalize_pending(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    end_all(files, prefix, now, Wish::End)
}

/// Finishes every flush below a prefix whose data has arrived, though the application has died or never called again. A flush
/// that has not arrived as a whole is left as it is. `now` is the time as the index writes it. Only for when no application runs
/// that ends its flushes itself.
///
/// # Errors
/// The folder could not be listed.
pub fn finalize_arrived(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    end_all(files, prefix, now, Wish::EndArrived)
}

/// Finishes the flush of this token if its data has arrived, and gives what became of it where anything is under way by that
/// token. It does not wait long: `None` where another process ends or marks flushes.
pub(crate) fn finalize_now(
    files: &dyn Files,
    prefix: &Prefix,
    token: &str,
    now: &str,
) -> Result<Option<Option<FlushOutcome>>, StepError> {
    let ended = try_alone(files, prefix, |fence| {
        let Some(record) = pending::find(files, prefix, token)? else { return Ok(None) };
        Ok::<_, PendingError>(Some(Closing { files, prefix, record, fence }.end(now, Wish::EndArrived)))
    })?;
    Ok(ended.transpose()?)
}

/// The same, however long that takes, where an earlier process has died with it.
pub(crate) fn finish_earlier(
    files: &dyn Files,
    prefix: &Prefix,
    token: &str,
    now: &str,
) -> Result<(), PrefixError> {
    match pending::expect(files, prefix, token, 0) {
        Err(PrefixError::Refused(Refusal::Ended { .. })) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => end_token(files, prefix, None, token, now),
    }
}

/// Does `work` when it is the turn of a dataset: flushes that it has to wait for are ended first, by a process that has the lock,
/// or will take it.
pub(crate) fn after_earlier_flushes<T, E: From<PrefixError>>(
    files: &dyn Files,
    prefix: &Prefix,
    held: Option<Fence<'_>>,
    now: &str,
    mut work: impl FnMut(LedgerDir<'_>) -> Result<Turn<T>, E>,
) -> Result<T, E> {
    in_turn(|| work(LedgerDir { files, prefix }), |token| Ok(end_token(files, prefix, held, token, now)?))
}

/// Does `work` when it is its turn. `end` ends each flush that it has to wait for.
fn in_turn<T, E: From<PrefixError>>(
    mut work: impl FnMut() -> Result<Turn<T>, E>,
    mut end: impl FnMut(&str) -> Result<(), E>,
) -> Result<T, E> {
    let mut last = None;
    loop {
        let token = match work()? {
            Turn::Done(value) => return Ok(value),
            Turn::After(token) => token,
        };
        if last.as_ref() == Some(&token) {
            let why = "it is there again".to_owned();
            return Err(PrefixError::NotItsTurn { token, why }.into());
        }
        end(&token)?;
        last = Some(token);
    }
}

/// Finishes the flush of this token, or takes it back, if it is under way.
fn end_token(
    files: &dyn Files,
    prefix: &Prefix,
    held: Option<Fence<'_>>,
    token: &str,
    now: &str,
) -> Result<(), PrefixError> {
    let end = |fence: Fence<'_>| match pending::find_left(files, prefix, token) {
        // The process that deletes has this lock.
        _ if token == DELETION => {
            let released = LedgerDir { files, prefix }.transact(&Request::Release(Whose::Deletion));
            released.err().map(|error| describe(&error))
        }
        Ok(Some(record)) => {
            let ended = Closing { files, prefix, record, fence }.end(now, Wish::End);
            matches!(ended, FlushOutcome::Postponed { .. }).then(|| ended.to_string())
        }
        Ok(None) => None,
        Err(error) => Some(describe(&error)),
    };
    let why = match held {
        Some(fence) => Ok(end(fence)),
        None => alone(files, prefix, end),
    };
    match why.unwrap_or_else(|error| Some(describe(&error))) {
        None => Ok(()),
        Some(why) => Err(PrefixError::NotItsTurn { token: token.to_owned(), why }),
    }
}

/// Ends a flush of which every byte is known to be right: the files get their names, and the dataset is listed. Its record and
/// its lists are on disk, so that it is ended by the next run if this process is not. Gives why it was taken back, if it was.
pub(crate) fn finish(
    files: &dyn Files,
    prefix: &Prefix,
    record: PendingFlush,
    now: &str,
) -> Result<Option<String>, StepError> {
    alone(files, prefix, |fence| {
        let closing = Closing { files, prefix, record, fence };
        match pending::expect(files, prefix, &closing.record.token, closing.record.dataset.id) {
            Ok(()) => closing.finish_or_take_back(now),
            // Another process has ended it since it was recorded.
            Err(ended @ PrefixError::Refused(Refusal::Ended { .. })) => {
                Ok((!closing.counts()?).then(|| describe(&ended)))
            }
            Err(error) => Err(error.into()),
        }
    })?
}

/// Lists a dataset whose files are in place already: bytes and names are safe before it counts.
///
/// # Errors
/// A file or folder could not be synced, a newer dataset has its name or its files, or what `check` says.
pub fn list_in_place<E: From<PrefixError> + From<FsError>>(
    files: &dyn Files,
    prefix: &Prefix,
    dataset: &DatasetDescriptor,
    lists: &[Vec<PrefixFile>],
    now: &str,
    mut check: impl FnMut(&Ledger) -> Result<(), E>,
) -> Result<(), E> {
    let paths: BTreeSet<PathBuf> = lists.iter().flatten().map(|file| prefix.file(&file.name)).collect();
    for path in &paths {
        let file = files.open(path, How::Read).at("open", path)?;
        Unsynced { files, prefix }.sync(path, &*file)?;
    }
    sync_names(files, prefix, &paths)?;
    let mut sharing = CommonFiles::of(lists);
    after_earlier_flushes(files, prefix, None, now, |ledger| {
        ledger.list_whole(dataset, &mut sharing, dataset.checkpoint.into(), now, &mut check)
    })
    .map(drop)
}

/// Takes datasets out of the index for run `run`, or for none (0), and ends the flushes under way that would list them again.
/// Gives whether there was any, and a warning if other processes were not kept out. A dataset that is whole can be listed again.
///
/// # Errors
/// A flush could not be rolled back, the index cannot be changed, or another run reads files of a dataset in place, which nobody
/// would keep for it any more.
pub fn drop_datasets(
    files: &dyn Files,
    prefix: &Prefix,
    which: Dropping<'_>,
    run: u64,
) -> Result<(bool, Option<&'static str>), PrefixError> {
    let ledger = LedgerDir { files, prefix };
    let meant = || -> Result<Vec<IndexEntry>, PrefixError> {
        Ok(ledger.index()?.entries().into_iter().filter(|entry| which.means(entry)).collect())
    };
    ledger.refuse_held(&meant()?, run)?;
    let mut ended = abandon(files, prefix, |dataset| which.means_described(dataset))?;
    for entry in meant()?.iter().filter(|entry| entry.is_valid()) {
        if files.remove_if_there(&prefix.import_mark(entry.id))? {
            let folder = prefix.dataset_dir(entry.id);
            files.sync_dir(&folder).at("sync", &folder)?;
        }
    }
    let request = Request::Drop { which, run };
    let dropped = in_turn(
        || ledger.attempt(&request, &mut CommonFiles::default(), &mut |_| Ok(())),
        // Its flush was on record only after the others had been taken back.
        |_| abandon(files, prefix, |dataset| which.means_described(dataset)).map(|any| ended |= any),
    )?;
    Ok((!dropped.events.is_empty() || ended, dropped.caution))
}

/// Rolls back the flushes of a name, however far they are. Gives whether there was any.
pub(crate) fn abandon_named(files: &dyn Files, prefix: &Prefix, name: &[u8]) -> Result<bool, PrefixError> {
    abandon(files, prefix, |dataset| dataset.name == name)
}

/// The same for the checkpoints that are newer than the one gone back to, but for output: one that is closed later would be the
/// current one again. One of the same name is what was asked for.
pub(crate) fn abandon_newer(
    files: &dyn Files,
    prefix: &Prefix,
    than: Seq,
    chosen: &[u8],
) -> Result<bool, PrefixError> {
    abandon(files, prefix, |dataset| {
        let is_unwanted = dataset.is_only_checkpoint() && dataset.name != chosen;
        is_unwanted && dataset.seq() > than
    })
}

fn abandon(
    files: &dyn Files,
    prefix: &Prefix,
    is_meant: impl Fn(&DatasetDescriptor) -> bool,
) -> Result<bool, PrefixError> {
    let meant = || -> Result<Vec<PendingFlush>, FsError> {
        let found = pending::list(files, prefix)?.into_iter().map(FoundRecord::known);
        let known = found.collect::<Result<Vec<_>, _>>()?;
        Ok(known.into_iter().flatten().filter(|record| is_meant(&record.dataset)).collect())
    };
    if meant()?.is_empty() {
        return Ok(false);
    }
    alone(files, prefix, |fence| {
        for record in meant()? {
            Closing { files, prefix, record, fence }.take_back()?;
        }
        Ok(true)
    })?
}

/// The end of a flush in which something failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CloseOutcome {
    /// The dataset is complete.
    Complete,
    /// Every byte has arrived, but the flush could not be closed, and why.
    Unfinished(String),
    /// It is not closed by anybody any more.
    TakenBack,
}

impl CloseOutcome {
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Complete => COMPLETE.to_owned(),
            Self::TakenBack => String::new(),
            Self::Unfinished(why) => format!("{UNFINISHED}{why}"),
        }
    }

    pub(super) fn from_text(text: &str) -> Self {
        match (text, text.strip_prefix(UNFINISHED)) {
            (COMPLETE, _) => Self::Complete,
            (_, Some(why)) => Self::Unfinished(why.to_owned()),
            _ => Self::TakenBack,
        }
    }
}

const COMPLETE: &str = "complete";
const UNFINISHED: &str = "unfinished: ";

/// After an error in a flush: rolls it forward where all its marks are there, and takes it back otherwise.
pub(super) fn resolve(files: &dyn Files, prefix: &Prefix, record: &PendingFlush, now: &str) -> CloseOutcome {
    let outcome = alone(files, prefix, |fence| match pending::find(files, prefix, &record.token) {
        Ok(Some(found)) => Closing { files, prefix, record: found, fence }.resolve(now),
        Ok(None) => {
            let index = LedgerDir { files, prefix }.index();
            match index.is_ok_and(|index| index.progress(&record.dataset, &record.token).counts()) {
                true => CloseOutcome::Complete,
                false => CloseOutcome::TakenBack,
            }
        }
        Err(error) => resolve_unread(files, prefix, record, describe(&error)),
    });
    outcome.unwrap_or_else(|error| resolve_unread(files, prefix, record, describe(&error)))
}

/// The answer if the lock or the record cannot be used: without all marks no process closes the flush.
fn resolve_unread(files: &dyn Files, prefix: &Prefix, record: &PendingFlush, why: String) -> CloseOutcome {
    match record.all_done(files, prefix) {
        Ok(false) => CloseOutcome::TakenBack,
        _ => CloseOutcome::Unfinished(why),
    }
}

/// Removes the marks and the record of a flush that was rolled back, where no staging file is left.
pub(super) fn forget(files: &dyn Files, prefix: &Prefix, record: &PendingFlush, none_left: bool) {
    // The next run finds what is left through the record.
    let _ = alone(files, prefix, |fence| {
        pending::revoke(files, prefix, &record.token)?;
        match none_left {
            true => Closing { files, prefix, record: record.clone(), fence }.forget_revoked(),
            false => Ok(()),
        }
    });
}

/// The part of a flush that a process closes.
pub(super) struct Share<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) prefix: &'a Prefix,
    /// The same on all.
    pub(super) record: &'a mut PendingFlush,
    pub(super) staged: Vec<Staged>,
    pub(super) folders: Vec<PathBuf>,
    /// Whether the files have their names already, and the dataset has taken them.
    pub(super) in_place: bool,
    /// The lock that the process has.
    pub(super) fence: Option<Fence<'a>>,
}

/// The processes that close a flush: the ranks of its job, or one process.
pub(super) trait Closers {
    type Error;

    /// Each of them does this, and all learn whether any has failed.
    fn each(&self, step: Step, work: impl FnOnce() -> Result<(), StepError>) -> Result<(), Self::Error>;

    /// Whether this is the one that changes the index.
    fn is_first(&self) -> bool;
}

/// Closes a flush of which every byte is safe in staging files, or in place, in the order of [`Close`]. `mark` makes the mark, if
/// that is still to be done.
pub(super) fn close<C: Closers>(
    closers: &C,
    share: Share<'_>,
    now: &str,
    mark: impl FnOnce() -> Result<(), StepError>,
) -> Result<(), C::Error> {
    let Share { files, prefix, record, staged, folders, in_place, fence } = share;
    let by = if in_place { IN_PLACE.to_owned() } else { record.token.clone() };
    let ledger = LedgerDir { files, prefix };
    let number = format!("{:x}", unique_number());
    let closer = fence.map(|has_lock| Closer { number: &number, has_lock });
    let mut mark = Some(mark);
    let mut step = |step: &Close| match step {
        Close::Name => staged.iter().try_for_each(|file| name_file(files, fence, file)),
        Close::Sync => Ok(sync_folders(files, prefix, folders.iter().map(PathBuf::as_path))?),
        _ if !closers.is_first() => Ok(()),
        Close::Mark => mark.take().map_or(Ok(()), |mark| mark()),
        Close::Take => Ok(take(files, prefix, closer, record, now)?),
        Close::Commit => Ok(ledger.commit(record, &by, closer.map(|closer| closer.number), now)?),
        Close::Forget => {
            // The dataset counts already; what is left of the record is cleared away by the next run. The holder of the
            // lock may be giving the names anew by now.
            if expect_lock(fence, prefix.dir()).is_ok() {
                let _ = record.forget(files, prefix);
            }
            Ok(())
        }
    };
    let mut groups = Close::order(in_place).iter();
    groups.try_for_each(|group| closers.each(Step::of(group), || group.iter().try_for_each(&mut step)))
}

/// Name and files belong to the dataset of a flush that is on record, from here on.
fn take(
    files: &dyn Files,
    prefix: &Prefix,
    closer: Option<Closer<'_>>,
    record: &mut PendingFlush,
    now: &str,
) -> Result<(), PrefixError> {
    let fence = closer.map(|closer| closer.has_lock);
    after_earlier_flushes(files, prefix, fence, now, |ledger| {
        let PendingFlush { dataset, token, sharing, .. } = &mut *record;
        ledger.take(dataset, token, closer, sharing)
    })
}

fn end_all(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
    wish: Wish,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    let end = |found| match found {
        FoundRecord::Usable(record) => end_alone(files, prefix, &record, now, wish),
        FoundRecord::Damaged(path, error) => {
            Some(FlushOutcome::Unusable { path, why: describe(&error), is_damaged: true })
        }
        FoundRecord::Unread(path, error) => {
            Some(FlushOutcome::Unusable { path, why: describe(&error), is_damaged: false })
        }
    };
    Ok(pending::list(files, prefix)?.into_iter().filter_map(end).collect())
}

fn end_alone(
    files: &dyn Files,
    prefix: &Prefix,
    record: &PendingFlush,
    now: &str,
    wish: Wish,
) -> Option<FlushOutcome> {
    let postponed = |why| FlushOutcome::postponed(files, prefix, record, why);
    let ended = alone(files, prefix, |fence| {
        // Somebody may have ended it while this process waited for the lock.
        match pending::find_again(files, prefix, record) {
            Ok(Some(record)) => Some(Closing { files, prefix, record, fence }.end(now, wish)),
            Ok(None) => None,
            Err(error) => Some(postponed(describe(&error))),
        }
    });
    ended.unwrap_or_else(|error| Some(postponed(describe(&error))))
}

/// A flush that this process ends, with the lock.
struct Closing<'a> {
    files: &'a dyn Files,
    prefix: &'a Prefix,
    record: PendingFlush,
    fence: Fence<'a>,
}

impl Closers for Closing<'_> {
    type Error = StepError;

    fn each(&self, _: Step, work: impl FnOnce() -> Result<(), StepError>) -> Result<(), StepError> {
        work()
    }

    fn is_first(&self) -> bool {
        true
    }
}

impl<'a> Closing<'a> {
    fn ledger(&self) -> LedgerDir<'a> {
        LedgerDir { files: self.files, prefix: self.prefix }
    }

    fn resolve(&self, now: &str) -> CloseOutcome {
        let even_if_taken = match self.record.all_done(self.files, self.prefix) {
            Err(error) => return CloseOutcome::Unfinished(describe(&error)),
            Ok(is_marked) => match Ending::of(self.record.recorded(), is_marked, Wish::Resolve) {
                Ending::RollForward | Ending::Leave => return self.roll_forward(now),
                Ending::Nothing | Ending::ClearAway => return CloseOutcome::TakenBack,
                Ending::Revoke { even_if_taken } => even_if_taken,
            },
        };
        match self.revoke(even_if_taken) {
            // A process that has ended it before may have removed marks already.
            Ok(false) => self.roll_forward(now),
            Ok(true) => CloseOutcome::TakenBack,
            // The process that has the lock by now may close it.
            Err(error) if self.expect_lock().is_err() => CloseOutcome::Unfinished(describe(&error)),
            Err(_) => {
                // A file system that is full has no room for a lock, and this process has not closed it.
                let _ = pending::revoke(self.files, self.prefix, &self.record.token);
                CloseOutcome::TakenBack
            }
        }
    }

    fn roll_forward(&self, now: &str) -> CloseOutcome {
        match self.finish_or_take_back(now) {
            Ok(None) => CloseOutcome::Complete,
            Ok(Some(_)) => CloseOutcome::TakenBack,
            Err(error) => CloseOutcome::Unfinished(describe(&error)),
        }
    }

    /// Fails where this process has lost the lock: whoever has it by now may be closing the flush.
    fn expect_lock(&self) -> Result<(), FsError> {
        expect_lock(Some(self.fence), &pending::flush_path(self.prefix, &self.record.token))
    }

    fn end(&self, now: &str, wish: Wish) -> FlushOutcome {
        let dataset = self.record.dataset.clone();
        let taken_back = |why: &str| self.clear_away_revoked().map(|()| Some(why.to_owned()));
        let done = self.record.done(self.files, self.prefix);
        let ended = done.map_err(StepError::from).and_then(|done| {
            let (recorded, marks) = (self.record.recorded(), self.record.marks);
            match Ending::of(recorded, done >= marks, wish) {
                Ending::Nothing | Ending::Leave => {
                    return Ok(FlushOutcome::Waiting { dataset: dataset.clone(), done, marks })
                }
                Ending::ClearAway => Ok(taken_back("it was given up, and not all of it was removed")?),
                Ending::Revoke { even_if_taken } if self.revoke(even_if_taken)? => {
                    Ok(taken_back("it was interrupted before all files had arrived")?)
                }
                Ending::Revoke { .. } | Ending::RollForward => self.finish_or_take_back(now),
            }
            .map(|ended| match ended {
                None => FlushOutcome::Finalized(dataset.clone()),
                Some(why) => FlushOutcome::Revoked { dataset: dataset.clone(), why },
            })
        });
        ended.unwrap_or_else(|error| {
            FlushOutcome::postponed(self.files, self.prefix, &self.record, describe(&error))
        })
    }

    /// Finishes it; or takes it back, and says why.
    fn finish_or_take_back(&self, now: &str) -> Result<Option<String>, StepError> {
        if let Some(ended) = self.clear_away_if_ended()? {
            return Ok(ended);
        }
        let staged = self.record_checksums().and_then(|()| self.staged()).map_err(StepError::from);
        let finished = staged.and_then(|mut staged| {
            staged.iter_mut().try_for_each(|file| self.check(file))?;
            self.finish(staged, now)
        });
        match finished {
            Ok(()) => Ok(None),
            Err(error) if error.is_damage() => match self.clear_away_if_ended()? {
                // Its job was only slow.
                Some(ended) => Ok(ended),
                None => Ok(self.take_back().map(|()| Some(describe(&error)))?),
            },
            Err(error) => Err(error),
        }
    }

    /// Forgets a flush of which all else was done, and says why its dataset does not count, if it does not.
    fn clear_away_if_ended(&self) -> Result<Option<Option<String>>, StepError> {
        let PendingFlush { dataset, token: by, .. } = &self.record;
        let progress = self.ledger().index()?.progress(dataset, by);
        let counts = match Ended::of(progress, self.is_saved(), || self.lacks_a_name())? {
            Ended::NotYet => return Ok(None),
            Ended::LacksName => {
                self.ledger().transact(&Request::NameAgain { dataset, by })?;
                return Ok(None);
            }
            Ended::Done { counts } => counts,
        };
        // The process that did it may have failed to sync the index.
        self.ledger().transact(&Request::Confirm)?;
        self.remove_staging()?;
        self.forget(&self.record)?;
        Ok(Some((!counts).then(|| "its dataset was complete, and counts no more".to_owned())))
    }

    /// Whether it has made its dataset complete, and that still counts.
    fn counts(&self) -> Result<bool, PrefixError> {
        Ok(self.ledger().index()?.progress(&self.record.dataset, &self.record.token).counts())
    }

    fn is_saved(&self) -> bool {
        self.record.token.starts_with(SAVED)
    }

    /// Whether a file is still in its staging file. After a power failure the index may say more than the folders have.
    fn lacks_a_name(&self) -> Result<bool, StepError> {
        let staged = match self.staged() {
            Err(error) if error.is_damage() => return Ok(false),
            staged => staged?,
        };
        for file in staged {
            match expect_size(self.files, &file.staging, file.bytes) {
                Err(error) if error.is_damage() => (),
                found => return Ok(found.map(|()| true)?),
            }
        }
        Ok(false)
    }

    /// Writes the file lists again with the checksums that the transports have found and that were not known before.
    fn record_checksums(&self) -> Result<(), PrefixError> {
        let (files, prefix, record) = (self.files, self.prefix, &self.record);
        let mut sums = KvTree::new();
        for mark in record.done_marks(files, prefix)? {
            sums.merge(record.sums_of(files, prefix, mark)?);
        }
        if sums.is_empty() {
            return Ok(());
        }
        let mut lists = Rank2File::read(files, prefix, record.dataset.id)?.by_rank().to_vec();
        let mut news = false;
        for file in lists.iter_mut().flatten().filter(|file| file.crc.is_none()) {
            file.crc = sums.parse(&file.name).ok().flatten();
            news |= file.crc.is_some();
        }
        if news {
            self.ledger().write_lists(&record.dataset, &lists)?;
        }
        Ok(())
    }

    /// Closes it, with all files.
    fn finish(&self, staged: Vec<Staged>, now: &str) -> Result<(), StepError> {
        let (files, prefix) = (self.files, self.prefix);
        let targets = staged.iter().map(|file| &*file.target);
        let folders = folders_of(prefix, targets).into_iter().map(Path::to_owned).collect();
        let (mut record, fence) = (self.record.clone(), Some(self.fence));
        let id = record.dataset.id;
        let share = Share { files, prefix, record: &mut record, staged, folders, in_place: false, fence };
        close(self, share, now, || Ok(()))?;
        // For the commands: if this cannot be recorded, they check the flush once more.
        let _ = FlushFile::update(files, prefix, |flush| {
            flush.add_location(id, Location::Prefix);
            Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(id, way));
        });
        Ok(())
    }

    /// Either the staging file is there, or it has its name already. In the latter case its checksum must distinguish it
    /// from a file of the same name and size of an older dataset; without a checksum its ctime must, which a rename changes.
    fn check(&self, file: &mut Staged) -> Result<(), StepError> {
        match expect_size(self.files, &file.staging, file.bytes) {
            Err(FileError::Missing { .. }) => {}
            other => return Ok(other?),
        }
        expect_bytes(self.files, &file.target, file.bytes, file.crc, BLOCK_BYTES)?;
        if file.crc.is_none() {
            let marked = self.record.marked_at(self.files, self.prefix)?;
            let changed = self.files.status(&file.target).at("look at", &file.target)?.ctime;
            if changed < marked {
                return Err(FileError::Missing { path: file.staging.clone() }.into());
            }
        }
        // That takes reading it, and is not done twice.
        file.crc = None;
        Ok(())
    }

    /// From here on nobody closes it, and what there is can be removed. That is decided where a dataset takes its name: one that
    /// has not done so finds no record. Gives whether it is revoked; who has lost the lock revokes nothing.
    fn revoke(&self, even_if_taken: bool) -> Result<bool, PrefixError> {
        let PendingFlush { dataset, token: by, .. } = &self.record;
        let request = Request::TakeBack { dataset, by, even_if_taken };
        match self.ledger().transact_if(&request, &mut |_| Ok(self.expect_lock()?)) {
            Err(PrefixError::Refused(Refusal::Ended { .. })) => Ok(false),
            revoked => revoked.map(|_| true),
        }
    }

    fn take_back(&self) -> Result<(), PrefixError> {
        if !self.record.revoked {
            self.revoke(true)?;
        }
        self.clear_away_revoked()
    }

    /// Removes what is left of a flush that is revoked.
    fn clear_away_revoked(&self) -> Result<(), PrefixError> {
        self.remove_staging()?;
        self.forget_revoked()
    }

    /// Frees the names that it has taken, and forgets it. No staging file is left.
    fn forget_revoked(&self) -> Result<(), PrefixError> {
        self.ledger().transact(&Request::Release(Whose::Flush(&self.record.token)))?;
        self.forget(&PendingFlush { revoked: true, ..self.record.clone() })
    }

    fn forget(&self, record: &PendingFlush) -> Result<(), PrefixError> {
        self.expect_lock()?;
        Ok(record.forget(self.files, self.prefix)?)
    }

    /// Removes the staging files. A process that has taken the lock may have given a file its staging name.
    fn remove_staging(&self) -> Result<(), PrefixError> {
        let staged = match self.staged() {
            // Without its lists the staging files are unknown; they stay, and do no harm.
            Err(error) if error.is_damage() => Vec::new(),
            staged => staged?,
        };
        // Files that were saved from the nodes stay, to be built once more.
        for file in staged.iter().filter(|_| !self.is_saved()) {
            self.expect_lock()?;
            self.files.remove_if_there(&file.staging)?;
        }
        Ok(())
    }

    /// Each file once, though several ranks may share it.
    fn staged(&self) -> Result<Vec<Staged>, PrefixError> {
        let id = self.record.dataset.id;
        let lists = Rank2File::read(self.files, self.prefix, id)?;
        let staged = |(name, file): (&FileName, &PrefixFile)| {
            let target = self.prefix.file(name);
            let staging = staging_file(&target, &self.record.token);
            Some(Staged { staging, target, bytes: file.bytes?, crc: file.crc })
        };
        // Each rank that has a file lists it, and the lists agree.
        let by_name: BTreeMap<_, _> =
            lists.by_rank().iter().flatten().map(|file| (&file.name, file)).collect();
        let all: Option<Vec<_>> = by_name.into_iter().map(staged).collect();
        // A flush of ours always says how long its files are.
        all.ok_or_else(|| PrefixError::Missing { path: self.prefix.rank2file(id) })
    }
}
