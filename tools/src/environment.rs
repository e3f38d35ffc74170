//! The environment of a command: the installation it belongs to, and the parameters as a job would see them.

use crate::prelude::*;
use scr_base::env::Output;
use scr_base::fs::{How, RealFiles};
use scr_config::descriptor::Descriptors;
use scr_config::param::{Origin, Settings};
use scr_core::plugin::PluginHost;

/// The environment of this process, with messages on standard error, so that standard output has the answer alone.
pub(crate) fn env() -> Result<Env> {
    let env =
        Env::of_process(install_dir(), Arc::new(RealFiles)).context("cannot find out the current folder")?;
    Ok(Env { output: Arc::new(StandardError), ..env })
}

/// The prefix directory of a command, in either place.
#[derive(Args)]
pub(crate) struct PrefixArgs {
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR", conflicts_with = "prefix")]
    dir: Option<PathBuf>,
    /// The same as DIR
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

impl PrefixArgs {
    /// The one that is given.
    pub(crate) fn given(&self) -> Option<&Path> {
        self.dir.as_deref().or(self.prefix.as_deref())
    }
}

struct StandardError;

impl Output for StandardError {
    fn info(&self, line: &str) {
        self.error(line);
    }

    fn error(&self, line: &str) {
        crate::output::print_to_stderr(line);
    }
}

/// The path of this program. If an upgrade has replaced its file while it runs, the path of the new file.
pub(crate) fn program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find this program")?;
    let replaced = path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|replaced| replaced.exists()).unwrap_or(path))
}

/// The installation that `bin/scr` lies in, also through a link and after the tree was moved.
fn install_dir() -> Option<PathBuf> {
    let program = program().ok()?.canonicalize().ok()?;
    let folder = program.parent()?;
    (folder.file_name()? == "bin").then(|| folder.parent().map(PathBuf::from)).flatten()
}

/// The environment of this process, for the job of this prefix directory where one is given.
pub(crate) fn env_at(prefix: Option<&Path>) -> Result<Env> {
    let env = env()?;
    let Some(prefix) = prefix else { return Ok(env) };
    let prefix = param::normalise(&env.current_dir.join(prefix));
    ensure!(prefix.to_str().is_some(), "the name of the prefix directory {} is not UTF-8", prefix.display());
    Ok(at(&env, &prefix))
}

/// The environment of a job in this prefix directory.
fn at(env: &Env, prefix: &Path) -> Env {
    let mut env = env.clone();
    env.variables.insert(param::PREFIX.info().name.to_owned(), as_setting(&prefix.display().to_string()));
    env
}

/// The text that a variable must hold for a setting to have this value: scr replaces variables in settings.
pub(crate) fn as_setting(value: &str) -> String {
    value.replace('$', "\\$")
}

/// The plugins that a job which is started here would see.
pub(crate) fn plugin_host(env: &Env) -> PluginHost {
    PluginHost::configured(env, &params(env))
}

/// The parameters that a job which is started here would see.
pub(crate) fn params(env: &Env) -> Params {
    Params::resolve(&Settings::with_last_run(env), env).0
}

/// The prefix directory: the one given, or that of a job which is started here. It must be there, or a mistyped name
/// would look like a simulation without datasets. From here on root reaches a directory of another user [safely](hold).
pub(crate) fn prefix(env: &mut Env, given: Option<&Path>) -> Result<Prefix> {
    let given = given.map(|dir| param::normalise(&env.current_dir.join(dir)));
    let params = params_with_places(&given.as_deref().map_or_else(|| env.clone(), |dir| at(env, dir)))?;
    let dir = given.unwrap_or_else(|| params.get(&param::PREFIX));
    expect_dir(&dir)?;
    let prefix = Prefix::at(&*env.files, &dir);
    hold(env, prefix.dir())?;
    prefix.expect_no_hidden_link(&*env.files)?;
    held(&USED).push(prefix.clone());
    Ok(prefix)
}

/// The owner of a directory may put a link in the way at any moment, and what a command of root removes or writes then would be
/// elsewhere. So root reaches what is below a directory of another user through the directory that is open here, and through no
/// link.
pub(crate) fn hold(env: &mut Env, dir: &Path) -> Result<()> {
    if env.uid != 0 {
        return Ok(());
    }
    let folder = env.files.open(dir, How::Folder).or_cannot("open", dir)?;
    if folder.status()?.uid != 0 {
        let held = env.files.through(dir, folder.into(), None);
        held.into_iter().for_each(|files| env.files = files);
    }
    Ok(())
}

