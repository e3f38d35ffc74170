//! The picture of the crates: what Cargo knows of them, so that no page has to.

use super::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// For each crate that ships the crates of scr that it is built from.
type Crates = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_picture_of_the_crates_is_what_cargo_says() {
    let path = repository().join("docs/images/crates.svg");
    let drawn = picture(&crates());
    if std::env::var_os("SCR_DRAW_CRATES").is_some() {
        std::fs::write(&path, &drawn).expect("the picture is written");
    }
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == drawn, "{} is out of date: run this test with SCR_DRAW_CRATES=1", path.display());
}

#[test]
fn nothing_that_ships_is_built_from_what_is_for_tests() {
    for (name, built_from) in crates() {
        let tests: Vec<_> = built_from.iter().filter(|other| other.contains("test")).collect();
        assert!(tests.is_empty() || name.contains("test"), "{name} is built from {tests:?}");
    }
}

fn crates() -> Crates {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output();
    let output = output.expect("cargo starts").stdout;
    let metadata: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let names: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let ships =
        |dependency: &&serde_json::Value| dependency["kind"].is_null() && dependency["optional"] == false;
    let built_from = |package: &serde_json::Value| {
        let all = list(&package["dependencies"]);
        all.iter()
            .filter(ships)
            .map(|other| text(&other["name"]))
            .filter(|name| names.contains(name))
            .collect()
    };
    packages.iter().map(|package| (text(&package["name"]), built_from(package))).collect()
}

/// The crates in rows: each is built only from crates in rows below its own.
fn rows(crates: &Crates) -> Vec<Vec<&str>> {
    fn height(crates: &Crates, name: &str) -> usize {
        crates[name].iter().map(|below| height(crates, below) + 1).max().unwrap_or(0)
    }
    let mut rows: Vec<Vec<&str>> = Vec::new();
    for name in crates.keys().filter(|name| !name.contains("test")) {
        let row = height(crates, name);
        rows.resize_with(rows.len().max(row + 1), Vec::new);
        rows[row].push(name);
    }
    rows
}

fn picture(crates: &Crates) -> String {
    let rows = rows(crates);
    let height = rows.len() * 58 + 24;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {height}\" font-family=\"Helvetica, Arial, \
         sans-serif\" font-size=\"13\" text-anchor=\"middle\">\n<title>The crates of scr: each is built only from \
         crates in rows below its own</title>\n<rect x=\"4\" y=\"4\" width=\"892\" height=\"{}\" rx=\"8\" \
         fill=\"#f6f7f9\" stroke=\"#b6bec8\"/>\n",
        height - 8
    );
    for (place, row) in rows.iter().rev().enumerate() {
        let (y, width) = (place * 58 + 20, 880 / row.len());
        for (at, name) in row.iter().enumerate() {
            let x = 10 + at * width;
            writeln!(
                svg,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"38\" rx=\"5\" fill=\"#fff\" stroke=\"#3d6fa5\"/>\
                 <text x=\"{}\" y=\"{}\" fill=\"#20262e\">{}</text>",
                x + 4,
                width - 8,
                x + width / 2,
                y + 24,
                name.trim_start_matches("scr-")
            )
            .expect("a string takes any text");
        }
    }
    svg + "</svg>\n"
}
