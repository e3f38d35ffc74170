//! Small commands of C SCR as scripts call them, on a prefix directory that C SCR wrote.

use crate::answer::{code, err, out};
use crate::finished_job::FinishedJob;
use scr_base::fs::RealFiles;
use scr_prefix::{Halt, LastRun, Prefix};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr/xor-flush2/raw/prefix")
}

fn scr(prefix: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command
        .env_clear()
        .env("COLUMNS", "1000")
        .env("USER", "tester")
        .current_dir(prefix)
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a command under a classic name, on a copy of what C SCR wrote.
fn classic(name: &str, options: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let (link, prefix) = (folder.path().join(name), folder.path().join("prefix"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_scr"), &link).unwrap();
    assert!(Command::new("cp").arg("-r").arg(fixture()).arg(&prefix).status().unwrap().success());
    for empty in ["new", "none/.scr"] {
        std::fs::create_dir_all(prefix.join(empty)).unwrap();
    }
    let mut command = Command::new(link);
    command.env_clear().env("USER", "tester").env("SCR_JOB_ID", "5132").current_dir(&prefix);
    command.args(options.split_whitespace()).output().unwrap()
}

/// What C SCR 3.1 printed for these command lines on the same files, and its exit codes.
#[test]
fn what_scripts_read_under_a_classic_name_is_what_c_scr_prints() {
    let listed = "\
DSET VALID FLUSHED             CUR NAME
   4 YES   2026-11-21T03:28:24   * ckpt.4
   2 YES   2026-11-21T03:28:24     ckpt.2
";
    let reason = "scr_retries_halt: HALT RUN: Reason: SCR_FINALIZE_CALLED.\n";
    let detected = format!("Halt condition detected: {reason}");
    for (name, options, exit, printed) in [
        ("scr_index", "", 0, listed),
        ("scr_index", "--list", 0, listed),
        ("scr_index", "--li --prefix .", 0, listed),
        ("scr_index", "-l -p new", 1, ""),
        ("scr_index", "-l -p none", 1, ""),
        ("scr_index", "--current ckpt.2", 0, ""),
        ("scr_index", "--current ckpt.9", 1, ""),
        ("scr_index", "--drop ckpt.9", 1, ""),
        ("scr_index", "--build 99", 1, ""),
        ("scr_flush_file", "--dir .", 1, ""),
        ("scr_flush_file", "--dir . --before 4", 1, ""),
        ("scr_flush_file", "--dir . --list-output", 1, ""),
        ("scr_flush_file", "--dir . --list-ckpt", 0, "4 3\n"),
        ("scr_flush_file", "--dir . --list-ckpt --before 0", 0, "4 3\n"),
        ("scr_flush_file", "--dir . --list-ckpt --before 4", 0, "3\n"),
        ("scr_flush_file", "--dir . --list-ckpt --before 3", 1, ""),
        ("scr_flush_file", "--dir . --need-flush 4", 1, ""),
        ("scr_flush_file", "--dir . --need-flush 3", 0, ""),
        ("scr_flush_file", "--dir . --need-flush 9", 1, ""),
        ("scr_flush_file", "--dir . --location 4", 0, "PFS\n"),
        ("scr_flush_file", "--dir . --location 3", 0, "CACHE\n"),
        ("scr_flush_file", "--dir . --location 9", 1, ""),
        ("scr_flush_file", "--dir . --name 4", 0, "ckpt.4\n"),
        ("scr_flush_file", "--dir . --latest", 0, "4\n"),
        ("scr_flush_file", "--dir none --list-ckpt", 1, ""),
        ("scr_halt", "/nowhere", 1, ""),
        ("scr_halt", "--bogus", 2, ""),
        ("scr_index", "--bogus", 1, ""),
        ("scr_print", "", 1, ""),
        ("scr_retries_halt", "--bogus", 0, ""),
        ("scr_retries_halt", "--dir .", 0, reason),
        ("scr_retries_halt", "--dir none", 1, "scr_retries_halt: CONTINUE RUN: No halt file found.\n"),
        ("scr_should_exit", "", 0, ""),
        ("scr_should_exit", "-v", 0, detected.as_str()),
        ("scr_should_exit", "-p none", 1, ""),
        ("scr_should_exit", "-p none --runs 0 -v", 0, "runs_remaining=0\n"),
        ("scr_print", ".scr/nodes.scr", 0, "  NODES = 4\n"),
        ("scr_print", "-m tree .scr/nodes.scr", 0, "  NODES\n    4\n"),
        ("scr_print", ".scr/none.scr", 1, ""),
        ("kvtree_print", ".scr/nodes.scr", 0, "  NODES\n    4\n"),
        ("kvtree_print", "--mode keyval .scr/nodes.scr", 0, "  NODES = 4\n"),
        ("scr_postrun", "-j srun -p new", 0, ""),
        ("scr_crc32", ".scr/none.scr", 1, ""),
    ] {
        let answer = classic(name, options);
        let (found, said) = ((code(&answer), out(&answer)), err(&answer));
        assert_eq!(found, (exit, printed.to_owned()), "{name} {options}: {said}");
    }
}

#[test]
fn a_file_is_printed_as_text() {
    let printed = classic("scr_print", ".scr/flush.scr");
    let first = "\
  DATASET
    3
      CKPT = 1
      DSETDESC
        CKPT = 3
        COMPLETE = 1
";
    let two_values = "      LOCATION\n        CACHE\n        PFS\n      NAME = ckpt.4\n";
    assert!(out(&printed).contains(first) && out(&printed).ends_with(two_values), "{}", out(&printed));
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
fn the_versions_of_all_formats_are_those_that_files_of_a_job_have() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "1")]);
    let formats = out(&scr(&job.path(), &["--formats"]));
    let version = |file: &Path| {
        let text = out(&scr(&job.path(), &["print", file.to_str().unwrap()]));
        let line = text.lines().find_map(|line| line.trim().strip_prefix("VERSION = ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{}: {text}", file.display()))
    };
    let in_prefix = job.prefix().join(".scr");
    for (name, file) in
        [("index.scr", "index.scr"), ("ids.scr", "ids.scr"), ("summary.scr", "scr.dataset.1/summary.scr")]
    {
        let row = formats
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {formats}"));
        assert_eq!(row.split_whitespace().nth(1), Some(version(&in_prefix.join(file)).as_str()), "{formats}");
    }
    for name in ["filemap", "detached.*", "plugin interface", "--json"] {
        assert!(formats.lines().any(|line| line.starts_with(name)), "{name}: {formats}");
    }
}

