//! A session: one run of an application under the runtime, from `SCR_Init` to `SCR_Finalize`.
//!
//! The states are those of docs/user/c-api.md: idle, or in an output phase, or in a restart
//! phase. A call in a wrong state, or with an argument that cannot be used, is an error and changes nothing.
//!
//! | part | what it is |
//! |---|---|
//! | `late_ranks` | which ranks have not come to `SCR_Init`, before they can be asked: `SCR_LATE_SECS` |
//! | `init` | `SCR_Init`; `settings_report`: what `SCR_DEBUG=1` shows first |
//! | `other_ranks` | checkpoints that another number of ranks has left in cache: `SCR_RESTART_OTHER_RANKS` |
//! | `other_nodes` | files of a checkpoint that lie on other nodes |
//! | `need_checkpoint` | `SCR_Need_checkpoint`; `auto`: with an interval that the run finds out itself |
//! | `encode_async` | checkpoints that are protected while the application computes: `ENCODE=ASYNC` |
//! | `output` | `SCR_Start_output` to `SCR_Complete_output` |
//! | `route` | `SCR_Route_file`: the name of a file below the prefix directory, and which paths the ranks mean by their names |
//! | `restart` | `SCR_Have_restart` to `SCR_Complete_restart` |
//! | `restart_files` | which files a restart reads, and where: `SCR_Restart_ranks`, `SCR_Restart_files`, `SCR_Restart_file` |
//! | `manage` | `SCR_Current`, `SCR_Drop`, `SCR_Delete` |
//! | `finalize` | `SCR_Should_exit`, `SCR_Finalize` |

mod auto;
mod encode_async;
mod finalize;
mod init;
mod late_ranks;
mod manage;
mod need_checkpoint;
mod other_nodes;
mod other_ranks;
mod output;
mod restart;
mod restart_files;
mod route;
mod settings_report;

pub use crate::error::Error;
pub use late_ranks::LateRanks;

use crate::cache::loss::{written_late, Late, Loss};
use crate::cache::shared_files::NamePattern;
use crate::cache::verify::Verified;
use crate::cache::{Cache, CachedDataset};
use crate::delete::slide_window;
use crate::flush::{FlushSite, Flushes};
use crate::halt::HaltConditions;
use crate::job::Job;
use crate::log::{Event, Record};
use crate::metrics::{Metrics, Now};
use crate::rebuild::{self, OfOtherRanks, Rebuild};
use crate::redundancy::background::Background;
use crate::redundancy::schemes::Schemes;
use crate::restart::{newest_cached, record_refused, Restart};
use auto::AutoInterval;
use encode_async::Retry;
use need_checkpoint::CheckpointTimes;
use other_nodes::Lending;
use output::Output;
use restart_files::Listed;
use route::{Folders, MeantPaths};
use scr_comm::placement::Survives;
use scr_plugin_api::Call;
use scr_prefix::Running;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run under the runtime.
pub struct Session {
    job: Job,
    cache: Cache,
    schemes: Schemes,
    /// Says to other jobs that this one runs; only rank 0 does.
    running: Running,
    phase: Phase,
    restart: Restart,
    /// Number of the last checkpoint, counted over all runs of the job.
    last_checkpoint: u64,
    times: CheckpointTimes,
    auto: AutoInterval,
    /// This rank's names in the last dataset in cache, which had no name on two ranks.
    last_names: Option<(bool, NamePattern)>,
    flushes: Flushes,
    background: Background,
    folders: Folders,
    halt: HaltConditions,
    /// When the application began to compute.
    computing_since: Duration,
    /// The names of the checkpoints that earlier runs have left in the prefix directory, or other numbers of ranks in a cache.
    earlier: BTreeSet<Vec<u8>>,
    /// The names of the checkpoints that could not be read, and that this run begins over: rank 0 says which one a new one replaces.
    unread: BTreeSet<Vec<u8>>,
    /// Whether redundancy of datasets in cache may not have been read since the run began; the same on all ranks.
    is_redundancy_unread: bool,
    /// The metrics, where this rank writes them.
    metrics: Option<Metrics>,
    /// The dataset that this run has completed last, until this rank has said that the application has written to it since.
    last_completed: Option<u64>,
    /// The loss of this rank's part of it, which the others do not know of yet.
    changed: Option<Loss>,
    /// The datasets of another number of ranks that it has found in cache, newest first; the same ones on all ranks.
    of_other_ranks: Vec<OfOtherRanks>,
    /// The lending of the files of the one that the application is about to read.
    lending: Option<Lending>,
}

