//! A pretend machine: nodes that can be lost, a prefix directory, and an application that knows what every byte of
//! its files should be.

use scr_base::env::{Clock, Env, Link, Watch};
use scr_base::fs::{Files, RealFiles};
use scr_comm::thread::{self, ThreadComm};
use scr_comm::{Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl};
use scr_config::param::AppConfig;
use scr_core::session::{Error, OutputFlags, Session};
use scr_test_kit::TestEnv;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// Nodes, a prefix directory and settings, which outlive the runs on them.
pub(crate) struct World {
    dir: Arc<TempDir>,
    settings: BTreeMap<String, String>,
    /// The parameters that the application sets before it begins.
    application: AppConfig,
    prefix: String,
    /// The node of every rank; none is named where this is empty.
    pub(crate) nodes: Vec<String>,
    pub(crate) files: Arc<dyn Files>,
    /// How threads of ranks talk.
    pub(crate) link: Link,
    /// The clock of the ranks, if time does not stand still.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// Ranks that see another file layer than the others.
    pub(crate) own_files: BTreeMap<Rank, Arc<dyn Files>>,
    /// Ranks that begin in another folder than the prefix directory.
    pub(crate) own_folders: BTreeMap<Rank, PathBuf>,
    /// Variables that only one rank has.
    pub(crate) own_settings: BTreeMap<Rank, (String, String)>,
    runs: AtomicU64,
    /// Processes of the launch that the ranks are a part of, where they are not all of it.
    pub(crate) launched: Option<u32>,
    /// Whether other processes have started the ranks.
    pub(crate) spawned: bool,
    /// When the processes of all runs began.
    pub(crate) began: Duration,
}

/// The place where a setting is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Environment,
    UserFile,
    Application,
    SystemFile,
}

/// The outcome of a run: each rank's result, and all lines that the user saw.
pub(crate) struct Outcome<T> {
    pub(crate) ranks: Vec<T>,
    pub(crate) lines: Vec<String>,
}

/// The clock of a run begins this many seconds after that of the run before.
pub(crate) const SECONDS_OF_A_RUN: u64 = 1_000_000;

/// How much a rank writes in a checkpoint: the lengths of its files.
pub(crate) type Sizes = fn(Rank) -> Vec<usize>;

impl World {
    /// `ranks` ranks on `nodes` nodes, in blocks; files go to cache and are protected by XOR.
    pub(crate) fn new(ranks: usize, nodes: usize) -> Self {
        let dir = Arc::new(scratch());
        std::fs::create_dir(dir.path().join("prefix")).expect("the prefix directory");
        let each = ranks.div_ceil(nodes);
        let world = Self {
            dir,
            settings: BTreeMap::new(),
            application: AppConfig::default(),
            prefix: "prefix".to_owned(),
            nodes: (0..ranks).map(|rank| format!("n{}", rank / each)).collect(),
            files: Arc::new(RealFiles),
            link: Link::InCalls,
            clock: None,
            own_files: BTreeMap::new(),
            own_folders: BTreeMap::new(),
            own_settings: BTreeMap::new(),
            runs: AtomicU64::new(0),
            launched: None,
            spawned: false,
            began: Duration::ZERO,
        };
        let base = world.dir.path().join("nodes/$SCR_NODE_NAME").display().to_string();
        world
            .set("SCR_CACHE_BASE", &base)
            .set("SCR_CNTL_BASE", &base)
            .set("SCR_CACHE_BYPASS", "0")
            .set("SCR_FLUSH", "0")
            .set("SCR_DEBUG", "1")
            .set("SCR_PLUGIN_PATH", &plugins().display().to_string())
    }

