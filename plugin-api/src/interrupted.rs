//! Calls that a signal interrupts before they have done anything. The standard library repeats them for ever.

use std::io::{self, ErrorKind};

/// Repeats a call that a signal has interrupted. A file system that gives this answer every time keeps nobody waiting for ever.
///
/// # Errors
/// Those of the call, and that it was interrupted ten thousand times.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_interrupted =
        |answer: &io::Result<T>| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted);
    (0..MOST)
        .map(|_| call())
        .find(|answer| !is_interrupted(answer))
        .unwrap_or(Err(ErrorKind::Interrupted.into()))
}

const MOST: u32 = 10_000;

/// Writes all bytes. `write` gets those that are left, with the number of those before them, and writes one or more.
///
/// # Errors
/// Those of `write`, and that it has written nothing.
pub fn write_all(bytes: &[u8], mut write: impl FnMut(&[u8], u64) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match uninterrupted(|| write(rest, done as u64))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => done += count,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repeated_after_a_signal_and_not_for_ever() {
        let interrupted = || Err(ErrorKind::Interrupted.into());
        let mut answers = vec![Ok(7), interrupted(), interrupted()];
        assert_eq!(uninterrupted(|| answers.pop().unwrap()).unwrap(), 7);
        let last = |kind: ErrorKind| uninterrupted(|| io::Result::<()>::Err(kind.into())).unwrap_err().kind();
        assert_eq!(last(ErrorKind::StorageFull), ErrorKind::StorageFull);
        assert_eq!(last(ErrorKind::Interrupted), ErrorKind::Interrupted);
    }

    #[test]
    fn what_is_written_in_parts_is_written_once() {
        let mut written: Vec<u8> = Vec::new();
        let mut write = |rest: &[u8], done: u64| {
            assert_eq!(done, written.len() as u64);
            written.extend(rest.iter().take(3));
            Ok(rest.len().min(3))
        };
        write_all(b"seven b", &mut write).unwrap();
        assert_eq!(written, b"seven b");
        assert_eq!(write_all(b"x", |_, _| Ok(0)).unwrap_err().kind(), ErrorKind::WriteZero);
    }
}
