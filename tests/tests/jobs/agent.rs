//! Jobs whose asynchronous flushes continue after the application has ended: an agent on each node finishes them.

use scr_agent::{list, AgentPresence, Transfer};
use scr_tests::{on_all, on_any_mpi, stage, Call, Cluster, Job, Mpi, Program};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const NODES: u32 = 2;
/// The agent of each node is in the middle of its copies then. The limit lets it write pieces of 100 kB, some forty in all, of
/// the files of two ranks at once: one file is complete by then, and recorded.
const MIDDLE: Call = on_all("write", ".part", 20);

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

/// Bytes that the agent of a node has recorded as copied, and that it was to copy.
fn progress(cluster: &Cluster, node: u32) -> (u64, u64) {
    let control = cluster.control_of(node).expect("the job has made it");
    let transfers: Vec<_> = list(&control).iter().filter_map(|path| Transfer::read(path).ok()?).collect();
    (transfers.iter().map(Transfer::written).sum(), transfers.iter().map(Transfer::bytes).sum())
}

/// The transfers that an agent is at work on.
fn running_on(cluster: &Cluster, node: u32) -> BTreeSet<PathBuf> {
    let control = cluster.control_of(node).expect("the job has made it");
    let is_running = |path: &PathBuf| matches!(Transfer::read(path), Ok(Some(transfer)) if transfer.running);
    list(&control).into_iter().filter(is_running).collect()
}

/// More than one transfer is under way at the same moment: what is so before and after a look elsewhere is so meanwhile.
fn copy_at_the_same_time(cluster: &Cluster) -> bool {
    let before = running_on(cluster, 0);
    let other = running_on(cluster, 1);
    let after = running_on(cluster, 0);
    let here = before.intersection(&after).count();
    here > 1 || other.len() > 1 || here > 0 && !other.is_empty()
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

/// The content of a control folder that all nodes see.
fn node_folders(control: &Path) -> Vec<PathBuf> {
    let user = std::fs::read_dir(control).expect("the job has used it").flatten().next();
    let nodes = user.expect("the job has made a folder").path().join("scr.tests/nodes");
    let folders = std::fs::read_dir(&nodes).expect("the job has made it").flatten().map(|entry| entry.path());
    let mut folders: Vec<_> = folders.collect();
    folders.sort();
    let names: Vec<_> = folders.iter().filter_map(|folder| folder.file_name()).collect();
    assert_eq!(names, ["node.0", "node.1"]);
    folders
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

on_any_mpi! {
    fn a_flush_is_finished_though_the_application_has_ended(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        // With more nodes than ranks that may flush at a time.
        short_job(&mut cluster, mpi).env("SCR_FLUSH_WIDTH", 1).run().expect_success();
        until("the end of the agents", || {
            assert!(!copy_at_the_same_time(&cluster), "two ranks copy where one may");
            (0..NODES).all(|node| agent_of(&cluster, node).is_none())
        });
        assert!(is_listed(&cluster, mpi, "ckpt.1"));
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    // They are copied between two looks of the agent at what is left.
    fn flushes_of_small_files_are_finished_though_the_application_is_gone_at_once(mpi: Mpi) {
        for _ in 0..3 {
            let mut cluster = Cluster::new(NODES);
            let small = [("files", 1), ("size", 1000)];
            let writes = [("datasets", 3), ("no-finalize", 1)];
            let first = job(&mut cluster, mpi).env("SCR_CACHE_SIZE", 3);
            first.options(&small).options(&writes).run().expect_success();
            all_agents_end(&cluster);
            ["ckpt.1", "ckpt.2", "ckpt.3"].iter().for_each(|name| assert!(is_listed(&cluster, mpi, name), "{name}"));
            (0..NODES).for_each(|node| cluster.lose_node(node));
            let again = job(&mut cluster, mpi).options(&small).options(&[("read-only", 1)]);
            let again = again.run().expect_success();
            assert_eq!(again.restarted_from(), Some("ckpt.3"));
        }
    }

    fn a_flush_is_finished_though_the_application_and_the_agent_were_killed(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let dies = [("kill-rank", 1), ("kill-dataset", 1)];
        let job = short_job(&mut cluster, mpi).options(&dies).args(["--kill-at", "after"]);
        job.at(MIDDLE, "kill").run().expect_death();
        all_agents_end(&cluster);
        for node in 0..NODES {
            let (written, of) = progress(&cluster, node);
            assert!(0 < written && written < of, "{written} of {of} bytes on node {node}");
        }
        end_well(start_on_all(&cluster, mpi, &["agent", "--detach"]));
        until("the flush", || is_listed(&cluster, mpi, "ckpt.1"));
        all_agents_end(&cluster);
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    fn a_dead_agent_holds_no_slot(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        // The second one is killed as well: it has had its turn though the first died in its own.
        let job = short_job(&mut cluster, mpi).env("SCR_FLUSH_WIDTH", 1);
        // At the fourth file that is made safe; what is not safe must not count.
        job.at(on_all("fsync", ".part", 4), "kill").run().expect_success();
        all_agents_end(&cluster);
        assert!(!is_listed(&cluster, mpi, "ckpt.1"), "nothing was synced");
        assert!((0..NODES).all(|node| progress(&cluster, node).0 > 0), "an agent has not had its turn");
        end_well(start_on_all(&cluster, mpi, &["agent", "--drain"]));
        assert!(is_listed(&cluster, mpi, "ckpt.1"));
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }

    fn a_run_that_starts_while_agents_copy_lets_them_finish(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let next_has_come = cluster.scratch().join("next");
        short_job(&mut cluster, mpi).at(MIDDLE, &format!("wait:{}", next_has_come.display())).run().expect_success();
        let mut next = job(&mut cluster, mpi).options(&[("read-only", 1)]).start();
        next.wait_for("waiting for the flush of `ckpt.1', which agents");
        std::fs::write(next_has_come, "").expect("a file can be made");
        let next = next.finish().expect_success();
        assert!(!next.prints("rolled back"));
        assert!(!next.prints("Initiating flush"));
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

    // On a control folder that all nodes see, in which each has its own.
    fn transfers_of_a_stopped_agent_are_drained_and_poststaged(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let control = cluster.scratch().join("control");
        std::fs::create_dir(&control).expect("a folder can be made");
        let slow = short_job(&mut cluster, mpi).env("SCR_FLUSH_ASYNC_BW", "1MB");
        let run = slow.env("SCR_CNTL_BASE", control.display()).run().expect_success();
        assert!(run.prints("n0 (rank 0) and n1 (rank 2) see the same control folder"));
        let folders = node_folders(&control);
        assert!(folders.iter().all(|folder| !list(folder).is_empty()), "each node has its own transfers");
        let on = |node, arguments: &[&str]| {
            let mut command = cluster.scr_on(node, mpi, arguments);
            command.env("SCR_CNTL_BASE", &control).spawn().expect("the command can be started")
        };
        end_well((0..NODES).map(|node| on(node, &["agent", "--drain"])).collect());
        assert!(folders.iter().all(|folder| AgentPresence::find(folder).is_none()));
        end_well(vec![on(0, &["poststage"])]);
        assert!(is_listed(&cluster, mpi, "ckpt.1"));
        restarts_elsewhere(&mut cluster, mpi, "ckpt.1");
    }
}
