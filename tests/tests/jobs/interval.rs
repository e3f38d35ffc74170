//! `SCR_CHECKPOINT_INTERVAL=AUTO` in a job on pretend nodes: it computes for longer between two checkpoints once they are dearer.

use scr_tests::{on_any_mpi, Cluster, Program};
use std::time::Duration;

/// The planned intervals before and after the start of a dataset, from an event log.
fn planned(log: &str, dataset: u64) -> [Vec<f64>; 2] {
    let start = " event=CHECKPOINT_START,";
    let (before, after) = log
        .match_indices(start)
        .find(|(at, _)| {
            log[*at..].lines().next().is_some_and(|line| line.contains(&format!(" dset={dataset},")))
        })
        .map(|(at, _)| log.split_at(at))
        .unwrap_or_else(|| panic!("dataset {dataset} was not begun:\n{log}"));
    [before, after].map(|part| {
        let plans = part.lines().filter(|line| line.contains(" event=CHECKPOINT_PLAN,"));
        let interval =
            |line: &str| line.split_once("checkpoint interval: ")?.1.split(' ').next()?.parse().ok();
        plans.map(|line| interval(line).unwrap_or_else(|| panic!("no interval: {line}"))).collect()
    })
}

on_any_mpi! {
    fn a_job_plans_a_longer_interval_once_its_checkpoints_are_dearer(mpi: Mpi) {
        const DEAR: u64 = 6;
        let mut cluster = Cluster::new(4);
        let options = [("datasets", 6), ("size", 4096), ("needed", 1), ("dear", DEAR as i64)];
        let job = cluster.job(mpi, 4, Program::CkptTest).options(&options);
        let job = job.env("SCR_CHECKPOINT_INTERVAL", "AUTO").env("SCR_FLUSH", 0);
        // Failures as frequent as they are on no machine, so that the job does not compute for long.
        let job = job.env("SCR_MTBF_NODE", 60).env("SCR_MTBF_SYSTEM", 3600).limit(Duration::from_secs(180));
        let run = job.run().expect_success();
        assert_eq!(run.last_complete(), Some("ckpt.6"));
        let log = std::fs::read_to_string(cluster.prefix().join(".scr/events")).expect("a log");
        let [cheap, dear] = planned(&log, DEAR);
        assert!(cheap.last() < dear.last() && !cheap.is_empty(), "{cheap:?}, and then {dear:?}:\n{log}");
    }
}
