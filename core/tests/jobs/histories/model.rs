//! What was promised in a history so far, and whether a run keeps it.

use super::super::world::{Outcome, World};
use super::history::{live, name_of, sizes, Came, Event, Reaction, Read, Run, Seen, Step, BASE_BYTES};
use scr_core::comm::Rank;
use scr_core::fs::faulty::FaultyFiles;
use scr_core::fs::RealFiles;
use scr_core::prefix::{Index, IndexEntry, Prefix};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

/// A node that is there no more.
const LOST: usize = 1000;

/// A checkpoint that somebody tried to make.
#[derive(Debug)]
struct Version {
    number: u64,
    name: String,
    ranks: usize,
    /// Whether all ranks called it valid, so that it may be whole, whatever came after.
    possible: bool,
    checkpoint: bool,
    other_base: bool,
    other_prefix: bool,
    /// How many nodes may be away.
    survives: usize,
    /// Where the part of each rank is; of more than one all of it is in one of them. None where nothing is promised.
    homes: Vec<Vec<usize>>,
}

/// A world, and what its past runs have promised.
pub(super) struct Model {
    world: World,
    base: String,
    versions: Vec<Version>,
    next: u64,
    runs: usize,
}

impl Model {
    pub(super) fn new() -> Self {
        let world = World::new(4, 4);
        let base = world.dir().join("nodes/$SCR_NODE_NAME").display().to_string();
        Self { world, base, versions: Vec::new(), next: 1, runs: 0 }
    }

    /// Lives one run and looks whether it kept what was promised.
    pub(super) fn live(&mut self, run: &Run) -> Result<(), String> {
        self.runs += 1;
        self.prepare(run);
        let faulty = FaultyFiles::new(RealFiles);
        if let Some(at) = run.dies {
            if run.torn {
                faulty.stop_torn_at(at);
            } else {
                faulty.stop_at(at);
            }
        }
        self.world.files = Arc::new(faulty.clone());
        let trouble = FaultyFiles::new(faulty.clone());
        if let Some(stumble) = run.stumbles.filter(|stumble| stumble.rank < run.nodes.len()) {
            if stumble.reads {
                trouble.count_all();
            }
            trouble.fail_once(stumble.at, ErrorKind::Other);
            self.world.own_files.insert(Rank(stumble.rank as u32), Arc::new(trouble.clone()));
        }
        let known: Vec<_> =
            self.versions.iter().map(|version| (version.number, version.name.clone())).collect();
        let listed = self.listed(run);
        let first = self.next;
        self.next += run.steps.len() as u64;
        let lived = self.world.try_run(|application| live(application, run, &known, first));
        let failed = |files: &FaultyFiles| files.operations().into_iter().find(|operation| operation.failed);
        let (last, stumbled) = (failed(&faulty), failed(&trouble));
        let stopped = last.is_some() || stumbled.is_some();
        self.world.files = Arc::new(RealFiles);
        self.world.own_files.clear();
        let checked = self.check(run, &lived, listed, stopped);
        self.remember(run, &lived.ranks, first, stopped);
        run.after.iter().for_each(|event| self.happen(*event));
        checked.map_err(|why| {
            let versions: Vec<_> = self.versions.iter().map(|version| format!("{version:?}")).collect();
            let (lines, versions) = (lived.lines.join("\n"), versions.join("\n"));
            format!(
                "run {}: {why}\nstopped at {last:?}, stumbled at {stumbled:?}\n{lines}\n{versions}",
                self.runs
            )
        })
    }

    fn prepare(&mut self, run: &Run) {
        let settings = &run.settings;
        self.world.nodes = run.nodes.iter().map(|node| format!("n{node}")).collect();
        self.world.turn_to(if settings.other_prefix { "prefix2" } else { "prefix" });
        let base = if settings.other_base { format!("{}/other", self.base) } else { self.base.clone() };
        let flag = |on: bool| if on { "1" } else { "0" };
        for (name, value) in [
            ("SCR_CACHE_BASE", base.as_str()),
            ("SCR_COPY_TYPE", settings.scheme),
            ("SCR_SET_FAILURES", "1"),
            ("SCR_CACHE_SIZE", &settings.keep.to_string()),
            ("SCR_FLUSH", &settings.flush.to_string()),
            ("SCR_FLUSH_ASYNC", flag(settings.behind)),
            ("SCR_FLUSH_TYPE", if settings.behind { "PTHREAD" } else { "SYNC" }),
            ("SCR_CACHE_BYPASS", flag(settings.bypass)),
            ("SCR_FETCH_BYPASS", flag(settings.fetch_bypass)),
            ("SCR_CRC_ON_COPY", flag(settings.sums)),
            ("SCR_GLOBAL_RESTART", flag(settings.global)),
            ("SCR_CURRENT", &run.wants.map(name_of).unwrap_or_default()),
        ] {
            self.world.put(name, value);
        }
    }