#[test]
fn the_nodes_of_the_last_run_and_the_directories_of_an_allocation_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().canonicalize().unwrap();
    assert_eq!(code(&scr(&prefix, &["nodes-file"])), 1);
    Prefix::new(&prefix).make_scr_dir(&RealFiles).unwrap();
    LastRun { nodes: vec![String::new(); 4], ..LastRun::default() }
        .write(&RealFiles, &Prefix::new(&prefix))
        .unwrap();
    assert_eq!(out(&scr(&prefix, &["nodes-file", "--dir", "."])), "4\n");
    std::fs::write(
        prefix.join(".scrconf"),
        "SCR_CNTL_BASE=/c\nSTORE=/ssd\nSTORE=/tmp/b ENABLED=0\nSTORE=/a\n",
    )
    .unwrap();
    let dirs = |arguments: &[&str]| out(&scr(&prefix, arguments));
    let cache = dirs(&["list-dir", "cache"]);
    let expected = ["/a/tester/scr.defjobid", "/ssd/tester/scr.defjobid"];
    assert!(expected.iter().all(|dir| cache.split_whitespace().any(|found| found == *dir)), "{cache}");
    assert!(!cache.contains("/tmp/b"), "{cache}");
    let base = dirs(&["list-dir", "--base", "cache"]);
    assert!(base.split_whitespace().any(|found| found == "/ssd"), "{base}");
    let control = dirs(&["list-dir", "control"]);
    assert!(control.ends_with("/tester/scr.defjobid\n") && control.lines().count() == 1, "{control}");
}

#[test]
fn the_exit_code_shows_when_a_job_must_not_be_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = Prefix::new(folder.path());
    let go_on = scr(folder.path(), &["should-exit"]);
    assert_eq!((code(&go_on), out(&go_on).as_str()), (1, ""), "{}", err(&go_on));
    prefix.make_scr_dir(&RealFiles).unwrap();
    Halt::update(&RealFiles, &prefix, |halt| halt.exit_reason = Some("enough".to_owned())).unwrap();
    let stop = scr(folder.path(), &["should-exit"]);
    assert!(code(&stop) == 0 && out(&stop).is_empty() && err(&stop).contains("enough"), "{}", err(&stop));
}

