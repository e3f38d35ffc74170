//! Carries out the plans of all blocks: reading, exchanging, computing and writing at the same time.
//!
//! Only the calling thread communicates with the set. If there are processors for it, and enough blocks, a second thread does
//! everything else: while block `t` is being exchanged, it computes block `t - 1`, reads block `t + 1` and writes finished
//! blocks. The results of a block are sent with the chunks of a later block, so that there is one batch of messages per block. A
//! block without such results is written as soon as it is computed, and buffers are used again at once: what was received last is
//! still in the processor's cache, and fewer pages are touched for the first time.

use crate::kernel::combine;
use crate::step::{Block, Buffer, File, Message, Place, Plans, StepPlan};
use scr_plugin_api::{grow, Bytes, PluginError, ReceiveFrom, SendTo, Set};
use std::mem::take;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{Builder, Scope};

/// With fewer blocks a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 4;

/// One block on its way.
struct Item {
    plan: StepPlan,
    memory: Memory,
}

/// The memory of a block, used again for one after the other: each [`Buffer`], in their order.
type Memory = [Vec<u8>; 4];

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
fn sequential(set: &dyn Set, mut worker: Worker<'_>, blocks: &[Block]) -> Result<(), PluginError> {
    let mut before: Option<Item> = None;
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
struct StageWork {
    write: Option<Item>,
    compute: Option<Item>,
    read: Option<Block>,
}

/// Its result.
#[derive(Default)]
struct StageDone {
    computed: Option<Item>,
    read: Option<Item>,
}

/// The second thread, which ends when this is dropped.
struct Second {
    orders: SyncSender<StageWork>,
    reports: Receiver<Result<StageDone, PluginError>>,
}

impl Second {
    /// Nothing where the system gives no thread.
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, mut worker: Worker<'scope>) -> Option<Self> {
        let (orders, incoming) = mpsc::sync_channel::<StageWork>(1);
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

    fn hand_over(&self, work: StageWork) -> Result<(), PluginError> {
        self.orders.send(work).map_err(|_| has_ended())
    }

    fn wait(&self) -> Result<StageDone, PluginError> {
        self.reports.recv().map_err(|_| has_ended())?
    }
}

fn has_ended() -> PluginError {
    PluginError::fault("the second thread has ended")
}

/// With a second thread: block `t` and the results of block `t - 2` are exchanged, while block `t - 3` is
/// written, `t - 1` computed (and written, if it has no results to exchange) and `t + 1` read.
fn overlapped(set: &dyn Set, second: &Second, blocks: &[Block]) -> Result<(), PluginError> {
    second.hand_over(StageWork { read: blocks.first().copied(), ..StageWork::default() })?;
    let mut current = second.wait()?.read;
    let mut to_compute: Option<Item> = None;
    let mut to_pass: Option<Item> = None;
    let mut to_write: Option<Item> = None;
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
fn exchange(set: &dyn Set, chunks: &mut Option<Item>, results: &mut Option<Item>) -> Result<(), PluginError> {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    if let Some(Item { plan, memory }) = results {
        batch(&mut sends, &plan.result_sends, &mut receives, &plan.result_receives, memory);
    }
    if let Some(Item { plan, memory }) = chunks {
        batch(&mut sends, &plan.sends, &mut receives, &plan.receives, memory);
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
    [own, received, local, computed]: &'a mut Memory,
) {
    let (own, computed): (&'a [u8], &'a [u8]) = (own, computed);
    sends.extend(outgoing.iter().map(|message| {
        let buffer = if message.buffer == Buffer::Outgoing { computed } else { own };
        SendTo { to: message.peer, bytes: &buffer[message.range.clone()] }
    }));
    let wanted = incoming.iter().map(|message| (message.buffer, &message.range)).collect::<Vec<_>>();
    let pairs = incoming.iter().zip(carve(local, received, &wanted));
    receives.extend(pairs.map(|(message, bytes)| ReceiveFrom { from: message.peer, bytes }));
}

fn run_tasks(Item { plan, memory: [own, incoming, local, outgoing] }: &mut Item) {
    for task in &plan.tasks {
        let inputs = task.inputs.iter().map(|(buffer, range)| {
            let buffer = if *buffer == Buffer::Own { &*own } else { &*incoming };
            &buffer[range.clone()]
        });
        let inputs: Vec<&[u8]> = inputs.collect();
        let wanted = task.outputs.iter().map(|(buffer, range)| (*buffer, range)).collect::<Vec<_>>();
        combine(&task.coefficients, &inputs, &mut carve(local, outgoing, &wanted));
    }
}

/// The parts of two buffers in the order they are asked for: of `local` where that is asked for, and else of the other. They must
/// not overlap.
fn carve<'m>(
    local: &'m mut [u8],
    other: &'m mut [u8],
    wanted: &[(Buffer, &Range<usize>)],
) -> Vec<&'m mut [u8]> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| (wanted[index].1.start, wanted[index].1.end));
    let mut parts: Vec<&mut [u8]> = wanted.iter().map(|_| Default::default()).collect();
    let mut rests = [(0, local), (0, other)];
    for index in order {
        let (buffer, range) = wanted[index];
        let (at, rest) = &mut rests[usize::from(buffer != Buffer::Local)];
        let (part, after) = take(rest).split_at_mut(range.start - *at).1.split_at_mut(range.len());
        (parts[index], *at, *rest) = (part, range.end, after);
    }
    parts
}

/// The work beside the exchanges.
struct Worker<'a> {
    plans: &'a dyn Plans,
    data: &'a dyn Bytes,
    redundancy: &'a dyn Bytes,
    /// Memory of blocks that are done.
    spare: Vec<Memory>,
    /// Memory that blocks have computed from, and do not need any more.
    incoming: Vec<Vec<u8>>,
}

