//! The conformance kit's checks of the scheme PARTNER.

use scr_conformance::scheme::{run, Factory, Limits};
use scr_partner::{Partner, REPLICAS};
use scr_plugin_api::KvTree;

fn passes(factory: &Factory<'_>) {
    let report = run(factory, &Limits::default());
    assert!(report.passed(), "{report}");
    assert!(report.checks.iter().all(|check| check.warnings.is_empty()), "{report}");
}

fn passes_with(replicas: u32) {
    let mut options = KvTree::new();
    options.set(REPLICAS, replicas);
    passes(&|| Box::new(Partner::new(&options).expect("a legal count")));
}

#[test]
fn one_copy_keeps_the_rules() {
    passes_with(1);
}

#[test]
#[ignore = "long"]
fn two_copies_keep_the_rules() {
    passes_with(2);
}
