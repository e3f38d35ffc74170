//! What `scr plugin` knows, in the form of its JSON. Fields are only ever added, unless the version grows.

use crate::output::JSON_VERSION;
use scr_conformance::{scheme, transport};
use scr_core::plugin::{Found, Manifest, OptionSpec, OptionType, Survey};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The answer of `list`.
#[derive(Serialize)]
pub(crate) struct ListReport {
    version: u32,
    places: Vec<String>,
    plugins: Vec<PluginReport>,
    shadowed: Vec<ShadowedReport>,
    passed_over: Vec<PassedOverReport>,
    notes: Vec<String>,
}

/// The answer of `info`.
#[derive(Serialize)]
pub(crate) struct InfoReport {
    version: u32,
    plugins: Vec<PluginReport>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A plugin by its manifest.
#[derive(Serialize)]
pub(crate) struct PluginReport {
    name: String,
    kind: String,
    version: String,
    abi: String,
    description: String,
    format: FormatReport,
    capabilities: CapabilitiesReport,
    options: Vec<OptionReport>,
    manifest: String,
    library: String,
}

#[derive(Serialize)]
struct FormatReport {
    id: String,
    oldest: u32,
    newest: u32,
}

#[derive(Serialize)]
struct CapabilitiesReport {
    tolerates: Option<String>,
    asynchronous: bool,
    survives_job: bool,
}

#[derive(Serialize)]
struct OptionReport {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    default: Option<String>,
    allowed: String,
    help: String,
}

#[derive(Serialize)]
struct ShadowedReport {
    name: String,
    kind: String,
    manifest: String,
    by: String,
}

#[derive(Serialize)]
struct PassedOverReport {
    path: String,
    reason: String,
}

/// The answer of `check`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CheckReport {
    pub(crate) version: u32,
    pub(crate) library: Option<String>,
    pub(crate) manifest: Option<String>,
    pub(crate) good: bool,
    /// What was looked at, in order, up to the first that failed.
    pub(crate) steps: Vec<Step>,
}

/// The answer of `conformance`.
#[derive(Serialize)]
pub(crate) struct ConformanceReport {
    version: u32,
    pub(crate) passed: bool,
    checks: Vec<RuleReport>,
}

/// One rule, and how it was kept.
#[derive(Serialize)]
struct RuleReport {
    rule: String,
    /// How often it was tried, where that was counted.
    tried: Option<u64>,
    failed: u64,
    /// What was found; of many failures only the first few.
    failures: Vec<String>,
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
            warnings: check.warnings.clone(),
            skipped: check.skipped.clone(),
        };
        let checks = report.checks.iter().map(rule).collect();
        Self { version: JSON_VERSION, passed: report.passed(), checks }
    }

    pub(crate) fn of_transport(failures: &[transport::Failure]) -> Self {
        let rule = |case: &transport::Case| {
            let found = failures.iter().filter(|failure| failure.case == case.name);
            let failures: Vec<_> = found.map(|failure| failure.found.clone()).collect();
            RuleReport {
                rule: case.name.to_owned(),
                tried: None,
                failed: failures.len() as u64,
                failures,
                warnings: Vec::new(),
                skipped: None,
            }
        };
        let checks = transport::all().map(rule).collect();
        Self { version: JSON_VERSION, passed: failures.is_empty(), checks }
    }

    /// A line for each rule, and below it what was found.
    pub(crate) fn in_words(&self) -> String {
        self.checks.iter().map(RuleReport::in_words).collect()
    }
}

impl RuleReport {
    fn in_words(&self) -> String {
        let verdict = match (self.failed, self.tried) {
            (0, Some(0)) => "skip",
            (0, _) => "pass",
            _ => "FAIL",
        };
        let tried = self.tried.map_or_else(String::new, |tried| format!(" ({tried} tried)"));
        let mut text = format!("{verdict}  {}{tried}\n", self.rule);
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}"));
        let skipped = self.skipped.iter().map(|reason| format!("not tried: {reason}"));
        for line in self.failures.iter().cloned().chain(warnings).chain(skipped) {
            text.push_str(&format!("      {line}\n"));
        }
        text
    }
}

/// The answer where there is none.
#[derive(Serialize)]
pub(crate) struct ErrorReport {
    version: u32,
    error: String,
}

impl ErrorReport {
    pub(crate) fn new(error: &anyhow::Error) -> Self {
        Self { version: JSON_VERSION, error: format!("{error:#}") }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) step: String,
    pub(crate) good: bool,
    pub(crate) text: String,
}

impl CheckReport {
    pub(crate) fn new() -> Self {
        Self { version: JSON_VERSION, library: None, manifest: None, good: true, steps: Vec::new() }
    }

    /// Notes a step, and gives whether it was good.
    pub(crate) fn note(&mut self, step: &str, outcome: Result<String, String>) -> bool {
        let good = outcome.is_ok();
        let text = outcome.unwrap_or_else(|error| error);
        self.good &= good;
        self.steps.push(Step { step: step.to_owned(), good, text });
        good
    }
}

impl ListReport {
    pub(crate) fn new(survey: &Survey, shown: &[&Found]) -> Self {
        Self {
            version: JSON_VERSION,
            places: survey.places.iter().map(|place| text(&place.folder)).collect(),
            plugins: shown.iter().map(|found| PluginReport::new(found)).collect(),
            shadowed: survey
                .shadowed
                .iter()
                .map(|shadowed| ShadowedReport {
                    name: shadowed.found.manifest.name.clone(),
                    kind: shadowed.found.manifest.kind.to_string(),
                    manifest: text(&shadowed.found.manifest_path),
                    by: text(&shadowed.by),
                })
                .collect(),
            passed_over: survey
                .passed_over
                .iter()
                .map(|passed| PassedOverReport { path: text(&passed.path), reason: passed.reason.clone() })
                .collect(),
            notes: survey.notes.clone(),
        }
    }
}

impl InfoReport {
    pub(crate) fn new(shown: &[&Found], error: Option<String>) -> Self {
        let plugins = shown.iter().map(|found| PluginReport::new(found)).collect();
        Self { version: JSON_VERSION, plugins, error }
    }
}

impl PluginReport {
    fn new(found: &Found) -> Self {
        let Manifest { name, kind, version, abi, description, format, capabilities, options, .. } =
            &found.manifest;
        Self {
            name: name.clone(),
            kind: kind.to_string(),
            version: version.clone(),
            abi: abi.to_string(),
            description: description.clone(),
            format: FormatReport { id: format.id.clone(), oldest: format.oldest, newest: format.newest },
            capabilities: CapabilitiesReport {
                tolerates: capabilities.tolerates.clone(),
                asynchronous: capabilities.asynchronous,
                survives_job: capabilities.survives_job,
            },
            options: options.iter().map(OptionReport::new).collect(),
            manifest: text(&found.manifest_path),
            library: text(&found.library),
        }
    }
}

impl OptionReport {
    fn new(option: &OptionSpec) -> Self {
        Self {
            name: option.name.clone(),
            kind: match option.kind {
                OptionType::Integer => "integer",
                OptionType::Size => "size",
                OptionType::Boolean => "boolean",
                OptionType::Text => "text",
            },
            default: option.default.clone(),
            allowed: option.allowed(),
            help: option.help.clone(),
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
