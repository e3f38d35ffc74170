//! The failures of a call from C, and the fixed number of each in `scr.h`.

use scr_comm::{CollectiveError, CommError, Rank, RankErrors};
use scr_config::param::ConfigError;
use scr_core::session::Error as SessionError;
use std::ffi::c_int;

/// `SCR_SUCCESS`.
pub(crate) const SUCCESS: c_int = 0;

/// Size of every buffer for a name, with its terminating null: `SCR_MAX_FILENAME`.
pub(crate) const MAX_FILENAME: usize = 1024;

/// The kinds of failure, with the numbers of `scr.h`. A number never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    /// `SCR_FAILURE`.
    Failure = 1,
    /// `SCR_ERR_STATE`.
    State = 2,
    /// `SCR_ERR_ARGUMENT`.
    Argument = 3,
    /// `SCR_ERR_CONFIG`.
    Config = 4,
    /// `SCR_ERR_IO`.
    Io = 5,
    /// `SCR_ERR_MPI`.
    Mpi = 6,
    /// `SCR_ERR_INTERNAL`.
    Internal = 7,
}

/// Why a call from C failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("SCR_Init has not been called, or has failed; call it first, after MPI_Init")]
    NotStarted,
    #[error("SCR_Init or SCR_Recover has failed")]
    Refused,
    #[error("SCR is shut down; call SCR_Init to begin again")]
    Ended,
    #[error("an earlier call hit a defect of the library; this process can no longer use scr")]
    Broken,
    #[error("SCR is disabled by SCR_ENABLE=0")]
    Disabled,
    #[error("the library cannot be started: {0}")]
    Environments(RankErrors),
    /// Without where it was set: that is the call, which every line names.
    #[error("{}", .0.causes())]
    Config(Box<ConfigError>),
    /// There is no communicator for a session.
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Session(Box<SessionError>),
    #[error("a defect of the library: {text}; please report it")]
    Panic { text: String },
    /// Any other failure, of which nobody asks more than this.
    #[error("{1}")]
    Said(Code, String),
}

impl Failure {
    /// An argument that is NULL.
    pub(crate) fn null(what: &str, wanted: &str) -> Self {
        Self::Said(Code::Argument, format!("`{what}` is NULL; it must point to {wanted}"))
    }

    /// An argument that does not end within so many bytes.
    pub(crate) fn too_long(what: &str, limit: usize) -> Self {
        let text =
            format!("`{what}` is longer than {limit} bytes, or its terminating null is missing; shorten it");
        Self::Said(Code::Argument, text)
    }

    /// Whether every rank has the very same failure, so that one of them reports it for all.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Failure::Session(error) => is_shared(error),
            // The settings of the first rank count for all.
            Failure::Disabled | Failure::Environments(_) | Failure::Config(_) => true,
            _ => false,
        }
    }

    /// Whether this rank alone has left a call of all ranks, which may wait for it.
    pub(crate) fn is_of_one(&self) -> bool {
        match self {
            Failure::Session(error) => matches!(**error, SessionError::Comm(_)),
            Failure::Panic { .. } => true,
            _ => false,
        }
    }

    /// The ranks that are known to have died, if that is the failure.
    pub(crate) fn deaths(&self) -> Option<&[Rank]> {
        match self {
            Failure::Comm(CommError::RanksDied { ranks }) => Some(ranks),
            Failure::Session(error) => match &**error {
                SessionError::Comm(CommError::RanksDied { ranks }) => Some(ranks),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number that the caller gets.
    pub(crate) fn code(&self) -> Code {
        match self {
            Failure::NotStarted | Failure::Refused | Failure::Ended => Code::State,
            Failure::Comm(CommError::Unfit { .. }) => Code::Argument,
            Failure::Comm(_) => Code::Mpi,
            Failure::Config(_) => Code::Config,
            Failure::Environments(_) => Code::Io,
            Failure::Session(error) => session_code(error),
            Failure::Broken | Failure::Panic { .. } => Code::Internal,
            Failure::Disabled => Code::Failure,
            Failure::Said(code, _) => *code,
        }
    }
}

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        match error {
            CollectiveError::Ranks(errors) => Failure::Environments(errors),
            CollectiveError::Comm(error) => SessionError::Comm(error).into(),
        }
    }
}

// Boxed, since the large ones are the rare ones.
impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::Config(Box::new(error))
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Failure::Session(Box::new(error))
    }
}

fn session_code(error: &SessionError) -> Code {
    match error {
        SessionError::State { .. } => Code::State,
        SessionError::Argument(_) => Code::Argument,
        SessionError::Files(_) | SessionError::Unread(_) => Code::Io,
        SessionError::Config(_) => Code::Config,
        SessionError::Comm(_) => Code::Mpi,
        // A failure on any rank or of the dataset itself, and variants that core may add.
        _ => Code::Failure,
    }
}

fn is_shared(error: &SessionError) -> bool {
    use SessionError::{Config, Disabled, Phase, Refused};
    matches!(error, Config { .. } | Disabled | Phase { .. } | Refused(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_value(name: &str) -> Option<i32> {
        let header = include_str!("../include/scr.h");
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")))?;
        line.split("/*").next()?.trim().trim_matches(['(', ')']).parse().ok()
    }

    #[test]
    fn the_header_and_the_library_agree_on_every_number() {
        let codes = [
            ("SCR_FAILURE", Code::Failure),
            ("SCR_ERR_STATE", Code::State),
            ("SCR_ERR_ARGUMENT", Code::Argument),
            ("SCR_ERR_CONFIG", Code::Config),
            ("SCR_ERR_IO", Code::Io),
            ("SCR_ERR_MPI", Code::Mpi),
            ("SCR_ERR_INTERNAL", Code::Internal),
        ];
        for (name, code) in codes {
            assert_eq!(header_value(name), Some(code as i32), "{name}");
        }
        assert_eq!(header_value("SCR_SUCCESS"), Some(SUCCESS));
        assert_eq!(header_value("SCR_MAX_FILENAME"), Some(MAX_FILENAME as i32));
    }

    #[test]
    fn the_header_gives_the_version_of_the_library() {
        let version = format!("#define SCR_VERSION \"{}\"", scr_base::VERSION);
        assert!(include_str!("../include/scr.h").contains(&version));
    }

    #[test]
    fn a_file_that_does_not_come_is_no_wrong_argument() {
        let unread = SessionError::Unread("ckpt.1/a has not come from another node".into());
        assert_eq!(Failure::from(unread).code(), Code::Io);
        let unknown = SessionError::Argument("`b' is not a file of `ckpt.1'".into());
        assert_eq!(Failure::from(unknown).code(), Code::Argument);
    }

    #[test]
    fn a_failure_says_what_to_do_about_it() {
        let null = Failure::null("flag", "an int");
        assert_eq!(null.to_string(), "`flag` is NULL; it must point to an int");
        assert_eq!(null.code(), Code::Argument);
    }
}