impl Worker<'_> {
    fn run_stage(&mut self, work: StageWork) -> Result<StageDone, PluginError> {
        if let Some(item) = work.write {
            self.write(item)?;
        }
        let computed = self.compute(work.compute)?;
        let read = work.read.map(|block| self.read(block)).transpose()?;
        Ok(StageDone { computed, read })
    }

    fn file(&self, place: Place) -> &dyn Bytes {
        match place.file {
            File::Data => self.data,
            File::Redundancy => self.redundancy,
        }
    }

    fn read(&mut self, block: Block) -> Result<Item, PluginError> {
        let plan = self.plans.step(block)?;
        let mut memory = self.spare.pop().unwrap_or_default();
        if let Some(incoming) = self.incoming.pop() {
            memory[Buffer::Incoming as usize] = incoming;
        }
        for (buffer, &len) in memory.iter_mut().zip(&plan.lens) {
            // Fails where the process gets no memory.
            grow(buffer, len).map_err(|error| PluginError::io(error.to_string()))?;
        }
        let [own, _, local, _] = &mut memory;
        // What nobody computes or sends.
        if plan.has_header {
            let header = self.plans.header();
            local[..header.len()].copy_from_slice(header);
        }
        plan.zeros.iter().for_each(|zeros| local[zeros.clone()].fill(0));
        for (place, range) in &plan.reads {
            self.file(*place).read_at(place.offset, &mut own[range.clone()])?;
        }
        Ok(Item { plan, memory })
    }

    /// Computes a block of which all chunks are there. Gives it back if results are still to be exchanged.
    fn compute(&mut self, item: Option<Item>) -> Result<Option<Item>, PluginError> {
        let Some(mut item) = item else { return Ok(None) };
        run_tasks(&mut item);
        if !item.plan.result_sends.is_empty() || !item.plan.result_receives.is_empty() {
            self.incoming.push(take(&mut item.memory[Buffer::Incoming as usize]));
            return Ok(Some(item));
        }
        self.write(item).map(|()| None)
    }

    fn write(&mut self, Item { plan, memory }: Item) -> Result<(), PluginError> {
        for (place, range) in &plan.writes {
            self.file(*place).write_at(place.offset, &memory[Buffer::Local as usize][range.clone()])?;
        }
        self.spare.push(memory);
        Ok(())
    }
}
