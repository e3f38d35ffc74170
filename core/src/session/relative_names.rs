//! The absolute paths that the ranks mean by the names that they route in a phase.
//!
//! A relative name that leads outside the prefix directory begins at that directory instead. So names from different folders
//! could become one file. Rule: ranks share a file only if they mean the same absolute path.

use crate::job::Job;
use crate::session::Error;
use crate::typed::route_values;
use scr_comm::collective::{all_reduce, Op};
use scr_comm::{CommError, Rank};
use scr_prefix::FileName;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The meaning of the names of a phase on this rank.
#[derive(Default)]
pub(super) struct MeantPaths {
    /// For each name the path that is meant, if that is not the file of this name below the prefix directory.
    paths: BTreeMap<FileName, Option<PathBuf>>,
}

/// How many ranks mean paths below the prefix directory, the same below the folder in which all ranks began, and others.
pub(super) type Kinds = [u64; 3];

impl MeantPaths {
    /// Records that this rank means `path` by what is the file `name` below the prefix directory. Local.
    ///
    /// # Errors
    /// It has meant another path by it.
    pub(super) fn record(&mut self, job: &Job, name: &FileName, path: PathBuf) -> Result<(), ApartError> {
        let is_it = |below: PathBuf| below.as_os_str().as_bytes() == name.as_bytes();
        let is_inside =
            path == job.prefix.file(name) || job.prefix.name_of(job.files(), &path).is_some_and(is_it);
        let meant = (!is_inside).then_some(path);
        let known = self.paths.entry(name.clone()).or_insert_with(|| meant.clone());
        if *known == meant {
            return Ok(());
        }
        Err(ApartError::of(job, name, [(job.rank(), known.clone()), (job.rank(), meant)]))
    }

    /// The kinds of paths that this rank means, to be summed up over all ranks.
    pub(super) fn kinds(&self, job: &Job) -> Kinds {
        let mut kinds = [0; 3];
        for (name, path) in &self.paths {
            let is_common =
                |path: &Path| job.folder.as_ref().is_some_and(|folder| path == name.below(folder));
            kinds[path.as_ref().map_or(0, |path| if is_common(path) { 1 } else { 2 })] = 1;
        }
        kinds
    }

    /// Finds a name by which two ranks mean different paths; `kinds` is the sum over all ranks. One rank at least has the error
    /// then, and all get their number. Collective.
    pub(super) fn compare(
        &self,
        job: &Job,
        kinds: Kinds,
    ) -> Result<(Result<(), ApartError>, u64), CommError> {
        // From one folder, different paths have different names.
        if matches!(kinds, [_, 0, 0] | [0, _, 0]) {
            return Ok((Ok(()), 0));
        }
        let own = self.differing(job)?;
        let mut failed = [u64::from(own.is_err())];
        all_reduce(&*job.comm, &mut failed, Op::Sum)?;
        Ok((own, failed[0]))
    }

    /// As [`compare`](Self::compare), where the kinds are still to be summed up.
    pub(super) fn compare_all(&self, job: &Job) -> Result<Result<(), ApartError>, CommError> {
        let mut kinds = self.kinds(job);
        all_reduce(&*job.comm, &mut kinds, Op::Sum)?;
        Ok(self.compare(job, kinds)?.0)
    }

    /// The checksum of a name selects the rank that compares all paths that are meant by it.
    fn differing(&self, job: &Job) -> Result<Result<(), ApartError>, CommError> {
        let question = |(name, path): (&FileName, &Option<PathBuf>)| {
            let asked = Rank(crc32fast::hash(name.as_bytes()) % job.comm.size());
            (asked, (name.clone(), path.clone().map(PathBuf::into_os_string)))
        };
        let asked = route_values(&*job.comm, &self.paths.iter().map(question).collect::<Vec<_>>())?;
        let mut first = HashMap::new();
        for (rank, (name, path)) in &asked {
            let (other, meant) = first.entry(name).or_insert((*rank, path));
            if *meant != path {
                let of_rank = |rank, path: &Option<OsString>| (rank, path.clone().map(PathBuf::from));
                return Ok(Err(ApartError::of(job, name, [of_rank(*other, meant), of_rank(*rank, path)])));
            }
        }
        Ok(Ok(()))
    }
}

/// One file would stand for two.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} of rank {} and {} of rank {} would both be the file {}, since a relative name that leads outside the prefix directory \
     begins at that directory; start all ranks in the same folder, or give each file a path of its own under the prefix \
     directory, or set SCR_PREFIX to a folder in which the folders of all ranks lie",
    paths[0].display(), ranks[0], paths[1].display(), ranks[1], file.display()
)]
pub(super) struct ApartError {
    file: PathBuf,
    ranks: [Rank; 2],
    paths: [PathBuf; 2],
}

impl From<ApartError> for Error {
    fn from(apart: ApartError) -> Self {
        Error::Argument { what: apart.to_string() }
    }
}

impl ApartError {
    /// Two ranks mean these paths by a name; where there is none, the file of this name below the prefix directory.
    fn of(job: &Job, name: &FileName, meant: [(Rank, Option<PathBuf>); 2]) -> Self {
        let file = job.prefix.file(name);
        let [(rank, one), (other, another)] = meant;
        let path = |meant: Option<PathBuf>| meant.unwrap_or_else(|| file.clone());
        Self { ranks: [rank, other], paths: [path(one), path(another)], file }
    }
}
