//! A sink on a thread of its own, for what may be slow or far away: the job never waits for it but at its very end, and
//! then not long.

use crate::message::Reporter;
use scr_plugin_api::{LogEntry, LogSink, PluginError};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::sync::Mutex;
use std::time::Duration;

/// Entries that wait at most; more are left out.
const WAITING: usize = 4096;
/// How long the end of a session waits for entries that are still on their way.
const LAST: Duration = Duration::from_secs(15);

/// Hands entries to a sink behind the job's back.
pub(crate) struct Behind {
    entries: Option<SyncSender<LogEntry>>,
    /// Ends when the thread does. Only to make the whole shareable in a mutex.
    ended: Mutex<Receiver<()>>,
    report: Reporter,
    name: String,
    told_full: Mutex<bool>,
}

impl Behind {
    /// Starts the thread. `open` makes the sink there, since even that may take long; what it fails with is told once.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(crate) fn start(
        name: &str,
        report: &Reporter,
        open: impl FnOnce() -> Result<Box<dyn LogSink>, PluginError> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (entries, waiting) = sync_channel(WAITING);
        let (ending, ended) = sync_channel(1);
        let teller = (report.clone(), name.to_owned());
        let work = move || {
            if let Err(error) = carry(open, &waiting, &teller.0) {
                super::tell_failure(&teller.0, &teller.1, &error);
                // What still comes is taken and dropped, so that nobody waits.
                waiting.iter().for_each(drop);
            }
            drop(ending);
        };
        std::thread::Builder::new().name("scr-log".to_owned()).spawn(work)?;
        Ok(Self {
            entries: Some(entries),
            ended: Mutex::new(ended),
            report: report.clone(),
            name: name.to_owned(),
            told_full: Mutex::new(false),
        })
    }
}

fn carry(
    open: impl FnOnce() -> Result<Box<dyn LogSink>, PluginError>,
    waiting: &Receiver<LogEntry>,
    report: &Reporter,
) -> Result<(), PluginError> {
    let sink = open()?;
    for entry in waiting {
        sink.write(&entry)?.iter().for_each(|line| report.notice(line));
    }
    Ok(())
}

impl LogSink for Behind {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        let Some(entries) = &self.entries else { return Ok(Vec::new()) };
        if let Err(TrySendError::Full(_)) = entries.try_send(entry.clone()) {
            let mut told = self.told_full.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if !std::mem::replace(&mut *told, true) {
                self.report.warn(&format!("{} takes entries too slowly: some are left out", self.name));
            }
        }
        Ok(Vec::new())
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.entries = None;
        let ended = self.ended.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(LAST) {
            self.report.warn(&format!(
                "{} has not taken its last entries within {} seconds; they may be missing",
                self.name,
                LAST.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Rank;
    use crate::env::RecordedOutput;
    use scr_plugin_api::PluginErrorKind;
    use std::sync::Arc;

    struct Keeps(Arc<Mutex<Vec<u64>>>);

    impl LogSink for Keeps {
        fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
            self.0.lock().unwrap().push(entry.micros);
            Ok(vec![format!("took {}", entry.micros)])
        }
    }

    fn entries() -> impl Iterator<Item = LogEntry> {
        (0..100).map(|micros| LogEntry { micros, ..LogEntry::default() })
    }

    #[test]
    fn every_entry_has_arrived_in_order_when_it_is_dropped() {
        let output = Arc::new(RecordedOutput::default());
        let report = Reporter::new(output.clone(), Rank(0), "n0", 0);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let sink = Keeps(kept.clone());
        let behind = Behind::start("the database", &report, move || Ok(Box::new(sink))).unwrap();
        entries().for_each(|entry| drop(behind.write(&entry).unwrap()));
        drop(behind);
        assert_eq!(*kept.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert_eq!(output.take_info().len(), 100);
    }

    #[test]
    fn a_sink_that_cannot_be_opened_is_told_once() {
        let output = Arc::new(RecordedOutput::default());
        let report = Reporter::new(output.clone(), Rank(0), "n0", 0);
        let refused = || Err(PluginError::new(PluginErrorKind::Io, "no server at db1"));
        let behind = Behind::start("the database", &report, refused).unwrap();
        entries().for_each(|entry| drop(behind.write(&entry).unwrap()));
        drop(behind);
        let errors = output.take_errors();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("logging to the database failed: no server at db1"), "{errors:?}");
    }
}
