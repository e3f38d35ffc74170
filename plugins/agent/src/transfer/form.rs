//! A transfer file as a tree.

use super::{FileProgress, Slots, Transfer};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::pace::Limits;
use scr_plugin_api::{CopyItem, KvTree, PluginError, PluginErrorKind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Transfer {
    pub(super) fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.child("FILES");
        for file in &self.files {
            let entry = tree.child("FILES").child(file.item.source.as_os_str().as_bytes());
            entry.set_bytes("DESTINATION", file.item.destination.as_os_str().as_bytes());
            entry.set("SIZE", file.item.bytes);
            entry.set("WRITTEN", file.written);
            entry.set_known("CRC", file.crc.map(|crc| format!("{crc:#x}")));
        }
        tree.set("TOKEN", &self.token);
        tree.set("BLOCK", self.block_bytes);
        tree.set("CHECKSUMS", u8::from(self.take_crc));
        tree.set("BW", self.limits.bytes_per_second);
        tree.set("PERCENT", self.limits.percent);
        tree.set("WIDTH", self.width);
        if let Some(slots) = &self.slots {
            tree.set_bytes("SLOTS_FOLDER", slots.folder.as_os_str().as_bytes());
            tree.set("SLOTS", slots.count);
        }
        tree.set("COMMAND", "RUN");
        tree.set("STATE", if self.running { "RUNNING" } else { "STOPPED" });
        match &self.outcome {
            None => (),
            Some(Ok(())) => tree.set("FLAG", "DONE"),
            Some(Err(error)) => {
                tree.set("FLAG", "FAILED");
                let kind = KINDS.iter().find(|(_, kind)| *kind == error.kind);
                tree.set("KIND", kind.map_or("IO", |(name, _)| name));
                tree.set("ERROR", &error.text);
            }
        }
        tree
    }

    pub(super) fn from_tree(path: &Path, tree: &KvTree) -> Result<Self, FieldError> {
        let files = tree.get("FILES").into_iter().flat_map(KvTree::iter);
        let outcome = match tree.text("FLAG") {
            Some("DONE") => Some(Ok(())),
            Some("FAILED") => {
                let kind = KINDS.iter().find(|(name, _)| tree.text("KIND") == Some(name));
                let kind = kind.map_or(PluginErrorKind::Io, |(_, kind)| *kind);
                let text = tree.text("ERROR").unwrap_or("no reason is recorded");
                Some(Err(PluginError::new(kind, text)))
            }
            _ => None,
        };
        Ok(Self {
            path: path.to_owned(),
            token: tree.require("TOKEN")?,
            files: files.map(|(source, entry)| file_of(source, entry)).collect::<Result<_, _>>()?,
            block_bytes: tree.require("BLOCK")?,
            take_crc: tree.require::<u8>("CHECKSUMS")? != 0,
            limits: Limits::from_options(tree)?,
            width: tree.parse("WIDTH")?.unwrap_or(0),
            slots: Slots::from_options(tree)?,
            running: tree.text("STATE") == Some("RUNNING"),
            outcome,
        })
    }
}

fn file_of(source: &[u8], entry: &KvTree) -> Result<FileProgress, FieldError> {
    let missing = || FieldError::Missing { key: "DESTINATION".to_owned() };
    let item = CopyItem {
        source: PathBuf::from(OsStr::from_bytes(source)),
        destination: entry.path("DESTINATION").ok_or_else(missing)?,
        bytes: entry.require("SIZE")?,
    };
    let crc = entry.text("CRC").and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    Ok(FileProgress { item, written: entry.require("WRITTEN")?, crc })
}

const KINDS: [(&str, PluginErrorKind); 4] = [
    ("CORRUPT", PluginErrorKind::Corrupt),
    ("REFUSED", PluginErrorKind::Refused),
    ("CANCELLED", PluginErrorKind::Cancelled),
    ("IO", PluginErrorKind::Io),
];
