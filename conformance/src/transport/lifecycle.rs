//! The life of a job: tokens, tickets, progress, cancelling, resuming, one function for each rule.

use super::stage::{
    accepted, attempt, copy, copy_well, expect, read, same_bytes, start, until_it_moves, Found, Stage,
};
use super::{Case, Subject};
use scr_plugin_api::{CopyItem, CopyState, PluginErrorKind, Transport};
use std::fs;

cases! {
    progress: "progress is counted in bytes",
        "Count the bytes that are at the destination, at most once each.";
    twice: "the same job twice is one copy",
        "Let the ticket follow from the token, and begin no copy where that job is known.";
    reused: "a token does not stand for two jobs",
        "Compare the items where a token is known, and refuse another job.";
    foreign: "a foreign ticket is an error",
        "Look the whole ticket up, or check all of it, before anything else.";
    done: "nothing is written after `Done`",
        "Let `Done` come only when nothing of the transport writes any more.";
    cancel: "nothing is written after cancel",
        "Let `cancel` return only when the copy has stopped.";
    late_cancel: "cancelling what is done changes nothing",
        "Let `cancel` leave a job alone that is done.";
    resume: "what was cancelled can be started again",
        "Let `start` begin again if a job of the same token was cancelled.";
    handed_over: "another instance continues with a ticket",
        "Put all that a job needs into its ticket or on disk, or do not set `survives-job` in the manifest.";
    threads: "jobs of several threads do not mix",
        "Guard what jobs share, and look jobs up by their whole token.";
}

fn twice(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(100_000)?;
    let job = stage.job("a");
    let first = copy_well(transport, &job)?;
    // A second copy would bring the new bytes, or make the file anew.
    attempt(fs::write(&job.items[0].source, vec![9; 100_000]), "changing the source")?;
    let before = read(&job.items[0].destination)?;
    let (second, state) = copy(transport, &job)?;
    expect(&second, &first, "the ticket of the same job")?;
    expect(&state, &CopyState::Done, "the state of the same job")?;
    expect(&(read(&job.items[0].destination)? == before), &true, "whether the destination is as before")
}

fn reused(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(1000)?;
    let job = stage.job("a");
    copy_well(transport, &job)?;
    let mut other = job.clone();
    other.items[0].destination = stage.folder.join("to/other");
    match copy(transport, &other) {
        // Refused, or really copied; never "done" without the bytes.
        Ok((_, CopyState::Done)) => same_bytes(&other.items),
        _ => Ok(()),
    }
}

fn foreign(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(10)?;
    let ticket = copy_well(transport, &stage.job("a"))?;
    let cut = ticket.get(..ticket.len() / 2).unwrap_or_default().to_vec();
    for foreign in [vec![], b"of somebody else".to_vec(), cut, vec![0xff; 10_000]] {
        let (poll, wait) = (transport.poll(&foreign).is_err(), transport.wait(&foreign).is_err());
        let refuse = [poll, wait, transport.cancel(&foreign).is_err()];
        expect(&refuse, &[true; 3], "whether poll, wait and cancel refuse a foreign ticket")?;
    }
    Ok(())
}

fn done(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.files([1 << 20; 4])?;
    let job = stage.job("a");
    copy_well(transport, &job)?;
    let before = snapshot(&job.items)?;
    stay(transport, stage, &job.items, &before)
}

fn cancel(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.files([1 << 20; 32])?;
    let job = stage.job("a");
    let ticket = start(transport, &job)?;
    until_it_moves(transport, &ticket)?;
    accepted(transport.cancel(&ticket), "cancel")?;
    let before = snapshot(&job.items)?;
    was_cancelled(transport, &ticket, &job.items)?;
    stay(transport, stage, &job.items, &before)
}

