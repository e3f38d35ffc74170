//! A path in a value of ours, as text with a character for each byte: a path need not be UTF-8.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// As `serde` wants it.
///
/// # Errors
/// It cannot be written.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.as_os_str().as_bytes().iter().copied().map(char::from).collect::<String>())
}

/// As `serde` wants it.
///
/// # Errors
/// It cannot be read.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(from)?;
    let bytes = text.chars().map(u8::try_from).collect::<Result<_, _>>();
    bytes.map(|bytes| OsString::from_vec(bytes).into()).map_err(D::Error::custom)
}
