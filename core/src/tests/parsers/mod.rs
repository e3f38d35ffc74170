//! Every parser of core that reads bytes from outside, for the property tests here and for the fuzz targets in `fuzz/`.
//!
//! For any bytes a parser returns a value or an error: it never panics, never loops over a count that it has read, and takes at
//! most `factor` times the memory of its input plus a constant.

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use crate::cache::filemap::{self, Filemap};
use crate::cache::record::RankRecord;
use crate::flush::detached::record::TransferRecord;
use crate::plugin::Manifest;
use crate::scavenge::filemap::ScavengedMap;
use crate::{log, plugin};
use scr_base::fs::RealFiles;
use scr_config::descriptor::Descriptors;
use scr_config::param::{AppConfig, Params, Request, Settings};
use scr_plugin_api::kvtree::MEMORY_FACTOR;
use scr_plugin_api::{KvTree, LogEntry, LogQuery};
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::{
    rank2file, Contents, DatasetDescriptor, FileName, FlushFile, Halt, Ids, Index, KnownEnd, LastRun, Nodes,
    Overwritten, Prefix, PrefixFile, Restarted, Summary,
};
use scr_test_kit::fixtures::ChangeIndex as _;
use scr_test_kit::TestEnv;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

/// A parser of bytes that come from outside.
pub struct Parser {
    /// Also the name of its fuzz target and its corpus.
    pub name: &'static str,
    /// Reads the bytes, and asks what was read for everything that its users ask.
    pub parse: fn(&[u8]),
    /// How many times the memory of its input it may take.
    pub factor: usize,
}

/// All of them.
pub const PARSERS: &[Parser] = &[
    // The tree itself, and what is made of it.
    Parser { name: "kvtree", parse: kvtree, factor: 2 * MEMORY_FACTOR },
    Parser { name: "kvtree_file", parse: kvtree_file, factor: 2 * MEMORY_FACTOR },
    Parser { name: "filemap", parse: filemap, factor: 3 * MEMORY_FACTOR },
    Parser { name: "rank_record", parse: rank_record, factor: 3 * MEMORY_FACTOR },
    Parser { name: "transfer_record", parse: transfer_record, factor: 3 * MEMORY_FACTOR },
    Parser { name: "pending_flush", parse: pending_flush, factor: 2 * MEMORY_FACTOR },
    Parser { name: "scavenged_map", parse: scavenged_map, factor: 3 * MEMORY_FACTOR },
    Parser { name: "rank2file", parse: rank2file, factor: 3 * MEMORY_FACTOR },
    Parser { name: "summary", parse: summary, factor: 2 * MEMORY_FACTOR },
    Parser { name: "index", parse: index, factor: 3 * MEMORY_FACTOR },
    Parser { name: "flush_file", parse: flush_file, factor: 3 * MEMORY_FACTOR },
    Parser { name: "small_files", parse: small_files, factor: 2 * MEMORY_FACTOR },
    Parser { name: "settings", parse: settings, factor: 4 * MEMORY_FACTOR },
    Parser { name: "messages", parse: messages, factor: 3 * MEMORY_FACTOR },
    Parser { name: "config", parse: config, factor: 64 },
    Parser { name: "request", parse: request, factor: 64 },
    Parser { name: "descriptors", parse: descriptors, factor: 128 },
    Parser { name: "manifest", parse: manifest, factor: 256 },
    Parser { name: "library", parse: library, factor: 1 },
    Parser { name: "log_line", parse: log_line, factor: 32 },
    Parser { name: "event_log", parse: event_log, factor: 256 },
    Parser { name: "file_name", parse: file_name, factor: 8 },
];

fn tree(bytes: &[u8]) -> KvTree {
    KvTree::unpack(bytes).unwrap_or_default()
}

fn kvtree(bytes: &[u8]) {
    if let Ok(tree) = KvTree::unpack(bytes) {
        assert_eq!(tree.pack(), bytes);
    }
}

fn kvtree_file(bytes: &[u8]) {
    black_box(KvTree::from_file_bytes(bytes)).ok();
    black_box(KvTree::from_file_prefix(bytes)).ok();
}

fn filemap(bytes: &[u8]) {
    let map = Filemap::parse(bytes);
    assert!(map.valid_len <= bytes.len() as u64);
    black_box(filemap::as_tree(&map));
}

fn rank_record(bytes: &[u8]) {
    if let Ok(record) = RankRecord::from_tree(&tree(bytes)) {
        black_box((record.label(), record.data_bytes()));
        black_box(record.members.first().map(|&member| record.member_name(member)));
        assert_eq!(RankRecord::from_tree(&record.to_tree()), Ok(record));
    }
}

fn transfer_record(bytes: &[u8]) {
    black_box(TransferRecord::from_tree(&tree(bytes))).ok();
}

fn pending_flush(bytes: &[u8]) {
    black_box(PendingFlush::from_tree(&tree(bytes))).ok();
}

