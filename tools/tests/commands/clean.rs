//! `scr clean`: what it removes, and what it must keep.

use crate::answer::{code, err, json_of, out};
use crate::finished_job::FinishedJob;
use crate::installation::put_command;
use scr_base::fs::{Files, RealFiles};
use scr_ops::drop_dataset;
use scr_prefix::Prefix;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// The id of the allocation, which no process of this user has. Tests run at the same time, here and elsewhere.
static JOB: LazyLock<String> = LazyLock::new(|| format!("t{}", std::process::id()));

fn flushed() -> FinishedJob {
    FinishedJob::with_settings(&[("SCR_FLUSH", "1"), ("SCR_JOB_ID", &JOB)])
}

fn unflushed() -> FinishedJob {
    FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_JOB_ID", &JOB)])
}

fn user_folder(job: &FinishedJob) -> PathBuf {
    job.node(0).join("user1")
}

fn folder(job: &FinishedJob) -> PathBuf {
    user_folder(job).join(format!("scr.{}", *JOB))
}

fn command(job: &FinishedJob, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.env_clear().current_dir(job.prefix()).env("USER", "user1").env("PATH", job.path().join("bin"));
    command.env("SCR_CACHE_BASE", job.node(0)).env("SCR_CNTL_BASE", job.node(0));
    // Commands of tests at the same time are no processes of an allocation that one of them asks for.
    command.env("SCR_JOB_ID", format!("clean{}", std::process::id()));
    command.arg("clean").args(arguments);
    command
}

fn clean(job: &FinishedJob, arguments: &[&str]) -> Output {
    command(job, arguments).output().unwrap()
}

/// A container or a wrapper had given the job another name, and nothing was found.
#[test]
fn a_command_with_another_user_name_finds_what_the_job_has_left() {
    let job = flushed();
    let other = |arguments: &[&str]| command(&job, arguments).env("USER", "somebody-else").output().unwrap();
    let found = other(&["--allocation", &JOB, "--ended", "--dry-run"]);
    assert!(out(&found).contains(&format!("user1/scr.{}", *JOB)), "{}{}", out(&found), err(&found));
    assert_eq!(code(&other(&["--allocation", &JOB, "--ended"])), 0);
    assert!(!folder(&job).exists());
}

#[test]
fn metrics_go_with_the_allocation_that_has_written_them() {
    let metrics = tempfile::tempdir().unwrap();
    let dir = metrics.path().to_str().unwrap();
    let job =
        FinishedJob::with_settings(&[("SCR_FLUSH", "1"), ("SCR_JOB_ID", &JOB), ("SCR_METRICS_DIR", dir)]);
    fs::write(metrics.path().join(format!("scr.user1.{}0.n0.00000000.prom", *JOB)), "").unwrap();
    let left = || fs::read_dir(metrics.path()).unwrap().count();
    assert_eq!(left(), 2);
    let clean = |more: &[&str]| {
        let arguments = [&["--allocation", &JOB, "--ended"], more].concat();
        command(&job, &arguments).env("SCR_METRICS_DIR", dir).output().unwrap()
    };
    assert_eq!((code(&clean(&["--dry-run"])), left()), (0, 2));
    assert_eq!((code(&clean(&[])), left()), (0, 1), "that of another allocation stays");
}

