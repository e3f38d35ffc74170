//! Both sides of the boundary in one process, without a library between them.

use super::*;
use crate::{
    Bytes, CopyItem, CopyJob, CopyState, Level, LogEntry, LogQuery, LogSink, PluginErrorKind, ReceiveFrom,
    SendTo, Set, SetShape,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

/// Bytes in memory that know where they are: a copy on the way would have another address.
struct Memory(Mutex<Vec<u8>>);

impl Bytes for Memory {
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError> {
        let bytes = self.0.lock().unwrap();
        for (place, byte) in buffer.iter_mut().enumerate() {
            *byte = bytes.get(offset as usize + place).copied().unwrap_or(0);
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        let mut bytes = self.0.lock().unwrap();
        let place = offset as usize..offset as usize + buffer.len();
        match bytes.get_mut(place) {
            Some(target) => target.copy_from_slice(buffer),
            None => return Err(PluginError::new(PluginErrorKind::Io, "past the end of `r0'")),
        }
        Ok(())
    }
}

/// A set of two whose other member echoes what it is sent, and that notes what the plugin does.
struct EchoSet {
    data: Memory,
    redundancy: Memory,
    notes: RefCell<Vec<String>>,
    addresses: RefCell<Vec<usize>>,
}

impl EchoSet {
    fn new(data: &[u8]) -> Self {
        Self {
            data: Memory(Mutex::new(data.to_vec())),
            redundancy: Memory(Mutex::new(vec![0; data.len()])),
            notes: RefCell::default(),
            addresses: RefCell::default(),
        }
    }
}

impl Set for EchoSet {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        2
    }
    fn world_rank(&self, member: u32) -> u32 {
        [40, 70][member as usize]
    }
    fn dataset(&self) -> u64 {
        u64::MAX
    }
    fn data_len(&self, _member: u32) -> u64 {
        self.data.len()
    }
    fn lost(&self, member: u32) -> bool {
        member == 1
    }
    fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), PluginError> {
        for (send, receive) in sends.iter().zip(receives) {
            assert_eq!(send.to, receive.from);
            self.addresses
                .borrow_mut()
                .extend([send.bytes.as_ptr() as usize, receive.bytes.as_ptr() as usize]);
            receive.bytes.copy_from_slice(send.bytes);
        }
        Ok(())
    }
    fn max(&self, value: u64) -> Result<u64, PluginError> {
        match value {
            0..=100 => Ok(value.max(9)),
            _ => Err(PluginError::new(PluginErrorKind::Aborted, format!("member 1 stopped at {value}"))),
        }
    }
    fn data(&self) -> &dyn Bytes {
        &self.data
    }
    fn redundancy(&self) -> &dyn Bytes {
        &self.redundancy
    }
    fn log(&self, level: Level, text: &str) {
        self.notes.borrow_mut().push(format!("{level:?}: {text}"));
    }
    fn processors(&self) -> u32 {
        5
    }
    fn message_bytes(&self) -> u64 {
        u64::MAX - 1
    }
}

/// Uses everything that a set offers. Its option ACTION picks what goes wrong.
struct Busy {
    action: String,
    dropped: Arc<Mutex<u32>>,
}

