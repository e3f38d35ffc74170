//! What a job has of its datasets in cache, and which of them comes next: to restart from, to leave a store, to be flushed.
//!
//! | question | goal |
//! |---|---|
//! | which checkpoint is restarted from, in cache, in the prefix directory or of another number of ranks? | [`first`], [`Goal::Restart`] |
//! | which dataset leaves a store that keeps too many? | [`Goal::Room`] |
//! | which one makes way for a checkpoint that is fetched? | [`Goal::Way`] |
//! | how many may a store keep, and does the newest checkpoint stay? | [`Limit`] |
//! | what is flushed, and when? | [`due`]; of another number of ranks: [`due_of_others`] |
//!
//! A dataset is one here once all ranks have their parts of it: this run wrote it, or they were found or rebuilt. Not among them:
//!
//! - Datasets that were dropped or deleted. They leave the caches when a run begins, or at once by a call of this run. One that a
//!   command drops meanwhile counts until this run ends, and is not flushed.
//! - Those of which too much is lost. They are remains, and leave for want of room, or once a newer checkpoint counts.
//! - Those that could not be tried now, or that another run has. They stay.
//! - Those of another number of ranks that this run does not read. They stay, unless this run could restart from them
//!   (`SCR_RESTART_OTHER_RANKS`): then they are remains, but for output that is nowhere else. [`is_spare`] says which make room.
//!
//! All of it is pure: no files, no ranks, and of the settings only what a goal names. `tests` looks at every state of three
//! datasets.

mod prefix;
#[cfg(test)]
mod tests;

pub use prefix::InPrefix;

use scr_prefix::Seq;

/// A dataset in cache, as far as it decides anything; the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    pub id: u64,
    /// Its place among all datasets of the prefix directory.
    pub seq: Seq,
    /// Place of its store in the list.
    pub store: usize,
    pub is_checkpoint: bool,
    pub is_output: bool,
    pub cache: Lies,
    pub prefix: InPrefix,
    pub standing: Standing,
    /// Whether another number of ranks wrote it, and its files lie in the parts of those. It counts as any other, since this run
    /// reads it there.
    pub is_of_others: bool,
    /// Whether it is output that the application is about to read back.
    pub is_offered: bool,
}

/// Where a dataset lies, and how safely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lies {
    /// A record only, or nothing: its files lie in the prefix directory.
    #[default]
    InPlace,
    /// Its files, which its scheme has yet to protect.
    Local,
    /// All that its scheme makes, which survives no loss of a node.
    Weak,
    /// The same, and a node may be lost.
    Strong,
}

/// The standing of a cached checkpoint as one to restart from.
///
/// | standing | who gives it | how long |
/// |---|---|---|
/// | `Chosen` | `SCR_CURRENT`, to the one that is loaded | until the application has written a checkpoint |
/// | `WentBack` | `SCR_CURRENT` and `SCR_Current`, to all in between | for this run; for the next one while `SCR_CURRENT` is set in the same allocation; for good with `SCR_DROP_AFTER_CURRENT`, by which they leave. Otherwise the next run takes the newest again that is in cache, and says that the index calls an older one current; of those in the prefix directory alone it takes the current one first |
/// | `Refused` | the application, `SCR_RESTART_ATTEMPTS`, wrong bytes | for good: it stands in the part and in the ledger |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// Nothing.
    #[default]
    Kept,
    /// The user went back to it, and no checkpoint was written since. Its flush makes it the current one.
    Chosen,
    /// The user or the application went back to a checkpoint before it. From then on it is flushed only where it is output as well,
    /// and does not become the current one. What is due when a run begins is flushed before that run goes back.
    WentBack,
    /// The application could not restart from it, or somebody has withdrawn it. That is for good.
    Refused,
}

