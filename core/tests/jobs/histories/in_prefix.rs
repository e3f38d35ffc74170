//! Changes that a run may make to the prefix directory, and those that it has to make.

use super::super::world::contents;
use super::history::{file_name, name_of, sizes, Reaction, Read, Run, Seen, Step};
use super::model::{first_handed, share, EndedRun, Model};
use super::saved::{entries_of, flushed_bytes, offered};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_prefix::{FlushFile, Index, Prefix};

impl Model {
    /// Checks the changes that a run has made to the index, and that it has made no forbidden ones.
    pub(super) fn check_prefix(&self, ended: &EndedRun<'_>) -> Result<(), String> {
        let prefix = Prefix::new(self.world.prefix());
        let index = Index::read(&RealFiles, &prefix).map_err(|error| format!("the index: {error}"))?;
        self.saved.check_commands(ended.run.settings.other_prefix, &index)?;
        if ended.met {
            let id = self.saved.next_command();
            let flush =
                FlushFile::read(&RealFiles, &prefix).map_err(|error| format!("the flush file: {error}"))?;
            if index.entry(id).is_none() || flush.entry(id).is_none() {
                return Err(format!("a command has written the entry {id}, and it is lost"));
            }
        }
        self.check_entries(ended)?;
        self.check_current(ended, &index)?;
        self.check_flushed_again(ended)?;
        self.check_unread(ended, &index)
    }

    /// Checks that entries stay in the index, unless somebody has removed them.
    fn check_entries(&self, ended: &EndedRun<'_>) -> Result<(), String> {
        let run = ended.run;
        let drops = run.settings.drop_after_current || run.settings.window > 0;
        if drops {
            return Ok(());
        }
        let now = entries_of(&self.world);
        let lost = ended.found.entries.iter().find(|entry| {
            let (_, name) = entry;
            let is_touched = run.steps.iter().any(|step| step.may_take(name));
            // Another dataset may have got the name.
            !is_touched && !now.iter().any(|(_, other)| other == name)
        });
        match lost {
            Some((id, name)) => Err(format!("dataset {id}, `{name}', is in the index no more")),
            None => Ok(()),
        }
    }

    /// Checks that a job that has gone back to a checkpoint restarts from it next time as well.
    fn check_current(&self, ended: &EndedRun<'_>, index: &Index) -> Result<(), String> {
        let ranks = &ended.outcome.ranks;
        let quiet = run_writes_none(ended.run) && ranks.iter().all(|seen| seen.finalized);
        let is_taken = matches!(ended.run.reaction, Reaction::Take) && ended.began();
        let Some(wanted) = ended.run.wants.map(name_of).filter(|_| ended.healthy && is_taken && quiet) else {
            return Ok(());
        };
        let is_untouched = !ended.run.steps.iter().any(|step| step.may_take(&wanted));
        let handed = first_handed(ranks).and_then(|number| self.version(number));
        // A checkpoint that is only in cache is not in the index.
        let is_listed = index.id_of(&wanted).is_some() && is_untouched;
        if handed.is_some_and(|version| version.name == wanted)
            && is_listed
            && index.current() != Some(wanted.as_bytes())
        {
            let current = index.current().map(String::from_utf8_lossy);
            return Err(format!("the user went back to {wanted}, and {current:?} is the current one"));
        }
        Ok(())
    }

    /// A checkpoint in cache whose copy failed is flushed again.
    fn check_flushed_again(&self, ended: &EndedRun<'_>) -> Result<(), String> {
        let EndedRun { run, found, .. } = ended;
        let ranks = &ended.outcome.ranks;
        let finalized = ranks.iter().all(|seen| seen.finalized);
        let at_start = run.settings.flush == 1 || run.settings.global;
        let is_due = at_start || run.settings.flush > 1 && finalized && run_writes_none(run);
        let is_taken = matches!(run.reaction, Reaction::Take) && first_handed(ranks) == found.failed;
        let wanted = found.failed.filter(|_| {
            ended.healthy
                && ended.began()
                && is_due
                && is_taken
                && run.wants.is_none()
                && run.settings.window == 0
        });
        let Some(version) = wanted.and_then(|number| self.version(number)) else { return Ok(()) };
        let drops = run.settings.drop_after_current;
        let is_touched =
            |step: &Step| step.touches(&version.name) || drops && matches!(step, Step::Current { .. });
        let is_touched = run.steps.iter().any(is_touched);
        if !is_touched && !offered(&self.world).iter().any(|(_, other, _)| *other == version.number) {
            return Err(format!(
                "the copy of {} had failed, and it was not flushed again from cache",
                version.number
            ));
        }
        Ok(())
    }

