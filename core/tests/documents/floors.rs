//! The floors of `core/src`: a module uses only modules on lower floors, and on its own floor in one direction only.
//!
//! A module is a folder of `core/src`, or a file in it. The test counts only paths in code that ships: `crate::module`, or as
//! many `super::` as lead out of the module.

use super::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The modules by floor, from the ground up. `docs/developer/architecture.md` shows them.
const FLOORS: [&[&str]; 7] = [
    &[
        "comm",
        "fs",
        "env",
        "message",
        "build",
        "param",
        "descriptor",
        "placement",
        "parallel",
        "plan",
        "planted",
    ],
    &["prefix", "ledger", "plugin"],
    &["log", "error", "job", "metrics"],
    &["cache"],
    &["redundancy"],
    &["flush", "fetch", "rebuild", "delete", "restart", "halt"],
    &["session", "scavenge", "scrub", "parsers"],
];

/// Which modules each module uses, with the files that do.
type Uses = BTreeMap<(String, String), BTreeSet<String>>;

#[test]
fn no_module_uses_one_on_a_higher_floor_or_one_that_uses_it() {
    let uses = uses_of(&repository().join("core/src"));
    assert!(uses.len() > 50, "the sources were not read: {uses:?}");
    let problems = problems(&uses);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_module_is_on_one_floor_and_the_page_shows_it() {
    let page = std::fs::read_to_string(repository().join("docs/developer/architecture.md")).unwrap();
    let mut shown: Vec<(usize, String)> = Vec::new();
    for line in page.lines() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(floor), Some(modules)) = (cells.next(), cells.next()) else { continue };
        let Ok(floor) = floor.parse() else { continue };
        shown.extend(modules.split('`').skip(1).step_by(2).map(|module| (floor, module.to_owned())));
    }
    shown.sort();
    let mut floors: Vec<(usize, String)> = (1..)
        .zip(FLOORS)
        .flat_map(|(floor, modules)| modules.iter().map(move |name| (floor, (*name).to_owned())))
        .collect();
    floors.sort();
    assert_eq!(shown, floors, "the floors in docs/developer/architecture.md are not those of this test");
    let mut modules: BTreeSet<String> = BTreeSet::new();
    for entry in std::fs::read_dir(repository().join("core/src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if FOR_TESTS.contains(&&*name) {
            continue;
        }
        modules.insert(name.trim_end_matches(".rs").to_owned());
    }
    modules.remove("lib");
    assert_eq!(modules, floors.into_iter().map(|(_, module)| module).collect());
}

#[test]
fn a_use_that_leads_upward_or_back_is_found() {
    let found = |file: &str, source: &str| {
        let mut uses = Uses::new();
        add_uses(file, source, &mut uses);
        uses.into_keys().map(|(_, used)| used).collect::<Vec<_>>()
    };
    assert_eq!(found("cache/part.rs", "use crate::{fs::Files, session};\n"), ["fs", "session"]);
    assert_eq!(found("cache/part.rs", "use super::super::flush::X;\nuse super::record::Y;"), ["flush"]);
    assert_eq!(found("halt.rs", "fn f() { crate::describe(); super::fs::g() } // crate::session"), ["fs"]);
    for attribute in ["", "#[allow(clippy::disallowed_methods)]\n"] {
        let tests = format!("#[cfg(test)]\n{attribute}mod tests {{\n    use crate::session;\n}}\n");
        assert_eq!(found("cache/part.rs", &tests), [""; 0]);
    }
    let uses = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(from, to)| (((*from).to_owned(), (*to).to_owned()), BTreeSet::new())).collect()
    };
    assert_eq!(problems(&uses(&[("session", "cache"), ("fetch", "flush"), ("restart", "fetch")])), [""; 0]);
    assert_eq!(problems(&uses(&[("cache", "flush")])).len(), 1, "upward");
    assert_eq!(problems(&uses(&[("fetch", "flush"), ("flush", "delete"), ("delete", "fetch")])).len(), 1);
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|modules| modules.contains(&module))
}

fn problems(uses: &Uses) -> Vec<String> {
    let mut problems = Vec::new();
    let mut level: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((from, to), files) in uses {
        match floor(from).zip(floor(to)) {
            None => problems.push(format!("{from} or {to} stands on no floor")),
            Some((low, high)) if low < high => {
                problems.push(format!("{from} uses {to}, which stands above it: {files:?}"));
            }
            Some((one, other)) if one == other => _ = level.entry(from).or_default().insert(to),
            Some(_) => (),
        }
    }
    // Modules that use none of those left are taken away; what remains are circles.
    while let Some(free) = level.iter().find(|(_, used)| !used.iter().any(|used| level.contains_key(used))) {
        let free = *free.0;
        level.remove(free);
    }
    if !level.is_empty() {
        problems.push(format!("modules of one floor use each other in a circle: {level:?}"));
    }
    problems
}

fn uses_of(sources: &Path) -> Uses {
    let mut uses = Uses::new();
    let mut folders = vec![sources.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if name.ends_with(".rs") && !FOR_TESTS.iter().any(|part| name.contains(part)) {
                let file = path.strip_prefix(sources).unwrap().to_str().unwrap();
                add_uses(file, &std::fs::read_to_string(&path).unwrap(), &mut uses);
            }
        }
    }
    uses
}

/// Files that do not ship.
const FOR_TESTS: [&str; 3] = ["tests.rs", "testing.rs", "fixtures.rs"];

fn add_uses(file: &str, source: &str, uses: &mut Uses) {
    let module = file.split('/').next().unwrap().trim_end_matches(".rs");
    if module == "lib" {
        return;
    }
    let ships = source.split("\nmod tests {").next().unwrap();
    let code: String = ships.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let depth = file.matches('/').count() + usize::from(!file.ends_with("mod.rs"));
    let root = ["crate::".to_owned(), "super::".repeat(depth)];
    for root in root.iter().filter(|root| !root.is_empty()) {
        for (at, _) in code.match_indices(root.as_str()) {
            if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == ':') {
                continue;
            }
            for used in names(&code[at + root.len()..]).into_iter().filter(|used| used != module) {
                uses.entry((module.to_owned(), used)).or_default().insert(file.to_owned());
            }
        }
    }
}

/// The modules that a path begins with: several if it has a brace. Names at the root that are no modules, such as
/// `crate::describe`, are on no floor.
fn names(path: &str) -> Vec<String> {
    let first =
        |text: &str| text.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
    let mut all = Vec::new();
    match path.strip_prefix('{') {
        None => all.push(first(path)),
        Some(group) => {
            let mut depth = 0;
            let end = group.find(|c| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                depth < 0
            });
            let mut depth = 0;
            let parts = group[..end.unwrap_or(group.len())].split(|c| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                c == ',' && depth == 0
            });
            all.extend(parts.map(first));
        }
    }
    all.retain(|name| name.starts_with(char::is_lowercase) && name != "describe" && name != "super");
    all
}
