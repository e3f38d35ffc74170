//! Which prefix directory this is, which numbers are taken in it, and what is withdrawn.

use super::super::decide::decide;
use super::super::{By, Dropping, Facts, Ledger, LedgerDir, MakeCurrent, Request, Verdict};
use crate::fixtures::{let_look_dead, scratch, scratch_copy, ChangeIndex as _};
use crate::{
    Between, DatasetDescriptor, Index, Prefix, PrefixId, RunId, Seq, Withdrawal, Withdrawn, MOST_BETWEEN,
    MOST_WITHDRAWN,
};
use scr_base::fs::RealFiles;
use scr_plugin_api::KvTree;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What it means for a checkpoint that is no output that somebody has gone back over it.
const OVER: Option<Withdrawal> = Some(Withdrawal::Removed);

fn begin(prefix: &Prefix, seen: u64) -> RunId {
    LedgerDir::new(&RealFiles, prefix).begin_run(seen).unwrap().0
}

#[test]
fn runs_and_ids_only_count_up_and_the_prefix_directory_stays_the_same() {
    let (_dir, prefix) = scratch();
    let first = begin(&prefix, 0);
    assert_eq!((first.number, first.is_counted), (1, true));
    assert_eq!(PrefixId::read(&RealFiles, &prefix).unwrap(), first.prefix);
    assert_eq!(LedgerDir::new(&RealFiles, &prefix).reserve(1, 10).unwrap(), 1);
    assert_eq!(LedgerDir::new(&RealFiles, &prefix).reserve(5, 10).unwrap(), 11);
    assert_eq!(LedgerDir::new(&RealFiles, &prefix).reserve(30, 10).unwrap(), 30);
    LedgerDir::new(&RealFiles, &prefix).transact(&Request::GiveBack { next: 32, end: 40 }).unwrap();
    LedgerDir::new(&RealFiles, &prefix).transact(&Request::GiveBack { next: 12, end: 21 }).unwrap();
    assert_eq!(LedgerDir::new(&RealFiles, &prefix).reserve(1, 1).unwrap(), 32);
    assert_eq!(begin(&prefix, 0), RunId { number: 2, ..first.clone() });
    assert_eq!(begin(&prefix, 9).number, 10);
    let (_other, other) = scratch();
    assert_ne!(begin(&other, 0).prefix, first.prefix);
}

#[test]
fn restarts_from_one_checkpoint_are_counted_until_one_is_written_and_each_run_knows_them() {
    let (_dir, prefix) = scratch();
    begin(&prefix, 0);
    let ledger = LedgerDir::new(&RealFiles, &prefix);
    let counted = |id, name: &str| ledger.numbers().unwrap().attempts(id, name.as_bytes());
    let count = |of| ledger.transact(&Request::Attempt(of)).unwrap();
    assert_eq!(counted(3, "a"), 0);
    for attempts in 1..=2 {
        count(Some((3, b"a")));
        begin(&prefix, 0);
        assert_eq!((counted(3, "a"), counted(4, "a"), counted(3, "b")), (attempts, 0, 0));
    }
    count(Some((4, b"a")));
    assert_eq!((counted(3, "a"), counted(4, "a")), (0, 1));
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Read && path.ends_with("ids.scr"));
    files.count_all();
    files.never_pause();
    files.fail_from(1, ErrorKind::TimedOut);
    assert!(LedgerDir::new(&files, &prefix).transact(&Request::Attempt(Some((4, b"a")))).is_err());
    files.fail_once(1, ErrorKind::TimedOut);
    LedgerDir::new(&files, &prefix).transact(&Request::Attempt(Some((4, b"a")))).unwrap();
    assert_eq!(counted(4, "a"), 2);
    count(None);
    assert_eq!(counted(4, "a"), 0);
    // A damaged file is begun anew by a run, and by nobody else.
    std::fs::write(prefix.scr_file("ids.scr"), "x").unwrap();
    assert!(ledger.transact(&Request::Attempt(Some((4, b"a")))).unwrap_err().is_damage());
    assert_eq!(counted(4, "a"), 0);
    begin(&prefix, 0);
    count(Some((4, b"a")));
    assert_eq!(counted(4, "a"), 1);
}

