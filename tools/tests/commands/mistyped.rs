//! The answers to mistyped commands, and how wide that and all other output for people is.

use crate::answer::{code, err, out};
use crate::installation::Installation;
use scr_base::fs::RealFiles;
use scr_prefix::{DatasetDescriptor, Index, Prefix};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::io::{Read, Write};
use std::process::Output;

fn run(scr: &Installation, words: &str) -> Output {
    scr.in_prefix(&words.split_whitespace().collect::<Vec<_>>()).output().expect("the command starts")
}

/// Each with exit code 2 and, in its first line on standard error, these words.
#[test]
fn a_mistyped_command_says_what_is_possible() {
    let scr = Installation::with_system_file("");
    for (words, expected) in [
        ("halt --seconds -5", "'-5' for '--seconds <SECONDS>': not a number of seconds such as 3600, or a length of time such as 1h30m"),
        ("halt --checkpoints x", "'x' for '--checkpoints <N>': this is not a whole number"),
        ("log --last -1", "'-1' for '--last <N>': the least is 0"),
        ("copy --id 1 --threads 1025", "'1025' for '--threads <N>': the most is 1024"),
        ("copy --id 99999999999999999999999", "the number is too large"),
        ("index list", "`list' belongs to no option; did you mean `--list'?"),
        ("index . --prefix .", "`.' belongs to no option; give the prefix directory once"),
        ("index file", "`file' belongs to no option; only --import takes files"),
        ("index --name foo", "unexpected argument '--name'"),
        ("halt --list -5", "unexpected argument '-5'"),
        ("copy --latest", "knows of no checkpoint of this allocation"),
    ] {
        let output = run(&scr, words);
        let said = err(&output);
        assert!(code(&output) == 2 && said.contains(expected), "{words}: {said}");
        assert!(!said.contains("tip:"), "{words}: {said}");
    }
    assert!(err(&run(&scr, "copy")).contains("<--id <ID>|--latest>"));
}

#[test]
fn an_unknown_name_is_answered_with_those_that_exist() {
    let scr = Installation::with_system_file("");
    let said = err(&run(&scr, "plugin info XXX"));
    assert!(said.contains("there is no plugin named XXX; there are AGENT, BBAPI, "), "{said}");
    let said = err(&run(&scr, "plugin info XXX --kind scheme"));
    assert!(
        said.contains("no scheme plugin named XXX; there are PARTNER, RS, SINGLE, XOR; searched"),
        "{said}"
    );
    let said = err(&run(&scr, "log --event FLUSH"));
    assert!(
        said.contains(
            "there are FLUSH_START, FLUSH_SUCCESS, FLUSH_FAIL, FLUSH_WAIT, FLUSH_SYNC, FLUSH_ASYNC"
        ),
        "{said}"
    );
    let said = err(&run(&scr, "log --event NOTHING"));
    assert!(said.contains("; there are START, ") && said.contains(", NODE_FAIL, "), "{said}");
}

/// Only settings, commands and events were answered so.
#[test]
fn a_mistyped_dataset_job_or_user_is_answered_with_the_one_that_is_meant() {
    let scr = Installation::with_system_file("");
    let dataset =
        DatasetDescriptor { id: 1, name: b"step.10".to_vec(), checkpoint: true, ..Default::default() };
    let prefix = Prefix::new(scr.path("prefix"));
    Index::update(&RealFiles, &prefix, |index| index.record(&dataset, true)).unwrap();
    let entry = "2026-11-21T02:28:24.000001Z: host=a, jobid=defjobid, event=START, procs=8, nodes=4, user=\"annabel\", dset=1, name=\"step.10\"\n";
    scr.write("prefix/.scr/events", entry);
    for (words, expected) in [
        ("index --drop stpe.10", "has no dataset named `stpe.10'; did you mean `step.10'?"),
        ("index --current step.1", "did you mean `step.10'?"),
        ("index --delete steP.10", "did you mean `step.10'?"),
        ("index --delete other", "has no dataset named `other'; `scr index` lists what there is"),
        ("log --dataset stpe.10", "no entry is of the dataset `stpe.10'; did you mean `step.10'?"),
        ("log --job defjobdi", "no entry is of the job `defjobdi'; did you mean `defjobid'?"),
        ("report --job defjobdi", "no job is in the logs; did you mean `defjobid'?"),
        ("report --user anabel", "no job is in the logs; did you mean `annabel'?"),
        ("config --explain SCR_CASHE_SIZE", "did you mean SCR_CACHE_SIZE?"),
        (
            "config --explain SCR_CASHE",
            "there is no parameter SCR_CASHE; did you mean one of SCR_CACHE_BASE, SCR_CACHE_",
        ),
        ("config --explain SCR_NONSENSE", "there is no parameter SCR_NONSENSE [SCR-112]\n"),
    ] {
        let output = run(&scr, words);
        assert!(code(&output) == 1 && err(&output).contains(expected), "{words}: {}", err(&output));
    }
}

