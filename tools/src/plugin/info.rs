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
    let texts: Vec<_> = found.iter().map(|found| describe(&env, found)).collect();
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

fn describe(env: &Env, found: &FoundPlugin) -> String {
    let manifest = &found.manifest;
    let format = &manifest.format;
    let (oldest, newest) = (format.oldest, format.newest);
    let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    let mut rows = vec![
        ("kind", manifest.kind.to_string()),
        ("version", format!("{}, for plugin interface {}", manifest.version, manifest.abi)),
    ];
    match manifest.kind {
        PluginKind::Scheme => rows.extend([
            ("survives", survives(manifest)),
            ("format", format!("{}, reads {oldest} to {newest}, writes {newest}", format.id)),
        ]),
        PluginKind::Transport => rows.extend([
            ("asynchronous", yes(manifest.capabilities.asynchronous)),
            ("survives job", yes(manifest.capabilities.survives_job)),
        ]),
        PluginKind::Log => {}
    }
    rows.push(("manifest", found.manifest_path.display().to_string()));
    rows.push(("library", found.library.display().to_string()));
    rows.extend(unusable(env, found).map(|why| ("unusable", why)));
    let rows: String = rows.iter().map(|(name, value)| format!("  {name:13} {value}\n")).collect();
    let options = match manifest.options.is_empty() {
        true => format!("  {:13} none\n", "options"),
        false => format!("  options\n{}", options(manifest)),
    };
    format!("{}: {}\n{rows}{options}", manifest.name, manifest.description)
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
