//! The datasets of a prefix directory as commands know them: by the index, by what their jobs have recorded, and by what the nodes
//! have. What a command says of them follows from this one value:
//!
//! | command | what it asks | what is meant to differ |
//! |---|---|---|
//! | `scr status` | what a run restarts from, of what is left after a loss: [`Held::holding`], and the chooser of the run | what only the next run knows, such as other ranks |
//! | `scr postrun`, `scr index` | what is saved: [`Saving`](super::Saving) | what was found damaged is tried: other nodes may have it whole |
//! | `scr clean` | what would be lost: the same, of all that a folder has | it asks no other node |
//! | `scr flush-file` | what is recorded | it asks neither the nodes nor what was refused: scripts of C SCR rely on that |
//!
//! No one saves or restarts from what was dropped, or refused by the application, nor keeps a cache for it. A checkpoint of the index
//! takes the place of older ones whether the flush file has it or not.

use super::Inspected;
use scr_base::fs::Files;
use scr_comm::placement::Survives;
use scr_core::cache::owner::Owner;
use scr_core::holdings::{Holding, InPrefix, Lies, Standing};
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{
    DatasetDescriptor, FlushEntry, FlushFile, InCache, Index, IndexEntry, Location, Prefix, Withdrawal,
};

/// A dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its places, and how it is kept.
    pub entry: FlushEntry,
    /// Its copy in cache.
    pub copy: Copy,
    /// Whether the flush file or the index has it, and not the nodes alone.
    pub is_listed: bool,
    /// Whether the prefix directory has it whole, and no run restarts from it there either.
    pub is_refused_there: bool,
}

/// The copy of a dataset in cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy {
    /// There is none.
    None,
    /// All of it is there, or can be rebuilt: the parts of so many ranks. Nobody may be able to say what losses it survives, and why.
    Whole { lost: usize, survival_unknown: Option<String> },
    /// It cannot be made whole, and why.
    Lost(String),
    /// The application could not restart from it.
    Refused,
    /// Somebody who could say has not, and why.
    Unknown(String),
}

impl Copy {
    /// Nothing of it has to be rebuilt.
    pub const ALL: Self = Self::Whole { lost: 0, survival_unknown: None };

    /// Whether a run can restart from it.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole { .. })
    }

    /// How many parts of a whole copy are to be rebuilt.
    pub fn lost(&self) -> usize {
        if let Self::Whole { lost, .. } = self {
            *lost
        } else {
            0
        }
    }

    /// Its state in a word, and why no run can be said to restart from it.
    pub fn in_words(&self) -> (&'static str, &str) {
        match self {
            Self::None => ("not there", ""),
            Self::Whole { .. } => ("whole", ""),
            Self::Lost(why) => ("lost", why),
            Self::Refused => ("refused", "the application could not restart from it"),
            Self::Unknown(why) => ("not known", why),
        }
    }
}

/// The datasets that the nodes have, where they were asked.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    pub datasets: &'a [Inspected],
    /// The user and the allocation that they were asked for. Of the caches of others they have said nothing.
    pub user: &'a str,
    pub job_id: &'a str,
    /// A node that has not said what it has, and why.
    pub silent: Option<&'a str>,
}

/// The datasets of a prefix directory with this flush file and this index, the newest first, without those that somebody has
/// dropped. Where the index is not known, it has what the flush file says.
pub fn holdings(
    files: &dyn Files,
    prefix: &Prefix,
    listed: &FlushFile,
    index: Option<&Index>,
    found: Option<Found<'_>>,
) -> Vec<Held> {
    let withdrawn = LedgerDir::new(files, prefix).numbers().unwrap_or_default().withdrawn();
    let mut all = listed.clone();
    if let Some(original) = Owner::original(files, prefix) {
        listed.entries().iter().for_each(|entry| all.remove_location(entry.id, Location::Cache));
        prefix.note(format!(
            "what earlier runs have in cache belongs to the prefix directory {original}, which is still there, and of which {} is \
             a copy",
            prefix.dir().display()
        ));
    }
    for listed in index.map(Index::entries).unwrap_or_default() {
        let is_it = |known: FlushEntry| known.name == listed.name;
        if listed.is_valid() && !all.entry(listed.id).is_some_and(is_it) {
            all.record(&described(listed), Location::Prefix);
        }
    }
    for found in found.iter().flat_map(|found| found.datasets) {
        let Inspected { dataset, kept, .. } = found;
        let known = listed.entry(dataset.id).filter(|entry| entry.is_at(Location::Cache));
        if known.is_some() || found.is_whole() {
            let after = known.and_then(|entry| entry.in_cache.after);
            all.record_in_cache(dataset, &InCache { after, ..kept.clone() });
        }
    }
    index.into_iter().for_each(|index| all.compare(files, prefix, index, None));
    let held = |entry: FlushEntry| {
        let why = withdrawn.of(&entry);
        // One that is in the prefix directory has been listed again since.
        let copy = match why.filter(|_| !entry.is_at(Location::Prefix)) {
            Some(Withdrawal::Removed) => return None,
            Some(Withdrawal::Refused) => Copy::Refused,
            None => copy(&entry, found),
        };
        let is_whole = |index: &Index| index.is_whole(entry.id, &entry.name);
        let is_refused_there = copy == Copy::Refused && index.is_some_and(is_whole);
        let is_listed = listed.entry(entry.id).is_some();
        Some(Held { copy, is_listed, is_refused_there, entry })
    };
    all.entries().into_iter().filter_map(held).collect()
}

