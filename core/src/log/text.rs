//! The two text logs in the prefix directory: one line per entry, and whole lines in each append, so that the lines of commands
//! and jobs at work at the same time stay whole.
//!
//! A line of `.scr/log` is that of C SCR: `2026-11-21T03:28:24: host=node0, jobid=5132, event=COMPUTE_END, secs=0.002028`. One of
//! `.scr/events` has its time in microseconds and UTC, which no change of the clock by an hour makes ambiguous, and says more:
//! `2026-11-21T02:28:24.123456Z: host=node0, jobid=5132, run=3, event=COMPUTE_END, secs=0.002028`.

use super::record::Event;
use jiff::civil::DateTime;
use jiff::Timestamp;
use scr_base::ensure;
use scr_base::env::local_time;
use scr_base::fs::{Files, How};
use scr_plugin_api::{LogEntry, LogKind, PluginError};
use scr_prefix::FILE_MODE;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// An entry as a line of `.scr/log`, without its end.
pub fn line(entry: &LogEntry) -> String {
    joined(&entry.local_time, entry, fields_of(entry).into_iter())
}

/// An entry as a line of `.scr/events`, without its end. Only the first entry of a run says who runs it.
pub fn exact_line(entry: &LogEntry) -> String {
    let begins = [Event::Start, Event::RunStart].iter().any(|begin| entry.name == begin.name());
    let of_run = |text: &String| (begins && !text.is_empty()).then(|| quoted(text));
    let before = [
        ("run", entry.run.map(|run| run.to_string())),
        ("user", of_run(&entry.user)),
        ("jobname", of_run(&entry.job_name)),
        ("cluster", of_run(&entry.cluster)),
    ];
    let scheme = [("scheme", entry.scheme.as_deref().map(quoted))];
    joined(&exact_time(entry.micros), entry, before.into_iter().chain(fields_of(entry)).chain(scheme))
}

/// A field of a line: its key, and its value if it has one.
type Field = (&'static str, Option<String>);

fn joined(time: &str, entry: &LogEntry, fields: impl Iterator<Item = Field>) -> String {
    let begin = format!("{time}: host={}, jobid={}", plain(&entry.host), plain(&entry.job_id));
    let given = fields.filter_map(|(key, value)| Some(format!(", {key}={}", value?)));
    given.fold(begin, |line, field| line + &field)
}

/// The fields that both logs have, in the order of C SCR.
fn fields_of(entry: &LogEntry) -> [Field; 11] {
    let place = |place: &Option<String>| place.as_deref().map(plain);
    let text = |text: &Option<String>| text.as_deref().map(quoted);
    let count = |count: Option<u64>| count.map(|count| count.to_string());
    [
        (if entry.kind == LogKind::Event { EVENT } else { TRANSFER }, Some(plain(&entry.name))),
        ("note", text(&entry.note)),
        ("from", place(&entry.from)),
        ("to", place(&entry.to)),
        ("dset", count(entry.dataset)),
        ("name", text(&entry.dataset_name)),
        ("secs", entry.seconds.map(|seconds| format!("{seconds:.6}"))),
        // C SCR counts them in floating point.
        ("bytes", entry.bytes.map(|bytes| format!("{bytes}.000000"))),
        ("files", count(entry.files)),
        ("procs", count(entry.processes)),
        ("nodes", count(entry.nodes)),
    ]
}

/// `2026-11-21T02:28:24.123456Z`, of microseconds since the epoch.
fn exact_time(micros: u64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let time = time.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S");
    format!("{time}.{micros:06}Z")
}

/// A line holds what a user said, which must not make two of it.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, "?")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text).replace('\\', "\\\\").replace('"', "\\\""))
}

const EVENT: &str = "event";
const TRANSFER: &str = "xfer";
const KEYS: &[&str] = &[
    "host", "jobid", "run", "user", "jobname", "cluster", EVENT, TRANSFER, "note", "from", "to", "dset",
    "name", "secs", "bytes", "files", "procs", "nodes", "scheme",
];

/// Why a line of the log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It does not begin with a time.
    #[error("it does not begin with a time such as 2026-11-21T03:28:24")]
    NoTime,
    /// A field of it is none, or is missing.
    #[error("{0}")]
    Field(String),
}

