//! A job dies for good: the `scr` command saves the data on its nodes, and another allocation restarts from them.

use scr_tests::{on_any_mpi, Cluster, Program};

on_any_mpi! {
    fn data_of_a_dead_job_is_rebuilt_and_restarted_from_in_another_allocation(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let shape = [("files", 3), ("uneven", 1), ("folders", 1), ("empty-rank", 6)];
        let dies = [("datasets", 4), ("kill-rank", 5), ("kill-dataset", 3)];
        let job = cluster.job(mpi, 8, Program::CkptTest).options(&shape).options(&dies);
        job.args(["--kill-at", "write"]).run().expect_death();
        cluster.lose_node(2);

        let said = |cluster: &Cluster, arguments: &[&str]| {
            let output = cluster.scr(mpi, arguments);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        assert_eq!(said(&cluster, &["flush-file", "--latest"]), "2\n");
        said(&cluster, &["flush-file", "--needflush", "2"]);
        // One process on every node that is left.
        let copied = cluster.job(mpi, 3, Program::Scr).on(&[0, 1, 3]).args(["copy", "--id", "2"]).run();
        assert!(copied.succeeded() && copied.prints("dataset 2 `ckpt.2': copied"));
        let built = said(&cluster, &["index", "--build", "2"]);
        assert!(built.contains("the parts of ranks 4, 5 were rebuilt"), "{built}");
        assert!(said(&cluster, &["index"]).contains("  * ckpt.2"));
        assert!(!cluster.scr(mpi, &["flush-file", "--needflush", "2"]).status.success());

        [0, 1, 3].iter().for_each(|&node| cluster.lose_node(node));
        let restarted = cluster.job(mpi, 8, Program::CkptTest).options(&shape).options(&[("read-only", 1)]);
        let restarted = restarted.env("SCR_JOB_ID", "another").run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
        assert!(!restarted.prints("is unverified"));
    }
}
