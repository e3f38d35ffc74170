//! The events of a history, and the actions of the application in one of its runs.

use super::super::world::{contents, path_of, Application};
use super::POOL;
use proptest::prelude::prop;
use scr_base::env::Link;
use scr_comm::Rank;
use scr_core::session::{Error, OutputFlags, Session};

/// The settings of a run.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) other_base: bool,
    pub(super) other_prefix: bool,
    pub(super) scheme: &'static str,
    pub(super) keep: u8,
    pub(super) flush: u8,
    pub(super) detached: bool,
    pub(super) bypass: bool,
    pub(super) fetch_bypass: bool,
    pub(super) sums: bool,
    /// Whether checksums are compared of what is flushed and fetched.
    pub(super) flush_sums: bool,
    pub(super) global: bool,
    /// How many checkpoints stay in the prefix directory; 0 for all.
    pub(super) window: u8,
    pub(super) drop_after_current: bool,
    /// Whether checkpoints are flushed in containers.
    pub(super) aggregate: bool,
    /// Whether they are protected behind the application.
    pub(super) behind: bool,
    /// Whether the application can restart with any number of ranks.
    pub(super) any_ranks: bool,
    /// How threads of ranks talk.
    pub(super) link: Link,
}

/// One run of the job, and what happens to its nodes afterwards.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) settings: Settings,
    /// The node of every rank.
    pub(super) nodes: Vec<usize>,
    pub(super) reaction: Reaction,
    pub(super) steps: Vec<Step>,
    pub(super) finalizes: bool,
    pub(super) dies: Option<Death>,
    pub(super) stumbles: Option<Stumble>,
    pub(super) meets: Option<Meeting>,
    /// The power fails when the run is over, or dead.
    pub(super) outage: Option<Outage>,
    /// The checkpoint that the user names with `SCR_CURRENT`.
    pub(super) wants: Option<u8>,
    pub(super) after: Vec<Event>,
    pub(super) probe: Probe,
}

impl Run {
    /// The nodes of a run of this many ranks: the same as far as they go.
    pub(super) fn nodes_of(&self, ranks: usize) -> Vec<usize> {
        let free = (0..POOL).filter(|node| !self.nodes.contains(node));
        self.nodes.iter().copied().chain(free).cycle().take(ranks).collect()
    }

    /// A run on these nodes that takes one checkpoint after the other, until none is left. None of them leaves the prefix
    /// directory before that for one that this run flushes.
    pub(super) fn that_takes_all(&self, nodes: Vec<usize>) -> Self {
        Self {
            settings: Settings { window: 0, ..self.settings.clone() },
            nodes,
            reaction: Reaction::RefuseAll,
            steps: Vec::new(),
            finalizes: false,
            dies: None,
            stumbles: None,
            meets: None,
            outage: None,
            wants: None,
            after: Vec::new(),
            ..self.clone()
        }
    }
}

/// Another event that could follow a run. A copy of the world shows its effect.
#[derive(Debug, Clone, Copy)]
pub(super) enum Probe {
    /// A run on the same nodes, or with another one in the place of that of this rank.
    Here { lost: Option<usize> },
    /// A run on the nodes of the run before.
    Before,
    /// A run of this many ranks on the same nodes, or on more or fewer.
    Ranks(usize),
    /// A run that ends normally, after which its nodes are lost. The user may name a checkpoint with `SCR_CURRENT`.
    Later { wants: Option<u8> },
}

/// The world stops at the operation, of all in an area that change anything, that has this number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Death {
    pub(super) at: u64,
    pub(super) area: Area,
    pub(super) torn: bool,
}

