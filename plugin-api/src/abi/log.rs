//! Log sinks across the boundary: from the plugin's own ([`Exported`]) to the host's view of it ([`Hosted`]).

use super::boundary::{AbiError, AbiLogSink, LogSinkBox};
use super::guard::Exported;
use super::Hosted;
use crate::error::one_line;
use crate::{LogEntry, LogQuery, LogSink, PluginError};
use abi_stable::std_types::{RResult, RSlice, RString, RVec};
use serde::de::DeserializeOwned;
use serde::Serialize;

impl<L: LogSink> AbiLogSink for Exported<L> {
    fn write(&self, entry: RSlice<'_, u8>) -> RResult<RVec<RString>, AbiError> {
        self.call("write", |sink| sink.write(&from_json(&entry)?).map(abi_lines))
    }

    fn prepare(&self) -> RResult<RVec<RString>, AbiError> {
        self.call("prepare", |sink| sink.prepare().map(abi_lines))
    }

    fn read(&self, query: RSlice<'_, u8>) -> RResult<RVec<RVec<u8>>, AbiError> {
        self.call("read", |sink| {
            let entries = sink.read(&from_json(&query)?)?;
            entries.iter().map(|entry| Ok(RVec::from(to_json(entry)?))).collect()
        })
    }
}

impl LogSink for Hosted<LogSinkBox> {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        self.answer(self.object.write(RSlice::from_slice(&to_json(entry)?))).map(lines_of)
    }

    fn prepare(&self) -> Result<Vec<String>, PluginError> {
        self.answer(self.object.prepare()).map(lines_of)
    }

    fn read(&self, query: &LogQuery) -> Result<Vec<LogEntry>, PluginError> {
        let entries = self.answer(self.object.read(RSlice::from_slice(&to_json(query)?)))?;
        entries.iter().map(|entry| from_json(entry)).collect()
    }
}

fn abi_lines(lines: Vec<String>) -> RVec<RString> {
    lines.into_iter().map(RString::from).collect()
}

fn lines_of(lines: RVec<RString>) -> Vec<String> {
    lines.into_iter().map(|line| one_line(&line)).collect()
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, PluginError> {
    serde_json::to_vec(value).map_err(|error| garbled(&error))
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PluginError> {
    serde_json::from_slice(bytes).map_err(|error| garbled(&error))
}

fn garbled(error: &serde_json::Error) -> PluginError {
    PluginError::fault(format!("what crossed the plugin interface cannot be read: {error}"))
}