fn copy(entry: &FlushEntry, found: Option<Found<'_>>) -> Copy {
    if !entry.is_at(Location::Cache) {
        return Copy::None;
    }
    let recorded = || entry.in_cache.damage.clone().map_or(Copy::ALL, Copy::Lost);
    let is_ours = |found: &Found<'_>| entry.allocation().is_none_or(|of| of == found.job_id);
    // The allocation that was asked may have fetched it.
    let may_have = |found: &Found<'_>| is_ours(found) || entry.is_at(Location::Prefix);
    let Some(found) = found.filter(may_have) else { return recorded() };
    let lost = match found.of(entry.id) {
        Some(seen) if seen.is_refused => return Copy::Refused,
        Some(seen) if seen.is_whole() => {
            return Copy::Whole { lost: seen.lost.len(), survival_unknown: seen.survival_unknown.clone() }
        }
        Some(Inspected { unknown: Some(why), .. }) => return Copy::Unknown(why.clone()),
        Some(seen) => seen.kept.damage.clone().unwrap_or_default(),
        None if !is_ours(&found) => return Copy::None,
        None if entry.in_cache.bypass => return recorded(),
        None => match of_another(entry, found.user) {
            Some(why) => return Copy::Unknown(why),
            None => "no node that answers has any part of it".to_owned(),
        },
    };
    found.silent.map_or(Copy::Lost(lost), |silent| Copy::Unknown(silent.to_owned()))
}

/// Why this user sees no part of a dataset in cache: the caches of another one have it.
pub fn of_another(dataset: &DatasetDescriptor, user: &str) -> Option<String> {
    let owner = &dataset.user;
    (!owner.is_empty() && owner != user)
        .then(|| format!("it is in the cache of {owner}; run this command as {owner}"))
}

/// C SCR may list a dataset without a description.
fn described(listed: IndexEntry) -> DatasetDescriptor {
    let (id, run, checkpoint) = (listed.id, listed.run, listed.is_checkpoint());
    let dataset = listed.dataset.unwrap_or_default();
    DatasetDescriptor { id, run, name: listed.name, checkpoint, ..dataset }
}

impl<'a> Found<'a> {
    fn of(self, id: u64) -> Option<&'a Inspected> {
        self.datasets.iter().find(|found| found.dataset.id == id)
    }
}

impl Held {
    /// Whether the prefix directory has it whole, refused or not.
    pub fn is_in_prefix(&self) -> bool {
        self.is_refused_there || self.entry.is_at(Location::Prefix)
    }

    /// The copy of it in the prefix directory.
    #[must_use]
    pub fn in_prefix(&self) -> Self {
        let mut held = Self { copy: Copy::None, ..self.clone() };
        held.entry.in_cache = InCache { survives: Some(Survives::All), ..InCache::default() };
        held
    }

    /// How many of its parts are to be rebuilt, after a comma.
    pub fn losses_in_words(&self) -> String {
        let (lost, ranks) = (self.copy.lost(), self.entry.dataset.ranks);
        let ranks = ranks.filter(|_| lost > 0);
        ranks.map_or_else(String::new, |ranks| format!(", {lost} of {ranks} parts to be rebuilt"))
    }

    /// Where it is, and whether it can be made whole there.
    pub fn in_words(&self) -> String {
        let cache = match &self.copy {
            Copy::Whole { survival_unknown: Some(why), .. } => {
                format!("in cache, and it is not known what loss it survives: {why}")
            }
            Copy::Whole { lost: 1.., .. } => format!("in cache{}", self.losses_in_words()),
            Copy::None | Copy::Whole { .. } => return self.holding().in_words(),
            Copy::Refused => "given up as unusable, in cache".to_owned(),
            copy => format!("{} in cache: {}", copy.in_words().0, copy.in_words().1),
        };
        format!("{cache}, {}", self.holding().prefix.in_words())
    }

    /// As what decides over it in a run. A copy that is not whole does not count.
    pub fn holding(&self) -> Holding {
        let FlushEntry { in_cache, replaced_by, dataset, .. } = &self.entry;
        let cache = match in_cache.survives {
            _ if !self.copy.is_whole() || in_cache.bypass => Lies::InPlace,
            _ if in_cache.is_local => Lies::Local,
            None | Some(Survives::Nodes(0)) => Lies::Weak,
            _ => Lies::Strong,
        };
        let prefix = match (self.is_in_prefix(), replaced_by) {
            (true, _) => InPrefix::whole(dataset.aggregated),
            (false, Some(_)) => InPrefix::Superseded,
            (false, None) => InPrefix::Missing,
        };
        Holding {
            id: self.entry.id,
            seq: self.entry.seq(),
            is_checkpoint: self.entry.checkpoint,
            is_output: self.entry.output,
            cache,
            prefix,
            standing: if self.copy == Copy::Refused { Standing::Refused } else { Standing::Kept },
            ..Holding::default()
        }
    }
}
