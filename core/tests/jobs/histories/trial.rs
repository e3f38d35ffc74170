//! Runs a history in a world of files and threads, and checks the ten promises at each restart.

use super::super::world::{contents, files_below, Outcome, World};
use super::history::{
    file_name, folder_of, name_of, play, sizes, Area, Came, Event, Probe, Reaction, Read, Run, Seen,
    Settings, Step,
};
use super::index;
use super::told::{first_handed, share, Told, Went};
use super::POOL;
use scr_base::fs::{Files, How, RealFiles};
use scr_comm::Rank;
use scr_prefix::ledger::{pending, LedgerDir};
use scr_prefix::{DatasetDescriptor, FlushFile, Index, IndexEntry, Location, Prefix};
use scr_test_kit::faulty::FaultyFiles;
use scr_test_kit::fixtures::ChangeIndex as _;
use scr_test_kit::promises::{Fate, Promise, Restart, Says, View};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "lock")
}

/// How far a command has come.
const CAME: u8 = 1;
const WROTE: u8 = 2;

/// The state of things before a run.
struct Before {
    /// The datasets that lie in containers, and that the run would have to read in place.
    out_of_reach: Vec<u64>,
    /// The one that the index offers first, and that the run can read.
    offered: Option<u64>,
    fates: Vec<Fate>,
    says: Says,
}

/// A world, and what was told of it.
pub(super) struct Trial {
    world: World,
    base: String,
    told: Told,
    next: u64,
    runs: usize,
    /// The nodes of the run before.
    before: Vec<usize>,
    /// Entries that a command has made while a job was stopped.
    commands: Vec<(bool, u64)>,
    /// Prefix directories in which files may have no checksum, and those in which only checksums show the damage.
    unsummed: BTreeSet<bool>,
    unseen: BTreeSet<bool>,
}

impl Trial {
    pub(super) fn new() -> Self {
        let world = World::new(4, 4);
        let base = world.dir().join("nodes/$SCR_NODE_NAME").display().to_string();
        Self {
            world,
            base,
            told: Told::default(),
            next: 1,
            runs: 0,
            before: Vec::new(),
            commands: Vec::new(),
            unsummed: BTreeSet::new(),
            unseen: BTreeSet::new(),
        }
    }

    /// Executes one run, and checks that it kept what was promised.
    pub(super) fn check_run(&mut self, run: &Run) -> Result<(), String> {
        let run = &Run { wants: self.named(run, run.wants), ..run.clone() };
        self.runs += 1;
        self.prepare(run);
        let faulty = FaultyFiles::new(RealFiles);
        if let Some(death) = run.dies {
            self.limit(&faulty, death.area);
            match death.torn {
                true => faulty.stop_torn_at(death.at),
                false => faulty.stop_at(death.at),
            }
        }
        self.expect_outage(run, &faulty);
        self.world.files = Arc::new(faulty.clone());
        let trouble = self.trouble(run, &faulty);
        let met = run.meets.map(|meeting| self.meet(meeting.at, &faulty));
        let before = self.before(run);
        let first = self.next;
        self.next += run.steps.len() as u64;
        let outcome = self.run(run, first);
        let (last, stumbled) = (faulty.first_failed(), trouble.first_failed());
        let came = met.map_or(0, |met| met.load(Ordering::SeqCst));
        let is_healthy = last.is_none() && stumbled.is_none() && came == 0;
        self.world.files = Arc::new(RealFiles);
        self.world.own_files.clear();
        if came == WROTE {
            self.commands.push((run.settings.other_prefix, self.next_command()));
        }
        let checked = self.check(run, &outcome, &before, is_healthy);
        let (ranks, out_of_reach) = (&*outcome.ranks, &*before.out_of_reach);
        self.told.remember(run, &Went { ranks, first, is_healthy, out_of_reach });
        self.end_outage(run, &faulty);
        // The flush file is not synced: an outage may take what was written last.
        let checked = checked.and_then(|()| self.check_listed(came == WROTE && run.outage.is_none()));
        run.after.iter().for_each(|event| self.apply(*event, run));
        let checked = checked.and_then(|()| self.probe(run));
        self.before.clone_from(&run.nodes);
        checked.map_err(|why| {
            let written: Vec<_> = self.told.written.iter().map(|written| format!("{written:?}")).collect();
            let (lines, written) = (outcome.lines.join("\n"), written.join("\n"));
            format!(
                "run {}: {why}\nstopped at {last:?}, stumbled at {stumbled:?}, met: {came}\n{lines}\n{written}",
                self.runs
            )
        })
    }

