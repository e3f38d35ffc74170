//! The data and the holes of a file.

use rustix::fs::{seek, SeekFrom};
use rustix::io::Errno;
use std::fs::File;

/// Data or a hole at a place of a file, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Bytes to copy, up to here.
    Data(u64),
    /// A hole, up to here.
    Hole(u64),
}

/// The extent at `offset` of a file of `len` bytes. A file system that does not report holes has data everywhere.
pub(crate) fn extent_at(file: &File, offset: u64, len: u64) -> Extent {
    match seek(file, SeekFrom::Data(offset)) {
        // Nothing but a hole from here to the end.
        Err(Errno::NXIO) => Extent::Hole(len),
        Ok(start) if start > offset => Extent::Hole(start.min(len)),
        Ok(_) => match seek(file, SeekFrom::Hole(offset)) {
            Ok(end) if end > offset => Extent::Data(end.min(len)),
            _ => Extent::Data(len),
        },
        Err(_) => Extent::Data(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn extents_cover_the_file_without_a_gap() {
        let file = tempfile::tempfile().unwrap();
        let len = 10 << 20;
        file.set_len(len).unwrap();
        file.write_all_at(&[1; 4096], 3 << 20).unwrap();
        let mut offset = 0;
        while offset < len {
            let end = match extent_at(&file, offset, len) {
                Extent::Data(end) | Extent::Hole(end) => end,
            };
            assert!(end > offset && end <= len);
            offset = end;
        }
        assert!(matches!(extent_at(&file, 3 << 20, len), Extent::Data(_)));
    }

    #[test]
    fn a_file_that_reports_no_holes_has_data_everywhere() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(extent_at(&file, 0, 7), Extent::Data(7));
    }
}
