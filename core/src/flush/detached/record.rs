//! The transfer record of a rank for a flush that continues without it: `detached.<token>.<rank>` in the control directory of
//! its node.
//!
//! A record names no program and no library. It names paths below the prefix directory only by [`FileName`].

use crate::flush::file_copy::FileCopy;
use crate::flush::Options;
use scr_base::fs::{At, Durability, Files, FsError};
use scr_config::param::as_os_str;
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use scr_prefix::{staging_file, Prefix, PrefixId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One rank's part of a flush.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TransferRecord {
    /// The flush.
    pub(crate) token: String,
    /// The prefix directory, and its random id, which it keeps when it is renamed.
    #[serde(with = "as_os_str")]
    pub(crate) prefix: PathBuf,
    pub(crate) prefix_id: Option<PrefixId>,
    pub(crate) rank: u32,
    /// The number of the node, which is that of its mark.
    pub(crate) node: u32,
    /// All ranks of the node that have a record of this flush.
    pub(crate) mates: Vec<u32>,
    /// The transport, the options it was made with, and its ticket.
    pub(crate) transport: String,
    #[serde(skip)]
    pub(crate) transport_options: KvTree,
    pub(crate) ticket: Vec<u8>,
    pub(crate) copies: Vec<FileCopy>,
    pub(crate) options: Options,
    pub(crate) state: TransferState,
    /// How many times the copies were begun again, after they had failed.
    pub(crate) repeated: u32,
    /// How many times the transport could not be asked since.
    pub(crate) unpolled: u32,
}

/// How far the transfers of a rank are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TransferState {
    /// The transport is at work, or its result was not checked yet.
    Copying,
    /// Every file has arrived, and is what was recorded.
    Arrived,
    /// One has not, and why.
    Failed(String),
}

impl TransferRecord {
    pub(crate) fn write(&self, files: &dyn Files, control: &Path) -> Result<(), FsError> {
        let path = path(control, &self.token, self.rank);
        files.write_tree(&path, &self.to_tree(), PRIVATE, Durability::Unsynced)
    }

    /// From here on the prefix directory is at this path.
    pub(super) fn belong_to(&mut self, prefix: &Prefix) {
        self.prefix = prefix.dir().to_owned();
        for copy in &mut self.copies {
            copy.target = prefix.file(&copy.file.name);
            copy.staging = staging_file(&copy.target, &self.token);
        }
    }

    /// Takes away the limits that spare an application. Returns whether there were any.
    pub(super) fn lift_limits(&mut self) -> bool {
        let options = &mut self.transport_options;
        let limits = ["BW", "PERCENT"].map(|key| (key, options.text(key).is_some_and(|text| text != "0")));
        let mut limits = limits.into_iter().filter(|(_, is_set)| *is_set);
        limits.by_ref().inspect(|(key, _)| options.set(key, "0")).count() > 0
    }

    fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("VERSION", VERSION);
        tree.put("OPTIONS", without_programs(&self.transport_options));
        tree.set_json("RECORD", self);
        tree
    }

    pub(crate) fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        let version: String = tree.require("VERSION")?;
        if version != VERSION {
            return Err(FieldError::malformed("VERSION", version, "that of this release, 3"));
        }
        let mut record: Self = tree.json("RECORD")?;
        record.transport_options = tree.get("OPTIONS").cloned().unwrap_or_default();
        record.belong_to(&Prefix::new(record.prefix.clone()));
        Ok(record)
    }
}

/// The checksums that were not known before, by name.
pub(crate) fn new_sums(records: &[TransferRecord]) -> KvTree {
    let mut sums = KvTree::new();
    for copy in records.iter().flat_map(|record| &record.copies) {
        if let (None, Some(crc)) = (copy.file.crc, copy.crc) {
            sums.set(&copy.file.name, crc);
        }
    }
    sums
}

/// The records in a control directory: token and rank.
pub(crate) fn names(files: &dyn Files, control: &Path) -> Result<Vec<(String, u32)>, FsError> {
    let name = |name: &PathBuf| {
        let (token, rank) = name.to_str()?.strip_prefix(PREFIX)?.rsplit_once('.')?;
        Some((token.to_owned(), rank.parse().ok()?))
    };
    Ok(files.list_if_there(control)?.iter().filter_map(name).collect())
}

/// All records in a control directory, and what is wrong with those that cannot be used.
pub(crate) fn list(
    files: &dyn Files,
    control: &Path,
) -> Result<(Vec<TransferRecord>, Vec<FsError>), FsError> {
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    for (token, rank) in names(files, control)? {
        match read(files, control, &token, rank) {
            Ok(record) => records.extend(record),
            Err(error) => bad.push(error),
        }
    }
    Ok((records, bad))
}

/// Removes a rank's record, where there is one.
pub(crate) fn remove(files: &dyn Files, control: &Path, token: &str, rank: u32) -> Result<(), FsError> {
    files.remove_if_there(&path(control, token, rank)).map(drop)
}

fn path(control: &Path, token: &str, rank: u32) -> PathBuf {
    control.join(format!("{PREFIX}{token}.{rank}"))
}

