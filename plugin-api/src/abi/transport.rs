//! Transports across the boundary: from the plugin's own ([`Exported`]) to the host's view of it ([`Hosted`]).

use super::boundary::{AbiCopyItem, AbiCopyJob, AbiCopyState, AbiError, AbiTransport, TransportBox};
use super::guard::Exported;
use super::Hosted;
use crate::{CopyItem, CopyJob, CopyState, PluginError, Transport};
use abi_stable::std_types::{RNone, ROption, RResult, RSlice, RSome, RStr, RVec};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl<T: Transport> AbiTransport for Exported<T> {
    fn start(&self, job: AbiCopyJob<'_>) -> RResult<RVec<u8>, AbiError> {
        self.call("start", |transport| transport.start(&job_of(&job)).map(RVec::from))
    }

    fn poll(&self, ticket: RSlice<'_, u8>) -> RResult<AbiCopyState, AbiError> {
        self.call("poll", |transport| transport.poll(ticket.as_slice()).map(abi_state))
    }

    fn wait(&self, ticket: RSlice<'_, u8>) -> RResult<AbiCopyState, AbiError> {
        self.call("wait", |transport| transport.wait(ticket.as_slice()).map(abi_state))
    }

    fn cancel(&self, ticket: RSlice<'_, u8>) -> RResult<(), AbiError> {
        self.call("cancel", |transport| transport.cancel(ticket.as_slice()))
    }

    fn crc(&self, ticket: RSlice<'_, u8>, item: u64) -> RResult<ROption<u32>, AbiError> {
        self.call("crc", |transport| {
            let item = usize::try_from(item).ok();
            Ok(item.and_then(|item| transport.crc(ticket.as_slice(), item)).into())
        })
    }
}

impl Transport for Hosted<TransportBox> {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let items: Vec<_> = job.items.iter().map(abi_item).collect();
        let job = AbiCopyJob {
            token: RStr::from_str(&job.token),
            items: RSlice::from_slice(&items),
            block_bytes: job.block_bytes,
            take_crc: job.take_crc,
        };
        self.answer(self.object.start(job)).map(Vec::from)
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.state_of(self.answer(self.object.poll(RSlice::from_slice(ticket)))?)
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.state_of(self.answer(self.object.wait(RSlice::from_slice(ticket)))?)
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.answer(self.object.cancel(RSlice::from_slice(ticket)))
    }

    /// A checksum that cannot be had is taken by the host itself.
    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.try_crc(ticket, item).ok()?
    }

    fn try_crc(&self, ticket: &[u8], item: usize) -> Result<Option<u32>, PluginError> {
        self.answer(self.object.crc(RSlice::from_slice(ticket), item as u64)).map(ROption::into_option)
    }
}

fn job_of(job: &AbiCopyJob<'_>) -> CopyJob {
    CopyJob {
        token: job.token.into(),
        items: job.items.iter().map(item_of).collect(),
        block_bytes: job.block_bytes,
        take_crc: job.take_crc,
    }
}

fn item_of(item: &AbiCopyItem<'_>) -> CopyItem {
    CopyItem {
        source: path_of(item.source.as_slice()),
        destination: path_of(item.destination.as_slice()),
        bytes: item.bytes,
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn abi_item(item: &CopyItem) -> AbiCopyItem<'_> {
    AbiCopyItem {
        source: bytes_of(&item.source),
        destination: bytes_of(&item.destination),
        bytes: item.bytes,
    }
}

fn bytes_of(path: &Path) -> RSlice<'_, u8> {
    RSlice::from_slice(path.as_os_str().as_bytes())
}

/// The kinds of [`AbiCopyState`]. Numbers are never used again.
const RUNNING: u32 = 0;
const DONE: u32 = 1;
const FAILED: u32 = 2;

fn abi_state(state: CopyState) -> AbiCopyState {
    match state {
        CopyState::Running(bytes) => AbiCopyState { kind: RUNNING, bytes, error: RNone },
        CopyState::Done => AbiCopyState { kind: DONE, bytes: 0, error: RNone },
        CopyState::Failed(error) => AbiCopyState { kind: FAILED, bytes: 0, error: RSome(error.into()) },
    }
}

impl Hosted<TransportBox> {
    fn state_of(&self, state: AbiCopyState) -> Result<CopyState, PluginError> {
        match (state.kind, state.error) {
            (RUNNING, _) => Ok(CopyState::Running(state.bytes)),
            (DONE, _) => Ok(CopyState::Done),
            (FAILED, RSome(error)) => Ok(CopyState::Failed(self.blamed(error))),
            (kind, _) => Err(PluginError::fault(format!("{} answered with unknown state {kind}", self.who))),
        }
    }
}