    /// The version that the index offers to this run: the current one, or else the newest.
    fn listed(&self, run: &Run) -> Option<u64> {
        let prefix = Prefix::new(self.world.prefix());
        let index = Index::read(&RealFiles, &prefix).ok()?;
        let offered = index.entries().into_iter().filter(IndexEntry::is_candidate).filter_map(|entry| {
            let number = entry.dataset?.bytes?.checked_sub(BASE_BYTES as u64)?;
            let version = self.version(number).filter(|version| version.ranks == run.nodes.len())?;
            Some((entry.current, version.number))
        });
        offered.max().map(|(_, number)| number)
    }

    fn version(&self, number: u64) -> Option<&Version> {
        self.versions.iter().find(|version| version.number == number)
    }

    /// The newest version that is in cache as far as this run can see.
    fn cached(&self, run: &Run) -> Option<u64> {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        let there = self.versions.iter().filter(|version| version.is_of(run) && version.is_promised(&here));
        there.map(|version| version.number).max()
    }

    fn check(
        &self,
        run: &Run,
        lived: &Outcome<Seen>,
        listed: Option<u64>,
        stopped: bool,
    ) -> Result<(), String> {
        let healthy = !stopped;
        let handed = self.handed(run, &lived.ranks, healthy)?;
        if healthy && lived.ranks.iter().any(|seen| !seen.began) {
            return Err("no session begins".to_owned());
        }
        if lived.ranks.iter().any(|seen| !seen.began) || matches!(run.reaction, Reaction::Ignore) {
            return Ok(());
        }
        let promised = self.cached(run).max(listed);
        if healthy && run.wants.is_none() && handed.first().copied() < promised {
            let (cached, first) = (self.cached(run), handed.first());
            return Err(format!(
                "restarted from {first:?}, but {cached:?} is in cache, and {listed:?} in the index"
            ));
        }
        if run.wants.is_none() && handed.windows(2).any(|pair| pair[0] <= pair[1]) {
            return Err(format!("older ones come after newer ones: {handed:?}"));
        }
        if healthy {
            self.check_steps(run, &lived.ranks)?;
        }
        Ok(())
    }

    /// What was handed out, one after the other.
    fn handed(&self, run: &Run, ranks: &[Seen], healthy: bool) -> Result<Vec<u64>, String> {
        let mut all = Vec::new();
        for at in 0.. {
            let reads: Vec<_> = ranks
                .iter()
                .enumerate()
                .filter_map(|(rank, seen)| Some((rank, seen.handed.get(at)?)))
                .collect();
            if reads.is_empty() {
                return Ok(all);
            }
            if let Some(wrong) = reads.iter().find_map(|(_, (_, read))| match read {
                Read::Wrong(why) => Some(why),
                _ => None,
            }) {
                return Err(wrong.clone());
            }
            let Some((_, (name, Read::Version(number)))) = reads.iter().find(|(rank, _)| *rank == 0) else {
                return if healthy && reads.iter().any(|(rank, _)| *rank == 0) {
                    Err("rank 0 has no files".to_owned())
                } else {
                    Ok(all)
                };
            };
            let version = self.version(*number).expect("it was told to the ranks");
            if !version.possible || !version.checkpoint || version.ranks != run.nodes.len() {
                return Err(format!("{version:?} must never be restarted from"));
            }
            for (rank, (named, read)) in &reads {
                let has_files = !sizes(*number, Rank(*rank as u32), version.ranks as u32).is_empty();
                if named != name
                    || has_files && *read != Read::Version(*number) && (healthy || *read != Read::Nothing)
                {
                    return Err(format!(
                        "a mix: rank 0 has version {number} of {name}, rank {rank} {read:?} of {named}"
                    ));
                }
            }
            all.push(*number);
        }
        Ok(all)
    }

    /// Without faults every step comes to what it should.
    fn check_steps(&self, run: &Run, ranks: &[Seen]) -> Result<(), String> {
        for (rank, seen) in ranks.iter().enumerate() {
            if seen.came.len() < run.steps.len() || run.finalizes && !seen.finalized {
                return Err(format!("rank {rank} has not come to its end: {seen:?}"));
            }
            for (step, came) in run.steps.iter().zip(&seen.came) {
                let good = match step {
                    Step::Checkpoint { bad: Some(bad), .. } if *bad < ranks.len() => {
                        matches!(came, Came::Failed(_))
                    }
                    Step::Checkpoint { .. } | Step::Output { .. } => *came == Came::Good,
                    Step::Delete { .. } | Step::Drop { .. } | Step::Current { .. } => true,
                };
                if !good {
                    return Err(format!("rank {rank}: {step:?} came to {came:?}"));
                }
            }
        }
        Ok(())
    }

    fn remember(&mut self, run: &Run, ranks: &[Seen], first: u64, stopped: bool) {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        self.note_moves(run, !stopped, &here);
        if let (Reaction::Refuse(_), Some(number)) = (run.reaction, first_handed(ranks)) {
            self.forget(|version| version.number == number);
        }
        for (at, step) in run.steps.iter().enumerate() {
            let came: Vec<_> = ranks.iter().map(|seen| seen.came.get(at)).collect();
            if came.iter().all(Option::is_none) {
                return;
            }
            match *step {
                Step::Checkpoint { name, bad, .. } => {
                    let valid = bad.is_none_or(|bad| bad >= ranks.len());
                    self.add(run, first + at as u64, name_of(name), (true, valid), &came);
                }
                Step::Output { name } => {
                    self.add(run, first + at as u64, name_of(name), (false, true), &came);
                }
                Step::Delete { name } => self.forget(|version| version.name == name_of(name)),
                Step::Drop { .. } | Step::Current { .. } => (),
            }
        }
    }

