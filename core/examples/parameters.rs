//! Writes the reference page of all parameters from the one table of them.
//!
//! ```text
//! cargo run -p scr-core --example parameters > docs/user/parameters.md
//! ```
//! The tests compare the page with the table.

use scr_core::param::TABLE;
use std::fmt::Write as _;

#[allow(dead_code, reason = "the tests use the page alone")]
fn main() {
    print!("{}", page());
}

/// The page, in Markdown.
pub(crate) fn page() -> String {
    let mut text = String::from(HEAD);
    text.push_str("| parameter | type | default | set | meaning |\n|---|---|---|---|---|\n");
    for info in TABLE {
        let (name, kind, help) = (info.name, info.kind.label(), info.help);
        let (default, place) = (info.preset.in_words("`"), info.scope.label());
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {default} | {place} | {help} |");
    }
    text
}

const HEAD: &str = "\
# Parameters

<!-- Made by: cargo run -p scr-core --example parameters > docs/user/parameters.md -->

Where each can be set, and in which order the places count, is told in [configuration.md](configuration.md). In the
column *set*:

- *anywhere*: the environment, a file of the user's, `SCR_Config`, the system file. The environment of rank 0 counts for
  all ranks.
- *anywhere; per rank*: the same, but where a rank has the variable in its own environment, that one counts for it.
- *anywhere; per rank only*: the same, but the environment of rank 0 counts for rank 0 alone.
- *environment only*, *system file only*: elsewhere it is passed over with a message.

Types:

| type | what is accepted |
|---|---|
| 0 or 1 | `0`, `1`, and `no`, `yes`, `off`, `on`, `false`, `true` in any case |
| count | a whole number |
| bytes | a number with or without a unit: `131072`, `128KB`, `1GiB`; units are steps of 1024 with or without the `i` |
| seconds | a number with or without a unit `s`, `m`, `h` or `d` |
| number | a number, not negative, perhaps with a decimal point |
| name | one of the known names, or the name of a plugin, in any case |
| path | a folder or file; a relative one starts at the current folder |
| paths | absolute folders, separated by colons |
| text, secret | anything; a secret is never shown |

A value that does not fit its type, or is out of range, is told with where it was set; the next place that sets the
parameter counts, or else the default.

";
