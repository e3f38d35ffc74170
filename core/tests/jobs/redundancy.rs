//! Each scheme against every loss that it promises to survive, and against one more.
//!
//! One job writes a checkpoint; then, for each pattern of lost nodes, the nodes get back what they stored, the pattern is taken
//! away, and the job starts again. Everything that comes back is compared in full: the bytes and permissions of the
//! application's files, the redundancy files with their headers, and what the filemaps record for oneself and for neighbours.

use super::world::{files_below, Kept, Source, World, SECONDS_OF_A_RUN};
use scr_comm::Rank;
use scr_plugin_api::KvTree;
use scr_test_kit::moments;

/// Small, uneven, and not without an empty file and a rank that writes nothing.
pub(super) fn small(rank: Rank) -> Vec<usize> {
    match rank.0 % 5 {
        0 => vec![700, 0],
        1 => vec![1],
        2 => vec![300 + rank.index(), 41],
        3 => Vec::new(),
        _ => vec![1024],
    }
}

/// A job that has written a checkpoint, to lose nodes of.
struct Job {
    world: World,
    nodes: usize,
    kept: Kept,
}

impl Job {
    fn new(world: World, nodes: usize) -> Self {
        world.run(|application| application.checkpoint(1, small).expect("the checkpoint is complete"));
        let kept = world.keep();
        Self { world, nodes, kept }
    }

    fn rs(nodes: usize, ranks_per_node: usize, failures: usize) -> Self {
        let world = World::new(nodes * ranks_per_node, nodes)
            .set("SCR_COPY_TYPE", "RS")
            .set("SCR_SET_FAILURES", &failures.to_string())
            .set("SCR_SET_SIZE", &nodes.to_string());
        Self::new(world, nodes)
    }

    fn partner(nodes: usize, replicas: usize) -> Self {
        let world = World::new(nodes, nodes).set("SCR_COPY_TYPE", "FILE");
        let line = format!("CKPT=0 TYPE=PARTNER REPLICAS={replicas} SET_SIZE={nodes}\n");
        std::fs::write(world.prefix().join(".scrconf"), line).expect("the prefix directory is there");
        Self::new(world, nodes)
    }

    /// Every pattern of this many lost nodes, as bits.
    fn patterns(&self, losses: usize) -> impl Iterator<Item = u32> {
        (1_u32..1 << self.nodes).filter(move |pattern| pattern.count_ones() as usize == losses)
    }

    fn lose(&self, pattern: u32) -> Vec<usize> {
        self.world.put_back(&self.kept);
        let lost: Vec<usize> = (0..self.nodes).filter(|node| pattern >> node & 1 == 1).collect();
        lost.iter().for_each(|node| self.world.lose(&format!("n{node}")));
        lost
    }

    fn comes_back(&self, pattern: u32) {
        let lost = self.lose(pattern);
        self.world.run(|application| application.restart(small)).all_gave(&Some(1));
        let changes = self.world.changes_since(&self.kept);
        assert_eq!(changes, Vec::<String>::new(), "after the loss of the nodes {lost:?}");
    }

    /// The run continues without the checkpoint, and the line that says why it does.
    fn is_refused(&self, pattern: u32) -> String {
        let lost = self.lose(pattern);
        let left = self.world.cached_files();
        let restarted = self.world.run(|application| application.restart(small));
        restarted.all_gave(&None);
        let now = self.world.cached_files();
        assert!(left.iter().all(|file| now.contains(file)), "what survived {lost:?} has to stay");
        restarted.line_with(&["ERROR", "dataset 1", "cannot be restored"]).to_owned()
    }

    /// Every loss of that many nodes comes back; of the many losses of many nodes, a sample does.
    fn survives(&self, losses: usize) {
        let all: Vec<_> = (1..=losses).flat_map(|losses| self.patterns(losses)).collect();
        let some = moments(all.len() as u64, 42);
        some.filter_map(|at| all.get(at as usize - 1)).for_each(|&pattern| self.comes_back(pattern));
    }

