//! Flush: a dataset goes from cache to the prefix directory, and counts there only when every byte is safe.
//!
//! The order of steps is all that protects a dataset from a crash between any two of them:
//! 1. The index lists the dataset as incomplete, the file lists with sizes are written, `flush.<token>` tells what is
//!    under way: all synced, before any byte moves.
//! 2. Movers write hidden files beside the final names, and sync them.
//! 3. When all have arrived, and are what was recorded, a `done` file says so. From here on anybody can end the flush.
//! 4. The files get their names, the folders are synced.
//! 5. The summary is written, then the index lists the dataset as complete; only now it counts.
//!
//! An error on any rank is the error of all: the hidden files are removed, the entry stays incomplete, and the
//! cached dataset is not touched. A name that stood for an older dataset stands for it until step 4.
//!
//! | part | what it is |
//! |---|---|
//! | `names` | which names are allowed, and where a file lies until it is whole |
//! | `shares` | which rank makes which folder; two ranks that mean one file |
//! | `turns` | so many ranks at a time |
//! | `background` | one rank's part of an asynchronous flush, on a thread |
//! | `movers` | one rank's files on their way |
//! | `pending` | the record of a flush under way, for whoever ends it |
//! | `lists` | a rank's list of files, on its way between ranks |
//! | `ledger` | index, summary and file lists, as a flush and a fetch change them |
//! | `behind` | flushes that go on when the application has ended |
//! | `errand` | what a rank leaves behind of such a flush |
//! | `finalize` | ending, or clearing away, what a dead application left |

pub(crate) mod background;
pub(crate) mod behind;
pub(crate) mod errand;
pub(crate) mod finalize;
pub(crate) mod ledger;
pub(crate) mod lists;
pub(crate) mod movers;
pub(crate) mod names;
pub(crate) mod pending;
pub(crate) mod shares;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod turns;

pub use behind::{look_after, Looked, OpenTransport, Transports};
pub use finalize::{finalize_arrived, Ended};
pub use turns::Places;

use crate::comm::collective::{agree_at, all_reduce, barrier, gather, Op};
use crate::comm::{Comm, CommError, Rank};
use crate::describe;
use crate::env::Env;
use crate::fs::{Durability, Files};
use crate::prefix::{DatasetDescriptor, Index, Prefix, PrefixFile, DIR_MODE};
use background::{Background, Failure, Task};
use behind::Which;
use errand::{Errand, State};
use ledger::Ledger;
use movers::{MoveError, Mover};
use pending::Pending;
use scr_plugin_api::{CopyJob, CopyState, KvTree, PluginError, PluginErrorKind, Transport};
use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// One file of this rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlushFile {
    /// Where it lies in cache; in bypass mode it is not looked at.
    pub(crate) source: PathBuf,
    /// Path below the prefix directory.
    pub(crate) name: Vec<u8>,
    /// Length.
    pub(crate) bytes: u64,
    /// Checksum, where one was recorded.
    pub(crate) crc: Option<u32>,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Time of the last change: seconds and nanoseconds since the epoch.
    pub(crate) mtime: (i64, u32),
}

impl FlushFile {
    /// The permission bits that a copy gets: never set-user-id and the like.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o777
    }
}

/// How to flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// So many ranks copy at a time: `SCR_FLUSH_WIDTH`.
    pub(crate) width: u32,
    /// Bytes per block: `SCR_FILE_BUF_SIZE`.
    pub(crate) block_bytes: u64,
    /// Whether checksums are taken, compared with those recorded, and kept: `SCR_CRC_ON_FLUSH`.
    pub(crate) checksums: bool,
    /// The files are in place already: bypass mode.
    pub(crate) in_place: bool,
    /// Whether the dataset becomes the current one: checkpoints do.
    pub(crate) make_current: bool,
    /// Whether copies get the times and permissions of their sources: `SCR_COPY_METADATA`.
    pub(crate) metadata: bool,
    /// And the owner, which only a privileged process can give away.
    pub(crate) owner: bool,
    /// Whether each rank makes the folders of its own files: `SCR_AXL_MKDIR`.
    pub(crate) own_folders: bool,
    /// Of files that are in place: whether any of them may have replaced one that was there before.
    pub(crate) may_replace: bool,
}

