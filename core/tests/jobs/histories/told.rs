//! What was written under which name and when, what became of it, and what its users were told. It says which facts a run meets;
//! which restart is right follows from the ten promises alone.

use super::history::{folder_of, name_of, sizes, Came, Reaction, Read, Run, Seen, Step};
use scr_base::env::Link;
use scr_comm::Rank;
use scr_test_kit::promises::Fate;
use std::collections::BTreeSet;

/// A node that is there no more.
const LOST: usize = 1000;

/// A dataset that somebody tried to write.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) ranks: usize,
    is_checkpoint: bool,
    in_place: bool,
    /// Whether it is flushed in containers.
    is_packed: bool,
    other_base: bool,
    pub(super) other_prefix: bool,
    /// Whether all ranks called it valid, so that it may be whole, whatever came after.
    is_possible: bool,
    is_gone: bool,
    is_refused: bool,
    /// Whether a flushed file of it has been changed.
    pub(super) is_damaged: bool,
    /// Whether the prefix directory must have it, now or once its run is finalized.
    is_saved: bool,
    arrives: bool,
    /// The nodes of those that wrote it: no two ranks of one share redundancy.
    nodes: Vec<usize>,
    /// How many of those may have lost their parts, wherever they are, now and once it is protected.
    survives: usize,
    protected: usize,
    /// Whether no older one leaves for it yet.
    is_local: bool,
    /// The nodes that may have the part of each rank; one of them has all of it. None where nobody was told that it is complete.
    homes: Vec<Vec<usize>>,
}

/// How a run went.
pub(super) struct Went<'a> {
    pub(super) ranks: &'a [Seen],
    /// The number of its first dataset.
    pub(super) first: u64,
    /// Whether nothing went wrong.
    pub(super) is_healthy: bool,
    /// The datasets in containers that the run cannot read.
    pub(super) out_of_reach: &'a [u64],
}

/// All that was written and told.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) written: Vec<Written>,
    /// The prefix directories in which somebody has gone back to an older checkpoint, which is offered first.
    went_back: BTreeSet<bool>,
}

impl Told {
    fn of(&self, number: u64) -> Option<&Written> {
        self.written.iter().find(|written| written.number == number)
    }

    pub(super) fn has_gone_back(&self, place: bool) -> bool {
        self.went_back.contains(&place)
    }

    /// Those with this folder in this prefix directory.
    fn in_folder<'a>(&'a mut self, place: bool, name: &'a str) -> impl Iterator<Item = &'a mut Written> {
        self.written.iter_mut().filter(move |other| other.other_prefix == place && share(&other.name, name))
    }

    /// Whether one that meets this has come into the place of an older one.
    fn has_later(&self, written: &Written, is_it: impl Fn(&Written) -> bool) -> bool {
        let mut later = self.written.iter().filter(|other| other.number > written.number);
        later.any(|other| share(&other.name, &written.name) && is_it(other))
    }

    /// One of which every byte is where the index offers it: nobody has changed a file, nor written over one in place.
    pub(super) fn intact(&self, number: u64) -> Option<&Written> {
        let is_intact =
            |written: &&Written| !written.is_damaged && !self.has_later(written, |other| other.in_place);
        self.of(number).filter(is_intact)
    }

    /// Whether the flush of a checkpoint that a run has, or of one that it has passed over, may come too late for its names. In the
    /// prefix directory, one that could not be flushed is passed over.
    pub(super) fn may_be_late(&self, run: &Run, handed: Option<u64>) -> bool {
        self.written.iter().any(|written| {
            let is_own = written.ranks == run.nodes.len() && written.is_placed_for(run);
            let is_passed_over = run.settings.global && is_own && Some(written.number) > handed;
            (is_passed_over || Some(written.number) == handed)
                && self.has_later(written, |other| other.is_possible)
        })
    }

    /// Whether output, of this run or left of an earlier one, has files of a checkpoint before it that has another name: that keeps
    /// them once it is flushed.
    pub(super) fn has_output_over_checkpoints(&self, run: &Run) -> bool {
        let place = run.settings.other_prefix;
        let here = self.written.iter().filter(|written| written.other_prefix == place);
        let told = here.map(|written| (written.is_checkpoint, written.name.clone()));
        let steps = run.steps.iter().filter_map(|step| match *step {
            Step::Checkpoint { name, .. } => Some((true, name_of(name))),
            Step::Output { name } => Some((false, name_of(name))),
            _ => None,
        });
        let all: Vec<_> = told.chain(steps).collect();
        let is_over = |(at, (is_checkpoint, name)): (usize, &(bool, String))| {
            let mut before = all[..at].iter().filter(|(is_checkpoint, _)| *is_checkpoint);
            !is_checkpoint && before.any(|(_, other)| other != name && share(other, name))
        };
        all.iter().enumerate().any(is_over)
    }

