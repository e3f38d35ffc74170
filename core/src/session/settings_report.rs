//! What `SCR_DEBUG=1` shows first: every parameter, and the descriptors made of them, as C SCR prints them.

use crate::job::Job;
use crate::param::Value;
use scr_plugin_api::KvTree;
use std::fmt::Write as _;

/// Reports the settings of a run.
pub(super) fn report_settings(job: &Job) {
    for effective in job.params.iter() {
        let shown = match &effective.value {
            Value::Unset => "(null)".to_owned(),
            _ => effective.to_string(),
        };
        job.report.info(&format!("{}={shown}", effective.info.name));
    }
    let tree = job.descriptors.to_tree();
    for (title, key) in [
        ("Group descriptors:", "GROUPS"),
        ("Store descriptors:", "STORE"),
        ("Redundancy descriptors:", "CKPT"),
    ] {
        let mut text = title.to_owned();
        if let Some(below) = tree.get(key).filter(|below| !below.is_empty()) {
            let _ = write!(text, "\n{:INDENT$}{key}", "");
            print(below, INDENT + STEP, &mut text);
        }
        job.report.info(&text);
    }
}

const INDENT: usize = 6;
const STEP: usize = 2;

/// A line for each key, with its value behind it where it has a single one.
fn print(tree: &KvTree, indent: usize, text: &mut String) {
    for (key, below) in tree.iter() {
        let key = String::from_utf8_lossy(key);
        match below.iter().next() {
            Some((value, after)) if below.len() == 1 && after.is_empty() => {
                let _ = write!(text, "\n{:indent$}{key} = {}", "", String::from_utf8_lossy(value));
            }
            _ => {
                let _ = write!(text, "\n{:indent$}{key}", "");
                print(below, indent + STEP, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_behind_their_keys_and_folders_above_what_is_in_them() {
        let mut tree = KvTree::new();
        tree.child("/dev/shm/peer").set("COUNT", 1);
        tree.child("/ssd");
        let mut text = String::new();
        print(&tree, 8, &mut text);
        assert_eq!(text, "\n        /dev/shm/peer\n          COUNT = 1\n        /ssd");
    }
}
