//! The one error that crosses the plugin boundary.

use serde::{Deserialize, Serialize};

/// The cause of an error, so that the host knows what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PluginErrorKind {
    /// The options, or the shape of the set, do not allow what was asked.
    Refused,
    /// Reading or writing failed.
    Io,
    /// The bytes read are not those that this plugin wrote.
    Corrupt,
    /// More is lost than the plugin can bring back.
    TooManyLost,
    /// Another member of the set gave up, so this one stopped as well.
    Aborted,
    /// The host, or the user, asked to stop.
    Cancelled,
    /// The plugin panicked or broke the rules of the boundary.
    Fault,
}

/// An error of a plugin, or of the host on a plugin's behalf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct PluginError {
    /// The cause.
    pub kind: PluginErrorKind,
    /// One line: what, where, why, and what to do now.
    pub text: String,
}

impl PluginError {
    /// An error of the given kind with its text, on one line.
    pub fn new(kind: PluginErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: one_line(&text.into()) }
    }

    /// One that is [`Refused`](PluginErrorKind::Refused).
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(PluginErrorKind::Refused, text)
    }

    /// One of [reading or writing](PluginErrorKind::Io).
    pub fn io(text: impl Into<String>) -> Self {
        Self::new(PluginErrorKind::Io, text)
    }

    /// One for [other bytes](PluginErrorKind::Corrupt) than were written.
    pub fn corrupt(text: impl Into<String>) -> Self {
        Self::new(PluginErrorKind::Corrupt, text)
    }

    /// One for [too many losses](PluginErrorKind::TooManyLost).
    pub fn too_many_lost(text: impl Into<String>) -> Self {
        Self::new(PluginErrorKind::TooManyLost, text)
    }

    /// One for a [fault](PluginErrorKind::Fault) of the plugin, or of the host.
    pub fn fault(text: impl Into<String>) -> Self {
        Self::new(PluginErrorKind::Fault, text)
    }
}

/// The text of a plugin as messages quote it: on one line, and with nothing that a terminal takes for a command.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ").replace(char::is_control, "?")
}
