//! The transport `datawarp`, on a stand-in for Cray's library, put through the conformance suite for transports.

use scr_conformance::transport::run_in_a_folder;
use scr_plugin_api::KvTree;
use scr_test_plugins::standin::Standin;

#[test]
fn the_transport_keeps_every_rule() {
    let standin = Standin::new("standin_datawarp");
    let mut options = KvTree::new();
    options.set("LIBRARY", standin.library().display());
    let make = || Box::new(scr_datawarp::from_options(&options).unwrap()) as _;
    let report = run_in_a_folder(&make, true).unwrap();
    assert!(report.passed(), "{report}");
}
