//! The folders of nodes in a cache directory that several nodes see: `node.<n>`, each with the name of its node in it. Parts of
//! one launch have such folders on every node: there the name is that of the node, followed by the id and the path of the prefix
//! directory. Many parts may run on one node with the same ranks and ids of datasets.
//!
//! A number belongs to one node name for as long as the cache directory exists, and no two names share one: the node that
//! creates the folder first has the number. The data in a folder identify themselves, so the name never decides whose data they
//! are. It only leads a node back to its folder.

use crate::job::Job;
use scr_base::fs::{At, Durability, Files, FsError, MayPass, OwnedDir};
use scr_plugin_api::KvTree;
use scr_prefix::PrefixId;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// One node's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeDir {
    number: u64,
    pub(crate) path: PathBuf,
    /// The name in it; `None` where that was never written, or is damaged.
    pub(crate) node: Option<String>,
}

impl NodeDir {
    /// Whether it is one of this node.
    pub(crate) fn is_of(&self, node: &str) -> bool {
        let rest = self.node.as_deref().and_then(|name| name.strip_prefix(node));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// The suffix of a node's name in the names of this job's folders.
pub(crate) fn suffix_of(job: &Job) -> String {
    match job.is_part() {
        true => suffix(job.run.prefix.as_ref(), job.prefix_bytes()),
        false => String::new(),
    }
}

/// The same for a prefix directory.
pub(super) fn suffix(id: Option<&PrefixId>, path: &[u8]) -> String {
    let id = id.map(ToString::to_string).unwrap_or_default();
    format!(" {id} {}", String::from_utf8_lossy(path))
}

/// The folders of nodes in a cache directory, by number. None where there is no such directory.
///
/// # Errors
/// It cannot be listed, or a name cannot be read: whose folder it is decides which checkpoints a node finds.
pub(crate) fn all(files: &dyn Files, cache: &Path) -> Result<Vec<NodeDir>, FsError> {
    let dir_of = |number| {
        let path = cache.join(name_of(number));
        Ok(NodeDir { number, node: read_name(files, &path)?, path })
    };
    numbers(files, cache)?.into_iter().map(dir_of).collect()
}

fn numbers(files: &dyn Files, cache: &Path) -> Result<Vec<u64>, FsError> {
    let names = files.list_if_there(cache)?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The folder that a node has there.
pub(crate) fn find(files: &dyn Files, cache: &Path, node: &str) -> Option<PathBuf> {
    let known = all(files, cache).unwrap_or_default();
    known.into_iter().find(|dir| dir.node.as_deref() == Some(node)).map(|dir| dir.path)
}

/// A cache directory, and the folders of nodes in it: wherever parts of datasets may lie.
///
/// # Errors
/// It cannot be listed.
pub fn places(files: &dyn Files, cache: &Path) -> Result<Vec<PathBuf>, FsError> {
    let nodes = numbers(files, cache)?.into_iter().map(|number| cache.join(name_of(number)));
    Ok(std::iter::once(cache.to_owned()).chain(nodes).collect())
}

/// The node whose folder this is, where it is one and its name is known.
pub(crate) fn node_of(files: &dyn Files, folder: &Path) -> Option<String> {
    number(Path::new(folder.file_name()?))?;
    read_name(files, folder).ok()?
}

/// A folder for each of these nodes: the one that it has, or a new one with a number that nobody has had. Another process
/// that does the same at this moment gets others. The paths come with what could not be written, which costs a node no more than to
/// get another folder next time.
///
/// # Errors
/// A folder cannot be made, or is not the user's own.
pub(crate) fn assign<'n>(
    cache: &OwnedDir,
    uid: u32,
    nodes: impl Iterator<Item = &'n str>,
) -> Result<(BTreeMap<&'n str, PathBuf>, Vec<FsError>), FsError> {
    let (files, path) = (&**cache.files(), cache.path());
    let known = all(files, path)?;
    let mut next = known.last().map_or(0, |last| last.number.saturating_add(1));
    let (mut assigned, mut unnamed) = (BTreeMap::new(), Vec::new());
    for node in nodes {
        let own = known.iter().find(|dir| dir.node.as_deref() == Some(node));
        let path = match own {
            Some(dir) => cache.make_below(Path::new(&name_of(dir.number)), uid)?.path().to_owned(),
            None => {
                let path = make_new(files, path, &mut next)?;
                unnamed.extend(write_name(files, &path, node).err());
                path
            }
        };
        assigned.insert(node, path);
    }
    Ok((assigned, unnamed))
}

/// Makes the folder of the first number that is free, from `next` on.
fn make_new(files: &dyn Files, cache: &Path, next: &mut u64) -> Result<PathBuf, FsError> {
    loop {
        let path = cache.join(name_of(*next));
        *next = next.saturating_add(1);
        match files.make_dir(&path, 0o700) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
            made => return made.at("make the folder", &path).map(|()| path),
        }
    }
}

fn read_name(files: &dyn Files, dir: &Path) -> Result<Option<String>, FsError> {
    match files.read_tree(&dir.join(NAME)) {
        Err(error) if error.may_pass() => Err(error),
        read => Ok(read.ok().flatten().and_then(|tree| tree.text("NODE").map(str::to_owned))),
    }
}

/// Writes the name of a folder into it, so that it is found again.
pub(super) fn write_name(files: &dyn Files, dir: &Path, node: &str) -> Result<(), FsError> {
    let mut tree = KvTree::new();
    tree.set("NODE", node);
    files.write_tree(&dir.join(NAME), &tree, 0o600, Durability::Unsynced)
}

fn name_of(number: u64) -> String {
    format!("{NODE}{number}")
}

/// A name that scr would not give exactly like this does not belong to scr.
fn number(name: &Path) -> Option<u64> {
    let number = name.to_str()?.strip_prefix(NODE)?.parse().ok()?;
    (Path::new(&name_of(number)) == name).then_some(number)
}

const NODE: &str = "node.";
const NAME: &str = ".node";

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use tempfile::TempDir;

