//! The records of a job for observers outside of it: `scr status` may reach no node.

use super::world::World;
use scr_base::fs::RealFiles;
use scr_comm::placement::Survives;
use scr_comm::Rank;
use scr_prefix::{FlushFile, InCache, LastRun, Prefix};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn one(_: Rank) -> Vec<usize> {
    vec![1000]
}

/// The flush file's record of the newest dataset in cache.
fn newest(world: &World) -> InCache {
    let file = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    file.entries().swap_remove(0).in_cache
}

/// The number of lost nodes that the newest checkpoint survives, according to the metrics of each node.
fn in_metrics(dir: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let survived = |file: PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find(|line| line.starts_with("scr_node_losses_survived{")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    files.map(survived).collect()
}

#[test]
fn a_job_records_how_many_nodes_each_checkpoint_survives() {
    let set = |world: World, settings: &[(&str, &str)]| {
        settings.iter().fold(world, |world, (name, value)| world.set(name, value))
    };
    for (ranks, nodes, settings, expected) in [
        (4, 4, &[][..], Survives::Nodes(1)),
        (8, 4, &[], Survives::Nodes(1)),
        (4, 1, &[], Survives::Nodes(0)),
        (5, 2, &[], Survives::Nodes(0)),
        (4, 4, &[("SCR_COPY_TYPE", "SINGLE")], Survives::Nodes(0)),
        (4, 4, &[("SCR_COPY_TYPE", "RS"), ("SCR_SET_FAILURES", "2")], Survives::Nodes(2)),
        (4, 4, &[("SCR_COPY_TYPE", "PARTNER")], Survives::Nodes(1)),
        (4, 4, &[("SCR_CACHE_BYPASS", "1")], Survives::All),
    ] {
        let metrics = tempfile::tempdir().unwrap();
        let in_nodes = match expected {
            Survives::Nodes(nodes) => u64::from(nodes),
            Survives::All => nodes as u64,
        };
        let world =
            set(World::new(ranks, nodes), settings).set("SCR_METRICS_DIR", metrics.path().to_str().unwrap());
        world.run(|application| {
            application.checkpoint(1, one).unwrap();
            application.finalize().unwrap();
        });
        assert_eq!(in_metrics(metrics.path()), [in_nodes], "{ranks} {nodes} {settings:?}");
        assert_eq!(newest(&world).survives, Some(expected), "{ranks} {nodes} {settings:?}");
        let scheme = settings.iter().find(|(name, _)| *name == "SCR_COPY_TYPE").map_or("XOR", |(_, it)| it);
        let is_bypass = expected == Survives::All;
        assert_eq!(newest(&world).scheme.as_deref(), Some(scheme).filter(|_| !is_bypass));
    }
}

#[test]
fn a_restart_on_fewer_nodes_records_what_its_checkpoint_survives_there() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, one).unwrap());
    assert_eq!(newest(&world).survives, Some(Survives::Nodes(1)));
    let metrics = tempfile::tempdir().unwrap();
    world = world.set("SCR_METRICS_DIR", metrics.path().to_str().unwrap());
    world.lose("n3");
    world.nodes = vec!["n0".to_owned(), "n1".to_owned(), "n2".to_owned(), "n2".to_owned()];
    world
        .run(|application| {
            let restarted = application.restart(one);
            application.finalize().unwrap();
            restarted
        })
        .all_gave(&Some(1));
    assert_eq!(in_metrics(metrics.path()), [0], "also before the first checkpoint of this run");
    assert_eq!(newest(&world).survives, Some(Survives::Nodes(0)), "two parts of a set are on n2");
    let run = LastRun::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().unwrap();
    assert_eq!((run.nodes.join(" "), run.ranks), ("n0 n1 n2".to_owned(), 4));
}

#[test]
fn a_job_records_itself_and_the_time_between_two_checkpoints() {
    let world = World::new(2, 2).set("SCR_JOB_ID", "77").set("SCR_FLUSH", "7").set("SCR_END_TIME", "99");
    world.run(|application| application.checkpoint(1, one).unwrap());
    assert_eq!(newest(&world).after, None, "there was none before it in this run");
    world.run(|application| {
        application.checkpoint(2, one).unwrap();
        application.wait(60);
        application.checkpoint(3, one).unwrap();
    });
    assert_eq!(newest(&world).after, Some(Duration::from_secs(60)));
    let run = LastRun::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().unwrap();
    assert_eq!((run.job_id.as_str(), run.flush_every, run.end), ("77", 7, Some(99)));
}
