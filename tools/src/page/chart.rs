//! Pictures for pages: curves with marked points, and stretches of time. Each is an SVG with a title and a description in words.

use super::{escape, percent, table, time};
use crate::table::Table;
use std::fmt::Write as _;

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

/// Stretches of time, one after the other.
pub(crate) struct Timeline<'a> {
    /// As for a [`Chart`].
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) described: String,
    /// From, until, both from 0 to 1, and the number of the colour.
    pub(crate) stretches: Vec<(f64, f64, usize)>,
    /// Moments that are marked above.
    pub(crate) moments: Vec<f64>,
    pub(crate) labels: Vec<(f64, String)>,
}

const BAR: f64 = 46.0;

impl Timeline<'_> {
    /// The picture.
    pub(crate) fn svg(&self) -> String {
        let x = |place: f64| 20.0 + (WIDTH - 40.0) * place.clamp(0.0, 1.0);
        let height = TOP + BAR + BOTTOM;
        let mut svg = opened(self.id, self.title, &self.described, height);
        for (from, until, colour) in &self.stretches {
            let (from, until) = (x(*from), x(*until));
            let width = (until - from).max(0.3);
            let _ = writeln!(
                svg,
                "<rect class=\"k{colour}\" x=\"{from:.2}\" y=\"{TOP}\" width=\"{width:.2}\" height=\"{BAR}\"/>"
            );
        }
        for place in &self.moments {
            let x = x(*place);
            let _ = writeln!(svg, "<path class=\"f\" d=\"M{x:.1} {}V{}\"/>", TOP - 14.0, TOP + BAR + 6.0);
        }
        below(&mut svg, &self.labels, height - 12.0, x);
        svg + "</svg>\n"
    }
}

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
