//! `scr copy`, and `scr_copy`: saves this node's parts of a dataset from cache to the prefix directory, when the job is dead. It
//! runs on every remaining node; then `scr index --build` runs once. See docs/user/save-a-dead-job.md.
//!
//! Exit codes: 0 all that is here is saved, 1 something is missing or nothing is here, 2 an error.

use crate::flush_file;
use crate::machine::print_answer;
use crate::prelude::*;
use crate::progress::{Heartbeat, Progress};
use scr_base::fs::FsError;
use scr_core::scavenge::{Copied, CopiedPart, Copier};
use scr_core::{job_folder, recorded_bases};
use std::sync::atomic::{AtomicU64, Ordering};

/// The dataset to copy, and the places to copy from.
#[derive(Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: environment::PrefixArgs,
    /// A cache directory of the job, `<base>/<user>/scr.<allocation>`; may be repeated [default: those of this allocation]
    #[arg(long, visible_alias = "cntldir", value_name = "DIR")]
    cache: Vec<PathBuf>,
    /// How many bytes to copy at a time [default: SCR_FILE_BUF_SIZE]
    #[arg(long, value_name = "BYTES")]
    buf: Option<u64>,
    /// How many ranks' parts to copy at a time [default: the number of processors, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Accepted for scripts; scr always computes checksums
    #[arg(long)]
    crc: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a line from time to time while data moves, and then the result, for a waiting process
    #[arg(long, hide = true)]
    heartbeat: bool,
}

/// Which dataset.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The id of the dataset in cache, as `scr flush-file` lists it
    #[arg(long, value_name = "ID")]
    id: Option<u64>,
    /// The newest checkpoint that this allocation has, as `scr flush-file --latest` prints it
    #[arg(long)]
    latest: bool,
}

/// Runs the command.
pub(crate) fn run(args: &CopyArgs) -> Result<Answer> {
    let mut env = environment::env()?;
    let prefix = environment::prefix(&mut env, args.place.given())?;
    let params = environment::params_of(&env, &prefix);
    let id = args.which.id.map_or_else(|| flush_file::latest(&env, &prefix), Ok)?;
    let caches = Caches::find(&env, &params, &args.cache)?;
    let node = params.get(&param::NODE_NAME);
    let progress = Progress::new(format!("dataset {id}"));
    let (heartbeat, moved) = (Heartbeat::new(args.heartbeat), AtomicU64::new(0));
    let copier = Copier {
        files: &*env.files,
        prefix: &prefix,
        uid: env.uid,
        node: &node,
        block_bytes: args.buf.unwrap_or_else(|| params.get(&param::FILE_BUF_SIZE)),
        width: args.threads.unwrap_or_else(|| env.processors.min(MOST_THREADS)),
        progress: &|bytes, total| {
            progress.set_length(total);
            progress.add(bytes);
            let moved = moved.fetch_add(bytes, Ordering::Relaxed) + bytes;
            heartbeat.report(|| moved);
        },
    };
    let copied = copier.dataset(&caches.found, id);
    drop(progress);
    let mut copied = copied.or_cannot("copy to", prefix.dir())?;
    copied.passed_over.extend(caches.refused);
    if args.heartbeat {
        return print_answer(&copied);
    }
    let paths: Vec<_> = caches.paths.iter().map(|path| path.display().to_string()).collect();
    let wrong = warnings(&copied);
    wrong.iter().for_each(warn);
    if copied.dataset.is_none() && wrong.is_empty() {
        warn(format_args!(
            "there is nothing of dataset {id} in {}; `scr flush-file' shows the datasets of the allocation, and --cache names \
             another directory",
            paths.join(", ")
        ));
    }
    show(args.json, json(&node, id, &paths, &copied), text(&node, &copied), copied.is_whole())
}

/// More at a time from each of many nodes make a file system no faster.
const MOST_THREADS: u32 = 8;

/// The places to look for parts of the dataset.
#[derive(Default)]
pub(crate) struct Caches {
    /// All paths that were tried.
    paths: Vec<PathBuf>,
    pub(crate) found: Vec<OwnedDir>,
    /// Why some are not used. One that another user could have planted keeps nobody from saving what lies in the others.
    pub(crate) refused: Vec<String>,
}

impl Caches {
    /// The cache directories of this allocation on this node where none are given, also those that the job has recorded.
    pub(crate) fn find(env: &Env, params: &Params, given: &[PathBuf]) -> Result<Self> {
        let mut caches = Self::default();
        for dir in given {
            let dir = param::normalise(&env.current_dir.join(dir));
            let found = OwnedDir::at(&*env.files, &dir, env.uid);
            caches.take(dir, found.map(Some));
        }
        if given.is_empty() {
            let (descriptors, below) = (environment::descriptors(params)?, job_folder(params));
            let find = |base: &Path| OwnedDir::find(&*env.files, base, &below, env.uid);
            let mut bases: BTreeSet<_> = descriptors.enabled().map(|store| store.path.clone()).collect();
            let known = environment::bases(env, params, true)?;
            for folder in known.iter().filter_map(|base| find(base).ok()?) {
                bases.extend(recorded_bases(&**folder.files(), folder.path()));
            }
            bases.iter().for_each(|base| caches.take(base.join(&below), find(base)));
        }
        Ok(caches)
    }

    fn take(&mut self, path: PathBuf, found: Result<Option<OwnedDir>, FsError>) {
        // Another user may have taken the usual one.
        self.paths.push(found.iter().flatten().next().map_or(path, |found| found.path().to_owned()));
        match found {
            Ok(found) => self.found.extend(found),
            Err(error) if error.is_not_found() => (),
            Err(error) => self.refused.push(describe(&error)),
        }
    }
}

/// The problems, a line each.
pub(crate) fn warnings(copied: &Copied) -> Vec<String> {
    let wrong = copied.parts.iter().flat_map(|part| {
        part.wrong
            .iter()
            .map(|why| format!("the part of rank {} could not be copied whole: {why}", part.rank))
    });
    copied.passed_over.iter().cloned().chain(wrong).collect()
}

fn text(node: &str, copied: &Copied) -> String {
    let Some((id, name)) = &copied.dataset else { return String::new() };
    let label = format!("{}: dataset {id} `{}'", node, String::from_utf8_lossy(name));
    if copied.already {
        return format!("{label} is complete in the prefix directory already; nothing is copied\n");
    }
    let ranks = joined(&copied.elsewhere, ", ");
    let elsewhere =
        if ranks.is_empty() { ranks } else { format!("; other nodes have copied the ranks {ranks}") };
    let sum = |of: fn(&CopiedPart) -> u64| copied.parts.iter().map(of).sum();
    let (files, bytes) = (sum(|part| part.files), sum(|part| part.bytes));
    let ranks = copied.parts.iter().map(|part| part.rank);
    let (files, bytes) = (count(files, "file"), amount(bytes));
    format!("{label}: copied {files} ({bytes}) of the ranks {}{elsewhere}\n", joined(ranks, ", "))
}

/// `whole`: whether the prefix directory has all that this node had.
fn json(node: &str, asked: u64, caches: &[String], copied: &Copied) -> Value {
    let more = json!({
        "node": node,
        "id": asked,
        "id_in_prefix": copied.dataset.as_ref().map(|(id, _)| id),
        "name": copied.dataset.as_ref().map(|(_, name)| String::from_utf8_lossy(name)),
        "whole": copied.is_whole(),
        "caches": caches,
    });
    merged([json!(copied), more])
}
