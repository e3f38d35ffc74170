//! Schemes, sets and logical files across the boundary, in both directions.
//!
//! The host wraps its [`Set`] and [`Bytes`] so that they cross ([`HostSet`], [`HostBytes`]); the plugin's side
//! turns them back into plain ones ([`GuestSet`], [`GuestBytes`]). The plugin wraps its [`Scheme`]
//! ([`Exported`]), the host holds it as a plain one again ([`Hosted`]).

use super::boundary::{
    level_of, number_of, AbiBytes, AbiBytes_TO, AbiError, AbiReceive, AbiScheme, AbiSend, AbiSet, AbiSet_TO,
    BytesRef, SchemeBox, SetRef,
};
use super::guard::{guard, Exported};
use super::Hosted;
use crate::error::one_line;
use crate::{Bytes, Level, PluginError, ReceiveFrom, Scheme, SendTo, Set, SetShape};
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RResult, RSlice, RSliceMut, RStr, RVec};

impl<S: Scheme> AbiScheme for Exported<S> {
    fn losses_survived(&self, set_size: u32) -> RResult<u32, AbiError> {
        self.call("losses_survived", |scheme| scheme.losses_survived(set_size))
    }

    fn recoverable(&self, lost: RSlice<'_, bool>) -> RResult<bool, AbiError> {
        self.call("recoverable", |scheme| Ok(scheme.recoverable(lost.as_slice())))
    }

    fn redundancy_len(&self, rank: u32, data_lens: RSlice<'_, u64>) -> RResult<u64, AbiError> {
        self.call("redundancy_len", |scheme| {
            scheme.redundancy_len(&SetShape { rank, data_lens: data_lens.as_slice() })
        })
    }

    fn protect(&self, set: SetRef<'_>) -> RResult<(), AbiError> {
        self.call("protect", |scheme| scheme.protect(&GuestSet::new(&set)?))
    }

    fn rebuild(&self, set: SetRef<'_>, format: u32) -> RResult<(), AbiError> {
        self.call("rebuild", |scheme| scheme.rebuild(&GuestSet::new(&set)?, format))
    }
}

/// What a set knows, and so answers at once: each as a method of one side of the boundary.
macro_rules! answers {
    ($side:ident) => {
        $side!(rank() -> u32);
        $side!(size() -> u32);
        $side!(world_rank(member: u32) -> u32);
        $side!(dataset() -> u64);
        $side!(data_len(member: u32) -> u64);
        $side!(lost(member: u32) -> bool);
        $side!(message_bytes() -> u64);
    };
}

macro_rules! of_host {
    ($name:ident($($member:ident: u32)?) -> $answer:ty) => {
        fn $name(&self $(, $member: u32)?) -> RResult<$answer, AbiError> {
            guard(concat!("the host's ", stringify!($name)), || Ok(self.set.$name($($member)?)))
        }
    };
}

macro_rules! of_guest {
    ($name:ident($($member:ident: u32)?) -> $answer:ty) => {
        fn $name(&self $(, $member: u32)?) -> $answer {
            plain(self.set.$name($($member)?))
        }
    };
}

impl Scheme for Hosted<SchemeBox> {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        self.answer(self.object.losses_survived(set_size))
    }

    fn recoverable(&self, lost: &[bool]) -> bool {
        // A scheme that cannot answer says nothing of the dataset: the rebuild fails as the scheme does, and the dataset stays.
        self.object.recoverable(RSlice::from_slice(lost)).into_result().unwrap_or(true)
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        self.answer(self.object.redundancy_len(shape.rank, RSlice::from_slice(shape.data_lens)))
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        let set = HostSet::new(set);
        self.answer(self.object.protect(AbiSet_TO::from_ptr(&set, TD_Opaque)))
    }

    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError> {
        let set = HostSet::new(set);
        self.answer(self.object.rebuild(AbiSet_TO::from_ptr(&set, TD_Opaque), format))
    }
}

/// The host's set on its way to the plugin.
struct HostSet<'a> {
    set: &'a dyn Set,
    data: HostBytes<'a>,
    redundancy: HostBytes<'a>,
}

impl<'a> HostSet<'a> {
    fn new(set: &'a dyn Set) -> Self {
        Self { set, data: HostBytes(set.data()), redundancy: HostBytes(set.redundancy()) }
    }
}

