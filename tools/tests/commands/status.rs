//! `scr status` as users type it, on what a job of two ranks on two nodes has left; a stand-in for ssh reaches the nodes.

use crate::answer::{code, err, json_of, out};
use crate::finished_job::FinishedJob;
use crate::installation::put_command;
use scr_base::fs::{Durability, Files, RealFiles};
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::ledger::{CommonFiles, LedgerDir, MakeCurrent, Request};
use scr_prefix::{DatasetDescriptor, Ended, FlushFile, Halt, Index, LastRun, Prefix, Running, Summary};
use scr_test_kit::fixtures::ChangeIndex as _;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A node runs what a shell is given there, unless it is marked as lost.
const SSH: &str = "#!/bin/sh\n[ -e \"$LOST/$3\" ] && { echo 'no route to host' >&2; exit 255; }\nSCR_NODE_NAME=$3 exec sh -c \"$4\"\n";

fn command(job: &FinishedJob, arguments: &[&str]) -> Command {
    let mut command = scr(job);
    command.arg("status").args(arguments);
    command
}

fn scr(job: &FinishedJob) -> Command {
    let bin = job.path().join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("ssh"), SSH).unwrap();
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(job.path().join("lost")).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.env_clear().current_dir("/").env("USER", "user1").env("LOST", job.path().join("lost"));
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.env("SCR_CACHE_BASE", job.path().join("nodes/$SCR_NODE_NAME"));
    command.env("SCR_PLUGIN_PATH", job.plugins());
    command
}

fn status(job: &FinishedJob, arguments: &[&str]) -> Output {
    let prefix = job.prefix().display().to_string();
    let output = command(job, &[&[prefix.as_str()], arguments].concat()).output().unwrap();
    let text = out(&output);
    if !arguments.contains(&"--json") {
        assert!(text.lines().take_while(|line| !line.starts_with("as of")).count() < 16, "{text}");
    }
    output
}

/// The text of the line with this label.
fn line(output: &Output, label: &str) -> String {
    let text = out(output);
    let found = text.lines().find_map(|line| line.strip_prefix(&format!("{label:12}")));
    found.unwrap_or_else(|| panic!("{label}: {text}{}", err(output))).to_owned()
}

/// What `--why` says of the datasets.
fn why_of(job: &FinishedJob, arguments: &[&str]) -> Vec<String> {
    let text = out(&command(job, arguments).arg("--why").arg(job.prefix()).output().unwrap());
    text.lines().filter(|line| line.starts_with("ckpt.")).map(str::to_owned).collect()
}

/// It did not call `SCR_Finalize`.
#[test]
fn a_job_that_has_died_is_protected_as_its_nodes_say() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let whole = status(&job, &[]);
    assert_eq!(code(&whole), 0, "{}{}", out(&whole), err(&whole));
    assert!(out(&whole).lines().next().unwrap().contains("has died, 2 ranks on 2 nodes"), "{}", out(&whole));
    assert_eq!(line(&whole, "protected"), "against the loss of any 1 of 2 nodes (XOR)");
    assert_eq!(line(&whole, "next"), "`scr postrun' saves ckpt.1");
    assert_eq!(line(&whole, "in prefix"), "nothing");
    assert_eq!(line(&whole, "lost with"), "1 node: nothing more, back to ckpt.1");
    assert!(
        out(&whole).contains("            all nodes, the allocation: all work, as no checkpoint is left\n")
    );
    assert_eq!(line(&whole, "as of"), "now, on 2 nodes");
    assert!(line(&whole, "room").starts_with('n'), "{}", out(&whole));

    fs::write(job.path().join("lost/n1"), "").unwrap();
    let one_lost = status(&job, &[]);
    assert_eq!(code(&one_lost), 1);
    let why = "against nothing: 1 part not known, as n1 did not answer";
    assert_eq!(line(&one_lost, "protected"), why);
    assert!(line(&one_lost, "in cache").contains(", 1 of 2 parts to be rebuilt"), "{}", out(&one_lost));
    assert_eq!(line(&one_lost, "as of"), "now, on 1 node; n1 did not answer: no route to host");
    let why = "ckpt.1: in cache, 1 of 2 parts to be rebuilt, not in the prefix directory";
    assert_eq!(why_of(&job, &[]), [why]);
    let json = json_of(&status(&job, &["--json"]));
    assert_eq!(json["why"], serde_json::json!([why]));
    assert_eq!(json["silent"][0]["node"], "n1");
    assert_eq!((&json["safe"], &json["state"]), (&false.into(), &"died".into()));
    assert_eq!(json["in_cache"]["lost_parts"], 1);

    // The part of the other node is damaged besides. The node that does not answer may have its own.
    let file =
        |rank: u32| job.node(rank).join(format!("user1/scr.defjobid/scr.dataset.1/r{rank}/rank_{rank}"));
    fs::write(file(0), "short").unwrap();
    let unknown = status(&job, &[]);
    assert_eq!(code(&unknown), 1);
    assert_eq!(line(&unknown, "in cache"), "ckpt.1 is not known: n1 did not answer: no route to host");
    assert_eq!(line(&unknown, "protected"), "not known: ckpt.1 may be whole");
    let why = "not known in cache: n1 did not answer: no route to host, not in the prefix directory";
    assert_eq!(why_of(&job, &[]), [format!("ckpt.1: {why}")]);
    let json = json_of(&status(&job, &["--json"]));
    assert_eq!((&json["lost_in_cache"], &json["unknown_in_cache"]["name"]), (&Value::Null, &"ckpt.1".into()));

    fs::remove_file(job.path().join("lost/n1")).unwrap();
    fs::write(file(1), "short").unwrap();
    let both_lost = status(&job, &[]);
    assert_eq!(code(&both_lost), 1);
    assert!(line(&both_lost, "in cache").starts_with("ckpt.1 is lost: the set of ranks 0, 1 has lost"));
    assert_eq!(line(&both_lost, "protected"), "against nothing: there is no checkpoint");
}

/// While a checkpoint took the place of an older one, parts of it were said to be lost: one of 25 looks at a node.
#[test]
fn what_a_job_at_work_just_replaces_is_looked_at_again() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    scr(&job);
    let of_n1 = job.node(1).join("user1").display().to_string();
    let once = format!(
        "[ $3 = n0 ] || [ -e $LOST/once ] || {{ : >$LOST/once; mv {of_n1} $LOST; SCR_NODE_NAME=$3 sh -c \"$4\"; mv $LOST/user1 {of_n1}; exit; }}\n"
    );
    let ssh = SSH.replacen('\n', &("\n".to_owned() + &once), 1);
    fs::write(job.path().join("bin/ssh"), ssh).unwrap();
    let lost_parts = || json_of(&status(&job, &["--json"]))["in_cache"]["lost_parts"].clone();
    assert_eq!(lost_parts(), 1, "of a job that has died");
    fs::remove_file(job.path().join("lost/once")).unwrap();
    let _at_work = Running::begin(&RealFiles, &Prefix::new(job.prefix()), "a run", 0, false);
    assert_eq!(lost_parts(), 0);
}

/// It was cut where the line ends.
#[test]
fn the_reason_why_a_node_does_not_answer_is_said_in_full() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    command(&job, &[]);
    let why = "no route to host, as the switch between here and there has lost its power";
    let ssh = fs::read_to_string(job.path().join("bin/ssh")).unwrap();
    fs::write(job.path().join("bin/ssh"), ssh.replace("no route to host", why)).unwrap();
    fs::write(job.path().join("lost/n1"), "").unwrap();
    let silent = status(&job, &[]);
    assert_eq!(line(&silent, "as of"), format!("now, on 1 node; n1 did not answer: {why}"));
    assert_eq!(err(&silent), "");
}

