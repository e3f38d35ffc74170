//! Files of a checkpoint from node to node, if any rank may read any file: each rank lends those of the parts that it has, and
//! gets those that it asks for.
//!
//! While the application may restart, a thread of each rank serves the files of its parts over TCP: no rank of the application
//! has to be in a call of scr for that. A copy gets its name once its length and its checksum are those that were recorded, and
//! lies in the cache of the node that has asked, or else under the prefix directory. All copies leave when the restart ends. A
//! run that dies leaves them in parts of its own, which the next run removes.

use crate::cache::dataset::HeldParts;
use crate::cache::filemap::Claim;
use crate::cache::part::PartDir;
use crate::cache::{Cache, CachedDataset, StoreInUse};
use crate::job::{Job, Said};
use crate::rebuild::Stream;
use scr_base::fs::verify::{compare, expect_bytes, open_whole, FileError};
use scr_base::fs::{At, Durability, File, Files, FsError, How, LockAttempt};
use scr_base::parallel;
use scr_comm::tcp::{self, TcpComm};
use scr_comm::{exchange_all, Collective, Comm, CommError, Incoming, Outgoing, Rank, Tag, WaitControl};
use scr_config::param;
use scr_prefix::{FileName, Prefix, Seq};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// This rank's end of the lending: it asks, and its thread answers others.
pub(super) struct Lending {
    /// The dataset.
    pub(super) seq: Seq,
    /// Ranks ask by their own numbers; the thread of each has the number after all of those.
    comm: Asking,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The part that holds nothing but the copies of the ranks of this node.
    copies: PartDir,
    /// This rank's part of that kind, if it serves for nothing else. It leaves with the copies.
    pub(super) own: Option<(PartDir, Claim)>,
}

/// A file that lies in a cache of another node.
pub(super) struct Away {
    /// The rank that wrote it.
    pub(super) writer: Rank,
    /// The rank that has its part.
    pub(super) host: Rank,
    pub(super) bytes: u64,
    pub(super) crc: Option<u32>,
}

/// The end by which a rank asks, or why it asks nobody any more: what is left of an answer is never taken for the next one, and
/// nobody waits to send it.
struct Asking(Result<TcpComm, CommError>);

impl Asking {
    fn ask<T>(&mut self, ask: impl FnOnce(&TcpComm) -> Result<T, LendError>) -> Result<T, LendError> {
        let asked = ask(self.0.as_ref().map_err(CommError::clone)?);
        match &asked {
            Err(LendError::Comm(error)) if ends_all(error) => self.0 = Err(error.clone()),
            _ => (),
        }
        asked
    }
}

/// Why a rank has not got a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum LendError {
    #[error("the ranks cannot talk")]
    Comm(#[from] CommError),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<FsError> for LendError {
    fn from(error: FsError) -> Self {
        Self::File(error.into())
    }
}

impl Lending {
    /// Connects all ranks, and starts their threads. A rank has these `parts` of the dataset. The copies lie in `copies`, which is
    /// this rank's part of a dataset that has no other files. Collective.
    pub(super) fn begin(job: &Job, seq: Seq, parts: HeldParts, copies: &PartDir) -> Collective<Self> {
        let (ip, limits) = job.network()?;
        let (me, ranks) = (job.rank(), job.comm.size());
        let ends = tcp::connect_as(&*job.comm, ip, &limits, &[me, thread_of(me, ranks)], 2 * ranks)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let started = <[TcpComm; 2]>::try_from(ends).map_err(|_| "not both ends were made".to_owned());
        let started = started.and_then(|[comm, of_thread]| {
            let lender = Lender {
                files: Arc::clone(&job.env.files),
                parts,
                block: block_bytes(job),
                is_over: Arc::clone(&is_over),
            };
            let run = move || lender.run(&of_thread);
            let thread = parallel::start(Builder::new().name("scr-lend".to_owned()), run);
            let thread = Some(thread.map_err(|error| error.to_string())?);
            let copies = copies.of_rank(job.nodes.leader(job.rank()));
            let comm = Asking(Ok(comm));
            Ok(Self { seq, comm, is_over, thread, copies, own: None })
        });
        job.agree(started)
    }

