//! `scr scrub`: reads everything that was recorded of datasets, in cache or in a prefix directory, and compares it.
//!
//! Nothing is changed, and no job need run. Exit codes: 0 nothing is wrong, 1 something is, 2 it could not be checked.
//!
//! Fields of the JSON are only ever added, unless its version grows.

use crate::prelude::*;
use crate::progress::Progress;
use indexmap::IndexMap;
use scr_base::fs::{unless_missing, At};
use scr_ops::scrub::{find_caches, Dataset, Item, Plan, Report, Verdict};
use scr_prefix::{FlushEntry, LastRun};
use std::fmt;

/// The places to look, and the form of the answer.
#[derive(Args)]
pub(crate) struct ScrubArgs {
    /// A cache directory of this node, or a folder above it; may be repeated
    #[arg(long, value_name = "DIR")]
    cache: Vec<PathBuf>,
    /// Prefix directories [default without --cache: SCR_PREFIX, and your caches on this
    /// node, of all allocations]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The same as DIR; may be repeated
    #[arg(short, long, value_name = "DIR")]
    prefix: Vec<PathBuf>,
    /// Only the dataset with this name or id
    #[arg(long, value_name = "NAME|ID")]
    dataset: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ScrubArgs) -> Result<Answer> {
    let report = or_show_error(args.json, environment::env().and_then(|mut env| scrub(&mut env, args)))?;
    show(args.json, report.json(), report.text(), report.is_intact())
}

fn scrub(env: &mut Env, args: &ScrubArgs) -> Result<ScrubReport> {
    let wanted = args.dataset.as_deref();
    let mut report = ScrubReport::default();
    let targets = find_targets(env, args, &mut report)?;
    let files = &*env.files;
    let progress = Progress::new("reading what is recorded");
    let planned = |target: &Target, wanted| {
        let of = if target.0 == CACHE { Plan::of_cache } else { Plan::of_prefix };
        of(files, &target.1, wanted)
    };
    let plan_of = |target: Target| match planned(&target, wanted) {
        Ok(plan) => Ok((target, plan)),
        Err(error) => Err(error).with_context(|| format!("cannot look at {target}")),
    };
    let plans = targets.into_iter().map(plan_of).collect::<Result<Vec<_>>>()?;
    if let Some(name) = &args.dataset {
        if plans.iter().all(|(_, plan)| plan.is_empty()) {
            let mut targets: Vec<_> = plans.iter().take(3).map(|(target, _)| target.to_string()).collect();
            let more = plans.len().saturating_sub(3);
            targets.extend((more > 0).then(|| format!("and {more} more")));
            let all: Vec<_> = plans.iter().filter_map(|(target, _)| planned(target, None).ok()).collect();
            let hint = did_you_mean(name, all.iter().flat_map(Plan::names));
            let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
            bail!("there is no dataset `{name}' in {}{hint}", targets.join(", "));
        }
    }
    progress.set_length(plans.iter().map(|(_, plan)| plan.bytes()).sum());
    for (target, plan) in plans {
        progress.set_step(target.to_string());
        let found = plan.run(files, &mut |bytes| progress.add(bytes));
        report.places.push((target, found));
    }
    Ok(report)
}

/// The findings.
#[derive(Default)]
struct ScrubReport {
    /// Target by target.
    places: Vec<(Target, Report)>,
    /// The nodes of the job whose caches were read and were not, if its datasets are on nodes.
    read: Vec<String>,
    not_asked: Vec<String>,
    /// Whether something else could not be read.
    is_partial: bool,
}

/// How many files there are, and what is known of them.
#[derive(Default, Serialize)]
struct Totals {
    files: u64,
    bytes: u64,
    unverified: u64,
    wrong: u64,
}

impl ScrubReport {
    /// Whether nothing is wrong.
    fn is_intact(&self) -> bool {
        self.places.iter().all(|(_, report)| report.is_intact())
    }

    fn totals(&self) -> Totals {
        Totals::of(self.places.iter().flat_map(|(_, report)| report.items()))
    }

