//! All calls into the MPI library, with their return codes checked.
//!
//! This module keeps two rules. A buffer that MPI knows of stays borrowed until its request is complete: dropping [`Requests`]
//! waits for that on every path, and ends the job where it waits in vain. And nothing here blocks inside the library. Errors on
//! communicators of the application return as well while they are used here: its handlers, which may jump or throw, never run on
//! frames of this library. Once a rank has died, the communicator is given up: it is revoked, so that ranks that wait for this
//! one return as well, and every later call fails at once. So it is if a rank takes no more part for another reason; where the
//! library has no way to revoke, the rank sends the others a message. All names come from the bindings, so that Open MPI's
//! pointers and MPICH's numbers are the same code.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::raw::{c_char, c_int};
use std::time::Duration;

use ::mpi::ffi;
use nix::sys::signal::{raise, Signal};

use super::{deaths, Patience};
use scr_base::{ensure, parallel};
use scr_comm::{CommError, Rank, Result, Tag};

/// A communicator of our own. It belongs to the thread that made it.
pub(super) struct Handle {
    comm: ffi::MPI_Comm,
    size: u32,
    /// Why it was given up.
    given_up: RefCell<Option<CommError>>,
    /// Whether messages may be left on it, so that it is never freed.
    is_abandoned: Cell<bool>,
    /// MPI may be called by this thread only; under MPICH the handle is a mere number.
    not_send: PhantomData<*const ()>,
}

/// A message that has arrived and that no receive has been started for.
pub(super) struct Arrived {
    pub(super) from: Rank,
    pub(super) bytes: usize,
}

/// Sends and receives that have been started, with the buffers they use.
pub(super) struct Requests<'h, 'b> {
    handle: &'h Handle,
    requests: Vec<ffi::MPI_Request>,
    active: usize,
    indices: Vec<c_int>,
    statuses: Vec<MaybeUninit<ffi::MPI_Status>>,
    buffers: PhantomData<&'b mut [u8]>,
    /// How long it waits for them when it is dropped.
    longest_wait: Duration,
}

/// Whether `MPI_Init` has been called. May be asked at any time.
pub fn has_begun() -> bool {
    flag(ffi::MPI_Initialized)
}

/// Whether `MPI_Finalize` has been called. May be asked at any time.
pub fn has_ended() -> bool {
    flag(ffi::MPI_Finalized)
}

/// Whether MPI can be called at all.
pub(super) fn check_running() -> Result<()> {
    let unusable = |why| CommError::Unusable { why };
    ensure(has_begun(), || unusable("MPI_Init has not been called yet; call it first"))?;
    ensure(!has_ended(), || unusable("MPI_Finalize has been called; finish before it"))
}

impl Handle {
    /// A duplicate of a communicator, on which errors return. Collective; while it waits for others it calls `look`.
    ///
    /// # Safety
    /// As for [`duplicate_of`](super::MpiComm::duplicate_of).
    pub(super) unsafe fn duplicate_of(parent: ffi::MPI_Comm, look: &mut dyn FnMut()) -> Result<Self> {
        check_running()?;
        // SAFETY: reads a constant of the library.
        if parent == unsafe { ffi::RSMPI_COMM_NULL } {
            let why = "the communicator is MPI_COMM_NULL; only its members call this";
            return Err(CommError::Unfit { why });
        }
        // The duplicate inherits it, so that there is no moment at which it has another one.
        // SAFETY: a communicator that lives, by the caller's promise.
        let _errors_return = unsafe { ErrorsReturn::on(parent) }?;
        // SAFETY: as above.
        if unsafe { number_of("MPI_Comm_test_inter", parent, ffi::MPI_Comm_test_inter) }? != 0 {
            // Messages need the ranks of one group.
            let why = "an intercommunicator has two groups; merge them with MPI_Intercomm_merge";
            return Err(CommError::Unfit { why });
        }
        // SAFETY: as above.
        let mut duplicate = unsafe { Duplicate::begin(parent) }?;
        let mut patience = Patience::default();
        while !duplicate.is_made()? {
            patience.rest();
            if patience.is_long() {
                // SAFETY: as above, and errors on it return.
                unsafe { look_for_deaths(parent) }?;
                look();
            }
        }
        let comm = duplicate.comm();
        let (given_up, is_abandoned) = (RefCell::default(), Cell::default());
        let mut handle = Self { comm, size: 0, given_up, is_abandoned, not_send: PhantomData };
        // SAFETY: the duplicate lives.
        let size = unsafe { number_of("MPI_Comm_size", comm, ffi::MPI_Comm_size) }?;
        handle.size = u32::try_from(size).map_err(|_| strange("MPI_Comm_size"))?;
        Ok(handle)
    }