/// An epilog said "nothing is left" of a job with a cache of its own.
#[test]
fn an_epilog_and_a_prolog_of_root_find_what_a_job_with_settings_of_its_own_has_left() {
    const USER: u32 = 64_321;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let id = format!("9{:08}", std::process::id());
    let job = FinishedJob::recording(&[("SCR_FLUSH", "1"), ("SCR_JOB_ID", &id)], USER);
    let left = job.node(0).join(format!("user1/scr.{id}"));
    let record = job.path().join(format!("record/user1/scr.{id}"));
    // The two nodes of the test have one record, and either may have written last.
    let recorded = scr_core::recorded_bases(&scr_base::fs::RealFiles, &record);
    assert!(left.is_dir() && !recorded.is_empty(), "{recorded:?}");
    // The place that every installation knows is that of this test here, by the system file.
    let tree = job.path().join("tree");
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::create_dir_all(tree.join("etc")).unwrap();
    put_command(&tree.join("bin/scr"));
    let known = job.path().join("record");
    fs::write(tree.join("etc/scr.conf"), format!("SCR_CNTL_BASE={0}\nSCR_CACHE_BASE={0}\n", known.display()))
        .unwrap();
    let run = |place: &str, allocation: &str| {
        let (etc, copy) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc"), job.path().join(place));
        let text = fs::read_to_string(etc.join(copy.file_name().unwrap())).unwrap();
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::write(&copy, text.replace("@SCR@", tree.to_str().unwrap())).unwrap();
        let mut root = Command::new("/usr/bin/env");
        root.current_dir(job.path());
        root.args(["-i", &format!("SLURM_JOB_ID={allocation}"), "/bin/sh"]).arg(place).output().unwrap()
    };
    let other = run("epilog.sh", "1");
    assert!(code(&other) == 0 && left.is_dir(), "{}", err(&other));
    let prolog = run("prolog.sh", &id);
    assert!(code(&prolog) == 0 && left.is_dir(), "it may still run: {}{}", out(&prolog), err(&prolog));
    let epilog = run("epilog.sh", &id);
    assert_eq!(code(&epilog), 0, "{}", err(&epilog));
    assert!(!record.exists(), "{}{}", out(&epilog), err(&epilog));
    assert!(recorded.iter().all(|base| !base.join(format!("user1/scr.{id}")).exists()), "{}", err(&epilog));
    // Without its tree it said that all was well, and nodes filled.
    fs::rename(&tree, job.path().join("moved")).unwrap();
    let without = run("epilog.sh", &id);
    assert!(
        code(&without) == 1 && err(&without).contains("/tree/bin/scr: name the tree"),
        "{}",
        err(&without)
    );
    // The copy lies in the tree, or in a folder of it.
    fs::rename(job.path().join("moved/bin"), job.path().join("bin.of.tree")).unwrap();
    fs::create_dir_all(job.path().join("bin")).unwrap();
    fs::rename(job.path().join("bin.of.tree/scr"), job.path().join("bin/scr")).unwrap();
    for place in ["epilog.sh", "site/epilog.sh"] {
        let copied = run(place, &id);
        // Called by a relative path it found no command, and said that all was well.
        assert!(code(&copied) == 0 && !err(&copied).contains("not found"), "{place}: {}", err(&copied));
    }
}

/// Status called such a dataset lost, and postrun advised to drop it. The first clean kept it and forgot where it was.
#[test]
fn what_a_job_with_a_cache_of_its_own_has_left_is_found_until_it_is_saved() {
    let id = format!("8{:08}", std::process::id());
    let uid = rustix::process::getuid().as_raw();
    let job =
        FinishedJob::recording(&[("SCR_FLUSH", "0"), ("SCR_COPY_TYPE", "XOR"), ("SCR_JOB_ID", &id)], uid);
    let record = job.path().join(format!("record/user1/scr.{id}"));
    let tree = job.path().join("tree");
    ["bin", "etc"].iter().for_each(|folder| fs::create_dir_all(tree.join(folder)).unwrap());
    put_command(&tree.join("bin/scr"));
    let known = job.path().join("record").display().to_string();
    fs::write(tree.join("etc/scr.conf"), format!("SCR_CNTL_BASE={known}\nSCR_CACHE_BASE={known}\n")).unwrap();
    let scr = |words: &str| {
        let mut command = Command::new(tree.join("bin/scr"));
        command.env_clear().current_dir(job.prefix()).env("USER", "user1").env("SCR_JOB_ID", &id);
        command.env("SCR_PLUGIN_PATH", job.plugins()).args(words.split(' ')).output().unwrap()
    };
    let inspected = scr("inspect");
    assert!(
        code(&inspected) == 0 && out(&inspected).contains("ckpt.1"),
        "{}{}",
        out(&inspected),
        err(&inspected)
    );
    let shown = scr("status");
    assert!(!out(&shown).contains("lost: no node"), "{}", out(&shown));
    let clean = format!("clean --allocation {id} --ended");
    for words in [format!("{clean} --dry-run"), clean.clone(), clean.clone()] {
        let kept = scr(&words);
        assert_eq!(code(&kept), 1, "{words}: {}{}", out(&kept), err(&kept));
        assert!(record.exists() && err(&kept).contains("Save it with `scr postrun'"), "{}", err(&kept));
    }
    let saved = scr("postrun");
    assert!(code(&saved) == 0 && err(&saved).contains("`ckpt.1' is complete in"), "{}", err(&saved));
    let recorded = scr_core::recorded_bases(&RealFiles, &record);
    let cleaned = scr(&clean);
    assert_eq!(code(&cleaned), 0, "{}", err(&cleaned));
    assert!(!record.exists() && !recorded.is_empty(), "{}", out(&cleaned));
    assert!(recorded.iter().all(|base| !base.join(format!("user1/scr.{id}")).exists()), "{}", out(&cleaned));
}

