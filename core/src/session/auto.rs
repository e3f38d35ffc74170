//! `SCR_CHECKPOINT_INTERVAL=AUTO`: a checkpoint is due when that loses least time, by what the run measures.
//!
//! Every rank times its checkpoints, and rank 0 alone decides: it plans anew when a cost has changed. The failures and restarts
//! of earlier runs of the job come from the event log.

use super::need_checkpoint::CheckpointTimes;
use crate::cache::record::RankRecord;
use crate::job::Job;
use crate::log::{Class, Event, Figures, Record};
use scr_config::descriptor::{protects, Descriptors};
use scr_config::param::{self, Interval};
use scr_plan::{Auto, Experience, Kind, Stated};
use std::time::Duration;

/// The measurements of the run, and the plan that follows from them.
#[derive(Debug, Default)]
pub(super) struct AutoInterval {
    /// Checkpoints in cache that do not survive the loss of a node, and those that do.
    weak: Cost,
    strong: Cost,
    /// Flushes that the application waits for, and checkpoints that go straight to the prefix directory.
    flush: Cost,
    plan: Option<Plan>,
    /// Whether something was measured since then, and whether the time of a flush is known.
    has_changed: bool,
    is_flush_known: bool,
    /// When the application has asked last, and how long it computes between two questions.
    asked: Option<Duration>,
    step: Cost,
}

/// A plan, and what it was made for.
#[derive(Debug)]
struct Plan {
    auto: Auto,
    costs: [Option<f64>; 3],
    /// Seconds of a checkpoint and its flush.
    of_one: f64,
}

/// The average time of the last few operations, in seconds: each weighs twice as much as the one before it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cost(Option<f64>);

impl Cost {
    fn add(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.0 = Some(self.0.map_or(took, |before| f64::midpoint(before, took)));
    }
}

/// Whether the user wants it.
pub(super) fn is_wanted(job: &Job) -> bool {
    job.params.get(&param::CHECKPOINT_INTERVAL) == Interval::Auto
}

impl AutoInterval {
    /// A checkpoint took this long, without a flush.
    pub(super) fn add_checkpoint(&mut self, record: &RankRecord, took: Duration) {
        let kind = match &record.protection {
            direct if direct.bypass => &mut self.flush,
            cached if protects(&cached.scheme) => &mut self.strong,
            _ => &mut self.weak,
        };
        kind.add(took);
        self.has_changed = true;
    }

    /// The application has waited this long for a flush.
    pub(super) fn add_flush(&mut self, took: Duration) {
        self.flush.add(took);
        self.has_changed = true;
    }

    /// Whether a checkpoint is due: at once while nothing is known of what one costs; in the middle of the step that the planned
    /// time falls into; and once before the allocation ends, which is `left` from now.
    pub(super) fn is_due(
        &mut self,
        job: &Job,
        times: &CheckpointTimes,
        now: Duration,
        left: Option<Duration>,
    ) -> bool {
        if let Some(asked) = self.asked.replace(now) {
            if times.last.is_none_or(|last| last <= asked) {
                self.step.add(now.saturating_sub(asked));
            }
        }
        self.renew_plan(job);
        let Some(plan) = &self.plan else { return true };
        let (since, step) = (times.since(now), self.step.0.unwrap_or(0.0));
        let is_last_chance = left.is_some_and(|left| {
            let until = left.as_secs_f64() - step - 2.0 * plan.of_one;
            until <= 0.0 && since.as_secs_f64() > -until
        });
        since.as_secs_f64() + step / 2.0 >= plan.auto.interval || is_last_chance
    }

    /// One of how many checkpoints is to be flushed; `None` where that is not planned.
    pub(super) fn flush_every(&self, job: &Job) -> Option<u64> {
        self.plan.as_ref().filter(|_| self.plans_flushes(job)).map(|plan| plan.auto.flush_every)
    }

