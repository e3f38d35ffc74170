//! The same plugin on every rank, or the same error on every rank.
//!
//! Rank 0 finds the plugin, and sends its manifest, the path of its library, and the hash of that. The others search no folder
//! and read no manifest. The first rank of each node reads and checks the library; the others of the node take its word if they
//! open the very same file. So at the start of many thousand ranks the file system serves little more than one library for each
//! node. If it is missing or different on some node, all ranks get an error that names the rank and the node.

use super::check::{self, CheckedLibrary};
use super::host::{OpenPlugin, PluginHost, PluginLoadError};
use super::manifest::{Manifest, PluginKind};
use super::search::FoundPlugin;
use scr_base::describe;
use scr_base::env::Trusted;
use scr_comm::collective::{agree_at, broadcast_among, broadcast_tree};
use scr_comm::{Collective, CollectiveError, Comm, Rank, RankErrors};
use scr_plugin_api::KvTree;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

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

/// Finds and loads a plugin on all ranks of a job. All of them call it, and all get the same outcome. `mates` are the ranks of
/// this node, in order; each gives the same ones.
///
/// # Errors
/// Which ranks cannot use it, on which nodes, and why.
pub fn open_together(
    comm: &dyn Comm,
    mates: &[Rank],
    host: &PluginHost,
    kind: PluginKind,
    name: &str,
) -> Collective<OpenPlugin> {
    open(comm, mates, host, kind, name).map_err(|error| match error {
        CollectiveError::Ranks(why) => why.with(format!("the {kind} {name} cannot be used")).into(),
        broken @ CollectiveError::Comm(_) => broken,
    })
}

fn open(
    comm: &dyn Comm,
    mates: &[Rank],
    host: &PluginHost,
    kind: PluginKind,
    name: &str,
) -> Collective<OpenPlugin> {
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
    let leads = mates.first().is_none_or(|&first| first == comm.rank());
    let checked = match own {
        Some(Ok(found)) => Some(Ok(found)),
        _ if leads => Some(check_here(host, &notice)),
        _ => None,
    };
    let word = match &checked {
        Some(Ok((_, library))) => check::word(library),
        _ => KvTree::new(),
    };
    let word = broadcast_among(comm, mates, word.pack())?;
    let checked = checked.unwrap_or_else(|| take_word(host, &notice, &word));
    let opened = checked
        .and_then(|(found, library)| Ok(OpenPlugin::load(&found.manifest, &found.manifest_path, &library)?));
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

/// The plugin that rank 0 has chosen.
fn chosen(notice: &KvTree) -> Result<FoundPlugin, HereError> {
    let path = |key| {
        Ok::<_, HereError>(PathBuf::from(OsString::from_vec(required(notice.value(key), key)?.to_vec())))
    };
    let (manifest_path, library) = (path("PATH")?, path("LIBRARY")?);
    let text = required(notice.text("MANIFEST"), "MANIFEST")?.to_owned();
    let (manifest, _) =
        Manifest::parse(&manifest_path, &text).map_err(|error| HereError::Garbled(describe(&error)))?;
    Ok(FoundPlugin { manifest, manifest_path, text, library })
}

fn required<T>(value: Option<T>, key: &str) -> Result<T, HereError> {
    value.ok_or_else(|| HereError::Garbled(format!("{key} is missing")))
}

/// Checks that the library is here, and the same as on rank 0.
fn check_here(host: &PluginHost, notice: &KvTree) -> Result<(FoundPlugin, CheckedLibrary), HereError> {
    let found = chosen(notice)?;
    let expected = required(notice.text("SHA256"), "SHA256")?;
    let library = found.check(host.env())?;
    if library.sha256 != expected {
        let (found, expected) = (library.sha256, expected.to_owned());
        return Err(HereError::Different { path: library.path, found, expected });
    }
    Ok((found, library))
}

/// The same with the word of the first rank of this node, if that has found it good and this rank finds the same file.
fn take_word(
    host: &PluginHost,
    notice: &KvTree,
    word: &[u8],
) -> Result<(FoundPlugin, CheckedLibrary), HereError> {
    let env = host.env();
    let word = KvTree::unpack(word).unwrap_or_default();
    match check::checked_by_mate(&*env.files, &word, &Trusted::by(env)) {
        Some(library) => Ok((chosen(notice)?, library)),
        None => check_here(host, notice),
    }
}

/// As much of a hash as a person compares.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
