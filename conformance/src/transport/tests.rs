//! Tests of the suite: a correct transport passes, and one that breaks a rule fails in the case for that rule.

use super::*;
use scr_plugin_api::{CopyItem, CopyJob, CopyState, PluginError, PluginErrorKind};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The defect of a transport.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    CopiesNothing,
    ChangesTheSource,
    LeavesALink,
    DropsTheLastByte,
    ShiftsTheBytes,
    KeepsTheFileBefore,
    LeavesTheOldTail,
    LeavesOutZerosAtTheEnd,
    ComesBackEarly,
    RefusesEmptyJobs,
    RefusesOddNames,
    RefusesOddBlocks,
    IgnoresTheSize,
    ForgetsErrors,
    NamesNoFile,
    MakesFolders,
    SkipsWhatItCannotRead,
    SkipsWhatItCannotWrite,
    IsSpoiledByAnError,
    CopiesOnceAndNeverAgain,
    CopiesAgain,
    GivesTheOtherJobsState,
    TakesAnyTicket,
    LiesAboutTheChecksum,
    CountsTooMuch,
    CountsBackwards,
    CopiesAfterDone,
    CopiesAfterCancel,
    CancelsWhatIsDone,
    IsKnownToItselfOnly,
    LooksAtTheEndOfTokens,
}

use Wrong::*;

/// The simplest transport there is, but for what it does wrong: each question copies one file.
struct Simple {
    wrong: Wrong,
    jobs: Arc<Mutex<Jobs>>,
}

type Jobs = BTreeMap<Vec<u8>, Entry>;

struct Entry {
    job: CopyJob,
    next: usize,
    failure: Option<PluginError>,
}

impl Simple {
    fn copy(&self, item: &CopyItem, before: Option<&CopyItem>) -> Result<(), PluginError> {
        let error = |path: &Path, error: &dyn std::fmt::Display| {
            let text = if self.wrong == NamesNoFile {
                "it failed".into()
            } else {
                format!("{}: {error}", path.display())
            };
            PluginError::new(PluginErrorKind::Io, text)
        };
        if self.wrong == RefusesOddNames && item.source.to_str().is_none() {
            return Err(error(&item.source, &"no text"));
        }
        if self.wrong == MakesFolders {
            let _ = item.destination.parent().map(fs::create_dir_all);
        }
        let mut bytes = match fs::read(&item.source) {
            Err(_) if self.wrong == SkipsWhatItCannotRead && item.source.exists() => return Ok(()),
            other => other.map_err(|cause| error(&item.source, &cause))?,
        };
        if bytes.len() as u64 != item.bytes && self.wrong != IgnoresTheSize {
            return Err(error(&item.source, &"wrong size"));
        }
        match self.wrong {
            CopiesNothing => return Ok(()),
            LeavesALink => {
                let _ = fs::remove_file(&item.destination);
                return std::os::unix::fs::symlink(&item.source, &item.destination)
                    .map_err(|cause| error(&item.destination, &cause));
            }
            ChangesTheSource if bytes.len() > 5 => {
                let flipped: Vec<_> = bytes.iter().map(|byte| !byte).collect();
                fs::write(&item.source, flipped).map_err(|cause| error(&item.source, &cause))?;
            }
            DropsTheLastByte => drop(bytes.pop()),
            ShiftsTheBytes if bytes.len() > 1000 => bytes.rotate_left(1000),
            KeepsTheFileBefore => {
                let before =
                    before.map_or(Ok(Vec::new()), |before| fs::read(&before.source)).unwrap_or_default();
                bytes.iter_mut().zip(before).for_each(|(byte, before)| *byte = before);
            }
            LeavesOutZerosAtTheEnd => {
                bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |place| place + 1));
            }
            _ => {}
        }
        let written = if self.wrong == LeavesTheOldTail {
            let file =
                fs::OpenOptions::new().write(true).create(true).truncate(false).open(&item.destination);
            file.and_then(|file| file.write_all_at(&bytes, 0))
        } else {
            fs::write(&item.destination, bytes)
        };
        match written {
            Err(_) if self.wrong == SkipsWhatItCannotWrite => Ok(()),
            other => other.map_err(|cause| error(&item.destination, &cause)),
        }
    }

    /// Copies the next file.
    fn step(&self, entry: &mut Entry) {
        if entry.failure.is_some() && self.wrong != CopiesAfterCancel {
            return;
        }
        if let Some(item) = entry.job.items.get(entry.next) {
            entry.next += 1;
            let before = entry.next.checked_sub(2).map(|before| &entry.job.items[before]);
            match self.copy(item, before) {
                Err(error) if self.wrong != ForgetsErrors => entry.failure = Some(error),
                _ => {}
            }
        }
    }

    fn state(&self, entry: &Entry) -> CopyState {
        let done = |next: usize| entry.job.items[..next].iter().map(|item| item.bytes).sum::<u64>();
        match &entry.failure {
            Some(error) => CopyState::Failed(error.clone()),
            None if entry.next == entry.job.items.len() => CopyState::Done,
            None if self.wrong == CountsTooMuch => CopyState::Running(u64::MAX),
            None if self.wrong == CountsBackwards => {
                CopyState::Running(done(entry.job.items.len()) - done(entry.next))
            }
            None => CopyState::Running(done(entry.next)),
        }
    }
}