/// Fails where there is no such prefix directory.
pub(crate) fn expect_dir(dir: &Path) -> Result<()> {
    let cure = "correct the name that was given, or SCR_PREFIX";
    ensure!(dir.is_dir(), "there is no prefix directory {}; {cure}", dir.display());
    Ok(())
}

/// The parameters that a job which is started here would see. Fails where a setting of a place cannot be used, as a job does: a
/// command would else take another folder, and change or delete what is there.
pub(crate) fn params_with_places(env: &Env) -> Result<Params> {
    let (params, problems) = Params::resolve(&Settings::with_last_run(env), env);
    let wrong = problems.iter().find(|problem| problem.stops() && problem.cause.ignored().is_some());
    wrong.map_or(Ok(params), |problem| bail!("{problem}"))
}

/// Tells the user what has come up below the prefix directories that this command has used.
pub(crate) fn tell_notes() {
    held(&USED).iter().flat_map(Prefix::take_notes).for_each(crate::output::warn);
}

static USED: Mutex<Vec<Prefix>> = Mutex::new(Vec::new());

/// Seconds since the epoch, now, as halt conditions count.
pub(crate) fn now(env: &Env) -> i64 {
    i64::try_from(env.seconds()).unwrap_or(i64::MAX)
}

/// Whether a job has used this prefix directory.
pub(crate) fn was_used(prefix: &Prefix) -> bool {
    prefix.scr_dir().is_dir()
}

/// Says that no job has used this prefix directory.
pub(crate) fn unused(prefix: &Prefix) -> String {
    format!("{} has no folder .scr: no job has used it as its prefix directory", prefix.dir().display())
}

/// The parameters as a job in this prefix directory sees them, with what its application has set.
pub(crate) fn params_of(env: &Env, prefix: &Prefix) -> Params {
    params(&at(env, prefix.dir()))
}

/// The descriptors of these parameters. The job and `scr config` report what is wrong with them but harmless.
pub(crate) fn descriptors(params: &Params) -> Result<Descriptors> {
    Descriptors::build(params, &mut Vec::new()).context("cannot read the descriptors")
}

/// The bases of the settings, and for one allocation also the one where jobs leave their records, unless somebody who knows the
/// job has named a control directory.
pub(crate) fn bases(env: &Env, params: &Params, is_of_one: bool) -> Result<BTreeSet<PathBuf>> {
    let descriptors = descriptors(params)?;
    let stores = descriptors.stores.iter().chain([&descriptors.control]).map(|store| store.path.clone());
    let knows_job = *params.origin(&param::CNTL_BASE) == Origin::Environment;
    let record_base = env.record_base.clone().filter(|_| is_of_one && !knows_job);
    Ok(stores.chain(record_base).collect())
}

/// Directories under their first names: one that is counted twice makes every sum wrong.
pub(crate) fn once_each(mut dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    dirs.retain(|dir| seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())));
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_directory_that_is_named_by_a_link_is_the_one_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("run");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("run", dir.path().join("link")).unwrap();
        let found = prefix(&mut env().unwrap(), Some(&dir.path().join("link"))).unwrap();
        assert_eq!(found.dir(), real);
    }

    /// It removed what a link led to that took the place of a folder while a command of root was at work.
    #[test]
    fn a_directory_of_another_user_is_reached_as_it_was_and_through_no_link() {
        use std::fs;
        let dir = tempfile::tempdir().unwrap();
        let (theirs, ours) = (dir.path().canonicalize().unwrap().join("theirs"), dir.path().join("ours"));
        [theirs.join("d"), ours.join("d")].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        fs::write(ours.join("d/file"), "ours").unwrap();
        let is_of_other = std::os::unix::fs::chown(&theirs, Some(1234), None).is_ok();
        let mut env = env().unwrap();
        prefix(&mut env, Some(&theirs)).unwrap();
        let file = theirs.join("d/file");
        fs::rename(theirs.join("d"), theirs.join("d.old")).unwrap();
        std::os::unix::fs::symlink(ours.join("d"), theirs.join("d")).unwrap();
        assert_eq!(env.files.real_path(&file).is_err(), is_of_other);
        assert_eq!(env.files.rename(&file, &theirs.join("taken")).is_err(), is_of_other);
        // The directory itself is another one now.
        fs::rename(&theirs, dir.path().join("old")).unwrap();
        std::os::unix::fs::symlink(&ours, &theirs).unwrap();
        env.files.remove_file(&file).unwrap_err();
        assert_eq!(ours.join("d/file").exists(), is_of_other);
    }
}
