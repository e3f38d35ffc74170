//! Runs commands for their output, with a limit to how long they may take.

use super::limited;
use crate::prelude::*;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use wait_timeout::ChildExt;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// `None` where it was killed at its limit.
    pub(crate) status: Option<ExitStatus>,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Finished {
    /// Whether it ended well.
    pub(crate) fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// This, if it ended well.
    ///
    /// # Errors
    /// Why it failed, on one line.
    pub(crate) fn expect_success(self) -> Result<Self> {
        ensure!(self.succeeded(), self.failure());
        Ok(self)
    }

    /// The answer in its output.
    pub(crate) fn answer<T: DeserializeOwned>(&self) -> Result<T, String> {
        answer_in(&self.stdout).ok_or_else(|| self.failure())
    }

    /// Why it failed, on one line: the last line it printed to standard error, or how it ended.
    pub(crate) fn failure(&self) -> String {
        let Some(status) = self.status else { return "it did not answer in time".to_owned() };
        match last_line(&self.stderr) {
            Some(line) => line.to_owned(),
            None => format!("it ended with {status}"),
        }
    }
}

/// Begins the line of an answer, among all that a shell on a node, or a library, may print.
const ANSWER: &str = "scr-answer: ";

/// Prints an answer for the command that has started this one.
pub(crate) fn print_answer(answer: &impl Serialize) -> Result<Answer> {
    print(format!("\n{ANSWER}{}\n", serde_json::to_string(answer)?))
}

/// The last answer in what a command has printed.
pub(crate) fn answer_in<T: DeserializeOwned>(text: &str) -> Option<T> {
    let answer = text.lines().rev().find_map(|line| line.strip_prefix(ANSWER));
    serde_json::from_str(answer?).ok()
}

/// When a command is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit<'a> {
    /// It takes longer than this.
    Total(Duration),
    /// Neither it nor any command with the same activity has printed something for too long.
    Idle(&'a Activity),
}

/// When commands that work together last printed something.
#[derive(Debug)]
pub(crate) struct Activity {
    longest_idle: Duration,
    last: Mutex<Instant>,
}

impl Activity {
    pub(crate) fn new(longest_idle: Duration) -> Self {
        Self { longest_idle, last: Mutex::new(Instant::now()) }
    }
}

/// Runs a command without input and without the `hidden` variables, and kills it at its limit.
///
/// # Errors
/// It cannot be started. How it ended is no error.
pub(crate) fn run(command: &[String], hidden: &[String], limit: Limit<'_>) -> Result<Finished> {
    // Files and not pipes: a process that outlives its command would keep a pipe open.
    let (stdout, stderr) = (file_for_output()?, file_for_output()?);
    let mut child = spawn(&mut without_input(command, hidden, &stdout, &stderr)?)?;
    let status = match limit {
        Limit::Total(time) => wait(&mut child, time)?,
        Limit::Idle(activity) => wait_while_active(&mut child, activity, || {
            Ok(stdout.metadata()?.len() + stderr.metadata()?.len())
        })?,
    };
    Ok(Finished { status, stdout: text(&stdout)?, stderr: text(&stderr)? })
}

fn without_input(words: &[String], hidden: &[String], stdout: &File, stderr: &File) -> Result<Command> {
    let (program, arguments) = words.split_first().context("there is no command to run")?;
    let mut command = Command::new(program);
    hidden.iter().for_each(|name| _ = command.env_remove(name));
    command.args(arguments).stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    Ok(command)
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| format!("cannot start `{}'", command.get_program().display()))
}

/// Waits for the end of a process, and kills it once nothing was printed for too long.
pub(crate) fn wait_while_active(
    child: &mut Child,
    activity: &Activity,
    mut printed: impl FnMut() -> Result<u64>,
) -> Result<Option<ExitStatus>> {
    let mut before = 0;
    loop {
        // How long the commands may still print nothing.
        let left = activity.longest_idle.saturating_sub(held(&activity.last).elapsed());
        if left.is_zero() {
            kill(child)?;
            return Ok(None);
        }
        let status = child.wait_timeout(left.min(ACTIVITY_TICK))?;
        let now = printed()?;
        if status.is_some() || now > before {
            *held(&activity.last) = Instant::now();
        }
        if status.is_some() {
            return Ok(status);
        }
        before = now;
    }
}

