//! Reports as one page: the life of a job, where its time went, bandwidth over time, and the interval against the expected loss.

use super::interval::Choice;
use super::{text, total, Job};
use crate::page::{self, escape, over_intervals, percent, table, time, timeline, times_along, Chart};
use crate::prelude::*;
use scr_core::log::{Class, Figures, Level};
use std::fmt::Write as _;

/// The page.
pub(super) fn page(all: &[Job]) -> String {
    match all {
        [job] => page::page(&format!("Job {}", job.figures.job_id), &one(job)),
        many => page::page(&format!("{} jobs", many.len()), &list(many)),
    }
}

fn one(job: &Job) -> String {
    let figures = &job.figures;
    let paragraph = |line: &String| format!("<p>{}</p>\n", escape(line));
    let mut body = paragraph(&text::who(job)) + &paragraph(&text::state(figures));
    let block = escape(&text::block(figures));
    let _ = write!(body, "<pre class=\"p\">{block}</pre>\n<h2 id=\"life\">Life of the job</h2>\n");
    body += &life(job);
    body += "<h2 id=\"times\">Where the time went</h2>\n";
    body += &table("times", &text::times(figures));
    body += "<h2 id=\"bytes\">Bytes and bandwidth</h2>\n";
    body += &table("bytes", &text::levels(figures));
    body += &bandwidths(job);
    if let Some(choice) = Choice::of(figures) {
        body += "<h2 id=\"interval\">Interval and expected loss</h2>\n";
        body += &paragraph(&choice.in_words());
        body += &loss(&choice);
    }
    let remarks = text::remarks(figures);
    let remarks: String = remarks.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    if !remarks.is_empty() {
        let _ = writeln!(body, "<h2 id=\"remarks\">Remarks</h2>\n<ul>{remarks}</ul>");
    }
    body
}

/// More stretches cannot be told apart in a picture; the longest of a part of it stands for all.
const MOST_STRETCHES: u64 = 1500;

fn life(job: &Job) -> String {
    let Job { figures, history, .. } = job;
    let elapsed = figures.elapsed().max(1);
    let place = |micros: u64| micros.saturating_sub(figures.began) as f64 / elapsed as f64;
    let colour = |class: Class| Class::ALL.iter().position(|one| *one == class).unwrap_or(0);
    let least = elapsed / MOST_STRETCHES;
    // A stretch that is too short for the picture is added to the one before it.
    let mut stretches: Vec<(f64, f64, usize)> = Vec::new();
    for part in &history.segments {
        match stretches.last_mut().filter(|_| part.until - part.from < least) {
            Some(last) => last.1 = place(part.until),
            None => stretches.push((place(part.from), place(part.until), colour(part.class))),
        }
    }
    let moments = history.failures.iter().map(|at| place(*at));
    let labels = times_along(figures.elapsed() as f64 / 1e6);
    let picture = timeline(("l", "Life of the job", &described(figures)), &stretches, moments, &labels);
    let mut keys = String::new();
    for class in Class::ALL.iter().filter(|class| figures.time(**class) > 0) {
        let _ = write!(
            keys,
            "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"k{}\" width=\"10\" height=\"10\"/></svg>{}</li>",
            colour(*class),
            class.name()
        );
    }
    if !history.failures.is_empty() {
        keys += "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><path class=\"f\" d=\"M5 0V10\"/></svg>a failure</li>";
    }
    format!("{picture}<ul class=\"l\">{keys}</ul>\n")
}

fn described(figures: &Figures) -> String {
    let spent = Class::ALL.iter().filter(|class| figures.time(**class) > 0);
    let time = |micros: u64| span(Duration::from_micros(micros));
    let parts: Vec<_> =
        spent.map(|class| format!("{} {}", class.name(), time(figures.time(*class)))).collect();
    let (Figures { runs, failures, .. }, all, parts) = (figures, time(figures.elapsed()), parts.join(", "));
    format!("In {all} there were {runs} runs and {failures} failures. In total: {parts}.")
}

/// A picture for each level.
fn bandwidths(job: &Job) -> String {
    let Job { figures, history, .. } = job;
    let elapsed = figures.elapsed().max(1) as f64;
    let picture = |(number, level): (usize, &Level)| {
        let of_level = history.transfers.iter().filter(|one| one.level == *level && one.seconds > 0.0);
        let points: Vec<(f64, f64)> = of_level
            .map(|one| {
                (one.at.saturating_sub(figures.began) as f64 / elapsed, one.bytes as f64 / one.seconds)
            })
            .collect();
        let best = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let least = points.iter().map(|point| point.1).fold(best, f64::min);
        let rate = |rate: f64| format!("{}/s", amount(rate as u64));
        let described = format!("{} transfers, each with {} to {}.", points.len(), rate(least), rate(best));
        if points.is_empty() {
            return String::new();
        }
        let title = format!("Bandwidth: {}", level.name());
        let chart = Chart {
            id: &format!("b{number}"),
            title: &title,
            described,
            // As many points as a picture can show.
            points: points.iter().copied().step_by(points.len().div_ceil(600)).collect(),
            is_line: false,
            labels: times_along(figures.elapsed() as f64 / 1e6),
            marked: Vec::new(),
            value: &rate,
        };
        format!("<h3>{}</h3>\n{}", escape(&title), chart.svg())
    };
    figures.moved.keys().enumerate().map(picture).collect()
}

fn loss(choice: &Choice) -> String {
    let (low, high) = (choice.curve[0].0, choice.curve[choice.curve.len() - 1].0);
    let place = |interval: f64| (interval / low).ln() / (high / low).ln();
    let mark = |name: &str, (interval, loss): (f64, f64)| {
        (place(interval), loss, format!("{name}: {}, {}", time(interval), percent(loss)))
    };
    let marked = vec![mark("best", choice.best), mark("present", choice.present)];
    let picture = ("i", "Expected loss over the interval", choice.in_words());
    over_intervals(picture, ("interval", "EXPECTED LOSS"), &choice.curve, marked)
}

fn list(all: &[Job]) -> String {
    let total = total(all);
    let block = escape(&text::block(&total));
    format!(
        "<pre class=\"p\">{block}</pre>\n<h2 id=\"times\">Where the time went</h2>\n{}\
         <h2 id=\"bytes\">Bytes and bandwidth</h2>\n{}<h2 id=\"jobs\">Jobs</h2>\n{}",
        table("times", &text::times(&total)),
        table("bytes", &text::levels(&total)),
        table("jobs", &text::jobs(all))
    )
}
