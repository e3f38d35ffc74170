//! What a build can set: the defaults of a few parameters, the place of the system file, the kind of file locks.
//!
//! The Makefile has a variable for each, named as the option of C SCR's build, and hands it to the compiler with
//! `SCR_BUILD_` before its name: what a job's environment holds must not end up in a library.

use crate::param::Preset;

/// A default that a build can replace.
macro_rules! preset {
    ($name:literal, $default:literal) => {
        built(option_env!($name), $default)
    };
}

pub(crate) const CNTL_BASE: Preset = preset!("SCR_BUILD_CNTL_BASE", "/dev/shm");
pub(crate) const CACHE_BASE: Preset = preset!("SCR_BUILD_CACHE_BASE", "/dev/shm");
pub(crate) const LOG_ENABLE: Preset = preset!("SCR_BUILD_LOG_ENABLE", "0");
pub(crate) const LOG_TXT_ENABLE: Preset = preset!("SCR_BUILD_LOG_TXT_ENABLE", "1");
pub(crate) const LOG_SYSLOG_ENABLE: Preset = preset!("SCR_BUILD_LOG_SYSLOG_ENABLE", "1");
pub(crate) const LOG_SYSLOG_FACILITY: Preset = preset!("SCR_BUILD_LOG_SYSLOG_FACILITY", "LOG_LOCAL7");
pub(crate) const LOG_SYSLOG_LEVEL: Preset = preset!("SCR_BUILD_LOG_SYSLOG_LEVEL", "LOG_INFO");
pub(crate) const LOG_SYSLOG_PREFIX: Preset = preset!("SCR_BUILD_LOG_SYSLOG_PREFIX", "SCR");
pub(crate) const LOG_DB_ENABLE: Preset = preset!("SCR_BUILD_LOG_DB_ENABLE", "0");

/// The system file, where it is not `etc/scr.conf` of the installation.
pub(crate) const SYSTEM_FILE: Option<&str> = given(option_env!("SCR_BUILD_CONFIG_FILE"));

/// Which locks of the system guard files: `FLOCK`, `FCNTL` or `NONE`.
pub(crate) const FILE_LOCK: Option<&str> = given(option_env!("SCR_BUILD_FILE_LOCK"));

const fn built(set: Option<&'static str>, default: &'static str) -> Preset {
    match given(set) {
        Some(text) => Preset::Built(text),
        None => Preset::Text(default),
    }
}

const fn given(set: Option<&'static str>) -> Option<&'static str> {
    match set {
        Some(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_build_says_goes_before_the_default_and_nothing_is_no_word() {
        assert_eq!(built(Some("/ssd"), "/dev/shm"), Preset::Built("/ssd"));
        assert_eq!(built(Some(""), "/dev/shm"), Preset::Text("/dev/shm"));
        assert_eq!(built(None, "/dev/shm"), Preset::Text("/dev/shm"));
    }
}
