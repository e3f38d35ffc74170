//! The command line: one place where the subcommands hang.
//!
//! Under a classic name the command is the subcommand of that name: `scr_index --list` is `scr index --list`, and
//! `scr_flush_file` is `scr flush-file`. So a link is all that a classic name needs.

use crate::config;
use crate::copy;
use crate::flush_file;
use crate::index;
use crate::output::Answer;
use crate::plugin;
use crate::scrub;
use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::Path;

/// Looks at, checks and repairs what the scr runtime uses and keeps.
#[derive(Parser)]
#[command(name = "scr", version, about, after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
enum Command {
    /// Shows what counts for a job and where it comes from, explains parameters, checks configuration files
    #[command(after_help = config::EXIT_CODES)]
    Config(config::ConfigArgs),
    /// Lists, describes and checks redundancy schemes and flush transports
    #[command(subcommand, after_help = EXIT_CODES)]
    Plugin(plugin::Command),
    /// Saves what this node's cache has of a dataset to the prefix directory
    #[command(after_help = copy::EXIT_CODES)]
    Copy(copy::CopyArgs),
    /// Says where the datasets of an allocation are, and what is left to copy
    #[command(after_help = flush_file::EXIT_CODES)]
    FlushFile(flush_file::FlushFileArgs),
    /// Lists and changes the index of the datasets in a prefix directory
    #[command(after_help = index::EXIT_CODES)]
    Index(index::IndexArgs),
    /// Reads all that was recorded of datasets, in cache or in a prefix directory, and says what is wrong
    #[command(after_help = scrub::EXIT_CODES)]
    Scrub(scrub::ScrubArgs),
}

/// Stands under every help text.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 yes or done, 1 no, 2 error.";

/// Reads the arguments and does what they say.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<Answer> {
    match Cli::parse_from(arguments).command {
        Command::Copy(args) => copy::run(&args),
        Command::FlushFile(args) => flush_file::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Index(args) => index::run(&args),
        Command::Plugin(command) => plugin::run(&command),
        Command::Scrub(args) => scrub::run(&args),
    }
}

/// The arguments with the subcommand put in that a classic name stands for.
pub(crate) fn expand(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    if let Some(subcommand) = arguments.first().and_then(|program| classic(Path::new(program))) {
        // Usage lines are made from the name of the program: `scr_index index` would be no command at all.
        arguments.splice(..1, ["scr".into(), subcommand.into()]);
    }
    arguments
}

/// The subcommand that a program of this name is.
fn classic(program: &Path) -> Option<String> {
    let name = program.file_name()?.to_str()?.strip_prefix("scr_")?.replace('_', "-");
    Cli::command().get_subcommands().any(|known| known.get_name() == name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(arguments: &[&str]) -> Vec<OsString> {
        expand(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_command_line_has_no_contradictions_and_every_argument_has_a_help_text() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} of {}", argument.get_id(), command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        let command = Cli::command();
        command.clone().debug_assert();
        check(&command);
    }

    #[test]
    fn a_classic_name_is_its_subcommand_and_any_other_name_is_not() {
        assert_eq!(expanded(&["/opt/scr/bin/scr_plugin", "list"]), ["scr", "plugin", "list"]);
        assert_eq!(expanded(&["scr", "plugin"]), ["scr", "plugin"]);
        assert_eq!(expanded(&["scr_unknown", "--list"]), ["scr_unknown", "--list"]);
        assert_eq!(expanded(&[]), Vec::<OsString>::new());
    }
}
