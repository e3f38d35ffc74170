//! Settings that are each fine and contradict each other.
//!
//! Only what somebody has set is looked at: the defaults go together.

use super::origin::Origin;
use super::params::Params;
use super::problem::{Cause, Problem};
use super::table::{self, Param};

/// Every pair of parameters that do not go together. What concerns descriptors is told when they are built.
pub(crate) fn contradictions(params: &Params) -> Vec<Problem> {
    let check = Check { params };
    let mut problems = Vec::new();
    problems.extend(check.asynchronous());
    problems.extend(check.poststage());
    problems.extend(check.restart());
    problems.extend(check.watchdog());
    problems.extend(check.timeouts());
    problems.extend(check.database());
    problems.extend(check.logs());
    problems.extend(check.purge());
    problems
}

struct Check<'a> {
    params: &'a Params,
}

impl Check<'_> {
    fn on(&self, param: &Param<bool>) -> bool {
        self.params.get(param)
    }

    /// A problem with the setting that `first` names.
    fn problem<A, B>(
        &self,
        first: &Param<A>,
        second: &Param<B>,
        why: &'static str,
        now: &'static str,
    ) -> Problem {
        let shown = |name: &str| match self.params.named(name) {
            Some(effective) => format!("{name}={effective}"),
            None => name.to_string(),
        };
        let cause = Cause::Contradiction {
            first: shown(first.info().name),
            second: shown(second.info().name),
            why,
            now,
        };
        Problem::new(self.params.origin(first), cause)
    }

    fn asynchronous(&self) -> Option<Problem> {
        let is_sync = self.params.get(&table::FLUSH_TYPE) == "SYNC";
        (self.on(&table::FLUSH_ASYNC) && is_sync).then(|| {
            self.problem(
                &table::FLUSH_ASYNC,
                &table::FLUSH_TYPE,
                "this transport copies while the application waits",
                "set SCR_FLUSH_TYPE=PTHREAD, or flushes are synchronous",
            )
        })
    }

    fn poststage(&self) -> Option<Problem> {
        (self.on(&table::FLUSH_POSTSTAGE) && !self.on(&table::FLUSH_ASYNC)).then(|| {
            self.problem(
                &table::FLUSH_POSTSTAGE,
                &table::FLUSH_ASYNC,
                "only an asynchronous flush can be finished after the job",
                "set SCR_FLUSH_ASYNC=1, or nothing is left to do after the job",
            )
        })
    }

    fn restart(&self) -> Option<Problem> {
        (self.on(&table::GLOBAL_RESTART) && !self.on(&table::FETCH)).then(|| {
            self.problem(
                &table::GLOBAL_RESTART,
                &table::FETCH,
                "a restart from the prefix directory has to fetch",
                "set SCR_FETCH=1, or SCR_FLUSH_ON_RESTART=1 if the application reads its files without SCR",
            )
        })
    }

    fn watchdog(&self) -> Option<Problem> {
        let no_timeout = self.params.get(&table::WATCHDOG_TIMEOUT).is_none()
            && self.params.get(&table::WATCHDOG_TIMEOUT_PFS).is_none();
        (self.on(&table::WATCHDOG) && no_timeout).then(|| {
            self.problem(
                &table::WATCHDOG,
                &table::WATCHDOG_TIMEOUT,
                "the watchdog does not know how long is too long",
                "set SCR_WATCHDOG_TIMEOUT and SCR_WATCHDOG_TIMEOUT_PFS, or it does nothing",
            )
        })
    }

    /// The user guide has the times alone, as if they were enough. A site may set them for those who want a watchdog.
    fn timeouts(&self) -> Option<Problem> {
        let of_user = |timeout: &&Param<_>| {
            matches!(
                self.params.origin(timeout),
                Origin::Environment | Origin::UserFile(_) | Origin::Application
            )
        };
        let timeout = [&table::WATCHDOG_TIMEOUT, &table::WATCHDOG_TIMEOUT_PFS].into_iter().find(of_user)?;
        (!self.params.origin(&table::WATCHDOG).is_set()).then(|| {
            self.problem(
                timeout,
                &table::WATCHDOG,
                "no watchdog looks at the time",
                "set SCR_WATCHDOG=1 and start the job with scr_run, or SCR_WATCHDOG=0 to say so",
            )
        })
    }

    fn database(&self) -> Option<Problem> {
        let wanted = self.on(&table::LOG_ENABLE) && self.on(&table::LOG_DB_ENABLE);
        (wanted && self.params.get(&table::LOG_DB_HOST).is_none()).then(|| {
            self.problem(
                &table::LOG_DB_ENABLE,
                &table::LOG_DB_HOST,
                "the database needs a server",
                "set SCR_LOG_DB_HOST, or nothing is logged to a database",
            )
        })
    }

    fn logs(&self) -> Option<Problem> {
        let wanted = self.on(&table::LOG_DB_ENABLE) && !self.on(&table::LOG_ENABLE);
        wanted.then(|| {
            self.problem(
                &table::LOG_DB_ENABLE,
                &table::LOG_ENABLE,
                "nothing is logged at all",
                "set SCR_LOG_ENABLE=1 to log to the database",
            )
        })
    }

    fn purge(&self) -> Option<Problem> {
        let wanted = self.on(&table::PREFIX_PURGE) && self.params.get(&table::CURRENT).is_some();
        wanted.then(|| {
            self.problem(
                &table::PREFIX_PURGE,
                &table::CURRENT,
                "the dataset to start from is deleted with all others",
                "unset one of the two",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{world, world_of};
    use super::super::{AppConfig, RawSettings};
    use super::*;

    fn problems(variables: &[(&str, &str)]) -> Vec<String> {
        let env =
            variables.iter().fold(world(), |world, (name, value)| world.with_variable(name, value)).env();
        let (_, problems) = Params::resolve(&RawSettings::load(&env, &AppConfig::default()), &env);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_defaults_go_together() {
        assert_eq!(problems(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_site_may_set_the_times_of_a_watchdog_that_users_switch_on() {
        let files = [("/opt/scr/etc/scr.conf", "SCR_WATCHDOG_TIMEOUT=600\n")];
        let env = world_of(&files).env();
        let (_, problems) = Params::resolve(&RawSettings::load(&env, &AppConfig::default()), &env);
        assert_eq!(problems, []);
        let off = [("SCR_WATCHDOG", "0"), ("SCR_WATCHDOG_TIMEOUT", "600")];
        assert_eq!(self::problems(&off), Vec::<String>::new());
    }

    #[test]
    fn each_contradiction_is_told_once_with_both_settings() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("SCR_FLUSH_ASYNC", "1")], "SCR_FLUSH_ASYNC=1 and SCR_FLUSH_TYPE=SYNC"),
            (&[("SCR_FLUSH_POSTSTAGE", "1")], "SCR_FLUSH_POSTSTAGE=1 and SCR_FLUSH_ASYNC=0"),
            (&[("SCR_GLOBAL_RESTART", "1"), ("SCR_FETCH", "0")], "SCR_GLOBAL_RESTART=1 and SCR_FETCH=0"),
            (&[("SCR_WATCHDOG", "1")], "SCR_WATCHDOG=1 and SCR_WATCHDOG_TIMEOUT=(unset)"),
            (&[("SCR_WATCHDOG_TIMEOUT_PFS", "9")], "SCR_WATCHDOG_TIMEOUT_PFS=9 and SCR_WATCHDOG=0"),
            (
                &[("SCR_LOG_ENABLE", "1"), ("SCR_LOG_DB_ENABLE", "1")],
                "SCR_LOG_DB_ENABLE=1 and SCR_LOG_DB_HOST=(unset)",
            ),
            (&[("SCR_LOG_DB_ENABLE", "1")], "SCR_LOG_DB_ENABLE=1 and SCR_LOG_ENABLE=0"),
            (&[("SCR_PREFIX_PURGE", "1"), ("SCR_CURRENT", "c")], "SCR_PREFIX_PURGE=1 and SCR_CURRENT=c"),
        ];
        for (variables, expected) in cases {
            let found = problems(variables);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(expected) && found[0].starts_with("environment: "), "{found:?}");
        }
    }
}
