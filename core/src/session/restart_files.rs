//! The files of all ranks of the checkpoint that is restarted from: `SCR_Restart_ranks`, `SCR_Restart_files`, `SCR_Restart_file`.
//!
//! If the application can restart with any number of ranks, all ranks get the lists when the restart begins: rank 0 collects
//! them, or reads those of another number of ranks in the prefix directory. The calls themselves are local.

use super::other_nodes::Lent;
use super::other_ranks::TakenOver;
use super::{Error, Phase, Session};
use crate::cache::filemap::Filemap;
use crate::cache::node_dir;
use crate::cache::part::{look_through, PartDir};
use crate::cache::record::RankRecord;
use crate::cache::{Cache, CachedDataset};
use crate::error::Doing as _;
use crate::flush::lists;
use crate::job::Job;
use scr_comm::collective::{broadcast_tree, gather};
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_plugin_api::KvTree;
use scr_prefix::{FileName, PrefixFile, Rank2File};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The files of all ranks of a dataset.
pub(super) struct Listed {
    by_rank: Vec<Vec<PrefixFile>>,
    /// The length and the checksum of each, where those are known.
    known: BTreeMap<FileName, (Option<u64>, Option<u32>)>,
    /// The paths of copies, which may exist in the caches that this rank sees, of files that another number of ranks wrote.
    nearby: BTreeMap<FileName, PathBuf>,
    /// The files that lie in the caches of other nodes: which rank wrote each, and which one has it.
    lent: BTreeMap<FileName, (Rank, Rank)>,
}

impl Listed {
    fn new(by_rank: Vec<Vec<PrefixFile>>) -> Self {
        let files = by_rank.iter().flatten();
        let known = files.map(|file| (file.name.clone(), (file.bytes, file.crc))).collect();
        Self { by_rank, known, nearby: BTreeMap::new(), lent: BTreeMap::new() }
    }

    /// Those that the file lists of a dataset in the prefix directory have.
    pub(super) fn read(job: &Job, id: u64) -> Result<Self, Error> {
        let lists = Rank2File::read(job.files(), &job.prefix, id);
        let lists = lists.map_err(|error| Error::Argument { what: scr_base::describe(&error) })?;
        Ok(Self::new(lists.by_rank().to_vec()))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &FileName> + Clone {
        self.known.keys()
    }

    /// The length and the checksum of a file, where those are known.
    pub(super) fn known(&self, name: &FileName) -> (Option<u64>, Option<u32>) {
        self.known.get(name).copied().unwrap_or_default()
    }

    /// The lists of the checkpoint that the application is about to read, which may be `taken` from another number of ranks.
    /// Collective.
    ///
    /// # Errors
    /// They cannot be read, or the ranks cannot talk.
    pub(super) fn of_all(
        job: &Job,
        cache: &Cache,
        cached: &CachedDataset,
        taken: Option<&TakenOver>,
    ) -> Result<Self, Error> {
        if let Some(taken) = taken {
            return Ok(Self::of_parts(job, taken)?);
        }
        let record = &cached.record;
        let own = match record.read_by {
            Some(_) if job.rank() == Rank(0) => {
                let lists = Rank2File::read(job.files(), &job.prefix, record.id_in_prefix);
                lists.map(|lists| to_tree(lists.by_rank().iter().map(|list| lists::to_tree(list))))
            }
            Some(_) => Ok(KvTree::new()),
            None => {
                let all = gather(&*job.comm, Rank(0), own_list(record).pack())?.unwrap_or_default();
                Ok(to_tree(all.iter().map(|packed| KvTree::unpack(packed).unwrap_or_default())))
            }
        };
        let own = job
            .agree(own)
            .map_err(|error| error.doing(format!("reading the lists of {}", record.label())))?;
        let tree = broadcast_tree(&*job.comm, Rank(0), &own)?;
        let lists: Option<Vec<_>> = tree.iter().map(|(_, list)| lists::from_tree(list)).collect();
        let malformed = CommError::Malformed { from: Rank(0), what: "the lists of all ranks" };
        let listed = Self::new(lists.ok_or(malformed)?);
        Ok(match record.read_by {
            Some(_) => Self { nearby: nearby(job, cache, record), ..listed },
            None => Self { lent: on_other_nodes(job, &listed.by_rank), ..listed },
        })
    }

    /// The lists of a checkpoint that lies in the parts of another number of ranks. Collective.
    fn of_parts(job: &Job, taken: &TakenOver) -> Result<Self, CommError> {
        let mut own = KvTree::new();
        for (record, part) in taken.parts.iter() {
            let entry = own.child(record.rank.to_string());
            entry.put("LIST", own_list(record));
            entry.set_bytes("DIR", part.dataset().as_os_str().as_bytes());
        }
        let all = gather(&*job.comm, Rank(0), own.pack())?.unwrap_or_default();
        let mut merged = KvTree::new();
        for tree in all.iter().filter_map(|packed| KvTree::unpack(packed).ok()) {
            tree.iter().for_each(|(writer, entry)| merged.put(writer, entry.clone()));
        }
        let merged = broadcast_tree(&*job.comm, Rank(0), &merged)?;
        let malformed = CommError::Malformed { from: Rank(0), what: "the lists of all ranks" };
        let list = |writer: usize| lists::from_tree(merged.get(writer.to_string())?.get("LIST")?);
        let by_rank: Option<Vec<_>> = (0..taken.hosts.len()).map(list).collect();
        let mut listed = Self::new(by_rank.ok_or(malformed)?);
        for ((writer, host), files) in (0..).map(Rank).zip(&taken.hosts).zip(&listed.by_rank) {
            let dir = merged.get(writer.to_string()).and_then(|entry| entry.value("DIR")).unwrap_or_default();
            let part = PartDir::below(PathBuf::from(OsStr::from_bytes(dir)), writer);
            let is_here = job.nodes.together(job.rank(), *host);
            for name in files.iter().map(|file| &file.name) {
                match is_here {
                    true => _ = listed.nearby.insert(name.clone(), part.file(name)),
                    false => _ = listed.lent.insert(name.clone(), (writer, *host)),
                }
            }
        }
        Ok(listed)
    }

    /// A file that lies in the cache of another node.
    pub(super) fn lent<'n>(&self, name: &'n FileName) -> Option<Lent<'n>> {
        let (writer, host) = *self.lent.get(name)?;
        let (bytes, crc) = self.known(name);
        Some(Lent { name, writer, host, bytes: bytes?, crc })
    }

    /// The path of a copy of this file that may exist in a cache that this rank sees. It has not been compared, unless all of the
    /// checkpoint is read in the caches.
    pub(super) fn nearby(&self, name: &FileName) -> Option<&Path> {
        self.nearby.get(name).map(PathBuf::as_path)
    }
}