impl Scheme for Busy {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        match self.action.as_str() {
            "panic" => panic!("losses of {set_size}"),
            "refuse" => Err(PluginError::new(PluginErrorKind::Refused, "COPIES=9 needs 10 members, not 2")),
            _ => Ok(set_size - 1),
        }
    }
    fn recoverable(&self, lost: &[bool]) -> bool {
        assert_ne!(self.action, "panic");
        lost == [false, true]
    }
    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        assert_ne!(self.action, "panic");
        Ok(shape.data_lens[shape.rank as usize])
    }
    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        assert_ne!(self.action, "panic");
        if self.action == "bad member" {
            set.world_rank(2);
        }
        assert_eq!((set.rank(), set.size(), set.world_rank(1), set.dataset()), (0, 2, 70, u64::MAX));
        assert_eq!((set.lost(0), set.lost(1), set.max(3)?, set.max(11)?), (false, true, 9, 11));
        assert_eq!((set.processors(), set.message_bytes()), (5, u64::MAX - 1));
        let mut sent = vec![0; set.data().len() as usize];
        set.data().read_at(0, &mut sent)?;
        let mut received = vec![0; sent.len()];
        let receives = &mut [ReceiveFrom { from: 1, bytes: &mut received }];
        set.exchange(&[SendTo { to: 1, bytes: &sent }], receives)?;
        let addresses = format!("{} {}", sent.as_ptr() as usize, received.as_ptr() as usize);
        set.log(Level::Warn, &addresses);
        set.redundancy().write_at(0, &received)
    }
    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError> {
        assert_ne!(self.action, "panic");
        set.max(u64::from(format))?;
        set.redundancy().write_at(1_000, b"x")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.dropped.lock().unwrap() += 1;
        assert_ne!(self.action, "panic");
    }
}

/// A scheme that went through both adapters, and the count of drops of the inner one.
fn busy(action: &str) -> (Box<dyn Scheme>, Arc<Mutex<u32>>) {
    thread_local!(static DROPPED: Arc<Mutex<u32>> = Arc::default());
    extern "C" fn make(options: __private::RSlice<'_, u8>) -> __private::Constructed<__private::SchemeBox> {
        __private::new_scheme(options, |options| {
            let action = options.text("ACTION").unwrap_or("work").to_owned();
            assert_ne!(action, "panic at once");
            Ok(Busy { action, dropped: DROPPED.with(Arc::clone) })
        })
    }
    let scheme = plugin(Some(make)).scheme("the scheme TRY", &action_option(action)).unwrap();
    (scheme, DROPPED.with(Arc::clone))
}

fn action_option(action: &str) -> KvTree {
    let mut options = KvTree::new();
    options.set("ACTION", action);
    options
}