/// Some took it as a word, some as `--prefix', and `scr log DIR' was an unknown subcommand.
#[test]
fn the_prefix_directory_is_given_in_the_same_places_everywhere() {
    let scr = Installation::with_system_file("");
    scr.write("other/.scr/here", "");
    for command in [
        "status --offline",
        "report",
        "log",
        "index",
        "inspect",
        "prerun",
        "postrun",
        "poststage",
        "flush-file",
        "ckpt-interval",
        "copy --latest",
        "scrub",
        "halt --list",
    ] {
        let words = |place: &str| format!("{command} {place}");
        let said = |place: &str| {
            let output = run(&scr, &words(place));
            (code(&output), out(&output), err(&output))
        };
        let [word, option] = ["../other", "--prefix ../other"].map(said);
        assert_eq!(word, option, "{command}");
        assert_ne!(said(&format!("no-{}", command.replace(" --", "-"))).2, word.2, "{command}: {word:?}");
        if !["report", "scrub"].contains(&command) {
            assert_eq!(said("../other --prefix ../other").0, 2, "{command}");
        }
    }
}

#[test]
fn a_question_is_answered_in_words_too() {
    let scr = Installation::with_system_file("");
    let said = err(&run(&scr, "flush-file --needflush 5"));
    assert!(said.contains("lists no dataset"), "{said}");
    let control = scr.path("control");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&control).unwrap();
    let control = control.display();
    let stopped = run(&scr, &format!("agent --stop --control {control}"));
    assert_eq!((code(&stopped), out(&stopped)), (1, format!("scr agent: no agent runs for {control}\n")));
    let drained = out(&run(&scr, &format!("agent --drain --control {control}")));
    assert_eq!(drained, format!("scr agent: nothing is left to copy for {control}, and no agent runs\n"));
}

/// A script wants each row on one line; somebody who reads help in a pager does not.
#[test]
fn tables_for_a_pipe_have_a_line_for_each_row_and_help_has_80_columns() {
    let scr = Installation::with_system_file("");
    let output = |words: &str, columns: Option<&str>| {
        let mut command = scr.in_prefix(&words.split_whitespace().collect::<Vec<_>>());
        command.env_remove("COLUMNS").envs(columns.map(|columns| ("COLUMNS", columns)));
        out(&command.output().expect("the command starts"))
    };
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let help = output("--help", None);
    let listed = help.lines().take_while(|line| *line != "Options:");
    let commands: Vec<_> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"halt") && commands.contains(&"check-node"), "{commands:?}");
    for command in commands.iter().chain(&["plugin list", "plugin check", "plugin new", "plugin conformance"])
    {
        let help = output(&format!("{command} --help"), None);
        assert!(longest(&help) <= 80, "{help}");
    }
    for command in ["plugin list", "plugin info AGENT", "plugin info BBAPI"] {
        let text = output(command, Some("80"));
        // A path cannot be cut.
        let wide: Vec<_> =
            text.lines().filter(|line| line.chars().count() > 80 && !line.contains('/')).collect();
        assert!(wide.is_empty() && !text.is_empty(), "{wide:#?}");
    }
    assert_eq!(output("plugin list", Some("1000")), output("plugin list", None));
    assert!(longest(&output("plugin list", None)) > 80);
}

/// A pipe that does not block, as other programs leave it, is full before its reader comes.
#[test]
fn what_a_command_prints_waits_for_the_reader_of_a_full_pipe() {
    let scr = Installation::with_system_file("");
    for words in ["config", "--help"] {
        let whole = out(&run(&scr, words));
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).expect("it is ours");
        while (&writer).write(&[b'.'; 4096]).is_ok() {}
        let mut command = scr.in_prefix(&[words]).stdout(writer).spawn().expect("the command starts");
        let stat = format!("/proc/{}/stat", command.id());
        // It waits, or has given up.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") R ")) {
            std::thread::yield_now();
        }
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert!(command.wait().expect("it is a child").success());
        assert_eq!(text.trim_start_matches('.'), whole, "{words}");
    }
}