/// Reads a line of either log. Fields that it does not have are empty in the entry; one of `.scr/log` has no
/// [`micros`](LogEntry::micros), since its time is local.
///
/// # Errors
/// [`LineError`]: the line is no log line, or was torn.
pub fn parse(line: &str) -> Result<LogEntry, LineError> {
    let mut entry = parse_exact(line).or_else(|error| match error {
        LineError::NoTime => parse_classic(line),
        error => Err(error),
    })?;
    if entry.local_time.is_empty() {
        entry.local_time = local_time(UNIX_EPOCH + Duration::from_micros(entry.micros));
    }
    Ok(entry)
}

/// Reads a line of `.scr/events`, and leaves the local time out.
pub(super) fn parse_exact(line: &str) -> Result<LogEntry, LineError> {
    let (time, rest) = line.split_at_checked(EXACT_TIME_LEN).ok_or(LineError::NoTime)?;
    let time: Timestamp = time.parse().map_err(|_| LineError::NoTime)?;
    let micros = u64::try_from(time.as_microsecond()).map_err(|_| LineError::NoTime)?;
    fields(LogEntry { micros, ..LogEntry::default() }, rest)
}

fn parse_classic(line: &str) -> Result<LogEntry, LineError> {
    let (time, rest) = line.split_at_checked(TIME_LEN).ok_or(LineError::NoTime)?;
    DateTime::strptime("%Y-%m-%dT%H:%M:%S", time).map_err(|_| LineError::NoTime)?;
    fields(LogEntry { local_time: time.to_owned(), ..LogEntry::default() }, rest)
}

fn fields(mut entry: LogEntry, rest: &str) -> Result<LogEntry, LineError> {
    let mut rest = rest.strip_prefix(": ").ok_or(LineError::NoTime)?;
    while !rest.is_empty() {
        let (key, value, after) = field(rest)?;
        take(&mut entry, key, value)?;
        rest = after;
    }
    let nameless = || LineError::Field("it names neither an event nor a transfer".to_owned());
    ensure(!entry.name.is_empty(), nameless)?;
    Ok(entry)
}

const TIME_LEN: usize = "2026-11-21T03:28:24".len();
const EXACT_TIME_LEN: usize = "2026-11-21T03:28:24.123456Z".len();

/// The first field, and what follows it. Its key may be one of a later version, which is none of [`KEYS`].
fn field(text: &str) -> Result<(&str, String, &str), LineError> {
    let none = || LineError::Field(format!("`{text}' is no field of the log"));
    let (key, rest) = text.split_once('=').ok_or_else(none)?;
    let is_of_key = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    ensure(!key.is_empty() && key.bytes().all(is_of_key), none)?;
    let (value, rest) = match rest.strip_prefix('"') {
        Some(inside) => unquoted(inside).ok_or_else(none)?,
        None => {
            let end =
                if PLACES.contains(&key) { next_field(rest) } else { rest.find(", ").unwrap_or(rest.len()) };
            (rest[..end].to_owned(), &rest[end..])
        }
    };
    let after = if rest.is_empty() { rest } else { rest.strip_prefix(", ").ok_or_else(none)? };
    Ok((key, value, after))
}

/// The text before the closing quote, and the text after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// The fields that may hold a name given by a user, and are not in quotes.
const PLACES: &[&str] = &["host", "jobid", "from", "to"];

/// The start of the next field: a path may hold commas and equal signs of its own.
fn next_field(text: &str) -> usize {
    let is_key = |after: &str, key: &str| after.strip_prefix(key).is_some_and(|rest| rest.starts_with('='));
    let is_field = |after: &str| KEYS.iter().any(|key| is_key(after, key));
    let commas = text.match_indices(", ");
    commas
        .map(|(at, comma)| (at, at + comma.len()))
        .find(|(_, next)| is_field(&text[*next..]))
        .map_or(text.len(), |(at, _)| at)
}

