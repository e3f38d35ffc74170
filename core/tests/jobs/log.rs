//! What a job writes to its log, and what it says at `SCR_DEBUG=1`: in the words of C SCR.

use super::world::{Outcome, World};
use scr_core::comm::Rank;
use scr_core::log;
use scr_core::session::OutputFlags;
use std::path::Path;

fn even(rank: Rank) -> Vec<usize> {
    vec![1000 + rank.index()]
}

fn logging(ranks: usize, nodes: usize) -> World {
    World::new(ranks, nodes)
        .set("SCR_LOG_ENABLE", "1")
        .set("SCR_LOG_SYSLOG_ENABLE", "0")
        .set("SCR_JOB_ID", "5132")
        .set("SCR_CACHE_SIZE", "2")
}

fn log_of(world: &World) -> Vec<scr_plugin_api::LogEntry> {
    let text = std::fs::read_to_string(world.prefix().join(".scr/log")).expect("there is a log");
    text.lines().map(|line| log::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// The lines with all that is the run's own taken out: times, sizes and paths.
fn shape(text: &str) -> Vec<String> {
    let of = |line: &str| {
        let mut entry = log::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        entry.local_time.clear();
        entry.host.clear();
        let hide = |field: &mut Option<String>| {
            if let Some(text) = field.as_mut().filter(|text| text.starts_with('/')) {
                "/".clone_into(text);
            }
        };
        hide(&mut entry.note);
        hide(&mut entry.from);
        hide(&mut entry.to);
        entry.seconds = entry.seconds.map(|_| 0.0);
        entry.bytes = entry.bytes.map(|_| 0);
        log::line(&entry)
    };
    text.lines().map(of).collect()
}

#[test]
fn a_job_as_c_scr_ran_it_writes_the_log_that_c_scr_wrote() {
    let world = logging(4, 4).set("SCR_FLUSH", "2");
    let outcome = world.run(|application| {
        for step in 1..=4 {
            application.checkpoint(step, even).unwrap();
        }
        application.finalize().unwrap();
    });
    let theirs =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr/xor-flush2/raw/prefix/.scr/log");
    let theirs = std::fs::read_to_string(theirs).unwrap();
    let ours = std::fs::read_to_string(world.prefix().join(".scr/log")).unwrap();
    assert_eq!(shape(&ours), shape(&theirs), "{}", outcome.lines.join("\n"));
}

#[test]
fn transfers_name_the_places_and_the_sizes() {
    let world = logging(4, 2).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, even).unwrap());
    let log = log_of(&world);
    let transfer = |name: &str| log.iter().find(|entry| entry.name == name).unwrap();
    let cache = world.node("n0").join("user1/scr.5132/scr.dataset.1").display().to_string();
    for name in ["WRITE", "ENCODE", "CHECKPOINT"] {
        assert_eq!(transfer(name).to.as_deref(), Some(cache.as_str()), "{name}");
    }
    let flush = transfer("FLUSH_SYNC");
    assert_eq!(flush.from.as_deref(), Some(cache.as_str()));
    assert_eq!(flush.to.as_deref(), Some(world.prefix().display().to_string().as_str()));
    assert_eq!((flush.bytes, flush.files), (Some(4006), Some(4)));
    assert!(log.iter().all(|entry| entry.host == "n0" && entry.job_id == "5132"));
}

/// The names of the events, and of the transfers.
fn names(world: &World) -> Vec<String> {
    log_of(world).into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_restart_logs_what_was_rebuilt_and_a_fetch_what_was_fetched() {
    let world = logging(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, even).unwrap());
    world.lose("n1");
    world.run(|application| application.restart(even)).all_gave(&Some(1));
    for node in ["n0", "n1", "n2"] {
        world.lose(node);
    }
    world.run(|application| application.restart(even)).all_gave(&Some(1));
    let names = names(&world);
    let runs: Vec<&[String]> = names.split(|name| name == "START").skip(1).collect();
    assert_eq!(
        runs[1],
        ["REBUILD_START", "REBUILD_SUCCESS", "COMPUTE_START", "RESTART_START", "RESTART_SUCCESS"]
    );
    let fetched = [
        "REBUILD_START",
        "REBUILD_FAIL",
        "FETCH_START",
        "FETCH_SUCCESS",
        "FETCH",
        "COMPUTE_START",
        "RESTART_START",
        "RESTART_SUCCESS",
    ];
    assert_eq!(runs[2], fetched);
}

