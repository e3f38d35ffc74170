//! A plan as one page: no network, light and dark, the curve as a picture with a table beside it for those who hear the page.

use super::report::Report;
use super::text;
use crate::page::over_intervals;
use crate::page::{self, escape, percent, table, time};
use crate::table::Table;

/// The page.
pub(super) fn page(report: &Report) -> String {
    let title = format!("Checkpoints on {}", report.site.name);
    let source =
        report.site.source.as_ref().map(|source| format!("<p class=\"s\">Figures: {}</p>\n", escape(source)));
    let [best, when] = text::best(report);
    let paragraphs = [text::machine(&report.site), best, when, text::gain(report)];
    let paragraphs: String = paragraphs.iter().map(|line| format!("<p>{}</p>\n", escape(line))).collect();
    let losses = report.site.failures.iter();
    let losses = losses.map(|failure| [failure.loses.in_words(), time(1.0 / failure.rate)]);
    let no_room: String =
        text::excluded(report).iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    let no_room = if no_room.is_empty() { no_room } else { format!("<h3>No room</h3><ul>{no_room}</ul>\n") };
    let simulated = match report.simulated.is_empty() {
        true => String::new(),
        false => {
            let simulated = text::simulated(&report.simulated);
            format!("<h2 id=\"sim\">Simulated</h2>\n{}", table("sim", &simulated))
        }
    };
    let body = format!(
        "{paragraphs}\
         <h2 id=\"curve\">Efficiency over the interval</h2>\n{}\
         <h2 id=\"plans\">Plans</h2>\n{}{no_room}\
         <h2 id=\"changes\">If the figures are wrong</h2>\n{}{simulated}\
         <h2 id=\"settings\">Settings</h2>\n<pre tabindex=\"0\" aria-labelledby=\"settings\">{}</pre>\n\
         <h2 id=\"losses\">Failures</h2>\n{}{}",
        curve(report),
        table("plans", &text::plans(&report.candidates)),
        table("changes", &text::changes(report)),
        escape(&report.settings.join("\n")),
        table("losses", &Table::of(&["LOST", "EVERY"], losses)),
        source.unwrap_or_default(),
    );
    page::page(&title, &body)
}

/// The curve, with the plan marked, and as a table.
fn curve(report: &Report) -> String {
    let curve = &report.curve;
    let last = curve.len().saturating_sub(1).max(1) as f64;
    let middle = curve.len() / 2;
    let marked = curve.get(middle).map(|(interval, efficiency)| {
        (middle as f64 / last, *efficiency, format!("{}, {}", time(*interval), percent(*efficiency)))
    });
    let picture = ("p", "Efficiency over the interval", described(report));
    over_intervals(picture, ("curve", "EFFICIENCY"), curve, marked.into_iter().collect())
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