impl AbiSet for HostSet<'_> {
    answers!(of_host);
    of_host!(processors() -> u32);

    fn exchange(
        &self,
        sends: RSlice<'_, AbiSend<'_>>,
        receives: RVec<AbiReceive<'_>>,
    ) -> RResult<(), AbiError> {
        guard("the host's exchange", || {
            let sends: Vec<_> =
                sends.iter().map(|send| SendTo { to: send.to, bytes: send.bytes.as_slice() }).collect();
            let mut receives: Vec<_> = receives
                .into_iter()
                .map(|receive| ReceiveFrom { from: receive.from, bytes: receive.bytes.into_mut_slice() })
                .collect();
            self.set.exchange(&sends, &mut receives)
        })
    }

    fn max(&self, value: u64) -> RResult<u64, AbiError> {
        guard("the host's max", || self.set.max(value))
    }

    fn data(&self) -> BytesRef<'_> {
        AbiBytes_TO::from_ptr(&self.data, TD_Opaque)
    }

    fn redundancy(&self) -> BytesRef<'_> {
        AbiBytes_TO::from_ptr(&self.redundancy, TD_Opaque)
    }

    fn log(&self, level: u32, text: RStr<'_>) -> RResult<(), AbiError> {
        guard("the host's log", || {
            self.set.log(level_of(level), &one_line(text.as_str()));
            Ok(())
        })
    }
}

/// The host's bytes on their way to the plugin.
struct HostBytes<'a>(&'a dyn Bytes);

impl AbiBytes for HostBytes<'_> {
    fn len(&self) -> RResult<u64, AbiError> {
        guard("the host's len", || Ok(self.0.len()))
    }

    fn read_at(&self, offset: u64, buffer: RSliceMut<'_, u8>) -> RResult<(), AbiError> {
        guard("the host's read_at", || self.0.read_at(offset, buffer.into_mut_slice()))
    }

    fn write_at(&self, offset: u64, bytes: RSlice<'_, u8>) -> RResult<(), AbiError> {
        guard("the host's write_at", || self.0.write_at(offset, bytes.as_slice()))
    }
}

/// The host's set, as the plugin uses it.
struct GuestSet<'call, 'host> {
    set: &'call SetRef<'host>,
    data: GuestBytes<'call>,
    redundancy: GuestBytes<'call>,
}

impl<'call, 'host> GuestSet<'call, 'host> {
    fn new(set: &'call SetRef<'host>) -> Result<Self, PluginError> {
        let (data, redundancy) = (GuestBytes::new(set.data())?, GuestBytes::new(set.redundancy())?);
        Ok(Self { set, data, redundancy })
    }
}

/// The result of a host's method that cannot fail by its signature. If the host panicked in it, the plugin
/// cannot continue; unwinding ends at the guard of the plugin's own method, so the host hears its own text.
fn plain<T>(answer: RResult<T, AbiError>) -> T {
    match answer.into_result() {
        Ok(value) => value,
        Err(error) => std::panic::panic_any(error.text.into_string()),
    }
}

impl Set for GuestSet<'_, '_> {
    answers!(of_guest);

    fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), PluginError> {
        let sends: Vec<_> =
            sends.iter().map(|send| AbiSend { to: send.to, bytes: RSlice::from_slice(send.bytes) }).collect();
        let receives: RVec<_> = receives
            .iter_mut()
            .map(|receive| AbiReceive {
                from: receive.from,
                bytes: RSliceMut::from_mut_slice(&mut *receive.bytes),
            })
            .collect();
        Ok(self.set.exchange(RSlice::from_slice(&sends), receives).into_result()?)
    }

    fn max(&self, value: u64) -> Result<u64, PluginError> {
        Ok(self.set.max(value).into_result()?)
    }

    fn data(&self) -> &dyn Bytes {
        &self.data
    }

    fn redundancy(&self) -> &dyn Bytes {
        &self.redundancy
    }

    fn log(&self, level: Level, text: &str) {
        plain(self.set.log(number_of(level), RStr::from_str(text)));
    }

    fn processors(&self) -> u32 {
        self.set.processors().into_result().unwrap_or(1)
    }
}

/// The host's bytes, as the plugin uses them. The length never changes during a call, so it is asked once.
struct GuestBytes<'a> {
    bytes: BytesRef<'a>,
    len: u64,
}

impl<'a> GuestBytes<'a> {
    fn new(bytes: BytesRef<'a>) -> Result<Self, PluginError> {
        let len = bytes.len().into_result()?;
        Ok(Self { bytes, len })
    }
}

impl Bytes for GuestBytes<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError> {
        Ok(self.bytes.read_at(offset, RSliceMut::from_mut_slice(buffer)).into_result()?)
    }

    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        Ok(self.bytes.write_at(offset, RSlice::from_slice(buffer)).into_result()?)
    }
}
