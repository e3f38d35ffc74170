//! Redundancy descriptors: where a dataset is cached, how it is protected, and which datasets that is for.
//!
//! `SCR_COPY_TYPE=FILE` takes them from the `CKPT=` lines; any other value names the scheme of a single implied descriptor. A
//! dataset records its descriptor, so that it is read back with the same one.

use super::group::Groups;
use super::keys::Keys;
use super::store::Store;
use crate::param::{
    self, nearest, normalise, quote, scheme_name, suggest, Cause, Kind, Line, Origin, Params, Problem,
};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;
use std::path::Path;

/// How a dataset is cached and protected.
#[derive(Debug, Clone, PartialEq)]
pub struct Redundancy {
    /// Its number, from 0.
    pub index: u32,
    /// It is for every checkpoint whose id this divides.
    pub interval: u64,
    /// The failure group: processes that are likely to fail together.
    pub group: String,
    /// The name of the store, see [`Store::name`].
    pub store: String,
    /// The name of the scheme.
    pub scheme: String,
    /// Whether files stay in the prefix directory.
    pub bypass: bool,
    /// Whether it is for output.
    pub output: bool,
    /// Whether a checkpoint is protected while the application computes, and not before `SCR_Complete_output` returns.
    pub encode_async: bool,
    /// Least members of a set, where there are enough failure groups.
    pub set_size: u32,
    /// Failures to survive in each set, for schemes that let one choose.
    pub set_failures: u32,
    /// Further options of the scheme.
    pub options: BTreeMap<String, String>,
    /// The place of its description.
    pub origin: Origin,
}

pub(super) const KEYS: &[&str] = &[
    "INTERVAL",
    "GROUP",
    "STORE",
    "TYPE",
    "BYPASS",
    "OUTPUT",
    "SET_SIZE",
    "SET_FAILURES",
    "ENCODE",
    "ENABLED",
];
/// The words of `ENCODE`, by whether the application computes meanwhile.
const ENCODES: &[(&str, bool)] = &[("sync", false), ("async", true)];
/// Schemes that come with scr and do not let one choose how many failures they survive.
const FIXED: &[&str] = &["SINGLE", "PARTNER", "XOR"];
const INTERVAL: Kind = Kind::Count { least: 1, most: u64::MAX };

/// Whether what a scheme has protected survives the loss of a node.
pub fn protects(scheme: &str) -> bool {
    !scheme.eq_ignore_ascii_case("SINGLE")
}

impl Redundancy {
    /// Whether checkpoints are protected while the application computes.
    pub fn is_behind(&self) -> bool {
        self.encode_async && !self.bypass && protects(&self.scheme)
    }

    /// As a tree, as datasets record it.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("INDEX", self.index);
        tree.set("INTERVAL", self.interval);
        tree.set("GROUP", &self.group);
        tree.set("STORE", &self.store);
        tree.set("TYPE", &self.scheme);
        tree.set("BYPASS", u8::from(self.bypass));
        tree.set("OUTPUT", u8::from(self.output));
        if self.encode_async {
            tree.set("ENCODE", "async");
        }
        tree.set("SET_SIZE", self.set_size);
        tree.set("SET_FAILURES", self.set_failures);
        for (key, value) in &self.options {
            tree.child("OPTION").set(key, value);
        }
        tree
    }
}

/// The descriptors of a run. There is always one for every checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Redundancies {
    /// The one with interval 1.
    every: Redundancy,
    /// All others that can be chosen.
    others: Vec<Redundancy>,
}

impl Redundancies {
    /// The descriptor for a dataset.
    ///
    /// `checkpoint_id` counts checkpoints from 1. Output goes to the descriptor that is marked for it, if there is
    /// one. Otherwise a checkpoint goes to the one with the largest interval that divides its id, and any other
    /// dataset to the one with interval 1.
    pub fn choose(&self, checkpoint_id: u64, is_checkpoint: bool, is_output: bool) -> &Redundancy {
        let marked = self.all().into_iter().find(|descriptor| descriptor.output);
        match marked.filter(|_| is_output) {
            Some(marked) => marked,
            None if is_checkpoint => self.by_interval(checkpoint_id),
            None => &self.every,
        }
    }

