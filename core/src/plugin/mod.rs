//! Plugins from the host's side: found by their manifests, checked, loaded, agreed upon by all ranks.
//!
//! | part | what it does |
//! |---|---|
//! | `manifest`, `options` | what a manifest says, and what a configuration line may say of options |
//! | `named` | the plugins that descriptors name, checked without loading them |
//! | `search` | which manifests there are, in which order, and which were skipped and why |
//! | `elf`, `check` | nobody else may write what we load, and a library is checked before the dynamic linker touches it |
//! | `load` | the checked file, and no other, is opened, and its version and layout compared |
//! | `checked_scheme` | an impossible result of a scheme is an error that names the plugin |
//! | `host` | one plugin by its kind and name, ready to make schemes, transports and log sinks |
//! | `overdue` | calls of a scheme or transport that do not return |
//! | `agree` | the same plugin on every rank, or the same error |
//!
//! Only plugins that the configuration names are ever opened; listing them needs their manifests only.

mod agree;
mod check;
mod checked_scheme;
pub(crate) mod elf;
mod host;
mod load;
mod manifest;
mod named;
mod options;
pub(crate) mod overdue;
mod search;

pub use agree::open_together;
pub use check::{check_library, CheckedLibrary};
pub use checked_scheme::CheckedScheme;
pub use host::{OpenPlugin, PluginHost, PluginLoadError};
pub use load::load;
pub use manifest::{Capabilities, Format, Manifest, PluginKind};
pub use named::check_plugins;
pub use options::{OptionSpec, OptionType};
pub use scr_base::env::{Distrust, Trusted};
pub use search::{Discovery, FoundPlugin, PassedOver, PluginFolder, Shadowed};
