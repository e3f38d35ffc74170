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

use crate::{KvTree, LogSink, PluginError, PluginErrorKind, Scheme, Transport};
use abi_stable::library::{LibHeader, LibraryError};
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{ROption, RResult, RSlice};
use boundary::{AbiError, Constructed};
pub use guard::panic_text;
use guard::{guard, Exported};
use module::Constructor;

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
}

/// What a plugin offers, as the host uses it. All its errors come out by [`answer`](Self::answer) or [`blamed`](Self::blamed).
struct Hosted<B> {
    object: B,
    /// The kind and name of the plugin.
    who: String,
}

impl<B> Hosted<B> {
    fn answer<T>(&self, answer: RResult<T, AbiError>) -> Result<T, PluginError> {
        answer.into_result().map_err(|error| self.blamed(error))
    }

    /// An error of the plugin, which names it. Where another member has given up, that one's does.
    fn blamed(&self, error: AbiError) -> PluginError {
        let error = PluginError::from(error);
        match error.kind {
            PluginErrorKind::Aborted => error,
            kind => PluginError::new(kind, format!("{}: {}", self.who, error.text)),
        }
    }
}

/// The kinds of what a plugin offers: each with its trait, and with what crosses.
macro_rules! kinds {
    ($($kind:ident: $what:literal, $trait:ident, $boxed:ident, $object:ident, $has:ident, $get:ident, $new:ident;)*) => {
        impl LoadedPlugin {
            $(
                #[doc = concat!("Whether it has a ", $what, ".")]
                pub fn $has(&self) -> bool {
                    self.module.$kind().is_some()
                }

                #[doc = concat!("Its ", $what, ", with these options, whose errors name the plugin as `who`.")]
                ///
                /// # Errors
                /// The plugin's error on the options; [refused](PluginError::refused) if it has none.
                pub fn $get(&self, who: &str, options: &KvTree) -> Result<Box<dyn $trait>, PluginError> {
                    let object = construct(self.module.$kind(), $what, options)?;
                    Ok(Box::new(Hosted { object, who: who.to_owned() }))
                }
            )*
        }

        $(
            /// The constructor in a plugin's library.
            #[doc(hidden)]
            pub fn $new<P: $trait + 'static>(
                packed: RSlice<'_, u8>,
                new: impl FnOnce(&KvTree) -> Result<P, PluginError>,
            ) -> Constructed<boundary::$boxed> {
                constructed($what, packed, new, |made| boundary::$object::from_value(made, TD_Opaque))
            }
        )*
    };
}

kinds! {
    scheme: "scheme", Scheme, SchemeBox, AbiScheme_TO, has_scheme, scheme, new_scheme;
    transport: "transport", Transport, TransportBox, AbiTransport_TO, has_transport, transport, new_transport;
    log: "log sink", LogSink, LogSinkBox, AbiLogSink_TO, has_log, log_sink, new_log_sink;
}

/// What a constructor of a plugin makes with these options.
fn construct<B>(
    constructor: ROption<Constructor<B>>,
    what: &str,
    options: &KvTree,
) -> Result<B, PluginError> {
    let none = || PluginError::refused(format!("the plugin has no {what}"));
    let constructor = constructor.into_option().ok_or_else(none)?;
    Ok((constructor.new)(RSlice::from_slice(&options.pack())).into_result()?)
}

/// What a constructor in a plugin's library gives to the host.
fn constructed<P, B>(
    what: &'static str,
    packed: RSlice<'_, u8>,
    new: impl FnOnce(&KvTree) -> Result<P, PluginError>,
    boxed: impl FnOnce(Exported<P>) -> B,
) -> Constructed<B> {
    guard(format_args!("making the {what}"), || {
        let options = KvTree::unpack(packed.as_slice()).map_err(|error| {
            PluginError::fault(format!("the options that the host sent cannot be read: {error}"))
        })?;
        Ok(boxed(Exported::new(what, new(&options)?)))
    })
}

/// The expansion of the export macros. It is of no use to anyone else, and free to change.
#[doc(hidden)]
pub mod __private {
    pub use super::boundary::{Constructed, LogSinkBox, SchemeBox, TransportBox};
    pub use super::module::{export, Constructor, Constructors};
    pub use super::{new_log_sink, new_scheme, new_transport};
    pub use abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};
    pub use abi_stable::std_types::RSlice;
}

#[cfg(test)]
mod tests;
