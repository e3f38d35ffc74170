//! Checkpoints that ranks write together through MPI-IO, as HDF5, NetCDF and PnetCDF do.

use scr_tests::{on_each_mpi, Cluster, Job, Mpi, Program};

/// Eight ranks on four nodes, of which so many write a file together.
fn job(cluster: &mut Cluster, mpi: Mpi, ranks_per_file: u32) -> Job<'_> {
    cluster.job(mpi, 8, Program::MpiIo).args([ranks_per_file])
}

on_each_mpi! {
    fn a_file_of_one_rank_or_of_the_ranks_of_a_node_survives_the_loss_of_a_node(mpi: Mpi) {
        for ranks_per_file in [1, 2] {
            let mut cluster = Cluster::new(4);
            let written = job(&mut cluster, mpi, ranks_per_file).run().expect_success();
            assert_eq!(written.last_complete(), Some("ckpt.2"));
            cluster.lose_node(2);
            let restarted = job(&mut cluster, mpi, ranks_per_file).run().expect_success();
            assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
        }
    }

    fn a_file_of_the_whole_job_is_written_in_bypass_mode(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let written = job(&mut cluster, mpi, 8).env("SCR_CACHE_BYPASS", 1).run().expect_success();
        assert_eq!(written.last_complete(), Some("ckpt.2"));
        // The library has left no file of its own.
        let files = std::fs::read_dir(cluster.prefix().join("ckpt.2")).unwrap().flatten();
        assert_eq!(files.map(|file| file.file_name()).collect::<Vec<_>>(), ["part.0"]);
        (0..4).for_each(|node| cluster.lose_node(node));
        let restarted = job(&mut cluster, mpi, 8).env("SCR_CACHE_BYPASS", 1).run().expect_success();
        assert_eq!(restarted.restarted_from(), Some("ckpt.2"));
    }
}
