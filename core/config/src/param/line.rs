//! One line as `key=value` pairs: `SCR_FLUSH=10`, `CKPT=0 TYPE=XOR SET_SIZE=16`.
//!
//! A value ends at a blank unless it is quoted, and may hold `=`. Blanks around the `=` are allowed. The same rules
//! serve configuration files and `SCR_Config`.

use super::problem::Cause;
use scr_base::ensure;
use serde::{Deserialize, Serialize};

/// A key with its value, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub(crate) key: String,
    pub(crate) value: String,
    /// The line it stands on, where that is not the first one of its descriptor; otherwise 0.
    pub(crate) line: u32,
}

/// The contents of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) pairs: Vec<Pair>,
    /// The rest of the line, from the first word that has no `=`.
    pub(crate) rest: Option<String>,
}

/// Reads a line without its comment.
pub(crate) fn words(line: &str) -> Result<Words, Cause> {
    let mut words = Words::default();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(end);
        let Some(tail) = tail.trim_start().strip_prefix('=') else {
            words.rest = Some(rest.to_string());
            break;
        };
        ensure(!key.is_empty(), || Cause::NoKey)?;
        let unterminated = |quote| Cause::Unterminated { quote, name: name_of(line) };
        let (value, tail) = value_after(tail).map_err(unterminated)?;
        words.pairs.push(Pair { key: key.to_string(), value, line: 0 });
        rest = tail.trim_start();
    }
    Ok(words)
}

/// The value after a `=`, and the rest. After a blank, only a word that is no pair itself is the value, so that `KEY= OTHER=1`
/// leaves KEY empty.
///
/// # Errors
/// A quote that is opened and not closed.
fn value_after(text: &str) -> Result<(String, &str), char> {
    let next = text.trim_start();
    let end =
        next.find(|c: char| c == '=' || c.is_whitespace() || c == '"' || c == '\'').unwrap_or(next.len());
    if next.len() != text.len() && next[end..].trim_start().starts_with('=') {
        return Ok((String::new(), next));
    }
    value(next)
}

/// The value that a text starts with, up to a blank outside quotes; the quotes go.
fn value(text: &str) -> Result<(String, &str), char> {
    let mut value = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c.is_whitespace() {
            break;
        }
        let tail = &rest[c.len_utf8()..];
        if c == '"' || c == '\'' {
            let (inside, after) = tail.split_once(c).ok_or(c)?;
            value.push_str(inside);
            rest = after;
        } else {
            value.push(c);
            rest = tail;
        }
    }
    Ok((value, rest))
}

/// The beginning of a line.
pub(super) fn name_of(line: &str) -> String {
    line.split('=').next().unwrap_or_default().trim().to_owned()
}

/// The line up to the first `#` that is not inside quotes.
pub(crate) fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return &line[..at],
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    line
}

/// A value written so that reading gives it back.
pub(crate) fn quoted(value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "\"'#=".contains(c));
    if is_plain {
        return value.to_string();
    }
    if !value.contains('"') {
        return format!("\"{value}\"");
    }
    // Pieces in single quotes, and the single quotes between them in double ones.
    let pieces: Vec<_> = value.split('\'').map(|piece| format!("'{piece}'")).collect();
    pieces.join("\"'\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(line: &str) -> Vec<(String, String)> {
        let words = words(line).unwrap();
        assert_eq!(words.rest, None, "{line}");
        words.pairs.into_iter().map(|pair| (pair.key, pair.value)).collect()
    }

    fn expect(line: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(pairs(line), expected, "{line}");
    }

    #[test]
    fn pairs_are_separated_by_blanks() {
        expect(
            "GROUPS=host1  POWER=psu1\tSWITCH=0",
            &[("GROUPS", "host1"), ("POWER", "psu1"), ("SWITCH", "0")],
        );
        expect("   ", &[]);
    }

    #[test]
    fn an_equals_sign_may_be_in_a_value_and_blanks_around_the_first() {
        expect("SCR_PREFIX=\"/my/dir/with/=/sign\"", &[("SCR_PREFIX", "/my/dir/with/=/sign")]);
        expect("A=b=c==", &[("A", "b=c==")]);
        expect("A = b  C= d", &[("A", "b"), ("C", "d")]);
        expect("A= B=1", &[("A", ""), ("B", "1")]);
        expect("A=", &[("A", "")]);
    }

    #[test]
    fn quotes_keep_blanks_and_go() {
        expect("A=\"two words\" B='it\"s'", &[("A", "two words"), ("B", "it\"s")]);
        expect("A=x\"y z\"w", &[("A", "xy zw")]);
        expect("A=\"\"", &[("A", "")]);
    }

    #[test]
    fn a_word_without_equals_sign_ends_the_pairs() {
        let words = words("CKPT=0 TYPE").unwrap();
        assert_eq!(words.pairs.len(), 1);
        assert_eq!(words.rest.as_deref(), Some("TYPE"));
    }

    #[test]
    fn an_open_quote_and_a_missing_key_are_faults() {
        assert_eq!(words("A=\"b c"), Err(Cause::Unterminated { quote: '"', name: "A".to_owned() }));
        assert_eq!(words("=5"), Err(Cause::NoKey));
    }

    #[test]
    fn a_comment_starts_outside_quotes_only() {
        assert_eq!(without_comment("A=1 # don't"), "A=1 ");
        assert_eq!(without_comment("A=\"x#y\"#z"), "A=\"x#y\"");
        assert_eq!(without_comment("# all"), "");
    }

    #[test]
    fn quoted_text_reads_back_the_same() {
        for value in
            ["plain", "two words", "a=b", "#1", "it's", "say \"x\"", "", "ünï", "a\tb", "both \" and ' '"]
        {
            let line = format!("K={}", quoted(value));
            expect(without_comment(&line), &[("K", value)]);
        }
    }
}
