//! The codes of messages. docs/user/messages.md is the one table of them, and this reads it.

use crate::message::without_error_numbers;

/// The page; `messages.md` beside this file is a link to it.
const PAGE: &str = include_str!("messages.md");

/// An entry of the page.
pub struct Entry {
    /// Such as `SCR-112`.
    pub code: &'static str,
    /// The severities that it is printed with, and between backticks the fixed words of the message, with `...` for what varies.
    pub head: &'static str,
    /// What it means for the data.
    pub means: &'static str,
    /// What is to be done.
    pub cure: &'static str,
}

/// All entries, in the order of the page.
pub fn entries() -> impl Iterator<Item = Entry> {
    PAGE.split("\n### ").skip(1).filter_map(|entry| {
        let mut parts = entry.split("\n\n").map(str::trim_end);
        let mut next = || parts.next();
        Some(Entry { code: next()?, head: next()?, means: next()?, cure: next()? })
    })
}

impl Entry {
    /// The entry of a message of this severity, or of any: that whose fixed words are the longest.
    pub fn of(severity: &str, text: &str) -> Option<Entry> {
        let of_severity = entries().filter(|entry| entry.head.contains(severity));
        let found = of_severity.filter_map(|entry| Some((entry.agreement(text)?, entry)));
        found.max_by_key(|(letters, _)| *letters).map(|(_, entry)| entry)
    }

    /// The fixed words of each message that it is for.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.head.split('`').skip(1).step_by(2).map(|words| words.replace('\n', " "))
    }

    /// The length of the fixed words, if the text has them in their order.
    fn agreement(&self, text: &str) -> Option<usize> {
        let agreement = |words: String| {
            let mut rest = text;
            words.split("...").map(str::trim).try_fold(0, |letters, piece| {
                rest = rest.split_once(piece)?.1;
                Some(letters + piece.len())
            })
        };
        self.texts().filter_map(agreement).max()
    }
}

/// A message for people: without numbers of errors, and with the code of its entry at the end of its first line.
pub fn coded(severity: &str, text: &str) -> String {
    let mut text = without_error_numbers(text);
    let code = Entry::of(severity, &text).map_or("none", |entry| entry.code);
    #[cfg(debug_assertions)]
    tell_tests(&format!("{code} {severity} {text:?}\n"));
    // A command passes on what the same one has said on another node.
    if code != "none" && !text.contains(&format!("[{code}]")) {
        text.insert_str(text.find('\n').unwrap_or(text.len()), &format!(" [{code}]"));
    }
    text
}

/// Records which codes were printed, and what has none, where `make test` has made a file for that.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "who prints has no environment at hand")]
fn tell_tests(line: &str) {
    use std::io::Write;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tests/messages");
    let file = std::fs::OpenOptions::new().append(true).open(path);
    let _unwritten = file.and_then(|mut file| file.write_all(line.as_bytes()));
}
