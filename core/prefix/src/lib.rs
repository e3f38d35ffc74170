//! The files of scr below the prefix directory, in the formats of C SCR v3.1, so that a job may switch the library between two
//! runs.
//!
//! | file in `.scr` | part |
//! |---|---|
//! | (the path of each of them) | [`Prefix`] |
//! | `index.scr`: the datasets on the parallel file system | [`Index`] |
//! | `scr.dataset.<id>/summary.scr`: one dataset | [`Summary`] |
//! | `scr.dataset.<id>/rank2file*`: the files of each of its ranks | [`Rank2File`] |
//! | `scr.dataset.<id>/container.<n>`: the files of a node in one | `container` |
//! | `halt.scr`: when the job should stop | [`Halt`] |
//! | `flush.scr`: where the datasets of this allocation are | [`FlushFile`] |
//! | `nodes.scr`: nodes of the last run | [`Nodes`] |
//! | `ids.scr`: which prefix directory this is, and which runs and dataset ids there were | `ids` |
//! | `running`: who runs now | `running` |
//! | `overwritten`: files that an application was given to write over | `overwritten` |
//! | `unsynced`: files and folders that could not be synced | `unsynced` |
//! | `current.scr`: the checkpoint named by `SCR_CURRENT` that a job has restarted from | `restarted` |
//! | (how flushes end) | [`commit`] |
//! | (the name of a file below the prefix directory) | [`FileName`] |
//! | (what several of them say of a dataset) | [`DatasetDescriptor`] |
//! | (how C SCR writes yes and no, times, checksums) | `fields` |
//! | (how files that several processes change are read and changed) | `shared` |
//! | (files that dead processes have left half written) | `tidy` |
//! | (errors of any of them) | [`PrefixError`] |
//!
//! A change of a file keeps other keys that C SCR or a later release wrote. Everything is synced.

#![allow(
    missing_docs,
    reason = "only crates of scr call this one: a name that says everything needs no sentence"
)]
// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod commit;
pub mod container;
mod descriptor;
mod error;
mod fields;
mod file_name;
mod flush_file;
mod halt;
mod ids;
mod index;
pub mod ledger;
mod nodes;
mod overwritten;
mod paths;
pub mod rank2file;
mod restarted;
mod running;
pub(crate) mod shared;
mod summary;
mod tidy;
mod unsynced;

pub use container::{Contents, Member};
/// The files of scr below a prefix directory whose form has a version, with those that this release reads. It writes the first, and
/// the later ones where something is used that needs them.
pub const FORMATS: [(&str, std::ops::RangeInclusive<u64>); 3] = [
    ("index.scr", index::VERSION..=index::VERSION),
    ("summary.scr", summary::READ),
    ("ids.scr", ids::VERSION..=ids::VERSION),
];

pub use descriptor::{Between, DatasetDescriptor, RestartPoint, Seq, RANKS};
pub use error::PrefixError;
pub use fields::{as_text, packed, set_crc};
pub use file_name::{staging_file, FileName, FileNameError, FileNameFault, MAX_NAME_BYTES};
pub use flush_file::{FlushEntry, FlushFile, InCache, Location};
pub use halt::{Begun, ChangedEnd, Halt, HaltDue, HaltReason, KnownEnd};
pub use ids::{Ids, PrefixId, RunId, Withdrawal, Withdrawn};
#[cfg(test)]
pub(crate) use ids::{MOST_BETWEEN, MOST_WITHDRAWN};
pub use index::{FlushProgress, Index, IndexEntry};
pub use nodes::{Ended, LastRun, Nodes};
pub use overwritten::Overwritten;
pub use paths::{real, Followed, Prefix, DIR_MODE, FILE_MODE};
pub use rank2file::{PrefixFile, Rank2File};
pub use restarted::Restarted;
pub use running::{OtherRun, Running};
pub use summary::Summary;
pub use tidy::tidy;
pub use unsynced::Unsynced;

// The kit of the tests names this crate from outside; the units of this crate compile its fixtures as a part of themselves.
#[cfg(test)]
extern crate self as scr_prefix;
#[cfg(test)]
#[path = "../../../tests/kit/src/fixtures.rs"]
pub mod fixtures;