    /// A table for each target, what is wrong, and a last line.
    fn text(&self) -> String {
        let tables = self.places.iter().map(|(target, report)| target_text(target, report));
        let mut text: String = tables.chain(self.repairable().map(repair_text)).collect();
        let Totals { files, bytes, unverified, wrong } = self.totals();
        for (nodes, what) in [(&self.read, "read"), (&self.not_asked, "not asked; run `scr scrub' there too")]
        {
            if !nodes.is_empty() {
                text += &format!("{}: {what}\n", hostlist::compress(nodes));
            }
        }
        let all = format!("{} ({})", count(files, "file"), amount(bytes));
        let is_all = self.not_asked.is_empty() && !self.is_partial;
        text + &match (wrong, unverified) {
            (0, 0) if is_all => format!("all {all} are as they were recorded\n"),
            (0, 0) => format!("nothing is wrong in the {all} that were read\n"),
            (0, _) => format!("nothing is wrong in {all}; {unverified} of them are unverified\n"),
            _ => format!("{wrong} of {} are wrong; {unverified} are unverified\n", count(files, "file")),
        }
    }

    /// The datasets of prefix directories that are wrong there, and of which this node has intact parts in cache.
    fn repairable(&self) -> impl Iterator<Item = &Dataset> {
        let in_places = |kind: &'static str| {
            let places = self.places.iter().filter(move |(target, _)| target.0 == kind);
            places.flat_map(|(_, report)| &report.datasets)
        };
        let is_wrong = |dataset: &Dataset| Totals::of(&dataset.items).wrong > 0;
        let is_intact_in_cache = move |wanted: &Dataset| {
            let is_it = |cached: &&Dataset| (cached.id, &cached.name) == (wanted.id, &wanted.name);
            in_places(CACHE).find(is_it).is_some_and(|cached| !is_wrong(cached))
        };
        in_places(PREFIX).filter(move |dataset| is_wrong(dataset) && is_intact_in_cache(dataset))
    }

    fn json(&self) -> Value {
        let dataset = |dataset: &Dataset| merged([json!(dataset), json!(Totals::of(&dataset.items))]);
        let finding = |(id, item): (_, &Item)| merged([json!({ "dataset": id }), json!(item)]);
        let places = self.places.iter().map(|(target, report)| {
            json!({
                "kind": target.0,
                "path": target.1.display().to_string(),
                "datasets": report.datasets.iter().map(dataset).collect::<Vec<_>>(),
                "findings": suspects(report).map(finding).collect::<Vec<_>>(),
            })
        });
        let mut all = json!(self.totals());
        all["intact"] = self.is_intact().into();
        all["places"] = places.collect();
        all["not_asked"] = self.not_asked.as_slice().into();
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
    let items = report.datasets.iter().flat_map(|one| one.items.iter().map(|item| (Some(one.id), item)));
    let general = report.general.iter().map(|item| (None, item));
    general.chain(items).filter(|(_, item)| item.verdict != Verdict::Intact)
}

fn target_text(target: &Target, report: &Report) -> String {
    let mut text = format!("{target}\n");
    if report.datasets.is_empty() && suspects(report).next().is_none() {
        return text + "no datasets\n\n";
    }
    let columns = if target.0 == CACHE { HEAD.len() } else { HEAD.len() - 1 };
    let row = |Dataset { id, name, state, prefix, items }: &Dataset| {
        let [name, prefix] = [name, prefix].map(|text| if text.is_empty() { "-" } else { text }.to_owned());
        let Totals { files, bytes, unverified, wrong } = Totals::of(items);
        let [id, files, unverified, wrong] = [*id, files, unverified, wrong].map(|number| number.to_string());
        let cells = [id, name, state.clone(), files, amount(bytes), unverified, wrong, prefix];
        cells.into_iter().take(columns)
    };
    text += &Table::of(&HEAD[..columns], report.datasets.iter().map(row)).text();
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

fn repair_text(Dataset { id, name, .. }: &Dataset) -> String {
    format!(
        "this node has dataset {id} `{name}' in cache: to repair it, remove the files that are wrong, run `scr copy --id {id}' on \
         each node of the job, and then `scr index --build {id}'\n"
    )
}

/// There may be very many unverified files, for the same few reasons.
fn unverified_text(report: &Report) -> String {
    let mut reasons: IndexMap<&str, u64> = IndexMap::new();
    for (_, item) in suspects(report) {
        let Verdict::Unverified { why } = &item.verdict else { continue };
        *reasons.entry(why).or_default() += 1;
    }
    let line = |(why, number)| format!("unverified: {}, {why}\n", count(number, "file"));
    reasons.into_iter().map(line).collect()
}

/// Many prefix directories may share a cache directory: there the last column says whose a dataset is.
const HEAD: [&str; 8] = ["DATASET", "NAME", "STATE", "FILES", "SIZE", "UNVERIFIED", "WRONG", "PREFIX"];

/// A directory to look at, by its kind: a cache directory of this node, or a prefix directory.
struct Target(&'static str, PathBuf);

const CACHE: &str = "cache";
const PREFIX: &str = "prefix";

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1.display())
    }
}

