//! Executors on transfer files as a transport, or a killed agent, leaves them.

use super::*;
use scr_plugin_api::pace::Limits;
use scr_plugin_api::{CopyItem, CopyJob};
use std::fs;
use std::sync::atomic::AtomicUsize;

struct Stage(tempfile::TempDir);

/// Slots that are free once they have been asked for so often.
fn free_after(often: usize) -> TakeSlot {
    let asked = AtomicUsize::new(0);
    Box::new(move |_, work| {
        let free = asked.fetch_add(1, Ordering::SeqCst) >= often;
        if free {
            work();
        }
        free
    })
}

impl Stage {
    fn transfer(&self, sizes: &[usize]) -> Transfer {
        let item = |(number, &size): (usize, &usize)| {
            let source = self.0.path().join(format!("in.{number}"));
            let bytes: Vec<u8> = (0..size).map(|place| (place * 31 + place / 251 + number) as u8).collect();
            fs::write(&source, bytes).unwrap();
            let destination = self.0.path().join(format!("out.{number}"));
            CopyItem { source, destination, bytes: size as u64 }
        };
        let items = sizes.iter().enumerate().map(item).collect();
        let job = CopyJob { token: "t".into(), items, block_bytes: 1 << 16, take_crc: true };
        let transfer = Transfer::new(self.0.path(), &job, Limits::default()).unwrap();
        transfer.begin().unwrap();
        transfer
    }

    fn assert_copied(&self, transfer: &Transfer) {
        assert_eq!(transfer.outcome, Some(Ok(())));
        for file in &transfer.files {
            let bytes = fs::read(&file.item.source).unwrap();
            assert!(bytes == fs::read(&file.item.destination).unwrap());
            assert_eq!((file.written, file.crc), (bytes.len() as u64, Some(crc32fast::hash(&bytes))));
        }
    }
}

/// As an agent does that ends as soon as there is nothing left.
fn work_through(control: &Path) {
    let executor = Executor::new(control.to_owned(), free_after(0));
    std::thread::scope(|scope| {
        executor.start(scope, 1).unwrap();
        while executor.has_work() {
            std::thread::yield_now();
        }
        executor.stop();
    });
}

#[test]
fn a_transfer_file_is_executed_and_its_progress_recorded() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let transfer = stage.transfer(&[0, 1, 100_000, 200_001]);
    work_through(stage.0.path());
    stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
}

#[test]
fn no_more_transfers_are_begun_at_a_time_than_allowed() {
    let stage = Stage(tempfile::tempdir().unwrap());
    for token in ["a", "b", "c"] {
        let mut transfer = stage.transfer(&[1000]);
        transfer.path = stage.0.path().join(format!("transfer.{token}.scr"));
        transfer.width = 2;
        transfer.write().unwrap();
    }
    std::fs::remove_file(stage.0.path().join("transfer.t.scr")).unwrap();
    let executor = Executor::new(stage.0.path().to_owned(), free_after(0));
    let begun: Vec<_> = (0..3).map(|_| executor.take()).collect();
    assert_eq!(begun.iter().flatten().count(), 2);
    let (first, control) = begun.into_iter().flatten().next().unwrap();
    executor.execute(first, &control, &mut Buffer::default());
    assert!(executor.take().is_some() && executor.take().is_none());
}

#[test]
fn a_transfer_waits_for_a_place_and_one_that_should_stop_does_not() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let mut transfer = stage.transfer(&[1000]);
    transfer.slots = Some(Slots { folder: stage.0.path().join("slots"), count: 1 });
    transfer.write().unwrap();
    let run = |after| {
        let executor = Executor::new(stage.0.path().to_owned(), free_after(after));
        std::thread::scope(|scope| {
            executor.start(scope, 1).unwrap();
            if after == usize::MAX {
                while held(&executor.known).running.is_empty() {
                    std::thread::yield_now();
                }
                while Transfer::read(&transfer.path).unwrap().unwrap().running {
                    std::thread::yield_now();
                }
                transfer.stop().unwrap();
            }
            while executor.has_work() {
                std::thread::yield_now();
            }
            executor.stop();
        });
        Transfer::read(&transfer.path).unwrap().unwrap()
    };
    // An agent that was killed in the middle of it has left it so.
    Transfer { running: true, ..transfer.clone() }.write().unwrap();
    let stopped = run(usize::MAX);
    assert!(matches!(stopped.outcome, Some(Err(_))) && stopped.written() == 0, "{stopped:?}");
    transfer.begin().unwrap();
    stage.assert_copied(&run(2));
}

