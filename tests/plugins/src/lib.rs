//! Plugins for the tests of the plugin host: see the examples, each of which is a library of its own.

#![allow(clippy::unwrap_used, reason = "it serves tests only")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Path of the library of an example. They are built once per process, into the target folder of the caller.
///
/// # Panics
/// They cannot be built.
pub fn built(example: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build).join(format!("lib{example}.so"))
}

fn build() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", "scr-test-plugins", "--examples", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let mut files = messages
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|message| message["filenames"][0].as_str().map(PathBuf::from));
    let library = files.find(|file| file.ends_with("examples/libobedient.so")).unwrap();
    library.parent().unwrap().to_owned()
}

/// The manifest of a plugin, with the formats and the option of the example `obedient`.
pub fn manifest(name: &str, kind: &str, library: &str) -> String {
    format!(
        "name = \"{name}\"\nkind = \"{kind}\"\nversion = \"1.0\"\nabi = \"1.0\"\nlibrary = \"{library}\"\n\
         [format]\noldest = 2\nnewest = 3\n[[option]]\nname = \"PANIC\"\ntype = \"text\"\n"
    )
}
