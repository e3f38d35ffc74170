//! What every part of scr stands on.
//!
//! | part | what it is |
//! |---|---|
//! | [`fs`] | the file layer, through which every file operation of the runtime goes |
//! | [`env`](mod@env) | the world around a session: variables, clock, output |
//! | [`message`] | lines to the user |
//! | [`parallel`] | work for several threads |
//! | `build` | the settings of a build |

#![allow(
    missing_docs,
    reason = "only crates of scr call this one: a name that says everything needs no sentence"
)]
// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod build;
pub mod codes;
pub mod env;
pub mod fs;
pub mod message;
pub mod parallel;
mod rank;

pub use rank::Rank;

/// The version of this release, as `SCR_Get_version` gives it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Continues if something holds, and else gives the error.
///
/// # Errors
/// What `fault` gives.
pub fn ensure<E>(holds: bool, fault: impl FnOnce() -> E) -> Result<(), E> {
    holds.then_some(()).ok_or_else(fault)
}

/// An error with its causes, on one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

// The kit of the tests names this crate from outside; the units of this crate compile it as a part of themselves.
#[cfg(test)]
extern crate self as scr_base;
#[cfg(test)]
#[path = "../../../tests/kit/src"]
pub mod kit {
    pub mod descriptors;
    pub mod env;
    pub mod faulty;
}
