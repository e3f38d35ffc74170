//! Jobs that flush through a burst buffer, with stand-ins for the vendors' libraries: after any death meanwhile, the next run has
//! every byte.

use scr_test_plugins::standin::Standin;
use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Program};
use std::path::Path;
use std::time::{Duration, Instant};

const RANKS: u32 = 4;
const NODES: u32 = 2;
/// The bytes of each rank in each dataset.
const FILES: i64 = 2;

/// The transports, and what else a `STORE` line says.
const BUFFERS: [(&str, &str, &str); 2] =
    [("BBAPI", "standin_bbapi", "EXTENTS=0"), ("DATAWARP", "standin_datawarp", "")];

/// A cluster whose jobs flush with this transport.
fn cluster(transport: &str, standin: &str, more: &str) -> (Cluster, Standin) {
    let cluster = Cluster::new(NODES);
    let standin = Standin::within(standin, cluster.scratch());
    let library = standin.library().display();
    let line = format!("STORE=/dev/shm FLUSH={transport} LIBRARY={library} {more}\n");
    std::fs::write(cluster.prefix().join(".scrconf"), line).unwrap();
    (cluster, standin)
}

fn job(cluster: &mut Cluster, mpi: Mpi, asynchronous: bool) -> Job<'_> {
    let job = cluster.job(mpi, RANKS, Program::CkptTest).options(&[("files", FILES), ("size", 20_000)]);
    job.env("SCR_FLUSH", 1).env("SCR_FLUSH_ASYNC", u8::from(asynchronous))
}

/// All nodes lose what they store, so that a restart can only fetch.
fn forget_cache(cluster: &Cluster) {
    for node in 0..NODES {
        let storage = cluster.node_storage(node);
        std::fs::remove_dir_all(&storage).unwrap();
        std::fs::create_dir(&storage).unwrap();
    }
}

/// Restarts without writing, and looks at every byte.
fn restart(cluster: &mut Cluster, mpi: Mpi) -> String {
    let restarted = job(cluster, mpi, false).options(&[("read-only", 1)]).run().expect_success();
    restarted.restarted_from().unwrap_or("nothing").to_owned()
}

fn hidden_files(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".part")).count()
}

/// How `scr poststage` ends on a node.
fn poststage(cluster: &Cluster, mpi: Mpi, node: u32) -> Option<i32> {
    cluster.scr_on(node, mpi, &["poststage"]).output().unwrap().status.code()
}

/// Nodes that have said that their files have arrived.
fn done(cluster: &Cluster) -> usize {
    let names = std::fs::read_dir(cluster.prefix().join(".scr")).unwrap().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with("done.")).count()
}

fn is_listed(cluster: &Cluster, mpi: Mpi, name: &str) -> bool {
    let listed = cluster.scr(mpi, &["index", "--list", "--json"]);
    let text = String::from_utf8_lossy(&listed.stdout).replace(' ', "");
    text.split('{')
        .any(|entry| entry.contains(&format!("\"name\":\"{name}\"")) && entry.contains("\"valid\":true"))
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it has not come within a minute");
        std::thread::yield_now();
    }
}

/// A job dies while the burst buffer has the first halves of the first checkpoint. Whether the next run finishes that flush
/// or does it anew, a job that has nothing but the prefix directory restarts from it.
fn dies_in_the_middle(mpi: Mpi, asynchronous: bool) {
    for (transport, library, more) in BUFFERS {
        let (mut cluster, standin) = cluster(transport, library, more);
        standin.set("half", "");
        let begun = usize::try_from(FILES * i64::from(RANKS)).unwrap();
        if asynchronous {
            let options = [("datasets", 3), ("kill-rank", 1), ("kill-dataset", 2)];
            let killed = job(&mut cluster, mpi, true).options(&options).args(["--kill-at", "write"]).run();
            killed.expect_death();
        } else {
            let running = job(&mut cluster, mpi, false).options(&[("datasets", 3)]).start();
            let deadline = Instant::now() + Duration::from_secs(60);
            while standin.begun() < begun {
                assert!(Instant::now() < deadline, "{transport}: the flush does not begin");
                std::thread::yield_now();
            }
            cluster.kill_processes_of(1);
            running.finish().expect_death();
        }
        assert_eq!(standin.begun(), begun, "{transport}");
        assert_eq!(hidden_files(&cluster.prefix().join("ckpt.1")), begun, "{transport}");
        standin.unset("half");
        assert_eq!(restart(&mut cluster, mpi), "ckpt.1", "{transport}");
        assert_eq!(hidden_files(&cluster.prefix().join("ckpt.1")), 0, "{transport}");
        forget_cache(&cluster);
        assert_eq!(restart(&mut cluster, mpi), "ckpt.1", "{transport}");
    }
}

