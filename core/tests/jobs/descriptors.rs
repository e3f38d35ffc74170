//! Several stores, schemes and failure groups in one job. See docs/user/configuration.md.
//!
//! A node's `/dev/shm` and `/ssd` are the folders `shm` and `ssd` in what the node stores, so that both go with the node.

use super::world::World;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_ops::scrub;
use scr_plugin_api::KvTree;
use scr_test_kit::faulty::FaultyFiles;
use std::sync::Arc;

fn uneven(rank: Rank) -> Vec<usize> {
    vec![900 + 37 * rank.index(), 0, 5]
}

/// Settings in the user's file, where `SHM` and `SSD` stand for the two stores.
fn configure(world: &World, lines: &str) {
    let store = |name: &str| world.node("$SCR_NODE_NAME").join(name).display().to_string();
    let text = lines.replace("SHM", &store("shm")).replace("SSD", &store("ssd"));
    std::fs::write(world.prefix().join(".scrconf"), text).unwrap();
}

/// Eight hosts: two on each power supply, and on each switch.
const GROUPS: &str = "\
GROUPS=n0 POWER=psu1 SWITCH=0
GROUPS=n1 POWER=psu1 SWITCH=1
GROUPS=n2 POWER=psu2 SWITCH=0
GROUPS=n3 POWER=psu2 SWITCH=1
GROUPS=n4 POWER=psu3 SWITCH=2
GROUPS=n5 POWER=psu3 SWITCH=3
GROUPS=n6 POWER=psu4 SWITCH=2
GROUPS=n7 POWER=psu4 SWITCH=3
";

/// Three descriptors.
const THREE: &str = "\
SCR_COPY_TYPE=FILE
SCR_CACHE_BYPASS=0
STORE=SHM GROUP=NODE COUNT=1
STORE=SSD GROUP=NODE COUNT=3 FLUSH=PTHREAD
CKPT=0 INTERVAL=1 GROUP=NODE   STORE=SHM TYPE=XOR     SET_SIZE=16
CKPT=1 INTERVAL=4 GROUP=NODE   STORE=SSD TYPE=RS      SET_SIZE=8  SET_FAILURES=3 OUTPUT=1
CKPT=2 INTERVAL=8 GROUP=SWITCH STORE=SSD TYPE=PARTNER BYPASS=1
";

/// The record of a rank's part of a dataset, as a tree, wherever it lies.
fn filemap(world: &World, store: &str, id: u64, rank: Rank) -> Option<KvTree> {
    let node = world.node(&world.nodes[rank.index()]);
    let path = node.join(format!("{store}/user1/scr.defjobid/scr.dataset.{id}/.scr/filemap_{rank}"));
    path.exists().then(|| scrub::filemap(&RealFiles, &path).unwrap())
}

/// How a part is protected, by its record.
fn protection(tree: &KvTree) -> serde_json::Value {
    let record = tree.get("RECORD").unwrap().text("RANK_RECORD").unwrap();
    serde_json::from_str::<serde_json::Value>(record).unwrap()["protection"].take()
}

fn scheme(tree: &KvTree) -> String {
    protection(tree)["scheme"].as_str().unwrap().to_owned()
}

/// In which store a dataset is, by which scheme, and whether its files are only accounted for.
fn kept(world: &World, id: u64, rank: Rank) -> Vec<(&'static str, String, String)> {
    let of = |store: &'static str| {
        let tree = filemap(world, store, id, rank)?;
        let bypass = protection(&tree)["bypass"].as_bool().unwrap();
        Some((store, scheme(&tree), u8::from(bypass).to_string()))
    };
    ["shm", "ssd"].into_iter().filter_map(of).collect()
}

fn three() -> World {
    let world = World::new(8, 8).unset("SCR_CACHE_BYPASS");
    configure(&world, &format!("{GROUPS}{THREE}"));
    world
}

