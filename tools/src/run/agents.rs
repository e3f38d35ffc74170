//! The agents of a job's nodes, each in a job step of its own: a resource manager that ends all processes of a step with it leaves them alone
//! when the application's step ends.
//!
//! Only where flushes are to go on in agents, and where the resource manager's description says that they need it. Elsewhere the first
//! process of a node that flushes starts one.

use super::say;
use crate::machine::health::command_here;
use crate::machine::process::Started;
use crate::machine::Allocation;
use crate::world;
use scr_core::param::{self, Params};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The agents that this process has started, by their nodes.
#[derive(Default)]
pub(super) struct Agents {
    steps: BTreeMap<String, Started>,
}

/// Whether the flushes of a job go on in agents.
pub(super) fn are_used(params: &Params) -> bool {
    let by_store = || {
        let stores = world::descriptors(params).map(|descriptors| descriptors.stores).unwrap_or_default();
        stores.iter().any(|store| store.flush_by().transport.eq_ignore_ascii_case(AGENT))
    };
    params.get(&param::FLUSH_ASYNC)
        && (params.get(&param::FLUSH_TYPE).eq_ignore_ascii_case(AGENT) || by_store())
}

impl Agents {
    /// Sees to it that an agent runs on each of these nodes, where they are to have steps of their own, and returns when they do.
    /// A node without one is told; the application starts one there.
    pub(super) fn see_to(&mut self, params: &Params, allocation: &Allocation, nodes: &[String]) {
        if !allocation.wants_agent_steps() || !are_used(params) {
            return;
        }
        let Some(scr) = command_here() else { return };
        let command = [scr, "agent".to_owned()];
        self.steps.retain(|_, step| !step.has_ended());
        let new: Vec<_> = nodes.iter().filter(|node| !self.steps.contains_key(*node)).cloned().collect();
        for node in &new {
            match allocation.on_nodes().start(node, &command) {
                Ok(step) => _ = self.steps.insert(node.clone(), step),
                Err(error) => say(&format!("no agent on node {node}: {error:#}")),
            }
        }
        let until = Instant::now() + LONGEST_START;
        for (node, step) in self.steps.iter_mut().filter(|(node, _)| new.contains(node)) {
            if !step.says_a_line(until.saturating_duration_since(Instant::now())) {
                say(&format!("no agent on node {node}: {}", step.complaint()));
            }
        }
    }

    /// Ends those that have nothing left to do but do not know it. They have been told to.
    pub(super) fn end(&mut self) {
        let until = Instant::now() + LONGEST_END;
        for step in self.steps.values_mut() {
            step.end_within(until.saturating_duration_since(Instant::now()));
        }
        self.steps.clear();
    }
}

/// The transport that agents copy for.
const AGENT: &str = "AGENT";
/// So long is waited for agents that start, and for those that have been told to end.
const LONGEST_START: Duration = Duration::from_secs(30);
const LONGEST_END: Duration = Duration::from_secs(10);
