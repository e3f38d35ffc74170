//! `scr clean`: removes the cache and control folders that dead allocations of the user have left on this node, for epilogs
//! and workstations.
//!
//! It never touches a folder of another user, nor one of an allocation that may still run. A dataset that is in cache only
//! is kept unless a flag gives it up.
//!
//! - `in_use`: whether an allocation may still run

mod in_use;

use crate::machine::{current_job_id, Manifests};
use crate::prelude::*;
use in_use::{Choice, Liveness, NO_ALLOCATION};
use scr_base::fs::{unless_missing, At, FsError, Kind};
use scr_core::{metrics, recorded_bases};
use scr_ops::unsaved;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// The allocations whose folders to remove.
#[derive(Args)]
pub(crate) struct CleanArgs {
    /// Remove the folders of this allocation
    #[arg(long, value_name = "ID", conflicts_with = "dead")]
    allocation: Option<String>,
    /// The allocation has ended; needed where no resource manager can tell
    #[arg(long, requires = "allocation")]
    ended: bool,
    /// Remove the folders of all dead allocations of the user
    #[arg(long)]
    dead: bool,
    /// Do so for every user of this node, as root: for a prolog or an epilog
    #[arg(long)]
    all_users: bool,
    /// Only with --all-users: also for jobs outside of any allocation, of which nobody knows whether they have ended
    #[arg(long, requires = "all_users")]
    yes: bool,
    /// Also remove datasets that are in cache only; they are lost then
    #[arg(long)]
    discard_unsaved: bool,
    /// Remove nothing; print what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The outcome for a folder, as programs are told.
#[derive(Serialize, Deserialize)]
struct Outcome {
    path: String,
    allocation: String,
    removed: bool,
    /// Why it was kept.
    kept: Option<String>,
    /// The datasets that are lost with it.
    lost: Vec<String>,
}

/// The outcomes for the folders of a user.
#[derive(Deserialize)]
struct Outcomes {
    folders: Vec<Outcome>,
}

/// Runs the command.
pub(crate) fn run(args: &CleanArgs) -> Result<Answer> {
    let env = environment::env()?;
    let params = environment::params_with_places(&env)?;
    let manifests = Manifests::load(&env)?;
    let (choice, wanted) = match (&args.allocation, args.dead) {
        (Some(id), _) => (Choice::Named { has_ended: args.ended }, Some(id.clone())),
        (None, true) => (Choice::AllDead, None),
        (None, false) => (Choice::Own, Some(current_job_id(&env, &params, &manifests)?)),
    };
    if args.all_users {
        let is_of_all = wanted.as_deref() == Some(NO_ALLOCATION) && !(args.yes || args.dry_run);
        ensure!(!is_of_all, "{OF_ALL}");
        return for_all_users(&env, &params, args);
    }
    let mut by_job: BTreeMap<String, Vec<JobFolder>> = BTreeMap::new();
    let mut search = Search { env: &env, params: &params, job_id: wanted.as_deref(), refused: Vec::new() };
    for folder in search.folders()? {
        by_job.entry(folder.job_id.clone()).or_default().push(folder);
    }
    let mut liveness = Liveness::find(&env, &manifests)?;
    let mut outcomes = Vec::new();
    // What is kept leaves something to do, but not an allocation that still runs where all dead ones were asked for.
    let mut is_done = true;
    let mut may_have_ended = Vec::new();
    for (id, mut folders) in by_job {
        let in_use = liveness.in_use(&id, &folders, choice)?;
        may_have_ended.extend(in_use.iter().filter(|(_, is_known)| !is_known).map(|_| id.clone()));
        let user = folders.first().and_then(|folder| folder.parent.path().file_name().map(OsStr::to_owned));
        let mut keeps_any = false;
        // The record of where the others are goes last.
        folders.sort_by_key(|folder| !folder.recorded.is_empty());
        for folder in folders {
            let is_needed = keeps_any && !folder.recorded.is_empty();
            let done = match &in_use {
                Some((why, _)) => Err(anyhow!("{why}")),
                None if is_needed => Err(anyhow!("it says where the other folders are")),
                None => remove(&folder, args),
            };
            keeps_any |= done.is_err();
            let (path, removed) = (folder.dir.path().display().to_string(), done.is_ok());
            let (lost, kept) =
                done.map_or_else(|why| (Vec::new(), Some(format!("{why:#}"))), |lost| (lost, None));
            outcomes.push(Outcome { path, allocation: folder.job_id, removed, kept, lost });
        }
        is_done &= !keeps_any || in_use.is_some() && args.dead;
        if !args.dry_run && !keeps_any {
            user.iter().for_each(|user| remove_metrics(&env, &params, &user.to_string_lossy(), &id));
        }
    }
    let mut kept: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for outcome in &outcomes {
        outcome.kept.iter().for_each(|why| kept.entry(why).or_default().push(&outcome.path));
    }
    for (why, paths) in kept {
        match paths.as_slice() {
            [path] => warn(format_args!("{path} is kept: {why}")),
            paths => warn(format_args!("{} folders are kept: {why}\n  {}", paths.len(), paths.join("\n  "))),
        }
    }
    match may_have_ended.as_slice() {
        [] => (),
        [id] => {
            let ended = if id == NO_ALLOCATION { "" } else { " --ended" };
            warn(format_args!("once it has ended, `scr clean --allocation {id}{ended}' removes it"));
        }
        _ => warn("`scr clean --allocation ID --ended' removes what has ended all the same"),
    }
    let shown = show(args.json, json!({ "folders": outcomes }), text(&outcomes, args), is_done)?;
    search.refused.into_iter().next().map_or(Ok(shown), |error| Err(error.into()))
}

/// Runs this command once for each user who has folders on this node, with the rights of that user, so that nothing that a user
/// has planted leads anywhere else. What they say becomes one answer.
fn for_all_users(env: &Env, params: &Params, args: &CleanArgs) -> Result<Answer> {
    ensure!(rustix::process::geteuid().is_root(), "--all-users is for root, who may act for other users");
    let program = environment::program()?;
    let arguments = || std::env::args_os().skip(1).filter(|word| word != "--all-users" && word != "--yes");
    let json = (!args.json).then_some("--json");
    let (mut worst, mut outcomes) = (0, Vec::new());
    for ((user, uid), gid) in users(env, &environment::bases(env, params, args.allocation.is_some())?) {
        let mut command = Command::new(&program);
        command.args(arguments()).args(json).uid(uid).gid(gid).current_dir("/").stdin(Stdio::null());
        command.env("USER", &user).env("SCR_USER_NAME", environment::as_setting(&user));
        let ended = command.stderr(Stdio::inherit()).output();
        let ended = ended.with_context(|| format!("cannot act as the user of {user}"))?;
        // An error follows what was done before it.
        let answers = serde_json::Deserializer::from_slice(&ended.stdout).into_iter::<Outcomes>();
        outcomes.extend(answers.map_while(Result::ok).flat_map(|answer| answer.folders));
        worst = worst.max(ended.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ERROR));
    }
    show(args.json, json!({ "folders": outcomes }), text(&outcomes, args), true)?;
    Ok(Answer::Code(worst))
}