#[test]
fn each_of_sixteen_checkpoints_is_in_the_store_and_under_the_scheme_of_its_descriptor() {
    let world = three();
    world.run(|application| {
        for step in 1..=16 {
            application.checkpoint(step, uneven).unwrap();
            let wanted = match step {
                step if step % 8 == 0 => ("ssd", "PARTNER", "1"),
                step if step % 4 == 0 => ("ssd", "RS", "0"),
                _ => ("shm", "XOR", "0"),
            };
            let wanted = (wanted.0, wanted.1.to_owned(), wanted.2.to_owned());
            assert_eq!(kept(&world, step, application.rank), [wanted], "checkpoint {step}");
        }
        // Three in the one store, one in the other.
        let left: Vec<_> = (1..=16).filter(|&id| !kept(&world, id, application.rank).is_empty()).collect();
        assert_eq!(left, [8, 12, 15, 16]);
    });
}

#[test]
fn a_restart_takes_the_newest_of_all_stores_that_survives() {
    // The newest is protected by XOR: one node may go.
    let world = three();
    world.run(|application| (1..=15).for_each(|step| application.checkpoint(step, uneven).unwrap()));
    let kept = world.keep();
    world.lose("n3");
    world.run(|application| application.restart(uneven)).all_gave(&Some(15));
    // Two go: what is under RS comes back.
    world.put_back(&kept);
    world.lose("n3");
    world.lose("n6");
    world.run(|application| application.restart(uneven)).all_gave(&Some(12));
    // Four go: what bypassed the cache lies in the prefix directory.
    world.put_back(&kept);
    ["n0", "n3", "n5", "n6"].iter().for_each(|node| world.lose(node));
    world.run(|application| application.restart(uneven)).all_gave(&Some(8));
}

#[test]
fn a_restart_uses_datasets_in_cache_after_a_change_of_configuration() {
    let world = three();
    world.run(|application| (1..=13).for_each(|step| application.checkpoint(step, uneven).unwrap()));
    // Another scheme, other numbers, and neither of the two stores is there any more.
    let elsewhere = "SCR_COPY_TYPE=FILE\nSCR_CACHE_BYPASS=0\nSTORE=SHM/other GROUP=NODE COUNT=2\n\
                     STORE=SHM GROUP=NODE COUNT=1\nSTORE=SSD GROUP=NODE COUNT=3\n\
                     CKPT=0 GROUP=NODE STORE=SHM/other TYPE=PARTNER SET_SIZE=2\n";
    configure(&world, elsewhere);
    world.lose("n2");
    world.run(|application| {
        assert_eq!(application.restart(uneven), Some(13));
        application.checkpoint(14, uneven).unwrap();
        let wanted = ("shm/other", "PARTNER".to_owned());
        let tree = filemap(&world, wanted.0, 14, application.rank).unwrap();
        assert_eq!(scheme(&tree), wanted.1);
    });
    world.lose("n4");
    world.run(|application| application.restart(uneven)).all_gave(&Some(14));
    // The older one is still there for the scheme that it was written with.
    let wanted = "SCR_COPY_TYPE=FILE\nSCR_CACHE_BYPASS=0\nSTORE=SHM GROUP=NODE\nSTORE=SSD GROUP=NODE COUNT=3\nCKPT=0 STORE=SHM\n";
    configure(&world, wanted);
    world.run(|application| application.restart(uneven)).all_gave(&Some(13));
}

#[test]
fn output_goes_to_the_descriptor_that_is_marked_for_it() {
    let world = three();
    world.run(|application| {
        let flags = OutputFlags { checkpoint: false, output: true };
        application.session().start_output(Some(b"picture"), flags).unwrap();
        let found = kept(&world, 1, application.rank);
        assert_eq!(found, [("ssd", "RS".to_owned(), "0".to_owned())]);
        application.session().complete_output(true).unwrap();
    });
}