    /// A checkpoint that could not be read for a moment is still there, and the user hears of it.
    fn check_unread(&self, ended: &EndedRun<'_>, index: &Index) -> Result<(), String> {
        let EndedRun { run, found, .. } = ended;
        let handed = first_handed(&ended.outcome.ranks);
        let asked = ended.began() && !matches!(run.reaction, Reaction::Ignore);
        let unread = found.saved.filter(|saved| asked && run.wants.is_none() && handed < Some(*saved));
        let Some((was_current, number, name)) =
            found.offered.iter().find(|(_, number, _)| Some(*number) == unread)
        else {
            return Ok(());
        };
        // A rank whose files cannot be read learns it from the call. Rank 0 has files in every version.
        let is_told_by_call = matches!(ended.outcome.ranks[0].handed.first(), Some((_, Read::Nothing)));
        let is_told =
            ended.outcome.lines.iter().any(|line| line.contains("ERROR") || line.contains("WARNING"));
        if !is_told && !is_told_by_call {
            return Err(format!("restarted from {handed:?} without a word, and {number} was flushed"));
        }
        // A later one in cache takes its place when a run begins.
        let is_replaced = self.version(*number).is_some_and(|version| self.later(version).next().is_some());
        // The window of this run does not reach it, whatever has been flushed since.
        let touched = is_replaced
            || run.steps.iter().any(|step| step.touches(name))
            || run.settings.drop_after_current && run.chooses();
        if touched {
            return Ok(());
        }
        if !offered(&self.world).iter().any(|(_, other, _)| other == number) {
            return Err(format!("{number} could not be read for a moment, and the index offers it no more"));
        }
        let stays = *was_current && run_writes_none(run) && !run.chooses();
        if stays && index.current() != Some(name.as_bytes()) {
            return Err(format!(
                "{number} could not be read for a moment, and is not the current one any more"
            ));
        }
        Ok(())
    }

    /// Checks that every version that the index offers is in the prefix directory, byte for byte, at any time.
    pub(super) fn check_listed(&self, run: &Run) -> Result<(), String> {
        let place = run.settings.other_prefix;
        for (_, number, name) in offered(&self.world) {
            let Some(version) = self.version(number).filter(|_| !self.saved.is_damaged(place, number)) else {
                continue;
            };
            if self.is_overwritten(version) {
                continue;
            }
            for rank in (0..version.ranks as u32).map(Rank) {
                for (at, size) in sizes(number, rank).into_iter().enumerate() {
                    let file = file_name(&name, rank, at);
                    if flushed_bytes(&self.world, &name, &file) != Some(contents(number, rank, at, size)) {
                        return Err(format!("the index offers {number}, `{name}', but {file} is not of it"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl EndedRun<'_> {
    fn began(&self) -> bool {
        self.outcome.ranks.iter().all(|seen: &Seen| seen.began)
    }
}

impl Run {
    /// Whether output has names of files of a checkpoint before it.
    pub(super) fn writes_output_over_checkpoints(&self) -> bool {
        let names = |at: usize| match self.steps[at] {
            Step::Output { name: output } => Some((at, name_of(output))),
            _ => None,
        };
        let is_over = |(at, output): (usize, String)| {
            self.steps[..at].iter().any(|step| match *step {
                Step::Checkpoint { name, .. } => share(&name_of(name), &output),
                _ => false,
            })
        };
        (0..self.steps.len()).filter_map(names).any(is_over)
    }

    fn chooses(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Current { .. }))
    }
}

impl Step {
    /// Whether it may take a dataset of this name out of the index, or put another one in its place.
    fn may_take(&self, name: &str) -> bool {
        match *self {
            Step::Checkpoint { name: other, .. } | Step::Output { name: other } => name_of(other) == name,
            Step::Delete { name: other } | Step::Drop { name: other } => name_of(other) == name,
            Step::Current { .. } => false,
        }
    }

    /// Whether it may take away a dataset of this name, or its files.
    fn touches(&self, name: &str) -> bool {
        match *self {
            Step::Checkpoint { name: other, .. } | Step::Output { name: other } => {
                share(&name_of(other), name)
            }
            _ => self.may_take(name),
        }
    }
}

fn run_writes_none(run: &Run) -> bool {
    !run.steps.iter().any(|step| matches!(step, Step::Checkpoint { .. } | Step::Output { .. }))
        && !run.chooses()
}
