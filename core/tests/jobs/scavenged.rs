//! The remains of a dead job on its nodes are copied to the prefix directory, made whole there without the job, and restarted
//! from in another allocation: for each scheme, for every loss that it promises to survive and for one more, with damage, with
//! names that are used again, and with a crash at any moment.

use super::damage::flip_middle;
use super::redundancy::small;
use super::world::{contents, file_name, files_below, mode, plugins, Kept, Sizes, World};
use scr_base::fs::{Files, OwnedDir, RealFiles};
use scr_comm::Rank;
use scr_core::plugin::PluginHost;
use scr_core::scavenge::{BuildError, Builder, Built, Copied, Copier, Outcome};
use scr_core::session::OutputFlags;
use scr_ops::Import;
use scr_plugin_api::KvTree;
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::ledger::{CommonFiles, LedgerDir};
use scr_prefix::{staging_file, DatasetDescriptor, FlushFile, Index, Location, Prefix};
use scr_test_kit::faulty::{given_up, FaultyFiles, What};
use scr_test_kit::fixtures::ChangeIndex as _;
use scr_test_kit::TestEnv;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };

/// A job that has written a checkpoint and is dead.
struct Dead {
    world: World,
    nodes: usize,
    kept: Kept,
    /// The checkpoint that is only in cache.
    step: u64,
}

/// Saves a checkpoint of a job that is dead from the nodes that are left.
pub(super) fn save(world: World, step: u64) -> World {
    let (world, outcome) = try_to_save(world, step);
    assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}");
    world
}

pub(super) fn try_to_save(world: World, step: u64) -> (World, Outcome) {
    let dead = Dead { nodes: world.nodes.len(), kept: world.keep(), world, step };
    dead.scavenge();
    let outcome = dead.build().outcome;
    (dead.world, outcome)
}

impl Dead {
    fn new(world: World, nodes: usize) -> Self {
        world.run(|application| application.checkpoint(1, small).expect("the checkpoint is complete"));
        let kept = world.keep();
        Self { world, nodes, kept, step: 1 }
    }

    fn xor(ranks: usize, nodes: usize) -> Self {
        Self::new(World::new(ranks, nodes), nodes)
    }

    fn rs(nodes: usize, failures: usize) -> Self {
        let world = World::new(nodes, nodes)
            .set("SCR_COPY_TYPE", "RS")
            .set("SCR_SET_FAILURES", &failures.to_string())
            .set("SCR_SET_SIZE", &nodes.to_string());
        Self::new(world, nodes)
    }

    fn prefix(&self) -> Prefix {
        Prefix::new(self.world.prefix())
    }

    /// The nodes have again what they stored, but for those that are lost, and nothing was ever scavenged.
    fn anew(&self, lost: u32) {
        self.world.put_back(&self.kept);
        for node in (0..self.nodes).filter(|node| lost >> node & 1 == 1) {
            self.world.lose(&format!("n{node}"));
        }
        // Without its ids it would be another prefix directory.
        let ids = self.world.prefix().join(".scr/ids.scr");
        let kept = std::fs::read(&ids).unwrap();
        for entry in std::fs::read_dir(self.world.prefix()).unwrap().flatten() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
        std::fs::create_dir(self.world.prefix().join(".scr")).unwrap();
        std::fs::write(ids, kept).unwrap();
    }

    /// Copies from every node that is left.
    fn scavenge(&self) -> Vec<Copied> {
        self.scavenge_with(&RealFiles)
    }

    fn scavenge_with(&self, files: &dyn Files) -> Vec<Copied> {
        let nodes = (0..self.nodes).map(|node| format!("n{node}"));
        let nodes = nodes.filter(|node| self.world.node(node).is_dir());
        nodes.filter_map(|node| self.copy_from(files, &node).ok()).collect()
    }

