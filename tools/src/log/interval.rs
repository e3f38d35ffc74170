//! `scr ckpt-interval`: how often to write checkpoints, from what the log of a job says that they cost and how long the job runs
//! between two starts. For a job script: `export SCR_CHECKPOINT_SECONDS=$(scr ckpt-interval)`.

use super::sources;
use crate::environment;
use crate::output::{print, warn, Answer};
use crate::table::Table;
use anyhow::Result;
use clap::{Args, ValueEnum};
use scr_core::log::{Event, Transfer};
use scr_core::plan;
use scr_plugin_api::{LogEntry, LogQuery};
use std::path::PathBuf;

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "\
Daly's model is equation 37 of \"A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps\" (2004), Young's is of \
\"A First Order Approximation to the Optimum Checkpoint Interval\" (1974). Every start of the job after the first one counts as a \
failure.

Exit codes: 0 printed, 1 the log says too little, 2 error. Without a log it prints an overhead of 10 percent, or nothing.";

/// From which log, and by which model.
#[derive(Args)]
pub(crate) struct CkptIntervalArgs {
    /// Print what the log says of costs and failures
    #[arg(long)]
    stats: bool,
    /// The model
    #[arg(long, value_enum, default_value = "daly")]
    model: Model,
    /// Print the share of time for checkpoints in percent, for SCR_CHECKPOINT_OVERHEAD
    #[arg(long)]
    percent: bool,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// The log, instead of .scr/log in the prefix directory
    #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
    logfile: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// The simple one
    Young,
    /// The exact one
    Daly,
}

/// Seconds, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Spent {
    seconds: f64,
    count: u64,
}

impl Spent {
    fn add(&mut self, entry: &LogEntry) {
        self.seconds += entry.seconds.unwrap_or(0.0);
        self.count += 1;
    }

    fn average(self) -> f64 {
        self.seconds / self.count.max(1) as f64
    }
}

/// What a log says of the time that runs took.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    starts: u64,
    fetches: Spent,
    rebuilds: Spent,
    computing: Spent,
    checkpoints: Spent,
    /// While the application waited: of checkpoints, and of other output.
    flushes: Spent,
    output: Spent,
}

impl Totals {
    fn of(entries: &[LogEntry]) -> Self {
        let mut totals = Self::default();
        let mut in_checkpoint = false;
        for entry in entries {
            let is = |event: Event| entry.name == event.name();
            if is(Event::Start) {
                totals.starts += 1;
            } else if is(Event::RebuildSuccess) || is(Event::RebuildFail) {
                totals.rebuilds.add(entry);
            } else if is(Event::ComputeStart) {
                in_checkpoint = false;
            } else if is(Event::ComputeEnd) {
                totals.computing.add(entry);
            } else if is(Event::CheckpointStart) {
                in_checkpoint = true;
            } else if is(Event::CheckpointEnd) {
                totals.checkpoints.add(entry);
            } else if entry.name == Transfer::Fetch.name() {
                totals.fetches.add(entry);
            } else if entry.name == Transfer::FlushSync.name() {
                if in_checkpoint { &mut totals.flushes } else { &mut totals.output }.add(entry);
            }
        }
        totals
    }

    /// Seconds that a checkpoint costs.
    fn cost(&self) -> f64 {
        (self.checkpoints.seconds + self.flushes.seconds) / self.checkpoints.count.max(1) as f64
    }

    /// Seconds from one start of the job to the next.
    fn between_failures(&self) -> f64 {
        let all = [self.fetches, self.rebuilds, self.computing, self.checkpoints, self.flushes, self.output];
        all.iter().map(|spent| spent.seconds).sum::<f64>() / self.starts.max(1) as f64
    }

    fn table(&self) -> String {
        let mut table = Table::default();
        let spent = [
            ("fetches", self.fetches),
            ("rebuilds", self.rebuilds),
            ("computing", self.computing),
            ("checkpoints", self.checkpoints),
            ("flushes of checkpoints", self.flushes),
            ("flushes of output", self.output),
        ];
        for (what, spent) in spent {
            let times = [spent.seconds, spent.average()].map(|seconds| format!("{seconds:.3} s"));
            table.row([what.to_owned(), times[0].clone(), format!("{} on average", times[1])]);
        }
        let text = table.text();
        format!("{text}starts: {}\nmean time to interrupt: {:.3} s\n", self.starts, self.between_failures())
    }
}

/// Runs the command.
pub(crate) fn run(args: &CkptIntervalArgs) -> Result<Answer> {
    let env = environment::env_at(args.prefix.as_deref())?;
    let path = match &args.logfile {
        Some(file) => env.current_dir.join(file),
        None => environment::prefix(&env, args.prefix.as_deref())?.log_file(),
    };
    let read = sources::text_of(&path, &LogQuery::default())?;
    read.notes.iter().for_each(warn);
    let totals = Totals::of(&read.entries);
    if args.stats {
        print(totals.table())?;
    }
    if totals.checkpoints.count == 0 {
        // Until there is something to go by.
        if args.percent {
            print("10.0\n")?;
        }
        return Ok(Answer::No);
    }
    let model = match args.model {
        Model::Young => plan::young,
        Model::Daly => plan::daly,
    };
    let interval = model(totals.cost(), totals.between_failures());
    let percent = if interval > 0.0 { totals.cost() * 100.0 / interval } else { 0.0 };
    if args.stats {
        print(format!("interval: {interval:.3} s\noverhead: {percent:.3} percent\n"))?;
    } else if args.percent {
        print(format!("{percent}\n"))?;
    } else {
        // Rounded down to 0 it would mean never.
        print(format!("{}\n", (interval as u64).max(1)))?;
    }
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, seconds: f64) -> LogEntry {
        LogEntry { name: name.to_owned(), seconds: Some(seconds), ..LogEntry::default() }
    }

    #[test]
    fn checkpoint_cost_is_separated_from_other_time() {
        let run = [
            entry("START", 0.0),
            entry("FETCH", 4.0),
            entry("COMPUTE_START", 0.0),
            entry("COMPUTE_END", 90.0),
            entry("CHECKPOINT_START", 0.0),
            entry("CHECKPOINT_END", 3.0),
            entry("FLUSH_SYNC", 1.0),
            entry("COMPUTE_START", 0.0),
            entry("FLUSH_SYNC", 2.0),
        ];
        let entries: Vec<_> = run.iter().chain(&run).cloned().collect();
        let totals = Totals::of(&entries);
        assert_eq!((totals.starts, totals.cost(), totals.between_failures()), (2, 4.0, 100.0));
        assert_eq!(totals.output, Spent { seconds: 4.0, count: 2 });
    }
}
