//! Times on the command line, in one grammar for all commands, in the time zone of the command.
//!
//! A moment is a day (`2026-11-21`, `yesterday`), which stands for its beginning, a time (`2026-11-21 03:28`, `8:30am tomorrow`,
//! `now`), a time with a zone, or a distance from now: `+2 hours`, `-1h30m`, `3 days ago`. A distance without a sign leads to
//! where the option looks. A length is what parameters such as `SCR_HALT_SECONDS` take: `3600`, `1h30m`, `2 hours`.

use crate::prelude::*;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

/// The grammar, for help texts and messages.
pub(crate) const GRAMMAR: &str = "a day (2026-11-21, yesterday), a time (\"2026-11-21 03:28\", \"8:30am tomorrow\", now), both in local \
    time, a time with a zone (2026-11-21T03:28:24Z), or how long from now (\"+2 hours\", 1h30m) or ago (\"2 hours ago\", -1h30m)";

/// The direction of a distance without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    Back,
    Ahead,
}

/// The moment that a text means to somebody who writes it at `now`.
pub(crate) fn moment(text: &str, looks: Looks, now: &Zoned) -> Result<Zoned, String> {
    let text = text.trim();
    let not_understood = || format!("`{text}' is no time; write {GRAMMAR}");
    // An unset variable of a script is no time, though GNU date takes it for now.
    if text.is_empty() {
        return Err(not_understood());
    }
    if let Some(distance) = distance(text, looks) {
        return now.checked_add(distance).map_err(|_| not_understood());
    }
    if let Some(time) = on_clocks(text, now) {
        return Ok(of_local_time(time));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(here(time));
    }
    // GNU date takes a single letter for a time zone of the military: 2x would be two o'clock somewhere.
    let has_letter = |text: &str| {
        text.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.len() == 1 && !"zZ".contains(word))
    };
    if has_letter(text) {
        return Err(not_understood());
    }
    let parsed = parse_datetime::parse_datetime(text).map_err(|_| not_understood())?;
    Timestamp::from_second(parsed.timestamp().as_second()).map(here).map_err(|_| not_understood())
}

/// The time that clocks are to show.
fn on_clocks(text: &str, now: &Zoned) -> Option<DateTime> {
    let time = TIMES.iter().find_map(|format| DateTime::strptime(format, text).ok());
    time.or_else(|| day(text, now).map(|day| day.to_datetime(jiff::civil::Time::midnight())))
}

/// Warns where clocks here never show the time that a text means, or show it twice.
fn doubt(text: &str, read: &Zoned, now: &Zoned) -> Option<String> {
    let of_gnu_date = || {
        // Seen from another zone, only a text without a zone is another moment.
        let elsewhere = now.datetime().to_zoned(TimeZone::UTC).ok()?;
        let seen = parse_datetime::parse_datetime_at_date(elsewhere, text).ok()?;
        (seen.timestamp() != read.timestamp()).then(|| seen.datetime())
    };
    if distance(text, Looks::Ahead).is_some() {
        return None;
    }
    let time = on_clocks(text, now).or_else(of_gnu_date)?;
    let why = match TimeZone::system().to_ambiguous_zoned(time).offset() {
        AmbiguousOffset::Unambiguous { .. } => return None,
        AmbiguousOffset::Gap { .. } => "never comes here, as clocks are put forward then",
        AmbiguousOffset::Fold { .. } => "comes twice here, as clocks are put back then",
    };
    let read = read.strftime("%Y-%m-%dT%H:%M:%S%:z");
    Some(format!("`{text}' {why}: it is read as {read}; to mean another moment, write one with its zone"))
}

fn here(time: Timestamp) -> Zoned {
    time.to_zoned(TimeZone::system())
}