fn refused(text: &str) -> PluginError {
    PluginError::new(PluginErrorKind::Refused, text)
}

impl Transport for Simple {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let token = match self.wrong {
            LooksAtTheEndOfTokens => job.token.rsplit('.').next().unwrap_or_default(),
            _ => &job.token,
        };
        let ticket = format!("simple {token} end").into_bytes();
        let mut jobs = self.jobs.lock().unwrap();
        let spoiled = jobs.values().any(|entry| entry.failure.is_some());
        if self.wrong == RefusesEmptyJobs && job.items.is_empty()
            || self.wrong == RefusesOddBlocks && job.block_bytes < 512
            || self.wrong == IsSpoiledByAnError && spoiled
        {
            return Err(refused("not with me"));
        }
        match jobs.get(&ticket) {
            Some(_) if self.wrong == CopiesAgain => {}
            Some(entry) if entry.failure.is_some() && self.wrong != CopiesOnceAndNeverAgain => {}
            Some(entry) if entry.job == *job || self.wrong == GivesTheOtherJobsState => return Ok(ticket),
            Some(_) => return Err(refused("token used")),
            None => {}
        }
        for item in jobs.values().flat_map(|entry| &entry.job.items).filter(|_| self.wrong == CopiesAfterDone)
        {
            fs::write(&item.destination, "late").unwrap();
        }
        jobs.insert(ticket.clone(), Entry { job: job.clone(), next: 0, failure: None });
        Ok(ticket)
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        match self.jobs.lock().unwrap().get_mut(ticket) {
            Some(entry) => {
                self.step(entry);
                Ok(self.state(entry))
            }
            None if self.wrong == TakesAnyTicket => Ok(CopyState::Done),
            None => Err(refused("foreign")),
        }
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        loop {
            match self.poll(ticket)? {
                CopyState::Running(_) if self.wrong != ComesBackEarly => {}
                state => return Ok(state),
            }
        }
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        let mut jobs = self.jobs.lock().unwrap();
        let Some(entry) = jobs.get_mut(ticket) else {
            return if self.wrong == TakesAnyTicket { Ok(()) } else { Err(refused("foreign")) };
        };
        if entry.next < entry.job.items.len() || self.wrong == CancelsWhatIsDone {
            entry.failure.get_or_insert(PluginError::new(PluginErrorKind::Cancelled, "cancelled"));
        }
        Ok(())
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        let jobs = self.jobs.lock().unwrap();
        let item = jobs.get(ticket)?.job.items.get(item)?;
        let crc = crc32fast::hash(&fs::read(&item.source).ok()?);
        Some(if self.wrong == LiesAboutTheChecksum { !crc } else { crc })
    }
}

