//! What sites build and install with: the packages that `make deps` asks each system for, and a gfortran that does not work.

use scr_tests::{on_any_mpi, repository};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// What a machine lacks that nothing was installed on; what `make deps` looks for beside PATH may be there.
const LACKING: &[&str] = &["apt", "cargo", "dnf", "g++", "gcc", "gfortran", "id", "mpi", "zypper"];

/// A PATH with what every machine has.
fn bare_path() -> TempDir {
    let path = tempfile::tempdir().unwrap();
    for program in ["/usr/bin", "/bin"].into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let program = program.unwrap();
        let name = program.file_name();
        if !LACKING.iter().any(|lacking| name.to_string_lossy().starts_with(lacking)) {
            _ = symlink(program.path(), path.path().join(name)); // one folder is a link to the other, mostly
        }
    }
    path
}

/// Puts a script into a folder.
fn put(folder: &Path, name: &str, lines: &str) {
    let script = folder.join(name);
    std::fs::write(&script, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What `make deps` says to this user, where this command installs packages and writes down what it was asked.
fn deps(manager: &str, user: u32) -> (String, String) {
    let path = bare_path();
    let asked = path.path().join("asked");
    put(path.path(), manager, &format!("echo \"$*\" >>{}", asked.display()));
    put(path.path(), "id", &format!("echo {user}"));
    let mut script = Command::new(repository().join("scripts/deps.sh"));
    let Output { status, stderr, .. } = script.env("PATH", path.path()).output().unwrap();
    assert!(!status.success(), "there is no Rust");
    (std::fs::read_to_string(asked).unwrap_or_default(), String::from_utf8(stderr).unwrap())
}

#[test]
fn each_system_is_asked_for_packages_by_its_own_names() {
    const FEDORA: &str = "cargo gcc glibc-devel openmpi-devel openmpi mpich-devel mpich";
    const SUSE: &str = "cargo gcc glibc-devel openmpi4-devel openmpi4 mpich-devel mpich";
    for (manager, install, packages) in [
        ("dnf", "install -y -q --setopt=install_weak_deps=False ", FEDORA),
        ("zypper", "--quiet --non-interactive install --no-recommends ", SUSE),
    ] {
        let (asked, said) = deps(manager, 0);
        assert!(asked.starts_with(&format!("{install}{packages}")), "{asked}{said}");
        let (asked, said) = deps(manager, 1000);
        let advised = format!("scr: please install (or have your administrator install): {packages}");
        assert!(asked.is_empty() && said.starts_with(&advised) && !said.contains("Debian"), "{asked}{said}");
    }
}

on_any_mpi! {
    #[ignore = "long"]
    fn a_gfortran_that_does_not_work_costs_the_module_alone(mpi: Mpi) {
        let path = tempfile::tempdir().unwrap();
        put(path.path(), "gfortran", "echo no compiler >&2; exit 1");
        let others = std::env::var("PATH").unwrap();
        for (fortran, installs, says) in [("no", true, false), ("auto", true, true), ("yes", false, true)] {
            let tree = path.path().join(fortran);
            let mut script = Command::new(repository().join("scripts/install.sh"));
            script.arg(mpi.name()).arg(&tree).arg("target/debug").env("FORTRAN", fortran);
            script.env("PATH", format!("{}:{others}", path.path().display())).current_dir(repository());
            let installed = script.output().unwrap();
            let said = String::from_utf8_lossy(&installed.stderr).into_owned();
            assert_eq!((installed.status.success(), said.contains("FORTRAN=no")), (installs, says), "{fortran}: {said}");
            assert!(!tree.join("include/scr.mod").exists() && tree.join("include/scr.f90").exists() == installs);
        }
    }
}
