//! The world as the running process sees it. The one place in core that asks the system for it.
#![expect(clippy::disallowed_methods, reason = "all other code asks the system through this file")]

use super::{standard, Clock, Env, Link, Output, Watch};
use crate::build;
use crate::fs::{Files, Retrying};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

impl Env {
    /// The world of this process: its variables, its current folder, its host, its user, the system's clock,
    /// and standard output and error. Taken once; what changes later is not seen.
    ///
    /// `install_dir` is the folder that `lib/libscr.so` or `bin/scr` lies below, where it is known. Variables that are not UTF-8
    /// are left out; a parameter that is not is kept with U+FFFD, for which it is refused by name. A user without a name is
    /// called by the number, as `uid1000`.
    ///
    /// # Errors
    /// The current folder does not exist or cannot be read.
    pub fn of_process(install_dir: Option<PathBuf>, files: Arc<dyn Files>) -> io::Result<Self> {
        let variables = variables(std::env::vars_os());
        let uid = rustix::process::getuid().as_raw();
        let user = user_name(&variables, uid).unwrap_or_else(|| format!("uid{uid}"));
        Ok(Self {
            variables,
            current_dir: std::env::current_dir()?,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            user,
            uid,
            is_privileged: is_privileged(),
            processors: processors(&*files),
            began: began(&*files).unwrap_or_else(SystemTime::now),
            install_dir,
            record_base: Some(build::CNTL_BASE.unwrap_or(build::LOCAL_BASE).into()),
            files: Retrying::around(files),
            clock: Arc::new(SystemClock { start: Instant::now() }),
            output: Arc::new(StandardOutput),
            watch: Watch::default(),
            link: Link::Tcp,
        })
    }
}

fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    all.filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let value = match value.into_string() {
            Err(value) if name.starts_with("SCR_") => value.to_string_lossy().into_owned(),
            value => value.ok()?,
        };
        Some((name, value))
    })
    .collect()
}

/// How many threads can run at a time. The standard library reads the limits of this process, and tries for ever where a signal
/// seems to interrupt that each time.
fn processors(files: &dyn Files) -> u32 {
    let limits = files.read_about_system("/proc/self/cgroup");
    let count = limits.and_then(|_| std::thread::available_parallelism().ok());
    count.map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// When this process began.
fn began(files: &dyn Files) -> Option<SystemTime> {
    let since_boot = ticks_of_beginning(&files.read_about_system("/proc/self/stat")?)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?);
    let age = now.checked_sub(Duration::from_millis(since_boot.checked_mul(1000 / TICKS_PER_SECOND)?))?;
    SystemTime::now().checked_sub(age)
}

/// The 22nd field. The second one is the name of the program in parentheses, which may hold any letters.
fn ticks_of_beginning(stat: &str) -> Option<u64> {
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_whitespace().nth(19)?.parse().ok()
}

/// The unit of times in `/proc`, on every processor that scr runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Whether the file of the program gave it the rights of another user or group (set-user-ID, set-group-ID).
fn is_privileged() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() != geteuid() || getgid() != getegid()
}

/// `$USER`, or else what the user database says. Batch systems and containers often leave `$USER` out.
fn user_name(variables: &BTreeMap<String, String>, uid: u32) -> Option<String> {
    if let Some(name) = variables.get("USER").filter(|name| !name.is_empty()) {
        return Some(name.clone());
    }
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok()??;
    Some(user.name)
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

struct StandardOutput;

impl Output for StandardOutput {
    fn info(&self, line: &str) {
        standard::to_stdout(line);
    }

    fn error(&self, line: &str) {
        standard::to_stderr(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_looked_up_where_the_variable_is_unset_or_empty() {
        let root = user_name(&BTreeMap::new(), 0).unwrap();
        assert_eq!(root, "root");
        let empty = BTreeMap::from([("USER".to_string(), String::new())]);
        assert_eq!(user_name(&empty, 0).unwrap(), "root");
        let set = BTreeMap::from([("USER".to_string(), "ann".to_string())]);
        assert_eq!(user_name(&set, 0).unwrap(), "ann");
    }

    #[test]
    fn a_user_that_nobody_knows_has_no_name() {
        assert_eq!(user_name(&BTreeMap::new(), 4_000_000_123), None);
    }

    #[test]
    fn a_parameter_that_is_no_text_is_not_taken_for_unset() {
        use std::os::unix::ffi::OsStringExt as _;
        let latin = || OsString::from_vec(b"/caf\xe9".to_vec());
        let found = variables([("SCR_PREFIX".into(), latin()), ("HOME".into(), latin())].into_iter());
        assert_eq!(found, BTreeMap::from([("SCR_PREFIX".to_string(), "/caf\u{fffd}".to_string())]));
    }

    #[test]
    fn the_beginning_of_this_process_is_known() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 1";
        assert_eq!(ticks_of_beginning(stat), Some(4711));
        assert_eq!(ticks_of_beginning("7 (a"), None);
        let age = began(&crate::fs::RealFiles).unwrap().elapsed().unwrap();
        assert!(age < Duration::from_secs(86_400), "{age:?}");
    }

    #[test]
    fn the_stopwatch_never_goes_back() {
        let clock = SystemClock { start: Instant::now() };
        let first = clock.elapsed();
        assert!(clock.elapsed() >= first);
    }
}
