//! Whether a store has room for the old dataset and the new one at the same time.
//!
//! If it has, the old one is evicted only after the new one is complete. A store in memory has more limits than that of its file
//! system: the memory of the node and of the job's control group.

use crate::fs::Files;
use std::path::Path;

/// Bytes that may still be written to the store at `cache`. `None` where it is not known.
pub(crate) fn room(files: &dyn Files, cache: &Path) -> Option<u64> {
    let mut room = files.free_bytes(cache).ok()?;
    if in_memory(files, cache) {
        let limits = [available_memory(files), cgroup_room(files)];
        room = limits.into_iter().flatten().fold(room, u64::min);
    }
    Some(room)
}

/// The estimated size of the next dataset: a quarter more than the last one.
pub(crate) fn expected(last: u64) -> u64 {
    last.saturating_add(last / 4)
}

/// Whether the file system of a path keeps its files in memory.
fn in_memory(files: &dyn Files, path: &Path) -> bool {
    let Some(mounts) = read(files, "/proc/self/mounts") else { return false };
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (at, kind) = (fields.next()?, fields.next()?);
        path.starts_with(at).then_some((at.len(), kind))
    });
    // Of mounts on one place the last one is on top.
    let top = mounted.max_by_key(|&(length, _)| length);
    top.is_some_and(|(_, kind)| matches!(kind, "tmpfs" | "ramfs"))
}

fn available_memory(files: &dyn Files) -> Option<u64> {
    let text = read(files, "/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The memory that the control group of this process may still use, if it has a limit.
fn cgroup_room(files: &dyn Files) -> Option<u64> {
    let groups = read(files, "/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let dir = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    let limit: u64 = read(files, &format!("{dir}/memory.max"))?.trim().parse().ok()?;
    let used: u64 = read(files, &format!("{dir}/memory.current"))?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}

fn read(files: &dyn Files, path: &str) -> Option<String> {
    let bytes = files.read_all(Path::new(path), 1 << 20).ok()?;
    String::from_utf8(bytes).ok()
}
