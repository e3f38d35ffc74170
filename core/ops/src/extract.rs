//! Writes the files of a dataset out of its containers, under their names. The dataset stays as it is.
//!
//! No file is replaced: one that is there already must be the very file. Each is written under a hidden name, synced, and linked
//! to its own name, so that it is there as a whole or not at all.

use super::{OpsError, BLOCK_BYTES};
use scr_base::env::Env;
use scr_base::fs::copy::{Attributes, Copy};
use scr_base::fs::verify::{compare, expect_bytes, open_whole};
use scr_base::fs::{At, Durability, FileRange, How};
use scr_prefix::commit::{sync_folders, unused_name};
use scr_prefix::container::read_all;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{FileName, IndexEntry, Member, Prefix, Rank2File, Summary, DIR_MODE};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The files that were written out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Number of the dataset.
    pub id: u64,
    /// Files of all ranks, and how many of them were there already.
    pub files: u64,
    /// As above.
    pub already: u64,
    /// Bytes in all of them.
    pub bytes: u64,
}

/// Writes out the files of a dataset. All files of one without containers must be there.
///
/// # Errors
/// [`OpsError`]. Files written before stay, and count as there already the next time.
pub fn extract(env: &Env, prefix: &Prefix, name: &[u8]) -> Result<Extracted, OpsError> {
    let files = &*env.files;
    let index = LedgerDir { files, prefix }.index()?;
    let entry = index.id_of(name).and_then(|id| index.entry(id)).filter(IndexEntry::is_valid);
    let missing = || OpsError::NoDataset(String::from_utf8_lossy(name).into_owned());
    let id = entry.ok_or_else(missing)?.id;
    let summary = Summary::require(files, prefix, id)?;
    let lists = Rank2File::read(files, prefix, id)?;
    if !summary.dataset.aggregated {
        let (files, bytes) = (lists.files() as u64, lists.bytes().unwrap_or(0));
        return Ok(Extracted { id, files, already: files, bytes });
    }
    let mut extracted = Extracted { id, ..Extracted::default() };
    let containers = read_all(files, prefix, &summary.dataset, &lists)?;
    let all = || {
        containers
            .iter()
            .flat_map(|(name, contents)| contents.by_rank.values().flatten().map(move |m| (name, m)))
    };
    let names: BTreeSet<&FileName> = all().map(|(_, member)| &member.name).collect();
    prefix.expect_all_unlinked(files, env.uid, names.iter().copied())?;
    let mut there = BTreeSet::new();
    for (_, member) in all() {
        extracted.files += 1;
        extracted.bytes = extracted.bytes.saturating_add(member.bytes);
        if is_there(env, &prefix.file(&member.name), member)? {
            extracted.already += 1;
            there.insert(&member.name);
        }
    }
    let mut folders = BTreeSet::new();
    for (container, member) in all().filter(|(_, member)| !there.contains(&member.name)) {
        let target = prefix.file(&member.name);
        write(env, &prefix.file(container), member, &target)?;
        folders.extend(member.name.folders().map(|folder| prefix.file(&folder)));
        folders.insert(prefix.dir().to_owned());
    }
    sync_folders(files, prefix, folders.iter().map(PathBuf::as_path))?;
    Ok(extracted)
}

/// Whether a file is there, as it was written.
fn is_there(env: &Env, path: &Path, member: &Member) -> Result<bool, OpsError> {
    match env.files.status(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        status => drop(status.at("look at", path)?),
    }
    match expect_bytes(&*env.files, path, member.bytes, Some(member.crc), BLOCK_BYTES) {
        Err(error) if error.is_damage() => Err(taken(path)),
        compared => Ok(compared.map(|()| true)?),
    }
}

fn write(env: &Env, container: &Path, member: &Member, target: &Path) -> Result<(), OpsError> {
    let files = &*env.files;
    let folder = target.parent().unwrap_or(target);
    files.make_dirs(folder, DIR_MODE, Durability::Synced)?;
    let (open, _) = open_whole(files, container, None)?;
    let range = FileRange { file: &*open, start: member.offset, bytes: member.bytes };
    let staging = unused_name(target, "extract");
    let copy = Copy { files, block_bytes: BLOCK_BYTES, metadata: true, progress: &|_| () };
    let (bytes, mode, mtime) = (member.bytes, member.mode, member.mtime);
    let wanted = Attributes { bytes, mode, mtime, atime: mtime };
    let written = copy.run(&range, container, &staging, &wanted).and_then(|crc| {
        compare(container, Some(member.crc), Some(crc))?;
        // Its permissions may not let the owner write.
        files.open(&staging, How::Read).and_then(|file| file.sync()).at("sync", &staging)?;
        Ok(())
    });
    let linked = written.map_err(OpsError::from).and_then(|()| match files.link(&staging, target) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken(target)),
        linked => Ok(linked.at("link", target)?),
    });
    let removed = files.remove_if_there(&staging);
    linked.and_then(|()| Ok(removed.map(drop)?))
}

fn taken(path: &Path) -> OpsError {
    let path = path.display();
    OpsError::Refused(format!(
        "{path} is there already and is another file; move it away first. Nothing is replaced"
    ))
}
