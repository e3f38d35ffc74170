//! Flushes without a fault in the file layer.

use super::stage::{finalize_pending, in_use, through, time_of_flush, Cached, Stage, Through, OPTIONS};
use crate::cache::record::FileRecord;
use crate::flush::{FlushError, MakeCurrent, Options};
use scr_base::fs::{Files, How, RealFiles};
use scr_comm::Rank;
use scr_plugin_api::{CopyItem, CopyJob, CopyState, PluginError, Transport};
use scr_prefix::commit::FlushOutcome;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{staging_file, FileName, Index, Rank2File, Summary};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

#[test]
fn every_byte_arrives_and_the_dataset_is_listed() {
    for ranks in [1, 2, 5, 16] {
        let stage = Stage::new(ranks);
        let cached = stage.cache(3, "ckpt.3");
        stage.flush_well("3.a", &cached);
        assert!(stage.is_right(&cached));
        stage.assert_cache_is_whole(&cached);
        assert_eq!(stage.leftovers(), Vec::<std::path::PathBuf>::new());
        let entry = stage.index().entry(3).unwrap();
        assert!(entry.is_candidate() && entry.current);
        assert_eq!(entry.flushed, Some(time_of_flush()));
        let summary = Summary::read(&RealFiles, &stage.prefix, 3).unwrap().unwrap();
        assert!(summary.complete);
        assert_eq!(summary.dataset, cached.dataset);
        let lists = Rank2File::read(&RealFiles, &stage.prefix, 3).unwrap();
        for (list, files) in lists.by_rank().iter().zip(&cached.by_rank) {
            let of = |name: &FileName| files.iter().find(|file| file.name == *name).unwrap();
            assert!(list.iter().all(|file| file.bytes == Some(of(&file.name).bytes)));
            assert!(list.iter().all(|file| file.crc == of(&file.name).crc));
        }
    }
}

#[test]
fn a_checksum_that_was_not_known_is_kept() {
    for takes_checksums in [true, false] {
        let stage = Stage::new(3);
        let mut cached = stage.cache(1, "a");
        cached.by_rank.iter_mut().flatten().for_each(|file| file.record.crc = None);
        let mut transport = Through::new(RealFiles);
        transport.takes_checksums = takes_checksums;
        let transport: Arc<dyn Transport> = Arc::new(transport);
        stage.flush(&RealFiles, &transport, "1.a", &cached).unwrap();
        let lists = Rank2File::read(&RealFiles, &stage.prefix, 1).unwrap();
        for file in lists.by_rank().iter().flatten() {
            assert_eq!(file.crc, Some(crc32fast::hash(&cached.bytes[&file.name])));
        }
    }
}

/// Two jobs may have assigned the same number if numbers could not be reserved. The lists of the complete dataset used to be
/// lost.
#[test]
fn a_flush_replaces_no_complete_dataset_that_has_the_same_number() {
    for (theirs, ours) in [(2, 3), (3, 2)] {
        for in_place in [false, true] {
            let stage = Stage::new(2);
            let mut complete = stage.cache(3, "q");
            (complete.dataset.run, complete.dataset.created) = (theirs, 1000);
            stage.flush_well("3.a", &complete);
            let mut other = stage.cache(3, "c");
            (other.dataset.run, other.dataset.created) = (ours, 2000);
            let before = (stage.index().entry(3), Rank2File::read(&RealFiles, &stage.prefix, 3).unwrap());
            if in_place {
                let catalog = LedgerDir { files: &RealFiles, prefix: &stage.prefix };
                assert!(catalog.begin_in_place(&other.dataset).is_err());
            } else {
                let refused = stage.flush(&RealFiles, &through(&RealFiles), "3.b", &other).unwrap_err();
                assert!(refused.to_string().contains("another dataset under the number 3, `q'"), "{refused}");
            }
            assert_eq!(
                (stage.index().entry(3), Rank2File::read(&RealFiles, &stage.prefix, 3).unwrap()),
                before
            );
            assert!(stage.is_right(&complete));
            stage.assert_cache_is_whole(&other);
        }
    }
}

