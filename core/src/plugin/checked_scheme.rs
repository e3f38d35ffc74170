//! Checks the results of a plugin's scheme, so that an impossible one is an error that names the plugin.

use crate::cache::verify::Damage;
use scr_plugin_api::{PluginError, Scheme, Set, SetShape};
use std::path::PathBuf;

/// A scheme of a plugin, with the plugin's kind and name, and its library.
pub struct CheckedScheme {
    pub(super) scheme: Box<dyn Scheme>,
    pub(super) who: String,
    pub(super) library: PathBuf,
}

impl CheckedScheme {
    fn fault<T>(&self, answer: &str) -> Result<T, PluginError> {
        Err(PluginError::fault(format!("{} {answer}; this is an error in the plugin", self.who)))
    }

    /// What it has rebuilt is not what was recorded, though everything that it was rebuilt from is.
    pub(crate) fn wrong_bytes(&self, damage: &Damage) -> PluginError {
        let (who, library) = (&self.who, self.library.display());
        PluginError::fault(format!("{who} ({library}) has rebuilt other bytes: {damage}"))
    }
}

impl Scheme for CheckedScheme {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        let losses = self.scheme.losses_survived(set_size)?;
        if losses < set_size {
            return Ok(losses);
        }
        self.fault(&format!(
            "promises to survive the loss of {losses} members of a set of {set_size}, and at least one must be left"
        ))
    }

    fn recoverable(&self, lost: &[bool]) -> bool {
        self.scheme.recoverable(lost)
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        let bytes = self.scheme.redundancy_len(shape)?;
        let data: u64 = shape.data_lens.iter().fold(0, |sum, &len| sum.saturating_add(len));
        let size = shape.data_lens.len() as u32;
        let is_none = |rank| self.scheme.redundancy_len(&SetShape { rank, ..*shape }) == Ok(0);
        if data > 0 && bytes == 0 && (0..size).all(is_none) && self.losses_survived(size)? > 0 {
            return self
                .fault(&format!("promises to survive a loss, and stores nothing for {data} bytes of data"));
        }
        if bytes <= LARGEST_FILE {
            return Ok(bytes);
        }
        self.fault(&format!(
            "asks for {bytes} bytes of redundancy for a set with {data} bytes of data, and no file can have so many"
        ))
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        self.scheme.protect(set)
    }

    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError> {
        self.scheme.rebuild(set, format)
    }
}

/// The largest length of a file.
const LARGEST_FILE: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::PluginErrorKind;

    /// Answers with two numbers, and has nothing to do.
    struct Answers(u32, u64);

    impl Scheme for Answers {
        fn losses_survived(&self, _set_size: u32) -> Result<u32, PluginError> {
            Ok(self.0)
        }
        fn redundancy_len(&self, _shape: &SetShape<'_>) -> Result<u64, PluginError> {
            Ok(self.1)
        }
        fn protect(&self, _set: &dyn Set) -> Result<(), PluginError> {
            Ok(())
        }
        fn rebuild(&self, _set: &dyn Set, _format: u32) -> Result<(), PluginError> {
            Ok(())
        }
    }

    fn checked(losses: u32, bytes: u64) -> CheckedScheme {
        CheckedScheme {
            scheme: Box::new(Answers(losses, bytes)),
            who: "the scheme MIRROR".to_owned(),
            library: PathBuf::new(),
        }
    }

    #[test]
    fn a_promise_to_survive_the_loss_of_all_members_is_an_error_that_names_the_plugin() {
        assert_eq!(checked(3, 0).losses_survived(4), Ok(3));
        assert_eq!(checked(0, 0).losses_survived(1), Ok(0));
        for (losses, size) in [(4, 4), (1, 1), (u32::MAX, 8)] {
            let error = checked(losses, 0).losses_survived(size).unwrap_err();
            let expected = format!(
                "the scheme MIRROR promises to survive the loss of {losses} members of a set of {size},"
            );
            assert!(error.kind == PluginErrorKind::Fault && error.text.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_length_that_no_file_can_have_is_an_error_that_names_the_plugin() {
        let shape = SetShape { rank: 0, data_lens: &[5, 6] };
        assert_eq!(checked(0, LARGEST_FILE).redundancy_len(&shape), Ok(LARGEST_FILE));
        assert_eq!(checked(0, 0).redundancy_len(&shape), Ok(0));
        assert_eq!(checked(1, 0).redundancy_len(&SetShape { rank: 0, data_lens: &[0, 0] }), Ok(0));
        let error = checked(1, 0).redundancy_len(&shape).unwrap_err();
        let nothing = "the scheme MIRROR promises to survive a loss, and stores nothing for 11 bytes of data";
        assert!(error.kind == PluginErrorKind::Fault && error.text.starts_with(nothing), "{error}");
        for bytes in [LARGEST_FILE + 1, u64::MAX] {
            let error = checked(0, bytes).redundancy_len(&shape).unwrap_err();
            let expected =
                format!("the scheme MIRROR asks for {bytes} bytes of redundancy for a set with 11 bytes");
            assert!(error.kind == PluginErrorKind::Fault && error.text.starts_with(&expected), "{error}");
        }
    }
}
