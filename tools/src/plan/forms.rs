//! The numbers of a machine, with their units.

use scr_config::document::{integer, Form};
use scr_config::param::Kind;
use std::ops::RangeInclusive;
use toml::de::DeValue;

/// Seconds: up to a hundred thousand years.
pub(super) fn seconds() -> Form<'static, f64> {
    time(0.0)
}

/// A time between two failures.
pub(super) fn gap() -> Form<'static, f64> {
    time(1e-3)
}

/// Bytes.
pub(super) fn bytes() -> Form<'static, f64> {
    let size = |text: &str| Kind::Bytes { least: 0 }.value::<u64>(text).map(|bytes| bytes as f64);
    number("bytes, or a size such as \"2GB\"", 1.0..=1e18, size)
}

/// Failures per second.
pub(super) fn rate() -> Form<'static, f64> {
    number("failures per second", 0.0..=1e3, |_| None)
}

/// A part of a whole.
pub(super) fn share() -> Form<'static, f64> {
    number("a share", 0.0..=1.0, |_| None)
}

fn time(least: f64) -> Form<'static, f64> {
    let length = |text: &str| crate::time::length(text).ok().map(|time| time.as_secs_f64());
    number("seconds, or a time such as \"30m\" or \"5years\"", least..=3.2e12, length)
}

/// A number in its range; `read` reads one that is a text.
fn number(what: &str, range: RangeInclusive<f64>, read: fn(&str) -> Option<f64>) -> Form<'static, f64> {
    let what = format!("{what}, from {} to {}", range.start(), range.end());
    Form::new(what, move |value| {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::String(text) => read(text),
            value => integer(value).map(|number| number as f64),
        };
        number.filter(|number| range.contains(number))
    })
}