const OF_ALL: &str = "this is no allocation: --all-users would reach the jobs that every user runs here without one. Name one \
                      with --allocation, choose --dead, or say --yes; --dry-run shows what would be removed";

/// The exit code of an error.
const ERROR: u8 = 2;

/// Removes a folder, or finds out that it can be removed; gives the datasets that are lost with it. While another clean removes it,
/// its datasets look damaged.
fn remove(folder: &JobFolder, args: &CleanArgs) -> Result<Vec<String>> {
    if args.dry_run {
        return lost_with(folder, args);
    }
    let (files, path) = (folder.parent.files(), folder.dir.path());
    let removed = files.exclusively_for_long(&folder.parent.path().join(LOCK), |_| {
        if unless_missing(files.status(path).at("look at", path))?.is_none() {
            return Ok(Vec::new());
        }
        let lost = lost_with(folder, args)?;
        // Links are removed, not followed.
        files.remove_tree(path)?;
        Ok(lost)
    });
    removed?.value
}

/// Below the user's folder.
const LOCK: &str = "clean.lock";

/// The datasets that would be lost with a folder, if they may be.
fn lost_with(folder: &JobFolder, args: &CleanArgs) -> Result<Vec<String>> {
    let lost = unsaved(&**folder.dir.files(), folder.dir.path())?;
    if let ([first, ..], false) = (lost.as_slice(), args.discard_unsaved) {
        let datasets = count(lost.len() as u64, "dataset") + if lost.len() == 1 { " is" } else { " are" };
        bail!(
            "{datasets} in cache only, such as {first}. Save it with `scr postrun' for that directory and SCR_JOB_ID of the \
             allocation, or lose it with --discard-unsaved, as where the directory is gone"
        );
    }
    Ok(lost)
}

/// Removes the metrics of an allocation that has ended.
fn remove_metrics(env: &Env, params: &Params, user: &str, id: &str) {
    let Some(dir) = params.get(&param::METRICS_DIR) else { return };
    let files = &*env.files;
    for path in metrics::files_of(files, &dir, user, id).unwrap_or_default() {
        if let Err(error) = files.remove_if_there(&path) {
            warn(format_args!("not removed: {}", describe(&error)));
        }
    }
}