    /// Whether a run can read it where the index offers it, and nothing may have come in its place that it cannot.
    pub(super) fn is_offered(&self, run: &Run, number: u64) -> bool {
        self.of(number).is_some_and(|written| {
            let is_other = |other: &Written| {
                other.in_place || other.is_possible && (!other.is_checkpoint || other.ranks != written.ranks)
            };
            run.can_read(written) && !written.is_damaged && !self.has_later(written, is_other)
        })
    }

    /// The newest one that was reported complete and must be in the prefix directory, and the one in caches.
    pub(super) fn owed(&self, run: &Run, out_of_reach: &[u64]) -> [Option<u64>; 2] {
        let place = run.settings.other_prefix;
        let is_there =
            |written: &&Written| written.is_saved && written.other_prefix == place && run.can_read(written);
        let mut saved = self.written.iter().filter(is_there).map(|written| written.number);
        let saved = saved.rfind(|number| !out_of_reach.contains(number));
        [saved, self.cached(run).filter(|number| !out_of_reach.contains(number))]
    }

    /// Older ones may have left the caches for each that may be protected.
    fn cached(&self, run: &Run) -> Option<u64> {
        let is_possible =
            |written: &&Written| written.is_possible && written.is_checkpoint && written.is_placed_for(run);
        let mut newest_first = self.written.iter().rev().filter(is_possible);
        let found = newest_first.find(|written| !written.is_local || written.is_promised(run))?;
        // All read it in the prefix directory, or where another number of ranks wrote it: if nothing newer has its place there, and
        // no flush can have put it into containers.
        let is_own = found.ranks == run.nodes.len();
        let is_read_there = run.settings.global || run.settings.link == Link::InCalls;
        let is_late = (run.settings.global || !is_own) && self.has_later(found, |other| other.is_possible);
        let is_reached =
            !is_late && (is_own || run.settings.any_ranks && !(found.is_packed && is_read_there));
        Some(found.number).filter(|_| is_reached && found.is_promised(run))
    }

    /// The fates of all datasets, as a run meets them that is owed these.
    pub(super) fn fates(&self, run: &Run, [saved, cached]: [Option<u64>; 2]) -> Vec<Fate> {
        let fate = |written: &Written| {
            let all = |is_it: &dyn Fn(&Written) -> bool| {
                let others = self.written.iter().enumerate().filter(|(_, other)| {
                    other.number != written.number && other.other_prefix == written.other_prefix
                });
                others.filter(|(_, other)| is_it(other)).map(|(at, _)| at).collect()
            };
            Fate {
                is_complete: [saved, cached].contains(&Some(written.number)),
                is_readable: true,
                is_only_cached: saved != Some(written.number),
                is_gone: written.is_gone,
                is_refused: written.is_refused,
                has_arrived: written.is_possible,
                is_whole: written.is_possible && written.is_checkpoint && run.can_read(written),
                named_so: all(&|other| other.name == written.name),
                rivals: all(&|other| share(&other.name, &written.name)),
                ..Fate::default()
            }
        };
        self.written.iter().map(fate).collect()
    }

    /// The datasets that were handed out, in order, each with the same bytes on all ranks.
    pub(super) fn handed(&self, run: &Run, ranks: &[Seen], is_healthy: bool) -> Result<Vec<u64>, String> {
        let mut all = Vec::new();
        while let Some((name, first)) = ranks[0].handed.get(all.len()) {
            let number = match first {
                Read::Version(number) => *number,
                Read::Wrong(why) => return Err(why.clone()),
                Read::Nothing if is_healthy => return Err("rank 0 has no files".to_owned()),
                Read::Nothing => break,
            };
            let is_of_others = self.of(number).is_some_and(|written| written.ranks != run.nodes.len());
            let reads =
                (0_u32..).zip(ranks).filter_map(|(rank, seen)| Some((rank, seen.handed.get(all.len())?)));
            for (rank, (named, read)) in reads {
                // Every rank reads all that another number of ranks wrote, among which rank 0 has files.
                let has_files = is_of_others || !sizes(number, Rank(rank)).is_empty();
                let is_right = match read {
                    Read::Nothing => !has_files || !is_healthy,
                    read => has_files && *read == Read::Version(number),
                };
                if named != name || !is_right {
                    return Err(format!(
                        "a mix: rank 0 has version {number} of {name}, rank {rank} {read:?} of {named}"
                    ));
                }
            }
            all.push(number);
        }
        Ok(all)
    }