    /// Ranks on these nodes of the same machine, in a prefix directory of their own, with the same settings. They and others are
    /// parts of one launch.
    pub(crate) fn part(&self, prefix: &str, nodes: &[&str]) -> Self {
        let mut part = Self {
            dir: Arc::clone(&self.dir),
            settings: self.settings.clone(),
            application: self.application.clone(),
            prefix: String::new(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            files: Arc::clone(&self.files),
            link: self.link,
            clock: self.clock.clone(),
            own_files: BTreeMap::new(),
            own_folders: BTreeMap::new(),
            own_settings: BTreeMap::new(),
            runs: AtomicU64::new(0),
            launched: Some(1000),
            spawned: false,
            began: self.began,
        };
        part.turn_to(prefix);
        part
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn unset(mut self, name: &str) -> Self {
        self.take_out(name);
        self
    }

    /// A store line for the nodes, with these keys, in the prefix directory's settings.
    pub(crate) fn with_store(self, keys: &str) -> Self {
        let base = self.node("$SCR_NODE_NAME").display().to_string();
        std::fs::write(self.prefix().join(".scrconf"), format!("STORE={base} GROUP=NODE {keys}\n"))
            .expect("the prefix directory can be written to");
        self
    }

    pub(crate) fn prefix(&self) -> PathBuf {
        self.dir.path().join(&self.prefix)
    }

    /// The runs that follow belong to another prefix directory.
    pub(crate) fn turn_to(&mut self, prefix: &str) {
        self.prefix = prefix.to_owned();
        std::fs::create_dir_all(self.prefix()).expect("the prefix directory");
    }

    /// The runs that follow have another setting.
    pub(crate) fn put(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_owned(), value.to_owned());
    }

    /// The runs that follow do not have this setting.
    pub(crate) fn take_out(&mut self, name: &str) {
        self.settings.remove(name);
    }

    /// The same, in a place of its own; what the environment says of it until now is forgotten.
    pub(crate) fn put_in(&mut self, source: Source, name: &str, value: &str) {
        self.settings.remove(name);
        let write = |folder: PathBuf, file: &str| {
            std::fs::create_dir_all(&folder).expect("a folder of the world");
            std::fs::write(folder.join(file), format!("{name}={value}\n")).expect("it can be written to");
        };
        match source {
            Source::Environment => self.put(name, value),
            Source::UserFile => write(self.prefix(), ".scrconf"),
            Source::SystemFile => write(self.install_dir().join("etc"), "scr.conf"),
            Source::Application => {
                let asked = self.application.apply(&format!("{name}={value}"));
                assert_eq!(asked.expect("it can be set by an application"), None);
            }
        }
    }

    /// The folder that all the others lie in.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn install_dir(&self) -> PathBuf {
        self.dir.path().join("install")
    }