    /// All of them in the order of their numbers.
    pub fn all(&self) -> Vec<&Redundancy> {
        let mut all: Vec<_> = std::iter::once(&self.every).chain(&self.others).collect();
        all.sort_by_key(|descriptor| descriptor.index);
        all
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Redundancy> {
        std::iter::once(&mut self.every).chain(&mut self.others)
    }

    fn by_interval(&self, checkpoint_id: u64) -> &Redundancy {
        let dividing =
            self.others.iter().filter(|descriptor| checkpoint_id.checked_rem(descriptor.interval) == Some(0));
        // The last of equal ones is taken, so backwards the first. Those with interval 1 are for output only.
        let largest = dividing.rev().max_by_key(|descriptor| descriptor.interval);
        largest.filter(|descriptor| descriptor.interval > 1).unwrap_or(&self.every)
    }

    /// Reports the descriptors that can never be chosen, and removes them. Gives back what is left where none is for every
    /// checkpoint.
    fn from_list(mut list: Vec<Redundancy>, problems: &mut Vec<Problem>) -> Result<Self, Vec<Redundancy>> {
        list.sort_by_key(|descriptor| descriptor.index);
        let mut kept: Vec<Redundancy> = Vec::new();
        let (mut marked, mut is_any_never_chosen) = (None, false);
        for mut descriptor in list {
            let index = descriptor.index;
            if let (true, Some(other)) = (descriptor.output, marked) {
                let message = format!(
                    "CKPT={index} and CKPT={other} both have OUTPUT=1; CKPT={other} is used for output"
                );
                problems.push(Problem::new(&descriptor.origin, message));
                descriptor.output = false;
            }
            if descriptor.output {
                marked = Some(index);
            }
            let interval = descriptor.interval;
            let same = kept.iter().find(|kept| kept.interval == interval);
            // One that is marked for output is chosen for that, and may share its interval.
            match same.filter(|_| !descriptor.output) {
                Some(same) => {
                    let other = same.index;
                    let cure = match same.output {
                        true => format!("CKPT={other}, which has OUTPUT=1, a higher number, so that it serves output only"),
                        false => "it another interval".to_owned(),
                    };
                    is_any_never_chosen |= interval == 1;
                    let message = format!(
                        "CKPT={index} and CKPT={other} both have INTERVAL={interval}, so CKPT={index} is never chosen; give {cure}"
                    );
                    problems.push(Problem::new(&descriptor.origin, message));
                }
                None => kept.push(descriptor),
            }
        }
        let Some(at) = kept.iter().position(|descriptor| descriptor.interval == 1) else { return Err(kept) };
        let every = kept.remove(at);
        if every.output && !kept.is_empty() && !is_any_never_chosen {
            let index = every.index;
            let message = format!(
                "CKPT={index} has OUTPUT=1, and takes every checkpoint as well that no other line does, as none has \
                 INTERVAL=1; add a line with INTERVAL=1 for them"
            );
            problems.push(Problem::new(&every.origin, message));
        }
        Ok(Self { every, others: kept })
    }
}

/// All redundancy descriptors.
pub(super) fn build(
    params: &Params,
    groups: &Groups,
    stores: &[Store],
    problems: &mut Vec<Problem>,
    fatal: &mut Vec<Problem>,
) -> Redundancies {
    let mut builder = Builder { params, groups, stores, problems, fatal };
    if super::passes_through(params) {
        let implied = builder.implied("SINGLE".to_owned());
        return Redundancies { every: Redundancy { bypass: true, ..implied }, others: Vec::new() };
    }
    let scheme = params.get(&param::COPY_TYPE);
    if scheme != param::FROM_LINES {
        if let Some(line) = params.lines("CKPT").next() {
            let message = format!(
                "the CKPT descriptors are not used with SCR_COPY_TYPE={scheme}; set SCR_COPY_TYPE=FILE to use them"
            );
            builder.problems.push(Problem::new(&line.origin, message));
        }
        return Redundancies { every: builder.implied(scheme), others: Vec::new() };
    }
    let list = builder.described();
    Redundancies::from_list(list, builder.problems).unwrap_or_else(|mut others| {
        let (origin, message) = match params.lines("CKPT").next() {
            Some(first) => (&first.origin, NO_INTERVAL_1),
            None => (params.origin(&param::COPY_TYPE), NO_DESCRIPTORS),
        };
        builder.fatal.push(Problem::new(origin, message.to_owned()));
        let every = others.pop().unwrap_or_else(|| builder.implied("XOR".to_owned()));
        Redundancies { every, others }
    })
}

const NO_INTERVAL_1: &str =
    "no CKPT descriptor in use has INTERVAL=1; give one of them INTERVAL=1, so that every checkpoint has one";
const NO_DESCRIPTORS: &str =
    "SCR_COPY_TYPE=FILE asks for CKPT descriptors and there is none; add CKPT=0 TYPE=XOR, or set SCR_COPY_TYPE=XOR";

struct Builder<'a> {
    params: &'a Params,
    groups: &'a Groups,
    stores: &'a [Store],
    problems: &'a mut Vec<Problem>,
    /// Faults with which no run starts. The faulty line is kept, so that the rest of it is checked too.
    fatal: &'a mut Vec<Problem>,
}

