//! `scr plugin new KIND NAME`: writes a crate with a plugin that works, to begin with.

use super::NewArgs;
use crate::prelude::*;
use heck::ToUpperCamelCase;
use scr_core::plugin::PluginKind;
use scr_plugin_api::abi::API_VERSION;
use std::process::Command;

/// The texts for the templates of a kind.
#[derive(Deserialize)]
struct Texts {
    what: String,
    setting: String,
    description: String,
    manifest: String,
}

impl Texts {
    fn of(kind: &str) -> Result<Self> {
        let mut all: BTreeMap<String, Self> = toml::from_str(include_str!("template/kinds.toml"))?;
        all.remove(kind).context("each kind has its texts")
    }
}

pub(super) fn run(args: &NewArgs) -> Result<Answer> {
    let name = checked(&args.name)?;
    let plugin = name.to_ascii_lowercase().replace('-', "_");
    let crate_name = format!("scr-{}", plugin.replace('_', "-"));
    let folder = args.into.clone().unwrap_or_else(|| PathBuf::from(&crate_name));
    ensure!(!folder.exists(), "{} exists; remove it, or name another folder with --into", folder.display());
    let env = environment::env()?;
    let kind = PluginKind::from(args.kind);
    refuse_taken(&env, kind, &args.name)?;
    let (key, source) = match kind {
        PluginKind::Scheme => ("scheme", include_str!("template/scheme.rs.in")),
        PluginKind::Transport => ("transport", include_str!("template/transport.rs.in")),
        PluginKind::Log => ("log", include_str!("template/log.rs.in")),
    };
    let Texts { what, setting, description, manifest } = Texts::of(key)?;
    // There are no rules to try a log sink against.
    let crates = if kind == PluginKind::Log { &CRATES_OF_SCR[..1] } else { &CRATES_OF_SCR };
    let sources = env.install_dir.map(|root| root.join("share/scr/crates"));
    // A log sink has the name that jobs ask for.
    let shown = if kind == PluginKind::Log { "MYSQL".to_owned() } else { name.to_ascii_uppercase() };
    let fields = [
        ("@SETTING@", setting),
        ("@CRATE@", crate_name.clone()),
        ("@NAME@", shown),
        ("@TYPE@", format!("{}Plugin", plugin.to_upper_camel_case())),
        ("@LIBRARY@", format!("lib{}.so", crate_name.replace('-', "_"))),
        ("@MANIFEST@", format!("{plugin}.toml")),
        ("@KIND@", key.to_owned()),
        ("@WHAT@", what.clone()),
        ("@DESCRIPTION@", description),
        ("@ABI@", API_VERSION.to_string()),
        ("@CRATES@", args.crates.clone()),
        ("@TRY@", if crates.len() == 1 { "check" } else { "conformance" }.to_owned()),
    ];
    let filled =
        |text: &str| fields.iter().fold(text.to_owned(), |text, (field, value)| text.replace(field, value));
    let sources = sources.filter(|sources| sources.is_dir());
    let crate_manifest = filled(include_str!("template/Cargo.toml.in"))
        + &dependencies(crates, sources.is_some().then_some(&args.crates));
    if let Some(sources) = sources {
        write(&folder.join(".cargo/config.toml"), &filled(include_str!("template/config.toml.in")))?;
        let copies = folder.join(&args.crates);
        let missing = |name: &&&str| !copies.join(name).exists();
        crates
            .iter()
            .filter(missing)
            .try_for_each(|name| copy_tree(&sources.join(name), &copies.join(name)))?;
        if missing(&&"vendor") {
            unpack(&sources.join("vendor.tar.gz"), &copies)?;
        }
    }
    let manifest = filled(include_str!("template/manifest.toml.in")) + &filled(&manifest);
    write(&folder.join("Cargo.toml"), &crate_manifest)?;
    write(&folder.join("src/lib.rs"), &filled(source))?;
    write(&folder.join(format!("{plugin}.toml")), &manifest)?;
    write(&folder.join("README.md"), &filled(include_str!("template/README.md.in")))?;
    let folder = folder.display();
    print(format!("{folder} is a {what} that works; its README says how a job uses it\n"))
}

/// A job would take the first that it finds of two plugins with one name.
fn refuse_taken(env: &Env, kind: PluginKind, name: &str) -> Result<()> {
    // Jobs ask for a log sink by the database, so it has to take the place of what is there.
    let is_asked_for = kind != PluginKind::Log;
    if let Some(found) = environment::plugin_host(env).find(kind, name).ok().filter(|_| is_asked_for) {
        let (name, path) = (&found.manifest.name, found.manifest_path.display());
        bail!("there is a {kind} {name} already, {path}; choose another name");
    }
    Ok(())
}

/// A name that can be that of a crate, a type and a plugin.
fn checked(name: &str) -> Result<&str> {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let is_good = begins && name.len() <= 40 && name.chars().all(is_allowed);
    ensure!(is_good, "`{name}' cannot name a plugin: give a letter and up to 39 letters, digits, `-' or `_'");
    Ok(name)
}

/// The crates of scr that a plugin needs, and after the first those that its tests need: the kit, and what that needs.
const CRATES_OF_SCR: [&str; 4] = ["scr-plugin-api", "scr-conformance", "scr-comm", "scr-base"];

/// The end of `Cargo.toml`: what tests need, and where the crates of scr are if they came with the installation.
fn dependencies(crates: &[&str], copied_to: Option<&String>) -> String {
    let mut text = String::new();
    if let Some(kit) = crates.get(1) {
        text.push_str(&format!("\n[dev-dependencies]\n{kit} = \"1\"\n"));
    }
    if let Some(folder) = copied_to {
        text.push_str(
            "\n# The sources that came with scr. Without this section cargo takes them from the registry.\n",
        );
        text.push_str("[patch.crates-io]\n");
        text.extend(crates.iter().map(|name| format!("{name} = {{ path = \"{folder}/{name}\" }}\n")));
    }
    text
}

/// Copies a folder with all that is in it.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let copying = || format!("cannot copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to).with_context(copying)?;
    for source in paths_in(from).with_context(copying)? {
        let copy = to.join(source.file_name().unwrap_or_default());
        match source.symlink_metadata().with_context(copying)?.is_dir() {
            true => copy_tree(&source, &copy)?,
            false => drop(fs::copy(&source, &copy).with_context(copying)?),
        }
    }
    Ok(())
}

/// Unpacks the crates of others.
fn unpack(archive: &Path, to: &Path) -> Result<()> {
    let unpacking = || format!("cannot unpack {} with tar", archive.display());
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(to).status();
    ensure!(status.with_context(unpacking)?.success(), unpacking());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder).or_cannot("create", folder)?;
    fs::write(path, text).or_cannot("write", path)
}