/// It went on with ids that it had read before, and replaced datasets of the other process.
#[test]
fn a_process_that_was_stopped_while_it_reserved_ids_gets_none_of_another_one() {
    for at in 1.. {
        let (_dir, prefix) = scratch();
        let files = FaultyFiles::new(RealFiles);
        files.never_pause();
        let (other, lock) = (prefix.clone(), prefix.scr_file("index.lock"));
        let theirs = Arc::new(AtomicU64::new(1000));
        let first_of_theirs = Arc::clone(&theirs);
        files.interrupt_at(at, move || {
            let_look_dead(&lock);
            let first = LedgerDir::new(&RealFiles, &other).reserve(1, 10).unwrap();
            first_of_theirs.store(first, Ordering::SeqCst);
        });
        let ours = LedgerDir::new(&files, &prefix).reserve(1, 10).unwrap();
        let theirs = theirs.load(Ordering::SeqCst);
        assert!(theirs.abs_diff(ours) >= 10, "at {at}: {ours} and {theirs}");
        if !files.was_interrupted() {
            assert!(at > 5, "nothing was interrupted");
            break;
        }
    }
}

/// The run did not begin, though it only had to try again.
#[test]
fn a_process_that_was_stopped_while_its_run_began_gives_it_a_number_of_its_own() {
    for at in 1.. {
        let (_dir, prefix) = scratch();
        let dataset = DatasetDescriptor { id: 4, name: b"a".to_vec(), ..Default::default() };
        Index::update(&RealFiles, &prefix, |index| index.record(&dataset, true)).unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.never_pause();
        let (other, lock) = (prefix.clone(), prefix.scr_file("index.lock"));
        let theirs = Arc::new(AtomicU64::new(0));
        let number_of_theirs = Arc::clone(&theirs);
        files.interrupt_at(at, move || {
            let_look_dead(&lock);
            number_of_theirs.store(begin(&other, 0).number, Ordering::SeqCst);
        });
        let ours = LedgerDir::new(&files, &prefix).begin_run(0).unwrap().0.number;
        assert_ne!(ours, theirs.load(Ordering::SeqCst), "at {at}");
        if !files.was_interrupted() {
            assert!(at > 10, "nothing was interrupted");
            break;
        }
    }
}

#[test]
fn a_lost_or_damaged_counter_starts_above_the_index_with_the_id_of_the_index() {
    let (_dir, prefix) = scratch();
    let run = begin(&prefix, 0);
    let dataset = DatasetDescriptor { id: 4, run: 7, name: b"a".to_vec(), ..Default::default() };
    Index::update(&RealFiles, &prefix, |index| index.record(&dataset, true)).unwrap();
    begin(&prefix, 0);
    let path = prefix.scr_file("ids.scr");
    for damaged in [None, Some("x"), Some("")] {
        std::fs::remove_file(&path).unwrap();
        damaged.iter().for_each(|text| std::fs::write(&path, text).unwrap());
        let (again, damage) = LedgerDir::new(&RealFiles, &prefix).begin_run(0).unwrap();
        assert_eq!(again, RunId { number: 8, ..run.clone() }, "{damaged:?}");
        assert!(damage.is_some(), "{damaged:?}");
    }
    // A file of a later release is not replaced.
    let mut tree = KvTree::from_file_bytes(&std::fs::read(&path).unwrap()).unwrap();
    tree.set("VERSION", 2);
    std::fs::write(&path, tree.to_file_bytes()).unwrap();
    assert!(LedgerDir::new(&RealFiles, &prefix).begin_run(0).is_err());
    assert!(PrefixId::read(&RealFiles, &prefix).is_err());
}

