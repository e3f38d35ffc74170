//! `scr_srun` under a real Slurm, whose nodes are pretend nodes: a node is lost in the middle of a job.
//!
//! Not part of `cargo test`, since it starts daemons and waits for Slurm to notice: `make test-slurm`.

use scr_tests::{needs_namespaces, run_if_there, stage, Cluster, Mpi, Program, Slurm};
use std::process::Command;

#[test]
fn a_lost_node_is_replaced_by_the_spare_one_and_the_answer_is_right() {
    needs_namespaces!();
    // Debian's Slurm speaks PMI-2, as MPICH does.
    run_if_there(Mpi::Mpich, "slurm", body);
}

fn body(mpi: Mpi) {
    let mut cluster = Cluster::new(1);
    let plain = cluster.scratch().join("plain");
    let options = ["--size", "200", "--steps", "60", "--every", "10"];
    let without = cluster.job(mpi, 3, Program::Heat2d).args(options).args(["--no-scr", "--result"]);
    assert!(without.args([plain.display()]).run().succeeded());

    let slurm = Slurm::start(4);
    let result = cluster.scratch().join("result");
    let mut command = Command::new("salloc");
    command.args(["--quiet", "--no-kill", "--nodes=4", "--time=30"]).arg(stage(mpi).join("bin/scr_run"));
    // The pause of Slurm's description is for machines that are larger than this one.
    command
        .args(["--pause=1", "srun", "--mpi=pmi2", "--nodes=3", "--ntasks=3"])
        .arg(Program::Heat2d.path(mpi))
        .args(options);
    command.args(["--pause-ms", "50", "--result"]).arg(&result);
    let settings = [
        ("SCR_CACHE_BYPASS", "0"),
        ("SCR_FLUSH", "0"),
        ("SCR_RUNS", "3"),
        ("SCR_DEBUG", "1"),
        ("SCR_HALT_SECONDS", "60"),
    ];
    command.envs(settings).current_dir(cluster.prefix());
    let mut running = slurm.run(command, &mut cluster);
    running.wait_for("checkpoint heat.000030 is complete");
    slurm.lose_node("n1");
    let ended = running.finish();
    assert!(ended.succeeded(), "the job has failed");
    assert!(ended.mentions("scr run: node n1 is left out: "));
    assert!(ended.mentions("scr run: run 2: srun --kill-on-bad-exit=1 --exclude=n1 "));
    assert!(ended.mentions("heat2d: restarted from heat.0000"), "the job began anew");
    let (plain, result) =
        (std::fs::read(plain).expect("an answer"), std::fs::read(result).expect("an answer"));
    assert!(plain == result, "the answers differ");
}
