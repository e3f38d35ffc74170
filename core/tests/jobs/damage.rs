//! Flipped bits: found at restart, repaired where the scheme can, and never given to the application.
//!
//! Every rank compares every byte that it is given with what it wrote, so a wrong byte fails a test whatever else
//! happens. If a flip comes with more losses than the scheme survives, the checkpoint must be refused.

use super::scavenged::save;
use super::world::{file_name, said, Kept, Outcome, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_plugin_api::KvTree;
use scr_prefix::{DatasetDescriptor, FlushFile, Index, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn some(rank: Rank) -> Vec<usize> {
    vec![500 + 10 * rank.index(), 33]
}

/// A flush said that the file is damaged and failed, and in bypass mode nothing said anything. What moves no more than a time, as a file
/// server may after the file is closed, is not late.
#[test]
fn a_file_that_the_application_writes_to_too_late_is_named_in_its_next_call() {
    for (bypass, crc, changes) in
        [("0", "1", true), ("0", "1", false), ("1", "1", true), ("1", "1", false), ("1", "0", false)]
    {
        let world = World::new(4, 4).set("SCR_CACHE_BYPASS", bypass).set("SCR_CRC_ON_FLUSH", crc);
        let world = world.set("SCR_FLUSH", "10");
        let file = match bypass {
            "1" => world.prefix().join("ckpt.1/rank_0.0"),
            _ => world.node("n0").join("user1/scr.defjobid/scr.dataset.1/r0/rank_0.0"),
        };
        let run = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            if application.rank == Rank(0) {
                let written = std::fs::File::options().write(true).open(&file).unwrap();
                if changes {
                    std::os::unix::fs::FileExt::write_all_at(&written, b"late", 0).unwrap();
                }
                written.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
            }
            // A set brings the bytes back; without one the checkpoint is lost, and no other call could say so.
            assert_eq!(application.finalize().is_err(), changes && bypass == "1");
        });
        let told = |what: &str| run.lines.iter().filter(|line| line.contains(what)).count();
        assert_eq!(told("1 of 1 checkpoints of this run failed"), usize::from(changes && bypass == "1"));
        assert_eq!(
            told("was written to after SCR_Complete_output of dataset 1 `ckpt.1'"),
            usize::from(changes && crc == "1")
        );
        // Nobody knows: some file systems set times after a close.
        let touched = "the time of {} has changed since SCR_Complete_output of dataset 1 `ckpt.1': it was written to, or its";
        assert_eq!(told(&touched.replace("{}", &file.display().to_string())), usize::from(crc == "0"));
        assert_eq!(told("copying failed"), 0, "{:?}", run.lines);
    }
}

/// An ERROR said that it could not be restored, and then the run restarted from it. Its checksum was not looked at.
#[test]
fn what_lies_in_place_with_another_time_is_used_without_an_error() {
    for changes in [false, true] {
        let world = World::new(4, 4).set("SCR_CACHE_BYPASS", "1");
        world.run(|application| application.checkpoint(1, some).unwrap());
        let file = world.prefix().join("ckpt.1/rank_1.0");
        let file = std::fs::File::options().write(true).open(file).unwrap();
        if changes {
            std::os::unix::fs::FileExt::write_all_at(&file, b"late", 0).unwrap();
        }
        file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        let run = world.run(|application| application.restart(some));
        run.all_gave(&(!changes).then_some(1));
        assert_eq!(run.has_line_with("ERROR"), changes, "{:?}", run.lines);
        assert_eq!(run.has_line_with("the record in cache of dataset 1 `ckpt.1' does not count"), changes);
    }
}