/// That of a rank; `None` where there is none any more, as the flush has ended.
pub(crate) fn read(
    files: &dyn Files,
    control: &Path,
    token: &str,
    rank: u32,
) -> Result<Option<TransferRecord>, FsError> {
    let path = path(control, token, rank);
    let Some(tree) = files.read_tree(&path)? else { return Ok(None) };
    let is_named_so = |record: &TransferRecord| record.token == token && record.rank == rank;
    let record = TransferRecord::from_tree(&tree).and_then(|record| match is_named_so(&record) {
        true => Ok(Some(record)),
        false => Err(FieldError::malformed("RECORD", record.token, "that of its name")),
    });
    record.at("use", &path)
}

/// A record is not trusted to name what is executed: its reader takes that from its own settings.
fn without_programs(options: &KvTree) -> KvTree {
    let mut options = options.clone();
    for key in EXECUTED {
        if options.has(key) {
            options.set(key, "");
        }
    }
    options
}

/// The options of transports that name what is executed.
pub(super) const EXECUTED: [&str; 2] = ["PROGRAM", "LIBRARY"];

const PREFIX: &str = "detached.";
/// The form of the record.
pub const VERSION: &str = "3";
/// Private to the owner (mode 0600).
const PRIVATE: u32 = 0o600;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cache::record::FileRecord;
    use crate::flush::SourceFile;
    use scr_base::fs::{Kind, RealFiles, Status};
    use scr_prefix::FileName;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    pub(crate) fn sample_tree() -> KvTree {
        record(1).to_tree()
    }

    fn record(rank: u32) -> TransferRecord {
        let name = FileName::parse(b"ckpt/\xff").unwrap();
        let file = FileRecord { name, bytes: 7, crc: None, mode: 0o100_640, mtime: (5, 6) };
        let file = SourceFile { source: OsStr::from_bytes(b"/ssd/\xff").into(), record: file };
        let (kind, identity, links) = (Kind::File, (7, 8), 1);
        let (atime, ctime, mtime) = ((1, 2), (3, 4), (5, 6));
        let origin = Some(Status {
            kind,
            len: 7,
            mode: 0o100_640,
            uid: 1,
            gid: 2,
            atime,
            ctime,
            mtime,
            identity,
            links,
        });
        let (target, staging) = (PathBuf::new(), PathBuf::new());
        let mut record = TransferRecord {
            token: "3.17f.0a".to_owned(),
            prefix: "/pfs".into(),
            prefix_id: PrefixId::parse(&"0af1".repeat(8)),
            rank,
            node: 2,
            mates: vec![4, 5],
            transport: "AGENT".to_owned(),
            transport_options: KvTree::new(),
            ticket: b"agent\0\xffx".to_vec(),
            copies: vec![FileCopy { file, target, staging, crc: Some(9), origin, leads: true }],
            options: Options { block_bytes: 4096, checksums: true, metadata: true, ..Options::default() },
            state: TransferState::Failed("no\nspace".to_owned()),
            repeated: 2,
            unpolled: 1,
        };
        record.belong_to(&Prefix::new("/pfs"));
        record
    }

    #[test]
    fn an_errand_comes_back_as_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        for rank in [4, 15] {
            record(rank).write(&RealFiles, dir.path()).unwrap();
        }
        std::fs::write(dir.path().join("detached.lock"), "").unwrap();
        let (found, bad) = list(&RealFiles, dir.path()).unwrap();
        assert!(bad.is_empty(), "{bad:?}");
        assert_eq!(format!("{found:?}"), format!("{:?}", [record(15), record(4)]));
        let named = |rank| ("3.17f.0a".to_owned(), rank);
        assert_eq!(names(&RealFiles, dir.path()).unwrap(), [named(15), named(4)]);
        let failed = TransferState::Failed("no\nspace".to_owned());
        let state = |rank| read(&RealFiles, dir.path(), "3.17f.0a", rank).unwrap().map(|record| record.state);
        assert_eq!((state(4), state(9)), (Some(failed), None));
    }

    #[test]
    fn a_record_of_another_kind_is_reported_and_skipped() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("detached.3.17f.0a.0"), "something").unwrap();
        // As earlier releases left it.
        let mut tree = KvTree::new();
        for (key, value) in [("VERSION", "2"), ("TOKEN", "3.17f.0a"), ("PREFIX", "/pfs"), ("RANK", "1")] {
            tree.set(key, value);
        }
        (&RealFiles as &dyn Files)
            .write_tree(&dir.path().join("detached.3.17f.0a.1"), &tree, PRIVATE, Durability::Unsynced)
            .unwrap();
        let (found, bad) = list(&RealFiles, dir.path()).unwrap();
        assert_eq!((found.len(), bad.len()), (0, 2));
        assert!(scr_base::describe(&bad[1]).contains("the field VERSION holds `2'"), "{bad:?}");
    }

    #[test]
    fn known_checksums_are_not_sent_again() {
        let mut known = record(0);
        known.copies[0].file.record.crc = Some(9);
        assert!(new_sums(&[known]).is_empty());
        assert_eq!(new_sums(&[record(0)]).parse(b"ckpt/\xff"), Ok(Some(9)));
    }
}
