//! The files of all ranks of the checkpoint that is restarted from, and where a rank reads one: `SCR_Route_file`,
//! `SCR_Restart_ranks`, `SCR_Restart_files`, `SCR_Restart_file`.
//!
//! If the application can restart with any number of ranks, all ranks get the lists when the restart begins: rank 0 collects
//! them, or reads those of another number of ranks in the prefix directory. The calls themselves are local.

use super::other_nodes::{Away, LendError, Lending};
use super::route::{below_prefix, path_bytes};
use super::{Error, Phase, Session};
use crate::cache::filemap::Filemap;
use crate::cache::node_dir;
use crate::cache::part::{look_through, PartDir};
use crate::cache::record::RankRecord;
use crate::cache::{Cache, CachedDataset};
use crate::error::Doing as _;
use crate::job::Job;
use crate::typed::{broadcast_value, gather_values};
use scr_base::fs::verify::{expect_bytes, FileError};
use scr_base::fs::{How, Kind};
use scr_comm::{CommError, Rank};
use scr_config::param::{self, normalise};
use scr_prefix::{FileName, PrefixFile, Rank2File};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The files of all ranks of a dataset.
pub(super) struct Listed {
    by_rank: Vec<Vec<PrefixFile>>,
    pub(super) files: BTreeMap<FileName, ListedFile>,
}

/// The length and the checksum of a file, where those are known, and where it lies.
pub(super) struct ListedFile {
    bytes: Option<u64>,
    crc: Option<u32>,
    place: FilePlace,
}

/// Where a file lies for this rank. What lies in parts was compared when the run began.
enum FilePlace {
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
    fn read(job: &Job, id: u64) -> Result<Self, Error> {
        let lists = Rank2File::read(job.files(), &job.prefix, id);
        let lists = lists.map_err(|error| Error::Argument(scr_base::describe(&error)))?;
        Ok(Self::new(lists.by_rank().to_vec()))
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
        (record.rank, (record.listed(), part.dataset().as_os_str().to_owned()))
    };
    let all = gather_values(&*job.comm, &parts.iter().map(own).collect::<Vec<_>>())?;
    Ok(all.into_iter().flatten().flatten().collect())
}

/// Gives rank 0 the lists that the prefix directory has. Collective.
fn read_lists(job: &Job, record: &RankRecord) -> Result<Lists, Error> {
    let read = job.do_on_first(|| Rank2File::read(job.files(), &job.prefix, record.dataset.id));
    let read = read.doing(format_args!("reading the lists of {}", record.label()))?;
    let lists = read.iter().flat_map(Rank2File::by_rank).map(|list| (list.clone(), OsString::new()));
    Ok((0..).map(Rank).zip(lists).collect())
}

/// The files of the parts that those who wrote a dataset have left where this rank sees them.
fn nearby(job: &Job, cache: &Cache, record: &RankRecord) -> BTreeMap<FileName, PathBuf> {
    let is_it = |theirs: &RankRecord| theirs.is_of_same(record) && !theirs.protection.bypass;
    let mut found = BTreeMap::new();
    for store in cache.stores() {
        for place in node_dir::places(job.files(), store.root.path()).unwrap_or_default() {
            let parts = look_through(job.files(), &place).parts.into_iter();
            let parts = parts.map(|(id, rank)| PartDir::new(&place, id, rank));
            parts.for_each(|part| found.extend(files_of(job, &part, is_it)));
        }
    }
    found
}

