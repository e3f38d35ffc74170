//! One rank's part of a flush: its files go, through the transport, to hidden names beside their final ones.
//!
//! The host makes each file before the transport fills it, so that no transport needs to know of permissions; and
//! it checks what came, so that none has to be trusted.

use super::verify::{checksum, compare, expect_size, open_whole, MoveError};
use super::{Options, SourceFile};
use crate::fs::{At, Files, How, Status};
use crate::prefix::{staging_file, FILE_MODE};
use scr_plugin_api::{CopyItem, CopyJob, CopyState, Transport};
use std::path::{Path, PathBuf};

/// A file on its way.
#[derive(Debug, Clone)]
pub(crate) struct Mover {
    pub(crate) file: SourceFile,
    /// Where it lies in the end.
    pub(crate) target: PathBuf,
    /// Where it is written.
    pub(crate) part: PathBuf,
    /// Checksum of what was copied, once it is known.
    pub(crate) crc: Option<u32>,
    /// What the source was before it was read, for the copy to become alike.
    pub(crate) origin: Option<Status>,
    /// Whether this rank is the first, or the only one, that has this file.
    pub(crate) leads: bool,
}

/// Where all files of this rank go.
pub(crate) fn plan(prefix: &Path, files: &[SourceFile], token: &str) -> Vec<Mover> {
    files
        .iter()
        .map(|file| {
            let target = file.name.below(prefix);
            let part = staging_file(&target, token);
            Mover { file: file.clone(), target, part, crc: None, origin: None, leads: true }
        })
        .collect()
}

/// Makes the hidden files, empty, and tells the transport to fill them.
pub(crate) fn start(
    files: &dyn Files,
    transport: &dyn Transport,
    movers: &mut [Mover],
    token: String,
    options: &Options,
) -> Result<Vec<u8>, MoveError> {
    for mover in movers.iter_mut() {
        // What is missing or unreadable is for the transport to tell.
        mover.origin = files.status(&mover.file.source).ok();
        create(files, mover, options)?;
    }
    let item = |mover: &Mover| CopyItem {
        source: mover.file.source.clone(),
        destination: mover.part.clone(),
        bytes: mover.file.bytes,
    };
    let items = movers.iter().map(item).collect();
    let job = CopyJob { token, items, block_bytes: options.block_bytes, take_crc: options.checksums };
    transport.start(&job).map_err(|error| MoveError::Transport(error.to_string()))
}

/// Waits for the transport, and checks what came.
pub(crate) fn finish(
    files: &dyn Files,
    transport: &dyn Transport,
    movers: &mut [Mover],
    ticket: &[u8],
    options: &Options,
) -> Result<(), MoveError> {
    match transport.wait(ticket) {
        Ok(CopyState::Done) => {}
        Ok(CopyState::Failed(error)) | Err(error) => return Err(MoveError::Transport(error.to_string())),
        Ok(CopyState::Running(_)) => {
            let text = "the transport came back from a copy that is still running, which is an error in it";
            return Err(MoveError::Transport(text.to_owned()));
        }
    }
    for (place, mover) in movers.iter_mut().enumerate() {
        check(files, mover, options, || transport.crc(ticket, place))?;
    }
    Ok(())
}

/// In bypass mode the files are in place: they are looked at, and synced. Each rank of those that share a file has
/// bytes of its own to sync.
pub(crate) fn sync_in_place(files: &dyn Files, movers: &[Mover]) -> Result<(), MoveError> {
    movers.iter().try_for_each(|mover| {
        let (file, _) = open_whole(files, &mover.target, Some(mover.file.bytes))?;
        Ok(file.sync().at("sync", &mover.target)?)
    })
}

/// Takes the checksums of files that are in place; of a shared one only where this rank leads.
pub(crate) fn sum_in_place(
    files: &dyn Files,
    movers: &mut [Mover],
    options: &Options,
) -> Result<(), MoveError> {
    for mover in movers.iter_mut().filter(|mover| mover.leads) {
        let (file, _) = open_whole(files, &mover.target, Some(mover.file.bytes))?;
        mover.crc = Some(checksum(&*file, &mover.target, options.block_bytes)?);
        compare(&mover.target, mover.file.crc, mover.crc)?;
    }
    Ok(())
}

/// Gives the files their names.
pub(crate) fn rename(files: &dyn Files, movers: &[Mover]) -> Result<(), MoveError> {
    movers.iter().try_for_each(|mover| {
        Ok(files.rename(&mover.part, &mover.target).at("rename a new file to", &mover.target)?)
    })
}

/// Takes away what was not finished. Gives whether nothing is left.
pub(crate) fn remove_parts(files: &dyn Files, movers: &[Mover]) -> bool {
    // All are tried, whatever becomes of one.
    movers.iter().filter(|mover| files.remove_if_there(&mover.part).is_err()).count() == 0
}

fn create(files: &dyn Files, mover: &Mover, options: &Options) -> Result<(), MoveError> {
    let mode = if options.metadata { mover.file.permissions() | OWNER_WRITES } else { FILE_MODE };
    let part = files.open(&mover.part, How::Create(mode)).at("create", &mover.part)?;
    if !options.metadata {
        return Ok(());
    }
    // The umask took bits away that the original has.
    Ok(part.set_mode(mode).at("set the permissions of", &mover.part)?)
}

fn check(
    files: &dyn Files,
    mover: &mut Mover,
    options: &Options,
    crc: impl FnOnce() -> Option<u32>,
) -> Result<(), MoveError> {
    expect_size(files, &mover.part, mover.file.bytes)?;
    if options.checksums {
        // A transport that takes no checksum leaves it to the host to read what came.
        let found = match crc() {
            Some(crc) => crc,
            None => {
                let part = files.open(&mover.part, How::Read).at("open", &mover.part)?;
                checksum(&*part, &mover.part, options.block_bytes)?
            }
        };
        compare(&mover.file.source, mover.file.crc, Some(found))?;
        mover.crc = Some(found);
    }
    if options.metadata {
        settle_metadata(files, mover, options.owner)?;
    }
    Ok(())
}

/// The copy becomes like its source: times, owner where we may, permissions. A transport that replaced the file made
/// it with permissions of its own.
fn settle_metadata(files: &dyn Files, mover: &Mover, owner: bool) -> Result<(), MoveError> {
    let part = files.open(&mover.part, How::Update).at("open", &mover.part)?;
    if let Some(origin) = mover.origin.filter(|_| owner) {
        part.set_owner(origin.uid, origin.gid).at("set the owner of", &mover.part)?;
    }
    let found = part.status().at("look at", &mover.part)?.mode & 0o777;
    if found != mover.file.permissions() {
        part.set_mode(mover.file.permissions())
            .and_then(|()| part.sync())
            .at("set the permissions of", &mover.part)?;
    }
    let accessed = mover.origin.map_or(mover.file.mtime, |origin| origin.atime);
    Ok(part.set_times(accessed, mover.file.mtime).at("set the times of", &mover.part)?)
}

/// Without it the transport could not write.
const OWNER_WRITES: u32 = 0o200;
