//! Small jobs, each of which returns whether it sees the effect of a parameter.

use super::Setting;
use crate::damage::flip;
use crate::world::{files_below, mode, plugins, Application, Outcome, World};
use scr_base::env::Link;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_prefix::{Halt, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_plugins::{built, manifest};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

pub(super) fn pass_through(setting: &Setting) -> bool {
    begins(&setting.on(one().set("SCR_ENABLE", "0")))
}

pub(super) fn debug(setting: &Setting) -> bool {
    let world = setting.on(one().unset("SCR_DEBUG"));
    checkpoints(&world, 1).has_line_with("Starting dataset")
}

pub(super) fn conf_file(setting: &Setting) -> bool {
    let world = one();
    std::fs::write(world.dir().join("mine.conf"), "SCR_ENABLE=0\n").unwrap();
    !begins(&setting.on(world))
}

pub(super) fn locked(setting: &Setting) -> bool {
    begins(&setting.on(one().set("SCR_ENABLE", "0")))
}

pub(super) fn prefix(setting: &Setting) -> bool {
    let world = one();
    std::fs::create_dir(world.dir().join("elsewhere")).unwrap();
    let world = setting.on(world);
    world.run(|_| ());
    world.dir().join("elsewhere/.scr").is_dir()
}

pub(super) fn cntl_base(setting: &Setting) -> bool {
    let world = setting.on(one());
    world.run(|_| world.dir().join("control/user1").is_dir()).ranks[0]
}

pub(super) fn cache_base(setting: &Setting) -> bool {
    let world = setting.on(one());
    checkpoints(&world, 1);
    !files_below(&world.dir().join("cache")).is_empty()
}

pub(super) fn cache_size(setting: &Setting) -> bool {
    let world = setting.on(one());
    checkpoints(&world, 2);
    is_cached(&world, "scr.dataset.1/")
}

pub(super) fn cache_purge(setting: &Setting) -> bool {
    restarts_after(setting, two(), "").is_none()
}

pub(super) fn copy_type(setting: &Setting) -> bool {
    let world = setting.on(two());
    checkpoints(&world, 1);
    world.lose("n1");
    restart(&world).is_none()
}

pub(super) fn group(setting: &Setting) -> bool {
    checkpoints(&setting.on(two()), 1).has_line_with("are not protected against the loss of a WORLD")
}

pub(super) fn set_size(setting: &Setting) -> bool {
    let world = setting.on(World::new(4, 4));
    checkpoints(&world, 1);
    // One of each pair, whether they are neighbours or not.
    world.lose("n0");
    world.lose("n3");
    restart(&world).is_some()
}

pub(super) fn set_failures(setting: &Setting) -> bool {
    let world = setting.on(World::new(4, 4).set("SCR_COPY_TYPE", "RS"));
    checkpoints(&world, 1);
    world.lose("n0");
    world.lose("n3");
    restart(&world).is_none()
}

pub(super) fn current(setting: &Setting) -> bool {
    let world = one().set("SCR_FLUSH", "1");
    checkpoints(&world, 2);
    world.lose("");
    restart(&setting.on(world)) == Some(1)
}

pub(super) fn distribute(setting: &Setting) -> bool {
    restarts_after(setting, two(), "").is_none()
}

pub(super) fn fetch(setting: &Setting) -> bool {
    restarts_after(setting, one().set("SCR_FLUSH", "1"), "n0").is_none()
}

pub(super) fn fetch_bypass(setting: &Setting) -> bool {
    let world = flushed_and_lost(setting, one());
    restart(&world);
    !is_cached(&world, "rank_0.0")
}

pub(super) fn fetch_width(setting: &Setting) -> bool {
    let sent = |setting: &Setting| {
        let world = flushed_and_lost(setting, two());
        messages(&world.run(|_| ()), "scr_fetch_latest")
    };
    // With one at a time, rank 0 sends rank 1 a message that it is its turn.
    sent(setting) > sent(&Setting::nowhere(setting))
}

pub(super) fn flush_type(setting: &Setting) -> bool {
    let world = setting.on(one().set("SCR_FLUSH", "1").set("SCR_FLUSH_ASYNC", "1"));
    !is_flushed_detached(&world)
}

pub(super) fn encode_async(setting: &Setting) -> bool {
    let world = setting.on(two());
    checkpoints(&world, 1);
    world.cached_files().iter().all(|path| !path.display().to_string().contains("/redundancy_"))
}

pub(super) fn tcp_interface(setting: &Setting) -> bool {
    let mut world = setting.on(two().set("SCR_ENCODE_ASYNC", "1"));
    world.link = Link::Tcp;
    checkpoints(&world, 1).has_line_with("SCR_TCP_INTERFACE=ib77 is neither a network interface")
}

pub(super) fn tcp_ports(setting: &Setting) -> bool {
    let mut world = setting.on(two().set("SCR_ENCODE_ASYNC", "1"));
    world.link = Link::Tcp;
    checkpoints(&world, 1).has_line_with("all ports of SCR_TCP_PORTS=51234-51234 are taken on this node")
}

pub(super) fn flush_width(setting: &Setting) -> bool {
    let shares_slots = |setting: &Setting| {
        let files = FaultyFiles::new(RealFiles);
        let mut world = setting.on(two().set("SCR_FLUSH", "1"));
        world.files = Arc::new(files.clone());
        checkpoints(&world, 1);
        let operations = files.operations();
        operations.iter().any(|done| done.what == What::MakeDir && done.path.ends_with(".scr/slots"))
    };
    let nowhere = Setting::nowhere(setting);
    // A width of 1 on two nodes takes a slot that both see. Each of two nodes has its half of a width of 256.
    shares_slots(setting)
        && !shares_slots(&nowhere)
        && width_of_node(setting).contains(" WIDTH=1: ")
        && width_of_node(&nowhere).contains(" WIDTH=128: ")
}

/// The message of a transport on a width that it does not accept.
fn width_of_node(setting: &Setting) -> String {
    let option = "[[option]]\nname = \"WIDTH\"\ntype = \"integer\"\nmax = 0\nhelp = \"none\"\n";
    let mut world = setting.on(with_plugin("transport", "TRY", option));
    world.nodes = ["n0", "n1"].map(str::to_owned).to_vec();
    checkpoints(&world, 1).line_with(&["the transport TRY takes"]).to_owned()
}

pub(super) fn flush_async(setting: &Setting) -> bool {
    let world = setting.on(one().set("SCR_FLUSH", "1").set("SCR_FLUSH_TYPE", "PTHREAD"));
    is_flushed_detached(&world)
}

pub(super) fn flush_async_bw(setting: &Setting) -> bool {
    transport_receives(setting, "BW")
}

pub(super) fn flush_async_percent(setting: &Setting) -> bool {
    transport_receives(setting, "PERCENT")
}

pub(super) fn flush_async_usleep(setting: &Setting) -> bool {
    transport_receives(setting, "USLEEP")
}

pub(super) fn flush_poststage(setting: &Setting) -> bool {
    let able = "[capabilities]\nasynchronous = true\nsurvives-job = true\n";
    let world = setting.on(with_plugin("transport", "TRY", able).set("SCR_FLUSH_ASYNC", "1"));
    let run = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        _ = application.finalize();
    });
    run.has_line_with("scr_poststage finishes it")
}

