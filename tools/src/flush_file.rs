//! `scr flush-file`, and `scr_flush_file`: what `.scr/flush.scr` says of the datasets of an allocation, for scripts that
//! decide what is left to copy.
//!
//! Exit codes: 0 yes, or what was answer for is printed; 1 no, or there is nothing to print; 2 an error.

use crate::machine::{current_job_id, Manifests};
use crate::prelude::*;
use scr_prefix::{FlushEntry, Location};

/// The question, and the flush file.
#[derive(Args)]
pub(crate) struct FlushFileArgs {
    #[command(flatten)]
    selection: Selection,
    /// In lists, only datasets with lower ids; 0 for all
    #[arg(short, long, value_name = "ID")]
    before: Option<u64>,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR", conflicts_with = "dir")]
    place: Option<PathBuf>,
    /// The same as DIR
    #[arg(short, long, visible_alias = "prefix", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// At most one of these; without one, all datasets are listed in a table.
#[derive(Args, Default, PartialEq)]
#[group(multiple = false)]
struct Selection {
    /// Print the id of the newest checkpoint that this allocation has, or that is in the prefix directory; exit with 1 if there
    /// is none
    #[arg(short, long)]
    latest: bool,
    /// Exit with 0 if this allocation still has to copy a dataset to the prefix directory, with 1 if not or if it is not known
    #[arg(short, long, visible_alias = "need-flush", value_name = "ID")]
    needflush: Option<u64>,
    /// Exit with 0 if a dataset is in the prefix directory, with 1 if not or if it is not known
    #[arg(long, value_name = "ID")]
    id: Option<u64>,
    /// Print where a dataset is: PFS if it is there, or else SYNC_FLUSHING, FLUSHING, CACHE, or NONE; exit with 1 if it is not
    /// known. One in bypass mode is at CACHE only until the index of the prefix directory lists it, as with C SCR
    #[arg(short = 'L', long, value_name = "ID")]
    location: Option<u64>,
    /// Print the name of a dataset; exit with 1 if it is not known
    #[arg(short = 's', long, value_name = "ID")]
    name: Option<u64>,
    /// Print the ids of output datasets, the oldest first; exit with 1 if there is none
    #[arg(short = 'o', long)]
    list_output: bool,
    /// Print the ids of checkpoints, the newest first; exit with 1 if there is none
    #[arg(short = 'c', long)]
    list_ckpt: bool,
}

/// Does what is answer.
pub(crate) fn run(args: &FlushFileArgs) -> Result<Answer> {
    ensure!(!classic::is_meant() || args.selection != Selection::default(), "no action is given");
    let mut env = environment::env()?;
    let prefix = environment::prefix(&mut env, args.place.as_deref().or(args.dir.as_deref()))?;
    let reply = reply(&env, &prefix, &args.selection, args.before.filter(|&before| before > 0))?;
    show(args.json, reply.json(), &reply.text, reply.yes)
}

/// The id of the newest checkpoint that this allocation has, or that is in the prefix directory.
///
/// # Errors
/// There is none.
pub(crate) fn latest(env: &Env, prefix: &Prefix) -> Result<u64> {
    let reply = reply(env, prefix, &Selection { latest: true, ..Selection::default() }, None)?;
    let newest = reply.datasets.first().map(|entry| entry.id);
    newest.with_context(|| format!("{} knows of no checkpoint of this allocation", prefix.dir().display()))
}

/// The reply, after the warnings that belong to it.
fn reply(env: &Env, prefix: &Prefix, selection: &Selection, before: Option<u64>) -> Result<Reply> {
    let file = FlushFile::read_as_it_is(&*env.files, prefix, selection.of_one())
        .with_context(|| format!("cannot find out what {} has", prefix.dir().display()))?;
    let job_id = current_job_id(env, &environment::params_of(env, prefix), &Manifests::load(env)?)?;
    let reply = selection.ask(&file, before, &job_id);
    for entry in &reply.elsewhere {
        let (id, name, of) = (entry.id, entry.name_text(), entry.allocation().unwrap_or_default());
        warn(format_args!(
            "dataset {id} `{name}' is of allocation {of}, and this one cannot flush it; to ask for that one, set SCR_JOB_ID"
        ));
    }
    if !environment::was_used(prefix) {
        warn(environment::unused(prefix));
    } else if file.entries().is_empty() {
        warn(format_args!("{} lists no dataset", prefix.flush_file().display()));
    } else if let (Some(id), true) =
        (selection.of_one(), reply.datasets.is_empty() && reply.elsewhere.is_empty())
    {
        warn(format_args!("{} lists no dataset {id}", prefix.flush_file().display()));
    }
    Ok(reply)
}

/// The result of a selection.
struct Reply {
    yes: bool,
    text: String,
    datasets: Vec<FlushEntry>,
    /// Datasets that would be among them in another allocation.
    elsewhere: Vec<FlushEntry>,
}

impl Selection {
    /// The dataset that is asked about.
    fn of_one(&self) -> Option<u64> {
        self.needflush.or(self.id).or(self.location).or(self.name)
    }

