//! The places to look: those that were given, or those that a job that is started here would use.

use super::ScrubArgs;
use crate::environment;
use crate::output::warn;
use anyhow::{bail, Context, Result};
use scr_base::env::Env;
use scr_base::fs::{unless_missing, At, Files, OwnedDir};
use scr_config::param;
use scr_ops::scrub::find_caches;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A cache directory of this node.
    Cache(PathBuf),
    /// A prefix directory.
    Prefix(PathBuf),
}

impl Target {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Cache(_) => "cache",
            Self::Prefix(_) => "prefix",
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Cache(dir) | Self::Prefix(dir) => dir,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.path().display())
    }
}

/// The directories, and the file layer to look at them with.
pub(super) fn find(env: &Env, args: &ScrubArgs) -> Result<(Vec<Target>, Arc<dyn Files>)> {
    if args.cache.is_empty() && args.prefix.is_empty() {
        return of_a_job(env);
    }
    let mut targets = Vec::new();
    for dir in &args.cache {
        let dir = std::path::absolute(dir)?;
        let found =
            find_caches(&*env.files, &dir).with_context(|| format!("cannot look at {}", dir.display()))?;
        if found.is_empty() {
            bail!("there is no dataset in {}, nor in the folders in it", dir.display());
        }
        targets.extend(found.into_iter().map(Target::Cache));
    }
    for dir in &args.prefix {
        targets.push(Target::Prefix(std::path::absolute(dir)?));
    }
    Ok((targets, Arc::clone(&env.files)))
}

/// The user's caches on this node, and the prefix directory if there is one. Folders that another user has planted are skipped.
fn of_a_job(env: &Env) -> Result<(Vec<Target>, Arc<dyn Files>)> {
    environment::expect_places(env)?;
    let params = environment::params(env);
    let descriptors = environment::descriptors(&params)?;
    let user = params.get(&param::USER_NAME);
    let bases: BTreeSet<PathBuf> =
        descriptors.stores.iter().filter(|store| store.enabled).map(|store| store.path.clone()).collect();
    let (mut targets, mut files, mut unread) = (Vec::new(), Arc::clone(&env.files), Vec::new());
    for base in &bases {
        match OwnedDir::find(&*env.files, base, Path::new(&user), env.uid) {
            Ok(None) => (),
            Ok(Some(owned)) => {
                files = owned.held_in(&*files);
                match find_caches(&*files, owned.path()) {
                    Ok(caches) => targets.extend(caches.into_iter().map(Target::Cache)),
                    Err(error) => unread.push(error),
                }
            }
            Err(error) if error.is_not_found() => (),
            Err(error) => unread.push(error),
        }
    }
    let prefix = params.get(&param::PREFIX);
    let folder = prefix.join(".scr");
    match unless_missing(files.status(&folder).at("look at", &folder)) {
        Ok(found) => targets.extend(found.map(|_| Target::Prefix(prefix.clone()))),
        Err(error) => unread.push(error),
    }
    unread.iter().for_each(|error| warn(format_args!("not checked: {}", scr_base::describe(error))));
    if targets.is_empty() && !unread.is_empty() {
        bail!("nothing was checked, and there may be datasets");
    }
    if targets.is_empty() {
        let bases: Vec<_> = bases.iter().map(|base| base.join(&user).display().to_string()).collect();
        bail!(
            "there is nothing to look at: no dataset below {}, and no folder .scr in {}; \
             say where with --cache or --prefix",
            bases.join(", "),
            prefix.display()
        );
    }
    Ok((targets, files))
}
