//! `scr inspect`, and `scr_inspect`: which datasets in the caches of the nodes can be made whole, before a job is started again
//! or its datasets are saved. Nothing is changed.
//!
//! Exit codes: 0 there is a checkpoint that a job can restart from, 1 there is none or that is not known, 2 an error.

use crate::copy::Caches;
use crate::machine::{asked, command_here, nodes_with_data, own_names, print_answer, Allocation, Limit};
use crate::prelude::*;
use crate::run::{JobContext, PlacedJob};
use scr_ops::{holdings, inspect, Copy, Found, Held, Inspected, Inventory};
use scr_prefix::{DatasetDescriptor, OtherRun};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Which nodes to ask.
#[derive(Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    place: PlacedJob,
    /// The nodes of the job [default: those of the allocation]
    #[arg(short, long, value_name = "NODES")]
    jobset: Option<String>,
    /// Ask only these nodes
    #[arg(short, long, value_name = "NODES", conflicts_with = "down")]
    up: Option<String>,
    /// Do not ask these nodes
    #[arg(short, long, value_name = "NODES")]
    down: Option<String>,
    /// A cache directory of the job, `<base>/<user>/scr.<allocation>`; may be repeated [default: those of this allocation]
    #[arg(long, value_name = "DIR")]
    cache: Vec<PathBuf>,
    /// Print as C SCR does: one line with the ids of the datasets that can be rebuilt, the newest first. Exit with 1 if there is
    /// none. The control directory that C SCR needs is not read
    #[arg(short, long, value_name = "DIR", conflicts_with = "json")]
    from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print what this node has, for the command on another node
    #[arg(long, hide = true)]
    node: bool,
}

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<Answer> {
    if args.node {
        return print_answer(&own_inventory(args)?);
    }
    let named = args.up.as_ref().or(args.jobset.as_ref());
    let named = named.map(|nodes| hostlist::expand(nodes)).transpose()?;
    let job = JobContext::on(&args.place.job(), named, true)?;
    let (nodes, Answers { inventories, silent }) = of_nodes(args, &job)?;
    let found = inspect(inventories.into_values().collect(), &environment::plugin_host(&job.env));
    if args.from.is_some() {
        return print_ids(&found);
    }
    let why = first_silent(&silent);
    let rows: Vec<_> = found.iter().map(|found| Row::of(found, why.as_deref())).collect();
    let rows = [rows, not_seen(&job, &found, why.as_deref())].concat();
    job.prefix.take_notes().iter().for_each(warn);
    let can_restart = found.iter().any(|found| found.dataset.checkpoint && found.is_whole());
    let json = json!({ "datasets": rows, "silent": silent_json(&silent) });
    show(args.json, json, text(&rows, &nodes, why.as_deref()), can_restart)
}

/// The output of C SCR.
fn print_ids(found: &[Inspected]) -> Result<Answer> {
    let whole = found.iter().filter(|found| found.is_whole());
    let mut ids: Vec<_> = whole.map(|found| found.dataset.id).collect();
    ids.sort_unstable_by_key(|&id| Reverse(id));
    print_line(Some(joined(ids, " ")))
}

/// The inventory of this machine.
fn own_inventory(args: &InspectArgs) -> Result<Inventory> {
    let (mut env, params, _) = args.place.job().environment()?;
    let prefix = environment::prefix(&mut env, None)?;
    let caches = Caches::find(&env, &params, &args.cache)?;
    let mut inventory = Inventory::take(&*env.files, &prefix, &caches.found, caches.refused)
        .or_cannot("read", prefix.dir())?;
    let descriptors = environment::descriptors(&params)?;
    inventory.measure_room(&*env.files, descriptors.enabled().map(|store| store.path.as_path()));
    let (begun, node) = (OtherRun::begun(&*env.files, &prefix).into_iter(), params.get(&param::NODE_NAME));
    let living = begun.filter(|run| run.lives_on(&*env.files, &prefix, &node));
    inventory.runs = living.map(|run| run.line).collect();
    Ok(inventory)
}

/// What nodes have said.
#[derive(Default)]
pub(crate) struct Answers {
    /// Those that have answered.
    pub(crate) inventories: BTreeMap<String, Inventory>,
    /// Those of which it is not known what they have, or not all of it, and why.
    pub(crate) silent: Vec<(String, String)>,
}

/// One of the nodes that have not said what they have, and why.
pub(crate) fn first_silent(silent: &[(String, String)]) -> Option<String> {
    let ((node, why), others) = silent.split_first()?;
    let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Some(format!("{node}{others} {why}"))
}

/// The same for programs.
pub(crate) fn silent_json(silent: &[(String, String)]) -> Value {
    silent.iter().map(|(node, why)| json!({ "node": node, "why": why })).collect()
}

/// Asks the nodes of the job, and names them.
fn of_nodes(args: &InspectArgs, job: &JobContext) -> Result<(Vec<String>, Answers)> {
    let allocation = &job.allocation;
    let nodes = match args.up.is_some() || args.jobset.is_some() {
        true => allocation.nodes.clone(),
        false => nodes_with_data(allocation, job.params.get(&param::NODE_NAME)),
    };
    let mut down = hostlist::expand(args.down.as_deref().unwrap_or_default())?;
    if !allocation.is_here_alone() {
        down = own_names(down, "--down", allocation);
    }
    let nodes: Vec<_> = nodes.into_iter().filter(|node| hostlist::find(node, &down).is_none()).collect();
    let answers = ask(allocation, &nodes, &args.cache, TIMEOUT)?;
    for (node, inventory) in &answers.inventories {
        inventory.unread.iter().for_each(|line| warn(format_args!("node {node}: {line}")));
    }
    for (node, why) in answers.silent.iter().filter(|(node, _)| !answers.inventories.contains_key(node)) {
        ensure!(!allocation.is_here_alone(), "{why}");
        warn(format_args!("it is not known what node {node} has: it {why}"));
    }
    Ok((nodes, answers))
}