const TIMES: &[&str] = &["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];

fn day(text: &str, now: &Zoned) -> Option<Date> {
    let today = now.date();
    match text.to_ascii_lowercase().as_str() {
        "today" => Some(today),
        "yesterday" => today.yesterday().ok(),
        "tomorrow" => today.tomorrow().ok(),
        text => Date::strptime("%Y-%m-%d", text).ok(),
    }
}

/// A length with a unit, and a direction. A number alone is none: it could be an hour or a year.
fn distance(text: &str, looks: Looks) -> Option<SignedDuration> {
    let (text, is_ago) = match text.strip_suffix("ago") {
        Some(before) => (before.trim_end(), true),
        None => (text, false),
    };
    let (text, sign) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (rest.trim_start(), text.chars().next()),
        None => (text, None),
    };
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let length = length(text).ok().filter(|_| has_unit)?;
    let length = SignedDuration::try_from(length).ok()?;
    let leads_back = match (sign, is_ago) {
        (Some(_), true) => return None,
        (None, true) | (Some('-'), false) => true,
        (Some(_), false) => false,
        (None, false) => looks == Looks::Back,
    };
    Some(if leads_back { -length } else { length })
}

/// A length of time.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let kind = param::HALT_SECONDS.info().kind;
    kind.value(text).ok_or_else(|| format!("not {}", kind.expected()))
}

/// The same in whole seconds.
pub(crate) fn whole_seconds(text: &str) -> Result<i64, String> {
    length(text).map(|length| i64::try_from(length.as_secs()).unwrap_or(i64::MAX))
}

/// The same in seconds, which may have a fraction.
pub(crate) fn length_in_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => length(text).map(|length| length.as_secs_f64()),
    }
}

/// The moment to come that a text means, in seconds since the epoch. Warns where it could mean another moment.
pub(crate) fn ahead(text: &str) -> Result<i64, String> {
    let (text, now) = (text.trim(), Zoned::now());
    let moment = moment(text, Looks::Ahead, &now)?;
    doubt(text, &moment, &now).iter().for_each(warn);
    Ok(moment.timestamp().as_second())
}

/// The same for scripts, which give the seconds.
pub(crate) fn seconds_or_ahead(text: &str) -> Result<i64, String> {
    text.trim().parse().or_else(|_| ahead(text))
}

/// Seconds since the epoch of a moment that has passed, also as a number.
pub(crate) fn seconds_or_back(text: &str) -> Result<u64, String> {
    let back = |_| moment(text, Looks::Back, &Zoned::now()).map(|moment| micros(&moment) / 1_000_000);
    text.trim().parse().or_else(back)
}

/// The moment that an option gives, in microseconds since the epoch; a length of time leads back.
pub(crate) fn given(option: &str, text: Option<&str>) -> Result<Option<u64>> {
    let moment = text.map(|text| moment(text, Looks::Back, &Zoned::now())).transpose();
    let moment = moment.map_err(|why| anyhow!("{option} cannot be understood: {why}"))?;
    Ok(moment.map(|moment| micros(&moment)))
}

/// The first moment at which clocks here show this time, or, where none does because they were put forward, a later one.
pub(crate) fn of_local_time(time: DateTime) -> Zoned {
    let zoned = TimeZone::system().to_ambiguous_zoned(time).compatible();
    zoned.unwrap_or_else(|_| here(Timestamp::UNIX_EPOCH)) // a year that no calendar has
}

/// Microseconds since the epoch; none before it.
pub(crate) fn micros(moment: &Zoned) -> u64 {
    u64::try_from(moment.timestamp().as_microsecond()).unwrap_or(0)
}

