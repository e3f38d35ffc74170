//! A plugin on all ranks of a job: the same on all of them, or the same error on all of them.

use super::folders::{env, World};
use scr_base::env::Env;
use scr_base::fs::{File, Files, How, RealFiles, Space, Status};
use scr_comm::thread;
use scr_comm::{Comm, Rank};
use scr_core::plugin::{open_together, PluginHost, PluginKind};
use scr_plugin_api::{KvTree, Scheme as _, SetShape};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A rank on a node that has its own folder `node<n>` wherever the others see `node`. It counts the listings of the node, and the
/// paths that this rank resolves.
struct Node {
    number: u32,
    listings: Arc<AtomicUsize>,
    resolved: Arc<AtomicUsize>,
}

impl Node {
    fn here(&self, path: &Path) -> PathBuf {
        with_other_part(path, "node", &format!("node{}", self.number))
    }
}

fn with_other_part(path: &Path, from: &str, to: &str) -> PathBuf {
    path.components()
        .map(|part| if part.as_os_str() == from { to.as_ref() } else { part.as_os_str() })
        .collect()
}

impl Files for Node {
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        RealFiles.open(&self.here(path), how)
    }
    fn status(&self, path: &Path) -> io::Result<Status> {
        RealFiles.status(&self.here(path))
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        RealFiles.list(&self.here(path))
    }
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.resolved.fetch_add(1, Ordering::Relaxed);
        let real = RealFiles.real_path(&self.here(path))?;
        Ok(with_other_part(&real, &format!("node{}", self.number), "node"))
    }
    fn make_dir(&self, _path: &Path, _mode: u32) -> io::Result<()> {
        unreachable!("the host makes nothing")
    }
    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        unreachable!("the host removes nothing")
    }
    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        unreachable!("the host removes nothing")
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unreachable!("the host renames nothing")
    }
    fn link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unreachable!("the host links nothing")
    }
    fn space(&self, _path: &Path) -> io::Result<Space> {
        unreachable!("the host writes nothing")
    }
}

/// A job of four ranks on two nodes, each with a folder of plugins of its own.
fn world() -> World {
    let world = World::new();
    for node in ["node0", "node1"] {
        world.manifest(node, "TRY", "try.so");
        world.library(&format!("{node}/try.so"), "obedient");
    }
    world
}

/// The result of each rank when all open TRY: bytes of redundancy, or the error. Also the listings of each node.
fn open(world: &World, name: &str) -> (Vec<Result<u64, String>>, [usize; 2]) {
    let (outcomes, listings, _) = open_on(world, name, 2);
    (outcomes, listings)
}

/// The same where the ranks take themselves for those of one or two nodes. Also how many paths each rank has resolved.
fn open_on(world: &World, name: &str, nodes: u32) -> (Vec<Result<u64, String>>, [usize; 2], [usize; 4]) {
    let resolved: [Arc<AtomicUsize>; 4] = Default::default();
    let listings: [Arc<AtomicUsize>; 2] = Default::default();
    let folder = world.path("node").display().to_string();
    let outcomes = thread::run(4, |comm| {
        let number = comm.rank().0 % 2;
        let (listed, resolved) = (&listings[number as usize], &resolved[comm.rank().index()]);
        let files = Node { number, listings: listed.clone(), resolved: resolved.clone() };
        let mates: Vec<_> = (0..4).filter(|rank| rank % nodes == comm.rank().0 % nodes).map(Rank).collect();
        let env = Env { files: Arc::new(files), host: format!("host{number}"), ..env(None) };
        let host = PluginHost::new(&env, Some(&folder));
        let open = open_together(&comm, &mates, &host, PluginKind::Scheme, name);
        let open = open.map_err(|error| error.to_string())?;
        let scheme = open.scheme(&KvTree::new()).map_err(|error| error.to_string())?;
        let shape = SetShape { rank: comm.rank().0, data_lens: &[1, 2, 3, 4] };
        assert_eq!(comm.rank() == Rank(0), host_has_looked(&listings, comm.rank()));
        scheme.redundancy_len(&shape).map_err(|error| error.to_string())
    });
    let count = |count: Arc<AtomicUsize>| count.load(Ordering::Relaxed);
    (outcomes.unwrap(), listings.map(count), resolved.map(count))
}

