//! Compares a file with its record: its length, and its checksum if that is known.

use super::{zeroed, At, File, Files, FsError, How, Kind, MayPass, Status};
use crate::ensure;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// A regular file of this size must be there.
pub fn expect_size(files: &dyn Files, path: &Path, expected: u64) -> Result<(), FileError> {
    open_whole(files, path, Some(expected)).map(drop)
}

/// A file must be as long as was recorded, and have the checksum, where that is known.
pub fn expect_bytes(
    files: &dyn Files,
    path: &Path,
    bytes: u64,
    crc: Option<u32>,
    block_bytes: u64,
) -> Result<(), FileError> {
    let (file, _) = open_whole(files, path, Some(bytes))?;
    let found = crc.map(|_| checksum(&*file, path, block_bytes)).transpose()?;
    compare(path, crc, found)
}

/// Opens a regular file to read, perhaps through a link, that must be as long as was recorded, where that is known.
pub fn open_whole(
    files: &dyn Files,
    path: &Path,
    expected: Option<u64>,
) -> Result<(Box<dyn File>, Status), FileError> {
    // Asked before it is opened: to open a FIFO may take forever.
    let named = present(files, path, || files.status(path).at("look at", path))?;
    let may_be_file = matches!(named.kind, Kind::File | Kind::Link);
    ensure(may_be_file, || FileError::NotAFile { path: path.to_owned() })?;
    open_checked(files, path, expected)
}

/// Opens, to be read, what is known to be no FIFO.
pub fn open_checked(
    files: &dyn Files,
    path: &Path,
    expected: Option<u64>,
) -> Result<(Box<dyn File>, Status), FileError> {
    let file = present(files, path, || files.open(path, How::Read).at("open", path))?;
    let status = file.status().at("look at", path)?;
    Ok((file, as_recorded(path, status, expected)?))
}

/// The status of a regular file that must be as long as was recorded. It is not opened, so a network file system may have known
/// it for a while: this is for what was written on this node.
pub fn status_checked(files: &dyn Files, path: &Path, expected: Option<u64>) -> Result<Status, FileError> {
    let status = present(files, path, || files.status(path).at("look at", path))?;
    as_recorded(path, status, expected)
}

fn as_recorded(path: &Path, status: Status, expected: Option<u64>) -> Result<Status, FileError> {
    ensure(status.kind == Kind::File, || FileError::NotAFile { path: path.to_owned() })?;
    let (found, expected) = (status.len, expected.unwrap_or(status.len));
    ensure(found == expected, || FileError::Size { path: path.to_owned(), expected, found })?;
    Ok(status)
}

fn present<T>(files: &dyn Files, path: &Path, ask: impl Fn() -> Result<T, FsError>) -> Result<T, FileError> {
    match files.if_there(path, ask)? {
        Some(answer) => Ok(answer),
        // What is missing counts as damage for good, so the folder has to agree.
        None if is_listed(files, path)? => Err(io::Error::from(Errno::STALE)).at("find", path)?,
        None => Err(FileError::Missing { path: path.to_owned() }),
    }
}

fn is_listed(files: &dyn Files, path: &Path) -> Result<bool, FsError> {
    let Some(folder) = path.parent() else { return Ok(false) };
    let names = files.if_there(folder, || files.list(folder).at("list", folder))?;
    Ok(names.is_some_and(|names| names.iter().any(|name| Some(name.as_os_str()) == path.file_name())))
}

/// The checksum of a whole file.
pub fn checksum(file: &dyn File, path: &Path, block_bytes: u64) -> Result<u32, FileError> {
    checksum_with(file, path, block_bytes, &mut |_| ())
}