/// It stayed the one to restart from by what commands read, and the next run called it lost.
#[test]
fn a_checkpoint_that_is_written_to_too_late_comes_back_or_no_run_restarts_from_it() {
    let xor = [(1, false, false), (4, false, false), (1, true, true), (4, true, true)].map(|of| ("XOR", of));
    let single = [(1, false, false), (4, false, true), (1, true, true)].map(|of| ("SINGLE", of));
    for (scheme, (many, appends, goes_on)) in xor.into_iter().chain(single) {
        let world = World::new(4, 4).set("SCR_CACHE_SIZE", "3").set("SCR_COPY_TYPE", scheme);
        let is_lost = many == 4 || scheme == "SINGLE";
        let run = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            application.checkpoint(2, some).unwrap();
            if application.rank.0 < many {
                let path = world.cached_file(&[&format!("dataset.2/r{}/", application.rank), ".0"]);
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                let place = if appends { file.metadata().unwrap().len() } else { 0 };
                std::os::unix::fs::FileExt::write_all_at(&file, b"late", place).unwrap();
                file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
            }
            if goes_on {
                // Another rank may see it only later.
                application.write(3, some).unwrap();
                application.session().complete_output(false).unwrap_err();
            }
            let ended = application.finalize();
            assert!(goes_on || ended.is_err() == is_lost, "{ended:?}");
        });
        let lines = run.lines.join("\n");
        let flush = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        let damage = flush.entries().into_iter().find(|entry| entry.id == 2).unwrap().in_cache.damage;
        assert_eq!(damage.is_some(), is_lost, "{damage:?}\n{lines}");
        let next = world.run(|application| application.restart(some));
        next.all_gave(&Some(if is_lost { 1 } else { 2 }));
        let cause = next.lines.iter().any(|line| line.contains("written to after SCR_Complete_output"));
        assert_eq!(cause, is_lost, "{}", next.lines.join("\n"));
        assert!(is_lost || !next.has_line_with("ERROR"), "{}", next.lines.join("\n"));
    }
}

/// A job that ends at once tells nobody: the next run finds out.
#[test]
fn the_next_run_says_that_a_file_was_written_to_too_late() {
    let late =
        [("XOR", &b"late"[..], "CRC32"), ("XOR", b"", "bytes where"), ("SINGLE", b"late", "no checksum")];
    for (scheme, late, expected) in late {
        let world = World::new(4, 4).set("SCR_COPY_TYPE", scheme);
        world.run(|application| application.checkpoint(1, some).unwrap());
        for rank in 0..4 {
            let path = world.cached_file(&[&format!("/r{rank}/"), ".0"]);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            match late.is_empty() {
                true => file.set_len(7).unwrap(),
                false => std::os::unix::fs::FileExt::write_all_at(&file, late, 0).unwrap(),
            }
            file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        }
        let next = world.run(|application| application.restart(some));
        next.all_gave(&None);
        next.line_with(&[expected, "rank_0.0", "was written to after SCR_Complete_output"]);
    }
}

/// A job of four nodes, with a checkpoint to damage.
struct Job {
    world: World,
    kept: Kept,
}

impl Job {
    fn new(world: World) -> Self {
        world.run(|application| application.checkpoint(1, some).expect("the checkpoint is complete"));
        let kept = world.keep();
        Self { world, kept }
    }

    fn of(scheme: &str) -> Self {
        Self::new(World::new(4, 4).set("SCR_COPY_TYPE", scheme).set("SCR_SET_FAILURES", "2"))
    }

    fn restart(&self) -> Outcome<Option<u64>> {
        self.world.run(|application| application.restart(some))
    }

    /// The job restarts, says what it found, and its nodes store again what they did.
    fn is_repaired(&self, what: &str, words: &[&str]) {
        let restarted = self.restart();
        assert!(restarted.ranks.iter().all(|step| *step == Some(1)), "{what}: {:?}", restarted.lines);
        restarted.line_with(words);
        assert_eq!(self.world.changes_since(&self.kept), Vec::<String>::new(), "{what}");
        self.world.put_back(&self.kept);
    }

    /// The job begins anew rather than with wrong bytes.
    fn is_refused(&self, what: &str) {
        let restarted = self.restart();
        assert!(restarted.ranks.iter().all(Option::is_none), "{what}: {:?}", restarted.lines);
        restarted.line_with(&["ERROR", "dataset 1", "cannot be restored"]);
        self.world.put_back(&self.kept);
    }
}

/// Flips one bit at a place of a file, as a device does: its time stays.
pub(crate) fn flip(path: &Path, byte: usize) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    let time = std::fs::metadata(path).and_then(|status| status.modified()).expect("it has one");
    bytes[byte] ^= 1 << (byte % 8);
    std::fs::write(path, bytes).expect("the file can be written");
    std::fs::File::options().append(true).open(path).unwrap().set_modified(time).expect("the file is ours");
}

