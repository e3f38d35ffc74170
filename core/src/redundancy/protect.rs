//! Protecting a dataset: every set computes its redundancy, and neighbours keep each other's records.

use super::bytes::LogicalFile;
use super::host_set::{HostSet, Shape};
use super::neighbours;
use super::place::PartPlace;
use super::sets::in_set;
use crate::cache::kept_open::KeptOpen;
use crate::cache::part::PartDir;
use crate::cache::record::{RankRecord, RedundancyRecord};
use crate::comm::set::SetComm;
use crate::comm::Comm;
use crate::fs::{Files, How};
use crate::message::Reporter;
use scr_plugin_api::{ReceiveFrom, Scheme, SendTo, SetShape};

/// What a rank needs to take part in protecting a dataset.
pub(crate) struct Protecting<'a> {
    pub(crate) comm: &'a dyn Comm,
    pub(crate) files: &'a dyn Files,
    pub(crate) report: &'a Reporter,
    pub(crate) scheme: &'a dyn Scheme,
    /// Processors for this rank.
    pub(crate) processors: u32,
    /// Bytes of a message at most: `SCR_MPI_BUF_SIZE`.
    pub(crate) message_bytes: u64,
    /// Takes checksums of the data even where the scheme does not read it.
    pub(crate) always_sum: bool,
    /// Redundancy files of datasets before, one of which may be written over.
    pub(crate) open: &'a KeptOpen,
}

impl Protecting<'_> {
    /// Computes the redundancy of `record`'s set, fills in the checksums and the redundancy file's record, and
    /// gives the records to keep for neighbours. Called on all members of the set at once; the error of one is the error of
    /// all.
    pub(crate) fn run(
        &self,
        part: &PartDir,
        record: &mut RankRecord,
        ready: Result<(), String>,
    ) -> Result<Vec<RankRecord>, String> {
        let members = record.members.clone();
        in_set(self.comm, &members, |set| ready.and_then(|()| self.within(set, part, record)))
    }

    fn within(
        &self,
        set: &SetComm<'_>,
        part: &PartDir,
        record: &mut RankRecord,
    ) -> Result<Vec<RankRecord>, String> {
        let survives = self.scheme.losses_survived(set.size()).map_err(|error| error.to_string())?;
        if record.protection.bypass {
            self.sum_in_place(part, record)?;
        } else {
            self.encode(set, part, record)?;
        }
        neighbours::exchange(set, record, survives).map_err(|error| error.to_string())
    }

    fn encode(&self, set: &SetComm<'_>, part: &PartDir, record: &mut RankRecord) -> Result<(), String> {
        let own = record.data_bytes();
        let shape = Shape {
            dataset: record.dataset.id,
            members: record.members.clone(),
            data_lens: exchange_lens(set, own)?,
            lost: vec![false; record.members.len()],
        };
        let wanted = SetShape { rank: set.member(), data_lens: &shape.data_lens };
        let length = self.scheme.redundancy_len(&wanted).map_err(|error| error.to_string())?;
        let host = HostSet {
            data: self.open_data(part, record, length > 0 || self.always_sum)?,
            redundancy: create_redundancy(self.files, self.open, part, length)?,
            shape: &shape,
            comm: set,
            report: self.report,
            processors: self.processors,
            message_bytes: self.message_bytes,
        };
        self.scheme.protect(&host).map_err(|error| error.to_string())?;
        let sums = host.data.checksums().map_err(|error| error.to_string())?;
        for (file, sum) in record.files.iter_mut().zip(sums) {
            file.crc = sum;
        }
        record.redundancy = redundancy_record(&host.redundancy, length)?;
        host.redundancy.into_files().for_each(|file| self.open.keep(file));
        Ok(())
    }

    /// In bypass mode no scheme reads the files: checksums are taken only where they are asked for.
    fn sum_in_place(&self, part: &PartDir, record: &mut RankRecord) -> Result<(), String> {
        if self.always_sum {
            let sums = self.open_data(part, record, true)?.checksums().map_err(|error| error.to_string())?;
            record.files.iter_mut().zip(sums).for_each(|(file, sum)| file.crc = sum);
        }
        Ok(())
    }

    fn open_data(&self, part: &PartDir, record: &RankRecord, summed: bool) -> Result<LogicalFile, String> {
        open_files(self.files, part, record, How::Read, summed)
    }
}

/// Opens the files of a record as one logical file, wherever they lie.
pub(crate) fn open_files(
    files: &dyn Files,
    part: &dyn PartPlace,
    record: &RankRecord,
    how: How,
    summed: bool,
) -> Result<LogicalFile, String> {
    let mut open = Vec::with_capacity(record.files.len());
    for file in &record.files {
        let path = part.file(record, file);
        let handle =
            files.open(&path, how).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        open.push((path, handle, file.bytes));
    }
    Ok(LogicalFile::new(open, summed))
}

/// Creates a redundancy file; a scheme that keeps none has none.
fn create_redundancy(
    files: &dyn Files,
    kept: &KeptOpen,
    part: &PartDir,
    length: u64,
) -> Result<LogicalFile, String> {
    let mut open = Vec::new();
    if length > 0 {
        let path = part.redundancy();
        let file = part.create_redundancy(files, kept, length);
        let file = file.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        open.push((path, file, length));
    }
    Ok(LogicalFile::new(open, true))
}

/// What to remember of a redundancy file that has just been written.
pub(crate) fn redundancy_record(file: &LogicalFile, bytes: u64) -> Result<Option<RedundancyRecord>, String> {
    let sums = file.checksums().map_err(|error| error.to_string())?;
    Ok(sums.first().copied().flatten().map(|crc| RedundancyRecord { bytes, crc }))
}

/// The bytes of data of every member.
pub(crate) fn exchange_lens(set: &SetComm<'_>, own: u64) -> Result<Vec<u64>, String> {
    let others: Vec<u32> = (0..set.size()).filter(|&member| member != set.member()).collect();
    let mine = own.to_be_bytes();
    let mut theirs = vec![[0_u8; 8]; others.len()];
    let sends: Vec<_> = others.iter().map(|&to| SendTo { to, bytes: &mine }).collect();
    let mut receives: Vec<_> =
        others.iter().zip(&mut theirs).map(|(&from, bytes)| ReceiveFrom { from, bytes }).collect();
    set.exchange(&sends, &mut receives).map_err(|error| error.to_string())?;
    let mut lens = vec![own; set.size() as usize];
    for (member, bytes) in others.iter().zip(theirs) {
        lens[*member as usize] = u64::from_be_bytes(bytes);
    }
    Ok(lens)
}
