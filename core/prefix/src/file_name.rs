//! The name of a file below the prefix directory.
//!
//! Names come from the application, from records in cache, from lists that another job or C SCR wrote, and from other ranks.
//! None of them may lead out of the prefix directory or into the library's own folder there. So a name is checked once, when it
//! is parsed, and a holder of a [`FileName`] need not check it again.

use scr_base::ensure;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The longest name in bytes: C SCR keeps names in buffers of one byte more.
pub const MAX_NAME_BYTES: usize = 1023;
/// The most bytes that Linux allows for one part of a path.
const MAX_PART_BYTES: usize = 255;
/// The library's own folder.
const HIDDEN: &[u8] = b".scr";
/// The name of a container, before the number of its dataset and before that of its node.
const CONTAINERS: &str = ".scr/scr.dataset.";
const CONTAINER: &str = "/container.";

/// The name of a file, relative to the prefix directory: parts separated by single slashes, none of them empty, `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FileName(Box<[u8]>);

/// A name that cannot be used below the prefix directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name `{name}' cannot be used below the prefix directory: {fault}")]
pub struct FileNameError {
    /// The name.
    pub name: String,
    /// Its fault.
    pub fault: FileNameFault,
}

/// The fault of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileNameFault {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It is longer than C SCR can read.
    #[error("it has 1024 bytes or more")]
    TooLong,
    /// It has a NUL byte.
    #[error("it has a NUL byte in it")]
    Nul,
    /// It has an empty part: so it is absolute, or the name of a folder, or has two slashes in a row.
    #[error("it begins or ends with a slash, or has two in a row")]
    EmptyPart,
    /// It has a part that is no name.
    #[error("it has a `.' or `..' in it")]
    Dots,
    /// It leads out of the prefix directory, or to no file.
    #[error("it leads out of that directory, or to no file")]
    Outside,
    /// It has a part that no file system takes.
    #[error("a part of it has more than 255 bytes")]
    PartTooLong,
    /// It lies in the library's own folder.
    #[error("`.scr' belongs to the library")]
    Reserved,
}

impl FileName {
    /// Takes a name as it is.
    ///
    /// # Errors
    /// The name is not in its shortest form, leads out of the prefix directory, or cannot be the name of a file there.
    pub fn parse(name: &[u8]) -> Result<Self, FileNameError> {
        match check(name) {
            Ok(()) => Ok(Self(name.into())),
            Err(fault) => Err(FileNameError { name: String::from_utf8_lossy(name).into_owned(), fault }),
        }
    }

    /// Takes a name in any form, as lists of C SCR have it, and brings it into its shortest form.
    ///
    /// # Errors
    /// The name leads out of the prefix directory, or cannot be the name of a file there.
    pub fn shortened(name: &[u8]) -> Result<Self, FileNameError> {
        let outside = || FileNameError {
            name: String::from_utf8_lossy(name).into_owned(),
            fault: FileNameFault::Outside,
        };
        Self::parse(&shortest(name).ok_or_else(outside)?)
    }

    /// The container of a dataset that a node has packed its files into.
    pub fn container(id: u64, node: u32) -> Self {
        Self(format!("{CONTAINERS}{id}{CONTAINER}{node}").into_bytes().into())
    }

    /// Whether it is the name of a container.
    pub fn is_container(&self) -> bool {
        is_container(&self.0)
    }

