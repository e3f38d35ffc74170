//! The work of the agent's process: its threads copy, and its main thread monitors the flushes that the copies belong to.
//!
//! It ends when nothing is left to copy on its node and no application uses it any more. An application uses it from its first
//! flush with the transport `AGENT` until its process ends. An agent that was started to wait for an application waits until the
//! first one uses it, or until it is asked to end.

use super::{bytes_written, print_line, POLL_INTERVAL};
use crate::prelude::*;
use crate::progress::Heartbeat;
use scr_agent::{AgentPresence, Application, Executor, Slots};
use scr_core::flush::{poll_transfers, PollResult, SharedSlots, Transports};
use std::ops::ControlFlow;

/// A file of this name in the control directory ends the agent at once.
pub(super) const EXIT: &str = "agent.exit";
/// And one of this name as soon as nothing is left.
pub(super) const DRAIN: &str = "agent.drain";

/// When the agent ends.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Until {
    /// Nothing is left, and no application is there.
    TheJobIsOver,
    /// Nothing is left.
    NothingIsLeft,
}

/// Is the agent of a control directory until then; gives false if there is one already.
pub(super) fn until(
    env: &Env,
    owned: &OwnedDir,
    threads: usize,
    until: Until,
    heartbeat: &Heartbeat,
) -> Result<bool> {
    let control = owned.path();
    let became = AgentPresence::become_one(control).or_cannot("use", control)?;
    let Some(presence) = became else { return Ok(false) };
    for name in [EXIT, DRAIN] {
        // A request that was meant for another one.
        drop(std::fs::remove_file(control.join(name)));
    }
    if until == Until::TheJobIsOver {
        // The process that has started it waits for this line.
        print_line(&format!("there is one now for {}", control.display()));
    }
    let files = Arc::clone(&env.files);
    let take_slot = move |slots: &Slots, work: &mut dyn FnMut()| {
        SharedSlots { files: &*files, folder: &slots.folder, count: slots.count }.take(work)
    };
    let executor = Executor::new(control.to_owned(), Box::new(take_slot));
    let nobody_comes = std::thread::scope(|scope| {
        executor.start(scope, threads).context("cannot start a thread")?;
        let mut watch = Watch {
            env,
            owned,
            executor: &executor,
            until,
            heartbeat,
            came: executor.has_seen_any(),
            last: PollResult::default(),
        };
        let ended = watch.run();
        executor.stop();
        ended
    })?;
    // An application that enters from here on finds no agent, and starts one.
    drop(presence);
    drop(nobody_comes);
    Ok(true)
}

struct Watch<'a> {
    env: &'a Env,
    owned: &'a OwnedDir,
    executor: &'a Executor,
    until: Until,
    heartbeat: &'a Heartbeat,
    /// Whether an application has been there.
    came: bool,
    /// The findings of the last look.
    last: PollResult,
}

impl Watch<'_> {
    /// Returns when the agent is to end, and keeps applications from entering meanwhile where none is there.
    fn run(&mut self) -> Result<Option<Application>> {
        let host = environment::plugin_host(self.env);
        let transports = Transports::new(&host, self.env, &environment::params(self.env));
        let mut looked_at = None::<Instant>;
        loop {
            if self.owned.path().join(EXIT).exists() {
                return Ok(None);
            }
            let copying = self.executor.has_work();
            if looked_at.is_none_or(|at| at.elapsed() >= BETWEEN_LOOKS) || !copying && self.last.unfinished {
                self.look(&transports);
                looked_at = Some(Instant::now());
                self.heartbeat.report(|| bytes_written(self.owned.path()));
            }
            if !copying && !self.last.unfinished {
                if let ControlFlow::Break(nobody_comes) = self.is_over(&transports)? {
                    return Ok(nobody_comes);
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Looks how far the flushes of this node are, and ends those that have arrived.
    fn look(&mut self, transports: &Transports<'_>) {
        let polled = poll_transfers(self.env, self.owned, &|name, options| transports.open(name, options));
        // Nothing is said twice.
        let news = polled.errors.iter().filter(|line| !self.last.errors.contains(line));
        polled.notices.iter().chain(news).for_each(|line| print_line(line));
        self.last = polled;
    }

    /// Whether nobody needs an agent any more. Then it clears up, while no application can come.
    fn is_over(&mut self, transports: &Transports<'_>) -> Result<ControlFlow<Option<Application>>> {
        self.came |= self.executor.has_seen_any();
        let nobody = Application::none_is_there(self.owned.path()).or_cannot("use", self.owned.path())?;
        self.came |= nobody.is_none();
        let drains = self.until == Until::NothingIsLeft || self.owned.path().join(DRAIN).exists();
        if !drains && (nobody.is_none() || !self.came) {
            return Ok(ControlFlow::Continue(()));
        }
        // An application that has gone since the last look may have left copies, and they may be done by now.
        self.look(transports);
        if self.last.unfinished || self.executor.has_work() {
            return Ok(ControlFlow::Continue(()));
        }
        if nobody.is_some() {
            self.executor.clear_away();
        }
        Ok(ControlFlow::Break(nobody))
    }
}

/// Between two looks at flushes while copies are under way; at most so much later a flush is finished.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
