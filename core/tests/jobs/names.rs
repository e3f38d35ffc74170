//! A file below the prefix directory belongs to one dataset, the newest that has its name, by whatever link it is named; and
//! nothing outside is touched.

use super::scavenged::save;
use super::world::{contents, path_of, plugins, Application, World};
use scr_base::fs::{OwnedDir, RealFiles};
use scr_comm::Rank;
use scr_core::flush::{poll_transfers, PollResult};
use scr_core::session::OutputFlags;
use scr_ops::drop_dataset;
use scr_plugin_api::{CopyJob, CopyState, KvTree, PluginError, Transport};
use scr_prefix::{Index, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Barrier};

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };
pub(crate) const BYTES: usize = 3000;

pub(crate) fn world(bypass: &str) -> World {
    let world = World::new(2, 2).set("SCR_CACHE_BYPASS", bypass).set("SCR_FLUSH", "1");
    std::fs::create_dir(world.prefix().join("b")).unwrap();
    world
}

pub(crate) fn file(folder: &str, rank: Rank) -> String {
    format!("{folder}/f{rank}")
}

/// Writes a checkpoint of one file per rank into a folder. Whether it is complete.
pub(crate) fn write(
    application: &mut Application,
    name: &str,
    folder: &str,
    step: u64,
) -> Result<(), String> {
    let rank = application.rank;
    let session = application.session();
    let started = session.start_output(Some(name.as_bytes()), CHECKPOINT);
    started.map_err(|error| error.to_string())?;
    let routed = session.route_file(file(folder, rank).as_bytes());
    let written = routed.map(|path| std::fs::write(path_of(&path), contents(step, rank, 0, BYTES)).unwrap());
    let completed = session.complete_output(written.is_ok());
    written.and(completed).map_err(|error| error.to_string())
}

/// The checkpoint that is offered, after a comparison of every byte.
fn restart(application: &mut Application, folder: &str, step: u64) -> Option<Vec<u8>> {
    let rank = application.rank;
    let name = application.session().have_restart().unwrap()?;
    application.session().start_restart().unwrap();
    let path = application.session().route_file(file(folder, rank).as_bytes()).unwrap();
    assert!(std::fs::read(path_of(&path)).unwrap() == contents(step, rank, 0, BYTES), "other bytes");
    application.session().complete_restart(true).unwrap();
    Some(name)
}

/// Every checkpoint was rejected, and the application marked it as failed: relative names begin at the current folder.
#[test]
fn a_job_that_starts_in_another_folder_finds_the_files_of_a_checkpoint() {
    for (bypass, global) in [("0", "0"), ("0", "1"), ("1", "0")] {
        for (wrote_in, reads_in) in [("", "sub"), ("sub", ""), ("sub", "sub2"), ("sub", "sub/sub3")] {
            let world = world(bypass).set("SCR_GLOBAL_RESTART", global);
            let folder = |name: &str| world.prefix().join(name);
            world.run(|application| {
                application.session().work_in(folder(wrote_in));
                write(application, "one", "ck/1", 1).unwrap();
            });
            let run = world.run(|application| {
                application.session().work_in(folder(reads_in));
                restart(application, "ck/1", 1)
            });
            run.all_gave(&Some(b"one".to_vec()));
        }
    }
}

/// As above, for a file that another rank has routed.
#[test]
fn a_job_that_starts_in_a_subfolder_reads_what_another_rank_wrote_in_the_prefix_directory() {
    let world = world("1");
    world.run(|application| write(application, "one", "ck", 1).unwrap());
    world.run(|application| {
        let other = Rank(1 - application.rank.0);
        let session = application.session();
        session.work_in(world.prefix().join("b"));
        session.start_restart().unwrap();
        let path = session.route_file(file("ck", other).as_bytes()).unwrap();
        assert!(std::fs::read(path_of(&path)).unwrap() == contents(1, other, 0, BYTES), "other bytes");
        session.complete_restart(true).unwrap();
    });
}

/// It got a file of another run, which lay where the name led from this folder or from the prefix directory.
#[test]
fn a_rank_that_reads_what_another_rank_wrote_gets_no_file_of_another_dataset() {
    for (bypass, global) in [("1", "0"), ("0", "1")] {
        for others in ["", "run2"] {
            let world = world(bypass).set("SCR_GLOBAL_RESTART", global);
            let folder = |name: &str| world.prefix().join(name);
            ["run1", "run2"].iter().for_each(|name| std::fs::create_dir(folder(name)).unwrap());
            let bytes = contents(1, Rank(0), 0, BYTES);
            world.run(|application| {
                let rank = application.rank;
                let session = application.session();
                session.work_in(folder("run1"));
                session.start_output(Some(b"one"), CHECKPOINT).unwrap();
                if rank == Rank(0) {
                    std::fs::write(path_of(&session.route_file(b"shared").unwrap()), &bytes).unwrap();
                }
                session.complete_output(true).unwrap();
            });
            for name in ["shared", "unknown"] {
                std::fs::write(folder(others).join(name), "of another run").unwrap();
            }
            world.run(|application| {
                let session = application.session();
                session.work_in(folder("run2"));
                session.start_restart().unwrap();
                for _ in 0..2 {
                    let path = session.route_file(b"shared").unwrap();
                    assert_eq!(path_of(&path), folder("run1/shared"));
                    assert!(std::fs::read(path_of(&path)).unwrap() == bytes, "other bytes");
                }
                let error = session.route_file(b"unknown").unwrap_err().to_string();
                assert!(error.contains("is not a file that rank"), "{error}");
                session.complete_restart(true).unwrap();
            });
        }
    }
}

