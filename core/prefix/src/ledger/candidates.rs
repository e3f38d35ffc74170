//! Which datasets to try, and in which order: what the user asked for, then the index's current one, then the newest,
//! then older ones.

use crate::{Index, IndexEntry, Seq};
use serde::{Deserialize, Serialize};

/// A dataset that may be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its place among all datasets.
    pub seq: Seq,
    /// Its name.
    pub name: Vec<u8>,
    /// Whether a newer dataset was begun and never completed, which may have been replacing files of this one.
    pub suspect: bool,
    /// Whether nobody has recorded all files that a newer one was given: what has changed since this one was complete may be its.
    /// A user who names a dataset knows better of one that C SCR wrote.
    pub by_time: bool,
    /// Whether it is output, which is read where it lies.
    pub is_output: bool,
    /// Whether its files lie in containers, and so can only be copied.
    pub aggregated: bool,
}

impl Candidate {
    /// The name for messages.
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// The checkpoints to try, the same on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidates {
    /// In the order to try them.
    pub list: Vec<Candidate>,
    /// Why what the user asked for is not among them.
    pub warning: Option<String>,
    /// Why there is none, though the index lists checkpoints.
    pub none: Option<String>,
}

impl IntoIterator for Candidates {
    type Item = Candidate;
    type IntoIter = std::vec::IntoIter<Candidate>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// The order, and nothing else.
pub fn in_order(index: &Index, wanted: Option<&[u8]>) -> Candidates {
    let (all, newest) = (index.candidates(), Newest::of(index));
    let mut list: Vec<Candidate> = Vec::new();
    let mut push = |entry: &IndexEntry| {
        if list.iter().all(|other| other.seq.id != entry.id) {
            list.push(newest.candidate(entry, wanted == Some(&*entry.name)));
        }
    };
    let wanted_entry = wanted.and_then(|name| all.iter().find(|entry| entry.name == name));
    wanted_entry.into_iter().for_each(&mut push);
    all.iter().filter(|entry| entry.current).for_each(&mut push);
    all.iter().for_each(&mut push);
    let warning = match (wanted, wanted_entry) {
        (Some(name), None) => Some(why_not(index, name)),
        _ => None,
    };
    let none = list.is_empty().then(|| why_none(index)).flatten();
    Candidates { list, warning, none }
}

/// The output of this name, if it is complete.
pub fn output(index: &Index, name: &[u8]) -> Option<Candidate> {
    let entry = index.id_of(name).and_then(|id| index.entry(id));
    let output = entry.filter(|entry| entry.is_valid() && !entry.is_checkpoint())?;
    Some(Newest::of(index).candidate(&output, false))
}

/// The newest datasets of an index that cast doubt on older ones.
struct Newest {
    begun: Option<Seq>,
    begun_unrecorded: Option<Seq>,
    /// That scr has written. It may have files that the application had removed before: none was there to be recorded as written
    /// over.
    complete: Option<Seq>,
}

impl Newest {
    fn of(index: &Index) -> Self {
        let entries = index.entries();
        let complete = entries.iter().filter(|entry| entry.complete && entry.is_of_scr());
        Self {
            begun: index.last_begun(),
            begun_unrecorded: index.last_begun_unrecorded(),
            complete: complete.map(IndexEntry::seq).max(),
        }
    }