/// Eight ranks on the eight hosts, in sets whose members take their power from different supplies.
fn powered(type_and_more: &str) -> World {
    let world = World::new(8, 8).unset("SCR_CACHE_BYPASS");
    let ckpt = format!("CKPT=0 GROUP=POWER STORE=SHM TYPE={type_and_more}\n");
    configure(&world, &format!("{GROUPS}SCR_COPY_TYPE=FILE\nSCR_CACHE_BYPASS=0\nSTORE=SHM\n{ckpt}"));
    world
}

fn checkpoint_and_lose(world: &World, nodes: &[&str]) {
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    nodes.iter().for_each(|node| world.lose(node));
}

#[test]
fn a_whole_power_supply_may_fail_where_it_is_the_failure_group() {
    for supply in [["n0", "n1"], ["n2", "n3"], ["n4", "n5"], ["n6", "n7"]] {
        for scheme in ["XOR", "PARTNER", "RS SET_FAILURES=1"] {
            let world = powered(scheme);
            checkpoint_and_lose(&world, &supply);
            world.run(|application| application.restart(uneven)).all_gave(&Some(1));
        }
    }
    // By nodes alone, both would have been in one set.
    let world = powered("XOR");
    let lines = std::fs::read_to_string(world.prefix().join(".scrconf")).unwrap();
    std::fs::write(world.prefix().join(".scrconf"), lines.replace("GROUP=POWER", "GROUP=NODE")).unwrap();
    checkpoint_and_lose(&world, &["n0", "n1"]);
    world.run(|application| application.restart(uneven)).all_gave(&None);
}

/// Ranks without a partner in another rack had none on another node either, and a node took their checkpoint with it.
#[test]
fn with_too_few_racks_the_sets_are_made_of_nodes() {
    let lines =
        |racks: &str, ckpt: &str| format!("{racks}SCR_COPY_TYPE=FILE\nSTORE=SHM\nCKPT=0 {ckpt} STORE=SHM\n");
    let (one, most, two) = (
        "GROUPS=n[0-3] RACK=r1\n",
        "GROUPS=n[0-2] RACK=r1\nGROUPS=n3 RACK=r2\n",
        "GROUPS=n[0-1] RACK=r1\nGROUPS=n[2-3] RACK=r2\n",
    );
    let cases = [
        (one, "GROUP=RACK TYPE=XOR", 1),
        (one, "GROUP=RACK TYPE=PARTNER", 1),
        (one, "GROUP=RACK TYPE=RS SET_FAILURES=2", 2),
        (two, "GROUP=RACK TYPE=RS SET_FAILURES=2", 2),
        (two, "GROUP=RACK TYPE=PARTNER REPLICAS=2", 2),
        (most, "GROUP=RACK TYPE=XOR", 1),
        (one, "GROUP=WORLD TYPE=XOR", 1),
    ];
    for (racks, ckpt, survived) in cases {
        let world = World::new(4, 4);
        configure(&world, &lines(racks, ckpt));
        let run = world.run(|application| application.checkpoint(1, uneven).unwrap());
        let group = &ckpt[6..ckpt.find(" TYPE").unwrap()];
        run.line_with(&[
            "WARNING",
            &format!("the loss of a {group} with more nodes of a set than the scheme survives: "),
        ]);
        (0..survived).for_each(|node| world.lose(&format!("n{}", 2 - node)));
        // The sets of a checkpoint are those that it was written with.
        configure(&world, &lines(two, "GROUP=RACK TYPE=XOR"));
        let run = world.run(|application| {
            let found = application.restart(uneven);
            application.checkpoint(2, uneven).unwrap();
            found
        });
        run.all_gave(&Some(1));
        assert!(!run.has_line_with("the loss of a"), "{:?}", run.lines);
        configure(&world, &lines(racks, ckpt));
        world.lose("n0");
        world.lose("n1");
        world.run(|application| application.restart(uneven)).all_gave(&Some(2));
    }
}

