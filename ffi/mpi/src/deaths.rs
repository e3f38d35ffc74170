//! Dead ranks that the MPI library knows of, if it can go on without them: the ULFM extension.
//!
//! Its functions are looked up while the job runs. So a library that was built with an MPI without them, such as Open MPI 4.1,
//! makes use of them in one of the same kind that has them, such as Open MPI 5. MPICH has the functions too, but most builds of
//! it end the job in them, also where nobody has died: they are never called there. The extension is asked about communicators of
//! our own only, and none of its functions that changes what a communicator of the application knows is called.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::sync::OnceLock;

use ::mpi::ffi;

use super::calls::{GIVEN_UP, SUCCESS};
use super::library;
use scr_comm::Rank;

/// The functions of the extension.
struct Ulfm {
    revoke: unsafe extern "C" fn(ffi::MPI_Comm) -> c_int,
    /// Newer than the rest. It changes nothing, as the acknowledgement of failures does.
    failed: Option<unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int>,
}

/// Whether the library says of ranks that they have died, rather than to end the job.
pub(super) fn are_reported() -> bool {
    ulfm().is_some()
}

/// Whether a code says that a rank has died, or that another rank has given up the communicator for that.
pub(super) fn is_death(code: c_int) -> bool {
    let mut class = SUCCESS;
    // SAFETY: MPI runs, as it has given the code; the class has room.
    let known = unsafe { ffi::MPI_Error_class(code, &raw mut class) } == SUCCESS;
    known && are_reported() && DEATHS.contains(&class)
}

/// Makes every operation on a communicator fail, on all its ranks.
///
/// # Safety
/// A communicator of our own that lives.
pub(super) unsafe fn revoke(comm: ffi::MPI_Comm) {
    if let Some(ulfm) = ulfm() {
        // SAFETY: the caller's promise, and the type of this function in all MPIs that have it. If it fails, ranks that wait
        // find out by themselves, as they look for deaths.
        unsafe { (ulfm.revoke)(comm) };
    }
}

/// Lets the library work on what it hears of other processes. On a communicator that was revoked no call does that any more.
pub(super) fn progress() {
    let (mut found, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
    // SAFETY: a communicator of the library, of this process alone, and places for the results. No message is taken.
    unsafe {
        let (source, comm) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_COMM_SELF);
        ffi::MPI_Iprobe(source, c_int::from(GIVEN_UP.0), comm, &raw mut found, status.as_mut_ptr());
    }
}

/// The ranks of a communicator that are known to have died.
///
/// # Safety
/// A communicator that lives.
pub(super) unsafe fn known(comm: ffi::MPI_Comm) -> Vec<Rank> {
    let Some(failed) = ulfm().and_then(|ulfm| ulfm.failed) else { return Vec::new() };
    let (mut dead, mut all) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the caller's promise, the type of this function, and a place for the group.
    if unsafe { failed(comm, dead.as_mut_ptr()) } != SUCCESS {
        return Vec::new();
    }
    // SAFETY: as above.
    let has_all = unsafe { ffi::MPI_Comm_group(comm, all.as_mut_ptr()) } == SUCCESS;
    // SAFETY: a call that has succeeded has made the group.
    let mut dead = unsafe { dead.assume_init() };
    let mut ranks = Vec::new();
    if has_all {
        // SAFETY: as above.
        let mut all = unsafe { all.assume_init() };
        // SAFETY: both groups live.
        ranks = unsafe { ranks_of(dead, all) };
        // SAFETY: ours, and used no more.
        unsafe { ffi::MPI_Group_free(&raw mut all) };
    }
    // SAFETY: as above.
    unsafe { ffi::MPI_Group_free(&raw mut dead) };
    ranks
}

/// The ranks in `all` of the members of `some`.
///
/// # Safety
/// Two groups that live.
unsafe fn ranks_of(some: ffi::MPI_Group, all: ffi::MPI_Group) -> Vec<Rank> {
    let mut size = 0;
    // SAFETY: the caller's promise, and room for the number.
    let asked = unsafe { ffi::MPI_Group_size(some, &raw mut size) };
    let members: Vec<c_int> = if asked == SUCCESS { (0..size).collect() } else { Vec::new() };
    let mut ranks = vec![-1; members.len()];
    // SAFETY: the caller's promise; both lists have as many places as members.
    let code = unsafe {
        ffi::MPI_Group_translate_ranks(
            some,
            members.len() as c_int,
            members.as_ptr(),
            all,
            ranks.as_mut_ptr(),
        )
    };
    // A rank that is not there is negative.
    let ranks = ranks.into_iter().filter(|_| code == SUCCESS);
    ranks.filter_map(|rank| u32::try_from(rank).ok().map(Rank)).collect()
}

fn ulfm() -> Option<&'static Ulfm> {
    static FOUND: OnceLock<Option<Ulfm>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref()
}

fn find() -> Option<Ulfm> {
    let revoke = symbol(c"MPIX_Comm_revoke").filter(|_| library().is_open_mpi)?;
    let failed = symbol(c"MPIX_Comm_get_failed");
    // SAFETY: the types of these functions in Open MPI.
    unsafe {
        Some(Ulfm {
            revoke: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(ffi::MPI_Comm) -> c_int>(
                revoke,
            ),
            failed: failed.map(|failed| {
                std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int,
                >(failed)
            }),
        })
    }
}

/// A function of the MPI library. In a program such as Python's interpreter, what a module loads is not among the symbols of all.
fn symbol(name: &CStr) -> Option<*mut libc::c_void> {
    // SAFETY: looks a string up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let found = if found.is_null() { symbol_beside(name)? } else { found };
    (!found.is_null()).then_some(found)
}

/// The same, in the library that has the functions of MPI that this one is linked with.
fn symbol_beside(name: &CStr) -> Option<*mut libc::c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let known: unsafe extern "C" fn(*mut c_int) -> c_int = ffi::MPI_Initialized;
    // SAFETY: an address of a function, and room for what is known of it.
    if unsafe { libc::dladdr(known as *const libc::c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all zeros are a value of this type, and the call has filled it in.
    let path = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the path of a library that is loaded; it is not loaded anew.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // SAFETY: a library that is loaded. It stays so, since this one needs it.
    (!library.is_null()).then(|| unsafe { libc::dlsym(library, name.as_ptr()) })
}

/// `MPIX_ERR_PROC_FAILED`, `MPIX_ERR_PROC_FAILED_PENDING` and `MPIX_ERR_REVOKED` of Open MPI.
const DEATHS: [c_int; 3] = [75, 76, 77];