    /// The environment of a rank, or of a command on its node, in a run.
    pub(crate) fn env_of(&self, rank: Rank) -> TestEnv {
        let files = self.own_files.get(&rank).unwrap_or(&self.files).clone();
        let folder = self.own_folders.get(&rank).cloned().unwrap_or_else(|| self.prefix());
        let mut env = TestEnv::new(files, folder)
            .with_host("login")
            .with_user("user1", rustix::process::getuid().as_raw())
            .with_beginning(self.began)
            .with_link(self.link)
            .with_variable("RANK", &rank.to_string());
        let node = &self.nodes[rank.index()];
        if !node.is_empty() {
            env = env.with_variable("SCR_NODE_NAME", node);
        }
        if self.install_dir().is_dir() {
            env = env.with_install_dir(self.install_dir());
        }
        let own = self.own_settings.get(&rank).map(|(name, value)| (name, value));
        self.settings.iter().chain(own).fold(env, |env, (name, value)| env.with_variable(name, value))
    }

    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.dir.path().join("nodes").join(name)
    }

    /// A node goes with all that it stores.
    pub(crate) fn lose(&self, name: &str) {
        std::fs::remove_dir_all(self.node(name)).expect("the node has stored something");
    }

    /// A copy of all that the nodes store, to go back to with [`put_back`](Self::put_back).
    pub(crate) fn keep(&self) -> Kept {
        let dir = TempDir::new().expect("a folder for the copy");
        copy_tree(&self.dir.path().join("nodes"), &dir.path().join("nodes"));
        Kept(dir)
    }

    /// The nodes store again what they did when the copy was made, and nothing else.
    pub(crate) fn put_back(&self, kept: &Kept) {
        let nodes = self.dir.path().join("nodes");
        std::fs::remove_dir_all(&nodes).expect("the nodes have stored something");
        copy_tree(&kept.0.path().join("nodes"), &nodes);
    }

    /// Moves all folders of the world aside and puts a copy in their place, until `take_back`: of the nodes' folders only those
    /// that runs on these nodes see.
    pub(crate) fn set_aside(&self, nodes: &[String]) -> Aside {
        let aside =
            TempDir::new_in(self.dir.path().parent().expect("it lies in a folder")).expect("a folder");
        for entry in std::fs::read_dir(self.dir.path()).expect("it can be listed").flatten() {
            let kept = aside.path().join(entry.file_name());
            std::fs::rename(entry.path(), &kept).expect("both are ours");
            if entry.file_name() != "nodes" {
                copy_tree(&kept, &entry.path());
            }
        }
        let seen = nodes.iter().map(|node| (aside.path().join("nodes").join(node), self.node(node)));
        seen.filter(|(kept, copy)| kept.is_dir() && !copy.is_dir())
            .for_each(|(kept, copy)| copy_tree(&kept, &copy));
        Aside(aside)
    }

    /// Takes the original back, and discards all changes to the copy.
    pub(crate) fn take_back(&self, aside: &Aside) {
        for entry in std::fs::read_dir(self.dir.path()).expect("it can be listed").flatten() {
            std::fs::remove_dir_all(entry.path()).expect("it is ours");
        }
        for entry in std::fs::read_dir(aside.0.path()).expect("it can be listed").flatten() {
            std::fs::rename(entry.path(), self.dir.path().join(entry.file_name())).expect("both are ours");
        }
    }

    /// The differences of the nodes' storage to the time of the copy: files with other bytes or other permissions, and files
    /// that are there only now or were only then. Filemaps count as the same if they record the same.
    pub(crate) fn changes_since(&self, kept: &Kept) -> Vec<String> {
        let nodes = self.dir.path().join("nodes");
        let before = kept.0.path().join("nodes");
        let list = |root: &Path| -> BTreeMap<PathBuf, PathBuf> {
            let below =
                |path: PathBuf| (path.strip_prefix(root).expect("it was found there").to_owned(), path);
            files_below(root).into_iter().map(below).collect()
        };
        let (now, then) = (list(&nodes), list(&before));
        let names: std::collections::BTreeSet<_> = now.keys().chain(then.keys()).collect();
        let change = |name: &&PathBuf| match (now.get(*name), then.get(*name)) {
            (Some(now), Some(then)) => difference(now, then),
            (None, _) => Some("is not there"),
            (_, None) => Some("was not there"),
        };
        let changed =
            names.into_iter().filter_map(|name| Some(format!("{} {}", name.display(), change(&name)?)));
        changed.collect()
    }

    /// The files of a part of a dataset whose paths hold all these words.
    pub(crate) fn cached_file(&self, words: &[&str]) -> PathBuf {
        let found = self.cached_files().into_iter().find(|path| {
            let text = path.display().to_string();
            words.iter().all(|word| text.contains(word))
        });
        found.unwrap_or_else(|| panic!("no file with {words:?} among {:?}", self.cached_files()))
    }

    /// Every file below the nodes' folders.
    pub(crate) fn cached_files(&self) -> Vec<PathBuf> {
        files_below(&self.dir.path().join("nodes"))
    }

    /// Runs `body` on every rank with a session, in one process.
    pub(crate) fn run<T: Send>(&self, body: impl Fn(&mut Application) -> T + Sync) -> Outcome<T> {
        self.try_run(|application| body(&mut application.expect("a session begins")))
    }

    /// As [`run`](Self::run), also where no session begins.
    pub(crate) fn try_run<T: Send>(
        &self,
        body: impl Fn(Result<Application, Error>) -> T + Sync,
    ) -> Outcome<T> {
        let part =
            |launched| move |comm| Rc::new(Part { comm, launched, spawned: self.spawned }) as Rc<dyn Comm>;
        match self.launched {
            None => self.run_over(&|comm| Rc::new(comm), body),
            Some(launched) => self.run_over(&part(launched), body),
        }
    }

    /// As [`try_run`](Self::try_run), over another communicator around that of the threads.
    pub(crate) fn run_over<T: Send>(
        &self,
        wrap: &(dyn Fn(ThreadComm) -> Rc<dyn Comm> + Sync),
        body: impl Fn(Result<Application, Error>) -> T + Sync,
    ) -> Outcome<T> {
        let results = Mutex::new(BTreeMap::new());
        let lines = self.run_each(wrap, &|rank, application| {
            let result = body(application);
            results.lock().expect("no rank has panicked with it").insert(rank, result);
        });
        let ranks = results.into_inner().expect("all ranks have ended").into_values().collect();
        Outcome { ranks, lines }
    }

    /// Gives what all ranks have said. This is compiled once, and not for each of a thousand closures.
    fn run_each(
        &self,
        wrap: &(dyn Fn(ThreadComm) -> Rc<dyn Comm> + Sync),
        body: &(dyn Fn(Rank, Result<Application, Error>) + Sync),
    ) -> Vec<String> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let lines = Mutex::new(Vec::new());
        let watch = Watch::default();
        let ranks = u32::try_from(self.nodes.len()).expect("a small world");
        let ended = thread::run(ranks, |comm| {
            let rank = comm.rank();
            let env = self.env_of(rank);
            env.clock().set_since_epoch(Duration::from_secs(SECONDS_OF_A_RUN * run));
            let clock = self.clock.clone().unwrap_or_else(|| env.env().clock);
            let world = Env { watch: watch.clone(), clock, ..env.env() };
            let session = Session::init(wrap(comm), world, &self.application);
            let session = session.inspect_err(|why| drop(said(why)));
            body(rank, session.map(|session| Application { session: Some(session), rank, env: env.clone() }));
            let mut lines = lines.lock().expect("no rank has panicked with it");
            lines.extend(env.output().take_info());
            lines.extend(env.output().take_errors());
        });
        ended.map(drop).unwrap_or_else(|error| panic!("{error}"));
        lines.into_inner().expect("all ranks have ended")
    }
}

