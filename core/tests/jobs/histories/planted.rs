//! Whether random histories find bugs that were made on purpose, and after how many.

use super::first_failing;
use scr_base::planted::{plant, Bug};

/// The number of histories that must pass before any bug is planted.
const WITHOUT_ANY: u64 = 10;

/// How many histories it takes to find a bug, of at most `most` from the seed `first` on; `None` if none does.
fn histories_to_find(bug: Bug, first: u64, most: u64) -> Option<u64> {
    plant(Some(bug));
    let found = first_failing(first, most);
    plant(None);
    found.map(|(seed, _)| seed - first + 1)
}

/// `SCR_TEST_PLANTED=<seed>:<most>` draws other histories, at most `<most>` for each bug; a third part, `:<name>`, tries this bug
/// alone.
#[test]
#[ignore = "it takes a long time: make planted"]
fn each_planted_bug_is_found() {
    let asked = std::env::var("SCR_TEST_PLANTED").unwrap_or_else(|_| "1:3000".to_owned());
    let mut parts = asked.split(':');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).expect("<seed>:<most>[:<name>]");
    let (seed, most): (u64, u64) = (number(), number());
    let only = parts.next();
    // A machine on which histories fail for another reason would find every bug at once.
    assert_eq!(first_failing(seed, WITHOUT_ANY), None, "without a bug");
    let mut missed = Vec::new();
    println!("| bug | what goes wrong | histories |\n|---|---|---:|");
    for &bug in Bug::ALL {
        let name = format!("{bug:?}");
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let found = histories_to_find(bug, seed, most);
        let shown = found.map_or_else(|| format!("not in {most}"), |many| many.to_string());
        println!("| `{name}` | {} | {shown} |", bug.what());
        missed.extend(found.is_none().then_some(name));
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
