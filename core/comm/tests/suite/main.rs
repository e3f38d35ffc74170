//! The suite of all communicators: over threads, over TCP. `scr-ffi` runs it over MPI.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, reason = "a test")]

mod all;
mod tcp;
mod threads;