    fn copy_from(&self, files: &dyn Files, node: &str) -> Result<Copied, String> {
        let cache = self.world.node(node).join("user1/scr.defjobid");
        let prefix = self.prefix();
        let (copied, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let progress = |bytes, all| {
            copied.fetch_add(bytes, Ordering::Relaxed);
            total.store(all, Ordering::Relaxed);
        };
        let uid = rustix::process::getuid().as_raw();
        let copier =
            Copier { files, prefix: &prefix, uid, node, block_bytes: 4096, width: 2, progress: &progress };
        let cache = OwnedDir::at(files, &cache, uid).map_err(|error| error.to_string())?;
        let found = copier.dataset(&[cache], self.step).map_err(|error| error.to_string())?;
        if found.is_whole() && !found.already {
            let sum = found.parts.iter().map(|part| part.bytes).sum::<u64>();
            assert_eq!((copied.into_inner(), total.into_inner()), (sum, sum), "progress is reported");
        }
        Ok(found)
    }

    fn env(&self, files: Arc<dyn Files>) -> TestEnv {
        TestEnv::new(files, self.world.prefix())
            .with_host("login")
            .with_user("user1", rustix::process::getuid().as_raw())
    }

    fn build(&self) -> Built {
        let (built, lines) = self.build_with(Arc::new(RealFiles));
        built.unwrap_or_else(|error| panic!("{error}\n{}", lines.join("\n")))
    }

    /// Why a build of all datasets leaves one out.
    fn left_out(&self, id: u64) -> Option<String> {
        let env = self.env(Arc::new(RealFiles)).env();
        Builder::new(&env, &self.prefix(), &PluginHost::new(&env, None), 1).withdrawn(id).unwrap()
    }

    fn build_with(&self, files: Arc<dyn Files>) -> (Result<Built, BuildError>, Vec<String>) {
        let env = self.env(files);
        let host = PluginHost::new(&env.env(), Some(&plugins().display().to_string()));
        let built = Builder::new(&env.env(), &self.prefix(), &host, 1).build(self.step);
        let mut lines = env.output().take_info();
        lines.extend(env.output().take_errors());
        (built, lines)
    }

    /// Every file of the checkpoint is what the application wrote, in bytes and permissions, and nothing else is there.
    fn assert_whole(&self, what: &str) {
        let mut expected = Vec::new();
        for rank in (0..).map(Rank).take(self.world.nodes.len()) {
            for (number, size) in small(rank).into_iter().enumerate() {
                let path = self.world.prefix().join(file_name(self.step, rank, number));
                let found = std::fs::read(&path)
                    .unwrap_or_else(|error| panic!("{what}: {}: {error}", path.display()));
                assert!(
                    found == contents(self.step, rank, number, size),
                    "{what}: {} is wrong",
                    path.display()
                );
                let permissions = std::fs::metadata(&path).unwrap().permissions();
                assert_eq!(
                    permissions.mode() & 0o7777,
                    mode(rank, number).mode(),
                    "{what}: {}",
                    path.display()
                );
                expected.push(path);
            }
        }
        expected.sort();
        assert_eq!(files_below(&self.world.prefix().join(format!("ckpt.{}", self.step))), expected, "{what}");
    }

    fn index(&self) -> Index {
        Index::read(&RealFiles, &self.prefix()).unwrap()
    }

    fn comes_back(&self, lost: u32) {
        let what = format!("after the loss of nodes {lost:b}");
        self.anew(lost);
        assert!(self.scavenge().iter().all(Copied::is_whole), "{what}");
        let built = self.build();
        let Outcome::Completed { rebuilt, .. } = &built.outcome else { panic!("{what}: {built:?}") };
        let expected = self.world.nodes.iter().zip(0..).filter(|(node, _)| !self.world.node(node).is_dir());
        assert_eq!(*rebuilt, expected.map(|(_, rank)| rank).collect::<Vec<u32>>(), "{what}");
        self.assert_whole(&what);
        let entry = self.index().entry(self.step).unwrap();
        assert!(entry.is_candidate() && entry.current, "{what}: {entry:?}");
        assert_eq!(self.build().outcome, Outcome::Already);
    }

    fn survives(&self, losses: u32) {
        (0..1_u32 << self.nodes)
            .filter(|lost| lost.count_ones() <= losses)
            .for_each(|lost| self.comes_back(lost));
    }

    /// Gives what is said.
    fn is_refused(&self, lost: u32) -> String {
        self.anew(lost);
        self.scavenge();
        let built = self.build();
        let Outcome::Incomplete { why } = built.outcome else { panic!("{lost:b}: {built:?}") };
        let entry = self.index().entry(self.step).expect("it is listed");
        assert!(!entry.complete && !entry.current);
        assert!(!self.prefix().summary_file(self.step).exists());
        why
    }

    /// A job in another allocation has nothing in cache, and fetches the checkpoint.
    fn fetched_by_another_job(mut self) {
        self.world.put("SCR_JOB_ID", "another");
        self.world.run(|application| application.restart(small)).all_gave(&Some(self.step));
    }

    fn in_prefix(&self, name: &str) -> PathBuf {
        self.world.prefix().join(name)
    }
}

/// The hidden name of a file of dataset 1 until the dataset is whole.
fn saved(name: &str) -> String {
    let (folder, base) = name.rsplit_once('/').unwrap();
    format!("{folder}/.{base}.scavenged.1.part")
}

#[test]
fn xor_makes_whole_what_one_lost_node_of_four_has_taken_away() {
    let dead = Dead::xor(8, 4);
    dead.survives(1);
    dead.fetched_by_another_job();
}

#[test]
fn rs_makes_whole_every_loss_of_up_to_two_of_five_nodes() {
    let dead = Dead::rs(5, 2);
    dead.survives(2);
    dead.fetched_by_another_job();
}

#[test]
fn partner_makes_whole_what_one_lost_node_has_taken_away() {
    let world = World::new(4, 4).set("SCR_COPY_TYPE", "PARTNER");
    let dead = Dead::new(world, 4);
    dead.survives(1);
    dead.comes_back(0b0101);
    dead.fetched_by_another_job();
}

#[test]
fn single_is_whole_where_nothing_is_lost_and_refused_where_a_node_is() {
    let dead = Dead::new(World::new(4, 4).set("SCR_COPY_TYPE", "SINGLE"), 4);
    let why = dead.is_refused(0b0100);
    assert!(why.contains("2 (written on n2), and SINGLE survives 0"), "{why}");
    dead.survives(0);
    dead.fetched_by_another_job();
}

/// Sets without a loss take no part in the rebuild of another one, but damage in them is found.
#[test]
fn each_set_is_made_whole_for_itself_and_named_by_its_ranks() {
    let dead = Dead::new(World::new(8, 8).set("SCR_SET_SIZE", "4"), 8);
    dead.survives(1);
    dead.comes_back(0b0010_0001);
    let why = dead.is_refused(0b0110_0000);
    assert!(why.contains("the redundancy set of ranks 4, 5, 6, 7"), "{why}");
    assert!(why.contains("ranks 5 (written on n5), 6 (written on n6), and XOR survives 1"), "{why}");
    dead.anew(0b0010_0000);
    dead.scavenge();
    let number = small(Rank(1)).iter().position(|&size| size > 0).unwrap();
    flip_middle(&dead.in_prefix(&saved(&file_name(dead.step, Rank(1), number))));
    let Outcome::Completed { rebuilt, .. } = dead.build().outcome else { panic!("it is not whole") };
    assert_eq!(rebuilt, [1, 5]);
    dead.assert_whole("damage in the set without a loss");
    dead.fetched_by_another_job();
}

#[test]
fn one_loss_more_than_a_scheme_survives_is_refused_with_set_ranks_and_nodes() {
    let why = Dead::xor(4, 4).is_refused(0b0110);
    assert!(why.contains("the redundancy set of ranks 0, 1, 2, 3"), "{why}");
    assert!(why.contains("ranks 1 (written on n1), 2 (written on n2), and XOR survives 1"), "{why}");
    let why = Dead::rs(5, 2).is_refused(0b1_0011);
    assert!(why.contains("the redundancy set of ranks 0, 1, 2, 3, 4"), "{why}");
    assert!(
        why.contains("0 (written on n0), 1 (written on n1), 4 (written on n4), and RS survives 2"),
        "{why}"
    );
    let why = Dead::new(World::new(4, 4).set("SCR_COPY_TYPE", "PARTNER"), 4).is_refused(0b0011);
    assert!(why.contains("0 (written on n0), 1 (written on n1), and PARTNER survives 1"), "{why}");
}

#[test]
fn a_node_that_comes_back_makes_the_refused_dataset_whole() {
    let dead = Dead::xor(4, 4);
    dead.is_refused(0b0110);
    dead.world.put_back(&dead.kept);
    dead.world.lose("n1");
    dead.copy_from(&RealFiles, "n2").unwrap();
    assert!(matches!(dead.build().outcome, Outcome::Completed { rebuilt, .. } if rebuilt == [1]));
    dead.assert_whole("with one node back");
}

/// The next run said that the flush of a dataset was rolled back that was complete, and only then its files went. Containers stayed
/// for ever, as the lists did not name them any more.
#[test]
fn a_flush_that_a_dead_job_has_left_ends_once_the_dataset_is_complete_without_it() {
    let dead = Dead::xor(4, 4);
    let packed = dead.world.node("n0").join("user1/scr.defjobid/scr.dataset.1/.scr/container_0");
    std::fs::write(&packed, "packed").unwrap();
    dead.scavenge();
    let dataset = FlushFile::read(&RealFiles, &dead.prefix()).unwrap().entry(1).unwrap().dataset;
    let left = PendingFlush {
        token: "1.2.3".to_owned(),
        make_current: dataset.checkpoint.into(),
        dataset,
        ranks: 4,
        marks: 1,
        revoked: false,
        sharing: CommonFiles::default(),
    };
    left.write(LedgerDir::new(&RealFiles, &dead.prefix())).unwrap();
    let half = staging_file(&dead.in_prefix(&file_name(1, Rank(2), 0)), &left.token);
    let half_packed = staging_file(&dead.in_prefix(".scr/scr.dataset.1/container.0"), &left.token);
    let all = [packed, half, half_packed];
    all[1..].iter().for_each(|half| std::fs::write(half, "half").unwrap());
    assert!(dead.build().outcome.is_complete());
    all.iter().for_each(|left| assert!(!left.exists(), "{}", left.display()));
    dead.assert_whole("beside what was left of a flush");
    let next = dead.world.run(|application| assert_eq!(application.restart(small), Some(1)));
    assert!(!next.has_line_with("rolled back"), "{:?}", next.lines);
}

/// Every command said that the dataset was complete already, and nothing saved it again.
#[test]
fn what_was_flushed_and_removed_since_is_saved_again_from_cache() {
    let mut flushed = Dead::new(World::new(4, 4).set("SCR_FLUSH", "1"), 4);
    let again = |dead: &Dead, what: &str| {
        let is_in_prefix = || {
            let known = FlushFile::read_as_it_is(&RealFiles, &dead.prefix(), None).unwrap().entry(dead.step);
            known.unwrap().is_at(Location::Prefix)
        };
        assert!(!is_in_prefix(), "{what}");
        let built = dead.build();
        assert!(
            matches!(&built.outcome, Outcome::Incomplete { why } if why.contains("scr copy")),
            "{what}: {built:?}"
        );
        assert!(dead.index().entry(dead.step).unwrap().is_valid(), "nothing is known to be better");
        let copied = dead.scavenge();
        assert!(copied.iter().all(|copied| copied.is_whole() && !copied.already), "{what}: {copied:?}");
        let built = dead.build();
        assert!(
            matches!(&built.outcome, Outcome::Completed { rebuilt, .. } if rebuilt.is_empty()),
            "{what}: {built:?}"
        );
        dead.assert_whole(what);
        assert!(is_in_prefix() && dead.index().entry(dead.step).unwrap().is_valid(), "{what}");
        assert!(
            dead.scavenge().iter().all(|copied| copied.already) && dead.build().outcome == Outcome::Already
        );
    };
    let file = flushed.in_prefix(&file_name(1, Rank(2), 0));
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    again(&flushed, "all files removed");
    // The maps of the last time are there, but nothing that could be built from them.
    std::fs::File::options().write(true).open(&file).unwrap().set_len(1).unwrap();
    let built = flushed.build();
    let name = file_name(1, Rank(2), 0);
    assert!(
        matches!(&built.outcome, Outcome::Incomplete { why } if why.contains(&name) && why.contains("scr copy")),
        "{built:?}"
    );
    assert!(flushed.scavenge().iter().all(Copied::is_whole));
    assert!(flushed.build().outcome.is_complete());
    flushed.assert_whole("a file cut short after that");
    flushed = Dead::new(World::new(4, 4).set("SCR_FLUSH", "1"), 4);
    std::fs::File::options()
        .write(true)
        .open(flushed.in_prefix(&file_name(1, Rank(2), 0)))
        .unwrap()
        .set_len(1)
        .unwrap();
    again(&flushed, "a file cut short");
    flushed.fetched_by_another_job();
}

#[test]
fn any_damage_after_a_scavenge_is_found_and_repaired() {
    let dead = Dead::xor(4, 4);
    let folder = ".scr/scr.dataset.1";
    for damaged in
        [saved("ckpt.1/rank_2.0"), format!("{folder}/redundancy_1"), format!("{folder}/3.scrfilemap")]
    {
        dead.anew(0);
        dead.scavenge();
        flip_middle(&dead.in_prefix(&damaged));
        let built = dead.build();
        // Without its redundancy a part is whole.
        let lost = usize::from(!damaged.contains("redundancy"));
        let is_expected =
            matches!(&built.outcome, Outcome::Completed { rebuilt, .. } if rebuilt.len() == lost);
        assert!(is_expected, "{damaged}: {built:?}");
        dead.assert_whole(&damaged);
    }
    // However much redundancy is damaged, all data is there.
    dead.anew(0);
    dead.scavenge();
    [1, 3].iter().for_each(|rank| flip_middle(&dead.in_prefix(&format!("{folder}/redundancy_{rank}"))));
    assert!(dead.build().outcome.is_complete());
    dead.assert_whole("two redundancy files");
    // Two are one too many.
    dead.anew(0b0001);
    dead.scavenge();
    flip_middle(&dead.in_prefix(&saved("ckpt.1/rank_2.0")));
    let (built, lines) = dead.build_with(Arc::new(RealFiles));
    assert!(!built.unwrap().outcome.is_complete());
    assert!(lines.iter().any(|line| line.contains("ckpt.1/rank_2.0 has CRC32")), "{lines:?}");
}

#[test]
fn a_damaged_part_in_cache_is_reported_and_rebuilt_instead_of_copied() {
    let dead = Dead::xor(4, 4);
    dead.anew(0);
    flip_middle(&dead.world.cached_file(&["n2/", "rank_2.0"]));
    let copied = dead.scavenge();
    assert!(copied[2].parts[0].wrong[0].contains("is damaged") && !copied[2].is_whole());
    assert!(!dead.in_prefix(&saved("ckpt.1/rank_2.0")).exists());
    assert!(matches!(dead.build().outcome, Outcome::Completed { rebuilt, .. } if rebuilt == [2]));
    dead.assert_whole("after damage in cache");
}

#[test]
fn a_part_of_another_prefix_directory_or_one_that_was_never_complete_is_not_copied() {
    let world = World::new(4, 4);
    world.run(|application| application.write(1, small).expect("it is open"));
    let kept = world.keep();
    let mut dead = Dead { world, nodes: 4, kept, step: 1 };
    let copied = dead.copy_from(&RealFiles, "n0").unwrap();
    assert!(copied.parts.is_empty() && copied.passed_over[0].contains("never complete"), "{copied:?}");
    dead.world.run(|application| application.checkpoint(1, small).expect("it is complete"));
    dead.step = 2;
    dead.world.turn_to("elsewhere");
    let copied = dead.copy_from(&RealFiles, "n0").unwrap();
    assert!(
        copied.parts.is_empty() && copied.passed_over[0].contains("belongs to the prefix directory"),
        "{copied:?}"
    );
    assert!(!dead.prefix().scr_dir().exists());
}

#[test]
fn a_prefix_directory_that_was_moved_is_made_whole_where_it_lies_now() {
    let mut dead = Dead::xor(4, 4);
    dead.anew(0b1000);
    dead.scavenge();
    let before = dead.world.prefix();
    dead.world.turn_to("moved");
    std::fs::remove_dir(dead.world.prefix()).unwrap();
    std::fs::rename(before, dead.world.prefix()).unwrap();
    assert!(dead.build().outcome.is_complete());
    dead.assert_whole("moved");
}

/// A job that uses one name for all its checkpoints: the first is complete in the prefix directory, the second is only in
/// cache.
fn with_one_name() -> Dead {
    let world = World::new(4, 4).set("SCR_FLUSH", "1");
    let mut world = world;
    world.run(|application| {
        application.checkpoint_as(b"same", 1, small).expect("the first is complete");
    });
    world.put("SCR_FLUSH", "0");
    world.run(|application| {
        application.checkpoint_as(b"same", 1, small_after).expect("the second is complete");
    });
    let kept = world.keep();
    Dead { world, nodes: 4, kept, step: 2 }
}

/// Other lengths than before, and so other bytes.
fn small_after(rank: Rank) -> Vec<usize> {
    small(rank).into_iter().map(|size| size + 5).collect()
}

#[test]
fn a_file_without_a_checksum_is_never_taken_for_one_of_the_same_length() {
    let dead = Dead::new(World::new(4, 4).set("SCR_COPY_TYPE", "SINGLE"), 4);
    dead.anew(0);
    std::fs::remove_file(dead.world.cached_file(&["n2/", "rank_2.1"])).unwrap();
    assert_eq!(dead.scavenge().iter().filter(|copied| !copied.is_whole()).count(), 1);
    std::fs::write(dead.in_prefix(&saved("ckpt.1/rank_2.1")), [b'x'; 41]).unwrap();
    let built = dead.build();
    assert!(
        matches!(&built.outcome, Outcome::Incomplete { why } if why.contains("SINGLE survives 0")),
        "{built:?}"
    );
}

#[test]
fn two_builds_at_once_and_one_after_them_come_to_the_same_end() {
    let dead = Dead::xor(4, 4);
    dead.anew(0b0010);
    dead.scavenge();
    let outcomes = std::thread::scope(|scope| {
        let builds: Vec<_> = (0..3).map(|_| scope.spawn(|| dead.build().outcome)).collect();
        builds.into_iter().map(|build| build.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Completed { .. })).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Already).count(), 2);
    dead.assert_whole("after three builds at once");
}

