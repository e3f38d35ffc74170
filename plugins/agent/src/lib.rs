//! The transport `agent`: copies in a separate process on each node, which continues after the job has ended.
//!
//! The transport only writes a *transfer file* with the copies to make into the control directory of the node, and reads the
//! progress there, also from another process. The agent, `scr agent`, executes the transfer files. If none runs, the transport
//! starts one. See docs/user/agent.md.
//!
//! | part | what it is |
//! |---|---|
//! | `transfer` | a transfer file |
//! | `presence` | whether an agent, or an application, runs |
//! | `launch` | starts an agent if none runs |
//! | `execute` | the agent's work: it executes transfer files |

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test fails if it gets no thread"))]

mod execute;
mod launch;
mod presence;
mod transfer;

pub use execute::{Executor, TakeSlot};
pub use presence::{Agent as AgentPresence, Application};
pub use transfer::{list, FileProgress, Slots, Transfer};

use launch::Launcher;
use presence::Sign;
use scr_plugin_api::pace::Limits;
use scr_plugin_api::{held, CopyJob, CopyState, KvTree, PluginError, Transport};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The transport `agent`.
#[derive(Debug)]
pub struct Agent {
    control: PathBuf,
    launcher: Launcher,
    limits: Limits,
    /// The most transfers of the node at a time; 0 for no limit.
    width: usize,
    /// The slots that all nodes share.
    slots: Option<Slots>,
    pause: Duration,
    /// So long a copy that is to stop is waited for.
    patience: Duration,
    /// How long an agent may show no sign of life while somebody waits for a copy.
    silence: Duration,
    /// How long a copy that somebody waits for may make no progress, though the agent is alive.
    standstill: Duration,
    /// Says to the agent that the application is there, from the first copy on.
    application: Mutex<Option<Application>>,
}

impl Agent {
    /// A transport that talks to the agent of this control directory. Without a `program`, which is an `scr` command, no
    /// agent is started.
    pub fn new(control: PathBuf, program: Option<PathBuf>) -> Self {
        Self {
            launcher: Launcher::new(control.clone(), program),
            control,
            limits: Limits::default(),
            width: 0,
            slots: None,
            pause: Duration::from_millis(1),
            patience: PATIENCE,
            silence: SILENCE,
            standstill: STANDSTILL,
            application: Mutex::default(),
        }
    }

    /// The transfer that a ticket names.
    fn find(&self, ticket: &[u8]) -> Result<Transfer, PluginError> {
        let path = ticket.strip_prefix(TICKET).map(|path| Path::new(OsStr::from_bytes(path)));
        let path = path.filter(|path| path.parent() == Some(&self.control));
        let transfer = match path {
            Some(path) => Transfer::read(path).map_err(|error| refused(&error))?,
            None => None,
        };
        transfer.ok_or_else(|| {
            let text = String::from_utf8_lossy(ticket);
            let control = self.control.display();
            refused(&format!(
                "{text:?} is no ticket of a copy in {control}, or no room was left there to record how the copy has ended"
            ))
        })
    }

    fn state(&self, transfer: &Transfer) -> CopyState {
        match &transfer.outcome {
            Some(Ok(())) => return CopyState::Done,
            Some(Err(error)) => return CopyState::Failed(error.clone()),
            None => (),
        }
        if transfer.is_to_stop() && !presence::agent_is_there(&self.control) {
            return CopyState::Failed(transfer.cancelled());
        }
        match self.launcher.see_that_one_runs() {
            Ok(()) => CopyState::Running(transfer.written()),
            Err(why) => CopyState::Failed(failed(&why)),
        }
    }

    /// From now on the agent knows that an application is there.
    fn be_present(&self) -> Result<(), PluginError> {
        let mut application = held(&self.application);
        if !application.as_ref().is_some_and(Application::is_known) {
            let present = Application::enter(&self.control);
            let why = |error| failed(&format!("{}: {error}", self.control.display()));
            *application = Some(present.map_err(why)?);
        }
        Ok(())
    }
}

