//! `scr plugin list`.

use super::report::{list_json, unusable};
use super::ListArgs;
use crate::environment;
use crate::output::{show, warn, Answer};
use crate::table::Table;
use anyhow::Result;
use scr_base::env::Env;
use scr_core::plugin::{Discovery, FoundPlugin, PluginKind};

pub(super) fn run(args: &ListArgs) -> Result<Answer> {
    let env = environment::env()?;
    let host = environment::plugin_host(&env, args.common.path.as_deref());
    let discovery = host.discover();
    let wanted = args.kind.map(PluginKind::from);
    let mut shown: Vec<_> = discovery
        .found
        .iter()
        .filter(|found| wanted.is_none_or(|kind| found.manifest.kind == kind))
        .collect();
    shown.sort_by_key(|found| (found.manifest.kind, found.manifest.name.to_ascii_uppercase()));
    if !args.common.json {
        warn_about(&discovery);
        for found in &shown {
            if let Some(why) = unusable(&env, found) {
                let (kind, name) = (found.manifest.kind, &found.manifest.name);
                warn(format_args!("no job can use the {kind} {name}: {why}"));
            }
        }
    }
    show(args.common.json, list_json(&env, &discovery, &shown), table(&env, &shown))?;
    Ok(Answer::from(!shown.is_empty()))
}

fn table(env: &Env, shown: &[&FoundPlugin]) -> String {
    let rows = shown.iter().map(|found| {
        let manifest = &found.manifest;
        let description = match unusable(env, found) {
            Some(_) => "(cannot be used)",
            None => &manifest.description,
        };
        [manifest.name.clone(), manifest.kind.to_string(), manifest.version.clone(), description.to_owned()]
    });
    Table::of(&["NAME", "KIND", "VERSION", "DESCRIPTION"], rows).text()
}

/// Facts that the user did not ask for and should know.
fn warn_about(discovery: &Discovery) {
    discovery.notes.iter().for_each(warn);
    for passed in &discovery.passed_over {
        warn(format_args!("skipped {passed}"));
    }
    for shadowed in &discovery.shadowed {
        let (manifest, path) = (&shadowed.found.manifest, shadowed.found.manifest_path.display());
        let (kind, name, by) = (manifest.kind, &manifest.name, shadowed.by.display());
        warn(format_args!("the {kind} {name} of {path} is hidden by {by}"));
    }
    if discovery.places.is_empty() {
        warn("there is no folder to look in: set SCR_PLUGIN_PATH to one with manifests");
    } else if discovery.found.is_empty() {
        let places: Vec<_> =
            discovery.places.iter().map(|place| place.folder.display().to_string()).collect();
        warn(format_args!("no plugin was found in {}", places.join(", ")));
    }
}
