//! Flushes on threads, while the ranks compute.

use super::stage::{finalize_pending, through, Stage, Through, NOW, OPTIONS};
use crate::flush::Options;
use scr_base::fs::RealFiles;
use scr_comm::collective::barrier;
use scr_plugin_api::{CopyJob, CopyState, PluginError, PluginErrorKind, Transport};
use scr_prefix::commit::FlushOutcome;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A transport that copies on request, in the thread that waits for it.
#[derive(Default)]
struct Gated {
    open: AtomicBool,
    stopped: AtomicBool,
    /// The number of copies under way, the most that ever were, and all that were ever begun.
    now: AtomicU32,
    most: AtomicU32,
    begun: AtomicU32,
    jobs: Mutex<HashMap<Vec<u8>, CopyJob>>,
    panics: bool,
}

impl Gated {
    fn open() -> Self {
        Self { open: AtomicBool::new(true), ..Self::default() }
    }

    fn state(&self) -> CopyState {
        match (self.stopped.load(Ordering::SeqCst), self.open.load(Ordering::SeqCst)) {
            (true, _) => CopyState::Failed(PluginError::new(PluginErrorKind::Cancelled, "stopped")),
            (_, true) => CopyState::Done,
            (_, false) => CopyState::Running(0),
        }
    }
}

impl Transport for Gated {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        assert!(!self.panics, "a transport with a mistake");
        let ticket = job.token.clone().into_bytes();
        self.jobs.lock().unwrap().insert(ticket.clone(), job.clone());
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Ok(ticket)
    }
    fn poll(&self, _ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.state())
    }
    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        while matches!(self.state(), CopyState::Running(_)) {
            std::thread::yield_now();
        }
        let ended = match self.state() {
            CopyState::Done => Through::new(RealFiles).start(&self.jobs.lock().unwrap()[ticket]),
            _ => Ok(Vec::new()),
        };
        self.now.fetch_sub(1, Ordering::SeqCst);
        ended.map(|_| self.state())
    }
    fn cancel(&self, _ticket: &[u8]) -> Result<(), PluginError> {
        self.stopped.store(true, Ordering::SeqCst);
        Ok(())
    }
    fn crc(&self, _ticket: &[u8], _item: usize) -> Option<u32> {
        None
    }
}

fn shared(transport: &Arc<Gated>) -> Arc<dyn Transport> {
    Arc::<Gated>::clone(transport)
}

#[test]
fn a_flush_may_go_on_while_the_ranks_compute() {
    let stage = Stage::new(4);
    let cached = stage.cache(1, "a");
    let transport = Arc::new(Gated::default());
    stage.on_all(&RealFiles, &shared(&transport), OPTIONS, |flush, rank| {
        let begun = flush.begin(cached.to_flush("1", rank));
        let mut started = begun.unwrap();
        assert!(flush.is_running(&started).unwrap(), "it is still to be set off");
        assert!(stage.leftovers().is_empty(), "nothing is changed before");
        barrier(&*flush.job.comm).unwrap();
        flush.start_copying(&mut started);
        assert!(flush.is_running(&started).unwrap());
        assert!(!stage.is_listed(1));
        barrier(&*flush.job.comm).unwrap();
        transport.open.store(true, Ordering::SeqCst);
        while flush.is_running(&started).unwrap() {}
        flush.finish(started).unwrap();
    });
    assert!(stage.is_listed(1) && stage.is_right(&cached));
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn never_are_more_ranks_copying_than_allowed_and_all_get_their_turn_without_a_call() {
    for (ranks, width) in [(7, 1), (7, 3), (4, 256), (3, 0)] {
        let stage = Stage::new(ranks);
        let cached = stage.cache(1, "a");
        let transport = Arc::new(Gated::open());
        let options = Options { width, ..OPTIONS };
        stage.on_all(&RealFiles, &shared(&transport), options, |flush, rank| {
            let begun = flush.begin(cached.to_flush("1", rank));
            let mut started = begun.unwrap();
            flush.start_copying(&mut started);
            while transport.begun.load(Ordering::SeqCst) < ranks {
                std::thread::yield_now();
            }
            flush.finish(started).unwrap();
        });
        let most = transport.most.load(Ordering::SeqCst);
        assert!(most <= width.max(1), "{most} of {ranks} copied at a time where {width} may");
        assert!(stage.is_listed(1) && stage.is_right(&cached));
        assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
    }
}

#[test]
fn no_file_is_created_before_the_flush_record_is_synced() {
    for width in [1, 256] {
        let stage = Stage::new(5);
        let cached = stage.cache(1, "a");
        let files = FaultyFiles::new(RealFiles);
        stage.on_all(&files, &through(&files), Options { width, ..OPTIONS }, |flush, rank| {
            let begun = flush.begin(cached.to_flush("1.x", rank));
            let mut started = begun.unwrap();
            flush.start_copying(&mut started);
            flush.finish(started).unwrap();
        });
        let operations = files.operations();
        let place =
            |what: &dyn Fn(&scr_test_kit::faulty::Operation) -> bool| operations.iter().position(what);
        let named = place(&|operation| {
            operation.what == What::Rename
                && operation.to.as_ref().is_some_and(|to| to.ends_with(".scr/flush.1.x"))
        })
        .unwrap();
        let synced = named + operations[named..].iter().position(|one| one.what == What::SyncDir).unwrap();
        let is_part = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "part");
        let made =
            place(&|operation| operation.what == What::OpenToWrite && is_part(&operation.path)).unwrap();
        assert!(made > synced, "a hidden file at {made}, the record at {named}, synced at {synced}");
    }
}