#[test]
fn an_agent_goes_on_where_the_last_one_was_killed() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let mut transfer = stage.transfer(&[100_000, 200_000, 300]);
    // As one leaves it that was killed in its second file, after a part of it was synced and more was written.
    let known = |number: usize, len: usize| {
        fs::read(stage.0.path().join(format!("in.{number}"))).unwrap()[..len].to_vec()
    };
    for (number, recorded, there) in [(0, 100_000, 100_000), (1, 70_000, 130_000)] {
        let bytes = known(number, there);
        fs::write(&transfer.files[number].item.destination, &bytes).unwrap();
        transfer.files[number].written = recorded;
        transfer.files[number].crc = Some(crc32fast::hash(&bytes[..recorded as usize]));
    }
    transfer.running = true;
    transfer.write().unwrap();
    // Synced bytes are not read again.
    let first = fs::metadata(&transfer.files[0].item.destination).unwrap().modified().unwrap();
    work_through(stage.0.path());
    stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
    assert_eq!(fs::metadata(&transfer.files[0].item.destination).unwrap().modified().unwrap(), first);
}

#[test]
fn a_record_that_cannot_be_right_is_not_believed() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let mut transfer = stage.transfer(&[100_000, 1000, 1000]);
    transfer.files[0].written = 50_000;
    transfer.files[0].crc = Some(1);
    transfer.files[1].written = u64::MAX;
    transfer.files[1].crc = Some(1);
    transfer.files[2].written = 500;
    transfer.write().unwrap();
    work_through(stage.0.path());
    stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
}

#[test]
fn a_transfer_that_is_stopped_is_not_copied_by_the_next_agent_either() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let transfer = stage.transfer(&[1000]);
    transfer.stop().unwrap();
    work_through(stage.0.path());
    let outcome = Transfer::read(&transfer.path).unwrap().unwrap().outcome;
    assert!(matches!(outcome, Some(Err(error)) if error.text.contains("cancelled")));
    assert!(!transfer.files[0].item.destination.exists());
}

#[test]
fn an_agent_that_is_stopped_leaves_a_transfer_to_the_next() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let mut transfer = stage.transfer(&[10_000_000]);
    transfer.limits.bytes_per_second = 1_000_000;
    transfer.write().unwrap();
    let executor = Executor::new(stage.0.path().to_owned(), free_after(0));
    std::thread::scope(|scope| {
        executor.start(scope, 1).unwrap();
        let is_running = || Transfer::read(&transfer.path).unwrap().unwrap().running;
        while !is_running() {
            std::thread::yield_now();
        }
        executor.stop();
    });
    let left = Transfer::read(&transfer.path).unwrap().unwrap();
    assert_eq!((left.running, &left.outcome), (false, &None));
    transfer.limits.bytes_per_second = 0;
    transfer.write().unwrap();
    work_through(stage.0.path());
    stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
}

#[test]
fn only_ended_transfers_are_removed() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let transfer = stage.transfer(&[10]);
    let executor = Executor::new(stage.0.path().to_owned(), free_after(0));
    executor.clear_away();
    assert!(transfer.path.exists());
    work_through(stage.0.path());
    executor.clear_away();
    assert!(!transfer.path.exists());
}

/// A copy of less than 64 MiB in ten seconds looked as if it stood still, and a new run gave it up.
#[test]
fn progress_within_a_file_is_seen_before_the_file_is_complete() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let mut transfer = stage.transfer(&[4 << 20]);
    transfer.limits = Limits { bytes_per_second: 8 << 20, percent: 0.0 };
    transfer.write().unwrap();
    let executor = Executor::new(stage.0.path().to_owned(), free_after(0));
    let mut seen = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        executor.start(scope, 1).unwrap();
        while executor.has_work() {
            seen.extend(Transfer::read(&transfer.path).unwrap().map(|transfer| transfer.written()));
            std::thread::yield_now();
        }
        executor.stop();
    });
    assert!(seen.iter().any(|&written| written > 0 && written < 4 << 20), "{seen:?}");
    stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
}

/// The agent asks its own threads to stop the copies of a flush that was rolled back. It waited for itself, three seconds for
/// each.
#[test]
fn a_request_to_stop_is_answered_though_the_one_who_waits_looks_at_nothing_else() {
    let stage = Stage(tempfile::tempdir().unwrap());
    let mut transfer = stage.transfer(&[4 << 20]);
    transfer.limits = Limits { bytes_per_second: 1, percent: 0.0 };
    transfer.write().unwrap();
    let executor = Executor::new(stage.0.path().to_owned(), free_after(0));
    let outcome = || Transfer::read(&transfer.path).unwrap().unwrap().outcome;
    let answer = std::thread::scope(|scope| {
        executor.start(scope, 1).unwrap();
        while held(&executor.known).running.is_empty() {
            std::thread::yield_now();
        }
        transfer.stop().unwrap();
        let began = Instant::now();
        while outcome().is_none() && began.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        let answer = outcome();
        executor.stop();
        answer
    });
    assert!(matches!(answer, Some(Err(_))), "{answer:?}");
}

#[test]
fn pieces_grow_where_a_copy_is_fast_and_shrink_where_it_is_slow() {
    let after = |millis| copying::next_piece(8 << 20, Duration::from_millis(millis));
    assert_eq!((after(10), after(2000)), (16 << 20, 4 << 20));
    assert_eq!(copying::next_piece(64 << 20, Duration::ZERO), 64 << 20);
    assert_eq!(copying::next_piece(1 << 20, Duration::from_secs(9)), 1 << 20);
}
