//! `scr plugin info NAME`.

use super::report::{plugins_json, unusable};
use super::InfoArgs;
use crate::environment;
use crate::output::{show, warn, Answer};
use crate::table::Table;
use anyhow::Result;
use scr_base::describe as describe_error;
use scr_base::env::Env;
use scr_core::plugin::{Discovery, FoundPlugin, Manifest, PluginHost, PluginKind};
use serde_json::json;
use std::fmt::Write as _;

pub(super) fn run(args: &InfoArgs) -> Result<Answer> {
    let env = environment::env()?;
    let host = environment::plugin_host(&env, args.common.path.as_deref());
    let kinds = match args.kind {
        Some(kind) => vec![kind.into()],
        None => vec![PluginKind::Scheme, PluginKind::Transport, PluginKind::Log],
    };
    let discovery = host.discover();
    let found: Vec<_> = kinds.iter().filter_map(|&kind| discovery.find(kind, &args.name)).collect();
    let mut json = json!({ "plugins": plugins_json(&env, &found) });
    if found.is_empty() {
        let why = not_found(&host, &discovery, &kinds, &args.name);
        if !args.common.json {
            warn(&why);
        }
        json["error"] = why.into();
    }
    let texts = found.iter().map(|found| describe(&env, found)).collect::<Result<Vec<_>>>()?;
    show(args.common.json, json, texts.join("\n"))?;
    Ok(Answer::from(!found.is_empty()))
}

/// The error that a job would give, for the one kind or the one that has a name near to this one; else what there is.
fn not_found(host: &PluginHost, discovery: &Discovery, kinds: &[PluginKind], name: &str) -> String {
    let errors = kinds.iter().filter_map(|&kind| host.find(kind, name).err());
    let mut texts = errors.map(|error| describe_error(&error));
    let names = discovery.names(kinds);
    let says_all = |text: &String| kinds.len() == 1 || names.is_empty() || text.contains("did you mean");
    let there_are = || format!("there is no plugin named {name}; there are {}", names.join(", "));
    texts.find(says_all).unwrap_or_else(there_are)
}

fn describe(env: &Env, found: &FoundPlugin) -> Result<String> {
    let manifest = &found.manifest;
    let format = &manifest.format;
    let mut text = format!("{}: {}\n", manifest.name, manifest.description);
    let mut row = |name: &str, value: String| writeln!(text, "  {name:13} {value}");
    row("kind", manifest.kind.to_string())?;
    row("version", format!("{}, for plugin interface {}", manifest.version, manifest.abi))?;
    match manifest.kind {
        PluginKind::Scheme => {
            row("survives", survives(manifest))?;
            let (oldest, newest) = (format.oldest, format.newest);
            row("format", format!("{}, reads {oldest} to {newest}, writes {newest}", format.id))?;
        }
        PluginKind::Transport => {
            let yes = |flag| if flag { "yes" } else { "no" };
            row("asynchronous", yes(manifest.capabilities.asynchronous).to_owned())?;
            row("survives job", yes(manifest.capabilities.survives_job).to_owned())?;
        }
        PluginKind::Log => {}
    }
    row("manifest", found.manifest_path.display().to_string())?;
    row("library", found.library.display().to_string())?;
    if let Some(why) = unusable(env, found) {
        row("unusable", why)?;
    }
    if manifest.options.is_empty() {
        row("options", "none".to_owned())?;
    } else {
        text.push_str("  options\n");
        text.push_str(&options(manifest));
    }
    Ok(text)
}

fn survives(manifest: &Manifest) -> String {
    match manifest.capabilities.tolerates.as_deref() {
        None => "not stated".to_owned(),
        Some("1") => "1 loss per set".to_owned(),
        Some(losses) => format!("{losses} losses per set"),
    }
}

fn options(manifest: &Manifest) -> String {
    let rows = manifest.options.iter().map(|option| {
        let default = option.default.as_deref().unwrap_or("unset");
        let name = format!("    {}={default}", option.name);
        [name, option.allowed().trim_end_matches(',').to_owned(), option.help.clone()]
    });
    Table::of(&[], rows).text()
}
