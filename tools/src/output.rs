//! What a command answers, and where its text goes.

use anyhow::Result;
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Yes, or done.
    Yes,
    /// No.
    No,
    /// What a program that was run has ended with.
    Code(u8),
}

impl From<bool> for Answer {
    fn from(yes: bool) -> Self {
        if yes {
            Answer::Yes
        } else {
            Answer::No
        }
    }
}

/// The version of the JSON that commands print. It grows when something that was there changes.
pub(crate) const JSON_VERSION: u32 = 1;

/// Prints what was asked for.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints what was asked for as one JSON value.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Prints a line that nobody asked for.
pub(crate) fn complain(line: &str) -> Result<()> {
    Ok(io::stderr().lock().write_all(format!("{line}\n").as_bytes())?)
}

/// Whether nobody reads any more what is printed.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Lines of columns, each as wide as its widest entry; the last one as wide as it likes.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| on_one_line(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// The same without what would break a line or move the cursor: names of datasets may hold anything.
pub(crate) fn on_one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other_and_lines_end_without_blanks() {
        let rows = [["a", "bb", "c"], ["dddd", "", "e\nf"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "a     bb  c\ndddd      e\\nf\n");
    }

    #[test]
    fn only_a_closed_pipe_counts_as_one() {
        let error = |kind| anyhow::Error::from(io::Error::from(kind)).context("printing");
        assert!(is_closed_pipe(&error(ErrorKind::BrokenPipe)));
        assert!(
            !is_closed_pipe(&error(ErrorKind::StorageFull)) && !is_closed_pipe(&anyhow::anyhow!("other"))
        );
    }
}