/// With the options of C SCR, which its scripts give.
#[test]
fn a_script_adds_to_the_log_of_a_job_what_scr_log_then_lists() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().canonicalize().unwrap();
    let here = prefix.to_str().unwrap();
    let event = [
        "log-event",
        "-p",
        here,
        "-u",
        "ann",
        "-i",
        "77",
        "-T",
        "NODE_FAIL",
        "-N",
        "node5: no memory",
        "-D",
        "3",
    ];
    std::fs::write(prefix.join(".scrconf"), "SCR_LOG_ENABLE=0\n").unwrap();
    assert_eq!((code(&scr(&prefix, &event)), prefix.join(".scr").exists()), (1, false), "logging is off");
    std::fs::write(prefix.join(".scrconf"), "SCR_LOG_ENABLE=1\nSCR_LOG_SYSLOG_ENABLE=0\n").unwrap();
    Prefix::new(&prefix).make_scr_dir(&RealFiles).unwrap();
    let added = scr(&prefix, &event);
    assert_eq!(code(&added), 0, "{}", err(&added));
    let transfer = [
        "log-transfer",
        "-p",
        here,
        "-i",
        "77",
        "-T",
        "FLUSH_SYNC",
        "-X",
        "/shm",
        "-Y",
        "/pfs",
        "-D",
        "3",
        "-n",
        "ckpt.3",
        "-S",
        "1298937600",
        "-L",
        "12",
        "-B",
        "4096",
        "-F",
        "2",
    ];
    assert_eq!(code(&scr(&prefix, &transfer)), 0);
    let listed: serde_json::Value = serde_json::from_str(&out(&scr(&prefix, &["log", "--json"]))).unwrap();
    let text = listed.to_string();
    for part in ["NODE_FAIL", "node5: no memory", "\"ckpt.3\"", "4096", "12.0", "/shm", "2011-0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let job = scr(&prefix, &["log", "--job", "77", "--event", "FLUSH_SYNC"]);
    assert_eq!(out(&job).lines().count(), 2, "{}", out(&job));
    assert_eq!(code(&scr(&prefix, &["log-event", "-p", here, "-T", "two words"])), 2);
}

#[test]
fn conditions_of_one_halt_file_are_set_unset_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = Prefix::new(folder.path().canonicalize().unwrap());
    let file = prefix.halt_file();
    let cntl = |arguments: &[&str]| {
        scr(folder.path(), &[&["halt-cntl", "-f", file.to_str().unwrap()], arguments].concat())
    };
    let halt = || Halt::read(&RealFiles, &prefix).unwrap();
    assert!(out(&cntl(&["-l"])).ends_with("halt.scr:\n  None\n") && halt().is_none());
    let set = cntl(&["-c", "3", "-b", "1298944800", "-a", "1298937600", "-s", "60", "-r", "JOB_HALTED"]);
    assert!(out(&set).contains("\n  CheckpointsLeft: 3\n"), "{}", out(&set));
    let all = Halt {
        checkpoints_left: Some(3),
        exit_before: Some(1_298_944_800),
        exit_after: Some(1_298_937_600),
        halt_seconds: Some(60),
        exit_reason: Some(Halt::HALTED.to_owned()),
        ..Halt::default()
    };
    assert_eq!(halt(), Some(all.clone()));
    cntl(&["-xc", "-xr", "-s", "90"]);
    let left = Halt { checkpoints_left: None, exit_reason: None, halt_seconds: Some(90), ..all };
    assert_eq!(halt(), Some(left));
    assert_eq!(code(&scr(folder.path(), &["halt-cntl", "-f", "elsewhere", "-l"])), 2);
}

#[test]
fn the_interval_between_checkpoints_comes_from_the_log() {
    let interval = |arguments: &[&str]| scr(&fixture(), &[&["ckpt-interval"], arguments].concat());
    let seconds: u64 = out(&interval(&[])).trim().parse().unwrap();
    assert!(seconds >= 1);
    let percent: f64 = out(&interval(&["--percent", "--model", "young"])).trim().parse().unwrap();
    assert!(percent > 0.0, "{percent}");
    let stats = out(&interval(&["--stats"]));
    assert!(stats.contains("starts: 1\nfailures: 0, in ") && stats.contains("\ninterval: "), "{stats}");
    assert!(stats.contains("\nmean time to interrupt: at least "), "the one run has finished: {stats}");
    let words = String::from_utf8_lossy(&interval(&[]).stderr).into_owned();
    assert!(
        words.contains("write a checkpoint every ") && words.contains("no failure was seen in "),
        "{words}"
    );
    assert!(words.contains("1 is printed, the least that SCR_CHECKPOINT_SECONDS can be"), "{words}");
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(code(&scr(folder.path(), &["ckpt-interval"])), 1, "without a log");
    assert_eq!(out(&scr(folder.path(), &["ckpt-interval", "--percent"])), "10.0\n");
}

