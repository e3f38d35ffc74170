//! Jobs with descriptors: several stores, schemes and failure groups, and folders in shared places.
//!
//! Four ranks on four nodes. A node's `/dev/shm` and `/ssd` are the folders `shm` and `ssd` in what the node stores.

use scr_tests::{on_any_mpi, Cluster, Job, Mpi, Outcome, Program};

/// Four hosts, two on each power supply and on each switch, and three descriptors.
const GUIDE: &str = "\
GROUPS=n0 POWER=psu1 SWITCH=0
GROUPS=n1 POWER=psu1 SWITCH=1
GROUPS=n2 POWER=psu2 SWITCH=0
GROUPS=n3 POWER=psu2 SWITCH=1
STORE=$PRETEND_STORAGE/shm GROUP=NODE COUNT=1
STORE=$PRETEND_STORAGE/ssd GROUP=NODE COUNT=3 FLUSH=PTHREAD
";
const THREE: &str = "\
CKPT=0 INTERVAL=1 GROUP=NODE   STORE=$PRETEND_STORAGE/shm TYPE=XOR     SET_SIZE=16
CKPT=1 INTERVAL=4 GROUP=NODE   STORE=$PRETEND_STORAGE/ssd TYPE=RS      SET_SIZE=8  SET_FAILURES=3 OUTPUT=1
CKPT=2 INTERVAL=8 GROUP=SWITCH STORE=$PRETEND_STORAGE/ssd TYPE=PARTNER BYPASS=1
";

fn job<'a>(cluster: &'a mut Cluster, mpi: Mpi, descriptors: &str) -> Job<'a> {
    std::fs::write(cluster.prefix().join(".scrconf"), format!("{GUIDE}{descriptors}"))
        .expect("the settings can be written");
    let job = cluster.job(mpi, 4, Program::CkptTest).options(&[("files", 2), ("uneven", 1), ("size", 2000)]);
    job.env("SCR_COPY_TYPE", "FILE").env("SCR_USER_NAME", "ann")
}

/// Writes datasets until rank 1 dies in the middle of `ckpt.N`.
fn dies_in(job: Job<'_>, dataset: i64) -> Outcome {
    let options = [("datasets", dataset + 1), ("kill-rank", 1), ("kill-dataset", dataset)];
    job.options(&options).args(["--kill-at", "write"]).run().expect_death()
}

/// The datasets that node 0 has in a store.
fn datasets_in(cluster: &Cluster, store: &str) -> Vec<u32> {
    let files = cluster.files_of(0);
    // On nodes with namespaces the folder lies deeper: `/dev/shm` is another one there.
    let store = format!("{store}/ann/");
    let of_file = |file: &std::path::PathBuf| {
        let (_, below) = file.to_str()?.split_once(&store)?;
        below.split('/').find_map(|part| part.strip_prefix("scr.dataset.")?.parse().ok())
    };
    let mut found: Vec<u32> = files.iter().filter_map(of_file).collect();
    found.sort_unstable();
    found.dedup();
    found
}

