//! Which datasets `scr postrun` saves, and why: the one decision, also for the commands that announce it.

use super::holdings::{holdings, Copy, Held};
use scr_base::fs::{Files, FsError, MAX_TREE_BYTES};
use scr_core::cache::filemap::{Filemap, PartState};
use scr_core::cache::node_dir;
use scr_core::cache::owner::Owner;
use scr_core::cache::part::{look_through, PartDir};
use scr_core::cache::record::RankRecord;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{
    FlushEntry, FlushFile, Halt, LastRun, Location, Prefix, PrefixError, PrefixId, RestartPoint,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the flush file, which is never synced, is lost or damaged: a run has recorded itself, and has written its list before it
/// ended.
pub fn is_list_lost(files: &dyn Files, prefix: &Prefix) -> bool {
    let has_run = || LastRun::read(files, prefix).is_ok_and(|run| run.is_some());
    FlushFile::read(files, prefix).is_err_and(|error| error.is_damage())
        || files.status(&prefix.flush_file()).is_err() && has_run()
}

/// Whether the nodes may have datasets that neither the flush file nor the index lists: that is lost, or the last run has not called
/// `SCR_Finalize`. Without the record that a run makes of itself, no node has anything.
pub fn may_lack_entries(files: &dyn Files, prefix: &Prefix, job_id: &str) -> bool {
    if is_list_lost(files, prefix) {
        return true;
    }
    let Some(run) = LastRun::read(files, prefix).ok().flatten() else { return false };
    // The halt file says it of the last run, which may be that of another allocation.
    let halt = Halt::read(files, prefix).ok().flatten().filter(|_| run.job_id == job_id);
    !halt.is_some_and(|halt| halt.is_finalized())
}

/// The datasets that are in cache only and matter, and what becomes of them, in the order in which it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saving(pub Vec<(FlushEntry, Plan)>);

/// The plan for a dataset: it is saved, and why, or it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plan {
    /// It is output that is to be kept.
    Output,
    /// It is the newest checkpoint. An older one is saved only where no newer one that replaces it could be.
    Newest,
    /// It is the newest checkpoint of its allocation, and a run of another one has gone on without it.
    PassedOver,
    /// Another allocation has recorded it, and only the nodes of that one may still have it.
    Elsewhere,
}

impl Saving {
    /// The work of `scr postrun` in an allocation.
    /// Without `may_lack_entries`, no dataset counts that is not listed.
    pub fn of(all: &[Held], job_id: &str, may_lack_entries: bool) -> Self {
        let is_ours = |entry: &FlushEntry| entry.dataset.job_id == job_id;
        let is_meant = |held: &&Held| {
            let Held { entry, copy, is_listed, .. } = held;
            // No copy can take the place of a newer dataset, and nobody restarts from what was refused. A job that has finished has
            // listed all that it left.
            let can_be = entry.replaced_by.is_none() && (*is_listed || may_lack_entries);
            let is_in_cache = can_be && entry.is_at(Location::Cache);
            let is_refused = *copy == Copy::Refused && entry.is_only_checkpoint();
            entry.is_at(Location::Prefix) || is_in_cache && !is_refused
        };
        let entries: Vec<_> = all.iter().filter(is_meant).map(|held| &held.entry).collect();
        let replacing = |older: RestartPoint| {
            let is_it = |newer: &&&FlushEntry| {
                newer.checkpoint && newer.is_at(Location::Prefix) && newer.restart_point().replaces(older)
            };
            entries.iter().find(is_it).copied()
        };
        // A later dataset that its own allocation has flushed takes its place.
        let newest = entries.iter().find(|entry| entry.checkpoint && is_ours(entry)).map(|entry| entry.id);
        let plan = |entry: &FlushEntry| {
            let point = entry.restart_point();
            let newer = replacing(point);
            let is_passed_over = |newer| Some(entry.id) == newest && entry.is_passed_over(newer);
            match entry.is_still_wanted(|_| newer.is_some()) {
                false => newer.is_some_and(is_passed_over).then_some(Plan::PassedOver),
                true if !is_ours(entry) => Some(Plan::Elsewhere),
                true if entry.output => Some(Plan::Output),
                true => entry.checkpoint.then_some(Plan::Newest),
            }
        };
        let mut all: Vec<_> =
            entries.iter().filter_map(|&entry| Some((entry.clone(), plan(entry)?))).collect();
        all.sort_by_key(|(_, plan)| *plan);
        Self(all)
    }