    fn renew_plan(&mut self, job: &Job) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let figures = job.log.figures().unwrap_or_default();
        let flush = figures.flush();
        self.is_flush_known |= self.flush.0.is_some() || flush.is_some();
        let costs = [self.weak.0, self.strong.0, self.flush.0.or(flush.map(|(seconds, _)| seconds))];
        let is_near = |(new, old): (&Option<f64>, &Option<f64>)| match (new, old) {
            (Some(new), Some(old)) => (new - old).abs() <= 0.1 * old,
            (new, old) => new == old,
        };
        let is_known = |plan: &Plan| costs.iter().zip(&plan.costs).all(is_near);
        if self.plan.as_ref().is_some_and(is_known) {
            return;
        }
        let experience =
            Experience { hidden: flush.map_or(0.0, |(_, hidden)| hidden), ..lived_through(&figures) };
        let experience = self.experience(&experience, costs, &job.descriptors);
        let params = &job.params;
        let stated = Stated {
            node: params.get(&param::MTBF_NODE).as_secs_f64(),
            system: params.get(&param::MTBF_SYSTEM).as_secs_f64(),
            nodes: job.nodes.count() as u64,
        };
        let fixed = (!self.plans_flushes(job)).then(|| params.get(&param::FLUSH));
        match experience.plan(&stated, fixed) {
            Ok(auto) => {
                let why = explain(&experience, &auto);
                job.report.info(&why);
                job.log.add_entry(Record::event(Event::Plan).note(why));
                let of_one = experience.kinds.last().map_or(0.0, |kind| kind.checkpoint) + experience.flush;
                self.plan = Some(Plan { auto, costs, of_one });
            }
            Err(error) => job.report.error(&format!("SCR_CHECKPOINT_INTERVAL=AUTO: {error}")),
        }
    }

    /// Whether nobody has said which checkpoints are flushed, and a flush was timed.
    fn plans_flushes(&self, job: &Job) -> bool {
        !job.params.origin(&param::FLUSH).is_set() && self.is_flush_known
    }

    fn experience(
        &self,
        lived_through: &Experience,
        [weak, strong, flush]: [Option<f64>; 3],
        descriptors: &Descriptors,
    ) -> Experience {
        // The cost of a kind that was not written yet is taken from the other kind.
        let of = |cost: Option<f64>| cost.or(strong).or(weak);
        let every = |is_strong: bool| {
            let all = descriptors.redundancy.all().into_iter().filter(|one| !one.bypass && !one.output);
            all.filter(|one| protects(&one.scheme) == is_strong).map(|one| one.interval).min()
        };
        let kind = |cost, protects| Some(Kind { checkpoint: of(cost)?, protects, every: every(protects)? });
        let kinds: Vec<_> = [kind(weak, false), kind(strong, true)].into_iter().flatten().collect();
        let highest = kinds.last().map_or(0.0, |kind| kind.checkpoint);
        Experience { flush: flush.unwrap_or(highest), kinds, ..lived_through.clone() }
    }
}

/// The failures and restarts in the log.
fn lived_through(figures: &Figures) -> Experience {
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let failures = figures.failures;
    let lost_nodes = figures.lost_nodes.min(failures);
    let fatal = figures.fetches.count.min(failures - lost_nodes);
    let restart = match figures.restarts.count {
        0 => USUAL_RESTART,
        restarts => figures.seconds(Class::Restart) / restarts as f64,
    };
    Experience {
        restart,
        fetch: restart + figures.fetches.average(),
        seconds: figures.run_seconds,
        lost_nodes: number(lost_nodes),
        fatal: number(fatal),
        processes: number(failures - lost_nodes - fatal),
        ..Experience::default()
    }
}

/// The plan and its reasons in one line.
fn explain(experience: &Experience, auto: &Auto) -> String {
    let Auto { interval, flush_every, efficiency, between: (low, high) } = auto;
    let costs: Vec<String> =
        experience.kinds.iter().map(|kind| format!("{:.3} s", kind.checkpoint)).collect();
    let flushed = match flush_every {
        0 => "none is flushed".to_owned(),
        every => format!("one of {every} is flushed"),
    };
    let cached =
        if costs.is_empty() { String::new() } else { format!("a checkpoint costs {}, ", costs.join(" or ")) };
    let failures = experience.processes + experience.lost_nodes + experience.fatal;
    format!(
        "checkpoint interval: {} s of computing, {flushed}: {cached}a flush {:.3} s; \
         {:.1} % of the time brings the job forward; failures so far: {failures} in {:.0} s; with what the site \
         states, the best interval is between {} and {} s",
        rounded(*interval),
        experience.flush,
        efficiency * 100.0,
        experience.seconds,
        rounded(*low),
        rounded(*high),
    )
}

/// Seconds of an interval for people.
fn rounded(seconds: f64) -> String {
    let digits = if seconds < 10.0 { 2 } else { 0 };
    format!("{seconds:.digits$}")
}

/// Seconds from a failure until the job computes again, as long as none was seen: the interval hardly depends on it.
const USUAL_RESTART: f64 = 60.0;
