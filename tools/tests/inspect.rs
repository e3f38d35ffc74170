//! `scr inspect` as users type it, on the caches of a job of two ranks on two nodes that a stand-in for ssh reaches.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails where it cannot go on")]

mod answer;
mod finished_job;

use answer::{code, err, json_of, out};
use finished_job::FinishedJob;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// A node runs what a shell is given there, and n9 does not answer.
const SSH: &str = "#!/bin/sh\n[ \"$3\" = n9 ] && { echo 'no route to host' >&2; exit 255; }\nSCR_NODE_NAME=$3 exec sh -c \"$4\"\n";

fn inspect(job: &FinishedJob, arguments: &[&str]) -> Output {
    let bin = job.path().join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("ssh"), SSH).unwrap();
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.env_clear().current_dir(job.prefix()).env("USER", "user1").env("SCR_NODELIST", "n[0-1]");
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.env("SCR_CACHE_BASE", job.path().join("nodes/$SCR_NODE_NAME"));
    command.env("SCR_PLUGIN_PATH", job.plugins());
    command.arg("inspect").args(arguments).output().unwrap()
}

#[test]
fn what_can_be_rebuilt_is_said_before_a_job_is_started_again() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let whole = inspect(&job, &[]);
    assert_eq!(code(&whole), 0, "{}", err(&whole));
    let line = |output: &Output| out(output).lines().find(|line| line.contains("ckpt.1")).unwrap().to_owned();
    assert!(line(&whole).ends_with("whole"), "{}", out(&whole));

    for arguments in [&["--down", "n1"][..], &["--up", "n0"], &["--jobset", "n0"], &["--up", "n[0,9]"]] {
        let one_lost = inspect(&job, arguments);
        assert!(code(&one_lost) == 0 && line(&one_lost).ends_with("can be rebuilt"), "{}", out(&one_lost));
        let json = json_of(&inspect(&job, &[arguments, &["--json"]].concat()));
        assert_eq!(json["datasets"][0]["lost"], serde_json::json!([1]));
        assert_eq!(json["datasets"][0]["recoverable"], true);
    }
    let unreachable = inspect(&job, &["--up", "n[0,9]"]);
    assert!(
        err(&unreachable).contains("what a node has counts as lost: node n9: no route to host"),
        "{}",
        err(&unreachable)
    );

    // A file with another length is as good as lost.
    fs::write(job.node(0).join("user1/scr.defjobid/scr.dataset.1/r0/rank_0"), "short").unwrap();
    let both_lost = inspect(&job, &["--down", "n1"]);
    let why = "lost: the set of ranks 0, 1 has lost ranks 0, 1, and XOR does not survive that";
    assert!(code(&both_lost) == 1 && line(&both_lost).ends_with(why), "{}", out(&both_lost));
    let from_its_set = inspect(&job, &[]);
    assert!(line(&from_its_set).ends_with("can be rebuilt"), "{}", out(&from_its_set));
    let map = job.node(1).join("user1/scr.defjobid/scr.dataset.1/r1/rank_1");
    let kept = fs::read(&map).unwrap();
    fs::write(&map, "").unwrap();
    assert_eq!(code(&inspect(&job, &[])), 1);
    fs::write(&map, kept).unwrap();
    assert_eq!(code(&inspect(&job, &[])), 0, "nothing was changed");
}

#[test]
fn without_the_scheme_or_the_cache_there_is_nothing_to_restart_from() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_COPY_TYPE", "XOR")]);
    fs::remove_file(job.plugins().join("xor.toml")).unwrap();
    let without_scheme = inspect(&job, &["--down", "n1"]);
    assert!(
        code(&without_scheme) == 1 && out(&without_scheme).contains("the scheme XOR cannot be used"),
        "{}",
        out(&without_scheme)
    );
    let elsewhere = inspect(&job, &["--cache", "/nowhere"]);
    assert_eq!((code(&elsewhere), out(&elsewhere).as_str()), (1, "no dataset is in cache\n"));
}
