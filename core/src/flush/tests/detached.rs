//! Detached flushes whose application ends, or dies, right after it has begun them.

use super::stage::{finalize_arrived, finalize_pending, in_use, through, Cached, Stage, NOW, OPTIONS};
use crate::flush::detached::record;
use crate::flush::detached::{poll_some, Here, PollResult, Which};
use crate::flush::{Flush, Options, SourceFile};
use crate::redundancy::plugins::TransportInUse;
use scr_base::fs::{Files, How, RealFiles, Retrying};
use scr_plugin_api::{CopyJob, CopyState, KvTree, PluginError, PluginErrorKind, Transport};
use scr_prefix::commit::{CloseOutcome, Commit, FlushOutcome, Share, Staged};
use scr_prefix::ledger::pending;
use scr_prefix::ledger::{By, Closer, CommonFiles, Dropping, LedgerDir, Request, Turn};
use scr_prefix::{staging_file, Index, Prefix, PrefixError, PrefixId};
use scr_test_kit::faulty::{given_up, FaultyFiles, What};
use scr_test_kit::fixtures::let_look_dead;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};

const RANKS: u32 = 4;
const TOKEN: &str = "1.x.y";

/// Two nodes with two ranks each, and a transport that outlives the application.
struct Nodes {
    stage: Stage,
    transport: Arc<dyn Transport>,
}

impl Nodes {
    fn new() -> Self {
        Self { stage: Stage::on_nodes(RANKS, 2), transport: through(&RealFiles) }
    }

    fn control(&self, node: u32) -> PathBuf {
        self.stage.control(node)
    }

    /// Calls `body` on every rank with a flush that is detached.
    fn on_all<T: Send>(&self, options: Options, body: impl Fn(&Flush<'_>, usize) -> T + Sync) -> Vec<T> {
        self.stage.on_all_with(&RealFiles, &in_use(&self.transport, true), options, body)
    }

    /// The application begins a flush, and is gone.
    fn begin(&self, cached: &Cached, options: Options) {
        let begun = self.on_all(options, |flush, rank| {
            let started = flush.begin(cached.to_flush(TOKEN, rank));
            started.map(|mut started| flush.start_copying(&mut started))
        });
        assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    }

    fn poll(&self, node: u32) -> PollResult {
        self.poll_some(node, Which::All)
    }

    fn poll_some(&self, node: u32, which: Which<'_>) -> PollResult {
        let open = |_: &str, _: &KvTree| Ok(Arc::clone(&self.transport));
        poll_some(&RealFiles, &self.control(node), &open, NOW, which)
    }

    fn anew(&self) -> Which<'_> {
        Which::AllAnew(Here { prefix: &self.stage.prefix, id: None })
    }

    fn records(&self, node: u32) -> usize {
        record::list(&RealFiles, &self.control(node)).unwrap().0.len()
    }
}

#[test]
fn a_detached_flush_is_finished_when_all_nodes_have_their_marks() {
    let nodes = Nodes::new();
    let cached = nodes.stage.cache(1, "a");
    nodes.begin(&cached, OPTIONS);
    assert_eq!(nodes.poll(0), PollResult::default());
    let waiting = finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
    assert!(matches!(waiting.as_slice(), [FlushOutcome::Waiting { done: 1, marks: 2, .. }]), "{waiting:?}");
    assert!(!nodes.stage.is_listed(1));
    let polled = nodes.poll(1);
    assert_eq!((polled.unfinished, polled.errors.len(), polled.notices.len()), (false, 0, 1), "{polled:?}");
    assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached));
    // The first node clears its own away the next time.
    assert_eq!((nodes.poll(0), nodes.records(0), nodes.records(1)), (PollResult::default(), 0, 0));
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    assert_eq!(finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap(), []);
}

/// All has arrived: the agent of the other node marks, and dies before it can finish.
fn all_marked() -> (Nodes, Cached) {
    let (nodes, cached) = (1..)
        .map(|at| {
            let nodes = Nodes::new();
            let cached = nodes.stage.cache(1, "a");
            nodes.begin(&cached, OPTIONS);
            nodes.poll(0);
            let files = FaultyFiles::new(RealFiles);
            files.stop_at(at);
            let open = |_: &str, _: &KvTree| Ok(Arc::clone(&nodes.transport));
            poll_some(&files, &nodes.control(1), &open, NOW, Which::All);
            (nodes, cached)
        })
        .find(|(nodes, _)| nodes.stage.prefix.scr_file(&format!("done.{TOKEN}.1")).exists())
        .unwrap();
    assert!(!nodes.stage.is_listed(1));
    (nodes, cached)
}

#[test]
fn poststage_finishes_an_arrived_flush_only_once() {
    let (nodes, cached) = all_marked();
    let ended = std::thread::scope(|scope| {
        let one = || finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let finalized = ended.iter().filter(|ended| matches!(ended, FlushOutcome::Finalized(_))).count();
    assert_eq!((finalized, ended.len()), (1, 1), "{ended:?}");
    assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached));
}

