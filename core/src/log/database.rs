//! The database of the parameters `SCR_LOG_DB_HOST` and so on, through its log plugin: the runtime contains no database client.
//!
//! It has a queue and a thread of its own, so that no rank waits for a slow or dead server while the job runs. The queue has room
//! for [`ROOM`] entries; further ones are dropped. At the end of the run, the queued entries are written within [`END_LIMIT`], and
//! the rest is dropped. Either loss is reported once.

use super::warn_failure;
use crate::plugin::{PluginHost, PluginKind, PluginLoadError};
use scr_base::message::Reporter;
use scr_base::parallel;
use scr_config::param::{self, Params};
use scr_plugin_api::{LogEntry, LogSink};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

/// Name of the plugin.
const PLUGIN: &str = "MYSQL";

/// The database that the parameters describe. Nothing is connected yet.
///
/// # Errors
/// There is no plugin for it, or the plugin refuses the parameters.
pub fn database(host: &PluginHost, params: &Params) -> Result<Box<dyn LogSink>, PluginLoadError> {
    let plugin = host.open(PluginKind::Log, PLUGIN)?;
    let debug = if params.get(&param::LOG_DB_DEBUG) { "1" } else { "0" };
    let texts = [
        ("HOST", params.get(&param::LOG_DB_HOST)),
        ("NAME", params.get(&param::LOG_DB_NAME)),
        ("USER", params.get(&param::LOG_DB_USER)),
        ("PASS", params.get(&param::LOG_DB_PASS)),
        ("CA", params.get(&param::LOG_DB_CA).map(|path| path.to_string_lossy().into_owned())),
    ];
    let given = texts.iter().filter_map(|(name, text)| Some((*name, text.as_deref()?)));
    let options = plugin.manifest.options(given.chain([("DEBUG", debug)]))?;
    plugin.log_sink(&options)
}

/// How many entries may wait: some hundred checkpoints.
pub(super) const ROOM: usize = 1024;
/// How long the end of a run waits for what is still to be written.
pub(super) const END_LIMIT: Duration = Duration::from_secs(5);

/// As messages name the one sink that may be slow.
pub(super) const DATABASE: &str = "the database";

/// The way to a sink.
pub(super) struct Queue {
    report: Reporter,
    /// `None` once nothing more goes there.
    entries: Option<SyncSender<LogEntry>>,
    /// Closed by the end of the thread; nothing is ever sent.
    thread: Receiver<()>,
    /// How many entries wait or are being written.
    waiting: Arc<AtomicU64>,
    warned_full: bool,
}

impl Queue {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(sink: Box<dyn LogSink>, report: &Reporter) -> std::io::Result<Self> {
        let (entries, incoming) = sync_channel::<LogEntry>(ROOM);
        let (alive, thread) = sync_channel::<()>(0);
        let waiting = Arc::new(AtomicU64::new(0));
        let (done, reporter) = (waiting.clone(), report.clone());
        parallel::start(Builder::new().name("scr-log".to_owned()), move || {
            let _alive = alive;
            // Until the sink takes no more.
            let written = incoming.iter().take_while(|entry| {
                let said = sink.write(entry).inspect_err(|error| warn_failure(&reporter, DATABASE, error));
                said.iter().flatten().for_each(|line| reporter.notice(line));
                said.is_ok()
            });
            written.for_each(|_| _ = done.fetch_sub(1, Ordering::Relaxed));
        })?;
        Ok(Self { report: report.clone(), entries: Some(entries), thread, waiting, warned_full: false })
    }

