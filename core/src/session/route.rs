//! `SCR_Route_file`: from the name that the application gives to the path at which it finds the file.
//!
//! A relative name starts at the current folder. One that would lead outside the prefix directory begins at that directory
//! instead, so names from different folders could become one file. Rule: ranks share a file only if they mean the same absolute
//! path. The path must resolve to a place under the prefix directory.
//!
//! Where a file is written, links are followed, or one file would have two names: not those that lead outside, which no other
//! name replaces. A link of another user is refused. In cache a file needs no look at the prefix directory, except for the first
//! one of each kind of folder.

use super::restart_files::route_restart;
use super::{Error, Phase, Session, MAX_FILENAME};
use crate::job::Job;
use crate::typed::route_values;
use scr_comm::collective::{all_reduce, Op};
use scr_comm::{CommError, Rank};
use scr_config::param::{self, normalise};
use scr_plugin_api::Call;
use scr_prefix::{FileName, Followed, PrefixError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Session {
    /// Gives the path at which to access a file. Local. See `SCR_Route_file` in docs/user/c-api.md.
    ///
    /// # Errors
    /// [`Error`] if the path is outside the prefix directory, or a file to read is not there. A dataset that is being
    /// written does not become complete then, unless this file is routed after all. If a restart then fails on this rank, that
    /// does not count against the checkpoint.
    pub fn route_file(&mut self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let _call = Call::begin();
        match &mut self.phase {
            Phase::Idle => Ok(name.to_vec()),
            Phase::Refused => Err(Error::State {
                call: "SCR_Route_file",
                now: "after a failed SCR_Start_output",
                hint: "the file would belong to no dataset; look at what that call has returned",
            }),
            Phase::Output(output) => {
                // The application writes there itself: links count now, or one file would have two names.
                let in_place = output.record.protection.bypass;
                let folders = &mut self.folders;
                let below = below_prefix(&self.job, name, |path| folders.name_of(&self.job, path, in_place));
                let routed = below.and_then(|below| {
                    output.expect_free(&self.cache, &below)?;
                    output.meant.record(&self.job, &below, absolute(&self.job, name))?;
                    output.route(&self.job, below)
                });
                let failure = routed.as_ref().err().map(|error| scr_base::describe(error));
                output.record_routed(absolute(&self.job, name), failure);
                routed
            }
            Phase::Restart { listed, meant, unrouted } => {
                let checkpoint = self.restart.checkpoint(&self.cache);
                let checkpoint =
                    checkpoint.expect("a restart phase begins with a checkpoint, and none leaves meanwhile");
                // A name that scr has given means the same in every folder.
                let gives_names = self.job.params.get(&param::RESTART_OTHER_RANKS);
                let meant_by = |file: &FileName| match gives_names && file.as_bytes() == name {
                    true => self.job.prefix.file(file),
                    false => absolute(&self.job, name),
                };
                let lending = self.lending.as_mut();
                let routed = route_restart(&self.job, &self.cache, checkpoint, name, listed, lending);
                let routed = routed.and_then(|(file, path)| {
                    meant.record(&self.job, &file, meant_by(&file))?;
                    Ok(path)
                });
                routed.inspect_err(|error| _ = unrouted.get_or_insert_with(|| scr_base::describe(error)))
            }
        }
    }

    /// Records that a file has no path. The dataset being written does not become complete then, unless that file is routed
    /// after all. A restart that fails on this rank does not count against the checkpoint. Local; without effect between phases.
    pub fn record_unrouted(&mut self, name: &[u8], why: String) {
        match &mut self.phase {
            Phase::Output(output) => output.record_routed(absolute(&self.job, name), Some(why)),
            Phase::Restart { unrouted, .. } => _ = unrouted.get_or_insert(why),
            Phase::Idle | Phase::Refused => (),
        }
    }
}

/// A path as the application gets it.
pub(super) fn path_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= MAX_FILENAME {
        return Err(Error::Argument(format!(
            "the path {} has {} bytes, and at most {} are allowed",
            path.display(),
            bytes.len(),
            MAX_FILENAME - 1
        )));
    }
    Ok(bytes.to_vec())
}

/// The name below the prefix directory of a file that the application calls `name`. `find` gives that of an absolute path, if it
/// is not outside.
pub(super) fn below_prefix(
    job: &Job,
    name: &[u8],
    mut find: impl FnMut(&Path) -> Result<Option<PathBuf>, PrefixError>,
) -> Result<FileName, Error> {
    let given = String::from_utf8_lossy(name);
    if name.is_empty() || name.ends_with(b"/") {
        return Err(Error::Argument(format!("`{given}' names no file")));
    }
    let prefix = job.prefix.dir();
    let mut inside = |path: &Path| find(path).map_err(|error| Error::Argument(scr_base::describe(&error)));
    let path = absolute(job, name);
    // The prefix directory does not matter for an absolute name.
    let below = match inside(&path)? {
        None => inside(&normalise(&prefix.join(OsStr::from_bytes(name))))?,
        found => found,
    };
    let below = below.ok_or_else(|| {
        Error::Argument(format!(
            "{} is outside the prefix directory {}; give a path under it, or a name that is relative to it, or set \
             SCR_PREFIX to a folder that holds all files",
            path.display(),
            prefix.display()
        ))
    })?;
    if below.as_os_str().is_empty() {
        return Err(Error::Argument(format!("`{given}' is the prefix directory itself and no file")));
    }
    // A name that can never get there is refused now, and not at a flush in an hour.
    FileName::parse(below.as_os_str().as_bytes()).map_err(|error| Error::Argument(error.to_string()))
}

/// A name from the application as an absolute path.
fn absolute(job: &Job, name: &[u8]) -> PathBuf {
    normalise(&job.env.current_dir.join(OsStr::from_bytes(name)))
}

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
    /// [`PrefixError::Unusable`], or what the system reports.
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
            let fault = "is a symbolic link that leads to the same folder as another one, and one file could belong to two \
                         datasets; use the same link for both";
            return Err(PrefixError::unusable(dir.join(&found.below), fault));
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

/// The meaning of the names of a phase on this rank.
#[derive(Default)]
pub(super) struct MeantPaths {
    /// For each name the path that is meant, if that is not the file of this name below the prefix directory.
    pub(super) paths: BTreeMap<FileName, Option<PathBuf>>,
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
        let [failed] = all_reduce(&*job.comm, [u64::from(own.is_err())], Op::Sum)?;
        Ok((own, failed))
    }

    /// As [`compare`](Self::compare), where the kinds are still to be summed up.
    pub(super) fn compare_all(&self, job: &Job) -> Result<Result<(), ApartError>, CommError> {
        let kinds = all_reduce(&*job.comm, self.kinds(job), Op::Sum)?;
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
        Error::Argument(apart.to_string())
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
