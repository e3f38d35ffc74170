//! Each parameter has its effect on a running job, from each source that it can be set in, and there is none without it.
//!
//! One row per parameter of the table: a value, and a small job that returns whether it sees the effect of the value. If only
//! other programs show the effect, the row names the test there.

mod seen;

use super::world::{Source, World};
use scr_comm::Rank;
use scr_config::param::{self, AppConfig, Kind, Origin, Params, Scope, Settings, APP_CONF, TABLE};
use std::collections::BTreeSet;
use std::path::Path;

/// A parameter, a value, and where its effect is seen. `{dir}` in the value is the folder of the world.
struct Row(&'static str, &'static str, Seen);

enum Seen {
    /// In a job of this test.
    Here(fn(&Setting) -> bool),
    /// By a test of a file of the repository.
    By(&'static str, &'static str),
}

use Seen::{By, Here};

const BEHIND: &str = "core/tests/jobs/behind.rs";
const SETTINGS: &str = "core/config/src/param/settings.rs";
const SCR_RUN: &str = "tools/tests/commands/run.rs";
const DATABASE: &str = "tests/tests/jobs/database.rs";
const TLS: &str = "plugins/mysql/tests/tls.rs";
const ROWS_OF_DATABASE: &str = "events_and_transfers_of_a_job_are_rows_of_the_database";

