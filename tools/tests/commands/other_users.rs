//! Commands of a user in places where another user has put something: nothing of it is executed, and through it nothing is read
//! out, overwritten or removed. As root only, since it takes two users.

use crate::finished_job::FinishedJob;
use rustix::fs::{mknodat, FileType, Mode, CWD};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{chown, lchown, symlink, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VICTIM: u32 = 61_001;
const ATTACKER: u32 = 61_002;
const JOB: &str = "5132";
const TRANSFERS: &str = "transfers";
const SECRET: &[u8] = b"the secret of the victim ";

/// A node on which a job of the victim has run, and what the attacker knows of it.
struct Node {
    job: FinishedJob,
    program: PathBuf,
}

impl Node {
    /// Nothing where there is only one user.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can be two users");
            return None;
        }
        let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_JOB_ID", JOB)]);
        let (path, program) = (job.path(), job.path().join("scr"));
        // By another process: a program that is open to be written here, by whatever thread starts one meanwhile, cannot run.
        assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_scr")).arg(&program).status().unwrap().success());
        set_mode(&path, 0o755);
        let node = Self { job, program };
        for (name, owner, mode) in [
            ("base", 0, 0o1777),
            ("home", VICTIM, 0o755),
            ("theirs", ATTACKER, 0o777),
            ("prefix", VICTIM, 0o755),
        ] {
            fs::create_dir_all(node.at(name)).unwrap();
            own(&node.at(name), owner);
            set_mode(&node.at(name), mode);
        }
        fs::write(node.secret(), SECRET.repeat(40)).unwrap();
        own(&node.secret(), VICTIM);
        set_mode(&node.secret(), 0o600);
        // Executing it leaves a mark.
        let evil = format!("#!/bin/sh\ntouch {}\n", node.at("theirs/executed").display());
        fs::write(node.at("theirs/evil"), evil).unwrap();
        set_mode(&node.at("theirs/evil"), 0o755);
        Some(node)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.job.path().join(name)
    }

    /// A file of the same length as those of the checkpoint.
    fn secret(&self) -> PathBuf {
        self.at("home/secret")
    }

    fn planted(&self) -> PathBuf {
        self.at("base/victim").join(format!("scr.{JOB}"))
    }

    /// A cache as the job itself has left it, but of this owner and with a change.
    fn plant(&self, owner: u32, change: &dyn Fn(&Path)) {
        for old in [self.at("base/victim"), self.at("base/victim.1")] {
            drop(fs::remove_file(&old));
            drop(fs::remove_dir_all(&old));
        }
        fs::create_dir_all(self.planted()).unwrap();
        copy(&self.job.node(0).join("user1").join(format!("scr.{JOB}")), &self.planted());
        change(&self.planted());
        own(&self.at("base/victim"), owner);
        for folder in [self.planted(), self.at("base/victim")] {
            set_mode(&folder, if owner == VICTIM { 0o700 } else { 0o777 });
        }
    }

    fn scr(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60"]).arg(&self.program).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("USER", "victim").env("HOME", self.at("home"));
        command
            .env("SCR_CACHE_BASE", self.at("base"))
            .env("SCR_CNTL_BASE", self.at("base"))
            .env("SCR_JOB_ID", JOB);
        command.env("SCR_PLUGIN_PATH", self.job.plugins()).env("SCR_CACHE_BYPASS", "0");
        command.current_dir(self.at("prefix")).uid(VICTIM).gid(VICTIM);
        command
    }

    /// Runs every command that looks at a node or a prefix directory.
    fn run_all(&self, what: &str) {
        let (prefix, cache) = (self.at("prefix"), self.planted());
        let (prefix, cache) = (prefix.to_str().unwrap(), cache.to_str().unwrap());
        let commands: &[&[&str]] = &[
            &["poststage", "--prefix", prefix],
            &["copy", "--id", "1", "--prefix", prefix],
            &["copy", "--id", "1", "--prefix", prefix, "--cache", cache],
            &["scrub"],
            &["scrub", "--cache", cache],
            &["flush-file", "--list-ckpt"],
            &["index", "--list"],
            &["index", "--build"],
            &["agent", "--status"],
            &["agent", "--drain"],
            &["config", "show"],
            &["postrun", "--prefix", prefix],
            &["clean", "--allocation", JOB, "--ended", "--discard-unsaved"],
        ];
        for arguments in commands {
            let output = self.scr(arguments);
            let code = output.status.code();
            assert!(
                code.is_some_and(|code| code < 100),
                "{what}: {arguments:?} did not end by itself: {output:?}"
            );
            for text in [&output.stdout, &output.stderr] {
                assert!(!contains(text, SECRET), "{what}: {arguments:?} reads out the secret");
            }
        }
        assert_eq!(fs::read(self.secret()).unwrap(), SECRET.repeat(40), "{what}: the secret was changed");
        let status = fs::metadata(self.secret()).unwrap();
        assert_eq!((status.uid(), status.mode() & 0o7777), (VICTIM, 0o600), "{what}");
        assert!(!self.at("theirs/executed").exists(), "{what}: something planted was executed");
        assert_eq!(names(&self.at("home")), ["secret"], "{what}: something new lies beside the secret");
        for folder in ["prefix", "theirs"] {
            for (path, content) in tree(&self.at(folder)) {
                assert!(!contains(&content, SECRET), "{what}: the secret is in {}", path.display());
            }
        }
    }
}

