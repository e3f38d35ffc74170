//! Reads one file and compares it with what is recorded of it.

use super::{Item, Read, Verdict};
use scr_base::fs::verify::{compare, open_whole, FileError};
use scr_base::fs::{zeroed, At, File, Files};

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
    let found = sum(&*file, wanted, progress)?;
    compare(&wanted.path, Some(expected), Some(found)).map(|()| Verdict::Intact)
}

fn sum(file: &dyn File, wanted: &Read, progress: &mut dyn FnMut(u64)) -> Result<u32, FileError> {
    let mut hasher = crc32fast::Hasher::new();
    let mut block = zeroed(BLOCK).at("read", &wanted.path)?;
    let mut offset = 0;
    loop {
        let count = file.read_at(offset, &mut block).at("read", &wanted.path)?;
        if count == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(&block[..count]);
        offset += count as u64;
        progress(count as u64);
    }
}

const BLOCK: usize = 1 << 20;
