//! The manual pages and completions of an installation.

use scr_base::fs::RealFiles;
use scr_config::param::TABLE;
use scr_prefix::{DatasetDescriptor, Index, Prefix};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::installation::Installation;

/// An installation with some classic names, and its pages.
fn with_pages() -> Installation {
    let scr = Installation::with_system_file("");
    for classic in ["scr_flush_file", "scr_index", "scr_srun"] {
        symlink("scr", scr.path("bin").join(classic)).expect("a link");
    }
    scr.write("include/scr.h", include_str!("../../../ffi/include/scr.h"));
    let written = scr.in_prefix(&["pages"]).arg(scr.path("")).output().expect("the command starts");
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    scr
}

fn text(scr: &Installation, page: &str) -> String {
    let path = scr.path("share").join(page);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_subcommand_has_a_page_and_a_completion_in_every_shell() {
    let scr = with_pages();
    let help = scr.in_prefix(&["--help"]).output().expect("the command starts");
    let help = String::from_utf8(help.stdout).expect("text");
    let (list, _) = help.split_once("\nOptions:\n").expect("options");
    // A line that continues is indented further.
    let lines = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("    "));
    let subcommands: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(subcommands.contains(&"index") && !subcommands.contains(&"pages"), "{subcommands:?}");
    assert!(list.contains("\nRun jobs:\n  run  ") && list.contains("\n\nFor scripts:\n  env  "), "{list}");
    let completions =
        ["bash-completion/completions/scr", "zsh/site-functions/_scr", "fish/vendor_completions.d/scr.fish"]
            .map(|script| text(&scr, script));
    for subcommand in subcommands.into_iter().filter(|&subcommand| subcommand != "help") {
        let page = text(&scr, &format!("man/man1/scr-{subcommand}.1"));
        assert!(page.contains(&format!(".TH scr-{subcommand} 1")), "{page}");
        assert!(completions.iter().all(|script| script.contains(subcommand)), "{subcommand}");
    }
    assert!(completions.iter().all(|script| !script.contains("pages")), "what is hidden is not offered");
    assert!(text(&scr, "man/man1/scr.1").contains(".TH scr 1"));
    assert!(
        text(&scr, "man/man1/scr-plugin-check.1").contains("SYNOPSIS"),
        "those below a subcommand as well"
    );
}

#[test]
fn a_classic_name_leads_to_the_page_of_its_subcommand() {
    let scr = with_pages();
    assert_eq!(text(&scr, "man/man1/scr_flush_file.1"), ".so man1/scr-flush-file.1\n");
    assert_eq!(text(&scr, "man/man1/scr_srun.1"), ".so man1/scr-run.1\n");
    assert!(!scr.path("share/man/man1/scr_halt.1").exists(), "no page for a name that is not installed");
}

#[test]
fn every_call_of_the_c_interface_has_a_page_with_what_the_header_says() {
    let scr = with_pages();
    let header = include_str!("../../../ffi/include/scr.h");
    let lines =
        header.lines().filter_map(|line| line.strip_suffix(';').filter(|line| !line.starts_with('#')));
    let calls: Vec<_> = lines.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next()).collect();
    assert!(calls.len() > 20 && calls.contains(&"SCR_Recover"), "{calls:?}");
    for call in calls {
        let page = text(&scr, &format!("man/man3/{call}.3"));
        let page =
            page.strip_prefix(".so ").map_or(page.clone(), |to| text(&scr, &format!("man/{}", to.trim())));
        assert!(page.contains(&format!("{call}(")), "{call}: {page}");
    }
    let page = text(&scr, "man/man3/SCR_Need_checkpoint.3");
    assert!(page.contains("Sets flag to 1 if it is time for a checkpoint, otherwise to 0."), "{page}");
    assert!(page.contains("\\fBSCR_ERR_STATE (2)\\fR\nthe call is not legal now"), "{page}");
    assert!(page.contains(".SH NOTES\nCall SCR_Init or SCR_Init_comm after MPI_Init"), "{page}");
}

#[test]
fn the_page_of_the_settings_names_every_parameter() {
    let page = text(&with_pages(), "man/man5/scr.conf.5");
    for info in TABLE {
        assert!(page.contains(&format!(".TP\n\\fB{}\\fR\n", info.name)), "{}", info.name);
    }
}

#[test]
fn the_pages_are_well_formed() {
    let scr = with_pages();
    let folders = ["share/man/man1", "share/man/man3", "share/man/man5"].map(|folder| scr.path(folder));
    let pages = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("pages").flatten());
    let pages: Vec<_> = pages.map(|entry| entry.path()).collect();
    for page in pages.iter().map(|page| fs::read_to_string(page).expect("text")) {
        let is_whole =
            [".TH ", " \"scr 1.", ".SH NAME\n", ".SH \"SEE ALSO\"\n"].iter().all(|part| page.contains(part));
        let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap_or_default();
        assert!(
            title.is_empty() || title.split(' ').nth(3).is_some_and(|date| date.starts_with("20")),
            "{title}"
        );
        assert!(is_whole || page.starts_with(".so "), "{page}");
    }
    let mut groff = Command::new("groff");
    groff.args(["-man", "-ww", "-z", "-Kutf8"]).args(&pages).current_dir(scr.path("share/man"));
    match groff.output() {
        Ok(lint) => assert!(lint.status.success() && lint.stderr.is_empty(), "{lint:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
    }
}