    /// The name that the user gives. A user who names a checkpoint answers for files without checksums, so none names one that
    /// another program has begun to write over.
    fn named(&self, run: &Run, wants: Option<u8>) -> Option<u8> {
        let place = run.settings.other_prefix;
        let is_damaged = |name: &str| {
            let mut all = self.told.written.iter().filter(|written| share(&written.name, name));
            all.any(|written| written.is_damaged && written.other_prefix == place)
        };
        wants.filter(|&wanted| !(self.unsummed.contains(&place) && is_damaged(&name_of(wanted))))
    }

    fn run(&self, run: &Run, first: u64) -> Outcome<Seen> {
        let known = self.told.written.iter().map(|written| (written.number, written.name.clone()));
        let known: Vec<_> = known.collect();
        self.world.try_run(|application| play(application, run, &known, first))
    }

    /// Tries what else could happen now, each in a copy of the world.
    fn probe(&mut self, run: &Run) -> Result<(), String> {
        let elsewhere: Vec<usize> = (POOL..POOL + run.nodes.len()).collect();
        let is_any_flushed = !index::flushed_files(&self.world.prefix()).is_empty();
        if is_any_flushed || self.told.owed(&run.that_takes_all(elsewhere.clone()), &[])[0].is_some() {
            self.take_all(run, elsewhere)?;
        }
        let nodes = match run.probe {
            Probe::Later { wants } => {
                // Its nodes are lost after that.
                let settings = Settings { flush: run.settings.flush.max(1), ..run.settings.clone() };
                let later = run.that_takes_all(run.nodes.clone());
                let settings = Settings { window: 0, ..settings };
                let probe = Probe::Here { lost: None };
                let later =
                    Run { settings, wants, probe, reaction: Reaction::Take, finalizes: true, ..later };
                return self.in_copy(&run.nodes, |trial| trial.check_run(&later));
            }
            Probe::Ranks(ranks) => run.nodes_of(ranks),
            Probe::Before if !self.before.is_empty() => self.before.clone(),
            Probe::Here { lost: Some(rank) } if rank < run.nodes.len() => {
                let in_its_place = |&node: &usize| if node == run.nodes[rank] { POOL } else { node };
                run.nodes.iter().map(in_its_place).collect()
            }
            Probe::Here { .. } | Probe::Before => run.nodes.clone(),
        };
        self.take_all(run, nodes)
    }

    /// Works on a copy of what a run on these nodes sees.
    fn in_copy(
        &mut self,
        nodes: &[usize],
        work: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let (aside, told) = (self.world.set_aside(&names_of(nodes)), self.told.clone());
        let done = work(self);
        self.world.take_back(&aside);
        self.told = told;
        done
    }

    /// In a copy, a run on these nodes takes one checkpoint after the other.
    fn take_all(&mut self, run: &Run, nodes: Vec<usize>) -> Result<(), String> {
        let probe = run.that_takes_all(nodes);
        self.in_copy(&probe.nodes, |trial| {
            trial.prepare(&probe);
            let before = trial.before(&probe);
            let outcome = trial.run(&probe, trial.next);
            trial.check(&probe, &outcome, &before, true).map_err(|why| {
                let lines = outcome.lines.join("\n");
                format!("a restart on {:?} afterwards: {why}\n{lines}\n", probe.nodes)
            })
        })
    }

    fn before(&self, run: &Run) -> Before {
        let place = run.settings.other_prefix;
        let is_in_place = |ranks: usize| run.settings.global || ranks != run.nodes.len();
        let written = self.told.written.iter();
        let out_of_reach = written
            .filter(|written| is_in_place(written.ranks) && index::is_aggregated(&self.world, &written.name));
        let out_of_reach: Vec<u64> = out_of_reach.map(|written| written.number).collect();
        // The current one comes first.
        let offered = index::offered(&self.world).into_iter().max();
        let offered = offered.filter(|(is_current, ..)| *is_current || !self.told.has_gone_back(place));
        let offered = offered
            .map(|(_, number, _)| number)
            .filter(|number| self.told.is_offered(run, *number) && !out_of_reach.contains(number));
        let fates = self.told.fates(run, self.told.owed(run, &out_of_reach));
        Before { out_of_reach, offered, fates, says: self.says() }
    }

