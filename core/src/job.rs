//! Data that all modules need and none changes: the ranks, the outside world, the settings, the prefix directory, the log. Made
//! once, when a session begins, and the same on all ranks except for a rank's own data.

use crate::error::{Doing as _, Error};
use crate::launcher;
use crate::log::{check_logger, Counts, Log};
use crate::typed::broadcast_value;
use scr_base::ensure;
use scr_base::env::Env;
use scr_base::fs::{is_of_closed_file, Files, OwnedDir};
use scr_base::message::Reporter;
use scr_comm::collective::{agree, agree_at, all_gather, all_reduce, any, first_differing, Op};
use scr_comm::placement::Placement;
use scr_comm::tcp::interface::choose;
use scr_comm::tcp::Limits;
use scr_comm::watched::Pace;
use scr_comm::{AnyError, Collective, CollectiveError, Comm, CommError, Rank, Traffic};
use scr_config::descriptor::{cautions, hostlist, passes_through, Descriptors, NODE, WORLD};
use scr_config::param::{self, AppConfig, ConfigError, Origin, Params, Problem, Settings};
use scr_prefix::commit::Commit;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{DatasetDescriptor, Prefix, PrefixError, RunId, Seq};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A run of a job, as all of the runtime sees it.
pub(crate) struct Job {
    pub(crate) comm: Rc<dyn Comm>,
    pub(crate) env: Env,
    pub(crate) report: Reporter,
    pub(crate) params: Params,
    pub(crate) descriptors: Descriptors,
    pub(crate) prefix: Prefix,
    /// The current folder in which all ranks began. `None` if they did not begin in the same one.
    pub(crate) folder: Option<PathBuf>,
    /// Which run this is, in which prefix directory.
    pub(crate) run: RunId,
    pub(crate) log: Log,
    /// Which ranks share a node.
    pub(crate) nodes: Placement,
    /// Processors for each rank that runs on this machine; at least one.
    pub(crate) processors: u32,
    /// Processes that were started together, of which the ranks may be a part; the same on all ranks.
    pub(crate) launched: u32,
    /// Whether this session takes the place of one that has lost ranks; the same on all ranks.
    pub(crate) is_recovery: bool,
    /// Whether an operation has failed since the application has closed a file that scr keeps open.
    pub(crate) closed: AtomicBool,
    /// What this rank has said that it says once.
    pub(crate) said: RefCell<BTreeSet<Said>>,
}

/// What is said once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Said {
    /// A setting has no effect, or less.
    Setting,
    /// A dataset has no files.
    NoFiles,
    /// A checkpoint takes the files of the only other one.
    SameFiles,
    /// Ranks write one file.
    SharedFile,
    /// Another process writes to a file of a complete dataset.
    Writer,
    /// The cache has no room for a checkpoint beside the protected one.
    NoRoomBehind,
    /// Checkpoints are protected more slowly than they are written.
    ProtectionLags,
    /// A transport copies only while the application waits.
    Synchronous,
    /// No ids can be reserved for new datasets.
    NoIds,
    /// The application has not asked for its checkpoint.
    Unasked,
    /// Nothing can be saved any more. It is news again once something could be.
    Unsaved,
    /// A store has no room for the files of a dataset that lie on other nodes.
    NoRoomToLend(Seq),
}

