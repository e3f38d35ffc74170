//! The promises about the prefix directories.

use super::super::world::{World, SECONDS_OF_A_RUN};
use super::history::folder_of;
use scr_base::fs::RealFiles;
use scr_plugin_api::KvTree;
use scr_prefix::{Index, IndexEntry, Prefix, Summary};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

/// Whether it is the other prefix directory.
type Place = bool;

/// A checkpoint that was reported to be in a prefix directory, or one that has come after it in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Floor {
    name: String,
    number: u64,
    ranks: usize,
}

/// The promises about the prefix directories, and other changes to these directories.
#[derive(Debug, Default)]
pub(super) struct Saved {
    /// By the folder of the files.
    floors: BTreeMap<(Place, String), Floor>,
    /// The places where somebody has gone back to an older checkpoint, which is offered first.
    went_back: BTreeSet<Place>,
    /// Those places where it was not by `SCR_CURRENT`, but by `SCR_Current` or a command.
    went_back_in_index: BTreeSet<Place>,
    /// Versions of which a flushed file was changed.
    damaged: BTreeSet<(Place, u64)>,
    /// The places where only checksums show the damage.
    unseen: BTreeSet<Place>,
    /// Entries that a command has made while a job was stopped.
    commands: Vec<(Place, u64)>,
}

impl Saved {
    /// The checkpoints that a run must find that restarts from those of this many ranks, or of any number.
    pub(super) fn all(&self, place: Place, ranks: Option<usize>) -> impl Iterator<Item = u64> + '_ {
        let is_of = move |floor: &Floor| ranks.is_none_or(|ranks| floor.ranks == ranks);
        let here = self
            .floors
            .iter()
            .filter(move |((there, _), floor)| *there == place && is_of(floor) && !self.has_gone_back(place));
        here.map(|(_, floor)| floor.number)
    }

    pub(super) fn has_gone_back(&self, place: Place) -> bool {
        self.went_back.contains(&place)
    }

    pub(super) fn went_back_in_index(&self, place: Place) -> bool {
        self.went_back_in_index.contains(&place)
    }

    /// It is there, and it is the current one.
    pub(super) fn promise(&mut self, place: Place, name: String, number: u64, ranks: usize) {
        self.floors.insert((place, folder_of(&name).to_owned()), Floor { name, number, ranks });
        self.went_back.remove(&place);
        self.went_back_in_index.remove(&place);
    }

    /// Begins a dataset of this many ranks in the folder of this name. The promise ends for the files that it replaces at once,
    /// and for those that a run of another size could not find again.
    pub(super) fn begin(&mut self, place: Place, name: &str, ranks: usize, at_once: bool) {
        self.floors.retain(|(there, folder), floor| {
            *there != place || folder != folder_of(name) || !at_once && floor.ranks == ranks
        });
    }

    /// Nothing is promised of what lies in the folder of this name.
    pub(super) fn forget(&mut self, place: Place, name: &str) {
        self.floors.remove(&(place, folder_of(name).to_owned()));
    }

    /// Nothing is promised of this version of this name, nor of those that it has replaced in its folder.
    pub(super) fn forget_until(&mut self, place: Place, name: &str, number: u64) {
        self.floors.retain(|(there, folder), floor| {
            *there != place || folder != folder_of(name) || floor.number > number
        });
    }

    /// Nothing is promised of the dataset of this name, nor of an older one that it has replaced in its folder.
    pub(super) fn forget_named(&mut self, place: Place, name: &str, number: Option<u64>) {
        self.floors.retain(|(there, folder), floor| {
            let is_replaced = folder == folder_of(name) && number.is_some_and(|number| number > floor.number);
            *there != place || floor.name != name && !is_replaced
        });
    }

    pub(super) fn forget_all(&mut self, place: Place) {
        self.floors.retain(|(there, _), _| *there != place);
    }

    pub(super) fn go_back(&mut self, place: Place) {
        self.went_back.insert(place);
    }

    pub(super) fn go_back_in_index(&mut self, place: Place) {
        self.go_back(place);
        self.went_back_in_index.insert(place);
    }

    /// Only the newest one stays for sure, and not even that if version `arrived` may have got there since.
    pub(super) fn slide_window(&mut self, place: Place, arrived: Option<u64>) {
        let here = self.floors.iter().filter(|((there, _), _)| *there == place);
        let newest = here.map(|(_, floor)| floor.number).max();
        let newest = newest.filter(|newest| arrived.is_none_or(|arrived| arrived <= *newest));
        self.floors.retain(|(there, _), floor| *there != place || Some(floor.number) == newest);
    }

    /// Files of these versions have been changed.
    pub(super) fn damage(&mut self, place: Place, name: &str, numbers: impl Iterator<Item = u64>) {
        self.forget(place, name);
        self.damaged.extend(numbers.map(|number| (place, number)));
    }

    /// Nothing but checksums shows the damage here.
    pub(super) fn expect_checksums(&mut self, place: Place) {
        self.unseen.insert(place);
    }

    pub(super) fn needs_checksums(&self, place: Place) -> bool {
        self.unseen.contains(&place)
    }

    pub(super) fn is_damaged(&self, place: Place, number: u64) -> bool {
        self.damaged.contains(&(place, number))
    }

    /// The number of the next entry that a command makes.
    pub(super) fn next_command(&self) -> u64 {
        (self.commands.len() as u64 + 1) * 1_000_000
    }

    pub(super) fn add_command(&mut self, place: Place, id: u64) {
        self.commands.push((place, id));
    }

    /// Checks that the entries that commands have written are there.
    pub(super) fn check_commands(&self, place: Place, index: &Index) -> Result<(), String> {
        let lost = self.commands.iter().find(|(there, id)| *there == place && index.entry(*id).is_none());
        lost.map_or(Ok(()), |(_, id)| Err(format!("the entry {id} that a command has made is lost")))
    }
}

/// The versions that an index offers: whether it is the current one, its number, and its name.
pub(super) fn offered(world: &World) -> Vec<(bool, u64, String)> {
    let offered = entries(world)
        .into_iter()
        .filter(IndexEntry::is_candidate)
        .filter_map(|entry| Some((entry.current, number_of(&entry)?, String::from_utf8(entry.name).ok()?)));
    offered.collect()
}

/// The numbers and names of all that an index has.
pub(super) fn entries_of(world: &World) -> Vec<(u64, String)> {
    let named = |entry: IndexEntry| (entry.id, String::from_utf8_lossy(&entry.name).into_owned());
    entries(world).into_iter().map(named).collect()
}

/// The versions of which an index says that they failed.
pub(super) fn failed(world: &World) -> Vec<u64> {
    entries(world)
        .iter()
        .filter(|entry| entry.failed.is_some() && !entry.superseded)
        .filter_map(number_of)
        .collect()
}

fn entries(world: &World) -> Vec<IndexEntry> {
    index_of(world).entries()
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