    /// Gives the communicator up, for all its ranks.
    pub(super) fn abandon(&self) {
        if check_running().is_err() || self.is_abandoned.replace(true) {
            return;
        }
        if deaths::are_reported() {
            self.noticed(CommError::RanksDied { ranks: Vec::new() });
            return;
        }
        self.given_up.replace(Some(CommError::Unfit { why: "this rank takes no more part, after an error" }));
        self.tell_others();
    }

    /// Lets the others know, where the library has no way to make their calls fail. They look now and then while they wait.
    fn tell_others(&self) {
        let Ok(me) = self.rank() else { return };
        let others = (0..self.size).map(Rank).filter(|rank| *rank != me);
        let send = |to| {
            // SAFETY: reads a constant of the library.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            // SAFETY: `comm` is a live communicator, and the message has no bytes.
            unsafe {
                let (nothing, kind) = ([0u8; 0].as_ptr().cast(), ffi::RSMPI_UINT8_T);
                ffi::MPI_Isend(nothing, 0, kind, number(to), GIVEN_UP.0.into(), self.comm, &raw mut request);
            }
            request
        };
        let mut requests: Vec<ffi::MPI_Request> = others.map(send).collect();
        let mut patience = Patience::default();
        while patience.waited() < UNTIL_KNOWN && !requests.is_empty() {
            requests.retain_mut(|request| !test(request).1);
            patience.rest();
        }
        for mut request in requests {
            // SAFETY: a request of ours that has not ended. The library ends it, and no memory belongs to it.
            unsafe { ffi::MPI_Request_free(&raw mut request) };
        }
    }

    /// Fails once the communicator was given up.
    pub(super) fn expect_usable(&self) -> Result<()> {
        check_running()?;
        self.given_up.borrow().clone().map_or(Ok(()), Err)
    }

    /// Finds out whether any rank has died, or takes no more part. One that waits must do so now and then: the rank that it waits
    /// for may live, and have given up.
    pub(super) fn look_for_deaths(&self) -> Result<()> {
        self.expect_usable()?;
        let Some(Arrived { from: rank, .. }) = self.probe(None, GIVEN_UP)? else { return Ok(()) };
        let error =
            CommError::Lost { rank, why: "it takes no more part, after an error of its own".to_owned() };
        self.is_abandoned.set(true);
        self.given_up.replace(Some(error.clone()));
        Err(error)
    }

    /// As [`check`], for an operation on this communicator.
    fn checked(&self, call: &'static str, code: c_int) -> Result<()> {
        check(call, code).map_err(|error| self.noticed(error))
    }

    /// Gives the communicator up after an error that says that ranks have died.
    fn noticed(&self, error: CommError) -> CommError {
        let CommError::RanksDied { .. } = error else { return error };
        if let Some(known) = &*self.given_up.borrow() {
            return known.clone();
        }
        // SAFETY: `comm` is a live communicator of our own.
        unsafe { deaths::revoke(self.comm) };
        let mut patience = Patience::default();
        let ranks = loop {
            // SAFETY: as above.
            let ranks = unsafe { deaths::known(self.comm) };
            if !ranks.is_empty() || patience.waited() > UNTIL_KNOWN {
                break ranks;
            }
            deaths::progress();
            patience.rest();
        };
        let error = CommError::RanksDied { ranks };
        self.is_abandoned.set(true);
        self.given_up.replace(Some(error.clone()));
        error
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn rank(&self) -> Result<Rank> {
        // SAFETY: `comm` is a live communicator.
        let rank = unsafe { number_of("MPI_Comm_rank", self.comm, ffi::MPI_Comm_rank) }?;
        u32::try_from(rank).map(Rank).map_err(|_| strange("MPI_Comm_rank"))
    }

    /// Looks for a message from `from`, or from anybody. Lets the library work on everything under way.
    pub(super) fn probe(&self, from: Option<Rank>, tag: Tag) -> Result<Option<Arrived>> {
        // SAFETY: reads a constant of the library.
        let source = from.map_or(unsafe { ffi::RSMPI_ANY_SOURCE }, number);
        let mut found = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: `comm` is a live communicator; `found` and `status` are places for the results.
        let code = unsafe {
            ffi::MPI_Iprobe(source, c_int::from(tag.0), self.comm, &raw mut found, status.as_mut_ptr())
        };
        self.checked("MPI_Iprobe", code)?;
        if found == 0 {
            return Ok(None);
        }
        let mut bytes = 0;
        // SAFETY: the probe has found a message, so it has filled the status.
        let (code, source) = unsafe {
            let code = ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut bytes);
            (code, (*status.as_ptr()).MPI_SOURCE)
        };
        check("MPI_Get_count", code)?;
        let from = u32::try_from(source).map(Rank).map_err(|_| strange("MPI_Iprobe"))?;
        let bytes = usize::try_from(bytes).map_err(|_| strange("MPI_Get_count"))?;
        Ok(Some(Arrived { from, bytes }))
    }
}

