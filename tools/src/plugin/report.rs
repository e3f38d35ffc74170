//! The reports of `scr plugin`, in the form of its JSON. Fields are only ever added, unless the version grows.

use scr_base::describe;
use scr_base::env::Env;
use scr_core::plugin::{Discovery, FoundPlugin, OptionSpec};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::path::Path;

/// The answer of `check`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CheckReport {
    pub(crate) library: Option<String>,
    pub(crate) manifest: Option<String>,
    pub(crate) good: bool,
    /// The checks made, in order, up to the first that failed.
    pub(crate) steps: Vec<Step>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) step: String,
    pub(crate) good: bool,
    pub(crate) text: String,
}

impl CheckReport {
    pub(crate) fn new() -> Self {
        Self { library: None, manifest: None, good: true, steps: Vec::new() }
    }

    /// Adds a step, and returns whether it was good.
    pub(crate) fn add(&mut self, step: &str, outcome: Result<String, String>) -> bool {
        let good = outcome.is_ok();
        let text = outcome.unwrap_or_else(|error| error);
        self.good &= good;
        self.steps.push(Step { step: step.to_owned(), good, text });
        good
    }
}

/// The answer of `list`.
pub(super) fn list_json(env: &Env, discovery: &Discovery, shown: &[&FoundPlugin]) -> Value {
    let shadowed = discovery.shadowed.iter().map(|shadowed| {
        json!({
            "name": shadowed.found.manifest.name,
            "kind": shadowed.found.manifest.kind.to_string(),
            "manifest": text(&shadowed.found.manifest_path),
            "by": text(&shadowed.by),
        })
    });
    let passed_over = discovery.passed_over.iter();
    let passed_over =
        passed_over.map(|passed| json!({ "path": text(&passed.path), "reason": passed.reason }));
    json!({
        "places": discovery.places.iter().map(|place| text(&place.folder)).collect::<Vec<_>>(),
        "plugins": plugins_json(env, shown),
        "shadowed": shadowed.collect::<Vec<_>>(),
        "passed_over": passed_over.collect::<Vec<_>>(),
        "notes": discovery.notes,
    })
}

/// Plugins by their manifests.
pub(super) fn plugins_json(env: &Env, shown: &[&FoundPlugin]) -> Vec<Value> {
    shown.iter().map(|found| plugin_json(env, found)).collect()
}

/// Why no job can use a plugin, as far as it can be seen without loading its library.
pub(super) fn unusable(env: &Env, found: &FoundPlugin) -> Option<String> {
    found.check(env).err().map(|error| describe(&error))
}

fn plugin_json(env: &Env, found: &FoundPlugin) -> Value {
    let mut json = json!(found.manifest);
    json["options"] = found.manifest.options.iter().map(option_json).collect();
    json["manifest"] = text(&found.manifest_path).into();
    json["library"] = text(&found.library).into();
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

fn text(path: &Path) -> String {
    path.display().to_string()
}
