//! The pages that are installed: every link in them leads to something that is installed as well.

use scr_tests::{on_each_mpi, stage};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

on_each_mpi! {
    fn every_link_leads_to_an_installed_file_and_to_a_heading_in_it(mpi: Mpi) {
        let pages = pages_below(&stage(mpi).join("share/doc/scr"));
        assert!(pages.len() > 20, "{pages:?}");
        let broken: Vec<_> = pages.iter().flat_map(|page| broken_links(page)).collect();
        assert_eq!(broken, Vec::<String>::new());
    }
}

fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

fn broken_links(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page can be read");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let near = links.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    near.filter(|link| !leads_somewhere(page, link))
        .map(|link| format!("{}: {link}", page.display()))
        .collect()
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
    if heading.is_empty() || !target.exists() {
        return target.exists();
    }
    let text = std::fs::read_to_string(&target).expect("a page can be read");
    let headings: BTreeSet<_> = text.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    headings.contains(heading)
}

/// The name of a heading in links: small letters, and hyphens for blanks; all else but letters and digits is left out.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