    /// A dataset that a run has tried to write.
    fn add(
        &mut self,
        run: &Run,
        number: u64,
        name: String,
        (checkpoint, valid): (bool, bool),
        came: &[Option<&Came>],
    ) {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        let entered = came
            .iter()
            .all(|came| came.is_some_and(|came| !matches!(came, Came::Short(_) | Came::Invalid(_))));
        let possible = entered && valid;
        if possible {
            let older = self.versions.iter_mut().filter(|version| version.is_of(run));
            older.for_each(|version| version.leave(&here));
        }
        if run.settings.bypass {
            // Its files go over those of the older ones of its name.
            self.forget(|version| version.name == name);
        }
        let complete = possible && came.iter().all(|came| *came == Some(&Came::Good));
        let promised = complete && checkpoint && !run.settings.bypass;
        self.versions.push(Version {
            number,
            name,
            ranks: run.nodes.len(),
            possible,
            checkpoint,
            other_base: run.settings.other_base,
            other_prefix: run.settings.other_prefix,
            survives: usize::from(run.settings.scheme != "SINGLE" && here.len() > 1),
            homes: if promised { vec![run.nodes.clone()] } else { Vec::new() },
        });
    }

    /// Nothing is promised of these any more.
    fn forget(&mut self, which: impl Fn(&Version) -> bool) {
        self.versions.iter_mut().filter(|version| which(version)).for_each(|version| version.homes.clear());
    }

    /// A run that begins brings home what it can; one that the world ended may have done so or not.
    fn note_moves(&mut self, run: &Run, surely: bool, here: &BTreeSet<usize>) {
        let promised = |version: &&mut Version| version.is_of(run) && version.is_promised(here);
        for version in self.versions.iter_mut().filter(promised) {
            if surely {
                version.homes.clear();
            }
            version.homes.push(run.nodes.clone());
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Lose(node) => {
                let _ = std::fs::remove_dir_all(self.world.node(&format!("n{node}")));
                self.lose(node);
            }
            Event::Flip(which) => self.damage(which, |bytes| {
                let middle = bytes.len() / 2;
                bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 0x10);
            }),
            Event::Cut(which) => self.damage(which, |bytes| bytes.truncate(bytes.len() * 2 / 3)),
            Event::DropFromIndex(name) => self.change_index(|index| _ = index.drop_name(name_of(name))),
            Event::MakeCurrent(name) => self.change_index(|index| _ = index.set_current(name_of(name))),
        }
    }

    /// What a command does. Where there is no prefix directory yet, it fails.
    fn change_index(&self, change: impl FnOnce(&mut Index)) {
        let _ = Index::update(&RealFiles, &Prefix::new(self.world.prefix()), change);
    }

    fn damage(&mut self, which: proptest::sample::Index, change: impl Fn(&mut Vec<u8>)) {
        let files = self.world.cached_files();
        if files.is_empty() {
            return;
        }
        let path = which.get(&files);
        let Ok(mut bytes) = std::fs::read(path) else { return };
        change(&mut bytes);
        std::fs::write(path, bytes).expect("it is ours");
        let below = path.strip_prefix(self.world.dir().join("nodes")).expect("it lies there");
        let node = below.iter().next().and_then(|node| node.to_str()?.strip_prefix('n')?.parse().ok());
        if let Some(node) = node {
            self.lose(node);
        }
    }

    fn lose(&mut self, node: usize) {
        let homes = self.versions.iter_mut().flat_map(|version| &mut version.homes);
        homes.flatten().filter(|home| **home == node).for_each(|home| *home += LOST);
    }
}

impl Version {
    /// Whether a run looks for it, and can use it.
    fn is_of(&self, run: &Run) -> bool {
        self.ranks == run.nodes.len()
            && self.other_base == run.settings.other_base
            && self.other_prefix == run.settings.other_prefix
    }

    /// Whether it must be there for a run on these nodes, wherever it is.
    fn is_promised(&self, here: &BTreeSet<usize>) -> bool {
        !self.homes.is_empty() && self.homes.iter().all(|homes| away(homes, here) <= self.survives)
    }

    /// What lies on these nodes may leave.
    fn leave(&mut self, nodes: &BTreeSet<usize>) {
        let homes = self.homes.iter_mut().flatten();
        homes.filter(|home| nodes.contains(home)).for_each(|home| *home += LOST);
    }
}

fn first_handed(ranks: &[Seen]) -> Option<u64> {
    ranks.iter().find_map(|seen| match seen.handed.first()?.1 {
        Read::Version(number) => Some(number),
        _ => None,
    })
}

/// How many nodes of these are not there.
fn away(homes: &[usize], here: &BTreeSet<usize>) -> usize {
    homes.iter().filter(|node| !here.contains(node)).collect::<BTreeSet<_>>().len()
}
