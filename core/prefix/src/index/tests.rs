//! The index is read and written as C SCR does, and each rule of it holds.

use super::*;
use crate::fixtures::{damage, scratch, scratch_copy, tree, ChangeIndex, JOBS};
use crate::ledger::{decide, Dropping, Event, Facts, Ledger, Request, Verdict};
use scr_base::fs::RealFiles;
use scr_test_kit::faulty::{given_up, FaultyFiles, What};
use std::fs;
use std::io;

const TIME: &str = "2026-11-21T03:28:25";

fn dataset(id: u64, name: &str) -> DatasetDescriptor {
    DatasetDescriptor {
        id,
        name: name.as_bytes().to_vec(),
        checkpoint: true,
        checkpoint_id: Some(id),
        ..DatasetDescriptor::default()
    }
}

fn index(names: &[(u64, &str)]) -> Index {
    let mut index = Index::new();
    for &(id, name) in names {
        index.record(&dataset(id, name), true);
    }
    index
}

/// The ids of the checkpoints that leave.
fn drop_checkpoints_after(index: &mut Index, seq: Seq) -> Vec<u64> {
    let mut ledger = Ledger::default();
    ledger.index = std::mem::take(index);
    let request = Request::Drop { which: Dropping::CheckpointsAfter(seq), run: 0 };
    let Verdict::Commit(events) = decide(&ledger, &Facts::default(), &request) else { panic!("it may") };
    events.iter().for_each(|event| ledger.apply(event));
    *index = ledger.index;
    let left = events.iter().filter_map(|event| if let Event::Left(id) = event { Some(*id) } else { None });
    left.collect()
}

fn listed(entries: &[IndexEntry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id).collect()
}

#[test]
fn the_index_of_c_scr_lists_its_datasets_newest_first() {
    for (job, datasets) in JOBS {
        let (_dir, prefix) = scratch_copy(job);
        let index = Index::read(&RealFiles, &prefix).unwrap();
        let newest_first: Vec<u64> = datasets.iter().rev().copied().collect();
        assert_eq!(listed(&index.entries()), newest_first);
        assert_eq!(listed(&index.candidates()), newest_first);
        assert_eq!((index.current(), index.highest_id()), (Some(&b"ckpt.4"[..]), Some(4)));
        let newest = &index.entries()[0];
        assert!(newest.is_valid() && newest.current && newest.fetched.is_empty());
        assert_eq!((newest.name.as_slice(), newest.failed.as_deref()), (&b"ckpt.4"[..], None));
        assert!(newest.flushed.as_deref().unwrap().starts_with("2026-11-21T03:28:2"));
        assert_eq!(newest.dataset.as_ref().unwrap().bytes, Some(8226));
    }
}

#[test]
fn recording_again_what_c_scr_recorded_changes_nothing() {
    for (job, _) in JOBS {
        let (_dir, prefix) = scratch_copy(job);
        let before = fs::read(prefix.index_file()).unwrap();
        let mut index = Index::read(&RealFiles, &prefix).unwrap();
        for entry in index.entries() {
            index.record(entry.dataset.as_ref().unwrap(), true);
            index.mark_flushed(entry.id, entry.flushed.as_deref().unwrap());
        }
        index.set_current("ckpt.4");
        fs::remove_file(prefix.index_file()).unwrap();
        Index::update(&RealFiles, &prefix, |written| *written = index).unwrap();
        assert_eq!(fs::read(prefix.index_file()).unwrap(), before);
    }
}

#[test]
fn a_dataset_of_ours_has_the_keys_of_one_of_c_scrs() {
    let (_dir, prefix) = scratch_copy("xor-flush2");
    let theirs = tree(prefix.index_file());
    let mut index = Index::new();
    for id in [4, 2] {
        let entry = Index::read(&RealFiles, &prefix).unwrap().entry(id).unwrap();
        index.record(entry.dataset.as_ref().unwrap(), true);
        index.mark_flushed(id, entry.flushed.as_deref().unwrap());
    }
    index.set_current("ckpt.4");
    assert_eq!(index.tree(), &theirs);
}