/// The state of a session.
#[derive(Default)]
enum Phase {
    /// Between phases.
    #[default]
    Idle,
    /// Between phases, after `SCR_Start_output` has failed. An application that does not look at what it returned continues to
    /// route files, and must not get paths that belong to no dataset.
    Refused,
    /// Between `SCR_Start_output` and `SCR_Complete_output`.
    Output(Box<Output>),
    /// Between `SCR_Start_restart` and `SCR_Complete_restart`.
    Restart {
        /// The files of all ranks, if the application can restart with any number of ranks; or else those in the prefix
        /// directory, once this rank has asked for a file of another one.
        listed: Option<Listed>,
        /// The paths that this rank means by the names that it has routed.
        meant: MeantPaths,
        /// Why scr has given this rank no path for a file, the first time that happened.
        unrouted: Option<String>,
    },
}

/// The purpose of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputFlags {
    /// The application can restart from it.
    pub checkpoint: bool,
    /// It must be written to the prefix directory.
    pub output: bool,
}

impl Session {
    /// From now on relative names of files start at this folder: the application may change where it is.
    pub fn work_in(&mut self, current_dir: PathBuf) {
        self.job.env.current_dir = current_dir;
    }

    /// The effective parameters.
    pub fn params(&self) -> &scr_config::param::Params {
        &self.job.params
    }

    /// A call of all ranks begins, and ends when what this gives is dropped.
    fn begin_call(&self, call: &'static str) -> Call {
        self.job.comm.watch().into_iter().for_each(|watch| watch.begin(call));
        Call::begin()
    }

    /// Refuses a call that is legal between phases only. `call` is its name, for the message.
    ///
    /// # Errors
    /// [`Error::State`] within a phase.
    pub fn expect_idle(&self, call: &'static str) -> Result<(), Error> {
        match self.phase {
            Phase::Idle | Phase::Refused => Ok(()),
            _ => Err(self.wrong_phase(call)),
        }
    }