    fn assign_in(dir: &TempDir, nodes: &[&str]) -> Vec<String> {
        let uid = rustix::process::getuid().as_raw();
        let (assigned, unnamed) =
            assign(&OwnedDir::at(&RealFiles, dir.path(), uid).unwrap(), uid, nodes.iter().copied()).unwrap();
        assert!(unnamed.is_empty(), "{unnamed:?}");
        let last = |node: &&str| assigned[node].file_name().unwrap().to_str().unwrap().to_owned();
        nodes.iter().map(last).collect()
    }

    #[test]
    fn a_node_finds_its_folder_again_and_a_new_one_never_gets_that_of_another() {
        let dir = TempDir::new().unwrap();
        assert_eq!(assign_in(&dir, &["a", "b"]), ["node.0", "node.1"]);
        assert_eq!(assign_in(&dir, &["spare", "b"]), ["node.2", "node.1"]);
        // One was taken away, with the highest number; one was never named; one is nothing of ours.
        std::fs::remove_dir_all(dir.path().join("node.2")).unwrap();
        std::fs::create_dir(dir.path().join("node.5")).unwrap();
        std::fs::create_dir(dir.path().join("node.007")).unwrap();
        assert_eq!(assign_in(&dir, &["a", "other"]), ["node.0", "node.6"]);
        let places = places(&RealFiles, dir.path()).unwrap();
        let expected = ["", "node.0", "node.1", "node.5", "node.6"].map(|name| dir.path().join(name));
        assert_eq!(places, expected);
    }

    #[test]
    fn nodes_that_come_at_the_same_time_get_different_folders() {
        let dir = TempDir::new().unwrap();
        let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
        let taken: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> =
                names.iter().map(|name| scope.spawn(|| assign_in(&dir, &[name.as_str()]))).collect();
            running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let different: std::collections::BTreeSet<_> = taken.iter().collect();
        assert_eq!(different.len(), 8, "{taken:?}");
        let again: Vec<String> = names.iter().flat_map(|name| assign_in(&dir, &[name.as_str()])).collect();
        assert_eq!(again, taken);
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_not_used() {
        let dir = TempDir::new().unwrap();
        assign_in(&dir, &["a"]);
        std::fs::rename(dir.path().join("node.0"), dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("node.0")).unwrap();
        assert_eq!(assign_in(&dir, &["a"]), ["node.1"]);
    }
}
