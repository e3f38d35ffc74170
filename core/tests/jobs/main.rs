//! Whole jobs in one process: ranks are threads, nodes are folders, plugins are the real libraries.
//!
//! | part | what it shows |
//! |---|---|
//! | `world` | the pretend machine that the others run on |
//! | `crash` | a job that dies between any two operations comes back with what it was promised |
//! | `node_loss` | checkpoints survive the loss of nodes, byte for byte |
//! | `redundancy` | each scheme, against every loss that it promises to survive, and one more |
//! | `damage` | flipped bits are found, repaired where that can be, and never given to the application |
//! | `vendor` | a vendor's plugin does all that, and a bad one does no harm |

#![allow(clippy::disallowed_methods, reason = "tests make and look at real files")]

mod damage;
mod crash;
mod node_loss;
mod redundancy;
mod vendor;
mod world;
