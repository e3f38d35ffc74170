//! The transport `bbapi` on a stand-in for its vendor's library: copies outlive processes, failures are reported, and every
//! result is checked.

#![allow(clippy::unwrap_used, reason = "a test fails if it cannot continue")]

use scr_plugin_api::{KvTree, Transport};
use scr_test_plugins::staged::{self, alone};
use scr_test_plugins::standin::Standin;
use std::path::Path;

const STANDIN: &str = "standin_bbapi";

fn options(library: &Path) -> KvTree {
    let mut options = KvTree::new();
    options.set("LIBRARY", library.display());
    options.set("EXTENTS", 0);
    options
}

fn make(library: &Path) -> Box<dyn Transport> {
    Box::new(scr_bbapi::from_options(&options(library)).unwrap())
}

#[test]
fn a_copy_goes_on_without_the_process_that_asked_for_it() {
    let name = "a_copy_goes_on_without_the_process_that_asked_for_it";
    alone(|| staged::a_ticket_outlives_its_process(STANDIN, name, &make));
}

#[test]
fn a_failing_service_is_reported_and_retried() {
    alone(|| staged::a_failing_service_is_reported_and_retried(STANDIN, &make));
}

#[test]
fn a_short_file_is_found_though_the_service_is_content() {
    alone(|| staged::a_short_file_is_found_though_the_service_is_content(STANDIN, &make));
}

#[test]
fn files_that_the_burst_buffer_cannot_copy_are_refused_or_copied_in_threads() {
    alone(|| {
        let standin = Standin::new(STANDIN);
        let folder = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let job = staged::job(folder.path(), "a");
        let mut options = options(standin.library());
        options.set("EXTENTS", 1);
        let error = scr_bbapi::from_options(&options).unwrap().start(&job).unwrap_err();
        for part in ["/dev/shm/", "kind 0x1021994, not on XFS, ext4 or GPFS", "FALLBACK=1", "FLUSH=PTHREAD"] {
            assert!(error.text.contains(part), "{error}");
        }
        options.set("FALLBACK", 1);
        let transport = scr_bbapi::from_options(&options).unwrap();
        let ticket = transport.start(&job).unwrap();
        assert_eq!(transport.wait(&ticket), Ok(scr_plugin_api::CopyState::Done));
        staged::arrived(&job);
        assert_eq!(standin.begun(), 0);
    });
}

#[test]
fn a_node_without_the_service_is_reported_in_the_vendors_words() {
    alone(|| {
        let standin = Standin::new(STANDIN);
        standin.set("down", "");
        let error = scr_bbapi::from_options(&options(standin.library())).err().unwrap();
        for part in
            ["BB_InitLibrary gave 111", "error.text=no bbProxy runs on this node", "bbProxy runs here"]
        {
            assert!(error.text.contains(part), "{error}");
        }
    });
}

#[test]
fn a_process_has_one_connection_and_another_one_is_refused() {
    alone(|| {
        let standin = Standin::new(STANDIN);
        let mut options = options(standin.library());
        let first = scr_bbapi::from_options(&options).unwrap();
        assert!(scr_bbapi::from_options(&options).is_ok());
        options.set("CONTRIBUTOR", 7);
        let error = scr_bbapi::from_options(&options).err().unwrap();
        assert!(error.text.contains("a process has one connection"), "{error}");
        drop(first);
        assert!(scr_bbapi::from_options(&options).is_ok());
    });
}