#[test]
fn nothing_in_a_cache_that_another_user_has_planted_is_used_or_changed() {
    let Some(node) = Node::new() else { return };
    for (what, change) in changes(&node) {
        node.plant(ATTACKER, &*change);
        let before = tree(&node.planted());
        let output = node.scr(&["copy", "--id", "1", "--prefix", node.at("prefix").to_str().unwrap()]);
        assert!(contains(&output.stderr, b"belongs to user 61002"), "{what}: {output:?}");
        node.run_all(&format!("planted: {what}"));
        assert_eq!(tree(&node.planted()), before, "{what}: the attacker's files were changed");
        assert!(
            !node.at("prefix/ckpt.1").exists(),
            "{what}: the attacker's bytes have come to the prefix directory"
        );
    }
}

#[test]
fn names_and_links_in_the_users_own_cache_lead_nowhere_else() {
    let Some(node) = Node::new() else { return };
    // The user wants to copy what the user's own transports have recorded.
    for (what, change) in changes(&node).into_iter().filter(|(what, _)| *what != TRANSFERS) {
        node.plant(VICTIM, &*change);
        node.run_all(&format!("own: {what}"));
    }
}

#[test]
fn a_link_in_the_place_of_the_users_directory_is_not_followed() {
    let Some(node) = Node::new() else { return };
    node.plant(VICTIM, &|_| ());
    let moved = node.at("theirs/moved");
    fs::rename(node.at("base/victim"), &moved).unwrap();
    symlink(&moved, node.at("base/victim")).unwrap();
    lchown(node.at("base/victim"), Some(ATTACKER), None).unwrap();
    let before = tree(&moved);
    node.run_all("a link");
    assert_eq!(tree(&moved), before);
}

#[test]
fn settings_in_a_folder_of_another_user_name_no_program_and_no_directory() {
    let Some(node) = Node::new() else { return };
    node.plant(ATTACKER, &|_| ());
    let theirs = node.at("theirs").display().to_string();
    let settings = format!(
        "SCR_PLUGIN_PATH={theirs}\nSCR_CACHE_BASE={theirs}\nSCR_CNTL_BASE={theirs}\nSCR_LOG_ENABLE=1\n"
    );
    own(&node.at("prefix"), ATTACKER);
    set_mode(&node.at("prefix"), 0o777);
    for name in [".scrconf", ".scr/app.conf"] {
        fs::create_dir_all(node.at("prefix/.scr")).unwrap();
        fs::write(node.at("prefix").join(name), &settings).unwrap();
    }
    own(&node.at("prefix"), ATTACKER);
    set_mode(&node.at("prefix/.scr"), 0o777);
    let before = names(&node.at("theirs"));
    node.run_all("settings");
    assert_eq!(names(&node.at("theirs")), before, "the attacker's directory was used");
    let shown = node.scr(&["config", "show"]);
    assert!(!contains(&shown.stdout, theirs.as_bytes()), "{shown:?}");
}

