//! The log of a job: what happened when, for people and sites to read later; and what it has cost. See
//! docs/user/logging.md.
//!
//! | part | what it is |
//! |---|---|
//! | `record` | the events and transfers there are |
//! | `text` | lines of the text logs, written and read; C SCR's text log |
//! | `events` | the event log, which scr keeps by itself |
//! | `account`, `figures` | what a job has cost, added up from entries |
//! | `jobs` | the jobs of a log |
//! | `syslog` | the system's log, by datagrams |
//! | `database` | a database, through a plugin, with a queue and a thread, as it may be slow |
//!
//! Rank 0 logs for all. A sink that fails is reported once and not used for the rest of the run: logging never fails a job,
//! and never makes it wait.

mod account;
mod database;
mod events;
mod figures;
mod jobs;
mod record;
mod syslog;
mod text;

pub use account::{Account, History, Segment, Transferred};
pub use database::database;
pub use events::MOST_BYTES as MOST_EVENT_BYTES;
pub use figures::{Class, Figures, Level, Moved, Spent, State, BOUNDS};
pub use jobs::jobs;
pub(crate) use syslog::check_logger;
pub use text::{exact_line, line, parse, LineError};

pub use record::{Event, Record, Transfer, ALLOCATION_END};

use crate::plugin::PluginHost;
use database::{Queue, DATABASE};
use events::EventLog;
use record::is_for_all;
use scr_base::env::{local_time, Clock, Env};
use scr_base::fs::Files;
use scr_base::message::Reporter;
use scr_comm::Rank;
use scr_config::param::{self, Param, Params};
use scr_plugin_api::{LogEntry, PluginError};
use scr_prefix::Prefix;
use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The log of a session or a command. Without sinks it does nothing.
pub struct Log {
    sinks: RefCell<Vec<Sink>>,
    events: RefCell<Option<EventLog>>,
    /// The cost of the job, if it is added up.
    account: RefCell<Option<Account>>,
    clock: Arc<dyn Clock>,
    report: Reporter,
    /// The fields that are the same in all entries of a run.
    common: LogEntry,
}

/// A sink as the log reaches it: takes an entry, and says whether it takes more.
type Sink = Box<dyn FnMut(&LogEntry) -> bool>;

impl Log {
    /// The log of a command that works on a job from outside, such as `scr run`.
    pub fn of_command(env: &Env, params: &Params, command: &str, prefix: &Prefix) -> Self {
        let report = Reporter::of_command(env.output.clone(), command);
        let log = Self::begin(Rank(0), env, params, &report, prefix);
        log.add_database(Rank(0), params, &PluginHost::configured(env, params));
        log
    }

    /// The log of a rank, with the sinks in core that are switched on.
    pub(crate) fn begin(rank: Rank, env: &Env, params: &Params, report: &Reporter, prefix: &Prefix) -> Self {
        let log = Self::silent(env, params, report, prefix);
        if rank == Rank(0) && params.get(&param::LOG_ENABLE) != Some(false) {
            *log.events.borrow_mut() = Some(EventLog::new(env.files.clone(), prefix));
        }
        if rank == Rank(0) && wants(params, &param::LOG_TXT_ENABLE) {
            let (files, path) = (env.files.clone(), prefix.log_file());
            log.add(path.display().to_string(), move |entry| text::append(&*files, &path, entry));
        }
        if rank == Rank(0) && wants(params, &param::LOG_SYSLOG_ENABLE) {
            match syslog::open(params) {
                Ok(sink) => log.add("syslog".to_owned(), move |entry| sink.send(entry)),
                Err(error) => warn_failure(report, "syslog", &error),
            }
        }
        log
    }

