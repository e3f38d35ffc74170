//! A run in one process: a cache per rank, a prefix directory, and a transport that goes through the file layer.

use crate::cache::record::FileRecord;
use crate::flush::{Flush, FlushError, FlushReport, MakeCurrent, Options, SourceFile, ToFlush};
use crate::job::Job;
use crate::redundancy::plugins::TransportInUse;
use scr_base::fs::{Files, How, RealFiles};
use scr_comm::thread::run;
use scr_comm::{Comm, Rank};
use scr_config::param::AppConfig;
use scr_plugin_api::{CopyJob, CopyState, PluginError, PluginErrorKind, Transport};
use scr_prefix::commit::FlushOutcome;
use scr_prefix::ledger::{LedgerDir, Wish};
use scr_prefix::{DatasetDescriptor, FileName, Index, Prefix, PrefixError, PrefixId};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::TestEnv;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

pub(crate) const NOW: &str = "2026-11-21T03:28:24";
/// When flushes are made.
const SINCE_EPOCH: Duration = Duration::from_secs(1_795_231_704);

/// The same as the index writes it.
pub(crate) fn time_of_flush() -> String {
    scr_base::env::local_time(UNIX_EPOCH + SINCE_EPOCH)
}

/// A run ends the flushes of earlier ones.
pub(crate) fn finalize_pending(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    LedgerDir { files, prefix }.commit(now).end_all(Wish::End)
}

/// `scr poststage` does.
pub(crate) fn finalize_arrived(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    LedgerDir { files, prefix }.commit(now).end_all(Wish::EndArrived)
}

/// The plain transport, through this file layer.
pub(crate) fn through(files: &(impl Files + Clone + 'static)) -> Arc<dyn Transport> {
    Arc::new(Through::new(files.clone()))
}

pub(crate) fn in_use(transport: &Arc<dyn Transport>, survives_job: bool) -> TransportInUse {
    let (transport, name) = (Some(Arc::clone(transport)), "THROUGH".to_owned());
    TransportInUse { transport, name, asynchronous: true, survives_job, ..TransportInUse::default() }
}

type Copied = (Vec<u32>, CopyState);

/// A transport that copies at once, through a file layer that may have faults.
pub(crate) struct Through<F> {
    pub(crate) files: F,
    pub(crate) takes_checksums: bool,
    /// By ticket: the checksums and the state.
    jobs: Mutex<HashMap<Vec<u8>, Copied>>,
}

impl<F: Files> Through<F> {
    pub(crate) fn new(files: F) -> Self {
        Self { files, takes_checksums: true, jobs: Mutex::default() }
    }

    fn copy(&self, from: &Path, to: &Path, bytes: u64) -> std::io::Result<u32> {
        let mut buffer = vec![0; bytes as usize];
        let count = self.files.open(from, How::Read)?.read_at(0, &mut buffer)?;
        assert_eq!(count as u64, bytes);
        let to = self.files.open(to, How::Update)?;
        to.write_at(0, &buffer)?;
        to.sync()?;
        Ok(crc32fast::hash(&buffer))
    }
}

impl<F: Files> Transport for Through<F> {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let copied: Result<Vec<u32>, _> = job
            .items
            .iter()
            .map(|item| {
                self.copy(&item.source, &item.destination, item.bytes).map_err(|error| {
                    let text = format!("copying {} failed: {error}", item.source.display());
                    PluginError::new(PluginErrorKind::Io, text)
                })
            })
            .collect();
        let outcome = match copied {
            Ok(crcs) => (crcs, CopyState::Done),
            Err(error) => (vec![], CopyState::Failed(error)),
        };
        let ticket = job.token.clone().into_bytes();
        self.jobs.lock().unwrap().insert(ticket.clone(), outcome);
        Ok(ticket)
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.jobs.lock().unwrap()[ticket].1.clone())
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.poll(ticket)
    }

    fn cancel(&self, _ticket: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.takes_checksums.then(|| self.jobs.lock().unwrap()[ticket].0[item])
    }
}

/// The folders of one run.
pub(crate) struct Stage {
    pub(crate) dir: TempDir,
    pub(crate) prefix: Prefix,
    pub(crate) ranks: u32,
    nodes: u32,
    /// Microseconds between two polls of a flush.
    pub(crate) pause: u64,
    /// The messages to the user.
    pub(crate) said: Mutex<Vec<String>>,
}

/// A copy of all that a stage stored at some moment.
pub(crate) struct Kept(TempDir);

/// A dataset in cache.
pub(crate) struct Cached {
    pub(crate) dataset: DatasetDescriptor,
    pub(crate) by_rank: Vec<Vec<SourceFile>>,
    /// The expected bytes of every file.
    pub(crate) bytes: HashMap<FileName, Vec<u8>>,
}

impl Cached {
    /// What a rank flushes of it.
    pub(crate) fn to_flush<'a>(&'a self, token: &'a str, rank: usize) -> ToFlush<'a> {
        ToFlush { token, dataset: &self.dataset, mine: &self.by_rank[rank] }
    }
}

