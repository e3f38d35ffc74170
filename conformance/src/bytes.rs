//! Bytes that files should have, and what usually went wrong where they have others.

/// As many bytes are looked for elsewhere: fewer may stand there by chance.
const RUN: usize = 16;

/// The first byte of a file that is wrong, and what is usually the mistake. `files` may have been mixed up, by their names.
pub(crate) fn first_wrong<B: AsRef<[u8]>>(
    found: &[u8],
    expected: &[u8],
    files: &[(String, B)],
) -> Option<(usize, String)> {
    let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    let from = |(name, bytes): &(String, B)| {
        let run = found.get(same..same + RUN)?;
        let byte = bytes.as_ref().windows(RUN).position(|bytes| bytes == run)?;
        Some(format!("there stands {name} from byte {byte} on, so offsets or files are mixed up"))
    };
    let why = match (&found[same..], &expected[same..]) {
        ([], []) => return None,
        ([], _) => format!("it ends there instead of at byte {}: the rest was not written", expected.len()),
        (_, []) => format!("it ends at byte {} instead of there, as an older file may", found.len()),
        (rest, wanted) if rest.iter().zip(wanted).all(|(byte, wanted)| *byte == 0 || byte == wanted) => {
            "zeros stand there, as where nothing was written".to_owned()
        }
        _ => files.iter().find_map(from).unwrap_or_else(|| {
            "no file has what stands there, so look at what computes, orders or keeps it".to_owned()
        }),
    };
    Some((same, why))
}

/// Bytes that differ from file to file and have no pattern.
pub(crate) fn content(file: usize, len: usize) -> Vec<u8> {
    let mut state = (file as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}
