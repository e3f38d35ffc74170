//! Small commands of C SCR as scripts call them, on a prefix directory that C SCR wrote.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails where it cannot go on")]

mod answer;

use answer::{code, err, out};
use scr_core::fs::RealFiles;
use scr_core::prefix::{Halt, Nodes, Prefix};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr/xor-flush2/raw/prefix")
}

fn scr(prefix: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.env_clear().env("USER", "tester").current_dir(prefix).args(arguments).output().unwrap()
}

#[test]
fn a_file_is_printed_as_text() {
    let printed = scr(&fixture(), &["print", ".scr/index.scr"]);
    assert_eq!(code(&printed), 0, "{}", err(&printed));
    assert!(out(&printed).contains("ckpt.4") && out(&printed).contains("DSET"), "{}", out(&printed));
    let none = scr(&fixture(), &["print", ".scr/none.scr"]);
    assert_eq!((code(&none), err(&none).contains("there is no file .scr/none.scr")), (2, true));
    assert_eq!(code(&scr(&fixture(), &["print", ".scr/log"])), 2, "no such file");
}

#[test]
fn a_checksum_is_that_of_the_standard() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("digits"), b"123456789").unwrap();
    assert_eq!(out(&scr(folder.path(), &["crc32", "digits"])), "cbf43926\n");
    assert_eq!(code(&scr(folder.path(), &["crc32", "none"])), 2);
}

#[test]
fn the_nodes_of_the_last_run_and_the_directories_of_an_allocation_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().canonicalize().unwrap();
    assert_eq!(code(&scr(&prefix, &["nodes-file"])), 1);
    Prefix::new(&prefix).make_scr_dir(&RealFiles).unwrap();
    Nodes(4).write(&RealFiles, &Prefix::new(&prefix)).unwrap();
    assert_eq!(out(&scr(&prefix, &["nodes-file", "--dir", "."])), "4\n");
    std::fs::write(
        prefix.join(".scrconf"),
        "SCR_CNTL_BASE=/c\nSTORE=/ssd\nSTORE=/tmp/b ENABLED=0\nSTORE=/a\n",
    )
    .unwrap();
    let dirs = |arguments: &[&str]| out(&scr(&prefix, arguments));
    let cache = dirs(&["list-dir", "cache", "--jobid", "77"]);
    let expected = ["/a/tester/scr.77", "/ssd/tester/scr.77"];
    assert!(expected.iter().all(|dir| cache.split_whitespace().any(|found| found == *dir)), "{cache}");
    assert!(!cache.contains("/tmp/b"), "{cache}");
    let base = dirs(&["list-dir", "--base", "cache"]);
    assert!(base.split_whitespace().any(|found| found == "/ssd"), "{base}");
    let control = dirs(&["list-dir", "-u", "ann", "-j", "5", "control"]);
    assert!(control.ends_with("/ann/scr.5\n") && control.lines().count() == 1, "{control}");
}

#[test]
fn a_script_is_told_when_the_job_must_not_be_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = Prefix::new(folder.path());
    let go_on = scr(folder.path(), &["should-exit"]);
    assert_eq!((code(&go_on), out(&go_on).as_str()), (1, ""), "{}", err(&go_on));
    prefix.make_scr_dir(&RealFiles).unwrap();
    Halt::update(&RealFiles, &prefix, |halt| halt.exit_reason = Some("enough".to_owned())).unwrap();
    let stop = scr(folder.path(), &["should-exit"]);
    assert!(code(&stop) == 0 && out(&stop).contains("enough"), "{}", out(&stop));
    Halt::remove(&RealFiles, &prefix).unwrap();
    let mut late = Command::new(env!("CARGO_BIN_EXE_scr"));
    late.env_clear().env("USER", "tester").env("SCR_END_TIME", "1000").current_dir(folder.path());
    let late = late.arg("should-exit").output().unwrap();
    assert_eq!(code(&late), 0, "{}", err(&late));
}