/// It may be another file. The message named the file as if the rank had not written it.
#[test]
fn a_file_of_another_folder_with_the_same_base_name_is_not_handed_out() {
    for bypass in ["0", "1"] {
        let world = world(bypass);
        world.run(|application| write(application, "one", "ck", 1).unwrap());
        world.run(|application| {
            let name = file("old", application.rank);
            let session = application.session();
            session.work_in(world.prefix().join("b"));
            session.start_restart().unwrap();
            let error = session.route_file(name.as_bytes()).unwrap_err().to_string();
            let words = format!("`{name}' (b/{name} in the prefix directory) is not a file that rank");
            assert!(error.contains(&words), "{error}");
            session.complete_restart(true).unwrap();
        });
    }
}

fn lose_all(world: &World) {
    for node in ["n0", "n1"] {
        if world.node(node).is_dir() {
            world.lose(node);
        }
    }
}

/// The older one was flushed over the files of the newer one, which was then restarted from, or lost.
#[test]
fn a_checkpoint_that_is_flushed_late_does_not_replace_files_of_a_newer_one() {
    for setting in ["SCR_GLOBAL_RESTART", "SCR_FLUSH_ON_RESTART"] {
        let world = world("0").set("SCR_FLUSH", "2").set("SCR_CACHE_SIZE", "2");
        world.run(|application| {
            write(application, "one", "b", 1).unwrap();
            write(application, "two", "b", 2).unwrap();
        });
        let mut world = world.set(setting, "1");
        let run = world.run(|application| restart(application, "b", 2));
        run.all_gave(&Some(b"two".to_vec()));
        run.line_with(&["dataset one was not flushed", "dataset 2, which is newer"]);
        lose_all(&world);
        world.put(setting, "0");
        world.run(|application| restart(application, "b", 2)).all_gave(&Some(b"two".to_vec()));
    }
}

/// The names that are offered, one after the other, after a comparison of every byte; each is refused.
fn refuse_all(application: &mut Application) -> Vec<String> {
    let (rank, mut offered) = (application.rank, Vec::new());
    while let Some(name) = application.session().have_restart().unwrap() {
        let step = if name == b"one" { 1 } else { 2 };
        application.session().start_restart().unwrap();
        let path = application.session().route_file(file("b", rank).as_bytes()).unwrap();
        let name = String::from_utf8(name).unwrap();
        assert!(
            std::fs::read(path_of(&path)).unwrap() == contents(step, rank, 0, BYTES),
            "other bytes: {name}"
        );
        offered.push(name);
        let _ = application.session().complete_restart(false);
    }
    offered
}

/// The older one was offered with the bytes of the newer one, where the application reads in the prefix directory.
#[test]
fn a_checkpoint_whose_files_a_newer_one_has_replaced_is_not_read_there() {
    for (bypass, global) in [("0", "1"), ("1", "0"), ("1", "1")] {
        let world = world(bypass).set("SCR_CACHE_SIZE", "2").set("SCR_GLOBAL_RESTART", global);
        let mut world = world.set("SCR_CRC_ON_FLUSH", "0");
        let write_both = |application: &mut Application| {
            write(application, "one", "b", 1).unwrap();
            write(application, "two", "b", 2).unwrap();
        };
        let run = world.run(|application| {
            write_both(application);
            refuse_all(application)
        });
        run.all_gave(&vec!["two".to_owned()]);
        // Now both are flushed when the run begins.
        world.put("SCR_FLUSH", "0");
        world.run(|application| write_both(application));
        world.run(refuse_all).all_gave(&vec!["two".to_owned()]);
    }
}

/// One rank gave its file the name, and another one could not: the flush failed with a file of the older checkpoint replaced.
#[test]
fn a_checkpoint_of_which_a_flush_that_failed_has_replaced_a_file_is_not_read_there() {
    let world = world("0").set("SCR_CACHE_SIZE", "2").set("SCR_GLOBAL_RESTART", "1");
    let mut world = world.set("SCR_FLUSH_TYPE", "SYNC");
    let files = Arc::new(FaultyFiles::new(RealFiles));
    let target = world.prefix().join("b/f1");
    files.only(move |what, path| what == What::Rename && path == target);
    world.files = files.clone();
    let turns = Barrier::new(2);
    let run = world.run(|application| {
        write(application, "one", "b", 1).unwrap();
        turns.wait();
        files.fail_from(1, ErrorKind::PermissionDenied);
        turns.wait();
        write(application, "two", "b", 2).unwrap();
        refuse_all(application)
    });
    run.all_gave(&Vec::new());
    assert!(run.has_line_with("could not be listed"), "{}", run.lines.join("\n"));
    // The next run closes the flush.
    files.heal();
    world.run(|application| restart(application, "b", 2)).all_gave(&Some(b"two".to_vec()));
}

/// Writes files of the other rank in place, and leaves the dataset incomplete if `valid` is wanting on a rank.
fn overwrite(application: &mut Application, valid: bool, anew: bool) -> bool {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(b"two"), CHECKPOINT).unwrap();
    let routed = session.route_file(file("b", Rank(1 - rank.0)).as_bytes()).unwrap();
    if anew {
        std::fs::remove_file(path_of(&routed)).unwrap();
    }
    let kept = std::fs::metadata(path_of(&routed)).and_then(|status| status.modified());
    std::fs::write(path_of(&routed), contents(2, rank, 0, BYTES)).unwrap();
    if let Ok(kept) = kept {
        // As if the clock of the file system had not advanced since.
        let written = std::fs::File::options().write(true).open(path_of(&routed)).unwrap();
        written.set_modified(kept).unwrap();
    }
    session.complete_output(valid || rank != Rank(1)).is_ok()
}

