//! A plan as one page: no network, light and dark, the curve as a picture with a table beside it for those who hear the page.

use super::report::Report;
use super::text;
use crate::page::{over_intervals, page, percent, time};
use crate::prelude::*;

/// The page.
pub(super) fn of(report: &Report) -> Result<String> {
    let [best, when] = text::best(report);
    let losses = report.site.failures.iter();
    let losses = losses.map(|failure| [failure.loses.in_words(), time(1.0 / failure.rate)]);
    let content = json!({
        "title": format!("Checkpoints on {}", report.site.name),
        "lines": [text::machine(&report.site), best, when, text::gain(report)],
        "curve": curve(report),
        "plans": text::plans(&report.candidates).rows,
        "no_room": text::excluded(report),
        "changes": text::changes(report).rows,
        "is_simulated": !report.simulated.is_empty(),
        "simulated": text::simulated(&report.simulated).rows,
        "settings": report.settings,
        "losses": Table::of(&["LOST", "EVERY"], losses).rows,
        "source": report.site.source,
    });
    page("plan.html", &content)
}

/// The curve, with the plan marked, and as a table.
fn curve(report: &Report) -> Value {
    let curve = &report.curve;
    let last = curve.len().saturating_sub(1).max(1) as f64;
    let middle = curve.len() / 2;
    let marked = curve.get(middle).map(|(interval, efficiency)| {
        (middle as f64 / last, *efficiency, format!("{}, {}", time(*interval), percent(*efficiency)))
    });
    let picture = ("p", "Efficiency over the interval", described(report));
    over_intervals(picture, "EFFICIENCY", curve, marked.into_iter().collect())
}

/// The curve in words.
fn described(report: &Report) -> String {
    let at = |place: usize| report.curve.get(place).copied().unwrap_or_default();
    let (first, best, last) = (at(0), at(report.curve.len() / 2), at(report.curve.len().saturating_sub(1)));
    let words = |(interval, efficiency): (f64, f64)| format!("{} at {}", percent(efficiency), time(interval));
    format!(
        "The efficiency rises from {}, is highest with {}, and falls to {}.",
        words(first),
        words(best),
        words(last)
    )
}
