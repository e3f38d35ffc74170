//! `scr plugin list`.

use super::report::ListReport;
use super::ListArgs;
use crate::output::{columns, complain, print, print_json, Answer};
use crate::world;
use anyhow::Result;
use scr_core::plugin::{Found, PluginKind, Survey};

pub(super) fn run(args: &ListArgs) -> Result<Answer> {
    let env = world::env()?;
    let host = world::plugin_host(&env, args.common.path.as_deref());
    let survey = host.survey();
    let wanted = args.kind.map(PluginKind::from);
    let mut shown: Vec<_> =
        survey.found.iter().filter(|found| wanted.is_none_or(|kind| found.manifest.kind == kind)).collect();
    shown.sort_by_key(|found| (found.manifest.kind, found.manifest.name.to_ascii_uppercase()));
    if args.common.json {
        print_json(&ListReport::new(survey, &shown))?;
    } else {
        complain_of(survey)?;
        print(&table(&shown))?;
    }
    Ok(Answer::from(!shown.is_empty()))
}

fn table(shown: &[&Found]) -> String {
    if shown.is_empty() {
        return String::new();
    }
    let mut rows = vec![["NAME", "KIND", "VERSION", "DESCRIPTION"].map(str::to_owned)];
    rows.extend(shown.iter().map(|found| {
        let manifest = &found.manifest;
        [
            manifest.name.clone(),
            manifest.kind.to_string(),
            manifest.version.clone(),
            manifest.description.clone(),
        ]
    }));
    columns(&rows)
}

/// What the user did not ask for and should know.
pub(super) fn complain_of(survey: &Survey) -> Result<()> {
    for note in &survey.notes {
        complain(&format!("scr: {note}"))?;
    }
    for passed in &survey.passed_over {
        complain(&format!("scr: passed over {passed}"))?;
    }
    for shadowed in &survey.shadowed {
        let (manifest, path) = (&shadowed.found.manifest, shadowed.found.manifest_path.display());
        let (kind, name, by) = (manifest.kind, &manifest.name, shadowed.by.display());
        complain(&format!("scr: the {kind} {name} of {path} is hidden by {by}"))?;
    }
    if survey.places.is_empty() {
        complain("scr: there is no folder to look in: set SCR_PLUGIN_PATH to one with manifests")?;
    } else if survey.found.is_empty() {
        let places: Vec<_> = survey.places.iter().map(|place| place.folder.display().to_string()).collect();
        complain(&format!("scr: no plugin was found in {}", places.join(", ")))?;
    }
    Ok(())
}