/// The newer one became nothing, or was not flushed, and the older one was offered with its bytes, also by the next run.
#[test]
fn a_checkpoint_whose_files_were_given_out_to_write_over_is_not_offered() {
    for (valid, anew) in [(false, false), (false, true), (true, false)] {
        let world = world("1").set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", "3");
        let run = world.run(|application| {
            write(application, "zero", "a", 0).unwrap();
            write(application, "one", "b", 1).unwrap();
            assert_eq!(overwrite(application, valid, anew), valid);
            application.session().have_restart().unwrap()
        });
        let expected = Some(if valid { b"two".to_vec() } else { b"zero".to_vec() });
        run.all_gave(&expected);
        let refused = |application: &mut Application| {
            if valid {
                application.session().start_restart().unwrap();
                application.session().complete_restart(false).unwrap_err();
            }
            restart(application, "a", 0)
        };
        world.run(refused).all_gave(&Some(b"zero".to_vec()));
    }
}

/// No run began, as if the checkpoint could not be read for a moment.
#[test]
fn another_checkpoint_is_restarted_from_if_the_one_that_the_user_has_named_was_written_over() {
    let mut world = world("1").set("SCR_FLUSH", "0").set("SCR_CRC_ON_FLUSH", "0");
    world.run(|application| {
        write(application, "one", "b", 1).unwrap();
        write(application, "newer", "a", 3).unwrap();
    });
    world.run(|application| assert!(!overwrite(application, false, false)));
    lose_all(&world);
    world.put("SCR_CURRENT", "one");
    world.run(|application| restart(application, "a", 3)).all_gave(&Some(b"newer".to_vec()));
}

/// The older one became the current one, as if the user had gone back to it, and the next run dropped the newer one.
#[test]
fn a_checkpoint_that_nothing_proves_is_not_given_up_for_an_older_one() {
    let world = world("1").set("SCR_FLUSH", "0").set("SCR_CRC_ON_FLUSH", "0");
    let world = world.set("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| {
        write(application, "older", "a", 3).unwrap();
        write(application, "one", "b", 1).unwrap();
    });
    world.run(|application| assert!(!overwrite(application, false, false)));
    for _ in 0..2 {
        lose_all(&world);
        world.run(|application| restart(application, "a", 3)).all_gave(&Some(b"older".to_vec()));
        let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        assert_ne!(index.current(), Some(&b"older"[..]));
        assert!(index.id_of("one").is_some());
    }
}

/// The copy in cache was taken for superseded, or for flushed, so that it was lost with the cache.
#[test]
fn a_checkpoint_in_cache_is_flushed_again_after_its_files_were_given_out_in_vain() {
    for dies in [false, true] {
        let mut world = world("0");
        world.run(|application| write(application, "one", "b", 1).unwrap());
        world.put("SCR_CACHE_BYPASS", "1");
        if dies {
            world.run(|application| die_over_one(application, true));
        } else {
            world.run(|application| {
                assert!(!overwrite(application, false, false));
                application.finalize().unwrap();
            });
        }
        world.put("SCR_CACHE_BYPASS", "0");
        if dies {
            world.run(|application| restart(application, "b", 1)).all_gave(&Some(b"one".to_vec()));
        }
        lose_all(&world);
        world.run(|application| restart(application, "b", 1)).all_gave(&Some(b"one".to_vec()));
    }
}

/// The older one was deleted by its name, and with it the bytes of the newer one.
#[test]
fn two_names_of_one_folder_are_no_two_files() {
    for (bypass, window) in [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")] {
        let world = world(bypass).set("SCR_PREFIX_SIZE", window);
        symlink("b", world.prefix().join("a")).unwrap();
        world.run(|application| {
            write(application, "one", "a", 1).unwrap();
            write(application, "two", "b", 2).unwrap();
            if window == "0" {
                let _ = application.session().delete(b"one");
            }
            application.finalize().unwrap();
        });
        lose_all(&world);
        let run = world.run(|application| restart(application, "b", 2));
        run.all_gave(&Some(b"two".to_vec()));
    }
}

/// The application removed the file of an older checkpoint before it wrote the one of a newer: nothing was recorded, and without
/// checksums the older one was restarted from with bytes of the newer.
#[test]
fn a_file_that_the_application_has_removed_and_written_anew_is_none_of_an_older_checkpoint() {
    let write = |world: &World, application: &mut Application, step: u64| {
        let (rank, session) = (application.rank, application.session());
        session.start_output(Some(format!("ckpt.{step}").as_bytes()), CHECKPOINT).unwrap();
        let mesh = format!("mesh.{rank}");
        if step > 1 {
            std::fs::remove_file(world.prefix().join(&mesh)).unwrap();
        }
        let path = session.route_file(mesh.as_bytes()).unwrap();
        std::fs::write(path_of(&path), contents(step, rank, 1, BYTES)).unwrap();
        session.complete_output(true).unwrap();
    };
    let mut world = world("1").set("SCR_CRC_ON_FLUSH", "0");
    world.run(|application| [1, 2].iter().for_each(|&step| write(&world, application, step)));
    world.put("SCR_CURRENT", "ckpt.1");
    let run = world.try_run(|application| application.ok()?.session().have_restart().ok().flatten());
    assert_ne!(run.ranks[0], Some(b"ckpt.1".to_vec()));
}