impl World {
    /// A session of one rank over a communicator, which takes the place of one that has lost ranks if it `recovers`.
    pub(crate) fn begin_over(&self, comm: impl Comm + 'static, recovers: bool) -> Result<Application, Error> {
        let (rank, env) = (comm.rank(), self.env_of(comm.rank()));
        env.clock().set_since_epoch(Duration::from_secs(SECONDS_OF_A_RUN));
        let begin = if recovers { Session::recover } else { Session::init };
        let session = begin(Rc::new(comm), env.env(), &self.application)?;
        Ok(Application { session: Some(session), rank, env })
    }
}

impl Application {
    /// The output of this rank until now.
    pub(crate) fn lines(&self) -> Vec<String> {
        [self.env.output().take_info(), self.env.output().take_errors()].concat()
    }
}

impl<T: PartialEq + std::fmt::Debug> Outcome<T> {
    /// Every rank gave this.
    pub(crate) fn all_gave(&self, expected: &T) {
        let other = self.ranks.iter().position(|found| found != expected);
        if let Some(rank) = other {
            panic!("rank {rank} gave {:?}, not {expected:?}\n{}", self.ranks[rank], self.lines.join("\n"));
        }
    }
}

impl<T> Outcome<T> {
    /// The line that has all these words.
    pub(crate) fn line_with(&self, words: &[&str]) -> &str {
        let found = self.lines.iter().find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line with {words:?} in\n{}", self.lines.join("\n")))
    }

    pub(crate) fn has_line_with(&self, word: &str) -> bool {
        self.lines.iter().any(|line| line.contains(word))
    }
}

/// The communicator of a part of a launch.
pub(crate) struct Part {
    pub(crate) comm: ThreadComm,
    pub(crate) launched: u32,
    pub(crate) spawned: bool,
}

impl Comm for Part {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        check_cancel: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
    ) -> Result<ExchangeEnd, CommError> {
        self.comm.exchange(tag, sends, receives, check_cancel)
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        self.comm.take(tag)
    }

    fn traffic(&self) -> Traffic {
        self.comm.traffic()
    }

    fn launch_size(&self) -> u32 {
        self.launched
    }

    fn is_spawned(&self) -> bool {
        self.spawned
    }
}

/// One rank of the application.
pub(crate) struct Application {
    session: Option<Session>,
    pub(crate) rank: Rank,
    env: TestEnv,
}

