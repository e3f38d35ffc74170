//! `scr inspect`, and `scr_inspect`: which datasets in the caches of the nodes can be made whole, before a job is started again
//! or its datasets are saved. Nothing is changed.
//!
//! Exit codes: 0 there is a checkpoint that a job can restart from, 1 there is none, 2 an error.

use crate::copy::Caches;
use crate::machine::{
    asked, command_here, nodes_with_data, own_names, print_answer, Allocation, Finished, Limit,
};

use crate::prelude::*;
use crate::run::{JobArgs, JobContext};
use scr_ops::{inspect, Inspected, Inventory};
use std::cmp::Reverse;

/// Which nodes to ask.
#[derive(Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    job: JobArgs,
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
        return print_answer(&own_inventory(args)?.to_line());
    }
    let named = args.up.as_ref().or(args.jobset.as_ref());
    let job = JobContext::on(&args.job, named.map(|nodes| hostlist::expand(nodes)).transpose()?)?;
    let (asked, inventories) = of_nodes(args, &job)?;
    let is_all = inventories.len() == asked.len() && inventories.iter().all(|one| one.unread.is_empty());
    let found = inspect(inventories, &environment::plugin_host(&job.env));
    if args.from.is_some() {
        return print_ids(&found);
    }
    let can_restart = found.iter().any(|found| found.dataset.checkpoint && found.is_whole());
    let json = json!({ "datasets": found.iter().map(row).collect::<Vec<_>>() });
    show(args.json, json, text(&found, &asked, is_all), can_restart)
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
    let (mut env, params, _) = args.job.environment()?;
    let prefix = environment::prefix(&mut env, None)?;
    let caches = Caches::find(&env, &params, &args.cache)?;
    let mut inventory = Inventory::take(&*env.files, &prefix, &caches.found, caches.refused)
        .or_cannot("read", prefix.dir())?;
    let descriptors = environment::descriptors(&params)?;
    inventory.measure_room(&*env.files, descriptors.enabled().map(|store| store.path.as_path()));
    Ok(inventory)
}

/// The nodes that are asked, and the inventories of those that answer. Parts on the others count as lost.
fn of_nodes(args: &InspectArgs, job: &JobContext) -> Result<(Vec<String>, Vec<Inventory>)> {
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
    let mut inventories = Vec::new();
    for (node, answer) in nodes.iter().zip(ask(allocation, &nodes, &args.cache, TIMEOUT)?) {
        match answer {
            Ok(inventory) => {
                inventory.unread.iter().for_each(|line| warn(format_args!("node {node}: {line}")));
                inventories.push(inventory);
            }
            Err(why) if allocation.is_here_alone() => bail!("{why}"),
            Err(why) => warn(format_args!("what a node has counts as lost: node {node}: {why}")),
        }
    }
    Ok((nodes, inventories))
}

/// Asks nodes for their inventories. Each gives its own, or the reason why it has not answered.
///
/// # Errors
/// No node can be asked.
pub(crate) fn ask(
    allocation: &Allocation,
    nodes: &[String],
    caches: &[PathBuf],
    limit: Duration,
) -> Result<Vec<Result<Inventory, String>>> {
    let mut command = command_here(&["inspect", "--node", "--prefix", &allocation.prefix])?;
    for cache in caches {
        let cache = cache.to_str().context("the name of a cache directory is not UTF-8")?;
        command.extend(["--cache".to_owned(), cache.to_owned()]);
    }
    let answers = allocation.on_nodes().run(nodes, &command, Limit::Total(limit));
    let inventory = |answer: Result<Finished>| {
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        Inventory::from_line(&answer.answer::<String>()?).ok_or_else(|| answer.failure())
    };
    Ok(answers.into_iter().map(inventory).collect())
}

fn text(found: &[Inspected], nodes: &[String], is_all: bool) -> String {
    if found.is_empty() {
        let what = if is_all { "is in cache" } else { "was found, but not all caches could be read" };
        return format!("no dataset {what} ({})\n", asked(nodes));
    }
    let row = |found: &Inspected| {
        let state = match (&found.kept.damage, found.lost.is_empty()) {
            (Some(why), _) => format!("lost: {why}"),
            (None, true) if found.kept.is_local => "whole, local".to_owned(),
            (None, true) => "whole".to_owned(),
            (None, false) => "can be rebuilt".to_owned(),
        };
        let name = String::from_utf8_lossy(&found.dataset.name).into_owned();
        let (id, ranks, lost) = (found.dataset.id, found.dataset.ranks.unwrap_or(0), found.lost.len());
        [id.to_string(), name, ranks.to_string(), lost.to_string(), state]
    };
    Table::of(&["DATASET", "NAME", "RANKS", "LOST", "STATE"], found.iter().map(row)).text()
}

fn row(found: &Inspected) -> Value {
    json!({
        "id": found.dataset.id,
        "name": String::from_utf8_lossy(&found.dataset.name),
        "checkpoint": found.dataset.checkpoint,
        "ranks": found.dataset.ranks,
        "lost": found.lost,
        "local": found.kept.is_local,
        "recoverable": found.is_whole(),
        "why": found.kept.damage,
    })
}

/// How long a node may take to look at its caches.
const TIMEOUT: Duration = Duration::from_secs(120);