/// It said that the checkpoint was lost.
#[test]
fn what_lies_in_the_cache_of_another_user_or_in_a_closed_one_is_not_known() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    // That takes two users.
    if rustix::process::geteuid().is_root() {
        let give_to = |uid| [0, 1].map(|node| chown(job.node(node).join("user1"), Some(uid), None).unwrap());
        give_to(61_001);
        let other = command(&job, &[job.prefix().to_str().unwrap()]).env("USER", "ann").output().unwrap();
        assert_eq!(code(&other), 1, "{}{}", out(&other), err(&other));
        assert_eq!(
            line(&other, "in cache"),
            "ckpt.1 is not known: it is in the cache of user1; run this command as user1"
        );
        assert_eq!(line(&other, "protected"), "not known: ckpt.1 may be whole");
        // It said that there was nothing of it, and to drop it.
        let ended = postrun_of(&job).env("USER", "ann").output().unwrap();
        let why =
            "dataset 1 `ckpt.1' could not be saved: it is in the cache of user1; run this command as user1";
        assert!(code(&ended) == 1 && err(&ended).contains(why), "{}", err(&ended));
        assert!(!err(&ended).contains("--drop"), "{}", err(&ended));
        give_to(0);
        expect_saved(&job, &postrun(&job));
    }
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    for node in [0, 1] {
        let folder = job.node(node).join("user1/scr.defjobid");
        fs::rename(&folder, folder.with_extension("kept")).unwrap();
        symlink(folder.with_extension("kept"), &folder).unwrap();
    }
    let closed = status(&job, &[]);
    assert_eq!(code(&closed), 1, "{}{}", out(&closed), err(&closed));
    let why = "ckpt.1 is not known: n0 and 1 more could not read all: ";
    assert!(line(&closed, "in cache").starts_with(why), "{}", out(&closed));
}

/// It said that the job had not recorded it, and that it survives the loss of no node.
#[test]
fn without_its_plugin_nobody_can_say_what_loss_a_whole_checkpoint_survives() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    fs::remove_file(job.plugins().join("xor.toml")).unwrap();
    let seen = status(&job, &[]);
    let why = "the plugin of the scheme XOR cannot be loaded: ";
    let protected = line(&seen, "protected");
    assert!(code(&seen) == 1 && protected.starts_with(&format!("not known: {why}")), "{}", out(&seen));
    assert!(line(&seen, "in cache").starts_with("ckpt.1, "), "{}", out(&seen));
    let said = &why_of(&job, &[])[0];
    let expected = format!("ckpt.1: in cache, and it is not known what loss it survives: {why}");
    assert!(said.starts_with(&expected) && said.ends_with(", not in the prefix directory"), "{said}");
    expect_saved(&job, &postrun(&job));
}

/// A reason ended in dots at 80 columns, also in a pipe and in a wide terminal.
#[test]
fn no_reason_is_cut_in_a_pipe_or_in_a_terminal() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    fs::remove_file(job.plugins().join("xor.toml")).unwrap();
    let said = why_of(&job, &[]).remove(0);
    let reason = said.strip_suffix(", not in the prefix directory").unwrap();
    let (_, reason) = reason.split_once("it survives: ").unwrap();
    let prefix = job.prefix().display().to_string();
    for columns in ["", "80", "200"] {
        let shown = out(&command(&job, &[&prefix]).env("COLUMNS", columns).output().unwrap());
        let words: Vec<_> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains(&format!("protected not known: {reason} in cache")), "{shown}");
        let is_narrow = |line: &str| line.chars().count() <= columns.parse().unwrap_or(usize::MAX);
        let is_path = |line: &str| line.trim_start().starts_with('/');
        assert!(shown.lines().all(|line| is_narrow(line) || is_path(line)), "{columns}: {shown}");
    }
}

/// It said that all nodes may be lost.
#[test]
fn a_checkpoint_whose_files_have_left_the_prefix_directory_is_said_to_be_lost() {
    let job = FinishedJob::new();
    fs::remove_dir_all(job.path().join("nodes")).unwrap();
    fs::remove_file(job.prefix().join("ckpt.1/rank_0")).unwrap();
    let after = status(&job, &[]);
    assert_eq!((code(&after), line(&after, "in prefix").as_str()), (1, "nothing"));
    let words = "`ckpt.1' in the prefix directory may be unreadable: ";
    assert!(err(&after).contains(words), "{}", err(&after));
    // The index said YES of it.
    let index = scr(&job).args(["index", "--prefix"]).arg(job.prefix()).output().unwrap();
    assert!(out(&index).contains(" 1 NO ") && err(&index).contains(words), "{}{}", out(&index), err(&index));
}

/// It said that all work is lost, or that a run starts without a checkpoint, and a run made a new index and found it.
#[test]
fn a_lost_or_damaged_index_counts_as_the_next_run_makes_it_anew() {
    let job = FinishedJob::new();
    fs::remove_dir_all(job.path().join("nodes")).unwrap();
    let path = job.prefix().join(".scr/index.scr");
    for damage in [None, Some("no tree at all")] {
        fs::remove_file(&path).unwrap();
        damage.into_iter().for_each(|text| fs::write(&path, text).unwrap());
        let found = status(&job, &[]);
        assert_eq!(code(&found), 0, "{}{}", out(&found), err(&found));
        assert!(line(&found, "in prefix").starts_with("ckpt.1, "), "{}", out(&found));
        assert!(err(&found).contains("index.scr"), "{}", err(&found));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), damage, "nothing is changed");
        fs::write(&path, "").unwrap();
    }
}

/// It said what a run restarts from without them.
#[test]
fn the_settings_of_the_next_run_choose_what_it_restarts_from() {
    let saved = FinishedJob::new();
    let cached = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let none = |with: &str| format!("against nothing: there is no checkpoint for a run with {with}");
    let all_nodes = "against the loss of all nodes: it is in the prefix directory".to_owned();
    for (job, settings, protected, back) in [
        (
            &saved,
            &[("SCR_FETCH", "0"), ("SCR_DISTRIBUTE", "0")][..],
            none("SCR_DISTRIBUTE=0 and SCR_FETCH=0"),
            None,
        ),
        (&saved, &[("SCR_DISTRIBUTE", "0")], all_nodes.clone(), Some("ckpt.1")),
        (&saved, &[("SCR_JOB_ID", "other")], all_nodes, Some("ckpt.1")),
        (&cached, &[("SCR_DISTRIBUTE", "0")], none("SCR_DISTRIBUTE=0"), None),
        (&cached, &[("SCR_DISTRIBUTE", "0"), ("SCR_REQUIRE_RESTART", "1")], none("SCR_DISTRIBUTE=0"), None),
        (&cached, &[("SCR_CACHE_PURGE", "1")], none("SCR_CACHE_PURGE=1"), None),
        (&cached, &[("SCR_JOB_ID", "other")], none("SCR_JOB_ID=other"), None),
        (
            &cached,
            &[("SCR_FETCH", "0")],
            "against the loss of any 1 of 2 nodes (XOR)".to_owned(),
            Some("ckpt.1"),
        ),
    ] {
        let prefix = job.prefix().display().to_string();
        let of_run = command(job, &[&prefix]).envs(settings.iter().copied()).output().unwrap();
        assert_eq!(line(&of_run, "protected"), protected, "{settings:?}");
        let next = match back {
            Some(name) => format!("a run restarts from {name}"),
            None if settings.contains(&("SCR_REQUIRE_RESTART", "1")) => {
                "no run starts (SCR_REQUIRE_RESTART=1)".to_owned()
            }
            None => "a run starts without a checkpoint".to_owned(),
        };
        assert!(line(&of_run, "next").ends_with(&next), "{settings:?}: {}", out(&of_run));
        assert_eq!(code(&of_run), i32::from(back.is_none()), "{settings:?}");
        let conf = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect::<String>();
        fs::write(job.prefix().join(".scrconf"), conf).unwrap();
        assert_eq!(line(&status(job, &[]), "protected"), protected, "{settings:?} in a file");
        fs::remove_file(job.prefix().join(".scrconf")).unwrap();
    }
}

