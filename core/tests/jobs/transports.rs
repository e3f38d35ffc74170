//! The options of a transport on a `STORE` line reach it, and are checked like the options of a scheme.

use super::world::{plugins, said, World};
use scr_comm::Rank;
use scr_test_kit::descriptors::wait_until;
use scr_test_plugins::{built, manifest};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;
use std::time::{Duration, Instant};
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

/// The entry of the code was that of an error of the system.
#[test]
fn a_panic_of_a_plugin_has_a_code_of_its_own() {
    let folder = TempDir::new().unwrap();
    let world = world("", &folder).set("SCR_COPY_TYPE", "FILE").set("SCR_FLUSH", "0");
    std::fs::write(folder.path().join("mad.toml"), manifest("MAD", "scheme", "libobedient.so")).unwrap();
    std::fs::write(world.prefix().join(".scrconf"), "CKPT=0 TYPE=MAD PANIC=protect\n").unwrap();
    let run = world.run(|application| application.checkpoint(1, sizes).map_err(said));
    run.ranks.iter().for_each(|error| {
        let error = error.as_ref().unwrap_err();
        assert!(error.contains("protect panicked: asked to panic"), "{error}");
    });
    let error = run.ranks[0].as_ref().unwrap_err();
    assert!(scr_base::codes::coded("ERROR", error).ends_with("[SCR-613]"));
    assert!(error.contains("the scheme MAD: "), "{error}");
    // It was complete, and no loss of a node could be repaired.
    std::fs::write(world.prefix().join(".scrconf"), "CKPT=0 TYPE=MAD PANIC=write-nothing\n").unwrap();
    let run = world.run(|application| application.checkpoint(1, sizes).map_err(said));
    run.ranks.iter().for_each(|error| {
        let error = error.as_ref().unwrap_err();
        assert!(error.contains("the scheme MAD has left ") && error.contains(" unwritten"), "{error}");
        assert!(scr_base::codes::coded("ERROR", error).ends_with("[SCR-613]"), "{error}");
    });
    // Its rebuild restores nothing. That was tried three times, and the loss was reported each time.
    std::fs::write(world.prefix().join(".scrconf"), "CKPT=0 TYPE=MAD\n").unwrap();
    world.run(|application| application.checkpoint(1, sizes).map_err(said)).all_gave(&Ok(()));
    world.lose("n1");
    let lines = world.try_run(|begun| begun.is_ok()).lines;
    assert_eq!(lines.iter().filter(|line| line.contains("rebuilding them with MAD")).count(), 1, "{lines:?}");
}

#[test]
fn an_option_in_a_store_line_reaches_the_transport() {
    assert!(refusal("FLUSH=TRY PANIC=start").contains("asked to panic in start"));
    let panicked = "the transport TRY: the transport's wait panicked: asked to panic in wait";
    assert!(refusal("FLUSH=try panic=wait").contains(panicked));
    assert!(refusal("FLUSH=TRY PANIC=rude").contains("the transport TRY: no; such ?[31mdoor"));
}

/// The job ran to its end, and nothing was flushed.
#[test]
fn a_flush_that_can_never_happen_stops_the_start_with_file_and_line() {
    for (keys, words) in [
        (
            "FLUSH=PTHREAD THREADS=0",
            "THREADS=0: the transport PTHREAD takes a whole number from 1 to 256 here",
        ),
        ("FLUSH=PIGEON", "there is no transport plugin named PIGEON"),
    ] {
        let folder = TempDir::new().unwrap();
        let run = world(keys, &folder).try_run(|job| job.err().map(|error| error.to_string()));
        for error in &run.ranks {
            let error = error.as_deref().expect("no session begins");
            let said = ["nothing is flushed with it", "/prefix/.scrconf:2: STORE=", words];
            assert!(said.iter().all(|words| error.contains(words)), "{error}");
        }
    }
}