/// Flips a bit in the middle of a file.
pub(crate) fn flip_middle(path: &Path) {
    let len = std::fs::metadata(path).expect("the file is there").len();
    flip(path, usize::try_from(len / 2).expect("it is small"));
}

/// Places all over a file: its first and last byte, and some between.
fn places(path: &Path, count: usize) -> Vec<usize> {
    let last =
        usize::try_from(std::fs::metadata(path).expect("the file is there").len()).expect("it is small") - 1;
    (0..count).map(|part| last * part / (count - 1)).collect()
}

fn data(job: &Job, rank: u32) -> PathBuf {
    job.world.cached_file(&[&format!("/r{rank}/"), ".0"])
}

fn redundancy(job: &Job, rank: u32) -> PathBuf {
    job.world.cached_file(&[&format!("redundancy_{rank}")])
}

fn filemap(job: &Job, rank: u32) -> PathBuf {
    job.world.cached_file(&[&format!("filemap_{rank}")])
}

#[test]
fn a_flipped_bit_in_a_cached_file_is_found_and_repaired_by_every_scheme() {
    for scheme in ["XOR", "RS", "PARTNER"] {
        let job = Job::of(scheme);
        let file = data(&job, 1);
        for byte in places(&file, 3) {
            flip(&file, byte);
            job.is_repaired(
                &format!("{scheme}, byte {byte}"),
                &["ERROR", "rank 1 on n1", "CRC32", "counts as lost"],
            );
        }
    }
}

#[test]
fn a_flipped_bit_in_a_redundancy_file_is_found_and_repaired_by_every_scheme() {
    for scheme in ["XOR", "RS", "PARTNER"] {
        let job = Job::of(scheme);
        let file = redundancy(&job, 2);
        // The header with its magic, its fields, its padding and its checksum, and the bytes after it.
        for byte in [0, 9, 25, 45, 50, 4000, 4095].into_iter().chain(places(&file, 4)) {
            flip(&file, byte);
            let words = ["ERROR", "rank 2 on n2", "the redundancy file", "counts as lost"];
            job.is_repaired(&format!("{scheme}, byte {byte}"), &words);
        }
    }
}

/// The redundancy files that a rank has used in one of these ways, by their ranks.
fn redundancy_used(counted: &FaultyFiles, uses: &[What]) -> BTreeSet<String> {
    let used = counted.operations().into_iter().filter(|operation| uses.contains(&operation.what));
    let names = used.filter_map(|operation| Some(operation.path.file_name()?.to_str()?.to_owned()));
    names.filter_map(|name| name.strip_prefix("redundancy_").map(str::to_owned)).collect()
}

#[test]
fn redundancy_that_no_rebuild_needs_is_read_once_the_application_has_its_files() {
    // The ranks that read their redundancy in `SCR_Init` if this node is lost.
    let cases: [(&str, Option<&str>, &[usize]); 5] = [
        ("XOR", None, &[]),
        ("RS", None, &[]),
        ("PARTNER", None, &[]),
        ("XOR", Some("n1"), &[0, 2, 3]),
        // Rank 2 keeps the copy.
        ("PARTNER", Some("n1"), &[2]),
    ];
    for (scheme, lost, needed) in cases {
        let mut job = Job::of(scheme);
        let counted: Vec<FaultyFiles> = (0..4).map(|_| FaultyFiles::new(RealFiles)).collect();
        for (rank, files) in counted.iter().enumerate() {
            files.count_all();
            job.world.own_files.insert(Rank(rank as u32), Arc::new(files.clone()));
        }
        if let Some(node) = lost {
            job.world.lose(node);
        }
        let restarted = job.world.run(|application| {
            let files = &counted[application.rank.index()];
            // A scheme gets all files open.
            let uses = if lost.is_some() { &[What::Read][..] } else { &[What::Read, What::OpenToRead] };
            let before = redundancy_used(files, uses);
            assert_eq!(application.restart(some), Some(1));
            (before, redundancy_used(files, uses))
        });
        for (rank, (before, after)) in restarted.ranks.into_iter().enumerate() {
            let own = BTreeSet::from([rank.to_string()]);
            let was_lost = lost == Some(&*format!("n{rank}"));
            let expected = if needed.contains(&rank) { own.clone() } else { BTreeSet::new() };
            assert_eq!(before, expected, "{scheme}, {lost:?} lost: rank {rank} in SCR_Init");
            assert_eq!(after, if was_lost { BTreeSet::new() } else { own }, "{scheme}, rank {rank} in all");
        }
    }
}

