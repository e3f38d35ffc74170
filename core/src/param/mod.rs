//! Parameters: one table, and everything from text to values. The user guide's section "Configure a job".
//!
//! - `table`: every parameter with its type, default, place and help; one typed constant each.
//! - `line`, `file`: a line as `key=value` pairs; a configuration file as settings with their file and line.
//! - `expand`, `value`: variables inside values; text as typed values.
//! - `raw`: what rank 0 reads and sends to all ranks.
//! - `pick`, `resolve`: which setting of a parameter counts, and why the others do not; the effective values on one rank.
//! - `params`: those values with their origins, to be asked.
//! - `check`: settings that contradict each other.
//! - `app`: `SCR_Config`.
//! - `origin`: where a setting was made; `problem`: what is wrong with it, and what to do about it; `shown`: what users wrote, as messages show it.
//!
//! Rank 0 calls [`RawSettings::load`] and broadcasts [`RawSettings::to_tree`]; every rank calls [`Params::resolve`].

mod app;
mod check;
mod expand;
mod file;
mod line;
mod origin;
mod params;
mod pick;
mod problem;
mod raw;
mod resolve;
mod shown;
mod table;
#[cfg(test)]
pub(crate) mod testing;
mod value;

pub use app::{AppConfig, Request, APP_CONF};
pub(crate) use expand::expanded;
pub use expand::normalise;
pub use file::unknown;
pub use origin::{Origin, Place};
pub use params::{Effective, Params};
pub use problem::{Cause, ConfigError, Problem};
pub use raw::{FileOf, RawSettings};
pub use table::*;
pub use value::{Datum, Kind, Value};

pub(crate) use params::Line;
pub(crate) use pick::scheme_name;
pub(crate) use shown::nearest;
