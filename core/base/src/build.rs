//! The settings of a build: the defaults of a few parameters, the place of the system file, the kind of file locks.
//!
//! The Makefile has a variable for each, named as the option of C SCR's build. It passes the value to the compiler
//! with `SCR_BUILD_` before its name, so that the environment of a job never ends up in a library.

/// A default that the build replaces.
macro_rules! replaced {
    ($($id:ident = $name:literal;)*) => {
        $(pub const $id: Option<&str> = given(option_env!($name));)*
    };
}

replaced! {
    CNTL_BASE = "SCR_BUILD_CNTL_BASE";
    CACHE_BASE = "SCR_BUILD_CACHE_BASE";
    LOG_ENABLE = "SCR_BUILD_LOG_ENABLE";
    LOG_TXT_ENABLE = "SCR_BUILD_LOG_TXT_ENABLE";
    LOG_SYSLOG_ENABLE = "SCR_BUILD_LOG_SYSLOG_ENABLE";
    LOG_SYSLOG_FACILITY = "SCR_BUILD_LOG_SYSLOG_FACILITY";
    LOG_SYSLOG_LEVEL = "SCR_BUILD_LOG_SYSLOG_LEVEL";
    LOG_SYSLOG_PREFIX = "SCR_BUILD_LOG_SYSLOG_PREFIX";
    LOG_DB_ENABLE = "SCR_BUILD_LOG_DB_ENABLE";
}

/// The default of both bases, if the build does not replace it.
pub const LOCAL_BASE: &str = "/dev/shm";

/// The system file, where it is not `etc/scr.conf` of the installation.
pub const SYSTEM_FILE: Option<&str> = given(option_env!("SCR_BUILD_CONFIG_FILE"));

/// Which locks of the system guard files: `FLOCK`, `FCNTL` or `NONE`.
pub(crate) const FILE_LOCK: Option<&str> = given(option_env!("SCR_BUILD_FILE_LOCK"));

const fn given(set: Option<&'static str>) -> Option<&'static str> {
    match set {
        Some(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}
