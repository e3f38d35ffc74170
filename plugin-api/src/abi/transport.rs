//! Transports across the boundary: from the plugin's own ([`Exported`]) to the host's view of it ([`Hosted`]).

use super::boundary::{
    AbiCopyItem, AbiCopyJob, AbiCopyState, AbiError, AbiTransport, AbiTransport_TO, ConstructedTransport,
    TransportBox,
};
use super::guard::guard;
use super::module::PluginModuleRef;
use super::unpacked;
use crate::{CopyItem, CopyJob, CopyState, KvTree, PluginError, PluginErrorKind, Transport};
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RNone, ROption, RResult, RSlice, RSome, RStr, RVec};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// The transport of a plugin, with these options.
pub(super) fn construct(
    module: PluginModuleRef,
    options: &KvTree,
) -> Result<Box<dyn Transport>, PluginError> {
    let Some(constructor) = module.transport().into_option() else {
        return Err(PluginError::new(PluginErrorKind::Refused, "the plugin has no transport"));
    };
    let packed = options.pack();
    let transport = (constructor.new)(RSlice::from_slice(&packed)).into_result()?;
    Ok(Box::new(Hosted(transport)))
}

/// The constructor in a plugin's library.
pub fn new_transport<T: Transport + 'static>(
    packed: RSlice<'_, u8>,
    new: impl FnOnce(&KvTree) -> Result<T, PluginError>,
) -> ConstructedTransport {
    guard("making the transport", || {
        let transport = Exported(Some(new(&unpacked(packed.as_slice())?)?));
        Ok(AbiTransport_TO::from_value(transport, TD_Opaque))
    })
}

/// The plugin's transport on its way to the host. It is there until it is dropped.
struct Exported<T: Transport>(Option<T>);

impl<T: Transport> Exported<T> {
    fn call<R>(&self, method: &str, body: impl FnOnce(&T) -> Result<R, PluginError>) -> RResult<R, AbiError> {
        guard(method, || {
            let gone = || PluginError::new(PluginErrorKind::Fault, "the transport has been dropped");
            body(self.0.as_ref().ok_or_else(gone)?)
        })
    }
}

impl<T: Transport> Drop for Exported<T> {
    fn drop(&mut self) {
        let transport = self.0.take();
        // As for a scheme: nothing unwinds into the host.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(transport))) {
            std::mem::forget(payload);
        }
    }
}

impl<T: Transport> AbiTransport for Exported<T> {
    fn start(&self, job: AbiCopyJob<'_>) -> RResult<RVec<u8>, AbiError> {
        self.call("the transport's start", |transport| transport.start(&job_of(&job)).map(RVec::from))
    }

    fn poll(&self, ticket: RSlice<'_, u8>) -> RResult<AbiCopyState, AbiError> {
        self.call("the transport's poll", |transport| transport.poll(ticket.as_slice()).map(abi_state))
    }

    fn wait(&self, ticket: RSlice<'_, u8>) -> RResult<AbiCopyState, AbiError> {
        self.call("the transport's wait", |transport| transport.wait(ticket.as_slice()).map(abi_state))
    }

    fn cancel(&self, ticket: RSlice<'_, u8>) -> RResult<(), AbiError> {
        self.call("the transport's cancel", |transport| transport.cancel(ticket.as_slice()))
    }

    fn crc(&self, ticket: RSlice<'_, u8>, item: u64) -> RResult<ROption<u32>, AbiError> {
        self.call("the transport's crc", |transport| {
            let item = usize::try_from(item).ok();
            Ok(item.and_then(|item| transport.crc(ticket.as_slice(), item)).into())
        })
    }
}

/// A plugin's transport, as the host uses it.
struct Hosted(TransportBox);

impl Transport for Hosted {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let items: Vec<_> = job.items.iter().map(abi_item).collect();
        let job = AbiCopyJob {
            token: RStr::from_str(&job.token),
            items: RSlice::from_slice(&items),
            block_bytes: job.block_bytes,
            take_crc: job.take_crc,
        };
        Ok(self.0.start(job).into_result()?.into())
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        state_of(self.0.poll(RSlice::from_slice(ticket)).into_result()?)
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        state_of(self.0.wait(RSlice::from_slice(ticket)).into_result()?)
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        Ok(self.0.cancel(RSlice::from_slice(ticket)).into_result()?)
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        let item = u64::try_from(item).ok()?;
        // A checksum that cannot be had is taken by the host itself.
        self.0.crc(RSlice::from_slice(ticket), item).into_result().ok()?.into_option()
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

fn state_of(state: AbiCopyState) -> Result<CopyState, PluginError> {
    match (state.kind, state.error) {
        (RUNNING, _) => Ok(CopyState::Running(state.bytes)),
        (DONE, _) => Ok(CopyState::Done),
        (FAILED, RSome(error)) => Ok(CopyState::Failed(error.into())),
        (kind, _) => {
            let text = format!("the transport answered with an unknown state of a copy ({kind})");
            Err(PluginError::new(PluginErrorKind::Fault, text))
        }
    }
}