/// Agents took the flush for ended where another directory was at the old path, and forgot it. A run in the renamed one did not
/// wait for it.
#[test]
fn a_flush_goes_on_in_a_prefix_directory_that_was_renamed_and_is_not_forgotten_meanwhile() {
    let nodes = Nodes::new();
    let old = &nodes.stage.prefix;
    old.make(&RealFiles).unwrap();
    LedgerDir::new(&RealFiles, old).begin_run(1).unwrap();
    let id = PrefixId::read(&RealFiles, old).unwrap();
    let cached = nodes.stage.cache(1, "a");
    nodes.begin(&cached, OPTIONS);
    let new = Prefix::new(nodes.stage.dir.path().join("renamed"));
    fs::rename(old.dir(), new.dir()).unwrap();
    for is_replaced in [false, true] {
        if is_replaced {
            old.make(&RealFiles).unwrap();
            LedgerDir::new(&RealFiles, old).begin_run(1).unwrap();
        }
        let polled = nodes.poll(0);
        let [why] = &polled.errors[..] else { panic!("{polled:?}") };
        let words = ["was renamed", "scr poststage", "SCR_PREFIX", &*old.dir().display().to_string()];
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
        // The file system of one that is missing may only be away.
        assert_eq!(
            (polled.unfinished, polled.failed, nodes.records(0)),
            (!is_replaced, false, 2),
            "{polled:?}"
        );
    }
    let there = Here { prefix: &new, id: id.as_ref() };
    let other = Here { prefix: old, id: None };
    assert_eq!(nodes.poll_some(0, Which::To(other, true)), PollResult::default());
    // A run that begins does the first, and `scr poststage` the second.
    for (node, which) in [(0, Which::To(there, false)), (1, Which::AllAnew(there))] {
        let polled = nodes.poll_some(node, which);
        assert!(polled.errors.is_empty() && !polled.unfinished, "{polled:?}");
    }
    let index = Index::read(&RealFiles, &new).unwrap();
    assert!(index.entry(1).is_some_and(|entry| entry.is_valid()));
    for file in cached.by_rank.iter().flatten() {
        assert_eq!(fs::read(new.file(&file.name)).unwrap(), cached.bytes[&file.name]);
    }
    assert!(Index::read(&RealFiles, old).unwrap().entries().is_empty());
}

/// Several may look at once, on several nodes.
#[test]
fn finishing_a_flush_holds_the_lock() {
    let (nodes, _) = all_marked();
    let files = FaultyFiles::new(RealFiles);
    finalize_arrived(&files, &nodes.stage.prefix, NOW).unwrap();
    let lock = nodes.stage.prefix.scr_file("finalize.lock");
    let done = files.operations();
    let first = |what, path: &str| {
        done.iter().position(|done| done.what == what && done.path.display().to_string().contains(path))
    };
    let taken = done.iter().position(|done| done.what == What::Link && done.to.as_ref() == Some(&lock));
    assert!(taken.is_some() && taken < first(What::Rename, "/a/"), "{done:?}");
    // And the new names are on stable storage before the index lists them.
    let folder = nodes.stage.prefix.file(&"a".parse().unwrap());
    let synced = done.iter().rposition(|done| done.what == What::SyncDir && done.path == folder);
    let named = done.iter().rposition(|done| done.what == What::Rename && done.path.starts_with(&folder));
    let index = nodes.stage.prefix.index_file();
    let listed = done.iter().rposition(|done| done.what == What::Rename && done.to.as_ref() == Some(&index));
    assert!(named.is_some() && named < synced && synced < listed, "{done:?}");
}

/// Closes a flush of dataset 1 that has arrived, in a process that is stopped before each of its operations in turn. Its locks
/// are broken, and another process closes the flush too, and does more.
fn stopped_at_each_operation(meanwhile: fn(&Nodes), after: impl Fn(&Nodes, u64)) {
    let (nodes, _) = all_marked();
    let nodes = Arc::new(nodes);
    let kept = nodes.stage.keep();
    for at in 1.. {
        nodes.stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        let theirs = Arc::clone(&nodes);
        files.interrupt_at(at, move || {
            for lock in ["finalize.lock", "index.lock"] {
                let_look_dead(&theirs.stage.prefix.scr_file(lock));
            }
            meanwhile(&theirs);
        });
        let _ = finalize_arrived(&files, &nodes.stage.prefix, NOW);
        if !files.was_interrupted() {
            assert!(at > 20, "nothing was interrupted");
            return;
        }
        after(&nodes, at);
    }
}

/// It took the name back for the older dataset, and gave files the names of the newer one.
#[test]
#[ignore = "long"]
fn a_process_that_was_stopped_takes_nothing_from_a_newer_dataset_of_the_same_name() {
    let newer = |nodes: &Nodes| {
        finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
        nodes.stage.flush_well("2.x", &nodes.stage.cache(2, "a"));
    };
    stopped_at_each_operation(newer, |nodes, at| {
        assert!(nodes.stage.is_listed(2) && !nodes.stage.is_listed(1), "stopped at {at}");
        assert!(nodes.stage.is_right(&nodes.stage.cache(2, "a")), "stopped at {at}");
    });
}

/// The first one took the flush back, since it was not to make the dataset complete any more: neither of them did.
#[test]
fn a_process_that_goes_on_while_another_one_closes_its_flush_takes_nothing_back() {
    let (nodes, cached) = all_marked();
    // That of the agent that has died.
    fs::remove_file(nodes.stage.prefix.scr_file("finalize.lock")).unwrap();
    let kept = nodes.stage.keep();
    for at in 1.. {
        nodes.stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        let (has_stopped, stops) = mpsc::channel();
        let (goes_on, is_told) = mpsc::channel::<()>();
        files.interrupt_at(at, move || {
            has_stopped.send(()).unwrap();
            is_told.recv().unwrap();
        });
        let prefix = nodes.stage.prefix.clone();
        let first = std::thread::spawn(move || drop(finalize_arrived(&files, &prefix, NOW)));
        if stops.recv().is_err() {
            assert!(at > 20, "nothing was interrupted");
            break;
        }
        let is_locked = nodes.stage.prefix.scr_file("finalize.lock").exists();
        for lock in ["finalize.lock", "index.lock"] {
            let_look_dead(&nodes.stage.prefix.scr_file(lock));
        }
        let first = Arc::new(Mutex::new(Some((goes_on, first))));
        let ends = Arc::clone(&first);
        let end_first = move || {
            let Some((goes_on, first)) = ends.lock().unwrap().take() else { return };
            goes_on.send(()).unwrap();
            first.join().unwrap();
        };
        if is_locked {
            let second = FaultyFiles::new(RealFiles);
            second.only(|_, path| path.ends_with("summary.scr"));
            // All files have their names.
            second.interrupt_at(1, end_first.clone());
            finalize_arrived(&second, &nodes.stage.prefix, NOW).unwrap();
        }
        // It would have waited for the lock, or had left nothing to do.
        end_first();
        for when in ["at once", "in the next run"] {
            let is_there = nodes.stage.is_listed(1) && nodes.stage.is_right(&cached);
            assert!(is_there, "stopped at {at}, {when}");
            finalize_pending(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
        }
        assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new(), "stopped at {at}");
    }
}

