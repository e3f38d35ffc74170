//! The plugins that descriptors name, by their manifests alone: are they there, and do they take what the lines give them?

use super::host::PluginHost;
use super::manifest::{Manifest, PluginKind};
use super::OptionError;
use crate::descriptor::{Descriptors, Redundancy, Store};
use crate::param::{self, Cause, Origin, Params, Problem};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;

impl Manifest {
    /// The options that a scheme gets for a descriptor.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(crate) fn options_of(&self, descriptor: &Redundancy) -> Result<KvTree, Vec<OptionError>> {
        let set_failures = descriptor.set_failures.to_string();
        let mut given = pairs(&descriptor.options);
        if self.option("SET_FAILURES").is_some() {
            given.push(("SET_FAILURES", &set_failures));
        }
        self.options_from(given)
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
        let why = found.map_err(|error| error.full_text()).and_then(|found| {
            found.manifest.options_of(descriptor).map(drop).map_err(|errors| in_words(&errors))
        });
        why.err().map(|why| problem(origin, name, why))
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
        let why = found.map_err(|error| error.full_text()).and_then(|found| {
            found.manifest.options_from(pairs(&store.options)).map(drop).map_err(|errors| in_words(&errors))
        });
        let found = why.err().map(|why| problem(origin, name, why));
        problems.extend(found.filter(|problem| !problems.contains(problem)));
    }
    problems
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

fn in_words(errors: &[OptionError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn problem(origin: &Origin, name: String, why: String) -> Problem {
    Problem { origin: origin.clone(), cause: Cause::Unusable { name, why } }
}
