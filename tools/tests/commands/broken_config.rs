//! Configuration files as bad as they get, through `scr config --check`: each problem is reported with file and line, and the
//! command always ends with "something is wrong".

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::installation::Installation;

/// Name of the case, contents of the file, the line that is reported, and words of the message.
type Case = (&'static str, &'static [u8], u32, &'static str);

/// Names and words that nobody knows.
const NAMES: &[Case] = &[
    ("a letter is missing", b"SCR_FLSH=1", 1, "did you mean SCR_FLUSH?"),
    ("letters are swapped, on a later line", b"# one\n\nSCR_CACHE_SZIE=1", 3, "did you mean SCR_CACHE_SIZE?"),
    ("small letters", b"scr_flush=1", 1, "did you mean SCR_FLUSH?"),
    ("without SCR_", b"CACHE_SIZE=1", 1, "did you mean SCR_CACHE_SIZE?"),
    ("nothing like it", b"OMP_NUM_THREADS=4", 1, "there is no parameter OMP_NUM_THREADS"),
    ("as a shell has it", b"export SCR_FLUSH=1", 1, "has no `='"),
    ("of version 1", b"SCR_HOP_DISTANCE=1", 1, "of a former version"),
    ("a descriptor of version 1", b"CKPTDESC=0 INTERVAL=1", 1, "describe checkpoints with CKPT lines"),
    ("a mistyped descriptor", b"CKTP=0 TYPE=XOR", 1, "did you mean CKPT?"),
    ("a letter that is not to be seen", b"SCR_FLUSH\xe2\x80\x8b=1", 1, "no parameter SCR_FLUSH\\u{200b},"),
    ("a mistyped key of a store", b"STORE=/ssd CUONT=3", 1, "did you mean COUNT?"),
];

/// Values that are none.
const VALUES: &[Case] = &[
    ("a word for a number", b"SCR_FLUSH=ten", 1, "not a whole number"),
    ("a negative number", b"SCR_CACHE_SIZE=-1", 1, "not 0 or more"),
    ("a fraction", b"SCR_FLUSH=1.5", 1, "not a whole number"),
    ("more than 64 bits", b"SCR_FLUSH=18446744073709551616", 1, "not within 0 to"),
    ("more than 128 bits", b"SCR_FLUSH=999999999999999999999999999999999999999999", 1, "not a whole number"),
    ("neither yes nor no", b"SCR_CACHE_BYPASS=maybe", 1, "not 0 or 1"),
    ("an unknown unit", b"SCR_FILE_BUF_SIZE=10XB", 1, "not a number of bytes"),
    ("too small a buffer", b"SCR_FILE_BUF_SIZE=1", 1, "not within 4096 to"),
    ("a negative size", b"SCR_FILE_BUF_SIZE=-4096", 1, "not 4096 or more"),
    ("a size that overflows", b"SCR_FILE_BUF_SIZE=99999999999PB", 1, "not within 4096 to"),
    ("a unit without a number", b"SCR_FILE_BUF_SIZE=MB", 1, "not a number of bytes"),
    ("an unknown unit of time", b"SCR_HALT_SECONDS=1x", 1, "not a number of seconds"),
    ("time without end", b"SCR_HALT_SECONDS=9999999999999d", 1, "not within 0 to"),
    ("more than all of the time", b"SCR_CHECKPOINT_OVERHEAD=101", 1, "not within 0 to 100"),
    ("not a number", b"SCR_CHECKPOINT_OVERHEAD=NaN", 1, "not a number"),
    ("a set of one", b"SCR_SET_SIZE=1", 1, "not within 2 to"),
    ("a set of more than all ranks", b"SCR_SET_SIZE=4294967296", 1, "not within 2 to"),
    ("fewer than no limit", b"SCR_RUNS=-2", 1, "not within -1 to"),
    ("a relative folder", b"SCR_PLUGIN_PATH=plugins", 1, "not absolute paths"),
    (
        "a folder that is not there",
        b"SCR_PLUGIN_PATH=/no/plugins",
        1,
        "`/no/plugins': there is no such folder",
    ),
    ("an id that leads to another folder", b"SCR_JOB_ID=a/b", 1, "not a text without `/'"),
    ("a scheme with blanks", b"SCR_COPY_TYPE=\"X O R\"", 1, "not one of SINGLE"),
    ("a scheme of version 1", b"SCR_COPY_TYPE=LOCAL", 1, "means SINGLE today"),
    ("no value", b"SCR_FLUSH=", 1, "has no value"),
    ("a list of nodes that is cut off", b"SCR_EXCLUDE_NODES=n[1-", 1, "a bracket without its partner"),
    ("no list of nodes", b"SCR_NODELIST=n[5-1]", 1, "no number and no range such as 1-3"),
    (
        "a logger's facility that is none",
        b"SCR_LOG_SYSLOG_FACILITY=LOG_LOCAL9",
        1,
        "no facility `LOG_LOCAL9'",
    ),
    ("a logger's level that is none", b"SCR_LOG_SYSLOG_LEVEL=LOUD", 1, "there are LOG_EMERG, LOG_ALERT"),
    ("a cache wherever a process runs", b"SCR_CACHE_BASE=cache", 1, "`cache', which is not an absolute path"),
    ("metrics wherever a process runs", b"SCR_METRICS_DIR=metrics", 1, "not an absolute path; it is ignored"),
    ("a variable that is not set", b"SCR_CACHE_BASE=/tmp/$SURELY_NOT_SET", 1, "uses $SURELY_NOT_SET"),
    ("a variable in braces", b"SCR_CACHE_BASE=/tmp/${SURELY_NOT_SET}/x", 1, "uses $SURELY_NOT_SET"),
    ("a value that is itself", b"SCR_CACHE_BASE=$SCR_CACHE_BASE/x", 1, "uses $SCR_CACHE_BASE"),
    (
        "two values that are each other",
        b"SCR_CACHE_BASE=$SCR_CNTL_BASE\nSCR_CNTL_BASE=$SCR_CACHE_BASE",
        2,
        "nothing but $SCR_CACHE_BASE",
    ),
];

/// Lines that cannot be read, and settings that stand in a wrong place.
const LINES: &[Case] = &[
    ("a name alone", b"SCR_FLUSH=1\nSCR_DEBUG", 2, "has no `='"),
    ("a value alone", b"=1", 1, "a value has no name"),
    ("an open quote", b"SCR_PREFIX=\"/my runs", 1, "a \" is opened and not closed"),
    ("an open single quote", b"SCR_PREFIX='/my runs\nSCR_FLUSH=1", 1, "a ' is opened and not closed"),
    ("cut off within a quote", b"SCR_FLUSH=1\nCKPT=0 STORE=\"/ss", 2, "opened and not closed"),
    ("two settings on a line", b"SCR_FLUSH=1 SCR_DEBUG=1", 1, "`SCR_DEBUG=1' after the value"),
    ("a path with blanks", b"SCR_CACHE_BASE=/my dir", 1, "put a value with blanks in quotes"),
    ("set twice", b"SCR_FLUSH=1\n\nSCR_FLUSH=2", 3, "set a second time, after"),
    ("a key twice on a line", b"STORE=/ssd COUNT=1 COUNT=2", 1, "set a second time"),
    ("a key without a value", b"STORE=/ssd COUNT=", 1, "has no value"),
    ("locking is the site's", b"SCR_LOCKED=SCR_FLUSH", 1, "only in the system configuration file"),
    ("a file cannot name itself", b"SCR_CONF_FILE=/x", 1, "only in the environment or with SCR_Config"),
];

/// Bytes that are no text.
const BYTES: &[Case] = &[
    ("a null byte", b"SCR_JOB_NAME=a\0b", 1, "not UTF-8 text, or holds control characters"),
    ("null bytes only", b"\0\0\0\0\0\0\0\0", 1, "holds control characters"),
    ("latin 1", b"SCR_FLUSH=1\nSCR_JOB_NAME=caf\xe9", 2, "not UTF-8"),
    ("cut off within a letter", b"SCR_JOB_NAME=caf\xc3", 1, "not UTF-8"),
    ("two bytes a letter", b"\xff\xfeS\0C\0R\0_\0F\0L\0U\0S\0H\0=\x001\0", 1, "not UTF-8"),
    ("a colour", b"SCR_JOB_NAME=\x1b[31mred", 1, "control characters"),
    ("line ends of long ago", b"SCR_FLUSH=1\rSCR_DEBUG=1\r", 1, "control characters"),
];

/// Descriptors, each fine as a line.
const DESCRIPTORS: &[Case] = &[
    ("no interval of 1", b"SCR_COPY_TYPE=FILE\nCKPT=0 INTERVAL=2 TYPE=XOR", 2, "give one of them INTERVAL=1"),
    (
        "the same interval",
        b"SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=1 INTERVAL=4\nCKPT=2 INTERVAL=4",
        4,
        "give it another interval",
    ),
    ("no number", b"SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=one", 3, "not a number from 0"),
    ("a gap", b"SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=2 INTERVAL=2", 2, "not from 0 without a gap"),
    ("an interval of 0", b"SCR_COPY_TYPE=FILE\nCKPT=0 INTERVAL=0", 2, "not within 1 to"),
    ("described, and not used", b"CKPT=0 TYPE=RS", 1, "set SCR_COPY_TYPE=FILE to use them"),
    ("used, and not described", b"SCR_COPY_TYPE=FILE", 1, "add CKPT=0 TYPE=XOR"),
    (
        "two for output",
        b"SCR_COPY_TYPE=FILE\nCKPT=0 OUTPUT=1\nCKPT=1 INTERVAL=2 OUTPUT=1",
        3,
        "both have OUTPUT=1",
    ),
    ("an unknown group", b"SCR_COPY_TYPE=FILE\nCKPT=0 GROUP=NOED", 2, "did you mean NODE?"),
    ("an unknown group by parameter", b"SCR_GROUP=SWITCH", 1, "the groups are NODE, WORLD"),
    ("an unknown group of a store", b"STORE=/ssd GROUP=RACK", 1, "names the group RACK"),
    ("a list of hosts that is none", b"GROUPS=host[1-4 POWER=psu1", 1, "not a name or a list of nodes"),
    ("no number, where there is no other", b"SCR_COPY_TYPE=FILE\nCKPT=zero", 2, "not a number from 0"),
    (
        "a store that is off, of the only descriptor",
        b"SCR_COPY_TYPE=FILE\nSTORE=/ssd ENABLED=0\nCKPT=0 STORE=/ssd",
        3,
        "has ENABLED=0",
    ),
    ("a group that is built in", b"GROUPS=host1 NODE=x", 1, "cannot be defined"),
    ("an unknown store", b"SCR_COPY_TYPE=FILE\nSTORE=/ssd\nCKPT=0 STORE=/sdd", 3, "did you mean /ssd?"),
    (
        "a store that is off",
        b"SCR_COPY_TYPE=FILE\nSTORE=/ssd ENABLED=0\nCKPT=0\nCKPT=1 INTERVAL=2 STORE=/ssd",
        4,
        "has ENABLED=0",
    ),
    ("the only store is off", b"SCR_CACHE_BASE=/ssd\nSTORE=/ssd ENABLED=0", 1, "has ENABLED=0"),
    ("a relative store", b"STORE=ssd", 1, "not an absolute path"),
    ("the same store twice", b"STORE=/ssd COUNT=1\nSTORE=/ssd/ COUNT=2", 2, "described a second time"),
    ("no such time to leave", b"STORE=/ssd EVICT=sometimes", 1, "one of auto, before, after"),
    ("a store of no size", b"STORE=/ssd SIZE=0", 1, "not within 1 to"),
    (
        "failures as many as members",
        b"SCR_COPY_TYPE=RS\nSCR_SET_SIZE=3\nSCR_SET_FAILURES=3",
        3,
        "cannot survive the loss of all its members",
    ),
    (
        "a set as small as the failures",
        b"SCR_COPY_TYPE=RS\nSCR_SET_SIZE=2",
        2,
        "cannot survive the loss of all its members",
    ),
    (
        "failures of a line",
        b"SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=RS SET_SIZE=4 SET_FAILURES=4",
        2,
        "cannot survive the loss of all its members",
    ),
    ("a cache of none", b"SCR_CACHE_BYPASS=0\nSCR_CACHE_SIZE=0", 2, "keeps no dataset"),
    (
        "a store of none",
        b"SCR_COPY_TYPE=FILE\nSTORE=/ssd COUNT=0\nCKPT=0 STORE=/ssd BYPASS=0",
        3,
        "set BYPASS=1 or a count of at least 1",
    ),
];

/// Plugins, by their manifests, and settings that do not go together.
const PLUGINS: &[Case] = &[
    ("an unknown scheme", b"SCR_COPY_TYPE=ACME", 1, "there is no scheme plugin named ACME"),
    ("a mistyped scheme", b"SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=PARTNRE", 2, "did you mean PARTNER?"),
    ("descriptors as a scheme", b"SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=FILE", 2, "not the name of a scheme"),
    ("an unknown transport", b"SCR_FLUSH_TYPE=PIGEON", 1, "there is no transport plugin named PIGEON"),
    ("what comes of it", b"SCR_FLUSH_TYPE=PIGEON", 1, "nothing is flushed with it"),
    (
        "an unknown transport of a store",
        b"STORE=/ssd FLUSH=PIGEON",
        1,
        "there is no transport plugin named PIGEON",
    ),
    (
        "a transport that the cache needs",
        b"SCR_CACHE_BYPASS=0\nSCR_FLUSH_TYPE=PIGEON",
        2,
        "(no job starts with this)",
    ),
    ("the key of a page", b"STORE=/ssd TYPE=pthread", 1, "STORE=/ssd has no key TYPE, did you mean FLUSH?"),
    (
        "a key of another line",
        b"SCR_COPY_TYPE=FILE\nCKPT=0 COUNT=2",
        2,
        "has no key COUNT, did you mean COUNT on a STORE line?",
    ),
    ("an unknown option", b"SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=PARTNER REPLICA=2", 2, "did you mean REPLICAS?"),
    (
        "an option that is no number",
        b"SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=PARTNER REPLICAS=many",
        2,
        "takes a whole number",
    ),
    (
        "an option out of range",
        b"SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=RS SET_SIZE=512 SET_FAILURES=300",
        2,
        "from 1 to 255",
    ),
    (
        "asynchronous with a transport that waits",
        b"SCR_FLUSH_ASYNC=1\nSCR_FLUSH_TYPE=SYNC",
        1,
        "set SCR_FLUSH_TYPE=PTHREAD",
    ),
    ("a restart without a fetch", b"SCR_FETCH=0\nSCR_GLOBAL_RESTART=1", 2, "contradict each other"),
    ("a time without a watchdog", b"SCR_WATCHDOG_TIMEOUT=600", 1, "no watchdog looks at the time"),
    ("a watchdog without a time", b"SCR_WATCHDOG=1", 1, "does not know how long is too long"),
    (
        "a database without a server",
        b"SCR_LOG_ENABLE=1\nSCR_LOG_DB_ENABLE=1",
        2,
        "the database needs a server",
    ),
];

fn check(scr: &Installation, file: &Path) -> Output {
    let mut command: Command = scr.in_prefix(&["config", "--check"]);
    command.arg(file).stdin(Stdio::null()).output().expect("the command starts")
}

/// Nothing but "something is wrong", said with the file and the line.
fn expect_reported(name: &str, file: &Path, checked: &Output, line: u32, words: &str) {
    let (out, err) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    let short: String = out.chars().take(2000).collect();
    assert_eq!((checked.status.code(), err.as_ref()), (Some(1), ""), "{name}: {short}");
    let start = match line {
        0 => format!("{}: ", file.display()),
        line => format!("{}:{line}: ", file.display()),
    };
    let is_reported = out.lines().any(|line| line.starts_with(&start) && line.contains(words));
    assert!(is_reported, "{name}: no `{start}... {words}' in\n{short}");
    assert!(out.lines().all(|line| line.len() < 2000), "{name}: a line of the answer is too long to be read");
}

#[test]
fn every_broken_file_is_reported_with_its_line() {
    let scr = Installation::with_system_file("");
    let cases: Vec<_> = [NAMES, VALUES, LINES, BYTES, DESCRIPTORS, PLUGINS].concat();
    assert!(cases.len() > 50);
    for (name, bytes, line, words) in cases {
        let file = scr.write("prefix/broken.conf", bytes);
        expect_reported(name, &file, &check(&scr, &file), line, words);
    }
}

#[test]
fn oversized_files_and_lines_are_reported_briefly() {
    let scr = Installation::with_system_file("");
    let filled = |start: &str, of: &str, bytes: usize| {
        format!("SCR_FLUSH=1\n{start}{}\n", of.repeat(bytes / of.len())).into_bytes()
    };
    let long = |start, of| filled(start, of, 16_000);
    let program = std::fs::read(env!("CARGO_BIN_EXE_scr")).expect("the command itself");
    let cases = [
        (
            "a line of a megabyte",
            filled("", "A", 1 << 20),
            2,
            "the line has 1048576 bytes, and 16384 are allowed",
        ),
        ("a long name", long("", "A"), 2, "has no `='"),
        ("a long name with a value", long("A", "=1"), 2, "there is no parameter A"),
        ("a long number", long("SCR_DEBUG=", "9"), 2, "not a whole number"),
        ("a long list of keys", long("STORE=/ssd ", "A=1 "), 2, "the transport SYNC"),
        ("a program", program[..1 << 20].to_vec(), 1, "control characters"),
    ];
    for (name, bytes, line, words) in cases {
        let file = scr.write("prefix/broken.conf", bytes);
        expect_reported(name, &file, &check(&scr, &file), line, words);
    }
    let file = scr.write("prefix/large.conf", "SCR_FLUSH=1\n");
    let large = std::fs::OpenOptions::new().write(true).open(&file).expect("it is ours");
    large.set_len(100 << 20).expect("a file of nothing takes no room");
    expect_reported("a file of 100 MB", &file, &check(&scr, &file), 0, "larger than");
}

#[test]
fn a_path_that_is_no_regular_file_is_reported_without_blocking() {
    let scr = Installation::with_system_file("");
    let plain = scr.write("prefix/plain.conf", "SCR_FLUSH=1\n");
    let (pipe, circle) = (scr.path("prefix/pipe"), scr.path("prefix/circle"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::os::unix::fs::symlink(&circle, &circle).expect("a link");
    let cases = [
        ("a folder", scr.path("prefix"), "not a regular file"),
        ("nothing", scr.path("prefix/nothing.conf"), "no such file"),
        ("below a file", plain.join("below"), "cannot be read"),
        ("a pipe", pipe, "not a regular file"),
        ("a device", "/dev/zero".into(), "not a regular file"),
        ("a link to itself", circle, "cannot be read"),
    ];
    for (name, file, words) in cases {
        expect_reported(name, &file, &check(&scr, &file), 0, words);
    }
    // A reader of everything, such as root, does not see this one.
    let closed = scr.write("prefix/closed.conf", "SCR_FLUSH=1\n");
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000))
        .expect("it is ours");
    if std::fs::File::open(&closed).is_err() {
        expect_reported("closed to us", &closed, &check(&scr, &closed), 0, "cannot be read");
    }
}
