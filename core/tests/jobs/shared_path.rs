//! Stores on a path that several nodes see, a burst buffer or a parallel file system: `VIEW=GLOBAL`, `GROUP=WORLD`, and
//! paths that are found to be shared though no setting says so. The files that a lost node has left there are not lost.

use super::world::{files_below, plugins, World};
use scr_base::fs::{OwnedDir, RealFiles};
use scr_comm::Rank;
use scr_core::plugin::PluginHost;
use scr_core::scavenge::{Builder, Copied, Copier};
use scr_ops::scrub::{find_caches, Plan};
use scr_prefix::Prefix;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn uneven(rank: Rank) -> Vec<usize> {
    vec![3000 + 41 * rank.index(), 0, 7]
}

/// Jobs that cache in a folder which all nodes see. The nodes themselves store only their control directories.
pub(super) fn shared(ranks: usize, nodes: usize, store: &str, checkpoint: &str) -> World {
    let world = World::new(ranks, nodes).set("SCR_COPY_TYPE", "FILE");
    std::fs::create_dir_all(bb(&world)).unwrap();
    configure(&world, store, checkpoint);
    world
}

fn configure(world: &World, store: &str, checkpoint: &str) {
    let bb = bb(world).display().to_string();
    let text = format!("STORE={bb} {store}\nCKPT=0 STORE={bb} {checkpoint}\n");
    std::fs::write(world.prefix().join(".scrconf"), text).unwrap();
}

pub(super) fn bb(world: &World) -> PathBuf {
    world.dir().join("bb")
}

/// The folders of nodes on the shared path in which there is data.
fn folders(world: &World) -> Vec<String> {
    let name = |path: &PathBuf| {
        let below = path.strip_prefix(bb(world)).unwrap().to_str().unwrap().to_owned();
        let rest = below.strip_prefix("user1/scr.defjobid/").unwrap().to_owned();
        rest.split('/').next().unwrap().to_owned()
    };
    let data = files_below(&bb(world)).into_iter().filter(|path| path.to_str().unwrap().contains("/r"));
    data.map(|path| name(&path)).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn each_node_keeps_its_data_in_a_folder_of_its_own_on_the_path_that_all_see() {
    let world = shared(4, 2, "VIEW=GLOBAL", "TYPE=XOR");
    let run = world.run(|application| application.checkpoint(1, uneven).unwrap());
    assert!(!run.has_line_with("WARNING"), "{}", run.lines.join("\n"));
    assert_eq!(folders(&world), ["node.0", "node.1"]);
    let part = bb(&world).join("user1/scr.defjobid/node.1/scr.dataset.1/r3");
    assert_eq!(files_below(&part).len(), 3);
    assert!(files_below(&bb(&world)).iter().all(|path| !path.display().to_string().contains(".shared.")));
}

#[test]
fn redundancy_on_a_shared_path_causes_one_warning() {
    let notes = |store: &str, checkpoint: &str| {
        let world = shared(4, 2, store, checkpoint);
        let run = world.run(|application| {
            application.checkpoint(1, uneven).unwrap();
            application.checkpoint(2, uneven).unwrap();
        });
        let found = run.lines.iter().filter(|line| line.contains("repairs no more than single files"));
        found.map(|line| line.contains("/bb") && line.contains("rank 0")).collect::<Vec<_>>()
    };
    assert_eq!(notes("GROUP=WORLD", "TYPE=XOR"), [true]);
    assert_eq!(notes("VIEW=GLOBAL", "TYPE=PARTNER"), [true]);
    assert_eq!(notes("GROUP=WORLD", "TYPE=SINGLE"), [false; 0]);
    assert_eq!(notes("GROUP=WORLD", "TYPE=XOR BYPASS=1"), [false; 0]);
}

/// Nothing that can be rebuilt: with `SINGLE`, what comes back was there.
#[test]
fn a_spare_node_restarts_from_the_data_of_a_lost_node_on_the_path() {
    for store in ["VIEW=GLOBAL", "GROUP=WORLD"] {
        let mut world = shared(6, 3, store, "TYPE=SINGLE");
        world.run(|application| application.checkpoint(1, uneven).unwrap());
        world.lose("n1");
        // The spare one comes first, and takes no number that was given to another.
        world.nodes = ["spare", "spare", "n0", "n0", "n2", "n2"].map(str::to_owned).to_vec();
        let run = world.run(|application| {
            assert_eq!(application.restart(uneven), Some(1));
            application.checkpoint(2, uneven).unwrap();
        });
        assert!(!run.has_line_with("fetched their files from other nodes"), "it is read where it lies");
        assert_eq!(folders(&world), ["node.0", "node.2", "node.3"], "what n1 had left has made way");
        // And back again, with fewer nodes.
        world.nodes = ["n1", "n1", "n1", "n2", "n2", "n2"].map(str::to_owned).to_vec();
        world.run(|application| application.restart(uneven)).all_gave(&Some(2));
        let files = files_below(&bb(&world));
        assert!(files.iter().all(|path| !path.display().to_string().contains("scr.dataset.1/")), "{files:?}");
    }
}

#[test]
fn damage_on_the_path_is_found_and_repaired_also_in_the_folder_of_another_node() {
    let mut world = shared(4, 4, "GROUP=WORLD", "TYPE=XOR");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    // Even though all share the device, a single file that is wrong or gone is rebuilt from the set.
    let data = bb(&world).join("user1/scr.defjobid/node.2/scr.dataset.1/r2/rank_2.0");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&data, &bytes).unwrap();
    world.lose("n2");
    world.nodes[2] = "n2b".to_owned();
    let run = world.run(|application| application.restart(uneven));
    run.all_gave(&Some(1));
    run.line_with(&["rank_2.0", "CRC"]);
    std::fs::remove_dir_all(data.parent().unwrap()).unwrap();
    world.nodes.rotate_left(1);
    world.run(|application| application.restart(uneven)).all_gave(&Some(1));
    // One part of a set is all that XOR survives, shared or not.
    for node in ["node.0", "node.1"] {
        std::fs::remove_dir_all(bb(&world).join("user1/scr.defjobid").join(node).join("scr.dataset.1"))
            .unwrap();
    }
    let run = world.run(|application| application.restart(uneven));
    run.all_gave(&None);
    run.line_with(&["cannot be restored", "XOR survives 1"]);
}

