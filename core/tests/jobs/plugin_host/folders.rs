//! A folder of plugins for a test, and the world that a host sees.

use scr_base::env::{Clock, Env, Link, Output, Watch};
use scr_base::fs::RealFiles;
use scr_core::plugin::PluginHost;
pub(crate) use scr_test_plugins::{built, manifest as manifest_text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A folder that is gone when the test is.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        // The folder without links, so that paths in messages are the paths of the test.
        fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    /// Writes a file that only its owner may write, and the folders above it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        set_mode(&path, 0o644);
        path
    }

    /// A manifest `<name>.toml` for a scheme of that name in `folder`.
    pub(crate) fn manifest(&self, folder: &str, name: &str, library: &str) -> PathBuf {
        let text = manifest_text(name, "scheme", library);
        self.write(&format!("{folder}/{}.toml", name.to_lowercase()), text)
    }

    /// A copy of one of the test plugins.
    pub(crate) fn library(&self, place: &str, example: &str) -> PathBuf {
        self.write(place, fs::read(built(example)).unwrap())
    }

    pub(crate) fn host(&self, folders: &[&str]) -> PluginHost {
        let folders: Vec<_> = folders.iter().map(|name| self.path(name).display().to_string()).collect();
        PluginHost::new(&env(None), Some(&folders.join(":")))
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The world of this very user, with or without an installation.
pub(crate) fn env(install_dir: Option<PathBuf>) -> Env {
    Env {
        variables: BTreeMap::new(),
        current_dir: PathBuf::from("/"),
        host: "node0".to_owned(),
        user: "user1".to_owned(),
        uid: fs::metadata("/proc/self").unwrap().uid(),
        is_privileged: false,
        began: std::time::SystemTime::UNIX_EPOCH,
        processors: 1,
        install_dir,
        record_base: None,
        files: Arc::new(RealFiles),
        clock: Arc::new(Still),
        output: Arc::new(Silent),
        watch: Watch::default(),
        link: Link::InCalls,
    }
}

struct Still;

impl Clock for Still {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

struct Silent;

impl Output for Silent {
    fn info(&self, line: &str) {
        unreachable!("the host said {line}")
    }
    fn error(&self, line: &str) {
        unreachable!("the host said {line}")
    }
}