    /// The answer in the allocation `job_id`. Only datasets in its cache are left to flush.
    fn ask(&self, file: &FlushFile, before: Option<u64>, job_id: &str) -> Reply {
        let is_listed = self.latest || self.list_ckpt || self.list_output;
        let mut datasets = match self.of_one() {
            Some(id) => file.entry(id).into_iter().collect(),
            None => file.entries(),
        };
        datasets.retain(|entry| {
            let is_meant = self.of_one().is_some() || before.is_none_or(|before| entry.id < before);
            let is_checkpoint = entry.checkpoint || !(self.latest || self.list_ckpt);
            is_meant && is_checkpoint && (entry.output || !self.list_output)
        });
        if self.list_output {
            datasets.reverse();
        }
        let mut elsewhere = Vec::new();
        if is_listed || self.needflush.is_some() {
            let is_within_reach = |entry: &FlushEntry| {
                entry.is_at(Location::Prefix) || entry.allocation().is_none_or(|of| of == job_id)
            };
            (datasets, elsewhere) = datasets.into_iter().partition(is_within_reach);
        }
        if self.latest {
            datasets.truncate(1);
            elsewhere.retain(|entry| datasets.iter().all(|newest| entry.seq() > newest.seq()));
        }
        let is_any = |what: fn(&FlushEntry) -> bool| datasets.iter().any(what);
        let lines =
            |line: fn(&FlushEntry) -> String| datasets.iter().map(|entry| line(entry) + "\n").collect();
        let (yes, text) = match *self {
            Self { needflush: Some(_), .. } => (is_any(FlushEntry::needs_flush), String::new()),
            Self { id: Some(_), .. } => (is_any(|entry| entry.is_at(Location::Prefix)), String::new()),
            Self { location: Some(_), .. } => (is_any(|_| true), lines(place)),
            Self { name: Some(_), .. } => (is_any(|_| true), lines(|entry| entry.name_text())),
            _ if is_listed && datasets.is_empty() => (false, String::new()),
            _ if is_listed => (true, joined(datasets.iter().map(|entry| entry.id), " ") + "\n"),
            _ => (true, table(&datasets)),
        };
        Reply { yes, text, datasets, elsewhere }
    }
}

impl Reply {
    fn json(&self) -> Value {
        let rows = self.datasets.iter().map(|entry| {
            json!({
                "id": entry.id,
                "name": entry.name_text(),
                "checkpoint": entry.checkpoint,
                "output": entry.output,
                "locations": locations(entry).map(Location::key).collect::<Vec<_>>(),
                "bypass": entry.in_cache.bypass,
                "local": entry.in_cache.is_local,
                "needs_flush": entry.needs_flush(),
            })
        });
        json!({ "answer": self.yes, "datasets": rows.collect::<Vec<_>>() })
    }
}

/// The locations, without the cache if that has no files of the dataset.
fn locations(entry: &FlushEntry) -> impl Iterator<Item = Location> + '_ {
    let locations = entry.locations.iter().copied();
    locations.filter(|location| *location != Location::Cache || entry.is_on_nodes())
}

/// The place that a dataset has come furthest to. Scripts of C SCR know the word `CACHE` for one in bypass mode that the index does
/// not list.
fn place(entry: &FlushEntry) -> String {
    all_places(entry, Location::Cache.key()).split(' ').next_back().unwrap_or_default().to_owned()
}

/// The locations, and this word for files that lie in place while nothing lists them.
fn all_places(entry: &FlushEntry, unlisted: &str) -> String {
    let keys = joined(locations(entry).map(Location::key), " ");
    match (keys.is_empty(), entry.locations.is_empty()) {
        (false, _) => keys,
        (true, false) => unlisted.to_owned(),
        (true, true) => "NONE".to_owned(),
    }
}

