//! Which datasets in the caches of the nodes a restart, or a scavenge, can make whole. See C SCR's `scr_inspect`.
//!
//! Each node takes an inventory of its caches, and one process evaluates all inventories together. It compares lengths and reads
//! no contents. A part in which a run has found wrong bytes says so in its filemap, and counts as lost.

use scr_base::fs::{Files, OwnedDir};
use scr_comm::placement::{Holders, Survives};
use scr_comm::Rank;
use scr_core::cache::filemap::{Filemap, PartState};
use scr_core::cache::loss::{loss_in_either, Lost};
use scr_core::cache::node_dir;
use scr_core::cache::part::{look_through, PartDir};
use scr_core::cache::record::{DatasetKey, RankRecord};
use scr_core::cache::room::{room, MemoryLimits};
use scr_core::plugin::{CheckedScheme, PluginHost, PluginKind};
use scr_core::rebuild::parts::{counted_state, DatasetState};
use scr_core::redundancy::plugins::readable_scheme;
use scr_core::redundancy::repair::Losses;
use scr_core::scavenge::copy::held;
use scr_core::scavenge::filemap::{read_own, ScavengedMap, UnusablePart};
use scr_core::scavenge::scan::Scan;
use scr_plugin_api::Scheme as _;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{DatasetDescriptor, InCache, Prefix, PrefixError, PrefixId, Withdrawal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The parts in the caches of a node.
#[derive(Default, Serialize, Deserialize)]
pub struct Inventory {
    #[serde(deserialize_with = "readable")]
    parts: Vec<Part>,
    #[serde(deserialize_with = "readable")]
    spoilers: Vec<Spoiler>,
    /// Bytes that may still be written to the store with the least room.
    pub room: Option<u64>,
    /// What could not be read: parts that lie there are not known.
    #[serde(default)]
    pub unread: Vec<String>,
    /// The runs whose rank 0 lives on the node, as they describe themselves.
    #[serde(default)]
    pub runs: Vec<String>,
}

/// A part in cache.
#[derive(Serialize, Deserialize)]
struct Part {
    map: ScavengedMap,
    /// Its loss, by the lengths of its files and by what a run has found.
    lost: Option<Lost>,
    /// Whether a run has found wrong bytes in it.
    is_wrong: bool,
}

/// A part that a run would not restart from, nor from the others of its dataset.
#[derive(Serialize, Deserialize)]
struct Spoiler {
    record: RankRecord,
    /// Whether the application could not restart from it; otherwise it was still being written.
    is_refused: bool,
}

/// The parts of one dataset on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Its description in the prefix directory.
    pub dataset: DatasetDescriptor,
    /// As its job would record it now. Its damage is why it cannot be made whole, and it survives the loss of so many of the nodes
    /// that were asked.
    pub kept: InCache,
    /// The ranks whose parts are lost.
    pub lost: Vec<u32>,
    /// Whether the application could not restart from it.
    pub is_refused: bool,
    /// Why nobody can say whether it can be made whole: its scheme is not at hand.
    pub unknown: Option<String>,
    /// Why nobody can say what losses it survives, though it is whole: its scheme is not at hand.
    pub survival_unknown: Option<String>,
}

impl Inspected {
    /// Whether it can be made whole.
    pub fn is_whole(&self) -> bool {
        self.kept.damage.is_none() && self.unknown.is_none()
    }
}

impl Inventory {
    /// Inspects the caches of this node; some are known to be `unread`. Parts that cannot be read count as lost.
    ///
    /// # Errors
    /// The prefix directory cannot be read.
    pub fn take(
        files: &dyn Files,
        prefix: &Prefix,
        caches: &[OwnedDir],
        unread: Vec<String>,
    ) -> Result<Self, PrefixError> {
        let held = held(files, caches);
        let files = held.as_deref().unwrap_or(files);
        let prefix_id = PrefixId::read(files, prefix)?;
        let withdrawn = LedgerDir::new(files, prefix).numbers()?.withdrawn();
        // No run restarts from what a user has dropped, and the next one removes it.
        let withdrawn = |map: &Filemap| map.record.as_ref().and_then(|record| withdrawn.of(&record.dataset));
        let mut inventory = Self { unread, ..Self::default() };
        for cache in caches {
            let places = node_dir::places(files, cache.path()).unwrap_or_else(|error| {
                inventory.unread.push(scr_base::describe(&error));
                vec![cache.path().to_owned()]
            });
            for place in places {
                let found = look_through(files, &place);
                inventory.unread.extend(found.errors.iter().map(|error| scr_base::describe(error)));
                for (id, rank) in found.parts {
                    let part = PartDir::new(&place, id, rank);
                    match read_own(files, prefix, &part, prefix_id.as_ref()) {
                        Ok(map) => match withdrawn(&map) {
                            Some(Withdrawal::Removed) => (),
                            why => inventory.add(files, &part, &map, why.is_some()),
                        },
                        Err(UnusablePart::Fs(error)) => inventory.unread.push(scr_base::describe(&error)),
                        Err(UnusablePart::OtherRelease(form)) => inventory.unread.push(format!(
                            "the files of dataset {id} were written by another release of scr ({form}): save them by that \
                             release's `scr postrun'"
                        )),
                        Err(UnusablePart::Useless(_)) => {}
                    }
                }
            }
        }
        inventory.unread.dedup();
        Ok(inventory)
    }

