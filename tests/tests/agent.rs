//! Jobs whose asynchronous flushes go on when the application has ended: an agent on each node ends them.

use scr_agent::{list, AgentPresence, Transfer};
use scr_tests::{on_each_mpi, stage, Cluster, Job, Mpi, Program};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const NODES: u32 = 2;

/// 4 ranks with 4 files each, some 8 MB in all; with the limit a flush takes about two seconds.
fn job(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    let job =
        cluster.job(mpi, 4, Program::CkptTest).options(&[("files", 4), ("size", 500_000), ("uneven", 1)]);
    job.env("SCR_FLUSH", 1).env("SCR_FLUSH_TYPE", "AGENT").env("SCR_FLUSH_ASYNC", 1)
}

/// One that writes a checkpoint and is gone right after its flush has begun.
fn short_job(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    let ends = [("datasets", 1), ("no-finalize", 1)];
    job(cluster, mpi).env("SCR_FLUSH_ASYNC_BW", "4MB").options(&ends)
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} has not come within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether `scr_index --list` has the dataset as complete, and current.
fn is_listed(cluster: &Cluster, mpi: Mpi, name: &str) -> bool {
    let output = Command::new(stage(mpi).join("bin/scr_index"))
        .args(["--list", "--json", "--prefix"])
        .arg(cluster.prefix())
        .output();
    let text = String::from_utf8_lossy(&output.expect("the command can be started").stdout).replace(' ', "");
    text.split('{')
        .any(|entry| entry.contains(&format!("\"name\":\"{name}\"")) && entry.contains("\"valid\":true"))
}

fn agent_of(cluster: &Cluster, node: u32) -> Option<u32> {
    AgentPresence::find(&cluster.control_of(node)?)
}

fn all_agents_end(cluster: &Cluster) {
    until("the end of the agents", || (0..NODES).all(|node| agent_of(cluster, node).is_none()));
}

fn written(control: &Path) -> u64 {
    let transfers = list(control).into_iter().filter_map(|path| Transfer::read(&path).ok()?);
    transfers.map(|transfer| transfer.written()).sum()
}

fn kill(pid: u32) {
    let pid =
        rustix::process::Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the agent can be killed");
}

/// Another allocation on other nodes, which finds the checkpoint under the prefix directory alone, compares every byte.
fn restarts_elsewhere(cluster: &mut Cluster, mpi: Mpi, name: &str) {
    (0..NODES).for_each(|node| cluster.lose_node(node));
    let again =
        job(cluster, mpi).env("SCR_JOB_ID", "another").options(&[("read-only", 1)]).run().expect_success();
    assert_eq!(again.restarted_from(), Some(name));
    // Nothing is left of the flush.
    let left = std::fs::read_dir(cluster.prefix().join(".scr")).expect("the folder is there").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.starts_with("done.") || name.starts_with("flush.") && name != "flush.scr"),
        "{left:?}"
    );
}

fn start_on_all(cluster: &Cluster, mpi: Mpi, arguments: &[&str]) -> Vec<Child> {
    let start = |node| cluster.scr_on(node, mpi, arguments).spawn().expect("the command can be started");
    (0..NODES).map(start).collect()
}

fn end_well(children: Vec<Child>) {
    for mut child in children {
        until("the end of the command", || {
            // Not reaped here, so that its status is still to be had.
            let options = rustix::process::WaitIdOptions::EXITED
                | rustix::process::WaitIdOptions::NOHANG
                | rustix::process::WaitIdOptions::NOWAIT;
            let pid = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child));
            rustix::process::waitid(pid, options).is_ok_and(|status| status.is_some())
        });
        assert!(child.wait().expect("it can be waited for").success());
    }
}

on_each_mpi! {
    fn a_flush_is_finished_though_the_application_has_ended(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        short_job(&mut cluster, mpi).run().expect_success();
        until("the flush", || is_listed(&cluster, mpi, "ckpt.1"));
        all_agents_end(&cluster);
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    fn a_flush_is_finished_though_the_application_and_the_agent_were_killed(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let dies = [("kill-rank", 1), ("kill-dataset", 1)];
        short_job(&mut cluster, mpi).options(&dies).args(["--kill-at", "after"]).run().expect_death();
        let control = cluster.control_of(0).expect("the job has made it");
        until("the copy", || written(&control) > 0);
        if let Some(pid) = agent_of(&cluster, 0) {
            kill(pid);
            until("its end", || agent_of(&cluster, 0).is_none());
        }
        end_well(start_on_all(&cluster, mpi, &["agent", "--detach"]));
        until("the flush", || is_listed(&cluster, mpi, "ckpt.1"));
        all_agents_end(&cluster);
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    fn a_run_that_starts_while_agents_copy_lets_them_finish(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        short_job(&mut cluster, mpi).run().expect_success();
        assert!(!is_listed(&cluster, mpi, "ckpt.1"));
        let next = job(&mut cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
        assert!(next.mentions("waiting for flushes of an earlier run") && !next.mentions("taken back"));
        assert!(!next.mentions("Initiating flush"));
        assert!(is_listed(&cluster, mpi, "ckpt.1"));
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    fn an_agent_of_its_own_ends_by_itself_when_the_job_is_over(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let agents = start_on_all(&cluster, mpi, &["agent"]);
        until("the agents", || (0..NODES).all(|node| agent_of(&cluster, node).is_some()));
        short_job(&mut cluster, mpi).run().expect_success();
        end_well(agents);
        assert!(is_listed(&cluster, mpi, "ckpt.1"));
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    fn an_application_that_stays_finds_its_flushes_finished(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        job(&mut cluster, mpi).options(&[("datasets", 3)]).run().expect_success();
        assert!((1..=3).all(|number| is_listed(&cluster, mpi, &format!("ckpt.{number}"))));
        all_agents_end(&cluster);
        restarts_elsewhere(&mut cluster, mpi, "ckpt.3");
    }

    fn what_a_stopped_agent_has_left_is_drained_and_poststaged(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let slow = short_job(&mut cluster, mpi).env("SCR_FLUSH_ASYNC_BW", "1MB");
        slow.run().expect_success();
        end_well(start_on_all(&cluster, mpi, &["agent", "--drain"]));
        let poststage = cluster.scr_on(0, mpi, &["poststage"]).status().expect("the command can be started");
        assert!(poststage.success());
        assert!(is_listed(&cluster, mpi, "ckpt.1"));
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }
}
