//! LAMMPS, a program that is not ours, saves its own restart files through scr and restarts on other numbers of ranks. Its own
//! thermodynamic output is the judge: the lines of a restarted run are those that LAMMPS gives without scr.
//!
//! Not part of `cargo test`, since it needs LAMMPS: `make test-lammps`.

use scr_tests::{has_lammps, run_if_there, stage, Cluster, Mpi, Outcome, Program};
use std::path::{Path, PathBuf};

/// Debian's LAMMPS has it.
const MPI: Mpi = Mpi::OpenMpi;
const WRITERS: u32 = 4;

/// The remains of the checkpoint of a job that died on two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Cache,
    OneNode,
    Prefix,
}

/// How many restart files LAMMPS writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    One,
    OnePerRank,
}

impl Files {
    fn pattern(self) -> &'static str {
        match self {
            Self::One => "restart",
            Self::OnePerRank => "restart.%",
        }
    }
}

#[test]
fn lammps_restarts_on_any_number_of_ranks_and_computes_what_it_does_without_scr() {
    expect_the_same(Files::One, &[(1, Left::Prefix), (3, Left::OneNode), (6, Left::Cache)]);
}

#[test]
fn lammps_restarts_on_any_number_of_ranks_from_one_file_for_each_rank() {
    let restarts =
        [(1, Left::Cache), (2, Left::OneNode), (3, Left::Prefix), (6, Left::OneNode), (8, Left::Cache)];
    expect_the_same(Files::OnePerRank, &restarts);
}

#[test]
fn lammps_restarts_on_as_many_ranks_without_the_prefix_directory() {
    for files in [Files::One, Files::OnePerRank] {
        expect_the_same(files, &[(WRITERS, Left::Cache), (WRITERS, Left::OneNode)]);
    }
}

/// A run dies at step 120, and others restart from its checkpoint of step 100.
fn expect_the_same(files: Files, restarts: &[(u32, Left)]) {
    if !has_lammps("a restart of LAMMPS") {
        return;
    }
    run_if_there(MPI, "a restart of LAMMPS", |_| {
        let mut alone = Alone::new(files);
        for &(ranks, left) in restarts {
            let case = format!("{files:?}, {ranks} ranks, {left:?}");
            let mut cluster = Cluster::new(2);
            let died = run(&mut cluster, WRITERS, files, left, &["--log", "died.log", "--die-at", "120"]);
            assert!(!died.succeeded() && !died.timed_out(), "{case}: the job was to die");
            let lines = thermo(&cluster.prefix().join("died.log"));
            assert_eq!(lines, alone.uninterrupted[..lines.len()], "{case}");
            match left {
                Left::Cache => (),
                Left::OneNode => cluster.lose_node(1),
                Left::Prefix => (0..2).for_each(|node| cluster.lose_node(node)),
            }
            let done = run(&mut cluster, ranks, files, left, &["--log", "done.log"]);
            assert!(done.succeeded(), "{case}");
            assert!(done.prints(&format!("restarted from lammps.000100 on {ranks} ranks")), "{case}");
            let lines = thermo(&cluster.prefix().join("done.log"));
            assert_eq!(lines, alone.restarted(ranks), "{case}: not what LAMMPS gives without scr");
            assert_close(&lines, &alone.uninterrupted, &case);
        }
    });
}

/// The driver, with scr.
fn run(cluster: &mut Cluster, ranks: u32, files: Files, left: Left, more: &[&str]) -> Outcome {
    let hosts: Vec<u32> = (0..ranks.min(2)).collect();
    let job = cluster.job(MPI, ranks, Program::Heat2d).on(&hosts).executable(Path::new("/usr/bin/python3"));
    let scripts = ["run.py", "melt.create", "melt.settings"].map(|name| example(name).display().to_string());
    let job = job.args(scripts).args(["--steps", "200", "--every", "50"]).args(more);
    let job = job.args(if files == Files::OnePerRank { &["--each"][..] } else { &[] });
    let job = job.env("PYTHONPATH", stage(MPI).join("share/scr/python").display());
    job.env("SCR_FLUSH", i64::from(left == Left::Prefix)).run()
}

fn example(name: &str) -> PathBuf {
    stage(MPI).join("share/scr/lammps").join(name)
}

/// The results of LAMMPS without scr: its own program, its own input, its own restart files.
struct Alone {
    cluster: Cluster,
    files: Files,
    uninterrupted: Vec<String>,
}

impl Alone {
    fn new(files: Files) -> Self {
        let mut alone = Self { cluster: Cluster::new(1), files, uninterrupted: Vec::new() };
        let begin = format!("include {}\n", example("melt.create").display());
        alone.uninterrupted = alone.lines(WRITERS, &begin, "first", &[50, 100, 150, 200]);
        alone
    }

    /// Restarted from its own files of step 100.
    fn restarted(&mut self, ranks: u32) -> Vec<String> {
        let begin = format!("read_restart first.100.{}\n", self.files.pattern());
        self.lines(ranks, &begin, "again", &[150, 200])
    }

    /// It begins so, runs up to each of these steps, and saves its state there under this name.
    fn lines(&mut self, ranks: u32, begin: &str, name: &str, steps: &[u32]) -> Vec<String> {
        let pattern = self.files.pattern();
        let to_step = |step| format!("run {step} upto\nwrite_restart {name}.{step}.{pattern}\n");
        let steps: String = steps.iter().map(to_step).collect();
        let (input, log) = (self.cluster.prefix().join("input"), self.cluster.prefix().join("log"));
        let settings = example("melt.settings");
        std::fs::write(&input, format!("{begin}include {}\n{steps}", settings.display())).unwrap();
        let job = self.cluster.job(MPI, ranks, Program::Heat2d).executable(Path::new("/usr/bin/lmp"));
        assert!(job.args(["-in", "input", "-log", "log"]).run().succeeded(), "LAMMPS alone");
        thermo(&log)
    }
}

/// The lines of numbers in a log of LAMMPS.
fn thermo(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let lines = text
        .lines()
        .filter(|line| line.split_whitespace().count() == 5 && line.split_whitespace().all(is_number));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{} has no thermodynamic output", log.display());
    lines
}

/// Another number of ranks adds in another order, and so the last digits may differ.
fn assert_close(lines: &[String], uninterrupted: &[String], case: &str) {
    let numbers =
        |line: &str| -> Vec<f64> { line.split_whitespace().map(|word| word.parse().unwrap()).collect() };
    let expected = &uninterrupted[uninterrupted.len() - lines.len()..];
    for (line, expected) in lines.iter().zip(expected) {
        let close = |(one, other): (f64, f64)| (one - other).abs() <= 1e-8 * other.abs();
        let mut pairs = numbers(line).into_iter().zip(numbers(expected));
        assert!(pairs.all(close), "{case}: {line}, and without interruption {expected}");
    }
}