#[test]
fn a_file_may_be_named_by_a_link_to_a_folder_beside_it() {
    for bypass in ["0", "1"] {
        let world = world(bypass);
        symlink("b", world.prefix().join("a")).unwrap();
        world.run(|application| write(application, "one", "a", 1).unwrap());
        for folder in ["a", "b"] {
            world.run(|application| restart(application, folder, 1)).all_gave(&Some(b"one".to_vec()));
        }
    }
}

/// In cache the calls succeeded, each flush failed, and nothing was left for the next allocation.
#[test]
fn a_folder_of_checkpoints_may_be_a_link_of_the_user() {
    for target in ["../scratch/me", "real/deeper"] {
        for (bypass, kind, asynchronous) in
            [("0", "SYNC", "0"), ("0", "PTHREAD", "1"), ("1", "SYNC", "0"), ("0", "NONE", "0")]
        {
            let world = world(bypass).set("SCR_FLUSH_TYPE", kind).set("SCR_FLUSH_ASYNC", asynchronous);
            let world = match kind {
                "NONE" => world.set("SCR_FLUSH", "0").set("SCR_FLUSH_TYPE", "SYNC"),
                _ => world,
            };
            let there = world.prefix().join(target);
            std::fs::create_dir_all(&there).unwrap();
            symlink(target, world.prefix().join("restart")).unwrap();
            let run = world.run(|application| {
                write(application, "one", "restart/ck.1", 1).unwrap();
                write(application, "two", "restart/ck.2", 2).unwrap();
                if kind != "NONE" {
                    application.finalize().unwrap();
                }
            });
            assert!(!run.has_line_with("ERROR"), "{}", run.lines.join("\n"));
            let world = match kind {
                // The other node is lost.
                "NONE" => {
                    world.lose("n1");
                    save(world, 2)
                }
                _ => world,
            };
            lose_all(&world);
            for rank in (0..2).map(Rank) {
                let bytes = std::fs::read(there.join(file("ck.2", rank))).unwrap();
                assert!(bytes == contents(2, rank, 0, BYTES), "other bytes");
            }
            for folder in
                ["restart/ck.2", if target.starts_with("..") { "restart/ck.2" } else { "real/deeper/ck.2" }]
            {
                let run = world.run(|application| restart(application, folder, 2));
                run.all_gave(&Some(b"two".to_vec()));
                lose_all(&world);
            }
        }
    }
}

/// The error of the first call for a file of this folder. Nothing is written.
fn refused(world: &World, folder: &str) -> String {
    let run = world.run(|application| {
        application.session().start_output(Some(b"one"), CHECKPOINT).unwrap();
        let name = file(folder, application.rank);
        let why = application.session().route_file(name.as_bytes()).unwrap_err().to_string();
        application.session().complete_output(true).unwrap_err();
        why
    });
    run.ranks[0].clone()
}

#[test]
fn a_link_that_cannot_be_used_is_refused_when_a_file_is_routed() {
    for bypass in ["0", "1"] {
        let world = world(bypass);
        for folder in ["outside", "prefix/inside", "prefix/.scr"] {
            std::fs::create_dir_all(world.dir().join(folder)).unwrap();
        }
        let link = |target: &str, name: &str| symlink(target, world.prefix().join(name)).unwrap();
        link("gone", "nowhere");
        assert!(refused(&world, "nowhere").contains("nowhere is a symbolic link that leads to nothing"));
        link("loop", "loop");
        assert!(refused(&world, "loop/sub").contains("loop is a symbolic link that leads to nothing"));
        link(".scr", "hidden");
        assert!(refused(&world, "hidden").contains("belongs to the library"));
        link("../outside", "a");
        link("../outside", "other");
        world.run(|application| write(application, "one", "a", 1).unwrap());
        let why = world.run(|application| {
            write(application, "one", "a", 1).unwrap();
            application.session().start_output(Some(b"two"), CHECKPOINT).unwrap();
            let name = file("other", application.rank);
            let why = application.session().route_file(name.as_bytes()).unwrap_err().to_string();
            application.session().complete_output(true).unwrap_err();
            why
        });
        assert!(why.ranks[1].contains("leads to the same folder as another one"), "{}", why.ranks[1]);
        if rustix::process::getuid().is_root() {
            for (target, name) in [("../outside", "theirs"), ("inside", "theirs2")] {
                link(target, name);
                std::os::unix::fs::lchown(world.prefix().join(name), Some(4711), None).unwrap();
                let why = refused(&world, name);
                assert!(why.contains(&format!("{name} is a symbolic link of user 4711")), "{why}");
            }
        }
        for folder in ["prefix/inside", "prefix/.scr"] {
            assert!(!world.dir().join(folder).join("f0").exists(), "{folder} was written to");
        }
    }
}

/// It is found by the flush, where no file of a new kind of folder was routed.
#[test]
fn a_flush_writes_through_no_link_that_gives_files_a_second_name_or_that_another_user_made() {
    for owner in [None, Some(4711)].into_iter().take(1 + usize::from(rustix::process::getuid().is_root())) {
        let world = world("0");
        let target = if owner.is_some() { "../outside" } else { "b" };
        std::fs::create_dir(world.dir().join("outside")).unwrap();
        let made = Barrier::new(2);
        let run = world.run(|application| {
            write(application, "one", "ck.1", 1).unwrap();
            if application.rank == Rank(0) {
                let link = world.prefix().join("ck.2");
                symlink(target, &link).unwrap();
                std::os::unix::fs::lchown(link, owner, None).unwrap();
            }
            made.wait();
            write(application, "two", "ck.2", 2).unwrap();
        });
        let words =
            if owner.is_some() { "of user 4711" } else { "with another name under the prefix directory" };
        run.line_with(&["ck.2 is a symbolic link", words]);
        assert!(!world.prefix().join(target).join("f0").exists());
    }
}