/// What a rank needs to flush.
#[derive(Clone)]
pub(crate) struct Flush<'a> {
    pub(crate) comm: &'a dyn Comm,
    pub(crate) files: &'a dyn Files,
    pub(crate) transport: &'a dyn Transport,
    /// Name of this node, for messages.
    pub(crate) node: &'a str,
    /// The prefix directory.
    pub(crate) prefix: &'a Prefix,
    /// The time, as the index writes it.
    pub(crate) now: String,
    pub(crate) options: Options,
    /// Where the flush is to go on without the application.
    pub(crate) behind: Option<Behind<'a>>,
}

/// What is needed for a flush to go on without the application.
#[derive(Clone)]
pub(crate) struct Behind<'a> {
    /// The control directory of this node.
    pub(crate) control: &'a Path,
    /// The transport's name, and the options it was made with.
    pub(crate) transport: &'a str,
    pub(crate) transport_options: &'a KvTree,
    /// The transport again, for whoever looks after the flush.
    pub(crate) shared: &'a Arc<dyn Transport>,
    /// The number of this node, and how many there are.
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    /// The ranks of this node, in order.
    pub(crate) mates: Vec<Rank>,
    /// Between two looks at it.
    pub(crate) pause: Duration,
}

/// A flush under way.
#[derive(Debug)]
pub(crate) struct Started {
    record: Pending,
    movers: Vec<Mover>,
    /// The folders that this rank looks after.
    folders: Vec<PathBuf>,
    /// What the transport gave, or why it did not; nothing before it was asked.
    ticket: Option<Result<Vec<u8>, String>>,
    /// Whether this very rank has nothing left to wait for: bypass mode.
    in_place: bool,
    /// This rank's part, where a thread does it.
    background: Option<Background>,
}

/// The steps that can fail before every byte has arrived, in their order, as messages name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Folders,
    Recording,
    Copying,
}

impl Step {
    const ALL: [Self; 3] = [Self::Folders, Self::Recording, Self::Copying];

    fn name(self) -> &'static str {
        match self {
            Self::Folders => "making the folders",
            Self::Recording => "recording what is to come",
            Self::Copying => "copying",
        }
    }
}

/// What a flush needs that is not done in the caller's thread.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) transport: Arc<dyn Transport>,
}

/// What all ranks have to know of each other before a flush.
struct Plan {
    record: Pending,
    movers: Vec<Mover>,
    /// The folders that this rank looks after.
    folders: Vec<PathBuf>,
    /// The files of all ranks, on rank 0.
    lists: Option<Vec<Vec<PrefixFile>>>,
    /// Whether any rank's file replaces one that was there before.
    may_replace: bool,
}

impl Started {
    /// Returns when the announcement, which may be made in the background, has been made or has failed, as far as it is this rank's.
    pub(crate) fn wait_until_announced(&self, files: &dyn Files) {
        if let Some(background) = &self.background {
            background.wait_until_announced(files);
        }
    }

    /// What the transport gave.
    fn given_ticket(&self) -> Result<&[u8], String> {
        match &self.ticket {
            Some(Ok(ticket)) => Ok(ticket),
            Some(Err(why)) => Err(why.clone()),
            None => Err("the copy was not started".to_owned()),
        }
    }
}

/// What was flushed, the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushReport {
    /// Files of all ranks.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// Why a dataset was not flushed, the same on all ranks. It is still in cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FlushError {
    /// A step failed on some rank.
    #[error("dataset {dataset} was not flushed, {step} failed: {account}; it is kept in cache")]
    Failed {
        /// Its name.
        dataset: String,
        /// Which step.
        step: &'static str,
        /// Who said what.
        account: String,
    },
    /// The ranks could not talk.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// A token that no other flush has: the dataset's id, the time, and where it was made.
