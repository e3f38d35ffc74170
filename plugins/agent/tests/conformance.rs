//! The transport `agent` put through the conformance suite for transports, with an agent in the same process.

use scr_agent::{Agent, AgentPresence, Executor};
use scr_conformance::transport::run_in_a_folder;

#[test]
fn the_transport_keeps_every_rule() {
    let folder = tempfile::TempDir::new().unwrap();
    let control = folder.path();
    let _there = AgentPresence::become_one(control).unwrap().unwrap();
    let alone = |_: &_, work: &mut dyn FnMut()| {
        work();
        true
    };
    let executor = Executor::new(control.to_owned(), Box::new(alone));
    let report = std::thread::scope(|scope| {
        executor.start(scope, 2).unwrap();
        let report = run_in_a_folder(&|| Box::new(Agent::new(control.to_owned(), None)), true);
        executor.stop();
        report.unwrap()
    });
    assert!(report.passed(), "{report}");
}
