//! `scr plugin`: what it prints where, and how it ends.

use crate::answer::{code, err, json_of, out};
use crate::installation::Installation;
use scr_test_plugins::{built, manifest, vendor_scheme};
use serde_json::{json, Value};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn library(&self, name: &str, example: &str) -> PathBuf {
        self.write(name, fs::read(built(example)).unwrap())
    }

    /// `scr plugin` with these arguments, in this folder and with it as the only place for plugins.
    fn plugin(&self, arguments: &[&str]) -> Output {
        let mut command = scr(&self.path());
        command.env("SCR_PLUGIN_PATH", self.path()).arg("plugin").args(arguments).output().unwrap()
    }
}

fn scr(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(folder)
        .env("COLUMNS", "1000");
    command
}

#[test]
fn a_list_has_a_line_per_plugin_and_nothing_else_on_standard_output() {
    let folder = Folder::new();
    folder.write("b.toml", manifest("MIRROR", "scheme", "b.so") + "\n");
    folder.write("a.toml", format!("description = \"Copies\"\n{}", manifest("SYNC", "transport", "a.so")));
    folder.library("a.so", "obedient");
    folder.library("b.so", "obedient");
    folder.write("broken.toml", "name = 7");
    let output = folder.plugin(&["list"]);
    assert_eq!(code(&output), 0);
    assert_eq!(
        out(&output),
        "NAME    KIND       VERSION  DESCRIPTION\nMIRROR  scheme     1.0\nSYNC    transport  1.0      Copies\n"
    );
    let path = folder.path().join("broken.toml").display().to_string();
    let message =
        format!("scr: skipped {path}:1: `name' is 7; it must be 1 to 64 letters, digits, `_', `-' or `.'\n");
    assert_eq!(err(&output), message);
    assert!(!out(&folder.plugin(&["list", "--kind", "transport"])).contains("MIRROR"));
}

/// It was listed like any other, and no job could use it.
#[test]
fn a_list_shows_which_plugins_no_job_can_use_and_why() {
    let folder = Folder::new();
    folder.write("a.toml", manifest("OPEN", "scheme", "a.so"));
    folder.write("b.toml", manifest("GONE", "transport", "b.so"));
    let library = folder.library("a.so", "obedient");
    std::fs::set_permissions(&library, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let output = folder.plugin(&["list"]);
    assert_eq!(out(&output).matches("(cannot be used)").count(), 2, "{}", out(&output));
    for words in
        ["no job can use the scheme OPEN: the library ", "may be written by others", "transport GONE"]
    {
        assert!(err(&output).contains(words), "{}", err(&output));
    }
    let json = json_of(&folder.plugin(&["list", "--json"]));
    let why = json["plugins"][0]["unusable"].as_str().unwrap();
    assert!(why.contains("may be written by others"), "{why}");
    assert!(out(&folder.plugin(&["info", "OPEN"])).contains("unusable      the library "));
}

/// Its manifest named the installation that wrote it, and so it could not be built elsewhere.
#[test]
fn a_new_plugin_brings_all_crates_and_has_relative_paths() {
    let scr = Installation::with_system_file("");
    for name in ["scr-plugin-api", "scr-base", "scr-comm", "scr-conformance"] {
        scr.write(format!("share/scr/crates/{name}/src/deep/lib.rs"), name);
    }
    let without = scr.in_prefix(&["plugin", "new", "scheme", "mine"]).output().unwrap();
    let why = "share/scr/crates/vendor.tar.gz with tar";
    assert!(code(&without) == 2 && err(&without).contains(why), "{}", err(&without));
    scr.write("others/vendor/libc/LICENSE-MIT", "free");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(scr.path("share/scr/crates/vendor.tar.gz")).arg("-C").arg(scr.path("others"));
    assert!(tar.arg("vendor").status().unwrap().success());
    for (kind, crates) in [("scheme", 5), ("log-sink", 2)] {
        let made = scr.in_prefix(&["plugin", "new", kind, "mine", "--into", kind]).output().unwrap();
        assert_eq!(code(&made), 0, "{}", err(&made));
        let folder = scr.path("prefix").join(kind);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("\nscr-plugin-api = { path = \"crates/scr-plugin-api\" }\n"), "{manifest}");
        assert!(!manifest.contains(&scr.path("").display().to_string()), "{manifest}");
        assert_eq!(fs::read_dir(folder.join("crates")).unwrap().count(), crates);
        let source = fs::read_to_string(folder.join("crates/scr-plugin-api/src/deep/lib.rs")).unwrap();
        assert_eq!(source, "scr-plugin-api");
        let config = fs::read_to_string(folder.join(".cargo/config.toml")).unwrap();
        assert!(config.contains("\ndirectory = \"crates/vendor\"\n"), "{config}");
        assert_eq!(fs::read(folder.join("crates/vendor/libc/LICENSE-MIT")).unwrap(), b"free");
    }
    for (kind, crates) in [("log-sink", 2), ("scheme", 5)] {
        let into = ["plugin", "new", kind, "mine", "--into", &format!("two/{kind}"), "--crates", "../shared"];
        let made = scr.in_prefix(&into).output().unwrap();
        assert_eq!(code(&made), 0, "{}", err(&made));
        let folder = scr.path("prefix/two").join(kind);
        let config = fs::read_to_string(folder.join(".cargo/config.toml")).unwrap();
        assert!(config.contains("\ndirectory = \"../shared/vendor\"\n"), "{config}");
        assert!(!folder.join("crates").exists());
        assert_eq!(fs::read_dir(scr.path("prefix/two/shared")).unwrap().count(), crates);
    }
}

