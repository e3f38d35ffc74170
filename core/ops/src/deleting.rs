//! Deletes datasets with their files without a job. See `scr index --delete` in docs/user/datasets.md.

use super::dropping::{drop_named, Dropped};
use super::OpsError;
use scr_base::fs::Files;
use scr_comm::thread;
use scr_core::delete::Deleting;
use scr_prefix::Prefix;

/// Deletes the datasets of a name with their files in the prefix directory, as `SCR_Delete` does in a job, and drops the name.
///
/// # Errors
/// [`OpsError`]. A dataset that was only partly deleted is invalid, and can be deleted again.
pub fn delete_dataset(files: &dyn Files, prefix: &Prefix, name: &[u8]) -> Result<Dropped, OpsError> {
    drop_named(files, prefix, name, None, |ids| {
        let mut notes = Vec::new();
        for &id in ids {
            let done = thread::run(1, |comm| {
                Deleting { comm: &comm, files, node: "this machine", prefix, run: 0 }.run(id)
            })?;
            notes.extend(done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten());
        }
        Ok(notes)
    })
}
