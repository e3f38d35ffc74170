//! The system's log: a datagram per entry to `/dev/log`, as syslog(3) would send it (RFC 3164).
//!
//! Not through the C library's syslog(3), whose prefix and facility belong to the whole process and so to the application.
//! The socket never blocks: if the system's logger has stopped reading, the job must continue.
#![expect(clippy::disallowed_types, reason = "a socket for each entry")]

use super::text;
use scr_config::param::{self, Param, Params, Problem};
use scr_plugin_api::{above_standard, LogEntry, PluginError};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// The socket of the system's logger.
const SOCKET: &str = "/dev/log";

/// Facilities in the order of their numbers, as in openlog(3); those without a name are for the system alone.
const FACILITIES: &[&str] = &[
    "KERN", "USER", "MAIL", "DAEMON", "AUTH", "SYSLOG", "LPR", "NEWS", "UUCP", "CRON", "AUTHPRIV", "FTP", "",
    "", "", "", "LOCAL0", "LOCAL1", "LOCAL2", "LOCAL3", "LOCAL4", "LOCAL5", "LOCAL6", "LOCAL7",
];

/// Levels in the order of their numbers.
const LEVELS: &[&str] = &["EMERG", "ALERT", "CRIT", "ERR", "WARNING", "NOTICE", "INFO", "DEBUG"];

/// The sink that the parameters describe.
///
/// # Errors
/// There is no logger, or no such facility or level.
pub(super) fn open(params: &Params) -> Result<SyslogSink, PluginError> {
    let priority = facility(params).and_then(|facility| Ok(facility * 8 + level(params)?));
    let priority = priority.map_err(PluginError::refused)?;
    SyslogSink::find(SOCKET.into(), priority, &params.get(&param::LOG_SYSLOG_PREFIX))
}

/// Problems of the parameters of syslog.
pub(crate) fn check_logger(params: &Params) -> Vec<Problem> {
    let checks = [(&param::LOG_SYSLOG_FACILITY, facility(params)), (&param::LOG_SYSLOG_LEVEL, level(params))];
    let problem = |(param, checked): (&Param<String>, Result<u8, String>)| {
        Some(Problem::new(params.origin(param), format!("{}: {}", param.info().name, checked.err()?)))
    };
    checks.into_iter().filter_map(problem).collect()
}

fn facility(params: &Params) -> Result<u8, String> {
    number("facility", &params.get(&param::LOG_SYSLOG_FACILITY), FACILITIES)
}

fn level(params: &Params) -> Result<u8, String> {
    number("level", &params.get(&param::LOG_SYSLOG_LEVEL), LEVELS)
}

/// The number of the one that is named, or which there are.
fn number(what: &str, given: &str, names: &[&str]) -> Result<u8, String> {
    let known = || names.iter().zip(0..).filter(|(name, _)| !name.is_empty());
    let found = known().find(|(name, _)| is_named(given, name)).map(|(_, number)| number);
    found.ok_or_else(|| {
        let known: Vec<_> = known().map(|(name, _)| format!("LOG_{name}")).collect();
        format!("there is no {what} `{given}'; there are {}", known.join(", "))
    })
}

/// With `LOG_` before it or without, in any case.
fn is_named(given: &str, name: &str) -> bool {
    let given = given.trim();
    let bare =
        given.get(..4).filter(|start| start.eq_ignore_ascii_case("LOG_")).map_or(given, |_| &given[4..]);
    bare.eq_ignore_ascii_case(name)
}

/// Sends entries to the system's logger, each through a socket of its own: an application may close one that stays open.
#[derive(Debug)]
pub(super) struct SyslogSink {
    logger: PathBuf,
    priority: u8,
    prefix: String,
}

impl SyslogSink {
    /// One whose logger is there.
    fn find(logger: PathBuf, priority: u8, prefix: &str) -> Result<Self, PluginError> {
        let sink = Self { logger, priority, prefix: prefix.to_owned() };
        match sink.connect() {
            Ok(_) => Ok(sink),
            Err(error) => Err(PluginError::io(format!(
                "no logger listens at {}: {error}; set SCR_LOG_SYSLOG_ENABLE=0 if there is none",
                sink.logger.display()
            ))),
        }
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        let socket = above_standard(UnixDatagram::unbound)?;
        socket.connect(&self.logger)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// `<189>Nov 21 03:28:24 SCR[4711]: host=node0, ...`: the logger puts the host before it.
    fn message(&self, entry: &LogEntry, pid: u32) -> String {
        let line = text::line(entry);
        let rest = line.strip_prefix(&format!("{}: ", entry.local_time)).unwrap_or(&line);
        let time = jiff::civil::DateTime::strptime("%Y-%m-%dT%H:%M:%S", &entry.local_time);
        let time = time.map(|time| time.strftime("%b %e %T").to_string()).unwrap_or_default();
        format!("<{}>{time} {}[{pid}]: {rest}", self.priority, self.prefix)
    }

    pub(super) fn send(&self, entry: &LogEntry) -> Result<(), PluginError> {
        let message = self.message(entry, std::process::id());
        let sent = self.connect().and_then(|socket| socket.send(message.as_bytes()));
        let failed = |error| PluginError::io(format!("cannot send to the system's logger: {error}"));
        sent.map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> LogEntry {
        LogEntry {
            name: "START".to_owned(),
            local_time: "2026-11-01T03:28:24".to_owned(),
            host: "node0".to_owned(),
            job_id: "5132".to_owned(),
            processes: Some(4),
            nodes: Some(2),
            ..LogEntry::default()
        }
    }

    #[test]
    fn a_message_has_priority_time_prefix_process_and_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let logger = UnixDatagram::bind(&path).unwrap();
        let sink = SyslogSink::find(path, 23 * 8 + 6, "SCR").unwrap();
        sink.send(&entry()).unwrap();
        let mut buffer = [0; 1024];
        let length = logger.recv(&mut buffer).unwrap();
        let expected = format!(
            "<190>Nov  1 03:28:24 SCR[{}]: host=node0, jobid=5132, event=START, procs=4, nodes=2",
            std::process::id()
        );
        assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), expected);
    }

    #[test]
    fn a_logger_that_has_stopped_reading_stops_no_job() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let _logger = UnixDatagram::bind(&path).unwrap();
        let sink = SyslogSink::find(path, 190, "SCR").unwrap();
        let failed = (0..100_000).find_map(|_| sink.send(&entry()).err());
        assert!(failed.unwrap().text.starts_with("cannot send to the system's logger"));
    }

    #[test]
    fn names_are_taken_with_and_without_their_beginning() {
        assert!(
            is_named("LOG_LOCAL7", "LOCAL7") && is_named("local7", "LOCAL7") && is_named(" log_Info", "INFO")
        );
        assert!(!is_named("LOG_", "LOCAL7") && !is_named("", "INFO") && !is_named("LOG_LOCAL", "LOCAL7"));
    }

    #[test]
    fn without_a_logger_the_message_says_what_to_set() {
        let error = SyslogSink::find("/nowhere/log".into(), 190, "SCR").unwrap_err();
        assert!(error.text.contains("SCR_LOG_SYSLOG_ENABLE=0"), "{error}");
    }
}
