//! Which datasets `scr postrun` saves, which it leaves, and why: the one decision, also for the commands that announce it.

use scr_base::fs::Files;
use scr_prefix::{FlushEntry, FlushFile, Halt, LastRun, Location, Prefix, RestartPoint};

/// How the last run of a job ended, as far as that decides what is saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobEnd {
    /// The record that the run made of itself: without one, no node has anything.
    run: Option<LastRun>,
    /// Whether it has called `SCR_Finalize`.
    has_finished: bool,
    /// Whether its settings ask for no flush of checkpoints.
    keeps_in_cache: bool,
}

impl JobEnd {
    /// That of an allocation. `flush_every` holds where the run has not recorded its own setting.
    pub fn read(files: &dyn Files, prefix: &Prefix, job_id: &str, flush_every: u64) -> Self {
        let run = LastRun::read(files, prefix).ok().flatten();
        let own = run.as_ref().filter(|run| run.job_id == job_id).map(|run| run.flush_every);
        // The halt file says it of the last run, which may be that of another allocation.
        let is_of_another = run.is_some() && own.is_none();
        let halt = Halt::read(files, prefix).ok().flatten().filter(|_| !is_of_another);
        Self {
            run,
            has_finished: halt.is_some_and(|halt| halt.is_finalized()),
            keeps_in_cache: own.unwrap_or(flush_every) == 0,
        }
    }

    /// Whether the nodes may have datasets that the flush file does not list.
    pub fn may_lack_entries(&self) -> bool {
        self.run.is_some() && !self.has_finished
    }

    /// Whether a checkpoint stays in cache: an application that has called `SCR_Finalize` has flushed what its settings ask for.
    /// Its run says nothing of what it could not read, which another run has left.
    fn leaves(&self, checkpoint: &FlushEntry) -> bool {
        let is_its = self.run.as_ref().is_none_or(|run| run.can_read(checkpoint.restart_point()));
        self.has_finished && self.keeps_in_cache && is_its
    }
}

/// The datasets that are in cache only, by what becomes of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saving {
    /// Output.
    output: Vec<FlushEntry>,
    /// Checkpoints that are newer than those in the prefix directory, the newest first. An older one is saved only where no newer
    /// one that replaces it could be.
    checkpoints: Vec<FlushEntry>,
    /// The newest of the checkpoints that a run of another allocation did not see, and has written newer ones.
    passed_over: Option<FlushEntry>,
    /// The newest checkpoints that the settings of a finished application leave in cache.
    pub left: Vec<FlushEntry>,
    /// Those that another allocation has recorded, and only the nodes of that one may still have.
    pub elsewhere: Vec<FlushEntry>,
}

/// Why a dataset is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is output that is to be kept.
    Output,
    /// It is the newest checkpoint.
    Newest,
    /// A run of another allocation has gone on without it.
    PassedOver,
}

/// The fate of a dataset in cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is saved.
    Saved(Why),
    /// The settings of a finished application leave it in cache.
    Left,
    /// Another dataset takes its place.
    NotWanted,
}