pub(super) fn flush_on_restart(setting: &Setting) -> bool {
    let world = one();
    checkpoints(&world, 1);
    let world = setting.on(world);
    world.run(|_| ());
    is_in_prefix(&world, 1)
}

pub(super) fn global_restart(setting: &Setting) -> bool {
    let world = one();
    checkpoints(&world, 1);
    let world = setting.on(world);
    let prefix = world.prefix().display().to_string();
    let read_at = world.run(|application| {
        application.session().start_restart().unwrap();
        application.session().route_file(b"ckpt.1/rank_0.0").unwrap()
    });
    read_at.ranks[0].starts_with(prefix.as_bytes())
}

pub(super) fn drop_after_current(setting: &Setting) -> bool {
    let world = one().set("SCR_FLUSH", "1");
    checkpoints(&world, 2);
    let world = setting.on(world.set("SCR_CURRENT", "ckpt.1"));
    world.lose("");
    world
        .run(|job| job.restart(some))
        .has_line_with("dropped from the index: 1 checkpoint newer than dataset 1")
}

pub(super) fn require_restart(setting: &Setting) -> bool {
    let world = one();
    checkpoints(&world, 1);
    let mut world = setting.on(world);
    world.nodes.push("n0".to_owned());
    world.try_run(|begun| begun.is_err()).ranks[0]
}

