//! Redundancy from the host's side: which ranks make a set, what a scheme sees of it, protecting and rebuilding.
//!
//! The host owns processes, metadata and file creation; what is computed is the scheme's. See the user guide's
//! section "Redundancy schemes".

mod bytes;
mod checksum;
mod host_set;
pub(crate) mod mend;
pub(crate) mod neighbours;
pub(crate) mod place;
pub(crate) mod protect;
pub(crate) mod rebuild;
pub(crate) mod sets;
