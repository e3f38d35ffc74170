//! Pages for people that need no network: light and dark, readable in print and by screen readers. Each picture has a text beside
//! it.
//!
//! The pictures: curves with marked points, and stretches of time. Each is an SVG with a title and a description in words.

use crate::table::Table;
use std::fmt::Write as _;

/// A page with this title. `body` is HTML.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// `k0` to `k6` are the colours of classes, which differ in lightness as well, so that they do in print.
const STYLE: &str = include_str!("style.css");

/// A table, which has a head, with this label, which is the id of its heading.
pub(crate) fn table(label: &str, table: &Table) -> String {
    let Some((head, rows)) = table.rows().split_first() else { return String::new() };
    let cell = |name: &String| format!("<th scope=\"col\">{}</th>", escape(&in_sentence_case(name)));
    let head: String = head.iter().map(cell).collect();
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

/// A text as HTML.
pub(crate) fn escape(text: &str) -> String {
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
    // A share is not torn at the end of a line.
    escaped.replace(" %", "\u{a0}%")
}

/// Numbers and times, as pages and tables show them.
pub(crate) fn time(seconds: f64) -> String {
    const UNITS: [(f64, &str); 5] =
        [(365.25 * 86400.0, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= 2.0 * unit).unwrap_or((1.0, "s"));
    let value = seconds / unit;
    match value {
        _ if value >= 10.0 => format!("{} {name}", grouped(value.round())),
        _ => format!("{value:.1} {name}"),
    }
}

/// Round times along an axis of this many seconds, each with its place from 0 to 1. All have one unit.
pub(crate) fn times_along(seconds: f64) -> Vec<(f64, String)> {
    const UNITS: [(f64, &str, &[f64]); 4] = [
        (1.0, "s", &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0]),
        (60.0, "min", &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0]),
        (3600.0, "h", &[1.0, 2.0, 4.0, 6.0, 12.0]),
        (86400.0, "days", &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]),
    ];
    let steps =
        UNITS.iter().flat_map(|(unit, name, steps)| steps.iter().map(move |step| (*unit, *name, *step)));
    let found = steps.into_iter().find(|(unit, _, step)| unit * step * MOST_TIMES >= seconds);
    let (unit, name, step) = found.unwrap_or((86400.0, "days", seconds / 86400.0));
    let times = (0..=MOST_TIMES as u32).map(|number| f64::from(number) * step);
    let times = times.take_while(|time| unit * time <= seconds);
    let in_words = |time: f64| format!("{} {name}", (time * 10.0).round() / 10.0);
    times.map(|time| (unit * time / seconds.max(1e-9), in_words(time))).collect()
}

/// The times that have room below a picture, without the first one.
const MOST_TIMES: f64 = 7.0;

/// A whole number for people, such as 16,384.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let places = digits.len();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (places - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share for people.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// The size of a picture, and of its margins.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// The bottom of the part with the curve.
const GROUND: f64 = HEIGHT - BOTTOM;

/// A curve. Its points are at even distances, or at their own places.
pub(crate) struct Chart<'a> {
    /// Its ids begin so; no other picture of the page has these letters.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    /// The content of the picture, in words.
    pub(crate) described: String,
    /// Place from 0 to 1, and value.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether the points are joined.
    pub(crate) is_line: bool,
    /// Place and text below the picture.
    pub(crate) labels: Vec<(f64, String)>,
    /// Points with a text.
    pub(crate) marked: Vec<(f64, f64, String)>,
    /// The value as people read it.
    pub(crate) value: &'a dyn Fn(f64) -> String,
}

