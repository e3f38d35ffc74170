//! The conformance suite for transports: what every transport must do, whoever wrote it.
//!
//! Each [`Case`] is one rule. A plugin's own tests, and `scr plugin check`, put a transport through
//! [`run`]; a vendor does the same. A case gets a folder of its own, and says in one line what was found and what
//! was expected.
//!
//! ```
//! # use scr_conformance::transport::run_in_a_folder;
//! # fn check(make: &dyn Fn() -> Box<dyn scr_plugin_api::Transport>) {
//! let failures = run_in_a_folder(make, false).unwrap();
//! assert!(failures.is_empty(), "{failures:#?}");
//! # }
//! ```
//!
//! A job is resumed by its ticket, also in another instance if a copy survives its process. A failed or cancelled job is started
//! again with the same token.

mod cases;
mod failures;
mod file_system;
mod lifecycle;
mod limited;
mod stage;

pub use file_system::TinyFileSystem;

use crate::{Check, Report};
use limited::{Hung, Limited};
use scr_plugin_api::Transport;
use stage::Stage;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// The subject of the suite.
pub struct Subject<'a> {
    /// Makes a transport; each case takes a fresh one.
    pub make: &'a dyn Fn() -> Box<dyn Transport>,
    /// An existing folder, in which each case makes its own.
    pub folder: &'a Path,
    /// A folder on a file system with room for less than 8 MiB and more than 64 KiB, where there is one: see
    /// [`TinyFileSystem`]. Without it the case of the full destination is left out.
    pub full: Option<&'a Path>,
    /// A folder on a file system that cannot be written, where there is one.
    pub read_only: Option<&'a Path>,
    /// Whether its manifest says that a copy survives the job, so that a ticket means something to another instance.
    pub survives: bool,
    /// How long a call may take.
    pub call: Duration,
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Case {
    /// The rule, as a sentence.
    pub name: &'static str,
    /// The usual cure if it is not kept.
    pub cure: &'static str,
    run: fn(&Subject<'_>, &mut Stage) -> Result<(), String>,
}

/// A rule that is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rule.
    pub case: &'static str,
    /// The finding instead.
    pub found: String,
    /// The usual cure.
    pub cure: &'static str,
}

/// How each rule was kept, of which these were not.
pub fn report(failures: Vec<Failure>) -> Report {
    let mut checks: Vec<_> =
        all().map(|case| Check { name: case.name.to_owned(), ..Check::default() }).collect();
    for Failure { case, found, cure } in failures {
        checks
            .iter_mut()
            .filter(|check| check.name == case)
            .for_each(|check| check.fail(found.clone(), cure));
    }
    Report { checks }
}

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Case> {
    cases::ALL.iter().chain(failures::ALL).chain(lifecycle::ALL)
}

/// Puts a transport through all rules, and gives those it does not keep. After a call that does not return no more is tried.
pub fn run(subject: &Subject<'_>) -> Vec<Failure> {
    let (hung, limit) = (Hung::default(), subject.call);
    let make = || -> Box<dyn Transport> {
        Box::new(Limited { transport: (subject.make)().into(), limit, hung: Arc::clone(&hung) })
    };
    let subject = Subject { make: &make, ..*subject };
    let try_case = |case: &Case| match hung.load(Ordering::Relaxed) {
        true => {
            let found = "it was not tried, as a call before has not returned".to_owned();
            Err(Failure { case: case.name, found, cure: "let the call before return" })
        }
        false => case.run(&subject),
    };
    all().filter_map(|case| try_case(case).err()).collect()
}

/// The same in a folder for temporary files, with a full and a read-only file system where they can be mounted. To mount
/// them takes root. A call may take [`CALL`].
///
/// # Errors
/// The folder could not be made.
pub fn run_in_a_folder(make: &dyn Fn() -> Box<dyn Transport>, survives: bool) -> io::Result<Vec<Failure>> {
    run_within(make, survives, CALL)
}

/// The same, with the time that a call may take.
///
/// # Errors
/// As there.
pub fn run_within(
    make: &dyn Fn() -> Box<dyn Transport>,
    survives: bool,
    call: Duration,
) -> io::Result<Vec<Failure>> {
    let folder = tempfile::tempdir()?;
    let mounted = |name: &str| {
        let point = folder.path().join(name);
        std::fs::create_dir(&point).map(|()| TinyFileSystem::mount(&point))
    };
    let (full, read_only) = (mounted("tiny")?, mounted("fixed")?.and_then(TinyFileSystem::made_read_only));
    Ok(run(&Subject {
        make,
        folder: folder.path(),
        full: full.as_ref().map(TinyFileSystem::folder),
        read_only: read_only.as_ref().map(TinyFileSystem::folder),
        survives,
        call,
    }))
}

/// How long a call may take before it counts as hung. Suites of several plugins may share a machine.
pub const CALL: Duration = Duration::from_secs(60);

impl Case {
    /// Puts a transport through this rule.
    ///
    /// # Errors
    /// The rule is not kept, or its folder could not be made.
    pub fn run(&self, subject: &Subject<'_>) -> Result<(), Failure> {
        let folder = subject.folder.join(self.name.replace(' ', "_"));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("the folder {} could not be made: {error}", folder.display()))
            .and_then(|()| (self.run)(subject, &mut Stage::new(&folder)?))
            .map_err(|found| Failure { case: self.name, found, cure: self.cure })
    }
}

#[cfg(test)]
mod tests;