#[test]
fn damaged_redundancy_is_repaired_at_the_end_of_a_run_that_restarts_from_nothing() {
    for scheme in ["XOR", "RS", "PARTNER"] {
        let job = Job::of(scheme);
        flip(&redundancy(&job, 2), 4200);
        let ended = job.world.run(|application| application.finalize().expect("it ends"));
        ended.line_with(&["ERROR", "rank 2 on n2", "the redundancy file", "counts as lost"]);
        assert_eq!(job.world.changes_since(&job.kept), Vec::<String>::new(), "{scheme}");
    }
}

#[test]
fn a_new_checkpoint_begins_only_when_damaged_redundancy_of_the_older_one_is_repaired() {
    let job = Job::of("XOR");
    flip(&redundancy(&job, 2), 4200);
    job.world.run(|application| application.write(2, some).expect("it begins"));
    // The new one is not complete, and the loss of a node is survived.
    job.world.lose("n1");
    job.restart().all_gave(&Some(1));
}

#[test]
fn redundancy_that_no_run_has_read_is_compared_before_a_rebuild_counts() {
    let job = Job::of("PARTNER");
    flip(&redundancy(&job, 2), 4200);
    // This run reads nothing of it, and so does not find the damage.
    assert!(!job.world.run(|_| ()).has_line_with("counts as lost"));
    job.world.lose("n1");
    job.is_refused("a lost node and its damaged copy");
}

#[test]
fn redundancy_that_a_rebuild_does_not_need_may_be_damaged() {
    let job = Job::of("PARTNER");
    for byte in [0, 25, 4200] {
        flip(&redundancy(&job, 3), byte);
        job.world.lose("n1");
        job.is_repaired("the copy of another", &["dataset 1", "1 of 4 ranks is lost: 3"]);
    }
}

#[test]
fn a_file_of_another_length_is_found_and_repaired() {
    for scheme in ["XOR", "RS", "PARTNER"] {
        let job = Job::of(scheme);
        for length in [0, 1, 100, 100_000] {
            let file = std::fs::OpenOptions::new().write(true).open(data(&job, 3)).expect("it is there");
            file.set_len(length).expect("its length can be changed");
            let size = format!(".0 has {length} bytes where");
            let words = ["dataset 1", "the part of 1 of 4 ranks is lost: 3 (written on n3; ", &size];
            job.is_repaired(&format!("{scheme}, {length} bytes"), &words);
        }
    }
}

#[test]
fn a_flipped_bit_in_a_filemap_loses_that_part_at_most_wherever_it_is() {
    let job = Job::of("XOR");
    let map = filemap(&job, 1);
    let length = std::fs::metadata(&map).expect("it is there").len();
    for byte in places(&map, 40) {
        flip(&map, byte);
        let restarted = job.restart();
        assert!(
            restarted.ranks.iter().all(|step| *step == Some(1)),
            "byte {byte} of {length}: {:?}",
            restarted.lines
        );
        job.world.put_back(&job.kept);
    }
}

#[test]
fn a_flipped_bit_in_the_first_record_of_a_filemap_is_reported_and_the_part_is_rebuilt() {
    for scheme in ["XOR", "RS", "PARTNER"] {
        let job = Job::of(scheme);
        for byte in [0, 7, 12, 20, 60] {
            flip(&filemap(&job, 1), byte);
            job.is_repaired(&format!("{scheme}, byte {byte}"), &["ERROR", "filemap_1 is damaged"]);
        }
    }
}

#[test]
fn one_flip_and_one_lost_node_are_too_much_for_xor() {
    let job = Job::of("XOR");
    type Flip = fn(&Job, u32) -> PathBuf;
    for (what, file) in [("data", data as Flip), ("redundancy", redundancy), ("filemap", filemap)] {
        flip(&file(&job, 1), 30);
        job.world.lose("n3");
        job.is_refused(what);
    }
}

#[test]
fn one_flip_and_one_lost_node_are_repaired_where_two_losses_are_survived() {
    let job = Job::of("RS");
    type Flip = fn(&Job, u32) -> PathBuf;
    for (what, file) in [("data", data as Flip), ("redundancy", redundancy), ("filemap", filemap)] {
        flip(&file(&job, 1), 30);
        job.world.lose("n3");
        let lost =
            ["dataset 1", "2 of 4 ranks are lost: 1", "3 (written on n3; nothing usable of it is there)"];
        job.is_repaired(what, &lost);
    }
}