impl Job {
    /// Reads the settings and finds out which ranks share a node. Collective.
    ///
    /// # Errors
    /// [`Error`]: the settings cannot be used, or SCR is disabled. The same on all ranks.
    pub(crate) fn begin(
        comm: Rc<dyn Comm>,
        env: Env,
        app: &AppConfig,
        recovers: bool,
    ) -> Result<Self, Error> {
        // Ranks that were started later than others are of another launch, and have no session to recover.
        let own = [u64::from(comm.launch_size()), u64::from(recovers)];
        let [launched, recover] = all_reduce(&*comm, own, Op::Max)?;
        let (launched, is_recovery) = (u32::try_from(launched).unwrap_or(u32::MAX), recover != 0);
        // Rank 0 reads files and environment for all.
        let raw = broadcast_value(&*comm, (comm.rank() == Rank(0)).then(|| Settings::load(&env, app)))?;
        let (params, mut problems) = Params::resolve(&raw, &env);
        let built = is_used(&params).then(|| descriptors(&env, &params, &mut problems));
        if built.is_some() {
            problems.extend(check_interface(&env, &params));
            problems.extend(other_requests(&*comm, app)?);
        }
        let node = params.get(&param::NODE_NAME);
        let report = Reporter::new(env.output.clone(), comm.rank(), &node, params.get(&param::DEBUG));
        let wrong = warn_of(problems, &params, &report);
        let (built, fatal) = built.ok_or(Error::Disabled)?;
        let built = ConfigError::unless([fatal, wrong].concat(), built);
        if launched == 1 && !comm.is_spawned() {
            launcher::expect_alone(&env)?;
        }
        let descriptors = agreed_descriptors(&*comm, &node, built)?;
        let (nodes, processors) = nodes_and_processors(&*comm, &env, &node)?;
        if let Some(watch) = comm.watch() {
            let nodes = nodes.clone();
            watch.set_pace(Pace::of(params.get(&param::LATE_SECS)));
            watch.name_by(Box::new(move |rank| format!("{rank} on {}", nodes.name(rank))));
        }
        let prefix = prefix_of(&*comm, &*env.files, &params)?;
        expect_one_prefix(&*comm, &env, &raw, &prefix)?;
        let elsewhere = first_differing(&*comm, env.current_dir.as_os_str().as_bytes())?;
        let folder = elsewhere.is_none().then(|| env.current_dir.clone());
        let silent = Self::silent(comm, env, report, params, descriptors, prefix, nodes);
        let mut job = Self { folder, processors, launched, is_recovery, ..silent };
        job.make_scr_dir()?;
        job.count_run(0)?;
        job.on_each_node(|| job.run.wait_for_prefix(job.files(), &job.prefix))
            .doing("looking for the prefix directory on each node")?;
        let held = job.agree(job.run.hold_prefix(&job.env.files, &job.prefix));
        job.env.files = held.doing("opening the prefix directory")?;
        job.log = Log::begin(job.rank(), &job.env, &job.params, &job.report, &job.prefix);
        Ok(job)
    }

    /// The job of a command whose threads take the place of ranks: settings have their defaults, and nothing is logged.
    ///
    /// # Errors
    /// [`Error`]: the defaults cannot be used here. The same on all ranks.
    pub(crate) fn of_command(
        comm: Rc<dyn Comm>,
        env: &Env,
        prefix: &Prefix,
        level: u64,
    ) -> Result<Self, Error> {
        let (params, _) = Params::resolve(&Settings::of_defaults(env), env);
        let descriptors =
            Descriptors::build(&params, &mut Vec::new()).map_err(|error| Error::Config(error.to_string()))?;
        let report = Reporter::new(env.output.clone(), comm.rank(), &env.host, level);
        let nodes = Placement::of_one(env.host.clone(), comm.size());
        let (folder, launched) = (Some(env.current_dir.clone()), comm.size());
        let silent = Self::silent(comm, env.clone(), report, params, descriptors, prefix.clone(), nodes);
        Ok(Self { folder, launched, ..silent })
    }

    /// A job of which nothing more is known, and that logs nothing.
    fn silent(
        comm: Rc<dyn Comm>,
        env: Env,
        report: Reporter,
        params: Params,
        descriptors: Descriptors,
        prefix: Prefix,
        nodes: Placement,
    ) -> Self {
        Self {
            log: Log::silent(&env, &params, &report, &prefix),
            comm,
            env,
            report,
            params,
            descriptors,
            prefix,
            folder: None,
            run: RunId::default(),
            nodes,
            processors: 1,
            launched: 1,
            is_recovery: false,
            closed: AtomicBool::new(false),
            said: RefCell::default(),
        }
    }

