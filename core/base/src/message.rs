//! Messages to the user: one line each, after the version, the rank and the node.
//!
//! With `SCR_DEBUG=0` all lines go to standard error: standard output is the application's. 1 adds progress and durations, 2 the
//! details, to standard output, where scripts of C SCR look for them.

use crate::codes::coded;
use crate::env::Output;
use crate::Rank;
use std::sync::Arc;
use std::time::Duration;

/// Says lines for one rank.
#[derive(Clone)]
pub struct Reporter {
    output: Arc<dyn Output>,
    /// Rank and node, once they are known.
    place: String,
    rank: Rank,
    level: u64,
}

impl Reporter {
    /// A reporter for a rank on a node; `level` is `SCR_DEBUG`.
    pub fn new(output: Arc<dyn Output>, rank: Rank, node: &str, level: u64) -> Self {
        Self { output, place: format!("rank {rank} on {node}"), rank, level }
    }

    /// A reporter for a command, which has no rank.
    pub fn of_command(output: Arc<dyn Output>, command: &str) -> Self {
        Self { output, place: command.to_owned(), rank: Rank(0), level: 0 }
    }

    /// Prints a line for `SCR_DEBUG=1`; only rank 0 prints it.
    pub fn info(&self, text: &str) {
        if self.level >= 1 && self.rank == Rank(0) {
            self.output.info(&self.plain(text));
        }
    }

    /// Details of the whole run, for `SCR_DEBUG=2`; rank 0 says them for all.
    pub fn detail(&self, text: &str) {
        if self.rank == Rank(0) {
            self.debug(text);
        }
    }

    /// Details of this very rank, for `SCR_DEBUG=2`.
    pub fn debug(&self, text: &str) {
        if self.level >= 2 {
            self.output.info(&self.plain(text));
        }
    }

    /// Prints at every level what has happened where no data is at risk; only rank 0 prints it.
    pub fn notice(&self, text: &str) {
        if self.rank == Rank(0) {
            self.notice_here(text);
        }
    }

    /// The same, of this very rank.
    pub fn notice_here(&self, text: &str) {
        self.say("NOTE", text);
    }

    /// Going on with less than was asked for, or without data that is lost or out of reach; rank 0 says it for all.
    pub fn warn(&self, text: &str) {
        if self.rank == Rank(0) {
            self.warn_here(text);
        }
    }

    /// Going on with less than was asked for on this very rank.
    pub fn warn_here(&self, text: &str) {
        self.say("WARNING", text);
    }

    /// Something failed for the whole run; rank 0 says it for all.
    pub fn error(&self, text: &str) {
        if self.rank == Rank(0) {
            self.error_here(text);
        }
    }

    /// Something failed on this very rank.
    pub fn error_here(&self, text: &str) {
        self.say("ERROR", text);
    }

    fn plain(&self, text: &str) -> String {
        format!("SCR {}: {}: {}", crate::VERSION, self.place, without_error_numbers(text))
    }

    fn say(&self, severity: &str, text: &str) {
        self.output.error(&line(severity, &self.place, text));
    }
}

/// A line with a severity: NOTE, WARNING or ERROR.
pub fn line(severity: &str, place: &str, text: &str) -> String {
    format!("SCR {} {severity}: {place}: {}", crate::VERSION, coded(severity, text))
}

/// A text for the user, without the numbers that the standard library adds to errors of the system, such as `(os error 2)`.
pub fn without_error_numbers(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut pieces = text.split(MARK);
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')').filter(|_| rest.len() < piece.len()) {
            Some(rest) => plain.push_str(rest),
            None => plain.extend([MARK, piece]),
        }
    }
    plain
}

/// Time and bandwidth in the words that users' scripts look for.
pub fn throughput(what: &str, took: Duration, files: u64, bytes: u64, ranks: u32) -> String {
    let secs = took.as_secs_f64();
    let rate = if secs > 0.0 { bytes as f64 / (1024.0 * 1024.0) / secs } else { 0.0 };
    format!(
        "{what}: {secs:.6} secs, {files} files, {} bytes, {rate:.6} MB/s, {:.6} MB/s per proc",
        scientific(bytes),
        rate / f64::from(ranks)
    )
}

