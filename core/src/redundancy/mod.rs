//! Redundancy from the host's side: which ranks make a set, what a scheme sees of it, protecting and rebuilding.
//!
//! The host owns processes, metadata and file creation; what is computed is the scheme's. See the user guide's
//! section "Redundancy schemes".
//!
//! | part | what it is |
//! |---|---|
//! | `schemes` | the schemes in use, and the sets that they protect |
//! | `sets` | which ranks protect each other |
//! | `protect` | a set computes its redundancy, and neighbours keep each other's records |
//! | `rebuild` | lost parts come back, and what can be trusted is found out |
//! | `mend` | a dataset with lost parts is made whole, by ranks or by threads that stand for them |
//! | `host_set` | a set as its scheme sees it |
//! | `bytes` | a member's files as the one logical file that a scheme sees |
//! | `checksum` | the CRC32 of a file whose pieces come in any order |
//! | `neighbours` | which records a rank keeps for others |
//! | `place` | where the files of a part lie |

mod bytes;
mod checksum;
mod host_set;
pub(crate) mod mend;
pub(crate) mod neighbours;
pub(crate) mod place;
pub(crate) mod protect;
pub(crate) mod rebuild;
pub(crate) mod schemes;
pub(crate) mod sets;