    /// The address of this node for threads that talk over TCP, and how long they wait for a node that does not answer.
    /// Collective.
    ///
    /// # Errors
    /// No address of a node is the one that the user wants. The same on all ranks.
    pub(crate) fn network(&self) -> Collective<(IpAddr, Limits)> {
        let wanted = self.params.get(&param::TCP_INTERFACE);
        let ip = self.agree(choose(wanted.as_deref(), &self.env.host, self.nodes.count() == 1))?;
        let ports = self.params.get(&param::TCP_PORTS).map(|(first, last)| first..=last);
        Ok((ip, Limits { ports, ..Limits::new(Arc::clone(&self.env.clock), LONGEST_CONNECT) }))
    }

    /// The job for another thread of this rank, which makes it there of a communicator of the same ranks. Nothing is logged.
    pub(crate) fn for_thread(&self) -> impl FnOnce(Rc<dyn Comm>) -> Job + Send + 'static {
        let (env, report, params) = (self.env.clone(), self.report.clone(), self.params.clone());
        let (descriptors, prefix) = (self.descriptors.clone(), Prefix::new(self.prefix.dir()));
        let (folder, run, nodes) = (self.folder.clone(), self.run.clone(), self.nodes.clone());
        let (processors, launched, is_recovery) = (self.processors, self.launched, self.is_recovery);
        move |comm| {
            let silent = Job::silent(comm, env, report, params, descriptors, prefix, nodes);
            Job { folder, run, processors, launched, is_recovery, ..silent }
        }
    }

    /// Gives this run its number, which is higher than `seen`. Collective.
    ///
    /// # Errors
    /// The records of earlier runs cannot be read, or the prefix directory cannot be written to for another reason than want
    /// of room.
    pub(crate) fn count_run(&mut self, seen: u64) -> Result<(), Error> {
        let run =
            self.on_first(|| self.begin_run(seen)).doing("recording this run in the prefix directory")?;
        self.run = RunId { is_second: self.run.is_second, ..run };
        Ok(())
    }

    fn begin_run(&self, seen: u64) -> Result<RunId, UnpreparedError> {
        let seen = seen.max(self.env.seconds());
        match self.ledger().begin_run(seen) {
            Ok((run, damage)) => {
                if let Some(damage) = damage {
                    self.report.error(&format!(
                        "{}; a new file is started, with numbers above all that are known. What was dropped or refused, and is \
                         still in cache, may be offered again",
                        scr_base::describe(&damage)
                    ));
                }
                Ok(run)
            }
            Err(error) => {
                self.accept_want_of_room(error)?;
                self.ledger().last_run(seen).map_err(UnpreparedError::Prefix)
            }
        }
    }

    /// Without room a run begins anyway: there may be some at the next flush, and a run can restart from cache without.
    ///
    /// # Errors
    /// Any other error.
    pub(crate) fn accept_want_of_room(&self, error: PrefixError) -> Result<(), UnpreparedError> {
        if error.is_for_want_of_room() {
            let (why, what) =
                (scr_base::describe(&error), "the run starts anyway: make room before the next flush");
            self.report.error(&format!("{why}; {what}"));
            return Ok(());
        }
        Err(match error.is_for_want_of_permission() {
            true => UnpreparedError::NotWritable(error),
            false => UnpreparedError::Prefix(error),
        })
    }

    /// Entries of the log belong to this run from now on.
    pub(crate) fn begin_log(&mut self) {
        let counts = match self.rank() {
            Rank(0) if self.run.is_second => Counts::OfRun,
            Rank(0) => Counts::OfJob,
            rank if rank == self.nodes.leader(rank) && self.params.get(&param::METRICS_DIR).is_some() => {
                Counts::OfRun
            }
            _ => Counts::Nothing,
        };
        self.log.begin_run(&*self.env.files, &self.prefix, self.run.number, counts);
    }

    /// Makes the hidden folder under the prefix directory.
    fn make_scr_dir(&self) -> Result<(), Error> {
        let (at_root, prefix) = (self.rank() == Rank(0), &self.prefix);
        let is_new = at_root && !prefix.is_there(self.files());
        let made = if at_root { prefix.make(self.files()) } else { Ok(()) };
        if is_new && made.is_ok() {
            self.report.notice(&prefix.was_made());
        }
        self.agree(made).doing("making the folder .scr in the prefix directory (SCR_PREFIX)")
    }

    /// Whether the ranks are a part of those that were launched together, and others of them may have sessions of their own.
    pub(crate) fn is_part(&self) -> bool {
        self.comm.size() < self.launched
    }

    /// Whether the prefix directory is purged when the run begins. A recovery deletes nothing: datasets written since the run
    /// began must stay.
    pub(crate) fn purges_prefix(&self) -> bool {
        self.params.get(&param::PREFIX_PURGE) && !self.is_recovery
    }

    /// This rank.
    pub(crate) fn rank(&self) -> Rank {
        self.comm.rank()
    }

    /// The file layer.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.env.files
    }

    /// To end flushes now.
    pub(crate) fn commit(&self) -> Commit<'_> {
        self.ledger().commit(self.local_time())
    }

    /// The life of the datasets under the prefix directory.
    pub(crate) fn ledger(&self) -> LedgerDir<'_> {
        LedgerDir { files: self.files(), prefix: &self.prefix }
    }

    /// The prefix directory as datasets record it.
    pub(crate) fn prefix_bytes(&self) -> &[u8] {
        self.prefix.dir().as_os_str().as_bytes()
    }

    /// One outcome for all ranks, with nodes named where it is bad.
    pub(crate) fn agree<T, E: Into<AnyError>>(&self, result: Result<T, E>) -> Collective<T> {
        self.prefix.take_notes().iter().for_each(|note| self.report.warn_here(note));
        self.files().take_notes().iter().for_each(|note| self.report.notice(note));
        let result = result.map_err(Into::<AnyError>::into).inspect_err(|error| self.note_failure(&**error));
        agree_at(&*self.comm, self.nodes.name(self.rank()), result)
    }

    /// Gives all ranks what rank 0 finds out. Collective.
    pub(crate) fn on_first<T, E>(&self, ask: impl FnOnce() -> Result<T, E>) -> Collective<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<AnyError>,
    {
        let own = self.do_on_first(ask)?;
        Ok(broadcast_value(&*self.comm, own)?)
    }

    /// Lets rank 0 do what has one outcome for all ranks. Only rank 0 gets the value. Collective.
    pub(crate) fn do_on_first<T, E: Into<AnyError>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Collective<Option<T>> {
        self.agree((self.rank() == Rank(0)).then(work).transpose())
    }

    /// The number that rank 0 finds, on all ranks. Collective.
    pub(crate) fn number_of_first(&self, find: impl FnOnce() -> u64) -> Result<u64, CommError> {
        let own = if self.rank() == Rank(0) { find() } else { 0 };
        all_reduce(&*self.comm, [own], Op::Max).map(|[found]| found)
    }

    /// Remembers that an operation has failed as the application has closed files of scr, if that is why.
    pub(crate) fn note_failure(&self, error: &(dyn std::error::Error + 'static)) {
        self.closed.fetch_or(is_of_closed_file(error), Ordering::Relaxed);
    }

    /// Reports what has failed on this rank, which goes on without it.
    pub(crate) fn report_failed<E: std::error::Error + 'static>(&self, done: Result<(), E>) {
        done.unwrap_or_else(|error| self.report.error_here(&scr_base::describe(&error)));
    }

    /// Whether this has yet to be said, which is said once in a run.
    pub(crate) fn is_news(&self, what: Said) -> bool {
        self.said.borrow_mut().insert(what)
    }

    /// Warns of a setting that only a run finds useless.
    pub(crate) fn warn_of_setting(&self, why: &str) {
        _ = self.is_news(Said::Setting);
        self.report.warn(why);
    }

    /// What [`warn_of_setting`](Self::warn_of_setting) has said is an error if the user wants that. Collective.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn expect_no_warning(&self) -> Result<(), Error> {
        let is_strict = self.params.get(&param::STRICT);
        let is_warned = || self.any(self.said.borrow().contains(&Said::Setting));
        ensure(!(is_strict && is_warned()?), || Error::Config(STRICTLY.to_owned()))
    }

    /// Whether this holds on any rank. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn any(&self, own: bool) -> Result<bool, CommError> {
        any(&*self.comm, [own]).map(|[any]| any)
    }

    /// The first rank of each node does `work`. Collective.
    pub(crate) fn on_each_node(&self, work: impl FnOnce() -> Result<(), PrefixError>) -> Collective<()> {
        let leads = self.nodes.leader(self.rank()) == self.rank();
        self.agree(if leads { work() } else { Ok(()) })
    }

    /// The fields of a dataset's description that are the same for all datasets of a job.
    pub(crate) fn descriptor_of_job(&self) -> DatasetDescriptor {
        DatasetDescriptor {
            user: self.params.get(&param::USER_NAME),
            job_id: self.params.get(&param::JOB_ID),
            job_name: self.params.get(&param::JOB_NAME).unwrap_or_default(),
            cluster: self.params.get(&param::CLUSTER_NAME).unwrap_or_default(),
            ranks: Some(self.comm.size()),
            any_ranks: self.params.get(&param::RESTART_OTHER_RANKS),
            ..DatasetDescriptor::default()
        }
    }

    /// Microseconds since the epoch.
    pub(crate) fn micros(&self) -> u64 {
        self.env.clock.micros()
    }

    /// The time of day as the files under the prefix directory give it: local, to the second.
    pub(crate) fn local_time(&self) -> String {
        self.env.local_time()
    }

    /// Reports what rank 0 has sent since `before`.
    pub(crate) fn report_traffic(&self, what: &str, before: Traffic) {
        let now = self.comm.traffic();
        let (messages, bytes) = (now.messages - before.messages, now.bytes - before.bytes);
        self.report.info(&format!("{what}: rank 0 sent {messages} messages, {bytes} bytes"));
    }

    /// Time on the stopwatch.
    pub(crate) fn elapsed(&self) -> Duration {
        self.env.clock.elapsed()
    }

    /// `<user>/scr.<allocation>`
    pub(crate) fn job_folder(&self) -> PathBuf {
        job_folder(&self.params)
    }

    /// Reports that the directory of this job in a base is not the usual one, since another user has taken the name.
    pub(crate) fn report_other_name(&self, base: &Path, dir: &OwnedDir) {
        let usual = base.join(self.job_folder());
        if dir.path() != usual && self.nodes.mates(self.rank()).first() == Some(&self.rank()) {
            self.report.warn_here(&format!(
                "another user has made {}: {} is used instead",
                usual.parent().unwrap_or(base).display(),
                dir.path().display()
            ));
        }
    }

    /// The ranks by what they give as their value of a group. Collective.
    pub(crate) fn placement_in(&self, group: &str, value: &str) -> Result<Placement, CommError> {
        match group {
            NODE => Ok(self.nodes.clone()),
            WORLD => Ok(Placement::of_one(value.to_owned(), self.comm.size())),
            _ => Placement::gather(&*self.comm, value),
        }
    }

    /// The value by which this rank is grouped in a group.
    pub(crate) fn group_value(&self, group: &str) -> Result<String, ConfigError> {
        let node = self.params.get(&param::NODE_NAME);
        self.descriptors.groups.value(group, &node, self.rank())
    }
}

