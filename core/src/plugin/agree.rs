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
use crate::typed::broadcast_value;
use scr_base::describe;
use scr_base::env::Trusted;
use scr_comm::collective::{agree_at, broadcast_among};
use scr_comm::{Collective, CollectiveError, Comm, Rank, RankErrors};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

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
    let unusable = |why: RankErrors| why.with(format!("the {kind} {name} cannot be used"));
    let own = (comm.rank() == Rank(0)).then(|| resolve(host, kind, name));
    let notice = own.as_ref().map(|own| match own {
        Ok((found, library)) => Ok(Notice::of(found, library)),
        Err(error) => Err((host.node().to_owned(), describe(error))),
    });
    let notice = broadcast_value(comm, notice)?;
    let notice = notice.map_err(|(node, why)| unusable(RankErrors::on(Rank(0), &node, &why)))?;
    let leads = mates.first().is_none_or(|&first| first == comm.rank());
    let checked = match own {
        Some(Ok(found)) => Some(Ok(found)),
        _ if leads => Some(check_here(host, &notice)),
        _ => None,
    };
    let word = match &checked {
        Some(Ok((_, library))) => check::word(library),
        _ => Vec::new(),
    };
    let word = broadcast_among(comm, mates, word)?;
    let checked = checked.unwrap_or_else(|| take_word(host, &notice, &word));
    let opened = checked.and_then(|(found, library)| OpenPlugin::load(&*host.env.files, &found, &library));
    agree_at(comm, host.node(), opened).or_else(|error| Err(CollectiveError::from(unusable(error.agreed()?))))
}

/// A plugin whose library may be loaded.
type Checked = Result<(FoundPlugin, CheckedLibrary), PluginLoadError>;

fn resolve(host: &PluginHost, kind: PluginKind, name: &str) -> Checked {
    let found = host.find(kind, name)?;
    let library = found.check(&host.env)?;
    Ok((found, library))
}

/// The message of rank 0 on the plugin that it found. The path is the one before symbolic links, which may lead elsewhere
/// on another node; the hash shows whether what lies there is the same.
#[derive(Serialize, Deserialize)]
struct Notice {
    path: OsString,
    manifest: String,
    library: OsString,
    sha256: String,
}

impl Notice {
    fn of(found: &FoundPlugin, library: &CheckedLibrary) -> Self {
        Self {
            path: found.manifest_path.as_os_str().to_owned(),
            manifest: found.text.clone(),
            library: found.library.as_os_str().to_owned(),
            sha256: library.sha256.clone(),
        }
    }

    /// The plugin that rank 0 has chosen.
    fn chosen(&self) -> Result<FoundPlugin, PluginLoadError> {
        let (manifest_path, text) = (PathBuf::from(&self.path), self.manifest.clone());
        let (manifest, _) = Manifest::parse(&manifest_path, &text).map_err(|error| {
            PluginLoadError::Unusable(format!("what rank 0 sent of the plugin cannot be read: {error}"))
        })?;
        Ok(FoundPlugin { manifest, manifest_path, text, library: PathBuf::from(&self.library) })
    }
}

/// Checks that the library is here, and the same as on rank 0.
fn check_here(host: &PluginHost, notice: &Notice) -> Checked {
    let found = notice.chosen()?;
    let library = found.check(&host.env)?;
    if library.sha256 != notice.sha256 {
        return Err(PluginLoadError::Unusable(format!(
            "the library {} is another one than on rank 0 (sha256 {:.12} here, {:.12} there); install the same on all nodes",
            library.path.display(),
            library.sha256,
            notice.sha256
        )));
    }
    Ok((found, library))
}

/// The same with the word of the first rank of this node, if that has found it good and this rank finds the same file.
fn take_word(host: &PluginHost, notice: &Notice, word: &[u8]) -> Checked {
    let env = &host.env;
    match check::checked_by_mate(&*env.files, word, &Trusted::by(env)) {
        Some(library) => Ok((notice.chosen()?, library)),
        None => check_here(host, notice),
    }
}
