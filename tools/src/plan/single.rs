//! `scr plan --model`: the efficiency of one plan, by the published model alone.

use super::forms::{rate, seconds};
use super::PlanArgs;
use anyhow::{ensure, Result};
use scr_config::document::Document;
use scr_plan::{Level, Machine, Plan, Recovery, MOST_LEVELS};
use std::path::Path;

/// The machine of a file with `[[level]]` tables, from the lowest level to the highest.
pub(super) fn read(path: &Path, text: &str) -> Result<Machine> {
    let document = Document { path, text };
    let table = document.parse()?;
    let root = document.root(&table).only(&["level"])?;
    let mut levels = Vec::new();
    for section in root.sections("level")? {
        let section = section.only(&["cost", "rate", "recover"])?;
        let write = section.required("cost", &seconds())?;
        let recover = section.optional("recover", &seconds())?.unwrap_or(write);
        levels.push(Level { write, recover, hidden: 0.0, rate: section.required("rate", &rate())? });
    }
    let what = "there is no [[level]]; each has a `cost' in seconds and a `rate' in failures per second";
    ensure!(!levels.is_empty(), root.error(what));
    ensure!(
        levels.len() <= MOST_LEVELS,
        root.error(format_args!("there are {} [[level]] tables; the most is {MOST_LEVELS}", levels.len()))
    );
    Ok(Machine::new(levels, Recovery::OfCheckpoint).map_err(|error| root.error(error))?)
}

/// The plan of the options. The last count is the one of the highest level, which ends the pattern.
pub(super) fn plan(args: &PlanArgs, levels: usize) -> Result<Plan> {
    let (last, counts) = args.counts.split_last().map_or((0, &[][..]), |(last, counts)| (*last, counts));
    let given = args.counts.len();
    ensure!(
        given == levels,
        "--counts has {given} numbers; the machine has {levels} levels, so give {levels} of them"
    );
    ensure!(last == 1, "--counts ends with {last}; it must end with 1, for the checkpoint of the highest level that ends a pattern");
    Ok(Plan { interval: args.interval.unwrap_or(0.0), counts: counts.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read(Path::new("m.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn the_levels_of_a_file_are_read_from_the_lowest() {
        let machine = read(
            Path::new("m"),
            "[[level]]\ncost = 15\nrate = 8.54e-7\n[[level]]\ncost = \"30m\"\nrate = 2e-7\nrecover = 7\n",
        );
        let levels = machine.unwrap().levels().to_vec();
        assert_eq!((levels[0].write, levels[0].recover, levels[0].rate), (15.0, 15.0, 8.54e-7));
        assert_eq!((levels[1].write, levels[1].recover), (1800.0, 7.0));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let cases = [
            ("", "m.toml:1: there is no [[level]]; each has a `cost' in seconds and a `rate' in failures per second"),
            ("level = 3", "m.toml:1: `level' is 3; it must be tables [[level]]"),
            ("level = [3]", "m.toml:1: `level' is [3]; it must be tables [[level]]"),
            ("[[level]]\ncost = 1\n", "m.toml:1: the key `level.rate' is missing: failures per second"),
            ("[[level]]\nrate = 1e-6\n\n[[level]]\n", "m.toml:1: the key `level.cost' is missing: "),
            ("[[level]]\ncsot = 1\n", "m.toml:2: unknown key `level.csot'; did you mean `cost'?"),
            ("[[level]]\nbananas = 1\n", "m.toml:2: unknown key `level.bananas'; known are cost, rate, recover"),
            ("\nlevels = 3", "m.toml:2: unknown key `levels'; did you mean `level'?"),
            ("[[level]]\ncost = -1\nrate = 1e-6", "m.toml:2: `level.cost' is -1; it must be seconds, "),
            ("[[level]]\ncost = nan\nrate = 1e-6", "m.toml:2: `level.cost' is nan; it must be seconds, "),
            ("[[level]]\ncost = inf\nrate = 1e-6", "m.toml:2: `level.cost' is inf; it must be seconds, "),
            ("[[level]]\ncost = 1e300\nrate = 1e-6", "m.toml:2: `level.cost' is 1e300; it must be seconds, "),
            ("[[level]]\ncost = \"soon\"\nrate = 1e-6", "m.toml:2: `level.cost' is \"soon\"; it must be seconds, "),
            ("[[level]]\ncost = 1\nrate = true", "m.toml:3: `level.rate' is true; it must be failures per second, "),
            ("[[level]]\ncost = 1\nrate = 0", "m.toml:1: the rates of all levels are 0; "),
            ("[[level]\ncost = 1", "m.toml:1: "),
            ("x = ", "m.toml:1: "),
        ];
        for (text, expected) in cases {
            let error = error(text);
            assert!(error.starts_with(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
        let many = "[[level]]\ncost = 1\nrate = 1e-6\n".repeat(9);
        assert_eq!(error(&many), "m.toml:1: there are 9 [[level]] tables; the most is 8");
    }
}