    /// Entries belong to this run from now on, and what they cost is added up on ranks where that `is_counted`. Those of earlier
    /// runs of the job count, unless another job with its id is at work.
    pub(crate) fn begin_run(&mut self, files: &dyn Files, prefix: &Prefix, run: u64, counts: Counts) {
        self.common.run = Some(run);
        let is_read = counts == Counts::OfJob && self.events.get_mut().is_some();
        *self.account.get_mut() = match counts {
            Counts::Nothing => None,
            _ if is_read => Some(jobs::account_of(files, prefix, &self.common.job_id)),
            _ => Some(Account::default()),
        };
    }

    /// The cost of the job so far. `None` if it is not added up.
    pub(crate) fn figures(&self) -> Option<Figures> {
        let now = self.clock.micros();
        self.account.borrow().as_ref().map(|account| account.figures_at(now))
    }

    /// Whether anybody takes entries.
    fn is_used(&self) -> bool {
        self.account.borrow().is_some() || self.events.borrow().is_some() || !self.sinks.borrow().is_empty()
    }

    /// A log without sinks.
    pub(crate) fn silent(env: &Env, params: &Params, report: &Reporter, prefix: &Prefix) -> Self {
        Self {
            sinks: RefCell::default(),
            events: RefCell::default(),
            account: RefCell::default(),
            clock: env.clock.clone(),
            report: report.clone(),
            common: LogEntry {
                host: params.get(&param::NODE_NAME),
                user: params.get(&param::USER_NAME),
                job_id: params.get(&param::JOB_ID),
                job_name: params.get(&param::JOB_NAME).unwrap_or_default(),
                cluster: params.get(&param::CLUSTER_NAME).unwrap_or_default(),
                prefix: prefix.dir().display().to_string(),
                ..LogEntry::default()
            },
        }
    }

    /// Adds a sink.
    fn add(&self, name: String, write: impl Fn(&LogEntry) -> Result<(), PluginError> + 'static) {
        let report = self.report.clone();
        let failed = move |error: &PluginError| warn_failure(&report, &name, error);
        self.sinks.borrow_mut().push(Box::new(move |entry| write(entry).inspect_err(&failed).is_ok()));
    }

    /// Adds the database, where one is wanted, or says why it is not there.
    pub(crate) fn add_database(&self, rank: Rank, params: &Params, host: &PluginHost) {
        let wanted = wants(params, &param::LOG_DB_ENABLE);
        // A missing host is reported with the other contradictions between parameters.
        if rank != Rank(0) || !wanted || params.get(&param::LOG_DB_HOST).is_none() {
            return;
        }
        let queue = match database(host, params) {
            Ok(sink) => Queue::start(sink, &self.report).map_err(|error| error.to_string()),
            Err(error) => Err(scr_base::describe(&error)),
        };
        match queue {
            Ok(mut queue) => self.sinks.borrow_mut().push(Box::new(move |entry| queue.add(entry))),
            Err(why) => warn_failure(&self.report, DATABASE, &why),
        }
    }

    /// Logs what happened, now.
    pub fn add_entry(&self, record: Record) {
        if !self.is_used() {
            return;
        }
        let mut entry = self.complete(record.0);
        if let Some(account) = &mut *self.account.borrow_mut() {
            account.take(&entry);
        }
        self.to_events(|events| events.add(&entry));
        let mut sinks = self.sinks.borrow_mut();
        if sinks.is_empty() || !is_for_all(&entry) {
            return;
        }
        entry.local_time = local_time(UNIX_EPOCH + Duration::from_micros(entry.micros));
        sinks.retain_mut(|sink| sink(&entry));
    }

    /// Lets the event log do something, and reports an error.
    fn to_events(&self, work: impl FnOnce(&mut EventLog) -> std::io::Result<()>) {
        if let Some(events) = &mut *self.events.borrow_mut() {
            if let Err(error) = work(events) {
                self.report.warn(&format!(
                    "logging to {} failed: cannot write it: {error}; the job continues, and tries again with a later entry; SCR_LOG_ENABLE=0 \
                     turns this log off",
                    events.name()
                ));
            }
        }
    }

