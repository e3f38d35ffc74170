//! Answers for scripts that start jobs by themselves: the v1.1 manual's `scr_env`, `scr_list_down_nodes`,
//! `scr_retries_halt` and `scr_glob_hosts`.

use super::{JobArgs, JobContext};
use crate::environment;
use crate::machine::health::{bad_nodes, BadNode};
use crate::machine::hostlist;
use crate::output::{print, warn, Answer};
use crate::table::Table;
use anyhow::{Context, Result};
use clap::Args;
use scr_core::param;
use scr_core::prefix::{Halt, Nodes, Prefix};
use std::time::UNIX_EPOCH;

/// Stands under the help text of `scr env`.
pub(crate) const ENV_CODES: &str = "Exit codes: 0 printed, 1 not known, 2 error.";
/// Stands under the help text of `scr list-down-nodes`.
pub(crate) const DOWN_CODES: &str = "Exit codes: 0 there are such nodes, 1 there are none, 2 error.";
/// Stands under the help text of `scr retries-halt`.
pub(crate) const HALT_CODES: &str = "Exit codes: 0 the job should halt, 1 it may be started, 2 error.";
/// Stands under the help text of `scr glob-hosts`.
pub(crate) const HOSTS_CODES: &str = "Exit codes: 0 done, 1 there is no such node, 2 error.";

/// What to print about the allocation.
#[derive(Args)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    what: EnvWhat,
}

/// Without any: all that is known, as a table.
#[derive(Args)]
#[group(multiple = false)]
struct EnvWhat {
    /// Print the user name
    #[arg(long)]
    user: bool,
    /// Print the id of the allocation
    #[arg(long)]
    jobid: bool,
    /// Print the nodes of the allocation
    #[arg(long)]
    nodes: bool,
    /// Print the nodes that are down, excluded, or fail their check
    #[arg(long)]
    down: bool,
    /// Print how many nodes the last run used
    #[arg(long)]
    runnodes: bool,
    /// Print when the allocation ends, in seconds since the epoch
    #[arg(long)]
    endtime: bool,
}

/// `scr env`.
pub(crate) fn env(args: &EnvArgs) -> Result<Answer> {
    let job = JobContext::of(&args.job)?;
    let what = &args.what;
    let one = |text: Option<String>| -> Result<Answer> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Answer::No) };
        print(format!("{text}\n"))?;
        Ok(Answer::Yes)
    };
    let nodes = || hostlist::compress(&job.allocation.nodes);
    let end = || job.allocation.end_time.map(|end| end.to_string());
    let user = || job.params.get(&param::USER_NAME);
    let last = || -> Result<Option<String>> {
        let prefix = Prefix::new(job.params.get(&param::PREFIX));
        Ok(Nodes::read(&*job.env.files, &prefix)?.map(|nodes| nodes.0.to_string()))
    };
    match what {
        EnvWhat { user: true, .. } => one(Some(user())),
        EnvWhat { jobid: true, .. } => one(Some(job.allocation.job_id.clone())),
        EnvWhat { nodes: true, .. } => one(Some(nodes())),
        EnvWhat { down: true, .. } => {
            let nodes: Vec<_> = bad(&job)?.into_iter().map(|bad| bad.node).collect();
            one(Some(hostlist::compress(&nodes)))
        }
        EnvWhat { runnodes: true, .. } => one(last()?),
        EnvWhat { endtime: true, .. } => one(end()),
        _ => {
            let or_none =
                |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("-".to_owned());
            let mut table = Table::default();
            [
                ["resource manager".to_owned(), job.allocation.manager().to_owned()],
                ["user".to_owned(), user()],
                ["job id".to_owned(), job.allocation.job_id.clone()],
                ["nodes".to_owned(), or_none(Some(nodes()))],
                ["nodes of the last run".to_owned(), or_none(last()?)],
                ["end of the allocation".to_owned(), or_none(end())],
                ["prefix directory".to_owned(), job.params.get(&param::PREFIX).display().to_string()],
            ]
            .into_iter()
            .for_each(|row| table.row(row));
            print(table.text())?;
            Ok(Answer::Yes)
        }
    }
}

/// How to list nodes.
#[derive(Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Say why, for each node
    #[arg(short, long)]
    reason: bool,
}

/// `scr list-down-nodes`.
pub(crate) fn list_down_nodes(args: &DownArgs) -> Result<Answer> {
    let bad = bad(&JobContext::of(&args.job)?)?;
    if args.reason {
        let mut table = Table::default();
        bad.iter().for_each(|bad| table.row([&bad.node, &bad.why]));
        print(table.text())?;
    } else if !bad.is_empty() {
        let nodes: Vec<_> = bad.iter().map(|bad| bad.node.clone()).collect();
        print(format!("{}\n", hostlist::compress(&nodes)))?;
    }
    Ok(Answer::from(!bad.is_empty()))
}

