//! The sparse exchange: messages to any ranks, whose receivers do not expect them.
//!
//! In round k a rank forwards to the rank 2^k after it every message whose
//! remaining distance has bit k set. After as many rounds as the number of ranks has bits, every message has arrived, and each
//! rank has sent one frame per round.

use super::collective::{back, distances, neighbours, COLLECTIVE};
use super::frame::{self, Reader, Writer};
use super::{Comm, CommError, Rank, Result};

/// Delivers messages to any ranks, oneself included, and gives those for this rank, sorted by sender.
/// Several from one sender are in the order it gave them. All ranks call it, with or without messages.
///
/// # Errors
/// [`CommError`] of the communicator. [`CommError::NoSuchRank`] for a receiver that is not there; all other
/// messages have been delivered then, and the communicator can be used.
pub fn route(comm: &dyn Comm, messages: Vec<(Rank, Vec<u8>)>) -> Result<Vec<(Rank, Vec<u8>)>> {
    let (me, size) = (comm.rank(), comm.size());
    let lost = messages.iter().map(|(to, _)| *to).find(|to| to.0 >= size);
    let parcels = messages.into_iter().filter(|(to, _)| to.0 < size);
    let mut parcels: Vec<Parcel> = parcels.map(|(to, bytes)| Parcel { from: me, to, bytes }).collect();
    for distance in distances(comm) {
        let (next, previous) = neighbours(comm, distance);
        // How far it has to go, round the ring.
        let way = |parcel: &Parcel| back(parcel.to.0, me.0, size);
        let (leaving, staying) = parcels.into_iter().partition(|parcel| way(parcel) & distance != 0);
        parcels = staying;
        let came = frame::swap(comm, COLLECTIVE, &[(next, &pack(leaving))], &[previous])?;
        for frame in &came {
            unpack(frame, &mut parcels, size)
                .ok_or(CommError::Malformed { from: previous, what: "routed messages" })?;
        }
    }
    // Stable, and all messages between two ranks took the same way.
    parcels.sort_by_key(|parcel| parcel.from);
    match lost {
        Some(rank) => Err(CommError::NoSuchRank { rank, size }),
        None => Ok(parcels.into_iter().map(|parcel| (parcel.from, parcel.bytes)).collect()),
    }
}

pub(super) struct Parcel {
    from: Rank,
    to: Rank,
    bytes: Vec<u8>,
}

fn pack(parcels: Vec<Parcel>) -> Vec<u8> {
    let mut writer = Writer::default();
    for parcel in parcels {
        writer.number(parcel.from.0);
        writer.number(parcel.to.0);
        writer.bytes(&parcel.bytes);
    }
    writer.0
}

pub(super) fn unpack(frame: &[u8], parcels: &mut Vec<Parcel>, size: u32) -> Option<()> {
    let mut reader = Reader(frame);
    while !reader.0.is_empty() {
        let (from, to) = (Rank(reader.number()?), Rank(reader.number()?));
        let bytes = reader.bytes()?.to_vec();
        if from.0 >= size || to.0 >= size {
            return None;
        }
        parcels.push(Parcel { from, to, bytes });
    }
    Some(())
}
