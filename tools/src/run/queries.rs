//! Answers for scripts that start jobs by themselves: C SCR's `scr_env`, `scr_list_down_nodes`,
//! `scr_retries_halt` and `scr_glob_hosts`.

use super::{JobArgs, JobContext};
use crate::halt::in_classic_words;
use crate::machine::{bad_nodes, excluded, own_names, BadNode};
use crate::prelude::*;
use clap::ArgAction;
use scr_core::log::{Event, Log, Record};
use scr_prefix::{HaltReason, Nodes};

/// The properties of the allocation to print. Without any: all that is known, as a table.
#[derive(Args)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Print the user name
    #[arg(short, long)]
    user: bool,
    /// Print the id of the allocation
    #[arg(short, long)]
    jobid: bool,
    /// Print when the allocation ends, in seconds since the epoch; 0 if that is not known
    #[arg(short, long)]
    endtime: bool,
    /// Print the nodes of the allocation
    #[arg(short, long)]
    nodes: bool,
    /// Print the nodes that the resource manager reports down
    #[arg(short, long)]
    down: bool,
    /// Print how many nodes the last run used; 0 if there was none
    #[arg(short, long)]
    runnodes: bool,
}

/// `scr env`.
pub(crate) fn env(args: &EnvArgs) -> Result<Answer> {
    let job = JobContext::on(&args.job, None, false)?;
    let allocation = &job.allocation;
    let down = if args.down { allocation.reported_down()? } else { Vec::new() };
    let last = Nodes::read(&*job.env.files, &job.prefix)?.map_or(0, |Nodes(nodes)| nodes);
    let all = [
        (false, "resource manager", allocation.manager.name.clone()),
        (args.user, "user", job.params.get(&param::USER_NAME)),
        (args.jobid, "job id", allocation.job_id.clone()),
        (args.endtime, "end of the allocation", allocation.end_time.unwrap_or(0).to_string()),
        (args.nodes, "nodes", allocation.nodes.join(",")),
        (args.down, "", down.join(",")),
        (args.runnodes, "nodes of the last run", last.to_string()),
        (false, "prefix directory", job.prefix.dir().display().to_string()),
    ];
    let asked: Vec<_> = all.iter().filter(|(is_asked, ..)| *is_asked).map(|(.., value)| value).collect();
    if classic::is_meant() {
        return print(joined(asked, ""));
    }
    if !asked.is_empty() {
        return print_lines(asked);
    }
    let known = all.into_iter().filter(|(_, name, _)| !name.is_empty());
    print(Table::of(&[], known.map(|(_, name, value)| [name.to_owned(), value])).text())
}

/// How to list nodes.
#[derive(Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Say why, for each node
    #[arg(short, long)]
    reason: bool,
    /// List these nodes without asking them
    #[arg(short, long, value_name = "NODES")]
    down: Option<String>,
    /// Add a NODE_FAIL to the log of the job for each node that --down does not name
    #[arg(short, long)]
    log: bool,
    /// For the log: how long the job has run
    #[arg(short, long, value_name = "SECONDS", requires = "log", value_parser = time::length)]
    secs: Option<Duration>,
    /// The nodes to check [default: those of the allocation]
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// Accepted for scripts of C SCR, and ignored: a store must have the size of its description, used or not
    #[arg(short, long, hide = true)]
    free: bool,
    /// Accepted for scripts of C SCR, and ignored: the launcher does not matter here
    #[arg(short = 'j', long = "joblauncher", value_name = "LAUNCHER", hide = true)]
    _launcher: Option<String>,
}

/// `scr list-down-nodes`.
pub(crate) fn list_down_nodes(args: &DownArgs) -> Result<Answer> {
    let nodes = hostlist::expand(&args.nodes.join(" "))?;
    let job = JobContext::on(&args.job, Some(nodes).filter(|nodes| !nodes.is_empty()), false)?;
    let known = known_down(&job, args.down.as_deref())?;
    let bad = bad(&job, &known)?;
    if args.log {
        let log = Log::of_command(&job.env, &job.params, "scr list-down-nodes", &job.prefix);
        for (node, why) in bad.iter().filter(|bad| !known.contains(bad)) {
            let failed = Record::event(Event::NodeFail).note(format!("{node}: {why}"));
            let took = args.secs;
            log.add_entry(took.into_iter().fold(failed, Record::took));
        }
    }
    if args.reason {
        let lines: BTreeSet<_> = bad.iter().map(|(node, why)| format!("{node}: {why}")).collect();
        return print_lines(lines);
    }
    let nodes: Vec<_> = bad.into_iter().map(|(node, _)| node).collect();
    print_lines([hostlist::compress(&nodes)])
}

/// The nodes of the allocation that cannot be used, with those of them that are known to be down.
pub(super) fn bad(job: &JobContext, known: &[BadNode]) -> Result<Vec<BadNode>> {
    let excluded = excluded(&job.allocation, &job.params)?;
    Ok(bad_nodes(&job.allocation, &excluded, known))
}

