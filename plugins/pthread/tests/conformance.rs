//! The transport `pthread` put through the conformance suite for transports.

use scr_conformance::transport::run_in_a_folder;

#[test]
fn the_transport_keeps_every_rule() {
    let report = run_in_a_folder(&|| Box::new(scr_pthread::pthread(3)), false).unwrap();
    assert!(report.passed(), "{report}");
}
