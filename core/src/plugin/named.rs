//! Checks the plugins that descriptors name without loading them: whether they exist, accept the options of the lines, and may be
//! loaded.

use super::host::{PluginHost, PluginLoadError};
use super::manifest::{Manifest, PluginKind};
use super::options::read_given;
use scr_config::descriptor::{meant, Descriptors, Redundancy, Store};
use scr_config::param::{self, normalise, quote, suggest, Line, Origin, Params, Problem};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;
use std::path::Path;

impl Manifest {
    /// The options that a scheme gets for a descriptor.
    ///
    /// # Errors
    /// As for [`options`](Self::options).
    pub(crate) fn options_of(&self, descriptor: &Redundancy) -> Result<KvTree, PluginLoadError> {
        let set_failures = descriptor.set_failures.to_string();
        let given = self.taken(&descriptor.options);
        let of_host = self.option("SET_FAILURES").map(|_| ("SET_FAILURES", set_failures.as_str()));
        self.options(given.chain(of_host))
    }

    /// The options of a line that the plugin takes. The others are reported when a run begins, and ignored.
    pub(crate) fn taken<'a>(
        &'a self,
        options: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let taken = options.iter().filter(|(key, _)| self.option(key).is_some());
        taken.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The options that the plugin gets for what a configuration line gives, completed with the defaults. Names are
    /// those of the manifest.
    ///
    /// # Errors
    /// [`PluginLoadError`] with all that is wrong with them, each naming option, value and what is allowed.
    pub fn options<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<KvTree, PluginLoadError> {
        let read = read_given(&self.options, &format!("the {} {}", self.kind, self.name), given);
        read.map_err(|errors| PluginLoadError::Unusable(errors.join("; ")))
    }
}

/// The faults of the plugins that the descriptors name, as far as it can be seen without loading them. No job starts with what
/// is added to `fatal`: its datasets would be protected by nothing, or would never leave the cache.
pub fn check_plugins(
    host: &PluginHost,
    params: &Params,
    descriptors: &Descriptors,
    fatal: &mut Vec<Problem>,
) -> Vec<Problem> {
    let mut check = Check { host, params, fatal, problems: check_folders(host, params) };
    for descriptor in descriptors.redundancy.all() {
        check.scheme_of(descriptor);
    }
    for store in descriptors.enabled() {
        let mut all = descriptors.redundancy.all().into_iter();
        check.transport_of(store, all.any(|descriptor| !descriptor.bypass && descriptor.store == store.name));
    }
    let mut problems = check.problems;
    // The transport of a store that is used may be that of another one, which is not.
    problems.retain(|problem| !fatal.contains(problem));
    problems
}

struct Check<'a> {
    host: &'a PluginHost,
    params: &'a Params,
    fatal: &'a mut Vec<Problem>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn scheme_of(&mut self, descriptor: &Redundancy) {
        const SO: &str = "; the datasets would not be protected";
        let described = self.params.get(&param::COPY_TYPE) == param::FROM_LINES;
        let is_its = |line: &&Line| described && line.value.parse() == Ok(descriptor.index);
        let line = self.params.lines("CKPT").find(is_its);
        let (origin, name) = match line {
            Some(line) => (&line.origin, format!("CKPT={}", descriptor.index)),
            None => (self.params.origin(&param::COPY_TYPE), param::COPY_TYPE.info().name.to_owned()),
        };
        let checked = self.host.find(PluginKind::Scheme, &descriptor.scheme).and_then(|found| {
            self.keys_of(line, &found.manifest, &descriptor.options);
            found.manifest.options_of(descriptor)?;
            found.check(&self.host.env).map(drop)
        });
        self.add(checked, origin, &name, true, SO);
    }

    /// Without its transport, what goes to a store stays in cache and is lost with the allocation.
    fn transport_of(&mut self, store: &Store, is_used: bool) {
        const SO: &str =
            "; nothing is flushed with it, and what is in cache only is lost with the allocation";
        let is_its = |line: &&Line| normalise(Path::new(&line.value)) == store.path;
        let line = self.params.lines("STORE").find(is_its);
        let (origin, name) = match line {
            Some(line) if line.item("FLUSH").is_some() || !store.options.is_empty() => {
                (&store.origin, format!("STORE={}", store.path.display()))
            }
            _ => (self.params.origin(&param::FLUSH_TYPE), param::FLUSH_TYPE.info().name.to_owned()),
        };
        let checked = self.host.find(PluginKind::Transport, &store.flush).and_then(|found| {
            self.keys_of(line, &found.manifest, &store.options);
            found.manifest.options(found.manifest.taken(&store.options))?;
            found.check(&self.host.env).map(drop)
        });
        self.add(checked, origin, &name, is_used, SO);
    }

    /// Reports the keys of a line that its plugin does not take.
    fn keys_of(&mut self, line: Option<&Line>, manifest: &Manifest, options: &BTreeMap<String, String>) {
        let Some(line) = line else { return };
        let names = || manifest.options.iter().map(|option| option.name.as_str());
        for key in options.keys().filter(|key| manifest.option(key).is_none()) {
            let Manifest { kind, name, .. } = manifest;
            let hint = suggest(&meant(&line.name, key, names()));
            let cause = format!(
                "{}={} has no key {}{hint}, and the {kind} {name} has no such option; it is ignored",
                line.name,
                line.value,
                quote(key)
            );
            self.problems.push(Problem::new(&line.origin_of(key), cause));
        }
    }

    /// Records what is wrong with a plugin that a job needs, or does not. An error that may pass does not stop a run.
    fn add(
        &mut self,
        checked: Result<(), PluginLoadError>,
        origin: &Origin,
        name: &str,
        is_needed: bool,
        so: &str,
    ) {
        let Err(error) = checked else { return };
        let problem = Problem::new(origin, format!("{name}: {}{so}", scr_base::describe(&error)));
        let list = if is_needed && !error.may_pass() { &mut *self.fatal } else { &mut self.problems };
        if !list.contains(&problem) {
            list.push(problem);
        }
    }
}

/// The folders of `SCR_PLUGIN_PATH` that cannot be searched: other plugins may be taken than the user thinks.
fn check_folders(host: &PluginHost, params: &Params) -> Vec<Problem> {
    let folders = params.get(&param::PLUGIN_PATH).unwrap_or_default();
    let discovery = host.discover();
    let skipped = discovery.passed_over.iter().filter(|passed| folders.contains(&passed.path));
    let (origin, name) = (params.origin(&param::PLUGIN_PATH), param::PLUGIN_PATH.info().name);
    skipped.map(|passed| Problem::new(origin, format!("{name}: skipped {passed}"))).collect()
}
