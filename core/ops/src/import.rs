//! Makes a dataset from files in place that were not written through scr, so that a run can fetch it.
//!
//! Every file is read once, for its length and checksum, and synced. The dataset is valid once the index lists it. A crash before
//! that leaves a folder in `.scr` that no index names, with a mark that keeps `scr index --build` from listing it. The dataset
//! gets the number of a new run and so is newer than all others. No job may run in the prefix directory meanwhile, since its
//! later datasets would count as older. The import registers as running before it reads a byte, and checks for jobs once more
//! before the index lists the dataset.

use super::{OpsError, BLOCK_BYTES};
use scr_base::ensure;
use scr_base::env::Env;
use scr_base::fs::verify::{checksum, open_whole};
use scr_base::fs::{At, Durability, Files, Kind, Status};
use scr_base::parallel::at_a_time;
use scr_config::param;
use scr_core::scavenge::scan::Scan;
use scr_plugin_api::KvTree;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{
    real, DatasetDescriptor, FileName, FlushFile, Index, OtherRun, Prefix, PrefixError, PrefixFile, Running,
    Unsynced, FILE_MODE, MAX_NAME_BYTES,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files that are to become a dataset.
#[derive(Clone, Copy)]
pub struct Import<'a> {
    /// The world in which the command runs.
    pub env: &'a Env,
    /// The prefix directory that the files lie in.
    pub prefix: &'a Prefix,
    /// Name of the dataset.
    pub name: &'a [u8],
    /// Whether a job can restart from it; otherwise it is output.
    pub checkpoint: bool,
    /// The files of each rank. A relative path begins at the current folder, or at the prefix directory if it would lead out of
    /// that otherwise and nothing is there. Ranks may share a file.
    pub ranks: &'a [Vec<PathBuf>],
}

/// A dataset that was made of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Its number.
    pub id: u64,
    /// Files of all ranks; one that is shared counts for each.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Further information for the user.
    pub caution: Option<&'static str>,
}

