//! What users and sites set: [`param`] makes values of it, [`descriptor`] makes groups, stores and redundancy of those.
//! [`document`] reads TOML files.

#![allow(
    missing_docs,
    reason = "only crates of scr call this one: a name that says everything needs no sentence"
)]
// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod descriptor;
pub mod document;
pub mod param;