    /// The numbers that the ledger gives.
    fn says(&self) -> Says {
        let prefix = Prefix::new(self.world.prefix());
        let dir = LedgerDir::new(&RealFiles, &prefix);
        let last_run = dir.last_run(0).map_or(0, |run| run.number);
        Says { last_run, next_id: dir.next_id().unwrap_or(0), ..Says::default() }
    }

    /// Checks a run, and the promises at each of its restarts.
    fn check(
        &self,
        run: &Run,
        ended: &Outcome<Seen>,
        before: &Before,
        is_healthy: bool,
    ) -> Result<(), String> {
        let handed = self.told.handed(run, &ended.ranks, is_healthy)?;
        let has_begun = ended.ranks.iter().all(|seen| seen.began);
        if is_healthy && !has_begun && before.fates.iter().all(|fate| !fate.has_arrived) {
            return Err("no session begins".to_owned());
        }
        // A run does not begin at zero over a checkpoint that it cannot read.
        let is_asked = (has_begun || is_healthy) && !matches!(run.reaction, Reaction::Ignore);
        // A rank whose files cannot be read learns it from the call. Rank 0 has files in every version.
        let is_told = !has_begun
            || ended.lines.iter().any(|line| line.contains("ERROR") || line.contains("WARNING"))
            || !is_healthy && ended.ranks[0].failed
            || matches!(ended.ranks[0].handed.first(), Some((_, Read::Nothing)));
        let promises: &[Promise] = match (is_asked && run.wants.is_none(), is_healthy, has_begun) {
            (true, true, true) => Promise::ALL,
            (true, true, false) => &[Promise::Kept],
            (true, false, _) => {
                &[Promise::Newest, Promise::Begin, Promise::Whole, Promise::Gone, Promise::Refused]
            }
            (false, ..) => ALWAYS,
        };
        let place_of = |number: &u64| self.told.written.iter().position(|written| written.number == *number);
        let handed_out: Vec<usize> = handed.iter().filter_map(place_of).collect();
        // What commands have listed stands behind what the runs have written.
        let (index, mut fates) = (index::index_of(&self.world), before.fates.clone());
        let here = self.commands.iter().filter(|(place, _)| *place == run.settings.other_prefix);
        let commands: Vec<bool> = here.map(|(_, id)| index.entry(*id).is_some()).collect();
        let is_offered: Vec<bool> =
            self.told.written.iter().map(|written| before.offered == Some(written.number)).collect();
        let is_found = |of: usize| is_offered[of] || fates[of].is_complete || handed_out.contains(&of);
        let is_found: Vec<bool> = (0..fates.len()).map(is_found).collect();
        fates.extend(commands.iter().map(|_| Fate { is_complete: true, ..Fate::default() }));
        let always = vec![true; fates.len()];
        let says = |counts: Vec<bool>, numbers: Says| {
            let counts = [counts, commands.clone()].concat();
            Says { counts, has_name: always.clone(), is_withdrawn: always.clone(), ..numbers }
        };
        let (now, after) = (says(is_offered, before.says.clone()), says(is_found, self.says()));
        let named: Vec<usize> = if is_told { (0..fates.len()).collect() } else { Vec::new() };
        let is_any_left = is_healthy && !run.settings.detached && self.is_any_flush_left();
        let none = handed_out.is_empty().then_some(None);
        for (at, dataset) in handed_out.iter().copied().map(Some).chain(none).enumerate() {
            let restart = dataset.map(|dataset| Restart { dataset, is_whole: fates[dataset].is_whole });
            let view = View { now: &now, fates: &fates, restart, named: &named, after: &after, is_any_left };
            let mut promises = if at == 0 { promises } else { ALWAYS }.iter();
            if let Some(broken) = promises.find(|promise| !promise.is_kept(&view)) {
                let (why, at) = (broken.text(), dataset.map(|of| &self.told.written[of]));
                let owed = self.told.written.iter().zip(&fates).filter(|(_, fate)| fate.is_complete);
                let owed: Vec<_> = owed.map(|(written, _)| written.number).collect();
                return Err(format!(
                    "{broken:?}: {why} Handed out: {handed:?}, now {at:?}; owed: {owed:?}, offered: {:?}",
                    before.offered
                ));
            }
            // It is given up, and the next one follows.
            dataset.into_iter().for_each(|of| fates[of].is_being_dropped = true);
        }
        if is_asked && is_healthy && has_begun {
            self.check_steps(run, &ended.ranks)?;
        }
        Ok(())
    }