impl Stage {
    pub(crate) fn new(ranks: u32) -> Self {
        let dir = scratch();
        let prefix = Prefix::new(dir.path().join("prefix"));
        fs::create_dir(prefix.dir()).unwrap();
        let stage = Self { dir, prefix, ranks, nodes: 1, pause: 1000, said: Mutex::default() };
        fs::create_dir(stage.control(0)).unwrap();
        stage
    }

    /// The same on several nodes.
    pub(crate) fn on_nodes(ranks: u32, nodes: u32) -> Self {
        let stage = Self { nodes, ..Self::new(ranks) };
        (1..nodes).for_each(|node| fs::create_dir(stage.control(node)).unwrap());
        stage
    }

    /// A copy of all that is stored, to go back to with [`put_back`](Self::put_back).
    pub(crate) fn keep(&self) -> Kept {
        let kept = scratch();
        copy_tree(self.dir.path(), kept.path());
        Kept(kept)
    }

    /// Stores again what was stored when the copy was made, and nothing else.
    pub(crate) fn put_back(&self, kept: &Kept) {
        fs::remove_dir_all(self.dir.path()).unwrap();
        fs::create_dir(self.dir.path()).unwrap();
        copy_tree(kept.0.path(), self.dir.path());
    }

    /// Puts a dataset into cache: each rank has two files, some of them empty, some in folders of their own.
    pub(crate) fn cache(&self, id: u64, name: &str) -> Cached {
        let mut bytes = HashMap::new();
        let file = |rank: u32, part: u32, bytes: &mut HashMap<FileName, Vec<u8>>| {
            let relative = match part {
                0 => format!("{name}/rank_{rank}"),
                _ => format!("{name}/more/{}/{rank}.dat", rank % 2),
            };
            let len = if (rank + part) % 3 == 2 { 0 } else { 1000 * (rank + 1) + part };
            let content: Vec<u8> =
                (0..len).map(|place| (place + rank + part + id as u32 * 7) as u8).collect();
            let source = self.dir.path().join(format!("cache/{id}/{rank}/{part}"));
            fs::create_dir_all(source.parent().unwrap()).unwrap();
            fs::write(&source, &content).unwrap();
            let crc = Some(crc32fast::hash(&content));
            let name: FileName = relative.parse().unwrap();
            bytes.insert(name.clone(), content);
            let mode = if part == 0 { 0o100_640 } else { 0o100_444 };
            SourceFile { source, record: FileRecord { name, bytes: len.into(), crc, mode, mtime: (0, 0) } }
        };
        let by_rank: Vec<Vec<SourceFile>> =
            (0..self.ranks).map(|rank| (0..2).map(|part| file(rank, part, &mut bytes)).collect()).collect();
        let dataset = DatasetDescriptor {
            id,
            name: name.as_bytes().to_vec(),
            checkpoint: true,
            checkpoint_id: Some(id),
            files: Some(2 * u64::from(self.ranks)),
            bytes: Some(by_rank.iter().flatten().map(|file| file.bytes).sum()),
            complete: Some(true),
            ..DatasetDescriptor::default()
        };
        Cached { dataset, by_rank, bytes }
    }

