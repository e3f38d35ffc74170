//! The command line with all subcommands.
//!
//! Under a classic name the command is the subcommand of that name: `scr_index --list` is `scr index --list`, and
//! `scr_flush_file` is `scr flush-file`; `scr_srun` is `scr run srun`; [`ALIASES`] has names for what is called otherwise here.
//! So a link is all that a classic name needs.

use crate::agent;
use crate::clean;
use crate::config;
use crate::copy;
use crate::doctor;
use crate::flush_file;
use crate::halt;
use crate::index;
use crate::inspect;
use crate::log;
use crate::machine;
use crate::output::{print_to_stderr, Answer};
use crate::pages;
use crate::plan;
use crate::plugin;
use crate::poststage;
use crate::report;
use crate::run::{self as job, classic as small, postrun, prerun, queries};
use crate::scrub;
use crate::status;
use crate::table::{wrap, Width};
use anyhow::Result;
use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::error::Error as _;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;

/// Inspect, check and repair the datasets, settings and plugins of the scr runtime.
#[derive(Parser)]
#[command(name = "scr", version, about, after_help = BELOW, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
enum Command {
    /// Copy the flushes of this node that use the transport AGENT, even after the job has ended
    #[command(after_help = agent::EXIT_CODES)]
    Agent(agent::AgentArgs),
    /// Check the installation and the nodes of the allocation, and say what to repair
    #[command(after_help = doctor::EXIT_CODES)]
    Doctor(doctor::DoctorArgs),
    /// Remove what dead allocations have left in the caches of this node
    #[command(after_help = clean::EXIT_CODES)]
    Clean(clean::CleanArgs),
    /// Finish asynchronous flushes whose data arrived after the application ended
    #[command(after_help = poststage::EXIT_CODES)]
    Poststage(poststage::PoststageArgs),
    /// Show the settings of a job and their sources, explain parameters, check configuration files
    #[command(after_help = config::EXIT_CODES)]
    Config(config::ConfigArgs),
    /// List the log entries of jobs, or prepare the log database
    #[command(after_help = log::after_help())]
    Log(log::LogArgs),
    /// List, describe and check redundancy schemes, flush transports and log sinks
    #[command(subcommand, after_help = EXIT_CODES)]
    Plugin(plugin::Command),
    /// Copy the parts of a dataset in this node's cache to the prefix directory
    #[command(after_help = copy::EXIT_CODES)]
    Copy(copy::CopyArgs),
    /// Show where the datasets of an allocation are, and which are still to be copied
    #[command(after_help = flush_file::EXIT_CODES)]
    FlushFile(flush_file::FlushFileArgs),
    /// Ask a job to stop: after a number of checkpoints, before or after a time, or now
    #[command(after_help = halt::EXIT_CODES)]
    Halt(halt::HaltArgs),
    /// Set, unset and list the conditions of one halt file, for scripts
    #[command(after_help = halt::cntl::EXIT_CODES)]
    HaltCntl(halt::cntl::HaltCntlArgs),
    /// Add an event to the log of a job
    #[command(after_help = log::add::EXIT_CODES)]
    LogEvent(log::add::LogEventArgs),
    /// Add a transfer of files to the log of a job
    #[command(after_help = log::add::EXIT_CODES)]
    LogTransfer(log::add::LogTransferArgs),
    /// Print how often to write checkpoints, computed from the log of a job
    #[command(after_help = log::interval::EXIT_CODES)]
    CkptInterval(log::interval::CkptIntervalArgs),
    /// Say what jobs have cost: goodput, checkpoints, flushes, restarts, work that was lost
    #[command(after_help = report::after_help())]
    Report(report::ReportArgs),
    /// Find the best schemes, checkpoint interval and flushes for a machine, by a model or by simulation
    #[command(after_help = plan::EXIT_CODES)]
    Plan(plan::PlanArgs),
    /// List and change the index of the datasets in a prefix directory
    #[command(after_help = index::EXIT_CODES)]
    Index(index::IndexArgs),
    /// Say in a few lines how a job is doing: what is protected, and what a failure would cost now
    #[command(after_help = status::EXIT_CODES)]
    Status(status::StatusArgs),
    /// Say which datasets in the caches of the nodes can be rebuilt
    #[command(after_help = inspect::EXIT_CODES)]
    Inspect(inspect::InspectArgs),
    /// Read the datasets in cache or in a prefix directory, and report damage
    #[command(after_help = scrub::EXIT_CODES)]
    Scrub(scrub::ScrubArgs),
    /// Start a job, and restart it within the allocation if it fails
    #[command(after_help = job::EXIT_CODES)]
    Run(job::RunArgs),
    /// Prepare a prefix directory for a job; `scr run` does this itself
    #[command(after_help = prerun::EXIT_CODES)]
    Prerun(prerun::PrerunArgs),
    /// Save the datasets that a job has left in cache; `scr run` does this itself
    #[command(after_help = postrun::EXIT_CODES)]
    Postrun(postrun::PostrunArgs),
    /// Show the properties of the allocation
    #[command(after_help = queries::ENV_CODES)]
    Env(queries::EnvArgs),
    /// List the nodes of the allocation that must not be used
    #[command(after_help = queries::DOWN_CODES)]
    ListDownNodes(queries::DownArgs),
    /// Say whether the job should halt, and why
    #[command(after_help = queries::HALT_CODES)]
    RetriesHalt(queries::RetriesHaltArgs),
    /// Expand, compress, count and compare lists of nodes
    #[command(after_help = queries::HOSTS_CODES)]
    GlobHosts(queries::HostsArgs),
    /// Print a file of scr as text
    #[command(after_help = small::EXIT_CODES)]
    Print(small::PrintArgs),
    /// Print the CRC32 of files
    #[command(after_help = small::EXIT_CODES)]
    Crc32(small::Crc32Args),
    /// Print how many nodes the last run used
    #[command(after_help = small::EXIT_CODES)]
    NodesFile(small::NodesFileArgs),
    /// Print the cache or control directories of an allocation
    #[command(after_help = small::EXIT_CODES)]
    ListDir(small::ListDirArgs),
    /// Say whether a script must not restart the job, and why
    #[command(after_help = small::EXIT_CODES)]
    ShouldExit(small::ShouldExitArgs),
    /// End a step of a job
    #[command(after_help = small::KILL_CODES)]
    KillJobstep(small::KillJobstepArgs),
    /// Check whether this node has the stores that a job would use
    #[command(after_help = EXIT_CODES)]
    CheckNode(machine::CheckNodeArgs),
    /// Write the manual pages and the shell completions into an installation
    #[command(hide = true)]
    Pages(pages::PagesArgs),
    /// Print values for shell completions
    #[command(hide = true)]
    Complete(pages::completions::CompleteArgs),
}