/// The leaves of the other one were replaced before anybody asked; and one whose flush had not taken its name yet was not seen.
#[test]
fn a_flush_writes_no_list_of_another_dataset_that_has_the_same_number() {
    for is_complete in [true, false] {
        let stage = Stage::new(5);
        let mut first = stage.cache(3, "q");
        first.dataset.created = 1000;
        let files = FaultyFiles::new(RealFiles);
        if !is_complete {
            files.only(|_, path| path.display().to_string().contains("done.3.a"));
            files.stop_at(1);
        }
        let flush = |files: &FaultyFiles, token, cached: &Cached| {
            let transport = in_use(&through(&RealFiles), false);
            let outcomes = stage.on_all_with(files, &transport, OPTIONS, |flush, rank| {
                let flushed = flush.sync(cached.to_flush(token, rank), &|| ());
                flushed.err().map(|error| error.to_string())
            });
            outcomes.into_iter().next().unwrap()
        };
        let failed = flush(&files, "3.a", &first);
        assert_eq!(failed.is_none(), is_complete, "{failed:?}");
        let lists = || Rank2File::read(&RealFiles, &stage.prefix, 3).unwrap();
        let before = lists();
        let mut other = stage.cache(3, "c");
        other.dataset.created = 2000;
        let refused = flush(&FaultyFiles::new(RealFiles), "3.b", &other).unwrap();
        assert!(refused.contains("another dataset under the number 3, `q'"), "{refused}");
        assert_eq!(lists(), before);
    }
}

/// Rank 0 wrote all leaves, one after another.
#[test]
fn each_leaf_of_the_file_lists_is_written_by_its_first_rank() {
    for (known, begin) in [(true, false), (true, true), (false, false)] {
        let stage = Stage::new(5);
        let mut cached = stage.cache(1, "a");
        if !known {
            cached.by_rank.iter_mut().flatten().for_each(|file| file.record.crc = None);
        }
        let of_rank: Vec<_> = (0..5).map(|_| FaultyFiles::new(RealFiles)).collect();
        let files_of = |rank: Rank| -> Arc<dyn Files> { Arc::new(of_rank[rank.index()].clone()) };
        let transport = in_use(&through(&RealFiles), false);
        let flushed = stage.on_all_over(files_of, &transport, OPTIONS, |flush, rank| {
            let what = cached.to_flush("1.a", rank);
            if begin {
                flush.finish(flush.begin(what).unwrap())
            } else {
                flush.sync(what, &|| ())
            }
        });
        assert!(flushed.iter().all(Result::is_ok), "{flushed:?}");
        // They are written once more with the checksums.
        let times = if known { 1 } else { 2 };
        for (rank, files) in of_rank.iter().enumerate() {
            let written = files.operations().into_iter().filter(|one| one.what == What::Rename);
            let targets = written.filter_map(|one| one.to?.file_name()?.to_str().map(str::to_owned));
            let mut lists: Vec<_> = targets.filter(|name| name.starts_with("rank2file")).collect();
            lists.sort();
            let mut expected = vec![format!("rank2file.0.{rank}"); if rank % 2 == 0 { times } else { 0 }];
            if rank == 0 {
                expected = [
                    vec!["rank2file".to_owned()],
                    expected,
                    vec!["rank2file.1.0".to_owned(), "rank2file.1.4".to_owned()],
                ]
                .concat();
            }
            assert_eq!(lists, expected, "rank {rank}, known: {known}, in the background: {begin}");
        }
        let lists = Rank2File::read(&RealFiles, &stage.prefix, 1).unwrap();
        for file in lists.by_rank().iter().flatten() {
            assert_eq!(file.crc, Some(crc32fast::hash(&cached.bytes[&file.name])));
        }
    }
}

