//! Requirements on a library, and the refusal of a wrong one: with an error, and never with the end of the process.

use super::folders::{built, env, manifest_text, set_mode, World};
use scr_base::describe;
use scr_base::env::Env;
use scr_base::fs::RealFiles;
use scr_core::plugin::{check_library, PluginHost, PluginKind, Trusted};
use scr_plugin_api::{CopyJob, KvTree, LogEntry, PluginErrorKind, Scheme as _, SetShape};
use scr_test_kit::faulty::{FaultyFiles, Operation, What};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Arc;

/// The error of opening the scheme TRY, whose library was made by `make`.
fn refusal(world: &World) -> String {
    let host = world.host(&["p"]);
    let error = host.open(PluginKind::Scheme, "TRY").map(drop).expect_err("the library is wrong");
    let text = describe(&error);
    assert!(text.len() < 2_000 && !text.contains('\n'), "{text}");
    text
}

fn world_with(bytes: &[u8]) -> World {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    world.write("p/try.so", bytes);
    world
}

fn options(method: &str) -> KvTree {
    let mut tree = KvTree::new();
    tree.set("PANIC", method);
    tree
}

#[test]
fn a_good_plugin_is_loaded_and_says_what_it_is() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    let library = world.library("p/try.so", "obedient");
    let open = world.host(&["p"]).open(PluginKind::Scheme, "try").unwrap();
    assert_eq!((open.formats(), open.path.clone()), ((2, 3), library));
    let scheme = open.scheme(&KvTree::new()).unwrap();
    assert_eq!(scheme.losses_survived(7), Ok(6));
    assert_eq!(scheme.redundancy_len(&SetShape { rank: 1, data_lens: &[4, 5] }), Ok(5));
    let error = scheme.redundancy_len(&SetShape { rank: 2, data_lens: &[4, 5] }).unwrap_err();
    let text = "the scheme TRY: there is no member 2";
    assert_eq!((error.kind, error.text.as_str()), (PluginErrorKind::Refused, text));
}

#[test]
fn one_library_may_be_a_scheme_a_transport_and_a_log_sink() {
    let world = World::new();
    world.library("p/try.so", "obedient");
    world.manifest("p", "TRY", "try.so");
    world.write("p/copy.toml", manifest_text("TRY", "transport", "try.so"));
    world.write("p/log.toml", manifest_text("TRY", "log", "try.so"));
    let host = world.host(&["p"]);
    assert!(host.open(PluginKind::Scheme, "TRY").unwrap().scheme(&KvTree::new()).is_ok());
    let transport = host.open(PluginKind::Transport, "TRY").unwrap().transport(&KvTree::new()).unwrap();
    let job = CopyJob { token: "7".to_owned(), items: Vec::new(), block_bytes: 1, take_crc: false };
    assert_eq!(transport.start(&job), Ok(b"7".to_vec()));
    let sink = host.open(PluginKind::Log, "TRY").unwrap().log_sink(&KvTree::new()).unwrap();
    let entry = LogEntry { name: "HALT".to_owned(), ..LogEntry::default() };
    assert_eq!(sink.write(&entry), Ok(vec!["wrote HALT".to_owned()]));
}

#[test]
fn a_panic_anywhere_in_a_library_is_an_error() {
    let world = World::new();
    world.library("p/try.so", "obedient");
    world.manifest("p", "TRY", "try.so");
    let open = world.host(&["p"]).open(PluginKind::Scheme, "TRY").unwrap();
    let error = describe(&open.scheme(&options("new")).map(drop).unwrap_err());
    assert_eq!(error, "the scheme TRY refuses: making the scheme panicked: asked to panic in new");
    let kind = |method: &str| {
        let scheme = open.scheme(&options(method)).unwrap();
        let shape = SetShape { rank: 0, data_lens: &[1] };
        match method {
            "losses_survived" => scheme.losses_survived(2).unwrap_err(),
            _ => scheme.redundancy_len(&shape).unwrap_err(),
        }
    };
    for method in ["losses_survived", "redundancy_len"] {
        let error = kind(method);
        assert_eq!(error.kind, PluginErrorKind::Fault);
        assert!(error.text.ends_with(&format!("asked to panic in {method}")), "{}", error.text);
    }
    assert!(open.scheme(&options("recoverable")).unwrap().recoverable(&[true]), "the rebuild has to tell");
    drop(open.scheme(&options("drop")).unwrap());
}

#[test]
fn a_constructor_that_refuses_is_heard() {
    let world = world_with(&fs::read(built("refusing")).unwrap());
    world.write(
        "p/try.toml",
        manifest_text("TRY", "scheme", "try.so").replace("oldest = 2\nnewest = 3", "newest = 1"),
    );
    let open = world.host(&["p"]).open(PluginKind::Scheme, "TRY").unwrap();
    let error = describe(&open.scheme(&KvTree::new()).map(drop).unwrap_err());
    assert_eq!(error, "the scheme TRY refuses: the licence server does not answer");
}

