//! Every byte, every name and every folder must be on stable storage before a dataset counts, whoever closes the flush. The
//! tests simulate a power failure right after, which reveals what was not.

use super::stage::{finalize_pending, through, Cached, Stage, OPTIONS};
use crate::flush::{FlushError, Options, SourceFile};
use scr_base::fs::{Durability, Files, How, RealFiles};
use scr_prefix::staging_file;
use scr_test_kit::faulty::{given_up, FaultyFiles, Operation, What};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The paths that a power failure after these operations could destroy: files whose bytes were not synced, and folders whose
/// names were not.
fn at_risk(done: &[Operation]) -> BTreeSet<PathBuf> {
    let mut risk = BTreeSet::new();
    let folder = |path: &Path| path.parent().unwrap().to_owned();
    for Operation { what, path, to, .. } in done.iter().filter(|one| !one.failed) {
        match (what, to) {
            (What::Write | What::Append | What::SetLen, _) => _ = risk.insert(path.clone()),
            // Only of staging files it is known that they are new.
            (What::OpenToWrite, _) if path.extension().is_some_and(|end| end == "part") => {
                risk.insert(folder(path));
            }
            (What::Sync | What::SyncDir, _) => _ = risk.remove(path),
            (What::MakeDir, _) => _ = risk.insert(folder(path)),
            (What::Rename, Some(to)) => {
                if risk.remove(path) {
                    risk.insert(to.clone());
                }
                risk.extend([path, to].map(|path| folder(path)));
            }
            _ => (),
        }
    }
    risk
}

/// Looks at the moment when the dataset begins to count.
fn assert_all_was_safe(stage: &Stage, done: &[Operation], context: &str) {
    let index = stage.prefix.index_file();
    let counts = done.iter().rposition(|one| one.what == What::Rename && one.to.as_ref() == Some(&index));
    let counts = counts.unwrap_or_else(|| panic!("{context}: the index is not written"));
    assert_safe_after(stage, &done[..counts], context);
}

/// Looks at what is not safe after these operations. In `.scr` itself lie the index and locks, which are not of a dataset, and
/// what a dead process was just writing has no name yet.
fn assert_safe_after(stage: &Stage, done: &[Operation], context: &str) {
    let hidden = stage.prefix.scr_dir();
    let mut risk = at_risk(done);
    risk.retain(|path| {
        *path != hidden && path.parent() != Some(&hidden) && path.starts_with(stage.prefix.dir())
    });
    risk.retain(|path| !path.to_string_lossy().contains(".tmp."));
    assert!(risk.is_empty(), "{context}: not synced: {risk:?}");
}

/// The operations of a flush of one dataset of so many ranks, which succeeds.
fn flushed(ranks: u32, in_worker: bool) -> (Stage, Vec<Operation>) {
    let stage = Stage::new(ranks);
    let cached = stage.cache(1, "a");
    let files = FaultyFiles::new(RealFiles);
    let flushed = if in_worker {
        stage.flush_in_background(&files, "1.x", &cached)
    } else {
        stage.flush(&files, &through(&files), "1.x", &cached)
    };
    flushed.unwrap();
    (stage, files.operations())
}

#[test]
fn every_byte_and_every_name_is_synced_before_a_dataset_counts() {
    for (way, in_worker) in [("at once", false), ("in the worker", true)] {
        let (stage, done) = flushed(3, in_worker);
        assert_all_was_safe(&stage, &done, way);
    }
}

/// The names of staging files were not: after a power failure a flush was marked as done of which files were missing.
#[test]
fn every_staging_file_is_safe_before_a_flush_is_marked_as_done() {
    for (way, in_worker) in [("at once", false), ("in the worker", true)] {
        let (stage, done) = flushed(3, in_worker);
        let mark = stage.prefix.scr_file("done.");
        let is_mark = |path: &PathBuf| path.to_string_lossy().starts_with(&*mark.to_string_lossy());
        let marked =
            done.iter().position(|one| one.what == What::Rename && one.to.as_ref().is_some_and(is_mark));
        assert_safe_after(&stage, &done[..marked.expect("there is a mark")], way);
    }
}