/// The cost of each flushed file to a parallel file system beside the transport's own calls.
#[test]
fn a_file_takes_four_calls_and_one_more_in_a_folder_that_was_there_before() {
    let stage = Stage::new(3);
    let transport = in_use(&through(&RealFiles), false);
    for (id, is_old) in [(1, false), (2, true)] {
        let cached = stage.cache(id, "a");
        let of_rank: Vec<_> = (0..3).map(|_| FaultyFiles::new(RealFiles)).collect();
        let files_of = |rank: Rank| -> Arc<dyn Files> { Arc::new(of_rank[rank.index()].clone()) };
        let flushed = stage.on_all_over(files_of, &transport, OPTIONS, |flush, rank| {
            flush.sync(cached.to_flush(&format!("{id}.a"), rank), &|| ())
        });
        assert!(flushed.iter().all(Result::is_ok), "{flushed:?}");
        for (rank, files) in of_rank.iter().enumerate() {
            let target = stage.prefix.file(&format!("a/rank_{rank}").parse().unwrap());
            let staging = staging_file(&target, &format!("{id}.a"));
            let calls =
                files.operations().into_iter().filter(|one| one.path == target || one.path == staging);
            let calls: Vec<_> = calls.map(|one| one.what).collect();
            let fresh = [What::OpenToWrite, What::Status, What::SetTimes, What::Rename];
            let expected = [&[What::Status; 1][..usize::from(is_old)], &fresh].concat();
            assert_eq!(calls, expected, "rank {rank}, dataset {id}");
        }
    }
}

#[test]
fn a_leaf_that_its_rank_cannot_write_fails_the_flush_on_all_ranks_and_loses_nothing() {
    for lasts in [false, true] {
        let stage = Stage::new(5);
        let (older, cached) = (stage.cache(1, "a"), stage.cache(2, "a"));
        stage.flush_well("1.a", &older);
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what.mutates() && path.to_string_lossy().contains("rank2file.0.2"));
        match lasts {
            false => files.fail_once(1, ErrorKind::Other),
            true => files.fail_from(1, ErrorKind::Other),
        }
        let text = failure(stage.flush(&files, &through(&files), "2.a", &cached));
        assert!(text.contains("recording what is to come failed: rank 2"), "{text}");
        assert!(text.contains("rank2file.0.2"), "{text}");
        assert!(stage.is_right(&older) && stage.is_listed(1) && !stage.is_listed(2));
        assert_eq!(stage.leftovers(), Vec::<std::path::PathBuf>::new());
        stage.assert_cache_is_whole(&cached);
        stage.flush_well("2.b", &cached);
        assert!(stage.is_right(&cached) && stage.is_listed(2));
    }
}

/// One rank takes the checksum of a file that many have, whichever leaves they are in.
#[test]
fn a_checksum_that_was_not_known_stands_with_every_rank_that_has_the_file() {
    let stage = Stage::new(5);
    let mut cached = stage.cache(1, "a");
    cached.by_rank.iter_mut().flatten().for_each(|file| file.record.crc = None);
    let shared = cached.by_rank[1][0].clone();
    for rank in [3, 4] {
        cached.by_rank[rank][0] = shared.clone();
    }
    stage.flush(&RealFiles, &through(&RealFiles), "1.a", &cached).unwrap();
    let lists = Rank2File::read(&RealFiles, &stage.prefix, 1).unwrap();
    let crc = Some(crc32fast::hash(&cached.bytes[&shared.name]));
    for rank in [1, 3, 4] {
        let listed = lists.of(Rank(rank)).iter().find(|file| file.name == shared.name).unwrap();
        assert_eq!(listed.crc, crc, "rank {rank}");
    }
}