pub(crate) fn new_token(dataset: u64, env: &Env) -> String {
    let now = env.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let place = format!("{}/{}/{:?}", env.host, env.uid, env.clock.elapsed());
    format!("{dataset}.{now:x}.{:08x}", crc32fast::hash(place.as_bytes()))
}

impl Flush<'_> {
    /// Flushes and waits for the end. All ranks call it, with the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn sync(
        &self,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[FlushFile],
    ) -> Result<FlushReport, FlushError> {
        let mut started = self.announce(token, dataset, mine)?;
        let arrived = if self.options.in_place {
            self.settle_in_place(&mut started)?
        } else {
            turns::in_turn(self.comm, self.options.width, || {
                self.start_movers(&mut started);
                self.wait_for_movers(&mut started)
            })?
        };
        self.conclude(&started, arrived)
    }

    /// Sets the transport to work on a flush that was [announced](Self::announce), and returns meanwhile. Local. What
    /// the transport could not even start is told by [`finish`](Self::finish).
    pub(crate) fn set_off(&self, started: &mut Started) {
        match &mut started.background {
            Some(background) => background.set_off(),
            None if started.ticket.is_none() => self.start_movers(started),
            None => (),
        }
    }

    /// Whether the transport is at work on any rank, or still to be set off. All ranks call it.
    ///
    /// # Errors
    /// The ranks could not talk.
    pub(crate) fn is_running(&self, started: &Started) -> Result<bool, FlushError> {
        if let Some(background) = &started.background {
            let (running, failed) = self.ask_all(background)?;
            return Ok(running && !failed);
        }
        let (running, failed) = self.ask_all_behind(started)?;
        Ok(running && !failed)
    }

    /// Whether the part of any rank is on its way, or still to be set off, and whether any has failed.
    fn ask_all_behind(&self, started: &Started) -> Result<(bool, bool), CommError> {
        let (running, failed) = match &started.ticket {
            None => (true, false),
            Some(Ok(_)) => self.look_behind(started),
            Some(Err(_)) => (false, true),
        };
        let mut any = [running, failed].map(u64::from);
        all_reduce(self.comm, &mut any, Op::Max)?;
        Ok((any[0] != 0, any[1] != 0))
    }

    /// Whether the transport of every rank was set to work. All ranks call it.
    ///
    /// # Errors
    /// The ranks could not talk.
    pub(crate) fn has_begun(&self, started: &Started) -> Result<bool, FlushError> {
        let mut any = [u64::from(!matches!(started.ticket, Some(Ok(_))))];
        all_reduce(self.comm, &mut any, Op::Max)?;
        Ok(any == [0])
    }

    /// Waits for a flush that was begun, and ends it. All ranks call it.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn finish(&self, mut started: Started) -> Result<FlushReport, FlushError> {
        if let Some(mut background) = started.background.take() {
            background.set_off();
            return self.finish_background(started, background);
        }
        self.set_off(&mut started);
        self.finish_behind(&started)
    }

    /// Waits until the files of all nodes have arrived, or those of one cannot, and has the flush ended by whoever is first: this, or
    /// what goes on behind it.
    fn finish_behind(&self, started: &Started) -> Result<FlushReport, FlushError> {
        let dataset = &started.record.dataset;
        let pause = self.behind.as_ref().map_or(Duration::ZERO, |behind| behind.pause);
        let failed = loop {
            let (running, failed) = self.ask_all_behind(started)?;
            if failed || !running {
                break failed;
            }
            self.files.pause(pause);
        };
        // What still moves where another rank has failed is of no use, and is stopped below.
        let arrived = self.arrived_behind(started, failed);
        let concluded = self.agreed(dataset, Step::Copying.name(), arrived).and_then(|()| {
            let closed = self.on_rank_0(|| self.close_behind(&started.record));
            self.agreed(dataset, "listing the dataset as complete", closed)?;
            self.report(&started.movers)
        });
        if concluded.is_err() {
            self.clear_away(started);
        }
        concluded
    }

    /// Looks after the parts of all ranks of a node, on the first of them, and says whether any is still on its way, and whether one
    /// has failed. What cannot be looked after is not waited for.
    fn look_behind(&self, started: &Started) -> (bool, bool) {
        let leads = |behind: &&Behind<'_>| behind.mates.first() == Some(&self.comm.rank());
        let Some(behind) = self.behind.as_ref().filter(leads) else { return (false, false) };
        let open = |_: &str, _: &KvTree| Ok(Arc::clone(behind.shared));
        let which = Which::Of(&started.record.token);
        let looked = behind::look_after_some(self.files, behind.control, &open, &self.now, which);
        (looked.left && looked.wrong.is_empty(), looked.failed)
    }

    /// How the part of this rank has ended. It need not have ended where any has failed.
    fn arrived_behind(&self, started: &Started, failed: bool) -> Result<(), String> {
        let Some(behind) = &self.behind else { return Ok(()) };
        let ticket = started.given_ticket()?;
        let token = &started.record.token;
        match errand::state(self.files, behind.control, token, self.comm.rank().0)? {
            // Where it is forgotten the flush is over, and what became of it stands under the prefix directory.
            None | Some(State::Arrived) => Ok(()),
            Some(State::Failed(why)) => Err(why),
            Some(State::Moving) if failed => Ok(()),
            Some(State::Moving) => match self.transport.poll(ticket) {
                Ok(CopyState::Failed(error)) | Err(error) => Err(error.to_string()),
                Ok(_) => Err(format!("{} could not be looked after", behind.control.display())),
            },
        }
    }

    /// Ends a flush whose files have all arrived, unless that was done already.
    fn close_behind(&self, record: &Pending) -> Result<(), String> {
        match finalize::finalize_one(self.files, self.prefix, &record.token, &self.now)? {
            Some(Ended::Finalized(_)) => Ok(()),
            Some(other) => Err(other.to_string()),
            None => {
                let index = Index::read(self.files, self.prefix).map_err(|error| describe(&error))?;
                let complete = index.entry(record.dataset.id).is_some_and(|entry| entry.complete);
                if complete {
                    Ok(())
                } else {
                    Err("it was taken back by somebody else".to_owned())
                }
            }
        }
    }

    /// Begins a flush of which all but the agreement is done by a thread of each rank, from [`set_off`](Self::set_off) on. All ranks call it, with
    /// the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn begin(
        &self,
        hands: Hands,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[FlushFile],
    ) -> Result<Started, FlushError> {
        let plan = self.plan(token, dataset, mine)?;
        let mut to_make = self.own_folders(&plan.movers);
        to_make.extend(plan.folders.iter().cloned());
        let task = Task {
            files: hands.files,
            transport: hands.transport,
            prefix: self.prefix.clone(),
            options: self.options,
            rank: self.comm.rank().0,
            record: plan.record.clone(),
            movers: plan.movers.clone(),
            folders: to_make,
            lists: plan.lists,
            may_replace: plan.may_replace,
        };
        let Plan { record, movers, folders, .. } = plan;
        let background = Some(Background::new(task));
        Ok(Started { record, movers, folders, ticket: None, in_place: false, background })
    }

    /// Whether any rank's thread is at work, and whether any has failed. That all are announced is passed on.
    fn ask_all(&self, background: &Background) -> Result<(bool, bool), CommError> {
        let mine = background.progress();
        let mut any = [mine.running, mine.failed, !mine.announced].map(u64::from);
        all_reduce(self.comm, &mut any, Op::Max)?;
        let [running, failed, unannounced] = any.map(|any| any != 0);
        if !unannounced {
            background.go();
        }
        Ok((running, failed))
    }

    /// Waits for the threads of all ranks, and ends the flush.
    fn finish_background(
        &self,
        mut started: Started,
        mut background: Background,
    ) -> Result<FlushReport, FlushError> {
        let mut pause = LEAST_PAUSE;
        loop {
            let (running, failed) = self.ask_all(&background)?;
            if failed {
                background.give_up();
            }
            if !running || failed {
                break;
            }
            self.files.pause(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let outcome = match background.join() {
            Ok(ended) => {
                started.record = ended.record;
                started.movers = ended.movers;
                started.ticket = ended.ticket.map(Ok);
                ended.outcome
            }
            Err(failure) => Err(failure),
        };
        let agreed = self.agreed_step(&started.record.dataset, outcome);
        let concluded = agreed.and_then(|()| self.try_to_conclude(&started));
        if concluded.is_err() {
            self.clear_away(&started);
        }
        concluded
    }

    /// The first step that has failed on any rank is what has failed. Who has given up for that has nothing to say.
    fn agreed_step(
        &self,
        dataset: &DatasetDescriptor,
        outcome: Result<(), Failure>,
    ) -> Result<(), FlushError> {
        let mine = match &outcome {
            Ok(()) => None,
            Err(Failure::At(step, _)) => Some(*step),
            Err(Failure::GivenUp) => Some(Step::Copying),
        };
        // The earlier a step, the larger its number here.
        let urgency =
            |step: Step| Step::ALL.iter().rev().take_while(|&&other| other != step).count() as u64 + 1;
        let mut first = [mine.map_or(0, urgency)];
        all_reduce(self.comm, &mut first, Op::Max)?;
        let Some(step) = Step::ALL.into_iter().find(|&step| urgency(step) == first[0]) else { return Ok(()) };
        let told = match outcome {
            Err(Failure::At(at, why)) if at == step => Err(why),
            Err(Failure::GivenUp) if step == Step::Copying => Err("it was given up".to_owned()),
            _ => Ok(()),
        };
        self.agreed(dataset, step.name(), told)
    }

    /// Step 1: from here on the flush is on record. All ranks call it, with the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn announce(
        &self,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[FlushFile],
    ) -> Result<Started, FlushError> {
        let plan = self.plan(token, dataset, mine)?;
        let Plan { mut record, movers, folders, lists, may_replace } = plan;
        let in_place = self.options.in_place;
        let made = make_folders(self.files, &self.own_folders(&movers));
        let made = made.and_then(|()| make_folders(self.files, &folders));
        self.agreed(dataset, Step::Folders.name(), made)?;
        let ledger = self.ledger();
        let recorded =
            lists.map_or(Ok(()), |lists| ledger.announce(&mut record, &lists, in_place, may_replace));
        let started = Started { record, movers, folders, ticket: None, in_place, background: None };
        let recorded = recorded.map_err(|error| describe(&error));
        if let Err(error) = self.agreed(dataset, Step::Recording.name(), recorded) {
            self.clear_away(&started);
            return Err(error);
        }
        Ok(started)
    }

    /// What is to be known before step 1. Nothing is changed.
    fn plan(&self, token: &str, dataset: &DatasetDescriptor, mine: &[FlushFile]) -> Result<Plan, FlushError> {
        let planned = movers::plan(self.prefix.dir(), mine, token);
        let mut movers = self.agreed(dataset, "checking the file names", planned)?;
        let folders = self.share_folders(dataset, &mut movers)?;
        let may_replace = self.may_replace(&movers)?;
        let record = Pending {
            token: token.to_owned(),
            dataset: dataset.clone(),
            ranks: self.comm.size(),
            movers: self.behind.as_ref().map_or(1, |behind| behind.nodes),
            make_current: self.options.make_current,
            replaces: Vec::new(),
        };
        let lists = self.gather_lists(&movers)?;
        Ok(Plan { record, movers, folders, lists, may_replace })
    }

    /// Whether on any rank a file is replaced that was there before. Only then file lists of older datasets need to be
    /// read.
    fn may_replace(&self, movers: &[Mover]) -> Result<bool, CommError> {
        let mine = if self.options.in_place {
            self.options.may_replace
        } else {
            movers.iter().any(|mover| self.files.status(&mover.target).is_ok())
        };
        let mut any = [u64::from(mine)];
        all_reduce(self.comm, &mut any, Op::Max)?;
        Ok(any != [0])
    }

    /// The folders that this rank looks after: each has one rank that does. Two ranks with a file of one name are found out.
    fn share_folders(
        &self,
        dataset: &DatasetDescriptor,
        movers: &mut [Mover],
    ) -> Result<Vec<PathBuf>, FlushError> {
        let names = movers.iter().map(|mover| mover.file.name.as_slice());
        let shares = shares::share_out(self.comm, names)?;
        for mover in movers.iter_mut() {
            mover.leads = shares.leads(self.comm.rank(), &mover.file.name);
        }
        let clash = match shares.shared.first_key_value() {
            // In bypass mode all ranks may well have written one file.
            Some((name, other)) if !self.options.in_place => {
                let name = String::from_utf8_lossy(name).into_owned();
                Err(format!("rank {other}, too, wrote a file named {name}; give each rank its own"))
            }
            _ => Ok(()),
        };
        let path = |folder: &Vec<u8>| match folder.as_slice() {
            b"" => Ok(self.prefix.dir().to_owned()),
            name => names::target(self.prefix.dir(), name).map_err(|error| error.to_string()),
        };
        let shared = clash.and_then(|()| shares.folders.iter().map(path).collect());
        self.agreed(dataset, Step::Folders.name(), shared)
    }

    /// The folders of this rank's files, where each rank is to make its own.
    fn own_folders(&self, movers: &[Mover]) -> Vec<PathBuf> {
        let wanted = movers.iter().filter(|_| self.options.own_folders);
        wanted.filter_map(|mover| mover.target.parent()).map(Path::to_owned).collect()
    }

    /// Step 2, its beginning. An error is kept until all ranks are asked.
    fn start_movers(&self, started: &mut Started) {
        if started.in_place {
            return;
        }
        let token = format!("{}.{}", started.record.token, self.comm.rank());
        let ticket = movers::start(self.files, self.transport, &mut started.movers, token, &self.options);
        let ticket = ticket.map_err(|error| error.to_string());
        started.ticket = Some(ticket.and_then(|ticket| self.leave_errand(started, &ticket).map(|()| ticket)));
    }

    /// Leaves word of what is to be done without this process.
    fn leave_errand(&self, started: &Started, ticket: &[u8]) -> Result<(), String> {
        let Some(behind) = &self.behind else { return Ok(()) };
        let errand = Errand {
            token: started.record.token.clone(),
            prefix: self.prefix.dir().to_owned(),
            rank: self.comm.rank().0,
            node: behind.node,
            mates: behind.mates.iter().map(|rank| rank.0).collect(),
            transport: behind.transport.to_owned(),
            transport_options: behind.transport_options.clone(),
            ticket: ticket.to_vec(),
            movers: started.movers.clone(),
            options: self.options,
            state: State::Moving,
        };
        let left = errand.write(self.files, behind.control).map_err(|error| describe(&error));
        if left.is_err() {
            let _ = self.transport.cancel(ticket);
        }
        left
    }

    /// Step 2, its end.
    fn wait_for_movers(&self, started: &mut Started) -> Result<(), String> {
        let ticket = started.given_ticket()?.to_vec();
        movers::finish(self.files, self.transport, &mut started.movers, &ticket, &self.options)
            .map_err(|error| error.to_string())
    }

    /// Step 2 for files that are in place. A checksum is taken once every rank has synced what it wrote, as one file
    /// may have been written by many.
    fn settle_in_place(&self, started: &mut Started) -> Result<Result<(), String>, CommError> {
        let (comm, width) = (self.comm, self.options.width);
        let synced = turns::in_turn(comm, width, || movers::sync_in_place(self.files, &started.movers))?;
        let mut arrived = synced.map_err(|error| error.to_string());
        if self.options.checksums {
            barrier(comm)?;
            let summed = turns::in_turn(comm, width, || {
                movers::sum_in_place(self.files, &mut started.movers, &self.options)
            })?;
            arrived = arrived.and(summed.map_err(|error| error.to_string()));
        }
        Ok(arrived)
    }

    /// Steps 3 to 5.
    fn conclude(&self, started: &Started, arrived: Result<(), String>) -> Result<FlushReport, FlushError> {
        let agreed = self.agreed(&started.record.dataset, Step::Copying.name(), arrived);
        let concluded = agreed.and_then(|()| self.try_to_conclude(started));
        if concluded.is_err() {
            self.clear_away(started);
        }
        concluded
    }

    fn try_to_conclude(&self, started: &Started) -> Result<FlushReport, FlushError> {
        let dataset = &started.record.dataset;
        self.seal(started)?;
        if !started.in_place {
            let renamed = movers::rename(self.files, &started.movers);
            self.agreed(dataset, "renaming the files", renamed)?;
        }
        let synced = started
            .folders
            .iter()
            .try_for_each(|folder| self.files.sync_dir(folder).map_err(MoveError::io("sync", folder)));
        self.agreed(dataset, "syncing the folders", synced)?;
        let closed = self.on_rank_0(|| self.close(&started.record));
        self.agreed(dataset, "listing the dataset as complete", closed)?;
        self.report(&started.movers)
    }

    /// Step 3: file lists with checksums that were not known before, then the mark that all is there, then the
    /// name leaves the older dataset that it may have stood for.
    fn seal(&self, started: &Started) -> Result<(), FlushError> {
        let news = started.movers.iter().any(|mover| mover.file.crc.is_none() && mover.crc.is_some());
        let mut any = [u64::from(news)];
        all_reduce(self.comm, &mut any, Op::Max)?;
        let lists = if any[0] != 0 { self.gather_lists(&started.movers)? } else { None };
        let record = &started.record;
        let sealed = self.on_rank_0(|| {
            let ledger = self.ledger();
            if let Some(lists) = lists {
                ledger.write_lists(&record.dataset, &lists).map_err(|error| describe(&error))?;
            }
            if !started.in_place {
                record
                    .mark_done(self.files, self.prefix, 0, &KvTree::new())
                    .map_err(|error| describe(&error))?;
            }
            ledger.take_over_name(&record.dataset, &record.replaces).map_err(|error| describe(&error))
        });
        self.agreed(&record.dataset, "recording that all is there", sealed)
    }

    /// Step 5, on rank 0.
    fn close(&self, record: &Pending) -> Result<(), String> {
        let ledger = self.ledger();
        ledger.close(&record.dataset, record.make_current, &self.now).map_err(|error| describe(&error))?;
        if !self.options.in_place {
            // The dataset counts already; what is left of the record is cleared away by the next run.
            let _ = record.forget(self.files, self.prefix);
        }
        Ok(())
    }

    /// After an error on any rank. What cannot be removed now is removed by the next run.
    fn clear_away(&self, started: &Started) {
        if started.in_place {
            return;
        }
        if let Some(Ok(ticket)) = &started.ticket {
            let _ = self.transport.cancel(ticket);
        }
        let revoke = || {
            finalize::alone(self.files, self.prefix, || started.record.revoke(self.files, self.prefix))
                .map_err(|error| describe(&error))?
                .map_err(|error| describe(&error))
        };
        let revoked = self.on_rank_0(revoke);
        // The marks go before the files, so that nobody takes the rest for a whole.
        let _ = barrier(self.comm);
        let mut left = [u64::from(!movers::remove_parts(self.files, &started.movers))];
        let known = all_reduce(self.comm, &mut left, Op::Max);
        // A full file system has had no room for the lock before.
        let revoked = revoked.or_else(|_| self.on_rank_0(revoke));
        // What is left is found by the next run through the record.
        if revoked.is_ok() && known.is_ok() && left == [0] {
            let _ = self.on_rank_0(|| started.record.forget(self.files, self.prefix));
        }
        if let Some(behind) = &self.behind {
            let _ = errand::remove(self.files, behind.control, &started.record.token, self.comm.rank().0);
        }
    }

    /// Every rank's file list, on rank 0.
    fn gather_lists(&self, movers: &[Mover]) -> Result<Option<Vec<Vec<PrefixFile>>>, CommError> {
        let entries = movers.iter().map(|mover| PrefixFile {
            name: mover.file.name.clone(),
            bytes: Some(mover.file.bytes),
            crc: mover.crc.or(mover.file.crc),
        });
        let packed = lists::to_tree(&entries.collect::<Vec<_>>()).pack();
        let Some(all) = gather(self.comm, Rank(0), packed)? else { return Ok(None) };
        let unpack = |(rank, bytes): (u32, Vec<u8>)| {
            KvTree::unpack(&bytes)
                .ok()
                .and_then(|tree| lists::from_tree(&tree))
                .ok_or(CommError::Malformed { from: Rank(rank), what: "a list of files" })
        };
        let mut lists = (0..).zip(all).map(unpack).collect::<Result<Vec<_>, _>>()?;
        share_checksums(&mut lists);
        Ok(Some(lists))
    }

    fn report(&self, movers: &[Mover]) -> Result<FlushReport, FlushError> {
        let bytes = movers.iter().fold(0_u64, |sum, mover| sum.saturating_add(mover.file.bytes));
        let mut sums = [movers.len() as u64, bytes];
        all_reduce(self.comm, &mut sums, Op::Sum)?;
        Ok(FlushReport { files: sums[0], bytes: sums[1] })
    }

    fn on_rank_0<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if self.comm.rank() == Rank(0) {
            work()
        } else {
            Ok(())
        }
    }

    fn agreed<T, E: Display>(
        &self,
        dataset: &DatasetDescriptor,
        step: &'static str,
        result: Result<T, E>,
    ) -> Result<T, FlushError> {
        agree_at(self.comm, self.node, result).map_err(|account| FlushError::Failed {
            dataset: String::from_utf8_lossy(&dataset.name).into_owned(),
            step,
            account: account.to_string(),
        })
    }

    fn ledger(&self) -> Ledger<'_> {
        Ledger { files: self.files, prefix: self.prefix }
    }
}

