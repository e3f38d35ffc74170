//! Scrub: reads everything that is recorded and compares it, on demand, and changes nothing.
//!
//! A [`Plan`] is made from the records: [`Plan::of_cache`] for a cache directory of this node, [`Plan::of_prefix`] for a prefix
//! directory. [`Plan::run`] then reads the bytes. It needs no other rank, so it works without a job.
//!
//! | part | what it does |
//! |---|---|
//! | `cached` | what the filemaps of a cache directory record |
//! | `prefixed` | what the index, the summaries and the file lists of a prefix directory record |

mod cached;
mod prefixed;

use crate::BLOCK_BYTES;
pub use cached::find_caches;
use scr_base::fs::verify::{checksum_with, compare, open_whole, FileError};
use scr_base::fs::{Files, FsError, MAX_TREE_BYTES};
use scr_core::cache::filemap::{self as journal, Filemap};
use scr_plugin_api::KvTree;
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// The files to read, and the findings so far.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Each that has been inspected, with the files of it that are still to be read.
    datasets: Vec<(Dataset, Vec<Read>)>,
    general: Vec<Item>,
}

/// The findings in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// By dataset, the oldest first.
    pub datasets: Vec<Dataset>,
    /// Findings that belong to no dataset.
    pub general: Vec<Item>,
}

/// One dataset in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dataset {
    /// Its number.
    pub id: u64,
    /// Its name, empty if it is not known.
    pub name: String,
    /// Its state, in a word or two.
    pub state: String,
    /// Of one in a cache directory, which many share, the prefix directory that it belongs to; empty if that is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The subject of the check.
    #[serde(skip)]
    pub items: Vec<Item>,
}

/// One file that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Its path.
    #[serde(serialize_with = "for_people")]
    pub path: PathBuf,
    /// Its kind.
    pub kind: ItemKind,
    /// The rank it belongs to, where it belongs to one.
    pub rank: Option<u32>,
    /// Its length, as far as recorded.
    #[serde(skip)]
    pub bytes: u64,
    /// Whether it is as recorded.
    #[serde(flatten)]
    pub verdict: Verdict,
}

fn for_people<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// A file of the application.
    Data,
    /// The redundancy file of a rank.
    Redundancy,
    /// The record of a rank's part in cache.
    Filemap,
    /// The list of datasets of a prefix directory.
    Index,
    /// The summary of a dataset in a prefix directory.
    Summary,
    /// The lists of the files of a dataset in a prefix directory.
    #[serde(rename = "file list")]
    FileList,
}

/// Whether a file is as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// Its length and its checksum are.
    Intact,
    /// Nothing is known to be wrong, but not everything could be compared.
    Unverified {
        /// The unreadable ones, and why.
        #[serde(rename = "found")]
        why: String,
    },
    /// It is not: what was found, and the consequence or the cure.
    Wrong { found: String, now: String },
}

/// A file that is still to be read.
#[derive(Debug, Clone)]
struct Read {
    path: PathBuf,
    kind: ItemKind,
    rank: u32,
    bytes: Option<u64>,
    crc: Option<u32>,
    /// The message if it is wrong.
    now: String,
}

impl Plan {
    /// Whether nothing of what was wanted is there.
    pub fn is_empty(&self) -> bool {
        self.datasets.is_empty()
    }

    /// The names of the datasets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.datasets.iter().map(|(dataset, _)| &*dataset.name)
    }

    /// The bytes that [`run`](Self::run) will read.
    pub fn bytes(&self) -> u64 {
        let reads = self.datasets.iter().flat_map(|(_, reads)| reads).filter(|read| read.crc.is_some());
        reads.fold(0, |sum, read| sum.saturating_add(read.bytes.unwrap_or(0)))
    }

    /// Reads everything, and calls `progress` with the number of bytes that have just been read.
    pub fn run(self, files: &dyn Files, progress: &mut dyn FnMut(u64)) -> Report {
        let mut report = Report { datasets: Vec::new(), general: self.general };
        for (mut dataset, reads) in self.datasets {
            dataset.items.extend(reads.into_iter().map(|wanted| {
                let looked = look(files, &wanted, progress);
                let Read { path, kind, rank, bytes, now, .. } = wanted;
                let verdict = looked.unwrap_or_else(|error| Verdict::Wrong { found: error.to_string(), now });
                Item { path, kind, rank: Some(rank), bytes: bytes.unwrap_or(0), verdict }
            }));
            report.datasets.push(dataset);
        }
        report
    }
}

impl Report {
    /// Everything that was checked.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.general.iter().chain(self.datasets.iter().flat_map(|dataset| &dataset.items))
    }

    /// Whether nothing is wrong.
    pub fn is_intact(&self) -> bool {
        !self.items().any(|item| matches!(item.verdict, Verdict::Wrong { .. }))
    }
}

/// Whether a dataset is the wanted one, by its name or its number; where none is named, all are wanted.
fn is_wanted(wanted: Option<&str>, id: u64, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == name || wanted.parse() == Ok(id))
}

/// A filemap as a tree, for people to read.
///
/// # Errors
/// If it cannot be read. A damaged file gives only what could be read.
pub fn filemap(files: &dyn Files, path: &Path) -> Result<KvTree, FsError> {
    Ok(journal::as_tree(&Filemap::parse(&files.read_all(path, MAX_TREE_BYTES)?)))
}

/// Compares length and checksum, as far as they are recorded.
fn look(files: &dyn Files, wanted: &Read, progress: &mut dyn FnMut(u64)) -> Result<Verdict, FileError> {
    let (file, _) = open_whole(files, &wanted.path, wanted.bytes)?;
    let Some(expected) = wanted.crc else {
        let what = if wanted.bytes.is_some() { "only its length is recorded" } else { "nothing is recorded" };
        return Ok(Verdict::Unverified { why: format!("no checksum: {what}") });
    };
    let found = checksum_with(&*file, &wanted.path, BLOCK_BYTES, progress)?;
    compare(&wanted.path, Some(expected), Some(found)).map(|()| Verdict::Intact)
}
