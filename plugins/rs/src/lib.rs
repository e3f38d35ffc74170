//! The scheme RS, after Reed and Solomon: every member of a set keeps k parity chunks, and any k members may be lost.
//! See docs/user/concepts.md.

#![deny(unsafe_code)]

use scr_plugin_api::{KvTree, PluginError};
use scr_striping::{count_option, Striping};

pub use scr_striping::FORMAT;

/// The option that says how many losses in each set are to be survived.
pub const SET_FAILURES: &str = "SET_FAILURES";

/// Losses that are survived if the option is not given.
const DEFAULT_FAILURES: u32 = 2;

/// The scheme RS with the options of a descriptor.
///
/// # Errors
/// `Refused` where [`SET_FAILURES`] is no number from 1 to 255.
pub fn rs(options: &KvTree) -> Result<Striping, PluginError> {
    Ok(Striping::new(count_option(options, SET_FAILURES, DEFAULT_FAILURES)?))
}

scr_plugin_api::export_scheme! {
    formats: FORMAT..=FORMAT,
    new: rs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::{PluginErrorKind, Scheme};

    fn with(value: &str) -> Result<Striping, PluginError> {
        let mut options = KvTree::new();
        options.set(SET_FAILURES, value);
        rs(&options)
    }

    #[test]
    fn two_losses_are_survived_unless_the_option_says_otherwise() {
        assert_eq!(rs(&KvTree::new()).unwrap().losses_survived(4).unwrap(), 2);
        assert_eq!(with("3").unwrap().losses_survived(4).unwrap(), 3);
    }

    #[test]
    fn as_many_failures_as_members_are_refused_with_both_numbers() {
        let error = with("4").unwrap().losses_survived(4).unwrap_err();
        assert_eq!(error.kind, PluginErrorKind::Refused);
        assert!(error.text.contains("N = 4, k = 4"), "{error}");
    }

    #[test]
    fn an_option_that_is_no_count_is_refused() {
        for value in ["0", "256", "-1", "two", ""] {
            assert!(with(value).unwrap_err().text.contains(SET_FAILURES), "{value}");
        }
    }
}
