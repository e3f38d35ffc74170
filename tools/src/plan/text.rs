//! A plan for the terminal: the tables, a curve in letters, and the settings.

use super::report::{named, Candidate, Change, Report, Simulated, YEAR};
use super::site::{Failure, Site};
use crate::page::{grouped, percent, time};
use crate::prelude::*;

/// Everything.
pub(super) fn report(report: &Report) -> String {
    let parts = [
        head(report),
        best_plans(report),
        curve(report),
        changes(report).text(),
        simulated(&report.simulated).text(),
        settings(report),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The machine in one line.
pub(super) fn machine(site: &Site) -> String {
    let size =
        site.checkpoint.map(|size| format!(" with {} each to save", amount(size as u64))).unwrap_or_default();
    let nodes = if site.nodes == 1 { "node" } else { "nodes" };
    let count = grouped(site.nodes as f64);
    let rate: f64 = site.failures.iter().map(|failure| failure.rate).sum();
    format!("{}: {count} {nodes}{size}, a failure every {}", site.name, time(1.0 / rate))
}

/// The best plan, and when it writes what; each in one line.
pub(super) fn best(report: &Report) -> [String; 2] {
    let best = report.best();
    if best.efficiency <= 0.0 {
        let why = "Failures come before a checkpoint is written and the job has computed.".to_owned();
        return ["No plan brings the job forward".to_owned(), why];
    }
    let flushed = match best.flush_every() {
        _ if best.kinds.is_empty() => "to the prefix directory".to_owned(),
        1 => "each flushed".to_owned(),
        every => format!("one of {} flushed", grouped(every as f64)),
    };
    let interval = time(best.plan.interval);
    [
        format!("Best plan: {}", named(&best.kinds)),
        format!("A checkpoint every {interval} of computing, {flushed}"),
    ]
}

/// The gain of the best plan, in one line.
pub(super) fn gain(report: &Report) -> String {
    let share = percent(report.best().efficiency);
    let uncached = report.uncached().filter(|_| !report.best().kinds.is_empty());
    let without = uncached.map(|uncached| format!(" ({} without the cache)", percent(uncached.efficiency)));
    format!("{share} of each node hour brings the job forward{}", without.unwrap_or_default())
}

fn head(report: &Report) -> String {
    let loss = |one: &Failure| format!("  {} every {}\n", one.loses.in_words(), time(1.0 / one.rate));
    let losses: String = report.site.failures.iter().map(loss).collect();
    format!("{}:\n{losses}\n{}\n{}\n", machine(&report.site), best(report).join("\n"), gain(report))
}

/// The table of these plans.
pub(super) fn plans<'c>(plans: impl IntoIterator<Item = &'c Candidate>) -> Table {
    let row = |candidate: &Candidate| {
        let fatal = candidate.machine.levels().last().map_or(0.0, |level| level.rate);
        let (count, flush) = match candidate.kinds.is_empty() {
            true => ("-".to_owned(), "-".to_owned()),
            false => (candidate.count.to_string(), grouped(candidate.flush_every() as f64)),
        };
        [
            named(&candidate.kinds),
            percent(candidate.efficiency),
            time(candidate.plan.interval),
            count,
            flush,
            format!("{:.1} % of failures", 100.0 * (1.0 - fatal / candidate.machine.rate())),
        ]
    };
    let head = ["PLAN", "EFFICIENCY", "INTERVAL", "COUNT", "FLUSH", "SURVIVES IN CACHE"];
    Table::of(&head, plans.into_iter().map(row))
}

/// The schemes that have no room.
pub(super) fn excluded(report: &Report) -> Vec<String> {
    report.excluded.iter().map(|(kinds, why)| format!("{}: {why}", named(kinds))).collect()
}

/// The best of each kind matter; so many rows are enough.
const MOST_ROWS: usize = 8;

fn best_plans(report: &Report) -> String {
    let all = &report.candidates;
    // The plan without a cache is what all others are compared with.
    let is_shown = |(place, plan): &(usize, &Candidate)| *place < MOST_ROWS || plan.kinds.is_empty();
    let shown: Vec<_> = all.iter().enumerate().filter(is_shown).map(|(_, plan)| plan).collect();
    let hidden = all.len() - shown.len();
    let more =
        if hidden > 0 { format!("({hidden} more plans with --json or --html)\n") } else { String::new() };
    let no_room: String = excluded(report).into_iter().map(|line| line + "\n").collect();
    plans(shown).text() + &more + &no_room
}

const COLUMNS: usize = 49;
const ROWS: usize = 10;

/// The efficiency over the interval, in letters.
fn curve(report: &Report) -> String {
    let highest = report.curve.iter().map(|point| point.1).fold(0.0, f64::max);
    if highest <= 0.0 {
        return String::new();
    }
    let lowest = report.curve.iter().map(|point| point.1).fold(highest, f64::min);
    let span = (highest - lowest).max(1e-9);
    let row = |efficiency: f64| ((highest - efficiency) / span * (ROWS - 1) as f64).round() as usize;
    let mut lines = vec![vec![' '; COLUMNS]; ROWS];
    let middle = report.curve.len() / 2;
    for (column, (_, efficiency)) in report.curve.iter().enumerate().take(COLUMNS) {
        lines[row(*efficiency).min(ROWS - 1)][column] = if column == middle { 'O' } else { '*' };
    }
    let label = |at: usize| percent(highest - span * at as f64 / (ROWS - 1) as f64);
    let draw = |(at, line): (usize, &Vec<char>)| {
        let label = if at % 3 == 0 { label(at) } else { String::new() };
        format!("{label:>8} |{}", line.iter().collect::<String>()).trim_end().to_owned() + "\n"
    };
    let body: String = lines.iter().enumerate().map(draw).collect();
    let interval = |at: usize| time(report.curve.get(at).map_or(0.0, |point| point.0));
    let (first, best, last) = (interval(0), interval(middle), interval(report.curve.len() - 1));
    let gap = COLUMNS / 2 - first.len().min(COLUMNS / 2);
    let under = format!("{:10}{first}{best:^width$}", "", width = 2 * gap);
    let under = format!("{under:<pad$}{last:>8}\n", pad = 10 + COLUMNS - 8);
    format!("Efficiency over the interval (O: the plan)\n{body}{:9}+{}\n{under}", "", "-".repeat(COLUMNS))
}

/// The table of changes.
pub(super) fn changes(report: &Report) -> Table {
    let row = |&(what, kept, best): &Change| [what.to_owned(), percent(kept), percent(best)];
    Table::of(&["IF", "EFFICIENCY", "BEST PLAN THEN"], report.sensitivity.iter().map(row))
}

/// The table of simulations.
pub(super) fn simulated(simulated: &[Simulated]) -> Table {
    let row = |(gaps, outcome): &Simulated| {
        [
            gaps.clone(),
            format!("{:.3} ± {:.3} %", outcome.efficiency * 100.0, outcome.error * 100.0),
            format!("{:.1}", outcome.seconds / YEAR),
            joined(outcome.failures.iter().map(|&count| grouped(count as f64)), " / "),
        ]
    };
    let head = ["SIMULATED GAPS", "EFFICIENCY", "YEARS", "FAILURES OF EACH LEVEL"];
    Table::of(&head, simulated.iter().map(row))
}

fn settings(report: &Report) -> String {
    let lines: String = report.settings.iter().map(|line| format!("{line}\n")).collect();
    format!("# For scr.conf\n{lines}")
}
