//! The part of `scr plugin check` that runs in a process of its own: it loads the library and tries it.

use super::apart::answer;
use super::check::is_manifest;
use super::report::CheckReport;
use crate::environment;
use crate::output::Answer;
use anyhow::Result;
use scr_base::describe;
use scr_base::env::Env;
use scr_core::plugin::{check_library, load, FoundPlugin, OpenPlugin, PluginKind, Trusted};
use scr_plugin_api::abi::LoadedPlugin;
use scr_plugin_api::KvTree;
use std::path::Path;

/// Tries a manifest with its library, or a library that has no manifest.
pub(super) fn run(file: &Path) -> Result<Answer> {
    let mut report = CheckReport::new();
    let env = environment::env()?;
    match is_manifest(file) {
        true => try_plugin(&env, file, &mut report)?,
        false => try_library(&env, file, &mut report)?,
    }
    answer(&report)?;
    Ok(Answer::from(report.good))
}

fn try_library(env: &Env, library: &Path, report: &mut CheckReport) -> Result<()> {
    let library = check_library(&*env.files, library, &Trusted::by(env))?;
    report.add("load", load(&library).map(|plugin| summary(&plugin)).map_err(|error| error.to_string()));
    Ok(())
}

fn summary(plugin: &LoadedPlugin) -> String {
    let (oldest, newest) = plugin.formats();
    let kinds = [
        (plugin.has_scheme(), "a scheme"),
        (plugin.has_transport(), "a transport"),
        (plugin.has_log(), "a log sink"),
    ];
    let kinds: Vec<_> = kinds.iter().filter(|(has, _)| *has).map(|(_, kind)| *kind).collect();
    let version = plugin.api_version();
    format!("{}, plugin interface {version}, formats {oldest} to {newest}", kinds.join(" and "))
}

fn try_plugin(env: &Env, manifest: &Path, report: &mut CheckReport) -> Result<()> {
    match FoundPlugin::at(env, manifest)?.0.open(env) {
        Ok(open) => {
            let (oldest, newest) = open.formats();
            report.add("load", Ok(format!("fits its manifest, formats {oldest} to {newest}")));
            report.add("make", make(&open));
        }
        Err(error) => {
            report.add("load", Err(describe(&error)));
        }
    }
    Ok(())
}

/// Makes what the plugin is for with the defaults of its options, and asks it something that touches no file.
fn make(open: &OpenPlugin) -> Result<String, String> {
    let options = open.manifest.options([]).map_err(|error| describe(&error))?;
    match open.manifest.kind {
        PluginKind::Scheme => make_scheme(open, &options),
        PluginKind::Transport => open
            .transport(&options)
            .map(|_| "a transport with its defaults".to_owned())
            .map_err(|error| describe(&error)),
        // Only a configuration knows the destination of its entries, and a sink may well refuse to have none.
        PluginKind::Log => Ok(match open.log_sink(&options) {
            Ok(_) => "a log sink with its defaults".to_owned(),
            Err(error) => format!("its defaults are not enough: {}", describe(&error)),
        }),
    }
}

fn make_scheme(open: &OpenPlugin, options: &KvTree) -> Result<String, String> {
    let scheme = open.scheme(options).map_err(|error| describe(&error))?;
    let sizes = 1..=8_u32;
    let survives: Vec<_> =
        sizes.filter_map(|size| Some((size, scheme.losses_survived(size).ok()?))).collect();
    match (survives.first(), survives.last()) {
        (Some((least, few)), Some((most, many))) => Ok(format!(
            "with its defaults a set of {least} survives {few}, a set of {most} survives {many} losses"
        )),
        _ => Err("with its defaults it refuses sets of every size from 1 to 8".to_owned()),
    }
}
