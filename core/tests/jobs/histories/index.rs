//! What lies in the prefix directory.

use super::super::world::{files_below, World, SECONDS_OF_A_RUN};
use super::history::folder_of;
use scr_base::fs::RealFiles;
use scr_plugin_api::KvTree;
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

/// A flushed file of the dataset that the index has under this name, wherever it lies.
pub(super) fn flushed_bytes(world: &World, name: &str, file: &str) -> Option<Vec<u8>> {
    let prefix = Prefix::new(world.prefix());
    let id = index_of(world).id_of(name)?;
    if !is_aggregated(world, name) {
        return std::fs::read(world.prefix().join(file)).ok();
    }
    let all = std::fs::read_dir(prefix.dataset_dir(id)).ok()?.flatten();
    let mut containers = all.filter(|entry| entry.file_name().as_bytes().starts_with(b"container."));
    containers.find_map(|entry| file_in(&std::fs::read(entry.path()).ok()?, file))
}

/// A file in a container. At its end stand the list of its files, the length of that, and eight bytes that say what it is.
fn file_in(container: &[u8], file: &str) -> Option<Vec<u8>> {
    let (before, magic) = container.split_last_chunk::<8>()?;
    let (before, length) = before.split_last_chunk::<8>()?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
    let (data, contents) = before.split_at_checked(before.len().checked_sub(length)?)?;
    let tree = KvTree::from_file_bytes(contents).ok().filter(|_| magic == b"SCRCONT1")?;
    let ranks = tree.get("RANK")?;
    let found = ranks.iter().find_map(|(_, files)| files.get("FILE")?.get(file))?;
    let number = |key: &str| found.text(key)?.parse::<usize>().ok();
    let (offset, size) = (number("OFFSET")?, number("SIZE")?);
    Some(data.get(offset..offset + size)?.to_vec())
}

/// The time at which it was begun identifies the version.
fn number_of(entry: &IndexEntry) -> Option<u64> {
    Some(entry.dataset.as_ref()?.created / MICROS % SECONDS_OF_A_RUN)
}

const MICROS: u64 = 1_000_000;
