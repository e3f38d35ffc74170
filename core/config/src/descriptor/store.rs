//! Store descriptors: where datasets can be cached, and who shares the device.
//!
//! One per `STORE=` line, and one for `SCR_CACHE_BASE` if no line describes it.

use super::group::{Groups, NODE, WORLD};
use super::keys::Keys;
use crate::param::{self, normalise, Kind, Line, Origin, Params, Problem};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A class of storage.
#[derive(Debug, Clone, PartialEq)]
pub struct Store {
    /// Its path as it was set, the same on all ranks. Datasets record it.
    pub name: String,
    /// Its path on this rank: the base folder, below which each user has one.
    pub path: PathBuf,
    /// The group of processes that share the device.
    pub group: String,
    /// Most complete datasets to keep.
    pub count: u64,
    /// Whether it may be used.
    pub enabled: bool,
    /// Whether folders can be made in it.
    pub mkdir: bool,
    /// The transport that flushes from it.
    pub flush: String,
    /// Which nodes see its files.
    pub view: View,
    /// When an old dataset leaves.
    pub evict: Evict,
    /// Whether a flush packs the files of a node into one container.
    pub aggregate: bool,
    /// Expected capacity in bytes.
    pub size: Option<u64>,
    /// Options for the transport.
    pub options: BTreeMap<String, String>,
    /// The place of its description.
    pub origin: Origin,
}

/// The transport that flushes from a store.
#[derive(Debug, Clone, PartialEq)]
pub struct FlushBy {
    /// Its name.
    pub transport: String,
    /// Its options, as they were written.
    pub options: BTreeMap<String, String>,
    /// The place where they were written.
    pub origin: Origin,
}

impl FlushBy {
    /// Whether the line gives this option, in any case.
    pub fn gives(&self, name: &str) -> bool {
        self.options.keys().any(|given| given.eq_ignore_ascii_case(name))
    }
}

/// Which nodes see the files in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The processes of one group.
    Private,
    /// All processes: each node keeps its data in a folder of its own there.
    Global,
}

/// When an old dataset leaves a full store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evict {
    /// After the new one is complete where there is room for both, or else before.
    Auto,
    /// Before the new one is written.
    Before,
    /// After the new one is complete.
    After,
}

pub(super) const KEYS: &[&str] =
    &["GROUP", "COUNT", "ENABLED", "MKDIR", "FLUSH", "VIEW", "EVICT", "SIZE", "AGGREGATE"];
const VIEWS: &[(&str, View)] = &[("PRIVATE", View::Private), ("GLOBAL", View::Global)];
const EVICTS: &[(&str, Evict)] = &[("auto", Evict::Auto), ("before", Evict::Before), ("after", Evict::After)];
const COUNT: Kind = Kind::Count { least: 0, most: u64::MAX };

impl Store {
    /// A store without a line, at a path that a parameter names.
    fn implied(params: &Params, base: &param::Param<PathBuf>) -> Self {
        Self {
            name: plain_name(&params.shared(base)),
            path: params.get(base),
            group: NODE.to_string(),
            count: params.get(&param::CACHE_SIZE),
            enabled: true,
            mkdir: true,
            flush: params.get(&param::FLUSH_TYPE),
            view: View::Private,
            evict: Evict::Auto,
            aggregate: false,
            size: None,
            options: BTreeMap::new(),
            origin: params.origin(base).clone(),
        }
    }

    /// The transport that flushes from it.
    pub fn flush_by(&self) -> FlushBy {
        FlushBy { transport: self.flush.clone(), options: self.options.clone(), origin: self.origin.clone() }
    }

    /// Its view as it is written.
    pub fn view_name(&self) -> &'static str {
        word(VIEWS, self.view)
    }

    /// The store as a tree, as the debug lines show it.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("GROUP", &self.group);
        tree.set("COUNT", self.count);
        tree.set("ENABLED", u8::from(self.enabled));
        tree.set("MKDIR", u8::from(self.mkdir));
        tree.set("FLUSH", &self.flush);
        tree.set("VIEW", self.view_name());
        tree.set("EVICT", word(EVICTS, self.evict));
        if self.aggregate {
            tree.set("AGGREGATE", 1);
        }
        tree.set_known("SIZE", self.size);
        for (key, value) in &self.options {
            tree.set(key, value);
        }
        tree
    }
}

fn word<T: PartialEq + Copy>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, own)| *own == value).map_or("", |(word, _)| *word)
}

/// All stores. Problems that prevent a run are added to `fatal`. The store is kept anyway, for descriptors that name it.
pub(super) fn build(
    params: &Params,
    groups: &Groups,
    problems: &mut Vec<Problem>,
    fatal: &mut Vec<Problem>,
) -> Vec<Store> {
    let mut stores: Vec<Store> = Vec::new();
    for line in params.lines("STORE") {
        let mut keys = Keys { line, problems };
        if !line.value.starts_with('/') {
            keys.warn(format!("STORE={} is not an absolute path; the line is ignored", line.value));
            continue;
        }
        let path = normalise(Path::new(&line.value));
        if let Some(earlier) = stores.iter().find(|store| store.path == path) {
            keys.warn_twice(&format!("STORE={}", line.value), &earlier.origin);
            continue;
        }
        let store = described(params, line, path, problems);
        if store.enabled && !groups.has(&store.group) {
            let cause = groups.unknown(&line.title("GROUP"), &store.group);
            fatal.push(Problem { origin: line.origin_of("GROUP"), cause });
        }
        stores.push(store);
    }
    let implied = Store::implied(params, &param::CACHE_BASE);
    if stores.iter().all(|store| store.path != implied.path) {
        stores.push(implied);
    }
    stores
}

/// The store for the control directory.
pub(super) fn control(params: &Params) -> Store {
    Store::implied(params, &param::CNTL_BASE)
}

fn described(params: &Params, line: &Line, path: PathBuf, problems: &mut Vec<Problem>) -> Store {
    let mut keys = Keys { line, problems };
    let group = keys.text("GROUP").unwrap_or_else(|| NODE.to_string());
    let enabled = keys.read("ENABLED", Kind::Bool, true);
    let view = if group == WORLD { View::Global } else { View::Private };
    Store {
        name: plain_name(&line.shared),
        path,
        group,
        count: keys.read("COUNT", COUNT, params.get(&param::CACHE_SIZE)),
        enabled,
        mkdir: keys.read("MKDIR", Kind::Bool, true),
        flush: keys.read("FLUSH", param::FLUSH_TYPE.info().kind, params.get(&param::FLUSH_TYPE)),
        view: keys.choice("VIEW", VIEWS, view),
        evict: keys.choice("EVICT", EVICTS, Evict::Auto),
        aggregate: keys.read("AGGREGATE", Kind::Bool, false),
        size: keys.read("SIZE", Kind::Bytes { least: 1 }, None),
        options: keys.options(KEYS),
        origin: line.origin.clone(),
    }
}

/// The same name for `/ssd` and `/ssd/`. One with variables is left as it is.
fn plain_name(text: &str) -> String {
    if text.starts_with('/') && !text.contains('$') {
        return normalise(Path::new(text)).display().to_string();
    }
    text.to_string()
}
