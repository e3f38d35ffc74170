//! What the launcher says of a process that is alone for MPI.
//!
//! With the launcher of another MPI than the application's, the processes do not find each other: each is rank 0 of 1. They would
//! share a prefix directory, and restart from each other's data. Only variables count that a launcher sets for each process that
//! it starts: those of an allocation are also there for a process that a batch script has started by itself.

use crate::error::Error;
use scr_base::env::Env;

/// How launchers call the number of processes, if they give it, and the rank of each.
const VARIABLES: [(Option<&str>, &str); 10] = [
    (Some("OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_RANK"),
    (Some("PMI_SIZE"), "PMI_RANK"),
    (Some("SLURM_STEP_NUM_TASKS"), "SLURM_PROCID"),
    (Some("FLUX_JOB_SIZE"), "FLUX_TASK_RANK"),
    (Some("JSM_NAMESPACE_SIZE"), "JSM_NAMESPACE_RANK"),
    (Some("MV2_COMM_WORLD_SIZE"), "MV2_COMM_WORLD_RANK"),
    (Some("MVP_COMM_WORLD_SIZE"), "MVP_COMM_WORLD_RANK"),
    (Some("MPIRUN_NPROCS"), "MPIRUN_RANK"),
    (None, "PALS_RANKID"),
    (None, "PMIX_RANK"),
];

/// Expects that no launcher has started others with this process, which is alone for MPI.
///
/// # Errors
/// One has. The launcher that one process was started by may itself run in one of several: then it is alone.
pub(crate) fn expect_alone(env: &Env) -> Result<(), Error> {
    let number = |name: &str| env.variable(name)?.parse::<u32>().ok();
    let said = |(size, rank): (Option<&'static str>, &'static str)| {
        Some((size.and_then(|size| Some((size, number(size)?))), rank, number(rank)?))
    };
    let said: Vec<_> = VARIABLES.into_iter().filter_map(said).collect();
    let is_alone = said.iter().any(|(size, ..)| size.is_some_and(|(_, size)| size == 1));
    let others = said.iter().find(|(size, _, rank)| size.is_some_and(|(_, size)| size > 1) || *rank > 0);
    let Some((size, name, rank)) = others.filter(|_| !is_alone) else { return Ok(()) };
    let (many, size) = match size {
        Some((name, size)) => (size.to_string(), format!("{name}={size}, ")),
        None => ("several".to_owned(), String::new()),
    };
    Err(Error::Config(format!(
        "the launcher has started {many} processes ({size}{name}={rank}), and MPI finds only this one: each would be a job of \
         one rank, and restart from what the others have written. It is the launcher of another MPI, or has another interface: \
         start the job with that of the MPI that the application is compiled with. If each process is to be a job of its own, \
         give each a prefix directory of its own (SCR_PREFIX) and unset {name}"
    )))
}