/// It named the newest one.
#[test]
fn the_checkpoint_that_is_named_is_the_one_that_a_run_takes() {
    let job = FinishedJob::new();
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let first = Index::read(&RealFiles, &prefix).unwrap().entry(1).unwrap().dataset.unwrap();
    let second = DatasetDescriptor { id: 2, name: b"ckpt.2".to_vec(), ..first.clone() };
    Index::update(&RealFiles, &prefix, |index| index.record(&second, true)).unwrap();
    fs::create_dir(prefix.dataset_dir(2)).unwrap();
    for list in fs::read_dir(prefix.dataset_dir(1)).unwrap() {
        let list = list.unwrap();
        fs::copy(list.path(), prefix.dataset_dir(2).join(list.file_name())).unwrap();
    }
    Summary { dataset: second, complete: true }.write(&RealFiles, &prefix).unwrap();
    fs::remove_dir_all(job.path().join("nodes")).unwrap();
    for name in ["ckpt.1", "ckpt.2"] {
        LedgerDir::new(&RealFiles, &prefix).make_current(name.as_bytes()).unwrap();
        let chosen = status(&job, &[]);
        assert!(line(&chosen, "in prefix").starts_with(&format!("{name}, ")), "{}", out(&chosen));
        let why = why_of(&job, &[]);
        assert!(
            why.iter().any(|why| why.starts_with(name) && why.ends_with("in the prefix directory")),
            "{why:?}"
        );
        assert_eq!(line(&chosen, "lost with"), format!("1 node or more: nothing more, back to {name}"));
        // A setting that the command reads was not looked at.
        let other = if name == "ckpt.1" { "ckpt.2" } else { "ckpt.1" };
        let dir = job.prefix().display().to_string();
        let wished = command(&job, &[&dir]).env("SCR_CURRENT", other).output().unwrap();
        assert_eq!(line(&wished, "next"), format!("a run restarts from {other}"));
        // Restarts from it have begun that led to nothing.
        let id = if name == "ckpt.1" { 1 } else { 2 };
        let attempt = Request::Attempt(Some((id, name.as_bytes())));
        LedgerDir::new(&RealFiles, &prefix).transact(&attempt).unwrap();
        let spent = command(&job, &[&dir]).env("SCR_RESTART_ATTEMPTS", "1").output().unwrap();
        assert_eq!(line(&spent, "next"), format!("a run restarts from {other}"), "{}", out(&spent));
        let more = command(&job, &[&dir]).env("SCR_RESTART_ATTEMPTS", "2").output().unwrap();
        assert_eq!(line(&more, "lost with"), format!("1 node or more: nothing more, back to {name}"));
    }

    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let older = DatasetDescriptor { id: 0, name: b"ckpt.0".to_vec(), run: 0, ..first };
    Index::update(&RealFiles, &prefix, |index| index.record(&older, true)).unwrap();
    let named =
        scr(&job).args(["index", "--current", "ckpt.0", job.prefix().to_str().unwrap()]).output().unwrap();
    let newer = "a job in this allocation, which has the newer `ckpt.1' in cache, restarts from that one";
    assert!(code(&named) == 0 && err(&named).contains(newer), "{}", err(&named));
    Index::update(&RealFiles, &prefix, |index| _ = index.drop_id(0)).unwrap();
}

/// The nodes that had recorded it were away, and the others offered it.
#[test]
fn a_checkpoint_that_was_refused_is_no_checkpoint_and_is_not_saved() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let seq = FlushFile::read(&RealFiles, &prefix).unwrap().entry(1).unwrap().seq();
    let refuse = Request::Refuse { seq, is_listed: false, alone: None, now: "2026-11-22T00:00:00" };
    LedgerDir::new(&RealFiles, &prefix).transact(&refuse).unwrap();
    for arguments in [&[][..], &["--offline"]] {
        let refused = status(&job, arguments);
        assert_eq!(code(&refused), 1, "{}", out(&refused));
        let why = "ckpt.1 is refused: the application could not restart from it";
        assert_eq!(line(&refused, "in cache"), why);
        assert_eq!(line(&refused, "protected"), "against nothing: there is no checkpoint");
        let why = why_of(&job, arguments);
        assert_eq!(why, ["ckpt.1: given up as unusable, in cache, not in the prefix directory"]);
    }
    let json = json_of(&status(&job, &["--json"]));
    assert_eq!(json["postrun"]["saves"], serde_json::json!([]));
    let ended = postrun(&job);
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert!(!job.prefix().join("ckpt.1").exists() && !err(&ended).contains("could not be saved"));
}

/// It was said not to be in the prefix directory.
#[test]
fn a_checkpoint_that_was_flushed_and_refused_is_refused_in_both_places() {
    let job = FinishedJob::new();
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let seq = FlushFile::read(&RealFiles, &prefix).unwrap().entry(1).unwrap().seq();
    let refuse = Request::Refuse { seq, is_listed: true, alone: None, now: "2026-11-22T00:00:00" };
    LedgerDir::new(&RealFiles, &prefix).transact(&refuse).unwrap();
    for arguments in [&[][..], &["--offline"]] {
        let refused = status(&job, arguments);
        assert_eq!(line(&refused, "protected"), "against nothing: there is no checkpoint");
        for place in ["in cache", "in prefix"] {
            let why = "ckpt.1 is refused: the application could not restart from it";
            assert_eq!(line(&refused, place), why, "{}", out(&refused));
        }
        let why = why_of(&job, arguments);
        assert_eq!(why, ["ckpt.1: given up as unusable, in cache, in the prefix directory"]);
    }
    assert_eq!(json_of(&status(&job, &["--json"]))["postrun"]["saves"], serde_json::json!([]));
}

/// It said that there was nothing in cache.
#[test]
fn what_another_allocation_wrote_and_this_one_has_fetched_is_in_its_cache() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "1"), ("SCR_JOB_ID", "7")]);
    job.begin(&[("SCR_JOB_ID", "8")]);
    for arguments in [&[][..], &["--offline"]] {
        let fetched = status(&job, arguments);
        assert!(line(&fetched, "in cache").starts_with("ckpt.1, "), "{}", out(&fetched));
        assert!(line(&fetched, "in prefix").starts_with("ckpt.1, "), "{}", out(&fetched));
        let why = why_of(&job, arguments);
        let is_said =
            |why: &String| why.starts_with("ckpt.1: in cache, ") && why.ends_with("in the prefix directory");
        assert!(why.len() == 1 && why.iter().all(is_said), "{why:?}");
    }
    // It said that there is no checkpoint, and that scr index --drop forgets what is lost.
    let (path, aside) = (job.prefix().join("ckpt.1/rank_0"), job.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    let damaged = status(&job, &[]);
    assert!(line(&damaged, "in cache").starts_with("ckpt.1, "), "{}", out(&damaged));
    fs::rename(&aside, &path).unwrap();
    [0, 1].iter().for_each(|node| fs::remove_dir_all(job.node(*node).join("user1/scr.8")).unwrap());
    let gone = status(&job, &[]);
    assert!(line(&gone, "in prefix").starts_with("ckpt.1, "), "{}", out(&gone));
    assert!(!line(&gone, "in cache").starts_with("ckpt.1, "), "{}", out(&gone));
}

/// It said that a run starts without a checkpoint, and the run restarted.
#[test]
fn what_an_allocation_has_in_cache_is_not_known_after_a_run_of_another_one() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_JOB_ID", "7")]);
    job.begin(&[("SCR_JOB_ID", "8")]);
    let prefix = job.prefix().display().to_string();
    let of_first = command(&job, &[&prefix]).env("SCR_JOB_ID", "7").output().unwrap();
    assert_eq!(line(&of_first, "protected"), "not known: ckpt.1 may be whole");
    assert!(line(&of_first, "in cache").ends_with("in the cache of allocation 7, which was not asked"));
    assert!(!out(&of_first).contains("starts without"), "{}", out(&of_first));
}

#[test]
fn without_an_answer_of_a_node_the_prefix_directory_speaks_and_says_how_old_that_is() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let offline = status(&job, &["--offline"]);
    assert_eq!(code(&offline), 0, "{}", err(&offline));
    assert_eq!(line(&offline, "protected"), "against the loss of any 1 of 2 nodes (XOR)");
    assert!(line(&offline, "as of").ends_with(" ago, in the prefix directory; no node was asked"));
    assert!(!out(&offline).contains("room"));
    for node in ["n0", "n1"] {
        command(&job, &[]);
        fs::write(job.path().join("lost").join(node), "").unwrap();
    }
    let silent = status(&job, &[]);
    assert_eq!((code(&silent), line(&silent, "protected").as_str()), (1, "not known: no node answers"));
    assert!(line(&silent, "in cache").starts_with("ckpt.1, "), "{}", out(&silent));
    // It said that all work was lost, and a restart then found its checkpoint.
    assert_eq!(line(&silent, "lost with"), "1 node, all nodes: not known");
    assert!(out(&silent).ends_with("; n0 and 1 more did not answer: no route to host\n"), "{}", out(&silent));
}