/// The flush that was under way listed it again, and made it current.
#[test]
fn a_dropped_dataset_does_not_come_back_with_a_flush_that_has_arrived() {
    let drop = |nodes: &Nodes| _ = drop_a(&RealFiles, &nodes.stage).unwrap();
    let is_gone = |nodes: &Nodes, at: u64| {
        finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
        assert!(nodes.stage.index().entry(1).is_none(), "stopped at {at}");
        assert_eq!(nodes.stage.index().current(), None, "stopped at {at}");
    };
    let (nodes, _) = all_marked();
    drop(&nodes);
    is_gone(&nodes, 0);
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    stopped_at_each_operation(drop, is_gone);
}

/// The flush was passed over, and whoever closed it listed the dataset again.
#[test]
fn nothing_is_dropped_while_the_record_of_a_flush_cannot_be_read() {
    let (nodes, _) = all_marked();
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|what, path| what == What::Read && path.ends_with(format!("flush.{TOKEN}")));
    faulty.count_all();
    faulty.never_pause();
    faulty.fail_from(1, ErrorKind::TimedOut);
    let files = Retrying::around(Arc::new(faulty.clone()));
    assert!(drop_a(&*files, &nodes.stage).is_err());
    let ended = finalize_pending(&*files, &nodes.stage.prefix, NOW).unwrap();
    assert!(ended.iter().all(|ended| ended.expect_ended().is_err()));
    faulty.fail_once(faulty.mutations() + 1, ErrorKind::TimedOut);
    assert!(drop_a(&*files, &nodes.stage).unwrap());
    finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
    assert!(nodes.stage.index().entry(1).is_none());
}

/// It stayed listed without its files.
#[test]
fn a_dataset_that_became_complete_during_the_flush_counts_no_more_once_its_files_are_replaced() {
    let nodes = Nodes::new();
    let (older, mut newer) = (nodes.stage.cache(1, "a"), nodes.stage.cache(2, "a"));
    newer.dataset.name = b"b".to_vec();
    nodes.begin(&newer, OPTIONS);
    nodes.stage.flush_well("0.x", &older);
    assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&older));
    (0..2).for_each(|node| drop(nodes.poll(node)));
    assert!(nodes.stage.is_listed(2) && nodes.stage.is_right(&newer));
    assert!(!nodes.stage.is_listed(1));
}

/// One error of a network file system was written down, and the flush was never finished.
#[test]
fn an_error_that_passes_does_not_end_a_flush() {
    for what in [What::Status, What::OpenToRead, What::SetTimes] {
        for checksums in [true, false] {
            let nodes = Nodes::new();
            let cached = nodes.stage.cache(1, "a");
            nodes.begin(&cached, Options { checksums, ..OPTIONS });
            nodes.poll(0);
            let files = FaultyFiles::new(RealFiles);
            files.only(move |done, path| done == what && path.display().to_string().contains("/a/"));
            files.count_all();
            files.never_pause();
            files.fail_once(1, std::io::ErrorKind::TimedOut);
            let files = Retrying::around(Arc::new(files));
            let open = |_: &str, _: &KvTree| Ok(Arc::clone(&nodes.transport));
            let polled = poll_some(&*files, &nodes.control(1), &open, NOW, Which::All);
            assert_eq!(polled.errors, Vec::<String>::new(), "{what:?}");
            assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached), "{what:?}: {polled:?}");
        }
    }
}

/// A transport that cannot be asked for a moment, or whose copies fail.
struct Ailing {
    through: Arc<dyn Transport>,
    is_deaf: AtomicBool,
    fails: AtomicBool,
}

impl Ailing {
    fn answer(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let error = || PluginError::new(PluginErrorKind::Io, "the daemon does not answer");
        match () {
            () if self.is_deaf.load(Ordering::SeqCst) => Err(error()),
            () if self.fails.load(Ordering::SeqCst) => Ok(CopyState::Failed(error())),
            () => self.through.poll(ticket),
        }
    }
}

impl Transport for Ailing {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        self.through.start(job)
    }
    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.answer(ticket)
    }
    fn wait(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        // A copy may have been begun again since it was asked for, and a monitor has the lock of the node.
        panic!("a monitor does not wait")
    }
    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.through.cancel(ticket)
    }
    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.through.crc(ticket, item)
    }
}

fn ailing(is_deaf: bool, fails: bool) -> (Arc<Ailing>, Nodes, Cached) {
    let transport =
        Arc::new(Ailing { through: through(&RealFiles), is_deaf: is_deaf.into(), fails: fails.into() });
    let nodes = Nodes { transport: Arc::<Ailing>::clone(&transport), ..Nodes::new() };
    let cached = nodes.stage.cache(1, "a");
    nodes.begin(&cached, OPTIONS);
    (transport, nodes, cached)
}

/// That was written down as the end of the flush.
#[test]
fn a_transport_that_cannot_be_asked_for_a_moment_does_not_end_a_flush() {
    let (transport, nodes, cached) = ailing(true, false);
    for node in [0, 1] {
        let polled = nodes.poll(node);
        assert!(polled.unfinished && !polled.failed, "{polled:?}");
        assert!(polled.errors[0].contains("the daemon does not answer"), "{polled:?}");
    }
    transport.is_deaf.store(false, Ordering::SeqCst);
    (0..2).for_each(|node| assert_eq!(nodes.poll(node).errors, Vec::<String>::new()));
    assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached));
}