/// Without all lists nobody would find the staging files of a flush that was interrupted.
#[test]
fn every_leaf_of_the_file_lists_is_safe_before_a_flush_is_on_record() {
    for (way, in_worker) in [("at once", false), ("in the worker", true)] {
        let (stage, done) = flushed(5, in_worker);
        let renamed_to =
            |one: &Operation, to: &Path| one.what == What::Rename && one.to.as_deref() == Some(to);
        let record = stage.prefix.scr_file("flush.1.x");
        let recorded = done.iter().position(|one| renamed_to(one, &record)).expect("it is on record");
        let lists = ["rank2file.0.0", "rank2file.0.2", "rank2file.0.4", "rank2file.1.0", "rank2file"];
        for list in lists {
            let path = stage.prefix.dataset_dir(1).join(list);
            assert!(done[..recorded].iter().any(|one| renamed_to(one, &path)), "{way}: {list}");
        }
        let mut risk = at_risk(&done[..recorded]);
        risk.retain(|path| path.starts_with(stage.prefix.dataset_dir(1)));
        assert!(risk.is_empty(), "{way}: not synced: {risk:?}");
    }
}

/// Nobody would find the staging files after a power failure.
#[test]
fn the_record_of_a_flush_is_safe_before_any_rank_makes_a_file() {
    for (way, in_worker) in [("at once", false), ("in the worker", true)] {
        let (stage, done) = flushed(5, in_worker);
        let is_part = |path: &Path| path.extension().is_some_and(|end| end == "part");
        let first = done.iter().position(|one| one.what == What::OpenToWrite && is_part(&one.path)).unwrap();
        let record = Some(stage.prefix.scr_file("flush.1.x"));
        assert!(done[..first].iter().any(|one| one.to == record), "{way}: it is on record");
        let risk = at_risk(&done[..first]);
        assert!(!risk.contains(&stage.prefix.scr_dir()), "{way}: not synced: {risk:?}");
    }
}

/// In bypass mode the application has made the files and folders, and has synced none of them.
#[test]
fn files_and_folders_in_place_are_synced_before_a_dataset_counts() {
    let stage = Stage::new(3);
    let cached = stage.cache(1, "a");
    let files = FaultyFiles::new(RealFiles);
    let layer: &dyn Files = &files;
    for file in cached.by_rank.iter().flatten() {
        let path = stage.prefix.file(&file.name);
        layer.make_dirs(path.parent().unwrap(), 0o755, Durability::Unsynced).unwrap();
        layer.open(&path, How::Create(0o644)).unwrap().write_at(0, &cached.bytes[&file.name]).unwrap();
    }
    let options = Options { in_place: true, metadata: false, ..OPTIONS };
    stage.flush_with(&files, &through(&files), "1.x", &cached, options).unwrap();
    assert!(stage.is_listed(1));
    let done = files.operations();
    assert_all_was_safe(&stage, &done, "in place");
    let above = stage.prefix.dir().parent().unwrap();
    let synced = |folder| done.iter().any(|one| one.what == What::SyncDir && one.path == folder);
    assert!(synced(above), "the prefix directory may be new itself");
}

#[test]
fn every_name_is_synced_before_a_dataset_counts_that_the_next_run_finishes() {
    let flush = |stage: &Stage, files: &FaultyFiles| {
        let cached = stage.cache(1, "a");
        let _ = stage.flush(files, &through(files), "1.x", &cached);
    };
    let files = FaultyFiles::new(RealFiles);
    flush(&Stage::new(2), &files);
    let mut finished = 0;
    for at in 1..=files.mutations() {
        let (stage, files) = (Stage::new(2), FaultyFiles::new(RealFiles));
        files.stop_at(at);
        flush(&stage, &files);
        if stage.is_listed(1) {
            continue;
        }
        let again = FaultyFiles::new(RealFiles);
        finalize_pending(&again, &stage.prefix, "now").unwrap();
        if stage.is_listed(1) {
            finished += 1;
            let done = [files.operations(), again.operations()].concat();
            assert_all_was_safe(&stage, &done, &format!("stopped at {at}"));
        }
    }
    assert!(finished > 0);
}

/// The dataset is listed and right, and nothing of it has been given up.
fn assert_none_given_up(stage: &Stage, cached: &Cached, done: &[Operation], context: &str) {
    assert!(stage.is_listed(1) && stage.is_right(cached), "{context}");
    let staging = |file: &SourceFile| staging_file(&stage.prefix.file(&file.name), "1.x");
    let mut lost = given_up(cached.by_rank.iter().flatten().map(staging), done);
    lost.retain(|name| !name.starts_with(stage.prefix.scr_dir()) || *name == stage.prefix.index_file());
    assert!(lost.is_empty(), "{context}: synced again: {lost:?}");
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new(), "{context}");
}

