//! `scr agent`: the process of a node that executes the transfer files of the transport `AGENT`, also after the application has
//! ended. See docs/user/agent.md.
//!
//! There is one for each node and allocation. It is started as its own job step, or detached: by the first process of the
//! application that finds none, or by a script. It ends by itself; see [`mod@run`] for the rule. Exit codes: 0 done, 1 no (an
//! agent is there already, or none is), 2 an error.

mod run;

use crate::prelude::*;
use crate::progress::Heartbeat;
use nix::sys::signal::SigSet;
use scr_agent::{list, AgentPresence, Transfer};
use scr_core::make_control_dir;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

/// The action. Without an option: be the agent of this node until there is nothing left and the job is over.
#[derive(Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    action: Action,
    /// The control directory [default: that of a job started here]
    #[arg(long, value_name = "DIR")]
    control: Option<PathBuf>,
    /// How many files to copy at a time, each of another process
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Leave the session of the process that started the agent; for --detach
    #[arg(long, hide = true)]
    own_session: bool,
    /// Print a line from time to time while data moves, for a waiting process
    #[arg(long, hide = true, requires = "drain")]
    heartbeat: bool,
    /// Print the status as JSON
    #[arg(long, requires = "status")]
    json: bool,
}

/// At most one of these.
#[derive(Args)]
#[group(multiple = false)]
struct Action {
    /// Start an agent on this node that outlives this process and the job step, and return once it runs
    #[arg(long)]
    detach: bool,
    /// Return once everything is copied, by the running agent or by this process; then the agent ends
    #[arg(long)]
    drain: bool,
    /// End the agent now; another one can copy the rest
    #[arg(long)]
    stop: bool,
    /// Show whether an agent runs, and its progress
    #[arg(long)]
    status: bool,
}

/// Runs the command.
pub(crate) fn run(args: &AgentArgs) -> Result<Answer> {
    let env = environment::env()?;
    let control = control(&env, args)?;
    let threads = usize::try_from(args.threads)?;
    match &args.action {
        Action { detach: true, .. } => detach(control.path(), args.threads),
        Action { drain: true, .. } => {
            let heartbeat = Heartbeat::new(args.heartbeat);
            request(control.path(), run::DRAIN, &heartbeat)?;
            // If none runs, one that was killed may still have left something.
            run::until(&env, &control, threads, run::Until::NothingIsLeft, &heartbeat)?;
            let control = control.path().display();
            print_line(&format!("nothing is left to copy for {control}, and no agent runs"));
            Ok(Answer::Yes)
        }
        Action { stop: true, .. } => {
            let process = AgentPresence::find(control.path());
            request(control.path(), run::EXIT, &Heartbeat::new(false))?;
            let control = control.path().display();
            print_line(&match process {
                Some(process) => format!("the agent for {control} has ended, process {process}"),
                None => format!("no agent runs for {control}"),
            });
            Ok(Answer::from(process.is_some()))
        }
        Action { status: true, .. } => print_status(control.path(), args.json),
        _ => {
            if args.own_session {
                leave_session();
            }
            let became =
                run::until(&env, &control, threads, run::Until::TheJobIsOver, &Heartbeat::new(false))?;
            if !became {
                warn(format_args!("an agent runs already for {}", control.path().display()));
            }
            Ok(Answer::from(became))
        }
    }
}

/// The control directory, made where it is not there.
fn control(env: &Env, args: &AgentArgs) -> Result<OwnedDir> {
    let control = match &args.control {
        Some(control) => OwnedDir::at(&*env.files, &std::path::absolute(control)?, env.uid),
        None => make_control_dir(env, &environment::params(env)),
    };
    control.context("the control directory cannot be used")
}