impl Saving {
    /// The work of `scr postrun` in an allocation.
    pub fn of(file: &FlushFile, job_id: &str, end: &JobEnd) -> Self {
        let mut entries = file.entries();
        let is_ours =
            |entry: &FlushEntry| entry.dataset.as_ref().is_none_or(|dataset| dataset.job_id == job_id);
        // No copy can take the place of a newer dataset: a run has said so.
        entries.retain(|entry| entry.replaced_by.is_none() || entry.is_at(Location::Prefix));
        entries.retain(|entry| entry.is_at(Location::Prefix) || entry.is_at(Location::Cache));
        let checkpoints = entries.iter().filter(|entry| entry.checkpoint);
        let flushed: Vec<_> = checkpoints.filter(|entry| entry.is_at(Location::Prefix)).collect();
        let replacing =
            |older: RestartPoint| flushed.iter().find(|newer| newer.restart_point().replaces(older));
        // A later dataset that its own allocation has flushed takes its place.
        let own = |entry: &&FlushEntry| entry.checkpoint && is_ours(entry);
        let is_passed_over = |entry: &&FlushEntry| {
            let newer = replacing(entry.restart_point());
            !entry.output && newer.is_some_and(|newer| entry.is_passed_over(newer))
        };
        let passed_over = entries.iter().find(own).filter(is_passed_over).cloned();
        let is_wanted = |entry: &&FlushEntry| entry.is_still_wanted(|older| replacing(older).is_some());
        let (own, elsewhere): (Vec<_>, Vec<_>) = entries.iter().filter(is_wanted).cloned().partition(is_ours);
        let (output, others): (Vec<_>, Vec<_>) = own.into_iter().partition(|entry| entry.output);
        let checkpoints = others.into_iter().filter(|entry| entry.checkpoint);
        let (left, checkpoints): (Vec<_>, Vec<_>) =
            checkpoints.partition(|checkpoint| end.leaves(checkpoint));
        Self { output, checkpoints, passed_over, left: newest_of(left), elsewhere }
    }

    /// Whether nothing is in cache only.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Goes through the datasets to save, in order: `save` says whether it could save one. Returns whether everything of this
    /// allocation is saved that has to be.
    pub fn carry_out<'s>(&'s self, mut save: impl FnMut(&'s FlushEntry, Why) -> bool) -> bool {
        let mut is_safe = true;
        for output in &self.output {
            is_safe &= save(output, Why::Output);
        }
        let mut saved: Vec<RestartPoint> = Vec::new();
        for checkpoint in &self.checkpoints {
            let point = checkpoint.restart_point();
            if saved.iter().any(|newer| newer.replaces(point)) {
                continue;
            }
            // An older one is better than none.
            match save(checkpoint, Why::Newest) {
                true => saved.push(point),
                false => is_safe = false,
            }
        }
        self.passed_over.iter().fold(is_safe, |is_safe, newest| save(newest, Why::PassedOver) && is_safe)
    }

    /// The datasets that are saved, if those are whole of which `is_whole` is so.
    pub fn saved(&self, mut is_whole: impl FnMut(&FlushEntry) -> bool) -> Vec<&FlushEntry> {
        let mut saved = Vec::new();
        self.carry_out(|dataset, _| {
            let whole = is_whole(dataset);
            saved.extend(whole.then_some(dataset));
            whole
        });
        saved
    }

    /// The fate of a dataset, if all are whole.
    pub fn fate(&self, id: u64) -> Fate {
        let mut fate = match self.left.iter().any(|dataset| dataset.id == id) {
            true => Fate::Left,
            false => Fate::NotWanted,
        };
        self.carry_out(|dataset, why| {
            if dataset.id == id {
                fate = Fate::Saved(why);
            }
            true
        });
        fate
    }
}

