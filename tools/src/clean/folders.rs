//! The folders of allocations on this node: `<base>/<user>/scr.<allocation>`, and their safe removal.
//!
//! Anybody may write to a base such as `/dev/shm`, so everything below it is reached through an [`OwnedDir`].

use crate::environment;
use crate::output::warn;
use anyhow::{Context, Result};
use scr_core::env::Env;
use scr_core::fs::{Files, Kind, OwnedDir};
use scr_core::param::{self, Params};
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

/// All folders of allocations of this user, in every store and the control base. A folder that belongs to somebody else, or is a
/// link, is none.
///
/// # Errors
/// A folder that others could have planted is in the place of the user's.
pub(super) fn find(env: &Env, params: &Params) -> Result<Vec<JobFolder>> {
    let descriptors = environment::descriptors(params)?;
    let bases: BTreeSet<PathBuf> =
        descriptors.stores.iter().chain([&descriptors.control]).map(|store| store.path.clone()).collect();
    let user = params.get(&param::USER_NAME);
    let mut folders = Vec::new();
    for base in bases {
        let Some(parent) = OwnedDir::find(&*env.files, &base, Path::new(&user), env.uid)? else { continue };
        let names = parent.files().list(parent.path());
        for name in names.with_context(|| format!("cannot list {}", parent.path().display()))? {
            let job_id = name.to_str().and_then(|name| name.strip_prefix("scr.")).filter(|id| !id.is_empty());
            let Some(job_id) = job_id.map(str::to_owned) else { continue };
            match OwnedDir::find(&*env.files, &base, &Path::new(&user).join(&name), env.uid) {
                Ok(Some(dir)) => folders.push(JobFolder { job_id, parent: parent.clone(), dir }),
                Ok(None) => (),
                Err(error) => warn(format_args!("not checked: {}", scr_core::describe(&error))),
            }
        }
    }
    Ok(folders)
}

impl JobFolder {
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
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
