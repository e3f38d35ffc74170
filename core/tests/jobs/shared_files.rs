//! Files in cache that several ranks write: on one node, and in a store that all ranks see. Elsewhere they are refused.

use super::shared_path::{bb, shared};
use super::world::{contents, files_below, path_of, said, Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_prefix::{Index, IndexEntry, Prefix};
use scr_test_kit::descriptors::wait_until;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Bytes that each rank writes of a shared file. The last one writes a few more.
const BLOCK: usize = 5000;

/// Which file a rank writes together with others.
type Name = fn(Rank) -> String;

fn of_all(_: Rank) -> String {
    "all/matrix.h5".to_owned()
}

fn of_pair(rank: Rank) -> String {
    format!("pair/{}.h5", rank.0 / 2)
}

fn own(rank: Rank) -> String {
    format!("own/rank_{rank}")
}

fn block(step: u64, rank: Rank) -> Vec<u8> {
    contents(step, rank, 0, BLOCK + if rank.0 == 3 { 77 } else { 0 })
}

fn begin(application: &mut Application, step: u64) {
    let flags = OutputFlags { checkpoint: true, output: false };
    application.session().start_output(Some(format!("ckpt.{step}").as_bytes()), flags).unwrap();
}

fn fill(application: &mut Application, step: u64, name: Name) {
    begin(application, step);
    write(application, step, name);
}

/// Writes this rank's block of the shared file, and a file of its own.
fn write(application: &mut Application, step: u64, name: Name) {
    let rank = application.rank;
    let path = application.session().route_file(name(rank).as_bytes()).unwrap();
    let again = application.session().route_file(name(rank).as_bytes()).unwrap();
    assert_eq!(path, again, "a file that is routed twice stays where it is");
    let file =
        std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path_of(&path)).unwrap();
    file.write_all_at(&block(step, rank), (rank.index() * BLOCK) as u64).unwrap();
    let path = application.session().route_file(own(rank).as_bytes()).unwrap();
    std::fs::write(path_of(&path), block(step + 100, rank)).unwrap();
}

fn checkpoint(application: &mut Application, step: u64, name: Name) {
    fill(application, step, name);
    application.session().complete_output(true).unwrap();
}

/// The bytes that the ranks that share a file with `rank` have written, each at its place.
fn expected(step: u64, rank: Rank, ranks: u32, name: Name) -> Vec<u8> {
    let mut bytes = Vec::new();
    for other in (0..ranks).map(Rank).filter(|&other| name(other) == name(rank)) {
        let (at, block) = (other.index() * BLOCK, block(step, other));
        bytes.resize(bytes.len().max(at + block.len()), 0);
        bytes[at..at + block.len()].copy_from_slice(&block);
    }
    bytes
}

/// Restarts, and compares every byte of both files. Gives the step.
fn restart(application: &mut Application, name: Name) -> Option<u64> {
    let found = application.session().have_restart().unwrap()?;
    let step = std::str::from_utf8(&found).unwrap().strip_prefix("ckpt.").unwrap().parse().unwrap();
    application.session().start_restart().unwrap();
    let (rank, ranks) = (application.rank, 4);
    for (file, bytes) in
        [(name(rank), expected(step, rank, ranks, name)), (own(rank), block(step + 100, rank))]
    {
        let path = application.session().route_file(file.as_bytes()).unwrap();
        assert!(std::fs::read(path_of(&path)).unwrap() == bytes, "{file} is not what was written");
    }
    application.session().complete_restart(true).unwrap();
    Some(step)
}

