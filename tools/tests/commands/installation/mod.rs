//! An installation with the command, the manifests and a system file, and a prefix directory beside it.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(crate) struct Installation {
    folder: TempDir,
}

impl Installation {
    pub(crate) fn with_system_file(text: &str) -> Self {
        let scr = Self { folder: TempDir::new().expect("a folder for the test") };
        scr.write("etc/scr.conf", text);
        scr.write("prefix/.scr/here", "");
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/plugins.d");
        fs::create_dir_all(scr.path("lib/scr/plugins")).expect("a folder");
        let library = scr_test_plugins::built("obedient");
        for entry in fs::read_dir(manifests).expect("the manifests").flatten() {
            let name = PathBuf::from("etc/scr/plugins.d").join(entry.file_name());
            scr.write(&name, fs::read_to_string(entry.path()).expect("a manifest"));
            // A plugin of another name, which nobody loads.
            let plugin = name.file_stem().expect("a name").to_string_lossy();
            let path = scr.path(format!("lib/scr/plugins/libscr_{plugin}.so"));
            fs::copy(&library, &path).expect("a copy");
        }
        let bin = scr.path("bin");
        fs::create_dir(&bin).expect("a folder for the command");
        put_command(&bin.join("scr"));
        // Folders and manifests that others may write are refused, and the umask may be anything.
        for folder in ["etc", "etc/scr", "etc/scr/plugins.d", "lib/scr/plugins"] {
            fs::set_permissions(scr.path(folder), fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        scr
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn system_file(&self) -> PathBuf {
        self.path("etc/scr.conf")
    }

    /// Makes a file that its owner alone may write, with the folders above it.
    pub(crate) fn write(&self, below: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        path
    }

    /// The command, run in the prefix directory without settings of whoever runs the test, and with long lines.
    pub(crate) fn in_prefix(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin/scr"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SCR_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.path("prefix")).env("COLUMNS", "1000");
        command
    }
}

/// Makes the command under another path: a second name where that can be had, as a copy takes its time. It is another process that
/// copies: one that this process starts at the same time would hold a file open that is being written, which nobody can run then.
pub(crate) fn put_command(path: &Path) {
    let program = Path::new(env!("CARGO_BIN_EXE_scr"));
    fs::hard_link(program, path).unwrap_or_else(|_| {
        let copied = Command::new("cp").arg(program).arg(path).status().expect("cp starts");
        assert!(copied.success(), "{}", path.display());
    });
}