/// The checkpoints that no newer one replaces.
fn newest_of(checkpoints: Vec<FlushEntry>) -> Vec<FlushEntry> {
    let mut newest: Vec<FlushEntry> = Vec::new();
    for checkpoint in checkpoints {
        let point = checkpoint.restart_point();
        if !newest.iter().any(|newer| newer.restart_point().replaces(point)) {
            newest.push(checkpoint);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_prefix::DatasetDescriptor;
    use scr_test_kit::fixtures::scratch;

    /// The plan for a job that has died.
    fn saving(file: &FlushFile, job_id: &str) -> Saving {
        Saving::of(file, job_id, &JobEnd::default())
    }

    /// A job that had died was said to have finished once another one had.
    #[test]
    fn that_a_job_of_another_allocation_has_finished_says_nothing_of_this_one() {
        let (_dir, prefix) = scratch();
        Halt::end(&RealFiles, &prefix, 0, false).unwrap();
        LastRun { job_id: "78".to_owned(), nodes: vec!["n0".to_owned()], ..LastRun::default() }
            .write(&RealFiles, &prefix)
            .unwrap();
        let mut file = FlushFile::default();
        for (id, job) in [(1, "77"), (2, "78")] {
            let job_id = job.to_owned();
            let dataset = DatasetDescriptor { id, checkpoint: true, job_id, ..Default::default() };
            file.record(&dataset, Location::Cache);
        }
        let fate =
            |job: &str, id| Saving::of(&file, job, &JobEnd::read(&RealFiles, &prefix, job, 10)).fate(id);
        assert_eq!((fate("77", 1), fate("78", 2)), (Fate::Saved(Why::Newest), Fate::Left));
    }

    fn ids(entries: &[FlushEntry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.id).collect()
    }

    /// The command said that there was nothing to save.
    #[test]
    fn a_checkpoint_that_another_allocation_has_passed_over_is_unsaved() {
        let mut file = FlushFile::default();
        let mut add = |run, id, job: &str, location| {
            let job_id = job.to_owned();
            let dataset = DatasetDescriptor { id, run, checkpoint: true, job_id, ..Default::default() };
            file.record(&dataset, location);
        };
        add(1, 8, "7", Location::Prefix);
        add(1, 9, "7", Location::Cache);
        add(2, 10, "8", Location::Prefix);
        let passed_over = |file: &FlushFile, job: &str| saving(file, job).passed_over.map(|it| it.id);
        assert_eq!((passed_over(&file, "7"), passed_over(&file, "8")), (Some(9), None));
        assert!(saving(&file, "7").checkpoints.is_empty());
        assert!(saving(&file, "8").elsewhere.is_empty(), "the later one goes on without it");
        let mut later = file.clone();
        let own = DatasetDescriptor {
            id: 11,
            run: 3,
            checkpoint: true,
            job_id: "7".to_owned(),
            ..Default::default()
        };
        later.record(&own, Location::Prefix);
        assert_eq!(passed_over(&later, "7"), None, "its own allocation has gone on");
    }

    /// A job that was started once with too few ranks had nothing to save.
    #[test]
    fn a_checkpoint_of_another_number_of_ranks_does_not_take_the_place_of_one() {
        let mut file = FlushFile::default();
        let of = |id, ranks| DatasetDescriptor { id, ranks, checkpoint: true, ..Default::default() };
        file.record(&of(1, Some(4)), Location::Prefix);
        file.record(&of(2, Some(4)), Location::Cache);
        file.record(&of(3, Some(3)), Location::Prefix);
        assert_eq!(ids(&saving(&file, "").checkpoints), [2]);
        assert_eq!(ids(&saving(&file, "other").elsewhere), [2]);
        file.record(&of(4, None), Location::Prefix);
        assert!(saving(&file, "").checkpoints.is_empty(), "C SCR does not say how many");
    }

    #[test]
    fn a_checkpoint_that_any_number_of_ranks_can_read_takes_the_place_of_all_older_ones() {
        let mut file = FlushFile::default();
        let of =
            |id, ranks| DatasetDescriptor { id, ranks: Some(ranks), checkpoint: true, ..Default::default() };
        file.record(&of(1, 4), Location::Cache);
        file.record(&of(2, 3), Location::Cache);
        file.record(&DatasetDescriptor { any_ranks: true, ..of(3, 2) }, Location::Prefix);
        assert!(saving(&file, "").checkpoints.is_empty());
        file.record(&of(4, 2), Location::Prefix);
        file.record(&DatasetDescriptor { any_ranks: true, ..of(5, 3) }, Location::Cache);
        file.record(&of(6, 2), Location::Prefix);
        assert_eq!(ids(&saving(&file, "").checkpoints), [5], "one that only two ranks can read does not");
    }

    #[test]
    fn unsaved_are_output_and_the_checkpoints_after_the_last_one_that_was_flushed() {
        let mut file = FlushFile::default();
        let mut add = |id, checkpoint, output, job: &str, location| {
            let job_id = job.to_owned();
            let dataset = DatasetDescriptor { id, checkpoint, output, job_id, ..Default::default() };
            file.record(&dataset, location);
        };
        add(1, false, true, "7", Location::Cache);
        add(2, true, false, "7", Location::Cache);
        add(3, true, false, "6", Location::Prefix);
        add(4, false, true, "7", Location::Prefix);
        add(5, true, false, "7", Location::Cache);
        add(6, true, true, "7", Location::Cache);
        add(7, true, false, "7", Location::Cache);
        add(8, true, false, "6", Location::Cache);
        let unsaved = saving(&file, "7");
        assert_eq!((ids(&unsaved.output), ids(&unsaved.checkpoints)), (vec![6, 1], vec![7, 5]));
        // With the id of no job, or of another one, nothing may be called safe.
        assert_eq!(ids(&unsaved.elsewhere), [8]);
        assert_eq!(ids(&saving(&file, "defjobid").elsewhere), [8, 7, 6, 5, 1]);
        // Each command tried again to save it, in vain.
        file.record_replaced(6, 9);
        assert_eq!(ids(&saving(&file, "7").output), [1]);
        let unsaved = saving(&FlushFile::default(), "7");
        assert_eq!((unsaved.output.len(), unsaved.checkpoints.len()), (0, 0));
    }

    #[test]
    fn the_newest_checkpoint_that_is_whole_is_saved_unless_a_finished_job_keeps_it_in_cache() {
        let mut file = FlushFile::default();
        let of = |id, ranks, checkpoint| DatasetDescriptor {
            id,
            ranks: Some(ranks),
            checkpoint,
            output: !checkpoint,
            ..Default::default()
        };
        for (id, ranks, checkpoint) in [(1, 4, true), (2, 4, false), (3, 4, true), (4, 3, true)] {
            file.record(&of(id, ranks, checkpoint), Location::Cache);
        }
        let end = |has_finished, keeps_in_cache| JobEnd { run: None, has_finished, keeps_in_cache };
        for end in [end(false, false), end(false, true), end(true, false)] {
            let saving = Saving::of(&file, "", &end);
            let saved =
                |lost: u64| saving.saved(|dataset| dataset.id != lost).iter().map(|it| it.id).collect();
            let (all, without): (Vec<u64>, Vec<u64>) = (saved(0), saved(3));
            assert_eq!((all, without), (vec![2, 4, 3], vec![2, 4, 1]), "{end:?}");
            assert!(saving.carry_out(|_, _| true) && !saving.carry_out(|dataset, _| dataset.id != 3));
            assert!(saving.left.is_empty());
            let fates = [1, 2, 3].map(|id| saving.fate(id));
            assert_eq!(fates, [Fate::NotWanted, Fate::Saved(Why::Output), Fate::Saved(Why::Newest)]);
        }
        let kept = Saving::of(&file, "", &end(true, true));
        assert_eq!(ids(&kept.left), [4, 3]);
        assert_eq!([1, 3, 4].map(|id| kept.fate(id)), [Fate::NotWanted, Fate::Left, Fate::Left]);
        assert_eq!(
            kept.saved(|_| true).iter().map(|it| it.id).collect::<Vec<_>>(),
            [2],
            "output is not left"
        );
        assert!(!kept.is_empty() && Saving::of(&FlushFile::default(), "", &end(true, true)).is_empty());
        // A run of three ranks has finished after one of four had died.
        let run = Some(LastRun { ranks: 3, ..LastRun::default() });
        let other = Saving::of(&file, "", &JobEnd { run, ..end(true, true) });
        assert_eq!((ids(&other.left), other.fate(3)), (vec![4], Fate::Saved(Why::Newest)));
    }
}
