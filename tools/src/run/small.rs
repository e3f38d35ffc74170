//! Small commands that scripts call: `scr_print`, `scr_crc32`, `scr_nodes_file`, `scr_list_dir`,
//! `scr_should_exit` and `scr_kill_jobstep`.

use super::queries::{bad, halt_run, known_down};
use super::{JobArgs, JobContext};
use crate::machine::{current_job_id, good_nodes, process, Manifests};
use crate::prelude::*;
use scr_base::fs::verify::checksum;
use scr_base::fs::{FsError, How};
use scr_ops::scrub::filemap;
use scr_prefix::Nodes;

/// Which file to print.
#[derive(Args)]
pub(crate) struct PrintArgs {
    /// A file of scr: an index, a summary, a flush file, a halt file, a filemap and the like
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print a value beside its key, all sorted, or every key on a line of its own
    #[arg(short, long, value_parser = ["keyval", "tree"], default_value = "keyval", overrides_with = "mode")]
    mode: String,
}

/// `scr print`.
pub(crate) fn print_file(args: &PrintArgs) -> Result<Answer> {
    let env = environment::env()?;
    let (files, path) = (&*env.files, env.current_dir.join(&args.file));
    let tree = match files.read_tree(&path) {
        Err(error @ FsError::Tree { .. }) => {
            Some(filemap(files, &path)?).filter(|tree| tree.get("RECORD").is_some()).ok_or(error)?
        }
        found => found?.with_context(|| format!("there is no file {}", args.file.display()))?,
    };
    print(if args.mode == "tree" { tree.to_text() } else { keyval(&tree, "  ") })
}

fn keyval(tree: &KvTree, indent: &str) -> Vec<u8> {
    let mut sorted: Vec<_> = tree.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    let of_key = |(key, below): (&[u8], &KvTree)| {
        let only = below.iter().next().filter(|(_, under)| below.len() == 1 && under.is_empty());
        match only {
            Some((value, _)) => [indent.as_bytes(), key, b" = ", value, b"\n"].concat(),
            None => [indent.as_bytes(), key, b"\n", &keyval(below, &format!("{indent}  "))].concat(),
        }
    };
    sorted.into_iter().flat_map(of_key).collect()
}

