//! How all ranks agree on one outcome.
//!
//! If all succeed, it costs one reduction of one number. Otherwise every rank gets the same error: how many ranks failed, and
//! the errors of the first few.

use std::fmt::{self, Display};

use super::collective::{all_reduce, broadcast, first_rank, Op, Tree, COLLECTIVE};
use super::frame;
use super::{Comm, CommError, Rank, Result};
use serde::{Deserialize, Serialize};

/// The result that all ranks get from a collective operation.
pub type Collective<T> = Result<T, CollectiveError>;

/// Why ranks did not get what they wanted together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// It failed on some ranks. All ranks have the same error, and can continue together.
    #[error(transparent)]
    Ranks(#[from] RankErrors),
    /// The ranks can no longer talk to each other.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// The errors of the ranks, the same account on all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankErrors {
    /// The operation that failed, if the errors alone do not say it.
    pub what: Option<String>,
    /// How many ranks failed.
    pub failed: u64,
    /// The errors of the first of them, by rank; at most [`RankErrors::SHOWN`].
    pub first: Vec<RankError>,
}

/// The error of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankError {
    /// Which rank.
    pub rank: Rank,
    /// Its node, where it gave one.
    pub node: Option<String>,
    /// Its error.
    pub text: String,
}

/// The error of one rank: any error, which the others get as its text with its causes, or a text.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Makes one outcome of what happened on all ranks: each keeps its value if none failed.
///
/// # Errors
/// [`CollectiveError`], the same on all ranks, where any rank gave an error.
pub fn agree<T, E: Into<AnyError>>(comm: &dyn Comm, result: Result<T, E>) -> Collective<T> {
    agree_as(comm, None, result)
}

/// [`agree`], with the name of this rank's node for the account.
///
/// # Errors
/// As for [`agree`].
pub fn agree_at<T, E: Into<AnyError>>(comm: &dyn Comm, node: &str, result: Result<T, E>) -> Collective<T> {
    agree_as(comm, Some(node), result)
}

/// The first rank that gives other bytes than rank 0, the same answer on all ranks.
///
/// # Errors
/// [`CommError`]: the ranks can no longer talk to each other.
pub fn first_differing(comm: &dyn Comm, bytes: &[u8]) -> Result<Option<Rank>> {
    let mine = if comm.rank() == ROOT { bytes.to_vec() } else { Vec::new() };
    let theirs = broadcast(comm, ROOT, mine)?;
    first_rank(comm, theirs != bytes)
}

fn agree_as<T, E: Into<AnyError>>(
    comm: &dyn Comm,
    node: Option<&str>,
    result: Result<T, E>,
) -> Collective<T> {
    let [failed] = all_reduce(comm, [u64::from(result.is_err())], Op::Sum)?;
    let own = match result {
        Ok(value) if failed == 0 => return Ok(value),
        Ok(_) => None,
        Err(error) => Some(RankError {
            rank: comm.own_rank(),
            node: node.map(|node| cut(node, NODE_BYTES)),
            text: cut(&scr_base::describe(&*error.into()), TEXT_BYTES),
        }),
    };
    Err(RankErrors { what: None, failed, first: collect(comm, own)? }.into())
}

/// The errors of the first ranks that have one, on all ranks.
fn collect(comm: &dyn Comm, own: Option<RankError>) -> Result<Vec<RankError>> {
    let tree = Tree::new(comm, ROOT)?;
    let mut first: Vec<RankError> = own.into_iter().collect();
    for &child in &tree.children {
        let theirs = frame::receive(comm, COLLECTIVE, child)?;
        first.extend(unpack(&theirs, child)?);
        first.sort_by_key(|error| error.rank);
        first.truncate(RankErrors::SHOWN);
    }
    let packed = serde_json::to_vec(&first).unwrap_or_default();
    if let Some(parent) = tree.parent {
        frame::send(comm, COLLECTIVE, &[(parent, &packed)])?;
    }
    unpack(&broadcast(comm, ROOT, packed)?, ROOT)
}

pub(super) fn unpack(bytes: &[u8], from: Rank) -> Result<Vec<RankError>> {
    serde_json::from_slice(bytes).map_err(|_| CommError::Malformed { from, what: "its errors" })
}

/// The beginning of a text, so that the common error stays small.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most.saturating_sub(ELLIPSIS.len())).rev().find(|&end| text.is_char_boundary(end));
    format!("{}{ELLIPSIS}", &text[..end.unwrap_or(0)])
}