#[test]
fn a_checkpoint_in_the_prefix_directory_is_safe_from_all_nodes() {
    let job = FinishedJob::new();
    let flushed = status(&job, &[]);
    assert_eq!(code(&flushed), 0, "{}", err(&flushed));
    assert_eq!(line(&flushed, "protected"), "against the loss of all nodes: it is in the prefix directory");
    let nothing = "1 node or more: nothing more, back to ckpt.1";
    assert_eq!(line(&flushed, "lost with"), nothing);
    assert!(line(&flushed, "in prefix").starts_with("ckpt.1, "), "{}", out(&flushed));
    // The nodes are gone with all that they had.
    fs::remove_dir_all(job.path().join("nodes")).unwrap();
    let gone = status(&job, &[]);
    assert_eq!((code(&gone), line(&gone, "lost with").as_str()), (0, nothing));
}

#[test]
fn in_bypass_mode_nothing_depends_on_the_nodes() {
    let job = FinishedJob::with_settings(&[("SCR_CACHE_BYPASS", "1")]);
    let bypass = status(&job, &[]);
    assert_eq!(code(&bypass), 0, "{}", err(&bypass));
    assert_eq!(line(&bypass, "in cache"), "nothing: checkpoints go straight to the prefix directory");
    assert!(line(&bypass, "in prefix").starts_with("ckpt.1, "), "{}", out(&bypass));
}

#[test]
fn damaged_files_are_named_and_take_nothing_else_away() {
    let job = FinishedJob::new();
    for (file, words) in [
        ("flush.scr", "flush.scr"),
        ("index.scr", "index.scr"),
        ("nodes.scr", "nodes.scr"),
        ("halt.scr", "halt.scr"),
    ] {
        let path = job.prefix().join(".scr").join(file);
        let kept = fs::read(&path).ok();
        fs::write(&path, "no tree at all").unwrap();
        let damaged = status(&job, &[]);
        assert!([0, 1].contains(&code(&damaged)), "{file}: {}", err(&damaged));
        assert!(err(&damaged).contains(words), "{file}: {}", err(&damaged));
        if file == "index.scr" {
            assert!(line(&damaged, "in prefix").starts_with("ckpt.1, "), "{}", out(&damaged));
        }
        let json = json_of(&status(&job, &["--json"]));
        assert!(json["trouble"][0].as_str().unwrap().contains(words), "{json}");
        assert_eq!(fs::read(&path).unwrap(), b"no tree at all", "{file}: nothing is changed");
        match kept {
            Some(kept) => fs::write(&path, kept).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    // A job of C SCR leaves no more than this.
    for file in ["nodes.scr", "flush.scr", "running", "ids.scr"] {
        fs::remove_file(job.prefix().join(".scr").join(file)).unwrap();
    }
    let rest = status(&job, &[]);
    assert!(out(&rest).contains(": no job runs\n"), "{}", out(&rest));
    assert!(line(&rest, "in prefix").starts_with("ckpt.1, "), "{}", out(&rest));
}

#[test]
fn a_folder_that_no_job_has_used_or_that_is_closed_is_an_error() {
    let job = FinishedJob::new();
    let of = |dir: &str| command(&job, &[dir]).output().unwrap();
    let missing = of("/no/such/folder");
    assert_eq!(code(&missing), 2);
    assert!(err(&missing).contains("there is no prefix directory /no/such/folder"), "{}", err(&missing));
    let unused = of(&job.path().join("bin").display().to_string());
    assert_eq!((code(&unused), out(&unused).as_str()), (2, ""));
    assert!(err(&unused).contains("no job has used it"), "{}", err(&unused));
    let both = command(&job, &["/a", "--prefix", "/b"]).output().unwrap();
    assert_eq!(code(&both), 2);
    let never = command(&job, &["--watch=0"]).output().unwrap();
    assert!(code(&never) == 2 && err(&never).contains("the least is 1"), "{}", err(&never));
}

/// As root only, since it takes two users.
#[test]
fn another_user_sees_what_the_folder_shows_and_a_closed_one_is_an_error() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be two users");
        return;
    }
    let job = FinishedJob::new();
    let program = job.path().join("scr");
    // By another process: a program that is open to be written here cannot run.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_scr")).arg(&program).status().unwrap().success());
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(&job.path(), 0o755);
    let as_other = || {
        let mut command = Command::new(&program);
        command.env_clear().env("USER", "ann").env("PATH", "/usr/bin:/bin").uid(61_002).gid(61_002);
        command.current_dir("/").args(["status", "--offline"]).arg(job.prefix()).output().unwrap()
    };
    let open = as_other();
    assert!(line(&open, "in prefix").starts_with("ckpt.1, "), "{}", out(&open));
    assert!(out(&open).contains(": it is not known here whether job defjobid runs\n"), "{}", out(&open));
    set_mode(&job.prefix().join(".scr"), 0o700);
    let closed = as_other();
    assert_eq!((code(&closed), out(&closed).as_str()), (2, ""));
    assert!(err(&closed).contains("ask as the user of the job"), "{}", err(&closed));
    assert!(!err(&closed).contains("os error"), "{}", err(&closed));
}

#[test]
fn a_watch_ends_with_the_job() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let once = status(&job, &["--watch"]);
    assert_eq!(code(&once), 0);
    assert!(line(&once, "protected").starts_with("against the loss"));
}

#[test]
fn the_last_failure_of_the_job_is_shown() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let log = |id: &str, note: &str| {
        format!(
            "2026-11-21T03:28:24: host=n0, jobid={id}, event=FLUSH_FAIL, note=\"{note}\", dset=1, name=\"ckpt.1\"\n"
        )
    };
    let other = "2026-11-21T03:28:24: host=n0, jobid=defjobid, event=FLUSH_START, dset=1, name=\"ckpt.1\"\n";
    let text =
        log("defjobid", "an old one") + &log("defjobid", "no space left") + other + &log("7", "of another");
    fs::write(job.prefix().join(".scr/events"), text).unwrap();
    let failed = status(&job, &[]);
    assert!(line(&failed, "last error").ends_with("FLUSH_FAIL ckpt.1: no space left"), "{}", out(&failed));
    assert_eq!(json_of(&status(&job, &["--json"]))["last_error"]["note"], "no space left");
    // The cause was cut off.
    let long = format!(
        "copying failed: rank 0 on n0: writing /pfs/{} failed: No space left on device, as on rank 1",
        "a".repeat(60)
    );
    fs::write(job.prefix().join(".scr/events"), log("defjobid", &long)).unwrap();
    let failed = out(&status(&job, &[]));
    let words: Vec<_> = failed.split_whitespace().collect();
    assert!(words.join(" ").contains("failed: No space left on device, as on rank 1 as of"), "{failed}");
}

/// What the newest checkpoint of a finished job was for, with `SCR_FLUSH=0`, is the next allocation, as with C SCR.
#[test]
fn what_a_finished_job_has_in_cache_only_is_announced_and_saved() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    Halt::end(&RealFiles, &prefix, 0, false).unwrap();
    let hosts = job.path().join("hosts");
    fs::write(&hosts, "n0\nn1\n").unwrap();
    let finished = status(&job, &[]);
    assert_eq!(line(&finished, "next"), "`scr postrun' saves ckpt.1");
    assert_eq!(line(&finished, "as of"), "now, on 2 nodes");
    let json = json_of(&status(&job, &["--json"]));
    assert_eq!(json["postrun"], serde_json::json!({ "saves": ["ckpt.1"] }));
    let mut postrun = scr(&job);
    let ended = postrun
        .args(["postrun", "--prefix"])
        .arg(job.prefix())
        .arg("--hostfile")
        .arg(hosts)
        .output()
        .unwrap();
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert!(job.prefix().join("ckpt.1/rank_0").exists(), "{}", err(&ended));
    // Elsewhere its nodes may be those of another job by now. It said so in the allocation as well.
    assert!(line(&status(&job, &[]), "as of").ends_with("; no node was asked"));
    let mut here = command(&job, &[job.prefix().to_str().unwrap()]);
    let here = here.envs([("SCR_JOB_ID", "defjobid"), ("SCR_NODELIST", "n0,n1")]).output().unwrap();
    assert_eq!(line(&here, "as of"), "now, on 2 nodes");
}

