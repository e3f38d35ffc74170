//! What was found: a line per dataset, and what is wrong in full. Fields of the JSON are only ever added, unless its
//! version grows.

use super::places::Place;
use crate::output::{columns, JSON_VERSION};
use scr_core::scrub::{Dataset, Item, ItemKind, Report, Verdict};
use serde::Serialize;

/// What was found in all places.
#[derive(Serialize)]
pub(super) struct ScrubReport {
    version: u32,
    /// Whether nothing is wrong.
    pub(super) sound: bool,
    files: u64,
    bytes: u64,
    unverified: u64,
    wrong: u64,
    places: Vec<PlaceReport>,
}

#[derive(Serialize)]
struct PlaceReport {
    kind: &'static str,
    path: String,
    datasets: Vec<DatasetReport>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct DatasetReport {
    id: u64,
    name: String,
    state: String,
    files: u64,
    bytes: u64,
    unverified: u64,
    wrong: u64,
}

/// A file that is not known to be as recorded.
#[derive(Serialize)]
struct Finding {
    verdict: &'static str,
    dataset: Option<u64>,
    rank: Option<u32>,
    kind: &'static str,
    path: String,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

/// The answer where there is none.
#[derive(Serialize)]
pub(super) struct ErrorReport {
    version: u32,
    error: String,
}

impl ErrorReport {
    pub(super) fn new(error: &anyhow::Error) -> Self {
        Self { version: JSON_VERSION, error: format!("{error:#}") }
    }
}

impl ScrubReport {
    pub(super) fn new() -> Self {
        Self {
            version: JSON_VERSION,
            sound: true,
            files: 0,
            bytes: 0,
            unverified: 0,
            wrong: 0,
            places: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, place: &Place, report: &Report) {
        self.sound &= report.is_sound();
        for item in report.items() {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(item.bytes);
            self.unverified += u64::from(is_unverified(item));
            self.wrong += u64::from(is_wrong(item));
        }
        let of_datasets = report
            .datasets
            .iter()
            .flat_map(|dataset| dataset.items.iter().map(move |item| (Some(dataset.id), item)));
        let general = report.general.iter().map(|item| (None, item));
        self.places.push(PlaceReport {
            kind: place.kind(),
            path: place.path().display().to_string(),
            datasets: report.datasets.iter().map(DatasetReport::new).collect(),
            findings: general.chain(of_datasets).filter_map(|(id, item)| Finding::new(id, item)).collect(),
        });
    }

    /// A table per place, what is wrong, and a last line.
    pub(super) fn in_words(&self) -> String {
        let mut text: String = self.places.iter().map(PlaceReport::in_words).collect();
        let (files, bytes, unverified, wrong) = (self.files, self.bytes, self.unverified, self.wrong);
        text += &match (wrong, unverified) {
            (0, 0) => format!("all {files} files ({bytes} bytes) are as they were recorded\n"),
            (0, _) => format!(
                "nothing is wrong in {files} files ({bytes} bytes); {unverified} of them are unverified\n"
            ),
            _ => format!("{wrong} of {files} files are wrong; {unverified} are unverified\n"),
        };
        text
    }
}

impl PlaceReport {
    fn in_words(&self) -> String {
        let mut text = format!("{} {}\n", self.kind, self.path);
        if self.datasets.is_empty() && self.findings.is_empty() {
            return text + "no datasets\n\n";
        }
        let heads = ["DATASET", "NAME", "STATE", "FILES", "BYTES", "UNVERIFIED", "WRONG"];
        let mut rows = vec![heads.map(str::to_owned)];
        rows.extend(self.datasets.iter().map(DatasetReport::row));
        text += &columns(&rows);
        for finding in self.findings.iter().filter(|finding| finding.verdict == WRONG) {
            text += &finding.in_words();
        }
        text += &self.unverified_in_words();
        text + "\n"
    }

    /// There may be very many of them, for the same few reasons.
    fn unverified_in_words(&self) -> String {
        let mut reasons: Vec<(&str, u64)> = Vec::new();
        for finding in self.findings.iter().filter(|finding| finding.verdict == UNVERIFIED) {
            match reasons.iter_mut().find(|(why, _)| *why == finding.found) {
                Some((_, count)) => *count += 1,
                None => reasons.push((&finding.found, 1)),
            }
        }
        reasons.into_iter().map(|(why, count)| format!("unverified: {count} files, {why}\n")).collect()
    }
}

impl DatasetReport {
    fn new(dataset: &Dataset) -> Self {
        let count =
            |wanted: fn(&Item) -> bool| dataset.items.iter().filter(|item| wanted(item)).count() as u64;
        Self {
            id: dataset.id,
            name: dataset.name.clone(),
            state: dataset.state.clone(),
            files: dataset.items.len() as u64,
            bytes: dataset.items.iter().fold(0, |sum, item| sum.saturating_add(item.bytes)),
            unverified: count(is_unverified),
            wrong: count(is_wrong),
        }
    }

    fn row(&self) -> [String; 7] {
        let name = if self.name.is_empty() { "-".to_owned() } else { self.name.clone() };
        let [files, bytes, unverified, wrong] =
            [self.files, self.bytes, self.unverified, self.wrong].map(|number| number.to_string());
        [self.id.to_string(), name, self.state.clone(), files, bytes, unverified, wrong]
    }
}

impl Finding {
    fn new(dataset: Option<u64>, item: &Item) -> Option<Self> {
        let (verdict, found, now) = match &item.verdict {
            Verdict::Sound => return None,
            Verdict::Unverified { why } => (UNVERIFIED, why.clone(), None),
            Verdict::Wrong { found, now } => (WRONG, found.clone(), Some(now.clone())),
        };
        let path = item.path.display().to_string();
        Some(Self { verdict, dataset, rank: item.rank, kind: kind(item.kind), path, found, now })
    }

    fn in_words(&self) -> String {
        let owner = match (self.dataset, self.rank) {
            (Some(id), Some(rank)) => format!("dataset {id}, rank {rank}: "),
            (Some(id), None) => format!("dataset {id}: "),
            (None, _) => String::new(),
        };
        let now = self.now.as_deref().unwrap_or_default();
        format!("wrong: {owner}{}; {now}\n", self.found)
    }
}

fn is_wrong(item: &Item) -> bool {
    matches!(item.verdict, Verdict::Wrong { .. })
}

fn is_unverified(item: &Item) -> bool {
    matches!(item.verdict, Verdict::Unverified { .. })
}

fn kind(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Data => "data",
        ItemKind::Redundancy => "redundancy",
        ItemKind::Filemap => "filemap",
        ItemKind::Index => "index",
        ItemKind::Summary => "summary",
        ItemKind::FileList => "file list",
    }
}

const WRONG: &str = "wrong";
const UNVERIFIED: &str = "unverified";
