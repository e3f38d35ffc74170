//! Whole fetches in one process: what comes back, what is refused, and what is marked as damaged.

use super::{candidates, Candidate, Fetch, FetchError, Fetched, NotFetched, Options};
use crate::flush::tests::stage::{finalize_arrived, through, Cached, Stage, Through, NOW};
use scr_base::fs::verify::FileError;
use scr_base::fs::{Files, RealFiles};
use scr_comm::thread::run;
use scr_comm::{Comm, Rank};
use scr_plugin_api::Transport;
use scr_prefix::ledger::{in_order, output};
use scr_prefix::{DatasetDescriptor, FileName, Index, Overwritten, Prefix, Seq};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::fixtures::{damage, scratch_copy, ChangeIndex as _};
use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPTIONS: Options = Options {
    width: 256,
    block_bytes: 4096,
    bypass: false,
    checksums: true,
    metadata: true,
    make_current: true,
    global: false,
    writers: None,
};

/// Fetches a dataset to `to/<rank>/`, and checks that the result is the same on all ranks.
fn fetch_with(
    files: &dyn Files,
    prefix: &Prefix,
    ranks: u32,
    candidate: &Candidate,
    to: &Path,
    options: Options,
) -> Result<Vec<OfRank>, FetchError> {
    fetch_over(|_| files, prefix, ranks, candidate, to, options)
}

fn fetch_of<'a>(comm: &'a dyn Comm, files: &'a dyn Files, prefix: &'a Prefix, options: Options) -> Fetch<'a> {
    Fetch { comm, files, node: "n", prefix, now: NOW, mates: None, options, is_there: &|| true, marks: true }
}

/// A dataset that a rank has fetched, and the paths of its copies.
#[derive(Debug)]
struct OfRank {
    fetched: Fetched,
    paths: Vec<PathBuf>,
}

impl Deref for OfRank {
    type Target = Fetched;

    fn deref(&self) -> &Fetched {
        &self.fetched
    }
}

/// The same, each rank over a file layer of its own.
fn fetch_over<'a>(
    files_of: impl (Fn(Rank) -> &'a dyn Files) + Sync,
    prefix: &Prefix,
    ranks: u32,
    candidate: &Candidate,
    to: &Path,
    options: Options,
) -> Result<Vec<OfRank>, FetchError> {
    let all = run(ranks, |comm| {
        let files = files_of(comm.rank());
        let mut paths = Vec::new();
        let folder = to.join(comm.rank().to_string());
        fs::create_dir_all(&folder).unwrap();
        let fetch = Fetch { node: "node0", ..fetch_of(&comm, files, prefix, options) };
        let fetched = fetch.dataset(candidate, &mut |_, _| {
            paths.push(folder.join(paths.len().to_string()));
            Ok(paths[paths.len() - 1].clone())
        });
        fetched.map(|fetched| OfRank { fetched, paths })
    })
    .unwrap();
    let errors: Vec<_> = all.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(errors.is_empty() || errors.len() == all.len(), "{all:?}");
    assert!(errors.windows(2).all(|two| two[0] == two[1]), "{errors:?}");
    all.into_iter().collect()
}

fn flushed(ranks: u32, id: u64, name: &str) -> (Stage, Cached) {
    let stage = Stage::new(ranks);
    let cached = stage.cache(id, name);
    stage.flush_well("x", &cached);
    (stage, cached)
}

fn candidate_of(cached: &Cached) -> Candidate {
    Candidate {
        seq: cached.dataset.seq(),
        name: cached.dataset.name.clone(),
        suspect: false,
        by_time: false,
        is_output: false,
        aggregated: false,
    }
}

fn fetch(stage: &Stage, cached: &Cached) -> Result<Vec<OfRank>, FetchError> {
    let to = stage.dir.path().join("fetched");
    fetch_with(&RealFiles, &stage.prefix, stage.ranks, &candidate_of(cached), &to, OPTIONS)
}