    /// Takes an entry along, or drops it. Says whether the thread lives, which reports why it ends.
    pub(super) fn add(&mut self, entry: &LogEntry) -> bool {
        let Some(entries) = &self.entries else { return false };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        match entries.try_send(entry.clone()) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => self.entries = None,
            Err(TrySendError::Full(_)) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.warned_full, true) {
                    self.report.warn(&format!(
                        "logging to {DATABASE} is slower than the job: {ROOM} entries wait, and those that find no room are dropped"
                    ));
                }
            }
        }
        self.entries.is_some()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.entries.take().is_none() {
            return;
        }
        if self.thread.recv_timeout(END_LIMIT) == Err(RecvTimeoutError::Timeout) {
            self.report.warn(&format!(
                "logging to {DATABASE} has not ended within {} s: {} entries are missing there",
                END_LIMIT.as_secs(),
                self.waiting.load(Ordering::Relaxed)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use scr_base::fs::RealFiles;
    use scr_comm::Rank;
    use scr_plugin_api::{PluginError, PluginErrorKind};
    use scr_test_kit::TestEnv;
    use std::sync::Mutex;

    /// Says which entry it begins, and ends it when it may.
    struct Slow {
        begun: SyncSender<String>,
        go: Mutex<Receiver<()>>,
    }

    impl LogSink for Slow {
        fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
            self.begun.send(entry.name.clone()).unwrap();
            match self.go.lock().unwrap().recv() {
                Ok(()) => Ok(vec![format!("wrote {}", entry.name)]),
                Err(_) => Err(PluginError::new(PluginErrorKind::Io, "the server has gone")),
            }
        }
    }

    fn entry(name: &str) -> LogEntry {
        LogEntry { name: name.to_owned(), ..LogEntry::default() }
    }

    /// A queue to a slow sink, the entries that the sink begins, and a channel that lets it continue.
    fn slow() -> (Queue, Receiver<String>, SyncSender<()>, TestEnv) {
        let world = TestEnv::new(Arc::new(RealFiles), "/");
        let (begun, begins) = sync_channel(2 * ROOM);
        let (go, gone) = sync_channel(2 * ROOM);
        let report = Reporter::new(world.env().output, Rank(0), "n0", 0);
        let sink = Box::new(Slow { begun, go: Mutex::new(gone) });
        (Queue::start(sink, &report).unwrap(), begins, go, world)
    }

    #[test]
    fn queued_entries_are_written_in_order_before_the_end() {
        let (mut queue, begun, go, world) = slow();
        for name in ["a", "b", "c"] {
            queue.add(&entry(name));
            go.send(()).unwrap();
        }
        drop(queue);
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        let said = world.output().take_errors();
        assert!(said.len() == 3 && said.iter().all(|line| line.contains(": wrote ")), "{said:?}");
    }

    #[test]
    fn a_full_queue_drops_entries_without_waiting_and_says_so_once() {
        let (mut queue, begun, go, world) = slow();
        queue.add(&entry("first"));
        assert_eq!(begun.recv().unwrap(), "first");
        (0..ROOM + 3).for_each(|_| _ = queue.add(&entry("more")));
        let errors = world.output().take_errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("logging to the database is slower than the job"), "{errors:?}");
        (0..=ROOM).for_each(|_| go.send(()).unwrap());
        drop(queue);
        assert_eq!(begun.try_iter().count(), ROOM);
    }

    #[test]
    fn a_failing_sink_is_reported_once_and_gets_no_more_entries() {
        let (mut queue, begun, go, world) = slow();
        queue.add(&entry("a"));
        queue.add(&entry("b"));
        drop(go);
        // The thread ends, and with it what it sends with.
        assert_eq!(begun.iter().collect::<Vec<_>>(), ["a"]);
        queue.add(&entry("c"));
        queue.add(&entry("d"));
        drop(queue);
        let errors = world.output().take_errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("logging to the database failed: the server has gone"), "{errors:?}");
    }

    #[test]
    #[ignore = "long"]
    fn a_server_that_never_answers_holds_the_end_up_for_the_limit_and_no_longer() {
        let (mut queue, begun, go, world) = slow();
        ["a", "b"].iter().for_each(|name| _ = queue.add(&entry(name)));
        assert_eq!(begun.recv().unwrap(), "a");
        drop(queue);
        let errors = world.output().take_errors();
        assert!(errors[0].contains("has not ended within 5 s: 2 entries are missing there"), "{errors:?}");
        drop(go);
    }
}