/// Says whether any rank of a communicator of the application has died, where the library reports that.
///
/// # Safety
/// A communicator that lives, on which errors return.
unsafe fn look_for_deaths(comm: ffi::MPI_Comm) -> Result<()> {
    if !deaths::are_reported() {
        return Ok(());
    }
    let (mut found, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
    // SAFETY: the caller's promise; `found` and `status` are places for the results. A probe leaves the message of an application
    // where it is.
    let code = unsafe {
        let tag = c_int::from(GIVEN_UP.0);
        ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, tag, comm, &raw mut found, status.as_mut_ptr())
    };
    check("MPI_Iprobe", code)
}

/// A duplicate of a communicator that is being made. The library writes to its places until it is made.
struct Duplicate(Option<Box<(ffi::MPI_Comm, ffi::MPI_Request)>>);

impl Duplicate {
    /// # Safety
    /// `parent` is a communicator that lives, on which errors return.
    unsafe fn begin(parent: ffi::MPI_Comm) -> Result<Self> {
        // SAFETY: reads constants of the library.
        let mut places = Box::new(unsafe { (ffi::RSMPI_COMM_NULL, ffi::RSMPI_REQUEST_NULL) });
        // SAFETY: the caller's promise; both places stay where they are until the request is complete.
        let code = unsafe { ffi::MPI_Comm_idup(parent, &raw mut places.0, &raw mut places.1) };
        check("MPI_Comm_idup", code)?;
        Ok(Self(Some(places)))
    }

    fn is_made(&mut self) -> Result<bool> {
        let Some(places) = &mut self.0 else { return Ok(true) };
        let (code, has_ended) = test(&mut places.1);
        check("MPI_Test", code).map(|()| has_ended)
    }

    /// The duplicate, once it is made.
    fn comm(mut self) -> ffi::MPI_Comm {
        // SAFETY: reads a constant of the library.
        self.0.take().map_or(unsafe { ffi::RSMPI_COMM_NULL }, |places| places.0)
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        // It was given up, and MPI has no way to cancel it.
        self.0.take().map(Box::leak);
    }
}

impl Drop for Handle {
    /// One on which messages may be left stays. Open MPI gives the number of one that was freed to the next, and late messages
    /// with it: a session took what a rank had sent to the one before.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon();
        }
        // After MPI_Finalize not even this may be called, and nothing is left to free.
        if !self.is_abandoned.get() && check_running().is_ok() {
            // SAFETY: MPI is running, and nobody else has this handle. A failure would leak only the
            // handle, so the code is of no interest.
            unsafe { ffi::MPI_Comm_free(&raw mut self.comm) };
        }
    }
}

impl<'h, 'b> Requests<'h, 'b> {
    pub(super) fn new(handle: &'h Handle, longest_wait: Duration) -> Self {
        Self {
            handle,
            requests: Vec::new(),
            active: 0,
            indices: Vec::new(),
            statuses: Vec::new(),
            buffers: PhantomData,
            longest_wait,
        }
    }