fn expect_no_claims(world: &World) {
    let left =
        files_below(world.dir()).into_iter().filter(|path| path.display().to_string().contains(".claim_"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

/// Each rank may have written over the other's bytes with `fopen`, and nothing said so.
fn expect_one_note(lines: &[String], words: &str) {
    let notes: Vec<_> = lines.iter().filter(|line| line.contains("have routed one file")).collect();
    assert!(notes.len() == 1 && notes[0].contains("NOTE") && notes[0].contains(words), "{lines:?}");
}

/// A rank was told that another process writes to the file: the rank that had yet to close it.
#[test]
fn a_rank_that_has_yet_to_close_a_shared_file_is_no_foreign_writer() {
    let mut world = World::new(2, 1);
    let files = FaultyFiles::new(RealFiles);
    let (has_looked, together) = (Arc::new(AtomicBool::default()), Barrier::new(2));
    let looks = Arc::clone(&has_looked);
    // The second file, after it has looked at the first.
    files.only(move |what, path| {
        looks.fetch_or(what == What::OpenToRead && path.ends_with("rank_0"), Ordering::SeqCst);
        true
    });
    files.count_all();
    world.own_files.insert(Rank(0), Arc::new(files));
    let run = world.run(|application| {
        begin(application, 1);
        if application.rank == Rank(0) {
            // The one that has claimed the file looks at it.
            write(application, 1, of_pair);
            together.wait();
            together.wait();
            return application.session().complete_output(true).unwrap();
        }
        together.wait();
        write(application, 1, of_pair);
        let path = application.session().route_file(of_pair(Rank(1)).as_bytes()).unwrap();
        let open = std::fs::OpenOptions::new().append(true).open(path_of(&path)).unwrap();
        // Ranks are threads here, and the real ones processes.
        let mut other = Command::new("cat").stdin(Stdio::piped()).stdout(open).spawn().unwrap();
        together.wait();
        wait_until(|| has_looked.load(Ordering::SeqCst));
        drop(other.stdin.take());
        other.wait().unwrap();
        application.session().complete_output(true).unwrap();
    });
    assert!(!run.has_line_with("still has it open"), "{:?}", run.lines);
}

fn expect_right_in_prefix(world: &World, step: u64, name: Name) {
    for rank in (0..4).map(Rank) {
        let found = std::fs::read(world.prefix().join(name(rank))).unwrap();
        assert!(found == expected(step, rank, 4, name), "{} is not what was written", name(rank));
    }
}

#[test]
fn a_file_of_the_ranks_of_a_node_comes_back_after_the_node_was_lost() {
    for scheme in ["XOR", "PARTNER", "RS"] {
        let world = World::new(4, 2).set("SCR_COPY_TYPE", scheme).set("SCR_SET_FAILURES", "1");
        let run = world.run(|application| {
            checkpoint(application, 1, own);
            checkpoint(application, 1, of_pair);
            checkpoint(application, 2, of_pair);
        });
        expect_one_note(&run.lines, "ranks 0 and 1 have routed one file, `pair/0.h5'");
        expect_no_claims(&world);
        world.run(|application| restart(application, of_pair)).all_gave(&Some(2));
        world.lose("n1");
        world.run(|application| restart(application, of_pair)).all_gave(&Some(2));
        world.lose("n0");
        let run = world.run(|application| {
            assert_eq!(restart(application, of_pair), Some(2));
            checkpoint(application, 3, of_pair);
            application.finalize().unwrap();
        });
        assert!(!run.has_line_with("ERROR"), "{}", run.lines.join("\n"));
    }
}

/// Each rank reads its file also on another node than the one that it wrote it on.
#[test]
fn a_file_of_the_ranks_of_a_node_is_there_for_each_of_them_on_other_nodes() {
    let mut world = World::new(4, 2);
    world.run(|application| checkpoint(application, 1, of_pair));
    world.nodes.rotate_left(1);
    world.run(|application| restart(application, of_pair)).all_gave(&Some(1));
    world.lose("n0");
    world.run(|application| restart(application, of_pair)).all_gave(&Some(1));
}

/// MPI-IO waited for ever in `MPI_File_open`, and scr said nothing.
#[test]
fn one_file_of_ranks_of_several_nodes_is_named_while_they_wait_for_each_other() {
    for (name, late, is_named) in [(of_all as Name, "60", true), (of_all, "0", false), (of_pair, "60", false)]
    {
        let world = World::new(4, 2).set("SCR_LATE_SECS", late);
        let all = Barrier::new(4);
        let run = world.run(|application| {
            begin(application, 1);
            let rank = application.rank;
            application.session().route_file(name(rank).as_bytes()).unwrap();
            application.session().route_file(own(rank).as_bytes()).unwrap();
            application.wait(40);
            let mut said = Vec::new();
            for _ in 0..if is_named { 100 } else { 15 } {
                std::thread::sleep(Duration::from_millis(100));
                application.wait(11);
                said.extend(application.lines());
                if rank != Rank(0) || said.iter().any(|line| line.contains("WARNING")) {
                    break;
                }
            }
            all.wait();
            assert!(application.session().complete_output(false).is_err());
            said
        });
        let expected = "WARNING: rank 0 on n0: rank 0 on n0 and rank 2 on n1 write `all/matrix.h5', each in its own cache, and";
        let said: Vec<_> = run.ranks.concat().into_iter().filter(|line| line.contains("WARNING")).collect();
        assert_eq!(said.len(), usize::from(is_named), "{said:?}");
        let is_right =
            |line: &String| line.replace("rank 1", "rank 0").replace("rank 3", "rank 2").contains(expected);
        assert!(said.iter().all(is_right), "{said:?}");
        let is_routed = |path: &std::path::PathBuf| path.display().to_string().contains("/routed.");
        wait_until(|| !files_below(&world.prefix().join(".scr")).iter().any(is_routed));
    }
}

#[test]
fn a_file_of_all_ranks_in_a_store_that_all_see_comes_back() {
    for store in ["GROUP=WORLD COUNT=2", "VIEW=GLOBAL"] {
        let mut world = shared(4, 2, store, "TYPE=SINGLE");
        world.run(|application| {
            checkpoint(application, 1, of_all);
            checkpoint(application, 2, of_all);
        });
        expect_no_claims(&world);
        world.run(|application| restart(application, of_all)).all_gave(&Some(2));
        // Nothing on the path is lost with a node.
        world.lose("n0");
        world.nodes = ["n7", "n7", "n1", "n1"].map(str::to_owned).to_vec();
        world.run(|application| restart(application, of_all)).all_gave(&Some(2));
        let parts = files_below(&bb(&world)).iter().filter(|path| path.ends_with("matrix.h5")).count();
        assert!(parts >= 4, "each part holds all its files");
    }
}

#[test]
fn a_shared_file_is_flushed_once_and_fetched_by_all() {
    for (kind, asynchronous) in [("SYNC", "0"), ("PTHREAD", "1")] {
        for copy_type in ["SINGLE", "XOR"] {
            let world = World::new(4, 2)
                .set("SCR_COPY_TYPE", copy_type)
                .set("SCR_FLUSH", "1")
                .set("SCR_FLUSH_TYPE", kind)
                .set("SCR_FLUSH_ASYNC", asynchronous);
            let run = world.run(|application| {
                checkpoint(application, 1, of_pair);
                application.finalize().unwrap();
            });
            run.line_with(&["scr_flush", "6 files"]);
            expect_right_in_prefix(&world, 1, of_pair);
            ["n0", "n1"].iter().for_each(|node| world.lose(node));
            world.run(|application| restart(application, of_pair)).all_gave(&Some(1));
        }
    }
}

/// Each rank read it: a file of all ranks of a node came from the parallel file system as often as there were ranks.
#[test]
fn a_file_of_several_ranks_is_fetched_once_for_each_node() {
    for (name, shared, reads) in
        [(of_pair as Name, vec!["pair/0.h5", "pair/1.h5"], 1), (of_all, vec!["all/matrix.h5"], 2)]
    {
        let mut world = World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", "1");
        let run = world.run(|application| {
            checkpoint(application, 1, name);
            checkpoint(application, 1, name);
            application.finalize().unwrap();
        });
        let others = if name(Rank(3)) == name(Rank(0)) { 3 } else { 1 };
        expect_one_note(
            &run.lines,
            &format!("ranks 0 and {others} have routed one file, `{}'", name(Rank(0))),
        );
        ["n0", "n1"].iter().for_each(|node| world.lose(node));
        world.put("SCR_CACHE_BYPASS", "0");
        let counting = Arc::new(FaultyFiles::new(RealFiles));
        counting.count_all();
        world.files = counting.clone();
        world.run(|application| restart(application, name)).all_gave(&Some(1));
        let opened = |file: &str| {
            let path = world.prefix().join(file);
            let operations = counting.operations();
            operations.iter().filter(|done| done.what == What::OpenToRead && done.path == path).count()
        };
        shared.iter().for_each(|file| assert_eq!(opened(file), reads, "{file}"));
        (0..4).for_each(|rank| assert_eq!(opened(&format!("own/rank_{rank}")), 1));
        // Each part is whole by itself: a lost one is rebuilt.
        world.files = Arc::new(RealFiles);
        world.lose("n1");
        world.run(|application| restart(application, name)).all_gave(&Some(1));
    }
}

#[test]
fn without_hard_links_each_rank_fetches_its_own_copy() {
    let mut world = World::new(4, 2).set("SCR_FLUSH", "1");
    world.run(|application| {
        checkpoint(application, 1, of_pair);
        application.finalize().unwrap();
    });
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    let without = Arc::new(FaultyFiles::new(RealFiles));
    without.lack(What::Link);
    world.files = without;
    world.run(|application| restart(application, of_pair)).all_gave(&Some(1));
}

/// The dataset was marked as failed; and where the link was there already, the file of both ranks was written over.
#[test]
fn a_fault_of_one_copy_in_cache_is_none_of_the_dataset_in_the_prefix_directory() {
    let cut: fn(&Path) = |copy| {
        std::fs::OpenOptions::new().write(true).open(copy).unwrap().set_len(7).unwrap();
    };
    let link: fn(&Path) = |copy| {
        let (part, name) = (copy.parent().unwrap(), copy.file_name().unwrap());
        let of_mate = if part.ends_with("r0") { "r1" } else { "r3" };
        std::fs::hard_link(copy, part.with_file_name(of_mate).join(name)).unwrap();
    };
    for (fault, links) in [(cut, 2), (link, 1)] {
        let mut world = World::new(4, 2).set("SCR_FLUSH", "1");
        world.run(|application| {
            checkpoint(application, 1, of_pair);
            application.finalize().unwrap();
        });
        ["n0", "n1"].iter().for_each(|node| world.lose(node));
        let faulty = Arc::new(FaultyFiles::new(RealFiles));
        let done = Arc::new(AtomicUsize::new(0));
        let seen = done.clone();
        faulty.only(move |what, path| {
            if what == What::Link && path.extension().is_some_and(|extension| extension == "h5") {
                fault(path);
                seen.fetch_add(1, Ordering::Relaxed);
            }
            true
        });
        world.files = faulty;
        // Whether it begins with what it has or is refused: the dataset itself is good.
        world.try_run(drop);
        assert_eq!(done.load(Ordering::Relaxed), 2, "a rank of each node links");
        let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        assert!(index.entries().iter().all(IndexEntry::is_valid));
        world.files = Arc::new(RealFiles);
        world.run(|application| restart(application, of_pair)).all_gave(&Some(1));
        let cached =
            world.cached_files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "h5"));
        cached.for_each(|path| assert_eq!(std::fs::metadata(path).unwrap().nlink(), links));
    }
}

#[test]
fn ranks_that_do_not_see_the_same_store_are_refused_with_the_name_and_what_to_do() {
    let world = World::new(4, 2);
    let run = world.run(|application| {
        checkpoint(application, 1, of_pair);
        fill(application, 2, of_all);
        let error = said(application.session().complete_output(true).unwrap_err());
        assert!(error.contains("all/matrix.h5") && error.contains("SCR_CACHE_BYPASS=1"), "{error}");
        assert!(error.contains("GROUP=WORLD"), "{error}");
        // The existing checkpoint is kept, and the next one can be written.
        assert_eq!(restart(application, of_pair), Some(1));
        checkpoint(application, 3, of_pair);
    });
    drop(run);
    expect_no_claims(&world);
    world.run(|application| restart(application, of_pair)).all_gave(&Some(3));
}

/// The names of the first checkpoint are distinct. Later one rank takes another one's, and the others continue with theirs.
#[test]
fn a_rank_that_takes_the_name_of_another_one_later_is_refused() {
    fn own_of_step(rank: Rank) -> String {
        format!("ckpt.2/{rank}")
    }
    fn of_another(rank: Rank) -> String {
        own_of_step(if rank == Rank(1) { Rank(0) } else { rank })
    }
    let world = World::new(4, 4);
    let run = world.run(|application| {
        checkpoint(application, 2, own_of_step);
        checkpoint(application, 2, own_of_step);
        fill(application, 2, of_another);
        application.session().complete_output(true).unwrap_err().to_string()
    });
    let refused = run.ranks.iter().filter(|error| error.contains("`ckpt.2/0'"));
    assert_eq!(refused.count(), 4, "{:?}", run.ranks);
}

/// The rank took its own claim for that of another one, and could not link the file to itself.
#[test]
fn a_file_that_could_not_be_recorded_is_routed_again_and_the_dataset_is_complete() {
    let mut world = World::new(4, 2);
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Write && path.ends_with("filemap_0"));
    world.own_files.insert(Rank(0), Arc::new(files.clone()));
    world.run(|application| {
        begin(application, 1);
        if application.rank == Rank(0) {
            files.fail_once(files.mutations() + 1, ErrorKind::StorageFull);
            application.session().route_file(own(Rank(0)).as_bytes()).unwrap_err();
        }
        write(application, 1, of_pair);
        application.session().complete_output(true).unwrap();
        assert_eq!(restart(application, of_pair), Some(1));
    });
    expect_no_claims(&world);
}