pub(super) fn strict(setting: &Setting) -> bool {
    let world = setting.on(one().set("SCR_FLUSH", "often"));
    world.try_run(|begun| begun.is_err()).ranks[0]
}

pub(super) fn restart_other_ranks(setting: &Setting) -> bool {
    let world = one().set("SCR_FLUSH", "1");
    checkpoints(&world, 1);
    let mut world = setting.on(world);
    world.nodes.push("n0".to_owned());
    world.run(|application| application.session().have_restart().unwrap().is_some()).ranks[0]
}

pub(super) fn replace_other_ranks(setting: &Setting) -> bool {
    let world = one().set("SCR_FLUSH", "1");
    checkpoints(&world, 1);
    let mut world = setting.on(world);
    world.nodes.push("n0".to_owned());
    world.run(|application| application.begin(1).is_ok()).ranks[0]
}

pub(super) fn prefix_size(setting: &Setting) -> bool {
    let world = setting.on(one().set("SCR_FLUSH", "1"));
    checkpoints(&world, 2);
    !is_in_prefix(&world, 1)
}

pub(super) fn prefix_purge(setting: &Setting) -> bool {
    let world = one().set("SCR_FLUSH", "1");
    checkpoints(&world, 1);
    // Or it would be flushed again.
    world.lose("");
    let world = setting.on(world);
    world.run(|_| ());
    !is_in_prefix(&world, 1)
}

pub(super) fn checkpoint_interval(setting: &Setting) -> bool {
    needs_checkpoint(&setting.on(one()))
}

/// If failures are frequent, another checkpoint is due soon.
pub(super) fn mtbf(setting: &Setting) -> bool {
    let world = setting.on(one().set("SCR_CHECKPOINT_INTERVAL", "AUTO").set("SCR_FLUSH", "1"));
    let outcome = world.run(|application| {
        application.begin(1).unwrap();
        application.wait(2);
        application.fill(1, some).unwrap();
        application.session().complete_output(true).unwrap();
        application.wait(60);
        application.session().need_checkpoint().unwrap()
    });
    outcome.ranks[0]
}

pub(super) fn checkpoint_seconds(setting: &Setting) -> bool {
    needs_checkpoint(&setting.on(one()))
}

pub(super) fn checkpoint_overhead(setting: &Setting) -> bool {
    // The cost of the first checkpoint is not known yet, so it is taken.
    needs_checkpoint(&setting.on(one().set("SCR_CHECKPOINT_INTERVAL", "1000")))
}

pub(super) fn restart_attempts(setting: &Setting) -> bool {
    let world = setting.on(one());
    checkpoints(&world, 1);
    let begins = |application: &mut Application| application.session().start_restart().is_ok();
    world.run(begins).all_gave(&true);
    !world.run(begins).ranks[0]
}

pub(super) fn halt_exit(setting: &Setting) -> bool {
    let world = setting.on(one());
    let reason = |halt: &mut Halt| halt.exit_reason = Some("ENOUGH".to_owned());
    Halt::update(&RealFiles, &Prefix::new(world.prefix()), reason).unwrap();
    world.run(|application| application.session().exit_wanted().is_some()).ranks[0]
}

pub(super) fn halt_seconds(setting: &Setting) -> bool {
    should_exit(&setting.on(one().set("SCR_END_TIME", "1000500")))
}

pub(super) fn crc_on_copy(setting: &Setting) -> bool {
    let world = setting.on(one().set("SCR_COPY_TYPE", "SINGLE"));
    checkpoints(&world, 1);
    flip(&world.cached_file(&["rank_0.0"]), 7);
    world.run(|application| application.session().have_restart().unwrap().is_none()).ranks[0]
}