fn take(entry: &mut LogEntry, key: &str, value: String) -> Result<(), LineError> {
    let bad = || LineError::Field(format!("{key} holds `{value}', which is not a number"));
    let count = || value.parse::<u64>().map(Some).map_err(|_| bad());
    match key {
        "host" => entry.host = value,
        "jobid" => entry.job_id = value,
        EVENT => entry.name = value,
        TRANSFER => (entry.kind, entry.name) = (LogKind::Transfer, value),
        "note" => entry.note = Some(value),
        "from" => entry.from = Some(value),
        "to" => entry.to = Some(value),
        "run" => entry.run = count()?,
        "user" => entry.user = value,
        "jobname" => entry.job_name = value,
        "cluster" => entry.cluster = value,
        "scheme" => entry.scheme = Some(value),
        "dset" => entry.dataset = count()?,
        "name" => entry.dataset_name = Some(value),
        "secs" => {
            entry.seconds = Some(value.parse::<f64>().ok().filter(|secs| secs.is_finite()).ok_or_else(bad)?);
        }
        "bytes" => {
            let whole = value.split_once('.').map_or(value.as_str(), |(whole, _)| whole);
            entry.bytes = Some(whole.parse().map_err(|_| bad())?);
        }
        "files" => entry.files = count()?,
        "procs" => entry.processes = count()?,
        "nodes" => entry.nodes = count()?,
        _ => (),
    }
    Ok(())
}