#[test]
fn files_in_bypass_mode_are_listed_where_they_lie_unless_they_were_changed() {
    // With checksums, the bytes alone decide.
    let world = World::new(4, 4).set("SCR_CACHE_BYPASS", "1").set("SCR_CRC_ON_FLUSH", "0");
    let dead = Dead::new(world, 4);
    let forget = || {
        std::fs::remove_file(dead.prefix().index_file()).unwrap();
        std::fs::remove_dir_all(dead.prefix().dataset_dir(1)).unwrap();
    };
    assert!(dead.scavenge().iter().all(|copied| copied.already));
    forget();
    let changed = dead.in_prefix("ckpt.1/rank_2.0");
    let (bytes, time) =
        (std::fs::read(&changed).unwrap(), std::fs::metadata(&changed).unwrap().modified().unwrap());
    std::fs::write(&changed, vec![7; bytes.len()]).unwrap();
    assert!(!dead.scavenge()[2].is_whole());
    assert!(!dead.build().outcome.is_complete());
    forget();
    std::fs::write(&changed, bytes).unwrap();
    std::fs::File::options().write(true).open(&changed).unwrap().set_modified(time).unwrap();
    assert!(dead.scavenge().iter().all(Copied::is_whole));
    assert!(matches!(dead.build().outcome, Outcome::Completed { rebuilt, .. } if rebuilt.is_empty()));
    dead.assert_whole("in place");
    // Nor if they were given to a job that died, whatever it has written.
    dead.world.run(|application| {
        let rank = application.rank;
        let flags = OutputFlags { checkpoint: true, output: false };
        application.session().start_output(Some(b"other"), flags).unwrap();
        application.session().route_file(format!("ckpt.1/rank_{rank}.0").as_bytes()).unwrap();
    });
    forget();
    assert!(!dead.scavenge()[0].is_whole());
    assert!(!dead.build().outcome.is_complete());
}