/// The directories, which are reached [safely](environment::hold) from here on.
fn find_targets(env: &mut Env, args: &ScrubArgs, report: &mut ScrubReport) -> Result<Vec<Target>> {
    if args.cache.is_empty() && args.dirs.is_empty() && args.prefix.is_empty() {
        return of_a_job(env, report);
    }
    let mut targets = Vec::new();
    for dir in &args.cache {
        let dir = std::path::absolute(dir)?;
        environment::hold(env, &dir)?;
        let found = find_caches(&*env.files, &dir).or_cannot("look at", &dir)?;
        ensure!(!found.is_empty(), "there is no dataset in {}, nor in the folders in it", dir.display());
        targets.extend(found.into_iter().map(|dir| Target(CACHE, dir)));
    }
    for dir in once_each([&args.dirs[..], &args.prefix].concat()) {
        targets.push(Target(PREFIX, std::path::absolute(dir)?));
    }
    for target in &targets {
        environment::hold(env, &target.1).with_context(|| format!("cannot look at {target}"))?;
    }
    Ok(targets)
}

/// The user's caches on this node, and the prefix directory if there is one. Folders that another user has planted are skipped.
fn of_a_job(env: &mut Env, report: &mut ScrubReport) -> Result<Vec<Target>> {
    let params = environment::params_with_places(env)?;
    let descriptors = environment::descriptors(&params)?;
    let user = params.get(&param::USER_NAME);
    let bases: BTreeSet<&Path> = descriptors.enabled().map(|store| store.path.as_path()).collect();
    let (mut targets, mut unread) = (Vec::new(), Vec::new());
    for base in &bases {
        let found = OwnedDir::find(&*env.files, base, Path::new(&user), env.uid).and_then(|owned| {
            let Some(owned) = owned else { return Ok(Vec::new()) };
            env.files = owned.held_in(&*env.files);
            find_caches(&*env.files, owned.path())
        });
        match found {
            Ok(caches) => targets.extend(caches.into_iter().map(|dir| Target(CACHE, dir))),
            Err(error) => unread.push(error),
        }
    }
    let prefix = params.get(&param::PREFIX);
    let folder = prefix.join(".scr");
    match unless_missing(env.files.status(&folder).at("look at", &folder)) {
        Ok(Some(_)) => {
            environment::hold(env, &prefix)?;
            targets.push(Target(PREFIX, prefix.clone()));
        }
        Ok(None) => (),
        Err(error) => unread.push(error),
    }
    unread.iter().for_each(|error| warn(format_args!("not checked: {}", scr_base::describe(error))));
    ensure!(!targets.is_empty() || unread.is_empty(), "nothing was checked, and there may be datasets");
    if targets.is_empty() {
        let bases = joined(bases.iter().map(|base| base.join(&user).display().to_string()), ", ");
        let prefix = prefix.display();
        bail!(
            "there is nothing to look at: no dataset below {bases}, and no folder .scr in {prefix}; \
             say where with --cache or --prefix"
        );
    }
    report.is_partial = !unread.is_empty();
    let is_here = |node: &String| hostlist::is_same_node(node, &params.get(&param::NODE_NAME));
    (report.read, report.not_asked) = nodes(env, &prefix).into_iter().partition(is_here);
    Ok(targets)
}

/// The nodes of the last job, if they may have datasets.
fn nodes(env: &Env, prefix: &Path) -> Vec<String> {
    let (files, prefix) = (&*env.files, Prefix::at(&*env.files, prefix));
    let flush = FlushFile::read(files, &prefix);
    let may_have = flush.map_or(true, |flush| flush.entries().iter().any(FlushEntry::is_on_nodes));
    let run = LastRun::read(files, &prefix).ok().flatten().filter(|_| may_have);
    run.map(|run| run.all_nodes()).unwrap_or_default()
}
