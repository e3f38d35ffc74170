//! Files of a dataset that was flushed aggregated: they are copied out of its containers.
//!
//! The rank that a container is listed for reads what lies in it, and sends every rank in it its own list.

use super::shared::Mine;
use super::{Candidate, Fetch, FetchError, NotFetched};
use crate::cache::record::FileRecord;
use scr_base::fs::copy::{Attributes, Copy};
use scr_base::fs::verify::{compare, open_whole, FileError};
use scr_base::fs::{retried, File, FileRange};
use scr_prefix::container::damaged;
use scr_prefix::{Contents, DatasetDescriptor, FileName, Member, PrefixFile};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The place of a file in a container, and the properties of its copy.
#[derive(Serialize, Deserialize)]
pub(super) struct Within {
    container: FileName,
    offset: u64,
    mode: u32,
    mtime: (i64, u32),
}

/// The container that was opened last: the files of a rank mostly lie in one.
pub(super) type OpenContainer = Option<(FileName, Box<dyn File>)>;

impl Fetch<'_> {
    /// The files of this rank that lie in containers, where `listed` are containers.
    pub(super) fn read_containers(
        &self,
        candidate: &Candidate,
        dataset: &DatasetDescriptor,
        listed: Vec<Mine>,
    ) -> Result<Vec<Mine>, FetchError> {
        if !dataset.aggregated {
            return Ok(listed);
        }
        let (mut lists, mut read) = (Vec::new(), Ok(()));
        for Mine { file, .. } in &listed {
            match Contents::read(self.files, self.prefix, dataset, file) {
                Ok(contents) if contents.ranks != self.comm.size() => {
                    let reason = "it was written by another number of ranks than the file lists say";
                    read = Err(damaged(&self.prefix.file(&file.name), reason));
                }
                Ok(contents) => lists.extend(
                    contents.by_rank.iter().map(|(&rank, members)| (rank, of_container(&file.name, members))),
                ),
                Err(error) => read = Err(error),
            }
        }
        self.distribute(candidate, lists, read)
    }

    /// Copies one file out of its container.
    pub(super) fn bring_member(
        &self,
        file: &PrefixFile,
        within: &Within,
        path: Option<PathBuf>,
        open: &mut OpenContainer,
    ) -> Result<FileRecord, FileError> {
        let source = self.prefix.file(&within.container);
        let path = path.unwrap_or_else(|| self.prefix.file(&file.name));
        let bytes = file.bytes.unwrap_or(0);
        let (mode, mtime) = (within.mode, within.mtime);
        let block_bytes = self.options.block_bytes;
        let copy =
            Copy { files: self.files, block_bytes, metadata: self.options.metadata, progress: &|_| () };
        let wanted = Attributes { bytes, mode, mtime, atime: mtime };
        // As a whole: an open file may have to be opened again.
        let crc = retried(self.files, |files| {
            let (container, opened) = match open.take() {
                Some((container, opened)) if container == within.container => (container, opened),
                _ => (within.container.clone(), open_whole(files, &source, None)?.0),
            };
            let range = FileRange { file: &*opened, start: within.offset, bytes };
            let crc = copy.run(&range, &source, &path, &wanted)?;
            *open = Some((container, opened));
            Ok::<_, FileError>(crc)
        })?;
        compare(&source, file.crc, Some(crc))?;
        Ok(FileRecord { name: file.name.clone(), bytes, crc: Some(crc), mode, mtime })
    }

    /// All ranks call it.
    pub(super) fn not_in_place(&self, candidate: &Candidate) -> FetchError {
        let dataset = candidate.name_text();
        let cure = match self.options.writers {
            None => "run without SCR_GLOBAL_RESTART".to_owned(),
            Some(writers) => format!("run with {writers} ranks"),
        };
        let account = format!(
            "its files lie in containers, and are not read in place: {cure}, or write them out with \
             `scr index --extract {dataset}' and import them under another name"
        );
        FetchError::NotFetched { dataset, account, why: NotFetched::InContainers }
    }
}

/// The files of a rank in a container.
fn of_container(container: &FileName, members: &[Member]) -> Vec<Mine> {
    let mine = |member: &Member| {
        let Member { name, offset, bytes, crc, mode, mtime } = member.clone();
        let within = Some(Within { container: container.clone(), offset, mode, mtime });
        Mine { file: PrefixFile { name, bytes: Some(bytes), crc: Some(crc) }, copied_by: None, within }
    };
    members.iter().map(mine).collect()
}