on_any_mpi! {
    fn sixteen_checkpoints_go_where_their_descriptors_say_and_the_newest_that_survives_is_restarted_from(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let killed = dies_in(job(&mut cluster, mpi, THREE), 16);
        assert_eq!(killed.last_complete(), Some("ckpt.15"));
        // The eighth and the sixteenth bypass the cache, which has their records only.
        assert_eq!(datasets_in(&cluster, "shm"), [15]);
        assert_eq!(datasets_in(&cluster, "ssd"), [4, 8, 12, 16]);
        assert!(cluster.prefix().join("ckpt.8").is_dir() && !cluster.prefix().join("ckpt.12").exists());
        cluster.lose_node(2);
        let restarted = dies_in(job(&mut cluster, mpi, THREE), 18);
        assert_eq!(restarted.restarted_from(), Some("ckpt.15"));
        assert_eq!(restarted.last_complete(), Some("ckpt.17"));
        // Two nodes are more than XOR can stand: what bypassed the cache is next.
        cluster.lose_node(0);
        cluster.lose_node(3);
        let restarted = job(&mut cluster, mpi, THREE).options(&[("read-only", 1)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.16"));
    }

    fn a_whole_power_supply_may_fail_where_it_is_the_failure_group(mpi: Mpi) {
        let descriptor = "CKPT=0 GROUP=POWER STORE=$PRETEND_STORAGE/shm TYPE=XOR\n";
        let mut cluster = Cluster::new(4);
        dies_in(job(&mut cluster, mpi, descriptor), 3);
        cluster.lose_node(0);
        cluster.lose_node(1);
        let restarted = job(&mut cluster, mpi, descriptor).options(&[("read-only", 1)]).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
    }

    fn data_of_a_lost_node_on_a_shared_path_is_restarted_from_and_saved(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let bb = cluster.scratch().join("bb");
        std::fs::create_dir(&bb).unwrap();
        // Nothing that could be rebuilt.
        let store = format!("STORE={} VIEW=GLOBAL\nCKPT=0 STORE={} TYPE=SINGLE\n", bb.display(), bb.display());
        let killed = dies_in(job(&mut cluster, mpi, &store).on(&[0, 1]), 3);
        assert_eq!(killed.last_complete(), Some("ckpt.2"));
        cluster.lose_node(1);
        let spare = dies_in(job(&mut cluster, mpi, &store).on(&[3, 0]), 5);
        assert_eq!(spare.restarted_from(), Some("ckpt.2"));
        assert_eq!(spare.last_complete(), Some("ckpt.4"));
        // One node is left in the end, and saves what all have had.
        [0, 1, 3].iter().for_each(|&node| cluster.lose_node(node));
        let id = spare.id_of("ckpt.4").to_string();
        let copied = cluster.scr_on(2, mpi, &["copy", "--id", &id]).env("SCR_USER_NAME", "ann").output().unwrap();
        let said = String::from_utf8_lossy(&copied.stdout);
        assert!(copied.status.success() && said.contains("of the ranks 0, 1, 2, 3"), "{copied:?}");
        assert!(cluster.scr(mpi, &["index", "--build", &id]).status.success());
        std::fs::remove_dir_all(bb.join("ann")).unwrap();
        let job = job(&mut cluster, mpi, &store).on(&[2]).options(&[("read-only", 1)]);
        let restarted = job.run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.4"));
    }

    fn planted_paths_in_a_shared_place_are_refused_by_name(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let (shared, elsewhere) = (cluster.scratch().join("shared"), cluster.scratch().join("elsewhere"));
        [&shared, &elsewhere].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let job = |cluster: &mut Cluster| {
            let job = cluster.job(mpi, 2, Program::CkptTest).options(&[("datasets", 1)]);
            job.env("SCR_CACHE_BASE", shared.display()).env("SCR_USER_NAME", "ann").run()
        };
        let refused = |cluster: &mut Cluster, words: &str| {
            let run = job(cluster);
            assert!(!run.succeeded() && !run.timed_out());
            let is_reported = run.lines().any(|line| line.contains("ERROR") && line.contains(&format!("shared/ann {words}")));
            assert!(is_reported, "nobody said `{words}`");
        };
        let ann = shared.join("ann");
        std::os::unix::fs::symlink(&elsewhere, &ann).unwrap();
        refused(&mut cluster, "is needed as a folder and is a symbolic link");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "the link was followed");
        std::fs::remove_file(&ann).unwrap();
        // Only root can give a folder away.
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir(&ann).unwrap();
            std::os::unix::fs::chown(&ann, Some(4711), Some(4711)).unwrap();
            refused(&mut cluster, "belongs to user 4711");
            assert_eq!(std::fs::read_dir(&ann).unwrap().count(), 0, "it was used");
            std::fs::remove_dir(&ann).unwrap();
        }
        job(&mut cluster).expect_success();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&ann).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
    }
}