/// An agent would stay for ever.
#[test]
fn a_transport_that_never_answers_ends_a_flush_at_last() {
    let (_, nodes, cached) = ailing(true, false);
    let polls = (1..1000).find(|_| !nodes.poll(0).unfinished);
    assert!(polls.is_some() && nodes.poll(0).failed);
    nodes.stage.assert_cache_is_whole(&cached);
}

/// The sources were still in cache, and no command could save them.
#[test]
fn copies_that_have_failed_are_begun_again_when_somebody_asks_for_it() {
    let (transport, nodes, cached) = ailing(false, true);
    (0..2).for_each(|node| assert!(nodes.poll(node).failed));
    transport.fails.store(false, Ordering::SeqCst);
    // An agent does not try for ever.
    (0..2).for_each(|node| assert!(nodes.poll(node).failed));
    for node in 0..2 {
        let polled = nodes.poll_some(node, nodes.anew());
        assert!(polled.unfinished && !polled.failed, "{polled:?}");
        assert!(polled.notices[0].ends_with("are copied again"), "{polled:?}");
    }
    assert!(!nodes.stage.is_listed(1));
    (0..2).for_each(|node| assert_eq!(nodes.poll(node).errors, Vec::<String>::new()));
    assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached));
    (0..2).for_each(|node| drop(nodes.poll(node)));
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
}

/// The limits were those of a job that had died, and the run that began waited as long for them.
#[test]
fn a_run_that_begins_lifts_the_limits_of_copies_that_it_waits_for() {
    let limit = |text: &str| {
        let mut options = KvTree::new();
        options.set("BW", text);
        options
    };
    let stage = Stage::on_nodes(RANKS, 2);
    stage.prefix.make(&RealFiles).unwrap();
    LedgerDir::new(&RealFiles, &stage.prefix).begin_run(1).unwrap();
    let id = PrefixId::read(&RealFiles, &stage.prefix).unwrap();
    let cached = stage.cache(1, "a");
    let endless = Arc::new(Endless::default());
    let transport: Arc<dyn Transport> = Arc::<Endless>::clone(&endless);
    let in_use = TransportInUse { options: limit("1000"), ..in_use(&transport, true) };
    let begun = stage.on_all_with(&RealFiles, &in_use, OPTIONS, |flush, rank| {
        flush.begin(cached.to_flush(TOKEN, rank)).map(|mut run| flush.start_copying(&mut run))
    });
    assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    let here = Here { prefix: &stage.prefix, id: id.as_ref() };
    for (hurries, expected, stopped) in [(false, "1000", 0), (true, "0", 4), (true, "0", 4)] {
        let open = |_: &str, _: &KvTree| Ok(Arc::clone(&transport));
        for node in 0..2 {
            let polled = poll_some(&RealFiles, &stage.control(node), &open, NOW, Which::To(here, hurries));
            assert!(polled.unfinished && polled.errors.is_empty() && polled.notices.is_empty(), "{polled:?}");
            let records = record::list(&RealFiles, &stage.control(node)).unwrap().0;
            assert!(records.iter().all(|record| record.transport_options == limit(expected)), "{records:?}");
        }
        assert_eq!(endless.stopped.lock().unwrap().len(), stopped);
    }
}

/// The next poll synced the names once more, which succeeds without those that the system has lost; or it found a mark that was
/// not synced.
#[test]
fn a_name_that_could_not_be_synced_before_the_mark_is_made_anew() {
    let mut failed = 0;
    for at in 1.. {
        let nodes = Nodes::new();
        let cached = nodes.stage.cache(1, "a");
        nodes.begin(&cached, OPTIONS);
        let files = FaultyFiles::new(RealFiles);
        files.fail_once(at, ErrorKind::Other);
        let open = |_: &str, _: &KvTree| Ok(Arc::clone(&nodes.transport));
        let poll = |which| poll_some(&files, &nodes.control(0), &open, NOW, which);
        poll(Which::All);
        let Some(fault) = files.first_failed() else { break };
        if fault.what != What::SyncDir {
            continue;
        }
        failed += 1;
        (0..2).for_each(|_| drop(poll(Which::All)));
        (0..2).for_each(|_| drop(poll(nodes.anew())));
        let mark = nodes.stage.prefix.scr_file(&format!("done.{TOKEN}.0"));
        assert!(mark.exists(), "operation {at}");
        let staging = |file: &SourceFile| staging_file(&nodes.stage.prefix.file(&file.name), TOKEN);
        let there = cached.by_rank[..2].iter().flatten().map(staging);
        let lost = given_up(there, &files.operations());
        assert_eq!(lost, BTreeSet::new(), "operation {at}, in {}", fault.path.display());
    }
    assert!(failed >= 4, "{failed} folders");
}

/// A dataset is listed whole or not at all, whatever became of a file between its mark and the end.
#[test]
fn a_file_that_has_arrived_and_is_cut_short_or_gone_keeps_the_dataset_from_being_finished() {
    type Harm = fn(&std::path::Path);
    let harms: [Harm; 2] = [
        |part| fs::remove_file(part).unwrap(),
        |part| fs::File::options().write(true).open(part).unwrap().set_len(1).unwrap(),
    ];
    for harm in harms {
        let (nodes, cached) = all_marked();
        let file = cached.by_rank[2].iter().find(|file| file.bytes > 1).unwrap();
        harm(&scr_prefix::staging_file(&nodes.stage.prefix.file(&file.name), TOKEN));
        let ended = finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
        assert!(matches!(ended.as_slice(), [FlushOutcome::Revoked { .. }]), "{ended:?}");
        assert!(!nodes.stage.is_listed(1) && !nodes.stage.prefix.file(&file.name).exists());
        nodes.stage.assert_cache_is_whole(&cached);
    }
}

