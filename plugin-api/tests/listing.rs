//! What is listed while the system fails to close every folder, as a file server may make it.
#![allow(clippy::unwrap_used, reason = "a test fails if it cannot continue")]

use scr_plugin_api::paths_in;
use std::path::Path;

/// In place of the one of the C library, in this process.
///
/// # Safety
/// None is needed: the folder stays open.
#[no_mangle]
pub unsafe extern "C" fn closedir(_folder: *mut libc::DIR) -> libc::c_int {
    // SAFETY: it belongs to this thread.
    unsafe { *libc::__errno_location() = libc::EIO };
    -1
}

/// `scr clean` ended by a panic.
#[test]
fn the_names_in_a_folder_come_although_it_cannot_be_closed() {
    assert!(paths_in(Path::new("/proc")).unwrap().contains(&"/proc/self".into()));
}