fn text(outcomes: &[Outcome], args: &CleanArgs) -> String {
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let removed = outcomes.iter().filter(|outcome| outcome.removed);
    let lost = |outcome: &Outcome| match outcome.lost.as_slice() {
        [] => String::new(),
        lost => format!(", and with it {}", joined(lost, ", ")),
    };
    let lines: String =
        removed.map(|outcome| format!("{verb} {}{}\n", outcome.path, lost(outcome))).collect();
    match (lines.is_empty(), outcomes.len() as u64) {
        (true, 0) => "nothing is left on this node\n".to_owned(),
        (true, kept) => format!("{} kept\n", count(kept, "folder")),
        _ => lines,
    }
}

/// The folder of an allocation, `<base>/<user>/scr.<allocation>`. It belongs to the user. Anybody may write to a base such as
/// `/dev/shm`, so everything below it is reached through an [`OwnedDir`].
struct JobFolder {
    job_id: String,
    /// The user's folder.
    parent: OwnedDir,
    dir: OwnedDir,
    /// The bases that the job has recorded there.
    recorded: BTreeSet<PathBuf>,
}

/// A search for the folders of allocations of this user, or of one of them.
struct Search<'a> {
    env: &'a Env,
    params: &'a Params,
    job_id: Option<&'a str>,
    /// Folders that others have planted in the place of the user's. They do not keep what is in other bases.
    refused: Vec<FsError>,
}

impl Search<'_> {
    /// The folders in every store and the control base, and in the bases that jobs have recorded. A folder that belongs to somebody
    /// else, or is a link, is none.
    ///
    /// # Errors
    /// A folder cannot be listed.
    fn folders(&mut self) -> Result<Vec<JobFolder>> {
        let mut bases = environment::bases(self.env, self.params, self.job_id.is_some())?;
        let mut folders = self.in_bases(&bases)?;
        let recorded = folders.iter().flat_map(|folder| folder.recorded.clone());
        let further: BTreeSet<_> = recorded.filter(|base| bases.insert(base.clone())).collect();
        folders.extend(self.in_bases(&further)?);
        // One base may have two paths.
        let mut seen = BTreeSet::new();
        let status = |folder: &JobFolder| self.env.files.status(folder.dir.path());
        folders.retain(|folder| status(folder).is_ok_and(|found| seen.insert(found.identity)));
        Ok(folders)
    }

    fn in_bases(&mut self, bases: &BTreeSet<PathBuf>) -> Result<Vec<JobFolder>> {
        let (user, uid) = (self.params.get(&param::USER_NAME), self.env.uid);
        let mut folders = Vec::new();
        for base in bases {
            let found = OwnedDir::find(&*self.env.files, base, Path::new(&user), uid);
            let Ok(Some(parent)) = found.map_err(|error| self.refused.push(error)) else { continue };
            let names = parent.files().list(parent.path());
            for name in names.or_cannot("list", parent.path())? {
                let job_id = name.to_str().and_then(|name| name.strip_prefix("scr."));
                let is_meant = |id: &&str| !id.is_empty() && self.job_id.is_none_or(|wanted| wanted == *id);
                let Some(job_id) = job_id.filter(is_meant).map(str::to_owned) else { continue };
                match parent.find_below(&name, uid) {
                    Ok(found) => folders.extend(found.map(|dir| {
                        let recorded = recorded_bases(&**dir.files(), dir.path());
                        JobFolder { job_id, parent: parent.clone(), dir, recorded }
                    })),
                    Err(error) => warn(format_args!("not checked: {}", describe(&error))),
                }
            }
        }
        Ok(folders)
    }
}

/// The users that have folders of allocations in these bases: the name of the folder, and who owns it.
fn users(env: &Env, bases: &BTreeSet<PathBuf>) -> BTreeMap<(String, u32), u32> {
    let mut users = BTreeMap::new();
    for base in bases {
        for name in env.files.list(base).unwrap_or_default() {
            let path = base.join(&name);
            let Ok(status) = env.files.status(&path) else { continue };
            let jobs = env.files.list(&path).unwrap_or_default();
            let is_dir = |job: &Path| env.files.status(&path.join(job)).is_ok_and(|it| it.kind == Kind::Dir);
            let is_job =
                |job: &PathBuf| job.to_str().is_some_and(|name| name.starts_with("scr.")) && is_dir(job);
            let is_of_scr = jobs.iter().any(is_job);
            if let (Kind::Dir, Some(name), true) = (status.kind, name.to_str(), is_of_scr) {
                // The folders of a user in several bases may have different groups.
                users.entry((name.to_owned(), status.uid)).or_insert(status.gid);
            }
        }
    }
    users
}

fn newest(files: &dyn Files, path: &Path) -> Option<SystemTime> {
    let status = files.status(path).ok()?;
    let below = (status.kind == Kind::Dir).then(|| files.list(path).ok()).flatten().unwrap_or_default();
    let seconds = u64::try_from(status.mtime.0).unwrap_or(0);
    let own = UNIX_EPOCH + Duration::from_secs(seconds);
    below.iter().filter_map(|name| newest(files, &path.join(name))).chain([own]).max()
}