    /// Runs `body` on every rank, with this transport in threads.
    pub(crate) fn on_all<T: Send>(
        &self,
        files: &(impl Files + Clone + 'static),
        transport: &Arc<dyn Transport>,
        options: Options,
        body: impl Fn(&Flush<'_>, usize) -> T + Sync,
    ) -> Vec<T> {
        self.on_all_with(files, &in_use(transport, false), options, body)
    }

    pub(crate) fn on_all_with<T: Send>(
        &self,
        files: &(impl Files + Clone + 'static),
        transport: &TransportInUse,
        options: Options,
        body: impl Fn(&Flush<'_>, usize) -> T + Sync,
    ) -> Vec<T> {
        let files_of = |_| -> Arc<dyn Files> { Arc::new(files.clone()) };
        self.on_all_over(files_of, transport, options, body)
    }

    /// The same, each rank over a file layer of its own.
    pub(crate) fn on_all_over<T: Send>(
        &self,
        files_of: impl Fn(Rank) -> Arc<dyn Files> + Sync,
        transport: &TransportInUse,
        options: Options,
        body: impl Fn(&Flush<'_>, usize) -> T + Sync,
    ) -> Vec<T> {
        run(self.ranks, |comm| {
            let rank = comm.rank();
            let node = rank.0 * self.nodes / self.ranks;
            let env = TestEnv::new(Arc::new(RealFiles), self.prefix.dir())
                .with_variable("SCR_PREFIX", &self.prefix.dir().display().to_string())
                .with_variable("SCR_NODE_NAME", &format!("node{node}"))
                .with_variable("SCR_FLUSH_ASYNC_USLEEP", &self.pause.to_string())
                .with_variable("SCR_LOG_ENABLE", "0");
            env.clock().set_since_epoch(SINCE_EPOCH);
            let mut job = Job::begin(Rc::new(comm), env.env(), &AppConfig::default(), false).unwrap();
            job.run.prefix = PrefixId::read(&RealFiles, &self.prefix).unwrap();
            // Injected errors are to occur in the flush.
            job.env.files = files_of(rank);
            let control = self.control(node);
            let flush = Flush { job: &job, control: &control, transport: transport.clone(), options };
            let value = body(&flush, rank.index());
            self.said.lock().unwrap().extend(env.output().take_errors());
            value
        })
        .unwrap()
    }

    /// The control directory of a node.
    pub(crate) fn control(&self, node: u32) -> PathBuf {
        self.dir.path().join(format!("n{node}"))
    }

    /// Flushes, and checks that all ranks report the same.
    pub(crate) fn flush(
        &self,
        files: &(impl Files + Clone + 'static),
        transport: &Arc<dyn Transport>,
        token: &str,
        cached: &Cached,
    ) -> Result<FlushReport, FlushError> {
        self.flush_with(files, transport, token, cached, OPTIONS)
    }

    pub(crate) fn flush_with(
        &self,
        files: &(impl Files + Clone + 'static),
        transport: &Arc<dyn Transport>,
        token: &str,
        cached: &Cached,
        options: Options,
    ) -> Result<FlushReport, FlushError> {
        one_report(self.on_all(files, transport, options, |flush, rank| {
            flush.sync(cached.to_flush(token, rank), &|| ())
        }))
    }

    /// The same while the ranks could compute: asynchronously, on threads.
    pub(crate) fn flush_in_background(
        &self,
        files: &(impl Files + Clone + 'static),
        token: &str,
        cached: &Cached,
    ) -> Result<FlushReport, FlushError> {
        one_report(self.on_all(files, &through(files), OPTIONS, |flush, rank| {
            flush.finish(flush.begin(cached.to_flush(token, rank))?)
        }))
    }

    /// A flush without faults.
    pub(crate) fn flush_well(&self, token: &str, cached: &Cached) {
        let report = self.flush(&RealFiles, &through(&RealFiles), token, cached).unwrap();
        assert_eq!(Some(report.files), cached.dataset.files);
        assert_eq!(Some(report.bytes), cached.dataset.bytes);
    }

    /// A flush that has its mark and has taken its names, and none of its files has one.
    pub(crate) fn stop_before_names(&self, cached: &Cached) {
        let files = FaultyFiles::new(RealFiles);
        let below = self.prefix.dir().to_owned();
        files.only(move |what, path| {
            what == What::Rename && path.starts_with(&below) && path.extension() == Some("part".as_ref())
        });
        files.stop_at(1);
        let _ = self.flush(&files, &through(&RealFiles), "1.x", cached);
        let is_marked = self.prefix.scr_file("done.1.x.0").exists();
        assert!(files.stopped() && !self.is_listed(1) && is_marked);
    }

    pub(crate) fn index(&self) -> Index {
        Index::read(&RealFiles, &self.prefix).unwrap()
    }

    pub(crate) fn is_listed(&self, id: u64) -> bool {
        self.index().entry(id).is_some_and(|entry| entry.is_valid())
    }

    /// Every byte and every permission under the final names is right.
    pub(crate) fn is_right(&self, cached: &Cached) -> bool {
        cached.by_rank.iter().flatten().all(|file| {
            let path = self.prefix.file(&file.name);
            let mode = fs::metadata(&path).map(|found| found.permissions().mode() & 0o777);
            fs::read(&path).is_ok_and(|found| found == cached.bytes[&file.name])
                && mode.is_ok_and(|mode| mode == file.permissions())
        })
    }

    pub(crate) fn assert_cache_is_whole(&self, cached: &Cached) {
        for file in cached.by_rank.iter().flatten() {
            assert_eq!(fs::read(&file.source).unwrap(), cached.bytes[&file.name]);
        }
    }

    /// Files and folders that only an interrupted flush leaves.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut todo = vec![self.prefix.dir().to_owned()];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let records = ["flush.", "revoked.", "done."];
                let is_record = records.iter().any(|record| name.starts_with(record));
                if path.is_dir() {
                    if name == "slots" {
                        found.push(path.clone());
                    }
                    todo.push(path);
                } else if name.ends_with(".part") || is_record {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

/// The common report of all ranks, without the checksums, since each rank has only those of its own files.
fn one_report(all: Vec<Result<FlushReport, FlushError>>) -> Result<FlushReport, FlushError> {
    let shared = all.into_iter().map(|report| report.map(|report| FlushReport { sums: None, ..report }));
    let mut all: Vec<_> = shared.collect();
    let first = all.remove(0);
    assert!(all.iter().all(|other| *other == first), "{first:?} and {all:?}");
    first
}

/// Thousands of syncs: in memory where there is such a place.
fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// All that lies in one folder, into another that is there, with permissions and times.
fn copy_tree(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-aT").args([from, to]).status();
    assert!(copied.unwrap().success(), "{} cannot be copied", from.display());
}

pub(crate) const OPTIONS: Options = Options {
    width: 256,
    block_bytes: 4096,
    checksums: true,
    in_place: false,
    make_current: MakeCurrent::IfNewest,
    metadata: true,
    owner: false,
    own_folders: false,
    may_replace: true,
    synced: false,
    ranks_per_leaf: 2,
};
