//! What was promised of the prefix directories.

use super::super::world::World;
use super::history::BASE_BYTES;
use scr_core::fs::RealFiles;
use scr_core::prefix::{Index, IndexEntry, Prefix};
use std::collections::{BTreeMap, BTreeSet};

/// Whether it is the other prefix directory.
type Place = bool;

/// A checkpoint that was reported to be in a prefix directory, or one that has come after it under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Floor {
    number: u64,
    ranks: usize,
}

/// What was promised of the prefix directories, and what became of them otherwise.
#[derive(Debug, Default)]
pub(super) struct Saved {
    floors: BTreeMap<(Place, String), Floor>,
    /// Where somebody has gone back to an older checkpoint, which is offered first.
    went_back: BTreeSet<Place>,
    /// Versions of which a flushed file was changed.
    damaged: BTreeSet<(Place, u64)>,
    /// Entries that a command has made while a job was stopped.
    commands: Vec<(Place, u64)>,
}

impl Saved {
    /// The newest checkpoint that a run of so many ranks must find.
    pub(super) fn newest(&self, place: Place, ranks: usize) -> Option<u64> {
        let here = self.floors.iter().filter(|((there, _), floor)| *there == place && floor.ranks == ranks);
        here.map(|(_, floor)| floor.number).max().filter(|_| !self.has_gone_back(place))
    }

    pub(super) fn has_gone_back(&self, place: Place) -> bool {
        self.went_back.contains(&place)
    }

    /// It is there, and it is the current one.
    pub(super) fn promise(&mut self, place: Place, name: String, number: u64, ranks: usize) {
        self.floors.insert((place, name), Floor { number, ranks });
        self.went_back.remove(&place);
    }

    /// A dataset of so many ranks is begun under this name. What it replaces at once is promised no more; nor is what a run of another
    /// size could not find again.
    pub(super) fn begin(&mut self, place: Place, name: &str, ranks: usize, at_once: bool) {
        self.floors.retain(|(there, named), floor| {
            *there != place || named != name || !at_once && floor.ranks == ranks
        });
    }

    pub(super) fn forget(&mut self, place: Place, name: &str) {
        self.floors.remove(&(place, name.to_owned()));
    }

    pub(super) fn forget_all(&mut self, place: Place) {
        self.floors.retain(|(there, _), _| *there != place);
    }

    pub(super) fn go_back(&mut self, place: Place) {
        self.went_back.insert(place);
    }

    /// Only the newest one stays for sure.
    pub(super) fn slide_window(&mut self, place: Place) {
        let newest =
            self.floors.iter().filter(|((there, _), _)| *there == place).map(|(_, floor)| floor.number).max();
        self.floors.retain(|(there, _), floor| *there != place || Some(floor.number) == newest);
    }

    /// Files of these versions have been changed.
    pub(super) fn damage(&mut self, place: Place, name: &str, numbers: impl Iterator<Item = u64>) {
        self.forget(place, name);
        self.damaged.extend(numbers.map(|number| (place, number)));
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

    /// What commands have written is there.
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

/// The versions of which an index says that they failed.
pub(super) fn failed(world: &World) -> Vec<u64> {
    entries(world)
        .iter()
        .filter(|entry| entry.failed.is_some() && !entry.superseded)
        .filter_map(number_of)
        .collect()
}

fn entries(world: &World) -> Vec<IndexEntry> {
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix()));
    index.map(|index| index.entries()).unwrap_or_default()
}

/// The bytes of all its files tell the version.
fn number_of(entry: &IndexEntry) -> Option<u64> {
    entry.dataset.as_ref()?.bytes?.checked_sub(BASE_BYTES as u64)
}
