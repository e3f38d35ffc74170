//! The work of one member for one block: what it reads, sends, computes and writes.
//!
//! Protecting and rebuilding are the same operation: in every stripe one member, the *computer*, receives as many chunks as there
//! are data columns, computes the wanted ones, and sends them to the members that keep them. In protecting, the wanted ones are
//! the parity rows, and the computer is the owner of row 0. In rebuilding, they are the chunks of the lost members, and the
//! survivors take turns as computers, from block to block.
//!
//! Every member derives the plan of every other from the same few numbers, so the lengths of all messages are known on both
//! sides. Messages of padding only are not sent.

use crate::layout::Layout;
use crate::matrix::solve;
use crate::step::{Block, Buffer, Message, Plans, StepPlan, Task};
use scr_plugin_api::PluginError;
use std::ops::Range;

/// The goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The parity of all members.
    Protect,
    /// All that the members have for which this holds; at least one has not, and no more than can be.
    Rebuild(Vec<bool>),
}

/// Makes the plans of one member.
#[derive(Debug, Clone)]
pub(crate) struct Planner {
    layout: Layout,
    rank: u32,
    goal: Goal,
    /// The members that did not lose anything.
    survivors: Vec<u32>,
    /// The start of parity in the redundancy.
    parities_at: u64,
    /// The header that this member writes before all else; nothing if it keeps what it has.
    header: Vec<u8>,
}

/// The tasks of the members in one block of one stripe; the same for all members.
struct Stripe {
    number: u32,
    computer: u32,
    /// Positions that are needed, and how many bytes of each.
    inputs: Vec<(u32, usize)>,
    /// Positions that are made, and how many bytes of each may be other than zero.
    outputs: Vec<(u32, usize)>,
}

impl Planner {
    /// The plans of the member `rank`, whose header, if it is to write one, is `header`.
    pub(crate) fn new(layout: Layout, rank: u32, goal: Goal, parities_at: u64, header: Vec<u8>) -> Self {
        let lost = |member: &u32| matches!(&goal, Goal::Rebuild(lost) if lost[*member as usize]);
        let survivors = (0..layout.members).filter(|member| !lost(member)).collect();
        Self { layout, rank, goal, survivors, parities_at, header }
    }

    fn stripe(&self, number: u32, block: Block) -> Stripe {
        let wanted: Vec<u32> = match &self.goal {
            Goal::Protect => (0..self.layout.parities).collect(),
            Goal::Rebuild(lost) => (0..self.layout.members)
                .filter(|&position| lost[self.layout.member(number, position) as usize])
                .collect(),
        };
        let live = |position: u32| self.layout.live(number, position, block);
        let outputs: Vec<(u32, usize)> = wanted.iter().map(|&position| (position, live(position))).collect();
        let needed = outputs.iter().map(|&(_, live)| live).max().unwrap_or(0);
        let (computer, known) = self.computer(number, block, &wanted);
        let inputs = known.into_iter().map(|position| (position, live(position).min(needed))).collect();
        Stripe { number, computer, inputs, outputs }
    }

    /// The member that computes a stripe, and the positions that it uses: data first, since it costs no arithmetic.
    fn computer(&self, number: u32, block: Block, wanted: &[u32]) -> (u32, Vec<u32>) {
        let (members, parities) = (self.layout.members, self.layout.parities);
        if self.goal == Goal::Protect {
            return (number, (parities..members).collect());
        }
        let turn = (u64::from(number) + block.index) % self.survivors.len() as u64;
        let computer = self.survivors[turn as usize];
        let own = self.layout.position(number, computer);
        let others = (parities..members).chain(0..parities);
        let others = others.filter(|position| *position != own && !wanted.contains(position));
        let mut known: Vec<u32> =
            std::iter::once(own).chain(others).take(self.layout.columns() as usize).collect();
        known.sort_unstable();
        (computer, known)
    }
}

impl Plans for Planner {
    fn blocks(&self, message_bytes: u64) -> Vec<Block> {
        self.layout.blocks(message_bytes).collect()
    }

    fn header(&self) -> &[u8] {
        &self.header
    }