#[test]
fn output_does_not_become_current() {
    let stage = Stage::new(2);
    let (first, second) = (stage.cache(1, "a"), stage.cache(2, "b"));
    stage.flush_well("1", &first);
    let options = Options { make_current: MakeCurrent::Never, ..OPTIONS };
    stage.flush_with(&RealFiles, &through(&RealFiles), "2", &second, options).unwrap();
    assert_eq!(stage.index().current(), Some(&b"a"[..]));
    assert!(stage.is_listed(2));
}

#[test]
fn one_rank_at_a_time_is_enough() {
    let stage = Stage::new(5);
    let cached = stage.cache(1, "a");
    let options = Options { width: 1, ..OPTIONS };
    stage.flush_with(&RealFiles, &through(&RealFiles), "1", &cached, options).unwrap();
    assert!(stage.is_right(&cached));
}

fn failure(result: Result<crate::flush::FlushReport, FlushError>) -> String {
    scr_base::codes::coded("ERROR", &scr_base::describe(&result.unwrap_err()))
}

#[test]
fn a_cached_file_that_was_damaged_is_not_flushed() {
    for (change, expected) in [(b"changed".to_vec(), "was recorded"), (Vec::new(), "were recorded")] {
        let stage = Stage::new(3);
        let cached = stage.cache(1, "a");
        let victim = &cached.by_rank[1][0];
        let mut bytes = fs::read(&victim.source).unwrap();
        if change.is_empty() {
            bytes.push(0);
        } else {
            bytes[..change.len()].copy_from_slice(&change);
        }
        fs::write(&victim.source, bytes).unwrap();
        // Damage changes no time, as a late write of the application does.
        RealFiles.open(&victim.source, How::Update).unwrap().set_times(victim.mtime, victim.mtime).unwrap();
        let mut shortened = stage.cache(9, "unused");
        shortened.dataset = cached.dataset.clone();
        let text = failure(stage.flush(&RealFiles, &checked(), "1", &cached));
        assert!(text.starts_with("dataset a was not flushed, copying failed: rank 1 on node0: "), "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(!stage.is_listed(1));
        assert_eq!(stage.leftovers(), Vec::<std::path::PathBuf>::new());
        assert!(!stage.prefix.file(&"a/rank_0".parse().unwrap()).exists());
    }
}

/// The message blamed the memory or disk of the node.
#[test]
fn a_transport_that_copies_wrongly_is_named_and_the_source_that_is_whole_is_not() {
    fn in_place_of(job: &CopyJob, make: impl Fn(&Path, &Path)) {
        for item in &job.items {
            fs::remove_file(&item.destination).unwrap();
            make(&item.source, &item.destination);
        }
    }
    let wrong_bytes: Start = |transport, job| {
        let ticket = transport.start(job);
        in_place_of(job, |from, to| fs::write(to, vec![b'?'; fs::read(from).unwrap().len()]).unwrap());
        ticket
    };
    // The cache holds the only bytes then, and the flush counted.
    let link: Start = |transport, job| {
        let ticket = transport.start(job);
        in_place_of(job, |from, to| symlink(from, to).unwrap());
        ticket
    };
    let name: Start = |transport, job| {
        let ticket = transport.start(job);
        in_place_of(job, |from, to| fs::hard_link(from, to).unwrap());
        ticket
    };
    let nothing: Start = |transport, job| {
        let ticket = transport.start(job);
        in_place_of(job, |_, _| ());
        ticket
    };
    let cases = [
        (wrong_bytes, false, " has checksum 0x"),
        (link, false, " has no file of its own"),
        (link, true, " has no file of its own"),
        (name, false, " has no file of its own"),
        (name, true, " has no file of its own"),
        (nothing, true, " has no file of its own"),
    ];
    for (copies, takes_checksums, found) in cases {
        let mut plain = Through::new(RealFiles);
        plain.takes_checksums = takes_checksums;
        let transport: Arc<dyn Transport> = Arc::new(Started(plain, copies, None));
        let stage = Stage::new(2);
        let cached = stage.cache(1, "a");
        let source = cached.by_rank[0][0].source.display().to_string();
        let text = failure(stage.flush(&RealFiles, &transport, "1", &cached));
        let named = format!("the transport THROUGH has copied {source} wrongly, which is as it was recorded");
        assert!(text.contains(&named) && text.contains(found), "{text}");
        assert!(text.ends_with("[SCR-415]"), "{text}");
    }
}

/// The message blamed the application.
#[test]
fn a_transport_that_writes_to_a_source_is_named_beside_the_application() {
    let spoils: Start = |transport, job| {
        job.items.iter().for_each(|item| fs::write(&item.source, vec![b'?'; item.bytes as usize]).unwrap());
        transport.start(job)
    };
    let transport: Arc<dyn Transport> = Arc::new(Started(Through::new(RealFiles), spoils, None));
    let stage = Stage::new(2);
    let cached = stage.cache(1, "a");
    for file in cached.by_rank.iter().flatten() {
        RealFiles.open(&file.source, How::Update).unwrap().set_times(file.mtime, file.mtime).unwrap();
    }
    let source = cached.by_rank[0][0].source.display().to_string();
    let text = failure(stage.flush(&RealFiles, &transport, "1", &cached));
    let said = format!("{source} was written to while the transport THROUGH copied it");
    assert!(text.contains(&said) && text.ends_with("[SCR-415]"), "{text}");
}

/// The message blamed the copy.
#[test]
fn a_transport_that_reports_a_wrong_checksum_of_a_right_copy_is_told_apart_from_one_that_copies_wrongly() {
    let transport: Arc<dyn Transport> =
        Arc::new(Started(Through::new(RealFiles), Transport::start, Some(0x0bad_c0de)));
    let stage = Stage::new(2);
    let cached = stage.cache(1, "a");
    let source = cached.by_rank[0][0].source.display().to_string();
    let text = failure(stage.flush(&RealFiles, &transport, "1", &cached));
    let named = format!(
        "the transport THROUGH has copied {source} rightly, and reports the wrong checksum 0x0badc0de instead of 0x"
    );
    assert!(text.contains(&named) && !text.contains("wrongly"), "{text}");
}

/// Root may give files away; set-user-id bits are nobody's to copy.
#[test]
fn the_copy_has_the_times_the_permissions_and_from_root_the_owner_of_its_source_unless_that_is_switched_off()
{
    let is_root = rustix::process::geteuid().is_root();
    for metadata in [true, false] {
        let stage = Stage::new(2);
        let mut cached = stage.cache(1, "a");
        let (mtime, seen) = ((1_234_567_890, 123_456_789), 1_111_111_111);
        for (file, mode) in
            cached.by_rank.iter_mut().flatten().zip([0o104_755, 0o100_400, 0o102_640, 0o100_600])
        {
            (file.record.mode, file.record.mtime) = (mode, mtime);
            if is_root {
                chown(&file.source, Some(1234), Some(567)).unwrap();
            }
            let source = RealFiles.open(&file.source, How::Update).unwrap();
            source.set_times((seen, 0), mtime).unwrap();
        }
        let options = Options { metadata, owner: metadata && is_root, ..OPTIONS };
        stage.flush_with(&RealFiles, &through(&RealFiles), "1", &cached, options).unwrap();
        for file in cached.by_rank.iter().flatten() {
            let found = fs::metadata(stage.prefix.file(&file.name)).unwrap();
            let alike = (found.mtime(), found.mtime_nsec()) == (1_234_567_890, 123_456_789);
            assert_eq!((alike, found.atime() == seen), (metadata, metadata));
            assert_eq!(found.mode() & 0o7000, 0);
            if metadata {
                assert_eq!(found.mode() & 0o777, file.mode & 0o777);
            }
            assert_eq!(found.uid() == 1234 && found.gid() == 567, metadata && is_root);
        }
    }
}

/// The files of a project were counted as those of its user.
#[test]
fn the_copy_from_root_has_the_group_of_a_folder_with_the_setgid_bit() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a file to another user");
        return;
    }
    for (bits, group) in [(0o2775, 890), (0o775, 567)] {
        let stage = Stage::new(2);
        let cached = stage.cache(1, "a");
        for file in cached.by_rank.iter().flatten() {
            chown(&file.source, Some(1234), Some(567)).unwrap();
        }
        let folder = stage.prefix.dir().join("a");
        fs::create_dir(&folder).unwrap();
        chown(&folder, None, Some(890)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(bits)).unwrap();
        let options = Options { metadata: true, owner: true, ..OPTIONS };
        stage.flush_with(&RealFiles, &through(&RealFiles), "1", &cached, options).unwrap();
        for file in cached.by_rank.iter().flatten() {
            let found = fs::metadata(stage.prefix.file(&file.name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, group));
        }
    }
}