type Make = extern "C" fn(__private::RSlice<'_, u8>) -> __private::Constructed<__private::SchemeBox>;

fn plugin(make: Option<Make>) -> LoadedPlugin {
    let scheme = make.map(|new| __private::Constructor { new });
    LoadedPlugin::new(
        __private::Constructors { scheme, transport: None, log: None, formats: 2..=5 }.into_module(),
    )
}

fn kind_and_text<T: std::fmt::Debug>(result: Result<T, PluginError>) -> (PluginErrorKind, String) {
    let error = result.expect_err("it went wrong");
    (error.kind, error.text)
}

#[test]
fn a_scheme_sees_the_whole_set_through_the_boundary() {
    let (scheme, _) = busy("work");
    let set = EchoSet::new(b"four score");
    scheme.protect(&set).unwrap();
    assert_eq!(*set.redundancy.0.lock().unwrap(), b"four score");
    assert_eq!(scheme.losses_survived(4), Ok(3));
    assert!(scheme.recoverable(&[false, true]) && !scheme.recoverable(&[true, false]));
    assert_eq!(scheme.redundancy_len(&SetShape { rank: 1, data_lens: &[7, u64::MAX] }), Ok(u64::MAX));
}

#[test]
fn messages_cross_without_a_copy() {
    let (scheme, _) = busy("work");
    let set = EchoSet::new(b"abc");
    scheme.protect(&set).unwrap();
    let addresses = set.addresses.borrow();
    assert_eq!(*set.notes.borrow(), [format!("Warn: {} {}", addresses[0], addresses[1])]);
}

#[test]
fn the_hosts_errors_come_back_through_the_plugin_with_kind_and_text() {
    let (scheme, _) = busy("work");
    let set = EchoSet::new(b"abc");
    let aborted = kind_and_text(scheme.rebuild(&set, 150));
    assert_eq!(aborted, (PluginErrorKind::Aborted, "member 1 stopped at 150".to_owned()));
    let past = kind_and_text(scheme.rebuild(&set, 1));
    assert_eq!(past, (PluginErrorKind::Io, "the scheme TRY: past the end of `r0'".to_owned()));
}

#[test]
fn a_panic_in_any_method_of_a_plugin_is_a_fault_and_nothing_worse() {
    let (scheme, dropped) = busy("panic");
    let set = EchoSet::new(b"abc");
    let shape = SetShape { rank: 0, data_lens: &[1] };
    for (method, (kind, text)) in [
        ("losses_survived", kind_and_text(scheme.losses_survived(5))),
        ("redundancy_len", kind_and_text(scheme.redundancy_len(&shape))),
        ("protect", kind_and_text(scheme.protect(&set))),
        ("rebuild", kind_and_text(scheme.rebuild(&set, 1))),
    ] {
        assert_eq!(kind, PluginErrorKind::Fault);
        assert!(text.starts_with(&format!("the scheme TRY: the scheme's {method} panicked: ")), "{text}");
    }
    assert!(scheme.recoverable(&[false, true]), "a good dataset was given up");
    drop(scheme);
    assert_eq!(*dropped.lock().unwrap(), 1);
}

#[test]
fn a_panic_of_the_host_ends_the_plugins_call_with_the_hosts_text() {
    let (scheme, _) = busy("bad member");
    let (kind, text) = kind_and_text(scheme.protect(&EchoSet::new(b"abc")));
    assert_eq!(kind, PluginErrorKind::Fault);
    assert!(text.contains("the host's world_rank panicked: index out of bounds"), "{text}");
}

#[test]
fn a_constructor_that_errs_or_panics_says_so() {
    extern "C" fn refusing(
        options: __private::RSlice<'_, u8>,
    ) -> __private::Constructed<__private::SchemeBox> {
        __private::new_scheme(options, |_| {
            Err::<Busy, _>(PluginError::new(PluginErrorKind::Refused, "COPIES=0 protects nothing"))
        })
    }
    extern "C" fn panicking(
        options: __private::RSlice<'_, u8>,
    ) -> __private::Constructed<__private::SchemeBox> {
        __private::new_scheme(options, |_| -> Result<Busy, _> { panic!("no licence") })
    }
    let refused = kind_and_text(plugin(Some(refusing)).scheme("the scheme TRY", &KvTree::new()).map(drop));
    assert_eq!(refused, (PluginErrorKind::Refused, "COPIES=0 protects nothing".to_owned()));
    let fault = kind_and_text(plugin(Some(panicking)).scheme("the scheme TRY", &KvTree::new()).map(drop));
    assert_eq!(fault, (PluginErrorKind::Fault, "making the scheme panicked: no licence".to_owned()));
}

#[test]
fn a_plugin_without_a_scheme_or_transport_says_so() {
    let plugin = plugin(None);
    assert!(!plugin.has_scheme() && !plugin.has_transport() && !plugin.has_log());
    assert_eq!(
        kind_and_text(plugin.scheme("the scheme TRY", &KvTree::new()).map(drop)).0,
        PluginErrorKind::Refused
    );
    assert_eq!(
        kind_and_text(plugin.transport("the transport TRY", &KvTree::new()).map(drop)).0,
        PluginErrorKind::Refused
    );
    assert_eq!(
        kind_and_text(plugin.log_sink("the log sink TRY", &KvTree::new()).map(drop)).0,
        PluginErrorKind::Refused
    );
    assert_eq!((plugin.formats(), plugin.api_version()), ((2, 5), API_VERSION));
}

#[test]
fn options_of_any_shape_arrive_and_garbled_ones_are_refused() {
    extern "C" fn reading(
        options: __private::RSlice<'_, u8>,
    ) -> __private::Constructed<__private::SchemeBox> {
        __private::new_scheme(options, |options| {
            assert_eq!(options.find("DEEP", "er").and_then(|tree| tree.value("x")), Some(&[0xff, 0xfe][..]));
            Ok(Busy { action: "work".to_owned(), dropped: Arc::default() })
        })
    }
    let mut options = KvTree::new();
    options.entry("DEEP", "er").set_bytes("x", [0xff, 0xfe]);
    options.set("EMPTY", "");
    plugin(Some(reading)).scheme("the scheme TRY", &options).unwrap();
    for garbled in [&b""[..], b"\0\0", b"\0\0\0\x01", b"\0\0\0\x01abc", b"\xff\xff\xff\xff", b"\0\0\0\0more"]
    {
        let made = reading(garbled.into()).into_result().map(drop).map_err(PluginError::from);
        assert!(made.is_err(), "{garbled:?} was taken");
    }
}

/// Answers from what the job and the ticket say.
struct Echo;

impl Transport for Echo {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        assert_ne!(job.token, "panic");
        let paths = job.items.iter().map(|item| item.source.as_os_str().as_bytes()).collect::<Vec<_>>();
        Ok(paths.join(&b'|'))
    }
    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        match ticket {
            b"running" => Ok(CopyState::Running(u64::MAX)),
            b"failed" => Ok(CopyState::Failed(PluginError::new(PluginErrorKind::Io, "disk full"))),
            b"panic" => panic!("in poll"),
            b"unknown" => Err(PluginError::new(PluginErrorKind::Refused, "not a ticket of mine")),
            _ => Ok(CopyState::Done),
        }
    }
    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.poll(ticket)
    }
    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.poll(ticket).map(drop)
    }
    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        assert_ne!(ticket, b"panic");
        (item == 1).then_some(0xdead_beef)
    }
}

