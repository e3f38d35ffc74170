//! Answers for scripts that start jobs by themselves: the v1.1 manual's `scr_env`, `scr_list_down_nodes`,
//! `scr_retries_halt` and `scr_glob_hosts`.

use super::{IgnoredOptions, JobArgs, JobContext};
use crate::machine::{bad_nodes, excluded, own_names, BadNode};
use crate::prelude::*;
use clap::ArgAction;
use scr_core::log::{Event, Log, Record};
use scr_prefix::Nodes;

/// The property of the allocation to print.
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
    #[arg(short, long)]
    user: bool,
    /// Print the id of the allocation
    #[arg(short, long)]
    jobid: bool,
    /// Print the nodes of the allocation
    #[arg(short, long)]
    nodes: bool,
    /// Print the nodes that are down, excluded, or fail their check
    #[arg(short, long)]
    down: bool,
    /// Print how many nodes the last run used
    #[arg(short, long)]
    runnodes: bool,
    /// Print when the allocation ends, in seconds since the epoch
    #[arg(short, long)]
    endtime: bool,
}

/// `scr env`.
pub(crate) fn env(args: &EnvArgs) -> Result<Answer> {
    let (job, what) = (JobContext::on(&args.job, None)?, &args.what);
    let allocation = &job.allocation;
    if what.down {
        let nodes: Vec<_> = bad(&job, &[])?.into_iter().map(|bad| bad.node).collect();
        return print_line(Some(hostlist::compress(&nodes)));
    }
    let asked = [what.user, what.jobid, what.nodes, what.runnodes, what.endtime];
    let last = match what.runnodes || asked == [false; 5] {
        true => Nodes::read(&*job.env.files, &job.prefix)?.map(|Nodes(nodes)| nodes.to_string()),
        false => None,
    };
    let known = [
        ("user", Some(job.params.get(&param::USER_NAME))),
        ("job id", Some(allocation.job_id.clone())),
        ("nodes", Some(hostlist::compress(&allocation.nodes))),
        ("nodes of the last run", last),
        ("end of the allocation", allocation.end_time.map(|end| end.to_string())),
    ];
    if let Some(place) = asked.iter().position(|is_asked| *is_asked) {
        return print_line(known[place].1.as_ref());
    }
    let manager = ("resource manager", Some(allocation.manager.name.clone()));
    let prefix = ("prefix directory", Some(job.prefix.dir().display().to_string()));
    let rows = [manager].into_iter().chain(known).chain([prefix]);
    let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("-".to_owned());
    print(Table::of(&[], rows.map(|(name, value)| [name.to_owned(), or_none(value)])).text())
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
    #[command(flatten)]
    _ignored: IgnoredOptions,
}

/// `scr list-down-nodes`.
pub(crate) fn list_down_nodes(args: &DownArgs) -> Result<Answer> {
    let nodes = hostlist::expand(&args.nodes.join(" "))?;
    let job = JobContext::on(&args.job, Some(nodes).filter(|nodes| !nodes.is_empty()))?;
    let known = known_down(&job, args.down.as_deref())?;
    let bad = bad(&job, &known)?;
    if args.log {
        let log = Log::of_command(&job.env, &job.params, "scr list-down-nodes", &job.prefix);
        for bad in bad.iter().filter(|bad| !known.contains(bad)) {
            let failed = Record::event(Event::NodeFail).note(format!("{}: {}", bad.node, bad.why));
            let took = args.secs;
            log.add_entry(took.into_iter().fold(failed, Record::took));
        }
    }
    if args.reason {
        print(Table::of(&[], bad.iter().map(|bad| [&bad.node, &bad.why])).text())?;
        return Ok(Answer::from(!bad.is_empty()));
    }
    let nodes: Vec<_> = bad.into_iter().map(|bad| bad.node).collect();
    print_line(Some(hostlist::compress(&nodes)))
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
    Ok(nodes.into_iter().map(|node| BadNode { node, why: "--down names it".to_owned() }).collect())
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
    let context = JobContext::on(&job, None)
        .inspect_err(|error| {
            warn(format_args!("nothing is known of the allocation, so only the halt file counts: {error:#}"));
        })
        .ok();
    let end = context.as_ref().map(|job| job.allocation.end()).unwrap_or_default();
    print_line(halt.reason(environment::now(&env), end))
}

