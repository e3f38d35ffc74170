//! Calls of a scheme or transport that do not return: which call of which plugin, and on which ranks.
//!
//! A rank in such a call sends no messages any more, and the others wait for it. So the thread that watches its process writes a
//! file below the prefix directory, and that of rank 0 reads these files and reports an error. Both do so only after a time that
//! follows from earlier calls: a call that returns costs no message, no file and no thread. A transport whose destinations change
//! is only slow.
//!
//! Only the thread that watches touches these files: the prefix directory may not answer, and nobody waits for it then.

use crate::job::Job;
use crate::redundancy::repair::shortened;
use scr_base::env::{Clock, Watch, WatchStatus, Watched};
use scr_base::fs::{Durability, Files, Status};
use scr_base::message::Reporter;
use scr_comm::Rank;
use scr_plugin_api::{held, CopyJob, CopyState, PluginError, Transport};
use scr_prefix::DatasetDescriptor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the longest call of a run took, of a transport or of a kind of phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct LongestCall(Arc<Mutex<Option<Duration>>>);

impl LongestCall {
    /// After this time a call is overdue.
    fn limit(&self) -> Duration {
        held(&self.0).map_or(FIRST, |longest| LEAST + TIMES * longest)
    }
}

/// A phase in which all ranks call a plugin. It ends when it is dropped.
pub(crate) struct PluginPhase {
    shared: Arc<Shared>,
    longest: Option<LongestCall>,
}

/// A transport in such a phase, which ends when nobody has it any more.
pub(crate) struct WatchedTransport {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) phase: PluginPhase,
}

/// The watching thread's data on this rank.
struct Shared {
    clock: Arc<dyn Clock>,
    files: Arc<dyn Files>,
    report: Reporter,
    rank: Rank,
    /// The name of this rank and its node.
    place: String,
    /// The kind and the name of the plugin.
    plugin: String,
    folder: PathBuf,
    /// The files of this phase begin so.
    mark: String,
    began: Duration,
    limit: Duration,
    /// The application's thread takes this lock, so no file is touched while it is held.
    state: Mutex<CallState>,
}

#[derive(Clone, Default)]
struct CallState {
    /// The calls that the plugin is in, and since when; none while a scheme waits for other members.
    calls: Vec<(&'static str, Duration)>,
    /// What a transport writes, and how that was found last.
    destinations: Arc<[PathBuf]>,
    seen: Option<Vec<Option<Status>>>,
    recorded: bool,
    warned: bool,
    ended: bool,
}

impl PluginPhase {
    /// Begins a phase for a dataset.
    pub(crate) fn begin(
        job: &Job,
        (kind, name): (&str, &str),
        dataset: &DatasetDescriptor,
        longest: Option<&LongestCall>,
    ) -> Self {
        let rank = job.comm.own_rank();
        let shared = Shared {
            clock: Arc::clone(&job.env.clock),
            files: Arc::clone(&job.env.files),
            report: job.report.clone(),
            rank,
            place: format!("{rank} on {}", job.nodes.name(job.rank())),
            plugin: format!("{kind} {name}"),
            folder: job.prefix.scr_dir(),
            mark: format!("overdue.{}.", dataset.created),
            began: job.elapsed(),
            limit: longest.map_or(FIRST, LongestCall::limit),
            state: Mutex::default(),
        };
        Self::watched(&job.env.watch, shared, longest)
    }

    fn watched(watch: &Watch, shared: Shared, longest: Option<&LongestCall>) -> Self {
        let shared = Arc::new(shared);
        watch.add(Arc::<Shared>::clone(&shared));
        Self { shared, longest: longest.cloned() }
    }

    /// Calls the plugin.
    pub(crate) fn call<R>(&self, name: &'static str, call: impl FnOnce() -> R) -> R {
        let began = self.enter(name);
        let result = call();
        let took = self.shared.clock.elapsed().saturating_sub(began);
        if let Some(longest) = &self.longest {
            let mut longest = held(&longest.0);
            *longest = (*longest).max(Some(took));
        }
        held(&self.shared.state).calls.retain(|(entered, _)| *entered != name);
        result
    }

    /// Does for a scheme what may wait for other members.
    pub(crate) fn wait<R>(&self, wait: impl FnOnce() -> R) -> R {
        let calls = std::mem::take(&mut held(&self.shared.state).calls);
        let result = wait();
        calls.into_iter().for_each(|(name, _)| _ = self.enter(name));
        result
    }

