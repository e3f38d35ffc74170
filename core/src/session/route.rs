//! `SCR_Route_file`: from the name that the application gives to the path at which it finds the file.
//!
//! A relative name starts at the current folder, or at the prefix directory if it would otherwise lead outside of it. The path
//! must resolve to a place under the prefix directory.

use super::other_nodes::Lending;
use super::restart_files::{FilePlace, Listed, ListedFile};
use super::{Error, Phase, Session, MAX_FILENAME};
use crate::cache::filemap::Filemap;
use crate::cache::{Cache, CachedDataset};
use crate::job::Job;
use scr_base::fs::verify::{expect_bytes, FileError};
use scr_base::fs::{How, Kind};
use scr_config::param;
use scr_plugin_api::Call;
use scr_prefix::{FileName, PrefixError};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

impl Session {
    /// Gives the path at which to access a file. Local. See the guide's `SCR_Route_file`.
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
                let in_place = output.writes_in_prefix();
                let folders = &mut self.folders;
                let below = below_prefix(&self.job, name, |path| folders.name_of(&self.job, path, in_place));
                let routed = below.and_then(|below| {
                    output.record_meant(&self.job, &below, absolute(&self.job, name))?;
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

/// The file of a checkpoint that `name` stands for, and where this rank reads it: one that it wrote, or one that another rank
/// wrote, as the ranks may share the files of a dataset. That one must be in a cache that this rank sees, or come to it from
/// another node, or be in the prefix directory. `listed` are the files of all ranks, once they are known.
fn route_restart(
    job: &Job,
    cache: &Cache,
    cached: &CachedDataset,
    name: &[u8],
    listed: &mut Option<Listed>,
    lending: Option<&mut Lending>,
) -> Result<(FileName, Vec<u8>), Error> {
    let record = &cached.record;
    // Whether the application reads the checkpoint where it lies in the prefix directory.
    let is_there = cached.prefix.has_files();
    let in_prefix = record.protection.bypass || job.params.get(&param::GLOBAL_RESTART) && is_there;
    // If another number of ranks wrote the checkpoint, no file is a rank's own: only among all files can it be said which one is
    // meant.
    let own = record.files.iter().filter(|_| record.read_by.is_none()).map(|file| &file.name);
    if let Some(own) = stands_for(job, name, &own) {
        let path = if in_prefix { job.prefix.file(own) } else { cached.part.file(own) };
        return Ok((own.clone(), readable(job, &path)?));
    }
    let below = below_prefix(job, name, |path| Ok(plain_name(job, path)))?;
    if !in_prefix && !cached.is_of_other_ranks() {
        let beside = files_beside(job, cache, cached);
        if let Some(found) = exactly(job, name, &beside.keys()) {
            return Ok((found.clone(), readable(job, &beside[found])?));
        }
    }
    if listed.is_none() && is_there {
        *listed = Some(Listed::read(job, record.id_in_prefix)?);
    }
    let found = listed.as_ref().and_then(|listed| listed.file(stands_for(job, name, &listed.names())?));
    if let Some((found, file)) = found {
        let path = match (&file.place, lending) {
            (FilePlace::Copied(copy), _) if is_whole(job, copy, file) => Some(copy.clone()),
            (FilePlace::Here(path), _) if !in_prefix => Some(path.clone()),
            (FilePlace::Away(away), Some(lending)) if !in_prefix => {
                Some(lending.get(job, cache, cached, found, away).or_else(|why| {
                    let why = scr_base::describe(&why);
                    read_instead(job, cached, found, file, &why)
                })?)
            }
            _ if in_prefix && is_there => Some(job.prefix.file(found)),
            _ if is_there => Some(recorded_in_prefix(job, found, file)?),
            _ => None,
        };
        if let Some(path) = path {
            return Ok((found.clone(), readable(job, &path)?));
        }
    }
    let resolved = match below.as_bytes() == name {
        true => String::new(),
        false => format!(" ({below} in the prefix directory)"),
    };
    let (name, cure) = (String::from_utf8_lossy(name), if in_prefix { "" } else { FILES_OF_OTHERS });
    let (rank, label) = (job.rank(), record.label());
    let what = format!("`{name}'{resolved} is not a file that rank {rank} wrote in {label}{cure}");
    Err(Error::Argument { what })
}

/// The path in the prefix directory of a file that has not come from another node.
fn read_instead(
    job: &Job,
    cached: &CachedDataset,
    name: &FileName,
    file: &ListedFile,
    why: &str,
) -> Result<PathBuf, Error> {
    let what = format!("{name} of {} has not come from another node: {why}", cached.record.label());
    if !cached.prefix.has_files() {
        return Err(Error::Unread { what });
    }
    job.report.warn_here(&format!("{what}; it is read in the prefix directory"));
    recorded_in_prefix(job, name, file)
}

/// The settings that let ranks read files that ranks on other nodes wrote.
const FILES_OF_OTHERS: &str = ", nor one in the cache of its node; with SCR_RESTART_OTHER_RANKS=1 any rank may read any file; with \
    SCR_GLOBAL_RESTART=1 the ranks read every checkpoint in the prefix directory, and with SCR_FETCH_BYPASS=1 those that are fetched";

/// The files of other ranks that lie in the cache of this one, and where. All parts were compared when the run began.
fn files_beside(job: &Job, cache: &Cache, cached: &CachedDataset) -> BTreeMap<FileName, PathBuf> {
    let mates = cache.stores()[cached.store].placement.mates(job.rank());
    let mut found = BTreeMap::new();
    for part in mates.into_iter().filter(|&mate| mate != job.rank()).map(|mate| cached.part.of_rank(mate)) {
        let record = Filemap::read(job.files(), &part).ok().and_then(|map| map.record);
        if let Some(record) = record.filter(|record| record.begun == cached.record.begun) {
            found.extend(record.files.into_iter().map(|file| (file.name.clone(), part.file(&file.name))));
        }
    }
    found
}

/// Whether a copy in cache has all bytes of a file, which only its checksum proves.
fn is_whole(job: &Job, copy: &Path, file: &ListedFile) -> bool {
    file.crc.is_some() && file.bytes.is_some() && expect_recorded(job, copy, file).is_ok()
}

/// The path of a file in the prefix directory. Nothing keeps others from replacing it meanwhile, so its bytes are compared before
/// it is read.
fn recorded_in_prefix(job: &Job, name: &FileName, file: &ListedFile) -> Result<PathBuf, Error> {
    let path = job.prefix.file(name);
    let compared = expect_recorded(job, &path, file);
    compared.map_err(|error| Error::Unread { what: scr_base::describe(&error) })?;
    Ok(path)
}

fn expect_recorded(job: &Job, path: &Path, file: &ListedFile) -> Result<(), FileError> {
    let Some(bytes) = file.bytes else { return Ok(()) };
    expect_bytes(job.files(), path, bytes, file.crc, job.params.get(&param::FILE_BUF_SIZE))
}

/// The one of these recorded names that `name` stands for. The application may have another current folder than when it wrote the
/// file, or name it otherwise: then it is that of the one file that `name` fits.
fn stands_for<'a>(
    job: &Job,
    name: &[u8],
    recorded: &(impl Iterator<Item = &'a FileName> + Clone),
) -> Option<&'a FileName> {
    // Never the base name alone where folders are given: it may belong to another rank's file.
    let ending = || {
        let given = given_name(name).filter(|given| given.folder().is_some() || !name.contains(&b'/'))?;
        let given = OsStr::from_bytes(given.as_bytes());
        let fits = |name: &&FileName| Path::new(OsStr::from_bytes(name.as_bytes())).ends_with(given);
        let mut fitting = recorded.clone().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    };
    exactly(job, name, recorded).or_else(ending)
}

/// A relative name as if the current folder were the prefix directory, and its end that no folder can change.
fn given_name(name: &[u8]) -> Option<FileName> {
    let given = (!name.starts_with(b"/")).then(|| without_dots(Path::new(OsStr::from_bytes(name))))?;
    FileName::parse(given.as_os_str().as_bytes()).ok()
}

/// As [`stands_for`], without a guess from the end of the name.
fn exactly<'a>(
    job: &Job,
    name: &[u8],
    recorded: &(impl Iterator<Item = &'a FileName> + Clone),
) -> Option<&'a FileName> {
    let named = |below: &FileName| recorded.clone().find(|recorded| *recorded == below);
    let exact = |find: fn(&Job, &Path) -> Option<PathBuf>| {
        below_prefix(job, name, |path| Ok(find(job, path))).ok().and_then(|below| named(&below))
    };
    let followed: fn(&Job, &Path) -> _ = |job, path| job.prefix.name_of(job.files(), path);
    exact(plain_name).or_else(|| exact(followed)).or_else(|| given_name(name).as_ref().and_then(named))
}

/// The name below the prefix directory of an absolute path. Links are followed only where it does not begin with that directory: a
/// file system that fails for a moment puts no path outside.
fn plain_name(job: &Job, path: &Path) -> Option<PathBuf> {
    match path.strip_prefix(job.prefix.dir()) {
        Ok(below) => Some(below.to_owned()),
        Err(_) => job.prefix.name_of(job.files(), path),
    }
}

/// The path of a file that this process can read. The application may wait for ever at anything else, such as a pipe.
fn readable(job: &Job, path: &Path) -> Result<Vec<u8>, Error> {
    let found = job.files().open(path, How::Read).and_then(|file| file.status());
    let why = match found {
        Ok(status) if status.kind == Kind::File => return path_bytes(path),
        Ok(status) => format!("it is {}", status.kind.name()),
        Err(error) => error.to_string(),
    };
    Err(Error::Argument { what: format!("{} cannot be read: {why}", path.display()) })
}

/// A path as the application gets it.
pub(super) fn path_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= MAX_FILENAME {
        let what = format!(
            "the path {} has {} bytes, and at most {} are allowed",
            path.display(),
            bytes.len(),
            MAX_FILENAME - 1
        );
        return Err(Error::Argument { what });
    }
    Ok(bytes.to_vec())
}