impl Application {
    pub(crate) fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("not finalized yet")
    }

    /// Lets this many seconds pass on the clock of this rank.
    pub(crate) fn wait(&self, seconds: u64) {
        self.env.clock().advance(Duration::from_secs(seconds));
    }

    /// Whether this rank has said this to the user.
    pub(crate) fn has_said(&self, words: &str) -> bool {
        self.env.output().has_error_with(words)
    }

    pub(crate) fn finalize(&mut self) -> Result<(), Error> {
        self.session.take().expect("not finalized yet").finalize()
    }

    /// Ends because of a halt condition.
    pub(crate) fn halt(&mut self) -> Result<(), Error> {
        self.session.take().expect("not finalized yet").halt()
    }

    /// Writes and completes a checkpoint named `ckpt.<step>`.
    pub(crate) fn checkpoint(&mut self, step: u64, sizes: Sizes) -> Result<(), Error> {
        self.write(step, sizes)?;
        self.session().complete_output(true)
    }

    /// Writes and completes a checkpoint of any name, with the files of a step.
    pub(crate) fn checkpoint_as(&mut self, name: &[u8], step: u64, sizes: Sizes) -> Result<(), Error> {
        self.session().start_output(Some(name), OutputFlags { checkpoint: true, output: false })?;
        self.fill(step, sizes)?;
        self.session().complete_output(true)
    }

    /// Writes and completes a checkpoint that is output as well: it is safe only in the prefix directory.
    pub(crate) fn output(&mut self, step: u64, sizes: Sizes) -> Result<(), Error> {
        self.write_as(OutputFlags { checkpoint: true, output: true }, step, sizes)?;
        self.session().complete_output(true)
    }

    /// Writes a checkpoint and leaves it open.
    pub(crate) fn write(&mut self, step: u64, sizes: Sizes) -> Result<(), Error> {
        self.write_as(OutputFlags { checkpoint: true, output: false }, step, sizes)
    }

    fn write_as(&mut self, flags: OutputFlags, step: u64, sizes: Sizes) -> Result<(), Error> {
        self.begin_as(flags, step)?;
        self.fill(step, sizes)
    }

    /// Begins a checkpoint, and writes nothing yet.
    pub(crate) fn begin(&mut self, step: u64) -> Result<(), Error> {
        self.begin_as(OutputFlags { checkpoint: true, output: false }, step)
    }

    /// The same for one that is output as well.
    pub(crate) fn begin_output(&mut self, step: u64) -> Result<(), Error> {
        self.begin_as(OutputFlags { checkpoint: true, output: true }, step)
    }

    fn begin_as(&mut self, flags: OutputFlags, step: u64) -> Result<(), Error> {
        self.session().start_output(Some(format!("ckpt.{step}").as_bytes()), flags)
    }

    /// Writes this rank's files of a checkpoint that is open.
    pub(crate) fn fill(&mut self, step: u64, sizes: Sizes) -> Result<(), Error> {
        let rank = self.rank;
        for (number, size) in sizes(rank).into_iter().enumerate() {
            let path = self.session().route_file(file_name(step, rank, number).as_bytes())?;
            std::fs::write(path_of(&path), contents(step, rank, number, size))
                .expect("the routed path can be written");
            std::fs::set_permissions(path_of(&path), mode(rank, number)).expect("the file is ours");
        }
        Ok(())
    }

    /// Restarts, and compares every byte. Gives the step restarted from.
    pub(crate) fn restart(&mut self, sizes: Sizes) -> Option<u64> {
        self.try_restart(sizes).expect("what is offered can be restarted from")
    }

    /// As [`restart`](Self::restart), where the world may end in the middle.
    pub(crate) fn try_restart(&mut self, sizes: Sizes) -> Result<Option<u64>, Error> {
        let Some(name) = self.session().have_restart()? else { return Ok(None) };
        assert_eq!(self.session().start_restart()?, name);
        let step = step_of(&name);
        self.compare(step, sizes)?;
        self.session().complete_restart(true)?;
        Ok(Some(step))
    }

    /// Compares every byte of this rank's files of a checkpoint.
    pub(crate) fn compare(&mut self, step: u64, sizes: Sizes) -> Result<(), Error> {
        let rank = self.rank;
        for (number, size) in sizes(rank).into_iter().enumerate() {
            let name = file_name(step, rank, number);
            let path = self.session().route_file(name.as_bytes())?;
            let found = std::fs::read(path_of(&path)).expect("the routed path can be read");
            assert!(found == contents(step, rank, number, size), "{name} is not what was written");
            let found = std::fs::metadata(path_of(&path)).expect("it has just been read").permissions();
            assert_eq!(found.mode() & 0o7777, mode(rank, number).mode(), "{name} has other permissions");
        }
        Ok(())
    }
}

