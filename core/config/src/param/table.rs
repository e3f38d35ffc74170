//! The one table of parameters: what docs/user/parameters.md lists, and what C SCR knows besides.
//!
//! A constant per parameter carries the type of its value, so asking for another type does not compile:
//! `params.get(&param::CACHE_SIZE)` is a `u64`. Documentation, `scr config` and `SCR_Config` read [`TABLE`].

use super::problem::Cause;
use super::value::{Interval, Kind};
use scr_base::build;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

/// A parameter whose value is a `T`.
#[derive(Debug)]
pub struct Param<T> {
    pub(crate) index: usize,
    value: PhantomData<fn() -> T>,
}

impl<T> Param<T> {
    /// Its row in [`TABLE`].
    pub fn info(&self) -> &'static Info {
        &TABLE[self.index]
    }
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// Its name, as in the environment and in files.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Its value if it is not set.
    pub default: DefaultValue,
    /// The places where it can be set.
    pub scope: Scope,
    /// One line about it.
    pub help: &'static str,
}

impl Info {
    /// Whether its value may not be replaced by that of the next source if it cannot be used: data would go to another place, or
    /// come from there, or the run would restart from another checkpoint.
    pub(super) fn is_irreplaceable(&self) -> bool {
        let places = [PREFIX.info(), CACHE_BASE.info(), CNTL_BASE.info(), CONF_FILE.info()];
        // They are parts of the paths of the cache, and of what is in it.
        let parts = [USER_NAME.info(), JOB_ID.info(), NODE_NAME.info()];
        let restarts = [CURRENT.info(), REQUIRE_RESTART.info()];
        [&places[..], &parts, &restarts].concat().contains(&self)
    }

    /// That it can be set, but not here.
    pub(super) fn wrong_place(&self) -> Cause {
        format!("{} cannot be set here, only {}; it is ignored", self.name, self.scope.allowed()).into()
    }
}

/// The value of a parameter that is not set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefaultValue {
    /// Not set.
    Unset,
    /// This text.
    Text(&'static str),
    /// This text, which the build has set.
    Built(&'static str),
    /// The first of these variables that is set, or else not set.
    Variables(&'static [&'static str]),
    /// The first of these variables that is set, or else this text.
    VariablesOr(&'static [&'static str], &'static str),
    /// The current directory of rank 0.
    CurrentDir,
    /// The name of the user.
    User,
    /// The name of the host.
    Host,
}

impl DefaultValue {
    /// In words; literal text stands between two `quote`s.
    pub fn in_words(self, quote: &str) -> String {
        let either = |names: &[&str]| {
            names.iter().map(|name| format!("{quote}${name}{quote}")).collect::<Vec<_>>().join(", ")
        };
        match self {
            DefaultValue::Unset => "unset".to_owned(),
            DefaultValue::Text(text) | DefaultValue::Built(text) => format!("{quote}{text}{quote}"),
            DefaultValue::Variables(names) => either(names),
            DefaultValue::VariablesOr(names, text) => format!("{}, or {quote}{text}{quote}", either(names)),
            DefaultValue::CurrentDir => "current directory".to_owned(),
            DefaultValue::User => "name of the user".to_owned(),
            DefaultValue::Host => "name of the host".to_owned(),
        }
    }
}

/// The places where a parameter can be set. The environment of rank 0 counts for all ranks, except where noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere: environment, files, `SCR_Config`.
    Anywhere,
    /// Everywhere but in files of other users: because of its value datasets are deleted, or not saved.
    Trusted,
    /// Everywhere; a rank's own environment goes before that of rank 0.
    Node,
    /// Everywhere; of the environments only a rank's own counts.
    Rank,
    /// In the environment and with `SCR_Config`, and in no file.
    OutsideFiles,
    /// In the system file only.
    SystemFile,
}

impl Scope {
    /// Whether all ranks have the same value, that of rank 0.
    pub(crate) fn is_shared(self) -> bool {
        !matches!(self, Scope::Node | Scope::Rank)
    }

