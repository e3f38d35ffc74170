//! The conformance kit's checks of the scheme XOR.

use scr_conformance::scheme::{run, Factory, Limits};
use scr_xor::xor;

fn passes(factory: &Factory<'_>) {
    let report = run(factory, &Limits::default());
    assert!(report.passed(), "{report}");
    assert!(report.checks.iter().all(|check| check.warnings.is_empty()), "{report}");
}

#[test]
fn xor_keeps_the_rules() {
    passes(&|| Box::new(xor()));
}
