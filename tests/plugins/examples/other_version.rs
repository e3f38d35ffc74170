//! A plugin for a future version of the boundary.

#![allow(missing_docs, non_local_definitions)]

use abi_stable::library::RootModule;
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::{export_root_module, StableAbi};

#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef, prefix_fields = PluginModulePrefix)))]
pub struct PluginModule {
    #[sabi(last_prefix_field)]
    pub api: u32,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "scr_plugin";
    const NAME: &'static str = "scr_plugin";
    const VERSION_STRINGS: VersionStrings = VersionStrings::new("2.1.0");
}

#[export_root_module]
pub fn module() -> PluginModuleRef {
    PluginModule { api: 2 }.leak_into_prefix()
}