    /// The places in a word or two, for reference tables.
    pub fn label(self) -> &'static str {
        match self {
            Scope::Anywhere | Scope::Trusted => "anywhere",
            Scope::Node => "anywhere; per rank",
            Scope::Rank => "anywhere; per rank only",
            Scope::OutsideFiles => "environment or SCR_Config only",
            Scope::SystemFile => "system file only",
        }
    }

    /// The places in words, after "only".
    pub fn allowed(self) -> &'static str {
        match self {
            Scope::OutsideFiles => "in the environment or with SCR_Config",
            Scope::SystemFile => "in the system configuration file",
            _ => "in the environment, in a file or with SCR_Config",
        }
    }
}

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Info> {
    TABLE.iter().find(|info| info.name == name)
}

/// Names of former versions, with advice.
const RETIRED: &[(&str, &str)] = &[
    ("SCR_HOP_DISTANCE", "describe failure groups with GROUPS lines and name one with SCR_GROUP"),
    ("HOP_DISTANCE", "describe failure groups with GROUPS lines and name one with GROUP"),
    ("CKPTDESC", "describe checkpoints with CKPT lines"),
    ("CACHEDESC", "describe storage with STORE lines"),
    ("CACHEDIR", "describe storage with STORE lines"),
    ("CNTLDIR", "set SCR_CNTL_BASE"),
];

/// That a name is one of former versions, if it is. Messages give it this title.
pub(crate) fn retired(name: &str, title: &str) -> Option<Cause> {
    let (_, advice) = RETIRED.iter().find(|(retired, _)| *retired == name)?;
    Some(format!("{title} is of a former version and has no effect; {advice}").into())
}

/// Beginnings of variables that start with `SCR_` and are no parameters: they belong to builds, modules, scripts and tests.
pub(crate) const FOREIGN: &str =
    "SCR_BIN SCR_BUILD SCR_CONFIG_FILE SCR_DIR SCR_HOME SCR_INSTALL SCR_LAUNCH_DIR SCR_PKG SCR_ROOT SCR_TEST SCR_VERSION";

const fn text(default: &'static str) -> DefaultValue {
    DefaultValue::Text(default)
}

const fn built(replaced: Option<&'static str>, default: DefaultValue) -> DefaultValue {
    match replaced {
        Some(text) => DefaultValue::Built(text),
        None => default,
    }
}

const COUNT: Kind = Kind::Count { least: 0, most: u64::MAX };
/// Set sizes and widths: they count ranks.
const RANKS: Kind = Kind::Count { least: 1, most: u32::MAX as u64 };
const MEMBERS: Kind = Kind::Count { least: 2, most: u32::MAX as u64 };
const BUFFER: Kind = Kind::Bytes { least: 4096 };

