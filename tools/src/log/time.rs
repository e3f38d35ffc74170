//! Days, times and "two hours ago" on the command line.

use anyhow::{bail, Result};
use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};

const TIMES: &[&str] = &["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];

/// The moment that a text means to somebody who writes it at `now`.
pub(super) fn parse(text: &str, now: DateTime<Local>) -> Result<DateTime<Local>> {
    let text = text.trim();
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(now - ago);
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.with_timezone(&Local));
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").map(|day| day.and_time(NaiveTime::MIN));
    let time = TIMES.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    match day.ok().or(time) {
        Some(time) => Ok(of_local_time(time)),
        None => bail!("`{text}' is neither a day (2026-11-21), nor a time (2026-11-21T03:28), nor how long ago (2h 30m)"),
    }
}

/// The first moment at which clocks here show this time, or, where none does because they were put forward, a later one.
pub(super) fn of_local_time(time: NaiveDateTime) -> DateTime<Local> {
    Local.from_local_datetime(&time).earliest().unwrap_or_else(|| Local.from_utc_datetime(&time))
}

/// Microseconds since the epoch; none before it.
pub(super) fn micros(moment: DateTime<Local>) -> u64 {
    u64::try_from(moment.timestamp_micros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_day_a_time_or_how_long_ago() {
        let at =
            |text: &str| of_local_time(NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S").unwrap());
        let now = at("2026-11-21T12:00:00");
        for (text, moment) in [
            ("2026-11-20", at("2026-11-20T00:00:00")),
            ("2026-11-20 03:28", at("2026-11-20T03:28:00")),
            ("2026-11-20T03:28:24", at("2026-11-20T03:28:24")),
            ("2h 30m", at("2026-11-21T09:30:00")),
            ("3days", at("2026-11-18T12:00:00")),
            (
                "1970-01-01T00:00:01Z",
                DateTime::UNIX_EPOCH.with_timezone(&Local) + chrono::TimeDelta::seconds(1),
            ),
        ] {
            assert_eq!(parse(text, now).unwrap(), moment, "{text}");
        }
        assert_eq!(micros(parse("1970-01-01T00:00:01Z", now).unwrap()), 1_000_000);
        for text in ["", "yesterday", "2026-13-01", "25:00", "2026-11-21T3"] {
            assert!(parse(text, now).is_err(), "{text}");
        }
    }
}
