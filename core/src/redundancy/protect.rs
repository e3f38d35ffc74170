//! Protects a dataset: every set computes its redundancy, and neighbours keep each other's records.

use super::error::RedundancyError;
use super::host_set::{HostSet, Shape};
use super::neighbours;
use super::overdue::SchemePhase;
use super::sets::in_set;
use crate::cache::filemap::{Entry, Journal};
use crate::cache::logical_file::LogicalFile;
use crate::cache::part::PartDir;
use crate::cache::record::{RankRecord, RedundancyRecord};
use crate::cache::verify::{open_data, Opened};
use crate::cache::Cache;
use crate::comm::set::{SetComm, SetError};
use crate::fs::{At, FsError};
use crate::job::Job;
use crate::param;
use crate::planted::{planted, Bug};
use scr_plugin_api::{PluginError, ReceiveFrom, Scheme, SendTo, SetShape};

/// Protects a new part, and what is needed for it.
pub(crate) struct Protect<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cache: &'a Cache,
    pub(crate) scheme: &'a dyn Scheme,
    pub(super) phase: &'a SchemePhase<'a>,
}

impl Protect<'_> {
    /// Protects this rank's part of a dataset: fills in the checksums and the redundancy file of `record`, and records the
    /// part as prepared. All members of the set call it, and the error of one is the error of all.
    pub(crate) fn encode_and_prepare(
        &self,
        part: &PartDir,
        record: &mut RankRecord,
        journal: &Journal,
        opened: Opened,
    ) -> Result<(), RedundancyError> {
        let members = record.members.clone();
        let kept = in_set(&*self.job.comm, &members, |set| {
            let survives = self.phase.call("losses_survived", || self.scheme.losses_survived(set.size()))?;
            if record.protection.bypass {
                self.sum_in_place(part, record)?;
            } else {
                self.encode(set, part, record, opened)?;
            }
            neighbours::exchange(set, record, if planted(Bug::NeighboursNotKept) { 0 } else { survives })
        })?;
        Ok(journal.append(self.job.files(), &Entry::Prepared(record, &kept)).at("write", &part.filemap())?)
    }

    fn encode(
        &self,
        set: &SetComm<'_>,
        part: &PartDir,
        record: &mut RankRecord,
        opened: Opened,
    ) -> Result<(), RedundancyError> {
        let shape = Shape {
            dataset: record.dataset.id,
            members: record.members.clone(),
            data_lens: exchange_lens(set, record.data_bytes())?,
            lost: vec![false; record.members.len()],
        };
        let wanted = SetShape { rank: set.member(), data_lens: &shape.data_lens };
        let length = self.phase.call("redundancy_len", || self.scheme.redundancy_len(&wanted))?;
        // Even a scheme without other members promises that a restart detects damage.
        let summed = length > 0 || record.protection.scheme != SINGLE || self.always_sums();
        let data = open_data(self.job.files(), part, record, opened, summed)?;
        let redundancy = self.create_redundancy(part, length)?;
        let host = HostSet { job: self.job, set, shape: &shape, data, redundancy, phase: self.phase };
        if !planted(Bug::OldRedundancyKept) {
            self.phase.call("protect", || self.scheme.protect(&host))?;
        }
        for (file, sum) in record.files.iter_mut().zip(host.data.checksums(self.job.processors)?) {
            file.crc = sum;
        }
        record.redundancy = redundancy_record(&host.redundancy, length)?;
        host.redundancy.into_files().for_each(|file| self.cache.kept_open().keep(file));
        Ok(())
    }

    /// In bypass mode no scheme reads the files, so checksums are taken only where the user asks for them.
    fn sum_in_place(&self, part: &PartDir, record: &mut RankRecord) -> Result<(), RedundancyError> {
        if self.always_sums() {
            let data = open_data(self.job.files(), part, record, Opened::new(), true)?;
            let sums = data.checksums(self.job.processors)?;
            record.files.iter_mut().zip(sums).for_each(|(file, sum)| file.crc = sum);
        }
        Ok(())
    }

    /// Whether checksums of the data are taken even where the scheme does not read it.
    fn always_sums(&self) -> bool {
        self.job.params.get(&param::CRC_ON_COPY)
    }

    /// Creates a redundancy file; a scheme that keeps none has none.
    fn create_redundancy(&self, part: &PartDir, length: u64) -> Result<LogicalFile, FsError> {
        if length == 0 {
            return Ok(LogicalFile::new(Vec::new(), true));
        }
        let path = part.redundancy();
        let file = part.create_redundancy(self.job.files(), self.cache.kept_open(), length);
        let (file, is_empty) = file.at("create", &path)?;
        let made = LogicalFile::new(vec![(path, file, length)], true);
        Ok(if is_empty { made.of_zeros() } else { made })
    }
}

/// The scheme that promises nothing.
const SINGLE: &str = "SINGLE";

/// The record of a redundancy file that has just been written.
fn redundancy_record(file: &LogicalFile, bytes: u64) -> Result<Option<RedundancyRecord>, PluginError> {
    let sums = file.checksums(1)?;
    Ok(sums.first().copied().flatten().map(|crc| RedundancyRecord { bytes, crc }))
}

/// The bytes of data of every member.
pub(super) fn exchange_lens(set: &SetComm<'_>, own: u64) -> Result<Vec<u64>, SetError> {
    let others: Vec<u32> = (0..set.size()).filter(|&member| member != set.member()).collect();
    let mine = own.to_be_bytes();
    let mut theirs = vec![[0_u8; 8]; others.len()];
    let sends: Vec<_> = others.iter().map(|&to| SendTo { to, bytes: &mine }).collect();
    let mut receives: Vec<_> =
        others.iter().zip(&mut theirs).map(|(&from, bytes)| ReceiveFrom { from, bytes }).collect();
    set.exchange(&sends, &mut receives)?;
    let mut lens = vec![own; set.size() as usize];
    for (member, bytes) in others.iter().zip(theirs) {
        lens[*member as usize] = u64::from_be_bytes(bytes);
    }
    Ok(lens)
}
