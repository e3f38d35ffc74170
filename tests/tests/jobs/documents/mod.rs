//! Documents compared with the code: the page of parameters, the sample of a system file, the picture of the crates.

mod crates;
mod messages;
mod metrics;
#[path = "../../../examples/parameters.rs"]
mod parameters;
mod words;

use scr_base::fs::RealFiles;
use scr_config::descriptor::Descriptors;
use scr_config::param::{AppConfig, Params, Settings, TABLE};
use scr_test_kit::promises::Promise;
use scr_test_kit::TestEnv;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn the_page_of_parameters_is_that_of_the_table() {
    let path = repository().join("docs/user/parameters.md");
    let written = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        written == parameters::page(),
        "docs/user/parameters.md is not that of the table; \
         run: cargo run -p scr-tests --example parameters > docs/user/parameters.md"
    );
}

#[test]
fn the_page_of_languages_has_every_subroutine_of_fortran_with_its_arguments() {
    let read = |name: &str| std::fs::read_to_string(repository().join(name)).unwrap();
    let (page, module) = (read("docs/user/languages.md"), read("ffi/fortran/scr.f90"));
    let mut subroutines = 0;
    for line in module.lines().filter_map(|line| line.trim().strip_prefix("subroutine ")) {
        let (name, arguments) = line.trim_end_matches(')').split_once('(').unwrap();
        let row = page.lines().find(|row| row.starts_with('|') && row.contains(&format!("`{name}`")));
        let cell =
            row.and_then(|row| row.split('|').nth(2)).unwrap_or_else(|| panic!("{name} is not on the page"));
        let shown: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
        assert_eq!(shown.join(", "), arguments, "{name}");
        subroutines += 1;
    }
    assert!(subroutines > 15, "{subroutines}");
}

#[test]
fn the_page_on_trust_begins_with_the_promises() {
    let page =
        std::fs::read_to_string(repository().join("docs/developer/trust.md")).expect("the page is there");
    let row = |(number, promise): (usize, &Promise)| format!("| {number} | {} |", promise.text());
    let rows: Vec<_> = (1..).zip(Promise::ALL).map(row).collect();
    let shown: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).take(rows.len()).collect();
    assert_eq!(shown, rows);
}

#[test]
fn something_asks_for_every_parameter() {
    let mut sources = String::new();
    for folder in ["core", "ffi/src", "tools/src"] {
        // The folder of the parameters themselves names all of them.
        collect(&repository().join(folder), "core/config/src/param", &mut sources);
    }
    for info in TABLE.iter().filter(|info| !PARTS_OF_READING.contains(&info.name)) {
        let constant = format!("param::{}", info.name.trim_start_matches("SCR_"));
        let asked =
            sources.match_indices(&constant).any(|(at, _)| ends_there(&sources[at + constant.len()..]));
        assert!(asked, "{} is read, and nothing asks for it", info.name);
    }
}

/// `SCR_CONF_FILE` and `SCR_LOCKED` act while settings are read; of `SCR_CNTL_BASE` a descriptor is made that nobody uses.
const PARTS_OF_READING: [&str; 5] =
    ["SCR_CONF_FILE", "SCR_GROUPS_FILE", "SCR_LOCKED", "SCR_CNTL_BASE", "SCR_SAFE_PREFIX"];

fn ends_there(rest: &str) -> bool {
    !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
}

/// Adds the sources below a folder, without tests.
fn collect(folder: &Path, skipped: &str, sources: &mut String) {
    if folder.ends_with(skipped) || folder.ends_with("tests") {
        return;
    }
    for entry in std::fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry"))
    {
        if entry.path().is_dir() {
            collect(&entry.path(), skipped, sources);
        } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(entry.path()).expect("a source");
            sources.push_str(source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        }
    }
}

#[test]
fn the_sample_of_a_system_file_is_read_without_a_word() {
    let sample = std::fs::read_to_string(repository().join("etc/scr.conf")).expect("the sample is there");
    assert_eq!(problems_of(&sample, "XOR"), [] as [String; 0]);
}

#[test]
fn every_setting_that_the_sample_offers_is_a_good_one() {
    let sample = std::fs::read_to_string(repository().join("etc/scr.conf")).expect("the sample is there");
    // Prose is `# text', a setting to be taken up is `#NAME=value'.
    let offered = |line: &str| {
        line.strip_prefix('#').filter(|rest| rest.starts_with(char::is_alphabetic)).map(str::to_owned)
    };
    let offers: Vec<_> = sample.lines().filter_map(offered).collect();
    assert!(offers.len() > 10, "{offers:?}");
    let taken_up: Vec<_> =
        sample.lines().map(|line| offered(line).unwrap_or_else(|| line.to_owned())).collect();
    // The CKPT lines are used with FILE alone, and a file that has both says so.
    assert_eq!(problems_of(&taken_up.join("\n"), "FILE"), [] as [String; 0]);
}

