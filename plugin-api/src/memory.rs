//! Memory for large buffers, which a limit of the process may not allow: an error then, and not the end of the application.

use std::io;

/// A buffer of zeros.
///
/// # Errors
/// The process gets no memory for it.
pub fn zeroed(bytes: usize) -> io::Result<Vec<u8>> {
    let mut probe = Vec::new();
    reserve(&mut probe, bytes)?;
    // The compiler must not leave out what looks unused.
    drop(std::hint::black_box(probe));
    // `vec!` would end the process if there were no memory. The system clears the pages of this one only once they are used, so a
    // large block costs nothing for a small file.
    Ok(vec![0; bytes])
}

/// Makes a buffer as long as this, with zeros where it gets longer.
///
/// # Errors
/// The process gets no memory for it; the buffer is as it was.
pub fn grow(buffer: &mut Vec<u8>, bytes: usize) -> io::Result<()> {
    reserve(buffer, bytes)?;
    buffer.resize(bytes, 0);
    Ok(())
}

fn reserve(buffer: &mut Vec<u8>, bytes: usize) -> io::Result<()> {
    let more = bytes.saturating_sub(buffer.len());
    let reserved = buffer.try_reserve_exact(more);
    reserved.map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, NoMemory { bytes }))
}

#[derive(Debug, thiserror::Error)]
#[error("this process gets no memory for {bytes} bytes; its limit (ulimit -v), or the memory of the node, is used up")]
struct NoMemory {
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_no_memory_is_left_for_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        let mut buffer = vec![1, 2];
        grow(&mut buffer, 3).unwrap();
        assert_eq!(buffer, [1, 2, 0]);
        let error = grow(&mut buffer, usize::MAX >> 2).unwrap_err();
        assert!(
            error.to_string().starts_with("this process gets no memory for ") && buffer.len() == 3,
            "{error}"
        );
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }
}