/// Asks the agent that runs, if one does, to end, and waits until it has ended.
fn request(control: &Path, name: &str, heartbeat: &Heartbeat) -> Result<()> {
    let path = control.join(name);
    while AgentPresence::find(control).is_some() {
        // An agent that has just started removes the requests that it finds.
        if !path.exists() {
            std::fs::write(&path, b"").or_cannot("write", &path)?;
        }
        heartbeat.report(|| bytes_written(control));
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The bytes that all transfers of this node have written so far.
fn bytes_written(control: &Path) -> u64 {
    transfers(control).map(|transfer| transfer.written()).sum()
}

fn transfers(control: &Path) -> impl Iterator<Item = Transfer> {
    list(control).into_iter().filter_map(|path| Transfer::read(&path).ok()?)
}

/// Prints a line for the process that started the agent.
fn print_line(line: &str) {
    // The reader may be gone.
    drop(print(format!("scr agent: {line}\n")));
}

/// How often to look.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many transfers of a control directory an agent has not ended yet; none where no agent runs.
pub(crate) fn under_way(control: &Path) -> usize {
    if AgentPresence::find(control).is_none() {
        return 0;
    }
    transfers(control).filter(|transfer| transfer.outcome.is_none()).count()
}

/// Yes if an agent runs.
fn print_status(control: &Path, as_json: bool) -> Result<Answer> {
    let pid = AgentPresence::find(control);
    let transfers: Vec<_> = transfers(control).collect();
    let rows: Vec<_> = transfers.iter().map(|transfer| row(transfer, pid.is_some())).collect();
    let json = json!({ "control": control.display().to_string(), "pid": pid, "transfers": rows });
    show(as_json, json, text(control, pid, &transfers), pid.is_some())
}

fn text(control: &Path, pid: Option<u32>, transfers: &[Transfer]) -> String {
    let control = control.display();
    let first = match pid {
        Some(pid) => format!("an agent runs for {control}, process {pid}\n"),
        None => format!("no agent runs for {control}\n"),
    };
    let row = |transfer: &Transfer| {
        let done = format!("{} of {}", amount(transfer.written()), amount(transfer.bytes()));
        let (state, error) = state(transfer, pid.is_some());
        [label(&transfer.token), state.to_owned(), done, error.unwrap_or_default().to_owned()]
    };
    first + &Table::of(&[], transfers.iter().map(row)).text()
}

/// The owner of the files that a transfer copies. Its token is that of the flush, which begins with the number of the dataset,
/// and then the rank.
fn label(token: &str) -> String {
    let numbers = token.split_once('.').zip(token.rsplit_once('.'));
    let numbers = numbers.map(|((id, _), (_, rank))| (id.parse::<u64>(), rank.parse::<u32>()));
    match numbers {
        Some((Ok(id), Ok(rank))) => format!("dataset {id}, rank {rank}"),
        _ => token.to_owned(),
    }
}

/// `waiting` for an agent, or for one that has time; `waiting for its turn` among the nodes; `running`, `done`, or `failed` with the
/// error.
fn state(transfer: &Transfer, agent_runs: bool) -> (&'static str, Option<&str>) {
    match &transfer.outcome {
        Some(Ok(())) => ("done", None),
        Some(Err(error)) => ("failed", Some(&error.text)),
        // An agent that was killed has left it as it was.
        None if !agent_runs => ("waiting", None),
        None if transfer.running => ("running", None),
        None if transfer.slots.is_some() => ("waiting for its turn", None),
        None => ("waiting", None),
    }
}

/// A transfer for programs.
fn row(transfer: &Transfer, agent_runs: bool) -> Value {
    let (state, error) = state(transfer, agent_runs);
    let mut json = json!({
        "token": transfer.token,
        "state": state,
        "files": transfer.files.len(),
        "bytes": transfer.bytes(),
        "written": transfer.written(),
        "bytes_per_second": transfer.limits.bytes_per_second,
        "percent": transfer.limits.percent,
    });
    error.into_iter().for_each(|error| json["error"] = error.into());
    json
}

/// An agent that does not show itself for so long hangs, and whoever waits for it shall not.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Returns once an agent runs that does not end with this process. Its messages go to `agent.log` in the control
/// directory.
fn detach(control: &Path, threads: u32) -> Result<Answer> {
    if AgentPresence::find(control).is_some() {
        return Ok(Answer::Yes);
    }
    let path = control.join("agent.log");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = log.or_cannot("write", &path)?;
    close_on_exec();
    let mut command = Command::new(environment::program()?);
    command.args(["agent", "--own-session", "--threads", &threads.to_string(), "--control"]).arg(control);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
    let mut child = command.spawn().context("cannot start the agent")?;
    let started = Instant::now();
    loop {
        if AgentPresence::find(control).is_some() {
            return Ok(Answer::Yes);
        }
        if let Some(status) = child.try_wait()? {
            // Another one may have been quicker, or this one was and had nothing to do.
            if status.success() || AgentPresence::find(control).is_some() {
                return Ok(Answer::Yes);
            }
            bail!("the agent has ended with {status}; {} may say why", path.display());
        }
        if started.elapsed() > START_LIMIT {
            drop(child.kill());
            let (seconds, log) = (START_LIMIT.as_secs(), path.display());
            bail!("the agent was not there after {seconds} s; {log} may say why");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The process gets a session of its own, so that no signal to the job reaches it, and takes those that are meant for it:
/// whoever has started it may have blocked them.
fn leave_session() {
    take_signals();
    if let Err(error) = rustix::process::setsid() {
        warn(format_args!("the agent has no session of its own: {error}"));
    }
}

fn take_signals() {
    if let Err(error) = SigSet::empty().thread_set_mask() {
        warn(format_args!("signals to the agent stay blocked: {error}"));
    }
}

/// Descriptors that the MPI library has left open belong to the application: its launcher waits until all of it is closed.
#[allow(unsafe_code, reason = "files that are open only as numbers")]
fn close_on_exec() {
    // SAFETY: only a flag of each open file is set; none is closed here, and files of this process all have it already.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        warn(format_args!("files of the application stay open in the agent: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that begins removes the requests that it finds: they were meant for another one.
    #[test]
    fn a_stop_request_is_renewed_until_the_agent_has_ended() {
        let control = tempfile::tempdir().unwrap();
        let (control, path) = (control.path(), control.path().join(run::DRAIN));
        let agent = AgentPresence::become_one(control).unwrap().unwrap();
        std::thread::scope(|scope| {
            let drains = scope.spawn(|| request(control, run::DRAIN, &Heartbeat::new(false)).unwrap());
            for _ in 0..2 {
                let began = std::time::Instant::now();
                while std::fs::remove_file(&path).is_err() {
                    assert!(
                        began.elapsed() < Duration::from_secs(60) && !drains.is_finished(),
                        "nobody requests"
                    );
                    std::thread::yield_now();
                }
            }
            drop(agent);
            drains.join().unwrap();
        });
    }
}

#[cfg(test)]
mod status_tests {
    use super::*;
    use scr_agent::Slots;

    #[test]
    fn a_transfer_runs_only_where_an_agent_does_and_waits_for_its_turn_where_nodes_take_turns() {
        let state_of = |agent_runs, running, slots: bool| {
            let slots = slots.then(|| Slots { folder: "/slots".into(), count: 1 });
            state(&Transfer { running, slots, ..transfer() }, agent_runs).0
        };
        assert_eq!(
            [state_of(true, true, true), state_of(true, false, true)],
            ["running", "waiting for its turn"]
        );
        assert_eq!([state_of(true, false, false), state_of(false, true, true)], ["waiting", "waiting"]);
    }

    /// It was a row of hexadecimal digits.
    #[test]
    fn a_transfer_is_named_by_its_dataset_and_its_rank() {
        assert_eq!(label("736.18ea92c9271c1d7d.bb76f7ad.12"), "dataset 736, rank 12");
        assert_eq!(label("t"), "t");
    }

    fn transfer() -> Transfer {
        Transfer {
            path: "/control/transfer.t.scr".into(),
            token: "t".to_owned(),
            files: Vec::new(),
            block_bytes: 1,
            take_crc: true,
            limits: Default::default(),
            width: 0,
            slots: None,
            running: false,
            outcome: None,
        }
    }
}

#[cfg(test)]
mod detach_tests {
    use super::*;

    #[test]
    fn an_agent_takes_signals_that_whoever_started_it_has_blocked() {
        SigSet::all().thread_set_mask().unwrap();
        take_signals();
        assert_eq!(SigSet::thread_get_mask().unwrap(), SigSet::empty());
    }
}
