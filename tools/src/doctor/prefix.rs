//! The prefix directory: whether a job can write there, and what earlier jobs have left in `.scr`. Nothing is changed.

use super::Check;
use super::Verdict::{Bad, Note};
use crate::machine::write_some;
use crate::prelude::*;
use rustix::fs::statvfs;
use scr_prefix::Summary;
use std::os::unix::fs::MetadataExt;

pub(super) fn check(env: &Env, params: &Params) -> Vec<Check> {
    let path = params.get(&param::PREFIX);
    if !path.exists() {
        return vec![Check::new(Note, SUBJECT, format!("{} is not there; a job makes it", path.display()))];
    }
    let prefix = Prefix::at(&*env.files, &path);
    let mut checks = vec![Check::of(SUBJECT, room(env, &path))];
    let records = prefix.scr_dir();
    if records.exists() {
        checks.push(Check::of(SUBJECT, room(env, &records)));
        checks.extend(locks(env, &records));
        checks.extend(formats(&*env.files, &prefix));
    }
    checks
}

/// Whether this user can write to a folder.
pub(super) fn room(env: &Env, folder: &Path) -> Result<String> {
    let owner = folder.metadata().or_cannot("look at", folder)?.uid();
    let of_other = if owner == env.uid { String::new() } else { format!(", which belongs to user {owner}") };
    let folder_of = format!("{}{of_other}", folder.display());
    write_some(folder).with_context(|| format!("cannot write to {folder_of}"))?;
    let found = statvfs(folder)?;
    Ok(format!("can write to {folder_of}; {} free", amount(found.f_bavail.saturating_mul(found.f_frsize))))
}

/// Locks that a process has left.
fn locks(env: &Env, folder: &Path) -> Vec<Check> {
    let mut locks = paths_in(folder).unwrap_or_default();
    locks.retain(|path| path.extension() == Some(OsStr::new("lock")));
    let age = |path: &Path| Some(environment::now(env) - path.metadata().ok()?.mtime());
    let old = locks.iter().filter_map(|path| Some((path, age(path).filter(|&age| age > LONGEST_HELD)?)));
    let text = |(path, age): (&PathBuf, i64)| {
        let (path, age) = (path.display(), span(Duration::from_secs(age.unsigned_abs())));
        format!("a process that has died, or was stopped, has held {path} for {age}; the next job removes it")
    };
    old.map(|lock| Check::new(Note, SUBJECT, text(lock))).collect()
}

/// Files that this release cannot read, as those of a later one.
fn formats(files: &dyn Files, prefix: &Prefix) -> Vec<Check> {
    let ledger = LedgerDir::new(files, prefix);
    let (index, ids) = (ledger.index_as_it_is(), ledger.next_id());
    let entries = index.as_ref().map(scr_prefix::Index::entries).unwrap_or_default();
    let summaries = entries.iter().filter_map(|entry| Summary::read(files, prefix, entry.id).err());
    let faults = index.err().into_iter().chain(ids.err()).chain(summaries);
    faults.map(|fault| Check::new(Bad, SUBJECT, describe(&fault))).collect()
}

const SUBJECT: &str = "prefix directory";
/// Seconds. Work under a lock takes a fraction of one, or the lock is kept young.
const LONGEST_HELD: i64 = 60;
