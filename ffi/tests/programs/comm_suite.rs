//! The suite of all communicators over MPI, to be started by `mpirun` with any number of ranks.
//!
//! It ends with 0 and a line from rank 0 where every case holds.

#[path = "../../../core/comm/tests/suite/all/mod.rs"]
mod comm_suite;

use std::process::ExitCode;
use std::time::Duration;

use scr_comm::{Comm, CommError, Outgoing, Rank, Tag};
use scr_mpi::MpiComm;

fn main() -> ExitCode {
    assert!(matches!(MpiComm::of_world(), Err(CommError::Unusable { .. })), "MPI was not initialised");
    let Some(universe) = mpi::initialize() else { return ExitCode::FAILURE };
    end_at_a_panic();
    if std::env::args().any(|argument| argument == "unanswered") {
        return give_up_unanswered();
    }

    let whole = run("whole messages", MpiComm::of_world());
    run("messages in pieces", MpiComm::of_world().map(|comm| comm.with_pieces_of(100)));
    drop(universe);

    assert!(matches!(MpiComm::of_world(), Err(CommError::Unusable { .. })), "MPI was finalised");
    assert!(matches!(whole.take(Tag(2)), Err(CommError::Unusable { .. })), "MPI was finalised");
    // It outlives MPI, and must not call it any more.
    drop(whole);
    ExitCode::SUCCESS
}

/// Rank 0 gives up an exchange in which it sends to a rank that receives nothing.
fn give_up_unanswered() -> ExitCode {
    let comm = MpiComm::of_world().map(|comm| comm.with_longest_wait(Duration::from_millis(300)));
    let comm = comm.unwrap_or_else(|error| panic!("{error}"));
    if comm.rank() == Rank(0) {
        let bytes = vec![7; 64 << 20];
        let failed = CommError::Unusable { why: "it is given up" };
        let _ = comm.exchange(Tag(2), &[Outgoing { to: Rank(1), bytes: &bytes }], &mut [], &mut |_| {
            Err(failed.clone())
        });
        println!("the buffer is freed");
    } else {
        // It is ended with the job, or else by the limit of the launch.
        std::thread::park();
    }
    ExitCode::SUCCESS
}

/// A rank that panicked would wait in `MPI_Finalize` for the others, which wait for it. If it just ends, the
/// launcher ends the others.
fn end_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(1);
    }));
}

fn run(how: &str, comm: Result<MpiComm, CommError>) -> MpiComm {
    let comm = comm.unwrap_or_else(|error| panic!("{error}"));
    let cases = comm_suite::cases();
    for case in &cases {
        comm_suite::run_case(&comm, case);
    }
    if comm.rank() == Rank(0) {
        println!("{how}: {} cases hold on {} ranks", cases.len(), comm.size());
    }
    comm
}