    /// Notes what a run has done, and what it was told.
    pub(super) fn remember(&mut self, run: &Run, went: &Went<'_>) {
        let place = run.settings.other_prefix;
        self.record_moves(run, went.is_healthy && has_verified(run, went.ranks));
        self.restart(run, went);
        for (at, step) in run.steps.iter().enumerate() {
            let came: Vec<_> = went.ranks.iter().map(|seen| seen.came.get(at)).collect();
            if came.iter().all(Option::is_none) {
                break;
            }
            let is_good = came.iter().all(|came| *came == Some(&Came::Good));
            let number = went.first + at as u64;
            match *step {
                Step::Checkpoint { name, output, bad } => {
                    let is_valid = bad.is_none_or(|bad| bad >= run.nodes.len());
                    let written = Written::of(run, number, name_of(name), is_valid, true, &came);
                    self.write(run, written, is_good && is_valid, output, went.is_healthy);
                }
                Step::Output { name } => {
                    let written = Written::of(run, number, name_of(name), true, false, &came);
                    self.write(run, written, false, true, went.is_healthy);
                }
                Step::Delete { name } | Step::Drop { name } => {
                    let name = name_of(name);
                    // It may have replaced files of others in its folder.
                    self.end_in_folder(place, &name);
                    self.forget(|other| other.name == name);
                    // The name stands for the newest.
                    let meant =
                        self.written.iter_mut().rfind(|other| other.name == name && other.is_of_job(run));
                    let is_told = is_good && went.is_healthy;
                    meant.into_iter().for_each(|meant| meant.is_gone |= is_told && meant.is_possible);
                }
                Step::Current { .. } => self.go_back(place),
            }
        }
        self.end(run, went);
    }

    /// A run that begins brings home what it can; one that the world ended may have done so or not, and so may one to which
    /// nothing was promised: less may be damaged than is known of the node.
    fn record_moves(&mut self, run: &Run, is_sure: bool) {
        let has_homes = |written: &&mut Written| {
            written.ranks == run.nodes.len() && written.is_placed_for(run) && !written.homes.is_empty()
        };
        for written in self.written.iter_mut().filter(has_homes) {
            if is_sure && written.is_promised(run) {
                written.homes.clear();
                written.survives = written.protected;
            }
            written.is_local = false;
            written.homes.push(run.nodes.clone());
        }
    }

    /// What the application has refused, and what the user has gone back over.
    fn restart(&mut self, run: &Run, went: &Went<'_>) {
        let (place, wanted) = (run.settings.other_prefix, run.wants.map(name_of));
        if let Some(handed) = first_handed(went.ranks).and_then(|number| self.of(number)).cloned() {
            let is_refused = matches!(run.reaction, Reaction::Refuse(who) if who < went.ranks.len());
            let is_kept = is_refused || matches!(run.reaction, Reaction::RefuseAll);
            let drops = run.settings.drop_after_current && wanted.as_ref() == Some(&handed.name) && !is_kept;
            let of_job = self.written.iter_mut().filter(|other| other.is_of_job(run) && went.is_healthy);
            for other in of_job {
                other.is_gone |= drops && other.number > handed.number && other.is_checkpoint;
                other.is_refused |= is_refused && other.number == handed.number;
            }
            if matches!(run.reaction, Reaction::Refuse(_)) {
                self.forget(|written| written.number == handed.number);
                self.end_in_folder(place, &handed.name);
            }
        }
        if wanted.is_some() {
            self.go_back(place);
        }
    }

