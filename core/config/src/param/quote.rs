//! Texts of users as messages quote them: short, on one line, without secrets; and the known name they may have meant.

use super::table::{find, TABLE};
use super::value::Kind;

/// Text of a user on one short line, without secrets.
pub fn quote(text: &str) -> String {
    const LONGEST: usize = 120;
    let mut quoted = String::new();
    if let Some(before) = before_secret(text) {
        return quote(before) + " ...";
    }
    for c in text.chars().take(LONGEST) {
        // Invisible characters too, such as a blank without width.
        if c.escape_debug().len() > 1 && !"\"'\\".contains(c) {
            quoted.extend(c.escape_debug());
        } else {
            quoted.push(c);
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        quoted.push_str("...");
    }
    quoted
}

/// The allowed range. The largest number that fits is named only where the value exceeds it.
pub(super) fn range(found: &str, least: &str, most: &str) -> String {
    if found.starts_with('-') && most == u64::MAX.to_string() {
        format!("{least} or more")
    } else {
        format!("within {least} to {most}")
    }
}

/// The text before a secret: up to the name of a parameter that holds one, or a name that may stand for it.
fn before_secret(text: &str) -> Option<&str> {
    let mut start = 0;
    let ends = text.match_indices(|c: char| c.is_whitespace() || "=:".contains(c));
    let mut words = ends.map(|(end, mark)| {
        let word = (end, &text[start..end]);
        start = end + mark.len();
        word
    });
    words.find(|(_, word)| is_secret(word)).map(|(end, _)| &text[..end])
}

/// Whether a name, even mistyped, is that of a parameter with a secret value.
fn is_secret(name: &str) -> bool {
    let likely = nearest(name, TABLE.iter().map(|info| info.name));
    likely.and_then(|name| find(&name)).is_some_and(|info| info.kind == Kind::Secret)
}

/// A variable in the value of a parameter; a `$` in a secret may be part of the secret.
pub(super) fn of_value(name: &str, variable: &str) -> String {
    if is_secret(name) {
        "a variable".to_owned()
    } else {
        format!("${variable}")
    }
}

pub fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean {name}?")).unwrap_or_default()
}

/// The known name that a mistyped one most likely means: few letters differ for its length; case does not count.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let wanted = name.to_ascii_uppercase();
    let (distance, nearest) = known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &candidate.to_ascii_uppercase()), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= (wanted.chars().count() / 4).max(1)).then(|| nearest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["SCR_CACHE_SIZE", "SCR_CACHE_BASE", "SCR_FLUSH"];
        assert_eq!(nearest("SCR_CACHE_SZIE", known).as_deref(), Some("SCR_CACHE_SIZE"));
        assert_eq!(nearest("scr_flush", known).as_deref(), Some("SCR_FLUSH"));
        assert_eq!(nearest("SCR_SOMETHING_ELSE", known), None);
        assert_eq!(nearest(&"A".repeat(100_000), known), None);
    }

    #[test]
    fn user_input_is_quoted_briefly_on_one_line() {
        assert_eq!(quote("a\nb\u{7}'\"\\é"), "a\\nb\\u{7}'\"\\é");
        assert_eq!(quote("SCR_FLUSH\u{200b}"), "SCR_FLUSH\\u{200b}");
        assert_eq!(quote(&"x".repeat(10_000)).len(), 123);
    }
}
