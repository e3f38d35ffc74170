//! Which plugins there are: the manifests in the folders of `SCR_PLUGIN_PATH`, then those of the installation.
//!
//! The first manifest of a kind and name wins, and those that it shadows are remembered. Empty or relative entries are skipped,
//! so the current folder is never searched. Files that others may write are skipped too. Each skip has a reason.

use super::check::{open_trusted, read_all};
use super::manifest::{Manifest, PluginKind, MAX_MANIFEST_BYTES};
use scr_base::env::{Env, Trusted, LIBRARY_FOLDERS};
use scr_base::fs::{File, Kind};
use scr_base::{describe, ensure};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The variable with the folders to look in first.
pub(super) const PATH_VARIABLE: &str = "SCR_PLUGIN_PATH";

/// Everything that a search has seen.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The folders that were searched, in order.
    pub places: Vec<PluginFolder>,
    /// The plugins that can be named, in the order they were found.
    pub found: Vec<FoundPlugin>,
    /// Plugins that an earlier one of the same kind and name hides.
    pub shadowed: Vec<Shadowed>,
    /// The manifests that were skipped, and why.
    pub passed_over: Vec<PassedOver>,
    /// Keys of manifests that this host does not know.
    pub notes: Vec<String>,
}

/// A folder with manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginFolder {
    /// The folder.
    pub folder: PathBuf,
    /// The places for the libraries that its manifests name, in order.
    pub libraries: Vec<PathBuf>,
}

/// A plugin with its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlugin {
    /// Its manifest.
    pub manifest: Manifest,
    /// The path of the manifest.
    pub manifest_path: PathBuf,
    /// The manifest as it is, to be sent to other ranks.
    pub(super) text: String,
    /// Path of its library, which is not checked yet.
    pub library: PathBuf,
}

/// A plugin that cannot be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    /// The plugin.
    pub found: FoundPlugin,
    /// The manifest that came first.
    pub by: PathBuf,
}

/// A folder or manifest that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl std::error::Error for PassedOver {}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        // Errors of manifests begin with the path themselves, and the line.
        match self.path.is_absolute() && self.reason.contains(&path) {
            true => f.write_str(&self.reason),
            false => write!(f, "`{path}': {}", self.reason),
        }
    }
}

impl FoundPlugin {
    /// The plugin whose manifest is this file, under the rules of a search, with what its manifest has besides what this
    /// host knows.
    ///
    /// # Errors
    /// Why a search would pass it over.
    pub fn at(env: &Env, manifest: &Path) -> Result<(Self, Vec<String>), PassedOver> {
        let folder = manifest.parent().unwrap_or(Path::new("/"));
        read(env, &Trusted::by(env), manifest, &place_at(folder))
            .map_err(|error| PassedOver { path: manifest.to_owned(), reason: describe(&*error) })
    }
}

impl Discovery {
    /// Looks into all places. `plugin_path` is the value of `SCR_PLUGIN_PATH`, wherever it was set.
    pub fn new(env: &Env, plugin_path: Option<&str>) -> Self {
        let mut discovery = Self::default();
        for entry in plugin_path.filter(|path| !path.is_empty()).into_iter().flat_map(|path| path.split(':'))
        {
            match place_of(entry) {
                Ok(place) => discovery.places.push(place),
                Err(error) => discovery.pass_over(Path::new(entry), &error),
            }
        }
        discovery.places.extend(installed(env));
        let trusted = Trusted::by(env);
        for place in discovery.places.clone() {
            discovery.look_into(env, &trusted, &place);
        }
        discovery
    }

    /// The plugin of a kind and name, in any case.
    pub fn find(&self, kind: PluginKind, name: &str) -> Option<&FoundPlugin> {
        self.found.iter().find(|found| found.manifest.kind == kind && found.manifest.is_called(name))
    }

    /// The names of the plugins of these kinds, in order.
    pub fn names(&self, kinds: &[PluginKind]) -> Vec<String> {
        let wanted = self.found.iter().filter(|found| kinds.contains(&found.manifest.kind));
        let mut names: Vec<_> = wanted.map(|found| found.manifest.name.clone()).collect();
        names.sort();
        names
    }

    fn look_into(&mut self, env: &Env, trusted: &Trusted, place: &PluginFolder) {
        let manifests = match manifests_in(env, trusted, &place.folder) {
            Ok(manifests) => manifests,
            Err(error) => return self.pass_over(&place.folder, &error),
        };
        for path in manifests {
            match read(env, trusted, &path, place) {
                Ok((found, notes)) => {
                    self.notes.extend(notes);
                    self.add(found);
                }
                Err(error) => self.pass_over(&path, &error),
            }
        }
    }

