//! The names below the prefix directory of the files that an application writes.
//!
//! Links are followed now, or one file would have two names: not those that lead outside, which no other name replaces. A link of
//! another user is refused. In cache a file needs no look at the prefix directory, except for the first one of each kind of
//! folder.

use crate::job::Job;
use scr_prefix::{Followed, PrefixError};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The knowledge about the folders below the prefix directory.
#[derive(Default)]
pub(super) struct Folders {
    /// Folders that led through no link, without the numbers in their names: another checkpoint has another number.
    plain: HashSet<Vec<u8>>,
    /// Folders or files outside that links lead to, and the names of them that count.
    outside: BTreeMap<PathBuf, PathBuf>,
}

impl Folders {
    /// The name below the prefix directory of the file that is written at an absolute path: in place, or in cache first. `None`
    /// if it leads outside.
    ///
    /// # Errors
    /// [`PrefixError::Linked`], or what the system reports.
    pub(super) fn name_of(
        &mut self,
        job: &Job,
        path: &Path,
        in_place: bool,
    ) -> Result<Option<PathBuf>, PrefixError> {
        let dir = job.prefix.dir();
        let as_given = || path.strip_prefix(dir).ok().map(Path::to_owned);
        // A file that is a link itself is written through in place, and a flush replaces it.
        let file = path.file_name().filter(|_| !in_place && path != dir);
        let to_follow = file.and_then(|_| path.parent()).unwrap_or(path);
        let given = to_follow.strip_prefix(dir).ok();
        let shape = given.map(shape).filter(|_| !in_place);
        if shape.as_ref().is_some_and(|shape| self.plain.contains(shape)) {
            return Ok(as_given());
        }
        // While the prefix directory is away, nothing is known of links.
        let Some(found) = job.prefix.follow(job.files(), to_follow)? else { return Ok(as_given()) };
        let name = file.map_or_else(|| found.below.clone(), |file| found.below.join(file));
        if found.real == to_follow {
            self.plain.extend(shape);
        } else {
            self.expect_own(job, given.unwrap_or(&found.below), &found)?;
        }
        Ok(Some(name))
    }

    /// Expects that the links on the way belong to this user, and that no other name leads to the same place outside.
    fn expect_own(&mut self, job: &Job, given: &Path, found: &Followed) -> Result<(), PrefixError> {
        let dir = job.prefix.dir();
        for folder in
            given.ancestors().chain(found.below.ancestors()).filter(|name| !name.as_os_str().is_empty())
        {
            job.prefix.is_own_link(job.files(), job.env.uid, &dir.join(folder))?;
        }
        if job.prefix.is_below(job.files(), &found.real) {
            return Ok(());
        }
        let first = self.outside.entry(found.real.clone()).or_insert_with(|| found.below.clone());
        if *first != found.below {
            let fault = " that leads to the same folder as another one, and one file could belong to two datasets; use the same \
                         link for both";
            return Err(PrefixError::Linked { path: dir.join(&found.below), fault: fault.to_owned() });
        }
        Ok(())
    }
}

/// The name of a folder with one mark for each number in it.
fn shape(folder: &Path) -> Vec<u8> {
    let mut shape = folder.as_os_str().as_bytes().to_vec();
    shape.iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|byte| *byte = NUMBER);
    shape.dedup_by(|byte, before| *byte == NUMBER && *before == NUMBER);
    shape
}

/// No name has it.
const NUMBER: u8 = 0;
