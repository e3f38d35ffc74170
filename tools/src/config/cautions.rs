//! Settings that are valid and probably unwanted: a password that others can read, a group that no node of the job has, a missing
//! folder, settings for the cache in a job that does not use it.

use scr_comm::Rank;
use scr_config::descriptor::{cautions, hostlist, Descriptors, NODE, WORLD};
use scr_config::param::{self, Cause, Origin, Params, Problem};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Facts to know before there is a job.
pub(super) fn find(params: &Params, descriptors: &Descriptors) -> Vec<Problem> {
    let mut problems: Vec<_> = readable_password(params).into_iter().collect();
    problems.extend(cautions(params, descriptors));
    problems.extend(groups_without_nodes(params, descriptors));
    problems
}

fn problem(origin: &Origin, name: &str, why: String) -> Problem {
    Problem { origin: origin.clone(), cause: Cause::Unusable { name: name.to_owned(), why } }
}

fn readable_password(params: &Params) -> Option<Problem> {
    params.get(&param::LOG_DB_PASS)?;
    let origin = params.origin(&param::LOG_DB_PASS);
    let file = &origin.place()?.file;
    let mode = file.metadata().ok()?.permissions().mode();
    let why = format!("others can read the password in {0}; run `chmod go-r {0}'", file.display());
    (mode & OTHERS_READ != 0).then(|| problem(origin, param::LOG_DB_PASS.info().name, why))
}

/// Groups in use that no node of the job has, where its nodes are known.
fn groups_without_nodes(params: &Params, descriptors: &Descriptors) -> Vec<Problem> {
    let nodes =
        params.get(&param::NODELIST).and_then(|list| hostlist::expand(&list).ok()).unwrap_or_default();
    let used = descriptors.redundancy.all().into_iter().map(|redundancy| &redundancy.group);
    let mut used: Vec<_> = used.chain(descriptors.stores.iter().map(|store| &store.group)).collect();
    used.sort();
    used.dedup();
    used.retain(|group| {
        let is_missing = |node: &String| descriptors.groups.value(group, node, Rank(0)).is_err();
        let is_described = *group != NODE && *group != WORLD && descriptors.groups.has(group);
        !nodes.is_empty() && is_described && nodes.iter().all(is_missing)
    });
    let origin = params.origin(&param::NODELIST);
    let why = |group: &String| {
        format!("none of these nodes is in the group {group}, which is in use; add GROUPS lines for them")
    };
    used.into_iter().map(|group| problem(origin, param::NODELIST.info().name, why(group))).collect()
}

/// Base folders that a file sets and that are not there: they may be on the nodes.
pub(super) fn missing_bases(params: &Params) -> Vec<Problem> {
    let bases = [&param::CACHE_BASE, &param::CNTL_BASE].into_iter();
    let missing = bases.filter(|base| params.origin(base).place().is_some() && !params.get(base).exists());
    let why = |path: &Path| {
        format!("there is no folder {} on this host; a job makes it where it may", path.display())
    };
    missing.map(|base| problem(params.origin(base), base.info().name, why(&params.get(base)))).collect()
}

const OTHERS_READ: u32 = 0o044;