/// Asks nodes for their inventories.
///
/// # Errors
/// No node can be asked.
pub(crate) fn ask(
    allocation: &Allocation,
    nodes: &[String],
    caches: &[PathBuf],
    limit: Duration,
) -> Result<Answers> {
    let mut command = command_here(&["inspect", "--node", "--prefix", &allocation.prefix])?;
    for cache in caches {
        let cache = cache.to_str().context("the name of a cache directory is not UTF-8")?;
        command.extend(["--cache".to_owned(), cache.to_owned()]);
    }
    let mut answers = Answers::default();
    for (node, answer) in nodes.iter().zip(allocation.on_nodes().run(nodes, &command, Limit::Total(limit))) {
        let found =
            answer.map_err(|error| format!("{error:#}")).and_then(|finished| finished.answer::<Inventory>());
        let why = match &found {
            Ok(found) => found.unread.first().map(|why| format!("could not read all: {why}")),
            Err(why) => Some(match why.strip_prefix("scr: ") {
                Some(said) => format!("could not look: {said}"),
                None => format!("did not answer: {why}"),
            }),
        };
        answers.silent.extend(why.map(|why| (node.clone(), why)));
        answers.inventories.extend(found.ok().map(|found| (node.clone(), found)));
    }
    Ok(answers)
}

/// What is said of a dataset.
#[derive(Clone, Default, Serialize)]
struct Row {
    id: u64,
    name: String,
    checkpoint: bool,
    ranks: Option<u32>,
    /// `None`: not known.
    lost: Option<Vec<u32>>,
    local: bool,
    /// Whether its files lie in the prefix directory, and a record of them alone in cache.
    bypass: bool,
    recoverable: bool,
    /// Whether anybody can say that.
    known: bool,
    why: Option<String>,
}

impl Row {
    /// A dataset of which nodes have parts, where some have said nothing: if it is not whole, nobody knows.
    fn of(found: &Inspected, silent: Option<&str>) -> Self {
        let silent = silent.filter(|_| !found.is_whole() && !found.is_refused).map(str::to_owned);
        Self {
            lost: Some(found.lost.clone()),
            local: found.kept.is_local,
            bypass: found.kept.bypass,
            recoverable: found.is_whole(),
            known: silent.is_none() && found.unknown.is_none(),
            why: silent.or_else(|| found.unknown.clone()).or_else(|| found.kept.damage.clone()),
            ..Self::unknown(&found.dataset, None)
        }
    }

    fn unknown(dataset: &DatasetDescriptor, why: Option<String>) -> Self {
        let name = dataset.name_text();
        let DatasetDescriptor { id, checkpoint, ranks, .. } = *dataset;
        Self { id, name, checkpoint, ranks, why, ..Self::default() }
    }

    fn state(&self) -> String {
        match (&self.why, &self.lost) {
            (Some(why), _) => format!("{}: {why}", if self.known { "lost" } else { "not known" }),
            (None, Some(lost)) if !lost.is_empty() => "can be rebuilt".to_owned(),
            _ if self.local => "whole, local".to_owned(),
            _ if self.bypass => "whole, in the prefix directory".to_owned(),
            _ => "whole".to_owned(),
        }
    }
}

/// The datasets that the job has recorded, that no node has shown, and that may be there.
fn not_seen(job: &JobContext, found: &[Inspected], silent: Option<&str>) -> Vec<Row> {
    let (files, prefix) = (&*job.env.files, &job.prefix);
    let (user, job_id) = (&*job.params.get(&param::USER_NAME), &*job.allocation.job_id);
    // Without a record there is nothing to compare with.
    let listed = FlushFile::read(files, prefix).unwrap_or_default();
    let index = LedgerDir::new(files, prefix).index_as_it_is().ok();
    let found_there = Some(Found { datasets: found, user, job_id, silent });
    let all = holdings(files, prefix, &listed, index.as_ref(), found_there);
    let is_seen = |held: &Held| found.iter().any(|found| found.dataset.id == held.entry.id);
    let row = |held: &Held| match &held.copy {
        Copy::Unknown(why) if !is_seen(held) => Some(Row::unknown(&held.entry, Some(why.clone()))),
        _ => None,
    };
    all.iter().filter_map(row).collect()
}

fn text(rows: &[Row], nodes: &[String], silent: Option<&str>) -> String {
    let row = |row: &Row| {
        let lost = row.lost.as_ref().map_or_else(|| "-".to_owned(), |lost| lost.len().to_string());
        [row.id.to_string(), row.name.clone(), row.ranks.unwrap_or(0).to_string(), lost, row.state()]
    };
    match silent {
        Some(why) if rows.is_empty() => {
            format!("it is not known what is in cache: {} ({})\n", on_one_line(why), asked(nodes))
        }
        None if rows.is_empty() => format!("no dataset is in cache ({})\n", asked(nodes)),
        _ => Table::of(&["DATASET", "NAME", "RANKS", "LOST", "STATE"], rows.iter().map(row)).text(),
    }
}

/// How long a node may take to look at its caches.
const TIMEOUT: Duration = Duration::from_secs(120);
