//! Helpers of the tests of this folder: a file system of a few texts, and a world on it.

use scr_base::fs::{File, Files, How, Kind, Space, Status};
use scr_test_kit::TestEnv;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that can be read and nothing else. One that holds `(folder)` is a folder.
pub(crate) struct Texts {
    files: BTreeMap<PathBuf, Vec<u8>>,
    uid: u32,
    /// Permission bits that all of them have besides the usual ones.
    mode: u32,
}

struct Text(Vec<u8>, Status);

/// A world in `/pfs/run1` without files.
pub(crate) fn world() -> TestEnv {
    world_of(&[])
}

/// A world in `/pfs/run1`, installed in `/opt/scr`, with these files.
pub(crate) fn world_of(files: &[(&str, &str)]) -> TestEnv {
    world_of_user(0, 0, files)
}

/// The same, where all files and folders belong to this user and have these permission bits besides the usual ones.
pub(crate) fn world_of_user(uid: u32, mode: u32, files: &[(&str, &str)]) -> TestEnv {
    let files = files.iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec())).collect();
    TestEnv::new(Arc::new(Texts { files, uid, mode }), "/pfs/run1").with_install_dir("/opt/scr")
}

fn status(len: usize) -> Status {
    Status {
        kind: Kind::File,
        len: len as u64,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        atime: (0, 0),
        ctime: (0, 0),
        mtime: (0, 0),
        identity: (0, 0),
        links: 1,
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Texts {
    fn text(&self, path: &Path) -> io::Result<&Vec<u8>> {
        self.files.get(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Texts {
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        assert!(matches!(how, How::Read | How::ReadNoLink));
        Ok(Box::new(Text(self.text(path)?.clone(), Files::status(self, path)?)))
    }
    fn status(&self, path: &Path) -> io::Result<Status> {
        if self.files.keys().any(|file| file != path && file.starts_with(path)) {
            return Ok(Status { kind: Kind::Dir, uid: self.uid, mode: 0o40_755 | self.mode, ..status(0) });
        }
        let text = self.text(path)?;
        let kind = if text == b"(folder)" { Kind::Dir } else { Kind::File };
        Ok(Status { kind, uid: self.uid, mode: 0o100_644 | self.mode, ..status(text.len()) })
    }
    fn make_dir(&self, _: &Path, _: u32) -> io::Result<()> {
        unsupported()
    }
    fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        unsupported()
    }
    fn remove_file(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn space(&self, _: &Path) -> io::Result<Space> {
        unsupported()
    }
}

impl File for Text {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.0[usize::try_from(offset).unwrap().min(self.0.len())..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn status(&self) -> io::Result<Status> {
        Ok(self.1)
    }
}