fn assert_right(stage: &Stage, cached: &Cached, fetched: &[OfRank]) {
    assert_eq!(fetched.len(), stage.ranks as usize);
    for (of_rank, files) in fetched.iter().zip(&cached.by_rank) {
        assert_eq!(of_rank.dataset, cached.dataset);
        assert_eq!((of_rank.files.len(), of_rank.paths.len()), (files.len(), files.len()));
        for (file, path) in of_rank.files.iter().zip(&of_rank.paths) {
            let bytes = &cached.bytes[&file.name];
            assert_eq!(&fs::read(path).unwrap(), bytes);
            assert_eq!((file.bytes, file.crc), (bytes.len() as u64, Some(crc32fast::hash(bytes))));
            let original = files.iter().find(|original| original.name == file.name).unwrap();
            assert_eq!(file.mode & 0o777, original.permissions());
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, original.permissions());
        }
    }
}

#[test]
fn flushed_files_are_fetched_byte_for_byte() {
    for ranks in [1, 2, 5, 16] {
        let (stage, cached) = flushed(ranks, 7, "ckpt.7");
        let fetched = fetch(&stage, &cached).unwrap();
        assert_right(&stage, &cached, &fetched);
        assert!(fetched.iter().all(|of_rank| of_rank.verified && of_rank.warning.is_none()));
        let entry = stage.index().entry(7).unwrap();
        assert!(entry.current && entry.fetched == [NOW]);
    }
}

/// Another job, or `scr postrun`, may complete one while a run fetches: all later runs began with the older one.
#[test]
fn a_fetch_takes_nothing_from_a_newer_checkpoint_that_has_become_current_meanwhile() {
    let (stage, cached) = flushed(2, 7, "ckpt.7");
    let newer = stage.cache(8, "ckpt.8");
    stage.flush_well("y", &newer);
    assert_right(&stage, &cached, &fetch(&stage, &cached).unwrap());
    assert_eq!(stage.index().current(), Some(&b"ckpt.8"[..]));
    // One that cannot be restarted from does not stay the current one.
    Index::update(&RealFiles, &stage.prefix, |index| index.mark_failed(8, NOW)).unwrap();
    Index::update(&RealFiles, &stage.prefix, |index| index.set_current("ckpt.8")).unwrap();
    fetch(&stage, &cached).unwrap();
    assert_eq!(stage.index().current(), Some(&b"ckpt.7"[..]));
}

#[test]
fn each_leaf_of_the_file_lists_is_read_by_its_first_rank() {
    let (stage, cached) = flushed(5, 1, "a");
    let of_rank: Vec<_> = (0..5).map(|_| FaultyFiles::new(RealFiles)).collect();
    let to = stage.dir.path().join("to");
    let layers = |rank: Rank| -> &dyn Files { &of_rank[rank.index()] };
    let fetched = fetch_over(layers, &stage.prefix, 5, &candidate_of(&cached), &to, OPTIONS).unwrap();
    assert_right(&stage, &cached, &fetched);
    for (rank, files) in of_rank.iter().enumerate() {
        let opened = files.operations().into_iter().filter(|one| one.what == What::OpenToRead);
        let names = opened.filter_map(|one| one.path.file_name()?.to_str().map(str::to_owned));
        let leaves: Vec<_> = names.filter(|name| name.starts_with("rank2file.0.")).collect();
        let expected = if rank % 2 == 0 { vec![format!("rank2file.0.{rank}")] } else { vec![] };
        assert_eq!(leaves, expected, "rank {rank}");
    }
}

#[test]
fn a_leaf_that_cannot_be_read_fails_the_fetch_on_all_ranks_and_only_damage_marks_it() {
    let (stage, cached) = flushed(5, 1, "a");
    let to = stage.dir.path().join("to");
    let leaf = stage.prefix.dataset_dir(1).join("rank2file.0.2");
    let files = FaultyFiles::new(RealFiles);
    files.count_all();
    files.only_below(&leaf);
    files.fail_from(1, ErrorKind::TimedOut);
    let error = fetch_with(&files, &stage.prefix, 5, &candidate_of(&cached), &to, OPTIONS).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, FetchError::NotFetched { why: NotFetched::Failed { .. }, .. }), "{text}");
    assert!(text.contains("rank 2 on node0: ") && text.contains("rank2file.0.2"), "{text}");
    assert!(!text.contains("rank 3"), "who is listed there has nothing to say: {text}");
    assert!(stage.index().entry(1).unwrap().is_candidate());

    damage(&leaf, |tree| drop(tree.child("RANK").remove("3")));
    let error = fetch(&stage, &cached).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, FetchError::Damaged { .. }), "{text}");
    assert!(text.contains("rank 3 on node0: ") && text.contains("1 of 5 ranks are not listed"), "{text}");
    assert!(!stage.index().entry(1).unwrap().is_candidate());
}

