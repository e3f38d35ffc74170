//! Pictures for pages: curves with marked points, and stretches of time. Each is an SVG with a title and a description in words.

use super::escape;
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
    /// What can be seen, in words.
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
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                y + 4.0
            );
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
        for (place, value, label) in &self.marked {
            let (x, y) = (x(*place), y(*value));
            let _ = writeln!(svg, "<circle class=\"o\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>");
            // Above the ground, and within the picture.
            let (x, y) =
                (x.clamp(LEFT + 60.0, WIDTH - 90.0), if y + 24.0 > GROUND { y - 14.0 } else { y + 24.0 });
            let _ = writeln!(
                svg,
                "<text class=\"t\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                escape(label)
            );
        }
        svg + "</svg>\n"
    }
}

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
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            x(*place),
            escape(label)
        );
    }
}
