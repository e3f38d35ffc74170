//! M ranks take over the cached files of N ranks: all pairs, all schemes, with every number of nodes lost that the scheme
//! survives and any file damaged. The N ranks still have their files afterwards.

use super::any_ranks::{cached, job, place, read_all, try_read, Scheme, SCHEMES};
use super::crash::sizes;
use super::damage::flip;
use super::world::World;
use scr_base::env::Link;
use scr_base::fs::RealFiles;
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::takes_all;
use std::path::Path;
use std::sync::Arc;

/// How many of the nodes that wrote a checkpoint are lost: they come back empty, or the next run is not on them.
#[derive(Debug, Clone, Copy)]
enum Lost {
    Wiped(usize),
    Away(usize),
}

impl Lost {
    fn up_to(most: usize) -> Vec<Self> {
        let some = (1..=most).flat_map(|lost| [Self::Wiped(lost), Self::Away(lost)]);
        std::iter::once(Self::Wiped(0)).chain(some).collect()
    }

    /// How many nodes the writers have, and how many the readers.
    fn nodes(self, writers: usize, readers: usize) -> (usize, usize) {
        match self {
            Self::Wiped(_) => (writers.min(readers), writers.min(readers)),
            Self::Away(lost) => {
                let nodes = writers.min(readers + lost);
                (nodes, nodes.saturating_sub(lost))
            }
        }
    }

    fn many(self) -> usize {
        match self {
            Self::Wiped(lost) | Self::Away(lost) => lost,
        }
    }
}

/// As many ranks as wrote a checkpoint restart from it, and so do `readers`, whether they find it in the prefix directory or not.
fn expect_taken_over(scheme: Scheme, (writers, readers): (usize, usize), lost: Lost, link: Link) {
    let (before, after) = lost.nodes(writers, readers);
    // If the nodes have different numbers of ranks, some ranks are not protected.
    let is_protected = writers.is_multiple_of(before) || lost.many() == 0;
    if before < scheme.1 || after == 0 || !is_protected {
        return;
    }
    let case = format!("{scheme:?}, {writers} ranks on {before} nodes, {readers} on {after}, {lost:?}");
    let mut world = cached(writers, before, scheme);
    world.link = link;
    if let Lost::Wiped(lost) = lost {
        (0..lost).for_each(|more| world.lose(&format!("n{}", (readers + more) % before)));
    }
    world.nodes = place(readers, after);
    // A checkpoint of their own would have too few nodes for the scheme. The one that they read says how it is protected.
    world.put("SCR_COPY_TYPE", if after < scheme.1 { "SINGLE" } else { scheme.0 });
    let as_many = u32::try_from(readers).ok().filter(|_| link == Link::InCalls);
    let run = world.run(|application| try_read(application, as_many).expect("what is offered can be read"));
    let expected = Some((1, u32::try_from(writers).unwrap()));
    assert!(
        run.ranks.iter().all(|found| *found == expected),
        "{case}: {:?}\n{}",
        run.ranks,
        run.lines.join("\n")
    );
    let is_moved = run.has_line_with("it is in cache only, and is made whole in the prefix directory first");
    let is_lent = run.has_line_with("it is read in the caches of the nodes");
    let expected = (writers != readers).then_some(link);
    assert_eq!((is_moved, is_lent), (expected == Some(Link::InCalls), expected == Some(Link::Tcp)), "{case}");
    // Nothing was taken away from those who wrote it.
    world.nodes = place(writers, before);
    world.put("SCR_COPY_TYPE", scheme.0);
    world.put("SCR_FETCH", "0");
    let again = world.run(|application| application.restart(sizes));
    assert!(again.ranks.iter().all(|step| *step == Some(1)), "{case}\n{}", again.lines.join("\n"));
}

#[test]
#[ignore = "long"]
fn a_checkpoint_in_cache_is_read_by_any_number_of_ranks_with_as_many_nodes_lost_as_the_scheme_survives() {
    for scheme in SCHEMES {
        let losses = Lost::up_to(scheme.2);
        for pair in (1..=8).flat_map(|writers| (1..=8).map(move |readers| (writers, readers))) {
            let losses = match takes_all() {
                true => &losses[..],
                false => &losses[(pair.0 * 3 + pair.1) % losses.len()..][..1],
            };
            for link in [Link::Tcp, Link::InCalls] {
                losses.iter().for_each(|lost| expect_taken_over(scheme, pair, *lost, link));
            }
        }
    }
}