fn table(entries: &[FlushEntry]) -> String {
    let kind = |entry: &FlushEntry| {
        let kinds = [(entry.checkpoint, "CKPT"), (entry.output, "OUTPUT")];
        joined(kinds.iter().filter(|(is_it, _)| *is_it).map(|(_, kind)| kind), ",")
    };
    let row = |entry: &FlushEntry| {
        let local = if entry.in_cache.is_local { " LOCAL" } else { "" };
        // Of files that lie under the prefix directory, and its index does not list them.
        let places = all_places(entry, "UNLISTED") + local;
        [entry.id.to_string(), kind(entry), places, entry.name_text()]
    };
    Table::of(&["DSET", "KIND", "LOCATION", "NAME"], entries.iter().map(row)).text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_prefix::{DatasetDescriptor, InCache};

    fn file() -> FlushFile {
        let mut file = FlushFile::default();
        for (id, checkpoint, output) in
            [(3, true, false), (4, false, true), (6, true, true), (7, true, false)]
        {
            let name = format!("set.{id}").into_bytes();
            let dataset = DatasetDescriptor { id, name, checkpoint, output, ..Default::default() };
            file.record(&dataset, Location::Cache);
        }
        file.add_location(6, Location::Prefix);
        file
    }

    fn selection() -> Selection {
        Selection::default()
    }

    fn answer(selection: &Selection, before: Option<u64>) -> (bool, String) {
        let reply = selection.ask(&file(), before, "7");
        (reply.yes, reply.text)
    }

    #[test]
    fn checkpoints_are_listed_newest_first_and_output_oldest_first() {
        let checkpoints = Selection { list_ckpt: true, ..selection() };
        assert_eq!(answer(&checkpoints, None), (true, "7 6 3\n".to_owned()));
        assert_eq!(answer(&checkpoints, Some(7)), (true, "6 3\n".to_owned()));
        assert_eq!(answer(&checkpoints, Some(3)), (false, String::new()));
        assert_eq!(answer(&Selection { list_output: true, ..selection() }, None), (true, "4 6\n".to_owned()));
        assert_eq!(answer(&Selection { latest: true, ..selection() }, None), (true, "7\n".to_owned()));
    }

    #[test]
    fn only_a_known_dataset_outside_the_prefix_directory_needs_a_flush() {
        let needs = |id| answer(&Selection { needflush: Some(id), ..selection() }, None);
        assert_eq!([3, 6, 99].map(|id| needs(id).0), [true, false, false]);
        let mut replaced = file();
        replaced.record_replaced(3, 6);
        let ask = Selection { needflush: Some(3), ..selection() };
        assert!(!ask.ask(&replaced, None, "7").yes, "a newer one has its files");
    }

    /// They were listed as left to copy, although no node of this allocation had anything of them.
    #[test]
    fn what_only_another_allocation_has_in_cache_is_not_left_to_flush() {
        let mut file = file();
        let of = |id, job_id: &str| DatasetDescriptor {
            id,
            job_id: job_id.to_owned(),
            checkpoint: true,
            ..Default::default()
        };
        file.record(&of(8, "7"), Location::Cache);
        file.record(&of(9, "6"), Location::Cache);
        file.record(&of(10, "6"), Location::Prefix);
        let ask = |selection: Selection, job_id| {
            let reply = selection.ask(&file, Some(10), job_id);
            (reply.yes, reply.text, reply.elsewhere.iter().map(|entry| entry.id).collect::<Vec<_>>())
        };
        let latest = || Selection { latest: true, ..selection() };
        assert_eq!(ask(latest(), "7"), (true, "8\n".to_owned(), vec![9]));
        assert_eq!(ask(latest(), "6"), (true, "9\n".to_owned(), vec![]));
        let needs = |id, job_id| ask(Selection { needflush: Some(id), ..selection() }, job_id).0;
        assert!(needs(8, "7") && !needs(9, "7") && needs(9, "6"));
        assert_eq!(ask(Selection { list_ckpt: true, ..selection() }, "7").1, "8 7 6 3\n");
    }

    /// It said `CACHE`, though no node had a byte of it.
    #[test]
    fn a_dataset_in_bypass_mode_is_in_no_cache() {
        let mut file = FlushFile::default();
        for id in [1, 2] {
            let name = format!("set.{id}").into_bytes();
            let dataset = DatasetDescriptor { id, name, checkpoint: true, ..Default::default() };
            file.record_in_cache(&dataset, &InCache { bypass: true, ..InCache::default() });
        }
        file.add_location(1, Location::Prefix);
        let ask = |selection: Selection| selection.ask(&file, None, "7");
        let place = |id| ask(Selection { location: Some(id), ..selection() }).text;
        assert_eq!([place(1), place(2)], ["PFS\n", "CACHE\n"], "as C SCR answers");
        let needs = |id| ask(Selection { needflush: Some(id), ..selection() }).yes;
        assert_eq!([needs(1), needs(2)], [false, true]);
        let text = "\
DSET  KIND  LOCATION  NAME
2     CKPT  UNLISTED  set.2
1     CKPT  PFS       set.1
";
        let all = ask(selection());
        assert_eq!(all.text, text);
        let facts = ["locations", "bypass", "needs_flush"].map(|key| all.json()["datasets"][1][key].clone());
        assert_eq!(Value::from(facts.to_vec()), json!([["PFS"], true, false]));
    }

    /// C SCR's manual has the answer the other way round.
    #[test]
    fn asked_by_its_id_alone_a_dataset_is_in_the_prefix_directory_or_not() {
        let arrived = |id| answer(&Selection { id: Some(id), ..selection() }, None);
        assert_eq!([3, 6, 99].map(|id| arrived(id).0), [false, true, false]);
    }

    #[test]
    fn name_and_locations_of_a_known_dataset_are_shown() {
        let places = |id| answer(&Selection { location: Some(id), ..selection() }, None);
        assert_eq!(places(6), (true, "PFS\n".to_owned()));
        assert_eq!(places(99), (false, String::new()));
        assert_eq!(answer(&Selection { name: Some(7), ..selection() }, None), (true, "set.7\n".to_owned()));
    }

    #[test]
    fn without_a_question_there_is_a_table() {
        let text = "\
DSET  KIND         LOCATION   NAME
7     CKPT         CACHE      set.7
6     CKPT,OUTPUT  CACHE PFS  set.6
4     OUTPUT       CACHE      set.4
3     CKPT         CACHE      set.3
";
        assert_eq!(answer(&selection(), None), (true, text.to_owned()));
    }
}