#[test]
fn a_library_that_was_cut_short_is_refused_wherever_the_cut_is() {
    let whole = fs::read(built("obedient")).unwrap();
    let len = whole.len();
    let cuts = [0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 119, 120, 512, 1000, 4095, 4096, 4097, 65536];
    let from_end = [1, 2, 63, 64, 65, 1000, 4096, 100_000].map(|bytes| len - bytes);
    let parts = (1..16).map(|part| len * part / 16);
    for cut in cuts.into_iter().chain(from_end).chain(parts) {
        let text = refusal(&world_with(&whole[..cut]));
        assert!(text.contains("try.so cannot be loaded: it"), "cut to {cut}: {text}");
    }
}

#[test]
fn a_library_for_another_machine_is_described() {
    let mut foreign = fs::read(built("obedient")).unwrap();
    foreign[18..20].copy_from_slice(&22_u16.to_le_bytes());
    for (bytes, reason) in [
        (b"I am a text\n".to_vec(), "cannot be loaded: it is a text, not a shared library"),
        (Vec::new(), "cannot be loaded: it is empty, not a shared library"),
        (vec![0; 100_000], "cannot be loaded: it is something else, not a shared library"),
        (foreign, "cannot be loaded: it was built for s390x, and this machine is"),
    ] {
        let text = refusal(&world_with(&bytes));
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn libraries_that_are_no_plugin_of_this_version_are_refused_in_few_words() {
    for (example, reason) in [
        ("no_plugin", "is no scr plugin: it does not export one"),
        (
            "other_version",
            "was built for version 2.1.0 of the plugin interface, and this scr has 1.1; get a plugin for 1.x",
        ),
        (
            "other_layout",
            "does not fit the plugin interface 1.1: mismatched package: scr-test-plugins and scr-plugin-api; \
             build it with the scr-plugin-api of this scr",
        ),
        ("missing_symbol", "undefined symbol: scr_a_function_that_nobody_has"),
    ] {
        let text = refusal(&world_with(&fs::read(built(example)).unwrap()));
        assert!(text.contains(reason) && text.contains("/p/try.so"), "{example}: {text}");
    }
}

#[test]
fn a_manifest_of_another_version_is_refused_before_its_library_is_read() {
    let world = World::new();
    world.write(
        "p/try.toml",
        manifest_text("TRY", "scheme", "gone.so").replace("abi = \"1.0\"", "abi = \"2.0\""),
    );
    let text = refusal(&world);
    assert!(
        text.ends_with(
            "the scheme TRY was built for version 2.0 of the plugin interface, and this scr has 1.1"
        ),
        "{text}"
    );
}

#[test]
fn a_manifest_that_contradicts_its_library_is_refused() {
    for (from, to, reason) in [
        (
            "newest = 3",
            "newest = 4",
            "the manifest says it knows the on-disk formats 2 to 4, and the library",
        ),
        (
            "oldest = 2",
            "oldest = 1",
            "the manifest says it knows the on-disk formats 1 to 3, and the library",
        ),
    ] {
        let world = world_with(&fs::read(built("obedient")).unwrap());
        world.write("p/try.toml", manifest_text("TRY", "scheme", "try.so").replace(from, to));
        assert!(refusal(&world).contains(reason));
    }
    let world = world_with(&fs::read(built("refusing")).unwrap());
    world.write("p/copy.toml", manifest_text("COPY", "transport", "try.so"));
    let error = describe(&world.host(&["p"]).open(PluginKind::Transport, "COPY").map(drop).unwrap_err());
    assert!(
        error.contains("the manifest says it is a transport, and the library")
            && error.contains("has no transport"),
        "{error}"
    );
}

#[test]
fn a_library_that_others_may_write_is_refused_even_through_a_link() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    let library = world.library("p/try.so", "obedient");
    for mode in [0o666, 0o664, 0o757] {
        set_mode(&library, mode);
        let text = refusal(&world);
        assert!(text.contains("may be written by others") && text.contains("run chmod go-w on it"), "{text}");
    }
    let open = world.library("open/try.so", "obedient");
    set_mode(open.parent().unwrap(), 0o777);
    fs::remove_file(&library).unwrap();
    symlink(&open, &library).unwrap();
    let text = refusal(&world);
    assert!(text.contains("/open may be written by others (mode 0777)"), "{text}");
    set_mode(open.parent().unwrap(), 0o755);
    world.host(&["p"]).open(PluginKind::Scheme, "TRY").unwrap();
}

#[test]
fn a_library_that_is_missing_or_a_folder_is_refused() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    let text = refusal(&world);
    assert!(text.contains("cannot read the library") && text.contains("/p/try.so: No such file"), "{text}");
    fs::create_dir(world.path("p/try.so")).unwrap();
    let text = refusal(&world);
    assert!(text.ends_with("/p/try.so is a folder, not a file"), "{text}");
    fs::remove_dir(world.path("p/try.so")).unwrap();
    symlink("try.so", world.path("p/try.so")).unwrap();
    assert!(refusal(&world).contains("cannot read the library"));
}