/// A time for people, as C's `asctime` has it; a number that no calendar has stays a number.
pub(crate) fn in_words(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).map(here);
    time.map_or_else(|_| seconds.to_string(), |time| time.strftime("%a %b %e %H:%M:%S %Y").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        of_local_time(text.parse().unwrap())
    }

    #[test]
    fn a_moment_is_a_day_a_time_or_a_distance_from_now() {
        let now = at("2026-11-21T12:00:00");
        for (text, expected) in [
            ("2026-11-20", at("2026-11-20T00:00:00")),
            ("yesterday", at("2026-11-20T00:00:00")),
            ("Today", at("2026-11-21T00:00:00")),
            ("tomorrow", at("2026-11-22T00:00:00")),
            ("2026-11-20 03:28", at("2026-11-20T03:28:00")),
            ("2026-11-20T03:28:24", at("2026-11-20T03:28:24")),
            ("+2 hours", at("2026-11-21T14:00:00")),
            ("+ 1h30m", at("2026-11-21T13:30:00")),
            ("-1h30m", at("2026-11-21T10:30:00")),
            ("2h 30m ago", at("2026-11-21T09:30:00")),
            ("3 days ago", at("2026-11-18T12:00:00")),
            ("1970-01-01T00:00:01Z", here(Timestamp::from_second(1).unwrap())),
        ] {
            for looks in [Looks::Back, Looks::Ahead] {
                assert_eq!(moment(text, looks, &now).as_ref(), Ok(&expected), "{text}");
            }
        }
        for text in ["2h", "2 hours", "120min", " 2h "] {
            assert_eq!(moment(text, Looks::Back, &now), Ok(at("2026-11-21T10:00:00")), "{text}");
            assert_eq!(moment(text, Looks::Ahead, &now), Ok(at("2026-11-21T14:00:00")), "{text}");
        }
        assert_eq!(micros(&moment("1970-01-01T00:00:01Z", Looks::Back, &now).unwrap()), 1_000_000);
    }

    #[test]
    fn all_that_gnu_date_understands_is_a_moment_too() {
        let now = Zoned::now();
        let hour = |text: &str| {
            let time = moment(text, Looks::Ahead, &now).unwrap();
            (time.date(), time.strftime("%H:%M").to_string())
        };
        let today = now.date();
        let (noon, morning) = (hour("12:00pm today"), hour("8:30am tomorrow"));
        // The day may have ended in between.
        assert!(noon.0 >= today && noon.1 == "12:00", "{noon:?}");
        assert!(morning.0 > today && morning.1 == "08:30", "{morning:?}");
        assert!(hour("tomorrow 8:30am").1 == "08:30" && hour("5pm").1 == "17:00");
        let off = moment("now", Looks::Back, &now).unwrap().duration_since(&now);
        assert!(off.as_secs().abs() < 60, "{off:?}");
        for text in ["@1298944800", "2011-03-01 02:00 UTC"] {
            assert_eq!(ahead(text), Ok(1_298_944_800));
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_refused_with_the_grammar() {
        for text in [
            "",
            "   ",
            "noonish",
            "soon",
            "25:00",
            "2026-13-01",
            "2026-11-21T3",
            "1e99",
            "2x",
            "5p",
            "+2h ago",
            "8:30am the day after",
        ] {
            let refused = moment(text, Looks::Back, &Zoned::now());
            assert!(
                refused.as_ref().is_err_and(|why| why.contains("is no time; write a day (2026-11-21")),
                "{text}: {refused:?}"
            );
        }
        assert!(length("soon").is_err() && length("-1h").is_err());
    }

    #[test]
    fn scripts_may_give_seconds() {
        assert_eq!((seconds_or_ahead("1298944800"), seconds_or_ahead("-5")), (Ok(1_298_944_800), Ok(-5)));
        assert_eq!((seconds_or_back("17"), seconds_or_back("1970-01-01T00:00:17Z")), (Ok(17), Ok(17)));
        assert_eq!((length_in_seconds("0.25"), length_in_seconds("1h30m")), (Ok(0.25), Ok(5400.0)));
        assert!(length_in_seconds("nan").is_err() && seconds_or_back("soon").is_err());
    }

    #[test]
    fn a_number_beyond_every_calendar_is_shown_as_it_is() {
        assert_eq!(in_words(i64::MAX), i64::MAX.to_string());
        assert!(
            in_words(1_298_944_800).starts_with("Tue Mar  1")
                || in_words(1_298_944_800).starts_with("Mon Feb 28")
        );
    }
}