/// A number of bytes for people: `512 bytes`, `1.5 KiB`, `77 GiB`.
pub fn amount(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let in_unit = |power: usize| bytes as f64 / 1024_f64.powi(i32::try_from(power).unwrap_or(i32::MAX));
    // 1023.6 would be shown as 1024 of the smaller unit.
    let power = (0..UNITS.len()).take_while(|&power| in_unit(power) >= 1023.5).count();
    match UNITS.get(power.wrapping_sub(1)) {
        None => count(bytes, "byte"),
        Some(unit) => format!("{} {unit}", three_digits(in_unit(power))),
    }
}

/// A length of time for people: `25 ms`, `8.6 s`, `4 min 10 s`, `1 h 30 min`, `2 d 3 h`.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64().round();
    if (1e-9..0.9995).contains(&time.as_secs_f64()) {
        return format!("{} ms", three_digits(time.as_secs_f64() * 1e3));
    }
    if seconds < 60.0 {
        return format!("{} s", three_digits(time.as_secs_f64()));
    }
    let (large, small) = match seconds {
        ..3_600.0 => ((60.0, "min"), (1.0, "s")),
        ..86_400.0 => ((3_600.0, "h"), (60.0, "min")),
        _ => ((86_400.0, "d"), (3_600.0, "h")),
    };
    let all = (seconds / small.0).round();
    let in_large = large.0 / small.0;
    let (whole, rest) = ((all / in_large).floor(), all % in_large);
    match rest {
        0.0 => format!("{whole} {}", large.1),
        rest => format!("{whole} {} {rest} {}", large.1, small.1),
    }
}

/// The first three digits of a number that is not huge, without zeros at the end of a fraction.
fn three_digits(number: f64) -> String {
    let digits = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// As C's `%e` has it: 4.194338e+06.
fn scientific(value: u64) -> String {
    let text = format!("{:.6e}", value as f64);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `1 run`, `2 runs`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_times_are_written_for_people() {
        let bytes = [0, 1, 1023, 1024, 1536, 1_048_575, 1 << 20, 82_678_120_448, u64::MAX];
        let expected =
            ["0 bytes", "1 byte", "1023 bytes", "1 KiB", "1.5 KiB", "1 MiB", "1 MiB", "77 GiB", "16 EiB"];
        assert_eq!(bytes.map(amount), expected);
        let spans = [0.0, 0.254, 8.6, 59.4, 59.7, 250.0, 3_599.8, 5_400.0, 7_170.0, 183_600.0, 172_799.0]
            .map(|seconds| span(Duration::from_secs_f64(seconds)));
        let expected = [
            "0 s",
            "254 ms",
            "8.6 s",
            "59.4 s",
            "1 min",
            "4 min 10 s",
            "1 h",
            "1 h 30 min",
            "2 h",
            "2 d 3 h",
            "2 d",
        ];
        assert_eq!(spans, expected);
    }

    /// Messages ended in the standard library's "(os error 2)", which says nothing to users.
    #[test]
    fn errors_of_the_system_have_no_numbers_in_messages() {
        let error = std::io::Error::from_raw_os_error(2);
        let text = format!("cannot open a: {error}, as on rank 2; cannot open (os error x): {error}");
        let expected = "cannot open a: No such file or directory, as on rank 2; cannot open (os error x): No such file or directory";
        assert_eq!(without_error_numbers(&text), expected);
        let env = crate::kit::env::TestEnv::new(std::sync::Arc::new(crate::fs::RealFiles), "/");
        Reporter::new(env.env().output.clone(), Rank(0), "n0", 0).error(&text);
        assert!(env.output().take_errors()[0].contains(expected));
    }

    #[test]
    fn speeds_keep_the_words_and_figures_that_scripts_look_for() {
        let line = throughput("app write stats", Duration::from_millis(500), 4, 4 << 20, 4);
        assert_eq!(
            line,
            "app write stats: 0.500000 secs, 4 files, 4.194304e+06 bytes, 8.000000 MB/s, 2.000000 MB/s per proc"
        );
    }
}
