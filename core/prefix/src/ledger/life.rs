//! The life of a dataset, for others that want its name or one of its files.

use std::fmt;

/// Who gives files the names of a dataset, or has made it complete.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum By {
    /// The application, which writes its files in place.
    Application,
    /// The flush of this token.
    Flush(String),
    /// The one that ends a scavenge of the dataset of this number.
    Saving(u64),
    /// Nobody: its files are being removed.
    Deletion,
}

/// What becomes of a dataset of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life<'a> {
    /// It counts.
    Whole,
    /// It does not count, and may still get further: a flush is on record, though it is revoked, or a run writes it, or somebody
    /// deletes it.
    UnderWay(&'a By),
    /// It does not count.
    Over,
}

impl By {
    /// Whether somebody has asked for it: a dataset is saved from a cache though it was dropped or refused, and more than once.
    pub(crate) fn is_saving(&self) -> bool {
        matches!(self, Self::Saving(_))
    }
}

/// As the index and the names of records have it.
impl From<&str> for By {
    fn from(text: &str) -> Self {
        let saved = || text.strip_prefix(SAVED)?.parse().ok().map(Self::Saving);
        match text {
            IN_PLACE => Self::Application,
            DELETION => Self::Deletion,
            token => {
                saved().filter(|by| by.to_string() == token).unwrap_or_else(|| Self::Flush(token.to_owned()))
            }
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application => f.write_str(IN_PLACE),
            Self::Flush(token) => f.write_str(token),
            Self::Saving(id) => write!(f, "{SAVED}{id}"),
            Self::Deletion => f.write_str(DELETION),
        }
    }
}

/// No token of a flush is like these.
const IN_PLACE: &str = "in place";
const DELETION: &str = "deletion";
const SAVED: &str = "scavenged.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_takes_names_is_known_again_by_the_text_in_the_index() {
        let flush = |token: &str| By::Flush(token.to_owned());
        for (text, by) in [
            ("in place", By::Application),
            ("deletion", By::Deletion),
            ("scavenged.17", By::Saving(17)),
            // These are no names of ours, and stay as they are.
            ("scavenged.017", flush("scavenged.017")),
            ("scavenged.x", flush("scavenged.x")),
            ("7.18ea.0a", flush("7.18ea.0a")),
        ] {
            assert_eq!((By::from(text), by.to_string().as_str()), (by, text));
        }
    }
}
