//! Values of any type between ranks.

use scr_comm::collective::{broadcast, first_rank, gather, route};
use scr_comm::{Comm, CommError, Rank};
use serde::de::DeserializeOwned;
use serde::Serialize;

/// Gives all ranks the value of rank 0; the others give none.
///
/// # Errors
/// The ranks cannot talk, or what has come is no such value.
pub(crate) fn broadcast_value<T: Serialize + DeserializeOwned>(
    comm: &dyn Comm,
    own: Option<T>,
) -> Result<T, CommError> {
    let packed = own.as_ref().map(pack).transpose()?;
    let packed = broadcast(comm, Rank(0), packed.unwrap_or_default())?;
    own.map_or_else(|| unpack(Rank(0), &packed), Ok)
}

/// Gives all ranks the value of the first rank that has one.
///
/// # Errors
/// As for [`broadcast_value`].
pub(crate) fn first_value<T: Serialize + DeserializeOwned>(
    comm: &dyn Comm,
    own: Option<&T>,
) -> Result<Option<T>, CommError> {
    let Some(root) = first_rank(comm, own.is_some())? else { return Ok(None) };
    let packed = broadcast(comm, root, own.map(pack).transpose()?.unwrap_or_default())?;
    unpack(root, &packed).map(Some)
}

/// Sends values to ranks. Gives those that have come, by sender.
///
/// # Errors
/// As for [`broadcast_value`].
pub(crate) fn route_values<T: Serialize + DeserializeOwned>(
    comm: &dyn Comm,
    values: &[(Rank, T)],
) -> Result<Vec<(Rank, T)>, CommError> {
    let packed = values.iter().map(|(to, value)| Ok((*to, pack(value)?))).collect::<Result<_, _>>()?;
    let came = route(comm, packed)?.into_iter();
    came.map(|(from, bytes)| Ok((from, unpack(from, &bytes)?))).collect()
}

/// Gives rank 0 the values of all ranks, in order, but for those that it cannot read; the others get `None`.
///
/// # Errors
/// The ranks cannot talk.
pub(crate) fn gather_values<T: Serialize + DeserializeOwned>(
    comm: &dyn Comm,
    own: &T,
) -> Result<Option<Vec<T>>, CommError> {
    let all = gather(comm, Rank(0), pack(own)?)?;
    Ok(all.map(|all| all.iter().filter_map(|one| serde_json::from_slice(one).ok()).collect()))
}

/// A value as it is sent.
///
/// # Errors
/// It cannot be written.
pub(crate) fn pack<T: Serialize>(value: &T) -> Result<Vec<u8>, CommError> {
    serde_json::to_vec(value).map_err(|_| CommError::Malformed { from: Rank(0), what: "a value to send" })
}

/// The value that `from` has sent.
///
/// # Errors
/// What has come is no such value.
pub(crate) fn unpack<T: DeserializeOwned>(from: Rank, bytes: &[u8]) -> Result<T, CommError> {
    serde_json::from_slice(bytes).map_err(|_| CommError::Malformed { from, what: "a value" })
}
