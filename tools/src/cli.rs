//! The command line with all subcommands. [`classic`] has other names for them.

use crate::output::{print_to_stderr, JSON_VERSION};
use crate::prelude::*;
use crate::run::{self as job, postrun, prerun, queries, small};
use crate::table::{output_columns, wrap};
use crate::time::GRAMMAR;
use crate::{
    agent, classic, clean, config, copy, doctor, explain, flush_file, halt, index, inspect, log, machine,
    pages, plan,
};
use crate::{plugin, poststage, report, scrub, status};
use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use scr_core::cache::filemap;
use std::error::Error as _;
use std::io::IsTerminal;
use std::num::{IntErrorKind, ParseIntError};

/// Inspect, check and repair the datasets, settings and plugins of the scr runtime.
#[derive(Parser)]
#[command(name = "scr", version, about, after_help = BELOW, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the versions of the files and interfaces that this release reads: before an upgrade, and before the way back
    #[arg(long, exclusive = true)]
    formats: bool,
    /// Accepted for scripts of C SCR, and ignored: set SCR_DEBUG=1 to see more
    #[arg(id = "verbose", short, long, global = true, hide = true)]
    _verbose: bool,
}

/// The subcommands in the groups of the help: of each its arguments, and what runs it. Those of the last group are hidden.
macro_rules! commands {
    ($($title:literal {
        $($(#[$($meta:tt)+])* $name:ident($args:ty): $run:path;)*
    })*) => {
        #[derive(Subcommand)]
        enum Command {
            $($($(#[$($meta)+])* $name($args),)*)*
        }

        impl Command {
            fn run(&self) -> Result<Answer> {
                match self {
                    $($(Self::$name(args) => $run(args),)*)*
                }
            }
        }

        /// The title of each group, and how many subcommands it has.
        const GROUPS: &[(&str, usize)] = &[$(($title, [$(stringify!($name)),*].len())),*];
    };
}

commands! {
    "Run jobs" {
        /// Start a job, and restart it within the allocation if it fails
        Run(job::RunArgs): job::run;
        /// Say in a few lines how a job is doing: what is protected, and what a failure would cost now
        Status(status::StatusArgs): status::run;
        /// Ask a job to stop: after a number of checkpoints, before or after a time, or now
        Halt(halt::HaltArgs): halt::run;
        /// Prepare a prefix directory for a job; `scr run` does this itself
        Prerun(job::AroundArgs): prerun::run;
        /// Save the datasets that a job has left in cache; `scr run` does this itself
        Postrun(postrun::PostrunArgs): postrun::run;
        /// Finish asynchronous flushes whose data arrived after the application ended
        Poststage(environment::PrefixArgs): poststage::run;
        /// Copy the flushes of this node that use the transport AGENT, even after the job has ended
        Agent(agent::AgentArgs): agent::run;
    }
    "Look after datasets" {
        /// List and change the index of the datasets in a prefix directory
        Index(index::IndexArgs): index::run;
        /// Show where the datasets of an allocation are, and which are still to be copied
        FlushFile(flush_file::FlushFileArgs): flush_file::run;
        /// Say which datasets in the caches of the nodes can be rebuilt
        Inspect(inspect::InspectArgs): inspect::run;
        /// Copy the parts of a dataset in this node's cache to the prefix directory
        Copy(copy::CopyArgs): copy::run;
        /// Read the datasets in cache or in a prefix directory, and report damage
        Scrub(scrub::ScrubArgs): scrub::run;
    }
    "Settings, plugins and nodes" {
        /// Show the settings of a job and their sources, explain parameters, check configuration files
        Config(config::ConfigArgs): config::run;
        /// Say what a message means, and what is to be done about it
        Explain(explain::ExplainArgs): explain::run;
        /// Check the installation and the nodes of the allocation, and say what to repair
        Doctor(doctor::DoctorArgs): doctor::run;
        /// List, describe and check redundancy schemes, flush transports and log sinks
        #[command(subcommand)]
        Plugin(plugin::Command): plugin::run;
        /// Check whether this node has the stores that a job would use
        CheckNode(machine::CheckNodeArgs): machine::health::check_node;
        /// Remove what dead allocations have left in the caches of this node
        Clean(clean::CleanArgs): clean::run;
    }
    "Logs" {
        /// Say what jobs have cost: goodput, checkpoints, flushes, restarts, work that was lost
        Report(report::ReportArgs): report::run;
        /// List the log entries of jobs, or prepare the log database
        Log(log::LogArgs): log::run;
        /// Print how often to write checkpoints, computed from the log of a job
        CkptInterval(log::interval::CkptIntervalArgs): log::interval::run;
        /// Find the best schemes, checkpoint interval and flushes for a machine, by a model or by simulation
        Plan(plan::PlanArgs): plan::run;
        /// Add an event to the log of a job
        LogEvent(log::add::LogEventArgs): log::add::event;
        /// Add a transfer of files to the log of a job
        LogTransfer(log::add::LogTransferArgs): log::add::transfer;
    }
    "For scripts" {
        /// Show the properties of the allocation
        Env(queries::EnvArgs): queries::env;
        /// List the nodes of the allocation that must not be used
        ListDownNodes(queries::DownArgs): queries::list_down_nodes;
        /// Say whether the job should halt, and why
        RetriesHalt(queries::RetriesHaltArgs): queries::retries_halt;
        /// Say whether a script must not restart the job, and why
        ShouldExit(small::ShouldExitArgs): small::should_exit;
        /// Set, unset and list the conditions of one halt file, for scripts
        HaltCntl(halt::cntl::HaltCntlArgs): halt::cntl::run;
        /// Expand, compress, count and compare lists of nodes
        GlobHosts(queries::HostsArgs): queries::glob_hosts;
        /// Print how many nodes the last run used
        NodesFile(small::NodesFileArgs): small::nodes_file;
        /// Print the cache or control directories of an allocation
        ListDir(small::ListDirArgs): small::list_dir;
        /// End a step of a job
        KillJobstep(small::KillJobstepArgs): small::kill_jobstep;
        /// Print a file of scr as text
        Print(small::PrintArgs): small::print_file;
        /// Print the CRC32 of files
        Crc32(small::Crc32Args): small::crc32;
    }
    "" {
        /// Write the manual pages and the shell completions into an installation
        #[command(hide = true)]
        Pages(pages::PagesArgs): pages::run;
        /// Print values for shell completions
        #[command(hide = true)]
        Complete(pages::completions::CompleteArgs): pages::completions::run;
    }
}

/// The text below a help that has no text of its own in `notes.toml`.
const EXIT_CODES: &str = "Exit codes: 0 yes or done, 1 no, 2 error.";

/// Text below the help of the whole command.
const BELOW: &str = "\
`scr COMMAND --help' explains a command.

Exit codes: 0 yes or done, 1 no, 2 error.";

/// Reads the arguments and does what they say.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<Answer> {
    // As C SCR, a classic name takes the beginning of an option for it. Under our own, `--de` deletes nothing.
    let matches = command().infer_long_args(classic::is_meant()).try_get_matches_from(arguments);
    let understood = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    match understood.unwrap_or_else(|error| end(error)) {
        Cli { command: Some(command), .. } => command.run(),
        Cli { formats: true, .. } => print(formats().text()),
        Cli { .. } => end(Cli::command().error(ErrorKind::MissingSubcommand, "name a command")),
    }
}

/// The forms of what releases exchange.
fn formats() -> Table {
    let (agent, api) = (scr_core::flush::RECORD_VERSION, scr_plugin_api::abi::API_VERSION);
    let in_prefix = scr_prefix::FORMATS
        .map(|(file, read)| [file.to_owned(), scr_base::fs::versions(&read), "prefix directory".to_owned()]);
    let others = [
        ["filemap", &filemap::VERSION.to_string(), "cache"],
        ["detached.*", agent, "flush that outlives its job"],
        ["plugin interface", &api.to_string(), "plugins"],
        ["--json", &JSON_VERSION.to_string(), "what commands print"],
    ];
    let others = others.map(|row| row.map(str::to_owned));
    Table::of(&["FORMAT", "VERSION", "WHERE"], in_prefix.into_iter().chain(others))
}

/// The command line, in the width of the output. The word after an option is its value, a negative number too: the
/// option's own parser says best what is wrong with it. Below the help of each command is its note.
pub(crate) fn command() -> clap::Command {
    fn finish(command: clap::Command, notes: &BTreeMap<String, String>) -> clap::Command {
        let of_option = |arg: clap::Arg| match arg.get_action().takes_values() && !arg.is_positional() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        };
        command.mut_args(of_option).mut_subcommands(|below| {
            let note = notes.get(below.get_name()).map_or(EXIT_CODES, String::as_str);
            let note = note.replace("{GRAMMAR}", GRAMMAR).replace("{NAMES}", &log::names().join(", "));
            finish(below.after_help(note), notes)
        })
    }
    let notes = toml::from_str(include_str!("notes.toml")).unwrap_or_default();
    let columns = match output_columns() {
        usize::MAX => 80,
        columns => columns.min(WIDEST_HELP),
    };
    let command = Cli::command().help_template(help_template(columns));
    finish(command, &notes).term_width(columns)
}

/// The help of the whole command, with the subcommands in groups.
fn help_template(columns: usize) -> String {
    let (command, styles) = (Cli::command(), Styles::styled());
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = command.get_subcommands().map(|below| below.get_name().len()).max().unwrap_or(0);
    let mut all = command.get_subcommands();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (title, count) in GROUPS.iter().filter(|(title, _)| !title.is_empty()) {
        text += &format!("{header}{title}:{header:#}\n");
        for below in all.by_ref().take(*count) {
            let name = below.get_name();
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            let lines = wrap(&about, columns.saturating_sub(width + 4));
            text += &format!("  {literal}{name}{literal:#}{:1$}  ", "", width - name.len());
            text += &(lines.join(&format!("\n{:1$}", "", width + 4)) + "\n");
        }
        text += "\n";
    }
    text + &format!("{header}Options:{header:#}\n{{options}}{{after-help}}")
}

/// Longer lines are hard to read.
const WIDEST_HELP: usize = 100;

/// Ends the command where its arguments were not understood, or help was asked for.
fn end(mut error: clap::Error) -> ! {
    if error.kind() == ErrorKind::UnknownArgument {
        // A word with a dash is a mistyped option, and no file of such a name.
        error.remove(ContextKind::Suggested);
    }
    if !error.use_stderr() && !std::io::stdout().is_terminal() {
        // Whoever asked for help and does not read it has no use for an error.
        let _unread = print(error.render().to_string());
        std::process::exit(0)
    }
    if !error.use_stderr() {
        error.exit()
    }
    let (why, plain) = in_words(&error).unwrap_or_default();
    let text = error.render();
    let text = if std::io::stderr().is_terminal() { text.ansi().to_string() } else { text.to_string() };
    let text = if why.is_empty() { text } else { text.replace(&why, &plain) };
    print_to_stderr(text.trim_end());
    std::process::exit(crate::classic::wrong_line_code())
}

/// The fault of a number, as Rust says it and as people do.
fn in_words(error: &clap::Error) -> Option<(String, String)> {
    let why = error.source().filter(|_| error.kind() == ErrorKind::ValueValidation)?;
    let text = why.to_string();
    let is_negative = matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.starts_with('-'));
    let plain = match why.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "the number is too large".to_owned(),
        Some(IntErrorKind::InvalidDigit) if is_negative => "the least is 0".to_owned(),
        Some(_) => "this is not a whole number".to_owned(),
        None => match text.split_once(" is not in ")?.1.split_once("..")? {
            (least, _) if is_negative || least == "1" && text.starts_with("0 ") => {
                format!("the least is {least}")
            }
            (_, most) => format!("the most is {}", most.trim_start_matches('=')),
        },
    };
    Some((text, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_note_is_that_of_a_command() {
        let notes: BTreeMap<String, String> = toml::from_str(include_str!("notes.toml")).unwrap();
        let command = Cli::command();
        notes.keys().for_each(|name| assert!(command.find_subcommand(name).is_some(), "{name}"));
    }

    #[test]
    fn only_what_is_hidden_has_no_group_in_the_help() {
        let titled = GROUPS.iter().filter(|(title, _)| !title.is_empty());
        let grouped: usize = titled.map(|(_, count)| count).sum();
        for (place, command) in Cli::command().get_subcommands().enumerate() {
            assert_eq!(command.is_hide_set(), place >= grouped, "{}", command.get_name());
        }
    }
}