const ROWS: &[Row] = &[
    Row("SCR_ENABLE", "0", Here(seen::enable)),
    Row("SCR_PASS_THROUGH", "1", Here(seen::pass_through)),
    Row("SCR_DEBUG", "1", Here(seen::debug)),
    Row("SCR_CONF_FILE", "{dir}/mine.conf", Here(seen::conf_file)),
    Row("SCR_GROUPS_FILE", "{dir}/groups", By(SETTINGS, "a_file_of_groups_gives_lines_that_others_go_before")),
    Row("SCR_LOCKED", "SCR_ENABLE", Here(seen::locked)),
    Row(
        "SCR_SAFE_PREFIX",
        "/pfs",
        By("core/config/src/param/safe.rs", "a_prefix_directory_is_allowed_from_outside_and_not_by_itself"),
    ),
    Row("SCR_PREFIX", "{dir}/elsewhere", Here(seen::prefix)),
    Row("SCR_CNTL_BASE", "{dir}/control", Here(seen::cntl_base)),
    Row("SCR_CACHE_BASE", "{dir}/cache", Here(seen::cache_base)),
    Row("SCR_CACHE_SIZE", "2", Here(seen::cache_size)),
    Row("SCR_CACHE_BYPASS", "1", Here(seen::is_in_prefix_after_a_checkpoint)),
    Row("SCR_CACHE_PURGE", "1", Here(seen::cache_purge)),
    Row("SCR_COPY_TYPE", "SINGLE", Here(seen::copy_type)),
    Row("SCR_GROUP", "WORLD", Here(seen::group)),
    Row("SCR_SET_SIZE", "2", Here(seen::set_size)),
    Row("SCR_SET_FAILURES", "1", Here(seen::set_failures)),
    Row("SCR_CURRENT", "ckpt.1", Here(seen::current)),
    Row("SCR_DISTRIBUTE", "0", Here(seen::distribute)),
    Row("SCR_FETCH", "0", Here(seen::fetch)),
    Row("SCR_FETCH_BYPASS", "1", Here(seen::fetch_bypass)),
    Row("SCR_FETCH_WIDTH", "1", Here(seen::fetch_width)),
    Row("SCR_FLUSH", "1", Here(seen::is_in_prefix_after_a_checkpoint)),
    Row("SCR_FLUSH_TYPE", "SYNC", Here(seen::flush_type)),
    Row("SCR_ENCODE_ASYNC", "1", Here(seen::encode_async)),
    Row("SCR_ENCODE_ASYNC_BW", "1", By(BEHIND, "a_limit_holds_while_the_application_computes")),
    Row("SCR_ENCODE_ASYNC_PERCENT", "1", By(BEHIND, "a_limit_holds_while_the_application_computes")),
    Row("SCR_TCP_INTERFACE", "ib77", Here(seen::tcp_interface)),
    Row("SCR_TCP_PORTS", "51234-51234", Here(seen::tcp_ports)),
    Row("SCR_FLUSH_WIDTH", "1", Here(seen::flush_width)),
    Row("SCR_FLUSH_ASYNC", "1", Here(seen::flush_async)),
    Row("SCR_FLUSH_ASYNC_BW", "1000", Here(seen::flush_async_bw)),
    Row("SCR_FLUSH_ASYNC_PERCENT", "50", Here(seen::flush_async_percent)),
    Row("SCR_FLUSH_ASYNC_USLEEP", "77777", Here(seen::flush_async_usleep)),
    Row("SCR_FLUSH_POSTSTAGE", "1", Here(seen::flush_poststage)),
    Row("SCR_FLUSH_ON_RESTART", "1", Here(seen::flush_on_restart)),
    Row("SCR_GLOBAL_RESTART", "1", Here(seen::global_restart)),
    Row("SCR_RESTART_ATTEMPTS", "1", Here(seen::restart_attempts)),
    Row("SCR_DROP_AFTER_CURRENT", "1", Here(seen::drop_after_current)),
    Row("SCR_REQUIRE_RESTART", "1", Here(seen::require_restart)),
    Row(
        "SCR_SHARE_PREFIX",
        "1",
        By("core/tests/jobs/keeping.rs", "a_job_does_not_begin_beside_another_one_that_lives_beyond_doubt"),
    ),
    Row("SCR_STRICT", "1", Here(seen::strict)),
    Row("SCR_RESTART_OTHER_RANKS", "1", Here(seen::restart_other_ranks)),
    Row("SCR_REPLACE_OTHER_RANKS", "1", Here(seen::replace_other_ranks)),
    Row("SCR_PREFIX_SIZE", "1", Here(seen::prefix_size)),
    Row("SCR_PREFIX_PURGE", "1", Here(seen::prefix_purge)),
    Row("SCR_CHECKPOINT_INTERVAL", "2", Here(seen::checkpoint_interval)),
    Row("SCR_MTBF_NODE", "1", Here(seen::mtbf)),
    Row("SCR_MTBF_SYSTEM", "1", Here(seen::mtbf)),
    Row("SCR_CHECKPOINT_SECONDS", "1000", Here(seen::checkpoint_seconds)),
    Row("SCR_CHECKPOINT_OVERHEAD", "1", Here(seen::checkpoint_overhead)),
    Row("SCR_HALT_EXIT", "1", Here(seen::halt_exit)),
    Row("SCR_HALT_SECONDS", "600", Here(seen::halt_seconds)),
    Row("SCR_CRC_ON_COPY", "1", Here(seen::crc_on_copy)),
    Row("SCR_CRC_ON_FLUSH", "0", Here(seen::crc_on_flush)),
    Row("SCR_CRC_ON_DELETE", "1", Here(seen::crc_on_delete)),
    Row("SCR_COPY_METADATA", "0", Here(seen::copy_metadata)),
    Row("SCR_AXL_MKDIR", "1", Here(seen::axl_mkdir)),
    Row("SCR_MPI_BUF_SIZE", "4096", Here(seen::mpi_buf_size)),
    Row("SCR_FILE_BUF_SIZE", "4096", Here(seen::file_buf_size)),
    Row("SCR_PLUGIN_PATH", "{dir}/none", Here(seen::plugin_path)),
    Row("SCR_NODE_NAME", "elsewhere", Here(seen::node_name)),
    Row("SCR_NODELIST", "n[0-4]", By(SCR_RUN, "nodes_that_are_left_out_or_have_gone_get_no_ranks")),
    Row("SCR_USER_NAME", "user2", Here(seen::user_name)),
    Row("SCR_JOB_ID", "77", Here(seen::job_id)),
    Row("SCR_JOB_NAME", "job7", Here(seen::job_name)),
    Row("SCR_CLUSTER_NAME", "cluster7", Here(seen::cluster_name)),
    Row("SCR_END_TIME", "1000500", Here(seen::end_time)),
    Row(
        "SCR_RUNS",
        "2",
        By(SCR_RUN, "a_job_that_fails_is_started_again_until_it_succeeds_or_has_no_runs_left"),
    ),
    Row(
        "SCR_SCAVENGE",
        "0",
        By(
            SCR_RUN,
            "the_last_checkpoint_of_a_finished_job_is_saved_also_if_no_flush_file_lists_it_unless_it_was_dropped",
        ),
    ),
    Row("SCR_MIN_NODES", "4", By(SCR_RUN, "with_too_few_nodes_a_job_is_not_started_again")),
    Row("SCR_EXCLUDE_NODES", "n4", By(SCR_RUN, "nodes_that_are_left_out_or_have_gone_get_no_ranks")),
    Row("SCR_LOG_ENABLE", "1", Here(seen::log_enable)),
    Row("SCR_LOG_TXT_ENABLE", "0", Here(seen::log_txt_enable)),
    Row("SCR_LOG_SYSLOG_ENABLE", "0", Here(seen::log_syslog_enable)),
    Row("SCR_LOG_SYSLOG_FACILITY", "LOG_LOCAL9", Here(seen::log_syslog_facility)),
    Row("SCR_LOG_SYSLOG_LEVEL", "LOG_LOUD", Here(seen::log_syslog_level)),
    Row(
        "SCR_LOG_SYSLOG_PREFIX",
        "SCR-test",
        By("core/tests/jobs/syslog.rs", "a_job_sends_its_log_to_the_systems_logger"),
    ),
    Row("SCR_LOG_DB_ENABLE", "1", Here(seen::log_db_enable)),
    Row("SCR_LOG_DB_DEBUG", "1", Here(seen::log_db_debug)),
    Row("SCR_LOG_DB_HOST", "db", By(DATABASE, ROWS_OF_DATABASE)),
    Row("SCR_LOG_DB_NAME", "scr", By(DATABASE, ROWS_OF_DATABASE)),
    Row("SCR_LOG_DB_USER", "scr", By(DATABASE, ROWS_OF_DATABASE)),
    Row("SCR_LOG_DB_CA", "/ca.pem", By(TLS, "a_server_is_spoken_to_only_if_its_certificate_is_good")),
    Row("SCR_LOG_DB_PASS", "secret", By(DATABASE, "an_unusable_database_is_reported_with_a_remedy")),
    Row("SCR_LATE_SECS", "6", By("core/src/session/late_ranks.rs", "the_time_is_a_setting")),
    Row("SCR_REPORT", "0", Here(seen::report)),
    Row("SCR_METRICS_DIR", "{dir}/metrics", Here(seen::metrics_dir)),
    Row("SCR_WATCHDOG", "1", By(SCR_RUN, "a_run_that_writes_no_checkpoint_is_ended_and_started_again")),
    Row(
        "SCR_WATCHDOG_TIMEOUT",
        "8",
        By(
            "tests/tests/jobs/run.rs",
            "a_job_with_a_rank_that_hangs_is_ended_and_goes_on_from_its_checkpoint",
        ),
    ),
    Row(
        "SCR_WATCHDOG_TIMEOUT_PFS",
        "1",
        By(SCR_RUN, "a_run_that_writes_no_checkpoint_is_ended_and_started_again"),
    ),
];

