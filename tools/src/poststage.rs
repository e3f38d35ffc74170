//! `scr poststage`, and `scr_poststage`: finishes asynchronous flushes whose data has arrived, though the application has
//! died or never called again. See `SCR_FLUSH_POSTSTAGE` in docs/user/parameters.md.
//!
//! A dataset counts only if all of it is there; flushes that are still copying are left alone. Exit codes: 0 no flush is under
//! way any more, 1 one is, 2 an error.

use crate::agent;
use crate::prelude::*;
use scr_core::find_control_dir;
use scr_core::flush::{poll_transfers_anew, PollResult, Transports};
use scr_prefix::commit::FlushOutcome;
use scr_prefix::ledger::Wish;

/// `scr poststage`.
pub(crate) fn run(args: &environment::PrefixArgs) -> Result<Answer> {
    let mut env = environment::env()?;
    let prefix = environment::prefix(&mut env, args.given())?;
    let report = end(&env, &prefix)?;
    report.errors.iter().for_each(warn);
    print_lines(&report.lines)?;
    if let (false, copying @ 1..) = (report.none_left, report.under_way) {
        let transfers = count(copying as u64, "transfer");
        warn(format_args!(
            "an agent on this node still has {transfers} to make; `scr agent --status' shows how far it is: repeat this command then"
        ));
    }
    if report.lines.is_empty() {
        print(format!("no flush is under way below {}\n", prefix.dir().display()))?;
    }
    Ok(Answer::from(report.none_left))
}

/// The outcome of the flushes that were under way.
pub(crate) struct FlushReport {
    /// One line for each.
    pub(crate) lines: Vec<String>,
    /// The problems on this node, one line each.
    pub(crate) errors: Vec<String>,
    /// Whether none is under way any more.
    pub(crate) none_left: bool,
    /// How many transfers an agent of this node has not ended yet, of whichever prefix directory.
    under_way: usize,
}

/// Finishes what has arrived below a prefix directory.
///
/// # Errors
/// The prefix directory cannot be read.
pub(crate) fn end(env: &Env, prefix: &Prefix) -> Result<FlushReport> {
    // Files that arrived on this very node by a transport that works without an agent.
    let host = environment::plugin_host(env);
    let transports = Transports::new(&host, env, &environment::params(env));
    let mut under_way = 0;
    let polled = match find_control_dir(env, &environment::params(env)) {
        Ok(Some(control)) => {
            under_way = agent::under_way(control.path());
            poll_transfers_anew(env, &control, &|name, options| transports.open(name, options), prefix)
        }
        Ok(None) => PollResult::default(),
        // This node does not finish what another user has planted.
        Err(error) => PollResult { errors: vec![describe(&error)], ..PollResult::default() },
    };
    let ended = LedgerDir::new(&*env.files, prefix).commit(env.local_time()).end_all(Wish::EndArrived);
    let ended = ended.or_cannot("look for flushes below", prefix.dir())?;
    let none_left =
        ended.iter().all(|ended| matches!(ended, FlushOutcome::Finalized(_) | FlushOutcome::Revoked { .. }));
    let lines = polled.notices.into_iter().chain(ended.iter().map(ToString::to_string)).collect();
    Ok(FlushReport { lines, errors: polled.errors, none_left, under_way })
}