/// A transport is not trusted: one that says it is done while bytes are missing.
#[test]
fn a_partial_dataset_is_reported_and_not_listed() {
    let short = Started::by(|transport, job| {
        let ticket = transport.start(job)?;
        let of_one = |item: &&CopyItem| item.destination.display().to_string().contains("rank_1");
        for item in job.items.iter().filter(of_one) {
            let arrived = fs::File::options().write(true).open(&item.destination).unwrap();
            arrived.set_len(item.bytes - 1).unwrap();
        }
        Ok(ticket)
    });
    let stage = Stage::new(3);
    let cached = stage.cache(1, "a");
    let text = failure(stage.flush(&RealFiles, &short, "1", &cached));
    assert!(
        text.contains("rank 1 on node0: the transport THROUGH")
            && text.contains("1999 bytes instead of 2000"),
        "{text}"
    );
    assert!(!stage.is_listed(1) && stage.leftovers().is_empty());
}

/// A transport that, as all must, refuses a source of another size.
fn checked() -> Arc<dyn Transport> {
    Started::by(|transport, job| {
        for item in &job.items {
            let found = fs::metadata(&item.source).unwrap().len();
            if found != item.bytes {
                let text = format!("{} bytes were recorded, {found} found", item.bytes);
                return Err(PluginError::new(scr_plugin_api::PluginErrorKind::Corrupt, text));
            }
        }
        transport.start(job)
    })
}

