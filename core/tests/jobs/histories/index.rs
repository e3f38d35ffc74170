//! What lies in the prefix directory.

use super::super::world::{files_below, World, SECONDS_OF_A_RUN};
use super::history::folder_of;
use scr_base::fs::RealFiles;
use scr_prefix::{Index, IndexEntry, Prefix, Summary};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The files of checkpoints in a prefix directory, and the containers with others.
pub(super) fn flushed_files(prefix: &Path) -> Vec<PathBuf> {
    files_below(prefix).into_iter().filter(|path| is_flushed(prefix, path)).collect()
}

pub(super) fn is_flushed(prefix: &Path, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    !path.starts_with(prefix.join(".scr")) || name.starts_with(b"container.")
}

/// The folder that the dataset of a flushed file has, or would have.
pub(super) fn folder_of_flushed(prefix: &Path, path: &Path) -> String {
    let below = path.strip_prefix(prefix).expect("it lies there");
    let mut folders = below.iter().map(|folder| folder.to_string_lossy());
    let first = folders.next().unwrap_or_default();
    let id = folders.next().and_then(|folder| folder.strip_prefix("scr.dataset.")?.parse().ok());
    let dataset = id.filter(|_| first == ".scr").and_then(|id| {
        let summary = Summary::read(&RealFiles, &Prefix::new(prefix), id).ok().flatten()?;
        String::from_utf8(summary.dataset.name).ok()
    });
    dataset.map_or(first.into_owned(), |name| folder_of(&name).to_owned())
}

/// The versions that an index offers: whether it is the current one, its number, and its name.
pub(super) fn offered(world: &World) -> Vec<(bool, u64, String)> {
    let offered =
        index_of(world).entries().into_iter().filter(IndexEntry::is_candidate).filter_map(|entry| {
            Some((entry.current, number_of(&entry)?, String::from_utf8(entry.name).ok()?))
        });
    offered.collect()
}

/// The index, empty where there is none, or none that can be read.
pub(super) fn index_of(world: &World) -> Index {
    Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap_or_default()
}

/// Whether the dataset that the index has under this name lies in containers.
pub(super) fn is_aggregated(world: &World, name: &str) -> bool {
    let prefix = Prefix::new(world.prefix());
    let summary = index_of(world).id_of(name).map(|id| Summary::read(&RealFiles, &prefix, id));
    summary.is_some_and(|summary| matches!(summary, Ok(Some(Summary { dataset, .. })) if dataset.aggregated))
}

/// The time at which it was begun identifies the version.
fn number_of(entry: &IndexEntry) -> Option<u64> {
    Some(entry.dataset.as_ref()?.created / MICROS % SECONDS_OF_A_RUN)
}

const MICROS: u64 = 1_000_000;
