//! The cost of a checkpoint, counted in messages, bytes sent and file operations.

use super::world::{Sizes, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::sync::Arc;

const CHUNK: usize = 300_000;

fn two_chunks(_: Rank) -> Vec<usize> {
    vec![CHUNK, CHUNK]
}

fn small(_: Rank) -> Vec<usize> {
    vec![4096]
}

/// Messages and bytes of the line that begins so.
fn sent(lines: &[String], what: &str) -> Vec<(u64, u64)> {
    let words = format!("{what}: rank 0 sent ");
    let costs = lines.iter().filter_map(|line| line.split_once(&words)).map(|(_, cost)| cost);
    costs
        .map(|cost| {
            let numbers: Vec<u64> = cost.split(' ').filter_map(|word| word.parse().ok()).collect();
            (numbers[0], numbers[1])
        })
        .collect()
}

#[test]
fn rs_sends_one_chunk_less_than_there_are_members_in_each_stripe() {
    let world = World::new(4, 4).set("SCR_COPY_TYPE", "RS").set("SCR_SET_FAILURES", "2");
    let run = world.run(|application| application.checkpoint(1, two_chunks).expect("it is complete"));
    let (_, bytes) = sent(&run.lines, "scr_reddesc_apply")[0];
    // Every member has a stripe that it computes, and there are as many stripes as members: what one sends is one stripe's
    // worth. To send every data chunk to both owners would take four chunks.
    let (wanted, talk) = (3 * CHUNK as u64, 16 << 10);
    assert!((wanted..wanted + talk).contains(&bytes), "rank 0 sent {bytes} bytes, {wanted} of them chunks");
}

/// So many messages only debug builds send: three times rank 0 tells others what it knows of the datasets in cache.
const COMPARED: u64 = if cfg!(debug_assertions) { 6 } else { 0 };

#[test]
fn a_small_checkpoint_takes_few_messages_and_a_third_of_the_file_operations_of_c_scr() {
    let mut world = World::new(4, 4);
    let counted: Vec<FaultyFiles> = (0..4).map(|_| FaultyFiles::new(RealFiles)).collect();
    for (rank, files) in counted.iter().enumerate() {
        world.own_files.insert(Rank(rank as u32), Arc::new(files.clone()));
    }
    let run = world.run(|application| {
        application.checkpoint(1, small).expect("it is complete");
        application.checkpoint(2, small).expect("it is complete");
        let files = &counted[application.rank.index()];
        files.heal();
        application.checkpoint(3, small).expect("it is complete");
        let all = files.operations();
        let count = |kinds: &[What]| all.iter().filter(|operation| kinds.contains(&operation.what)).count();
        [
            count(&[What::OpenToRead, What::OpenToWrite]),
            count(&[What::Write]),
            count(&[What::Sync, What::SyncDir]),
            count(&[What::RemoveFile]),
            count(&[What::Append]),
        ]
    });
    // C SCR takes 27, 22, 26 and 10 with a rank per node; rank 0 keeps the prefix directory as well, and takes its lock for that.
    for (rank, [opens, writes, syncs, removals, appends]) in run.ranks.into_iter().enumerate() {
        let found = (opens, writes, syncs, removals);
        // Rank 0 opens the event log for each append.
        let most = if rank == 0 { (10, 7, 4) } else { (3, 5, 2) };
        assert!(opens <= most.0 && writes <= most.1 && removals <= most.2, "rank {rank}: {found:?}");
        assert_eq!(syncs, 0, "nothing waits for storage on rank {rank}");
        assert_eq!(appends, if rank == 0 { 2 } else { 0 }, "the event log on rank {rank}");
    }
    let (messages, bytes) = sent(&run.lines, "start to complete")[2];
    // The names are those of the last checkpoint, so that no message finds out whether two ranks have one name of a file.
    assert!(messages <= 20 + COMPARED && bytes <= 13 << 10, "rank 0 sent {messages} messages, {bytes} bytes");
}

#[test]
fn the_first_checkpoint_loads_no_scheme() {
    let mut world = World::new(4, 4);
    let counted: Vec<FaultyFiles> = (0..4).map(|_| FaultyFiles::new(RealFiles)).collect();
    for (rank, files) in counted.iter().enumerate() {
        files.count_all();
        world.own_files.insert(Rank(rank as u32), Arc::new(files.clone()));
    }
    let run = world.run(|application| {
        let files = &counted[application.rank.index()];
        let of_plugins = || {
            let all = files.operations();
            all.iter().filter(|operation| operation.path.extension().is_some_and(|end| end == "so")).count()
        };
        let at_start = of_plugins();
        application.checkpoint(1, small).expect("it is complete");
        (at_start > 0, of_plugins() - at_start)
    });
    run.all_gave(&(true, 0));
    let messages: Vec<_> = sent(&run.lines, "start to complete").iter().map(|cost| cost.0).collect();
    assert!(messages[0] <= 26 + COMPARED, "the first checkpoint takes {messages:?} messages");
}

#[test]
fn old_bytes_of_a_reused_redundancy_file_do_not_matter() {
    let world = World::new(4, 4);
    let sizes: [fn(Rank) -> Vec<usize>; 4] = [
        |_| vec![50_000],
        |rank| vec![rank.index() * 7],
        |_| vec![1 << 20],
        |rank| vec![3000 + rank.index(), 5],
    ];
    for (last, &size) in sizes.iter().enumerate() {
        world.run(|application| {
            for (step, &size) in (1..).zip(&sizes[..=last]) {
                application.checkpoint(step, size).expect("it is complete");
            }
        });
        assert_eq!(spares(&world), if last > 0 { 4 } else { 0 });
        world.lose("n1");
        let run = world.run(|application| application.restart(size));
        run.all_gave(&Some(last as u64 + 1));
        assert_eq!(
            spares(&world),
            if last > 0 { 3 } else { 0 },
            "a rank that has lost nothing keeps its own"
        );
    }
}

/// Redundancy files that are kept to be written over.
fn spares(world: &World) -> usize {
    let all = world.cached_files().into_iter();
    all.filter(|path| path.display().to_string().contains(".spare_")).count()
}

#[test]
fn what_is_kept_to_be_written_over_makes_way_for_a_checkpoint_that_is_fetched() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| {
        (1..=3).for_each(|step| application.checkpoint(step, |_| vec![5000]).expect("it is complete"));
    });
    assert_eq!(spares(&world), 4);
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    // Else its redundancy would be written over it.
    world.put("SCR_FETCH_BYPASS", "1");
    world.run(|application| application.restart(|_| vec![5000])).all_gave(&Some(3));
    assert_eq!(spares(&world), 0);
}

#[test]
fn redundancy_in_reused_memory_restores_a_lost_node() {
    let size: Sizes = |rank| vec![(4 << 20) + rank.index()];
    let world = World::new(4, 4);
    world.run(|application| {
        (1..=5).for_each(|step| application.checkpoint(step, size).expect("it is complete"));
    });
    world.lose("n1");
    world.run(|application| application.restart(size)).all_gave(&Some(5));
}
