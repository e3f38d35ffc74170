//! A plugin from outside brings a job through the loss of a node, and a bad one is an error on all ranks.

use super::own_mounts::in_own_mounts;
use super::world::{plugins, Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::Error;
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_plugins::{built, manifest, vendor_scheme};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
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
#[ignore = "long"]
fn a_vendors_scheme_brings_a_job_through_a_node_loss() {
    let (library, manifest) = vendor_scheme();
    let folder = folder(&library, &std::fs::read_to_string(manifest).unwrap());
    let world = world(folder.path(), "mirror");
    world.run(|application| application.checkpoint(4, uneven).unwrap());
    world.lose("n2");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(4));
    // The rebuilt part is protected again.
    world.lose("n3");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(4));
}

/// The scheme that rebuilds other bytes while a file is there.
fn twice(wrong: &Path) -> TempDir {
    let manifest = format!(
        "name = \"TWICE\"\nkind = \"scheme\"\nversion = \"1.0\"\nabi = \"1.0\"\nlibrary = \"libtwice.so\"\n\
         [format]\noldest = 1\nnewest = 1\n[[option]]\nname = \"WRONG\"\ntype = \"text\"\ndefault = \"{}\"\n",
        wrong.display()
    );
    folder(&built("twice"), &manifest)
}

/// The warning said that ranks which protected each other ran on one node.
#[test]
fn a_scheme_that_is_not_installed_any_more_is_why_a_checkpoint_is_not_protected() {
    let folder = twice(Path::new("none"));
    let mut world = world(folder.path(), "TWICE");
    world.run(|application| application.checkpoint(4, uneven).unwrap());
    world.put("SCR_PLUGIN_PATH", &plugins().display().to_string());
    world.put("SCR_COPY_TYPE", "XOR");
    let run = world.run(|application| application.restart(uneven));
    run.all_gave(&Some(4));
    let words = ["WARNING", "not protected against the loss of a node: ", "TWICE", "the next checkpoint"];
    let line = run.line_with(&words);
    assert!(!line.contains("on one node"), "{line}");
}

/// The checksum was that of the first write: every checkpoint counted as lost, and right rebuilds were refused.
#[test]
fn a_scheme_that_writes_twice_brings_a_job_through_a_node_loss() {
    let folder = twice(Path::new("none"));
    let world = world(folder.path(), "TWICE");
    world.run(|application| application.checkpoint(4, uneven).unwrap());
    world.run(|application| application.restart(uneven)).all_gave(&Some(4));
    for node in ["n2", "n3"] {
        world.lose(node);
        world.run(|application| application.restart(uneven)).all_gave(&Some(4));
    }
    // Another version of it is installed.
    std::fs::copy(built("obedient"), folder.path().join("libobedient.so")).unwrap();
    std::fs::write(folder.path().join("plugin.toml"), manifest("TWICE", "scheme", "libobedient.so")).unwrap();
    world.lose("n2");
    let said = "it was written in format 1 by version 1.0 of the scheme TWICE, and version 1.0 reads the formats 2 to 3";
    world.try_run(|begun| begun.is_ok()).line_with(&["ERROR", said]);
}

/// The application got the wrong bytes. Later it did not, the message blamed the copy, and the run began at zero.
#[test]
fn a_rebuild_that_writes_wrong_bytes_over_right_ones_is_refused() {
    let wrong = tempfile::NamedTempFile::new().unwrap();
    let folder = twice(wrong.path());
    let world = world(folder.path(), "TWICE");
    world.run(|application| application.checkpoint(4, uneven).unwrap());
    world.run(|application| application.restart(uneven)).all_gave(&Some(4));
    world.lose("n2");
    let run = world.try_run(|begun| begun.is_ok());
    run.all_gave(&false);
    let library = std::fs::canonicalize(folder.path()).unwrap().join("libtwice.so");
    run.line_with(&[
        "ERROR",
        &format!("the scheme TWICE ({}) has rebuilt other bytes: ckpt.4/", library.display()),
    ]);
    drop(wrong);
    world.run(|application| application.restart(uneven)).all_gave(&Some(4));
}

