//! Whole jobs in one process: ranks are threads, nodes are folders, plugins are the real libraries.
//!
//! | part | what it shows |
//! |---|---|
//! | `world` | the pretend machine that the others run on |
//! | `crash` | a job that dies between any two operations comes back with what it was promised |
//! | `node_loss` | checkpoints survive the loss of nodes, byte for byte |

mod crash;
mod node_loss;
mod world;
