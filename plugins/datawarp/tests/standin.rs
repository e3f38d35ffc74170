//! The transport `datawarp` on a stand-in for its vendor's library: copies outlive processes, failures are reported, and every
//! result is checked.

#![allow(clippy::unwrap_used, reason = "a test fails if it cannot continue")]

use scr_plugin_api::{KvTree, Transport};
use scr_test_plugins::staged::{self, alone};
use scr_test_plugins::standin::Standin;
use std::path::Path;

const STANDIN: &str = "standin_datawarp";

fn options(library: &Path) -> KvTree {
    let mut options = KvTree::new();
    options.set("LIBRARY", library.display());
    options
}

fn make(library: &Path) -> Box<dyn Transport> {
    Box::new(scr_datawarp::from_options(&options(library)).unwrap())
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
fn a_cache_outside_of_an_instance_is_reported_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let standin = Standin::within(STANDIN, folder.path());
    standin.set("instance", "/var/opt/cray/dws");
    let error = make(standin.library()).start(&staged::job(folder.path(), "a")).unwrap_err();
    let source = folder.path().join("1").display().to_string();
    assert!(error.text.contains(&source) && error.text.contains("Invalid argument"), "{error}");
    assert!(error.text.contains("$DW_JOB_STRIPED"), "{error}");
}

#[test]
fn an_earlier_transfer_is_ended_before_its_file_is_staged_again() {
    let folder = tempfile::tempdir().unwrap();
    let standin = Standin::within(STANDIN, folder.path());
    standin.set("half", "");
    let (old, new) = (staged::job(folder.path(), "old"), staged::job(folder.path(), "new"));
    let left = make(standin.library()).start(&old).unwrap();
    assert!(make(standin.library()).poll(&left).is_ok());
    let transport = make(standin.library());
    let ticket = transport.start(&new).unwrap();
    standin.unset("half");
    assert_eq!(transport.wait(&ticket), Ok(scr_plugin_api::CopyState::Done));
    staged::arrived(&new);
    assert_eq!(std::fs::metadata(&old.items[0].destination).unwrap().len(), 50_000);
}
