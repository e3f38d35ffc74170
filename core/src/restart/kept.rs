//! Whether what the application has read in the prefix directory was the dataset's all the time.
//!
//! Nothing keeps another job from writing its own checkpoints over files that this one reads in place: an application that writes
//! there cannot wait. But each file is recorded before it is given out to be written over, and the index says which datasets have
//! lost files before such a record goes. So whoever has read all files, and finds neither then, has read the right bytes.
//!
//! The index cannot say that of a dataset in place that was never listed. Its files then must be as they were when the run began:
//! unchanged since they were recorded.

use super::Restart;
use crate::cache::record::FileRecord;
use crate::cache::{Cache, CachedDataset};
use crate::job::Job;
use scr_base::fs::verify::expect_bytes;
use scr_base::fs::{At, FsError};
use scr_comm::collective::any;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::{Overwritten, PrefixError};
use std::path::PathBuf;

/// Why the bytes that the application has read may be those of two datasets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplacedError {
    /// Somebody was given a file of it.
    #[error("another job was given {} to write over while this one read it; {CURE}", path.display())]
    GivenOut { path: PathBuf },
    /// It was never listed, so only its time tells.
    #[error("{} was changed while this job read it; {CURE}", path.display())]
    Changed { path: PathBuf },
    /// Its name or its files belong to another dataset, or it was deleted.
    #[error("another job or a command has replaced or removed it while this job read its files; {CURE}")]
    NotWhole,
    #[error("whether another job has written over its files cannot be found out")]
    Unknown(#[source] PrefixError),
}

const CURE: &str = "give each job a prefix directory of its own (SCR_PREFIX)";

impl From<FsError> for ReplacedError {
    fn from(error: FsError) -> Self {
        Self::Unknown(error.into())
    }
}

impl Restart {
    /// Expects that the application has read nothing that another process was given to write over. All ranks have read their
    /// files. Collective, if it has read in the prefix directory.
    ///
    /// # Errors
    /// The ranks cannot talk. The inner error is that of this rank.
    pub(crate) fn expect_kept(
        &self,
        job: &Job,
        cache: &Cache,
    ) -> Result<Result<(), ReplacedError>, CommError> {
        let Some(cached) = self.checkpoint(cache).filter(|cached| cached.is_read_in_prefix(job)) else {
            return Ok(Ok(()));
        };
        let kept = cached.record.files.iter().try_for_each(|file| expect_kept(job, cached, file));
        // A record of a file goes after the index has changed: so the index is asked once all ranks have looked for records.
        let [is_given_out] = any(&*job.comm, [kept.is_err()])?;
        Ok(match job.rank() {
            Rank(0) if !is_given_out => expect_whole(job, cached),
            _ => kept,
        })
    }
}

fn expect_whole(job: &Job, cached: &CachedDataset) -> Result<(), ReplacedError> {
    let checkpoint = cached.checkpoint();
    let is_kept = !cached.prefix.is_whole()
        || job
            .ledger()
            .look(|index| index.is_whole(checkpoint.seq.id, &checkpoint.name))
            .map_err(ReplacedError::Unknown)?;
    is_kept.then_some(()).ok_or(ReplacedError::NotWhole)
}

/// The record of a file may be older than this run. Then its checksum was right when the dataset was offered, and still is.
fn expect_kept(job: &Job, cached: &CachedDataset, file: &FileRecord) -> Result<(), ReplacedError> {
    let (files, record) = (job.files(), &cached.record);
    let is_given_out = Overwritten::since(files, &job.prefix, &file.name, record.seq())?;
    if !is_given_out && cached.prefix.is_whole() {
        return Ok(());
    }
    let path = record.prefix_path(file);
    let is_untouched =
        !record.protection.bypass || files.status(&path).at("look at", &path)?.mtime == file.mtime;
    if !is_given_out {
        return is_untouched.then_some(()).ok_or(ReplacedError::Changed { path });
    }
    let block_bytes = job.params.get(&param::FILE_BUF_SIZE);
    let is_proven = is_untouched
        && file.crc.is_some()
        && expect_bytes(files, &path, file.bytes, file.crc, block_bytes).is_ok();
    is_proven.then_some(()).ok_or(ReplacedError::GivenOut { path })
}
