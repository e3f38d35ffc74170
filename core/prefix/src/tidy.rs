//! Removes half written files of dead processes from `.scr`.
//!
//! A file is written under a temporary name and renamed within moments, and a process that waits for a lock touches its file
//! repeatedly. So a file that was not touched for an hour, by the clock of the file server, belongs to nobody. If it still does,
//! its writer only gets an error.

use scr_base::fs::{Files, Kind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Removes what is left half written in a folder of scr. `witness` is a file that has just been written there, whose time
/// is the file server's. A file that cannot be removed stays.
pub fn tidy(files: &dyn Files, folder: &Path, witness: &Path) {
    let Ok(now) = files.status(witness).map(|status| status.mtime.0) else { return };
    for name in files.list(folder).unwrap_or_default() {
        let path = folder.join(&name);
        let is_left = |path: &Path| {
            files.status(path).is_ok_and(|found| {
                found.kind == Kind::File && now.saturating_sub(found.mtime.0) > UNTOUCHED_SECONDS
            })
        };
        if is_unfinished(name.as_os_str().as_bytes()) && is_left(&path) {
            let _ = files.remove_file(&path);
        }
    }
}

/// `.<name>.tmp.<number>` is written before it becomes `<name>`; `<name>.lock.<16 digits>` is the file of somebody who waits
/// for a lock, and `<number>.<16 digits>` for a slot.
fn is_unfinished(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let all =
        |text: &str, wanted: fn(&char) -> bool| !text.is_empty() && text.chars().all(|digit| wanted(&digit));
    let temporary = name.starts_with('.')
        && name.rsplit_once(".tmp.").is_some_and(|(_, number)| all(number, char::is_ascii_digit));
    let waiting =
        name.strip_suffix(".broken").unwrap_or(name).rsplit_once('.').is_some_and(|(lock, number)| {
            let is_lock = lock.ends_with(".lock") || all(lock, char::is_ascii_digit);
            is_lock && number.len() == 16 && all(number, char::is_ascii_hexdigit)
        });
    temporary || waiting
}

const UNTOUCHED_SECONDS: i64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::{How, RealFiles};

    #[test]
    fn only_what_is_half_written_and_untouched_for_an_hour_goes() {
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str, age: i64| {
            let path = dir.path().join(name);
            std::fs::write(&path, "x").unwrap();
            let now = RealFiles.status(&path).unwrap().mtime.0;
            RealFiles.open(&path, How::Update).unwrap().set_times((now, 0), (now - age, 0)).unwrap();
        };
        let unfinished = [
            ".index.scr.tmp.0",
            ".halt.scr.tmp.17",
            "index.lock.0123456789abcdef",
            "build.lock.0123456789abcdef.broken",
            "12.0123456789abcdef",
        ];
        let kept = [
            "12",
            "3.17f0a.0123456789abcdef",
            "index.scr",
            ".hidden",
            "index.lock",
            ".a.tmp.x",
            "x.tmp.1",
            "index.lock.flock",
            "index.lock.0123",
        ];
        for name in unfinished.iter().chain(&kept) {
            made(name, 2 * UNTOUCHED_SECONDS);
        }
        made(".flush.scr.tmp.1", 60);
        made("witness", 0);
        tidy(&RealFiles, dir.path(), &dir.path().join("witness"));
        for name in unfinished {
            assert!(!dir.path().join(name).exists(), "{name}");
        }
        for name in kept.iter().chain(&[".flush.scr.tmp.1", "witness"]) {
            assert!(dir.path().join(name).exists(), "{name}");
        }
    }
}
