//! The rules of successful jobs, one function each.

use super::stage::{accepted, attempt, copy_well, expect, read, Found, Stage};
use super::{Case, Subject};
use scr_plugin_api::{CopyItem, CopyState, Transport};
use std::fs;

cases! {
    sizes: "files of every size arrive",
        "Copy until the source ends, and let `Done` come only when the last byte is written.";
    many: "many files arrive in one job",
        "Let `wait` return only when every item of the job is copied.";
    nothing: "a job without files is done",
        "Treat a job without items as done.";
    sparse: "a sparse file arrives",
        "Give the destination the length of the source, also where it ends with zeros.";
    checksum: "a checksum is that of the bytes",
        "Return the CRC32 of the bytes that were read, or `None`; also `None` for a foreign ticket.";
    blocks: "every block size works",
        "Take `block_bytes` as a hint: use at least one byte and at most what fits into memory.";
    odd_names: "a name that is not text works",
        "Pass paths as `Path` or bytes, never as `str`.";
    replaced: "an older destination is replaced",
        "Truncate the destination when you open it.";
}

fn sizes(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.files([0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 3_000_001])?;
    let ticket = copy_well(transport, &stage.job("a"))?;
    expect(&accepted(transport.poll(&ticket), "poll")?, &CopyState::Done, "the state when asked again")
}

fn many(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.files((0..500).map(|number| number * 37))?;
    copy_well(transport, &stage.job("a")).map(drop)
}

fn nothing(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    copy_well(transport, &stage.job("a")).map(drop)
}

fn sparse(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.sparse(32 << 20)?.sparse(4096)?;
    for take_crc in [false, true] {
        let mut job = stage.job(if take_crc { "crc" } else { "plain" });
        job.take_crc = take_crc;
        copy_well(transport, &job)?;
    }
    Ok(())
}

fn checksum(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(0)?.file(1)?.file(1_000_000)?.sparse(5 << 20)?;
    let job = stage.job("a");
    let ticket = copy_well(transport, &job)?;
    for (place, item) in job.items.iter().enumerate() {
        // A transport that cannot take one leaves it to the host.
        if let Some(found) = transport.crc(&ticket, place) {
            let expected = crc32fast::hash(&read(&item.source)?);
            if found != expected {
                let copy = item.destination.display();
                return Err(format!("{copy} is a right copy, and its checksum is {expected:#010x}, not {found:#010x} as `crc' says"));
            }
        }
    }
    expect(&transport.crc(&ticket, job.items.len()), &None, "the checksum of an item that is not there")?;
    expect(&transport.crc(b"no such ticket", 0), &None, "the checksum for a foreign ticket")
}

fn blocks(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(200_001)?;
    for block_bytes in [0, 1, 511, 4096, 1 << 20, u64::MAX] {
        let mut job = stage.job(&format!("{block_bytes}"));
        job.block_bytes = block_bytes;
        copy_well(transport, &job)?;
    }
    Ok(())
}

fn odd_names(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    use std::os::unix::ffi::OsStrExt;
    stage.file(5000)?;
    let mut job = stage.job("a");
    for item in &mut job.items {
        let name = std::ffi::OsStr::from_bytes(b" \xff\xfe\n'\"*");
        let source = item.source.with_file_name(name);
        attempt(fs::rename(&item.source, &source), "renaming a source")?;
        *item = CopyItem { source, destination: item.destination.with_file_name(name), bytes: item.bytes };
    }
    copy_well(transport, &job).map(drop)
}

fn replaced(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(100)?.file(0)?.sparse(100_000)?;
    let job = stage.job("a");
    for item in &job.items {
        attempt(fs::write(&item.destination, [1; 300_000]), "writing an older destination")?;
    }
    copy_well(transport, &job).map(drop)
}