#[test]
fn a_dataset_that_was_flushed_anew_has_not_failed_any_more() {
    let (_dir, prefix) = scratch_copy("bypass");
    let mut index = Index::read(&RealFiles, &prefix).unwrap();
    index.mark_failed(2, "now");
    assert!(!index.entry(2).unwrap().is_valid());
    index.mark_flushed(2, "later");
    assert!(index.entry(2).unwrap().is_valid());
}

#[test]
fn newer_candidates_are_those_that_a_job_may_restart_from_after_a_place() {
    let mut index = index(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]);
    index.mark_failed(5, TIME);
    index.set_complete(3, false);
    let newer_than = |id| index.newer_candidates(Seq { run: 0, id });
    assert_eq!(listed(&newer_than(1)), [4, 2]);
    assert_eq!(listed(&newer_than(2)), [4]);
    assert!(newer_than(4).is_empty());
}

/// An index that says all that the marks would say is not written again by each run.
#[test]
fn an_index_wants_marks_until_it_has_them() {
    let (own, other) =
        (PrefixId::parse(&"0af1".repeat(8)).unwrap(), PrefixId::parse(&"1af0".repeat(8)).unwrap());
    assert!(!Index::new().wants_mark(&own, 3), "without datasets");
    let mut index = index(&[(1, "a"), (2, "b")]);
    for last in [0, 3] {
        assert!(index.wants_mark(&own, last));
        index.mark(&own, last);
        assert!(!index.wants_mark(&own, last) && index.wants_mark(&other, last));
    }
}

#[test]
fn keys_of_other_writers_survive_a_change() {
    let (_dir, prefix) = scratch_copy("bypass");
    damage(prefix.index_file(), |tree| {
        tree.set("LATER", "kept");
        tree.entry("DSET", 2).set("LATER", "kept too");
        tree.entry("DSET", 2).child("DSET").set("LATER", "and this");
    });
    Index::update(&RealFiles, &prefix, |index| {
        let entry = index.entry(2).unwrap();
        index.record(entry.dataset.as_ref().unwrap(), false);
        index.mark_failed(2, TIME);
    })
    .unwrap();
    let tree = tree(prefix.index_file());
    let entry = tree.find("DSET", 2).unwrap();
    assert_eq!((tree.text("LATER"), entry.text("LATER")), (Some("kept"), Some("kept too")));
    assert_eq!(entry.get("DSET").unwrap().text("LATER"), Some("and this"));
    assert_eq!((entry.text("COMPLETE"), entry.text("FAILED")), (Some("0"), Some(TIME)));
}

