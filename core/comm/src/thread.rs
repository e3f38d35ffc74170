//! Ranks as threads of one process.
//!
//! Commands rebuild files with it without MPI, and tests run whole jobs on it, with thousands of ranks. Nothing ever hangs: ranks
//! that wait for each other, or for one that has ended, all get [`CommError::Deadlock`](super::CommError::Deadlock). A rank that panics is reported.

use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use super::awaited::Awaited;
use super::receives::Receives;
use super::world::{Waiting, World};
use super::{check, Ask, Comm, Exchanged, Incomings, Rank, Result, Sends, Tag, Traffic, WaitControl};
use scr_plugin_api::abi::panic_text;
use scr_plugin_api::held;

/// Runs `body` once per rank, each in its own thread, and gives what they returned, by rank.
///
/// # Errors
/// [`RunError`] where a rank panicked or its thread could not be started.
pub fn run<T: Send>(ranks: u32, body: impl Fn(ThreadComm) -> T + Sync) -> Result<Vec<T>, RunError> {
    run_with_stack(ranks, 1 << 20, body)
}

/// The same with threads that have a stack of so many bytes, where 1 MiB is usual.
///
/// # Errors
/// As for [`run`].
#[expect(clippy::disallowed_methods, reason = "ranks take the signals that their caller does")]
pub fn run_with_stack<T: Send>(
    ranks: u32,
    stack_bytes: usize,
    body: impl Fn(ThreadComm) -> T + Sync,
) -> Result<Vec<T>, RunError> {
    let world = Arc::new(World::new(ranks));
    let panics = Mutex::new(Vec::new());
    let rank_body = |rank: Rank| {
        let comm = ThreadComm::new(&world, rank);
        let result = catch_unwind(AssertUnwindSafe(|| body(comm)));
        let text = |panic: &(dyn Any + Send)| panic_text(panic).unwrap_or_else(|| "no text".to_owned());
        let result = result.map_err(|panic| held(&panics).push((rank, text(&*panic)))).ok();
        // Only now: what others say about a rank that has ended must come after its own panic.
        world.end(rank);
        result
    };
    let results = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for rank in (0..ranks).map(Rank) {
            let builder = std::thread::Builder::new().name(format!("rank {rank}"));
            let rank_body = &rank_body;
            match builder.stack_size(stack_bytes).spawn_scoped(scope, move || rank_body(rank)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    (rank.0..ranks).for_each(|missing| world.end(Rank(missing)));
                    let why = format!("cannot start a thread for rank {rank} of {ranks}: {error}");
                    return Err(RunError(why));
                }
            }
        }
        let results = threads.into_iter().map(|thread| thread.join().ok().flatten());
        Ok(results.collect::<Option<Vec<T>>>())
    })?;
    let panics = panics.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.ok_or_else(|| panicked(panics))
}

/// The ends of a communicator, by rank, for threads of the caller's own. A rank has ended when its end is dropped.
pub fn ends(ranks: u32) -> Vec<ThreadComm> {
    let world = Arc::new(World::new(ranks));
    (0..ranks).map(|rank| ThreadComm::new(&world, Rank(rank))).collect()
}

/// Why a run gave no results.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(String);

/// One rank's end of the communicator. When it is dropped, the rank has ended.
pub struct ThreadComm {
    world: Arc<World>,
    rank: Rank,
    traffic: Cell<Traffic>,
    /// The messages that exchanges under way wait for, so that nothing else takes them.
    awaited: Awaited,
    /// The ranks of a run that the ranks stand for, where they do not stand for themselves.
    stands_for: Option<Arc<[Rank]>>,
}

impl ThreadComm {
    fn new(world: &Arc<World>, rank: Rank) -> Self {
        let (world, traffic, awaited) = (Arc::clone(world), Cell::default(), Awaited::default());
        Self { world, rank, traffic, awaited, stands_for: None }
    }

    /// Each rank stands for the rank at its place in `ranks`, which are some ranks of a run in ascending order: for a command that
    /// rebuilds their parts. Collectives count from 0. Redundancy sets and errors name the ranks of the run.
    #[must_use]
    pub fn standing_for(mut self, ranks: Arc<[Rank]>) -> Self {
        self.stands_for = Some(ranks);
        self
    }

    /// Messages that have come for this rank and that nobody has received: who sent each, with which tag.
    pub fn pending(&self) -> Vec<(Rank, Tag)> {
        self.world.pending(self.rank)
    }
}

impl Comm for ThreadComm {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.world.size()).unwrap_or(u32::MAX)
    }

    fn exchange(&self, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged {
        check(self.size(), tag, sends, receives)?;
        self.traffic.set(self.traffic.get().with(sends));
        // What is sent is copied before any lock is taken.
        let letters = sends.iter().map(|send| (send.to, send.bytes.to_vec())).collect();
        self.world.post(self.rank, tag, letters)?;
        let mut receives = Receives::new(tag, receives);
        loop {
            let (letters, come) = self.world.collect(self.rank, tag, receives.wanted())?;
            for (place, from, bytes) in letters {
                receives.take(place, from, &bytes);
            }
            if receives.is_over() {
                return receives.end(ask);
            }
            let awaited: Vec<Rank> = receives.awaited().collect();
            let wait = || ask(&receives.come);
            let asked = self.awaited.while_waiting_for(tag, awaited.iter().copied(), wait)?;
            if asked == WaitControl::GiveUp {
                receives.given_up = true;
                continue;
            }
            self.world.wait(self.rank, come, || Waiting { tag, from: awaited })?;
        }
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>> {
        check(self.size(), tag, &[], &[])?;
        self.world.take(self.rank, tag, |from| self.awaited.is_awaited(tag, from))
    }

    fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    fn stands_for(&self, rank: Rank) -> Rank {
        let of_run = self.stands_for.as_ref().and_then(|ranks| ranks.get(rank.index()));
        of_run.copied().unwrap_or(rank)
    }

    fn stand_in(&self, rank: Rank) -> Option<Rank> {
        let Some(ranks) = &self.stands_for else { return (rank.0 < self.size()).then_some(rank) };
        u32::try_from(ranks.binary_search(&rank).ok()?).ok().map(Rank)
    }
}

impl Drop for ThreadComm {
    fn drop(&mut self) {
        // A rank that panics is ended by [`run`], once the panic is on record.
        if !std::thread::panicking() {
            self.world.end(self.rank);
        }
    }
}

fn panicked(panics: Vec<(Rank, String)>) -> RunError {
    let more = match panics.len() {
        0 | 1 => String::new(),
        all => format!(" (and {} more ranks after it)", all - 1),
    };
    let first = panics.into_iter().next();
    let (rank, text) = first.unwrap_or_else(|| (Rank(0), "its thread ended without a result".to_owned()));
    RunError(format!("rank {rank} panicked: {text}{more}"))
}