on_any_mpi! {
    fn another_job_fetches_the_flush_of_a_burst_buffer(mpi: Mpi) {
        for ((transport, library, more), asynchronous) in BUFFERS.into_iter().zip([true, false]) {
            let (mut cluster, standin) = cluster(transport, library, more);
            let run = job(&mut cluster, mpi, asynchronous).options(&[("datasets", 3)]);
            run.run().expect_success();
            assert!(standin.begun() > 3 * 4, "{transport} copied {} files", standin.begun());
            forget_cache(&cluster);
            assert_eq!(restart(&mut cluster, mpi), "ckpt.3", "{transport}");
        }
    }

    fn death_in_the_middle_of_a_flush_by_a_burst_buffer_loses_nothing(mpi: Mpi) {
        dies_in_the_middle(mpi, false);
    }

    fn death_during_a_detached_burst_buffer_flush_loses_nothing(mpi: Mpi) {
        dies_in_the_middle(mpi, true);
    }

    fn poststage_or_the_next_run_finishes_a_burst_buffer_flush(mpi: Mpi) {
        for (transport, library, more) in BUFFERS {
            let (mut cluster, standin) = cluster(transport, library, more);
            standin.set("half", "");
            // Its turn to be flushed does not come before SCR_Finalize, which does not wait for a copy that never ends.
            let left = job(&mut cluster, mpi, true).env("SCR_FLUSH", 10).env("SCR_FLUSH_POSTSTAGE", 1);
            let left = left.options(&[("datasets", 1)]).run().expect_success();
            assert!(left.prints("scr_poststage finishes it"), "{transport}");
            // Nothing has arrived whole; then all of one node, which is not enough.
            assert_eq!(poststage(&cluster, mpi, 0), Some(1), "{transport}");
            standin.unset("half");
            until(|| poststage(&cluster, mpi, 0) == Some(1) && done(&cluster) == 1);
            assert!(!is_listed(&cluster, mpi, "ckpt.1"), "{transport}: listed with one node of two");
            until(|| poststage(&cluster, mpi, 1) == Some(0));
            assert!(is_listed(&cluster, mpi, "ckpt.1"), "{transport}");
            let begun = standin.begun();
            // The next one is finished by the run after it.
            let ends = [("datasets", 1), ("no-finalize", 1)];
            job(&mut cluster, mpi, true).options(&ends).run().expect_success();
            assert!(!is_listed(&cluster, mpi, "ckpt.2"), "{transport}");
            let next = job(&mut cluster, mpi, true).options(&[("read-only", 1)]).run().expect_success();
            assert!(!next.prints("rolled back"), "{transport}");
            assert!(is_listed(&cluster, mpi, "ckpt.2"), "{transport}");
            assert_eq!(standin.begun(), 2 * begun, "{transport}: something was copied twice");
            assert_eq!((done(&cluster), hidden_files(&cluster.prefix().join("ckpt.2"))), (0, 0), "{transport}");
            forget_cache(&cluster);
            assert_eq!(restart(&mut cluster, mpi), "ckpt.2", "{transport}");
        }
    }

    fn a_missing_vendor_library_is_reported_and_the_checkpoint_stays_in_cache(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        std::fs::write(cluster.prefix().join(".scrconf"), "SCR_DEBUG=1\nSTORE=/dev/shm FLUSH=DATAWARP\n").unwrap();
        let run = job(&mut cluster, mpi, false).options(&[("datasets", 1)]).run();
        assert!(run.prints(".scrconf:2: the transport DATAWARP refuses: ") && run.prints("Cray's DataWarp"));
        assert!(run.prints("LIBRARY=/path/libdatawarp.so") && run.prints("it is kept in cache"));
        assert!(!run.timed_out());
        let restarted = job(&mut cluster, mpi, false).env("SCR_FLUSH", 0).options(&[("read-only", 1)]).run();
        assert_eq!(restarted.expect_success().restarted_from(), Some("ckpt.1"));
    }
}