/// It said that a job restarts from it.
#[test]
fn a_checkpoint_that_was_dropped_is_not_in_cache_any_more() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let dropped =
        scr(&job).args(["index", "--drop", "ckpt.1", "--prefix"]).arg(job.prefix()).output().unwrap();
    assert_eq!(code(&dropped), 0, "{}", err(&dropped));
    let after = status(&job, &[]);
    assert_eq!((code(&after), line(&after, "in cache").as_str()), (1, "nothing"));
    assert_eq!(line(&after, "lost with"), "1 node or more: all work, as no checkpoint is left");
}

/// It said that a node could be lost, and that a loss costs nothing, while no job of this size could restart.
#[test]
fn a_checkpoint_that_another_number_of_ranks_wrote_does_not_count() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    let last = LastRun::read(&RealFiles, &prefix).unwrap().unwrap();
    LastRun { ranks: 3, ..last.clone() }.write(&RealFiles, &prefix).unwrap();
    for arguments in [&[][..], &["--offline"]] {
        let other = status(&job, arguments);
        assert_eq!(code(&other), 1, "{}", out(&other));
        let why = "there is no checkpoint of 3 ranks";
        assert_eq!(line(&other, "protected"), format!("against nothing: {why}"));
        assert_eq!(line(&other, "in cache"), "nothing for 3 ranks: ckpt.1 is of 2");
        let json = json_of(&status(&job, &[arguments, &["--json"]].concat()));
        assert_eq!(json["protected"]["why_not"], why);
        let of_others = &json["of_other_ranks"];
        assert_eq!(
            (&of_others["in_cache"]["name"], &of_others["in_cache"]["ranks"]),
            (&"ckpt.1".into(), &2.into())
        );
        assert_eq!((&json["in_cache"], &of_others["in_prefix"]), (&Value::Null, &Value::Null));
        let cost = "1 node or more: all work, as no checkpoint of 3 ranks is left";
        assert_eq!(line(&other, "lost with"), cost);
        assert_eq!(line(&other, "next"), "`scr postrun' saves ckpt.1", "those who wrote it want it");
    }
    LastRun { ranks: 3, any_ranks: true, ..last }.write(&RealFiles, &prefix).unwrap();
    let any = status(&job, &[]);
    assert_eq!((code(&any), line(&any, "lost with").as_str()), (0, "1 node: nothing more, back to ckpt.1"));
}

fn postrun(job: &FinishedJob) -> Output {
    postrun_of(job).output().unwrap()
}

fn postrun_of(job: &FinishedJob) -> Command {
    let hosts = job.path().join("hosts");
    fs::write(&hosts, "n0\nn1\n").unwrap();
    let mut command = scr(job);
    command.args(["postrun", "--prefix"]).arg(job.prefix()).arg("--hostfile").arg(hosts);
    command
}

fn expect_saved(job: &FinishedJob, ended: &Output) {
    assert_eq!(code(ended), 0, "{}", err(ended));
    for rank in 0..2 {
        assert!(fs::read(job.prefix().join(format!("ckpt.1/rank_{rank}"))).unwrap() == [b'x'; 1000]);
    }
    assert!(line(&status(job, &[]), "in prefix").starts_with("ckpt.1"));
}

/// The file is not synced, so that the power may leave it without bytes, or without its name. Nothing was saved.
#[test]
fn what_is_in_cache_is_saved_though_the_flush_file_is_damaged_or_lost() {
    let damages: [fn(&mut Vec<u8>); 3] =
        [Vec::clear, |bytes| bytes.truncate(20), |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1)];
    for damage in damages {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
        let file = job.prefix().join(".scr/flush.scr");
        let mut bytes = fs::read(&file).unwrap();
        damage(&mut bytes);
        fs::write(&file, bytes).unwrap();
        let ended = postrun(&job);
        let said = err(&ended);
        assert_eq!(said.matches("it counts as empty, and what the nodes").count(), 1, "{said}");
        expect_saved(&job, &ended);
    }
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    fs::remove_file(job.prefix().join(".scr/flush.scr")).unwrap();
    let ended = postrun(&job);
    assert!(err(&ended).contains("flush.scr lacks datasets that the nodes have"), "{}", err(&ended));
    expect_saved(&job, &ended);
}

/// They said that nothing was to be saved, or protected by an older one.
#[test]
fn without_the_list_and_without_the_nodes_it_is_not_known_what_is_in_cache() {
    for damage in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "")] {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
        assert_eq!(code(&status(&job, &[])), 0);
        damage(&job.prefix().join(".scr/flush.scr")).unwrap();
        ["n0", "n1"].iter().for_each(|node| fs::write(job.path().join("lost").join(node), "").unwrap());
        let silent = status(&job, &[]);
        assert_eq!((code(&silent), line(&silent, "protected").as_str()), (1, "not known: no node answers"));
        let ended = postrun(&job);
        assert_eq!(code(&ended), 1, "{}", err(&ended));
        assert!(!out(&ended).contains("nothing to save"), "{}", out(&ended));
        assert!(err(&ended).contains("it is not known what is in cache only"), "{}", err(&ended));
        ["n0", "n1"].iter().for_each(|node| fs::remove_file(job.path().join("lost").join(node)).unwrap());
        expect_saved(&job, &postrun(&job));
    }
}

/// It went on to say that `scr postrun' saves it, and that a run restarts from it.
#[test]
fn what_could_not_be_saved_for_wrong_bytes_is_lost_from_then_on() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    assert_eq!(line(&status(&job, &[]), "next"), "`scr postrun' saves ckpt.1");
    let of_other =
        command(&job, &[job.prefix().to_str().unwrap()]).env("SCR_JOB_ID", "other").output().unwrap();
    assert_eq!(line(&of_other, "next"), "a run starts without a checkpoint");
    for rank in 0..2 {
        let part = job.node(rank).join(format!("user1/scr.defjobid/scr.dataset.1/r{rank}/rank_{rank}"));
        fs::write(part, [b'y'; 1000]).unwrap();
    }
    let ended = postrun(&job);
    assert!(code(&ended) == 1 && err(&ended).contains("`ckpt.1' could not be saved: "), "{}", err(&ended));
    let after = status(&job, &[]);
    assert!(line(&after, "in cache").starts_with("ckpt.1 is lost: "), "{}", out(&after));
    assert_eq!(line(&after, "next"), "a run starts without a checkpoint");
}

/// They were said to be lost, with the advice to drop them.
#[test]
fn what_another_release_wrote_or_what_lacks_its_plugin_is_not_known_and_nobody_is_told_to_drop_it() {
    let of_n0 = "user1/scr.defjobid/scr.dataset.1";
    let from_another_release = |job: &FinishedJob| {
        for rank in 0..2 {
            let map = job.node(rank).join(of_n0).join(format!(".scr/filemap_{rank}"));
            let mut bytes = fs::read(&map).unwrap();
            bytes[7] = 9;
            fs::write(map, bytes).unwrap();
        }
    };
    let without_plugin = |job: &FinishedJob| {
        fs::remove_file(job.plugins().join("xor.toml")).unwrap();
        fs::remove_dir_all(job.node(1).join("user1")).unwrap();
    };
    let other = "were written by another release of scr (format 9, this one reads 2): save them by that release's `scr \
                 postrun'";
    for (make, why) in [
        (&from_another_release as &dyn Fn(&FinishedJob), other),
        (&without_plugin, "the plugin of the scheme XOR cannot be loaded: "),
    ] {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
        make(&job);
        let seen = status(&job, &[]);
        assert_eq!((code(&seen), &*line(&seen, "protected")), (1, "not known: ckpt.1 may be whole"));
        assert!(line(&seen, "in cache").starts_with("ckpt.1 is not known: "), "{}", out(&seen));
        assert!(why_of(&job, &[])[0].contains(why), "{:?}", why_of(&job, &[]));
        let ended = postrun(&job);
        let said = err(&ended);
        assert!(code(&ended) == 1 && said.contains("`ckpt.1' could not be saved: "), "{said}");
        assert!(said.contains(why) && !said.contains("--drop"), "{said}");
        assert!(job.node(0).join(of_n0).join("r0/rank_0").exists());
    }
    // Without the list there is nothing by which it could be missed.
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    from_another_release(&job);
    fs::remove_file(job.prefix().join(".scr/flush.scr")).unwrap();
    let ended = postrun(&job);
    assert!(code(&ended) == 1 && err(&ended).contains(other), "{}", err(&ended));
}

