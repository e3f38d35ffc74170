//! Starts a job repeatedly until it has finished or must stop.

use super::restart_policy::{JobState, Needed, StopReason};
use super::signals::Signals;
use super::supervise::{supervise, KillReason, RunOutcome};
use super::watchdog::{stamp, FileStamp, Timeouts, Watchdog};
use super::{Agents, JobContext};
use crate::machine::{bad_nodes, excluded, good_nodes, process, Allocation, BadNode, Launcher};
use crate::prelude::*;
use scr_config::param::Parameter;
use scr_core::log::{Event, Log, Record};
use scr_prefix::{ChangedEnd, Ended, HaltDue, HaltReason, LastRun, Nodes};
use std::io::Write;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::Builder;
use tempfile::NamedTempFile;

/// The job, between its first run and its last.
pub(super) struct Job<'a> {
    pub(super) facts: JobContext,
    command: &'a [OsString],
    launcher: Option<Launcher>,
    pub(super) log: Log,
    signals: Signals,
    pause: Duration,
    /// Nodes that the user excludes.
    excluded: Vec<String>,
    bad: Vec<BadNode>,
    pub(super) agents: Agents,
    end_watch: EndWatch,
    /// How many runs were started so far.
    pub(super) runs: u64,
    last: Option<RunOutcome>,
    /// The file with the number of nodes, as it was before the first run.
    nodes_before: Option<FileStamp>,
}

impl<'a> Job<'a> {
    /// Finds the launcher and the settings.
    ///
    /// # Errors
    /// A setting is no list of nodes, or signals cannot be caught.
    pub(super) fn prepare(
        facts: JobContext,
        command: &'a [OsString],
        pause: Option<Duration>,
    ) -> Result<Self> {
        let JobContext { env, params, prefix, allocation, manifests } = &facts;
        let excluded = excluded(allocation, params)?;
        if allocation.is_here_alone() {
            let of_nodes = [param::MIN_NODES.info(), param::EXCLUDE_NODES.info()].into_iter();
            for info in of_nodes.filter(|info| params.named(info.name).is_some_and(Parameter::is_set)) {
                warn(format_args!(
                    "{} has no effect, as the nodes of the job are not known: set SCR_NODELIST, or give --hostfile",
                    info.name
                ));
            }
        }
        if let Some(gap) = Timeouts::of(params).and_then(|times| times.gap()) {
            warn(format_args!("SCR_WATCHDOG is set, but {gap}"));
        }
        let launcher = manifests.launcher(command).cloned();
        if let (None, Some(program)) = (&launcher, command.first()) {
            warn(format_args!(
                "{} is no launcher that scr knows, so it is started as it is; `scr run' wants a launcher before the program, \
                 as in `scr run srun PROGRAM'",
                program.to_string_lossy()
            ));
        }
        Ok(Self {
            excluded,
            log: Log::of_command(env, params, "scr run", prefix),
            launcher,
            pause: pause.unwrap_or_else(|| Duration::from_secs(allocation.manager.pause)),
            signals: Signals::catch()?,
            nodes_before: stamp(&*env.files, &prefix.nodes_file()),
            bad: Vec::new(),
            agents: Agents::default(),
            end_watch: EndWatch::default(),
            runs: 0,
            last: None,
            command,
            facts,
        })
    }

    /// Starts the job until it must not be started again, and returns why.
    ///
    /// # Errors
    /// A run cannot be started.
    pub(super) fn run(&mut self) -> Result<StopReason> {
        loop {
            // Checked twice: there is no need to wait for a run that will not start, and waiting takes time.
            if let Some(stop) = self.state().stop() {
                return Ok(stop);
            }
            if self.runs > 0 {
                self.signals.wait(self.pause);
            }
            self.look_at_nodes();
            if let Some(stop) = self.state().stop() {
                return Ok(stop);
            }
            let good = good_nodes(&self.facts.allocation, &self.bad);
            self.agents.start_missing(&self.facts, &good);
            self.start()?;
        }
    }

    /// The exit code of this command.
    pub(super) fn answer(&self) -> Answer {
        self.last.map_or(Answer::No, |last| Answer::Code(last.code))
    }

    /// Whether to print why the job is not started again: not if it succeeded.
    pub(super) fn is_worth_a_word(&self, stop: &StopReason) -> bool {
        match stop {
            StopReason::Succeeded => false,
            StopReason::Halted(_) => self.last.is_none_or(|last| last.code != 0),
            _ => true,
        }
    }