pub(super) fn bad(job: &JobContext) -> Result<Vec<BadNode>> {
    bad_nodes(&job.allocation, &job.params, &[], &mut |message| warn(message))
}

/// Which job.
#[derive(Args)]
pub(crate) struct RetriesHaltArgs {
    #[command(flatten)]
    job: JobArgs,
}

/// `scr retries-halt`.
pub(crate) fn retries_halt(args: &RetriesHaltArgs) -> Result<Answer> {
    let (env, _) = args.job.environment()?;
    let params = environment::params(&env);
    let prefix = Prefix::new(params.get(&param::PREFIX));
    let halt = Halt::in_force(&*env.files, &prefix, params.get(&param::HALT_SECONDS))?;
    let now = env.clock.now().duration_since(UNIX_EPOCH)?.as_secs();
    let end = params.get(&param::END_TIME).and_then(|end| i64::try_from(end).ok());
    let reason = halt.reason(i64::try_from(now)?, end);
    if let Some(reason) = &reason {
        print(format!("{reason}\n"))?;
    }
    Ok(Answer::from(reason.is_some()))
}

/// What to do with lists of nodes.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HostsArgs {
    /// Count the nodes of a list
    #[arg(long, value_name = "NODES")]
    count: Option<String>,
    /// Print the nodes of a list, one per line
    #[arg(long, value_name = "NODES")]
    expand: Option<String>,
    /// Print nodes, separated by blanks or commas, as a short list
    #[arg(long, value_name = "NODES")]
    compress: Option<String>,
    /// Print the Nth node of a list, counted from 1
    #[arg(long, num_args = 2, value_names = ["N", "NODES"])]
    nth: Option<Vec<String>>,
    /// Print the nodes of the first list that are not in the second
    #[arg(long, value_name = "NODES:NODES")]
    minus: Option<String>,
    /// Print the nodes that are in both lists
    #[arg(long, value_name = "NODES:NODES")]
    intersection: Option<String>,
}

/// `scr glob-hosts`.
pub(crate) fn glob_hosts(args: &HostsArgs) -> Result<Answer> {
    let nodes = match args {
        HostsArgs { count: Some(list), .. } => {
            print(format!("{}\n", hostlist::expand(list)?.len()))?;
            return Ok(Answer::Yes);
        }
        HostsArgs { expand: Some(list), .. } => {
            print(hostlist::expand(list)?.iter().map(|node| format!("{node}\n")).collect::<String>())?;
            return Ok(Answer::Yes);
        }
        HostsArgs { nth: Some(words), .. } => nth(words)?,
        HostsArgs { compress: Some(list), .. } => hostlist::expand(list)?,
        HostsArgs { minus: Some(lists), .. } => of_two(lists, false)?,
        HostsArgs { intersection: Some(lists), .. } => of_two(lists, true)?,
        _ => Vec::new(),
    };
    if nodes.is_empty() {
        return Ok(Answer::No);
    }
    print(format!("{}\n", hostlist::compress(&nodes)))?;
    Ok(Answer::Yes)
}

fn nth(words: &[String]) -> Result<Vec<String>> {
    let [number, list] = words else { return Ok(Vec::new()) };
    let number: usize = number.parse().with_context(|| format!("`{number}' is no number of a node"))?;
    let at = number.checked_sub(1).context("nodes are counted from 1")?;
    Ok(hostlist::expand(list)?.get(at).cloned().into_iter().collect())
}

/// Nodes of the first list, by whether they are in the second.
fn of_two(lists: &str, wanted: bool) -> Result<Vec<String>> {
    let (first, second) = lists.split_once(':').context("two lists are wanted, with a colon between them")?;
    let second = hostlist::expand(second)?;
    Ok(hostlist::expand(first)?.into_iter().filter(|node| second.contains(node) == wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_from_each_other_as_in_the_manual() {
        let both = "atlas[3,5-7,9-11]:atlas[5,7,20]";
        assert_eq!(hostlist::compress(&of_two(both, false).unwrap()), "atlas[3,6,9-11]");
        assert_eq!(hostlist::compress(&of_two(both, true).unwrap()), "atlas[5,7]");
        let word = |number: &str| [number.to_owned(), "atlas[3,5-7,9-11]".to_owned()];
        assert_eq!(nth(&word("3")).unwrap(), ["atlas6"]);
        assert!(nth(&word("8")).unwrap().is_empty());
        assert!(nth(&word("0")).is_err() && of_two("a", true).is_err());
    }
}