    /// With all but the local time.
    fn complete(&self, entry: LogEntry) -> LogEntry {
        let micros = if entry.micros == 0 { self.clock.micros() } else { entry.micros };
        let LogEntry { host, user, job_id, job_name, cluster, prefix, run, .. } = self.common.clone();
        LogEntry { micros, host, user, job_id, job_name, cluster, prefix, run, ..entry }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.to_events(EventLog::write_out);
    }
}

/// Which costs are added up on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// None.
    Nothing,
    /// Those of this run.
    OfRun,
    /// Those of all runs of the job.
    OfJob,
}

/// Whether a destination of C SCR's log is wanted: the user has asked for that log as a whole, or for this part of it.
fn wants(params: &Params, part: &Param<bool>) -> bool {
    let is_asked = *params.origin(part) != param::Origin::Default;
    params.get(&param::LOG_ENABLE).unwrap_or(is_asked) && params.get(part)
}

/// Said once for each sink, since it is not used again. Also from its thread.
fn warn_failure(report: &Reporter, name: &str, error: &dyn Display) {
    report.warn(&format!("logging to {name} failed: {error}; the job continues and logs no more there"));
}

#[cfg(test)]
mod tests {
    use super::*;

    use scr_base::fs::RealFiles;
    use scr_config::param::{AppConfig, Settings};
    use scr_test_kit::TestEnv;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    fn log_in(dir: &std::path::Path, settings: &[(&str, &str)], rank: Rank) -> (Log, scr_test_kit::TestEnv) {
        let prefix = Prefix::new(dir);
        prefix.make_scr_dir(&RealFiles).unwrap();
        let world = TestEnv::new(Arc::new(RealFiles), dir).with_variable("SCR_LOG_SYSLOG_ENABLE", "0");
        let world = settings.iter().fold(world, |world, (name, value)| world.with_variable(name, value));
        let env = world.env();
        let (params, _) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
        let report = Reporter::new(env.output.clone(), rank, "n0", 0);
        (Log::begin(rank, &env, &params, &report, &prefix), world)
    }

    #[test]
    fn only_rank_0_logs_and_only_where_logging_is_enabled() {
        for (enable, text, rank, wanted) in
            [("1", "1", 0, true), ("0", "1", 0, false), ("1", "0", 0, false), ("1", "1", 1, false)]
        {
            let dir = tempfile::tempdir().unwrap();
            let settings = [("SCR_LOG_ENABLE", enable), ("SCR_LOG_TXT_ENABLE", text)];
            let (log, _) = log_in(dir.path(), &settings, Rank(rank));
            log.add_entry(Record::event(Event::ComputeStart));
            assert_eq!(dir.path().join(".scr/log").exists(), wanted, "{enable} {text} {rank}");
        }
    }

    #[test]
    fn a_failing_sink_is_reported_once_and_the_others_continue() {
        let dir = tempfile::tempdir().unwrap();
        let (log, world) = log_in(dir.path(), &[("SCR_LOG_ENABLE", "1")], Rank(0));
        let calls = Arc::new(AtomicU32::new(0));
        let called = calls.clone();
        log.add("the database".to_owned(), move |_| match called.fetch_add(1, Ordering::Relaxed) {
            1 => Err(PluginError::fault("the disk is full")),
            _ => Ok(()),
        });
        for _ in 0..4 {
            world.clock().advance(Duration::from_secs(1));
            log.add_entry(Record::event(Event::ComputeStart));
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let errors = world.output().take_errors();
        let expected = "SCR v1.0.0 WARNING: rank 0 on n0: logging to the database failed: the disk is full; \
                        the job continues and logs no more there [SCR-814]";
        assert_eq!(errors, [expected]);
        let written = std::fs::read_to_string(dir.path().join(".scr/log")).unwrap();
        assert_eq!(written.lines().count(), 4);
    }
}
