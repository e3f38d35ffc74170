//! Deletes a dataset from the prefix directory, with all its files and the folders that become empty.
//!
//! The dataset is invalid before its first file is deleted, and its entry is deleted after the last one. So no run restarts from
//! a partly deleted dataset, and a deletion that a crash interrupts can be repeated. A file that another dataset uses by now
//! stays. See `SCR_Delete` in docs/user/c-api.md.

mod window;

pub(crate) use window::{all, named, report_setting, slide_window};

use crate::scavenge::hidden;
use crate::scavenge::scan::Scan;
use crate::typed::route_values;
use scr_base::describe;
use scr_base::fs::Files;
use scr_comm::collective::{agree_at, barrier};
use scr_comm::{Collective, Comm, Rank};
use scr_prefix::ledger::{expect_lock, By, Fence, LedgerDir, Request};
use scr_prefix::{Prefix, PrefixError, PrefixFile, Rank2File};
use std::io::ErrorKind;
use std::path::Path;

/// Data that a rank needs to take part in a deletion.
#[derive(Clone, Copy)]
pub struct Deleting<'a> {
    pub comm: &'a dyn Comm,
    pub files: &'a dyn Files,
    /// Name of this node, for messages.
    pub node: &'a str,
    pub prefix: &'a Prefix,
    /// The number of its run. Datasets that another run reads in place stay.
    pub run: u64,
}

/// A note for the user on a deleted dataset: why files of it may remain.
pub(crate) type Note = Option<String>;

/// The files that each rank removes.
type Shares = Vec<(Rank, Vec<PrefixFile>)>;

