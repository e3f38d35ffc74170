//! Jobs that go on without a new launch after ranks or nodes have died, under an MPI with ULFM: `SCR_Recover`.
//!
//! Not part of `cargo test`, since it needs another MPI than the rest: `make test-ulfm` gets it. The library is the one that was
//! built with Debian's Open MPI 4.1.
//!
//! | variable | meaning |
//! |---|---|
//! | `ULFM_MPI` | the folder of the MPI, with `bin/mpirun` and `lib` |
//! | `SCR_TEST_ULFM` | so many jobs with deaths, or `7:20` for the seeds 7 to 26 |

use scr_tests::{compile, on_rank, repository, stage, Cluster, Mpi};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const PLATE: [&str; 6] = ["--size", "200", "--steps", "1500", "--every", "100"];
/// A job takes a few seconds; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(180);

/// The MPI, if there is one.
fn mpi() -> Option<PathBuf> {
    let folder = std::env::var_os("ULFM_MPI").map(PathBuf::from);
    let there = folder.filter(|folder| folder.join("bin/mpirun").exists());
    if there.is_none() {
        scr_tests::record_skip("recovery without a new job", "an MPI with ULFM (ULFM_MPI)");
    }
    there
}

/// A program, compiled with the compiler of this MPI against the installed tree.
fn program(mpi: &Path, folder: &Path, source: &str) -> PathBuf {
    let (stage, program) = (stage(Mpi::OpenMpi), folder.join("program"));
    let mut command = Command::new(mpi.join("bin/mpicc"));
    command.args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command.arg(repository().join(source)).arg("-I").arg(stage.join("include"));
    let lib = stage.join("lib");
    command.arg("-L").arg(&lib).arg("-lscr").arg(format!("-Wl,-rpath,{}", lib.display()));
    // Otherwise the linker looks for what the library needs in the other Open MPI.
    compile(command.arg(format!("-Wl,-rpath-link,{}", mpi.join("lib").display())));
    program
}

/// How the ranks of a job lie on nodes, and how many of them wait.
#[derive(Debug, Clone, Copy)]
struct Shape {
    ranks_of_nodes: &'static [u32],
    spares: u32,
}

const SHAPES: [Shape; 5] = [
    Shape { ranks_of_nodes: &[1, 1, 1, 1, 1], spares: 1 },
    Shape { ranks_of_nodes: &[1, 1, 1, 1, 1, 1], spares: 2 },
    Shape { ranks_of_nodes: &[2, 2, 2], spares: 2 },
    Shape { ranks_of_nodes: &[1, 1, 1, 1], spares: 0 },
    Shape { ranks_of_nodes: &[2, 2, 2], spares: 0 },
];

impl Shape {
    fn node_of(self, rank: u32) -> u32 {
        let mut last = 0;
        let ends = self.ranks_of_nodes.iter().map(|ranks| {
            last += ranks;
            last
        });
        ends.take_while(|end| *end <= rank).count() as u32
    }

    fn ranks(self) -> u32 {
        self.ranks_of_nodes.iter().sum()
    }
}

/// A job under way.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    ends: Instant,
}

