//! A world made by a test: nothing in it comes from the machine it runs on.

use scr_base::env::{Clock, Env, Link, Output, Watch};
use scr_base::fs::{Files, Retrying};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A world for a test, and the handles to look at it and to move it on.
#[derive(Clone)]
pub struct TestEnv {
    env: Env,
    clock: Arc<FakeClock>,
    output: Arc<RecordedOutput>,
}

impl TestEnv {
    /// A world for a test: no variables, host `host0`, user `user1` with id 1000, no installation, the clock at
    /// the epoch, and an output that records. The `with_` methods change it.
    pub fn new(files: Arc<dyn Files>, current_dir: impl Into<PathBuf>) -> Self {
        let clock = Arc::new(FakeClock::default());
        let output = Arc::new(RecordedOutput::default());
        let env = Env {
            variables: BTreeMap::new(),
            current_dir: current_dir.into(),
            host: "host0".to_string(),
            user: "user1".to_string(),
            uid: 1000,
            is_privileged: false,
            processors: 1,
            began: SystemTime::UNIX_EPOCH,
            install_dir: None,
            record_base: None,
            files: Retrying::around(files),
            clock: clock.clone(),
            output: output.clone(),
            watch: Watch::default(),
            link: Link::InCalls,
        };
        Self { env, clock, output }
    }

    /// Sets a variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.env.variables.insert(name.to_string(), value.to_string());
        self
    }

    /// Sets the name of the host.
    #[must_use]
    pub fn with_host(mut self, host: &str) -> Self {
        self.env.host = host.to_string();
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn with_user(mut self, user: &str, uid: u32) -> Self {
        self.env.user = user.to_string();
        self.env.uid = uid;
        self
    }

    /// Gives the program more rights than its user has.
    #[must_use]
    pub fn with_privileges(mut self) -> Self {
        self.env.is_privileged = true;
        self
    }

    /// Sets the time since the epoch at which the process began.
    #[must_use]
    pub fn with_beginning(mut self, since_epoch: Duration) -> Self {
        self.env.began = SystemTime::UNIX_EPOCH + since_epoch;
        self
    }

    /// Lets threads of ranks talk over TCP.
    #[must_use]
    pub fn with_link(mut self, link: Link) -> Self {
        self.env.link = link;
        self
    }

    /// Sets the folder of the installation.
    #[must_use]
    pub fn with_install_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.env.install_dir = Some(dir.into());
        self
    }

    /// Sets the folder in which a job records where it keeps datasets.
    #[must_use]
    pub fn with_record_base(mut self, dir: impl Into<PathBuf>) -> Self {
        self.env.record_base = Some(dir.into());
        self
    }

    /// The world itself. Clones share the clock and the output.
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// The clock, to move it on.
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }

    /// The messages to the user so far.
    pub fn output(&self) -> &RecordedOutput {
        &self.output
    }
}

/// A clock that stands still until a test moves it. It starts at the epoch.
#[derive(Debug, Default)]
pub struct FakeClock {
    since_epoch: Mutex<Duration>,
    elapsed: Mutex<Duration>,
}

impl FakeClock {
    /// Moves both the time of day and the stopwatch on.
    pub fn advance(&self, by: Duration) {
        *held(&self.since_epoch) += by;
        *held(&self.elapsed) += by;
    }

    /// Sets the time of day, also back, as an administrator may. The stopwatch does not notice.
    pub fn set_since_epoch(&self, since_epoch: Duration) {
        *held(&self.since_epoch) = since_epoch;
    }
}

impl Clock for FakeClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + *held(&self.since_epoch)
    }

    fn elapsed(&self) -> Duration {
        *held(&self.elapsed)
    }
}

/// Keeps the messages to the user.
#[derive(Debug, Default)]
pub struct RecordedOutput {
    info: Mutex<Vec<String>>,
    error: Mutex<Vec<String>>,
}

impl RecordedOutput {
    /// Takes the lines of information.
    pub fn take_info(&self) -> Vec<String> {
        std::mem::take(&mut *held(&self.info))
    }

    /// Whether a line about what went wrong has these words.
    pub fn has_error_with(&self, words: &str) -> bool {
        held(&self.error).iter().any(|line| line.contains(words))
    }

    /// Takes the lines about what went wrong.
    pub fn take_errors(&self) -> Vec<String> {
        std::mem::take(&mut *held(&self.error))
    }
}

impl Output for RecordedOutput {
    fn info(&self, line: &str) {
        held(&self.info).push(line.to_string());
    }

    fn error(&self, line: &str) {
        held(&self.error).push(line.to_string());
    }
}

/// A test that panicked elsewhere must not hide what was recorded.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
