//! A rank's record, kept by as many neighbours as its set survives losses.
//!
//! Member `m` gives its record to the members after it. So if no more members are lost than the scheme survives, some remaining
//! member has the record of each lost one.

use super::error::RedundancyError;
use crate::cache::record::RankRecord;
use scr_base::fs::MAX_TREE_BYTES;
use scr_comm::set::{SetComm, SetError};
use scr_plugin_api::{KvTree, ReceiveFrom, SendTo};

/// Gives `own` to the `copies` members after this one, and gets the records of those before it.
pub(crate) fn exchange(
    set: &SetComm<'_>,
    own: &RankRecord,
    copies: u32,
) -> Result<Vec<RankRecord>, RedundancyError> {
    let (me, size) = (set.member(), set.size());
    let copies = copies.min(size.saturating_sub(1));
    if copies == 0 {
        return Ok(Vec::new());
    }
    let after: Vec<u32> = (1..=copies).map(|step| (me + step) % size).collect();
    let before: Vec<u32> = (1..=copies).map(|step| (me + size - step) % size).collect();
    let packed = own.to_tree().pack();
    let (first, rest) = split(&packed);
    let firsts = pass(set, &after, &before, &first, &vec![FIRST; before.len()])?;
    let unreadable = |member| RedundancyError::UnreadableRecord { member };
    let lengths =
        firsts.iter().zip(&before).map(|(bytes, &member)| rest_length(bytes).ok_or(unreadable(member)));
    let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
    // Records that fit into the first message, and most do, cost no second one.
    let longer: Vec<u32> = if rest.is_empty() { Vec::new() } else { after };
    let rests = pass(set, &longer, &before, rest, &lengths)?;
    let joined = firsts.iter().zip(&rests).zip(&before);
    joined.map(|((first, rest), &member)| join(first, rest).ok_or(unreadable(member))).collect()
}

fn pass(
    set: &SetComm<'_>,
    to: &[u32],
    from: &[u32],
    bytes: &[u8],
    lengths: &[usize],
) -> Result<Vec<Vec<u8>>, SetError> {
    let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0; length]).collect();
    let sends: Vec<_> = to.iter().map(|&to| SendTo { to, bytes }).collect();
    let mut receives: Vec<_> = from
        .iter()
        .zip(&mut buffers)
        .filter(|(_, buffer)| !buffer.is_empty())
        .map(|(&from, buffer)| ReceiveFrom { from, bytes: buffer })
        .collect();
    if !sends.is_empty() || !receives.is_empty() {
        set.exchange(&sends, &mut receives)?;
    }
    Ok(buffers)
}

/// The first message, of a fixed length with the record's length at its start, and what did not fit.
fn split(packed: &[u8]) -> (Vec<u8>, &[u8]) {
    let (head, rest) = packed.split_at(packed.len().min(FIRST - 8));
    let mut first = (packed.len() as u64).to_be_bytes().to_vec();
    first.extend(head);
    first.resize(FIRST, 0);
    (first, rest)
}

fn whole_length(first: &[u8]) -> usize {
    let mut number = [0; 8];
    number.copy_from_slice(&first[..8]);
    usize::try_from(u64::from_be_bytes(number)).unwrap_or(usize::MAX)
}

/// How many bytes follow; `None` if no filemap could hold that many.
fn rest_length(first: &[u8]) -> Option<usize> {
    let whole = Some(whole_length(first)).filter(|&whole| whole as u64 <= MAX_TREE_BYTES)?;
    Some(whole.saturating_sub(FIRST - 8))
}

fn join(first: &[u8], rest: &[u8]) -> Option<RankRecord> {
    let mut packed = first[8..].to_vec();
    packed.truncate(whole_length(first));
    packed.extend(rest);
    RankRecord::from_tree(&KvTree::unpack(&packed).ok()?).ok()
}

/// Length of the first message; a record of a few files fits.
const FIRST: usize = 1536;