    /// How many have not completed.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Starts a send, and gives its place in the list.
    pub(super) fn send(&mut self, to: Rank, tag: Tag, bytes: &'b [u8]) -> Result<usize> {
        let (to, tag, comm) = (number(to), c_int::from(tag.0), self.handle.comm);
        let count = c_int::try_from(bytes.len()).map_err(|_| strange("MPI_Isend"))?;
        self.start("MPI_Isend", |request| {
            // SAFETY: the buffer is borrowed for longer than `self` lives, and `self` waits for the request.
            unsafe {
                ffi::MPI_Isend(bytes.as_ptr().cast(), count, ffi::RSMPI_UINT8_T, to, tag, comm, request)
            }
        })
    }

    /// Starts a receive, and gives its place in the list.
    pub(super) fn receive(&mut self, from: Rank, tag: Tag, bytes: &'b mut [u8]) -> Result<usize> {
        let (from, tag, comm) = (number(from), c_int::from(tag.0), self.handle.comm);
        let count = c_int::try_from(bytes.len()).map_err(|_| strange("MPI_Irecv"))?;
        self.start("MPI_Irecv", |request| {
            // SAFETY: the buffer is borrowed, for nobody else, for longer than `self` lives, and `self` waits
            // for the request.
            unsafe {
                let buffer = bytes.as_mut_ptr().cast();
                ffi::MPI_Irecv(buffer, count, ffi::RSMPI_UINT8_T, from, tag, comm, request)
            }
        })
    }

    fn start(
        &mut self,
        call: &'static str,
        start: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
    ) -> Result<usize> {
        // SAFETY: reads a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        self.handle.checked(call, start(&raw mut request))?;
        self.requests.push(request);
        self.indices.push(0);
        self.statuses.push(MaybeUninit::uninit());
        self.active += 1;
        Ok(self.requests.len() - 1)
    }

    /// Passes on the places of those that have completed since the last call.
    pub(super) fn progress(&mut self, mut completed: impl FnMut(usize)) -> Result<()> {
        if self.active == 0 {
            return Ok(());
        }
        if deaths::are_reported() {
            return self.progress_each(completed);
        }
        let count = c_int::try_from(self.requests.len()).map_err(|_| strange("MPI_Testsome"))?;
        let mut done = 0;
        // SAFETY: the three arrays have `count` places each; the library has set completed
        // requests to null, and skips them.
        let code = unsafe {
            ffi::MPI_Testsome(
                count,
                self.requests.as_mut_ptr(),
                &raw mut done,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr().cast(),
            )
        };
        // With an error inside one request's status the others are reported as usual. "Undefined" is negative.
        let done = usize::try_from(done).unwrap_or(0).min(self.requests.len());
        for &index in &self.indices[..done] {
            self.active = self.active.saturating_sub(1);
            completed(usize::try_from(index).map_err(|_| strange("MPI_Testsome"))?);
        }
        if code == SUCCESS {
            return Ok(());
        }
        // Those that it says nothing of may still be active, and their buffers stay borrowed: `drop` waits for each.
        Err(self.handle.noticed(failure("MPI_Testsome", self.code_of(done, code))))
    }

    /// As [`progress`](Self::progress), one request at a time. If one of several fails, Open MPI 5.0 also frees those to living
    /// ranks that it has marked as failing and that are still under way. Once their messages have arrived, it ends the process:
    /// "Send error after request freed".
    fn progress_each(&mut self, mut completed: impl FnMut(usize)) -> Result<()> {
        // The same happens to a message that had arrived when its receiver died, unless the library hears that first.
        deaths::progress();
        let mut codes = Vec::new();
        for (place, request) in self.requests.iter_mut().enumerate() {
            if is_null(*request) {
                continue;
            }
            let (code, has_ended) = test(request);
            if code != SUCCESS {
                codes.push(code);
            }
            if has_ended {
                self.active = self.active.saturating_sub(1);
                completed(place);
            }
        }
        worst(codes).map_or(Ok(()), |code| Err(self.handle.noticed(failure("MPI_Test", code))))
    }

    /// The code of a failure, where `of_all` is that of the whole call.
    fn code_of(&self, done: usize, of_all: c_int) -> c_int {
        let codes = self.statuses[..done].iter().map(|status| {
            // SAFETY: Testsome has filled as many statuses as it has completed requests, and reports an error
            // in one of them, so their error fields are set.
            unsafe { (*status.as_ptr()).MPI_ERROR }
        });
        worst(codes).unwrap_or(of_all)
    }
}