/// The dataset counted as lost, and was removed after the next checkpoint. Without another one the run began at zero.
#[test]
#[ignore = "long"]
fn a_checkpoint_stays_in_cache_while_its_scheme_cannot_be_loaded() {
    let (library, manifest) = vendor_scheme();
    let folder = folder(&library, &std::fs::read_to_string(manifest).unwrap());
    let mut world = world(folder.path(), "mirror").set("SCR_CACHE_SIZE", "3");
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    let installed = folder.path().join(library.file_name().unwrap());
    let away = folder.path().join("away");
    let take_away = |world: &mut World, node: &str| {
        world.lose(node);
        std::fs::rename(&installed, &away).unwrap();
        world.put("SCR_COPY_TYPE", "XOR");
    };
    take_away(&mut world, "n2");
    for begun in world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string())).ranks {
        assert!(begun.unwrap_err().contains("ckpt.1 could not be brought back"));
    }
    std::fs::rename(&away, &installed).unwrap();
    world.run(|application| {
        assert_eq!(application.restart(uneven), Some(1));
        application.checkpoint(2, uneven).unwrap();
    });
    world.put("SCR_COPY_TYPE", "mirror");
    world.run(|application| application.checkpoint(3, uneven).unwrap());
    take_away(&mut world, "n1");
    let run = world.run(|application| {
        assert_eq!(application.restart(uneven), Some(2));
        application.checkpoint(4, uneven).unwrap();
    });
    run.line_with(&["ERROR", "dataset 3 `ckpt.3' cannot be restored from cache in this run", "It stays"]);
    run.line_with(&["WARNING", "dataset 3 `ckpt.3' is newer, and is passed over: ", "[SCR-321]"]);
    std::fs::rename(&away, &installed).unwrap();
    world.run(|application| {
        assert_eq!(application.session().start_restart().unwrap(), b"ckpt.4");
        application.session().complete_restart(false).unwrap_err();
        assert_eq!(application.restart(uneven), Some(3));
    });
}

/// One rank took a library for missing that could not be read for a moment, and none tried again for older datasets.
#[test]
fn an_error_that_passes_while_a_scheme_is_loaded_costs_no_checkpoint() {
    for times in [1, 4, 8] {
        let mut world = World::new(8, 4).set("SCR_CACHE_SIZE", "2");
        world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, uneven).unwrap()));
        world.lose("n2");
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.never_pause();
        faulty.only(|what, path| what == What::OpenToRead && path.ends_with("libscr_xor.so"));
        faulty.fail_for(1, times, ErrorKind::TimedOut);
        world.own_files.insert(Rank(3), Arc::new(faulty));
        // Rank 3 first takes the word of rank 2, and then checks by itself. An error that lasts costs no more than the dataset
        // that met it.
        let newest = if times < 8 { 2 } else { 1 };
        world.run(|application| application.restart(uneven)).all_gave(&Some(newest));
        world.own_files.clear();
        world.run(|application| application.restart(uneven)).all_gave(&Some(2));
    }
}

/// The job began, and no checkpoint of it was protected.
#[test]
fn a_job_whose_scheme_has_no_library_does_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    for path in scr_plugin_api::paths_in(plugins()).unwrap() {
        let name = path.file_name().unwrap();
        if name != "libscr_xor.so" {
            std::fs::copy(&path, folder.path().join(name)).unwrap();
        }
    }
    let world = World::new(2, 2).set("SCR_PLUGIN_PATH", folder.path().to_str().unwrap());
    let begun = world.try_run(|session| session.map(drop).map_err(|error| error.to_string()));
    let error = begun.ranks[0].as_ref().unwrap_err();
    assert!(error.contains("SCR_COPY_TYPE") && error.contains("cannot read the library"), "{error}");
}

/// The error of all ranks when the scheme TRY is a copy of this library.
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
        assert!(text.contains("rank 0 on n0") && text.contains(reason), "{text}");
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

/// The start of the first output met it, and said that there was no such library.
#[test]
fn a_job_without_proc_does_not_start_and_its_error_says_so() {
    let test = "vendor::a_job_without_proc_does_not_start_and_its_error_says_so";
    // The test finds itself there, and nothing else.
    let script = "mount -t tmpfs tmpfs /proc; mkdir /proc/self; ln -s \"$1\" /proc/self/exe";
    in_own_mounts(test, script, || {
        let start =
            |application: Result<Application, Error>| application.err().map(|error| error.to_string());
        for error in World::new(2, 2).try_run(start).ranks {
            let error = error.expect("no session begins");
            assert!(error.contains("as /proc is not mounted here; mount it"), "{error}");
        }
    });
}

/// The first checkpoint met it, hours later.
#[test]
fn a_plugin_whose_library_others_can_write_stops_the_start() {
    for (kind, setting) in [("scheme", "SCR_COPY_TYPE"), ("transport", "SCR_FLUSH_TYPE")] {
        let folder = folder(&built("obedient"), &manifest("TRY", kind, "libobedient.so"));
        let library = folder.path().join("libobedient.so");
        std::fs::set_permissions(&library, PermissionsExt::from_mode(0o666)).unwrap();
        let world = world(folder.path(), "XOR").set(setting, "TRY");
        let run = world.try_run(|job| job.err().map(|error| error.to_string()));
        for error in &run.ranks {
            let error = error.as_deref().expect("no session begins");
            assert!(error.contains(setting) && error.contains("may be written by others"), "{error}");
        }
    }
}

#[test]
fn a_scheme_of_another_interface_version_stops_the_start() {
    let manifest = manifest("TRY", "scheme", "libobedient.so").replace("abi = \"1.0\"", "abi = \"2.0\"");
    let folder = folder(&built("obedient"), &manifest);
    let run = world(folder.path(), "TRY").try_run(|job| job.err().map(|error| error.to_string()));
    for error in &run.ranks {
        let error = error.as_deref().expect("no session begins");
        assert!(error.contains("would not be protected") && error.contains("version 2.0"), "{error}");
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