/// A parameter as a job of a row finds it set, or not.
struct Setting {
    name: &'static str,
    value: &'static str,
    source: Option<Source>,
}

impl Setting {
    /// The same where nobody sets it.
    fn nowhere(other: &Self) -> Self {
        Self { source: None, ..*other }
    }

    /// The runs that follow have it.
    fn on(&self, mut world: World) -> World {
        if let Some(source) = self.source {
            let value = self.value.replace("{dir}", &world.dir().display().to_string());
            world.put_in(source, self.name, &value);
            if (self.name, source) == ("SCR_PREFIX", Source::UserFile) {
                // The user's file is read from the prefix directory, so a file that sets this directory has to be named.
                let file = world.prefix().join(".scrconf").display().to_string();
                world.put("SCR_CONF_FILE", &file);
            }
        }
        world
    }
}

#[test]
fn every_parameter_has_a_row_and_every_row_a_parameter() {
    let rows: BTreeSet<_> = ROWS.iter().map(|Row(name, ..)| *name).collect();
    let table: BTreeSet<_> = TABLE.iter().map(|info| info.name).collect();
    assert_eq!(rows, table);
    assert_eq!(ROWS.len(), TABLE.len());
}

#[test]
fn rows_tested_elsewhere_name_an_existing_test() {
    for Row(name, _, seen) in ROWS {
        let By(file, test) = seen else { continue };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{name}: {file} has no {test}");
    }
}

