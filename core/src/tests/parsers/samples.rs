//! Valid inputs of each parser, for tests to damage.

use super::Parser;
use crate::cache::filemap::{Entry, Journal};
use crate::cache::part::PartDir;
use crate::cache::record::tests::sample;
use scr_base::fs::{Files, RealFiles};
use scr_comm::Rank;
use scr_config::param::{AppConfig, Settings};
use scr_plugin_api::{KvTree, LogEntry};
use scr_prefix::PrefixFile;
use scr_test_kit::fixtures::{sample_contents, sample_flush, scratch_copy, JOBS};
use std::path::Path;

/// The first samples in the corpus of a parser.
pub(super) fn samples(parser: &Parser) -> Vec<Vec<u8>> {
    let record = |rank| sample(rank).to_tree();
    let mut trees = vec![KvTree::new()];
    match parser.name {
        "kvtree_file" => return of_c_scr(&|_| true, &|tree| tree.to_file_bytes()),
        "kvtree" => trees.push(record(1)),
        "filemap" => return vec![b"scrfmap\x02".to_vec(), journal()],
        "rank_record" => trees.extend([record(0), record(3)]),
        "transfer_record" => trees.push(crate::flush::detached::record::tests::sample_tree()),
        "pending_flush" => trees.push(sample_flush().to_tree()),
        "scavenged_map" => trees.push(crate::scavenge::filemap::tests::sample_tree()),
        "rank2file" => {
            let mut all = of_c_scr(&|name| name.starts_with("rank2file"), &KvTree::pack);
            all.push(sample_contents().to_tree().pack());
            return all;
        }
        "summary" => return of_c_scr(&|name| name == "summary.scr", &KvTree::pack),
        "index" => return of_c_scr(&|name| name == "index.scr", &KvTree::pack),
        "flush_file" => return of_c_scr(&|name| name == "flush.scr", &KvTree::pack),
        "small_files" => {
            let names = ["halt.scr", "nodes.scr"];
            let mut all = of_c_scr(&|name| names.contains(&name), &KvTree::pack);
            all.push(sample(0).dataset.to_tree().pack());
            return all;
        }
        "settings" => {
            let env = scr_test_kit::TestEnv::new(std::sync::Arc::new(RealFiles), "/nowhere").env();
            let (app, _) = AppConfig::from_text(CONFIG, Path::new("/p"));
            return vec![serde_json::to_vec(&Settings::load(&env, &app)).unwrap()];
        }
        "messages" => {
            let file = PrefixFile { name: "a/b".parse().unwrap(), bytes: Some(7), crc: Some(1) };
            let entry = LogEntry { name: "START".to_owned(), ..LogEntry::default() };
            return vec![serde_json::to_vec(&[file]).unwrap(), serde_json::to_vec(&entry).unwrap()];
        }
        "config" | "descriptors" => return vec![CONFIG.to_vec()],
        "request" => {
            return [&b"SCR_FLUSH=10"[..], b"CKPT=0 TYPE=XOR SET_SIZE=4", b"STORE=/a COUNT"]
                .map(<[u8]>::to_vec)
                .to_vec()
        }
        "manifest" => return vec![include_bytes!("../../../../etc/plugins.d/xor.toml").to_vec()],
        "library" => return Vec::new(),
        "log_line" => {
            let line = "2026-11-21T03:28:24: host=n0, jobid=5132, event=RUN_END, note=\"a \\\"b\\\"\", from=/a, b=c, dset=7, \
                        name=\"x\", secs=0.002028, bytes=12.000000, files=1, procs=4, nodes=2";
            return vec![line.as_bytes().to_vec()];
        }
        "event_log" => return vec![EVENTS.to_vec()],
        "file_name" => {
            return [&b"a/b.c"[..], b"./a//b", b"a/../b", b"/a", b".scr/x"].map(<[u8]>::to_vec).to_vec()
        }
        other => panic!("there are no samples for {other}"),
    }
    trees.iter().map(KvTree::pack).collect()
}

