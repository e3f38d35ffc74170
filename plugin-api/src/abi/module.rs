//! What the library of a plugin exports: one module, which may grow at its end.

use super::boundary::{ConstructedScheme, ConstructedTransport};
use super::ApiVersion;
use abi_stable::library::{__call_root_module_loader, RootModule, RootModuleResult};
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{ROption, RSlice};
use abi_stable::StableAbi;
use std::ops::RangeInclusive;

/// The version of the boundary that this crate has.
pub const API_VERSION: ApiVersion = ApiVersion { major: 1, minor: 0 };

/// [`API_VERSION`] as the loader compares it.
const API_VERSION_TEXT: &str = "1.0.0";

/// Makes a scheme from a packed tree of options.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct SchemeConstructor {
    /// The function in the plugin's library.
    pub new: extern "C" fn(RSlice<'_, u8>) -> ConstructedScheme,
}

/// Makes a transport from a packed tree of options.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct TransportConstructor {
    /// The function in the plugin's library.
    pub new: extern "C" fn(RSlice<'_, u8>) -> ConstructedTransport,
}

/// The exported module. Made by the export macros.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef, prefix_fields = PluginModulePrefix)))]
#[sabi(missing_field(panic))]
pub struct PluginModule {
    /// Major number of the version of the boundary that the plugin was built against.
    pub api_major: u32,
    /// Minor number of the same.
    pub api_minor: u32,
    /// The oldest on-disk format that the plugin reads.
    pub oldest_format: u32,
    /// The newest on-disk format that the plugin reads, and the one it writes.
    pub newest_format: u32,
    /// Makes a scheme.
    pub scheme: ROption<SchemeConstructor>,
    /// Makes a transport.
    #[sabi(last_prefix_field)]
    pub transport: ROption<TransportConstructor>,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "scr_plugin";
    const NAME: &'static str = "scr_plugin";
    const VERSION_STRINGS: VersionStrings = VersionStrings::new(API_VERSION_TEXT);
}

/// What a plugin crate has to offer.
pub struct Constructors {
    /// Makes a scheme.
    pub scheme: Option<SchemeConstructor>,
    /// Makes a transport.
    pub transport: Option<TransportConstructor>,
    /// The on-disk formats that it reads; it writes the last one.
    pub formats: RangeInclusive<u32>,
}

/// What the exported static calls, once, when the library is loaded.
pub fn export(module: fn() -> PluginModuleRef) -> RootModuleResult {
    __call_root_module_loader(module)
}

impl Constructors {
    /// The module that exports them.
    pub fn into_module(self) -> PluginModuleRef {
        PluginModule {
            api_major: API_VERSION.major,
            api_minor: API_VERSION.minor,
            oldest_format: *self.formats.start(),
            newest_format: *self.formats.end(),
            scheme: self.scheme.into(),
            transport: self.transport.into(),
        }
        .leak_into_prefix()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_compares_the_version_that_we_state() {
        assert_eq!(API_VERSION_TEXT, format!("{API_VERSION}.0"));
    }

    #[test]
    fn the_macro_exports_the_symbol_that_the_loader_looks_for() {
        assert_eq!(abi_stable::library::ROOT_MODULE_LOADER_NAME, super::super::export::SYMBOL);
    }
}