/// Nothing goes to the store, so its transport is not needed.
#[test]
fn a_transport_that_is_not_there_does_not_stop_a_job_in_bypass_mode() {
    let folder = TempDir::new().unwrap();
    let world = world("FLUSH=PIGEON", &folder).set("SCR_CACHE_BYPASS", "1");
    world.run(|application| application.checkpoint(1, sizes).unwrap()).line_with(&["WARNING", "PIGEON"]);
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

/// As in files of other libraries and of older versions: nothing was flushed, or no run started.
#[test]
fn a_key_that_neither_scr_nor_the_plugin_knows_is_ignored_with_a_warning() {
    for (keys, words) in [
        ("TYPE=PTHREAD", "has no key TYPE, did you mean FLUSH?, and the transport SYNC has no such option"),
        ("BYTES=1GB", "has no key BYTES, did you mean SIZE?"),
        ("COUNTS=2", "has no key COUNTS, did you mean COUNT?"),
        ("SET_SIZE=2", "has no key SET_SIZE, did you mean SET_SIZE on a CKPT line?"),
        ("FLUSH=PTHREAD THREAD=2", "has no key THREAD, did you mean THREADS?, and the transport PTHREAD"),
        ("THREADS=2 FLUSH=SYNC", "has no key THREADS, and the transport SYNC has no such option"),
        ("\nCKPT=0 COUNT=2", "CKPT=0 has no key COUNT, did you mean COUNT on a STORE line?"),
        ("\nCKPT=0 INTERVALL=4", "CKPT=0 has no key INTERVALL, did you mean INTERVAL?, and the scheme XOR"),
    ] {
        let folder = TempDir::new().unwrap();
        let mut world = world(keys, &folder).set("SCR_CACHE_BYPASS", "0");
        if keys.contains("CKPT") {
            world = world.set("SCR_COPY_TYPE", "FILE");
        }
        let run = world.run(|application| application.checkpoint(1, sizes).unwrap());
        let line = run.line_with(&[words]);
        assert!(line.contains("WARNING") && line.contains("/prefix/.scrconf:"), "{line}");
        world.lose("n0");
        world.lose("n1");
        world.run(|application| application.restart(sizes)).all_gave(&Some(1));
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
        let mut world = world.set("SCR_FLUSH_WIDTH", width);
        let run = world.run(|application| application.checkpoint(1, sizes).unwrap());
        run.line_with(&[share]);
        // None is for a flush that the application waits for: SCR_Init took as long as the limit said, without a word.
        world.put("SCR_FLUSH_ON_RESTART", "1");
        let run = world.run(|application| application.restart(sizes));
        run.line_with(&[
            "NOTE",
            "waiting for the flush of dataset 1 `ckpt.1', left by an earlier run",
            "[SCR-811]",
        ]);
        // That of the flushes behind the application is loaded, and refused, all the same.
        let limited = |line: &&String| line.contains(share) && !line.contains("nothing is flushed with it");
        assert_eq!(run.lines.iter().find(limited), None);
    }
}

/// The job began, and each flush of it failed.
#[test]
fn a_job_whose_transport_has_no_library_does_not_begin() {
    let folder = TempDir::new().unwrap();
    let world = world("FLUSH=SYNC", &folder);
    std::fs::copy(plugins().join("sync.toml"), folder.path().join("sync.toml")).unwrap();
    let run = world.try_run(|begun| begun.err().expect("no run begins").to_string());
    assert!(run.ranks.iter().all(|why| why.contains("libscr_sync.so: No such file")), "{:?}", run.ranks);
}

/// The first flush said so, hours later.
#[test]
fn a_transport_without_the_library_of_its_vendor_is_reported_at_the_start() {
    let folder = TempDir::new().unwrap();
    let world = world("FLUSH=BBAPI LIBRARY=/nowhere/libbbAPI.so", &folder);
    let (library, exe) = ("libscr_bbapi.so", std::env::current_exe().unwrap());
    std::fs::copy(exe.with_file_name(library), folder.path().join(library)).unwrap();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/plugins.d/bbapi.toml");
    std::fs::copy(manifest, folder.path().join("bbapi.toml")).unwrap();
    let begun = world.run(|_| ());
    begun.line_with(&["ERROR", "/nowhere/libbbAPI.so", "nothing is flushed with it"]);
}

/// It stayed synchronous, with two warnings.
#[test]
fn an_asynchronous_flush_for_which_nobody_names_a_transport_is_made_by_threads() {
    let world = World::new(2, 2).set("SCR_FLUSH", "1").set("SCR_FLUSH_ASYNC", "1").set("SCR_DEBUG", "2");
    let run = world.run(|application| {
        application.checkpoint(1, sizes).unwrap();
        application.finalize().unwrap();
    });
    run.line_with(&["SCR_FLUSH_TYPE=PTHREAD"]);
    assert!(!run.has_line_with("WARNING"), "{:?}", run.lines);
    world.lose("n0");
    world.lose("n1");
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

/// It was after ten minutes, however fast it had been before.
#[test]
fn a_transport_that_has_returned_soon_before_is_named_as_early_as_a_scheme() {
    let folder = TempDir::new().unwrap();
    let goes_on = folder.path().join("goes_on");
    let world = world(&format!("FLUSH=TRY PANIC={}", goes_on.display()), &folder);
    let text = manifest("TRY", "transport", "libobedient.so") + "[capabilities]\nasynchronous = true\n";
    std::fs::write(folder.path().join("try.toml"), text).unwrap();
    let world = world.set("SCR_FLUSH_ASYNC", "1");
    std::fs::write(&goes_on, "").unwrap();
    let (together, ended) = (Barrier::new(4), AtomicBool::default());
    let run = world.run(|application| {
        application.checkpoint(1, sizes).unwrap();
        while !ended.load(Ordering::SeqCst) {
            application.session().need_checkpoint().unwrap();
            // It has copied nothing.
            ended.fetch_or(application.has_said("ckpt.1 was not flushed"), Ordering::SeqCst);
            together.wait();
        }
        let _ = std::fs::remove_file(&goes_on);
        application.checkpoint(2, sizes).unwrap();
        let has_said = || application.has_said("the transport TRY has not returned for");
        // Less than ten minutes in all.
        for _ in 0..6 {
            application.wait(80);
            let began = Instant::now();
            while !has_said() && !goes_on.exists() && began.elapsed() < Duration::from_secs(2) {
                std::thread::yield_now();
            }
        }
        let named = has_said();
        std::fs::write(&goes_on, "").unwrap();
        _ = application.finalize();
        named
    });
    assert!(run.ranks[0], "{}", run.lines.join("\n"));
}

/// Nothing said so.
#[test]
fn a_transport_that_does_not_return_is_named_with_its_ranks() {
    let folder = TempDir::new().unwrap();
    let goes_on = folder.path().join("goes_on");
    let world = world(&format!("FLUSH=TRY PANIC={}", goes_on.display()), &folder);
    let text = manifest("TRY", "transport", "libobedient.so") + "[capabilities]\nasynchronous = true\n";
    std::fs::write(folder.path().join("try.toml"), text).unwrap();
    let world = world.set("SCR_FLUSH_ASYNC", "1");
    let run = world.run(|application| {
        application.checkpoint(1, sizes).unwrap();
        wait_until(|| {
            application.wait(700);
            if application.has_said("the transport TRY has not returned for") {
                std::fs::write(&goes_on, "").unwrap();
            }
            goes_on.exists()
        });
        // It has copied nothing.
        application.finalize().is_ok()
    });
    run.line_with(&["ERROR", "the transport TRY has not returned for", "wait on rank 0 on n0", "[SCR-614]"]);
    let is_noted = || {
        let mut left = std::fs::read_dir(world.prefix().join(".scr")).unwrap().flatten();
        left.any(|entry| entry.file_name().to_string_lossy().starts_with("overdue."))
    };
    wait_until(|| !is_noted());
}
