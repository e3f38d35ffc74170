//! The promises made in a history so far, and whether a run keeps them.

use super::super::world::{files_below, Outcome, World};
use super::history::{
    folder_of, name_of, play, sizes, Area, Came, Event, Probe, Reaction, Read, Run, Seen, Settings, Step,
};
use super::saved::{entries_of, failed, index_of, is_aggregated, offered, Saved};
use super::POOL;
use scr_base::env::Link;
use scr_base::fs::{Files, How, RealFiles};
use scr_comm::Rank;
use scr_prefix::{DatasetDescriptor, FlushFile, Index, Location, Prefix, Summary};
use scr_test_kit::faulty::FaultyFiles;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

/// How far a command has come.
const CAME: u8 = 1;
const WROTE: u8 = 2;
/// A node that is there no more.
const LOST: usize = 1000;

/// A checkpoint that somebody tried to make.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) ranks: usize,
    /// Whether all ranks called it valid, so that it may be whole, whatever came after.
    possible: bool,
    checkpoint: bool,
    output: bool,
    bypass: bool,
    /// Whether it was dropped, deleted or refused, and no node that has anything of it was away.
    gone: bool,
    other_base: bool,
    other_prefix: bool,
    /// The nodes of those that wrote it: no two ranks of one share redundancy.
    nodes: Vec<usize>,
    /// How many of those may have lost their parts, wherever they are, now and once it is protected.
    survives: usize,
    protected: usize,
    /// Whether it may be local, so that older ones stay.
    local: bool,
    /// The nodes that may have the part of each rank; one of them has all of it. None where nothing is promised.
    homes: Vec<Vec<usize>>,
    /// The places in cache that may have anything of it: whether below the other base, and the node.
    places: BTreeSet<(bool, usize)>,
    /// Whether it is flushed in containers.
    packed: bool,
}

/// The versions that a run finds, and those that it has to find.
pub(super) struct Found {
    /// The version that the index offers.
    pub(super) listed: Option<u64>,
    /// The newest version that was promised to be in the prefix directory.
    pub(super) saved: Option<u64>,
    /// The newest one of them that this run can read.
    readable: Option<u64>,
    /// The newest version that is in cache as far as this run can see.
    cached: Option<u64>,
    /// Whether the user has chosen one that this run cannot read.
    is_chosen_out_of_reach: bool,
    /// A version in cache of which the index says that its copy failed.
    pub(super) failed: Option<u64>,
    /// All that the index offers.
    pub(super) offered: Vec<(bool, u64, String)>,
    /// The numbers and names of all that the index has.
    pub(super) entries: Vec<(u64, String)>,
}

/// How a run went.
pub(super) struct EndedRun<'a> {
    pub(super) run: &'a Run,
    pub(super) outcome: &'a Outcome<Seen>,
    pub(super) found: &'a Found,
    /// Whether a command has changed the index meanwhile.
    pub(super) met: bool,
    /// Whether nothing went wrong.
    pub(super) healthy: bool,
}

/// A world, and what its past runs have promised.
pub(super) struct Model {
    pub(super) world: World,
    base: String,
    pub(super) versions: Vec<Version>,
    pub(super) saved: Saved,
    next: u64,
    runs: usize,
    /// The nodes of the run before.
    before: Vec<usize>,
    /// Prefix directories in which files may have no checksum.
    unsummed: BTreeSet<bool>,
}

