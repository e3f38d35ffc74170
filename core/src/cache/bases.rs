//! The places where an allocation keeps datasets on a node, for those who clean up after it. An epilog has none of the settings
//! of the job, so each node of a job has a file in the place that every installation knows:
//! `<base>/<user>/scr.<allocation>/bases`.
//!
//! The file only adds places to look at. It is an aid, and a job that cannot write it says so and continues.

use crate::job::{job_folder, Job};
use scr_base::env::Env;
use scr_base::fs::{Durability, Files, FsError, OwnedDir};
use scr_comm::Rank;
use scr_plugin_api::KvTree;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first rank of each node records the bases of the job, if one of them is not where everybody looks.
pub(crate) fn record(job: &Job) {
    let rank: Rank = job.rank();
    let Some(known) = job.env.record_base.as_deref().filter(|_| job.nodes.leader(rank) == rank) else {
        return;
    };
    let stores = job.descriptors.enabled();
    let bases: BTreeSet<&Path> =
        stores.chain([&job.descriptors.control]).map(|store| store.path.as_path()).collect();
    if bases.iter().all(|base| *base == known) {
        return;
    }
    if let Err(error) = add(&job.env, known, &job_folder(&job.params), &bases) {
        job.report.warn(&format!(
            "`scr clean' does not find what this job leaves on this node, unless it has the same settings: {}",
            scr_base::describe(&error)
        ));
    }
}

/// Adds bases to the record of a job.
fn add(env: &Env, known: &Path, job_folder: &Path, bases: &BTreeSet<&Path>) -> Result<(), FsError> {
    let folder = OwnedDir::make_in(&*env.files, known, job_folder, env.uid)?;
    let files = &**folder.files();
    let mut all = recorded(files, folder.path());
    all.extend(bases.iter().map(|base| base.to_path_buf()));
    let mut tree = KvTree::new();
    for base in &all {
        tree.child("BASE").child(base.as_os_str().as_bytes());
    }
    files.write_tree(&folder.path().join(NAME), &tree, 0o600, Durability::Unsynced)
}

/// The bases that a job has recorded in its folder. Only absolute paths count.
pub fn recorded(files: &dyn Files, job_folder: &Path) -> BTreeSet<PathBuf> {
    let tree = files.read_tree(&job_folder.join(NAME)).ok().flatten().unwrap_or_default();
    let bases = tree.get("BASE").into_iter().flat_map(KvTree::keys);
    let bases = bases.map(|base| PathBuf::from(OsStr::from_bytes(base)));
    bases.filter(|base| base.is_absolute()).collect()
}

const NAME: &str = "bases";

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::TestEnv;
    use std::sync::Arc;

    #[test]
    fn the_bases_of_all_runs_of_an_allocation_are_recorded_and_damage_is_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::getuid().as_raw();
        let env = TestEnv::new(Arc::new(RealFiles), "/").with_user("ann", uid).env();
        let record = |bases: &[&str]| {
            let bases = bases.iter().map(Path::new).collect();
            add(&env, dir.path(), Path::new("ann/scr.7"), &bases).unwrap();
        };
        record(&["/ssd", "/dev/shm"]);
        record(&["/local", "relative"]);
        let folder = dir.path().join("ann/scr.7");
        let found = recorded(&RealFiles, &folder);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["/dev/shm", "/local", "/ssd"].map(PathBuf::from));
        (&RealFiles as &dyn Files)
            .write_atomic(&folder.join(NAME), b"damaged", 0o600, Durability::Unsynced)
            .unwrap();
        assert!(recorded(&RealFiles, &folder).is_empty());
        assert!(recorded(&RealFiles, dir.path()).is_empty());
    }
}
