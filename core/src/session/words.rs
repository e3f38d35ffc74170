//! How messages name a dataset, and tell how fast something was: in the words that users' scripts look for.

use crate::cache::record::RankRecord;
use std::time::Duration;

/// A dataset as messages name it.
pub(super) fn label(record: &RankRecord) -> String {
    format!("dataset {} `{}'", record.dataset.id, String::from_utf8_lossy(&record.dataset.name))
}

/// Time and bandwidth in the words that users' scripts look for.
pub(crate) fn speed(what: &str, took: Duration, files: u64, bytes: u64, ranks: u32) -> String {
    let secs = took.as_secs_f64();
    let rate = if secs > 0.0 { bytes as f64 / (1024.0 * 1024.0) / secs } else { 0.0 };
    format!(
        "{what}: {secs:.6} secs, {files} files, {} bytes, {rate:.6} MB/s, {:.6} MB/s per proc",
        scientific(bytes),
        rate / f64::from(ranks)
    )
}

/// As C's `%e` has it: 4.194338e+06.
fn scientific(value: u64) -> String {
    let text = format!("{:.6e}", value as f64);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_keep_the_words_and_figures_that_scripts_look_for() {
        let line = speed("app write stats", Duration::from_millis(500), 4, 4 << 20, 4);
        assert_eq!(
            line,
            "app write stats: 0.500000 secs, 4 files, 4.194304e+06 bytes, 8.000000 MB/s, 2.000000 MB/s per proc"
        );
    }
}