/// The claims of a run that died are in nobody's way and do not stay.
#[test]
fn a_run_that_dies_while_it_writes_a_shared_file_leaves_no_files() {
    let world = shared(4, 2, "GROUP=WORLD COUNT=2", "TYPE=SINGLE");
    world.run(|application| {
        checkpoint(application, 1, of_all);
        fill(application, 2, of_all);
    });
    let claims = || {
        files_below(&bb(&world)).iter().filter(|path| path.display().to_string().contains(".claim_")).count()
    };
    assert_eq!(claims(), 5, "one for the shared file and one for each rank's own");
    world.run(|application| {
        assert_eq!(restart(application, of_all), Some(1));
        checkpoint(application, 2, of_all);
    });
    assert_eq!(claims(), 0);
    world.run(|application| restart(application, of_all)).all_gave(&Some(2));
}

/// An application that says that its files are not valid, on any rank.
#[test]
fn a_shared_file_that_is_not_valid_on_one_rank_fails_on_all_and_leaves_nothing() {
    let world = World::new(4, 2);
    world.run(|application| {
        fill(application, 1, of_pair);
        let valid = application.rank != Rank(2);
        application.session().complete_output(valid).unwrap_err();
        assert_eq!(application.session().have_restart().unwrap(), None);
    });
    expect_no_claims(&world);
    let data = world.cached_files().into_iter().filter(|path| path.display().to_string().contains("/r"));
    assert_eq!(data.filter(|path| path.ends_with(".h5")).count(), 0);
}

