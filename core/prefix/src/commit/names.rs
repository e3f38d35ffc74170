//! Folders are made, files get their names, and the names are synced.

use crate::ledger::{expect_lock, Fence};
use crate::{staging_file, Prefix, PrefixError, Unsynced, DIR_MODE};
use scr_base::fs::verify::expect_bytes;
use scr_base::fs::{unique_number, At, Durability, Files, FsError};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file of a flush under its two names.
pub struct Staged {
    pub target: PathBuf,
    pub staging: PathBuf,
    pub bytes: u64,
    pub crc: Option<u32>,
}

/// Makes folders, durably.
pub fn make_folders(files: &dyn Files, folders: &[PathBuf]) -> Result<(), FsError> {
    folders.iter().try_for_each(|folder| files.make_dirs(folder, DIR_MODE, Durability::Synced))
}

/// Gives a file its name. A process that has done so before may have failed to sync it, and syncing it once more would succeed
/// though the system has lost the name. So a process with the lock makes the name anew, which a sync proves. A rank leaves it:
/// the file may be read already.
pub(super) fn name_file(
    files: &dyn Files,
    fence: Option<Fence<'_>>,
    file: &Staged,
) -> Result<(), PrefixError> {
    let (staging, target) = (&file.staging, &file.target);
    // More than twice only if another process that closes the flush is at it.
    for _ in 0..MOST_RENAMES {
        expect_lock(fence, target)?;
        if rename(files, staging, target)? {
            return Ok(());
        }
        expect_bytes(files, target, file.bytes, file.crc, BLOCK_BYTES)?;
        if fence.is_none() {
            return Ok(());
        }
        // To read it may have taken so long that a newer dataset has got the name.
        expect_lock(fence, target)?;
        // The name that was taken away is given back at once, even if the lock is lost.
        if rename(files, target, staging)? && rename(files, staging, target)? {
            return Ok(());
        }
    }
    Err(FsError::lock_lost(target).into())
}

/// Gives whether there was anything to rename.
fn rename(files: &dyn Files, from: &Path, to: &Path) -> Result<bool, FsError> {
    match files.rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        other => other.at("rename a new file to", to).map(|()| true),
    }
}

/// The folders that files lie in, up to the prefix directory.
pub fn folders_of<'a>(prefix: &Prefix, paths: impl Iterator<Item = &'a Path>) -> BTreeSet<&'a Path> {
    let above = paths.flat_map(|path| path.ancestors().skip(1));
    above.filter(|folder| folder.starts_with(prefix.dir())).collect()
}

/// Syncs folders, so that the names in them outlive a crash. The prefix directory has its own name in the folder above,
/// which need not be the user's.
pub fn sync_folders<'a>(
    files: &dyn Files,
    prefix: &Prefix,
    folders: impl Iterator<Item = &'a Path>,
) -> Result<(), FsError> {
    for folder in folders {
        files.sync_dir(folder).at("sync", folder)?;
        if let Some(above) = folder.parent().filter(|_| folder == prefix.dir()) {
            match files.sync_dir(above) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => (),
                synced => synced.at("sync", above)?,
            }
        }
    }
    Ok(())
}

/// Syncs the names of files in place, and of the folders that they lie in, once: what could not be synced is refused from then
/// on.
pub fn sync_names(files: &dyn Files, prefix: &Prefix, paths: &BTreeSet<PathBuf>) -> Result<(), FsError> {
    let unsynced = Unsynced { files, prefix };
    let folders = folders_of(prefix, paths.iter().map(|path| &**path));
    let mut named = paths.iter().map(|path| &**path).chain(folders.iter().copied());
    named.clone().try_for_each(|path| unsynced.refuse(path))?;
    for folder in &folders {
        sync_folders(files, prefix, [*folder].into_iter()).or_else(|error| {
            named
                .by_ref()
                .filter(|path| path.parent() == Some(folder))
                .try_for_each(|path| unsynced.record(path))?;
            Err(error)
        })?;
    }
    Ok(())
}

/// A name for a file that is written to get another one. No other process writes it.
pub fn unused_name(path: &Path, token: &str) -> PathBuf {
    staging_file(path, &format!("{token}.{:x}", unique_number()))
}

/// How often a file is given its name before another process is believed to hinder it.
const MOST_RENAMES: u32 = 4;

pub(super) const BLOCK_BYTES: u64 = 1 << 20;