impl Standing {
    /// Once somebody has gone back to a checkpoint, `over` this one or not: the application may have gone back further before.
    pub(crate) fn after_going_back(self, over: bool) -> Self {
        match (self, over) {
            (Self::Kept | Self::Chosen, true) => Self::WentBack,
            (Self::WentBack, false) => Self::Kept,
            _ => self,
        }
    }
}

impl Holding {
    /// A whole checkpoint of which only the place counts.
    pub fn checkpoint(seq: Seq) -> Self {
        Self { id: seq.id, seq, is_checkpoint: true, prefix: InPrefix::Files, ..Self::default() }
    }

    /// One of the prefix directory, whose index offers `first` before all others: somebody has gone back over those that are newer.
    pub fn listed(seq: Seq, first: Seq) -> Self {
        let standing = if seq > first { Standing::WentBack } else { Standing::Kept };
        Self { standing, ..Self::checkpoint(seq) }
    }

    /// Where it is, and what was said of it.
    pub fn in_words(&self) -> String {
        let said = match self.standing {
            Standing::Kept | Standing::Chosen => None,
            Standing::WentBack => Some("given up for an older one"),
            Standing::Refused => Some("given up as unusable"),
        };
        let cache = match self.cache {
            _ if self.is_of_others => Some("in the caches of another number of ranks"),
            Lies::InPlace => None,
            Lies::Local => Some("in cache and not protected yet"),
            Lies::Weak => Some("in cache, where it survives the loss of no node"),
            Lies::Strong => Some("in cache"),
        };
        let prefix = match (self.cache, self.prefix) {
            (Lies::InPlace, InPrefix::Missing) => "in the prefix directory, whose index does not list it",
            (_, prefix) => prefix.in_words(),
        };
        said.into_iter().chain(cache).chain([prefix]).collect::<Vec<_>>().join(", ")
    }

    /// Whether a run can restart from it.
    pub(crate) fn is_restartable(&self) -> bool {
        self.is_checkpoint && self.standing != Standing::Refused && !self.is_overwritten()
    }

    /// The files of a dataset in place may be gone once a newer one has its name; if they are still there, it is fetched.
    pub(crate) fn is_overwritten(&self) -> bool {
        self.cache == Lies::InPlace && self.prefix.is_superseded()
    }

    /// Whether a run restarts from it unless there is a newer one: nobody has gone back over it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_restartable() && self.standing != Standing::WentBack
    }

    /// Whether older ones may leave for it: a run can restart from it, it is protected and, where its files lie in the prefix
    /// directory, the index has it.
    pub(crate) fn counts(&self) -> bool {
        let is_safe = match self.cache {
            Lies::Local => false,
            Lies::InPlace => self.prefix.is_whole(),
            Lies::Weak | Lies::Strong => true,
        };
        self.is_restartable() && is_safe
    }

    /// Whether it has yet to get to the prefix directory, with the files that its ranks have here. If its flush was refused, as a
    /// newer dataset has its name or a file of it there, output counts as superseded and is not tried again. A checkpoint can be
    /// restarted from in cache all the same, and stays due.
    pub(crate) fn is_unflushed(&self) -> bool {
        !self.prefix.is_whole() && !self.prefix.is_superseded() && !self.is_of_others
    }

    /// Whether it is output that exists only in cache, which must not be lost.
    pub(crate) fn must_stay(&self) -> bool {
        self.is_output && self.is_unflushed()
    }

    /// Whether a run can restart from it after the loss of a node.
    fn is_strong(&self) -> bool {
        self.counts() && (self.cache == Lies::Strong || self.prefix.is_whole())
    }

    /// Which leave first: those from which no run can restart, then those that somebody has gone back over, then the oldest.
    fn worth(&self) -> (bool, bool, Seq) {
        (self.is_restartable(), self.is_wanted(), self.seq)
    }
}

/// What a dataset is looked for.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// To restart from: the newest, or one that somebody has gone back over if there is no other. If the ranks read `in_prefix`, the
    /// files must lie there under their names.
    Restart { in_prefix: bool },
    /// To leave a store that keeps more than its limit. What leaves stays on disk if another job has it.
    Room { store: usize, limit: Limit },
    /// To leave a store for a checkpoint that is fetched and has no room.
    Way { store: usize, fetched: Seq },
}