#[test]
fn a_flush_that_was_taken_back_is_given_up_by_the_nodes() {
    let nodes = Nodes::new();
    let cached = nodes.stage.cache(1, "a");
    nodes.begin(&cached, OPTIONS);
    nodes.poll(0);
    let ended = finalize_pending(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
    assert!(matches!(ended.as_slice(), [FlushOutcome::Revoked { .. }]), "{ended:?}");
    // A copy that was late.
    let part = scr_prefix::staging_file(&nodes.stage.prefix.file(&cached.by_rank[3][0].name), TOKEN);
    fs::write(&part, "late").unwrap();
    for node in 0..2 {
        assert_eq!((nodes.poll(node), nodes.records(node)), (PollResult::default(), 0));
    }
    assert!(!nodes.stage.is_listed(1));
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    nodes.stage.assert_cache_is_whole(&cached);
}

#[test]
fn a_file_that_is_not_what_was_recorded_keeps_the_dataset_from_counting() {
    let nodes = Nodes::new();
    let mut cached = nodes.stage.cache(1, "a");
    let damaged = cached.by_rank[2].iter_mut().find(|file| file.bytes > 0).unwrap();
    damaged.record.crc = Some(!damaged.crc.unwrap());
    damaged.record.mtime = RealFiles.status(&damaged.source).unwrap().mtime;
    nodes.begin(&cached, OPTIONS);
    nodes.poll(0);
    let polled = nodes.poll(1);
    assert!(
        polled.errors.iter().any(|line| line.contains("rank 2") && line.contains("damaged")),
        "{polled:?}"
    );
    assert!(!polled.unfinished, "nothing can be done about it here");
    assert!(!nodes.stage.is_listed(1));
    let outcomes = finalize_pending(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
    assert!(matches!(outcomes.as_slice(), [FlushOutcome::Revoked { .. }]), "{outcomes:?}");
}

#[test]
fn checksums_that_nobody_had_taken_before_are_listed() {
    let nodes = Nodes::new();
    let mut cached = nodes.stage.cache(1, "a");
    cached.by_rank.iter_mut().flatten().for_each(|file| file.record.crc = None);
    nodes.begin(&cached, OPTIONS);
    nodes.poll(0);
    nodes.poll(1);
    let lists = scr_prefix::Rank2File::read(&RealFiles, &nodes.stage.prefix, 1).unwrap();
    for file in lists.by_rank().iter().flatten() {
        assert_eq!(file.crc, Some(crc32fast::hash(&cached.bytes[&file.name])));
    }
}

#[test]
fn an_application_that_stays_ends_its_flush_or_finds_it_ended() {
    for looked_after in [false, true] {
        let nodes = Nodes::new();
        let cached = nodes.stage.cache(1, "a");
        let outcomes = nodes.on_all(OPTIONS, |flush, rank| {
            let mut started = flush.begin(cached.to_flush(TOKEN, rank)).unwrap();
            flush.start_copying(&mut started);
            if looked_after && rank == 0 {
                // An agent that is quicker.
                nodes.poll(0);
                nodes.poll(1);
            }
            let running = flush.is_running(&started).unwrap();
            (running, flush.finish(started).map(|report| report.files))
        });
        assert!(outcomes.iter().all(|outcome| *outcome == (false, Ok(8))), "{outcomes:?}");
        assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached));
        (0..2).for_each(|node| drop(nodes.poll(node)));
        assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    }
}

/// A transport that may fail on rank 3, and elsewhere has no end before it is stopped.
#[derive(Default)]
struct Endless {
    stopped: Mutex<BTreeSet<Vec<u8>>>,
    fails: bool,
}

impl Transport for Endless {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        Ok(job.token.clone().into_bytes())
    }
    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let stopped = self.stopped.lock().unwrap().contains(ticket);
        let failed = |text| CopyState::Failed(PluginError::new(PluginErrorKind::Io, text));
        Ok(match self.fails && ticket.ends_with(b".3") {
            true => failed("no room"),
            false if stopped => failed("stopped"),
            false => CopyState::Running(1),
        })
    }
    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.poll(ticket)
    }
    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.stopped.lock().unwrap().insert(ticket.to_vec());
        Ok(())
    }
    fn crc(&self, _ticket: &[u8], _item: usize) -> Option<u32> {
        None
    }
}

#[test]
fn nobody_waits_for_the_others_once_one_node_has_failed() {
    let transport = Arc::new(Endless { fails: true, ..Endless::default() });
    let nodes = Nodes { transport: Arc::<Endless>::clone(&transport), ..Nodes::new() };
    let cached = nodes.stage.cache(1, "a");
    let outcomes = nodes.on_all(OPTIONS, |flush, rank| {
        let mut started = flush.begin(cached.to_flush(TOKEN, rank)).unwrap();
        flush.start_copying(&mut started);
        while flush.is_running(&started).unwrap() {}
        flush.finish(started).unwrap_err().to_string()
    });
    assert!(outcomes.iter().all(|text| text.contains("rank 3") && text.contains("no room")), "{outcomes:?}");
    assert!(transport.stopped.lock().unwrap().len() >= 3, "what still moved was not stopped");
    assert!(!nodes.stage.is_listed(1));
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    assert_eq!((nodes.records(0), nodes.records(1)), (0, 0));
}