/// A node that was named twice got a file of hosts that launchers read in different ways, and any MPI was tried with the
/// launcher of another one.
#[test]
fn run_on_nodes_refuses_what_cannot_be_meant() {
    let scr = Installation::with_system_file("");
    let launcher = scr.write("stand-ins/mpiexec", "#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n");
    std::fs::set_permissions(&launcher, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/run-on-nodes");
    let run = |words: &str| {
        let mut command = std::process::Command::new(&script);
        command.args(words.split_whitespace()).current_dir(scr.path(""));
        command.env("PATH", format!("{}:/usr/bin:/bin", scr.path("stand-ins").display()));
        command.output().expect("the script starts")
    };
    for (words, expected) in [
        ("--nodes n --hosts n0:1,n1:1,n0:1 true", "--hosts names n0 twice"),
        ("--nodes n --hosts ../x:1 true", "--hosts takes NAME:RANKS,... such as n0:2,n1:2 and is `../x:1'"),
        ("--nodes=n --hosts=n0:1 --mpi=foo true", "belongs to Open MPI: write --mpi openmpi"),
    ] {
        let output = run(words);
        assert!(code(&output) == 2 && err(&output).contains(expected), "{words}: {}", err(&output));
    }
    let help = out(&run("--help"));
    assert!(!help.is_empty() && help.lines().all(|line| line.len() <= 80), "{help}");
}

/// Open MPI puts its own folder first in `PATH` on other nodes, where a system's python3 would hide that of the user.
#[test]
fn run_on_nodes_starts_the_program_that_the_shell_would_start() {
    let scr = Installation::with_system_file("");
    let programs =
        [("mpiexec", "#!/bin/sh\necho \"$@\"\n"), ("python3", "#!/bin/sh\n"), ("mine", "#!/bin/sh\n")];
    for (name, script) in programs {
        let path = scr.write(format!("stand-ins/{name}"), script);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/run-on-nodes");
    for (program, expected) in [
        ("python3", scr.path("stand-ins/python3").display().to_string()),
        ("stand-ins/mine", "stand-ins/mine".to_owned()),
        ("nosuch", "nosuch".to_owned()),
    ] {
        let mut command = std::process::Command::new(&script);
        command.args(["--nodes", "n", "--hosts", "n0:1", "--mpi", "foo", program, "arg"]);
        command.current_dir(scr.path("")).env("PRETEND_MODE", "names");
        command.env("PATH", format!("{}:/usr/bin:/bin", scr.path("stand-ins").display()));
        let output = command.output().expect("the script starts");
        assert!(out(&output).trim_end().ends_with(&format!(" {expected} arg")), "{}", out(&output));
    }
}

/// The message of its end went to a closed pipe, and the end did not come.
#[test]
fn run_on_nodes_ends_a_job_at_its_limit_although_nobody_reads_its_output() {
    let scr = Installation::with_system_file("");
    // It leaves a file where it is told to end, and goes in the end if nobody tells it.
    let launcher = "#!/bin/sh\nexec 2>/dev/null\ntrap 'echo >ended; exit' TERM\n[ \"$1\" = --version ] || for i in 1 2 3 4 5 6 7 8 9; do sleep 1; done\n";
    let path = scr.write("stand-ins/mpiexec", launcher);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/run-on-nodes");
    let mut command = std::process::Command::new(&script);
    command.args(["--nodes", "n", "--hosts", "n0:1", "--mpi", "foo", "--limit", "1", "true"]);
    command.current_dir(scr.path("")).env("PRETEND_MODE", "names");
    command.env("PATH", format!("{}:/usr/bin:/bin", scr.path("stand-ins").display()));
    let read = command.output().expect("the script starts");
    assert!(code(&read) == 124 && err(&read).contains("--limit 1"), "{read:?}");
    std::fs::remove_file(scr.path("ended")).expect("it was told to end");
    let piped = std::process::Stdio::piped;
    let mut unread = command.stdout(piped()).stderr(piped()).spawn().expect("the script starts");
    drop((unread.stdout.take(), unread.stderr.take()));
    unread.wait().unwrap();
    assert!(scr.path("ended").exists(), "the job is left behind");
}

/// It said that no flush was under way, with exit code 0, and the script of the batch system removed the cache.
#[test]
fn poststage_refuses_a_prefix_directory_that_is_not_there() {
    let scr = Installation::with_system_file("");
    let output = run(&scr, "poststage --prefix no/such");
    assert!(code(&output) == 2 && err(&output).contains("there is no prefix directory"), "{}", err(&output));
    assert_eq!(code(&run(&scr, "poststage")), 0);
}
