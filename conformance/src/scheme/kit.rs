//! The common parts of all checks: sets of all sizes, data, and the record of what failed.

use super::set::{Call, Ended, Outcome, SetUp, Stored};
use crate::bytes::{content, first_wrong};
use crate::{running, Check, Report};
use scr_plugin_api::Scheme;
use std::ops::RangeInclusive;
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// Makes a scheme with its options applied; every member of every set gets its own.
pub type Factory<'a> = dyn Fn() -> Box<dyn Scheme> + 'a;

/// How much is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Sizes of the sets.
    pub set_sizes: RangeInclusive<u32>,
    /// The on-disk format that the scheme writes.
    pub format: u32,
    /// How long a call may take before it counts as hung.
    pub call: Duration,
    /// Bytes of data of a member in the sets with much of it.
    pub much: usize,
    /// How many losses a set survives according to `tolerates` in the manifest.
    pub tolerates: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { set_sizes: 2..=9, format: 1, call: Duration::from_secs(20), much: 1_500_000, tolerates: None }
    }
}

const HANGS: &str =
    "Look for a loop, a lock or a thread of the scheme that never ends: the scheme itself does not \
                     return, and waits for no other member.";
const WAITS: &str =
    "Give every receive a send of the same length at the other member, in the same order, and let all \
                     members call `max` equally often.";

const PROTECTS: &str =
    "Let `protect` succeed on every member, whatever the size of the set, and only read the data.";

/// Nothing where a check ends, since no more of it can be tried.
pub(super) type Tried = Option<()>;

/// The state that all checks share.
pub(super) struct Kit<'a> {
    factory: &'a Factory<'a>,
    pub(super) limits: &'a Limits,
    pub(super) report: Report,
    /// What usually helps where the last check fails.
    cure: &'static str,
    /// What helps against how the last call ended, if it hung or panicked.
    pub(super) cure_of_call: Option<&'static str>,
    hung: bool,
    /// The sizes that the scheme takes, and how many losses it promises to survive in each.
    pub(super) promises: Vec<(u32, u32)>,
}

impl<'a> Kit<'a> {
    /// No check has begun yet.
    pub(super) fn new(factory: &'a Factory<'a>, limits: &'a Limits) -> Self {
        let (report, promises) = (Report::default(), Vec::new());
        Self { factory, limits, report, cure: "", cure_of_call: None, hung: false, promises }
    }

    /// Begins a check; what is recorded next belongs to it. `cure` is what usually helps where it fails. Nothing once
    /// no more can be tried.
    pub(super) fn begin(&mut self, name: &'static str, cure: &'static str) -> Tried {
        self.cure = cure;
        let skipped = self.hung.then(|| "a call before did not return".to_owned());
        let tried = Some(0);
        self.report.checks.push(Check { name: name.to_owned(), tried, skipped, ..Check::default() });
        self.go_on().inspect(|()| running::begin_check(name))
    }

    /// Records how one try went; an error is what came instead.
    pub(super) fn record(
        &mut self,
        place: impl FnOnce() -> String,
        expected: &str,
        result: Result<(), String>,
    ) -> Tried {
        let check = self.report.checks.last_mut()?;
        check.tried = check.tried.map(|tried| tried + 1);
        if let Err(came) = result {
            let cure = self.cure_of_call.unwrap_or(self.cure);
            check.fail(format!("{}: expected {expected}, but {came}", place()), cure);
        }
        self.go_on()
    }

    /// Only the first warning of a check is kept.
    pub(super) fn warn(&mut self, text: String) {
        if let Some(check) = self.report.checks.last_mut().filter(|check| check.warnings.is_empty()) {
            check.warnings.push(text);
        }
    }

    pub(super) fn skip(&mut self, text: &str) {
        if let Some(check) = self.report.checks.last_mut() {
            check.skipped = Some(text.to_owned());
        }
    }

    /// Nothing once a call has hung.
    pub(super) fn go_on(&self) -> Tried {
        (!self.hung).then_some(())
    }

    pub(super) fn scheme(&self) -> Arc<dyn Scheme> {
        Arc::from((self.factory)())
    }