/// A folder that has become a link since.
#[test]
fn nothing_is_removed_through_a_link_that_leads_outside() {
    for bypass in ["0", "1"] {
        for window in ["0", "1"] {
            let world = world(bypass).set("SCR_PREFIX_SIZE", window);
            world.run(|application| {
                write(application, "one", "b", 1).unwrap();
                application.finalize().unwrap();
            });
            let (folder, moved) = (world.prefix().join("b"), world.dir().join("moved"));
            std::fs::rename(&folder, &moved).unwrap();
            symlink(&moved, &folder).unwrap();
            let run = world.run(|application| {
                write(application, "two", "c", 2).unwrap();
                let deleted = application.session().delete(b"one").map_err(|error| error.to_string());
                application.finalize().unwrap();
                deleted
            });
            expect_there(&moved);
            let is_about_the_link = |line: &String| line.contains("is a symbolic link");
            let refused = run.ranks.iter().filter_map(|rank| rank.as_ref().err());
            assert!(run.lines.iter().chain(refused).any(is_about_the_link), "{:?}", run.lines);
        }
    }
}

fn expect_there(folder: &Path) {
    for rank in [0, 1].map(Rank) {
        let path = folder.join(format!("f{rank}"));
        assert!(
            std::fs::read(&path).unwrap() == contents(1, rank, 0, BYTES),
            "{} was changed",
            path.display()
        );
    }
}

/// A job whose second checkpoint of two is written in place, and the others in cache.
fn mixed() -> World {
    let world = World::new(2, 2).set("SCR_COPY_TYPE", "FILE").set("SCR_COPY_METADATA", "1");
    let world = world.unset("SCR_CACHE_BYPASS").set("SCR_CACHE_SIZE", "4").set("SCR_FLUSH", "3");
    let base = world.node("$SCR_NODE_NAME").display().to_string();
    let line = |number, interval, bypass| {
        format!("CKPT={number} INTERVAL={interval} STORE={base} TYPE=XOR BYPASS={bypass}\n")
    };
    std::fs::write(world.prefix().join(".scrconf"), line(0, 1, 0) + &line(1, 2, 1)).unwrap();
    world
}

/// Writes `two` in cache, for a flush that replaces the files of `one`, which lie in the prefix directory.
fn write_over_one(application: &mut Application, in_prefix: &Path) {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(b"two"), CHECKPOINT).unwrap();
    let path = session.route_file(file("b", rank).as_bytes()).unwrap();
    std::fs::write(path_of(&path), contents(2, rank, 0, BYTES)).unwrap();
    // As if the clock had not advanced since.
    let kept =
        std::fs::metadata(in_prefix.join(file("b", rank))).and_then(|status| status.modified()).unwrap();
    let written = std::fs::File::options().write(true).open(path_of(&path)).unwrap();
    written.set_modified(kept).unwrap();
    drop(written);
    session.complete_output(true).unwrap();
}

/// The names that are offered, each after a comparison of every byte, and refused.
fn refuse_each(application: &mut Application, steps: &[(&str, &str, u64)]) -> Vec<String> {
    let mut offered = Vec::new();
    while let Some(name) = application.session().have_restart().unwrap() {
        let name = String::from_utf8(name).unwrap();
        let (_, folder, step) = steps.iter().find(|(known, _, _)| *known == name).unwrap();
        let rank = application.rank;
        application.session().start_restart().unwrap();
        let path = application.session().route_file(file(folder, rank).as_bytes()).unwrap();
        let bytes = std::fs::read(path_of(&path)).unwrap();
        assert!(bytes == contents(*step, rank, 0, BYTES), "other bytes: {name}");
        offered.push(name);
        let _ = application.session().complete_restart(false);
    }
    offered
}

const MIXED: &[(&str, &str, u64)] = &[("zero", "a", 0), ("one", "b", 1), ("two", "b", 2)];

/// A flush replaced the files of the older one, which lay nowhere else, and it was offered with the bytes of the newer one.
#[test]
fn a_checkpoint_that_lies_in_place_is_not_offered_after_a_flush_over_its_files() {
    // Nor on nodes that were away meanwhile.
    for (listed, away) in [(true, false), (true, true), (false, false)] {
        let mut world = mixed();
        let files = Arc::new(FaultyFiles::new(RealFiles));
        files.only(|_, path| path.to_string_lossy().contains("rank2file"));
        world.files = files.clone();
        let (turns, prefix) = (Barrier::new(2), world.prefix());
        let kept = world.run(|application| {
            write(application, "zero", "a", 0).unwrap();
            turns.wait();
            if !listed {
                files.fail_from(1, ErrorKind::PermissionDenied);
            }
            turns.wait();
            assert_eq!(write(application, "one", "b", 1).is_ok(), listed);
            turns.wait();
            files.heal();
            let kept = (application.rank == Rank(0)).then(|| world.keep());
            turns.wait();
            write_over_one(application, &prefix);
            kept
        });
        if away {
            world.put_back(kept.ranks[0].as_ref().unwrap());
        }
        let expected = vec!["two".to_owned(), "zero".to_owned()];
        world.run(|application| refuse_each(application, MIXED)).all_gave(&expected);
    }
}