type Start = fn(&Through<RealFiles>, &CopyJob) -> Result<Vec<u8>, PluginError>;

/// A transport that begins in a way of its own, or reports one checksum for all, and is the plain one otherwise.
struct Started(Through<RealFiles>, Start, Option<u32>);

impl Started {
    fn by(start: Start) -> Arc<dyn Transport> {
        Arc::new(Self(Through::new(RealFiles), start, None))
    }
}

impl Transport for Started {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        (self.1)(&self.0, job)
    }
    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.0.poll(ticket)
    }
    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.0.wait(ticket)
    }
    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.0.cancel(ticket)
    }
    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.2.or_else(|| self.0.crc(ticket, item))
    }
}

#[test]
fn different_files_of_one_name_on_two_ranks_are_reported() {
    let stage = Stage::new(4);
    let mut cached = stage.cache(1, "a");
    cached.by_rank[3][0].record.name = "a/rank_1".parse().unwrap();
    let text = failure(stage.flush(&RealFiles, &through(&RealFiles), "1", &cached));
    assert!(text.contains("ranks 1 and 3 have different files named a/rank_1"), "{text}");
}

/// Only one of the files was there, and the flush had succeeded.
#[test]
fn two_names_that_are_one_file_where_case_is_ignored_are_reported() {
    for (from, to) in [(3, "a/RANK_1"), (1, "A/rank_1")] {
        let (stage, files) = (Stage::new(4), FaultyFiles::new(RealFiles));
        let mut cached = stage.cache(1, "a");
        cached.by_rank[from][0].record.name = to.parse().unwrap();
        if from == 1 {
            cached.by_rank[2][0].record.name = "a/rank_1".parse().unwrap();
        }
        files.pretend_to_ignore_case();
        let text = failure(stage.flush(&files, &through(&RealFiles), "1", &cached));
        assert!(text.contains("making the folders failed") && text.contains("as it ignores case"), "{text}");
        assert!(text.contains(to) && text.contains("a/rank_1") && !stage.is_listed(1), "{text}");
        stage.flush_well("2", &cached);
    }
}