/// Each user's part was an answer of its own, and "nothing is left" followed what was kept.
#[test]
fn all_users_have_one_answer() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (user, uid, id) in [("ann", 61_001, "77"), ("bob", 61_002, "78"), ("eve", 61_003, "77")] {
        for path in [folder.path().join(user), folder.path().join(format!("{user}/scr.{id}"))] {
            fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
        }
    }
    // A folder for metrics, which everybody may write, was taken for that of a user.
    let metrics = folder.path().join("metrics");
    fs::create_dir(&metrics).unwrap();
    fs::set_permissions(&metrics, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(metrics.join("scr.ann.77.n0.00000000.prom"), "").unwrap();
    let clean = |arguments: &[&str]| {
        let mut root = Command::new(env!("CARGO_BIN_EXE_scr"));
        root.env_clear().envs([("SCR_CNTL_BASE", folder.path()), ("SCR_CACHE_BASE", folder.path())]);
        root.args(["clean", "--all-users", "--allocation", "77"]).args(arguments).output().unwrap()
    };
    let kept = clean(&[]);
    assert_eq!((code(&kept), out(&kept).as_str()), (1, "2 folders kept\n"), "{}", err(&kept));
    assert_eq!(json_of(&clean(&["--json"]))["folders"].as_array().unwrap().len(), 2);
    let removed = clean(&["--ended"]);
    assert_eq!((code(&removed), out(&removed).lines().count()), (0, 2), "{}", err(&removed));
    assert_eq!(out(&clean(&["--ended"])), "nothing is left on this node\n");
}

/// Outside of any allocation it reached the jobs that every user runs there.
#[test]
fn root_reaches_the_jobs_of_all_users_outside_of_allocations_only_with_yes() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().display().to_string();
    let clean = |arguments: &[&str]| {
        let mut root = Command::new(env!("CARGO_BIN_EXE_scr"));
        root.env_clear().envs([("SCR_CNTL_BASE", &base), ("SCR_CACHE_BASE", &base)]);
        root.args(["clean", "--all-users"]).args(arguments).output().unwrap()
    };
    for (arguments, expected) in [
        (&[][..], 2),
        (&["--allocation", "defjobid", "--ended"], 2),
        (&["--yes"], 0),
        (&["--dry-run"], 0),
        (&["--dead"], 0),
        (&["--allocation", "7", "--ended"], 0),
    ] {
        let ended = clean(arguments);
        assert_eq!(code(&ended), expected, "{arguments:?}: {}{}", out(&ended), err(&ended));
        assert_eq!(err(&ended).contains("or say --yes"), expected == 2, "{}", err(&ended));
    }
}

/// It was named once for each group that the folders of its user have, and for each path of its base.
#[test]
fn a_folder_is_named_once_whatever_leads_to_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bases = ["cntl", "cache", "link"].map(|name| folder.path().join(name));
    for (base, group) in bases[..2].iter().zip([0, 1]) {
        fs::create_dir_all(base.join("root/scr.7")).unwrap();
        chown(base.join("root"), None, Some(group)).unwrap();
    }
    symlink(&bases[1], &bases[2]).unwrap();
    let mut root = Command::new(env!("CARGO_BIN_EXE_scr"));
    root.env_clear().env("SCR_CNTL_BASE", &bases[0]).env("SCR_CACHE_BASE", &bases[2]);
    root.args(["clean", "--all-users", "--allocation", "7", "--ended", "--dry-run"]);
    let found = root.output().unwrap();
    assert_eq!(out(&found).lines().count(), 2, "{}{}", out(&found), err(&found));
}