#[test]
fn a_failed_or_incomplete_dataset_and_plain_output_are_passed_over() {
    let mut index = index(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    index.mark_failed(4, TIME);
    index.set_complete(3, false);
    index.record(&DatasetDescriptor { checkpoint: false, output: true, ..dataset(2, "b") }, true);
    assert_eq!(listed(&index.candidates()), [1]);
    assert_eq!(listed(&index.entries()), [4, 3, 2, 1]);
    assert!(index.entry(2).unwrap().is_valid());
}

#[test]
fn a_failed_dataset_is_current_no_more() {
    let mut index = index(&[(1, "a"), (2, "b")]);
    index.set_current("b");
    index.mark_failed(1, TIME);
    assert_eq!(index.current(), Some(&b"b"[..]));
    index.mark_failed(2, TIME);
    assert_eq!(index.current(), None);
}

#[test]
fn every_fetch_is_remembered() {
    let mut index = index(&[(1, "a")]);
    index.apply(&Event::Fetched { id: 1, at: "2026-11-21T03:28:25".to_owned() });
    index.apply(&Event::Fetched { id: 1, at: "2026-11-22T03:28:25".to_owned() });
    assert_eq!(index.entry(1).unwrap().fetched, ["2026-11-21T03:28:25", "2026-11-22T03:28:25"]);
}

#[test]
fn a_name_that_is_used_again_belongs_to_the_newer_dataset() {
    let mut index = index(&[(1, "a"), (2, "b")]);
    index.set_current("a");
    index.record(&dataset(7, "a"), false);
    assert_eq!((index.id_of("a"), index.others_named("a", 7)), (Some(7), vec![1]));
    assert!(index.entry(1).unwrap().superseded);
    assert_eq!(index.entry(1).map(|entry| entry.complete), Some(false), "C SCR looks at nothing else");
    assert_eq!(listed(&index.candidates()), [2]);
    index.record(&dataset(7, "a"), true);
    assert_eq!((listed(&index.entries()), index.current()), (vec![7, 2], Some(&b"a"[..])));
    assert_eq!(index.id_of("a"), Some(7));
}

/// The entry of one that was begun in vain left the index, and nothing said any more that older ones may have lost files to it.
#[test]
fn what_was_begun_and_never_complete_stays_known_without_its_entry() {
    type Leave = fn(&mut Index);
    let ways: [(Leave, &[u64]); 4] = [
        (|index| _ = index.drop_name("b"), &[1]),
        (|index| _ = index.drop_id(3), &[2, 1]),
        (|index| _ = drop_checkpoints_after(index, Seq { run: 0, id: 2 }), &[2, 1]),
        (|index| index.record(&dataset(4, "b"), true), &[4, 1]),
    ];
    for (leave, left) in ways {
        let mut index = index(&[(1, "a"), (2, "b")]);
        index.mark_flushed(2, TIME);
        index.record(&dataset(3, "b"), false);
        leave(&mut index);
        assert_eq!(listed(&index.entries()), left);
        assert_eq!(index.last_begun(), Some(Seq { run: 0, id: 3 }), "{left:?}");
        index.mark(&PrefixId::parse(&"0".repeat(32)).unwrap(), 5);
        assert_eq!(index.last_begun(), Some(Seq { run: 5, id: 3 }), "as run 5 counts for what was there");
        index.record(&DatasetDescriptor { run: 6, ..dataset(7, "c") }, false);
        index.drop_name("c");
        assert_eq!(index.last_begun(), Some(Seq { run: 6, id: 7 }));
        // No run has recorded the names of these, as with C SCR; scr has recorded those of the next one.
        assert_eq!(index.last_begun_unrecorded(), Some(Seq { run: 6, id: 7 }));
        let of_scr = DatasetDescriptor { run: 7, ranks: Some(4), ..dataset(8, "d") };
        index.record(&of_scr, false);
        assert_eq!(index.last_begun_unrecorded(), Some(Seq { run: 6, id: 7 }));
        index.drop_name("d");
        let begun = [index.last_begun_unrecorded(), index.last_begun()];
        assert_eq!(begun, [Some(Seq { run: 6, id: 7 }), Some(Seq { run: 7, id: 8 })]);
    }
}

/// One that was complete has given up its files to a newer one, and is not taken for one that may have replaced others.
#[test]
fn a_dataset_that_was_complete_leaves_nothing_when_it_goes() {
    let mut index = index(&[(1, "a"), (2, "b")]);
    index.mark_flushed(2, TIME);
    index.set_complete(2, false);
    index.drop_id(2);
    assert_eq!(index.last_begun(), None);
}

/// The number of a closer had a key of its own in earlier indexes.
#[test]
fn a_closer_is_known_as_long_as_the_names_are_taken_by_its_flush() {
    let mut index = index(&[(1, "a")]);
    let (by, other) = (By::Flush("1.a".to_owned()), By::Flush("1.b".to_owned()));
    let took =
        |closer: Option<&str>| Event::Took { id: 1, by: by.clone(), closer: closer.map(str::to_owned) };
    for closer in [None, Some("7"), Some("8"), None] {
        index.apply(&took(closer));
        assert_eq!((index.closer(1, &by), index.closer(1, &other)), (closer, None));
        assert_eq!(index.entry(1).unwrap().taken, Some(by.clone()));
    }
    index.apply(&took(Some("7")));
    index.apply(&Event::Released(1));
    assert_eq!((index.closer(1, &by), index.entry(1).unwrap().taken), (None, None));
    index.apply(&took(None));
    index.tree.entry("DSET", 1).set("CLOSER", 7);
    assert_eq!((index.closer(1, &by), index.progress(&dataset(1, "a"), &by)), (None, FlushProgress::Taken));
}

#[test]
fn datasets_are_ordered_by_run_and_then_by_id() {
    let mut index = Index::new();
    let of_run = |id, run| DatasetDescriptor { run, ..dataset(id, &format!("{id}")) };
    for (id, run) in [(1, 0), (2, 2), (3, 0), (4, 1), (5, 0)] {
        index.record(&of_run(id, run), true);
    }
    let runs: Vec<_> = index.entries().iter().map(|entry| (entry.id, entry.run)).collect();
    assert_eq!(runs, [(5, 2), (3, 2), (2, 2), (4, 1), (1, 0)]);
    assert!(index.entries().iter().all(|entry| index.entry(entry.id).as_ref() == Some(entry)));
    assert_eq!(drop_checkpoints_after(&mut index, Seq { run: 1, id: 4 }), [2, 3, 5]);
}

/// Both were listed as the current one, and the damage of the older one took that from the newer one.
#[test]
fn of_two_datasets_with_one_name_the_present_holder_is_current() {
    let mut index = index(&[(1, "a")]);
    index.set_current("a");
    index.record(&dataset(7, "a"), false);
    assert_eq!([1, 7].map(|id| index.entry(id).unwrap().current), [false, true]);
    index.mark_failed(1, TIME);
    assert_eq!(index.current(), Some(&b"a"[..]));
}

#[test]
fn a_name_that_is_dropped_takes_all_its_datasets_along() {
    let mut index = index(&[(1, "a"), (2, "b")]);
    index.record(&dataset(7, "a"), false);
    index.set_current("a");
    assert_eq!(index.drop_name("a"), [1, 7]);
    assert_eq!((listed(&index.entries()), index.current(), index.id_of("a")), (vec![2], None, None));
    assert!(index.drop_name("a").is_empty());
    assert!(!index.set_current("a"));
}

#[test]
fn checkpoints_after_one_are_dropped_and_output_stays() {
    let mut index = index(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    index.record(&DatasetDescriptor { checkpoint: false, output: true, ..dataset(3, "c") }, true);
    assert_eq!(drop_checkpoints_after(&mut index, Seq { run: 0, id: 1 }), [2, 4]);
    assert_eq!(listed(&index.entries()), [3, 1]);
}

#[test]
fn names_may_be_any_bytes() {
    let mut index = Index::new();
    let odd = DatasetDescriptor { name: b"a b\n\xff/\x01".to_vec(), ..dataset(1, "") };
    index.record(&odd, true);
    assert!(index.set_current(&odd.name));
    let read = KvTree::unpack(&index.tree().pack()).unwrap();
    let read = Index::from_tree(read, Path::new("index.scr")).unwrap();
    assert_eq!(read.entry(1).unwrap().dataset, Some(odd));
    assert!(read.entry(1).unwrap().current);
}

#[test]
fn an_index_of_another_version_or_without_one_is_refused() {
    let (_dir, prefix) = scratch_copy("bypass");
    damage(prefix.index_file(), |tree| tree.set("VERSION", 3));
    let error = Index::read(&RealFiles, &prefix).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "index.scr was written by another release of scr (format version 3, and this one reads 2)"
        ),
        "{error}"
    );
    damage(prefix.index_file(), |tree| drop(tree.remove("VERSION")));
    assert!(matches!(Index::read(&RealFiles, &prefix), Err(PrefixError::Fs(FsError::Field { .. }))));
}