/// Nothing was lost, and the user was told that it may be, and to drop it.
#[test]
fn what_cannot_be_copied_to_the_prefix_directory_is_not_lost_and_the_reason_is_said_last() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    fs::write(job.prefix().join("ckpt.1"), "in the way").unwrap();
    let ended = postrun(&job);
    let said = err(&ended);
    let last =
        said.lines().rfind(|line| line.contains("`ckpt.1' could not be saved: node n")).unwrap_or_default();
    let why = "is needed as a folder and is a file; move it away";
    assert_eq!(code(&ended), 1, "{said}");
    assert!(last.contains(why) && last.ends_with("the nodes still have it whole [SCR-510]"), "{said}");
    assert!(!last.contains("lost") && !said.contains("--drop"), "{said}");
    let noted = line(&status(&job, &[]), "last error");
    assert!(noted.contains(why) && !noted.contains("lost"), "{noted}");
    fs::remove_file(job.prefix().join("ckpt.1")).unwrap();
    expect_saved(&job, &postrun(&job));
}

/// It was called lost, or one in the prefix directory was named, though a run flushes it first and restarts from it.
#[test]
fn where_ranks_read_in_the_prefix_directory_a_run_restarts_from_what_it_flushes_first() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let seen = command(&job, &[]).env("SCR_GLOBAL_RESTART", "1").arg(job.prefix()).output().unwrap();
    assert_eq!(line(&seen, "protected"), "against the loss of any 1 of 2 nodes (XOR)");
    assert_eq!(line(&seen, "lost with"), "1 node: nothing more, back to ckpt.1");
    fs::write(job.path().join("lost/n1"), "").unwrap();
    let seen = command(&job, &[]).env("SCR_GLOBAL_RESTART", "1").arg(job.prefix()).output().unwrap();
    assert_eq!(line(&seen, "lost with"), "1 node or more: all work, as no checkpoint is left");
}

/// It was said to have finished, and to have died once the halt file was removed.
#[test]
fn a_job_that_a_halt_condition_has_stopped_is_said_to_be_stopped_and_why() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "1")]);
    let prefix = Prefix::new(job.prefix());
    let state = || out(&status(&job, &[])).lines().next().unwrap().split_once(": ").unwrap().1.to_owned();
    for (ended, expected) in [
        (Ended::Halted("no time is left".to_owned()), "job defjobid was stopped by a halt condition"),
        (Ended::Finished, "job defjobid has finished"),
    ] {
        let is_halted = ended != Ended::Finished;
        Halt::end(&RealFiles, &prefix, 0, false).unwrap();
        LastRun::end(&RealFiles, &prefix, ended).unwrap();
        assert_eq!(state(), expected);
        assert!(Halt::remove(&RealFiles, &prefix).unwrap());
        assert_eq!(state(), expected);
        let seen = status(&job, &[]);
        assert_eq!(out(&seen).contains("\nreason      no time is left\n"), is_halted, "{}", out(&seen));
        let json = json_of(&status(&job, &["--json"]));
        assert_eq!(json["stopped_by"].as_str(), is_halted.then_some("no time is left"));
        // It said `halt now', or nothing, and did not say of what.
        let halt = |change: &dyn Fn(&mut Halt)| _ = Halt::update(&RealFiles, &prefix, change).unwrap();
        halt(&|halt| halt.checkpoints_left = Some(3));
        assert_eq!(line(&status(&job, &[]), "next"), "a run halts after 3 checkpoints");
        halt(&|halt| halt.exit_reason = Some(Halt::HALTED.to_owned()));
        assert_eq!(line(&status(&job, &[]), "next"), "a run halts at once");
        // The allocation of the last run is over, and the next run is in another one.
        halt(&|halt| *halt = Halt { halt_seconds: Some(60), ..Halt::default() });
        let run = LastRun::read(&RealFiles, &prefix).unwrap().unwrap();
        LastRun { end: Some(1), ..run }.write(&RealFiles, &prefix).unwrap();
        assert_eq!(json_of(&status(&job, &["--json"]))["halt"], Value::Null);
        assert!(Halt::remove(&RealFiles, &prefix).unwrap());
    }
}

/// What its original had in cache was said to be lost, or that `scr postrun' saved it here.
#[test]
fn a_copy_of_a_prefix_directory_has_nothing_in_cache_until_its_original_is_gone() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let copy = job.path().join("copy");
    assert!(Command::new("cp").arg("-a").args([&job.prefix(), &copy]).status().unwrap().success());
    let of_copy = |arguments: &[&str]| {
        let output = scr(&job).args(arguments).arg("--prefix").arg(&copy).output().unwrap();
        out(&output) + &err(&output)
    };
    fs::write(job.path().join("hosts"), "n0\nn1\n").unwrap();
    let belongs = format!("belongs to the prefix directory {}, which is still there", job.prefix().display());
    for (arguments, says) in [
        (&["status"][..], "in cache    nothing\n"),
        (&["index"], "lists no dataset"),
        (
            &["postrun", "--hostfile", &job.path().join("hosts").display().to_string()],
            "there is nothing to save",
        ),
    ] {
        let said = of_copy(arguments);
        assert!(said.contains(says) && said.contains(&belongs), "{arguments:?}: {said}");
    }
    assert_eq!(line(&status(&job, &[]), "next"), "`scr postrun' saves ckpt.1");
    fs::rename(job.prefix(), job.path().join("aside")).unwrap();
    assert!(of_copy(&["status"]).contains("in cache    ckpt.1, "), "{}", of_copy(&["status"]));
}

/// Its filemaps stay where it was saved, and were taken for those of one that is still to be given its names.
#[test]
fn what_was_saved_can_be_dropped_and_listed_again() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    expect_saved(&job, &postrun(&job));
    for again in [["--add", "ckpt.1"], ["--build", "1"]] {
        for arguments in [["--drop", "ckpt.1"], again] {
            let ended =
                scr(&job).args(["index", "--prefix"]).arg(job.prefix()).args(arguments).output().unwrap();
            assert_eq!(code(&ended), 0, "{arguments:?}: {}", err(&ended));
        }
        assert!(line(&status(&job, &[]), "in prefix").starts_with("ckpt.1"));
    }
}

/// The nodes still have it, and nobody noticed until they were gone.
#[test]
fn a_checkpoint_without_its_summary_is_saved_again() {
    let job = FinishedJob::new();
    let summary = job.prefix().join(".scr/scr.dataset.1/summary.scr");
    for damage in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "x")] {
        damage(&summary).unwrap();
        expect_saved(&job, &postrun(&job));
        assert!(fs::metadata(&summary).unwrap().len() > 100);
    }
}

/// It was said to be safe there, and a run of this release went back further.
#[test]
fn a_checkpoint_whose_summary_is_of_a_later_release_is_not_counted_on() {
    let job = FinishedJob::new();
    let summary = job.prefix().join(".scr/scr.dataset.1/summary.scr");
    let files = &RealFiles as &dyn Files;
    let mut tree = files.read_tree(&summary).unwrap().unwrap();
    tree.set("VERSION", 8);
    files.write_tree(&summary, &tree, 0o600, Durability::Unsynced).unwrap();
    fs::remove_dir_all(job.path().join("nodes")).unwrap();
    let shown = status(&job, &[]);
    assert_eq!((code(&shown), line(&shown, "in prefix").as_str()), (1, "nothing"), "{}", out(&shown));
    let why =
        "summary.scr was written by another release of scr (format version 8, and this one reads 6 to 7)";
    assert!(err(&shown).contains(why), "{}", err(&shown));
    let index = |word| scr(&job).args(["index", word, "--prefix"]).arg(job.prefix()).output().unwrap();
    let listed = index("--list");
    assert!(
        out(&listed).contains("   1 NO ") && err(&listed).contains(why),
        "{}{}",
        out(&listed),
        err(&listed)
    );
    assert_eq!(json_of(&index("--json"))["datasets"][0]["valid"], false);
    let formats = scr(&job).arg("--formats").output().unwrap();
    let is_same = |line: &str| line.starts_with("summary.scr") && line.contains(" 6 to 7 ");
    assert!(out(&formats).lines().any(is_same), "{}", out(&formats));
}

