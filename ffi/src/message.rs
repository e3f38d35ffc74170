//! The lines that this layer itself writes: to standard error, each in one write, so that ranks do not mix.

use crate::mpi_library;
use scr_base::env::to_stderr;
use scr_base::message::{self, without_error_numbers};
use scr_comm::Rank;
use scr_plugin_api::held;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, CString};
use std::sync::Mutex;

/// The source of messages, once a session has set it: the rank in its communicator, and the node.
static SPEAKER: Mutex<Option<(u32, String)>> = Mutex::new(None);

/// From now on lines carry this rank and node.
pub(crate) fn speak_as(rank: u32, node: &str) {
    *held(&SPEAKER) = Some((rank, node.to_owned()));
}

/// A session begins, whose ranks may be others. Its failures are printed, whatever failed before.
pub(crate) fn forget_session() {
    *held(&SPEAKER) = None;
    *held(&PRINTED) = Printed::new();
}

/// Why a call failed, with its causes, on one line.
pub(crate) fn failure_text(call: &str, error: &dyn std::error::Error) -> String {
    // One line per failure, whatever a file name or a text of the system holds.
    let text = without_error_numbers(&scr_base::describe(error)).replace(['\n', '\0'], " ");
    // Some begin with the name of the call themselves.
    if text.starts_with(call) {
        text
    } else {
        format!("{call}: {text}")
    }
}

/// Prints why a call failed. A failure that differs from an earlier one in numbers only, as the names of datasets do, is counted,
/// and printed for the 10th, the 100th time and so on.
pub(crate) fn failed(text: &str) {
    match held(&PRINTED).count(text) {
        Some(1) => line("ERROR", text),
        Some(times) => line("ERROR", &format!("{text} (failed {times} times like this)")),
        None => (),
    }
}

/// Prints how many failures were not printed, when the library is shut down.
pub(crate) fn count_repeated() {
    let repeated = std::mem::take(&mut held(&PRINTED).repeated);
    if repeated > 0 {
        let calls = if repeated == 1 { "1 more call".to_owned() } else { format!("{repeated} more calls") };
        note(&format!(
            "{calls} of this process failed as one of those above; look at the codes that the calls return"
        ));
    }
}

/// The failures that this process has printed last.
struct Printed {
    /// Their texts without numbers, and how often each came.
    shapes: VecDeque<(String, u64)>,
    /// Those that were not printed.
    repeated: u64,
}

impl Printed {
    const fn new() -> Self {
        Self { shapes: VecDeque::new(), repeated: 0 }
    }

    /// How often a failure has come, where it is to be printed.
    fn count(&mut self, text: &str) -> Option<u64> {
        let shape: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if let Some((_, times)) = self.shapes.iter_mut().find(|(known, _)| *known == shape) {
            *times += 1;
            let times = *times;
            let is_round = 10_u64.checked_pow(times.ilog10()) == Some(times);
            self.repeated += u64::from(!is_round);
            return is_round.then_some(times);
        }
        if self.shapes.len() == MOST_SHAPES {
            self.shapes.pop_front();
        }
        self.shapes.push_back((shape, 1));
        Some(1)
    }
}

static PRINTED: Mutex<Printed> = Mutex::new(Printed::new());
/// How many different failures are remembered.
const MOST_SHAPES: usize = 100;

thread_local! {
    /// The text of this thread's last failed call; empty before the first.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps the text of a failed call for `SCR_Last_error`.
pub(crate) fn keep_last_error(text: String) {
    // A thread that is ending, as in an exit handler, keeps nothing any more.
    let _ = LAST_ERROR.try_with(|last| last.replace(CString::new(text).unwrap_or_default()));
}

/// `SCR_Last_error` of `scr.h`: valid until the next call of this thread fails.
#[no_mangle]
#[allow(non_snake_case)] // The name is that of scr.h.
pub extern "C" fn SCR_Last_error() -> *const c_char {
    // A thread that is ending has no text any more.
    LAST_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Prints a warning: something is wrong, and the job continues.
pub(crate) fn warn(text: &str) {
    line("WARNING", text);
}

/// Prints a message about something intended.
pub(crate) fn note(text: &str) {
    line("NOTE", text);
}

/// Whether this rank prints what all ranks would print. Without MPI every process prints.
pub(crate) fn is_first_rank() -> bool {
    let speaker = held(&SPEAKER).as_ref().map(|(rank, _)| *rank == 0);
    speaker.unwrap_or_else(|| mpi_library::world_rank().is_none_or(|rank| rank == 0))
}

/// Whether this rank speaks for those that are left of its session. If no rank is known to have died, the second rank speaks too,
/// as the first one may have.
pub(crate) fn is_first_but(dead: &[Rank]) -> bool {
    let rank = held(&SPEAKER).as_ref().map_or(0, |(rank, _)| *rank);
    match dead {
        [] => rank < 2,
        dead => (0..rank).all(|before| dead.contains(&Rank(before))),
    }
}

fn line(severity: &str, text: &str) {
    to_stderr(&message::line(severity, &speaker(), text));
}

fn speaker() -> String {
    if let Some((rank, node)) = held(&SPEAKER).as_ref() {
        return format!("rank {rank} on {node}");
    }
    mpi_library::world_rank()
        .map_or_else(|| format!("process {}", std::process::id()), |rank| format!("rank {rank}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten checkpoints with a wrong path gave fifty lines of four ranks.
    #[test]
    fn failures_that_differ_in_numbers_only_are_printed_now_and_then() {
        let mut printed = Printed::new();
        let mut said = Vec::new();
        for step in 1..=120 {
            said.extend(printed.count(&format!("SCR_Route_file: `/x/ckpt.{step}/a' lies elsewhere")));
        }
        assert_eq!((said, printed.repeated), (vec![1, 10, 100], 117));
        assert_eq!(printed.count("SCR_Complete_output: `ckpt.1' failed"), Some(1), "another failure");
        for other in 0..MOST_SHAPES {
            printed.count(&"x".repeat(other + 1));
        }
        assert_eq!(printed.count("SCR_Complete_output: `ckpt.2' failed"), Some(1), "forgotten");
    }
}
