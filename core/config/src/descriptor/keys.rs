//! The keys of a descriptor line as typed values: a value that cannot be used is reported and the default counts.

use crate::param::{quote, retired, Cause, ConfigError, FromValue, Kind, Line, Origin, Problem};
use std::collections::BTreeMap;
use std::path::Path;

/// A line that is being read.
pub(super) struct Keys<'a> {
    pub(super) line: &'a Line,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Keys<'_> {
    /// Records a problem with this line.
    pub(super) fn warn(&mut self, cause: impl Into<Cause>) {
        self.problems.push(Problem::new(&self.line.origin, cause));
    }

    /// Records that it describes what another line has described.
    pub(super) fn warn_twice(&mut self, name: &str, first: &Origin) {
        if let Some(earlier) = first.place() {
            let name = quote(name);
            self.warn(format!("{name} is described a second time, after {earlier}; the line is ignored"));
        }
    }

    /// Records a problem with a key of it.
    pub(super) fn warn_of(&mut self, key: &str, cause: Cause) {
        self.problems.push(Problem::new(&self.line.origin_of(key), cause));
    }

    /// The value of a key as it is written there.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.line.item(key).map(|item| item.value.clone()).filter(|value| !value.is_empty())
    }

    /// The value of a key, or the default.
    pub(super) fn read<T: FromValue>(&mut self, key: &str, kind: Kind, default: T) -> T {
        let Some(text) = self.text(key) else { return default };
        match kind.read(&text, Path::new("/")) {
            Ok(value) => T::from_value(&value).unwrap_or(default),
            Err(rejected) => {
                self.warn_of(key, Cause::rejected(rejected, &self.line.title(key), &text));
                default
            }
        }
    }

    /// The value of a key that takes one of a few words, or the default.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)], default: T) -> T {
        let Some(text) = self.text(key) else { return default };
        if let Some((_, value)) = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text)) {
            return *value;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", words.join(", "));
        self.warn_of(key, Cause::malformed(&self.line.title(key), &text, &expected));
        default
    }

    /// All keys that are not `known`: they are for the plugin, whose manifest says which it takes.
    pub(super) fn options(&mut self, known: &[&str]) -> BTreeMap<String, String> {
        let line = self.line;
        let mut options = BTreeMap::new();
        for item in line.items.iter().filter(|item| !known.contains(&item.key.as_str())) {
            if let Some(cause) = retired(&item.key, &line.title(&item.key)) {
                self.warn_of(&item.key, cause);
                continue;
            }
            options.insert(item.key.clone(), item.value.clone());
        }
        options
    }
}

/// The same, where the run cannot continue.
pub(super) fn fatal(origin: &Origin, cause: impl Into<Cause>) -> ConfigError {
    Problem::new(origin, cause).into()
}