impl<'a> Builder<'a> {
    /// The descriptor that the parameters make up without a line.
    fn implied(&mut self, scheme: String) -> Redundancy {
        let params = self.params;
        let group = self.group(None);
        let path = params.get(&param::CACHE_BASE);
        let store = self.stores.iter().find(|store| store.path == path);
        if store.is_none_or(|store| !store.enabled) {
            let message = disabled(param::CACHE_BASE.info().name, &path);
            self.fatal.push(Problem::new(params.origin(&param::CACHE_BASE), message));
        }
        let mut redundancy = Redundancy {
            index: 0,
            interval: 1,
            group,
            store: store.map(|store| store.name.clone()).unwrap_or_default(),
            scheme,
            bypass: params.get(&param::CACHE_BYPASS),
            output: false,
            encode_async: params.get(&param::ENCODE_ASYNC),
            set_size: params.get(&param::SET_SIZE),
            set_failures: params.get(&param::SET_FAILURES),
            options: BTreeMap::new(),
            origin: params.origin(&param::COPY_TYPE).clone(),
        };
        let explicit = params.origin(&param::SET_FAILURES).is_set();
        // The problem is attributed to the one of the two that is set.
        let set = if explicit { &param::SET_FAILURES } else { &param::SET_SIZE };
        self.check_failures(&mut redundancy, "SCR_COPY_TYPE", explicit, params.origin(set));
        let own = store.filter(|_| params.get(&param::CACHE_SIZE) > 0);
        let own = own.map(|store| (format!("STORE={}", store.path.display()), &store.origin));
        let (name, origin) = own
            .unwrap_or_else(|| (param::CACHE_SIZE.info().name.to_owned(), params.origin(&param::CACHE_SIZE)));
        self.check_room(&mut redundancy, store, &name, origin);
        redundancy
    }

    /// The failure group that a line names with a key of this title at a place, or else the one of all. It must be described.
    fn group(&mut self, own: Option<(String, String, Origin)>) -> String {
        let of_all = &param::GROUP;
        let (group, name, origin) = own.unwrap_or_else(|| {
            (self.params.get(of_all), of_all.info().name.to_owned(), self.params.origin(of_all).clone())
        });
        let problem = Problem::new(&origin, self.groups.unknown(&name, &group));
        if !self.groups.has(&group) && !self.fatal.contains(&problem) {
            self.fatal.push(problem);
        }
        group
    }

    fn described(&mut self) -> Vec<Redundancy> {
        let mut list = Vec::new();
        let mut numbers: BTreeMap<u32, &Origin> = BTreeMap::new();
        for line in self.params.lines("CKPT") {
            let mut keys = Keys { line, problems: self.problems };
            let Ok(index) = line.value.parse::<u32>() else {
                keys.warn(Cause::malformed("CKPT", &line.value, "a number from 0"));
                continue;
            };
            if let Some(first) = numbers.get(&index) {
                keys.warn_twice(&format!("CKPT={index}"), first);
                continue;
            }
            numbers.insert(index, &line.origin);
            list.extend(self.one(index, line));
        }
        self.check_numbers(&numbers.into_keys().collect::<Vec<_>>());
        list
    }

    /// `None` for one that is not to be used, or cannot be.
    fn one(&mut self, index: u32, line: &Line) -> Option<Redundancy> {
        if !(Keys { line, problems: self.problems }).read("ENABLED", Kind::Bool, true) {
            return None;
        }
        let store = self.store_of(index, line);
        if store.is_some_and(|store| !store.enabled) {
            return None;
        }
        let own = (Keys { line, problems: self.problems }).text("GROUP");
        let group = self.group(own.map(|own| (own, line.title("GROUP"), line.origin_of("GROUP"))));
        let mut keys = Keys { line, problems: self.problems };
        let scheme = scheme(&mut keys);
        let (size, failures) = (&param::SET_SIZE, &param::SET_FAILURES);
        let mut redundancy = Redundancy {
            index,
            interval: keys.read("INTERVAL", INTERVAL, 1),
            group,
            store: store.map(|store| store.name.clone()).unwrap_or_default(),
            scheme,
            bypass: keys.read("BYPASS", Kind::Bool, self.params.get(&param::CACHE_BYPASS)),
            output: keys.read("OUTPUT", Kind::Bool, false),
            encode_async: keys.choice("ENCODE", ENCODES, self.params.get(&param::ENCODE_ASYNC)),
            set_size: keys.read("SET_SIZE", size.info().kind, self.params.get(size)),
            set_failures: keys.read("SET_FAILURES", failures.info().kind, self.params.get(failures)),
            options: keys.options(KEYS),
            origin: line.origin.clone(),
        };
        let name = format!("CKPT={index}");
        let explicit = line.item("SET_FAILURES").is_some();
        self.check_failures(&mut redundancy, &name, explicit, &line.origin_of("SET_FAILURES"));
        self.check_room(&mut redundancy, store, &name, &line.origin);
        Some(redundancy)
    }

