//! Settings that name programs, libraries or directories, or let scr delete datasets, count only from sources that no other user
//! can change. So do settings with variables, whose values may be secrets and could end up in files that others can read.
//!
//! They do not count from a `.scrconf` or `app.conf` in a prefix directory of another user. In a program that has more rights
//! than its user, they do not count from the environment either, nor from files of that user, who chooses the prefix directory.
//! `SCR_SAFE_PREFIX` allows a prefix directory.

use super::file::{Setting, Source, CKPT, STORE};
use super::origin::Origin;
use super::problem::{Cause, Problem};
use super::quote::quote;
use super::table::{self, find, Info, Scope};
use super::value::Kind;
use scr_base::env::{Distrust, Env};
use std::path::{Path, PathBuf};

/// Whether the value of a parameter is a program, a library or a directory, becomes a part of the path of one, or says
/// who gets the password of the database.
fn names_place(info: &Info) -> bool {
    let is_host = info.name == table::LOG_DB_HOST.info().name;
    info.kind.is_path() || matches!(info.kind, Kind::Paths | Kind::Part) || is_host
}

/// Whether the variable of a parameter counts. In a program with more rights than its user, it may not name a place.
pub(super) fn counts(info: &Info, env: &Env) -> bool {
    !(env.is_privileged && names_place(info))
}

/// The problem of a variable that does not count.
pub(super) fn refused_variable(info: &Info) -> Cause {
    let why = "this program has more rights than the user who started it, so the environment is not trusted";
    untrusted(info.name, why)
}

/// That somebody else could have made a setting that does harm.
fn untrusted(name: &str, why: &str) -> Cause {
    let name = quote(name);
    format!("{name} can make scr use files of somebody else, or lose yours, and does not count here: {why}")
        .into()
}

/// Removes the settings of a file that name a place, delete or hold a variable, if the file is not trusted. It was found in
/// `prefix`, which is `safe` if it lies in one of these directories. A program with more rights than its user cannot be told of
/// more of them.
pub(super) fn drop_untrusted(
    env: &Env,
    safe: &[PathBuf],
    source: &mut Source,
    distrust: Option<&Distrust>,
    prefix: &Path,
    problems: &mut Vec<Problem>,
) {
    let is_safe = safe.iter().any(|safe| prefix.starts_with(safe));
    let Some(distrust) = distrust.filter(|_| !is_safe) else { return };
    let what = match distrust {
        Distrust::Owner { path, uid } => format!("{} belongs to user {uid}", path.display()),
        Distrust::Mode { path, .. } => format!("everybody may write {}", path.display()),
    };
    let why = match env.is_privileged {
        true => format!("{what}, and this program has more rights than the user who started it"),
        false => format!("{what}; to trust it, set SCR_SAFE_PREFIX={} in the environment", prefix.display()),
    };
    let mut refuse = |origin: &Origin, name: String| {
        problems.push(Problem::new(origin, untrusted(&name, &why)));
        false
    };
    source.retain(|setting| {
        let named = match find(&setting.name) {
            Some(info) => names_place(info) || info.scope == Scope::Trusted,
            None => setting.name == STORE,
        };
        !(named || setting.value.contains('$')) || refuse(&setting.origin, title(setting))
    });
    for setting in source.iter_mut().filter(|setting| setting.name == CKPT) {
        let (origin, start) = (setting.origin.clone(), title(setting));
        // An option of a scheme may be a path; the key STORE chooses among the stores that are described.
        setting.items.retain(|item| {
            let is_path = item.key != STORE && item.value.contains('/');
            !(is_path || item.value.contains('$')) || refuse(&origin, format!("{start} {}", item.key))
        });
    }
}