    fn enter(&self, name: &'static str) -> Duration {
        let now = self.shared.clock.elapsed();
        held(&self.shared.state).calls.push((name, now));
        now
    }
}

impl Transport for WatchedTransport {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let destinations = job.items.iter().map(|item| item.destination.clone()).collect();
        held(&self.phase.shared.state).destinations = destinations;
        self.phase.call("start", || self.transport.start(job))
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.phase.call("poll", || self.transport.poll(ticket))
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.phase.call("wait", || self.transport.wait(ticket))
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.phase.call("cancel", || self.transport.cancel(ticket))
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.phase.call("crc", || self.transport.crc(ticket, item))
    }
}

impl Drop for PluginPhase {
    fn drop(&mut self) {
        held(&self.shared.state).ended = true;
    }
}

impl Shared {
    /// Calls that ranks have recorded in this phase.
    fn recorded(&self) -> Vec<String> {
        let names = self.files.list(&self.folder).unwrap_or_default();
        let rank_of = |name: &Path| name.to_str()?.strip_prefix(&self.mark)?.parse::<u32>().ok();
        let ours = names.iter().filter(|name| rank_of(name).is_some());
        let texts = ours.filter_map(|name| self.files.read_all(&self.folder.join(name), LONGEST_LINE).ok());
        texts.map(|text| String::from_utf8_lossy(&text).trim().to_owned()).collect()
    }
}

impl Watched for Shared {
    /// Says that this rank does not return, and on rank 0 who has said so. Nothing depends on it, so errors are ignored.
    fn poll(&self) -> WatchStatus {
        let (now, file) = (self.clock.elapsed(), self.folder.join(format!("{}{}", self.mark, self.rank)));
        let CallState { calls, destinations, seen, recorded, warned, ended } = held(&self.state).clone();
        if ended {
            if recorded {
                let _ = self.files.remove_file(&file);
            }
            return WatchStatus::Over;
        }
        let lasts = |time| calls.iter().find(|(_, since)| now.saturating_sub(*since) >= time);
        let look = || destinations.iter().map(|path| self.files.status(path).ok()).collect::<Vec<_>>();
        if seen.is_none() && lasts(SOON).is_some() {
            let found = Some(look());
            held(&self.state).seen = found;
        }
        if now.saturating_sub(self.began) < self.limit {
            return WatchStatus::UnderWay;
        }
        if let (Some((call, _)), false) = (lasts(self.limit), recorded) {
            let found = look();
            if seen.is_some_and(|seen| seen != found) {
                let mut state = held(&self.state);
                state.calls.iter_mut().for_each(|(_, since)| *since = now);
                state.seen = Some(found);
                return WatchStatus::UnderWay;
            }
            let text = format!("{call} on rank {}\n", self.place);
            let written = self.files.write_atomic(&file, text.as_bytes(), 0o666, Durability::Unsynced);
            held(&self.state).recorded = written.is_ok();
        }
        let ranks = if self.rank == Rank(0) && !warned { self.recorded() } else { Vec::new() };
        // The phase may have ended in the meantime.
        let is_to_tell = !ranks.is_empty() && !held(&self.state).ended;
        if is_to_tell {
            held(&self.state).warned = true;
            self.report.error(&format!(
                "the {} has not returned for {} s from: {}. The job waits for it: end it, and start it again with \
                 another plugin or without these nodes",
                self.plugin,
                now.saturating_sub(self.began).as_secs(),
                shortened(&ranks, 3)
            ));
        }
        WatchStatus::UnderWay
    }
}