    /// Goes through the datasets to save, in order: `save` says whether it could save one, which it cannot if that is elsewhere.
    /// Returns whether everything is saved that has to be.
    pub fn carry_out<'s>(&'s self, mut save: impl FnMut(&'s FlushEntry, Plan) -> bool) -> bool {
        let (mut saved, mut is_safe): (Vec<RestartPoint>, _) = (Vec::new(), true);
        for (dataset, plan) in &self.0 {
            let point = dataset.restart_point();
            // An older one is better than none.
            let is_spare = !dataset.output && *plan != Plan::PassedOver;
            if is_spare && saved.iter().any(|newer| newer.replaces(point)) {
                continue;
            }
            let is_saved = save(dataset, *plan);
            saved.extend((is_saved && dataset.checkpoint).then_some(point));
            is_safe &= is_saved;
        }
        is_safe
    }

    /// The datasets that are saved and why, if those are whole of which `is_whole` is so.
    pub fn saved(&self, mut is_whole: impl FnMut(&FlushEntry) -> bool) -> Vec<(&FlushEntry, Plan)> {
        let mut saved = Vec::new();
        self.carry_out(|dataset, plan| {
            let whole = plan != Plan::Elsewhere && is_whole(dataset);
            saved.extend(whole.then_some((dataset, plan)));
            whole
        });
        saved
    }

    /// Why a dataset is saved, if all are whole; `None` where it is not, or another one takes its place.
    pub fn fate(&self, id: u64) -> Option<Plan> {
        self.saved(|_| true).into_iter().find(|(dataset, _)| dataset.id == id).map(|(_, plan)| plan)
    }
}

/// The datasets that would be lost with a cache directory: those that `scr postrun` would save if its job had died, and those of
/// which nothing can be found out, as messages name them.
///
/// # Errors
/// The directory cannot be listed.
pub fn unsaved(files: &dyn Files, cache: &Path) -> Result<Vec<String>, FsError> {
    let mut unknown = BTreeSet::new();
    let mut known: BTreeMap<Vec<u8>, BTreeMap<u64, RankRecord>> = BTreeMap::new();
    for folder in node_dir::places(files, cache)? {
        let mut content = look_through(files, &folder);
        if let Some(error) = content.errors.pop() {
            return Err(error);
        }
        for (id, rank) in content.parts {
            let map = files.read_all(&PartDir::new(&folder, id, rank).filemap(), MAX_TREE_BYTES);
            let map = map.map(|bytes| Filemap::parse(&bytes)).unwrap_or_default();
            match (map.state, map.record) {
                (PartState::Arriving | PartState::Open | PartState::Refused, _) => (),
                (_, Some(record)) => {
                    let of_prefix = known.entry(record.prefix.clone()).or_default();
                    of_prefix.insert(record.dataset.id, record);
                }
                (_, None) => _ = unknown.insert(id),
            }
        }
    }
    let mut all: Vec<String> = unknown.into_iter().map(|id| format!("dataset {id}")).collect();
    for (prefix, records) in known {
        let prefix = Path::new(OsStr::from_bytes(&prefix));
        let saved = saved(files, &Prefix::new(prefix), &records).unwrap_or_default();
        let lost = records.iter().filter(|(id, _)| !saved.contains(id));
        all.extend(lost.map(|(_, record)| format!("{} of {}", record.label(), prefix.display())));
    }
    Ok(all)
}