    /// Checks that every version that the index offers is in the prefix directory, byte for byte, at any time, and that the
    /// flush file has the entry that a command has just made.
    fn check_listed(&self, has_command: bool) -> Result<(), String> {
        for (_, number, name) in index::offered(&self.world) {
            let Some(written) = self.told.intact(number) else { continue };
            for rank in (0..written.ranks as u32).map(Rank) {
                for (at, size) in sizes(number, rank).into_iter().enumerate() {
                    let file = file_name(&name, rank, at);
                    let bytes = index::flushed_bytes(&self.world, &name, &file);
                    if bytes != Some(contents(number, rank, at, size)) {
                        return Err(format!("the index offers {number}, `{name}', but {file} is not of it"));
                    }
                }
            }
        }
        let flush = FlushFile::read(&RealFiles, &Prefix::new(self.world.prefix()));
        let command = self.commands.last().filter(|_| has_command);
        match command.is_some_and(|(_, id)| !flush.is_ok_and(|flush| flush.entry(*id).is_some())) {
            true => Err("the entry that a command has made in the flush file is lost".to_owned()),
            false => Ok(()),
        }
    }

    /// Without faults every step comes to what it should.
    fn check_steps(&self, run: &Run, ranks: &[Seen]) -> Result<(), String> {
        // A run that has refused a checkpoint does not begin at zero over an older one that it cannot read.
        if matches!(run.reaction, Reaction::Refuse(_)) && ranks.iter().all(|seen| seen.came.is_empty()) {
            return Ok(());
        }
        let may_be_kept_out = self.told.has_output_over_checkpoints(run);
        let is_late = self.told.may_be_late(run, first_handed(ranks)) || may_be_kept_out;
        let ends = run.finalizes && run.wants.is_none() && !is_late;
        for (rank, seen) in ranks.iter().enumerate() {
            if seen.came.len() < run.steps.len() || ends && !seen.finalized {
                return Err(format!("rank {rank} has not come to its end: {seen:?}"));
            }
            for (step, came) in run.steps.iter().zip(&seen.came) {
                let is_good = match step {
                    Step::Checkpoint { bad: Some(bad), .. } if *bad < ranks.len() => {
                        matches!(came, Came::Failed(_))
                    }
                    Step::Output { .. } if may_be_kept_out => !matches!(came, Came::Short(_)),
                    Step::Checkpoint { .. } | Step::Output { .. } => *came == Came::Good,
                    Step::Delete { .. } | Step::Drop { .. } | Step::Current { .. } => true,
                };
                if !is_good {
                    return Err(format!("rank {rank}: {step:?} came to {came:?}"));
                }
            }
        }
        Ok(())
    }

    fn is_any_flush_left(&self) -> bool {
        let prefix = Prefix::new(self.world.prefix());
        pending::list(LedgerDir::new(&RealFiles, &prefix)).is_ok_and(|left| !left.is_empty())
    }

    /// The number of the next entry that a command makes.
    fn next_command(&self) -> u64 {
        (self.commands.len() as u64 + 1) * 1_000_000
    }