#[test]
fn what_is_withdrawn_stays_so_and_takes_a_limited_room() {
    let (_dir, prefix) = scratch();
    begin(&prefix, 1);
    let record = |seqs: &[Seq], why| {
        let ledger = LedgerDir::new(&RealFiles, &prefix);
        if why == Withdrawal::Removed {
            ledger.transact(&Request::Withdraw { seqs, which: None, alone: None, before: None }).unwrap();
            return;
        }
        for &seq in seqs {
            ledger.transact(&Request::Refuse { seq, is_listed: false, alone: None, now: "" }).unwrap();
        }
    };
    let withdrawn = || LedgerDir::new(&RealFiles, &prefix).load().unwrap().withdrawn();
    let why = |seq| withdrawn().why(seq, b"", OVER);
    let (own, earlier) = (Seq { run: 2, id: 1 }, Seq { run: 1, id: 1 });
    record(&[earlier], Withdrawal::Refused);
    assert_eq!((why(own), why(earlier)), (None, Some(Withdrawal::Refused)));
    record(&[own, earlier], Withdrawal::Removed);
    assert_eq!([why(own), why(earlier)], [Some(Withdrawal::Removed); 2]);
    let many: Vec<Seq> = (0..5000).map(|place| Seq { run: 3 + place / 100, id: 2 * place }).collect();
    many.chunks(500).for_each(|some| record(some, Withdrawal::Removed));
    let all = withdrawn();
    assert!(Withdrawn::named(&all.0).len() <= MOST_WITHDRAWN);
    assert!(many.iter().chain([&own, &earlier]).all(|seq| all.why(*seq, b"", OVER).is_some()));
    let newest = Seq { run: 52, id: 9997 };
    assert_eq!(all.why(newest, b"", OVER), None, "it was not withdrawn, and few are newer");
    assert_eq!(
        all.why(Seq { run: 3, id: 7 }, b"", OVER),
        Some(Withdrawal::Refused),
        "it is older than what is forgotten"
    );
}

/// Of those that lie on nodes that are away nobody may know the place.
#[test]
fn older_datasets_of_a_dropped_name_are_withdrawn_with_it() {
    let seq = |run, id| Seq { run, id };
    let mut ledger = Ledger::default();
    let mut drop_before = |run, name: &[u8], seq| {
        let which = Some(Dropping::Named(name));
        let request = Request::Withdraw { seqs: &[seq], which, alone: None, before: Some(run) };
        let Verdict::Commit(events) = decide(&ledger, &Facts::default(), &request) else { panic!("refused") };
        events.iter().for_each(|event| ledger.apply(event));
        ledger.withdrawn()
    };
    // The run knew an old one only, as it had gone back over a newer one.
    let known = drop_before(6, b"c", seq(4, 9));
    assert_eq!(known.why(seq(5, 2), b"c", None), Some(Withdrawal::Removed));
    assert_eq!(known.why(seq(6, 1), b"c", None), None, "the run may write one");
    let mut drop_named = |name: &[u8], seq| drop_before(0, name, seq);
    drop_named(b"a", seq(4, 9));
    let known = drop_named(b"a", seq(4, 7));
    assert_eq!([seq(1, 3), seq(4, 8)].map(|seq| known.why(seq, b"a", None)), [Some(Withdrawal::Removed); 2]);
    let others = [(seq(4, 10), b"a"), (seq(5, 2), b"a"), (seq(1, 3), b"b")];
    assert_eq!(others.map(|(seq, name)| known.why(seq, name, None)), [None; 3]);
    let last = 10 + MOST_WITHDRAWN as u64 + 100;
    (10..=last).for_each(|id| _ = drop_named(format!("ckpt.{id}").as_bytes(), seq(5, id)));
    let known = drop_named(b"last", seq(6, last + 1));
    assert_eq!(known.why(seq(5, last), b"last", None), Some(Withdrawal::Removed));
    assert!(known.why(seq(1, 3), b"a", None).is_some(), "it is older than what is forgotten");
    assert!(known.0.get("NAME").is_some_and(|names| names.keys().count() <= MOST_WITHDRAWN));
}

