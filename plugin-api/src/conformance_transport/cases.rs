//! The rules, one function each.

use super::stage::{
    accepted, copy, copy_badly, copy_well, expect, names, read, same_bytes, start, told, until_it_moves,
    Found, Stage,
};
use super::{Case, Subject};
use crate::{CopyItem, CopyState, PluginErrorKind};
use std::fs;
use std::path::Path;

pub(super) const ALL: &[Case] = &[
    Case { name: "files of every size arrive", run: sizes },
    Case { name: "many files arrive in one job", run: many },
    Case { name: "a job without files is done", run: nothing },
    Case { name: "a sparse file arrives", run: sparse },
    Case { name: "a checksum is that of the bytes", run: checksum },
    Case { name: "every block size works", run: blocks },
    Case { name: "a name that is not text works", run: odd_names },
    Case { name: "an older destination is replaced", run: replaced },
    Case { name: "a source of another size is an error", run: wrong_size },
    Case { name: "a missing source is an error", run: missing },
    Case { name: "a source that cannot be read is an error", run: unreadable },
    Case { name: "a missing folder is an error", run: no_folder },
    Case { name: "a destination that cannot be written is an error", run: unwritable },
    Case { name: "a full destination is an error and the next job works", run: full },
    Case { name: "one bad file does not spoil the next job", run: next_job },
    Case { name: "the same job twice is one copy", run: twice },
    Case { name: "a token does not stand for two jobs", run: reused },
    Case { name: "a foreign ticket is an error", run: foreign },
    Case { name: "nothing is written after cancel", run: cancel },
    Case { name: "cancelling what is done changes nothing", run: late_cancel },
    Case { name: "jobs of several threads do not mix", run: threads },
];

fn sizes(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    for bytes in [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 3_000_001] {
        stage.file(bytes)?;
    }
    let job = stage.job("a");
    let ticket = copy_well(&*transport, &job)?;
    job.items.iter().try_for_each(|item| {
        let len = told(fs::metadata(&item.source), "examining a source")?.len();
        expect(&len, &item.bytes, "the size of a source after the copy")
    })?;
    expect(&accepted(transport.poll(&ticket), "poll")?, &CopyState::Done, "the state when asked again")
}

fn many(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let mut stage = Stage::new(folder)?;
    for number in 0..500 {
        stage.file(number * 37)?;
    }
    copy_well(&*(subject.make)(), &stage.job("a")).map(drop)
}

fn nothing(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    copy_well(&*(subject.make)(), &Stage::new(folder)?.job("a")).map(drop)
}

fn sparse(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.sparse(32 << 20)?.sparse(4096)?;
    for take_crc in [false, true] {
        let mut job = stage.job(if take_crc { "crc" } else { "plain" });
        job.take_crc = take_crc;
        copy_well(&*transport, &job)?;
    }
    Ok(())
}

fn checksum(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(0)?.file(1)?.file(1_000_000)?.sparse(5 << 20)?;
    let job = stage.job("a");
    let ticket = copy_well(&*transport, &job)?;
    for (place, item) in job.items.iter().enumerate() {
        // A transport that cannot take one leaves it to the host.
        if let Some(found) = transport.crc(&ticket, place) {
            let expected = crc32fast::hash(&read(&item.source)?);
            expect(&found, &expected, &format!("the checksum of item {place}"))?;
        }
    }
    expect(&transport.crc(&ticket, job.items.len()), &None, "the checksum of an item that is not there")?;
    expect(&transport.crc(b"no such ticket", 0), &None, "the checksum for a foreign ticket")
}

fn blocks(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(200_001)?;
    for block_bytes in [0, 1, 511, 4096, 1 << 20, u64::MAX] {
        let mut job = stage.job(&format!("{block_bytes}"));
        job.block_bytes = block_bytes;
        copy_well(&*transport, &job)?;
    }
    Ok(())
}

fn odd_names(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    use std::os::unix::ffi::OsStrExt;
    let mut stage = Stage::new(folder)?;
    stage.file(5000)?;
    let mut job = stage.job("a");
    for item in &mut job.items {
        let name = std::ffi::OsStr::from_bytes(b" \xff\xfe\n'\"*");
        let source = item.source.with_file_name(name);
        told(fs::rename(&item.source, &source), "renaming a source")?;
        *item = CopyItem { source, destination: item.destination.with_file_name(name), bytes: item.bytes };
    }
    copy_well(&*(subject.make)(), &job).map(drop)
}

fn replaced(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let mut stage = Stage::new(folder)?;
    stage.file(100)?.file(0)?.sparse(100_000)?;
    let job = stage.job("a");
    for item in &job.items {
        told(fs::write(&item.destination, [1; 300_000]), "writing an older destination")?;
    }
    copy_well(&*(subject.make)(), &job).map(drop)
}

fn wrong_size(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(5000)?;
    for bytes in [0, 4999, 5001, 1 << 40] {
        let mut job = stage.job(&format!("{bytes}"));
        job.items[0].bytes = bytes;
        names(&copy_badly(&*transport, &job)?, &job.items[0].source)?;
    }
    Ok(())
}

fn missing(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let mut stage = Stage::new(folder)?;
    stage.file(10)?.file(10)?;
    let job = stage.job("a");
    told(fs::remove_file(&job.items[1].source), "removing a source")?;
    names(&copy_badly(&*(subject.make)(), &job)?, &job.items[1].source)
}

/// A folder cannot be read as a file even by root.
fn unreadable(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let mut stage = Stage::new(folder)?;
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].source = folder.join("from");
    job.items[0].bytes = told(fs::metadata(folder.join("from")), "examining a folder")?.len();
    names(&copy_badly(&*(subject.make)(), &job)?, &job.items[0].source)
}