    fn state(&mut self) -> JobState {
        let state = self.known_state();
        // The time limit may have been changed. Waits for the answer.
        let is_at_end = matches!(
            state.stop(),
            Some(StopReason::NoTime | StopReason::Halted(HaltReason::AllocationEnds { .. }))
        );
        let allocation = &self.facts.allocation;
        let end = is_at_end.then(|| allocation.end_question()?()).flatten();
        match end.filter(|&end| is_change(allocation, end)) {
            Some(end) => {
                record_end(&self.facts.env, &self.facts.prefix, &mut self.facts.allocation, end);
                self.known_state()
            }
            None => state,
        }
    }

    fn known_state(&self) -> JobState {
        let now = environment::now(&self.facts.env);
        let own_end = self.facts.allocation.end();
        // As in the library, a file that cannot be read halts nothing.
        let seconds = self.facts.params.get(&param::HALT_SECONDS);
        let halt =
            Halt::in_force(&*self.facts.env.files, &self.facts.prefix, seconds).unwrap_or_else(|error| {
                warn(format_args!("the halt conditions cannot be read: {}", describe(&error)));
                Halt::default()
            });
        JobState {
            runs: self.runs,
            most_runs: u64::try_from(self.facts.params.get(&param::RUNS)).ok(),
            succeeded: self.last.map(|last| last.code == 0),
            interrupted: self.signals.request(),
            halt: halt.reason(now, own_end),
            seconds_left: halt.end_of(own_end, now).map(|end| end.saturating_sub(now)),
            good: self.good(),
            needed: self.needed(),
        }
    }

    /// Nodes that can be used. This machine alone counts as one, which is always there.
    fn good(&self) -> usize {
        if self.facts.allocation.is_here_alone() {
            return 1;
        }
        good_nodes(&self.facts.allocation, &self.bad).len()
    }

    /// Nodes that the next run needs. See docs/user/running.md.
    fn needed(&self) -> Option<Needed> {
        if self.facts.allocation.is_here_alone() {
            return None;
        }
        if let Some(nodes) = self.facts.params.get(&param::MIN_NODES) {
            return Some((usize::try_from(nodes).unwrap_or(usize::MAX), "SCR_MIN_NODES wants them"));
        }
        if self.runs == 0 {
            return None;
        }
        // A file that another allocation has left says nothing about this job.
        let (files, prefix) = (&*self.facts.env.files, &self.facts.prefix);
        let is_of_this_job = stamp(files, &prefix.nodes_file()) != self.nodes_before;
        let last = Nodes::read(files, prefix).ok().flatten().filter(|_| is_of_this_job);
        let last = last
            .map(|Nodes(nodes)| (usize::try_from(nodes).unwrap_or(usize::MAX), "the last run had as many"));
        let by = "the last run has not recorded how many it had, so all of the allocation are";
        last.or(Some((self.facts.allocation.nodes.len() - self.excluded.len(), by)))
    }

    fn look_at_nodes(&mut self) {
        let bad = bad_nodes(&self.facts.allocation, &self.excluded, &self.bad);
        for (node, why) in &bad[self.bad.len()..] {
            warn(format_args!("node {node} is left out: {why}"));
            let note = format!("{node}: {why}");
            self.log.add_entry(Record::event(Event::NodeFail).note(note));
        }
        let names_none = |launcher: &Launcher| launcher.exclude.is_empty() && launcher.hostfile.is_empty();
        if bad.len() > self.bad.len() && self.launcher.as_ref().is_none_or(names_none) {
            let program = self.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            warn(format_args!(
                "scr does not know how to make {program} leave nodes out, so it may start ranks there"
            ));
        }
        self.bad = bad;
    }

    fn start(&mut self) -> Result<()> {
        let (words, _hostfile) =
            run_command(self.command, self.launcher.as_ref(), &self.facts.allocation, &self.bad)?;
        self.runs += 1;
        self.log_start(&words);
        let now = || self.facts.env.clock.elapsed();
        let files = &*self.facts.env.files;
        // The watchdog would take it for the end of this run.
        if let Err(error) = Halt::forget_end(files, &self.facts.prefix) {
            warn(format_args!("the end of the last run stays in the halt file: {}", describe(&error)));
        }
        let mut watchdog = Timeouts::of(&self.facts.params)
            .map(|times| Watchdog::new(times, files, &self.facts.prefix, now()));
        let began = now();
        let variables = self.variables();
        let (env, prefix, allocation, end_watch) =
            (&self.facts.env, &self.facts.prefix, &mut self.facts.allocation, &mut self.end_watch);
        let mut look = |is_suspended: bool| {
            // As in the library, a file that cannot be read halts nothing.
            let halt = Halt::read(files, prefix).ok().flatten();
            let time = environment::now(env);
            let due = halt.as_ref().and_then(|halt| halt.due(time, allocation.end()));
            if let Some(end) = end_watch.changed(allocation, now(), due.as_ref(), time) {
                record_end(env, prefix, allocation, end);
            }
            match halt {
                Some(halt) if halt.is_immediate() => Some(KillReason::Halted),
                _ => watchdog.as_mut()?.is_hanging(now(), is_suspended).map(KillReason::Hung),
            }
        };
        let ended = supervise(&words, &variables, &self.signals, &mut look)?;
        self.log_end(ended, now().saturating_sub(began));
        self.last = Some(ended);
        Ok(())
    }

