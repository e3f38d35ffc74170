//! The export of a plugin's library: one module, which may grow at its end.

use super::boundary::{Constructed, LogSinkBox, SchemeBox, TransportBox};
use super::ApiVersion;
use abi_stable::abi_stability::abi_checking::check_layout_compatibility;
use abi_stable::library::{
    __call_root_module_loader, LibHeader, LibraryError, RootModule, RootModuleError, RootModuleResult,
};
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RBoxError, ROption, RSlice};
use abi_stable::StableAbi;
use std::ops::RangeInclusive;

/// The version of the boundary that this crate has.
pub const API_VERSION: ApiVersion = ApiVersion { major: 1, minor: 1 };

/// [`API_VERSION`] as the loader compares it.
const API_VERSION_TEXT: &str = "1.1.0";

/// Makes what a plugin offers from a packed tree of options.
#[repr(C)]
#[derive(StableAbi)]
pub struct Constructor<B> {
    /// The function in the plugin's library.
    pub new: extern "C" fn(RSlice<'_, u8>) -> Constructed<B>,
}

impl<B> Clone for Constructor<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Constructor<B> {}

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
    pub scheme: ROption<Constructor<SchemeBox>>,
    /// Makes a transport.
    #[sabi(last_prefix_field)]
    pub transport: ROption<Constructor<TransportBox>>,
    /// Makes a log sink. Since 1.1: a plugin of 1.0 has none.
    #[sabi(missing_field(default))]
    pub log: ROption<Constructor<LogSinkBox>>,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "scr_plugin";
    const NAME: &'static str = "scr_plugin";
    const VERSION_STRINGS: VersionStrings = VersionStrings::new(API_VERSION_TEXT);
}

/// The module of a library that was built for this version of the boundary, which works with ours.
///
/// The loader's own check wants a library to have all that the host has. One that was built for an older version has less;
/// then it is the library whose every part must be found in the host.
///
/// # Errors
/// The types of the library are not those of its version, or it failed when it was asked what it offers.
pub(super) fn of_library(header: &LibHeader, version: ApiVersion) -> Result<PluginModuleRef, LibraryError> {
    let ours = <PluginModuleRef as StableAbi>::LAYOUT;
    let unstable = |error: RBoxError| LibraryError::AbiInstability(error);
    let theirs = header
        .layout()
        .ok_or_else(|| unstable(RBoxError::from_fmt("the library does not describe its types")))?;
    let checked = match version.minor < API_VERSION.minor {
        true => check_layout_compatibility(theirs, ours),
        false => check_layout_compatibility(ours, theirs),
    };
    checked.map_err(|errors| unstable(RBoxError::from_fmt(&errors)))?;
    // SAFETY: the library describes its module as a `PluginModule` that shares with ours all fields up to the end of the
    // shorter one, and which fields are there is asked at each access.
    let module = unsafe { header.unchecked_layout::<PluginModuleRef>() };
    module.map_err(RootModuleError::into_library_error::<PluginModuleRef>)
}

/// The items that a plugin crate offers.
pub struct Constructors {
    /// Makes a scheme.
    pub scheme: Option<Constructor<SchemeBox>>,
    /// Makes a transport.
    pub transport: Option<Constructor<TransportBox>>,
    /// Makes a log sink.
    pub log: Option<Constructor<LogSinkBox>>,
    /// The on-disk formats that it reads; it writes the last one.
    pub formats: RangeInclusive<u32>,
}

/// The function that the exported static calls once, when the library is loaded.
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
            log: self.log.into(),
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