pub(super) fn crc_on_flush(setting: &Setting) -> bool {
    let world = setting.on(two().set("SCR_FLUSH", "2"));
    let ended = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if application.rank == Rank(0) {
            flip(&world.cached_file(&["rank_0.0"]), 7);
        }
        application.finalize().is_ok()
    });
    ended.ranks[0]
}

pub(super) fn crc_on_delete(setting: &Setting) -> bool {
    let world = setting.on(two());
    let run = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if application.rank == Rank(0) {
            flip(&world.cached_file(&["rank_0.0"]), 7);
        }
        application.checkpoint(2, some).unwrap();
    });
    run.has_line_with("deleted from cache anyway")
}

pub(super) fn copy_metadata(setting: &Setting) -> bool {
    let world = setting.on(two().set("SCR_FLUSH", "1"));
    checkpoints(&world, 1);
    let is_other = |path: &Path, rank| {
        let found = std::fs::metadata(path).unwrap();
        found.permissions().mode() & 0o777 != mode(rank, 0).mode()
    };
    let fetched = flushed_and_lost(setting, two());
    fetched.run(|_| ());
    is_other(&world.prefix().join("ckpt.1/rank_1.0"), Rank(1))
        && is_other(&fetched.cached_file(&["rank_0.0"]), Rank(0))
}

pub(super) fn axl_mkdir(setting: &Setting) -> bool {
    let mut world = setting.on(two().set("SCR_FLUSH", "1"));
    let files = [Rank(0), Rank(1)].map(|rank| (rank, FaultyFiles::new(RealFiles)));
    for (rank, files) in &files {
        world.own_files.insert(*rank, Arc::new(files.clone()));
    }
    checkpoints(&world, 1);
    let folder = world.prefix().join("ckpt.1");
    files.iter().all(|(_, files)| {
        files.operations().iter().any(|done| done.what == What::MakeDir && done.path == folder)
    })
}

pub(super) fn mpi_buf_size(setting: &Setting) -> bool {
    let sent = |setting: &Setting| messages(&checkpoints(&setting.on(two()), 1), "scr_reddesc_apply");
    // A block of 4 KiB at a time, where all would go in one.
    sent(setting) > sent(&Setting::nowhere(setting))
        && comes_in_blocks(setting, |world| world.nodes.reverse())
        && comes_in_blocks(setting, |world| world.lose("n1"))
}

/// Whether a file that comes from other nodes, once this has happened to them, arrives 4 KiB at a time.
fn comes_in_blocks(setting: &Setting, happen: impl FnOnce(&mut World)) -> bool {
    let mut world = setting.on(two());
    checkpoints(&world, 1);
    happen(&mut world);
    let files = FaultyFiles::new(RealFiles);
    world.files = Arc::new(files.clone());
    assert_eq!(restart(&world), Some(1));
    files.operations().iter().any(|done| done.what == What::Write && done.bytes == 4096)
}

pub(super) fn file_buf_size(setting: &Setting) -> bool {
    let in_blocks = |mut world: World, what: What, run: &dyn Fn(&World)| {
        let files = FaultyFiles::new(RealFiles);
        world.files = Arc::new(files.clone());
        run(&world);
        let operations = files.operations();
        let mut done = operations.iter().filter(|done| done.what == what && done.path.ends_with("rank_0.0"));
        done.any(|done| done.bytes == 4096)
    };
    // A fetch writes so, and a flush reads so what is in place.
    in_blocks(flushed_and_lost(setting, one()), What::Write, &|world| assert_eq!(restart(world), Some(1)))
        && in_blocks(setting.on(one().set("SCR_CACHE_BYPASS", "1")), What::Read, &|world| {
            checkpoints(world, 1);
        })
}

pub(super) fn plugin_path(setting: &Setting) -> bool {
    let world = setting.on(one());
    // No scheme is found there, and no session begins.
    world.try_run(|application| application.is_err()).ranks[0]
}

pub(super) fn node_name(setting: &Setting) -> bool {
    let mut world = one();
    world.nodes = vec![String::new()];
    let base = world.node("all").display().to_string();
    let world = setting.on(world.set("SCR_CACHE_BASE", &base).set("SCR_CNTL_BASE", &base));
    world.run(|_| ()).has_line_with("rank 0 on elsewhere: ")
}

