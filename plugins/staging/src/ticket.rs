//! A ticket: all that another process needs to know of a job, guarded by a checksum.

use crate::Copies;

/// The copies as bytes that the host keeps.
pub(crate) fn write(transport: &str, copies: &Copies) -> Vec<u8> {
    let packed = serde_json::to_vec(&(transport, copies)).expect("it has only texts and numbers");
    let crc = crc32fast::hash(&packed).to_le_bytes();
    [&packed[..], &crc].concat()
}

/// The parts of a ticket of [`write`]; nothing if it is not that, or another transport's.
pub(crate) fn read(transport: &str, ticket: &[u8]) -> Option<Copies> {
    let (packed, crc) = ticket.split_last_chunk::<4>()?;
    if crc32fast::hash(packed).to_le_bytes() != *crc {
        return None;
    }
    let (of, copies): (String, Copies) = serde_json::from_slice(packed).ok()?;
    (of == transport).then_some(copies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StagedFile;
    use scr_plugin_api::CopyItem;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_ticket_comes_back_and_a_damaged_or_foreign_one_does_not() {
        let source = std::ffi::OsStr::from_bytes(b"/bb/\xff\n'").into();
        let item = CopyItem { source, destination: "/pfs/.a.part".into(), bytes: u64::MAX };
        let files = vec![StagedFile { item, mode: 0o640 }; 12];
        for copies in [
            Copies { token: "3.17f.0".to_owned(), handle: "17 2".to_owned(), files },
            Copies { token: "a".to_owned(), handle: String::new(), files: Vec::new() },
        ] {
            let ticket = write("bbapi", &copies);
            assert_eq!(read("bbapi", &ticket), Some(copies));
            assert_eq!(read("datawarp", &ticket), None);
            for place in 0..ticket.len() {
                assert_eq!(read("bbapi", &ticket[..place]), None);
                let mut damaged = ticket.clone();
                damaged[place] ^= 1;
                assert_eq!(read("bbapi", &damaged), None);
            }
        }
    }
}
