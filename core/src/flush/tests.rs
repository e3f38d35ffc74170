//! Whole flushes in one process: what arrives, and what is left after every fault and every crash.

mod background;
mod behind;
mod durable;
mod faults;
mod plain;
pub(crate) mod stage;
