//! The page of messages, compared with the sources that print them.

use super::{collect, repository};
use scr_base::codes::{entries, Entry};

/// All that ships, with each literal on one line.
fn shipped() -> String {
    let mut text = String::new();
    for folder in ["core", "ffi", "plugin-api", "plugins", "tools"] {
        collect(&repository().join(folder), "kit", &mut text);
    }
    text.split("\\\n").map(str::trim_start).collect()
}

#[test]
fn every_warning_and_error_of_the_library_has_an_entry() {
    let sources = shipped();
    let mut seen = 0;
    let mut missing = Vec::new();
    for (severity, call) in
        [("WARNING", "warn("), ("WARNING", "warn_here("), ("ERROR", "error("), ("ERROR", "error_here(")]
    {
        for (at, _) in sources.match_indices(call) {
            let before = sources[..at].trim_end_matches(['.', ':', ' ', '\n']);
            let argument = sources[at + call.len()..].trim_start().trim_start_matches("&format!(");
            let literal = argument.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            let is_printed = before.ends_with("report") || before.ends_with("message");
            let Some(literal) = literal.filter(|_| is_printed) else { continue };
            let pieces: Vec<_> = literal
                .split('{')
                .map(|piece| piece.split_once('}').map_or(piece, |(_, rest)| rest))
                .collect();
            seen += 1;
            // One that leaves nearly all to its values is looked at where it is printed: see scripts/test.sh.
            let words = pieces.join(" ").split(' ').filter(|word| word.len() > 1).count();
            if words > 3 && Entry::of(severity, &pieces.join("X")).is_none() {
                missing.push(format!("{severity}: {literal}"));
            }
        }
    }
    assert!(seen > 80, "only {seen} calls are found");
    assert_eq!(missing, [] as [String; 0], "give these an entry in docs/user/messages.md");
}

#[test]
fn the_words_of_every_entry_are_in_the_sources() {
    let sources = shipped();
    let page = std::fs::read_to_string(repository().join("docs/user/messages.md")).unwrap();
    assert_eq!(entries().count(), page.matches("\n### ").count(), "an entry lacks a paragraph");
    assert!(entries().map(|entry| entry.code).is_sorted_by(|one, next| one < next));
    for entry in entries() {
        for words in entry.texts() {
            let stale: Vec<_> = words.split("...").filter(|piece| !sources.contains(piece.trim())).collect();
            assert!(stale.is_empty(), "{}: no source says {stale:?}", entry.code);
        }
    }
}
