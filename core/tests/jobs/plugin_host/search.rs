//! Which plugin a name means, and what is skipped.

use super::folders::{env, manifest_text, set_mode, World};
use scr_base::describe;
use scr_config::param::{AppConfig, Params, Settings};
use scr_core::plugin::{Discovery, PluginHost, PluginKind};
use std::fs;
use std::os::unix::fs::symlink;

fn passed_over(discovery: &Discovery) -> Vec<String> {
    discovery.passed_over.iter().map(ToString::to_string).collect()
}

#[test]
fn the_first_of_a_name_wins_and_the_others_are_reported() {
    let world = World::new();
    let first = world.manifest("a", "Mirror", "one.so");
    let second = world.manifest("b", "MIRROR", "two.so");
    world.write("b/other.toml", manifest_text("MIRROR", "transport", "two.so"));
    let host = world.host(&["a", "b"]);
    let found = host.find(PluginKind::Scheme, "mirror").unwrap();
    assert_eq!((&found.manifest_path, &found.library), (&first, &world.path("a/one.so")));
    let shadowed = &host.discover().shadowed;
    assert_eq!(shadowed.len(), 1, "a transport of the same name is another plugin");
    assert_eq!((&shadowed[0].found.manifest_path, &shadowed[0].by), (&second, &first));
}

#[test]
fn the_installation_comes_last_and_keeps_libraries_in_a_folder_of_their_own() {
    let world = World::new();
    world.manifest("etc/scr/plugins.d", "XOR", "libscr_xor.so");
    world.manifest("etc/scr/plugins.d", "MIRROR", "theirs.so");
    world.manifest("mine", "MIRROR", "mine.so");
    world.write("lib/scr/plugins/libscr_xor.so", "");
    let env = env(Some(world.path("")));
    let host = PluginHost::new(&env, Some(&world.path("mine").display().to_string()));
    let library = |name| host.find(PluginKind::Scheme, name).unwrap().library.clone();
    assert_eq!(library("xor"), world.path("lib/scr/plugins/libscr_xor.so"));
    assert_eq!(library("mirror"), world.path("mine/mine.so"));
    assert_eq!(host.discover().shadowed.len(), 1);
}

#[test]
fn an_installation_on_the_path_finds_its_libraries_too() {
    let world = World::new();
    world.manifest("etc/scr/plugins.d", "XOR", "libscr_xor.so");
    let library = world.write("lib/scr/plugins/libscr_xor.so", "");
    let host = world.host(&["etc/scr/plugins.d"]);
    assert_eq!(host.find(PluginKind::Scheme, "XOR").unwrap().library, library);
}

#[test]
fn a_manifest_may_name_its_library_by_an_absolute_path() {
    let world = World::new();
    let library = world.write("elsewhere/x.so", "");
    world.manifest("p", "TRY", &library.display().to_string());
    assert_eq!(world.host(&["p"]).find(PluginKind::Scheme, "TRY").unwrap().library, library);
}

#[test]
fn the_variable_counts_where_no_parameter_is_set() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    let mut env = env(None);
    env.variables.insert("SCR_PLUGIN_PATH".to_owned(), world.path("p").display().to_string());
    let (params, _) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
    assert!(PluginHost::configured(&env, &params).find(PluginKind::Scheme, "TRY").is_ok());
    assert!(PluginHost::new(&env, Some("/nonexistent")).find(PluginKind::Scheme, "TRY").is_err());
}

#[test]
fn empty_and_relative_entries_are_passed_over_with_a_word() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    let mut env = env(None);
    env.current_dir = world.path("p");
    let discovery = Discovery::new(&env, Some(":.:p:../x:"));
    assert!(discovery.places.is_empty() && discovery.found.is_empty());
    assert_eq!(
        passed_over(&discovery),
        [
            "`': an empty entry of SCR_PLUGIN_PATH is not the current folder; remove it",
            "`.': an entry of SCR_PLUGIN_PATH has to be an absolute path",
            "`p': an entry of SCR_PLUGIN_PATH has to be an absolute path",
            "`../x': an entry of SCR_PLUGIN_PATH has to be an absolute path",
            "`': an empty entry of SCR_PLUGIN_PATH is not the current folder; remove it",
        ]
    );
}

#[test]
fn without_any_folder_the_error_says_what_to_set() {
    let text = describe(&PluginHost::new(&env(None), None).find(PluginKind::Scheme, "XOR").unwrap_err());
    assert!(
        text.ends_with("there is no folder to look in: set SCR_PLUGIN_PATH to one with manifests"),
        "{text}"
    );
}

#[test]
fn a_folder_or_manifest_that_others_may_write_is_skipped_even_through_a_link() {
    let world = World::new();
    let manifest = world.manifest("p", "TRY", "try.so");
    set_mode(&manifest, 0o666);
    let discovery = |folder: &str| {
        world.host(&[folder]).discover().passed_over.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        discovery("p"),
        [format!("{} may be written by others (mode 0666); run chmod go-w on it", manifest.display())]
    );
    set_mode(&manifest, 0o644);
    set_mode(&world.path("p"), 0o1777);
    assert!(discovery("p")[0].contains("/p may be written by others (mode 1777)"));
    symlink(world.path("p"), world.path("link")).unwrap();
    assert!(discovery("link")[0].contains("/p may be written by others (mode 1777)"));
    fs::create_dir(world.path("q")).unwrap();
    symlink(&manifest, world.path("q/try.toml")).unwrap();
    assert!(discovery("q")[0].contains("/p may be written by others (mode 1777)"));
    set_mode(&world.path("p"), 0o755);
    assert_eq!((discovery("p"), discovery("link"), discovery("q")), (Vec::new(), Vec::new(), Vec::new()));
}

#[test]
fn an_invalid_manifest_does_not_hide_the_others() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    world.write("p/a.toml", b"\xff\xfe");
    world.write("p/b.toml", "");
    world.write("p/c.toml", "x".repeat(2 << 20));
    world.write("p/.hidden.toml", "garbage");
    world.write("p/notes.txt", "garbage");
    fs::create_dir(world.path("p/d.toml")).unwrap();
    symlink("nowhere", world.path("p/e.toml")).unwrap();
    let host = world.host(&["p"]);
    assert!(host.find(PluginKind::Scheme, "TRY").is_ok());
    let texts = passed_over(&host.discover());
    for (name, reason) in [
        ("a.toml", "it is not UTF-8"),
        ("b.toml", "the key `name' is missing"),
        ("c.toml", "it has 2097152 bytes"),
        ("d.toml", "it is a folder, not a file"),
        ("e.toml", "cannot read it: No such file"),
    ] {
        assert!(texts.iter().any(|text| text.contains(name) && text.contains(reason)), "{name}: {texts:?}");
    }
    assert_eq!(texts.len(), 5);
}

#[test]
fn a_file_in_place_of_a_folder_is_passed_over() {
    let world = World::new();
    world.write("p", "");
    assert!(passed_over(&world.host(&["p"]).discover())[0].ends_with("/p': it is not a folder"));
}

#[test]
fn a_folder_that_is_named_twice_shadows_nothing() {
    let world = World::new();
    world.manifest("p", "TRY", "try.so");
    let host = world.host(&["p", "p"]);
    assert_eq!((host.discover().found.len(), host.discover().shadowed.len()), (1, 0));
}
