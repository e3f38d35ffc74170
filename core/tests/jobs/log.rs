//! The log entries of a job, and its output at `SCR_DEBUG=1`: in the words of C SCR.

use super::world::{Outcome, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::log;
use scr_core::session::OutputFlags;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

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

/// The entries of the event log.
fn events_of(world: &World) -> Vec<scr_plugin_api::LogEntry> {
    let text = std::fs::read_to_string(world.prefix().join(".scr/events")).expect("there is a log");
    text.lines().map(|line| log::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

#[test]
fn by_default_a_job_writes_the_event_log_and_none_of_c_scr() {
    let world = World::new(2, 2);
    let outcome = world.run(|application| {
        application.checkpoint(1, even).unwrap();
        application.finalize().unwrap();
    });
    let names: Vec<_> = events_of(&world).into_iter().map(|entry| entry.name).collect();
    let expected = [
        "START",
        "COMPUTE_START",
        "COMPUTE_END",
        "CHECKPOINT_START",
        "WRITE",
        "ENCODE",
        "CHECKPOINT_END",
        "CHECKPOINT",
        "COMPUTE_START",
        "HALT",
    ];
    assert_eq!(names, expected);
    assert!(!world.prefix().join(".scr/log").exists());
    assert!(!outcome.has_line_with("logging to"), "{:?}", outcome.lines);
    let entries = events_of(&world);
    assert!(entries.iter().all(|entry| entry.run.is_some() && entry.micros > 0));
    let encode = entries.iter().find(|entry| entry.name == "ENCODE").unwrap();
    assert_eq!(encode.scheme.as_deref(), Some("XOR"));
    let off = World::new(2, 2).set("SCR_LOG_ENABLE", "0");
    off.run(|application| application.checkpoint(1, even).unwrap());
    assert!(!off.prefix().join(".scr/events").exists() && !off.prefix().join(".scr/log").exists());
}

#[test]
fn a_part_of_c_scrs_log_is_written_for_who_sets_that_part() {
    let world = World::new(2, 2).set("SCR_LOG_TXT_ENABLE", "1");
    world.run(|application| application.checkpoint(1, even).unwrap());
    assert!(world.prefix().join(".scr/log").exists() && world.prefix().join(".scr/events").exists());
    let none = World::new(2, 2).set("SCR_LOG_TXT_ENABLE", "1").set("SCR_LOG_ENABLE", "0");
    none.run(|application| application.checkpoint(1, even).unwrap());
    assert!(!none.prefix().join(".scr/log").exists());
}

/// Each of these would be a reason for a job to stop or to wait.
#[test]
fn whatever_is_wrong_with_the_event_log_the_job_goes_on() {
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 5] = [
        ("a folder", |path| std::fs::create_dir(path).unwrap()),
        ("a pipe", |path| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("a link to nowhere", |path| std::os::unix::fs::symlink("/nowhere/at/all", path).unwrap()),
        ("bytes", |path| std::fs::write(path, [0xff, 0, 10, 13, b'{', 0xc3, 0x28]).unwrap()),
        ("one long line", |path| std::fs::write(path, vec![b'x'; 20 << 20]).unwrap()),
    ];
    for (what, spoil) in spoils {
        let world = World::new(2, 2).set("SCR_FLUSH", "1");
        std::fs::create_dir(world.prefix().join(".scr")).unwrap();
        spoil(&world.prefix().join(".scr/events"));
        let outcome = world.run(|application| {
            (1..=3).for_each(|step| application.checkpoint(step, even).unwrap());
            application.finalize().unwrap();
        });
        let warnings = outcome.lines.iter().filter(|line| line.contains("logging to")).count();
        assert!(warnings <= 1, "{what}: {}", outcome.lines.join("\n"));
        outcome.line_with(&["goodput: "]);
        world.run(|application| application.restart(even)).all_gave(&Some(3));
    }
}

#[test]
fn a_full_disk_under_the_event_log_fails_no_call_and_is_said_once() {
    let mut world = World::new(2, 2);
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Append && path.ends_with(".scr/events"));
    world.own_files.insert(Rank(0), Arc::new(files.clone()));
    files.fail_from(2, ErrorKind::StorageFull);
    let outcome = world.run(|application| {
        (1..=3).for_each(|step| application.checkpoint(step, even).unwrap());
        application.finalize().unwrap();
    });
    let warnings = outcome.lines.iter().filter(|line| line.contains("logging to")).count();
    assert_eq!(warnings, 1, "{}", outcome.lines.join("\n"));
    outcome.line_with(&["WARNING", ".scr/events failed: cannot", "tries again", "SCR_LOG_ENABLE=0"]);
}

#[test]
fn a_job_ends_with_five_lines_of_what_all_its_runs_have_cost() {
    let world = World::new(4, 4).set("SCR_DEBUG", "1").set("SCR_FLUSH", "2");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, even).unwrap()));
    world.lose("n1");
    let outcome = world.run(|application| {
        assert_eq!(application.restart(even), Some(3));
        application.checkpoint(4, even).unwrap();
        application.finalize().unwrap();
    });
    let begins =
        ["goodput: ", "checkpoints: 4 in ", "waiting for flushes: ", "restarts and rebuilds: ", "bytes: "];
    let place = outcome.lines.iter().position(|line| line.contains(begins[0])).expect("a block");
    for (line, begin) in outcome.lines[place..].iter().zip(begins) {
        assert!(line.contains(&format!("rank 0 on n0: {begin}")), "{line}");
    }
    outcome.line_with(&["goodput: ", "(2 runs, 1 failure)"]);
    outcome.line_with(&["; computed twice: "]);
    outcome.line_with(&["bytes: written to ", "encoded with XOR ", "flushed while waiting "]);
    let rebuilt: Vec<_> = events_of(&world).into_iter().filter(|entry| entry.name == "REBUILT").collect();
    assert_eq!((rebuilt.len(), rebuilt[0].processes, rebuilt[0].bytes), (1, Some(1), Some(0)));
    let nothing = World::new(2, 2).run(|application| application.finalize().unwrap());
    assert!(!nothing.has_line_with("goodput"), "nothing was written: {:?}", nothing.lines);
    let quiet = World::new(2, 2).set("SCR_DEBUG", "0").run(|application| {
        application.checkpoint(1, even).unwrap();
        application.finalize().unwrap();
    });
    assert_eq!(quiet.lines, Vec::<String>::new(), "scr run says it");
}