impl Running {
    fn start(
        mpi: &Path,
        program: &Path,
        cluster: &Cluster,
        shape: Shape,
        settings: &[(&str, &str)],
        arguments: Option<&[&str]>,
    ) -> Self {
        let nodes: Vec<String> = (0..shape.ranks()).map(|rank| format!("n{}", shape.node_of(rank))).collect();
        let mut command = Command::new("timeout");
        scr_tests::forget_settings(&mut command);
        command.arg("--kill-after=5").arg(LIMIT.as_secs().to_string()).arg(mpi.join("bin/mpirun"));
        command.args(["--with-ft", "ulfm", "--map-by", ":oversubscribe", "--bind-to", "none"]);
        // Otherwise Open MPI 5.0 waits in MPI_Finalize for the dead, in some jobs.
        command.args(["--mca", "async_mpi_finalize", "1"]);
        command.args(["--mca", "mpi_yield_when_idle", "1", "-n"]).arg(shape.ranks().to_string());
        command.arg(repository().join("scripts/pretend-rank")).arg(program);
        match arguments {
            Some(arguments) => command.args(arguments),
            None => command.args(PLATE).arg("--spares").arg(shape.spares.to_string()),
        };
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("LD_LIBRARY_PATH", mpi.join("lib")).env("PRETEND_RANKS", nodes.join(" "));
        command.env("PRETEND_NODES", cluster.node_storage(0).parent().expect("a folder of nodes"));
        command.env("SCR_CACHE_BASE", "$PRETEND_STORAGE").env("SCR_CNTL_BASE", "$PRETEND_STORAGE");
        command.env("SCR_PREFIX", cluster.prefix()).env("SCR_JOB_ID", "tests").env("SCR_CACHE_BYPASS", "0");
        command.envs(settings.iter().copied()).current_dir(cluster.prefix());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the launcher can be started");
        let (send, lines) = channel();
        let (out, err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let also = send.clone();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(send.send(line)))
        });
        std::thread::spawn(move || {
            BufReader::new(err).lines().map_while(Result::ok).for_each(|line| drop(also.send(line)))
        });
        Self { child, lines, seen: Vec::new(), ends: Instant::now() + LIMIT }
    }

    /// Reads lines until this time, or until one has these words. Gives whether one had.
    fn read_until(&mut self, time: Instant, words: &str) -> bool {
        loop {
            match self.lines.recv_timeout(time.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let has = line.contains(words);
                    self.seen.push(line);
                    if has {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Reads to the end. Gives the checksum of the answer, if the job has ended in time.
    fn answer(mut self) -> (Option<String>, String) {
        while self.read_until(self.ends, "\u{0}") {}
        let hangs = self.child.wait().is_ok_and(|status| status.code() == Some(124));
        let checksums = self.seen.iter().filter_map(|line| line.split_once("the answer has checksum "));
        let checksums = checksums.filter(|_| !hangs);
        (checksums.last().map(|(_, sum)| sum.to_owned()), self.seen.join("\n"))
    }
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Kills a rank, or all of a node whose storage is lost with it.
fn kill(cluster: &mut Cluster, shape: Shape, rank: u32, whole_node: bool) {
    match whole_node {
        true => cluster.lose_node(shape.node_of(rank)),
        false => cluster.kill_rank(shape.node_of(rank), rank),
    }
}

/// One job, with one or two deaths at random moments. Gives what it said if its answer is not the right one.
fn torture(mpi: &Path, program: &Path, right: &str, takes: Duration, seed: u64) -> Result<(), String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let shape = SHAPES[random.below(SHAPES.len() as u64) as usize];
    let (async_flush, scheme) =
        (random.below(2).to_string(), ["XOR", "PARTNER", "RS"][random.below(3) as usize]);
    let settings = [
        ("SCR_COPY_TYPE", scheme),
        ("SCR_SET_FAILURES", if shape.ranks_of_nodes.len() > 3 { "2" } else { "1" }),
        ("SCR_FLUSH", ["0", "2"][random.below(2) as usize]),
        ("SCR_FLUSH_ASYNC", async_flush.as_str()),
        ("SCR_FLUSH_TYPE", "PTHREAD"),
    ];
    let mut cluster = Cluster::new(shape.ranks_of_nodes.len() as u32);
    let mut running = Running::start(mpi, program, &cluster, shape, &settings, None);
    let mut story = format!("seed {seed}: {shape:?} {settings:?}");
    assert!(running.read_until(running.ends, "from step 0"), "{story}\n{}", running.seen.join("\n"));
    let deaths = 1 + random.below(2);
    let mut victims: VecDeque<u32> = (0..shape.ranks()).collect();
    victims.rotate_left(random.below(u64::from(shape.ranks())) as usize);
    for death in 0..deaths {
        // The second one comes during the recovery from the first, or soon after.
        let within = if death == 0 { takes } else { takes / 8 };
        let at = within.mul_f64(random.below(1000) as f64 / 1000.0);
        let (rank, whole_node) = (victims.pop_front().expect("more ranks than deaths"), random.below(2) == 0);
        running.read_until(Instant::now() + at, "the answer has checksum");
        kill(&mut cluster, shape, rank, whole_node);
        story += &format!(
            "; {} dies after {at:?}",
            if whole_node { format!("the node of rank {rank}") } else { format!("rank {rank}") }
        );
    }
    let recovered =
        |running: &Running| running.seen.iter().filter(|line| line.contains("from step")).count() - 1;
    let (began, before) = (Instant::now(), recovered(&running));
    let (answer, said) = running.answer();
    println!("{story}: ended {:?} later, {before} recoveries before", began.elapsed());
    match answer.as_deref() == Some(right) {
        true => Ok(()),
        false => Err(format!("{story}: the answer is {answer:?} and not {right}\n{said}")),
    }
}

#[test]
fn jobs_with_random_deaths_have_the_right_answer_and_none_hangs() {
    let Some(mpi) = mpi() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(&mpi, folder.path(), "examples/heat_recover.c");
    let cluster = Cluster::new(4);
    let began = Instant::now();
    let (right, said) =
        Running::start(&mpi, &program, &cluster, SHAPES[3], &[("SCR_COPY_TYPE", "XOR")], None).answer();
    let (right, takes) = (right.unwrap_or_else(|| panic!("{said}")), began.elapsed());
    let wanted = std::env::var("SCR_TEST_ULFM").unwrap_or_else(|_| "20".to_owned());
    let (first, many) = wanted.split_once(':').unwrap_or(("1", &wanted));
    let (first, many): (u64, u64) = (first.parse().expect("a seed"), many.parse().expect("a number"));
    let seeds = first..first + many;
    let wrong: Vec<String> =
        seeds.filter_map(|seed| torture(&mpi, &program, &right, takes, seed).err()).collect();
    assert!(wrong.is_empty(), "{} of {many} jobs are wrong\n{}", wrong.len(), wrong.join("\n\n"));
}

/// They waited for ten minutes, and then the job was aborted.
#[test]
fn calls_return_on_all_ranks_once_one_has_died_also_where_another_one_never_comes() {
    let Some(mpi) = mpi() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(&mpi, folder.path(), "tests/programs/deaths.c");
    for arguments in [&[][..], &["leave"][..]] {
        let cluster = Cluster::new(4);
        let running = Running::start(&mpi, &program, &cluster, SHAPES[3], &[], Some(arguments));
        let (_, said) = running.answer();
        let returned =
            said.lines().filter(|line| line.starts_with("RETURNED") && line.ends_with(" 6")).count();
        assert_eq!(returned, 3 - arguments.len(), "{said}");
        assert!(said.contains("DONE") && !said.contains("FAIL"), "{said}");
        let messages = said.lines().filter(|line| line.contains("has died")).count();
        assert!((1..=2).contains(&messages), "one rank says it for all\n{said}");
    }
}

/// The rank is killed in the middle of the file that it sends: the others get an error of that file, recover, and read it whole.
#[test]
fn where_a_rank_dies_that_lends_a_file_the_others_recover_and_read_it() {
    const BYTES: &str = "4194304";
    let Some(mpi) = mpi() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(&mpi, folder.path(), "tests/programs/lends.c");
    let cluster = Cluster::new(4);
    let settings = [("SCR_RESTART_OTHER_RANKS", "1"), ("SCR_MPI_BUF_SIZE", "65536"), ("SCR_FLUSH", "0")];
    let written =
        Running::start(&mpi, &program, &cluster, SHAPES[3], &settings, Some(&["write", BYTES])).answer().1;
    assert!(written.contains("DONE"), "{written}");
    // The first rank on the node of the last writer, whose file all ask for.
    let dies = on_rank(4, "read", "rank_3.dat", 30).of_thread("scr-lend").variables("kill");
    let settings: Vec<_> =
        settings.into_iter().chain(dies.iter().map(|(name, value)| (*name, value.as_str()))).collect();
    let shape = Shape { ranks_of_nodes: &[1, 2, 1, 2], spares: 0 };
    let answers = folder.path().to_str().expect("a plain path");
    let ask = ["ask", BYTES, answers];
    let said = Running::start(&mpi, &program, &cluster, shape, &settings, Some(&ask)).answer().1;
    assert!(said.contains("DONE") && !said.contains("FAIL"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("READ ")).count(), 5, "{said}");
    for rank in [0, 1, 2, 3, 5] {
        let answer = std::fs::read_to_string(folder.path().join(format!("rank_{rank}")));
        let answer = answer.unwrap_or_else(|error| panic!("rank {rank}: {error}\n{said}"));
        let (code, why) =
            if rank == 5 { ("0 right", "") } else { ("5 wrong", "has not come from another node") };
        assert!(answer.starts_with(code) && answer.contains(why), "rank {rank}: {answer}");
    }
}
