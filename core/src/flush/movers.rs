//! One rank's part of a flush: its files go, through the transport, to hidden names beside their final ones.
//!
//! The host makes each file before the transport fills it, so that no transport needs to know of permissions; and
//! it checks what came, so that none has to be trusted.

use super::names;
use super::{FlushFile, Options};
use crate::fs::{File, Files, FsError, How, Kind, Status};
use crate::prefix::FILE_MODE;
use scr_plugin_api::{CopyItem, CopyJob, CopyState, Transport};
use std::io;
use std::path::{Path, PathBuf};

/// A file on its way.
#[derive(Debug, Clone)]
pub(crate) struct Mover {
    pub(crate) file: FlushFile,
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

/// Why a rank's files did not arrive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MoveError {
    /// A file is not, or no longer, what was recorded of it.
    #[error("{} has {found} bytes where {expected} were recorded; it was changed or damaged", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// What was recorded.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// A file has other bytes than were recorded.
    #[error(
        "{} is damaged: its checksum is {found:#010x} where {expected:#010x} was recorded", path.display()
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// What was recorded.
        expected: u32,
        /// What was found.
        found: u32,
    },
    /// A file is missing.
    #[error("{} is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// What stands in a file's place is something else.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// All files together are not what was recorded.
    #[error(
        "there are {} files with {} bytes where {} files with {} bytes were recorded",
        found.0, found.1, expected.0, expected.1
    )]
    Totals {
        /// Files and bytes that were recorded.
        expected: (u64, u64),
        /// Files and bytes that are there.
        found: (u64, u64),
    },
    /// There is no place in cache.
    #[error("{0}")]
    Cache(String),
    /// The transport gave up.
    #[error("{0}")]
    Transport(String),
    /// A call of the system failed.
    #[error("cannot {doing} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which path.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file or folder could not be used.
    #[error("{}", crate::describe(.0))]
    Fs(#[from] FsError),
    /// A name leads out of the prefix directory.
    #[error(transparent)]
    Name(#[from] names::NameError),
}

impl MoveError {
    /// Whether the source itself is wrong, so that trying again is of no use.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Size { .. }
                | Self::Checksum { .. }
                | Self::Missing { .. }
                | Self::NotAFile { .. }
                | Self::Totals { .. }
        )
    }

    pub(crate) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |cause| Self::Io { doing, path: path.to_owned(), cause }
    }
}

/// Where all files of this rank go.
pub(crate) fn plan(prefix: &Path, files: &[FlushFile], token: &str) -> Result<Vec<Mover>, MoveError> {
    files
        .iter()
        .map(|file| {
            let target = names::target(prefix, &file.name)?;
            let part = names::part(&target, token);
            Ok(Mover { file: file.clone(), target, part, crc: None, origin: None, leads: true })
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
        file.sync().map_err(MoveError::io("sync", &mover.target))
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
        files.rename(&mover.part, &mover.target).map_err(MoveError::io("rename a new file to", &mover.target))
    })
}

/// Takes away what was not finished. Gives whether nothing is left.
pub(crate) fn remove_parts(files: &dyn Files, movers: &[Mover]) -> bool {
    let removed = |mover: &Mover| match files.remove_file(&mover.part) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => true,
    };
    // All are tried, whatever becomes of one.
    movers.iter().filter(|mover| !removed(mover)).count() == 0
}

/// A regular file of this size must be there.
pub(crate) fn expect_size(files: &dyn Files, path: &Path, expected: u64) -> Result<(), MoveError> {
    open_whole(files, path, Some(expected)).map(drop)
}

/// A file must be as long as was recorded, and have the checksum, where that is known.
pub(crate) fn expect_bytes(
    files: &dyn Files,
    path: &Path,
    bytes: u64,
    crc: Option<u32>,
    block_bytes: u64,
) -> Result<(), MoveError> {
    let (file, _) = open_whole(files, path, Some(bytes))?;
    let found = crc.map(|_| checksum(&*file, path, block_bytes)).transpose()?;
    compare(path, crc, found)
}

/// Opens a regular file, perhaps through a link, that must be as long as was recorded, where that is known.
pub(crate) fn open_whole(
    files: &dyn Files,
    path: &Path,
    expected: Option<u64>,
) -> Result<(Box<dyn File>, Status), MoveError> {
    let missing = |error: io::Error, doing| match error.kind() {
        io::ErrorKind::NotFound => MoveError::Missing { path: path.to_owned() },
        _ => MoveError::io(doing, path)(error),
    };
    // Asked before it is opened: to open a FIFO may take for ever.
    let named = files.status(path).map_err(|error| missing(error, "look at"))?;
    if !matches!(named.kind, Kind::File | Kind::Link) {
        return Err(MoveError::NotAFile { path: path.to_owned() });
    }
    let file = files.open(path, How::Read).map_err(|error| missing(error, "open"))?;
    let status = file.status().map_err(MoveError::io("look at", path))?;
    if status.kind != Kind::File {
        return Err(MoveError::NotAFile { path: path.to_owned() });
    }
    match expected {
        Some(expected) if status.len != expected => {
            Err(MoveError::Size { path: path.to_owned(), expected, found: status.len })
        }
        _ => Ok((file, status)),
    }
}

