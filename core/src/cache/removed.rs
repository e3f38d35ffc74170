//! Directories of the job that are removed while it runs: by a cleaner of temporary files, by the epilog of another job, or
//! by the system when the user's last session on the node ends. Their contents are lost, but later datasets are not.

use super::node_dir;
use super::{Cache, StoreInUse};
use crate::job::Job;
use scr_base::fs::{Files, FsError, OwnedDir};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

type Make = fn(&dyn Files, &Path, &Path, u32) -> Result<OwnedDir, FsError>;

impl Cache {
    /// Recreates missing directories, with all checks of a start, and warns once for each node. A directory that distinguishes
    /// nodes in storage that they share is not recreated.
    ///
    /// # Errors
    /// Something else is in the place of a directory, or it cannot be made.
    pub(super) fn remake_dirs(&mut self, job: &Job) -> Result<(), FsError> {
        let mut remade = BTreeSet::new();
        // Where other nodes see it too, a folder of this one distinguishes it.
        let nodes = job.nodes.count();
        let is_own = |store: &&mut StoreInUse| !store.is_global && store.placement.count() >= nodes;
        for store in self.stores.iter_mut().filter(is_own) {
            let Some(described) = job.descriptors.stores.iter().find(|known| known.name == store.name) else {
                continue;
            };
            let make = if described.mkdir { OwnedDir::make } else { OwnedDir::make_in };
            remade.extend(remake(job, &*self.unheld, &mut store.root, &described.path, make)?);
            remade.extend(remake_own(job, store)?);
        }
        let base = &job.descriptors.control.path;
        if *self.control.path() == base.join(job.job_folder()) {
            remade.extend(remake(job, &*self.unheld, &mut self.control, base, OwnedDir::make)?);
        }
        if job.nodes.leader(job.rank()) == job.rank() {
            for dir in remade {
                job.report.warn_here(&format!(
                    "{} was removed while the job ran, and is made again; the datasets in it are lost on this node. Exempt it \
                     from what cleans up there: tmpfiles.d, an epilog, or RemoveIPC of systemd-logind",
                    dir.display()
                ));
            }
        }
        Ok(())
    }
}

/// Makes the folder of a part of a launch again in the cache directory, with the name that it had; gives its path then.
fn remake_own(job: &Job, store: &mut StoreInUse) -> Result<Option<PathBuf>, FsError> {
    let root = store.root.path().to_owned();
    let Some(folder) = store.cache.file_name().filter(|_| job.is_part()).map(PathBuf::from) else {
        store.cache = root;
        return Ok(None);
    };
    store.cache = root.join(&folder);
    match job.files().status(&store.cache) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            store.root.make_below(&folder, job.env.uid)?;
            let name = format!("{}{}", job.nodes.name(job.rank()), store.suffix);
            node_dir::write_name(job.files(), &store.cache, &name)?;
            Ok(Some(store.cache.clone()))
        }
        _ => Ok(None),
    }
}

/// Makes a directory again if it is gone; gives its path then.
fn remake(
    job: &Job,
    unheld: &dyn Files,
    dir: &mut OwnedDir,
    base: &Path,
    make: Make,
) -> Result<Option<PathBuf>, FsError> {
    if !dir.is_gone() {
        return Ok(None);
    }
    *dir = make(unheld, base, &job.job_folder(), job.env.uid)?;
    dir.replace_in(job.files());
    Ok(Some(dir.path().to_owned()))
}
