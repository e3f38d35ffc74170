//! `scr index` as users type it, on a prefix directory that C SCR wrote.

use crate::finished_job::FinishedJob;
use scr_base::fs::RealFiles;
use scr_prefix::ledger::{LedgerDir, Request};
use scr_prefix::{DatasetDescriptor, FlushFile, InCache, Index, Location, Prefix};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::path::Path;
use std::process::{Command, Output};
use std::rc::Rc;

fn scr(prefix: &Path, arguments: &[&str]) -> Output {
    let scr = Command::new(env!("CARGO_BIN_EXE_scr"))
        .arg("index")
        .arg("--prefix")
        .arg(prefix)
        .args(arguments)
        .env("TZ", "UTC")
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
    let prefix = whole_sample();
    let table = "\
DSET VALID FLUSHED             RANKS       SIZE WRITTEN          CUR NAME
   4 YES   2026-11-21T03:28:24         8.03 KiB 2026-11-21 03:28   * ckpt.4
   3 -     only in cache               8.03 KiB 2026-11-21 03:28     ckpt.3
   2 YES   2026-11-21T03:28:24         8.03 KiB 2026-11-21 03:28     ckpt.2
";
    assert_eq!(listed(prefix.path()), table);
}

#[test]
fn another_checkpoint_becomes_the_current_one_and_a_dropped_one_is_gone() {
    let prefix = sample();
    let said = |arguments: [&str; 2]| {
        let output = scr(prefix.path(), &arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(said(["--current", "ckpt.2"]), (Some(0), "current is now `ckpt.2'\n".to_owned()));
    assert!(listed(prefix.path()).contains("  * ckpt.2"));
    assert_eq!(said(["--drop", "ckpt.4"]), (Some(0), "dropped `ckpt.4'\n".to_owned()));
    assert_eq!(said(["--drop", "ckpt.4"]), (Some(1), String::new()));
    assert!(!listed(prefix.path()).contains("ckpt.4"));
}

#[test]
fn the_options_have_the_letters_of_c_scr() {
    let prefix = sample();
    let path = prefix.path().to_str().expect("it is text");
    let index = |arguments: &[&str]| {
        let mut scr = Command::new(env!("CARGO_BIN_EXE_scr"));
        scr.arg("index").args(arguments).env("TZ", "UTC").output().expect("the command starts")
    };
    assert_eq!(index(&["-l", "-p", path]).stdout, listed(prefix.path()).as_bytes());
    assert_eq!(index(&["-p", path, "-c", "ckpt.2"]).status.code(), Some(0));
    assert!(listed(prefix.path()).contains("  * ckpt.2"));
    assert_eq!(index(&["-p", path, "-b", "9"]).status.code(), Some(1));
    assert_eq!(index(&["-p", path, "-a", "ckpt.9"]).status.code(), Some(1));
    assert_eq!(index(&["-d", "ckpt.2", "-p", path]).status.code(), Some(0));
    assert!(!listed(prefix.path()).contains("ckpt.2"));
}

#[test]
fn all_datasets_that_are_newer_than_one_are_dropped() {
    let prefix = sample();
    assert_eq!(scr(prefix.path(), &["--drop-after", "ckpt.3"]).status.code(), Some(1), "it is not there");
    let dropped = scr(prefix.path(), &["--drop-after", "ckpt.2"]);
    assert_eq!((dropped.status.code(), &*dropped.stdout), (Some(0), &b"dropped `ckpt.4'\n"[..]));
    assert_eq!(listed(prefix.path()).matches("ckpt.").count(), 1);
    let again = scr(prefix.path(), &["--drop-after", "ckpt.2", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&again.stdout).expect("it is JSON");
    assert_eq!((again.status.code(), &json["found"]), (Some(0), &true.into()));
    assert_eq!(json["dropped"], serde_json::json!([]));
}

/// The command said that there was no dataset, and the user started the job from the beginning.
#[test]
fn a_checkpoint_that_a_dead_job_has_only_in_cache_is_listed() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_JOB_ID", "77")]);
    let output = scr(&job.prefix(), &[]);
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = text.lines().nth(1).unwrap_or_default();
    assert!(
        line.starts_with("   1 -     only in cache           2   1.95 KiB ") && line.ends_with("     ckpt.1"),
        "{text}"
    );
    assert!(
        said.contains(
            "`ckpt.1' lies only in the cache of allocation 77: unless too many of the nodes are lost, which `scr inspect' there \
             finds out, a job there with as many ranks (2) restarts from it, and `scr postrun' there copies it"
        ),
        "{said}"
    );
    // They said that there was none.
    for arguments in [["--current", "ckpt.1"], ["--drop-after", "ckpt.1"]] {
        let (code, text) = run(&job.prefix(), &arguments);
        let is_said = text.contains("does not list it yet: `ckpt.1' lies only in the cache of allocation 77");
        assert_eq!((code, is_said), (Some(1), true), "{text}");
        assert!(text.contains("`scr postrun' there copies it"), "{text}");
    }
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let json = scr(&job.prefix(), &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let facts = ["valid", "in_index", "in_cache", "job_id", "ranks", "files", "bytes"]
        .map(|key| json["datasets"][0][key].clone());
    assert_eq!(
        serde_json::Value::from(facts.to_vec()),
        serde_json::json!([false, false, true, "77", 2, 2, 2000])
    );
    FlushFile::update(&RealFiles, &prefix, |flush| {
        let listed = flush.entry(1).expect("it is listed");
        let refused = InCache { damage: Some("the application could not".to_owned()), ..listed.in_cache };
        flush.record_in_cache(&listed.dataset, &refused);
    })
    .expect("it can be written");
    let output = scr(&job.prefix(), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("and no run restarts from it: the application could not"), "{said}");
    assert!(!said.contains("ranks there restarts from it"), "{said}");
}

/// It was called "only in cache".
#[test]
fn a_checkpoint_that_was_flushed_and_refused_is_in_both_places() {
    let job = FinishedJob::new();
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let seq =
        FlushFile::read(&RealFiles, &prefix).expect("it can be read").entry(1).expect("it is there").seq();
    let refuse = Request::Refuse { seq, is_listed: true, alone: None, now: "2026-11-22T00:00:00" };
    LedgerDir::new(&RealFiles, &prefix).transact(&refuse).expect("it can be refused");
    let (code, text) = run(&job.prefix(), &[]);
    assert!(code == Some(0) && text.contains("\n   1 NO ") && !text.contains("only in"), "{text}");
    let (_, json) = run(&job.prefix(), &["--json"]);
    assert!(json.contains("\"in_index\": true") && json.contains("\"in_cache\": true"), "{json}");
}

#[test]
fn a_deleted_dataset_takes_its_files_with_it_and_a_forgotten_one_leaves_them() {
    let job = FinishedJob::new();
    let file = job.prefix().join("ckpt.1/rank_0");
    assert_eq!(scr(&job.prefix(), &["--delete", "ckpt.9"]).status.code(), Some(1), "it is not there");
    assert!(file.exists());
    let forgotten = scr(&job.prefix(), &["--forget-all"]);
    assert_eq!((forgotten.status.code(), &*forgotten.stdout), (Some(0), &b"dropped `ckpt.1'\n"[..]));
    assert!(file.exists() && !listed(&job.prefix()).contains("ckpt.1"));
    assert_eq!(scr(&job.prefix(), &["--add", "ckpt.1"]).status.code(), Some(0));
    let deleted = scr(&job.prefix(), &["--delete", "ckpt.1"]);
    assert_eq!(
        (deleted.status.code(), &*deleted.stdout),
        (Some(0), &b"deleted `ckpt.1' with its files\n"[..])
    );
    assert!(
        !file.exists()
            && !job.prefix().join("ckpt.1").exists()
            && !job.prefix().join(".scr/scr.dataset.1").exists()
    );
    assert_eq!(listed(&job.prefix()), "");
    assert_eq!(scr(&job.prefix(), &["--delete", "ckpt.1"]).status.code(), Some(1), "it is gone");
}

#[test]
fn a_dataset_that_is_in_cache_as_well_can_be_deleted() {
    let job = FinishedJob::new();
    let deleted = scr(&job.prefix(), &["--delete", "ckpt.1"]);
    let said = String::from_utf8_lossy(&deleted.stderr);
    assert!(
        said.contains("dataset 1 `ckpt.1' is in cache as well: no run restarts from that copy")
            && !said.contains("to keep"),
        "{said}"
    );
    assert!(!job.prefix().join("ckpt.1").exists());
    assert_eq!(listed(&job.prefix()), "", "it is not listed as in cache");
}

/// The entry stayed for good, every later `scr postrun` ended with 1, and no command removed it.
#[test]
fn lost_output_of_an_allocation_that_has_ended_can_be_dropped_and_postrun_is_content() {
    let prefix = sample();
    let folder = Prefix::new(prefix.path());
    let (name, job_id) = (b"plot.9".to_vec(), "7".to_owned());
    let output = DatasetDescriptor { id: 9, name, job_id, output: true, ..Default::default() };
    let listed = DatasetDescriptor { id: 4, name: b"ckpt.4".to_vec(), ..output.clone() };
    FlushFile::update(&RealFiles, &folder, |flush| {
        flush.record(&output, Location::Cache);
        flush.record(&listed, Location::Prefix);
    })
    .expect("it can");
    let postrun = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
        command.env("SCR_PREFIX", prefix.path()).env("SCR_JOB_ID", "8");
        let ended = command.arg("postrun").output().expect("the command starts");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (code, text) = postrun();
    assert_eq!((code, text.contains("forgets it")), (Some(1), true), "{text}");
    let dropped = scr(prefix.path(), &["--drop", "plot.9"]);
    let said = String::from_utf8_lossy(&dropped.stderr);
    assert_eq!(dropped.status.code(), Some(0));
    assert!(
        said.contains("in cache as well: no run restarts from that copy") && said.contains("scr copy --id 9"),
        "{said}"
    );
    assert_eq!(scr(prefix.path(), &["--drop", "plot.9"]).status.code(), Some(1), "it is gone");
    assert_eq!(postrun().0, Some(0));
    // One that is dropped is not saved again from a cache that still has it.
    assert_eq!(scr(prefix.path(), &["--drop", "ckpt.4"]).status.code(), Some(0));
    let flush = FlushFile::read(&RealFiles, &folder).expect("it can be read");
    assert_eq!(flush.entries(), []);
}

/// It counted as saved for ever, so that an older checkpoint, from which the job had continued, was lost with its nodes.
#[test]
fn a_checkpoint_that_the_index_has_no_more_does_not_count_as_saved() {
    let losses: [fn(&mut Index) -> bool; 3] = [
        |index| index.mark_failed(4, "2026-11-22T00:00:00"),
        |index| index.set_complete(4, false),
        |index| !index.drop_name("ckpt.4").is_empty(),
    ];
    for lose in losses {
        let prefix = sample();
        let folder = Prefix::new(prefix.path());
        for (id, location) in [(4, Location::Prefix), (3, Location::Cache)] {
            let (name, job_id) = (format!("ckpt.{id}").into_bytes(), "8".to_owned());
            let dataset = DatasetDescriptor { id, name, job_id, checkpoint: true, ..Default::default() };
            FlushFile::update(&RealFiles, &folder, |flush| flush.record(&dataset, location)).expect("it can");
        }
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
            let base = prefix.path().join("node");
            command.env("SCR_CACHE_BASE", &base).env("SCR_CNTL_BASE", &base);
            command.env("SCR_PREFIX", prefix.path()).env("SCR_JOB_ID", "8");
            let ended = command.args(arguments).output().expect("the command starts");
            let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
            (ended.status.code(), text.into_owned())
        };
        let latest = ["flush-file", "--latest"];
        assert_eq!((ask(&latest).1.as_str(), ask(&["postrun"]).0), ("4\n", Some(0)));
        let (name, job_id) = (b"ckpt.4".to_vec(), "7".to_owned());
        let other = DatasetDescriptor { id: 4, run: 1, name, job_id, checkpoint: true, ..Default::default() };
        FlushFile::update(&RealFiles, &folder, |flush| flush.record(&other, Location::Prefix))
            .expect("it can");
        let (code, text) = ask(&["postrun"]);
        let said = "a run of another allocation has gone on from a checkpoint before dataset 3 `ckpt.3'";
        assert_eq!((code, text.contains(said)), (Some(1), true), "{text}");
        Index::update(&RealFiles, &folder, lose).expect("it can");
        assert_eq!(ask(&latest).1, "3\n");
        // The letters are those of C SCR.
        let here = prefix.path().to_str().expect("it is text");
        let answers: [(&[&str], &str); 5] = [
            (&["-l"], "3\n"),
            (&["-L", "3"], "CACHE\n"),
            (&["-s", "3"], "ckpt.3\n"),
            (&["-n", "3", "-d", here], ""),
            (&["-c", "-b", "4"], "3\n"),
        ];
        for (letters, answer) in answers {
            let asked = ask(&[&["flush-file"], letters].concat());
            assert_eq!(asked, (Some(0), answer.to_owned()), "{letters:?}");
        }
        assert_eq!(ask(&["flush-file", "--id", "4"]).0, Some(1));
        let (code, text) = ask(&["postrun"]);
        assert_eq!((code, text.contains("dataset 3 `ckpt.3' is in cache only")), (Some(1), true), "{text}");
    }
}

/// It was made the current one without a word, and the job restarted from another.
#[test]
fn a_warning_says_that_a_job_will_not_use_the_current_dataset() {
    let prefix = sample();
    let folder = Prefix::new(prefix.path());
    Index::update(&RealFiles, &folder, |index| index.mark_failed(2, "2026-11-22T00:00:00")).expect("it can");
    let (code, text) = run(prefix.path(), &["--current", "ckpt.2"]);
    assert_eq!((code, text.contains("a job passes over `ckpt.2'")), (Some(0), true), "{text}");
    assert!(listed(prefix.path())
        .lines()
        .any(|line| line.starts_with("   2 NO ") && line.ends_with("  * ckpt.2")));
    assert_eq!(run(prefix.path(), &["--current", "ckpt.4"]), (Some(0), "current is now `ckpt.4'\n".into()));
}

/// Both were shown with a star. Their files are not there.
#[test]
fn of_two_datasets_with_one_name_only_the_newer_is_listed_as_current() {
    let prefix = sample();
    let folder = Prefix::new(prefix.path());
    let again = DatasetDescriptor { id: 7, name: b"ckpt.4".to_vec(), checkpoint: true, ..Default::default() };
    Index::update(&RealFiles, &folder, |index| index.record(&again, true)).expect("it can");
    let table = "\
DSET VALID FLUSHED             RANKS       SIZE WRITTEN          CUR NAME
   7 NO                                                            * ckpt.4
   2 NO    2026-11-21T03:28:24         8.03 KiB 2026-11-21 03:28     ckpt.2
";
    assert_eq!(listed(prefix.path()), table);
    let (_, json) = run(prefix.path(), &["--json"]);
    assert_eq!(json.matches("\"current\": true").count(), 1, "{json}");
}

#[test]
fn a_missing_name_is_reported_and_changes_nothing() {
    let prefix = sample();
    let before = listed(prefix.path());
    let asked = scr(prefix.path(), &["--drop", "ckpt.9"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("no dataset named `ckpt.9'"));
    assert_eq!(listed(prefix.path()), before);
}

/// The folder for the lock was missed, and not the dataset.
#[test]
fn an_unknown_name_is_reported_even_if_no_job_has_run() {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    for option in ["--drop", "--current"] {
        let asked = scr(folder.path(), &[option, "ckpt.9"]);
        let run = String::from_utf8_lossy(&asked.stderr);
        assert!(
            asked.status.code() == Some(1) && run.contains("no dataset named `ckpt.9'"),
            "{option}: {run}"
        );
    }
    assert!(!folder.path().join(".scr").exists());
}

/// It said that somebody should move it away, and a job began from nothing meanwhile.
#[test]
fn a_damaged_index_is_kept_beside_a_new_one_of_all_complete_datasets() {
    let prefix = whole_sample();
    let path = prefix.path().join(".scr/index.scr");
    let names = |asked: &std::process::Output| {
        let said: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("it is JSON");
        let datasets = said["datasets"].as_array().expect("a list").clone();
        datasets.iter().map(|dataset| dataset["name"].clone()).collect::<Vec<_>>()
    };
    let before = names(&scr(prefix.path(), &["--json"]));
    assert!(!before.is_empty());
    std::fs::write(&path, b"no index at all").expect("it can be damaged");
    // A command that only looks says who mends it.
    let mut status = Command::new(env!("CARGO_BIN_EXE_scr"));
    let looked =
        status.args(["status", "--offline"]).arg(prefix.path()).output().expect("the command starts");
    let said =
        String::from_utf8_lossy(&looked.stderr).into_owned() + &String::from_utf8_lossy(&looked.stdout);
    assert!(said.contains("`scr index', or the next run, puts a new one in its place"), "{said}");
    let asked = scr(prefix.path(), &["--json"]);
    assert_eq!((asked.status.code(), names(&asked)), (Some(0), before));
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(said.contains("index.scr is damaged") && said.contains("index.scr.damaged.1"), "{said}");
    assert!(!said.contains("next run") && !said.contains("--build"), "it is mended: {said}");
    let kept = std::fs::read(path.with_file_name("index.scr.damaged.1"));
    assert_eq!(kept.expect("it is kept"), b"no index at all");
    let again = scr(prefix.path(), &[]);
    assert!(!String::from_utf8_lossy(&again.stderr).contains("damaged"));
}

#[test]
fn a_prefix_directory_that_is_not_there_is_an_error_that_names_it() {
    let nowhere = sample().path().join("nowhere");
    let asked = scr(&nowhere, &[]);
    assert_eq!((asked.status.code(), asked.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(String::from_utf8_lossy(&asked.stderr).contains(&nowhere.display().to_string()));
}

/// A prefix directory of C SCR with all its files.
fn whole_sample() -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr/xor-flush2/raw/prefix");
    copy_folder(&fixture, folder.path());
    folder
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder for the copy");
    for entry in std::fs::read_dir(from).expect("the folder is there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::write(target, std::fs::read(entry.path()).expect("it can be read"))
                .expect("it can be copied");
        }
    }
}

/// Its text and its exit code.
fn run(prefix: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = scr(prefix, arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_dataset_that_was_dropped_is_added_again_and_one_that_is_listed_stays_as_it_is() {
    let prefix = whole_sample();
    let prefix = prefix.path();
    assert_eq!(run(prefix, &["--remove", "ckpt.2"]).0, Some(0));
    let (code, text) = run(prefix, &["--add", "ckpt.2"]);
    assert_eq!(
        (code, text.contains("dataset 2 `ckpt.2' is listed; it is unverified")),
        (Some(0), true),
        "{text}"
    );
    assert!(listed(prefix).lines().any(|line| line.starts_with("   2 YES") && line.ends_with(" ckpt.2")));
    let (code, text) = run(prefix, &["--add", &prefix.join("ckpt.2/").display().to_string()]);
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "dataset 2 `ckpt.2' is complete already, nothing was done\n")
    );
    let (code, text) = run(prefix, &["--add", "ckpt.9"]);
    assert_eq!((code, text.contains("that of a dataset named `ckpt.9'")), (Some(1), true), "{text}");
    // One that has changed since leaves the index as it was.
    assert_eq!(run(prefix, &["--drop", "ckpt.2"]).0, Some(0));
    let before = listed(prefix);
    std::fs::write(prefix.join("ckpt.2/rank_1.ckpt"), "changed").expect("it can be written");
    let (code, text) = run(prefix, &["--add", "ckpt.2"]);
    assert_eq!((code, text.contains("`ckpt.2' is not complete")), (Some(1), true), "{text}");
    assert_eq!(listed(prefix), before);
}

#[test]
fn an_index_that_is_lost_is_built_from_what_is_known_of_the_datasets() {
    let prefix = whole_sample();
    let prefix = prefix.path();
    std::fs::remove_file(prefix.join(".scr/index.scr")).expect("it is there");
    assert_eq!(run(prefix, &["--build"]).0, Some(0));
    let text = listed(prefix);
    assert!(text.contains("   4 YES") && text.contains("   2 YES"), "{text}");
    let (code, text) = run(prefix, &["--build", "--json"]);
    assert_eq!((code, text.matches("\"outcome\": \"already\"").count()), (Some(0), 2), "{text}");
}

/// It came back with the others, also where a run of ours had found it first.
#[test]
fn a_dataset_that_was_dropped_is_listed_again_by_its_number_or_name_only() {
    for runs in 0..3 {
        let folder = whole_sample();
        let prefix = folder.path();
        for _ in 0..runs {
            LedgerDir::new(&RealFiles, &Prefix::new(prefix)).begin_run(1).expect("it can begin");
        }
        let drops_it = || assert_eq!(run(prefix, &["--drop", "ckpt.4"]).0, Some(0));
        let leaves_it_out = || {
            let (code, text) = run(prefix, &["--build"]);
            let is_said = text.contains("dataset 4 `ckpt.4' was dropped") && text.contains("--build 4'");
            assert_eq!((code, is_said), (Some(0), true), "{runs}: {text}");
            let text = listed(prefix);
            assert!(text.contains("ckpt.2") && !text.contains("ckpt.4"), "{runs}: {text}");
        };
        drops_it();
        leaves_it_out();
        assert_eq!(run(prefix, &["--build", "4"]).0, Some(0));
        assert!(listed(prefix).contains("ckpt.4"));
        drops_it();
        std::fs::remove_file(prefix.join(".scr/index.scr")).expect("it is there");
        leaves_it_out();
    }
}

#[test]
fn a_summary_that_is_lost_is_written_again_as_it_was() {
    let prefix = whole_sample();
    let summary = prefix.path().join(".scr/scr.dataset.4/summary.scr");
    let before = std::fs::read(&summary).expect("it is there");
    std::fs::remove_file(&summary).expect("it is there");
    assert_eq!(run(prefix.path(), &["--build", "4"]).0, Some(0));
    assert_eq!(std::fs::read(&summary).expect("it is there again"), before);
}

#[test]
fn an_incomplete_or_replaced_dataset_is_reported_and_not_listed_as_complete() {
    let prefix = whole_sample();
    let prefix = prefix.path();
    // A missing one would be made anew at once, with all that says that it is complete.
    Index::update(&RealFiles, &Prefix::new(prefix), |index| *index = Index::new()).expect("it can");
    std::fs::remove_file(prefix.join("ckpt.2/rank_1.ckpt")).expect("it is there");
    let (code, text) = run(prefix, &["--build", "2"]);
    assert_eq!((code, text.contains("ckpt.2/rank_1.ckpt is missing")), (Some(1), true), "{text}");
    // A newer dataset has used the same names, and without checksums nobody knows whose the files are.
    copy_folder(&prefix.join(".scr/scr.dataset.4"), &prefix.join(".scr/scr.dataset.9"));
    let (code, text) = run(prefix, &["--build", "4"]);
    assert_eq!(
        (code, text.contains("dataset 9, which is newer, may have replaced ckpt.4/")),
        (Some(1), true),
        "{text}"
    );
    let text = listed(prefix);
    assert!(text.contains("   4 -     only in cache ") && text.contains("   2 NO "), "{text}");
    let (code, text) = run(prefix, &["--build", "77"]);
    assert_eq!(
        (code, text.contains("scr.dataset.77 is not there; save it with `scr copy'")),
        (Some(1), true),
        "{text}"
    );
}

#[test]
fn commands_at_once_beside_a_job_that_flushes_lose_no_entry() {
    let prefix = sample();
    let folder = Prefix::new(prefix.path());
    let record = |id: u64| {
        let name = format!("ckpt.{id}").into_bytes();
        let dataset = DatasetDescriptor { id, name, checkpoint: true, ..Default::default() };
        Index::update(&RealFiles, &folder, |index| index.record(&dataset, true)).expect("it can be recorded");
    };
    (10..26).for_each(record);
    let drop = |id: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
        command.args(["index", "--drop", &format!("ckpt.{id}"), "--prefix"]).arg(prefix.path());
        command.spawn().expect("the command starts")
    };
    let commands: Vec<_> = (10..26).step_by(2).map(drop).collect();
    (30..46).for_each(record);
    for mut command in commands {
        assert!(command.wait().expect("it ends").success());
    }
    let index = Index::read(&RealFiles, &folder).expect("it is there");
    let mut ids: Vec<u64> = index.entries().iter().map(|entry| entry.id).collect();
    ids.reverse();
    let expected: Vec<u64> = [2, 4].into_iter().chain((11..26).step_by(2)).chain(30..46).collect();
    assert_eq!(ids, expected);
}

#[test]
fn an_unused_folder_and_an_empty_index_are_reported() {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    let (code, text) = run(folder.path(), &[]);
    assert_eq!((code, text.contains("has no folder .scr: no job has used it")), (Some(0), true), "{text}");
    let prefix = sample();
    for name in ["ckpt.2", "ckpt.4"] {
        assert_eq!(scr(prefix.path(), &["--drop", name]).status.code(), Some(0));
    }
    let (code, text) = run(prefix.path(), &[]);
    assert_eq!((code, text.contains("lists no dataset")), (Some(0), true), "{text}");
    assert!(!text.contains("DSET"), "{text}");
}

#[test]
fn files_that_were_not_written_through_scr_become_a_dataset() {
    let prefix = sample();
    let write = |name: &str| std::fs::write(prefix.path().join(name), name).expect("it can be written");
    (0..12).map(|rank| format!("step.{rank}")).for_each(|name| write(&name));
    let (code, text) = run(prefix.path(), &["--import", "restart.5", "--ranks", "12", "step.%d"]);
    let expected =
        "dataset 5 `restart.5' is listed: 12 ranks, 12 files, 74 bytes; the next job restarts from it\n";
    assert_eq!((code, text.as_str()), (Some(0), expected));
    assert!(listed(prefix.path()).lines().any(|line| line.starts_with("   5 YES")
        && line.contains("   12   74 bytes ")
        && line.ends_with("* restart.5")));
    write("result");
    let (code, text) = run(prefix.path(), &["--import", "out", "--output", "result", "--json"]);
    assert!(code == Some(0) && text.contains("\"id\": 6") && text.contains("\"ranks\": 1"), "{text}");
    assert!(listed(prefix.path()).contains("* restart.5"), "output is nothing to restart from");
}

#[test]
fn an_import_that_would_leave_files_out_or_mix_ranks_up_is_refused() {
    let prefix = sample();
    let names: Vec<String> = (0..12).map(|rank| format!("step.{rank}")).collect();
    names.iter().for_each(|name| std::fs::write(prefix.path().join(name), name).expect("it can be written"));
    let before = listed(prefix.path());
    let mut by_letters: Vec<&str> = names.iter().map(String::as_str).collect();
    by_letters.sort_unstable();
    for (words, reason) in [
        (&["--ranks", "4", "step.%d"][..], "step.4 is there too, and --ranks 4 leaves it out"),
        (&["--ranks", "13", "step.%d"], "step.12 is missing"),
        // It looked at every name, took half a minute, and named another one.
        (&["--ranks", "1000000", "step.%d"], "step.12 is missing"),
        (&["--ranks", "2", "step.0", "step.1", "step.2"], "3 files cannot be shared out to 2 ranks"),
        (&by_letters, "`step.11' comes before `step.2', as in the order of a shell"),
        (&["/etc/hostname"], "/etc/hostname is outside the prefix directory"),
        (&[], "required"),
    ] {
        let (code, text) = run(prefix.path(), &[&["--import", "x"], words].concat());
        assert!(code == Some(2) && text.contains(reason), "{words:?}: {text}");
    }
    let (code, text) = run(prefix.path(), &["--import", "ckpt.4", "step.0"]);
    assert!(code == Some(2) && text.contains("`ckpt.4' is that of dataset 4"), "{text}");
    let (code, text) = run(prefix.path(), &["step.0"]);
    assert!(code == Some(2) && text.contains("--import"), "{text}");
    assert_eq!(listed(prefix.path()), before);
}

/// It was taken out of the flush file first, and `scr postrun` did not save what stayed listed.
#[test]
fn a_dataset_that_cannot_be_dropped_is_still_to_be_saved() {
    let prefix = sample();
    let folder = Prefix::new(prefix.path());
    let output = DatasetDescriptor { id: 9, name: b"plot.9".to_vec(), output: true, ..Default::default() };
    FlushFile::update(&RealFiles, &folder, |flush| flush.record(&output, Location::Cache)).expect("it can");
    let before = std::fs::read(folder.flush_file()).expect("it is there");
    // An index of a later release.
    let mut index = Index::read(&RealFiles, &folder).expect("it is there").tree().clone();
    index.set("VERSION", 3);
    std::fs::write(folder.index_file(), index.to_file_bytes()).expect("it is ours");
    assert_eq!(scr(prefix.path(), &["--drop", "plot.9"]).status.code(), Some(2));
    assert_eq!(std::fs::read(folder.flush_file()).expect("it is there"), before);
}

#[test]
fn the_files_of_containers_are_written_out_under_their_names() {
    let site = tempfile::TempDir::new().expect("a folder for the test");
    let base = site.path().join("nodes/$SCR_NODE_NAME").display().to_string();
    let conf = site.path().join("scr.conf");
    std::fs::write(&conf, format!("STORE={base} COUNT=1 AGGREGATE=1\n")).expect("settings");
    let job = FinishedJob::with_settings(&[
        ("SCR_FLUSH", "1"),
        ("SCR_CACHE_BASE", &base),
        ("SCR_CONF_FILE", &conf.display().to_string()),
    ]);
    let prefix = job.prefix();
    let files = [0, 1].map(|rank| prefix.join(format!("ckpt.1/rank_{rank}")));
    assert!(!files[0].exists() && !files[1].exists());
    assert_eq!(scr(&prefix, &["--extract", "ckpt.2"]).status.code(), Some(1));
    for there in ["", "; 2 of them were there before"] {
        let done = scr(&prefix, &["--extract", "ckpt.1"]);
        let expected = format!("dataset 1 `ckpt.1' lies under its names: 2 files, 1.95 KiB{there}\n");
        assert_eq!(
            (done.status.code(), String::from_utf8_lossy(&done.stdout).as_ref()),
            (Some(0), &*expected)
        );
        assert!(files.iter().all(|file| std::fs::read(file).is_ok_and(|bytes| bytes == [b'x'; 1000])));
    }
    std::fs::write(&files[0], "somebody's own").expect("a file in the way");
    std::fs::remove_file(&files[1]).expect("a file less");
    let refused = scr(&prefix, &["--extract", "ckpt.1"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("is another file"), "{said}");
    assert!(!files[1].exists());
}

/// The line of the lost one stayed, and `--drop` with its name took the new one as well.
#[test]
fn a_name_is_listed_once_though_a_lost_cache_had_an_older_dataset_of_it() {
    for (later, flush) in [("7", "1"), ("7", "0"), ("8", "1")] {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_JOB_ID", "7")]);
        let ids = || {
            let asked = scr(&job.prefix(), &["--json"]);
            let said: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("it is JSON");
            let datasets = said["datasets"].as_array().expect("a list").clone();
            datasets.iter().filter_map(|dataset| dataset["id"].as_u64()).collect::<Vec<_>>()
        };
        let lose = || std::fs::remove_dir_all(job.path().join("nodes")).expect("the caches are there");
        lose();
        assert_eq!(ids(), [1], "the command sees no cache, and cannot know");
        let again = |flush| {
            let settings = [("SCR_FLUSH", flush), ("SCR_JOB_ID", later)];
            scr_comm::thread::run(2, |comm| job.run(Rc::new(comm), &settings)).expect("it runs");
        };
        again(flush);
        assert_eq!(ids(), [2], "allocation {later}, SCR_FLUSH={flush}");
        let prefix = Prefix::new(job.prefix());
        let recorded = || FlushFile::read(&RealFiles, &prefix).expect("it can be read").entry(1).is_some();
        if later == "8" {
            // The nodes of the other allocation may still have it.
            let failed = |index: &mut Index| index.mark_failed(2, "2026-11-26T19:00:00");
            assert!(Index::update(&RealFiles, &prefix, failed).expect("it can be written"));
            assert_eq!(ids(), [2, 1]);
            lose();
            again("1");
            assert!(!ids().contains(&1), "{:?}", ids());
            job.begin(&[("SCR_JOB_ID", later)]);
        }
        assert!(!recorded(), "allocation {later}, SCR_FLUSH={flush}");
    }
}

/// The message was `Illegal seek'.
#[test]
fn a_pipe_in_the_place_of_a_file_is_called_no_regular_file() {
    let job = FinishedJob::new();
    for (name, arguments, code) in [("index.scr", &["index"][..], 0), ("halt.scr", &["halt", "--list"], 2)] {
        let pipe = job.prefix().join(".scr").join(name);
        drop(std::fs::remove_file(&pipe));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let output =
            Command::new(env!("CARGO_BIN_EXE_scr")).args(arguments).arg(job.prefix()).output().unwrap();
        let words = format!("{} is not a regular file", pipe.display());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && text.contains(&words), "{text}");
        std::fs::remove_file(&pipe).unwrap();
    }
}

/// Each was said to be saved or listed, and the users let their allocations end.
#[test]
fn what_postrun_does_not_save_is_not_announced() {
    let ask = |dataset: &DatasetDescriptor, in_cache: InCache, arguments: &[&str]| {
        let prefix = sample();
        FlushFile::update(&RealFiles, &Prefix::new(prefix.path()), |flush| {
            flush.record_in_cache(dataset, &in_cache);
        })
        .expect("it can");
        run(prefix.path(), arguments).1
    };
    let (name, job_id) = (b"x".to_vec(), "7".to_owned());
    let plain = DatasetDescriptor { id: 9, name, job_id, ..Default::default() };
    let lies = "`x' lies only in the cache of allocation 7, and `scr postrun' does not save it: it is neither a checkpoint nor output, \
                or a newer one takes its place";
    let said = ask(&plain, InCache::default(), &[]);
    assert!(said.contains(lies), "{said}");
    let older = DatasetDescriptor { id: 3, checkpoint: true, ..plain.clone() };
    let said = ask(&older, InCache::default(), &[]);
    assert!(said.contains(lies), "{said}");
    let in_place = |damage: Option<&str>| InCache {
        bypass: true,
        damage: damage.map(str::to_owned),
        ..InCache::default()
    };
    let newest = DatasetDescriptor { id: 9, ..older };
    let said = ask(&newest, in_place(None), &["--current", "x"]);
    assert!(said.contains("whose index does not list it; `scr postrun' in allocation 7 lists it"), "{said}");
    let said = ask(&newest, in_place(Some("files are gone")), &["--current", "x"]);
    assert!(said.contains("and no run restarts from it: files are gone"), "{said}");
}
