//! `scr index`, and `scr_index`: the datasets of a prefix directory. See docs/user/datasets.md.
//!
//! Listing is the default. Exit codes: 0 done, 1 there is no such dataset or it is not complete, 2 an error.
//!
//! - `listing`: the table, and JSON
//! - `importing`: which files of an import belong to which rank

mod importing;
mod show;

use crate::prelude::*;
use crate::progress::Progress;
use crate::status::loss_of;
use clap::Command;
use scr_core::scavenge::{BuildError, Builder, Built, Outcome};
use scr_ops::{
    delete_dataset, drop_dataset, drop_later, extract, holdings, may_lack_entries, Extracted, Held, Import,
    Imported, OpsError, Plan, Saving,
};
use scr_prefix::ledger::{self, Candidate};
use scr_prefix::{Index, Location, PrefixError, Summary};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// The action, and the index.
#[derive(Args)]
pub(crate) struct IndexArgs {
    #[command(flatten)]
    action: Action,
    /// The number of ranks of --import. Then a name with %d, or %04d, is a file of each rank, and a name without it is a file of
    /// all of them; files without any %d come in the order of the ranks. Without this option each file is that of one rank
    #[arg(long, value_name = "N", requires = "import", value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS))]
    ranks: Option<u32>,
    /// The dataset of --import is output and no checkpoint
    #[arg(long, requires = "import")]
    output: bool,
    /// With --add: files without a checksum count that have changed since the dataset was complete, as only their times have:
    /// they were copied, or touched
    #[arg(long, requires = "add")]
    trust_times: bool,
    /// The prefix directory; with --import the files, in the order of the ranks
    #[arg(value_name = "DIR|FILE")]
    files: Vec<OsString>,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// At most one of these.
#[derive(Args)]
#[group(multiple = false)]
struct Action {
    /// List the datasets; the default
    #[arg(short, long)]
    list: bool,
    /// Choose the checkpoint to restart from
    #[arg(short, long, value_name = "NAME")]
    current: Option<OsString>,
    /// Remove a dataset from the index; its files in the prefix directory stay. No job restarts from a copy in cache either, and
    /// `scr postrun` does not look for it
    #[arg(short, long, visible_alias = "remove", value_name = "NAME")]
    drop: Option<OsString>,
    /// Delete a dataset: remove its files from the prefix directory and drop it
    #[arg(long, value_name = "NAME")]
    delete: Option<OsString>,
    /// Remove every dataset from the index, in the way of --drop: all files stay
    #[arg(long)]
    forget_all: bool,
    /// Remove every dataset that is newer than this one, in the way of --drop: checkpoints and output
    #[arg(long, value_name = "NAME")]
    drop_after: Option<OsString>,
    /// Add a complete dataset to the index again, by its name or its folder
    #[arg(short, long, value_name = "NAME")]
    add: Option<OsString>,
    /// Complete a scavenged dataset: rebuild lost files and add it to the index. Without ID: every dataset that .scr has,
    /// even if the index is lost, but none that was dropped or refused
    #[arg(short, long, value_name = "ID", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "the option may be absent, and so may its value")]
    build: Option<Option<u64>>,
    /// Write the files of a dataset out of its containers, under their names in the prefix directory. No file is replaced
    #[arg(long, value_name = "NAME")]
    extract: Option<OsString>,
    /// Make a dataset of files in the prefix directory that were not written through scr, so that a job restarts from it
    #[arg(long, value_name = "NAME", requires = "files")]
    import: Option<OsString>,
}

/// More is a slip of the finger.
const MOST_RANKS: i64 = 100_000_000;

/// Runs the command.
pub(crate) fn run(args: &IndexArgs) -> Result<Answer> {
    let is_dir = |word: &OsString| !classic::is_meant() && Path::new(word).is_dir();
    let dir = match (&args.files[..], &args.prefix) {
        _ if args.action.import.is_some() => args.prefix.as_deref(),
        ([word], None) if is_dir(word) => Some(Path::new(word)),
        ([word, ..], _) => bail!(stray_word(word)),
        ([], prefix) => prefix.as_deref(),
    };
    let mut env = environment::env()?;
    let prefix = environment::prefix(&mut env, dir)?;
    match &args.action {
        Action { current: Some(name), .. } => {
            let make = || LedgerDir::new(&*env.files, &prefix).make_current(name.as_bytes());
            let answer = change(&env, &prefix, name, args.json, "current is now", make)?;
            warn_if_passed_over(&env, &prefix, name)?;
            Ok(answer)
        }
        Action { drop: Some(name), .. } => change(&env, &prefix, name, args.json, "dropped", || {
            let dropped = drop_dataset(&*env.files, &prefix, name.as_bytes())?;
            dropped.in_cache.iter().for_each(|&id| warn(also_in_cache(id, name)));
            Ok((dropped.found, dropped.caution))
        }),
        Action { delete: Some(name), .. } => delete(&env, &prefix, name, args.json),
        Action { forget_all: true, .. } => drop_newer(&env, &prefix, None, args.json),
        Action { drop_after: Some(name), .. } => drop_newer(&env, &prefix, Some(name), args.json),
        Action { add: Some(name), .. } => build(&env, &prefix, args.json, |builder, report| {
            let mut builder = *builder;
            builder.trusts_times = args.trust_times;
            report.add(builder.add(&named(&env, &prefix, name)))
        }),
        Action { build: Some(Some(id)), .. } => {
            build(&env, &prefix, args.json, |builder, report| report.add(builder.build(*id)))
        }
        Action { build: Some(None), .. } => build(&env, &prefix, args.json, |builder, report| {
            for id in builder.datasets()? {
                match builder.build_unless_withdrawn(id) {
                    Ok(Err(why)) => warn(why),
                    Ok(Ok(built)) => report.add(Ok(built))?,
                    Err(error) => report.add(Err(error))?,
                }
            }
            Ok(())
        }),
        Action { import: Some(name), .. } => import(args, &env, &prefix, name),
        Action { extract: Some(name), .. } => extract_files(&env, &prefix, name, args.json),
        // `--list`, or nothing.
        _ => list(&env, &prefix, args),
    }
}

/// A guess at the meaning of a word that belongs to no option.
fn stray_word(word: &OsStr) -> String {
    let shown = word.to_string_lossy();
    if Path::new(word).is_dir() {
        return format!("`{shown}' belongs to no option; give the prefix directory once");
    }
    let actions = Action::augment_args(Command::new("index"));
    let is_action = actions.get_arguments().any(|action| action.get_long().is_some_and(|name| word == name));
    let hint =
        if is_action { format!("did you mean `--{shown}'?") } else { "only --import takes files".into() };
    format!("`{shown}' belongs to no option; {hint}")
}

fn list(env: &Env, prefix: &Prefix, args: &IndexArgs) -> Result<Answer> {
    let is_classic = classic::is_meant();
    let is_there = env.files.status(&prefix.index_file()).is_ok();
    let (index, holdings) = known(env, prefix)?;
    // The files are looked at of those that a run would try, until one is whole.
    let tried = ledger::in_order(&index, None).into_iter().filter(|_| !is_classic);
    let loss = |one: Candidate| Some((one.seq.id, loss_of(&*env.files, prefix, &one)?));
    let lost: BTreeMap<_, _> = tried.map_while(loss).collect();
    let is_readable = |id: u64| {
        let read = || Some(describe(&Summary::read(&*env.files, prefix, id).err()?));
        let why = lost.get(&id).cloned().or_else(read);
        why.iter().for_each(warn);
        why.is_none()
    };
    let rows = show::rows(&index, &holdings, is_readable);
    if rows.is_empty() {
        warn(match environment::was_used(prefix) {
            true => format!("the index of {} lists no dataset", prefix.dir().display()),
            false => environment::unused(prefix),
        });
    }
    let shown = match args.json {
        false if is_classic && !is_there => Answer::No,
        false if !is_classic && rows.is_empty() => Answer::Yes,
        json => show(json, show::json(&rows), show::table(&rows, is_classic), true)?,
    };
    let unsaved = rows.iter().filter_map(show::Row::only_copy);
    unsaved.for_each(|copy| warn(only_in_cache(env, prefix, &holdings, copy)));
    Ok(shown)
}

/// The index, and all datasets, as far as the prefix directory knows them.
fn known(env: &Env, prefix: &Prefix) -> Result<(Index, Vec<Held>)> {
    let index = LedgerDir::new(&*env.files, prefix).index().or_cannot("read the index of", prefix.dir())?;
    let flush = FlushFile::read(&*env.files, prefix).unwrap_or_else(|error| {
        warn(format_args!("datasets in cache are not listed: {error}"));
        FlushFile::default()
    });
    let holdings = holdings(&*env.files, prefix, &flush, Some(&index), None);
    Ok((index, holdings))
}

const NOT_KEPT: &str = ": it is neither a checkpoint nor output, or a newer one takes its place";

/// The warning about the fate of one of the datasets that the index does not list yet. Does not ask the nodes.
fn only_in_cache(env: &Env, prefix: &Prefix, all: &[Held], held: &Held) -> String {
    let Held { entry: dataset, copy, .. } = held;
    let (name, allocation) = (on_one_line(&dataset.name_text()), dataset.allocation().unwrap_or_default());
    let lies = match dataset.is_on_nodes() {
        true => format!("`{name}' lies only in the cache of allocation {allocation}"),
        false => format!("`{name}' {}", dataset.where_unlisted()),
    };
    if !copy.is_whole() {
        return format!("{lies}, and no run restarts from it: {}", copy.in_words().1);
    }
    if !environment::params_of(env, prefix).get(&param::SCAVENGE) {
        return format!("{lies}, and with SCR_SCAVENGE=0 `scr postrun' does not save it");
    }
    let point = dataset.restart_point();
    let size = point.ranks.filter(|_| !point.any_ranks);
    let size = size.map(|ranks| format!(" with as many ranks ({ranks})")).unwrap_or_default();
    let saving = Saving::of(all, allocation, may_lack_entries(&*env.files, prefix, allocation));
    let else_what = match saving.fate(dataset.id) {
        None if saving.0.iter().any(|(planned, _)| planned.id == dataset.id) => {
            return format!("{lies}, and `scr postrun' saves it only if it can save no newer one")
        }
        None => return format!("{lies}, and `scr postrun' does not save it{NOT_KEPT}"),
        Some(_) if !dataset.is_on_nodes() => {
            return format!("{lies}; `scr postrun' in allocation {allocation} lists it")
        }
        Some(Plan::Newest) => format!("a job there{size} restarts from it, and "),
        Some(Plan::PassedOver) => "a run of another allocation has gone on without it, and ".to_owned(),
        Some(Plan::Output | Plan::Elsewhere) => String::new(),
    };
    format!(
        "{lies}: unless too many of the nodes are lost, which `scr inspect' there finds out, {else_what}`scr postrun' there \
         copies it to the prefix directory"
    )
}

fn change(
    env: &Env,
    prefix: &Prefix,
    name: &OsStr,
    as_json: bool,
    done: &str,
    change: impl FnOnce() -> Result<(bool, Option<&'static str>), PrefixError>,
) -> Result<Answer> {
    let changed = if_used(prefix, || change().map(|(found, caution)| found.then_some(caution)))?;
    changed.flatten().iter().for_each(warn);
    let json = json!({ "name": name.to_string_lossy(), "found": changed.is_some() });
    warn_if_missing(env, prefix, name, changed.is_some());
    let is_said = changed.is_some() && !classic::is_meant();
    let text = is_said.then(|| format!("{done} `{}'\n", on_one_line(&name.to_string_lossy())));
    show(as_json, json, text.unwrap_or_default(), changed.is_some())
}

fn delete(env: &Env, prefix: &Prefix, name: &OsStr, as_json: bool) -> Result<Answer> {
    let shown = name.to_string_lossy();
    let deleted = environment::was_used(prefix).then(|| delete_dataset(&*env.files, prefix, name.as_bytes()));
    let dropped = deleted.transpose().map_err(|error| {
        let cannot = format!("cannot delete `{shown}' in {}", prefix.dir().display());
        let cure =
            "the lock needs space too: remove the files of the dataset by hand first, or raise the quota";
        let is_full = matches!(&error, OpsError::Prefix(error) if error.is_for_want_of_room());
        anyhow!(error).context(if is_full { format!("{cannot}; {cure}") } else { cannot })
    });
    let dropped = dropped?.unwrap_or_default();
    dropped.notes.iter().for_each(|note| warn(format_args!("`{shown}' is deleted, but {note}")));
    dropped.caution.iter().for_each(warn);
    dropped.in_cache.iter().for_each(|&id| warn(left_in_cache(id, name)));
    let files = if dropped.notes.is_empty() { " with its files" } else { "" };
    let text = dropped.found.then(|| format!("deleted `{}'{files}\n", on_one_line(&shown)));
    let json = json!({ "name": shown, "found": dropped.found });
    warn_if_missing(env, prefix, name, dropped.found);
    show(as_json, json, text.unwrap_or_default(), dropped.found)
}

/// Drops the datasets that are newer than the one of this name; without a name, every one.
fn drop_newer(env: &Env, prefix: &Prefix, than: Option<&OsStr>, as_json: bool) -> Result<Answer> {
    let dropped = if_used(prefix, || drop_later(&*env.files, prefix, than.map(OsStr::as_bytes)))?;
    let is_known = dropped.is_some();
    let (mut names, mut text) = (Vec::new(), String::new());
    for dropped in dropped.unwrap_or_default() {
        let name = OsStr::from_bytes(&dropped.name);
        dropped.caution.iter().for_each(warn);
        dropped.in_cache.iter().for_each(|&id| warn(also_in_cache(id, name)));
        names.push(name.to_string_lossy().into_owned());
        text += &format!("dropped `{}'\n", on_one_line(&name.to_string_lossy()));
    }
    let Some(name) = than else {
        if names.is_empty() {
            text = format!("the index of {} has no dataset\n", prefix.dir().display());
        }
        return show(as_json, json!({ "dropped": names }), text, true);
    };
    let json = json!({ "name": name.to_string_lossy(), "found": is_known, "dropped": names });
    warn_if_missing(env, prefix, name, is_known);
    show(as_json, json, text, is_known)
}

/// Changes the index. Without an earlier job there is none, nor a place for its lock.
fn if_used<R>(prefix: &Prefix, change: impl FnOnce() -> Result<Option<R>, PrefixError>) -> Result<Option<R>> {
    let changed = environment::was_used(prefix).then(change).transpose();
    changed.map(Option::flatten).or_cannot("change the index of", prefix.dir())
}

/// Says it if the index has no dataset of this name, and where else there is one.
fn warn_if_missing(env: &Env, prefix: &Prefix, name: &OsStr, is_there: bool) {
    if is_there {
        return;
    }
    let all = known(env, prefix).map(|(_, all)| all).unwrap_or_default();
    let is_it = |held: &&Held| held.entry.is_at(Location::Cache) && held.entry.name == name.as_bytes();
    let (name, dir) = (name.to_string_lossy(), prefix.dir().display());
    warn(match all.iter().find(is_it) {
        Some(held) => {
            format!("the index of {dir} does not list it yet: {}", only_in_cache(env, prefix, &all, held))
        }
        None => {
            let names: Vec<_> = all.iter().map(|held| held.entry.name_text()).collect();
            let hint = did_you_mean(&name, names.iter().map(|name| &**name));
            let hint = hint.unwrap_or_else(|| "`scr index` lists what there is".to_owned());
            format!("the index of {dir} has no dataset named `{name}'; {hint}")
        }
    });
}

/// The fate of the copy in cache of a dataset that was dropped.
fn also_in_cache(id: u64, name: &OsStr) -> String {
    let cure =
        format!("run `scr copy --id {id}' on the nodes of the job and then `scr index --build {id}' before");
    format!("{}; to keep the dataset, {cure}", left_in_cache(id, name))
}

/// The same of one that was deleted.
fn left_in_cache(id: u64, name: &OsStr) -> String {
    let cached = format!("dataset {id} `{}' is in cache as well", name.to_string_lossy());
    format!("{cached}: no run restarts from that copy, and the job that has it or the next run removes it")
}

/// Warns where a job does not restart from the dataset that is the current one now.
fn warn_if_passed_over(env: &Env, prefix: &Prefix, name: &OsStr) -> Result<()> {
    let index = LedgerDir::new(&*env.files, prefix).index()?;
    let entry = index.id_of(name.as_bytes()).and_then(|id| index.entry(id));
    if entry.as_ref().is_some_and(|entry| !entry.is_candidate()) {
        let name = name.to_string_lossy();
        warn(format_args!(
            "a job passes over `{name}', as it is not complete, has failed, or is no checkpoint, and restarts from another"
        ));
        return Ok(());
    }
    let cached = FlushFile::read(&*env.files, prefix)?.entries().into_iter();
    let mut cached = cached.filter(|cached| cached.checkpoint && cached.is_on_nodes());
    if let Some(newer) =
        cached.find(|cached| entry.as_ref().is_some_and(|entry| index.seq_of(&cached.dataset) > entry.seq()))
    {
        let (name, newer) = (name.to_string_lossy(), newer.name_text());
        warn(format_args!(
            "a job in this allocation, which has the newer `{newer}' in cache, restarts from that one; to restart from `{name}', set \
             SCR_CURRENT={name} or drop what is newer with `scr index --drop-after {name}'"
        ));
    }
    Ok(())
}

/// Builds, and reports what became of each dataset.
fn build(
    env: &Env,
    prefix: &Prefix,
    json: bool,
    work: impl FnOnce(&Builder<'_>, &mut BuildReport) -> Result<(), BuildError>,
) -> Result<Answer> {
    let params = environment::params_of(env, prefix);
    let plugins = environment::plugin_host(env);
    let builder = Builder::new(env, prefix, &plugins, params.get(&param::DEBUG));
    let mut report = BuildReport::default();
    let progress = Progress::new(format!("reading and rebuilding below {}", prefix.dir().display()));
    let outcome = work(&builder, &mut report);
    drop(progress);
    let is_complete = !report.lacks_any;
    let rows = json!({ "complete": is_complete, "datasets": report.rows });
    let shown = show(json, rows, report.text, is_complete)?;
    outcome.or_cannot("build in", prefix.dir())?;
    Ok(shown)
}

/// Makes a dataset of files.
fn import(args: &IndexArgs, env: &Env, prefix: &Prefix, name: &OsStr) -> Result<Answer> {
    let is_there = |path: &Path| path.exists() || prefix.dir().join(path).exists();
    let ranks = importing::by_rank(&args.files, args.ranks, is_there)?;
    let import = Import { env, prefix, name: name.as_bytes(), checkpoint: !args.output, ranks: &ranks };
    let progress = Progress::new(format!("reading {}", count(args.files.len() as u64, "name")));
    let imported = import.run();
    drop(progress);
    let imported =
        imported.with_context(|| format!("nothing was imported into {}", prefix.dir().display()))?;
    let Imported { id, files, bytes, caution } = imported;
    caution.iter().for_each(warn);
    let (name, ranks) = (name.to_string_lossy(), ranks.len() as u64);
    let sizes = format!("{}, {}, {}", count(ranks, "rank"), count(files, "file"), amount(bytes));
    let what = if args.output { "" } else { "; the next job restarts from it" };
    let json = json!({ "id": id, "name": name, "ranks": ranks, "files": files, "bytes": bytes });
    let text = format!("dataset {id} `{}' is listed: {sizes}{what}\n", on_one_line(&name));
    show(args.json, json, text, true)
}

/// Writes files out of their containers.
fn extract_files(env: &Env, prefix: &Prefix, name: &OsStr, json: bool) -> Result<Answer> {
    let progress = Progress::new(format!("reading below {}", prefix.dir().display()));
    let extracted = extract(env, prefix, &named(env, prefix, name));
    drop(progress);
    let extracted = match extracted {
        Err(error @ OpsError::NoDataset(_)) => {
            warn(error);
            return show(json, json!({ "name": name.to_string_lossy(), "found": false }), "", false);
        }
        extracted => extracted.or_cannot("extract below", prefix.dir())?,
    };
    let Extracted { id, files, already, bytes } = extracted;
    let name = name.to_string_lossy();
    let sizes = format!("{}, {}", count(files, "file"), amount(bytes));
    let before = if already > 0 { format!("; {already} of them were there before") } else { String::new() };
    let text = format!("dataset {id} `{}' lies under its names: {sizes}{before}\n", on_one_line(&name));
    let row = json!({ "id": id, "name": name, "files": files, "already": already, "bytes": bytes });
    show(json, row, text, true)
}

/// The name of a dataset that is given by its name or by its folder.
fn named(env: &Env, prefix: &Prefix, given: &OsStr) -> Vec<u8> {
    let path = param::normalise(&env.current_dir.join(given));
    let is_path = Path::new(given).is_absolute() || given.as_bytes().ends_with(b"/");
    let below = path.strip_prefix(prefix.dir()).ok().filter(|_| is_path);
    below.map_or(given.as_bytes(), |below| below.as_os_str().as_bytes()).to_vec()
}

/// Tells what became of each dataset: people, where it is complete, and programs.
#[derive(Default)]
struct BuildReport {
    /// Whether no job may use one of them.
    lacks_any: bool,
    text: String,
    rows: Vec<Value>,
}

impl BuildReport {
    /// Takes in what became of a dataset, and warns of what is missing. That there is no such dataset is a result; other errors
    /// are passed on.
    fn add(&mut self, built: Result<Built, BuildError>) -> Result<(), BuildError> {
        let (id, name, notes, outcome) = match built {
            Ok(built) => (Some(built.id), built.name, built.notes, Ok(built.outcome)),
            Err(error @ BuildError::Unknown { id, .. }) => (id, Vec::new(), Vec::new(), Err(error)),
            Err(error) => return Err(error),
        };
        let name = String::from_utf8_lossy(&name);
        let label = format!("dataset {} `{name}'", id.unwrap_or_default());
        notes.iter().for_each(|note| warn(format_args!("{label}: {note}")));
        let (mut rebuilt, mut size, mut verified, mut why): (&[u32], _, _, _) = (&[], None, false, None);
        let (key, what) = match &outcome {
            Err(error) => {
                warn(error);
                why = Some(error.to_string());
                ("none", None)
            }
            Ok(Outcome::Incomplete { why: text }) => {
                warn(format_args!("{label} is not complete: {text}"));
                why = Some(text.clone());
                ("incomplete", None)
            }
            Ok(Outcome::Already) => ("already", Some("complete already, nothing was done".to_owned())),
            Ok(Outcome::Listed { files, bytes, verified: is_verified }) => {
                (size, verified) = (Some((files, bytes)), *is_verified);
                let unverified = "listed; it is unverified, as it has no checksums";
                ("listed", Some(if verified { "whole and listed" } else { unverified }.to_owned()))
            }
            Ok(Outcome::Completed { rebuilt: ranks, files, bytes }) => {
                (rebuilt, size, verified) = (ranks, Some((files, bytes)), true);
                let rebuilt = format!("the parts of ranks {} were rebuilt", joined(ranks, ", "));
                let what = if ranks.is_empty() { "nothing was lost" } else { &rebuilt };
                ("built", Some(format!("complete and listed, {what}")))
            }
        };
        let sizes = size.map(|(&files, &bytes)| format!(": {}, {}", count(files, "file"), amount(bytes)));
        let line = |what| format!("{label} is {what}{}\n", sizes.unwrap_or_default());
        self.text.extend(what.map(line));
        let is_complete = outcome.as_ref().is_ok_and(Outcome::is_complete);
        self.lacks_any |= !is_complete;
        self.rows.push(json!({
            "id": id,
            "name": name,
            "complete": is_complete,
            "outcome": key,
            "rebuilt": rebuilt,
            "files": size.map(|(files, _)| files),
            "bytes": size.map(|(_, bytes)| bytes),
            "verified": verified,
            "why": why,
            "notes": notes,
        }));
        Ok(())
    }
}
