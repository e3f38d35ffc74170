//! `scr doctor`: checks an installation, and the allocation that it runs in, and says what to fix.
//!
//! - `installation`: library, plugins, launcher, settings
//! - `network`: whether the nodes reach each other
//! - `prefix`: the prefix directory
//! - `node`: what can be checked on each node, and its comparison

mod installation;
mod network;
mod node;
mod prefix;

use crate::machine::{Allocation, Finished, Manifests, Overrides};
use crate::prelude::*;
use scr_base::message::without_error_numbers;

/// How to check and answer.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Check only this node, for the doctor on another node
    #[arg(long, hide = true)]
    node: bool,
    /// The folder where the nodes meet, for the doctor on another node
    #[arg(long, hide = true, requires = "nodes")]
    meet_in: Option<PathBuf>,
    /// How many meet
    #[arg(long, hide = true, requires = "meet_in")]
    nodes: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Nothing has to be done.
    Good,
    /// It could be better.
    Note,
    /// It has to be fixed.
    Bad,
}

/// One thing that was checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Check {
    verdict: Verdict,
    subject: String,
    /// The finding and, if it is not good, the cure.
    text: String,
}

impl Check {
    fn new(verdict: Verdict, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict, subject: subject.into(), text: text.into() }
    }

    fn of(subject: &str, outcome: Result<String>) -> Self {
        match outcome {
            Ok(text) => Self::new(Verdict::Good, subject, text),
            Err(error) => Self::new(Verdict::Bad, subject, without_error_numbers(&format!("{error:#}"))),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<Answer> {
    let env = environment::env()?;
    let params = environment::params(&env);
    if args.node {
        return node::print_report(&env, &params);
    }
    if let Some(meeting) = args.meet_in.as_deref().zip(args.nodes) {
        return network::print_report(&env, &params, meeting);
    }
    let manifests = Manifests::load(&env)?;
    let mut checks = installation::check(&env, &params, &manifests);
    checks.extend(node::check(&env, &params));
    match Allocation::find(&env, &params, &manifests, &Overrides::default()) {
        Ok(allocation) => checks.extend(node::check_all(&env, &params, &allocation)),
        Err(error) => checks.push(Check::of("allocation", Err(error))),
    }
    let is_good = checks.iter().all(|check| check.verdict != Verdict::Bad);
    show(args.json, json!({ "good": is_good, "checks": checks }), text(&checks), is_good)
}

/// The answer of the doctor on another node.
fn answer_of<T: DeserializeOwned>(answer: Result<Finished>) -> Result<T> {
    answer?.answer().map_err(|why| anyhow!("cannot be reached: {why}"))
}

fn text(checks: &[Check]) -> String {
    let rows = checks.iter().map(|Check { verdict, subject, text }| {
        let verdict = match verdict {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Bad => "BAD",
        };
        [verdict, subject, text]
    });
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    Table::of(&[], rows).text()
        + &match bad {
            0 => "nothing has to be fixed\n".to_owned(),
            1 => "1 thing has to be fixed\n".to_owned(),
            _ => format!("{bad} things have to be fixed\n"),
        }
}
