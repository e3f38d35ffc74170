//! `scr log`: the events and transfers that jobs logged, from the text log of a prefix directory or from the database; and the
//! tables of that database. Which parameters say what is logged stands in the user guide, under `SCR_LOG_ENABLE`.
//!
//! - `sources`: where entries come from
//! - `listing`: entries as a table, and as JSON
//! - `add`: `scr log-event` and `scr log-transfer`
//! - `interval`: `scr ckpt-interval`

pub(crate) mod add;
pub(crate) mod interval;
mod show;
pub(crate) mod sources;

pub(crate) use show::size;
pub(crate) use sources::last_failure;

use crate::environment;
use crate::output::{self, print, warn, Answer};
use crate::time::{self, GRAMMAR};
use anyhow::{bail, Result};
use clap::{Args, Subcommand};
use scr_base::env::Env;
use scr_base::message::span;
use scr_config::param::{self, nearest};
use scr_core::log::{Event, Transfer};
use scr_plugin_api::LogQuery;
use scr_prefix::Prefix;
use sources::LogEntries;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 no entry matches, 2 error.";

/// Which entries, and from where.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Read the database of SCR_LOG_DB_HOST instead of the text log
    #[arg(long)]
    db: bool,
    /// Show the entries of all prefix directories in the database
    #[arg(long, requires = "db", conflicts_with = "prefix")]
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
        return init_db(&env);
    }
    let prefix = Prefix::new(prefix_dir(&env, args));
    let query = query(args, &prefix)?;
    let read = if args.db { sources::database(&env, &query)? } else { sources::text(&env, &prefix, &query)? };
    warn_about_names(&args.event);
    show(&read, args.json)
}

fn show(read: &LogEntries, json: bool) -> Result<Answer> {
    read.notes.iter().for_each(warn);
    if let (true, Some(compared)) = (read.entries.is_empty(), read.compared) {
        warn(match compared {
            0 => "the log has no entries".to_owned(),
            _ => format!("none of {compared} entries matches"),
        });
    }
    output::show(json, show::json(&read.entries), show::table(&read.entries))?;
    Ok(Answer::from(!read.entries.is_empty()))
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

/// Text below the help.
pub(crate) fn after_help() -> String {
    format!(
        "WHEN is {GRAMMAR}. Here 2h is two hours ago.\n\nEvents and transfers: {}.\n\n{EXIT_CODES}",
        names().join(", ")
    )
}

fn query(args: &LogArgs, prefix: &Prefix) -> Result<LogQuery> {
    let since = time::given("--since", args.since.as_deref())?;
    let until = time::given("--until", args.until.as_deref())?;
    if let (Some(since), Some(until)) = (since, until) {
        if since >= until {
            let late = Duration::from_micros(since - until);
            bail!("--since is {} after --until, so that nothing is between", span(late));
        }
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

fn init_db(env: &Env) -> Result<Answer> {
    let done = sources::sink(env)?.prepare()?;
    print(done.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    Ok(Answer::Yes)
}

fn prefix_dir(env: &Env, args: &LogArgs) -> PathBuf {
    let given = args.prefix.as_ref().map(|dir| param::normalise(&env.current_dir.join(dir)));
    given.unwrap_or_else(|| environment::params(env).get(&param::PREFIX))
}
