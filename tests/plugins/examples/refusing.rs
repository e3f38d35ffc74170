//! A scheme whose constructor refuses.

use scr_plugin_api::{KvTree, PluginError, PluginErrorKind, Scheme, Set, SetShape};

struct Never;

impl Scheme for Never {
    fn losses_survived(&self, _set_size: u32) -> Result<u32, PluginError> {
        unreachable!("it cannot be made")
    }
    fn redundancy_len(&self, _shape: &SetShape<'_>) -> Result<u64, PluginError> {
        unreachable!("it cannot be made")
    }
    fn protect(&self, _set: &dyn Set) -> Result<(), PluginError> {
        unreachable!("it cannot be made")
    }
    fn rebuild(&self, _set: &dyn Set, _format: u32) -> Result<(), PluginError> {
        unreachable!("it cannot be made")
    }
}

scr_plugin_api::export_scheme! {
    formats: 1..=1,
    new: |_options: &KvTree| {
        Err::<Never, _>(PluginError::new(PluginErrorKind::Refused, "the licence server does not answer"))
    },
}