impl Model {
    pub(super) fn new() -> Self {
        let world = World::new(4, 4);
        let base = world.dir().join("nodes/$SCR_NODE_NAME").display().to_string();
        Self {
            world,
            base,
            versions: Vec::new(),
            saved: Saved::default(),
            next: 1,
            runs: 0,
            before: Vec::new(),
            unsummed: BTreeSet::new(),
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
        let found = self.found(run);
        let first = self.next;
        self.next += run.steps.len() as u64;
        let outcome = self.run(run, first);
        let (last, stumbled) = (faulty.first_failed(), trouble.first_failed());
        let came = met.map_or(0, |met| met.load(Ordering::SeqCst));
        let met = came == WROTE;
        let stopped = last.is_some() || stumbled.is_some() || came > 0;
        self.world.files = Arc::new(RealFiles);
        self.world.own_files.clear();
        let ended = EndedRun { run, outcome: &outcome, found: &found, met, healthy: !stopped };
        let checked = self.check(run, &outcome, &found, stopped).and_then(|()| self.check_prefix(&ended));
        if met {
            let id = self.saved.next_command();
            self.saved.add_command(run.settings.other_prefix, id);
        }
        self.remember(run, &outcome.ranks, first, stopped);
        self.end_outage(run, &faulty);
        let checked = checked.and_then(|()| self.check_listed(run));
        run.after.iter().for_each(|event| self.apply(*event, run));
        let checked = checked.and_then(|()| self.probe(run));
        self.before.clone_from(&run.nodes);
        checked.map_err(|why| {
            let versions: Vec<_> = self.versions.iter().map(|version| format!("{version:?}")).collect();
            let (lines, versions) = (outcome.lines.join("\n"), versions.join("\n"));
            format!(
                "run {}: {why}\nstopped at {last:?}, stumbled at {stumbled:?}, met: {met}\n{:?}\n{lines}\n{versions}",
                self.runs, self.saved
            )
        })
    }

    /// The name that the user gives. A user who names a checkpoint answers for files without checksums, so none names one that
    /// another program has begun to write over.
    fn named(&self, run: &Run, wants: Option<u8>) -> Option<u8> {
        let place = run.settings.other_prefix;
        let is_damaged = |name: &str| {
            let mut shared = self.versions.iter().filter(|version| share(&version.name, name));
            shared.any(|version| self.saved.is_damaged(place, version.number))
        };
        wants.filter(|&wanted| !(self.unsummed.contains(&place) && is_damaged(&name_of(wanted))))
    }

    fn run(&self, run: &Run, first: u64) -> Outcome<Seen> {
        let known: Vec<_> =
            self.versions.iter().map(|version| (version.number, version.name.clone())).collect();
        self.world.try_run(|application| play(application, run, &known, first))
    }

    /// Tries what else could happen now, each in a copy of the world.
    fn probe(&mut self, run: &Run) -> Result<(), String> {
        let elsewhere: Vec<usize> = (POOL..POOL + run.nodes.len()).collect();
        if self.may_have_saved(run) {
            self.in_copy(&elsewhere, |model| model.take_all(&run.that_takes_all(elsewhere.clone())))?;
        }
        let nodes = match run.probe {
            Probe::Later { wants } => {
                return self.in_copy(&run.nodes, |model| model.end_well(run, wants, elsewhere));
            }
            Probe::Ranks(ranks) => run.nodes_of(ranks),
            Probe::Before if !self.before.is_empty() => self.before.clone(),
            Probe::Here { lost: Some(rank) } if rank < run.nodes.len() => {
                let in_its_place = |&node: &usize| if node == run.nodes[rank] { POOL } else { node };
                run.nodes.iter().map(in_its_place).collect()
            }
            Probe::Here { .. } | Probe::Before => run.nodes.clone(),
        };
        self.in_copy(&nodes, |model| model.take_all(&run.that_takes_all(nodes.clone())))
    }

    /// Whether a run that sees nothing but the prefix directory may find a checkpoint there, or has to.
    fn may_have_saved(&self, run: &Run) -> bool {
        let (prefix, promised) =
            (self.world.prefix(), self.saved.all(run.settings.other_prefix, run.reads()));
        promised.count() > 0 || !flushed_files(&prefix).is_empty()
    }

    /// Works on a copy of what a run on these nodes sees.
    fn in_copy(
        &mut self,
        nodes: &[usize],
        work: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let aside = self.world.set_aside(&names_of(nodes));
        let done = work(self);
        self.world.take_back(&aside);
        done
    }

    /// All that can be restarted from is whole, and nothing is missing.
    fn take_all(&mut self, probe: &Run) -> Result<(), String> {
        self.prepare(probe);
        let found = self.found(probe);
        let outcome = self.run(probe, self.next);
        let checked =
            self.check(probe, &outcome, &found, false).and_then(|()| self.check_all(probe, &outcome));
        checked.map_err(|why| describe_check(probe, &outcome, &why))
    }

    /// If a run ends normally, the next one on other nodes finds the version that this one restarts from. If the user has gone
    /// back to that version, it is the first one, and with `SCR_DROP_AFTER_CURRENT` the last one in cache.
    fn end_well(&mut self, run: &Run, wants: Option<u8>, elsewhere: Vec<usize>) -> Result<(), String> {
        let wants = self.named(run, wants);
        let settings = Settings { flush: run.settings.flush.max(1), window: 0, ..run.settings.clone() };
        let (reaction, failed) = (Reaction::Take, failed(&self.world));
        let probe =
            Run { settings, wants, reaction, finalizes: true, ..run.that_takes_all(run.nodes.clone()) };
        self.prepare(&probe);
        let found = self.found(&probe);
        let outcome = self.run(&probe, self.next);
        let checked = self.check(&probe, &outcome, &found, false);
        checked.map_err(|why| describe_check(&probe, &outcome, &why))?;
        let Some(taken) = first_handed(&outcome.ranks).and_then(|number| self.version(number)) else {
            return Ok(());
        };
        let (number, name) = (taken.number, taken.name.clone());
        let mut later = self.versions.iter().filter(|version| version.number > number);
        if later.any(|version| share(&version.name, &name)) {
            // It may be in cache only.
            return Ok(());
        }
        let went_back = wants.map(name_of) == Some(name);
        let place = probe.settings.other_prefix;
        if !went_back && self.saved.has_gone_back(place) || self.saved.went_back_in_index(place) {
            // An older one may be the current one, which counts where no cache is at hand: what the user has chosen counts no
            // more once a run of this allocation has started from it.
            return Ok(());
        }
        if self.saved.is_damaged(probe.settings.other_prefix, number) && !failed.contains(&number) {
            // No run has noticed the damage.
            return Ok(());
        }
        let drops = went_back && probe.settings.drop_after_current;
        let next = probe.that_takes_all(if drops { run.nodes.clone() } else { elsewhere });
        if self.is_out_of_reach(&next, number) {
            // This run has taken it from the caches.
            return Ok(());
        }
        self.prepare(&next);
        let outcome = self.run(&next, self.next);
        let handed = self.handed(&next, &outcome.ranks, true);
        let handed = handed.map_err(|why| describe_check(&next, &outcome, &why))?;
        let is_right = match went_back {
            true => handed.first() == Some(&number),
            false => handed.contains(&number),
        };
        match is_right {
            true => Ok(()),
            false => {
                let why = format!("a run took {number} and ended well, and the next one finds {handed:?}");
                Err(describe_check(&next, &outcome, &why))
            }
        }
    }

    /// All that is promised is there to be taken, or what has come in its place.
    fn check_all(&self, probe: &Run, outcome: &Outcome<Seen>) -> Result<(), String> {
        let handed = self.handed(probe, &outcome.ranks, true)?;
        let promised = self.all_cached(probe).chain(self.readable(probe));
        let replaces = |number: u64, other: u64| {
            let names = self.version(number).zip(self.version(other));
            other >= number && names.is_some_and(|(one, other)| share(&one.name, &other.name))
        };
        let is_kept = |number: &u64| handed.iter().any(|other| replaces(*number, *other));
        match promised.into_iter().find(|number| !is_kept(number)) {
            Some(number) => Err(format!("{number} was promised, and only {handed:?} can be restarted from")),
            None => Ok(()),
        }
    }

    /// Only such operations are counted, and fail.
    fn limit(&self, files: &FaultyFiles, area: Area) {
        let prefix = self.world.prefix();
        match area {
            // Whether a library is read depends on what this process has loaded before.
            Area::All => files.only_below(self.world.dir()),
            Area::Data => {
                files.only(move |_, path| path.starts_with(&prefix) && is_flushed(&prefix, path));
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
                let first = offered(&self.world).into_iter().max().map(|(_, _, name)| name);
                let id = first.as_ref().and_then(|name| index_of(&self.world).id_of(name));
                let containers = id.map(|id| Prefix::new(&prefix).dataset_dir(id));
                let folder = first.map(|name| prefix.join(folder_of(&name)));
                files.only(move |_, path| {
                    let mut folders = folder.iter().chain(&containers);
                    is_flushed(&prefix, path) && folders.any(|folder| path.starts_with(folder))
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
        let id = self.saved.next_command();
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
        for &node in &run.nodes {
            match outage.disks {
                true => self.lose(node),
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
        let flush_sums = settings.flush_sums || self.saved.needs_checksums(settings.other_prefix);
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

    /// The offer of the index to this run: the current version, or else the newest.
    fn found(&self, run: &Run) -> Found {
        let (place, offered) = (run.settings.other_prefix, offered(&self.world));
        let fits = |number: u64| {
            let stays = |version: &Version| !self.is_overwritten(version) && !self.may_be_replaced(version);
            self.version(number).is_some_and(|version| run.can_read(version) && stays(version))
        };
        let is_usable = |number: u64| {
            fits(number) && !self.is_out_of_reach(run, number) && !self.saved.is_damaged(place, number)
        };
        let usable = offered.iter().filter(|(_, number, _)| is_usable(*number));
        // It may be taken anyway.
        let doubtful = offered.iter().any(|(current, number, _)| *current && !is_usable(*number));
        // So may one that somebody has gone back to while its flush could not be ended.
        let is_any_current = offered.iter().any(|(current, ..)| *current);
        let doubtful = doubtful || !is_any_current && self.saved.has_gone_back(place);
        let listed = usable.map(|(current, number, _)| (*current, *number)).max().map(|(_, number)| number);
        let listed = listed.filter(|_| !doubtful);
        let failed = self.cached(run).filter(|number| failed(&self.world).contains(number));
        let saved = self.saved.all(place, run.reads()).max();
        let (readable, cached) = (self.readable(run).max(), self.cached(run));
        let is_chosen_out_of_reach = (run.settings.global || run.settings.any_ranks)
            && run.wants.map(name_of).is_some_and(|wanted| is_aggregated(&self.world, &wanted));
        let entries = entries_of(&self.world);
        Found { listed, saved, readable, cached, is_chosen_out_of_reach, failed, offered, entries }
    }

    /// The versions that this run has to find in the prefix directory.
    fn readable<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = u64> + 'a {
        let saved = self.saved.all(run.settings.other_prefix, run.reads());
        saved.filter(|&number| !self.is_out_of_reach(run, number))
    }

    /// Whether it lies in containers, and the run reads its files in place.
    fn is_out_of_reach(&self, run: &Run, number: u64) -> bool {
        let is_in_place = |version: &Version| run.settings.global || version.ranks != run.nodes.len();
        let is_aggregated = |version: &Version| is_aggregated(&self.world, &version.name);
        self.version(number).is_some_and(|version| is_in_place(version) && is_aggregated(version))
    }

    pub(super) fn version(&self, number: u64) -> Option<&Version> {
        self.versions.iter().find(|version| version.number == number)
    }

    /// Whether there may be one in cache, or in a flush that a run ends when it begins, which takes its files' place and that
    /// this run cannot restart from: output, or one that another number of ranks wrote.
    fn may_be_replaced(&self, version: &Version) -> bool {
        self.later(version).any(|other| !other.checkpoint || other.ranks != version.ranks)
    }

    /// Whether the application may have written over it in place, which scr learns only in the end.
    pub(super) fn is_overwritten(&self, version: &Version) -> bool {
        let later = self.versions.iter().filter(|other| other.number > version.number && other.bypass);
        later.into_iter().any(|other| share(&other.name, &version.name))
    }

    /// The newest version that is in cache as far as this run can see.
    fn cached(&self, run: &Run) -> Option<u64> {
        self.all_cached(run).max()
    }

    /// The versions that this run has to find in cache. A run that reads in the prefix directory cannot read a version there
    /// whose files are those of a later one that is no checkpoint, that another number of ranks wrote, or that is damaged.
    fn all_cached<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = u64> + 'a {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        let there =
            self.versions.iter().filter(move |version| version.is_of(run) && version.is_promised(&here));
        let is_replaced = |version: &Version| {
            let is_damaged = |other: &Version| self.saved.is_damaged(other.other_prefix, other.number);
            let is_other =
                |other: &Version| other.ranks != version.ranks || !other.checkpoint || is_damaged(other);
            self.later(version).any(|other| is_other(other) && other.other_prefix == version.other_prefix)
        };
        there
            .filter(move |version| !(run.settings.global && is_replaced(version)))
            .filter(move |version| !self.is_out_of_reach(run, version.number))
            .map(|version| version.number)
            .chain(self.of_other_ranks(run))
    }

    /// The version in cache that this run has to make whole in the prefix directory: the newest that another number of ranks
    /// wrote, if nothing newer is in sight, and no later one may have the names of its files.
    fn of_other_ranks(&self, run: &Run) -> Option<u64> {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        let newest =
            self.versions.iter().filter(|version| version.possible).max_by_key(|version| version.number)?;
        let is_wanted =
            run.settings.any_ranks && newest.ranks != run.nodes.len() && newest.is_placed_for(run);
        // One that the index calls current comes first.
        let is_wanted = is_wanted && !self.saved.has_gone_back(run.settings.other_prefix);
        let is_there = is_wanted && newest.checkpoint && newest.is_promised(&here);
        // A flush that the run ends when it begins may have put it into containers, and threads need TCP to read it in the caches.
        let is_read_in_prefix = run.settings.global || run.settings.link == Link::InCalls;
        let is_out_of_reach = newest.packed && is_read_in_prefix || self.is_out_of_reach(run, newest.number);
        (is_there && !is_out_of_reach).then_some(newest.number)
    }

    /// The versions that may have come into the place of this one.
    pub(super) fn later<'a>(&'a self, version: &'a Version) -> impl Iterator<Item = &'a Version> {
        let later = self.versions.iter().filter(|other| other.number > version.number && other.possible);
        later.filter(|other| share(&other.name, &version.name))
    }

    fn check(&self, run: &Run, ended: &Outcome<Seen>, found: &Found, stopped: bool) -> Result<(), String> {
        let healthy = !stopped;
        let handed = self.handed(run, &ended.ranks, healthy)?;
        // No other one is taken in the place of one that the user has chosen.
        if healthy && !found.is_chosen_out_of_reach && ended.ranks.iter().any(|seen| !seen.began) {
            return Err("no session begins".to_owned());
        }
        if ended.ranks.iter().any(|seen| !seen.began) || matches!(run.reaction, Reaction::Ignore) {
            return Ok(());
        }
        let promised = found.cached.max(found.listed).max(found.readable);
        if healthy && run.wants.is_none() && handed.first().copied() < promised {
            let (first, Found { cached, listed, readable, .. }) = (handed.first(), found);
            return Err(format!(
                "restarted from {first:?}, but {cached:?} is in cache, {listed:?} in the index, and {readable:?} was flushed"
            ));
        }
        if run.wants.is_none() && handed.windows(2).any(|pair| pair[0] <= pair[1]) {
            return Err(format!("older ones come after newer ones: {handed:?}"));
        }
        if healthy {
            self.check_steps(run, &ended.ranks)?;
        }
        Ok(())
    }

    /// The versions that were handed out, in order.
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
            if let Some((_, (_, Read::Wrong(why)))) = reads.iter().find(|(rank, _)| *rank == 0) {
                return Err(why.clone());
            }
            let Some((_, (name, Read::Version(number)))) = reads.iter().find(|(rank, _)| *rank == 0) else {
                return if healthy && reads.iter().any(|(rank, _)| *rank == 0) {
                    Err("rank 0 has no files".to_owned())
                } else {
                    Ok(all)
                };
            };
            let version = self.version(*number).expect("the ranks have seen it");
            if !version.possible || version.gone || !version.checkpoint || !run.can_read(version) {
                return Err(format!("{version:?} must never be restarted from"));
            }
            for (rank, (named, read)) in &reads {
                if let Read::Wrong(why) = read {
                    return Err(why.clone());
                }
                // Every rank reads all that another number of ranks wrote, among which rank 0 has files.
                let reads_all = version.ranks != run.nodes.len();
                let has_files = reads_all || !sizes(*number, Rank(*rank as u32)).is_empty();
                let is_right = match read {
                    Read::Nothing => !has_files || !healthy,
                    read => has_files && *read == Read::Version(*number),
                };
                if named != name || !is_right {
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
        // An older checkpoint, to which the user goes back, or the only one that is left, cannot be flushed over a newer one; nor
        // over output. If all files are read in the prefix directory, a version that could not be flushed is passed over.
        let handed = first_handed(ranks);
        let is_late = |version: &Version| {
            let is_passed_over = run.settings.global && version.is_of(run) && Some(version.number) > handed;
            (is_passed_over || Some(version.number) == handed) && self.later(version).next().is_some()
        };
        let is_late = self.versions.iter().any(is_late) || run.writes_output_over_checkpoints();
        let ends = run.finalizes && run.wants.is_none() && !is_late;
        for (rank, seen) in ranks.iter().enumerate() {
            if seen.came.len() < run.steps.len() || ends && !seen.finalized {
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
        let (healthy, place) = (!stopped, run.settings.other_prefix);
        self.record_moves(run, healthy && has_verified(run, ranks), &here);
        self.record_places(run, ranks, &here);
        if healthy {
            self.lose_refused_and_passed_over(run, ranks, &here);
        }
        if let (Reaction::Refuse(_), Some(number)) = (run.reaction, first_handed(ranks)) {
            self.forget(|version| version.number == number);
            let name = self.version(number).map(|version| version.name.clone());
            self.saved.forget_until(place, &name.unwrap_or_default(), number);
        }
        if run.wants.is_some() {
            self.saved.go_back(place);
        }
        self.drop_newer(run);
        // Flushes that are under way.
        let mut arriving: Vec<(u64, String)> = Vec::new();
        let mut newest: Option<(u64, String)> = None;
        let mut last_flushed = None;
        for (at, step) in run.steps.iter().enumerate() {
            let came: Vec<_> = ranks.iter().map(|seen| seen.came.get(at)).collect();
            if came.iter().all(Option::is_none) {
                break;
            }
            // Each of these calls protects what is local, before it does anything else. Threads do so sooner or later.
            let begun = |came: &Option<&Came>| came.is_some_and(|came| !matches!(came, Came::Short(_)));
            let is_in_call = run.settings.link == Link::InCalls;
            self.protect_local(run, first, healthy && is_in_call && came.iter().all(begun));
            let number = first + at as u64;
            let good = came.iter().all(|came| *came == Some(&Came::Good));
            match *step {
                Step::Checkpoint { name, bad, output } => {
                    let (name, valid) = (name_of(name), bad.is_none_or(|bad| bad >= ranks.len()));
                    let bypass = run.settings.bypass;
                    if bypass || output || run.settings.flush > 0 {
                        last_flushed = Some(number);
                    }
                    self.saved.begin(place, &name, ranks.len(), bypass);
                    arriving.retain(|(_, other)| !share(other, &name) || !bypass && healthy);
                    newest = newest.filter(|(_, other)| !share(other, &name) || !bypass);
                    self.add(run, number, name.clone(), (true, output, valid), &came);
                    if !(good && valid) {
                        // If only its flush has failed, it is the one that the end of the run flushes.
                        let counts = self.versions.last().is_some_and(|version| version.possible);
                        newest = newest.filter(|_| !counts);
                        continue;
                    }
                    newest = Some((number, name.clone()));
                    if bypass || (output || healthy && run.settings.flush == 1) && !run.settings.detached {
                        self.saved.promise(place, name, number, ranks.len());
                    } else if output || healthy && run.settings.flush == 1 {
                        arriving.push((number, name));
                    }
                }
                Step::Output { name } => {
                    arriving.retain(|(_, other)| !share(other, &name_of(name)));
                    newest = newest.filter(|(_, other)| !share(other, &name_of(name)));
                    self.saved.forget(place, &name_of(name));
                    self.add(run, number, name_of(name), (false, true, true), &came);
                }
                Step::Delete { name } | Step::Drop { name } => {
                    let name = name_of(name);
                    // It may have replaced files of others in its folder.
                    arriving.retain(|(_, other)| !share(other, &name));
                    newest = newest.filter(|(_, other)| *other != name);
                    self.saved.forget(place, &name);
                    self.forget(|version| version.name == name);
                    if healthy && good {
                        self.lose_for_good(run, &here, |version| {
                            version.name == name && version.number < number
                        });
                    }
                }
                Step::Current { .. } => {
                    for (number, name) in std::mem::take(&mut arriving).into_iter().filter(|_| healthy) {
                        self.saved.promise(place, name, number, ranks.len());
                    }
                    newest = None;
                    self.saved.go_back_in_index(place);
                    self.drop_newer(run);
                }
            }
        }
        let finalized = ranks.iter().all(|seen| seen.finalized);
        if finalized || stopped || run.finalizes {
            self.protect_local(run, first, healthy && finalized);
        }
        if finalized {
            arriving.extend(newest.filter(|_| run.settings.flush > 0));
            for (number, name) in arriving {
                self.saved.promise(place, name, number, ranks.len());
            }
        }
        if run.settings.window > 0 {
            // A version that a restart hands out may have been flushed before. A run that dies may have flushed all of the cache.
            let died = stopped && run.dies.is_some();
            let is_here =
                |&(base, node): &(bool, usize)| base == run.settings.other_base && here.contains(&node);
            // Versions that other ranks wrote may get there in any case.
            let may_arrive = |version: &&Version| match version.is_of(run) {
                true => died,
                false => run.settings.any_ranks && version.is_placed_for(run),
            };
            let in_cache = self.versions.iter().filter(|version| version.possible);
            let in_cache = in_cache.filter(may_arrive).filter(|version| version.places.iter().any(is_here));
            let in_cache = in_cache.map(|version| version.number).max();
            self.saved.slide_window(place, last_flushed.max(first_handed(ranks)).max(in_cache));
        }
    }

    /// With `SCR_DROP_AFTER_CURRENT` going back takes away what is newer.
    fn drop_newer(&mut self, run: &Run) {
        let place = run.settings.other_prefix;
        if run.settings.drop_after_current && self.saved.has_gone_back(place) {
            self.saved.forget_all(place);
            self.forget(|version| version.other_prefix == place);
        }
    }

    /// Loses the versions that the application has refused, and those that `SCR_DROP_AFTER_CURRENT` has dropped.
    fn lose_refused_and_passed_over(&mut self, run: &Run, ranks: &[Seen], here: &BTreeSet<usize>) {
        let Some(handed) = first_handed(ranks) else { return };
        if matches!(run.reaction, Reaction::Refuse(who) if who < ranks.len()) {
            self.lose_for_good(run, here, |version| version.number == handed);
        }
        let name = self.version(handed).map(|version| version.name.clone());
        if run.settings.drop_after_current && name == run.wants.map(name_of) {
            self.lose_for_good(run, here, |version| {
                version.number > handed && version.checkpoint && !version.output
            });
        }
    }

    /// These must not come back, where all that was in cache of them is on these nodes.
    fn lose_for_good(&mut self, run: &Run, here: &BTreeSet<usize>, which: impl Fn(&Version) -> bool) {
        for version in self.versions.iter_mut().filter(|version| which(version)) {
            let reached =
                |&(base, node): &(bool, usize)| base == run.settings.other_base && here.contains(&node);
            version.gone |= run.can_read(version)
                && version.other_prefix == run.settings.other_prefix
                && version.places.iter().all(reached);
        }
    }

    /// A run may bring to its nodes whatever it reaches or is handed.
    fn record_places(&mut self, run: &Run, ranks: &[Seen], here: &BTreeSet<usize>) {
        let base = run.settings.other_base;
        let handed: Vec<u64> = ranks
            .iter()
            .flat_map(|seen| &seen.handed)
            .filter_map(|(_, read)| match read {
                Read::Version(number) => Some(*number),
                _ => None,
            })
            .collect();
        for version in &mut self.versions {
            let reached = here.iter().any(|&node| version.places.contains(&(base, node)));
            if reached || handed.contains(&version.number) {
                version.places.extend(here.iter().map(|&node| (base, node)));
            }
        }
    }

    /// A dataset that a run has tried to write.
    fn add(
        &mut self,
        run: &Run,
        number: u64,
        name: String,
        (checkpoint, output, valid): (bool, bool, bool),
        came: &[Option<&Came>],
    ) {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        let entered = came
            .iter()
            .all(|came| came.is_some_and(|came| !matches!(came, Came::Short(_) | Came::Invalid(_))));
        let possible = entered && valid;
        // Output is protected at once, and so is what the application waits for to be flushed.
        let settings = &run.settings;
        // A rank that is alone has nobody to wait for.
        let is_behind = settings.behind && run.nodes.len() > 1;
        let may_be_local =
            is_behind && checkpoint && !output && !settings.bypass && settings.scheme != "SINGLE";
        let is_local = may_be_local && (settings.flush == 0 || settings.detached);
        if possible && !is_local {
            self.leave_before(run, u64::MAX);
        }
        if run.settings.bypass {
            // Its files go over those of the older ones of its name.
            self.forget(|version| share(&version.name, &name));
        }
        let complete = possible && came.iter().all(|came| *came == Some(&Came::Good));
        let promised = complete && checkpoint && !run.settings.bypass;
        let protected = usize::from(run.settings.scheme != "SINGLE" && is_protected(&run.nodes));
        self.versions.push(Version {
            number,
            name,
            ranks: run.nodes.len(),
            possible,
            checkpoint,
            output,
            bypass: run.settings.bypass,
            gone: false,
            places: here.iter().map(|&node| (run.settings.other_base, node)).collect(),
            other_base: run.settings.other_base,
            other_prefix: run.settings.other_prefix,
            nodes: run.nodes.clone(),
            survives: if may_be_local { 0 } else { protected },
            protected,
            local: may_be_local && possible,
            packed: settings.aggregate && !settings.global && !settings.any_ranks,
            homes: if promised { vec![run.nodes.clone()] } else { Vec::new() },
        });
    }

    /// Notes that versions older than this one may leave the nodes of a run.
    fn leave_before(&mut self, run: &Run, number: u64) {
        let here: BTreeSet<usize> = run.nodes.iter().copied().collect();
        // With the setting, the one line of history of all numbers of ranks goes on.
        let is_older = |version: &&mut Version| {
            version.is_placed_for(run) && run.can_read(version) && version.number < number
        };
        let older = self.versions.iter_mut().filter(is_older);
        older.for_each(|version| version.leave(&here));
    }

    /// The local versions of a run, whose first is this one, have been protected, surely or not: older ones may leave.
    fn protect_local(&mut self, run: &Run, first: u64, surely: bool) {
        let local: Vec<u64> = self
            .versions
            .iter()
            .filter(|version| version.local && version.number >= first)
            .map(|version| version.number)
            .collect();
        for number in local {
            self.leave_before(run, number);
            for version in self.versions.iter_mut().filter(|version| version.number == number) {
                version.local = false;
                version.survives = if surely { version.protected } else { version.survives };
            }
        }
    }

    /// Nothing is promised of these any more.
    fn forget(&mut self, which: impl Fn(&Version) -> bool) {
        self.versions.iter_mut().filter(|version| which(version)).for_each(|version| version.homes.clear());
    }

    /// A run that begins brings home what it can; one that the world ended may have done so or not, and so may one to which
    /// nothing was promised: less may be damaged than is known of the node.
    fn record_moves(&mut self, run: &Run, surely: bool, here: &BTreeSet<usize>) {
        let has_homes = |version: &&mut Version| version.is_of(run) && !version.homes.is_empty();
        for version in self.versions.iter_mut().filter(has_homes) {
            if surely && version.is_promised(here) {
                version.homes.clear();
                (version.local, version.survives) = (false, version.protected);
            }
            version.homes.push(run.nodes.clone());
        }
    }

    fn apply(&mut self, event: Event, run: &Run) {
        let place = run.settings.other_prefix;
        match event {
            Event::LoseAll => (0..POOL).for_each(|node| self.apply(Event::Lose(node), run)),
            Event::Lose(node) => {
                let _ = std::fs::remove_dir_all(self.world.node(&format!("n{node}")));
                self.lose(node);
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
                let offered = offered(&self.world).into_iter().find(|(_, _, other)| *other == name_of(name));
                self.saved.forget_named(place, &name_of(name), offered.map(|(_, number, _)| number));
                self.change_index(|index| _ = index.drop_name(name_of(name)));
            }
            Event::MakeCurrent(name) => {
                self.saved.go_back_in_index(place);
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
        let is_only_prepared = self.is_only_prepared(path);
        change_file(path, change);
        let below = path.strip_prefix(self.world.dir().join("nodes")).expect("it lies there");
        let node = below.iter().next().and_then(|node| node.to_str()?.strip_prefix('n')?.parse().ok());
        if let Some(node) = node {
            self.lose(node);
        }
        if is_only_prepared {
            self.forget(|_| true);
        }
    }

    /// Whether this is a filemap of a dataset of which none says that it is complete: then all must say that they are prepared.
    fn is_only_prepared(&self, path: &Path) -> bool {
        let is_map =
            |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"filemap_"));
        let dataset_of = |path: &Path| path.iter().rev().nth(2).map(ToOwned::to_owned);
        let all = self.world.cached_files();
        let mut maps = all.iter().filter(|other| is_map(other) && dataset_of(other) == dataset_of(path));
        let says_complete = |map: &PathBuf| {
            let bytes = std::fs::read(map).unwrap_or_default();
            bytes[bytes.len().saturating_sub(LAST_ENTRY)..].windows(8).any(|word| word == b"COMPLETE")
        };
        is_map(path) && !maps.any(says_complete)
    }

    fn damage_flushed(&mut self, which: proptest::sample::Index, noticed: bool, place: bool) {
        let prefix = self.world.prefix();
        let files = flushed_files(&prefix);
        if files.is_empty() || self.unsummed.contains(&place) {
            return;
        }
        let path = which.get(&files);
        change_file(path, |bytes| flip(bytes));
        let folder = folder_of_flushed(&prefix, path);
        self.lose_flushed(place, &folder);
        self.saved.expect_checksums(place);
        if noticed {
            self.change_index(|index| {
                let hit = index
                    .candidates()
                    .into_iter()
                    .find(|entry| share(&String::from_utf8_lossy(&entry.name), &folder));
                if let Some(hit) = hit {
                    index.mark_failed(hit.id, "2026-11-21T03:28:24");
                }
            });
        }
    }

    /// Another program dies while it writes in the folder of this name: an entry in the index says that it has begun.
    fn write_over(&mut self, name: &str, place: bool) {
        let folder = self.world.prefix().join(folder_of(name));
        let Some(path) = files_below(&folder).into_iter().next() else { return };
        self.lose_flushed(place, name);
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

    /// Files in the folder of this name are not what was flushed there.
    fn lose_flushed(&mut self, place: bool, name: &str) {
        let hit = self.versions.iter().filter(|version| share(&version.name, name));
        self.saved.damage(place, name, hit.map(|version| version.number));
    }

    fn lose(&mut self, node: usize) {
        let homes = self.versions.iter_mut().flat_map(|version| &mut version.homes);
        homes.flatten().filter(|home| **home == node).for_each(|home| *home += LOST);
    }
}

impl Run {
    /// Whether it can use what as many ranks wrote as this version.
    fn can_read(&self, version: &Version) -> bool {
        self.settings.any_ranks || version.ranks == self.nodes.len()
    }

    /// The number of ranks that it can restart from; `None` for any.
    fn reads(&self) -> Option<usize> {
        (!self.settings.any_ranks).then_some(self.nodes.len())
    }
}

impl Version {
    /// Whether a run looks for it, and can use it.
    fn is_of(&self, run: &Run) -> bool {
        self.ranks == run.nodes.len() && self.is_placed_for(run)
    }

    /// Whether it was written with the cache and the prefix directory of this run.
    fn is_placed_for(&self, run: &Run) -> bool {
        self.other_base == run.settings.other_base && self.other_prefix == run.settings.other_prefix
    }

    /// Whether it must be there for a run on these nodes, wherever it is.
    fn is_promised(&self, here: &BTreeSet<usize>) -> bool {
        !self.homes.is_empty() && self.homes.iter().all(|homes| self.away(homes, here) <= self.survives)
    }

    /// How many of the nodes that wrote it have lost parts that are not on these nodes.
    fn away(&self, homes: &[usize], here: &BTreeSet<usize>) -> usize {
        let away = homes.iter().zip(&self.nodes).filter(|(home, _)| !here.contains(home));
        away.map(|(_, wrote)| wrote).collect::<BTreeSet<_>>().len()
    }

    /// Notes that the parts on these nodes may leave.
    fn leave(&mut self, nodes: &BTreeSet<usize>) {
        let homes = self.homes.iter_mut().flatten();
        homes.filter(|home| nodes.contains(home)).for_each(|home| *home += LOST);
    }
}

fn names_of(nodes: &[usize]) -> Vec<String> {
    nodes.iter().map(|node| format!("n{node}")).collect()
}

/// The files of checkpoints in a prefix directory, and the containers with others.
fn flushed_files(prefix: &Path) -> Vec<PathBuf> {
    files_below(prefix).into_iter().filter(|path| is_flushed(prefix, path)).collect()
}

fn is_flushed(prefix: &Path, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    !path.starts_with(prefix.join(".scr")) || name.starts_with(b"container.")
}

/// The folder that the dataset of a flushed file has, or would have.
fn folder_of_flushed(prefix: &Path, path: &Path) -> String {
    let below = path.strip_prefix(prefix).expect("it lies there");
    let mut folders = below.iter().map(|folder| folder.to_string_lossy());
    let first = folders.next().unwrap_or_default();
    let id = folders.next().and_then(|folder| folder.strip_prefix("scr.dataset.")?.parse().ok());
    let dataset = id.filter(|_| first == ".scr").and_then(|id| {
        let summary = Summary::read(&RealFiles, &Prefix::new(prefix), id).ok().flatten()?;
        String::from_utf8(summary.dataset.name).ok()
    });
    dataset.map_or(first.into_owned(), |name| folder_of(&name).to_owned())
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

fn describe_check(probe: &Run, outcome: &Outcome<Seen>, why: &str) -> String {
    format!("a restart on {:?} afterwards: {why}\n{}\n", probe.nodes, outcome.lines.join("\n"))
}

/// Whether a run has come so far that it has read, and repaired, the redundancy of what it found.
fn has_verified(run: &Run, ranks: &[Seen]) -> bool {
    let has_begun = |(step, came): (&Step, &Came)| {
        matches!(step, Step::Checkpoint { .. } | Step::Output { .. }) && !matches!(came, Came::Short(_))
    };
    ranks.iter().all(|seen| {
        seen.finalized || !seen.handed.is_empty() || run.steps.iter().zip(&seen.came).any(has_begun)
    })
}

/// Whether the datasets of these names have files in common.
pub(super) fn share(one: &str, other: &str) -> bool {
    folder_of(one) == folder_of(other)
}

pub(super) fn first_handed(ranks: &[Seen]) -> Option<u64> {
    ranks.iter().find_map(|seen| match seen.handed.first()?.1 {
        Read::Version(number) => Some(number),
        _ => None,
    })
}

/// Whether every rank is in a set with a rank of another node. If one node has more ranks than any other, its last one is alone.
fn is_protected(nodes: &[usize]) -> bool {
    let ranks_on = |node: &usize| nodes.iter().filter(|other| *other == node).count();
    let most = nodes.iter().map(ranks_on).max();
    nodes.iter().filter(|node| Some(ranks_on(node)) == most).collect::<BTreeSet<_>>().len() > 1
}

/// The length of the entry that says that a dataset is complete.
const LAST_ENTRY: usize = 25;
