//! Redundancy from the host's side: which ranks form a set, the view of a scheme on it, protecting and rebuilding.
//!
//! The host owns processes, metadata and file creation; the scheme owns the computation. See docs/user/concepts.md.
//!
//! | part | what it is |
//! |---|---|
//! | `plugins` | the plugins in use, each loaded once |
//! | `schemes` | the schemes in use, and the sets that they protect |
//! | `sets` | which ranks protect each other |
//! | `background` | a set protects a dataset while the application computes |
//! | `protect` | a set computes its redundancy, and neighbours keep each other's records |
//! | `rebuild` | a set rebuilds the lost parts of its members |
//! | `repair` | what ranks have lost, and what a set does about it: with the ranks of a job, or with threads in their place |
//! | `fit` | whether the records of all ranks belong together |
//! | `host_set` | a set as its scheme sees it |
//! | `neighbours` | which records a rank keeps for others |

pub(crate) mod background;
mod error;
mod fit;
mod host_set;
pub(crate) mod neighbours;
pub mod plugins;
pub(crate) mod protect;
mod rebuild;
pub mod repair;
pub(crate) mod schemes;
pub(crate) mod sets;

pub(crate) use error::RedundancyError;