/// The same. Calls `progress` with the number of bytes that have just been read.
pub fn checksum_with(
    file: &dyn File,
    path: &Path,
    block_bytes: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<u32, FileError> {
    let mut block = zeroed(block_size(block_bytes)).at("read", path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut offset = 0_u64;
    loop {
        let count = file.read_at(offset, &mut block).at("read", path)?;
        if count == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(&block[..count]);
        offset += count as u64;
        progress(count as u64);
    }
}

/// The recorded and the found value must be equal if both are known.
pub fn compare(path: &Path, expected: Option<u32>, found: Option<u32>) -> Result<(), FileError> {
    match (expected, found) {
        (Some(expected), Some(found)) if expected != found => {
            Err(FileError::Checksum { path: path.to_owned(), expected, found })
        }
        _ => Ok(()),
    }
}

/// A block that fits into memory, whatever was configured.
pub fn block_size(block_bytes: u64) -> usize {
    usize::try_from(block_bytes).unwrap_or(usize::MAX).clamp(4 << 10, 64 << 20)
}

/// Why a file cannot be used, or did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file is not, or no longer, what was recorded of it.
    #[error("{} has {found} bytes where {expected} were recorded; it was changed or damaged", path.display())]
    Size { path: PathBuf, expected: u64, found: u64 },
    /// A file has other bytes than were recorded.
    #[error(
        "{} is damaged: its checksum is {found:#010x} where {expected:#010x} was recorded", path.display()
    )]
    Checksum { path: PathBuf, expected: u32, found: u32 },
    /// A file is missing.
    #[error("{} is missing", path.display())]
    Missing { path: PathBuf },
    /// A later dataset may have written to the file, and there is no checksum to compare.
    #[error(
        "{} was changed after its dataset was complete, perhaps by a later dataset that was not completed, and no checksum of it is \
         recorded; if only its time has changed, as a copy or `touch' does, start with SCR_CURRENT set to the name of the dataset, \
         or run `scr index --add NAME --trust-times'",
        path.display()
    )]
    Unproven { path: PathBuf },
    /// A later dataset was given the file to write over, and there is no checksum to compare.
    #[error(
        "{} was given to a later dataset to write over, which was not completed, and no checksum of it is recorded",
        path.display()
    )]
    GivenOut { path: PathBuf },
    /// Something else is in a file's place.
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    /// All files together are not what was recorded: how many, and with how many bytes.
    #[error(
        "there are {} files with {} bytes where {} files with {} bytes were recorded",
        found.0, found.1, expected.0, expected.1
    )]
    Totals { expected: (u64, u64), found: (u64, u64) },
    /// In cache it would have the path of another file of its rank.
    #[error("`{name}' has the base name of another file; set SCR_FETCH_BYPASS=1 to read it in place")]
    BaseName { name: String },
    /// The list of what lies in a container would be too long to be read.
    #[error("{} would have too many files in it", path.display())]
    TooMany { path: PathBuf },
    /// The application may have written to the file after its dataset was complete.
    #[error("{} was changed since it was written", path.display())]
    Changed { path: PathBuf },
    /// The application has written to the file after its dataset was complete.
    #[error(
        "{} was written to after SCR_Complete_output; let the application write and close its files before that call", path.display()
    )]
    WrittenLate { path: PathBuf },
    /// A file or folder could not be used.
    #[error("{}", crate::describe(.0))]
    Fs(FsError),
}

impl FileError {
    /// Whether the source itself is wrong, so that a retry cannot help.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Size { .. }
                | Self::Checksum { .. }
                | Self::Missing { .. }
                | Self::NotAFile { .. }
                | Self::Totals { .. }
        )
    }

    /// Whether there is no room for a copy.
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(self, Self::Fs(error) if error.is_for_want_of_room())
    }
}

impl MayPass for FileError {
    fn may_pass(&self) -> bool {
        matches!(self, Self::Fs(error) if error.may_pass())
    }
}

/// With the cause in the text, and so not as the source.
impl From<FsError> for FileError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn every_error_says_what_where_and_whether_the_file_itself_is_wrong() {
        let path = || PathBuf::from("/pfs/a");
        let cause = || io::Error::from_raw_os_error(28);
        let cases = [
            (
                FileError::Size { path: path(), expected: 5, found: 3 },
                "/pfs/a has 3 bytes where 5 were recorded; it was changed or damaged",
                true,
            ),
            (
                FileError::Checksum { path: path(), expected: 0xab, found: 1 },
                "/pfs/a is damaged: its checksum is 0x00000001 where 0x000000ab was recorded",
                true,
            ),
            (FileError::Missing { path: path() }, "/pfs/a is missing", true),
            (FileError::NotAFile { path: path() }, "/pfs/a is not a regular file", true),
            (
                FileError::Totals { expected: (4, 100), found: (4, 99) },
                "there are 4 files with 99 bytes where 4 files with 100 bytes were recorded",
                true,
            ),
            (FileError::Changed { path: path() }, "/pfs/a was changed since it was written", false),
            (
                FileError::WrittenLate { path: path() },
                "/pfs/a was written to after SCR_Complete_output; let the application write and close its files before that call",
                false,
            ),
            (
                FileError::Fs(FsError::Io { doing: "make the folder", path: path(), source: cause() }),
                "cannot make the folder /pfs/a: No space left on device (os error 28)",
                false,
            ),
        ];
        for (error, text, is_damage) in cases {
            assert_eq!((error.to_string().as_str(), error.is_damage()), (text, is_damage));
        }
    }
}
