//! Group descriptors: which processes belong together, by the node they run on.
//!
//! `NODE` and `WORLD` are always there. Others come from lines such as `GROUPS=host1 POWER=psu1 SWITCH=0`, one per
//! node or for a list of them. A node is known by `SCR_NODE_NAME` or else by the name of its host.

use super::hostlist::{self, is_same_node, MOST_NODES};
use super::keys::fatal;
use crate::param::{nearest, quote, suggest, Cause, ConfigError, Line, Origin, Params, Problem};
use indexmap::{IndexMap, IndexSet};
use scr_base::ensure;
use scr_base::Rank;
use scr_plugin_api::KvTree;
use std::sync::Arc;

/// All processes on the same node.
pub const NODE: &str = "NODE";
/// All processes of the run.
pub const WORLD: &str = "WORLD";

/// All group descriptors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Groups {
    /// Besides the two that are built in.
    names: IndexSet<String>,
    hosts: IndexMap<String, Arc<Host>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Host {
    values: IndexMap<String, String>,
    /// The names of nodes as the line has them.
    line: String,
    origin: Origin,
}

impl Groups {
    pub(super) fn build(params: &Params, problems: &mut Vec<Problem>) -> Self {
        let mut groups = Self::default();
        for line in params.lines("GROUPS") {
            if line.value.is_empty() {
                problems.push(Problem::new(&line.origin, Cause::Empty { name: line.name.clone() }));
                continue;
            }
            match hostlist::expand(&line.value) {
                Ok(nodes) if groups.hosts.len() + nodes.len() <= MOST_NODES => {
                    groups.add(nodes, line, problems);
                }
                _ => {
                    let expected = "a name or a list of nodes, such as node[1-4,7]";
                    let cause = Cause::malformed(&line.name, &line.value, expected);
                    problems.push(Problem::new(&line.origin, cause));
                }
            }
        }
        groups
    }

    fn add(&mut self, nodes: Vec<String>, line: &Line, problems: &mut Vec<Problem>) {
        let mut values = IndexMap::new();
        for item in &line.items {
            if item.key == NODE || item.key == WORLD {
                let message = format!(
                    "the group {} is made by scr itself and cannot be defined; the entry is ignored",
                    item.key
                );
                problems.push(Problem::new(&line.origin_of(&item.key), message));
                continue;
            }
            self.names.insert(item.key.clone());
            values.insert(item.key.clone(), item.value.clone());
        }
        let host = Arc::new(Host { values, line: line.value.clone(), origin: line.origin.clone() });
        // Of two lines in one file the later one counts, of two sources the first one.
        let file = |host: &Host| host.origin.place().map(|place| place.file.clone());
        let takes = |node: &String| self.hosts.get(node).is_none_or(|earlier| file(&host) == file(earlier));
        let nodes: Vec<_> = nodes.into_iter().filter(takes).collect();
        let earlier = nodes.iter().find_map(|node| Some((node, self.hosts.get(node)?)));
        // A name that stands twice in a file is reported there.
        if let Some((node, earlier)) = earlier.filter(|(_, earlier)| earlier.line != host.line) {
            let message = format!(
                "GROUPS={} has {node}, which GROUPS={} has as well; the later line counts, with all its groups",
                host.line, earlier.line
            );
            problems.push(Problem::new(&line.origin, message));
        }
        self.hosts.extend(nodes.into_iter().map(|node| (node, host.clone())));
    }

    /// The names of all groups, the built-in ones first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [NODE, WORLD].into_iter().chain(self.names.iter().map(String::as_str))
    }

    /// Whether there is a group of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// The value by which a process on `node` is grouped in `group`: processes with the same value belong together.
    ///
    /// # Errors
    /// There is no such group, no line for the node, or the line does not give the group. `rank` is named.
    pub fn value(&self, group: &str, node: &str, rank: Rank) -> Result<String, ConfigError> {
        match group {
            NODE => return Ok(node.to_string()),
            WORLD => return Ok(WORLD.to_string()),
            _ => {}
        }
        let unknown = || fatal(&Origin::Default, self.unknown("the group descriptor", group));
        ensure(self.has(group), unknown)?;
        let host = self.host(node, rank)?;
        host.values.get(group).cloned().ok_or_else(|| {
            let message = format!(
                "the GROUPS line of {node} (rank {rank}) has no value for {group}; add {group}=value to it"
            );
            fatal(&host.origin, message)
        })
    }

    /// The groups as a tree: the name of each host with its groups.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        for (name, host) in &self.hosts {
            let entry = tree.child(name);
            for (group, value) in &host.values {
                entry.set(group, value);
            }
        }
        tree
    }

    /// The line with this very name counts before one that may mean the same.
    fn host(&self, node: &str, rank: Rank) -> Result<&Host, ConfigError> {
        let by_short = || self.hosts.iter().find(|(name, _)| is_same_node(name, node)).map(|(_, host)| host);
        self.hosts.get(node).or_else(by_short).map(|host| &**host).ok_or_else(|| {
            let origin = self.hosts.first().map_or(Origin::Default, |(_, host)| host.origin.clone());
            let message = format!(
                "rank {rank} runs on {node}, for which there is no GROUPS line; add GROUPS={node} with its groups"
            );
            fatal(&origin, message)
        })
    }

    /// The problem of a name that no group has; `name` is what names it.
    pub(super) fn unknown(&self, name: &str, group: &str) -> Cause {
        let known: Vec<_> = self.names().collect();
        let message = format!(
            "{name} names the group {}, which is not defined; the groups are {}{}",
            quote(group),
            known.join(", "),
            suggest(&nearest(group, self.names()))
        );
        message.into()
    }
}