#[test]
fn failures_are_logged_with_their_reasons() {
    let world = logging(2, 2);
    world.run(|application| {
        let flags = OutputFlags { checkpoint: true, output: false };
        application.session().start_output(Some(b"bad"), flags).unwrap();
        let valid = application.rank == Rank(0);
        application.session().complete_output(valid).unwrap_err();
    });
    let log = log_of(&world);
    let fail = log.iter().find(|entry| entry.name == "CHECKPOINT_FAIL").unwrap();
    assert!(fail.note.as_ref().unwrap().contains("rank 1"), "{fail:?}");
    assert_eq!((fail.dataset, fail.dataset_name.as_deref()), (Some(1), Some("bad")));
}

#[test]
fn a_dataset_that_is_no_checkpoint_is_logged_as_output() {
    let world = logging(2, 2);
    world.run(|application| {
        let flags = OutputFlags { checkpoint: false, output: true };
        application.session().start_output(Some(b"picture"), flags).unwrap();
        application.session().complete_output(true).unwrap();
    });
    let names = names(&world);
    let expected = [
        "OUTPUT_START",
        "WRITE",
        "ENCODE",
        "OUTPUT_END",
        "OUTPUT",
        "FLUSH_START",
        "FLUSH_SUCCESS",
        "FLUSH_SYNC",
    ];
    assert_eq!(names[3..names.len() - 1], expected);
}

#[test]
fn a_flush_is_logged_as_what_it_was_and_why_it_failed() {
    let world =
        logging(2, 2).set("SCR_FLUSH", "1").set("SCR_FLUSH_TYPE", "PTHREAD").set("SCR_FLUSH_ASYNC", "1");
    // In the place of a folder that the second one needs.
    std::fs::write(world.prefix().join("ckpt.2"), "in the way").unwrap();
    world.run(|application| {
        (1..=2).for_each(|step| application.checkpoint(step, even).unwrap());
        _ = application.finalize();
    });
    let log = log_of(&world);
    let of = |name: &str| {
        log.iter().filter(|entry| entry.name == name).map(|entry| entry.dataset).collect::<Vec<_>>()
    };
    assert_eq!((of("FLUSH_SUCCESS"), of("FLUSH_ASYNC")), (vec![Some(1)], vec![Some(1)]));
    assert!(of("FLUSH_SYNC").is_empty() && of("FLUSH_FAIL").contains(&Some(2)), "{log:#?}");
    let fail = log.iter().find(|entry| entry.name == "FLUSH_FAIL").unwrap();
    assert!(fail.note.as_ref().unwrap().contains("ckpt.2"), "{fail:?}");
}

#[test]
fn in_bypass_mode_no_message_mentions_encoding() {
    let world = logging(2, 2).set("SCR_CACHE_BYPASS", "1");
    world.run(|application| application.checkpoint(1, even).unwrap());
    let names = names(&world);
    assert!(names.contains(&"WRITE".to_owned()) && !names.contains(&"ENCODE".to_owned()), "{names:?}");
}

#[test]
fn a_halt_is_logged_once_with_its_reason() {
    let world = logging(2, 2).set("SCR_HALT_SECONDS", "600").set("SCR_END_TIME", "1000500");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, even).unwrap()));
    let log = log_of(&world);
    let halts: Vec<_> = log.iter().filter(|entry| entry.name == "HALT").collect();
    assert_eq!(halts.len(), 1, "{log:#?}");
    assert!(halts[0].note.as_ref().unwrap().contains("500 seconds are left in the allocation"), "{halts:?}");
}

#[test]
fn an_unwritable_log_is_reported_once_and_the_job_continues() {
    let world = logging(4, 2);
    std::fs::create_dir_all(world.prefix().join(".scr/log")).unwrap();
    let outcome = world.run(|application| {
        application.checkpoint(1, even).unwrap();
        application.checkpoint(2, even).unwrap();
    });
    let warnings = outcome.lines.iter().filter(|line| line.contains("logging to")).count();
    assert_eq!(warnings, 1, "{}", outcome.lines.join("\n"));
    outcome.line_with(&["WARNING", ".scr/log failed: cannot open it", "the job continues"]);
}

