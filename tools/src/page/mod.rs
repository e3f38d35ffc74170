//! Pages for people that need no network: light and dark, readable in print and by screen readers. Each picture has a text beside
//! it.
//!
//! - `chart`: pictures of curves and of stretches of time

pub(crate) mod chart;

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
    let (unit, name, step) = steps
        .into_iter()
        .find(|(unit, _, step)| unit * step * MOST_TIMES >= seconds)
        .unwrap_or((86400.0, "days", seconds / 86400.0));
    let times = (0..=MOST_TIMES as u32).map(|number| f64::from(number) * step);
    let times = times.take_while(|time| unit * time <= seconds);
    times
        .map(|time| (unit * time / seconds.max(1e-9), format!("{} {name}", (time * 10.0).round() / 10.0)))
        .collect()
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
