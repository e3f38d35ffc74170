//! Detects which nodes see the same folder, whatever the configuration says.
//!
//! The first rank of every node tries to create a file of the same name, and in one folder only one of them succeeds. The file
//! is empty, so a full device does not matter. The other ranks of the node check that it is there: they must see the same
//! folder as their first rank.

use scr_base::fs::{unique_number, Files, How, OwnedDir};
use scr_comm::collective::{agree_at, all_gather, any, barrier, broadcast};
use scr_comm::placement::Placement;
use scr_comm::{Collective, Comm, CommError, Rank};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Finds out who sees the same folder.
pub(crate) struct Sharing<'a> {
    pub(crate) comm: &'a dyn Comm,
    /// Which ranks share a node.
    pub(crate) nodes: &'a Placement,
    /// Unique to the marks of this run.
    token: String,
}

/// The ranks of a node do not see the same folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is not the folder that rank {leader} of the same node sees there: if several containers have one host name, set \
     SCR_NODE_NAME in each to a name of its own; otherwise name a folder that all ranks of a node share, without a variable that \
     differs between them", folder.display()
)]
struct ApartError {
    folder: PathBuf,
    leader: Rank,
}

/// Which nodes see the same folder.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) placement: Placement,
    /// Why this rank could not look; its node then counts as alone.
    pub(crate) error: Option<String>,
}

impl<'a> Sharing<'a> {
    /// Collective.
    pub(crate) fn new(comm: &'a dyn Comm, nodes: &'a Placement) -> Result<Self, CommError> {
        let token = format!("{:016x}", unique_number());
        let token = broadcast(comm, Rank(0), token.into_bytes())?;
        Ok(Self { comm, nodes, token: String::from_utf8_lossy(&token).into_owned() })
    }

    /// Which nodes see the folder that this rank knows as `folder`. `number` is unique for each folder. Collective.
    ///
    /// # Errors
    /// The ranks of a node do not see the same folder, or the ranks cannot talk.
    pub(crate) fn of(&self, folder: &OwnedDir, number: usize) -> Collective<Seen> {
        self.of_path(&**folder.files(), folder.path(), number)
    }

    fn of_path(&self, files: &dyn Files, folder: &Path, number: usize) -> Collective<Seen> {
        let me = self.comm.rank();
        let mark = folder.join(format!(".shared.{}.{number}", self.token));
        let leader = self.nodes.leader(me);
        let leads = leader == me;
        let made = if leads { make(files, &mark) } else { Ok(false) };
        let made_one = matches!(made, Ok(true));
        let missed = leads && matches!(made, Ok(false));
        let [is_shared, is_unknown] = any(self.comm, [missed, made.is_err()])?;
        // If a leader could not look, a missing mark says nothing.
        let sees = is_unknown || leads || files.status(&mark).is_ok();
        let apart = || ApartError { folder: folder.to_owned(), leader };
        let together = agree_at(self.comm, self.nodes.name(me), if sees { Ok(()) } else { Err(apart()) });
        let placement = match (&together, is_shared) {
            (Ok(()), true) => self.by_folder(files, &mark, made_one, missed)?,
            _ => self.nodes.clone(),
        };
        if made_one {
            // A file left by a failure does no harm.
            let _ = files.remove_file(&mark);
        }
        together.map(|()| Seen { placement, error: made.err().map(|error| error.to_string()) })
    }

    /// The nodes by the folder that they see. Collective.
    fn by_folder(
        &self,
        files: &dyn Files,
        mark: &Path,
        made_one: bool,
        missed: bool,
    ) -> Result<Placement, CommError> {
        let all_made = all_gather(self.comm, &[u8::from(made_one)])?;
        let made = all_made.runs().filter(|(_, place)| all_made.distinct()[*place] == [1]);
        let makers: Vec<Rank> = made.flat_map(|(ranks, _)| ranks.map(Rank)).collect();
        let seen_by = self.whose(files, mark, &makers, made_one, missed)?;
        // The other ranks of a node send nothing.
        let me = self.comm.rank();
        let answer = if self.nodes.leader(me) == me { seen_by.to_string() } else { String::new() };
        let all = all_gather(self.comm, answer.as_bytes())?;
        Ok(self.nodes.join(|leader| String::from_utf8_lossy(all.get(leader)).into_owned()))
    }

