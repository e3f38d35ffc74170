//! Runs MPI jobs on pretend nodes of this machine, against a built tree under `target/stage/NAME`.
//!
//! ```no_run
//! use scr_tests::{Cluster, Mpi, Program};
//!
//! let mut cluster = Cluster::new(4);
//! let killed = cluster.job(Mpi::OpenMpi, 8, Program::CkptTest).args(["--kill-rank", "5"]).run();
//! assert!(!killed.succeeded());
//! cluster.lose_node(2);
//! let restarted = cluster.job(Mpi::OpenMpi, 8, Program::CkptTest).run();
//! assert_eq!(restarted.restarted_from(), Some("ckpt.3"));
//! ```
//!
//! [`on_each_mpi`] makes one test for each MPI of a function that gets the MPI to use.

#![allow(clippy::disallowed_methods, reason = "a test fails if it cannot continue")]

mod at_call;
mod browser;
mod cluster;
mod exporter;
mod job;
mod mariadb;
mod mpi;
mod parallel;
mod programs;
mod python;
mod slurm;

pub use at_call::{on_all, on_rank, Call};
pub use browser::{expect_well_shown, take_picture, Theme};
pub use cluster::Cluster;
pub use exporter::{Server, NODE_EXPORTER};
pub use job::{forget_settings, Job, Outcome, RunningJob};
pub use mariadb::MariaDb;
pub use mpi::{
    has_lammps, has_namespaces, record_skip, run_if_there, run_on_any, with_compiler, with_optional, Mpi,
};
pub use parallel::ParallelFs;
pub use programs::{compile, repository, stage, target, Program};
pub use python::python;
pub use slurm::Slurm;