/// How many datasets may stay in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    most: u64,
    /// Whether the newest checkpoint that a run can restart from stays in any case.
    keep_newest: bool,
}

impl Limit {
    /// Once a new dataset is complete, in a store that keeps `count`.
    pub fn after(count: u64) -> Self {
        Self { most: count.max(1), keep_newest: true }
    }

    /// Before a new one begins, where `there` are and the store is crowded: it has too few free bytes for a dataset a quarter larger
    /// than the last one, `EVICT=before` is set, or a dataset has failed there for want of room. Otherwise none leaves before the
    /// new one is complete. Only output that is nowhere else stays in any case, and, where two may stay, the newest that survives
    /// the loss of a node. After a failure what is due when a run ends is flushed before; if that fails, none leaves, and the new
    /// dataset may fail. Remains leave before any dataset.
    pub(crate) fn before(count: u64, there: u64) -> Self {
        Self { most: count.min(there).saturating_sub(1), keep_newest: false }
    }

    /// Whether no dataset stays.
    pub(crate) fn is_none(self) -> bool {
        self.most == 0
    }
}

/// The checkpoint of the prefix directory that a run takes, and not one in cache; `in_prefix` as for [`Goal::Restart`].
pub(crate) fn fetched(listed: &[Holding], cached: &[Holding], in_prefix: bool) -> Option<Seq> {
    let next = next(&[listed, cached].concat(), Goal::Restart { in_prefix })?;
    (!cached.contains(&next)).then_some(next.seq)
}

/// Whether parts that another number of ranks wrote may make room for a new dataset: the prefix directory has them too, and they
/// are no newer than what the run has loaded.
pub(crate) fn is_spare(is_saved: bool, seq: Option<Seq>, loaded: Option<Seq>) -> bool {
    is_saved && seq <= loaded
}

/// The checkpoint that a run takes when it begins. If the ranks read `in_prefix`, what is not there is flushed before.
pub fn first(all: &[Holding], in_prefix: bool) -> Option<Holding> {
    let gets_there = |held: &&Holding| !in_prefix || held.prefix.has_files() || held.is_unflushed();
    let all: Vec<_> = all.iter().filter(gets_there).copied().collect();
    next(&all, Goal::Restart { in_prefix: false })
}

/// The dataset that serves a goal, if any does.
pub fn next(all: &[Holding], goal: Goal) -> Option<Holding> {
    match goal {
        Goal::Restart { in_prefix } => {
            let is_it = |held: &&Holding| held.is_restartable() && (!in_prefix || held.prefix.has_files());
            all.iter().filter(is_it).max_by_key(|held| held.worth()).copied()
        }
        Goal::Room { store, limit } => next_to_leave(all, store, limit),
        Goal::Way { store, fetched } => {
            // The one before takes its place if it cannot be fetched even then.
            let kept =
                [newest(all, Holding::is_wanted), newest(all, |held| held.is_wanted() && held.seq < fetched)];
            let may_leave = |held: &&Holding| {
                let is_spare = !held.is_restartable() || held.prefix.is_whole();
                let is_needed = held.is_offered || held.must_stay() || held.prefix.is_under_way();
                held.store == store
                    && is_spare
                    && !is_needed
                    && !kept.contains(&Some(**held))
                    && held.cache != Lies::InPlace
            };
            all.iter().filter(may_leave).min_by_key(|held| held.worth()).copied()
        }
    }
}