    /// A copy of a file on this node. Local.
    ///
    /// # Errors
    /// It has not come, or there is no room for it, where the dataset is in the prefix directory as well.
    pub(super) fn get(
        &mut self,
        job: &Job,
        cache: &Cache,
        cached: &CachedDataset,
        name: &FileName,
        file: &Away,
    ) -> Result<PathBuf, LendError> {
        let store = &cache.stores()[cached.store];
        if let Some(got) = self.get_into_cache(job, store, name, file) {
            return got;
        }
        if job.is_news(Said::NoRoomToLend(self.seq)) {
            job.report.warn_here(&format!(
                "the store {} has no room for files of {} that lie on other nodes: they are read in the prefix directory",
                store.name,
                cached.record.label()
            ));
        }
        if cached.prefix.has_files() {
            return Err(LendError::Refused(format!("the store {} has no room for it", store.name)));
        }
        let folder = copies_in(&job.prefix, job.run.number);
        job.files().make_dirs(&folder, 0o700, Durability::Unsynced)?;
        self.get_into(job, &folder, name, file)
    }

    /// `None` if there is no room in the cache of this node.
    fn get_into_cache(
        &mut self,
        job: &Job,
        store: &StoreInUse,
        name: &FileName,
        file: &Away,
    ) -> Option<Result<PathBuf, LendError>> {
        let (files, folder) = (job.files(), self.copies.data());
        let needed = file.bytes.saturating_add(SPARE);
        if store.room(files, needed).is_some_and(|room| room.bytes < needed) {
            return None;
        }
        let made = self.copies.make_data(files).map_err(LendError::from);
        match made.and_then(|()| self.get_into(job, &folder, name, file)) {
            Err(LendError::File(error)) if error.is_for_want_of_room() => None,
            got => Some(got),
        }
    }

    fn get_into(
        &mut self,
        job: &Job,
        folder: &Path,
        name: &FileName,
        file: &Away,
    ) -> Result<PathBuf, LendError> {
        let files = job.files();
        // Files of different ranks may have the same base name, and those of the application any name.
        let of_writer = folder.join(file.writer.to_string());
        let path = of_writer.join(OsStr::from_bytes(name.base()));
        let block = job.params.get(&param::FILE_BUF_SIZE);
        let is_here = || expect_bytes(files, &path, file.bytes, file.crc, block).is_ok();
        if is_here() {
            return Ok(path);
        }
        files.make_dirs(&of_writer, 0o700, Durability::Unsynced)?;
        let _turn = wait_for_others(files, &folder.join(format!(".{}.lock", file.writer)));
        if is_here() {
            return Ok(path);
        }
        let temporary = folder.join(format!(".{}.{}", file.writer, job.rank()));
        let came = self.comm.ask(|comm| receive(comm, job, &temporary, name, file));
        let came = came.and_then(|()| Ok(files.rename(&temporary, &path).at("rename a copy to", &path)?));
        came.map(|()| path).inspect_err(|_| _ = files.remove_file(&temporary))
    }