#[test]
fn another_users_library_is_refused() {
    let world = World::new();
    let library = world.library("p/try.so", "obedient");
    // Seen by somebody who is neither the owner nor root, the file is a stranger's, unless root owns it.
    let mut stranger = env(None);
    let owner = stranger.uid;
    stranger.uid = owner.wrapping_add(1);
    let checked = check_library(&RealFiles, &library, &Trusted::by(&stranger));
    match (owner, checked) {
        (0, Ok(_)) => (),
        (_, refused) => {
            let text = refused.map(drop).unwrap_err().to_string();
            assert!(text.starts_with(&format!("the library {} is refused: ", library.display())), "{text}");
        }
    }
}

#[test]
fn two_libraries_are_two_plugins_and_the_same_one_is_loaded_once() {
    let world = World::new();
    for (name, example) in [("ONE", "obedient"), ("TWO", "obedient"), ("THREE", "refusing")] {
        let manifest = manifest_text(name, "scheme", &format!("{name}.so"));
        let manifest = if example == "refusing" {
            manifest.replace("oldest = 2\nnewest = 3", "newest = 1")
        } else {
            manifest
        };
        world.write(&format!("p/{name}.toml"), manifest);
        world.library(&format!("p/{name}.so"), example);
    }
    let host = world.host(&["p"]);
    for _ in 0..3 {
        for (name, formats) in [("ONE", (2, 3)), ("TWO", (2, 3)), ("THREE", (1, 1))] {
            assert_eq!(host.open(PluginKind::Scheme, name).unwrap().formats(), formats);
        }
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let folder = world.path("p").display().to_string();
    let texts = maps.lines().filter(|line| line.contains(&folder) && line.contains("r-xp")).count();
    assert_eq!(texts, 3, "{maps}");
}

#[test]
fn a_library_that_changed_after_it_was_loaded_is_refused_and_one_that_was_replaced_is_loaded() {
    let world = world_with(&fs::read(built("obedient")).unwrap());
    world.host(&["p"]).open(PluginKind::Scheme, "TRY").unwrap();
    // Into the file that is there, as nobody should. Not emptied first: that would pull the code from under us.
    let mut file = fs::OpenOptions::new().append(true).open(world.path("p/try.so")).unwrap();
    file.write_all(b"more").unwrap();
    assert!(refusal(&world).contains("was changed after this process had loaded it; start the process again"));
    // As an installer does it: another file of the same name.
    world.library("p/new.so", "obedient");
    fs::rename(world.path("p/new.so"), world.path("p/try.so")).unwrap();
    world.host(&["p"]).open(PluginKind::Scheme, "TRY").unwrap();
}

#[test]
fn a_library_that_was_checked_or_loaded_and_has_not_changed_is_not_read_again() {
    let world = world_with(&fs::read(built("obedient")).unwrap());
    let reads = |load: bool| {
        let files = FaultyFiles::new(RealFiles);
        files.count_all();
        let env = Env { files: Arc::new(files.clone()), ..env(None) };
        let host = PluginHost::new(&env, Some(&world.path("p").display().to_string()));
        let found = host.find(PluginKind::Scheme, "TRY").unwrap();
        match load {
            false => drop(found.check(&env).unwrap()),
            true => drop(found.open(&env).unwrap()),
        }
        let is_of_library =
            |operation: &&Operation| operation.what == What::Read && operation.path.ends_with("try.so");
        files.operations().iter().filter(is_of_library).count()
    };
    assert_eq!([reads(false), reads(true), reads(true)], [1, 0, 0]);
}

#[test]
fn an_unknown_name_lists_the_folders_searched_and_the_plugins_skipped() {
    let world = World::new();
    world.manifest("p", "MIRROR", "try.so");
    world.write("p/broken.toml", "name = 7\n");
    let host = world.host(&["p", "gone"]);
    let error = host.open(PluginKind::Scheme, "MIROR").map(drop).unwrap_err();
    let (p, gone) = (world.path("p").display().to_string(), world.path("gone").display().to_string());
    assert_eq!(
        describe(&error),
        format!(
            "there is no scheme plugin named MIROR; did you mean MIRROR?; searched {p}, {gone}; skipped \
             {p}/broken.toml:1: `name' is 7; it must be 1 to 64 letters, digits, `_', `-' or `.'; skipped `{gone}': \
             there is no such folder"
        )
    );
}
