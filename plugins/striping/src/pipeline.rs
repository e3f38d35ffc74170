//! Carries out the plans of all blocks: reading, exchanging, computing and writing at the same time.
//!
//! Only the calling thread talks to the set. Where there are processors for it, and enough blocks to be worth it, a
//! second thread does all else: while block `t` is being exchanged, it computes block `t - 1`, reads block `t + 1` and
//! writes what is done. What a block's computer has made travels with the chunks of a later block, so
//! that there is one batch of messages per block.

use crate::errors::fault;
use crate::kernel::combine;
use crate::step::{Block, Buffer, File, Message, Place, Plans, StepPlan};
use scr_plugin_api::{Bytes, PluginError, ReceiveFrom, SendTo, Set};
use std::ops::Range;
use std::sync::mpsc;

/// With fewer blocks a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 4;

/// The memory of one block.
#[derive(Debug, Default)]
struct Buffers {
    own: Vec<u8>,
    incoming: Vec<u8>,
    kept: Vec<u8>,
    passed: Vec<u8>,
}

/// One block on its way.
#[derive(Debug)]
struct Item {
    plan: StepPlan,
    buffers: Buffers,
}

/// Carries out all plans. Called on all members at once.
///
/// # Errors
/// What the host says.
pub fn run(set: &dyn Set, plans: &dyn Plans) -> Result<(), PluginError> {
    let blocks = plans.blocks(set.message_bytes());
    if blocks.is_empty() && !plans.header().is_empty() {
        return set.redundancy().write_at(0, plans.header());
    }
    let worker = Worker { plans, data: set.data(), redundancy: set.redundancy(), spare: Vec::new() };
    // Results travel one block later with a second thread, so all members have one, or none has.
    let many = blocks.len() >= WORTH_A_THREAD;
    if many && set.max(u64::from(set.processors() < 2))? == 0 {
        at_once(set, worker, &blocks)
    } else {
        in_turn(set, worker, &blocks)
    }
}

/// Everything in this thread: the results of a block go with the chunks of the next one.
fn in_turn(set: &dyn Set, mut worker: Worker<'_>, blocks: &[Block]) -> Result<(), PluginError> {
    let mut before: Option<Item> = None;
    for turn in 0..=blocks.len() {
        set.progress(turn as u64, blocks.len() as u64 + 1)?;
        let mut current = blocks.get(turn).map(|&block| worker.read(block)).transpose()?;
        exchange(set, &mut current, &mut before)?;
        if let Some(item) = before.take() {
            worker.write(item)?;
        }
        if let Some(item) = &mut current {
            compute(item);
        }
        before = current;
    }
    Ok(())
}

/// What the second thread does during one exchange.
#[derive(Default)]
struct Chores {
    write: Option<Item>,
    compute: Option<Item>,
    read: Option<Block>,
}

/// What comes of it.
#[derive(Default)]
struct Chored {
    computed: Option<Item>,
    read: Option<Item>,
}

/// With a second thread: block `t` and the results of block `t - 2` are exchanged, while block `t - 3` is
/// written, `t - 1` computed and `t + 1` read.
fn at_once(set: &dyn Set, mut worker: Worker<'_>, blocks: &[Block]) -> Result<(), PluginError> {
    let (order, orders) = mpsc::sync_channel::<Chores>(1);
    let (report, reports) = mpsc::sync_channel::<Result<Chored, PluginError>>(1);
    std::thread::scope(|scope| {
        // The channel ends with this closure, and the second thread with the channel.
        let order = order;
        scope.spawn(move || {
            for chores in orders {
                let done = worker.chores(chores);
                if report.send(done).is_err() {
                    break;
                }
            }
        });
        let chore = |chores: Chores| order.send(chores).map_err(|_| fault("the second thread has ended"));
        let wait = || reports.recv().map_err(|_| fault("the second thread has ended"))?;
        chore(Chores { read: blocks.first().copied(), ..Chores::default() })?;
        let mut current = wait()?.read;
        let mut to_compute: Option<Item> = None;
        let mut to_pass: Option<Item> = None;
        let mut to_write: Option<Item> = None;
        let turns = blocks.len() + 3;
        for turn in 0..turns {
            set.progress(turn as u64, turns as u64)?;
            let read = blocks.get(turn + 1).copied();
            chore(Chores { write: to_write.take(), compute: to_compute.take(), read })?;
            exchange(set, &mut current, &mut to_pass)?;
            let done = wait()?;
            to_write = to_pass.take();
            to_pass = done.computed;
            to_compute = current.take();
            current = done.read;
        }
        Ok(())
    })
}

