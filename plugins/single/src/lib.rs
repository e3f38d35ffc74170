//! The scheme SINGLE: files stay where they were written, and no redundancy is kept. It survives the end of a
//! process, but not the loss of a node. See docs/user/concepts.md.

#![deny(unsafe_code)]

use scr_plugin_api::{PluginError, Scheme, Set, SetShape};

/// The scheme SINGLE.
#[derive(Debug, Clone, Copy, Default)]
pub struct Single;

impl Scheme for Single {
    fn losses_survived(&self, _set_size: u32) -> Result<u32, PluginError> {
        Ok(0)
    }

    fn redundancy_len(&self, _shape: &SetShape<'_>) -> Result<u64, PluginError> {
        Ok(0)
    }

    fn protect(&self, _set: &dyn Set) -> Result<(), PluginError> {
        Ok(())
    }

    fn rebuild(&self, set: &dyn Set, _format: u32) -> Result<(), PluginError> {
        let lost = (0..set.size()).filter(|&member| set.lost(member));
        let ranks: Vec<String> = lost.map(|member| set.world_rank(member).to_string()).collect();
        if ranks.is_empty() {
            return Ok(());
        }
        Err(PluginError::too_many_lost(format!(
            "the files of world ranks {} are lost, and SINGLE keeps no redundancy: this dataset cannot be \
             rebuilt; use XOR, RS or PARTNER to survive the loss of a node",
            ranks.join(", ")
        )))
    }
}

scr_plugin_api::export_scheme! {
    formats: 1..=1,
    new: |_options| Ok(Single),
}
