//! The schemes under a real MPI: one pattern of losses for each number of nodes and of failures that RS survives.
//!
//! Every pattern is tried on jobs within one process; here the same code talks through MPI.

use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Program};

fn job<'a>(cluster: &'a mut Cluster, mpi: Mpi, scheme: &str, nodes: u32, failures: u32) -> Job<'a> {
    let job = cluster.job(mpi, nodes, Program::CkptTest);
    let job = job.options(&[("files", 2), ("uneven", 1), ("size", 20_000)]);
    job.env("SCR_COPY_TYPE", scheme).env("SCR_SET_FAILURES", failures).env("SCR_SET_SIZE", nodes)
}

/// A checkpoint, and these nodes lost.
fn loses(mpi: Mpi, scheme: &str, nodes: u32, failures: u32, lost: impl Iterator<Item = u32>) -> Cluster {
    let mut cluster = Cluster::new(nodes);
    job(&mut cluster, mpi, scheme, nodes, failures).options(&[("datasets", 1)]).run().expect_success();
    lost.for_each(|node| cluster.lose_node(node));
    cluster
}

/// Some of the nodes: neighbours where they are few, and others where they are many.
fn pattern(nodes: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |at| (1 + at * (1 + u32::from(nodes > 6))) % nodes)
}

fn comes_back(mpi: Mpi, scheme: &str, nodes: u32, failures: u32) {
    let mut cluster = loses(mpi, scheme, nodes, failures, pattern(nodes, failures));
    let again = job(&mut cluster, mpi, scheme, nodes, failures).options(&[("read-only", 1)]).run();
    let again = again.expect_success();
    assert_eq!(again.restarted_from(), Some("ckpt.1"), "{scheme}, {nodes} nodes, {failures} failures");
}

on_any_mpi! {
    fn rs_on_four_nodes_brings_back_one_two_and_three(mpi: Mpi) {
        (1..=3).for_each(|failures| comes_back(mpi, "RS", 4, failures));
    }

    #[ignore = "long"]
    fn rs_on_six_nodes_brings_back_one_two_and_three(mpi: Mpi) {
        (1..=3).for_each(|failures| comes_back(mpi, "RS", 6, failures));
    }

    #[ignore = "long"]
    fn rs_on_nine_nodes_brings_back_one_two_and_three(mpi: Mpi) {
        (1..=3).for_each(|failures| comes_back(mpi, "RS", 9, failures));
    }

    fn one_loss_more_than_rs_survives_is_refused_with_set_ranks_and_nodes(mpi: Mpi) {
        let mut cluster = loses(mpi, "RS", 6, 2, [1, 2, 4].into_iter());
        let again = job(&mut cluster, mpi, "RS", 6, 2).options(&[("read-only", 1)]).run();
        assert_eq!(again.restarted_from(), None);
        let account = "the redundancy set of ranks 0, 1, 2, 3, 4, 5 has lost the parts of ranks 1 (written on n1), \
                       2 (written on n2), 4 (written on n4), and RS survives 2";
        assert!(again.prints(account), "{:?}", again.lines().collect::<Vec<_>>());
    }

    fn partner_brings_back_nodes_that_are_no_neighbours(mpi: Mpi) {
        let mut cluster = loses(mpi, "PARTNER", 4, 1, [0, 2].into_iter());
        let again = job(&mut cluster, mpi, "PARTNER", 4, 1).options(&[("read-only", 1)]).run().expect_success();
        assert_eq!(again.restarted_from(), Some("ckpt.1"));
    }
}
