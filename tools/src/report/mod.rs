//! `scr report`: what jobs have cost, and what that was good for, from their event logs. And the block at the end of `scr run`
//! and `scr postrun`.
//!
//! - `interval`: the interval of a job against the loss that is to be expected
//! - `text`, `html`: for people
//! - `csv`: for spreadsheets

mod csv;
mod html;
mod interval;
mod text;

use crate::log::sources;
use crate::prelude::*;
use crate::run::JobContext;
use indexmap::IndexMap;
use scr_base::parallel::at_a_time;
use scr_core::log::{jobs, Class, Figures, History};
use scr_plugin_api::LogQuery;

/// Which jobs, and how to show them.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Prefix directories [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The same as DIR; may be repeated
    #[arg(short, long, value_name = "DIR")]
    prefix: Vec<PathBuf>,
    /// Only jobs of this allocation
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only jobs that have ended at this time or later
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Order jobs, or users, by what they have cost, the worst first
    #[arg(long, value_name = "COST")]
    sort: Option<Cost>,
    /// Only the N worst jobs, or users, by goodput or as --sort says
    #[arg(long, value_name = "N")]
    worst: Option<usize>,
    /// Add up the jobs of each user
    #[arg(long, value_name = "WHAT", value_parser = ["user"], conflicts_with_all = ["brief", "html"])]
    by: Option<String>,
    /// Print a few lines of the newest job, as for the end of a batch script or an epilog
    #[arg(long, conflicts_with_all = ["html", "json", "csv"])]
    brief: bool,
    /// Write everything as one page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print a table for spreadsheets, with all times in seconds
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What jobs are ordered by.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Cost {
    /// The longest first
    Elapsed,
    /// The lowest first
    Goodput,
    /// Those first that have computed the longest twice
    Lost,
}

impl Cost {
    /// The larger, the worse. Without any time there is no goodput.
    fn of(self, figures: &Figures) -> f64 {
        match self {
            Self::Elapsed => figures.elapsed() as f64,
            Self::Goodput => figures.goodput().map_or(f64::NEG_INFINITY, |share| -share),
            Self::Lost => figures.seconds(Class::Lost),
        }
    }
}

impl ReportArgs {
    /// Orders and shortens a list as the user wants it.
    fn order<T>(&self, all: &mut Vec<T>, figures: impl Fn(&T) -> &Figures) {
        if let Some(cost) = self.sort.or(self.worst.map(|_| Cost::Goodput)) {
            all.sort_by(|a, b| cost.of(figures(b)).total_cmp(&cost.of(figures(a))));
            all.truncate(self.worst.unwrap_or(usize::MAX));
        }
    }
}

/// A job, and where it ran.
struct Job {
    dir: PathBuf,
    figures: Figures,
    history: History,
}

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> Result<Answer> {
    or_show_error(args.json, report(args))
}

fn report(args: &ReportArgs) -> Result<Answer> {
    let mut env = environment::env()?;
    let since = time::given("--since", args.since.as_deref())?.unwrap_or(0);
    let mut dirs = once_each([&args.dirs[..], &args.prefix].concat());
    if dirs.is_empty() {
        dirs.push(environment::prefix(&mut env, None)?.dir().to_owned());
    }
    let (mut all, notes, are_read) = read(&env, &dirs, args.job.as_deref())?;
    notes.iter().for_each(warn);
    all.retain(|job| job.figures.until >= since);
    all.retain(|job| args.user.as_ref().is_none_or(|user| *user == job.figures.user));
    let mut users = args.by.as_ref().map(|_| by_user(&all));
    match &mut users {
        Some(users) => args.order(users, |(.., figures)| figures),
        None => args.order(&mut all, |job| &job.figures),
    }
    if args.brief {
        all.sort_by_key(|job| job.figures.until);
        all.drain(..all.len().saturating_sub(1));
    }
    if let (Some(page), false) = (&args.html, all.is_empty()) {
        fs::write(page, html::of(&all)?).or_cannot("write", page)?;
    }
    if all.is_empty() {
        let hint = meant(&env, &dirs, args).map_or_else(String::new, |hint| format!("; {hint}"));
        warn(format_args!("no job is in the logs{hint}"));
    }
    let text = match &users {
        _ if args.csv => csv::of(&all, users.as_ref()),
        _ if args.brief => text::brief(&all),
        Some(users) => text::users(users),
        None => text::report(&all),
    };
    let mut json = json(&all);
    if let Some(users) = &users {
        let user =
            |(user, jobs, of): &User| merged([figures_json(of), json!({ "user": user, "jobs": jobs })]);
        json["users"] = users.iter().map(user).collect();
    }
    let answer = show(args.json, json, text, !all.is_empty())?;
    Ok(if are_read { answer } else { Answer::Code(2) })
}

/// A user, the number of jobs, and what they have cost together.
type User = (String, usize, Figures);

/// Adds up what the jobs of each user have cost.
fn by_user(all: &[Job]) -> Vec<User> {
    let mut users: IndexMap<&str, (usize, Figures)> = IndexMap::new();
    for Job { figures, .. } in all {
        let (jobs, sum) = users.entry(&figures.user).or_default();
        *jobs += 1;
        sum.add(figures);
    }
    users.into_iter().map(|(user, (jobs, sum))| (user.to_owned(), jobs, sum)).collect()
}