    /// Takes a name as file lists have it: that of a file of the application, or of a container.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_listed(name: &[u8]) -> Result<Self, FileNameError> {
        if is_container(name) {
            return Ok(Self(name.into()));
        }
        Self::parse(name)
    }

    /// Takes the name of a listed file, or of a folder that one lies in, from another rank of this job.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn from_rank(name: &[u8]) -> Result<Self, FileNameError> {
        Self::parse(name).or_else(|error| match error.fault {
            FileNameFault::Reserved => Ok(Self(name.into())),
            _ => Err(error),
        })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its last part: what the file is called in cache.
    pub fn base(&self) -> &[u8] {
        self.0.rsplit(|&byte| byte == b'/').next().unwrap_or(&self.0)
    }

    /// The folder it lies in; `None` for the prefix directory itself.
    pub fn folder(&self) -> Option<FileName> {
        let slash = self.0.iter().rposition(|&byte| byte == b'/')?;
        self.0.get(..slash).map(|folder| Self(folder.into()))
    }

    /// The folders it lies in below the prefix directory, from the nearest one up.
    pub fn folders(&self) -> impl Iterator<Item = FileName> {
        std::iter::successors(self.folder(), FileName::folder)
    }

    /// Its path below this prefix directory.
    pub fn below(&self, prefix: &Path) -> PathBuf {
        prefix.join(OsStr::from_bytes(&self.0))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl AsRef<[u8]> for FileName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for FileName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// A character for each byte, as a name need not be UTF-8.
impl From<FileName> for String {
    fn from(FileName(name): FileName) -> Self {
        name.iter().copied().map(char::from).collect()
    }
}

impl TryFrom<String> for FileName {
    type Error = FileNameError;

    fn try_from(text: String) -> Result<Self, FileNameError> {
        // No name has a NUL.
        let name: Vec<u8> = text.chars().map(|one| u8::try_from(one).unwrap_or(0)).collect();
        Self::from_rank(&name)
    }
}

impl FromStr for FileName {
    type Err = FileNameError;

    fn from_str(name: &str) -> Result<Self, FileNameError> {
        Self::parse(name.as_bytes())
    }
}

/// The path of the file into which `target` is copied: hidden, in the same folder, and with a name of its own for each flush.
/// A rename makes the copy count, so a late copy of another flush cannot touch it.
pub fn staging_file(target: &Path, token: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let ending = format!(".{token}.part");
    let most = MAX_PART_BYTES.saturating_sub(ending.len() + 1);
    let mut staging = vec![b'.'];
    if name.len() <= most {
        staging.extend(name);
    } else {
        let sum = format!("~{:08x}", crc32fast::hash(name));
        staging.extend(&name[..most.saturating_sub(sum.len())]);
        staging.extend(sum.as_bytes());
    }
    staging.extend(ending.as_bytes());
    target.with_file_name(OsStr::from_bytes(&staging))
}

/// Only the way we write numbers counts.
fn is_container(name: &[u8]) -> bool {
    let is_number = |digits: &str| digits.parse().is_ok_and(|number: u64| number.to_string() == digits);
    let name = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(CONTAINERS));
    name.and_then(|name| name.split_once(CONTAINER))
        .is_some_and(|(id, node)| is_number(id) && is_number(node))
}

fn check(name: &[u8]) -> Result<(), FileNameFault> {
    ensure(!name.is_empty(), || FileNameFault::Empty)?;
    ensure(name.len() <= MAX_NAME_BYTES, || FileNameFault::TooLong)?;
    ensure(!name.contains(&0), || FileNameFault::Nul)?;
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" => return Err(FileNameFault::EmptyPart),
            b"." | b".." => return Err(FileNameFault::Dots),
            part if part.len() > MAX_PART_BYTES => return Err(FileNameFault::PartTooLong),
            _ => {}
        }
    }
    ensure(name.split(|&byte| byte == b'/').next() != Some(HIDDEN), || FileNameFault::Reserved)
}

