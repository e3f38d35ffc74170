//! Jobs that lose nodes between two launches in one allocation: rebuilds, fetches, and messages.
//!
//! Eight ranks on four nodes with XOR: two sets of four, one rank of each on every node. Sizes are uneven, some
//! files are empty, base names are the same in all ranks' folders, and rank 6 writes no file.

use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Outcome, Program};

const RANKS: u32 = 8;

const SHAPE: [(&str, i64); 4] = [("files", 3), ("uneven", 1), ("folders", 1), ("empty-rank", 6)];

fn job(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    cluster.job(mpi, RANKS, Program::CkptTest).options(&SHAPE)
}

/// Writes datasets until rank 5 dies in the middle of `ckpt.N`.
fn dies_writing(job: Job<'_>, dataset: i64) -> Outcome {
    let options = [("datasets", dataset + 1), ("kill-rank", 5), ("kill-dataset", dataset)];
    job.options(&options).args(["--kill-at", "write"]).run().expect_death()
}

on_any_mpi! {
    fn a_lost_node_is_rebuilt_and_every_byte_is_there(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let killed = dies_writing(job(&mut cluster, mpi), 4);
        assert!(killed.prints_line("FRESH"));
        assert_eq!(killed.last_complete(), Some("ckpt.3"));
        cluster.lose_node(2);
        let restarted = job(&mut cluster, mpi).options(&[("datasets", 2)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.3"));
        assert_eq!(restarted.last_complete(), Some("ckpt.5"));
    }

    fn a_loss_in_the_second_run_is_rebuilt_too(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_writing(job(&mut cluster, mpi), 3);
        cluster.lose_node(0);
        let again = dies_writing(job(&mut cluster, mpi), 4);
        assert_eq!(again.restarted_from(), Some("ckpt.2"));
        assert_eq!(again.last_complete(), Some("ckpt.3"));
        cluster.lose_node(3);
        let restarted = job(&mut cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.3"));
    }

    fn files_travel_to_ranks_that_run_on_other_nodes(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_writing(job(&mut cluster, mpi), 3);
        let restarted = job(&mut cluster, mpi).on(&[2, 0, 3, 1]).options(&[("read-only", 1)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
    }

    fn a_spare_node_takes_the_place_of_a_lost_one_among_moved_ranks(mpi: Mpi) {
        let mut cluster = Cluster::new(5);
        dies_writing(job(&mut cluster, mpi).on(&[0, 1, 2, 3]), 3);
        cluster.lose_node(1);
        let restarted = job(&mut cluster, mpi).on(&[3, 4, 0, 2]).options(&[("datasets", 1)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
        assert_eq!(restarted.last_complete(), Some("ckpt.3"));
    }

    fn a_loss_that_xor_cannot_repair_falls_back_to_the_prefix(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let killed = dies_writing(job(&mut cluster, mpi).env("SCR_FLUSH", 2), 6);
        assert_eq!(killed.last_complete(), Some("ckpt.5"));
        cluster.lose_node(1);
        cluster.lose_node(2);
        let restarted = job(&mut cluster, mpi).env("SCR_FLUSH", 2).options(&[("datasets", 1)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.4"));
        assert_eq!(restarted.last_complete(), Some("ckpt.5"));
    }

    fn a_loss_that_xor_cannot_repair_is_reported_if_nothing_else_is_left(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        dies_writing(job(&mut cluster, mpi), 3);
        cluster.lose_node(1);
        cluster.lose_node(2);
        // A dataset under way when the job died is no loss; a complete one is.
        let survivors = |cluster: &Cluster| {
            let files = cluster.files_of(0).into_iter();
            files.filter(|file| file.to_string_lossy().contains("scr.dataset.2/")).collect::<Vec<_>>()
        };
        let before = survivors(&cluster);
        let fresh = job(&mut cluster, mpi).options(&[("read-only", 1)]).run().expect_success();
        assert!(fresh.prints_line("FRESH"));
        assert!(fresh.lines().any(|line| line.contains("SCR v") && line.contains("cannot be restored from cache")));
        assert!(!before.is_empty());
        assert_eq!(survivors(&cluster), before, "the survivors' files stay in place");
    }

    fn a_node_that_goes_down_under_a_running_job_is_rebuilt(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let mut running = job(&mut cluster, mpi).options(&[("datasets", 100_000), ("size", 1000)]).start();
        running.wait_for("COMPLETE ckpt.3 0");
        cluster.lose_node(3);
        let killed = running.finish().expect_death();
        let last: u32 = number(killed.last_complete());
        let restarted = job(&mut cluster, mpi)
            .options(&[("read-only", 1), ("size", 1000)]).run().expect_success();
        // The last dataset may have become complete without its line.
        assert!((last..=last + 1).contains(&number(restarted.restarted_from())));
    }

    fn useless_redundancy_causes_a_warning_at_every_debug_level(mpi: Mpi) {
        let mut cluster = Cluster::new(1);
        let run = cluster.job(mpi, 2, Program::CkptTest).env("SCR_DEBUG", 0).run().expect_success();
        assert!(run.lines().any(|line| line.contains("SCR v") && line.contains("node")), "nothing was said");
    }

    fn heat2d_comes_to_the_same_answer_after_a_node_was_lost(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let options = ["--size", "200", "--steps", "80", "--every", "10", "--result"];
        let (plain, resumed) = (cluster.scratch().join("plain"), cluster.scratch().join("resumed"));
        let heat = |cluster: &mut Cluster, result: &std::path::Path, more: &[&str]| {
            let job = cluster.job(mpi, 4, Program::Heat2d).args(options);
            job.args([result.display()]).args(more).run()
        };
        assert!(heat(&mut cluster, &plain, &["--no-scr"]).succeeded());
        assert!(!heat(&mut cluster, &resumed, &["--kill-rank", "1", "--kill-step", "47"]).succeeded());
        cluster.lose_node(1);
        let restarted = heat(&mut cluster, &resumed, &[]);
        assert!(restarted.prints_line("heat2d: restarted from heat.000040 at step 40"));
        let (plain, resumed) = (std::fs::read(plain).unwrap(), std::fs::read(resumed).unwrap());
        assert_eq!(plain.len(), 200 * 200 * 8);
        assert!(plain == resumed, "the answers differ");
    }
}

fn number(name: Option<&str>) -> u32 {
    name.and_then(|name| name.strip_prefix("ckpt.")?.parse().ok()).expect("a dataset called ckpt.N")
}