/// Only rank 0 is on the node whose folder is listed at all.
fn host_has_looked(listings: &[Arc<AtomicUsize>; 2], rank: Rank) -> bool {
    rank == Rank(0) && listings[0].load(Ordering::Relaxed) > 0
}

/// The one error that all ranks get.
fn error(world: &World, name: &str) -> String {
    let (outcomes, _) = open(world, name);
    let mut errors: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.expect_err("it cannot be used")).collect();
    errors.dedup();
    assert_eq!(errors.len(), 1, "all ranks say the same: {errors:?}");
    errors.remove(0)
}

#[test]
fn all_ranks_use_the_plugin_that_rank_0_finds_and_only_rank_0_looks_for_it() {
    let (outcomes, listings) = open(&world(), "try");
    assert_eq!(outcomes, [Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert_eq!(listings, [1, 0]);
}

#[test]
fn one_rank_of_each_node_checks_the_library_and_the_others_open_the_very_same_file() {
    let (outcomes, _, resolved) = open_on(&world(), "TRY", 2);
    assert_eq!(outcomes, [Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert!(resolved[0] > 0 && resolved[1] > 0, "{resolved:?}");
    assert_eq!(resolved[2..], [0, 0], "they look for nothing");
}

#[test]
fn a_rank_that_finds_another_file_than_the_first_of_its_node_checks_that_by_itself() {
    // Ranks 1 and 3 say that they are on the node of rank 0, and see other files.
    let (outcomes, _, resolved) = open_on(&world(), "TRY", 1);
    assert_eq!(outcomes, [Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert!(resolved[1] > 0 && resolved[2] == 0 && resolved[3] > 0, "{resolved:?}");
    let different = world();
    different.library("node1/try.so", "refusing");
    let (outcomes, ..) = open_on(&different, "TRY", 1);
    let text = outcomes[2].clone().expect_err("it cannot be used");
    assert!(text.contains("rank 1 on host1, rank 3 on host1: the library "), "{text}");
    assert!(text.contains("is another one than on rank 0 (sha256 "), "{text}");
    let writable = world();
    super::folders::set_mode(&writable.path("node1/try.so"), 0o666);
    let (outcomes, ..) = open_on(&writable, "TRY", 1);
    let text = outcomes[2].clone().expect_err("it cannot be used");
    assert!(text.contains("rank 1 on host1, rank 3 on host1: the library"), "{text}");
}

#[test]
fn a_plugin_that_nobody_has_is_the_same_error_on_all_ranks() {
    let text = error(&world(), "TRI");
    let start = "the scheme TRI cannot be used: rank 0 on host0: there is no scheme plugin named TRI; did you mean TRY?";
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn a_library_that_is_missing_on_one_node_is_named_with_node_and_ranks() {
    let world = world();
    std::fs::remove_file(world.path("node1/try.so")).unwrap();
    let text = error(&world, "TRY");
    assert!(
        text.starts_with(
            "the scheme TRY cannot be used: rank 1 on host1, rank 3 on host1: cannot read the library "
        ),
        "{text}"
    );
}

#[test]
fn a_library_that_differs_on_one_node_is_named_with_node_and_ranks() {
    let world = world();
    world.library("node1/try.so", "refusing");
    let text = error(&world, "TRY");
    assert!(
        text.starts_with("the scheme TRY cannot be used: rank 1 on host1, rank 3 on host1: the library "),
        "{text}"
    );
    assert!(text.contains("is another one than on rank 0 (sha256 "), "{text}");
}

#[test]
fn a_library_that_others_may_write_on_one_node_only_is_refused_by_all() {
    let world = world();
    super::folders::set_mode(&world.path("node1/try.so"), 0o777);
    assert!(error(&world, "TRY").contains("rank 1 on host1, rank 3 on host1: the library"));
}

#[test]
fn a_library_that_is_broken_where_rank_0_looks_is_refused_by_all() {
    for (bytes, reason) in
        [(&b"text"[..], "it is a text"), (b"\x7fELF", "it is cut short"), (b"", "it is empty")]
    {
        let world = world();
        world.write("node0/try.so", bytes);
        let text = error(&world, "TRY");
        assert!(
            text.starts_with("the scheme TRY cannot be used: rank 0 on host0: ") && text.contains(reason),
            "{text}"
        );
    }
    let world = world();
    world.library("node0/try.so", "other_version");
    world.library("node1/try.so", "other_version");
    assert!(error(&world, "TRY").contains("was built for version 2.1.0 of the plugin interface"));
}