fn echo() -> Box<dyn Transport> {
    extern "C" fn make(
        options: __private::RSlice<'_, u8>,
    ) -> __private::Constructed<__private::TransportBox> {
        __private::new_transport(options, |_| Ok(Echo))
    }
    let transport = Some(__private::Constructor { new: make });
    let module = __private::Constructors { scheme: None, transport, log: None, formats: 1..=1 }.into_module();
    LoadedPlugin::new(module).transport("the transport TRY", &KvTree::new()).unwrap()
}

fn job(token: &str, sources: &[&[u8]]) -> CopyJob {
    let item = |source: &&[u8]| CopyItem {
        source: OsStr::from_bytes(source).into(),
        destination: "/p/lustre".into(),
        bytes: 7,
    };
    let items = sources.iter().map(item).collect();
    CopyJob { token: token.to_owned(), items, block_bytes: 1 << 20, take_crc: true }
}

#[test]
fn a_transport_gets_paths_byte_for_byte_and_its_states_come_back() {
    let transport = echo();
    let ticket = transport.start(&job("token", &[b"/tmp/\xff\xfe", b"/tmp/b"])).unwrap();
    assert_eq!(ticket, b"/tmp/\xff\xfe|/tmp/b");
    assert_eq!(transport.poll(&ticket), Ok(CopyState::Done));
    assert_eq!(transport.wait(b"running"), Ok(CopyState::Running(u64::MAX)));
    let full = PluginError::new(PluginErrorKind::Io, "the transport TRY: disk full");
    assert_eq!(transport.poll(b"failed"), Ok(CopyState::Failed(full)));
    assert_eq!(kind_and_text(transport.cancel(b"unknown")).0, PluginErrorKind::Refused);
    assert_eq!((transport.crc(&ticket, 0), transport.crc(&ticket, 1)), (None, Some(0xdead_beef)));
}

#[test]
fn a_panic_in_any_method_of_a_transport_is_a_fault() {
    let transport = echo();
    for result in [
        transport.start(&job("panic", &[])).map(drop),
        transport.poll(b"panic").map(drop),
        transport.wait(b"panic").map(drop),
        transport.cancel(b"panic"),
        transport.try_crc(b"panic", 1).map(drop),
    ] {
        assert_eq!(kind_and_text(result).0, PluginErrorKind::Fault);
    }
    assert_eq!(transport.crc(b"panic", 1), None);
}