pub(super) fn user_name(setting: &Setting) -> bool {
    let world = setting.on(one());
    checkpoints(&world, 1);
    is_cached(&world, "/user2/")
}

pub(super) fn job_id(setting: &Setting) -> bool {
    let world = setting.on(one());
    checkpoints(&world, 1);
    is_cached(&world, "/scr.77/")
}

pub(super) fn job_name(setting: &Setting) -> bool {
    summary_has(setting, b"job7")
}

pub(super) fn cluster_name(setting: &Setting) -> bool {
    summary_has(setting, b"cluster7")
}

pub(super) fn end_time(setting: &Setting) -> bool {
    should_exit(&setting.on(one().set("SCR_HALT_SECONDS", "600")))
}

pub(super) fn log_enable(setting: &Setting) -> bool {
    has_log(&setting.on(logging().unset("SCR_LOG_ENABLE")))
}

pub(super) fn log_txt_enable(setting: &Setting) -> bool {
    !has_log(&setting.on(logging()))
}

pub(super) fn log_syslog_enable(setting: &Setting) -> bool {
    let odd = logging().unset("SCR_LOG_SYSLOG_ENABLE").set("SCR_LOG_SYSLOG_FACILITY", "LOG_LOCAL9");
    !checkpoints(&setting.on(odd), 1).has_line_with("logging to syslog failed")
}

pub(super) fn log_syslog_facility(setting: &Setting) -> bool {
    syslog_refuses(setting, "`LOG_LOCAL9'")
}

pub(super) fn log_syslog_level(setting: &Setting) -> bool {
    syslog_refuses(setting, "`LOG_LOUD'")
}

pub(super) fn log_db_enable(setting: &Setting) -> bool {
    // Its plugin is not among those of these tests.
    checkpoints(&setting.on(logging().set("SCR_LOG_DB_HOST", "db")), 1).has_line_with("MYSQL")
}

pub(super) fn log_db_debug(setting: &Setting) -> bool {
    let option = "[[option]]\nname = \"DEBUG\"\ntype = \"integer\"\nmin = 0\nmax = 0\nhelp = \"none\"\n\
                      [[option]]\nname = \"HOST\"\ntype = \"text\"\nhelp = \"any\"\n";
    let world = with_plugin("log", "MYSQL", option).set("SCR_LOG_ENABLE", "1").set("SCR_LOG_DB_ENABLE", "1");
    let world = world.set("SCR_LOG_SYSLOG_ENABLE", "0").set("SCR_LOG_DB_HOST", "db");
    checkpoints(&setting.on(world), 1).has_line_with("DEBUG=1: ")
}

pub(super) fn report(setting: &Setting) -> bool {
    let outcome = setting.on(one()).run(|application| {
        application.checkpoint(1, some).expect("it is complete");
        application.finalize().expect("it ends");
    });
    !outcome.has_line_with("goodput: ")
}

pub(super) fn metrics_dir(setting: &Setting) -> bool {
    let world = setting.on(one());
    let metrics = world.dir().join("metrics");
    std::fs::create_dir(&metrics).expect("a folder of the world");
    checkpoints(&world, 1);
    std::fs::read_dir(&metrics).expect("it can be listed").count() == 1
}

/// Two blocks of the least size, and a bit.
fn some(rank: Rank) -> Vec<usize> {
    vec![9000 + rank.index()]
}

pub(super) fn one() -> World {
    World::new(1, 1)
}

fn two() -> World {
    World::new(2, 2)
}

fn checkpoints(world: &World, count: u64) -> Outcome<()> {
    world.run(|application| (1..=count).for_each(|step| application.checkpoint(step, some).unwrap()))
}

fn restart(world: &World) -> Option<u64> {
    let step = |application: &mut Application| application.restart(some);
    world.run(step).ranks[0]
}

/// The step from which a job with the setting restarts. A run without it has written a checkpoint, and then a node may be lost.
fn restarts_after(setting: &Setting, world: World, lost: &str) -> Option<u64> {
    checkpoints(&world, 1);
    if !lost.is_empty() {
        world.lose(lost);
    }
    restart(&setting.on(world))
}

