//! Tests of the copy of one file: its bytes, its refusals, its messages.

use super::*;
use rustix::io::Errno;
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn item(&self, bytes: u64) -> CopyItem {
        CopyItem { source: self.0.path().join("in"), destination: self.0.path().join("out"), bytes }
    }

    /// An item whose source has these bytes.
    fn with(&self, bytes: &[u8]) -> CopyItem {
        let item = self.item(bytes.len() as u64);
        fs::write(&item.source, bytes).unwrap();
        item
    }
}

fn copy(item: &CopyItem, block: u64, crc: bool) -> Result<Option<u32>, CopyError> {
    copy_part(item, How::new(block, crc), &Control::default(), &mut Buffer::default(), Part::WHOLE)?
        .sync(|| unreachable!())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 31 + place / 251) as u8).collect()
}

#[test]
fn files_of_every_size_arrive_with_their_checksum() {
    for len in [0, 1, 4095, 4096, 4097, 65_536, 200_001] {
        for block in [0, 1, 4096, 10_000, u64::MAX] {
            let folder = Folder::new();
            let bytes = pattern(len);
            let item = folder.with(&bytes);
            assert_eq!(copy(&item, block, true).unwrap(), Some(crc32fast::hash(&bytes)));
            assert_eq!(fs::read(&item.destination).unwrap(), bytes);
            fs::remove_file(&item.destination).unwrap();
            assert_eq!(copy(&item, block, false).unwrap(), None);
            assert_eq!(fs::read(&item.destination).unwrap(), bytes);
        }
    }
}

#[test]
fn an_older_and_longer_destination_is_replaced() {
    let folder = Folder::new();
    let item = folder.with(b"new");
    fs::write(&item.destination, pattern(10_000)).unwrap();
    copy(&item, 4096, false).unwrap();
    assert_eq!(fs::read(&item.destination).unwrap(), b"new");
}

#[test]
fn holes_stay_holes_and_count_in_the_checksum() {
    const LEN: u64 = 64 << 20;
    for crc in [false, true] {
        for data_at in [vec![], vec![0], vec![5 << 20, 40 << 20], vec![LEN - 4096]] {
            let folder = Folder::new();
            let item = folder.item(LEN);
            let source = File::create(&item.source).unwrap();
            source.set_len(LEN).unwrap();
            for &place in &data_at {
                source.write_all_at(&pattern(4096), place).unwrap();
            }
            let found = copy(&item, 1 << 20, crc).unwrap();
            let bytes = fs::read(&item.source).unwrap();
            assert!(bytes == fs::read(&item.destination).unwrap(), "data at {data_at:?}");
            assert_eq!(found, crc.then(|| crc32fast::hash(&bytes)));
            let blocks = |path| fs::metadata(path).unwrap().blocks();
            if blocks(&item.source) * 512 < LEN {
                assert!(blocks(&item.destination) * 512 < LEN / 4, "data at {data_at:?}");
            }
        }
    }
}

/// As ZFS did for a while with what it had yet to store.
#[test]
fn data_that_the_file_system_takes_for_a_hole_is_copied() {
    for len in [1, 4096, 50_000] {
        let folder = Folder::new();
        let (item, control) = (folder.with(&pattern(len)), Control::default());
        let mut copier = Copier { has_holes: true, ..copier(&item, &control, None) };
        copier.run(Part::WHOLE, &mut Buffer::default()).unwrap();
        assert!(fs::read(&item.destination).unwrap() == pattern(len), "{len} bytes");
    }
}

#[test]
fn a_source_of_another_size_is_refused_and_reported() {
    let folder = Folder::new();
    for expected in [0, 4, 6, u64::MAX] {
        let item = CopyItem { bytes: expected, ..folder.with(b"12345") };
        let error = copy(&item, 0, true).unwrap_err();
        assert!(
            matches!(error, CopyError::WrongSize { expected: e, found: 5, .. } if e == expected),
            "{error}"
        );
        assert!(!item.destination.exists());
    }
}

#[test]
fn a_source_that_grows_or_shrinks_under_way_is_found_out() {
    for (len, found) in [(10_u64, 10), (90_000, 90_000)] {
        let folder = Folder::new();
        let item = folder.item(50_000);
        for way in [None, Some(in_kernel as InKernel)] {
            fs::write(&item.source, pattern(50_000)).unwrap();
            let control = Control::default();
            let mut copier = copier(&item, &control, way);
            OpenOptions::new().write(true).open(&item.source).unwrap().set_len(len).unwrap();
            let error = copier.run(Part::WHOLE, &mut Buffer::default()).unwrap_err();
            assert!(matches!(error, CopyError::WrongSize { found: f, .. } if f == found), "{error}");
        }
    }
}

/// A copy that has begun, and asks the kernel in this way.
fn copier<'a>(item: &'a CopyItem, control: &'a Control, way: Option<InKernel>) -> Copier<'a> {
    let source = open_source(item).unwrap();
    let destination = open_destination(item, &source, 0).unwrap();
    let checksum = way.is_none().then(Hasher::new);
    Copier {
        item,
        source,
        destination,
        control,
        block_bytes: 4096,
        checksum,
        has_holes: false,
        in_kernel: way,
        flushed: 0,
        counted: 0,
    }
}

