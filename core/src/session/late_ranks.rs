//! The ranks that have not come to `SCR_Init`: a rank that waits long for the first communicator names them.
//!
//! Before there is a communicator of scr, nothing can be asked by messages: on that of the application, a receive of its own
//! might take them. So each rank that has waited for a while writes how long, again and again, at its place in
//! `.scr/arrived.<job>`. After a minute rank 0 reads the file, or the last rank if rank 0 is missing. A number that has not changed
//! since this rank's first look is of an earlier run. A job whose ranks come at once writes nothing.

use scr_base::describe;
use scr_base::env::Env;
use scr_base::fs::{At, FsError, How};
use scr_comm::watched::{shown, Pace};
use scr_comm::Rank;
use scr_config::param::{self, AppConfig, Params, Settings};
use scr_prefix::{Prefix, PrefixError, FILE_MODE};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One rank's wait for the others.
pub struct LateRanks<'a> {
    /// The call that waits: `SCR_Init` on all processes, or `SCR_Init_comm`.
    call: &'static str,
    env: &'a Env,
    app: &'a AppConfig,
    rank: Rank,
    size: u32,
    began: Duration,
    pace: Pace,
    /// When there is something to do again.
    next: Duration,
    /// Once this rank is in it.
    arrivals: Option<Result<Arrivals, PrefixError>>,
    has_said: bool,
}

/// The file in which each rank that waits has a number.
struct Arrivals {
    path: PathBuf,
    /// What was there when this rank came.
    before: Vec<u8>,
}

impl<'a> LateRanks<'a> {
    /// The wait of this rank begins.
    pub fn begin(call: &'static str, env: &'a Env, app: &'a AppConfig, rank: Rank, size: u32) -> Self {
        // The files of settings are read only if it takes long.
        let seconds = env.variable(param::LATE_SECS.info().name).and_then(|text| text.parse().ok());
        let pace = seconds.map(|seconds| Pace::of(Duration::from_secs(seconds))).unwrap_or_default();
        let began = env.clock.elapsed();
        Self { call, env, app, rank, size, began, pace, next: pace.short, arrivals: None, has_said: false }
    }

    /// Gives what the user should hear now. To be called now and then while this rank waits.
    pub fn look(&mut self) -> Option<String> {
        let waited = self.env.clock.elapsed().saturating_sub(self.began);
        if waited < self.next || self.has_said || self.pace.is_never() {
            return None;
        }
        let arrivals = self.arrivals.take().unwrap_or_else(|| self.arrive());
        let arrivals = arrivals
            .and_then(|arrivals| self.write(&arrivals.path, waited).map(|()| arrivals).map_err(Into::into));
        self.next = waited + self.pace.short;
        let said = self.asks_at().filter(|asks_at| waited >= *asks_at).and_then(|_| self.report(&arrivals));
        self.arrivals = Some(arrivals);
        self.has_said = said.is_some();
        said.map(|whom| {
            let (of, cure) = match self.call {
                "SCR_Init" => (
                    "MPI_COMM_WORLD",
                    ". If only some of them use scr, as in a coupled job, let these call SCR_Init_comm with a communicator of \
                     their own",
                ),
                _ => ("the communicator", ""),
            };
            let (call, waited) = (self.call, waited.as_secs());
            format!("{call} has waited {waited} s for {whom}; all ranks of {of} have to{cure}")
        })
    }

    /// All ranks have come.
    pub fn end(self) {
        // Each rank does: one that was slow to write itself down has made the file anew. One that stays counts for no later run.
        if let Some(Ok(arrivals)) = &self.arrivals {
            let _ = self.env.files.remove_file(&arrivals.path);
        }
    }

    /// When this rank looks after the others, if it is one that does.
    fn asks_at(&self) -> Option<Duration> {
        let is_last = self.rank.0 + 1 == self.size;
        (self.rank == Rank(0) || is_last).then(|| self.pace.knows(self.rank))
    }

    /// Reads the settings, and what ranks have written so far.
    fn arrive(&mut self) -> Result<Arrivals, PrefixError> {
        let (params, _) = Params::resolve(&Settings::load(self.env, self.app), self.env);
        self.pace = Pace::of(params.get(&param::LATE_SECS));
        let files = &*self.env.files;
        let prefix = Prefix::at(files, &params.get(&param::PREFIX));
        prefix.make(files)?;
        let path = prefix.scr_file(&format!("arrived.{}", params.get(&param::JOB_ID)));
        let before = self.asks_at().and_then(|_| self.read(&path).ok()).unwrap_or_default();
        Ok(Arrivals { path, before })
    }

    /// Records that this rank still waits.
    fn write(&self, path: &Path, waited: Duration) -> Result<(), FsError> {
        let place = u64::from(self.rank.0) * BYTES as u64;
        let number = (waited.as_nanos() as u64).to_be_bytes();
        let open = self.env.files.open(path, How::Ensure(FILE_MODE));
        open.and_then(|file| file.write_at(place, &number)).at("write", path)
    }