/// A checkpoint is in the prefix directory alone, and the next run has the setting.
fn flushed_and_lost(setting: &Setting, world: World) -> World {
    let world = world.set("SCR_FLUSH", "1");
    checkpoints(&world, 1);
    world.lose("");
    setting.on(world)
}

fn is_cached(world: &World, word: &str) -> bool {
    world.cached_files().iter().any(|path| path.display().to_string().contains(word))
}

fn is_in_prefix(world: &World, step: u64) -> bool {
    world.prefix().join(format!("ckpt.{step}/rank_0.0")).exists()
}

pub(super) fn is_in_prefix_after_a_checkpoint(setting: &Setting) -> bool {
    let world = setting.on(one());
    checkpoints(&world, 1);
    is_in_prefix(&world, 1)
}

fn begins(world: &World) -> bool {
    world.try_run(|application| application.is_ok()).ranks[0]
}

pub(super) fn enable(setting: &Setting) -> bool {
    !begins(&setting.on(one()))
}

fn needs_checkpoint(world: &World) -> bool {
    let outcome = world.run(|application| {
        let first = application.session().need_checkpoint().unwrap();
        application.wait(1000);
        first || application.session().need_checkpoint().unwrap()
    });
    outcome.ranks[0]
}

fn should_exit(world: &World) -> bool {
    world.run(|application| application.session().should_exit().unwrap()).ranks[0]
}

fn is_flushed_detached(world: &World) -> bool {
    let run = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.finalize().unwrap();
    });
    run.has_line_with("scr_flush_async: Flush succeeded")
}

/// How many messages rank 0 sent, as the line says that begins so.
fn messages<T>(outcome: &Outcome<T>, what: &str) -> u64 {
    let line = outcome.line_with(&[what, "rank 0 sent"]);
    line.split_once("rank 0 sent ").unwrap().1.split(' ').next().unwrap().parse().unwrap()
}

/// A job that flushes, with one more plugin, whose manifest has these lines.
fn with_plugin(kind: &str, name: &str, lines: &str) -> World {
    let world = one().set("SCR_FLUSH", "1").set("SCR_FLUSH_TYPE", if kind == "log" { "SYNC" } else { name });
    let folder = world.dir().join("more");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(built("obedient"), folder.join("libobedient.so")).unwrap();
    let text = manifest(name, kind, "libobedient.so") + lines;
    std::fs::write(folder.join("more.toml"), text).unwrap();
    let path = format!("{}:{}", folder.display(), plugins().display());
    world.set("SCR_PLUGIN_PATH", &path)
}

/// Whether a transport receives the value: a transport that refuses it as too large, with a message.
fn transport_receives(setting: &Setting, option: &str) -> bool {
    let lines =
        format!("[[option]]\nname = \"{option}\"\ntype = \"integer\"\nmax = 9\nhelp = \"at most 9\"\n");
    let world = setting.on(with_plugin("transport", "TRY", &lines).set("SCR_FLUSH_ASYNC", "1"));
    checkpoints(&world, 1).has_line_with(&format!("{option}={}: ", setting.value))
}

/// Whether what is known of a flushed dataset has this word.
fn summary_has(setting: &Setting, word: &[u8]) -> bool {
    let world = setting.on(one().set("SCR_FLUSH", "1"));
    checkpoints(&world, 1);
    let files = files_below(&world.prefix().join(".scr"));
    let mut summaries = files.iter().filter(|path| path.display().to_string().contains("summary"));
    summaries.any(|path| std::fs::read(path).unwrap().windows(word.len()).any(|found| found == word))
}

/// A job that logs to its text file.
fn logging() -> World {
    one().set("SCR_LOG_ENABLE", "1").set("SCR_LOG_SYSLOG_ENABLE", "0")
}

fn has_log(world: &World) -> bool {
    checkpoints(world, 1);
    world.prefix().join(".scr/log").exists()
}

fn syslog_refuses(setting: &Setting, value: &str) -> bool {
    let world = setting.on(logging().set("SCR_LOG_SYSLOG_ENABLE", "1"));
    checkpoints(&world, 1).has_line_with(value)
}
