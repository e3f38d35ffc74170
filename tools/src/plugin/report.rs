//! The reports of `scr plugin`, in the form of its JSON. Fields are only ever added, unless the version grows.

use scr_base::describe;
use scr_base::env::Env;
use scr_conformance::{scheme, transport};
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

/// The answer of `conformance`.
#[derive(Serialize, Deserialize)]
pub(crate) struct ConformanceReport {
    pub(crate) passed: bool,
    checks: Vec<RuleReport>,
}

/// One rule, and how it was kept.
#[derive(Serialize, Deserialize)]
struct RuleReport {
    rule: String,
    /// How often it was tried, where that was counted.
    tried: Option<u64>,
    failed: u64,
    /// The finding; of many failures only the first few.
    failures: Vec<String>,
    /// The usual cure if it failed.
    cure: Option<String>,
    warnings: Vec<String>,
    skipped: Option<String>,
}

impl ConformanceReport {
    pub(crate) fn of_scheme(report: &scheme::Report) -> Self {
        let failure = |failure: &scheme::Failure| {
            format!("{}: expected {}, but {}", failure.place, failure.expected, failure.came)
        };
        let rule = |check: &scheme::Check| RuleReport {
            rule: check.name.to_owned(),
            tried: Some(check.tried),
            failed: check.failed,
            failures: check.failures.iter().map(failure).collect(),
            cure: (check.failed > 0).then(|| check.cure.to_owned()),
            warnings: check.warnings.clone(),
            skipped: check.skipped.clone(),
        };
        let checks = report.checks.iter().map(rule).collect();
        Self { passed: report.passed(), checks }
    }

    pub(crate) fn of_transport(failures: &[transport::Failure]) -> Self {
        let rule = |case: &transport::Case| {
            let found = failures.iter().filter(|failure| failure.case == case.name);
            let failures: Vec<_> = found.map(|failure| failure.found.clone()).collect();
            RuleReport {
                rule: case.name.to_owned(),
                tried: None,
                failed: failures.len() as u64,
                cure: failures.first().map(|_| case.cure.to_owned()),
                failures,
                warnings: Vec::new(),
                skipped: None,
            }
        };
        let checks = transport::all().map(rule).collect();
        Self { passed: failures.is_empty(), checks }
    }

    /// A line for each rule, and below it what was found.
    pub(crate) fn text(&self) -> String {
        self.checks.iter().map(RuleReport::text).collect()
    }
}

impl RuleReport {
    fn text(&self) -> String {
        let verdict = match (self.failed, self.tried) {
            (0, Some(0)) => "skip",
            (0, _) => "pass",
            _ => "FAIL",
        };
        let tried = self.tried.map_or_else(String::new, |tried| format!(" ({tried} tried)"));
        let mut text = format!("{verdict}  {}{tried}\n", self.rule);
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}"));
        let skipped = self.skipped.iter().map(|reason| format!("not tried: {reason}"));
        let cure = self.cure.iter().map(|cure| format!("to fix it: {cure}"));
        for line in self.failures.iter().cloned().chain(cure).chain(warnings).chain(skipped) {
            text.push_str(&format!("      {line}\n"));
        }
        text
    }
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
