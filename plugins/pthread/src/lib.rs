//! The transport `pthread`: copies in a bounded pool of threads, while the caller continues.
//!
//! The threads do I/O and arithmetic, and do not use MPI. Dropping the transport cancels unfinished copies, so that no thread
//! outlives it.

#![deny(unsafe_code)]

use scr_copying::{Copying, Pool};
use scr_plugin_api::pace::Limits;
use scr_plugin_api::{KvTree, PluginError};

/// The transport `pthread`.
pub type Pthread = Copying<Pool>;

/// Threads where the option `THREADS` says nothing.
pub const USUAL_THREADS: usize = 4;

/// A transport with at most so many threads; with none it would never copy, so one is the least.
pub fn pthread(threads: usize) -> Pthread {
    limited(threads, Limits::default())
}

/// The same; all threads together keep to the limits.
pub fn limited(threads: usize, limits: Limits) -> Pthread {
    Copying::limited("pthread", Pool::new(threads), limits)
}

/// Reads what the manifest allows of options, and the host has checked.
///
/// # Errors
/// One that should be a number is none.
pub fn from_options(options: &KvTree) -> Result<Pthread, PluginError> {
    let refused = |error| PluginError::refused(format!("transport pthread: {error}"));
    let threads = options.parse("THREADS").map_err(refused)?;
    let limits = Limits::from_options(options).map_err(refused)?;
    Ok(limited(threads.unwrap_or(USUAL_THREADS), limits))
}

scr_plugin_api::export_transport! {
    new: from_options,
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::{CopyItem, CopyJob, Transport};
    use std::fs;

    #[test]
    fn the_number_of_threads_and_the_limits_are_options() {
        let mut options = KvTree::new();
        let has = |options: &KvTree, threads: usize| {
            format!("{:?}", from_options(options).unwrap()).contains(&format!("most_threads: {threads},"))
        };
        assert!(has(&options, USUAL_THREADS));
        options.set("THREADS", 2);
        assert!(has(&options, 2));
        options.set("THREADS", "many");
        assert!(from_options(&options).unwrap_err().text.contains("THREADS"));
        let mut options = KvTree::new();
        options.set("PERCENT", "all");
        assert!(from_options(&options).unwrap_err().text.contains("PERCENT"));
    }

    #[test]
    fn no_thread_outlives_the_transport() {
        let folder = tempfile::TempDir::new().unwrap();
        let items: Vec<_> = (0..64)
            .map(|number| {
                let source = folder.path().join(format!("{number}"));
                fs::write(&source, vec![7; 1 << 20]).unwrap();
                CopyItem { source, destination: folder.path().join(format!("{number}.copy")), bytes: 1 << 20 }
            })
            .collect();
        let transport = pthread(2);
        let job = CopyJob { token: "t".into(), items, block_bytes: 4096, take_crc: true };
        transport.start(&job).unwrap();
        drop(transport);
        let before = sizes(folder.path());
        pthread(1).start(&CopyJob { token: "u".into(), items: vec![], ..job }).unwrap();
        assert_eq!(sizes(folder.path()), before);
    }

    fn sizes(folder: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
        let all = scr_plugin_api::paths_in(folder).unwrap().into_iter();
        all.map(|path| (path.clone(), path.metadata().unwrap().len())).collect()
    }
}