#[test]
fn a_rank_that_two_leaves_list_fails_the_fetch() {
    let (stage, cached) = flushed(5, 1, "a");
    let leaf = stage.prefix.dataset_dir(1).join("rank2file.0.2");
    damage(leaf, |tree| _ = tree.entry("RANK", 1));
    let text = fetch(&stage, &cached).unwrap_err().to_string();
    assert!(text.contains("is damaged") && text.contains("rank 1 is listed twice"), "{text}");
}

#[test]
fn copies_have_the_times_and_permissions_of_their_sources_unless_that_is_switched_off() {
    let (stage, cached) = flushed(2, 1, "a");
    let time = (1_234_567_890, 123_456_789);
    for name in cached.bytes.keys() {
        let file = RealFiles.open(&stage.prefix.file(name), scr_base::fs::How::Update).unwrap();
        file.set_times(time, time).unwrap();
    }
    for metadata in [true, false] {
        let (to, options) =
            (stage.dir.path().join(format!("to.{metadata}")), Options { metadata, ..OPTIONS });
        let fetched = fetch_with(&RealFiles, &stage.prefix, 2, &candidate_of(&cached), &to, options).unwrap();
        for (file, path) in fetched.iter().flat_map(|of_rank| of_rank.files.iter().zip(&of_rank.paths)) {
            let found = fs::metadata(path).unwrap();
            let alike = (found.mtime(), found.mtime_nsec()) == (1_234_567_890, 123_456_789);
            assert_eq!((alike, found.mode() & 0o777 == 0o600), (metadata, !metadata));
            assert_eq!(file.mtime, time, "what is recorded of it");
        }
    }
}

#[test]
fn one_rank_at_a_time_is_enough() {
    let (stage, cached) = flushed(5, 1, "a");
    let (to, options) = (stage.dir.path().join("to"), Options { width: 1, ..OPTIONS });
    let fetched = fetch_with(&RealFiles, &stage.prefix, 5, &candidate_of(&cached), &to, options).unwrap();
    assert_right(&stage, &cached, &fetched);
}

#[test]
fn in_bypass_mode_the_files_stay_where_they_are() {
    let (stage, cached) = flushed(3, 1, "a");
    let options = Options { bypass: true, ..OPTIONS };
    let fetch = || {
        let to = stage.dir.path().join("to");
        fetch_with(&RealFiles, &stage.prefix, 3, &candidate_of(&cached), &to, options)
    };
    let is_copied = |of_rank: &OfRank| of_rank.files.is_empty() || !of_rank.paths.is_empty();
    assert!(!fetch().unwrap().iter().any(is_copied));
    fs::remove_file(stage.prefix.file(&"a/rank_2".parse().unwrap())).unwrap();
    assert!(matches!(fetch(), Err(FetchError::Damaged { .. })));
}

