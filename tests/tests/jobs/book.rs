//! The site of the pages: every page of the documents is in it, its links lead somewhere, and a browser shows it well in a light
//! and a dark theme. It needs mdBook and Chromium, which not every machine has.

use scr_tests::{compile, expect_well_shown, repository, with_optional, Theme};
use std::path::{Path, PathBuf};
use std::process::Command;

fn book() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let site = scratch.path().join("site");
    compile(Command::new(repository().join("scripts/book.sh")).arg(&site));
    (scratch, site)
}

fn pages_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages.extend(pages_below(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            pages.push(path);
        }
    }
    pages
}

#[test]
fn every_page_is_in_the_book_and_every_link_leads_somewhere() {
    with_optional("mdbook", "the book", || {
        let (_scratch, site) = book();
        for page in pages_below(&repository().join("docs"), "md") {
            let below = page.strip_prefix(repository()).expect("it is below");
            let name = if below.ends_with("README.md") {
                "index".into()
            } else {
                below.file_stem().expect("a name").to_owned()
            };
            let html = site.join(below).with_file_name(name).with_extension("html");
            assert!(html.exists(), "{} is not in docs/README.md", page.display());
        }
        let mut broken = Vec::new();
        for page in pages_below(&site, "html")
            .iter()
            .filter(|page| !page.ends_with("print.html") && !page.ends_with("404.html"))
        {
            let html = std::fs::read_to_string(page).expect("a page can be read");
            let main =
                html.split("<main>").nth(1).and_then(|rest| rest.split("</main>").next()).unwrap_or_default();
            for (file, anchor) in links(main) {
                let target = if file.is_empty() { page.clone() } else { page.with_file_name(&file) };
                let text = std::fs::read_to_string(&target);
                let has_anchor = |text: &str| anchor.is_empty() || text.contains(&format!("id=\"{anchor}\""));
                if !text.is_ok_and(|text| has_anchor(&text)) {
                    broken.push(format!("{}: {file}#{anchor}", page.display()));
                }
            }
        }
        assert_eq!(broken, Vec::<String>::new());
    });
}

/// The files and anchors that a text links to on this site.
fn links(html: &str) -> Vec<(String, String)> {
    let links = html.split(" href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let near = links.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    near.map(|link| link.split_once('#').unwrap_or((link, "")))
        .map(|(file, anchor)| (file.to_owned(), anchor.to_owned()))
        .collect()
}

#[test]
fn a_browser_shows_pictures_tables_and_words_in_both_themes() {
    with_optional("mdbook", "the book", || {
        with_optional("chromium", "the book in a browser", || {
            let (scratch, site) = book();
            let folders =
                ["", "docs/", "docs/user/concepts", "docs/user/parameters", "docs/developer/architecture"];
            for page in folders {
                let name = if page.is_empty() || page.ends_with('/') {
                    format!("{page}index")
                } else {
                    page.to_owned()
                };
                let page = site.join(name).with_extension("html");
                expect_well_shown(&page, &scratch.path().join("profile"), Theme::Light);
            }
        });
    });
}
