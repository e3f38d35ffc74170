//! Settings that are valid one by one and contradict each other.
//!
//! Only explicit settings are reported: the defaults are consistent.

use super::origin::Origin;
use super::params::Params;
use super::problem::Problem;
use super::table::{
    Info, Param, CURRENT, FETCH, FLUSH_ASYNC, FLUSH_POSTSTAGE, FLUSH_TYPE, GLOBAL_RESTART, LOG_DB_ENABLE,
    LOG_DB_HOST, LOG_ENABLE, PREFIX_PURGE, WATCHDOG, WATCHDOG_TIMEOUT, WATCHDOG_TIMEOUT_PFS,
};

/// A table: when two parameters contradict each other, which, and why with what to do about it.
macro_rules! rules {
    ($($wrong:expr => $first:ident, $second:ident: $why:expr;)*) => {
        [$(($wrong, $first.info(), $second.info(), $why)),*]
    };
}

/// Every pair of parameters that contradict each other. Descriptors are checked where they are built.
pub(super) fn contradictions(params: &Params) -> Vec<Problem> {
    let on = |param: &Param<bool>| params.get(param);
    let logs = params.get(&LOG_ENABLE) != Some(false);
    // Users set the times alone. A site may set them for users who switch a watchdog on.
    let of_user = [&WATCHDOG_TIMEOUT, &WATCHDOG_TIMEOUT_PFS].map(|time| params.origin(time).is_of_user());
    let unwatched = !params.origin(&WATCHDOG).is_set();
    let untimed = params.get(&WATCHDOG_TIMEOUT).or(params.get(&WATCHDOG_TIMEOUT_PFS)).is_none();
    let rules = rules! {
        on(&FLUSH_ASYNC) && params.get(&FLUSH_TYPE) == "SYNC" => FLUSH_ASYNC, FLUSH_TYPE:
            "this transport copies while the application waits; set SCR_FLUSH_TYPE=PTHREAD, or flushes are synchronous";
        on(&FLUSH_POSTSTAGE) && !on(&FLUSH_ASYNC) => FLUSH_POSTSTAGE, FLUSH_ASYNC:
            "only an asynchronous flush can be finished after the job; set SCR_FLUSH_ASYNC=1, or nothing is left to do after the job";
        on(&GLOBAL_RESTART) && !on(&FETCH) => GLOBAL_RESTART, FETCH:
            "a restart from the prefix directory has to fetch; set SCR_FETCH=1, or SCR_FLUSH_ON_RESTART=1 if the application reads \
             its files without SCR";
        on(&WATCHDOG) && untimed => WATCHDOG, WATCHDOG_TIMEOUT:
            "the watchdog does not know how long is too long; set SCR_WATCHDOG_TIMEOUT and SCR_WATCHDOG_TIMEOUT_PFS, or it does nothing";
        unwatched && of_user[0] => WATCHDOG_TIMEOUT, WATCHDOG: UNWATCHED;
        unwatched && of_user == [false, true] => WATCHDOG_TIMEOUT_PFS, WATCHDOG: UNWATCHED;
        logs && on(&LOG_DB_ENABLE) && params.get(&LOG_DB_HOST).is_none() => LOG_DB_ENABLE, LOG_DB_HOST:
            "the database needs a server; set SCR_LOG_DB_HOST, or nothing is logged to a database";
        on(&LOG_DB_ENABLE) && !logs => LOG_DB_ENABLE, LOG_ENABLE:
            "nothing is logged at all; set SCR_LOG_ENABLE=1 to log to the database";
        on(&PREFIX_PURGE) && params.get(&CURRENT).is_some() => PREFIX_PURGE, CURRENT:
            "the dataset to start from is deleted with all others; unset one of the two";
    };
    let wrong = rules.into_iter().filter(|(is_wrong, ..)| *is_wrong);
    wrong.map(|(_, first, second, why)| problem(params, first, second, why)).collect()
}

const UNWATCHED: &str =
    "no watchdog looks at the time; set SCR_WATCHDOG=1 and start the job with scr_run, or SCR_WATCHDOG=0 to say so";

/// A problem of the setting that `first` names.
fn problem(params: &Params, first: &Info, second: &Info, why: &str) -> Problem {
    let parameter = |info: &Info| params.named(info.name);
    let text = |info: &Info| {
        parameter(info).map_or_else(|| info.name.to_string(), |found| format!("{}={found}", info.name))
    };
    let origin = parameter(first).map_or(Origin::Default, |found| found.origin.clone());
    let message = format!("{} and {} contradict each other: {why}", text(first), text(second));
    Problem { origin, cause: message.into() }
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
        ];
        for (variables, expected) in cases {
            let found = problems(variables);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(expected) && found[0].starts_with("environment: "), "{found:?}");
        }
    }
}