/// The job or the user that a mistyped name most likely means.
fn meant(env: &Env, dirs: &[PathBuf], args: &ReportArgs) -> Option<String> {
    let all = read(env, dirs, None).ok().filter(|_| args.job.is_some() || args.user.is_some())?.0;
    let job = args.job.as_ref().and_then(|id| did_you_mean(id, all.iter().map(|job| &*job.figures.job_id)));
    let user = |user: &String| did_you_mean(user, all.iter().map(|job| &*job.figures.user));
    job.or_else(|| args.user.as_ref().and_then(user))
}

/// The jobs of these prefix directories, with remarks on the logs, and whether all were read. Directories are read on all
/// processors.
fn read(env: &Env, dirs: &[PathBuf], id: Option<&str>) -> Result<(Vec<Job>, Vec<String>, bool)> {
    let query = LogQuery { job_id: id.map(str::to_owned), ..LogQuery::default() };
    let of_dir = |dir: &Path| -> Result<(Vec<Job>, Vec<String>)> {
        let dir = param::normalise(&env.current_dir.join(dir));
        let found = sources::text(env, &Prefix::new(&dir), &query)?;
        let job = |(figures, history)| Job { dir: dir.clone(), figures, history };
        Ok((jobs(found.entries).into_iter().map(job).collect(), found.notes))
    };
    let (mut all, mut notes, mut are_read) = (Vec::new(), Vec::new(), true);
    for found in at_a_time(env.processors.clamp(1, 16), dirs, |dir| of_dir(dir)) {
        match found {
            Ok((jobs, remarks)) => {
                all.extend(jobs);
                notes.extend(remarks);
            }
            // The others are worth a report all the same.
            Err(error) if dirs.len() > 1 => {
                notes.push(format!("{error:#}"));
                are_read = false;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((all, notes, are_read))
}

/// The block at the end of a job: of the newest one of its allocation. `None` where the user wants none, and where it has cost
/// nothing.
pub(crate) fn block(JobContext { env, params, prefix, allocation, .. }: &JobContext) -> Option<[String; 5]> {
    if !params.get(&param::REPORT) {
        return None;
    }
    let (mut all, ..) = read(env, &[prefix.dir().to_owned()], Some(&allocation.job_id)).ok()?;
    all.sort_by_key(|job| job.figures.until);
    let newest = all.pop()?.figures;
    newest.has_costs().then(|| newest.block())
}

fn json(all: &[Job]) -> Value {
    let history = all.len() == 1;
    let jobs: Vec<_> = all.iter().map(|job| job_json(job, history)).collect();
    json!({ "jobs": jobs, "total": figures_json(&total(all)) })
}

/// Adds up what they have cost.
fn total(all: &[Job]) -> Figures {
    Figures::sum(all.iter().map(|job| &job.figures))
}

/// Fields of figures under their own names, for programs.
macro_rules! named {
    ($figures:ident: $($field:ident)*) => { json!({ $((stringify!($field)): $figures.$field),* }) };
}

fn job_json(job: &Job, with_history: bool) -> Value {
    let Job { dir, figures, history } = job;
    let own = named!(figures: job_id job_name user cluster processes nodes);
    let more = json!({
        "prefix": dir.display().to_string(),
        "state": figures.state.name(),
        "began_micros": figures.began,
        "until_micros": figures.until,
        "newest_in_cache_micros": figures.newest_in_cache,
        "newest_in_prefix_micros": figures.newest_in_prefix,
        "interval": interval::Choice::of(figures).map(|choice| choice.json()),
    });
    let timeline = history.segments.iter().map(|part| json!([part.class, part.from, part.until]));
    let transfers = history.transfers.iter().map(|one| {
        json!({ "micros": one.at, "level": one.level.name(), "bytes": one.bytes, "seconds": one.seconds })
    });
    let parts = json!({
        "timeline": timeline.collect::<Vec<_>>(),
        "transfers": transfers.collect::<Vec<_>>(),
        "failed_at_micros": history.failures,
        "checkpoint_micros": history.checkpoints,
    });
    merged([figures_json(figures), own, more, if with_history { parts } else { json!({}) }])
}

/// The figures that can be added up.
fn figures_json(figures: &Figures) -> Value {
    let seconds: BTreeMap<_, _> = Class::ALL.iter().map(|class| (class, figures.seconds(*class))).collect();
    let levels = figures.moved.iter().map(|(level, moved)| {
        json!({
            "level": level.name(),
            "bytes": moved.bytes,
            "files": moved.files,
            "count": moved.spent.count,
            "seconds": moved.spent.seconds,
            "bytes_per_second": moved.bandwidth(),
        })
    });
    let mut json = named!(figures: run_seconds runs failures lost_nodes checkpoints failed_checkpoints outputs failed_flushes
        flush_waits fetches rebuilds failed_restarts scavenged rebuilt_processes damaged_bytes);
    json["elapsed_seconds"] = (figures.elapsed() as f64 / 1e6).into();
    json["goodput"] = figures.goodput().into();
    json["seconds"] = json!(seconds);
    json["unsaved_seconds"] = (figures.unsaved as f64 / 1e6).into();
    json["flushes_waited_for"] = json!(figures.flushes_sync);
    json["output_flushes_waited_for"] = json!(figures.output_flushes_sync);
    json["flushes_in_background"] = json!(figures.flushes_async);
    json["restarts"] = figures.restarts.count.into();
    json["levels"] = levels.collect();
    json
}