/// A name without `.`, `..` and empty parts; `None` where it leads out of the prefix directory or is that of a folder.
fn shortest(name: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => parts.push(part.as_bytes()),
            Component::CurDir => (),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let is_folder = name.ends_with(b"/") || name.ends_with(b"/.") || name.ends_with(b"/..");
    (!parts.is_empty() && !is_folder).then(|| parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_the_prefix() {
        let prefix = Path::new("/pfs");
        let name = FileName::parse(b"ckpt.1/rank_0").unwrap();
        assert_eq!(name.below(prefix), Path::new("/pfs/ckpt.1/rank_0"));
        let long = [b'a'; 1024];
        let part = [b'a'; 256];
        for (name, fault) in [
            (&b""[..], FileNameFault::Empty),
            (b"/etc/passwd", FileNameFault::EmptyPart),
            (b"../x", FileNameFault::Dots),
            (b"a/../../x", FileNameFault::Dots),
            (b"a//b", FileNameFault::EmptyPart),
            (b"a/", FileNameFault::EmptyPart),
            (b"a/./b", FileNameFault::Dots),
            (b"a\0b", FileNameFault::Nul),
            (b".scr/x", FileNameFault::Reserved),
            (&long, FileNameFault::TooLong),
            (&part, FileNameFault::PartTooLong),
        ] {
            let error = FileName::parse(name).unwrap_err();
            assert_eq!(error.fault, fault, "{error}");
            assert!(error.to_string().contains("cannot be used below the prefix directory"), "{error}");
        }
    }

    #[test]
    fn a_name_in_any_form_is_shortened_or_refused() {
        for (name, shortened) in [
            (&b"ckpt.1/rank_0"[..], Some(&b"ckpt.1/rank_0"[..])),
            (b"./a//b/./c", Some(b"a/b/c")),
            (b"a/../b", Some(b"b")),
            (b"\xff/\x01", Some(b"\xff/\x01")),
            (b"a/../../b", None),
            (b"../b", None),
            (b"/etc/passwd", None),
            (b"", None),
            (b".", None),
            (b"a/..", None),
            (b"a/", None),
            (b"a/.", None),
            (b"./.scr/index.scr", None),
            (b"a/../.scr/index.scr", None),
        ] {
            let found = FileName::shortened(name).ok();
            assert_eq!(
                found.as_ref().map(FileName::as_bytes),
                shortened,
                "{:?}",
                String::from_utf8_lossy(name)
            );
        }
    }

    /// An application that could route a file there would write into a dataset that is complete.
    #[test]
    fn only_lists_may_name_a_container() {
        let name = FileName::container(7, 12);
        assert_eq!(name.as_bytes(), b".scr/scr.dataset.7/container.12");
        assert!(name.is_container() && FileName::parse_listed(name.as_bytes()).unwrap() == name);
        assert!(FileName::parse(name.as_bytes()).is_err() && FileName::shortened(name.as_bytes()).is_err());
        for other in [
            "a",
            ".scr/index.scr",
            ".scr/scr.dataset.7/container.",
            ".scr/scr.dataset.7/container.01",
            ".scr/scr.dataset.+7/container.1",
            ".scr/scr.dataset.7/x/container.1",
            ".scr/scr.dataset.7/container.1/container.2",
            "./.scr/scr.dataset.7/container.1",
        ] {
            let listed = FileName::parse_listed(other.as_bytes());
            assert!(listed.is_ok_and(|name| !name.is_container()) == (other == "a"), "{other}");
        }
    }

    #[test]
    fn a_staging_file_lies_beside_its_target_under_a_name_of_its_own() {
        let staging = |name: &str| staging_file(&Path::new("/pfs/d").join(name), "7.x");
        assert_eq!(staging("f"), Path::new("/pfs/d/.f.7.x.part"));
        // If it fits, it shows the whole name.
        let longest = "a".repeat(MAX_PART_BYTES - "..7.x.part".len());
        assert_eq!(staging(&longest), Path::new(&format!("/pfs/d/.{longest}.7.x.part")));
        let (one, two) = (staging(&("a".repeat(254) + "1")), staging(&("a".repeat(254) + "2")));
        assert_ne!(one, two);
        assert_eq!(one.file_name().unwrap().len(), MAX_PART_BYTES);
    }

    #[test]
    fn base_and_folder_are_what_the_last_slash_separates() {
        let name: FileName = "a/b/c".parse().unwrap();
        assert_eq!((name.base(), name.folder()), (&b"c"[..], Some("a/b".parse().unwrap())));
        let name: FileName = "c".parse().unwrap();
        assert_eq!((name.base(), name.folder()), (&b"c"[..], None));
    }
}
