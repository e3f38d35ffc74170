//! The folders of allocations on this node: `<base>/<user>/scr.<allocation>`, and their safe removal.
//!
//! Anybody may write to a base such as `/dev/shm`. So the user's folder is opened without following a link, its owner and
//! mode are checked, and everything below it is reached through the open folder.

use crate::environment;
use anyhow::{bail, Context, Result};
use rustix::fs::{fstat, openat, statat, AtFlags, FileType, Mode, OFlags, CWD};
use scr_core::env::Env;
use scr_core::param::{self, Params};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

/// The folder of an allocation. It belongs to the user.
pub(super) struct JobFolder {
    pub(super) job_id: String,
    name: String,
    parent: Rc<UserFolder>,
}

/// `<base>/<user>`, open.
struct UserFolder {
    path: PathBuf,
    fd: OwnedFd,
}

/// All folders of allocations of this user, in every store and the control base.
///
/// # Errors
/// A folder that belongs to somebody else is in the place of the user's.
pub(super) fn find(env: &Env, params: &Params) -> Result<Vec<JobFolder>> {
    let descriptors = environment::descriptors(params)?;
    let bases: BTreeSet<PathBuf> =
        descriptors.stores.iter().chain([&descriptors.control]).map(|store| store.path.clone()).collect();
    let user = params.get(&param::USER_NAME);
    let mut folders = Vec::new();
    for base in bases {
        let Some(parent) = UserFolder::open(&base.join(&user), env.uid)? else { continue };
        folders.extend(UserFolder::jobs(&Rc::new(parent), env.uid)?);
    }
    Ok(folders)
}

impl UserFolder {
    fn open(path: &Path, uid: u32) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot open the folder {}", path.display()))
            }
        };
        let status = fstat(&fd)?;
        if status.st_uid != uid {
            bail!("{} belongs to user {}, and not to you (user {uid})", path.display(), status.st_uid);
        }
        if status.st_mode & OTHERS_WRITE != 0 {
            bail!(
                "others may write to {}; run `chmod go-w {}' if you trust what is in it",
                path.display(),
                path.display()
            );
        }
        Ok(Some(Self { path: path.to_owned(), fd }))
    }

    /// A path that leads to the open folder, whatever has the place of its name now.
    fn pinned(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    fn jobs(this: &Rc<Self>, uid: u32) -> Result<Vec<JobFolder>> {
        let list = || format!("cannot list {}", this.path.display());
        let mut jobs = Vec::new();
        for entry in std::fs::read_dir(this.pinned()).with_context(list)? {
            let Ok(name) = entry.with_context(list)?.file_name().into_string() else { continue };
            let Some(job_id) = name.strip_prefix("scr.").filter(|id| !id.is_empty()) else { continue };
            let status = statat(&this.fd, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_ours =
                FileType::from_raw_mode(status.st_mode) == FileType::Directory && status.st_uid == uid;
            if is_ours {
                jobs.push(JobFolder {
                    job_id: job_id.to_owned(),
                    name: name.clone(),
                    parent: Rc::clone(this),
                });
            }
        }
        Ok(jobs)
    }
}

impl JobFolder {
    pub(super) fn path(&self) -> PathBuf {
        self.parent.path.join(&self.name)
    }

    /// A path that leads to this very folder.
    pub(super) fn pinned_path(&self) -> PathBuf {
        self.parent.pinned().join(&self.name)
    }

    /// When something in it was changed last, as far as it can be read.
    pub(super) fn last_change(&self) -> Option<SystemTime> {
        newest(&self.pinned_path())
    }

    /// Removes it and everything in it. Links are removed, not followed.
    pub(super) fn remove(&self) -> Result<()> {
        let removed = std::fs::remove_dir_all(self.pinned_path());
        removed.with_context(|| format!("cannot remove {}", self.path().display()))
    }
}

fn newest(path: &Path) -> Option<SystemTime> {
    let status = path.symlink_metadata().ok()?;
    let below =
        status.is_dir().then(|| std::fs::read_dir(path).ok()).flatten().into_iter().flatten().flatten();
    below.filter_map(|entry| newest(&entry.path())).chain(status.modified().ok()).max()
}

const OTHERS_WRITE: u32 = 0o022;
