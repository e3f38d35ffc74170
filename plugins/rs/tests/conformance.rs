//! The conformance kit's checks of the scheme RS.

use scr_conformance::scheme::{run, Factory, Limits};
use scr_plugin_api::KvTree;
use scr_rs::{rs, SET_FAILURES};

fn passes(factory: &Factory<'_>) {
    let report = run(factory, &Limits::default());
    assert!(report.passed(), "{report}");
    assert!(report.checks.iter().all(|check| check.warnings.is_empty()), "{report}");
}

fn passes_with(failures: u32) {
    let mut options = KvTree::new();
    options.set(SET_FAILURES, failures);
    passes(&|| Box::new(rs(&options).expect("a legal count")));
}

#[test]
fn rs_with_one_failure_keeps_the_rules() {
    passes_with(1);
}

#[test]
#[ignore = "long"]
fn rs_with_two_failures_keeps_the_rules() {
    passes_with(2);
}

#[test]
#[ignore = "long"]
fn rs_with_three_failures_keeps_the_rules() {
    passes_with(3);
}