/// The command for each user got --yes alone, and refused it.
#[test]
fn root_removes_the_dead_jobs_of_all_users_with_yes() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (base, program) = (folder.path().join("base"), folder.path().join("scr"));
    put_command(&program);
    fs::create_dir(&base).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&base, fs::Permissions::from_mode(0o1777)).unwrap();
    let users = [("one", 64_323), ("two", 64_324)].map(|(name, uid)| {
        let own = base.join(name);
        for dir in [own.clone(), own.join("scr.defjobid"), own.join(format!("scr.{}", *JOB))] {
            fs::create_dir(&dir).unwrap();
            chown(&dir, Some(uid), Some(uid)).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        }
        make_old(&own);
        own
    });
    let mut root = Command::new(&program);
    root.env_clear().envs([("SCR_CNTL_BASE", &base), ("SCR_CACHE_BASE", &base)]);
    let done = root.args(["clean", "--dead", "--all-users", "--yes"]).output().unwrap();
    assert_eq!(code(&done), 0, "{}{}", out(&done), err(&done));
    for own in users {
        let left: Vec<_> = fs::read_dir(&own).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("scr.")), "{left:?}");
    }
}

/// A process that is ended with the test.
struct Running(Child);

impl Running {
    fn start(configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("/bin/sleep");
        configure(command.arg("1000").stdin(Stdio::null()));
        Self(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A resource manager with these jobs.
fn squeue(job: &FinishedJob, script: &str) {
    program(job, "squeue", script);
}

fn program(job: &FinishedJob, name: &str, script: &str) {
    let path = job.path().join("bin").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn make_old(path: &Path) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            make_old(&entry.path());
        } else {
            let old = SystemTime::now() - Duration::from_secs(48 * 3600);
            File::options().write(true).open(entry.path()).unwrap().set_modified(old).unwrap();
        }
    }
    let old = SystemTime::now() - Duration::from_secs(48 * 3600);
    File::open(path).unwrap().set_modified(old).unwrap();
}

#[test]
fn a_finished_job_whose_datasets_are_flushed_leaves_nothing() {
    let job = flushed();
    let other = user_folder(&job).join("scr.other");
    fs::create_dir(&other).unwrap();
    let dry = clean(&job, &["--allocation", &JOB, "--ended", "--dry-run"]);
    assert_eq!((code(&dry), folder(&job).is_dir()), (0, true), "{}", err(&dry));
    assert_eq!(out(&dry), format!("would remove {}\n", folder(&job).display()));
    let done = clean(&job, &["--allocation", &JOB, "--ended"]);
    assert_eq!((code(&done), folder(&job).exists(), other.is_dir()), (0, false, true), "{}", err(&done));
    assert_eq!(out(&done), format!("removed {}\n", folder(&job).display()));
    let again = clean(&job, &["--allocation", &JOB, "--ended"]);
    assert_eq!((code(&again), out(&again).as_str()), (0, "nothing is left on this node\n"));
    let own = format!("own{}", std::process::id());
    let folder = user_folder(&job).join(format!("scr.{own}"));
    fs::create_dir(&folder).unwrap();
    let done = command(&job, &[]).env("SCR_JOB_ID", &own).output().unwrap();
    assert_eq!((code(&done), folder.exists()), (0, false), "{}", err(&done));
}

#[test]
fn a_dataset_that_is_in_cache_only_is_kept_until_a_flag_gives_it_up() {
    let job = unflushed();
    for arguments in [&["--allocation", &JOB, "--ended"][..], &["--allocation", &JOB, "--ended", "--json"]] {
        let kept = clean(&job, arguments);
        assert_eq!((code(&kept), folder(&job).is_dir()), (1, true));
        let text = err(&kept);
        assert!(text.contains("1 dataset is in cache only, such as dataset 1 `ckpt.1'"), "{text}");
        assert!(text.contains("scr postrun") && text.contains("--discard-unsaved"), "{text}");
    }
    let json = json_of(&clean(&job, &["--allocation", &JOB, "--ended", "--json"]));
    assert_eq!(json["folders"][0]["removed"], false);
    for (more, is_there) in [(&["--dry-run"][..], true), (&[], false)] {
        let arguments = [&["--allocation", &JOB, "--ended", "--discard-unsaved"], more].concat();
        let lost = clean(&job, &arguments);
        assert_eq!((code(&lost), folder(&job).exists()), (0, is_there), "{}", err(&lost));
        assert!(
            out(&lost).contains(", and with it dataset 1 `ckpt.1' of /"),
            "it names what is lost: {}",
            out(&lost)
        );
    }
}

/// It asked to save what no run restarts from, and what a build would not list.
#[test]
fn a_dataset_that_was_dropped_goes() {
    let job = unflushed();
    let prefix = Prefix::at(&RealFiles, &job.prefix());
    drop_dataset(&RealFiles, &prefix, b"ckpt.1").unwrap();
    let done = clean(&job, &["--allocation", &JOB, "--ended"]);
    assert_eq!((code(&done), folder(&job).exists()), (0, false), "{}", err(&done));
}

#[test]
fn a_dataset_whose_index_is_gone_or_whose_record_is_damaged_counts_as_not_saved() {
    let job = flushed();
    let index = job.prefix().join(".scr/index.scr");
    let bytes = fs::read(&index).unwrap();
    fs::write(&index, b"no index").unwrap();
    assert_eq!((code(&clean(&job, &["--allocation", &JOB, "--ended"])), folder(&job).is_dir()), (1, true));
    fs::write(&index, bytes).unwrap();
    let mut maps = Vec::new();
    let mut todo = vec![folder(&job)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => todo.push(entry.path()),
                false if entry.file_name().to_string_lossy().contains("filemap") => maps.push(entry.path()),
                false => (),
            }
        }
    }
    assert!(!maps.is_empty());
    maps.iter().for_each(|map| fs::write(map, b"damaged").unwrap());
    assert_eq!((code(&clean(&job, &["--allocation", &JOB, "--ended"])), folder(&job).is_dir()), (1, true));
}

