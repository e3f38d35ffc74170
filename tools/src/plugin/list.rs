//! `scr plugin list` and `scr plugin info`, for people and in the form of its JSON. Fields are only ever added, unless the version
//! grows.

use super::{InfoArgs, ListArgs};
use crate::prelude::*;
use scr_core::plugin::{Discovery, FoundPlugin, Manifest, OptionSpec, PassedOver, PluginHost, PluginKind};

pub(super) fn run(args: &ListArgs) -> Result<Answer> {
    let env = environment::env()?;
    let host = args.common.host(&env);
    let discovery = host.discover();
    let wanted = args.kind.map(PluginKind::from);
    let mut shown: Vec<_> = discovery.found.iter().collect();
    shown.retain(|found| wanted.is_none_or(|kind| found.manifest.kind == kind));
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
    let json = list_json(&env, &discovery, &shown);
    show(args.common.json, json, table(&env, &shown), !shown.is_empty())
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
    discovery.passed_over.iter().for_each(|passed| warn(format_args!("skipped {passed}")));
    for shadowed in &discovery.shadowed {
        let (manifest, path) = (&shadowed.found.manifest, shadowed.found.manifest_path.display());
        let (kind, name, by) = (manifest.kind, &manifest.name, shadowed.by.display());
        warn(format_args!("the {kind} {name} of {path} is hidden by {by}"));
    }
    if discovery.places.is_empty() {
        warn("there is no folder to look in: set SCR_PLUGIN_PATH to one with manifests");
    } else if discovery.found.is_empty() {
        let places = joined(discovery.places.iter().map(|place| place.folder.display()), ", ");
        warn(format_args!("no plugin was found in {places}"));
    }
}

/// The answer of `list`.
pub(super) fn list_json(env: &Env, discovery: &Discovery, plugins: &[&FoundPlugin]) -> Value {
    let shadowed = discovery.shadowed.iter().map(|shadowed| {
        json!({
            "name": shadowed.found.manifest.name,
            "kind": shadowed.found.manifest.kind.to_string(),
            "manifest": shown(&shadowed.found.manifest_path),
            "by": shown(&shadowed.by),
        })
    });
    let passed_over = |passed: &PassedOver| json!({ "path": shown(&passed.path), "reason": passed.reason });
    json!({
        "places": discovery.places.iter().map(|place| shown(&place.folder)).collect::<Vec<_>>(),
        "plugins": plugins.iter().map(|found| plugin_json(env, found)).collect::<Vec<_>>(),
        "shadowed": shadowed.collect::<Vec<_>>(),
        "passed_over": discovery.passed_over.iter().map(passed_over).collect::<Vec<_>>(),
        "notes": discovery.notes,
    })
}

/// Why no job can use a plugin, as far as it can be seen without loading its library.
pub(super) fn unusable(env: &Env, found: &FoundPlugin) -> Option<String> {
    found.check(env).err().map(|error| describe(&error))
}

fn plugin_json(env: &Env, found: &FoundPlugin) -> Value {
    let mut json = json!(found.manifest);
    json["options"] = found.manifest.options.iter().map(option_json).collect();
    json["manifest"] = shown(&found.manifest_path).into();
    json["library"] = shown(&found.library).into();
    json["unusable"] = unusable(env, found).into();
    json
}

fn option_json(option: &OptionSpec) -> Value {
    json!({
        "name": option.name,
        "type": option.kind,
        "default": option.default,
        "allowed": option.allowed(),
        "help": option.help,
    })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn info(args: &InfoArgs) -> Result<Answer> {
    let env = environment::env()?;
    let host = args.common.host(&env);
    let kinds = match args.kind {
        Some(kind) => vec![kind.into()],
        None => vec![PluginKind::Scheme, PluginKind::Transport, PluginKind::Log],
    };
    let discovery = host.discover();
    let found: Vec<_> = kinds.iter().filter_map(|&kind| discovery.find(kind, &args.name)).collect();
    let mut json =
        json!({ "plugins": found.iter().map(|found| plugin_json(&env, found)).collect::<Vec<_>>() });
    if found.is_empty() {
        let why = not_found(&host, &discovery, &kinds, &args.name);
        if !args.common.json {
            warn(&why);
        }
        json["error"] = why.into();
    }
    let texts: Vec<_> = found.iter().map(|found| in_full(&env, found)).collect();
    show(args.common.json, json, texts.join("\n"), !found.is_empty())
}

/// The error that a job would give, for the one kind or the one that has a name near to this one; else what there is.
fn not_found(host: &PluginHost, discovery: &Discovery, kinds: &[PluginKind], name: &str) -> String {
    let errors = kinds.iter().filter_map(|&kind| host.find(kind, name).err());
    let mut texts = errors.map(|error| describe(&error));
    let names = discovery.names(kinds);
    let says_all = |text: &String| kinds.len() == 1 || names.is_empty() || text.contains("did you mean");
    let there_are = || format!("there is no plugin named {name}; there are {}", names.join(", "));
    texts.find(says_all).unwrap_or_else(there_are)
}

fn in_full(env: &Env, found: &FoundPlugin) -> String {
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
