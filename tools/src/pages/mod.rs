//! `scr pages`: writes the manual pages and the completions of shells into an installation. `scripts/install.sh` calls it.
//!
//! They are made from the data of the command itself, its arguments and the table of parameters, and from `sections.toml`.
//!
//! - `calls`: the C interface, made from `scr.h`
//! - `completions`: values and classic names in completions

mod calls;
pub(crate) mod completions;

use crate::cli;
use crate::prelude::*;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::roff::{bold, line_break, roman, Roff};
use clap_mangen::Man;
use scr_config::param::TABLE;

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
    let header = args.dir.join("include/scr.h");
    let header = fs::read_to_string(&header).or_cannot("read", &header)?;
    for (name, page) in calls::pages(&header) {
        write(&args.dir.join("share/man/man3"), &format!("{name}.3"), page.as_bytes())?;
    }
    write(&formats, "scr.conf.5", &settings_page(&texts).into_bytes())?;
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
    let mut names = Vec::new();
    for link in paths_in(bin).or_cannot("list", bin)? {
        let link = link.file_name().unwrap_or_default();
        if let Some([_, subcommand, ..]) = classic::meaning(Path::new(link)).as_deref() {
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
    fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).or_cannot("write", &path)
}

/// The texts of all pages.
#[derive(Deserialize)]
struct Texts {
    /// Variables that matter to every command.
    environment: Vec<[String; 2]>,
    /// Files, and what is in them.
    files: Vec<[String; 2]>,
    /// The sections of scr.conf(5), each a heading and its paragraphs.
    settings: Vec<Vec<String>>,
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
    fn read() -> Result<Self> {
        Ok(toml::from_str(include_str!("sections.toml"))?)
    }

    /// The sections of a page, such as `scr-index`.
    fn of(&self, page: &str) -> Roff {
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

/// The page.
fn settings_page(texts: &Texts) -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["scr.conf", "5", &today(), SOURCE, "scr"]);
    for (heading, paragraphs) in texts.settings.iter().filter_map(|section| section.split_first()) {
        roff.control("SH", [heading.as_str()]);
        for (position, paragraph) in paragraphs.iter().enumerate() {
            if position > 0 {
                roff.control("PP", []);
            }
            roff.text([roman(paragraph)]);
        }
    }
    roff.control("SH", ["PARAMETERS"]);
    for info in TABLE {
        let (value, default, set) = (info.kind.expected(), info.default.in_words(""), info.scope.label());
        let facts = format!("Value: {value}. Default: {default}. Set: {set}.");
        roff.control("TP", []).text([bold(info.name)]).text([roman(info.help), line_break(), roman(facts)]);
    }
    roff.extend([see_also("scr(1), scr-config(1), scr-run(1)")]);
    roff.render()
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
                assert!(cli::command().try_get_matches_from(words).is_ok(), "{command}");
            }
            for file in &page.files {
                assert!(texts.files.iter().any(|[name, _]| name == file), "{file}");
            }
        }
    }
}