/// Their node was said not to answer.
#[test]
fn parts_of_another_release_are_not_known_for_that_reason() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_COPY_TYPE", "XOR")]);
    let map = job.node(1).join("user1/scr.defjobid/scr.dataset.1/.scr/filemap_1");
    let mut bytes = fs::read(&map).unwrap();
    bytes[7] += 1;
    fs::write(&map, bytes).unwrap();
    let shown = status(&job, &[]);
    assert_eq!(line(&shown, "protected"), "against nothing: 1 part not known, as n1 could not read all");
    let why = "n1 could not read all: the files of dataset 1 were written by another release";
    assert!(line(&shown, "as of").contains(why), "{}", out(&shown));
}

/// They asked `ssh n0', or this machine alone: a checkpoint that was whole could not be saved, and was to be dropped.
#[test]
fn pretend_nodes_are_asked_through_the_note_that_run_on_nodes_leaves() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    scr(&job);
    let (bin, repository) = (job.path().join("bin"), Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    fs::write(bin.join("ssh"), "#!/bin/sh\necho 'no ssh' >&2; exit 255\n").unwrap();
    put_command(&bin.join("scr"));
    symlink(repository.join("scripts/run-on-nodes"), bin.join("run-on-nodes")).unwrap();
    fs::write(bin.join("mpiexec"), "#!/bin/sh\necho starts\n").unwrap();
    fs::set_permissions(bin.join("mpiexec"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |program: &str, words: &str| {
        let mut command = Command::new(bin.join(program));
        command.env_clear().current_dir(job.prefix()).env("USER", "user1").env("COLUMNS", "1000");
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("PRETEND_MODE", "names");
        command.env("SCR_PLUGIN_PATH", job.plugins()).args(words.split(' ')).output().unwrap()
    };
    let unasked = run("scr", "status");
    assert_eq!(line(&unasked, "protected"), "not known: no node answers");
    let nodes = job.path().join("nodes").display().to_string();
    let started = run("run-on-nodes", &format!("--mpi foo --nodes {nodes} --hosts n0:1,n1:1 true"));
    assert_eq!(code(&started), 0, "{}", err(&started));

    let whole = run("scr", "status");
    assert_eq!(line(&whole, "protected"), "against the loss of any 1 of 2 nodes (XOR)", "{}", err(&whole));
    let inspected = run("scr", "inspect");
    assert!(
        code(&inspected) == 0 && out(&inspected).contains("ckpt.1"),
        "{}{}",
        out(&inspected),
        err(&inspected)
    );
    // A file that somebody else can write could lead root anywhere.
    let note = job.prefix().join(".scrpretend");
    for (mode, asked) in [(0o666, false), (0o644, true)] {
        fs::set_permissions(&note, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(code(&run("scr", "inspect")) == 0, asked, "{mode:o}");
    }
    if rustix::process::geteuid().is_root() {
        chown(&note, Some(61_001), None).unwrap();
        assert_ne!(code(&run("scr", "inspect")), 0);
        chown(&note, Some(0), None).unwrap();
    }

    fs::remove_dir_all(job.node(1)).unwrap();
    let one_lost = run("scr", "status");
    assert!(line(&one_lost, "in cache").contains("1 of 2 parts to be rebuilt"), "{}", out(&one_lost));
    // It was not known what such a node has.
    assert_eq!(line(&one_lost, "as of"), "now, on 2 nodes");
    assert!(!job.node(1).exists(), "a look makes nothing");
    let saved = run("scr", "postrun");
    assert!(code(&saved) == 0 && err(&saved).contains("is complete in "), "{}", err(&saved));
    assert!(job.prefix().join("ckpt.1/rank_1").exists());
    fs::remove_dir_all(&nodes).unwrap();
    // A checkpoint of a job that has finished was said to be in cache for ever.
    let gone = run("scr", "status");
    assert!(line(&gone, "in cache").starts_with("ckpt.1 is lost: "), "{}", out(&gone));
    assert_eq!(line(&gone, "next"), "a run restarts from ckpt.1");
    // A run on this machine itself has nothing to do with them.
    let run_here = LastRun { nodes: vec!["elsewhere".to_owned()], ranks: 2, ..LastRun::default() };
    run_here.write(&RealFiles, &Prefix::new(job.prefix())).unwrap();
    assert!(!out(&run("scr", "inspect")).contains("ckpt.1"));
}

#[test]
fn of_many_jobs_each_has_a_line_and_the_worst_is_first() {
    let [safe, cached, lost] = [(); 3].map(|()| FinishedJob::with_settings(&[("SCR_FLUSH", "0")]));
    fs::remove_dir_all(lost.path().join("nodes")).unwrap();
    let flushed = FinishedJob::new();
    let dirs = [&flushed, &safe, &lost].map(|job| job.prefix().display().to_string());
    let all = |dirs: &[String], more: &[&str]| {
        let words = dirs.iter().map(String::as_str);
        let mut command = command(&cached, &[&["--all"], &words.collect::<Vec<_>>()[..], more].concat());
        // The caches of all of these jobs.
        command
            .env("SCR_CACHE_BASE", safe.path().join("nodes/$SCR_NODE_NAME"))
            .env("COLUMNS", "1000")
            .output()
            .unwrap()
    };
    let found = all(&dirs, &["--offline"]);
    // Two jobs have died, and their only checkpoint ends with the allocation.
    assert_eq!(code(&found), 1, "what is recorded: {}{}", out(&found), err(&found));
    assert_eq!(code(&all(&dirs[..1], &["--offline"])), 0);
    let wrong = cached.path().join("nowhere").display().to_string();
    let asked = all(&[&dirs[..], std::slice::from_ref(&wrong)].concat(), &[]);
    let text = out(&asked);
    let ends: Vec<_> = text.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(code(&asked), 1, "{text}{}", err(&asked));
    // What can still be saved goes before what is lost.
    assert_eq!((ends[0], ends[1], ends[2]), (&*wrong, &*dirs[1], &*dirs[2]), "{text}");
    assert!(text.lines().nth(1).unwrap().contains("there is no prefix directory"), "{text}");
    assert!(text.contains("died   against the loss of any 1 of 2 nodes (XOR)"), "{text}");
    let json = json_of(&all(&dirs, &["--json"]));
    assert_eq!(json["jobs"][0]["prefix"], dirs[1].as_str(), "{json}");
    assert_eq!(json["jobs"].as_array().unwrap().len(), 3);
}

/// It copied what the job was still to replace, and the job counted as failed from then on.
#[test]
fn of_a_job_that_goes_on_nothing_is_saved_and_of_any_other_everything() {
    let own = std::process::id();
    for (allocation, process, silent, said, is_refused) in [
        ("defjobid", own, false, &[][..], true),
        ("defjobid", own, false, &["--ended"], false),
        ("defjobid", own, true, &[], false),
        // Process 1 has got the number of one that is dead.
        ("defjobid", 1, false, &[], false),
        ("78", own, false, &[], false),
    ] {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_LOG_SYSLOG_ENABLE", "0")]);
        let line = format!("allocation {allocation}, rank 0 is process {process} on n0");
        let begin = || {
            Running::begin(&RealFiles, &Prefix::new(job.prefix()), &format!("{line}, since now"), 0, false)
        };
        let at_work = begin();
        let mut command = postrun_of(&job);
        if silent {
            fs::write(job.path().join("lost/n0"), "").unwrap();
        }
        let logs = [("SCR_LOG_ENABLE", "1"), ("SCR_LOG_TXT_ENABLE", "1"), ("SCR_LOG_SYSLOG_ENABLE", "0")];
        let ended = command.args(said).envs(logs).output().unwrap();
        if !is_refused {
            assert!(!err(&ended).contains("has not ended"), "{}", err(&ended));
            expect_saved(&job, &ended);
            continue;
        }
        let text = err(&ended);
        assert_eq!(code(&ended), 2, "{text}");
        assert!(
            text.contains(&format!("job defjobid has not ended, and nothing is saved ({line}, ")),
            "{text}"
        );
        assert!(text.contains("--ended") && text.contains("[SCR-511]"), "{text}");
        assert!(!job.prefix().join("ckpt.1").exists());
        let log = fs::read_to_string(job.prefix().join(".scr/log")).unwrap_or_default();
        assert!(!log.contains("POSTRUN_START"), "{log}");
        // It is just ending while its node is asked.
        let ssh = SSH.replacen('\n', "\n: >$LOST/asked\n", 1);
        fs::write(job.path().join("bin/ssh"), ssh).unwrap();
        let waiting = postrun_of(&job).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !job.path().join("lost/asked").exists() {
            std::thread::yield_now();
        }
        drop(at_work);
        expect_saved(&job, &waiting.wait_with_output().unwrap());
    }
}

/// Beside a job that went on, the command copied what that had in cache, though no run of its own had begun.
#[test]
fn a_command_whose_runs_another_job_refuses_saves_nothing_of_that() {
    for (is_there, is_saved) in [(true, false), (false, true)] {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_LOG_SYSLOG_ENABLE", "0")]);
        let line = format!("allocation defjobid, rank 0 is process {} on n0, since now", std::process::id());
        let begin = || Running::begin(&RealFiles, &Prefix::new(job.prefix()), &line, 0, false);
        let _at_work = is_there.then(begin);
        let mut command = scr(&job);
        fs::write(job.path().join("hosts"), "n0\nn1\n").unwrap();
        command.args(["run", "--prefix"]).arg(job.prefix()).arg("--hostfile").arg(job.path().join("hosts"));
        let ended = command.arg("false").output().unwrap();
        let text = err(&ended);
        assert_eq!(text.contains(&format!("nothing is saved ({line})")), is_there, "{text}");
        assert_eq!(job.prefix().join("ckpt.1").exists(), is_saved, "{text}");
    }
}

/// The nodes of the run that began last were asked, and then the advice was to drop the dataset.
#[test]
fn where_the_nodes_of_an_allocation_are_not_on_record_postrun_says_so() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_LOG_SYSLOG_ENABLE", "0")]);
    let (prefix, nodes) = (Prefix::new(job.prefix()), vec!["n7".to_owned()]);
    LastRun { job_id: "78".to_owned(), nodes, ..LastRun::default() }.write(&RealFiles, &prefix).unwrap();
    let postrun = |listed: Option<&str>| {
        let mut command = scr(&job);
        command.args(["postrun", "--prefix"]).arg(job.prefix()).env("SCR_JOB_ID", "defjobid");
        match listed {
            Some(nodes) => command.env("SCR_NODELIST", nodes),
            None => command.env("SCR_NODE_NAME", "n9"),
        };
        command.output().unwrap()
    };
    let unknown = postrun(None);
    let text = err(&unknown);
    assert_eq!(code(&unknown), 1, "{text}");
    assert!(
        text.contains("are not on record: name them in SCR_NODELIST") && !text.contains("--drop"),
        "{text}"
    );
    let saved = postrun(Some("n[0-1]"));
    assert!(code(&saved) == 0 && job.prefix().join("ckpt.1/rank_1").exists(), "{}", err(&saved));
}

/// It was said that there is no checkpoint.
#[test]
fn with_an_index_that_cannot_be_read_and_nothing_in_cache_nothing_is_known() {
    let job = FinishedJob::new();
    (0..2).for_each(|node| fs::remove_dir_all(job.node(node).join("user1")).unwrap());
    fs::remove_file(job.prefix().join(".scr/index.scr")).unwrap();
    symlink("index.scr", job.prefix().join(".scr/index.scr")).unwrap();
    let unknown = status(&job, &[]);
    for label in ["protected", "in prefix", "lost with"] {
        assert!(line(&unknown, label).contains("not known"), "{}", out(&unknown));
    }
    assert!(!out(&unknown).contains("no checkpoint"), "{}", out(&unknown));
}

/// The job that had begun last was said to run.
#[test]
fn a_job_beside_the_one_that_began_last_is_named() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    for (allocation, state, row) in [("78", " has died", true), ("defjobid", " runs, ", false)] {
        let line = format!("allocation {allocation}, rank 0 is process 7 on n0");
        let _at_work = Running::begin(&RealFiles, &Prefix::new(job.prefix()), &line, 0, false);
        let text = out(&status(&job, &[]));
        assert!(text.lines().next().unwrap().contains(&format!("job defjobid{state}")), "{text}");
        assert_eq!(text.contains(&format!("also runs   {line}")), row, "{text}");
    }
}

/// A run was taken for ended whose first node was not among those named, or that was not the last one to begin.
#[test]
fn a_job_that_goes_on_is_known_whichever_nodes_are_named_and_whichever_began_last() {
    let own = std::process::id();
    for (allocation, line, named) in [
        ("defjobid", format!("allocation defjobid, rank 0 is process {own} on n0"), "n1"),
        ("78", "allocation 78, rank 0 is process 1 on n7".to_owned(), "n[0-1]"),
    ] {
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
        let _at_work =
            Running::begin(&RealFiles, &Prefix::new(job.prefix()), &format!("{line}, since now"), 0, false);
        let mut command = postrun_of(&job);
        let ended = command.env("SCR_JOB_ID", allocation).env("SCR_NODELIST", named).output().unwrap();
        assert_eq!(code(&ended), 2, "{}", err(&ended));
        assert!(
            err(&ended).contains(&format!("has not ended, and nothing is saved ({line}")),
            "{}",
            err(&ended)
        );
    }
}

/// The message named a file that had never been there, and said that the nodes still had all of it.
#[test]
fn the_damaged_file_in_cache_is_named_for_which_a_dataset_cannot_be_saved() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let cached =
        |rank: u32| job.node(rank).join(format!("user1/scr.defjobid/scr.dataset.1/r{rank}/rank_{rank}"));
    (0..2).for_each(|rank| fs::write(cached(rank), [b'y'; 1000]).unwrap());
    let ended = postrun(&job);
    let text = err(&ended).replace("\n    ", " ");
    assert_eq!(code(&ended), 1, "{text}");
    for rank in 0..2 {
        let why =
            format!("{rank} (written on n{rank}; {} is damaged: its checksum is ", cached(rank).display());
        assert!(text.contains(&why), "{why}: {text}");
    }
    assert!(!text.contains(".part:") && !text.contains("still have it whole"), "{text}");
    fs::write(cached(0), [b'x'; 1000]).unwrap();
    let saved = postrun(&job);
    assert!(err(&saved).contains("; the parts of ranks 1 were rebuilt"), "{}", err(&saved));
    expect_saved(&job, &saved);
}

