//! The files of all ranks of the checkpoint that is restarted from: `SCR_Restart_ranks`, `SCR_Restart_files`, `SCR_Restart_file`.
//!
//! If the application can restart with any number of ranks, all ranks get the lists when the restart begins: rank 0 collects
//! them, or reads those of another number of ranks in the prefix directory. The calls themselves are local.

use super::other_nodes::Away;
use super::{Error, Phase, Session};
use crate::cache::filemap::Filemap;
use crate::cache::node_dir;
use crate::cache::part::{look_through, PartDir};
use crate::cache::record::{FileRecord, RankRecord};
use crate::cache::{Cache, CachedDataset};
use crate::error::Doing as _;
use crate::job::Job;
use crate::typed::{broadcast_value, gather_values};
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::{FileName, PrefixFile, Rank2File};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The files of all ranks of a dataset.
pub(super) struct Listed {
    by_rank: Vec<Vec<PrefixFile>>,
    files: BTreeMap<FileName, ListedFile>,
}

/// The length and the checksum of a file, where those are known, and where it lies.
pub(super) struct ListedFile {
    pub(super) bytes: Option<u64>,
    pub(super) crc: Option<u32>,
    pub(super) place: FilePlace,
}

/// Where a file lies for this rank. What lies in parts was compared when the run began.
pub(super) enum FilePlace {
    /// In the prefix directory.
    InPrefix,
    /// There, and maybe also in a cache that this rank sees: nobody has compared this copy.
    Copied(PathBuf),
    /// In a part on this node.
    Here(PathBuf),
    /// In a part on another node.
    Away(Away),
}

impl Listed {
    fn new(by_rank: Vec<Vec<PrefixFile>>) -> Self {
        let listed = |PrefixFile { name, bytes, crc }: PrefixFile| {
            (name, ListedFile { bytes, crc, place: FilePlace::InPrefix })
        };
        let files = by_rank.iter().flatten().cloned().map(listed).collect();
        Self { by_rank, files }
    }

    /// Those that the file lists of a dataset in the prefix directory have.
    pub(super) fn read(job: &Job, id: u64) -> Result<Self, Error> {
        let lists = Rank2File::read(job.files(), &job.prefix, id);
        let lists = lists.map_err(|error| Error::Argument { what: scr_base::describe(&error) })?;
        Ok(Self::new(lists.by_rank().to_vec()))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &FileName> + Clone {
        self.files.keys()
    }

    pub(super) fn file(&self, name: &FileName) -> Option<(&FileName, &ListedFile)> {
        self.files.get_key_value(name)
    }

    /// The lists of the checkpoint that the application is about to read. Collective.
    ///
    /// # Errors
    /// They cannot be read, or the ranks cannot talk.
    pub(super) fn of_all(job: &Job, cache: &Cache, cached: &CachedDataset) -> Result<Self, Error> {
        let CachedDataset { record, part, others, .. } = cached;
        let lists = match others {
            Some(others) => gather_lists(job, &others.here)?,
            None if record.read_by.is_some() => read_lists(job, record)?,
            None => gather_lists(job, &[(record.clone(), part.clone())])?,
        };
        let lists: Lists = broadcast_value(&*job.comm, (job.rank() == Rank(0)).then_some(lists))?;
        let writers = record.dataset.ranks.unwrap_or(job.comm.size());
        let list = |writer: u32| lists.get(&Rank(writer)).map(|(list, _)| list.clone());
        let by_rank: Option<Vec<_>> = (0..writers).map(list).collect();
        let malformed = CommError::Malformed { from: Rank(0), what: "the lists of all ranks" };
        let mut listed = Self::new(by_rank.ok_or(malformed)?);
        match record.read_by.filter(|_| others.is_none()) {
            Some(_) => {
                let copies = nearby(job, cache, record).into_iter();
                copies.for_each(|(name, copy)| listed.place(&name, FilePlace::Copied(copy)));
            }
            None => listed.place_parts(job, &lists, others.as_ref().map(|others| &*others.hosts)),
        }
        Ok(listed)
    }

    /// Records where the parts lie. Each rank has its own, if there are no `hosts`.
    fn place_parts(&mut self, job: &Job, lists: &Lists, hosts: Option<&[Rank]>) {
        let by_rank = std::mem::take(&mut self.by_rank);
        for (writer, files) in (0..).map(Rank).zip(&by_rank) {
            let host = hosts.map_or(writer, |hosts| hosts[writer.index()]);
            let is_here = job.nodes.together(job.rank(), host);
            let dir = lists.get(&writer).map(|(_, dir)| PathBuf::from(dir));
            let part = PartDir::below(dir.unwrap_or_default(), writer);
            for PrefixFile { name, bytes, crc } in files {
                let place = match is_here {
                    true => FilePlace::Here(part.file(name)),
                    false => FilePlace::Away(Away { writer, host, bytes: bytes.unwrap_or(0), crc: *crc }),
                };
                self.place(name, place);
            }
        }
        self.by_rank = by_rank;
    }

    /// A file lies here, and maybe in other places too.
    fn place(&mut self, name: &FileName, place: FilePlace) {
        let file = self.files.get_mut(name).filter(|file| !matches!(file.place, FilePlace::Here(_)));
        if let Some(file) = file {
            file.place = place;
        }
    }
}

/// Gives rank 0 the lists of the parts of all ranks. Collective.
fn gather_lists(job: &Job, parts: &[(RankRecord, PartDir)]) -> Result<Lists, CommError> {
    let own = |(record, part): &(RankRecord, PartDir)| {
        (record.rank, (own_list(record), part.dataset().as_os_str().to_owned()))
    };
    let all = gather_values(&*job.comm, &parts.iter().map(own).collect::<Vec<_>>())?;
    Ok(all.into_iter().flatten().flatten().collect())
}

/// Gives rank 0 the lists that the prefix directory has. Collective.
fn read_lists(job: &Job, record: &RankRecord) -> Result<Lists, Error> {
    let read = job.do_on_first(|| Rank2File::read(job.files(), &job.prefix, record.id_in_prefix));
    let read = read.map_err(|error| error.doing(format!("reading the lists of {}", record.label())))?;
    let lists = read.iter().flat_map(Rank2File::by_rank).map(|list| (list.clone(), OsString::new()));
    Ok((0..).map(Rank).zip(lists).collect())
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

fn own_list(record: &RankRecord) -> Vec<PrefixFile> {
    let listed =
        |file: &FileRecord| PrefixFile { name: file.name.clone(), bytes: Some(file.bytes), crc: file.crc };
    record.files.iter().map(listed).collect()
}

/// The list of the files of each rank, and the folder of the dataset in which its part lies.
type Lists = BTreeMap<Rank, (Vec<PrefixFile>, OsString)>;

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