/// The first call has nothing to be compared with.
const FIRST: Duration = Duration::from_secs(600);
/// A call may take so much longer than the longest before, and this time in any case.
const TIMES: u32 = 10;
const LEAST: Duration = Duration::from_secs(60);
/// After this time in a call, what a transport writes is looked at for the first time.
const SOON: Duration = Duration::from_secs(10);
const LONGEST_LINE: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    use scr_base::fs::RealFiles;
    use scr_test_kit::descriptors::wait_until;
    use scr_test_kit::faulty::FaultyFiles;
    use scr_test_kit::TestEnv;
    use std::path::Path;
    use std::time::Instant;

    /// The knowledge of a rank of a phase, with its clock and its output. It is not watched.
    fn shared(rank: u32, folder: &Path, limit: Duration) -> (Shared, TestEnv) {
        let test = TestEnv::new(Arc::new(RealFiles), folder);
        let env = test.env();
        let shared = Shared {
            report: Reporter::new(Arc::clone(&env.output), Rank(rank), &format!("n{rank}"), 0),
            clock: env.clock,
            files: env.files,
            rank: Rank(rank),
            place: format!("{rank} on n{rank}"),
            plugin: "scheme MIRROR".to_owned(),
            folder: folder.to_owned(),
            mark: "overdue.7.".to_owned(),
            began: Duration::ZERO,
            limit,
            state: Mutex::default(),
        };
        (shared, test)
    }

    #[test]
    fn rank_0_names_the_call_and_the_ranks_that_it_has_not_returned_on_and_nobody_before_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let limit = LongestCall(Arc::new(Mutex::new(Some(Duration::from_secs(2))))).limit();
        assert_eq!(limit, Duration::from_secs(80));
        let ranks: Vec<_> = (0..3).map(|rank| shared(rank, dir.path(), limit)).collect();
        // Rank 0 waits for other members, rank 1 for all ranks.
        held(&ranks[2].0.state).calls.push(("protect", Duration::ZERO));
        let warnings_after = |seconds| {
            for (shared, test) in ranks.iter().rev() {
                test.clock().advance(Duration::from_secs(seconds));
                shared.poll();
            }
            ranks[0].1.output().take_errors()
        };
        assert_eq!(warnings_after(79), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let warnings = warnings_after(1);
        let words =
            "the scheme MIRROR has not returned for 80 s from: protect on rank 2 on n2. The job waits";
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{warnings:?}");
        assert_eq!(warnings_after(100), Vec::<String>::new(), "it is said once");
    }

    /// It was named however fast it copied.
    #[test]
    fn a_transport_is_only_slow_while_its_destinations_change() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, test) = shared(0, dir.path(), LEAST);
        let copy = dir.path().join("copy");
        {
            let mut state = held(&shared.state);
            state.calls.push(("wait", Duration::ZERO));
            state.destinations = Arc::new([copy.clone()]);
        }
        let said_after = |time| {
            test.clock().advance(time);
            shared.poll();
            test.output().take_errors()
        };
        assert_eq!(said_after(SOON), Vec::<String>::new());
        for bytes in 1..4 {
            std::fs::write(&copy, vec![0; bytes]).unwrap();
            assert_eq!(said_after(LEAST), Vec::<String>::new(), "{bytes}");
        }
        let said = said_after(LEAST);
        assert!(said.len() == 1 && said[0].contains("wait on rank 0"), "{said:?}");
    }

    #[test]
    fn files_of_an_earlier_phase_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("overdue.6.3"), "protect on rank 3 on n3\n").unwrap();
        let (shared, test) = shared(0, dir.path(), LEAST);
        test.clock().advance(2 * LEAST);
        shared.poll();
        assert_eq!(test.output().take_errors(), Vec::<String>::new());
    }

    #[test]
    fn the_watch_looks_while_a_call_is_under_way_and_what_it_noted_goes_when_the_call_returns() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, test) = shared(0, dir.path(), LEAST);
        let watch = Watch::default();
        let phase = PluginPhase::watched(&watch, shared, None);
        let note = dir.path().join("overdue.7.0");
        phase.call("rebuild", || {
            phase.wait(|| test.clock().advance(2 * LEAST));
            let began = Instant::now();
            let patience = Duration::from_secs(60);
            test.clock().advance(2 * LEAST);
            while test.output().take_errors().is_empty() && began.elapsed() < patience {
                std::thread::yield_now();
            }
            assert!(note.exists());
        });
        drop(phase);
        drop(watch);
        wait_until(|| !note.exists());
    }

    #[test]
    fn while_the_prefix_directory_does_not_answer_the_application_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shared, test) = shared(0, dir.path(), LEAST);
        let files = FaultyFiles::new(RealFiles);
        let (stalls, stalled) = std::sync::mpsc::channel();
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        files.interrupt_at(1, move || {
            stalls.send(()).unwrap();
            let _ = answered.recv();
        });
        let files: Arc<dyn Files> = Arc::new(files);
        shared.files = Arc::clone(&files);
        let (end, ended) = std::sync::mpsc::channel();
        let application = std::thread::spawn(move || {
            let watch = Watch::default();
            let phase = PluginPhase::watched(&watch, shared, None);
            phase.call("rebuild", || {
                test.clock().advance(2 * LEAST);
                stalled.recv().unwrap();
                phase.wait(|| ());
            });
            drop(phase);
            drop(watch);
            end.send(()).unwrap();
            test
        });
        let waited = ended.recv_timeout(Duration::from_secs(60));
        answer.send(()).unwrap();
        waited.expect("the application waits for the prefix directory");
        let test = application.join().unwrap();
        wait_until(|| Arc::strong_count(&files) == 1);
        assert_eq!(test.output().take_errors(), Vec::<String>::new(), "the call has returned");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