fn no_folder(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let mut stage = Stage::new(folder)?;
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].destination = folder.join("no/such/folder");
    names(&copy_badly(&*(subject.make)(), &job)?, &job.items[0].destination)?;
    expect(&folder.join("no").exists(), &false, "whether the folder was made, which is the host's to do,")
}

fn unwritable(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let mut stage = Stage::new(folder)?;
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].destination = folder.join("to");
    names(&copy_badly(&*(subject.make)(), &job)?, &job.items[0].destination)
}

fn full(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let Some(full) = subject.full else { return Ok(()) };
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(8 << 20)?;
    for take_crc in [true, false] {
        let mut job = stage.job(if take_crc { "crc" } else { "plain" });
        job.take_crc = take_crc;
        job.items[0].destination = full.join("big");
        let error = copy_badly(&*transport, &job)?;
        names(&error, &job.items[0].destination)?;
        expect(&error.kind, &PluginErrorKind::Io, "the kind of the error")?;
        told(fs::remove_file(full.join("big")), "making room again")?;
    }
    let mut stage = Stage::new(&folder.join("again"))?;
    stage.file(10_000)?;
    let mut job = stage.job("a");
    job.items[0].destination = full.join("small");
    copy_well(&*transport, &job)?;
    told(fs::remove_file(full.join("small")), "making room again")
}

fn next_job(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(10)?.file(100_000)?.file(20)?;
    let mut bad = stage.job("bad");
    bad.items[1].source = folder.join("from/missing");
    copy_badly(&*transport, &bad)?;
    copy_well(&*transport, &stage.job("good")).map(drop)
}

fn twice(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(100_000)?;
    let job = stage.job("a");
    let first = copy_well(&*transport, &job)?;
    // A second copy would bring the new bytes, or make the file anew.
    told(fs::write(&job.items[0].source, vec![9; 100_000]), "changing the source")?;
    let before = read(&job.items[0].destination)?;
    let (second, state) = copy(&*transport, &job)?;
    expect(&second, &first, "the ticket of the same job")?;
    expect(&state, &CopyState::Done, "the state of the same job")?;
    expect(&(read(&job.items[0].destination)? == before), &true, "whether the destination is as before")
}

fn reused(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(1000)?;
    let job = stage.job("a");
    copy_well(&*transport, &job)?;
    let mut other = job.clone();
    other.items[0].destination = folder.join("to/other");
    match copy(&*transport, &other) {
        // Told, or really copied; never "done" without the bytes.
        Ok((_, CopyState::Done)) => same_bytes(&other.items[0]),
        _ => Ok(()),
    }
}

fn foreign(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(10)?;
    let ticket = copy_well(&*transport, &stage.job("a"))?;
    let cut = ticket.get(..ticket.len() / 2).unwrap_or_default().to_vec();
    for foreign in [vec![], b"of somebody else".to_vec(), cut, vec![0xff; 10_000]] {
        let calls = [
            ("poll", transport.poll(&foreign).is_err()),
            ("wait", transport.wait(&foreign).is_err()),
            ("cancel", transport.cancel(&foreign).is_err()),
        ];
        for (call, is_error) in calls {
            expect(&is_error, &true, &format!("whether {call} refuses a foreign ticket"))?;
        }
    }
    Ok(())
}

fn cancel(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    for _ in 0..32 {
        stage.file(1 << 20)?;
    }
    let job = stage.job("a");
    let ticket = start(&*transport, &job)?;
    until_it_moves(&*transport, &ticket)?;
    accepted(transport.cancel(&ticket), "cancel")?;
    let before = snapshot(&job.items)?;
    match accepted(transport.wait(&ticket), "wait")? {
        CopyState::Failed(error) => {
            expect(&error.kind, &PluginErrorKind::Cancelled, "the kind of the error")?;
        }
        // It was quicker than the wish to stop it.
        CopyState::Done => job.items.iter().try_for_each(same_bytes)?,
        CopyState::Running(_) => return Err("wait came back from a job that is running".into()),
    }
    // Another job gives the cancelled one time to do wrong.
    let mut other = Stage::new(&folder.join("other"))?;
    other.file(4 << 20)?;
    copy_well(&*transport, &other.job("a"))?;
    expect(&(snapshot(&job.items)? == before), &true, "whether the destinations are as they were at cancel")
}

/// Whether each destination is there, and its bytes.
fn snapshot(items: &[CopyItem]) -> Found<Vec<Option<Vec<u8>>>> {
    items.iter().map(|item| item.destination.exists().then(|| read(&item.destination)).transpose()).collect()
}

fn late_cancel(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let mut stage = Stage::new(folder)?;
    stage.file(1000)?;
    let job = stage.job("a");
    let ticket = copy_well(&*transport, &job)?;
    accepted(transport.cancel(&ticket), "cancel")?;
    expect(&accepted(transport.poll(&ticket), "poll")?, &CopyState::Done, "the state after a late cancel")?;
    job.items.iter().try_for_each(same_bytes)
}

fn threads(subject: &Subject<'_>, folder: &Path) -> Found<()> {
    let transport = (subject.make)();
    let transport = &*transport;
    let one = |number: usize| {
        let mut stage = Stage::new(&folder.join(format!("{number}")))?;
        for extra in 0..5 {
            stage.file(20_000 * number as u64 + extra)?;
        }
        copy_well(transport, &stage.job("a")).map(drop)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..8).map(|number| scope.spawn(move || one(number))).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}
