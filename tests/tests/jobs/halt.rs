//! Jobs that `scr halt` stops, under every MPI.

use scr_tests::{on_any_mpi, Cluster, Outcome, Program};

on_any_mpi! {
    fn with_halt_exit_the_library_ends_the_job_after_the_last_checkpoint_and_only_then(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let scr = |cluster: &Cluster, arguments: &[&str]| {
            let done = cluster.scr(mpi, arguments);
            assert!(done.status.success(), "{arguments:?}: {done:?}");
        };
        let job = |cluster: &mut Cluster, exit: u8| -> Outcome {
            // Four checkpoints, of which none is flushed because it is its turn.
            // An exit handler calls the library, also where the library itself ends the process.
            let job = cluster.job(mpi, 2, Program::CkptTest).options(&[("datasets", 4), ("at-exit", 1)]);
            job.env("SCR_FLUSH", 10).env("SCR_HALT_EXIT", exit).run()
        };
        // The application asks, and comes to its own end.
        scr(&cluster, &["halt", "--checkpoints", "2"]);
        let asked = job(&mut cluster, 0).expect_success();
        assert!(asked.prints_line("EXIT") && asked.last_complete() == Some("ckpt.2"));
        scr(&cluster, &["halt", "--remove"]);
        // The library ends it: as a job that has not failed, with its checkpoint flushed.
        scr(&cluster, &["halt", "--checkpoints", "2"]);
        let ended = job(&mut cluster, 1);
        assert!(ended.succeeded() && !ended.prints_line("DONE") && !ended.prints_line("EXIT"));
        let said = ended.lines().filter(|line| line.contains("SCR_HALT_EXIT=1: the job ends here"));
        assert_eq!(said.count(), 1, "each rank said the same");
        assert!(cluster.prefix().join("ckpt.4").is_dir(), "the last checkpoint is in the prefix directory");
        // At once, as long as the condition holds.
        let again = job(&mut cluster, 1);
        assert!(again.succeeded() && again.last_complete().is_none() && again.prints("the job ends here"));
        // Without it the next job continues where the last one ended.
        scr(&cluster, &["halt", "--remove"]);
        let freed = job(&mut cluster, 1).expect_success();
        assert_eq!(freed.restarted_from(), Some("ckpt.4"));
    }
}
