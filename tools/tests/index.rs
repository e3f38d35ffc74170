//! `scr index` as users type it, on a prefix directory that C SCR wrote.

use std::path::Path;
use std::process::{Command, Output};

fn scr(prefix: &Path, arguments: &[&str]) -> Output {
    let scr = Command::new(env!("CARGO_BIN_EXE_scr"))
        .arg("index")
        .arg("--prefix")
        .arg(prefix)
        .args(arguments)
        .output();
    scr.expect("the command starts")
}

fn sample() -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    let hidden = folder.path().join(".scr");
    std::fs::create_dir(&hidden).expect("a hidden folder");
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr/xor-flush2/raw/prefix/.scr");
    std::fs::copy(fixture.join("index.scr"), hidden.join("index.scr")).expect("the sample");
    folder
}

fn listed(prefix: &Path) -> String {
    let listed = scr(prefix, &[]);
    assert_eq!(listed.status.code(), Some(0));
    String::from_utf8(listed.stdout).expect("text")
}

#[test]
fn the_datasets_that_c_scr_flushed_are_listed() {
    let prefix = sample();
    let table = "\
DSET VALID FLUSHED             CUR NAME
   4 YES   2026-11-21T03:28:24   * ckpt.4
   2 YES   2026-11-21T03:28:24     ckpt.2
";
    assert_eq!(listed(prefix.path()), table);
}

#[test]
fn another_checkpoint_becomes_the_current_one_and_a_dropped_one_is_gone() {
    let prefix = sample();
    assert_eq!(scr(prefix.path(), &["--current", "ckpt.2"]).status.code(), Some(0));
    assert!(listed(prefix.path()).contains("  * ckpt.2"));
    assert_eq!(scr(prefix.path(), &["--drop", "ckpt.4"]).status.code(), Some(0));
    assert!(!listed(prefix.path()).contains("ckpt.4"));
}

#[test]
fn a_name_that_is_not_there_is_told_and_changes_nothing() {
    let prefix = sample();
    let before = listed(prefix.path());
    let asked = scr(prefix.path(), &["--drop", "ckpt.9"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("no dataset named `ckpt.9'"));
    assert_eq!(listed(prefix.path()), before);
}

#[test]
fn a_damaged_index_is_an_error_that_names_the_file() {
    let prefix = sample();
    let path = prefix.path().join(".scr/index.scr");
    std::fs::write(&path, b"no index at all").expect("it can be damaged");
    let asked = scr(prefix.path(), &["--json"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("index.scr"));
}

#[test]
fn a_prefix_directory_that_is_not_there_is_an_error_that_names_it() {
    let nowhere = sample().path().join("nowhere");
    let asked = scr(&nowhere, &[]);
    assert_eq!((asked.status.code(), asked.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(String::from_utf8_lossy(&asked.stderr).contains(&nowhere.display().to_string()));
}
