//! Every tree that C SCR v3.1.0 wrote decodes, prints as C SCR prints it, and encodes to the same bytes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use scr_plugin_api::KvTree;
use std::fs;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = [0x95, 0x1f, 0xc3, 0xf5];

fn job(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/c-scr").join(name)
}

/// All files below a folder, by their path from there.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in scr_plugin_api::paths_in(&folder).unwrap() {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found
}

/// The trees of a job with their bytes in the file. An XOR file has the chunk after its tree.
fn trees(job: &Path) -> Vec<(PathBuf, Vec<u8>, KvTree)> {
    let raw = job.join("raw");
    let mut trees = Vec::new();
    for path in files_below(&raw) {
        let mut bytes = fs::read(raw.join(&path)).unwrap();
        if bytes.starts_with(&MAGIC) {
            let (tree, used) = KvTree::from_file_prefix(&bytes).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            let is_xor = path.to_string_lossy().contains(".xor.");
            assert_eq!(used == bytes.len(), !is_xor, "{path:?}");
            bytes.truncate(used);
            trees.push((path, bytes, tree));
        }
    }
    trees
}

fn check(name: &str, count: usize) {
    let job = job(name);
    let trees = trees(&job);
    assert_eq!(trees.len(), count);
    for (path, bytes, tree) in &trees {
        assert_eq!(&tree.to_file_bytes(), bytes, "{path:?}");
    }
    let texts = files_below(&job.join("text"));
    assert!(!texts.is_empty());
    for text in texts {
        let path = PathBuf::from(text.to_string_lossy().trim_end_matches(".txt").replace('%', "/"));
        let (_, _, tree) = trees.iter().find(|(raw, ..)| *raw == path).unwrap_or_else(|| panic!("{path:?}"));
        assert_eq!(tree.to_text(), fs::read(job.join("text").join(text)).unwrap(), "{path:?}");
    }
}

#[test]
fn the_files_of_a_cached_job_with_xor_come_back_to_the_byte() {
    check("xor-flush2", 48);
}

#[test]
fn the_files_of_a_job_in_bypass_mode_come_back_to_the_byte() {
    check("bypass", 28);
}
