//! One parameter in full.

use super::configuration::Configuration;
use super::finding::Finding;
use super::show::parameter_json;
use crate::output::{show, warn, Answer};
use crate::table::Table;
use anyhow::Result;
use scr_config::param::{self, Parameter};
use serde_json::Value;

/// Explains the parameter of this name, in any case, with or without `SCR_`.
pub(super) fn run(configuration: &Configuration, name: &str, as_json: bool) -> Result<Answer> {
    let upper = name.to_ascii_uppercase();
    let found =
        configuration.params.named(&upper).or_else(|| configuration.params.named(&format!("SCR_{upper}")));
    let Some(parameter) = found else {
        let cause = param::unknown(&upper).map(|cause| cause.to_string());
        let why = cause.unwrap_or_else(|| {
            format!("{upper} begins a descriptor line and is no parameter; see scr.conf(5)")
        });
        warn(why);
        return Ok(Answer::No);
    };
    show(as_json, json(configuration, parameter), text(configuration, parameter))?;
    if !as_json {
        about(configuration, parameter.info.name).for_each(|finding| warn(finding.text()));
    }
    Ok(Answer::Yes)
}

/// The mistakes in this parameter.
fn about<'a>(configuration: &'a Configuration, name: &'a str) -> impl Iterator<Item = &'a Finding> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    configuration.findings.iter().filter(move |finding| {
        let text = finding.problem.cause.to_string();
        let found = text.split(|c| !is_word(c)).any(|word| word == name);
        found
    })
}

/// For programs. `locked`: the line of the system file that keeps users from setting it.
fn json(configuration: &Configuration, parameter: &Parameter) -> Value {
    let info = parameter.info;
    let mut json = parameter_json(parameter);
    json["help"] = info.help.into();
    json["type"] = info.kind.expected().into();
    json["default"] = info.default.in_words("").into();
    json["set"] = info.scope.allowed().into();
    json["locked"] = configuration.params.locked(info.name).map(ToString::to_string).into();
    json["problems"] = about(configuration, info.name).map(Finding::json).collect();
    json
}

fn text(configuration: &Configuration, parameter: &Parameter) -> String {
    let info = parameter.info;
    let locked = configuration.params.locked(info.name).map(|by| format!("for users, by {by}"));
    let rows = [
        ("  type", Some(info.kind.expected())),
        ("  default", Some(info.default.in_words(""))),
        ("  set", Some(info.scope.allowed().to_owned())),
        ("  locked", locked),
        ("  value", Some(parameter.to_string())),
        ("  from", Some(parameter.origin.to_string())),
    ];
    let rows = rows.into_iter().filter_map(|(what, text)| Some([what.to_owned(), text?]));
    format!("{}\n  {}\n{}", info.name, info.help, Table::of(&[], rows).text())
}
