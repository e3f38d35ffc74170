//! The manual pages of the C interface, made from what `scr.h` says of each call: one for each section of it.

use super::{see_also, today, SOURCE};
use clap_mangen::roff::{bold, roman, Roff};

/// A section of the header: its heading, and calls that share a text.
type Section<'a> = (&'a str, Vec<(String, Vec<&'a str>)>);

/// The pages, each with its name and text. All but the first of a section lead to that.
pub(super) fn pages(header: &str) -> Vec<(String, String)> {
    let (mut about, mut codes, mut sections) = (String::new(), Vec::new(), Vec::<Section<'_>>::new());
    for chunk in header.split("\n\n") {
        let Some((comment, below)) = chunk.trim().strip_prefix("/*").and_then(|rest| rest.split_once("*/"))
        else {
            continue;
        };
        let text =
            comment.lines().map(|line| line.trim_start_matches([' ', '*'])).collect::<Vec<_>>().join(" ");
        let calls: Vec<_> = below.lines().filter(|line| call(line).is_some()).collect();
        if let Some(heading) = comment.trim().strip_prefix("---- ") {
            sections.push((heading.trim_end_matches([' ', '-']), Vec::new()));
        } else if text.trim().starts_with("Return codes") {
            codes = below.lines().filter_map(|line| line.strip_prefix("#define ")).collect();
        } else if let (false, Some((_, section))) = (calls.is_empty(), sections.last_mut()) {
            section.push((text.trim().to_owned(), calls));
        } else if about.is_empty() {
            about = text.split_once("  ").map_or(text.clone(), |(_, rest)| rest.trim().to_owned());
        }
    }
    sections.iter().flat_map(|section| of_section(section, &about, &codes)).collect()
}

/// The name in a declaration.
fn call(line: &str) -> Option<&str> {
    let before = line.strip_suffix(';')?.split_once('(')?.0;
    before.rsplit([' ', '*']).next().filter(|name| name.starts_with("SCR_"))
}

fn of_section((heading, texts): &Section<'_>, about: &str, codes: &[&str]) -> Vec<(String, String)> {
    let calls: Vec<&str> = texts.iter().flat_map(|(_, calls)| calls).copied().collect();
    let names: Vec<&str> = calls.iter().filter_map(|line| call(line)).collect();
    let Some((first, others)) = names.split_first() else { return Vec::new() };
    let mut page = Roff::new();
    page.control("TH", [*first, "3", &today(), SOURCE, "scr"]);
    page.control("SH", ["NAME"]).text([roman(format!("{} - {}", names.join(", "), heading.to_lowercase()))]);
    page.control("SH", ["SYNOPSIS"]).control("nf", []).text([bold("#include <scr.h>")]);
    calls.iter().for_each(|line| _ = page.text([bold(*line)]));
    page.control("fi", []).control("SH", ["DESCRIPTION"]);
    for (text, calls) in texts {
        let names: Vec<_> = calls.iter().filter_map(|line| call(line)).collect();
        page.control("TP", []).text([bold(names.join(", "))]).text([roman(text)]);
    }
    page.control("SH", ["RETURN VALUE"]);
    for code in codes {
        let (name, meaning) = code.split_once(" /*").unwrap_or((code, "success"));
        page.control("TP", []).text([bold(name.trim())]).text([roman(meaning.trim_end_matches("*/").trim())]);
    }
    page.control("SH", ["NOTES"]).text([roman(about)]);
    page.extend([see_also("scr(1), scr.conf(5)")]);
    let lead = |name: &&str| ((*name).to_owned(), format!(".so man3/{first}.3\n"));
    std::iter::once(((*first).to_owned(), page.render())).chain(others.iter().map(lead)).collect()
}