/// It counted once for each rank, so that a store with room enough gave up the old checkpoint before the new one was complete.
#[test]
fn a_shared_file_takes_its_room_once() {
    let mut world = World::new(4, 1).set("SCR_COPY_TYPE", "FILE");
    let base = world.dir().join("nodes/$SCR_NODE_NAME").display().to_string();
    // Two checkpoints take 80 KB.
    for (size, is_crowded) in [(120_000, false), (70_000, true)] {
        let lines = format!("STORE={base} COUNT=1 SIZE={size}\nCKPT=0 STORE={base} TYPE=SINGLE\n");
        std::fs::write(world.prefix().join(".scrconf"), lines).unwrap();
        world.put("SCR_CACHE_PURGE", "1");
        let run = world.run(|application| (1..=3).for_each(|step| checkpoint(application, step, of_all)));
        assert_eq!(run.has_line_with("evicts an old dataset"), is_crowded, "{}", run.lines.join("\n"));
        world.put("SCR_CACHE_PURGE", "0");
        let run = world.run(|application| {
            assert_eq!(restart(application, of_all), Some(3));
            checkpoint(application, 4, of_all);
        });
        assert_eq!(run.has_line_with("evicts an old dataset"), is_crowded, "{}", run.lines.join("\n"));
    }
}

