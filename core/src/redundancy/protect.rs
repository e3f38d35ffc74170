//! Protects a dataset: every set computes its redundancy, and neighbours keep each other's records.

use super::error::RedundancyError;
use super::host_set::{HostSet, Shape};
use super::neighbours;
use super::sets::in_set;
use crate::cache::kept_open::KeptOpen;
use crate::cache::logical_file::LogicalFile;
use crate::cache::part::PartDir;
use crate::cache::record::{RankRecord, RedundancyRecord};
use crate::cache::verify::{compare_data, Opened, PartFiles};
use crate::job::Job;
use crate::plugin::overdue::PluginPhase;
use scr_base::ensure;
use scr_base::fs::{At, FsError};
use scr_comm::set::{SetComm, SetError};
use scr_config::param;
use scr_plugin_api::{PluginError, ReceiveFrom, Scheme, SendTo, SetShape};

/// Protects a new part, and what is needed for it.
pub(crate) struct Protect<'a> {
    pub(crate) job: &'a Job,
    pub(crate) open: &'a KeptOpen,
    pub(crate) scheme: &'a dyn Scheme,
    pub(super) phase: &'a PluginPhase,
}

impl Protect<'_> {
    /// Protects this rank's part of a dataset: fills in the checksums and the redundancy file of `record`. Gives the records that
    /// this rank keeps for its neighbours. All members of the set call it, and the error of one is the error of all.
    pub(super) fn encode_part(
        &self,
        part: &PartDir,
        record: &mut RankRecord,
        opened: Opened,
    ) -> Result<Vec<RankRecord>, RedundancyError> {
        let members = record.members.clone();
        in_set(&*self.job.comm, &members, |set| {
            let survives = self.phase.call("losses_survived", || self.scheme.losses_survived(set.size()))?;
            if record.protection.bypass {
                sum_if_wanted(self.job, part, record)?;
            } else {
                self.encode(set, part, record, opened)?;
            }
            neighbours::exchange(set, record, survives)
        })
    }

    fn encode(
        &self,
        set: &SetComm<'_>,
        part: &PartDir,
        record: &mut RankRecord,
        opened: Opened,
    ) -> Result<(), RedundancyError> {
        let shape = Shape {
            dataset: record.cache_id,
            members: record.members.clone(),
            data_lens: exchange_lens(set, record.data_bytes())?,
            lost: vec![false; record.members.len()],
        };
        let wanted = SetShape { rank: set.member(), data_lens: &shape.data_lens };
        let length = self.phase.call("redundancy_len", || self.scheme.redundancy_len(&wanted))?;
        // Even a scheme without other members promises that a restart detects damage.
        let summed = length > 0 || record.protection.scheme != SINGLE || always_sums(self.job);
        let data = PartFiles { files: self.job.files(), part, record }.open_data(opened, summed)?;
        let redundancy = self.create_redundancy(part, length)?;
        let host = HostSet { job: self.job, set, shape: &shape, data, redundancy, phase: self.phase };
        self.phase.call("protect", || self.scheme.protect(&host))?;
        record_protected(record, &host, length)?;
        host.redundancy.into_files().for_each(|file| self.open.keep(file));
        Ok(())
    }

    /// Creates a redundancy file; a scheme that keeps none has none.
    fn create_redundancy(&self, part: &PartDir, length: u64) -> Result<LogicalFile, FsError> {
        if length == 0 {
            return Ok(LogicalFile::new(Vec::new(), true));
        }
        let path = part.redundancy();
        let file = part.create_redundancy(self.job.files(), self.open, length);
        let (file, is_empty) = file.at("create", &path)?;
        let made = LogicalFile::new(vec![(path, file, length)], true);
        Ok(if is_empty { made.of_zeros() } else { made })
    }
}

/// If no scheme reads the files, checksums are taken only if the user asks for them.
pub(super) fn sum_if_wanted(
    job: &Job,
    part: &PartDir,
    record: &mut RankRecord,
) -> Result<(), RedundancyError> {
    if always_sums(job) {
        let data = PartFiles { files: job.files(), part, record }.open_data(Opened::new(), true)?;
        let sums = data.checksums(job.processors)?;
        record.files.iter_mut().zip(sums).for_each(|(file, sum)| file.crc = sum);
    }
    Ok(())
}

/// Whether checksums of the data are taken even where the scheme does not read it.
fn always_sums(job: &Job) -> bool {
    job.params.get(&param::CRC_ON_COPY)
}

/// The scheme that promises nothing.
const SINGLE: &str = "SINGLE";

/// Records what a scheme has just made: the checksums of the files, and a redundancy file of this length.
///
/// # Errors
/// A checksum was recorded, and is another one. Or it has not written all of its redundancy, and would restore nothing from that.
pub(super) fn record_protected(
    record: &mut RankRecord,
    host: &HostSet<'_>,
    length: u64,
) -> Result<(), RedundancyError> {
    let (unused, scheme) = (host.redundancy.unused(), &record.protection.scheme);
    ensure(unused == 0, || {
        PluginError::fault(format!(
            "the scheme {scheme} has left {unused} of {length} bytes of its redundancy unwritten; this is an error in the plugin"
        ))
    })?;
    let sums = host.data.checksums(host.job.processors)?;
    if sums.iter().any(Option::is_some) {
        compare_data(record, &host.data, host.job.processors)?;
    }
    // One that a fetch has taken stays where the scheme reads no file.
    record.files.iter_mut().zip(sums).for_each(|(file, sum)| file.crc = sum.or(file.crc));
    let sums = host.redundancy.checksums(1)?;
    record.redundancy = sums.first().copied().flatten().map(|crc| RedundancyRecord { bytes: length, crc });
    record.local = None;
    Ok(())
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