    /// Every loss of one node more is refused, with set, ranks and nodes by name.
    fn refuses(&self, survived: usize, scheme: &str) {
        let set: Vec<String> = (0..self.nodes).map(|rank| rank.to_string()).collect();
        let set = format!("the redundancy set of ranks {}", set.join(", "));
        for pattern in self.patterns(survived + 1) {
            let line = self.is_refused(pattern);
            let lost = (0..self.nodes).filter(|node| pattern >> node & 1 == 1);
            let lost: Vec<_> = lost.map(|node| format!("{node} (written on n{node})")).collect();
            let parts =
                format!("has lost the parts of ranks {}, and {scheme} survives {survived}", lost.join(", "));
            assert!(line.contains(&set) && line.contains(&parts), "{pattern:b}: {line}");
        }
    }
}

/// `SCR_Init` succeeded, and each checkpoint failed with the advice to raise the size of the sets.
#[test]
fn rs_with_more_failures_than_the_job_has_nodes_to_lose_is_refused_at_the_start() {
    for (nodes, failures, is_refused) in
        [(1, "2", false), (2, "2", true), (2, "1", false), (3, "2", false), (3, "3", true)]
    {
        let world = World::new(6, nodes).set("SCR_COPY_TYPE", "RS").set("SCR_SET_FAILURES", failures);
        let begun = world.try_run(|application| match application {
            Ok(mut application) => application.checkpoint(1, small).map_err(|error| error.to_string()),
            Err(error) => Err(format!("SCR_Init: {error}")),
        });
        for rank in begun.ranks {
            let (left, cures) = (nodes - 1, "where its CKPT line says it, choose XOR, or run on more nodes");
            let advice = format!("set SCR_SET_FAILURES={left}, or SET_FAILURES={left} {cures}");
            let is_right =
                rank.as_ref().is_err_and(|why| why.starts_with("SCR_Init: ") && why.contains(&advice));
            assert_eq!((is_right, rank.is_ok()), (is_refused, !is_refused), "{nodes} nodes: {rank:?}");
        }
    }
}

/// `SCR_Init` succeeded, and no checkpoint could be written.
#[test]
fn a_scheme_that_refuses_the_sets_of_a_job_is_refused_at_the_start() {
    for (nodes, replicas, is_refused) in [(1, 7, false), (2, 7, true), (3, 2, false), (3, 7, true)] {
        let mut world = World::new(6, nodes);
        world.put_in(
            Source::UserFile,
            "SCR_COPY_TYPE",
            &format!("FILE\nCKPT=0 TYPE=PARTNER REPLICAS={replicas}"),
        );
        let begun = world.try_run(|begun| begun.err().map(|error| error.to_string()));
        for rank in begun.ranks {
            let why = format!("{replicas} copies of each member's data were asked for");
            assert_eq!(
                rank.as_ref().is_some_and(|error| error.contains(&why)),
                is_refused,
                "{nodes}: {rank:?}"
            );
            assert_eq!(rank.is_some(), is_refused);
        }
    }
}

/// A site's default for all jobs kept each one on two nodes from beginning.
#[test]
fn rs_survives_fewer_failures_where_a_site_has_chosen_more_than_a_job_has_nodes_for() {
    let mut world = World::new(4, 2);
    world.put_in(Source::SystemFile, "SCR_SET_FAILURES", "2\nSCR_COPY_TYPE=RS");
    let run = world.run(|application| application.checkpoint(1, small).unwrap());
    run.line_with(&["WARNING", "RS survives 2 failures", "It goes on with SCR_SET_FAILURES=1"]);
    world.lose("n1");
    world.run(|application| application.restart(small)).all_gave(&Some(1));
}

#[test]
fn rs_brings_back_every_loss_of_up_to_three_of_four_nodes() {
    for failures in 1..=3 {
        Job::rs(4, 1, failures).survives(failures);
    }
}

#[test]
#[ignore = "long"]
fn rs_brings_back_every_loss_of_one_and_of_two_of_six_nodes() {
    for failures in 1..=2 {
        Job::rs(6, 1, failures).survives(failures);
    }
}

#[test]
#[ignore = "long"]
fn rs_brings_back_every_loss_of_up_to_three_of_six_nodes() {
    Job::rs(6, 1, 3).survives(3);
}

#[test]
#[ignore = "long"]
fn rs_brings_back_every_loss_of_one_and_of_two_of_nine_nodes() {
    for failures in 1..=2 {
        Job::rs(9, 1, failures).survives(failures);
    }
}