#[test]
fn versions_work_together_where_the_major_number_is_the_same() {
    let version = |text: &str| text.parse::<ApiVersion>().unwrap();
    assert!(version("1.0").works_with(version("1.7")) && version("1.7").works_with(version("1.0")));
    assert!(!version("1.0").works_with(version("2.0")) && !version("2").works_with(version("1.9")));
    assert!("one".parse::<ApiVersion>().is_err() && "1.x".parse::<ApiVersion>().is_err());
}

/// Keeps what it is given.
struct Diary(Mutex<Vec<LogEntry>>);

impl LogSink for Diary {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        assert_ne!(entry.name, "PANIC");
        self.0.lock().unwrap().push(entry.clone());
        Ok(vec![format!("took {}", entry.name)])
    }
    fn prepare(&self) -> Result<Vec<String>, PluginError> {
        Err(PluginError::new(PluginErrorKind::Io, "no ink"))
    }
    fn read(&self, query: &LogQuery) -> Result<Vec<LogEntry>, PluginError> {
        Ok(self.0.lock().unwrap().iter().filter(|entry| query.matches(entry)).cloned().collect())
    }
}

/// Takes entries and gives none back.
struct Mute;

impl LogSink for Mute {
    fn write(&self, _: &LogEntry) -> Result<Vec<String>, PluginError> {
        Ok(Vec::new())
    }
}