/// The files that ranks on other nodes wrote, each of which has its own.
fn on_other_nodes(job: &Job, by_rank: &[Vec<PrefixFile>]) -> BTreeMap<FileName, (Rank, Rank)> {
    let ranks = (0..).map(Rank).zip(by_rank).filter(|(rank, _)| !job.nodes.together(job.rank(), *rank));
    ranks.flat_map(|(rank, files)| files.iter().map(move |file| (file.name.clone(), (rank, rank)))).collect()
}

/// The files of the parts that those who wrote a dataset have left where this rank sees them.
fn nearby(job: &Job, cache: &Cache, record: &RankRecord) -> BTreeMap<FileName, PathBuf> {
    let mut found = BTreeMap::new();
    for store in cache.stores() {
        for place in node_dir::places(job.files(), store.root.path()).unwrap_or_default() {
            for (id, rank) in look_through(job.files(), &place).parts {
                let part = PartDir::new(&place, id, rank);
                let theirs = Filemap::read(job.files(), &part).ok().and_then(|map| map.record);
                let is_it = |theirs: &RankRecord| {
                    theirs.seq() == record.seq() && theirs.dataset.name == record.dataset.name
                };
                let theirs = theirs.filter(|theirs| is_it(theirs) && !theirs.protection.bypass);
                let files = theirs.into_iter().flat_map(|theirs| theirs.files);
                found.extend(files.map(|file| (file.name.clone(), part.file(&file.name))));
            }
        }
    }
    found
}

fn own_list(record: &RankRecord) -> KvTree {
    let list = record.files.iter();
    let list: Vec<_> = list
        .map(|file| PrefixFile { name: file.name.clone(), bytes: Some(file.bytes), crc: file.crc })
        .collect();
    lists::to_tree(&list)
}

fn to_tree(lists: impl Iterator<Item = KvTree>) -> KvTree {
    let mut tree = KvTree::new();
    lists.enumerate().for_each(|(rank, list)| tree.put(rank.to_string(), list));
    tree
}

impl Session {
    /// The number of ranks that wrote the checkpoint that is being restarted from. Local.
    ///
    /// # Errors
    /// [`Error::State`] outside of a restart.
    pub fn restart_ranks(&self) -> Result<u32, Error> {
        let _ = self.restart_phase("SCR_Restart_ranks")?;
        let cached = self.restart.checkpoint(&self.cache);
        Ok(cached.and_then(|cached| cached.record.dataset.ranks).unwrap_or(self.job.comm.size()))
    }

    /// How many files one of these ranks wrote. Local.
    ///
    /// # Errors
    /// [`Error`] outside of a restart, if the application has not said that it can read what other ranks wrote, or if there is no
    /// such rank.
    pub fn restart_files(&self, rank: u32) -> Result<usize, Error> {
        Ok(self.files_of("SCR_Restart_files", rank)?.len())
    }

    /// The name of one of them, below the prefix directory: [`route_file`](Self::route_file) takes it on every rank. Local.
    ///
    /// # Errors
    /// As for [`restart_files`](Self::restart_files), or there is no such file.
    pub fn restart_file(&self, rank: u32, number: usize) -> Result<Vec<u8>, Error> {
        let files = self.files_of("SCR_Restart_file", rank)?;
        let file = files.get(number).ok_or_else(|| Error::Argument {
            what: format!(
                "rank {rank} wrote {} files, counted from 0, and there is no file {number}",
                files.len()
            ),
        })?;
        Ok(file.name.as_bytes().to_vec())
    }

    fn files_of(&self, call: &'static str, rank: u32) -> Result<&[PrefixFile], Error> {
        let listed = self.restart_phase(call)?;
        let listed = listed.filter(|_| self.reads_other_ranks()).ok_or(Error::State {
            call,
            now: "without SCR_RESTART_OTHER_RANKS=1",
            hint: "set it before SCR_Init, and each rank gets the names of the files of all",
        })?;
        let index = usize::try_from(rank).unwrap_or(usize::MAX);
        let files = listed.by_rank.get(index).ok_or_else(|| Error::Argument {
            what: format!("there is no rank {rank}: {} ranks wrote this checkpoint", listed.by_rank.len()),
        })?;
        Ok(files)
    }

    /// Whether the application can restart from what another number of ranks wrote.
    pub(super) fn reads_other_ranks(&self) -> bool {
        self.job.params.get(&param::RESTART_OTHER_RANKS)
    }

    fn restart_phase(&self, call: &'static str) -> Result<Option<&Listed>, Error> {
        match &self.phase {
            Phase::Restart { listed, .. } => Ok(listed.as_ref()),
            _ => Err(self.wrong_phase(call)),
        }
    }
}