#[test]
fn an_older_dataset_of_the_same_name_counts_until_the_scavenged_one_is_known_to_be_whole() {
    let mut dead = with_one_name();
    let older = |dead: &Dead| dead.index().entry(1).is_some_and(|entry| entry.is_candidate());
    let first = std::fs::read(dead.in_prefix("ckpt.1/rank_0.0")).unwrap();
    // Too much is lost: nothing of the older one is touched.
    dead.world.lose("n1");
    dead.world.lose("n2");
    dead.scavenge();
    assert!(!dead.build().outcome.is_complete());
    assert!(older(&dead));
    assert_eq!(std::fs::read(dead.in_prefix("ckpt.1/rank_0.0")).unwrap(), first);
    // One node is back.
    dead.world.put_back(&dead.kept);
    dead.world.lose("n1");
    dead.scavenge();
    assert!(older(&dead), "it still counts");
    assert!(matches!(dead.build().outcome, Outcome::Completed { rebuilt, .. } if rebuilt == [1]));
    assert!(!older(&dead) && dead.index().entry(2).unwrap().is_candidate());
    dead.world.put("SCR_JOB_ID", "another");
    assert_restarts(&dead, small_after);
}

#[test]
fn a_newer_dataset_of_the_same_name_is_never_replaced_by_a_scavenged_one() {
    let mut dead = with_one_name();
    dead.scavenge();
    dead.world.put("SCR_FLUSH", "1");
    dead.world.put("SCR_JOB_ID", "another");
    dead.world
        .run(|application| application.checkpoint_as(b"same", 1, small).expect("the third is complete"));
    let third = dead.index().id_of("same").unwrap();
    let built = dead.build();
    let Outcome::Incomplete { why } = built.outcome else { panic!("{built:?}") };
    assert!(why.contains(&format!("belong to dataset {third}, which is newer")), "{why}");
    assert!(dead.index().entry(third).unwrap().is_candidate());
    let file = std::fs::read(dead.in_prefix("ckpt.1/rank_0.0")).unwrap();
    assert!(file == contents(1, Rank(0), 0, 700), "the newer dataset is as it was");
}

