//! The checks of a node, and the comparison of all nodes of the allocation.
//!
//! Whether this node removes the files of a user from `/dev/shm` when the user logs out: `RemoveIPC` of systemd-logind. A look at
//! the node with ssh is enough, while a job runs there.

use super::installation::libraries;
use super::prefix::room;
use super::Verdict::{Bad, Good, Note};
use super::{answer_of, network, Check};
use crate::config::nodes_without_groups;
use crate::machine::{check_store, command_here, print_answer, Allocation, Limit};
use crate::prelude::*;
use rustix::fs::statvfs;
use scr_config::descriptor::Store;
use scr_core::plugin::{check_library, Trusted};

/// The report of a node on itself.
#[derive(Serialize, Deserialize)]
struct NodeReport {
    /// The SHA-256 of its libraries, where there are some.
    library: Option<String>,
    /// Seconds since the epoch.
    clock: i64,
    checks: Vec<Check>,
}

/// Checks this node, and prints the report for the doctor.
pub(super) fn print_report(env: &Env, params: &Params) -> Result<Answer> {
    print_answer(&NodeReport {
        library: library(env),
        clock: environment::now(env),
        checks: check(env, params),
    })
}

fn library(env: &Env) -> Option<String> {
    let sum = |path: PathBuf| Some(check_library(&*env.files, &path, &Trusted::by(env)).ok()?.sha256);
    let sums: Option<Vec<_>> = libraries(env).ok()?.into_iter().map(sum).collect();
    Some(sums?.join(" "))
}

/// The stores of this node, and the folder for metrics.
pub(super) fn check(env: &Env, params: &Params) -> Vec<Check> {
    let descriptors = match environment::descriptors(params) {
        Ok(descriptors) => descriptors,
        Err(error) => return vec![Check::of("stores", Err(error))],
    };
    let places =
        descriptors.enabled().map(|store| ("store", store)).chain([("control", &descriptors.control)]);
    let mut checks: Vec<_> = places.map(|(what, store)| store_check(env, params, what, store)).collect();
    if !descriptors.all_bypass() {
        checks.extend(of_logout(env, descriptors.stores.iter().map(|store| store.path.clone())));
    }
    let metrics = params.get(&param::METRICS_DIR);
    checks.extend(metrics.map(|dir| Check::of(&format!("metrics {}", dir.display()), room(env, &dir))));
    checks.extend(huge_pages(descriptors.stores.iter().map(|store| store.path.as_path())));
    checks.iter_mut().for_each(|check| check.subject = format!("{}: {}", env.host, check.subject));
    checks
}

fn store_check(env: &Env, params: &Params, what: &str, store: &Store) -> Check {
    let text = || {
        let Ok(found) = statvfs(&store.path) else { return "it is not there; a job makes it".to_owned() };
        format!("{} free", amount(found.f_bavail.saturating_mul(found.f_frsize)))
    };
    let subject = format!("{what} {}", store.path.display());
    Check::of(&subject, check_store(env, params, store).map(|()| text()))
}

/// Whether a store in memory could be faster.
fn huge_pages<'a>(mut stores: impl Iterator<Item = &'a Path>) -> Option<Check> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let of_shm = mounts.lines().rev().find(|line| line.split(' ').nth(1) == Some(SHM));
    let options = of_shm?.split(' ').nth(3)?;
    let is_plain = !options.split(',').any(|option| option.starts_with("huge="));
    (is_plain && stores.any(|store| store.starts_with(SHM))).then(|| {
        let text = format!("without huge pages; `mount -o remount,huge=within_size {SHM}', as root, makes checkpoints faster");
        Check::new(Note, SHM, text)
    })
}

/// Lets every node of the allocation check itself, and compares the nodes.
pub(super) fn check_all(env: &Env, params: &Params, allocation: &Allocation) -> Vec<Check> {
    if allocation.is_here_alone() {
        return vec![Check::new(Note, "allocation", "none: this machine alone was checked")];
    }
    // What SCR_NODELIST names is among the settings.
    let named =
        params.get(&param::NODELIST).is_none().then(|| environment::descriptors(params).ok()).flatten();
    let without = named.iter().flat_map(|descriptors| nodes_without_groups(descriptors, &allocation.nodes));
    let mut checks: Vec<_> = without.map(|text| Check::new(Bad, "groups", text)).collect();
    let Ok(command) = command_here(&["doctor", "--node"]) else { return Vec::new() };
    let before = environment::now(env);
    let answers = allocation.on_nodes().run(&allocation.nodes, &command, Limit::Total(TIMEOUT));
    let (after, own) = (environment::now(env), library(env));
    let mut reached = Vec::new();
    for (node, answer) in allocation.nodes.iter().zip(answers) {
        let subject = format!("node {node}");
        checks.extend(match answer_of(answer) {
            Err(error) => vec![Check::of(&subject, Err(error))],
            Ok(report) => {
                reached.push(node.clone());
                compared(&subject, report, own.as_deref(), (before, after))
            }
        });
    }
    checks.extend(network::check(params, allocation, &reached));
    checks
}

