//! `scr log`: the events and transfers that jobs logged, from the text log of a prefix directory or from the database; and the
//! tables of that database. See docs/user/logging.md.
//!
//! - `sources`: where entries come from
//! - `add`: `scr log-event` and `scr log-transfer`
//! - `interval`: `scr ckpt-interval`

pub(crate) mod add;
pub(crate) mod interval;
pub(crate) mod sources;

use crate::prelude::*;
use clap::Subcommand;
use scr_config::param::nearest;
use scr_core::log::{Event, Transfer, ALLOCATION_END};
use scr_plugin_api::{LogEntry, LogKind, LogQuery};
pub(crate) use sources::last_failure;

/// Which entries, and from where.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    place: environment::PrefixArgs,
    /// Read the database of SCR_LOG_DB_HOST instead of the text log
    #[arg(long)]
    db: bool,
    /// Show the entries of all prefix directories in the database
    #[arg(long, requires = "db", conflicts_with_all = ["dir", "prefix"])]
    all: bool,
    /// Only entries of the dataset with this id or name
    #[arg(long, value_name = "ID|NAME")]
    dataset: Option<String>,
    /// Only events and transfers of this name, such as FLUSH_FAIL; may be repeated
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// Only entries of this allocation
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only entries from this time on
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only entries before this time
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Only the newest N entries
    #[arg(long, value_name = "N")]
    last: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Further actions.
#[derive(Subcommand)]
enum Action {
    /// Create the database of SCR_LOG_DB_HOST and its tables; existing ones stay as they are
    InitDb,
}

/// Runs the command.
pub(crate) fn run(args: &LogArgs) -> Result<Answer> {
    let env = environment::env()?;
    if let Some(Action::InitDb) = args.action {
        return print_lines(sources::sink(&env)?.prepare()?);
    }
    let given = args.place.given().map(|dir| param::normalise(&env.current_dir.join(dir)));
    let prefix = Prefix::new(given.unwrap_or_else(|| environment::params(&env).get(&param::PREFIX)));
    let query = query(args, &prefix)?;
    let read = if args.db { sources::database(&env, &query)? } else { sources::text(&env, &prefix, &query)? };
    warn_about_names(&args.event);
    read.notes.iter().for_each(warn);
    if let (true, Some(compared)) = (read.entries.is_empty(), read.compared) {
        warn(match compared {
            0 => "the log has no entries".to_owned(),
            _ => format!("none of {compared} entries matches"),
        });
        warn_about_filters(args, &env, &prefix);
    }
    let rows: Vec<_> = read.entries.iter().map(entry_json).collect();
    show(args.json, json!({ "entries": rows }), table(&read.entries), !read.entries.is_empty())
}

/// Names the job and the dataset that mistyped names most likely mean.
fn warn_about_filters(args: &LogArgs, env: &Env, prefix: &Prefix) {
    let all = LogQuery { prefix: Some(prefix.dir().display().to_string()), ..LogQuery::default() };
    let all = if args.db { sources::database(env, &all) } else { sources::text(env, prefix, &all) };
    let all = all.unwrap_or_default().entries;
    let warn_about = |what: &str, name: &Option<String>, of: fn(&LogEntry) -> Option<&str>| {
        let hint = name.as_ref().and_then(|name| did_you_mean(name, all.iter().filter_map(of)));
        if let (Some(name), Some(hint)) = (name, hint) {
            warn(format_args!("no entry is of the {what} `{name}'; {hint}"));
        }
    };
    warn_about("job", &args.job, |entry| Some(&entry.job_id));
    warn_about("dataset", &args.dataset, |entry| entry.dataset_name.as_deref());
}

/// Warns about events that no job logs.
fn warn_about_names(wanted: &[String]) {
    let known = names();
    for name in wanted.iter().filter(|name| !known.iter().any(|known| known.eq_ignore_ascii_case(name))) {
        let begins = format!("{}_", name.to_ascii_uppercase());
        let alike: Vec<_> = known.iter().copied().filter(|known| known.starts_with(&begins)).collect();
        let hint = match nearest(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("there are {}", if alike.is_empty() { &known } else { &alike }.join(", ")),
        };
        warn(format_args!("no event and no transfer is called {name}; {hint}"));
    }
}

