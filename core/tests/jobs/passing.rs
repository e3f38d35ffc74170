//! `SCR_ENABLE=0` with `SCR_PASS_THROUGH=1`: calls succeed, files are written where the application names them, and a job
//! restarts from what there is.

use super::redundancy::small;
use super::world::{contents, file_name, path_of, World};
use scr_core::session::OutputFlags;

/// A world whose settings ask for the cache, in every way that there is.
fn world() -> World {
    let world = World::new(4, 2).set("SCR_COPY_TYPE", "FILE").set("SCR_FLUSH", "1");
    let base = world.dir().join("nodes/$SCR_NODE_NAME").display().to_string();
    let lines = format!("STORE={base} COUNT=3\nCKPT=0 STORE={base} TYPE=XOR BYPASS=0\n");
    std::fs::write(world.prefix().join(".scrconf"), lines).unwrap();
    world
}

fn off(world: &mut World) {
    world.put("SCR_ENABLE", "0");
    world.put("SCR_PASS_THROUGH", "1");
}

#[test]
fn files_are_written_where_they_are_named_and_calls_keep_their_order() {
    let mut world = world();
    off(&mut world);
    let run = world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        assert_eq!(session.have_restart().unwrap(), None);
        session.complete_output(true).unwrap_err();
        let checkpoint = OutputFlags { checkpoint: true, output: false };
        session.start_output(Some(b"ckpt.1"), checkpoint).unwrap();
        session.start_output(Some(b"ckpt.2"), checkpoint).unwrap_err();
        for (number, size) in small(rank).into_iter().enumerate() {
            let name = file_name(1, rank, number);
            let path = session.route_file(name.as_bytes()).unwrap();
            assert_eq!(path_of(&path), world.prefix().join(&name));
            // The folder is there.
            std::fs::write(path_of(&path), contents(1, rank, number, size)).unwrap();
        }
        session.complete_output(true).unwrap();
        assert!(!session.should_exit().unwrap());
        application.finalize().unwrap();
    });
    assert!(!run.has_line_with("ERROR") && !run.has_line_with("WARNING"), "{}", run.lines.join("\n"));
    let data = world.cached_files().into_iter().filter(|path| path.display().to_string().contains("/r"));
    assert_eq!(data.filter(|path| path.ends_with("rank_0.0")).count(), 0, "nothing of it is in cache");
}

#[test]
fn a_job_goes_on_from_what_was_written_with_scr_and_then_with_scr_from_what_was_written_without() {
    let mut world = world();
    world.run(|application| {
        application.checkpoint(1, small).unwrap();
        application.finalize().unwrap();
    });
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    off(&mut world);
    world.run(|application| {
        assert_eq!(application.restart(small), Some(1));
        application.checkpoint(2, small).unwrap();
        // Over the files of the first one, which nobody can restart from any more.
        application.checkpoint_as(b"ckpt.1", 3, small).unwrap();
        application.checkpoint(4, small).unwrap();
        application.finalize().unwrap();
    });
    world.run(|application| application.restart(small)).all_gave(&Some(4));
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    world.put("SCR_ENABLE", "1");
    world.put("SCR_PASS_THROUGH", "0");
    world.run(|application| {
        assert_eq!(application.restart(small), Some(4));
        application.checkpoint(5, small).unwrap();
    });
    world.run(|application| application.restart(small)).all_gave(&Some(5));
}

/// A checkpoint that an earlier run has left in cache only is not forgotten.
#[test]
fn a_job_restarts_from_the_cache_of_a_run_with_scr() {
    let mut world = world();
    world.put("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(7, small).unwrap());
    off(&mut world);
    world.run(|application| application.restart(small)).all_gave(&Some(7));
}
