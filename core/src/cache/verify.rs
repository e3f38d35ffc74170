//! Reads a rank's part and compares it with its record.

use super::logical_file::LogicalFile;
use super::loss::Loss;
use super::part::PartPlace;
use super::record::RankRecord;
use scr_base::fs::{At, File, Files, FsError, How};
use scr_plugin_api::PluginError;

/// How a part differs from its record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// In its files.
    #[error(transparent)]
    Data(PartError),
    /// In its redundancy.
    #[error(transparent)]
    Redundancy(PartError),
}

impl Damage {
    /// Whether bytes were read, and were not those that were recorded.
    pub(crate) fn is_wrong_bytes(&self) -> bool {
        let (Self::Data(error) | Self::Redundancy(error)) = self;
        matches!(error, PartError::Checksum { .. })
    }

    /// As a loss: what is damaged is of no use.
    pub(crate) fn loss(&self) -> Loss {
        match self {
            Self::Data(error) => Loss::of_data(scr_base::describe(error)),
            Self::Redundancy(error) => Loss::of_redundancy(scr_base::describe(error)),
        }
    }
}

/// How a file of a part differs from its record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartError {
    /// A file cannot be opened.
    #[error(transparent)]
    Files(#[from] FsError),
    /// A file cannot be read to its recorded end.
    #[error(transparent)]
    Read(#[from] PluginError),
    /// The bytes of a file are not those that were recorded.
    #[error("{file} has CRC32 {found:#010x} where {recorded:#010x} was recorded")]
    Checksum {
        /// Which file.
        file: String,
        /// The checksum of its bytes.
        found: u32,
        /// The checksum in the record.
        recorded: u32,
    },
}

/// How much of a part is to be compared with its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Every byte.
    All,
    /// The files, and of the redundancy all or nothing: nothing only if nobody has read any byte of it.
    Used,
}

/// How much of a part equals its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verified {
    /// Every byte.
    All,
    /// The files. The redundancy has not been read.
    Files,
}

/// The files of a rank's part, wherever they lie.
#[derive(Clone, Copy)]
pub(crate) struct PartFiles<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) part: &'a dyn PartPlace,
    pub(crate) record: &'a RankRecord,
}

impl PartFiles<'_> {
    /// Reads all, with this many threads, and compares it with the record.
    pub(crate) fn verify(self, threads: u32, extent: Extent) -> Result<Verified, Damage> {
        let record = self.record;
        if record.files.iter().all(|file| file.crc.is_none()) && record.redundancy.is_none() {
            return Ok(Verified::All);
        }
        let data = self.open_data(Opened::new(), true).map_err(|error| Damage::Data(error.into()))?;
        // The data is compared first: without it, nobody asks for the redundancy.
        compare_data(record, &data, threads)?;
        match extent {
            Extent::Used if record.redundancy.is_some() => Ok(Verified::Files),
            _ => self.verify_redundancy(threads).map(|()| Verified::All),
        }
    }

    /// Reads the redundancy from end to end, with this many threads, and compares it with the record.
    pub(crate) fn verify_redundancy(self, threads: u32) -> Result<(), Damage> {
        let redundancy = self.open_redundancy().map_err(|error| Damage::Redundancy(error.into()))?;
        compare_redundancy(self.record, &redundancy, threads)
    }

    /// The files of the record as one logical file. Opens those that are not open yet.
    pub(crate) fn open_data(self, opened: Opened, summed: bool) -> Result<LogicalFile, FsError> {
        let opened = opened.into_iter().chain(std::iter::repeat_with(|| None));
        let open = self.record.files.iter().zip(opened).map(|(file, open)| {
            let path = self.part.file(self.record, file);
            let open = open.map_or_else(|| self.files.open(&path, How::Read), Ok).at("open", &path)?;
            Ok((path, open, file.bytes))
        });
        Ok(LogicalFile::new(open.collect::<Result<_, FsError>>()?, summed))
    }

    /// Opens the redundancy file of the record; a part without one has an empty logical file.
    pub(crate) fn open_redundancy(self) -> Result<LogicalFile, FsError> {
        let open = self.record.redundancy.map(|redundancy| {
            let path = self.part.redundancy();
            let open = self.files.open(&path, How::Read).at("open", &path)?;
            Ok((path, open, redundancy.bytes))
        });
        Ok(LogicalFile::new(open.transpose()?.into_iter().collect(), true))
    }
}

/// Compares the checksums of what passed through with the recorded ones. Reads what did not pass through, up to this extent.
/// So whatever a scheme has used of a file, all of that file is compared before anything counts that was made from it.
pub(crate) fn compare(
    record: &RankRecord,
    data: &LogicalFile,
    redundancy: &LogicalFile,
    threads: u32,
    extent: Extent,
) -> Result<Verified, Damage> {
    compare_data(record, data, threads)?;
    if extent == Extent::Used && record.redundancy.is_some() && !redundancy.is_used() {
        return Ok(Verified::Files);
    }
    compare_redundancy(record, redundancy, threads).map(|()| Verified::All)
}

/// The same for its files alone.
pub(crate) fn compare_data(record: &RankRecord, data: &LogicalFile, threads: u32) -> Result<(), Damage> {
    let recorded = record.files.iter().map(|file| (file.name.to_string(), file.crc));
    expect_sums(recorded, data, threads).map_err(Damage::Data)
}

fn compare_redundancy(record: &RankRecord, redundancy: &LogicalFile, threads: u32) -> Result<(), Damage> {
    let recorded = record.redundancy.map(|kept| ("the redundancy file".to_owned(), Some(kept.crc)));
    expect_sums(recorded.into_iter(), redundancy, threads).map_err(Damage::Redundancy)
}

/// The recorded checksums, each with the name of its file, must be those that were found.
fn expect_sums(
    recorded: impl Iterator<Item = (String, Option<u32>)>,
    found: &LogicalFile,
    threads: u32,
) -> Result<(), PartError> {
    for ((file, recorded), found) in recorded.zip(found.checksums(threads)?) {
        if let Some(recorded) = recorded.filter(|&recorded| found != Some(recorded)) {
            return Err(PartError::Checksum { file, found: found.unwrap_or_default(), recorded });
        }
    }
    Ok(())
}

/// A rank's files that are open already, by their place in its record.
pub(crate) type Opened = Vec<Option<Box<dyn File>>>;
