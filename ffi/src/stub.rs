//! Stands in for the session until it is there.
#![allow(dead_code, clippy::unnecessary_wraps, clippy::needless_pass_by_value, clippy::unused_self)]

pub(crate) use scr_core::comm::{Comm, CommError};
#[derive(Debug, thiserror::Error)]
#[error("refused: {0}")]
pub(crate) struct SessionError(String);
#[derive(Debug, thiserror::Error)]
#[error("config")]
pub(crate) struct ConfigError;
#[derive(Default, Clone)]
pub(crate) struct AppConfig(std::collections::BTreeMap<String, String>);
impl AppConfig {
    pub(crate) fn apply(&mut self, line: &str) -> Result<Option<String>, ConfigError> {
        Ok(match line.split_once('=') {
            None => self.0.get(line).cloned(),
            Some((key, "")) => {
                self.0.remove(key);
                None
            }
            Some((key, value)) => {
                self.0.insert(key.into(), value.into());
                None
            }
        })
    }
}
pub(crate) struct Env {
    pub(crate) host: String,
}
impl Env {
    pub(crate) fn of_process(_: Option<std::path::PathBuf>) -> Env {
        Env { host: "localhost".into() }
    }
    pub(crate) fn variable(&self, _: &str) -> Option<&str> {
        None
    }
}
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
}
type R<T> = Result<T, SessionError>;
impl Session {
    pub(crate) fn init(_: Box<MpiComm>, _: Env, _: &AppConfig) -> R<Session> {
        Ok(Session { phase: 0 })
    }
    fn idle(&self, phase: u8) -> R<()> {
        if self.phase == phase {
            Ok(())
        } else {
            Err(SessionError(format!("phase {}", self.phase)))
        }
    }
    pub(crate) fn need_checkpoint(&mut self) -> R<bool> {
        self.idle(0).map(|()| true)
    }
    pub(crate) fn start_output(&mut self, name: Option<&[u8]>, _: OutputFlags) -> R<()> {
        self.idle(0)?;
        if name.is_some_and(<[u8]>::is_empty) {
            return Err(SessionError("empty".into()));
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
            Err(SessionError("invalid".into()))
        }
    }
    pub(crate) fn have_restart(&mut self) -> R<Option<Vec<u8>>> {
        self.idle(0).map(|()| None)
    }
    pub(crate) fn start_restart(&mut self) -> R<Vec<u8>> {
        Err(SessionError("none".into()))
    }
    pub(crate) fn complete_restart(&mut self, _: bool) -> R<()> {
        Err(SessionError("none".into()))
    }
    pub(crate) fn should_exit(&mut self) -> R<bool> {
        self.idle(0).map(|()| false)
    }
    pub(crate) fn current(&mut self, _: &[u8]) -> R<()> {
        Err(SessionError("no such dataset".into()))
    }
    pub(crate) fn drop_dataset(&mut self, _: &[u8]) -> R<()> {
        Err(SessionError("no such dataset".into()))
    }
    pub(crate) fn delete(&mut self, _: &[u8]) -> R<()> {
        Err(SessionError("no such dataset".into()))
    }
    pub(crate) fn exit_wanted(&self) -> Option<String> {
        None
    }
    pub(crate) fn finalize(self) -> R<()> {
        self.idle(0)
    }
}
