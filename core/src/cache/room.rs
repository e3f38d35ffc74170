//! Whether a store has room for the old dataset and the new one at the same time.
//!
//! If it has, the old one is evicted only after the new one is complete. A store in memory has more limits than that of its file
//! system: the memory of the node, and that of the control groups that this process is in.

use scr_base::fs::Files;
use scr_base::message::amount;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bytes that may still be written to a store, as one limit has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub(crate) by: LimitedBy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LimitedBy {
    /// The `SIZE` of the store.
    Size,
    FileSystem,
    /// The memory of the node.
    Memory,
    /// The memory of a control group.
    Group(PathBuf),
}

/// The limits of the memory of this process. The control groups are found once, since a process stays where it is.
#[derive(Default)]
pub struct MemoryLimits(OnceLock<Vec<Group>>);

/// The bytes that the store at `cache` still takes, by the limit that leaves least. `None` where none is known. An answer above
/// `enough` may be too low.
pub fn room(files: &dyn Files, cache: &Path, memory: &MemoryLimits, enough: u64) -> Option<Room> {
    let space = files.space(cache).ok()?;
    let mut rooms = Vec::from_iter(space.free.map(|bytes| Room { bytes, by: LimitedBy::FileSystem }));
    if space.in_memory {
        rooms.extend(available_memory(files));
        rooms.extend(memory.groups(files).iter().filter_map(|group| group.room(files, enough)));
    }
    rooms.into_iter().min_by_key(|room| room.bytes)
}

/// The estimated size of the next dataset: a quarter more than the last one.
pub fn expected(last: u64) -> u64 {
    last.saturating_add(last / 4)
}

impl MemoryLimits {
    /// The control groups that have a limit.
    fn groups(&self, files: &dyn Files) -> &[Group] {
        self.0.get_or_init(|| {
            let groups = files.read_about_system("/proc/self/cgroup").unwrap_or_default();
            let all = groups.lines().filter_map(Group::of_line).flatten();
            all.filter(|group| group.limit(files).is_some()).collect()
        })
    }
}

/// A control group that counts memory.
struct Group {
    dir: PathBuf,
    names: &'static Names,
}

impl Group {
    /// The group of a line of `/proc/self/cgroup`, and all that it lies in: the limit of each counts.
    fn of_line(line: &str) -> Option<Vec<Self>> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let names = match controllers {
            "" => &V2,
            _ if controllers.split(',').any(|name| name == "memory") => &V1,
            _ => return None,
        };
        // In a container the path may lead out of what is mounted, and the topmost group is that of the container.
        let path = Path::new(path.trim_start_matches('/'));
        let path = if path.starts_with("..") { Path::new("") } else { path };
        Some(path.ancestors().map(|path| Self { dir: Path::new(names.root).join(path), names }).collect())
    }

    fn limit(&self, files: &dyn Files) -> Option<u64> {
        let limits = self.names.limits.iter().filter_map(|name| self.number(files, name));
        limits.min().filter(|&limit| limit < UNLIMITED)
    }

    fn room(&self, files: &dyn Files, enough: u64) -> Option<Room> {
        let (limit, used) = (self.limit(files)?, self.number(files, self.names.used)?);
        let mut bytes = limit.saturating_sub(used);
        // The kernel adds up the statistics of all processors for whoever reads them.
        if bytes < enough {
            bytes = limit.saturating_sub(used.saturating_sub(self.page_cache(files)));
        }
        Some(Room { bytes, by: LimitedBy::Group(self.dir.clone()) })
    }

    /// Bytes of files on other file systems, which the kernel gives up for others. Files in memory do not count as such.
    fn page_cache(&self, files: &dyn Files) -> u64 {
        let text = self.text(files, "memory.stat").unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let of_files = lines.filter(|(name, _)| self.names.page_cache.contains(name));
        of_files.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum()
    }

    fn number(&self, files: &dyn Files, name: &str) -> Option<u64> {
        self.text(files, name)?.trim().parse().ok()
    }

    fn text(&self, files: &dyn Files, name: &str) -> Option<String> {
        files.read_about_system(self.dir.join(name))
    }
}

/// The names in a version of control groups.
struct Names {
    root: &'static str,
    limits: &'static [&'static str],
    used: &'static str,
    /// In `memory.stat`, with the groups below.
    page_cache: [&'static str; 2],
}

const V2: Names = Names {
    root: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    page_cache: ["active_file", "inactive_file"],
};
const V1: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    page_cache: ["total_active_file", "total_inactive_file"],
};
/// Version 1 writes a number near the largest one where there is no limit.
const UNLIMITED: u64 = 1 << 62;

