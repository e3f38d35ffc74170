//! A scrub finds damage without a job, lists the files that it could not compare, and changes nothing.

use super::world::World;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_ops::scrub::{find_caches, Item, ItemKind, Plan, Report, Verdict};
use scr_test_kit::faulty::{Failure, FaultyFiles, What};
use std::path::{Path, PathBuf};

fn some(rank: Rank) -> Vec<usize> {
    vec![300 + rank.index(), 20]
}

fn caches(world: &World, node: &str) -> Vec<PathBuf> {
    find_caches(&RealFiles, &world.node(node)).expect("the node has stored something")
}

const EIO: i32 = 5;
const ENOMEM: i32 = 12;

/// `scr scrub` said that there was nothing to look at.
#[test]
fn a_folder_that_cannot_be_listed_now_is_not_taken_for_an_empty_one() {
    let world = World::new(2, 2);
    world.run(|application| application.checkpoint(1, some).unwrap());
    let whole = caches(&world, "n0");
    let listing = |at: u64, error: i32| {
        let files = FaultyFiles::new(RealFiles);
        files.only(|done, _| done == What::List);
        files.count_all();
        files.fail_once(at, Failure::Number(error));
        (find_caches(&files, &world.node("n0")), files.first_failed().is_some())
    };
    for error in [EIO, ENOMEM] {
        let outcomes = (1..).map(|at| listing(at, error)).take_while(|(_, has_failed)| *has_failed);
        assert!(outcomes.map(|(found, _)| assert!(found.is_err(), "{found:?}")).count() > 5, "{whole:?}");
    }
}

fn scrub_cache(world: &World, node: &str) -> Report {
    let caches = caches(world, node);
    assert_eq!(caches.len(), 1, "{caches:?}");
    let plan = Plan::of_cache(&RealFiles, &caches[0], None).expect("it can be listed");
    let (expected, mut read) = (plan.bytes(), 0);
    let report = plan.run(&RealFiles, &mut |bytes| read += bytes);
    assert!(!report.is_intact() || read == expected, "{read} of {expected} bytes");
    report
}

fn scrub_prefix(world: &World, wanted: Option<&str>) -> Report {
    let plan = Plan::of_prefix(&RealFiles, &world.prefix(), wanted).expect("it is a prefix directory");
    plan.run(&RealFiles, &mut |_| ())
}

fn wrong(report: &Report) -> Vec<(&Item, &str)> {
    let found = report.items().filter_map(|item| match &item.verdict {
        Verdict::Wrong { found, .. } => Some((item, found.as_str())),
        _ => None,
    });
    found.collect()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("it can be written");
}

/// A job with two ranks on each of two nodes that has flushed its second checkpoint.
fn job(settings: &[(&str, &str)]) -> World {
    let world = World::new(4, 2).set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "2");
    let world = settings.iter().fold(world, |world, (name, value)| world.set(name, value));
    world.run(|application| {
        application.checkpoint(1, some).expect("the first is complete");
        application.checkpoint(2, some).expect("the second is complete");
    });
    world
}

#[test]
fn a_sound_cache_is_read_in_full_and_left_as_it_is() {
    let world = job(&[]);
    let kept = world.keep();
    let report = scrub_cache(&world, "n1");
    assert!(report.items().all(|item| item.verdict == Verdict::Intact), "{report:?}");
    let names: Vec<_> = report
        .datasets
        .iter()
        .map(|dataset| (dataset.id, dataset.name.as_str(), dataset.state.as_str()))
        .collect();
    assert_eq!(names, [(1, "ckpt.1", "complete"), (2, "ckpt.2", "complete")]);
    // Each dataset has two ranks, each with a filemap, a redundancy file and two files.
    assert_eq!(report.items().count(), 16);
    assert_eq!(world.changes_since(&kept), Vec::<String>::new());
}