/// Appends an entry to the text log. The file does not stay open between entries: the application may close what it does not know.
pub(super) fn append(files: &dyn Files, path: &Path, entry: &LogEntry) -> Result<(), PluginError> {
    let failed = |doing: &str, error| PluginError::io(format!("cannot {doing} it: {error}"));
    let file = files.open(path, How::Append(FILE_MODE)).map_err(|error| failed("open", error))?;
    let text = line(entry) + "\n";
    file.append(text.as_bytes()).map_err(|error| failed("write", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scr_base::fs::RealFiles;

    fn checkpoint() -> LogEntry {
        LogEntry {
            kind: LogKind::Transfer,
            name: "CHECKPOINT".to_owned(),
            local_time: "2026-11-21T03:28:24".to_owned(),
            host: "node0".to_owned(),
            job_id: "5132".to_owned(),
            from: Some("/dev/shm/peer".to_owned()),
            to: Some("/dev/shm/peer/user1/scr.5132/scr.dataset.1".to_owned()),
            dataset: Some(1),
            dataset_name: Some("ckpt.1".to_owned()),
            seconds: Some(0.01676),
            bytes: Some(8226),
            files: Some(4),
            ..LogEntry::default()
        }
    }

    /// The lines that C SCR wrote, one of each kind.
    const THEIRS: &[&str] = &[
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=START, procs=4, nodes=4",
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=COMPUTE_START",
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=COMPUTE_END, secs=0.002028",
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=CHECKPOINT_START, note=\"/dev/shm/peer\", dset=1, name=\"ckpt.1\"",
        "2026-11-21T03:28:24: host=node0, jobid=5132, xfer=WRITE, from=/dev/shm/peer, to=/dev/shm/peer/user1/scr.5132/scr.dataset.1, dset=1, name=\"ckpt.1\", secs=0.005501, bytes=8226.000000, files=4",
        "2026-11-21T03:28:24: host=node0, jobid=5132, xfer=ENCODE, from=/dev/shm/peer, to=/dev/shm/peer/user1/scr.5132/scr.dataset.1, dset=1, secs=0.009871, bytes=8226.000000, files=4",
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=CHECKPOINT_END, note=\"/dev/shm/peer\", dset=1, name=\"ckpt.1\", secs=0.016760",
        "2026-11-21T03:28:24: host=node0, jobid=5132, xfer=CHECKPOINT, from=/dev/shm/peer, to=/dev/shm/peer/user1/scr.5132/scr.dataset.1, dset=1, name=\"ckpt.1\", secs=0.016760, bytes=8226.000000, files=4",
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=FLUSH_SUCCESS, dset=2, name=\"ckpt.2\", secs=0.007311",
        "2026-11-21T03:28:24: host=node0, jobid=5132, event=HALT, note=\"SCR_FINALIZE_CALLED\"",
    ];

    #[test]
    fn lines_of_c_scr_are_read_and_written_back_to_the_byte() {
        for theirs in THEIRS {
            assert_eq!(line(&parse(theirs).unwrap()), *theirs);
        }
        assert_eq!(line(&checkpoint()), THEIRS[7]);
    }

    #[test]
    fn texts_of_users_come_back_as_they_were_and_stay_on_their_line() {
        let odd = LogEntry {
            from: Some("/a, b=c/\"d\"".to_owned()),
            dataset_name: Some("a\", dset=7, \\ \"b".to_owned()),
            note: Some("why, event=X".to_owned()),
            ..checkpoint()
        };
        assert_eq!(parse(&line(&odd)).unwrap(), odd);
        let torn = LogEntry { dataset_name: Some("two\nlines".to_owned()), ..checkpoint() };
        assert!(line(&torn).contains("name=\"two?lines\""));
    }

    #[test]
    fn a_line_of_the_event_log_has_microseconds_the_run_and_who_runs_it() {
        let start = LogEntry {
            kind: LogKind::Event,
            name: "START".to_owned(),
            micros: 1_795_228_104_123_456,
            user: "a, user=b".to_owned(),
            job_name: "sim \"7\"".to_owned(),
            run: Some(3),
            scheme: Some("XOR".to_owned()),
            local_time: local_time(UNIX_EPOCH + Duration::from_micros(1_795_228_104_123_456)),
            ..checkpoint()
        };
        let text = exact_line(&start);
        let begins = "2026-11-21T02:28:24.123456Z: host=node0, jobid=5132, run=3, user=\"a, user=b\", ";
        assert!(text.starts_with(begins), "{text}");
        assert_eq!(parse(&text).unwrap(), start);
        let later = LogEntry { name: "HALT".to_owned(), ..start };
        assert!(!exact_line(&later).contains("user="), "said once");
        for odd in
            ["2026-02-30T02:28:24.123456Z", "2026-11-21T25:28:24.123456Z", "1969-11-21T02:28:24.123456Z"]
        {
            assert!(parse(&format!("{odd}: event=START")).is_err(), "{odd}");
        }
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let known = "2026-11-21T02:28:24.123456Z: host=node0, jobid=5132, run=3, event=CHECKPOINT_END, dset=7, secs=1.5";
        let later = known.replace(", dset", ", colour=red, note_of_it=\"a, dset=9, b\", dset") + ", heat=0.5";
        assert_eq!(parse(&later), parse(known));
    }

    #[test]
    fn a_malformed_line_is_refused_with_a_reason() {
        let begin = "2026-11-21T03:28:24: ";
        let cases = [
            ("", "begin with a time"),
            ("yesterday: host=a, event=START", "begin with a time"),
            ("2026-11-21T03:28:24", "begin with a time"),
            ("2026-13-41T03:28:24: event=START", "begin with a time"),
            (begin, "neither an event nor a transfer"),
            ("2026-11-21T03:28:24: host=a", "neither an event nor a transfer"),
            ("2026-11-21T03:28:24: event=START, procs=four", "procs holds `four'"),
            ("2026-11-21T03:28:24: event=START, secs=NaN", "secs holds `NaN'"),
            ("2026-11-21T03:28:24: xfer=WRITE, bytes=-1.0", "bytes holds"),
            ("2026-11-21T03:28:24: event=HALT, note=\"torn", "no field"),
            ("2026-11-21T03:28:24: Colour=red", "`Colour=red' is no field"),
            ("2026-11-21T03:28:24: colour=red", "neither an event nor a transfer"),
        ];
        for (text, reason) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn lines_of_several_writers_stay_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        append(&RealFiles, &path, &checkpoint()).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().filter(|line| parse(line) == Ok(checkpoint())).count(), 200);
    }

    #[test]
    fn a_log_that_cannot_be_opened_says_why() {
        let error = append(&RealFiles, Path::new("/nowhere/log"), &checkpoint()).unwrap_err();
        assert!(error.text.starts_with("cannot open it: "), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*", cut in 0_usize..400) {
            drop(parse(&text));
            drop(parse(&format!("2026-11-21T03:28:24: {text}")));
            let whole = THEIRS[7];
            drop(parse(whole.get(..cut).unwrap_or(whole)));
        }
    }
}