impl Chart<'_> {
    /// The picture.
    pub(crate) fn svg(&self) -> String {
        let values = || self.points.iter().map(|point| point.1).filter(|value| value.is_finite());
        let highest = values().fold(f64::MIN_POSITIVE, f64::max);
        let lowest = if self.is_line { values().fold(highest, f64::min) } else { 0.0 };
        let span = (highest - lowest).max(1e-9);
        let x = |place: f64| LEFT + (WIDTH - LEFT - RIGHT) * place.clamp(0.0, 1.0);
        let y = |value: f64| TOP + (GROUND - TOP) * (highest - value) / span;
        let mut svg = opened(self.id, self.title, &self.described, HEIGHT);
        for part in 0..=4 {
            let value = highest - span * f64::from(part) / 4.0;
            let (y, label) = (y(value), escape(&(self.value)(value)));
            let _ = writeln!(svg, "<path class=\"g\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT);
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>");
        }
        below(&mut svg, &self.labels, HEIGHT - 16.0, x);
        let places: Vec<String> =
            self.points.iter().map(|point| format!("{:.1} {:.1}", x(point.0), y(point.1))).collect();
        if self.is_line && !places.is_empty() {
            let _ = writeln!(svg, "<path class=\"c\" d=\"M{}\"/>", places.join("L"));
        } else {
            for (place, value) in &self.points {
                let _ =
                    writeln!(svg, "<path class=\"c\" d=\"M{:.1} {GROUND}V{:.1}\"/>", x(*place), y(*value));
            }
        }
        let mut texts = Vec::new();
        for (place, value, label) in &self.marked {
            let (x, y) = (x(*place), y(*value));
            let _ = writeln!(svg, "<circle class=\"o\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>");
            let (x, y) = beside(&mut texts, x, y, label);
            let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"");
            let _ = writeln!(svg, "<text class=\"t\" {place}>{}</text>", escape(label));
        }
        svg + "</svg>\n"
    }
}

/// A curve over intervals in even steps, with marked points, and the same as a table. `heading` is the id of its heading, `values`
/// what its values are.
pub(crate) fn over_intervals(
    (id, title, described): (&str, &str, String),
    (heading, values): (&str, &str),
    curve: &[(f64, f64)],
    marked: Vec<(f64, f64, String)>,
) -> String {
    let place = |at: usize| at as f64 / curve.len().saturating_sub(1).max(1) as f64;
    let chart = Chart {
        id,
        title,
        described,
        points: curve.iter().enumerate().map(|(at, point)| (place(at), point.1)).collect(),
        is_line: true,
        labels: (0..curve.len()).step_by(8).map(|at| (place(at), time(curve[at].0))).collect(),
        marked,
        value: &percent,
    };
    let rows = curve.iter().step_by(4).map(|(interval, value)| [time(*interval), percent(*value)]);
    let rows = table(heading, &Table::of(&["INTERVAL", values], rows));
    format!("{}<details><summary>The curve as a table</summary>{rows}</details>\n", chart.svg())
}

/// A place for the text of a point: below it if there is room above the ground, or else above it; within the picture, and on none
/// of the other texts, which are the middle, the height and half the width of each.
fn beside(texts: &mut Vec<(f64, f64, f64)>, x: f64, y: f64, label: &str) -> (f64, f64) {
    let half = HALF_LETTER * label.chars().count() as f64;
    let x = x.max(LEFT + half).min(WIDTH - half);
    let below = Some(y + 24.0).filter(|y| *y <= GROUND);
    let above = (0..=texts.len()).map(|line| y - 14.0 - LINE * line as f64);
    let is_free = |place: &f64| {
        texts.iter().all(|text| (text.0 - x).abs() >= text.2 + half || (text.1 - place).abs() >= LINE)
    };
    let y = below.into_iter().chain(above).find(is_free).unwrap_or(y);
    texts.push((x, y, half));
    (x, y)
}

/// Half of what a letter of such a text takes, and the distance of two lines.
const HALF_LETTER: f64 = 4.2;
const LINE: f64 = 18.0;

