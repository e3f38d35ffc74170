//! The checks of a node, and the comparison of all nodes of the allocation.

use super::installation::libraries;
use super::{answer_of, logout, network, print_answer, Check, Verdict};
use crate::environment;
use crate::machine::health::{check_store, command_here};
use crate::machine::process::Limit;
use crate::machine::Allocation;
use crate::output::Answer;
use anyhow::Result;
use rustix::fs::statvfs;
use scr_base::env::Env;
use scr_base::message::amount;
use scr_config::descriptor::Store;
use scr_config::param::Params;
use scr_core::plugin::{check_library, Trusted};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The report of a node on itself.
#[derive(Serialize, Deserialize)]
struct NodeReport {
    /// The SHA-256 of its libraries, where there are some.
    library: Option<String>,
    /// Seconds since the epoch.
    clock: i64,
    checks: Vec<Check>,
}

/// Checks this node, and prints the report for the doctor.
pub(super) fn print_report(env: &Env, params: &Params) -> Result<Answer> {
    print_answer(&NodeReport {
        library: library(env),
        clock: environment::now(env),
        checks: check(env, params),
    })
}

fn library(env: &Env) -> Option<String> {
    let sums = libraries(env)
        .ok()?
        .into_iter()
        .map(|path| check_library(&*env.files, &path, &Trusted::by(env)).ok().map(|checked| checked.sha256));
    sums.collect::<Option<Vec<_>>>().map(|sums| sums.join(" "))
}

/// The stores of this node.
pub(super) fn check(env: &Env, params: &Params) -> Vec<Check> {
    let descriptors = match environment::descriptors(params) {
        Ok(descriptors) => descriptors,
        Err(error) => return vec![Check::of("stores", Err(error))],
    };
    let stores = descriptors.stores.iter().filter(|store| store.enabled);
    let places = stores.map(|store| ("store", store)).chain([("control", &descriptors.control)]);
    let mut checks: Vec<_> = places.map(|(what, store)| store_check(env, params, what, store)).collect();
    if !descriptors.all_bypass() {
        checks.extend(logout::check(env, descriptors.stores.iter().map(|store| store.path.clone())));
    }
    checks.extend(huge_pages(descriptors.stores.iter().map(|store| store.path.as_path())));
    checks.iter_mut().for_each(|check| check.subject = format!("{}: {}", env.host, check.subject));
    checks
}

fn store_check(env: &Env, params: &Params, what: &str, store: &Store) -> Check {
    let text = || {
        let Ok(found) = statvfs(&store.path) else { return "it is not there; a job makes it".to_owned() };
        format!("{} free", amount(found.f_bavail.saturating_mul(found.f_frsize)))
    };
    let subject = format!("{what} {}", store.path.display());
    Check::of(&subject, check_store(env, params, store).map(|()| text()))
}

/// Whether a store in memory could be faster.
fn huge_pages<'a>(mut stores: impl Iterator<Item = &'a Path>) -> Option<Check> {
    const SHM: &str = "/dev/shm";
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let options = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let options = options
        .filter_map(|words| (words.get(1) == Some(&SHM)).then(|| words.get(3).copied()))
        .flatten()
        .last()?;
    let is_plain = !options.split(',').any(|option| option.starts_with("huge="));
    (is_plain && stores.any(|store| store.starts_with(SHM))).then(|| {
        let text = format!("without huge pages; `mount -o remount,huge=within_size {SHM}', as root, makes checkpoints faster");
        Check::new(Verdict::Note, SHM, text)
    })
}

/// Lets every node of the allocation check itself, and compares the nodes.
pub(super) fn check_all(env: &Env, params: &Params, allocation: &Allocation) -> Vec<Check> {
    if allocation.is_here_alone() {
        return vec![Check::new(Verdict::Note, "allocation", "none: this machine alone was checked")];
    }
    let Some(scr) = command_here() else { return Vec::new() };
    let command = [scr.clone(), "doctor".to_owned(), "--node".to_owned()];
    let before = environment::now(env);
    let answers = allocation.on_nodes().run(&allocation.nodes, &command, Limit::Total(TIMEOUT));
    let (after, own) = (environment::now(env), library(env));
    let (mut checks, mut reached) = (Vec::new(), Vec::new());
    for (node, answer) in allocation.nodes.iter().zip(answers) {
        let subject = format!("node {node}");
        checks.extend(match answer_of(answer) {
            Err(error) => vec![Check::of(&subject, Err(error))],
            Ok(report) => {
                reached.push(node.clone());
                compared(&subject, report, own.as_deref(), (before, after))
            }
        });
    }
    checks.extend(network::check(params, allocation, &reached, &scr));
    checks
}

fn compared(subject: &str, report: NodeReport, own: Option<&str>, (before, after): (i64, i64)) -> Vec<Check> {
    let mut checks = report.checks;
    checks.retain(|check| check.verdict == Verdict::Bad);
    if report.library.as_deref() != own {
        checks.push(Check::new(
            Verdict::Bad,
            subject,
            "its library is another one than here; install the same on all nodes",
        ));
    }
    let is_off = report.clock + CLOCK_SKEW < before || report.clock > after + CLOCK_SKEW;
    if is_off {
        let text = format!(
            "its clock is wrong by about {} s; let it follow a time server",
            report.clock.abs_diff(after)
        );
        checks.push(Check::new(Verdict::Bad, subject, text));
    }
    if checks.is_empty() {
        checks.push(Check::new(Verdict::Good, subject, "stores, library and clock"));
    }
    checks
}

/// Clocks that differ by no more are good enough to order what happens.
const CLOCK_SKEW: i64 = 5;
const TIMEOUT: Duration = Duration::from_secs(60);
