//! A test in a mount namespace of its own.

use std::process::Command;

/// Set for the run of the test inside its namespace.
const INSIDE: &str = "SCR_TEST_OWN_MOUNTS";

/// Prepares the mounts of the namespace by a shell script, which the test runs after, and runs `inside` there, in the process of
/// a test of this name.
pub(crate) fn in_own_mounts(test: &str, script: &str, inside: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let can_unshare =
        Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|out| out.status.success());
    if !can_unshare {
        eprintln!("skipped: without root there is no mount namespace of the test's own");
        return;
    }
    let inside = Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("set -e\n{script}\nexec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&inside.stdout), String::from_utf8_lossy(&inside.stderr));
    assert!(inside.status.success() && said.contains("1 passed"), "{said}\n{wrong}");
}
