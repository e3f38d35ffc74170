//! Times as people write and read them, in the time zone of the command.

use chrono::{Local, TimeZone};

/// Seconds since the epoch of a time such as `12:00pm today`, `8:30am tomorrow` or `2026-12-24 18:00`: what GNU date
/// understands.
///
/// Not all of that: nothing at all, as an unset variable of a script leaves it, is no time, though GNU date takes it for now;
/// and `2h` would be two o'clock in a time zone of letters, and not in two hours.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let is_length = text.trim_start_matches(|c: char| c.is_ascii_digit()).chars().count() == 1;
    if is_length && text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("neither a time nor a length of time; write '+2 hours' for a time from now".to_owned());
    }
    let parsed = (!text.is_empty()).then(|| parse_datetime::parse_datetime(text));
    let parsed = parsed.and_then(Result::ok);
    let parsed = parsed
        .ok_or_else(|| "not a time; write it like '8:30am tomorrow' or '2026-12-24 18:00'".to_owned())?;
    Ok(parsed.timestamp().as_second())
}

/// A time for people, as C's `asctime` has it; a number that no calendar has stays a number.
pub(super) fn in_words(seconds: i64) -> String {
    let time = Local.timestamp_opt(seconds, 0).single();
    time.map_or_else(|| seconds.to_string(), |time| time.format("%a %b %e %H:%M:%S %Y").to_string())
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
    fn absolute_times_are_exact_and_invalid_ones_are_refused() {
        assert_eq!(parse("@1298944800"), Ok(1_298_944_800));
        assert_eq!(parse("2011-03-01 02:00 UTC"), Ok(1_298_944_800));
        for text in ["", "noonish", "25:00", "2026-13-01", "1e99", "8:30am the day after"] {
            assert!(parse(text).unwrap_err().contains("not a time"), "{text}");
        }
        assert!(parse("   ").is_err(), "of a script with a variable that is not set");
        for text in ["1h", "10m", "5s", " 2d "] {
            assert!(parse(text).unwrap_err().contains("write '+2 hours'"), "{text}");
        }
        assert!(parse("+2 hours").is_ok() && parse("5pm").is_ok());
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