/// Nothing that can be rebuilt: what comes back is the copy that was whole, in whichever folder it lies.
#[test]
fn a_restart_uses_the_whole_one_of_two_copies_of_a_part() {
    for broken in ["node.0", "node.1"] {
        let world = shared(2, 2, "VIEW=GLOBAL", "TYPE=SINGLE");
        world.run(|application| application.checkpoint(1, uneven).unwrap());
        let dataset = |node: &str| bb(&world).join("user1/scr.defjobid").join(node).join("scr.dataset.1");
        let (from, to) = (dataset("node.1"), dataset("node.0"));
        std::fs::create_dir(to.join("r1")).unwrap();
        std::fs::copy(from.join(".scr/filemap_1"), to.join(".scr/filemap_1")).unwrap();
        for file in files_below(&from.join("r1")) {
            let copy = to.join("r1").join(file.file_name().unwrap());
            std::fs::copy(&file, &copy).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            std::fs::File::options().write(true).open(copy).unwrap().set_modified(modified).unwrap();
        }
        std::fs::remove_file(dataset(broken).join("r1/rank_1.0")).unwrap();
        world.run(|application| application.restart(uneven)).all_gave(&Some(1));
    }
}

#[test]
fn a_restart_reads_datasets_of_the_other_layout() {
    let mut world = shared(4, 1, "GROUP=NODE", "TYPE=SINGLE");
    // One node: it cannot detect that others would see the path.
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    assert_eq!(folders(&world), ["scr.dataset.1"]);
    world.nodes = ["n0", "n0", "n1", "n1"].map(str::to_owned).to_vec();
    configure(&world, "VIEW=GLOBAL COUNT=2", "TYPE=SINGLE");
    world.run(|application| {
        assert_eq!(application.restart(uneven), Some(1));
        application.checkpoint(2, uneven).unwrap();
    });
    assert_eq!(folders(&world), ["node.0", "node.1", "scr.dataset.1"]);
    world.nodes = vec!["n7".to_owned(); 4];
    configure(&world, "GROUP=NODE COUNT=1", "TYPE=SINGLE");
    world.run(|application| {
        assert_eq!(application.restart(uneven), Some(2));
        application.checkpoint(3, uneven).unwrap();
    });
    assert_eq!(folders(&world), ["scr.dataset.3"]);
}

/// Each of the nodes took all files there for its own, and removed those that belonged to the others' ranks.
#[test]
fn a_path_shared_without_a_setting_is_reported_and_loses_nothing() {
    let mut world = shared(4, 2, "GROUP=NODE", "TYPE=SINGLE");
    let run = world.run(|application| application.checkpoint(1, uneven).unwrap());
    run.line_with(&[
        "WARNING",
        ".scrconf:1",
        "n0 (rank 0) and n1 (rank 2) see the same files",
        "VIEW=GLOBAL",
    ]);
    assert_eq!(folders(&world), ["node.0", "node.1"]);
    for nodes in [["n0", "n0", "n1", "n1"], ["n1", "n0", "n1", "n0"], ["n2", "n3", "n4", "n5"]] {
        world.nodes = nodes.map(str::to_owned).to_vec();
        world.run(|application| application.restart(uneven)).all_gave(&Some(1));
    }
}