/// Data, redundancy, and what scr has recorded of them.
#[test]
#[ignore = "long"]
fn any_file_in_cache_may_be_damaged_where_there_is_redundancy_and_none_is_read_wrong_without() {
    for scheme in SCHEMES {
        let made = || {
            let mut world = cached(4, 4, scheme).set("SCR_CRC_ON_COPY", "1");
            // The one that counts: `SINGLE' has checksums only if it is asked for them.
            world.run(|application| application.checkpoint(2, sizes).unwrap());
            world.nodes = place(5, 4);
            world
        };
        let files = |world: &World| -> Vec<_> {
            let is_empty = |path: &Path| std::fs::metadata(path).unwrap().len() == 0;
            world.cached_files().into_iter().filter(|path| !is_empty(path)).collect()
        };
        let many = files(&made()).len();
        for at in 0..many {
            let mut world = made();
            world.link = if at % 4 < 2 { Link::Tcp } else { Link::InCalls };
            let path = files(&world).swap_remove(at);
            if at % 2 == 0 {
                flip(&path, 0);
            } else {
                cut(&path);
            }
            let run = world.run(read_all);
            let found = run.ranks[0];
            let story = || format!("{scheme:?}, {}: {found:?}\n{}", path.display(), run.lines.join("\n"));
            assert!(run.ranks.iter().all(|other| *other == found), "{}", story());
            assert!(found == Some((2, 4)) || scheme.2 == 0 && found.is_none(), "{}", story());
        }
    }
}

fn cut(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() * 2 / 3]).unwrap();
}

/// The damage had gone unnoticed, and the run began with an older checkpoint, or with none.
#[test]
fn a_checkpoint_in_cache_is_read_though_its_copy_turns_out_to_be_damaged() {
    for (flush, link) in [("1", Link::InCalls), ("0", Link::InCalls), ("1", Link::Tcp), ("0", Link::Tcp)] {
        let mut world = job(4, "XOR").set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2");
        world.run(|application| (1..3).for_each(|step| application.checkpoint(step, sizes).unwrap()));
        flip(&world.prefix().join("ckpt.2/rank_1.0"), 0);
        world.put("SCR_FLUSH", flush);
        world.nodes = place(6, 4);
        world.link = link;
        let run = world.run(read_all);
        run.all_gave(&Some((2, 4)));
        // No rank looks at the copy if the caches have everything.
        let is_found = run.has_line_with("is damaged and is marked as failed");
        assert_eq!(is_found, link == Link::InCalls, "{}", run.lines.join("\n"));
        world.run(read_all).all_gave(&Some((2, 4)));
        world.nodes = place(4, 4);
        world.run(|application| application.restart(sizes)).all_gave(&Some(2));
    }
}

/// The copy counted, and the checkpoint in cache did not come to another number of ranks.
#[test]
fn a_checkpoint_in_cache_whose_copy_is_damaged_is_taken_over_unless_it_was_refused() {
    for refused in [false, true] {
        let mut world = job(4, "XOR").set("SCR_FLUSH", "1");
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        let kept = world.keep();
        if !refused {
            flip(&world.prefix().join("ckpt.1/rank_0.0"), 0);
        }
        // A job on other nodes finds that it cannot read the copy.
        (0..4).for_each(|node| world.lose(&format!("n{node}")));
        world.run(|application| {
            if application.session().have_restart().unwrap().is_some() {
                application.session().start_restart().unwrap();
                application.session().complete_restart(false).unwrap_err();
            }
        });
        world.put_back(&kept);
        world.nodes = place(6, 4);
        world.run(read_all).all_gave(&Some((1, 4)).filter(|_| !refused));
    }
}

