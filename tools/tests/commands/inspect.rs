//! `scr inspect` as users type it, on the caches of a job of two ranks on two nodes that a stand-in for ssh reaches.

use crate::answer::{code, err, json_of, out};
use crate::finished_job::FinishedJob;
use scr_base::fs::RealFiles;
use scr_prefix::{FlushFile, Prefix};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// A node runs what a shell is given there, and n9 does not answer.
const SSH: &str = "#!/bin/sh\n[ \"$3\" = n9 ] && { echo 'no route to host' >&2; exit 255; }\nSCR_NODE_NAME=$3 exec sh -c \"$4\"\n";

fn inspect(job: &FinishedJob, arguments: &[&str]) -> Output {
    inspect_from(job, ("SCR_NODELIST", "n[0-1]"), arguments)
}

fn inspect_from(job: &FinishedJob, variable: (&str, &str), arguments: &[&str]) -> Output {
    command(job, variable, arguments).output().unwrap()
}

fn inspect_as(job: &FinishedJob, user: &str, arguments: &[&str]) -> Output {
    command(job, ("SCR_NODELIST", "n[0-1]"), arguments).env("USER", user).output().unwrap()
}

fn command(job: &FinishedJob, variable: (&str, &str), arguments: &[&str]) -> Command {
    let bin = job.path().join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("ssh"), SSH).unwrap();
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command
        .env_clear()
        .current_dir(job.prefix())
        .env("USER", "user1")
        .env(variable.0, variable.1)
        .env("COLUMNS", "1000");
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.env("SCR_CACHE_BASE", job.path().join("nodes/$SCR_NODE_NAME"));
    command.env("SCR_PLUGIN_PATH", job.plugins());
    command.arg("inspect").args(arguments);
    command
}

#[test]
fn inspect_shows_what_a_restart_could_rebuild() {
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
        err(&unreachable).contains("it is not known what node n9 has: it did not answer: no route to host"),
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
fn without_the_scheme_it_is_not_known_and_without_the_cache_there_is_nothing_to_restart_from() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_COPY_TYPE", "XOR")]);
    fs::remove_file(job.plugins().join("xor.toml")).unwrap();
    let without_scheme = inspect(&job, &["--down", "n1"]);
    assert!(
        code(&without_scheme) == 1
            && out(&without_scheme).contains("not known: the plugin of the scheme XOR cannot be loaded: "),
        "{}",
        out(&without_scheme)
    );
    let elsewhere = inspect(&job, &["--cache", "/nowhere"]);
    assert_eq!(
        (code(&elsewhere), out(&elsewhere).as_str()),
        (1, "no dataset is in cache (asked n[0-1]; to ask others, name them in SCR_NODELIST)\n")
    );
}

#[test]
fn of_files_in_place_it_says_whether_they_were_changed_or_their_node_is_lost() {
    let job = FinishedJob::with_settings(&[("SCR_CACHE_BYPASS", "1")]);
    let state = |arguments: &[&str]| {
        let output = inspect(&job, arguments);
        out(&output).lines().find(|line| line.contains("ckpt.1")).unwrap().to_owned()
    };
    // It seemed to be in cache.
    assert!(state(&[]).ends_with(" whole, in the prefix directory"), "{}", state(&[]));
    let lost = state(&["--down", "n1"]);
    assert!(lost.ends_with("lost: no node knows anything of the part of rank 1"), "{lost}");
    fs::write(job.prefix().join("ckpt.1/rank_0"), "short").unwrap();
    let changed = state(&[]);
    assert!(
        changed.ends_with("lost: its files in the prefix directory are not as they were written"),
        "{changed}"
    );
}

/// A filemap as it was after this many of its records.
fn first_records(map: &[u8], count: usize) -> Vec<u8> {
    let mut end = 8;
    for _ in 0..count {
        let length = map[end..end + 4].try_into().unwrap();
        end += 8 + u32::from_be_bytes(length) as usize;
    }
    map[..end].to_vec()
}

