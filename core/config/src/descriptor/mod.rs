//! Group, store and redundancy descriptors. See docs/user/configuration.md.
//!
//! Plain data made from the parameters, the same on every rank except for paths in which variables differ. Mistakes are reported
//! with file and line. Only a mistake that would leave data unprotected, or without a store, stops the run.
//!
//! | part | what it is |
//! |---|---|
//! | `group` | which processes belong together |
//! | [`hostlist`] | lists of nodes as text, and whether two names are of one node |
//! | `store` | where datasets can be cached |
//! | `redundancy` | how a dataset is protected, and which datasets that is for |
//! | `keys` | the keys of a descriptor line as typed values |
//! | `meant` | the key that a wrong one stands for |

mod group;
pub mod hostlist;
mod keys;
mod meant;
mod redundancy;
mod store;

pub use group::{Groups, NODE, WORLD};
pub use meant::meant;
pub use redundancy::{protects, Redundancies, Redundancy};
pub use store::{Evict, FlushBy, Store, View};

use crate::param::{self, ConfigError, Origin, Params, Problem};
use scr_plugin_api::KvTree;
use std::path::Path;

/// All descriptors of a run, as one rank sees them.
#[derive(Debug, Clone, PartialEq)]
pub struct Descriptors {
    /// How processes are grouped.
    pub groups: Groups,
    /// The places where datasets can be cached, in the order of their description.
    pub stores: Vec<Store>,
    /// The place of the control directory.
    pub control: Store,
    /// How datasets are protected.
    pub redundancy: Redundancies,
}

impl Descriptors {
    /// Makes the descriptors. Non-fatal problems are added to `problems`, even if it fails: one of them may have caused the
    /// error.
    ///
    /// # Errors
    /// Fatal problems: a group or a store that is not described, or no descriptor for every checkpoint.
    pub fn build(params: &Params, problems: &mut Vec<Problem>) -> Result<Self, ConfigError> {
        let (descriptors, fatal) = Self::of_what_is_good(params, problems);
        ConfigError::unless(fatal, descriptors)
    }

    /// Makes the descriptors as far as possible, so that all the rest can be checked too, and gives what keeps a run from using
    /// them.
    pub fn of_what_is_good(params: &Params, problems: &mut Vec<Problem>) -> (Self, Vec<Problem>) {
        let mut fatal = Vec::new();
        let groups = Groups::build(params, problems);
        let stores = store::build(params, &groups, problems, &mut fatal);
        let control = store::control(params);
        let redundancy = redundancy::build(params, &groups, &stores, problems, &mut fatal);
        (Self { groups, stores, control, redundancy }, fatal)
    }

    /// Whether every dataset goes straight to the prefix directory.
    pub fn all_bypass(&self) -> bool {
        self.redundancy.all().iter().all(|descriptor| descriptor.bypass)
    }

    /// The stores that may be used.
    pub fn enabled(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter().filter(|store| store.enabled)
    }

    /// The store of this name, or else of this path.
    pub fn store(&self, name: &str) -> Option<&Store> {
        let by_name = self.stores.iter().find(|store| store.name == name);
        by_name.or_else(|| self.stores.iter().find(|store| store.path == Path::new(name)))
    }

    /// The descriptors as the debug lines show them: `GROUPS`, `STORE` and `CKPT`, each with its entries.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.put("GROUPS", self.groups.to_tree());
        for store in &self.stores {
            tree.child("STORE").put(&store.name, store.to_tree());
        }
        for redundancy in self.redundancy.all() {
            tree.child("CKPT").put(redundancy.index.to_string(), redundancy.to_tree());
        }
        tree
    }

    /// The part that has to be the same on all ranks, or they would not take the same steps. The folder of a store, the name of a
    /// group and the options of a transport may differ from node to node.
    pub fn common(&self) -> KvTree {
        let mut common = Self { groups: Groups::default(), ..self.clone() };
        common.stores.iter_mut().for_each(|store| store.options.clear());
        common.to_tree()
    }
}