/// The bytes of checkpoints that a run of this many ranks reads below the prefix directory. The application reads from the path
/// that it gets, so each file that lies there counts in full once more.
fn read_below_the_prefix_directory(mut world: World, readers: usize) -> u64 {
    let counted = FaultyFiles::new(RealFiles);
    world.files = Arc::new(counted.clone());
    world.nodes = place(readers, 4.min(readers));
    let folder = world.prefix().join("ckpt.1");
    let by_application = world.run(|application| {
        let session = application.session();
        session.have_restart().unwrap().unwrap();
        session.start_restart().unwrap();
        let names = (0..session.restart_ranks().unwrap())
            .flat_map(|rank| (0..session.restart_files(rank).unwrap()).map(move |number| (rank, number)));
        let names: Vec<_> = names.collect();
        let mut bytes = 0;
        for (rank, number) in names {
            let name = session.restart_file(rank, number).unwrap();
            let path = super::world::path_of(&session.route_file(&name).unwrap()).to_owned();
            bytes += if path.starts_with(&folder) { std::fs::metadata(path).unwrap().len() } else { 0 };
        }
        session.complete_restart(true).unwrap();
        bytes
    });
    let operations = counted.operations();
    let reads = operations.iter().filter(|done| done.what == What::Read && done.path.starts_with(&folder));
    reads.map(|done| done.bytes).sum::<u64>() + by_application.ranks.iter().sum::<u64>()
}

#[test]
fn where_the_caches_suffice_no_byte_is_read_from_the_prefix_directory() {
    for readers in [1, 2, 3, 4, 6, 8] {
        let nodes = 4.min(readers);
        let made = || cached(4, nodes, if readers == 1 { SCHEMES[0] } else { SCHEMES[2] });
        assert_eq!(read_below_the_prefix_directory(made(), readers), 0, "{readers} ranks");
        if nodes == 2 || nodes == 4 {
            let world = made();
            world.lose("n1");
            assert_eq!(read_below_the_prefix_directory(world, readers), 0, "{readers} ranks, one node lost");
        }
    }
    let flushed = || {
        let world = job(4, "XOR").set("SCR_FLUSH", "1");
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        world
    };
    for readers in [4, 6] {
        assert_eq!(read_below_the_prefix_directory(flushed(), readers), 0, "though it is there as well");
    }
}

/// It was refused for as many ranks, and a program that reads what it needs from any rank lost its checkpoint.
#[test]
fn as_many_ranks_read_the_files_of_all_and_leave_no_copy() {
    for (scheme, nodes) in [("SINGLE", 4), ("XOR", 4), ("XOR", 2)] {
        let mut world = job(4, scheme);
        world.nodes = place(4, nodes);
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        // In the order of the ranks, and placed otherwise.
        for turned in 0..2 {
            world.nodes.rotate_left(turned);
            world.run(|application| application.restart(sizes)).all_gave(&Some(1));
            let before = world.cached_files();
            for ends in [true, false] {
                let run = world.run(|application| {
                    let found = read_all(application);
                    if ends {
                        application.finalize().unwrap();
                    }
                    found
                });
                run.all_gave(&Some((1, 4)));
                assert!(!run.has_line_with("ERROR"), "{:?}", run.lines);
                assert_eq!(world.cached_files(), before, "{scheme}, {nodes} nodes");
            }
        }
    }
}

/// One that dies in the restart leaves copies, which the next run removes.
#[test]
fn copies_of_as_many_ranks_that_a_run_has_left_are_removed_by_the_next_one() {
    let world = job(4, "XOR");
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    let before = world.cached_files();
    let all_have_copies = std::sync::Barrier::new(4);
    world.run(|application| {
        let session = application.session();
        session.have_restart().unwrap().unwrap();
        session.start_restart().unwrap();
        for rank in [0, 1, 3] {
            let name = session.restart_file(rank, 0).unwrap();
            session.route_file(&name).unwrap();
        }
        all_have_copies.wait();
    });
    assert!(world.cached_files().len() > before.len());
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
    assert_eq!(world.cached_files(), before);
}

/// It came to the node of the other rank of its redundancy set, and the next loss took both.
#[test]
fn where_a_lost_part_was_rebuilt_for_other_ranks_the_next_loss_is_survived_too() {
    for lost in 0..4 {
        let mut world = job(4, "XOR").set("SCR_SET_SIZE", "2");
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        world.lose(&format!("n{lost}"));
        let without = |lost: &[usize], ranks: usize| -> Vec<String> {
            let left: Vec<usize> = (0..4).filter(|node| !lost.contains(node)).collect();
            (0..ranks).map(|rank| format!("n{}", left[rank * left.len() / ranks])).collect()
        };
        world.nodes = without(&[lost], 6);
        world.run(read_all).all_gave(&Some((1, 4)));
        let kept = world.keep();
        for next in (0..4).filter(|next| *next != lost) {
            world.put_back(&kept);
            world.lose(&format!("n{next}"));
            world.nodes = without(&[lost, next], 5);
            world.run(read_all).all_gave(&Some((1, 4)));
        }
    }
}
