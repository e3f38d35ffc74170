//! The plugin host: from a name in the configuration to a scheme, transport or log sink that can be used.

use super::check::{check_library, CheckedLibrary};
use super::checked_scheme::CheckedScheme;
use super::load::load;
use super::manifest::{Manifest, PluginKind};
use super::options::hint;
use super::search::{Discovery, FoundPlugin, PATH_VARIABLE};
use scr_base::env::{Env, Trusted};
use scr_base::fs::{Files, MayPass};
use scr_config::param::{self, Params};
use scr_plugin_api::abi::{LoadedPlugin, API_VERSION};
use scr_plugin_api::{held, KvTree, LogSink, PluginError, Transport};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Finds and opens plugins.
pub struct PluginHost {
    pub(super) env: Env,
    plugin_path: Option<String>,
    /// Made when it is first needed: in a job only rank 0 looks.
    discovery: Mutex<Option<Arc<Discovery>>>,
}

/// Why there is no plugin of a name.
#[derive(Debug, thiserror::Error)]
pub enum PluginLoadError {
    /// Its library cannot be read.
    #[error("cannot read the library {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// There is none, its library must not be loaded or is not what its manifest says, its options are not allowed, or the
    /// plugin itself refuses.
    #[error("{0}")]
    Unusable(String),
}

impl PluginLoadError {
    /// Whether the same may succeed later, as where a file system fails for a moment.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.may_pass())
    }
}

fn searched(discovery: &Discovery) -> String {
    let places: Vec<_> = discovery.places.iter().map(|place| place.folder.display().to_string()).collect();
    let searched = match places.as_slice() {
        [] => format!("there is no folder to look in: set {PATH_VARIABLE} to one with manifests"),
        places => format!("searched {}", places.join(", ")),
    };
    discovery.passed_over.iter().fold(searched, |text, passed| format!("{text}; skipped {passed}"))
}

/// A plugin that is loaded.
pub struct OpenPlugin {
    /// Its manifest.
    pub manifest: Manifest,
    /// The real path of its library.
    pub path: PathBuf,
    plugin: LoadedPlugin,
}

impl PluginHost {
    /// A host that looks into these folders, and those of the installation, when a plugin is first needed. `plugin_path`
    /// is the value of `SCR_PLUGIN_PATH`.
    pub fn new(env: &Env, plugin_path: Option<&str>) -> Self {
        Self { env: env.clone(), plugin_path: plugin_path.map(str::to_owned), discovery: Mutex::default() }
    }

    /// A host that looks where the parameters say.
    pub fn configured(env: &Env, params: &Params) -> Self {
        let path = params.get(&param::PLUGIN_PATH).map(|folders| {
            let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            folders.join(":")
        });
        Self::new(env, path.as_deref())
    }

    /// The node that this process is on, for messages.
    pub(super) fn node(&self) -> &str {
        self.env.variable("SCR_NODE_NAME").unwrap_or(&self.env.host)
    }

    /// The plugins that there are.
    pub fn discover(&self) -> Arc<Discovery> {
        let mut discovery = held(&self.discovery);
        let look = || Arc::new(Discovery::new(&self.env, self.plugin_path.as_deref()));
        discovery.get_or_insert_with(look).clone()
    }

    /// The plugin of a kind and name, in any case, by its manifest. The next call looks again if there is none: a file
    /// system may fail for a moment.
    ///
    /// # Errors
    /// There is none: names the folders, and what was skipped and why.
    pub fn find(&self, kind: PluginKind, name: &str) -> Result<FoundPlugin, PluginLoadError> {
        let discovery = self.discover();
        discovery.find(kind, name).cloned().ok_or_else(|| {
            *held(&self.discovery) = None;
            let (hint, searched) =
                (hint(name, &discovery.names(&[kind]), "there are", ""), searched(&discovery));
            PluginLoadError::Unusable(format!("there is no {kind} plugin named {name}{hint}; {searched}"))
        })
    }

    /// Finds and loads a plugin on this process alone. A job uses [`open_together`](super::open_together).
    ///
    /// # Errors
    /// [`PluginLoadError`].
    pub fn open(&self, kind: PluginKind, name: &str) -> Result<OpenPlugin, PluginLoadError> {
        self.find(kind, name)?.open(&self.env)
    }
}

