//! Checks the plugins that descriptors name by their manifests alone: whether they exist, and accept the options of the lines.

use super::host::{PluginHost, PluginLoadError};
use super::manifest::{Manifest, PluginKind};
use crate::descriptor::{Descriptors, Redundancy, Store};
use crate::param::{self, Cause, Origin, Params, Problem};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;

impl Manifest {
    /// The options that a scheme gets for a descriptor.
    ///
    /// # Errors
    /// [`PluginLoadError::Options`] with all that is wrong with them.
    pub(crate) fn options_of(&self, descriptor: &Redundancy) -> Result<KvTree, PluginLoadError> {
        let set_failures = descriptor.set_failures.to_string();
        let mut given = pairs(&descriptor.options);
        if self.option("SET_FAILURES").is_some() {
            given.push(("SET_FAILURES", &set_failures));
        }
        self.options(given)
    }

    /// The options that a plugin gets for what a configuration line gives.
    ///
    /// # Errors
    /// As for [`options_of`](Self::options_of).
    pub(crate) fn options<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<KvTree, PluginLoadError> {
        self.options_from(given).map_err(|errors| PluginLoadError::Options { errors })
    }
}

/// Options as they were written.
pub(crate) fn pairs(options: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// The problems of the schemes that the descriptors name, by their manifests alone. No job starts with one: its datasets
/// would be protected by nothing.
pub fn check_schemes(host: &PluginHost, params: &Params, descriptors: &Descriptors) -> Vec<Problem> {
    let check = |descriptor: &Redundancy| {
        let (origin, name) = match descriptor.origin.place() {
            Some(_) if params.get(&param::COPY_TYPE) == param::FROM_LINES => {
                (&descriptor.origin, format!("CKPT={}", descriptor.index))
            }
            _ => (params.origin(&param::COPY_TYPE), param::COPY_TYPE.info().name.to_owned()),
        };
        let found = host.find(PluginKind::Scheme, &descriptor.scheme);
        let usable = found.and_then(|found| {
            found.check_version()?;
            found.manifest.options_of(descriptor)
        });
        usable.err().map(|error| problem(origin, name, &error))
    };
    descriptors.redundancy.all().into_iter().filter_map(check).collect()
}

/// The problems of the transports that the stores name, by their manifests alone. Without its transport a dataset stays
/// in cache.
pub fn check_transports(host: &PluginHost, params: &Params, descriptors: &Descriptors) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for store in descriptors.stores.iter().filter(|store| store.enabled) {
        let (origin, name) = flush_of(params, store);
        let found = host.find(PluginKind::Transport, &store.flush);
        let options = found.and_then(|found| found.manifest.options(pairs(&store.options)));
        let found = options.err().map(|error| {
            let error = crate::describe(&error);
            let why = format!(
                "{error}; nothing is flushed with it, and what is in cache only is lost with the allocation"
            );
            Problem { origin: origin.clone(), cause: Cause::Unusable { name, why } }
        });
        problems.extend(found.filter(|problem| !problems.contains(problem)));
    }
    problems
}

/// The folders of `SCR_PLUGIN_PATH` that cannot be searched: other plugins may be taken than the user thinks.
pub fn check_folders(host: &PluginHost, params: &Params) -> Vec<Problem> {
    let folders = params.get(&param::PLUGIN_PATH).unwrap_or_default();
    let discovery = host.discover();
    let skipped = discovery.passed_over.iter().filter(|passed| folders.contains(&passed.path));
    let (origin, name) = (params.origin(&param::PLUGIN_PATH), param::PLUGIN_PATH.info().name);
    let cause = |passed| Cause::Unusable { name: name.to_owned(), why: format!("skipped {passed}") };
    skipped.map(|passed| Problem { origin: origin.clone(), cause: cause(passed) }).collect()
}

/// What names the transport of a store, and where.
fn flush_of<'a>(params: &'a Params, store: &'a Store) -> (&'a Origin, String) {
    match params.lines("STORE").find(|line| line.origin == store.origin) {
        Some(line) if line.item("FLUSH").is_some() || !store.options.is_empty() => {
            (&store.origin, format!("STORE={}", store.path.display()))
        }
        _ => (params.origin(&param::FLUSH_TYPE), param::FLUSH_TYPE.info().name.to_owned()),
    }
}

fn problem(origin: &Origin, name: String, error: &PluginLoadError) -> Problem {
    Problem { origin: origin.clone(), cause: Cause::Unusable { name, why: crate::describe(error) } }
}