#[test]
fn every_page_has_examples_of_its_own_environment_and_files() {
    let scr = with_pages();
    for entry in fs::read_dir(scr.path("share/man/man1")).expect("pages").flatten() {
        let page = fs::read_to_string(entry.path()).expect("text");
        let sections = [".SH EXAMPLES\n", ".SH ENVIRONMENT\n", ".SH FILES\n"];
        let is_whole = sections.iter().all(|section| page.matches(section).count() == 1);
        let name = entry.path().file_stem().expect("a name").to_string_lossy().replacen('-', " ", 1);
        let example = name.replace("plugin-", "plugin ").replace("log-init", "log init").replace('-', "\\-");
        let (_, examples) = page.split_once(".SH EXAMPLES\n").unwrap_or_default();
        let examples = examples.split(".SH ").next().unwrap_or_default();
        let has_own = examples.contains(&format!("\\fB{example}"));
        assert!(
            is_whole && has_own || page.starts_with(".so "),
            "{}: {example}: {examples}",
            entry.path().display()
        );
    }
}

/// The offers of bash for these words, the last of which is being typed.
fn offered(scr: &Installation, words: &[&str]) -> Vec<String> {
    let script = scr.path("share/bash-completion/completions/scr");
    let function = format!("$(complete -p {} | sed 's/.*-F \\([^ ]*\\).*/\\1/')", words[0]);
    let text = format!(
        "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; {function} {} '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
        words[0],
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &text]).current_dir(scr.path("prefix"));
    bash.env("PATH", format!("{}:/usr/bin:/bin", scr.path("bin").display()));
    let output = bash.output().expect("bash starts");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn completions_offer_parameters_plugins_and_datasets_also_under_classic_names() {
    let scr = with_pages();
    assert!(offered(&scr, &["scr", "con"]).contains(&"config".to_owned()));
    assert_eq!(offered(&scr, &["scr", "config", "--explain", "SCR_CACHE_BY"]), ["SCR_CACHE_BYPASS"]);
    assert_eq!(offered(&scr, &["scr", "log", "--event", "FLUSH_F"]), ["FLUSH_FAIL"]);
    let plugins = offered(&scr, &["scr", "plugin", "info", ""]);
    assert!(plugins.iter().any(|name| name.eq_ignore_ascii_case("xor")), "{plugins:?}");
    let index = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/c-scr/xor-flush2/raw/prefix/.scr/index.scr");
    fs::copy(index, scr.path("prefix/.scr/index.scr")).expect("an index");
    assert_eq!(offered(&scr, &["scr", "index", "--current", "ckpt."]), ["ckpt.4", "ckpt.2"]);
    let prefix = scr.path("prefix").display().to_string();
    assert_eq!(offered(&scr, &["scr_index", "--prefix", &prefix, "--drop", "ckpt.4"]), ["ckpt.4"]);
    assert!(offered(&scr, &["scr_flush_file", "--lat"]).contains(&"--latest".to_owned()));
}

/// Every user who may write to a prefix directory may name a dataset as they like.
#[test]
fn the_name_of_a_dataset_is_no_command_for_a_shell_that_offers_it() {
    let scr = with_pages();
    let trace = scr.path("trace");
    let names = [format!("$(touch {})", trace.display()), format!("`touch {}`", trace.display())];
    let others = ["a b", "a*", "red\u{1b}[31m", "two\nlines"].map(str::to_owned);
    let prefix = Prefix::new(scr.path("prefix"));
    Index::update(&RealFiles, &prefix, |index| {
        for (id, name) in (1..).zip(names.iter().chain(&others)) {
            let name = name.clone().into_bytes();
            index.record(&DatasetDescriptor { id, name, checkpoint: true, ..Default::default() }, true);
        }
    })
    .expect("an index");
    let all = offered(&scr, &["scr", "index", "--current", ""]);
    assert!(!trace.exists(), "bash has run the name of a dataset: {all:?}");
    assert_eq!(all.len(), 4, "those with control characters are not offered: {all:?}");
    assert_eq!(offered(&scr, &["scr", "index", "--current", "a"]), ["a\\*", "a\\ b"]);
    // An offer becomes a word of the command line, which is the name and runs nothing.
    let words = format!("printf '%s\\n' {}", all.join(" "));
    let typed = Command::new("bash").args(["--norc", "-c", &words]).output().expect("bash starts");
    let typed = String::from_utf8(typed.stdout).expect("text");
    assert_eq!(typed.lines().collect::<Vec<_>>(), ["a*", "a b", &names[1], &names[0]]);
    assert!(!trace.exists());
}

/// `script` is a terminal for a command.
#[test]
fn a_terminal_gets_colours_unless_they_are_turned_off() {
    let scr = with_pages();
    let on_terminal = |variables: &[(&str, &str)]| {
        let mut script = scr.in_prefix(&[]);
        let scr = script.get_program().to_owned();
        script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command"])
            .arg(format!("{} plugin list", scr.to_string_lossy()))
            .arg("/dev/null");
        script.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
        let output = script.output().expect("script starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(on_terminal(&[]).contains("\x1b[1mNAME"), "{:?}", on_terminal(&[]));
    for off in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(on_terminal(&[off]).contains("NAME") && !on_terminal(&[off]).contains('\x1b'), "{off:?}");
    }
}
