//! `scr plugin`: which redundancy schemes, flush transports and log sinks there are, and whether a library is good.
//!
//! - `new`: writes a crate to begin with
//! - `list`: `scr plugin list` and `info`, which read manifests, and check their libraries as far as that is possible without loading them
//! - `check`: opens a library, in a process of its own, since a bad one may end that process
//! - `conformance`: puts a plugin through the kit, in a process of its own too

mod check;
mod conformance;
mod list;
mod new;

use crate::machine::{process, Activity};
use crate::output::print_to_stderr;
use crate::prelude::*;
use clap::Subcommand;
use scr_core::plugin::{PluginHost, PluginKind};
use std::os::unix::process::ExitStatusExt;

/// The questions about plugins.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the plugins that a job can name; 1 if there are none
    List(ListArgs),
    /// Show the manifest of a plugin; 1 if there is no such plugin
    Info(InfoArgs),
    /// Check a library or a manifest: who may write it, whether it is complete, loads and matches; 1 if not
    Check(CheckArgs),
    /// Run the conformance kit on a plugin: every loss it promises to survive, damage, failures; 1 if it fails
    Conformance(ConformanceArgs),
    /// Write a crate with a working plugin, its manifest, a test and a README, as a start
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

impl Common {
    fn host(&self, env: &Env) -> PluginHost {
        let path = self.path.as_deref();
        path.map_or_else(|| environment::plugin_host(env), |path| PluginHost::new(env, Some(path)))
    }
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
    kind: Kind,
    /// Its name, as in TYPE= or FLUSH=
    name: String,
    /// The folder to create, instead of scr-NAME
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// The folder of the crates that it needs, as seen from the new one; `../crates` is shared with other plugins
    #[arg(long, value_name = "FOLDER", default_value = "crates")]
    crates: String,
}

/// Kinds of plugins on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Redundancy schemes
    Scheme,
    /// Flush transports
    Transport,
    /// Log sinks
    #[value(alias = "log-sink")]
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

/// A library runs code as soon as it is loaded, and that code may crash, hang or end the process. So it is loaded in a child, and
/// only a printed answer counts: an exit code of 0 alone proves nothing.
///
/// Has `scr plugin` with these arguments answer in a process of its own, within the limit if there is one. Gives the answer, or how
/// the process ended without one.
fn ask<T: DeserializeOwned>(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    limit: Option<Duration>,
) -> Result<Result<T, String>> {
    // A file and not a pipe: a child that prints a lot waits for nobody, and nobody waits for a child of it that goes on.
    let (output, errors) = (process::file_for_output()?, process::file_for_output()?);
    // It notes there what it is about.
    let notes = process::file_for_output()?;
    let mut command = std::process::Command::new(environment::program()?);
    command.arg("plugin").args(arguments).env("RUST_BACKTRACE", "0");
    command.stdin(notes.try_clone()?).stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let mut child = command.spawn().context("cannot start a process to load the library in")?;
    // Every member of every set may print the same, such as where it panics.
    let mut shown = BTreeSet::new();
    let mut show = || {
        // Without it, and the rules that it names, the answer stands.
        let text = process::text(&errors).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let place = |line: &str| line.find(" panicked at ").unwrap_or(0);
        whole.filter(|line| shown.insert(line[place(line)..].to_owned())).for_each(print_to_stderr);
        // So its limit is one for all that it does.
        Ok(0)
    };
    let limit = limit.unwrap_or(Duration::MAX);
    let Some(status) = process::wait_while_active(&mut child, &Activity::new(limit), &mut show)? else {
        show()?;
        return Ok(Err(format!("did not end within {}", span(limit))));
    };
    let (text, notes) = (process::text(&output)?, process::text(&notes)?);
    let ended = || {
        let code = status.code().unwrap_or_default();
        let how = status.signal().map_or(format!("exit code {code}"), |signal| format!("signal {signal}"));
        let note = notes.split_once('\0').map_or_else(String::new, |(note, _)| format!(" {note}"));
        format!("ended the process with {how}{note}")
    };
    Ok(process::answer_in(&text).ok_or_else(ended))
}
