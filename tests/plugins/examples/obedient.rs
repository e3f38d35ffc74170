//! A plugin that does what its options say: it panics in the method named by `PANIC`, or ends the process there with exit
//! code 0 if `exit-` comes before the name, or by `abort-`, and never returns if that is `hang-`. With a path, `wait` returns once
//! there is such a file. With `promise-all` it promises to survive the
//! loss of all members, with `any-length` it asks for more redundancy than there can be, and with `write-nothing` it writes none.
//! With `crc` its `start` copies first, and with `rude` it gives an error with control characters.

use scr_plugin_api::{
    CopyJob, CopyState, KvTree, LogEntry, LogSink, PluginError, PluginErrorKind, Scheme, Set, SetShape,
    Transport,
};

struct Obedient {
    panic: String,
}

impl Obedient {
    fn new(options: &KvTree) -> Result<Self, PluginError> {
        let plugin = Self { panic: options.text("PANIC").unwrap_or("").to_owned() };
        plugin.enter("new");
        Ok(plugin)
    }

    fn enter(&self, method: &str) {
        assert!(self.panic != method, "asked to panic in {method}");
        if self.panic.strip_prefix("exit-") == Some(method) {
            std::process::exit(0);
        }
        if self.panic.strip_prefix("abort-") == Some(method) {
            std::process::abort();
        }
        while self.panic.strip_prefix("hang-") == Some(method) {
            std::thread::park();
        }
    }
}

impl Scheme for Obedient {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        self.enter("losses_survived");
        Ok(if self.panic == "promise-all" { set_size } else { set_size.saturating_sub(1) })
    }
    fn recoverable(&self, _lost: &[bool]) -> bool {
        self.enter("recoverable");
        true
    }
    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        self.enter("redundancy_len");
        if self.panic == "any-length" {
            return Ok(u64::MAX);
        }
        shape.data_lens.get(shape.rank as usize).copied().ok_or_else(|| {
            PluginError::new(PluginErrorKind::Refused, format!("there is no member {}", shape.rank))
        })
    }
    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        self.enter("protect");
        let written = if self.panic == "write-nothing" { 0 } else { set.redundancy().len() };
        set.redundancy().write_at(0, &vec![7; written as usize])
    }
    fn rebuild(&self, _set: &dyn Set, _format: u32) -> Result<(), PluginError> {
        self.enter("rebuild");
        Ok(())
    }
}

impl Transport for Obedient {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        self.enter("start");
        if self.panic == "rude" {
            return Err(PluginError::new(PluginErrorKind::Io, "no\nsuch \x1b[31mdoor"));
        }
        if self.panic == "crc" {
            for item in &job.items {
                std::fs::copy(&item.source, &item.destination)
                    .map_err(|error| PluginError::io(format!("{}: {error}", item.source.display())))?;
            }
        }
        Ok(job.token.clone().into_bytes())
    }
    fn poll(&self, _ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.enter("poll");
        Ok(CopyState::Done)
    }
    fn wait(&self, _ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.enter("wait");
        while self.panic.starts_with('/') && !std::path::Path::new(&self.panic).exists() {
            std::thread::yield_now();
        }
        Ok(CopyState::Done)
    }
    fn cancel(&self, _ticket: &[u8]) -> Result<(), PluginError> {
        self.enter("cancel");
        Ok(())
    }
    fn crc(&self, _ticket: &[u8], _item: usize) -> Option<u32> {
        self.enter("crc");
        None
    }
}

impl LogSink for Obedient {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        self.enter("write");
        Ok(vec![format!("wrote {}", entry.name)])
    }
}

impl Drop for Obedient {
    fn drop(&mut self) {
        self.enter("drop");
    }
}

scr_plugin_api::export_plugin! {
    formats: 2..=3,
    scheme: Obedient::new,
    transport: Obedient::new,
    log: Obedient::new,
}