/// A message quotes each line that is no setting, and so read out what the link of another user led to.
#[test]
fn a_settings_file_that_is_a_link_of_another_user_is_not_read() {
    let Some(node) = Node::new() else { return };
    node.plant(VICTIM, &|_| ());
    let (theirs, found) = (node.at("theirs/link"), node.at("prefix/.scrconf"));
    set_mode(&node.at("theirs"), 0o1777);
    own(&node.at("prefix"), ATTACKER);
    set_mode(&node.at("prefix"), 0o1777);
    for link in [&theirs, &found] {
        symlink(node.secret(), link).unwrap();
        lchown(link, Some(ATTACKER), Some(ATTACKER)).unwrap();
    }
    let named = [None, Some("SCR_CONF_FILE"), Some("SCR_GROUPS_FILE")];
    for (name, command) in named.iter().flat_map(|name| [(name, "config"), (name, "doctor")]) {
        let mut command = node.command(&[command]);
        name.iter().for_each(|name| _ = command.env(name, &theirs));
        let shown = command.output().unwrap();
        let text = [shown.stdout, shown.stderr].concat();
        let link = if name.is_some() { &theirs } else { &found };
        assert!(!contains(&text, b"the secret"), "{name:?}: {}", String::from_utf8_lossy(&text));
        let words = format!("{} cannot be read: it is a symbolic link, and", link.display());
        assert!(contains(&text, words.as_bytes()), "{name:?}: {}", String::from_utf8_lossy(&text));
    }
    let own_link = node.at("home/own.conf");
    fs::write(node.at("theirs/shared.conf"), "SCR_FLUSH=77\n").unwrap();
    symlink(node.at("theirs/shared.conf"), &own_link).unwrap();
    lchown(&own_link, Some(VICTIM), Some(VICTIM)).unwrap();
    let followed = node.command(&["config", "--set"]).env("SCR_CONF_FILE", &own_link).output().unwrap();
    assert!(contains(&followed.stdout, b"77"), "{followed:?}");
}

/// Every user who can open a file can keep its lock. Each call of a job waited ten seconds for another user.
#[test]
fn another_user_who_may_only_read_a_prefix_directory_cannot_keep_its_locks() {
    let Some(node) = Node::new() else { return };
    let prefix = node.at("prefix");
    let halt = |arguments: &[&str]| node.scr(&[&["halt"], arguments, &[prefix.to_str().unwrap()]].concat());
    assert!(halt(&["--checkpoints", "1"]).status.success());
    let file = prefix.join(".scr/halt.scr");
    // As older versions left it.
    set_mode(&file, 0o644);
    assert!(halt(&["--checkpoints", "2"]).status.success());
    let lock =
        Command::new("flock").args(["--nonblock", file.to_str().unwrap(), "true"]).uid(ATTACKER).output();
    assert!(contains(&lock.unwrap().stderr, b"Permission denied"));
    assert!(contains(&halt(&["--list"]).stdout, b"2"));
}

type Change = Box<dyn Fn(&Path)>;

/// The attacker's changes in a cache.
fn changes(node: &Node) -> Vec<(&'static str, Change)> {
    let secret = node.secret();
    let data = |cache: &Path| tree(cache).into_keys().find(|path| path.ends_with("rank_0")).unwrap();
    let instead = move |make: &'static dyn Fn(&Path, &Path)| -> Change {
        let secret = secret.clone();
        Box::new(move |cache| {
            let path = data(cache);
            fs::remove_file(&path).unwrap();
            make(&secret, &path);
        })
    };
    let renamed = |new: &'static [u8]| -> Change {
        Box::new(move |cache| rewrite(&cache.join("scr.dataset.1/.scr/filemap_0"), b"ckpt.1/rank_0", new))
    };
    let (theirs, secret, prefix) = (node.at("theirs"), node.secret(), node.at("prefix"));
    let transfers = Box::new(move |cache: &Path| plant_transfers(cache, &theirs, &secret, &prefix));
    vec![
        ("other bytes", Box::new(move |cache| fs::write(data(cache), [b'y'; 1000]).unwrap())),
        ("a symbolic link", instead(&|secret, path| symlink(secret, path).unwrap())),
        ("a hard link", instead(&|secret, path| fs::hard_link(secret, path).unwrap())),
        (
            "a named pipe",
            instead(&|_, path| mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap()),
        ),
        ("a name that leads up", renamed(b"../home/secre")),
        ("a name that leads up late", renamed(b"a/../../ho/se")),
        ("an absolute name", renamed(b"/tmp/absolute")),
        (TRANSFERS, transfers),
    ]
}