#[test]
fn every_kind_of_damage_in_a_cache_is_named_with_its_file_and_rank() {
    type Damage = fn(&Path);
    let flip: Damage = |path| change(path, |bytes| bytes[10] ^= 2);
    let cut: Damage = |path| change(path, |bytes| bytes.truncate(7));
    let remove: Damage = |path| std::fs::remove_file(path).expect("it was there");
    let cases = [
        ("/r2/", flip, ItemKind::Data, "checksum"),
        ("/r3/", cut, ItemKind::Data, "has 7 bytes where"),
        ("/r3/", remove, ItemKind::Data, "is missing"),
        ("redundancy_3", flip, ItemKind::Redundancy, "checksum"),
        ("redundancy_2", cut, ItemKind::Redundancy, "has 7 bytes where"),
        ("filemap_2", flip, ItemKind::Filemap, "is damaged"),
    ];
    let world = job(&[]);
    let kept = world.keep();
    for (name, damage, kind, words) in cases {
        let path = world.cached_file(&["scr.dataset.1", name]);
        damage(&path);
        let report = scrub_cache(&world, "n1");
        let found = wrong(&report);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        let (item, text) = found[0];
        assert_eq!((item.kind, &item.path), (kind, &path));
        assert!(text.contains(words) && text.contains(&path.display().to_string()), "{text}");
        assert!(item.rank.is_some_and(|rank| name.contains(&rank.to_string())), "{item:?}");
        assert!(scrub_cache(&world, "n0").is_intact(), "the other node has nothing to do with it");
        world.put_back(&kept);
    }
}

#[test]
fn a_cache_without_checksums_is_unverified_and_says_so() {
    let world = job(&[("SCR_COPY_TYPE", "SINGLE"), ("SCR_CRC_ON_FLUSH", "0")]);
    let report = scrub_cache(&world, "n0");
    assert!(report.is_intact());
    let data: Vec<_> = report.items().filter(|item| item.kind == ItemKind::Data).collect();
    assert_eq!(data.len(), 8);
    assert!(data.iter().all(|item| matches!(item.verdict, Verdict::Unverified { .. })), "{data:?}");
}

#[test]
fn an_unfinished_dataset_of_a_dead_run_is_not_reported_as_damaged() {
    let world = World::new(2, 2);
    world.run(|application| application.write(1, some).expect("it is being written"));
    let report = scrub_cache(&world, "n1");
    assert!(report.is_intact());
    assert_eq!(report.datasets[0].state, "being written");
    assert!(report.items().all(|item| matches!(item.verdict, Verdict::Unverified { .. })), "{report:?}");
}

#[test]
fn a_prefix_directory_is_checked_file_by_file() {
    let world = job(&[]);
    let report = scrub_prefix(&world, None);
    assert!(report.items().all(|item| item.verdict == Verdict::Intact), "{report:?}");
    // A summary, the lists, and two files of each rank.
    assert_eq!(report.items().count(), 10);

    let file = world.prefix().join("ckpt.2/rank_3.1");
    change(&file, |bytes| bytes[0] ^= 1);
    let report = scrub_prefix(&world, Some("ckpt.2"));
    let found = wrong(&report);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].0.rank, &found[0].0.path), (Some(3), &file));
    assert!(found[0].1.contains("checksum"), "{found:?}");
}

#[test]
fn damaged_records_of_a_prefix_directory_are_found_too() {
    let world = job(&[]);
    let hidden = world.prefix().join(".scr");
    let cases = [
        (hidden.join("scr.dataset.2/summary.scr"), ItemKind::Summary),
        (hidden.join("scr.dataset.2/rank2file"), ItemKind::FileList),
        (hidden.join("index.scr"), ItemKind::Index),
    ];
    for (path, kind) in cases {
        let before = std::fs::read(&path).expect("it is there");
        change(&path, |bytes| bytes[30] ^= 1);
        let report = scrub_prefix(&world, None);
        let found = wrong(&report);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0.kind, kind);
        assert!(found[0].1.contains(&path.display().to_string()), "{found:?}");
        std::fs::write(&path, before).expect("it can be written");
    }
    assert!(scrub_prefix(&world, None).is_intact());
}

#[test]
fn a_dataset_is_found_by_name_and_by_number_and_another_is_not_there() {
    let world = job(&[]);
    let count = |wanted: &str| scrub_prefix(&world, Some(wanted)).datasets.len();
    assert_eq!((count("ckpt.2"), count("2"), count("ckpt.1"), count("7")), (1, 1, 0, 0));
}
