//! Jobs that `scr run` starts on pretend nodes: they are restarted when a node is lost or a rank hangs, and give the same answer.

use scr_tests::{needs_namespaces, on_any_mpi, on_rank, Cluster, Job, Mpi, Program};
use std::path::{Path, PathBuf};

/// Four ranks, one on each node; a fifth node is spare.
fn heat<'a>(cluster: &'a mut Cluster, mpi: Mpi, result: &Path) -> Job<'a> {
    let options = ["--size", "200", "--steps", "60", "--every", "10", "--pause-ms", "30", "--result"];
    cluster.job(mpi, 4, Program::Heat2d).args(options).args([result.display()])
}

/// One that comes no further than to this checkpoint, until it is let go.
fn heat_held_at<'a>(cluster: &'a mut Cluster, mpi: Mpi, result: &Path, checkpoint: u32) -> Job<'a> {
    let go = format!("wait:{}", gate(cluster).display());
    // The flush file is written when the job begins, and when a checkpoint is complete in cache.
    heat(cluster, mpi, result).by_scr_run(1).at(on_rank(0, "rename", "/flush.scr", 1 + checkpoint), &go)
}

fn let_go(cluster: &Cluster) {
    std::fs::write(gate(cluster), "").expect("a file can be made");
}

fn gate(cluster: &Cluster) -> PathBuf {
    cluster.scratch().join("continues")
}

/// The answer of a run without scr.
fn plain_answer(mpi: Mpi) -> Vec<u8> {
    let mut cluster = Cluster::new(1);
    let result = cluster.scratch().join("plain");
    let options = ["--size", "200", "--steps", "60", "--no-scr", "--result"];
    assert!(cluster.job(mpi, 4, Program::Heat2d).args(options).args([result.display()]).run().succeeded());
    std::fs::read(result).expect("an answer")
}

on_any_mpi! {
    fn a_lost_node_is_replaced_by_the_spare_one_and_the_answer_is_right(mpi: Mpi) {
        needs_namespaces!();
        let mut cluster = Cluster::new(5);
        let result = cluster.scratch().join("result");
        let job = heat_held_at(&mut cluster, mpi, &result, 4);
        let mut running = job.env("SCR_RUNS", 3).env("SCR_LOG_ENABLE", 1).env("SCR_LOG_SYSLOG_ENABLE", 0).start();
        running.wait_for("checkpoint heat.000030 is complete");
        cluster.lose_node(1);
        let_go(&cluster);
        let ended = running.finish();
        assert!(ended.succeeded(), "the job has failed");
        assert!(ended.prints("scr run: node n1 is left out: ssh: no route to n1"));
        assert!(ended.prints("scr run: run 2: "));
        assert!(ended.prints("heat2d: restarted from heat.0000"), "the job started from the beginning");
        assert!(std::fs::read(&result).expect("an answer") == plain_answer(mpi), "the answers differ");
        assert!(!cluster.files_of(4).is_empty(), "the spare node was not used");
        let log = std::fs::read_to_string(cluster.prefix().join(".scr/log")).expect("a log");
        for event in ["RUN_START, note=\"run=2\"", "NODE_FAIL", "REBUILD_SUCCESS", "RUN_END, note=\"run=2, status=0\""] {
            assert!(log.contains(event), "{event} is not in the log");
        }
    }

    fn without_a_spare_node_the_job_is_saved_for_another_allocation(mpi: Mpi) {
        needs_namespaces!();
        let mut cluster = Cluster::new(4);
        let result = cluster.scratch().join("result");
        let mut running = heat_held_at(&mut cluster, mpi, &result, 2).env("SCR_RUNS", 3).start();
        running.wait_for("checkpoint heat.000010 is complete");
        cluster.lose_node(2);
        let_go(&cluster);
        let ended = running.finish();
        assert!(!ended.succeeded() && !ended.timed_out());
        assert!(ended.prints("3 nodes can be used and 4 are needed: the last run had as many"));
        assert!(!ended.prints("scr run: run 2: "));
        // The parts of the lost node are rebuilt from the others, so that another allocation continues from there.
        assert!(ended.prints("is complete in ") && ended.prints("; the parts of ranks 2 were rebuilt"));
        (0..4).for_each(|node| cluster.lose_node(node));
        let restarted = heat(&mut cluster, mpi, &result).env("SCR_JOB_ID", "another").run();
        assert!(restarted.succeeded() && restarted.prints("heat2d: restarted from heat.0000"), "it started from the beginning");
        assert!(std::fs::read(&result).expect("an answer") == plain_answer(mpi), "the answers differ");
    }

    fn a_job_with_a_rank_that_hangs_is_ended_and_goes_on_from_its_checkpoint(mpi: Mpi) {
        needs_namespaces!();
        let mut cluster = Cluster::new(4);
        let result = cluster.scratch().join("result");
        let job = heat_held_at(&mut cluster, mpi, &result, 3).env("SCR_RUNS", 2);
        // Much longer than a checkpoint takes on a busy machine.
        let watched = [("SCR_WATCHDOG", 1), ("SCR_WATCHDOG_TIMEOUT", 8), ("SCR_WATCHDOG_TIMEOUT_PFS", 60)];
        let mut running = watched.into_iter().fold(job, |job, (name, value)| job.env(name, value)).start();
        running.wait_for("checkpoint heat.000020 is complete");
        cluster.freeze_ranks_of(3, &Program::Heat2d.path(mpi));
        let_go(&cluster);
        let ended = running.finish();
        assert!(ended.succeeded(), "the job has failed");
        assert!(ended.prints("scr run: run 1 has written no checkpoint for"));
        assert!(ended.prints("heat2d: restarted from heat.0000"), "the job started from the beginning");
        assert!(std::fs::read(&result).expect("an answer") == plain_answer(mpi), "the answers differ");
    }
}
