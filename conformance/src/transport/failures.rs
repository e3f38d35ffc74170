//! The rules of failing jobs, one function each.

use super::stage::{attempt, copy_badly, copy_well, expect, names, Found, Stage};
use super::{Case, Subject};
use scr_plugin_api::{PluginErrorKind, Transport};
use std::fs;

cases! {
    wrong_size: "a source of another size is an error",
        "Compare the length of the source with `bytes`, and name the source in the error.";
    missing: "a missing source is an error",
        "Let the job fail with the error of opening the source, and name the source in it.";
    unreadable: "a source that cannot be read is an error",
        "Let the job fail with the error of reading, and name the source in it.";
    no_folder: "a missing folder is an error",
        "Do not create folders: the host does. Name the destination in the error.";
    unwritable: "a destination that cannot be written is an error",
        "Let the job fail with the error of creating the destination, and name it.";
    read_only: "a read-only destination is an error",
        "Return errors of creating and writing as `Io`, and name the destination.";
    full: "a full destination is an error and the next job works",
        "Return errors of writing and syncing as `Io`, name the destination, and free what the job held.";
    next_job: "one bad file does not spoil the next job",
        "Keep the state of a job apart from that of others.";
    again: "what has failed can be started again",
        "Let `start` begin again if a job of the same token has failed.";
}

fn wrong_size(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(5000)?;
    for bytes in [0, 4999, 5001, 1 << 40] {
        let mut job = stage.job(&format!("{bytes}"));
        job.items[0].bytes = bytes;
        names(&copy_badly(transport, &job)?, &job.items[0].source)?;
    }
    Ok(())
}

fn missing(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?.file(10)?;
    let job = stage.job("a");
    attempt(fs::remove_file(&job.items[1].source), "removing a source")?;
    names(&copy_badly(transport, &job)?, &job.items[1].source)
}

/// A folder cannot be read as a file even by root.
fn unreadable(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].source = stage.folder.join("from");
    job.items[0].bytes = attempt(fs::metadata(stage.folder.join("from")), "examining a folder")?.len();
    names(&copy_badly(transport, &job)?, &job.items[0].source)
}

fn no_folder(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].destination = stage.folder.join("no/such/folder");
    names(&copy_badly(transport, &job)?, &job.items[0].destination)?;
    expect(
        &stage.folder.join("no").exists(),
        &false,
        "whether the folder was made, which is the host's to do,",
    )
}

fn unwritable(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].destination = stage.folder.join("to");
    names(&copy_badly(transport, &job)?, &job.items[0].destination)
}

fn full(subject: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    let Some(full) = subject.full else { return Ok(()) };
    stage.file(8 << 20)?;
    for take_crc in [true, false] {
        let mut job = stage.job(if take_crc { "crc" } else { "plain" });
        job.take_crc = take_crc;
        job.items[0].destination = full.join("big");
        let error = copy_badly(transport, &job)?;
        names(&error, &job.items[0].destination)?;
        expect(&error.kind, &PluginErrorKind::Io, "the kind of the error")?;
        attempt(fs::remove_file(full.join("big")), "making room again")?;
    }
    let mut stage = Stage::new(&stage.folder.join("again"))?;
    stage.file(10_000)?;
    let mut job = stage.job("a");
    job.items[0].destination = full.join("small");
    copy_well(transport, &job)?;
    attempt(fs::remove_file(full.join("small")), "making room again")
}

fn next_job(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?.file(100_000)?.file(20)?;
    let mut bad = stage.job("bad");
    bad.items[1].source = stage.folder.join("from/missing");
    copy_badly(transport, &bad)?;
    copy_well(transport, &stage.job("good")).map(drop)
}

fn read_only(subject: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    let Some(read_only) = subject.read_only else { return Ok(()) };
    stage.file(10)?;
    let mut job = stage.job("a");
    job.items[0].destination = read_only.join("file");
    let error = copy_badly(transport, &job)?;
    names(&error, &job.items[0].destination)?;
    expect(&error.kind, &PluginErrorKind::Io, "the kind of the error")
}

fn again(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?.file(100_000)?;
    let job = stage.job("a");
    let (source, aside) = (&job.items[1].source, stage.folder.join("aside"));
    attempt(fs::rename(source, &aside), "taking a source away")?;
    copy_badly(transport, &job)?;
    attempt(fs::rename(&aside, source), "putting a source back")?;
    copy_well(transport, &job).map(drop)
}