/// The files of step 1 under their own names are what the application wrote with these sizes.
fn assert_in_place(dead: &Dead, sizes: Sizes) {
    for rank in (0..4).map(Rank) {
        for (number, size) in sizes(rank).into_iter().enumerate() {
            let found = std::fs::read(dead.in_prefix(&file_name(1, rank, number))).unwrap();
            assert!(found == contents(1, rank, number, size), "rank {rank}, file {number}");
        }
    }
}

/// A run restarts from `same` with files of these sizes.
fn assert_restarts(dead: &Dead, sizes: Sizes) {
    dead.world
        .run(|application| {
            let name = application.session().have_restart().unwrap().expect("there is a checkpoint");
            application.session().start_restart().unwrap();
            application.compare(1, sizes).unwrap();
            application.session().complete_restart(true).unwrap();
            name
        })
        .all_gave(&b"same".to_vec());
}

/// They were renamed over what the application had written, which was then listed with the length and checksum of the older file.
#[test]
fn files_that_a_later_run_writes_in_place_are_never_replaced_by_scavenged_ones() {
    let mut dead = with_one_name();
    for (name, value) in [("SCR_FLUSH", "1"), ("SCR_JOB_ID", "another"), ("SCR_CACHE_BYPASS", "1")] {
        dead.world.put(name, value);
    }
    dead.world.run(|application| {
        application.session().start_output(Some(b"same"), CHECKPOINT).unwrap();
        application.fill(1, small).unwrap();
        if application.rank == Rank(0) {
            let written = std::fs::read(dead.in_prefix("ckpt.1/rank_0.0")).unwrap();
            assert!(dead.scavenge().iter().all(Copied::is_whole));
            let outcome = dead.build().outcome;
            assert!(std::fs::read(dead.in_prefix("ckpt.1/rank_0.0")).unwrap() == written, "{outcome:?}");
            let Outcome::Incomplete { why } = outcome else { panic!("it is listed") };
            assert!(why.contains("belong to dataset 3, which is newer"), "{why}");
        }
        application.session().complete_output(true).expect("the third is complete");
    });
    let newest = dead.index().id_of("same").and_then(|id| dead.index().entry(id)).unwrap();
    assert!(newest.is_candidate() && newest.id != dead.step);
    assert_in_place(&dead, small);
    dead.world.put("SCR_JOB_ID", "third");
    assert_restarts(&dead, small);
}

/// The application died, and what it had begun in place is no reason to lose an older dataset.
#[test]
fn a_dataset_that_was_only_begun_in_place_does_not_keep_an_older_one_from_being_built() {
    let mut dead = with_one_name();
    dead.world.put("SCR_JOB_ID", "another");
    dead.world.put("SCR_CACHE_BYPASS", "1");
    dead.world.run(|application| {
        application.session().start_output(Some(b"same"), CHECKPOINT).unwrap();
        application.fill(1, small).unwrap();
    });
    assert!(dead.scavenge().iter().all(Copied::is_whole));
    assert!(matches!(dead.build().outcome, Outcome::Completed { .. }));
    assert_eq!(dead.index().id_of("same"), Some(2));
    assert_in_place(&dead, small_after);
}

