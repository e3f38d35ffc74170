//! Copies the parts of a dataset in the cache of one node to the prefix directory: the files of the application beside their own
//! paths, redundancy files and filemaps to the folder of the dataset. See docs/user/save-a-dead-job.md.
//!
//! Each part is copied independently of the others. A part that cannot be copied is reported and counts as lost. A file gets its
//! name once its last byte is safe, and a part gets its filemap once its files are there. Checksums are computed in the same
//! pass, and recorded if there were none.

use super::build::described;
use super::filemap::ScavengedMap;
use super::place::{being_copied, ScavengedPart};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::node_dir;
use crate::cache::part::{look_through, PartDir, PartPlace};
use crate::cache::record::{DatasetKey, RankRecord};
use scr_base::ensure;
use scr_base::fs::copy::{Attributes, Copy};
use scr_base::fs::verify::{checksum, compare, open_whole, FileError};
use scr_base::fs::{At, Durability, Files, FsError, How, OwnedDir};
use scr_base::parallel::at_a_time;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{FileName, Overwritten, Prefix, PrefixError, PrefixId, Rank2File, DIR_MODE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Copies from the caches of one node.
#[derive(Clone, Copy)]
pub struct Copier<'a> {
    /// The file layer.
    pub files: &'a dyn Files,
    /// The destination.
    pub prefix: &'a Prefix,
    /// The node that copies.
    pub uid: u32,
    /// The name of this node.
    pub node: &'a str,
    /// Bytes per block: `SCR_FILE_BUF_SIZE`.
    pub block_bytes: u64,
    /// The number of parts that are copied at a time.
    pub width: u32,
    /// Called again and again with the number of further bytes that are copied, and the number of all bytes.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// The parts of a dataset that a node had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The dataset's number in the prefix directory and its name, where the node has anything of it.
    #[serde(skip)]
    pub dataset: Option<(u64, Vec<u8>)>,
    /// The dataset is complete in the prefix directory and its files are there, so nothing was copied.
    pub already: bool,
    /// The copied parts.
    pub parts: Vec<CopiedPart>,
    /// Ranks whose parts other nodes, which see them too, have copied meanwhile.
    pub elsewhere: Vec<u32>,
    /// Parts that are useless, and why.
    pub passed_over: Vec<String>,
}

/// One rank's part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedPart {
    /// Its owner.
    pub rank: u32,
    /// Files that were copied, with the redundancy file.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Why files are missing.
    pub wrong: Vec<String>,
    /// Whether it may be no more than that a file could not be read or written here and now.
    pub may_be_there: bool,
}

impl Copied {
    /// Whether the node had something of the dataset, and all of it is in the prefix directory now.
    pub fn is_whole(&self) -> bool {
        let found = !self.parts.is_empty() || !self.elsewhere.is_empty();
        self.already || found && self.parts.iter().all(|part| part.wrong.is_empty())
    }
}

/// The file layer through which no link in the cache directories is followed; `None` where there are none.
pub fn held(files: &dyn Files, caches: &[OwnedDir]) -> Option<Arc<dyn Files>> {
    caches.iter().fold(None, |held: Option<Arc<dyn Files>>, cache| {
        Some(cache.held_in(held.as_deref().unwrap_or(files)))
    })
}

