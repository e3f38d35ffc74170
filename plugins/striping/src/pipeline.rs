//! Carries out the plans of all blocks: reading, exchanging, computing and writing at the same time.
//!
//! Only the calling thread communicates with the set. If there are processors for it, and enough blocks, a second thread does
//! everything else: while block `t` is being exchanged, it computes block `t - 1`, reads block `t + 1` and writes finished
//! blocks. The results of a block are sent with the chunks of a later block, so that there is one batch of messages per block. A
//! block without such results is written as soon as it is computed, and buffers are used again at once: what was received last is
//! still in the processor's cache, and fewer pages are touched for the first time.

use crate::kernel::combine;
use crate::memory::{carve_two, Buffers, Memory, Parts};
use crate::step::{Block, Buffer, File, Message, Place, Plans, StepPlan};
use scr_plugin_api::{Bytes, PluginError, ReceiveFrom, SendTo, Set};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{Builder, Scope};

/// With fewer blocks a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 4;

/// One block on its way.
struct Item<'a> {
    plan: StepPlan,
    memory: Memory<'a>,
}

/// Carries out all plans. Called on all members at once.
///
/// # Errors
/// The error of the host.
pub fn run(set: &dyn Set, plans: &dyn Plans) -> Result<(), PluginError> {
    let blocks = plans.blocks(set.message_bytes());
    if blocks.is_empty() && !plans.header().is_empty() {
        return set.redundancy().write_at(0, plans.header());
    }
    let (data, redundancy) = (set.data(), set.redundancy());
    let worker = || Worker { plans, data, redundancy, spare: Vec::new(), incoming: Vec::new() };
    if blocks.len() < WORTH_A_THREAD {
        return sequential(set, worker(), &blocks);
    }
    std::thread::scope(|scope| {
        let second = if set.processors() < 2 { None } else { Second::start(scope, worker()) };
        // Results travel one block later with a second thread, so all members have one, or none has.
        let lacks = set.max(u64::from(second.is_none()))?;
        match second.filter(|_| lacks == 0) {
            Some(second) => overlapped(set, &second, &blocks),
            None => sequential(set, worker(), &blocks),
        }
    })
}

/// Everything in this thread: the results of a block go with the chunks of the next one.
fn sequential<'a>(set: &dyn Set, mut worker: Worker<'a>, blocks: &[Block]) -> Result<(), PluginError> {
    let mut before: Option<Item<'a>> = None;
    for turn in 0..=blocks.len() {
        let mut current = blocks.get(turn).map(|&block| worker.read(block)).transpose()?;
        exchange(set, &mut current, &mut before)?;
        if let Some(item) = before.take() {
            worker.write(item)?;
        }
        before = worker.compute(current)?;
    }
    Ok(())
}

/// The work of the second thread during one exchange.
#[derive(Default)]
struct StageWork<'a> {
    write: Option<Item<'a>>,
    compute: Option<Item<'a>>,
    read: Option<Block>,
}

/// Its result.
#[derive(Default)]
struct StageDone<'a> {
    computed: Option<Item<'a>>,
    read: Option<Item<'a>>,
}

/// The second thread, which ends when this is dropped.
struct Second<'a> {
    orders: SyncSender<StageWork<'a>>,
    reports: Receiver<Result<StageDone<'a>, PluginError>>,
}

impl<'a> Second<'a> {
    /// Nothing where the system gives no thread.
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, mut worker: Worker<'a>) -> Option<Self>
    where
        'a: 'scope,
    {
        let (orders, incoming) = mpsc::sync_channel::<StageWork<'a>>(1);
        let (report, reports) = mpsc::sync_channel(1);
        let work = move || {
            for work in incoming {
                if report.send(worker.run_stage(work)).is_err() {
                    break;
                }
            }
        };
        Builder::new().spawn_scoped(scope, work).ok()?;
        Some(Self { orders, reports })
    }

    fn hand_over(&self, work: StageWork<'a>) -> Result<(), PluginError> {
        self.orders.send(work).map_err(|_| has_ended())
    }

    fn wait(&self) -> Result<StageDone<'a>, PluginError> {
        self.reports.recv().map_err(|_| has_ended())?
    }
}

fn has_ended() -> PluginError {
    PluginError::fault("the second thread has ended")
}

/// With a second thread: block `t` and the results of block `t - 2` are exchanged, while block `t - 3` is
/// written, `t - 1` computed (and written, if it has no results to exchange) and `t + 1` read.
fn overlapped<'a>(set: &dyn Set, second: &Second<'a>, blocks: &[Block]) -> Result<(), PluginError> {
    second.hand_over(StageWork { read: blocks.first().copied(), ..StageWork::default() })?;
    let mut current = second.wait()?.read;
    let mut to_compute: Option<Item<'a>> = None;
    let mut to_pass: Option<Item<'a>> = None;
    let mut to_write: Option<Item<'a>> = None;
    for turn in 0..blocks.len() + 3 {
        let read = blocks.get(turn + 1).copied();
        second.hand_over(StageWork { write: to_write.take(), compute: to_compute.take(), read })?;
        exchange(set, &mut current, &mut to_pass)?;
        let done = second.wait()?;
        to_write = to_pass.take();
        to_pass = done.computed;
        to_compute = current.take();
        current = done.read;
    }
    Ok(())
}

