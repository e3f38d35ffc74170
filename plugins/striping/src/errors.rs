//! Short names for the errors of a scheme.

use scr_plugin_api::{PluginError, PluginErrorKind};

/// What was asked makes no sense.
pub fn refused(text: String) -> PluginError {
    PluginError::new(PluginErrorKind::Refused, text)
}

pub(crate) fn corrupt(text: String) -> PluginError {
    PluginError::new(PluginErrorKind::Corrupt, text)
}

pub(crate) fn fault(text: &str) -> PluginError {
    PluginError::new(PluginErrorKind::Fault, text)
}
