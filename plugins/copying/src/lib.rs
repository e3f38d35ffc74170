//! What all transports share: how one file is copied, and how a job of many files is kept.
//!
//! A [`Job`] is the list of copies that the host asks for in one go. Any number of threads may work on it,
//! and any thread may ask how far it is, wait for it, or stop it. [`Jobs`] finds a job again by its ticket,
//! and makes the same job asked for twice into one copy; [`Copying`] makes a transport of them,
//! with a [`Pool`] of threads or other workers. [`copy_file`] copies one file: in the kernel where no
//! checksum is asked, else in one pass with it; holes stay holes. [`copy_part`] goes on where an earlier
//! copy of a file has ended. [`prepare`] and [`confirm`] are for files that somebody else copies. A [`Pace`] keeps all
//! copies that share it within a limit. Metadata is the host's business.

#![forbid(unsafe_code)]

mod arrival;
mod buffer;
mod checksum;
mod control;
mod copying;
mod error;
mod extents;
mod file;
mod job;
mod jobs;
mod pace;
mod pool;

pub use arrival::{confirm, prepare};
pub use buffer::Buffer;
pub use control::Control;
pub use copying::{Copying, Workers};
pub use error::CopyError;
pub use file::{copy_file, copy_part, How, Part, Written};
pub use job::Job;
pub use jobs::{check_order, Begun, Jobs};
pub use pace::{Limits, Pace};
pub use pool::Pool;