/// One batch: the chunks of one block, and the results of an earlier one.
fn exchange(set: &dyn Set, chunks: &mut Option<Item>, results: &mut Option<Item>) -> Result<(), PluginError> {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    if let Some(Item { plan, buffers }) = results {
        batch(&mut sends, &plan.result_sends, &mut receives, &plan.result_receives, buffers);
    }
    if let Some(Item { plan, buffers }) = chunks {
        batch(&mut sends, &plan.sends, &mut receives, &plan.receives, buffers);
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
    buffers: &'a mut Buffers,
) {
    let (own, passed): (&'a [u8], &'a [u8]) = (&buffers.own, &buffers.passed);
    sends.extend(outgoing.iter().map(|message| {
        let buffer = if message.buffer == Buffer::Passed { passed } else { own };
        SendTo { to: message.peer, bytes: &buffer[message.range.clone()] }
    }));
    let to_keep: Vec<bool> = incoming.iter().map(|message| message.buffer == Buffer::Kept).collect();
    let ranges: Vec<_> = incoming.iter().map(|message| message.range.clone()).collect();
    let parts = carve_two(&mut buffers.kept, &mut buffers.incoming, &to_keep, &ranges);
    let pairs = incoming.iter().zip(parts);
    receives.extend(pairs.map(|(message, bytes)| ReceiveFrom { from: message.peer, bytes }));
}

/// The parts of two buffers in the order they are asked for: of the first where the flag is set.
fn carve_two<'a>(
    first: &'a mut [u8],
    second: &'a mut [u8],
    of_first: &[bool],
    ranges: &[Range<usize>],
) -> Vec<&'a mut [u8]> {
    let of = |wanted: bool| {
        let chosen = ranges.iter().zip(of_first).filter(move |(_, flag)| **flag == wanted);
        chosen.map(|(range, _)| range.clone()).collect::<Vec<_>>()
    };
    let (mut firsts, mut seconds) =
        (carve(first, &of(true)).into_iter(), carve(second, &of(false)).into_iter());
    of_first.iter().filter_map(|&flag| if flag { firsts.next() } else { seconds.next() }).collect()
}

/// The parts of a buffer in the order they are asked for. They must not overlap.
fn carve<'a>(buffer: &'a mut [u8], ranges: &[Range<usize>]) -> Vec<&'a mut [u8]> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|&index| (ranges[index].start, ranges[index].end));
    let mut parts: Vec<&mut [u8]> = Vec::with_capacity(ranges.len());
    let mut places = vec![0; ranges.len()];
    let (mut rest, mut at) = (buffer, 0);
    for index in order {
        let range = &ranges[index];
        let (part, after) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
        places[index] = parts.len();
        parts.push(part);
        (rest, at) = (after, range.end);
    }
    places.into_iter().map(|place| std::mem::take(&mut parts[place])).collect()
}

fn compute(item: &mut Item) {
    let Item { plan, buffers } = item;
    let Buffers { own, incoming, kept, passed } = buffers;
    for task in &plan.tasks {
        let inputs = task.inputs.iter().map(|(buffer, range)| {
            let buffer: &[u8] = if *buffer == Buffer::Own { own } else { incoming };
            &buffer[range.clone()]
        });
        let inputs: Vec<&[u8]> = inputs.collect();
        let to_keep: Vec<bool> = task.outputs.iter().map(|(buffer, _)| *buffer == Buffer::Kept).collect();
        let ranges: Vec<_> = task.outputs.iter().map(|(_, range)| range.clone()).collect();
        let mut outputs = carve_two(kept, passed, &to_keep, &ranges);
        combine(&task.coefficients, &inputs, &mut outputs);
    }
}

/// What is done beside the exchanges.
struct Worker<'a> {
    plans: &'a dyn Plans,
    data: &'a dyn Bytes,
    redundancy: &'a dyn Bytes,
    /// Memory of blocks that are done.
    spare: Vec<Buffers>,
}

impl Worker<'_> {
    fn chores(&mut self, chores: Chores) -> Result<Chored, PluginError> {
        if let Some(item) = chores.write {
            self.write(item)?;
        }
        let mut computed = chores.compute;
        if let Some(item) = &mut computed {
            compute(item);
        }
        let read = chores.read.map(|block| self.read(block)).transpose()?;
        Ok(Chored { computed, read })
    }

    fn file(&self, place: Place) -> &dyn Bytes {
        match place.file {
            File::Data => self.data,
            File::Redundancy => self.redundancy,
        }
    }

    fn read(&mut self, block: Block) -> Result<Item, PluginError> {
        let plan = self.plans.step(block)?;
        let mut buffers = self.spare.pop().unwrap_or_default();
        buffers.own.resize(plan.lens[Buffer::Own as usize], 0);
        buffers.incoming.resize(plan.lens[Buffer::Incoming as usize], 0);
        buffers.kept.resize(plan.lens[Buffer::Kept as usize], 0);
        buffers.passed.resize(plan.lens[Buffer::Passed as usize], 0);
        for range in &plan.zeros {
            buffers.kept[range.clone()].fill(0);
        }
        if plan.has_header {
            let header = self.plans.header();
            buffers.kept[..header.len()].copy_from_slice(header);
        }
        for (place, range) in &plan.reads {
            self.file(*place).read_at(place.offset, &mut buffers.own[range.clone()])?;
        }
        Ok(Item { plan, buffers })
    }

    fn write(&mut self, item: Item) -> Result<(), PluginError> {
        for (place, range) in &item.plan.writes {
            self.file(*place).write_at(place.offset, &item.buffers.kept[range.clone()])?;
        }
        self.spare.push(item.buffers);
        Ok(())
    }
}
