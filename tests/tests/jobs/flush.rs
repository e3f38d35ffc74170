//! Flushes that are cut short, and prefix directories that cannot be written: under MPI, with the call of the system chosen
//! at which it happens.

use scr_tests::{has_namespaces, on_any_mpi, on_rank, Call, Cluster, Job, Mpi, ParallelFs, Program};
use std::path::{Path, PathBuf};

const RANKS: u32 = 4;
/// The content of a parallel file system: all datasets, or the first and a part of the second.
const ENOUGH: u64 = 64 << 20;
const TOO_SMALL: u64 = 4 << 20;

fn job(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    cluster.job(mpi, RANKS, Program::CkptTest).options(&[("files", 2), ("size", 300_000)]).env("SCR_FLUSH", 1)
}

/// One whose nodes are names only.
fn job_by_names(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    job(cluster, mpi).env("PRETEND_MODE", "names")
}

fn lose_all(cluster: &mut Cluster) {
    (0..RANKS).for_each(|node| cluster.lose_node(node));
}

/// Files that lie below a prefix directory only while a flush is under way.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let record = name.starts_with("recorded.")
            || name.starts_with("done.")
            || name.starts_with("flush.") && name != "flush.scr";
        if entry.path().is_dir() && !record {
            found.extend(leftovers(&entry.path()));
        } else if record || name.ends_with(".part") {
            found.push(entry.path());
        }
    }
    found
}

/// The moments of the flush of `ckpt.2`: the transport, whether the application continues meanwhile, and the call.
const MOMENTS: [(&str, u32, Call); 8] = [
    ("SYNC", 0, on_rank(0, "rename", "/flush.2.", 1)),
    ("SYNC", 0, on_rank(1, "write", "/ckpt.2/", 1)),
    ("PTHREAD", 1, on_rank(2, "write", "/ckpt.2/", 2)),
    ("PTHREAD", 0, on_rank(1, "fsync", "/ckpt.2/", 1)),
    ("PTHREAD", 1, on_rank(0, "rename", "/done.2.", 1)),
    ("SYNC", 0, on_rank(1, "rename", "/ckpt.2/", 2)),
    ("PTHREAD", 1, on_rank(0, "rename", "dataset.2/summary.scr", 1)),
    ("SYNC", 0, on_rank(0, "unlink", "/done.2.", 1)),
];

