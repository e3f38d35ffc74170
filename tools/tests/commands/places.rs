//! A place in a setting that cannot be used is never replaced by the current folder: the command would change what is there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

const PREFIX: (&str, &[u8]) = ("SCR_PREFIX", b"/scratch/run\xff");

#[test]
fn no_command_takes_the_current_folder_for_a_place_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".scr")).unwrap();
    for arguments in [
        "index",
        "index --forget-all",
        "index --delete ckpt.1",
        "halt --immediate",
        "postrun",
        "scrub",
        "flush-file --latest",
        "copy --latest",
        "status",
        "clean --dry-run",
    ] {
        refuses(dir.path(), arguments, PREFIX);
    }
    refuses(dir.path(), "clean --dry-run", ("SCR_CACHE_BASE", b"/x\xff"));
    refuses(dir.path(), "clean --dry-run", ("SCR_JOB_ID", b"j\xff"));
    assert_eq!(std::fs::read_dir(dir.path().join(".scr")).unwrap().count(), 0);
}

fn refuses(dir: &Path, arguments: &str, (name, value): (&str, &[u8])) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.current_dir(dir).args(arguments.split(' ')).env(name, OsStr::from_bytes(value));
    let ended = command.output().expect("the command is built");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "scr {arguments}: {said}");
    assert!(said.contains(name), "scr {arguments}: {said}");
}
