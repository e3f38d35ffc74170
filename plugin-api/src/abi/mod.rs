//! The boundary between the runtime and a separately built plugin.
//!
//! Authors and the runtime both use the plain traits ([`Scheme`], [`Set`](crate::Set),
//! [`Bytes`](crate::Bytes), [`Transport`], [`LogSink`]). This module is what is between them:
//! - `boundary`: what crosses, with a layout that is checked when a library is loaded
//! - `scheme`, `transport`, `log`: the adapters, from the plain traits to what crosses and back
//! - `module`: what a library exports, and the version of it
//! - `export`: the macros that make a crate a plugin
//! - `guard`: no panic crosses, in neither direction
//!
//! The rule for growing it: a method is added at the end of a trait, with a default body; a field is added at
//! the end of the module. Structs that cross by value never change. So every 1.x works with every other 1.y.

mod boundary;
mod export;
mod guard;
mod log;
mod module;
mod scheme;
mod transport;

pub use module::{PluginModule, PluginModuleRef, API_VERSION};

use crate::{KvTree, LogSink, PluginError, Scheme, Transport};
use abi_stable::library::{LibHeader, LibraryError};
use abi_stable::std_types::{RResult, RSlice};
use boundary::AbiError;
use guard::{guard, Exported};

/// Version of the boundary: host and plugin work together where the major number is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// Grows when something that was there changes.
    pub major: u32,
    /// Grows when something is added.
    pub minor: u32,
}

impl ApiVersion {
    /// Whether a host of this version can work with a plugin of that one.
    pub fn works_with(self, plugin: ApiVersion) -> bool {
        self.major == plugin.major
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl std::str::FromStr for ApiVersion {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
        Ok(Self { major: major.parse()?, minor: minor.parse()? })
    }
}

/// A plugin whose library is loaded, as the host holds it.
#[derive(Clone, Copy)]
pub struct LoadedPlugin {
    module: PluginModuleRef,
}

impl LoadedPlugin {
    /// The plugin in a library that says it was built for this version of the boundary, one that ours works with.
    ///
    /// # Errors
    /// The types of the library are not those of its version, or it failed when it was asked what it offers.
    pub fn of_library(header: &LibHeader, version: ApiVersion) -> Result<Self, LibraryError> {
        module::of_library(header, version).map(Self::new)
    }

    /// The plugin that exports `module`.
    pub fn new(module: PluginModuleRef) -> Self {
        Self { module }
    }

    /// The version of the boundary that the plugin was built against.
    pub fn api_version(&self) -> ApiVersion {
        ApiVersion { major: self.module.api_major(), minor: self.module.api_minor() }
    }

    /// The oldest on-disk format that it reads and the newest, which it writes.
    pub fn formats(&self) -> (u32, u32) {
        (self.module.oldest_format(), self.module.newest_format())
    }

    /// Whether it has a scheme.
    pub fn has_scheme(&self) -> bool {
        self.module.scheme().is_some()
    }

    /// Whether it has a transport.
    pub fn has_transport(&self) -> bool {
        self.module.transport().is_some()
    }

    /// Whether it has a log sink.
    pub fn has_log(&self) -> bool {
        self.module.log().is_some()
    }

    /// Its scheme, with these options.
    ///
    /// # Errors
    /// The plugin's error on the options; [refused](PluginError::refused) if it has no scheme.
    pub fn scheme(&self, options: &KvTree) -> Result<Box<dyn Scheme>, PluginError> {
        let new = self.module.scheme().into_option().map(|constructor| constructor.new);
        Ok(Box::new(scheme::Hosted(construct(new, "redundancy scheme", options)?)))
    }

    /// Its transport, with these options.
    ///
    /// # Errors
    /// The plugin's error on the options; [refused](PluginError::refused) if it has no transport.
    pub fn transport(&self, options: &KvTree) -> Result<Box<dyn Transport>, PluginError> {
        let new = self.module.transport().into_option().map(|constructor| constructor.new);
        Ok(Box::new(transport::Hosted(construct(new, "transport", options)?)))
    }

    /// Its log sink, with these options.
    ///
    /// # Errors
    /// The plugin's error on the options; [refused](PluginError::refused) if it has no log sink.
    pub fn log_sink(&self, options: &KvTree) -> Result<Box<dyn LogSink>, PluginError> {
        let new = self.module.log().into_option().map(|constructor| constructor.new);
        Ok(Box::new(log::Hosted(construct(new, "log sink", options)?)))
    }
}

/// What a constructor of a plugin makes with these options.
fn construct<B>(
    new: Option<extern "C" fn(RSlice<'_, u8>) -> RResult<B, AbiError>>,
    what: &str,
    options: &KvTree,
) -> Result<B, PluginError> {
    let none = || PluginError::refused(format!("the plugin has no {what}"));
    Ok(new.ok_or_else(none)?(RSlice::from_slice(&options.pack())).into_result()?)
}

/// What a constructor in a plugin's library gives to the host.
fn constructed<P, B>(
    what: &'static str,
    packed: RSlice<'_, u8>,
    new: impl FnOnce(&KvTree) -> Result<P, PluginError>,
    boxed: impl FnOnce(Exported<P>) -> B,
) -> RResult<B, AbiError> {
    guard(format_args!("making the {what}"), || {
        Ok(boxed(Exported::new(what, new(&unpacked(packed.as_slice())?)?)))
    })
}

/// The options that a constructor was given.
fn unpacked(options: &[u8]) -> Result<KvTree, PluginError> {
    KvTree::unpack(options).map_err(|error| {
        PluginError::fault(format!("the options that the host sent cannot be read: {error}"))
    })
}

/// The expansion of the export macros. It is of no use to anyone else, and free to change.
#[doc(hidden)]
pub mod __private {
    pub use super::boundary::{ConstructedLogSink, ConstructedScheme, ConstructedTransport};
    pub use super::log::new_log_sink;
    pub use super::module::{export, Constructors, LogConstructor, SchemeConstructor, TransportConstructor};
    pub use super::scheme::new_scheme;
    pub use super::transport::new_transport;
    pub use abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};
    pub use abi_stable::std_types::RSlice;
}

#[cfg(test)]
mod tests;