/// Text below every help.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 yes or done, 1 no, 2 error.";

/// Text below the help of the whole command.
const BELOW: &str = "\
`scr COMMAND --help' explains a command.

Exit codes: 0 yes or done, 1 no, 2 error.";

/// Reads the arguments and does what they say.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<Answer> {
    let matches = command().try_get_matches_from(arguments);
    match matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .unwrap_or_else(|error| end(error))
        .command
    {
        Command::Agent(args) => agent::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::Poststage(args) => poststage::run(&args),
        Command::Copy(args) => copy::run(&args),
        Command::FlushFile(args) => flush_file::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Halt(args) => halt::run(&args),
        Command::HaltCntl(args) => halt::cntl::run(&args),
        Command::LogEvent(args) => log::add::event(&args),
        Command::LogTransfer(args) => log::add::transfer(&args),
        Command::CkptInterval(args) => log::interval::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Index(args) => index::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Plugin(command) => plugin::run(&command),
        Command::Status(args) => status::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Run(args) => job::run(&args),
        Command::Prerun(args) => prerun::run(&args),
        Command::Postrun(args) => postrun::run(&args),
        Command::Env(args) => queries::env(&args),
        Command::ListDownNodes(args) => queries::list_down_nodes(&args),
        Command::RetriesHalt(args) => queries::retries_halt(&args),
        Command::GlobHosts(args) => queries::glob_hosts(&args),
        Command::Print(args) => small::print_file(&args),
        Command::Crc32(args) => small::crc32(&args),
        Command::NodesFile(args) => small::nodes_file(&args),
        Command::ListDir(args) => small::list_dir(&args),
        Command::ShouldExit(args) => small::should_exit(&args),
        Command::KillJobstep(args) => small::kill_jobstep(&args),
        Command::CheckNode(args) => machine::health::check_node(&args),
        Command::Complete(args) => pages::completions::run(&args),
        Command::Pages(args) => pages::run(&args, command()),
    }
}

/// The command line, in the width of the output. The word after an option is its value, a negative number too: the
/// option's own parser says best what is wrong with it.
fn command() -> clap::Command {
    fn take_negative(command: clap::Command) -> clap::Command {
        let of_option = |arg: clap::Arg| match arg.get_action().takes_values() && !arg.is_positional() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        };
        command.mut_args(of_option).mut_subcommands(take_negative)
    }
    let columns = match Width::of_output().columns {
        usize::MAX => 80,
        columns => columns.min(WIDEST_HELP),
    };
    let command = Cli::command().help_template(help_template(columns));
    take_negative(command).term_width(columns)
}

