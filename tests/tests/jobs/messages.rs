//! The lines of `SCR_DEBUG` in a job's output: scripts of users look for the words before the figures, as C SCR has them.

use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Outcome, Program};

fn job(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    let job = cluster.job(mpi, 4, Program::CkptTest).options(&[("datasets", 2), ("size", 1000)]);
    job.env("SCR_DEBUG", 1).env("SCR_FLUSH", 2).env("SCR_CACHE_SIZE", 1)
}

/// The text of each line after version, rank and node, up to its first digit.
fn assert_said(run: &Outcome, expected: &[&str]) {
    let of_scr = |line: &&str| line.starts_with(concat!("SCR v", env!("CARGO_PKG_VERSION"), ": rank "));
    let lines: Vec<_> =
        run.lines().filter(of_scr).filter_map(|line| line.split_once(" on n")?.1.split_once(": ")).collect();
    for words in expected {
        assert!(lines.iter().any(|(_, text)| text.starts_with(words)), "no line begins with `{words}'");
    }
}

on_any_mpi! {
    fn the_lines_that_users_of_c_scr_look_for_are_in_the_output(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let written = job(&mut cluster, mpi).env("SCR_DEBUG", 2).run().expect_success();
        assert_said(&written, &[
            "SCR_DEBUG=2",
            "SCR_PREFIX=",
            "SCR_CACHE_SIZE=1",
            "SCR_LOG_DB_PASS=(null)",
            "Group descriptors:",
            "Store descriptors:",
            "Redundancy descriptors:",
            "NPROCS=4",
            "NNODES=4",
            "scr_fetch_latest: return code ",
            "Starting dataset 1 `ckpt.1'",
            "scr_start_output: ",
            "app write stats: ",
            "scr write stats: ",
            "scr_reddesc_apply: ",
            "scr_complete_output: ",
            "start to complete: ",
            "Deleting dataset 1 `ckpt.1' from cache",
            "Initiating flush of dataset 2 `ckpt.2'",
            "scr_flush_sync: ",
            "scr_flush_sync: Flush succeeded for dataset 2 `ckpt.2'",
        ]);
        cluster.lose_node(1);
        let rebuilt = job(&mut cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
        assert_said(&rebuilt, &[
            "Attempting to distribute and rebuild dataset 2",
            "Rebuilt dataset 2",
            "Scalable restart succeeded for checkpoint 2, took ",
        ]);
        (0..4).for_each(|node| cluster.lose_node(node));
        let fetched = job(&mut cluster, mpi).options(&[("read-only", 1)]).env("SCR_DEBUG", 2).run().expect_success();
        assert_said(&fetched, &["SCR_DEBUG=2", "Attempting fetch: ckpt.2", "scr_fetch_dset: ", "scr_fetch_latest: return code 0, "]);
        let quiet = job(&mut cluster, mpi).options(&[("read-only", 1)]).env("SCR_DEBUG", 0).run().expect_success();
        assert!(!quiet.prints("NPROCS=") && !quiet.prints("scr_fetch_latest"));
    }

    /// Up to six lines of scr were among the results that applications print.
    fn standard_output_is_the_applications_alone(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let mut run = |read_only: i64, settings: &[(&str, &str)]| {
            let job = job(&mut cluster, mpi).options(&[("read-only", read_only)]).env("SCR_DEBUG", 0);
            settings.iter().fold(job, |job, (name, value)| job.env(name, value)).run().expect_success()
        };
        let written = run(0, &[("SCR_PKG", "/src"), ("SCR_INSTALL", "/opt"), ("SCR_LAUNCH_DIR", "/pfs")]);
        assert_eq!(written.output(), ["COMPLETE ckpt.1 0", "COMPLETE ckpt.2 0", "DONE", "FRESH"]);
        assert!(!written.prints("there is no parameter"), "scripts of C SCR export these names");
        let read = run(1, &[]);
        assert_eq!(read.output(), ["DONE", "RESTARTED ckpt.2"]);
        assert!(read.prints("restarting from dataset 2 `ckpt.2'"), "on standard error");
    }
}