#[test]
fn metrics_are_written_once_in_a_while_by_one_rank_and_say_when_the_job_has_ended() {
    let world = World::new(4, 2);
    let dir = world.dir().join("metrics");
    std::fs::create_dir(&dir).unwrap();
    let world = world.set("SCR_METRICS_DIR", &dir.display().to_string()).set("SCR_FLUSH", "2");
    let read = |node: &str| {
        let mut found = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let path = found.find(|path| path.display().to_string().contains(&format!(".{node}."))).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    world.run(|application| {
        application.checkpoint(1, even).unwrap();
        if application.rank == Rank(0) {
            assert_eq!(value(&read("n0"), "scr_checkpoints_total"), Some(0.0), "the last file is not old");
        }
        application.wait(15);
        application.checkpoint(2, even).unwrap();
        application.finalize().unwrap();
    });
    let text = read("n0");
    assert_eq!(value(&text, "scr_checkpoints_total"), Some(2.0), "{text}");
    assert_eq!(value(&text, "scr_job_running"), Some(0.0));
    assert_eq!(value(&text, "scr_node_losses_survived"), Some(2.0), "all, as it is flushed");
    assert_eq!(value(&text, "scr_checkpoint_bytes_total"), Some(2.0 * 4006.0));
    assert!(!text.contains(" -0"), "{text}");
    assert!(!text.contains("rank="), "a label for each rank would be too many series");
    assert_eq!(
        std::fs::read_dir(&dir).unwrap().count(),
        1,
        "the same figures from each node would be too many"
    );
    let nowhere = World::new(2, 2).set("SCR_METRICS_DIR", "/nowhere/at/all");
    let outcome = nowhere.run(|application| application.checkpoint(1, even).unwrap());
    outcome.line_with(&["WARNING", "the metrics of this job cannot be written", "/nowhere/at/all"]);
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
    ["n0", "n1"].into_iter().for_each(|node| world.lose(node));
    let fetched = world.run(|application| application.restart(even));
    assert_said(
        &fetched,
        &[
            "Failed to rebuild dataset #",
            "Scalable restart failed, took # secs",
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
    for unset in ["SCR_LOG_DB_HOST=", "SCR_FETCH_WIDTH=", "hunter2"] {
        assert!(!brief.has_line_with(unset), "nobody has set {unset}");
    }
    let stores = brief.line_with(&["Store descriptors:\n      STORE\n        /"]);
    assert!(stores.contains("\n          COUNT = 2"), "{stores}");
    let schemes = brief.line_with(&["Redundancy descriptors:\n      CKPT\n        0\n"]);
    assert!(schemes.contains("\n          TYPE = XOR"), "{schemes}");
    brief.line_with(&["Group descriptors:"]);
    let outcome = world.set("SCR_DEBUG", "2").run(|_| ());
    for info in scr_config::param::TABLE {
        let start = format!("rank 0 on n0: {}=", info.name);
        let listed = outcome.lines.iter().filter(|line| line.contains(&start)).count();
        assert_eq!(listed, 1, "{}", info.name);
    }
    outcome.line_with(&["SCR v", "rank 0 on n0: SCR_LOG_DB_PASS=***"]);
    outcome.line_with(&["rank 0 on n0: SCR_LOG_DB_HOST=(null)"]);
    outcome.line_with(&["rank 0 on n0: NPROCS=4"]);
    outcome.line_with(&["rank 0 on n0: NNODES=2"]);
    assert!(!outcome.has_line_with("hunter2"));
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