/// The lines of the run with the figures taken out.
fn words(lines: &[String]) -> Vec<String> {
    let is_figure = |word: &str| word.trim_end_matches(',').parse::<f64>().is_ok();
    let said = |line: &String| line.split_once(" on n0: ").map(|(_, said)| said.to_owned());
    let blank = |line: String| {
        line.split(' ').map(|word| if is_figure(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
    };
    lines.iter().filter_map(said).map(blank).collect()
}

fn assert_said<T>(outcome: &Outcome<T>, expected: &[&str]) {
    let words = words(&outcome.lines);
    for line in expected {
        assert!(words.iter().any(|said| said == line), "no `{line}' in\n{}", words.join("\n"));
    }
}

#[test]
fn the_debug_lines_have_the_words_of_c_scr() {
    let world = logging(4, 4).set("SCR_FLUSH", "2").set("SCR_CACHE_SIZE", "1");
    let outcome = world.run(|application| {
        application.checkpoint(1, even).unwrap();
        application.checkpoint(2, even).unwrap();
    });
    const SPEED: &str = "# secs, # files, # bytes, # MB/s, # MB/s per proc";
    let speed = |what: &str| format!("{what}: {SPEED}");
    assert_said(
        &outcome,
        &[
            "scr_fetch_latest: return code # # secs",
            "Starting dataset # `ckpt.1'",
            "scr_start_output: # secs",
            &speed("app write stats"),
            &speed("scr write stats"),
            &speed("scr_reddesc_apply"),
            "scr_complete_output: # secs",
            "start to complete: # secs",
            "Deleting dataset # `ckpt.1' from cache",
            "Initiating flush of dataset # `ckpt.2'",
            &speed("scr_flush_sync"),
            "scr_flush_sync: Flush succeeded for dataset # `ckpt.2'",
        ],
    );
    world.lose("n1");
    let rebuilt = world.run(|application| application.restart(even));
    assert_said(
        &rebuilt,
        &[
            "Attempting to distribute and rebuild dataset #",
            "Rebuilt dataset #",
            "Scalable restart succeeded for checkpoint # took # secs",
        ],
    );
    for node in ["n0", "n1", "n2", "n3"] {
        world.lose(node);
    }
    let fetched = world.run(|application| application.restart(even));
    assert_said(
        &fetched,
        &[
            "Attempting fetch: ckpt.2",
            &speed("scr_reddesc_apply"),
            &speed("scr_fetch_dset"),
            "scr_fetch_latest: return code # # secs",
        ],
    );
}

#[test]
fn the_settings_are_listed_first_and_the_password_is_not() {
    let world = logging(4, 2).set("SCR_LOG_DB_PASS", "hunter2").set("SCR_LOG_DB_USER", "scr");
    let brief = world.run(|_| ());
    brief.line_with(&["rank 0 on n0: SCR_LOG_DB_USER=scr"]);
    brief.line_with(&["rank 0 on n0: SCR_LOG_DB_PASS=***"]);
    for unset in ["SCR_LOG_DB_HOST=", "SCR_FETCH_WIDTH=", "Store descriptors:", "hunter2"] {
        assert!(!brief.has_line_with(unset), "nobody has set {unset}");
    }
    let outcome = world.set("SCR_DEBUG", "2").run(|_| ());
    for info in scr_core::param::TABLE {
        let start = format!("rank 0 on n0: {}=", info.name);
        let listed = outcome.lines.iter().filter(|line| line.contains(&start)).count();
        assert_eq!(listed, 1, "{}", info.name);
    }
    outcome.line_with(&["SCR v", "rank 0 on n0: SCR_LOG_DB_PASS=***"]);
    outcome.line_with(&["rank 0 on n0: SCR_LOG_DB_HOST=(null)"]);
    outcome.line_with(&["rank 0 on n0: NPROCS=4"]);
    outcome.line_with(&["rank 0 on n0: NNODES=2"]);
    assert!(!outcome.has_line_with("hunter2"));
    let stores = outcome.line_with(&["Store descriptors:\n      STORE\n        /"]);
    assert!(stores.contains("\n          COUNT = 2"), "{stores}");
    let schemes = outcome.line_with(&["Redundancy descriptors:\n      CKPT\n        0\n"]);
    assert!(schemes.contains("\n          TYPE = XOR"), "{schemes}");
    outcome.line_with(&["Group descriptors:"]);
}

/// The log named the cache, in which nothing was.
#[test]
fn in_bypass_mode_the_log_names_the_prefix_directory_and_the_first_line_says_so() {
    let world = logging(2, 2).set("SCR_CACHE_BYPASS", "1").set("SCR_DEBUG", "1");
    let outcome = world.run(|application| application.checkpoint(1, even).unwrap());
    let (prefix, cache) = (world.prefix(), world.dir().join("nodes"));
    let (prefix, cache) = (prefix.display().to_string(), cache.display().to_string());
    let notes: Vec<_> =
        log_of(&world).into_iter().flat_map(|entry| [entry.note, entry.from, entry.to]).flatten().collect();
    assert!(notes.contains(&prefix), "{notes:?}");
    assert!(notes.iter().all(|note| !note.starts_with(&cache)), "{notes:?}");
    let first = outcome.lines.iter().find(|line| !line.contains("WARNING")).expect("a line");
    assert!(first.contains("nothing is kept on the nodes or protected by them"), "{first}");
    let cached =
        logging(2, 2).set("SCR_DEBUG", "1").run(|application| application.checkpoint(1, even).unwrap());
    assert!(!cached.has_line_with("nothing is kept on the nodes"), "{:?}", cached.lines);
}
