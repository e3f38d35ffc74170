//! The macros that make a crate a plugin.

/// The name under which the loader looks for the module. The text in the macros below is the same one.
#[cfg(test)]
pub(super) const SYMBOL: &str = "_1as_0lib_1header_0root_bmodule_bloader";

/// Exports a [`Scheme`](crate::Scheme) as a plugin. Once per crate, and the crate is a `cdylib`.
///
/// `formats` are the on-disk formats of the redundancy that the scheme reads; it writes the last one. `new`
/// makes the scheme from the options of a descriptor, which the host has checked against the manifest and
/// completed with its defaults.
///
/// ```
/// use scr_plugin_api::{KvTree, PluginError, Scheme, Set, SetShape};
///
/// struct Nothing;
///
/// impl Scheme for Nothing {
///     fn losses_survived(&self, _set_size: u32) -> Result<u32, PluginError> {
///         Ok(0)
///     }
///     fn redundancy_len(&self, _shape: &SetShape<'_>) -> Result<u64, PluginError> {
///         Ok(0)
///     }
///     fn protect(&self, _set: &dyn Set) -> Result<(), PluginError> {
///         Ok(())
///     }
///     fn rebuild(&self, _set: &dyn Set, _format: u32) -> Result<(), PluginError> {
///         Ok(())
///     }
/// }
///
/// scr_plugin_api::export_scheme! {
///     formats: 1..=1,
///     new: |_options: &KvTree| Ok(Nothing),
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_scheme {
    (formats: $formats:expr, new: $new:expr $(,)?) => {
        $crate::export_plugin! { formats: $formats, scheme: $new }
    };
}

/// Exports a [`Transport`](crate::Transport) as a plugin. Once per crate, and the crate is a `cdylib`.
///
/// `new` makes the transport from the options, which the host has checked against the manifest and completed
/// with its defaults.
///
/// ```
/// use scr_plugin_api::{CopyJob, CopyState, KvTree, PluginError, Transport};
///
/// struct Nowhere;
///
/// impl Transport for Nowhere {
///     fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
///         Ok(job.token.clone().into_bytes())
///     }
///     fn poll(&self, _ticket: &[u8]) -> Result<CopyState, PluginError> {
///         Ok(CopyState::Done)
///     }
///     fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
///         self.poll(ticket)
///     }
///     fn cancel(&self, _ticket: &[u8]) -> Result<(), PluginError> {
///         Ok(())
///     }
///     fn crc(&self, _ticket: &[u8], _item: usize) -> Option<u32> {
///         None
///     }
/// }
///
/// scr_plugin_api::export_transport! {
///     new: |_options: &KvTree| Ok(Nowhere),
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_transport {
    (new: $new:expr $(,)?) => {
        $crate::export_plugin! { formats: 1..=1, transport: $new }
    };
}

/// Exports a [`LogSink`](crate::LogSink) as a plugin. Once per crate, and the crate is a `cdylib`.
///
/// `new` makes the sink from the options, which the host has checked against the manifest and completed with its
/// defaults. It opens nothing that may make a job wait: that is for the first [`write`](crate::LogSink::write), which
/// the host calls on a thread of its own.
///
/// ```
/// use scr_plugin_api::{KvTree, LogEntry, LogSink, PluginError};
///
/// struct ToStandardError;
///
/// impl LogSink for ToStandardError {
///     fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
///         eprintln!("{} {}", entry.local_time, entry.name);
///         Ok(Vec::new())
///     }
/// }
///
/// scr_plugin_api::export_log! {
///     new: |_options: &KvTree| Ok(ToStandardError),
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_log {
    (new: $new:expr $(,)?) => {
        $crate::export_plugin! { formats: 1..=1, log: $new }
    };
}

/// Exports a scheme, a transport, a log sink, or several of them from one library.
#[macro_export]
macro_rules! export_plugin {
    (
        formats: $formats:expr $(, scheme: $scheme:expr)? $(, transport: $transport:expr)? $(, log: $log:expr)? $(,)?
    ) => {
        const _: () = {
            use $crate::abi::__private as private;

            fn module() -> $crate::abi::PluginModuleRef {
                #[allow(unused_mut, unused_assignments)]
                let mut constructors =
                    private::Constructors { scheme: None, transport: None, log: None, formats: $formats };
                $(
                    extern "C" fn scheme(options: private::RSlice<'_, u8>) -> private::Constructed<private::SchemeBox> {
                        private::new_scheme(options, $scheme)
                    }
                    constructors.scheme = Some(private::Constructor { new: scheme });
                )?
                $(
                    extern "C" fn transport(
                        options: private::RSlice<'_, u8>,
                    ) -> private::Constructed<private::TransportBox> {
                        private::new_transport(options, $transport)
                    }
                    constructors.transport = Some(private::Constructor { new: transport });
                )?
                $(
                    extern "C" fn log(options: private::RSlice<'_, u8>) -> private::Constructed<private::LogSinkBox> {
                        private::new_log_sink(options, $log)
                    }
                    constructors.log = Some(private::Constructor { new: log });
                )?
                constructors.into_module()
            }

            extern "C" fn exported() -> private::RootModuleResult {
                private::export(module)
            }

            // SAFETY: the name is the loader's own and so no other symbol's; what `exported` gives comes from a
            // `PluginModuleRef`, as `from_constructor` asks.
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            pub static EXPORTED: private::LibHeader = unsafe {
                private::LibHeader::from_constructor::<$crate::abi::PluginModuleRef>(
                    exported,
                    private::CheckTypeLayout::Yes,
                )
            };
        };
    };
}
