//! The jobs of a log: which entry belongs to which, and what each has cost.
//!
//! A job is all runs of an allocation in a prefix directory until one has finished. Jobs may have the same id, one after the
//! other or at the same time: without a resource manager all have.

use super::account::{Account, History};
use super::figures::{Figures, State};
use super::record::Event;
use super::text::parse_exact;
use scr_base::fs::{Files, Kind};
use scr_plugin_api::LogEntry;
use scr_prefix::Prefix;
use std::collections::HashMap;

/// The costs of the jobs of a log, by their start. The entries are those of one prefix directory, in any order.
pub fn jobs(mut entries: Vec<LogEntry>) -> Vec<(Figures, History)> {
    // Entries are written together, and two processes may write at a time.
    entries.sort_by_key(|entry| entry.micros);
    accounts(&entries, Account::with_history).into_iter().map(Account::into_parts).collect()
}

fn accounts(entries: &[LogEntry], new: impl Fn() -> Account) -> Vec<Account> {
    let of_runs =
        entries.iter().filter_map(|entry| Some(((entry.job_id.as_str(), entry.run?), entry.micros)));
    let last_of_run: HashMap<(&str, u64), u64> = of_runs.collect();
    let mut accounts: Vec<Account> = Vec::new();
    // The account of the newest job of an id, with its last run; and that of each run.
    let mut newest: HashMap<&str, (usize, Option<u64>)> = HashMap::new();
    let mut of_run: HashMap<(&str, u64), usize> = HashMap::new();
    for entry in entries {
        let id = entry.job_id.as_str();
        let known = entry.run.and_then(|run| of_run.get(&(id, run)).copied());
        let place = known.unwrap_or_else(|| {
            let begins = entry.run.is_some()
                || [Event::Start, Event::RunStart].iter().any(|event| event.name() == entry.name);
            let joins = |&(place, run): &(usize, Option<u64>)| {
                let ended =
                    run.and_then(|run| last_of_run.get(&(id, run))).is_none_or(|last| *last <= entry.micros);
                let is_finished = accounts[place].figures.state == State::Finished;
                (!begins || !is_finished && ended).then_some(place)
            };
            let place = newest.get(id).and_then(joins).unwrap_or_else(|| {
                accounts.push(new());
                accounts.len() - 1
            });
            let run = entry.run.or(newest.get(id).filter(|found| found.0 == place).and_then(|found| found.1));
            newest.insert(id, (place, run));
            if let Some(run) = entry.run {
                of_run.insert((id, run), place);
            }
            place
        });
        accounts[place].take(entry);
    }
    pass_losses_on(&mut accounts);
    accounts
}

/// A job that goes on from a checkpoint of the one before it does not go on from what that one has computed since.
fn pass_losses_on(accounts: &mut [Account]) {
    for at in 1..accounts.len() {
        let (earlier, later) = accounts.split_at_mut(at);
        let Some(id) = later[0].inherits else { continue };
        let began = later[0].figures.began;
        let before = earlier.iter_mut().filter(|job| job.figures.until <= began);
        if let Some(before) = before.max_by_key(|job| job.figures.until) {
            before.lose_after(id, before.figures.until);
        }
    }
}

/// The account of the newest job with this id, to go on with: one that has not finished. Entries that cannot be read are left
/// out.
pub(crate) fn account_of(files: &dyn Files, prefix: &Prefix, job_id: &str) -> Account {
    let own = format!(", jobid={}, ", super::text::plain(job_id));
    let mut entries = Vec::new();
    let [newer, older] = prefix.event_files();
    for path in [older, newer] {
        if !files.status(&path).is_ok_and(|found| found.kind == Kind::File) {
            continue;
        }
        let Ok(bytes) = files.read_all(&path, MOST_READ) else { continue };
        let lines = String::from_utf8_lossy(&bytes);
        entries.extend(
            lines.lines().filter(|line| line.contains(&own)).filter_map(|line| parse_exact(line).ok()),
        );
    }
    entries.sort_by_key(|entry| entry.micros);
    let newest = accounts(&entries, Account::default).pop();
    newest.filter(|newest| newest.figures.state != State::Finished).unwrap_or_default()
}

