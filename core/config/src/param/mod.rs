//! Parameters: one table, and everything from text to values. See docs/user/configuration.md.
//!
//! - `value`, `table`: text as typed values; every parameter with its type, default, place and help.
//! - `origin`, `problem`, `quote`: where a setting was made, what is wrong with it, and how messages quote it.
//! - `line`, `file`: a line as `key=value` pairs; a configuration file as settings with their file and line.
//! - `expand`: variables inside values.
//! - `safe`: which settings count only where nobody else could have made them.
//! - `app`, `query`: what `SCR_Config` sets, and what it answers.
//! - `resolve`: one parameter on one rank, from all settings of it.
//! - `settings`: everything that rank 0 reads and sends to all ranks.
//! - `params`, `check`: the parameters of one rank; settings that contradict each other.
//!
//! Rank 0 calls [`Settings::load`] and broadcasts them; every rank calls [`Params::resolve`].
//! The list above is in the order of imports: each file uses those before it.

mod app;
mod check;
mod expand;
mod file;
mod line;
mod origin;
mod params;
mod problem;
mod query;
mod quote;
mod resolve;
mod safe;
mod settings;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod value;

pub use app::{AppConfig, Request, APP_CONF};
pub use file::unknown;
pub use origin::{as_os_str, FileLine, Origin};
pub use params::{Line, Params};
pub use problem::{sort, Cause, ConfigError, Problem};
pub use quote::{nearest, quote, suggest};
pub(crate) use resolve::scheme_name;
pub use resolve::Parameter;
pub use settings::{FileOf, Settings};
pub use table::*;
pub use value::{normalise, FromValue, Interval, Kind, Value};