    /// A dataset that a run has tried to write. In place its files go over those of older ones; and a run of another size could not
    /// find the files of an older one again that it replaces.
    fn write(&mut self, run: &Run, written: Written, is_told: bool, is_output: bool, is_healthy: bool) {
        let (settings, in_place, number) = (&run.settings, written.in_place, written.number);
        let (name, ranks, replaces) =
            (written.name.clone(), written.ranks, in_place || !written.is_checkpoint);
        let is_flushed = !written.is_checkpoint && !in_place;
        self.in_folder(settings.other_prefix, &name).for_each(|other| {
            let keeps = is_flushed && other.is_checkpoint && other.name != name;
            other.is_saved &= keeps || !replaces && other.ranks == ranks;
            other.arrives &= !replaces && is_healthy;
        });
        if in_place {
            self.forget(|other| share(&other.name, &name));
        }
        if written.is_possible && written.is_checkpoint {
            self.written.iter_mut().for_each(|other| other.arrives = false);
        }
        let is_at_once = in_place || !settings.detached && (is_output || is_healthy && settings.flush == 1);
        self.written.push(Written { arrives: is_told && (is_output || settings.flush > 0), ..written });
        if is_told && is_at_once {
            self.save(number);
        }
    }

    /// The end of a run flushes what is to arrive, or else the checkpoint that the run has taken from a cache, and protects what is
    /// local. So do threads sooner or later, and every call.
    fn end(&mut self, run: &Run, went: &Went<'_>) {
        let (place, settings) = (run.settings.other_prefix, &run.settings);
        let is_finalized = went.ranks.iter().all(|seen| seen.finalized);
        let taken = first_handed(went.ranks).and_then(|number| self.of(number)).filter(|taken| {
            let is_taken =
                matches!(run.reaction, Reaction::Take) && run.steps.is_empty() && settings.flush > 0;
            let is_spare = self.has_gone_back(place) || settings.window > 0 || taken.is_damaged;
            let is_late = self.has_later(taken, |_| true) || went.out_of_reach.contains(&taken.number);
            is_taken && went.is_healthy && !is_spare && !is_late
        });
        let arrived = self.written.iter().filter(|written| written.arrives).chain(taken);
        let arrived: Vec<u64> = arrived.map(|written| written.number).collect();
        arrived.into_iter().filter(|_| is_finalized).for_each(|number| self.save(number));
        let may_end = is_finalized || !went.is_healthy || run.finalizes || settings.link != Link::InCalls;
        let last = went.first + went.ranks.iter().map(|seen| seen.came.len() as u64).max().unwrap_or(0);
        for written in self.written.iter_mut().filter(|written| written.number >= went.first) {
            let is_followed = written.number + 1 < last;
            let is_sure = is_finalized || is_followed && settings.link == Link::InCalls;
            written.is_local &= !may_end && !is_followed;
            written.survives = if went.is_healthy && is_sure { written.protected } else { written.survives };
        }
        let is_here = |written: &&Written| written.other_prefix == place && written.is_checkpoint;
        let newest = self.written.iter().filter(is_here).rfind(|written| written.is_possible);
        let newest = newest.map(|written| written.number);
        for written in self.written.iter_mut() {
            // Older ones leave the window for what may have come.
            let leaves =
                settings.window > 0 && written.other_prefix == place && Some(written.number) != newest;
            written.is_saved &= !leaves;
            written.arrives = false;
        }
    }

    /// It is in its prefix directory, and it is the current one.
    fn save(&mut self, number: u64) {
        let Some(Written { other_prefix: place, name, .. }) = self.of(number).cloned() else { return };
        self.in_folder(place, &name).for_each(|other| other.is_saved = other.number == number);
        self.went_back.remove(&place);
    }

    /// Nothing that is there has to stay for a user who goes back.
    pub(super) fn go_back(&mut self, place: bool) {
        self.went_back.insert(place);
        for written in self.written.iter_mut().filter(|written| written.other_prefix == place) {
            (written.is_saved, written.arrives) = (false, false);
            written.homes.clear();
        }
    }

    /// Caches need not have these any more.
    pub(super) fn forget(&mut self, which: impl Fn(&Written) -> bool) {
        self.written.iter_mut().filter(|written| which(written)).for_each(|written| written.homes.clear());
    }

    /// The prefix directory need not have those in the folder of this name any more.
    pub(super) fn end_in_folder(&mut self, place: bool, name: &str) {
        self.in_folder(place, name).for_each(|other| (other.is_saved, other.arrives) = (false, false));
    }

    /// A node has lost what it had, or it counts for lost.
    pub(super) fn lose(&mut self, node: usize) {
        let homes = self.written.iter_mut().flat_map(|written| &mut written.homes);
        homes.flatten().filter(|home| **home == node).for_each(|home| *home += LOST);
    }

