//! The agents of a job's nodes, each in a job step of its own, so that they outlive the application's step under a resource
//! manager that ends all processes of a step.
//!
//! They are started here only if the settings let agents flush and the resource manager's description asks for steps.
//! Elsewhere the first process of a node that flushes starts the agent.

use super::warn;
use crate::environment;
use crate::machine::health::command_here;
use crate::machine::process::Started;
use crate::machine::Allocation;
use scr_config::param::{self, Params};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The agents that this process has started, by their nodes.
#[derive(Default)]
pub(super) struct Agents {
    steps: BTreeMap<String, Started>,
}

/// Whether the settings of a job let agents flush.
pub(super) fn are_configured(params: &Params) -> bool {
    let by_store = || {
        let stores =
            environment::descriptors(params).map(|descriptors| descriptors.stores).unwrap_or_default();
        stores.iter().any(|store| store.flush_by().transport.eq_ignore_ascii_case(AGENT))
    };
    params.get(&param::FLUSH_ASYNC)
        && (params.get(&param::FLUSH_TYPE).eq_ignore_ascii_case(AGENT) || by_store())
}

impl Agents {
    /// Starts an agent on each of these nodes that has none, where agents need job steps of their own, and waits for them.
    /// If that fails it warns; the application starts an agent there.
    pub(super) fn start_missing(&mut self, params: &Params, allocation: &Allocation, nodes: &[String]) {
        if !allocation.wants_agent_steps() || !are_configured(params) {
            return;
        }
        let Some(scr) = command_here() else { return };
        let command = [scr, "agent".to_owned()];
        self.steps.retain(|_, step| !step.has_ended());
        let new: Vec<_> = nodes.iter().filter(|node| !self.steps.contains_key(*node)).cloned().collect();
        for node in &new {
            match allocation.on_nodes().start(node, &command) {
                Ok(step) => _ = self.steps.insert(node.clone(), step),
                Err(error) => warn(&format!("no agent on node {node}: {error:#}")),
            }
        }
        let until = Instant::now() + START_TIMEOUT;
        for (node, step) in self.steps.iter_mut().filter(|(node, _)| new.contains(node)) {
            if !step.prints_a_line(until.saturating_duration_since(Instant::now())) {
                warn(&format!("no agent on node {node}: {}", step.failure()));
            }
        }
    }

    /// Ends the agents that are still there. They have been asked to end.
    pub(super) fn end(&mut self) {
        let until = Instant::now() + END_TIMEOUT;
        for step in self.steps.values_mut() {
            step.end_within(until.saturating_duration_since(Instant::now()));
        }
        self.steps.clear();
    }
}

/// The transport that agents copy for.
const AGENT: &str = "AGENT";
/// How long to wait for agents that start, and for those that have been asked to end.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(10);
