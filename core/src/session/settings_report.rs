//! The settings that a run prints first: at `SCR_DEBUG=1` those that somebody has set, and the descriptors made of them, as C SCR
//! prints them; at 2 every parameter.

use crate::job::Job;
use scr_config::descriptor::NOTHING_ON_NODES;
use scr_config::param::Value;
use scr_plugin_api::KvTree;
use std::fmt::Write as _;

/// Reports the settings of a run.
pub(super) fn report_settings(job: &Job) {
    if job.descriptors.all_bypass() {
        job.report.info(NOTHING_ON_NODES);
    }
    for parameter in job.params.iter() {
        let value = match &parameter.value {
            Value::Unset => "(null)".to_owned(),
            _ => parameter.to_string(),
        };
        let line = format!("{}={value}", parameter.info.name);
        match parameter.is_set() {
            true => job.report.info(&line),
            false => job.report.detail(&line),
        }
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

/// A line for each key, followed by its value if it has a single one.
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
    fn values_follow_their_keys_and_folders_precede_their_contents() {
        let mut tree = KvTree::new();
        tree.child("/dev/shm/peer").set("COUNT", 1);
        tree.child("/ssd");
        let mut text = String::new();
        print(&tree, 8, &mut text);
        assert_eq!(text, "\n        /dev/shm/peer\n          COUNT = 1\n        /ssd");
    }
}
