//! The values that completions offer beyond options: parameters, plugins, datasets, events and prefix directories, and all of it
//! under the classic names too. The scripts ask the hidden command `scr complete`.

use crate::log::names;
use crate::prelude::*;
use scr_config::param::TABLE;

/// The request of a shell.
#[derive(Args)]
pub(crate) struct CompleteArgs {
    /// The kind of values
    #[arg(value_enum)]
    kind: Kind,
    /// The prefix directory
    #[arg(long)]
    prefix: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Parameters
    Parameters,
    /// Plugins
    Plugins,
    /// Datasets in the index
    Datasets,
    /// Events and transfers
    Events,
}

/// Prints the values, a line each. Unknown ones are not offered.
pub(crate) fn run(args: &CompleteArgs) -> Result<Answer> {
    let mut env = environment::env()?;
    let values: Vec<String> = match args.kind {
        Kind::Parameters => TABLE.iter().map(|info| info.name.to_owned()).collect(),
        Kind::Events => names().into_iter().map(str::to_owned).collect(),
        Kind::Plugins => {
            let host = environment::plugin_host(&env);
            host.discover().found.iter().map(|found| found.manifest.name.clone()).collect()
        }
        Kind::Datasets => {
            let prefix = environment::prefix(&mut env, args.prefix.as_deref()).ok();
            let index = prefix.and_then(|prefix| LedgerDir::new(&*env.files, &prefix).index().ok());
            let entries = index.map(|index| index.entries()).unwrap_or_default();
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
        }
    };
    // A name may hold anything: what would break a line or move the cursor is not offered.
    print_lines(values.iter().filter(|value| !value.chars().any(char::is_control)))
}

/// The text after the script of bash, for these classic names. Names of datasets come from whoever may write to the prefix
/// directory. So bash must not expand them, as `compgen -W` would, and they are quoted for the command line.
pub(super) fn bash(classic: &[(String, String)]) -> String {
    let mut text = format!("\n{}", include_str!("completions.bash"));
    for (name, subcommand) in classic {
        let function = format!("_{name}");
        text += &format!(
            "{function}() {{ _scr_classic {subcommand}; }}\ncomplete -F {function} -o bashdefault -o default {name}\n"
        );
    }
    text
}

/// The text after the script of fish.
pub(super) fn fish(classic: &[(String, String)]) -> String {
    let wraps =
        classic.iter().map(|(name, subcommand)| format!("complete -c {name} -w 'scr {subcommand}'\n"));
    std::iter::once(include_str!("completions.fish").to_owned()).chain(wraps).collect()
}

/// The script of zsh, which also serves the classic names.
pub(super) fn zsh(script: &str, classic: &[(String, String)]) -> String {
    let names: String = classic.iter().map(|(name, _)| format!(" {name}")).collect();
    let case = |(name, subcommand): &(String, String)| {
        format!("    {name}) words=(scr {subcommand} \"${{words[@]:1}}\"); (( CURRENT++ )) ;;\n")
    };
    let cases: String = classic.iter().map(case).collect();
    let head = format!("#compdef scr{names}\n");
    let classic = format!("\n_scr_classic() {{\n  case $service in\n{cases}  esac\n}}\n_scr_classic\n");
    let script = script.replacen("#compdef scr\n", &head, 1);
    match script.split_once("\nautoload -U is-at-least\n") {
        Some((before, after)) => format!("{before}\nautoload -U is-at-least\n{classic}{after}"),
        None => script,
    }
}
