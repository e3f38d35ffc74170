//! The communicator over MPI keeps the promises that all communicators make.

use scr_tests::{on_each_mpi, Cluster, Program};
use std::time::Duration;

on_each_mpi! {
    fn the_suite_of_all_communicators_holds(mpi: Mpi) {
        let mut cluster = Cluster::new(3);
        for ranks in [1, 2, 7] {
            let run = cluster.job(mpi, ranks, Program::CommSuite).run();
            assert!(run.succeeded(), "with {ranks} ranks");
            assert!(run.prints("messages in pieces: "), "with {ranks} ranks");
        }
    }

    /// It waited for ever, and the job could not be started again.
    fn a_rank_that_gives_up_messages_nobody_takes_ends_the_job(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let run = cluster.job(mpi, 2, Program::CommSuite).args(["unanswered"]).run().expect_death();
        assert!(run.prints("messages of this rank have not ended"));
        assert!(!run.prints("the buffer is freed"));
    }

    /// In SCR_Init and SCR_Finalize the others waited for ever.
    fn an_error_of_mpi_on_one_rank_ends_the_call_on_all(mpi: Mpi) {
        for call in ["init", "complete", "finalize"] {
            for look in [1, 3] {
                let mut cluster = Cluster::new(2);
                let job = cluster.job(mpi, 4, Program::MpiFails).args([call, &look.to_string()]);
                let run = job.limit(Duration::from_secs(30)).run();
                for rank in 0..4 {
                    // A rank may have had all that it needs of the one that fails.
                    let got = |code: u32| run.prints(&format!("rank {rank} got {code}\n"));
                    assert!(got(6) || rank != 1 && got(0), "{call}, look {look}, rank {rank}");
                }
            }
        }
    }
}