#[test]
fn every_classic_name_answers_help_also_without_what_it_calls() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install.sh")).unwrap();
    let list = script.split("for classic in").nth(1).and_then(|rest| rest.split("; do").next()).unwrap();
    let names: Vec<_> =
        list.split(|c: char| c.is_whitespace() || c == '\\').filter(|name| !name.is_empty()).collect();
    assert!(names.contains(&"scr_srun") && names.contains(&"scr_log_event"), "{names:?}");
    for name in names {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_scr"), &link).unwrap();
        let help = Command::new(&link).arg("--help").env_clear().output().unwrap();
        assert_eq!(code(&help), 0, "{name}: {}", err(&help));
        assert!(out(&help).contains("Usage: "), "{name}: {}", out(&help));
    }
}

/// Programs on PATH that note how they were started.
fn with_stand_ins(names: &[&str]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let path = folder.path().join(name);
        std::fs::write(
            &path,
            format!("#!/bin/sh\necho {name} \"$@\" >> {}/calls\n", folder.path().display()),
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

#[test]
fn a_step_is_ended_as_its_resource_manager_does() {
    for (manager, variable, step, call, wrong) in [
        ("slurm", "SLURM_JOB_ID", "77.3", "scancel 77.3", &["77", "77.", ".3", "myapp", "my.app", "1"][..]),
        (
            "flux",
            "FLUX_JOB_ID",
            "\u{192}2oLkTLb",
            "flux job cancel \u{192}2oLkTLb",
            &["\u{192}", "\u{e4}b", "1"],
        ),
        ("lsf", "LSB_JOBID", "1", "jskill 1", &["all", "1.0"]),
        ("pbs", "PBS_JOBID", "4711", "apkill 4711", &["myapp"]),
    ] {
        let folder = with_stand_ins(&["scancel", "flux", "jskill", "apkill"]);
        let kill = |arguments: &[&str], variables: &[(&str, &str)]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
            command.env_clear().env("USER", "tester").env("PATH", folder.path()).current_dir(folder.path());
            command.arg("kill-jobstep").args(arguments).envs(variables.iter().copied()).output().unwrap()
        };
        let detected = kill(&["--jobStepId", step], &[(variable, "77")]);
        assert_eq!(code(&detected), 0, "{}", err(&detected));
        assert_eq!(code(&kill(&["-j", step, "--resource-manager", manager], &[])), 0);
        let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
        assert_eq!(calls, format!("{call}\n{call}\n"));
        for wrong in ["", "-1", "+1", "0", "7 8", "a/b"].iter().chain(wrong) {
            let refused = kill(&[&format!("--jobStepId={wrong}")], &[(variable, "77")]);
            assert!(
                code(&refused) == 2 && err(&refused).contains("is no id of a job step"),
                "{}",
                err(&refused)
            );
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("calls")).unwrap(), calls);
    }
}

#[test]
fn without_a_resource_manager_a_step_is_the_process_of_the_launcher() {
    use std::os::unix::process::ExitStatusExt;
    let mut launcher = Command::new("sleep").arg("1000").spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.env_clear().env("USER", "tester").env("PATH", "/usr/bin:/bin").current_dir(folder.path());
    let ended = command.args(["kill-jobstep", "--jobStepId", &launcher.id().to_string()]).output().unwrap();
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    let stand_ins = with_stand_ins(&["kill"]);
    for wrong in ["sleep", "77.3", "1", "+2", "4294967295", "\u{661}\u{662}"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
        command.env_clear().env("USER", "tester").env("PATH", stand_ins.path());
        let refused = command.args(["kill-jobstep", "--jobStepId", wrong]).output().unwrap();
        let message = err(&refused);
        assert!(code(&refused) == 2 && message.contains("is no id of a job step"), "{wrong}: {message}");
        assert!(message.contains("it is the process id of its launcher"), "{wrong}: {message}");
    }
    assert_eq!(launcher.wait().unwrap().signal(), Some(15));
    let gone = command.output().unwrap();
    assert_eq!(code(&gone), 2, "there is no such process any more: {}", err(&gone));
}

#[test]
fn a_copy_that_finds_nothing_says_where_to_look_and_the_help_of_a_question_says_its_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = scr(folder.path(), &["copy", "--id", "9"]);
    assert_eq!(code(&nothing), 1);
    let message = err(&nothing);
    assert!(
        message.contains("nothing of dataset 9") && message.contains("`scr flush-file' shows the datasets"),
        "{message}"
    );
    let help = out(&scr(folder.path(), &["flush-file", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for question in [
        "Exit with 0 if this allocation still has to copy a dataset",
        "Exit with 0 if a dataset is in the prefix directory",
    ] {
        assert!(help.contains(question), "{help}");
    }
}