/// The nodes that the option `--down` of a command names.
pub(super) fn known_down(job: &JobContext, list: Option<&str>) -> Result<Vec<BadNode>> {
    let nodes = hostlist::expand(list.unwrap_or_default()).context("in --down")?;
    let nodes = own_names(nodes, "--down", &job.allocation);
    Ok(nodes.into_iter().map(|node| (node, "Specified as down".to_owned())).collect())
}

/// Which job.
#[derive(Args)]
pub(crate) struct RetriesHaltArgs {
    #[command(flatten)]
    job: JobArgs,
    /// The same as --prefix
    #[arg(short, long, value_name = "DIR", conflicts_with = "prefix")]
    dir: Option<PathBuf>,
}

/// `scr retries-halt`.
pub(crate) fn retries_halt(args: &RetriesHaltArgs) -> Result<Answer> {
    let job = args.job.or_in(args.dir.as_deref());
    let (env, params, _) = job.environment()?;
    let prefix = Prefix::new(params.get(&param::PREFIX));
    let halt = Halt::in_force(&*env.files, &prefix, params.get(&param::HALT_SECONDS))?;
    let context = JobContext::on(&job, None, false)
        .inspect_err(|error| {
            warn(format_args!("nothing is known of the allocation, so only the halt file counts: {error:#}"));
        })
        .ok();
    let end = context.as_ref().map(|job| job.allocation.end()).unwrap_or_default();
    let now = environment::now(&env);
    let halts = halt.reason(now, end).map(|reason| halt_run(&reason, now));
    let none = || "scr_retries_halt: CONTINUE RUN: No halt file found.".to_owned();
    print_lines(halts.clone().or_else(|| (!prefix.halt_file().exists()).then(none)))?;
    Ok(Answer::from(halts.is_some()))
}

/// In the words of C SCR that a job is to halt.
pub(super) fn halt_run(reason: &HaltReason, now: i64) -> String {
    format!("scr_retries_halt: HALT RUN: {}.", in_classic_words(reason, now))
}

/// Which nodes, and what to print of them.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct HostsArgs {
    /// Lists of nodes; a colon is between two lists as well
    #[arg(required = true, value_name = "NODES")]
    lists: Vec<String>,
    /// Take the nodes of all other lists from those of the first
    #[arg(short, long, group = "sets")]
    minus: bool,
    /// Keep the nodes that are in all lists
    #[arg(short, long, group = "sets")]
    intersection: bool,
    /// Keep the first N nodes, or with -N the last
    #[arg(short, long, value_name = "N")]
    size: Option<isize>,
    /// Print each node, and not a short list
    #[arg(short, long, group = "what")]
    expand: bool,
    /// What --expand puts between nodes; \\n and \\t are a new line and a tab
    #[arg(short, long, value_name = "TEXT", default_value = ",")]
    delimiter: String,
    /// Print how many nodes there are
    #[arg(short, long, group = "what")]
    count: bool,
    /// Print the Nth node; 1 is the first, -1 the last
    #[arg(short, long, value_name = "N", group = "what")]
    nth: Option<isize>,
    /// Accepted for scripts of C SCR 1, where the list is its value
    #[arg(long, short = 'C', alias = "hosts", short_alias = 'h', hide = true)]
    compress: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

/// `scr glob-hosts`.
pub(crate) fn glob_hosts(args: &HostsArgs) -> Result<Answer> {
    let nodes = args.nodes()?;
    print_lines([match *args {
        HostsArgs { count: true, .. } => nodes.len().to_string(),
        HostsArgs { nth: Some(number), .. } => nth(&nodes, number)?.clone(),
        HostsArgs { expand: true, .. } => {
            nodes.join(&args.delimiter.replace("\\n", "\n").replace("\\t", "\t"))
        }
        _ => hostlist::compress(&nodes),
    }])
}

impl HostsArgs {
    fn nodes(&self) -> Result<Vec<String>> {
        let lists = self.lists.iter().flat_map(|list| list.split(':')).map(hostlist::expand);
        let mut lists = lists.collect::<Result<Vec<_>, _>>()?.into_iter();
        let mut nodes = lists.next().unwrap_or_default();
        for list in lists {
            match self.minus || self.intersection {
                true => nodes.retain(|node| list.contains(node) == self.intersection),
                false => nodes.extend(list),
            }
        }
        let most = self.size.map_or(nodes.len(), |size| size.unsigned_abs().min(nodes.len()));
        let from = if self.size.is_some_and(|size| size < 0) { nodes.len() - most } else { 0 };
        Ok(nodes.drain(from..from + most).collect())
    }
}

fn nth(nodes: &[String], number: isize) -> Result<&String> {
    let at = number.unsigned_abs();
    let place = if number < 0 { nodes.len().checked_sub(at) } else { at.checked_sub(1) };
    let node = place.and_then(|place| nodes.get(place));
    node.with_context(|| {
        format!("there is no node {number} among {}; 1 is the first, -1 the last", nodes.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_number_from_either_end() {
        let nodes = hostlist::expand("atlas[3,5-7,9-11]").unwrap();
        let nth = |number| nth(&nodes, number).ok().map(String::as_str);
        assert_eq!([3, -7].map(nth), [Some("atlas6"), Some("atlas3")]);
        assert_eq!([8, -8, 0].map(nth), [None; 3]);
    }
}
