//! The time of day in the zone of this system.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time of day as the files under the prefix directory give it: local, to the second.
pub fn local_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().try_into().unwrap_or(0);
    // The library of the system reads one file, that of its own zone. jiff lists all zones to find it by its name.
    // SAFETY: all fields are numbers or a pointer, and the call writes nothing but them.
    let parts = unsafe {
        let mut parts = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut parts);
        parts
    };
    let libc::tm { tm_year, tm_mon, tm_mday, tm_hour, tm_min, tm_sec, .. } = parts;
    let (year, month) = (tm_year + 1900, tm_mon + 1);
    format!("{year:04}-{month:02}-{tm_mday:02}T{tm_hour:02}:{tm_min:02}:{tm_sec:02}")
}
