//! What a `STORE` line says of its transport reaches it, and is checked like the options of a scheme.

use super::world::{plugins, World};
use scr_core::comm::Rank;
use scr_test_plugins::{built, manifest};
use tempfile::TempDir;

fn sizes(rank: Rank) -> Vec<usize> {
    vec![5_000 * rank.index(), 7]
}

/// A job whose store is described by a line with these keys; flushes every checkpoint.
fn world(keys: &str, folder: &TempDir) -> World {
    std::fs::copy(built("obedient"), folder.path().join("libobedient.so")).unwrap();
    std::fs::write(folder.path().join("try.toml"), manifest("TRY", "transport", "libobedient.so")).unwrap();
    let path = format!("{}:{}", folder.path().display(), plugins().display());
    let world = World::new(4, 2).set("SCR_PLUGIN_PATH", &path).set("SCR_FLUSH", "1");
    let base = world.node("$SCR_NODE_NAME");
    let conf = format!("SCR_DEBUG=1\nSTORE={} {keys}\n", base.display());
    std::fs::write(world.prefix().join(".scrconf"), conf).unwrap();
    world
}

/// The message that the first checkpoint could not be flushed.
fn refusal(keys: &str) -> String {
    let folder = TempDir::new().unwrap();
    let world = world(keys, &folder);
    let run = world.run(|application| application.checkpoint(1, sizes).map_err(|error| error.to_string()));
    // It is safe in cache.
    run.all_gave(&Ok(()));
    run.line_with(&["ckpt.1", "kept in cache"]).to_owned()
}

#[test]
fn an_option_in_a_store_line_reaches_the_transport() {
    assert!(refusal("FLUSH=TRY PANIC=start").contains("asked to panic in start"));
    assert!(refusal("FLUSH=try panic=wait").contains("asked to panic in wait"));
}

#[test]
fn a_wrong_transport_option_is_reported_with_file_and_line() {
    for (keys, words) in [
        (
            "FLUSH=PTHREAD THREADS=0",
            "THREADS=0: the transport PTHREAD takes a whole number from 1 to 256 here",
        ),
        (
            "FLUSH=PTHREAD THREAD=2",
            "THREAD=2: the transport PTHREAD has no option of this name; did you mean THREADS?",
        ),
        ("THREADS=2 FLUSH=SYNC", "THREADS=2: the transport SYNC has no option of this name; it takes none"),
    ] {
        let line = refusal(keys);
        assert!(line.contains(words) && line.contains("/prefix/.scrconf:2: "), "{line}");
    }
}

#[test]
fn a_store_with_options_flushes_and_another_run_fetches() {
    let folder = TempDir::new().unwrap();
    let world = world("FLUSH=PTHREAD THREADS=2", &folder);
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    world.lose("n0");
    world.lose("n1");
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

#[test]
fn a_synchronous_transport_causes_one_warning_with_asynchronous_flushes() {
    let folder = TempDir::new().unwrap();
    let world = world("FLUSH=SYNC", &folder).set("SCR_FLUSH_ASYNC", "1").set("SCR_FLUSH_TYPE", "PTHREAD");
    let run = world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, sizes).unwrap()));
    let words = run.lines.iter().filter(|line| line.contains("no effect with the transport SYNC")).count();
    assert_eq!(words, 1, "{}", run.lines.join("\n"));
}

/// The limit is for all of them together.
#[test]
fn each_copying_process_gets_its_share_of_the_bandwidth() {
    for (width, share) in [("256", "BW=250: "), ("2", "BW=500: ")] {
        let folder = TempDir::new().unwrap();
        let world = world("FLUSH=TRY", &folder).set("SCR_FLUSH_ASYNC", "1").set("SCR_FLUSH_ASYNC_BW", "1000");
        let able =
            "[capabilities]\nasynchronous = true\n[[option]]\nname = \"BW\"\ntype = \"integer\"\nmax = 9\n\
                    help = \"at most 9, so that the refusal shows the value\"\n";
        let known = manifest("TRY", "transport", "libobedient.so");
        std::fs::write(folder.path().join("try.toml"), known + able).unwrap();
        let world = world.set("SCR_FLUSH_WIDTH", width);
        let run = world.run(|application| application.checkpoint(1, sizes).unwrap());
        run.line_with(&[share]);
    }
}

#[test]
fn a_transport_that_could_not_be_opened_is_tried_again_for_the_next_dataset() {
    let folder = TempDir::new().unwrap();
    let world = world("FLUSH=SYNC", &folder);
    let library = folder.path().join("libscr_sync.so");
    std::fs::copy(plugins().join("sync.toml"), folder.path().join("sync.toml")).unwrap();
    let run = world.run(|application| {
        application.checkpoint(1, sizes).unwrap();
        if application.rank == Rank(0) {
            std::fs::copy(plugins().join("libscr_sync.so"), &library).unwrap();
        }
        application.checkpoint(2, sizes).unwrap();
    });
    run.line_with(&["ckpt.1", "kept in cache"]);
    world.lose("n0");
    world.lose("n1");
    world.run(|application| application.restart(sizes)).all_gave(&Some(2));
}