impl Import<'_> {
    /// Makes the files a dataset.
    ///
    /// # Errors
    /// [`OpsError`].
    pub fn run(&self) -> Result<Imported, OpsError> {
        let found = self.name.len();
        ensure((1..=MAX_NAME_BYTES).contains(&found) && !self.name.contains(&0), || {
            OpsError::Refused(format!(
                "the name of a dataset has 1 to {MAX_NAME_BYTES} bytes, none of them NUL, and this one has {found}"
            ))
        })?;
        self.refuse_taken(&self.ledger().index()?)?;
        let names = self.names()?;
        let all: BTreeSet<&FileName> = names.iter().flatten().collect();
        self.prefix.expect_all_unlinked(self.files(), self.env.uid, all.iter().copied())?;
        self.refuse_claimed(&names)?;
        self.prefix.make_scr_dir(self.files())?;
        let line = format!("`scr index --import', process {} on {}", std::process::id(), self.env.host);
        let (running, other) = Running::begin(self.files(), self.prefix, &line, self.env.seconds(), false);
        if let Some(OtherRun { line, .. }) = other {
            return Err(job_runs(&line));
        }
        let read = self.read(&all.into_iter().collect::<Vec<_>>())?;
        self.list(&names, &read, running)
    }

    fn files(&self) -> &dyn Files {
        &*self.env.files
    }

    fn refuse_taken(&self, index: &Index) -> Result<(), OpsError> {
        let Some(id) = index.id_of(self.name) else { return Ok(()) };
        Err(OpsError::Refused(format!(
            "the name `{}' is that of dataset {id}; choose another, or take that dataset out of the index with \
             `scr index --drop'",
            String::from_utf8_lossy(self.name)
        )))
    }

    /// The names of every rank's files below the prefix directory.
    fn names(&self) -> Result<Vec<Vec<FileName>>, OpsError> {
        let of_rank = |(rank, paths): (usize, &Vec<PathBuf>)| {
            let names: Vec<FileName> = paths.iter().map(|path| self.below(path)).collect::<Result<_, _>>()?;
            let mut bases = HashSet::new();
            match names.iter().find(|name| !bases.insert(name.base())) {
                // In cache a rank has one folder for all its files.
                Some(name) => Err(OpsError::Refused(format!(
                    "rank {rank} would have two files named `{}', and the files of a rank need different names in cache",
                    String::from_utf8_lossy(name.base())
                ))),
                None => Ok(names),
            }
        };
        self.ranks.iter().enumerate().map(of_rank).collect()
    }

    fn below(&self, path: &Path) -> Result<FileName, OpsError> {
        let prefix = self.prefix.dir();
        let inside =
            |path: &Path| path.strip_prefix(prefix).ok().map(|below| below.as_os_str().as_bytes().to_vec());
        let given = param::normalise(&self.env.current_dir.join(path));
        // The current folder may be called by another name than the prefix directory, which has its links followed.
        let really = || {
            let folder = real(self.files(), given.parent()?);
            inside(&folder.join(given.file_name()?))
        };
        // The file must be the one that was meant, and not one of the same name elsewhere.
        let is_there = || self.files().status(&given).is_ok();
        let from_prefix = || inside(&param::normalise(&prefix.join(path))).filter(|_| !is_there());
        let below = inside(&given).or_else(really).or_else(from_prefix);
        let outside = || {
            OpsError::Refused(format!(
                "{} is outside the prefix directory {}; move it there, or name the right directory with --prefix",
                given.display(),
                prefix.display()
            ))
        };
        Ok(FileName::parse(&below.ok_or_else(outside)?)?)
    }

    fn refuse_claimed(&self, names: &[Vec<FileName>]) -> Result<(), OpsError> {
        let unread = |names: &Vec<FileName>| names.iter().map(PrefixFile::from).collect();
        let lists: Vec<Vec<_>> = names.iter().map(unread).collect();
        let sharing = self.ledger().sharing(&self.descriptor(0), &lists)?;
        let Some(&id) = sharing.first() else { return self.refuse_scavenged(names) };
        let entry = self.ledger().index()?.entry(id);
        let name = entry.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).unwrap_or_default();
        Err(OpsError::Refused(format!(
            "dataset {id} `{name}' has files of these names already; a file belongs to one dataset only"
        )))
    }

    /// Files of a dataset that was scavenged and is yet to be built: nothing could be built of it any more.
    fn refuse_scavenged(&self, names: &[Vec<FileName>]) -> Result<(), OpsError> {
        let names: HashSet<&FileName> = names.iter().flatten().collect();
        let index = self.ledger().index()?;
        let is_listed = |id: u64| index.entry(id).is_some_and(|entry| entry.complete);
        for id in self.prefix.dataset_ids(self.files())?.into_iter().filter(|&id| !is_listed(id)) {
            let Some(scan) = Scan::read(self.files(), self.prefix, id)? else { continue };
            if scan.records().flat_map(|record| &record.files).any(|file| names.contains(&file.name)) {
                return Err(OpsError::Refused(format!(
                    "files of these names were saved from the cache for dataset {id} `{}'; complete it with \
                     `scr index --build {id}', or remove {} to import its files",
                    String::from_utf8_lossy(&scan.any.dataset.name),
                    self.prefix.dataset_dir(id).display()
                )));
            }
        }
        Ok(())
    }

    /// Reads every file, and makes sure that its bytes are safe.
    fn read(&self, names: &[&FileName]) -> Result<BTreeMap<FileName, ReadFile>, OpsError> {
        let one = |name: &&FileName| {
            let path = self.prefix.file(name);
            let is_link = self.files().status(&path).is_ok_and(|status| status.kind == Kind::Link);
            let why = || format!("{} is a symbolic link; give the file that it leads to", path.display());
            ensure(!is_link, || OpsError::Refused(why()))?;
            let (file, before) = open_whole(self.files(), &path, None)?;
            refuse_linked(&path, &before)?;
            let crc = checksum(&*file, &path, BLOCK_BYTES)?;
            Unsynced { files: self.files(), prefix: self.prefix }.sync(&path, &*file)?;
            let after = file.status().at("look at", &path)?;
            expect_unchanged(&path, &before, &after)?;
            let name = (*name).clone();
            let file = PrefixFile { name: name.clone(), bytes: Some(after.len), crc: Some(crc) };
            Ok((name, (file, after)))
        };
        at_a_time(self.env.processors, names, one).into_iter().collect()
    }

    /// Whether every file is still the one that was read, and no other dataset uses it.
    fn refuse_outdated(
        &self,
        names: &[Vec<FileName>],
        read: &BTreeMap<FileName, ReadFile>,
        running: &mut Running,
    ) -> Result<(), OpsError> {
        if let Some(line) = running.newcomer() {
            return Err(job_runs(&line));
        }
        for (file, then) in read.values() {
            let path = self.prefix.file(&file.name);
            let now = self.files().status(&path).at("look at", &path)?;
            refuse_linked(&path, &now)?;
            expect_unchanged(&path, then, &now)?;
        }
        self.refuse_claimed(names)
    }

    /// The dataset gets its number, and counts.
    fn list(
        &self,
        names: &[Vec<FileName>],
        read: &BTreeMap<FileName, ReadFile>,
        mut running: Running,
    ) -> Result<Imported, OpsError> {
        let (files, prefix) = (self.files(), self.prefix);
        let list = |names: &Vec<FileName>| {
            names.iter().filter_map(|name| read.get(name).map(|(file, _)| file.clone())).collect()
        };
        let lists: Vec<Vec<PrefixFile>> = names.iter().map(list).collect();
        let (run, _) = self.ledger().begin_run(self.env.seconds())?;
        let mut dataset = DatasetDescriptor { run: run.number, ..self.descriptor(self.new_id()?) };
        let count = lists.iter().map(Vec::len).sum::<usize>() as u64;
        let bytes = lists.iter().flatten().filter_map(|file| file.bytes).fold(0, u64::saturating_add);
        (dataset.files, dataset.bytes, dataset.complete) = (Some(count), Some(bytes), Some(true));
        if self.checkpoint {
            let numbers = self.ledger().index()?.entries().into_iter().filter_map(|entry| entry.dataset);
            let highest = numbers.filter_map(|dataset| dataset.checkpoint_id).max().unwrap_or(0);
            dataset.checkpoint_id = Some(highest.saturating_add(1));
        }
        prefix.make_dataset_dir(files, dataset.id)?;
        let mark = prefix.import_mark(dataset.id);
        files.write_tree(&mark, &KvTree::new(), FILE_MODE, Durability::Synced)?;
        let written = self.ledger().write_lists(&dataset, &lists).map_err(OpsError::from).and_then(|()| {
            let now = self.env.local_time();
            self.ledger().commit(now).list_in_place(&dataset, &lists, |index| {
                self.refuse_taken(index)?;
                self.refuse_outdated(names, read, &mut running)
            })
        });
        if let Err(error) = written {
            // The index may list it all the same, if only the last sync has failed.
            if self.ledger().index().is_ok_and(|index| index.entry(dataset.id).is_none()) {
                let _ = files.remove_tree(&prefix.dataset_dir(dataset.id));
            }
            return Err(error);
        }
        // If it stays, it goes before the dataset leaves the index.
        let _ = files.remove_file(&mark);
        let caution = (!running.is_known()).then_some(
            "scr could not check whether a job runs in the prefix directory, as its file system has no locks; if one did, take \
             the dataset out of the index with `scr index --drop', and import the files when the job has ended",
        );
        Ok(Imported { id: dataset.id, files: count, bytes, caution })
    }

    fn new_id(&self) -> Result<u64, PrefixError> {
        let (files, prefix) = (self.files(), self.prefix);
        let in_cache = FlushFile::read_undamaged(files, prefix)?.and_then(|flush| flush.highest_id());
        let listed = self.ledger().index()?.highest_id().max(in_cache);
        let highest = prefix.dataset_ids(files)?.into_iter().fold(listed.unwrap_or(0), u64::max);
        self.ledger().reserve(highest.saturating_add(1), 1)
    }

    fn descriptor(&self, id: u64) -> DatasetDescriptor {
        DatasetDescriptor {
            id,
            name: self.name.to_vec(),
            checkpoint: self.checkpoint,
            // The files do not belong to scr: as output, SCR_PREFIX_SIZE never deletes them.
            output: true,
            created: self.env.clock.micros(),
            user: self.env.user.clone(),
            ranks: u32::try_from(self.ranks.len()).ok(),
            ..DatasetDescriptor::default()
        }
    }

    fn ledger(&self) -> LedgerDir<'_> {
        LedgerDir { files: self.files(), prefix: self.prefix }
    }
}

/// A file, and its status when it had been read.
type ReadFile = (PrefixFile, Status);

/// By another name a file may belong to another dataset, or be written to.
fn refuse_linked(path: &Path, status: &Status) -> Result<(), OpsError> {
    let (path, links) = (path.display(), status.links);
    let why =
        || format!("{path} has {links} names (hard links); give a copy of it, or remove the other names");
    ensure(links <= 1, || OpsError::Refused(why()))
}

/// Refuses a file that is being written, and one that is another file now.
fn expect_unchanged(path: &Path, before: &Status, now: &Status) -> Result<(), OpsError> {
    let version = |status: &Status| (status.identity, status.len, status.mtime);
    let why =
        || format!("{} was changed while it was read; import it when nobody writes to it", path.display());
    ensure(version(before) == version(now), || OpsError::Refused(why()))
}

/// A job is at work, and has this line in `running`.
fn job_runs(line: &str) -> OpsError {
    OpsError::Refused(format!(
        "a job runs in the prefix directory ({line}); import the files when it has ended"
    ))
}
