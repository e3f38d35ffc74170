//! `scr log-event` and `scr log-transfer`, and C SCR's names for them: a script writes into the log of a job what the library
//! cannot know. With the options of C SCR.

use crate::prelude::*;
use scr_core::log::{Log, Record};
use scr_plugin_api::{LogEntry, LogKind};

/// The log, and the common fields of both kinds of entries.
#[derive(Args)]
struct Common {
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// The user of the job [default: SCR_USER_NAME, or the current user]
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// The name of the job [default: SCR_JOB_NAME, or from the resource manager]
    #[arg(short, long, value_name = "NAME")]
    jobname: Option<String>,
    /// The id of the allocation [default: SCR_JOB_ID, or from the resource manager]
    #[arg(short = 'i', long, value_name = "ID")]
    jobid: Option<String>,
    /// When the job began, in seconds since the epoch or as `scr log` takes it; scr does not need it
    #[arg(short, long, value_name = "WHEN", value_parser = time::seconds_or_back)]
    start: Option<u64>,
    /// Its name, such as NODE_FAIL or FLUSH_SYNC
    #[arg(short = 'T', long = "type", value_name = "NAME")]
    name: String,
    /// The id of the dataset
    #[arg(short = 'D', long, value_name = "ID")]
    dset: Option<u64>,
    /// The name of the dataset
    #[arg(short, long, value_name = "NAME")]
    name_of_dataset: Option<String>,
    /// When it began, in seconds since the epoch or as `scr log` takes it [default: now]
    #[arg(short = 'S', long, value_name = "WHEN", value_parser = time::seconds_or_back)]
    begun: Option<u64>,
    /// How long it took
    #[arg(short = 'L', long, value_name = "SECONDS", value_parser = time::length_in_seconds)]
    secs: Option<f64>,
}

/// The event.
#[derive(Args)]
pub(crate) struct LogEventArgs {
    #[command(flatten)]
    common: Common,
    /// Further information
    #[arg(short = 'N', long, value_name = "TEXT")]
    note: Option<String>,
}

/// The transfer.
#[derive(Args)]
pub(crate) struct LogTransferArgs {
    #[command(flatten)]
    common: Common,
    /// The source of the bytes
    #[arg(short = 'X', long, value_name = "DIR")]
    from: Option<String>,
    /// The destination of the bytes
    #[arg(short = 'Y', long, value_name = "DIR")]
    to: Option<String>,
    /// How many bytes
    #[arg(short = 'B', long, value_name = "N")]
    bytes: Option<u64>,
    /// How many files
    #[arg(short = 'F', long, value_name = "N")]
    files: Option<u64>,
}

/// `scr log-event`.
pub(crate) fn event(args: &LogEventArgs) -> Result<Answer> {
    add(&args.common, LogEntry { kind: LogKind::Event, note: args.note.clone(), ..LogEntry::default() })
}

/// `scr log-transfer`.
pub(crate) fn transfer(args: &LogTransferArgs) -> Result<Answer> {
    let LogTransferArgs { common, from, to, bytes, files } = args;
    let (from, to) = (from.clone(), to.clone());
    let (kind, bytes, files) = (LogKind::Transfer, *bytes, *files);
    add(common, LogEntry { kind, from, to, bytes, files, ..LogEntry::default() })
}

fn add(common: &Common, entry: LogEntry) -> Result<Answer> {
    let mut env = environment::env_at(common.prefix.as_deref())?;
    let set = [
        (param::USER_NAME.info().name, &common.user),
        (param::JOB_NAME.info().name, &common.jobname),
        (param::JOB_ID.info().name, &common.jobid),
    ];
    let set = set.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
    env.variables.extend(set);
    let params = environment::params(&env);
    if params.get(&param::LOG_ENABLE) == Some(false) {
        return Ok(Answer::No);
    }
    let is_name = !common.name.is_empty() && !common.name.contains(char::is_whitespace);
    ensure!(is_name, "`{}' is no name of an event: it is empty, or has blanks", common.name);
    let prefix = Prefix::new(params.get(&param::PREFIX));
    let log = Log::of_command(&env, &params, "scr log", &prefix);
    log.add_entry(Record(LogEntry {
        name: common.name.clone(),
        micros: common.begun.map_or(0, |seconds| seconds.saturating_mul(1_000_000)),
        dataset: common.dset,
        dataset_name: common.name_of_dataset.clone(),
        seconds: common.secs,
        ..entry
    }));
    Ok(Answer::Yes)
}