/// A checkpoint that nobody had touched counted no more, after a run had deleted a thousand of its own.
#[test]
fn what_a_run_deletes_of_its_own_makes_nothing_else_count_less() {
    let mut ledger = Ledger::default();
    let last = 2 + MOST_WITHDRAWN as u64 + 100;
    for id in 2..=last {
        let (seq, name) = (Seq { run: 0, id }, format!("ckpt.{id}"));
        let which = Some(Dropping::Named(name.as_bytes()));
        let request = Request::Withdraw { seqs: &[seq], which, alone: Some(0), before: Some(0) };
        let Verdict::Commit(events) = decide(&ledger, &Facts::default(), &request) else { panic!("refused") };
        events.iter().for_each(|event| ledger.apply(event));
    }
    let known = ledger.withdrawn();
    assert_eq!(known.why(Seq { run: 0, id: 1 }, b"other", OVER), None);
    assert_eq!(
        known.why(Seq { run: 0, id: 1 }, format!("ckpt.{last}").as_bytes(), OVER),
        Some(Withdrawal::Removed)
    );
    assert!(known.0.get("NAME").is_some_and(|names| names.keys().count() <= MOST_WITHDRAWN));
}

#[test]
fn checkpoints_that_somebody_has_gone_back_over_stay_withdrawn_and_take_a_limited_room() {
    let (_dir, prefix) = scratch();
    begin(&prefix, 1);
    let seq = |run, id| Seq { run, id };
    let go_back = |after, before| {
        let over = Request::GoBack(Between { after, before });
        LedgerDir::new(&RealFiles, &prefix).transact(&over).unwrap();
    };
    let withdrawn = || LedgerDir::new(&RealFiles, &prefix).load().unwrap().withdrawn();
    let why = |seq| withdrawn().why(seq, b"", OVER);
    go_back(seq(1, 2), seq(2, 5));
    assert_eq!([seq(1, 2), seq(2, 5)].map(why), [None; 2], "the one gone back to, and the next one");
    assert_eq!([seq(1, 3), seq(2, 4)].map(why), [Some(Withdrawal::Removed); 2]);
    let output = |over| withdrawn().why(seq(1, 3), b"", over);
    assert_eq!(output(None), None, "output is not given up");
    assert_eq!(output(Some(Withdrawal::Refused)), Some(Withdrawal::Refused), "but no run restarts from it");
    go_back(seq(1, 2), seq(4, 9));
    go_back(seq(1, 1), seq(3, 7));
    assert_eq!(Withdrawn::between(&withdrawn().0).len(), 2, "one of them was more than the first");
    assert_eq!([seq(1, 2), seq(4, 8)].map(why), [Some(Withdrawal::Removed); 2]);
    (5..1000).for_each(|run| go_back(seq(run, 3), seq(run, 5)));
    assert!(Withdrawn::between(&withdrawn().0).len() <= MOST_BETWEEN);
    assert!((5..1000).all(|run| why(seq(run, 4)).is_some()));
    assert_eq!([seq(999, 3), seq(999, 5)].map(why), [None; 2]);
    LedgerDir::new(&RealFiles, &prefix)
        .transact(&Request::Refuse { seq: seq(2000, 1), is_listed: false, alone: None, now: "" })
        .unwrap();
    assert!(why(seq(999, 4)) == Some(Withdrawal::Removed));
}

