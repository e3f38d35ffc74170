//! The same plugin on every rank, or the same error on every rank.
//!
//! Rank 0 finds the plugin, and sends its manifest, the path of its library, and the hash of that. The others search no folder
//! and read no manifest, so at the start of many thousand ranks the file system serves little more than the library itself. If
//! the library is missing or different on some node, all ranks get an error that names the rank and the node.

use super::check::CheckedLibrary;
use super::host::{check, OpenPlugin, PluginHost, PluginLoadError};
use super::manifest::{Manifest, PluginKind};
use super::search::FoundPlugin;
use crate::comm::collective::{agree_at, broadcast_tree};
use crate::comm::{Collective, CollectiveError, Comm, Rank, RankErrors};
use crate::describe;
use scr_plugin_api::KvTree;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Why one rank cannot use what rank 0 found.
#[derive(Debug, thiserror::Error)]
enum HereError {
    #[error(transparent)]
    Load(#[from] PluginLoadError),
    #[error("the library {} is another one than on rank 0 (sha256 {} here, {} there); install the same on all nodes", path.display(), short(found), short(expected))]
    Different { path: PathBuf, found: String, expected: String },
    #[error("what rank 0 sent of the plugin cannot be read: {0}")]
    Garbled(String),
}

/// Finds and loads a plugin on all ranks of a job. All of them call it, and all get the same outcome.
///
/// # Errors
/// Which ranks cannot use it, on which nodes, and why.
pub fn open_together(
    comm: &dyn Comm,
    host: &PluginHost,
    kind: PluginKind,
    name: &str,
) -> Collective<OpenPlugin> {
    open(comm, host, kind, name).map_err(|error| match error {
        CollectiveError::Ranks(why) => why.with(format!("the {kind} {name} cannot be used")).into(),
        broken @ CollectiveError::Comm(_) => broken,
    })
}

fn open(comm: &dyn Comm, host: &PluginHost, kind: PluginKind, name: &str) -> Collective<OpenPlugin> {
    let own = (comm.rank() == Rank(0)).then(|| resolve(host, kind, name));
    let notice = match &own {
        Some(Ok((found, library))) => description(found, library),
        Some(Err(error)) => decline(host, error),
        None => KvTree::new(),
    };
    let notice = broadcast_tree(comm, Rank(0), &notice)?;
    if let Some(why) = notice.text("ERROR") {
        return Err(RankErrors::on(Rank(0), notice.text("NODE").unwrap_or("?"), why).into());
    }
    let opened = match own {
        Some(Ok((found, library))) => {
            OpenPlugin::load(&found.manifest, &found.manifest_path, &library).map_err(HereError::from)
        }
        _ => open_here(host, &notice),
    };
    agree_at(comm, host.node(), opened)
}

fn resolve(
    host: &PluginHost,
    kind: PluginKind,
    name: &str,
) -> Result<(FoundPlugin, CheckedLibrary), PluginLoadError> {
    let found = host.find(kind, name)?;
    let library = found.check(host.env())?;
    Ok((found, library))
}

/// The message of rank 0 on the plugin that it found. The path is the one before symbolic links, which may lead elsewhere
/// on another node; the hash shows whether what lies there is the same.
fn description(found: &FoundPlugin, library: &CheckedLibrary) -> KvTree {
    let mut tree = KvTree::new();
    tree.set_bytes("PATH", found.manifest_path.as_os_str().as_bytes());
    tree.set("MANIFEST", &found.text);
    tree.set_bytes("LIBRARY", found.library.as_os_str().as_bytes());
    tree.set("SHA256", &library.sha256);
    tree
}

fn decline(host: &PluginHost, error: &PluginLoadError) -> KvTree {
    let mut tree = KvTree::new();
    // A name with a NUL cannot travel in a tree.
    tree.set("ERROR", describe(error).replace('\0', "?"));
    tree.set("NODE", host.node().replace('\0', "?"));
    tree
}

/// Loads the plugin that rank 0 has chosen.
fn open_here(host: &PluginHost, notice: &KvTree) -> Result<OpenPlugin, HereError> {
    let path =
        |key| notice.value(key).map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec())));
    let missing = |key: &str| HereError::Garbled(format!("{key} is missing"));
    let manifest_path = path("PATH").ok_or_else(|| missing("PATH"))?;
    let library = path("LIBRARY").ok_or_else(|| missing("LIBRARY"))?;
    let text = notice.text("MANIFEST").ok_or_else(|| missing("MANIFEST"))?;
    let expected = notice.text("SHA256").ok_or_else(|| missing("SHA256"))?;
    let (manifest, _) =
        Manifest::parse(&manifest_path, text).map_err(|error| HereError::Garbled(describe(&error)))?;
    load_same(host, &manifest, &manifest_path, &library, expected)
}

fn load_same(
    host: &PluginHost,
    manifest: &Manifest,
    manifest_path: &Path,
    library: &Path,
    expected: &str,
) -> Result<OpenPlugin, HereError> {
    let checked = check(host.env(), manifest, manifest_path, library)?;
    if checked.sha256 != expected {
        let (found, expected) = (checked.sha256, expected.to_owned());
        return Err(HereError::Different { path: checked.path, found, expected });
    }
    Ok(OpenPlugin::load(manifest, manifest_path, &checked)?)
}

/// As much of a hash as a person compares.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
