//! Tests of every transport whose copies a vendor's service makes, with a stand-in for its library.

use crate::standin::Standin;
use scr_plugin_api::{CopyItem, CopyJob, CopyState, PluginErrorKind, Transport};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Makes the transport with the library at this path.
pub type Make<'a> = &'a dyn Fn(&Path) -> Box<dyn Transport>;

/// A process has one library of a vendor, and so these tests go one after the other.
pub fn alone<T>(test: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    test()
}

/// Three files of this folder, one of them empty.
///
/// # Panics
/// They cannot be written.
pub fn job(folder: &Path, token: &str) -> CopyJob {
    let item = |(number, bytes): (u8, u64)| {
        let source = folder.join(format!("{number}"));
        let contents: Vec<u8> = (0..bytes).map(|place| (place as u8).wrapping_mul(7 + number)).collect();
        fs::write(&source, contents).unwrap();
        CopyItem { source, destination: folder.join(format!(".{number}.{token}.part")), bytes }
    };
    let items = [(1, 100_000), (2, 0), (3, 50_001)].into_iter().map(item).collect();
    CopyJob { token: token.to_owned(), items, block_bytes: 1 << 20, take_crc: true }
}

/// Every byte is at its destination.
///
/// # Panics
/// One is not.
pub fn arrived(job: &CopyJob) {
    for item in &job.items {
        let path = item.destination.display();
        assert!(fs::read(&item.source).unwrap() == fs::read(&item.destination).unwrap(), "{path}");
    }
}

const FOLDER: &str = "SCR_TEST_STAGED";

/// A process that starts a job and dies by SIGKILL leaves a copy under way; another process asks, waits, and has every byte,
/// copied once. `test` is the name of the test that calls this, which is run again as that process.
///
/// # Panics
/// It is not so.
pub fn a_ticket_outlives_its_process(example: &str, test: &str, make: Make<'_>) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let transport = make(&folder.join(format!("lib{example}.so")));
        let ticket = transport.start(&job(folder, "a")).unwrap();
        assert!(matches!(transport.poll(&ticket), Ok(CopyState::Running(_))));
        fs::write(folder.join("ticket"), ticket).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let standin = Standin::within(example, folder.path());
    standin.set("half", "");
    let mut first = Command::new(std::env::current_exe().unwrap());
    let status = first.args(["--exact", test]).env(FOLDER, folder.path()).status().unwrap();
    assert_eq!(status.signal(), Some(9));
    let job = job(folder.path(), "a");
    let ticket = fs::read(folder.path().join("ticket")).unwrap();
    let transport = make(standin.library());
    assert_eq!(transport.poll(&ticket), Ok(CopyState::Running(75_000)));
    standin.unset("half");
    assert_eq!(transport.wait(&ticket), Ok(CopyState::Done));
    arrived(&job);
    assert_eq!(standin.begun(), 2);
}

/// A service that gives up half-way says why, and the job can be started again; one that does not move can be stopped.
///
/// # Panics
/// It is not so.
pub fn a_failing_service_is_reported_and_retried(example: &str, make: Make<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let standin = Standin::within(example, folder.path());
    let transport = make(standin.library());
    let job = job(folder.path(), "a");
    standin.set("fail", "28");
    let ticket = transport.start(&job).unwrap();
    let Ok(CopyState::Failed(error)) = transport.wait(&ticket) else { panic!("it should have failed") };
    assert_eq!((error.kind, error.text.lines().count()), (PluginErrorKind::Io, 1));
    let destination = job.items[0].destination.display().to_string();
    assert!(error.text.contains("No space left on device") && error.text.contains(&destination), "{error}");
    standin.unset("fail");
    standin.set("hold", "");
    let ticket = transport.start(&job).unwrap();
    assert_eq!(transport.poll(&ticket), Ok(CopyState::Running(0)));
    transport.cancel(&ticket).unwrap();
    let Ok(CopyState::Failed(error)) = transport.wait(&ticket) else { panic!("it was cancelled") };
    assert_eq!(error.kind, PluginErrorKind::Cancelled);
    standin.unset("hold");
    let ticket = transport.start(&job).unwrap();
    assert_eq!(transport.wait(&ticket), Ok(CopyState::Done));
    arrived(&job);
}

/// Only what lies there in full counts, whatever the service says.
///
/// # Panics
/// It is not so.
pub fn a_short_file_is_found_though_the_service_is_content(example: &str, make: Make<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let standin = Standin::within(example, folder.path());
    let job = job(folder.path(), "a");
    standin.set("short", "");
    let transport = make(standin.library());
    let ticket = transport.start(&job).unwrap();
    let Ok(CopyState::Failed(error)) = transport.wait(&ticket) else { panic!("a byte is missing") };
    assert!(error.text.contains("has 99999 bytes of 100000"), "{error}");
}
