//! One file of ranks of several nodes, each of which would write it in its own cache: a library that opens it on all of them, such
//! as MPI-IO, waits for ever.
//!
//! A rank that waits there makes no call in which the others could be asked. So each rank that has routed nothing for most of
//! `SCR_LATE_SECS` leaves digests of its last names at its place in `.scr/routed.<job>`, and rank 0 reads the file. A phase that
//! takes less time touches no file. Only the thread that watches does: the prefix directory may not answer.

use crate::cache::record::RankRecord;
use crate::cache::Cache;
use crate::job::Job;
use scr_base::env::{Clock, WatchStatus, Watched};
use scr_base::fs::{Files, How};
use scr_base::message::Reporter;
use scr_comm::placement::Placement;
use scr_comm::watched::Pace;
use scr_comm::Rank;
use scr_config::param;
use scr_plugin_api::held;
use scr_prefix::{FileName, FILE_MODE};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The names of an output phase, until it is dropped: all ranks have closed their files.
pub(super) struct RoutedNames(Arc<Shared>);

/// The watching thread's data on this rank.
struct Shared {
    clock: Arc<dyn Clock>,
    files: Arc<dyn Files>,
    report: Reporter,
    rank: Rank,
    nodes: Placement,
    pace: Pace,
    long: Duration,
    path: PathBuf,
    /// When the dataset was created, the same on all ranks: what other datasets have left there counts for nothing.
    created: u64,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    /// The last names, by digest, and whether this rank writes them in a folder of its own.
    names: Vec<(u64, FileName, bool)>,
    /// When there is something to do again.
    next: Duration,
    is_left: bool,
    has_said: bool,
    is_over: bool,
}

impl RoutedNames {
    /// Nothing where all ranks see the files of a dataset, or nobody wants to know.
    pub(super) fn begin(job: &Job, cache: &Cache, record: &RankRecord) -> Option<Self> {
        let placement = &cache.stores()[cache.store_index(&record.protection.store)].placement;
        let long = job.params.get(&param::LATE_SECS);
        if record.protection.bypass || placement.count() == 1 || long.is_zero() {
            return None;
        }
        let shared = Arc::new(Shared {
            clock: Arc::clone(&job.env.clock),
            files: Arc::clone(&job.env.files),
            report: job.report.clone(),
            rank: job.rank(),
            nodes: job.nodes.clone(),
            pace: Pace::of(long),
            long,
            path: job.prefix.scr_file(&format!("routed.{}", job.params.get(&param::JOB_ID))),
            created: record.dataset.created,
            state: Mutex::default(),
        });
        shared.wait_anew(&mut held(&shared.state));
        job.env.watch.add(Arc::<Shared>::clone(&shared));
        Some(Self(shared))
    }

    /// This rank has routed a file. Local.
    pub(super) fn add(&self, name: &FileName, is_own: bool) {
        let mut state = held(&self.0.state);
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        if !state.names.iter().any(|(known, ..)| *known == digest) {
            let surplus = (state.names.len() + 1).saturating_sub(NAMES);
            state.names.drain(..surplus);
            state.names.push((digest, name.clone(), is_own));
        }
        self.0.wait_anew(&mut state);
    }
}

impl Drop for RoutedNames {
    fn drop(&mut self) {
        held(&self.0.state).is_over = true;
    }
}

impl Shared {
    fn wait_anew(&self, state: &mut State) {
        state.next = self.clock.elapsed() + self.long - self.pace.short;
        state.is_left = false;
    }

    /// Leaves the names of this rank for rank 0.
    fn leave(&self, names: &[(u64, FileName, bool)]) -> io::Result<()> {
        let own = names.iter().filter(|(.., is_own)| *is_own).map(|(digest, ..)| *digest);
        let mut place = [0; BYTES];
        let (words, _) = place.as_chunks_mut();
        words
            .iter_mut()
            .zip([self.created].into_iter().chain(own))
            .for_each(|(at, word)| *at = word.to_be_bytes());
        let file = self.files.open(&self.path, How::Ensure(FILE_MODE))?;
        file.write_at(self.rank.0 as u64 * BYTES as u64, &place)
    }

    /// Two ranks with one name, and its digest.
    fn find_pair(&self) -> io::Result<Option<([Rank; 2], u64)>> {
        let ranks = self.nodes.runs().last().map_or(0, |(ranks, _)| ranks.end);
        let mut bytes = vec![0; ranks as usize * BYTES];
        self.files.open(&self.path, How::Read)?.read_at(0, &mut bytes)?;
        let mut known = HashMap::new();
        for (rank, place) in (0..).map(Rank).zip(bytes.as_chunks::<BYTES>().0) {
            let mut words = place.as_chunks().0.iter().map(|word| u64::from_be_bytes(*word));
            if words.next() != Some(self.created) {
                continue;
            }
            for digest in words.filter(|digest| *digest != 0) {
                if let Some(other) = known.insert(digest, rank) {
                    return Ok(Some(([other, rank], digest)));
                }
            }
        }
        Ok(None)
    }

    fn say(&self, ranks: [Rank; 2], name: Option<&FileName>) {
        let [one, other] = ranks.map(|rank| format!("rank {rank} on {}", self.nodes.name(rank)));
        self.report.warn(&format!(
            "{one} and {other} write {}, each in its own cache, and nothing has happened for {} s: a library that opens one file \
             on several nodes, such as MPI-IO, waits for ever there. Set SCR_CACHE_BYPASS=1, or use a STORE with GROUP=WORLD that \
             all nodes see",
            name.map_or_else(|| "one file".to_owned(), |name| format!("`{name}'")),
            self.long.as_secs(),
        ));
    }
}

impl Watched for Shared {
    /// Nothing depends on it, so errors are ignored.
    fn poll(&self) -> WatchStatus {
        let State { names, is_left, has_said, is_over, .. } = {
            let mut state = held(&self.state);
            let (now, before) = (self.clock.elapsed(), state.clone());
            if !before.is_over && now < before.next {
                return WatchStatus::UnderWay;
            }
            (state.next, state.is_left) = (now + self.pace.short, true);
            before
        };
        if is_over {
            if self.rank == Rank(0) && is_left {
                let _ = self.files.remove_file(&self.path);
            }
            return WatchStatus::Over;
        }
        if !is_left {
            let _ = self.leave(&names);
        }
        if self.rank == Rank(0) && !has_said {
            if let Ok(Some((ranks, digest))) = self.find_pair() {
                let name = names.iter().find(|(known, ..)| *known == digest).map(|(_, name, _)| name);
                held(&self.state).has_said = true;
                self.say(ranks, name);
            }
        }
        WatchStatus::UnderWay
    }
}

/// How many names a rank leaves: it opens one of the last.
const NAMES: usize = 7;
/// The room of a rank: the time of the dataset, and the digests.
const BYTES: usize = 8 * (1 + NAMES);
