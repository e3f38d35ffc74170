//! A plugin from outside brings a job through the loss of a node, and a bad one is an error on all ranks.

use super::world::{plugins, World};
use scr_core::comm::Rank;
use scr_test_plugins::{built, manifest, vendor_scheme};
use std::path::Path;
use tempfile::TempDir;

fn uneven(rank: Rank) -> Vec<usize> {
    vec![10_000 * rank.index(), 0, 3]
}

/// A folder with this library and manifest, named `TRY` unless the manifest says otherwise.
fn folder(library: &Path, manifest: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::copy(library, folder.path().join(library.file_name().unwrap())).unwrap();
    std::fs::write(folder.path().join("plugin.toml"), manifest).unwrap();
    folder
}

/// A job whose scheme is a plugin from that folder.
fn world(folder: &Path, scheme: &str) -> World {
    let path = format!("{}:{}", folder.display(), plugins().display());
    World::new(8, 4).set("SCR_PLUGIN_PATH", &path).set("SCR_COPY_TYPE", scheme)
}

#[test]
fn a_vendors_scheme_brings_a_job_through_a_node_loss() {
    let (library, manifest) = vendor_scheme();
    let folder = folder(&library, &std::fs::read_to_string(manifest).unwrap());
    let world = world(folder.path(), "mirror");
    world.run(|application| application.checkpoint(4, uneven).unwrap());
    world.lose("n2");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(4));
    // What was rebuilt is protected again.
    world.lose("n3");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(4));
}

/// What all ranks say when the scheme TRY is a copy of this library.
fn refusal(library: &Path, manifest: &str) -> String {
    let folder = folder(library, manifest);
    let world = world(folder.path(), "TRY");
    let outcome = world.try_run(|application| match application {
        Ok(mut application) => application.checkpoint(1, uneven).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    });
    let first = outcome.ranks[0].clone().expect_err("a bad plugin protects nothing");
    outcome.all_gave(&Err(first.clone()));
    first
}

#[test]
fn a_bad_library_is_the_same_error_on_all_ranks() {
    let text = TempDir::new().unwrap();
    let text = text.path().join("text.so");
    std::fs::write(&text, "I am a text").unwrap();
    for (library, reason) in [
        (text, "it is a text, not a shared library"),
        (built("no_plugin"), "is no scr plugin"),
        (built("other_version"), "was built for version 2.1.0 of the plugin interface"),
    ] {
        let name = library.file_name().unwrap().to_str().unwrap().to_owned();
        let text = refusal(&library, &manifest("TRY", "scheme", &name));
        assert!(
            text.contains("the scheme TRY cannot be used: rank 0 on n0") && text.contains(reason),
            "{text}"
        );
    }
}

#[test]
fn a_scheme_that_panics_is_an_error_on_all_ranks() {
    for method in ["new", "losses_survived", "redundancy_len", "protect"] {
        let manifest = manifest("TRY", "scheme", "libobedient.so") + &format!("default = \"{method}\"\n");
        let text = refusal(&built("obedient"), &manifest);
        assert!(text.contains(&format!("asked to panic in {method}")), "{text}");
    }
}

#[test]
fn a_scheme_that_is_not_there_or_does_not_take_its_options_stops_the_start() {
    for (settings, reason) in [
        (
            [("SCR_COPY_TYPE", "ACME"), ("SCR_FLUSH", "0")],
            "SCR_COPY_TYPE: there is no scheme plugin named ACME",
        ),
        ([("SCR_COPY_TYPE", "XRO"), ("SCR_CACHE_BYPASS", "1")], "did you mean XOR?"),
    ] {
        let world =
            settings.into_iter().fold(World::new(4, 2), |world, (name, value)| world.set(name, value));
        let outcome = world.try_run(|application| application.err().map(|error| error.to_string()));
        for error in &outcome.ranks {
            let error = error.as_deref().expect("no session begins");
            assert!(error.contains("would not be protected") && error.contains(reason), "{error}");
        }
    }
}

#[test]
fn a_scheme_that_answers_nonsense_is_an_error_on_all_ranks_that_names_it() {
    for (nonsense, reason) in [
        ("promise-all", "the scheme TRY promises to survive the loss of 4 members of a set of 4"),
        ("any-length", "the scheme TRY asks for 18446744073709551615 bytes of redundancy"),
    ] {
        let manifest = manifest("TRY", "scheme", "libobedient.so") + &format!("default = \"{nonsense}\"\n");
        let text = refusal(&built("obedient"), &manifest);
        assert!(text.contains(reason) && text.contains("this is an error in the plugin"), "{text}");
    }
}