    fn candidate(&self, entry: &IndexEntry, is_wanted: bool) -> Candidate {
        let (seq, name, is_output) = (entry.seq(), entry.name.clone(), !entry.is_checkpoint());
        let by_time = is_suspect(self.complete, seq) || !is_wanted && is_suspect(self.begun_unrecorded, seq);
        let aggregated = entry.dataset.as_ref().is_some_and(|dataset| dataset.aggregated);
        Candidate { seq, name, suspect: is_suspect(self.begun, seq), by_time, is_output, aggregated }
    }
}

/// Whether a newer dataset was begun and never completed, which may have been replacing files of the one at `seq`.
pub fn is_suspect(last_begun: Option<Seq>, seq: Seq) -> bool {
    last_begun.is_some_and(|begun| begun > seq)
}

fn why_not(index: &Index, name: &[u8]) -> String {
    let shown = String::from_utf8_lossy(name);
    let entry = index.id_of(name).and_then(|id| index.entry(id));
    let why = entry.map(|entry| what_is_wrong(&entry));
    let why = why.unwrap_or_else(|| "the index has no dataset of that name".to_owned());
    format!("SCR_CURRENT names {shown}, which cannot be fetched: {why}")
}

/// The message of a run that starts fresh, on the checkpoints that exist: the newest ones, each with its reason.
fn why_none(index: &Index) -> Option<String> {
    let mut left = index.entries();
    left.retain(|entry| !entry.superseded && entry.is_checkpoint());
    let reason =
        |entry: &IndexEntry| format!("`{}': {}", String::from_utf8_lossy(&entry.name), what_is_wrong(entry));
    let mut reasons: Vec<_> = left.iter().take(MOST_REASONS).map(reason).collect();
    if left.len() > MOST_REASONS {
        reasons.push(format!("and {} more", left.len() - MOST_REASONS));
    }
    (!left.is_empty()).then(|| format!("no checkpoint in the index can be fetched: {}", reasons.join("; ")))
}

const MOST_REASONS: usize = 3;

/// Why a job does not restart from a dataset that is no candidate.
fn what_is_wrong(entry: &IndexEntry) -> String {
    match entry {
        IndexEntry { failed: Some(time), .. } => {
            format!("it was marked as failed on {time}, being damaged or given up as unusable")
        }
        entry if !entry.complete => "it is not complete".to_owned(),
        _ => "it is not a checkpoint".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::ChangeIndex as _;
    use crate::DatasetDescriptor;

    fn index(datasets: &[(u64, &str)]) -> Index {
        let mut index = Index::new();
        for &(id, name) in datasets {
            let name = name.as_bytes().to_vec();
            let dataset = DatasetDescriptor { id, name, checkpoint: true, ..DatasetDescriptor::default() };
            index.record(&dataset, true);
        }
        index
    }

    fn names(index: &Index, wanted: Option<&str>) -> Vec<String> {
        in_order(index, wanted.map(str::as_bytes)).list.iter().map(Candidate::name_text).collect()
    }

    #[test]
    fn the_wanted_then_the_current_then_the_newest_then_older_ones() {
        let mut index = index(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
        assert_eq!(names(&index, None), ["d", "c", "b", "a"]);
        index.set_current("b");
        assert_eq!(names(&index, None), ["b", "d", "c", "a"]);
        assert_eq!(names(&index, Some("a")), ["a", "b", "d", "c"]);
        assert_eq!(names(&index, Some("b")), ["b", "d", "c", "a"]);
    }

    #[test]
    fn incomplete_failed_and_output_datasets_are_skipped_with_a_message() {
        let mut index = index(&[(1, "a"), (2, "b"), (3, "c")]);
        index.set_complete(1, false);
        index.mark_failed(2, "2026-11-21T03:28:24");
        let output = DatasetDescriptor { id: 4, name: b"d".to_vec(), output: true, ..Default::default() };
        index.record(&output, true);
        assert_eq!(names(&index, None), ["c"]);
        for (name, why) in [
            ("a", "it is not complete"),
            ("b", "it was marked as failed on 2026-11-21T03:28:24, being damaged or given up as unusable"),
            ("d", "it is not a checkpoint"),
            ("e", "the index has no dataset of that name"),
        ] {
            let warning = in_order(&index, Some(name.as_bytes())).warning.unwrap();
            assert_eq!(warning, format!("SCR_CURRENT names {name}, which cannot be fetched: {why}"));
        }
    }

    /// The run that found them damaged reported it; later runs started from the beginning without a message.
    #[test]
    fn a_message_gives_the_reasons_if_no_checkpoint_can_be_fetched() {
        let mut index = index(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]);
        let none = |index: &Index| in_order(index, None).none;
        (2..=5).for_each(|id| _ = index.set_complete(id, false));
        assert_eq!(none(&index), None);
        index.mark_failed(1, "2026-11-21T03:28:24");
        let message =
            "no checkpoint in the index can be fetched: `e': it is not complete; `d': it is not complete; \
                    `c': it is not complete; and 2 more";
        assert_eq!(none(&index).as_deref(), Some(message));
        (2..=5).for_each(|id| _ = index.drop_id(id));
        assert!(none(&index).unwrap().contains("`a': it was marked as failed on 2026-11-21T03:28:24"));
        index.drop_id(1);
        let output = DatasetDescriptor { id: 9, name: b"o".to_vec(), output: true, ..Default::default() };
        index.record(&output, true);
        assert_eq!(none(&index), None);
    }
}
