//! Deletes datasets with their files without a job. See the guide's `scr index --delete`.

use super::dropping::{drop_dataset, Dropped};
use super::OpsError;
use scr_base::fs::Files;
use scr_comm::thread;
use scr_core::delete::Deleting;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::Prefix;

/// Deletes the datasets of a name with their files in the prefix directory, as `SCR_Delete` does in a job, and then drops the
/// name.
///
/// # Errors
/// [`OpsError`]. A dataset that was only partly deleted is invalid, and can be deleted again.
pub fn delete_dataset(files: &dyn Files, prefix: &Prefix, name: &[u8]) -> Result<Dropped, OpsError> {
    let index = LedgerDir { files, prefix }.index()?;
    let listed = index.entries().into_iter().filter(|entry| entry.name == name).map(|entry| entry.id);
    let mut ids = index.others_named(name, 0);
    ids.extend(listed);
    ids.sort_unstable();
    ids.dedup();
    let mut notes = Vec::new();
    for &id in &ids {
        let done = thread::run(1, |comm| {
            Deleting { comm: &comm, files, node: "this machine", prefix, run: 0 }.run(id)
        })?;
        notes.extend(done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten());
    }
    let mut dropped = drop_dataset(files, prefix, name)?;
    dropped.found |= !ids.is_empty();
    Ok(Dropped { notes, ..dropped })
}