#[test]
fn a_part_whose_node_is_not_in_the_run_is_lost_for_that_reason() {
    let mut job = Job::of("XOR");
    job.world.nodes[3] = "spare".to_owned();
    let restarted = job.restart();
    restarted.all_gave(&Some(1));
    restarted.line_with(&[
        "the part of 1 of 4 ranks is lost: 3 (written on n3; the node is not in this run); rebuilding it",
    ]);
}

#[test]
fn without_a_cache_a_changed_file_is_named_and_no_message_mentions_a_rebuild() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("cannot look at", |path| std::fs::remove_file(path).unwrap()),
        ("was written to after", |path| {
            let other: Vec<u8> = std::fs::read(path).unwrap().iter().map(|byte| !byte).collect();
            std::fs::write(path, other).unwrap();
        }),
        ("has 1 bytes where", |path| std::fs::write(path, "x").unwrap()),
    ];
    for (what, change) in changes {
        let world = World::new(4, 4).set("SCR_CACHE_BYPASS", "1").set("SCR_FETCH", "0");
        world.run(|application| application.checkpoint(1, some).unwrap());
        assert!(!world.run(|application| application.restart(some)).has_line_with("ebuil"));
        change(&world.prefix().join(file_name(1, Rank(2), 0)));
        let restarted = world.run(|application| application.restart(some));
        restarted.all_gave(&None);
        restarted
            .line_with(&["the files of 1 of 4 ranks are not as they were written: 2 (written on n2; ", what]);
        assert!(!restarted.has_line_with("ebuil"), "{:#?}", restarted.lines);
    }
}

#[test]
fn two_flips_and_one_lost_node_are_too_much_for_two_failures() {
    let job = Job::of("RS");
    flip(&data(&job, 0), 3);
    flip(&redundancy(&job, 2), 4500);
    job.world.lose("n3");
    job.is_refused("two flips and a lost node");
}

#[test]
fn partner_cannot_repair_a_file_together_with_its_copy() {
    let job = Job::of("PARTNER");
    flip(&data(&job, 1), 3);
    // The copy of rank 1 lies with rank 2.
    flip(&redundancy(&job, 2), 4500);
    job.is_refused("a file and its copy");
    flip(&data(&job, 1), 3);
    flip(&redundancy(&job, 3), 4500);
    job.is_repaired("a file and the copy of another", &["dataset 1", "2 of 4 ranks are lost: 1"]);
}

#[test]
fn single_finds_a_flipped_bit_where_checksums_are_wanted() {
    let world = World::new(4, 2).set("SCR_COPY_TYPE", "SINGLE").set("SCR_CRC_ON_COPY", "1");
    let job = Job::new(world);
    assert_eq!(job.restart().ranks, [Some(1); 4]);
    flip(&data(&job, 1), 7);
    job.is_refused("SINGLE repairs nothing");
}