/// The files of C SCR with such names, as trees and then as `form` has them.
fn of_c_scr(is_wanted: &dyn Fn(&str) -> bool, form: &dyn Fn(&KvTree) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut all = vec![form(&KvTree::new())];
    for (job, _) in JOBS {
        let (_guard, prefix) = scratch_copy(job);
        let mut folders = vec![prefix.scr_dir()];
        while let Some(folder) = folders.pop() {
            for path in RealFiles.list(&folder).unwrap_or_default().iter().map(|name| folder.join(name)) {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
                match (&RealFiles as &dyn Files).read_tree(&path) {
                    Ok(Some(tree)) if is_wanted(&name) => all.push(form(&tree)),
                    Ok(_) => (),
                    Err(_) => folders.push(path),
                }
            }
        }
    }
    all
}

/// A filemap with an entry of each kind.
fn journal() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let part = PartDir::new(dir.path(), 7, Rank(1));
    let record = sample(1);
    let journal = Journal::begin_part(&RealFiles, &part, &Entry::Open(&record)).unwrap();
    let name = "a/b".parse().unwrap();
    for entry in [
        Entry::File(&name),
        Entry::Prepared(&record, &[sample(0)]),
        Entry::Complete,
        Entry::Refused,
        Entry::Arriving(&record),
    ] {
        journal.append(&RealFiles, &entry).unwrap();
    }
    (&RealFiles as &dyn Files).read_all(&part.filemap(), 1 << 20).unwrap()
}

/// A job with a failure, and another one at the same time.
const EVENTS: &[u8] = b"\
2026-11-21T02:28:20.000001Z: host=n0, jobid=7, event=RUN_START, note=\"run=1\"\n\
2026-11-21T02:28:21.000002Z: host=n0, jobid=7, run=1, user=\"a\", event=START, note=\"allocation ends at @1795300000\", procs=4, nodes=2\n\
2026-11-21T02:28:22.000003Z: host=n0, jobid=7, run=1, event=COMPUTE_START\n\
2026-11-21T02:28:23.000003Z: host=n9, jobid=7, run=2, event=START\n\
2026-11-21T02:28:32.000003Z: host=n0, jobid=7, run=1, event=COMPUTE_END, secs=10.000000\n\
2026-11-21T02:28:32.000004Z: host=n0, jobid=7, run=1, event=CHECKPOINT_START, dset=1\n\
2026-11-21T02:28:34.000004Z: host=n0, jobid=7, run=1, xfer=WRITE, from=/a, to=/a/1, dset=1, secs=2.0, bytes=9.0, files=4\n\
2026-11-21T02:28:34.000005Z: host=n0, jobid=7, run=1, event=CHECKPOINT_END, dset=1, secs=2.0\n\
2026-11-21T02:28:35.000005Z: host=n0, jobid=7, run=1, event=FLUSH_WAIT, secs=1.0\n\
2026-11-21T02:28:35.000006Z: host=n0, jobid=7, run=1, event=COMPUTE_START\n\
2026-11-21T02:28:50.000000Z: host=n0, jobid=7, event=RUN_END, note=\"run=1, status=9\"\n\
2026-11-21T02:28:55.000000Z: host=n0, jobid=7, run=3, event=START\n\
2026-11-21T02:28:56.000000Z: host=n0, jobid=7, run=3, event=COMPUTE_START\n\
2026-11-21T02:28:57.000000Z: host=n0, jobid=7, run=3, event=RESTART_START, dset=1\n\
2026-11-21T02:28:58.000000Z: host=n0, jobid=7, run=3, event=RESTART_SUCCESS, dset=1\n\
2026-11-21T02:29:08.000000Z: host=n0, jobid=7, run=3, event=HALT, note=\"SCR_FINALIZE_CALLED\"\n";

const CONFIG: &[u8] = b"# a comment\nSCR_FLUSH=10\nSCR_COPY_TYPE=FILE\nSTORE=/ssd COUNT=2 GROUP=NODE\n\
    GROUPS=host0 RACK=r1\nCKPT=0 INTERVAL=1 STORE=/ssd TYPE=XOR SET_SIZE=16\nCKPT=1 INTERVAL=4 TYPE=RS SET_FAILURES=2\n\
    SCR_PREFIX=\"/a b/$HOME\"\nSCR_CACHE_SIZE=many\n";