/// Those of these datasets that nobody has to save.
fn saved(
    files: &dyn Files,
    prefix: &Prefix,
    records: &BTreeMap<u64, RankRecord>,
) -> Result<Vec<u64>, PrefixError> {
    let (index, id) = (LedgerDir::new(files, prefix).index_as_it_is()?, PrefixId::read(files, prefix)?);
    let is_there = |record: &RankRecord| Owner::of(record, files, prefix, id.as_ref()) == Owner::This;
    let here: Vec<_> = records.iter().filter(|(_, record)| is_there(record)).collect();
    let mut flush = FlushFile::default();
    here.iter().for_each(|(_, record)| flush.record(&record.dataset, Location::Cache));
    let all = holdings(files, prefix, &flush, Some(&index), None);
    let is_saved = |record: &RankRecord| {
        let lost = Saving::of(&all, &record.dataset.job_id, false).0;
        lost.iter().all(|(lost, _)| lost.id != record.dataset.id)
    };
    Ok(here.into_iter().filter(|(_, record)| is_saved(record)).map(|(&id, _)| id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_prefix::{DatasetDescriptor, FlushFile};
    use scr_test_kit::fixtures::scratch;

    /// The datasets of a file, all of which are as it says.
    fn held(file: &FlushFile) -> Vec<Held> {
        let held = |entry| Held { entry, copy: Copy::ALL, is_listed: true, is_refused_there: false };
        file.entries().into_iter().map(held).collect()
    }

    /// The plan for a job that has died.
    fn saving(file: &FlushFile, job_id: &str) -> Saving {
        Saving::of(&held(file), job_id, false)
    }

    /// A job that had died was said to have finished once another one had.
    #[test]
    fn that_a_job_of_another_allocation_has_finished_says_nothing_of_this_one() {
        let (_dir, prefix) = scratch();
        Halt::end(&RealFiles, &prefix, 0, false).unwrap();
        assert!(!may_lack_entries(&RealFiles, &prefix, "77"), "no run has recorded itself");
        LastRun { job_id: "78".to_owned(), nodes: vec!["n0".to_owned()], ..LastRun::default() }
            .write(&RealFiles, &prefix)
            .unwrap();
        let lacks = || ["77", "78"].map(|job| may_lack_entries(&RealFiles, &prefix, job));
        assert_eq!(lacks(), [true, true], "its list is lost");
        let dataset = DatasetDescriptor::default();
        FlushFile::update(&RealFiles, &prefix, |file| file.record(&dataset, Location::Prefix)).unwrap();
        assert_eq!(lacks(), [true, false]);
    }

    fn ids(saving: &Saving, plan: Plan) -> Vec<u64> {
        saving.0.iter().filter(|(_, of)| *of == plan).map(|(entry, _)| entry.id).collect()
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
        let passed_over =
            |file: &FlushFile, job: &str| ids(&saving(file, job), Plan::PassedOver).first().copied();
        assert_eq!((passed_over(&file, "7"), passed_over(&file, "8")), (Some(9), None));
        assert!(ids(&saving(&file, "7"), Plan::Newest).is_empty());
        assert!(ids(&saving(&file, "8"), Plan::Elsewhere).is_empty(), "the later one goes on without it");
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
        assert_eq!(ids(&saving(&file, ""), Plan::Newest), [2]);
        assert_eq!(ids(&saving(&file, "other"), Plan::Elsewhere), [2]);
        file.record(&of(4, None), Location::Prefix);
        assert!(ids(&saving(&file, ""), Plan::Newest).is_empty(), "C SCR does not say how many");
    }

    #[test]
    fn a_checkpoint_that_any_number_of_ranks_can_read_takes_the_place_of_all_older_ones() {
        let mut file = FlushFile::default();
        let of =
            |id, ranks| DatasetDescriptor { id, ranks: Some(ranks), checkpoint: true, ..Default::default() };
        file.record(&of(1, 4), Location::Cache);
        file.record(&of(2, 3), Location::Cache);
        file.record(&DatasetDescriptor { any_ranks: true, ..of(3, 2) }, Location::Prefix);
        assert!(ids(&saving(&file, ""), Plan::Newest).is_empty());
        file.record(&of(4, 2), Location::Prefix);
        file.record(&DatasetDescriptor { any_ranks: true, ..of(5, 3) }, Location::Cache);
        file.record(&of(6, 2), Location::Prefix);
        assert_eq!(ids(&saving(&file, ""), Plan::Newest), [5], "one that only two ranks can read does not");
    }

    /// All of it was copied from the nodes, could not be listed, and the command said that it was not safe.
    #[test]
    fn a_checkpoint_that_the_application_has_refused_is_not_saved_and_output_is() {
        let mut file = FlushFile::default();
        let of = |id, output| DatasetDescriptor { id, checkpoint: true, output, ..Default::default() };
        for (id, output) in [(1, false), (2, false), (3, true)] {
            file.record(&of(id, output), Location::Cache);
        }
        let mut all = held(&file);
        all.iter_mut().filter(|held| held.entry.id > 1).for_each(|held| held.copy = Copy::Refused);
        let saving = Saving::of(&all, "", false);
        assert_eq!((ids(&saving, Plan::Output), ids(&saving, Plan::Newest)), (vec![3], vec![1]));
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
        assert_eq!((ids(&unsaved, Plan::Output), ids(&unsaved, Plan::Newest)), (vec![6, 1], vec![7, 5]));
        // With the id of no job, or of another one, nothing may be called safe.
        assert_eq!(ids(&unsaved, Plan::Elsewhere), [8]);
        assert_eq!(ids(&saving(&file, "defjobid"), Plan::Elsewhere), [8, 7, 6, 5, 1]);
        // Each command tried again to save it, in vain.
        file.record_replaced(6, 9);
        assert_eq!(ids(&saving(&file, "7"), Plan::Output), [1]);
        assert!(saving(&FlushFile::default(), "7").0.is_empty());
    }

    #[test]
    fn the_newest_checkpoint_that_is_whole_is_saved() {
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
        let saving = saving(&file, "");
        let saved =
            |lost: u64| saving.saved(|dataset| dataset.id != lost).iter().map(|(it, _)| it.id).collect();
        let (all, without): (Vec<u64>, Vec<u64>) = (saved(0), saved(3));
        assert_eq!((all, without), (vec![2, 4, 3], vec![2, 4, 1]));
        assert!(saving.carry_out(|_, _| true) && !saving.carry_out(|dataset, _| dataset.id != 3));
        assert_eq!([1, 2, 3].map(|id| saving.fate(id)), [None, Some(Plan::Output), Some(Plan::Newest)]);
        assert!(Saving::of(&[], "", false).0.is_empty());
    }
}
