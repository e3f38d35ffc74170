//! Whether this node removes the files of a user from `/dev/shm` when the user logs out: `RemoveIPC` of systemd-logind. A look at
//! the node with ssh is enough, while a job runs there.

use super::{Check, Verdict};
use scr_base::env::Env;
use scr_plugin_api::paths_in;
use std::fs;
use std::path::{Path, PathBuf};

/// A note if that is so, for a user who keeps datasets there.
pub(super) fn check(env: &Env, mut stores: impl Iterator<Item = PathBuf>) -> Option<Check> {
    let is_in_memory = stores.any(|store| store.starts_with(SHM));
    (is_in_memory && removes_files(Path::new("/"), env.uid, &env.user)).then(|| {
        let text = "systemd-logind removes all that you have there when your last session on this node ends, for instance that of \
                    ssh while a job runs; set RemoveIPC=no in /etc/systemd/logind.conf, as root, or choose another SCR_CACHE_BASE";
        Check::new(Verdict::Note, SHM, text)
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
        assert!(check(&env, [PathBuf::from("/ssd")].into_iter()).is_none());
    }
}
