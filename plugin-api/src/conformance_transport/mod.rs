//! The conformance suite for transports: what every transport must do, whoever wrote it.
//!
//! Each [`Case`] is one rule. A plugin's own tests, and `scr plugin check`, put a transport through
//! [`run`]; a vendor does the same. A case gets a folder of its own, and tells in one line what was found and what
//! was expected.
//!
//! ```
//! # use scr_plugin_api::conformance_transport::{run, Subject};
//! # fn check(make: &dyn Fn() -> Box<dyn scr_plugin_api::Transport>, folder: &std::path::Path) {
//! let failures = run(&Subject { make, folder, full: None });
//! assert!(failures.is_empty(), "{failures:#?}");
//! # }
//! ```

mod cases;
mod full;
mod stage;

pub use full::TinyFileSystem;

use crate::Transport;
use std::path::Path;

/// What is put through the suite.
pub struct Subject<'a> {
    /// Makes a transport; each case takes a fresh one.
    pub make: &'a dyn Fn() -> Box<dyn Transport>,
    /// An existing folder, in which each case makes its own.
    pub folder: &'a Path,
    /// A folder on a file system with room for less than 8 MiB and more than 64 KiB, where there is one: see
    /// [`TinyFileSystem`]. Without it the case of the full destination is left out.
    pub full: Option<&'a Path>,
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Case {
    /// The rule, as a sentence.
    pub name: &'static str,
    run: fn(&Subject<'_>, &Path) -> Result<(), String>,
}

/// A rule that is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rule.
    pub case: &'static str,
    /// What was found instead.
    pub found: String,
}

/// All rules.
pub fn all() -> &'static [Case] {
    cases::ALL
}

/// Puts a transport through all rules, and gives those it does not keep.
pub fn run(subject: &Subject<'_>) -> Vec<Failure> {
    all().iter().filter_map(|case| case.run(subject).err()).collect()
}

impl Case {
    /// Puts a transport through this rule.
    ///
    /// # Errors
    /// The rule is not kept, or its folder could not be made.
    pub fn run(&self, subject: &Subject<'_>) -> Result<(), Failure> {
        let folder = subject.folder.join(self.name.replace(' ', "_"));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("the folder {} could not be made: {error}", folder.display()))
            .and_then(|()| (self.run)(subject, &folder))
            .map_err(|found| Failure { case: self.name, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CopyItem, CopyJob, CopyState, PluginError, PluginErrorKind};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// What a transport does wrong.
    #[derive(Clone, Copy, PartialEq)]
    enum Wrong {
        Nothing,
        CopiesNothing,
        DropsTheLastByte,
        IgnoresTheSize,
        ForgetsErrors,
        CopiesAgain,
        TakesAnyTicket,
        LiesAboutTheChecksum,
    }

    /// The simplest transport there is, but for what it does wrong.
    struct Simple(Wrong, Mutex<BTreeMap<Vec<u8>, (CopyJob, CopyState)>>);

    impl Simple {
        fn item(&self, item: &CopyItem) -> Result<(), String> {
            let mut bytes =
                std::fs::read(&item.source).map_err(|e| format!("{}: {e}", item.source.display()))?;
            if bytes.len() as u64 != item.bytes && self.0 != Wrong::IgnoresTheSize {
                return Err(format!("{} has a wrong size", item.source.display()));
            }
            if self.0 == Wrong::DropsTheLastByte {
                bytes.pop();
            }
            if self.0 == Wrong::CopiesNothing {
                return Ok(());
            }
            std::fs::write(&item.destination, bytes)
                .map_err(|e| format!("{}: {e}", item.destination.display()))
        }
    }

    impl Transport for Simple {
        fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
            let ticket = format!("simple {} end", job.token).into_bytes();
            let mut jobs = self.1.lock().unwrap();
            if self.0 != Wrong::CopiesAgain {
                match jobs.get(&ticket) {
                    Some((known, CopyState::Done)) if known == job => return Ok(ticket),
                    Some(_) => return Err(PluginError::new(PluginErrorKind::Refused, "token used")),
                    None => {}
                }
            }
            let state = match job.items.iter().try_for_each(|item| self.item(item)) {
                Err(text) if self.0 != Wrong::ForgetsErrors => {
                    CopyState::Failed(PluginError::new(PluginErrorKind::Io, text))
                }
                _ => CopyState::Done,
            };
            jobs.insert(ticket.clone(), (job.clone(), state));
            Ok(ticket)
        }

        fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
            match self.1.lock().unwrap().get(ticket) {
                Some((_, state)) => Ok(state.clone()),
                None if self.0 == Wrong::TakesAnyTicket => Ok(CopyState::Done),
                None => Err(PluginError::new(PluginErrorKind::Refused, "foreign")),
            }
        }

        fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
            self.poll(ticket)
        }

        fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
            self.poll(ticket).map(drop)
        }

        fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
            let jobs = self.1.lock().unwrap();
            let item = jobs.get(ticket)?.0.items.get(item)?;
            let crc = crc32fast::hash(&std::fs::read(&item.source).ok()?);
            Some(if self.0 == Wrong::LiesAboutTheChecksum { !crc } else { crc })
        }
    }

    fn failures_of(wrong: Wrong) -> Vec<Failure> {
        let folder = tempfile::TempDir::new().unwrap();
        let make: &dyn Fn() -> Box<dyn Transport> = &|| Box::new(Simple(wrong, Mutex::default()));
        run(&Subject { make, folder: folder.path(), full: None })
    }

    #[test]
    fn a_transport_that_keeps_the_rules_passes() {
        assert_eq!(failures_of(Wrong::Nothing), []);
    }

    #[test]
    fn each_fault_is_found() {
        for (wrong, rule) in [
            (Wrong::CopiesNothing, "files of every size arrive"),
            (Wrong::DropsTheLastByte, "files of every size arrive"),
            (Wrong::IgnoresTheSize, "a source of another size is an error"),
            (Wrong::ForgetsErrors, "a missing source is an error"),
            (Wrong::CopiesAgain, "the same job twice is one copy"),
            (Wrong::TakesAnyTicket, "a foreign ticket is an error"),
            (Wrong::LiesAboutTheChecksum, "a checksum is that of the bytes"),
        ] {
            let failures = failures_of(wrong);
            assert!(failures.iter().any(|failure| failure.case == rule), "{rule}: {failures:?}");
        }
    }
}
