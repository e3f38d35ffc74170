//! Files before there is a job: each is read alone, as a user's file beside the system file or as a system file.

use super::effective::Outcome;
use super::told::{Row, Told};
use crate::output::{print, print_json, Answer, JSON_VERSION};
use anyhow::Result;
use scr_core::env::Env;
use scr_core::param::{FileOf, Origin, Settings};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Report {
    version: u32,
    /// Whether nothing is wrong with any of them.
    sound: bool,
    files: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    problems: Vec<Row>,
}

/// Checks the files. The answer is yes where nothing is wrong with any.
pub(super) fn run(env: &Env, files: &[PathBuf], system: bool, json: bool) -> Result<Answer> {
    let whose = if system { FileOf::Site } else { FileOf::User };
    let checked: Vec<_> = files.iter().map(|file| (file, problems(env, file, whose))).collect();
    let sound = checked.iter().all(|(_, told)| told.is_empty());
    if json {
        let files = checked.iter().map(|(file, told)| Checked {
            file: file.display().to_string(),
            problems: told.iter().map(Told::row).collect(),
        });
        print_json(&Report { version: JSON_VERSION, sound, files: files.collect() })?;
    } else {
        print(&checked.iter().map(|(file, told)| in_words(file, told)).collect::<String>())?;
    }
    Ok(Answer::from(sound))
}

fn problems(env: &Env, file: &Path, whose: FileOf) -> Vec<Told> {
    let mut told = Outcome::of(env, &Settings::of_file(env, file, whose)).told;
    // What the system file has is not mended in a user's file.
    told.retain(|told| whose == FileOf::Site || !matches!(told.problem.origin, Origin::SystemFile(_)));
    told.sort_by_key(|told| told.place().map(|(_, line)| line));
    told
}

fn in_words(file: &Path, told: &[Told]) -> String {
    let file = file.display();
    let lines: String = told.iter().map(|told| told.in_words() + "\n").collect();
    match told.len() {
        0 => format!("{file}: nothing is wrong\n"),
        1 => format!("{lines}{file}: 1 problem\n"),
        count => format!("{lines}{file}: {count} problems\n"),
    }
}