    fn step(&self, block: Block) -> Result<StepPlan, PluginError> {
        let mut draft = Draft { planner: self, block, plan: StepPlan::new(block, &self.header) };
        // By position, so that what is read and written lies in the order of the files.
        for position in 0..self.layout.members {
            let number = (self.rank + self.layout.members - position) % self.layout.members;
            draft.add(&self.stripe(number, block), position)?;
        }
        draft.plan.stagger(self.rank, self.layout.members);
        Ok(draft.plan)
    }
}

/// A plan in the making.
struct Draft<'a> {
    planner: &'a Planner,
    block: Block,
    plan: StepPlan,
}

impl Draft<'_> {
    /// Adds a stripe, in which this member is at the position `mine`.
    fn add(&mut self, stripe: &Stripe, mine: u32) -> Result<(), PluginError> {
        if stripe.computer == self.planner.rank {
            return self.add_task(stripe, mine);
        }
        if let Some(&(_, len)) = stripe.inputs.iter().find(|&&(position, len)| position == mine && len > 0) {
            let range = self.read(mine, len);
            self.plan.sends.push(Message::new(stripe.computer, stripe.number, Buffer::Own, range));
        }
        if let Some(&(_, live)) = stripe.outputs.iter().find(|&&(position, _)| position == mine) {
            let range = self.keep(stripe, mine, live);
            if !range.is_empty() {
                let message = Message::new(stripe.computer, stripe.number, Buffer::Local, range);
                self.plan.result_receives.push(message);
            }
        }
        Ok(())
    }

    /// The stripe is this member's to compute.
    fn add_task(&mut self, stripe: &Stripe, mine: u32) -> Result<(), PluginError> {
        let layout = &self.planner.layout;
        if stripe.outputs.iter().all(|&(_, live)| live == 0) {
            if let Some(&(_, live)) = stripe.outputs.iter().find(|&&(position, _)| position == mine) {
                self.keep(stripe, mine, live);
            }
            return Ok(());
        }
        let known: Vec<u32> = stripe.inputs.iter().map(|&(position, _)| position).collect();
        let wanted: Vec<u32> = stripe.outputs.iter().map(|&(position, _)| position).collect();
        let coefficients = solve(layout.parities, layout.columns(), &known, &wanted).ok_or_else(|| {
            PluginError::fault("a stripe has fewer known chunks than data columns: a bug in the plan")
        })?;
        let inputs = stripe.inputs.iter().map(|&(position, len)| self.input(stripe, mine, position, len));
        let inputs = inputs.collect();
        let outputs =
            stripe.outputs.iter().map(|&(position, live)| self.output(stripe, mine, position, live));
        let outputs = outputs.collect();
        self.plan.tasks.push(Task { inputs, outputs, coefficients });
        Ok(())
    }

    fn input(&mut self, stripe: &Stripe, mine: u32, position: u32, len: usize) -> (Buffer, Range<usize>) {
        if position == mine {
            return (Buffer::Own, self.read(position, len));
        }
        let range = self.plan.room(Buffer::Incoming, len);
        if len > 0 {
            let peer = self.planner.layout.member(stripe.number, position);
            self.plan.receives.push(Message::new(peer, stripe.number, Buffer::Incoming, range.clone()));
        }
        (Buffer::Incoming, range)
    }

    fn output(&mut self, stripe: &Stripe, mine: u32, position: u32, live: usize) -> (Buffer, Range<usize>) {
        if position == mine {
            return (Buffer::Local, self.keep(stripe, position, live));
        }
        let range = self.plan.room(Buffer::Outgoing, live);
        if live > 0 {
            let peer = self.planner.layout.member(stripe.number, position);
            self.plan.result_sends.push(Message::new(peer, stripe.number, Buffer::Outgoing, range.clone()));
        }
        (Buffer::Outgoing, range)
    }

    fn read(&mut self, position: u32, len: usize) -> Range<usize> {
        let place = self.planner.layout.place(position, self.block, self.planner.parities_at);
        self.plan.read(place, len)
    }

    /// Room for what this member writes; gives the part that is not zero by its nature.
    fn keep(&mut self, stripe: &Stripe, position: u32, live: usize) -> Range<usize> {
        let stored = self.planner.layout.stored(stripe.number, position, self.block);
        let place = self.planner.layout.place(position, self.block, self.planner.parities_at);
        self.plan.keep(place, live.min(stored), stored)
    }
}
