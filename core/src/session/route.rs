//! Names of files: from what the application says to the name below the prefix directory; and those that got no path.
//!
//! See the guide's `SCR_Route_file`: a relative name starts at the current folder, and the path must resolve to a place
//! under the prefix directory.

use super::{Error, Phase, Session};
use crate::job::Job;
use crate::prefix::{real, FileName};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Files of the dataset being written that this rank could not be given a path for, each with the reason.
#[derive(Debug, Default)]
pub(super) struct Unrouted(BTreeMap<PathBuf, String>);

impl Unrouted {
    /// A dataset must not count that lacks a file which the application wanted in it, though it calls that one valid: it
    /// may not look at what `SCR_Route_file` returns.
    pub(super) fn expect_none(&self) -> Result<(), String> {
        let Some((path, why)) = self.0.first_key_value() else { return Ok(()) };
        let others = match self.0.len() - 1 {
            0 => String::new(),
            others => format!(", and for {others} more"),
        };
        Err(format!(
            "SCR_Route_file has failed for {}{others}, and the dataset would be without it: {why}",
            path.display()
        ))
    }
}

impl Session {
    /// Notes that a file of the dataset being written has no path, so that the dataset does not become complete unless
    /// that file is routed after all. Local; without effect outside an output phase.
    pub fn note_unrouted(&mut self, name: &[u8], why: String) {
        let path = self.named(name);
        if let Phase::Output(output) = &mut self.phase {
            output.unrouted.0.insert(path, why);
        }
    }

    pub(super) fn note_routed(&mut self, name: &[u8]) {
        let path = self.named(name);
        if let Phase::Output(output) = &mut self.phase {
            output.unrouted.0.remove(&path);
        }
    }

    fn named(&self, name: &[u8]) -> PathBuf {
        lexical(&self.job.env.current_dir.join(OsStr::from_bytes(name)))
    }
}

/// The name below the prefix directory of a file that the application calls `name`.
pub(crate) fn below_prefix(job: &Job, name: &[u8]) -> Result<FileName, Error> {
    let given = String::from_utf8_lossy(name);
    if name.is_empty() || name.ends_with(b"/") {
        return Err(Error::Argument { what: format!("`{given}' names no file") });
    }
    let path = lexical(&job.env.current_dir.join(OsStr::from_bytes(name)));
    let prefix = job.prefix.dir();
    let below = strip(&path, prefix).or_else(|| strip(&real(job.files(), &path), &real(job.files(), prefix)));
    let below = below.ok_or_else(|| Error::Argument {
        what: format!(
            "{} lies outside the prefix directory {}; \
             give a path under it, or set SCR_PREFIX to a folder that holds all files",
            path.display(),
            prefix.display()
        ),
    })?;
    if below.is_empty() {
        return Err(Error::Argument {
            what: format!("`{given}' is the prefix directory itself and no file"),
        });
    }
    // What can never get there is told now, and not at a flush in an hour.
    FileName::parse(&below).map_err(|error| Error::Argument { what: error.to_string() })
}

fn strip(path: &Path, prefix: &Path) -> Option<Vec<u8>> {
    Some(path.strip_prefix(prefix).ok()?.as_os_str().as_bytes().to_vec())
}

/// Takes `.` and `..` out of an absolute path.
fn lexical(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => _ = done.pop(),
            Component::CurDir => (),
            other => done.push(other),
        }
        done
    })
}
