//! Whether an allocation may still run, according to its resource manager and to the user's processes on this node.
//!
//! If that is uncertain, it counts as running.

use super::{newest, JobFolder};
use crate::machine::{process, Manifests};
use crate::prelude::*;
use scr_core::cache::node_dir;
use scr_core::cache::part::{look_through, PartDir};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::SystemTime;

/// How an allocation was chosen.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Choice {
    /// It is the one that this command runs in, whose job has ended.
    Own,
    /// The user has named it. If no resource manager can tell, the user's word that it has ended counts.
    Named { has_ended: bool },
    /// The user has asked for all that are dead, so this one has to be known to be.
    AllDead,
}

/// The known facts of allocations and processes.
pub(super) struct Liveness {
    listed: Listed,
    env: Env,
    /// Variables that name the allocation of a process.
    variables: Vec<String>,
    processes: Vec<Process>,
    /// Until then, it looks again at processes that are in the way: some are just ending.
    look_again_until: Instant,
}

/// The answers of the resource managers on this node.
#[derive(Default)]
struct Listed {
    /// Allocations that have not ended, of all of them.
    live: HashSet<String>,
    /// Whether one has answered.
    answered: bool,
    /// Why one has not answered.
    silent: Option<String>,
}

/// A process of the user on this node.
struct Process {
    pid: u32,
    /// The allocations that it belongs to, as its environment and, where it runs scr, its settings say. Processes that have
    /// started this one, and those that read what it prints, are asked only what they have open.
    jobs: BTreeSet<String>,
    /// Files that it has open, and its current folder.
    open: Vec<PathBuf>,
}

impl Liveness {
    pub(super) fn find(env: &Env, manifests: &Manifests) -> Result<Self> {
        let mut variables = vec![param::JOB_ID.info().name.to_owned()];
        let mut listed = Listed::default();
        for manager in manifests.resource_managers() {
            variables.extend_from_slice(&manager.job_id.variables);
            if manager.live_jobs.command.first().is_some_and(process::is_program) {
                match manager.live_jobs.words(&manager.hidden(env)) {
                    Ok(ids) => {
                        listed.live.extend(ids);
                        listed.answered = true;
                    }
                    Err(error) => listed.silent = Some(format!("{error:#}")),
                }
            }
        }
        let processes = processes(env, &variables)?;
        let look_again_until = Instant::now() + Duration::from_secs(1);
        Ok(Self { listed, env: env.clone(), variables, processes, look_again_until })
    }

    /// Why the folders of an allocation must stay, if they must.
    ///
    /// # Errors
    /// The processes of this node cannot be listed.
    pub(super) fn in_use(
        &mut self,
        id: &str,
        folders: &[JobFolder],
        choice: Choice,
    ) -> Result<Option<InUse>> {
        let using = self.process_using(id, folders)?;
        let process = using.map(|pid| format!("process {pid} of allocation {id} runs on this node"));
        let holds =
            |part: PathBuf| format!("a process that cannot be seen from here holds {}", part.display());
        let why = process.or_else(|| held_part(folders).map(holds));
        let known = why.map(|why| (why, true));
        Ok(known.or_else(|| self.may_still_run(id, folders, choice)))
    }

    /// A process that uses an allocation, for as long as this looks.
    fn process_using(&mut self, id: &str, folders: &[JobFolder]) -> Result<Option<u32>> {
        let paths: Vec<_> =
            folders.iter().filter_map(|folder| fs::canonicalize(folder.dir.path()).ok()).collect();
        loop {
            let using = self.processes.iter().find(|process| process.uses(id, &paths));
            if using.is_none() || Instant::now() >= self.look_again_until {
                return Ok(using.map(|process| process.pid));
            }
            thread::sleep(Duration::from_millis(50));
            self.processes = processes(&self.env, &self.variables)?;
        }
    }

    /// Why an allocation that no process here uses counts as running, if it does.
    fn may_still_run(&self, id: &str, folders: &[JobFolder], choice: Choice) -> Option<InUse> {
        let known = |why: String| Some((why, true));
        let not_known = |why: &str| Some((why.to_owned(), false));
        if choice == Choice::Own {
            return None;
        }
        match self.listed.has_ended(id) {
            Ok(true) => return None,
            Ok(false) => {
                return known(format!("the resource manager says that allocation {id} has not ended"))
            }
            Err(_) if choice == (Choice::Named { has_ended: true }) || id == NO_ALLOCATION => (),
            Err(Some(why)) => return not_known(why),
            Err(None) if choice == Choice::AllDead => (),
            Err(None) => return not_known("no resource manager on this node lists such ids"),
        }
        let is_quiet = |folder: &JobFolder| {
            let idle = newest(&**folder.dir.files(), folder.dir.path())
                .and_then(|at| SystemTime::now().duration_since(at).ok());
            idle.is_some_and(|idle| idle >= LONG_IDLE)
        };
        if choice == Choice::AllDead && !folders.iter().all(is_quiet) {
            return not_known("something there changed within a day");
        }
        None
    }
}

/// A part of a dataset that a process holds. Those of a container may see other processes than these.
fn held_part(folders: &[JobFolder]) -> Option<PathBuf> {
    let held = |folder: &JobFolder| {
        let files = &**folder.dir.files();
        let places = node_dir::places(files, folder.dir.path()).unwrap_or_default();
        let parts = places.into_iter().flat_map(|place| {
            let parts = look_through(files, &place).parts;
            parts.into_iter().map(move |(id, rank)| PartDir::new(&place, id, rank))
        });
        parts.into_iter().find(|part| part.is_held(files)).map(|part| part.filemap())
    };
    folders.iter().find_map(held)
}