/// Which operations are counted, and may fail.
#[derive(Debug, Clone, Copy)]
pub(super) enum Area {
    All,
    /// The files of checkpoints in the prefix directory.
    Data,
    /// scr's records there.
    Records,
    /// The record of this name there.
    Record(&'static str),
    Cache,
    /// The filemaps there.
    Filemaps,
    /// One file of a checkpoint in the prefix directory, whoever uses it: of this rank, and with this number.
    File(usize, usize),
    /// All files of the checkpoint that the index offers first, whoever uses them.
    First,
}

impl Area {
    /// Whether all ranks have the same trouble there.
    pub(super) fn is_of_all_ranks(self) -> bool {
        matches!(self, Self::File(..) | Self::First)
    }
}

/// File operations of one rank that fail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stumble {
    pub(super) rank: usize,
    /// Which of the rank's own operations is the first.
    pub(super) at: u64,
    /// How many fail in a row.
    pub(super) many: u64,
    /// Whether operations that change nothing are counted, and may fail.
    pub(super) reads: bool,
    pub(super) area: Area,
    /// Whether the error is one that may pass.
    pub(super) passes: bool,
    /// Whether half of the bytes of a write that fails are written.
    pub(super) tears: bool,
}

/// A command changes the index, and the list of what is left to flush, while rank 0 has been stopped for so long that its lock is
/// taken away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meeting {
    /// Before which of the operations with which rank 0 changes these files.
    pub(super) at: u64,
}

/// A power failure: the prefix directory may lose everything that is not on stable storage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    pub(super) seed: u64,
    /// Whether the nodes keep what they have of their files; otherwise they store in memory.
    pub(super) disks: bool,
}

/// The application's reaction to a checkpoint that it can restart from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reaction {
    Take,
    /// This rank calls the first one invalid.
    Refuse(usize),
    /// The first rank calls each of them invalid.
    RefuseAll,
    /// It never asks.
    Ignore,
}

/// A thing that the application does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// A checkpoint, which may be output as well; it is called invalid by the rank that is `bad`.
    Checkpoint {
        name: u8,
        output: bool,
        bad: Option<usize>,
    },
    /// Output that is no checkpoint.
    Output {
        name: u8,
    },
    Delete {
        name: u8,
    },
    Drop {
        name: u8,
    },
    Current {
        name: u8,
    },
}

/// A thing that happens between two runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A node goes with all it stores.
    Lose(usize),
    /// All nodes go.
    LoseAll,
    /// A byte of a file in cache changes.
    Flip(prop::sample::Index),
    /// A file in cache loses its end.
    Cut(prop::sample::Index),
    /// The same on this node.
    CutOn(usize, prop::sample::Index),
    /// A byte of a flushed file changes; a job on other nodes may have noticed it.
    FlipInPrefix { which: prop::sample::Index, noticed: bool },
    /// A job with C SCR begins a dataset of this name, and dies once it has written over a file of the checkpoint that was in its
    /// folder.
    WriteOver(u8),
    /// A command takes the datasets of this name out of the index.
    DropFromIndex(u8),
    /// A command makes the dataset of this name current.
    MakeCurrent(u8),
}

/// The outcome of a step on a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Came {
    /// It was not begun.
    Short(String),
    /// Not all was written, and this rank has said so.
    Invalid(String),
    /// The last call failed.
    Failed(String),
    Good,
}

/// A rank's view of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) began: bool,
    /// The checkpoints that were handed out, in order: the name, and what this rank read.
    pub(super) handed: Vec<(String, Read)>,
    pub(super) came: Vec<Came>,
    pub(super) finalized: bool,
    /// Whether a call that is to give a checkpoint has failed, of which the application learns from the call.
    pub(super) failed: bool,
}

/// The files of its own that a rank found in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Read {
    /// No file.
    Nothing,
    /// All files of this version, and no other.
    Version(u64),
    Wrong(String),
}

pub(super) fn name_of(name: u8) -> String {
    format!("ckpt.{name}")
}

/// The folder of a dataset's files in the prefix directory. Two names have the same one.
pub(super) fn folder_of(name: &str) -> &str {
    match name {
        "ckpt.2" => "ckpt.1",
        own => own,
    }
}

pub(super) fn file_name(name: &str, rank: Rank, number: usize) -> String {
    format!("{}/rank_{rank}.{number}", folder_of(name))
}