#[test]
#[ignore = "long"]
fn without_its_setting_no_effect_is_seen() {
    let mut wrong = Vec::new();
    for Row(name, value, seen) in ROWS {
        if matches!(seen, Here(effect) if effect(&Setting { name, value, source: None })) {
            wrong.push(format!("{name}: it is seen without {value}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "long"]
fn set_in_the_environment_each_parameter_has_its_effect() {
    all_have_their_effect(Source::Environment);
}

#[test]
#[ignore = "long"]
fn set_in_the_users_file_each_parameter_has_its_effect() {
    all_have_their_effect(Source::UserFile);
}

#[test]
#[ignore = "long"]
fn set_by_the_application_each_parameter_has_its_effect() {
    all_have_their_effect(Source::Application);
}

#[test]
#[ignore = "long"]
fn set_in_the_system_file_each_parameter_has_its_effect() {
    all_have_their_effect(Source::SystemFile);
}

fn all_have_their_effect(source: Source) {
    let mut wrong = Vec::new();
    for Row(name, value, seen) in ROWS {
        let scope = param::find(name).unwrap().scope;
        let counts = match scope {
            Scope::OutsideFiles => matches!(source, Source::Environment | Source::Application),
            Scope::SystemFile => source == Source::SystemFile,
            _ => true,
        };
        let setting = Setting { name, value, source: Some(source) };
        // An application cannot even ask for a parameter that it may not set.
        let refused = !counts && source == Source::Application;
        if matches!(seen, Here(effect) if !refused && effect(&setting) != counts) {
            wrong.push(format!(
                "{name}={value} in {source:?}: it should {}",
                if counts { "count" } else { "not count" }
            ));
        }
        if counts {
            is_shown_as_it_was_used(&setting);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks that `scr config` shows after a run the same value and origin that the run itself used.
fn is_shown_as_it_was_used(setting: &Setting) {
    let mut world = seen::one();
    std::fs::create_dir(world.dir().join("elsewhere")).unwrap();
    if setting.name == "SCR_NODE_NAME" {
        world.nodes = vec![String::new()];
    }
    let world = setting.on(world);
    let used = world.try_run(|application| {
        application.ok().map(|mut application| application.session().params().clone())
    });
    // If SCR is switched off, there is no session.
    let Some(used) = &used.ranks[0] else { return };
    let env = world.env_of(Rank(0)).env();
    let path = used.get(&param::PREFIX).join(APP_CONF);
    let (application, problems) = AppConfig::from_text(&std::fs::read(&path).unwrap(), &path);
    assert_eq!(problems, []);
    let (shown, _) = Params::resolve(&Settings::load(&env, &application), &env);
    for (used, shown) in used.iter().zip(shown.iter()) {
        // A secret of the application's own is not left where commands could read it.
        if used.info.kind == Kind::Secret && used.origin == Origin::Application {
            assert!(!shown.is_set());
            continue;
        }
        let all = |one: &param::Parameter| (one.info.name, one.to_string(), one.origin.clone());
        assert_eq!(all(used), all(shown), "where {} is set in {:?}", setting.name, setting.source);
        assert!(used.info.name != setting.name || used.is_set(), "{}", setting.name);
    }
}