/// Why the folders of an allocation must stay, and whether it has surely not ended. Otherwise the user may know better.
type InUse = (String, bool);

impl Listed {
    /// Whether an allocation has ended, or else why that is not known, if a resource manager does not answer.
    fn has_ended(&self, id: &str) -> Result<bool, Option<&str>> {
        if self.live.contains(id) || array_of(id).is_some_and(|array| self.live.contains(&array)) {
            return Ok(false);
        }
        if let Some(why) = &self.silent {
            return Err(Some(why));
        }
        // A user may give an allocation any id. No resource manager can tell of one that is unlike its own.
        let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
        let is_alike = || self.live.iter().any(|listed| shape(listed) == shape(id));
        (self.answered && (is_number || is_alike())).then_some(true).ok_or(None)
    }
}

/// The array that an element such as `12[7].server` belongs to. PBS lists the array alone, as `12[].server`.
fn array_of(id: &str) -> Option<String> {
    let (array, rest) = id.split_once('[')?;
    let (_, server) = rest.split_once(']')?;
    Some(format!("{array}[]{server}"))
}

/// The common form of ids of one resource manager: `12.server` and `7.server`, not `12.run`.
fn shape(id: &str) -> Vec<&str> {
    id.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
}

/// The id of a job that runs under no resource manager.
pub(super) const NO_ALLOCATION: &str = "defjobid";

impl Process {
    fn uses(&self, id: &str, paths: &[PathBuf]) -> bool {
        self.jobs.contains(id) || self.open.iter().any(|open| paths.iter().any(|path| open.starts_with(path)))
    }
}

/// An allocation that no resource manager knows is dead if nothing has changed for so long.
const LONG_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of a process, from its folder below `/proc`.
fn number(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}

/// The processes of this user. Those of this command at the same time are none of any job.
fn processes(env: &Env, variables: &[String]) -> Result<Vec<Process>> {
    let (own, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
    let around: HashSet<u32> = ancestors(own).into_iter().chain(readers_of(own)).collect();
    let mut processes = Vec::new();
    for dir in paths_in(Path::new("/proc"))? {
        let Some(pid) = number(&dir) else { continue };
        let is_of_user = dir.symlink_metadata().is_ok_and(|status| status.uid() == uid);
        if pid == own || !is_of_user || cleans(pid) || ancestors(pid).into_iter().any(cleans) {
            continue;
        }
        let link = |name: &str| fs::read_link(dir.join(name)).unwrap_or_default();
        let maps = fs::read_to_string(dir.join("maps")).unwrap_or_default();
        let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
        let mut open: Vec<_> = mapped.collect();
        let jobs = match around.contains(&pid) {
            true => BTreeSet::new(),
            false => jobs(env, &dir, variables, runs_scr(&link("exe"), &open)),
        };
        open.push(link("cwd"));
        let files = paths_in(&dir.join("fd")).unwrap_or_default();
        open.extend(files.iter().filter_map(|file| fs::read_link(file).ok()));
        processes.push(Process { pid, jobs, open });
    }
    Ok(processes)
}

/// Whether a process is a command of scr, or has the library mapped, or one of its plugins: a program may hold the library itself.
fn runs_scr(program: &Path, mapped: &[PathBuf]) -> bool {
    let is_library = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix("libscr").unwrap_or_default();
        rest.starts_with(['.', '_']) && rest.contains(".so")
    };
    is_scr(program) || mapped.iter().any(|path| is_library(path))
}

/// Whether a process is this command.
fn cleans(pid: u32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1);
    fs::read_link(process.join("exe")).is_ok_and(|program| is_scr(&program))
        && words.find(|word| !word.starts_with(b"-")) == Some(b"clean")
}

fn is_scr(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "scr")
}

/// The allocations that a process belongs to: those that variables name, and the one that scr would find there.
fn jobs(env: &Env, process: &Path, variables: &[String], runs_scr: bool) -> BTreeSet<String> {
    let text = fs::read(process.join("environ")).unwrap_or_default();
    let pairs =
        text.split(|byte| *byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let its = Env {
        variables: pairs.collect(),
        current_dir: fs::read_link(process.join("cwd")).unwrap_or_else(|_| env.current_dir.clone()),
        ..env.clone()
    };
    let named = variables.iter().filter_map(|name| its.variable(name)).map(str::to_owned);
    let by_settings = runs_scr.then(|| environment::params(&its).get(&param::JOB_ID));
    named.chain(by_settings).collect()
}

fn ancestors(mut pid: u32) -> HashSet<u32> {
    let mut ancestors = HashSet::new();
    while let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        match parent {
            Some(parent) if parent > 0 && ancestors.insert(parent) => pid = parent,
            _ => break,
        }
    }
    ancestors
}

/// The processes after this one in its pipeline: those that read its standard output, or that of one of them.
fn readers_of(own: u32) -> HashSet<u32> {
    let file = |pid: u32, number: u32| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok();
    let pipe =
        |pid: u32, number: u32| file(pid, number).filter(|path| path.to_string_lossy().starts_with("pipe:"));
    let processes = paths_in(Path::new("/proc")).unwrap_or_default();
    let pids = processes.iter().filter_map(|process| number(process));
    let inputs: Vec<_> = pids.filter_map(|pid| Some((pid, pipe(pid, 0)?))).collect();
    let mut readers = HashSet::new();
    let mut writers = vec![own];
    while let Some(writer) = writers.pop() {
        for printed in [pipe(writer, 1), pipe(writer, 2)].into_iter().flatten() {
            let its = inputs.iter().filter(|(pid, input)| *input == printed && *pid != own);
            writers.extend(its.map(|(pid, _)| *pid).filter(|pid| readers.insert(*pid)));
        }
    }
    readers
}