/// An agent that hung in a file system kept the application waiting for ever.
#[test]
fn a_transfer_that_does_not_get_on_is_given_up() {
    let transport = Arc::new(Endless::default());
    let mut nodes = Nodes { transport: Arc::<Endless>::clone(&transport), ..Nodes::new() };
    nodes.stage.pause = 10_000_000;
    let cached = nodes.stage.cache(1, "a");
    let files = FaultyFiles::new(RealFiles);
    files.never_pause();
    let in_use = in_use(&nodes.transport, true);
    let outcomes = nodes.stage.on_all_with(&files, &in_use, OPTIONS, |flush, rank| {
        let started = flush.begin(cached.to_flush(TOKEN, rank)).unwrap();
        flush.finish(started).unwrap_err().to_string()
    });
    assert!(outcomes.iter().all(|text| text.contains("nothing has been copied for 300 s")), "{outcomes:?}");
    let said = nodes.stage.said.lock().unwrap().clone();
    let waiting: Vec<_> =
        said.iter().filter(|line| line.contains("waiting for the flush of a, of which")).collect();
    assert_eq!(waiting.len(), 1, "SCR_Finalize said nothing for minutes: {said:?}");
    assert_eq!(transport.stopped.lock().unwrap().len(), 4, "what still moves is stopped");
    assert!(!nodes.stage.is_listed(1));
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    assert_eq!((nodes.records(0), nodes.records(1)), (0, 0));
    nodes.stage.assert_cache_is_whole(&cached);
}

#[test]
fn data_of_two_nodes_in_one_folder_stays_separate() {
    let nodes = Nodes::new();
    let cached = nodes.stage.cache(1, "a");
    nodes.begin(&cached, OPTIONS);
    // The second rank of each node has not said a word yet.
    for (rank, node) in [(1, 0), (3, 1)] {
        fs::remove_file(nodes.control(node).join(format!("detached.{TOKEN}.{rank}"))).unwrap();
    }
    fs::rename(
        nodes.control(1).join(format!("detached.{TOKEN}.2")),
        nodes.control(0).join(format!("detached.{TOKEN}.2")),
    )
    .unwrap();
    nodes.poll(0);
    let ended = finalize_arrived(&RealFiles, &nodes.stage.prefix, NOW).unwrap();
    assert!(matches!(ended.as_slice(), [FlushOutcome::Waiting { done: 0, marks: 2, .. }]), "{ended:?}");
}

#[test]
fn an_error_on_one_rank_reaches_all_ranks_and_leaves_no_files() {
    let nodes = Nodes::new();
    let cached = nodes.stage.cache(1, "a");
    let gone = cached.by_rank[3].iter().find(|file| file.bytes > 0).unwrap();
    (&RealFiles as &dyn Files).remove_tree(&gone.source).unwrap();
    let outcomes = nodes.on_all(OPTIONS, |flush, rank| {
        let started = flush.begin(cached.to_flush(TOKEN, rank)).unwrap();
        flush.finish(started).unwrap_err().to_string()
    });
    assert!(outcomes.iter().all(|text| text.contains("rank 3") && *text == outcomes[0]), "{outcomes:?}");
    assert!(!nodes.stage.is_listed(1));
    assert_eq!(nodes.stage.leftovers(), Vec::<PathBuf>::new());
    assert_eq!((nodes.records(0), nodes.records(1)), (0, 0));
}

fn commit<'a>(files: &'a dyn Files, stage: &'a Stage) -> Commit<'a> {
    LedgerDir { files, prefix: &stage.prefix }.commit(NOW)
}

fn drop_a(files: &dyn Files, stage: &Stage) -> Result<bool, PrefixError> {
    LedgerDir { files, prefix: &stage.prefix }.drop_datasets(Dropping::Named(b"a"), 0).map(|(any, _)| any)
}

/// Before the `at`-th operation of `files` the job of the same flush does something, unless it would wait for the index. Tells
/// whether that succeeds.
fn while_stopped_at(
    files: &FaultyFiles,
    at: u64,
    stage: &Arc<Stage>,
    job: impl FnOnce(&Stage) -> bool + Send + 'static,
) -> Arc<Mutex<Option<bool>>> {
    let outcome = Arc::new(Mutex::new(None));
    let (theirs, tells) = (Arc::clone(stage), Arc::clone(&outcome));
    files.interrupt_at(at, move || {
        if !theirs.prefix.scr_file("index.lock").exists() {
            *tells.lock().unwrap() = Some(job(&theirs));
        }
    });
    outcome
}

