//! `scr ckpt-interval`: how often to write checkpoints, from what the log of a job says that they cost and how long the job runs
//! between two failures. For a job script: `export SCR_CHECKPOINT_SECONDS=$(scr ckpt-interval)`, so that standard output has
//! the number alone, and the words go to standard error.

use super::sources;
use crate::prelude::*;
use scr_core::log::{jobs, Figures};

use scr_plugin_api::{LogEntry, LogQuery};

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
    #[command(flatten)]
    place: environment::PrefixArgs,
    /// The log, instead of those in the prefix directory
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "prefix"])]
    logfile: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// The simple one
    Young,
    /// The exact one
    Daly,
}

/// The total cost of all jobs of a log.
fn totals(entries: Vec<LogEntry>) -> Figures {
    Figures::sum(jobs(entries).iter().map(|(figures, _)| figures))
}

fn table(figures: &Figures) -> String {
    let spent = [
        ("fetches", figures.fetches),
        ("rebuilds", figures.rebuilds),
        ("computing", figures.computing),
        ("checkpoints", figures.checkpoints),
        ("flushes of checkpoints", figures.flushes_sync),
        ("flushes of output", figures.output_flushes_sync),
    ];
    let spent = spent.map(|(what, spent)| {
        [what.to_owned(), in_words(spent.seconds), format!("{} on average", in_words(spent.average()))]
    });
    let Figures { runs, failures, run_seconds, .. } = figures;
    let (text, lasts) = (Table::of(&[], spent).text(), in_words(figures.between_failures()));
    let (all, least) = (in_words(*run_seconds), if *failures == 0 { "at least " } else { "" });
    format!("{text}starts: {runs}\nfailures: {failures}, in {all}\nmean time to interrupt: {least}{lasts}\n")
}

/// The answer for people.
fn advice(figures: &Figures, interval: f64) -> String {
    let (cost, all, interval) = (in_words(figures.cost()), in_words(figures.run_seconds), in_words(interval));
    match figures.failures {
            0 => format!(
                "write a checkpoint every {interval} or less often: it costs {cost}, and no failure was seen in {all}, so that \
                 the mean time to interrupt is that or longer"
            ),
            failures => format!(
                "write a checkpoint every {interval}: it costs {cost}, and there was a failure every {} ({failures} in {all})",
                in_words(figures.between_failures())
            ),
        }
}

fn in_words(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| format!("{seconds:.0} s"), span)
}