    /// The store that a line names, if it is described.
    fn store_of(&mut self, index: u32, line: &Line) -> Option<&'a Store> {
        let keys = Keys { line, problems: self.problems };
        let path = match keys.text("STORE") {
            Some(text) => normalise(Path::new(&text)),
            None => self.params.get(&param::CACHE_BASE),
        };
        let shown = path.display().to_string();
        let stores = self.stores;
        let Some(store) = stores.iter().find(|store| store.path == path) else {
            let known: Vec<_> = stores.iter().map(|store| store.path.display().to_string()).collect();
            let nearest = nearest(&shown, known.iter().map(String::as_str));
            let message = format!(
                "CKPT={index} names the store {}, which is not described; the stores are {}{}; add STORE={shown}",
                quote(&shown),
                known.join(", "),
                suggest(&nearest)
            );
            self.fatal.push(Problem::new(&line.origin_of("STORE"), message));
            return None;
        };
        if !store.enabled {
            let message = disabled(&format!("CKPT={index}"), &path);
            self.problems.push(Problem::new(&line.origin_of("STORE"), message));
        }
        Some(store)
    }

    /// The numbers have to be 0, 1, 2 and so on; in which order the lines stand does not matter.
    fn check_numbers(&mut self, numbers: &[u32]) {
        if (0..).zip(numbers).all(|(expected, found)| expected == *found) {
            return;
        }
        let found: Vec<_> = numbers.iter().map(ToString::to_string).collect();
        if let Some(line) = self.params.lines("CKPT").next() {
            let message = format!(
                "the CKPT descriptors are numbered {} and not from 0 without a gap; they are used in this order",
                found.join(", ")
            );
            self.problems.push(Problem::new(&line.origin, message));
        }
    }

    fn check_failures(&mut self, redundancy: &mut Redundancy, name: &str, explicit: bool, origin: &Origin) {
        let fixed = FIXED.contains(&redundancy.scheme.as_str());
        let chosen = redundancy.scheme == "RS" || (explicit && !fixed);
        if !chosen || redundancy.set_failures < redundancy.set_size {
            return;
        }
        let used = redundancy.set_size.saturating_sub(1);
        let (failures, set_size) = (redundancy.set_failures, redundancy.set_size);
        let message = format!(
            "{name} asks for SET_FAILURES={failures} with SET_SIZE={set_size}, but a set cannot survive the loss of all its \
             members; {used} is used"
        );
        self.problems.push(Problem::new(origin, message));
        redundancy.set_failures = used;
    }

    /// A dataset that can be kept nowhere goes to the prefix directory.
    fn check_room(
        &mut self,
        redundancy: &mut Redundancy,
        store: Option<&Store>,
        name: &str,
        origin: &Origin,
    ) {
        let Some(store) = store.filter(|store| store.count == 0) else { return };
        if !redundancy.bypass {
            let message = format!(
                "{name} keeps no dataset in {} (a count of 0) and does not bypass the cache either; bypass is used, set BYPASS=1 or \
                 a count of at least 1",
                store.path.display()
            );
            self.problems.push(Problem::new(origin, message));
            redundancy.bypass = true;
        }
    }
}

fn disabled(name: &str, store: &Path) -> String {
    let store = store.display();
    format!("{name} names the store {store}, which has ENABLED=0; enable the store or name another one")
}

/// The scheme of a line. It takes over that of `SCR_COPY_TYPE`, which is `FILE` here, so that it is the default.
fn scheme(keys: &mut Keys<'_>) -> String {
    let info = param::COPY_TYPE.info();
    let default = "XOR".to_string();
    let title = keys.line.title("TYPE");
    let (scheme, renamed) = scheme_name(&title, keys.read("TYPE", info.kind, default.clone()));
    renamed.into_iter().for_each(|cause| keys.warn_of("TYPE", cause));
    if scheme == param::FROM_LINES {
        keys.warn_of("TYPE", Cause::malformed(&title, &scheme, "the name of a scheme"));
        return default;
    }
    scheme
}