#[test]
fn a_flip_in_the_newest_checkpoint_that_cannot_be_repaired_leads_to_the_one_before() {
    let world = World::new(4, 2)
        .set("SCR_COPY_TYPE", "SINGLE")
        .set("SCR_CRC_ON_COPY", "1")
        .set("SCR_CACHE_SIZE", "2");
    world.run(|application| {
        application.checkpoint(1, some).expect("the first is complete");
        application.checkpoint(2, some).expect("the second is complete");
    });
    flip(&world.cached_file(&["scr.dataset.2", "/r2/", ".1"]), 5);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn a_flipped_bit_that_travels_to_another_node_is_found_there() {
    let mut job = Job::of("XOR");
    flip(&data(&job, 1), 100);
    job.world.nodes.rotate_left(1);
    let restarted = job.restart();
    restarted.all_gave(&Some(1));
    restarted.line_with(&["ERROR", "rank 1 on n2", "CRC32", "counts as lost"]);
}

#[test]
fn a_flipped_bit_is_reported_on_eviction_if_checksums_are_requested() {
    for (wanted, is_reported) in [("1", true), ("0", false)] {
        let world = World::new(4, 4).set("SCR_CACHE_SIZE", "1").set("SCR_CRC_ON_DELETE", wanted);
        let run = world.run(|application| {
            application.checkpoint(1, some).expect("the first is complete");
            if application.rank == Rank(2) {
                flip(&world.cached_file(&["scr.dataset.1", "/r2/", ".0"]), 11);
            }
            application.checkpoint(2, some).expect("the second is complete");
        });
        let line = run.lines.iter().find(|line| line.contains("deleted from cache anyway"));
        assert_eq!(line.is_some(), is_reported, "{:?}", run.lines);
        assert!(line.is_none_or(|line| line.contains("rank 2 on n2: dataset 1") && line.contains("CRC32")));
        let left = world.cached_files();
        assert!(!left.iter().any(|file| file.display().to_string().contains("scr.dataset.1")), "{left:?}");
    }
}

#[test]
fn a_flipped_bit_in_cache_is_not_flushed_unless_checksums_are_switched_off() {
    for (wanted, refused) in [("1", true), ("0", false)] {
        let world = World::new(4, 4).set("SCR_FLUSH", "2").set("SCR_CRC_ON_FLUSH", wanted);
        let run = world.run(|application| {
            application.checkpoint(1, some).expect("it is complete");
            if application.rank == Rank(2) {
                flip(&world.cached_file(&["/r2/", ".0"]), 11);
            }
            application.finalize().map_err(|error| error.to_string())
        });
        for result in run.ranks {
            assert_eq!(result.is_err(), refused, "SCR_CRC_ON_FLUSH={wanted}: {result:?}");
        }
    }
}

/// A job that has flushed two checkpoints and lost all its nodes; a bit of the second one is flipped in the prefix directory.
fn flushed_and_flipped(world: World) -> World {
    world.run(|application| {
        application.checkpoint(1, some).expect("the first is complete");
        application.checkpoint(2, some).expect("the second is complete");
    });
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    flip(&world.prefix().join("ckpt.2/rank_3.0"), 100);
    world
}

#[test]
fn a_flipped_bit_in_the_prefix_directory_is_not_fetched() {
    let world = flushed_and_flipped(World::new(4, 4).set("SCR_FLUSH", "1"));
    expect_replaced(&world);
}

/// The run goes on from the older one, and says that it replaces the damaged one, as where it begins at zero.
fn expect_replaced(world: &World) {
    let run = world.run(|application| {
        let restarted = application.restart(some);
        application.checkpoint(2, some).expect("it is complete");
        restarted
    });
    run.all_gave(&Some(1));
    run.line_with(&["ERROR", "`ckpt.2' cannot be fetched", "checksum"]);
    run.line_with(&[
        "WARNING",
        "the new checkpoint `ckpt.2' takes the place of one that was not restarted from",
    ]);
}

#[test]
fn a_flipped_bit_in_the_prefix_directory_is_found_where_files_are_read_in_place() {
    let world = flushed_and_flipped(World::new(4, 4).set("SCR_CACHE_BYPASS", "1"));
    expect_replaced(&world);
}

/// A fetch and a flush into one file took checksums, and the record in cache had none.
#[test]
fn a_flipped_bit_in_cache_is_found_under_single_where_a_flush_or_a_fetch_has_taken_checksums() {
    let found = |world: &World| {
        let path = world.cached_file(&["/r2/", ".0"]);
        let written = std::fs::metadata(&path).and_then(|status| status.modified()).expect("it is there");
        flip(&path, 11);
        // The memory has flipped it: nobody has written to the file.
        let file = std::fs::File::options().write(true).open(&path).expect("the file is there");
        file.set_modified(written).expect("its time can be set");
        let restarted = world.run(|application| application.restart(some));
        restarted.all_gave(&Some(1));
        restarted.line_with(&["ERROR", "rank 2 on n2: dataset 1", "CRC32"]);
    };
    let ways = [("0", "", false), ("1", "", false), ("0", "AGGREGATE=1", false), ("0", "", true)];
    for (asynchronous, store, is_fetched) in ways {
        let world = World::new(4, 4).set("SCR_COPY_TYPE", "SINGLE").set("SCR_FLUSH", "1").with_store(store);
        let world = world.set("SCR_FLUSH_ASYNC", asynchronous).set("SCR_FLUSH_TYPE", "PTHREAD");
        world.run(|application| {
            application.checkpoint(1, some).expect("it is complete");
            application.finalize().expect("it is flushed");
        });
        if is_fetched {
            (0..4).for_each(|node| world.lose(&format!("n{node}")));
            world.run(|application| application.restart(some)).all_gave(&Some(1));
        }
        found(&world);
    }
    // Those that `scr postrun' has taken stood in the prefix directory alone.
    let world = World::new(4, 4).set("SCR_COPY_TYPE", "SINGLE");
    world.run(|application| application.checkpoint(1, some).expect("it is complete"));
    found(&save(world, 1));
}

/// The copy in the prefix directory was marked as failed with the one in cache, and the run began at zero.
#[test]
fn a_checkpoint_that_nothing_proves_in_cache_is_offered_once_more_from_the_prefix_directory() {
    let world = World::new(4, 4).set("SCR_COPY_TYPE", "SINGLE").set("SCR_FLUSH", "1");
    let world = world.set("SCR_CRC_ON_FLUSH", "0");
    world.run(|application| application.checkpoint(1, some).expect("it is complete"));
    flip(&world.cached_file(&["/r2/", ".0"]), 11);
    let run = world.run(|application| {
        application.session().have_restart().expect("there is one");
        application.session().start_restart().expect("it can be read");
        let refused = said(application.session().complete_restart(false).expect_err("its bytes are wrong"));
        let step = application.restart(some);
        application.session().start_restart().expect("it can be read again");
        let refused_again = said(application.session().complete_restart(false).expect_err("it is refused"));
        (refused, step, refused_again, application.session().have_restart().expect("nothing is left"))
    });
    for (refused, step, refused_again, left) in &run.ranks {
        assert!(refused.contains("its copy in the prefix directory is next"), "{refused}");
        assert!(refused_again.contains("there is no older one"), "{refused_again}");
        assert_eq!((*step, left), (Some(1), &None));
    }
}

/// The checksums that a flush takes stood in the file lists only, and a restart in the same allocation does not read those.
#[test]
fn a_flipped_bit_in_a_file_that_was_written_in_place_is_found_where_checksums_are_wanted() {
    for (on_copy, on_flush, lost) in [("1", "1", ""), ("0", "1", ""), ("0", "1", "n3"), ("1", "0", "")] {
        let world = World::new(4, 4).set("SCR_CACHE_BYPASS", "1").set("SCR_CACHE_SIZE", "2");
        let world = world.set("SCR_CRC_ON_COPY", on_copy).set("SCR_CRC_ON_FLUSH", on_flush);
        world.run(|application| {
            application.checkpoint(1, some).expect("the first is complete");
            application.checkpoint(2, some).expect("the second is complete");
        });
        let path = world.prefix().join("ckpt.2/rank_3.0");
        let written = std::fs::metadata(&path).and_then(|status| status.modified()).expect("it is there");
        flip(&path, 100);
        // The disk has flipped it: nobody has written to the file.
        let file = std::fs::File::options().write(true).open(&path).expect("the file is there");
        file.set_modified(written).expect("its time can be set");
        if !lost.is_empty() {
            // A neighbour has the record.
            world.lose(lost);
        }
        let restarted = world.run(|application| application.restart(some));
        restarted.all_gave(&Some(1));
        restarted.line_with(&["ERROR", "rank 3 on n3: dataset 2", "CRC32"]);
    }
}

/// If the application read files in the prefix directory that were in cache as well, scr did not compare them.
#[test]
fn a_flipped_bit_in_the_prefix_directory_is_repaired_from_cache_where_files_are_read_there() {
    let world = World::new(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    flip(&world.prefix().join("ckpt.1/rank_2.0"), 77);
    let world = world.set("SCR_GLOBAL_RESTART", "1");
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&Some(1));
    restarted.line_with(&["ckpt.1/rank_2.0"]);
}

/// Without `SCR_CRC_ON_FLUSH` only lengths were compared, and the application got the bytes of the other program.
#[test]
fn a_file_that_another_program_has_begun_to_write_over_is_not_read_in_the_prefix_directory() {
    let world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CRC_ON_FLUSH", "0");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let begun = DatasetDescriptor { id: 9, name: b"other".to_vec(), checkpoint: true, ..Default::default() };
    Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| index.record(&begun, false)).unwrap();
    flip(&world.prefix().join("ckpt.1/rank_2.0"), 77);
    let world = world.set("SCR_GLOBAL_RESTART", "1");
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&Some(1));
    restarted.line_with(&["is to be flushed again from cache", "ckpt.1/rank_2.0"]);
}