/// Its copy in cache was flushed later, as it was output as well, and the next run began with it.
#[test]
fn a_refused_checkpoint_that_is_flushed_later_is_listed_as_failed() {
    for (is_refused, kind) in [(false, "kept"), (true, "refused")] {
        let (_dir, prefix) = scratch();
        begin(&prefix, 1);
        let ledger = LedgerDir::new(&RealFiles, &prefix);
        let name = kind.as_bytes().to_vec();
        let dataset = DatasetDescriptor {
            id: 1,
            run: 1,
            name,
            checkpoint: true,
            output: true,
            ..DatasetDescriptor::default()
        };
        let refuse = Request::Refuse { seq: dataset.seq(), is_listed: true, alone: None, now: "then" };
        ledger.transact(if is_refused { &refuse } else { &Request::Confirm }).unwrap();
        let (dataset, by, closer, make_current) = (&dataset, &By::Application, None, MakeCurrent::IfNewest);
        ledger.transact(&Request::TakeNames { dataset, by, closer }).unwrap();
        ledger.transact(&Request::Complete { dataset, by, closer, make_current, now: "now" }).unwrap();
        let index = ledger.index().unwrap();
        let entry = index.entry(1).unwrap();
        assert_eq!((entry.complete, entry.is_candidate()), (true, !is_refused), "{kind}");
        assert_eq!(index.current().is_none(), is_refused);
    }
}

/// The only checkpoint that a job could restart from was replaced by what the application had refused.
#[test]
fn refused_output_does_not_take_the_name_of_an_older_one_that_counts() {
    let (_dir, prefix) = scratch();
    begin(&prefix, 1);
    let ledger = LedgerDir::new(&RealFiles, &prefix);
    let of = |id| DatasetDescriptor {
        id,
        run: 1,
        name: b"ckpt".to_vec(),
        checkpoint: true,
        output: true,
        ..DatasetDescriptor::default()
    };
    let (old, new) = (of(1), of(2));
    let now = "now";
    ledger.transact(&Request::ListWhole { dataset: &old, make_current: MakeCurrent::IfNewest, now }).unwrap();
    let refuse = Request::Refuse { seq: new.seq(), is_listed: false, alone: None, now };
    ledger.transact(&refuse).unwrap();
    let take = Request::TakeNames { dataset: &new, by: &By::Flush("t".to_owned()), closer: None };
    let refused = ledger.transact(&take).unwrap_err().to_string();
    assert!(refused.contains("dataset 1, which is newer, or which a job can restart from"), "{refused}");
    assert!(ledger.index().unwrap().entry(1).unwrap().is_candidate());
    ledger.transact(&Request::ListWhole { dataset: &new, make_current: MakeCurrent::IfNewest, now }).unwrap();
    assert!(ledger.index().unwrap().entry(1).is_none(), "somebody has asked for it");
}

/// The caches of a first run counted as those of another directory.
#[test]
fn a_prefix_directory_is_known_again_by_its_index_alone() {
    let (_dir, prefix) = scratch();
    let first = begin(&prefix, 0);
    let dataset = &DatasetDescriptor { id: 1, run: 1, name: b"ckpt".to_vec(), ..Default::default() };
    let by = &By::Application;
    let ledger = LedgerDir::new(&RealFiles, &prefix);
    ledger.transact(&Request::TakeNames { dataset, by, closer: None }).unwrap();
    std::fs::remove_file(prefix.scr_file("ids.scr")).unwrap();
    assert_eq!(PrefixId::read(&RealFiles, &prefix).unwrap(), first.prefix);
    assert_eq!(begin(&prefix, 0).prefix, first.prefix);
}

#[test]
fn datasets_of_c_scr_are_ordered_between_the_runs_around_them() {
    let (_dir, prefix) = scratch_copy("xor-flush2");
    let first = begin(&prefix, 0);
    let index = Index::read(&RealFiles, &prefix).unwrap();
    assert_eq!(index.prefix_id(), first.prefix);
    assert!(index.entries().iter().all(|entry| entry.run == 0));
    let theirs = DatasetDescriptor { id: 90, name: b"theirs".to_vec(), ..Default::default() };
    Index::update(&RealFiles, &prefix, |index| index.record(&theirs, true)).unwrap();
    begin(&prefix, 0);
    let index = Index::read(&RealFiles, &prefix).unwrap();
    let newest = index.entries()[0].clone();
    assert_eq!((newest.id, newest.run), (90, 1));
    assert!(newest.seq() < DatasetDescriptor { id: 5, run: 2, ..Default::default() }.seq());
}
