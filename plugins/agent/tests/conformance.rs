//! The transport `agent` put through the conformance suite for transports, with an agent in the same process.

use scr_agent::{Agent, AgentPresence, Executor, Slots, TakeSlot};
use scr_conformance::transport::run_in_a_folder;

/// There is one node only.
#[derive(Debug)]
struct Alone;

impl TakeSlot for Alone {
    fn take(&self, _slots: &Slots, work: &mut dyn FnMut()) -> bool {
        work();
        true
    }
}

#[test]
fn the_transport_keeps_every_rule() {
    let folder = tempfile::TempDir::new().unwrap();
    let control = folder.path();
    let _there = AgentPresence::become_one(control).unwrap().unwrap();
    let executor = Executor::new(control.to_owned(), Box::new(Alone));
    let report = std::thread::scope(|scope| {
        executor.start(scope, 2).unwrap();
        let report = run_in_a_folder(&|| Box::new(Agent::new(control.to_owned(), None)), true);
        executor.stop();
        report.unwrap()
    });
    assert!(report.passed(), "{report}");
}