/// A picture of stretches of time, one after the other: from, until, both from 0 to 1, and the number of the colour. `moments` are
/// marked above; `labels` stand below.
pub(crate) fn timeline(
    (id, title, described): (&str, &str, &str),
    stretches: &[(f64, f64, usize)],
    moments: impl Iterator<Item = f64>,
    labels: &[(f64, String)],
) -> String {
    let x = |place: f64| 20.0 + (WIDTH - 40.0) * place.clamp(0.0, 1.0);
    let height = TOP + BAR + BOTTOM;
    let mut svg = opened(id, title, described, height);
    for (from, until, colour) in stretches {
        let (from, until) = (x(*from), x(*until));
        let place = format!("x=\"{from:.2}\" y=\"{TOP}\" width=\"{:.2}\"", (until - from).max(0.3));
        let _ = writeln!(svg, "<rect class=\"k{colour}\" {place} height=\"{BAR}\"/>");
    }
    for x in moments.map(x) {
        let _ = writeln!(svg, "<path class=\"f\" d=\"M{x:.1} {}V{}\"/>", TOP - 14.0, TOP + BAR + 6.0);
    }
    below(&mut svg, labels, height - 12.0, x);
    svg + "</svg>\n"
}

const BAR: f64 = 46.0;

fn opened(id: &str, title: &str, described: &str, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}t {id}d\"><title id=\"{id}t\">{}</title>\
         <desc id=\"{id}d\">{}</desc>\n",
        escape(title),
        escape(described)
    )
}

fn below(svg: &mut String, labels: &[(f64, String)], y: f64, x: impl Fn(f64) -> f64) {
    for (place, label) in labels {
        let anchor = match place {
            ..0.02 => "start",
            0.98.. => "end",
            _ => "middle",
        };
        let (x, label) = (x(*place), escape(label));
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{label}</text>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_along_an_axis_are_round_and_have_one_unit() {
        let texts = |seconds: f64| times_along(seconds).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(141.0), ["0 s", "30 s", "60 s", "90 s", "120 s"]);
        assert_eq!(texts(0.35), ["0 s", "0.1 s", "0.2 s", "0.3 s"]);
        assert_eq!(texts(3600.0), ["0 min", "10 min", "20 min", "30 min", "40 min", "50 min", "60 min"]);
        assert_eq!(texts(1e6), ["0 days", "2 days", "4 days", "6 days", "8 days", "10 days"]);
        assert_eq!(times_along(100.0)[1].0, 0.2);
        for seconds in [0.0, 1e-6, 1.0, 61.0, 1e5, 1e12, f64::MAX] {
            assert!((1..=8).contains(&times_along(seconds).len()), "{seconds}");
        }
    }

    #[test]
    fn times_and_numbers_are_readable() {
        assert_eq!(
            [0.25, 90.0, 7200.0, 86400.0, 1e7, 1e9].map(time),
            ["0.2 s", "90 s", "2.0 h", "24 h", "116 days", "32 years"]
        );
        assert_eq!(
            [0.0, 999.0, 1000.0, 16384.0, 1e6].map(grouped),
            ["0", "999", "1,000", "16,384", "1,000,000"]
        );
    }
}

#[cfg(test)]
mod chart_tests {
    use super::*;

    #[test]
    fn texts_of_points_near_each_other_are_beside_and_within_the_picture() {
        let points = |places: &[(f64, f64)]| -> Vec<(f64, f64)> {
            let mut texts = Vec::new();
            let label = "best: 7.5 s, 29.20 %";
            places.iter().map(|(x, y)| beside(&mut texts, *x, *y, label)).collect()
        };
        let near = points(&[(400.0, GROUND), (420.0, GROUND - 2.0), (380.0, GROUND - 30.0)]);
        for (at, one) in near.iter().enumerate() {
            assert!(one.1 <= GROUND);
            assert!(near[..at].iter().all(|other| (one.1 - other.1).abs() >= LINE), "{near:?}");
        }
        let far = points(&[(LEFT, 100.0), (WIDTH - RIGHT, 100.0)]);
        assert_eq!(far[0].1, far[1].1, "they do not meet");
        let half = HALF_LETTER * 20.0;
        assert!(far[0].0 - half >= LEFT && far[1].0 + half <= WIDTH, "{far:?}");
    }
}
