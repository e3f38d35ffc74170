//! Names below the prefix directory: which are allowed, where they lie, and what a file is called until it is whole.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why a name cannot be used below the prefix directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name `{name}' cannot be used below the prefix directory: {why}")]
pub(crate) struct NameError {
    /// The name.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Where a file lies in the end. Only names that stay below the prefix directory have such a place.
pub(crate) fn target(prefix: &Path, name: &[u8]) -> Result<PathBuf, NameError> {
    check(name).map_err(|why| NameError { name: String::from_utf8_lossy(name).into_owned(), why })?;
    Ok(prefix.join(OsStr::from_bytes(name)))
}

/// Where a mover writes it: hidden, in the same folder, and told apart by the flush it belongs to. A rename makes
/// it count, so a late mover of another flush cannot touch it.
pub(crate) fn part(target: &Path, token: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let ending = format!(".{token}.part");
    let most = LONGEST_NAME.saturating_sub(ending.len() + 1);
    let mut part = vec![b'.'];
    if name.len() <= most {
        part.extend(name);
    } else {
        let sum = format!("~{:08x}", crc32fast::hash(name));
        part.extend(&name[..most.saturating_sub(sum.len())]);
        part.extend(sum.as_bytes());
    }
    part.extend(ending.as_bytes());
    target.with_file_name(OsStr::from_bytes(&part))
}

/// The folder of a name; empty for the prefix directory itself.
pub(crate) fn folder(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &name[..slash])
}

fn check(name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.len() >= LONGEST_PATH {
        return Err("it has 1024 bytes or more");
    }
    if name.contains(&0) {
        return Err("it has a NUL byte in it");
    }
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" => return Err("it begins or ends with a slash, or has two in a row"),
            b"." | b".." => return Err("it has a `.' or `..' in it"),
            part if part.len() > LONGEST_NAME => return Err("a part of it has more than 255 bytes"),
            _ => {}
        }
    }
    if name.split(|&byte| byte == b'/').next() == Some(b".scr") {
        return Err("`.scr' belongs to the library");
    }
    Ok(())
}

/// C SCR keeps names in buffers of this size.
const LONGEST_PATH: usize = 1024;
/// What Linux allows for one part of a path.
const LONGEST_NAME: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_the_prefix() {
        let prefix = Path::new("/pfs");
        assert_eq!(target(prefix, b"ckpt.1/rank_0").unwrap(), Path::new("/pfs/ckpt.1/rank_0"));
        let long = [b'a'; 1024];
        for name in [
            &b""[..],
            b"/etc/passwd",
            b"../x",
            b"a/../../x",
            b"a//b",
            b"a/",
            b"a/./b",
            b"a\0b",
            b".scr/x",
            &long,
        ] {
            let error = target(prefix, name).unwrap_err().to_string();
            assert!(error.contains("cannot be used below the prefix directory"), "{error}");
        }
    }

    #[test]
    fn a_part_lies_beside_its_file_under_a_name_of_its_own() {
        let part_of = |name: &str| part(&Path::new("/pfs/d").join(name), "7.x");
        assert_eq!(part_of("f"), Path::new("/pfs/d/.f.7.x.part"));
        let (one, two) = (part_of(&("a".repeat(254) + "1")), part_of(&("a".repeat(254) + "2")));
        assert_ne!(one, two);
        assert_eq!(one.file_name().unwrap().len(), LONGEST_NAME);
    }

    #[test]
    fn the_folder_is_what_precedes_the_last_slash() {
        assert_eq!(folder(b"a/b/c"), b"a/b");
        assert_eq!(folder(b"c"), b"");
    }
}
