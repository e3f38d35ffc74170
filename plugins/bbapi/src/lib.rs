//! The transport `bbapi`: asks IBM's burst buffer servers to copy files from the node's SSD to the parallel file system.
//!
//! The servers copy on their own, also after the job has ended. A job is a transfer with one contributor. Its tag is computed
//! from the job's token, so that another process that asks for the same job finds it and does not copy again. It has been tested
//! with a stand-in only.
//!
//! The burst buffer copies extents of blocks, so that it needs a cache on the SSD's XFS, never tmpfs. As in AXL, other files are
//! refused, or with `FALLBACK=1` copied in threads.

#![deny(unsafe_code)]

mod calls;
mod places;
mod server;

use scr_copying::{Copying, Pool};
use scr_plugin_api::{CopyJob, CopyState, KvTree, PluginError, Transport};
use scr_staging::Staged;
use server::Server;

/// The name of the transport, in small letters.
const NAME: &str = "bbapi";
/// The default name of the library.
const LIBRARY: &str = "libbbAPI.so";

/// The name of the fallback, which copies if the burst buffer cannot.
const FALLBACK: &str = "bbapi-fallback";
const FALLBACK_THREADS: usize = 4;

/// The transport `bbapi`.
pub struct Bbapi {
    staged: Staged<Server>,
    /// Whether to look between which file systems files are to be copied.
    look: bool,
    /// Copies what the burst buffer cannot.
    fallback: Option<Copying<Pool>>,
}

/// Reads what the manifest allows of options, and opens the library.
///
/// # Errors
/// There is no such library on this node, or it does not work there.
pub fn from_options(options: &KvTree) -> Result<Bbapi, PluginError> {
    let wrong = |error| PluginError::refused(format!("transport {NAME}: {error}"));
    let flag = |name: &str, usual| {
        options.parse::<u8>(name).map_err(wrong).map(|value| value.map_or(usual, |value| value != 0))
    };
    let contributor = options.parse("CONTRIBUTOR").map_err(wrong)?.unwrap_or_else(std::process::id);
    let library = options.text("LIBRARY").unwrap_or(LIBRARY);
    Ok(Bbapi {
        look: flag("EXTENTS", true)?,
        fallback: flag("FALLBACK", false)?.then(|| Copying::new(FALLBACK, Pool::new(FALLBACK_THREADS))),
        staged: Staged::new(Server::connect(library, contributor)?),
    })
}

scr_plugin_api::export_transport! {
    new: from_options,
}

impl Bbapi {
    /// The giver of this ticket. One of the fallback begins with its name.
    fn of(&self, ticket: &[u8]) -> &dyn Transport {
        match &self.fallback {
            Some(fallback) if ticket.starts_with(FALLBACK.as_bytes()) => fallback,
            _ => &self.staged,
        }
    }
}

impl Transport for Bbapi {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let obstacle = if self.look { places::obstacle(job) } else { None };
        match (obstacle, &self.fallback) {
            (None, _) => self.staged.start(job),
            (Some(_), Some(fallback)) => fallback.start(job),
            (Some(why), None) => {
                Err(PluginError::refused(format!(
                    "transport {NAME}: {why}; put the cache on the node's SSD, set FALLBACK=1 to have such files copied in threads, \
                     or choose another transport, such as FLUSH=PTHREAD"
                )))
            }
        }
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.of(ticket).poll(ticket)
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        self.of(ticket).wait(ticket)
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.of(ticket).cancel(ticket)
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.of(ticket).crc(ticket, item)
    }
}