/// The factory of such transports.
fn with<T>(wrong: Wrong, examine: impl FnOnce(&dyn Fn() -> Box<dyn Transport>) -> T) -> T {
    let shared: Arc<Mutex<Jobs>> = Arc::default();
    let alone = [IsKnownToItselfOnly, IsSpoiledByAnError].contains(&wrong);
    let jobs = || if alone { Arc::default() } else { Arc::clone(&shared) };
    examine(&|| Box::new(Simple { wrong, jobs: jobs() }))
}

/// What one rule finds.
fn outcome_of(wrong: Wrong, rule: &str) -> Check {
    let folder = tempfile::tempdir().unwrap();
    let case = all().find(|case| case.name == rule).unwrap();
    with(wrong, |make| {
        let (folder, call) = (folder.path(), CALL);
        case.run(&Subject { make, folder, full: None, read_only: None, survives: true, call })
    })
}

fn report_of(wrong: Wrong) -> Report {
    with(wrong, |make| run_in_a_folder(make, true)).unwrap()
}

#[test]
fn a_transport_that_keeps_the_rules_passes() {
    let report = report_of(Nothing);
    assert!(report.passed(), "{report}");
}

#[test]
fn each_fault_is_found() {
    for (wrong, rule) in [
        (CopiesNothing, "files of every size arrive"),
        (ChangesTheSource, "files of every size arrive"),
        (LeavesALink, "files of every size arrive"),
        (DropsTheLastByte, "files of every size arrive"),
        (ComesBackEarly, "many files arrive in one job"),
        (RefusesEmptyJobs, "a job without files is done"),
        (LeavesOutZerosAtTheEnd, "a sparse file arrives"),
        (LiesAboutTheChecksum, "a checksum is that of the bytes"),
        (RefusesOddBlocks, "every block size works"),
        (RefusesOddNames, "a name that is not text works"),
        (LeavesTheOldTail, "an older destination is replaced"),
        (IgnoresTheSize, "a source of another size is an error"),
        (ForgetsErrors, "a missing source is an error"),
        (NamesNoFile, "a missing source is an error"),
        (SkipsWhatItCannotRead, "a source that cannot be read is an error"),
        (MakesFolders, "a missing folder is an error"),
        (SkipsWhatItCannotWrite, "a destination that cannot be written is an error"),
        (IsSpoiledByAnError, "one bad file does not spoil the next job"),
        (CopiesOnceAndNeverAgain, "what has failed can be started again"),
        (CopiesOnceAndNeverAgain, "what was cancelled can be started again"),
        (CountsTooMuch, "progress is counted in bytes"),
        (CountsBackwards, "progress is counted in bytes"),
        (CopiesAgain, "the same job twice is one copy"),
        (GivesTheOtherJobsState, "a token does not stand for two jobs"),
        (TakesAnyTicket, "a foreign ticket is an error"),
        (CopiesAfterDone, "nothing is written after `Done`"),
        (CopiesAfterCancel, "nothing is written after cancel"),
        (CancelsWhatIsDone, "cancelling what is done changes nothing"),
        (IsKnownToItselfOnly, "another instance continues with a ticket"),
        (LooksAtTheEndOfTokens, "jobs of several threads do not mix"),
    ] {
        let outcome = outcome_of(wrong, rule);
        assert!(outcome.failed == 1 && outcome.cure.is_some(), "{wrong:?}: {outcome}");
    }
}

