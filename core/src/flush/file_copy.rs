//! One rank's part of a flush: its files go, through the transport, to hidden names beside their final ones.
//!
//! The host makes each file before the transport fills it, so that no transport needs to know of permissions; and
//! it checks what came, so that none has to be trusted.

use super::{Options, SourceFile};
use crate::fs::verify::{checksum, compare, expect_size, open_whole, FileError};
use crate::fs::{At, Files, How, Status};
use crate::prefix::{staging_file, FILE_MODE};
use scr_plugin_api::{CopyItem, CopyJob, CopyState, Transport};
use std::path::{Path, PathBuf};

/// A file on its way.
#[derive(Debug, Clone)]
pub(crate) struct FileCopy {
    pub(crate) file: SourceFile,
    /// Where it lies in the end.
    pub(crate) target: PathBuf,
    /// Where it is written.
    pub(crate) staging: PathBuf,
    /// Checksum of what was copied, once it is known.
    pub(crate) crc: Option<u32>,
    /// What the source was before it was read, for the copy to become alike.
    pub(crate) origin: Option<Status>,
    /// Whether this rank is the first, or the only one, that has this file.
    pub(crate) leads: bool,
}

/// Where all files of this rank go.
pub(crate) fn plan(prefix: &Path, files: &[SourceFile], token: &str) -> Vec<FileCopy> {
    files
        .iter()
        .map(|file| {
            let target = file.name.below(prefix);
            let staging = staging_file(&target, token);
            FileCopy { file: file.clone(), target, staging, crc: None, origin: None, leads: true }
        })
        .collect()
}

/// Makes the hidden files, empty, and tells the transport to fill them.
pub(crate) fn start(
    files: &dyn Files,
    transport: &dyn Transport,
    copies: &mut [FileCopy],
    token: String,
    options: &Options,
) -> Result<Vec<u8>, FileError> {
    for copy in copies.iter_mut() {
        // What is missing or unreadable is for the transport to tell.
        copy.origin = files.status(&copy.file.source).ok();
        create(files, copy, options)?;
    }
    let item = |copy: &FileCopy| CopyItem {
        source: copy.file.source.clone(),
        destination: copy.staging.clone(),
        bytes: copy.file.bytes,
    };
    let items = copies.iter().map(item).collect();
    let job = CopyJob { token, items, block_bytes: options.block_bytes, take_crc: options.checksums };
    transport.start(&job).map_err(|error| FileError::Transport(error.to_string()))
}

/// Waits for the transport, and checks what came.
pub(crate) fn finish(
    files: &dyn Files,
    transport: &dyn Transport,
    copies: &mut [FileCopy],
    ticket: &[u8],
    options: &Options,
) -> Result<(), FileError> {
    match transport.wait(ticket) {
        Ok(CopyState::Done) => {}
        Ok(CopyState::Failed(error)) | Err(error) => return Err(FileError::Transport(error.to_string())),
        Ok(CopyState::Running(_)) => {
            let text = "the transport came back from a copy that is still running, which is an error in it";
            return Err(FileError::Transport(text.to_owned()));
        }
    }
    for (place, copy) in copies.iter_mut().enumerate() {
        check(files, copy, options, || transport.crc(ticket, place))?;
    }
    Ok(())
}

/// In bypass mode the files are in place: they are looked at, and synced. Each rank of those that share a file has
/// bytes of its own to sync.
pub(crate) fn sync_in_place(files: &dyn Files, copies: &[FileCopy]) -> Result<(), FileError> {
    copies.iter().try_for_each(|copy| {
        let (file, _) = open_whole(files, &copy.target, Some(copy.file.bytes))?;
        Ok(file.sync().at("sync", &copy.target)?)
    })
}

/// Takes the checksums of files that are in place; of a shared one only where this rank leads.
pub(crate) fn sum_in_place(
    files: &dyn Files,
    copies: &mut [FileCopy],
    options: &Options,
) -> Result<(), FileError> {
    for copy in copies.iter_mut().filter(|copy| copy.leads) {
        let (file, _) = open_whole(files, &copy.target, Some(copy.file.bytes))?;
        copy.crc = Some(checksum(&*file, &copy.target, options.block_bytes)?);
        compare(&copy.target, copy.file.crc, copy.crc)?;
    }
    Ok(())
}

/// Gives the files their names.
pub(crate) fn rename(files: &dyn Files, copies: &[FileCopy]) -> Result<(), FileError> {
    copies.iter().try_for_each(|copy| {
        Ok(files.rename(&copy.staging, &copy.target).at("rename a new file to", &copy.target)?)
    })
}

/// Takes away what was not finished. Gives whether nothing is left.
pub(crate) fn remove_staging(files: &dyn Files, copies: &[FileCopy]) -> bool {
    // All are tried, whatever becomes of one.
    copies.iter().filter(|copy| files.remove_if_there(&copy.staging).is_err()).count() == 0
}

fn create(files: &dyn Files, copy: &FileCopy, options: &Options) -> Result<(), FileError> {
    let mode = if options.metadata { copy.file.permissions() | OWNER_WRITES } else { FILE_MODE };
    let staging = files.open(&copy.staging, How::Create(mode)).at("create", &copy.staging)?;
    if !options.metadata {
        return Ok(());
    }
    // The umask took bits away that the original has.
    Ok(staging.set_mode(mode).at("set the permissions of", &copy.staging)?)
}

fn check(
    files: &dyn Files,
    copy: &mut FileCopy,
    options: &Options,
    crc: impl FnOnce() -> Option<u32>,
) -> Result<(), FileError> {
    expect_size(files, &copy.staging, copy.file.bytes)?;
    if options.checksums {
        // A transport that takes no checksum leaves it to the host to read what came.
        let found = match crc() {
            Some(crc) => crc,
            None => {
                let staging = files.open(&copy.staging, How::Read).at("open", &copy.staging)?;
                checksum(&*staging, &copy.staging, options.block_bytes)?
            }
        };
        compare(&copy.file.source, copy.file.crc, Some(found))?;
        copy.crc = Some(found);
    }
    if options.metadata {
        settle_metadata(files, copy, options.owner)?;
    }
    Ok(())
}

/// The copy becomes like its source: times, owner where we may, permissions. A transport that replaced the file made
/// it with permissions of its own.
fn settle_metadata(files: &dyn Files, copy: &FileCopy, owner: bool) -> Result<(), FileError> {
    let staging = files.open(&copy.staging, How::Update).at("open", &copy.staging)?;
    if let Some(origin) = copy.origin.filter(|_| owner) {
        staging.set_owner(origin.uid, origin.gid).at("set the owner of", &copy.staging)?;
    }
    let found = staging.status().at("look at", &copy.staging)?.mode & 0o777;
    if found != copy.file.permissions() {
        staging
            .set_mode(copy.file.permissions())
            .and_then(|()| staging.sync())
            .at("set the permissions of", &copy.staging)?;
    }
    let accessed = copy.origin.map_or(copy.file.mtime, |origin| origin.atime);
    Ok(staging.set_times(accessed, copy.file.mtime).at("set the times of", &copy.staging)?)
}

/// Without it the transport could not write.
const OWNER_WRITES: u32 = 0o200;
