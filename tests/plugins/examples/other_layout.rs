//! A plugin that says the right version and has other types.

#![allow(missing_docs, non_local_definitions)]

use abi_stable::library::RootModule;
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::{export_root_module, StableAbi};

#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef, prefix_fields = PluginModulePrefix)))]
pub struct PluginModule {
    pub api_major: u64,
    #[sabi(last_prefix_field)]
    pub name: abi_stable::std_types::RStr<'static>,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "scr_plugin";
    const NAME: &'static str = "scr_plugin";
    const VERSION_STRINGS: VersionStrings = VersionStrings::new("1.0.0");
}

#[export_root_module]
pub fn module() -> PluginModuleRef {
    PluginModule { api_major: 1, name: "other".into() }.leak_into_prefix()
}