#[test]
#[ignore = "long"]
fn rs_brings_back_losses_of_up_to_three_of_nine_nodes() {
    Job::rs(9, 1, 3).survives(3);
}

#[test]
fn a_rebuild_may_use_other_message_lengths_than_the_protection() {
    for (scheme, [first, then]) in
        [("XOR", ["4096", "1MB"]), ("RS", ["1MB", "4096"]), ("PARTNER", ["4096", "5000"])]
    {
        let uneven = |rank: Rank| vec![40_000 + 7 * rank.index(), 11];
        let world = World::new(4, 4).set("SCR_COPY_TYPE", scheme).set("SCR_MPI_BUF_SIZE", first);
        world.run(|application| application.checkpoint(1, uneven).expect("the checkpoint is complete"));
        let kept = world.keep();
        world.lose("n2");
        let world = world.set("SCR_MPI_BUF_SIZE", then);
        world.run(|application| application.restart(uneven)).all_gave(&Some(1));
        assert_eq!(world.changes_since(&kept), Vec::<String>::new(), "{scheme}");
    }
}

/// Files of several blocks, and a short one.
fn long(rank: Rank) -> Vec<usize> {
    vec![(1 << 20) + 4097 * rank.index(), 3, 2_100_001]
}

#[test]
fn a_file_that_is_still_open_to_write_is_refused_and_the_next_checkpoint_is_protected() {
    let world = World::new(2, 2);
    world.run(|application| {
        application.write(1, long).expect("it is written");
        let here = format!("/rank_{}.", application.rank);
        let own = world.cached_files().into_iter().filter(|path| path.display().to_string().contains(&here));
        let open = |path| std::fs::OpenOptions::new().append(true).open(path).expect("it is there");
        let still_open: Vec<_> = own.map(open).collect();
        assert_eq!(still_open.len(), 3);
        let refused = application.session().complete_output(true).expect_err("bytes may be missing");
        assert!(refused.to_string().contains("is still open for writing"), "{refused}");
        drop(still_open);
        application.checkpoint(2, long).expect("it is complete");
    });
    world.lose("n0");
    world.run(|application| application.restart(long)).all_gave(&Some(2));
}

#[test]
fn rs_brings_back_every_loss_where_nodes_have_two_ranks() {
    Job::rs(5, 2, 2).survives(2);
}

#[test]
fn one_loss_more_than_rs_survives_is_refused_with_set_ranks_and_nodes() {
    for failures in 1..=2 {
        Job::rs(4, 1, failures).refuses(failures, "RS");
    }
    Job::rs(6, 1, 3).refuses(3, "RS");
}

#[test]
fn four_of_nine_nodes_are_refused_with_set_ranks_and_nodes() {
    let job = Job::rs(9, 1, 3);
    for pattern in [0b1111, 0b1_1000_0011, 0b1_0101_0001, 0b1_1110_0000] {
        let line = job.is_refused(pattern);
        assert!(line.contains("the redundancy set of ranks 0, 1, 2, 3, 4, 5, 6, 7, 8 has lost"), "{line}");
        for node in (0..9).filter(|node| pattern >> node & 1 == 1) {
            assert!(line.contains(&format!("{node} (written on n{node})")), "{line}");
        }
    }
}

#[test]
fn if_all_nodes_are_lost_the_job_starts_from_the_beginning_without_a_message() {
    let job = Job::rs(4, 1, 2);
    job.lose(0b1111);
    job.world.run(|application| application.restart(small)).all_gave(&None);
}

#[test]
fn partner_brings_back_what_it_promises() {
    Job::partner(5, 1).survives(1);
    Job::partner(5, 2).survives(2);
}

#[test]
#[ignore = "long"]
fn partner_brings_back_lucky_losses_and_refuses_the_others() {
    let job = Job::partner(6, 1);
    for losses in 2..=3 {
        for pattern in job.patterns(losses) {
            // A node's copy lies on the next one.
            let neighbours = pattern & (pattern << 1 | pattern >> 5) != 0;
            if neighbours {
                let line = job.is_refused(pattern);
                assert!(line.contains("the redundancy set of ranks 0, 1, 2, 3, 4, 5"), "{line}");
                assert!(line.contains("(written on n"), "{line}");
            } else {
                job.comes_back(pattern);
            }
        }
    }
}