    /// The rank that has made the mark which this one has found.
    fn whose(
        &self,
        files: &dyn Files,
        mark: &Path,
        makers: &[Rank],
        made_one: bool,
        missed: bool,
    ) -> Result<Rank, CommError> {
        let me = self.comm.rank();
        if let [only] = makers {
            return Ok(if missed { *only } else { me });
        }
        let signed = |maker: Rank| {
            let mut name = mark.as_os_str().to_owned();
            name.push(format!(".{maker}"));
            PathBuf::from(name)
        };
        if made_one {
            let _ = make(files, &signed(me));
        }
        barrier(self.comm)?;
        let there = |maker: &&Rank| files.status(&signed(**maker)).is_ok();
        let found = if missed { makers.iter().find(there).copied() } else { None };
        barrier(self.comm)?;
        if made_one {
            let _ = files.remove_file(&signed(me));
        }
        Ok(found.unwrap_or(me))
    }
}

/// Whether this rank is the one that makes a mark.
fn make(files: &dyn Files, mark: &Path) -> io::Result<bool> {
    match files.open(mark, How::Create(0o600)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_comm::thread::run;
    use tempfile::TempDir;

    /// The result of each of six ranks on six nodes, with a folder for each letter; `-` is a folder that is not there.
    fn groups(letters: &str) -> Vec<u32> {
        let dir = TempDir::new().unwrap();
        for letter in letters.chars().filter(|letter| *letter != '-') {
            std::fs::create_dir_all(dir.path().join(letter.to_string())).unwrap();
        }
        let ranks = u32::try_from(letters.len()).unwrap();
        let all = run(ranks, |comm| {
            let nodes = Placement::gather(&comm, &comm.rank().to_string()).unwrap();
            let sharing = Sharing::new(&comm, &nodes).unwrap();
            let letter = &letters[comm.rank().index()..=comm.rank().index()];
            let seen = sharing.of_path(&RealFiles, &dir.path().join(letter), 0).unwrap();
            assert_eq!(seen.error.is_some(), letter == "-");
            (0..comm.size()).map(|rank| seen.placement.number(Rank(rank))).collect::<Vec<_>>()
        });
        let all = all.unwrap();
        assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
        let left =
            letters.chars().filter_map(|letter| std::fs::read_dir(dir.path().join(letter.to_string())).ok());
        assert_eq!(left.map(Iterator::count).sum::<usize>(), 0, "a mark is left");
        all[0].clone()
    }

    #[test]
    fn nodes_are_together_where_they_see_the_same_folder() {
        assert_eq!(groups("abcdef"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(groups("aaaaaa"), [0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("abbabc"), [0, 1, 1, 0, 1, 2]);
        assert_eq!(groups("aa-abb"), [0, 0, 1, 0, 2, 2]);
    }

    #[test]
    fn ranks_of_a_node_are_together_and_one_rank_alone_is_so() {
        let dir = TempDir::new().unwrap();
        let all = run(4, |comm| {
            let node = comm.rank().0 / 2;
            let nodes = Placement::gather(&comm, &node.to_string()).unwrap();
            let own = dir.path().join(node.to_string());
            let _ = std::fs::create_dir(&own);
            let seen = Sharing::new(&comm, &nodes).unwrap().of_path(&RealFiles, &own, 0).unwrap();
            [0, 1, 2, 3].map(|rank| seen.placement.number(Rank(rank)))
        });
        assert_eq!(all.unwrap()[3], [0, 0, 1, 1]);
    }

    #[test]
    fn a_rank_that_does_not_see_what_the_first_one_of_its_node_does_is_named_to_all() {
        let dir = TempDir::new().unwrap();
        let all = run(4, |comm| {
            let me = comm.rank();
            let nodes = Placement::gather(&comm, &format!("n{}", me.0 / 2)).unwrap();
            let own = dir.path().join((me.0 % 2).to_string());
            let _ = std::fs::create_dir(&own);
            let seen = Sharing::new(&comm, &nodes).unwrap().of_path(&RealFiles, &own, 0);
            seen.map(drop).unwrap_err().to_string()
        });
        for message in all.unwrap() {
            let (rank, folder) = ("rank 1 on n0", dir.path().join("1").display().to_string());
            assert!(message.contains(rank) && message.contains(&folder), "{message}");
            // Containers on one machine may have one host name: only storage tells that they are not one node.
            assert!(message.contains("set SCR_NODE_NAME in each"), "{message}");
        }
        for folder in ["0", "1"] {
            assert_eq!(std::fs::read_dir(dir.path().join(folder)).unwrap().count(), 0, "a mark is left");
        }
    }
}