/// Which nodes, and what to print of them.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct HostsArgs {
    /// The nodes of a list
    #[arg(short = 'h', long, value_name = "NODES")]
    hosts: Option<String>,
    /// The nodes of the first list that are not in the second
    #[arg(short, long, value_name = "NODES:NODES")]
    minus: Option<String>,
    /// The nodes that are in both lists
    #[arg(short, long, value_name = "NODES:NODES")]
    intersection: Option<String>,
    /// Print nodes, separated by blanks or commas, as a short list; this is also what is done without another option
    #[arg(short = 'C', long, value_name = "NODES")]
    compress: Option<String>,
    /// Print the nodes of a list, one per line
    #[arg(long, value_name = "NODES")]
    expand: Option<String>,
    /// Print how many nodes there are, in this list or in that of another option
    #[arg(short, long, value_name = "NODES", num_args = 0..=1)]
    count: Option<Option<String>>,
    /// Print the Nth node, of this list or of that of another option; 1 is the first, -1 the last
    #[arg(short, long, num_args = 1..=2, value_names = ["N", "NODES"], allow_negative_numbers = true, conflicts_with = "count")]
    nth: Option<Vec<String>>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

/// `scr glob-hosts`.
pub(crate) fn glob_hosts(args: &HostsArgs) -> Result<Answer> {
    let nodes = args.nodes()?;
    print_line(Some(match args {
        HostsArgs { count: Some(_), .. } => nodes.len().to_string(),
        HostsArgs { nth: Some(words), .. } => nth(&nodes, words)?.cloned().unwrap_or_default(),
        HostsArgs { expand: Some(_), .. } => nodes.join("\n"),
        _ => hostlist::compress(&nodes),
    }))
}

impl HostsArgs {
    /// The nodes, which one option gives.
    fn nodes(&self) -> Result<Vec<String>> {
        let counted = self.count.as_ref().and_then(Option::as_ref);
        let numbered = self.nth.as_ref().and_then(|words| words.get(1));
        let lists = [&self.hosts, &self.compress, &self.expand].map(Option::as_ref);
        let plain = lists.into_iter().chain([counted, numbered]).flatten();
        let plain = plain.map(|list| Ok(hostlist::expand(list)?));
        let minus = self.minus.iter().map(|lists| of_two(lists, false));
        let both = self.intersection.iter().map(|lists| of_two(lists, true));
        let mut nodes: Vec<_> = plain.chain(minus).chain(both).collect::<Result<_>>()?;
        ensure!(nodes.len() == 1, "give the nodes once, for instance with --hosts");
        Ok(nodes.remove(0))
    }
}

/// The node with the number that the first word gives.
fn nth<'a>(nodes: &'a [String], words: &[String]) -> Result<Option<&'a String>> {
    let word = words.first().map(String::as_str).unwrap_or_default();
    let number: isize = word.parse().with_context(|| format!("`{word}' is no number of a node"))?;
    ensure!(number != 0, "nodes are counted from 1");
    let at = number.unsigned_abs();
    Ok(if number > 0 { nodes.get(at - 1) } else { nodes.len().checked_sub(at).map(|at| &nodes[at]) })
}

/// Nodes of the first list, by whether they are in the second.
fn of_two(lists: &str, wanted: bool) -> Result<Vec<String>> {
    let (first, second) = lists.split_once(':').context("expected two lists with a colon between them")?;
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
        let nodes = hostlist::expand("atlas[3,5-7,9-11]").unwrap();
        let nth = |number: &str| nth(&nodes, &[number.to_owned()]).map(|node| node.map(String::as_str));
        assert_eq!((nth("3").unwrap(), nth("-7").unwrap()), (Some("atlas6"), Some("atlas3")));
        assert_eq!((nth("8").unwrap(), nth("-8").unwrap()), (None, None));
        assert!(nth("0").is_err() && of_two("a", true).is_err());
    }
}