/// The newest one that a run can restart from stays, and so does the newest one that survives the loss of a node, where there is
/// room beside the newest of all. Output stays that exists only in cache, or that the application is about to read.
fn next_to_leave(all: &[Holding], store: usize, limit: Limit) -> Option<Holding> {
    let waits = |held: &Holding| limit.keep_newest && waits(all, held);
    let here = || all.iter().filter(|held| held.store == store);
    if here().filter(|held| !waits(held)).count() as u64 <= limit.most {
        return None;
    }
    let strong = newest(all, |held| held.is_strong() && held.is_wanted());
    let has_room = limit.most > u64::from(limit.keep_newest);
    let strong = strong.filter(|strong| has_room && !strong.prefix.is_whole());
    let kept = |is_kept: fn(&Holding) -> bool| newest(all, is_kept).filter(|_| limit.keep_newest);
    // Also one that would have to get to the prefix directory before a run can read it.
    let taken = next(all, Goal::Restart { in_prefix: false }).filter(|_| limit.keep_newest);
    let kept = [taken, kept(|held| held.is_wanted() && held.counts()), strong];
    let may_leave = |held: &&Holding| {
        // Whoever lets one leave that is on its way waits for that flush first, and asks again.
        let stays = held.is_offered || held.must_stay() && !held.prefix.is_under_way();
        !kept.contains(&Some(**held)) && !stays && !waits(held)
    };
    here().filter(may_leave).min_by_key(|held| held.worth()).copied()
}

/// Whether a dataset is local, is one of the newest, and no newer one is protected: it stays beside those that count.
pub(crate) fn waits(all: &[Holding], local: &Holding) -> bool {
    let newer = || all.iter().filter(|other| other.seq > local.seq);
    let are_newest = newer().filter(|other| other.cache == Lies::Local).count() < MOST_LOCAL;
    local.cache == Lies::Local && are_newest && !newer().any(Holding::counts)
}

/// When datasets are flushed.
#[derive(Clone, Copy)]
pub(crate) enum When<'a> {
    /// A run begins. The settings say which of those that earlier ones have left.
    Begin(&'a dyn Fn(u64) -> bool),
    /// It ends, or the store is about to lose what it has. `SCR_FLUSH` says whether checkpoints are flushed; if not, they stay in
    /// cache for `scr postrun`.
    End { checkpoints: bool },
    /// Output could not be flushed when it was due.
    Again,
}

/// The datasets that are flushed, oldest first.
pub(crate) fn due(all: &[Holding], when: When<'_>) -> Vec<u64> {
    let newest = newest(all, Holding::is_wanted);
    let is_due = |held: &&Holding| match when {
        When::Begin(is_meant) => held.standing != Standing::Refused && is_meant(held.id),
        When::End { checkpoints } => {
            let is_newest = checkpoints && Some(**held) == newest;
            let arrives = held.is_output || held.cache == Lies::InPlace || is_newest;
            arrives && (held.is_output || !is_left(held))
        }
        When::Again => held.is_output && !held.prefix.is_under_way(),
    };
    all.iter().filter(|held| held.is_unflushed()).filter(is_due).map(|held| held.id).collect()
}

/// The checkpoint of another number of ranks that must not be lost with the caches when a run ends: the newest of all, if it is
/// nowhere else. This run makes it whole in the prefix directory, unless `SCR_FLUSH` is 0. Without `SCR_RESTART_OTHER_RANKS` it is
/// none of `all`, and `scr postrun` saves it.
pub(crate) fn due_of_others(all: &[Holding]) -> Option<Seq> {
    let newest = newest(all, Holding::is_wanted)?;
    (newest.is_of_others && newest.prefix == InPrefix::Missing).then_some(newest.seq)
}

/// Whether no run restarts from a checkpoint by itself any more.
fn is_left(held: &Holding) -> bool {
    matches!(held.standing, Standing::Refused | Standing::WentBack)
}

fn newest(all: &[Holding], is_it: impl Fn(&Holding) -> bool) -> Option<Holding> {
    all.iter().filter(|held| is_it(held)).max_by_key(|held| held.seq).copied()
}

/// The most datasets that are local at a time while a new one is written: one is being protected, and one waits for that.
pub(crate) const MOST_LOCAL: usize = 2;
