//! The types that cross the boundary, with their layout.
//!
//! Every trait here may grow at its end, by methods with a default body after `last_prefix_field`. The structs
//! are frozen. Kinds and levels cross as plain numbers, so that a newer side may have more of them.

// The code that `sabi_trait` generates warns about itself, and it has the traits' visibility.
#![allow(non_local_definitions, non_camel_case_types, missing_docs, unreachable_pub)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::semicolon_if_nothing_returned)]
#![allow(clippy::needless_pass_by_value, clippy::redundant_closure_for_method_calls)]

use crate::{Level, PluginError, PluginErrorKind};
use abi_stable::sabi_types::RRef;
use abi_stable::std_types::{RBox, ROption, RResult, RSlice, RSliceMut, RStr, RString, RVec};
use abi_stable::{sabi_trait, StableAbi};

/// An error on its way across.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiError {
    pub kind: u32,
    pub text: RString,
}

/// One message to send.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct AbiSend<'a> {
    pub bytes: RSlice<'a, u8>,
    pub to: u32,
}

/// One message to receive.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiReceive<'a> {
    pub bytes: RSliceMut<'a, u8>,
    pub from: u32,
}

/// Files to copy. Paths are bytes, not text.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct AbiCopyJob<'a> {
    pub token: RStr<'a>,
    pub items: RSlice<'a, AbiCopyItem<'a>>,
    pub block_bytes: u64,
    pub take_crc: bool,
}

/// One file to copy.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct AbiCopyItem<'a> {
    pub source: RSlice<'a, u8>,
    pub destination: RSlice<'a, u8>,
    pub bytes: u64,
}

/// How far a job has come: `kind` is one of the numbers in `transport.rs`.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiCopyState {
    pub kind: u32,
    pub bytes: u64,
    pub error: ROption<AbiError>,
}

