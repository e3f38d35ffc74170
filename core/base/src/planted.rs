//! Deliberate bugs, to measure whether random histories of jobs find them.
//!
//! Only a build with the feature `planted` has them, where the last one given to `plant` is active. In every other build
//! [`planted`] is a constant `false`, and the compiler removes them.

#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU8, Ordering};

crate::sentences! {
    /// A bug, named after what it breaks.
    Bug, what:
    FileNotSynced: "a file is renamed before its bytes are on stable storage",
    FolderNotSynced: "the new name of a file is not synced",
    RenamesNotSynced: "the names of flushed files are not synced",
    BypassNotSynced: "the files of a bypass dataset are not synced",
    FenceNotChecked: "a writer does not check whether the lock is still its own",
    FenceLeavesFiles: "a process that takes the lock over keeps the files that others have begun to write",
    LockNotTaken: "a shared file is changed without the lock",
    UnreadableAsAbsent: "a shared file that cannot be read counts as absent",
    FailureOutlivesFlush: "a dataset stays marked as failed after a flush has written every byte",
    FailedCountsAsFlushed: "a copy in the prefix directory that failed counts as flushed",
    CurrentAfterUnread: "an older checkpoint becomes current because the newest could not be read for a moment",
    WindowDeletesUnread: "the window deletes a checkpoint that this run could not read",
    ListedContainersRemoved: "the containers of a dataset go with the next flush, whatever its name",
    WindowDeletesShared: "the window deletes files that now belong to a newer dataset",
    SuspectUnchecked: "a dataset whose files may have been replaced is fetched like any other",
    FetchUnchecked: "checksums of files in the prefix directory are not compared",
    TakenBackAfterMark: "an error after the mark rolls the flush back",
    CommittedBeforeNamed: "a flush is committed before its files have their names",
    NameTakenBeforeCopied: "the older dataset of the name is invalid before the first byte is copied",
    OverwrittenNotRecorded: "a file that the application is about to write over still counts for the older dataset",
    ReplacedCountsAsFlushed: "a dataset counts as flushed though a newer one has replaced its files",
    LateFlushReplacesNewer: "a flush that is finished late replaces a newer dataset",
    FlushedBeforeArrived: "a dataset counts as flushed once its flush has begun",
    DroppedStaysInCache: "a dropped dataset stays in cache",
    DropLeavesFlush: "a flush under way still lists the dropped dataset",
    DeletedStaysInCache: "a deleted dataset stays in cache",
    PassedOverIsFlushed: "the end of a run flushes the newest checkpoint, though the user has gone back",
    NewerStayAfterCurrent: "checkpoints newer than the chosen one are removed from the index, and stay in cache",
    RefusalForgotten: "a refused checkpoint is offered again by the next run",
    EvictsBeforeComplete: "the old dataset is evicted before the new one is complete",
    CacheUnchecked: "checksums of files in cache are not compared",
    TornEntryCounts: "an entry of a filemap that was cut short makes the part complete",
    WritesAfterTorn: "an entry of a filemap is written after one that was cut short",
    NeighboursNotKept: "no rank keeps the records of its neighbours",
    OldRedundancyKept: "the redundancy file keeps the bytes of the dataset before",
    RebuiltUnchecked: "the checksums of rebuilt files are not compared",
    WorseCopyCounts: "of two copies of a part the first one counts, whole or not",
    SentOffEarly: "the sender removes a part before the receiver has recorded it",
    RebuiltNotRecorded: "a rebuilt part is not recorded as prepared",
    RebuiltNotLent: "a part that was rebuilt for another number of ranks is not among those that they read",
    LentCutShort: "the last byte of a file that comes from another node is not written",
    LentLeavesUnsaved: "what another number of ranks wrote leaves the cache before it is in the prefix directory",
    OlderInCacheWins: "a checkpoint in cache wins over a newer one in the prefix directory",
}

#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

/// Activates this bug in the whole process, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(u8::MAX, |bug| bug as u8), Ordering::SeqCst);
}

/// Whether a bug is active.
#[cfg(feature = "planted")]
pub fn planted(bug: Bug) -> bool {
    PLANTED.load(Ordering::SeqCst) == bug as u8
}

/// Whether a bug is active: never in this build.
#[cfg(not(feature = "planted"))]
pub const fn planted(_: Bug) -> bool {
    false
}