/// Reads what the manifest allows of options, and the host has checked.
///
/// # Errors
/// One that should be a number is none, or the control directory is not given.
pub fn from_options(options: &KvTree) -> Result<Agent, PluginError> {
    let wrong = |error| refused(&format!("{error}"));
    let control = options.path("CONTROL").ok_or_else(|| refused("the option CONTROL is missing"))?;
    let micros = options.parse("USLEEP").map_err(wrong)?;
    Ok(Agent {
        limits: Limits::from_options(options).map_err(wrong)?,
        width: options.parse("WIDTH").map_err(wrong)?.unwrap_or(0),
        slots: Slots::from_options(options).map_err(wrong)?,
        pause: Duration::from_micros(micros.unwrap_or(1000)),
        ..Agent::new(control, options.path("PROGRAM"))
    })
}

scr_plugin_api::export_transport! {
    new: from_options,
}

impl Transport for Agent {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        self.be_present()?;
        let mut new = Transfer::new(&self.control, job, self.limits)?;
        (new.width, new.slots) = (self.width, self.slots.clone());
        let known = Transfer::read(&new.path).map_err(|error| refused(&error))?;
        match known {
            Some(known) if !matches!(self.state(&known), CopyState::Failed(_)) => {
                if !known.is_same_job(&new) {
                    return Err(refused(&format!("token {} was used for another job", job.token)));
                }
            }
            _ => new.begin().map_err(|why| failed(&why))?,
        }
        self.launcher.see_that_one_runs().map_err(|why| failed(&why))?;
        Ok([TICKET, new.path.as_os_str().as_bytes()].concat())
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.state(&self.find(ticket)?))
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let transfer = self.find(ticket)?;
        let beat = || presence::last_beat(&self.control);
        let progress = || presence::last_touch(&transfer.path);
        let (mut life, mut moves) = (Sign::new(beat()), Sign::new(progress()));
        loop {
            match self.poll(ticket)? {
                CopyState::Running(_) => std::thread::sleep(self.pause.max(LEAST_PAUSE)),
                ended => return Ok(ended),
            }
            let text = if life.is_missed(beat(), self.silence) {
                format!("has shown no sign of life for {:?}", self.silence)
            } else if moves.is_missed(progress(), self.standstill) {
                format!("has copied nothing of job {} for {:?}", transfer.token, self.standstill)
            } else {
                continue;
            };
            // It may be stopped, and stops the copy once it can go on.
            let _ = transfer.stop();
            let number = presence::Agent::find(&self.control).unwrap_or(0);
            return Err(failed(&format!("the agent, process {number}, {text}")));
        }
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        let transfer = self.find(ticket)?;
        if transfer.outcome.is_some() {
            return Ok(());
        }
        transfer.stop().map_err(|error| failed(&format!("cancelling failed: {error}")))?;
        // An agent that is there answers, unless it is stuck in a file system; where there is none, nobody copies.
        let began = Instant::now();
        while presence::agent_is_there(&self.control) && self.find(ticket)?.outcome.is_none() {
            if began.elapsed() >= self.patience {
                return Err(failed("the agent does not answer; it stops the copy as soon as it can go on"));
            }
            std::thread::sleep(LEAST_PAUSE);
        }
        Ok(())
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        let transfer = self.find(ticket).ok()?;
        let is_known = transfer.take_crc && transfer.outcome == Some(Ok(()));
        transfer.files.get(item)?.crc.filter(|_| is_known)
    }
}

fn refused(text: &str) -> PluginError {
    PluginError::refused(format!("transport {NAME}: {text}"))
}

fn failed(text: &str) -> PluginError {
    PluginError::io(format!("transport {NAME}: {text}"))
}

/// The name of the transport, in small letters.
const NAME: &str = "agent";

