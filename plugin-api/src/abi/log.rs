//! Log sinks across the boundary: from the plugin's own ([`Exported`]) to the host's view of it ([`Hosted`]).

use super::boundary::{AbiError, AbiLogSink, AbiLogSink_TO, ConstructedLogSink, LogSinkBox};
use super::guard::Exported;
use super::{constructed, unpacked};
use crate::kvtree::FieldError;
use crate::{KvTree, LogEntry, LogQuery, LogSink, PluginError};
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RResult, RSlice, RString, RVec};

/// The constructor in a plugin's library.
pub fn new_log_sink<L: LogSink + 'static>(
    packed: RSlice<'_, u8>,
    new: impl FnOnce(&KvTree) -> Result<L, PluginError>,
) -> ConstructedLogSink {
    constructed("log sink", packed, new, |sink| AbiLogSink_TO::from_value(sink, TD_Opaque))
}

impl<L: LogSink> AbiLogSink for Exported<L> {
    fn write(&self, entry: RSlice<'_, u8>) -> RResult<RVec<RString>, AbiError> {
        self.call("write", |sink| {
            let entry = LogEntry::from_tree(&unpacked(entry.as_slice())?).map_err(|error| garbled(&error))?;
            sink.write(&entry).map(abi_lines)
        })
    }

    fn prepare(&self) -> RResult<RVec<RString>, AbiError> {
        self.call("prepare", |sink| sink.prepare().map(abi_lines))
    }

    fn read(&self, query: RSlice<'_, u8>) -> RResult<RVec<RVec<u8>>, AbiError> {
        self.call("read", |sink| {
            let query = LogQuery::from_tree(&unpacked(query.as_slice())?).map_err(|error| garbled(&error))?;
            let entries = sink.read(&query)?;
            Ok(entries.iter().map(|entry| RVec::from(entry.to_tree().pack())).collect())
        })
    }
}

/// A plugin's log sink, as the host uses it.
pub(super) struct Hosted(pub(super) LogSinkBox);

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
    PluginError::fault(format!("what crossed the plugin interface cannot be read: {error}"))
}
