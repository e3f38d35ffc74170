//! The calls of the plugin that run now, noted in a file: one that ends the process says nothing itself.

use scr_plugin_api::{held, PluginError, PluginErrorKind};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::{Mutex, Once};

static NOTES: Mutex<Notes> = Mutex::new(Notes { file: None, check: String::new(), calls: Vec::new() });

struct Notes {
    file: Option<File>,
    check: String,
    calls: Vec<String>,
}

impl Notes {
    fn write(&self) {
        let calls = if self.calls.is_empty() { "no call" } else { &self.calls.join(" or ") };
        let text = format!("in {calls}, while it tried `{}'\0", self.check);
        // Without notes the kit works as well.
        self.file.iter().for_each(|file| _ = file.write_all_at(text.as_bytes(), 0));
    }
}

/// From now on, this file says up to its first null which calls run.
pub fn note_in(file: File) {
    held(&NOTES).file = Some(file);
}

/// Says which rule is tried from now on, so that a test that hangs shows where.
pub(crate) fn begin_check(name: &str) {
    eprintln!("trying  {name}");
    let mut notes = held(&NOTES);
    name.clone_into(&mut notes.check);
    notes.calls.clear();
    notes.write();
}

/// Makes a call of the plugin.
///
/// # Errors
/// It panicked, with this text. Nothing else is said of it: the members of a set panic together.
pub(crate) fn call<T>(name: &str, body: impl FnOnce() -> T) -> Result<T, String> {
    thread_local!(static PANIC: RefCell<Option<String>> = const { RefCell::new(None) });
    static SILENT: Once = Once::new();
    SILENT.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| match PANIC.take() {
            Some(_) => PANIC.set(Some(panic.to_string().lines().collect::<Vec<_>>().join(" "))),
            None => usual(panic),
        }));
    });
    note(name, true);
    PANIC.set(Some("panicked".to_owned()));
    let result = catch_unwind(AssertUnwindSafe(body));
    let panic = PANIC.take().unwrap_or_default();
    note(name, false);
    result.map_err(|_| panic)
}

/// Does what a plugin has asked for in a call, and may wait for long.
pub(crate) fn in_host<T>(name: &str, body: impl FnOnce() -> T) -> T {
    note(name, false);
    let result = body();
    note(name, true);
    result
}

fn note(name: &str, runs: bool) {
    let mut notes = held(&NOTES);
    match notes.calls.iter().position(|call| call == name).filter(|_| !runs) {
        Some(place) => drop(notes.calls.remove(place)),
        None if runs => notes.calls.push(name.to_owned()),
        None => {}
    }
    notes.write();
}

/// The text of a panic that the boundary of a plugin has made an error of.
pub(crate) fn panic_across(error: &PluginError) -> Option<&str> {
    let place = error.text.find(" panicked: ").filter(|_| error.kind == PluginErrorKind::Fault)?;
    Some(&error.text[place + 1..])
}

/// What helps against a panic.
pub(crate) const PANICS: &str =
    "Return a `PluginError` where the plugin panics: look for an `unwrap`, an index, or \
                                 arithmetic that cannot be done with these lengths.";