#[test]
fn all_ranks_report_a_failed_record_and_none_waits_for_it() {
    let stage = Stage::new(4);
    let cached = stage.cache(1, "a");
    // A file where the record of the flush belongs.
    fs::create_dir_all(stage.prefix.scr_file("flush.1.x")).unwrap();
    let failed = stage.flush_in_background(&RealFiles, "1.x", &cached).unwrap_err().to_string();
    assert!(failed.contains("recording what is to come failed: rank 0"), "{failed}");
    assert!(!stage.is_listed(1), "{failed}");
    // The record was given up with the flush.
    fs::remove_dir(stage.prefix.scr_file("revoked.1.x")).unwrap();
    let cached = stage.cache(2, "b");
    fs::write(stage.prefix.file(&"b".parse().unwrap()), "in the way of a folder").unwrap();
    let failed = stage.flush_in_background(&RealFiles, "2.x", &cached).unwrap_err().to_string();
    assert!(failed.contains("making the folders failed: rank"), "{failed}");
    fs::remove_file(stage.prefix.file(&"b".parse().unwrap())).unwrap();
    stage.flush_in_background(&RealFiles, "3.x", &cached).unwrap();
    assert!(stage.is_listed(2) && stage.is_right(&cached));
}

#[test]
fn nobody_waits_for_a_rank_whose_thread_panics() {
    let stage = Stage::new(4);
    let cached = stage.cache(1, "a");
    let transport = Arc::new(Gated { panics: true, ..Gated::open() });
    let options = Options { width: 1, ..OPTIONS };
    stage.on_all(&RealFiles, &shared(&transport), options, |flush, rank| {
        let begun = flush.begin(cached.to_flush("1.x", rank));
        let mut started = begun.unwrap();
        flush.start_copying(&mut started);
        // The others wait for their turn, which never comes.
        let failed = flush.finish(started).unwrap_err().to_string();
        assert!(failed.contains("copying failed: rank 0") && failed.contains("panicked"), "{failed}");
    });
    assert!(!stage.is_listed(1));
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn a_half_finished_flush_of_a_dead_application_is_removed() {
    let stage = Stage::new(4);
    let cached = stage.cache(1, "a");
    let transport = Arc::new(Gated::default());
    stage.on_all(&RealFiles, &shared(&transport), OPTIONS, |flush, rank| {
        let begun = flush.begin(cached.to_flush("1.x", rank));
        let mut started = begun.unwrap();
        flush.start_copying(&mut started);
        while transport.begun.load(Ordering::SeqCst) < 4 {
            std::thread::yield_now();
        }
        // Its thread ends with it.
        drop(started);
    });
    assert_eq!(transport.now.load(Ordering::SeqCst), 0);
    assert!(!stage.leftovers().is_empty());
    let ended = finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap();
    assert!(matches!(&ended[..], [FlushOutcome::Revoked { dataset, .. }] if dataset.id == 1), "{ended:?}");
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
    assert!(!stage.is_listed(1));
    assert_eq!(finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap(), []);
}
