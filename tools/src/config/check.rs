//! Files before there is a job: each is read alone, as a user's file beside the system file or as a system file.

use super::configuration::Configuration;
use super::finding::{jsons, Finding};
use crate::output::{count, show, Answer};
use anyhow::Result;
use scr_base::env::Env;
use scr_config::param::{FileOf, Origin, Settings};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Checks the files. The answer is yes where nothing is wrong with any.
pub(super) fn run(env: &Env, files: &[PathBuf], system: bool, json: bool) -> Result<Answer> {
    let whose = if system { FileOf::Site } else { FileOf::User };
    let checked: Vec<_> = files.iter().map(|file| (file, problems(env, file, whose))).collect();
    let is_valid = checked.iter().all(|(_, findings)| !findings.iter().any(Finding::is_mistake));
    let report = json!({
        "valid": is_valid,
        "files": checked
            .iter()
            .map(|(file, findings)| json!({ "file": file.display().to_string(), "problems": jsons(findings) }))
            .collect::<Vec<_>>(),
    });
    show(json, report, checked.iter().map(|(file, findings)| text(file, findings)).collect::<String>())?;
    Ok(Answer::from(is_valid))
}

fn problems(env: &Env, file: &Path, whose: FileOf) -> Vec<Finding> {
    let mut findings = Configuration::of(env, &Settings::of_file(env, file, whose)).findings;
    // A problem of the system file cannot be fixed in a user's file.
    findings
        .retain(|finding| whose == FileOf::Site || !matches!(finding.problem.origin, Origin::SystemFile(_)));
    findings
}

fn text(file: &Path, findings: &[Finding]) -> String {
    let file = file.display();
    let lines: String = findings.iter().map(|finding| finding.text() + "\n").collect();
    match findings.iter().filter(|finding| finding.is_mistake()).count() as u64 {
        0 => format!("{lines}{file}: nothing is wrong\n"),
        many => format!("{lines}{file}: {}\n", count(many, "problem")),
    }
}
