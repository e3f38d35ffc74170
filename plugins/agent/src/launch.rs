//! Starting an agent where none runs.

use crate::presence::{self, agent_is_there};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Starts the agent of a control directory.
#[derive(Debug)]
pub(crate) struct Launcher {
    control: PathBuf,
    /// An `scr` command.
    program: Option<PathBuf>,
}

impl Launcher {
    pub(crate) fn new(control: PathBuf, program: Option<PathBuf>) -> Self {
        Self { control, program }
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
        let output = command.output();
        drop(alone);
        if agent_is_there(&self.control) {
            return Ok(());
        }
        let why = match output {
            Err(error) => error.to_string(),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "),
        };
        let (program, control) = (program.display(), self.control.display());
        Err(format!("no agent runs for {control}, and `{program} agent --detach` has started none: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn where_no_agent_can_be_started_it_is_told_why() {
        let dir = tempfile::tempdir().unwrap();
        let told = |program: Option<&Path>| {
            let launcher = Launcher::new(dir.path().to_owned(), program.map(PathBuf::from));
            launcher.see_that_one_runs().unwrap_err()
        };
        assert!(told(None).contains("start `scr agent`"));
        assert!(told(Some(Path::new("/no/such/scr"))).contains("/no/such/scr"));
        assert!(told(Some(Path::new("/bin/true"))).contains("has started none"));
    }
}