#[test]
fn a_checkpoint_that_lies_in_place_is_not_offered_by_the_run_that_flushed_over_its_files() {
    let world = mixed();
    let prefix = world.prefix();
    let run = world.run(|application| {
        write(application, "zero", "a", 0).unwrap();
        write(application, "one", "b", 1).unwrap();
        write_over_one(application, &prefix);
        refuse_each(application, MIXED)
    });
    run.all_gave(&vec!["two".to_owned(), "zero".to_owned()]);
}

/// Dies while it writes over the files of the other rank's share of `one`: it has written them, or has not begun.
fn die_over_one(application: &mut Application, has_written: bool) {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(b"two"), CHECKPOINT).unwrap();
    let path = session.route_file(file("b", Rank(1 - rank.0)).as_bytes()).unwrap();
    if has_written {
        let kept = std::fs::metadata(path_of(&path)).and_then(|status| status.modified()).unwrap();
        std::fs::write(path_of(&path), contents(2, rank, 0, BYTES)).unwrap();
        // As if the clock had not gone on since.
        let written = std::fs::File::options().write(true).open(path_of(&path)).unwrap();
        written.set_modified(kept).unwrap();
    }
}

/// Every older checkpoint was refused after the folder was touched or copied, and the run began at zero.
#[test]
fn times_that_have_changed_alone_cast_no_doubt_on_a_checkpoint() {
    for bypass in ["0", "1"] {
        let world = world(bypass).set("SCR_CRC_ON_FLUSH", "0");
        world.run(|application| write(application, "one", "b", 1).unwrap());
        // Two runs die in their next checkpoint, in place, beside the first one. The second takes the name of the first.
        let mut world = world.set("SCR_CACHE_BYPASS", "1");
        for _ in 0..2 {
            lose_all(&world);
            world.run(|application| {
                assert_eq!(restart(application, "b", 1), Some(b"one".to_vec()));
                let rank = application.rank;
                application.session().start_output(Some(b"two"), CHECKPOINT).unwrap();
                let path = application.session().route_file(file("c", rank).as_bytes()).unwrap();
                std::fs::write(path_of(&path), contents(2, rank, 0, BYTES)).unwrap();
            });
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
            for rank in [0, 1].map(Rank) {
                let path = world.prefix().join(file("b", rank));
                std::fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
            }
        }
        lose_all(&world);
        world.run(|application| restart(application, "b", 1)).all_gave(&Some(b"one".to_vec()));
        // Once a file was given out, only a checksum would prove its contents, whoever asks for it.
        world.run(|application| die_over_one(application, true));
        lose_all(&world);
        world.put("SCR_CURRENT", "one");
        let outcome = world.run(|application| application.session().have_restart().unwrap());
        outcome.all_gave(&None);
        // For a file that was in cache, the checksums are recorded.
        let why = if bypass == "1" { "was given to a later dataset to write over" } else { "is damaged" };
        outcome.line_with(&[why]);
    }
}

fn recorded(world: &World) -> usize {
    std::fs::read_dir(world.prefix().join(".scr/overwritten")).map_or(0, Iterator::count)
}

/// Only the length and the time of a file were compared, and it was offered with the bytes of the one that was cut short.
#[test]
fn a_checkpoint_is_not_offered_after_a_crash_in_the_middle_of_writing_over_it() {
    for (global, crc, lost) in
        [("0", "0", false), ("0", "1", false), ("1", "0", false), ("0", "0", true), ("0", "1", true)]
    {
        let world = world(if global == "1" { "0" } else { "1" });
        let world =
            world.set("SCR_CACHE_SIZE", "3").set("SCR_CRC_ON_FLUSH", crc).set("SCR_COPY_METADATA", "1");
        let mut world = world.set("SCR_GLOBAL_RESTART", global);
        world.run(|application| {
            write(application, "zero", "a", 0).unwrap();
            write(application, "one", "b", 1).unwrap();
        });
        world.put("SCR_CACHE_BYPASS", "1");
        world.run(|application| die_over_one(application, true));
        let recorded = recorded(&world);
        if lost {
            lose_all(&world);
        }
        let run = world.run(|application| refuse_each(application, MIXED));
        // A checkpoint that is in cache as well is flushed again.
        let expected: &[&str] = if global == "1" { &["one", "zero"] } else { &["zero"] };
        run.all_gave(&expected.iter().map(ToString::to_string).collect());
        assert_eq!(recorded, 2);
    }
}

#[test]
fn a_checkpoint_that_nobody_has_written_over_is_proven_by_its_checksums_after_a_crash() {
    for (crc, lost) in [("1", true), ("1", false), ("0", false)] {
        let world = world("1").set("SCR_CACHE_SIZE", "3").set("SCR_CRC_ON_FLUSH", crc);
        world.run(|application| {
            write(application, "zero", "a", 0).unwrap();
            write(application, "one", "b", 1).unwrap();
        });
        world.run(|application| die_over_one(application, false));
        if lost {
            lose_all(&world);
        }
        let expected: &[&str] = if crc == "1" { &["one", "zero"] } else { &["zero"] };
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        world.run(|application| refuse_each(application, MIXED)).all_gave(&expected);
    }
}

