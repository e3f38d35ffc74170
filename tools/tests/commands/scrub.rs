//! `scr scrub`: what it says of a cache and of a prefix directory that a job has left, and how it ends.

use crate::answer::{code, err, json_of, out};
use crate::finished_job::FinishedJob;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn scrub(job: &FinishedJob, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command.env_clear().current_dir(job.prefix()).env("SCR_CACHE_BASE", job.node(0)).env("USER", "user1");
    command.env("SCR_NODE_NAME", "n0");
    command.arg("scrub").args(arguments).output().unwrap()
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[500] ^= 8;
    fs::write(path, bytes).unwrap();
}

#[test]
fn without_problems_the_table_says_so_and_the_exit_code_is_0() {
    let left = FinishedJob::new();
    let node = left.node(0).display().to_string();
    let output = scrub(&left, &["--cache", &node]);
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    let text = out(&output);
    assert!(text.starts_with(&format!("cache {node}/user1/scr.defjobid\n")), "{text}");
    assert!(
        text.contains("\nDATASET  NAME    STATE     FILES  SIZE      UNVERIFIED  WRONG  PREFIX\n"),
        "{text}"
    );
    let row = text.lines().find(|line| line.starts_with("1        ckpt.1  complete  3 ")).unwrap();
    assert!(row.ends_with(&format!("  {}", left.prefix().display())), "{text}");
    assert!(text.contains("all 3 files (") && text.ends_with("are as they were recorded\n"), "{text}");

    let prefix = left.prefix().display().to_string();
    let output = scrub(&left, &["--prefix", &prefix, "--dataset", "ckpt.1"]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).contains("all 4 files (1.95 KiB) are as they were recorded"), "{}", out(&output));
}

#[test]
fn without_a_place_it_looks_where_a_job_would() {
    let left = FinishedJob::new();
    let output = scrub(&left, &[]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert!(text.contains(&format!("cache {}", left.node(0).display())), "{text}");
    assert!(text.contains(&format!("prefix {}", left.prefix().display())), "{text}");
    assert!(!text.contains("nodes/n1"), "the cache of another node is not this node's: {text}");
}

/// It said that all files of the job were right.
#[test]
fn nodes_that_were_not_asked_are_named_and_what_was_read_is_not_called_all() {
    let left = FinishedJob::new();
    let text = out(&scrub(&left, &[]));
    let expected = "\nn0: read\nn1: not asked; run `scr scrub' there too\nnothing is wrong in the 7 files (";
    assert!(text.contains(expected) && text.ends_with(" that were read\n"), "{text}");
    assert_eq!(json_of(&scrub(&left, &["--json"]))["not_asked"], serde_json::json!(["n1"]));
    let prefix = left.prefix().display().to_string();
    assert!(out(&scrub(&left, &[&prefix])).contains("\nall 4 files "));
}

/// It was said to be damaged.
#[test]
fn a_filemap_is_printed() {
    let left = FinishedJob::new();
    let filemap = left.node(0).join("user1/scr.defjobid/scr.dataset.1/.scr/filemap_0");
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    let printed = command.env_clear().arg("print").arg(&filemap).output().unwrap();
    assert!(code(&printed) == 0 && out(&printed).contains("RECORD\n"), "{}", err(&printed));
    fs::write(&filemap, "of another kind").unwrap();
    let other = command.output().unwrap();
    assert!(err(&other).contains("damaged or not a file of SCR"), "{}", err(&other));
}

#[test]
fn a_flipped_bit_is_named_with_what_will_happen_and_the_exit_code_is_1() {
    let left = FinishedJob::new();
    let node = left.node(1);
    let file = node.join("user1/scr.defjobid/scr.dataset.1/r1/rank_1");
    flip(&file);
    let output = scrub(&left, &["--cache", &node.display().to_string()]);
    assert_eq!(code(&output), 1);
    let text = out(&output);
    let line = text.lines().find(|line| line.starts_with("wrong: dataset 1, rank 1: ")).unwrap();
    assert!(line.contains(&file.display().to_string()) && line.contains("checksum"), "{line}");
    assert!(line.contains("counts as lost at the next start, and XOR rebuilds it"), "{line}");
    assert!(text.ends_with("1 of 3 files are wrong; 0 are unverified\n"), "{text}");
}

/// The advice was to put a good copy in its place, without a word of the one in cache; and no command repaired it.
#[test]
fn damage_in_the_prefix_directory_is_repaired_from_cache_with_the_commands_that_the_report_names() {
    let left = FinishedJob::new();
    let file = left.prefix().join("ckpt.1/rank_1");
    flip(&file);
    let found = out(&scrub(&left, &[]));
    let advice = "remove the files that are wrong, run `scr copy --id 1' on each node of the job, and then `scr index --build 1'";
    assert!(found.contains(advice), "{found}");
    fs::remove_file(&file).unwrap();
    let scr = |arguments: &[&str], node: u32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
        command.env_clear().current_dir(left.prefix()).args(arguments);
        command
            .env("SCR_CACHE_BASE", left.node(node))
            .env("SCR_PLUGIN_PATH", left.plugins())
            .env("USER", "user1");
        command.output().unwrap()
    };
    let (cached, away) =
        (left.node(1).join("user1/scr.defjobid/scr.dataset.1/r1/rank_1"), left.path().join("away"));
    fs::rename(&cached, &away).unwrap();
    let torn = scr(&["copy", "--id", "1"], 1);
    assert!(
        code(&torn) == 1 && err(&torn).contains("the part of rank 1 could not be copied whole: "),
        "{}",
        err(&torn)
    );
    fs::rename(&away, &cached).unwrap();
    for node in [0, 1] {
        let whole = scr(&["copy", "--id", "1"], node);
        assert!(out(&whole).contains("copied 2 files"), "{}", err(&whole));
    }
    assert!(out(&scr(&["index", "--build", "1"], 0)).contains("nothing was lost"));
    assert_eq!(fs::read(&file).unwrap(), [b'x'; 1000]);
    assert_eq!(code(&scrub(&left, &[])), 0);
}