/// What the user reads of a failure, with its code.
pub(crate) fn said(failure: impl std::error::Error) -> String {
    scr_base::codes::coded("ERROR", &scr_base::describe(&failure))
}

/// A copy of all that the nodes stored at some moment.
pub(crate) struct Kept(TempDir);

/// All that was in a world at some moment.
pub(crate) struct Aside(TempDir);

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder for the copy");
    let permissions = std::fs::metadata(from).expect("the folder is there").permissions();
    std::fs::set_permissions(to, permissions).expect("the copy is ours");
    for entry in std::fs::read_dir(from).expect("the folder can be listed").flatten() {
        let (kind, target) = (entry.file_type().expect("it was listed"), to.join(entry.file_name()));
        if kind.is_dir() || kind.is_symlink() && entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            copy_file(&entry.path(), &target).expect("the file can be copied");
        }
    }
}

/// Copies bytes, permissions and the time of the last change, in few operations: tests of histories copy most of the time.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut from = std::fs::File::open(from)?;
    let status = from.metadata()?;
    let mut bytes = vec![0; status.len() as usize];
    from.read_exact(&mut bytes)?;
    let mut to = std::fs::File::create_new(to)?;
    to.write_all(&bytes)?;
    to.set_permissions(status.permissions())?;
    to.set_modified(status.modified()?)
}

/// How a file differs from its original contents.
fn difference(now: &Path, then: &Path) -> Option<&'static str> {
    let mode = |path: &Path| std::fs::metadata(path).expect("it was listed").permissions().mode();
    let bytes = |path: &Path| std::fs::read(path).expect("it was listed");
    if mode(now) != mode(then) {
        return Some("has other permissions");
    }
    if now.display().to_string().contains("filemap_") {
        let read = |path| scr_ops::scrub::filemap(&RealFiles, path).expect("a filemap");
        return (read(now) != read(then)).then_some("records something else");
    }
    (bytes(now) != bytes(then)).then_some("has other bytes")
}

pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

pub(crate) fn file_name(step: u64, rank: Rank, number: usize) -> String {
    format!("ckpt.{step}/rank_{rank}.{number}")
}

fn step_of(name: &[u8]) -> u64 {
    std::str::from_utf8(name)
        .ok()
        .and_then(|name| name.strip_prefix("ckpt.")?.parse().ok())
        .expect("a name of ours")
}

/// The permissions of a file: not always the same.
pub(crate) fn mode(rank: Rank, number: usize) -> std::fs::Permissions {
    let modes = [0o644, 0o600, 0o755, 0o640, 0o666];
    std::fs::Permissions::from_mode(modes[(rank.index() + 3 * number) % modes.len()])
}

/// The expected contents of a file: different for every step, rank and number.
pub(crate) fn contents(step: u64, rank: Rank, number: usize, size: usize) -> Vec<u8> {
    let mut state = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(rank.0) << 20 ^ number as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ state >> 31).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Every file below a folder, sorted.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A folder for one test, in memory where that is to be had: many of these runs wait for stable storage all the time.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.expect("a folder for the test")
}

/// A folder with the project's plugins as they are installed: manifests, and libraries beside them.
pub(crate) fn plugins() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = scratch();
            let built = std::env::current_exe().expect("the test itself");
            let built = built.parent().expect("it lies in a folder");
            let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/plugins.d");
            for name in ["single", "xor", "rs", "partner", "sync", "pthread"] {
                let library = format!("libscr_{name}.so");
                let installed = folder.path().join(&library);
                std::fs::copy(built.join(&library), &installed).expect("the plugin was built");
                // Every rank reads the whole library: without symbols that is eight times as fast. If there is no `strip`, the
                // library works as it is.
                let _ = std::process::Command::new("strip").arg(&installed).status();
                let manifest = format!("{name}.toml");
                std::fs::copy(manifests.join(&manifest), folder.path().join(&manifest))
                    .expect("it has a manifest");
            }
            folder
        })
        .path()
}