#[test]
fn files_written_over_are_recorded_only_while_an_older_checkpoint_may_lose_them() {
    let world = world("1");
    world.run(|application| {
        write(application, "same", "b", 1).unwrap();
        assert!(!world.prefix().join(".scr/overwritten").exists(), "nothing else counts");
        write(application, "same", "b", 2).unwrap();
        write(application, "other", "b", 3).unwrap();
        write(application, "other", "b", 4).unwrap();
    });
    assert_eq!(recorded(&world), 0, "it is complete");
    world.run(|application| restart(application, "b", 4)).all_gave(&Some(b"other".to_vec()));
}

/// Writes a checkpoint in place over one of the same length, as if the clock had not gone on since.
fn write_over(application: &mut Application, name: &str, step: u64) {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(name.as_bytes()), CHECKPOINT).unwrap();
    let routed = session.route_file(file("b", rank).as_bytes()).unwrap();
    let path = path_of(&routed);
    let kept = std::fs::metadata(path).and_then(|status| status.modified()).unwrap();
    std::fs::write(path, contents(step, rank, 0, BYTES)).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_modified(kept).unwrap();
    session.complete_output(true).unwrap();
}

/// The one in the middle had taken the older one's entry from the index, and the record of the files that were written over had
/// ended with the newest one.
#[test]
fn a_checkpoint_whose_files_two_newer_ones_have_written_over_does_not_come_back_on_its_nodes() {
    let mut world = world("1").set("SCR_CRC_ON_FLUSH", "0").set("SCR_COPY_METADATA", "1");
    world.run(|application| write(application, "same", "b", 1).unwrap());
    let nodes = std::mem::replace(&mut world.nodes, vec!["n8".to_owned(), "n9".to_owned()]);
    world.run(|application| {
        write_over(application, "same", 2);
        write_over(application, "other", 3);
    });
    world.nodes = nodes;
    let offered = world.run(|application| refuse_each(application, &[("other", "b", 3)]));
    offered.all_gave(&vec!["other".to_owned()]);
}

/// The checkpoint was lost with the nodes, and nothing was said.
#[test]
fn output_does_not_replace_files_of_a_checkpoint_that_a_job_can_restart_from() {
    let world = world("0").set("SCR_CACHE_SIZE", "3");
    let run = world.run(|application| {
        write(application, "one", "b", 1).unwrap();
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"two"), OutputFlags { checkpoint: false, output: true }).unwrap();
        let routed = session.route_file(file("b", rank).as_bytes()).unwrap();
        std::fs::write(path_of(&routed), contents(2, rank, 0, BYTES)).unwrap();
        [session.complete_output(true).unwrap_err(), application.finalize().unwrap_err()]
    });
    for why in &run.ranks[0] {
        let why = scr_base::describe(why);
        assert!(
            why.contains("files of it belong to dataset 1") && why.contains("it is kept in cache"),
            "{why}"
        );
    }
    lose_all(&world);
    world.run(|application| assert_eq!(restart(application, "b", 1), Some(b"one".to_vec())));
}

/// The application wrote over the only checkpoint, in this run or the next, and nobody said a word.
#[test]
fn output_in_place_gets_no_file_of_a_checkpoint_that_a_job_can_restart_from() {
    let world = world("1").set("SCR_CACHE_BYPASS", "1");
    let output = |application: &mut Application| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"two"), OutputFlags { checkpoint: false, output: true }).unwrap();
        let why = session.route_file(file("b", rank).as_bytes()).unwrap_err();
        assert!(scr_base::describe(&why).contains("files of it belong to dataset 1"), "{why}");
        session.complete_output(true).unwrap_err();
    };
    world.run(|application| {
        write(application, "one", "b", 1).unwrap();
        output(application);
    });
    lose_all(&world);
    world.run(|application| {
        assert_eq!(restart(application, "b", 1), Some(b"one".to_vec()));
        output(application);
    });
    world.run(|application| assert_eq!(restart(application, "b", 1), Some(b"one".to_vec())));
}

/// Nothing but its flush, which each run tries again, found out that a newer one has its files.
#[test]
fn a_checkpoint_that_could_not_be_listed_does_not_come_back_once_it_was_written_over() {
    let mut world = world("1").set("SCR_CRC_ON_FLUSH", "0").set("SCR_COPY_METADATA", "1");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Rename && path.ends_with(".scr/scr.dataset.1/rank2file.0.0"));
    files.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(0), Arc::new(files));
    world.run(|application| write(application, "one", "b", 1).unwrap_err());
    world.own_files.clear();
    let nodes = std::mem::replace(&mut world.nodes, vec!["n8".to_owned(), "n9".to_owned()]);
    world.run(|application| write_over(application, "two", 2));
    world.nodes = nodes;
    let offered = world.run(|application| refuse_each(application, &[("two", "b", 2)]));
    offered.all_gave(&vec!["two".to_owned()]);
}

/// Each end of a run failed, though there is nothing that anybody could mend.
#[test]
fn a_checkpoint_whose_place_newer_output_has_makes_no_end_of_a_run_fail() {
    let world = world("0").set("SCR_CACHE_SIZE", "3").set("SCR_FLUSH", "9");
    world.run(|application| {
        write(application, "one", "b", 1).unwrap();
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"two"), OutputFlags { checkpoint: false, output: true }).unwrap();
        let routed = session.route_file(file("b", rank).as_bytes()).unwrap();
        std::fs::write(path_of(&routed), contents(2, rank, 0, BYTES)).unwrap();
        session.complete_output(true).unwrap();
        write(application, "three", "c", 3).unwrap();
    });
    for refused in [1, 0] {
        let run = world.run(|application| {
            // The newest one turns out bad, and the one that is left cannot be flushed.
            for _ in 0..refused {
                application.session().have_restart().unwrap().unwrap();
                application.session().start_restart().unwrap();
                let _ = application.session().complete_restart(false);
            }
            assert_eq!(restart(application, "b", 1), Some(b"one".to_vec()));
            application.finalize().unwrap();
        });
        run.line_with(&["dataset one was not flushed", "which is newer, has its name or files of it"]);
    }
    for rank in 0..2 {
        let bytes = std::fs::read(world.prefix().join(file("b", Rank(rank)))).unwrap();
        assert!(bytes == contents(2, Rank(rank), 0, BYTES), "the output is as it was");
    }
}