/// A flush is about to be marked as done by its job, and an older dataset has its name and its files.
fn before_the_mark(stage: &Stage) -> (Cached, Cached) {
    let (older, newer) = (stage.cache(0, "a"), stage.cache(1, "a"));
    stage.flush_well("0.x", &older);
    let files = FaultyFiles::new(RealFiles);
    files.only(|_, path| path.display().to_string().contains("done.1.x"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &newer);
    assert!(files.stopped() && stage.is_listed(0));
    (older, newer)
}

/// The next run took a flush back whose job was only slow. The job closed it meanwhile: the older dataset lost its name, and the
/// newer one its files.
#[test]
fn a_flush_that_is_taken_back_takes_no_name_any_more() {
    let stage = Arc::new(Stage::new(2));
    let (older, newer) = before_the_mark(&stage);
    let record = pending::find(commit(&RealFiles, &stage).ledger, "1.x").unwrap().unwrap();
    let staged = |file: &crate::flush::SourceFile| {
        let target = stage.prefix.file(&file.name);
        let staging = scr_prefix::staging_file(&target, "1.x");
        (target, staging, file.bytes, file.crc)
    };
    let names: Vec<_> = newer.by_rank.iter().flatten().map(staged).collect();
    let kept = stage.keep();
    let (mut closed, mut too_late) = (0, 0);
    for at in 1.. {
        stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        let (names, mut own) = (names.clone(), record.clone());
        let outcome = while_stopped_at(&files, at, &stage, move |theirs| {
            let prefix = &theirs.prefix;
            let staged = names.into_iter();
            let staged =
                staged.map(|(target, staging, bytes, crc)| Staged { target, staging, bytes, crc }).collect();
            let marked = own.clone();
            let mark = || Ok(marked.mark_done(LedgerDir::new(&RealFiles, prefix), 0, &KvTree::new())?);
            let folders = vec![prefix.file(&"a".parse().unwrap()), prefix.dir().to_owned()];
            // All ranks do the same at the same time.
            let share =
                Share { record: &mut own, staged, folders, in_place: false, fence: None, is_first: true };
            commit(&RealFiles, theirs).close(share, mark, |_, work| work()).is_ok()
        });
        finalize_pending(&files, &stage.prefix, NOW).unwrap();
        if !files.was_interrupted() {
            assert!(at > 5, "nothing was interrupted");
            break;
        }
        let job_is_done = outcome.lock().unwrap().take();
        if job_is_done == Some(false) {
            too_late += 1;
            commit(&RealFiles, &stage).resolve(&record);
            commit(&RealFiles, &stage).forget(&record, true);
        }
        closed += u32::from(job_is_done == Some(true));
        for when in ["at once", "in the next run"] {
            let is_older = stage.is_listed(0) && stage.is_right(&older);
            let is_newer = stage.is_listed(1) && stage.is_right(&newer);
            assert!(is_older || is_newer, "stopped at {at}, {when}: {job_is_done:?}");
            assert_eq!(job_is_done == Some(true), is_newer, "stopped at {at}, {when}");
            finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap();
        }
        assert_eq!(stage.leftovers(), Vec::<PathBuf>::new(), "stopped at {at}");
    }
    assert!(closed > 0 && too_late > 0, "{closed} closed, {too_late} too late");
}

/// A process outside of a slow job gave the files their names anew while the job called the dataset complete. If the process died
/// then, a file had no name, and nobody knew of it.
#[test]
fn no_name_is_taken_away_from_a_dataset_that_its_job_has_made_complete() {
    let stage = Arc::new(Stage::new(2));
    let cached = stage.cache(1, "a");
    let files = FaultyFiles::new(RealFiles);
    files.only(|_, path| path.ends_with("summary.scr"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &cached);
    assert!(files.stopped() && !stage.is_listed(1) && stage.is_right(&cached), "all files have their names");
    let record = pending::find(commit(&RealFiles, &stage).ledger, "1.x").unwrap().unwrap();
    let kept = stage.keep();
    let (mut complete, mut refused) = (0, 0);
    for at in 1.. {
        stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        let record = record.clone();
        let outcome = while_stopped_at(&files, at, &stage, move |theirs| {
            let prefix = &theirs.prefix;
            let committed =
                LedgerDir { files: &RealFiles, prefix }.complete(&record, &record.by(), None, NOW).is_ok();
            if committed {
                record.forget(LedgerDir::new(&RealFiles, prefix)).unwrap();
            }
            committed
        });
        files.stop_at(at + 1);
        let _ = finalize_arrived(&files, &stage.prefix, NOW);
        if !files.was_interrupted() {
            assert!(at > 10, "nothing was interrupted");
            break;
        }
        let job = outcome.lock().unwrap().take();
        if job == Some(true) {
            complete += 1;
            assert!(stage.is_listed(1) && stage.is_right(&cached), "stopped at {at}");
        }
        refused += u32::from(job == Some(false));
        finalize_arrived(&RealFiles, &stage.prefix, NOW).unwrap();
        assert!(stage.is_listed(1) && stage.is_right(&cached), "stopped at {at}: {job:?}");
        assert_eq!(stage.leftovers(), Vec::<PathBuf>::new(), "stopped at {at}: {job:?}");
    }
    assert!(complete > 0 && refused > 0, "{complete} complete, {refused} refused");
}

/// The node forgot its copies, and the flush waited for it for ever.
#[test]
fn a_flush_goes_on_after_its_file_system_was_away() {
    let nodes = Nodes::new();
    let cached = nodes.stage.cache(1, "a");
    nodes.begin(&cached, OPTIONS);
    let (prefix, away) = (nodes.stage.prefix.dir(), nodes.stage.dir.path().join("away"));
    fs::rename(prefix, &away).unwrap();
    // The mount point is still there.
    fs::create_dir(prefix).unwrap();
    let polled = nodes.poll(0);
    assert_eq!((polled.unfinished, polled.errors.len()), (true, 1), "{polled:?}");
    assert_eq!(nodes.records(0), 2);
    fs::remove_dir(prefix).unwrap();
    fs::rename(&away, prefix).unwrap();
    nodes.poll(0);
    nodes.poll(1);
    assert!(nodes.stage.is_listed(1) && nodes.stage.is_right(&cached));
}

/// It was read, taken away and renamed again once for each further rank that had it.
#[test]
fn a_file_that_ranks_share_gets_its_name_once() {
    let stage = Stage::new(4);
    let mut cached = stage.cache(1, "a");
    let shared = cached.by_rank[1][0].clone();
    [0, 2, 3].into_iter().for_each(|rank| cached.by_rank[rank].push(shared.clone()));
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Rename && path.display().to_string().contains("prefix/a/"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &cached);
    assert!(files.stopped() && !stage.is_listed(1));
    let files = FaultyFiles::new(RealFiles);
    finalize_arrived(&files, &stage.prefix, NOW).unwrap();
    assert!(stage.is_listed(1) && stage.is_right(&cached));
    let named = |done: &&scr_test_kit::faulty::Operation| {
        done.what == What::Rename && done.path.display().to_string().contains("prefix/a/")
    };
    assert_eq!(files.operations().iter().filter(named).count(), 8, "{:?}", files.operations());
}

/// The lock was looked at before the file was read, and not again before its name was taken away.
#[test]
fn who_has_lost_the_lock_takes_no_name_away_that_a_newer_dataset_has_got() {
    let stage = Arc::new(Stage::new(2));
    let (cached, newer) = (stage.cache(1, "a"), stage.cache(2, "a"));
    let newer = Arc::new(newer);
    let files = FaultyFiles::new(RealFiles);
    files.only(|_, path| path.ends_with("summary.scr"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &cached);
    assert!(files.stopped() && !stage.is_listed(1) && stage.is_right(&cached), "all files have their names");
    let kept = stage.keep();
    for at in 1.. {
        stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        files.count_all();
        let folder = stage.prefix.file(&"a".parse().unwrap());
        files.only(move |_, path| path.starts_with(&folder));
        let (theirs, flushed) = (Arc::clone(&stage), Arc::clone(&newer));
        files.interrupt_at(at, move || {
            let real: &dyn Files = &RealFiles;
            let lock = real.open(&theirs.prefix.scr_file("finalize.lock"), How::Update).unwrap();
            lock.set_times((1000, 0), (1000, 0)).unwrap();
            finalize_arrived(real, &theirs.prefix, NOW).unwrap();
            theirs.flush_well("2.x", &flushed);
        });
        let _ = finalize_arrived(&files, &stage.prefix, NOW);
        if !files.was_interrupted() {
            assert!(at > 5, "nothing was interrupted");
            break;
        }
        assert!(stage.is_listed(2) && stage.is_right(&newer), "interrupted at {at}");
        let done = files.operations();
        let (at, after) = (&done[at as usize - 1], &done[at as usize..]);
        // A rename that has begun cannot be stopped.
        if at.what != What::Rename {
            assert!(after.iter().all(|done| done.what != What::Rename), "interrupted at {at:?}: {after:?}");
        }
    }
}

/// The flush took the dataset over from the deletion, and lost its files to it.
#[test]
fn a_flush_waits_for_the_deletion_of_the_same_dataset() {
    let stage = Stage::new(2);
    let cached = stage.cache(1, "a");
    let files = FaultyFiles::new(RealFiles);
    files.only(|_, path| path.display().to_string().contains("done.1.x"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &cached);
    let record = pending::find(commit(&RealFiles, &stage).ledger, "1.x").unwrap().unwrap();
    record.mark_done(commit(&RealFiles, &stage).ledger, 0, &KvTree::new()).unwrap();
    let ledger = LedgerDir { files: &RealFiles, prefix: &stage.prefix };
    ledger.transact(&Request::BeginDeletion { id: 1, run: 0 }).unwrap();
    let turn = ledger.take(&record.dataset, &record.by(), None, &mut CommonFiles::default()).unwrap();
    assert!(matches!(turn, Turn::After(By::Deletion)));
    // The process that deleted is gone.
    finalize_arrived(&RealFiles, &stage.prefix, NOW).unwrap();
    assert!(stage.is_listed(1) && stage.is_right(&cached));
}

/// A flush whose files have their names, and which another process has then made complete.
fn completed_by_another(stage: &Stage) -> pending::PendingFlush {
    let files = FaultyFiles::new(RealFiles);
    files.only(|_, path| path.ends_with("summary.scr"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &stage.cache(1, "a"));
    let record = pending::find(commit(&RealFiles, stage).ledger, "1.x").unwrap().unwrap();
    finalize_arrived(&RealFiles, &stage.prefix, NOW).unwrap();
    assert!(files.stopped() && stage.is_listed(1));
    record
}

/// That process had removed the marks, and not yet the record. The job took the flush back, and reported that it had failed.
#[test]
fn a_job_learns_that_its_flush_is_complete_though_the_marks_are_gone() {
    let stage = Stage::new(2);
    let record = completed_by_another(&stage);
    record.write(commit(&RealFiles, &stage).ledger).unwrap();
    assert_eq!(commit(&RealFiles, &stage).resolve(&record), CloseOutcome::Complete);
    assert!(stage.is_listed(1));
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
}

/// `scr index --build` waited for the lock while a run that began finished what it had recorded. Then it took the names again,
/// found no record, and the dataset was complete no more.
#[test]
fn a_flush_that_another_process_has_finished_meanwhile_stays_complete() {
    let stage = Stage::new(2);
    let record = completed_by_another(&stage);
    LedgerDir { files: &RealFiles, prefix: &stage.prefix }
        .transact(&Request::NameAgain { dataset: &record.dataset, by: &record.by() })
        .unwrap();
    assert!(stage.is_listed(1), "without a record nobody would give the names");
    assert_eq!(commit(&RealFiles, &stage).finish(record).unwrap(), None);
    assert!(stage.is_listed(1));
}

/// That process had lost the lock to `scr index --build`, which then took the complete dataset back and called it incomplete.
#[test]
fn a_flush_that_another_process_makes_complete_while_it_is_finished_is_not_taken_back() {
    let stage = Arc::new(Stage::new(2));
    let cached = stage.cache(1, "a");
    let files = FaultyFiles::new(RealFiles);
    files.only(|_, path| path.ends_with("summary.scr"));
    files.stop_at(1);
    let _ = stage.flush(&files, &through(&RealFiles), "1.x", &cached);
    let record = pending::find(commit(&RealFiles, &stage).ledger, "1.x").unwrap().unwrap();
    let other = Some(Closer { number: "other", has_lock: &|| true });
    let ledger = LedgerDir { files: &RealFiles, prefix: &stage.prefix };
    let turn = ledger.take(&record.dataset, &record.by(), other, &mut CommonFiles::default()).unwrap();
    assert!(files.stopped() && matches!(turn, Turn::Done(())) && stage.is_right(&cached));
    let kept = stage.keep();
    let mut completed = 0;
    for at in 1.. {
        stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        files.count_all();
        let theirs = record.clone();
        let outcome = while_stopped_at(&files, at, &stage, move |stage| {
            LedgerDir { files: &RealFiles, prefix: &stage.prefix }
                .complete(&theirs, &theirs.by(), Some("other"), NOW)
                .is_ok()
        });
        let finished = commit(&files, &stage).finish(record.clone()).unwrap();
        assert!(finished.is_none(), "at {at}: {finished:?}");
        assert!(stage.is_listed(1) && stage.is_right(&cached), "at {at}");
        if !files.was_interrupted() {
            break;
        }
        completed += u32::from(*outcome.lock().unwrap() == Some(true));
    }
    assert!(completed > 5, "{completed}");
}
