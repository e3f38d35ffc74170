//! The name of an entry of a directory, for names that come from elsewhere, such as from another rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A name without slashes and NUL that is neither empty nor `.` nor `..`. So its path lies in the directory that it is used with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryName(OsString);

impl EntryName {
    /// `None` if the bytes are no such name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
        is_name.then(|| Self(OsStr::from_bytes(name).to_owned()))
    }

    /// The entry of this name.
    pub fn below(&self, dir: &Path) -> PathBuf {
        dir.join(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        let dir = Path::new("/cache");
        for name in ["node.0", ".hidden", "...", "a b"] {
            let parsed = EntryName::parse(name.as_bytes()).map(|name| name.below(dir));
            assert_eq!(parsed, Some(dir.join(name)));
        }
        for name in ["", ".", "..", "/etc", "a/b", "../a", "a/", "a\0b"] {
            assert_eq!(EntryName::parse(name.as_bytes()), None, "{name:?}");
        }
    }
}
