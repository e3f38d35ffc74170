//! Prefix directories that C SCR has written: a job restarts from a copy of one.

use scr_tests::{on_each_mpi, repository, Cluster, Program};
use std::path::Path;
use std::process::Command;

on_each_mpi! {
    fn a_job_fetches_what_c_scr_has_flushed(mpi: Mpi) {
        for name in ["xor-flush2", "bypass"] {
            let written = repository().join("tests/fixtures/c-scr").join(name).join("raw/prefix");
            let mut cluster = Cluster::new(4);
            copy_folder(&written, &cluster.prefix());
            let got = cluster.scratch().join("got");
            std::fs::create_dir(&got).unwrap();
            let run = cluster.job(mpi, 4, Program::CopyRestart).args([got.display()]).run().expect_success();
            assert_eq!(run.restarted_from(), Some("ckpt.4"), "{name}");
            for rank in 0..4 {
                let expected = std::fs::read(written.join(format!("ckpt.4/rank_{rank}.ckpt"))).unwrap();
                let found = std::fs::read(got.join(format!("rank_{rank}"))).unwrap();
                assert!(!expected.is_empty() && expected == found, "{name}: rank {rank} got other bytes");
            }
        }
    }
}

/// The files and folders below `from`, into the folder `to`, which is there.
fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-rT").arg(from).arg(to).status().expect("cp can be started");
    assert!(status.success(), "{} cannot be copied", from.display());
    let status = Command::new("chmod").args(["-R", "u+w"]).arg(to).status().expect("chmod can be started");
    assert!(status.success());
}