#[test]
fn a_host_without_a_groups_line_ends_the_start_with_its_name() {
    let world = powered("XOR");
    let lines = std::fs::read_to_string(world.prefix().join(".scrconf")).unwrap();
    let without: String =
        lines.lines().filter(|line| !line.contains("=n5")).map(|line| format!("{line}\n")).collect();
    std::fs::write(world.prefix().join(".scrconf"), without).unwrap();
    let outcome = world.try_run(|application| application.map(drop).map_err(|error| error.to_string()));
    let error = outcome.ranks[0].clone().unwrap_err();
    assert!(error.contains("n5") && error.contains("add GROUPS=n5"), "{error}");
    outcome.all_gave(&Err(error));
}

#[test]
fn a_store_that_is_not_enabled_gets_no_folder_and_cannot_be_chosen() {
    let world = World::new(2, 2);
    configure(&world, "STORE=SSD ENABLED=0\n");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    assert!(!world.node("n0").join("ssd").exists());
    let world = world.set("SCR_COPY_TYPE", "FILE");
    configure(&world, "STORE=SSD ENABLED=0\nCKPT=0 STORE=SSD\n");
    let outcome = world.try_run(|application| application.map(drop).map_err(|error| error.to_string()));
    let error = outcome.ranks[0].clone().expect_err("there is no store to write to");
    assert!(error.contains(".scrconf:2: no CKPT descriptor in use has INTERVAL=1"), "{error}");
    outcome.all_gave(&Err(error));
}

#[test]
fn a_store_that_is_not_to_be_made_must_be_there() {
    let world = World::new(2, 2).set("SCR_COPY_TYPE", "FILE");
    configure(&world, "STORE=SSD MKDIR=0\nCKPT=0 STORE=SSD TYPE=XOR\n");
    std::fs::create_dir_all(world.node("n0").join("ssd")).unwrap();
    let outcome = world.try_run(|application| application.map(drop).map_err(|error| error.to_string()));
    let error = outcome.ranks[0].clone().expect_err("one node has no such folder");
    assert!(error.contains("n1") && error.contains("n1/ssd is not there, and MKDIR=0"), "{error}");
    outcome.all_gave(&Err(error));
    assert!(!world.node("n1").join("ssd").exists());
    std::fs::create_dir_all(world.node("n1").join("ssd")).unwrap();
    world.run(|application| {
        application.checkpoint(1, uneven).unwrap();
        assert!(filemap(&world, "ssd", 1, application.rank).is_some());
    });
    configure(&world, "STORE=SSD/new MKDIR=1\nCKPT=0 STORE=SSD/new TYPE=XOR\n");
    world.run(|application| application.checkpoint(2, uneven).unwrap());
    assert!(world.node("n0").join("ssd/new").is_dir());
}

#[test]
fn a_store_is_filled_no_further_than_its_configured_capacity() {
    // Something like 1000 bytes and as much of redundancy data for each dataset on each node.
    for (size, given_up) in [("4000", true), ("1MB", false)] {
        let world = World::new(2, 2).set("SCR_COPY_TYPE", "FILE");
        configure(&world, &format!("STORE=SSD COUNT=1 SIZE={size}\nCKPT=0 STORE=SSD TYPE=XOR\n"));
        let outcome = world.run(|application| {
            application.checkpoint(1, uneven).unwrap();
            application.write(2, uneven).unwrap();
            let kept = filemap(&world, "ssd", 1, application.rank).is_some();
            application.session().complete_output(true).unwrap();
            kept
        });
        outcome.all_gave(&!given_up);
        assert_eq!(outcome.has_line_with("as it has no room for both"), given_up, "SIZE={size}");
    }
}

/// Each rank expanded the variable for itself. Some flushed and others did not, and all waited for each other.
#[test]
fn a_variable_that_differs_from_rank_to_rank_gives_all_the_number_of_rank_0() {
    let mut world = World::new(3, 3).set("SCR_FLUSH", "$SCR_NODE_NAME");
    world.nodes = ["2", "1", "5"].map(str::to_owned).to_vec();
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, uneven).unwrap()));
    assert!(!world.prefix().join("ckpt.1").exists() && world.prefix().join("ckpt.2").exists());
}

