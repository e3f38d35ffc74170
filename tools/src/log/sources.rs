//! The sources of entries: the text logs of a prefix directory, or the database.

use crate::prelude::*;
use jiff::civil::DateTime;
use scr_base::fs::verify::{open_whole, FileError};
use scr_core::log::{database as database_sink, parse};
use scr_plugin_api::{LogEntry, LogQuery, LogSink};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

/// The entries that were read, and remarks on them.
#[derive(Default)]
pub(crate) struct LogEntries {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) notes: Vec<String>,
    /// How many entries were compared with the query, where that is known.
    pub(super) compared: Option<u64>,
}

/// The entries of a prefix directory that match, by their time: those of the event log, and those of the text log in C SCR's form
/// that are not in the event log as well.
pub(crate) fn text(env: &Env, prefix: &Prefix, query: &LogQuery) -> Result<LogEntries> {
    environment::expect_dir(&env.current_dir.join(prefix.dir()))?;
    let [newer, older] = prefix.event_files().map(|path| env.current_dir.join(path));
    let mut all = LogEntries::default();
    let found = [all.read(env, &older)?, all.read(env, &newer)?];
    let exact = all.entries.len();
    let classic = env.current_dir.join(prefix.log_file());
    if !all.read(env, &classic)? && found == [false, false] {
        let note = format!("there is no log at {}: no job has written one", newer.display());
        return Ok(LogEntries { notes: vec![note], ..all });
    }
    let mut classic = all.entries.split_off(exact);
    let known: HashSet<_> = all.entries.iter().map(identity).collect();
    classic.retain(|entry| !known.contains(&identity(entry)));
    all.entries.extend(classic);
    // Entries of one second stay in their order.
    all.entries.sort_by_key(|entry| entry.micros);
    Ok(all.matching(query))
}

/// The fields that identify an entry in either log.
fn identity(entry: &LogEntry) -> (&str, &str, &str, Option<u64>) {
    (&entry.local_time, &entry.job_id, &entry.name, entry.dataset)
}

/// Those of a text log at `path`.
pub(crate) fn text_of(env: &Env, path: &Path, query: &LogQuery) -> Result<LogEntries> {
    let mut all = LogEntries::default();
    if !all.read(env, path)? {
        let note = format!("there is no log at {}", path.display());
        return Ok(LogEntries { notes: vec![note], ..all });
    }
    Ok(all.matching(query))
}

/// The last event of the event log that says of an allocation that something has failed. Only the end of a long log is read.
pub(crate) fn last_failure(env: &Env, prefix: &Prefix, job_id: &str) -> Result<Option<LogEntry>> {
    let [events, _] = prefix.event_files();
    let path = env.current_dir.join(events);
    let Some(mut file) = open(env, &path)? else { return Ok(None) };
    let start = file.metadata()?.len().saturating_sub(MOST_LINE_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let (mut lines, mut last) = (BufReader::new(file), None);
    let mut line = Vec::new();
    while next_line(&mut lines, &mut line).or_cannot("read", &path)? {
        let entry = entry_of(&String::from_utf8_lossy(&line)).ok();
        let is_meant = |entry: &LogEntry| entry.job_id == job_id && entry.name.ends_with(FAILURE);
        last = entry.filter(is_meant).or(last);
    }
    Ok(last)
}

/// The names of all events that something has failed end so.
const FAILURE: &str = "_FAIL";

/// A file, if it is there. As all others in the hidden folder it is reached through no link.
fn open(env: &Env, path: &Path) -> Result<Option<File>> {
    match open_whole(&*env.files, path, None) {
        Err(FileError::Missing { .. }) => Ok(None),
        opened => Ok(Some(opened?.0.descriptor()?.try_clone_to_owned()?.into())),
    }
}

impl LogEntries {
    /// Reads a file, if it is there.
    fn read(&mut self, env: &Env, path: &Path) -> Result<bool> {
        let Some(file) = open(env, path)? else { return Ok(false) };
        let (mut bad, mut first_bad) = (0_u64, None);
        let mut lines = BufReader::with_capacity(1 << 16, file);
        let mut line = Vec::new();
        for number in 1_u64.. {
            if !next_line(&mut lines, &mut line).or_cannot("read", path)? {
                break;
            }
            match entry_of(&String::from_utf8_lossy(&line)) {
                Ok(entry) => self.entries.push(entry),
                // After an error, what comes next is on a line of its own.
                Err(_) if line.is_empty() => (),
                Err(why) => {
                    bad += 1;
                    first_bad.get_or_insert((number, why));
                }
            }
        }
        self.notes.extend(first_bad.map(|(number, why)| {
            format!("{}: {} skipped; the first is line {number}: {why}", path.display(), count(bad, "line"))
        }));
        Ok(true)
    }

    fn matching(mut self, query: &LogQuery) -> Self {
        // A line does not say to which prefix directory it belongs: the file does.
        let query = LogQuery { prefix: None, ..query.clone() };
        self.compared = Some(self.entries.len() as u64);
        self.entries.retain(|entry| query.matches(entry));
        let last = query.last.and_then(|last| usize::try_from(last).ok()).unwrap_or(usize::MAX);
        self.entries.drain(..self.entries.len().saturating_sub(last));
        self
    }
}

/// Reads the next line, without its end; of one that is too long for an entry only the beginning, which is none. Returns whether
/// there was one.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    if lines.take(MOST_LINE_BYTES).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        lines.skip_until(b'\n')?;
    }
    Ok(true)
}

/// No entry has a longer line: its texts are paths and messages.
const MOST_LINE_BYTES: u64 = 1 << 20;

fn entry_of(line: &str) -> Result<LogEntry, String> {
    let mut entry = parse(line).map_err(|error| error.to_string())?;
    if entry.micros > 0 {
        return Ok(entry);
    }
    let time = DateTime::strptime("%Y-%m-%dT%H:%M:%S", &entry.local_time);
    entry.micros = time::micros(&time::of_local_time(time.map_err(|error| error.to_string())?));
    Ok(entry)
}

/// The entries of the database that match.
pub(super) fn database(env: &Env, query: &LogQuery) -> Result<LogEntries> {
    Ok(LogEntries { entries: sink(env)?.read(query)?, ..LogEntries::default() })
}

/// The database that a job which is started here would log to.
pub(super) fn sink(env: &Env) -> Result<Box<dyn LogSink>> {
    let params = environment::params(env);
    let cure = "set SCR_LOG_DB_HOST, and SCR_LOG_DB_NAME, _USER and _PASS as needed";
    ensure!(params.get(&param::LOG_DB_HOST).is_some(), "there is no database to go to: {cure}");
    Ok(database_sink(&environment::plugin_host(env), &params)?)
}