    /// Asks the scheme something outside of any set, in a thread that may panic or hang.
    pub(super) fn ask<T: Send + 'static>(
        &mut self,
        name: &'static str,
        question: impl FnOnce(&dyn Scheme) -> T + Send + 'static,
    ) -> Result<T, String> {
        let scheme = self.scheme();
        let (sender, answer) = mpsc::channel();
        // After the limit there is no receiver any more.
        std::thread::spawn(move || _ = sender.send(running::call(name, || question(&*scheme))));
        let answer = answer.recv_timeout(self.limits.call);
        self.hung |= answer.is_err();
        let (came, cure) = match answer {
            Ok(Ok(answer)) => {
                self.cure_of_call = None;
                return Ok(answer);
            }
            Ok(Err(panic)) => (panic, running::PANICS),
            Err(_) => ("did not return".to_owned(), HANGS),
        };
        self.cure_of_call = Some(cure);
        Err(format!("`{name}' {came}"))
    }

    /// Calls the scheme on a set, every member with a new instance.
    pub(super) fn call(&mut self, set: &SetUp, call: Call) -> Outcome {
        let schemes: Vec<_> = set.members.iter().map(|_| self.scheme()).collect();
        let outcome = set.call_each(schemes, call);
        self.hung |= outcome.ended.contains(&Ended::Hung);
        self.cure_of_call = match &outcome.ended {
            ended if ended.contains(&Ended::Hung) => Some(if outcome.culprits() { HANGS } else { WAITS }),
            ended if ended.contains(&Ended::Panicked) => Some(running::PANICS),
            _ => None,
        };
        outcome
    }

    /// Rebuilds with messages of another length than the redundancy was made with: what is stored does not depend on that.
    pub(super) fn rebuild(&mut self, set: &SetUp) -> Outcome {
        let set = SetUp { message_bytes: set.message_bytes / 3, ..set.clone() };
        self.call(&set, Call::Rebuild(self.limits.format))
    }

    /// A set that has not been protected yet.
    pub(super) fn set(&mut self, data: Vec<Vec<u8>>) -> Result<SetUp, String> {
        let limit = self.limits.call;
        let set = self.ask("redundancy_len", move |scheme| SetUp::new(scheme, data))?;
        set.map(|set| SetUp { limit, ..set }).map_err(|error| error.to_string())
    }

    /// A set that has been protected. A failure is recorded.
    pub(super) fn protected(&mut self, data: Vec<Vec<u8>>) -> Option<SetUp> {
        let place =
            format!("set of {} ({} bytes in the first)", data.len(), data.first().map_or(0, Vec::len));
        let result = self.set(data).and_then(|set| {
            let outcome = self.call(&set, Call::Protect);
            clean(&outcome)?;
            same_files(&outcome.members, &set.members, &set.lost, |_, is_data| is_data)?;
            Ok(SetUp { members: outcome.members, ..set })
        });
        match result {
            Ok(set) => Some(set),
            Err(came) => {
                self.cure_of_call = self.cure_of_call.or(Some(PROTECTS));
                self.record(|| place, "protect to succeed and to leave the data alone", Err(came));
                None
            }
        }
    }

    /// The sizes to try, with their promises, of those that are small or large as wanted.
    pub(super) fn sizes(&self, wanted: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        self.promises.iter().copied().filter(|&(size, _)| wanted(size)).collect()
    }
}

/// Whether every member succeeded and no rule was broken.
pub(super) fn clean(outcome: &Outcome) -> Result<(), String> {
    outcome.is_clean().then_some(()).ok_or_else(|| outcome.summary())
}

/// Whether every member returned, well or badly, without a panic and within the rules.
pub(super) fn orderly(outcome: &Outcome) -> Result<(), String> {
    let returned = outcome.ended.iter().all(|ended| matches!(ended, Ended::Returned(_)));
    (returned && outcome.broken.is_empty()).then_some(()).ok_or_else(|| outcome.summary())
}

/// Whether the wanted files are what they should be, by their member and by whether they are its data. Says which byte is not, and
/// what is usually the mistake: those of the lost were to be restored, and others to be left alone.
pub(super) fn same_files(
    found: &[Stored],
    expected: &[Stored],
    lost: &[bool],
    wanted: impl Fn(usize, bool) -> bool,
) -> Result<(), String> {
    let (found, expected, size) = (files(found), files(expected), lost.len());
    let pairs = expected.iter().zip(&found).enumerate();
    for (file, ((name, bytes), (_, found))) in pairs.filter(|(file, _)| wanted(file % size, *file < size)) {
        if let Some((byte, why)) = first_wrong(found, bytes, &expected) {
            let what = if lost[file % size] { format!("wrong: {why}") } else { "written over".to_owned() };
            return Err(format!("byte {byte} of {name} is {what}"));
        }
    }
    Ok(())
}

/// The data of all members, and then the redundancy.
fn files(members: &[Stored]) -> Vec<(String, &[u8])> {
    let named = |name: &str, member, bytes| (format!("the {name} of member {member}"), bytes);
    let data = members.iter().enumerate().map(|(member, of)| named("data", member, &*of.data));
    let redundancy =
        members.iter().enumerate().map(|(member, of)| named("redundancy", member, &*of.redundancy));
    data.chain(redundancy).collect()
}

/// Members with data of these lengths.
pub(super) fn members(lens: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    lens.into_iter().enumerate().map(|(member, len)| content(member, len)).collect()
}

/// A set of ordinary members: some thousand bytes, no two alike.
pub(super) fn plain(size: u32) -> Vec<Vec<u8>> {
    members((0..size as usize).map(|member| 1000 + 37 * member))
}

/// All patterns of this many losses.
pub(super) fn patterns(size: u32, losses: RangeInclusive<u32>) -> impl Iterator<Item = Vec<bool>> {
    (0..1_u32 << size)
        .filter(move |bits| losses.contains(&bits.count_ones()))
        .map(move |bits| (0..size).map(|member| bits >> member & 1 == 1).collect())
}

/// The lost members, for a message.
pub(super) fn who(lost: &[bool]) -> String {
    let members: Vec<String> =
        lost.iter().enumerate().filter(|(_, lost)| **lost).map(|(member, _)| member.to_string()).collect();
    format!(
        "set of {}, lost {}",
        lost.len(),
        if members.is_empty() { "nobody".to_owned() } else { members.join(", ") }
    )
}
