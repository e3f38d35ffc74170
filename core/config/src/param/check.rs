//! Settings that are valid one by one and contradict each other.
//!
//! Only explicit settings are reported: the defaults are consistent.

use super::origin::Origin;
use super::params::Params;
use super::problem::Problem;
use super::table::{self, Info, Param};

/// Every pair of parameters that contradict each other. Descriptors are checked where they are built.
pub(super) fn contradictions(params: &Params) -> Vec<Problem> {
    let mut check = Check { params, problems: Vec::new() };
    check.flush_and_fetch();
    check.watchdog();
    check.log();
    check.purge();
    check.problems
}

/// The settings, and what was found in them.
struct Check<'p> {
    params: &'p Params,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn flush_and_fetch(&mut self) {
        self.report(
            self.on(&table::FLUSH_ASYNC) && self.params.get(&table::FLUSH_TYPE) == "SYNC",
            table::FLUSH_ASYNC.info(),
            table::FLUSH_TYPE.info(),
            "this transport copies while the application waits",
            "set SCR_FLUSH_TYPE=PTHREAD, or flushes are synchronous",
        );
        self.report(
            self.on(&table::FLUSH_POSTSTAGE) && !self.on(&table::FLUSH_ASYNC),
            table::FLUSH_POSTSTAGE.info(),
            table::FLUSH_ASYNC.info(),
            "only an asynchronous flush can be finished after the job",
            "set SCR_FLUSH_ASYNC=1, or nothing is left to do after the job",
        );
        self.report(
            self.on(&table::GLOBAL_RESTART) && !self.on(&table::FETCH),
            table::GLOBAL_RESTART.info(),
            table::FETCH.info(),
            "a restart from the prefix directory has to fetch",
            "set SCR_FETCH=1, or SCR_FLUSH_ON_RESTART=1 if the application reads its files without SCR",
        );
    }

    fn watchdog(&mut self) {
        let timeouts = [&table::WATCHDOG_TIMEOUT, &table::WATCHDOG_TIMEOUT_PFS];
        self.report(
            self.on(&table::WATCHDOG) && timeouts.iter().all(|timeout| self.params.get(*timeout).is_none()),
            table::WATCHDOG.info(),
            table::WATCHDOG_TIMEOUT.info(),
            "the watchdog does not know how long is too long",
            "set SCR_WATCHDOG_TIMEOUT and SCR_WATCHDOG_TIMEOUT_PFS, or it does nothing",
        );
        // The user guide sets the times alone. A site may set them for users who switch a watchdog on.
        if let Some(timeout) = timeouts.into_iter().find(|timeout| is_of_user(self.params.origin(timeout))) {
            self.report(
                !self.params.origin(&table::WATCHDOG).is_set(),
                timeout.info(),
                table::WATCHDOG.info(),
                "no watchdog looks at the time",
                "set SCR_WATCHDOG=1 and start the job with scr_run, or SCR_WATCHDOG=0 to say so",
            );
        }
    }

    fn log(&mut self) {
        self.report(
            self.on(&table::LOG_ENABLE)
                && self.on(&table::LOG_DB_ENABLE)
                && self.params.get(&table::LOG_DB_HOST).is_none(),
            table::LOG_DB_ENABLE.info(),
            table::LOG_DB_HOST.info(),
            "the database needs a server",
            "set SCR_LOG_DB_HOST, or nothing is logged to a database",
        );
        self.report(
            self.on(&table::LOG_DB_ENABLE) && !self.on(&table::LOG_ENABLE),
            table::LOG_DB_ENABLE.info(),
            table::LOG_ENABLE.info(),
            "nothing is logged at all",
            "set SCR_LOG_ENABLE=1 to log to the database",
        );
    }

    fn purge(&mut self) {
        self.report(
            self.on(&table::PREFIX_PURGE) && self.params.get(&table::CURRENT).is_some(),
            table::PREFIX_PURGE.info(),
            table::CURRENT.info(),
            "the dataset to start from is deleted with all others",
            "unset one of the two",
        );
        let deleted = "what is in cache is deleted before it can be restarted from";
        let flushed = "unset one of the two, or only checkpoints that were flushed count";
        let required = self.on(&table::REQUIRE_RESTART);
        let (purge, distribute) = (self.on(&table::CACHE_PURGE), self.on(&table::DISTRIBUTE));
        for (deletes, by) in [(purge, &table::CACHE_PURGE), (!distribute, &table::DISTRIBUTE)] {
            self.report(required && deletes, table::REQUIRE_RESTART.info(), by.info(), deleted, flushed);
        }
    }

    fn on(&self, param: &Param<bool>) -> bool {
        self.params.get(param)
    }

    /// A problem of the setting that `first` names, if it is `wrong`.
    fn report(&mut self, wrong: bool, first: &Info, second: &Info, why: &str, now: &str) {
        if !wrong {
            return;
        }
        let parameter = |info: &Info| self.params.named(info.name);
        let text = |info: &Info| {
            parameter(info).map_or_else(|| info.name.to_string(), |found| format!("{}={found}", info.name))
        };
        let origin = parameter(first).map_or(Origin::Default, |found| found.origin.clone());
        let message = format!("{} and {} contradict each other: {why}; {now}", text(first), text(second));
        self.problems.push(Problem { origin, cause: message.into() });
    }
}