/// Rank 0 writes a file that all ranks read; nothing else can be read by others in cache.
fn write_root(application: &mut Application) {
    let rank = application.rank;
    begin(application, 1);
    let session = application.session();
    if rank == Rank(0) {
        let path = session.route_file(b"ckpt.1/root").unwrap();
        std::fs::write(path_of(&path), block(7, rank)).unwrap();
    }
    let path = session.route_file(own(rank).as_bytes()).unwrap();
    std::fs::write(path_of(&path), block(101, rank)).unwrap();
    session.complete_output(true).unwrap();
}

/// The error of a rank that opens the root file; `None` if it has read the file, with every byte as it was written.
fn read_root(application: &mut Application) -> Option<String> {
    let rank = application.rank;
    let session = application.session();
    session.start_restart().unwrap();
    let own = session.route_file(own(rank).as_bytes()).unwrap();
    assert!(std::fs::read(path_of(&own)).unwrap() == block(101, rank), "other bytes");
    let root = session.route_file(b"ckpt.1/root").map(|path| {
        assert!(std::fs::read(path_of(&path)).unwrap() == block(7, Rank(0)), "other bytes");
    });
    session.complete_restart(true).unwrap();
    root.err().map(|error| error.to_string())
}

/// Only rank 0 got its path, except in bypass mode.
#[test]
fn all_ranks_read_a_file_that_one_has_written_where_their_node_or_the_prefix_directory_has_it() {
    let world = World::new(4, 2);
    world.run(write_root);
    let run = world.run(read_root);
    assert_eq!(run.ranks[..2], [None, None], "the node of rank 0 has it");
    for why in &run.ranks[2..] {
        let why = why.as_ref().unwrap();
        assert!(why.contains("nor one in the cache of its node"), "{why}");
        assert!(why.contains("SCR_GLOBAL_RESTART=1") && why.contains("SCR_FETCH_BYPASS=1"), "{why}");
    }
    // It is flushed and still in cache, rebuilt there, fetched, and read in place.
    let mut world = World::new(4, 2).set("SCR_FLUSH", "1");
    world.run(|application| {
        write_root(application);
        application.finalize().unwrap();
    });
    world.run(read_root).all_gave(&None);
    world.lose("n0");
    world.run(read_root).all_gave(&None);
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    world.run(read_root).all_gave(&None);
    for setting in ["SCR_GLOBAL_RESTART", "SCR_FETCH_BYPASS"] {
        ["n0", "n1"].iter().for_each(|node| world.lose(node));
        world.put(setting, "1");
        world.run(read_root).all_gave(&None);
        world.take_out(setting);
    }
}

