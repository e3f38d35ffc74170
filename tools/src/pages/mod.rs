//! `scr pages`: writes the manual pages and the completions of shells into an installation. `scripts/install.sh` calls it.
//!
//! They are made from the data of the command itself, its arguments and the table of parameters, and from `sections.toml`.
//!
//! - `settings`: scr.conf(5)
//! - `sections`: EXAMPLES, ENVIRONMENT and FILES
//! - `completions`: values and classic names in completions

pub(crate) mod completions;
mod sections;
mod settings;

use crate::cli;
use crate::output::Answer;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::roff::{roman, Roff};
use clap_mangen::Man;
use scr_plugin_api::paths_in;
use sections::Texts;
use std::fs;
use std::path::{Path, PathBuf};

/// The destination.
#[derive(Args)]
pub(crate) struct PagesArgs {
    /// The folder of the installation, with bin and share in it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes them.
pub(crate) fn run(args: &PagesArgs) -> Result<Answer> {
    let mut command = cli::command().disable_help_subcommand(true);
    command.build();
    let (commands, formats) = (args.dir.join("share/man/man1"), args.dir.join("share/man/man5"));
    let texts = Texts::read()?;
    write_commands(&command, &texts, &commands)?;
    let classic = classic_names(&args.dir.join("bin"))?;
    for (name, subcommand) in &classic {
        // Each has its subcommand's page.
        write(&commands, &format!("{name}.1"), format!(".so man1/scr-{subcommand}.1\n").as_bytes())?;
    }
    write(&formats, "scr.conf.5", &settings::page(&texts).into_bytes())?;
    write_completions(&mut visible(&command), &args.dir.join("share"), &classic)?;
    Ok(Answer::Yes)
}

/// Goes with every page, in its last line.
const SOURCE: &str = concat!("scr ", env!("CARGO_PKG_VERSION"));

/// A page for a command, and for each below it.
fn write_commands(command: &Command, texts: &Texts, folder: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_commands(below, texts, folder)?;
    }
    let man = Man::new(command.clone()).date(today()).source(SOURCE).manual("scr");
    let mut page = Vec::new();
    man.render(&mut page)?;
    // The section under a help text has no name of its own.
    let page = String::from_utf8(page)?.replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    let name = man.get_filename();
    let sections = texts.of(name.trim_end_matches(".1")).to_roff();
    write(folder, &name, (page + &sections + &see_also("scr(1), scr.conf(5)").to_roff()).as_bytes())
}

/// When the pages are written; formatters take the next field for the date where it is missing.
fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// The classic names that are links in the installation, each with its subcommand.
fn classic_names(bin: &Path) -> Result<Vec<(String, String)>> {
    let list = || format!("cannot list {}", bin.display());
    let mut names = Vec::new();
    for link in paths_in(bin).with_context(list)? {
        let link = link.file_name().unwrap_or_default();
        if let Some([_, subcommand, ..]) = cli::classic(Path::new(link)).as_deref() {
            names.push((link.to_string_lossy().into_owned(), subcommand.clone()));
        }
    }
    Ok(names)
}

/// Without what is hidden, which the completions would offer anyway.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("scr")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(shown)
}

/// Under the names that the shells look for.
fn write_completions(command: &mut Command, share: &Path, classic: &[(String, String)]) -> Result<()> {
    let shells = [
        (Shell::Bash, "bash-completion/completions", "scr"),
        (Shell::Zsh, "zsh/site-functions", "_scr"),
        (Shell::Fish, "fish/vendor_completions.d", "scr.fish"),
    ];
    for (shell, folder, file) in shells {
        let mut script = Vec::new();
        clap_complete::generate(shell, command, "scr", &mut script);
        let mut script = String::from_utf8(script)?;
        match shell {
            Shell::Bash => script += &completions::bash(classic),
            Shell::Fish => script += &completions::fish(classic),
            _ => script = completions::zsh(&script, classic),
        }
        write(&share.join(folder), file, script.as_bytes())?;
    }
    Ok(())
}

/// The section that names other pages.
fn see_also(pages: &str) -> Roff {
    let mut roff = Roff::new();
    let documents = "The documents in share/doc/scr of the installation say more.";
    roff.control("SH", ["SEE ALSO"]).text([roman(pages)]).control("PP", []).text([roman(documents)]);
    roff
}

fn write(folder: &Path, name: &str, text: &[u8]) -> Result<()> {
    let path = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}