fn title(setting: &Setting) -> String {
    if setting.is_descriptor() {
        format!("{}={}", setting.name, setting.value)
    } else {
        setting.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{world_of, world_of_user};
    use super::super::{AppConfig, Params, Settings};
    use super::*;
    use scr_test_kit::TestEnv;

    const PLACES: &str = "\
SCR_CACHE_BASE=/evil/cache
SCR_CNTL_BASE=/evil/control
SCR_PLUGIN_PATH=/evil/plugins
SCR_USER_NAME=evil-user
SCR_JOB_ID=evil-job
SCR_LOG_DB_HOST=/evil/socket
STORE=/evil/store FLUSH=AGENT PROGRAM=/evil/program
CKPT=0 TYPE=XOR STORE=/dev/shm HELPER=/evil/helper
SCR_FLUSH=3
";

    const DELETIONS: &str = "\
SCR_CACHE_PURGE=1
SCR_DISTRIBUTE=0
SCR_DROP_AFTER_CURRENT=1
SCR_PREFIX_PURGE=1
SCR_PREFIX_SIZE=1
SCR_SCAVENGE=0
SCR_FLUSH=3
";

    fn resolved(world: &TestEnv) -> (Params, Vec<String>) {
        let env = world.env();
        let (params, problems) = Params::resolve(&Settings::with_last_run(&env), &env);
        (params, problems.iter().map(ToString::to_string).collect())
    }

    /// Everything that somebody set, as text.
    fn set(params: &Params) -> String {
        let values = params
            .iter()
            .filter(|parameter| parameter.is_set())
            .map(|one| format!("{}={one}", one.info.name));
        let lines =
            [STORE, CKPT].into_iter().flat_map(|name| params.lines(name).map(|line| format!("{line:?}")));
        values.chain(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_files_of_another_user_in_a_prefix_directory_name_no_place() {
        for (file, uid, mode) in [
            ("/pfs/run1/.scrconf", 4711, 0),
            ("/pfs/run1/.scrconf", 1000, 0o002),
            ("/pfs/run1/.scr/app.conf", 4711, 0),
            ("/pfs/run1/.scr/app.conf", 0, 0o002),
        ] {
            let (params, messages) = resolved(&world_of_user(uid, mode, &[(file, PLACES)]));
            assert!(!set(&params).contains("evil"), "{file}: {}", set(&params));
            assert_eq!(params.get(&table::FLUSH), 3, "other settings of {file} count");
            assert_eq!(params.lines(CKPT).count(), 1);
            assert_eq!(messages.len(), 8, "{messages:#?}");
            let allowed = "to trust it, set SCR_SAFE_PREFIX=/pfs/run1 in the environment";
            assert!(messages.iter().all(|line| line.ends_with(allowed)), "{messages:#?}");
        }
    }

    /// In a prefix directory that everybody may write, like `/tmp`, one user deleted the checkpoints of another.
    #[test]
    fn the_files_of_another_user_delete_nothing() {
        for file in ["/pfs/run1/.scrconf", "/pfs/run1/.scr/app.conf"] {
            let (params, messages) = resolved(&world_of_user(4711, 0, &[(file, DELETIONS)]));
            assert_eq!((set(&params), messages.len()), ("SCR_FLUSH=3".to_owned(), 6), "{messages:#?}");
            let (params, messages) = resolved(&world_of_user(1000, 0, &[(file, DELETIONS)]));
            assert_eq!((set(&params).lines().count(), messages.len()), (7, 0), "{messages:#?}");
        }
    }

    /// The value went into the index, where the owner of the prefix directory could read it.
    #[test]
    fn the_files_of_another_user_read_no_variable() {
        let text = "SCR_CLUSTER_NAME=$SCR_LOG_DB_PASS\nCKPT=0 TYPE=RS NOTE=$SCR_LOG_DB_PASS\nSCR_FLUSH=3\n";
        let world = |uid| {
            let world = world_of_user(uid, 0, &[("/pfs/run1/.scrconf", text)]);
            world.with_variable("SCR_LOG_DB_PASS", "secret")
        };
        for (uid, read) in [(4711, 0), (1000, 2)] {
            let env = world(uid).with_variable("SCR_DEBUG", "0");
            let (params, messages) = resolved(&env);
            let shown = params.get(&table::CLUSTER_NAME).is_some_and(|name| name.contains("secret"));
            let lines = params.lines(CKPT).filter(|line| format!("{line:?}").contains("secret")).count();
            assert_eq!(usize::from(shown) + lines, read, "{messages:#?}");
            assert_eq!(params.get(&table::FLUSH), 3);
            assert_eq!(messages.iter().filter(|line| line.contains("SCR_SAFE_PREFIX")).count(), 2 - read);
        }
    }

    #[test]
    fn the_files_of_the_user_and_of_root_name_places() {
        for (uid, mode) in [(0, 0), (1000, 0), (1000, 0o020), (0, 0o1000)] {
            let (params, messages) = resolved(&world_of_user(uid, mode, &[("/pfs/run1/.scrconf", PLACES)]));
            assert_eq!(set(&params).matches("evil").count(), 10, "{messages:#?}");
        }
    }

    #[test]
    fn a_prefix_directory_is_allowed_from_outside_and_not_by_itself() {
        let files = [("/pfs/run1/.scrconf", PLACES)];
        let world = || world_of_user(4711, 0, &files);
        for allowed in ["/pfs/run1", "/a:/pfs"] {
            let (params, messages) = resolved(&world().with_variable("SCR_SAFE_PREFIX", allowed));
            assert!(set(&params).contains("/evil/cache"), "{messages:#?}");
        }
        for other in ["/pfs/run", "/pfs/run11"] {
            let (params, _) = resolved(&world().with_variable("SCR_SAFE_PREFIX", other));
            assert!(!set(&params).contains("evil"), "{other}");
        }
        for file in ["/pfs/run1/.scrconf", "/pfs/run1/.scr/app.conf"] {
            let text = format!("SCR_SAFE_PREFIX=/\n{PLACES}");
            let (params, _) = resolved(&world_of_user(4711, 0, &[(file, &text)]));
            assert!(!set(&params).contains("evil"), "{file}");
        }
    }

    #[test]
    fn a_file_that_the_user_names_is_trusted() {
        let world = world_of_user(4711, 0, &[("/home/x.conf", PLACES)])
            .with_variable("SCR_CONF_FILE", "/home/x.conf");
        assert!(set(&resolved(&world).0).contains("/evil/cache"));
    }

    #[test]
    fn the_environment_of_a_program_with_more_rights_names_no_place() {
        let files = [("/x.conf", "SCR_CACHE_BASE=/evil\n")];
        let variables = [
            ("SCR_CONF_FILE", "/x.conf"),
            ("SCR_PLUGIN_PATH", "/evil"),
            ("SCR_PREFIX", "/evil"),
            ("SCR_CNTL_BASE", "/evil"),
            ("SCR_USER_NAME", "evil"),
        ];
        let world =
            variables.iter().fold(world_of(&files), |world, (name, value)| world.with_variable(name, value));
        let world = world.with_variable("SCR_FLUSH", "3");
        assert_eq!(set(&resolved(&world).0).matches("evil").count(), 5);
        let (params, messages) = resolved(&world.with_privileges());
        assert_eq!(set(&params), "SCR_FLUSH=3");
        assert_eq!(messages.len(), 5, "{messages:#?}");
        assert!(
            messages.iter().all(|line| line.ends_with("so the environment is not trusted")),
            "{messages:#?}"
        );
    }

    /// The user chose the prefix directory, put a file there, and had a plugin run with the rights of the program.
    #[test]
    fn the_files_of_the_user_of_a_program_with_more_rights_name_no_place() {
        for file in ["/pfs/run1/.scrconf", "/pfs/run1/.scr/app.conf"] {
            let world = || world_of_user(1000, 0, &[(file, PLACES)]);
            assert!(set(&resolved(&world()).0).contains("evil"), "{file}");
            let (params, messages) = resolved(&world().with_privileges());
            assert!(!set(&params).contains("evil"), "{file}: {}", set(&params));
            assert_eq!(params.get(&table::FLUSH), 3, "other settings of {file} count");
            let why = "belongs to user 1000, and this program has more rights than the user who started it";
            assert!(messages.len() == 8 && messages.iter().all(|line| line.ends_with(why)), "{messages:#?}");
        }
        let (params, _) = resolved(&world_of(&[("/pfs/run1/.scrconf", PLACES)]).with_privileges());
        assert!(set(&params).contains("evil"), "root may say what such a program does");
    }

    #[test]
    fn settings_of_the_application_are_trusted() {
        let mut app = AppConfig::default();
        app.apply("SCR_CACHE_BASE=/mine").unwrap();
        let env = world_of_user(4711, 0, &[("/pfs/run1/x", "")]).env();
        let (params, problems) = Params::resolve(&Settings::load(&env, &app), &env);
        assert_eq!((params.get(&table::CACHE_BASE), problems), (PathBuf::from("/mine"), vec![]));
    }
}
