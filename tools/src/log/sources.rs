//! Where entries come from: the text log of a prefix directory, or the database.

use super::time;
use crate::environment;
use anyhow::{bail, Context, Result};
use chrono::NaiveDateTime;
use scr_core::env::Env;
use scr_core::log::{database as database_sink, parse};
use scr_core::param;
use scr_core::prefix::Prefix;
use scr_plugin_api::{LogEntry, LogQuery, LogSink};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};

/// What was read, and what there is to say of it.
pub(super) struct LogEntries {
    pub(super) entries: Vec<LogEntry>,
    pub(super) notes: Vec<String>,
    /// How many entries were compared with the query, where that is known.
    pub(super) compared: Option<u64>,
}

/// The entries of the text log that match.
pub(super) fn text(env: &Env, prefix: &Prefix, query: &LogQuery) -> Result<LogEntries> {
    let path = env.current_dir.join(prefix.log_file());
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let note = format!("there is no log at {}; SCR_LOG_ENABLE=1 has a job write one", path.display());
            return Ok(LogEntries { entries: Vec::new(), notes: vec![note], compared: None });
        }
        opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
    };
    // A line does not say to which prefix directory it belongs: the file does.
    let query = LogQuery { prefix: None, ..query.clone() };
    let (mut entries, mut bad, mut compared) = (Vec::new(), Vec::new(), 0);
    for (number, line) in (1_u64..).zip(BufReader::new(file).split(b'\n')) {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        let entry = entry_of(&String::from_utf8_lossy(&line));
        compared += u64::from(entry.is_ok());
        match entry {
            Ok(entry) if query.matches(&entry) => entries.push(entry),
            Ok(_) => {}
            Err(why) => bad.push((number, why)),
        }
    }
    let last = query.last.and_then(|last| usize::try_from(last).ok()).unwrap_or(usize::MAX);
    let entries = entries.split_off(entries.len().saturating_sub(last));
    let note = bad.first().map(|(number, why)| {
        format!("{}: {} lines were passed over; the first is line {number}: {why}", path.display(), bad.len())
    });
    Ok(LogEntries { entries, notes: note.into_iter().collect(), compared: Some(compared) })
}

fn entry_of(line: &str) -> Result<LogEntry, String> {
    let mut entry = parse(line).map_err(|error| error.to_string())?;
    let time = NaiveDateTime::parse_from_str(&entry.local_time, "%Y-%m-%dT%H:%M:%S");
    entry.micros = time::micros(time::of_local_time(time.map_err(|error| error.to_string())?));
    Ok(entry)
}

/// The entries of the database that match.
pub(super) fn database(env: &Env, query: &LogQuery) -> Result<LogEntries> {
    Ok(LogEntries { entries: sink(env)?.read(query)?, notes: Vec::new(), compared: None })
}

/// The database that a job which is started here would log to.
pub(super) fn sink(env: &Env) -> Result<Box<dyn LogSink>> {
    let params = environment::params(env);
    if params.get(&param::LOG_DB_HOST).is_none() {
        bail!("there is no database to go to: set SCR_LOG_DB_HOST, and SCR_LOG_DB_NAME, _USER and _PASS as needed");
    }
    Ok(database_sink(&environment::plugin_host(env, None), &params)?)
}