/// The names of all events and transfers that scr logs.
pub(crate) fn names() -> Vec<&'static str> {
    let events = Event::ALL.iter().map(|event| event.name());
    events.chain(Transfer::ALL.iter().map(|kind| kind.name())).collect()
}

fn query(args: &LogArgs, prefix: &Prefix) -> Result<LogQuery> {
    let since = time::given("--since", args.since.as_deref())?;
    let until = time::given("--until", args.until.as_deref())?;
    if let Some(late) = since.zip(until).and_then(|(since, until)| since.checked_sub(until)) {
        let late = span(Duration::from_micros(late));
        bail!("--since is {late} after --until, so that nothing is between");
    }
    Ok(LogQuery {
        prefix: (!args.all).then(|| prefix.dir().display().to_string()),
        job_id: args.job.clone(),
        names: args.event.clone(),
        dataset: args.dataset.clone(),
        since,
        until,
        last: args.last,
    })
}

/// A table of what was found.
fn table(entries: &[LogEntry]) -> String {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let row = |entry: &LogEntry| {
        let took = entry.seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        [
            entry.local_time.clone(),
            entry.job_id.clone(),
            entry.host.clone(),
            entry.name.clone(),
            number(entry.dataset),
            entry.dataset_name.clone().unwrap_or_default(),
            took.map_or_else(String::new, span),
            entry.bytes.map_or_else(String::new, amount),
            remark(entry),
        ]
    };
    let head = ["TIME", "JOB", "HOST", "WHAT", "DSET", "NAME", "TOOK", "SIZE", "NOTE"];
    Table::of(&head, entries.iter().map(row)).text()
}

/// How large a run is, the note, or where bytes went.
fn remark(entry: &LogEntry) -> String {
    let size = entry.processes.zip(entry.nodes).map(|(processes, nodes)| size(processes, nodes));
    let way = entry.from.as_ref().zip(entry.to.as_ref()).map(|(from, to)| format!("{from} -> {to}"));
    let parts: Vec<_> = [size, entry.note.as_deref().map(note)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", ")).or(way).unwrap_or_default()
}

/// How large a run is.
pub(crate) fn size(processes: u64, nodes: u64) -> String {
    format!("{processes} process{} on {}", if processes == 1 { "" } else { "es" }, count(nodes, "node"))
}

/// A note for people: the end of an allocation as a time.
fn note(text: &str) -> String {
    let end = text.strip_prefix(ALLOCATION_END).and_then(|seconds| seconds.parse().ok());
    end.map_or_else(|| text.to_owned(), |end| format!("allocation ends {}", time::in_words(end)))
}

/// The same for programs. Fields that an entry lacks are left out. `micros` are microseconds since the epoch, from a text
/// log whole seconds.
fn entry_json(entry: &LogEntry) -> Value {
    let mut fields = json!(entry);
    fields["kind"] = if entry.kind == LogKind::Event { "event" } else { "transfer" }.into();
    fields["time"] = fields["local_time"].take();
    let always = ["name", "time", "dataset_name", "note", "from", "to"];
    if let Value::Object(fields) = &mut fields {
        fields.retain(|key, value| !value.is_null() && (*value != "" || always.contains(&key.as_str())));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_run_says_how_large_it_is_and_when_its_allocation_ends() {
        let start = LogEntry { processes: Some(1), nodes: Some(1), ..LogEntry::default() };
        assert_eq!(remark(&start), "1 process on 1 node");
        let known = LogEntry {
            processes: Some(8),
            nodes: Some(2),
            note: Some(format!("{ALLOCATION_END}1298944800")),
            ..start
        };
        let expected = format!("8 processes on 2 nodes, allocation ends {}", time::in_words(1_298_944_800));
        assert_eq!(remark(&known), expected);
        assert_eq!(note("allocation ends at @soon"), "allocation ends at @soon");
    }
}