#[test]
fn a_damaged_file_is_an_error_and_no_file_is_an_empty_index() {
    let (_dir, prefix) = scratch();
    assert_eq!(Index::read(&RealFiles, &prefix).unwrap(), Index::new());
    for bytes in [&b""[..], b"not an index", &Index::new().tree().to_file_bytes()[..21]] {
        fs::write(prefix.index_file(), bytes).unwrap();
        let error = Index::read(&RealFiles, &prefix).unwrap_err();
        assert!(error.is_damage(), "{error}");
    }
}

#[test]
fn entries_that_make_no_sense_are_passed_over_and_kept() {
    let (_dir, prefix) = scratch_copy("bypass");
    damage(prefix.index_file(), |tree| {
        tree.entry("DSET", "x").set("COMPLETE", 1);
        tree.entry("DSET", "-3").set("COMPLETE", 1);
        tree.entry("DSET", "004").set("COMPLETE", 1);
        tree.entry("DSET", "99").set("COMPLETE", 1);
        tree.entry("DSET", 2).set("COMPLETE", "maybe");
        tree.entry("DSET", 3).child("DSET").set("SIZE", "huge");
        tree.child("NAME").child("dangling").set("DSET", "x");
    });
    let index = Index::read(&RealFiles, &prefix).unwrap();
    assert_eq!(listed(&index.entries()), [4, 3, 2, 1]);
    assert_eq!(listed(&index.candidates()), [4, 3, 1]);
    assert_eq!(index.entry(3).unwrap().dataset, None);
    assert_eq!(index.highest_id(), Some(99), "an id is not used again");
    assert_eq!(index.id_of("dangling"), None);
    assert!(index.tree().find("DSET", "x").is_some());
}

