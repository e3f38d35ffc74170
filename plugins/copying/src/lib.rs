//! The common parts of transports: how one file is copied, and how a job of many files is kept.
//!
//! A [`Job`] is the list of copies in one request of the host. Any number of threads may work on it, and any thread may poll it,
//! wait for it, or stop it. [`Copying`] makes a transport of them, with a [`Pool`] of threads or other workers: it finds a job
//! by its ticket, and makes one copy of a job that is requested twice. [`copy_part`] copies one file, or continues an earlier
//! copy of it: in the kernel if no checksum is needed, otherwise in one pass with it; holes stay holes.
//! [`prepare`] and [`confirm`] are for files that another program copies. A [`Pace`](scr_plugin_api::pace::Pace) keeps all copies that
//! share it within a limit. The host sets metadata.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test fails if it gets no thread"))]
// A test does to a descriptor what an application may do.
#![cfg_attr(not(test), forbid(unsafe_code))]

mod arrival;
mod buffer;
mod control;
mod copying;
mod error;
mod file;
mod job;
mod jobs;
mod pool;

pub use arrival::{confirm, prepare};
pub use buffer::Buffer;
pub use control::Control;
pub use copying::{Copying, Workers};
pub use error::CopyError;
pub use file::{copy_part, How, Part, Written};
pub use job::Job;
pub use jobs::{check_order, forget_oldest};
pub use pool::Pool;