/// Why the prefix directory is not ready for a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpreparedError {
    #[error(
        "{}; nothing could be kept there: let this user own what is named, or let SCR_PREFIX name a folder that can be written to",
        scr_base::describe(.0)
    )]
    NotWritable(PrefixError),
    #[error(transparent)]
    Prefix(PrefixError),
}

/// The folder of a job in control and cache directories: `<user>/scr.<allocation>`.
pub fn job_folder(params: &Params) -> PathBuf {
    let user = params.get(&param::USER_NAME);
    Path::new(&user).join(format!("scr.{}", params.get(&param::JOB_ID)))
}

fn is_used(params: &Params) -> bool {
    params.get(&param::ENABLE) || passes_through(params)
}

/// Warns of what is wrong with settings, and gives what no run may start with: problems of some kinds, or all if the user wants
/// that.
pub(crate) fn warn_of(mut problems: Vec<Problem>, params: &Params, report: &Reporter) -> Vec<Problem> {
    param::sort(&mut problems);
    let is_strict = params.get(&param::STRICT);
    let is_fatal = |problem: &mut Problem| is_used(params) && (is_strict || problem.stops());
    let mut fatal: Vec<_> = problems.extract_if(.., is_fatal).collect();
    problems.iter().for_each(|problem| report.warn(&problem.to_string()));
    if is_strict && !fatal.is_empty() {
        fatal.push(Problem::new(params.origin(&param::STRICT), STRICTLY.to_owned()));
    }
    fatal
}

