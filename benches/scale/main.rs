//! The cost of a job as it grows, counted and not timed: messages, bytes, file operations and memory of each rank, in whole jobs
//! on threads. Prints Markdown tables, and what the growth means for larger jobs.
//!
//! `cargo bench -p scr-core --bench scale -- [RANKS,...] [RANKS_PER_NODE,...] [SCHEME,...]`

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "it shares the world of the tests"
)]

mod counted;
mod growth;
#[path = "../../core/tests/jobs/world.rs"]
mod world;

use counted::{CountedComm, Counters, Counts};
use growth::Growth;
use peak_alloc::PeakAlloc;
use scr_comm::Rank;
use std::sync::Arc;
use world::{Application, World};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Ranks of the jobs that the growth is predicted for.
const PREDICTED: [usize; 2] = [100_000, 1_000_000];

/// A count of a phase: that of rank 0, the median, and the maximum of all ranks.
type Row = (&'static str, [u64; 3]);

/// The phases of one job, in order.
type Phases = Vec<(&'static str, Vec<Row>)>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let list = |place: usize, default: &str| -> Vec<String> {
        let word = words.get(place).map_or(default, String::as_str);
        word.split(',').map(str::to_owned).collect()
    };
    let numbers = |place, default| -> Vec<usize> {
        list(place, default).iter().map(|word| word.parse().expect("a number")).collect()
    };
    let (sizes, widths) = (numbers(0, "64,256,1024"), numbers(1, "4,32"));
    for scheme in list(2, "XOR,PARTNER,RS") {
        for &per_node in &widths {
            let jobs: Vec<_> = sizes.iter().map(|&ranks| job(ranks, per_node, &scheme)).collect();
            print(&scheme, per_node, &sizes, &jobs);
        }
    }
}

/// Runs a job of this many ranks through everything, and counts each phase.
fn job(ranks: usize, per_node: usize, scheme: &str) -> Phases {
    let nodes = ranks / per_node;
    let mut world = World::new(ranks, nodes)
        .set("SCR_COPY_TYPE", scheme)
        .set("SCR_SET_FAILURES", if scheme == "RS" { "2" } else { "1" })
        .set("SCR_FLUSH", "2")
        .set("SCR_DEBUG", "0");
    let counters: Vec<_> = (0..ranks).map(|_| Arc::new(Counters::new(&world.prefix()))).collect();
    for (rank, counters) in (0..).map(Rank).zip(&counters) {
        world.own_files.insert(rank, counters.files());
    }
    let files = |_: Rank| vec![256];
    let mut all = run(
        &world,
        &counters,
        &["init", "checkpoint", "checkpoint, flushed", "finalize"],
        |application, mark| {
            mark();
            application.checkpoint(1, files).expect("it is complete");
            mark();
            application.checkpoint(2, files).expect("it is complete");
            mark();
            application.finalize().expect("it ends");
            mark();
        },
    );
    let restart = |application: &mut Application, mark: &mut dyn FnMut()| {
        mark();
        assert_eq!(application.restart(files), Some(2));
        mark();
    };
    all.extend(run(&world, &counters, &["init, nothing lost", "restart"], restart));
    world.lose("n1");
    all.extend(run(&world, &counters, &["init, a node lost", "restart, rebuilt"], restart));
    (0..nodes).for_each(|node| world.lose(&format!("n{node}")));
    all.extend(run(&world, &counters, &["init, all nodes lost", "restart, fetched"], restart));
    all
}

/// One run of the job. The body calls its second argument at the end of each phase.
fn run(
    world: &World,
    counters: &[Arc<Counters>],
    phases: &[&'static str],
    body: impl Fn(&mut Application, &mut dyn FnMut()) + Sync,
) -> Phases {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let outcome = world.run_over(
        |comm| CountedComm::wrap(comm, counters),
        |application| {
            let mut application = application.expect("a session begins");
            let own = &counters[application.rank.index()];
            let mut marks = vec![Counts::default()];
            body(&mut application, &mut || marks.push(own.counts()));
            marks
        },
    );
    let memory = (MEMORY.peak_usage() - before) / counters.len();
    counters.iter().for_each(|counters| counters.reset());
    let of_phase = |(phase, &name)| {
        let spent: Vec<_> = outcome.ranks.iter().map(|marks| marks[phase + 1] - marks[phase]).collect();
        (name, summary(&spent))
    };
    let mut phases: Phases = phases.iter().enumerate().map(of_phase).collect();
    phases[0].1.push(("memory per rank in this run", [memory as u64; 3]));
    phases
}

fn summary(of: &[Counts]) -> Vec<Row> {
    let of_all = |value: fn(&Counts) -> u64| {
        let mut values: Vec<u64> = of.iter().map(value).collect();
        let first = values[0];
        values.sort_unstable();
        [first, values[values.len() / 2], values[values.len() - 1]]
    };
    Counts::FIELDS.iter().map(|&(name, value)| (name, of_all(value))).collect()
}

/// A line for all that any rank does in a phase. The growth is that of the rank that does most.
fn print(scheme: &str, per_node: usize, sizes: &[usize], jobs: &[Phases]) {
    let join = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" | ");
    println!("\n### {scheme}, {per_node} ranks per node\n");
    println!("| phase | counted | {} | grows as | {} |", join(sizes), join(&PREDICTED));
    println!("|---|---|{}---|{}", "---|".repeat(sizes.len()), "---|".repeat(PREDICTED.len()));
    for (phase, (title, rows)) in jobs[0].iter().enumerate() {
        for (row, (counted, _)) in rows.iter().enumerate() {
            let values: Vec<[u64; 3]> = jobs.iter().map(|job| job[phase].1[row].1).collect();
            if values.iter().any(|[.., most]| *most > 0) {
                let growth = Growth::of(sizes.iter().copied().zip(values.iter().map(|value| value[2])));
                let cells: Vec<_> =
                    values.iter().map(|value| value.map(|count| count.to_string()).join(" / ")).collect();
                let predicted = PREDICTED.map(|ranks| growth.at(ranks).to_string()).join(" | ");
                println!("| {title} | {counted} | {} | {growth} | {predicted} |", cells.join(" | "));
            }
        }
    }
}
