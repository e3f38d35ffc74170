//! Before a flush: the ranks of a node pack their files into one container in cache, which is flushed in their place.
//!
//! All that follows takes the container for an ordinary file of the first rank of the node. Files that cannot be packed are
//! flushed file by file, so that no checkpoint is lost for that.

use super::folder_owners::{assign_owners, Sums};
use super::SourceFile;
use crate::cache::record::FileRecord;
use crate::cache::{Cache, CachedDataset};
use crate::job::Job;
use crate::typed::route_values;
use crc32fast::Hasher;
use scr_base::ensure;
use scr_base::fs::copy::write_data;
use scr_base::fs::verify::{block_size, compare, open_whole, FileError};
use scr_base::fs::{retried, zeroed, At, Files, How, MAX_TREE_BYTES};
use scr_comm::{Collective, CommError, Rank};
use scr_config::param;
use scr_prefix::ledger::{self, LedgerDir};
use scr_prefix::{Contents, DatasetDescriptor, FileName, Member, Prefix, PrefixError, Summary};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The files of a dataset that this rank flushes: its files, or, on the first rank of each node, a container, with the checksums
/// of what this rank has packed. The descriptor says which. Collective.
pub(super) fn sources(
    job: &Job,
    cache: &Cache,
    cached: &CachedDataset,
    dataset: &mut DatasetDescriptor,
    files: Vec<SourceFile>,
    is_detached: bool,
) -> Result<(Vec<SourceFile>, Sums), CommError> {
    dataset.aggregated = false;
    let as_they_are = |files| Ok((files, Sums::new()));
    if !is_wanted(job, cache, cached) {
        return as_they_are(files);
    }
    let label = cached.record.label();
    let plain = |why: &str| job.report.notice(&format!("the files of {label} are flushed one by one: {why}"));
    if is_detached {
        // The container would have to stay until somebody else ends the flush, and nobody would remove it.
        plain("their transport goes on without the application");
        return as_they_are(files);
    }
    let owners = assign_owners(&*job.comm, files.iter().map(|file| &file.name))?;
    if job.any(!owners.shared.is_empty() || owners.is_folder.is_some())? {
        plain("several ranks share one of them");
        return as_they_are(files);
    }
    match pack(job, cached, dataset, &files) {
        Ok(packed) => {
            dataset.aggregated = true;
            Ok(packed)
        }
        Err(error) => {
            let why = error.agreed()?;
            let _ = job.files().remove_if_there(&cached.part.container());
            plain(&format!("they could not be packed: {why}"));
            as_they_are(files)
        }
    }
}

/// Removes the containers of earlier runs, whose flushes have ended.
pub(super) fn remove_leftovers(job: &Job, cache: &Cache) {
    for cached in cache.datasets().iter().filter(|cached| is_wanted(job, cache, cached)) {
        // It takes room, and does no harm.
        let _ = job.files().remove_if_there(&cached.part.container());
    }
}

/// Removes the containers of datasets whose names newer ones have by now. Files under their names have been written over; nobody
/// would write over containers.
pub(super) fn remove_replaced(files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
    let index = LedgerDir { files, prefix }.index()?;
    let is_gone = |&id: &u64| index.entry(id).is_none();
    for id in prefix.dataset_ids(files)?.into_iter().filter(is_gone) {
        let Ok(Some(Summary { dataset, .. })) = Summary::read(files, prefix, id) else { continue };
        if !dataset.aggregated || !ledger::has_newer(&index, &dataset) {
            continue;
        }
        let folder = prefix.dataset_dir(id);
        let names = files.list_if_there(&folder)?;
        let of = |first: &'static [u8]| {
            names.iter().filter(move |name| name.as_os_str().as_bytes().starts_with(first))
        };
        // The summary says what to remove, and goes last.
        for name in of(b"container.").chain(of(b"rank2file")).chain(of(b"summary.scr")) {
            files.remove_if_there(&folder.join(name))?;
        }
        // Files that were saved from cache may be there too.
        let _ = files.remove_dir(&folder);
    }
    Ok(())
}

/// Output is for other programs, which look for its files. An application that reads files of other ranks needs their names too.
fn is_wanted(job: &Job, cache: &Cache, cached: &CachedDataset) -> bool {
    let store = &cache.stores()[cached.store].name;
    let described = job.descriptors.stores.iter().find(|known| known.name == *store);
    described.is_some_and(|store| store.aggregate)
        && !cached.record.protection.bypass
        && cached.record.dataset.is_only_checkpoint()
        && !job.params.get(&param::GLOBAL_RESTART)
        && !job.params.get(&param::RESTART_OTHER_RANKS)
}