/// It was counted on from, and there is no number above it.
#[test]
fn a_checkpoint_with_the_largest_number_there_is_can_be_gone_on_from() {
    let world = World::new(2, 2).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.lose("");
    let summary = world.prefix().join(".scr/scr.dataset.1/summary.scr");
    let mut tree = KvTree::from_file_bytes(&std::fs::read(&summary).unwrap()).unwrap();
    tree.child("DSET").set("CKPT", u64::MAX);
    std::fs::write(&summary, tree.to_file_bytes()).unwrap();
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(2, some).unwrap();
    });
}

/// A scheme had nobody to keep redundancy with, took no checksum either, and the wrong byte was handed out.
#[test]
fn on_a_single_node_damage_is_found_under_every_scheme_that_protects() {
    for scheme in ["XOR", "PARTNER", "RS"] {
        let job = Job::new(World::new(2, 1).set("SCR_COPY_TYPE", scheme).set("SCR_SET_FAILURES", "2"));
        flip(
            &job.world.cached_file(&["scr.dataset.1", &file_name(1, Rank(1), 0).replace("ckpt.1/", "")]),
            77,
        );
        job.is_refused(scheme);
    }
}

/// The part counted as lost and was cleared to be rebuilt, and then another part turned out to be damaged.
#[test]
fn a_part_whose_filemap_cannot_be_read_for_a_moment_stays() {
    for is_listing in [false, true] {
        let Job { mut world, .. } = Job::of("XOR");
        let map = world.cached_file(&["filemap_0"]);
        let file = world.cached_file(&["/r2/", ".0"]);
        flip(&file, 7);
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.never_pause();
        let folder = map.parent().expect("it lies in a folder").to_owned();
        faulty.only(move |what, path| match what {
            What::List => is_listing && path == folder,
            What::OpenToRead => !is_listing && path == map,
            _ => false,
        });
        faulty.fail_from(1, ErrorKind::TimedOut);
        world.own_files.insert(Rank(0), Arc::new(faulty));
        let begun = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
        assert!(begun.ranks.iter().all(Result::is_err), "a run began from nothing: {:?}", begun.ranks);
        world.own_files.clear();
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        flip(&file, 7);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

#[test]
fn a_part_whose_filemap_cannot_be_read_once_is_as_good_as_before() {
    let Job { mut world, kept } = Job::of("XOR");
    let map = world.cached_file(&["filemap_0"]);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    faulty.never_pause();
    faulty.only(move |what, path| what == What::OpenToRead && path == map);
    for (at, kind) in [(1, ErrorKind::TimedOut), (1, ErrorKind::PermissionDenied)] {
        faulty.fail_once(at, kind);
        world.own_files.insert(Rank(0), Arc::new(faulty.clone()));
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        faulty.heal();
        assert_eq!(world.changes_since(&kept), Vec::<String>::new(), "{kind:?}");
    }
}

/// The dataset of another prefix directory has the same number.
#[test]
fn a_rebuild_takes_nothing_away_from_a_dataset_of_another_prefix_directory() {
    let mut world = World::new(4, 4);
    let on = |world: &mut World, nodes: [&str; 4]| world.nodes = nodes.map(str::to_owned).to_vec();
    world.run(|application| application.checkpoint(1, some).expect("the checkpoint is complete"));
    on(&mut world, ["n4", "n5", "n6", "n7"]);
    world.turn_to("other");
    world.run(|application| application.checkpoint(1, some).expect("the checkpoint is complete"));
    on(&mut world, ["n0", "n1", "n2", "n7"]);
    world.turn_to("prefix");
    // There is no other place for it.
    let full = FaultyFiles::new(RealFiles);
    full.only(|_, path| path.to_string_lossy().contains("/node."));
    full.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(3), Arc::new(full));
    world.run(|application| application.restart(some)).all_gave(&None);
    world.own_files.clear();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.lose("n4");
    on(&mut world, ["n4", "n5", "n6", "n7"]);
    world.turn_to("other");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}