#[test]
#[ignore = "long"]
fn partner_with_two_copies_brings_back_more_than_it_promises_where_a_copy_is_left() {
    let job = Job::partner(7, 2);
    for pattern in job.patterns(3) {
        let gone = (0..7).any(|node| (0..3).all(|step| pattern >> ((node + step) % 7) & 1 == 1));
        if gone {
            job.is_refused(pattern);
        } else {
            job.comes_back(pattern);
        }
    }
}

#[test]
fn single_restarts_where_nothing_is_lost_and_refuses_where_a_node_is() {
    let world = World::new(4, 2).set("SCR_COPY_TYPE", "SINGLE");
    let job = Job::new(world, 2);
    job.world.run(|application| application.restart(small)).all_gave(&Some(1));
    let line = job.is_refused(0b10);
    assert!(line.contains("ranks 2 (written on n1), and SINGLE survives 0"), "{line}");
    assert!(line.contains("ranks 3 (written on n1), and SINGLE survives 0"), "{line}");
}

/// All parts were whole, and its own said nothing else: a rank with the record of another set was restarted from, and the next
/// loss in its set could not be rebuilt.
#[test]
fn a_rank_whose_record_names_another_set_than_those_of_its_members_is_noticed() {
    let mut world = World::new(4, 4);
    world.run(|_| ());
    // Both runs get the same number, whatever the time.
    let ids = world.prefix().join(".scr/ids.scr");
    let mut tree = KvTree::from_file_bytes(&std::fs::read(&ids).unwrap()).unwrap();
    tree.set("RUN", 1_u64 << 40);
    std::fs::write(&ids, tree.to_file_bytes()).unwrap();
    let aside = world.set_aside(&world.nodes);
    world.run(|application| {
        application.wait(SECONDS_OF_A_RUN);
        application.checkpoint(1, small).unwrap();
    });
    let node = world.node("n3");
    let of_rank_3 = || {
        let all = files_below(&node).into_iter();
        all.filter(|path| path.display().to_string().contains("scr.dataset.1")).collect::<Vec<_>>()
    };
    let foreign: Vec<_> = of_rank_3().into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    world.take_back(&aside);
    world.put("SCR_SET_SIZE", "2");
    world.run(|application| application.checkpoint(1, small).unwrap());
    of_rank_3().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    foreign.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    let run = world.run(|application| application.session().have_restart().unwrap());
    run.line_with(&[
        "cannot be restored",
        "by that of rank 2 its set is 2, 3, and by that of rank 3 it is 0, 1, 2, 3",
    ]);
    run.all_gave(&None);
}

/// One node has a rank more than all others: to give it a partner, another set was made too small for its scheme, or the pair
/// was, and no dataset could begin.
#[test]
fn a_rank_without_a_set_stays_alone_rather_than_in_one_that_the_scheme_does_not_take() {
    let cases: [(&str, &[usize], u32); 3] =
        [("RS", &[3, 2, 2, 2], 2), ("RS", &[3, 1, 1], 2), ("PARTNER", &[3, 2, 2, 2], 2)];
    for (scheme, ranks, survived) in cases {
        let mut world = World::new(1, 1).set("SCR_COPY_TYPE", scheme).set("SCR_SET_FAILURES", "2");
        if scheme == "PARTNER" {
            world = world.set("SCR_COPY_TYPE", "FILE");
            std::fs::write(world.prefix().join(".scrconf"), "CKPT=0 TYPE=PARTNER REPLICAS=2\n")
                .expect("it is there");
        }
        let nodes = ranks.iter().enumerate();
        world.nodes = nodes.flat_map(|(node, &count)| vec![format!("n{node}"); count]).collect();
        let run =
            world.run(|application| application.checkpoint(1, small).map_err(|error| error.to_string()));
        run.all_gave(&Ok(()));
        let is_warned = run.has_line_with("ranks in cache are not protected");
        assert_eq!(is_warned, ranks.len() == 3, "{:?}", run.lines);
        // The node with the ranks that are alone must stay.
        (1..=survived).for_each(|node| world.lose(&format!("n{node}")));
        world.run(|application| application.restart(small)).all_gave(&Some(1));
    }
}