/// The lengths of a rank's files in a version. Every other version has the same ones, so that its files may be taken for theirs.
pub(super) fn sizes(version: u64, rank: Rank) -> Vec<usize> {
    let mut state =
        (version % 2).wrapping_mul(31).wrapping_add(u64::from(rank.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29;
    let count = if rank.0 == 0 { state % 2 + 1 } else { state % 4 };
    (0..count).map(|number| (state >> (8 + 12 * number)) as usize % 700 + 16).collect()
}

/// Whether the files of a version have the times of those that they are written over, as where a clock has not gone on since.
fn keeps_time(version: u64) -> bool {
    version % 4 < 2
}

/// Errors of a rank that stumbles, or that runs in a world that has stopped.
const TROUBLE: [&str; 4] =
    ["other error", "timed out", "the world has stopped", "has not come from another node"];

/// Takes part in a run as one rank; versions count up from `first`, one for each step.
pub(super) fn play(
    application: Result<Application, Error>,
    run: &Run,
    known: &[(u64, String)],
    first: u64,
) -> Seen {
    let mut seen = Seen::default();
    let Ok(mut application) = application else { return seen };
    seen.began = true;
    if restart(&mut application, run, known, &mut seen).is_err() {
        seen.failed = true;
        return seen;
    }
    for (number, step) in run.steps.iter().enumerate() {
        // The time identifies the version.
        application.wait(if number == 0 { first } else { 1 });
        let came = take(&mut application, step, first + number as u64);
        let is_short = matches!(came, Came::Short(_));
        seen.came.push(came);
        if is_short {
            return seen;
        }
    }
    seen.finalized = run.finalizes && application.finalize().is_ok();
    seen
}

fn restart(
    application: &mut Application,
    run: &Run,
    known: &[(u64, String)],
    seen: &mut Seen,
) -> Result<(), Error> {
    if matches!(run.reaction, Reaction::Ignore) {
        return Ok(());
    }
    while let Some(name) = application.session().have_restart()? {
        application.session().start_restart()?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let read = read(application, run, &name, known);
        let (rank, is_first) = (application.rank.index(), seen.handed.is_empty());
        let refused = match run.reaction {
            Reaction::Refuse(who) => who == rank && is_first,
            Reaction::RefuseAll => rank == 0,
            Reaction::Take | Reaction::Ignore => false,
        };
        seen.handed.push((name, read));
        if is_first && matches!(run.reaction, Reaction::Refuse(_)) {
            // It has tried names that nobody wrote, and then its refusal does not count.
            application.session().complete_restart(true)?;
            application.session().start_restart()?;
        }
        if application.session().complete_restart(!refused).is_ok() {
            return Ok(());
        }
    }
    Ok(())
}

/// Finds out of which version the files are that this rank reads: its own, or all that another number of ranks wrote.
fn read(application: &mut Application, run: &Run, name: &str, known: &[(u64, String)]) -> Read {
    let (me, session) = (application.rank, application.session());
    let is_own = session.restart_ranks().is_ok_and(|ranks| ranks as usize == run.nodes.len());
    let all = if is_own { own_files(session, me, name) } else { all_files(session) };
    let files = match all {
        Ok(files) => files,
        Err(read) => return read,
    };
    if files.iter().all(|(_, files)| files.is_empty()) {
        return Read::Nothing;
    }
    let is = |version: u64, rank: Rank, files: &[(Vec<u8>, Vec<u8>)]| {
        let sizes = sizes(version, rank);
        let same = |(number, size): (usize, &usize)| {
            let expected = file_name(name, rank, number).into_bytes();
            let file = files.iter().find(|(name, _)| *name == expected);
            file.is_some_and(|(_, bytes)| *bytes == contents(version, rank, number, *size))
        };
        files.len() == sizes.len() && sizes.iter().enumerate().all(same)
    };
    let is_of = |version: u64| files.iter().all(|(rank, files)| is(version, *rank, files));
    let found = known.iter().find(|(version, named)| named == name && is_of(*version));
    let none = || {
        let sizes: Vec<_> = files
            .iter()
            .flat_map(|(_, files)| files)
            .map(|(name, bytes)| (String::from_utf8_lossy(name), bytes.len()))
            .collect();
        Read::Wrong(format!("rank {me}: {name}: no version has the files {sizes:?}"))
    };
    found.map_or_else(none, |(version, _)| Read::Version(*version))
}

/// The names and bytes of a rank's files.
type FilesOf = (Rank, Vec<(Vec<u8>, Vec<u8>)>);

/// The files that this rank wrote. Also tries names that no rank wrote.
fn own_files(session: &mut Session, me: Rank, name: &str) -> Result<Vec<FilesOf>, Read> {
    let mut files = Vec::new();
    for number in 0..4 {
        let name = file_name(name, me, number).into_bytes();
        match session.route_file(&name) {
            Ok(path) => files.push((name, bytes_at(&path, me)?)),
            Err(error) if is_trouble(&error) => return Err(Read::Nothing),
            Err(_) => (),
        }
    }
    Ok(vec![(me, files)])
}

/// The files that all ranks wrote, according to the lists.
fn all_files(session: &mut Session) -> Result<Vec<FilesOf>, Read> {
    let wrong = |error: Error| match is_trouble(&error) {
        true => Read::Nothing,
        false => Read::Wrong(error.to_string()),
    };
    let ranks = session.restart_ranks().map_err(wrong)?;
    let files_of = |rank: u32| {
        let mut files = Vec::new();
        for number in 0..session.restart_files(rank).map_err(wrong)? {
            let name = session.restart_file(rank, number).map_err(wrong)?;
            let path = session.route_file(&name).map_err(wrong)?;
            files.push((name, bytes_at(&path, Rank(rank))?));
        }
        Ok((Rank(rank), files))
    };
    (0..ranks).map(files_of).collect()
}

fn bytes_at(path: &[u8], rank: Rank) -> Result<Vec<u8>, Read> {
    std::fs::read(path_of(path))
        .map_err(|error| Read::Wrong(format!("rank {rank}: {}: {error}", path_of(path).display())))
}

fn is_trouble(error: &Error) -> bool {
    TROUBLE.iter().any(|text| error.to_string().contains(text))
}

fn take(application: &mut Application, step: &Step, version: u64) -> Came {
    let rank = application.rank;
    let session = application.session();
    let (name, flags, bad) = match *step {
        Step::Checkpoint { name, output, bad } => (name, OutputFlags { checkpoint: true, output }, bad),
        Step::Output { name } => (name, OutputFlags { checkpoint: false, output: true }, None),
        Step::Delete { name } => return came(session.delete(name_of(name).as_bytes())),
        Step::Drop { name } => return came(session.drop_dataset(name_of(name).as_bytes())),
        Step::Current { name } => return came(session.current(name_of(name).as_bytes())),
    };
    let name = name_of(name);
    if let Err(why) = session.start_output(Some(name.as_bytes()), flags) {
        return Came::Short(why.to_string());
    }
    let written = write(application, &name, version);
    let valid = written.is_ok() && bad != Some(rank.index());
    let completed = application.session().complete_output(valid);
    written.map_or_else(Came::Invalid, |()| came(completed))
}

fn came(outcome: Result<(), Error>) -> Came {
    outcome.map_or_else(|why| Came::Failed(why.to_string()), |()| Came::Good)
}

fn write(application: &mut Application, name: &str, version: u64) -> Result<(), String> {
    let rank = application.rank;
    for (number, size) in sizes(version, rank).into_iter().enumerate() {
        let file = file_name(name, rank, number);
        // It tries again once, as an application may.
        let routed = application.session().route_file(file.as_bytes());
        let routed = routed.or_else(|_| application.session().route_file(file.as_bytes()));
        let path = routed.map_err(|error| error.to_string())?;
        let bytes = contents(version, rank, number, size);
        let before = std::fs::metadata(path_of(&path)).and_then(|status| status.modified());
        std::fs::write(path_of(&path), bytes).map_err(|error| error.to_string())?;
        // Another program may have written it a second from now.
        let is_past = |before: &std::time::SystemTime| *before <= std::time::SystemTime::now();
        if let Some(before) = before.ok().filter(|before| keeps_time(version) && is_past(before)) {
            let file = std::fs::File::options().write(true).open(path_of(&path));
            file.and_then(|file| file.set_modified(before)).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