    /// Files in the folder of this name are not what was flushed there.
    pub(super) fn damage(&mut self, place: bool, name: &str) {
        self.in_folder(place, name).for_each(|other| (other.is_saved, other.is_damaged) = (false, true));
    }
}

impl Run {
    /// Whether it can use what as many ranks wrote as this version.
    fn can_read(&self, written: &Written) -> bool {
        self.settings.any_ranks || written.ranks == self.nodes.len()
    }
}

impl Written {
    fn of(
        run: &Run,
        number: u64,
        name: String,
        is_valid: bool,
        is_checkpoint: bool,
        came: &[Option<&Came>],
    ) -> Self {
        let settings = &run.settings;
        let has_entered = |came: &Option<&Came>| {
            came.is_some_and(|came| !matches!(came, Came::Short(_) | Came::Invalid(_)))
        };
        let is_possible = is_valid && came.iter().all(has_entered);
        let is_kept = is_possible && came.iter().all(|came| *came == Some(&Came::Good));
        let is_kept = is_kept && is_checkpoint && !settings.bypass;
        // A rank that is alone has nobody to wait for.
        let may_wait = settings.behind && run.nodes.len() > 1 && is_checkpoint;
        let may_wait = may_wait && !settings.bypass && settings.scheme != "SINGLE";
        let protected = usize::from(settings.scheme != "SINGLE" && is_protected(&run.nodes));
        Self {
            number,
            name,
            ranks: run.nodes.len(),
            is_checkpoint,
            in_place: settings.bypass,
            is_packed: settings.aggregate && !settings.global && !settings.any_ranks,
            other_base: settings.other_base,
            other_prefix: settings.other_prefix,
            is_possible,
            is_gone: false,
            is_refused: false,
            is_damaged: false,
            is_saved: false,
            arrives: false,
            nodes: run.nodes.clone(),
            survives: if may_wait { 0 } else { protected },
            protected,
            // What the application waits for to be flushed is protected before.
            is_local: may_wait && (settings.flush == 0 || settings.detached),
            homes: if is_kept { vec![run.nodes.clone()] } else { Vec::new() },
        }
    }

    /// Whether it was written with the cache and the prefix directory of this run.
    fn is_placed_for(&self, run: &Run) -> bool {
        self.other_base == run.settings.other_base && self.other_prefix == run.settings.other_prefix
    }

    /// Whether such runs drop and refuse it for good.
    fn is_of_job(&self, run: &Run) -> bool {
        run.can_read(self) && self.other_prefix == run.settings.other_prefix
    }

    /// Whether it must be in the caches of a run, wherever its parts are: not too many of the nodes that wrote it have lost parts
    /// that this run cannot see.
    fn is_promised(&self, run: &Run) -> bool {
        let is_away = |home: &usize| !run.nodes.contains(home);
        let away = |homes: &Vec<usize>| {
            let away = homes.iter().zip(&self.nodes).filter(|(home, _)| is_away(home));
            away.map(|(_, wrote)| wrote).collect::<BTreeSet<_>>().len()
        };
        !self.homes.is_empty() && self.homes.iter().all(|homes| away(homes) <= self.survives)
    }
}

/// Whether a run has come so far that it has read, and repaired, the redundancy of what it found.
fn has_verified(run: &Run, ranks: &[Seen]) -> bool {
    let has_begun = |(step, came): (&Step, &Came)| {
        matches!(step, Step::Checkpoint { .. } | Step::Output { .. }) && !matches!(came, Came::Short(_))
    };
    ranks.iter().all(|seen| {
        seen.finalized || !seen.handed.is_empty() || run.steps.iter().zip(&seen.came).any(has_begun)
    })
}

/// Whether the datasets of these names have files in common.
pub(super) fn share(one: &str, other: &str) -> bool {
    folder_of(one) == folder_of(other)
}

pub(super) fn first_handed(ranks: &[Seen]) -> Option<u64> {
    ranks.iter().find_map(|seen| match seen.handed.first()?.1 {
        Read::Version(number) => Some(number),
        _ => None,
    })
}

/// Whether every rank is in a set with a rank of another node. If one node has more ranks than any other, its last one is alone.
fn is_protected(nodes: &[usize]) -> bool {
    let ranks_on = |node: &usize| nodes.iter().filter(|other| *other == node).count();
    let most = nodes.iter().map(ranks_on).max();
    nodes.iter().filter(|node| Some(ranks_on(node)) == most).collect::<BTreeSet<_>>().len() > 1
}
