//! The files of one rank: the transport copies them to staging files beside their final names.
//!
//! The host makes each staging file before the transport fills it, so that no transport needs to know of permissions. It checks
//! the files that have arrived, so that it need not trust a transport, but for the checksums that one takes.

use super::step::StepError;
use super::{Options, SourceFile};
use scr_base::ensure;
use scr_base::fs::verify::{
    checksum, compare, expect_bytes, open_checked, open_whole, status_checked, FileError,
};
use scr_base::fs::{permissions, retried, At, Durability, Files, How, Status};
use scr_plugin_api::{CopyItem, CopyJob, CopyState, PluginError, Transport};
use scr_prefix::commit::{sync_folders, Staged};
use scr_prefix::{staging_file, Prefix, DIR_MODE, FILE_MODE};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileCopy {
    pub(crate) file: SourceFile,
    /// Its final path.
    #[serde(skip)]
    pub(crate) target: PathBuf,
    /// The path that it is written to.
    #[serde(skip)]
    pub(crate) staging: PathBuf,
    /// Checksum of what was copied, once it is known.
    pub(crate) crc: Option<u32>,
    /// The status of the source before it was read, to be copied.
    pub(crate) origin: Option<Status>,
    /// Whether this rank is the first, or the only one, that has this file.
    pub(crate) leads: bool,
}

impl FileCopy {
    /// The file under its two names.
    pub(super) fn staged(&self) -> Staged {
        Staged {
            target: self.target.clone(),
            staging: self.staging.clone(),
            bytes: self.file.bytes,
            crc: self.crc.or(self.file.crc),
        }
    }
}

/// The paths of all files of this rank.
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

/// Makes the staging files, empty, and has the transport fill them.
pub(crate) fn start(
    files: &dyn Files,
    transport: &dyn Transport,
    copies: &mut [FileCopy],
    token: String,
    options: &Options,
) -> Result<Vec<u8>, StepError> {
    for copy in copies.iter_mut() {
        // The transport reports what is missing or unreadable.
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
    Ok(transport.start(&job)?)
}

/// A transport and its name.
pub(crate) type Named<'a> = (&'a str, &'a dyn Transport);

/// Checks what came of copies that have ended so.
pub(crate) fn take_in(
    files: &dyn Files,
    by: Named<'_>,
    ended: CopyState,
    copies: &mut [FileCopy],
    ticket: &[u8],
    options: &Options,
) -> Result<(), StepError> {
    match ended {
        CopyState::Done => {}
        CopyState::Failed(error) => return Err(error.into()),
        CopyState::Running(_) => {
            let text = "came back from a copy that is still running; this is an error in the plugin";
            return Err(PluginError::fault(format!("the transport {} {text}", by.0)).into());
        }
    }
    for (place, copy) in copies.iter_mut().enumerate() {
        check(files, copy, options, by.0, || by.1.crc(ticket, place))?;
    }
    Ok(())
}

/// Checks the files of a bypass dataset, which are in place already, and syncs the folders that this rank syncs for all. Syncs
/// the bytes too, unless that was done; each of the ranks that share a file has some of its own.
pub(crate) fn sync_in_place(
    files: &dyn Files,
    prefix: &Prefix,
    copies: &[FileCopy],
    folders: &[PathBuf],
    options: &Options,
) -> Result<(), StepError> {
    copies.iter().try_for_each(|copy| {
        let (file, _) = open_whole(files, &copy.target, Some(copy.file.bytes))?;
        match options.synced {
            true => Ok(()),
            false => file.sync().at("sync", &copy.target).map_err(StepError::Unsynced),
        }
    })?;
    sync_folders(files, prefix, folders.iter().map(PathBuf::as_path)).map_err(StepError::Unsynced)
}

/// Takes the checksums of files that are in place; of a shared one only where this rank leads.
pub(crate) fn sum_in_place(
    files: &dyn Files,
    copies: &mut [FileCopy],
    options: &Options,
) -> Result<(), StepError> {
    for copy in copies.iter_mut().filter(|copy| copy.leads) {
        let (file, _) = open_whole(files, &copy.target, Some(copy.file.bytes))?;
        copy.crc = Some(checksum(&*file, &copy.target, options.block_bytes)?);
        compare(&copy.target, copy.file.crc, copy.crc)?;
    }
    Ok(())
}

/// Removes the staging files. Returns whether none is left.
pub(crate) fn remove_staging(files: &dyn Files, copies: &[FileCopy]) -> bool {
    // All are tried, even if one fails.
    copies.iter().filter(|copy| files.remove_if_there(&copy.staging).is_err()).count() == 0
}

/// Makes a staging file. Its permissions are set when it has arrived; until then only this user can read it, unless
/// everybody may. Its name is that of this flush alone.
fn create(files: &dyn Files, copy: &FileCopy, options: &Options) -> Result<(), StepError> {
    let mode = match options.metadata {
        true => permissions::to_create(files, copy.file.permissions()) | OWNER_WRITES,
        false => FILE_MODE,
    };
    let made = match files.open(&copy.staging, How::Replace(mode)) {
        // The rank that makes the folder is not there yet.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = copy.target.parent().unwrap_or(&copy.target);
            files.make_dirs(folder, DIR_MODE, Durability::Unsynced)?;
            files.open(&copy.staging, How::Replace(mode))
        }
        made => made,
    };
    Ok(made.at("create", &copy.staging).map(drop)?)
}