impl CollectiveError {
    /// The agreed error, for callers that can continue after it; a broken communicator stays an error.
    ///
    /// # Errors
    /// [`CommError`]: the ranks can no longer talk to each other.
    pub fn agreed(self) -> Result<RankErrors> {
        match self {
            Self::Ranks(errors) => Ok(errors),
            Self::Comm(error) => Err(error),
        }
    }
}

impl RankErrors {
    /// How many errors it holds at most.
    pub const SHOWN: usize = 3;

    /// An account of what all ranks know alike.
    pub fn known_to_all(what: String) -> Self {
        Self { what: Some(what), ..Self::default() }
    }

    /// The account of what failed on one rank, where all ranks know of it already.
    pub fn on(rank: Rank, node: &str, text: &str) -> Self {
        let (node, text) = (Some(node.to_owned()), text.to_owned());
        Self { what: None, failed: 1, first: vec![RankError { rank, node, text }] }
    }

    /// Says what it was that failed.
    #[must_use]
    pub fn with(self, what: String) -> Self {
        Self { what: Some(what), ..self }
    }
}

impl Display for RankErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        if let Some(what) = &self.what {
            f.write_str(what)?;
            between = ": ";
        }
        for (at, error) in self.first.iter().enumerate() {
            let is_alike = |other: &&RankError| other.cause() == error.cause();
            if self.first.iter().position(|other| is_alike(&other)) != Some(at) {
                continue;
            }
            let alike = self.first.iter().filter(is_alike);
            let (same, others): (Vec<_>, Vec<_>) = alike.partition(|other| other.text == error.text);
            let who =
                |errors: &[&RankError]| errors.iter().map(|error| error.who()).collect::<Vec<_>>().join(", ");
            write!(f, "{between}{}: {}", who(&same), error.text)?;
            if !others.is_empty() {
                write!(f, ", as on {}", who(&others))?;
            }
            between = "; ";
        }
        match self.failed.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more rank)"),
            more => write!(f, " (and {more} more ranks)"),
        }
    }
}

impl RankError {
    /// The key by which the errors of ranks are grouped: the error of the system, or else the whole text.
    fn cause(&self) -> &str {
        match self.text.rsplit_once(": ") {
            Some((_, cause)) if cause.contains("(os error ") => cause,
            _ => &self.text,
        }
    }

    fn who(&self) -> String {
        let on = self.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        format!("rank {}{on}", self.rank)
    }
}

impl std::error::Error for RankErrors {}

const ROOT: Rank = Rank(0);
const TEXT_BYTES: usize = 4096;
const NODE_BYTES: usize = 256;
const ELLIPSIS: &str = "...";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("ääääää", 8), "ää...");
        assert_eq!(cut("long", 3), "...");
    }

    #[test]
    fn the_common_error_names_ranks_causes_and_count() {
        let error = |rank, node: Option<&str>| RankError {
            rank: Rank(rank),
            node: node.map(str::to_owned),
            text: "disk full".to_owned(),
        };
        let mut all = RankErrors { what: None, failed: 3, first: vec![error(3, None), error(5, Some("n2"))] };
        assert_eq!(all.to_string(), "rank 3, rank 5 on n2: disk full (and 1 more rank)");
        all.failed = 4;
        assert!(all.to_string().ends_with(" (and 2 more ranks)"));
        all.failed = 2;
        all.first[1].text = "no room".to_owned();
        assert_eq!(all.to_string(), "rank 3: disk full; rank 5 on n2: no room");
        assert_eq!(
            all.with("saving".to_owned()).to_string(),
            "saving: rank 3: disk full; rank 5 on n2: no room"
        );
        let full = |rank: u32| RankError {
            text: format!("writing /p/{rank} failed: No space left on device (os error 28)"),
            ..error(rank, Some("n1"))
        };
        let full = RankErrors { what: None, failed: 4, first: vec![full(0), error(1, None), full(2)] };
        assert_eq!(
            full.to_string(),
            "rank 0 on n1: writing /p/0 failed: No space left on device (os error 28), as on rank 2 on n1; rank 1: disk full \
             (and 1 more rank)"
        );
        assert_eq!(RankErrors::known_to_all("nothing to do".to_owned()).to_string(), "nothing to do");
    }
}