fn available_memory(files: &dyn Files) -> Option<Room> {
    let text = files.read_about_system("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(Room { bytes: kib.checked_mul(1024)?, by: LimitedBy::Memory })
}

impl Display for Room {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let bytes = amount(self.bytes);
        match &self.by {
            LimitedBy::Size => write!(out, "SIZE= leaves {bytes}"),
            LimitedBy::FileSystem => write!(out, "{bytes} can be written"),
            LimitedBy::Memory => write!(out, "{bytes} of memory are available"),
            LimitedBy::Group(dir) => {
                write!(out, "the control group {} leaves {bytes} of memory", dir.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::faulty::FaultyFiles;
    use std::fs;

    const ENOUGH: u64 = 500;

    /// Files of the kernel, and their text.
    type OfKernel<'a> = &'a [(&'a str, &'a str)];

    /// The room of a store in memory, if the kernel says it.
    fn room_with(of_kernel: OfKernel<'_>) -> Option<(u64, String)> {
        let kernel = tempfile::tempdir().unwrap();
        for (name, text) in of_kernel {
            let path = kernel.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let files = FaultyFiles::new(RealFiles);
        files.pretend_room(1 << 30);
        files.pretend_memory(kernel.path());
        let room = room(&files, kernel.path(), &MemoryLimits::default(), ENOUGH)?;
        Some((room.bytes, room.to_string()))
    }

    #[test]
    fn the_least_of_the_limits_of_memory_counts() {
        let meminfo = ("proc/meminfo", "MemTotal: 900 kB\nMemFree: 3 kB\nMemAvailable: 700 kB");
        let in_job = ("proc/self/cgroup", "1:name=systemd:/x\n0::/slurm/job_1/task_0");
        let of_v1 = ("proc/self/cgroup", "4:cpu,memory:/job_1\n0::/");
        let outside = ("proc/self/cgroup", "0::/../../job_1");
        let unlimited = "9223372036854771712";
        let job = |name: &str| format!("sys/fs/cgroup/slurm/job_1/{name}");
        let v1 = |name: &str| format!("sys/fs/cgroup/memory/job_1/{name}");
        let (max, high, used, stat) =
            (job("memory.max"), job("memory.high"), job("memory.current"), job("memory.stat"));
        let (limit, used1, stat1) =
            (v1("memory.limit_in_bytes"), v1("memory.usage_in_bytes"), v1("memory.stat"));
        let rows: &[(OfKernel, u64, &str)] = &[
            (&[], 1 << 30, "can be written"),
            (&[("proc/meminfo", "MemTotal: 900 kB")], 1 << 30, "can be written"),
            (&[meminfo], 700 << 10, "of memory are available"),
            (&[meminfo, in_job], 700 << 10, "of memory are available"),
            (&[meminfo, in_job, (&max, "max"), (&used, "10")], 700 << 10, "of memory are available"),
            (
                &[in_job, (&max, "2000"), (&used, "1300")],
                700,
                "the control group /sys/fs/cgroup/slurm/job_1 ",
            ),
            (&[in_job, (&max, "2000"), (&high, "max"), (&used, "1300")], 700, "job_1 leaves 700 bytes"),
            (&[in_job, (&max, "2000"), (&high, "1900"), (&used, "1300")], 600, "job_1 leaves 600 bytes"),
            (&[in_job, (&max, "2000"), (&used, "2100")], 0, "job_1 leaves 0 bytes"),
            // The kernel gives up page cache, and not the files that lie in memory.
            (
                &[
                    in_job,
                    (&max, "2000"),
                    (&used, "1900"),
                    (&stat, "file 1500\nshmem 1200\ninactive_anon 9\ninactive_file 200\nactive_file 100"),
                ],
                400,
                "job_1 leaves 400 bytes",
            ),
            (
                &[outside, ("sys/fs/cgroup/memory.max", "8"), ("sys/fs/cgroup/memory.current", "1")],
                7,
                "cgroup/ ",
            ),
            (&[of_v1, (&limit, unlimited), (&used1, "5")], 1 << 30, "can be written"),
            (
                &[of_v1, (&limit, "2000"), (&used1, "1900"), (&stat1, "active_file 9\ntotal_active_file 50")],
                150,
                "the control group /sys/fs/cgroup/memory/job_1 leaves 150 bytes",
            ),
        ];
        for (of_kernel, bytes, text) in rows {
            let (found, said) = room_with(of_kernel).unwrap();
            assert_eq!(found, *bytes, "{of_kernel:?}: {said}");
            assert!(said.contains(text), "{of_kernel:?}: {said}");
        }
    }

    #[test]
    fn the_limits_of_all_groups_above_count() {
        let limits =
            [("slurm/job_1/task_0", "900", "100"), ("slurm/job_1", "700", "100"), ("slurm", "max", "0")];
        let mut of_kernel = vec![("proc/self/cgroup".to_owned(), "0::/slurm/job_1/task_0")];
        for (group, most, used) in limits {
            of_kernel.push((format!("sys/fs/cgroup/{group}/memory.max"), most));
            of_kernel.push((format!("sys/fs/cgroup/{group}/memory.current"), used));
        }
        let of_kernel: Vec<_> = of_kernel.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        assert_eq!(room_with(&of_kernel).unwrap().0, 600);
    }

    #[test]
    fn a_store_on_a_disk_is_not_limited_by_memory() {
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = RealFiles;
        let room = room(&files, disk.path(), &MemoryLimits::default(), ENOUGH);
        let is_on_disk = !files.space(disk.path()).unwrap().in_memory;
        assert!(!is_on_disk || room.is_none_or(|room| room.by == LimitedBy::FileSystem));
    }
}