/// Whether SCR is off and calls succeed anyway: files go straight to the prefix directory, regardless of other settings.
pub fn passes_through(params: &Params) -> bool {
    !params.get(&param::ENABLE) && params.get(&param::PASS_THROUGH)
}

/// The message on a run in which every dataset goes straight to the prefix directory.
pub const NOTHING_ON_NODES: &str = "every dataset goes straight to the prefix directory (SCR_CACHE_BYPASS=1): nothing \
                                    is kept on the nodes or protected by them; to use them, set SCR_CACHE_BYPASS=0";

/// Settings that are valid and probably unwanted, as far as they show that before there are nodes.
pub fn cautions(params: &Params, descriptors: &Descriptors) -> Vec<Problem> {
    let mut problems: Vec<_> = check_cache_in_use(params, descriptors).into_iter().collect();
    problems.extend(descriptors.stores.iter().filter_map(|store| check_mixed(descriptors, store)));
    problems
}

/// The problem of a store that keeps one dataset, if that may be a weak one or one that survives the loss of a node.
fn check_mixed(descriptors: &Descriptors, store: &Store) -> Option<Problem> {
    let all = descriptors.redundancy.all();
    let here = || all.iter().filter(|one| !one.bypass && one.store == store.name);
    let weak = here().find(|one| !protects(&one.scheme))?;
    let strong = here().find(|one| protects(&one.scheme))?;
    if store.count > 1 || store.view == View::Global {
        return None;
    }
    let (path, scheme) = (store.path.display(), &strong.scheme);
    let message = format!(
        "STORE={path}: it keeps one dataset (COUNT={}), so the next one of CKPT={} ({}) evicts that of CKPT={} ({scheme}), which survives the loss \
         of a node: write `STORE={path} COUNT=2', or name another store in `CKPT={} STORE=/ssd ...'",
        store.count, weak.index, weak.scheme, strong.index, strong.index
    );
    Some(Problem::new(&store.origin, message))
}

/// The problem of settings for the cache, if every dataset bypasses it and nobody has asked for that.
fn check_cache_in_use(params: &Params, descriptors: &Descriptors) -> Option<Problem> {
    let is_of_lines = params.get(&param::COPY_TYPE) == param::FROM_LINES;
    let is_wanted = params.origin(&param::CACHE_BYPASS).is_set()
        || is_of_lines && params.lines("CKPT").any(|line| line.item("BYPASS").is_some());
    if !descriptors.all_bypass() || is_wanted || passes_through(params) {
        return None;
    }
    let for_cache = [
        param::COPY_TYPE.info(),
        param::CACHE_SIZE.info(),
        param::SET_SIZE.info(),
        param::SET_FAILURES.info(),
    ];
    // A site may say how those flush who use the cache.
    let for_flushes = [
        param::FLUSH.info(),
        param::FLUSH_TYPE.info(),
        param::FLUSH_ASYNC.info(),
        param::ENCODE_ASYNC.info(),
    ];
    let named = |info: &'static param::Info| params.named(info.name);
    let flushes = for_flushes.into_iter().filter_map(named);
    let flushes = flushes.filter(|one| !matches!(one.origin, Origin::SystemFile(_)));
    let parameters = for_cache.into_iter().filter_map(named).chain(flushes);
    let parameters = parameters.map(|one| (&one.origin, one.info.name.to_owned()));
    let stores = params.lines("STORE").map(|line| (&line.origin, format!("STORE={}", line.value)));
    let (origin, name) = parameters.chain(stores).find(|(origin, _)| origin.is_set())?;
    let why = "it has no effect while SCR_CACHE_BYPASS is not 0, because every dataset goes straight to the prefix \
               directory; set SCR_CACHE_BYPASS=0 to use the cache, or SCR_CACHE_BYPASS=1 to say that you do not";
    Some(Problem::new(origin, format!("{name}: {why}")))
}

#[cfg(test)]
mod tests;
