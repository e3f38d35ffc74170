//! `scr plugin`: which redundancy schemes, flush transports and log sinks there are, and whether a library is good.
//!
//! - `new`: writes a crate to begin with
//! - `list`: `scr plugin list` and `info`, which read manifests, and check their libraries as far as that is possible without loading them
//! - `check`: opens a library, in a process of its own, since a bad one may end that process
//! - `conformance`: puts a plugin through the kit, in a process of its own too
//! - `apart`: how both have a process of their own answer

mod apart;
mod check;
mod conformance;
mod list;
mod new;

use crate::output::Answer;
use crate::time;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use scr_core::plugin::PluginKind;
use std::path::PathBuf;
use std::time::Duration;

/// The questions about plugins.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the plugins that a job can name; 1 if there are none
    #[command(after_help = crate::cli::EXIT_CODES)]
    List(ListArgs),
    /// Show the manifest of a plugin; 1 if there is no such plugin
    #[command(after_help = crate::cli::EXIT_CODES)]
    Info(InfoArgs),
    /// Check a library or a manifest: who may write it, whether it is complete, loads and matches; 1 if not
    #[command(after_help = crate::cli::EXIT_CODES)]
    Check(CheckArgs),
    /// Run the conformance kit on a plugin: every loss it promises to survive, damage, failures; 1 if it fails
    #[command(after_help = crate::cli::EXIT_CODES)]
    Conformance(ConformanceArgs),
    /// Write a crate with a working plugin, its manifest, a test and a README, as a start
    #[command(after_help = crate::cli::EXIT_CODES)]
    New(NewArgs),
}

/// The places to look, and the form of the answer.
#[derive(Args)]
pub(crate) struct Common {
    /// Folders to look in first, separated by colons, instead of SCR_PLUGIN_PATH
    #[arg(long, value_name = "FOLDERS")]
    path: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only plugins of this kind
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct InfoArgs {
    /// Name of the plugin, as in TYPE= or FLUSH=, in any case
    name: String,
    /// Only a plugin of this kind
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// A library (.so), or a manifest (.toml) together with the library it names
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long loading the library may take
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = time::length)]
    timeout: Duration,
    /// The part of `check` that runs in a separate process
    #[arg(long, hide = true)]
    here: bool,
}

#[derive(Args)]
pub(crate) struct ConformanceArgs {
    /// A manifest (.toml), or a library (.so) with its manifest beside it
    file: PathBuf,
    /// Options of the plugin, as in a descriptor
    #[arg(value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long a call of the plugin may take
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = time::length)]
    timeout: Duration,
    /// The part of `conformance` that runs in a separate process
    #[arg(long, hide = true)]
    here: bool,
}

#[derive(Args)]
pub(crate) struct NewArgs {
    /// The kind of plugin
    #[arg(value_enum)]
    kind: new::NewKind,
    /// Its name, as in TYPE= or FLUSH=
    name: String,
    /// The folder to create, instead of scr-NAME
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Kinds of plugins on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Redundancy schemes
    Scheme,
    /// Flush transports
    Transport,
    /// Log sinks
    Log,
}

impl From<Kind> for PluginKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Scheme => PluginKind::Scheme,
            Kind::Transport => PluginKind::Transport,
            Kind::Log => PluginKind::Log,
        }
    }
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> Result<Answer> {
    match command {
        Command::List(args) => list::run(args),
        Command::Info(args) => list::info(args),
        Command::Check(args) => check::run(args),
        Command::Conformance(args) => conformance::run(args),
        Command::New(args) => new::run(args),
    }
}
