//! Lines on standard output and error, which may be full: a pipe whose reader has stopped, or one that does not block.
//!
//! A line waits for its reader, but not for ever, and what was lost is said on the next line that finds room.

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use rustix::io::{write, Errno};
use scr_plugin_api::held;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use textwrap::{fill, Options, WordSeparator, WordSplitter};

/// One of the two streams.
struct Stream {
    /// How many lines were lost since the last one that was written.
    lost: Mutex<u64>,
}

static OUTPUT: Stream = Stream { lost: Mutex::new(0) };
static ERROR: Stream = Stream { lost: Mutex::new(0) };

/// How long a line waits for its reader.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes a line to standard error, as [`Output::error`](super::Output::error) of a process does. A long one is continued on lines
/// that begin with blanks.
pub fn to_stderr(line: &str) {
    ERROR.write(rustix::stdio::stderr(), &wrapped(line), PATIENCE);
}

/// The most characters of a line of a message.
const MOST_CHARACTERS: usize = 300;

fn wrapped(text: &str) -> String {
    let options = Options::new(MOST_CHARACTERS).subsequent_indent("    ").break_words(false);
    let options =
        options.word_separator(WordSeparator::AsciiSpace).word_splitter(WordSplitter::NoHyphenation);
    let lines: Vec<_> = text.split('\n').map(|line| fill(line, &options)).collect();
    lines.join("\n")
}

pub(super) fn to_stdout(line: &str) {
    OUTPUT.write(rustix::stdio::stdout(), line, PATIENCE);
}

/// Writes what a command was asked for to standard output, however long its reader takes.
///
/// # Errors
/// The system's, such as a reader that has gone.
pub fn print(text: &[u8]) -> io::Result<()> {
    Ok(write_all(rustix::stdio::stdout(), text, Duration::MAX)?)
}

impl Stream {
    /// One write for a line, so that those of many ranks stay whole. Where nobody can read it, it goes nowhere.
    fn write(&self, to: BorrowedFd<'_>, line: &str, patience: Duration) {
        let mut lost = held(&self.lost);
        let (text, patience) = match *lost {
            0 => (format!("{line}\n"), patience),
            // The reader has had its time. A part of the first one may be there.
            many => {
                (format!("\nscr: lines that nobody read before this one: {many}\n{line}\n"), Duration::ZERO)
            }
        };
        // After any other error there is no reader.
        *lost = if write_all(to, text.as_bytes(), patience) == Err(Errno::AGAIN) { *lost + 1 } else { 0 };
    }
}

/// Writes all of a text. It fails with `AGAIN` where there is no room for so long.
#[expect(clippy::disallowed_methods, reason = "a line has no clock of its environment")]
fn write_all(to: BorrowedFd<'_>, mut text: &[u8], patience: Duration) -> Result<(), Errno> {
    let began = Instant::now();
    while !text.is_empty() {
        let left = patience.saturating_sub(began.elapsed());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        // A stream that blocks is not written to before it has room.
        match poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLOUT)], timeout) {
            Ok(0) if left.is_zero() => return Err(Errno::AGAIN),
            Ok(0) | Err(nix::Error::EINTR) => continue,
            _ => (),
        }
        match write(to, text) {
            Ok(written) => text = text.get(written..).unwrap_or_default(),
            Err(Errno::AGAIN) if left.is_zero() => return Err(Errno::AGAIN),
            Err(Errno::AGAIN | Errno::INTR) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{fcntl_setfl, OFlags};
    use std::io::{pipe, PipeReader, PipeWriter, Read};

    fn full() -> (PipeReader, PipeWriter, usize) {
        let (reader, writer) = pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let mut filled = 0;
        while let Ok(written) = write(&writer, &[b'.'; 4096]) {
            filled += written;
        }
        (reader, writer, filled)
    }

    #[test]
    fn a_long_message_is_continued_on_lines_of_at_most_three_hundred_characters() {
        let path = format!("/pfs/{}", "deep/".repeat(70));
        let long = format!("SCR ERROR: rank 0 on n0: {}{path} `ckpt.1'", "words and-words ".repeat(40));
        let text = wrapped(&format!("  an indented line\n{long}\nlast"));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= 300 || line.trim() == path), "{text}");
        assert_eq!((lines[0], lines.last()), ("  an indented line", Some(&"last")));
        assert!(lines[2..lines.len() - 1].iter().all(|line| line.starts_with("    ")), "{text}");
        assert_eq!(text.replace("\n    ", " "), format!("  an indented line\n{long}\nlast"));
    }

    /// It was lost.
    #[test]
    fn a_line_waits_for_the_reader_of_a_full_pipe() {
        let (mut reader, writer, filled) = full();
        let stream = Stream { lost: Mutex::new(0) };
        let line = "x".repeat(10_000);
        std::thread::scope(|scope| {
            scope.spawn(|| stream.write(writer.as_fd(), &line, Duration::from_secs(60)));
            let mut text = vec![0; filled + line.len() + 1];
            reader.read_exact(&mut text).unwrap();
            assert_eq!(&text[filled..], format!("{line}\n").as_bytes());
        });
    }

    #[test]
    fn lines_that_nobody_reads_are_counted_and_keep_nobody_waiting() {
        let (mut reader, writer, filled) = full();
        let stream = Stream { lost: Mutex::new(0) };
        for line in ["one", "two"] {
            stream.write(writer.as_fd(), line, Duration::from_millis(1));
        }
        reader.read_exact(&mut vec![0; filled]).unwrap();
        stream.write(writer.as_fd(), "three", Duration::ZERO);
        stream.write(writer.as_fd(), "four", Duration::ZERO);
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "\nscr: lines that nobody read before this one: 2\nthree\nfour\n");
    }

    #[test]
    fn a_line_without_a_reader_goes_nowhere() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let stream = Stream { lost: Mutex::new(0) };
        stream.write(writer.as_fd(), "line", Duration::from_secs(60));
        assert_eq!(*stream.lost.lock().unwrap(), 0);
    }
}
