//! What a `STORE` line says of its transport reaches it, and is checked like the options of a scheme.

use super::world::{plugins, World};
use scr_core::comm::Rank;
use scr_core::fs::RealFiles;
use scr_core::prefix::{Index, Prefix};
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

/// The line that tells that the first checkpoint could not be flushed.
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
    assert!(refusal("FLUSH=TRY PANIC=start").contains("told to panic in start"));
    assert!(refusal("FLUSH=try panic=wait").contains("told to panic in wait"));
}

#[test]
fn a_wrong_option_of_a_transport_is_told_with_file_and_line() {
    for (keys, told) in [
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
        assert!(line.contains(told) && line.contains("/prefix/.scrconf:2: "), "{line}");
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

/// What was newer than the flush under way stayed behind in cache with it, and was gone with the allocation.
#[test]
fn what_is_newer_than_a_flush_that_is_left_to_poststage_is_flushed_at_the_end() {
    let folder = TempDir::new().unwrap();
    let pthread = std::fs::read_to_string(plugins().join("pthread.toml")).unwrap();
    let slow = pthread
        .replace("\"PTHREAD\"", "\"SLOW\"")
        .replace("asynchronous", "survives-job = true\nasynchronous");
    std::fs::write(folder.path().join("slow.toml"), slow).unwrap();
    std::fs::copy(plugins().join("libscr_pthread.so"), folder.path().join("libscr_pthread.so")).unwrap();
    let world = world("", &folder)
        .set("SCR_FLUSH", "2")
        .set("SCR_FLUSH_ASYNC", "1")
        .set("SCR_FLUSH_POSTSTAGE", "1")
        .set("SCR_COPY_TYPE", "FILE");
    let base = world.node("$SCR_NODE_NAME").display().to_string();
    let conf = format!(
        "STORE={base}/quick GROUP=NODE FLUSH=SYNC\nSTORE={base}/slow GROUP=NODE FLUSH=SLOW BW=1\n\
         CKPT=0 INTERVAL=1 STORE={base}/quick TYPE=XOR\nCKPT=1 INTERVAL=2 STORE={base}/slow TYPE=XOR\n"
    );
    std::fs::write(world.prefix().join(".scrconf"), conf).unwrap();
    let run = world.run(|application| {
        (1..=3).for_each(|step| application.checkpoint(step, sizes).unwrap());
        application.finalize().unwrap();
    });
    run.line_with(&["`ckpt.2' goes on", "scr_poststage finishes it"]);
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    let complete = index.entries().iter().map(|entry| (entry.id, entry.complete)).collect::<Vec<_>>();
    assert_eq!(complete, [(3, true), (2, false)]);
}