/// A ticket is this and the path of the transfer file.
const TICKET: &[u8] = b"agent ";
/// An agent sees within a fraction of a second that a copy is to stop.
const PATIENCE: Duration = Duration::from_secs(3);
/// It shows a sign of life every second.
const SILENCE: Duration = Duration::from_secs(60);
/// A congested file system stands still for minutes at times.
const STANDSTILL: Duration = Duration::from_secs(300);
/// Looking without end would keep a processor busy.
const LEAST_PAUSE: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::CopyItem;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;

    fn no_slots() -> TakeSlot {
        Box::new(|_, work| {
            work();
            true
        })
    }

    #[test]
    fn an_agent_that_does_not_answer_holds_up_nobody_who_gives_up_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let _stuck = AgentPresence::become_one(dir.path()).unwrap().unwrap();
        let patience = Duration::from_millis(20);
        let agent = Agent { patience, ..Agent::new(dir.path().to_owned(), None) };
        let job = CopyJob { token: "7.x".to_owned(), items: vec![], block_bytes: 1, take_crc: false };
        let ticket = agent.start(&job).unwrap();
        let error = agent.cancel(&ticket).unwrap_err();
        assert!(error.text.contains("does not answer"), "{error}");
        assert!(agent.find(&ticket).unwrap().is_to_stop(), "it stops as soon as it can");
    }

    /// As one that somebody has stopped: the job waited for it without end.
    #[test]
    fn an_agent_without_a_sign_of_life_holds_up_nobody_who_waits_for_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let _stopped = AgentPresence::become_one(dir.path()).unwrap().unwrap();
        let silence = Duration::from_millis(50);
        let agent = Agent { silence, ..Agent::new(dir.path().to_owned(), None) };
        let job = CopyJob { token: "7.x".to_owned(), items: vec![], block_bytes: 1, take_crc: false };
        let ticket = agent.start(&job).unwrap();
        let error = agent.wait(&ticket).unwrap_err();
        assert!(error.text.contains("no sign of life"), "{error}");
        assert!(agent.find(&ticket).unwrap().is_to_stop(), "it stops as soon as it can");
    }

    /// Slots of which the only one is on a file system that hangs, until it does not.
    fn hanging(goes_on: Arc<AtomicBool>) -> TakeSlot {
        Box::new(move |_, _| {
            while !goes_on.load(Ordering::SeqCst) {
                std::thread::sleep(LEAST_PAUSE);
            }
            false
        })
    }

    /// What is to happen at the end, also of a test that fails.
    struct AtEnd<F: FnMut()>(F);

    impl<F: FnMut()> Drop for AtEnd<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    /// While an agent is alive, does what an application does.
    fn with_agent(control: &Path, slots: TakeSlot, work: impl FnOnce(Agent)) {
        let _alive = AgentPresence::become_one(control).unwrap().unwrap();
        let executor = Executor::new(control.to_owned(), slots);
        std::thread::scope(|scope| {
            let _stops = AtEnd(|| executor.stop());
            executor.start(scope, 1).unwrap();
            work(Agent { standstill: Duration::from_secs(2), ..Agent::new(control.to_owned(), None) });
        });
    }

    /// The application waited as long as the agent lived.
    #[test]
    fn an_agent_that_is_alive_and_copies_nothing_holds_up_nobody_who_waits_for_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let goes_on = Arc::new(AtomicBool::default());
        with_agent(dir.path(), hanging(Arc::clone(&goes_on)), |agent| {
            let _goes_on = AtEnd(|| goes_on.store(true, Ordering::SeqCst));
            let slots = Some(Slots { folder: dir.path().join("slots"), count: 1 });
            let ticket = Agent { slots, ..agent }.start(&job_of(dir.path())).unwrap();
            let agent =
                Agent { standstill: Duration::from_secs(2), ..Agent::new(dir.path().to_owned(), None) };
            let error = agent.wait(&ticket).unwrap_err();
            assert!(error.text.contains("has copied nothing of job 7.x for 2s"), "{error}");
            assert!(agent.find(&ticket).unwrap().is_to_stop(), "it stops as soon as it can");
        });
    }

    fn job_of(folder: &Path) -> CopyJob {
        let (source, destination) = (folder.join("in"), folder.join("out"));
        std::fs::write(&source, [7; 5000]).unwrap();
        let items = vec![CopyItem { source, destination, bytes: 5000 }];
        CopyJob { token: "7.x".to_owned(), items, block_bytes: 1 << 20, take_crc: false }
    }

    /// As in a control directory without room: the application waited as long as the agent lived.
    #[test]
    fn a_copy_whose_end_cannot_be_recorded_ends_for_whoever_waits() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_of(dir.path());
        with_agent(dir.path(), no_slots(), |agent| {
            // What is written beside it cannot be from now on.
            std::fs::create_dir(dir.path().join("transfer.7.x.scr.new")).unwrap();
            let ticket = start_in_place(&agent, &job);
            let error = agent.wait(&ticket).unwrap_err();
            assert!(error.text.contains("no room was left there"), "{error}");
            assert_eq!(std::fs::read(&job.items[0].destination).unwrap(), [7; 5000]);
        });
    }

    /// As `start`, but that nothing is made beside the transfer file.
    fn start_in_place(agent: &Agent, job: &CopyJob) -> Vec<u8> {
        let transfer = Transfer::new(&agent.control, job, Limits::default()).unwrap();
        let elsewhere = tempfile::tempdir_in(&agent.control).unwrap();
        let other = Transfer { path: elsewhere.path().join("transfer"), ..transfer.clone() };
        other.write().unwrap();
        std::fs::rename(other.path, &transfer.path).unwrap();
        [TICKET, transfer.path.as_os_str().as_bytes()].concat()
    }

    #[test]
    fn an_agent_that_is_alive_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let _alive = AgentPresence::become_one(dir.path()).unwrap().unwrap();
        let executor = Executor::new(dir.path().to_owned(), no_slots());
        let agent = Agent { silence: Duration::from_secs(30), ..Agent::new(dir.path().to_owned(), None) };
        let job = CopyJob { token: "7.x".to_owned(), items: vec![], block_bytes: 1, take_crc: false };
        let before = presence::last_beat(dir.path());
        std::thread::scope(|scope| {
            let _stops = AtEnd(|| executor.stop());
            executor.start(scope, 1).unwrap();
            let ticket = agent.start(&job).unwrap();
            assert!(matches!(agent.wait(&ticket), Ok(CopyState::Done)));
            while presence::last_beat(dir.path()) == before {
                std::thread::sleep(LEAST_PAUSE);
            }
        });
    }

    /// The agent left, and the next copy began without one; and a file of the application was closed.
    #[test]
    fn an_application_whose_lock_was_closed_enters_again_and_leaves_the_number_alone() {
        use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
        let dir = tempfile::tempdir().unwrap();
        let (agent, theirs) = (Agent::new(dir.path().to_owned(), None), dir.path().join("theirs"));
        agent.be_present().unwrap();
        let is_there = || Application::none_is_there(dir.path()).unwrap().is_none();
        assert!(is_there());
        let path = std::fs::canonicalize(dir.path().join("application.lock")).unwrap();
        let mut open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let lock =
            open.find(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path)).unwrap();
        let number = lock.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: it is forgotten before it could close the number twice.
        let mut given = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(std::fs::File::create(&theirs).unwrap(), &mut given).unwrap();
        let _ = given.into_raw_fd();
        assert!(!is_there());
        agent.be_present().unwrap();
        assert!(is_there());
        drop(agent);
        assert_eq!(std::fs::read_link(lock.path()).unwrap(), std::fs::canonicalize(theirs).unwrap());
        // SAFETY: nothing else owns the number.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
