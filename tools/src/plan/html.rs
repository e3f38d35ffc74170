//! A plan as one page: no network, light and dark, the curve as a picture with a table beside it for those who hear the page.

use super::report::Report;
use super::text;
use super::{percent, time};
use std::fmt::Write as _;

/// The page.
pub(super) fn page(report: &Report) -> String {
    let title = escape(&format!("Checkpoints on {}", report.site.name));
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
    let simulated = text::simulated_rows(&report.simulated);
    let simulated = match &simulated[..] {
        [] => String::new(),
        rows => format!("<h2 id=\"sim\">Simulated</h2>\n{}", table("sim", &text::SIMULATED, rows)),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n{paragraphs}\
         <h2 id=\"curve\">Efficiency over the interval</h2>\n{}{}\
         <h2 id=\"plans\">Plans</h2>\n{}{no_room}\
         <h2 id=\"changes\">If the figures are wrong</h2>\n{}{simulated}\
         <h2 id=\"settings\">Settings</h2>\n<pre tabindex=\"0\" aria-labelledby=\"settings\">{}</pre>\n\
         <h2 id=\"losses\">Failures</h2>\n{}{}</main>\n</body>\n</html>\n",
        picture(report),
        points(report),
        table("plans", &text::PLANS, &text::plan_rows(report)),
        table("changes", &text::CHANGES, &text::change_rows(report)),
        escape(&report.settings.join("\n")),
        table("losses", &["LOST", "EVERY"], &losses.collect::<Vec<_>>()),
        source.unwrap_or_default(),
    )
}

const STYLE: &str = "\
:root{--back:#fff;--text:#20262e;--soft:#4a545f;--line:#c3cad3;--mark:#1f5fa8;--best:#a8480f;--card:#f4f6f8}\
@media (prefers-color-scheme:dark){:root{--back:#14181d;--text:#e7ebf0;--soft:#aab4c0;--line:#3b4550;--mark:#7db4f0;\
--best:#f0a26b;--card:#1d232a}}\
body{background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif;margin:0}\
main{max-width:60rem;margin:0 auto;padding:1rem}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem}.s{color:var(--soft);font-size:.9rem}\
.w{overflow-x:auto}table{border-collapse:collapse}th,td{text-align:left;padding:.25rem .8rem .25rem 0;\
border-bottom:1px solid var(--line)}th{color:var(--soft);font-size:.8rem}\
tbody tr:first-child .b{font-weight:bold}\
pre{background:var(--card);padding:.8rem;overflow-x:auto;border-radius:.4rem}\
svg{width:100%;height:auto}svg text{fill:var(--soft);font:13px system-ui,sans-serif}\
.g{stroke:var(--line);stroke-width:1}.c{fill:none;stroke:var(--mark);stroke-width:2.5}\
.o{fill:var(--best);stroke:var(--back);stroke-width:2}svg .t{fill:var(--best);font-weight:bold}\
@media print{:root{--back:#fff;--text:#000;--soft:#333;--line:#999;--mark:#000;--best:#000;--card:#fff}}";

/// The size of the picture, and of the part with the curve.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;

/// The curve, with the plan marked.
fn picture(report: &Report) -> String {
    let curve = &report.curve;
    let highest = curve.iter().map(|point| point.1).fold(0.0, f64::max);
    let lowest = curve.iter().map(|point| point.1).fold(highest, f64::min);
    let span = (highest - lowest).max(1e-9);
    let last = curve.len().saturating_sub(1).max(1) as f64;
    let x = |at: usize| LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / last;
    let y = |efficiency: f64| TOP + (HEIGHT - TOP - BOTTOM) * (highest - efficiency) / span;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"pt pd\"><title id=\"pt\">Efficiency over the \
         interval</title><desc id=\"pd\">{}</desc>\n",
        escape(&described(report))
    );
    for part in 0..=4 {
        let efficiency = highest - span * f64::from(part) / 4.0;
        let (y, label) = (y(efficiency), percent(efficiency));
        let _ = writeln!(svg, "<path class=\"g\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    for at in (0..curve.len()).step_by(8) {
        let label = time(curve[at].0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x(at),
            HEIGHT - 16.0
        );
    }
    let line: Vec<String> =
        curve.iter().enumerate().map(|(at, point)| format!("{:.1} {:.1}", x(at), y(point.1))).collect();
    let _ = writeln!(svg, "<path class=\"c\" d=\"M{}\"/>", line.join("L"));
    let middle = curve.len() / 2;
    if let Some((interval, efficiency)) = curve.get(middle) {
        let (x, y) = (x(middle), y(*efficiency));
        let _ = writeln!(svg, "<circle class=\"o\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>");
        let label = format!("{}, {}", time(*interval), percent(*efficiency));
        let _ = writeln!(
            svg,
            "<text class=\"t\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            y + 24.0
        );
    }
    svg + "</svg>\n"
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

/// The points of the curve as a table.
fn points(report: &Report) -> String {
    let rows =
        report.curve.iter().step_by(4).map(|(interval, efficiency)| [time(*interval), percent(*efficiency)]);
    let rows: Vec<_> = rows.collect();
    format!(
        "<details><summary>The curve as a table</summary>{}</details>\n",
        table("curve", &["INTERVAL", "EFFICIENCY"], &rows)
    )
}

fn table<const N: usize>(label: &str, head: &[&str; N], rows: &[[String; N]]) -> String {
    let head: String = head
        .iter()
        .map(|name| format!("<th scope=\"col\">{}</th>", escape(&in_sentence_case(name))))
        .collect();
    let mut body = String::new();
    for row in rows {
        let (first, rest) = row.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let cells: String = rest.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        let _ = writeln!(body, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(first));
    }
    format!(
        "<div class=\"w\" tabindex=\"0\" role=\"region\" aria-labelledby=\"{label}\"><table><thead><tr>{head}</tr></thead>\n\
         <tbody>{body}</tbody></table></div>\n"
    )
}

/// `FLUSH` as `Flush`: some readers spell capitals.
fn in_sentence_case(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + &letters.as_str().to_lowercase()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