/// The files of a part, and where they lie, if its record is the right one.
fn files_of(
    job: &Job,
    part: &PartDir,
    is_it: impl Fn(&RankRecord) -> bool,
) -> impl Iterator<Item = (FileName, PathBuf)> {
    let record = Filemap::read(job.files(), part).ok().and_then(|map| map.record).filter(is_it);
    let data = part.clone();
    let files = record.into_iter().flat_map(|record| record.files);
    files.map(move |file| (file.name.clone(), data.file(&file.name)))
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
        let file = files.get(number).ok_or_else(|| {
            Error::Argument(format!(
                "rank {rank} wrote {} files, counted from 0, and there is no file {number}",
                files.len()
            ))
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
        let written = listed.by_rank.len();
        let none =
            || Error::Argument(format!("there is no rank {rank}: {written} ranks wrote this checkpoint"));
        listed.by_rank.get(index).map(Vec::as_slice).ok_or_else(none)
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

/// The file of a checkpoint that `name` stands for, and where this rank reads it: one that it wrote, or one that another rank
/// wrote, as the ranks may share the files of a dataset. That one must be in a cache that this rank sees, or come to it from
/// another node, or be in the prefix directory. `listed` are the files of all ranks, once they are known.
pub(super) fn route_restart(
    job: &Job,
    cache: &Cache,
    cached: &CachedDataset,
    name: &[u8],
    listed: &mut Option<Listed>,
    lending: Option<&mut Lending>,
) -> Result<(FileName, Vec<u8>), Error> {
    let record = &cached.record;
    // Whether the application reads the checkpoint where it lies in the prefix directory.
    let is_there = cached.prefix.has_files();
    let in_prefix = record.protection.bypass || job.params.get(&param::GLOBAL_RESTART) && is_there;
    // If another number of ranks wrote the checkpoint, no file is a rank's own: only among all files can it be said which one is
    // meant.
    let own = record.files.iter().filter(|_| record.read_by.is_none()).map(|file| &file.name);
    if let Some(own) = stands_for(job, name, &own) {
        let path = if in_prefix { job.prefix.file(own) } else { cached.part.file(own) };
        return Ok((own.clone(), readable(job, &path)?));
    }
    let below = below_prefix(job, name, |path| Ok(plain_name(job, path)))?;
    if !in_prefix && !cached.is_of_other_ranks() {
        let beside = files_beside(job, cache, cached);
        if let Some(found) = exactly(job, name, &beside.keys()) {
            return Ok((found.clone(), readable(job, &beside[found])?));
        }
    }
    if listed.is_none() && is_there {
        *listed = Some(Listed::read(job, record.dataset.id)?);
    }
    let found = listed.as_ref().map(|listed| &listed.files);
    let found = found.and_then(|files| files.get_key_value(stands_for(job, name, &files.keys())?));
    if let Some((found, file)) = found {
        let path = match (&file.place, lending) {
            (FilePlace::Copied(copy), _) if is_whole(job, copy, file) => Some(copy.clone()),
            (FilePlace::Here(path), _) if !in_prefix => Some(path.clone()),
            (FilePlace::Away(away), Some(lending)) if !in_prefix => {
                let mut get = || lending.get(job, cache, cached, found, away);
                let from_prefix =
                    |why: LendError| read_instead(job, cached, found, file, &scr_base::describe(&why));
                // What failed may have passed meanwhile.
                Some(get().or_else(from_prefix).or_else(|lost| get().map_err(|_| lost))?)
            }
            _ if in_prefix && is_there => Some(job.prefix.file(found)),
            _ if is_there => Some(recorded_in_prefix(job, found, file)?),
            _ => None,
        };
        if let Some(path) = path {
            return Ok((found.clone(), readable(job, &path)?));
        }
    }
    let resolved = match below.as_bytes() == name {
        true => String::new(),
        false => format!(" ({below} in the prefix directory)"),
    };
    let is_any = in_prefix || job.params.get(&param::RESTART_OTHER_RANKS);
    let (name, cure) = (String::from_utf8_lossy(name), if is_any { "" } else { FILES_OF_OTHERS });
    let (rank, label) = (job.rank(), record.label());
    Err(Error::Argument(format!("`{name}'{resolved} is not a file that rank {rank} wrote in {label}{cure}")))
}

/// The path in the prefix directory of a file that has not come from another node.
fn read_instead(
    job: &Job,
    cached: &CachedDataset,
    name: &FileName,
    file: &ListedFile,
    why: &str,
) -> Result<PathBuf, Error> {
    let what = format!("{name} of {} has not come from another node: {why}", cached.record.label());
    if !cached.prefix.has_files() {
        return Err(Error::Unread(what));
    }
    let path = recorded_in_prefix(job, name, file)
        .map_err(|error| Error::Unread(format!("{what}; in the prefix directory, {error}")))?;
    job.report.warn_here(&format!("{what}; it is read in the prefix directory"));
    Ok(path)
}

/// The settings that let ranks read files that ranks on other nodes wrote.
const FILES_OF_OTHERS: &str = ", nor one in the cache of its node; with SCR_RESTART_OTHER_RANKS=1 any rank may read any file; with \
    SCR_GLOBAL_RESTART=1 the ranks read every checkpoint in the prefix directory, and with SCR_FETCH_BYPASS=1 those that are fetched";

/// The files of other ranks that lie in the cache of this one, and where. All parts were compared when the run began.
fn files_beside(job: &Job, cache: &Cache, cached: &CachedDataset) -> BTreeMap<FileName, PathBuf> {
    let mates = cache.stores()[cached.store].placement.mates(job.rank()).into_iter();
    let parts = mates.filter(|&mate| mate != job.rank()).map(|mate| cached.part.of_rank(mate));
    parts.flat_map(|part| files_of(job, &part, |theirs| theirs.begun == cached.record.begun)).collect()
}

/// Whether a copy in cache has all bytes of a file, which only its checksum proves.
fn is_whole(job: &Job, copy: &Path, file: &ListedFile) -> bool {
    file.crc.is_some() && file.bytes.is_some() && expect_recorded(job, copy, file).is_ok()
}

/// The path of a file in the prefix directory. Nothing keeps others from replacing it meanwhile, so its bytes are compared before
/// it is read.
fn recorded_in_prefix(job: &Job, name: &FileName, file: &ListedFile) -> Result<PathBuf, Error> {
    let path = job.prefix.file(name);
    let compared = expect_recorded(job, &path, file);
    compared.map_err(|error| Error::Unread(scr_base::describe(&error)))?;
    Ok(path)
}

fn expect_recorded(job: &Job, path: &Path, file: &ListedFile) -> Result<(), FileError> {
    let Some(bytes) = file.bytes else { return Ok(()) };
    expect_bytes(job.files(), path, bytes, file.crc, job.params.get(&param::FILE_BUF_SIZE))
}

/// The one of these recorded names that `name` stands for. The application may have another current folder than when it wrote the
/// file, or name it otherwise: then it is that of the one file that `name` fits.
fn stands_for<'a>(
    job: &Job,
    name: &[u8],
    recorded: &(impl Iterator<Item = &'a FileName> + Clone),
) -> Option<&'a FileName> {
    // Never the base name alone where folders are given: it may belong to another rank's file.
    let ending = || {
        let given = given_name(name).filter(|given| given.folder().is_some() || !name.contains(&b'/'))?;
        let given = OsStr::from_bytes(given.as_bytes());
        let fits = |name: &&FileName| Path::new(OsStr::from_bytes(name.as_bytes())).ends_with(given);
        let mut fitting = recorded.clone().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    };
    exactly(job, name, recorded).or_else(ending)
}

/// A relative name as if the current folder were the prefix directory, and its end that no folder can change.
fn given_name(name: &[u8]) -> Option<FileName> {
    let given = (!name.starts_with(b"/")).then(|| normalise(Path::new(OsStr::from_bytes(name))))?;
    FileName::parse(given.strip_prefix("/").ok()?.as_os_str().as_bytes()).ok()
}

/// As [`stands_for`], without a guess from the end of the name.
fn exactly<'a>(
    job: &Job,
    name: &[u8],
    recorded: &(impl Iterator<Item = &'a FileName> + Clone),
) -> Option<&'a FileName> {
    let named = |below: &FileName| recorded.clone().find(|recorded| *recorded == below);
    let exact = |find: fn(&Job, &Path) -> Option<PathBuf>| {
        below_prefix(job, name, |path| Ok(find(job, path))).ok().and_then(|below| named(&below))
    };
    let followed: fn(&Job, &Path) -> _ = |job, path| job.prefix.name_of(job.files(), path);
    exact(plain_name).or_else(|| exact(followed)).or_else(|| given_name(name).as_ref().and_then(named))
}

/// The name below the prefix directory of an absolute path. Links are followed only where it does not begin with that directory: a
/// file system that fails for a moment puts no path outside.
fn plain_name(job: &Job, path: &Path) -> Option<PathBuf> {
    match path.strip_prefix(job.prefix.dir()) {
        Ok(below) => Some(below.to_owned()),
        Err(_) => job.prefix.name_of(job.files(), path),
    }
}

/// The path of a file that this process can read. The application may wait for ever at anything else, such as a pipe.
fn readable(job: &Job, path: &Path) -> Result<Vec<u8>, Error> {
    let found = job.files().open(path, How::Read).and_then(|file| file.status());
    let why = match found {
        Ok(status) if status.kind == Kind::File => return path_bytes(path),
        Ok(status) => format!("it is {}", status.kind.name()),
        Err(error) => error.to_string(),
    };
    Err(Error::Argument(format!("{} cannot be read: {why}", path.display())))
}
