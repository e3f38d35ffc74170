//! The dashboard for Grafana shows metrics that jobs write.

use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn the_dashboard_shows_the_metrics_of_jobs_and_no_others() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/grafana/scr.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut shown = BTreeSet::new();
    collect(&dashboard, &mut shown);
    let written: BTreeSet<String> = scr_core::metrics::names().into_iter().map(str::to_owned).collect();
    assert_eq!(shown.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "no job writes these");
    assert!(shown.len() > written.len() / 2, "{shown:?}");
}

/// The names of metrics in all queries.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| match (key.as_str(), value) {
            ("expr" | "query", Value::String(query)) => names.extend(metrics_in(query)),
            (_, inner) => collect(inner, names),
        }),
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => (),
    }
}

fn metrics_in(query: &str) -> impl Iterator<Item = String> + '_ {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let words = words.filter(|word| word.starts_with("scr_"));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned())
}
