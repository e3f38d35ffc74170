//! EXAMPLES, ENVIRONMENT and FILES of the manual pages.

use clap_mangen::roff::{bold, roman, Roff};

/// The text of a page beyond the options of its command.
struct Sections {
    /// The page, such as `scr-index`.
    page: &'static str,
    /// Commands, and what they do.
    examples: &'static [(&'static str, &'static str)],
    /// Files that the command reads or writes.
    files: &'static [&'static str],
}

/// Variables that matter to every command.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("SCR_PREFIX", "The prefix directory, where no option names one. Without it: the current folder."),
    ("SCR_CONF_FILE", "The user's configuration file. Without it: .scrconf in the prefix directory."),
    ("SCR_PLUGIN_PATH", "Folders with plugins, separated by colons, which are searched first."),
    ("SCR_JOB_ID", "The id of the allocation. Without it: what the resource manager says."),
];

/// Files that matter to every command.
const FILES: &[(&str, &str)] = &[
    (".scrconf", "The user's settings, in the prefix directory. See scr.conf(5)."),
    ("etc/scr.conf", "The settings of the site, in the installation. See scr.conf(5)."),
    (INDEX, "The datasets of the prefix directory, and which of them is current."),
    (FLUSH, "Where the datasets of the allocation are: in cache, in the prefix directory, or on the way."),
    (HALT, "The conditions on which the job halts."),
    (NODES, "The last run: its nodes, ranks and allocation."),
    (EVENTS, "The events and transfers of jobs. What was logged before is in .scr/events.1."),
    (LOG, "The same as C SCR logs it, with SCR_LOG_ENABLE=1."),
    (CACHE, "The cache and control folder of an allocation on a node."),
    (MANAGERS, "How to ask resource managers, in the installation."),
    (LAUNCHERS, "How to call launchers, in the installation."),
    (PLUGINS, "The manifests of plugins, in the installation."),
    (MACHINES, "Descriptions of machines, in the installation."),
];

const INDEX: &str = ".scr/index.scr";
const FLUSH: &str = ".scr/flush.scr";
const HALT: &str = ".scr/halt.scr";
const NODES: &str = ".scr/nodes.scr";
const EVENTS: &str = ".scr/events";
const LOG: &str = ".scr/log";
const CACHE: &str = "<base>/<user>/scr.<allocation>";
const MANAGERS: &str = "etc/scr/resource-managers/*.toml";
const LAUNCHERS: &str = "etc/scr/launchers/*.toml";
const MACHINES: &str = "share/scr/machines/*.toml";
const PLUGINS: &str = "etc/scr/plugins.d/*.toml";