/// The checksum of a whole file.
pub(crate) fn checksum(file: &dyn File, path: &Path, block_bytes: u64) -> Result<u32, MoveError> {
    let mut block = vec![0; block_size(block_bytes)];
    let mut hasher = crc32fast::Hasher::new();
    let mut offset = 0_u64;
    loop {
        let count = file.read_at(offset, &mut block).map_err(MoveError::io("read", path))?;
        if count == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(&block[..count]);
        offset += count as u64;
    }
}

/// What was recorded and what was found must be the same, where both are known.
pub(crate) fn compare(path: &Path, expected: Option<u32>, found: Option<u32>) -> Result<(), MoveError> {
    match (expected, found) {
        (Some(expected), Some(found)) if expected != found => {
            Err(MoveError::Checksum { path: path.to_owned(), expected, found })
        }
        _ => Ok(()),
    }
}

/// A block that fits into memory, whatever was configured.
pub(crate) fn block_size(block_bytes: u64) -> usize {
    usize::try_from(block_bytes).unwrap_or(usize::MAX).clamp(4 << 10, 64 << 20)
}

fn create(files: &dyn Files, mover: &Mover, options: &Options) -> Result<(), MoveError> {
    let mode = if options.metadata { mover.file.permissions() | OWNER_WRITES } else { FILE_MODE };
    let part = files.open(&mover.part, How::Create(mode)).map_err(MoveError::io("create", &mover.part))?;
    if !options.metadata {
        return Ok(());
    }
    // The umask took bits away that the original has.
    part.set_mode(mode).map_err(MoveError::io("set the permissions of", &mover.part))
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
                let part = files.open(&mover.part, How::Read).map_err(MoveError::io("open", &mover.part))?;
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
    let part = files.open(&mover.part, How::Update).map_err(MoveError::io("open", &mover.part))?;
    if let Some(origin) = mover.origin.filter(|_| owner) {
        part.set_owner(origin.uid, origin.gid).map_err(MoveError::io("set the owner of", &mover.part))?;
    }
    let found = part.status().map_err(MoveError::io("look at", &mover.part))?.mode & 0o777;
    if found != mover.file.permissions() {
        part.set_mode(mover.file.permissions())
            .and_then(|()| part.sync())
            .map_err(MoveError::io("set the permissions of", &mover.part))?;
    }
    let accessed = mover.origin.map_or(mover.file.mtime, |origin| origin.atime);
    part.set_times(accessed, mover.file.mtime).map_err(MoveError::io("set the times of", &mover.part))
}

/// Without it the transport could not write.
const OWNER_WRITES: u32 = 0o200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_where_and_whether_the_file_itself_is_wrong() {
        let path = || PathBuf::from("/pfs/a");
        let cause = || io::Error::from_raw_os_error(28);
        let name = names::NameError { name: "../a".to_owned(), why: "it has a `.' or `..' in it" };
        let cases = [
            (
                MoveError::Size { path: path(), expected: 5, found: 3 },
                "/pfs/a has 3 bytes where 5 were recorded; it was changed or damaged",
                true,
            ),
            (
                MoveError::Checksum { path: path(), expected: 0xab, found: 1 },
                "/pfs/a is damaged: its checksum is 0x00000001 where 0x000000ab was recorded",
                true,
            ),
            (MoveError::Missing { path: path() }, "/pfs/a is missing", true),
            (MoveError::NotAFile { path: path() }, "/pfs/a is not a regular file", true),
            (
                MoveError::Totals { expected: (4, 100), found: (4, 99) },
                "there are 4 files with 99 bytes where 4 files with 100 bytes were recorded",
                true,
            ),
            (MoveError::Cache("no room".to_owned()), "no room", false),
            (MoveError::Transport("gone".to_owned()), "gone", false),
            (
                MoveError::Io { doing: "open", path: path(), cause: cause() },
                "cannot open /pfs/a: No space left on device (os error 28)",
                false,
            ),
            (
                MoveError::Fs(FsError::Io { doing: "make the folder", path: path(), source: cause() }),
                "cannot make the folder /pfs/a: No space left on device (os error 28)",
                false,
            ),
            (
                MoveError::Name(name),
                "the name `../a' cannot be used below the prefix directory: it has a `.' or `..' in it",
                false,
            ),
        ];
        for (error, text, is_damage) in cases {
            assert_eq!((error.to_string().as_str(), error.is_damage()), (text, is_damage));
        }
    }
}
