//! A process that lends a file of a checkpoint to another number of ranks is killed in the middle of that file.

use scr_tests::{on_rank, Call, Cluster, Job, Mpi, Program};
use std::path::Path;
use std::time::{Duration, Instant};

const WRITERS: u32 = 4;
const READERS: u32 = 6;
/// The first rank on the node of the last writer, whose file all ask for.
const LENDER: u32 = 4;
const BYTES: usize = 4 << 20;
/// One of 64 blocks.
const IN_THE_MIDDLE: Call = on_rank(LENDER, "read", "rank_3.dat", 30).of_thread("scr-lend");

fn job<'a>(cluster: &'a mut Cluster, ranks: u32, way: &str) -> Job<'a> {
    let job = cluster.job(Mpi::OpenMpi, ranks, Program::Lends).args([way, &BYTES.to_string()]);
    job.env("SCR_RESTART_OTHER_RANKS", 1).env("SCR_MPI_BUF_SIZE", 65536)
}

/// What a rank has got.
#[derive(Debug)]
struct Answer {
    code: i32,
    is_right: bool,
    path: String,
    /// Why there is none.
    why: String,
}

impl Answer {
    /// Waits for that of a rank. The launcher kills one that takes long.
    fn of(folder: &Path, rank: u32) -> Self {
        let (file, deadline) =
            (folder.join(format!("rank_{rank}")), Instant::now() + Duration::from_secs(60));
        while !file.exists() {
            assert!(Instant::now() < deadline, "rank {rank} hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let text = std::fs::read_to_string(file).expect("the answer of a rank");
        let (line, why) = text.split_once('\n').expect("two lines");
        let [code, is_right, path] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Self {
            code: code.parse().expect("a code"),
            is_right: is_right == "right",
            path: path.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// Each file that has its final name has all its bytes.
fn expect_no_half_file(cluster: &Cluster) {
    let nodes = (0..WRITERS).flat_map(|node| {
        let storage = cluster.node_storage(node);
        cluster.files_of(node).into_iter().map(move |file| storage.join(file))
    });
    let named: Vec<_> = nodes.filter(|path| path.ends_with("rank_3.dat")).collect();
    assert!(!named.is_empty(), "the part of the last writer is there");
    for path in named {
        let right = (0..BYTES)
            .map(|at| ((at as u32).wrapping_mul(2_654_435_761) >> 24) as u8 ^ (at >> 16) as u8 ^ 123);
        assert!(right.eq(std::fs::read(&path).expect("a file in cache")), "{}", path.display());
    }
}

#[test]
fn openmpi_a_lender_that_is_killed_in_the_middle_of_a_file_is_an_error_of_the_readers_within_seconds() {
    scr_tests::run_if_there(Mpi::OpenMpi, "a lender that is killed", |_| {
        for flush in [0, 1] {
            dies_in_the_middle(flush);
        }
    });
}

fn dies_in_the_middle(flush: u32) {
    let mut cluster = Cluster::new(4);
    job(&mut cluster, WRITERS, "write").env("SCR_FLUSH", flush).run().expect_success();
    let folder = cluster.scratch().join("answers");
    std::fs::create_dir(&folder).expect("a folder");
    let dying = job(&mut cluster, READERS, "ask").args([folder.display()]).env("SCR_FLUSH", flush);
    // The launcher ends all others, which go on for as long as it lets them.
    let dying = dying.env("OMPI_MCA_odls_base_sigkill_timeout", 60).at(IN_THE_MIDDLE, "kill").start();
    let answers: Vec<_> =
        (0..READERS).filter(|rank| *rank != LENDER).map(|rank| (rank, Answer::of(&folder, rank))).collect();
    (0..WRITERS).for_each(|node| cluster.kill_processes_of(node));
    assert!(!dying.finish().succeeded());
    assert!(!folder.join(format!("rank_{LENDER}")).exists(), "it was killed");
    for (rank, answer) in answers {
        match flush == 1 || rank > LENDER {
            true => assert!(answer.code == 0 && answer.is_right, "rank {rank}: {answer:?}"),
            false => assert!(
                answer.code == 5 && answer.why.contains("has not come from another node"),
                "rank {rank}: {answer:?}"
            ),
        }
        let is_in_prefix = Path::new(&answer.path).starts_with(cluster.prefix());
        assert_eq!(is_in_prefix, flush == 1 && rank < LENDER, "rank {rank}: {answer:?}");
    }
    expect_no_half_file(&cluster);
    for readers in [WRITERS, READERS] {
        let again = job(&mut cluster, readers, "read");
        let again = again.env("SCR_FETCH", u32::from(readers != WRITERS)).run().expect_success();
        let read = again.lines().filter(|line| line.starts_with("READ ")).count();
        assert_eq!(read, readers as usize);
    }
}
