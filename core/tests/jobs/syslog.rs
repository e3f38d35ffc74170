//! The messages of a job to the system's logger. The test itself is the logger, in a mount namespace with a `/dev` of its own.

use super::own_mounts::in_own_mounts;
use super::world::World;
use scr_comm::Rank;
use std::os::unix::net::UnixDatagram;

fn even(rank: Rank) -> Vec<usize> {
    vec![1000 + rank.index()]
}

/// An empty `/dev` but for what programs cannot do without.
const OWN_DEV: &str = r#"
    old=$(mktemp -d); mount --rbind /dev "$old"
    mount -t tmpfs tmpfs /dev
    for name in null zero full random urandom; do : >"/dev/$name"; mount --bind "$old/$name" "/dev/$name"; done
    mkdir /dev/shm; mount -t tmpfs tmpfs /dev/shm
    umount -l "$old"; rmdir "$old"
"#;

#[test]
fn a_job_sends_its_log_to_the_systems_logger() {
    in_own_mounts("syslog::a_job_sends_its_log_to_the_systems_logger", OWN_DEV, logs_to_its_own_dev);
}

fn logs_to_its_own_dev() {
    let logger = UnixDatagram::bind("/dev/log").unwrap();
    logger.set_nonblocking(true).unwrap();
    let world = World::new(2, 2)
        .set("SCR_LOG_ENABLE", "1")
        .set("SCR_LOG_TXT_ENABLE", "0")
        .set("SCR_LOG_SYSLOG_FACILITY", "LOG_LOCAL3")
        .set("SCR_LOG_SYSLOG_LEVEL", "LOG_NOTICE")
        .set("SCR_LOG_SYSLOG_PREFIX", "SCR-test");
    let outcome = world.run(|application| application.checkpoint(1, even).unwrap());
    assert!(!outcome.has_line_with("WARNING"), "{}", outcome.lines.join("\n"));
    let mut received = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(length) = logger.recv(&mut buffer) {
        received.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    let begin = format!(" SCR-test[{}]: host=n0, jobid=defjobid, ", std::process::id());
    for message in &received {
        // 19 is local3, 5 is notice.
        assert!(message.starts_with(&format!("<{}>", 19 * 8 + 5)) && message.contains(&begin), "{message}");
    }
    for name in ["event=START, procs=2, nodes=2", "event=CHECKPOINT_START", "xfer=ENCODE", "xfer=CHECKPOINT"]
    {
        assert!(received.iter().any(|message| message.contains(name)), "no {name} in {received:#?}");
    }
    assert!(!world.prefix().join(".scr/log").exists());

    // An unknown facility causes a warning, and the job continues without syslog.
    let world = world.set("SCR_LOG_SYSLOG_FACILITY", "LOG_LOCAL9");
    let outcome = world.run(|application| application.checkpoint(2, even).unwrap());
    outcome.line_with(&["WARNING", "logging to syslog failed", "there is no facility `LOG_LOCAL9'"]);
}