    /// Variables that pass the results of this command to the run.
    fn variables(&self) -> Vec<(String, String)> {
        let name = |info: &param::Info| info.name.to_owned();
        let mut variables = vec![
            (name(param::PREFIX.info()), self.facts.prefix.dir().display().to_string()),
            (name(param::JOB_ID.info()), self.facts.allocation.job_id.clone()),
            // This command says at its end what all runs have cost.
            (name(param::REPORT.info()), "0".to_owned()),
        ];
        if let Some(end) = self.facts.allocation.end_time {
            variables.push((name(param::END_TIME.info()), end.to_string()));
        }
        if !self.facts.allocation.is_here_alone() {
            variables.push((name(param::NODELIST.info()), hostlist::compress(&self.facts.allocation.nodes)));
        }
        variables.iter_mut().for_each(|(_, value)| *value = environment::as_setting(value));
        variables
    }

    fn log_start(&self, words: &[OsString]) {
        if self.runs > 1 || self.facts.params.get(&param::DEBUG) >= 1 {
            let words = joined(words.iter().map(|word| word.to_string_lossy()), " ");
            warn(format_args!("run {}: {words}", self.runs));
        }
        self.log.add_entry(Record::event(Event::RunStart).note(format!("run={}", self.runs)));
    }

    fn log_end(&self, ended: RunOutcome, took: Duration) {
        let (how, remark) = match ended.by {
            Some(KillReason::Hung(idle)) => {
                let (words, seconds) = (span(idle), idle.as_secs());
                let how = format!("has written no checkpoint for {words} and was ended");
                (how, format!(", hung for {seconds} seconds"))
            }
            Some(KillReason::Halted) => {
                let why = HaltReason::ExitReason(Halt::HALTED.to_owned()).to_string();
                // Only people who look at the job miss it.
                _ = LastRun::end(&*self.facts.env.files, &self.facts.prefix, Ended::Halted(why));
                ("was ended: the job is to halt at once".to_owned(), ", halted".to_owned())
            }
            None => (format!("ended with status {}", ended.code), String::new()),
        };
        if ended.by.is_some() || ended.code != 0 {
            warn(format_args!("run {} {how}", self.runs));
        }
        let note = format!("run={}, status={}{remark}", self.runs, ended.code);
        self.log.add_entry(Record::event(Event::RunEnd).note(note).took(took));
    }
}

/// Lets the job know that the allocation ends at another time than it was told.
fn record_end(env: &Env, prefix: &Prefix, allocation: &mut Allocation, end: u64) {
    let Ok(time) = i64::try_from(end) else { return };
    warn(format_args!(
        "the end of the allocation has changed: {} seconds are left now",
        time.saturating_sub(environment::now(env))
    ));
    allocation.end_time = Some(end);
    let changed = ChangedEnd { job_id: allocation.job_id.clone(), time };
    if let Err(error) = Halt::update(&*env.files, prefix, |halt| halt.changed_end = Some(changed.clone())) {
        warn(format_args!("the job cannot be told of that: {}", describe(&error)));
    }
}

/// The user's command with the options that its launcher needs, and the file of nodes that it names, until it ends. Nodes are named only where they have to be: where some are not
/// to be used, or where the launcher cannot know of them.
///
/// # Errors
/// The file with the nodes cannot be written.
fn run_command(
    command: &[OsString],
    launcher: Option<&Launcher>,
    allocation: &Allocation,
    bad: &[BadNode],
) -> Result<(Vec<OsString>, Option<NamedTempFile>)> {
    let Some(launcher) = launcher else { return Ok((command.to_vec(), None)) };
    let mut for_each_part = Vec::new();
    if !bad.is_empty() {
        let nodes: Vec<_> = bad.iter().map(|(node, _)| node.clone()).collect();
        let (list, plain) = (hostlist::compress(&nodes), nodes.join(","));
        for_each_part.extend(
            launcher.exclude.iter().map(|word| word.replace("{nodes}", &list).replace("{nodes,}", &plain)),
        );
    }
    let names_nodes = !launcher.hostfile.is_empty() && (!bad.is_empty() || allocation.nodes_are_ours);
    let hostfile = names_nodes.then(|| hostfile(allocation, bad)).transpose()?;
    let path = hostfile.as_ref().map(|file| file.path().to_string_lossy());
    let names_file =
        path.iter().flat_map(|path| launcher.hostfile.iter().map(|word| word.replace("{file}", path)));
    let own = 1 + usize::from(launcher.subcommand.is_some());
    let mut options = launcher.always.clone();
    let is_in_parts = launcher.parts && command[own..].iter().any(|word| word == PART);
    // Some refuse a second file with nodes.
    let says = |sign: &String| {
        let version = process::version_of(&command[0].to_string_lossy());
        version.is_ok_and(|version| version.contains(sign.as_str()))
    };
    if is_in_parts && launcher.file_once_if.as_ref().is_some_and(says) {
        options.extend(names_file);
    } else {
        for_each_part.extend(names_file);
    }
    let mut words = command[..own].to_vec();
    words.extend(options.into_iter().chain(for_each_part.iter().cloned()).map(OsString::from));
    for word in &command[own..] {
        words.push(word.clone());
        if is_in_parts && word == PART {
            words.extend(for_each_part.iter().map(OsString::from));
        }
    }
    Ok((words, hostfile))
}