/// Whether a command names a program: a file, or one on PATH.
pub(crate) fn is_program(name: impl AsRef<Path>) -> bool {
    let name = name.as_ref();
    if name.components().count() != 1 {
        return name.is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    found
}

/// The output of a command.
///
/// # Errors
/// It cannot be started, fails, or takes too long; the error has its last line.
pub(crate) fn output_of(command: &[String], hidden: &[String], limit: Duration) -> Result<String> {
    let finished = run(command, hidden, Limit::Total(limit))?;
    ensure!(finished.succeeded(), "`{}' failed: {}", command.join(" "), finished.failure());
    Ok(finished.stdout)
}

/// What a launcher says of its version.
pub(crate) fn version_of(launcher: &str) -> Result<String> {
    output_of(&[launcher.to_owned(), "--version".to_owned()], &[], Duration::from_secs(20))
}

/// A command that runs beside this process, and continues when this process ends.
pub(crate) struct Started {
    child: Child,
    /// Standard output and standard error.
    output: File,
}

/// Starts a command, without input and without the `hidden` variables, in a process group of its own: a signal from the terminal
/// does not reach it.
///
/// # Errors
/// It cannot be started.
pub(crate) fn start(command: &[String], hidden: &[String]) -> Result<Started> {
    let output = file_for_output()?;
    let child = spawn(without_input(command, hidden, &output, &output)?.process_group(0))?;
    Ok(Started { child, output })
}

impl Started {
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it prints a line within some time and continues to run.
    pub(crate) fn prints_a_line(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let ended = self.has_ended();
            if !ended && text(&self.output).is_ok_and(|output| output.contains('\n')) {
                return true;
            }
            if ended || Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The last line that it printed.
    pub(crate) fn failure(&self) -> String {
        let output = text(&self.output).unwrap_or_default();
        last_line(&output).map_or_else(|| "it printed nothing".to_owned(), str::to_owned)
    }

    /// Waits for its end, and kills it where that takes too long.
    pub(crate) fn end_within(&mut self, limit: Duration) {
        // A process that cannot be waited for is gone.
        let _ = wait(&mut self.child, limit);
    }
}

/// Between two looks at a process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Between two looks at whether a command has printed something.
const ACTIVITY_TICK: Duration = Duration::from_millis(200);
/// A process that is stuck in the kernel does not end when it is killed, and nobody waits for it any longer than this.
const LONGEST_KILL: Duration = Duration::from_secs(5);

/// Waits for the end of a process, and kills it after the time of `limit`.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let status = child.wait_timeout(limit)?;
    if status.is_none() {
        kill(child)?;
    }
    Ok(status)
}

fn kill(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait_timeout(LONGEST_KILL)?;
    Ok(())
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}

/// All that a file for output has.
pub(crate) fn text(file: &File) -> Result<String> {
    // Opened again: to seek would move the place at which a process writes that has the file still.
    let mut again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(String::from_utf8_lossy(&limited(&mut again)?).into_owned())
}

/// A file without a name. A batch system may have removed the folder that `TMPDIR` names before the job's own end.
pub(crate) fn file_for_output() -> Result<File> {
    let own = std::env::temp_dir();
    tempfile::tempfile_in(&own).or_else(|error| {
        let others = ["/tmp", "/dev/shm"].into_iter().find_map(|folder| tempfile::tempfile_in(folder).ok());
        others.with_context(|| format!("cannot make a file in {} (TMPDIR): {error}", own.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_command_gives_its_output_or_its_last_line_of_stderr() {
        let limit = Duration::from_secs(30);
        assert_eq!(output_of(&shell("echo n0; echo noise >&2"), &[], limit).unwrap(), "n0\n");
        let error =
            output_of(&shell("echo one >&2; echo two >&2; echo >&2; exit 3"), &[], limit).unwrap_err();
        assert!(error.to_string().ends_with("failed: two"), "{error}");
        let error = output_of(&["/no/such/program".to_owned()], &[], limit).unwrap_err();
        assert!(error.to_string().contains("cannot start `/no/such/program'"), "{error}");
    }

    #[test]
    fn a_command_that_goes_on_is_seen_to_speak_and_to_end() {
        let limit = Duration::from_secs(30);
        let mut speaks = start(&shell("echo here; exec sleep 1000"), &[]).unwrap();
        assert!(speaks.prints_a_line(limit) && !speaks.has_ended());
        speaks.end_within(Duration::ZERO);
        assert!(speaks.has_ended());
        let mut fails = start(&shell("echo no room >&2; exit 1"), &[]).unwrap();
        fails.end_within(limit);
        assert!(!fails.prints_a_line(limit));
        assert_eq!(fails.failure(), "no room");
    }

    #[test]
    fn a_command_that_never_ends_is_killed_even_if_it_leaves_a_process() {
        let finished =
            run(&shell("sleep 5 & exec sleep 1000"), &[], Limit::Total(Duration::from_millis(50))).unwrap();
        assert_eq!(finished.failure(), "it did not answer in time");
        assert!(!finished.succeeded());
    }

    #[test]
    fn a_command_may_take_any_time_while_one_of_its_group_prints_something() {
        let activity = Activity::new(Duration::from_secs(3));
        let limit = Limit::Idle(&activity);
        let dir = tempfile::tempdir().unwrap();
        let over = dir.path().join("over").display().to_string();
        std::thread::scope(|scope| {
            let quiet = format!("until [ -e {over} ]; do sleep 0.1; done");
            let quiet = scope.spawn(move || run(&shell(&quiet), &[], limit).unwrap());
            let busy = format!("for i in 1 2 3 4 5 6 7 8 9; do echo; sleep 0.4; done; touch {over}");
            assert!(run(&shell(&busy), &[], limit).unwrap().succeeded());
            assert!(quiet.join().unwrap().succeeded());
        });
    }

    #[test]
    fn a_command_that_prints_nothing_more_is_killed() {
        let activity = Activity::new(Duration::from_millis(500));
        let finished = run(&shell("echo once; exec sleep 1000"), &[], Limit::Idle(&activity)).unwrap();
        assert_eq!(finished.failure(), "it did not answer in time");
    }
}