/// The subcommands as people look for them. A test compares the list with the command line.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run jobs", &["run", "status", "halt", "prerun", "postrun", "poststage", "agent"]),
    ("Look after datasets", &["index", "flush-file", "inspect", "copy", "scrub"]),
    ("Settings, plugins and nodes", &["config", "doctor", "plugin", "check-node", "clean"]),
    ("Logs", &["report", "log", "ckpt-interval", "plan", "log-event", "log-transfer"]),
    (
        "For scripts",
        &[
            "env",
            "list-down-nodes",
            "retries-halt",
            "should-exit",
            "halt-cntl",
            "glob-hosts",
            "nodes-file",
            "list-dir",
            "kill-jobstep",
            "print",
            "crc32",
        ],
    ),
];

/// The help of the whole command, with the subcommands in groups.
fn help_template(columns: usize) -> String {
    let (command, styles) = (Cli::command(), Styles::styled());
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (title, names) in GROUPS {
        text += &format!("{header}{title}:{header:#}\n");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
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
    let Some((why, plain)) = in_words(&error) else { error.exit() };
    let text = error.render();
    let text = if std::io::stderr().is_terminal() { text.ansi().to_string() } else { text.to_string() };
    print_to_stderr(text.replace(&why, &plain).trim_end());
    std::process::exit(2)
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

/// Classic names of what a subcommand of another name does.
const ALIASES: &[(&str, &[&str])] = &[
    ("hostlist", &["glob-hosts"]),
    ("nodelist", &["env", "--nodes"]),
    ("rebuild-partner", &["index", "--build"]),
    ("rebuild-rs", &["index", "--build"]),
    ("rebuild-xor", &["index", "--build"]),
    ("test-runtime", &["doctor"]),
];

/// Whether these words are a command line.
#[cfg(test)]
pub(crate) fn is_understood(words: &[String]) -> bool {
    Cli::try_parse_from(words).is_ok()
}

/// The arguments with the subcommand put in that a classic name refers to.
pub(crate) fn expand(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    if let Some(mut subcommand) = arguments.first().and_then(|program| classic(Path::new(program))) {
        // All words after a launcher are the launcher's; but the help of a classic name is ours.
        if matches!(&arguments[1..], [only] if only == "--help" || only == "-h" || only == "--version") {
            subcommand.truncate(2);
        }
        // Usage lines are made from the name of the program: `scr_index index` would be no command at all.
        arguments.splice(..1, subcommand.into_iter().map(OsString::from));
    }
    arguments
}

/// The meaning of a program's name: a subcommand, or the start of a job with a launcher.
pub(crate) fn classic(program: &Path) -> Option<Vec<String>> {
    let name = program.file_name()?.to_str()?.strip_prefix("scr_")?.replace('_', "-");
    if job::LAUNCHERS.contains(&name.as_str()) {
        return Some(vec!["scr".to_owned(), "run".to_owned(), name]);
    }
    if let Some((_, words)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Some(std::iter::once("scr").chain(words.iter().copied()).map(str::to_owned).collect());
    }
    let known = Cli::command().get_subcommands().any(|known| known.get_name() == name);
    known.then(|| vec!["scr".to_owned(), name])
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
    fn every_subcommand_is_in_one_group_of_the_help() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn a_classic_name_is_its_subcommand_and_any_other_name_is_not() {
        assert_eq!(expanded(&["/opt/scr/bin/scr_plugin", "list"]), ["scr", "plugin", "list"]);
        assert_eq!(expanded(&["scr", "plugin"]), ["scr", "plugin"]);
        assert_eq!(expanded(&["scr_srun", "-n4", "./app"]), ["scr", "run", "srun", "-n4", "./app"]);
        assert_eq!(expanded(&["scr_srun", "--help"]), ["scr", "run", "--help"]);
        assert_eq!(expanded(&["scr_srun", "-n1", "--help"]), ["scr", "run", "srun", "-n1", "--help"]);
        assert_eq!(expanded(&["scr_index", "--help"]), ["scr", "index", "--help"]);
        assert_eq!(expanded(&["scr_run", "srun", "./app"]), ["scr", "run", "srun", "./app"]);
        assert_eq!(expanded(&["scr_rebuild_xor", "7"]), ["scr", "index", "--build", "7"]);
        assert_eq!(expanded(&["scr_rebuild_xor", "--help"]), ["scr", "index", "--help"]);
        assert_eq!(expanded(&["scr_unknown", "--list"]), ["scr_unknown", "--list"]);
        assert_eq!(expanded(&[]), Vec::<OsString>::new());
    }
}