#[test]
fn a_new_plugin_does_not_take_the_name_of_one_that_is_there() {
    let folder = Folder::new();
    let there = folder.write("mirror.toml", manifest("MIRROR", "scheme", "mirror.so"));
    let refused = folder.plugin(&["new", "scheme", "mirror", "--into", "mine"]);
    assert_eq!((code(&refused), folder.path().join("mine").exists()), (2, false));
    let expected = format!("there is a scheme MIRROR already, {}; choose another name", there.display());
    assert!(err(&refused).contains(&expected), "{}", err(&refused));
    let transport = folder.plugin(&["new", "transport", "mirror", "--into", "mine"]);
    assert_eq!(code(&transport), 0, "kinds have names of their own: {}", err(&transport));
}

#[test]
fn a_list_in_json_is_one_value_with_everything_in_it() {
    let folder = Folder::new();
    folder.write("a/mirror.toml", manifest("MIRROR", "scheme", "b.so"));
    folder.write("b/mirror.toml", manifest("mirror", "scheme", "c.so"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    folder.library("a/b.so", "obedient");
    let folders = format!("{}:{}:{}", path("a"), path("b"), path("gone"));
    let output = folder.plugin(&["list", "--json", "--path", &folders]);
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    let expected = json!({
        "version": 1,
        "places": [path("a"), path("b"), path("gone")],
        "plugins": [{
            "name": "MIRROR", "kind": "scheme", "version": "1.0", "abi": "1.0", "description": "",
            "format": { "id": "mirror", "oldest": 2, "newest": 3 },
            "capabilities": { "tolerates": null, "asynchronous": false, "survives_job": false },
            "options": [{ "name": "PANIC", "type": "text", "default": null, "allowed": "a text", "help": "" }],
            "manifest": path("a/mirror.toml"), "library": path("a/b.so"), "unusable": null,
        }],
        "shadowed": [{ "name": "mirror", "kind": "scheme", "manifest": path("b/mirror.toml"), "by": path("a/mirror.toml") }],
        "passed_over": [{ "path": path("gone"), "reason": "there is no such folder" }],
        "notes": [],
    });
    assert_eq!(json_of(&output), expected);
}

#[test]
fn an_empty_list_exits_with_1_and_names_the_folders_searched() {
    let folder = Folder::new();
    let output = folder.plugin(&["list"]);
    assert_eq!((code(&output), out(&output)), (1, String::new()));
    assert_eq!(err(&output), format!("scr: no plugin was found in {}\n", folder.path().display()));
    let output = scr(&folder.path()).args(["plugin", "list"]).output().unwrap();
    assert_eq!(code(&output), 1);
    assert_eq!(
        err(&output),
        "scr: there is no folder to look in: set SCR_PLUGIN_PATH to one with manifests\n"
    );
    assert_eq!(json_of(&folder.plugin(&["list", "--json"]))["plugins"], json!([]));
}

#[test]
fn an_installation_is_found_from_the_place_of_the_program_also_through_a_link() {
    let folder = Folder::new();
    folder.write("opt/etc/scr/plugins.d/mirror.toml", manifest("MIRROR", "scheme", "m.so"));
    let library = folder.write("opt/lib/scr/plugins/m.so", "");
    let program = folder.write("opt/bin/scr", fs::read(env!("CARGO_BIN_EXE_scr")).unwrap());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(&program, folder.path().join("scr_plugin")).unwrap();
    for (program, arguments) in [(program, vec!["plugin"]), (folder.path().join("scr_plugin"), vec![])] {
        let mut command = Command::new(program);
        let output = command.env_clear().args(arguments).args(["info", "mirror", "--json"]).output().unwrap();
        assert_eq!(json_of(&output)["plugins"][0]["library"], json!(library.display().to_string()));
    }
}

#[test]
fn info_shows_what_the_manifest_says() {
    let folder = Folder::new();
    let text = include_str!("../../../examples/vendor-scheme/mirror.toml");
    folder.write("mirror.toml", text);
    folder.library("libscr_mirror.so", "obedient");
    let output = folder.plugin(&["info", "mirror"]);
    let path = folder.path().display().to_string();
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    assert_eq!(
        out(&output),
        format!(
            "MIRROR: Full copies of each member's data at its right neighbours
  kind          scheme
  version       1.0.0, for plugin interface 1.1
  survives      COPIES losses per set
  format        mirror, reads 1 to 1, writes 1
  manifest      {path}/mirror.toml
  library       {path}/libscr_mirror.so
  options
    COPIES=1  a whole number from 1 to 255  How many neighbours keep a copy: the losses that a set survives, whichever members they hit
"
        )
    );
}

#[test]
fn info_on_an_unknown_name_is_a_no_with_the_nearest_name() {
    let folder = Folder::new();
    folder.write("m.toml", manifest("MIRROR", "scheme", "m.so"));
    let output = folder.plugin(&["info", "MIROR"]);
    assert_eq!((code(&output), out(&output)), (1, String::new()));
    let start = "scr: there is no scheme plugin named MIROR; did you mean MIRROR?; searched ";
    assert!(err(&output).starts_with(start), "{}", err(&output));
    let output = folder.plugin(&["info", "MIROR", "--json"]);
    assert_eq!((code(&output), &json_of(&output)["plugins"]), (1, &json!([])));
    assert!(json_of(&output)["error"].as_str().unwrap().contains("did you mean MIRROR?"));
}

#[test]
fn a_good_library_passes_with_and_without_its_manifest() {
    let folder = Folder::new();
    folder.library("lone/obedient.so", "obedient");
    let output = folder.plugin(&["check", "lone/obedient.so"]);
    let text = out(&output);
    assert_eq!((code(&output), text.lines().count()), (0, 2), "{text}");
    assert!(
        text.contains(
            "good  load      a scheme and a transport and a log sink, plugin interface 1.1, formats 2 to 3"
        ),
        "{text}"
    );
    folder.library("both/obedient.so", "obedient");
    folder.write("both/o.toml", manifest("TRY", "scheme", "obedient.so"));
    for file in ["both/obedient.so", "both/o.toml"] {
        let output = folder.plugin(&["check", file]);
        let text = out(&output);
        assert_eq!(code(&output), 0, "{text}");
        let ends: Vec<_> = text.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
        assert_eq!(ends, ["manifest", "file", "load", "make"], "{text}");
        assert!(text.contains("a set of 1 survives 0, a set of 8 survives 7 losses"), "{text}");
    }
}

/// The last step of checking a library, which has failed.
fn failure(folder: &Folder, file: &str) -> (String, String) {
    let output = folder.plugin(&["check", file, "--json", "--timeout", "2"]);
    let report = json_of(&output);
    assert_eq!((code(&output), &report["good"]), (1, &json!(false)), "{report}");
    let step = report["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(step["good"], json!(false));
    let text = |key: &str| step[key].as_str().unwrap().to_owned();
    (text("step"), text("text"))
}

#[test]
fn a_library_that_ends_the_process_or_hangs_is_a_no_and_not_the_end() {
    let folder = Folder::new();
    for (example, reason) in [
        ("crashing", "loading it ended the process with signal 6"),
        ("exiting", "loading it ended the process with exit code 0"),
        ("hanging", "loading it did not end within 2 s"),
    ] {
        folder.library("bad.so", example);
        assert_eq!(failure(&folder, "bad.so"), ("load".to_owned(), reason.to_owned()), "{example}");
        fs::remove_file(folder.path().join("bad.so")).unwrap();
    }
}

#[test]
fn every_kind_of_wrong_library_is_a_no_with_its_reason() {
    let folder = Folder::new();
    for (example, reason) in [
        ("no_plugin", "is no scr plugin"),
        ("other_version", "was built for version 2.1.0"),
        ("other_layout", "does not fit the plugin interface"),
        ("missing_symbol", "undefined symbol"),
    ] {
        folder.library(&format!("{example}.so"), example);
        let (step, text) = failure(&folder, &format!("{example}.so"));
        assert!(step == "load" && text.contains(reason), "{example}: {text}");
    }
    folder.write("text.so", "I am a text");
    folder.write("cut.so", &fs::read(built("obedient")).unwrap()[..100_000]);
    folder.library("open.so", "obedient");
    fs::set_permissions(folder.path().join("open.so"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(folder.path().join("folder.so")).unwrap();
    for (file, reason) in [
        ("text.so", "it is a text, not a shared library"),
        ("cut.so", "it is cut short"),
        ("open.so", "may be written by others"),
        ("folder.so", "is a folder, not a file"),
    ] {
        let (step, text) = failure(&folder, file);
        assert!(step == "file" && text.contains(reason), "{file}: {text}");
    }
}

#[test]
fn a_constructor_that_refuses_or_panics_is_a_no() {
    let folder = Folder::new();
    folder.library("refusing.so", "refusing");
    folder.write(
        "r.toml",
        manifest("REFUSE", "scheme", "refusing.so").replace("oldest = 2\nnewest = 3", "newest = 1"),
    );
    let refused = "the scheme REFUSE refuses: the licence server does not answer".to_owned();
    assert_eq!(failure(&folder, "r.toml"), ("make".to_owned(), refused));
    folder.library("obedient.so", "obedient");
    folder.write("o.toml", manifest("TRY", "scheme", "obedient.so") + "default = \"new\"\n");
    let panicked = "the scheme TRY refuses: making the scheme panicked: asked to panic in new".to_owned();
    assert_eq!(failure(&folder, "o.toml"), ("make".to_owned(), panicked));
}

#[test]
fn a_manifest_that_is_wrong_or_has_unknown_keys_is_a_no_with_the_line() {
    let folder = Folder::new();
    folder.library("obedient.so", "obedient");
    for (text, reason) in [
        (
            "name = 7\n".to_owned(),
            "m.toml:1: `name' is 7; it must be 1 to 64 letters, digits, `_', `-' or `.'",
        ),
        (
            manifest("TRY", "scheme", "obedient.so").replace("version", "verzion"),
            "m.toml:1: the key `version' is missing: a line of text",
        ),
        (
            format!("colour = 1\n{}", manifest("TRY", "scheme", "obedient.so")),
            "m.toml:1: unknown key `colour' is ignored",
        ),
    ] {
        folder.write("m.toml", text);
        let (step, text) = failure(&folder, "m.toml");
        assert!(step == "manifest" && text.contains(reason), "{text}");
    }
    folder.write("m.toml", manifest("TRY", "scheme", "gone.so"));
    assert!(failure(&folder, "m.toml").1.contains("cannot read the library"));
}

#[test]
#[ignore = "long"]
fn a_scheme_that_keeps_the_rules_passes_and_one_that_does_not_is_a_no_with_the_rule() {
    let folder = Folder::new();
    let (library, manifest_of_mirror) = vendor_scheme();
    folder.write("mirror/libscr_mirror.so", fs::read(library).unwrap());
    folder.write("mirror/mirror.toml", fs::read(manifest_of_mirror).unwrap());
    let output = folder.plugin(&["conformance", "mirror/libscr_mirror.so", "copies=2"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert!(out(&output).contains("pass  promised losses: every pattern comes back ("), "{}", out(&output));
    // Users would believe its manifest.
    let boast = fs::read_to_string(folder.path().join("mirror/mirror.toml")).unwrap();
    folder.write("mirror/mirror.toml", boast.replace("tolerates = \"COPIES\"", "tolerates = 3"));
    let output = folder.plugin(&["conformance", "mirror/mirror.toml", "COPIES=2"]);
    assert_eq!(code(&output), 1, "{}{}", out(&output), err(&output));
    assert!(
        out(&output).contains("tolerated losses: members are rebuilt as the manifest says"),
        "{}",
        out(&output)
    );
    // This one promises to survive everything, and does nothing.
    folder.library("obedient.so", "obedient");
    folder.write("o.toml", manifest("TRY", "scheme", "obedient.so"));
    let output = folder.plugin(&["conformance", "o.toml", "--json"]);
    let report = json_of(&output);
    assert_eq!((code(&output), &report["passed"]), (1, &json!(false)));
    let rule = report["checks"].as_array().unwrap().iter().find(|check| check["failed"] != json!(0)).unwrap();
    assert!(!rule["failures"].as_array().unwrap().is_empty(), "{rule}");
    let cure = rule["cure"].as_str().unwrap();
    assert!(out(&folder.plugin(&["conformance", "o.toml"])).contains(&format!("      to fix it: {cure}\n")));
    for (arguments, reason) in [
        (
            ["conformance", "mirror/mirror.toml", "COPIES=0"],
            "COPIES=0: the scheme MIRROR takes a whole number from 1 to 255",
        ),
        (["conformance", "mirror/mirror.toml", "COPIES"], "`COPIES' is not of the form NAME=VALUE"),
    ] {
        let output = folder.plugin(&arguments);
        assert!(code(&output) == 2 && err(&output).contains(reason), "{}", err(&output));
    }
}

#[test]
fn a_plugin_that_ends_the_process_while_it_is_tried_is_a_no_that_names_the_call() {
    let folder = Folder::new();
    folder.library("obedient.so", "obedient");
    for (kind, method) in [("scheme", "losses_survived"), ("transport", "wait")] {
        folder.write("o.toml", manifest("TRY", kind, "obedient.so"));
        for json in [&[][..], &["--json"]] {
            let option = format!("PANIC=exit-{method}");
            let output = folder.plugin(&[&["conformance", "o.toml", &option], json].concat());
            assert_eq!((code(&output), out(&output)), (1, String::new()), "{}", err(&output));
            let ended = "the kit could not finish: trying o.toml ended the process with exit code 0 in";
            assert!(
                err(&output).contains(&format!("{ended} {method}, while it tried `")),
                "{}",
                err(&output)
            );
        }
    }
    folder.write("o.toml", manifest("TRY", "scheme", "obedient.so"));
    let output = folder.plugin(&["conformance", "o.toml", "PANIC=abort-rebuild"]);
    let ended =
        "o.toml ended the process with signal 6 in rebuild of member 0 of 1, while it tried `set of one: ";
    assert!(code(&output) == 1 && err(&output).contains(ended), "{}", err(&output));
}

#[test]
fn a_panic_is_said_once_with_its_place_and_what_helps() {
    let folder = Folder::new();
    folder.library("obedient.so", "obedient");
    for (kind, method) in [("scheme", "protect"), ("transport", "start"), ("transport", "crc")] {
        folder.write("o.toml", manifest("TRY", kind, "obedient.so"));
        let mut command = scr(&folder.path());
        let option = format!("PANIC={method}");
        command.env("RUST_BACKTRACE", "1").args(["plugin", "conformance", "o.toml", &option]);
        let output = command.output().unwrap();
        let (said, shown) = (out(&output), err(&output));
        assert!(said.contains(&format!("panicked: asked to panic in {method}\n")), "{said}");
        assert!(said.contains("to fix it: Return a `PluginError` where the plugin panics"), "{said}");
        assert!(!said.contains("members 0, 1, 2: "), "{said}");
        assert_eq!(shown.matches(" panicked at ").count(), 1, "{shown}");
        assert!(!shown.contains("stack backtrace"), "{shown}");
    }
    // The terminal took the rest of the report for what the text of the plugin began.
    let said = out(&folder.plugin(&["conformance", "o.toml", "PANIC=rude"]));
    assert!(said.contains("no; such ?[31mdoor\n") && !said.contains('\u{1b}'), "{said}");
}

/// Nothing was printed until all rules were tried.
#[test]
fn each_rule_is_named_when_the_kit_begins_to_try_it() {
    let folder = Folder::new();
    folder.library("obedient.so", "obedient");
    folder.write("o.toml", manifest("TRY", "transport", "obedient.so"));
    let go = folder.path().join("go");
    let option = format!("PANIC={}", go.display());
    let mut command = scr(&folder.path());
    command.args(["plugin", "conformance", "--timeout", "60", "o.toml", &option]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("trying  files of every size arrive"));
    assert_eq!(child.try_wait().unwrap(), None, "its first copy waits");
    fs::write(go, "").unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(!child.wait().unwrap().success());
    let all = scr_conformance::transport::all().skip(1);
    assert_eq!(rest, all.map(|case| format!("trying  {}", case.name)).collect::<Vec<_>>());
}

#[test]
fn a_call_that_never_returns_is_named_and_a_no() {
    let folder = Folder::new();
    folder.library("obedient.so", "obedient");
    for (kind, method, words) in [
        ("scheme", "new", "making one with its options has not returned within 1 s"),
        ("scheme", "losses_survived", "`losses_survived' did not return"),
        ("scheme", "protect", "member 0 did not return, and hangs in protect itself"),
        ("transport", "start", "start has not returned within 1 s"),
        ("transport", "wait", "wait has not returned within 1 s"),
    ] {
        folder.write("o.toml", manifest("TRY", kind, "obedient.so"));
        let option = format!("PANIC=hang-{method}");
        let output = folder.plugin(&["conformance", "--timeout", "1", "o.toml", &option]);
        let said = format!("{}{}", out(&output), err(&output));
        assert!(code(&output) == 1 && said.contains(words), "{kind} {method}: {said}");
    }
}

#[test]
fn check_and_conformance_refuse_with_the_message_of_a_job() {
    let folder = Folder::new();
    folder.library("obedient.so", "obedient");
    let good = manifest("TRY", "scheme", "obedient.so");
    folder.write("o.toml", good.replace("abi = \"1.0\"", "abi = \"9.9\""));
    let reason = "the scheme TRY was built for version 9.9 of the plugin interface, and this scr has 1.1";
    let (step, text) = failure(&folder, "o.toml");
    assert!(step == "file" && text.contains(reason), "{step}: {text}");
    let output = folder.plugin(&["conformance", "o.toml"]);
    assert!(code(&output) == 2 && err(&output).contains(reason), "{}", err(&output));
    folder.write("o.toml", good);
    fs::set_permissions(folder.path().join("o.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    let (step, text) = failure(&folder, "o.toml");
    assert!(step == "manifest" && text.contains("may be written by others"), "{step}: {text}");
    let output = folder.plugin(&["conformance", "o.toml"]);
    assert!(code(&output) == 2 && err(&output).contains("may be written by others"), "{}", err(&output));
}

#[test]
fn a_transport_is_put_through_every_rule_for_transports() {
    let folder = Folder::new();
    // The plugin lies beside the test itself.
    let built_sync = std::env::current_exe().unwrap().with_file_name("libscr_sync.so");
    folder.write("libscr_sync.so", fs::read(built_sync).unwrap());
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/plugins.d");
    folder.write("sync.toml", fs::read(manifests.join("sync.toml")).unwrap());
    let output = folder.plugin(&["conformance", "libscr_sync.so"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert!(out(&output).contains("pass  progress is counted in bytes"), "{}", out(&output));
    assert_eq!(out(&output).lines().count(), scr_conformance::transport::all().count());
    // This one says that it is done, and copies nothing.
    folder.library("obedient.so", "obedient");
    folder.write("o.toml", manifest("TRY", "transport", "obedient.so"));
    let output = folder.plugin(&["conformance", "o.toml", "--json"]);
    let report = json_of(&output);
    assert_eq!((code(&output), &report["passed"]), (1, &json!(false)));
    let failed =
        |check: &&Value| check["rule"] == json!("files of every size arrive") && check["failed"] == json!(1);
    assert!(report["checks"].as_array().unwrap().iter().any(|check| failed(&check)), "{report}");
}

#[test]
fn a_file_that_is_not_there_and_a_wrong_use_are_errors() {
    let folder = Folder::new();
    let output = folder.plugin(&["check", "gone.so"]);
    assert_eq!(
        (code(&output), out(&output), err(&output).as_str()),
        (2, String::new(), "scr: there is no file gone.so\n")
    );
    let output = folder.plugin(&["check", "gone.so", "--json"]);
    assert_eq!(
        (code(&output), json_of(&output)),
        (2, json!({ "version": 1, "error": "there is no file gone.so" }))
    );
    for arguments in [&["list", "--colour"][..], &["info"], &["check"], &["frobnicate"], &[]] {
        let output = folder.plugin(arguments);
        assert_eq!((code(&output), out(&output)), (2, String::new()), "{arguments:?}");
    }
}

#[test]
fn every_help_text_states_the_exit_codes() {
    let folder = Folder::new();
    for arguments in [&["--help"][..], &["list", "--help"], &["info", "--help"], &["check", "--help"]] {
        let output = folder.plugin(arguments);
        assert_eq!(code(&output), 0);
        assert!(out(&output).contains("Exit codes: 0 yes or done, 1 no, 2 error."), "{}", out(&output));
    }
}

#[test]
fn a_reader_who_has_gone_is_no_error() {
    let folder = Folder::new();
    for number in 0..200 {
        let name = format!("P{number}");
        folder.write(&format!("{name}.toml"), manifest(&name, "scheme", "m.so"));
    }
    let mut command = scr(&folder.path());
    command.env("SCR_PLUGIN_PATH", folder.path()).args(["plugin", "list", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output)), (0, String::new()));
}