const STRICTLY: &str =
    "SCR_STRICT=1: a setting that would be ignored or warned of, as in the warning before, is an error";

/// Groups, stores and redundancy, which are the same on all ranks as far as they decide on steps. Collective.
fn agreed_descriptors(
    comm: &dyn Comm,
    node: &str,
    built: Result<Descriptors, ConfigError>,
) -> Result<Descriptors, Error> {
    let descriptors = agree_at(comm, node, built)
        .or_else(|error| Err(Error::Config(format!("reading the settings failed: {}", error.agreed()?))))?;
    // Ranks with different intervals or stores would not take the same steps.
    let Some(rank) = first_differing(comm, &descriptors.common().pack())? else { return Ok(descriptors) };
    Err(Error::Config(format!(
        "rank {rank} differs from rank 0 in a STORE or CKPT line; use variables that are not the same on all ranks only in the \
         folder of a STORE and for GROUPS"
    )))
}

/// Which ranks share a node, and the processors for each rank on this machine. Nodes by name may share a machine, as containers
/// do, and then they share its processors. Collective.
///
/// # Errors
/// Several machines have one name: each would count the cache of the others as its own.
fn nodes_and_processors(comm: &dyn Comm, env: &Env, node: &str) -> Result<(Placement, u32), Error> {
    let own = [node.as_bytes(), &env.files.machine()].join(&0);
    let all = all_gather(comm, &own)?;
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let part =
        |place: usize, part: usize| all.distinct()[place].splitn(2, |byte| *byte == 0).nth(part).map(text);
    let mut machine_of = HashMap::new();
    let known = |place: &usize| part(*place, 1).is_some_and(|machine| !machine.is_empty());
    for (ranks, place) in all.runs().filter(|(_, place)| known(place)) {
        let (rank, other) = *machine_of.entry(part(place, 0)).or_insert((ranks.start, place));
        if other != place {
            let name = part(place, 0).unwrap_or_default();
            return Err(Error::Config(format!(
                "rank {rank} and rank {} run on different machines, and both have the node name {name:?}: set SCR_NODE_NAME in \
                 the environment of each rank to a name that no other machine has",
                ranks.start
            )));
        }
    }
    let nodes = Placement::of(all.map(|place| part(place, 0).unwrap_or_default()));
    let machines = Placement::of(all.map(|place| part(place, 1).unwrap_or_default()));
    let mates = u32::try_from(machines.mates(comm.rank()).len()).unwrap_or(u32::MAX);
    Ok((nodes, (env.processors / mates).max(1)))
}

