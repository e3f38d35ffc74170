//! The names of the metrics, where others use them: the dashboard, and the page for administrators.

use super::repository;
use scr_core::metrics;
use std::collections::BTreeSet;

/// The words of a text that look like names of metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(|letter| !is_part(letter));
    let words = words.map(|word| word.strip_suffix("_bucket").unwrap_or(word));
    words.filter(|word| word.starts_with("scr_") && word.len() > 4).collect()
}

fn known() -> BTreeSet<&'static str> {
    metrics::names().into_iter().collect()
}

#[test]
fn the_dashboard_names_no_other_metrics_than_those_that_a_job_writes() {
    let text = std::fs::read_to_string(repository().join("etc/grafana/scr.json")).unwrap();
    let used = named(&text);
    let known = known();
    let unknown: Vec<_> = used.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(used.len() > 20, "{used:?}");
}

#[test]
fn the_page_for_administrators_explains_every_metric() {
    let page = std::fs::read_to_string(repository().join("docs/user/monitoring.md")).unwrap();
    let table: String = page.lines().filter(|line| line.starts_with("| `scr_")).collect();
    assert_eq!(named(&table), known());
    let unknown: Vec<_> = named(&page).into_iter().filter(|name| !known().contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
