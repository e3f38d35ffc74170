//! The sources of entries: the text log of a prefix directory, or the database.

use crate::environment;
use crate::time;
use anyhow::{bail, Context, Result};
use chrono::NaiveDateTime;
use scr_core::env::Env;
use scr_core::log::{database as database_sink, parse};
use scr_core::param;
use scr_core::prefix::Prefix;
use scr_plugin_api::{LogEntry, LogQuery, LogSink};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// The entries that were read, and remarks on them.
pub(super) struct LogEntries {
    pub(super) entries: Vec<LogEntry>,
    pub(super) notes: Vec<String>,
    /// How many entries were compared with the query, where that is known.
    pub(super) compared: Option<u64>,
}

/// The entries of the text log that match.
pub(super) fn text(env: &Env, prefix: &Prefix, query: &LogQuery) -> Result<LogEntries> {
    text_of(&env.current_dir.join(prefix.log_file()), query)
}

/// Those of a text log at `path`.
pub(super) fn text_of(path: &Path, query: &LogQuery) -> Result<LogEntries> {
    // To open a pipe would wait for a writer.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        bail!("{} is not a regular file", path.display());
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let note = format!("there is no log at {}; SCR_LOG_ENABLE=1 has a job write one", path.display());
            return Ok(LogEntries { entries: Vec::new(), notes: vec![note], compared: None });
        }
        opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
    };
    // A line does not say to which prefix directory it belongs: the file does.
    let query = LogQuery { prefix: None, ..query.clone() };
    let (mut entries, mut bad, mut first_bad, mut compared) = (Vec::new(), 0_u64, None, 0);
    let mut lines = BufReader::new(file);
    for number in 1_u64.. {
        let line = next_line(&mut lines).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(line) = line else { break };
        let entry = entry_of(&String::from_utf8_lossy(&line));
        compared += u64::from(entry.is_ok());
        match entry {
            Ok(entry) if query.matches(&entry) => entries.push(entry),
            Ok(_) => {}
            Err(why) => {
                bad += 1;
                first_bad.get_or_insert((number, why));
            }
        }
    }
    let last = query.last.and_then(|last| usize::try_from(last).ok()).unwrap_or(usize::MAX);
    let entries = entries.split_off(entries.len().saturating_sub(last));
    let note = first_bad.map(|(number, why)| {
        format!("{}: {bad} lines were skipped; the first is line {number}: {why}", path.display())
    });
    Ok(LogEntries { entries, notes: note.into_iter().collect(), compared: Some(compared) })
}

/// The last event of the text log that says of an allocation that something has failed. Only the end of a long log is read.
pub(crate) fn last_failure(env: &Env, prefix: &Prefix, job_id: &str) -> Result<Option<LogEntry>> {
    let path = env.current_dir.join(prefix.log_file());
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let mut file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let start = file.metadata()?.len().saturating_sub(MOST_LINE_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let (mut lines, mut last) = (BufReader::new(file), None);
    while let Some(line) = next_line(&mut lines).with_context(|| format!("cannot read {}", path.display()))? {
        let entry = entry_of(&String::from_utf8_lossy(&line)).ok();
        let is_meant = |entry: &LogEntry| entry.job_id == job_id && entry.name.ends_with(FAILURE);
        last = entry.filter(is_meant).or(last);
    }
    Ok(last)
}

/// The names of all events that something has failed end so.
const FAILURE: &str = "_FAIL";

/// The next line, without its end; of one that is too long for an entry only the beginning, which is none.
fn next_line(lines: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if lines.take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        lines.skip_until(b'\n')?;
    }
    Ok(Some(line))
}

/// No entry has a longer line: its texts are paths and messages.
const MOST_LINE_BYTES: u64 = 1 << 20;

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