/// The prefix directory, with links followed where they lead to the same place on all ranks.
fn prefix_of(comm: &dyn Comm, files: &dyn Files, params: &Params) -> Result<Prefix, CommError> {
    let given = params.get(&param::PREFIX);
    let followed = Prefix::at(files, &given);
    let other = first_differing(comm, followed.dir().as_os_str().as_bytes())?;
    Ok(other.map_or(followed, |_| Prefix::new(given)))
}

/// Expects that each rank means this prefix directory: by its own variable, or as seen from its own current folder. Without a
/// setting it may also stand below that of rank 0. Collective.
///
/// # Errors
/// A rank means another one: its files would get the names of files of other ranks.
fn expect_one_prefix(comm: &dyn Comm, env: &Env, raw: &Settings, prefix: &Prefix) -> Result<(), Error> {
    let meant = raw.prefix_meant_in(env);
    let is_default = meant == param::normalise(&env.current_dir);
    let below = prefix.name_of(&*env.files, &meant);
    let is_meant =
        meant == prefix.dir() || below.is_some_and(|below| is_default || below.as_os_str().is_empty());
    let own = match is_meant {
        true => Ok(()),
        false => Err(format!("its prefix directory would be {}", meant.display())),
    };
    agree(comm, own).map_err(|error| match error {
        CollectiveError::Comm(error) => error.into(),
        CollectiveError::Ranks(why) => Error::Config(format!(
            "the prefix directory of rank 0 is {}, and another rank means another one: {why}; set SCR_PREFIX for all ranks to \
             one absolute path, that of a folder in which the files of all ranks lie",
            prefix.dir().display()
        )),
    })
}