/// The flush took the name of the older dataset, and then could rename neither file nor end.
#[test]
fn a_file_that_has_the_name_of_another_ranks_folder_is_reported_and_the_older_dataset_stays() {
    let stage = Stage::new(3);
    let older = stage.cache(1, "a");
    stage.flush_well("1", &older);
    let mut cached = stage.cache(2, "a");
    cached.by_rank[1][0].record.name = "a/d".parse().unwrap();
    cached.by_rank[2][0].record.name = "a/d/x".parse().unwrap();
    let text = failure(stage.flush(&RealFiles, &through(&RealFiles), "2", &cached));
    assert!(
        text.contains("rank 1 has a file named a/d, and rank 2 files in a folder of that name"),
        "{text}"
    );
    assert!(stage.is_right(&older) && stage.index().entry(1).unwrap().complete);
}

#[test]
fn an_obstacle_is_reported_and_the_next_flush_works() {
    let stage = Stage::new(3);
    let cached = stage.cache(1, "a");
    fs::create_dir_all(stage.prefix.file(&"a/rank_2".parse().unwrap())).unwrap();
    let text = failure(stage.flush(&RealFiles, &through(&RealFiles), "1", &cached));
    assert!(text.contains("renaming the files failed: rank 2"), "{text}");
    assert!(!stage.is_listed(1));
    assert_eq!(stage.leftovers(), Vec::<std::path::PathBuf>::new());
    fs::remove_dir(stage.prefix.file(&"a/rank_2".parse().unwrap())).unwrap();
    stage.flush_well("2", &cached);
    assert!(stage.is_right(&cached) && stage.is_listed(1));
}

#[test]
fn a_reused_name_means_the_newer_dataset() {
    let stage = Stage::new(3);
    let (old, new) = (stage.cache(1, "same"), stage.cache(2, "same"));
    stage.flush_well("1", &old);
    stage.flush_well("2", &new);
    assert!(stage.is_right(&new) && stage.is_listed(2) && !stage.is_listed(1));
}

#[test]
fn a_flush_that_fails_before_the_renames_leaves_the_older_dataset_of_that_name() {
    let stage = Stage::new(3);
    let (old, new) = (stage.cache(1, "same"), stage.cache(2, "same"));
    stage.flush_well("1", &old);
    fs::remove_file(&new.by_rank[1][0].source).unwrap();
    stage.flush(&RealFiles, &through(&RealFiles), "2", &new).unwrap_err();
    assert!(stage.is_right(&old) && stage.is_listed(1) && !stage.is_listed(2));
    assert_eq!(stage.index().current(), Some(&b"same"[..]));
}

#[test]
fn files_in_place_are_checked_and_listed() {
    let stage = Stage::new(4);
    let cached = stage.cache(1, "a");
    let options = Options { in_place: true, ..OPTIONS };
    let transport = through(&RealFiles);
    let text = failure(stage.flush_with(&RealFiles, &transport, "1", &cached, options));
    assert!(text.contains("a/rank_0 is missing"), "{text}");
    for file in cached.by_rank.iter().flatten() {
        fs::write(stage.prefix.file(&file.name), &cached.bytes[&file.name]).unwrap();
    }
    let files = FaultyFiles::new(RealFiles);
    stage.flush_with(&files, &transport, "2", &cached, options).unwrap();
    assert!(stage.is_listed(1));
    let done = files.operations();
    let synced = |path| done.iter().any(|done| done.what == What::Sync && done.path == path);
    assert!(cached.bytes.keys().all(|name| synced(stage.prefix.file(name))), "{done:?}");
    fs::write(stage.prefix.file(&"a/rank_0".parse().unwrap()), b"short").unwrap();
    let text = failure(stage.flush_with(&RealFiles, &transport, "3", &cached, options));
    assert!(text.contains("a/rank_0 has 5 bytes where 1000 were recorded"), "{text}");
    assert!(!stage.is_listed(1));
}