#[test]
fn an_update_that_changes_nothing_writes_nothing_and_one_that_fails_keeps_the_old() {
    let (_dir, prefix) = scratch_copy("bypass");
    let files = FaultyFiles::new(RealFiles);
    files.only_below(prefix.index_file());
    let change_nothing = || Index::update(&files, &prefix, |index| index.set_current("ckpt.4")).unwrap();
    change_nothing();
    // From here on this process knows that it is safe.
    let known = files.mutations();
    change_nothing();
    assert_eq!(files.mutations(), known);
    files.heal();
    let before = fs::read(prefix.index_file()).unwrap();
    files.fail_from(1, io::ErrorKind::StorageFull);
    assert!(Index::update(&files, &prefix, |index| index.drop_name("ckpt.4")).is_err());
    assert_eq!(fs::read(prefix.index_file()).unwrap(), before);
}

/// The change was there already the second time, and was not written again.
#[test]
fn a_change_that_could_not_be_synced_is_written_again() {
    let mut failed = 0;
    for at in 1.. {
        let (_dir, prefix) = scratch();
        Index::update(&RealFiles, &prefix, |index| index.record(&dataset(1, "a"), true)).unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.fail_once(at, io::ErrorKind::Other);
        let drop = |prefix: &Prefix| Index::update(&files, prefix, |index| _ = index.drop_name("a"));
        let dropped = drop(&prefix);
        let Some(fault) = files.first_failed() else { break };
        if fault.what != What::SyncDir {
            continue;
        }
        failed += 1;
        assert!(dropped.is_err() && Index::read(&RealFiles, &prefix).unwrap().id_of("a").is_none());
        // Another process, and then the same one.
        for prefix in [&Prefix::new(prefix.dir()), &prefix] {
            drop(prefix).unwrap();
            assert_eq!(given_up([], &files.operations()), [].into());
        }
    }
    assert_eq!(failed, 1);
}
