//! What release 5c729275 has left: it is read, or refused with a message, and never misread. See `tests/fixtures/release-5c729275`.

use scr_tests::{has_namespaces, on_any_mpi, repository, Cluster, Mpi, Outcome, Program};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const REFUSED: &str =
    "was written by another release of scr (format 1, this one reads 2): what it records stays";

on_any_mpi! {
    fn a_checkpoint_in_the_cache_of_an_older_release_is_named_and_stays_and_a_dropped_one_stays_away(mpi: Mpi) {
        if !has_namespaces("caches of a fixed user") {
            return;
        }
        let mut cluster = with_sample("kept");
        answers(&cluster, mpi, &["index", "--list"], "only in cache");
        let run = restart(&mut cluster, mpi);
        assert!(run.prints(REFUSED));
        got(&cluster, &run, "ckpt.1");
        let listed = answers(&cluster, mpi, &["index", "--list"], "* ckpt.1");
        assert!(!listed.contains("ckpt.2"), "it was dropped: {listed}");
        // What the older release may still save is there, and nothing here saves a part of it.
        assert!((0..4).all(|node| cluster.files_of(node).iter().any(|file| file.ends_with(format!("filemap_{node}")))));
        is_not_known(&cluster, mpi, "ckpt.3");
        let saved = cluster.scr_with_ssh(mpi, &["postrun"]);
        assert!(!saved.status.success() && said(&saved).contains("`ckpt.3' could not be saved"), "{}", said(&saved));
        assert!(!said(&saved).contains("--drop"), "{}", said(&saved));
        assert!(!cluster.prefix().join("ckpt.3").exists());
        // It comes back only where somebody asks for it.
        answers(&cluster, mpi, &["index", "--build", "2"], "`ckpt.2' is whole and listed");
        let run = restart(&mut cluster, mpi);
        got(&cluster, &run, "ckpt.2");
    }

    fn a_flush_that_an_older_release_has_begun_is_ended_or_refused(mpi: Mpi) {
        for (sample, ended, from) in [("named", "is finished", "ckpt.2"), ("staged", "is rolled back", "ckpt.1")] {
            let mut cluster = with_sample(sample);
            answers(&cluster, mpi, &["index", "--list"], "* ckpt.1");
            is_not_known(&cluster, mpi, "ckpt.2");
            let run = restart(&mut cluster, mpi);
            let is_ended = run.prints(&format!("the flush of dataset 2 `ckpt.2', begun by an earlier run, {ended}"));
            let is_refused = run.prints("/.scr/flush.2.") && run.prints("release");
            assert!(is_ended != is_refused, "{sample}: one of the two is said");
            got(&cluster, &run, if is_ended { from } else { "ckpt.1" });
            answers(&cluster, mpi, &["index", "--list"], if is_ended { from } else { "ckpt.1" });
        }
    }

    fn commands_end_a_flush_of_an_older_release_as_a_run_does(mpi: Mpi) {
        for (sample, text) in [("named", "`ckpt.2', begun by an earlier run, is finished"), ("staged", "`ckpt.2' is not complete")] {
            let mut cluster = with_sample(sample);
            let saved = cluster.scr(mpi, &["postrun"]);
            let is_refused = said(&saved).contains("/.scr/flush.2.") && said(&saved).contains("release");
            assert!(said(&saved).contains(text) || is_refused, "{sample}: {}", said(&saved));
            let built = cluster.scr(mpi, &["index", "--build", "2"]);
            assert_eq!(built.status.success(), sample == "named" && !is_refused, "{sample}: {}", said(&built));
            let from = if built.status.success() { "ckpt.2" } else { "ckpt.1" };
            let run = restart(&mut cluster, mpi);
            got(&cluster, &run, from);
        }
    }
}

/// The outcome of a command that succeeds and says this.
fn answers(cluster: &Cluster, mpi: Mpi, arguments: &[&str], text: &str) -> String {
    let output = cluster.scr(mpi, arguments);
    assert!(output.status.success() && said(&output).contains(text), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// `scr status` has no way to the nodes or may not look into the cache of user1, and says so.
fn is_not_known(cluster: &Cluster, mpi: Mpi, name: &str) {
    let status = cluster.scr(mpi, &["status"]);
    let text = said(&status);
    let has =
        text.contains("protected   not known") && text.contains(name) && text.contains("in prefix   ckpt.1,");
    assert!(status.status.code() == Some(1) && has, "{text}");
}

fn said(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat()
}

fn restart(cluster: &mut Cluster, mpi: Mpi) -> Outcome {
    let to = cluster.scratch().join("got");
    let _ = std::fs::remove_dir_all(&to);
    std::fs::create_dir(&to).expect("a folder for what the ranks get");
    let job = cluster.job(mpi, 4, Program::CopyRestart).args([to.display()]);
    job.env("USER", "user1").env("SCR_USER_NAME", "user1").run().expect_success()
}

/// Each rank got its bytes of this checkpoint.
fn got(cluster: &Cluster, run: &Outcome, name: &str) {
    assert_eq!(run.restarted_from(), Some(name));
    for rank in 0..4 {
        let written = std::fs::read(fixtures().join(format!("kept/prefix/{name}/rank_{rank}.ckpt")));
        let found = std::fs::read(cluster.scratch().join(format!("got/rank_{rank}")));
        let (written, found) = (written.expect("the sample has it"), found.expect("the rank got it"));
        assert!(!written.is_empty() && written == found, "{name}: rank {rank} got other bytes");
    }
}

fn fixtures() -> PathBuf {
    repository().join("tests/fixtures/release-5c729275")
}

fn with_sample(name: &str) -> Cluster {
    let cluster = Cluster::new(4);
    copy_folder(&fixtures().join(name).join("prefix"), &cluster.prefix());
    for node in (0..4).filter(|_| name == "kept") {
        copy_folder(&fixtures().join(format!("{name}/nodes/n{node}")), &cluster.node_storage(node));
    }
    cluster
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-rT").arg(from).arg(to).status();
    assert!(copied.expect("cp can be started").success(), "{} cannot be copied", from.display());
    let changed = Command::new("chmod").args(["-R", "u+w,go-w"]).arg(to).status();
    assert!(changed.expect("chmod can be started").success());
}