/// One batch: the chunks of one block, and the results of an earlier one.
fn exchange(
    set: &dyn Set,
    chunks: &mut Option<Item<'_>>,
    results: &mut Option<Item<'_>>,
) -> Result<(), PluginError> {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    if let Some(Item { plan, memory }) = results {
        batch(&mut sends, &plan.result_sends, &mut receives, &plan.result_receives, memory.parts());
    }
    if let Some(Item { plan, memory }) = chunks {
        batch(&mut sends, &plan.sends, &mut receives, &plan.receives, memory.parts());
    }
    if sends.is_empty() && receives.is_empty() {
        return Ok(());
    }
    set.exchange(&sends, &mut receives)
}

/// Adds messages of one block. They are sent out of some buffers and received into others.
fn batch<'a>(
    sends: &mut Vec<SendTo<'a>>,
    outgoing: &[Message],
    receives: &mut Vec<ReceiveFrom<'a>>,
    incoming: &[Message],
    parts: Parts<'a>,
) {
    let Parts { own, outgoing: computed, local, incoming: buffer } = parts;
    let computed: &'a [u8] = computed;
    sends.extend(outgoing.iter().map(|message| {
        let range = &message.range;
        let bytes =
            if message.buffer == Buffer::Outgoing { &computed[range.clone()] } else { own.part(range) };
        SendTo { to: message.peer, bytes }
    }));
    let wanted = incoming.iter().map(|message| (message.buffer, &message.range));
    let parts = carve_two(local, buffer, wanted);
    let pairs = incoming.iter().zip(parts);
    receives.extend(pairs.map(|(message, bytes)| ReceiveFrom { from: message.peer, bytes }));
}

fn run_tasks(Item { plan, memory }: &mut Item<'_>) {
    for task in &plan.tasks {
        let Parts { own, incoming, local, outgoing } = memory.parts();
        let incoming: &[u8] = incoming;
        let inputs = task.inputs.iter().map(|(buffer, range)| {
            if *buffer == Buffer::Own {
                own.part(range)
            } else {
                &incoming[range.clone()]
            }
        });
        let inputs: Vec<&[u8]> = inputs.collect();
        let wanted = task.outputs.iter().map(|(buffer, range)| (*buffer, range));
        let mut outputs = carve_two(local, outgoing, wanted);
        combine(&task.coefficients, &inputs, &mut outputs);
    }
}

/// The work beside the exchanges.
struct Worker<'a> {
    plans: &'a dyn Plans,
    data: &'a dyn Bytes,
    redundancy: &'a dyn Bytes,
    /// Memory of blocks that are done.
    spare: Vec<Buffers>,
    /// Memory that blocks have computed from, and do not need any more.
    incoming: Vec<Vec<u8>>,
}

impl<'a> Worker<'a> {
    fn run_stage(&mut self, work: StageWork<'a>) -> Result<StageDone<'a>, PluginError> {
        if let Some(item) = work.write {
            self.write(item)?;
        }
        let computed = self.compute(work.compute)?;
        let read = work.read.map(|block| self.read(block)).transpose()?;
        Ok(StageDone { computed, read })
    }

    fn file(&self, place: Place) -> &'a dyn Bytes {
        match place.file {
            File::Data => self.data,
            File::Redundancy => self.redundancy,
        }
    }

    fn read(&mut self, block: Block) -> Result<Item<'a>, PluginError> {
        let plan = self.plans.step(block)?;
        let mut buffers = self.spare.pop().unwrap_or_default();
        if let Some(incoming) = self.incoming.pop() {
            buffers.incoming = incoming;
        }
        let map = |place: Place, len| self.file(place).borrow_mut(place.offset, len);
        let mut memory = Memory::new(&plan, buffers, map)?;
        memory.begin(&plan, self.plans.header());
        for (place, range) in &plan.reads {
            memory.read(self.file(*place), place.offset, range)?;
        }
        Ok(Item { plan, memory })
    }

    /// Computes a block of which all chunks are there. Gives it back if results are still to be exchanged.
    fn compute(&mut self, item: Option<Item<'a>>) -> Result<Option<Item<'a>>, PluginError> {
        let Some(mut item) = item else { return Ok(None) };
        run_tasks(&mut item);
        if item.plan.has_results() {
            self.incoming.push(item.memory.take_incoming());
            return Ok(Some(item));
        }
        self.write(item).map(|()| None)
    }

    fn write(&mut self, item: Item<'a>) -> Result<(), PluginError> {
        for (place, bytes) in item.memory.to_write(&item.plan) {
            self.file(place).write_at(place.offset, bytes)?;
        }
        self.spare.push(item.memory.done());
        Ok(())
    }
}
