//! Classic names: what C SCR calls its commands. `scr_index --list` is `scr index --list`, and a link is all that a name needs.
//!
//! Under a classic name, what a script reads is what C SCR 3.1 prints, and an error ends with 1. Under our own names it is the same,
//! but where people are served better otherwise: such a command asks [`is_meant`].

use crate::cli;
use crate::prelude::*;

/// Whether this process was started under a classic name.
pub(crate) fn is_meant() -> bool {
    std::env::args_os().next().is_some_and(|program| meaning(Path::new(&program)).is_some())
}

/// The meanings of classic names that are not those of our subcommand of this name.
const MEANINGS: &[(&str, &[&str])] = &[
    ("kvtree_print", &["print", "--mode=tree"]),
    ("scr_hostlist", &["glob-hosts"]),
    ("scr_nodelist", &["env", "--nodes"]),
    ("scr_rebuild_partner", &["index", "--build"]),
    ("scr_rebuild_rs", &["index", "--build"]),
    ("scr_rebuild_xor", &["index", "--build"]),
    ("scr_test_runtime", &["doctor"]),
];

/// What ends with 1 after a wrong command line: C SCR's compiled commands. Its Python ones end with 2, as ours do.
const COMPILED: &[&str] = &[
    "kvtree_print",
    "scr_copy",
    "scr_crc32",
    "scr_flush_file",
    "scr_halt_cntl",
    "scr_index",
    "scr_log_event",
    "scr_log_transfer",
    "scr_nodes_file",
    "scr_print",
    "scr_rebuild_partner",
    "scr_rebuild_rs",
    "scr_rebuild_xor",
];

/// The exit code after a wrong command line.
pub(crate) fn wrong_line_code() -> i32 {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    match program.file_name().and_then(OsStr::to_str) {
        // It would be the answer that the job goes on.
        Some("scr_retries_halt") => 0,
        Some(name) if COMPILED.contains(&name) => 1,
        _ => 2,
    }
}

/// The programs that `scr_srun` and the like start jobs with.
const LAUNCHERS: &[&str] = &["aprun", "flux", "jsrun", "lrun", "mpiexec", "mpirun", "srun"];

/// The arguments with the words put in that a classic name stands for.
pub(crate) fn expand(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    if let Some(mut words) = arguments.first().and_then(|program| meaning(Path::new(program))) {
        // All words after a launcher are the launcher's; but the help of a classic name is ours.
        if matches!(&arguments[1..], [only] if only == "--help" || only == "-h" || only == "--version") {
            words.truncate(2);
        }
        // Usage lines are made from the name of the program: `scr_index index` would be no command at all.
        arguments.splice(..1, words.into_iter().map(OsString::from));
    }
    arguments
}

/// The command line that a classic name begins.
pub(crate) fn meaning(program: &Path) -> Option<Vec<String>> {
    let name = program.file_name()?.to_str()?;
    let ours = name.strip_prefix("scr_").unwrap_or_default().replace('_', "-");
    let words = match MEANINGS.iter().find(|(classic, _)| *classic == name) {
        Some((_, words)) => words.to_vec(),
        None if LAUNCHERS.contains(&&*ours) => vec!["run", &ours],
        None => vec![cli::command().find_subcommand(&ours).map(|_| &*ours)?],
    };
    Some(["scr"].into_iter().chain(words).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(arguments: &[&str]) -> Vec<OsString> {
        expand(arguments.iter().map(OsString::from))
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