    /// The numbers of all ranks.
    fn read(&self, path: &Path) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; self.size as usize * BYTES];
        self.env.files.open(path, How::Read).and_then(|file| file.read_at(0, &mut bytes)).at("read", path)?;
        Ok(bytes)
    }

    /// The ranks that have not come, or why they are not known. Nothing if all have, or if rank 0 is here to report it.
    fn report(&self, arrivals: &Result<Arrivals, PrefixError>) -> Option<String> {
        let missing = arrivals.as_ref().map_err(|error| describe(error));
        let missing = missing.and_then(|arrivals| self.missing(arrivals).map_err(|error| describe(&error)));
        let missing = match missing {
            Ok(missing) => missing,
            Err(why) => return Some(format!("ranks that have not called it ({why})")),
        };
        let is_ours = self.rank == Rank(0) || missing.first() == Some(&Rank(0));
        (is_ours && !missing.is_empty()).then(|| {
            let names = shown(missing.iter().map(Rank::to_string));
            format!("{} of {} ranks to call it: {names}", missing.len(), self.size)
        })
    }

    fn missing(&self, arrivals: &Arrivals) -> Result<Vec<Rank>, FsError> {
        let now = self.read(&arrivals.path)?;
        let number = |bytes: &[u8], rank: &Rank| {
            let (numbers, _) = bytes.as_chunks::<BYTES>();
            numbers.get(rank.index()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
        };
        let has_changed = |rank: &Rank| ![0, number(&arrivals.before, rank)].contains(&number(&now, rank));
        let is_here = |rank: &Rank| *rank == self.rank || has_changed(rank);
        Ok((0..self.size).map(Rank).filter(|rank| !is_here(rank)).collect())
    }
}

/// The nanoseconds that one rank has waited.
const BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::TestEnv;
    use std::sync::Arc;
    use tempfile::TempDir;

    /// A job of four ranks.
    fn job(settings: &[(&str, &str)]) -> (TempDir, TestEnv) {
        let dir = tempfile::tempdir().unwrap();
        let env = TestEnv::new(Arc::new(RealFiles), dir.path());
        let env = settings.iter().fold(env, |env, (name, value)| env.with_variable(name, value));
        (dir, env)
    }

    /// The messages of the ranks that come, and their times. At last all have come.
    fn wait(env: &TestEnv, come: &[u32]) -> Vec<(u32, u64, String)> {
        let (world, app) = (env.env(), AppConfig::default());
        let mut ranks: Vec<_> =
            come.iter().map(|&rank| LateRanks::begin("SCR_Init", &world, &app, Rank(rank), 4)).collect();
        let mut said = Vec::new();
        for second in 1..200 {
            env.clock().advance(Duration::from_secs(1));
            for rank in &mut ranks {
                let number = rank.rank.0;
                said.extend(rank.look().map(|text| (number, second, text)));
            }
        }
        ranks.into_iter().for_each(LateRanks::end);
        said
    }

    const REST: &str = "; all ranks of MPI_COMM_WORLD have to. If only some of them use scr, as in a coupled job, let these call \
                        SCR_Init_comm with a communicator of their own";

    #[test]
    fn rank_0_names_the_ranks_that_have_not_come_after_a_minute() {
        let (dir, env) = job(&[]);
        let text = format!("SCR_Init has waited 80 s for 2 of 4 ranks to call it: ranks 1, 3{REST}");
        assert_eq!(wait(&env, &[0, 2]), [(0, 80, text)]);
        assert!(!dir.path().join(".scr/arrived.defjobid").exists());
    }

    #[test]
    fn the_last_rank_names_rank_0() {
        let (dir, env) = job(&[]);
        let text = format!("SCR_Init has waited 100 s for 1 of 4 ranks to call it: rank 0{REST}");
        assert_eq!(wait(&env, &[1, 2, 3]), [(3, 100, text)]);
        assert!(!dir.path().join(".scr/arrived.defjobid").exists());
    }

    #[test]
    fn nothing_is_said_where_all_wait_or_where_nobody_wants_it() {
        let (_dir, env) = job(&[]);
        assert_eq!(wait(&env, &[0, 1, 2, 3]), []);
        let (dir, env) = job(&[("SCR_LATE_SECS", "0")]);
        assert_eq!(wait(&env, &[0]), []);
        assert!(!dir.path().join(".scr").exists());
    }

    #[test]
    fn the_time_is_a_setting() {
        let (_dir, env) = job(&[("SCR_LATE_SECS", "6")]);
        let said = wait(&env, &[0, 1]);
        assert!(
            matches!(&said[..], [(0, 8, text)] if text.contains("2 of 4 ranks to call it: ranks 2, 3;")),
            "{said:?}"
        );
    }

    #[test]
    fn what_an_earlier_run_has_left_counts_for_nothing() {
        let (dir, env) = job(&[]);
        std::fs::create_dir(dir.path().join(".scr")).unwrap();
        // A run that was killed a moment ago.
        let old = 60_000_000_000_u64.to_be_bytes();
        std::fs::write(dir.path().join(".scr/arrived.defjobid"), [old; 9].concat()).unwrap();
        let said = wait(&env, &[0]);
        assert!(
            matches!(&said[..], [(0, _, text)] if text.contains("3 of 4 ranks to call it: ranks 1, 2, 3;")),
            "{said:?}"
        );
    }

    #[test]
    fn a_prefix_directory_that_cannot_be_used_is_named() {
        let (dir, env) = job(&[]);
        std::fs::write(dir.path().join(".scr"), "").unwrap();
        let said = wait(&env, &[0, 1]);
        let why = "SCR_Init has waited 80 s for ranks that have not called it (";
        assert!(
            matches!(&said[..], [(0, 80, text)] if text.starts_with(why) && text.contains(".scr")),
            "{said:?}"
        );
    }
}