/// File systems refuse in many ways, at once or in the middle, and some say that they have copied nothing.
#[test]
fn all_bytes_arrive_despite_partial_or_refused_kernel_copies() {
    let ways: [InKernel; 7] = [
        |_, _, _, _| Err(Errno::XDEV),
        |_, _, _, _| Err(Errno::INVAL),
        |_, _, _, _| Err(Errno::NOSYS),
        |_, _, _, _| Err(Errno::OPNOTSUPP),
        |_, _, _, _| Ok(0),
        // As many as it likes.
        |source, destination, offset, len| in_kernel(source, destination, offset, len.min(1000)),
        |source, destination, offset, len| match offset {
            0..20_000 => in_kernel(source, destination, offset, len),
            _ => Err(Errno::IO),
        },
    ];
    for (place, way) in ways.into_iter().enumerate() {
        let folder = Folder::new();
        let bytes = pattern(50_001);
        let (item, control) = (folder.with(&bytes), Control::default());
        copier(&item, &control, Some(way)).run(Part::WHOLE, &mut Buffer::default()).unwrap();
        assert!(fs::read(&item.destination).unwrap() == bytes, "way {place}");
        assert_eq!(control.done(), 50_001, "way {place}");
    }
}

/// A method that has refused once is not asked again for each block.
#[test]
fn the_kernel_copies_where_no_checksum_is_asked_and_is_asked_once_where_it_refuses() {
    thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });
    let folder = Folder::new();
    let item = folder.with(&pattern(50_000));
    let refusing: InKernel = |_, _, _, _| {
        ASKED.set(ASKED.get() + 1);
        Err(Errno::XDEV)
    };
    copier(&item, &Control::default(), Some(refusing)).run(Part::WHOLE, &mut Buffer::default()).unwrap();
    assert_eq!(ASKED.get(), 1);
    let used = |crc| {
        let mut buffer = Buffer::default();
        copy_part(&item, How::new(4096, crc), &Control::default(), &mut buffer, Part::WHOLE)
            .unwrap()
            .sync(|| unreachable!())
            .unwrap();
        format!("{buffer:?}")
    };
    assert_eq!(used(false), format!("{:?}", Buffer::default()), "nothing was read into memory");
    assert_ne!(used(true), format!("{:?}", Buffer::default()));
}

#[test]
fn a_source_that_is_no_file_is_refused_without_waiting() {
    let folder = Folder::new();
    let text = |item: &CopyItem| copy(item, 0, true).unwrap_err().to_string();
    assert!(text(&folder.item(0)).contains("is not there"));
    let item = CopyItem { source: folder.0.path().to_path_buf(), ..folder.item(0) };
    assert!(text(&item).ends_with("is not a regular file"));
    let item = CopyItem { source: "/dev/zero".into(), ..folder.item(0) };
    assert!(text(&item).ends_with("is not a regular file"));
    let fifo = folder.0.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let item = CopyItem { source: fifo.clone(), ..folder.item(0) };
    assert!(text(&item).ends_with("is not a regular file"));
    let item = CopyItem { destination: fifo, ..folder.with(b"x") };
    assert!(matches!(copy(&item, 0, true), Err(CopyError::Io { action: "creating", .. })));
}

#[test]
fn a_file_is_never_copied_onto_itself() {
    let folder = Folder::new();
    let item = folder.with(b"precious");
    fs::hard_link(&item.source, &item.destination).unwrap();
    assert!(copy(&item, 0, false).unwrap_err().to_string().contains("are the same file"));
    assert_eq!(fs::read(&item.source).unwrap(), b"precious");
}

#[test]
fn a_link_at_the_destination_is_not_followed() {
    let folder = Folder::new();
    let item = folder.with(b"bytes");
    let elsewhere = folder.0.path().join("elsewhere");
    fs::write(&elsewhere, b"untouched").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &item.destination).unwrap();
    assert!(copy(&item, 0, true).is_err());
    assert_eq!(fs::read(&elsewhere).unwrap(), b"untouched");
}

#[test]
fn a_link_at_the_source_is_not_followed() {
    let folder = Folder::new();
    let item = folder.with(b"bytes");
    let elsewhere = folder.0.path().join("elsewhere");
    fs::rename(&item.source, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &item.source).unwrap();
    assert!(copy(&item, 0, true).is_err());
    assert!(!item.destination.exists());
}

#[test]
fn a_full_destination_is_reported_with_path_offset_and_errno() {
    let folder = Folder::new();
    for crc in [false, true] {
        let item = CopyItem { destination: "/dev/full".into(), ..folder.with(&pattern(5000)) };
        let error = copy(&item, 4096, crc).unwrap_err().to_string();
        assert_eq!(error, "writing /dev/full failed at byte 0: No space left on device (os error 28)");
    }
}