fn log_plugin(
    new: extern "C" fn(__private::RSlice<'_, u8>) -> __private::Constructed<__private::LogSinkBox>,
) -> LoadedPlugin {
    let log = Some(__private::Constructor { new });
    LoadedPlugin::new(
        __private::Constructors { scheme: None, transport: None, log, formats: 1..=1 }.into_module(),
    )
}

#[test]
fn entries_cross_to_a_log_sink_and_come_back_when_they_are_asked_for() {
    extern "C" fn diary(options: __private::RSlice<'_, u8>) -> __private::Constructed<__private::LogSinkBox> {
        __private::new_log_sink(options, |_| Ok(Diary(Mutex::default())))
    }
    let plugin = log_plugin(diary);
    assert!(plugin.has_log() && !plugin.has_transport());
    let sink = plugin.log_sink("the log sink TRY", &KvTree::new()).unwrap();
    let entry = |name: &str, dataset| LogEntry { name: name.to_owned(), dataset, ..LogEntry::default() };
    let (halt, fetch) = (entry("HALT", None), entry("FETCH_START", Some(3)));
    assert_eq!(sink.write(&halt).unwrap(), ["took HALT"]);
    sink.write(&fetch).unwrap();
    assert_eq!(sink.read(&LogQuery::default()).unwrap(), [halt, fetch.clone()]);
    let third = LogQuery { dataset: Some("3".to_owned()), ..LogQuery::default() };
    assert_eq!(sink.read(&third).unwrap(), [fetch]);
    assert_eq!(kind_and_text(sink.prepare()), (PluginErrorKind::Io, "the log sink TRY: no ink".to_owned()));
    let (kind, text) = kind_and_text(sink.write(&entry("PANIC", None)));
    assert_eq!(kind, PluginErrorKind::Fault);
    assert!(text.starts_with("the log sink TRY: the log sink's write panicked: "), "{text}");
}

#[test]
fn a_log_sink_that_keeps_nothing_says_so_when_it_is_read() {
    extern "C" fn mute(options: __private::RSlice<'_, u8>) -> __private::Constructed<__private::LogSinkBox> {
        __private::new_log_sink(options, |_| Ok(Mute))
    }
    let sink = log_plugin(mute).log_sink("the log sink TRY", &KvTree::new()).unwrap();
    assert_eq!(sink.prepare(), Ok(Vec::new()));
    assert_eq!(kind_and_text(sink.read(&LogQuery::default())).0, PluginErrorKind::Refused);
}

/// The module as it was in version 1.0 of the boundary, when it ended with the transport.
#[allow(unreachable_pub, missing_docs)]
mod older {
    use super::super::boundary::{SchemeBox, TransportBox};
    use super::super::module::Constructor;
    use abi_stable::library::RootModule;
    use abi_stable::sabi_types::VersionStrings;
    use abi_stable::std_types::ROption;
    use abi_stable::StableAbi;

    #[repr(C)]
    #[derive(StableAbi)]
    #[sabi(kind(Prefix(prefix_ref = PluginModuleRef, prefix_fields = PluginModulePrefix)))]
    #[sabi(missing_field(panic))]
    pub struct PluginModule {
        pub api_major: u32,
        pub api_minor: u32,
        pub oldest_format: u32,
        pub newest_format: u32,
        pub scheme: ROption<Constructor<SchemeBox>>,
        #[sabi(last_prefix_field)]
        pub transport: ROption<Constructor<TransportBox>>,
    }

    impl RootModule for PluginModuleRef {
        abi_stable::declare_root_module_statics! {PluginModuleRef}
        const BASE_NAME: &'static str = "scr_plugin";
        const NAME: &'static str = "scr_plugin";
        const VERSION_STRINGS: VersionStrings = VersionStrings::new("1.0.0");
    }
}

#[test]
fn a_plugin_and_a_host_of_1_0_and_1_1_fit_in_both_directions() {
    use abi_stable::library::{__call_root_module_loader, CheckTypeLayout, LibHeader, RootModuleResult};
    use abi_stable::prefix_type::PrefixTypeTrait;
    use abi_stable::std_types::{RNone, RSome};

    extern "C" fn scheme(options: __private::RSlice<'_, u8>) -> __private::Constructed<__private::SchemeBox> {
        __private::new_scheme(options, |_| Ok(Busy { action: "work".to_owned(), dropped: Arc::default() }))
    }
    extern "C" fn of_old_plugin() -> RootModuleResult {
        __call_root_module_loader(|| {
            let scheme = RSome(__private::Constructor { new: scheme });
            let (api_major, api_minor, oldest_format, newest_format) = (1, 0, 2, 3);
            older::PluginModule {
                api_major,
                api_minor,
                oldest_format,
                newest_format,
                scheme,
                transport: RNone,
            }
            .leak_into_prefix()
        })
    }
    extern "C" fn of_new_plugin() -> RootModuleResult {
        __private::export(|| {
            let scheme = Some(__private::Constructor { new: scheme });
            __private::Constructors { scheme, transport: None, log: None, formats: 2..=3 }.into_module()
        })
    }
    // SAFETY: what the functions give comes from a module of the type that is named.
    let (old, new) = unsafe {
        (
            LibHeader::from_constructor::<older::PluginModuleRef>(of_old_plugin, CheckTypeLayout::Yes),
            LibHeader::from_constructor::<PluginModuleRef>(of_new_plugin, CheckTypeLayout::Yes),
        )
    };
    let (old, new): (&'static LibHeader, &'static LibHeader) =
        (Box::leak(Box::new(old)), Box::leak(Box::new(new)));

    let plugin = LoadedPlugin::of_library(old, ApiVersion { major: 1, minor: 0 }).unwrap();
    assert_eq!((plugin.api_version().to_string(), plugin.formats()), ("1.0".to_owned(), (2, 3)));
    assert!(plugin.has_scheme() && !plugin.has_transport() && !plugin.has_log());
    assert!(plugin.scheme("the scheme TRY", &KvTree::new()).is_ok());

    assert!(LoadedPlugin::of_library(old, API_VERSION).is_err(), "it has less than it says");
    assert!(LoadedPlugin::of_library(new, API_VERSION).unwrap().has_scheme());

    // As a host of 1.0 does it.
    let module = new.init_root_module::<older::PluginModuleRef>().unwrap();
    assert_eq!((module.api_major(), module.api_minor()), (API_VERSION.major, API_VERSION.minor));
    assert_eq!((module.oldest_format(), module.newest_format()), (2, 3));
    assert!(module.scheme().is_some() && module.transport().is_none());
}
