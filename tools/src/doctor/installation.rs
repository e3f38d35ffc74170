//! The installation: its library, its plugins, the launcher that fits the library, the settings.

use super::Verdict::{Bad, Good, Note};
use super::{prefix, Check};
use crate::config::problems;
use crate::machine::{process, Manifests};
use crate::prelude::*;
use scr_base::env::LIBRARY_FOLDERS;
use scr_config::descriptor::NOTHING_ON_NODES;
use scr_core::plugin::{check_library, Trusted};

pub(super) fn check(env: &Env, params: &Params, manifests: &Manifests) -> Vec<Check> {
    let (libraries, error) = libraries(env).map_or_else(|why| (Vec::new(), Some(why)), |found| (found, None));
    let checked = libraries.iter().map(|path| library(env, path)).chain(error.map(Err));
    let mut checks: Vec<_> = checked.map(|outcome| Check::of("library", outcome)).collect();
    checks.push(Check::of("plugins", plugins(env)));
    checks.extend(settings(env, params));
    checks.extend(prefix::check(env, params));
    let mpis: Vec<_> = libraries.iter().filter_map(|path| mpi_of(path)).collect();
    if !mpis.is_empty() {
        checks.push(launcher(&mpis, manifests));
    }
    checks
}

/// The library of this installation, or those of the trees in it, where it has a tree for each MPI.
pub(super) fn libraries(env: &Env) -> Result<Vec<PathBuf>> {
    let dir = env.install_dir.as_ref();
    let dir = dir.context(
        "this command is not part of an installation; run the one in the folder bin of an installation",
    )?;
    let in_tree = |tree: &Path| {
        let libraries = LIBRARY_FOLDERS.map(|folder| tree.join(folder).join("libscr.so"));
        libraries.into_iter().find(|library| library.exists())
    };
    if let Some(own) = in_tree(dir) {
        return Ok(vec![own]);
    }
    let found: Vec<_> = paths_in(dir).unwrap_or_default().iter().filter_map(|tree| in_tree(tree)).collect();
    ensure!(
        !found.is_empty(),
        "there is no library {}/lib/libscr.so; install it with `make install'",
        dir.display()
    );
    Ok(found)
}

fn library(env: &Env, path: &Path) -> Result<String> {
    let checked = check_library(&*env.files, path, &Trusted::by(env))?;
    let mpi = mpi_of(path).unwrap_or("no MPI that is known");
    Ok(format!("{}, {}, for {mpi}", path.display(), amount(checked.status.len)))
}

fn plugins(env: &Env) -> Result<String> {
    let host = environment::plugin_host(env);
    let discovery = host.discover();
    let mut names = BTreeSet::new();
    for found in &discovery.found {
        found.check(env).with_context(|| format!("the {} {}", found.manifest.kind, found.manifest.name))?;
        names.insert(&found.manifest.name);
    }
    if let Some(passed_over) = discovery.passed_over.first() {
        bail!("skipped {passed_over}");
    }
    ensure!(!names.is_empty(), "there are none; set SCR_PLUGIN_PATH, or install them");
    Ok(joined(&names, " "))
}

fn settings(env: &Env, params: &Params) -> Vec<Check> {
    let verdict = |is_mistake| if is_mistake { Bad } else { Note };
    let found = problems(env).into_iter();
    let mut checks: Vec<_> =
        found.map(|(is_mistake, text)| Check::new(verdict(is_mistake), "settings", text)).collect();
    if checks.is_empty() {
        if !params.get(&param::ENABLE) {
            let origin = params.origin(&param::ENABLE);
            return vec![Check::new(Note, "settings", format!("{origin}: SCR_ENABLE=0 turns scr off"))];
        }
        checks.push(Check::new(Good, "settings", "nothing is wrong"));
    }
    if environment::descriptors(params).is_ok_and(|descriptors| descriptors.all_bypass()) {
        checks.push(Check::new(Note, "settings", NOTHING_ON_NODES));
    }
    checks
}

const OPEN_MPI: &str = "Open MPI";
const MPICH: &str = "MPICH";

/// The MPI that a library is linked with, by the name of the library that it needs.
fn mpi_of(library: &Path) -> Option<&'static str> {
    let bytes = std::fs::read(library).ok()?;
    let mut names = bytes.split(|byte| *byte == 0).filter(|name| name.starts_with(b"libmpi"));
    names.find_map(|name| match name {
        name if name.starts_with(b"libmpich.so") || name.starts_with(b"libmpi.so.12") => Some(MPICH),
        name if name.starts_with(b"libmpi.so") => Some(OPEN_MPI),
        _ => None,
    })
}

/// Whether the launcher that users find first starts programs of a library's MPI.
fn launcher(mpis: &[&str], manifests: &Manifests) -> Check {
    let subject = "launcher";
    let programs = ["mpirun", "mpiexec"].into_iter();
    for program in programs.filter(|program| manifests.launcher(&[OsString::from(program)]).is_some()) {
        let Ok(text) = process::version_of(program) else { continue };
        let found = match text.as_str() {
            text if text.contains("Open MPI") || text.contains("OpenRTE") => OPEN_MPI,
            text if text.contains("HYDRA") || text.contains("MPICH") => MPICH,
            _ => continue,
        };
        let name = mpis.join(" and ");
        if mpis.contains(&found) {
            return Check::new(Good, subject, format!("{program} is that of {found}, as is the library"));
        }
        let text = format!(
            "{program} is that of {found}, and the library is for {name}; put the {program} of {name} first on \
             PATH, or use the installation for {found}"
        );
        return Check::new(Bad, subject, text);
    }
    Check::new(Note, subject, "no mpirun or mpiexec on PATH says which MPI it belongs to")
}
