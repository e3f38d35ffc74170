//! The conformance suite for transports: what every transport must do, whoever wrote it.
//!
//! Each [`Case`] is one rule. A plugin's own tests, and `scr plugin check`, put a transport through
//! [`run`]; a vendor does the same. A case gets a folder of its own, and says in one line what was found and what
//! was expected.
//!
//! ```
//! # use scr_conformance::transport::run_in_a_folder;
//! # fn check(make: &dyn Fn() -> Box<dyn scr_plugin_api::Transport>) {
//! let report = run_in_a_folder(make, false).unwrap();
//! assert!(report.passed(), "{report}");
//! # }
//! ```
//!
//! A job is resumed by its ticket, also in another instance if a copy survives its process. A failed or cancelled job is started
//! again with the same token.

/// A table of rules: the function that tries each, its name and its cure.
macro_rules! cases {
    ($($run:ident: $name:literal, $cure:literal;)*) => {
        pub(super) const ALL: &[Case] = &[$(Case { name: $name, cure: $cure, run: $run }),*];
    };
}

mod cases;
mod failures;
mod file_system;
mod lifecycle;
mod limited;
mod stage;

pub use file_system::TinyFileSystem;

use crate::{running, Check, Report};
use limited::{Faults, Limited};
use scr_plugin_api::{held, Transport};
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
    run: fn(&Subject<'_>, &dyn Transport, &mut Stage) -> Result<(), String>,
}

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Case> {
    cases::ALL.iter().chain(failures::ALL).chain(lifecycle::ALL)
}

/// Puts a transport through all rules. After a call that does not return no more is tried.
pub fn run(subject: &Subject<'_>) -> Report {
    let (faults, limit) = (Arc::<Faults>::default(), subject.call);
    let make = || -> Box<dyn Transport> {
        Box::new(Limited { transport: (subject.make)().into(), limit, faults: Arc::clone(&faults) })
    };
    let subject = Subject { make: &make, ..*subject };
    let try_case = |case: &Case| {
        if faults.hung.load(Ordering::Relaxed) {
            return case.check(Err(NOT_TRIED.to_owned()), "let the call before return");
        }
        running::begin_check(case.name);
        let check = case.run(&subject);
        match held(&faults.panic).take() {
            // Also where an error was wanted: this is none.
            Some(panic) => case.check(Err(panic), running::PANICS),
            None if faults.hung.load(Ordering::Relaxed) => Check { cure: Some(HANGS.to_owned()), ..check },
            None => check,
        }
    };
    let mut checks: Vec<_> = all().map(try_case).collect();
    if let [Check { failed: 1.., .. }, others @ ..] = &mut *checks {
        // They fail with the copies, whose cure comes first.
        others.iter_mut().for_each(|check| check.cure = None);
    }
    Report { checks }
}

const HANGS: &str =
    "Look for a loop, a lock or a thread of the transport that never ends. Only `wait` may take as long as \
                     the copies do.";

const NOT_TRIED: &str = "it was not tried, as a call before has not returned";

/// The same in a folder for temporary files, with a full and a read-only file system where they can be mounted. To mount
/// them takes root. A call may take [`CALL`].
///
/// # Errors
/// The folder could not be made.
pub fn run_in_a_folder(make: &dyn Fn() -> Box<dyn Transport>, survives: bool) -> io::Result<Report> {
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
) -> io::Result<Report> {
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
    pub fn run(&self, subject: &Subject<'_>) -> Check {
        let folder = subject.folder.join(self.name.replace(' ', "_"));
        let run = |mut stage: Stage| (self.run)(subject, &*(subject.make)(), &mut stage);
        self.check(Stage::new(&folder).and_then(run), self.cure)
    }

    fn check(&self, kept: Result<(), String>, cure: &str) -> Check {
        let mut check = Check { name: self.name.to_owned(), ..Check::default() };
        kept.unwrap_or_else(|found| check.fail(found, cure));
        check
    }
}

#[cfg(test)]
mod tests;
