//! Every parameter with its value and where that comes from, and the descriptors made of them.

use super::{jsons, origin_json, Configuration, Finding};
use crate::prelude::*;
use crate::table::output_columns;
use scr_config::descriptor::{Descriptors, Store};
use scr_config::param::Parameter;
use std::fmt::Display;

/// The keys of a descriptor.
type Keys = BTreeMap<String, String>;

/// Shows them; with `set` only the parameters that somebody has set.
pub(super) fn run(configuration: &Configuration, set: bool, as_json: bool) -> Result<Answer> {
    let shown: Vec<_> = configuration.params.iter().filter(|parameter| !set || parameter.is_set()).collect();
    // `None` where no job starts with this configuration.
    let lines = configuration.descriptors.as_ref().map(all_lines);
    let mut text = table(&shown);
    if let Some((in_file, _)) = &lines {
        text += &format!("\n{in_file}");
    }
    let json = json!({
        "parameters": shown.iter().map(|shown| parameter_json(shown)).collect::<Vec<_>>(),
        "descriptors": lines.map(|(_, json)| json),
        "problems": jsons(&configuration.findings),
    });
    let shown = show(as_json, json, text, true)?;
    if !as_json {
        configuration.findings.iter().for_each(|finding| warn(finding.text()));
    }
    Ok(shown)
}

fn table(shown: &[&Parameter]) -> String {
    let rows = shown.iter().map(|parameter| {
        [parameter.info.name.to_owned(), parameter.to_string(), parameter.origin.to_string()]
    });
    Table::of(&["PARAMETER", "VALUE", "FROM"], rows).text()
}

/// A parameter for programs; its value is `null` where it is not set and has no default.
pub(super) fn parameter_json(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.info.name,
        "value": (parameter.value != param::Value::Unset).then(|| parameter.to_string()),
        "from": origin_json(&parameter.origin),
    })
}

/// The descriptors as lines of a configuration file, and for programs: each by what follows the `=`, with its keys.
fn all_lines(descriptors: &Descriptors) -> (String, Value) {
    let named = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let groups = descriptors.groups.to_tree();
    let groups: BTreeMap<_, _> = groups.iter().map(|(host, tree)| (named(host), keys(tree))).collect();
    let store = |store: &Store| (store.path.display().to_string(), keys(&store.to_tree()));
    let stores: BTreeMap<_, _> = descriptors.stores.iter().map(store).collect();
    let checkpoints = descriptors.redundancy.all().into_iter().map(|descriptor| {
        let mut keys = keys(&descriptor.to_tree());
        keys.retain(|key, _| key != "INDEX" && key != "OPTION");
        keys.extend(descriptor.options.clone());
        (descriptor.index, keys)
    });
    let checkpoints: BTreeMap<_, _> = checkpoints.collect();
    let text = lines("GROUPS", &groups) + &lines("STORE", &stores) + &lines("CKPT", &checkpoints);
    (text, json!({ "groups": groups, "stores": stores, "checkpoints": checkpoints }))
}

/// Descriptors of a kind in lines of no more columns than there are, each with its beginning, as a file may have it.
fn lines<K: Display>(kind: &str, descriptors: &BTreeMap<K, Keys>) -> String {
    let (columns, mut text) = (output_columns(), String::new());
    for (name, keys) in descriptors {
        let start = format!("{kind}={name}");
        let mut line = start.clone();
        for (key, value) in keys {
            let pair = format!(" {key}={value}");
            if line != start && line.chars().count() + pair.chars().count() > columns {
                text += &(std::mem::replace(&mut line, start.clone()) + "\n");
            }
            line += &pair;
        }
        text += &(line + "\n");
    }
    text
}

/// The values of a tree of depth one.
fn keys(tree: &KvTree) -> Keys {
    let named = |(key, _): (&[u8], &KvTree)| {
        let key = String::from_utf8_lossy(key).into_owned();
        let value = tree.text(&key)?.to_owned();
        Some((key, value))
    };
    tree.iter().filter_map(named).collect()
}

/// Explains the parameter of this name, in any case, with or without `SCR_`.
pub(super) fn explain(configuration: &Configuration, name: &str, as_json: bool) -> Result<Answer> {
    let upper = name.to_ascii_uppercase();
    let found =
        configuration.params.named(&upper).or_else(|| configuration.params.named(&format!("SCR_{upper}")));
    let Some(parameter) = found else {
        let of_descriptor =
            || format!("{upper} begins a descriptor line and is no parameter; see scr.conf(5)");
        let why = param::unknown(&upper).map_or_else(of_descriptor, |cause| cause.to_string());
        let is_new = why.starts_with("there is no") && !why.contains("did you mean");
        warn(if is_new { why + &alike(&upper) } else { why });
        return Ok(Answer::No);
    };
    show(as_json, explained_json(configuration, parameter), explained_text(configuration, parameter), true)?;
    if !as_json {
        about(configuration, parameter.info.name).for_each(|finding| warn(finding.text()));
    }
    Ok(Answer::Yes)
}

/// The parameters that begin with what a mistyped name most likely means, if it means none as a whole.
fn alike(name: &str) -> String {
    let all = || param::TABLE.iter().map(|info| info.name);
    let full = format!("SCR_{}", name.trim_start_matches("SCR_"));
    let begin = |known: &'static str| {
        let end = known.match_indices('_').nth(full.matches('_').count()).map_or(known.len(), |(at, _)| at);
        &known[..end]
    };
    let meant = param::nearest(&full, all().map(begin));
    let names = joined(all().filter(|known| Some(begin(known)) == meant.as_deref()), ", ");
    meant.map_or_else(String::new, |_| format!("; did you mean one of {names}?"))
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
fn explained_json(configuration: &Configuration, parameter: &Parameter) -> Value {
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

fn explained_text(configuration: &Configuration, parameter: &Parameter) -> String {
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