/// The name below the prefix directory of a file that the application calls `name`. `find` gives that of an absolute path, if it
/// is not outside.
fn below_prefix(
    job: &Job,
    name: &[u8],
    mut find: impl FnMut(&Path) -> Result<Option<PathBuf>, PrefixError>,
) -> Result<FileName, Error> {
    let given = String::from_utf8_lossy(name);
    if name.is_empty() || name.ends_with(b"/") {
        return Err(Error::Argument { what: format!("`{given}' names no file") });
    }
    let prefix = job.prefix.dir();
    let mut inside =
        |path: &Path| find(path).map_err(|error| Error::Argument { what: scr_base::describe(&error) });
    let path = absolute(job, name);
    // The prefix directory does not matter for an absolute name.
    let below = match inside(&path)? {
        None => inside(&without_dots(&prefix.join(OsStr::from_bytes(name))))?,
        found => found,
    };
    let below = below.ok_or_else(|| Error::Argument {
        what: format!(
            "{} is outside the prefix directory {}; give a path under it, or a name that is relative to it, or set \
             SCR_PREFIX to a folder that holds all files",
            path.display(),
            prefix.display()
        ),
    })?;
    if below.as_os_str().is_empty() {
        return Err(Error::Argument {
            what: format!("`{given}' is the prefix directory itself and no file"),
        });
    }
    // A name that can never get there is refused now, and not at a flush in an hour.
    FileName::parse(below.as_os_str().as_bytes()).map_err(|error| Error::Argument { what: error.to_string() })
}

/// A name from the application as an absolute path.
fn absolute(job: &Job, name: &[u8]) -> PathBuf {
    without_dots(&job.env.current_dir.join(OsStr::from_bytes(name)))
}

/// Without `.` and `..`.
fn without_dots(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => _ = done.pop(),
            Component::CurDir => (),
            other => done.push(other),
        }
        done
    })
}
