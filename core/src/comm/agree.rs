//! How all ranks come to one outcome.
//!
//! Where all is well it costs one reduction of one number. Otherwise every rank gets the very same account:
//! how many failed, and what the first few of them said.

use std::fmt::{self, Display};

use super::collective::{all_reduce, broadcast, Op, Tree, COLLECTIVE};
use super::frame::{self, Reader, Writer};
use super::{Comm, CommError, Rank};

/// What went wrong on some ranks, the same account on all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// How many ranks failed.
    pub failed: u64,
    /// The first of them, by rank; at most [`Disagreement::SHOWN`].
    pub first: Vec<Complaint>,
    /// Set where the ranks could not even talk; then the rest is only what this rank knows.
    pub broken: Option<CommError>,
}

/// What one rank said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Which rank.
    pub rank: Rank,
    /// Its node, where it was told.
    pub node: Option<String>,
    /// Its error.
    pub text: String,
}

/// Not all ranks gave the same value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Differs {
    /// At least this rank gave another one.
    #[error("rank {rank} differs from rank 0")]
    From0 {
        /// The first that differs.
        rank: Rank,
    },
    /// The ranks could not talk.
    #[error(transparent)]
    Broken(#[from] CommError),
}

/// Makes one outcome of what happened on all ranks: each keeps its value if none failed.
///
/// # Errors
/// [`Disagreement`], the same on all ranks, where any rank gave an error.
pub fn agree<T, E: Display>(comm: &dyn Comm, result: Result<T, E>) -> Result<T, Disagreement> {
    settle(comm, None, result)
}

/// [`agree`], with the name of this rank's node for the account.
///
/// # Errors
/// As for [`agree`].
pub fn agree_at<T, E: Display>(comm: &dyn Comm, node: &str, result: Result<T, E>) -> Result<T, Disagreement> {
    settle(comm, Some(node), result)
}

/// Checks that all ranks give the same bytes.
///
/// # Errors
/// [`Differs`], the same on all ranks; it names the first rank that gave something else than rank 0.
pub fn same_everywhere(comm: &dyn Comm, bytes: &[u8]) -> Result<(), Differs> {
    let mine = if comm.rank() == ROOT { bytes.to_vec() } else { Vec::new() };
    let theirs = broadcast(comm, ROOT, mine)?;
    let nobody = u64::from(u32::MAX);
    let mut first = [if theirs == bytes { nobody } else { u64::from(comm.rank().0) }];
    all_reduce(comm, &mut first, Op::Min)?;
    match u32::try_from(first[0]) {
        Ok(rank) if rank != u32::MAX => Err(Differs::From0 { rank: Rank(rank) }),
        _ => Ok(()),
    }
}

fn settle<T, E: Display>(
    comm: &dyn Comm,
    node: Option<&str>,
    result: Result<T, E>,
) -> Result<T, Disagreement> {
    let own = result.as_ref().err().map(|error| Complaint {
        rank: comm.rank(),
        node: node.map(|node| cut(node, NODE_BYTES)),
        text: cut(&error.to_string(), TEXT_BYTES),
    });
    let mut failed = [u64::from(own.is_some())];
    if let Err(error) = all_reduce(comm, &mut failed, Op::Sum) {
        return Err(Disagreement::broken(own, error));
    }
    match result {
        Ok(value) if failed[0] == 0 => Ok(value),
        _ => Err(match collect(comm, own.clone()) {
            Ok(first) => Disagreement { failed: failed[0], first, broken: None },
            Err(error) => Disagreement::broken(own, error),
        }),
    }
}

/// The first few complaints of all ranks, on all ranks.
fn collect(comm: &dyn Comm, own: Option<Complaint>) -> Result<Vec<Complaint>, CommError> {
    let tree = Tree::new(comm, ROOT)?;
    let mut first: Vec<Complaint> = own.into_iter().collect();
    for &child in &tree.children {
        let theirs = frame::receive(comm, COLLECTIVE, child)?;
        first.extend(unpack(&theirs, child)?);
        first.sort_by_key(|complaint| complaint.rank);
        first.truncate(Disagreement::SHOWN);
    }
    let packed = pack(&first);
    if let Some(parent) = tree.parent {
        frame::send(comm, COLLECTIVE, &[(parent, &packed)])?;
    }
    unpack(&broadcast(comm, ROOT, packed)?, ROOT)
}