#[test]
fn data_in_use_by_a_process_on_this_node_is_kept() {
    let id = format!("busy{}", std::process::id());
    let id = id.as_str();
    let job = flushed();
    let busy = user_folder(&job).join(format!("scr.{id}"));
    fs::rename(folder(&job), &busy).unwrap();
    let kept = |process: Running| {
        let kept = clean(&job, &["--allocation", id, "--ended", "--discard-unsaved"]);
        assert_eq!((code(&kept), busy.is_dir()), (1, true));
        let expected = format!("process {} of allocation {id} runs on this node", process.0.id());
        assert!(err(&kept).contains(&expected), "{}", err(&kept));
        assert_eq!(
            code(&clean(&job, &["--dead", "--discard-unsaved"])),
            0,
            "a live job is no failure of --dead"
        );
        assert!(busy.is_dir());
    };
    make_old(&busy);
    kept(Running::start(|command| _ = command.env("SCR_JOB_ID", id)));
    kept(Running::start(|command| _ = command.env("PBS_JOBID", id)));
    kept(Running::start(|command| _ = command.current_dir(&busy)));
    assert_eq!((code(&clean(&job, &["--dead"])), busy.exists()), (0, false));
}

#[test]
fn without_a_resource_manager_an_allocation_is_dead_when_nothing_has_changed_for_a_day() {
    let job = flushed();
    let kept = clean(&job, &["--dead"]);
    assert_eq!((code(&kept), folder(&job).is_dir()), (0, true));
    assert!(
        err(&kept).contains(&format!("`scr clean --allocation {} --ended' removes it", *JOB)),
        "{}",
        err(&kept)
    );
    make_old(&folder(&job));
    let done = clean(&job, &["--dead"]);
    assert_eq!((code(&done), folder(&job).exists()), (0, false), "{}", err(&done));
}

#[test]
fn with_a_resource_manager_an_allocation_is_dead_when_it_is_no_longer_listed() {
    let job = flushed();
    let of = |id: &str| user_folder(&job).join(format!("scr.{id}"));
    for id in ["8000001", "8000002"] {
        fs::create_dir(of(id)).unwrap();
    }
    squeue(&job, "echo no controller >&2; exit 1");
    let kept = clean(&job, &["--dead"]);
    assert_eq!(err(&kept).matches("--ended'").count(), 1, "said once for all: {}", err(&kept));
    assert!(
        err(&kept).contains("no controller") && of("8000001").is_dir() && of("8000002").is_dir(),
        "{}",
        err(&kept)
    );
    squeue(&job, "echo 8000001");
    let kept = clean(&job, &["--allocation", "8000001"]);
    assert_eq!((code(&kept), of("8000001").is_dir()), (1, true));
    assert!(err(&kept).contains("allocation 8000001 has not ended"), "{}", err(&kept));
    let done = clean(&job, &["--dead"]);
    assert_eq!((of("8000001").is_dir(), of("8000002").exists(), folder(&job).is_dir()), (true, false, true));
    assert_eq!(out(&done), format!("removed {}\n", of("8000002").display()));
}