#[test]
fn json_has_the_same_findings() {
    let left = FinishedJob::new();
    flip(&left.prefix().join("ckpt.1/rank_0"));
    let output = scrub(&left, &["--prefix", &left.prefix().display().to_string(), "--json"]);
    assert_eq!(code(&output), 1);
    let value = json_of(&output);
    assert_eq!((&value["version"], &value["intact"], &value["wrong"]), (&1.into(), &false.into(), &1.into()));
    let place = &value["places"][0];
    assert_eq!((&place["kind"], &place["datasets"][0]["name"]), (&"prefix".into(), &"ckpt.1".into()));
    let finding = &place["findings"][0];
    assert_eq!(
        (&finding["verdict"], &finding["rank"], &finding["kind"]),
        (&"wrong".into(), &0.into(), &"data".into())
    );
    assert!(finding["now"].as_str().unwrap().contains("a fetch refuses this dataset"));
}

#[test]
fn a_missing_target_is_an_error_with_exit_code_2() {
    let left = FinishedJob::new();
    let prefix = left.prefix().display().to_string();
    let output = scrub(&left, &["--prefix", &prefix, "--dataset", "ckpt.9"]);
    assert_eq!((code(&output), out(&output)), (2, String::new()));
    assert_eq!(
        err(&output),
        format!("scr: there is no dataset `ckpt.9' in prefix {prefix}; did you mean `ckpt.1'?\n")
    );

    let output = scrub(&left, &["--prefix", &left.node(0).display().to_string(), "--json"]);
    assert_eq!(code(&output), 2);
    assert!(json_of(&output)["error"].as_str().unwrap().contains("cannot look at prefix"));

    let output = scrub(&left, &["--cache", &left.plugins().display().to_string()]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("there is no dataset in"), "{}", err(&output));
}

/// It printed length and checksum of files that only root may read.
#[test]
fn root_follows_no_link_in_a_directory_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let job = FinishedJob::recording(&[("SCR_FLUSH", "1")], 64_322);
    let (prefix, node) = (job.prefix(), job.node(0));
    let cached = node.join("user1/scr.defjobid/scr.dataset.1");
    let secrets = job.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    for (name, length) in [("rank_0", 1000), ("rank_1", 7)] {
        fs::write(secrets.join(name), vec![b's'; length]).unwrap();
    }
    let expect_unread = |link: &Path| {
        for arguments in
            [&[][..], &["--prefix", prefix.to_str().unwrap()], &["--cache", node.to_str().unwrap()]]
        {
            let output = scrub(&job, arguments);
            let text = out(&output) + &err(&output);
            let is_read = text.contains("its checksum is") || text.contains("has 7 bytes");
            assert!(!is_read, "{arguments:?}: {text}");
            let is_meant = link.starts_with(&prefix) != arguments.contains(&"--cache");
            assert!(!is_meant || text.contains("wrong: dataset 1, rank 0: "), "{arguments:?}: {text}");
        }
    };
    let folders = [prefix.join("ckpt.1"), cached.join("ckpt.1")];
    for folder in folders.iter().filter(|folder| folder.exists()) {
        let kept = folder.with_file_name("kept");
        fs::rename(folder, &kept).unwrap();
        symlink(&secrets, folder).unwrap();
        expect_unread(folder);
        fs::remove_file(folder).unwrap();
        fs::rename(&kept, folder).unwrap();
        let file = folder.join("rank_0");
        fs::rename(&file, &kept).unwrap();
        symlink(secrets.join("rank_0"), &file).unwrap();
        expect_unread(&file);
        fs::rename(&kept, &file).unwrap();
    }
}
