//! Whole flushes in one process: what arrives, and what is left after every fault and every crash.

mod detached;
mod durable;
mod faults;
mod plain;
pub(crate) mod stage;
mod worker;
