//! Plugins for the tests of the plugin host, and libraries that stand in for vendors': see the examples, each of which is a
//! library of its own.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "it serves tests only")]

pub mod staged;
pub mod standin;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the library of an example. They lie in `SCR_TESTS_EXAMPLES`, or are built once per process, into the target folder of
/// the caller.
///
/// # Panics
/// They cannot be built.
pub fn built(example: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("SCR_TESTS_EXAMPLES") {
            return folder.into();
        }
        let libraries = build(&["--package", "scr-test-plugins", "--examples"]);
        let library = libraries.iter().find(|file| file.ends_with("examples/libobedient.so"));
        library.and_then(|file| file.parent()).unwrap().to_owned()
    });
    folder.join(format!("lib{example}.so"))
}

/// The library of the vendor's scheme, from outside the workspace, and its manifest.
///
/// # Panics
/// It cannot be built.
pub fn vendor_scheme() -> (PathBuf, PathBuf) {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vendor-scheme");
    let library = LIBRARY.get_or_init(|| {
        let manifest = folder.join("Cargo.toml").display().to_string();
        // Its tests run in the workspace's target folder. What is built for them serves here: hence --tests.
        let target = built("obedient").ancestors().nth(3).unwrap().display().to_string();
        let libraries = build(&["--lib", "--tests", "--manifest-path", &manifest, "--target-dir", &target]);
        libraries.into_iter().find(|file| file.ends_with("libscr_mirror.so")).unwrap()
    });
    (library.clone(), folder.join("mirror.toml"))
}

/// Builds with these arguments, and gives the first file of everything that was built.
fn build(arguments: &[&str]) -> Vec<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--message-format", "json"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    messages.filter_map(|message| message["filenames"][0].as_str().map(PathBuf::from)).collect()
}

/// The manifest of a plugin, with the formats and the option of the example `obedient`.
pub fn manifest(name: &str, kind: &str, library: &str) -> String {
    format!(
        "name = \"{name}\"\nkind = \"{kind}\"\nversion = \"1.0\"\nabi = \"1.0\"\nlibrary = \"{library}\"\n\
         [format]\noldest = 2\nnewest = 3\n[[option]]\nname = \"PANIC\"\ntype = \"text\"\n"
    )
}
