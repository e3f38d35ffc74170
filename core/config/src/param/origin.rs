//! The place where a setting was made.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileLine {
    /// Which file.
    #[serde(with = "as_os_str")]
    pub file: Arc<Path>,
    /// Which line, from 1; 0 stands for the whole file.
    pub line: u32,
}

/// How paths are written: they need not be UTF-8.
pub mod as_os_str {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    /// As `serde` wants it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    /// As `serde` wants it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn deserialize<'de, P: From<PathBuf>, D: Deserializer<'de>>(from: D) -> Result<P, D::Error> {
        OsString::deserialize(from).map(|path| PathBuf::from(path).into())
    }
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// An environment variable of the same name.
    Environment,
    /// The user's configuration file.
    UserFile(FileLine),
    /// The application, through `SCR_Config`.
    Application,
    /// The site's configuration file.
    SystemFile(FileLine),
    /// The build of the library: another default than usual.
    Build,
    /// The default.
    Default,
}

impl Origin {
    /// Whether somebody has set it.
    pub fn is_set(&self) -> bool {
        !matches!(self, Origin::Build | Origin::Default)
    }

    /// Whether the user of the job has set it, and not the site.
    pub fn is_of_user(&self) -> bool {
        matches!(self, Origin::Environment | Origin::UserFile(_) | Origin::Application)
    }

    /// The same file at another line; 0 stands for this one.
    pub(crate) fn at_line(&self, line: u32) -> Self {
        let mut origin = self.clone();
        if let (Self::UserFile(place) | Self::SystemFile(place), 1..) = (&mut origin, line) {
            place.line = line;
        }
        origin
    }

    /// The line of the file, where it comes from one.
    pub fn place(&self) -> Option<&FileLine> {
        match self {
            Origin::UserFile(place) | Origin::SystemFile(place) => Some(place),
            _ => None,
        }
    }
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => self.file.display().fmt(f),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Environment => f.write_str("environment"),
            Origin::UserFile(place) | Origin::SystemFile(place) => place.fmt(f),
            Origin::Application => f.write_str("SCR_Config"),
            Origin::Build => f.write_str("build"),
            Origin::Default => f.write_str("default"),
        }
    }
}