/// It was decided before all files were read, and the entry of the newer dataset was removed.
#[test]
fn a_dataset_is_not_listed_again_if_a_newer_one_takes_its_name_meanwhile() {
    let dead = Dead::new(World::new(2, 2).set("SCR_FLUSH", "1"), 2);
    let older = dead.index().entry(1).and_then(|entry| entry.dataset).expect("it is listed");
    Index::update(&RealFiles, &dead.prefix(), |index| index.drop_name("ckpt.1")).unwrap();
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|_, path| path.to_string_lossy().contains("index.lock"));
    let prefix = dead.prefix();
    faulty.interrupt_at(1, move || {
        let newer = DatasetDescriptor { id: 9, ..older };
        Index::update(&RealFiles, &prefix, |index| index.record(&newer, true)).unwrap();
    });
    let built = dead.build_with(Arc::new(faulty.clone())).0.unwrap();
    assert!(faulty.was_interrupted());
    let Outcome::Incomplete { why } = built.outcome else { panic!("{built:?}") };
    assert!(scr_base::codes::coded("ERROR", &why).contains("belong to dataset 9, which is newer"), "{why}");
    assert!(dead.index().entry(9).is_some_and(|entry| entry.is_candidate()));
}

/// Lets the world stop before each of the operations of `work` in turn.
fn with_every_crash(dead: &Dead, work: impl Fn(&Arc<FaultyFiles>), after: impl Fn(u64)) {
    let faulty = Arc::new(FaultyFiles::new(RealFiles));
    dead.anew(0b0010);
    work(&faulty);
    let all = faulty.mutations();
    assert!(all > 10, "there were {all} operations");
    for at in 1..=all {
        dead.anew(0b0010);
        let faulty = Arc::new(FaultyFiles::new(RealFiles));
        faulty.stop_at(at);
        work(&faulty);
        after(at);
    }
}

#[test]
fn a_copy_that_dies_at_any_moment_is_repeated() {
    let dead = Dead::xor(4, 4);
    with_every_crash(
        &dead,
        |files| drop(dead.copy_from(&**files, "n2")),
        |at| {
            dead.scavenge();
            assert!(dead.build().outcome.is_complete(), "stopped at {at}");
            dead.assert_whole(&format!("stopped at {at}"));
        },
    );
}

/// The second one wrote into the file of the first one, and died. The first one gave it its name.
#[test]
fn a_copy_that_dies_beside_another_one_takes_nothing_from_that() {
    let dead = Arc::new(Dead::new(World::new(2, 2).set("SCR_COPY_TYPE", "SINGLE"), 2));
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|what, path| what == What::Rename && path.to_string_lossy().contains(".copying."));
    let other = Arc::clone(&dead);
    faulty.interrupt_at(1, move || {
        let dies = FaultyFiles::new(RealFiles);
        dies.only(|_, path| path.to_string_lossy().contains(".copying."));
        dies.stop_at(2);
        drop(other.copy_from(&dies, "n0"));
        assert!(dies.stopped());
    });
    dead.copy_from(&faulty, "n0").unwrap();
    assert!(faulty.was_interrupted());
    dead.copy_from(&RealFiles, "n1").unwrap();
    assert!(dead.build().outcome.is_complete());
    dead.assert_whole("two at once");
}

#[test]
#[ignore = "long"]
fn a_build_that_dies_at_any_moment_lists_nothing_that_is_not_whole_and_is_repeated() {
    let dead = Dead::xor(4, 4);
    with_every_crash(
        &dead,
        |files| {
            dead.scavenge();
            drop(dead.build_with(Arc::clone(files) as Arc<dyn Files>));
        },
        |at| {
            if dead.index().entry(1).is_some_and(|entry| entry.complete) {
                dead.assert_whole(&format!("complete when stopped at {at}"));
            }
            assert!(dead.build().outcome.is_complete(), "stopped at {at}");
            dead.assert_whole(&format!("stopped at {at}"));
        },
    );
}

/// The second build said that the dataset was complete already, and the flush file said for ever that it had to be copied.
#[test]
#[ignore = "long"]
fn a_build_that_dies_after_the_index_is_written_leaves_no_wrong_flush_file() {
    let dead = Dead::xor(4, 4);
    let written = FlushFile::read(&RealFiles, &dead.prefix()).unwrap();
    let saved = |file: FlushFile| file.entry(1).is_none_or(|entry| !entry.needs_flush());
    with_every_crash(
        &dead,
        |files| {
            FlushFile::update(&RealFiles, &dead.prefix(), |file| *file = written.clone()).unwrap();
            dead.scavenge();
            drop(dead.build_with(Arc::clone(files) as Arc<dyn Files>));
        },
        |at| {
            let is_listed = dead.index().entry(1).is_some_and(|entry| entry.complete);
            let as_it_is = || FlushFile::read_as_it_is(&RealFiles, &dead.prefix(), Some(1)).unwrap();
            assert_eq!(saved(as_it_is()), is_listed, "stopped at {at}");
            dead.build();
            assert!(saved(as_it_is()), "stopped at {at}");
        },
    );
}

/// The sync was repeated, by the next build, which succeeds without what the system has lost.
#[test]
fn a_build_makes_anew_what_could_not_be_synced() {
    let dead = Dead::xor(4, 4);
    let folder = dead.in_prefix("ckpt.1");
    let all_files = || {
        dead.anew(0b0010);
        dead.scavenge();
        let faulty = FaultyFiles::new(RealFiles);
        let below = folder.clone();
        faulty.only(move |_, path| path.starts_with(&below) || path.ends_with("index.scr"));
        faulty
    };
    let (mut bytes, mut names) = (0, 0);
    for at in 1.. {
        let faulty = all_files();
        let there = files_below(&folder);
        faulty.fail_once(at, ErrorKind::Other);
        let built = dead.build_with(Arc::new(faulty.clone())).0;
        let Some(fault) = faulty.first_failed() else { break };
        if !matches!(fault.what, What::Sync | What::SyncDir) {
            continue;
        }
        *if fault.what == What::Sync { &mut bytes } else { &mut names } += 1;
        let context = format!("operation {at}: {built:?}");
        if !built.is_ok_and(|built| built.outcome.is_complete()) {
            let again = dead.build_with(Arc::new(faulty.clone())).0.unwrap();
            assert!(again.outcome.is_complete(), "{context}, and then {again:?}");
        }
        dead.assert_whole(&context);
        assert_eq!(given_up(there, &faulty.operations()), [].into(), "{context}");
    }
    assert!(bytes >= 4 && names >= 2, "{bytes} files and {names} folders could not be synced");
}

