//! Turns an entry into a row, with numbers in place of names.

use super::server::DatabaseError;
use mysql::prelude::Queryable;
use mysql::{Conn, Params, Value};
use scr_plugin_api::{LogEntry, LogKind};
use std::collections::HashMap;

/// The numbers of rows that were found or made, by their tables and keys.
pub(crate) type Known = HashMap<(&'static str, String), u64>;

/// A connection for one entry.
pub(crate) struct Writer<'a> {
    connection: Conn,
    known: &'a mut Known,
    /// The statements of the entry at hand, for the one who wants to see them.
    statements: Vec<String>,
}

/// The columns of a row, each with the text that stands for its value in a statement, and the value.
type Columns = Vec<(&'static str, &'static str, Value)>;

const PLAIN: &str = "?";
/// From seconds since the epoch, in the time zone of the server.
const TIME: &str = "FROM_UNIXTIME(?)";

impl<'a> Writer<'a> {
    pub(crate) fn new(connection: Conn, known: &'a mut Known) -> Self {
        Self { connection, known, statements: Vec::new() }
    }

    /// Writes a row, and gives the statements that did so.
    pub(crate) fn write(mut self, entry: &LogEntry) -> Result<Vec<String>, DatabaseError> {
        let mut columns = vec![
            ("job_id", PLAIN, Value::from(self.job(entry)?)),
            ("type_id", PLAIN, Value::from(self.name("types", &entry.name)?)),
        ];
        columns.extend(match entry.kind {
            LogKind::Event => event(entry),
            LogKind::Transfer => transfer(entry),
        });
        columns.extend(of_entry(entry));
        self.insert("INSERT INTO", table_of(entry.kind), columns)?;
        Ok(self.statements)
    }

    /// The number of the job that an entry belongs to: of a user's runs under one name.
    fn job(&mut self, entry: &LogEntry) -> Result<u64, DatabaseError> {
        let keys = vec![
            ("username_id", PLAIN, Value::from(self.name("usernames", &entry.user)?)),
            ("jobname_id", PLAIN, Value::from(self.name("jobnames", &entry.job_name)?)),
        ];
        self.number("jobs", keys, vec![("start", TIME, Value::from(seconds_of(entry)))])
    }

    /// The number of a name in one of the tables of names.
    fn name(&mut self, table: &'static str, name: &str) -> Result<u64, DatabaseError> {
        self.number(table, vec![("name", PLAIN, Value::from(name))], Vec::new())
    }

    /// The number of the row with these keys. One that is made has these further columns: other jobs may be making it at this moment.
    fn number(&mut self, table: &'static str, keys: Columns, more: Columns) -> Result<u64, DatabaseError> {
        let shown: Vec<_> = keys.iter().map(|(.., value)| value.as_sql(true)).collect();
        let row = (table, shown.join(", "));
        if let Some(&known) = self.known.get(&row) {
            return Ok(known);
        }
        let condition: Vec<_> = keys.iter().map(|(name, ..)| format!("`{name}` = ?")).collect();
        let find = format!("SELECT `id` FROM `{table}` WHERE {}", condition.join(" AND "));
        let values = Params::Positional(keys.iter().map(|(.., value)| value.clone()).collect());
        let mut found = self.connection.exec_first(&find, &values)?;
        if found.is_none() {
            self.insert("INSERT IGNORE INTO", table, [keys, more].concat())?;
            found = self.connection.exec_first(&find, &values)?;
        }
        let number = found.ok_or(DatabaseError::Row { table, column: "id" })?;
        self.known.insert(row, number);
        Ok(number)
    }

    fn insert(&mut self, how: &str, table: &str, columns: Columns) -> Result<(), DatabaseError> {
        let names: Vec<_> = columns.iter().map(|(name, _, _)| format!("`{name}`")).collect();
        let places: Vec<_> = columns.iter().map(|(_, place, _)| *place).collect();
        let shown = columns.iter().map(|(_, place, value)| place.replace('?', &value.as_sql(true)));
        let head = format!("{how} `{table}` ({}) VALUES", names.join(", "));
        self.statements.push(format!("{head} ({})", shown.collect::<Vec<_>>().join(", ")));
        let values: Vec<_> = columns.into_iter().map(|(_, _, value)| value).collect();
        let statement = format!("{head} ({})", places.join(", "));
        Ok(self.connection.exec_drop(statement, Params::Positional(values))?)
    }
}

pub(crate) fn table_of(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Event => "events",
        LogKind::Transfer => "transfers",
    }
}

fn event(entry: &LogEntry) -> Columns {
    vec![
        ("dset_id", PLAIN, Value::from(entry.dataset)),
        ("dset_name", PLAIN, Value::from(entry.dataset_name.as_ref())),
        ("start", TIME, Value::from(seconds_of(entry))),
        ("secs", PLAIN, Value::from(entry.seconds)),
        ("note", PLAIN, Value::from(entry.note.as_ref())),
        ("procs", PLAIN, Value::from(entry.processes)),
        ("nodes", PLAIN, Value::from(entry.nodes)),
    ]
}

/// A missing value of a transfer becomes an empty one, since these columns are never NULL.
fn transfer(entry: &LogEntry) -> Columns {
    let text = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
    let (took, bytes) = (entry.seconds.unwrap_or_default(), entry.bytes.unwrap_or_default());
    let speed = if took > 0.0 { bytes as f64 / took } else { 0.0 };
    let end = seconds_of(entry);
    vec![
        ("dset_id", PLAIN, Value::from(entry.dataset.unwrap_or_default())),
        ("dset_name", PLAIN, text(&entry.dataset_name)),
        ("start", TIME, Value::from(end - took)),
        ("end", TIME, Value::from(end)),
        ("secs", PLAIN, Value::from(took)),
        ("bytes", PLAIN, Value::from(bytes)),
        ("files", PLAIN, Value::from(entry.files.unwrap_or_default())),
        ("bw", PLAIN, Value::from(speed)),
        ("from", PLAIN, text(&entry.from)),
        ("to", PLAIN, text(&entry.to)),
    ]
}

fn of_entry(entry: &LogEntry) -> Columns {
    vec![
        ("micros", PLAIN, Value::from(entry.micros)),
        ("jobid", PLAIN, Value::from(&entry.job_id)),
        ("host", PLAIN, Value::from(&entry.host)),
        ("cluster", PLAIN, Value::from(&entry.cluster)),
        ("prefix", PLAIN, Value::from(&entry.prefix)),
    ]
}

/// Seconds since the epoch.
fn seconds_of(entry: &LogEntry) -> f64 {
    entry.micros as f64 / 1e6
}