macro_rules! parameters {
    ($($id:ident: $type:ty = $name:literal, $kind:expr, $default:expr, $scope:ident, $help:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Row { $($id),* }

        $(
            #[doc = $help]
            pub const $id: Param<$type> = Param { index: Row::$id as usize, value: PhantomData };
        )*

        /// Every parameter, in the order in which they are shown.
        pub static TABLE: &[Info] = &[$(
            Info { name: $name, kind: $kind, default: $default, scope: Scope::$scope, help: $help }
        ),*];

        #[cfg(test)]
        fn is_of_its_type(index: usize, value: &super::value::Value) -> bool {
            use super::value::FromValue as _;
            let checks: &[fn(&super::value::Value) -> bool] = &[$(|value| <$type>::from_value(value).is_some()),*];
            checks[index](value)
        }
    };
}

parameters! {
    ENABLE: bool = "SCR_ENABLE", Kind::Bool, text("1"), Anywhere,
        "Set to 0 to turn SCR off. SCR_Init then returns an error, unless SCR_PASS_THROUGH=1.";
    PASS_THROUGH: bool = "SCR_PASS_THROUGH", Kind::Bool, text("0"), Anywhere,
        "With SCR_ENABLE=0: set to 1 to let all calls succeed. Files then go straight to the prefix directory.";
    DEBUG: u64 = "SCR_DEBUG", COUNT, text("0"), Anywhere,
        "Set to 1 or 2 for more detailed messages.";
    GROUPS_FILE: Option<PathBuf> = "SCR_GROUPS_FILE", Kind::Path, DefaultValue::Unset, Anywhere,
        "File with the failure groups of all nodes: lines such as `node[1-4] RACK=r1`, or Slurm's topology.conf.";
    CONF_FILE: Option<PathBuf> = "SCR_CONF_FILE", Kind::Path, DefaultValue::Unset, OutsideFiles,
        "The user configuration file, instead of .scrconf in the prefix directory.";
    LOCKED: Option<String> = "SCR_LOCKED", Kind::Text, DefaultValue::Unset, SystemFile,
        "Comma-separated parameters that only the system configuration file may set.";
    SAFE_PREFIX: Option<Vec<PathBuf>> = "SCR_SAFE_PREFIX", Kind::Paths, DefaultValue::Unset, Anywhere,
        "Prefix directories of other users, separated by colons, whose settings may name programs and directories, and delete datasets.";
    PREFIX: PathBuf = "SCR_PREFIX", Kind::Path, DefaultValue::CurrentDir, Anywhere,
        "The prefix directory on the parallel file system, where datasets are written and read.";
    CNTL_BASE: PathBuf = "SCR_CNTL_BASE", Kind::AbsolutePath, built(build::CNTL_BASE, text(build::LOCAL_BASE)), Node,
        "Base directory of the control directory. Use storage local to the node.";
    CACHE_BASE: PathBuf = "SCR_CACHE_BASE", Kind::AbsolutePath, built(build::CACHE_BASE, text(build::LOCAL_BASE)), Node,
        "Base directory of the cache directory.";
    CACHE_SIZE: u64 = "SCR_CACHE_SIZE", COUNT, text("1"), Anywhere,
        "How many complete datasets to keep in cache.";
    CACHE_BYPASS: bool = "SCR_CACHE_BYPASS", Kind::Bool, text("1"), Anywhere,
        "Whether to write files straight to the prefix directory and read them there, without the cache.";
    CACHE_PURGE: bool = "SCR_CACHE_PURGE", Kind::Bool, text("0"), Trusted,
        "Whether SCR_Init deletes all datasets from cache.";
    COPY_TYPE: String = "SCR_COPY_TYPE", Kind::Name { known: SCHEMES }, text("XOR"), Anywhere,
        "The redundancy scheme: SINGLE, PARTNER, XOR, RS, a plugin's name, or FILE for the CKPT descriptors.";
    GROUP: String = "SCR_GROUP", Kind::Text, text("NODE"), Anywhere,
        "The failure group: processes that are likely to fail together.";
    SET_SIZE: u32 = "SCR_SET_SIZE", MEMBERS, text("8"), Anywhere,
        "Minimum number of processes in a redundancy set, if there are enough failure groups.";
    SET_FAILURES: u32 = "SCR_SET_FAILURES", RANKS, text("2"), Anywhere,
        "How many failures per set the RS scheme survives.";
    CURRENT: Option<String> = "SCR_CURRENT", Kind::Text, DefaultValue::Unset, Anywhere,
        "Name of the checkpoint to mark as current and to fetch first.";
    DISTRIBUTE: bool = "SCR_DISTRIBUTE", Kind::Bool, text("1"), Trusted,
        "0 restarts from the prefix directory only, and deletes the datasets in cache.";
    FETCH: bool = "SCR_FETCH", Kind::Bool, text("1"), Anywhere,
        "Set to 0 to fetch nothing from the prefix directory in SCR_Init.";
    FETCH_BYPASS: bool = "SCR_FETCH_BYPASS", Kind::Bool, text("0"), Anywhere,
        "Whether to read fetched files in the prefix directory instead of copying them to cache.";
    FETCH_WIDTH: u32 = "SCR_FETCH_WIDTH", RANKS, text("256"), Anywhere,
        "How many processes may read from the parallel file system at the same time, spread over the nodes.";
    FLUSH: u64 = "SCR_FLUSH", COUNT, text("10"), Anywhere,
        "Flush every Nth checkpoint to the prefix directory; 0 for no periodic flush.";
    FLUSH_TYPE: String = "SCR_FLUSH_TYPE", Kind::Name { known: TRANSPORTS }, text("SYNC"), Anywhere,
        "The flush transport: SYNC, PTHREAD, AGENT, BBAPI, DATAWARP, or a plugin's name. With SCR_FLUSH_ASYNC=1 the default is PTHREAD.";
    ENCODE_ASYNC: bool = "SCR_ENCODE_ASYNC", Kind::Bool, text("0"), Anywhere,
        "Whether checkpoints are protected while the application computes, unless their CKPT line has ENCODE.";
    ENCODE_ASYNC_BW: u64 = "SCR_ENCODE_ASYNC_BW", Kind::Bytes { least: 0 }, text("0"), Anywhere,
        "Maximum bytes per second that ranks send to protect checkpoints while the application computes, over all nodes; 0 for no \
         limit.";
    ENCODE_ASYNC_PERCENT: f64 = "SCR_ENCODE_ASYNC_PERCENT", Kind::Number { most: 100.0 }, text("0"), Anywhere,
        "Maximum percent of a processor that each rank uses to protect checkpoints while the application computes; 0 for no limit.";
    TCP_INTERFACE: Option<String> = "SCR_TCP_INTERFACE", Kind::Text, DefaultValue::Unset, Anywhere,
        "The network for threads of ranks, which protect checkpoints while the application computes, and bring back what another number \
         of ranks wrote: an interface, or a range of addresses.";
    TCP_PORTS: Option<(u16, u16)> = "SCR_TCP_PORTS", Kind::Ports, DefaultValue::Unset, Anywhere,
        "The ports at which these threads listen, such as 50000-50999; one for each rank of a node and each of its jobs. By default \
         the system chooses.";
    FLUSH_WIDTH: u32 = "SCR_FLUSH_WIDTH", RANKS, text("256"), Anywhere,
        "How many processes may write to the parallel file system at the same time, spread over the nodes.";
    FLUSH_ASYNC: bool = "SCR_FLUSH_ASYNC", Kind::Bool, text("0"), Anywhere,
        "Whether the application continues while a flush is running.";
    FLUSH_ASYNC_BW: u64 = "SCR_FLUSH_ASYNC_BW", Kind::Bytes { least: 0 }, text("0"), Anywhere,
        "Maximum bytes per second that asynchronous flushes write, over all nodes; 0 for no limit.";
    FLUSH_ASYNC_PERCENT: f64 = "SCR_FLUSH_ASYNC_PERCENT", Kind::Number { most: 100.0 }, text("0"), Anywhere,
        "Maximum percent of a processor for asynchronous flushes, per copying process; 0 for no limit.";
    FLUSH_ASYNC_USLEEP: u64 = "SCR_FLUSH_ASYNC_USLEEP", COUNT, text("1000"), Anywhere,
        "Microseconds between two polls of a flush that a process waits for.";
    FLUSH_POSTSTAGE: bool = "SCR_FLUSH_POSTSTAGE", Kind::Bool, text("0"), Anywhere,
        "Whether scr_poststage finishes asynchronous flushes after the job, instead of SCR_Finalize.";
    FLUSH_ON_RESTART: bool = "SCR_FLUSH_ON_RESTART", Kind::Bool, text("0"), Anywhere,
        "Whether SCR_Init flushes cached datasets, for applications that do not use the Restart API.";
    GLOBAL_RESTART: bool = "SCR_GLOBAL_RESTART", Kind::Bool, text("0"), Anywhere,
        "Whether to flush cached datasets in SCR_Init and restart from the prefix directory.";
    RESTART_ATTEMPTS: u64 = "SCR_RESTART_ATTEMPTS", COUNT, text("0"), Anywhere,
        "Give up a checkpoint after so many restarts from it without a new checkpoint; 0 for never.";
    DROP_AFTER_CURRENT: bool = "SCR_DROP_AFTER_CURRENT", Kind::Bool, text("0"), Trusted,
        "Whether to drop datasets newer than the current one once the application has restarted from it.";
    REQUIRE_RESTART: bool = "SCR_REQUIRE_RESTART", Kind::Bool, text("0"), Anywhere,
        "Whether SCR_Init fails if there are checkpoints and this run cannot restart from any of them, or a setting deletes the newest, and \
         SCR_Start_output before the application has begun to restart.";
    SHARE_PREFIX: bool = "SCR_SHARE_PREFIX", Kind::Bool, text("0"), Anywhere,
        "Whether SCR_Init succeeds beside another job in the prefix directory whose rank 0 runs on a node of this job. Beside one on \
         other nodes it always does, with a warning: the lock of a dead node looks like that of a job.";
    STRICT: bool = "SCR_STRICT", Kind::Bool, text("0"), Anywhere,
        "Whether SCR_Init fails for each setting of which it would warn only.";
    RESTART_OTHER_RANKS: bool = "SCR_RESTART_OTHER_RANKS", Kind::Bool, text("0"), Anywhere,
        "Whether the application can restart from a checkpoint that another number of ranks wrote.";
    REPLACE_OTHER_RANKS: bool = "SCR_REPLACE_OTHER_RANKS", Kind::Bool, text("0"), Anywhere,
        "Whether a dataset may take the name of a checkpoint that another number of ranks wrote.";
    PREFIX_SIZE: u64 = "SCR_PREFIX_SIZE", COUNT, text("0"), Trusted,
        "How many checkpoints to keep in the prefix directory; 0 to keep all. Output is always kept, and so is what another number \
         of ranks wrote, unless SCR_RESTART_OTHER_RANKS=1. A checkpoint that the run could not read is kept too, and does not count.";
    PREFIX_PURGE: bool = "SCR_PREFIX_PURGE", Kind::Bool, text("0"), Trusted,
        "Whether SCR_Init deletes all datasets from the prefix directory, including output.";
    CHECKPOINT_INTERVAL: Interval = "SCR_CHECKPOINT_INTERVAL", Kind::CountOrAuto, text("0"), Anywhere,
        "SCR_Need_checkpoint returns true on every Nth call; 0 to ignore the number of calls; AUTO to measure what checkpoints cost, \
         and to ask for them when that loses least time.";
    CHECKPOINT_SECONDS: Duration = "SCR_CHECKPOINT_SECONDS", Kind::Seconds, text("0"), Anywhere,
        "Minimum time between checkpoints for SCR_Need_checkpoint; 0 to ignore time.";
    CHECKPOINT_OVERHEAD: f64 = "SCR_CHECKPOINT_OVERHEAD", Kind::Number { most: 100.0 }, text("0"), Anywhere,
        "Maximum percent of time spent on checkpoints for SCR_Need_checkpoint; 0 to ignore cost.";
    MTBF_NODE: Duration = "SCR_MTBF_NODE", Kind::Seconds, text("5years"), Anywhere,
        "Time between failures of one node, for SCR_CHECKPOINT_INTERVAL=AUTO. It counts as much as one failure that was seen; 0 for never.";
    MTBF_SYSTEM: Duration = "SCR_MTBF_SYSTEM", Kind::Seconds, text("30days"), Anywhere,
        "The same for failures after which no node has its cache any more.";
    HALT_EXIT: bool = "SCR_HALT_EXIT", Kind::Bool, text("0"), Anywhere,
        "Whether SCR ends the application when a halt condition holds.";
    HALT_SECONDS: Duration = "SCR_HALT_SECONDS", Kind::Seconds, text("0"), Anywhere,
        "Halt when less than this time is left in the allocation; 0 to ignore its end.";
    CRC_ON_COPY: bool = "SCR_CRC_ON_COPY", Kind::Bool, text("0"), Anywhere,
        "Whether to compute and check checksums even where that takes an extra read of the files.";
    CRC_ON_FLUSH: bool = "SCR_CRC_ON_FLUSH", Kind::Bool, text("1"), Anywhere,
        "Whether to compute and check checksums when files are flushed, fetched and scavenged. With 0, nothing tells the bytes of a \
         checkpoint from others of the same length that the application has put in their place.";
    CRC_ON_DELETE: bool = "SCR_CRC_ON_DELETE", Kind::Bool, text("0"), Anywhere,
        "Whether to check checksums before a dataset is deleted from cache.";
    COPY_METADATA: bool = "SCR_COPY_METADATA", Kind::Bool, text("1"), Anywhere,
        "Whether permissions, owner and times of files are kept when they are copied.";
    AXL_MKDIR: bool = "SCR_AXL_MKDIR", Kind::Bool, text("0"), Anywhere,
        "Whether each process creates the directories for its flushed files, instead of one process for all.";
    MPI_BUF_SIZE: u64 = "SCR_MPI_BUF_SIZE", BUFFER, text("524288"), Anywhere,
        "Maximum bytes per message when files are protected, rebuilt or moved between nodes.";
    FILE_BUF_SIZE: u64 = "SCR_FILE_BUF_SIZE", BUFFER, text("1048576"), Anywhere,
        "Bytes per read or write when files are copied.";
    PLUGIN_PATH: Option<Vec<PathBuf>> = "SCR_PLUGIN_PATH", Kind::Paths, DefaultValue::Unset, Anywhere,
        "Directories to search for plugins before those of the installation, separated by colons.";
    NODE_NAME: String = "SCR_NODE_NAME", Kind::Text, DefaultValue::Host, Rank,
        "Name of the node, instead of the host name.";
    NODELIST: Option<String> = "SCR_NODELIST", Kind::Text,
        DefaultValue::Variables(&["SLURM_JOB_NODELIST", "SLURM_NODELIST"]), Anywhere,
        "Nodes of the allocation, instead of those the resource manager reports.";
    USER_NAME: String = "SCR_USER_NAME", Kind::Part, DefaultValue::User, Anywhere,
        "Name of the user, in paths and logs.";
    JOB_ID: String = "SCR_JOB_ID", Kind::Part,
        DefaultValue::VariablesOr(
            &["SLURM_JOB_ID", "SLURM_JOBID", "LSB_JOBID", "PBS_JOBID", "FLUX_ENCLOSING_ID", "FLUX_JOB_ID", "COBALT_JOBID"], "defjobid"),
        Anywhere, "Id of the allocation, in paths and logs.";
    JOB_NAME: Option<String> = "SCR_JOB_NAME", Kind::Text,
        DefaultValue::Variables(&["SLURM_JOB_NAME", "LSB_JOBNAME", "PBS_JOBNAME"]), Anywhere,
        "Name of the job, in logs.";
    CLUSTER_NAME: Option<String> = "SCR_CLUSTER_NAME", Kind::Text, DefaultValue::Variables(&["SLURM_CLUSTER_NAME"]), Anywhere,
        "Name of the cluster, in logs.";
    END_TIME: Option<u64> = "SCR_END_TIME", COUNT, DefaultValue::Variables(&["SLURM_JOB_END_TIME"]), Anywhere,
        "When the allocation ends, in seconds since the epoch.";
    RUNS: i64 = "SCR_RUNS", Kind::Whole { least: -1 }, text("1"), Anywhere,
        "How many times scr_run starts the job within an allocation; -1 for no limit.";
    SCAVENGE: bool = "SCR_SCAVENGE", Kind::Bool, text("1"), Trusted,
        "Whether scr run and scr postrun save what a job has left in cache only; with 0 it is lost with the allocation.";
    MIN_NODES: Option<u64> = "SCR_MIN_NODES", COUNT, DefaultValue::Unset, Anywhere,
        "Minimum number of nodes a run needs; unset for as many as the last run had.";
    EXCLUDE_NODES: Option<String> = "SCR_EXCLUDE_NODES", Kind::Text, DefaultValue::Unset, Anywhere,
        "Nodes not to run on, as a list such as node[1-3,7].";
    LOG_ENABLE: Option<bool> = "SCR_LOG_ENABLE", Kind::Bool, built(build::LOG_ENABLE, DefaultValue::Unset), Anywhere,
        "Whether to log events. Unset, they go to .scr/events in the prefix directory only; set to 1, also where C SCR logs.";
    LOG_TXT_ENABLE: bool = "SCR_LOG_TXT_ENABLE", Kind::Bool, built(build::LOG_TXT_ENABLE, text("1")), Anywhere,
        "Whether SCR_LOG_ENABLE=1 logs to .scr/log in the prefix directory. Set to 1, this alone is enough.";
    LOG_SYSLOG_ENABLE: bool = "SCR_LOG_SYSLOG_ENABLE", Kind::Bool,
        built(build::LOG_SYSLOG_ENABLE, text("1")), Anywhere,
        "Whether SCR_LOG_ENABLE=1 logs to syslog. Set to 1, this alone is enough.";
    LOG_SYSLOG_FACILITY: String = "SCR_LOG_SYSLOG_FACILITY", Kind::Text,
        built(build::LOG_SYSLOG_FACILITY, text("LOG_LOCAL7")), Anywhere,
        "Facility of syslog messages, as in openlog(3).";
    LOG_SYSLOG_LEVEL: String = "SCR_LOG_SYSLOG_LEVEL", Kind::Text,
        built(build::LOG_SYSLOG_LEVEL, text("LOG_INFO")), Anywhere,
        "Level of syslog messages, as in openlog(3).";
    LOG_SYSLOG_PREFIX: String = "SCR_LOG_SYSLOG_PREFIX", Kind::Text,
        built(build::LOG_SYSLOG_PREFIX, text("SCR")), Anywhere,
        "Text at the start of each syslog message.";
    LOG_DB_ENABLE: bool = "SCR_LOG_DB_ENABLE", Kind::Bool, built(build::LOG_DB_ENABLE, text("0")), Anywhere,
        "Whether to log events to a MySQL or MariaDB database.";
    LOG_DB_DEBUG: bool = "SCR_LOG_DB_DEBUG", Kind::Bool, text("0"), Anywhere,
        "Whether to print the statements sent to the database.";
    LOG_DB_HOST: Option<String> = "SCR_LOG_DB_HOST", Kind::Text, DefaultValue::Unset, Anywhere,
        "Host of the database server.";
    LOG_DB_NAME: Option<String> = "SCR_LOG_DB_NAME", Kind::Text, DefaultValue::Unset, Anywhere,
        "Name of the database.";
    LOG_DB_USER: Option<String> = "SCR_LOG_DB_USER", Kind::Text, DefaultValue::Unset, Anywhere,
        "User of the database.";
    LOG_DB_PASS: Option<String> = "SCR_LOG_DB_PASS", Kind::Secret, DefaultValue::Unset, Anywhere,
        "Password of that user.";
    LOG_DB_CA: Option<PathBuf> = "SCR_LOG_DB_CA", Kind::Path, DefaultValue::Unset, Anywhere,
        "File with certificates of authorities (PEM), to encrypt the connection to the database and check the server's certificate.";
    LATE_SECS: Duration = "SCR_LATE_SECS", Kind::Seconds, text("60"), Anywhere,
        "A collective call names the ranks that have not made it after so many seconds, and so does an output phase in which ranks of several nodes wait for one file of theirs; 0 for never.";
    REPORT: bool = "SCR_REPORT", Kind::Bool, text("1"), Anywhere,
        "Whether scr run, scr postrun and, with SCR_DEBUG=1, SCR_Finalize print in five lines what the job has cost.";
    METRICS_DIR: Option<PathBuf> = "SCR_METRICS_DIR", Kind::AbsolutePath, DefaultValue::Unset, Node,
        "Directory for metrics of running jobs, for the textfile collector of Prometheus.";
    WATCHDOG: bool = "SCR_WATCHDOG", Kind::Bool, text("0"), Anywhere,
        "Whether scr_run ends a run that writes no checkpoint within the expected time.";
    WATCHDOG_TIMEOUT: Option<Duration> = "SCR_WATCHDOG_TIMEOUT", Kind::Seconds, DefaultValue::Unset, Anywhere,
        "Longest expected time between checkpoints written to cache.";
    WATCHDOG_TIMEOUT_PFS: Option<Duration> = "SCR_WATCHDOG_TIMEOUT_PFS", Kind::Seconds, DefaultValue::Unset, Anywhere,
        "Longest expected time between checkpoints written to the parallel file system.";
}

/// The schemes that come with scr, and the word for descriptors.
pub(crate) const SCHEMES: &[&str] = &["SINGLE", "PARTNER", "XOR", "RS", FROM_LINES];
/// `SCR_COPY_TYPE=FILE`: take the CKPT lines.
pub const FROM_LINES: &str = "FILE";
/// The transports that come with scr.
pub(crate) const TRANSPORTS: &[&str] = &["SYNC", "PTHREAD", "AGENT", "BBAPI", "DATAWARP"];

#[cfg(test)]
mod tests {
    use super::super::value::Value;
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_name_is_there_once_and_has_its_help() {
        let names: BTreeSet<_> = TABLE.iter().map(|info| info.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for info in TABLE {
            assert!(info.name.starts_with("SCR_"), "{}", info.name);
            assert!(info.help.ends_with('.') && !info.help.contains('\n'), "{}", info.name);
        }
        for (name, _) in RETIRED {
            assert!(!names.contains(name), "{name}");
        }
    }

    #[test]
    fn every_value_that_is_accepted_is_of_the_type_of_its_constant() {
        let texts =
            ["", "0", "1", "7", "-1", "4096", "4294967295", "4294967296", "18446744073709551615", "/a:/b"];
        for (index, info) in TABLE.iter().enumerate() {
            let data = texts.iter().filter_map(|text| info.kind.read(text, Path::new("/")).ok());
            for value in data {
                assert!(is_of_its_type(index, &value), "{} {value:?}", info.name);
            }
            if matches!(info.default, DefaultValue::Unset | DefaultValue::Variables(_)) {
                assert!(is_of_its_type(index, &Value::Unset), "{} may be unset", info.name);
            }
        }
    }

    #[test]
    fn every_default_is_accepted() {
        for info in TABLE {
            if let DefaultValue::Text(text) | DefaultValue::Built(text) | DefaultValue::VariablesOr(_, text) =
                info.default
            {
                assert!(info.kind.read(text, Path::new("/")).is_ok(), "{}", info.name);
            }
        }
    }

    #[test]
    fn each_constant_names_its_own_row() {
        assert_eq!(CACHE_SIZE.info().name, "SCR_CACHE_SIZE");
        assert_eq!(WATCHDOG_TIMEOUT_PFS.info().name, "SCR_WATCHDOG_TIMEOUT_PFS");
        assert_eq!(find("SCR_SET_SIZE").unwrap().default, DefaultValue::Text("8"));
        assert_eq!(find("SCR_NONE"), None);
    }
}