/// Room was made for every rank that a filemap spoke of, and its bytes may say any number.
#[test]
fn a_filemap_with_an_impossible_rank_count_does_not_exhaust_memory() {
    let dead = Dead::xor(4, 4);
    dead.scavenge();
    for rank in 0..4 {
        let path = dead.prefix().dataset_dir(1).join(format!("{rank}.scrfilemap"));
        if rank > 0 {
            std::fs::remove_file(&path).unwrap();
            continue;
        }
        let mut tree = KvTree::from_file_bytes(&std::fs::read(&path).unwrap()).unwrap();
        let part = tree.child("RANK").child("0").child("DSET").child("1");
        let record = part.child("RECORD");
        let text = record.text("RANK_RECORD").unwrap().replace("\"ranks\":4", "\"ranks\":4294967295");
        record.set("RANK_RECORD", text);
        part.remove("NEIGHBOUR");
        std::fs::write(&path, tree.to_file_bytes()).unwrap();
    }
    let Outcome::Incomplete { why } = dead.build().outcome else { panic!("it was taken for whole") };
    assert!(why.contains("1 of 4294967295 ranks"), "{why}");
}

/// `scr postrun` saved nothing at all.
#[test]
fn a_flushed_dataset_whose_files_cannot_be_looked_at_keeps_its_place_and_stops_nobody() {
    let flushed = Dead::new(World::new(4, 4).set("SCR_FLUSH", "1"), 4);
    let file = flushed.in_prefix(&file_name(1, Rank(2), 0));
    let folder = file.parent().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::write(folder, "an archive of it").unwrap();
    let known = FlushFile::read_as_it_is(&RealFiles, &flushed.prefix(), None).unwrap();
    assert!(known.entry(flushed.step).unwrap().is_at(Location::Prefix));
}

/// Nothing could be built of it any more, and nobody was told.
#[test]
fn files_of_a_dataset_that_is_yet_to_be_built_are_not_imported_as_another_one() {
    let dead = Dead::xor(4, 4);
    dead.scavenge();
    let (env, prefix) = (dead.env(Arc::new(RealFiles)).env(), dead.prefix());
    let ranks = [vec![PathBuf::from("ckpt.1/rank_0.0")]];
    let import = Import { env: &env, prefix: &prefix, name: b"mine", checkpoint: true, ranks: &ranks };
    let refused = import.run().unwrap_err().to_string();
    assert!(refused.contains("dataset 1 `ckpt.1'") && refused.contains("scr index --build 1"), "{refused}");
    assert!(dead.build().outcome.is_complete());
    let refused = import.run().unwrap_err().to_string();
    assert!(refused.contains("a file belongs to one dataset only"), "{refused}");
}

/// The file was put beside its own path, as the index still had another dataset of that name, and the mixture got a checksum.
#[test]
fn a_file_in_bypass_mode_that_was_changed_is_lost_though_another_dataset_has_its_name() {
    let mut world = World::new(4, 4).set("SCR_CACHE_BYPASS", "1");
    let failing = FaultyFiles::new(RealFiles);
    failing.only(|_, path| path.ends_with(".scr/index.scr"));
    failing.never_pause();
    world.files = Arc::new(failing.clone());
    world.run(|application| {
        application.checkpoint_as(b"a", 1, small).expect("it is listed");
        application.session().start_output(Some(b"b"), CHECKPOINT).unwrap();
        application.fill(1, small_after).unwrap();
        failing.fail_from(1, ErrorKind::StorageFull);
        application.session().complete_output(true).expect_err("it cannot be listed");
    });
    let kept = world.keep();
    let dead = Dead { world, nodes: 4, kept, step: 2 };
    assert!(dead.index().entry(1).is_some_and(|entry| entry.is_candidate()));
    let changed = dead.in_prefix("ckpt.1/rank_2.0");
    let bytes = std::fs::read(&changed).unwrap();
    std::fs::write(&changed, vec![7; bytes.len()]).unwrap();
    let copied = dead.scavenge();
    let whole: Vec<bool> = copied.iter().map(Copied::is_whole).collect();
    assert_eq!(whole, [true, true, false, true], "{copied:?}");
    assert!(!dead.build().outcome.is_complete());
}

/// A checkpoint that was flushed, and whose copy in the prefix directory a job on other nodes has tried to read.
fn flushed_and_read(reads: impl Fn(&World)) -> Dead {
    let mut dead = Dead::xor(4, 4);
    dead.world.put("SCR_FLUSH", "1");
    dead.world.run(|application| application.checkpoint(2, small).unwrap());
    (dead.kept, dead.step) = (dead.world.keep(), 2);
    (0..4).for_each(|node| dead.world.lose(&format!("n{node}")));
    reads(&dead.world);
    dead.world.put_back(&dead.kept);
    dead
}

