//! Reads a file that several ranks of a node have from the prefix directory once: the first of them copies it, and the others
//! link that copy into their own parts, like ranks that write a file together.

use super::aggregated::Within;
use super::{Fetch, Rules};
use crate::cache::record::FileRecord;
use scr_base::fs::verify::{checksum, compare, open_whole, FileError};
use scr_base::fs::{retried, At, Kind};
use scr_comm::placement::Placement;
use scr_comm::Rank;
use scr_prefix::{FileName, PrefixFile};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Which ranks share a node, and where they put files.
#[derive(Clone, Copy)]
pub(crate) struct Mates<'a> {
    pub(crate) nodes: &'a Placement,
    /// The place for a file of a rank of this node.
    pub(crate) path_of: &'a dyn Fn(Rank, &FileName) -> PathBuf,
}

/// A file of this rank.
#[derive(Serialize, Deserialize)]
pub(super) struct Mine {
    pub(super) file: PrefixFile,
    /// The rank of this node that copies it, if that is another one.
    pub(super) copied_by: Option<Rank>,
    /// Its place, if in a container.
    pub(super) within: Option<Within>,
}

impl Fetch<'_> {
    /// The list of each rank's files, with who copies them: of the ranks of a node in these lists the first.
    pub(super) fn lists_for_ranks(&self, by_rank: &[(Rank, Vec<PrefixFile>)]) -> Vec<(Rank, Vec<Mine>)> {
        let mates = self.mates.filter(|_| !self.options.bypass);
        let mut first: HashMap<(u32, &FileName), Rank> = HashMap::new();
        let mut lists = Vec::new();
        for &(rank, ref files) in by_rank {
            let node = mates.map(|mates| mates.nodes.number(rank));
            let mine = files.iter().map(|file| {
                let copied_by = node.map(|node| *first.entry((node, &file.name)).or_insert(rank));
                let copied_by = copied_by.filter(|&copied_by| copied_by != rank);
                Mine { file: file.clone(), copied_by, within: None }
            });
            lists.push((rank, mine.collect()));
        }
        lists
    }

    /// Takes the copy that another rank of this node has made of a file. If that cannot be linked, or is not what was recorded,
    /// the file is read once more in the prefix directory: only what lies there can prove that the dataset is damaged.
    pub(super) fn take(
        &self,
        rules: &Rules<'_>,
        file: &PrefixFile,
        copy: &Path,
        path: &Path,
    ) -> Result<FileRecord, FileError> {
        self.link_copy(rules, file, copy, path).or_else(|_| {
            // It may be a link, to the very copy: what is written there would be written into that.
            self.files.remove_if_there(path)?;
            retried(self.files, |_| self.bring_one(rules, file, Some(path)))
        })
    }

    fn link_copy(
        &self,
        rules: &Rules<'_>,
        file: &PrefixFile,
        copy: &Path,
        path: &Path,
    ) -> Result<FileRecord, FileError> {
        let source = self.prefix.file(&file.name);
        let status = self.files.status(&source).at("look at", &source)?;
        if status.kind != Kind::File {
            // Nothing but the file that it leads to has the mode and the time.
            return Err(FileError::NotAFile { path: source });
        }
        self.files.link(copy, path).at("link", path)?;
        let (open, copied) = open_whole(self.files, path, file.bytes)?;
        let crc = checksum(&*open, path, self.options.block_bytes)?;
        compare(path, file.crc.filter(|_| (rules.sums)(&file.name)), Some(crc))?;
        let (name, mode, mtime) = (file.name.clone(), status.mode, status.mtime);
        Ok(FileRecord { name, bytes: copied.len, crc: Some(crc), mode, mtime })
    }
}
