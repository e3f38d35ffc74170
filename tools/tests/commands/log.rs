//! `scr log` as users type it, on the text log of a prefix directory that C SCR wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr/xor-flush2/raw/prefix")
}

fn scr(prefix: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SCR_")) {
        command.env_remove(name);
    }
    command.env("COLUMNS", "1000");
    command.arg("log").arg("--prefix").arg(prefix).args(arguments).output().expect("the command starts")
}

fn said(prefix: &Path, arguments: &[&str]) -> String {
    let output = scr(prefix, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The names of what is listed.
fn names(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let listed = said(prefix, arguments);
    listed.lines().skip(1).filter_map(|line| Some(line.split_whitespace().nth(3)?.to_owned())).collect()
}

#[test]
fn all_that_c_scr_logged_is_listed_as_a_table() {
    let listed = said(&fixture(), &[]);
    let log = std::fs::read_to_string(fixture().join(".scr/log")).expect("the sample");
    assert_eq!(listed.lines().count(), log.lines().count() + 1);
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[0].starts_with("TIME                 JOB   HOST   WHAT"), "{listed}");
    assert!(lines[1].contains("  START  ") && lines[1].ends_with("  4 processes on 4 nodes"), "{listed}");
    let flush = lines.iter().find(|line| line.contains("FLUSH_SYNC")).expect("a flush");
    assert!(
        flush.contains(
            "  2     ckpt.2  7.31 ms  8.03 KiB  /dev/shm/peer/user1/scr.5132/scr.dataset.2 -> /pfs/"
        ),
        "{flush}"
    );
}

#[test]
fn filters_choose_by_dataset_event_job_moment_and_number() {
    let prefix = fixture();
    let flushed = ["FLUSH_START", "FLUSH_SUCCESS"];
    assert_eq!(
        names(&prefix, &["--dataset", "2", "--event", "flush_start", "--event", "FLUSH_SUCCESS"]),
        flushed
    );
    assert_eq!(names(&prefix, &["--dataset", "ckpt.2", "--event", "CHECKPOINT"]), ["CHECKPOINT"]);
    assert_eq!(names(&prefix, &["--job", "5132", "--last", "1"]), ["HALT"]);
    let all = names(&prefix, &[]).len();
    assert_eq!(names(&prefix, &["--since", "2026-11-21", "--until", "2026-11-21 03:28:25"]).len(), all);
    for none in [
        ["--until", "2026-11-21 03:28:24"],
        ["--since", "2026-11-22"],
        ["--event", "NOTHING"],
        ["--job", "1"],
    ] {
        let output = scr(&prefix, &none);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{none:?}");
    }
}

#[test]
fn json_holds_what_a_line_says_and_nothing_that_it_does_not() {
    let text = said(&fixture(), &["--json", "--event", "FLUSH_SYNC", "--dataset", "4"]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let entries = json["entries"].as_array().expect("a list");
    assert_eq!((json["version"].as_u64(), entries.len()), (Some(1), 1));
    let entry = &entries[0];
    assert_eq!((entry["kind"].as_str(), entry["job_id"].as_str()), (Some("transfer"), Some("5132")));
    assert_eq!((entry["dataset"].as_u64(), entry["bytes"].as_u64()), (Some(4), Some(8226)));
    assert_eq!(
        (entry["seconds"].as_f64(), entry["to"].as_str()),
        (Some(0.011714), Some("/pfs/user1/simulation123"))
    );
    assert!(entry.get("user").is_none() && entry.get("note").is_none(), "{entry}");
}

#[test]
fn malformed_lines_are_skipped_and_reported() {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    std::fs::create_dir(folder.path().join(".scr")).expect("a hidden folder");
    let text = "2026-11-21T03:28:24: host=n0, jobid=1, event=HALT\nnonsense\n2026-11-21T03:28:25: host=n0, jobid=1, eve";
    std::fs::write(folder.path().join(".scr/log"), text).expect("a log");
    let output = scr(folder.path(), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("2 lines skipped; the first is line 2: it does not begin with a time"),
        "{message}"
    );
}

#[test]
fn a_failure_gives_the_reason_and_a_remedy() {
    let empty = tempfile::TempDir::new().expect("a folder for the test");
    for (arguments, code, words) in [
        (&[][..], 1, "no job has written one"),
        (
            &["--since", "soon"],
            2,
            "--since cannot be understood: `soon' is no time; write a day (2026-11-21, yesterday)",
        ),
        (&["--since", "1h", "--until", "2h"], 2, "--since is 1 h after --until"),
        (&["--db"], 2, "set SCR_LOG_DB_HOST"),
    ] {
        let output = scr(empty.path(), arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
    let missing = scr(&empty.path().join("missing"), &[]);
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(2), "{message}");
    assert!(message.contains("there is no prefix directory "), "{message}");
}

#[test]
fn a_log_that_is_a_pipe_is_refused_and_not_waited_for() {
    let prefix = tempfile::tempdir().unwrap();
    std::fs::create_dir(prefix.path().join(".scr")).unwrap();
    let made = Command::new("mkfifo").arg(prefix.path().join(".scr/log")).status();
    assert!(made.is_ok_and(|status| status.success()));
    let output = scr(prefix.path(), &[]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("log is not a regular file"), "{output:?}");
}

#[test]
fn an_event_that_no_job_logs_gets_a_suggestion_and_no_match_says_how_many_were_compared() {
    let entries = std::fs::read_to_string(fixture().join(".scr/log")).expect("the sample").lines().count();
    let output = scr(&fixture(), &["--event", "FLUSH_FIAL"]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        warned.contains("no event and no transfer is called FLUSH_FIAL; did you mean FLUSH_FAIL?"),
        "{warned}"
    );
    assert!(warned.contains(&format!("none of {entries} entries matches")), "{warned}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let known = scr(&fixture(), &["--event", "flush_sync"]);
    assert_eq!((known.status.code(), known.stderr.len()), (Some(0), 0));
}