/// The copy counted as refused by the application, and what the nodes had was of no use.
#[test]
fn what_the_nodes_have_takes_the_place_of_a_copy_that_was_found_damaged() {
    let damage = |world: &World| {
        flip_middle(&world.prefix().join("ckpt.2/rank_1.0"));
        let run = world.run(|application| application.session().have_restart().unwrap());
        run.all_gave(&Some(b"ckpt.1".to_vec()));
    };
    let dead = flushed_and_read(damage);
    assert!(dead.index().entry(2).unwrap().failed.is_some());
    let Outcome::Incomplete { why } = dead.build().outcome else { panic!("it was listed") };
    let words = ["marked as failed", "is damaged: ", "ckpt.2/rank_1.0", "save it with `scr copy'"];
    assert!(words.iter().all(|word| why.contains(word)) && !why.contains("application"), "{why}");
    assert!(dead.index().entry(2).unwrap().failed.is_some(), "it is as it was");
    assert!(dead.scavenge().iter().all(Copied::is_whole));
    assert!(matches!(dead.build().outcome, Outcome::Completed { .. }));
    dead.assert_whole("in the place of the damaged copy");
    let entry = dead.index().entry(2).unwrap();
    assert!(entry.is_candidate() && entry.failed.is_none(), "{entry:?}");
    dead.fetched_by_another_job();
}

#[test]
fn what_the_application_has_refused_stays_so_though_the_nodes_still_have_it() {
    let refuse = |world: &World| {
        world.run(|application| {
            assert_eq!(application.session().have_restart().unwrap(), Some(b"ckpt.2".to_vec()));
            application.session().start_restart().unwrap();
            application.session().complete_restart(false).unwrap_err();
        });
    };
    let dead = flushed_and_read(refuse);
    assert!(dead.scavenge().iter().all(Copied::is_whole));
    let Outcome::Incomplete { why } = dead.build().outcome else { panic!("it was listed") };
    let words = ["marked as failed", "the application could not restart from it", "take it out of the index"];
    assert!(words.iter().all(|word| why.contains(word)) && !why.contains("damaged"), "{why}");
    assert!(dead.index().entry(2).unwrap().failed.is_some());
}

/// A build of all datasets listed it again.
/// The command said that the files were gone, and a build by its number listed the dataset again.
#[test]
fn what_was_saved_and_is_deleted_leaves_nothing_to_be_built() {
    for lost in [&[][..], &["n1", "n2"]] {
        let dead = Dead::xor(4, 4);
        lost.iter().for_each(|node| dead.world.lose(node));
        dead.scavenge();
        let is_incomplete = !lost.is_empty();
        assert!(!is_incomplete || matches!(dead.build().outcome, Outcome::Incomplete { .. }));
        assert!(dead.in_prefix(&saved("ckpt.1/rank_0.0")).exists());
        let deleted = scr_ops::delete_dataset(&RealFiles, &dead.prefix(), b"ckpt.1").unwrap();
        assert!(deleted.found && deleted.notes.is_empty(), "{deleted:?}");
        let left = files_below(&dead.world.prefix());
        let is_of_dataset = |path: &PathBuf| path.to_string_lossy().contains("ckpt.1");
        assert!(!left.iter().any(is_of_dataset), "{left:?}");
        assert!(!dead.in_prefix("ckpt.1").exists() && !dead.prefix().dataset_dir(1).exists());
        assert!(matches!(dead.build_with(Arc::new(RealFiles)).0, Err(BuildError::Unknown { .. })));
    }
}

#[test]
fn what_was_dropped_is_built_from_what_the_nodes_have_only_if_it_is_named() {
    let dead = Dead::xor(4, 4);
    scr_ops::drop_dataset(&RealFiles, &dead.prefix(), b"ckpt.1").unwrap();
    assert!(dead.scavenge().iter().all(Copied::is_whole));
    let why = dead.left_out(1).unwrap();
    assert!(why.contains("`ckpt.1' was dropped") && why.contains("`scr index --build 1'"), "{why}");
    assert!(matches!(dead.build().outcome, Outcome::Completed { .. }));
    assert_eq!(dead.left_out(1), None, "it is listed");
}

/// The command had said that no run restarts from it, and then the build listed it, with all its files.
#[test]
#[ignore = "long"]
fn what_is_dropped_while_it_is_built_is_not_listed_unless_it_is_named() {
    for is_deletion in [false, true] {
        for at in 1.. {
            let dead = Dead::xor(2, 2);
            assert!(dead.scavenge().iter().all(Copied::is_whole));
            let faulty = FaultyFiles::new(RealFiles);
            faulty.count_all();
            let (prefix, is_dropped) = (dead.prefix(), Arc::new(AtomicU64::new(0)));
            let dropped = Arc::clone(&is_dropped);
            faulty.interrupt_at(at, move || {
                // It would wait until the builder has given up its lock.
                let locks = ["index.lock", "finalize.lock"].map(|lock| prefix.scr_file(lock).exists());
                if locks == [false; 2] {
                    match is_deletion {
                        true => drop(scr_ops::delete_dataset(&RealFiles, &prefix, b"ckpt.1").unwrap()),
                        false => drop(scr_ops::drop_dataset(&RealFiles, &prefix, b"ckpt.1").unwrap()),
                    }
                    dropped.store(1, Ordering::Relaxed);
                }
            });
            let env = dead.env(Arc::new(faulty.clone())).env();
            let host = PluginHost::new(&env, Some(&plugins().display().to_string()));
            _ = Builder::new(&env, &dead.prefix(), &host, 1).build_unless_withdrawn(1);
            if !faulty.was_interrupted() {
                assert!(at > 50, "it was built in {at} operations");
                break;
            }
            let is_listed = dead.index().entry(1).is_some_and(|entry| entry.is_candidate());
            assert!(
                is_dropped.load(Ordering::Relaxed) == 0 || !is_listed,
                "{is_deletion}, interrupted at {at}"
            );
        }
    }
}

#[test]
fn what_somebody_has_gone_back_over_is_built_only_if_it_is_named() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, small).unwrap()));
    world.put("SCR_CURRENT", "ckpt.1");
    world.put("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| {
        assert_eq!(application.restart(small), Some(1));
        application.checkpoint(9, small).unwrap();
    });
    let dead = Dead { nodes: 4, kept: world.keep(), world, step: 3 };
    assert!(dead.left_out(3).unwrap().contains("gone back over"));
    let newest = dead.index().highest_id().unwrap();
    assert_eq!([1, newest].map(|id| dead.left_out(id)), [None, None]);
}