fn records(map: &[u8]) -> usize {
    (0..).find(|&count| first_records(map, count).len() == map.len()).unwrap()
}

#[test]
fn inspect_does_not_offer_what_a_restart_would_not_use() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let map =
        |rank: u32| job.node(rank).join(format!("user1/scr.defjobid/scr.dataset.1/.scr/filemap_{rank}"));
    let state = || {
        let output = inspect(&job, &[]);
        let json = json_of(&inspect(&job, &["--json"]));
        assert_eq!(json["datasets"][0]["recoverable"], code(&output) == 0);
        out(&output).lines().find(|line| line.contains("ckpt.1")).unwrap().to_owned()
    };
    let kept = [0, 1].map(|rank| fs::read(map(rank)).unwrap());

    // The job died before rank 1 had its part; nobody knew the dataset to be complete.
    let before_complete = first_records(&kept[0], records(&kept[0]) - 1);
    fs::write(map(0), &before_complete).unwrap();
    assert!(state().ends_with("whole"), "it is complete, as rank 1 knows: {}", state());
    fs::write(map(1), first_records(&kept[1], 1)).unwrap();
    assert!(state().ends_with("lost: it was never complete, and the next run removes it"), "{}", state());
    fs::write(map(1), "").unwrap();
    assert!(state().ends_with("can be rebuilt"), "a part that is lost says nothing: {}", state());

    // The job died while its ranks recorded that they cannot restart from it.
    let mut refused = scr_plugin_api::KvTree::new();
    refused.child("REFUSED");
    let payload = refused.pack();
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let checksum = crc32fast::hash(&payload).to_be_bytes();
    fs::write(map(0), &kept[0]).unwrap();
    fs::write(map(1), [&kept[1][..], &length, &checksum, &payload].concat()).unwrap();
    assert!(state().ends_with("lost: the application could not restart from it"), "{}", state());
}

#[test]
fn unreadable_data_of_a_node_is_reported_with_its_name() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let dataset = job.node(1).join("user1/scr.defjobid/scr.dataset.9");
    fs::create_dir(&dataset).unwrap();
    fs::write(dataset.join(".scr"), "no folder").unwrap();
    let found = inspect(&job, &[]);
    let messages = err(&found);
    let names_the_node = |line: &str| line.contains("node n1: ") && line.contains("scr.dataset.9/.scr");
    assert!(code(&found) == 0 && messages.lines().any(names_the_node), "{messages}");
}

#[test]
fn a_machine_alone_may_count_as_lost() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let alone = |arguments: &[&str]| inspect_from(&job, ("SCR_NODE_NAME", "n0"), arguments);
    assert!(out(&alone(&[])).contains("can be rebuilt"));
    assert!(out(&alone(&["--down", "n1"])).contains("can be rebuilt"));
    let lost = alone(&["--down", "n0"]);
    assert_eq!(
        (code(&lost), out(&lost).as_str()),
        (1, "no dataset is in cache (asked no node; to ask others, name them in SCR_NODELIST)\n")
    );
}

/// There is no list there of the nodes that the job had.
#[test]
fn nodes_that_are_named_are_asked_outside_of_an_allocation_too() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    for (arguments, state) in [(&["--jobset", "n[0-1]"][..], "whole"), (&["--up", "n1"], "can be rebuilt")] {
        let found = inspect_from(&job, ("NO", "allocation"), arguments);
        assert!(
            code(&found) == 0 && out(&found).trim_end().ends_with(state),
            "{}{}",
            out(&found),
            err(&found)
        );
    }
}