/// Every name that `core/base/src/build.rs` looks at, without `SCR_BUILD_`.
fn build_settings() -> Vec<String> {
    let source =
        std::fs::read_to_string(repository().join("core/base/src/build.rs")).expect("the source is there");
    let names = source.match_indices("\"SCR_BUILD_").map(|(at, start)| {
        let rest = &source[at + start.len()..];
        rest[..rest.find('"').expect("a closed quote")].to_owned()
    });
    names.collect()
}

#[test]
fn make_hands_each_setting_of_a_build_to_the_compiler_and_nothing_from_the_environment() {
    let built = |given: &[String]| {
        let output = std::process::Command::new("make")
            .args(["--no-print-directory", "--eval", "shown:;@env", "shown"])
            .args(given)
            .env("SCR_CACHE_BASE", "/a/jobs/own")
            .current_dir(repository())
            .output();
        let output = output.expect("make starts");
        let lines = String::from_utf8(output.stdout).expect("text");
        let mut built: Vec<_> =
            lines.lines().filter(|line| line.starts_with("SCR_BUILD_")).map(str::to_owned).collect();
        built.sort_unstable();
        built
    };
    assert_eq!(built(&[]), Vec::<String>::new());
    let names = build_settings();
    assert!(names.len() > 8, "{names:?}");
    let given: Vec<_> = names.iter().map(|name| format!("SCR_{name}=x of {name}")).collect();
    let mut expected: Vec<_> = names.iter().map(|name| format!("SCR_BUILD_{name}=x of {name}")).collect();
    expected.sort_unstable();
    assert_eq!(built(&given), expected);
}

#[test]
fn every_setting_of_a_build_is_written_down() {
    let page =
        std::fs::read_to_string(repository().join("docs/user/configuration.md")).expect("the page is there");
    for name in build_settings() {
        assert!(page.contains(&format!("| `SCR_{name}` |")), "{name} is not in docs/user/configuration.md");
    }
}

#[test]
fn every_source_that_a_page_names_exists() {
    let mut pages = Vec::new();
    collect_pages(&repository().join("docs"), &mut pages);
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| repository().join(page)));
    let mut named = 0;
    let mut missing = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        // Every second piece between backticks is code.
        for source in text.split('`').skip(1).step_by(2).filter(|code| is_source(code)) {
            named += 1;
            if !repository().join(source).exists() {
                missing.push(format!("{}: {source}", page.display()));
            }
        }
    }
    assert!(named > 80, "only {named} sources are named");
    assert_eq!(missing, [] as [String; 0], "rename these in the pages, too");
}

#[test]
fn the_table_of_call_paths_counts_the_files_that_their_steps_name() {
    let page = std::fs::read_to_string(repository().join("docs/developer/architecture.md")).unwrap();
    let rows =
        page.split("| call path |").nth(1).unwrap().lines().skip(2).take_while(|row| row.starts_with('|'));
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let path = page.split(&format!("### {}\n", cells[1])).nth(1).expect(cells[1]);
        // What follows the list is said of other ways.
        let steps = path.trim_start().split("\n\n").next().unwrap();
        let named = steps.split('`').skip(1).step_by(2).filter(|code| is_source(code));
        assert_eq!(named.collect::<BTreeSet<_>>().len().to_string(), cells[2], "{row}");
    }
}

fn is_source(code: &str) -> bool {
    let folder = code.split('/').next().filter(|folder| *folder != code);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    folder.is_some_and(|folder| SOURCE_FOLDERS.contains(&folder)) && code.chars().all(is_plain)
}

/// `etc` is not among them: pages name files of an installation there.
const SOURCE_FOLDERS: [&str; 11] = [
    "benches",
    "conformance",
    "core",
    "examples",
    "ffi",
    "packaging",
    "plugin-api",
    "plugins",
    "scripts",
    "tests",
    "tools",
];

fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of pages").map(|entry| entry.expect("an entry")) {
        match entry.path() {
            folder if folder.is_dir() => collect_pages(&folder, pages),
            page if page.extension().is_some_and(|extension| extension == "md") => pages.push(page),
            _ => (),
        }
    }
}

/// All messages on a system file with this text, in an environment with this `SCR_COPY_TYPE`.
fn problems_of(text: &str, copy_type: &str) -> Vec<String> {
    let install = tempfile::TempDir::new().expect("a folder for the test");
    std::fs::create_dir(install.path().join("etc")).expect("a folder in it");
    std::fs::write(install.path().join("etc/scr.conf"), text).expect("the file");
    let env = TestEnv::new(Arc::new(RealFiles), install.path().join("prefix"))
        .with_install_dir(install.path())
        .with_variable("SCR_NODE_NAME", "node1")
        .with_variable("SCR_COPY_TYPE", copy_type)
        .env();
    let (params, mut problems) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
    let error = Descriptors::build(&params, &mut problems).err();
    let mut messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
    messages.extend(error.map(|error| error.to_string()));
    messages
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
