//! Finds what is in cache when a run starts. See the guide's section "Scalable restart".
//!
//! The first rank that reaches a store searches it, with the data of other nodes if several see the same folder. It assigns each
//! part that it finds to its owner, if the owner reaches it, and the other parts in turn. So one rank reports each part.

use super::parts::LocalPart;
use crate::cache::filemap::Filemap;
use crate::cache::node_dir;
use crate::cache::part::{find_parts, PartDir};
use crate::cache::Cache;
use crate::cache::StoreInUse;
use crate::job::Job;
use crate::typed::route_values;
use scr_base::fs::EntryName;
use scr_comm::{CommError, Rank};
use std::os::unix::ffi::OsStrExt;

/// The parts that this rank reports, and the highest dataset id that it has seen in use.
pub(crate) struct Scan {
    pub(crate) parts: Vec<LocalPart>,
    pub(crate) highest: u64,
}

/// Looks through all stores. A folder that cannot be read counts as empty, with a message. Collective.
pub(crate) fn scan(job: &Job, cache: &Cache) -> Result<Scan, CommError> {
    let mut highest = 0;
    let mut dealt = Vec::new();
    for (number, store) in cache.stores().iter().enumerate() {
        if store.placement.leader(job.rank()) == job.rank() {
            deal(job, number, store, &mut dealt, &mut highest);
        }
    }
    let mut parts = Vec::new();
    for (_, found) in route_values(&*job.comm, &dealt)? {
        parts.extend(read(job, cache, found));
    }
    Ok(Scan { parts, highest })
}

/// A part that was found: the place of its store, the name of a folder below that, the number of the dataset, and the rank.
type Dealt = (usize, Option<Vec<u8>>, u64, u32);

fn deal(job: &Job, number: usize, store: &StoreInUse, dealt: &mut Vec<(Rank, Dealt)>, highest: &mut u64) {
    let mates = store.placement.mates(job.rank());
    let mut next = mates.iter().cycle();
    let places = node_dir::places(job.files(), store.root.path()).unwrap_or_else(|error| {
        job.report.error_here(&scr_base::describe(&error));
        vec![store.cache.clone()]
    });
    for place in places {
        // No rank writes into the folder of another node.
        let here: &[Rank] = if place == store.cache { &mates } else { &[] };
        let found = find_parts(job.files(), &place, here);
        for error in &found.errors {
            job.report.error_here(&scr_base::describe(error));
        }
        *highest = found.ids.iter().copied().fold(*highest, u64::max);
        for (id, owner) in found.parts {
            let speaker = if mates.binary_search(&owner).is_ok() { Some(&owner) } else { next.next() };
            let speaker = *speaker.expect("the leader is one of the ranks that share the store");
            // Another node may know the same folder by another path.
            let folder = place.file_name().filter(|_| place != store.root.path());
            dealt.push((speaker, (number, folder.map(|name| name.as_bytes().to_vec()), id, owner.0)));
        }
    }
}

fn read(job: &Job, cache: &Cache, (store, folder, id, owner): Dealt) -> Option<LocalPart> {
    let store = cache.stores().get(store)?;
    let folder = match folder {
        Some(name) => EntryName::parse(&name)?.below(store.root.path()),
        None => store.root.path().to_owned(),
    };
    let owner = Rank(owner);
    let part = PartDir::new(&folder, id, owner);
    // It is listed, so an answer that it is not there counts if it is given twice.
    let map = Filemap::read(job.files(), &part).or_else(|_| Filemap::read(job.files(), &part));
    let flaw = match &map {
        Err(error) => Some(scr_base::describe(error)),
        Ok(map) if map.damaged => {
            Some(format!("{} is damaged, or another release of scr wrote it", part.filemap().display()))
        }
        Ok(_) => None,
    };
    if let Some(flaw) = flaw {
        job.report.error_here(&format!("{flaw}: what it records counts as lost"));
    }
    let map = map.unwrap_or_else(|_| Filemap { damaged: true, ..Filemap::default() });
    Some(LocalPart { owner, part, map, is_inspected: false, loss: None })
}
