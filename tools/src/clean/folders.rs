//! The folders of allocations on this node: `<base>/<user>/scr.<allocation>`, and their safe removal.
//!
//! Anybody may write to a base such as `/dev/shm`, so everything below it is reached through an [`OwnedDir`].

use crate::environment;
use crate::output::warn;
use anyhow::{Context, Result};
use scr_base::env::Env;
use scr_base::fs::{Files, FsError, Kind, OwnedDir};
use scr_config::param::{self, Origin, Params};
use scr_core::recorded_bases;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder of an allocation. It belongs to the user.
pub(super) struct JobFolder {
    pub(super) job_id: String,
    /// The user's folder.
    parent: OwnedDir,
    dir: OwnedDir,
}

/// All folders of allocations of this user, or of one of them, in every store and the control base, and in the bases that jobs
/// have recorded. A folder that belongs to somebody else, or is a link, is none. A folder that others have planted in the place
/// of the user's is `refused`; it does not keep what is in other bases.
///
/// # Errors
/// A folder cannot be listed.
pub(super) fn find(
    env: &Env,
    params: &Params,
    job_id: Option<&str>,
    refused: &mut Vec<FsError>,
) -> Result<Vec<JobFolder>> {
    let mut bases = bases(env, params, job_id)?;
    let is_wanted = |folder: &JobFolder| job_id.is_none_or(|id| id == folder.job_id);
    let mut folders = in_bases(env, params, &bases, refused)?;
    folders.retain(is_wanted);
    let recorded = folders.iter().flat_map(|folder| recorded_bases(&**folder.files(), folder.path()));
    let further: BTreeSet<_> = recorded.filter(|base| bases.insert(base.clone())).collect();
    folders.extend(in_bases(env, params, &further, refused)?.into_iter().filter(is_wanted));
    Ok(folders)
}

/// The bases of the settings, and for one allocation also the one where jobs leave their records, unless somebody who knows the
/// job has named a control directory.
pub(super) fn bases(env: &Env, params: &Params, job_id: Option<&str>) -> Result<BTreeSet<PathBuf>> {
    let descriptors = environment::descriptors(params)?;
    let stores = descriptors.stores.iter().chain([&descriptors.control]).map(|store| store.path.clone());
    let knows_job = *params.origin(&param::CNTL_BASE) == Origin::Environment;
    let record_base = env.record_base.clone().filter(|_| job_id.is_some() && !knows_job);
    Ok(stores.chain(record_base).collect())
}

fn in_bases(
    env: &Env,
    params: &Params,
    bases: &BTreeSet<PathBuf>,
    refused: &mut Vec<FsError>,
) -> Result<Vec<JobFolder>> {
    let user = params.get(&param::USER_NAME);
    let mut folders = Vec::new();
    for base in bases {
        let parent = match OwnedDir::find(&*env.files, base, Path::new(&user), env.uid) {
            Ok(Some(parent)) => parent,
            Ok(None) => continue,
            Err(error) if error.is_not_found() => continue,
            Err(error) => {
                refused.push(error);
                continue;
            }
        };
        let names = parent.files().list(parent.path());
        for name in names.with_context(|| format!("cannot list {}", parent.path().display()))? {
            let job_id = name.to_str().and_then(|name| name.strip_prefix("scr.")).filter(|id| !id.is_empty());
            let Some(job_id) = job_id.map(str::to_owned) else { continue };
            match parent.find_below(&name, env.uid) {
                Ok(Some(dir)) => folders.push(JobFolder { job_id, parent: parent.clone(), dir }),
                Ok(None) => (),
                Err(error) => warn(format_args!("not checked: {}", scr_base::describe(&error))),
            }
        }
    }
    Ok(folders)
}

/// The users that have folders of allocations in these bases: the name of the folder, and who owns it.
pub(super) fn users(env: &Env, bases: &BTreeSet<PathBuf>) -> BTreeSet<(String, u32, u32)> {
    let mut users = BTreeSet::new();
    for base in bases {
        for name in env.files.list(base).unwrap_or_default() {
            let path = base.join(&name);
            let Ok(status) = env.files.status(&path) else { continue };
            let jobs = || env.files.list(&path).unwrap_or_default();
            let is_of_scr =
                || jobs().iter().any(|job| job.to_str().is_some_and(|job| job.starts_with("scr.")));
            if let (Kind::Dir, Some(name), true) = (status.kind, name.to_str(), is_of_scr()) {
                users.insert((name.to_owned(), status.uid, status.gid));
            }
        }
    }
    users
}

impl JobFolder {
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The name of the user, as the job has it.
    pub(super) fn user(&self) -> Option<String> {
        Some(self.path().parent()?.file_name()?.to_string_lossy().into_owned())
    }

    /// The file layer for what is in it.
    pub(super) fn files(&self) -> &Arc<dyn Files> {
        self.dir.files()
    }

    /// When something in it was changed last, as far as it can be read.
    pub(super) fn last_change(&self) -> Option<SystemTime> {
        newest(&**self.files(), self.path())
    }

    /// Removes it and everything in it. Links are removed, not followed.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub(super) fn remove(&self) -> Result<()> {
        Ok(self.parent.files().remove_tree(self.path())?)
    }
}

fn newest(files: &dyn Files, path: &Path) -> Option<SystemTime> {
    let status = files.status(path).ok()?;
    let below = (status.kind == Kind::Dir).then(|| files.list(path).ok()).flatten().unwrap_or_default();
    let seconds = u64::try_from(status.mtime.0).unwrap_or(0);
    let own = UNIX_EPOCH + Duration::from_secs(seconds);
    below.iter().filter_map(|name| newest(files, &path.join(name))).chain([own]).max()
}