/// Asks for one request, which may be null. Gives the code, and whether the request has ended. For a failed one the library forgets
/// the buffer and makes it null.
fn test(request: &mut ffi::MPI_Request) -> (c_int, bool) {
    let (mut done, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
    // SAFETY: `request` is one of ours or null, and the others are places for the results.
    let code = unsafe { ffi::MPI_Test(&raw mut *request, &raw mut done, status.as_mut_ptr()) };
    (code, is_null(*request) || code == SUCCESS && done != 0)
}

fn is_null(request: ffi::MPI_Request) -> bool {
    // SAFETY: reads a constant of the library.
    request == unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// The code that says most of a failure: one that a rank has died, or else the first error.
fn worst(codes: impl IntoIterator<Item = c_int>) -> Option<c_int> {
    let mut failed = codes.into_iter().filter(|&code| code != SUCCESS);
    let first = failed.next()?;
    Some(std::iter::once(first).chain(failed).find(|&code| deaths::is_death(code)).unwrap_or(first))
}

impl Drop for Requests<'_, '_> {
    fn drop(&mut self) {
        // Also after an error or a panic: the library reads and writes the buffers until then, and their owner frees them next.
        let mut patience = Patience::default();
        while self.active > 0 {
            if self.progress(|_| ()).is_err() {
                // Each request by itself, as the library may fail for all of them at once.
                self.active = self.requests.iter_mut().map(|request| usize::from(!test(request).1)).sum();
            }
            let longest = match self.handle.expect_usable() {
                Ok(()) => self.longest_wait,
                Err(_) => self.longest_wait.min(AFTER_THE_END),
            };
            if patience.waited() > longest {
                abort(self.handle, self.active, patience.waited());
            }
            if patience.is_long() {
                // The communicator is given up then, and what is under way ends.
                let _ = self.handle.look_for_deaths();
            }
            patience.rest();
        }
    }
}

/// Ends the job. If the buffers of messages under way were reused, the library could send what lies there later, or write to
/// memory in other use. If the rank waited for ever, the job could not be started again.
fn abort(handle: &Handle, active: usize, waited: Duration) {
    let text = format!(
        "SCR ERROR: after an error, {active} messages of this rank have not ended for {} s, as MPI has failed or another rank does not \
         answer: the job is aborted; start it again",
        waited.as_secs()
    );
    scr_base::env::to_stderr(&text);
    #[expect(clippy::disallowed_methods, reason = "MPI_Abort ends the process before, or nothing does")]
    let end = || {
        std::thread::sleep(LONGEST_ABORT);
        let _ = raise(Signal::SIGKILL);
    };
    // MPICH 4.0 waits in MPI_Abort for messages that do not end. A launcher ends a job of which a process was killed, but not any
    // of which one has returned.
    drop(parallel::start(std::thread::Builder::new(), end));
    // SAFETY: MPI is running, as requests are under way; this does not return.
    unsafe { ffi::MPI_Abort(handle.comm, 1) };
}

/// After this time MPI has not ended the process, and will not do so.
const LONGEST_ABORT: Duration = Duration::from_secs(5);

/// The communicator of all processes of the launch.
pub fn world() -> ffi::MPI_Comm {
    // SAFETY: reads a constant of the library.
    unsafe { ffi::RSMPI_COMM_WORLD }
}

/// The rank of this process in a communicator, and how many ranks that has.
///
/// # Safety
/// MPI runs, this thread may call it, and the communicator lives.
pub unsafe fn rank_and_size(comm: ffi::MPI_Comm) -> Option<(u32, u32)> {
    // SAFETY: the caller's promise.
    let rank = unsafe { number_of("MPI_Comm_rank", comm, ffi::MPI_Comm_rank) }.ok()?;
    // SAFETY: the caller's promise.
    let size = unsafe { number_of("MPI_Comm_size", comm, ffi::MPI_Comm_size) }.ok()?;
    Some((u32::try_from(rank).ok()?, u32::try_from(size).ok()?))
}

/// How many processes the launch has.
pub(super) fn world_size() -> Option<u32> {
    check_running().ok()?;
    // SAFETY: MPI is running, so this communicator lives.
    unsafe { rank_and_size(world()) }.map(|(_, size)| size)
}

/// Whether `MPI_Comm_spawn` has started this process.
pub(super) fn has_parent() -> bool {
    // SAFETY: reads a constant of the library.
    let none = unsafe { ffi::RSMPI_COMM_NULL };
    let mut parent = none;
    // SAFETY: MPI is running if it is called, and `parent` is a place for the communicator.
    check_running().is_ok()
        && unsafe { ffi::MPI_Comm_get_parent(&raw mut parent) } == SUCCESS
        && parent != none
}

/// While this lives, errors on a communicator of the application return. It gets its own handler back then.
struct ErrorsReturn {
    comm: ffi::MPI_Comm,
    handler: ffi::MPI_Errhandler,
}

impl ErrorsReturn {
    /// # Safety
    /// `comm` is a communicator that lives at least as long.
    unsafe fn on(comm: ffi::MPI_Comm) -> Result<Self> {
        let mut handler = MaybeUninit::uninit();
        // SAFETY: the caller's promise, and a place for the handler.
        let code = unsafe { ffi::MPI_Comm_get_errhandler(comm, handler.as_mut_ptr()) };
        check("MPI_Comm_get_errhandler", code)?;
        // SAFETY: the call has succeeded, so it has given the handler.
        let errors = Self { comm, handler: unsafe { handler.assume_init() } };
        // SAFETY: the caller's promise; the handler is a constant of the library.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN) };
        check("MPI_Comm_set_errhandler", code)?;
        Ok(errors)
    }
}

impl Drop for ErrorsReturn {
    fn drop(&mut self) {
        // SAFETY: the communicator lives, and the handler came from it. A failure leaves errors to return.
        unsafe { ffi::MPI_Comm_set_errhandler(self.comm, self.handler) };
        // SAFETY: a reference of our own, as the handler was asked for; it is used no more.
        unsafe { ffi::MPI_Errhandler_free(&raw mut self.handler) };
    }
}

/// A number that MPI gives for a communicator.
///
/// # Safety
/// `ask` writes one number, and may be called with `comm`.
unsafe fn number_of(
    call: &'static str,
    comm: ffi::MPI_Comm,
    ask: unsafe extern "C" fn(ffi::MPI_Comm, *mut c_int) -> c_int,
) -> Result<c_int> {
    let mut number = 0;
    // SAFETY: the caller's promise, and room for the number.
    check(call, unsafe { ask(comm, &raw mut number) })?;
    Ok(number)
}

fn flag(ask: unsafe extern "C" fn(*mut c_int) -> c_int) -> bool {
    let mut flag = 0;
    // SAFETY: only passed the two functions that may be called at any time, and that set one number.
    unsafe { ask(&raw mut flag) };
    flag != 0
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    ensure(code == SUCCESS, || failure(call, code))
}

/// The meaning of a code: that ranks have died, or the library's text.
fn failure(call: &'static str, code: c_int) -> CommError {
    if deaths::is_death(code) {
        return CommError::RanksDied { ranks: Vec::new() };
    }
    let mut buffer = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length = 0;
    // SAFETY: the buffer is as long as the longest text.
    let returned =
        unsafe { ffi::MPI_Error_string(code, buffer.as_mut_ptr().cast::<c_char>(), &raw mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(buffer.len());
    let text = match (returned, length) {
        (SUCCESS, 1..) => String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned(),
        _ => format!("error {code}"),
    };
    CommError::Mpi { call, text }
}

fn strange(call: &'static str) -> CommError {
    CommError::Mpi { call, text: "a number is out of the range of the library".to_owned() }
}

/// A rank as MPI has it. Ranks are below the size, which MPI gave as such a number.
fn number(rank: Rank) -> c_int {
    c_int::try_from(rank.0).unwrap_or(c_int::MAX)
}

pub(super) const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;
/// The tag of the message that its sender takes no more part.
pub(super) const GIVEN_UP: Tag = Tag(2);
/// Once any rank takes no more part, messages under way end soon, or never.
const AFTER_THE_END: Duration = Duration::from_secs(60);
/// A rank may hear that the communicator was given up before it hears of the death, which all ranks do within milliseconds.
const UNTIL_KNOWN: Duration = Duration::from_millis(100);
