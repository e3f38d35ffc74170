//! Reports for the terminal: of one job in full, of many as a table.

use super::interval::Choice;
use super::{total, Job, User};
use crate::log::size;
use crate::page::percent;
use crate::prelude::*;
use scr_core::log::{Class, Figures, State};

/// The report.
pub(super) fn report(all: &[Job]) -> String {
    match all {
        [] => String::new(),
        [job] => one(job),
        many => with_sum(&jobs(many), many.len(), &total(many)),
    }
}

/// A few lines of each job.
pub(super) fn brief(all: &[Job]) -> String {
    all.iter().map(|job| head(job) + &block(&job.figures)).collect()
}

pub(super) fn block(figures: &Figures) -> String {
    figures.block().iter().map(|line| format!("{line}\n")).collect()
}

/// The job, its user, its cluster and its prefix directory.
pub(super) fn who(job: &Job) -> String {
    let Figures { job_id, job_name, user, cluster, .. } = &job.figures;
    let named = [(" ", job_name), (" of ", user), (" on ", cluster)].into_iter();
    let named = named.filter(|(_, text)| !text.is_empty()).map(|(before, text)| format!("{before}{text}"));
    let named: String = named.collect();
    on_one_line(&format!("job {job_id}{named}, prefix directory {}", job.dir.display()))
}

/// How it stands, and how large it is.
pub(super) fn state(figures: &Figures) -> String {
    let began = crate::time::in_words(i64::try_from(figures.began / 1_000_000).unwrap_or(i64::MAX));
    let size = match figures.processes {
        0 => String::new(),
        processes => format!(", {}", size(processes, figures.nodes)),
    };
    format!("{}, began {began}{size}", figures.state.name())
}

fn head(job: &Job) -> String {
    format!("{}\nstate: {}\n", who(job), state(&job.figures))
}

fn one(job: &Job) -> String {
    let figures = &job.figures;
    let interval = Choice::of(figures).map(|choice| choice.in_words());
    let notes: String = remarks(figures).into_iter().chain(interval).map(|line| line + "\n").collect();
    let parts = [head(job) + &block(figures), times(figures).text(), levels(figures).text(), notes];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The table of classes, whose rows add up to the elapsed time.
pub(super) fn times(figures: &Figures) -> Table {
    let elapsed = figures.elapsed().max(1) as f64;
    let row = |name: &str, micros: u64| {
        [
            name.to_owned(),
            span(Duration::from_micros(micros)),
            format!("{:.1} %", 100.0 * micros as f64 / elapsed),
        ]
    };
    let classes = Class::ALL.iter().filter(|class| figures.time(**class) > 0);
    let rows = classes.map(|class| row(class.name(), figures.time(*class)));
    Table::of(&["TIME SPENT ON", "TIME", "SHARE"], rows.chain([row("all", figures.elapsed())]))
}

/// The table of levels.
pub(super) fn levels(figures: &Figures) -> Table {
    let row = |(level, moved): (&scr_core::log::Level, &scr_core::log::Moved)| {
        [
            level.name(),
            amount(moved.bytes),
            moved.spent.count.to_string(),
            span(Duration::try_from_secs_f64(moved.spent.seconds).unwrap_or_default()),
            format!("{}/s", amount(moved.bandwidth() as u64)),
        ]
    };
    Table::of(&["BYTES", "SIZE", "TIMES", "TIME", "BANDWIDTH"], figures.moved.iter().map(row))
}

/// Other remarks on the job.
pub(super) fn remarks(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((seconds, hidden)) = figures.flush() {
        let each = span(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        lines.push(format!(
            "A flush took {each} on average, and the application computed during {} of it.",
            percent(hidden)
        ));
    }
    if figures.unsaved > 0 && figures.state != State::Finished {
        let time = span(Duration::from_micros(figures.unsaved));
        lines.push(format!("Since the newest checkpoint the job has computed for {time}."));
    }
    let failed = [
        (figures.failed_checkpoints, ["dataset", "datasets"]),
        (figures.failed_flushes, ["flush", "flushes"]),
        (figures.failed_restarts, ["restart", "restarts"]),
    ];
    for (number, what) in failed.into_iter().filter(|(number, _)| *number > 0) {
        let what = what[usize::from(number != 1)];
        lines.push(format!("{number} {what} failed; `scr log' says why."));
    }
    if figures.rebuilt_processes > 0 {
        let damaged = match figures.damaged_bytes {
            0 => String::new(),
            bytes => format!(", of which {} were damaged", amount(bytes)),
        };
        lines.push(format!("Rebuilt parts: {}{damaged}.", figures.rebuilt_processes));
    }
    lines
}

/// The table of jobs, with their prefix directories if there are several.
pub(super) fn jobs(all: &[Job]) -> Table {
    let dirs: BTreeSet<_> = all.iter().map(|job| &*job.dir).collect();
    let shared = dirs.first().map_or(0, |first| dirs.iter().map(|dir| shared(first, dir)).min().unwrap_or(0));
    let has_dirs = dirs.len() > 1;
    let row = |Job { dir, figures, .. }: &Job| {
        let names = [&figures.job_id, &figures.user, figures.state.name()].map(str::to_owned);
        let rest: PathBuf = dir.components().skip(shared).collect();
        let short = if shared > 1 { format!(".../{}", rest.display()) } else { dir.display().to_string() };
        let dir = has_dirs.then_some(short);
        names.into_iter().chain(costs(figures)).chain(dir).collect::<Vec<_>>()
    };
    let head: Vec<_> = ["JOB", "USER", "STATE"].into_iter().chain(COSTS).chain(["PREFIX"]).collect();
    Table::of(&head[..head.len() - usize::from(!has_dirs)], all.iter().map(row))
}

/// How many folders above the last one two directories share.
fn shared(one: &Path, other: &Path) -> usize {
    let above = |dir: &Path| dir.components().count().saturating_sub(1);
    let equal = one.components().zip(other.components()).take_while(|(one, other)| one == other).count();
    equal.min(above(one)).min(above(other))
}

/// The cells of what one or several jobs have cost.
fn costs(figures: &Figures) -> [String; 7] {
    let time = |class| span(Duration::from_micros(figures.time(class)));
    [
        span(Duration::from_micros(figures.elapsed())),
        figures.goodput().map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        format!("{} in {}", figures.checkpoints.count, time(Class::Checkpoint)),
        time(Class::Flush),
        time(Class::Restart),
        time(Class::Lost),
        figures.failures.to_string(),
    ]
}

const COSTS: [&str; 7] = ["ELAPSED", "GOODPUT", "CHECKPOINTS", "FLUSHES", "RESTARTS", "TWICE", "FAILURES"];

/// The table of users, and the sum.
pub(super) fn users(users: &[User]) -> String {
    let row = |(user, jobs, figures): &User| {
        [user.clone(), jobs.to_string()].into_iter().chain(costs(figures)).collect::<Vec<_>>()
    };
    let head: Vec<_> = ["USER", "JOBS"].into_iter().chain(COSTS).collect();
    let table = Table::of(&head, users.iter().map(row));
    with_sum(&table, users.iter().map(|user| user.1).sum(), &Figures::sum(users.iter().map(|user| &user.2)))
}

fn with_sum(table: &Table, jobs: usize, total: &Figures) -> String {
    match jobs {
        0 => String::new(),
        _ => format!("{}\n{} together\n{}", table.text(), count(jobs as u64, "job"), block(total)),
    }
}