#[test]
fn the_user_may_declare_an_allocation_ended_if_the_resource_manager_does_not_answer() {
    let job = flushed();
    let ended = user_folder(&job).join("scr.8000003");
    fs::create_dir(&ended).unwrap();
    squeue(&job, "echo no controller >&2; exit 1");
    let kept = clean(&job, &["--allocation", "8000003"]);
    assert_eq!((code(&kept), ended.is_dir()), (1, true));
    let said = err(&kept);
    assert!(said.contains("squeue") && said.contains("no controller"), "{said}");
    assert!(said.contains("`scr clean --allocation 8000003 --ended' removes it"), "{said}");
    squeue(&job, "echo 8000003");
    let kept = clean(&job, &["--allocation", "8000003", "--ended"]);
    assert_eq!((code(&kept), ended.is_dir()), (1, true), "its word counts where it has one");
    squeue(&job, "echo no controller >&2; exit 1");
    let done = clean(&job, &["--allocation", "8000003", "--ended"]);
    assert_eq!((code(&done), ended.exists()), (0, false), "{}", err(&done));
}

#[test]
fn an_allocation_is_kept_that_any_resource_manager_lists() {
    let job = flushed();
    let of = |id: &str| user_folder(&job).join(format!("scr.{id}"));
    let live = ["8000004", "8000005", "8000006.server", "8000007[].server", "8000007[3].server"];
    let dead = ["8000008", "8000009.server"];
    live.iter().chain(&dead).for_each(|id| fs::create_dir(of(id)).unwrap());
    program(&job, "bjobs", "[ \"$*\" = '-noheader -o jobid' ] && echo 8000004");
    program(&job, "qselect", "printf '8000006.server\n8000007[].server\n'");
    squeue(&job, "echo 8000005");
    for id in live {
        let kept = clean(&job, &["--allocation", id]);
        assert_eq!((code(&kept), of(id).is_dir()), (1, true), "{id}");
        assert!(err(&kept).contains(&format!("allocation {id} has not ended")), "{}", err(&kept));
    }
    for id in dead {
        let done = clean(&job, &["--allocation", id]);
        assert_eq!((code(&done), of(id).exists()), (0, false), "{id}: {}", err(&done));
    }
    // One that is silent may be the one that knows.
    fs::create_dir(of("8000009.server")).unwrap();
    program(&job, "qselect", "echo no server >&2; exit 1");
    let kept = clean(&job, &["--allocation", "8000009.server"]);
    assert!(code(&kept) == 1 && err(&kept).contains("no server"), "{}", err(&kept));
}

#[test]
fn of_an_id_that_no_resource_manager_gives_the_user_says_that_the_allocation_has_ended() {
    let job = flushed();
    let kept = clean(&job, &["--allocation", &JOB]);
    assert_eq!((code(&kept), folder(&job).is_dir()), (1, true));
    let expected = format!("`scr clean --allocation {} --ended' removes it", *JOB);
    assert!(err(&kept).contains(&expected), "{}", err(&kept));
    squeue(&job, "echo 8000010");
    assert_eq!((code(&clean(&job, &["--allocation", &JOB])), folder(&job).is_dir()), (1, true));
    let done = clean(&job, &["--allocation", &JOB, "--ended"]);
    assert_eq!((code(&done), folder(&job).exists()), (0, false), "{}", err(&done));
    // Without a resource manager, jobs have this id.
    let alone = user_folder(&job).join("scr.defjobid");
    fs::create_dir(&alone).unwrap();
    let hint = err(&clean(&job, &["--dead"]));
    assert!(!hint.contains("defjobid --ended"), "{hint}");
    // For a moment, a process of another test may have none either.
    let until = Instant::now() + Duration::from_secs(30);
    while code(&clean(&job, &["--allocation", "defjobid"])) != 0 {
        assert!(Instant::now() < until, "it is kept");
    }
    assert!(!alone.exists());
}

#[test]
fn a_process_that_is_just_ending_does_not_keep_a_folder() {
    let job = flushed();
    let id = format!("ending{}", std::process::id());
    let folder = user_folder(&job).join(format!("scr.{id}"));
    fs::create_dir(&folder).unwrap();
    let mut ending = Command::new("/bin/sleep").arg("0.3").env("SCR_JOB_ID", &id).spawn().unwrap();
    // It is gone for the system once this has waited for it.
    let reaping = std::thread::spawn(move || ending.wait());
    let done = clean(&job, &["--allocation", &id, "--ended"]);
    assert_eq!((code(&done), folder.exists()), (0, false), "{}", err(&done));
    drop(reaping.join());
}

