//! Pages for people that need no network: light and dark, readable in print and by screen readers. Each picture has a text beside
//! it.
//!
//! The templates beside this file are the pages: `page.html` is the frame of each, `parts.html` has tables and pictures. A picture
//! is an SVG with a title and a description in words; what lies where in a curve, or in stretches of time, is computed here.

use crate::prelude::*;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{escape_formatter, Environment, UndefinedBehavior};

/// The templates, by their names. Classes `k0` to `k6` are the colours of classes of time, which differ in lightness as well, so
/// that they do in print.
const TEMPLATES: [(&str, &str); 6] = [
    ("page.html", include_str!("page.html")),
    ("style.css", include_str!("style.css")),
    ("parts.html", include_str!("parts.html")),
    ("report.html", include_str!("report.html")),
    ("jobs.html", include_str!("jobs.html")),
    ("plan.html", include_str!("plan.html")),
];

/// The page that a template makes of what it is given.
///
/// # Errors
/// The template asks for something else.
pub(crate) fn page(template: &str, content: &Value) -> Result<String> {
    let mut pages = Environment::new();
    pages.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    pages.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() => Ok(out.write_str(&escape(text))?),
        _ => escape_formatter(out, state, value),
    });
    for (name, text) in TEMPLATES {
        pages.add_template(name, text)?;
    }
    Ok(pages.get_template(template)?.render(Serde(content))?)
}

/// A text as HTML.
fn escape(text: &str) -> String {
    let plain = text.replace(|letter: char| letter.is_control() && letter != '\n', "\u{fffd}");
    let escaped =
        plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
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
    pub(crate) id: String,
    pub(crate) title: String,
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
    /// The picture, as `parts.html` draws it.
    pub(crate) fn picture(self) -> Value {
        let values = || self.points.iter().map(|point| point.1).filter(|value| value.is_finite());
        let highest = values().fold(f64::MIN_POSITIVE, f64::max);
        let lowest = if self.is_line { values().fold(highest, f64::min) } else { 0.0 };
        let span = (highest - lowest).max(1e-9);
        let x = |place: f64| LEFT + (WIDTH - LEFT - RIGHT) * place.clamp(0.0, 1.0);
        let y = |value: f64| TOP + (GROUND - TOP) * (highest - value) / span;
        let mut texts = below(self.labels, HEIGHT - 16.0, x);
        let mut paths = Vec::new();
        for part in 0..=4 {
            let value = highest - span * f64::from(part) / 4.0;
            let (y, text) = (y(value), (self.value)(value));
            paths.push(path("g", &format!("M{LEFT} {y:.1}H{}", WIDTH - RIGHT)));
            texts.push(json!({ "x": LEFT - 8.0, "y": y + 4.0, "anchor": "end", "text": text }));
        }
        let places = self.points.iter().map(|point| (x(point.0), y(point.1)));
        if self.is_line {
            let places: Vec<_> = places.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            paths.push(path("c", &format!("M{}", places.join("L"))));
        } else {
            paths.extend(places.map(|(x, y)| path("c", &format!("M{x:.1} {GROUND}V{y:.1}"))));
        }
        let (mut spots, mut taken) = (Vec::new(), Vec::new());
        for (place, value, text) in self.marked {
            let spot = (x(place), y(value));
            let (x, y) = beside(&mut taken, spot.0, spot.1, &text);
            spots.push(spot);
            texts.push(json!({ "class": "t", "x": x, "y": y, "anchor": "middle", "text": text }));
        }
        json!({
            "id": self.id,
            "title": self.title,
            "described": self.described,
            "size": [WIDTH, HEIGHT],
            "paths": paths,
            "spots": spots,
            "texts": texts,
        })
    }
}

/// A curve over intervals in even steps, with marked points, and the same as a table. `values` is what its values are.
pub(crate) fn over_intervals(
    (id, title, described): (&str, &str, String),
    values: &str,
    curve: &[(f64, f64)],
    marked: Vec<(f64, f64, String)>,
) -> Value {
    let place = |at: usize| at as f64 / curve.len().saturating_sub(1).max(1) as f64;
    let chart = Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        described,
        points: curve.iter().enumerate().map(|(at, point)| (place(at), point.1)).collect(),
        is_line: true,
        labels: (0..curve.len()).step_by(8).map(|at| (place(at), time(curve[at].0))).collect(),
        marked,
        value: &percent,
    };
    let rows = curve.iter().step_by(4).map(|(interval, value)| [time(*interval), percent(*value)]);
    json!({ "picture": chart.picture(), "rows": Table::of(&["INTERVAL", values], rows).rows })
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
    (id, title, described): (&str, &str, String),
    stretches: &[(f64, f64, usize)],
    moments: impl Iterator<Item = f64>,
    labels: Vec<(f64, String)>,
) -> Value {
    let x = |place: f64| 20.0 + (WIDTH - 40.0) * place.clamp(0.0, 1.0);
    let bar = |&(from, until, colour): &(f64, f64, usize)| {
        let (x, until) = (x(from), x(until));
        json!({ "colour": colour, "x": x, "y": TOP, "width": (until - x).max(0.3), "height": BAR })
    };
    let moment = |x: f64| path("f", &format!("M{x:.1} {}V{}", TOP - 14.0, TOP + BAR + 6.0));
    let height = TOP + BAR + BOTTOM;
    json!({
        "id": id,
        "title": title,
        "described": described,
        "size": [WIDTH, height],
        "bars": stretches.iter().map(bar).collect::<Vec<_>>(),
        "paths": moments.map(x).map(moment).collect::<Vec<_>>(),
        "texts": below(labels, height - 12.0, x),
    })
}

fn path(class: &str, line: &str) -> Value {
    json!({ "class": class, "line": line })
}

const BAR: f64 = 46.0;

/// Labels at this height, each near its place.
fn below(labels: Vec<(f64, String)>, y: f64, x: impl Fn(f64) -> f64) -> Vec<Value> {
    let text = |(place, text): (f64, String)| {
        let anchor = match place {
            ..0.02 => "start",
            0.98.. => "end",
            _ => "middle",
        };
        json!({ "x": x(place), "y": y, "anchor": anchor, "text": text })
    };
    labels.into_iter().map(text).collect()
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
