//! The interval of a job against the loss that is to be expected, by the model of `scr plan`, with what the job has measured.

use crate::page::{percent, time};
use scr_core::log::{Class, Figures};
use scr_plan::{best_interval, Belief, CacheCosts, Costs, Machine, Plan};
use serde_json::{json, Value};

/// The interval that a job has chosen, and the best one.
pub(super) struct Choice {
    /// Seconds of computing between two checkpoints, and the share of time that is lost with it.
    pub(super) present: (f64, f64),
    /// The same for the best interval, with as many checkpoints to a flush.
    pub(super) best: (f64, f64),
    /// Both for intervals around these.
    pub(super) curve: Vec<(f64, f64)>,
    /// Checkpoints to a flush.
    pub(super) flush_every: u64,
    /// Whether the job has seen a failure; otherwise its rate is at most this.
    pub(super) has_failed: bool,
}

impl Choice {
    /// `None` if the job says too little: one checkpoint has no interval.
    pub(super) fn of(figures: &Figures) -> Option<Self> {
        let count = figures.checkpoints.count;
        let interval = figures.computing.average();
        if count < 2 || interval <= 0.0 || figures.run_seconds <= 0.0 {
            return None;
        }
        let flushes = figures.flushes_sync.count + figures.flushes_async.count;
        let flush_every = count.div_ceil(flushes.max(1)).max(1);
        let machine = machine(figures)?;
        let between = u32::try_from(flush_every - 1).unwrap_or(u32::MAX);
        let counts = vec![between; machine.levels().len() - 1];
        let loss =
            |interval: f64| 1.0 - machine.forecast(&Plan { interval, counts: counts.clone() }).unwrap_or(0.0);
        let best = best_interval(&machine, &counts).0;
        let (low, high) = (best.min(interval) / 4.0, best.max(interval) * 4.0);
        let at = |step: i32| low * (high / low).powf(f64::from(step) / f64::from(STEPS));
        Some(Self {
            present: (interval, loss(interval)),
            best: (best, loss(best)),
            curve: (0..=STEPS).map(at).map(|interval| (interval, loss(interval))).collect(),
            flush_every,
            has_failed: figures.failures > 0,
        })
    }

    /// In two sentences.
    pub(super) fn in_words(&self) -> String {
        let bound = if self.has_failed { "" } else { "at most " };
        let words = |(interval, loss): (f64, f64)| (time(interval), format!("{bound}{}", percent(loss)));
        let ((interval, loss), (best, least)) = (words(self.present), words(self.best));
        format!(
            "With a checkpoint every {interval} of computing, {loss} of the time is expected to be lost. The best interval is {best}, \
             and loses {least}."
        )
    }

    pub(super) fn json(&self) -> Value {
        let one = |(interval, loss): (f64, f64)| json!({ "seconds": interval, "expected_loss": loss });
        json!({
            "present": one(self.present),
            "best": one(self.best),
            "flush_every": self.flush_every,
            "failure_seen": self.has_failed,
        })
    }
}

const STEPS: i32 = 48;

/// The machine as the job has seen it. A failure after which it has fetched is one that no checkpoint in cache survives.
fn machine(figures: &Figures) -> Option<Machine> {
    let seen = |failures: u64| {
        let belief = Belief::stated(figures.run_seconds)?;
        // The stated value weighs as much as one failure.
        u32::try_from(failures).ok().map(|failures| belief.after(failures.saturating_sub(1), 0.0))
    };
    let restart = figures.seconds(Class::Restart) / figures.runs.max(1) as f64;
    let (flush, hidden) = figures.flush().unwrap_or((0.0, 0.0));
    let is_cached = flush > 0.0 && figures.kinds.keys().any(|(_, scheme)| !scheme.is_empty());
    let fatal = if is_cached { figures.fetches.count.min(figures.failures) } else { figures.failures };
    let (cache, flush, hidden) = match is_cached {
        true => {
            let (checkpoint, survives) = (figures.checkpoints.average(), seen(figures.failures - fatal)?);
            (vec![CacheCosts { checkpoint, restart, survives }], flush, hidden)
        }
        false => (Vec::new(), figures.cost(), 0.0),
    };
    Costs { cache, flush, hidden, fetch: restart, fatal: seen(fatal)? }.machine(Belief::rate).ok()
}
#[cfg(test)]
mod tests {
    use super::*;
    use scr_core::log::jobs;
    use scr_plugin_api::LogEntry;

    #[test]
    fn too_short_an_interval_loses_more_than_the_best_one() {
        let mut entries = Vec::new();
        let mut now = 0;
        let mut add = |later: u64, name: &str, seconds: f64| {
            now += later * 1_000_000;
            let (name, job_id) = (name.to_owned(), "7".to_owned());
            entries.push(LogEntry {
                name,
                job_id,
                micros: now,
                seconds: Some(seconds),
                run: Some(1),
                ..LogEntry::default()
            });
        };
        add(0, "START", 0.0);
        for _ in 0..100 {
            add(0, "COMPUTE_START", 0.0);
            add(60, "COMPUTE_END", 60.0);
            add(6, "CHECKPOINT_END", 6.0);
        }
        let (figures, _) = jobs(entries).remove(0);
        let choice = Choice::of(&figures).unwrap();
        assert!((choice.present.0 - 60.0).abs() < 1e-6 && choice.present.1 > 0.09, "{:?}", choice.present);
        assert!(choice.best.0 > 120.0 && choice.best.1 < choice.present.1, "{:?}", choice.best);
        assert!(choice.in_words().contains("computing, at most 9."), "{}", choice.in_words());
        let least = choice.curve.iter().map(|point| point.1).fold(1.0, f64::min);
        assert!(least >= choice.best.1 - 1e-6);
        assert!(Choice::of(&Figures::default()).is_none());
    }
}