impl Deleting<'_> {
    /// Deletes a dataset. All ranks call it, with the same id; each removes its share of the files.
    pub fn run(&self, id: u64) -> Collective<Note> {
        if self.comm.rank() != Rank(0) {
            return self.run_alone(id, Ok(None));
        }
        // Processes that give files names meanwhile wait for this.
        let mut run = None;
        let alone = self.ledger().alone(|fence| {
            run = Some(self.run_alone(id, Ok(Some(fence))));
            Ok::<_, PrefixError>(())
        });
        match alone {
            Err(error) if run.is_none() => self.run_alone(id, Err(error)),
            _ => run.expect("what has the lock is done"),
        }
    }

    /// The same, while nobody else gives files names that the dataset has. Rank 0 has the fence of the lock.
    fn run_alone(&self, id: u64, locked: Result<Option<Fence<'_>>, PrefixError>) -> Collective<Note> {
        let (mut note, mut shares) = (None, Vec::new());
        let opened = locked.and_then(|fence| {
            if fence.is_some() {
                (note, shares) = self.open(id)?;
                expect_lock(fence, &self.prefix.dataset_dir(id))?;
            }
            Ok(fence)
        });
        let fence = agree_at(self.comm, self.node, opened)?;
        let shares: Shares = route_values(self.comm, &shares)?;
        let mine: Vec<PrefixFile> = shares.into_iter().flat_map(|(_, list)| list).collect();
        agree_at(self.comm, self.node, self.remove(id, &mine, fence))?;
        for file in &mine {
            self.remove_emptied(&self.prefix.file(&file.name));
        }
        barrier(self.comm)?;
        let closed = fence.map_or(Ok(()), |_| self.close(id, fence));
        agree_at(self.comm, self.node, closed).map(|()| note)
    }

    /// Invalidates the dataset, and distributes its files over the ranks.
    fn open(&self, id: u64) -> Result<(Note, Shares), PrefixError> {
        let listed = Rank2File::read(self.files, self.prefix, id);
        if let Ok(own) = &listed {
            let names = own.by_rank().iter().flatten().map(|file| &file.name);
            self.prefix.refuse_links(self.files, names)?;
        }
        self.ledger().transact(&Request::BeginDeletion { id, run: self.run })?;
        let is_known = self.saved(id)?.is_some() || self.ledger().index()?.entry(id).is_none();
        let own = match listed {
            Ok(own) => own,
            // It was saved from a cache and never complete, or another process has deleted it meanwhile.
            Err(PrefixError::Missing { ref path }) if is_known && *path == self.prefix.rank2file(id) => {
                return Ok((None, vec![]))
            }
            Err(error) if error.is_damage() => {
                let why = describe(&error);
                return Ok((Some(format!("its files are not known and stay where they are: {why}")), vec![]));
            }
            Err(error) => return Err(error),
        };
        let kept = self.ledger().names_of_others(id)?;
        let size = self.comm.size();
        let share = |(rank, list): (u32, &Vec<PrefixFile>)| {
            let mut list = list.clone();
            list.retain(|file| !kept.contains(&file.name));
            (Rank(rank % size), list)
        };
        Ok((None, (0..).zip(own.by_rank()).map(share).collect()))
    }

    /// A job that was suspended may have lost the lock: then a newer dataset may have got the names. Rank 0 asks before each
    /// file, the others look once into the index, where who breaks the lock releases the names.
    fn remove(&self, id: u64, mine: &[PrefixFile], fence: Option<Fence<'_>>) -> Result<(), PrefixError> {
        let looked = match mine.is_empty() || fence.is_some() {
            true => None,
            false => self.ledger().index()?.entry(id),
        };
        let is_being_deleted = looked.is_some_and(|entry| entry.taken == Some(By::Deletion));
        let had_looked = || is_being_deleted;
        let fence = Some(fence.unwrap_or(&had_looked));
        for file in mine {
            let path = self.prefix.file(&file.name);
            expect_lock(fence, &path)?;
            self.files.remove_if_there(&path)?;
        }
        Ok(())
    }

    /// Removes the folders above a removed file that are empty now, up to the prefix directory.
    fn remove_emptied(&self, file: &Path) {
        let inside = file.ancestors().skip(1).take_while(|above| *above != self.prefix.dir());
        for folder in inside {
            match self.files.remove_dir(folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => break,
                _ => {}
            }
        }
    }

    /// The dataset leaves the index, and then its lists go. If this process has lost the lock, another one may have flushed the
    /// dataset anew, or be deleting it.
    fn close(&self, id: u64, fence: Option<Fence<'_>>) -> Result<(), PrefixError> {
        let lists = self.prefix.dataset_dir(id);
        let saved = self.saved(id)?;
        for path in saved.iter().flat_map(|scan| hidden(self.files, self.prefix, scan)) {
            expect_lock(fence, &path)?;
            self.files.remove_if_there(&path)?;
            self.remove_emptied(&path);
        }
        let ended = self.ledger().transact_if(&Request::EndDeletion { id }, &mut |_| {
            expect_lock(fence, &lists).map_err(PrefixError::from)
        })?;
        if ended.events.is_empty() && saved.is_none() {
            // Lists without an entry may be those of a flush that has not taken its name yet.
            return Ok(());
        }
        expect_lock(fence, &lists)?;
        Ok(self.files.remove_tree(&lists)?)
    }

    /// What was saved from caches of a dataset whose files are not in place.
    fn saved(&self, id: u64) -> Result<Option<Scan>, PrefixError> {
        let there = self.files.status(&self.prefix.dataset_dir(id)).is_ok();
        let scan = there.then(|| Scan::read(self.files, self.prefix, id)).transpose()?.flatten();
        Ok(scan.filter(|scan| !scan.any.protection.bypass))
    }

    fn ledger(&self) -> LedgerDir<'_> {
        LedgerDir { files: self.files, prefix: self.prefix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush::tests::stage::{finalize_arrived, through, Cached, Stage, NOW};
    use scr_base::fs::{How, LockAttempt, RealFiles};
    use scr_comm::thread::run;
    use scr_plugin_api::KvTree;
    use scr_prefix::ledger::pending;
    use scr_prefix::Index;
    use scr_test_kit::faulty::FaultyFiles;
    use scr_test_kit::fixtures::{let_look_dead, ChangeIndex as _};
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn delete(stage: &Stage, files: &dyn Files, ranks: u32, id: u64) -> Result<Note, String> {
        let prefix = &stage.prefix;
        let all = run(ranks, |comm| {
            let deleting = Deleting { comm: &comm, files, node: "node0", prefix, run: 0 };
            deleting.run(id).map_err(|why| why.to_string())
        });
        let mut all = all.unwrap();
        let first = all.remove(0);
        assert!(all.iter().all(|other| other.is_ok() == first.is_ok()), "{first:?} and {all:?}");
        first
    }

    fn names_in(stage: &Stage) -> Vec<PathBuf> {
        let real: &dyn Files = &RealFiles;
        real.list(stage.prefix.dir()).unwrap()
    }

    fn flushed(ranks: u32) -> (Stage, Cached) {
        let stage = Stage::new(ranks);
        let cached = stage.cache(1, "runs/a");
        stage.flush_well("1.a", &cached);
        (stage, cached)
    }

    #[test]
    fn files_folders_and_entry_go_whatever_the_number_of_ranks() {
        for ranks in [1, 3, 7] {
            let (stage, _) = flushed(3);
            fs::write(stage.prefix.dir().join("mine"), "kept").unwrap();
            assert_eq!(delete(&stage, &RealFiles, ranks, 1), Ok(None));
            assert_eq!(names_in(&stage), [Path::new(".scr"), Path::new("mine")]);
            assert!(stage.index().entry(1).is_none());
            assert!(!stage.prefix.dataset_dir(1).exists());
            // Who comes second said that the files were not known and stayed.
            assert_eq!(delete(&stage, &RealFiles, ranks, 1), Ok(None));
        }
    }

    #[test]
    fn a_file_that_another_dataset_has_by_now_stays() {
        let (stage, _) = flushed(3);
        let mut newer = stage.cache(2, "runs/a");
        newer.dataset.name = b"newer".to_vec();
        stage.flush_well("2.a", &newer);
        assert!(!stage.is_listed(1) && stage.is_listed(2));
        assert_eq!(delete(&stage, &RealFiles, 3, 1), Ok(None));
        assert!(stage.is_right(&newer) && stage.is_listed(2));
    }

    #[test]
    fn with_damaged_lists_the_entry_is_removed_and_a_message_says_so() {
        let (stage, cached) = flushed(2);
        fs::write(stage.prefix.rank2file(1), "x").unwrap();
        let note = delete(&stage, &RealFiles, 2, 1).unwrap().unwrap();
        assert!(note.starts_with("its files are not known and stay where they are: "), "{note}");
        assert!(stage.is_right(&cached) && stage.index().entry(1).is_none());
    }

    #[test]
    fn interrupted_anywhere_it_is_never_restarted_from_and_can_be_deleted_again() {
        let (stage, _) = flushed(2);
        let files = FaultyFiles::new(RealFiles);
        delete(&stage, &files, 2, 1).unwrap();
        for at in 1..=files.mutations() {
            let (stage, cached) = flushed(2);
            let files = FaultyFiles::new(RealFiles);
            files.stop_at(at);
            let _ = delete(&stage, &files, 2, 1);
            assert!(!stage.is_listed(1) || stage.is_right(&cached), "operation {at}");
            if stage.index().entry(1).is_some() {
                delete(&stage, &RealFiles, 2, 1).unwrap();
            }
            assert!(stage.index().entry(1).is_none());
        }
    }

    /// A dataset of another name that has arrived, with the files of dataset 1.
    fn arrived(stage: &Stage) -> Cached {
        let mut newer = stage.cache(2, "runs/a");
        newer.dataset.name = b"newer".to_vec();
        let files = FaultyFiles::new(RealFiles);
        files.only(|_, path| path.display().to_string().contains("done.2.a"));
        files.stop_at(1);
        let _ = stage.flush(&files, &through(&RealFiles), "2.a", &newer);
        let record = pending::find(LedgerDir::new(&RealFiles, &stage.prefix), "2.a").unwrap().unwrap();
        record.mark_done(LedgerDir::new(&RealFiles, &stage.prefix), 0, &KvTree::new()).unwrap();
        newer
    }

    /// An agent gave the files their names between the look at who has them and their removal.
    #[test]
    fn a_dataset_that_is_to_get_the_names_keeps_its_files() {
        let (stage, _) = flushed(2);
        let newer = arrived(&stage);
        let kept = stage.keep();
        for at in 1.. {
            stage.put_back(&kept);
            let files = FaultyFiles::new(RealFiles);
            let theirs = stage.prefix.clone();
            files.interrupt_at(at, move || {
                if theirs.scr_file("index.lock").exists() {
                    // It would wait.
                    return;
                }
                let agent = FaultyFiles::new(RealFiles);
                agent.never_pause();
                let _ = LedgerDir { files: &agent, prefix: &theirs }.commit(NOW).end_now("2.a");
            });
            delete(&stage, &files, 1, 1).unwrap();
            if !files.was_interrupted() {
                assert!(at > 5, "nothing was interrupted");
                break;
            }
            finalize_arrived(&RealFiles, &stage.prefix, NOW).unwrap();
            assert!(stage.is_listed(2) && stage.is_right(&newer), "interrupted at {at}");
            assert!(stage.index().entry(1).is_none(), "interrupted at {at}");
        }
    }

    /// The job was suspended at the end, and another one of the allocation flushed its copy in cache anew: the entry and the
    /// lists of that went, and the dataset counted as flushed.
    #[test]
    fn who_has_lost_the_lock_leaves_a_dataset_that_was_flushed_anew() {
        let (stage, cached) = flushed(2);
        let (stage, cached) = (Arc::new(stage), Arc::new(cached));
        let kept = stage.keep();
        let mut left = 0;
        for at in 1.. {
            stage.put_back(&kept);
            let files = FaultyFiles::new(RealFiles);
            // The removal of a file that has begun cannot be stopped.
            let (data, lists) = (stage.prefix.dir().join("runs"), stage.prefix.dataset_dir(1));
            files.only(move |_, path| !path.starts_with(&data) && !path.starts_with(&lists));
            let (theirs, again) = (Arc::clone(&stage), Arc::clone(&cached));
            files.interrupt_at(at, move || {
                if theirs.prefix.scr_file("index.lock").exists() {
                    // It would wait.
                    return;
                }
                let_look_dead(&theirs.prefix.scr_file("finalize.lock"));
                theirs.flush_well("1.b", &again);
            });
            let deleted = delete(&stage, &files, 1, 1);
            if !files.was_interrupted() {
                assert!(left > 2, "{left} of {at} left it");
                break;
            }
            let is_gone = stage.index().entry(1).is_none() && names_in(&stage) == [Path::new(".scr")];
            let lists = Rank2File::read(&RealFiles, &stage.prefix, 1);
            let is_whole = stage.is_listed(1) && lists.is_ok() && stage.is_right(&cached);
            assert!(is_gone && deleted.is_ok() || is_whole, "interrupted at {at}: {deleted:?}, {lists:?}");
            left += u32::from(is_whole && deleted.is_err());
        }
    }

    /// The job was suspended once it had asked who has the names. When it went on, it removed what a newer dataset had got.
    #[test]
    fn who_has_lost_the_lock_removes_nothing_that_a_newer_dataset_has_got() {
        for ranks in [1, 3] {
            let (stage, _) = flushed(3);
            stage.flush_well("3.a", &stage.cache(3, "runs/b"));
            let newer = arrived(&stage);
            let files = FaultyFiles::new(RealFiles);
            files.count_all();
            let (theirs, lists) = (stage.prefix.clone(), stage.prefix.dataset_dir(3));
            files.only(move |_, path| path.starts_with(&lists));
            files.interrupt_at(1, move || {
                let real: &dyn Files = &RealFiles;
                let lock = real.open(&theirs.scr_file("finalize.lock"), How::Update).unwrap();
                lock.set_times((1000, 0), (1000, 0)).unwrap();
                finalize_arrived(real, &theirs, NOW).unwrap();
            });
            delete(&stage, &files, ranks, 1).unwrap_err();
            assert!(files.was_interrupted() && stage.is_listed(2) && stage.is_right(&newer));

            // As a rank that had its share of the files before.
            let lists = Rank2File::read(&RealFiles, &stage.prefix, 1).unwrap();
            let prefix = &stage.prefix;
            let removed = run(1, |comm| {
                let deleting = Deleting { comm: &comm, files: &RealFiles, node: "node0", prefix, run: 0 };
                lists.by_rank().iter().any(|list| deleting.remove(1, list, None).is_ok())
            });
            assert_eq!(removed.unwrap(), [false]);
            assert!(stage.is_right(&newer));
            delete(&stage, &RealFiles, ranks, 1).unwrap();
            assert!(stage.index().entry(1).is_none() && stage.is_right(&newer));
        }
    }

    /// The call failed, and blamed a lock that nobody had taken.
    #[test]
    fn a_dataset_that_somebody_drops_from_the_index_meanwhile_is_no_error() {
        for at in 1.. {
            let (stage, _) = flushed(2);
            let stage = Arc::new(stage);
            let files = FaultyFiles::new(RealFiles);
            let theirs = Arc::clone(&stage);
            files.interrupt_at(at, move || {
                if !theirs.prefix.scr_file("index.lock").exists() {
                    Index::update(&RealFiles, &theirs.prefix, |index| index.drop_id(1)).unwrap();
                }
            });
            let deleted = delete(&stage, &files, 1, 1);
            if !files.was_interrupted() {
                assert!(at > 5, "{at}");
                break;
            }
            assert!(deleted.is_ok() && stage.index().entry(1).is_none(), "interrupted at {at}: {deleted:?}");
        }
    }

    /// The other run had begun to read between the look at what is too much and the deletion.
    #[test]
    fn what_a_living_run_reads_in_place_stays_for_another_run() {
        let (stage, cached) = flushed(2);
        let (files, prefix): (&dyn Files, _) = (&RealFiles, &stage.prefix);
        let name = &cached.dataset.name;
        let run_lock = files.open(&prefix.scr_file("running"), How::Ensure(0o666)).unwrap();
        assert_eq!(run_lock.try_lock(), LockAttempt::Taken);
        assert!(LedgerDir { files, prefix }.hold(1, name, 7).unwrap());
        let delete_for = |number| {
            let deleted = run(2, |comm| {
                let deleting = Deleting { comm: &comm, files, node: "node0", prefix, run: number };
                deleting.run(1).map_err(|why| why.to_string())
            });
            deleted.unwrap().swap_remove(0)
        };
        let why = delete_for(8).unwrap_err();
        assert!(why.contains("another run reads the files of dataset 1"), "{why}");
        assert!(stage.is_listed(1) && stage.is_right(&cached));
        delete_for(7).unwrap();
        assert!(stage.index().entry(1).is_none());
    }
}