/// A file of others' making may be of any length.
const MOST_READ: u64 = 4 * super::events::MOST_BYTES;

#[cfg(test)]
mod tests {
    use super::super::figures::Class;
    use super::*;
    use scr_prefix::Halt;

    fn entry(second: u64, job: &str, run: Option<u64>, name: &str) -> LogEntry {
        let (name, job_id) = (name.to_owned(), job.to_owned());
        LogEntry { name, job_id, run, micros: second * 1_000_000, ..LogEntry::default() }
    }

    /// A run from this second on, with a checkpoint of this id after 10 seconds and a sign of life after 15.
    fn run(second: u64, job: &str, run: u64, id: u64) -> Vec<LogEntry> {
        let of = |later: u64, name: &str| entry(second + later, job, Some(run), name);
        let checkpoint = LogEntry { dataset: Some(id), ..of(10, "CHECKPOINT_END") };
        let computed = of(10, "COMPUTE_END");
        vec![
            of(0, "START"),
            of(0, "COMPUTE_START"),
            computed,
            checkpoint,
            of(10, "COMPUTE_START"),
            of(15, "FLUSH_START"),
        ]
    }

    fn finished(second: u64, job: &str, run: u64) -> LogEntry {
        LogEntry { note: Some(Halt::FINALIZED.to_owned()), ..entry(second, job, Some(run), "HALT") }
    }

    fn of(parts: &[&[LogEntry]]) -> Vec<Figures> {
        jobs(parts.concat()).into_iter().map(|(figures, _)| figures).collect()
    }

    #[test]
    fn runs_of_an_allocation_are_one_job_until_one_has_finished() {
        let figures =
            of(&[&run(0, "7", 1, 1), &run(30, "7", 2, 2), &[finished(50, "7", 2)], &run(60, "7", 3, 3)]);
        let seen: Vec<_> = figures.iter().map(|job| (job.runs, job.failures, job.state)).collect();
        assert_eq!(seen, [(2, 1, State::Finished), (1, 0, State::Running)]);
        assert_eq!(figures[0].seconds(Class::Lost), 15.0 - 5.0, "as long as usual, since it gave no sign");
    }

    #[test]
    fn two_jobs_of_one_id_at_a_time_are_two_jobs() {
        let figures =
            of(&[&run(0, "7", 1, 1), &run(5, "7", 2, 2), &[finished(40, "7", 2), finished(41, "7", 1)]]);
        let seen: Vec<_> = figures.iter().map(|job| (job.runs, job.elapsed() / 1_000_000)).collect();
        assert_eq!(seen, [(1, 41), (1, 35)]);
    }

    #[test]
    fn entries_of_commands_belong_to_the_job_of_their_time() {
        let command = |second, name: &str| entry(second, "7", None, name);
        let around = [
            command(0, "RUN_START"),
            command(60, "RUN_END"),
            command(61, "POSTRUN_START"),
            command(65, "POSTRUN_END"),
        ];
        let figures =
            of(&[&around, &run(10, "7", 1, 1), &[finished(50, "7", 1)], &[command(100, "RUN_START")]]);
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].elapsed(), figures[0].seconds(Class::Saving)), (65_000_000, 4.0));
        assert_eq!((figures[0].seconds(Class::Restart), figures[1].state), (10.0, State::Waiting));
    }

    #[test]
    fn the_next_allocation_shows_what_the_last_one_has_lost() {
        let restart = LogEntry { dataset: Some(1), ..entry(1000, "8", Some(9), "RESTART_START") };
        let mut first = run(0, "7", 1, 1);
        first.extend(run(15, "7", 1, 2)[2..].to_vec());
        let before = of(&[&first]);
        let after = of(&[&first, &[entry(1000, "8", Some(9), "START"), restart]]);
        assert_eq!((before[0].seconds(Class::Computing), before[0].seconds(Class::Lost)), (30.0, 0.0));
        assert_eq!((after[0].seconds(Class::Computing), after[0].seconds(Class::Lost)), (10.0, 15.0 + 5.0));
    }
}
