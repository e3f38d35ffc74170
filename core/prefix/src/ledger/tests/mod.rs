//! The ledger as its users see it.

mod numbers;
mod world;
