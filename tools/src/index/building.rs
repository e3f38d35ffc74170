//! The results of building datasets, as text and as JSON.

use crate::output::count;
use scr_base::message::amount;
use scr_core::scavenge::{BuildError, Built, Outcome};
use serde_json::{json, Value};

/// The outcome for each dataset.
#[derive(Default)]
pub(super) struct BuildReport(Vec<Result<Built, Missing>>);

/// A dataset that nothing is known of.
struct Missing {
    id: Option<u64>,
    why: String,
}

impl BuildReport {
    /// Takes in what became of a dataset. That there is no such dataset is a result; other errors are passed on.
    pub(super) fn add(&mut self, built: Result<Built, BuildError>) -> Result<(), BuildError> {
        let missing = |id, error: BuildError| Err(Missing { id, why: error.to_string() });
        self.0.push(match built {
            Ok(built) => Ok(built),
            Err(error @ BuildError::NoDataset { id, .. }) => missing(Some(id), error),
            Err(error @ BuildError::NoName { .. }) => missing(None, error),
            Err(error) => return Err(error),
        });
        Ok(())
    }

    /// Whether a job may use all of them.
    pub(super) fn is_complete(&self) -> bool {
        self.0.iter().all(|built| built.as_ref().is_ok_and(|built| built.outcome.is_complete()))
    }

    /// Further information for the user, and what is missing, a line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let of_one = |built: &Result<Built, Missing>| match built {
            Ok(built) => {
                let notes = built.notes.iter().map(|note| format!("{}: {note}", label(built)));
                let incomplete = match &built.outcome {
                    Outcome::Incomplete { why } => Some(format!("{} is not complete: {why}", label(built))),
                    _ => None,
                };
                notes.chain(incomplete).collect()
            }
            Err(missing) => vec![missing.why.clone()],
        };
        self.0.iter().flat_map(of_one).collect()
    }

    /// A line for each dataset that is complete.
    pub(super) fn text(&self) -> String {
        self.0.iter().flatten().filter_map(line).collect()
    }

    pub(super) fn json(&self) -> Value {
        let datasets: Vec<_> = self.0.iter().map(row).collect();
        json!({ "complete": self.is_complete(), "datasets": datasets })
    }
}

fn label(built: &Built) -> String {
    format!("dataset {} `{}'", built.id, String::from_utf8_lossy(&built.name))
}

fn line(built: &Built) -> Option<String> {
    let (what, files, bytes) = match &built.outcome {
        Outcome::Already => {
            return Some(format!("{} is complete already, nothing was done\n", label(built)));
        }
        Outcome::Incomplete { .. } => return None,
        Outcome::Listed { files, bytes, verified: true } => ("is whole and listed".to_owned(), files, bytes),
        Outcome::Listed { files, bytes, verified: false } => {
            ("is listed; it is unverified, as it has no checksums".to_owned(), files, bytes)
        }
        Outcome::Completed { rebuilt, files, bytes } if rebuilt.is_empty() => {
            ("is complete and listed, nothing was lost".to_owned(), files, bytes)
        }
        Outcome::Completed { rebuilt, files, bytes } => {
            let ranks: Vec<_> = rebuilt.iter().map(ToString::to_string).collect();
            let what =
                format!("is complete and listed, the parts of ranks {} were rebuilt", ranks.join(", "));
            (what, files, bytes)
        }
    };
    Some(format!("{} {what}: {}, {}\n", label(built), count(*files, "file"), amount(*bytes)))
}

/// A dataset for programs.
fn row(built: &Result<Built, Missing>) -> Value {
    let none: &[u32] = &[];
    let (outcome, rebuilt, size, verified, why) = match built {
        Err(missing) => ("none", none, None, false, Some(&missing.why)),
        Ok(built) => match &built.outcome {
            Outcome::Already => ("already", none, None, false, None),
            Outcome::Incomplete { why } => ("incomplete", none, None, false, Some(why)),
            Outcome::Listed { files, bytes, verified } => {
                ("listed", none, Some((files, bytes)), *verified, None)
            }
            Outcome::Completed { rebuilt, files, bytes } => {
                ("built", rebuilt.as_slice(), Some((files, bytes)), true, None)
            }
        },
    };
    let known = built.as_ref().ok();
    json!({
        "id": built.as_ref().map_or_else(|missing| missing.id, |built| Some(built.id)),
        "name": known.map_or_else(Default::default, |built| String::from_utf8_lossy(&built.name)),
        "complete": known.is_some_and(|built| built.outcome.is_complete()),
        "outcome": outcome,
        "rebuilt": rebuilt,
        "files": size.map(|(files, _)| files),
        "bytes": size.map(|(_, bytes)| bytes),
        "verified": verified,
        "why": why,
        "notes": known.map(|built| built.notes.as_slice()).unwrap_or_default(),
    })
}