fn pack(complaints: &[Complaint]) -> Vec<u8> {
    let mut writer = Writer::default();
    for complaint in complaints {
        writer.number(complaint.rank.0);
        writer.number(u32::from(complaint.node.is_some()));
        writer.bytes(complaint.node.as_deref().unwrap_or_default().as_bytes());
        writer.bytes(complaint.text.as_bytes());
    }
    writer.done()
}

fn unpack(bytes: &[u8], from: Rank) -> Result<Vec<Complaint>, CommError> {
    let mut reader = Reader(bytes);
    let mut complaints = Vec::new();
    while !reader.is_at_end() {
        let complaint = unpack_one(&mut reader);
        complaints.push(complaint.ok_or(CommError::Malformed { from, what: "its errors" })?);
    }
    Ok(complaints)
}

fn unpack_one(reader: &mut Reader<'_>) -> Option<Complaint> {
    let rank = Rank(reader.number()?);
    let has_node = reader.number()? != 0;
    let node = String::from_utf8_lossy(reader.bytes()?).into_owned();
    let text = String::from_utf8_lossy(reader.bytes()?).into_owned();
    Some(Complaint { rank, node: has_node.then_some(node), text })
}

/// The beginning of a text, so that an account stays small whatever ranks say.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most.saturating_sub(ELLIPSIS.len())).rev().find(|&end| text.is_char_boundary(end));
    format!("{}{ELLIPSIS}", &text[..end.unwrap_or(0)])
}

impl Disagreement {
    /// How many complaints it holds at most.
    pub const SHOWN: usize = 3;

    fn broken(own: Option<Complaint>, error: CommError) -> Self {
        Self { failed: 1, first: own.into_iter().collect(), broken: Some(error) }
    }
}

impl Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (at, Complaint { text, .. }) in self.first.iter().enumerate() {
            let same = |other: &&Complaint| other.text == *text;
            if self.first.iter().position(|other| same(&other)) != Some(at) {
                continue;
            }
            let who: Vec<_> = self.first.iter().filter(same).map(Complaint::who).collect();
            write!(f, "{between}{}: {text}", who.join(", "))?;
            between = "; ";
        }
        if let Some(error) = &self.broken {
            return write!(f, "{between}the ranks could not agree: {error}");
        }
        match self.failed.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more rank)"),
            more => write!(f, " (and {more} more ranks)"),
        }
    }
}

impl Complaint {
    fn who(&self) -> String {
        let on = self.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        format!("rank {}{on}", self.rank)
    }
}

impl Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.who(), self.text)
    }
}

impl std::error::Error for Disagreement {}

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
    fn a_disagreement_says_who_what_and_how_many() {
        let complaint = |rank, node: Option<&str>| Complaint {
            rank: Rank(rank),
            node: node.map(str::to_owned),
            text: "disk full".to_owned(),
        };
        let mut all = Disagreement {
            failed: 3,
            first: vec![complaint(3, None), complaint(5, Some("n2"))],
            broken: None,
        };
        assert_eq!(all.to_string(), "rank 3, rank 5 on n2: disk full (and 1 more rank)");
        all.failed = 4;
        assert!(all.to_string().ends_with(" (and 2 more ranks)"));
        all.failed = 2;
        all.first[1].text = "no room".to_owned();
        assert_eq!(all.to_string(), "rank 3: disk full; rank 5 on n2: no room");
        all.broken = Some(CommError::NoSuchTag { tag: 40000 });
        assert!(all.to_string().ends_with("could not agree: tag 40000 is above 32767, the largest allowed"));
    }
}