/// Bytes that are read at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// The files.
#[derive(Args)]
pub(crate) struct Crc32Args {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// `scr crc32`.
pub(crate) fn crc32(args: &Crc32Args) -> Result<Answer> {
    let files = environment::env()?.files;
    for path in &args.files {
        let file = files.open(path, How::Read).or_cannot("read", path)?;
        print(format!("{:08x}\n", checksum(&*file, path, BLOCK_BYTES)?))?;
    }
    Ok(Answer::Yes)
}

/// The prefix directory.
#[derive(Args)]
pub(crate) struct NodesFileArgs {
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(short, long, visible_alias = "prefix", value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// `scr nodes-file`.
pub(crate) fn nodes_file(args: &NodesFileArgs) -> Result<Answer> {
    let mut env = environment::env()?;
    let prefix = environment::prefix(&mut env, args.dir.as_deref())?;
    print_line(Nodes::read(&*env.files, &prefix)?.map(|Nodes(nodes)| nodes))
}

/// Which directories.
#[derive(Args)]
pub(crate) struct ListDirArgs {
    /// The places where nodes keep datasets, or the one where processes of a job exchange control files
    #[arg(value_parser = ["cache", "control"])]
    kind: String,
    /// Print the base folders, without user and allocation
    #[arg(short, long)]
    base: bool,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

/// `scr list-dir`.
pub(crate) fn list_dir(args: &ListDirArgs) -> Result<Answer> {
    let env = environment::env_at(args.prefix.as_deref())?;
    let params = environment::params(&env);
    let descriptors = environment::descriptors(&params)?;
    let bases: BTreeSet<_> = match &*args.kind {
        "control" => [&descriptors.control.path].into(),
        _ => descriptors.enabled().map(|store| &store.path).collect(),
    };
    ensure!(!bases.is_empty(), "no store is enabled");
    let mut dirs: Vec<_> = bases.iter().map(|base| base.display().to_string()).collect();
    if !args.base {
        let id = current_job_id(&env, &params, &Manifests::load(&env)?)?;
        let below = Path::new(&params.get(&param::USER_NAME)).join(format!("scr.{id}"));
        dirs = bases.iter().map(|base| base.join(&below).display().to_string()).collect();
    }
    print_line(Some(dirs.join(" ")))
}

/// Which job.
#[derive(Args)]
pub(crate) struct ShouldExitArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Count these nodes as unusable, without asking them
    #[arg(long, value_name = "NODES")]
    down: Option<String>,
    /// How many nodes a run needs [default: SCR_MIN_NODES, or as many as the last run had]
    #[arg(long, value_name = "N")]
    min_nodes: Option<u64>,
    /// How often the job may still be started; 0 means that it must not
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Print the reason in the words of C SCR
    #[arg(short, long)]
    verbose: bool,
}

/// `scr should-exit`: whether a script must not start the job again, and why.
pub(crate) fn should_exit(args: &ShouldExitArgs) -> Result<Answer> {
    let job = JobContext::on(&args.job, None, false)?;
    let now = environment::now(&job.env);
    let end = job.allocation.end();
    let halt = Halt::in_force(&*job.env.files, &job.prefix, job.params.get(&param::HALT_SECONDS))?;
    let why = match halt.reason(now, end) {
        Some(reason) => Some(format!("Halt condition detected: {}", halt_run(&reason, now))),
        None if job.allocation.is_here_alone() => None,
        None => too_few_nodes(args, &job)?,
    };
    let why = why.or((args.runs == Some(0)).then(|| "runs_remaining=0".to_owned()));
    why.iter().filter(|_| !args.verbose).for_each(warn);
    print_lines(why.iter().filter(|_| args.verbose))?;
    Ok(Answer::from(why.is_some()))
}

fn too_few_nodes(args: &ShouldExitArgs, job: &JobContext) -> Result<Option<String>> {
    let known = known_down(job, args.down.as_deref())?;
    let bad = if classic::is_meant() { known } else { bad(job, &known)? };
    let left = good_nodes(&job.allocation, &bad).len() as u64;
    let last = Nodes::read(&*job.env.files, &job.prefix)?.map(|Nodes(nodes)| u64::from(nodes));
    let needed = args.min_nodes.or(job.params.get(&param::MIN_NODES)).or(last);
    let needed = needed.unwrap_or(job.allocation.nodes.len() as u64);
    Ok((left < needed).then(|| format!("nodes_remaining={left} < nodes_needed={needed}")))
}

/// Which step of a job.
#[derive(Args)]
pub(crate) struct KillJobstepArgs {
    /// The id of the job step
    #[arg(short, long = "jobStepId", visible_alias = "job-step-id", value_name = "ID")]
    jobstepid: String,
    /// The resource manager [default: the one whose variables are set]
    #[arg(long, value_name = "NAME")]
    resource_manager: Option<String>,
}

/// `scr kill-jobstep`.
pub(crate) fn kill_jobstep(args: &KillJobstepArgs) -> Result<Answer> {
    let env = environment::env()?;
    let manifests = Manifests::load(&env)?;
    let manager = manifests.resource_manager(args.resource_manager.as_deref(), &env)?;
    let step = args.jobstepid.as_str();
    let (id, name) = (manager.step_id, &manager.name);
    ensure!(id.allows(step), "`{step}' is no id of a job step; with {name} it is {}", id.shape());
    let command: Vec<_> = manager.kill_step.iter().map(|word| word.replace("{step}", step)).collect();
    let missing = "does not say how to end a job step; add kill-step to its file";
    ensure!(!command.is_empty(), "the description of {name} {missing}");
    process::output_of(&command, &manager.hidden(&env), LONGEST_KILL)?;
    Ok(Answer::Yes)
}

/// How long a resource manager may take to answer.
const LONGEST_KILL: Duration = Duration::from_secs(60);