/// Checks what came, and makes it like its source. A file that a transport of this process has read need not be opened once more.
fn check(
    files: &dyn Files,
    copy: &mut FileCopy,
    options: &Options,
    transport: &str,
    crc: impl FnOnce() -> Option<u32>,
) -> Result<(), StepError> {
    let path = &copy.staging;
    let crc = if options.checksums { crc() } else { None };
    let look = |files: &dyn Files| -> Result<_, FileError> {
        // The length that a network file system tells without opening a file may be old, where another node has written it.
        let named = status_checked(files, path, crc.map(|_| copy.file.bytes))?;
        let is_source = copy.origin.is_some_and(|origin| origin.identity == named.identity);
        ensure(!is_source, || FileError::NotAFile { path: path.clone() })?;
        if crc.is_some() {
            return Ok((crc, named));
        }
        // A transport that takes no checksum leaves it to the host to read what came.
        let (file, status) = open_checked(files, path, Some(copy.file.bytes))?;
        let sum = options.checksums.then(|| checksum(&*file, path, options.block_bytes));
        Ok((sum.transpose()?, status))
    };
    let arrived = retried(files, look)
        .and_then(|(found, status)| compare(path, copy.file.crc, found).map(|()| (found, status)));
    let (found, status) = arrived.map_err(|error| cause(files, copy, options, (transport, crc), error))?;
    if let Some(error) = written_late(files, copy, transport).filter(|_| copy.file.is_known_by_time()) {
        return Err(error);
    }
    copy.crc = found;
    if options.metadata {
        apply_metadata(files, copy, status, options.owner)?;
    }
    Ok(())
}

/// That somebody has written to the source since its dataset was complete.
fn written_late(files: &dyn Files, copy: &FileCopy, transport: &str) -> Option<StepError> {
    let source = &copy.file.source;
    let is_changed = |status: Status| status.mtime != copy.file.mtime;
    if copy.origin.is_some_and(is_changed) {
        return Some(FileError::WrittenLate { path: source.clone() }.into());
    }
    files.status(source).is_ok_and(is_changed).then(|| {
        StepError::Other(format!(
            "{} was written to while the transport {transport} copied it, by that or by the application",
            source.display()
        ))
    })
}

/// Why other bytes came than were recorded: those of the source are others, or the transport has copied them wrongly, or its
/// checksum is wrong.
fn cause(
    files: &dyn Files,
    copy: &FileCopy,
    options: &Options,
    (transport, crc): (&str, Option<u32>),
    error: FileError,
) -> StepError {
    let FileCopy { file, staging, .. } = copy;
    let found = match &error {
        FileError::Size { found, expected, .. } => format!("{found} bytes instead of {expected}"),
        FileError::Checksum { found, expected, .. } => {
            format!("checksum {found:#010x} instead of {expected:#010x}")
        }
        FileError::Missing { .. } | FileError::NotAFile { .. } => "no file of its own".to_owned(),
        _ => return error.into(),
    };
    let examine = |path| expect_bytes(files, path, file.bytes, file.crc, options.block_bytes);
    match examine(&file.source) {
        Err(of_source) => written_late(files, copy, transport).unwrap_or_else(|| of_source.into()),
        Ok(()) => StepError::Other(format!(
            "the transport {transport} has copied {} {}{found}; use another transport (SCR_FLUSH_TYPE) until it is corrected",
            file.source.display(),
            match crc.is_some() && matches!(error, FileError::Checksum { .. }) && examine(staging).is_ok() {
                true => "rightly, and reports the wrong ".to_owned(),
                false => format!("wrongly, which is as it was recorded: {} has ", staging.display()),
            }
        )),
    }
}

/// The copy becomes like its source: times, owner where we may, permissions. The umask may have taken bits away, and a
/// transport that replaced the file made it with permissions of its own. As if the application had made it there, its group is
/// that of the folder, where the folder gives it.
fn apply_metadata(files: &dyn Files, copy: &FileCopy, found: Status, owner: bool) -> Result<(), StepError> {
    let folder = copy.staging.parent().unwrap_or(&copy.staging);
    let gives_group = || files.status(folder).is_ok_and(|folder| folder.mode & SETGID != 0);
    let group = |of: Status| if of.gid == found.gid || gives_group() { found.gid } else { of.gid };
    let wanted = copy.origin.filter(|_| owner).map(|origin| (origin.uid, group(origin)));
    let wanted = wanted.filter(|&wanted| wanted != (found.uid, found.gid));
    let permissions = copy.file.permissions();
    if wanted.is_some() || found.mode & 0o777 != permissions {
        let file = files.open(&copy.staging, How::Update).at("open", &copy.staging)?;
        if let Some((uid, gid)) = wanted {
            file.set_owner(uid, gid).at("set the owner of", &copy.staging)?;
        }
        let set = permissions::set(files, &*file, permissions);
        let is_changed = set.at("set the permissions of", &copy.staging)? || wanted.is_some();
        if is_changed {
            file.sync().at("sync", &copy.staging)?;
        }
    }
    let accessed = copy.origin.map_or(copy.file.mtime, |origin| origin.atime);
    Ok(files.set_times(&copy.staging, accessed, copy.file.mtime).at("set the times of", &copy.staging)?)
}

/// Without it the transport could not write.
const OWNER_WRITES: u32 = 0o200;
/// What is made in a folder gets its group.
const SETGID: u32 = 0o2000;