fn is_of_user(origin: &Origin) -> bool {
    matches!(origin, Origin::Environment | Origin::UserFile(_) | Origin::Application)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{world, world_of};
    use super::super::{AppConfig, Settings};
    use super::*;

    fn problems(variables: &[(&str, &str)]) -> Vec<String> {
        let env =
            variables.iter().fold(world(), |world, (name, value)| world.with_variable(name, value)).env();
        let (_, problems) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
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
        let (_, problems) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
        assert_eq!(problems, []);
        let off = [("SCR_WATCHDOG", "0"), ("SCR_WATCHDOG_TIMEOUT", "600")];
        assert_eq!(self::problems(&off), Vec::<String>::new());
    }

    #[test]
    fn a_site_may_let_calls_succeed_for_those_who_turn_scr_off() {
        assert_eq!(problems(&[("SCR_PASS_THROUGH", "1")]), Vec::<String>::new());
    }

    #[test]
    fn each_contradiction_is_reported_once_with_both_settings() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (
                &[("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "SYNC")],
                "SCR_FLUSH_ASYNC=1 and SCR_FLUSH_TYPE=SYNC",
            ),
            (&[("SCR_FLUSH_POSTSTAGE", "1")], "SCR_FLUSH_POSTSTAGE=1 and SCR_FLUSH_ASYNC=0"),
            (&[("SCR_GLOBAL_RESTART", "1"), ("SCR_FETCH", "0")], "SCR_GLOBAL_RESTART=1 and SCR_FETCH=0"),
            (&[("SCR_WATCHDOG", "1")], "SCR_WATCHDOG=1 and SCR_WATCHDOG_TIMEOUT=(unset)"),
            (&[("SCR_WATCHDOG_TIMEOUT_PFS", "9")], "SCR_WATCHDOG_TIMEOUT_PFS=9 and SCR_WATCHDOG=0"),
            (
                &[("SCR_LOG_ENABLE", "1"), ("SCR_LOG_DB_ENABLE", "1")],
                "SCR_LOG_DB_ENABLE=1 and SCR_LOG_DB_HOST=(unset)",
            ),
            (&[("SCR_LOG_DB_ENABLE", "1")], "SCR_LOG_DB_ENABLE=1 and SCR_LOG_DB_HOST=(unset)"),
            (
                &[("SCR_LOG_DB_ENABLE", "1"), ("SCR_LOG_ENABLE", "0")],
                "SCR_LOG_DB_ENABLE=1 and SCR_LOG_ENABLE=0",
            ),
            (&[("SCR_PREFIX_PURGE", "1"), ("SCR_CURRENT", "c")], "SCR_PREFIX_PURGE=1 and SCR_CURRENT=c"),
            (
                &[("SCR_REQUIRE_RESTART", "1"), ("SCR_CACHE_PURGE", "1")],
                "SCR_REQUIRE_RESTART=1 and SCR_CACHE_PURGE=1",
            ),
            (
                &[("SCR_REQUIRE_RESTART", "1"), ("SCR_DISTRIBUTE", "0")],
                "SCR_REQUIRE_RESTART=1 and SCR_DISTRIBUTE=0",
            ),
        ];
        for (variables, expected) in cases {
            let found = problems(variables);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(expected) && found[0].starts_with("environment: "), "{found:?}");
        }
    }
}
