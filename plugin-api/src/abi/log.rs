//! Log sinks across the boundary: from the plugin's own ([`Exported`]) to the host's view of it ([`Hosted`]).

use super::boundary::{AbiError, AbiLogSink, AbiLogSink_TO, ConstructedLogSink, LogSinkBox};
use super::guard::guard;
use super::module::PluginModuleRef;
use super::unpacked;
use crate::kvtree::FieldError;
use crate::{KvTree, LogEntry, LogQuery, LogSink, PluginError, PluginErrorKind};
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RResult, RSlice, RString, RVec};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The log sink of a plugin, with these options.
pub(super) fn construct(module: PluginModuleRef, options: &KvTree) -> Result<Box<dyn LogSink>, PluginError> {
    let Some(constructor) = module.log().into_option() else {
        return Err(PluginError::new(PluginErrorKind::Refused, "the plugin has no log sink"));
    };
    let packed = options.pack();
    let sink = (constructor.new)(RSlice::from_slice(&packed)).into_result()?;
    Ok(Box::new(Hosted(sink)))
}

/// The constructor in a plugin's library.
pub fn new_log_sink<L: LogSink + 'static>(
    packed: RSlice<'_, u8>,
    new: impl FnOnce(&KvTree) -> Result<L, PluginError>,
) -> ConstructedLogSink {
    guard("making the log sink", || {
        let sink = Exported(Some(new(&unpacked(packed.as_slice())?)?));
        Ok(AbiLogSink_TO::from_value(sink, TD_Opaque))
    })
}

/// The plugin's sink on its way to the host. It is there until it is dropped.
struct Exported<L: LogSink>(Option<L>);

impl<L: LogSink> Exported<L> {
    fn call<R>(&self, method: &str, body: impl FnOnce(&L) -> Result<R, PluginError>) -> RResult<R, AbiError> {
        guard(method, || {
            let gone = || PluginError::new(PluginErrorKind::Fault, "the log sink has been dropped");
            body(self.0.as_ref().ok_or_else(gone)?)
        })
    }
}

impl<L: LogSink> Drop for Exported<L> {
    fn drop(&mut self) {
        let sink = self.0.take();
        // As for a scheme: nothing unwinds into the host.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(sink))) {
            std::mem::forget(payload);
        }
    }
}

impl<L: LogSink> AbiLogSink for Exported<L> {
    fn write(&self, entry: RSlice<'_, u8>) -> RResult<RVec<RString>, AbiError> {
        self.call("the log sink's write", |sink| {
            let entry = LogEntry::from_tree(&unpacked(entry.as_slice())?).map_err(|error| garbled(&error))?;
            sink.write(&entry).map(abi_lines)
        })
    }

    fn prepare(&self) -> RResult<RVec<RString>, AbiError> {
        self.call("the log sink's prepare", |sink| sink.prepare().map(abi_lines))
    }

    fn read(&self, query: RSlice<'_, u8>) -> RResult<RVec<RVec<u8>>, AbiError> {
        self.call("the log sink's read", |sink| {
            let query = LogQuery::from_tree(&unpacked(query.as_slice())?).map_err(|error| garbled(&error))?;
            let entries = sink.read(&query)?;
            Ok(entries.iter().map(|entry| RVec::from(entry.to_tree().pack())).collect())
        })
    }
}

/// A plugin's log sink, as the host uses it.
struct Hosted(LogSinkBox);

impl LogSink for Hosted {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        let packed = entry.to_tree().pack();
        Ok(lines_of(self.0.write(RSlice::from_slice(&packed)).into_result()?))
    }

    fn prepare(&self) -> Result<Vec<String>, PluginError> {
        Ok(lines_of(self.0.prepare().into_result()?))
    }

    fn read(&self, query: &LogQuery) -> Result<Vec<LogEntry>, PluginError> {
        let packed = query.to_tree().pack();
        let entries = self.0.read(RSlice::from_slice(&packed)).into_result()?;
        let entry = |packed: &RVec<u8>| {
            LogEntry::from_tree(&unpacked(packed.as_slice())?).map_err(|error| garbled(&error))
        };
        entries.iter().map(entry).collect()
    }
}

fn abi_lines(lines: Vec<String>) -> RVec<RString> {
    lines.into_iter().map(RString::from).collect()
}

fn lines_of(lines: RVec<RString>) -> Vec<String> {
    lines.into_iter().map(String::from).collect()
}

fn garbled(error: &FieldError) -> PluginError {
    PluginError::new(
        PluginErrorKind::Fault,
        format!("what crossed the plugin interface cannot be read: {error}"),
    )
}