/// Makes folders, durably.
fn make_folders(files: &dyn Files, folders: &[PathBuf]) -> Result<(), String> {
    folders.iter().try_for_each(|folder| {
        files.make_dirs(folder, DIR_MODE, Durability::Synced).map_err(|error| describe(&error))
    })
}

/// Between two looks at the threads of all ranks: from here, twice as long each time, to there.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Of a file that many ranks have, one took the checksum.
fn share_checksums(lists: &mut [Vec<PrefixFile>]) {
    if lists.iter().flatten().all(|file| file.crc.is_some()) {
        return;
    }
    let known: HashMap<Vec<u8>, u32> =
        lists.iter().flatten().filter_map(|file| Some((file.name.clone(), file.crc?))).collect();
    for file in lists.iter_mut().flatten() {
        file.crc = file.crc.or_else(|| known.get(&file.name).copied());
    }
}

/// What stands in for a transport where the files are in place already.
#[derive(Debug)]
pub(crate) struct NoTransport;

impl Transport for NoTransport {
    fn start(&self, _: &CopyJob) -> Result<Vec<u8>, PluginError> {
        Err(no_transport())
    }
    fn poll(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        Err(no_transport())
    }
    fn wait(&self, _: &[u8]) -> Result<CopyState, PluginError> {
        Err(no_transport())
    }
    fn cancel(&self, _: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }
    fn crc(&self, _: &[u8], _: usize) -> Option<u32> {
        None
    }
}

fn no_transport() -> PluginError {
    PluginError::new(PluginErrorKind::Fault, "nothing is copied where the files are in place")
}