/// The settings that rank 0 has made with `SCR_Config` apply to all. Names another rank with different settings. Collective.
fn other_requests(comm: &dyn Comm, app: &AppConfig) -> Result<Option<Problem>, CommError> {
    let differing = first_differing(comm, app.to_text().as_bytes())?.map(|rank| format!(
        "rank {rank} differs from rank 0 in what it has set with SCR_Config; the settings of rank 0 apply to all, so let all \
         ranks set the same"
    ));
    Ok(differing.map(|what| Problem::new(&Origin::Application, what)))
}

/// The descriptors, as far as they can be made, and what keeps a run from using them. `problems` gets what both a run and whoever
/// checks settings before it say.
pub fn descriptors(env: &Env, params: &Params, problems: &mut Vec<Problem>) -> (Descriptors, Vec<Problem>) {
    let (descriptors, fatal) = Descriptors::of_what_is_good(params, problems);
    problems.extend(cautions(params, &descriptors));
    problems.extend(check_logger(params));
    problems.extend(hostlist::check(params));
    problems.extend(past_end(env, params));
    (descriptors, fatal)
}

/// An end of the allocation that is a length of time, or of an earlier allocation. That of a resource manager may have been changed.
fn past_end(env: &Env, params: &Params) -> Option<Problem> {
    let origin = params.origin(&param::END_TIME);
    let end = params.get(&param::END_TIME).filter(|end| origin.is_set() && *end < env.seconds())?;
    let why = "has passed: give the end of the allocation in seconds since the epoch";
    Some(Problem::new(origin, format!("SCR_END_TIME={end} {why}")))
}

/// A network that this node does not have: what needs one fails later.
pub fn check_interface(env: &Env, params: &Params) -> Option<Problem> {
    let wanted = params.get(&param::TCP_INTERFACE)?;
    let error = choose(Some(&wanted), &env.host, false).err()?;
    Some(Problem::new(params.origin(&param::TCP_INTERFACE), error.to_string()))
}

/// Two nodes that do not connect in this time cannot reach each other.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);
