//! EXAMPLES, ENVIRONMENT and FILES of the manual pages, and the text of scr.conf(5): what `sections.toml` has.

use anyhow::Result;
use clap_mangen::roff::{bold, roman, Roff};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The texts of all pages.
#[derive(Deserialize)]
pub(super) struct Texts {
    /// Variables that matter to every command.
    environment: Vec<[String; 2]>,
    /// Files, and what is in them.
    files: Vec<[String; 2]>,
    /// The sections of scr.conf(5), each a heading and its paragraphs.
    pub(super) settings: Vec<Vec<String>>,
    pages: BTreeMap<String, Page>,
}

/// The text of a page beyond the options of its command.
#[derive(Deserialize)]
struct Page {
    /// Commands, and what they do.
    examples: Vec<[String; 2]>,
    /// Files that the command reads or writes.
    files: Vec<String>,
}

impl Texts {
    pub(super) fn read() -> Result<Self> {
        Ok(toml::from_str(include_str!("sections.toml"))?)
    }

    /// The sections of a page, such as `scr-index`.
    pub(super) fn of(&self, page: &str) -> Roff {
        let mut roff = Roff::new();
        let Some(page) = self.pages.get(page) else { return roff };
        list(&mut roff, "EXAMPLES", page.examples.iter());
        list(&mut roff, "ENVIRONMENT", self.environment.iter());
        roff.text([roman("Every parameter in scr.conf(5) can be set as a variable.")]);
        let is_meant = |name: &String| OF_ALL.contains(&name.as_str()) || page.files.contains(name);
        list(&mut roff, "FILES", self.files.iter().filter(|[name, _]| is_meant(name)));
        roff
    }
}

/// Files that matter to every command.
const OF_ALL: [&str; 2] = [".scrconf", "etc/scr.conf"];

fn list<'a>(roff: &mut Roff, heading: &str, rows: impl Iterator<Item = &'a [String; 2]>) {
    roff.control("SH", [heading]);
    for [name, text] in rows {
        roff.control("TP", []).text([bold(name)]).text([roman(text)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_a_command_line_that_is_understood_and_every_file_is_described() {
        let texts = Texts::read().unwrap();
        for page in texts.pages.values() {
            for [command, _] in &page.examples {
                let words = shlex::split(command).unwrap();
                assert!(crate::cli::is_understood(&words), "{command}");
            }
            for file in &page.files {
                assert!(texts.files.iter().any(|[name, _]| name == file), "{file}");
            }
        }
    }
}
