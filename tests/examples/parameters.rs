//! Writes the reference page of all parameters from the one table of them.
//!
//! ```text
//! cargo run -p scr-tests --example parameters > docs/user/parameters.md
//! ```
//! A test compares the page with the table.

use scr_config::param::{Kind, Scope, TABLE};

#[allow(dead_code, reason = "the tests use the page alone")]
fn main() {
    print!("{}", page());
}

/// The page, in Markdown.
pub(crate) fn page() -> String {
    let mut text = String::from(HEAD);
    for info in TABLE {
        let (name, kind, help) = (info.name, label(info.kind), info.help);
        let default = info.default.in_words("`");
        let scope = match info.scope {
            Scope::Anywhere | Scope::Trusted => String::new(),
            limited => format!("; {}", limited.label()),
        };
        push_wrapped(&mut text, &format!("- `{name}` ({kind}; default: {default}{scope}):"), help);
    }
    text
}

/// A kind of value in a word or two.
fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "0 or 1",
        Kind::Count { .. } | Kind::Whole { .. } => "count",
        Kind::CountOrAuto => "count or AUTO",
        Kind::Bytes { .. } => "bytes",
        Kind::Seconds => "seconds",
        Kind::Number { .. } => "number",
        Kind::Text | Kind::Part => "text",
        Kind::Secret => "secret",
        Kind::Name { .. } => "name",
        Kind::Path => "path",
        Kind::AbsolutePath => "absolute path",
        Kind::Paths => "paths",
        Kind::Ports => "ports",
    }
}

/// Adds a list item, wrapped at 100 columns.
fn push_wrapped(text: &mut String, start: &str, rest: &str) {
    let mut column = 0;
    for word in start.split(' ').chain(rest.split(' ')) {
        let is_first = column == 0;
        if !is_first && column + 1 + word.chars().count() > 100 {
            text.push_str("\n ");
            column = 1;
        }
        if !is_first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.chars().count();
    }
    text.push('\n');
}

const HEAD: &str = "\
# Parameters

<!-- Made by: cargo run -p scr-tests --example parameters > docs/user/parameters.md -->

Each parameter is listed with its type and its default. [configuration.md](configuration.md) says
which sources there are and which of them wins.

Unless its entry says otherwise, a parameter can be set anywhere: in the environment, in the user's
configuration file, with `SCR_Config`, or in the system file. The environment of rank 0 then holds
for all ranks. The exceptions are:

- *anywhere; per rank*: a rank that has the variable in its own environment uses that value.
- *anywhere; per rank only*: the same, and the environment of rank 0 holds for rank 0 alone.
- *environment only*, *system file only*: scr ignores the parameter elsewhere and prints a message.

Types:

| type | accepted values |
|---|---|
| 0 or 1 | `0`, `1`, and `no`, `yes`, `off`, `on`, `false`, `true` in any case |
| count | a whole number |
| bytes | a number, optionally with a unit: `131072`, `128KB`, `1GiB`; `KB` means `KiB` |
| seconds | a number, or with units `s`, `m`, `h`, `d`, `w` or their words: `1h30m`, `2 hours` |
| number | a number that is not negative, optionally with a decimal point |
| name | one of the known names, or the name of a plugin, in any case |
| path | a directory or file; a relative path starts at the current directory |
| paths | absolute directories, separated by colons |
| text, secret | any text; scr never prints a secret |

If a value does not fit its type or is out of range, scr reports where it was set and ignores it.
The next source that sets the parameter wins, or else the default.

## All parameters

";