impl Copier<'_> {
    /// Copies what the cache directories have of dataset `id`.
    ///
    /// # Errors
    /// The prefix directory cannot be read or written. Problems of a part are in its entry.
    pub fn dataset(&self, caches: &[OwnedDir], id: u64) -> Result<Copied, PrefixError> {
        let held = held(self.files, caches);
        let files = held.as_deref().unwrap_or(self.files);
        let this = Copier { files, ..*self };
        let mut copied = Copied::default();
        let mut parts = this.find(caches, id, &mut copied.passed_over)?;
        // A flush of a dead job may have packed files, and nobody ends it with those.
        for (part, _) in parts.iter().filter(|(part, _)| !part.is_held(files)) {
            let _ = files.remove_if_there(&part.container());
        }
        let key = |(_, map): &(PartDir, ScavengedMap)| DatasetKey::of(&map.record);
        // An id may have been used twice where ids could not be reserved; the newer dataset counts.
        let Some(newest) = parts.iter().max_by_key(|part| key(part)) else { return Ok(copied) };
        let (seq, name) = (newest.1.record.seq(), newest.1.record.dataset.name.clone());
        let listed = LedgerDir { files: this.files, prefix: this.prefix }.index()?.entry(id);
        copied.already = listed.is_some_and(|entry| entry.is_valid() && entry.name == name)
            && Rank2File::loss(this.files, this.prefix, id)?.is_none();
        copied.dataset = Some((id, name));
        if copied.already {
            return Ok(copied);
        }
        // A part that only reads what lies there would take the place of one that has files of its own.
        let is_in_place = |(_, map): &(PartDir, ScavengedMap)| map.record.protection.bypass;
        let is_described = parts.iter().any(is_in_place)
            && described(this.files, this.prefix, id).is_some_and(|dataset| dataset.seq() == seq);
        parts.retain(|part| part.1.record.seq() == seq && !(is_described && is_in_place(part)));
        let newest = parts.iter().map(key).max();
        parts.retain(|part| Some(key(part)) == newest);
        this.prefix.make_scr_dir(this.files)?;
        this.prefix.make_dataset_dir(this.files, id)?;
        let names = parts.iter().flat_map(|(_, map)| map.record.files.iter().map(|file| &file.name));
        this.prefix.expect_all_unlinked(this.files, this.uid, names)?;
        let saved = |map: &ScavengedMap| map.saved(this.files, this.prefix);
        let total = parts.iter().map(|(_, map)| bytes_of(map)).fold(0, u64::saturating_add);
        let parts: Vec<_> = parts.into_iter().map(|(part, map)| (saved(&map), part, map)).collect();
        let all = at_a_time(this.width, &parts, |(before, part, map)| {
            let rank = map.record.rank;
            if saved(map) != *before {
                return Ok(Err(rank.0));
            }
            let to = ScavengedPart { prefix: this.prefix, id, rank };
            this.part(part, map.clone(), &to, &|bytes| (this.progress)(bytes, total)).map(Ok)
        });
        for part in all.into_iter().collect::<Result<Vec<_>, _>>()? {
            match part {
                Ok(part) => copied.parts.push(part),
                Err(rank) => copied.elsewhere.push(rank),
            }
        }
        copied.parts.sort_by_key(|part| part.rank);
        Ok(copied)
    }

    /// The parts of this prefix directory.
    fn find(
        &self,
        caches: &[OwnedDir],
        id: u64,
        passed_over: &mut Vec<String>,
    ) -> Result<Vec<(PartDir, ScavengedMap)>, PrefixError> {
        let prefix_id = PrefixId::read(self.files, self.prefix)?;
        let mut parts: Vec<(PartDir, ScavengedMap)> = Vec::new();
        for cache in caches.iter().flat_map(|cache| self.places(cache.path())) {
            let found = look_through(self.files, &cache);
            passed_over.extend(found.errors.iter().map(|error| scr_base::describe(error)));
            for (folder, rank) in found.parts {
                let part = PartDir::new(&cache, folder, rank);
                match ScavengedMap::read(self.files, self.prefix, &part, prefix_id.as_ref()) {
                    Ok(map) if map.record.dataset.id == id => parts.push((part, map)),
                    Err(error) if folder == id => {
                        let why = scr_base::describe(&error);
                        passed_over.push(format!("{}: {why}", part.filemap().display()));
                    }
                    Ok(_) | Err(_) => (),
                }
            }
        }
        Ok(parts)
    }

    /// The folders of parts in a cache directory. On a path that several nodes see, each begins with its own folder and goes
    /// on with the next one, so that what a lost node has left is saved by one that has done its own, and seldom by two.
    fn places(&self, cache: &Path) -> Vec<PathBuf> {
        let mut nodes = node_dir::all(self.files, cache).unwrap_or_default();
        let own = nodes.iter().position(|dir| dir.is_of(self.node));
        nodes.rotate_left(own.unwrap_or(0));
        std::iter::once(cache.to_owned()).chain(nodes.into_iter().map(|dir| dir.path)).collect()
    }

    fn part(
        &self,
        from: &PartDir,
        mut map: ScavengedMap,
        to: &ScavengedPart<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<CopiedPart, PrefixError> {
        let mut copied = CopiedPart { rank: map.record.rank.0, ..CopiedPart::default() };
        let mut folders = BTreeSet::from([self.prefix.dataset_dir(to.id)]);
        let record = map.record.clone();
        // As a run does it: who looks at the part later compares lengths only.
        let noted = |in_files: bool, came: Result<u32, FileError>| {
            let is_wrong = matches!(came, Err(FileError::Checksum { .. })) && !record.protection.bypass;
            if is_wrong && !Journal::is_held(self.files, &from.filemap()) {
                let _unnoted = Journal::add(self.files, from, &[Entry::WrongBytes { in_files }]);
            }
            came
        };
        for file in &mut map.record.files {
            let source = PartPlace::file(from, &record, file);
            let target = to.file(&record, file);
            folders.extend(target.parent().map(Path::to_owned));
            let (mode, mtime) = (file.mode & 0o777, file.mtime);
            // If it was written to since, it counts as lost, as at a restart.
            let unchanged = file.is_known_by_time();
            let wanted = Wanted { bytes: file.bytes, crc: file.crc, mode, mtime, unchanged };
            let came = match self.is_overwritten(&record, &file.name) {
                Ok(true) => Err(FileError::Changed { path: source }),
                Ok(false) => self.file(&source, &target, &wanted, to.id, progress),
                Err(error) => Err(error.into()),
            };
            file.crc = copied.count(file.bytes, noted(true, came)).or(file.crc);
        }
        if let Some(kept) = record.redundancy {
            let (crc, mode, mtime) = (Some(kept.crc), 0o600, (0, 0));
            let wanted = Wanted { bytes: kept.bytes, crc, mode, mtime, unchanged: false };
            let (source, target) = (from.redundancy(), to.redundancy());
            let came = self.file(&source, &target, &wanted, to.id, progress);
            copied.count(kept.bytes, noted(false, came));
        }
        for folder in folders.iter().filter(|folder| self.files.status(folder).is_ok()) {
            if let Err(error) = self.files.sync_dir(folder) {
                copied.wrong.push(format!("cannot sync {}: {error}", folder.display()));
            }
        }
        // The part was copied and synced, and has checksums now.
        map.record.local = map.record.local.map(|_| String::new());
        map.write(self.files, self.prefix)?;
        Ok(copied)
    }

    /// Whether a file that lies in place was given to a later dataset.
    fn is_overwritten(&self, record: &RankRecord, name: &FileName) -> Result<bool, FsError> {
        let in_place = record.protection.bypass;
        Ok(in_place && Overwritten::since(self.files, self.prefix, name, record.seq())?)
    }

    /// Copies a file, and gives its checksum. In bypass mode it is in place, and only read.
    fn file(
        &self,
        source: &Path,
        target: &Path,
        wanted: &Wanted,
        id: u64,
        progress: &dyn Fn(u64),
    ) -> Result<u32, FileError> {
        let (open, status) = open_whole(self.files, source, Some(wanted.bytes))?;
        let is_unchanged = !wanted.unchanged || status.mtime == wanted.mtime;
        ensure(is_unchanged, || FileError::Changed { path: source.to_owned() })?;
        if source == target {
            let crc = checksum(&*open, source, self.block_bytes)?;
            progress(wanted.bytes);
            return compare(source, wanted.crc, Some(crc)).map(|()| crc);
        }
        if let Some(folder) = target.parent() {
            self.files.make_dirs(folder, DIR_MODE, Durability::Synced)?;
        }
        let path = being_copied(target, id, self.node);
        let attributes = Attributes {
            bytes: wanted.bytes,
            mode: wanted.mode,
            mtime: if wanted.mtime == (0, 0) { status.mtime } else { wanted.mtime },
            atime: status.atime,
        };
        let copy = Copy { files: self.files, block_bytes: self.block_bytes, metadata: true, progress };
        let copied = copy.run(&*open, source, &path, &attributes).and_then(|crc| {
            compare(source, wanted.crc, Some(crc))?;
            let file = self.files.open(&path, How::Read).at("open", &path)?;
            file.sync().at("sync", &path)?;
            self.files.rename(&path, target).at("rename a new file to", target)?;
            Ok(crc)
        });
        copied.inspect_err(|_| _ = self.files.remove_file(&path))
    }
}

/// Bytes that are read to copy a part.
fn bytes_of(map: &ScavengedMap) -> u64 {
    let kept = map.record.redundancy.as_ref().map_or(0, |kept| kept.bytes);
    map.record.files.iter().fold(kept, |sum, file| sum.saturating_add(file.bytes))
}

/// The expected length and checksum of a copy.
struct Wanted {
    bytes: u64,
    crc: Option<u32>,
    mode: u32,
    mtime: (i64, u32),
    /// Whether the file must not have been written to since that time.
    unchanged: bool,
}

impl CopiedPart {
    fn count(&mut self, bytes: u64, outcome: Result<u32, FileError>) -> Option<u32> {
        match outcome {
            Ok(crc) => {
                self.files += 1;
                self.bytes += bytes;
                Some(crc)
            }
            Err(error) => {
                self.may_be_there |= matches!(error, FileError::Fs(_));
                self.wrong.push(error.to_string());
                None
            }
        }
    }
}
