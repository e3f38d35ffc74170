//! Communicators of the application: all ranks, some of them, and parts of one launch with a session each.

use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Outcome, Program};

/// Eight ranks on four nodes in four parts: 0 and 1 are on n0 and n2, 2 and 3 on n1 and n3.
fn parts(cluster: &mut Cluster, mpi: Mpi) -> Job<'_> {
    cluster.job(mpi, 8, Program::CkptTest).options(&[("parts", 4), ("uneven", 1)]).without(&["SCR_PREFIX"])
}

fn restarted(run: &Outcome, part: u32) -> Vec<&str> {
    let beginning = format!("PART {part}: RESTARTED ");
    run.lines().filter_map(|line| line.strip_prefix(&beginning)).collect()
}

on_any_mpi! {
    fn four_simulations_in_one_launch_restart_from_their_own_checkpoints_and_two_have_lost_a_node(mpi: Mpi) {
        let mut cluster = Cluster::new(5);
        let die = [("datasets", 5), ("meet", 3), ("kill-part", 2), ("kill-rank", 1), ("kill-dataset", 3)];
        parts(&mut cluster, mpi).on(&[0, 1, 2, 3]).options(&die).args(["--kill-at", "met"]).run().expect_death();
        cluster.lose_node(1);
        let run = parts(&mut cluster, mpi).on(&[0, 4, 2, 3]).options(&[("datasets", 2)]).run().expect_success();
        for part in 0..4 {
            // Those that were not killed may have gone on.
            let from = restarted(&run, part);
            assert!(matches!(from[..], ["ckpt.3" | "ckpt.4" | "ckpt.5"]), "part {part}: {from:?}");
        }
        // A part that was killed between a checkpoint and the eviction of the one before rebuilds that one, too.
        let is_of_lost_node = |line: &&str| line.contains("the node is not in this run); rebuilding it with XOR");
        let rebuilt: Vec<_> = run.lines().filter(is_of_lost_node).collect();
        assert_eq!(rebuilt.len(), 2, "two parts have lost a node: {rebuilt:?}");
        assert!(rebuilt.iter().all(|line| line.contains("rank 0 on n4")), "{rebuilt:?}");
        let again = parts(&mut cluster, mpi).on(&[0, 4, 2, 3]).options(&[("read-only", 1)]).run().expect_success();
        assert!((0..4).all(|part| restarted(&again, part).len() == 1));
        assert!(!again.prints("ERROR"), "nothing is lost");
    }

    fn a_part_that_another_one_has_the_prefix_directory_of_does_not_begin(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        // The variable of the environment wins over SCR_Config.
        let run = cluster.job(mpi, 4, Program::CkptTest).options(&[("parts", 2), ("meet", 1)]).run();
        assert!(!run.succeeded() && !run.timed_out());
        assert!(run.prints("another part of this launch"));
        assert!(run.prints("SCR_PREFIX of the environment wins over SCR_Config"));
    }

    fn processes_that_others_spawn_do_not_begin_in_the_prefix_directory_of_those(mpi: Mpi) {
        let mut cluster = Cluster::new(1);
        let run = cluster.job(mpi, 2, Program::Spawns).run().expect_success();
        assert!(run.prints_line("DONE") && !run.prints("FAIL "));
        assert!(run.prints("each part, such as what MPI_Comm_spawn starts, needs a prefix directory of its own"));
    }

    fn the_world_as_a_communicator_restarts_from_what_scr_init_wrote_and_the_other_way_round(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        for (number, world) in (0..).zip([0, 1, 0, 1]) {
            let job = cluster.job(mpi, 4, Program::CkptTest).options(&[("world", world), ("datasets", 1)]);
            let run = job.run().expect_success();
            let before = (number > 0).then(|| format!("ckpt.{number}"));
            assert_eq!(run.restarted_from(), before.as_deref());
            cluster.lose_node(number);
        }
    }

    fn a_subset_of_writers_checkpoints_and_the_other_ranks_never_call(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let run = |cluster: &mut Cluster, more: &[(&str, i64)]| {
            let job = cluster.job(mpi, 8, Program::CkptTest).options(&[("writers", 5), ("datasets", 2)]);
            job.options(more).run().expect_success()
        };
        let first = run(&mut cluster, &[]);
        assert!(first.prints_line("FRESH") && first.prints("NPROCS=5"), "five ranks have a session");
        cluster.lose_node(1);
        let again = run(&mut cluster, &[("read-only", 1)]);
        assert!(again.prints("rebuilding them with XOR") && again.restarted_from() == Some("ckpt.2"));
    }

    fn a_coupled_code_uses_scr_alone_and_comes_back_from_a_lost_node(mpi: Mpi) {
        let mut cluster = Cluster::new(3);
        let other = Program::Coupled.path(mpi).display().to_string();
        let run = |cluster: &mut Cluster, more: &[(&str, i64)]| {
            let job = cluster.job(mpi, 4, Program::CkptTest).on(&[0, 1]).options(&[("coupled", 1)]).options(more);
            job.args([":", "-n", "2", &other]).run()
        };
        run(&mut cluster, &[("datasets", 2)]).expect_success();
        cluster.lose_node(1);
        let again = run(&mut cluster, &[("datasets", 1)]).expect_success();
        assert_eq!((again.restarted_from(), again.last_complete()), (Some("ckpt.2"), Some("ckpt.3")));
    }

    fn a_process_has_one_session_after_the_other_and_nothing_of_one_is_left_in_the_next(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let job = cluster.job(mpi, 4, Program::Sessions).without(&["SCR_PREFIX"]);
        let run = job.run().expect_success();
        assert!(run.prints("SCR_Init_comm: the communicator is MPI_COMM_NULL"));
        assert!(run.prints("merge them with MPI_Intercomm_merge"));
        assert!(run.prints("a process has one session at a time, so call SCR_Finalize first"));
    }
}
