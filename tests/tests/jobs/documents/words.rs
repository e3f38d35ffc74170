//! The words of the pages: those of the field, and none of those that they have replaced.

use super::{collect_pages, repository};

/// What no page says, from its beginning on, and what it says instead. Code and output may have it.
const REPLACED: [(&str, &str); 24] = [
    ("behind the application", "in the background"),
    ("blanks", "spaces"),
    ("brought back", "restored"),
    ("closes a flush", "commits"),
    ("container", "bundle"),
    ("cut short", "truncated"),
    ("defect of the library", "an internal error"),
    ("folder", "directory"),
    ("goes on", "continues"),
    ("gone back over", "rolled back past"),
    ("leaves the cache", "is evicted"),
    ("lends", "serves"),
    ("made whole", "restored, rebuilt"),
    ("mended", "fixed"),
    ("passed over", "skipped"),
    ("planted", "seeded"),
    ("pretend node", "simulated node"),
    ("room", "free space"),
    ("small world", "bounded model check"),
    ("stand-in", "emulates, acts for"),
    ("taken back", "rolled back"),
    ("time of its last change", "mtime"),
    ("torture", "soak test"),
    ("withdrawn", "invalidated"),
];

#[test]
fn the_pages_use_the_words_of_the_field() {
    let mut pages =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|page| repository().join(page)).to_vec();
    collect_pages(&repository().join("docs"), &mut pages);
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        let prose = prose_of(&std::fs::read_to_string(&page).expect("a page"));
        for (word, instead) in REPLACED {
            let found = prose.match_indices(word).find(|(at, _)| begins_there(&prose[..*at]));
            assert!(found.is_none(), "{}: `{word}' is `{instead}' here", page.display());
        }
    }
}

fn begins_there(before: &str) -> bool {
    !before.ends_with(char::is_alphanumeric)
}

/// The text without its code and its line ends, in small letters.
fn prose_of(page: &str) -> String {
    let mut in_block = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    });
    let text: Vec<_> = lines.map(|line| line.trim_start_matches(['>', ' '])).collect();
    let pieces = text.join("\n").to_lowercase();
    let paragraphs = pieces.split("\n\n").flat_map(|paragraph| paragraph.split('`').step_by(2));
    paragraphs.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}