#[test]
fn descriptors_that_differ_from_rank_to_rank_are_refused() {
    for line in [
        "STORE=SHM COUNT=$SCR_NODE_NAME",
        "CKPT=0 STORE=SHM TYPE=XOR\nCKPT=1 INTERVAL=$SCR_NODE_NAME STORE=SHM",
    ] {
        let mut world = World::new(3, 3).set("SCR_COPY_TYPE", "FILE");
        world.nodes = ["2", "3", "2"].map(str::to_owned).to_vec();
        configure(&world, &format!("STORE=SHM GROUP=NODE\n{line}\nCKPT=0 STORE=SHM TYPE=XOR\n"));
        let run = world.try_run(|started| started.err().map(|error| error.to_string()).unwrap_or_default());
        assert!(
            run.ranks
                .iter()
                .all(|error| error.contains("rank 1 differs from rank 0 in a STORE or CKPT line")),
            "{:?}",
            run.ranks
        );
    }
}

#[test]
fn ranks_of_a_node_with_a_folder_each_do_not_begin() {
    for setting in ["SCR_CACHE_BASE", "SCR_CNTL_BASE"] {
        let mut world = World::new(4, 2);
        world.put(setting, &world.node("$SCR_NODE_NAME").join("$RANK").display().to_string());
        let messages =
            world.try_run(|application| application.err().expect("it does not begin").to_string()).ranks;
        let folder = world.node("n0").join("1").display().to_string();
        let words = [setting, "rank 1 on n0", &folder, "rank 0 of the same node"];
        assert!(
            messages.iter().all(|messages| words.iter().all(|word| messages.contains(word))),
            "{messages:?}"
        );
    }
}

#[test]
fn machines_with_one_name_do_not_begin() {
    let mut world = World::new(4, 4);
    world.nodes = ["n0", "same", "same", "n3"].map(str::to_owned).to_vec();
    world.run(|application| application.finalize().expect("several ranks of one machine"));
    let elsewhere = FaultyFiles::new(RealFiles);
    elsewhere.pretend_machine("another");
    world.own_files.insert(Rank(2), Arc::new(elsewhere));
    let messages =
        world.try_run(|application| application.err().expect("it does not begin").to_string()).ranks;
    let words = ["rank 1 and rank 2", "\"same\"", "SCR_NODE_NAME"];
    assert!(messages.iter().all(|messages| words.iter().all(|word| messages.contains(word))), "{messages:?}");
    world.nodes[2] = "other".to_owned();
    world.run(|application| application.finalize().expect("each machine has a name of its own"));
}

/// The data went to `/dev/shm` or the current folder, or the run restarted from another checkpoint.
#[test]
fn a_place_that_cannot_be_used_is_not_replaced_by_another() {
    for (name, value) in [
        ("SCR_PREFIX", "/new\nline"),
        ("SCR_CACHE_BASE", "/not \u{fffd} UTF-8"),
        ("SCR_CNTL_BASE", "/new\nline"),
        // Each process had it in its own current folder.
        ("SCR_CACHE_BASE", "cache"),
        ("SCR_CNTL_BASE", "./control"),
        ("SCR_JOB_ID", "a/b"),
        ("SCR_USER_NAME", "a/b"),
        ("SCR_CURRENT", "new\nline"),
        ("SCR_CONF_FILE", "/there/is/no/such/file"),
        ("SCR_REQUIRE_RESTART", "maybe"),
        // As in a published script, outside of the batch job that sets it.
        ("SCR_CACHE_BASE", "$BB_DIR"),
        ("SCR_PREFIX", "${BB_DIR}"),
    ] {
        let world = World::new(2, 2).set(name, value);
        let run = world.try_run(|job| job.err().map(|error| error.to_string()));
        for error in &run.ranks {
            let error = error.as_deref().unwrap_or_else(|| panic!("{name}: no session begins"));
            assert!(error.contains("environment: ") && !error.contains("is ignored"), "{error}");
        }
        assert!(!world.node("n0").exists(), "{name}");
    }
    for line in [
        "SCR_CACHE_BASE=cache",
        "SCR_CACHE_BASE=\"/open",
        "SCR_CACHE_BASE=/two words",
        "SCR_CACHE_BASE=/a\u{1}b",
    ] {
        let world = World::new(2, 2).unset("SCR_CACHE_BASE");
        std::fs::write(world.prefix().join(".scrconf"), line).unwrap();
        let run = world.try_run(|job| job.err().map(|error| error.to_string()));
        let error = run.ranks[1].as_deref().unwrap_or_else(|| panic!("{line}: no session begins"));
        assert!(error.contains("/prefix/.scrconf:1: "), "{error}");
    }
}

