//! Reads one file and compares it with what is recorded of it.

use super::{Item, Read, Verdict};
use scr_base::fs::verify::{checksum_with, compare, open_whole, FileError};
use scr_base::fs::Files;

/// Compares length and checksum, as far as they are recorded.
pub(super) fn check(files: &dyn Files, wanted: Read, progress: &mut dyn FnMut(u64)) -> Item {
    let verdict = match look(files, &wanted, progress) {
        Ok(verdict) => verdict,
        Err(error) => Verdict::Wrong { found: error.to_string(), now: wanted.now },
    };
    let bytes = wanted.bytes.unwrap_or(0);
    Item { path: wanted.path, kind: wanted.kind, rank: Some(wanted.rank), bytes, verdict }
}

fn look(files: &dyn Files, wanted: &Read, progress: &mut dyn FnMut(u64)) -> Result<Verdict, FileError> {
    let (file, _) = open_whole(files, &wanted.path, wanted.bytes)?;
    let Some(expected) = wanted.crc else {
        let what = if wanted.bytes.is_some() { "only its length is recorded" } else { "nothing is recorded" };
        return Ok(Verdict::Unverified { why: format!("no checksum: {what}") });
    };
    let found = checksum_with(&*file, &wanted.path, BLOCK_BYTES, progress)?;
    compare(&wanted.path, Some(expected), Some(found)).map(|()| Verdict::Intact)
}

const BLOCK_BYTES: u64 = 1 << 20;
