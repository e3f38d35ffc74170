//! Reports as one page: the life of a job, where its time went, bandwidth over time, and the interval against the expected loss.

use super::interval::Choice;
use super::{text, total, Job};
use crate::page::{over_intervals, page, percent, time, timeline, times_along, Chart};
use crate::prelude::*;
use scr_core::log::{Class, Figures, Level};

/// The page.
pub(super) fn of(all: &[Job]) -> Result<String> {
    match all {
        [job] => page("report.html", &one(job)),
        many => page("jobs.html", &list(many)),
    }
}

fn one(job: &Job) -> Value {
    let figures = &job.figures;
    let colours = Class::ALL.iter().enumerate().filter(|(_, class)| figures.time(**class) > 0);
    let keys = colours.map(|(colour, class)| json!({ "colour": colour, "name": class.name() }));
    json!({
        "title": format!("Job {}", figures.job_id),
        "who": text::who(job),
        "state": text::state(figures),
        "block": text::block(figures),
        "life": life(job),
        "keys": keys.collect::<Vec<_>>(),
        "has_failed": !job.history.failures.is_empty(),
        "times": text::times(figures).rows,
        "levels": text::levels(figures).rows,
        "bandwidths": bandwidths(job),
        "loss": Choice::of(figures).map(|choice| loss(&choice)),
        "remarks": text::remarks(figures),
    })
}

/// More stretches cannot be told apart in a picture; the longest of a part of it stands for all.
const MOST_STRETCHES: u64 = 1500;

fn life(job: &Job) -> Value {
    let Job { figures, history, .. } = job;
    let elapsed = figures.elapsed().max(1);
    let place = |micros: u64| micros.saturating_sub(figures.began) as f64 / elapsed as f64;
    let least = elapsed / MOST_STRETCHES;
    // A stretch that is too short for the picture is added to the one before it.
    let mut stretches: Vec<(f64, f64, usize)> = Vec::new();
    for part in &history.segments {
        match stretches.last_mut().filter(|_| part.until - part.from < least) {
            Some(last) => last.1 = place(part.until),
            None => stretches.push((place(part.from), place(part.until), part.class as usize)),
        }
    }
    let moments = history.failures.iter().map(|at| place(*at));
    let labels = times_along(figures.elapsed() as f64 / 1e6);
    timeline(("l", "Life of the job", described(figures)), &stretches, moments, labels)
}

fn described(figures: &Figures) -> String {
    let spent = Class::ALL.iter().filter(|class| figures.time(**class) > 0);
    let time = |micros: u64| span(Duration::from_micros(micros));
    let parts = joined(spent.map(|class| format!("{} {}", class.name(), time(figures.time(*class)))), ", ");
    let (Figures { runs, failures, .. }, all) = (figures, time(figures.elapsed()));
    format!("In {all} there were {runs} runs and {failures} failures. In total: {parts}.")
}

/// A picture for each level.
fn bandwidths(job: &Job) -> Vec<Value> {
    let Job { figures, history, .. } = job;
    let elapsed = figures.elapsed().max(1) as f64;
    let picture = |(number, level): (usize, &Level)| {
        let of_level = history.transfers.iter().filter(|one| one.level == *level && one.seconds > 0.0);
        let place = |at: u64| at.saturating_sub(figures.began) as f64 / elapsed;
        let points: Vec<_> = of_level.map(|one| (place(one.at), one.bytes as f64 / one.seconds)).collect();
        let best = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let least = points.iter().map(|point| point.1).fold(best, f64::min);
        let rate = |rate: f64| format!("{}/s", amount(rate as u64));
        let described = format!("{} transfers, each with {} to {}.", points.len(), rate(least), rate(best));
        let chart = Chart {
            id: format!("b{number}"),
            title: format!("Bandwidth: {}", level.name()),
            described,
            // As many points as a picture can show.
            points: points.iter().copied().step_by(points.len().div_ceil(600).max(1)).collect(),
            is_line: false,
            labels: times_along(figures.elapsed() as f64 / 1e6),
            marked: Vec::new(),
            value: &rate,
        };
        (!points.is_empty()).then(|| chart.picture())
    };
    figures.moved.keys().enumerate().filter_map(picture).collect()
}

fn loss(choice: &Choice) -> Value {
    let (low, high) = (choice.curve[0].0, choice.curve[choice.curve.len() - 1].0);
    let place = |interval: f64| (interval / low).ln() / (high / low).ln();
    let mark = |name: &str, (interval, loss): (f64, f64)| {
        (place(interval), loss, format!("{name}: {}, {}", time(interval), percent(loss)))
    };
    let marked = vec![mark("best", choice.best), mark("present", choice.present)];
    let picture = ("i", "Expected loss over the interval", choice.in_words());
    over_intervals(picture, "EXPECTED LOSS", &choice.curve, marked)
}

fn list(all: &[Job]) -> Value {
    let total = total(all);
    json!({
        "title": format!("{} jobs", all.len()),
        "block": text::block(&total),
        "times": text::times(&total).rows,
        "levels": text::levels(&total).rows,
        "jobs": text::jobs(all).rows,
    })
}