fn scavenged_map(bytes: &[u8]) {
    black_box(ScavengedMap::from_tree(&tree(bytes))).ok();
}

/// As a map and as a leaf: which one it is, is only known after reading it.
fn rank2file(bytes: &[u8]) {
    let tree = tree(bytes);
    black_box(rank2file::parts_in(&tree, Path::new("/p/rank2file"))).ok();
    black_box(rank2file::lists_in(&tree, Path::new("/p/rank2file"), 1 << 20)).ok();
    black_box(Contents::parse(&tree, 1 << 20, Path::new("/p/container"))).ok();
}

fn summary(bytes: &[u8]) {
    black_box(Summary::from_tree(&tree(bytes), Path::new("/p/summary.scr"))).ok();
}

fn index(bytes: &[u8]) {
    let Ok(mut index) = Index::from_tree(tree(bytes), Path::new("/p/index.scr")) else { return };
    let entries = index.entries();
    black_box((index.candidates(), index.highest_id(), index.current()));
    if let Some(entry) = entries.first() {
        assert_eq!(index.entry(entry.id).as_ref(), Some(entry));
        index.record(
            &DatasetDescriptor { id: entry.id, name: entry.name.clone(), ..Default::default() },
            true,
        );
        index.drop_name(&entry.name);
    }
}

fn flush_file(bytes: &[u8]) {
    let flush = FlushFile::of_tree(tree(bytes));
    black_box((flush.entries(), flush.highest_id()));
}

/// `halt.scr`, `nodes.scr`, `current.scr`, and a dataset's descriptor.
fn small_files(bytes: &[u8]) {
    let tree = tree(bytes);
    if let Ok(halt) = Halt::from_tree(&tree) {
        let end = |time| KnownEnd { job_id: "1", time: Some(time) };
        black_box((halt.reason(i64::MAX, end(i64::MIN)), halt.reason(i64::MIN, end(i64::MAX))));
        black_box((halt.due(i64::MAX, end(i64::MIN)), halt.due(i64::MIN, end(i64::MAX))));
    }
    black_box(LastRun::from_tree(&tree));
    black_box(Nodes::from_tree(&tree, Path::new("/p"))).ok();
    black_box(Restarted::from_tree(&tree, Path::new("/p"))).ok();
    black_box(Overwritten::from_tree(&tree)).ok();
    black_box(DatasetDescriptor::from_tree(&tree)).ok();
    black_box(Ids::of_tree(tree.clone(), Path::new("/p"))).ok();
}

fn settings(bytes: &[u8]) {
    black_box(serde_json::from_slice::<Settings>(bytes)).ok();
}

/// Messages between ranks, and what a log sink is given and gives.
fn messages(bytes: &[u8]) {
    scr_comm::parse_messages(bytes);
    black_box(serde_json::from_slice::<Vec<PrefixFile>>(bytes)).ok();
    black_box(serde_json::from_slice::<LogEntry>(bytes)).ok();
    black_box(serde_json::from_slice::<LogQuery>(bytes)).ok();
}

fn config(bytes: &[u8]) {
    black_box(AppConfig::from_text(bytes, Path::new("/p/.scrconf")));
}

fn request(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        black_box(Request::parse(text)).ok();
        black_box(AppConfig::default().apply(text)).ok();
    }
}

fn descriptors(bytes: &[u8]) {
    let env = TestEnv::new(Arc::new(RealFiles), "/nowhere").env();
    let (app, _) = AppConfig::from_text(bytes, Path::new("/p/.scrconf"));
    let (params, mut problems) = Params::resolve(&Settings::load(&env, &app), &env);
    black_box(Descriptors::build(&params, &mut problems)).ok();
}

fn manifest(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        black_box(Manifest::parse(Path::new("/p/x.toml"), text)).ok();
    }
}

fn library(bytes: &[u8]) {
    black_box(plugin::elf::check(bytes)).ok();
}

fn log_line(bytes: &[u8]) {
    black_box(log::parse(&String::from_utf8_lossy(bytes))).ok();
}

/// The times of each job add up, whatever a log holds.
fn event_log(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let entries = text.lines().filter_map(|line| log::parse(line).ok());
    for (figures, history) in log::jobs(entries.collect()) {
        let times: u64 = log::Class::ALL.iter().map(|class| figures.time(*class)).sum();
        assert_eq!(times, figures.elapsed());
        let segments: u64 = history.segments.iter().map(|part| part.until - part.from).sum();
        assert_eq!(segments, figures.elapsed());
        black_box(figures.block());
    }
}

fn file_name(bytes: &[u8]) {
    for name in [FileName::parse(bytes), FileName::shortened(bytes)].into_iter().flatten() {
        let path = Prefix::new("/p").file(&name);
        assert!(path.starts_with("/p") && path != Path::new("/p"));
        assert!(path.components().all(|part| part != std::path::Component::ParentDir));
    }
}