/// Each run tried again, with an error.
#[test]
fn output_that_is_a_checkpoint_too_and_was_replaced_is_reported_once() {
    let both = OutputFlags { checkpoint: true, output: true };
    let mut world = world("0").set("SCR_CACHE_SIZE", "3");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Rename && path.ends_with(".scr/scr.dataset.1/rank2file.0.0"));
    files.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(0), Arc::new(files));
    let write_both = |application: &mut Application, name: &str, step: u64| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(name.as_bytes()), both).unwrap();
        let routed = session.route_file(file("b", rank).as_bytes()).unwrap();
        std::fs::write(path_of(&routed), contents(step, rank, 0, BYTES)).unwrap();
        session.complete_output(true)
    };
    world.run(|application| write_both(application, "one", 1).unwrap_err());
    world.own_files.clear();
    let nodes = std::mem::replace(&mut world.nodes, vec!["n8".to_owned(), "n9".to_owned()]);
    world.run(|application| write_both(application, "two", 2).unwrap());
    world.nodes = nodes;
    let count = |world: &World| {
        let run = world.run(|application| drop(application.finalize()));
        run.lines.iter().filter(|line| line.contains("dataset one was not flushed")).count()
    };
    assert_eq!((count(&world), count(&world), count(&world)), (1, 0, 0));
    let is_in_place = |step| {
        (0..2).map(Rank).all(|rank| {
            std::fs::read(world.prefix().join(file("b", rank))).unwrap() == contents(step, rank, 0, BYTES)
        })
    };
    assert!(is_in_place(2), "the newer output is as it was");
    // Nothing is in its way any more.
    drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"two").unwrap();
    assert_eq!(count(&world), 0);
    assert!(is_in_place(1), "the older one was flushed");
}

/// An agent whose copies have arrived.
struct Arrived;

impl Transport for Arrived {
    fn start(&self, _: &CopyJob) -> Result<Vec<u8>, PluginError> {
        Ok(Vec::new())
    }
    fn poll(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        Ok(CopyState::Done)
    }
    fn wait(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        Ok(CopyState::Done)
    }
    fn cancel(&self, _: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }
    fn crc(&self, _: &[u8], _: usize) -> Option<u32> {
        None
    }
}

/// Flushes continue without the application from now on, where [`poll_transfers_of`] ends them.
pub(crate) fn flush_by_agents(world: &mut World) {
    let folder = world.dir().join("plugins");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(plugins().join("libscr_sync.so"), folder.join("libscr_sync.so")).unwrap();
    let manifest = std::fs::read_to_string(plugins().join("sync.toml")).unwrap();
    let manifest = manifest + "\n[capabilities]\nasynchronous = true\nsurvives-job = true\n";
    std::fs::write(folder.join("sync.toml"), manifest).unwrap();
    world.put("SCR_PLUGIN_PATH", &format!("{}:{}", folder.display(), plugins().display()));
    world.put("SCR_FLUSH_TYPE", "SYNC");
    world.put("SCR_FLUSH_ASYNC", "1");
}

/// Does what the agent of this rank's node does. `None` if the job has left nothing there.
pub(crate) fn poll_transfers_of(world: &World, rank: Rank) -> Option<PollResult> {
    let control = world.node(&format!("n{rank}/user1/scr.defjobid"));
    let control = OwnedDir::at(&*world.files, &control, rustix::process::getuid().as_raw()).ok()?;
    let open = |_: &str, _: &KvTree| Ok(Arc::new(Arrived) as Arc<dyn Transport>);
    Some(poll_transfers(&world.env_of(rank).env(), &control, &open))
}

/// The agents gave the files of a newer one their names while the application read the older one there.
#[test]
fn a_checkpoint_is_not_read_in_the_prefix_directory_while_agents_replace_its_files() {
    let mut world = world("0").set("SCR_GLOBAL_RESTART", "1").set("SCR_CACHE_SIZE", "3");
    flush_by_agents(&mut world);
    let turns = Barrier::new(2);
    let run = world.run(|application| {
        let rank = application.rank;
        write(application, "one", "b", 1).unwrap();
        write(application, "two", "b", 2).unwrap();
        let name = application.session().have_restart().unwrap().unwrap();
        assert_eq!(application.session().start_restart().unwrap(), name);
        let path = application.session().route_file(file("b", rank).as_bytes()).unwrap();
        turns.wait();
        let polled = poll_transfers_of(&world, rank).unwrap();
        assert!(polled.errors.is_empty(), "{polled:?}");
        turns.wait();
        let step = if name == b"one" { 1 } else { 2 };
        assert!(std::fs::read(path_of(&path)).unwrap() == contents(step, rank, 0, BYTES), "other bytes");
        application.session().complete_restart(true).unwrap();
        name
    });
    run.all_gave(&b"two".to_vec());
}
