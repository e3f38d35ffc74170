//! The key that somebody means who writes one that a descriptor line does not have.

use super::{redundancy, store};
use crate::param::nearest;

/// The key that somebody means who writes `key` on a line of this kind, which has no such key. `of_plugin` are the options of the
/// plugin that the line is for.
pub fn meant<'a>(kind: &str, key: &str, of_plugin: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (own, others, other_kind) = match kind {
        "STORE" => (store::KEYS, redundancy::KEYS, "CKPT"),
        _ => (redundancy::KEYS, store::KEYS, "STORE"),
    };
    let is_key = |known: &&str| known.eq_ignore_ascii_case(key);
    let other_word = OTHER_WORDS.iter().find(|(of, word, _)| *of == kind && is_key(word));
    let of_other_kind = others.iter().find(|known| is_key(known));
    let of_other_kind = of_other_kind.map(|known| format!("{known} on a {other_kind} line"));
    let meant = other_word.map(|(_, _, meant)| (*meant).to_owned()).or(of_other_kind);
    meant.or_else(|| nearest(key, own.iter().copied().chain(of_plugin)))
}

/// Words that other libraries, older versions and pages have for a key: the kind of line, the word, and the key.
const OTHER_WORDS: &[(&str, &str, &str)] = &[
    ("STORE", "TYPE", "FLUSH"),
    ("STORE", "TRANSPORT", "FLUSH"),
    ("STORE", "BYTES", "SIZE"),
    ("STORE", "CAPACITY", "SIZE"),
    ("STORE", "NUM", "COUNT"),
    ("CKPT", "BASE", "STORE"),
    ("CKPT", "COPY_TYPE", "TYPE"),
    ("CKPT", "SCHEME", "TYPE"),
];