/// The sync was repeated, which succeeds without the names.
#[test]
fn a_name_whose_sync_has_failed_is_made_anew_before_a_dataset_counts() {
    for ranks in [1, 2] {
        let mut failed = BTreeSet::new();
        for at in 1.. {
            let (stage, files) = (Stage::new(ranks), FaultyFiles::new(RealFiles));
            let cached = stage.cache(1, "a");
            files.fail_once(at, ErrorKind::Other);
            let _ = stage.flush(&files, &through(&files), "1.x", &cached);
            let Some(fault) = files.first_failed() else { break };
            let first = stage.prefix.file(&cached.by_rank[0][0].name);
            let is_named = files.operations().iter().any(|one| one.to.as_ref() == Some(&first));
            if fault.what != What::SyncDir || !is_named {
                continue;
            }
            let again = FaultyFiles::new(RealFiles);
            finalize_pending(&again, &stage.prefix, "now").unwrap();
            let done = [files.operations(), again.operations()].concat();
            let folder = fault.path.strip_prefix(stage.prefix.dir()).unwrap_or(&fault.path).to_owned();
            let context = format!("{ranks} ranks, operation {at}, in {}", folder.display());
            assert_none_given_up(&stage, &cached, &done, &context);
            failed.insert(folder);
        }
        // The order of two ranks is another one each time.
        let is_met = |folder: &str| failed.contains(Path::new(folder));
        assert!(ranks > 1 || ["a", "a/more/0"].into_iter().all(is_met), "{failed:?}");
    }
}

#[test]
fn who_ends_a_flush_later_makes_names_anew_whose_sync_has_failed() {
    let mut failed = 0;
    for at in 1.. {
        let stage = Stage::new(2);
        let cached = stage.cache(1, "a");
        stage.stop_before_names(&cached);
        let mut done = Vec::new();
        let mut fault = None;
        for is_faulty in [true, true, false] {
            let files = FaultyFiles::new(RealFiles);
            if is_faulty {
                files.fail_once(at, ErrorKind::Other);
            }
            finalize_pending(&files, &stage.prefix, "now").unwrap();
            done.extend(files.operations());
            fault = fault.or(files.first_failed());
        }
        let Some(fault) = fault else { break };
        if fault.what == What::SyncDir {
            failed += 1;
            assert_none_given_up(&stage, &cached, &done, &format!("operation {at}"));
        }
    }
    assert!(failed >= 5, "{failed} folders");
}

/// The bytes of a file that is in place are not synced twice either, nor is its name.
#[test]
fn a_dataset_in_place_is_given_up_if_a_folder_of_it_cannot_be_synced() {
    for below in ["", "a", "a/more", "a/more/0"] {
        let stage = Stage::new(2);
        let cached = stage.cache(1, "a");
        for file in cached.by_rank.iter().flatten() {
            let path = stage.prefix.file(&file.name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &cached.bytes[&file.name]).unwrap();
        }
        let (files, folder) = (FaultyFiles::new(RealFiles), stage.prefix.dir().join(below));
        let folder = folder.components().collect::<PathBuf>();
        files.only(move |what, path| what == What::SyncDir && path == folder);
        files.fail_once(1, ErrorKind::Other);
        let options = Options { in_place: true, metadata: false, ..OPTIONS };
        let failed = stage.flush_with(&files, &through(&files), "1.x", &cached, options);
        assert!(matches!(failed, Err(FlushError::Unsynced { .. })), "{below}: {failed:?}");
        assert!(!stage.is_listed(1));
    }
}

/// The index was safe and the names were not: what was in the staging files was removed.
#[test]
fn a_listed_dataset_gets_the_names_that_the_power_has_taken() {
    let mut named = 0;
    for at in 1.. {
        let (stage, files) = (Stage::new(2), FaultyFiles::new(RealFiles));
        let cached = stage.cache(1, "a");
        files.stop_at(at);
        let _ = stage.flush(&files, &through(&files), "1.x", &cached);
        if !files.stopped() {
            break;
        }
        if !stage.is_listed(1) {
            continue;
        }
        let is_on_record = stage.prefix.scr_file("done.1.x.0").exists();
        for file in cached.by_rank.iter().flatten().step_by(2) {
            let target = stage.prefix.file(&file.name);
            std::fs::rename(&target, staging_file(&target, "1.x")).unwrap();
        }
        if !is_on_record {
            continue;
        }
        let again = FaultyFiles::new(RealFiles);
        finalize_pending(&again, &stage.prefix, "now").unwrap();
        assert_none_given_up(&stage, &cached, &again.operations(), &format!("stopped at {at}"));
        named += 1;
    }
    assert!(named > 0);
}