    fn add(&mut self, files: &dyn Files, part: &PartDir, map: &Filemap, is_refused: bool) {
        if let Some(own) = ScavengedMap::of(map) {
            let lost = loss_in_either(files, part, &own.record).map(|loss| loss.lost).max(map.wrong_bytes);
            self.parts.push(Part { lost, is_wrong: map.wrong_bytes.is_some(), map: own });
        }
        let state = counted_state(map);
        let is_refused = is_refused || state == PartState::Refused;
        if is_refused || state == PartState::Open {
            self.spoilers.extend(map.record.clone().map(|record| Spoiler { record, is_refused }));
        }
    }

    /// Measures the room that the stores of these bases have.
    pub fn measure_room<'b>(&mut self, files: &dyn Files, bases: impl Iterator<Item = &'b Path>) {
        let memory = MemoryLimits::default();
        let rooms = bases.filter_map(|base| room(files, base, &memory, u64::MAX));
        self.room = rooms.map(|room| room.bytes).min();
    }
}

/// Those of a list that can be read: one that contradicts itself does not spoil the others.
fn readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(from)?;
    Ok(all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect())
}

/// The datasets that any node has something of, the newest first. Each inventory is that of a node.
pub fn inspect(inventories: Vec<Inventory>, plugins: &PluginHost) -> Vec<Inspected> {
    let mut datasets: BTreeMap<DatasetKey, Dataset> = BTreeMap::new();
    let nodes = inventories.len();
    for (node, inventory) in inventories.into_iter().enumerate() {
        for Spoiler { record, is_refused } in inventory.spoilers {
            let state = if is_refused { PartState::Refused } else { PartState::Open };
            datasets.entry(DatasetKey::of(&record)).or_default().states.push((state, Some(record.ranks())));
        }
        for part in inventory.parts {
            let dataset = datasets.entry(DatasetKey::of(&part.map.record)).or_default();
            let state = if part.map.complete { PartState::Complete } else { PartState::Prepared };
            dataset.states.push((state, Some(part.map.record.ranks())));
            dataset.found.push((node, part));
        }
    }
    datasets.into_values().rev().filter_map(|dataset| dataset.judge(nodes, plugins)).collect()
}

/// The summary of a dataset over all nodes.
#[derive(Default)]
struct Dataset {
    /// The parts that were found, each with the number of its node.
    found: Vec<(usize, Part)>,
    /// How far each part has come, and how many ranks wrote it.
    states: Vec<(PartState, Option<u32>)>,
}

impl Dataset {
    /// `None` where no part is known to have been prepared.
    fn judge(&self, nodes: usize, plugins: &PluginHost) -> Option<Inspected> {
        let (found, state) = (&self.found, DatasetState::of(&self.states));
        let maps: Vec<_> = found.iter().map(|(_, part)| &part.map).collect();
        let scan = &Scan::of(&maps, Vec::new())?;
        let any = &scan.any;
        let mut losses: BTreeMap<Rank, Option<Lost>> =
            (0..any.ranks()).map(|rank| (Rank(rank), Some(Lost::Data))).collect();
        for (_, part) in found {
            // The better one of two copies counts.
            losses.entry(part.map.record.rank).and_modify(|known| *known = (*known).min(part.lost));
        }
        let losses: BTreeMap<Rank, Lost> =
            losses.into_iter().filter_map(|(rank, lost)| Some((rank, lost?))).collect();
        let lost = losses.iter().filter(|(_, lost)| **lost != Lost::Protection);
        let lost: Vec<Rank> = lost.map(|(&rank, _)| rank).collect();
        let (mut unknown, mut survival_unknown) = (None, None);
        let beyond_repair = if state.is_unfinished(any.ranks()) {
            Some("it was never complete, and the next run removes it".to_owned())
        } else if state.refused {
            Some("the application could not restart from it".to_owned())
        } else if lost.is_empty() {
            None
        } else {
            let wrong = found.iter().filter(|(_, part)| part.is_wrong).map(|(_, part)| part.map.record.rank);
            let wrong: BTreeSet<Rank> = wrong.filter(|rank| losses.contains_key(rank)).collect();
            let why = why_beyond_repair(scan, found, &losses, plugins).unwrap_or_else(|error| {
                unknown = Some(error);
                None
            });
            why.map(|why| match wrong.is_empty() {
                true => why,
                false => {
                    format!("{why}; a run has found wrong bytes in the parts of ranks {}", joined(&wrong))
                }
            })
        };
        let bypass = any.protection.bypass;
        let is_local = found.iter().any(|(_, part)| part.lost == Some(Lost::Protection));
        let is_whole = beyond_repair.is_none() && unknown.is_none();
        Some(Inspected {
            dataset: DatasetDescriptor { ranks: Some(any.ranks()), ..any.dataset.clone() },
            kept: InCache {
                bypass,
                scheme: (!bypass).then(|| any.protection.scheme.clone()),
                is_local,
                damage: beyond_repair,
                survives: match is_local {
                    _ if !is_whole => None,
                    true => Some(Survives::Nodes(0)),
                    false => survives(scan, found, nodes, plugins).unwrap_or_else(|error| {
                        survival_unknown = Some(error);
                        None
                    }),
                },
                ..InCache::default()
            },
            lost: lost.iter().map(|rank| rank.0).collect(),
            is_refused: state.refused,
            unknown,
            survival_unknown,
        })
    }
}

