//! Turns rows into entries, also rows that C SCR wrote.

use super::server::DatabaseError;
use super::write::table_of;
use jiff::tz::TimeZone;
use jiff::Timestamp;
use mysql::prelude::{FromValue, Queryable};
use mysql::{Conn, Params, Row, Value};
use scr_plugin_api::{LogEntry, LogKind, LogQuery};

/// A table of entries, and what is asked of it beside what is in both.
struct Source {
    kind: LogKind,
    own: &'static str,
}

const SOURCES: [Source; 2] = [
    Source { kind: LogKind::Event, own: "e.`note`, e.`procs`, e.`nodes`" },
    Source {
        kind: LogKind::Transfer,
        own: "e.`from`, e.`to`, CAST(e.`bytes` AS UNSIGNED) AS `bytes`, e.`files`",
    },
];

/// C SCR writes the second only.
const MICROS: &str = "COALESCE(e.`micros`, CAST(UNIX_TIMESTAMP(e.`start`) * 1000000 AS UNSIGNED), 0)";

/// The entries that match, oldest first.
pub(crate) fn read(connection: &mut Conn, query: &LogQuery) -> Result<Vec<LogEntry>, DatabaseError> {
    let (condition, values) = condition(query);
    let mut entries = Vec::new();
    for source in &SOURCES {
        let statement = format!(
            "SELECT t.`name` AS `type`, u.`name` AS `user`, n.`name` AS `jobname`, {MICROS} AS `time`, \
             e.`dset_id`, e.`dset_name`, e.`secs` + 0e0 AS `secs`, \
             e.`jobid`, e.`host`, e.`cluster`, e.`prefix`, {} \
             FROM `{}` e JOIN `types` t ON t.`id` = e.`type_id` JOIN `jobs` j ON j.`id` = e.`job_id` \
             JOIN `usernames` u ON u.`id` = j.`username_id` JOIN `jobnames` n ON n.`id` = j.`jobname_id` \
             WHERE {condition} ORDER BY `time` DESC, e.`id` DESC{}",
            source.own,
            table_of(source.kind),
            query.last.map_or_else(String::new, |last| format!(" LIMIT {last}"))
        );
        let rows: Vec<Row> = connection.exec(statement, Params::from(values.clone()))?;
        for row in rows {
            entries.push(entry(source, row)?);
        }
    }
    // Both came newest first; what happened in the same microsecond keeps its order.
    entries.reverse();
    entries.sort_by_key(|entry| entry.micros);
    let last = query.last.and_then(|last| usize::try_from(last).ok()).unwrap_or(usize::MAX);
    Ok(entries.split_off(entries.len().saturating_sub(last)))
}

/// The condition on a row, and the values in it.
fn condition(query: &LogQuery) -> (String, Vec<Value>) {
    let equal = |column: &str, text: &Option<String>| {
        Some((format!("{column} = ?"), vec![Value::from(text.as_ref()?)]))
    };
    let time =
        |order: &str, micros: Option<u64>| Some((format!("{MICROS} {order} ?"), vec![Value::from(micros?)]));
    let dataset = query.dataset.as_ref().map(|dataset| {
        let either = "(CAST(e.`dset_id` AS CHAR) = ? OR e.`dset_name` = ?)";
        (either.to_owned(), vec![Value::from(dataset); 2])
    });
    let names: Vec<_> = query.names.iter().map(|name| Value::from(name.to_ascii_uppercase())).collect();
    let places = vec!["?"; names.len()].join(", ");
    let named = (!names.is_empty()).then(|| (format!("UPPER(t.`name`) IN ({places})"), names));
    let (prefix, job) = (equal("e.`prefix`", &query.prefix), equal("e.`jobid`", &query.job_id));
    let all = [prefix, job, dataset, time(">=", query.since), time("<", query.until), named];
    let (texts, values): (Vec<_>, Vec<_>) = all.into_iter().flatten().unzip();
    (format!("TRUE{}", texts.iter().map(|text| format!(" AND {text}")).collect::<String>()), values.concat())
}

fn entry(source: &Source, mut row: Row) -> Result<LogEntry, DatabaseError> {
    let table = table_of(source.kind);
    let micros = take::<u64>(&mut row, "time").ok_or(DatabaseError::Row { table, column: "start" })?;
    let is_transfer = source.kind == LogKind::Transfer;
    // A transfer cannot leave these empty, so that nothing in them is none.
    let filled = |text: Option<String>| text.filter(|text| !(is_transfer && text.is_empty()));
    let mut text =
        |column| take::<Vec<u8>>(&mut row, column).map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(LogEntry {
        kind: source.kind,
        name: text("type").ok_or(DatabaseError::Row { table, column: "type" })?,
        micros,
        local_time: local_time(micros),
        host: text("host").unwrap_or_default(),
        user: text("user").unwrap_or_default(),
        job_id: text("jobid").unwrap_or_default(),
        job_name: text("jobname").unwrap_or_default(),
        cluster: text("cluster").unwrap_or_default(),
        prefix: text("prefix").unwrap_or_default(),
        note: text("note"),
        from: filled(text("from")),
        to: filled(text("to")),
        dataset_name: filled(text("dset_name")),
        dataset: take(&mut row, "dset_id"),
        seconds: take(&mut row, "secs"),
        bytes: take(&mut row, "bytes"),
        files: take(&mut row, "files"),
        processes: take(&mut row, "procs"),
        nodes: take(&mut row, "nodes"),
        ..LogEntry::default()
    })
}

/// The value in a column; nothing if the row has no such column, or something else is in it.
fn take<T: FromValue>(row: &mut Row, column: &str) -> Option<T> {
    row.take_opt::<Option<T>, _>(column)?.ok()?
}

fn local_time(micros: u64) -> String {
    let time = i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    time.unwrap_or_default().to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}