impl FoundPlugin {
    /// Checks its version of the plugin interface and its library. Nothing of the library runs.
    ///
    /// # Errors
    /// [`PluginLoadError`].
    pub fn check(&self, env: &Env) -> Result<CheckedLibrary, PluginLoadError> {
        let Manifest { kind, ref name, abi, .. } = self.manifest;
        if API_VERSION.works_with(abi) {
            return check_library(&*env.files, &self.library, &Trusted::by(env));
        }
        Err(PluginLoadError::Unusable(format!(
            "{}: the {kind} {name} was built for version {abi} of the plugin interface, and this scr has {API_VERSION}",
            self.manifest_path.display()
        )))
    }

    /// Checks and loads it on this process alone.
    ///
    /// # Errors
    /// [`PluginLoadError`].
    pub fn open(&self, env: &Env) -> Result<OpenPlugin, PluginLoadError> {
        OpenPlugin::load(&*env.files, self, &self.check(env)?)
    }
}

impl OpenPlugin {
    /// Loads a library that has been checked, and compares it with its manifest.
    ///
    /// # Errors
    /// [`PluginLoadError`].
    pub fn load(
        files: &dyn Files,
        found: &FoundPlugin,
        library: &CheckedLibrary,
    ) -> Result<Self, PluginLoadError> {
        let plugin = load(files, library).map_err(PluginLoadError::Unusable)?;
        let open = Self { manifest: found.manifest.clone(), path: library.path.clone(), plugin };
        match open.contradiction() {
            None => Ok(open),
            Some((claimed, has)) => Err(PluginLoadError::Unusable(format!(
                "{}: the manifest says {claimed}, and the library {} {has}; install the two that belong together",
                found.manifest_path.display(),
                open.path.display()
            ))),
        }
    }

    fn contradiction(&self) -> Option<(String, String)> {
        let (kind, format) = (self.manifest.kind, &self.manifest.format);
        let has_kind = match kind {
            PluginKind::Scheme => self.plugin.has_scheme(),
            PluginKind::Transport => self.plugin.has_transport(),
            PluginKind::Log => self.plugin.has_log(),
        };
        if !has_kind {
            return Some((format!("it is a {kind}"), format!("has no {kind}")));
        }
        let (oldest, newest) = self.plugin.formats();
        // The others write nothing that a restart reads.
        (kind == PluginKind::Scheme && (oldest, newest) != (format.oldest, format.newest)).then(|| {
            let claimed = format!("it knows the on-disk formats {} to {}", format.oldest, format.newest);
            (claimed, format!("knows {oldest} to {newest}"))
        })
    }

    /// The oldest on-disk format that it reads and the newest, which it writes.
    pub fn formats(&self) -> (u32, u32) {
        self.plugin.formats()
    }

    /// Its scheme, with options as [`Manifest::options`](super::Manifest::options) gives them.
    ///
    /// # Errors
    /// [`PluginLoadError`] with what the plugin says.
    pub fn scheme(&self, options: &KvTree) -> Result<CheckedScheme, PluginLoadError> {
        let scheme = self.plugin.scheme(&self.who(), options).map_err(|error| self.refused(&error))?;
        Ok(CheckedScheme { scheme, who: self.who(), library: self.path.clone() })
    }

    /// Its transport, with options as [`Manifest::options`](super::Manifest::options) gives them.
    ///
    /// # Errors
    /// [`PluginLoadError`] with what the plugin says.
    pub fn transport(&self, options: &KvTree) -> Result<Box<dyn Transport>, PluginLoadError> {
        self.plugin.transport(&self.who(), options).map_err(|error| self.refused(&error))
    }

    /// Its log sink, with options as [`Manifest::options`](super::Manifest::options) gives them.
    ///
    /// # Errors
    /// [`PluginLoadError`] with what the plugin says.
    pub fn log_sink(&self, options: &KvTree) -> Result<Box<dyn LogSink>, PluginLoadError> {
        self.plugin.log_sink(&self.who(), options).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &PluginError) -> PluginLoadError {
        PluginLoadError::Unusable(format!("{} refuses: {error}", self.who()))
    }

    fn who(&self) -> String {
        format!("the {} {}", self.manifest.kind, self.manifest.name)
    }
}