/// It compared lengths, and called a checkpoint whole that a run could not bring back.
#[test]
fn a_checkpoint_in_which_a_run_has_found_wrong_bytes_is_lost_until_its_bytes_are_right() {
    let settings = [("SCR_FLUSH", "0")];
    let job = FinishedJob::with_settings(&settings);
    let file =
        |rank: u32| job.node(rank).join(format!("user1/scr.defjobid/scr.dataset.1/r{rank}/rank_{rank}"));
    let state = |nodes: &str| {
        let output = inspect_from(&job, ("SCR_NODELIST", nodes), &[]);
        out(&output).lines().find(|line| line.contains("ckpt.1")).unwrap().to_owned()
    };
    let status = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
        command.arg("status").arg(job.prefix()).args(["--json", "--offline"]).env("USER", "user1");
        json_of(&command.output().unwrap())
    };
    let copied = Command::new("cp").arg("-a").args([job.node(1), job.node(2)]).status().unwrap();
    assert!(copied.success());
    [0, 1].into_iter().for_each(|rank| fs::write(file(rank), [b'y'; 1000]).unwrap());
    assert!(state("n[0-1]").ends_with("whole"), "nobody has read it");
    job.begin(&settings);
    let why = "lost: the set of ranks 0, 1 has lost ranks 0, 1, and XOR does not survive that; \
               a run has found wrong bytes in the parts of ranks 0, 1";
    assert!(state("n[0-1]").ends_with(why), "{}", state("n[0-1]"));
    assert_eq!(code(&inspect(&job, &["--from", "/"])), 1);
    assert!(state("n[0-2]").ends_with("can be rebuilt"), "n2 has a copy with the right bytes");
    let said = status();
    assert_eq!(
        (&said["in_cache"], &said["lost_in_cache"]["name"]),
        (&serde_json::Value::Null, &"ckpt.1".into())
    );
    assert_eq!(said["postrun"]["saves"], serde_json::json!([]));

    [0, 1].into_iter().for_each(|rank| fs::write(file(rank), [b'x'; 1000]).unwrap());
    job.begin(&settings);
    assert!(state("n[0-1]").ends_with("whole"), "{}", state("n[0-1]"));
    let flush = FlushFile::read(&RealFiles, &Prefix::new(job.prefix())).unwrap();
    assert_eq!(flush.entry(1).unwrap().in_cache.damage, None);
    assert_eq!(status()["in_cache"]["name"], "ckpt.1");
}

/// It said that no dataset is in cache, or that it is lost.
#[test]
fn what_a_silent_node_or_another_user_has_is_not_known() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let said = |output: &Output| {
        let json = json_of(output);
        let row = json["datasets"][0].clone();
        assert_eq!(
            (code(output), &row["known"], &row["recoverable"]),
            (1, &false.into(), &false.into()),
            "{json}"
        );
        (row["why"].as_str().unwrap().to_owned(), json["silent"].as_array().unwrap().len())
    };
    let silent = "n9 did not answer: no route to host";
    fs::write(job.node(0).join("user1/scr.defjobid/scr.dataset.1/r0/rank_0"), "short").unwrap();
    let one = inspect(&job, &["--up", "n[0,9]"]);
    assert!(code(&one) == 1 && out(&one).contains(&format!("  not known: {silent}\n")), "{}", out(&one));
    assert_eq!(said(&inspect(&job, &["--up", "n[0,9]", "--json"])), (silent.to_owned(), 1));
    let none = inspect(&job, &["--up", "n9"]);
    assert!(
        code(&none) == 1 && out(&none).contains(&format!("ckpt.1  2      -     not known: {silent}\n")),
        "{}",
        out(&none)
    );
    fs::remove_file(job.prefix().join(".scr/flush.scr")).unwrap();
    let unlisted = inspect(&job, &["--up", "n9"]);
    assert!(out(&unlisted).starts_with(&format!("it is not known what is in cache: {silent} (asked n9;")));
    assert_eq!(json_of(&inspect(&job, &["--up", "n9", "--json"]))["silent"][0]["node"], "n9");

    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    // That takes two users.
    if rustix::process::geteuid().is_root() {
        let give_to =
            |node| std::os::unix::fs::chown(job.node(node).join("user1"), Some(61_001), None).unwrap();
        [0, 1].into_iter().for_each(give_to);
        let why = "it is in the cache of user1; run this command as user1".to_owned();
        assert_eq!(said(&inspect_as(&job, "ann", &["--json"])), (why, 0));
    }
}