#[test]
fn a_dataset_that_has_failed_counts_again_once_every_byte_is_written_anew() {
    let stage = Stage::new(2);
    let cached = stage.cache(1, "a");
    stage.flush_well("1", &cached);
    fs::write(stage.prefix.file(&cached.by_rank[0][0].name), "damaged").unwrap();
    Index::update(&RealFiles, &stage.prefix, |index| index.mark_failed(1, "then")).unwrap();
    assert!(!stage.is_listed(1));
    stage.flush_well("2", &cached);
    assert!(stage.is_listed(1) && stage.is_right(&cached));
    assert_eq!(stage.index().entry(1).unwrap().failed, None);
    assert_eq!(stage.index().current(), Some(&b"a"[..]));
}

#[test]
fn an_older_dataset_that_arrives_late_does_not_become_current() {
    let stage = Stage::new(2);
    let (older, newer) = (stage.cache(1, "a"), stage.cache(2, "b"));
    stage.flush_well("2", &newer);
    stage.flush_well("1", &older);
    assert!(stage.is_listed(1) && stage.is_listed(2));
    assert_eq!(stage.index().current(), Some(&b"b"[..]));
}

#[test]
fn in_place_all_ranks_may_have_written_one_file() {
    let stage = Stage::new(4);
    let mut cached = stage.cache(1, "a");
    fs::create_dir(stage.prefix.file(&"a".parse().unwrap())).unwrap();
    fs::write(stage.prefix.file(&"a/shared".parse().unwrap()), b"all of us").unwrap();
    let mut shared = cached.by_rank[0][0].clone();
    let (name, bytes) = ("a/shared".parse().unwrap(), 9);
    shared.record = FileRecord { name, bytes, crc: None, ..shared.record };
    cached.by_rank = vec![vec![shared]; 4];
    let options = Options { in_place: true, ..OPTIONS };
    stage.flush_with(&RealFiles, &through(&RealFiles), "1", &cached, options).unwrap();
    assert!(stage.is_listed(1));
}

#[test]
fn an_unusable_record_is_reported_and_kept() {
    let stage = Stage::new(1);
    stage.prefix.make_scr_dir(&RealFiles).unwrap();
    let path = stage.prefix.scr_file("flush.7.x");
    fs::write(&path, b"no tree").unwrap();
    fs::write(stage.prefix.flush_file(), b"C SCR's own").unwrap();
    let ended = finalize_pending(&RealFiles, &stage.prefix, super::stage::NOW).unwrap();
    let said = path.display().to_string();
    assert!(matches!(&ended[..], [FlushOutcome::Unusable { why, .. }] if why.contains(&said)), "{ended:?}");
    assert!(path.exists());
}

#[test]
fn messages_on_an_earlier_run_name_the_dataset_and_the_reason() {
    let dataset = Stage::new(1).cache(7, "a").dataset;
    let why = || "a/rank_0 is missing".to_owned();
    for (ended, text) in [
        (FlushOutcome::Finalized(dataset.clone()), "is finished"),
        (FlushOutcome::Revoked { dataset: dataset.clone(), why: why() }, "a/rank_0 is missing"),
        (
            FlushOutcome::Postponed { dataset, why: why(), has_taken: true, is_whole: true },
            "a/rank_0 is missing",
        ),
    ] {
        let message = ended.to_string();
        assert!(message.contains("dataset 7 `a'") && message.ends_with(text), "{message}");
    }
}
