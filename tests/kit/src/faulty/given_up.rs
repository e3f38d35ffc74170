//! Bytes that only seem to be stored after a failed sync: the system may have dropped it, and the next sync succeeds without it.

use super::{Operation, What};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The files of which bytes, or the name, could not be synced, and were not made again since. The files that were `there` had
/// names that were not synced.
pub fn given_up(there: impl IntoIterator<Item = PathBuf>, done: &[Operation]) -> BTreeSet<PathBuf> {
    let mut there: BTreeSet<PathBuf> = there.into_iter().collect();
    let (mut new, mut names, mut bytes) = (there.clone(), BTreeSet::new(), BTreeSet::new());
    for Operation { what, path, to, failed, .. } in done {
        match (what, to) {
            (What::OpenToWrite, _) if !failed && there.insert(path.clone()) => _ = new.insert(path.clone()),
            // A file that was not there was not renamed.
            (What::Rename, Some(to)) if !failed && there.remove(path) => {
                [&mut new, &mut names].into_iter().for_each(|all| _ = (all.remove(path), all.remove(to)));
                there.insert(to.clone());
                new.insert(to.clone());
                bytes.remove(to);
                if bytes.remove(path) {
                    bytes.insert(to.clone());
                }
            }
            (What::Sync, _) if *failed => _ = bytes.insert(path.clone()),
            (What::SyncDir, _) => {
                let synced: Vec<_> = new.iter().filter(|name| name.parent() == Some(path)).cloned().collect();
                new.retain(|name| !synced.contains(name));
                names.extend(synced.into_iter().filter(|_| *failed));
            }
            (What::RemoveFile, _) if !failed => {
                [&mut there, &mut new, &mut names, &mut bytes]
                    .into_iter()
                    .for_each(|all| _ = all.remove(path));
            }
            _ => (),
        }
    }
    names.extend(bytes);
    names
}