/// Another job gives one that has ended time to do wrong.
fn stay(transport: &dyn Transport, stage: &Stage, items: &[CopyItem], before: &Snapshot) -> Found<()> {
    let mut other = Stage::new(&stage.folder.join("other"))?;
    other.file(4 << 20)?;
    copy_well(transport, &other.job("a"))?;
    expect(&(snapshot(items)? == *before), &true, "whether the destinations are as they were then")
}

/// It has been told to stop, and may have been quicker.
fn was_cancelled(transport: &dyn Transport, ticket: &[u8], items: &[CopyItem]) -> Found<()> {
    match accepted(transport.wait(ticket), "wait")? {
        CopyState::Failed(error) => expect(&error.kind, &PluginErrorKind::Cancelled, "the kind of the error"),
        CopyState::Done => same_bytes(items),
        CopyState::Running(_) => Err("wait came back from a job that is running".into()),
    }
}

/// Whether each destination is there, and its bytes.
type Snapshot = Vec<Option<Vec<u8>>>;

fn snapshot(items: &[CopyItem]) -> Found<Snapshot> {
    items.iter().map(|item| item.destination.exists().then(|| read(&item.destination)).transpose()).collect()
}

fn late_cancel(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(1000)?;
    let job = stage.job("a");
    let ticket = copy_well(transport, &job)?;
    accepted(transport.cancel(&ticket), "cancel")?;
    expect(&accepted(transport.poll(&ticket), "poll")?, &CopyState::Done, "the state after a late cancel")?;
    same_bytes(&job.items)
}

fn threads(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    let one = |number: u64| {
        let mut stage = Stage::new(&stage.folder.join(format!("{number}")))?;
        stage.files((0..5).map(|extra| 20_000 * number + extra))?;
        copy_well(transport, &stage.job("a")).map(drop)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..8).map(|number| scope.spawn(move || one(number))).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

/// Never less than before, and never more than there is.
fn progress(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.file(3 << 20)?.file(0)?.file(5 << 20)?.file(1)?;
    let job = stage.job("a");
    let total = job.items.iter().map(|item| item.bytes).sum();
    let ticket = start(transport, &job)?;
    let mut before = 0;
    // A copy that takes longer than this many questions is left to `wait`.
    for _ in 0..10_000 {
        match accepted(transport.poll(&ticket), "poll")? {
            CopyState::Running(done) if done < before => {
                return Err(format!("the job had copied {before} bytes, and now {done}"));
            }
            CopyState::Running(done) if done > total => {
                return Err(format!("the job has copied {done} bytes of {total}"));
            }
            CopyState::Running(done) => before = done,
            _ => break,
        }
    }
    ends_well(transport, &ticket, &job.items)
}

fn resume(_: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    stage.files([1 << 20; 16])?;
    let job = stage.job("a");
    let ticket = start(transport, &job)?;
    accepted(transport.cancel(&ticket), "cancel")?;
    copy_well(transport, &job).map(drop)
}

/// As after the end of the process that started it. Only the host can distinguish an instance from a process.
fn handed_over(subject: &Subject<'_>, transport: &dyn Transport, stage: &mut Stage) -> Found<()> {
    if !subject.survives {
        return Ok(());
    }
    stage.files([1 << 20; 8])?;
    let (job, stopped, make) = (stage.job("a"), stage.job("b"), subject.make);
    let ticket = start(&*make(), &job)?;
    let second = make();
    expect(&start(&*second, &job)?, &ticket, "the ticket of the same job, started by another instance")?;
    ends_well(&*second, &ticket, &job.items)?;
    expect(&make().poll(&ticket), &Ok(CopyState::Done), "the state that a third instance gives")?;
    let ticket = start(&*make(), &stopped)?;
    accepted(make().cancel(&ticket), "cancel by another instance")?;
    was_cancelled(transport, &ticket, &stopped.items)
}

fn ends_well(transport: &dyn Transport, ticket: &[u8], items: &[CopyItem]) -> Found<()> {
    expect(&accepted(transport.wait(ticket), "wait")?, &CopyState::Done, "the state of the job")?;
    same_bytes(items)
}
