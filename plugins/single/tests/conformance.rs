//! The conformance kit's checks of the scheme SINGLE.

use scr_conformance::scheme::{run, Factory, Limits};
use scr_single::Single;

fn passes(factory: &Factory<'_>) {
    let report = run(factory, &Limits::default());
    assert!(report.passed(), "{report}");
    assert!(report.checks.iter().all(|check| check.warnings.is_empty()), "{report}");
}

#[test]
fn single_keeps_the_rules() {
    passes(&|| Box::new(Single));
}
