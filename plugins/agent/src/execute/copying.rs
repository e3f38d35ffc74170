//! One transfer under way: the missing bytes of its files are copied, synced, and then recorded as written, with the checksum so
//! far.

use crate::transfer::Transfer;
use scr_copying::{copy_part, Buffer, Control, CopyError, How, Part, Written};
use std::time::{Duration, Instant};

/// One transfer under way.
pub(super) struct Copying<'a> {
    transfer: &'a mut Transfer,
    control: &'a Control,
    /// When the transfer file was written last.
    recorded: Instant,
    /// How many bytes of a large file are copied before it is synced and recorded.
    piece: u64,
}

impl<'a> Copying<'a> {
    pub(super) fn new(transfer: &'a mut Transfer, control: &'a Control) -> Self {
        Self { transfer, control, recorded: Instant::now(), piece: LEAST_PIECE }
    }

    pub(super) fn run(&mut self, buffer: &mut Buffer) -> Result<(), Failure> {
        self.record()?;
        let mut unsynced = Vec::new();
        for place in 0..self.transfer.files.len() {
            self.copy(place, buffer, &mut unsynced)?;
        }
        self.sync(&mut unsynced, buffer)
    }

    /// Copies what is missing of a file. Large ones go in pieces, small ones are synced several at a time.
    fn copy(
        &mut self,
        place: usize,
        buffer: &mut Buffer,
        unsynced: &mut Vec<(usize, u64, Written)>,
    ) -> Result<(), Failure> {
        let how = How::new(self.transfer.block_bytes, self.transfer.take_crc);
        let bytes = self.transfer.files[place].item.bytes;
        loop {
            let file = &mut self.transfer.files[place];
            if file.written > bytes || file.written > 0 && self.transfer.take_crc && file.crc.is_none() {
                file.written = 0;
            }
            let from = file.written;
            if from == bytes && bytes > 0 {
                return Ok(());
            }
            let to = from.saturating_add(self.piece).min(bytes);
            let began = Instant::now();
            let part = Part { from, crc: file.crc.unwrap_or(0), to };
            let written = match copy_part(&file.item, how, self.control, buffer, part) {
                // The bytes of an earlier agent are gone: begin again.
                Err(CopyError::WrongSize { path, .. }) if from > 0 && path == file.item.destination => {
                    file.written = 0;
                    continue;
                }
                other => other?,
            };
            unsynced.push((place, to, written));
            let young = self.recorded.elapsed() < BETWEEN_RECORDS;
            if to == bytes && young && unsynced.len() < MOST_UNSYNCED {
                return Ok(());
            }
            self.sync(unsynced, buffer)?;
            if to == bytes {
                return Ok(());
            }
            self.piece = next_piece(self.piece, began.elapsed());
        }
    }

    fn sync(
        &mut self,
        unsynced: &mut Vec<(usize, u64, Written)>,
        buffer: &mut Buffer,
    ) -> Result<(), Failure> {
        let how = How::new(self.transfer.block_bytes, self.transfer.take_crc);
        for (place, to, written) in unsynced.drain(..) {
            let file = &mut self.transfer.files[place];
            let part = Part { from: file.written, crc: file.crc.unwrap_or(0), to };
            let crc = written.sync(|| copy_part(&file.item, how, self.control, buffer, part))?;
            (file.written, file.crc) = (to, crc);
        }
        if self.recorded.elapsed() >= BETWEEN_RECORDS {
            self.record()?;
        }
        Ok(())
    }

    fn record(&mut self) -> Result<(), Failure> {
        self.recorded = Instant::now();
        match self.transfer.write() {
            Err(_) if !self.transfer.path.exists() => Err(Failure::Gone),
            // What is not recorded is copied again after a death, and nothing worse.
            _ => Ok(()),
        }
    }
}

/// The size of the next piece, as the last one took so long.
pub(super) fn next_piece(piece: u64, took: Duration) -> u64 {
    let next = if took < SOON { piece * 2 } else { piece / 2 };
    next.clamp(LEAST_PIECE, MOST_PIECE)
}

/// Why a transfer did not finish.
#[derive(Debug)]
pub(super) enum Failure {
    Stopped,
    Copy(CopyError),
    /// The transfer file is not there any more.
    Gone,
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Cancelled { .. } => Self::Stopped,
            error => Self::Copy(error),
        }
    }
}

/// A large file is synced, and recorded, in pieces between these sizes. If that is slow, a waiter
/// sees that something moves.
const LEAST_PIECE: u64 = 1 << 20;
const MOST_PIECE: u64 = 64 << 20;
/// A piece that takes less time may be larger.
const SOON: Duration = Duration::from_millis(500);
/// How many files are open before they are synced.
const MOST_UNSYNCED: usize = 32;
/// Bytes that were not recorded have to be copied again after a death, and nothing worse.
const BETWEEN_RECORDS: Duration = Duration::from_millis(50);
