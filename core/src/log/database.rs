//! The database of the parameters `SCR_LOG_DB_HOST` and so on, through its log plugin: the runtime contains no database client.

use crate::plugin::{PluginHost, PluginKind, PluginLoadError};
use scr_config::param::{self, Params};
use scr_plugin_api::LogSink;

/// Name of the plugin.
const PLUGIN: &str = "MYSQL";

/// The database that the parameters describe. Nothing is connected yet.
///
/// # Errors
/// There is no plugin for it, or the plugin refuses the parameters.
pub fn database(host: &PluginHost, params: &Params) -> Result<Box<dyn LogSink>, PluginLoadError> {
    let plugin = host.open(PluginKind::Log, PLUGIN)?;
    let debug = if params.get(&param::LOG_DB_DEBUG) { "1" } else { "0" };
    let texts = [
        ("HOST", params.get(&param::LOG_DB_HOST)),
        ("NAME", params.get(&param::LOG_DB_NAME)),
        ("USER", params.get(&param::LOG_DB_USER)),
        ("PASS", params.get(&param::LOG_DB_PASS)),
        ("CA", params.get(&param::LOG_DB_CA).map(|path| path.to_string_lossy().into_owned())),
    ];
    let given = texts.iter().filter_map(|(name, text)| Some((*name, text.as_deref()?)));
    let options = plugin.manifest.options(given.chain([("DEBUG", debug)]))?;
    plugin.log_sink(&options)
}