    fn add(&mut self, found: FoundPlugin) {
        match self.find(found.manifest.kind, &found.manifest.name) {
            // The same file through a folder that is named twice is no second plugin.
            Some(first) if first.manifest_path == found.manifest_path => (),
            Some(first) => {
                let by = first.manifest_path.clone();
                self.shadowed.push(Shadowed { found, by });
            }
            None => self.found.push(found),
        }
    }

    fn pass_over(&mut self, path: &Path, error: &NotTaken) {
        self.passed_over.push(PassedOver { path: path.to_owned(), reason: describe(&**error) });
    }
}

/// Why a folder or a manifest is not taken.
type NotTaken = Box<dyn Error>;

/// The folder of an entry of `SCR_PLUGIN_PATH`.
fn place_of(entry: &str) -> Result<PluginFolder, NotTaken> {
    let folder = Path::new(entry);
    let empty = || format!("an empty entry of {PATH_VARIABLE} is not the current folder; remove it");
    ensure(!entry.is_empty(), empty)?;
    ensure(folder.is_absolute(), || format!("an entry of {PATH_VARIABLE} has to be an absolute path"))?;
    Ok(place_at(folder))
}

/// A folder that somebody names.
fn place_at(folder: &Path) -> PluginFolder {
    let mut libraries = vec![folder.to_owned()];
    if folder.ends_with(MANIFESTS) {
        libraries.extend(folder.ancestors().nth(3).into_iter().flat_map(libraries_of));
    }
    PluginFolder { folder: folder.to_owned(), libraries }
}

/// The folders of the installation.
fn installed(env: &Env) -> Option<PluginFolder> {
    let folder = env.etc()?.join("scr/plugins.d");
    let libraries = libraries_of(env.install_dir.as_deref()?).chain([folder.clone()]).collect();
    Some(PluginFolder { folder, libraries })
}

fn libraries_of(root: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    LIBRARY_FOLDERS.iter().map(|folder| root.join(folder).join("scr/plugins"))
}

const MANIFESTS: &str = "etc/scr/plugins.d";

fn manifests_in(env: &Env, trusted: &Trusted, folder: &Path) -> Result<Vec<PathBuf>, NotTaken> {
    let files = &*env.files;
    let no_folder = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        _ => format!("cannot look into it: {error}"),
    };
    let real = files.real_path(folder).map_err(no_folder)?;
    let status = files.status(&real).map_err(no_folder)?;
    ensure(status.kind == Kind::Dir, || "it is not a folder")?;
    trusted.check(&real, &status)?;
    let names = files.list(&real).map_err(no_folder)?;
    Ok(names.into_iter().filter(|name| is_manifest(name)).map(|name| folder.join(name)).collect())
}

fn is_manifest(name: &Path) -> bool {
    let hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
    !hidden && name.extension().is_some_and(|extension| extension == "toml")
}

fn read(
    env: &Env,
    trusted: &Trusted,
    path: &Path,
    place: &PluginFolder,
) -> Result<(FoundPlugin, Vec<String>), NotTaken> {
    let (file, _, status) = open_trusted(&*env.files, path, trusted)?;
    let text = text_of(&*file, path, status.len)?;
    let (manifest, notes) = Manifest::parse(path, &text)?;
    let library = library_of(env, &manifest, place);
    Ok((FoundPlugin { manifest, manifest_path: path.to_owned(), text, library }, notes))
}

fn text_of(file: &dyn File, path: &Path, len: u64) -> Result<String, NotTaken> {
    let path = path.display();
    ensure(len <= MAX_MANIFEST_BYTES, || format!("{path} is not a manifest: it has {len} bytes"))?;
    let bytes = read_all(file, len).map_err(|error| format!("cannot read {path}: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("{path} is not a manifest: it is not UTF-8").into())
}

/// The library that a manifest names: where it is there, or else where it should be.
fn library_of(env: &Env, manifest: &Manifest, place: &PluginFolder) -> PathBuf {
    let candidates = || place.libraries.iter().map(|folder| folder.join(&manifest.library));
    let there = candidates().find(|path| env.files.status(path).is_ok());
    there.or_else(|| candidates().next()).unwrap_or_else(|| place.folder.join(&manifest.library))
}