#[test]
fn nodes_that_share_a_control_folder_cause_a_warning_and_get_one_subfolder_each() {
    let mut world = World::new(4, 2);
    let control = world.dir().join("control");
    std::fs::create_dir(&control).unwrap();
    world.put("SCR_CNTL_BASE", &control.display().to_string());
    let run = world.run(|application| application.checkpoint(1, uneven).unwrap());
    run.line_with(&["WARNING", "n0 (rank 0) and n1 (rank 2) see the same control folder", "SCR_CNTL_BASE"]);
    let nodes = control.join("user1/scr.defjobid/nodes");
    let folders = || -> BTreeSet<_> {
        std::fs::read_dir(&nodes).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(folders(), ["node.0", "node.1"].map(Into::into).into());
    // Each node returns to its own folder, even if no other shares the path any more. A command finds it by the node's name.
    for nodes in [["n1", "n1", "n0", "n0"], ["n1"; 4]] {
        world.nodes = nodes.map(str::to_owned).to_vec();
        let run = world.run(|application| application.restart(uneven));
        assert_eq!(run.has_line_with("the same control folder"), nodes[3] == "n0");
        assert_eq!(folders().len(), 2);
    }
}

#[test]
fn a_path_configured_as_shared_that_is_not_ends_the_start() {
    for (store, said) in
        [("VIEW=GLOBAL", "GROUP=NODE VIEW=GLOBAL"), ("GROUP=WORLD", "GROUP=WORLD VIEW=GLOBAL")]
    {
        let world = World::new(4, 2).set("SCR_COPY_TYPE", "FILE");
        let base = world.node("$SCR_NODE_NAME").join("ssd").display().to_string();
        let text = format!("STORE={base} {store}\nCKPT=0 STORE={base} TYPE=SINGLE\n");
        std::fs::write(world.prefix().join(".scrconf"), text).unwrap();
        let outcome = world.try_run(|application| application.map(drop).map_err(|error| error.to_string()));
        let error = outcome.ranks[0].clone().expect_err("a node would be without what it counts on");
        let words = [".scrconf:1", said, "n1 (rank 2) does not see there what n0 (rank 0) does"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        outcome.all_gave(&Err(error));
    }
}

#[test]
fn jobs_at_the_same_time_and_of_other_allocations_and_prefixes_do_not_meet() {
    let mut world = shared(2, 2, "VIEW=GLOBAL", "TYPE=SINGLE");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    // Another prefix directory, on other nodes: neither restarts from the first one's nor removes them.
    let conf = std::fs::read(world.prefix().join(".scrconf")).unwrap();
    world.turn_to("other");
    std::fs::write(world.prefix().join(".scrconf"), &conf).unwrap();
    world.nodes = ["n2", "n3"].map(str::to_owned).to_vec();
    world.run(|application| {
        assert_eq!(application.restart(uneven), None);
        application.checkpoint(5, uneven).unwrap();
    });
    assert_eq!(folders(&world), ["node.0", "node.1", "node.2", "node.3"]);
    world.put("SCR_CACHE_PURGE", "1");
    world.run(|application| application.restart(uneven)).all_gave(&None);
    world.put("SCR_CACHE_PURGE", "0");
    world.turn_to("prefix");
    // Data of another allocation are not read.
    world.put("SCR_JOB_ID", "77");
    world.run(|application| application.restart(uneven)).all_gave(&None);
    world.put("SCR_JOB_ID", "defjobid");
    world.nodes = ["n9", "n8"].map(str::to_owned).to_vec();
    world.run(|application| application.restart(uneven)).all_gave(&Some(1));
}

#[test]
fn a_purge_takes_what_lost_nodes_have_left_as_well() {
    let mut world = shared(4, 2, "VIEW=GLOBAL", "TYPE=SINGLE");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    world.nodes = ["n1", "n1", "n2", "n2"].map(str::to_owned).to_vec();
    world.put("SCR_DISTRIBUTE", "0");
    world.run(|application| application.restart(uneven)).all_gave(&None);
    assert_eq!(folders(&world), [""; 0]);
}

#[test]
fn any_node_saves_and_scrubs_the_data_of_a_dead_job_on_the_path() {
    let world = shared(6, 3, "VIEW=GLOBAL", "TYPE=SINGLE");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    let scrubbed = find_caches(&RealFiles, &bb(&world)).unwrap();
    let plans = scrubbed.iter().map(|cache| Plan::of_cache(&RealFiles, cache, None).unwrap());
    let reports: Vec<_> = plans.map(|plan| plan.run(&RealFiles, &mut |_| ())).collect();
    assert_eq!(reports.iter().map(|report| report.items().count()).collect::<Vec<_>>(), [8, 8, 8]);
    let prefix = Prefix::new(world.prefix());
    let uid = rustix::process::getuid().as_raw();
    let job = [OwnedDir::at(&RealFiles, &bb(&world).join("user1/scr.defjobid"), uid).unwrap()];
    let copy = |node: &str| {
        let copier = Copier {
            files: &RealFiles,
            prefix: &prefix,
            uid,
            node,
            block_bytes: 4096,
            width: 2,
            progress: &|_, _| (),
        };
        copier.dataset(&job, 1).unwrap()
    };
    // At the same time on the two that are left, and on one that had no part in the job.
    let all: Vec<Copied> = std::thread::scope(|scope| {
        let running = ["n0", "n2", "n7"].map(|node| scope.spawn(move || copy(node)));
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for copied in &all {
        let mut ranks: Vec<u32> =
            copied.parts.iter().map(|part| part.rank).chain(copied.elsewhere.iter().copied()).collect();
        ranks.sort_unstable();
        assert!(copied.is_whole() && ranks == [0, 1, 2, 3, 4, 5], "{copied:?}");
    }
    let env = world.env_of(Rank(0));
    let host = PluginHost::new(&env.env(), Some(&plugins().display().to_string()));
    let built = Builder::new(&env.env(), &prefix, &host, 1).build(1).unwrap();
    assert!(built.outcome.is_complete(), "{built:?}");
    std::fs::remove_dir_all(bb(&world).join("user1")).unwrap();
    world.run(|application| application.restart(uneven)).all_gave(&Some(1));
}

/// A filemap without its first record may be damaged, or that of a job which just begins.
#[test]
fn unknown_data_of_nodes_outside_the_job_is_kept() {
    let mut world = shared(2, 2, "VIEW=GLOBAL", "TYPE=SINGLE");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    let shared = bb(&world);
    let begun = |node: u32| {
        let dataset = shared.join(format!("user1/scr.defjobid/node.{node}/scr.dataset.9"));
        std::fs::create_dir_all(dataset.join(".scr")).unwrap();
        let filemap = dataset.join(format!(".scr/filemap_{node}"));
        std::fs::write(&filemap, "scrfmap").unwrap();
        filemap
    };
    let (foreign, own) = (begun(0), begun(1));
    world.nodes = ["n1", "n2"].map(str::to_owned).to_vec();
    world.run(|application| {
        assert_eq!(application.restart(uneven), Some(1));
        application.checkpoint(2, uneven).unwrap();
        application.checkpoint(3, uneven).unwrap();
    });
    assert!(foreign.exists() && !own.exists());
    begun(1);
    world.put("SCR_CACHE_PURGE", "1");
    world.run(|application| application.restart(uneven)).all_gave(&None);
    assert!(foreign.exists() && !own.exists());
}

/// Any single failure during the inspection of the path has one outcome for all, and loses no checkpoint.
#[test]
#[ignore = "long"]
fn a_failure_to_inspect_the_path_has_one_outcome_on_all_ranks() {
    let looks = |what: What, path: &Path| {
        let name = path.to_string_lossy();
        let is_looked_at = name.contains(".shared.") || name.ends_with(".node") || name.ends_with("node.2");
        path.starts_with("/dev/shm") && (is_looked_at || name.ends_with("scr.defjobid") && what == What::List)
    };
    let restart = |rank: u32, fail: Option<u64>| {
        let mut world = shared(4, 2, "VIEW=GLOBAL", "TYPE=SINGLE");
        world.run(|application| application.checkpoint(1, uneven).unwrap());
        world.nodes = ["n1", "n1", "n2", "n2"].map(str::to_owned).to_vec();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.only(looks);
        world.own_files.insert(Rank(rank), Arc::new(faulty.clone()));
        if let Some(at) = fail {
            faulty.fail_once(at, ErrorKind::Other);
        }
        let run = world.try_run(|application| match application {
            Ok(mut application) => Ok(application.restart(uneven)),
            Err(error) => Err(error.to_string().contains("looking at the store")
                || error.to_string().contains("cache folder")),
        });
        let first = run.ranks[0];
        run.all_gave(&first);
        world.own_files.clear();
        world.run(|application| application.restart(uneven)).all_gave(&Some(1));
        (first, faulty.mutations())
    };
    for rank in [0, 2] {
        let (_, looks) = restart(rank, None);
        assert!(looks >= 2);
        for at in 1..=looks {
            let (outcome, _) = restart(rank, Some(at));
            assert!(matches!(outcome, Ok(_) | Err(true)), "operation {at}: {outcome:?}");
        }
    }
}