    /// Ends it on this rank. All ranks read the copies no more, which are removed.
    pub(super) fn end(mut self, job: &Job) {
        let files = job.files();
        let of_node = (job.nodes.leader(job.rank()) == job.rank()).then(|| self.copies.data());
        let of_run = (job.rank() == Rank(0)).then(|| copies_in(&job.prefix, job.run.number));
        let removed = of_node.into_iter().chain(of_run).try_for_each(|folder| files.remove_tree(&folder));
        let own = self.own.take();
        job.report_failed(removed.and_then(|()| own.map_or(Ok(()), |(part, _claim)| part.remove(files))));
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread looks at that when something has come, or else after a moment.
        if let Ok(comm) = &self.comm.0 {
            let to = thread_of(comm.rank(), comm.size() / 2);
            let _ = exchange_all(comm, REQUEST, &[Outgoing { to, bytes: &[] }], &mut []);
        }
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Asks for a file, and writes it. The file is received to its end, whether it can be written or not.
fn receive(comm: &dyn Comm, job: &Job, to: &Path, name: &FileName, file: &Away) -> Result<(), LendError> {
    let lender = thread_of(file.host, job.comm.size());
    let mut request = file.writer.0.to_be_bytes().to_vec();
    request.extend(name.as_bytes());
    exchange_all(comm, REQUEST, &[Outgoing { to: lender, bytes: &request }], &mut [])?;
    let next = |bytes: &mut [u8]| exchange_all(comm, ANSWER, &[], &mut [Incoming { from: lender, bytes }]);
    let mut number = [0; NUMBER];
    next(&mut number)?;
    if let Some(length) = u32::from_be_bytes(number).checked_sub(1) {
        let mut why = vec![0; (length as usize).min(MOST_TEXT)];
        next(&mut why)?;
        return Err(LendError::Refused(String::from_utf8_lossy(&why).into_owned()));
    }
    let made = job.files().open(to, How::Replace(0o600)).at("create", to);
    let mut copy = Stream::of_file(to, made, file.bytes, block_bytes(job));
    let (mut block, mut hasher) = (Vec::new(), crc32fast::Hasher::new());
    while copy.next_length() > 0 {
        block.resize(copy.next_length(), 0);
        next(&mut block)?;
        hasher.update(&block);
        copy.write_block(&block);
    }
    next(&mut number)?;
    let mode = u32::from_be_bytes(number);
    if mode == NOT_READ {
        return Err(LendError::Refused(format!("it could not be read to its end by rank {}", file.host)));
    }
    let copy = copy.into_file()?;
    compare(to, file.crc, Some(hasher.finalize()))?;
    Ok(copy.set_mode(mode & 0o777).at("set the permissions of", to)?)
}

/// Removes the copies that runs have left in the prefix directory which died. No other run is at work there.
pub(super) fn remove_left_copies(files: &dyn Files, prefix: &Prefix) -> Result<(), FsError> {
    let dir = prefix.scr_dir();
    let names = files.list_if_there(&dir)?.into_iter();
    let mut left = names.filter(|name| name.as_os_str().as_bytes().starts_with(COPIES.as_bytes()));
    left.try_for_each(|name| files.remove_tree(&dir.join(name)))
}

fn copies_in(prefix: &Prefix, run: u64) -> PathBuf {
    prefix.scr_dir().join(format!("{COPIES}{run}"))
}

/// Another rank of this node may just be getting the same file, which need not come twice. A rank that waits too long gets it as
/// well.
fn wait_for_others(files: &dyn Files, lock: &Path) -> Option<Box<dyn File>> {
    let lock = files.open(lock, How::Ensure(0o600)).ok()?;
    let is_held = || lock.try_lock() == LockAttempt::Held;
    (0..MOST_PAUSES).take_while(|_| is_held()).for_each(|_| files.pause(PAUSE));
    Some(lock)
}

fn thread_of(rank: Rank, ranks: u32) -> Rank {
    Rank(ranks + rank.0)
}

fn block_bytes(job: &Job) -> u64 {
    job.params.get(&param::MPI_BUF_SIZE).max(1)
}

/// Whether nothing that is said after such an error can be trusted. A rank that is gone is an error of those that need it.
fn ends_all(error: &CommError) -> bool {
    !matches!(error, CommError::Lost { .. })
}

/// The thread of a rank, which serves the files of its parts.
struct Lender {
    files: Arc<dyn Files>,
    parts: HeldParts,
    block: u64,
    is_over: Arc<AtomicBool>,
}

impl Lender {
    /// Answers until the lending is over. One that cannot answer any more ends, and so its end of `comm`: those that wait for the
    /// rest of an answer see that.
    fn run(&self, comm: &dyn Comm) {
        // No rank sends this message: the receive waits for whatever else comes.
        let mut never = [0];
        let mut receives = [Incoming { from: comm.rank(), bytes: &mut never }];
        let _ = comm.exchange(IDLE, &[], &mut receives, &mut |_| {
            while let Some((from, request)) = comm.take(REQUEST)?.filter(|_| !self.is_over()) {
                // One that has ended takes nobody else's answers away.
                match self.answer(comm, from, &request) {
                    Err(error) if ends_all(&error) => return Err(error),
                    _ => (),
                }
            }
            Ok(if self.is_over() { WaitControl::GiveUp } else { WaitControl::Wait })
        });
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn answer(&self, comm: &dyn Comm, to: Rank, request: &[u8]) -> Result<(), CommError> {
        let send = |bytes: &[u8]| {
            let sends = [Outgoing { to, bytes }];
            comm.exchange(ANSWER, &sends, &mut [], &mut |_| match self.is_over() {
                true => Err(CommError::Unfit { why: "the restart has ended" }),
                false => Ok(WaitControl::Wait),
            })
        };
        let (mut file, mode) = match self.open(request) {
            Ok(opened) => opened,
            Err(why) => {
                let why = &why.as_bytes()[..why.len().min(MOST_TEXT)];
                send(&(1 + why.len() as u32).to_be_bytes())?;
                return send(why).map(drop);
            }
        };
        send(&[0; NUMBER])?;
        while let Some(block) = file.read_block() {
            send(block)?;
        }
        send(&file.into_file().map_or(NOT_READ, |_| mode).to_be_bytes()).map(drop)
    }

    /// The file that a request names, and its mode.
    fn open(&self, request: &[u8]) -> Result<(Stream, u32), String> {
        let (writer, name) = request.split_first_chunk().ok_or("the request cannot be read")?;
        let writer = Rank(u32::from_be_bytes(*writer));
        let of_writer = self.parts.iter().find(|(record, _)| record.rank == writer);
        let (record, part) = of_writer.ok_or_else(|| format!("the part of rank {writer} is not there"))?;
        let file = record.files.iter().find(|file| file.name.as_bytes() == name);
        let file = file.ok_or_else(|| format!("rank {writer} wrote no such file"))?;
        let path = part.file(&file.name);
        let opened = open_whole(&*self.files, &path, Some(file.bytes));
        let (opened, _) = opened.map_err(|error| scr_base::describe(&error))?;
        Ok((Stream::of_file(&path, Ok(opened), file.bytes, self.block), file.mode))
    }
}

/// The length of a number in an answer. It begins with 0 if the file follows, block by block, of which both know the length, and
/// then its mode; or else with 1 and the length of the reason that follows.
const NUMBER: usize = 4;
/// In place of the mode: the blocks are not all that of the file.
const NOT_READ: u32 = u32::MAX;
/// Bytes of a reason.
const MOST_TEXT: usize = 1000;
/// Bytes that a store keeps free beside a copy.
const SPARE: u64 = 1 << 20;
/// A minute together.
const MOST_PAUSES: u32 = 6000;
const PAUSE: Duration = Duration::from_millis(10);
const COPIES: &str = "restart.";
const REQUEST: Tag = Tag(60);
const ANSWER: Tag = Tag(61);
const IDLE: Tag = Tag(62);

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::env::Clock;
    use scr_base::fs::RealFiles;
    use scr_comm::tcp::Limits;
    use scr_comm::{ExchangeEnd, Traffic};
    use std::cell::Cell;
    use std::net::Ipv4Addr;
    use std::time::{Instant, SystemTime};

    struct RealClock(Instant);

    impl Clock for RealClock {
        fn now(&self) -> SystemTime {
            SystemTime::now()
        }

        fn elapsed(&self) -> Duration {
            self.0.elapsed()
        }
    }

    /// The end of a thread whose system fails once, when it has sent so many messages.
    struct FailsOnce {
        comm: TcpComm,
        sends: Cell<u32>,
    }

    impl Comm for FailsOnce {
        fn rank(&self) -> Rank {
            self.comm.rank()
        }

        fn size(&self) -> u32 {
            self.comm.size()
        }

        fn exchange(
            &self,
            tag: Tag,
            sends: &[Outgoing<'_>],
            receives: &mut [Incoming<'_>],
            check_cancel: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
        ) -> Result<ExchangeEnd, CommError> {
            if tag == ANSWER && self.sends.replace(self.sends.get().wrapping_sub(1)) == 0 {
                return Err(failed());
            }
            self.comm.exchange(tag, sends, receives, check_cancel)
        }

        fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
            self.comm.take(tag)
        }

        fn traffic(&self) -> Traffic {
            self.comm.traffic()
        }
    }

    fn failed() -> CommError {
        CommError::Socket { what: "too many open files".to_owned() }
    }

    /// The end of a rank, and that of its thread.
    fn ends() -> [TcpComm; 2] {
        let limits = Limits::new(Arc::new(RealClock(Instant::now())), Duration::from_secs(30));
        let ends = scr_comm::thread::run(1, |alone| {
            tcp::connect_as(&alone, Ipv4Addr::LOCALHOST.into(), &limits, &[Rank(0), Rank(1)], 2).unwrap()
        });
        <[TcpComm; 2]>::try_from(ends.unwrap().pop().unwrap()).unwrap_or_else(|_| panic!("there are two"))
    }

    /// The rest of an answer never came, and the rank that had asked waited for it for ever.
    #[test]
    fn a_thread_that_cannot_finish_an_answer_is_an_error_of_the_rank_that_asks() {
        for sends in [0, 1] {
            let [comm, of_thread] = ends();
            let is_over = Arc::new(AtomicBool::new(false));
            let files = Arc::new(RealFiles);
            let lender = Lender { files, parts: Arc::default(), block: 1, is_over: Arc::clone(&is_over) };
            let lends = std::thread::spawn(move || {
                lender.run(&FailsOnce { comm: of_thread, sends: Cell::new(sends) });
            });
            let request = [Outgoing { to: Rank(1), bytes: &[0; 5] }];
            exchange_all(&comm, REQUEST, &request, &mut []).unwrap();
            let asked = Instant::now();
            let next = |bytes: &mut [u8]| {
                let answer = &mut [Incoming { from: Rank(1), bytes }];
                comm.exchange(ANSWER, &[], answer, &mut |_| match asked.elapsed() > Duration::from_secs(10) {
                    true => Ok(WaitControl::GiveUp),
                    false => Ok(WaitControl::Wait),
                })
            };
            let mut length = [0; NUMBER];
            let mut got = next(&mut length);
            if sends > 0 {
                got.unwrap();
                let mut why = vec![0; u32::from_be_bytes(length) as usize - 1];
                got = next(&mut why);
            }
            is_over.store(true, Ordering::Relaxed);
            lends.join().unwrap();
            assert!(matches!(got, Err(CommError::Lost { rank: Rank(1), .. })), "after {sends}: {got:?}");
        }
    }

    /// The rest of an answer was taken for the next one.
    #[test]
    fn a_rank_that_has_not_got_an_answer_to_its_end_asks_nobody_any_more() {
        let [comm, of_thread] = ends();
        let mut asking = Asking(Ok(comm));
        let lost = CommError::Lost { rank: Rank(1), why: "it has ended".to_owned() };
        asking.ask(|_| Err::<(), _>(lost.into())).unwrap_err();
        asking.ask(|_| Err::<(), _>(LendError::Refused("no such file".to_owned()))).unwrap_err();
        asking.ask(|_| Ok(())).unwrap();
        asking.ask(|_| Err::<(), _>(failed().into())).unwrap_err();
        let error = asking.ask(|_| -> Result<(), _> { panic!("it is asked") }).unwrap_err();
        assert!(matches!(&error, LendError::Comm(error) if *error == failed()), "{error}");
        let sent = exchange_all(&of_thread, ANSWER, &[Outgoing { to: Rank(0), bytes: b"rest" }], &mut []);
        assert!(
            matches!(sent, Err(CommError::Lost { rank: Rank(0), .. })),
            "nobody waits to send it: {sent:?}"
        );
    }
}
