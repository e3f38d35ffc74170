//! The transport `sync` put through the conformance suite for transports.

use scr_plugin_api::conformance_transport::{all, run, Subject, TinyFileSystem};
use scr_sync::Sync;

#[test]
fn the_transport_keeps_every_rule() {
    let folder = tempfile::TempDir::new().unwrap();
    let tiny = folder.path().join("tiny");
    std::fs::create_dir(&tiny).unwrap();
    let tiny = TinyFileSystem::mount(&tiny);
    let full = tiny.as_ref().map(TinyFileSystem::folder);
    let failures = run(&Subject { make: &|| Box::new(Sync::new()), folder: folder.path(), full });
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(all().len() > 20);
}
