//! Memory of removed files that is given back while the application continues: that takes a third of the time of writing it.

use scr_base::fs::Files;
use scr_base::parallel;
use scr_plugin_api::held;
use std::mem::take;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};

/// The threads of this rank that give memory back.
#[derive(Default)]
pub(crate) struct Freeing(Mutex<Vec<JoinHandle<()>>>);

impl Freeing {
    /// Does what removes these files. Their names are gone when it returns, and their memory is so soon after.
    pub(crate) fn after<R>(
        &self,
        files: &dyn Files,
        removed: impl Iterator<Item = PathBuf>,
        remove: impl FnOnce() -> R,
    ) -> R {
        let memory: Vec<_> = removed.filter_map(|path| files.hold_memory(&path)).collect();
        let result = remove();
        if !memory.is_empty() {
            let mut threads = held(&self.0);
            threads.retain(|thread| !thread.is_finished());
            // If no thread can be started, this one frees the memory.
            threads.extend(parallel::start(Builder::new().name("scr-free".to_owned()), move || {
                // This lowers the priority of this thread alone. Freeing the memory may wait for what the application is about to
                // do.
                let _ = rustix::process::setpriority_process(None, LEAST_PRIORITY);
                drop(memory);
            }));
        }
        result
    }

    /// Returns when the memory of all that was removed is there again.
    pub(crate) fn wait(&self) {
        let threads = take(&mut *held(&self.0));
        threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The lowest priority that a thread may give itself.
const LEAST_PRIORITY: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use std::fs::{read_dir, read_link, remove_file, write};
    use std::path::Path;

    /// Whether this process holds a file of this name that is removed.
    fn is_held(path: &Path) -> bool {
        let open = read_dir("/proc/self/fd").unwrap().filter_map(|entry| read_link(entry.ok()?.path()).ok());
        let removed = format!("{} (deleted)", path.display());
        open.into_iter().any(|link| link.as_os_str() == &*removed)
    }

    #[test]
    fn names_are_gone_at_once_and_memory_is_there_again_after_a_wait() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("file");
        write(&path, vec![7; 3 << 20]).unwrap();
        let freeing = Freeing::default();
        let was_held = freeing.after(&RealFiles, [path.clone()].into_iter(), || {
            remove_file(&path).unwrap();
            is_held(&path)
        });
        assert!(was_held && !path.exists());
        freeing.wait();
        assert!(!is_held(&path));
    }

    #[test]
    fn what_is_not_in_memory_is_not_held() {
        let (memory, disk) = (
            tempfile::tempdir_in("/dev/shm").unwrap(),
            tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap(),
        );
        for dir in [&memory, &disk] {
            write(dir.path().join("file"), [7; 100]).unwrap();
        }
        assert!(RealFiles.hold_memory(&memory.path().join("file")).is_some());
        assert!(RealFiles.hold_memory(&disk.path().join("file")).is_none());
        assert!(RealFiles.hold_memory(&memory.path().join("missing")).is_none());
    }
}
