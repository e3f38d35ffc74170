//! `scr doctor`: what it finds wrong with an installation and with nodes.

use crate::answer::{code, json_of, out};
use crate::installation::Installation;
use scr_plugin_api::KvTree;
use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// An installation that has all it needs.
fn whole() -> Installation {
    let scr = Installation::with_system_file("SCR_CACHE_BYPASS=0\n");
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    // The manifests of the tree name libraries that are not built for this test.
    fs::remove_dir_all(scr.path("etc/scr/plugins.d")).unwrap();
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/plugins.d");
    // Symbols for debuggers make libraries large, and checksums slow.
    let stripped = |name: &str| {
        let path = scr.path(name);
        let strip = Command::new("strip").arg("-o").arg(&path).arg(built.join(name)).status();
        let bytes = if strip.is_ok_and(|status| status.success()) {
            fs::read(&path)
        } else {
            fs::read(built.join(name))
        };
        bytes.unwrap()
    };
    for name in ["xor", "sync"] {
        let library = format!("libscr_{name}.so");
        scr.write(
            format!("etc/scr/plugins.d/{name}.toml"),
            fs::read(manifests.join(format!("{name}.toml"))).unwrap(),
        );
        scr.write(format!("lib/scr/plugins/{library}"), stripped(&library));
    }
    // Any library will do, with the name of an MPI in it.
    let mut library = stripped("libscr_sync.so");
    library.extend_from_slice(b"\0libmpi.so.40\0");
    scr.write("lib/libscr.so", library);
    for folder in ["lib", "lib/scr", "lib/scr/plugins", "etc/scr/plugins.d"] {
        fs::set_permissions(scr.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    program(&scr, "mpirun", "echo 'mpirun (Open MPI) 4.1.4'");
    scr
}

fn program(scr: &Installation, name: &str, script: &str) {
    let path = scr.write(format!("programs/{name}"), format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn doctor(scr: &Installation, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = scr.in_prefix(&["doctor"]);
    command.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", scr.path("programs").display()));
    command.env("SCR_CACHE_BASE", scr.path("cache")).env("SCR_CNTL_BASE", scr.path("cache"));
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Whether a line begins and ends so.
fn has_line(output: &Output, verdict: &str, words: &str) -> bool {
    out(output).lines().any(|line| line.starts_with(verdict) && line.contains(words))
}

#[test]
fn a_whole_installation_needs_no_mending() {
    let output = doctor(&whole(), &[], &[]);
    assert_eq!(code(&output), 0, "{output:?}");
    for words in ["for Open MPI", "SYNC XOR", "nothing is wrong", "is that of Open MPI", "a job makes it"] {
        assert!(has_line(&output, "good", words), "{words}: {}", out(&output));
    }
    assert!(out(&output).ends_with("nothing has to be fixed\n"), "{}", out(&output));
    assert!(!out(&output).contains("nothing is kept on the nodes"), "{}", out(&output));
    let bypass = doctor(&whole(), &[], &[("SCR_CACHE_BYPASS", "1")]);
    assert!(code(&bypass) == 0, "{}", out(&bypass));
    assert!(has_line(&bypass, "note", "nothing is kept on the nodes or protected by them"), "{bypass:?}");
    let off = doctor(&whole(), &[], &[("SCR_ENABLE", "0")]);
    assert!(code(&off) == 0 && has_line(&off, "note", "environment: SCR_ENABLE=0 turns scr off"), "{off:?}");
}

#[test]
fn each_thing_that_is_broken_is_named_with_what_to_do() {
    let broken = |breaking: fn(&Installation), variables: &[(&str, &str)], words: &str| {
        let scr = whole();
        breaking(&scr);
        let output = doctor(&scr, &[], variables);
        assert_eq!(code(&output), 1, "{words}: {}", out(&output));
        assert!(has_line(&output, "BAD", words), "{words}: {}", out(&output));
        assert!(!out(&output).contains("os error"), "{}", out(&output));
        assert!(out(&output).ends_with(" has to be fixed\n"), "{words}: {}", out(&output));
        let json = json_of(&doctor(&scr, &["--json"], variables));
        let bad = json["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "bad").count();
        assert_eq!((json["good"].as_bool(), bad), (Some(false), 1), "{json}");
    };
    broken(|scr| fs::remove_file(scr.path("lib/libscr.so")).unwrap(), &[], "install it with `make install'");
    broken(|_| (), &[("SCR_FLUSH", "ten")], "environment: SCR_FLUSH holds `ten'");
    let others_write = |scr: &Installation| {
        fs::set_permissions(scr.system_file(), fs::Permissions::from_mode(0o666)).unwrap();
    };
    broken(others_write, &[], "scr.conf: any user may change what this file sets: ");
    for folder in ["/nowhere/metrics", "/proc/self"] {
        broken(|_| (), &[("SCR_METRICS_DIR", folder)], &format!("metrics {folder}"));
    }
    broken(|scr| program(scr, "mpirun", "echo HYDRA build details:"), &[], "use the installation for MPICH");
    broken(|scr| drop(scr.write("file", "")), &[("SCR_CACHE_BASE", "/proc/version/cache")], "store ");
    // It was good, and no job could use it.
    let older = |scr: &Installation| {
        let text = fs::read_to_string(scr.path("etc/scr/plugins.d/sync.toml")).unwrap();
        let older = text.replace("\"SYNC\"", "\"OLDER\"").replace("abi = \"1.1\"", "abi = \"2.1\"");
        scr.write("etc/scr/plugins.d/older.toml", older);
    };
    let words = "the transport OLDER was built for version 2.1 of the plugin interface, and this scr has 1.1";
    broken(older, &[], words);
    // A plugin that is not whole, and settings that name it.
    let scr = whole();
    fs::remove_file(scr.path("lib/scr/plugins/libscr_xor.so")).unwrap();
    let output = doctor(&scr, &[], &[]);
    assert!(has_line(&output, "BAD", "the scheme XOR: cannot read"), "{}", out(&output));
    assert!(has_line(&output, "BAD", "default: SCR_COPY_TYPE: cannot read"), "{}", out(&output));
}

#[test]
fn an_installation_with_a_tree_for_each_mpi_is_whole() {
    let scr = whole();
    let library = fs::read(scr.path("lib/libscr.so")).unwrap();
    fs::remove_file(scr.path("lib/libscr.so")).unwrap();
    for (tree, needed) in [("mpich", "libmpich.so.12"), ("openmpi", "libmpi.so.40")] {
        let bound = [library.strip_suffix(b"libmpi.so.40\0").unwrap(), needed.as_bytes(), b"\0"].concat();
        scr.write(format!("{tree}/lib/libscr.so"), bound);
        for folder in [tree.to_owned(), format!("{tree}/lib")] {
            fs::set_permissions(scr.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    for launcher in ["HYDRA build details:", "mpirun (Open MPI) 4.1.4"] {
        program(&scr, "mpirun", &format!("echo '{launcher}'"));
        let output = doctor(&scr, &[], &[]);
        assert_eq!(code(&output), 0, "{}", out(&output));
        for words in ["mpich/lib/libscr.so, ", "openmpi/lib/libscr.so, ", "as is the library"] {
            assert!(has_line(&output, "good", words), "{words}: {}", out(&output));
        }
    }
}

#[test]
fn every_node_of_the_allocation_is_compared() {
    let scr = whole();
    program(&scr, "bhosts", "");
    let job = [("LSB_JOBID", "12"), ("LSB_MCPU_HOSTS", "a 1 b 1"), ("SCR_END_TIME", "4000000000")];
    program(&scr, "blaunch", "shift; exec \"$@\"");
    let output = doctor(&scr, &[], &job);
    assert_eq!(code(&output), 0, "{}", out(&output));
    for node in ["node a", "node b"] {
        assert!(has_line(&output, "good", &format!("{node}  ")), "{}", out(&output));
    }
    // All was said to be good, and every job ended in `SCR_Init'.
    let file = scr.write("groups", "a POWER=psu1\n");
    let grouped = [("SCR_GROUP", "POWER"), ("SCR_GROUPS_FILE", file.to_str().unwrap())];
    let listed = [grouped.as_slice(), &[("SCR_NODELIST", "a,b")]].concat();
    let output = doctor(&scr, &[], &[job.as_slice(), &grouped].concat());
    assert!(
        code(&output) == 1 && has_line(&output, "BAD", "b has no POWER, a group in use"),
        "{}",
        out(&output)
    );
    let output = doctor(&scr, &[], &listed);
    assert!(
        code(&output) == 1 && has_line(&output, "BAD", "SCR_NODELIST: b has no POWER"),
        "{}",
        out(&output)
    );
    let alone = doctor(&scr, &[], &grouped);
    assert!(code(&alone) == 0 && has_line(&alone, "note", "has no POWER, a group in use"), "{}", out(&alone));
    for (script, words) in [
        ("exit 3", "cannot be reached"),
        (
            "shift; \"$@\" | sed 's/\"library\":\"..../\"library\":\"0000/'",
            "its library is another one than here",
        ),
        ("shift; \"$@\" | sed 's/\"clock\":1/\"clock\":2/'", "its clock is wrong by about"),
    ] {
        program(&scr, "blaunch", &format!("if [ $1 = b ]; then {script}; else shift; exec \"$@\"; fi"));
        let output = doctor(&scr, &[], &job);
        assert_eq!(code(&output), 1, "{}", out(&output));
        assert!(has_line(&output, "BAD", words) && has_line(&output, "good", "node a"), "{}", out(&output));
    }
}

#[test]
fn nodes_that_protect_checkpoints_while_the_application_computes_reach_each_other() {
    let scr = whole();
    program(&scr, "bhosts", "");
    program(&scr, "blaunch", "node=$1; shift; SCR_NODE_NAME=$node exec \"$@\"");
    let nodes: Vec<_> = (0..34).map(|node| format!("n{node} 1")).collect();
    let hosts = nodes.join(" ");
    let job = [("LSB_JOBID", "12"), ("LSB_MCPU_HOSTS", hosts.as_str()), ("SCR_END_TIME", "4000000000")];
    let behind = [job.as_slice(), &[("SCR_ENCODE_ASYNC", "1")]].concat();
    let is_told = |output: &Output| out(output).contains("connect to each other");
    assert!(!is_told(&doctor(&scr, &[], &job)));
    let output = doctor(&scr, &[], &behind);
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert!(has_line(&output, "good", "34 nodes connect to each other for ENCODE=ASYNC"), "{}", out(&output));
    let left = fs::read_dir(scr.path("prefix")).unwrap().map(|file| file.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains("doctor")));
    // At this address of the second node nobody listens.
    program(
        &scr,
        "blaunch",
        "[ $1 = a ] || for word; do case $word in *scr-doctor*) printf b >$word/127.0.0.1:1;; esac; done; shift; exec \"$@\"",
    );
    let two = [behind.as_slice(), &[("LSB_MCPU_HOSTS", "a 1 b 1")]].concat();
    let not_there = [two.as_slice(), &[("SCR_TCP_INTERFACE", "ib77")]].concat();
    for (job, words) in [
        (&two, "to b at 127.0.0.1: Connection refused"),
        (&not_there, "SCR_TCP_INTERFACE=ib77 is neither a network interface"),
    ] {
        let output = doctor(&scr, &[], job);
        assert_eq!(code(&output), 1, "{}", out(&output));
        assert!(has_line(&output, "BAD", words), "{}", out(&output));
    }
}

#[test]
fn every_mistake_in_the_settings_is_shown_and_no_room_in_a_folder_that_is_not_there() {
    let scr = whole();
    scr.write(
        "prefix/.scrconf",
        "SCR_CASHE_SIZE=1\nSCR_FLUSH=often\nSTORE=/ssd GROUP=NOD\nSTORE=/nvme GROUP=RAKC\n",
    );
    let found = doctor(&scr, &[], &[]);
    for mistake in ["SCR_CASHE_SIZE", "often", "NOD", "RAKC"] {
        let is_it =
            |line: &str| line.starts_with("BAD") && line.contains("settings") && line.contains(mistake);
        assert!(out(&found).lines().any(is_it), "no {mistake} in {}", out(&found));
    }
    fs::remove_file(scr.path("prefix/.scrconf")).unwrap();
    let found = doctor(&scr, &[], &[]);
    let cache = scr.path("cache").display().to_string();
    let line = out(&found).lines().find(|line| line.contains(&format!("store {cache}"))).unwrap().to_owned();
    assert!(line.contains("it is not there; a job makes it") && !line.contains("free"), "{line}");
    fs::create_dir(scr.path("cache")).unwrap();
    let found = out(&doctor(&scr, &[], &[]));
    assert!(
        found.lines().any(|line| line.contains(&format!("store {cache}")) && line.ends_with("B free")),
        "{found}"
    );
}

/// It looked only whether an empty file can be made in the prefix directory.
#[test]
fn what_would_stop_a_job_in_the_prefix_directory_is_named() {
    let scr = whole();
    let of_version = |version: u64| {
        let mut tree = KvTree::new();
        tree.set("VERSION", version);
        scr.write("prefix/.scr/index.scr", tree.to_file_bytes());
    };
    of_version(2);
    let lock = scr.write("prefix/.scr/index.lock", "");
    let is_old = |lock: &Path| {
        let lock = fs::File::options().write(true).open(lock).unwrap();
        lock.set_modified(SystemTime::now() - Duration::from_secs(3 * 3600)).unwrap();
    };
    let found = doctor(&scr, &[], &[]);
    assert!(!out(&found).contains("index.lock") && out(&found).contains("can write to "), "{found:?}");
    is_old(&lock);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(scr.path("prefix/.scr"), Some(4711), None).unwrap();
    }
    let found = doctor(&scr, &[], &[]);
    assert_eq!(code(&found), 0, "{}", out(&found));
    assert!(has_line(&found, "note", "index.lock for 3 h; the next job removes it"), "{}", out(&found));
    assert_eq!(
        has_line(&found, "good", "prefix/.scr, which belongs to user 4711; "),
        is_root,
        "{}",
        out(&found)
    );
    of_version(9);
    let found = doctor(&scr, &[], &[]);
    assert!(
        has_line(&found, "BAD", "index.scr was written by another release of scr (format version 9"),
        "{}",
        out(&found)
    );
    assert_eq!(code(&found), 1);
    // As a file system without room does, this system makes files, and lets nobody write to them.
    of_version(2);
    let mut full = Command::new("/bin/sh");
    full.args(["-c", "trap '' XFSZ; ulimit -f 1; \"$@\"", "sh"]);
    let plain = scr.in_prefix(&["doctor"]);
    full.arg(plain.get_program()).args(plain.get_args()).current_dir(scr.path("prefix"));
    let found = full.env_clear().env("SCR_PREFIX", scr.path("prefix")).output().unwrap();
    assert!(has_line(&found, "BAD", "cannot write to "), "{}", out(&found));
}

#[test]
fn what_may_be_right_on_other_hosts_is_a_note() {
    let scr = whole();
    scr.write("prefix/.scrconf", "SCR_CACHE_BYPASS=0\nSCR_CNTL_BASE=/dev/shm/no/such\n");
    let mut command = scr.in_prefix(&["doctor"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", scr.path("programs").display()));
    let found = command.output().unwrap();
    assert_eq!(code(&found), 0, "{}", out(&found));
    assert!(
        has_line(&found, "note", "SCR_CNTL_BASE: there is no folder /dev/shm/no/such"),
        "{}",
        out(&found)
    );
}