/// It said which rule was broken, and the author had to look for the rest.
#[test]
fn the_first_wrong_byte_and_the_usual_mistake_are_named() {
    for (wrong, rule, words) in [
        (
            DropsTheLastByte,
            "files of every size arrive",
            "/to/1 is wrong from byte 0 on: it ends there instead of at byte 1",
        ),
        (
            LeavesTheOldTail,
            "an older destination is replaced",
            "/to/0 is wrong from byte 100 on: it ends at byte 300000 instead",
        ),
        (
            LeavesOutZerosAtTheEnd,
            "a sparse file arrives",
            "/to/0 is wrong from byte 16777224 on: it ends there instead of at byte 33554432",
        ),
        (ChangesTheSource, "files of every size arrive", "/from/2 was changed"),
        (LeavesALink, "files of every size arrive", "/to/0 is a link and no copy"),
        (
            LiesAboutTheChecksum,
            "a checksum is that of the bytes",
            "/to/0 is a right copy, and its checksum is 0x00000000, not 0xffffffff as `crc' says",
        ),
        (ShiftsTheBytes, "files of every size arrive", "is wrong from byte 0 on: there stands /"),
        (KeepsTheFileBefore, "many files arrive in one job", "/to/2 is wrong from byte 0 on: there stands /"),
        (KeepsTheFileBefore, "many files arrive in one job", "/from/1 from byte 0 on"),
    ] {
        let said = outcome_of(wrong, rule).to_string();
        assert!(said.contains(words), "{wrong:?} should say `{words}', but:\n{said}");
    }
}

/// Each rule that failed with the copies told the author to change something else.
#[test]
fn where_plain_copies_fail_no_other_rule_says_what_usually_helps() {
    let report = report_of(DropsTheLastByte);
    let (plain, others) = report.checks.split_first().unwrap();
    assert!(plain.cure.is_some(), "{report}");
    assert!(others.iter().any(|check| check.failed > 0), "{report}");
    assert!(others.iter().all(|check| check.cure.is_none()), "{report}");
    // The copies are good.
    let report = report_of(TakesAnyTicket);
    assert!(report.to_string().contains("Look the whole ticket up"), "{report}");
}

/// A transport whose copies never end.
struct Endless;

impl Transport for Endless {
    fn start(&self, _: &CopyJob) -> Result<Vec<u8>, PluginError> {
        Ok(Vec::new())
    }
    fn poll(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        Ok(CopyState::Running(0))
    }
    fn wait(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        loop {
            std::thread::park();
        }
    }
    fn cancel(&self, _: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }
    fn crc(&self, _: &[u8], _: usize) -> Option<u32> {
        None
    }
}

#[test]
fn a_call_that_does_not_return_is_named_and_nothing_else_is_tried() {
    // So long the call that hangs is waited for, and so long the others have, also on a busy machine.
    let report = run_within(&|| Box::new(Endless), false, Duration::from_secs(2)).unwrap();
    let found: Vec<_> = report.checks.iter().flat_map(|check| &check.failures).collect();
    assert_eq!(found.len(), all().count());
    assert!(found[0].contains("wait has not returned within"), "{report}");
    assert!(found[1..].iter().all(|found| found.contains("not tried")), "{report}");
}

#[test]
fn full_and_read_only_file_systems_are_tested_if_they_can_be_mounted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(probe) = TinyFileSystem::mount(folder.path()).and_then(TinyFileSystem::made_read_only) else {
        return;
    };
    assert!(fs::write(probe.folder().join("file"), "1").is_err());
    // A process that was killed left its file systems for good.
    let left = tempfile::tempdir().unwrap();
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let mut mount = Command::new("mount");
    let source = format!("scr-conformance-{}", dead.id());
    assert!(mount.args(["-t", "tmpfs", &source]).arg(left.path()).status().unwrap().success());
    let report = report_of(SkipsWhatItCannotWrite);
    for rule in
        ["a read-only destination is an error", "a full destination is an error and the next job works"]
    {
        assert!(report.broken().contains(&rule), "{report}");
    }
    let is_mounted = |path: &Path| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&format!(" {} ", path.display()))
    };
    assert!(is_mounted(probe.folder()) && !is_mounted(left.path()));
}