fn pack(
    job: &Job,
    cached: &CachedDataset,
    dataset: &DatasetDescriptor,
    files: &[SourceFile],
) -> Collective<(Vec<SourceFile>, Sums)> {
    let (comm, leader) = (&*job.comm, job.nodes.leader(job.rank()));
    let size = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    let sizes = route_values(comm, &[(leader, size)])?;
    let path = cached.part.container();
    let made = if leader == job.rank() { create(job.files(), &path) } else { Ok(()) };
    let replies = if made.is_ok() { places(&path, &sizes) } else { Vec::new() };
    // Without a reply the leader says what is wrong.
    let (mut wrote, mut reports, mut sums) = (made, Vec::new(), Sums::new());
    for (from, (path, offset)) in route_values(comm, &replies)? {
        match write(job, path.as_ref(), offset, files) {
            Ok(members) => {
                sums.extend(members.iter().map(|member| (member.name.clone(), member.crc)));
                reports.push((from, members));
            }
            Err(error) => wrote = Err(error),
        }
    }
    let by_rank = route_values(comm, &reports)?;
    let is_whole = leader == job.rank() && by_rank.len() == sizes.len();
    let packed = wrote.and_then(|()| match is_whole {
        true => Ok((vec![close(job, &path, dataset, by_rank)?], sums)),
        false => Ok((Vec::new(), sums)),
    });
    job.agree(packed)
}

/// An earlier one may still be open in a process that copies it.
fn create(files: &dyn Files, path: &Path) -> Result<(), FileError> {
    files.remove_if_there(path)?;
    Ok(files.open(path, How::Create(0o600)).at("create", path).map(drop)?)
}

/// The place where each rank of this node writes: the files of a rank follow those of the rank before.
fn places(path: &Path, sizes: &[(Rank, u64)]) -> Vec<(Rank, (OsString, u64))> {
    let mut end = 0_u64;
    let mut place = |&(rank, size): &(Rank, u64)| {
        let offset = end;
        end = end.saturating_add(size);
        (rank, (path.into(), offset))
    };
    sizes.iter().map(&mut place).collect()
}

/// Writes the files of this rank, from `offset` on.
fn write(job: &Job, path: &Path, mut offset: u64, files: &[SourceFile]) -> Result<Vec<Member>, FileError> {
    let block_bytes = job.params.get(&param::FILE_BUF_SIZE);
    let mut members = Vec::new();
    for file in files {
        let crc = retried(job.files(), |files| copy(files, path, offset, file, block_bytes))?;
        let (name, bytes, mode, mtime) = (file.name.clone(), file.bytes, file.permissions(), file.mtime);
        members.push(Member { name, offset, bytes, crc, mode, mtime });
        offset = offset.saturating_add(file.bytes);
    }
    Ok(members)
}

/// Copies one file, which must be what was recorded. Gives its checksum.
fn copy(
    files: &dyn Files,
    path: &Path,
    offset: u64,
    file: &SourceFile,
    block_bytes: u64,
) -> Result<u32, FileError> {
    let (source, _) = open_whole(files, &file.source, Some(file.bytes))?;
    let target = files.open(path, How::Update).at("open", path)?;
    let block = usize::try_from(file.bytes).unwrap_or(usize::MAX).min(block_size(block_bytes));
    let mut block = zeroed(block).at("read", &file.source)?;
    let (mut hasher, mut done) = (Hasher::new(), 0_u64);
    while done < file.bytes {
        let left = usize::try_from(file.bytes - done).unwrap_or(usize::MAX).min(block.len());
        let count = source.read_at(done, &mut block[..left]).at("read", &file.source)?;
        if count == 0 {
            return Err(FileError::Size { path: file.source.clone(), expected: file.bytes, found: done });
        }
        hasher.update(&block[..count]);
        // The container has just been made, and the list of its files at its end gives it its length.
        write_data(&*target, offset + done, &block[..count]).at("write", path)?;
        done += count as u64;
    }
    let crc = hasher.finalize();
    compare(&file.source, file.crc, Some(crc))?;
    Ok(crc)
}

/// Adds the list of what lies in the container. Its checksum follows from those of the files, so that it covers all that has
/// happened to the bytes since they were read.
fn close(
    job: &Job,
    path: &Path,
    dataset: &DatasetDescriptor,
    by_rank: Vec<(Rank, Vec<Member>)>,
) -> Result<SourceFile, FileError> {
    let all = || by_rank.iter().flat_map(|(_, members)| members);
    let (mut hasher, mut end) = (Hasher::new(), 0);
    let mode = all().fold(0o666, |mode, member| mode & member.mode) | 0o600;
    let mtime = all().map(|member| member.mtime).max().unwrap_or_default();
    for (_, members) in &by_rank {
        let mut members: Vec<_> = members.iter().filter(|member| member.bytes > 0).collect();
        members.sort_unstable_by_key(|member| member.offset);
        for member in members {
            hasher.combine(&Hasher::new_with_initial_len(member.crc, member.bytes));
            end = member.offset + member.bytes;
        }
    }
    let (id, created, ranks) = (dataset.id, dataset.created, job.comm.size());
    let contents = Contents { id, created, ranks, by_rank: by_rank.into_iter().collect() }.to_bytes();
    let fits = contents.len() as u64 <= MAX_TREE_BYTES;
    ensure(fits, || FileError::TooMany { path: path.to_owned() })?;
    let file = job.files().open(path, How::Update).at("open", path)?;
    file.write_at(end, &contents).at("write", path)?;
    hasher.update(&contents);
    let (name, bytes) = (FileName::container(id, job.nodes.number(job.rank())), end + contents.len() as u64);
    let record = FileRecord { name, bytes, crc: Some(hasher.finalize()), mode, mtime };
    Ok(SourceFile { source: path.to_owned(), record })
}