    /// Lets the flushes do something. Then the checkpoints are deleted that are too many in the prefix directory, once it is
    /// known which one the run restarts from.
    fn with_flushes<T>(
        &mut self,
        work: impl FnOnce(&mut Flushes, &mut FlushSite<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { job, cache, schemes, flushes, .. } = self;
        let began = job.elapsed();
        if cfg!(debug_assertions) {
            cache.expect_alike(job)?;
        }
        let outcome = work(flushes, &mut FlushSite { job, cache, schemes });
        let waited = job.elapsed().saturating_sub(began);
        if waited >= LEAST_WAIT {
            job.log.add_entry(Record::event(Event::FlushWait).took(waited));
        }
        self.write_metrics(true);
        if self.restart.is_found {
            self.slide_windows()?;
        }
        outcome
    }

    /// Writes metrics, where they are wanted and due. The flushes are looked at in nearly all calls, and so are these. The last
    /// ones of a run are always due.
    fn write_metrics(&mut self, is_running: bool) {
        let Self { job, cache, metrics, .. } = self;
        let Some(metrics) = metrics.as_mut().filter(|metrics| !is_running || metrics.is_due(job)) else {
            return;
        };
        let newest = newest_cached(job, cache, |_| true);
        let survives = newest.and_then(CachedDataset::survives_now).map(|survives| match survives {
            Survives::Nodes(nodes) => u64::from(nodes),
            Survives::All => job.nodes.count() as u64,
        });
        metrics.write(job, Now { is_running, survives });
    }

    fn slide_windows(&mut self) -> Result<(), Error> {
        for id in std::mem::take(&mut self.flushes.flushed) {
            slide_window(&self.job, &mut self.cache, id)?;
        }
        self.restart.leave_lost(&self.job, &self.cache);
        Ok(())
    }

    /// Reads the redundancy that the restart did not need, once the application has its files. Damaged parts are rebuilt, so that
    /// the datasets survive as many losses as before. Collective.
    fn verify_redundancy(&mut self) -> Result<(), Error> {
        self.tell_of_late_writes();
        if !std::mem::take(&mut self.is_redundancy_unread) {
            return Ok(());
        }
        if let Some(damage) = rebuild::damaged_redundancy(&self.job, &self.cache)? {
            // They may be copying files that are about to be replaced.
            self.with_flushes(Flushes::finish_all)?;
            let Self { job, cache, schemes, .. } = &*self;
            rebuild::damaged(Rebuild { job, cache, schemes, is_shared: false }, &damage)?;
            self.cache.claim_anew(&self.job);
        }
        self.cache.datasets_mut().iter_mut().for_each(|cached| cached.verified = Verified::All);
        Ok(())
    }

    /// Nothing else would name the cause, once a flush or a restart finds bytes that are not those of the checkpoint.
    fn tell_of_late_writes(&mut self) {
        let known = self.last_completed.filter(|_| self.changed.is_none());
        let Some(cached) = known.and_then(|id| self.cache.dataset(id)) else { return };
        if let Some(late) = written_late(self.job.files(), &cached.part, &cached.record) {
            let label = cached.record.label();
            let why = |path: &Path| format!("{} was written to after SCR_Complete_output", path.display());
            self.changed = match &late {
                Late::Written(path) if !cached.is_local() => Some(Loss::of_data(why(path))),
                _ => None,
            };
            let text = match late {
                Late::Written(path) => format!(
                    "{} of {label}, and what it holds now is not that checkpoint", why(&path)
                ),
                Late::Touched(path) => format!(
                    "the time of {} has changed since SCR_Complete_output of {label}: it was written to, or its file system sets \
                     times after a close; without a checksum nothing proves that it still is that checkpoint",
                    path.display()
                ),
            };
            self.job.report.error_here(&format!(
                "{text}; let the application write and close its files before that call"
            ));
            self.last_completed = self.last_completed.filter(|_| self.changed.is_some());
        }
    }

    /// The dataset of which this rank has told that it was written to, or 0: the largest one of all ranks is to be mended.
    fn told_of(&self) -> u64 {
        self.changed.as_ref().and(self.last_completed).unwrap_or(0)
    }

    /// Brings back the files of a dataset that ranks have written to since it was complete, or records that no run restarts from
    /// it, and gives whether that is so. Nothing is done for 0. Collective.
    fn mend(&mut self, changed: u64) -> Result<bool, Error> {
        let loss = self.changed.take();
        if changed == 0 || self.cache.dataset(changed).is_none() {
            return Ok(false);
        }
        self.last_completed = None;
        self.with_flushes(Flushes::finish_all)?;
        let Self { job, cache, schemes, .. } = &*self;
        let Some(cached) = cache.dataset(changed) else { return Ok(false) };
        let is_checkpoint = cached.record.dataset.checkpoint;
        let is_saved = cached.prefix.is_whole() && !cached.record.protection.bypass;
        let refused = cached.checkpoint();
        let is_whole = rebuild::changed(Rebuild { job, cache, schemes, is_shared: false }, cached, loss)?;
        self.cache.claim_anew(&self.job);
        let is_lost = !is_whole && !is_saved;
        if is_lost {
            record_refused(&self.job, &mut self.cache, &refused);
        }
        if is_lost && is_checkpoint {
            self.times.lost();
        }
        Ok(is_lost)
    }

    /// The application computes from now on.
    fn start_computing(&mut self) {
        self.computing_since = self.job.elapsed();
        self.job.log.add_entry(Record::event(Event::ComputeStart));
    }

    /// The error of a call that ends a phase which has not begun.
    fn no_phase_to_end(&mut self, call: &'static str) -> Error {
        let error = self.wrong_phase(call);
        if matches!(self.phase, Phase::Refused) {
            self.phase = Phase::Idle;
        }
        error
    }

    fn wrong_phase(&self, call: &'static str) -> Error {
        let (now, hint) = match (&self.phase, call) {
            (Phase::Output(_), _) => ("in an output phase", "call SCR_Complete_output first"),
            (Phase::Restart { .. }, _) => ("in a restart phase", "call SCR_Complete_restart first"),
            (Phase::Refused, _) => ("after a failed SCR_Start_output", "look at what that call has returned"),
            (Phase::Idle, "SCR_Complete_output") => {
                ("outside an output phase", "call SCR_Start_output first")
            }
            (Phase::Idle, _) => ("outside a restart phase", "call SCR_Start_restart first"),
        };
        Error::State { call, now, hint }
    }
}

/// A shorter wait for flushes is not worth an entry in the log.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// Length of the buffers that applications give for a path: the end is marked by one byte.
pub const MAX_FILENAME: usize = 1024;