#[test]
fn a_missing_folder_is_reported() {
    let folder = Folder::new();
    let item = CopyItem { destination: folder.0.path().join("no/such"), ..folder.with(b"1") };
    let error = copy(&item, 0, true).unwrap_err().to_string();
    assert!(error.starts_with("creating ") && error.contains("no/such") && error.ends_with("(os error 2)"));
}

#[test]
fn a_cancelled_copy_touches_nothing() {
    let folder = Folder::new();
    let item = folder.with(&pattern(9000));
    let control = Control::default();
    control.cancel();
    let error =
        copy_part(&item, How::new(4096, true), &control, &mut Buffer::default(), Part::WHOLE).unwrap_err();
    assert!(matches!(error, CopyError::Cancelled { offset: 0, .. }));
    assert!(!item.destination.exists());
}

#[test]
fn progress_counts_every_byte_once() {
    let folder = Folder::new();
    let item = folder.with(&pattern(70_000));
    let control = Control::default();
    let written =
        copy_part(&item, How::new(4096, false), &control, &mut Buffer::default(), Part::WHOLE).unwrap();
    assert_eq!(control.done(), 70_000);
    written.sync(|| unreachable!()).unwrap();
}

#[test]
fn a_file_copied_in_parts_is_the_same_and_so_is_its_checksum() {
    for take_crc in [true, false] {
        let folder = Folder::new();
        let bytes = pattern(200_001);
        let item = folder.with(&bytes);
        // Bytes that an interrupted copy has left after the safe part are not trusted.
        fs::write(&item.destination, vec![9; 300_000]).unwrap();
        let how = How::new(4096, take_crc);
        let mut crc = None;
        for (from, to) in [(0, 1), (1, 70_000), (70_000, u64::MAX)] {
            let part = Part { from, crc: crc.unwrap_or(0), to };
            crc = copy_part(&item, how, &Control::default(), &mut Buffer::default(), part)
                .unwrap()
                .sync(|| unreachable!())
                .unwrap();
            assert_eq!(fs::metadata(&item.destination).unwrap().len(), to.min(item.bytes));
        }
        assert_eq!(crc, take_crc.then(|| crc32fast::hash(&bytes)));
        assert_eq!(fs::read(&item.destination).unwrap(), bytes);
    }
}

#[test]
fn parts_may_begin_and_end_in_holes() {
    let folder = Folder::new();
    let item = folder.item(4 << 20);
    let file = fs::File::create(&item.source).unwrap();
    file.set_len(item.bytes).unwrap();
    file.write_all_at(b"data", 2 << 20).unwrap();
    let how = How::new(1 << 16, true);
    let mut crc = 0;
    for (from, to) in [(0, 1 << 20), (1 << 20, 3 << 20), (3 << 20, 4 << 20)] {
        let part = Part { from, crc, to };
        let written = copy_part(&item, how, &Control::default(), &mut Buffer::default(), part).unwrap();
        crc = written.sync(|| unreachable!()).unwrap().unwrap();
    }
    let bytes = fs::read(&item.source).unwrap();
    assert_eq!(crc, crc32fast::hash(&bytes));
    assert!(fs::read(&item.destination).unwrap() == bytes);
}

#[test]
fn a_part_does_not_go_on_where_its_beginning_is_gone() {
    let folder = Folder::new();
    let item = folder.with(&pattern(1000));
    fs::write(&item.destination, pattern(99)).unwrap();
    let part = Part { from: 100, crc: 0, to: 1000 };
    let error =
        copy_part(&item, How::new(0, true), &Control::default(), &mut Buffer::default(), part).unwrap_err();
    assert!(matches!(error, CopyError::WrongSize { expected: 100, found: 99, .. }), "{error}");
}

/// Threads copied into files of the application, or from them.
#[test]
fn a_file_of_the_application_that_has_the_number_of_one_that_is_copied_is_left_alone() {
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    for way in [None, Some(in_kernel as InKernel)] {
        for is_source in [false, true] {
            let folder = Folder::new();
            let (item, control) = (folder.with(&pattern(50_000)), Control::default());
            let theirs = folder.0.path().join("theirs");
            fs::write(&theirs, pattern(50_000)).unwrap();
            let mut copier = copier(&item, &control, way);
            let number =
                if is_source { &copier.source } else { &copier.destination }.get().unwrap().as_raw_fd();
            let of_application = OpenOptions::new().read(true).write(true).open(&theirs).unwrap();
            // SAFETY: it is forgotten before it could close the number twice.
            let mut given = unsafe { OwnedFd::from_raw_fd(number) };
            rustix::io::dup2(&of_application, &mut given).unwrap();
            let _ = given.into_raw_fd();
            let error = copier.run(Part::WHOLE, &mut Buffer::default()).unwrap_err().to_string();
            assert!(
                error.contains("was closed by somebody else, and its number stands for another file"),
                "{error}"
            );
            drop(copier);
            let open = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
            assert_eq!(open, fs::canonicalize(&theirs).unwrap(), "it is the application's to close");
            assert!(fs::read(&theirs).unwrap() == pattern(50_000));
            assert_eq!(fs::read(&item.destination).unwrap().len(), 0);
            // SAFETY: nothing else owns the number.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}