    /// Only such operations are counted, and fail.
    fn limit(&self, files: &FaultyFiles, area: Area) {
        let prefix = self.world.prefix();
        match area {
            // Whether a library is read depends on what this process has loaded before.
            Area::All => files.only_below(self.world.dir()),
            Area::Data => {
                files.only(move |_, path| path.starts_with(&prefix) && index::is_flushed(&prefix, path));
            }
            Area::Record(name) => {
                let records = prefix.join(".scr");
                files.only(move |_, path| path.starts_with(&records) && path.ends_with(name));
            }
            Area::Records => files.only_below(prefix.join(".scr")),
            Area::Cache => files.only_below(self.world.dir().join("nodes")),
            Area::Filemaps => files.only(|_, path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                name.starts_with("filemap_")
            }),
            Area::First => {
                let first = index::offered(&self.world).into_iter().max().map(|(_, _, name)| name);
                let id = first.as_ref().and_then(|name| index::index_of(&self.world).id_of(name));
                let containers = id.map(|id| Prefix::new(&prefix).dataset_dir(id));
                let folder = first.map(|name| prefix.join(folder_of(&name)));
                files.only(move |_, path| {
                    let mut folders = folder.iter().chain(&containers);
                    index::is_flushed(&prefix, path) && folders.any(|folder| path.starts_with(folder))
                });
            }
            Area::File(rank, number) => {
                let name = format!("rank_{rank}.{number}");
                files.only(move |_, path| {
                    let is_named = |path: &Path| path.file_name().is_some_and(|other| *other == *name);
                    path.starts_with(&prefix) && is_named(path)
                });
            }
        }
    }

    /// A layer in which one rank has its troubles, for the rank that has them.
    fn trouble(&mut self, run: &Run, faulty: &FaultyFiles) -> FaultyFiles {
        let trouble = FaultyFiles::new(faulty.clone());
        if let Some(stumble) = run.stumbles.filter(|stumble| stumble.rank < run.nodes.len()) {
            if stumble.reads {
                trouble.count_all();
            }
            if stumble.tears {
                trouble.tear_writes();
            }
            self.limit(&trouble, stumble.area);
            trouble.never_pause();
            let kind = if stumble.passes { ErrorKind::TimedOut } else { ErrorKind::Other };
            trouble.fail_for(stumble.at, stumble.many, kind);
            let ranks = match stumble.area.is_of_all_ranks() {
                true => 0..run.nodes.len(),
                false => stumble.rank..stumble.rank + 1,
            };
            for rank in ranks {
                self.world.own_files.insert(Rank(rank as u32), Arc::new(trouble.clone()));
            }
        }
        trouble
    }

    /// Lets a command come before rank 0's change number `at` of the index: the lock looks as if its holder had died on another
    /// machine. Gives whether the command has come, and whether it has written.
    fn meet(&mut self, at: u64, faulty: &FaultyFiles) -> Arc<AtomicU8> {
        let own = self.world.own_files.get(&Rank(0)).unwrap_or(&self.world.files);
        let stopped = FaultyFiles::around(Arc::clone(own));
        let is_shared = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ["index.", "flush.scr", ".index.scr", ".flush.scr"].iter().any(|first| name.starts_with(first))
        };
        stopped.only(move |_, path| is_shared(path));
        let prefix = Prefix::new(self.world.prefix());
        let id = self.next_command();
        let came = Arc::new(AtomicU8::new(0));
        let (comes, files) = (Arc::clone(&came), faulty.clone());
        stopped.interrupt_at(at, move || {
            comes.store(CAME, Ordering::SeqCst);
            if let Ok(lock) = RealFiles.open(&prefix.scr_file("index.lock"), How::Update) {
                lock.write_at(0, b"another machine, with a name of some length").expect("it is ours");
                lock.set_times((1000, 0), (1000, 0)).expect("it is ours");
            }
            let name = format!("command.{id}").into_bytes();
            let entry = DatasetDescriptor { id, name, output: true, ..DatasetDescriptor::default() };
            let listed = Index::update(&files, &prefix, |index| index.record(&entry, true));
            let recorded = FlushFile::update(&files, &prefix, |file| file.record(&entry, Location::Prefix));
            if listed.is_ok() && recorded.is_ok() {
                comes.store(WROTE, Ordering::SeqCst);
            }
        });
        self.world.own_files.insert(Rank(0), Arc::new(stopped));
        came
    }

    fn expect_outage(&self, run: &Run, faulty: &FaultyFiles) {
        let Some(outage) = run.outage else { return };
        // Transports sync what they have copied.
        faulty.remember_synced(self.world.prefix(), |path| path.extension().is_some_and(|end| end == "part"));
        for node in run.nodes.iter().collect::<BTreeSet<_>>().into_iter().filter(|_| outage.disks) {
            faulty.remember_synced(self.world.node(&format!("n{node}")), |_| false);
        }
    }

    /// Ends a run in an outage: unsynced bytes are lost, or whole disks.
    fn end_outage(&mut self, run: &Run, faulty: &FaultyFiles) {
        let Some(outage) = run.outage else { return };
        faulty.lose_unsynced(outage.seed).expect("the world is made of real files");
        // It takes longer than the lock of a holder counts that cannot be seen to be dead.
        let minute_ago = SystemTime::now() - Duration::from_secs(60);
        for lock in files_below(self.world.dir()).into_iter().filter(|path| is_lock(path)) {
            let lock = std::fs::File::options().write(true).open(lock).expect("it is a file of this world");
            lock.set_modified(minute_ago).expect("it is a file of this world");
        }
        for &node in &run.nodes {
            match outage.disks {
                true => self.told.lose(node),
                false => self.apply(Event::Lose(node), run),
            }
        }
    }

    fn prepare(&mut self, run: &Run) {
        let settings = &run.settings;
        self.world.nodes = names_of(&run.nodes);
        self.world.link = settings.link;
        self.world.turn_to(if settings.other_prefix { "prefix2" } else { "prefix" });
        let base = if settings.other_base { format!("{}/other", self.base) } else { self.base.clone() };
        let flag = |on: bool| if on { "1" } else { "0" };
        // Only checksums detect changed bytes.
        let flush_sums = settings.flush_sums || self.unseen.contains(&settings.other_prefix);
        if !flush_sums {
            self.unsummed.insert(settings.other_prefix);
        }
        for (name, value) in [
            ("SCR_CACHE_BASE", base.as_str()),
            ("SCR_COPY_TYPE", settings.scheme),
            ("SCR_SET_FAILURES", "1"),
            ("SCR_CACHE_SIZE", &settings.keep.to_string()),
            ("SCR_FLUSH", &settings.flush.to_string()),
            ("SCR_FLUSH_ASYNC", flag(settings.detached)),
            ("SCR_FLUSH_TYPE", if settings.detached { "PTHREAD" } else { "SYNC" }),
            ("SCR_CACHE_BYPASS", flag(settings.bypass)),
            ("SCR_FETCH_BYPASS", flag(settings.fetch_bypass)),
            ("SCR_CRC_ON_COPY", flag(settings.sums)),
            ("SCR_CRC_ON_FLUSH", flag(flush_sums)),
            ("SCR_GLOBAL_RESTART", flag(settings.global)),
            ("SCR_PREFIX_SIZE", &settings.window.to_string()),
            ("SCR_DROP_AFTER_CURRENT", flag(settings.drop_after_current)),
            ("SCR_ENCODE_ASYNC", flag(settings.behind)),
            ("SCR_CURRENT", &run.wants.map(name_of).unwrap_or_default()),
            ("SCR_REPLACE_OTHER_RANKS", "1"),
            ("SCR_RESTART_OTHER_RANKS", flag(settings.any_ranks)),
            ("SCR_TCP_INTERFACE", "127.0.0.0/8"),
        ] {
            self.world.put(name, value);
        }
        self.world.take_out("SCR_CONF_FILE");
        if settings.aggregate {
            let file = self.world.dir().join("site/scr.conf");
            std::fs::create_dir_all(file.parent().expect("its folder")).expect("it is ours");
            let line = format!("STORE={base} GROUP=NODE COUNT={} AGGREGATE=1\n", settings.keep);
            std::fs::write(&file, line).expect("it is ours");
            self.world.put("SCR_CONF_FILE", &file.display().to_string());
        }
    }

    fn apply(&mut self, event: Event, run: &Run) {
        let place = run.settings.other_prefix;
        match event {
            Event::LoseAll => (0..POOL).for_each(|node| self.apply(Event::Lose(node), run)),
            Event::Lose(node) => {
                let _ = std::fs::remove_dir_all(self.world.node(&format!("n{node}")));
                self.told.lose(node);
            }
            Event::Flip(which) => self.damage(&self.world.cached_files(), which, |bytes| flip(bytes)),
            Event::Cut(which) => self.damage(&self.world.cached_files(), which, cut),
            Event::CutOn(node, which) => {
                let mut files = files_below(&self.world.node(&format!("n{node}")));
                files.retain(|path| !path.components().any(|part| part.as_os_str() == ".scr"));
                self.damage(&files, which, cut);
            }
            Event::FlipInPrefix { which, noticed } => self.damage_flushed(which, noticed, place),
            Event::WriteOver(name) => self.write_over(&name_of(name), place),
            Event::DropFromIndex(name) => {
                self.told.end_in_folder(place, &name_of(name));
                self.change_index(|index| _ = index.drop_name(name_of(name)));
            }
            Event::MakeCurrent(name) => {
                self.told.go_back(place);
                self.change_index(|index| _ = index.set_current(name_of(name)));
            }
        }
    }

    /// Changes the index as a command does. The command fails if there is no prefix directory yet.
    fn change_index(&self, change: impl FnOnce(&mut Index)) {
        let _ = Index::update(&RealFiles, &Prefix::new(self.world.prefix()), change);
    }

    fn damage(&mut self, files: &[PathBuf], which: proptest::sample::Index, change: impl Fn(&mut Vec<u8>)) {
        if files.is_empty() {
            return;
        }
        let path = which.get(files);
        change_file(path, change);
        let below = path.strip_prefix(self.world.dir().join("nodes")).expect("it lies there");
        let node = below.iter().next().and_then(|node| node.to_str()?.strip_prefix('n')?.parse().ok());
        if let Some(node) = node {
            self.told.lose(node);
        }
        // Perhaps no other one says that its dataset is complete.
        if path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"filemap_")) {
            self.told.forget(|_| true);
        }
    }

    fn damage_flushed(&mut self, which: proptest::sample::Index, noticed: bool, place: bool) {
        let prefix = self.world.prefix();
        let files = index::flushed_files(&prefix);
        if files.is_empty() || self.unsummed.contains(&place) {
            return;
        }
        let path = which.get(&files);
        change_file(path, |bytes| flip(bytes));
        let folder = index::folder_of_flushed(&prefix, path);
        self.told.damage(place, &folder);
        self.unseen.insert(place);
        if noticed {
            self.change_index(|index| {
                let is_it = |entry: &IndexEntry| share(&String::from_utf8_lossy(&entry.name), &folder);
                let hit = index.candidates().into_iter().find(is_it);
                _ = hit.is_some_and(|hit| index.mark_failed(hit.id, "2026-11-21T03:28:24"));
            });
        }
    }

    /// Another program dies while it writes in the folder of this name: an entry in the index says that it has begun.
    fn write_over(&mut self, name: &str, place: bool) {
        let folder = self.world.prefix().join(folder_of(name));
        let Some(path) = files_below(&folder).into_iter().next() else { return };
        self.told.damage(place, name);
        self.change_index(|index| {
            // No run has it.
            let id = index.highest_id().unwrap_or(0) + 1000;
            let name = format!("{name}.other").into_bytes();
            index.record(
                &DatasetDescriptor { id, name, checkpoint: true, ..DatasetDescriptor::default() },
                false,
            );
        });
        change_file(&path, |bytes| flip(bytes));
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        let file = std::fs::File::options().append(true).open(path).expect("it is ours");
        file.set_modified(later).expect("it is ours");
    }
}

fn names_of(nodes: &[usize]) -> Vec<String> {
    nodes.iter().map(|node| format!("n{node}")).collect()
}

fn change_file(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("it is ours");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("it is ours");
}

/// Changes a byte: not in the header of a redundancy file, where it is found before anything is rebuilt.
fn flip(bytes: &mut [u8]) {
    let at = if bytes.len() > HEADER { bytes.len() - 1 } else { bytes.len() / 2 };
    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x10);
}

const HEADER: usize = 4096;

fn cut(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() * 2 / 3);
}

/// The promises about each restart of a run, whatever goes wrong.
const ALWAYS: &[Promise] = &[Promise::Whole, Promise::Gone, Promise::Refused];
