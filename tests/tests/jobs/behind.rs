//! Checkpoints that are protected while the application computes: threads over TCP beside an MPI without threads.

use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Program};

const NODES: u32 = 4;

fn job(cluster: &mut Cluster, mpi: Mpi, ranks: u32) -> Job<'_> {
    let job = cluster.job(mpi, ranks, Program::CkptTest);
    let job = job.options(&[("files", 2), ("uneven", 1), ("size", 300_000)]);
    job.env("SCR_ENCODE_ASYNC", 1).env("SCR_DEBUG", 1)
}

fn restarts_from(cluster: &mut Cluster, mpi: Mpi, ranks: u32) -> String {
    let restarted = job(cluster, mpi, ranks).options(&[("read-only", 1)]).run().expect_success();
    restarted.restarted_from().expect("a restart").to_owned()
}

on_any_mpi! {
    fn what_the_end_of_a_job_has_waited_for_survives_a_node(mpi: Mpi) {
        for (nodes, per_node, scheme) in [(4, 1, "XOR"), (4, 2, "PARTNER"), (4, 4, "RS"), (3, 8, "XOR")] {
            let mut cluster = Cluster::new(nodes);
            let ranks = nodes * per_node;
            let written = job(&mut cluster, mpi, ranks).env("SCR_COPY_TYPE", scheme).options(&[("datasets", 3)]).run();
            let written = written.expect_success();
            assert!(written.prints("`ckpt.3' is protected: "), "{:?}", written.lines().collect::<Vec<_>>());
            cluster.lose_node(1);
            assert_eq!(restarts_from(&mut cluster, mpi, ranks), "ckpt.3", "{scheme}, {per_node} on a node");
        }
    }

    fn a_local_checkpoint_survives_the_death_of_the_job(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let dies = [("datasets", 4), ("kill-rank", 1), ("kill-dataset", 3)];
        job(&mut cluster, mpi, NODES).options(&dies).args(["--kill-at", "after"]).run().expect_death();
        assert_eq!(restarts_from(&mut cluster, mpi, NODES), "ckpt.3");
        // That restart has protected it.
        cluster.lose_node(2);
        assert_eq!(restarts_from(&mut cluster, mpi, NODES), "ckpt.3");
    }

    fn a_job_whose_ranks_cannot_talk_says_so_and_goes_on(mpi: Mpi) {
        let mut cluster = Cluster::new(NODES);
        let written = job(&mut cluster, mpi, NODES).env("SCR_TCP_INTERFACE", "ib77").options(&[("datasets", 2)]).run();
        let written = written.expect_success();
        assert!(written.prints("SCR_TCP_INTERFACE=ib77 is neither a network interface"));
        cluster.lose_node(3);
        assert_eq!(restarts_from(&mut cluster, mpi, NODES), "ckpt.2");
    }
}