/// It was said that a run or `scr postrun` ends it, beside the row that says that it is lost.
#[test]
fn of_a_flush_whose_dataset_is_lost_in_cache_the_rest_is_said_to_be_lost() {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0")]);
    let prefix = Prefix::new(job.prefix());
    let dataset = FlushFile::read(&RealFiles, &prefix).unwrap().entry(1).unwrap().dataset;
    let (token, make_current, sharing) = ("t".to_owned(), MakeCurrent::default(), CommonFiles::default());
    let flush = PendingFlush { token, dataset, ranks: 2, marks: 1, make_current, revoked: false, sharing };
    flush.write(LedgerDir::new(&RealFiles, &prefix)).unwrap();
    let said = || line(&status(&job, &[]), "unfinished").split_once("; ").unwrap().1.to_owned();
    assert_eq!(said(), "a run or `scr postrun' ends it");
    // It was said of what `scr postrun' does not save, and has not ended.
    let mut unsaved = command(&job, &[job.prefix().to_str().unwrap()]);
    let unsaved = line(&unsaved.env("SCR_SCAVENGE", "0").output().unwrap(), "unfinished");
    assert!(unsaved.ends_with("; a run ends it"), "{unsaved}");
    (0..2).for_each(|node| fs::remove_dir_all(job.node(node)).unwrap());
    assert_eq!(said(), "the rest is lost");
}
