//! Stands in for the session until it is there.
#![allow(dead_code, clippy::unnecessary_wraps, clippy::needless_pass_by_value, clippy::unused_self)]

use scr_core::comm::CommError;
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SessionError {
    #[error("{call} is not legal {now}; {hint}")]
    State { call: &'static str, now: &'static str, hint: &'static str },
    #[error("{what}")]
    Argument { what: String },
    #[error(transparent)]
    Files(#[from] scr_core::fs::FsError),
    #[error("the configuration cannot be used: {why}")]
    Config { why: String },
    #[error("disabled")]
    Disabled,
    #[error("{doing} failed: {why}")]
    Phase { doing: String, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("the ranks can no longer talk to each other")]
    Comm(#[from] CommError),
}
use scr_core::{
    env::Env,
    param::{AppConfig, Params},
};
pub(crate) struct MpiComm(u32);
impl MpiComm {
    pub(crate) fn of_world() -> Result<MpiComm, CommError> {
        Ok(MpiComm(crate::mpi_library::world_rank().unwrap_or(0) as u32))
    }
    pub(crate) fn rank(&self) -> scr_core::comm::Rank {
        scr_core::comm::Rank(self.0)
    }
}
#[derive(Clone, Copy)]
pub(crate) struct OutputFlags {
    pub(crate) checkpoint: bool,
    pub(crate) output: bool,
}
pub(crate) struct Session {
    phase: u8,
    params: Params,
}
type R<T> = Result<T, SessionError>;
impl Session {
    pub(crate) fn init(_: Box<MpiComm>, env: Env, app: &AppConfig) -> R<Session> {
        let raw = scr_core::param::RawSettings::load(&env, app);
        Ok(Session { phase: 0, params: Params::resolve(&raw, &env).0 })
    }
    fn idle(&self, phase: u8) -> R<()> {
        if self.phase == phase {
            Ok(())
        } else {
            Err(SessionError::State { call: "this", now: "now", hint: "later" })
        }
    }
    pub(crate) fn need_checkpoint(&mut self) -> R<bool> {
        self.idle(0).map(|()| true)
    }
    pub(crate) fn start_output(&mut self, name: Option<&[u8]>, _: OutputFlags) -> R<()> {
        self.idle(0)?;
        if name.is_some_and(<[u8]>::is_empty) {
            return Err(SessionError::Refused("empty".into()));
        }
        self.phase = 1;
        Ok(())
    }
    pub(crate) fn route_file(&mut self, name: &[u8]) -> R<Vec<u8>> {
        if self.phase > 0 {
            let path = std::path::PathBuf::from(String::from_utf8_lossy(name).into_owned());
            let _ = std::fs::create_dir_all(path.parent().unwrap());
        }
        Ok(name.to_vec())
    }
    pub(crate) fn complete_output(&mut self, valid: bool) -> R<()> {
        self.idle(1)?;
        self.phase = 0;
        if valid {
            Ok(())
        } else {
            Err(SessionError::Refused("invalid".into()))
        }
    }
    pub(crate) fn have_restart(&mut self) -> R<Option<Vec<u8>>> {
        self.idle(0).map(|()| None)
    }
    pub(crate) fn start_restart(&mut self) -> R<Vec<u8>> {
        Err(SessionError::Refused("none".into()))
    }
    pub(crate) fn complete_restart(&mut self, _: bool) -> R<()> {
        Err(SessionError::Refused("none".into()))
    }
    pub(crate) fn should_exit(&mut self) -> R<bool> {
        self.idle(0).map(|()| false)
    }
    pub(crate) fn current(&mut self, _: &[u8]) -> R<()> {
        Err(SessionError::Refused("no such dataset".into()))
    }
    pub(crate) fn drop_dataset(&mut self, _: &[u8]) -> R<()> {
        Err(SessionError::Refused("no such dataset".into()))
    }
    pub(crate) fn delete(&mut self, _: &[u8]) -> R<()> {
        Err(SessionError::Refused("no such dataset".into()))
    }
    pub(crate) fn exit_wanted(&self) -> Option<&str> {
        None
    }
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }
    pub(crate) fn finalize(self) -> R<()> {
        self.idle(0)
    }
}