/// An application may pass on a variable that is not always set.
#[test]
fn a_checkpoint_to_restart_from_may_be_a_variable_that_is_not_set() {
    let world = World::new(2, 2).set("SCR_CURRENT", "$RESTART_FROM");
    let run = world.run(|_| ());
    run.line_with(&[
        "WARNING",
        "SCR_CURRENT holds nothing but $RESTART_FROM, which is not set; it is ignored",
    ]);
}

/// With `SINGLE` in the shared store the run began anew after the loss of a node, and `COUNT` on a `CKPT` line kept it from
/// starting.
#[test]
fn a_shared_store_for_every_second_checkpoint_survives_a_node_as_in_a_published_file() {
    let world = World::new(4, 2).set("SCR_COPY_TYPE", "FILE");
    let (local, shared) = (world.node("$SCR_NODE_NAME"), world.dir().join("shared"));
    let (local, shared) = (local.display(), shared.display());
    let text = format!(
        "STORE={local}/tmp GROUP=NODE COUNT=1\nSTORE={local}/shm GROUP=NODE COUNT=2\nSTORE={shared} GROUP=WORLD COUNT=1\n\
         CKPT=0 INTERVAL=1 GROUP=NODE STORE={local}/shm TYPE=SINGLE COUNT=2\n\
         CKPT=1 INTERVAL=2 GROUP=WORLD STORE={shared} TYPE=SINGLE COUNT=1\n"
    );
    std::fs::write(world.prefix().join(".scrconf"), text).unwrap();
    let run = world.run(|application| (1..=5).for_each(|step| application.checkpoint(step, uneven).unwrap()));
    run.line_with(&["CKPT=1 has no key COUNT, did you mean COUNT on a STORE line?"]);
    world.lose("n1");
    world.run(|application| application.restart(uneven)).all_gave(&Some(4));
}

/// The store of a folder lies in that of another one, and the control directory in both.
#[test]
fn stores_in_folders_of_one_device_keep_weak_and_strong_checkpoints_apart() {
    let world = World::new(4, 4).set("SCR_COPY_TYPE", "FILE");
    let base = world.node("$SCR_NODE_NAME");
    let base = base.display();
    let text = format!(
        "STORE={base}/single COUNT=2\nSTORE={base}/xor COUNT=1\n\
         CKPT=0 INTERVAL=1 STORE={base}/single TYPE=SINGLE\nCKPT=1 INTERVAL=3 STORE={base}/xor TYPE=XOR\n"
    );
    std::fs::write(world.prefix().join(".scrconf"), &text).unwrap();
    let run = world.run(|application| (1..=5).for_each(|step| application.checkpoint(step, uneven).unwrap()));
    assert!(!run.has_line_with("WARNING"), "{:?}", run.lines);
    world.run(|application| application.restart(uneven)).all_gave(&Some(5));
    world.lose("n2");
    world.run(|application| application.restart(uneven)).all_gave(&Some(3));
    let (_, one) = text.split_once('\n').unwrap();
    std::fs::write(world.prefix().join(".scrconf"), one.replace("/single", "/xor")).unwrap();
    let said = "so the next one of CKPT=0 (SINGLE) evicts that of CKPT=1 (XOR), which survives the loss";
    world.try_run(|_| ()).line_with(&["WARNING", said]);
}