/// [`Bytes`](crate::Bytes) of the host.
#[sabi_trait]
pub trait AbiBytes: Send + Sync {
    fn len(&self) -> RResult<u64, AbiError>;
    fn read_at(&self, offset: u64, buffer: RSliceMut<'_, u8>) -> RResult<(), AbiError>;
    #[sabi(last_prefix_field)]
    fn write_at(&self, offset: u64, bytes: RSlice<'_, u8>) -> RResult<(), AbiError>;
}

/// [`Set`](crate::Set) of the host.
#[sabi_trait]
pub trait AbiSet {
    fn rank(&self) -> RResult<u32, AbiError>;
    fn size(&self) -> RResult<u32, AbiError>;
    fn world_rank(&self, member: u32) -> RResult<u32, AbiError>;
    fn dataset(&self) -> RResult<u64, AbiError>;
    fn data_len(&self, member: u32) -> RResult<u64, AbiError>;
    fn lost(&self, member: u32) -> RResult<bool, AbiError>;
    fn exchange<'a>(
        &self,
        sends: RSlice<'a, AbiSend<'a>>,
        receives: RVec<AbiReceive<'a>>,
    ) -> RResult<(), AbiError>;
    fn max(&self, value: u64) -> RResult<u64, AbiError>;
    fn data(&self) -> BytesRef<'_>;
    fn redundancy(&self) -> BytesRef<'_>;
    fn log(&self, level: u32, text: RStr<'_>) -> RResult<(), AbiError>;
    #[sabi(last_prefix_field)]
    fn processors(&self) -> RResult<u32, AbiError>;
    /// Since 1.1.
    fn message_bytes(&self) -> RResult<u64, AbiError> {
        RResult::ROk(crate::MESSAGE_BYTES)
    }
}

/// [`Scheme`](crate::Scheme) of the plugin.
#[sabi_trait]
pub trait AbiScheme: Send + Sync {
    fn losses_survived(&self, set_size: u32) -> RResult<u32, AbiError>;
    fn recoverable(&self, lost: RSlice<'_, bool>) -> RResult<bool, AbiError>;
    fn redundancy_len(&self, rank: u32, data_lens: RSlice<'_, u64>) -> RResult<u64, AbiError>;
    fn protect(&self, set: SetRef<'_>) -> RResult<(), AbiError>;
    #[sabi(last_prefix_field)]
    fn rebuild(&self, set: SetRef<'_>, format: u32) -> RResult<(), AbiError>;
}

/// [`Transport`](crate::Transport) of the plugin.
#[sabi_trait]
pub trait AbiTransport: Send + Sync {
    fn start(&self, job: AbiCopyJob<'_>) -> RResult<RVec<u8>, AbiError>;
    fn poll(&self, ticket: RSlice<'_, u8>) -> RResult<AbiCopyState, AbiError>;
    fn wait(&self, ticket: RSlice<'_, u8>) -> RResult<AbiCopyState, AbiError>;
    fn cancel(&self, ticket: RSlice<'_, u8>) -> RResult<(), AbiError>;
    #[sabi(last_prefix_field)]
    fn crc(&self, ticket: RSlice<'_, u8>, item: u64) -> RResult<ROption<u32>, AbiError>;
}

/// [`LogSink`](crate::LogSink) of the plugin. Entries and queries cross as JSON, and so may grow.
#[sabi_trait]
pub trait AbiLogSink: Send + Sync {
    fn write(&self, entry: RSlice<'_, u8>) -> RResult<RVec<RString>, AbiError>;
    fn prepare(&self) -> RResult<RVec<RString>, AbiError>;
    #[sabi(last_prefix_field)]
    fn read(&self, query: RSlice<'_, u8>) -> RResult<RVec<RVec<u8>>, AbiError>;
}

/// The host's bytes, for the duration of a call.
pub type BytesRef<'a> = AbiBytes_TO<'a, RRef<'a, ()>>;
/// A range that the host maps until the plugin drops it.
/// The host's set, for the duration of a call.
pub type SetRef<'a> = AbiSet_TO<'a, RRef<'a, ()>>;
/// A plugin's scheme, owned by the host and freed by the plugin.
pub type SchemeBox = AbiScheme_TO<'static, RBox<()>>;
/// A plugin's transport, owned by the host and freed by the plugin.
pub type TransportBox = AbiTransport_TO<'static, RBox<()>>;
/// A plugin's log sink, owned by the host and freed by the plugin.
pub type LogSinkBox = AbiLogSink_TO<'static, RBox<()>>;
/// The result of a plugin's constructor.
pub type Constructed<B> = RResult<B, AbiError>;

/// The kinds of errors, each at the place of its number. Numbers are never used again.
const KINDS: [PluginErrorKind; 7] = [
    PluginErrorKind::Fault,
    PluginErrorKind::Refused,
    PluginErrorKind::Io,
    PluginErrorKind::Corrupt,
    PluginErrorKind::TooManyLost,
    PluginErrorKind::Aborted,
    PluginErrorKind::Cancelled,
];

/// The levels, each at the place of its number.
const LEVELS: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

impl From<PluginError> for AbiError {
    fn from(error: PluginError) -> Self {
        let place = KINDS.iter().position(|&kind| kind == error.kind).unwrap_or(0);
        Self { kind: u32::try_from(place).unwrap_or(0), text: error.text.into() }
    }
}

impl From<AbiError> for PluginError {
    /// A kind that only a newer side knows counts as a fault; its text says what happened.
    fn from(error: AbiError) -> Self {
        let kind = usize::try_from(error.kind).ok().and_then(|place| KINDS.get(place));
        PluginError::new(kind.copied().unwrap_or(PluginErrorKind::Fault), error.text)
    }
}

/// The number of a level.
pub(super) fn number_of(level: Level) -> u32 {
    LEVELS.iter().position(|&known| known == level).and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
}

/// The level of a number; one that only a newer side knows is for developers.
pub(super) fn level_of(number: u32) -> Level {
    usize::try_from(number).ok().and_then(|place| LEVELS.get(place)).copied().unwrap_or(Level::Debug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_level_comes_back_as_itself() {
        for kind in KINDS {
            let error = PluginError::new(kind, "text");
            assert_eq!(PluginError::from(AbiError::from(error.clone())), error);
        }
        for level in LEVELS {
            assert_eq!(level_of(number_of(level)), level);
        }
    }

    #[test]
    fn a_kind_or_level_of_a_newer_side_is_not_lost() {
        let error = PluginError::from(AbiError { kind: 4711, text: "new".into() });
        assert_eq!(error, PluginError::new(PluginErrorKind::Fault, "new"));
        assert_eq!(level_of(u32::MAX), Level::Debug);
    }
}
