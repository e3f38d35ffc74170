//! Times as people write them, and as they read them. The time zone is that of whoever asks.

use chrono::{Local, TimeZone};

/// Seconds since the epoch of a time such as `12:00pm today`, `8:30am tomorrow` or `2026-12-24 18:00`: what GNU date
/// understands.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let parsed = parse_datetime::parse_datetime(text);
    let parsed =
        parsed.map_err(|_| "not a time; write it like '8:30am tomorrow' or '2026-12-24 18:00'".to_owned())?;
    Ok(parsed.timestamp().as_second())
}

/// A time for people; a number that no calendar has stays a number.
pub(super) fn in_words(seconds: i64) -> String {
    let time = Local.timestamp_opt(seconds, 0).single();
    time.map_or_else(|| seconds.to_string(), |time| time.format("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_times_are_understood() {
        let hour = |text: &str| {
            let time = Local.timestamp_opt(parse(text).unwrap(), 0).unwrap();
            (time.date_naive(), time.format("%H:%M").to_string())
        };
        let today = Local::now().date_naive();
        let (noon, morning) = (hour("12:00pm today"), hour("8:30am tomorrow"));
        // The day may have ended in between.
        assert!(noon.0 >= today && noon.1 == "12:00", "{noon:?}");
        assert!(morning.0 > today && morning.1 == "08:30", "{morning:?}");
        assert!(hour("tomorrow 8:30am").1 == "08:30");
    }

    #[test]
    fn absolute_times_are_exact_and_no_time_is_told() {
        assert_eq!(parse("@1298944800"), Ok(1_298_944_800));
        assert_eq!(parse("2011-03-01 02:00 UTC"), Ok(1_298_944_800));
        for text in ["", "noonish", "25:00", "2026-13-01", "1e99", "8:30am the day after"] {
            assert!(text.is_empty() || parse(text).unwrap_err().contains("not a time"), "{text}");
        }
    }

    #[test]
    fn a_number_beyond_every_calendar_is_shown_as_it_is() {
        assert_eq!(in_words(i64::MAX), i64::MAX.to_string());
        assert!(
            in_words(1_298_944_800).starts_with("2011-03-01T")
                || in_words(1_298_944_800).starts_with("2011-02-28T")
        );
    }
}
