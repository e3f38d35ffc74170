//! The file systems between which the burst buffer copies.
//!
//! It asks file systems for the extents of files. AXL (github.com/ECP-VeloC/AXL, `bbapi_copy_is_compatible` in
//! `src/axl_async_bbapi.c`) lists those with which it works: XFS, ext4 and GPFS, but not from ext4 to GPFS or back.

use rustix::fs::statfs;
use scr_plugin_api::CopyJob;
use std::path::Path;

/// The first copy of a job that the burst buffer cannot make, and why. A file that cannot be inspected is reported later.
pub(crate) fn obstacle(job: &CopyJob) -> Option<String> {
    job.items.iter().find_map(|item| {
        let (from, to) = (kind_of(&item.source)?, kind_of(&item.destination)?);
        let why = why_not(from, to)?;
        let (source, destination) = (item.source.display(), item.destination.display());
        Some(format!("IBM's burst buffer cannot copy {source} to {destination}: {why}"))
    })
}

/// The number of the file system's kind, of the file or of the folder where it will be.
fn kind_of(path: &Path) -> Option<i64> {
    let found = statfs(path).or_else(|error| path.parent().map_or(Err(error), statfs)).ok()?;
    Some(found.f_type)
}

fn why_not(from: i64, to: i64) -> Option<String> {
    let name = |kind| KINDS.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
    let unknown = |file: &str, kind: i64| {
        Some(format!("its {file} is on a file system of kind {kind:#x}, not on XFS, ext4 or GPFS"))
    };
    match (name(from), name(to)) {
        (Some("ext4"), Some("GPFS")) | (Some("GPFS"), Some("ext4")) => {
            Some("one is on ext4 and the other on GPFS".to_owned())
        }
        (Some(_), Some(_)) => None,
        (None, _) => unknown("source", from),
        (_, None) => unknown("destination", to),
    }
}

/// The kinds as `statfs(2)` and GPFS number them.
const KINDS: [(i64, &str); 3] = [(0x5846_5342, "XFS"), (0xef53, "ext4"), (0x4750_4653, "GPFS")];

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::CopyItem;

    #[test]
    fn files_are_copied_between_xfs_and_gpfs_but_not_from_memory() {
        let [xfs, ext4, gpfs] = KINDS.map(|(kind, _)| kind);
        for (from, to, possible) in [
            (xfs, gpfs, true),
            (xfs, xfs, true),
            (ext4, ext4, true),
            (ext4, gpfs, false),
            (gpfs, ext4, false),
        ] {
            assert_eq!(why_not(from, to).is_none(), possible, "{from:x} {to:x}");
        }
        assert!(why_not(xfs, 0x0bd0_0bd0)
            .unwrap()
            .contains("its destination is on a file system of kind 0xbd00bd0"));
        let item = CopyItem { source: "/dev/shm".into(), destination: "/dev/shm/new".into(), bytes: 0 };
        let job = CopyJob { token: "t".into(), items: vec![item], block_bytes: 0, take_crc: false };
        assert!(obstacle(&job).unwrap().contains("/dev/shm to /dev/shm/new: its source"));
    }
}