/// Begins another part of a command line, for another program.
const PART: &str = ":";

fn hostfile(allocation: &Allocation, bad: &[BadNode]) -> Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("scr-hosts.").tempfile()?;
    let good = allocation.host_lines.iter().filter(|(node, _)| bad.iter().all(|(bad, _)| bad != node));
    for (_, line) in good {
        writeln!(file, "{line}")?;
    }
    Ok(file)
}

/// Asks again and again when the allocation ends: a user or an administrator may change the time limit. The resource manager is
/// asked every few minutes, and more often when the job is soon to halt for its end. It is asked in the background, since it may
/// take a minute to answer.
#[derive(Default)]
struct EndWatch {
    /// The channel of the answer, if the resource manager was asked.
    answer: Option<Receiver<Option<u64>>>,
    /// When it was asked last.
    asked: Option<Duration>,
}

impl EndWatch {
    /// The end of the allocation, if it has changed. `now` is the time since some moment. `due` says when the job is to halt, on a
    /// clock that shows `time`.
    fn changed(
        &mut self,
        allocation: &Allocation,
        now: Duration,
        due: Option<&HaltDue>,
        time: i64,
    ) -> Option<u64> {
        let Some(answer) = &self.answer else {
            if self.asked.is_none_or(|asked| now >= asked + period(due, time)) {
                self.answer = allocation.end_question().map(in_background);
                self.asked = Some(now);
            }
            return None;
        };
        match answer.try_recv() {
            Err(TryRecvError::Empty) => None,
            answered => {
                self.answer = None;
                answered.ok().flatten().filter(|end| is_change(allocation, *end))
            }
        }
    }
}

fn in_background(question: impl FnOnce() -> Option<u64> + Send + 'static) -> Receiver<Option<u64>> {
    let (sender, receiver) = mpsc::channel();
    // The receiver may be gone when the answer comes. Without a thread there is none.
    let _ = Builder::new().spawn(move || _ = sender.send(question()));
    receiver
}

/// Resource managers give the time that is left to the minute.
fn is_change(allocation: &Allocation, end: u64) -> bool {
    allocation.end_time.is_none_or(|known| known.abs_diff(end) > ROUNDED)
}

/// The time between two questions: little if the job halts before the next one, or at its next checkpoint.
fn period(due: Option<&HaltDue>, now: i64) -> Duration {
    match due {
        Some(HaltDue::Now(HaltReason::AllocationEnds { .. })) => SHORT,
        Some(HaltDue::At(time)) if time.saturating_sub(now) <= PERIOD.as_secs() as i64 => SHORT,
        _ => PERIOD,
    }
}

const PERIOD: Duration = Duration::from_secs(180);
const SHORT: Duration = Duration::from_secs(20);
/// The number of seconds by which two answers may differ though nothing has changed.
const ROUNDED: u64 = 90;

#[cfg(test)]
mod tests {
    use super::*;

    /// A job whose time limit had been extended a minute ago halted at the old end.
    #[test]
    fn the_end_is_asked_for_shortly_before_the_job_halts_for_it() {
        let ends = HaltDue::Now(HaltReason::AllocationEnds { left: 50, halt_seconds: 60 });
        for (due, seconds) in [
            (None, 180),
            (Some(HaltDue::At(1181)), 180),
            (Some(HaltDue::At(1180)), 20),
            (Some(HaltDue::At(900)), 20),
            (Some(ends), 20),
            (Some(HaltDue::Now(HaltReason::NoCheckpointsLeft)), 180),
            (Some(HaltDue::AfterCheckpoints(1)), 180),
        ] {
            assert_eq!(period(due.as_ref(), 1000).as_secs(), seconds, "{due:?}");
        }
    }
}