fn compared(subject: &str, report: NodeReport, own: Option<&str>, (before, after): (i64, i64)) -> Vec<Check> {
    let mut checks = report.checks;
    checks.retain(|check| check.verdict == Bad);
    if report.library.as_deref() != own {
        let text = "its library is another one than here; install the same on all nodes";
        checks.push(Check::new(Bad, subject, text));
    }
    if report.clock + CLOCK_SKEW < before || report.clock > after + CLOCK_SKEW {
        let off = report.clock.abs_diff(after);
        let text = format!("its clock is wrong by about {off} s; let it follow a time server");
        checks.push(Check::new(Bad, subject, text));
    }
    if checks.is_empty() {
        checks.push(Check::new(Good, subject, "stores, library and clock"));
    }
    checks
}

/// Clocks that differ by no more are good enough to order what happens.
const CLOCK_SKEW: i64 = 5;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A note if that is so, for a user who keeps datasets there.
fn of_logout(env: &Env, mut stores: impl Iterator<Item = PathBuf>) -> Option<Check> {
    let is_in_memory = stores.any(|store| store.starts_with(SHM));
    (is_in_memory && removes_files(Path::new("/"), env.uid, &env.user)).then(|| {
        let text = "systemd-logind removes all that you have there when your last session on this node ends, for instance that of \
                    ssh while a job runs; set RemoveIPC=no in /etc/systemd/logind.conf, as root, or choose another SCR_CACHE_BASE";
        Check::new(Note, SHM, text)
    })
}

/// Whether the node was booted with systemd, and logind does that to a user. `root` is the root of the file system.
fn removes_files(root: &Path, uid: u32, user: &str) -> bool {
    let is_there = |path: &str| root.join(path).exists();
    let is_exempt = uid < FIRST_USER || is_there(&format!("var/lib/systemd/linger/{user}"));
    is_there("run/systemd/system") && !is_exempt && setting(root).unwrap_or(true)
}

/// `RemoveIPC`: the last line counts, of the main file and then of the others by their names. A comment in the main file shows
/// the default of the distribution.
fn setting(root: &Path) -> Option<bool> {
    let main = ["etc", "usr/lib"].map(|folder| root.join(folder).join("systemd/logind.conf"));
    let main = main.into_iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let folders = ["etc", "run", "usr/lib"].map(|folder| root.join(folder).join("systemd/logind.conf.d"));
    let mut others: Vec<PathBuf> =
        folders.iter().flat_map(|folder| paths_in(folder).unwrap_or_default()).collect();
    others.retain(|path| path.extension().is_some_and(|end| end == "conf"));
    others.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    let others: Vec<_> = others.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let set = others.iter().rev().chain([&main]).find_map(|text| last(text, ""));
    set.or_else(|| last(&main, "#"))
}

fn last(text: &str, before: &str) -> Option<bool> {
    let value = |line: &str| {
        let value = line.trim().strip_prefix(before)?.trim_start().strip_prefix("RemoveIPC")?;
        let value = value.trim_start().strip_prefix('=')?.trim().to_ascii_lowercase();
        Some(matches!(&*value, "1" | "yes" | "y" | "true" | "t" | "on"))
    };
    text.lines().rev().find_map(value)
}

const SHM: &str = "/dev/shm";
/// Below are the users of the system, which logind leaves alone.
const FIRST_USER: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_test_kit::TestEnv;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn users_lose_their_files_where_logind_runs_and_nothing_says_no() {
        const BOOTED: (&str, &str) = ("run/systemd/system/here", "");
        let main = |text| ("etc/systemd/logind.conf", text);
        let drop_in = |name, text| (name, text);
        let cases: [(&[(&str, &str)], bool); 9] = [
            (&[], false),
            (&[BOOTED], true),
            (&[BOOTED, main("[Login]\n#RemoveIPC=yes\n")], true),
            (&[BOOTED, main("[Login]\n#RemoveIPC=no\n")], false),
            (&[BOOTED, main("[Login]\nRemoveIPC = no\n")], false),
            (&[BOOTED, main("#RemoveIPC=no\nRemoveIPC=no\nRemoveIPC=on\n")], true),
            (
                &[
                    BOOTED,
                    main("RemoveIPC=yes\n"),
                    drop_in("usr/lib/systemd/logind.conf.d/50.conf", "RemoveIPC=no\n"),
                ],
                false,
            ),
            (
                &[
                    BOOTED,
                    drop_in("etc/systemd/logind.conf.d/10.conf", "RemoveIPC=no\n"),
                    drop_in("run/systemd/logind.conf.d/20.conf", "RemoveIPC=yes\n"),
                    drop_in("etc/systemd/logind.conf.d/30.bak", "RemoveIPC=no\n"),
                ],
                true,
            ),
            (&[BOOTED, ("var/lib/systemd/linger/ann", "")], false),
        ];
        for (files, removes) in cases {
            let root = machine(files);
            assert_eq!(removes_files(root.path(), 1000, "ann"), removes, "{files:?}");
            assert!(
                !removes_files(root.path(), 0, "ann") && !removes_files(root.path(), 999, "ann"),
                "{files:?}"
            );
        }
    }

    #[test]
    fn only_stores_in_dev_shm_are_meant() {
        let env = TestEnv::new(std::sync::Arc::new(scr_base::fs::RealFiles), "/").env();
        assert!(of_logout(&env, [PathBuf::from("/ssd")].into_iter()).is_none());
    }
}
