//! What is in cache when a run starts. See the guide's section "Scalable restart".
//!
//! The first rank that reaches a store looks through it, also through what other nodes have left where several see the
//! same folder, and deals out what it finds: a part to its owner, where the owner reaches it, and the rest in turn. So
//! every part has one rank that speaks for it.

use super::claims::Held;
use crate::cache::filemap::Filemap;
use crate::cache::node_dir;
use crate::cache::part::{find_parts, PartDir};
use crate::comm::collective::route_trees;
use crate::comm::{CommError, Rank};
use crate::context::Context;
use crate::fs::{Files, FsError, MAX_TREE_BYTES};
use crate::store::StoreInUse;
use scr_plugin_api::KvTree;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What this rank speaks for, and the highest dataset id it has seen in use.
pub(crate) struct Scan {
    pub(crate) held: Vec<Held>,
    pub(crate) highest: u64,
}

/// Looks through all stores. A folder that cannot be read counts as empty, with a message. Collective.
pub(crate) fn scan(ctx: &Context) -> Result<Scan, CommError> {
    let mut highest = 0;
    let mut dealt = Vec::new();
    for (number, store) in ctx.stores.iter().enumerate() {
        if store.placement.leader(ctx.rank()) == ctx.rank() {
            deal(ctx, number, store, &mut dealt, &mut highest);
        }
    }
    let mut held = Vec::new();
    for (_, tree) in route_trees(&*ctx.comm, dealt)? {
        held.extend(read(ctx, &tree));
    }
    Ok(Scan { held, highest })
}

fn deal(
    ctx: &Context,
    number: usize,
    store: &StoreInUse,
    dealt: &mut Vec<(Rank, KvTree)>,
    highest: &mut u64,
) {
    let mates = store.placement.mates(ctx.rank());
    let mut next = mates.iter().cycle();
    let places = node_dir::places(ctx.files(), &store.job).unwrap_or_else(|error| {
        ctx.report.error_here(&crate::describe(&error));
        vec![store.cache.clone()]
    });
    for place in places {
        let found = find_parts(ctx.files(), &place);
        for error in &found.errors {
            ctx.report.error_here(&crate::describe(error));
        }
        *highest = found.ids.iter().copied().fold(*highest, u64::max);
        for (id, owner) in found.parts {
            let speaker = if mates.binary_search(&owner).is_ok() { Some(&owner) } else { next.next() };
            let mut tree = KvTree::new();
            tree.set("STORE", number);
            // Another node may know the same folder by another path.
            let below = place.strip_prefix(&store.job).unwrap_or(Path::new(""));
            tree.set_bytes("PLACE", below.as_os_str().as_bytes());
            tree.set("DSET", id);
            tree.set("RANK", owner);
            dealt.push((*speaker.expect("the leader is one of the ranks that share the store"), tree));
        }
    }
}

fn read(ctx: &Context, tree: &KvTree) -> Option<Held> {
    let store = ctx.stores.get(tree.require::<usize>("STORE").ok()?)?;
    let cache = store.job.join(OsStr::from_bytes(tree.value("PLACE")?));
    let owner = Rank(tree.require("RANK").ok()?);
    let id = tree.require("DSET").ok()?;
    let part = PartDir::new(&cache, id, owner);
    let map = filemap(ctx.files(), &part).unwrap_or_else(|error| {
        ctx.report.error_here(&crate::describe(&error));
        Filemap { damaged: true, ..Filemap::default() }
    });
    if map.damaged {
        let path = part.filemap();
        ctx.report.error_here(&format!("{} is damaged: what it records counts as lost", path.display()));
    }
    Some(Held { owner, part, map })
}

/// What the filemap of a part tells. One that somebody has moved there counts as damaged: what it records lies elsewhere.
pub(super) fn filemap(files: &dyn Files, part: &PartDir) -> Result<Filemap, FsError> {
    let map = Filemap::parse(&files.read_all(&part.filemap(), MAX_TREE_BYTES)?);
    match &map.record {
        Some(record) if !part.is_of(record) => Ok(Filemap { damaged: true, ..Filemap::default() }),
        _ => Ok(map),
    }
}
