//! `scr clean`: removes the cache and control folders that dead allocations of the user have left on this node, for epilogs
//! and workstations.
//!
//! It never touches a folder of another user, nor one of an allocation that may still run. A dataset that is in cache only
//! is kept unless a flag gives it up.
//!
//! - `folders`: the folders of allocations, and their safe removal
//! - `in_use`: whether an allocation may still run

mod folders;
mod in_use;

use crate::environment;
use crate::machine::{current_job_id, Manifests};
use crate::output::{count, show, warn, Answer};
use anyhow::{ensure, Context, Result};
use clap::Args;
use folders::JobFolder;
use in_use::{Choice, Liveness, NO_ALLOCATION};
use scr_base::env::Env;
use scr_config::param::{self, Params};
use scr_core::metrics;
use scr_ops::unsaved;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "\
Without --allocation and --dead: the allocation that this command runs in, as in an epilog, or outside of any one `defjobid'. \
Run it as the user whose job has ended. With --dead an allocation is dead if the resource manager no longer lists it and no process here uses it; where no \
resource manager knows it, its folders must also be unchanged for a day.

Exit codes: 0 nothing is left that was to be removed; 1 something was kept, with --dead something of a dead allocation; 2 error.";

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

/// The outcome for a folder.
struct Outcome {
    folder: JobFolder,
    /// Why it was kept, and whether that leaves something to do: an allocation that still runs does not, where all dead ones were
    /// asked for.
    kept: Option<(String, bool)>,
}

/// Runs the command.
pub(crate) fn run(args: &CleanArgs) -> Result<Answer> {
    let env = environment::quiet_env()?;
    environment::expect_places(&env)?;
    let params = environment::params(&env);
    if args.all_users {
        return for_all_users(&env, &params, args.allocation.as_deref());
    }
    let manifests = Manifests::load(&env)?;
    let (choice, wanted) = match (&args.allocation, args.dead) {
        (Some(id), _) => (Choice::Named { has_ended: args.ended }, Some(id.clone())),
        (None, true) => (Choice::AllDead, None),
        (None, false) => (Choice::Own, Some(current_job_id(&env, &params, &manifests)?)),
    };
    let mut by_job: BTreeMap<String, Vec<JobFolder>> = BTreeMap::new();
    let mut refused = Vec::new();
    for folder in folders::find(&env, &params, wanted.as_deref(), &mut refused)? {
        by_job.entry(folder.job_id.clone()).or_default().push(folder);
    }
    let mut liveness = Liveness::find(&env, &manifests)?;
    let mut outcomes = Vec::new();
    let mut may_have_ended = Vec::new();
    for (id, folders) in by_job {
        let in_use = liveness.in_use(&id, &folders, choice)?;
        may_have_ended.extend(in_use.as_ref().filter(|in_use| !in_use.is_known).map(|_| id.clone()));
        let user = folders.first().and_then(JobFolder::user);
        let first = outcomes.len();
        for folder in folders {
            let kept = match &in_use {
                Some(in_use) => Some((in_use.why.clone(), !args.dead)),
                None => remove(&folder, args).err().map(|error| (format!("{error:#}"), true)),
            };
            outcomes.push(Outcome { folder, kept });
        }
        if !args.dry_run && outcomes[first..].iter().all(|outcome| outcome.kept.is_none()) {
            user.iter().for_each(|user| remove_metrics(&env, &params, user, &id));
        }
    }
    let mut kept: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for outcome in &outcomes {
        let path = || outcome.folder.path().display().to_string();
        outcome.kept.iter().for_each(|(why, _)| kept.entry(why).or_default().push(path()));
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
    show(
        args.json,
        json!({ "folders": outcomes.iter().map(json).collect::<Vec<_>>() }),
        text(&outcomes, args),
    )?;
    if let Some(error) = refused.into_iter().next() {
        return Err(error.into());
    }
    Ok(Answer::from(!outcomes.iter().any(|outcome| matches!(outcome.kept, Some((_, true))))))
}

/// Runs this command once for each user who has folders on this node, with the rights of that user, so that nothing that a user
/// has planted leads anywhere else.
fn for_all_users(env: &Env, params: &Params, job_id: Option<&str>) -> Result<Answer> {
    ensure!(rustix::process::geteuid().is_root(), "--all-users is for root, who may act for other users");
    let program = environment::program()?;
    let arguments = || std::env::args_os().skip(1).filter(|word| word != "--all-users");
    let mut worst = 0;
    for (user, uid, gid) in folders::users(env, &folders::bases(env, params, job_id)?) {
        let mut command = Command::new(&program);
        command.args(arguments()).uid(uid).gid(gid).current_dir("/").stdin(Stdio::null());
        command.env("USER", &user).env("SCR_USER_NAME", environment::as_setting(&user));
        let status = command.status().with_context(|| format!("cannot act as the user of {user}"))?;
        worst = worst.max(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ERROR));
    }
    Ok(Answer::Code(worst))
}

/// The exit code of an error.
const ERROR: u8 = 2;

/// Removes a folder, or finds out that it can be removed.
fn remove(folder: &JobFolder, args: &CleanArgs) -> Result<()> {
    let lost = unsaved(&**folder.files(), folder.path())?;
    if let ([first, ..], false) = (lost.as_slice(), args.discard_unsaved) {
        anyhow::bail!(
            "{} in cache only, such as {}. Save it with `scr copy' and `scr index --build', or lose it with --discard-unsaved",
            if lost.len() == 1 { "1 dataset is".to_owned() } else { format!("{} datasets are", lost.len()) },
            first
        );
    }
    if !args.dry_run {
        folder.remove()?;
    }
    Ok(())
}

/// Removes the metrics of an allocation that has ended.
fn remove_metrics(env: &Env, params: &Params, user: &str, id: &str) {
    let Some(dir) = params.get(&param::METRICS_DIR) else { return };
    let files = &*env.files;
    for path in metrics::files_of(files, &dir, user, id).unwrap_or_default() {
        if let Err(error) = files.remove_file(&path) {
            warn(format_args!("{} cannot be removed: {error}", path.display()));
        }
    }
}

fn text(outcomes: &[Outcome], args: &CleanArgs) -> String {
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let removed = outcomes.iter().filter(|outcome| outcome.kept.is_none());
    let lines: String =
        removed.map(|outcome| format!("{verb} {}\n", outcome.folder.path().display())).collect();
    match (lines.is_empty(), outcomes.len() as u64) {
        (true, 0) => "nothing is left on this node\n".to_owned(),
        (true, kept) => format!("{} kept\n", count(kept, "folder")),
        _ => lines,
    }
}

fn json(outcome: &Outcome) -> Value {
    json!({
        "path": outcome.folder.path().display().to_string(),
        "allocation": outcome.folder.job_id,
        "removed": outcome.kept.is_none(),
        "kept": outcome.kept.as_ref().map(|(why, _)| why),
    })
}