/// The files that the job's transports would have left: a copy of the secret, and programs to be started.
fn plant_transfers(control: &Path, theirs: &Path, secret: &Path, prefix: &Path) {
    let mut transfer = KvTree::new();
    let file = transfer.child("FILES").child(secret.to_str().unwrap());
    file.set("DESTINATION", theirs.join("copy").display());
    file.set("SIZE", 1000);
    file.set("WRITTEN", 0);
    for (key, value) in
        [("TOKEN", "1.a"), ("BLOCK", "4096"), ("CHECKSUMS", "1"), ("BW", "0"), ("PERCENT", "0")]
    {
        transfer.set(key, value);
    }
    fs::write(control.join("transfer.1.a.scr"), transfer.to_file_bytes()).unwrap();
    let mut record = KvTree::new();
    for (key, value) in [
        ("VERSION", "2"),
        ("TOKEN", "1.a"),
        ("RANK", "0"),
        ("NODE", "0"),
        ("TRANSPORT", "AGENT"),
        ("TICKET", ""),
        ("BLOCK", "4096"),
        ("CHECKSUMS", "1"),
        ("METADATA", "1"),
        ("OWNER", "1"),
        ("STATE", "COPYING"),
    ] {
        record.set(key, value);
    }
    record.set("PREFIX", prefix.display());
    for key in ["PROGRAM", "LIBRARY"] {
        record.child("OPTIONS").set(key, theirs.join("evil").display());
    }
    let file = record.entry("FILES", 0);
    for (key, value) in
        [("NAME", "copied"), ("SIZE", "1000"), ("MODE", "33188"), ("MTIME", "1"), ("MTIME_NSECS", "1")]
    {
        file.set(key, value);
    }
    file.set("SOURCE", secret.display());
    fs::write(control.join("detached.1.a.0"), record.to_file_bytes()).unwrap();
}

/// Puts other bytes of the same length into a filemap, under checksums that are right.
fn rewrite(filemap: &Path, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let mut bytes = fs::read(filemap).unwrap();
    while let Some(at) = bytes.windows(old.len()).position(|part| part == old) {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    let mut begin = b"scrfmap\x02".len();
    while begin + 8 <= bytes.len() {
        let len = u32::from_be_bytes(bytes[begin..begin + 4].try_into().unwrap()) as usize;
        let crc = crc32fast::hash(&bytes[begin + 8..begin + 8 + len]);
        bytes[begin + 4..begin + 8].copy_from_slice(&crc.to_be_bytes());
        begin += 8 + len;
    }
    fs::write(filemap, bytes).unwrap();
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|found| found == part)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Gives a tree to a user. A link, or a file with another name elsewhere, keeps its owner.
fn own(path: &Path, owner: u32) {
    let status = fs::symlink_metadata(path).unwrap();
    if status.is_dir() {
        names(path).iter().for_each(|name| own(&path.join(name), owner));
    }
    if status.is_dir() || !status.is_symlink() && status.nlink() == 1 {
        chown(path, Some(owner), Some(owner)).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    for name in names(from) {
        let (source, target) = (from.join(&name), to.join(&name));
        if source.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&source, &target);
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}

/// Every regular file with its bytes, and everything else without.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in names(folder).iter().map(|name| folder.join(name)) {
        let status = fs::symlink_metadata(&path).unwrap();
        if status.is_dir() {
            found.extend(tree(&path));
        }
        let bytes = if status.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path, bytes);
    }
    found
}
