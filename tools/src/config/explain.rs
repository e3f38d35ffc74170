//! One parameter in full.

use super::effective::Outcome;
use super::show::Row;
use super::told::{Row as ToldRow, Told};
use crate::output::{columns, complain, print, print_json, Answer, JSON_VERSION};
use anyhow::Result;
use scr_core::param::{self, Parameter};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    version: u32,
    #[serde(flatten)]
    row: Row,
    help: &'static str,
    #[serde(rename = "type")]
    kind: String,
    default: String,
    set: &'static str,
    /// The line of the system file that keeps users from setting it.
    locked: Option<String>,
    problems: Vec<ToldRow>,
}

/// Explains the parameter of this name, in any case, with or without `SCR_`.
pub(super) fn run(outcome: &Outcome, name: &str, json: bool) -> Result<Answer> {
    let upper = name.to_ascii_uppercase();
    let found = outcome.params.named(&upper).or_else(|| outcome.params.named(&format!("SCR_{upper}")));
    let Some(effective) = found else {
        let cause = param::unknown(&upper).map(|cause| cause.to_string());
        let why = cause.unwrap_or_else(|| {
            format!("{upper} begins a descriptor line and is no parameter; see scr.conf(5)")
        });
        complain(&format!("scr: {why}"))?;
        return Ok(Answer::No);
    };
    let report = Report::of(outcome, effective);
    if json {
        print_json(&report)?;
    } else {
        print(&report.in_words(effective))?;
        for told in about(outcome, effective.info.name) {
            complain(&format!("scr: {}", told.in_words()))?;
        }
    }
    Ok(Answer::Yes)
}

/// What is wrong with this parameter.
fn about<'a>(outcome: &'a Outcome, name: &'a str) -> impl Iterator<Item = &'a Told> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    outcome.told.iter().filter(move |told| {
        let text = told.problem.cause.to_string();
        let found = text.split(|c| !is_word(c)).any(|word| word == name);
        found
    })
}

impl Report {
    fn of(outcome: &Outcome, effective: &Parameter) -> Self {
        let info = effective.info;
        Self {
            version: JSON_VERSION,
            row: Row::of(effective),
            help: info.help,
            kind: info.kind.expected(),
            default: info.default.in_words(""),
            set: info.scope.allowed(),
            locked: outcome.params.locked(info.name).map(ToString::to_string),
            problems: about(outcome, info.name).map(Told::row).collect(),
        }
    }

    fn in_words(&self, effective: &Parameter) -> String {
        let mut rows = vec![["  type", &self.kind], ["  default", &self.default], ["  set", self.set]]
            .into_iter()
            .map(|row| row.map(str::to_owned))
            .collect::<Vec<_>>();
        if let Some(by) = &self.locked {
            rows.push(["  locked".to_owned(), format!("for users, by {by}")]);
        }
        rows.push(["  value".to_owned(), effective.to_string()]);
        rows.push(["  from".to_owned(), effective.origin.to_string()]);
        format!("{}\n  {}\n{}", effective.info.name, self.help, columns(&rows))
    }
}
