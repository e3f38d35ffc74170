//! Jobs in which a process dies, or reports invalid files, at some point of a dataset. The older dataset is evicted only after
//! the new one is complete, so that there is always one to restart from.

use scr_tests::{on_each_mpi, Cluster, Job, Mpi, Outcome, Program};

const RANKS: u32 = 4;

fn job(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    cluster.job(mpi, RANKS, Program::CkptTest).options(&[("files", 2), ("uneven", 1)])
}

fn dies_in(job: Job<'_>, dataset: i64, point: &str) -> Outcome {
    let options = [("datasets", dataset + 1), ("kill-rank", 1), ("kill-dataset", dataset)];
    job.options(&options).args(["--kill-at", point]).run().expect_death()
}

fn restart(cluster: &mut Cluster, mpi: Mpi) -> String {
    let restarted = job(cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
    restarted.restarted_from().expect("a restart").to_owned()
}

/// Gives every dataset the same name and its own contents.
fn with_one_name(job: Job<'_>, salt: i64) -> Job<'_> {
    job.env("SCR_FLUSH", 1).options(&[("same-name", 1), ("salt", salt)])
}

on_each_mpi! {
    #[ignore = "long"]
    fn death_before_a_dataset_is_complete_leaves_the_one_before(mpi: Mpi) {
        for point in ["start", "route", "write", "complete"] {
            let mut cluster = Cluster::new(4);
            dies_in(job(&mut cluster, mpi), 3, point);
            assert_eq!(restart(&mut cluster, mpi), "ckpt.2", "killed at {point}");
        }
    }

    fn death_after_a_dataset_is_complete_leaves_that_one(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_in(job(&mut cluster, mpi), 3, "after");
        assert_eq!(restart(&mut cluster, mpi), "ckpt.3");
    }

    #[ignore = "long"]
    fn death_while_a_dataset_becomes_complete_leaves_one_of_the_two(mpi: Mpi) {
        for microseconds in [1, 300, 1000, 2000, 4000] {
            let mut cluster = Cluster::new(4);
            let options = [("datasets", 3), ("kill-rank", 1), ("kill-dataset", 3), ("size", 300_000)];
            // If the call is quicker than the clock, the job continues to its end, and the dataset is complete.
            let killed = job(&mut cluster, mpi).options(&options).args(["--kill-at", &microseconds.to_string()]).run();
            assert!(!killed.timed_out(), "killed after {microseconds} microseconds, the job hung");
            let size = [("read-only", 1), ("size", 300_000)];
            let restarted = job(&mut cluster, mpi).options(&size).run().expect_success();
            let from = restarted.restarted_from();
            assert!(matches!(from, Some("ckpt.2" | "ckpt.3")), "after {microseconds} microseconds: {from:?}");
        }
    }

    fn a_dataset_that_is_invalid_on_one_rank_fails_on_all_and_the_older_one_stays(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let invalid = job(&mut cluster, mpi).options(&[("invalid-rank", 2), ("invalid-dataset", 3)]);
        let killed = dies_in(invalid, 4, "start");
        assert!(killed.prints_line("COMPLETE ckpt.3 1"));
        assert_eq!(restart(&mut cluster, mpi), "ckpt.2");
    }

    fn a_restart_that_one_rank_rejects_loads_the_next_older_from_cache(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_in(job(&mut cluster, mpi).env("SCR_CACHE_SIZE", 2), 4, "start");
        let rejecting = [("read-only", 1), ("reject-rank", 3), ("reject", 1)];
        let restarted = job(&mut cluster, mpi).env("SCR_CACHE_SIZE", 2).options(&rejecting).run().expect_success();
        assert!(restarted.prints_line("REFUSED ckpt.3"));
        assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
    }

    fn a_restart_that_one_rank_rejects_loads_the_next_older_from_the_prefix(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_in(job(&mut cluster, mpi).env("SCR_FLUSH", 1), 4, "start");
        let rejecting = [("read-only", 1), ("reject-rank", 0), ("reject", 2)];
        let restarted = job(&mut cluster, mpi).env("SCR_FLUSH", 1).options(&rejecting).run().expect_success();
        assert!(restarted.prints_line("REFUSED ckpt.3") && restarted.prints_line("REFUSED ckpt.2"));
        assert_eq!(restarted.restarted_from(), Some("ckpt.1"));
    }

    fn a_dataset_of_another_number_of_ranks_is_refused_and_stays_usable(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_in(job(&mut cluster, mpi).env("SCR_FLUSH", 1), 3, "start");
        (0..4).for_each(|node| cluster.lose_node(node));
        let options = [("files", 2), ("uneven", 1), ("read-only", 1)];
        let six = cluster.job(mpi, 6, Program::CkptTest).options(&options).run().expect_success();
        assert!(six.prints_line("FRESH"));
        assert!(six.lines().any(|line| line.contains("SCR v") && line.contains("rank")), "nothing was said");
        assert_eq!(restart(&mut cluster, mpi), "ckpt.2");
    }

    fn a_name_used_again_never_mixes_old_and_new(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_in(with_one_name(job(&mut cluster, mpi), 100), 3, "write");
        cluster.lose_node(1);
        let again = dies_in(with_one_name(job(&mut cluster, mpi), 200), 3, "write");
        assert!(again.restarted_from().is_some());
        (0..4).for_each(|node| cluster.lose_node(node));
        let read = with_one_name(job(&mut cluster, mpi), 300).options(&[("read-only", 1)]).run();
        read.expect_success();
    }

    fn datasets_without_a_name_get_one(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let run = job(&mut cluster, mpi).options(&[("unnamed", 1), ("datasets", 2)]).run().expect_success();
        assert!(run.prints_line("COMPLETE ckpt.2 0"));
    }

    fn a_user_without_a_name_in_the_environment_is_looked_up(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_in(job(&mut cluster, mpi).env("USER", ""), 3, "start");
        assert_eq!(restart(&mut cluster, mpi), "ckpt.2");
    }
}
