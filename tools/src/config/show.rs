//! Every parameter with its value and where that comes from, and the descriptors made of them.

use super::effective::Outcome;
use super::told::{Row as ToldRow, Source, Told};
use crate::output::{columns, complain, print, print_json, Answer, JSON_VERSION};
use anyhow::Result;
use scr_core::descriptor::Descriptors;
use scr_core::param::Parameter;
use scr_plugin_api::KvTree;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Serialize)]
struct Report {
    version: u32,
    parameters: Vec<Row>,
    /// `null` where no job starts with this configuration.
    descriptors: Option<Lines>,
    problems: Vec<ToldRow>,
}

/// One parameter.
#[derive(Serialize)]
pub(super) struct Row {
    name: &'static str,
    /// As text; `null` where it is not set and has no default.
    value: Option<String>,
    from: Source,
}

/// The descriptors, each by what follows the `=`, with its keys.
#[derive(Serialize)]
struct Lines {
    groups: BTreeMap<String, BTreeMap<String, String>>,
    stores: BTreeMap<String, BTreeMap<String, String>>,
    checkpoints: BTreeMap<u32, BTreeMap<String, String>>,
}

/// Shows them; with `set` only the parameters that somebody has set.
pub(super) fn run(outcome: &Outcome, set: bool, json: bool) -> Result<Answer> {
    let shown: Vec<_> = outcome.params.iter().filter(|effective| !set || effective.is_set()).collect();
    if json {
        print_json(&Report {
            version: JSON_VERSION,
            parameters: shown.iter().map(|shown| Row::of(shown)).collect(),
            descriptors: outcome.descriptors.as_ref().map(Lines::of),
            problems: outcome.told.iter().map(Told::row).collect(),
        })?;
        return Ok(Answer::Yes);
    }
    let mut text = table(&shown);
    if let Some(descriptors) = &outcome.descriptors {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}", Lines::of(descriptors).in_words());
    }
    print(&text)?;
    for told in &outcome.told {
        complain(&format!("scr: {}", told.in_words()))?;
    }
    Ok(Answer::Yes)
}

fn table(shown: &[&Parameter]) -> String {
    let head = ["PARAMETER", "VALUE", "FROM"].map(str::to_owned);
    let row = |effective: &&Parameter| {
        [effective.info.name.to_owned(), effective.to_string(), effective.origin.to_string()]
    };
    let rows: Vec<_> = std::iter::once(head).chain(shown.iter().map(row)).collect();
    columns(&rows)
}

impl Row {
    pub(super) fn of(effective: &Parameter) -> Self {
        Self {
            name: effective.info.name,
            value: effective.has_value().then(|| effective.to_string()),
            from: Source::of(&effective.origin),
        }
    }
}

impl Lines {
    fn of(descriptors: &Descriptors) -> Self {
        let groups = descriptors.groups.to_tree();
        let named = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        Self {
            groups: groups.iter().map(|(host, tree)| (named(host), keys(tree))).collect(),
            stores: descriptors
                .stores
                .iter()
                .map(|store| (store.path.display().to_string(), keys(&store.to_tree())))
                .collect(),
            checkpoints: descriptors
                .redundancy
                .all()
                .into_iter()
                .map(|descriptor| {
                    let mut keys = keys(&descriptor.to_tree());
                    keys.remove("INDEX");
                    keys.remove("OPTION");
                    keys.extend(descriptor.options.clone());
                    (descriptor.index, keys)
                })
                .collect(),
        }
    }

    /// As lines of a configuration file.
    fn in_words(&self) -> String {
        let line = |start: String, keys: &BTreeMap<String, String>| {
            keys.iter().fold(start, |line, (key, value)| format!("{line} {key}={value}")) + "\n"
        };
        let groups = self.groups.iter().map(|(host, keys)| line(format!("GROUPS={host}"), keys));
        let stores = self.stores.iter().map(|(path, keys)| line(format!("STORE={path}"), keys));
        let checkpoints = self.checkpoints.iter().map(|(index, keys)| line(format!("CKPT={index}"), keys));
        groups.chain(stores).chain(checkpoints).collect()
    }
}

/// The values of a tree of depth one.
fn keys(tree: &KvTree) -> BTreeMap<String, String> {
    let named = |(key, _): (&[u8], &KvTree)| {
        let key = String::from_utf8_lossy(key).into_owned();
        let value = tree.text(&key)?.to_owned();
        Some((key, value))
    };
    tree.iter().filter_map(named).collect()
}