const SECTIONS: &[Sections] = &[
    Sections {
        page: "scr",
        examples: &[
            (
                "scr run srun -n 64 ./app",
                "Runs a job, and restarts it within the allocation when a node fails.",
            ),
            ("scr index", "Lists the checkpoints in the prefix directory."),
        ],
        files: &[INDEX, FLUSH, HALT],
    },
    Sections {
        page: "scr-agent",
        examples: &[
            ("scr agent --status", "Says whether an agent runs on this node, and what it still has to copy."),
            ("scr agent --drain", "Copies what is left, and returns when nothing is."),
        ],
        files: &[CACHE],
    },
    Sections {
        page: "scr-clean",
        examples: &[
            ("scr clean", "In an epilog, as the user of the job: removes the folders of this allocation."),
            ("scr clean --dead --dry-run", "Says which folders of dead allocations would be removed."),
        ],
        files: &[CACHE, INDEX],
    },
    Sections {
        page: "scr-doctor",
        examples: &[("scr doctor", "Checks this installation and, within an allocation, every node.")],
        files: &[CACHE, MANAGERS, PLUGINS],
    },
    Sections {
        page: "scr-poststage",
        examples: &[("scr poststage --prefix /p/run", "Finishes flushes whose data has arrived.")],
        files: &[FLUSH, INDEX],
    },
    Sections {
        page: "scr-config",
        examples: &[
            ("scr config --set", "Shows what somebody has set, and where."),
            ("scr config --explain SCR_FLUSH", "Explains a parameter."),
            ("scr config --check my.conf", "Says what is wrong with a file, line by line."),
        ],
        files: &[],
    },
    Sections {
        page: "scr-log",
        examples: &[
            (
                "scr log --event FLUSH_FAIL --since '2 days ago'",
                "Lists the flushes that failed in the last two days.",
            ),
            ("scr log --dataset ckpt.10 --json", "Prints all that was logged of a dataset, for programs."),
        ],
        files: &[EVENTS, LOG],
    },
    Sections {
        page: "scr-log-init-db",
        examples: &[("scr log init-db", "Creates the tables, as an administrator of the database.")],
        files: &[],
    },
    Sections {
        page: "scr-log-event",
        examples: &[
            ("scr log-event --type NODE_FAIL --note 'n7: fan'", "Logs that a node has failed."),
            (
                "scr log-event -T MAINTENANCE -S '2 hours ago' -L 1h30m",
                "Logs what began before and how long it took.",
            ),
        ],
        files: &[EVENTS, LOG],
    },
    Sections {
        page: "scr-log-transfer",
        examples: &[(
            "scr log-transfer -T ARCHIVE -X /p/run -Y /archive/run -D 7 -B 4096 -F 2 -L 12.5",
            "Logs that a script has copied dataset 7.",
        )],
        files: &[EVENTS, LOG],
    },
    Sections {
        page: "scr-ckpt-interval",
        examples: &[
            ("scr ckpt-interval", "Prints how many seconds to compute between two checkpoints, and why."),
            ("scr ckpt-interval --percent", "Prints a value for SCR_CHECKPOINT_OVERHEAD."),
            ("scr ckpt-interval --stats --prefix /p/run", "Shows what the log says of costs and failures."),
        ],
        files: &[EVENTS, LOG],
    },
    Sections {
        page: "scr-report",
        examples: &[
            ("scr report", "Says what the jobs of the prefix directory have cost."),
            ("scr report --html costs.html /p/run", "Writes a page with pictures that needs no network."),
            ("scr report --brief --job 5132 /p/run", "Prints a few lines of a job, for an epilog."),
        ],
        files: &[EVENTS, LOG],
    },
    Sections {
        page: "scr-plugin-list",
        examples: &[
            ("scr plugin list", "Lists the plugins that a job can name."),
            ("scr plugin list --kind scheme --path ./mine", "Lists schemes, first those of a folder."),
        ],
        files: &[PLUGINS],
    },
    Sections {
        page: "scr-plugin-info",
        examples: &[("scr plugin info XOR", "Shows a plugin with its options.")],
        files: &[PLUGINS],
    },
    Sections {
        page: "scr-plugin-check",
        examples: &[("scr plugin check ./mirror.toml", "Checks a manifest and its library as a job would.")],
        files: &[PLUGINS],
    },
    Sections {
        page: "scr-plugin-conformance",
        examples: &[(
            "scr plugin conformance ./mirror.toml --timeout 1min",
            "Loses what the plugin promises to survive, and compares every byte.",
        )],
        files: &[PLUGINS],
    },
    Sections {
        page: "scr-plugin-new",
        examples: &[(
            "scr plugin new scheme my-mirror",
            "Writes the folder scr-my-mirror with a scheme that works.",
        )],
        files: &[],
    },
    Sections {
        page: "scr-plugin",
        examples: &[("scr plugin list", "Lists the plugins that a job can name.")],
        files: &[PLUGINS],
    },
    Sections {
        page: "scr-copy",
        examples: &[("scr copy --id 7 --prefix /p/run", "Saves what this node has of dataset 7.")],
        files: &[CACHE, INDEX],
    },
    Sections {
        page: "scr-flush-file",
        examples: &[
            ("scr flush-file --latest", "Prints the id of the newest checkpoint."),
            ("scr flush-file --needflush 7", "Answers by its exit code whether dataset 7 has to be copied."),
        ],
        files: &[FLUSH],
    },
    Sections {
        page: "scr-halt",
        examples: &[
            ("scr halt --checkpoints 1 /p/run", "Halts the job after its next checkpoint."),
            ("scr halt --after 2h", "Halts the job after its first checkpoint in two hours or later."),
            (
                "scr halt --before '8:30am tomorrow' --seconds 10min",
                "Halts the job ten minutes before a time.",
            ),
            ("scr halt --remove", "Lets the job run on."),
        ],
        files: &[HALT],
    },
    Sections {
        page: "scr-halt-cntl",
        examples: &[
            (
                "scr halt-cntl --file .scr/halt.scr --checkpoints 1",
                "Halts the job after its next checkpoint.",
            ),
            ("scr halt-cntl -f .scr/halt.scr -x c", "Removes that condition."),
        ],
        files: &[HALT],
    },
    Sections {
        page: "scr-index",
        examples: &[
            ("scr index", "Lists the datasets."),
            ("scr index --current ckpt.10", "Makes the next job restart from ckpt.10."),
            ("scr index --delete ckpt.10", "Deletes a dataset with its files."),
            ("scr index --build 7", "Makes a scavenged dataset complete, and lists it."),
            (
                "scr index --import step.7 --ranks 8 rank_%d",
                "Makes a checkpoint of files that another program wrote.",
            ),
        ],
        files: &[INDEX],
    },
    Sections {
        page: "scr-plan",
        examples: &[
            (
                "scr plan atlas",
                "Says how to write checkpoints on Atlas, one of the machines that come with scr.",
            ),
            (
                "scr plan my.toml --simulate --html plan.html",
                "Writes a page on a machine of your own, and simulates it.",
            ),
            (
                "scr plan --model levels.toml --interval 600 --counts 10,1 --json",
                "Prints the efficiency of one plan by the published model.",
            ),
        ],
        files: &[MACHINES],
    },
    Sections {
        page: "scr-scrub",
        examples: &[
            ("scr scrub", "Compares everything that is recorded in cache and in the prefix directory."),
            ("scr scrub --prefix /p/run --dataset ckpt.10", "Compares one dataset."),
        ],
        files: &[INDEX, CACHE],
    },
    Sections {
        page: "scr-run",
        examples: &[
            ("scr run srun -n 64 ./app", "Starts the job, and restarts it as SCR_RUNS allows."),
            ("scr run --hostfile hosts mpirun -n 64 ./app", "The same on the nodes of a file."),
        ],
        files: &[HALT, NODES, MANAGERS, LAUNCHERS],
    },
    Sections {
        page: "scr-status",
        examples: &[
            ("scr status /p/run", "Says what is protected, and what a failure would cost now."),
            ("scr status --watch 10 /p/run", "Says it every ten seconds, until no job runs."),
            ("scr status --offline --json", "Asks no node, and prints JSON."),
        ],
        files: &[FLUSH, INDEX, HALT, NODES, LOG],
    },
    Sections {
        page: "scr-prerun",
        examples: &[("scr prerun --prefix /p/run", "Prepares a prefix directory.")],
        files: &[HALT],
    },
    Sections {
        page: "scr-postrun",
        examples: &[("scr postrun --prefix /p/run", "Saves what a job has left in the caches of its nodes.")],
        files: &[FLUSH, INDEX, CACHE],
    },
    Sections {
        page: "scr-env",
        examples: &[("scr env --nodes", "Prints the nodes of the allocation.")],
        files: &[NODES, MANAGERS],
    },
    Sections {
        page: "scr-list-down-nodes",
        examples: &[("scr list-down-nodes --reason", "Says of each node why it must not be used.")],
        files: &[MANAGERS],
    },
    Sections {
        page: "scr-retries-halt",
        examples: &[("scr retries-halt", "Answers by its exit code whether the job is to halt.")],
        files: &[HALT],
    },
    Sections {
        page: "scr-glob-hosts",
        examples: &[("scr glob-hosts --expand 'n[1-4]'", "Prints four nodes, a line each.")],
        files: &[],
    },
    Sections {
        page: "scr-print",
        examples: &[("scr print .scr/index.scr", "Prints the index as text.")],
        files: &[INDEX, FLUSH, HALT, NODES],
    },
    Sections {
        page: "scr-crc32",
        examples: &[("scr crc32 ckpt.10/rank_0", "Prints the CRC32 of a file, in hexadecimal.")],
        files: &[],
    },
    Sections {
        page: "scr-nodes-file",
        examples: &[("scr nodes-file --dir /p/run", "Prints how many nodes the last run had.")],
        files: &[NODES],
    },
    Sections {
        page: "scr-list-dir",
        examples: &[("scr list-dir cache --jobid 77", "Prints the cache directories of allocation 77.")],
        files: &[CACHE],
    },
    Sections {
        page: "scr-should-exit",
        examples: &[(
            "scr should-exit --prefix /p/run",
            "Answers by its exit code whether the job must stop.",
        )],
        files: &[HALT, NODES],
    },
    Sections {
        page: "scr-kill-jobstep",
        examples: &[("scr kill-jobstep --jobStepId 77.3", "Ends step 3 of job 77 under Slurm.")],
        files: &[],
    },
    Sections {
        page: "scr-inspect",
        examples: &[
            ("scr inspect", "Says which datasets in the caches of all nodes can be rebuilt."),
            ("scr inspect --down n7", "The same, if node n7 is lost."),
        ],
        files: &[CACHE],
    },
    Sections {
        page: "scr-check-node",
        examples: &[("scr check-node", "Answers by its exit code whether this node is fit for a job.")],
        files: &[CACHE],
    },
];

/// The sections of a page.
pub(super) fn of(page: &str) -> Roff {
    let mut roff = Roff::new();
    let Some(sections) = SECTIONS.iter().find(|sections| sections.page == page) else { return roff };
    roff.control("SH", ["EXAMPLES"]);
    for (command, text) in sections.examples {
        roff.control("TP", []).text([bold(*command)]).text([roman(*text)]);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, text) in ENVIRONMENT {
        roff.control("TP", []).text([bold(*name)]).text([roman(*text)]);
    }
    roff.text([roman("Every parameter in scr.conf(5) can be set as a variable.")]);
    roff.control("SH", ["FILES"]);
    let of_all = [".scrconf", "etc/scr.conf"];
    for (name, text) in
        FILES.iter().filter(|(name, _)| of_all.contains(name) || sections.files.contains(name))
    {
        roff.control("TP", []).text([bold(*name)]).text([roman(*text)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        for (command, _) in SECTIONS.iter().flat_map(|sections| sections.examples) {
            let words = shlex::split(command).unwrap();
            assert!(crate::cli::is_understood(&words), "{command}");
        }
    }
}
