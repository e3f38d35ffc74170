//! Files that another program copies: their preparation before, and their check after.

use crate::file::{io_error, open_destination, open_source};
use crate::CopyError;
use rustix::fs::{fsync, Mode, OFlags};
use scr_plugin_api::{uninterrupted, CopyItem, PluginError};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;

/// Looks whether an item can be copied, and makes its destination, or empties it. Gives the permission bits of the destination,
/// for [`confirm`]. Both files are closed again.
///
/// # Errors
/// The source is not as recorded, or the destination cannot be written.
pub fn prepare(item: &CopyItem) -> Result<u32, CopyError> {
    let source = open_source(item)?;
    let destination = open_destination(item, &source, 0)?;
    let found =
        destination.get().and_then(File::metadata).map_err(io_error("examining", &item.destination, 0))?;
    Ok(found.permissions().mode() & 0o777)
}

/// Looks whether all bytes have come, and syncs them. A destination that was made anew gets these permission bits.
///
/// # Errors
/// It is shorter or longer than the source was, is missing, or cannot be synced.
pub fn confirm(item: &CopyItem, mode: u32) -> Result<(), CopyError> {
    let path = &item.destination;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| io_error("opening", path, 0)(errno.into()))?;
    let found = file.metadata().map_err(io_error("examining", path, 0))?;
    if !found.is_file() || found.len() != item.bytes {
        let (path, expected, found) = (path.display(), item.bytes, found.len());
        let text = format!("{path} has {found} bytes of {expected}: it was not copied to its end");
        return Err(PluginError::io(text).into());
    }
    if found.permissions().mode() & 0o777 != mode {
        let set = file.set_permissions(Permissions::from_mode(mode));
        set.map_err(io_error("setting the permissions of", path, 0))?;
    }
    uninterrupted(|| Ok(fsync(&file)?)).map_err(io_error("syncing", path, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn item(folder: &std::path::Path, bytes: u64) -> CopyItem {
        CopyItem { source: folder.join("in"), destination: folder.join("out"), bytes }
    }

    #[test]
    fn received_files_are_checked_and_keep_their_permissions() {
        let folder = tempfile::TempDir::new().unwrap();
        let item = item(folder.path(), 5);
        fs::write(&item.source, "12345").unwrap();
        fs::write(&item.destination, "an older file").unwrap();
        fs::set_permissions(&item.destination, Permissions::from_mode(0o640)).unwrap();
        let mode = prepare(&item).unwrap();
        assert_eq!((mode, fs::read(&item.destination).unwrap().len()), (0o640, 0));
        let unfinished = confirm(&item, mode).unwrap_err().to_string();
        assert!(unfinished.ends_with("has 0 bytes of 5: it was not copied to its end"), "{unfinished}");
        // The copy creates it again.
        fs::remove_file(&item.destination).unwrap();
        assert!(matches!(confirm(&item, mode), Err(CopyError::Io { action: "opening", .. })));
        fs::write(&item.destination, "12345").unwrap();
        confirm(&item, mode).unwrap();
        assert_eq!(fs::metadata(&item.destination).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_source_that_is_not_as_recorded_touches_no_destination() {
        let folder = tempfile::TempDir::new().unwrap();
        let item = item(folder.path(), 5);
        assert!(prepare(&item).unwrap_err().to_string().contains("is not there"));
        fs::write(&item.source, "1234").unwrap();
        assert!(matches!(prepare(&item), Err(CopyError::WrongSize { found: 4, .. })));
        assert!(!item.destination.exists());
    }
}
