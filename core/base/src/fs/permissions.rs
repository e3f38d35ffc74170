//! The permissions of a copy in another folder, as if the application had made the file there.
//!
//! A file gets the permissions that the application wants, less the umask. But where its folder has a default access control
//! list, the system takes away what the list does not allow instead of the umask. So a copy is created with what the umask has
//! taken away in the place of the original, and what the list of its folder leaves of that stays.

use super::{File, Files};
use std::io;

/// With what permissions a copy of a file with these permissions is created.
pub fn to_create(files: &dyn Files, permissions: u32) -> u32 {
    // A file without any right in a class was not meant to have one.
    let given_back =
        |class: u32| if permissions & class == 0 { 0 } else { files.umask() & class & READ_WRITE };
    permissions | given_back(0o070) | given_back(0o007)
}

/// Gives the copy its permissions, unless it has those already. Returns whether anything was changed.
pub fn set(files: &dyn Files, copy: &dyn File, permissions: u32) -> io::Result<bool> {
    let found = copy.status()?.mode & 0o777;
    let wanted = match copy.has_access_list() {
        // Its bits for the group are the mask of the list.
        true => permissions & 0o700 | found & to_create(files, permissions) & 0o077,
        false => permissions,
    };
    if wanted != found {
        copy.set_mode(wanted)?;
    }
    Ok(wanted != found)
}

const READ_WRITE: u32 = 0o666;
