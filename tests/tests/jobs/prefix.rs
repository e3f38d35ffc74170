//! Prefix directories that C SCR has written: a job restarts from a copy of one, and adds to it.

use scr_plugin_api::KvTree;
use scr_tests::{on_any_mpi, repository, Cluster, Mpi, Outcome, Program};
use std::path::{Path, PathBuf};
use std::process::Command;

on_any_mpi! {
    fn a_job_fetches_what_c_scr_has_flushed(mpi: Mpi) {
        for name in ["xor-flush2", "bypass"] {
            let mut cluster = with_sample(name);
            restarts_from(&mut cluster, mpi, name, "ckpt.4", &[]);
        }
    }

    fn a_job_goes_back_to_an_older_one_of_c_scr_and_adds_its_own_to_them(mpi: Mpi) {
        for (name, dropped) in [("xor-flush2", &["ckpt.4"][..]), ("bypass", &["ckpt.4", "ckpt.3"])] {
            let mut cluster = with_sample(name);
            for newest in dropped {
                assert!(cluster.scr(mpi, &["index", "--drop", newest]).status.success(), "{name}");
            }
            restarts_from(&mut cluster, mpi, name, "ckpt.2", &["ours"]);
            let listed = cluster.scr(mpi, &["index"]);
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let id = listed.lines().find_map(|line| line.strip_suffix("   * ours")?.split_whitespace().next());
            let id: u64 = id.unwrap_or_else(|| panic!("{name}: {listed}")).parse().unwrap();
            assert!(id > 4 && listed.contains("     ckpt.2"), "{name}: {listed}");
            has_the_keys_of_c_scr(&cluster, id);
            restarts_from_ours(&mut cluster, mpi);
        }
    }
}

/// A job in an allocation of its own, which has nothing in cache, restarts and gets C SCR's bytes. A warning says that they have
/// no checksums.
fn restarts_from(cluster: &mut Cluster, mpi: Mpi, sample: &str, dataset: &str, next: &[&str]) {
    let run = run(cluster, mpi, "first", next);
    assert_eq!(run.restarted_from(), Some(dataset), "{sample}");
    assert!(run.prints(&format!("`{dataset}' is unverified")), "{sample}");
    for rank in 0..4 {
        let expected = std::fs::read(written(sample).join(format!("{dataset}/rank_{rank}.ckpt")));
        let found = std::fs::read(got(cluster).join(format!("rank_{rank}")));
        let (expected, found) = (expected.expect("the sample has it"), found.expect("the rank got it"));
        assert!(!expected.is_empty() && expected == found, "{sample}: rank {rank} got other bytes");
    }
    assert_eq!(run.last_complete(), next.first().copied());
}

/// The next job gets the datasets that the last one has added, with checksums.
fn restarts_from_ours(cluster: &mut Cluster, mpi: Mpi) {
    let run = run(cluster, mpi, "second", &[]);
    assert_eq!(run.restarted_from(), Some("ours"));
    assert!(!run.prints("is unverified"));
}

fn run(cluster: &mut Cluster, mpi: Mpi, allocation: &str, next: &[&str]) -> Outcome {
    let to = got(cluster);
    let job = cluster.job(mpi, 4, Program::CopyRestart).args([to.display()]).args(next);
    job.env("SCR_JOB_ID", allocation).env("SCR_FLUSH", 1).run().expect_success()
}

/// Keys of a descriptor that C SCR does not write.
const ONLY_OURS: [&str; 2] = ["RUN", "RANKS"];

/// An added dataset is listed and described, and its files are listed with the keys that C SCR writes, and sizes and checksums.
fn has_the_keys_of_c_scr(cluster: &Cluster, id: u64) {
    let hidden = cluster.prefix().join(".scr");
    let both = |file: &str| [id, 2].map(|id| tree(&hidden.join(format!("scr.dataset.{id}/{file}"))));
    for file in ["summary.scr", "rank2file", "rank2file.0.0"] {
        let [mut ours, theirs] = both(file);
        for rank in (0..4).filter(|_| file == "rank2file.0.0") {
            let listed = ours.entry("RANK", rank).entry("FILE", format!("ours/rank_{rank}.ckpt"));
            assert!(listed.remove("SIZE").is_some() && listed.remove("CRC").is_some(), "rank {rank}");
        }
        if file == "summary.scr" {
            for key in ONLY_OURS {
                assert!(ours.child("DSET").remove(key).is_some(), "{key}");
            }
        }
        assert_eq!(keys(&ours), keys(&theirs), "{file}");
    }
    let index = tree(&hidden.join("index.scr"));
    let entry = |id: u64| {
        let mut entry = index.find("DSET", id).expect("it is listed").clone();
        entry.remove("FETCHED");
        assert!(id == 2 || entry.remove("FLUSHED_BY").is_some(), "the flush that made it complete");
        ONLY_OURS.iter().for_each(|key| drop(entry.child("DSET").remove(key)));
        keys(&entry)
    };
    assert_eq!(entry(id), entry(2));
    let flush = tree(&hidden.join("flush.scr"));
    assert!(flush
        .find("DATASET", id)
        .expect("it is known")
        .get("LOCATION")
        .is_some_and(|places| places.has("PFS")));
}

/// A tree as its keys, one path each; values are ignored.
fn keys(tree: &KvTree) -> Vec<String> {
    let mut all = Vec::new();
    for (key, below) in tree.iter() {
        // A value stands where a key would, with nothing below it.
        if below.is_empty() {
            all.push("*".to_owned());
        }
        let key = String::from_utf8_lossy(key);
        all.extend(keys(below).into_iter().map(|below| format!("{key}/{below}")));
    }
    all.sort();
    all
}

fn tree(path: &Path) -> KvTree {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    KvTree::from_file_prefix(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display())).0
}

fn with_sample(name: &str) -> Cluster {
    let cluster = Cluster::new(4);
    copy_folder(&written(name), &cluster.prefix());
    std::fs::create_dir(got(&cluster)).expect("it is not there yet");
    cluster
}

fn written(name: &str) -> PathBuf {
    repository().join("tests/fixtures/c-scr").join(name).join("raw/prefix")
}

fn got(cluster: &Cluster) -> PathBuf {
    cluster.scratch().join("got")
}

/// The files and folders below `from`, into the folder `to`, which is there.
fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-rT").arg(from).arg(to).status().expect("cp can be started");
    assert!(status.success(), "{} cannot be copied", from.display());
    let status = Command::new("chmod").args(["-R", "u+w"]).arg(to).status().expect("chmod can be started");
    assert!(status.success());
}
