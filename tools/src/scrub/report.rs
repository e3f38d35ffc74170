//! The findings: a line for each dataset, and what is wrong in full. Fields of the JSON are only ever added, unless its
//! version grows.

use super::targets::Target;
use crate::output::count;
use crate::table::Table;
use scr_base::message::amount;
use scr_ops::scrub::{Dataset, Item, Report, Verdict};
use serde::Serialize;
use serde_json::{json, Value};

/// The findings, target by target.
#[derive(Default)]
pub(super) struct ScrubReport(pub(super) Vec<(Target, Report)>);

/// How many files there are, and what is known of them.
#[derive(Default, Serialize)]
struct Totals {
    files: u64,
    bytes: u64,
    unverified: u64,
    wrong: u64,
}

/// A dataset for programs.
#[derive(Serialize)]
struct DatasetRow<'a> {
    #[serde(flatten)]
    dataset: &'a Dataset,
    #[serde(flatten)]
    totals: Totals,
}

/// The same of a file that is not known to be as recorded.
#[derive(Serialize)]
struct Finding<'a> {
    dataset: Option<u64>,
    #[serde(flatten)]
    item: &'a Item,
}

impl ScrubReport {
    /// Whether nothing is wrong.
    pub(super) fn is_intact(&self) -> bool {
        self.0.iter().all(|(_, report)| report.is_intact())
    }

    fn totals(&self) -> Totals {
        Totals::of(self.0.iter().flat_map(|(_, report)| report.items()))
    }

    /// A table for each target, what is wrong, and a last line.
    pub(super) fn text(&self) -> String {
        let mut text: String = self.0.iter().map(|(target, report)| target_text(target, report)).collect();
        text.extend(self.repairable().map(repair_text));
        let Totals { files, bytes, unverified, wrong } = self.totals();
        let all = format!("{} ({})", count(files, "file"), amount(bytes));
        text + &match (wrong, unverified) {
            (0, 0) => format!("all {all} are as they were recorded\n"),
            (0, _) => format!("nothing is wrong in {all}; {unverified} of them are unverified\n"),
            _ => format!("{wrong} of {} are wrong; {unverified} are unverified\n", count(files, "file")),
        }
    }

    /// The datasets of prefix directories that are wrong there, and of which this node has intact parts in cache.
    fn repairable(&self) -> impl Iterator<Item = &Dataset> {
        let in_places = |kind: &'static str| {
            let places = self.0.iter().filter(move |(target, _)| target.kind() == kind);
            places.flat_map(|(_, report)| &report.datasets)
        };
        let is_wrong = |dataset: &Dataset| Totals::of(&dataset.items).wrong > 0;
        let is_intact_in_cache = move |wanted: &Dataset| {
            let is_it = |cached: &&Dataset| (cached.id, &cached.name) == (wanted.id, &wanted.name);
            in_places("cache").find(is_it).is_some_and(|cached| !is_wrong(cached))
        };
        in_places("prefix").filter(move |dataset| is_wrong(dataset) && is_intact_in_cache(dataset))
    }

    pub(super) fn json(&self) -> Value {
        let dataset = |dataset| DatasetRow { dataset, totals: Totals::of(&dataset.items) };
        let places = self.0.iter().map(|(target, report)| {
            json!({
                "kind": target.kind(),
                "path": target.path().display().to_string(),
                "datasets": report.datasets.iter().map(dataset).collect::<Vec<_>>(),
                "findings": suspects(report).map(|(dataset, item)| Finding { dataset, item }).collect::<Vec<_>>(),
            })
        });
        let mut all = json!(self.totals());
        all["intact"] = self.is_intact().into();
        all["places"] = places.collect();
        all
    }
}

impl Totals {
    fn of<'a>(items: impl IntoIterator<Item = &'a Item>) -> Self {
        items.into_iter().fold(Self::default(), |sum, item| Self {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(item.bytes),
            unverified: sum.unverified + u64::from(matches!(item.verdict, Verdict::Unverified { .. })),
            wrong: sum.wrong + u64::from(matches!(item.verdict, Verdict::Wrong { .. })),
        })
    }
}

/// The files that are not known to be as recorded, with the dataset that they belong to.
fn suspects(report: &Report) -> impl Iterator<Item = (Option<u64>, &Item)> {
    let of_datasets = report
        .datasets
        .iter()
        .flat_map(|dataset| dataset.items.iter().map(move |item| (Some(dataset.id), item)));
    let general = report.general.iter().map(|item| (None, item));
    general.chain(of_datasets).filter(|(_, item)| item.verdict != Verdict::Intact)
}

fn target_text(target: &Target, report: &Report) -> String {
    let mut text = format!("{target}\n");
    if report.datasets.is_empty() && suspects(report).next().is_none() {
        return text + "no datasets\n\n";
    }
    let row = |Dataset { id, name, state, items }: &Dataset| {
        let name = if name.is_empty() { "-" } else { name };
        let Totals { files, bytes, unverified, wrong } = Totals::of(items);
        let [id, files, unverified, wrong] = [*id, files, unverified, wrong].map(|number| number.to_string());
        [id, name.to_owned(), state.clone(), files, amount(bytes), unverified, wrong]
    };
    let head = ["DATASET", "NAME", "STATE", "FILES", "SIZE", "UNVERIFIED", "WRONG"];
    text += &Table::of(&head, report.datasets.iter().map(row)).text();
    text.extend(suspects(report).filter_map(|(id, item)| wrong_text(id, item)));
    text + &unverified_text(report) + "\n"
}

fn wrong_text(dataset: Option<u64>, item: &Item) -> Option<String> {
    let Verdict::Wrong { found, now } = &item.verdict else { return None };
    let owner = match (dataset, item.rank) {
        (Some(id), Some(rank)) => format!("dataset {id}, rank {rank}: "),
        (Some(id), None) => format!("dataset {id}: "),
        (None, _) => String::new(),
    };
    Some(format!("wrong: {owner}{found}; {now}\n"))
}

fn repair_text(dataset: &Dataset) -> String {
    format!(
        "this node has dataset {id} `{}' in cache: to repair it, remove the files that are wrong, run `scr copy --id {id}' on each \
         node of the job, and then `scr index --build {id}'\n",
        dataset.name,
        id = dataset.id
    )
}

/// There may be very many unverified files, for the same few reasons.
fn unverified_text(report: &Report) -> String {
    let mut reasons: Vec<(&str, u64)> = Vec::new();
    for (_, item) in suspects(report) {
        let Verdict::Unverified { why } = &item.verdict else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, number)) => *number += 1,
            None => reasons.push((why, 1)),
        }
    }
    reasons
        .into_iter()
        .map(|(why, number)| format!("unverified: {}, {why}\n", count(number, "file")))
        .collect()
}
