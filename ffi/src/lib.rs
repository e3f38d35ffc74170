//! `libscr.so`: the C interface of the scr runtime.
//!
//! `include/scr.h` is the contract, and [`api`] holds its functions one by one, [`restart_api`] those for other numbers of ranks.
//! Every one of them goes through
//! [`state::entry`]: the one session of the process, no panic that crosses into C, one line for a failure and a
//! fixed number for its kind. Core has the rules of the calls; this crate has only what C adds.

pub mod api;
pub mod config_api;
pub mod configf;
mod failure;
pub mod message;
mod mpi_library;
mod place;
pub mod restart_api;
mod shutdown;
mod state;
mod text;