/// Each took the other for a process of the job, and both kept the folder.
#[test]
fn two_at_once_in_one_allocation_both_succeed() {
    let job = flushed();
    let gate = job.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let both = |script: &str| {
        squeue(&job, script);
        let mut own = command(&job, &[]);
        own.env("SCR_JOB_ID", &*JOB).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = both(&format!("echo here >{0}; /bin/cat {0}", gate.display()));
    assert_eq!(fs::read_to_string(&gate).unwrap(), "here\n");
    let second = both("").wait_with_output().unwrap();
    fs::write(&gate, "").unwrap();
    for done in [second, first.wait_with_output().unwrap()] {
        assert_eq!((code(&done), err(&done)), (0, String::new()), "{}", out(&done));
    }
    assert!(!folder(&job).exists() && !user_folder(&job).join("clean.lock").exists());
}

/// Datasets that another one was removing would have looked damaged.
#[test]
fn one_waits_while_another_removes_folders_of_the_user() {
    let job = flushed();
    let files: &dyn Files = &RealFiles;
    let waiting = files.exclusively(&user_folder(&job).join("clean.lock"), |_| {
        let mut waiting = command(&job, &["--allocation", &JOB, "--ended"]);
        let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("clean.lock, which another job or command has locked"), "{said}");
        assert!(folder(&job).is_dir());
        waiting
    });
    let done = waiting.unwrap().value.wait_with_output().unwrap();
    assert_eq!((code(&done), folder(&job).exists()), (0, false), "{}", err(&done));
}

#[test]
fn the_processes_that_read_what_it_prints_are_no_part_of_the_job() {
    let id = format!("piped{}", std::process::id());
    let job = flushed();
    let ended = user_folder(&job).join(format!("scr.{id}"));
    fs::rename(folder(&job), &ended).unwrap();
    let piped = command(&job, &["--allocation", &id, "--ended"]);
    // The shell, and so all that it starts, are in the allocation, as the processes of an epilog are.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "\"$@\" 2>&1 | cat | tee log", "sh"]).arg(piped.get_program()).args(piped.get_args());
    shell.env_clear().envs(piped.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", "/usr/bin:/bin").env("SCR_JOB_ID", &id).current_dir(job.prefix());
    let done = shell.output().unwrap();
    assert_eq!((out(&done), ended.exists()), (format!("removed {}\n", ended.display()), false));
}

#[test]
fn nothing_outside_the_users_own_folder_is_touched() {
    let job = flushed();
    let outside = job.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), b"precious").unwrap();
    symlink(&outside, folder(&job).join("link")).unwrap();
    symlink(&outside, user_folder(&job).join("scr.planted")).unwrap();
    assert_eq!(code(&clean(&job, &["--allocation", "planted", "--ended"])), 0);
    assert_eq!(code(&clean(&job, &["--allocation", &JOB, "--ended"])), 0);
    assert_eq!((folder(&job).exists(), fs::read(outside.join("file")).unwrap().len()), (false, 8));

    let job = flushed();
    fs::set_permissions(user_folder(&job), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = clean(&job, &["--allocation", &JOB, "--ended"]);
    assert_eq!((code(&refused), folder(&job).is_dir()), (2, true));
    assert!(err(&refused).contains("may be written by other users"), "{}", err(&refused));
    fs::set_permissions(user_folder(&job), fs::Permissions::from_mode(0o700)).unwrap();
    let moved = job.node(0).join("moved");
    fs::rename(user_folder(&job), &moved).unwrap();
    symlink(&moved, user_folder(&job)).unwrap();
    assert_eq!(
        (code(&clean(&job, &["--allocation", &JOB, "--ended"])), folder(&job).is_dir()),
        (2, true),
        "a link"
    );
    fs::remove_file(user_folder(&job)).unwrap();
    fs::rename(&moved, user_folder(&job)).unwrap();
    // Only root can give a folder away.
    let own = fs::metadata(user_folder(&job)).unwrap().uid();
    if own == 0 {
        chown(user_folder(&job), Some(65_534), None).unwrap();
        let refused = clean(&job, &["--allocation", &JOB, "--ended"]);
        assert_eq!((code(&refused), folder(&job).is_dir()), (2, true));
        assert!(
            err(&refused).contains("user 65534, and only user 0 may own it; that is nobody"),
            "{}",
            err(&refused)
        );
    }
}
