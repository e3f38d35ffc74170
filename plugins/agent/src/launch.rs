//! Starts an agent if none runs.

use crate::presence::{self, agent_is_there};
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
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

    /// Returns once an agent runs; where many processes of a node find none, one of them starts it.
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
        let alone = presence::alone(&self.control)
            .map_err(|error| format!("{} cannot be locked: {error}", self.control.display()))?;
        if agent_is_there(&self.control) {
            return Ok(());
        }
        let mut command = Command::new(program);
        command.arg("agent").arg("--detach").arg("--control").arg(&self.control);
        // An agent must not keep open what belongs to the application, or its launcher would wait for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir("/");
        let said = run(&mut command, self.limit);
        drop(alone);
        if agent_is_there(&self.control) {
            return Ok(());
        }
        let why = match said {
            Err(error) => error.to_string(),
            Ok(said) => said.trim().replace('\n', " "),
        };
        let (program, control) = (program.display(), self.control.display());
        Err(format!("no agent runs for {control}, and `{program} agent --detach` has started none: {why}"))
    }
}

/// Runs a command to its end, and gives what it has said on standard error. One that takes too long is killed: a program on a
/// file system that hangs must not keep the application waiting.
fn run(command: &mut Command, limit: Duration) -> io::Result<String> {
    let mut child = command.spawn()?;
    let (sender, said) = mpsc::channel();
    if let Some(mut stderr) = child.stderr.take() {
        // What the command has started may keep the pipe open.
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
        });
    }
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() >= limit {
            child.kill()?;
            return Err(io::Error::new(ErrorKind::TimedOut, format!("it has not ended within {limit:?}")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(said.recv_timeout(GRACE).unwrap_or_default())
}

/// A start takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(1);
/// So long the last words of a command that has ended may take.
const GRACE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_start_that_does_not_end_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("scr");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let limit = Duration::from_millis(50);
        let launcher = Launcher { limit, ..Launcher::new(dir.path().to_owned(), Some(program)) };
        let failed = launcher.see_that_one_runs().unwrap_err();
        assert!(failed.contains("has not ended within 50ms"), "{failed}");
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
