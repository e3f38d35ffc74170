//! `scr run` under a real Slurm, whose nodes are pretend nodes: a node is lost in the middle of a job.
//!
//! Not part of `cargo test`, since it starts daemons and waits for Slurm to notice: `make test-slurm`.

use scr_tests::{has_namespaces, run_if_there, stage, Cluster, Mpi, Program, Slurm};
use std::path::Path;
use std::process::Command;

const OPTIONS: [&str; 6] = ["--size", "200", "--steps", "60", "--every", "10"];

/// `scr run srun` in an allocation of this many nodes, with three ranks on three of them.
fn command(mpi: Mpi, nodes: u32, result: &Path) -> Command {
    let mut command = Command::new("salloc");
    command.args(["--quiet", "--no-kill", "--time=30"]).arg(format!("--nodes={nodes}"));
    command.arg(stage(mpi).join("bin/scr_run"));
    // The pause of Slurm's description is for machines that are larger than this one.
    command.args(["--pause=1", "srun", "--mpi=pmi2", "--nodes=3", "--ntasks=3"]);
    command.arg(Program::Heat2d.path(mpi)).args(OPTIONS).args(["--pause-ms", "50", "--result"]).arg(result);
    let settings = [("SCR_CACHE_BYPASS", "0"), ("SCR_FLUSH", "0"), ("SCR_RUNS", "3"), ("SCR_DEBUG", "1")];
    command.envs(settings).env("SCR_HALT_SECONDS", "60");
    command
}

/// The answer of a run without scr.
fn plain_answer(mpi: Mpi) -> Vec<u8> {
    let mut cluster = Cluster::new(1);
    let result = cluster.scratch().join("plain");
    let job = cluster.job(mpi, 3, Program::Heat2d).args(OPTIONS).args(["--no-scr", "--result"]);
    assert!(job.args([result.display()]).run().succeeded());
    std::fs::read(result).expect("an answer")
}

/// Debian's Slurm speaks PMI-2, as MPICH does.
fn with_slurm(test: &str, body: fn(Mpi)) {
    if has_namespaces(test) {
        run_if_there(Mpi::Mpich, test, body);
    }
}

#[test]
fn a_lost_node_is_replaced_by_the_spare_one_and_the_answer_is_right() {
    with_slurm("a spare node under Slurm", |mpi| {
        let mut cluster = Cluster::new(1);
        let result = cluster.scratch().join("result");
        let slurm = Slurm::start(4);
        let mut running = slurm.run(command(mpi, 4, &result), &mut cluster);
        running.wait_for("checkpoint heat.000030 is complete");
        slurm.lose_node("n1");
        let ended = running.finish();
        assert!(ended.succeeded(), "the job has failed");
        assert!(ended.prints("scr run: node n1 is left out: "));
        assert!(ended.prints("scr run: run 2: srun -K1 --exclude=n1 "));
        assert!(ended.prints("heat2d: restarted from heat.0000"), "the job started from the beginning");
        assert!(std::fs::read(result).expect("an answer") == plain_answer(mpi), "the answers differ");
    });
}

#[test]
fn without_a_spare_node_the_job_is_saved_for_the_next_allocation() {
    with_slurm("scavenge under Slurm", |mpi| {
        let mut cluster = Cluster::new(1);
        let result = cluster.scratch().join("result");
        let slurm = Slurm::start(3);
        let mut running = slurm.run(command(mpi, 3, &result), &mut cluster);
        running.wait_for("checkpoint heat.000010 is complete");
        slurm.lose_node("n1");
        let ended = running.finish();
        assert!(!ended.succeeded() && !ended.timed_out());
        assert!(ended.prints("2 nodes can be used and 3 are needed: the last run had as many"));
        assert!(ended.prints("; the parts of ranks 1 were rebuilt"));
        drop(slurm);
        let slurm = Slurm::start(3);
        let ended = slurm.run(command(mpi, 3, &result), &mut cluster).finish();
        assert!(
            ended.succeeded() && ended.prints("heat2d: restarted from heat.0000"),
            "the job started from the beginning"
        );
        assert!(std::fs::read(result).expect("an answer") == plain_answer(mpi), "the answers differ");
    });
}

/// `scr run srun` of the test's application with agents, which have some two seconds to copy what it writes.
fn flushing(mpi: Mpi, options: &[&str]) -> Command {
    let mut command = Command::new("salloc");
    command.args(["--quiet", "--no-kill", "--time=30", "--nodes=2"]).arg(stage(mpi).join("bin/scr_run"));
    command.args(["--pause=1", "srun", "--mpi=pmi2", "--nodes=2", "--ntasks=2"]);
    command.arg(Program::CkptTest.path(mpi)).args(["--files", "8", "--size", "500000"]).args(options);
    command.envs([
        ("SCR_CACHE_BYPASS", "0"),
        ("SCR_COPY_TYPE", "SINGLE"),
        ("SCR_DEBUG", "1"),
        ("SCR_RUNS", "1"),
    ]);
    command.envs([("SCR_FLUSH", "1"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "AGENT")]);
    command.env("SCR_FLUSH_ASYNC_BW", "4MB");
    command
}

#[test]
fn agents_in_steps_of_their_own_finish_a_flush_when_the_job_has_ended() {
    with_slurm("agents as job steps under Slurm", |mpi| {
        let mut cluster = Cluster::new(1);
        let slurm = Slurm::start(2);
        let ends_at_once = ["--datasets", "1", "--no-finalize", "1"];
        let ended = slurm.run(flushing(mpi, &ends_at_once), &mut cluster).finish().expect_success();
        assert!(ended.prints_line("COMPLETE ckpt.1 0"));
        assert!(ended.prints("waiting for flushes that are under way"));
        // Neither did a process of the job start an agent, nor was anything copied again.
        assert!(!slurm.stores("agent.log") && !ended.prints("no agent on node"));
        assert!(!ended.prints("is in cache only"));
        let listed = cluster.scr(mpi, &["index", "--list", "--json"]);
        let listed = String::from_utf8_lossy(&listed.stdout).replace(' ', "");
        assert!(listed.contains("\"name\":\"ckpt.1\"") && listed.contains("\"valid\":true"), "{listed}");
        drop(slurm);
        let slurm = Slurm::start(2);
        let again = slurm.run(flushing(mpi, &["--read-only", "1"]), &mut cluster).finish().expect_success();
        assert_eq!(again.restarted_from(), Some("ckpt.1"));
    });
}