on_any_mpi! {
    #[ignore = "long"]
    fn a_job_that_dies_at_any_moment_of_a_flush_leaves_it_to_be_finished_or_done_again(mpi: Mpi) {
        for (transport, detached, moment) in MOMENTS {
            let mut cluster = Cluster::new(RANKS);
            let job_to_die = job(&mut cluster, mpi).env("SCR_FLUSH_TYPE", transport).env("SCR_FLUSH_ASYNC", detached);
            job_to_die.at(moment, "kill").run().expect_death();
            let again = job(&mut cluster, mpi).options(&[("datasets", 1)]).run().expect_success();
            let from = again.restarted_from();
            assert!(matches!(from, Some("ckpt.2" | "ckpt.3")), "{moment:?}: restarted from {from:?}");
            assert_eq!(leftovers(&cluster.prefix()), Vec::<PathBuf>::new(), "{moment:?}");
            lose_all(&mut cluster);
            let fetched = job(&mut cluster, mpi).options(&[("read-only", 1)]).env("SCR_CURRENT", "ckpt.2");
            assert_eq!(fetched.run().expect_success().restarted_from(), Some("ckpt.2"), "{moment:?}");
        }
    }

    fn a_failing_prefix_directory_is_reported_and_used_when_it_is_back(mpi: Mpi) {
        let errors = [
            (rustix::io::Errno::NOSPC.raw_os_error().to_string(), "No space left on device"),
            (rustix::io::Errno::ROFS.raw_os_error().to_string(), "Read-only file system"),
            ("hide".to_owned(), "of this run is not there, or another directory is in its place"),
        ];
        for (act, text) in errors {
            let mut cluster = Cluster::new(RANKS);
            let options = [("datasets", 2), ("output", 1)];
            let failing = job(&mut cluster, mpi).options(&options).options(&[("no-finalize", 1)]);
            let failed = failing.at(on_rank(1, "write", "/ckpt.2/", 2), &act).run();
            assert!(failed.prints_line("COMPLETE ckpt.1 0") && failed.prints_line("COMPLETE ckpt.2 1"), "{text}");
            let rest = if act == "hide" { "scr poststage tries again" } else { "it is kept in cache" };
            assert!(failed.prints(text) && failed.prints(rest), "{text}");
            let hidden = cluster.prefix().with_extension("hidden");
            if hidden.exists() {
                std::fs::remove_dir_all(cluster.prefix()).ok();
                std::fs::rename(&hidden, cluster.prefix()).unwrap();
            }
            let again = job(&mut cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
            assert_eq!(again.restarted_from(), Some("ckpt.2"), "{text}");
            assert_eq!(leftovers(&cluster.prefix()), Vec::<PathBuf>::new(), "{text}");
            lose_all(&mut cluster);
            let fetched = job(&mut cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
            assert_eq!(fetched.restarted_from(), Some("ckpt.2"), "{text}");
        }
    }

    fn every_rank_reports_a_parallel_file_system_that_fails_during_a_job(mpi: Mpi) {
        if !has_namespaces("a parallel file system with troubles") {
            return;
        }
        // Also whether the flush is detached, and what SCR_Complete_output then returns.
        type Trouble = (&'static str, fn(&ParallelFs) -> String, fn(&ParallelFs) -> String, u32, u32);
        let troubles: [Trouble; 3] = [
            ("No space left on device", |fs| fs.has_room(TOO_SMALL), |fs| fs.has_room(ENOUGH), 0, 1),
            // The error occurs only after that call, and the next call reports it.
            ("Read-only file system", ParallelFs::becomes_read_only, ParallelFs::becomes_writable, 1, 0),
            ("of this run is not there", ParallelFs::goes, ParallelFs::comes_back, 1, 1),
        ];
        for (text, comes, ends, detached, code) in troubles {
            let mut cluster = Cluster::new(RANKS);
            let fs = ParallelFs::new(&cluster, ENOUGH);
            let troubled = job_by_names(&mut cluster, mpi).env("SCR_FLUSH_TYPE", "PTHREAD").env("SCR_FLUSH_ASYNC", detached);
            let run = troubled
                .options(&[("datasets", 3), ("output", 1), ("codes", 1)])
                .args(["--run".to_owned(), format!("complete:2:{}", comes(&fs))])
                .args(["--run".to_owned(), format!("complete:3:{}", ends(&fs))])
                .run()
                .expect_success();
            assert!(run.prints(text) && run.prints("it is kept in cache"), "{text}");
            for (name, code) in [("ckpt.1", 0), ("ckpt.2", code), ("ckpt.3", 0)] {
                let codes = vec![code.to_string(); RANKS as usize].join(" ");
                assert!(run.prints_line(&format!("CODES {name} {codes}")), "{text}: {name}");
            }
            lose_all(&mut cluster);
            for name in ["ckpt.3", "ckpt.2"] {
                let fetched = job_by_names(&mut cluster, mpi).options(&[("read-only", 1)]).env("SCR_CURRENT", name).run().expect_success();
                assert_eq!(fetched.restarted_from(), Some(name), "{text}");
            }
            // Files that could not be removed meanwhile are gone by now.
            assert_eq!(leftovers(&cluster.prefix()), Vec::<PathBuf>::new(), "{text}");
        }
    }

    fn one_file_that_all_ranks_write_in_bypass_mode_is_read_by_the_next_run(mpi: Mpi) {
        let mut cluster = Cluster::new(RANKS);
        let shared = [("shared", 1), ("files", 1), ("datasets", 2)];
        for from in [None, Some("ckpt.2")] {
            let run = cluster.job(mpi, RANKS, Program::CkptTest).options(&shared).env("SCR_CACHE_BYPASS", 1);
            assert_eq!(run.run().expect_success().restarted_from(), from);
        }
        let bytes = std::fs::metadata(cluster.prefix().join("ckpt.4/shared")).unwrap().len();
        assert_eq!(bytes, u64::from(RANKS) * 100_000);
        // Nothing but the prefix directory is left.
        lose_all(&mut cluster);
        let run = cluster.job(mpi, RANKS, Program::CkptTest).options(&shared).env("SCR_CACHE_BYPASS", 1);
        assert_eq!(run.options(&[("read-only", 1)]).run().expect_success().restarted_from(), Some("ckpt.4"));
    }
}
