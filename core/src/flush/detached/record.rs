//! The transfer record of a rank for a flush that continues without it: `detached.<token>.<rank>` in the control directory of
//! its node.
//!
//! A record names no program and no library. It names paths below the prefix directory only by [`FileName`].

use crate::cache::record::malformed_name;
use crate::flush::file_copy::FileCopy;
use crate::flush::{Options, SourceFile};
use scr_base::fs::{At, Durability, Files, FsError, Kind, Status};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use scr_prefix::{staging_file, FileName, Prefix, PrefixId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One rank's part of a flush.
#[derive(Debug, Clone)]
pub(crate) struct TransferRecord {
    /// The flush.
    pub(crate) token: String,
    /// The prefix directory, and its random id, which it keeps when it is renamed.
    pub(crate) prefix: PathBuf,
    pub(crate) prefix_id: Option<PrefixId>,
    pub(crate) rank: u32,
    /// The number of the node, which is that of its mark.
    pub(crate) node: u32,
    /// All ranks of the node that have a record of this flush.
    pub(crate) mates: Vec<u32>,
    /// The transport, the options it was made with, and its ticket.
    pub(crate) transport: String,
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

    fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("VERSION", VERSION);
        tree.set("TOKEN", &self.token);
        tree.set_bytes("PREFIX", self.prefix.as_os_str().as_bytes());
        self.prefix_id.iter().for_each(|id| tree.set("PREFIX_ID", id));
        tree.set("RANK", self.rank);
        tree.set("NODE", self.node);
        for mate in &self.mates {
            tree.entry("MATES", mate);
        }
        tree.set("TRANSPORT", &self.transport);
        tree.put("OPTIONS", without_programs(&self.transport_options));
        // A ticket may hold any bytes, and a tree none that are zero.
        tree.set("TICKET", self.ticket.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        tree.set("BLOCK", self.options.block_bytes);
        tree.set("CHECKSUMS", u8::from(self.options.checksums));
        tree.set("METADATA", u8::from(self.options.metadata));
        tree.set("OWNER", u8::from(self.options.owner));
        let (state, why) = match &self.state {
            TransferState::Copying => ("COPYING", None),
            TransferState::Arrived => ("ARRIVED", None),
            TransferState::Failed(why) => ("FAILED", Some(why)),
        };
        tree.set("STATE", state);
        for (key, times) in [("REPEATED", self.repeated), ("UNPOLLED", self.unpolled)] {
            if times > 0 {
                tree.set(key, times);
            }
        }
        tree.set_known("ERROR", why);
        for (place, copy) in self.copies.iter().enumerate() {
            *tree.entry("FILES", place) = copy_tree(copy);
        }
        tree
    }

    pub(crate) fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        let flag = |key: &str| Ok::<_, FieldError>(tree.require::<u8>(key)? != 0);
        let bytes = |key: &str| tree.value(key).ok_or_else(|| FieldError::Missing { key: key.to_owned() });
        let ticket = tree.require::<String>("TICKET")?;
        let token: String = tree.require("TOKEN")?;
        let prefix = PathBuf::from(OsStr::from_bytes(bytes("PREFIX")?));
        let copies = tree.get("FILES").into_iter().flat_map(KvTree::iter);
        let copies = copies.map(|(_, copy)| copy_of(&prefix, &token, copy)).collect::<Result<_, _>>()?;
        Ok(Self {
            token,
            prefix,
            prefix_id: tree.text("PREFIX_ID").and_then(PrefixId::parse),
            copies,
            rank: tree.require("RANK")?,
            node: tree.require("NODE")?,
            mates: tree.get("MATES").map(|mates| mates.keys_as().collect()).unwrap_or_default(),
            transport: tree.require("TRANSPORT")?,
            transport_options: tree.get("OPTIONS").cloned().unwrap_or_default(),
            ticket: from_hex(&ticket)
                .ok_or_else(|| FieldError::malformed("TICKET", ticket, "bytes in hexadecimal"))?,
            options: Options {
                block_bytes: tree.require("BLOCK")?,
                checksums: flag("CHECKSUMS")?,
                metadata: flag("METADATA")?,
                owner: flag("OWNER")?,
                ..Options::default()
            },
            repeated: tree.parse("REPEATED")?.unwrap_or(0),
            unpolled: tree.parse("UNPOLLED")?.unwrap_or(0),
            state: match tree.require::<String>("STATE")?.as_str() {
                "COPYING" => TransferState::Copying,
                "ARRIVED" => TransferState::Arrived,
                _ => TransferState::Failed(tree.text("ERROR").unwrap_or("no reason is recorded").to_owned()),
            },
        })
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
    let expect = |key: &str, expected: &'static str, wanted: &str| {
        let found = tree.require::<String>(key)?;
        match found == wanted {
            true => Ok(()),
            false => Err(FieldError::malformed(key, found, expected)),
        }
    };
    let record = expect("VERSION", "the number 2", VERSION)
        .and_then(|()| expect("TOKEN", "that of its name", token))
        .and_then(|()| expect("RANK", "that of its name", &rank.to_string()))
        .and_then(|()| TransferRecord::from_tree(&tree));
    record.map(Some).at("use", &path)
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

fn copy_tree(copy: &FileCopy) -> KvTree {
    let mut tree = KvTree::new();
    let file = &copy.file;
    tree.set_bytes("NAME", &file.name);
    tree.set_bytes("SOURCE", file.source.as_os_str().as_bytes());
    tree.set("SIZE", file.bytes);
    tree.set_known("CRC", file.crc);
    tree.set_known("FOUND", copy.crc);
    tree.set("MODE", file.mode);
    tree.set("MTIME", file.mtime.0);
    tree.set("MTIME_NSECS", file.mtime.1);
    if let Some(origin) = copy.origin {
        tree.set("ATIME", origin.atime.0);
        tree.set("ATIME_NSECS", origin.atime.1);
        tree.set("UID", origin.uid);
        tree.set("GID", origin.gid);
    }
    tree
}

fn copy_of(prefix: &Path, token: &str, tree: &KvTree) -> Result<FileCopy, FieldError> {
    let bytes = |key: &str| tree.value(key).ok_or_else(|| FieldError::Missing { key: key.to_owned() });
    let path = |key: &str| Ok::<_, FieldError>(PathBuf::from(OsStr::from_bytes(bytes(key)?)));
    let file = SourceFile {
        source: path("SOURCE")?,
        name: FileName::parse_listed(bytes("NAME")?).map_err(|error| malformed_name(&error))?,
        bytes: tree.require("SIZE")?,
        crc: tree.parse("CRC")?,
        mode: tree.require("MODE")?,
        mtime: (tree.require("MTIME")?, tree.require("MTIME_NSECS")?),
    };
    let origin = match tree.parse("ATIME")? {
        None => None,
        Some(seconds) => {
            let atime = (seconds, tree.require("ATIME_NSECS")?);
            let (uid, gid) = (tree.require("UID")?, tree.require("GID")?);
            let (len, mode, mtime) = (file.bytes, file.mode, file.mtime);
            let (ctime, identity, links) = (mtime, (0, 0), 1);
            Some(Status { kind: Kind::File, len, mode, uid, gid, atime, ctime, mtime, identity, links })
        }
    };
    let target = file.name.below(prefix);
    let staging = staging_file(&target, token);
    Ok(FileCopy { file, target, staging, crc: tree.parse("FOUND")?, origin, leads: true })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

const PREFIX: &str = "detached.";
/// The form of the record.
const VERSION: &str = "2";
/// Private to the owner (mode 0600).
const PRIVATE: u32 = 0o600;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use scr_base::fs::RealFiles;

    pub(crate) fn sample_tree() -> KvTree {
        record(1).to_tree()
    }

    fn record(rank: u32) -> TransferRecord {
        let file = SourceFile {
            source: "/ssd/a".into(),
            name: FileName::parse(b"ckpt/\xff").unwrap(),
            bytes: 7,
            crc: None,
            mode: 0o100_640,
            mtime: (5, 6),
        };
        let target = file.name.below("/pfs".as_ref());
        let staging = staging_file(&target, "3.17f.0a");
        TransferRecord {
            token: "3.17f.0a".to_owned(),
            prefix: "/pfs".into(),
            prefix_id: PrefixId::parse(&"0af1".repeat(8)),
            rank,
            node: 2,
            mates: vec![4, 5],
            transport: "AGENT".to_owned(),
            transport_options: KvTree::new(),
            ticket: b"agent\0\xffx".to_vec(),
            copies: vec![FileCopy { file, target, staging, crc: Some(9), origin: None, leads: true }],
            options: Options { block_bytes: 4096, checksums: true, metadata: true, ..Options::default() },
            state: TransferState::Failed("no\nspace".to_owned()),
            repeated: 2,
            unpolled: 1,
        }
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
        let trees: Vec<_> = found.iter().map(TransferRecord::to_tree).collect();
        assert_eq!(trees, [record(15).to_tree(), record(4).to_tree()]);
        assert_eq!((found[0].ticket.as_slice(), found[0].copies[0].crc), (&b"agent\0\xffx"[..], Some(9)));
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
        let mut tree = record(1).to_tree();
        tree.set("VERSION", 3);
        (&RealFiles as &dyn Files)
            .write_tree(&dir.path().join("detached.3.17f.0a.1"), &tree, PRIVATE, Durability::Unsynced)
            .unwrap();
        let (found, bad) = list(&RealFiles, dir.path()).unwrap();
        assert_eq!((found.len(), bad.len()), (0, 2));
        assert!(scr_base::describe(&bad[1]).contains("VERSION"), "{bad:?}");
    }

    #[test]
    fn known_checksums_are_not_sent_again() {
        let mut known = record(0);
        known.copies[0].file.crc = Some(9);
        assert!(new_sums(&[known]).is_empty());
        assert_eq!(new_sums(&[record(0)]).parse(b"ckpt/\xff"), Ok(Some(9)));
    }
}