#[test]
fn checksums_are_compared_in_cache_and_in_place_unless_they_are_switched_off() {
    let (stage, cached) = flushed(3, 1, "a");
    let path = stage.prefix.file(&"a/rank_1".parse().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 4;
    fs::write(&path, bytes).unwrap();
    for bypass in [false, true] {
        let fetch = |checksums| {
            let to = stage.dir.path().join(format!("to.{bypass}.{checksums}"));
            let options = Options { bypass, checksums, ..OPTIONS };
            fetch_with(&RealFiles, &stage.prefix, 3, &candidate_of(&cached), &to, options)
        };
        let error = fetch(true).unwrap_err().to_string();
        assert!(error.contains("a/rank_1 is damaged: its checksum"), "{error}");
        assert!(fetch(false).unwrap().iter().all(|of_rank| !of_rank.verified));
    }
}

/// No part of a block became a hole if there was a byte in it.
#[test]
fn a_hole_stays_a_hole_however_little_lies_between_it_and_the_next_one() {
    let stage = Stage::new(1);
    let mut cached = stage.cache(1, "a");
    let len = (8 << 20) + 3000;
    let file = &mut cached.by_rank[0][0];
    let source = fs::OpenOptions::new().write(true).truncate(true).open(&file.source).unwrap();
    source.set_len(len).unwrap();
    for place in (0..len - (1 << 20)).step_by(100_000) {
        source.write_all_at(b"data", place).unwrap();
    }
    let bytes = fs::read(&file.source).unwrap();
    cached.dataset.bytes = cached.dataset.bytes.map(|sum| sum - file.bytes + len);
    let record = &mut file.record;
    (record.bytes, record.crc) = (len, Some(crc32fast::hash(&bytes)));
    cached.bytes.insert(file.name.clone(), bytes);
    stage.flush_well("x", &cached);
    let to = stage.dir.path().join("to");
    let options = Options { block_bytes: 1 << 20, ..OPTIONS };
    let fetched = fetch_with(&RealFiles, &stage.prefix, 1, &candidate_of(&cached), &to, options).unwrap();
    assert_right(&stage, &cached, &fetched);
    let copy = fetched[0].files.iter().position(|file| file.bytes == len).unwrap();
    assert!(fs::metadata(&fetched[0].paths[copy]).unwrap().blocks() * 512 < len / 4);
}

/// The accidents of a dataset between two runs.
type Damage = fn(&Stage);

fn damages() -> Vec<(&'static str, Damage)> {
    vec![
        ("a/rank_1 is missing", |stage| {
            fs::remove_file(stage.prefix.file(&"a/rank_1".parse().unwrap())).unwrap();
        }),
        ("were recorded", |stage| {
            fs::write(stage.prefix.file(&"a/rank_1".parse().unwrap()), b"short").unwrap();
        }),
        ("checksum", |stage| {
            let path = stage.prefix.file(&"a/rank_1".parse().unwrap());
            let mut bytes = fs::read(&path).unwrap();
            bytes[700] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("is not a regular file", |stage| {
            let path = stage.prefix.file(&"a/rank_1".parse().unwrap());
            fs::remove_file(&path).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("summary.scr is missing", |stage| fs::remove_file(stage.prefix.summary_file(1)).unwrap()),
        ("summary.scr is damaged", |stage| fs::write(stage.prefix.summary_file(1), b"no tree").unwrap()),
        ("summary.scr says that it is not complete", |stage| {
            damage(stage.prefix.summary_file(1), |tree| tree.set("COMPLETE", 0));
        }),
        ("rank2file is missing", |stage| fs::remove_file(stage.prefix.rank2file(1)).unwrap()),
        ("rank2file.0.0", |stage| {
            let path = stage.prefix.dataset_dir(1).join("rank2file.0.0");
            let bytes = fs::read(&path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
    ]
}

/// A newer dataset was begun, and may have been writing to the same files when its job died.
#[test]
fn possibly_replaced_files_are_compared_by_checksum_even_if_that_is_off() {
    let (stage, cached) = flushed(2, 1, "a");
    let path = stage.prefix.file(&"a/rank_0".parse().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[1] ^= 1;
    fs::write(&path, bytes).unwrap();
    Index::update(&RealFiles, &stage.prefix, |index| {
        let begun = DatasetDescriptor { id: 2, name: b"b".to_vec(), checkpoint: true, ..Default::default() };
        index.record(&begun, false);
    })
    .unwrap();
    let list = run(2, |comm| candidates(&comm, &RealFiles, &stage.prefix, None).unwrap().list).unwrap();
    let options = Options { checksums: false, bypass: true, ..OPTIONS };
    let fetch = |candidate: &Candidate| {
        fetch_with(&RealFiles, &stage.prefix, 2, candidate, stage.dir.path(), options)
    };
    assert!(fetch(&candidate_of(&cached)).is_ok());
    assert_eq!(list[0].iter().map(Candidate::name_text).collect::<Vec<_>>(), ["a"]);
    assert!(matches!(fetch(&list[0][0]), Err(FetchError::Damaged { .. })));
}

/// A file without a checksum counts only if nobody can have changed it: neither its time nor a record may say so.
#[test]
fn files_without_checksums_count_only_if_they_are_surely_those_of_the_dataset() {
    let (dir, prefix) = scratch_copy("xor-flush2");
    let name: FileName = "ckpt.4/rank_2.ckpt".parse().unwrap();
    let listed = fs::metadata(prefix.summary_file(4)).unwrap();
    let listed = (listed.mtime(), listed.mtime_nsec() as u32);
    let change_at = |name: &FileName, time| {
        let file = RealFiles.open(&prefix.file(name), scr_base::fs::How::Update).unwrap();
        file.set_times(time, time).unwrap();
    };
    for rank in 0..4 {
        change_at(&format!("ckpt.4/rank_{rank}.ckpt").parse().unwrap(), listed);
    }
    let fetch = |by_time| {
        let (seq, name) = (Seq { run: 0, id: 4 }, b"ckpt.4".to_vec());
        let candidate = Candidate { seq, name, suspect: true, by_time, is_output: false, aggregated: false };
        let fetched = fetch_with(&RealFiles, &prefix, 4, &candidate, &dir.path().join("to"), OPTIONS);
        assert!(Index::read(&RealFiles, &prefix).unwrap().entry(4).unwrap().failed.is_none());
        match fetched {
            Ok(fetched) => {
                let bytes = fetched.iter().map(|of_rank| fs::read(&of_rank.paths[0]).unwrap());
                assert_eq!(bytes.collect::<Vec<_>>(), original(&prefix, 4));
                true
            }
            Err(error) => {
                assert!(matches!(error, FetchError::NotFetched { why: NotFetched::Unproven, .. }), "{error}");
                false
            }
        }
    };
    assert!(fetch(true), "as old as the record of the dataset");
    change_at(&name, (listed.0 + 1, listed.1));
    assert_eq!((fetch(true), fetch(false)), (false, true), "changed later");
    change_at(&name, listed);
    for (by, counts) in [(3, true), (5, false)] {
        Overwritten::record(&RealFiles, &prefix, &name, Seq { run: 0, id: by }).unwrap();
        assert_eq!((fetch(true), fetch(false)), (counts, counts), "written over for dataset {by}");
    }
}

/// Every copy of a file that several ranks have is compared with the checksum.
#[test]
fn each_copy_of_a_file_of_several_ranks_is_compared() {
    let stage = Stage::new(2);
    let mut cached = stage.cache(1, "a");
    let shared = cached.by_rank[1][0].clone();
    let replaced = std::mem::replace(&mut cached.by_rank[0][0], shared.clone());
    cached.dataset.files = Some(3);
    cached.dataset.bytes = cached.dataset.bytes.map(|sum| sum - replaced.bytes);
    stage.flush_well("x", &cached);
    let path = stage.prefix.file(&shared.name);
    let options = Options { width: 1, ..OPTIONS };
    let all = run(2, |comm| {
        let (prefix, rank) = (&stage.prefix, comm.rank());
        let fetch = fetch_of(&comm, &RealFiles, prefix, options);
        fetch.dataset(&candidate_of(&cached), &mut |_, file| {
            if rank == Rank(1) && file.name == shared.name {
                let mut bytes = fs::read(&path).unwrap();
                bytes[3] ^= 1;
                fs::write(&path, bytes).unwrap();
            }
            Ok(stage.dir.path().join(format!("copy.{rank}.{}", String::from_utf8_lossy(file.name.base()))))
        })
    });
    for outcome in all.unwrap() {
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("rank 1 on n: ") && !text.contains("rank 0 on n: "), "{text}");
    }
}

#[test]
fn only_complete_output_that_is_no_checkpoint_is_read_back_as_output() {
    let mut index = Index::new();
    for (id, checkpoint, complete) in [(1, false, true), (2, false, false), (3, true, true)] {
        let name = format!("out.{id}").into_bytes();
        let dataset = DatasetDescriptor { id, name, checkpoint, output: true, ..Default::default() };
        index.record(&dataset, complete);
    }
    let found = output(&index, b"out.1").unwrap();
    assert!(found.is_output && found.seq.id == 1 && found.name == b"out.1");
    assert!(["out.2", "out.3", "out.4"].iter().all(|name| output(&index, name.as_bytes()).is_none()));
    let checkpoints = in_order(&index, None).list;
    assert!(checkpoints.iter().all(|one| !one.is_output) && checkpoints[0].name == b"out.3");
}

#[test]
fn a_run_that_begins_fresh_names_up_to_three_checkpoints_and_counts_the_others() {
    let mut index = Index::new();
    for (id, more) in [(1, None), (2, None), (3, None), (4, Some("and 1 more")), (5, Some("and 2 more"))] {
        let name = format!("ckpt.{id}").into_bytes();
        let begun = DatasetDescriptor { id, name, checkpoint: true, ..Default::default() };
        index.record(&begun, false);
        let none = in_order(&index, None).none.unwrap();
        assert_eq!(none.matches("it is not complete").count() as u64, id.min(3), "{none}");
        assert_eq!(none.split("; ").find(|part| part.contains(" more")), more, "{none}");
    }
}

#[test]
fn a_damaged_dataset_is_reported_marked_and_skipped_from_then_on() {
    for (expected, damage) in damages() {
        let (stage, cached) = flushed(3, 1, "a");
        damage(&stage);
        let error = fetch(&stage, &cached).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, FetchError::Damaged { .. }), "{expected}: {text}");
        assert!(text.starts_with("dataset a is damaged and is marked as failed: "), "{text}");
        assert!(text.contains(expected), "{expected}: {text}");
        let entry = stage.index().entry(1).unwrap();
        assert_eq!(entry.failed.as_deref(), Some(NOW), "{expected}");
        assert_eq!(stage.index().candidates(), []);
    }
}

#[test]
fn a_run_with_another_number_of_ranks_marks_nothing() {
    let (stage, cached) = flushed(4, 1, "a");
    for ranks in [1, 3, 5] {
        let to = stage.dir.path().join("to");
        let error =
            fetch_with(&RealFiles, &stage.prefix, ranks, &candidate_of(&cached), &to, OPTIONS).unwrap_err();
        let expected = format!(
            "dataset a was written by 4 ranks and this run has {ranks}; run with 4 ranks to restart from it"
        );
        assert_eq!(error.to_string(), expected);
        assert!(stage.index().entry(1).unwrap().is_candidate());
    }
    assert!(fetch(&stage, &cached).is_ok());
}

/// One run with an older release took it away from all others.
#[test]
fn a_file_of_a_later_release_is_reported_and_marks_nothing() {
    let (stage, cached) = flushed(3, 1, "a");
    damage(stage.prefix.summary_file(1), |tree| tree.set("VERSION", 8));
    let error = fetch(&stage, &cached).unwrap_err();
    assert!(matches!(error, FetchError::NotFetched { why: NotFetched::Failed { .. }, .. }), "{error}");
    assert!(error.to_string().contains("this one reads 6"), "{error}");
    assert!(stage.index().entry(1).unwrap().is_candidate());
}

#[test]
fn a_dataset_that_has_another_name_in_its_summary_is_not_fetched_for_the_one_that_is_wanted() {
    let (stage, cached) = flushed(3, 1, "a");
    damage(stage.prefix.summary_file(1), |tree| tree.child("DSET").set("NAME", "b"));
    let error = fetch(&stage, &cached).unwrap_err();
    assert!(matches!(error, FetchError::NotFetched { why: NotFetched::Failed { .. }, .. }), "{error}");
    assert!(error.to_string().contains("is that of the dataset `b'"), "{error}");
}

#[test]
fn a_full_cache_marks_nothing() {
    let (stage, cached) = flushed(3, 1, "a");
    let to = stage.dir.path().join("to");
    for at in 1.. {
        let files = FaultyFiles::new(RealFiles);
        files.only_below(&to);
        files.fail_once(at, ErrorKind::StorageFull);
        let fetched = fetch_with(&files, &stage.prefix, 3, &candidate_of(&cached), &to, OPTIONS);
        assert!(stage.index().entry(1).unwrap().is_candidate());
        match fetched {
            Ok(fetched) => return assert_right(&stage, &cached, &fetched),
            Err(error) => assert!(
                matches!(error, FetchError::NotFetched { why: NotFetched::Failed { .. }, .. }),
                "{error}"
            ),
        }
    }
}

#[test]
fn a_prefix_that_cannot_be_written_can_be_fetched_from() {
    let (stage, cached) = flushed(3, 1, "a");
    let files = FaultyFiles::new(RealFiles);
    files.only_below(stage.prefix.dir());
    files.fail_from(1, ErrorKind::ReadOnlyFilesystem);
    let to = stage.dir.path().join("to");
    let fetched = fetch_with(&files, &stage.prefix, 3, &candidate_of(&cached), &to, OPTIONS).unwrap();
    assert_right(&stage, &cached, &fetched);
    assert!(fetched[0].warning.as_ref().unwrap().contains("could not be recorded in the index"));
}

#[test]
fn all_ranks_report_a_full_cache() {
    let (stage, cached) = flushed(3, 1, "a");
    let all = run(3, |comm| {
        let prefix = &stage.prefix;
        let fetch = fetch_of(&comm, &RealFiles, prefix, OPTIONS);
        let folder = stage.dir.path().join(format!("to.{}", comm.rank()));
        fs::create_dir(&folder).unwrap();
        let mut number = 0;
        let outcome = fetch.dataset(&candidate_of(&cached), &mut |dataset, file| {
            assert_eq!(dataset.id, 1);
            number += 1;
            match comm.rank().0 {
                1 => Err(FileError::BaseName { name: file.name.to_string() }),
                _ => Ok(folder.join(number.to_string())),
            }
        });
        outcome.unwrap_err().to_string()
    })
    .unwrap();
    assert!(all.iter().all(|text| text.contains("dataset a was not fetched: rank 1 on n: `a/")));
}

/// The files that C SCR flushed, in the order of the ranks.
fn original(prefix: &Prefix, id: u64) -> Vec<Vec<u8>> {
    (0..4).map(|rank| fs::read(prefix.dir().join(format!("ckpt.{id}/rank_{rank}.ckpt"))).unwrap()).collect()
}

#[test]
fn datasets_of_c_scr_are_fetched_newest_first() {
    for (job, ids) in [("xor-flush2", &[4, 2][..]), ("bypass", &[4, 3, 2, 1])] {
        let (dir, prefix) = scratch_copy(job);
        let found = run(4, |comm| candidates(&comm, &RealFiles, &prefix, None).unwrap()).unwrap();
        for of_rank in &found {
            assert_eq!(of_rank.list.iter().map(|candidate| candidate.seq.id).collect::<Vec<_>>(), ids);
        }
        for candidate in &found[0].list {
            let to = dir.path().join(format!("to.{}", candidate.seq.id));
            let fetched = fetch_with(&RealFiles, &prefix, 4, candidate, &to, OPTIONS).unwrap();
            let bytes: Vec<_> = fetched.iter().map(|of_rank| fs::read(&of_rank.paths[0]).unwrap()).collect();
            assert_eq!(bytes, original(&prefix, candidate.seq.id));
            // C SCR keeps neither sizes nor checksums of the single files.
            assert!(fetched.iter().all(|of_rank| !of_rank.verified));
        }
    }
}

#[test]
fn without_sizes_at_least_the_sum_must_be_right() {
    let (dir, prefix) = scratch_copy("xor-flush2");
    fs::write(prefix.file(&"ckpt.4/rank_2.ckpt".parse().unwrap()), b"short").unwrap();
    let candidate = Candidate {
        seq: Seq { run: 0, id: 4 },
        name: b"ckpt.4".to_vec(),
        suspect: false,
        by_time: false,
        is_output: false,
        aggregated: false,
    };
    let to: PathBuf = dir.path().join("to");
    let error = fetch_with(&RealFiles, &prefix, 4, &candidate, &to, OPTIONS).unwrap_err();
    assert!(error.to_string().contains("where 4 files with 8226 bytes were recorded"), "{error}");
    assert!(Index::read(&RealFiles, &prefix).unwrap().entry(4).unwrap().failed.is_some());
}

/// The index cannot be used, and is not damaged, so that nothing is written in its place: a new index might lack some.
#[test]
fn all_ranks_report_an_index_that_cannot_be_read_or_is_of_a_later_version() {
    let all_fail = |files: &dyn Files, prefix: &Prefix, words: &[&str]| {
        let before = fs::read(prefix.index_file()).unwrap();
        let all = run(3, |comm| candidates(&comm, files, prefix, None).unwrap_err()).unwrap();
        let may_pass = |error: &FetchError| matches!(error, FetchError::Index { is_damaged: false, .. });
        assert!(all.iter().all(may_pass), "{all:?}");
        assert!(words.iter().all(|word| all[0].to_string().contains(word)), "{all:?}");
        assert!(all.windows(2).all(|two| two[0] == two[1]));
        assert!(fs::read(prefix.index_file()).unwrap() == before);
    };
    let (stage, _) = flushed(3, 1, "a");
    let files = FaultyFiles::new(RealFiles);
    files.never_pause();
    files.count_all();
    files.only_below(stage.prefix.index_file());
    files.fail_from(1, ErrorKind::TimedOut);
    all_fail(&files, &stage.prefix, &["index.scr"]);
    let real: &dyn Files = &RealFiles;
    let mut tree = real.read_tree(&stage.prefix.index_file()).unwrap().unwrap();
    tree.set("VERSION", 3);
    fs::write(stage.prefix.index_file(), tree.to_file_bytes()).unwrap();
    all_fail(&RealFiles, &stage.prefix, &["index.scr", "3"]);
}

/// It listed nothing any more, so that a run began without a checkpoint.
#[test]
fn a_damaged_index_is_replaced_and_lists_the_datasets_for_all_ranks() {
    let (stage, cached) = flushed(3, 1, "a");
    fs::write(stage.prefix.index_file(), b"no tree").unwrap();
    let all = run(3, |comm| candidates(&comm, &RealFiles, &stage.prefix, None).unwrap()).unwrap();
    let suspect = |found: &Candidate| found.seq.id == 1 && found.suspect;
    assert!(all.iter().all(|found| matches!(&found.list[..], [one] if suspect(one))), "{all:?}");
    assert!(all.windows(2).all(|two| two[0] == two[1]) && stage.is_right(&cached));
}

#[test]
fn the_transports_need_not_take_checksums_for_a_verified_fetch() {
    let stage = Stage::new(2);
    let mut cached = stage.cache(1, "a");
    cached.by_rank.iter_mut().flatten().for_each(|file| file.record.crc = None);
    let mut transport = Through::new(RealFiles);
    transport.takes_checksums = false;
    let transport: Arc<dyn Transport> = Arc::new(transport);
    stage.flush(&RealFiles, &transport, "x", &cached).unwrap();
    assert!(fetch(&stage, &cached).unwrap().iter().all(|of_rank| of_rank.verified));
}

/// A flush that had arrived was closed in the middle, and half of what was fetched was the newer dataset's.
#[test]
fn files_that_are_replaced_while_they_are_fetched_are_not_taken() {
    let begun = |at: u64| {
        let (stage, older) = flushed(2, 1, "a");
        let newer = stage.cache(2, "a");
        let files = FaultyFiles::new(RealFiles);
        files.stop_at(at);
        let _ = stage.flush(&files, &through(&files), "2.x", &newer);
        (stage, older, newer)
    };
    let has_arrived = |stage: &Stage| stage.prefix.scr_file("done.2.x.0").exists() && stage.is_listed(1);
    let (stage, older, newer) = (1..).map(begun).find(|(stage, ..)| has_arrived(stage)).unwrap();
    assert!(stage.is_right(&older));
    let kept = stage.keep();
    let stage = Arc::new(stage);
    let (to, options) = (stage.dir.path().join("to"), Options { checksums: false, ..OPTIONS });
    for at in 1.. {
        stage.put_back(&kept);
        let files = FaultyFiles::new(RealFiles);
        files.count_all();
        files.only_below(stage.prefix.dir().join("a"));
        let theirs = Arc::clone(&stage);
        files.interrupt_at(at, move || {
            finalize_arrived(&RealFiles, &theirs.prefix, NOW).unwrap();
            assert!(theirs.is_listed(2));
        });
        let fetched = fetch_with(&files, &stage.prefix, 2, &candidate_of(&older), &to, options);
        let was_interrupted = files.was_interrupted();
        match fetched {
            Ok(fetched) => assert_right(&stage, &older, &fetched),
            Err(_) => assert!(was_interrupted && stage.is_right(&newer), "interrupted at {at}"),
        }
        if !was_interrupted {
            assert!(at > 6, "nothing was interrupted");
            return;
        }
    }
}

/// It was fetched as if nobody had begun to replace its files.
#[test]
fn a_dataset_whose_files_may_be_replaced_is_not_fetched_without_the_time_of_its_flush() {
    let (stage, cached) = flushed(2, 1, "a");
    let candidate = Candidate { suspect: true, ..candidate_of(&cached) };
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Status && path.ends_with("summary.scr"));
    files.count_all();
    // The first one is that of the open file.
    files.fail_once(2, ErrorKind::TimedOut);
    let fetch = |to: &str| {
        let to = stage.dir.path().join(to);
        fetch_with(&files, &stage.prefix, 2, &candidate, &to, OPTIONS)
    };
    let error = fetch("first").unwrap_err();
    assert!(
        matches!(&error, FetchError::NotFetched { why: NotFetched::Failed { .. }, .. })
            && error.to_string().contains("summary.scr"),
        "{error}"
    );
    assert!(stage.is_listed(1), "that may pass");
    files.heal();
    assert_right(&stage, &cached, &fetch("second").unwrap());
}