/// Runs the command.
pub(crate) fn run(args: &CkptIntervalArgs) -> Result<Answer> {
    let mut env = environment::env_at(args.place.given())?;
    let read = match &args.logfile {
        Some(file) => sources::text_of(&env, &env.current_dir.join(file), &LogQuery::default())?,
        None => {
            let prefix = environment::prefix(&mut env, args.place.given())?;
            sources::text(&env, &prefix, &LogQuery::default())?
        }
    };
    read.notes.iter().for_each(warn);
    let figures = &totals(read.entries);
    if args.stats {
        print(table(figures))?;
    }
    if figures.checkpoints.count < 2 {
        // Until there is something to go by: one checkpoint has no interval.
        if args.percent {
            print("10.0\n")?;
        }
        return Ok(Answer::No);
    }
    let model = match args.model {
        Model::Young => scr_plan::young,
        Model::Daly => scr_plan::daly,
    };
    let interval = model(figures.cost(), figures.between_failures());
    let percent = if interval > 0.0 { figures.cost() * 100.0 / interval } else { 0.0 };
    if args.stats {
        return print(format!("interval: {}\noverhead: {percent:.1} percent\n", in_words(interval)));
    }
    warn(advice(figures, interval));
    if args.percent {
        return print(format!("{percent:.3}\n"));
    }
    if interval < 1.0 {
        warn("1 is printed, the least that SCR_CHECKPOINT_SECONDS can be; 0 would mean never");
    }
    print(format!("{}\n", (interval.round() as u64).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_core::log::{Spent, ALLOCATION_END};

    fn entry(name: &str, seconds: f64) -> LogEntry {
        LogEntry { name: name.to_owned(), seconds: Some(seconds), ..LogEntry::default() }
    }

    fn at(second: u64, entry: LogEntry) -> LogEntry {
        LogEntry { micros: second * 1_000_000, ..entry }
    }

    fn with_note(name: &str, note: &str) -> LogEntry {
        LogEntry { note: Some(note.to_owned()), ..entry(name, 0.0) }
    }

    /// A run from this second on that computes for 90 seconds, writes a checkpoint, and then does not come to another.
    fn run(second: u64) -> Vec<LogEntry> {
        let of = |dataset, entry| LogEntry { dataset: Some(dataset), ..entry };
        [
            (0, entry("START", 0.0)),
            (4, entry("FETCH", 4.0)),
            (94, entry("COMPUTE_END", 90.0)),
            (94, of(1, entry("CHECKPOINT_START", 0.0))),
            (97, of(1, entry("CHECKPOINT_END", 3.0))),
            (98, of(1, entry("FLUSH_SYNC", 1.0))),
            (98, of(2, entry("OUTPUT_START", 0.0))),
            (100, of(2, entry("FLUSH_SYNC", 2.0))),
        ]
        .map(|(later, entry)| at(second + later, entry))
        .to_vec()
    }

    fn failures(parts: &[Vec<LogEntry>]) -> u64 {
        totals(parts.concat()).failures
    }

    #[test]
    fn checkpoint_cost_is_separated_from_other_time() {
        let figures = totals([run(0), run(200)].concat());
        assert_eq!((figures.runs, figures.failures, figures.cost()), (2, 1, 4.0));
        let Spent { seconds, count, .. } = figures.output_flushes_sync;
        assert_eq!((figures.between_failures(), seconds, count), (200.0, 4.0, 2));
    }

    #[test]
    fn the_flush_of_a_checkpoint_at_the_end_of_a_run_belongs_to_the_checkpoint() {
        let flush = LogEntry { dataset: Some(1), ..entry("FLUSH_SYNC", 8.0) };
        let figures = totals([run(0), vec![at(101, entry("COMPUTE_START", 0.0)), at(109, flush)]].concat());
        assert_eq!((figures.flushes_sync.seconds, figures.output_flushes_sync.seconds), (9.0, 2.0));
        assert_eq!(
            figures.run_seconds, 109.0,
            "computing that no checkpoint follows is time of the run, too"
        );
    }

    #[test]
    fn a_run_fails_unless_it_ended_well_or_was_halted_or_met_the_end_of_its_allocation() {
        let (dead, next) = (run(0), run(500));
        assert_eq!(failures(std::slice::from_ref(&dead)), 0, "it may go on");
        assert_eq!(failures(&[dead.clone(), next.clone()]), 1);
        for note in ["SCR_FINALIZE_CALLED", "the halt file gives the reason JOB_HALTED"] {
            assert_eq!(
                failures(&[dead.clone(), vec![at(101, with_note("HALT", note))], next.clone()]),
                0,
                "{note}"
            );
        }
        for (note, failed) in [
            ("run=1, status=0", 0),
            ("run=1, status=1", 1),
            ("run=1, status=137, halted", 0),
            ("run=1, status=137, hung for 9 seconds", 1),
        ] {
            let end = vec![at(101, with_note("RUN_END", note))];
            assert_eq!(failures(&[dead.clone(), end.clone()]), failed, "{note}");
            assert_eq!(failures(&[dead.clone(), end, next.clone()]), failed, "{note}");
        }
        // The next sign was due after 90 seconds.
        for (ends, failed) in [(150, 0), (189, 0), (191, 1)] {
            let mut until = dead.clone();
            until[0].note = Some(format!("{ALLOCATION_END}{ends}"));
            assert_eq!(failures(&[until, next.clone()]), failed, "{ends}");
        }
        let started = vec![at(499, with_note("RUN_START", "run=1"))];
        let figures = totals([dead, started, next].concat());
        assert_eq!(
            (figures.failures, figures.run_seconds),
            (1, 200.0),
            "the time between two jobs is none of theirs"
        );
    }

    #[test]
    fn without_a_failure_the_advice_is_a_bound_and_has_units() {
        let seen = |advice: String, words: &str| assert!(advice.contains(words), "{advice}");
        let figures = totals(run(0));
        seen(
            advice(&figures, 30.0),
            "every 30 s or less often: it costs 4 s, and no failure was seen in 1 min 40 s, so",
        );
        assert!(table(&figures)
            .ends_with("failures: 0, in 1 min 40 s\nmean time to interrupt: at least 1 min 40 s\n"));
        let figures = totals([run(0), run(200)].concat());
        seen(
            advice(&figures, 90.0),
            "every 1 min 30 s: it costs 4 s, and there was a failure every 3 min 20 s (1 in 3 min 20 s)",
        );
    }
}
