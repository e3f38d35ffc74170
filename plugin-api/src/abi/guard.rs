//! No panic crosses the boundary: each call is wrapped, and a panic becomes an error.
//!
//! The usual message with the place of the panic still goes to standard error, for debugging.

use super::boundary::AbiError;
use crate::PluginError;
use abi_stable::std_types::{RErr, ROk, RResult};
use std::any::Any;
use std::fmt::Display;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a plugin offers, on its way to the host. It is there until it is dropped.
pub(super) struct Exported<P> {
    plugin: Option<P>,
    what: &'static str,
}

impl<P> Exported<P> {
    pub(super) fn new(what: &'static str, plugin: P) -> Self {
        Self { plugin: Some(plugin), what }
    }

    /// Calls a method of it.
    pub(super) fn call<R>(
        &self,
        method: &str,
        body: impl FnOnce(&P) -> Result<R, PluginError>,
    ) -> RResult<R, AbiError> {
        let what = self.what;
        guard(format_args!("the {what}'s {method}"), || {
            let gone = || PluginError::fault(format!("the {what} has been dropped"));
            body(self.plugin.as_ref().ok_or_else(gone)?)
        })
    }
}

impl<P> Drop for Exported<P> {
    fn drop(&mut self) {
        let plugin = self.plugin.take();
        // Dropping gives no error; it only must not unwind into the host.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(plugin))) {
            std::mem::forget(payload);
        }
    }
}

/// Runs `body`. A panic in it becomes a [fault](PluginError::fault) that says that `what` panicked, and with
/// which text.
pub(super) fn guard<T>(
    what: impl Display,
    body: impl FnOnce() -> Result<T, PluginError>,
) -> RResult<T, AbiError> {
    // Nothing that the body touched is used as if it had ended well: the caller gets an error.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => ROk(value),
        Ok(Err(error)) => RErr(error.into()),
        Err(payload) => {
            let text = format!("{what} panicked: {}", text_of(payload));
            RErr(PluginError::fault(text).into())
        }
    }
}

/// The text of a panic, if it has left one.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned())
}

/// The text of a panic. The payload is the panicking side's own type: its drop may panic again.
fn text_of(payload: Box<dyn Any + Send>) -> String {
    let text = panic_text(&*payload).unwrap_or_else(|| "(it left no text)".to_owned());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PluginErrorKind;

    fn error_of(result: RResult<(), AbiError>) -> PluginError {
        result.into_result().map_err(PluginError::from).expect_err("it panicked")
    }

    #[test]
    fn a_panic_becomes_a_fault_with_its_text_on_one_line() {
        let error = error_of(guard("the plugin's protect", || panic!("no such stripe: {}\nat all", 7)));
        assert_eq!(error.kind, PluginErrorKind::Fault);
        assert_eq!(error.text, "the plugin's protect panicked: no such stripe: 7; at all");
    }

    #[test]
    fn a_payload_that_is_no_text_and_panics_when_dropped_is_contained() {
        struct Nasty;
        impl Drop for Nasty {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        let error = error_of(guard("the host's max", || std::panic::panic_any(Nasty)));
        assert_eq!(error.text, "the host's max panicked: (it left no text)");
    }

    #[test]
    fn results_without_a_panic_pass_unchanged() {
        assert_eq!(guard("it", || Ok(7)).into_result().map_err(PluginError::from), Ok(7));
        let refused = PluginError::new(PluginErrorKind::Refused, "not with 3 members");
        assert_eq!(error_of(guard("it", || Err(refused.clone()))), refused);
    }
}
