//! Starts an agent if none runs.

use crate::presence::{agent_is_there, Turn};
use rustix::fs::{memfd_create, MemfdFlags};
use scr_plugin_api::{above_standard, Handle};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the agent of a control directory.
#[derive(Debug)]
pub(crate) struct Launcher {
    control: PathBuf,
    /// An `scr` command.
    program: Option<PathBuf>,
    /// So long a start may take.
    limit: Duration,
}

impl Launcher {
    pub(crate) fn new(control: PathBuf, program: Option<PathBuf>) -> Self {
        Self { control, program, limit: LIMIT }
    }

    /// Returns once an agent runs; where many processes of a node find none, one of them starts it. If it fails, so do those that
    /// have waited for it.
    pub(crate) fn see_that_one_runs(&self) -> Result<(), String> {
        if agent_is_there(&self.control) {
            return Ok(());
        }
        let Some(program) = &self.program else {
            return Err(format!(
                "no agent runs for {}; start `scr agent` on this node",
                self.control.display()
            ));
        };
        // A start takes so long at most, and then some.
        let turn = Turn::take(&self.control, 2 * self.limit)
            .map_err(|error| format!("{} cannot be locked: {error}", self.control.display()))?;
        if agent_is_there(&self.control) {
            return Ok(());
        }
        turn.failure_before().map_or(Ok(()), Err)?;
        turn.tell("");
        let mut command = Command::new(program);
        command.arg("agent").arg("--detach").arg("--control").arg(&self.control);
        // An agent must not keep open what belongs to the application, or its launcher would wait for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
        let said = run(&mut command, self.limit);
        if agent_is_there(&self.control) {
            return Ok(());
        }
        let why = match said {
            Err(error) => error.to_string(),
            Ok(said) => said.trim().replace('\n', " "),
        };
        let (program, control) = (program.display(), self.control.display());
        let why =
            format!("no agent runs for {control}, and `{program} agent --detach` has started none: {why}");
        turn.tell(&why);
        Err(why)
    }
}

/// Runs a command to its end, and gives what it has said on standard error: into a file in memory, which a child that it leaves
/// keeps nobody waiting for. One that takes too long is killed: a program on a file system that hangs must not keep the
/// application waiting.
fn run(command: &mut Command, limit: Duration) -> io::Result<String> {
    let said = above_standard(|| memfd_create("said", MemfdFlags::CLOEXEC))?;
    let said = Handle::new(File::from(said))?;
    let own = above_standard(|| said.get()?.try_clone())?;
    let mut child = above_standard(|| command.stderr(own).spawn())?;
    if !ends_within(&mut child, limit)? {
        child.kill()?;
        // Unless the system keeps it, as in a file system that hangs.
        ends_within(&mut child, GRACE)?;
        return Err(io::Error::new(ErrorKind::TimedOut, format!("it has not ended within {limit:?}")));
    }
    let (mut file, mut text) = (said.get()?, Vec::new());
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn ends_within(child: &mut Child, limit: Duration) -> io::Result<bool> {
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() >= limit {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// A start takes some milliseconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(1);
/// So long the end of a command that was killed may take.
const GRACE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::LAUNCH;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_start_that_does_not_end_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("scr");
        let number = dir.path().join("number");
        let script = format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", number.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let limit = Duration::from_millis(500);
        let launcher = Launcher { limit, ..Launcher::new(dir.path().to_owned(), Some(program)) };
        let failed = launcher.see_that_one_runs().unwrap_err();
        assert!(failed.contains("has not ended within 500ms"), "{failed}");
        let number = std::fs::read_to_string(number).unwrap();
        assert!(!Path::new("/proc").join(number.trim()).exists(), "nothing is left of it");
    }

    /// All processes of a node waited for ever for one that was stopped while it started the agent.
    #[test]
    fn a_process_that_is_stopped_at_the_start_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let stopped = Turn::take(dir.path(), LIMIT).unwrap();
        let limit = Duration::from_millis(50);
        let launcher = Launcher { limit, ..Launcher::new(dir.path().to_owned(), Some("/bin/true".into())) };
        let failed = launcher.see_that_one_runs().unwrap_err();
        assert!(failed.contains("another process has kept"), "{failed}");
        drop(stopped);
        let failed = launcher.see_that_one_runs().unwrap_err();
        assert!(failed.contains("has started none"), "{failed}");
    }

    /// Each of 64 ranks waited for the start of all before it, and then for its own.
    #[test]
    fn processes_that_wait_for_a_start_that_fails_do_not_try_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (program, starts, go) =
            (dir.path().join("scr"), dir.path().join("starts"), dir.path().join("go"));
        let script = "echo >> $0/../starts; until [ -e $0/../go ]; do sleep 0.01; done; echo no >&2; exit 1";
        let script = script.replace("$0/..", &dir.path().display().to_string());
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let launcher = Launcher {
            limit: Duration::from_secs(60),
            ..Launcher::new(dir.path().to_owned(), Some(program))
        };
        let failures = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| launcher.see_that_one_runs())).collect();
            let began = Instant::now();
            while open_at(&dir.path().join(LAUNCH)) < 8 {
                assert!(began.elapsed() < Duration::from_secs(60), "seven of them wait");
                std::thread::sleep(LOOK);
            }
            std::fs::write(go, "").unwrap();
            all.into_iter().map(|thread| thread.join().unwrap().unwrap_err()).collect::<Vec<_>>()
        });
        assert!(failures.iter().all(|why| why.contains("has started none: no")), "{failures:?}");
        assert_eq!(std::fs::read_to_string(starts).unwrap().lines().count(), 1);
        // The next process tries again.
        launcher.see_that_one_runs().unwrap_err();
        assert_eq!(std::fs::read_to_string(dir.path().join("starts")).unwrap().lines().count(), 2);
    }

    /// How many times this process has a file open.
    fn open_at(path: &Path) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter(|number| std::fs::read_link(number.path()).is_ok_and(|file| file == path)).count()
    }

    #[test]
    fn a_failed_start_of_an_agent_gives_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let failed = |program: Option<&Path>| {
            let launcher = Launcher::new(dir.path().to_owned(), program.map(PathBuf::from));
            launcher.see_that_one_runs().unwrap_err()
        };
        assert!(failed(None).contains("start `scr agent`"));
        assert!(failed(Some(Path::new("/no/such/scr"))).contains("/no/such/scr"));
        assert!(failed(Some(Path::new("/bin/true"))).contains("has started none"));
    }
}