/// The file in the prefix directory is compared before another rank reads it.
#[test]
fn a_root_file_that_was_changed_in_the_prefix_directory_is_not_handed_out() {
    let world = World::new(4, 2).set("SCR_FLUSH", "1");
    world.run(|application| {
        write_root(application);
        application.finalize().unwrap();
    });
    let root = world.prefix().join("ckpt.1/root");
    let mut bytes = std::fs::read(&root).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&root, bytes).unwrap();
    let run = world.run(read_root);
    assert_eq!(run.ranks[..2], [None, None]);
    assert!(run.ranks[2..].iter().all(|why| why.as_ref().is_some_and(|why| why.contains("ckpt.1/root"))));
}

/// It took the claims away, and each rank of the other one got a file of its own.
#[test]
fn a_part_of_a_launch_that_begins_leaves_the_files_alone_that_ranks_of_another_one_share() {
    let machine = World::new(1, 1);
    let part = |prefix: &str| machine.part(prefix, &["n0", "n0", "n0", "n0"]);
    let (first, second) = (part("first"), part("second"));
    let turns = Barrier::new(4);
    first.run(|application| {
        begin(application, 1);
        turns.wait();
        if application.rank == Rank(0) {
            write(application, 1, of_all);
            second.run(|application| begin(application, 1));
        }
        turns.wait();
        if application.rank != Rank(0) {
            write(application, 1, of_all);
        }
        turns.wait();
        application.session().complete_output(true).unwrap();
    });
    first.run(|application| restart(application, of_all)).all_gave(&Some(1));
    expect_no_claims(&first);
}
