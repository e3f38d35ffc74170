//! scr.conf(5): files with settings, and every parameter of the table.

use super::{see_also, today, SOURCE};
use clap_mangen::roff::{bold, line_break, roman, Roff};
use scr_config::param::{Info, TABLE};

/// The page.
pub(super) fn page() -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["scr.conf", "5", &today(), SOURCE, "scr"]);
    for (heading, paragraphs) in SECTIONS {
        roff.control("SH", [*heading]);
        for (position, paragraph) in paragraphs.iter().enumerate() {
            if position > 0 {
                roff.control("PP", []);
            }
            roff.text([roman(*paragraph)]);
        }
    }
    roff.control("SH", ["PARAMETERS"]);
    TABLE.iter().for_each(|info| parameter(&mut roff, info));
    roff.extend([see_also("scr(1), scr-config(1), scr-run(1)")]);
    roff.render()
}

fn parameter(roff: &mut Roff, info: &Info) {
    let (value, default, set) = (info.kind.expected(), info.default.in_words(""), info.scope.label());
    let facts = format!("Value: {value}. Default: {default}. Set: {set}.");
    roff.control("TP", []).text([bold(info.name)]).text([roman(info.help), line_break(), roman(facts)]);
}

/// The text before the parameters. The user documents have it in full.
const SECTIONS: &[(&str, &[&str])] = &[
    ("NAME", &["scr.conf - settings of the scr runtime"]),
    (
        "DESCRIPTION",
        &[
            "For each parameter, the first of these sources that sets a valid value wins: \
             the environment; a file of the user's, which is the one that SCR_CONF_FILE names, or else .scrconf in the \
             prefix directory; the application, through SCR_Config; the system file, etc/scr.conf of the installation \
             unless the build sets another path; and the default.",
            "Rank 0 reads all of them for all ranks. `scr config` shows what counts and where it comes from, and \
             `scr config --check FILE` says what is wrong with a file.",
        ],
    ),
    (
        "FORMAT",
        &[
            "One setting on a line, NAME=value. A # begins a comment. A value with blanks stands in double quotes. \
             $NAME and ${NAME} are replaced by environment variables, on each rank by its own; \\$ is a plain $.",
            "Numbers of bytes may have a unit such as 128KB or 1GiB, in steps of 1024. Lengths of time are seconds, \
             or have units: 1h30m, \"2 hours\".",
            "Lines that begin with GROUPS=, STORE= or CKPT= describe groups of nodes, places to keep datasets in, and the \
             protection of checkpoints. configuration.md of the documents lists their keys.",
            "A line that cannot be used is reported with its file and number when a job starts, and ignored; the rest of \
             the file counts.",
        ],
    ),
];
