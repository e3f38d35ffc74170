//! Whole jobs in one process: ranks are threads, nodes are folders, plugins are the real libraries.
//!
//! | part | what it shows |
//! |---|---|
//! | `world` | the pretend machine that the others run on |
//! | `vendor` | a vendor's plugin does all that, and a bad one does no harm |
//! | `node_loss` | checkpoints survive the loss of nodes, byte for byte |

mod node_loss;
mod vendor;
mod world;