fn joined<'r>(ranks: impl IntoIterator<Item = &'r Rank>) -> String {
    ranks.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// # Errors
/// Its scheme cannot be asked.
fn why_beyond_repair(
    scan: &Scan,
    found: &[(usize, Part)],
    losses: &BTreeMap<Rank, Lost>,
    plugins: &PluginHost,
) -> Result<Option<String>, String> {
    let protection = &scan.any.protection;
    let sets: BTreeSet<&Vec<Rank>> = scan.records().map(|record| &record.members).collect();
    let is_unknown = |rank: &&Rank| match protection.bypass {
        true => found.iter().all(|(_, part)| part.map.record.rank != **rank),
        false => sets.iter().all(|set| !set.contains(rank)),
    };
    if let Some(unknown) = losses.keys().find(is_unknown) {
        return Ok(Some(format!("no node knows anything of the part of rank {unknown}")));
    }
    if protection.bypass {
        return Ok(Some("its files in the prefix directory are not as they were written".to_owned()));
    }
    let (name, scheme) = (&protection.scheme, load(scan, plugins)?);
    let all: Losses = losses.iter().map(|(&rank, &lost)| (rank, lost)).collect();
    Ok(sets.iter().find(|set| !all.leave_enough(set, &scheme)).map(|set| {
        let is_local = all.has_local(set);
        let is_missing = |member: &&Rank| match losses.get(member) {
            Some(Lost::Data) => true,
            known => known.is_some() && !is_local,
        };
        let (members, missing) = (joined(*set), joined(set.iter().filter(is_missing)));
        let lost = format!("the set of ranks {members} has lost ranks {missing}");
        match is_local {
            true => format!("{lost} before it was protected"),
            false => format!("{lost}, and {name} does not survive that"),
        }
    }))
}

/// How many nodes may be lost besides.
///
/// # Errors
/// Its scheme cannot be asked.
fn survives(
    scan: &Scan,
    found: &[(usize, Part)],
    nodes: usize,
    plugins: &PluginHost,
) -> Result<Option<Survives>, String> {
    if scan.any.protection.bypass {
        return Ok(Some(Survives::All));
    }
    let scheme = load(scan, plugins)?;
    let mut holders: BTreeMap<Rank, BTreeSet<usize>> = BTreeMap::new();
    for (node, part) in found.iter().filter(|(_, part)| part.lost.is_none()) {
        holders.entry(part.map.record.rank).or_default().insert(*node);
    }
    let holders_of = |member: &Rank| -> Holders {
        let held = holders.get(member).map(|nodes| nodes.iter().copied().collect::<Vec<_>>());
        // It lies where all nodes see it, and no node takes it along.
        Some(held.unwrap_or_default()).filter(|held| nodes == 1 || held.len() < nodes)
    };
    let sets: BTreeSet<&Vec<Rank>> = scan.records().map(|record| &record.members).collect();
    let survived = sets.iter().map(|set| {
        let size = u32::try_from(set.len()).unwrap_or(u32::MAX);
        let members: Vec<_> = set.iter().map(holders_of).collect();
        Survives::of_set(&members, scheme.losses_survived(size).unwrap_or(0))
    });
    Ok(survived.min())
}

fn load(scan: &Scan, plugins: &PluginHost) -> Result<CheckedScheme, String> {
    let (protection, name) = (&scan.any.protection, &scan.any.protection.scheme);
    let plugin = plugins.open(PluginKind::Scheme, name);
    plugin.and_then(|plugin| readable_scheme(&plugin, protection)).map_err(|error| {
        format!("the plugin of the scheme {name} cannot be loaded: {}", scr_base::describe(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_spoils_no_other_and_what_is_no_inventory_is_none() {
        let line =
            |parts: &str| format!(r#"{{"parts":{parts},"spoilers":[7,{{"is_refused":true}}],"room":5}}"#);
        let read = |line: &str| serde_json::from_str::<Inventory>(line).ok();
        let found = read(&line(r#"[{"lost":null},"x",[[1,2],null,false]]"#)).unwrap();
        assert!(found.parts.is_empty() && found.spoilers.is_empty() && found.unread.is_empty());
        assert_eq!(found.room, Some(5));
        assert!(read(&line("7")).is_none() && read("[]x").is_none());
        let empty = Inventory { unread: vec!["why".to_owned()], ..Inventory::default() };
        assert_eq!(read(&serde_json::to_string(&empty).unwrap()).unwrap().unread, empty.unread);
    }
}
